"""The documents with parameters that a real admin port has: one store, one shard, claims, work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.server.monitor.cluster.report import Sight
from logservice.server.monitor.cluster.rows import HAKeeperAnswer, ReplicaRow, ShardRow, build
from logservice.server.monitor.cluster.work import work
from logservice.server.monitor.own.claims import (
    ClaimRow,
    Claims,
    ClaimsQuestion,
    LocalClaims,
    together,
)
from logservice.server.monitor.own.status import StoreStatus
from logservice.server.monitor.port.console_pages import Findings
from logservice.server.monitor.port.runbooks import Runbooks
from logservice.server.store import Store
from tests.server.monitor.samples import view
from tests.server.monitor.test_admin_port import Port
from tests.server.test_store import Client, configured

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOLDS = ("a", "b", "c")


class Console(Port):
    def __init__(self, store: Store, client: Client) -> None:
        super().__init__(store)
        self.store, self.client = store, client

    async def ok(self, path: str) -> Any:
        answer = await self.get(f"/api/v1/{path}")
        assert answer.status == 200, answer.body
        return answer.json()

    async def refused(self, path: str) -> int:
        answer = await self.get(f"/api/v1/{path}")
        assert "error" in answer.json()
        return answer.status


def named(name: str) -> log_pb2.OpenSessionRequest:
    now_us = time.time_ns() // 1000
    return log_pb2.OpenSessionRequest(
        shard_id=1, name=name, epoch=1, stamp_us=now_us, content=bytes(32)
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Console]:
    store = Store(configured(tmp_path_factory.mktemp("store") / "data"))
    await store.start()
    client = Client(store)
    await client.shard_ready(1)
    await client.append(1, b"a", b"b", b"c")
    for number, name in enumerate(HOLDS, 1):
        await client.log.SetHold(log_pb2.SetHoldRequest(shard_id=1, lsn=number, name=name))
    writer = log_pb2.AcquireWriterRequest(shard_id=1, holder="<writer>")
    epoch = (await client.log.AcquireWriter(writer)).epoch
    await client.log.Truncate(log_pb2.TruncateRequest(shard_id=1, lsn=2, writer_epoch=epoch))
    for name in ("job-1", "job-2"):
        await client.log.OpenSession(named(name))
    await client.log.OpenSession(log_pb2.OpenSessionRequest(shard_id=1))
    found = Console(store, client)
    async with asyncio.timeout(60):
        while not (await found.get("/api/v1/claims?kind=holds")).json().get("rows"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await found.until_applied(1, 3)
    yield found
    await client.channel.close(None)
    await store.stop()


async def test_holds_page_by_page(console: Console) -> None:
    """Each once, in order, whatever the pages are cut into."""
    met: list[str] = []
    query = "claims?kind=holds&count=1"
    after = ""
    for _ in range(len(HOLDS) + 1):
        page = await console.ok(query + after)
        met += [row["name"] for row in page["rows"]]
        if not page["more"]:
            break
        (row,) = page["rows"]
        after = f"&after_shard={row['shard']}&after_name={row['name']}"
    assert tuple(met) == HOLDS
    whole = await console.ok("claims?kind=holds")
    assert [row["hold"]["lsn"] for row in whole["rows"]] == [1, 2, 3]
    assert [row["hold"]["keeps"] for row in whole["rows"]] == [True, True, False]
    assert all(row["hold"]["age_s"] >= 0 for row in whole["rows"])
    assert (whole["more"], whole["silent"]) == (False, [])


async def test_claims_are_filtered_by_the_store(console: Console) -> None:
    async def names(query: str) -> list[str]:
        return [row["name"] for row in (await console.ok(f"claims?{query}"))["rows"]]

    assert await names("kind=holds&keeping=1") == ["a", "b"]
    assert await names("kind=holds&filter=C") == ["c"]
    assert await names("kind=holds&filter=nothing") == []
    assert await names("kind=writers") == ["<writer>"]
    assert await names("kind=writers&after_shard=2") == []
    assert await names("kind=sessions") == ["", "job-1", "job-2"], (
        "those without a name are one row"
    )
    assert await names("kind=sessions&filter=job-2") == ["job-2"]


async def test_one_page_has_at_most_so_many_rows(console: Console) -> None:
    """ADMIN_CLAIMS_SHOWN."""
    for number in range(bounds.ADMIN_CLAIMS_SHOWN):
        request = log_pb2.SetHoldRequest(shard_id=1, lsn=3, name=f"m-{number:03}")
        await console.client.log.SetHold(request)
    page = await console.ok("claims?kind=holds")
    assert (len(page["rows"]), page["more"]) == (bounds.ADMIN_CLAIMS_SHOWN, True)
    assert await console.refused(f"claims?count={bounds.ADMIN_CLAIMS_SHOWN + 1}") == 400
    for number in range(bounds.ADMIN_CLAIMS_SHOWN):
        request = log_pb2.ReleaseHoldRequest(shard_id=1, name=f"m-{number:03}")
        await console.client.log.ReleaseHold(request)


async def test_pages_of_several_stores_are_one() -> None:
    def page(*rows: tuple[int, str], more: bool = False) -> Claims:
        return Claims(rows=tuple(ClaimRow(shard=one, name=name) for one, name in rows), more=more)

    found = together(
        {"s1": page((1, "b"), (4, "")), "s2": page((2, "x"), (1, "b")), "s3": None}, count=2
    )
    assert [(row.shard, row.name) for row in found.rows] == [(1, "b"), (2, "x")]
    assert (found.more, found.silent) == (True, ("s3",))
    assert together({"s1": page((1, "b"), more=True)}, 5).more
    assert not together({"s1": page((1, "b"))}, 5).more


async def test_one_store(console: Console) -> None:
    found = await console.ok("stores/detail?store=s1")
    assert (found["row"]["store"], found["status"]["store"]) == ("s1", "s1")
    assert found["status"]["replicas"] == [], "they may be thousands"
    assert found["status"]["directories"][0]["logdb"]["segment_files"] > 0
    assert found["highest_version"] >= found["used_version"] >= 1
    assert await console.refused("stores/detail?store=s9") == 400
    open_now = found["status"]["client_connections"]
    assert set(open_now) == {"open", "half_open"}


async def test_one_shard(console: Console) -> None:
    found = await console.ok("shards/detail?shard=1")
    assert found["row"]["leader_store"] == "s1"
    (member,) = found["members"]
    inside = member["inside"]
    assert [one["name"] for one in inside["holds"]] == list(HOLDS)
    assert [one["name"] for one in inside["sessions"]] == ["job-1", "job-2"]
    assert inside["replica"]["applied_lsn"] == 3
    assert inside["truncation"]["retained_bytes"] > 0
    assert (inside["gaps"], inside["lineage"], inside["compared"]["undecided"]) == (0, 0, False)
    hakeeper = await console.ok("shards/detail?shard=0")
    assert hakeeper["members"][0]["inside"]["holds"] == []
    assert await console.refused("shards/detail?shard=99") == 404


async def test_of_many_named_sessions_a_shard_shows_the_first(console: Console) -> None:
    """ADMIN_SESSIONS_SHOWN."""
    for number in range(bounds.ADMIN_SESSIONS_SHOWN):
        await console.client.log.OpenSession(named(f"z-{number:03}"))
    inside = (await console.ok("shards/detail?shard=1"))["members"][0]["inside"]
    assert (len(inside["sessions"]), inside["sessions_more"]) == (bounds.ADMIN_SESSIONS_SHOWN, True)


async def test_a_filter_that_matches_nothing_leaves_turns_to_other_work(console: Console) -> None:
    """ADMIN_CLAIMS_SLICE counts rows, too: 64 logs with all their sessions held the loop for a
    second.
    """
    for number in range(bounds.ADMIN_CLAIMS_SLICE):
        await console.client.log.OpenSession(named(f"z-{number:03}"))
    assert console.store._parts is not None
    claims = LocalClaims(console.store._parts)
    page = claims.page(ClaimsQuestion("sessions", filter="nothing"))
    assert page.send(None) is None, "it came to its end in one turn"
    page.close()


async def test_history_of_a_store(console: Console) -> None:
    assert console.store._monitor is not None
    history = console.store._monitor._history
    status = console.store._monitor.reporter.status()
    for uptime_s in (1e6, 1e6 + bounds.HISTORY_COARSE_S):
        history.look(msgspec.structs.replace(status, uptime_s=uptime_s))
    for path in ("history", "history?store=s1&span=day"):
        found = await console.ok(path)
        assert (found["store"], found["figures"]["leaders"][-1] >= 1) == ("s1", True)
        assert len(found["times_us"]) == len(found["figures"]["append_p99_s"])
    assert found["figures"]["append_p99_s"][-1] is None, "nothing was appended in between"
    assert await console.refused("history?store=s9") == 400
    assert await console.refused("history?span=year") == 400


async def test_what_is_under_way_and_what_is_wrong(console: Console) -> None:
    found = await console.ok("work")
    while found["operators"]:  # the log's first replica was started, and is not reported yet
        await asyncio.sleep(0.05)
        found = await console.ok("work")
    assert (found["known"], found["drains"]) == (True, [])
    assert [one["store"] for one in found["versions"]] == ["s1"]
    assert found["versions"][0]["version"]
    findings = await console.ok("findings")
    (hold,) = [one for one in findings["rows"] if one["code"] == "hold"]
    assert findings["found"] == len(findings["rows"])
    assert (hold["severity"], hold["page"]) == ("warning", "docs/operations/forgotten-hold.md")


async def test_of_many_findings_the_worst_are_shown() -> None:
    """ADMIN_FINDINGS_SHOWN; ADMIN_WORK_SHOWN."""
    held = ShardRow(
        shard=1, leader_store="s1", holds=1, hold_name="x;y", requested_truncation_lsn=9
    )
    shards = [
        msgspec.structs.replace(held, shard=number)
        for number in range(1, bounds.ADMIN_FINDINGS_SHOWN + 2)
    ]
    leaderless = ShardRow(shard=999)
    report = build(HAKeeperAnswer(view(), 0, ""), {}, StoreStatus(), shards=[*shards, leaderless])
    found = Findings().of(report)
    assert len(found.rows) == bounds.ADMIN_FINDINGS_SHOWN < found.found
    assert found.rows[0].severity == "broken"
    assert any("logctl hold release 1 'x;y'" in one.do for one in found.rows)
    behind = ReplicaRow(replica=1, store="s1", lag_entries=5, lag_bytes=1 << 30)
    lagging = ShardRow(shard=1, lag_entries=5, replicas=(behind,) * (bounds.ADMIN_WORK_SHOWN + 1))
    report = build(HAKeeperAnswer(view(), 0, ""), {}, StoreStatus(), shards=[lagging])
    under_way = work(Sight(report, view(), {}))
    assert len(under_way.catching_up) == bounds.ADMIN_WORK_SHOWN
    assert under_way.behind == bounds.ADMIN_WORK_SHOWN + 1


async def test_runbooks_that_the_store_has(console: Console) -> None:
    names = await console.ok("runbooks")
    assert names == Runbooks().names
    page = await console.ok("runbooks?page=drain.md")
    assert page["text"].startswith("# ")
    for wrong in ("nothing.md", "..%2F..%2FREADME.md", "%2Fetc%2Fpasswd"):
        assert await console.refused(f"runbooks?page={wrong}") == 404


async def test_parameters_are_checked(console: Console) -> None:
    for wrong in (
        "claims?kind=secrets",
        "claims?keeping=2",
        "claims?kind=holds&kind=holds",
        "shards/detail?shard=-1",
        "shards/detail?shard=99999999999999999999",
        "stores/detail?store=" + "x" * (bounds.NAME_BYTES_MAX + 1),
        "work?x=1",
    ):
        assert await console.refused(wrong) == 400
