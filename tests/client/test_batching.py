"""Natural batching: who shares a block with whom, and in which order."""

from __future__ import annotations

import asyncio

import logservice_client.appender as appender_module
import logservice_client.batch as batch_module
import logservice_client.shard as shard_module
import pytest
from logservice_client import LogClient, LogServiceError, Outcome
from logservice_client.appender import Appender
from logservice_client.batch import Batch, BatchQueue
from logservice_client.bounds import (
    FULL_BLOCK_BYTES,
    MERGE_SPAN_S,
    NATURAL_BLOCKS_INFLIGHT_MAX,
    OWN_TIMER_MAX_S,
)
from logservice_wire.block import Block, encode_block

from tests.client.fake_server import FakeCluster


def queue() -> BatchQueue:
    return BatchQueue(asyncio.get_running_loop())


async def test_many_callers_share_few_blocks_in_the_order_of_their_calls(
    client: LogClient, cluster: FakeCluster
) -> None:
    cluster.commit_delay_s = 0.002
    shard = client.shard(1)
    await shard.append(b"warm")
    lsns = await asyncio.gather(*(shard.append(b"%d" % number) for number in range(2000)))
    assert lsns == list(range(2, 2002))
    assert cluster.blocks_seen < 20
    assert (await shard.read(2)).records() == [b"%d" % number for number in range(2000)]


async def test_one_caller_waits_for_nobody(client: LogClient, cluster: FakeCluster) -> None:
    shard = client.shard(1)
    for number in range(10):
        assert await shard.append(b"x") == number + 1
    assert cluster.blocks_seen == 10


async def test_large_blocks_are_pipelined(client: LogClient, cluster: FakeCluster) -> None:
    cluster.commit_delay_s = 0.01
    shard = client.shard(1)
    blocks = [encode_block([bytes(100)] * 1000, number) for number in range(64)]
    lsns = await asyncio.gather(*(shard.append_block(block) for block in blocks))
    assert lsns == [1 + 1000 * number for number in range(64)]
    assert [run.block for run in cluster.logs[1].runs] == blocks


async def test_lists_stay_together(client: LogClient, cluster: FakeCluster) -> None:
    shard = client.shard(1)
    sizes = [3, 1, 7, 2]
    lsns = await asyncio.gather(*(shard.append([b"x"] * size) for size in sizes))
    assert lsns == [1, 4, 5, 12]


async def test_records_merge_until_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MERGE_BYTES_MAX", 10)
    monkeypatch.setattr(batch_module, "MERGE_RECORDS_MAX", 4)
    waiting = queue()
    for record in (b"12345", b"67890", b"1", b"", b"", b"", b"", b"x" * 50, b"y"):
        waiting.put_record(record, 0, 1.0)
    assert [batch.records for batch in waiting.pending] == [
        [b"12345", b"67890"],
        [b"1", b"", b"", b""],
        [b""],
        [b"x" * 50],
        [b"y"],
    ]
    assert waiting.waiting_bytes == 62
    assert waiting.waiting_records == 9


async def test_what_does_not_merge() -> None:
    waiting = queue()
    waiting.put_record(b"plain", 0, 1.0)
    waiting.put_records([b"exact"], 5, 0, 1.0, expected_lsn=7)
    waiting.put_record(b"behind", 0, 1.0)
    waiting.put_block(encode_block([b"ready"], 0), 1, 0, 1.0, expected_lsn=0)
    waiting.put_record(b"after", 0, 1.0)
    waiting.put_record(b"epoch", 1, 1.0)
    waiting.put_record(b"patient", 1, 9.0)
    waiting.put_record(b"hasty", 1, 5.0)
    assert [batch.records for batch in waiting.pending] == [
        [b"plain"],
        [b"exact"],
        [b"behind"],
        [],
        [b"after"],
        [b"epoch"],
        [b"patient", b"hasty"],
    ]


