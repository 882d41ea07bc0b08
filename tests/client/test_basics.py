"""Every call of the client once, against a healthy cluster."""

from __future__ import annotations

import asyncio

import pytest
from logservice_client import Gap, GapReason, LogClient, Records
from logservice_wire.block import encode_block
from logservice_wire.bounds import RECORD_BYTES_MAX
from logservice_wire.errors import (
    BeyondTail,
    CorruptBlock,
    Fenced,
    HoldLost,
    HoldRefused,
    InvalidArgument,
    NotReady,
    ShardExists,
    ShardNotFound,
    StaleEpoch,
    StaleTruncate,
    TooLarge,
    Truncated,
    WrongExpectedLsn,
)
from logservice_wire.v1 import hakeeper_pb2, log_pb2

from tests.client.fake_server import FakeCluster, settled


async def test_append_and_read(client: LogClient) -> None:
    shard = client.shard(1)
    assert await shard.append(b"one") == 1
    assert await shard.append([b"two", b"", b"four"]) == 2
    assert await shard.append(bytearray(b"five")) == 5
    assert await shard.append_block(encode_block([b"six", b"seven"], 17)) == 6
    result = await shard.read(1)
    assert result.records() == [b"one", b"two", b"", b"four", b"five", b"six", b"seven"]
    assert (result.next_lsn, result.first_lsn, result.applied_lsn) == (8, 1, 7)
    assert [block.first_lsn for block in result.blocks] == [1, 2, 5, 6]
    assert result.blocks[-1].timestamp_us == 17


async def test_acks_tell_how_much_redundancy_is_left(
    client: LogClient, cluster: FakeCluster
) -> None:
    shard = client.shard(1)
    await shard.append(b"from a store that does not say")
    assert not shard.redundancy.known
    assert not shard.redundancy.degraded
    assert shard.redundancy.more_failures == 0
    for said, degraded, more in (((3, 3), False, 1), ((2, 3), True, 0), ((5, 5), False, 2)):
        cluster.redundancy = said
        await shard.append(b"a")
        assert shard.redundancy == said
        assert (shard.redundancy.degraded, shard.redundancy.more_failures) == (degraded, more)
    cluster.redundancy = (0, 0)
    await shard.append(b"a follower's store forwarded it")
    assert shard.redundancy == (5, 5), "what was known stays"


async def test_a_block_is_shown_from_the_lsn_asked_for(client: LogClient) -> None:
    shard = client.shard(1)
    await shard.append([b"a", b"b", b"c"])
    result = await shard.read(2)
    (block,) = result.blocks
    assert (block.first_lsn, block.record_count, block.skipped) == (2, 2, 1)
    assert block.records() == [b"b", b"c"]
    assert result.next_lsn == 4


async def test_reading_at_and_beyond_the_tail(client: LogClient) -> None:
    shard = client.shard(1)
    await shard.append([b"a", b"b"])
    result = await shard.read(3)
    assert (result.items, result.next_lsn, result.applied_lsn) == ((), 3, 2)
    with pytest.raises(BeyondTail) as caught:
        await shard.read(4)
    assert caught.value.number("next_lsn") == 3


async def test_max_bytes_lets_one_block_through(client: LogClient) -> None:
    shard = client.shard(1)
    for _ in range(3):
        await shard.append(bytes(1000))
    assert len((await shard.read(1, max_bytes=1)).items) == 1
    assert len((await shard.read(1, max_bytes=2200)).items) == 2


async def test_truncate_and_holds(client: LogClient) -> None:
    shard = client.shard(1)
    await shard.append([bytes(1)] * 10)
    await shard.set_hold("replica", 6)
    assert await shard.truncate(8) == 5
    assert await shard.truncate(5) == 5, "a repetition is no error"
    with pytest.raises(StaleTruncate) as stale:
        await shard.truncate(4)
    assert stale.value.number("current") == 5
    with pytest.raises(Truncated) as truncated:
        await shard.read(5)
    assert truncated.value.number("first_lsn") == 6
    with pytest.raises(HoldRefused):
        await shard.set_hold("late", 5)
    status = await shard.status()
    assert [(hold.name, hold.lsn) for hold in status.holds] == [("replica", 6)]
    await shard.release_hold("replica")
    assert await shard.truncate(8) == 8
    with pytest.raises(BeyondTail):
        await shard.truncate(11)


