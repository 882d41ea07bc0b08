"""A log that comes back from its archive: the same LSNs, and nobody takes it for the old one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import Gap, LogClient, Records, Shard
from logservice_client.lineage import Lineage
from logservice_wire.block import Block, encode_block
from logservice_wire.digest import Digester
from logservice_wire.errors import (
    CorruptBlock,
    Fenced,
    InvalidArgument,
    LineageChanged,
    LogServiceError,
    Reason,
    ShardRestoring,
    Truncated,
    VerbRefused,
)
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.archive.archived_blocks import ArchivedBlocks
from logservice.archive.copying import Batch
from logservice.archive.folder import Folder
from logservice.archive.lag import Metrics
from logservice.archive.manifest import Manifest, mark
from logservice.archive.range_file import RangeWriter
from logservice.archive.restore_plan import Plan, make_plan
from logservice.archive.restoring import STEPS, Restorer
from logservice.archive.settings import ArchiveSection
from logservice.archive.shipping import Shipper
from logservice.ids import ShardId
from logservice.rsm.admission import ADMIT, Admission
from tests.server.served import Served, typed

pytestmark = pytest.mark.asyncio(loop_scope="module")

Told = dict[int, tuple[object, ...]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Served) -> AsyncIterator[LogClient]:
    async with LogClient([store.address for store in served.stores]) as running:
        yield running


class Killed(BaseException):
    """The process ends here."""


class Archive:
    """The archive of one log of the cluster."""

    def __init__(self, client: LogClient, shard: int, folder: Path) -> None:
        self.shard = client.shard(shard)
        self.files = Folder(folder)
        mark(self.files, "c")
        self.manifest = Manifest(self.files, shard)

    async def ship(self, **more: Any) -> None:
        settings = ArchiveSection(folder="-", **{"object_bytes": 4000, **more})
        shipper = Shipper(self.shard, "wal", "c", self.manifest, settings, Metrics())
        while await shipper.ship(to_tail=True):
            pass

    def plan(self, **more: Any) -> Plan:
        return make_plan(self.files, self.shard.shard_id, None, **more)

    def restorer(self, into: Shard, plan: Plan | None = None, **more: Any) -> Restorer:
        plan = plan or self.plan()
        return Restorer(into, plan.promise, ArchivedBlocks(self.files, plan), **more)


async def told(shard: Shard, from_lsn: int) -> Told:
    """What a reader is told of each LSN: the record, or why there is none; and when."""
    found: Told = {}
    async for item in shard.follow(from_lsn, until_tail=True):
        if isinstance(item, Gap):
            for lsn in range(item.first_lsn, item.next_lsn):
                found[lsn] = (item.reason, item.append_time_us)
        else:
            assert isinstance(item, Records)
            for lsn, record in enumerate(item.records(), item.first_lsn):
                found[lsn] = (record, item.timestamp_us, item.append_time_us)
    return found


async def written(
    served: Served,
    client: LogClient,
    shard: int,
    monkeypatch: pytest.MonkeyPatch | None = None,
) -> Shard:
    """A log with records, gaps, a writer, a truncated beginning, and timestamps given out: LSNs 11
    to 227, of which 221 to 225 are gaps.
    """
    log = client.shard(shard)
    await log.append([b"early %d" % number for number in range(10)])
    assert await log.acquire_writer("db") == 1
    for number in range(20):
        records = [b"%d-%d" % (number, at) * 20 for at in range(number + 1)]
        await log.append_block(encode_block(records, 77 + number))
    if monkeypatch is not None:
        await gaps(served, shard, monkeypatch)
        await log.append([b"behind", b""])
    await log.truncate(10)
    await log.allocate_timestamps(100)
    return log


async def gaps(served: Served, shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks that pass admission and are refused when they are applied."""
    log = served.leader(shard).log
    with monkeypatch.context() as patched:
        patched.setattr(Admission, "admit", lambda *_, **__: ADMIT)
        for count in (2, 3):
            block = encode_block([b"x"] * count, 5)
            request = log_pb2.AppendRequest(shard_id=shard, block=block, writer_epoch=99)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await log.Append(request)
            assert typed(caught.value).reason is Reason.FENCED


