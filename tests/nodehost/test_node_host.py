"""NodeHost: appends, reads, dying leaders, returning replicas, changes of the membership."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from logservice_wire.column_block import encode_columns
from logservice_wire.errors import (
    BeyondTail,
    DeadlineExceeded,
    Fenced,
    Halted,
    InvalidArgument,
    LogServiceError,
    NotLeader,
    NotReady,
    PermissionDenied,
    Reason,
    SequenceGap,
    ShardDeleted,
    ShardExists,
    ShardNotFound,
    StaleEpoch,
    Truncated,
)

from logservice.config_change import ChangeKind, ChangeStep, ConfigChange
from logservice.entry import Entry
from logservice.ids import Index, Lsn, ReplicaId, ShardId, StoreId
from logservice.logdb.format.update import Bootstrap
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.read.entry_read import EntryRead
from logservice.membership import Membership
from logservice.nodehost.replica import log_reading
from logservice.nodehost.routing import forwarding
from logservice.nodehost.routing.forwarding import ForwardedAppend, ForwardedCommand
from logservice.owner import Author
from logservice.raft.ready import Role
from logservice.rsm import commands
from logservice.versions import KnownVersion
from tests.nodehost.cluster import SHARD, Cluster, request, said
from tests.owners import APP, NONCE
from tests.waiting import eventually

ACQUIRE = commands.AcquireWriter(APP, False, holder="db-1", expected_epoch=0, takeover=False)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, stores=4)
    await cluster.up()
    yield cluster
    await cluster.down()


async def values(cluster: Cluster, number: int) -> list[tuple[int, bytes]]:
    host = cluster.host(number)
    slice_ = await host.read_log(SHARD, Lsn(1), 1 << 20)
    return [(run.first_lsn, said(run.block)) for run in slice_.runs if run.gap is None]


async def append_any(cluster: Cluster, block: bytes, **fields: int) -> int:
    """Append through whichever store is up, as a client would, until it is acked."""
    async with asyncio.timeout(60):
        while True:
            for store in cluster.stores.values():
                if store.host is None or store.host.replicas.info(SHARD) is None:
                    continue
                try:
                    applied = await store.host.append(SHARD, request(block=block, **fields), 10.0)
                except (DeadlineExceeded, ShardNotFound):
                    continue
                except LogServiceError as error:
                    if not error.retryable:
                        raise
                else:
                    return applied.lsn
            await asyncio.sleep(0.01)


async def test_appends_get_dense_lsns_and_every_replica_reads_them(cluster: Cluster) -> None:
    leader = await cluster.leader()
    host = cluster.host(leader)
    applied = await asyncio.gather(
        *(host.append(SHARD, request(2, b"%d" % n), 30.0) for n in range(100))
    )
    assert sorted(a.lsn for a in applied) == list(range(1, 201, 2))
    for number in (1, 2, 3):
        await cluster.host(number).read_index(SHARD, 30.0)
        slice_ = await cluster.host(number).read_log(SHARD, Lsn(1), 1 << 20)
        assert slice_.next_lsn == 201
        assert {said(run.block) for run in slice_.runs} == {b"%d" % n for n in range(100)}
        middle = await cluster.host(number).read_log(SHARD, Lsn(100), 1)
        assert [run.first_lsn for run in middle.runs] == [99], "the block that holds LSN 100"


async def test_a_follower_forwards(cluster: Cluster) -> None:
    leader = await cluster.leader()
    follower = 1 + leader % 3
    applied = await cluster.host(follower).append(SHARD, request(block=b"via follower"), 30.0)
    assert applied.lsn == 1
    command = commands.OpenSession(Author("app", StoreId(f"store-{follower}")), NONCE)
    session = await cluster.host(follower).propose(SHARD, commands.encode(command), 5.0)
    assert session.value > 1


async def test_a_wide_block_needs_cluster_version_2_also_when_a_store_forwards_it(
    cluster: Cluster,
) -> None:
    leader = await cluster.leader()
    block = encode_columns([b"a"], 1, keys=[b"k"])
    wide = replace(request(), block=block, record_count=1)
    host, sender = cluster.host(leader), cluster.host(1 + leader % 3)
    body = forwarding.encode_append(ForwardedAppend(SHARD, 30.0, wide))
    method = forwarding.APPEND.method
    host.cluster_version = KnownVersion(settled=True)
    with pytest.raises(NotReady) as refused:
        await host.append(SHARD, wide, 30.0)
    assert refused.value.metadata == {"cluster_version": "1", "needed": "2"}
    with pytest.raises(NotReady):
        await sender.transport.request(f"store-{leader}", method, body, 30.0)
    host.cluster_version.learn(2)
    assert (await host.append(SHARD, wide, 30.0)).lsn == 1
    await sender.transport.request(f"store-{leader}", method, body, 30.0)


@pytest.mark.parametrize(
    "command",
    [
        commands.Truncate(APP, Lsn(1), 0),
        commands.SetHold(APP, False, Lsn(1), "mine"),
        commands.ReleaseHold(APP, False, "mine"),
        commands.AcquireWriter(APP, False, 0, True, "me"),
        commands.ReleaseWriter(APP, False, 1),
        commands.AllocateTimestamps(1),
    ],
    ids=lambda command: type(command).__name__,
)
async def test_what_belongs_to_somebody_is_not_forwarded(
    cluster: Cluster, command: commands.Command
) -> None:
    """INV-FORWARD-1."""
    leader = await cluster.leader()
    follower = 1 + leader % 3
    await cluster.host(leader).append(SHARD, request(), 30.0)
    data = commands.encode(command)
    with pytest.raises(NotLeader) as refused:
        await cluster.host(follower).propose(SHARD, data, 5.0)
    store = f"store-{leader}"
    assert refused.value.metadata == {"leader": store, "address": f"{store}:client"}
    # A store may forward it all the same; then the leader does not take it.
    body = forwarding.encode_command(ForwardedCommand(SHARD, 5.0, data))
    with pytest.raises(PermissionDenied):
        await cluster.host(follower).transport.request(store, forwarding.PROPOSE.method, body, 5.0)
    assert cluster.host(leader).requests.refused[forwarding.PROPOSE.method, "not forwarded"] == 1


async def test_no_append_is_refused_while_leadership_is_handed_over(cluster: Cluster) -> None:
    """What waits at the old leader is the next leader's: its callers need not come again."""
    going_on, appended = True, 0

    async def caller(number: int) -> None:
        nonlocal appended
        while going_on:
            await cluster.host(number).append(SHARD, request(), 30.0)
            appended += 1

    async with asyncio.TaskGroup() as group:
        for number in (1, 2, 3) * 4:
            group.create_task(caller(number))
        for _ in range(10):
            before, leader = appended, await cluster.leader()
            target = ReplicaId(1 + leader % 3)
            await cluster.host(leader).router.transfer_leadership(SHARD, target, 30.0)
            await eventually(lambda before=before: appended > before + 20)
        going_on = False
    assert await cluster.leader()


