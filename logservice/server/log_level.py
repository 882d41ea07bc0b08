"""log_level: how much a running store writes to its log, and for how long.

The configuration says it for every start (`logging.level`). A person may want more of it while
something is wrong, without a restart, which would end what is wrong or make it worse. Such a change
is kept in memory alone: it ends when its time is over, with the next change, or with the process. A
configuration that is read again while the store runs does not end it, because whoever asked for it
still waits for its lines: it changes to which level the log goes back.

Loggers that `log_format` quiets keep levels of their own; nobody wants their lines at any level.
Events below the level are not written, and the admin port does not show them.
"""

from __future__ import annotations

import asyncio
import logging
import time

from logservice_wire.errors import InvalidArgument

from logservice.bounds import LOG_LEVEL_S_MAX
from logservice.log_levels import LOG_LEVELS

logger = logging.getLogger(__name__)


class LogLevel:
    """One per store process, used on its loop. `close` it in the end."""

    def __init__(self, configured: str) -> None:
        """`configured`: what is in force now, and again when a change ends."""
        self.configured = configured
        self.level = configured
        self._end: asyncio.TimerHandle | None = None
        self._ends_s = 0.0

    @property
    def ends_in_s(self) -> float:
        """Until the configured level is back; 0 when nothing but a change or a restart ends it."""
        return max(0.001, self._ends_s - time.monotonic()) if self._end is not None else 0.0

    def set(self, level: str, for_s: float = 0.0) -> None:
        """Write from `level` up; `for_s` 0: until a restart. Raises InvalidArgument."""
        if level not in LOG_LEVELS:
            raise InvalidArgument(f"no level is called so; {', '.join(LOG_LEVELS)}", field="level")
        if for_s > LOG_LEVEL_S_MAX:
            text = f"at most {LOG_LEVEL_S_MAX} s; what is wanted longer is the configuration's"
            raise InvalidArgument(text, field="for_ms")
        self._stop()
        if for_s and level != self.configured:
            self._ends_s = time.monotonic() + for_s
            self._end = asyncio.get_running_loop().call_later(for_s, self._over)
        until = f"for {for_s:g} s" if self._end is not None else "until the store restarts"
        if level == self.configured:
            until = "as configured"
        self._change(level, f"the log level is {level}, {until}")

    def configure(self, level: str) -> None:
        """The configuration says another level. A change that a person made goes on, and ends at
        that level.
        """
        before, self.configured = self.configured, level
        if level != before and self.level == before:
            self._change(level, f"the log level is {level}, as configured")
        elif self.level == level:
            self._stop()

    def close(self) -> None:
        """Go back to the configured level."""
        self._stop()
        if self.level != self.configured:
            self._use(self.configured)

    def _over(self) -> None:
        self._end = None
        self._change(self.configured, f"the log level is {self.configured} again, as configured")

    def _change(self, level: str, text: str) -> None:
        """A log that falls silent says why before, and one that begins to speak does so after."""
        if LOG_LEVELS.index(level) < LOG_LEVELS.index(self.level):
            self._use(level)
        logger.warning("%s", text)
        self._use(level)

    def _stop(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _use(self, level: str) -> None:
        logging.getLogger().setLevel(level.upper())
        self.level = level
