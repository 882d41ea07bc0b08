"""log_lines: every line that the client writes to the program's log, with its level.

They go through the standard `logging`, all to the one logger ``logservice_client``. It has a
handler that does nothing, so a program that set up no logging sees nothing. Importing the package
writes no line.

A line has ids of logs, addresses, LSNs, times, names of holds and what a store said went wrong.

INV-CLIENT-LOG: a line never has the bytes of a record, nor a secret of a session; and a store can
neither put a line break into it nor make it longer than LOGGED_ERROR_CHARS_MAX allows.
"""

from __future__ import annotations

import enum
import logging
from typing import Final

from logservice_wire.errors import LogServiceError

from logservice_client.bounds import LOGGED_ERROR_CHARS_MAX

LOGGER: Final = logging.getLogger("logservice_client")
LOGGER.addHandler(logging.NullHandler())


class Line(enum.Enum):
    """A line: its level, and its text with a place for each argument. docs/client.md lists them."""

    RETRIED = logging.DEBUG, "log %d: %s failed at %s, and is tried again in %d ms: %s"
    SESSION_OPENED = logging.DEBUG, "log %d: a session for appends is open"
    LEADER_LOST = logging.INFO, "log %d: its leader at %s does not serve it now: %s"
    LEADER_MOVED = logging.INFO, "log %d: it is led at %s now, and no more at %s"
    SESSION_OPENED_AGAIN = logging.INFO, "log %d: a new session for appends is open"
    OUTAGE_OVER = logging.INFO, "log %d: %s goes on, after %.1f s"
    CERTIFICATES_RENEWED = logging.INFO, "new certificates were read, and connections are renewed"
    OUTAGE = logging.WARNING, "log %d: %s has not gone on for %.1f s: %s"
    STALLED = logging.WARNING, "log %d: no ack from %s for %.1f s; appends go to another store"
    SESSION_LOST = logging.WARNING, "log %d: blocks with an unknown outcome: %d; their session: %s"
    FENCED = logging.WARNING, "log %d: another writer has it; appends of writer epoch %d fail: %s"
    LINEAGE_CHANGED = logging.WARNING, "log %d: it is another history now: %s"
    HOLD_NOT_RENEWED = (
        logging.WARNING,
        "log %d: hold %r is overdue, but may be renewed yet: %s",
    )
    HOLD_LOST = logging.ERROR, "log %d: hold %r is lost; records from LSN %d on may be truncated"

    def __init__(self, level: int, text: str) -> None:
        """See the class."""
        self.level = level
        self.text = text

    def say(self, *arguments: object) -> None:
        """Write it, if the logger takes its level."""
        if LOGGER.isEnabledFor(self.level):
            shown = [shown_error(a) if isinstance(a, LogServiceError) else a for a in arguments]
            LOGGER.log(self.level, self.text, *shown, stacklevel=2)


def shown_error(error: LogServiceError) -> str:
    """An error in a line. A part of it may come from a store, which is not to be trusted."""
    text = str(error)
    if len(text) > LOGGED_ERROR_CHARS_MAX:
        text = text[:LOGGED_ERROR_CHARS_MAX] + "..."
    return text if text.isprintable() else ascii(text)