async def test_a_membership_is_changed_by_the_leaders_own_store_only(cluster: Cluster) -> None:
    leader = await cluster.leader()
    other = cluster.host(1 + leader % 3)
    info = other.replicas.info(SHARD)
    assert info is not None
    change = ConfigChange((), info.membership.change_epoch)
    with pytest.raises(NotLeader):
        await other.router.change_membership(SHARD, change, 5.0)
    for gone in ("shard.change", "shard.transfer"):
        body = forwarding.encode_command(ForwardedCommand(SHARD, 5.0, bytes(8)))
        with pytest.raises(InvalidArgument):
            await other.transport.request(f"store-{leader}", gone, body, 5.0)


async def test_a_store_vouches_for_its_own_clients_only(cluster: Cluster) -> None:
    leader = await cluster.leader()
    follower = 1 + leader % 3
    lie = commands.OpenSession(Author("app", StoreId(f"store-{leader}")), NONCE)
    body = forwarding.encode_command(ForwardedCommand(SHARD, 5.0, commands.encode(lie)))
    with pytest.raises(PermissionDenied):
        await cluster.host(follower).transport.request(
            f"store-{leader}", forwarding.PROPOSE.method, body, 5.0
        )
    refused = cluster.host(leader).requests.refused
    assert refused[forwarding.PROPOSE.method, "vouched for by another store"] == 1