async def test_a_hold_with_a_time_to_live(client: LogClient, cluster: FakeCluster) -> None:
    shard = client.shard(1)
    await shard.append([bytes(1)] * 10)
    with pytest.raises(HoldLost) as lost:
        await shard.renew_hold("replica")
    assert (lost.value.metadata["name"], lost.value.number("first_lsn")) == ("replica", 1)
    await shard.set_hold("replica", 6, ttl=60)
    assert cluster.logs[1].ttls == {"replica": 60}
    assert await shard.renew_hold("replica") == 6
    async with shard.hold("job", 3) as held:
        assert cluster.logs[1].holds == {"replica": 6, "job": 3}
        assert cluster.logs[1].ttls["job"] == 60
        assert await shard.truncate(8) == 2
        await held.move(7)
        assert cluster.logs[1].holds == {"replica": 6, "job": 7}
        held.check()
    assert cluster.logs[1].holds == {"replica": 6}


async def test_expected_lsn(client: LogClient, cluster: FakeCluster) -> None:
    shard = client.shard(1)
    assert await shard.append(b"a", expected_lsn=1) == 1
    with pytest.raises(WrongExpectedLsn) as caught:
        await shard.append(b"b", expected_lsn=1)
    assert caught.value.number("next") == 2
    assert await shard.append(b"b", expected_lsn=2) == 2
    assert cluster.logs[1].sessions_opened == 1


async def test_writer_epoch(cluster: FakeCluster, client: LogClient) -> None:
    ours = client.shard(1)
    assert await ours.acquire_writer("ours") == 1
    assert await ours.append(b"a") == 1
    async with LogClient(cluster.endpoints) as other:
        theirs = other.shard(1)
        with pytest.raises(Fenced):
            await theirs.append(b"no epoch")
        with pytest.raises(StaleEpoch) as caught:
            await theirs.acquire_writer("theirs")
        assert caught.value.metadata["holder"] == "ours"
        assert await theirs.acquire_writer("theirs", takeover=True) == 2
        with pytest.raises(Fenced) as fenced:
            await ours.append(b"old epoch")
        assert fenced.value.metadata["holder"] == "theirs"
        with pytest.raises(Fenced):
            await ours.truncate(1)
        assert await theirs.append(b"b") == 2
        await theirs.release_writer()
        assert theirs.writer_epoch == 0


async def test_timestamps_and_ids(client: LogClient) -> None:
    first = await client.shard(1).allocate_timestamps(10)
    second = await client.shard(1).allocate_timestamps(1)
    assert (len(first), second.start) == (10, first.stop)
    assert await client.hakeeper.allocate_ids(5, key="tables") == range(1, 6)
    assert await client.hakeeper.allocate_ids(1, key="tables") == range(6, 7)


async def test_probe_and_status(client: LogClient) -> None:
    await client.shard(1).append(b"a")
    assert (await client.shard(1).connect()).applied_lsn == 1
    status = await client.shard(1).status()
    assert (status.position.first_lsn, status.position.applied_lsn) == (1, 1)


async def test_cluster_and_shards(client: LogClient, cluster: FakeCluster) -> None:
    state = await client.hakeeper.cluster_state()
    assert [store.client_address for store in state.stores] == cluster.endpoints
    assert await client.hakeeper.create_shard(name="second") == 2
    with pytest.raises(ShardExists):
        await client.hakeeper.create_shard(shard_id=2)
    assert (await client.hakeeper.shard_info(2)).shard_id == 2
    assert await client.shard(2).append(b"elsewhere") == 1
    with pytest.raises(ShardNotFound):
        await client.hakeeper.shard_info(9)