async def test_a_restored_log_is_the_same_and_goes_on(
    served: Served, client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G10. Elsewhere a restored log shipped nothing for long: here an append gets the next LSN, and
    the archive ships from there at once, not only when some old mark is passed.
    """
    shard = await served.new_shard()
    log = await written(served, client, shard, monkeypatch)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    before = await told(log, 11)
    plan = archive.plan()
    assert (plan.base_lsn, plan.end_lsn, plan.timed) == (11, 228, True)
    other = client.shard(await served.new_shard())
    assert await archive.restorer(other).run()
    assert await told(other, 11) == before
    assert str(await other.digest(11, 228)) == str(await log.digest(11, 228))
    with pytest.raises(Truncated) as truncated:
        await other.read(10)
    assert truncated.value.number("first_lsn") == 11
    status = await other.status()
    assert not status.HasField("restoring")
    assert (status.position.lineage.number, status.position.lineage.fork_lsn) == (1, 227)
    assert (status.writer_epoch, status.writer_holder) == (2**32 + 1, "")
    # The old writer is refused, also when it says nothing of a lineage.
    stranger = client.shard(other.shard_id)
    for epoch in (0, 1):
        stranger.writer_epoch = epoch
        with pytest.raises(Fenced):
            await stranger.append(b"old")
    assert await stranger.acquire_writer("db", expected_epoch=2**32 + 1) == 2**32 + 2
    assert await stranger.append(b"next") == 228
    assert (await stranger.allocate_timestamps()).start == 101 + bounds.LINEAGE_TIMESTAMP_STEP
    again = Archive(client, other.shard_id, tmp_path)
    await again.ship()
    rows = list(again.manifest.rows())
    assert (rows[0].missing, rows[0].end_lsn, rows[-1].end_lsn) == (True, 11, 229)
    assert {(row.lineage_number, row.lineage) for row in rows} == {
        (1, status.position.lineage.id.hex())
    }
    third = client.shard(await served.new_shard())
    assert await again.restorer(third).run()
    assert (await told(third, 11)).keys() == {*before, 228}
    assert (await third.status()).position.lineage.number == 2


async def test_every_replica_has_the_same(
    served: Served, client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await served.new_shard()
    log = await written(served, client, shard, monkeypatch)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    other = client.shard(await served.new_shard())
    await archive.restorer(other).run()
    for store in served.stores:
        found = await other.digest(11, 228, address=store.address)
        assert str(found) == str(await log.digest(11, 228))
    (lsn,) = {(await other.lsn_at_time(1)).lsn}
    assert lsn == 11
    newest = (await told(other, 11))[227][-1]
    assert isinstance(newest, int)
    assert (await other.lsn_at_time(newest)).lsn == (await log.lsn_at_time(newest)).lsn


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("times", [1, 2])
async def test_a_killed_restorer_goes_on(
    served: Served,
    client: LogClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    times: int,
) -> None:
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 2)
    monkeypatch.setattr(bounds, "RESTORE_BLOCK_BYTES", 500)
    shard = await served.new_shard()
    log = await written(served, client, shard, monkeypatch)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    await log.append(b"behind the restore", expected_lsn=228)
    other = client.shard(await served.new_shard())
    left = times

    def reached(name: str) -> None:
        nonlocal left
        left -= name == step
        if name == step and not left:
            raise Killed

    plan = archive.plan()
    if times == 1 or step == "blocks-taken":
        with pytest.raises(Killed):
            await archive.restorer(other, plan, reached=reached).run()
    await archive.ship()
    told_so_far: list[int] = []
    # Another process, and another handle of the log.
    other = client.shard(other.shard_id)
    again = archive.restorer(other, plan, progress=told_so_far.append)
    assert await again.run() is not (step == "open" and times == 1)
    if step == "blocks-taken":
        assert told_so_far[0] > 11, "what was there is not sent again"
    before = await told(log, 11)
    del before[228]
    assert await told(other, 11) == before
    assert not await archive.restorer(other, plan).run()


async def test_two_restorers_at_once_do_no_harm(
    served: Served, client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 3)
    shard = await served.new_shard()
    log = await written(served, client, shard, monkeypatch)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    made = await served.new_shard()
    plan = archive.plan()
    both = [archive.restorer(client.shard(made), plan) for _ in range(2)]
    found = await asyncio.gather(*(one.run() for one in both), return_exceptions=True)
    assert True in found
    assert set(found) <= {True, False}
    assert await told(client.shard(made), 11) == await told(log, 11)


async def test_leaders_change_while_it_is_restored(
    served: Served, client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 4)
    shard = await served.new_shard()
    log = await written(served, client, shard, monkeypatch)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    other = client.shard(await served.new_shard())
    handed: list[asyncio.Task[None]] = []

    def reached(name: str) -> None:
        if name in ("blocks-taken", "all-taken"):
            leader = served.leader(other.shard_id)
            target = served.followers(other.shard_id)[0].host.replicas.running[
                ShardId(other.shard_id)
            ]
            handed.append(
                asyncio.ensure_future(
                    leader.host.router.transfer_leadership(
                        ShardId(other.shard_id), target.replica_id, 20
                    )
                )
            )

    assert await archive.restorer(other, reached=reached).run()
    await asyncio.gather(*handed, return_exceptions=True)
    assert len(handed) > 5
    assert await told(other, 11) == await told(log, 11)


async def begun(client: LogClient, archive: Archive, made: int, plan: Plan | None = None) -> Shard:
    """A log whose restore has begun, and nothing more."""

    def reached(_: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        await archive.restorer(client.shard(made), plan, reached=reached).run()
    return client.shard(made)


async def test_g10_a_log_serves_nothing_until_it_is_verified(
    served: Served, client: LogClient, tmp_path: Path
) -> None:
    shard = await served.new_shard()
    await written(served, client, shard)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    other = await begun(client, archive, await served.new_shard())
    status = await other.status()
    assert (status.restoring.base_lsn, status.restoring.end_lsn) == (11, 221)
    calls: list[Any] = [
        other.append(b"x", timeout=30),
        other.read(1),
        other.read(1, stale=True),
        other.digest(1, 2, patience=1),
        other.lsn_at_time(1),
        other.truncate(1),
        other.set_hold("h", 1),
        other.acquire_writer("db", takeover=True, override=True),
        other.release_writer(epoch=2**32 + 1, override=True),
        other.allocate_timestamps(),
        anext(other.follow(1)),
    ]
    for call in calls:
        with pytest.raises(ShardRestoring) as caught:
            await call
        assert (caught.value.number("end"), caught.value.retryable) == (221, True)
    log = served.leader(other.shard_id).log
    for refused in (
        log.Append(log_pb2.AppendRequest(shard_id=other.shard_id, block=encode_block([b"x"], 1))),
        log.OpenSession(log_pb2.OpenSessionRequest(shard_id=other.shard_id)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as status_of:
            await refused
        assert typed(status_of.value).reason is Reason.SHARD_RESTORING
    with pytest.raises(ShardRestoring):
        await other.finish_restore(status.position.lineage.id)
    await other.connect()
    # The archive of a log that is restored waits: it has nothing that is verified.
    with pytest.raises(ShardRestoring):
        await Archive(client, other.shard_id, tmp_path).ship()


async def test_g10_what_is_not_as_promised_never_opens(
    served: Served, client: LogClient, tmp_path: Path
) -> None:
    """Also when whoever restores it says nothing of it: the store compares what its log has."""
    shard = await served.new_shard()
    await written(served, client, shard)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    plan = replace(archive.plan(), digest=b"another digest of thirty-two byt")
    other = client.shard(await served.new_shard())
    with pytest.raises(CorruptBlock, match="promised"):
        await archive.restorer(other, plan).run()
    assert (await other.status()).HasField("restoring")
    with pytest.raises(ShardRestoring):
        await other.read(11)
    with pytest.raises(CorruptBlock):
        await archive.restorer(client.shard(other.shard_id), plan).run()
    with pytest.raises(InvalidArgument, match="another restore"):
        await archive.restorer(client.shard(other.shard_id)).run()
    # It is given up by its deletion, which closes it first.
    assert (await other.close_log()).end_lsn == 221
    with pytest.raises(ShardRestoring):
        await other.read(11)


async def test_a_log_in_use_is_not_restored_into(
    served: Served, client: LogClient, tmp_path: Path
) -> None:
    shard = await served.new_shard()
    await written(served, client, shard)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    other = client.shard(await served.new_shard())
    await other.append(b"somebody was faster")
    with pytest.raises(VerbRefused):
        await archive.restorer(other).run()
    assert (await other.read(1)).records() == [b"somebody was faster"]
    with pytest.raises(InvalidArgument, match="another history"):
        third = client.shard(await served.new_shard())
        await archive.restorer(third, archive.plan(end_lsn=100)).run()
        await archive.restorer(third).run()


async def test_up_to_an_lsn_and_from_one(
    served: Served, client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await served.new_shard()
    log = await written(served, client, shard, monkeypatch)
    archive = Archive(client, shard, tmp_path)
    await archive.ship(object_bytes=1500)
    before = await told(log, 11)
    for base, end in ((11, 12), (11, 100), (57, 58), (100, 223), (223, 225), (227, 228)):
        other = client.shard(await served.new_shard())
        plan = archive.plan(from_lsn=base, end_lsn=end)
        assert await archive.restorer(other, plan).run()
        assert await told(other, base) == {lsn: before[lsn] for lsn in range(base, end)}
        status = await other.status()
        assert (status.truncated_lsn, status.position.applied_lsn) == (base - 1, end - 1)


async def test_lsns_below_the_base_are_taken_up_by_bounded_gaps(
    served: Served, client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await served.new_shard()
    log = await written(served, client, shard)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    monkeypatch.setattr(bounds, "RESTORED_GAP_LSNS_MAX", 3)
    other = client.shard(await served.new_shard())
    assert await archive.restorer(other).run()
    assert await told(other, 11) == await told(log, 11)


async def test_a_log_far_beyond_32_bits(served: Served, client: LogClient, tmp_path: Path) -> None:
    """Its LSNs are those of an archive whose source was truncated there."""
    high = 2**45
    shard = await served.new_shard()
    await client.shard(shard).append([b"one", b"two"])
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    source = archive.plan()
    digester = Digester(high, high + 2)
    digester.add_block(high, Block.parse(encode_block([b"one", b"two"], 1)))
    made = client.shard(await served.new_shard())
    plan = replace(source, base_lsn=high, end_lsn=high + 2, digest=digester.digest())
    plan = replace(plan, rows=(), first_time_us=9)
    below = ArchivedBlocks(archive.files, plan)

    class Faked:
        async def batches(self, lsn: int) -> AsyncGenerator[Batch]:
            async for batch in below.batches(lsn):
                yield batch
            block = log_pb2.RestoredBlock(block=encode_block([b"one", b"two"], 1), append_time_us=9)
            yield Batch(high, high + 2, len(block.block), [block])

    restorer = Restorer(made, plan.promise, Faked())
    assert await restorer.run()
    assert {lsn: row[0] for lsn, row in (await told(made, high)).items()} == {
        high: b"one",
        high + 1: b"two",
    }
    assert await made.append(b"three") == high + 2


async def test_times_that_are_not_archived_are_those_of_the_restore(
    served: Served, client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await served.new_shard()
    log = await written(served, client, shard)
    archive = Archive(client, shard, tmp_path)
    add = RangeWriter.add

    def without_time(writer: RangeWriter, item: Records | Gap) -> None:
        add(writer, replace(item, append_time_us=0))

    with monkeypatch.context() as patched:
        patched.setattr(RangeWriter, "add", without_time)
        await archive.ship(object_bytes=100)
        plan = archive.plan()
    assert not plan.timed
    other = client.shard(await served.new_shard())
    assert await archive.restorer(other, plan).run()
    before, after = await told(log, 11), await told(other, 11)
    assert {lsn: row[:2] for lsn, row in before.items()} == {
        lsn: row[:2] for lsn, row in after.items()
    }
    newest = before[220][-1]
    assert isinstance(newest, int)
    for row in after.values():
        assert isinstance(row[-1], int)
        assert row[-1] > newest


async def test_below_cluster_version_2_nothing_is_restored() -> None:
    async with Served(1, cluster_version=1) as old:
        shard, log = await old.new_shard(), old.stores[0].log
        for call in (
            log.BeginRestore(log_pb2.BeginRestoreRequest(shard_id=shard)),
            log.RestoreBlocks(log_pb2.RestoreBlocksRequest(shard_id=shard)),
            log.FinishRestore(log_pb2.FinishRestoreRequest(shard_id=shard, lineage=b"1" * 16)),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert typed(caught.value).metadata["needed"] == "2"


async def test_calls_that_are_none_are_refused(served: Served, client: LogClient) -> None:
    log = client.shard(await served.new_shard())
    one = log_pb2.RestoredBlock(block=encode_block([b"x"], 1))
    request = log_pb2.RestoreBlocksRequest
    for wrong in (
        request(lineage=b"1" * 16, first_lsn=1),
        request(lineage=b"1" * 16, first_lsn=1, blocks=[one] * (bounds.RESTORE_CALL_ITEMS_MAX + 1)),
        request(lineage=b"1" * 16, blocks=[one]),
        request(lineage=b"1" * 15, first_lsn=1, blocks=[one]),
        request(lineage=b"\0" * 16, first_lsn=1, blocks=[one]),
        request(lineage=b"1" * 16, first_lsn=1, blocks=[log_pb2.RestoredBlock(block=b"x")]),
        request(lineage=b"1" * 16, first_lsn=1, blocks=[log_pb2.RestoredBlock(gap=1)]),
        request(
            lineage=b"1" * 16,
            first_lsn=1,
            blocks=[log_pb2.RestoredBlock(block=b"x", gap=1, record_count=1)],
        ),
        request(
            lineage=b"1" * 16,
            first_lsn=1,
            blocks=[log_pb2.RestoredBlock(gap=1, record_count=2**31)],
        ),
        request(
            lineage=b"1" * 16,
            first_lsn=1,
            blocks=[log_pb2.RestoredBlock(block=one.block, append_time_us=-1)],
        ),
    ):
        with pytest.raises(LogServiceError) as caught:
            await log.restore_blocks(wrong)
        assert caught.value.status == "INVALID_ARGUMENT"
    with pytest.raises(VerbRefused):
        await log.restore_blocks(request(lineage=b"1" * 16, first_lsn=1, blocks=[one]))
    with pytest.raises(VerbRefused):
        await log.finish_restore(b"1" * 16)
    assert await log.append(b"it is an ordinary log") == 1


async def test_the_end_goes_on_call_by_call_and_is_forgotten_for_few(
    served: Served, client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RESTORE_VERIFICATIONS_MAX: what is forgotten is begun again."""
    monkeypatch.setattr(bounds, "DIGEST_CALL_S", 0.0)
    monkeypatch.setattr(bounds, "RESTORE_VERIFICATIONS_MAX", 1)
    shard = await served.new_shard()
    await written(served, client, shard)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()

    def reached(name: str) -> None:
        if name == "all-taken":
            raise Killed

    logs = [client.shard(await served.new_shard()) for _ in range(2)]
    for log in logs:
        with pytest.raises(Killed):
            await archive.restorer(log, reached=reached).run()
        assert log.lineage is not None
        answer = await log.finish_restore(log.lineage.id)
        assert (answer.open, answer.verified_lsn) == (False, 11)
    monkeypatch.undo()
    for log in logs:
        assert log.lineage is not None
        answer = await log.finish_restore(log.lineage.id)
        assert (answer.open, answer.verified_lsn) == (True, 221)


async def test_a_client_of_the_old_log_is_told(
    served: Served, client: LogClient, tmp_path: Path
) -> None:
    """One that has the log open, and finds the restored one under its id: in an empty cluster."""
    shard = await served.new_shard()
    await written(served, client, shard)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    made = await served.new_shard()
    assert await archive.restorer(client.shard(made)).run()
    async with LogClient([store.address for store in served.stores]) as old:
        log = old.shard(made)
        log._history.lineage = Lineage()
        with pytest.raises(LineageChanged) as caught:
            await log.read(11)
        assert (caught.value.number("number"), caught.value.number("fork_lsn")) == (1, 220)
        with pytest.raises(LineageChanged):
            await log.append(b"behind what it knows")
        assert log.accept_lineage() == log.lineage
        assert (await log.read(220)).next_lsn == 221