async def test_reading_at_the_edges(cluster: Cluster) -> None:
    host = cluster.host(await cluster.leader())
    assert (await host.read_log(SHARD, Lsn(1), 10)).runs == ()
    await host.append(SHARD, request(3, b"abc"), 30.0)
    assert (await host.read_log(SHARD, Lsn(4), 10)).runs == ()
    with pytest.raises(BeyondTail) as beyond:
        await host.read_log(SHARD, Lsn(5), 10)
    assert beyond.value.number("next_lsn") == 4
    with pytest.raises(InvalidArgument):
        await host.read_log(SHARD, Lsn(0), 10)
    with pytest.raises(ShardNotFound):
        await host.read_log(ShardId(9), Lsn(1), 10)
    await host.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(2), 0)), 30.0)
    with pytest.raises(Truncated) as truncated:
        await host.read_log(SHARD, Lsn(2), 10)
    assert truncated.value.number("first_lsn") == 3


async def test_the_leader_dies_and_nothing_acked_is_lost(cluster: Cluster) -> None:
    acked: dict[int, bytes] = {}
    for n in range(20):
        acked[await append_any(cluster, b"before %d" % n)] = b"before %d" % n
    dead = await cluster.leader()
    await cluster.stores[dead].down()
    for n in range(20):
        acked[await append_any(cluster, b"after %d" % n)] = b"after %d" % n
    await cluster.stores[dead].up()
    cluster.introduce()
    leader = await cluster.leader()
    last = max(acked)
    for number in (1, 2, 3):
        await eventually(
            lambda number=number: (  # type: ignore[misc]
                cluster.replica(number).log_bounds[1] >= last
            )
        )
        found = dict(await values(cluster, number))
        assert {lsn: found.get(lsn) for lsn in acked} == acked
    assert leader in (1, 2, 3)


async def test_all_stores_stop_and_start(cluster: Cluster) -> None:
    for n in range(30):
        await append_any(cluster, b"%d" % n)
    before = await values(cluster, await cluster.leader())
    for number in (1, 2, 3):
        await cluster.stores[number].down()
    for number in (1, 2, 3):
        await cluster.stores[number].up()
    cluster.introduce()
    leader = await cluster.leader()
    assert (await values(cluster, leader)) == before
    assert await append_any(cluster, b"next") == len(before) + 1


async def test_sessions_and_writer_epochs_through_the_leader(cluster: Cluster) -> None:
    host = cluster.host(await cluster.leader())
    session = (
        await host.propose(SHARD, commands.encode(commands.OpenSession(APP, NONCE)), 30.0)
    ).value
    first = await host.append(SHARD, request(block=b"a", session=session, sequence=1), 30.0)
    again = await host.append(SHARD, request(block=b"a", session=session, sequence=1), 30.0)
    assert (again.lsn, again.duplicate) == (first.lsn, True)
    with pytest.raises(SequenceGap):
        await host.append(SHARD, request(session=session, sequence=5), 30.0)
    pipelined = [
        host.submit_append(SHARD, request(session=session, sequence=n), 30.0) for n in (2, 3, 4, 3)
    ]
    outcomes = await asyncio.gather(*pipelined)
    assert [o.lsn for o in outcomes] == [2, 3, 4, 3]
    granted = await host.propose(SHARD, commands.encode(ACQUIRE), 30.0)
    assert granted.value == 1
    with pytest.raises(Fenced):
        await host.append(SHARD, request(), 30.0)
    assert (await host.append(SHARD, request(epoch=1), 30.0)).lsn == 5


async def test_a_block_behind_an_uncommitted_grant_waits_and_is_refused(cluster: Cluster) -> None:
    host = cluster.host(await cluster.leader())
    grant = asyncio.ensure_future(host.propose(SHARD, commands.encode(ACQUIRE), 30.0))
    await asyncio.sleep(0)
    late = host.submit_append(SHARD, request(block=b"late"), 30.0)
    await grant
    with pytest.raises(Fenced):
        await late
    assert host.replicas.running[SHARD].log_bounds == (1, 0), (
        "it never got an LSN, so there is no gap"
    )


