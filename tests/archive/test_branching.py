"""A log that begins as another one that lives, of this cluster or of another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from logservice_client import Gap, GapReason, LogClient, Records, Shard
from logservice_wire.block import Block, encode_block
from logservice_wire.errors import (
    CodecMissing,
    Fenced,
    InvalidArgument,
    LineageChanged,
    NotReady,
    ShardRestoring,
    Truncated,
)

from logservice import bounds
from logservice.archive.branching import Branch, Wanted, as_begun, held_branch
from logservice.archive.living_blocks import LivingBlocks, restored
from logservice.archive.restoring import STEPS, Restorer
from logservice.lineage import NO_LINEAGE
from tests.archive.test_restoring import Killed, told, written
from tests.server.served import Served
from tests.server.test_lineage import fork

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Served) -> AsyncIterator[LogClient]:
    async with LogClient([store.address for store in served.stores]) as running:
        yield running


async def branched(source: Shard, into: Shard, wanted: Wanted | None = None, **more: Any) -> bool:
    """What `logctl shard branch` does."""
    begun = as_begun(wanted or Wanted(), await into.status())
    async with held_branch(source, begun) as found:
        return await Restorer(into, found.promise, LivingBlocks(source, found.span), **more).run()


async def planned(source: Shard, wanted: Wanted) -> Branch:
    async with held_branch(source, wanted) as found:
        return found


async def blocks_of(shard: Shard, lsn: int) -> list[tuple[int, bytes]]:
    """The blocks behind `lsn`, byte for byte."""
    return [(one.first_lsn, bytes(one.block.data)) for one in (await shard.read(lsn)).blocks]


async def test_a_branch_is_the_same_and_both_go_on(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await served.new_shard()
    log = await written(served, client, shard, monkeypatch)
    before, blocks = await told(log, 11), await blocks_of(log, 11)
    other = client.shard(await served.new_shard())
    assert await branched(log, other)
    assert await told(other, 11) == before
    assert await blocks_of(other, 11) == blocks, "also which records share a block"
    assert str(await other.digest(11, 228)) == str(await log.digest(11, 228))
    with pytest.raises(Truncated):
        await other.read(10)
    status = await other.status()
    assert (status.position.lineage.number, status.position.lineage.fork_lsn) == (1, 227)
    assert (await log.status()).holds == []
    # The source is as it was; its writer is refused by the branch, and by the branch alone.
    assert await log.append(b"of the source", expected_lsn=228) == 228
    stranger = client.shard(other.shard_id)
    for epoch in (0, 1):
        stranger.writer_epoch = epoch
        with pytest.raises(Fenced):
            await stranger.append(b"old")
    assert await stranger.acquire_writer("db", expected_epoch=2**32 + 1) == 2**32 + 2
    assert await stranger.append(b"of the branch") == 228
    assert (await stranger.allocate_timestamps()).start == 101 + bounds.LINEAGE_TIMESTAMP_STEP
    with pytest.raises(InvalidArgument, match="another history"):
        await branched(log, other, Wanted(end_lsn=229))
    # A branch of the branch.
    third = client.shard(await served.new_shard())
    assert await branched(stranger, third)
    assert (await third.status()).position.lineage.number == 2
    assert await told(third, 11) == await told(stranger, 11)


@pytest.mark.parametrize(
    ("base", "end"), [(11, 12), (11, 100), (57, 58), (100, 223), (223, 225), (222, 224), (227, 228)]
)
async def test_up_to_an_lsn_and_from_one(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch, base: int, end: int
) -> None:
    """INV-BRANCH-1, where the range begins or ends within a block or within a gap."""
    shard = await served.new_shard()
    log = await written(served, client, shard, monkeypatch)
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 2)
    monkeypatch.setattr(bounds, "RESTORED_GAP_LSNS_MAX", 2)
    monkeypatch.setattr(bounds, "ARCHIVE_READ_BYTES", 1)
    before = await told(log, 11)
    other = client.shard(await served.new_shard())
    assert await branched(log, other, Wanted(base, end))
    assert await told(other, base) == {lsn: before[lsn] for lsn in range(base, end)}
    status = await other.status()
    assert (status.truncated_lsn, status.position.applied_lsn) == (base - 1, end - 1)


async def test_up_to_a_time(served: Served, client: LogClient) -> None:
    log = client.shard(await served.new_shard())
    for number in range(4):
        await log.append([b"%d" % number] * 3)
    times = [one.append_time_us for one in (await log.read(1)).blocks]
    other = client.shard(await served.new_shard())
    assert await branched(log, other, Wanted(point_us=times[1]))
    assert (await other.read(1)).records() == [b"0"] * 3 + [b"1"] * 3
    for point_us, why in ((times[0] - 1, "last wanted one is 0"), (times[3], "nothing younger")):
        with pytest.raises(InvalidArgument, match=why):
            await planned(log, Wanted(point_us=point_us))
    await log.truncate(6)
    with pytest.raises(InvalidArgument, match="truncated beyond"):
        await planned(log, Wanted(point_us=times[0] - 1))


@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_branch_goes_on(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """INV-BRANCH-2: the source grew meanwhile, and the branch ends where it was begun."""
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 2)
    log = await written(served, client, await served.new_shard(), monkeypatch)
    before = await told(log, 11)
    other = client.shard(await served.new_shard())

    def reached(name: str) -> None:
        if name == step:
            raise Killed

    with pytest.raises(Killed):
        await branched(log, other, reached=reached)
    await log.append(b"behind the branch", expected_lsn=228)
    told_so_far: list[int] = []
    other = client.shard(other.shard_id)
    assert await branched(log, other, progress=told_so_far.append) is not (step == "open")
    if step == "blocks-taken":
        assert told_so_far[0] > 11, "what was there is not sent again"
    assert await told(other, 11) == before
    assert not await branched(log, other)


async def test_what_the_source_truncated_meanwhile_is_refused(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is away for longer than its hold lives: nothing is passed over."""
    log = await written(served, client, await served.new_shard())
    other = client.shard(await served.new_shard())

    def reached(_: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        await branched(log, other, reached=reached)
    await log.truncate(50)
    with pytest.raises(InvalidArgument, match="LSNs 11 to 50 are truncated"):
        await branched(log, other)
    with pytest.raises(InvalidArgument, match="another restore"):
        await branched(log, other, Wanted(from_lsn=51))
    with pytest.raises(ShardRestoring):
        await other.read(51)
    # And under a reader, when somebody else released the hold.
    third = client.shard(await served.new_shard())
    monkeypatch.setattr(bounds, "ARCHIVE_READ_BYTES", 1)
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 1)
    async with held_branch(log, Wanted()) as found:
        blocks = LivingBlocks(log, found.span).batches(51)
        await anext(blocks)
        for hold in (await log.status()).holds:
            await log.release_hold(hold.name)
        await log.truncate(150)
        with pytest.raises(Truncated):
            async for _ in blocks:
                pass
    assert (await third.status()).position.applied_lsn == 0


