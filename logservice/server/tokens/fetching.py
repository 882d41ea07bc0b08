"""fetching: the bytes of a key set, from a file or an https URL, within bounds of size and time.

Theory of operation. A request runs in a thread, since names are resolved there, and its socket is
shut down when JWKS_FETCH_S are over: a time limit for each read alone would let a server that
sends a byte now and then keep the thread for hours. Redirects are not followed and proxies of the
environment are not used, so the keys come from the host that the configuration names, under a
certificate for that name, or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from logservice_wire.errors import InvalidArgument
from logservice_wire.pem_text import CERTIFICATES, pem_problem
from logservice_wire.regular_file import read_regular

from logservice import bounds
from logservice.background import begin_task

_HEADERS = {"Accept": "application/jwk-set+json, application/json", "Connection": "close"}


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where a key set is. For a URL: `ca`, a PEM file of the authorities that its host's
    certificate is from ("": the system's), and `token_file`, a token to show there ("": none).
    """

    place: str
    ca: str = ""
    token_file: str = ""

    @property
    def remote(self) -> bool:
        """Whether it is a URL."""
        return self.place.startswith("https://")


class Fetcher:
    """Reads one source, again and again; at most one thread is at it."""

    def __init__(self, source: KeySource) -> None:
        """Nothing is read yet."""
        self._source = source
        self._asked: asyncio.Future[bytes] | None = None

    async def read(self) -> bytes:
        """The bytes of the key set, one more than JWKS_BYTES_MAX at most. Raises InvalidArgument,
        whose message says what went wrong.
        """
        if self._asked is not None and not self._asked.done():
            # A thread that resolves a name cannot be told to end.
            raise InvalidArgument("the last request has not ended yet")
        if not self._source.remote:
            return await asyncio.to_thread(_of_file, self._source.place, bounds.JWKS_BYTES_MAX)
        request = _Request(self._source)
        asked = self._asked = begin_task(asyncio.to_thread(request.run), awaited=True)
        asked.add_done_callback(_retrieved)
        try:
            async with asyncio.timeout(bounds.JWKS_FETCH_S):
                return await asyncio.shield(asked)
        except TimeoutError:
            raise InvalidArgument(f"no answer within {bounds.JWKS_FETCH_S:g} s") from None
        finally:
            request.end()


class _Request:
    """One GET in a thread of its own; `end` makes the thread's next read fail."""

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._socket: socket.socket | None = None
        self._ended = False

    def end(self) -> None:
        self._ended = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def run(self) -> bytes:
        try:
            return self._answer()
        except ssl.SSLCertVerificationError as error:
            raise InvalidArgument(f"its host's certificate: {error.verify_message}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise InvalidArgument(f"no answer: {error or type(error).__name__}") from error

    def _answer(self) -> bytes:
        source, url = self._source, urlsplit(self._source.place)
        headers = dict(_HEADERS)
        if source.token_file:
            token = _of_file(source.token_file, bounds.TOKEN_BYTES_MAX).decode("ascii").strip()
            headers["Authorization"] = f"Bearer {token}"
        context = ssl.create_default_context(cadata=_authorities(source.ca))
        connection = http.client.HTTPSConnection(
            url.hostname or "", url.port, timeout=bounds.JWKS_FETCH_S, context=context
        )
        # The handshake may hang as well, so the socket has to be known before it.
        plain = socket.create_connection(
            (connection.host, connection.port), timeout=bounds.JWKS_FETCH_S
        )
        self._socket = plain.dup()
        try:
            if self._ended:
                raise OSError("too late")
            connection.sock = context.wrap_socket(plain, server_hostname=connection.host)
            path = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
            connection.request("GET", path, headers=headers)
            with contextlib.closing(connection.getresponse()) as answer:
                if answer.status != http.client.OK:
                    raise OSError(f"status {answer.status}")
                return answer.read(bounds.JWKS_BYTES_MAX + 1)
        finally:
            connection.close()
            plain.close()
            self._socket.close()


def _authorities(name: str) -> str | None:
    """None: the system's. Raises InvalidArgument."""
    if not name:
        return None
    data = _of_file(name, bounds.PEM_FILE_BYTES_MAX)
    if problem := pem_problem(data, CERTIFICATES):
        raise InvalidArgument(f"{name} {problem}")
    return data.decode("ascii", "ignore")


def _of_file(name: str, limit: int) -> bytes:
    """`limit` bytes at most. Raises InvalidArgument."""
    try:
        return read_regular(name, limit)
    except OSError as error:
        raise InvalidArgument(f"{name} cannot be read: {error.strerror}") from error


def _retrieved(asked: asyncio.Future[bytes]) -> None:
    """Look at the outcome of a request that nobody waits for any more."""
    if not asked.cancelled():
        asked.exception()