async def test_a_minority_answers_in_time_and_heals(cluster: Cluster) -> None:
    leader = await cluster.leader()
    host = cluster.host(leader)
    for other in (1, 2, 3):
        if other != leader:
            cluster.network.cut(cluster.stores[leader].store_id, cluster.stores[other].store_id)
    with pytest.raises(LogServiceError) as caught:
        await host.append(SHARD, request(block=b"lost?"), 0.5)
    assert caught.value.reason in (Reason.DEADLINE, Reason.UNKNOWN_OUTCOME, Reason.NOT_LEADER)
    with pytest.raises(LogServiceError):
        await host.read_index(SHARD, 0.3)
    cluster.network.heal()
    await append_any(cluster, b"healed")
    await eventually(lambda: len({cluster.replica(n).log_bounds[1] for n in (1, 2, 3)}) == 1)
    assert (await values(cluster, 1)) == (await values(cluster, 2)) == (await values(cluster, 3))


async def test_replace_a_replica_by_a_joint_change(cluster: Cluster) -> None:
    for n in range(10):
        await append_any(cluster, b"%d" % n)
    leader = await cluster.leader()
    gone = 1 + leader % 3
    await cluster.stores[gone].down()
    host = cluster.host(leader)
    spare = cluster.stores[4]
    info = host.replicas.info(SHARD)
    assert info is not None
    learner = ChangeStep(ChangeKind.ADD_LEARNER, ReplicaId(40), spare.store_id, spare.incarnation)
    with pytest.raises(StaleEpoch):
        await host.router.change_membership(SHARD, ConfigChange((learner,), Index(999)), 30.0)
    membership = await host.router.change_membership(
        SHARD, ConfigChange((learner,), info.membership.change_epoch), 5.0
    )
    assert membership.learners == (40,)
    await cluster.host(4).replicas.start(SHARD, ReplicaId(40), membership, join=True)
    await eventually(lambda: cluster.replica(4).log_bounds[1] >= 10)
    swap = ConfigChange(
        (
            ChangeStep(ChangeKind.ADD_VOTER, ReplicaId(40), spare.store_id, spare.incarnation),
            ChangeStep(ChangeKind.REMOVE, ReplicaId(gone)),
        ),
        membership.change_epoch,
    )
    await host.router.change_membership(SHARD, swap, 30.0)

    def swapped() -> bool:
        now = host.replicas.info(SHARD)
        assert now is not None
        return not now.membership.joint and 40 in now.membership.voters

    await eventually(swapped)
    final = host.replicas.info(SHARD)
    assert final is not None
    assert gone not in final.membership.voters
    assert gone in final.membership.removed
    assert (await values(cluster, 4)) == (await values(cluster, leader))
    await append_any(cluster, b"with the new one")


async def test_leadership_transfer_is_awaited(cluster: Cluster) -> None:
    leader = await cluster.leader()
    target = 1 + leader % 3
    await cluster.host(leader).router.transfer_leadership(SHARD, ReplicaId(target), 30.0)
    assert await cluster.leader() == target
    with pytest.raises(InvalidArgument):
        await cluster.host(leader).router.transfer_leadership(SHARD, ReplicaId(77), 1.0)
    # A follower is asked to let a third replica lead: it answers that the leader has to be asked.
    third = 6 - leader - target
    with pytest.raises(NotLeader) as refused:
        await cluster.host(leader).router.transfer_leadership(SHARD, ReplicaId(third), 30.0)
    assert refused.value.metadata["leader"] == f"store-{target}"
    await cluster.host(target).router.transfer_leadership(SHARD, ReplicaId(third), 30.0)
    assert await cluster.leader() == third


async def test_a_transfer_that_comes_to_nothing_is_said_and_is_over(cluster: Cluster) -> None:
    leader = await cluster.leader()
    target = 1 + leader % 3
    await cluster.stores[target].down()
    with pytest.raises(DeadlineExceeded):
        await cluster.host(leader).router.transfer_leadership(SHARD, ReplicaId(target), 0.3)
    raft = cluster.replica(leader).raft
    await eventually(lambda: not raft.status().leader_transferee)
    await append_any(cluster, b"on")


