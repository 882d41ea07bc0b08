"""A mirror over real gRPC: it follows a log that lives, is read meanwhile, and opens where the call
that promotes it says, or stays what it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient, Shard
from logservice_wire.block import Block, encode_block
from logservice_wire.digest import Digester
from logservice_wire.errors import (
    BeyondTail,
    CorruptBlock,
    Fenced,
    InvalidArgument,
    LineageChanged,
    Outcome,
    ShardClosed,
    ShardRestoring,
    Truncated,
    UnknownOutcome,
    VerbRefused,
    WrongExpectedLsn,
)
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.archive.branching import Wanted, as_begun
from logservice.archive.restore_all import End, _check_end
from logservice.archive.restore_target import Target, give_up
from logservice.archive.restoring import Promise, Restorer
from logservice.cli.ctl.shard_show import _restoring
from logservice.ids import Lsn, ShardId
from logservice.nodehost.replica.entry_query import query_entries
from logservice.outcome import Applied
from logservice.rsm import commands
from logservice.rsm.state import TIMESTAMP_MAX
from tests.server.served import Served, typed

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN, PARENT = b"1" * 16, b"2" * 16
FLOOR = 3 << 32


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Served) -> AsyncIterator[LogClient]:
    async with LogClient([store.address for store in served.stores]) as running:
        yield running


def record(lsn: int) -> bytes:
    """What the source has at an LSN."""
    return b"record %d" % lsn


def piece(lsn: int, count: int) -> log_pb2.RestoredBlock:
    records = [record(one) for one in range(lsn, lsn + count)]
    return log_pb2.RestoredBlock(block=encode_block(records, lsn), append_time_us=lsn + 100)


def digest_of(base: int, end: int) -> bytes:
    """The source's."""
    digester = Digester(base, end)
    digester.add_block(
        base, Block.parse(encode_block([record(lsn) for lsn in range(base, end)], 1))
    )
    return digester.digest()


def begin(**more: Any) -> log_pb2.BeginRestoreRequest:
    given: dict[str, Any] = {
        "lineage": {"number": 3, "id": OWN},
        "parent": PARENT,
        "base_lsn": 11,
        "writer_epoch": 1,
        "next_timestamp": 1000,
        "mirror": True,
    }
    return log_pb2.BeginRestoreRequest(**{**given, **more})


async def bring(log: Shard, lsn: int, count: int) -> int:
    return await log.restore_blocks(
        log_pb2.RestoreBlocksRequest(lineage=OWN, first_lsn=lsn, blocks=[piece(lsn, count)])
    )


async def truncate(log: Shard, lsn: int, **more: Any) -> Any:
    request = log_pb2.RestoreBlocksRequest(
        **{"shard_id": log.shard_id, "lineage": OWN, "truncated_lsn": lsn, **more}
    )
    return await log.restore_blocks(request)


async def mirrored(served: Served, client: LogClient, count: int = 10) -> Shard:
    """A mirror from LSN 11 on that has `count` LSNs."""
    log = client.shard(await served.new_shard())
    answer = await log.begin_restore(begin())
    assert (answer.next_lsn, answer.duplicate) == (1, False)
    gap = log_pb2.RestoredBlock(gap=1, record_count=10, append_time_us=100)
    await log.restore_blocks(log_pb2.RestoreBlocksRequest(lineage=OWN, first_lsn=1, blocks=[gap]))
    if count:
        assert await bring(log, 11, count) == 11 + count
    return log


async def promoted(log: Shard, end: int, **more: Any) -> log_pb2.FinishRestoreResponse:
    while True:
        answer = await log.finish_restore(OWN, end_lsn=end, **more)
        if answer.open:
            return answer


