"""What a store says of how long things took: stages of appends, reads, and calls by outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.errors import Reason
from logservice_wire.v1 import log_pb2

from logservice.ids import ShardId
from logservice.nodehost.replica.append_stages import STAGES, AppendStages
from logservice.server.edge import guard
from logservice.server.edge.call_book import CallBook
from logservice.server.services.context import StoreContext
from logservice.server.store import Store
from tests.nodehost.cluster import request
from tests.server.served import Served, block
from tests.server.test_store import Client, configured, refused
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOBODY = 9_999


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    made = Store(configured(tmp_path_factory.mktemp("store") / "data"))
    await made.start()
    yield made
    await made.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(store: Store) -> AsyncIterator[Client]:
    found = Client(store)
    await found.shard_ready(1)
    yield found
    await found.channel.close(None)


def counts(stages: AppendStages) -> dict[str, int]:
    found = {name: sum(one.counts) for name, one in stages.stages().items()}
    return found | {"whole": sum(stages.whole.histogram().counts)}


def all_of(count: int) -> dict[str, int]:
    return dict.fromkeys((*STAGES, "whole"), count)


# --- appends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stores", [1, 3])
async def test_an_append_is_in_every_stage_once_on_the_leaders_store(stores: int) -> None:
    async with Served(stores) as served:
        shard = await served.new_shard()
        leader = served.leader(shard)
        assert counts(leader.host.stages) == all_of(0), "Connect and elections are no appends"
        await leader.log.Append(log_pb2.AppendRequest(shard_id=shard, block=block(b"x", b"y")))
        assert counts(leader.host.stages) == all_of(1)
        await leader.log.Truncate(log_pb2.TruncateRequest(shard_id=shard, lsn=1))
        assert counts(leader.host.stages) == all_of(1)
        stages = leader.host.stages
        parts = sum(one.total for one in stages.stages().values())
        # Each of the three is cut off to whole microseconds.
        assert 0 <= stages.whole.histogram().total - parts <= 3
        for other in served.followers(shard):
            assert counts(other.host.stages) == all_of(0)


async def test_an_append_that_is_passed_on_counts_where_it_was_appended() -> None:
    async with Served(3) as served:
        shard = await served.new_shard()
        follower = served.followers(shard)[0]
        await follower.log.Append(log_pb2.AppendRequest(shard_id=shard, block=block()))
        assert counts(follower.host.stages) == all_of(0)
        assert counts(served.leader(shard).host.stages) == all_of(1)


async def test_appends_that_share_an_entry_count_each() -> None:
    async with Served(3) as served:
        shard = ShardId(await served.new_shard())
        leader = served.leader(shard).host
        before = leader.replicas.running[shard].raft.last_index
        await asyncio.gather(*(leader.append(shard, request(1, b"x"), 30.0) for _ in range(50)))
        assert leader.replicas.running[shard].raft.last_index < before + 50, "they share entries"
        assert counts(leader.stages) == all_of(50)


async def test_an_append_that_is_never_proposed_is_in_no_stage() -> None:
    async with Served(1) as served:
        shard = await served.new_shard()
        host = served.leader(shard).host
        wrong = log_pb2.AppendRequest(shard_id=shard, block=block(), expected_lsn=77)
        await refused(served.stores[0].log.Append(wrong), Reason.WRONG_EXPECTED_LSN)
        assert counts(host.stages) == all_of(0)


# --- reads ----------------------------------------------------------------------------------------


async def test_a_read_counts_in_its_class_if_it_returned_something() -> None:
    async with Served(1) as served:
        shard = await served.new_shard()
        one = served.stores[0]
        await one.log.Append(log_pb2.AppendRequest(shard_id=shard, block=block()))
        for lsn in (1, 2):  # there is nothing at 2
            await one.log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=lsn))
        found = {key: sum(took.counts) for key, took in one.host.reads.took().items()}
        assert found == {"tail": 1, "catch_up": 0}


# --- calls ----------------------------------------------------------------------------------------


def ended(store: Store) -> dict[str, int]:
    assert store._client_port is not None
    return store._client_port.calls.ended()


async def moved(store: Store, call: Any, *expected: str) -> None:
    """Exactly these outcomes are counted once more, with the time of unary calls."""
    assert store._client_port is not None
    book = store._client_port.calls
    before, took = ended(store), book.took()
    await call
    await eventually(lambda: ended(store) != before)
    after = ended(store)
    assert {key for key in after if after[key] != before.get(key, 0)} == set(expected)
    assert sum(after.values()) == sum(before.values()) + len(expected)
    for method in (one.partition("/")[0] for one in expected):
        if method in book.took():
            old = sum(took[method].counts) if method in took else 0
            assert sum(book.took()[method].counts) == old + 1


async def test_a_call_counts_under_its_outcome(store: Store, client: Client) -> None:
    status = log_pb2.GetShardStatusRequest(shard_id=1)
    await moved(store, client.log.GetShardStatus(status), "GetShardStatus/OK")
    nobody = log_pb2.GetShardStatusRequest(shard_id=NOBODY)
    asked = refused(client.log.GetShardStatus(nobody), Reason.SHARD_NOT_FOUND)
    await moved(store, asked, "GetShardStatus/SHARD_NOT_FOUND")
    empty = log_pb2.AppendRequest(shard_id=1, block=b"")
    asked = refused(client.log.Append(empty), Reason.CORRUPT_BLOCK)
    await moved(store, asked, "Append/CORRUPT_BLOCK")


async def test_a_bug_counts_as_internal(
    store: Store, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    # Not in the host: HAKeeper's ticks and the monitor look there, and a bug of theirs ends the
    # process.
    monkeypatch.setattr(StoreContext, "position", broken)

    async def ask() -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.log.GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=1, stale=True))
        assert caught.value.code() is grpc.StatusCode.INTERNAL

    await moved(store, ask(), "GetShardStatus/INTERNAL")


async def test_a_call_that_the_guard_refuses_counts(
    store: Store, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_: object) -> float:
        raise guard.TooLarge("the call", name="x", value=1, limit=0)

    monkeypatch.setattr(guard, "time_left_s", never)
    assert store._client_port is not None
    lines = store._client_port.lines

    async def enter(_: object, __: object, left_s: Any) -> None:
        left_s()

    monkeypatch.setattr(lines, "enter", enter)
    asked = refused(client.log.Connect(log_pb2.ConnectRequest(shard_id=1)), Reason.TOO_LARGE)
    await moved(store, asked, "Connect/TOO_LARGE")


async def test_a_caller_who_leaves_counts_as_cancelled(store: Store, client: Client) -> None:
    async def follow() -> None:
        call = client.log.Follow(log_pb2.FollowRequest(shard_id=1, lsn=1))
        await call.read()
        call.cancel()

    await client.append(1, b"x")
    await moved(store, follow(), "Follow/CANCELLED")


async def test_a_stream_has_an_outcome_and_no_time(store: Store, client: Client) -> None:
    async def follow() -> None:
        async for _ in client.log.Follow(log_pb2.FollowRequest(shard_id=1, lsn=1, until_tail=True)):
            pass

    await client.append(1, b"x")
    await moved(store, follow(), "Follow/OK")
    assert store._client_port is not None
    assert "Follow" not in store._client_port.calls.took()


async def test_inv_calls_1_unknown_methods_add_no_label(store: Store, client: Client) -> None:
    before = ended(store)
    assert store._client_port is not None
    rows = set(store._client_port.calls._methods)
    for number in range(20):
        unknown = client.channel.unary_unary(f"/logservice_wire.v1.Log/Made{number}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unknown(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    await client.log.Connect(log_pb2.ConnectRequest(shard_id=1))
    await eventually(lambda: ended(store) != before)
    assert ended(store).keys() == before.keys() | {"Connect/OK"}
    assert set(store._client_port.calls._methods) == rows
    assert rows <= {one.name for one in guard.SERVED.values()}


async def test_inv_calls_1_every_outcome_is_known(store: Store) -> None:
    known = {"OK", "STALLED", "CANCELLED", "INTERNAL"} | {one.value for one in Reason}
    assert {key.partition("/")[2] for key in ended(store)} <= known


async def test_what_is_shown(store: Store, client: Client) -> None:
    assert store._monitor is not None
    await client.append(1, b"x")
    await client.log.Read(log_pb2.ReadRequest(shard_id=1, lsn=1))
    seen = store._monitor.reporter.status(0)
    assert sum(seen.append_seconds.counts) > 0
    assert seen.append_stage_seconds.keys() == set(STAGES)
    assert {sum(one.counts) for one in seen.append_stage_seconds.values()} == {
        sum(seen.append_seconds.counts)
    }
    assert sum(seen.rpc_seconds["Append"].counts) == sum(
        count for key, count in seen.rpcs.items() if key.startswith("Append/")
    )
    report = await store._monitor.report(made_now=True)
    (row,) = report.stores
    assert row.append_seconds == seen.append_seconds
    assert sum(row.read_seconds.counts) == sum(
        sum(one.counts) for one in seen.read_seconds.values()
    )


async def test_a_row_that_nobody_called_is_not_shown() -> None:
    book = CallBook()
    book.row("Append", timed=True)
    assert (book.ended(), book.took()) == ({}, {})