async def test_where_a_log_is_while_hakeeper_elects(
    client: LogClient, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every store may say that HAKeeper has no leader: the question is asked again until the
    caller's time is up, and not only once of each store.
    """
    answers = cluster.shard_info
    refusals = iter(range(3 * len(cluster.endpoints)))

    def electing(shard: int) -> hakeeper_pb2.ShardInfo:
        for _ in refusals:
            raise NotReady("HAKeeper has no leader")
        return answers(shard)

    monkeypatch.setattr(cluster, "shard_info", electing)
    assert (await client.hakeeper.shard_info(1, fresh=True, timeout=30)).shard_id == 1


async def test_an_unknown_shard_fails_at_once(client: LogClient) -> None:
    with pytest.raises(ShardNotFound):
        await client.shard(9).append(b"a")
    with pytest.raises(ShardNotFound):
        await client.shard(9).read(1)


async def test_gaps_are_typed(client: LogClient, cluster: FakeCluster) -> None:
    cluster.logs[1].gaps = True
    shard = client.shard(1)
    await shard.append(b"a")
    with pytest.raises(WrongExpectedLsn):
        await shard.append([b"x", b"y"], expected_lsn=9)
    await shard.append(b"b")
    result = await shard.read(1)
    assert [item.first_lsn for item in result.items] == [1, 2, 4]
    gap = result.items[1]
    assert isinstance(gap, Gap)
    assert (gap.record_count, gap.reason) == (2, GapReason.WRONG_EXPECTED_LSN)
    assert result.gaps == (gap,)
    assert result.records() == [b"a", b"b"]
    (partial, _) = (await shard.read(3)).items
    assert (partial.first_lsn, partial.record_count) == (3, 1)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (log_pb2.GAP_REASON_SEQUENCE, GapReason.SEQUENCE),
        (log_pb2.GAP_REASON_CORRUPT, GapReason.CORRUPT),
        (77, GapReason.UNKNOWN),
    ],
)
async def test_a_gap_of_any_reason_is_read_past(
    client: LogClient, cluster: FakeCluster, number: int, reason: GapReason
) -> None:
    """CORRUPT was once missing in the client's list, and every reader of such a log raised
    ValueError.
    """
    log = cluster.logs[1]
    shard = client.shard(1)
    await shard.append(b"a")
    log.put_gap(3, number)
    await shard.append(b"b")
    result = await shard.read(1)
    assert result.records() == [b"a", b"b"]
    (gap,) = result.gaps
    assert (gap.first_lsn, gap.record_count, gap.reason) == (2, 3, reason)
    items = [item async for item in shard.follow(1, until_tail=True)]
    assert [item.first_lsn for item in items] == [1, 2, 5]


async def test_follow_sees_what_comes(client: LogClient) -> None:
    shard = client.shard(1)
    await shard.append([b"a", b"b", b"c"])
    following = asyncio.create_task(settled(shard.follow(2), 2))
    await asyncio.sleep(0.02)
    await shard.append(b"d")
    first, second = await following
    assert (first.first_lsn, first.records()) == (2, [b"b", b"c"])
    assert (second.first_lsn, second.records()) == (4, [b"d"])


async def test_follow_stops(client: LogClient) -> None:
    shard = client.shard(1)
    assert [item async for item in shard.follow(1, until_tail=True)] == []
    await shard.append([b"a", b"b", b"c"])
    await shard.append([b"d"])
    items = [item async for item in shard.follow(1, until_lsn=2)]
    assert [item.records() for item in items if isinstance(item, Records)] == [[b"a", b"b"]]
    items = [item async for item in shard.follow(2, until_tail=True)]
    assert [item.first_lsn for item in items] == [2, 4]


@pytest.mark.parametrize("bad", ["text", [], [b"a", "text"], [1]])
async def test_what_is_not_bytes_is_refused(client: LogClient, bad: object) -> None:
    with pytest.raises(InvalidArgument):
        await client.shard(1).append(bad)  # type: ignore[arg-type]


async def test_limits_are_checked_before_anything_is_sent(
    client: LogClient, cluster: FakeCluster
) -> None:
    shard = client.shard(1)
    for size in (RECORD_BYTES_MAX + 1, 2 * RECORD_BYTES_MAX):
        with pytest.raises(TooLarge):
            await shard.append(bytes(size))
    with pytest.raises(TooLarge):
        await shard.append([bytes(RECORD_BYTES_MAX // 2)] * 3)
    with pytest.raises(TooLarge):
        await shard.append([b""] * 1_000_001)
    with pytest.raises(CorruptBlock):
        await shard.append_block(b"not a block" * 10)
    for lsn in (0, -1):
        with pytest.raises(InvalidArgument):
            await shard.append(b"a", expected_lsn=lsn)
    assert cluster.blocks_seen == 0
    assert await shard.append(bytes(RECORD_BYTES_MAX)) == 1


async def test_a_corrupt_block_is_refused_by_the_leader_and_the_stream_goes_on(
    client: LogClient,
) -> None:
    shard = client.shard(1)
    broken = bytearray(encode_block([b"abc"], 0))
    broken[-6] ^= 1
    with pytest.raises(CorruptBlock):
        await shard.append_block(bytes(broken))
    assert await shard.append(b"a") == 1


async def test_arguments_of_the_client() -> None:
    with pytest.raises(InvalidArgument):
        LogClient([])
    with pytest.raises(InvalidArgument):
        LogClient(" , ")
    client = LogClient("127.0.0.1:1, 127.0.0.1:2")
    with pytest.raises(InvalidArgument):
        client.shard(0)
    assert client.shard(3) is client.shard(3)
    await client.close()