async def test_a_mirror_follows_is_read_and_opens(served: Served, client: LogClient) -> None:
    log = await mirrored(served, client)
    found = (await log.status()).restoring
    assert (found.mirror, found.base_lsn, found.end_lsn, found.next_lsn) == (True, 11, 0, 21)
    assert found.digest == b""
    assert (await log.read(11)).records() == [record(lsn) for lsn in range(11, 21)]
    assert (await log.read(11, stale=True)).records()[0] == record(11)
    with pytest.raises(Truncated) as gone:
        await log.read(10)
    assert gone.value.number("first_lsn") == 11
    assert (await log.lsn_at_time(111)).lsn == 11
    assert (await log.digest(11, 21)).digest == digest_of(11, 21)
    # A reader who follows it goes on while it grows, and behind the promote.
    following = log.follow(20)
    assert (await anext(following)).records()[-1] == record(20)
    assert await bring(log, 21, 5) == 26
    assert (await anext(following)).first_lsn == 21
    answer = await promoted(log, 26, base_lsn=11, digest=digest_of(11, 26), next_timestamp=5_000)
    assert (answer.open, answer.verified_lsn) == (True, 26)
    status = await log.status()
    assert not status.HasField("restoring")
    assert (status.truncated_lsn, status.writer_epoch) == (10, FLOOR + 1)
    lineage = status.position.lineage
    assert (lineage.number, lineage.id, lineage.fork_lsn) == (3, OWN, 25)
    assert log.lineage is not None
    assert log.lineage.fork_lsn == 25
    with pytest.raises(Fenced):
        await log.append(b"nobody's")
    assert await log.acquire_writer("db", expected_epoch=FLOOR + 1) == FLOOR + 2
    assert await log.append(b"behind") == 26
    assert (await anext(following)).first_lsn == 26
    assert (await log.allocate_timestamps()).start == 5_000
    await following.aclose()


async def test_every_replica_has_the_same(served: Served, client: LogClient) -> None:
    log = await mirrored(served, client)
    await truncate(log, 14)
    await promoted(log, 21, base_lsn=15, digest=digest_of(15, 21))
    shard = ShardId(log.shard_id)
    await log.connect()
    states = set()
    for store in served.stores:
        await store.host.read_index(shard, 5)
        rsm = store.host.replicas.running[shard].log_rsm
        assert rsm is not None
        states.add(rsm.save_snapshot())
        assert (rsm.state.truncated_lsn, rsm.state.restoring) == (14, None)
    assert len(states) == 1


async def test_a_mirror_is_not_changed(served: Served, client: LogClient) -> None:
    log = await mirrored(served, client)
    calls: list[Awaitable[Any]] = [
        log.append(b"x", timeout=30),
        log.truncate(12),
        log.acquire_writer("db", takeover=True, override=True),
        log.release_writer(epoch=FLOOR + 1, override=True),
        log.allocate_timestamps(),
    ]
    for call in calls:
        with pytest.raises(ShardRestoring) as caught:
            await call
        told = caught.value
        assert [told.number(name) for name in ("next", "end", "base")] == [21, 0, 11]
    replica = served.leader(log.shard_id).host.replicas.running[ShardId(log.shard_id)]
    with pytest.raises(ShardRestoring):
        await query_entries(replica, replica.log.first_index(), replica.applied, 1)


async def test_before_its_base_a_mirror_is_not_read(served: Served, client: LogClient) -> None:
    log = client.shard(await served.new_shard())
    await log.begin_restore(begin())
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: log.read(1),
        lambda: log.read(11),
        lambda: log.digest(1, 2, patience=1),
        lambda: log.lsn_at_time(1),
        lambda: log.set_hold("h", 11),
        lambda: log.finish_restore(OWN, end_lsn=1),
    ]
    for call in calls:
        with pytest.raises(ShardRestoring):
            await call()


