"""wake_ups: an event loop that hears all wake-ups of gRPC's poller in one turn.

Theory of operation. A thread of gRPC's library puts each event into a queue and writes one byte to
a socket. The loop reads one byte in a turn and handles the whole queue. So a thousand events that
came together are handled in the first turn, and hundreds of turns follow that find nothing, while
everything else waits for its own. This loop reads all bytes but one before the library's handler
reads that one.

The reader is known by a private name of the library. A reader that is not known is left alone;
`drains` tells whether it was found, and `warn` says so in the log.

INV-WAKE-1: no wake-up is lost: the byte of an event is written after the event was queued, and the
handler, which handles all of the queue, runs after every read.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, TypeVarTuple, Unpack

from logservice import bounds

logger = logging.getLogger(__name__)

_Arguments = TypeVarTuple("_Arguments")

_HANDLER: Final = "_handle_events"


class WakeUpLoop(asyncio.SelectorEventLoop):
    """A selector loop; every other reader is untouched."""

    drains = False
    """Whether gRPC's reader was found."""

    def add_reader(
        self, fd: Any, callback: Callable[[Unpack[_Arguments]], Any], *args: *_Arguments
    ) -> None:
        """See asyncio."""
        if _is_pollers(fd, callback):
            self.drains = True
            super().add_reader(fd, _draining(fd, functools.partial(callback, *args)))
            return
        super().add_reader(fd, callback, *args)


def warn(loop: asyncio.AbstractEventLoop) -> None:
    """Say so when gRPC runs on `loop` and its reader was not known."""
    if isinstance(loop, WakeUpLoop) and not loop.drains:
        logger.warning(
            "the reader of this version of gRPC is not known: each of its events takes a turn of "
            "the event loop"
        )


def _is_pollers(fd: object, callback: object) -> bool:
    handler = callback.func if isinstance(callback, functools.partial) else callback
    return isinstance(fd, socket.socket) and getattr(handler, "__name__", "") == _HANDLER


def _draining(pollers: socket.socket, handle: Callable[[], Any]) -> Callable[[], None]:
    recv = pollers.recv

    def drained() -> None:
        waiting = len(recv(bounds.WAKE_UPS_PER_TURN, socket.MSG_PEEK))
        if waiting > 1:
            recv(waiting - 1)
        handle()

    return drained
