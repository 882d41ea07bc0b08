"""AdminServer: the admin port, in threads of its own, off the event loop.

waitress parses HTTP, bounds what a client may send, and calls the application in ADMIN_THREADS
threads. The event loop never sees a byte of it.

A connection has one request at a time. The next one is read after the answer has been taken, and
bytes that come behind a request at once make its answer the last one: no client of ours pipelines.
So a thread answers one request, hands the answer over (`waiting_answers`), and never waits for a
reader.

A probe must get through, whatever else is connected. When there are ADMIN_CONNECTIONS_MAX
connections, the next one takes the place of the oldest that no thread works for, of the address
with the most. So an address that opens many pushes out its own. One thread answers nothing but
probes, because all the others may be waiting for a report on the cluster.

No step of a connection takes longer than ADMIN_PATIENCE_S: until a whole request is there, and
until an answer is taken. An old connection (ADMIN_CONNECTION_AGE_S) ends with its next answer.

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
import time
from collections import Counter
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
from logservice.server.monitor.port.waiting_answers import WaitingAnswers

_JOIN_S = 2.0
"""How long a stop waits for a thread; the one that selects ends within one round."""


_SLACK: Final = 16
"""Room for connections that waitress accepts over the bound, and for what else is in its map."""

_NEVER: Final = 1 << 40
"""Bytes or seconds that are not reached."""


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
        """Make the channel of a connection that was accepted, in the place of another one if there
        are too many. There is none when the client has left by now.
        """
        channels = [*server.active_channels.values()]
        if len(channels) >= bounds.ADMIN_CONNECTIONS_MAX:
            _least_missed(channels, addr).handle_close()
        try:
            if server.tls is not None:
                sock = TlsSocket(sock, server.tls())
            _Channel(server, sock, addr, adj, map)
        except OSError:
            # waitress would take it for an error of the socket that listens, and close that.
            sock.close()

    def __init__(self, server: Any, sock: Any, addr: Any, adj: Any, map: Any = None) -> None:
        self.request: Any = None
        self._made_s = self._step_s = server.clock()
        self.working = False
        """A thread makes its answer."""
        super().__init__(server, sock, addr, adj, map=map)

    def received(self, data: bytes) -> bool:
        """Take the bytes of one request."""
        with self.requests_lock:
            if self.will_close or self.close_when_flushed or self.requests:
                return False
            while data:
                request: Any = self.request or self.parser_class(self.adj)
                self.request = request
                data = data[request.received(data) :]
                if not request.completed:
                    continue
                self.request = None
                if request.empty:
                    continue
                if data or self.server.clock() - self._made_s > bounds.ADMIN_CONNECTION_AGE_S:
                    request.headers["CONNECTION"] = "close"
                self.requests.append(request)
                self.server.add_task(self)
                return True
        return True

    def service(self) -> None:
        """Answer the request, in a thread of a dispatcher."""
        self.working = True
        try:
            super().service()
        finally:
            self._step_s = self.server.clock()
            self.working = False
            if not self.total_outbufs_len:  # taken at once, or the client is gone
                self.server.answers.remove(id(self))

    def write_soon(self, data: bytes) -> int:
        """Let a part of an answer wait for its reader."""
        if self.connected:
            self.server.answers.add(id(self), len(data), self._lose)
        return int(super().write_soon(data))

    def handle_write(self) -> None:
        """There is room for a part of the answer."""
        before = self.total_outbufs_len
        super().handle_write()
        if before and not self.total_outbufs_len:
            self._step_s = self.server.clock()
            self.server.answers.remove(id(self))
        elif self.total_outbufs_len < before:
            self.server.answers.go_on(id(self))

    def handle_close(self) -> None:
        """The connection ends, and what waits for it goes."""
        super().handle_close()
        self.server.answers.remove(id(self))

    def overdue(self, now_s: float) -> bool:
        """Whether its client has not gone on for too long."""
        # `working` ends after the step is counted; the request is gone from the list before that.
        waits = not self.requests and not self.working
        return waits and now_s - self._step_s > bounds.ADMIN_PATIENCE_S

    def _lose(self) -> None:
        self.server.trigger.pull_trigger(self.handle_close)

    def handle_expt(self) -> None:
        """Urgent data has arrived; it would wake this thread again and again."""
        self.handle_close()

    def handle_read(self) -> None:
        """Something has arrived, which under TLS may be nothing for HTTP yet."""
        if not isinstance(self.socket, TlsSocket) or self.socket.fill():
            super().handle_read()


def _least_missed(channels: list[_Channel], newcomer: Any) -> _Channel:
    """The one that makes room: of the address with the most, the newcomer counted."""
    count = Counter(one.addr[0] for one in channels)
    count[newcomer[0]] += 1
    # Threads work for few, and the channels are in the order in which they were made.
    idle = [one for one in channels if not one.working]
    most = max(count[one.addr[0]] for one in idle)
    crowd = [one for one in idle if count[one.addr[0]] == most]
    return next((one for one in crowd if not one.requests), crowd[0])


class AdminServer:
    """It is bound when it is made. `start` and `stop` are called once each."""

    def __init__(
        self,
        listen: Address,
        app: AdminApp,
        tls: Callable[[], ssl.SSLContext] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind the address. `tls`: the context for a connection that begins now; None: plain HTTP.
        Raises OSError when the address is in use.
        """
        self.answers = WaitingAnswers()
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
            # They are believed in nothing; `from_this_machine` has to see that they are there.
            clear_untrusted_proxy_headers=False,
            # No answer goes into a file, and no thread waits: `waiting_answers` bounds them.
            outbuf_overflow=_NEVER,
            outbuf_high_watermark=_NEVER,
            # `_end_overdue` looks, by a clock that no one sets.
            channel_timeout=_NEVER,
            cleanup_interval=_NEVER,
            asyncore_use_poll=True,
            ident=None,
        )
        self._server.channel_class = _Channel.begin
        self._server.tls = tls
        self._server.clock = clock
        self._server.answers = self.answers
        self._accepts = self._server.readable
        self._server.readable = self._end_overdue
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

    def _end_overdue(self) -> bool:
        """Asked by the thread that selects, at least once a second: whether it accepts."""
        now_s = self._server.clock()
        for channel in [*self._server.active_channels.values()]:
            if channel.overdue(now_s):
                self._server.trigger.pull_trigger(channel.handle_close)
        return bool(self._accepts())

    def _add_task(self, channel: _Channel) -> None:
        """Hand over a complete request of `channel`."""
        path = channel.requests[0].path if channel.requests else ""
        probe = path in PROBES
        (self._probes if probe else self._server.task_dispatcher).add_task(channel)