async def test_inv_mirror_trunc_what_the_source_truncates_goes(
    served: Served, client: LogClient
) -> None:
    log = await mirrored(served, client)
    leader = served.leader(log.shard_id).log
    for wrong in (21, 2**64 - 1):
        with pytest.raises(BeyondTail) as caught:
            await truncate(log, wrong)
        assert caught.value.number("next_lsn") == 21
    with pytest.raises(LineageChanged):
        await truncate(log, 12, lineage=PARENT)
    log.accept_lineage()
    request = log_pb2.RestoreBlocksRequest(shard_id=log.shard_id, lineage=OWN, truncated_lsn=12)
    for _ in range(2):
        answer = await leader.RestoreBlocks(request)
        assert (answer.next_lsn, answer.truncated_lsn) == (21, 12)
        assert answer.position.first_lsn == 13
    assert (await log.status()).restoring.base_lsn == 13
    with pytest.raises(Truncated):
        await log.read(12)
    await log.set_hold("reader", 15)
    request.truncated_lsn = 18
    assert (await leader.RestoreBlocks(request)).truncated_lsn == 14
    await log.release_hold("reader")
    assert (await log.status()).restoring.base_lsn == 19
    # With blocks it comes behind them, and only when all of them were taken.
    request.blocks.append(piece(21, 4))
    request.first_lsn, request.truncated_lsn = 21, 23
    answer = await leader.RestoreBlocks(request)
    assert (answer.next_lsn, answer.truncated_lsn) == (25, 23)
    with pytest.raises(WrongExpectedLsn):
        await log.restore_blocks(request)
    request.first_lsn, request.truncated_lsn = 25, 29
    with pytest.raises(BeyondTail):
        await log.restore_blocks(request)
    assert (await log.status()).restoring.next_lsn == 25, "refused before a block was taken"


async def test_only_a_mirror_is_truncated_so(served: Served, client: LogClient) -> None:
    log = client.shard(await served.new_shard())
    with pytest.raises(LineageChanged):
        await truncate(log, 1)
    log.accept_lineage()
    await log.begin_restore(
        begin(mirror=False, base_lsn=1, end_lsn=9, digest=bytes(32), writer_epoch=0)
    )
    with pytest.raises(VerbRefused):
        await truncate(log, 1, first_lsn=1, blocks=[piece(1, 4)])
    assert (await log.status()).restoring.next_lsn == 1, "refused before a block was taken"
    assert await bring(log, 1, 4) == 5
    with pytest.raises(VerbRefused):
        await truncate(log, 1)


async def test_inv_mirror_1_another_digest_opens_nothing(served: Served, client: LogClient) -> None:
    log = await mirrored(served, client)
    for _ in range(2):
        with pytest.raises(CorruptBlock):
            await promoted(log, 21, base_lsn=11, digest=b"d" * 32)
        assert (await log.status()).restoring.mirror
    assert await bring(log, 21, 1) == 22
    await promoted(log, 22, base_lsn=11, digest=digest_of(11, 22))


async def test_inv_mirror_2_a_promote_that_names_another_range_is_asked_again(
    served: Served, client: LogClient
) -> None:
    log = await mirrored(served, client)
    for wrong in (
        {"end_lsn": 20},
        {"end_lsn": 22},
        {"end_lsn": 21, "base_lsn": 12, "digest": digest_of(12, 21)},
        {"end_lsn": 21, "base_lsn": 10},
    ):
        with pytest.raises(ShardRestoring) as caught:
            await log.finish_restore(OWN, **wrong)  # type: ignore[arg-type]
        told = caught.value
        assert [told.number(name) for name in ("next", "base")] == [21, 11]
    await truncate(log, 12)
    with pytest.raises(ShardRestoring) as caught:
        await log.finish_restore(OWN, end_lsn=21, base_lsn=11, digest=digest_of(11, 21))
    assert caught.value.number("base") == 13
    assert (await log.status()).restoring.mirror
    await promoted(log, 21, base_lsn=13, digest=digest_of(13, 21))


