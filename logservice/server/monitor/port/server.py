"""AdminServer: the admin port, in threads of its own, off the event loop.

waitress parses HTTP, bounds what a client may send and how long it may take, and calls the
application in ADMIN_THREADS threads. The event loop never sees a byte of it.

Probes must get through whoever else is there. When ADMIN_CONNECTIONS_MAX are connected, the next
one takes the place of the oldest that waits: for the rest of its request, for its reader, for
nothing. Whoever is slow on purpose pushes out his own; a probe has said all it has to say at once.
Probes are answered by a thread of their own, since all the others may be waiting for a picture of
the cluster.

A thread that has answered wakes the one that selects by a byte in waitress's pipe. So the pipe is
closed last, when no such thread is left: the byte would fail there, or go to the file that has the
descriptor by then.
"""

from __future__ import annotations

import socket
import threading
from typing import Any, Final

import waitress.server
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.task import ThreadedTaskDispatcher

from logservice import bounds
from logservice.config import Address
from logservice.server.monitor.port.app import AdminApp

_JOIN_S = 2.0
"""For the thread that selects at a stop; it ends within one round."""


_SLACK: Final = 16
"""Connections over the bound that waitress accepts all the same, and what else is in its map."""

_PROBES: Final = frozenset(("/healthz", "/readyz"))


class _Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection; made by waitress's thread, which alone opens and closes them."""

    def __init__(self, server: Any, sock: Any, addr: Any, adj: Any, map: Any = None) -> None:
        channels = server.active_channels
        if len(channels) >= bounds.ADMIN_CONNECTIONS_MAX:
            # In the order in which they were made.
            oldest = next((one for one in [*channels.values()] if not one.requests), None)
            if oldest is not None:
                oldest.handle_close()
        super().__init__(server, sock, addr, adj, map)


class AdminServer:
    """Bound when made; `start` and `stop` once each."""

    def __init__(self, listen: Address, app: AdminApp) -> None:
        """Raises OSError when the address is in use."""
        self._sockets: dict[int, Any] = {}
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((listen.host, listen.port))
        except OSError as error:
            bound.close()
            raise OSError(
                error.errno, f"cannot listen for operators on {listen}: {error.strerror}"
            ) from error
        self.address = str(Address(listen.host, bound.getsockname()[1]))
        self._server = waitress.server.create_server(
            app,
            map=self._sockets,
            sockets=[bound],
            threads=bounds.ADMIN_THREADS,
            connection_limit=bounds.ADMIN_CONNECTIONS_MAX + _SLACK,
            max_request_header_size=bounds.ADMIN_REQUEST_BYTES_MAX,
            max_request_body_size=bounds.ADMIN_REQUEST_BYTES_MAX,
            channel_timeout=30,
            ident=None,
        )
        self._server.channel_class = _Channel
        self._probes = ThreadedTaskDispatcher()
        self._probes.set_thread_count(1)
        self._server.add_task = self._add_task
        self._thread = threading.Thread(target=self._server.run, name="admin-port", daemon=True)

    def start(self) -> None:
        """Answer."""
        self._thread.start()

    def stop(self) -> None:
        """Close every connection; requests under way get no answer."""
        trigger = self._server.trigger
        if self._thread.is_alive():
            trigger.pull_trigger(self._close_sockets)
            self._thread.join(_JOIN_S)
        else:
            self._close_sockets()
        for answering in (self._server.task_dispatcher, self._probes):
            answering.shutdown(timeout=_JOIN_S)
            if answering.threads:
                return  # a request that hangs may still write to the pipe: it stays open
        if not self._thread.is_alive():
            trigger.close()

    def _close_sockets(self) -> None:
        """All but the pipe; without sockets, the thread that selects ends."""
        self._server.trigger.del_channel()
        wasyncore.dispatcher.close(self._server)  # its own method would close the pipe, too
        wasyncore.close_all(self._sockets)

    def _add_task(self, channel: _Channel) -> None:
        """A request of `channel` is complete."""
        path = channel.requests[0].path if channel.requests else ""
        probe = path in _PROBES
        (self._probes if probe else self._server.task_dispatcher).add_task(channel)
