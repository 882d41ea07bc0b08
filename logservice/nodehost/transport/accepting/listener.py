"""Listener: the listening sockets of the peer port, and what accepting does when it cannot.

Theory of operation. asyncio's own server hides an accepted connection until its TLS handshake is
over, tells nobody when that fails, and stops accepting for a second when no descriptor is left. So
sockets are accepted here and handed on raw: the life of a connection is somebody's from its first
moment (`lobby`).

Few are accepted per pass of the loop (PEER_ACCEPTS_PER_PASS_MAX), so that a flood of connections
does not delay ticks; the others wait in the kernel's backlog.

When no descriptor is left (EMFILE, ENFILE), `make_room` ends the connection that matters least, and
the newcomer is accepted in the next pass. If there is nobody to end, a descriptor that is kept for
this purpose is given up for a moment, to accept the connection and hang up: in the backlog it would
wake the loop for ever. If even that descriptor is gone, accepting pauses for PEER_ACCEPT_PAUSE_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from logservice.bounds import PEER_ACCEPT_PAUSE_S, PEER_ACCEPTS_PER_PASS_MAX, PEER_BACKLOG_MAX
from logservice.nodehost.transport.link.reserve import NO_DESCRIPTOR

_NO_MEANS: Final = (*NO_DESCRIPTOR, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """See the module."""

    def __init__(
        self,
        on_accepted: Callable[[socket.socket, str], None],
        make_room: Callable[[], bool],
        on_shed: Callable[[], None],
    ) -> None:
        """`on_accepted` gets a non-blocking socket and the other side's host; `make_room`: close a
        connection that matters least, False if there is none; `on_shed`: one was hung up on here.
        """
        self._on_accepted = on_accepted
        self._make_room = make_room
        self._on_shed = on_shed
        self._sockets: list[socket.socket] = []
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._spare: int | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen on every address of `host`; returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        # asyncio's server finds the addresses and binds; it never listens nor accepts.
        server = await loop.create_server(
            asyncio.Protocol, host, port, reuse_address=True, start_serving=False
        )
        try:
            self._sockets = [one.dup() for one in server.sockets]
        finally:
            server.close()
        try:
            for listening in self._sockets:
                listening.setblocking(False)
                listening.listen(PEER_BACKLOG_MAX)
        except OSError:
            self.close()
            raise
        self._keep_spare()
        for listening in self._sockets:
            loop.add_reader(listening.fileno(), self._ready, listening)
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening; what is in the backlog is reset by the kernel."""
        loop = asyncio.get_running_loop()
        for timer in self._paused.values():
            timer.cancel()
        self._paused.clear()
        sockets, self._sockets = self._sockets, []
        for listening in sockets:
            loop.remove_reader(listening.fileno())
            listening.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _ready(self, listening: socket.socket) -> None:
        for _ in range(PEER_ACCEPTS_PER_PASS_MAX):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # gone while it waited
            except OSError as error:
                if error.errno not in _NO_MEANS:
                    raise
                if not self._make_room() and not self._shed(listening):
                    self._pause(listening)
                return
            accepted.setblocking(False)
            self._on_accepted(accepted, str(address[0]))

    def _shed(self, listening: socket.socket) -> bool:
        if self._spare is None:
            return False
        os.close(self._spare)
        self._spare = None
        with contextlib.suppress(OSError):
            accepted, _ = listening.accept()
            accepted.close()
            self._on_shed()
        self._keep_spare()
        return True

    def _keep_spare(self) -> None:
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _pause(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())
        self._paused[listening] = loop.call_later(PEER_ACCEPT_PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        del self._paused[listening]
        if self._spare is None:
            self._keep_spare()
        asyncio.get_running_loop().add_reader(listening.fileno(), self._ready, listening)