async def test_installing_a_snapshot_compacts_and_keeps_what_is_above(cluster: Cluster) -> None:
    leader = await cluster.leader()
    host = cluster.host(leader)
    for n in range(10):
        await host.append(SHARD, request(block=b"%d" % n), 30.0)
    snapshot = host.replicas.running[SHARD].applied_snapshot()
    for n in range(10, 20):
        await host.append(SHARD, request(block=b"%d" % n), 30.0)
    with pytest.raises(InvalidArgument):
        await host.replicas.running[SHARD].install_snapshot(snapshot, Lsn(9))
    await host.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(12), 0)), 30.0)
    await host.replicas.running[SHARD].install_snapshot(snapshot, Lsn(12))
    info = host.replicas.info(SHARD)
    assert info is not None
    assert info.first_index == snapshot.index + 1
    assert [said(r.block) for r in (await host.read_log(SHARD, Lsn(13), 1000)).runs] == [
        b"%d" % n for n in range(12, 20)
    ]
    await cluster.stores[leader].down()
    await cluster.stores[leader].up()
    cluster.introduce()
    await append_any(cluster, b"20")
    await eventually(lambda: cluster.replica(leader).log_bounds[1] == 21)
    assert cluster.replica(leader).log_bounds[0] == 13


async def test_a_replica_that_missed_compacted_entries_catches_up_whole(cluster: Cluster) -> None:
    leader = await cluster.leader()
    behind = 1 + leader % 3
    await cluster.stores[behind].down()
    for n in range(10):
        await append_any(cluster, b"%d" % n)
    leader = await cluster.leader()
    host = cluster.host(leader)
    for number in (1, 2, 3):
        if number != behind:
            await cluster.host(number).read_index(SHARD, 30.0)
    await host.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(5), 0)), 30.0)
    # Every other replica compacts behind LSN 5: nobody can send those entries any more.
    snapshot = None
    for number in (1, 2, 3):
        if number == behind:
            continue
        store_host = cluster.host(number)
        replica = store_host.replicas.running[SHARD]
        index = replica.reader.index_of_lsn(Lsn(5))
        machine = type(replica.state_machine)()
        for entry in replica.log.entries(Index(2), Index(index + 1), 1 << 20):
            machine.update(entry)
        snapshot = (
            store_host.replicas.running[SHARD]
            .applied_snapshot()
            .__class__(
                index,
                replica.reader.term(index),
                replica.reader.next_lsn(index),
                replica.raft.membership,
                machine.save_snapshot(),
            )
        )
        await store_host.replicas.running[SHARD].install_snapshot(snapshot, Lsn(5))
    await cluster.stores[behind].up()
    cluster.introduce()
    await eventually(lambda: cluster.replica(behind).log_bounds[1] >= 10)
    assert cluster.replica(behind).log_bounds[0] == 6
    slice_ = await cluster.host(behind).read_log(SHARD, Lsn(6), 1000)
    assert [said(r.block) for r in slice_.runs] == [b"%d" % n for n in range(5, 10)]


async def test_starting_replicas(cluster: Cluster) -> None:
    """INV-HOST-1."""
    await cluster.leader()
    host = cluster.host(1)
    await host.replicas.start(SHARD, ReplicaId(1), cluster.membership(), join=False)
    with pytest.raises(ShardExists):
        await host.replicas.start(SHARD, ReplicaId(9), cluster.membership(), join=False)
    assert host.directories.bootstrap_of(SHARD) == Bootstrap(cluster.membership(), False)
    await host.replicas.remove(SHARD, ReplicaId(1))
    assert host.directories.replicas() == []
    with pytest.raises(InvalidArgument):
        await host.replicas.start(SHARD, ReplicaId(1), cluster.membership(), join=False)
    with pytest.raises(ShardNotFound):
        await host.append(SHARD, request(), 1.0)


async def test_a_slow_disk_moves_to_its_thread_and_everything_goes_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for store in cluster.stores.values():
        store.inline_max_s = -1.0
    await cluster.up()
    host = cluster.host(await cluster.leader())
    applied = await asyncio.gather(
        *(host.append(SHARD, request(block=b"%d" % n), 30.0) for n in range(200))
    )
    assert sorted(a.lsn for a in applied) == list(range(1, 201))
    await cluster.down()


class Rotten:
    """A core that finds its storage damaged in one of its methods."""

    def __init__(self, core: object, method: str) -> None:
        self.core = core
        self.method = method

    def __getattr__(self, name: str) -> object:
        if name == self.method:
            raise Halted("segment 1 at 64: checksum")
        return getattr(self.core, name)


