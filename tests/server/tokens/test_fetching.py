"""A key set is fetched over https, within bounds, from the host that is named and no other."""

from __future__ import annotations

import asyncio
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument
from msgspec.structs import replace

from logservice import bounds
from logservice.server.tokens.fetching import Fetcher, KeySource
from logservice.server.tokens.issuer_keys import IssuerKeys
from tests.papers import SERVER, TestAuthority, uri
from tests.server.tokens.issuer import SECTION, jwk, jwks, key
from tests.waiting import eventually

AUTHORITY = TestAuthority("web")
SET = jwks(jwk(key("RS256"), "k1"))


class Issuer(http.server.ThreadingHTTPServer):
    """Answers a GET by its path; `shown` are the authorizations that it was shown."""

    daemon_threads = True

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        AUTHORITY.issue(uri("store", "web"), hosts=("localhost",), purposes=SERVER).write(
            directory / "web"
        )
        (directory / "ca.pem").write_bytes(AUTHORITY.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "web.pem", directory / "web.key")
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        self.ca = str(directory / "ca.pem")
        self.shown: list[str | None] = []
        self.going_on = threading.Event()
        self.url = f"https://localhost:{self.server_address[1]}"


class _Answering(http.server.BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        self.server.shown.append(self.headers.get("Authorization"))
        if self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", f"{self.server.url}/keys")
            self.end_headers()
        elif self.path == "/hangs":
            self.server.going_on.wait(60)
        elif self.path == "/drips":
            self.send_response(200)
            self.end_headers()
            try:
                while not self.server.going_on.wait(0.05):
                    self.wfile.write(b" ")
            except OSError:
                pass
        else:
            self.send_response(200 if self.path in ("/keys", "/long") else 403)
            self.end_headers()
            self.wfile.write(SET if self.path == "/keys" else b" " * (4 * bounds.JWKS_BYTES_MAX))

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def issuer(directory: Path) -> Iterator[Issuer]:
    served = Issuer(directory)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.going_on.set()
        served.shutdown()
        served.server_close()
        thread.join()


async def test_a_key_set_from_a_url(tmp_path: Path) -> None:
    """A token is shown when there is one, read anew each time."""
    shown = tmp_path / "token"
    with issuer(tmp_path) as served:
        plain = Fetcher(KeySource(f"{served.url}/keys", served.ca))
        assert await plain.read() == SET
        with_token = Fetcher(KeySource(f"{served.url}/keys", served.ca, str(shown)))
        for text in ("one", "two\n"):
            shown.write_text(text)
            assert await with_token.read() == SET
        assert served.shown == [None, "Bearer one", "Bearer two"]
        shown.unlink()
        with pytest.raises(InvalidArgument, match="cannot be read"):
            await with_token.read()


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with issuer(tmp_path) as served:
        for path, status in (("/elsewhere", "302"), ("/nothing", "403")):
            with pytest.raises(InvalidArgument, match=status):
                await Fetcher(KeySource(served.url + path, served.ca)).read()
        assert len(served.shown) == 2


async def test_a_host_that_cannot_prove_its_name(tmp_path: Path) -> None:
    with issuer(tmp_path) as served:
        other = tmp_path / "other.pem"
        other.write_bytes(TestAuthority("other").pem)
        unnamed = served.url.replace("localhost", "127.0.0.1")
        for url, ca in ((served.url, str(other)), (unnamed, served.ca)):
            with pytest.raises(InvalidArgument, match="certificate"):
                await Fetcher(KeySource(f"{url}/keys", ca)).read()
        assert served.shown == []


async def test_a_set_that_is_too_long_is_cut(tmp_path: Path) -> None:
    """JWKS_BYTES_MAX: one byte more shows that it is; a file is refused."""
    with issuer(tmp_path) as served:
        found = await Fetcher(KeySource(f"{served.url}/long", served.ca)).read()
        assert len(found) == bounds.JWKS_BYTES_MAX + 1
    path = tmp_path / "long.json"
    path.write_bytes(b" " * (2 * bounds.JWKS_BYTES_MAX))
    with pytest.raises(InvalidArgument, match="it is longer than"):
        await Fetcher(KeySource(str(path))).read()


@pytest.mark.parametrize("how", ["hangs", "drips", "shakes no hands"])
async def test_a_host_that_takes_too_long(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JWKS_FETCH_S is for all of it, however often something arrives; the thread then ends."""
    monkeypatch.setattr(bounds, "JWKS_FETCH_S", 0.5)
    with issuer(tmp_path) as served, socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{served.url}/{how}"
        if how == "shakes no hands":
            url = f"https://localhost:{silent.getsockname()[1]}/keys"
        fetcher = Fetcher(KeySource(url, served.ca))
        with pytest.raises(InvalidArgument, match="no answer"):
            await fetcher.read()
        assert fetcher._asked is not None
        async with asyncio.timeout(60):
            await asyncio.wait([fetcher._asked])
        assert fetcher._asked.done()


async def test_one_request_at_a_time(tmp_path: Path) -> None:
    with issuer(tmp_path) as served:
        fetcher = Fetcher(KeySource(f"{served.url}/hangs", served.ca))
        first = asyncio.create_task(fetcher.read())
        await eventually(lambda: bool(served.shown))
        with pytest.raises(InvalidArgument, match="has not ended"):
            await fetcher.read()
        assert len(served.shown) == 1
        first.cancel()
        await asyncio.wait([first])


async def test_a_store_starts_without_its_issuer_and_finds_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JWKS_RETRY_S: a failed look is repeated sooner than the interval says."""
    monkeypatch.setattr(bounds, "JWKS_RETRY_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ca = tmp_path / "ca.pem"
    ca.write_bytes(AUTHORITY.pem)
    section = replace(SECTION, jwks=f"https://localhost:{port}/keys", jwks_ca=str(ca))
    keys = IssuerKeys(section)
    await keys.first()
    await keys.poll()
    assert "no token is accepted" in keys.alarms()[0]
    assert keys.age_s == float("inf")
    assert keys.unknown("k1")
    running = asyncio.create_task(keys.run())
    try:
        await eventually(lambda: keys.failures >= 3)
        with issuer(tmp_path) as served:
            keys._fetcher._source = KeySource(f"{served.url}/keys", served.ca)
            await eventually(lambda: keys.count > 0)
        assert set(keys.current()) == {"k1"}
    finally:
        running.cancel()