async def test_promotes_and_begins_that_are_none(served: Served, client: LogClient) -> None:
    log = await mirrored(served, client)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "end_lsn"),
        ({"base_lsn": 11}, "end_lsn"),
        ({"end_lsn": 21, "digest": b"short"}, "digest"),
        ({"end_lsn": 21, "digest": digest_of(11, 21)}, "base_lsn"),
        ({"end_lsn": 21, "next_timestamp": TIMESTAMP_MAX + 1}, "next_timestamp"),
        ({"end_lsn": 21, "digest_lsn": 22}, "digest_lsn"),
        ({"end_lsn": 21, "base_lsn": 11, "digest_lsn": 10}, "digest_lsn"),
        ({"end_lsn": 21, "digest_lsn": 21, "digest": digest_of(20, 21)}, "digest"),
    ]
    for named, field in wrong:
        with pytest.raises(InvalidArgument) as caught:
            await log.finish_restore(OWN, **named)
        assert caught.value.metadata["field"] == field
    other = client.shard(await served.new_shard())
    begins: list[tuple[dict[str, Any], str]] = [
        ({"end_lsn": 21}, "mirror"),
        ({"digest": bytes(32)}, "mirror"),
        ({"mirror": False}, "restore"),
        ({"mirror": False, "digest": bytes(32)}, "restore"),
        ({"writer_epoch": 0}, "restore"),
        ({"base_lsn": 0}, "restore"),
    ]
    for named, field in begins:
        with pytest.raises(InvalidArgument) as caught:
            await other.begin_restore(begin(**named))
        assert caught.value.metadata["field"] == field
    assert await other.append(b"it is an ordinary log") == 1
    third = client.shard(await served.new_shard())
    await third.begin_restore(
        begin(mirror=False, base_lsn=1, end_lsn=5, digest=digest_of(1, 5), writer_epoch=0)
    )
    await bring(third, 1, 4)
    for named in ({"end_lsn": 5}, {"base_lsn": 1}, {"digest": digest_of(1, 5)}, {"digest_lsn": 2}):
        with pytest.raises(InvalidArgument) as caught:
            await third.finish_restore(OWN, **named)
        assert caught.value.metadata["field"] == "end_lsn"
    assert (await third.finish_restore(OWN)).open


