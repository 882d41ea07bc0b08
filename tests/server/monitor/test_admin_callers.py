"""The admin port of a real store that asks its callers who they are."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from logservice_wire.errors import PermissionDenied
from logservice_wire.rpcs import READ, TRUNCATE

from logservice.ids import ShardId
from logservice.server.monitor.port import caller as caller_module
from logservice.server.monitor.port.app import PROBES
from logservice.server.monitor.port.board import LoopStuck
from logservice.server.monitor.port.caller import CHAIN
from logservice.server.store import Store
from tests.papers import CLIENT, SERVER, Papers, TestAuthority, days, uri
from tests.server.secured import CLIENTS, OWNER, STORES, lay_out, papers_of, secured
from tests.server.test_audit import told
from tests.server.tokens.issuer import AUDIENCE, ISSUER, jwk, key, publish, token
from tests.server.tokens.test_store_tokens import BACKEND, grant
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

MORE = f"""
[tokens]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
jwks = "keys.json"
leeway_s = 0.0
[admin]
tls = true
authentication = "required"
"""

PATHS = ["/", "/ui", "/ui/app.js", "/metrics", "/api/v1/store", "/api/v1/shards/page", "/nothing"]


class Asked:
    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body


class Port:
    def __init__(self, store: Store, directory: Path) -> None:
        self.store = store
        self.directory = directory
        self.written = 0

    def _ask(self, path: str, papers: Papers | None, ca: bytes, headers: dict[str, str]) -> Asked:
        context = ssl.create_default_context(cadata=ca.decode())
        if papers is not None:
            self.written += 1
            stem = self.directory / f"shown-{self.written}"
            papers.write(stem)
            context.load_cert_chain(stem.with_suffix(".pem"), stem.with_suffix(".key"))
        connection = http.client.HTTPSConnection(
            self.store.admin_address, timeout=60, context=context
        )
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return Asked(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    async def get(
        self,
        path: str,
        papers: Papers | None = None,
        bearer: str = "",
        ca: bytes = CLIENTS.pem,
    ) -> Asked:
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        return await asyncio.to_thread(self._ask, path, papers, ca, headers)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Port]:
    directory = tmp_path_factory.mktemp("admin")
    lay_out(directory)
    publish(directory / "keys.json", jwk(key("RS256"), "k1"))
    async with secured(directory, MORE) as store:
        await grant(store, BACKEND, "read")
        await grant(store, uri("client", "viewer"), "hold")
        yield Port(store, directory)


@pytest.mark.parametrize("path", sorted(PROBES))
async def test_probes_are_asked_by_anybody(port: Port, path: str) -> None:
    answer = await port.get(path)
    assert answer.status in (200, 503)
    assert b"reasons" in answer.body or answer.body == b"ok\n"


@pytest.mark.parametrize("path", PATHS)
async def test_everything_else_needs_an_identity_with_a_role(port: Port, path: str) -> None:
    refused = await port.get(path)
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert (await port.get(path, bearer=token(sub="nobody"))).status == 403
    assert (await port.get(path, papers_of("nobody"))).status == 403
    assert (await port.get(path, bearer=token(which=1))).status == 401
    assert (await port.get(path, CLIENTS.issue(uri("store", "s1"), purposes=CLIENT))).status == 403
    for shown in (await port.get(path, papers_of("viewer")), await port.get(path, bearer=token())):
        assert shown.status == {"/nothing": 404, "/": 302}.get(path, 200)
    assert (await port.get(path, OWNER)).status < 500


async def test_a_certificate_and_a_token_of_two_identities(port: Port) -> None:
    """INV-GATE-4, on this port."""
    assert (await port.get("/metrics", papers_of("viewer"), token())).status == 401


async def test_a_certificate_of_another_authority_ends_the_handshake(port: Port) -> None:
    stranger = STORES.issue(uri("client", "viewer"), purposes=CLIENT)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await port.get("/metrics", stranger)


async def test_a_refusal_is_in_the_audit_log(port: Port) -> None:
    await port.get("/metrics", bearer=token(sub="curious"))
    who = uri("client", "token.curious")
    directory = port.directory / "data" / "audit"
    await eventually(lambda: any(line["who"] == who for line in told(directory)))
    line = next(line for line in told(directory) if line["who"] == who)
    assert (line["what"], line["decision"]) == ("AdminPort", "denied")
    assert line["from"] == "127.0.0.1"


async def test_who_comes_here_is_noted_as_on_the_other_port(port: Port) -> None:
    """Else the grant of a scraper of metrics looks as if nobody used it."""
    assert port.store._client_port is not None
    book = port.store._client_port.seen
    await grant(port.store, uri("client", "scraper"), "hold")
    assert (await port.get("/metrics", papers_of("scraper"))).status == 200
    assert (await port.get("/metrics", papers_of("refused"))).status == 403
    [used] = book.rows(only=uri("client", "scraper"))
    assert (used.calls, used.denials) == (1, 0)
    assert used.peer.startswith("admin:127.0.0.1:")
    assert int(used.serial, 16) > 0
    [denied] = book.rows(only=uri("client", "refused"))
    assert (denied.calls, denied.denials, denied.denied_what) == (1, 1, "AdminPort")
    before = [one.denials for one in book.rows(only="")]
    assert (await port.get("/metrics")).status == 401
    assert sum(one.denials for one in book.rows(only="")) == sum(before) + 1
    # The same request is not two of them.
    query = "/api/v1/records?shard=1"
    assert (await port.get(query, papers_of("scraper"))).status == 403
    [used] = book.rows(only=uri("client", "scraper"))
    assert (used.calls, used.denied_what) == (2, "Read")


async def test_records_need_the_role_that_the_rpc_needs(port: Port) -> None:
    """INV-ADMIN-1: a caller that the port lets in may still see no record."""
    assert port.store._monitor is not None
    callers = port.store._monitor.callers
    shown = {"HTTP_AUTHORIZATION": f"Bearer {token()}"}
    reader = {**shown, CHAIN: b""}
    # In plaintext a token that came over a network is not looked at.
    for address, known in (("127.0.0.1", True), ("192.0.2.7", False), ("", False)):
        plain = await asyncio.to_thread(callers.of, {**shown, "REMOTE_ADDR": address})
        assert (plain is not None) is known
    caller = await asyncio.to_thread(callers.of, reader)
    assert caller is not None
    assert caller.uri == BACKEND
    await asyncio.to_thread(callers.check, caller, READ, ShardId(1))
    with pytest.raises(PermissionDenied):
        await asyncio.to_thread(callers.check, caller, TRUNCATE, ShardId(1))
    viewer = await asyncio.to_thread(callers.of, {CHAIN: papers_of("viewer").certificate})
    with pytest.raises(PermissionDenied):
        await asyncio.to_thread(callers.check, viewer, READ, ShardId(1))


async def test_metrics_are_shown_to_a_known_caller_while_the_loop_is_stuck(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADMIN_CALLER_REMEMBERED_S, ADMIN_CALLERS_REMEMBERED_MAX; no longer than what it showed is
    good.
    """
    assert port.store._monitor is not None
    callers, board = port.store._monitor.callers, port.store._monitor._board
    known, ending = token(jti="known"), token(exp=int(time.time()) + 3)
    for one in (known, ending):
        assert (await port.get("/metrics", bearer=one)).status == 200

    def stuck(_: object) -> None:
        raise LoopStuck("as if")

    monkeypatch.setattr(board, "ask", stuck)
    assert (await port.get("/metrics", bearer=known)).status == 200
    assert (await port.get("/metrics", bearer=token(jti="new"))).status == 503
    await eventually(lambda: not callers._was_let_in((b"", f"Bearer {ending}")))
    assert (await port.get("/metrics", bearer=ending)).status == 503
    monkeypatch.setattr(caller_module.bounds, "ADMIN_CALLER_REMEMBERED_S", 0.0)
    assert (await port.get("/metrics", bearer=known)).status == 503
    monkeypatch.undo()
    monkeypatch.setattr(caller_module.bounds, "ADMIN_CALLERS_REMEMBERED_MAX", 2)
    for number in range(5):
        assert (await port.get("/metrics", bearer=token(jti=str(number)))).status == 200
        assert len(callers._lately) <= 2


