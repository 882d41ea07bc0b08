"""AdminServer: the admin port, in threads of its own, off the event loop.

waitress parses HTTP, bounds what a client may send and how long it may take, and calls the
application in ADMIN_THREADS threads. The event loop never sees a byte of it.

A probe must get through, whatever else is connected. When there are ADMIN_CONNECTIONS_MAX
connections, the next one takes the place of the oldest that waits: for the rest of its request, for
its reader, or for nothing. A client that is slow on purpose pushes out its own connections, while a
probe sends its whole request at once. One thread answers nothing but probes, because all the others
may be waiting for a report on the cluster.

Under TLS a connection is made in the same thread, step by step as its client goes on
(`tls_socket`). One that stops half way is a connection that waits like the others.

The one thread that selects must outlive whatever a stranger does, and every error that leaves it
ends the port. So a client that is gone before its connection is made costs that connection alone;
the thread polls, because select() fails for a descriptor above 1023, which a store with many
clients has; and a client that sends urgent data, which is no HTTP and would wake the thread for as
long as the connection is there, loses its connection.

INV-ADMIN-3: nothing that a client sends, or leaves out, ends the thread that selects.

A thread that has answered wakes the selecting thread by a byte in waitress's pipe. So the pipe is
closed last, when no answering thread is left. Else the byte would fail there, or would go to the
file that has the descriptor by then.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Final

import waitress.server
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.task import ThreadedTaskDispatcher, WSGITask

from logservice import bounds
from logservice.config import Address
from logservice.server.monitor.port.app import PROBES, AdminApp
from logservice.server.monitor.port.caller import CHAIN
from logservice.server.monitor.port.tls_socket import TlsSocket

_JOIN_S = 2.0
"""How long a stop waits for a thread; the one that selects ends within one round."""


_SLACK: Final = 16
"""Room for connections that waitress accepts over the bound, and for what else is in its map."""


class _Task(WSGITask):  # type: ignore[misc]  # waitress has no types
    """A request; its environment has the certificates that were shown with it."""

    def get_environment(self) -> Any:
        environ = super().get_environment()
        if isinstance(self.channel.socket, TlsSocket):
            environ["wsgi.url_scheme"] = "https"
            environ[CHAIN] = self.channel.socket.chain()
        return environ


class _Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection. Waitress's thread makes it; no other thread opens or closes connections."""

    task_class = _Task

    @staticmethod
    def begin(server: Any, sock: Any, addr: Any, adj: Any, map: Any = None) -> None:
        """Make the channel of a connection that was accepted, in the place of the oldest one if
        there are too many. There is none when the client has left by now.
        """
        channels = server.active_channels
        if len(channels) >= bounds.ADMIN_CONNECTIONS_MAX:
            # The channels are in the order in which they were made.
            oldest = next((one for one in [*channels.values()] if not one.requests), None)
            if oldest is not None:
                oldest.handle_close()
        try:
            if server.tls is not None:
                sock = TlsSocket(sock, server.tls())
            _Channel(server, sock, addr, adj, map)
        except OSError:
            # waitress would take it for an error of the socket that listens, and close that.
            sock.close()

    def handle_expt(self) -> None:
        """Urgent data has arrived; it would wake this thread again and again."""
        self.handle_close()

    def handle_read(self) -> None:
        """Something has arrived, which under TLS may be nothing for HTTP yet."""
        if not isinstance(self.socket, TlsSocket) or self.socket.fill():
            super().handle_read()


class AdminServer:
    """It is bound when it is made. `start` and `stop` are called once each."""

    def __init__(
        self, listen: Address, app: AdminApp, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        """Bind the address. `tls`: the context for a connection that begins now; None: plain HTTP.
        Raises OSError when the address is in use.
        """
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
            asyncore_use_poll=True,
            ident=None,
        )
        self._server.channel_class = _Channel.begin
        self._server.tls = tls
        self._probes = ThreadedTaskDispatcher()
        self._probes.set_thread_count(1)
        self._server.add_task = self._add_task
        self._thread = threading.Thread(target=self._server.run, name="admin-port", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Close every connection. Requests under way get no answer."""
        trigger = self._server.trigger
        if self._thread.is_alive():
            trigger.pull_trigger(self._close_sockets)
            self._thread.join(_JOIN_S)
        else:
            self._close_sockets()
        for answering in (self._server.task_dispatcher, self._probes):
            answering.shutdown(timeout=_JOIN_S)
            if answering.threads:
                return  # a request that hangs may still write to the pipe, so the pipe stays open
        if not self._thread.is_alive():
            trigger.close()

    def _close_sockets(self) -> None:
        """Close all but the pipe. The thread that selects ends when it has no sockets."""
        self._server.trigger.del_channel()
        wasyncore.dispatcher.close(self._server)  # its own method would close the pipe, too
        wasyncore.close_all(self._sockets)

    def _add_task(self, channel: _Channel) -> None:
        """Hand over a complete request of `channel`."""
        path = channel.requests[0].path if channel.requests else ""
        probe = path in PROBES
        (self._probes if probe else self._server.task_dispatcher).add_task(channel)
