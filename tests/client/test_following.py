"""What a store answers is checked: LSNs are neither left out nor told twice (INV-CLIENT-READ)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from logservice_client import Gap, GapReason, LogClient, Records
from logservice_client.read_result import result_of, runs_of
from logservice_wire.block import encode_block
from logservice_wire.errors import Discontinuity, Outcome
from logservice_wire.v1 import log_pb2

from tests.client.fake_log import FakeLog
from tests.client.fake_server import FakeCluster


def run(first_lsn: int, count: int) -> log_pb2.LogBlock:
    return log_pb2.LogBlock(
        first_lsn=first_lsn, record_count=count, block=encode_block([b"r"] * count, 1)
    )


def answer(*runs: tuple[int, int], next_lsn: int) -> log_pb2.ReadResponse:
    return log_pb2.ReadResponse(blocks=[run(*one) for one in runs], next_lsn=next_lsn)


RIGHT = {
    "from its beginning": answer((5, 2), (7, 3), next_lsn=10),
    "from within a block": answer((3, 4), (7, 3), next_lsn=10),
    "nothing": answer(next_lsn=5),
    "an old store that says less": answer((5, 2), next_lsn=0),
}
WRONG = {
    "begins behind": (answer((6, 2), next_lsn=8), 6),
    "a hole within": (answer((5, 2), (8, 1), next_lsn=9), 8),
    "a block again": (answer((5, 2), (5, 2), next_lsn=7), 5),
    "a block from before": (answer((1, 4), (5, 1), next_lsn=6), 1),
    "goes on behind": (answer((5, 2), next_lsn=9), 9),
    "skips without a word": (answer(next_lsn=6), 6),
}


@pytest.mark.parametrize("name", RIGHT)
def test_an_answer_that_goes_on_where_it_should(name: str) -> None:
    items = result_of(RIGHT[name], 5).items
    assert [item.first_lsn for item in items] == [5, 7][: len(items)]


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_does_not(name: str) -> None:
    response, found = WRONG[name]
    with pytest.raises(Discontinuity) as caught:
        result_of(response, 5)
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert caught.value.found == found
    assert caught.value.asked >= 5


def test_times_may_leave_lsns_out_and_tell_none_twice() -> None:
    items = runs_of(answer((6, 2), (9, 1), next_lsn=12), 5, holes=True)
    assert [item.first_lsn for item in items] == [6, 9]
    with pytest.raises(Discontinuity):
        runs_of(answer((6, 2), (6, 2), next_lsn=8), 5, holes=True)


@contextmanager
def forgetful(log: FakeLog) -> Iterator[None]:
    """The log leaves its second run out."""
    whole, log.runs = log.runs, [log.runs[0], *log.runs[2:]]
    yield
    log.runs = whole


@pytest.fixture
async def forgotten(cluster: FakeCluster, client: LogClient) -> AsyncIterator[FakeCluster]:
    for number in range(4):
        await client.shard(1).append([b"%d" % number, b"and"])
    with forgetful(cluster.logs[1]):
        yield cluster


@pytest.mark.usefixtures("forgotten")
async def test_a_store_that_leaves_records_out_is_noticed(client: LogClient) -> None:
    log = client.shard(1)
    with pytest.raises(Discontinuity):
        await log.read(1)
    with pytest.raises(Discontinuity):
        async for _ in log.follow(1):
            pytest.fail("nothing of an answer that cannot be right is handed out")
    with pytest.raises(Discontinuity):
        async for _ in log.records(1, until_tail=True):
            pass


@pytest.mark.parametrize("number", [log_pb2.GAP_REASON_CORRUPT, 99])
async def test_readers_go_on_behind_a_gap_of_any_reason(
    cluster: FakeCluster, client: LogClient, number: int
) -> None:
    log = client.shard(1)
    await log.append(b"a")
    cluster.logs[1].put_gap(2, number)
    cluster.logs[1].sessions.clear()
    async with LogClient(cluster.endpoints) as other:
        await other.shard(1).append(b"b")
    items = [item async for item in log.follow(1, until_tail=True)]
    assert [type(item) for item in items] == [Records, Gap, Records]
    gap = items[1]
    assert isinstance(gap, Gap)
    assert gap.reason is (GapReason.CORRUPT if number != 99 else GapReason.UNKNOWN)
    assert [pair async for pair in log.records(1, until_tail=True)] == [(1, b"a"), (4, b"b")]


# --- the tail -------------------------------------------------------------------------------------


async def test_the_tail_is_told_when_everything_before_it_was_taken(client: LogClient) -> None:
    log = client.shard(1)
    for number in range(3):
        await log.append([b"%d" % number] * 2)
    told: list[object] = []
    async for item in log.follow(1, on_tail=told.append):
        told.append(item)
        if item.next_lsn == 7:
            await log.append(b"more")
        if item.next_lsn == 8:
            break
    assert [one if isinstance(one, int) else "item" for one in told] == ["item"] * 3 + [7, "item"]


async def test_a_follow_that_begins_at_the_tail_is_told_at_once(client: LogClient) -> None:
    log = client.shard(1)
    await log.append(b"a")
    told: list[int] = []

    class AtTail(Exception):
        pass

    def stop(lsn: int) -> None:
        told.append(lsn)
        raise AtTail

    with pytest.raises(AtTail):
        async for _ in log.follow(2, on_tail=stop):
            pass
    assert told == [2]


async def test_records_of_an_empty_log_and_of_a_part(client: LogClient) -> None:
    log = client.shard(1)
    assert [pair async for pair in log.records(1, until_tail=True)] == []
    await log.append([b"a", b"b", b"c"])
    assert [pair async for pair in log.records(2, until_lsn=2)] == [(2, b"b")]
    assert [item async for item in log.follow(3, until_lsn=2)] == []