@pytest.mark.parametrize("method", ["step", "tick", "persisted"])
async def test_damage_found_by_the_leader_halts_its_replica_and_not_its_store(
    cluster: Cluster, method: str
) -> None:
    """G6, whichever input makes the core read the damaged entries."""
    await append_any(cluster, b"before")
    number = await cluster.leader()
    host = cluster.host(number)
    host.replicas.running[SHARD].raft = Rotten(host.replicas.running[SHARD].raft, method)  # type: ignore[assignment]
    with contextlib.suppress(LogServiceError):
        await host.append(SHARD, request(block=b"unknown"), 1.0)
    await eventually(lambda: SHARD in host.halts.all())
    assert host.replicas.info(SHARD) is None
    assert not cluster.stores[number].fatal
    await append_any(cluster, b"after")


async def test_a_damaged_replica_is_not_started_however_often_it_is_asked_for(
    cluster: Cluster,
) -> None:
    host = cluster.host(2)
    await host.replicas.stop(SHARD)
    logdb = cluster.stores[2].logdb
    logdb.log(SHARD, ReplicaId(2)).blame("the log ends at 3, commit is 9")
    with pytest.raises(Halted):
        await host.replicas.start(SHARD, ReplicaId(2), Membership(), join=False)
    assert host.replicas.info(SHARD) is None
    assert SHARD in host.halts.all()
    await host.replicas.remove(SHARD, ReplicaId(2))
    assert host.halts.all() == {}, "the next replica of the shard here is another one"


async def test_nothing_starts_on_a_log_whose_tombstone_is_on_its_way(tmp_path: Path) -> None:
    """The two commands come in both orders, over a disk that answers later."""
    cluster = Cluster(tmp_path, stores=1)
    cluster.stores[1].inline_max_s = -1.0
    await cluster.up(voters=(1,))
    host = cluster.host(1)
    removing = asyncio.ensure_future(host.replicas.remove(SHARD, ReplicaId(1)))
    await asyncio.sleep(0)
    with pytest.raises(InvalidArgument):
        await host.replicas.start(SHARD, ReplicaId(1), cluster.membership((1,)), join=False)
    starting = asyncio.ensure_future(
        host.replicas.start(ShardId(2), ReplicaId(9), Membership(), join=True)
    )
    await asyncio.sleep(0)
    await asyncio.gather(removing, host.replicas.remove(ShardId(2), ReplicaId(9)))
    with pytest.raises(InvalidArgument):
        await starting
    assert host.replicas.infos() == []
    await cluster.down()


async def test_two_removals_at_once_write_one_tombstone(tmp_path: Path) -> None:
    """HAKeeper may ask under two ids (simulator, seed 40002); the first one may be cancelled."""
    cluster = Cluster(tmp_path, stores=1)
    cluster.stores[1].inline_max_s = -1.0
    await cluster.up(voters=(1,))
    host = cluster.host(1)
    first = asyncio.ensure_future(host.replicas.remove(SHARD, ReplicaId(1)))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(host.replicas.remove(SHARD, ReplicaId(1)))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert host.directories.replicas() == []
    with pytest.raises(InvalidArgument):
        await host.replicas.start(SHARD, ReplicaId(1), cluster.membership((1,)), join=False)
    await cluster.down()


