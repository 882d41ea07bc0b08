"""TlsSocket: a connection of the admin port under TLS, for a server that knows plain sockets.

Theory of operation. waitress selects over its sockets in one thread and writes answers from others.
TLS fits in at the socket: `fill` takes what has arrived, which at first are the steps of the
handshake, and says whether there is anything for HTTP in it. Nothing here waits, so a handshake
that is slow, or that never goes on, holds up nobody else. It is a connection that sends no request,
and ends as such: when another one needs its place, or after waitress's half minute.

OpenSSL must not read and write one connection in two threads at once, so a lock stands around both.
It is held for as long as the processor needs, never for the network.
"""

from __future__ import annotations

import errno
import socket
import ssl
import threading
from typing import Any, Final

from logservice.nodehost.transport.link.peer_tls import chain_of

_WAITING: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
_RECORD_BYTES: Final = 16 * 1024


class TlsSocket:
    """What waitress asks of a socket. It takes the socket over."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext) -> None:
        """Nothing is read or written yet. Raises OSError."""
        plain.setblocking(False)
        self._tls = context.wrap_socket(
            plain, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
        )
        self._lock = threading.Lock()
        self._arrived = b""
        self._ended = False

    def fill(self) -> bool:
        """Take what has arrived. False: there is nothing for `recv` yet."""
        with self._lock:
            try:
                while not self._ended:
                    data = self._tls.recv(_RECORD_BYTES)
                    self._arrived += data
                    self._ended = not data
                    if not self._tls.pending():
                        break
            except _WAITING:
                pass
            except OSError:  # what is no TLS, a certificate that is refused, a lost connection
                self._ended = True
            return bool(self._arrived) or self._ended

    def recv(self, size: int) -> bytes:
        """What `fill` has taken; b"" at the end of the connection."""
        with self._lock:
            found, self._arrived = self._arrived, b""
            return found

    def send(self, data: bytes) -> int:
        """As `socket.send`; raises BlockingIOError when nothing can be sent now."""
        with self._lock:
            try:
                return self._tls.send(data)
            except _WAITING:
                raise BlockingIOError(errno.EWOULDBLOCK, "not now") from None

    def chain(self) -> bytes:
        """The certificates that the caller showed and TLS verified, as PEM; b"" for none."""
        with self._lock:
            if self._tls.getpeercert(binary_form=True) is None:
                return b""
            found = chain_of(self._tls)
        return b"".join(ssl.DER_cert_to_PEM_cert(one).encode("ascii") for one in found)

    def close(self) -> None:
        """At once."""
        self._tls.close()

    def __getattr__(self, name: str) -> Any:
        """Descriptor, options and addresses are those of the socket below."""
        return getattr(self._tls, name)