async def test_a_source_that_is_continued_by_force_midway(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-BRANCH-2: nothing of the new history comes behind what is there of the old one, and who
    goes on goes by the digest that the branch was begun with.
    """
    log = await written(served, client, await served.new_shard())
    other = client.shard(await served.new_shard())
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 1)
    monkeypatch.setattr(bounds, "ARCHIVE_READ_BYTES", 1)
    reads = 0

    class Forked:
        async def read(self, lsn: int, **more: Any) -> Any:
            nonlocal reads
            reads += 1
            if reads == 4:
                await fork(served, log.shard_id)
            return await log.read(lsn, **more)

    source: Any = Forked()
    with pytest.raises(LineageChanged):
        async with held_branch(log, Wanted()) as found:
            await Restorer(other, found.promise, LivingBlocks(source, found.span)).run()
    status = await other.status()
    assert 11 < status.restoring.next_lsn < status.restoring.end_lsn == 221
    with pytest.raises(ShardRestoring):
        await other.read(11)
    # What the log may be afterwards: other records at some of those LSNs.
    monkeypatch.undo()
    twin = client.shard(await served.new_shard())
    await twin.append([b"early %d" % number for number in range(10)])
    await twin.append([b"other"] * 210)
    with pytest.raises(InvalidArgument, match="another restore has begun"):
        await branched(twin, other, Wanted(from_lsn=11))
    # Or the same ones, because the fork lies behind them.
    with pytest.raises(LineageChanged):
        await branched(log, other)
    log.accept_lineage()
    assert await branched(log, other)
    assert await told(other, 11) == await told(log, 11)
    status = await other.status()
    assert (status.position.lineage.number, status.lineage_parent) == (1, NO_LINEAGE)


async def test_the_hold_keeps_what_is_not_there_yet(served: Served, client: LogClient) -> None:
    log = await written(served, client, await served.new_shard())
    other = client.shard(await served.new_shard())
    before = await told(log, 11)
    async with held_branch(log, Wanted()) as found:
        [hold] = (await log.status()).holds
        assert (hold.lsn, hold.name[:7]) == (11, "branch-")
        await log.truncate(200)
        assert await Restorer(other, found.promise, LivingBlocks(log, found.span)).run()
    assert await told(other, 11) == before


async def test_ranges_that_are_not_there(served: Served, client: LogClient) -> None:
    log = await written(served, client, await served.new_shard())
    for wanted in (Wanted(end_lsn=222), Wanted(from_lsn=221), Wanted(50, 50), Wanted(end_lsn=11)):
        with pytest.raises(InvalidArgument, match="log has LSNs"):
            await planned(log, wanted)
    with pytest.raises(InvalidArgument, match="are truncated"):
        await planned(log, Wanted(from_lsn=10))
    empty = client.shard(await served.new_shard())
    with pytest.raises(InvalidArgument, match="log has LSNs"):
        await planned(empty, Wanted())
    assert (await log.status()).holds == []


async def test_leaders_change_on_both_sides(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 4)
    monkeypatch.setattr(bounds, "ARCHIVE_READ_BYTES", 200)
    log = await written(served, client, await served.new_shard(), monkeypatch)
    other = client.shard(await served.new_shard())
    handed: list[asyncio.Task[None]] = []

    def reached(name: str) -> None:
        if name == "blocks-taken":
            for shard in (log.shard_id, other.shard_id):
                target = served.followers(shard)[0].host.replicas.running[shard]
                router = served.leader(shard).host.router
                moving = router.transfer_leadership(shard, target.replica_id, 20)
                handed.append(asyncio.ensure_future(moving))

    assert await branched(log, other, reached=reached)
    await asyncio.gather(*handed, return_exceptions=True)
    assert len(handed) > 5
    assert await told(other, 11) == await told(log, 11)


async def test_another_cluster_and_a_closed_source(client: LogClient, served: Served) -> None:
    """A planned move: the source is closed first, so nothing that it acknowledged is missing."""
    log = await written(served, client, await served.new_shard())
    assert (await log.close_log()).end_lsn == 221
    async with Served(1) as second, LogClient([second.stores[0].address]) as there:
        copy = there.shard(await second.new_shard())
        assert await branched(log, copy)
        assert await told(copy, 11) == await told(log, 11)
        assert str(await copy.digest(11, 221)) == str(await log.digest(11, 221))
        await copy.acquire_writer("db", expected_epoch=(await copy.status()).writer_epoch)
        assert await copy.append(b"it goes on here") == 221


async def test_a_source_that_is_away_for_a_while(served: Served, client: LogClient) -> None:
    log = await written(served, client, await served.new_shard())
    other = client.shard(await served.new_shard())
    away = 2

    class Away:
        async def read(self, lsn: int, **more: Any) -> Any:
            nonlocal away
            away -= 1
            if away >= 0:
                raise NotReady("nobody is there")
            return await log.read(lsn, **more)

    source: Any = Away()
    async with held_branch(log, Wanted()) as found:
        assert await Restorer(other, found.promise, LivingBlocks(source, found.span)).run()
        assert away < 0
        away = 2
        with pytest.raises(NotReady):
            await anext(LivingBlocks(source, found.span, patience_s=0).batches(11))
    assert await told(other, 11) == await told(log, 11)


async def test_more_gaps_than_a_log_remembers_are_refused(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await written(served, client, await served.new_shard(), monkeypatch)
    assert len((await log.read(11)).gaps) == 2
    for most, fits in ((2, True), (1, False)):
        monkeypatch.setattr(bounds, "RESTORED_GAPS_MAX", most)
        other = client.shard(await served.new_shard())
        if fits:
            assert await branched(log, other)
            continue
        with pytest.raises(InvalidArgument, match="has 2 gaps, and a branch takes over 1"):
            await branched(log, other)
        assert not (await other.status()).HasField("restoring"), "nothing was begun"
        # Of a part nobody knows it before.
        with pytest.raises(InvalidArgument, match="more than 1 gaps up to LSN 223"):
            await branched(log, other, Wanted(end_lsn=227))
        assert (await other.status()).HasField("restoring")
        assert await branched(log, client.shard(await served.new_shard()), Wanted(end_lsn=223))


async def test_a_gap_of_an_unknown_reason_is_refused() -> None:
    with pytest.raises(CodecMissing, match="too new"):
        list(restored(Gap(5, 1, 1, GapReason.UNKNOWN)))
    block = Block.parse(encode_block([b"a", b"b", b"c"], 9))
    [(whole, count)] = restored(Records(5, 3, 1, block, 0, 7))
    assert (whole.block, whole.append_time_us, count) == (block.data, 7, 3)
    [(part, count)] = restored(Records(6, 1, 1, block, 1, 7))
    found = Block.parse(part.block)
    assert (found.records(), found.timestamp_us, count) == ([b"b"], 9, 1)