async def test_a_promote_reads_only_what_was_not_compared_before(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await mirrored(served, client)
    host = served.leader(log.shard_id).host
    read_log, lsns = host.read_log, []

    async def seen(shard: ShardId, lsn: Lsn, size: int, **more: Any) -> Any:
        lsns.append(int(lsn))
        return await read_log(shard, lsn, size, **more)

    monkeypatch.setattr(host, "read_log", seen)
    with pytest.raises(CorruptBlock):
        await promoted(log, 21, digest_lsn=18, digest=digest_of(11, 21))
    # Whoever compared what lies below need not know that it was truncated since.
    await truncate(log, 12)
    await promoted(log, 21, digest_lsn=18, digest=digest_of(18, 21), next_timestamp=2_000)
    assert lsns
    assert min(lsns) == 18
    assert (await log.status()).position.lineage.fork_lsn == 20


async def test_what_was_truncated_since_is_in_no_digest(served: Served, client: LogClient) -> None:
    """The base has come above the LSN that is named: it is named anew."""
    log = await mirrored(served, client)
    await truncate(log, 18)
    with pytest.raises(ShardRestoring) as caught:
        await log.finish_restore(OWN, end_lsn=21, digest_lsn=15, digest=digest_of(15, 21))
    assert caught.value.number("base") == 19
    await promoted(log, 21, digest_lsn=21)


async def test_a_forced_promote_takes_what_is_there(served: Served, client: LogClient) -> None:
    log = await mirrored(served, client)
    await promoted(log, 21)
    status = await log.status()
    assert status.next_timestamp == TIMESTAMP_MAX
    assert status.position.lineage.fork_lsn == 20
    # A repetition is told that it is done; another promote that it came too late.
    assert (await log.finish_restore(OWN, end_lsn=21)).open
    with pytest.raises(VerbRefused):
        await log.finish_restore(OWN, end_lsn=22)
    with pytest.raises(VerbRefused):
        await log.finish_restore(PARENT, end_lsn=21)


async def test_a_mirror_without_lsns_is_promoted_without_a_digest(
    served: Served, client: LogClient
) -> None:
    log = await mirrored(served, client, count=0)
    with pytest.raises(InvalidArgument) as caught:
        await log.finish_restore(OWN, end_lsn=11, base_lsn=11, digest=bytes(32))
    assert caught.value.metadata["field"] == "digest"
    await promoted(log, 11, base_lsn=11, next_timestamp=7)
    status = await log.status()
    assert (status.position.lineage.fork_lsn, status.next_timestamp) == (10, 1000)


async def test_what_comes_behind_the_promote_is_refused(served: Served, client: LogClient) -> None:
    log = await mirrored(served, client)
    await promoted(log, 21, base_lsn=11, digest=digest_of(11, 21))
    with pytest.raises(VerbRefused):
        await bring(log, 21, 1)
    with pytest.raises(VerbRefused):
        await truncate(log, 12)
    with pytest.raises(BeyondTail):
        await log.read(22)
    status = await log.status()
    assert (status.position.applied_lsn, status.truncated_lsn) == (20, 10)


async def test_two_mirrors_at_once_do_no_harm(served: Served, client: LogClient) -> None:
    """Two processes that know nothing of each other: each goes on where the log is."""
    log = await mirrored(served, client, count=0)
    refused = 0

    async def follow() -> None:
        nonlocal refused
        shard = client.shard(log.shard_id)
        lsn = 11
        while lsn < 61:
            try:
                lsn = await bring(shard, lsn, min(1 + lsn % 4, 61 - lsn))
            except WrongExpectedLsn as error:
                refused += 1
                lsn = error.number("next")
            if lsn % 3 == 0:
                await truncate(shard, lsn - 10 if lsn > 20 else 11)
            await asyncio.sleep(0)

    await asyncio.gather(follow(), follow())
    assert refused
    status = await log.status()
    base = status.restoring.base_lsn
    assert await asyncio.gather(
        *(promoted(log, 61, base_lsn=base, digest=digest_of(base, 61)) for _ in range(2))
    )
    assert (await log.read(base)).records() == [record(lsn) for lsn in range(base, 61)]


async def test_a_block_between_the_digest_and_the_entry(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await mirrored(served, client)
    host = served.leader(log.shard_id).host
    propose = host.propose

    async def late(shard: ShardId, data: bytes, limit_s: float) -> Applied:
        if isinstance(commands.decode(data), commands.EndRestore):
            monkeypatch.undo()
            await bring(log, 21, 1)
        return await propose(shard, data, limit_s)

    monkeypatch.setattr(host, "propose", late)
    with pytest.raises(ShardRestoring) as caught:
        await log.finish_restore(OWN, end_lsn=21, base_lsn=11, digest=digest_of(11, 21))
    assert (caught.value.number("next"), caught.value.outcome) == (22, Outcome.NOT_APPLIED)
    assert (await log.status()).restoring.mirror
    await promoted(log, 22, base_lsn=11, digest=digest_of(11, 22))


async def test_a_truncation_while_it_is_digested(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await mirrored(served, client)
    host = served.leader(log.shard_id).host
    read_log = host.read_log

    async def late(shard: ShardId, lsn: Lsn, size: int, *, restoring: bool = False) -> Any:
        monkeypatch.undo()
        await truncate(log, 15)
        return await read_log(shard, lsn, size, restoring=restoring)

    monkeypatch.setattr(host, "read_log", late)
    with pytest.raises(ShardRestoring):
        await log.finish_restore(OWN, end_lsn=21, base_lsn=11, digest=digest_of(11, 21))
    status = await log.status()
    assert (status.restoring.mirror, status.restoring.base_lsn) == (True, 16)


async def test_a_leader_that_goes_between_the_digest_and_the_entry(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one digests its own log, and opens it at the same place."""
    log = await mirrored(served, client)
    shard = ShardId(log.shard_id)
    old, heir = served.leader(shard), served.followers(shard)[0]
    propose = old.host.propose

    async def late(shard: ShardId, data: bytes, limit_s: float) -> Applied:
        if isinstance(commands.decode(data), commands.EndRestore):
            monkeypatch.undo()
            target = heir.host.replicas.running[shard].replica_id
            await old.host.router.transfer_leadership(shard, target, 20)
        return await propose(shard, data, limit_s)

    monkeypatch.setattr(old.host, "propose", late)
    request = log_pb2.FinishRestoreRequest(
        shard_id=shard, lineage=OWN, end_lsn=21, base_lsn=11, digest=digest_of(11, 21)
    )
    with pytest.raises(grpc.aio.AioRpcError):
        await old.log.FinishRestore(request, timeout=20)
    await promoted(log, 21, base_lsn=11, digest=digest_of(11, 21))
    assert served.leader(shard) is not old
    assert (await log.status()).position.lineage.fork_lsn == 20


async def test_what_is_remembered_of_a_digest_is_of_that_range(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promote that ran out of time is followed by one of another range."""
    log = await mirrored(served, client)
    monkeypatch.setattr(bounds, "DIGEST_CALL_S", 0.0)
    answer = await log.finish_restore(OWN, end_lsn=21, base_lsn=11, digest=digest_of(11, 21))
    assert (answer.open, answer.verified_lsn) == (False, 11)
    monkeypatch.undo()
    await bring(log, 21, 3)
    await promoted(log, 24, base_lsn=11, digest=digest_of(11, 24))


async def test_a_mirror_that_is_closed_is_read_and_does_not_open(
    served: Served, client: LogClient
) -> None:
    log = await mirrored(served, client)
    assert (await log.close_log()).end_lsn == 21
    assert len((await log.read(11)).records()) == 10
    with pytest.raises(ShardClosed):
        await promoted(log, 21)
    with pytest.raises(ShardClosed):
        await bring(log, 21, 1)


async def test_other_restores_know_a_mirror(served: Served, client: LogClient) -> None:
    """Its end is open: none of them goes on with it, or shows an end that it does not have."""
    log = await mirrored(served, client)
    status = await log.status()
    assert _restoring(status) == "mirror, LSNs 11 to 20"
    promise = Promise(11, 21, digest_of(11, 21), 3, PARENT, 1, 1000)
    with pytest.raises(InvalidArgument, match="mirror"):
        await Restorer(log, promise, Any).run()  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="mirror"):
        as_begun(Wanted(), status)
    with pytest.raises(InvalidArgument, match="mirror"):
        _check_end(log.shard_id, status, End(0))
    with pytest.raises(InvalidArgument, match="mirror"):
        await give_up(client, Target(log.shard_id, "m", status.restoring))


async def test_a_truncation_that_fails_behind_blocks_is_no_refusal(
    served: Served, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-EFFECT-1: the blocks were taken."""
    log = await mirrored(served, client)
    leader = served.leader(log.shard_id)

    async def broken(*_: object) -> Applied:
        raise VerbRefused("no truncation", why="open")

    monkeypatch.setattr(leader.host, "propose", broken)
    request = log_pb2.RestoreBlocksRequest(
        shard_id=log.shard_id, lineage=OWN, first_lsn=21, blocks=[piece(21, 1)], truncated_lsn=12
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await leader.log.RestoreBlocks(request)
    assert isinstance(typed(caught.value), UnknownOutcome)
    monkeypatch.undo()
    assert (await log.status()).restoring.next_lsn == 22


async def test_below_cluster_version_2_there_is_no_mirror() -> None:
    async with Served(1, cluster_version=1) as old:
        log, shard = old.stores[0].log, await old.new_shard()
        request = begin()
        request.shard_id = shard
        for call in (
            log.BeginRestore(request),
            log.RestoreBlocks(
                log_pb2.RestoreBlocksRequest(shard_id=shard, lineage=OWN, truncated_lsn=1)
            ),
            log.FinishRestore(log_pb2.FinishRestoreRequest(shard_id=shard, lineage=OWN, end_lsn=1)),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