async def test_a_certificate_is_taken_up_without_a_restart(tmp_path: Path) -> None:
    """One of its own, of an authority that clients do not know; a pair that does not fit is an
    alarm and changes nothing.
    """
    web, other = TestAuthority("web"), TestAuthority("other")

    def write(authority: TestAuthority, **more: Any) -> Papers:
        papers = authority.issue(hosts=("127.0.0.1",), purposes=SERVER, **more)
        papers.write(tmp_path / "web")
        return papers

    write(web)
    lay_out(tmp_path)
    more = 'ciphers = []\n[admin]\ntls = true\ncertificate = "web.pem"\nkey = "web.key"'
    async with secured(tmp_path, more) as store:
        port = Port(store, tmp_path)
        assert (await port.get("/metrics", ca=web.pem)).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await port.get("/metrics", ca=CLIENTS.pem)
        (tmp_path / "web.pem").write_bytes(other.issue(hosts=("127.0.0.1",)).certificate)
        await eventually(lambda: any("is not the key of" in one for one in store.alarms()))
        assert (await port.get("/metrics", ca=web.pem)).status == 200
        write(other)
        await eventually(lambda: not store.alarms())
        assert (await port.get("/metrics", ca=other.pem)).status == 200
        write(other, end=days(0.5), begin=days(-9))
        await eventually(
            lambda: any("admin port: the certificate expires" in one for one in store.alarms())
        )


async def test_the_clients_plane_lends_its_certificate(tmp_path: Path) -> None:
    lay_out(tmp_path)
    async with secured(tmp_path, "[admin]\ntls = true") as store:
        port = Port(store, tmp_path)
        assert (await port.get("/metrics")).status == 200
        assert store._tls is not None
        reloads = store._tls.reloads
        CLIENTS.issue(uri("store", "s1"), purposes=SERVER).write(tmp_path / "client-plane")
        await eventually(lambda: store._tls is not None and store._tls.reloads > reloads)
        fresh = store._tls.material("client plane").certificate
        served = await asyncio.to_thread(
            ssl.get_server_certificate,
            tuple(store.admin_address.rsplit(":", 1)),  # type: ignore[arg-type]
        )
        assert served.encode() in fresh