async def test_records_of_callers_that_went_away_are_left_out() -> None:
    waiting = queue()
    first = waiting.put_record(b"a", 0, 1.0)
    gone = waiting.put_records([b"b", b"c"], 2, 0, 1.0, expected_lsn=0)
    last = waiting.put_records([b"d", b"e"], 2, 0, 1.0, expected_lsn=0)
    gone.cancel()
    waiting.last_batch().abandoned += 1
    batch = waiting.pop()
    assert batch is not None
    assert Block.parse(batch.encode(5)).records() == [b"a", b"d", b"e"]
    batch.settle(10)
    assert (first.result(), last.result()) == (10, 11)
    assert (waiting.waiting_bytes, waiting.waiting_records) == (0, 0)


async def test_a_batch_of_nobody_is_dropped() -> None:
    waiting = queue()
    waiting.put_record(b"a", 0, 1.0).cancel()
    waiting.last_batch().abandoned += 1
    assert waiting.pop() is None


async def test_returned_batches_come_first_and_are_numbered_anew() -> None:
    waiting = queue()
    waiting.put_record(b"a", 0, 1.0)
    waiting.put_block(encode_block([b"b"], 0), 1, 0, 1.0, 0)
    batches = [waiting.pop(), waiting.pop()]
    waiting.put_record(b"c", 0, 1.0)
    sent = [batch for batch in batches if batch is not None]
    for number, batch in enumerate(sent, 1):
        batch.sequence, batch.attempts, batch.maybe_applied = number, 2, True
    waiting.put_back(sent)
    waiting.put_record(b"d", 0, 1.0)
    assert [batch.sequence for batch in waiting.pending] == [0, 0, 0]
    assert [batch.records for batch in waiting.pending] == [[b"a"], [], [b"c", b"d"]]
    assert not any(batch.maybe_applied for batch in waiting.pending)


async def test_a_batch_that_was_numbered_keeps_its_records() -> None:
    """INV-BATCH-1: nothing is merged into a batch that is on its way, or that came back."""
    waiting = queue()
    waiting.put_record(b"a", 0, 1.0)
    sent = waiting.pop()
    assert sent is not None
    sent.sequence = 1
    block = sent.encode(5)
    waiting.put_record(b"b", 0, 1.0)
    waiting.pop()
    waiting.put_back([sent])
    waiting.put_record(b"c", 0, 1.0)
    assert [batch.records for batch in waiting.pending] == [[b"a"], [b"c"]]
    assert sent.encode(6) == block


async def test_a_crowded_queue_makes_callers_wait(
    client: LogClient, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "WAITING_RECORDS_MAX", 10)
    cluster.commit_delay_s = 0.001
    shard = client.shard(1)
    lsns = await asyncio.gather(*(shard.append(b"%d" % number) for number in range(200)))
    assert sorted(lsns) == list(range(1, 201))
    assert max(run.record_count for run in cluster.logs[1].runs) <= 40


async def test_a_queue_is_crowded_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "WAITING_BYTES_MAX", 10)
    waiting = queue()
    waiting.put_record(b"x" * 9, 0, 1.0)
    assert not waiting.crowded
    waiting.put_record(b"y", 0, 1.0)
    assert waiting.crowded
    waiting.pop()
    assert not waiting.crowded


async def in_flight(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, size: int, count: int
) -> list[int]:
    """The largest number of blocks, and of their bytes, that were ever without an ack."""
    cluster.commit_delay_s = 0.02
    most = [0, 0]
    take = Appender._take

    def watched(self: Appender, epoch: int) -> list[Batch]:
        taken = take(self, epoch)
        most[0] = max(most[0], len(self._unsettled))
        most[1] = max(most[1], self._unsettled_bytes)
        return taken

    monkeypatch.setattr(Appender, "_take", watched)
    async with LogClient(cluster.endpoints) as client:
        shard = client.shard(1)
        blocks = [encode_block([bytes(size)], number) for number in range(count)]
        lsns = await asyncio.gather(*(shard.append_block(block) for block in blocks))
    assert sorted(lsns) == list(range(1, count + 1))
    return most


