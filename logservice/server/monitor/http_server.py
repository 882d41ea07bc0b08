"""AdminServer: the admin port, in threads of its own, off the event loop.

waitress parses HTTP, bounds what a client may send and how long it may take, and calls the
application in ADMIN_THREADS threads. The event loop never sees a byte of it.
"""

from __future__ import annotations

import socket
import threading
from typing import Any

import waitress.server
from waitress import wasyncore

from logservice import bounds
from logservice.config import Address
from logservice.server.monitor.http_app import AdminApp

_JOIN_S = 2.0
"""For the thread that selects at a stop; it ends within one round."""


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
            connection_limit=bounds.ADMIN_CONNECTIONS_MAX,
            max_request_header_size=bounds.ADMIN_REQUEST_BYTES_MAX,
            max_request_body_size=bounds.ADMIN_REQUEST_BYTES_MAX,
            channel_timeout=30,
            ident=None,
        )
        self._thread = threading.Thread(target=self._server.run, name="admin-port", daemon=True)

    def start(self) -> None:
        """Answer."""
        self._thread.start()

    def stop(self) -> None:
        """Close every connection; requests under way get no answer."""
        if self._thread.is_alive():
            self._server.trigger.pull_trigger(lambda: wasyncore.close_all(self._sockets))
            self._thread.join(_JOIN_S)
        else:
            wasyncore.close_all(self._sockets)
        self._server.task_dispatcher.shutdown(timeout=_JOIN_S)
