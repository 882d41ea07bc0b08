"""EventRing: the newest events of this process, for people who look at the admin port.

It is a handler of the standard logging that keeps what `events.emit` logged and ignores everything
else. Several threads log, so it needs a lock; `logging.Handler` has one.
"""

from __future__ import annotations

import logging
from collections import deque

from logservice.server.monitor.own.status import EventLine


class EventRing(logging.Handler):
    """Add it to a logger. `newest` may be called from any thread."""

    def __init__(self, kept: int) -> None:
        """Keep the newest `kept` events."""
        super().__init__(logging.INFO)
        self._lines: deque[EventLine] = deque(maxlen=kept)
        self._number = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record if it is an event."""
        event = getattr(record, "event", None)
        if event is None:
            return
        self._number += 1
        self._lines.append(
            EventLine(
                number=self._number,
                time_us=int(record.created * 1_000_000),
                level=record.levelname.lower(),
                event=str(event),
                message=record.getMessage(),
            )
        )

    def newest(self, count: int) -> tuple[EventLine, ...]:
        """The newest `count` events, oldest first."""
        self.acquire()
        try:
            return tuple(self._lines)[-count:]
        finally:
            self.release()