async def test_so_many_blocks_are_in_flight(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender_module, "BLOCKS_INFLIGHT_MAX", 5)
    assert (await in_flight(cluster, monkeypatch, FULL_BLOCK_BYTES, 20))[0] == 5


async def test_so_many_bytes_are_in_flight(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One block beyond the bound goes, too."""
    size = FULL_BLOCK_BYTES
    monkeypatch.setattr(appender_module, "BYTES_INFLIGHT_MAX", 2 * size)
    blocks, taken = await in_flight(cluster, monkeypatch, size, 20)
    assert blocks <= 3
    assert 2 * size <= taken <= 3 * size + 1000


async def test_small_blocks_merge_while_so_many_are_in_flight(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATURAL_BLOCKS_INFLIGHT_MAX: a third small block waits for an ack, and grows meanwhile."""
    most = 0
    take = Appender._take

    def watched(self: Appender, epoch: int) -> list[Batch]:
        nonlocal most
        taken = take(self, epoch)
        most = max(most, len(self._unsettled))
        return taken

    monkeypatch.setattr(Appender, "_take", watched)
    async with LogClient(cluster.endpoints) as client:
        shard = client.shard(1)
        await shard.append(b"x")
        cluster.commit_delay_s = 0.2
        waiting = []
        for _ in range(40):
            waiting.append(asyncio.create_task(shard.append(b"x")))
            await asyncio.sleep(0.001)
        await asyncio.gather(*waiting)
    assert most == NATURAL_BLOCKS_INFLIGHT_MAX
    assert cluster.blocks_seen < 40


async def test_two_shards_do_not_wait_for_each_other(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints) as client:
        await client.hakeeper.create_shard(shard_id=2)
        first, second = client.shard(1), client.shard(2)
        lsns = await asyncio.gather(first.append(b"a"), second.append(b"b"))
        assert tuple(lsns) == (1, 1)
        assert (await second.read(1)).records() == [b"b"]


# --- deadlines ----------------------------------------------------------------------------------


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Deadlines of callers who wait by a timer of their own."""
    found: list[float] = []
    timeout = asyncio.timeout

    def noted(delay_s: float | None) -> asyncio.Timeout:
        found.append(delay_s or 0.0)
        return timeout(delay_s)

    monkeypatch.setattr(shard_module.asyncio, "timeout", noted)
    return found


async def test_callers_who_may_wait_have_no_timers(
    client: LogClient, cluster: FakeCluster, timers: list[float]
) -> None:
    shard = client.shard(1)
    await shard.append(b"warm")
    timers.clear()
    await asyncio.gather(*(shard.append(b"x", timeout=OWN_TIMER_MAX_S) for _ in range(100)))
    assert timers == []


async def test_a_caller_in_a_hurry_has_a_timer_of_its_own(
    client: LogClient, cluster: FakeCluster, timers: list[float]
) -> None:
    shard = client.shard(1)
    await shard.append(b"warm")
    timers.clear()
    below = OWN_TIMER_MAX_S - 0.001
    longer = OWN_TIMER_MAX_S + MERGE_SPAN_S
    await asyncio.gather(
        shard.append(b"in no hurry", timeout=longer),
        shard.append(b"sooner than its block", timeout=OWN_TIMER_MAX_S),
        shard.append(b"in a hurry", timeout=below),
    )
    assert timers == [OWN_TIMER_MAX_S, below]


async def test_callers_without_timers_are_told_at_the_deadline_of_their_block(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_module, "OWN_TIMER_MAX_S", 0.2)
    cluster.leader = -1
    async with LogClient(cluster.endpoints) as client:
        shard = client.shard(1)
        waiting = [shard.append(b"x", timeout=0.2) for _ in range(3)]
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, LogServiceError)
            assert error.outcome is Outcome.NOT_APPLIED
        cluster.leader = 0
        assert await shard.append(b"y") == 1
