"""Records and grants at the admin port, of a real store with TLS: for whom, how much, audited."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from logservice_wire.block import encode_block
from logservice_wire.column_block import encode_columns
from logservice_wire.v1 import hakeeper_pb2, hakeeper_pb2_grpc, log_pb2, log_pb2_grpc

from logservice import bounds
from logservice.ids import Lsn, Term
from logservice.nodehost.replica.log_reading import LogRun, LogSlice
from logservice.nodehost.replica.read_limits import ReadClass
from logservice.server.audit.chain import Trail
from logservice.server.monitor.port.caller import CHAIN
from logservice.server.services.browsing import rows_of
from logservice.server.store import Store
from tests.papers import Papers, uri
from tests.server.monitor.test_admin_callers import MORE
from tests.server.monitor.test_admin_callers import Port as AdminPort
from tests.server.secured import OWNER, channel_of, lay_out, papers_of, secured
from tests.server.test_audit import told
from tests.server.test_store import configured
from tests.server.tokens.issuer import jwk, key, publish, token
from tests.server.tokens.test_store_tokens import BACKEND, grant
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

READER, STRANGER = papers_of("reader"), papers_of("stranger")
AUDITED = "[audit]\ndata = true\n"
RECORDS = [b"\x00\xff<b>", b"x" * (bounds.ADMIN_VALUE_BYTES_SHOWN + 1), b"", b"four"]


class Asked:
    """A request to the admin port, as its server hands it over."""

    def __init__(self, store: Store, directory: Path) -> None:
        self.store, self.directory = store, directory
        self.more: dict[str, str] = {}
        """What the environment of a request has, too, or instead."""

    def now(self, part: str, papers: Papers | None, **query: object) -> tuple[int, Any]:
        assert self.store._monitor is not None
        app: Any = self.store._monitor._server._server.application
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": f"/api/v1/{part}",
            "QUERY_STRING": "&".join(f"{name}={value}" for name, value in query.items()),
            "HTTP_HOST": "localhost",
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_PORT": "7",
            **self.more,
        }
        if papers is not None:
            environ[CHAIN] = papers.certificate
        status: list[str] = []
        body = b"".join(app(environ, lambda said, headers: status.append(said)))
        return int(status[0][:3]), json.loads(body)

    async def get(self, part: str, papers: Papers | None, **query: object) -> tuple[int, Any]:
        return await asyncio.to_thread(self.now, part, papers, **query)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Asked]:
    directory: Path = tmp_path_factory.mktemp("guarded")
    lay_out(directory)
    async with secured(directory, AUDITED) as store, channel_of(store, OWNER) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        hakeeper: Any = hakeeper_pb2_grpc.HAKeeperStub(channel)
        for identity, scope, role in (
            (uri("client", "admin"), "*", "append"),
            (uri("client", "reader"), "shard/1", "read"),
        ):
            await hakeeper.ChangeAccess(
                hakeeper_pb2.ChangeAccessRequest(identity=identity, scope=scope, grant=[role])
            )
        await log.Append(log_pb2.AppendRequest(shard_id=1, block=encode_block(RECORDS, 7)))
        wide = encode_columns(
            [b"v1", b"v2"],
            8,
            keys=[b"k", None],
            times_us=[100, 200],
            headers=[{"h": b"1"}, {}],
        )
        await log.Append(log_pb2.AppendRequest(shard_id=1, block=wide))
        found = Asked(store, directory)
        async with asyncio.timeout(60):
            while (await found.get("records", READER, shard=1))[0] != 200:  # noqa: ASYNC110 - not ours
                await asyncio.sleep(0.05)
        yield found


async def test_records_for_who_may_read(asked: Asked) -> None:
    status, page = await asked.get("records", READER, shard=1)
    assert (status, page["who"], page["store"]) == (200, uri("client", "reader"), "s1")
    assert (page["first_lsn"], page["applied_lsn"], page["next_lsn"]) == (1, 6, 7)
    plain, long, empty, fourth, key, no_key = page["rows"]
    assert [row["lsn"] for row in page["rows"]] == [1, 2, 3, 4, 5, 6]
    assert plain["value"] == {"size": 5, "hex": RECORDS[0].hex()}
    assert long["value"]["size"] == bounds.ADMIN_VALUE_BYTES_SHOWN + 1, "ADMIN_VALUE_BYTES_SHOWN"
    assert len(long["value"]["hex"]) == 2 * bounds.ADMIN_VALUE_BYTES_SHOWN
    assert empty["value"] == {"size": 0, "hex": ""}
    assert (fourth["block_lsn"], fourth["block_records"], fourth["wide"]) == (1, 4, False)
    assert (key["wide"], key["time_us"], key["key"]["hex"]) == (True, 100, b"k".hex())
    assert key["headers"] == [["h", {"size": 1, "hex": b"1".hex()}]]
    assert (no_key["key"], no_key["headers"], no_key["value"]["hex"]) == (None, [], b"v2".hex())


async def test_a_page_begins_where_it_is_asked_to(asked: Asked) -> None:
    async def lsns(**query: object) -> tuple[list[int], int]:
        status, page = await asked.get("records", READER, shard=1, **query)
        assert status == 200, page
        return [row["lsn"] for row in page["rows"]], page["next_lsn"]

    assert await lsns(lsn=3, count=2) == ([3, 4], 5)
    assert await lsns(lsn=4, count=2) == ([4, 5], 6)
    assert await lsns(lsn=7) == ([], 7), "at the tail"
    assert await lsns(latest=1, count=2) == ([5, 6], 7)
    assert (await lsns(time_us=1))[0][0] == 1
    refused, said = await asked.get("records", READER, shard=1, lsn=99)
    assert (refused, said["reason"]) == (416, "BEYOND_TAIL")
    refused, said = await asked.get(
        "records", READER, shard=1, count=bounds.ADMIN_RECORDS_SHOWN + 1
    )
    assert refused == 400


async def test_nothing_for_others(asked: Asked) -> None:
    """INV-ADMIN-2: without an identity, without the role, for a log without a grant, with what is
    no certificate.
    """
    junk = Papers(b"", b"no certificate")
    for papers, shard, status, reason in (
        (None, 1, 401, "UNAUTHENTICATED"),
        (junk, 1, 401, "UNAUTHENTICATED"),
        (STRANGER, 1, 403, "PERMISSION_DENIED"),
        (READER, 2, 403, "PERMISSION_DENIED"),
        (READER, 0, 400, "INVALID_ARGUMENT"),
    ):
        found, said = await asked.get("records", papers, shard=shard)
        assert (found, said["reason"]) == (status, reason)
        assert "rows" not in said
    assert (await asked.get("records", None, shard=1))[1]["metadata"] == {"who": "nobody"}
    for papers in (None, READER):
        found, said = await asked.get("grants", papers)
        assert found in (401, 403)
        assert "rows" not in said


FROM_ELSEWHERE = [
    {"REMOTE_ADDR": "192.0.2.7"},
    {"REMOTE_ADDR": ""},
    {"HTTP_X_FORWARDED_FOR": "127.0.0.1"},
    {"HTTP_FORWARDED": "for=127.0.0.1"},
    {"HTTP_VIA": "1.1 proxy"},
]
"""What a request has that may come from another machine."""


async def test_in_plaintext_records_are_shown_to_this_machine_and_grants_to_nobody(
    tmp_path: Path,
) -> None:
    """INV-ADMIN-2: such a store lets everybody on its machine read at its client port, too."""
    store = Store(configured(tmp_path / "data"))
    await store.start()
    asked = Asked(store, tmp_path)
    try:
        async with asyncio.timeout(60):
            while (await asked.get("records", None, shard=1))[0] == 404:  # noqa: ASYNC110 - not ours
                await asyncio.sleep(0.05)
        found, said = await asked.get("records", None, shard=1)
        assert found == 200, said
        assert (said["who"], said["rows"]) == ("anonymous", [])
        for more in FROM_ELSEWHERE:
            asked.more = more
            found, said = await asked.get("records", None, shard=1)
            assert (found, said.get("metadata")) == (401, {"who": "plaintext"}), more
        asked.more = {}
        found, said = await asked.get("grants", None)
        assert (found, said["metadata"]) == (401, {"who": "plaintext"})
    finally:
        await store.stop()


async def test_what_a_proxy_passes_on_is_seen_on_a_real_connection(tmp_path: Path) -> None:
    store = Store(configured(tmp_path / "data"))
    await store.start()
    try:
        assert store._monitor is not None
        address = store._monitor._server.address

        def get(**headers: str) -> int:
            connection = http.client.HTTPConnection(address, timeout=60)
            with contextlib.closing(connection):
                connection.request("GET", "/api/v1/records?shard=1", headers=headers)
                return connection.getresponse().status

        async with asyncio.timeout(60):
            while await asyncio.to_thread(get) != 200:  # noqa: ASYNC110 - not ours
                await asyncio.sleep(0.05)
        for name in ("Forwarded", "Via", "X-Forwarded-For", "X-Real-IP"):
            assert await asyncio.to_thread(get, **{name: "127.0.0.1"}) == 401, name
        assert await asyncio.to_thread(get, Host="rebound.example") == 421
    finally:
        await store.stop()


async def test_over_https_by_a_certificate_or_a_token(tmp_path: Path) -> None:
    """INV-ADMIN-2, the whole way: the role decides, however the caller said who it is."""
    lay_out(tmp_path)
    publish(tmp_path / "keys.json", jwk(key("RS256"), "k1"))
    async with secured(tmp_path, MORE) as store:
        await grant(store, uri("client", "reader"), "read")
        await grant(store, uri("client", "holder"), "hold")
        await grant(store, BACKEND, "read")
        port = AdminPort(store, tmp_path)
        path = "/api/v1/records?shard=1"
        for shown in (await port.get(path, READER), await port.get(path, bearer=token())):
            assert shown.status == 200, shown.body
            assert json.loads(shown.body)["store"] == "s1"
        for papers, status in ((papers_of("holder"), 403), (STRANGER, 403), (None, 401)):
            refused = await port.get(path, papers)
            assert refused.status == status
            assert "rows" not in json.loads(refused.body)


async def test_grants_and_their_state(asked: Asked) -> None:
    await asked.get("records", READER, shard=1)
    status, page = await asked.get("grants", OWNER)
    assert (status, page["rules"], page["matching"]) == (200, 2, 2)
    assert (page["current"], page["too_old"], page["admins"]) == (
        True,
        False,
        [uri("client", "admin")],
    )
    last = page["rows"][1]
    assert last.pop("used_us") > 0, "the reader has read"
    assert last == {
        "rule": "grant",
        "identity": uri("client", "reader"),
        "scope": "shard/1",
        "roles": ["read"],
        "logs": 1,
    }
    status, page = await asked.get("grants", OWNER, filter="READER", count=1)
    assert [row["identity"] for row in page["rows"]] == [uri("client", "reader")]
    assert (await asked.get("grants", OWNER, offset=2))[1]["rows"] == []
    assert (await asked.get("grants", OWNER, count=bounds.ADMIN_GRANTS_SHOWN + 1))[0] == 400


async def test_it_is_a_catch_up_read_of_its_caller(asked: Asked) -> None:
    """It takes its turn and its memory as one, and gives both back."""
    assert asked.store._client_port is not None
    assert asked.store._parts is not None
    limit = asked.store._parts.host.reads.of[ReadClass.CATCH_UP]
    before = limit.reads
    await asked.get("records", READER, shard=1)
    assert limit.reads == before + 1
    assert (limit.under_way, asked.store._client_port.answers.used) == (0, 0)
    gate = asked.store._client_port.gate
    assert gate is not None
    assert gate.bearer(READER.certificate).quota.rpcs == 0


async def test_reads_and_denials_are_audited(asked: Asked) -> None:
    await asked.get("records", READER, shard=1, lsn=2, count=2)
    await asked.get("records", STRANGER, shard=1)
    await asked.get("grants", OWNER)
    directory = asked.directory / "data" / "audit"
    read: dict[str, Any] = {
        "who": uri("client", "reader"),
        "what": "Read",
        "shard": 1,
        "decision": "allowed",
        "outcome": "ok",
        "from": "admin:127.0.0.1:7",
        "first_lsn": 2,
        "last_lsn": 3,
    }
    denied = {"who": uri("client", "stranger"), "what": "Read", "decision": "denied"}
    listed = {"who": uri("client", "admin"), "what": "GetAccessList", "decision": "allowed"}

    def written(expected: dict[str, Any], trail: Trail) -> bool:
        return any(expected.items() <= line.items() for line in told(directory, trail))

    await eventually(lambda: written(read, Trail.CALLS))
    await eventually(lambda: written(denied, Trail.CALLS))
    await eventually(lambda: written(listed, Trail.ADMINISTRATION))


def run(block: bytes, count: int, first: int = 1) -> LogRun:
    return LogRun(Lsn(first), count, Term(1), block)


def rows(*runs: LogRun, lsn: int = 1, count: int = 10) -> tuple[tuple[Any, ...], int]:
    return rows_of(LogSlice(runs, Lsn(1), Lsn(1), Lsn(1)), Lsn(lsn), count)


async def test_a_block_that_is_large_when_it_is_opened_stays_closed() -> None:
    """ADMIN_OPENED_BYTES_MAX, ADMIN_RECORDS_SHOWN, ADMIN_HEADERS_SHOWN."""
    huge = encode_columns([bytes(bounds.ADMIN_OPENED_BYTES_MAX + 1)] * 2, 8, codec="zstd")
    headers = {f"h{number}": b"" for number in range(bounds.ADMIN_HEADERS_SHOWN + 5)}
    small = encode_columns([b"a"], 9, headers=[headers], codec="zstd")
    found, next_lsn = rows(run(huge, 2), run(small, 1, 3))
    closed, opened = found
    assert (closed.lsn, closed.count, closed.value) == (1, 2, None)
    assert "too large" in closed.note
    assert (opened.lsn, opened.value.hex, next_lsn) == (3, b"a".hex(), 4)
    assert len(opened.headers) == bounds.ADMIN_HEADERS_SHOWN
    many = encode_block([b""] * (bounds.ADMIN_RECORDS_SHOWN + 1), 1)
    found, next_lsn = rows(
        run(many, bounds.ADMIN_RECORDS_SHOWN + 1), count=bounds.ADMIN_RECORDS_SHOWN
    )
    assert (len(found), next_lsn) == (bounds.ADMIN_RECORDS_SHOWN, bounds.ADMIN_RECORDS_SHOWN + 1)


async def test_what_cannot_be_opened_is_told() -> None:
    block = encode_block([b"one", b"two"], 1)
    damaged = block[:-4] + b"????"
    (row,), next_lsn = rows(run(damaged, 2))
    assert (row.value, row.count, bool(row.note), next_lsn) == (None, 2, True, 3)


async def test_who_reads_here_is_noted_as_on_the_other_port(asked: Asked) -> None:
    """And what is refused has its line, also where the port asks nobody who they are."""
    assert asked.store._client_port is not None
    book = asked.store._client_port.seen

    def calls() -> int:
        return sum(one.calls for one in book.rows(only=uri("client", "reader")))

    before = calls()
    await asked.get("records", READER, shard=1)
    assert calls() == before + 1
    other = papers_of("other")
    wrong = Papers(b"no certificate", other.key)
    assert (await asked.get("records", wrong, shard=1))[0] == 401
    [nobody] = book.rows(only="")
    assert nobody.denied_what == "AdminPort"