async def test_commands_between_and_behind_blocks_cost_a_reader_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that gives timestamps has millions of commands; they must not stop the loop."""
    host = cluster.host(await cluster.leader())
    monkeypatch.setattr(log_reading, "_ENTRIES_AT_ONCE", 4)

    async def probes() -> None:
        probe = commands.encode(commands.Connect())
        await asyncio.gather(*(host.propose(SHARD, probe, 30.0) for _ in range(100)))

    read = 0
    reader = host.replicas.running[SHARD].reader
    entries = reader.entries

    def counted(low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        nonlocal read
        found = entries(low, high, max_bytes)
        read += len(found)
        return found

    await host.append(SHARD, request(records=2, block=b"one"), 30.0)
    await probes()
    await host.append(SHARD, request(block=b"two"), 30.0)
    await probes()
    monkeypatch.setattr(reader, "entries", counted)
    found = await host.read_log(SHARD, Lsn(2), 1 << 20)
    assert [(run.first_lsn, said(run.block)) for run in found.runs] == [(1, b"one"), (3, b"two")]
    assert found.next_lsn == 4
    assert read <= 8


async def test_a_damaged_replica_without_its_bootstrap_record_is_not_begun_anew(
    cluster: Cluster,
) -> None:
    """Simulator seed 306: the bootstrap record had rotted, and a fresh one went over the rest."""
    host = cluster.host(4)
    logdb = cluster.stores[4].logdb
    logdb.log(SHARD, ReplicaId(9)).blame("entries 1 to 34 are missing")
    with pytest.raises(Halted):
        await host.replicas.start(SHARD, ReplicaId(9), cluster.membership(), join=False)
    assert host.halts.all()[SHARD].reason == "entries 1 to 34 are missing"
    assert logdb.log(SHARD, ReplicaId(9)).bootstrap is None


async def test_what_is_on_the_disk_only_is_never_read_by_the_event_loop(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart nothing is in memory: applying, a follower's catch-up and a client's read all
    need the disk."""
    leader = await cluster.leader()
    behind = 1 + leader % 3
    await cluster.stores[behind].down()
    for n in range(40):
        await append_any(cluster, b"%d" % n * 500)
    others = [number for number in (1, 2, 3) if number != behind]
    for number in others:
        await cluster.stores[number].down()
    readers: list[tuple[str, int]] = []
    add_to = EntryRead.add_to

    def watched(self: EntryRead, found: list[tuple[int, Entry]], vfs: Vfs) -> None:
        readers.append((threading.current_thread().name, len(self.offsets)))
        add_to(self, found, vfs)

    monkeypatch.setattr(EntryRead, "add_to", watched)
    for number in others:
        await cluster.stores[number].up()
    cluster.introduce()
    await cluster.leader()
    await cluster.stores[behind].up()
    cluster.introduce()
    await eventually(lambda: cluster.replica(behind).log_bounds[1] == 40)
    found = await values(cluster, await cluster.leader())
    assert [block for _, block in found] == [b"%d" % n * 500 for n in range(40)]
    assert sum(entries for _, entries in readers) >= 120, "applied twice, sent, and read"
    assert {name.split("_")[0] for name, _ in readers} == {"reads"}


async def test_inv_host_4_no_replica_of_a_deleted_log_begins(tmp_path: Path) -> None:
    """INV-HOST-4: neither the one that was removed, nor one under another id, nor one that was
    being started when the word came; a restart changes nothing about it.
    """
    cluster = Cluster(tmp_path, stores=1)
    cluster.stores[1].inline_max_s = -1.0
    await cluster.up(voters=(1,))
    host = cluster.host(1)
    other = ShardId(2)
    starting = asyncio.ensure_future(
        host.replicas.start(other, ReplicaId(9), Membership(), join=True)
    )
    await asyncio.sleep(0)
    host.replicas.bury(other)
    with pytest.raises(ShardDeleted):
        await starting
    assert host.replicas.info(other) is None
    await host.replicas.remove(other, ReplicaId(9))
    host.replicas.bury(SHARD)
    await host.replicas.remove(SHARD, ReplicaId(1))
    for replica in (1, 9):
        with pytest.raises(ShardDeleted):
            await host.replicas.start(SHARD, ReplicaId(replica), Membership(), join=True)
    with pytest.raises(ShardDeleted):
        await host.append(SHARD, request(), 1.0)
    await cluster.stores[1].down()
    assert (await cluster.stores[1].up()).replicas.infos() == []
    await cluster.down()


async def test_a_stall_of_our_own_counts_against_nobody(cluster: Cluster) -> None:
    """INV-HOST-TICK: the loop of a leader and its followers stands still for ten election timeouts.
    Nobody campaigns, and the leader does not miss its quorum.
    """
    leader = await cluster.leader()
    await cluster.host(leader).append(SHARD, request(block=b"before"), 30.0)
    await eventually(lambda: all(cluster.replica(n).raft.leader for n in (1, 2, 3)))
    terms = [cluster.replica(number).raft.term for number in (1, 2, 3)]
    for _ in range(3):
        time.sleep(2.0)  # noqa: ASYNC251 - the loop is to stall
        await cluster.host(leader).append(SHARD, request(block=b"after"), 30.0)
    assert [cluster.replica(number).raft.term for number in (1, 2, 3)] == terms
    assert cluster.replica(leader).raft.role is Role.LEADER
