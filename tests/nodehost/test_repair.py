"""Repair in place: peers give damaged entries back; the replica runs only when its log is whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from logservice_wire.errors import Halted, InvalidArgument, LogServiceError

from logservice import bounds
from logservice.clock import SystemClock
from logservice.entry import Entry
from logservice.hard_state import HardState
from logservice.ids import NO_REPLICA, Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.invariants import InvariantViolation
from logservice.logdb.format.fault import Fault
from logservice.logdb.format.update import Update, merge
from logservice.logdb.log_db import LogDb
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.integrity import repair
from logservice.nodehost.integrity.repair import FETCH, Repairer
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.rsm import commands
from tests.logdb.helpers import World, all_entries, entries, installed
from tests.logdb.helpers import update as log_update
from tests.nodehost.cluster import SHARD, Cluster, log_machine, request, said
from tests.owners import APP
from tests.waiting import eventually

KEY = (ShardId(1), ReplicaId(1))


# --- log storage ----------------------------------------------------------------------------------


FAULT = Fault("seen", Index(11), Index(30))


def repair_update(new: tuple[Entry, ...], hard: HardState | None = None) -> Update:
    return Update(*KEY, hard_state=hard, entries=new, repair=FAULT)


def damaged_log(world: World, damaged_from: int = 11) -> ReplicaLog:
    """A log of entries 1..30 of term 1, committed through 25, faulty from `damaged_from` on."""
    db = world.open()
    db.commit([log_update(new=entries(1, 30), hard=(1, 1, 0))])
    db.commit([log_update(hard=(1, 1, 25), bootstrap=True)])
    log = db.log(*KEY)
    log.blame("seen", Index(damaged_from))
    db.record_faults()
    return log


def test_a_repair_survives_every_crash_on_its_way_and_is_over_only_at_its_end() -> None:
    """INV-REPAIR-1: a faulty replica does not run."""
    world = World()
    log = damaged_log(world)
    fault = log.fault
    assert fault is not None
    assert (fault.damaged_from, fault.acked_through) == (11, 30)
    for low, high in ((11, 20), (21, 29)):
        db = world.kill()
        assert db.log(*KEY).fault == fault
        for rebuilt in (world.copy(), world.without_index()):
            assert rebuilt.open().log(*KEY).fault == fault
        if low > 11:
            db.commit([repair_update(entries(11, 20))])
        db.commit([repair_update(entries(low, high))])
        assert db.log(*KEY).fault == fault
    db = world.kill()
    db.commit([repair_update(entries(11, 30))])
    assert db.log(*KEY).fault is None
    for reopened in (world.kill(), world.without_index().open()):
        log = reopened.log(*KEY)
        assert log.fault is None
        assert all_entries(log) == entries(1, 30)
        assert log.hard_state == HardState(Term(1), ReplicaId(1), Index(25))


def test_a_committed_entry_of_a_later_term_completes_it() -> None:
    """Entries that were acknowledged in term 1 and are not below that entry were never
    committed.
    """
    world = World()
    db = world.open()
    db.commit([log_update(new=entries(1, 30), hard=(1, 1, 0))])
    log = db.log(*KEY)
    log.blame("seen", Index(11))
    new = (*entries(11, 15), replace(entries(16, 16)[0], term=Term(3)))
    db.commit([repair_update(new, HardState(Term(3), NO_REPLICA, Index(16)))])
    assert log.fault is None
    assert log.last_index() == 16
    assert world.without_index().open().log(*KEY).last_index() == 16


def test_a_repair_reaches_what_was_on_its_way_when_the_damage_was_found() -> None:
    """Seed 967: a leader's group was on its way, and an entry in it was committed by the followers.
    The repair ended before that entry, and the store died of a commit index beyond the log's end.
    """
    world = World()
    db = world.open()
    db.commit([log_update(new=entries(1, 30), hard=(1, 1, 25))])
    group = db.begin([log_update(new=entries(31, 32), hard=(1, 1, 31))])
    log = db.log(*KEY)
    log.blame("seen", Index(11))
    db.write(group)
    db.finish(group)
    db.record_faults()
    fault = Fault("seen", Index(11), Index(32))
    for last in (30, 31):
        db.commit([replace(repair_update(entries(11, last)), repair=fault)])
        assert log.fault == fault
        db = world.kill()
        log = db.log(*KEY)
        assert log.fault == fault
    db.commit([replace(repair_update(entries(32, 32)), repair=fault)])
    assert log.fault is None
    assert (log.last_index(), log.hard_state.commit) == (32, 31)


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize("why", ["late", "found anew"])
@pytest.mark.parametrize(
    "brings",
    [log_update(new=entries(11, 20)), log_update(snapshot=20, reset=True)],
    ids=["entries", "a snapshot"],
)
def test_the_first_entries_of_a_repair_bring_the_mark_that_is_not_there_yet(
    brings: Update, why: str, *, index: bool
) -> None:
    """Repaired entries replace acknowledged ones, and after a crash only the mark says that more is
    missing.

    The mark waits for another group when the replica itself is in this one. So there are two ways
    for it to be missing. On a disk that was full when the damage was found, a late group of the
    replica may go along with the group that its repair begins with. Or more damage was found as a
    repair ended.
    """
    world = World()
    db = world.open()
    db.commit([log_update(new=entries(1, 30), hard=(1, 1, 15), bootstrap=True)])
    log = db.log(*KEY)
    if why == "late":
        log.blame("seen", Index(11))
        db.commit([log_update(hard=(2, 1, 15))])
    else:
        log.blame("seen", Index(21))
        db.record_faults()
        fault = log.fault
        group = db.begin([replace(repair_update(entries(21, 30)), repair=fault)])
        log.blame("seen again", Index(11))
        db.write(group)
        db.finish(group)
    fault = log.fault
    assert fault is not None
    assert (fault.damaged_from, fault.acked_through) == (11, 30)
    db.commit([replace(brings, repair=fault)])
    world = world if index else world.without_index()
    world.memory.kill()
    again = world.open().log(*KEY).fault
    assert again is not None, "entries that it had acknowledged are missing"
    assert (again.damaged_from, again.acked_through) == (11, 30)


def test_damage_found_during_the_repair_keeps_the_fault() -> None:
    world = World()
    log = damaged_log(world)
    db = world.kill()
    log = db.log(*KEY)
    log.blame("seen again", Index(5))
    db.commit([repair_update(entries(11, 30))])
    assert log.fault == Fault("seen", Index(5), Index(30))
    db.commit([replace(repair_update(entries(5, 30)), repair=log.fault)])
    assert log.fault is None


def test_what_is_no_repair_is_refused() -> None:
    log = damaged_log(world := World())
    db = world.kill()
    with pytest.raises(InvariantViolation, match="INV-PLAN-REPAIR"):
        db.commit([repair_update(entries(5, 30))])
    db = world.kill()
    with pytest.raises(InvariantViolation, match="INV-PLAN-REPAIR"):
        db.commit([Update(ShardId(1), ReplicaId(2), entries=entries(1, 3), repair=FAULT)])
    log = world.kill().log(*KEY)
    log.blame("an unreadable hole")
    assert log.fault is not None
    assert not log.fault.repairable
    assert merge(repair_update(entries(11, 12)), log_update(new=entries(13, 14))) is None


class LateHost:
    """A store on which a group of the replica is still on its way when its repair begins."""

    def __init__(self, db: LogDb, log: ReplicaLog, late: Update) -> None:
        self.log = log
        self.last = 31
        self.started = False
        self.identity = SimpleNamespace(store_id=StoreId("store-1"))
        self.clock = SystemClock()
        self.halts = self
        self.requests = self
        self._db = db
        self._late = [late]

    def repairable(self) -> list[ReplicaLog]:
        return [self.log] if self.log.fault is not None else []

    def stands_still(self, shard: ShardId, replica: ReplicaId, *, still: bool) -> None:
        assert not still

    def register(self, question: object, handler: object) -> None:
        assert question is repair.FETCH

    async def commit_repair(self, update: Update) -> None:
        while self._late:
            self._db.commit([self._late.pop()])
        self._db.commit([update])

    async def ask(
        self, target: str, question: object, wanted: repair.Fetch, timeout_s: float
    ) -> repair.Fetched:
        low = wanted.low
        before = entries(low - 1, low - 1)[0]
        rows: list[tuple[int, int, int, int, int, bytes]] = [
            (one.term, one.index, one.lsn, one.record_count, int(one.kind), bytes(one.payload))
            for one in entries(low, self.last)
        ]
        return repair.Fetched(b"", (before.term, before.next_lsn), rows)

    def start_repaired(self, shard: ShardId, replica: ReplicaId) -> None:
        self.started = True


def repairing(host: LateHost) -> Repairer:
    """A repairer for whom `host` is everything around it."""
    parts: Any = host
    return Repairer(
        parts, parts, host.identity, host.clock, lambda: [StoreId("store-2")], log_machine
    )


async def test_what_was_on_its_way_when_the_damage_was_found_is_written_first() -> None:
    """Short seed 3122: a vote in a later term was on its way to a slow disk; the repair named the
    term before that one, and the store died because its term fell.
    """
    world = World()
    db = world.open()
    db.commit([log_update(new=entries(1, 30), hard=(1, 1, 25), bootstrap=True)])
    log = db.log(*KEY)
    log.blame("seen", Index(11))
    vote = HardState(Term(2), ReplicaId(3), Index(25))
    host = LateHost(db, log, Update(*KEY, hard_state=vote))
    repairer = repairing(host)
    await repairer.run_once()
    assert host.started
    assert log.fault is None
    assert log.hard_state == HardState(Term(2), ReplicaId(3), Index(31))
    assert all_entries(log) == entries(1, 31)


@pytest.mark.parametrize("reset", [False, True], ids=["truncated", "leader's snapshot"])
async def test_what_was_truncated_when_the_damage_was_found_needs_no_repair(*, reset: bool) -> None:
    """A snapshot over all that the replica had acknowledged was on its way. Its peers had no entry
    behind it, and the replica waited for one: on an idle shard it waited until HAKeeper replaced
    it.
    """
    world = World()
    db = world.open()
    db.commit([log_update(new=entries(1, 30), hard=(1, 1, 30), bootstrap=True)])
    group = db.begin([log_update(snapshot=30, reset=reset)])
    log = db.log(*KEY)
    log.blame("seen", Index(11))
    db.write(group)
    db.finish(group)
    db.record_faults()
    assert log.fault == Fault("seen", Index(11), Index(30))
    host = LateHost(db, log, Update(*KEY))
    host.last = 30
    repairer = repairing(host)
    await repairer.run_once()
    assert host.started
    assert repairer.counts == {"repaired": 1}
    for reopened in (world.kill(), world.without_index().open()):
        log = reopened.log(*KEY)
        assert log.fault is None
        assert (log.first_index(), log.last_index(), log.hard_state.commit) == (31, 30, 30)


def test_what_follows_a_snapshot_that_was_on_its_way_is_repaired() -> None:
    world = World()
    db = world.open()
    db.commit([log_update(new=entries(1, 30), hard=(1, 1, 30))])
    group = db.begin([log_update(new=entries(51, 55), hard=(1, 1, 50), snapshot=50, reset=True)])
    log = db.log(*KEY)
    log.blame("seen", Index(11))
    db.write(group)
    db.finish(group)
    fault = Fault("seen", Index(11), Index(55))
    assert log.fault == fault
    db.commit([Update(*KEY, repair=fault)])
    assert log.fault == fault
    db.commit([replace(repair_update(entries(51, 55)), repair=fault)])
    assert log.fault is None
    assert all_entries(log) == entries(51, 55)


@pytest.mark.parametrize("floor", [10, 29])
def test_an_empty_repair_repairs_nothing(floor: int) -> None:
    world = World()
    db = world.open()
    db.commit([log_update(new=entries(1, 30), hard=(1, 1, 29))])
    db.commit([log_update(snapshot=floor)])
    log = db.log(*KEY)
    log.blame("seen", Index(11))
    fault = log.fault
    db.commit([repair_update(())])
    assert log.fault == fault == FAULT


# --- a cluster ------------------------------------------------------------------------------------


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    await cluster.up()
    yield cluster
    await cluster.down()


def repairer(cluster: Cluster, number: int) -> Repairer:
    stores = [store.store_id for store in cluster.stores.values()]
    host = cluster.host(number)
    return Repairer(
        host.replicas, host.requests, host.identity, host.clock, lambda: stores, log_machine
    )


async def fill(cluster: Cluster, count: int) -> None:
    host = cluster.host(await cluster.leader())
    for number in range(count):
        await host.append(SHARD, request(block=b"record %3d" % number * 50), 30.0)


def flip(cluster: Cluster, number: int, what: bytes) -> None:
    """Flip a bit in the payload that holds `what`, in the files of a stopped store."""
    for path in sorted((cluster.stores[number].directory / "segments").iterdir()):
        data = bytearray(path.read_bytes())
        place = data.find(what)
        if place >= 0:
            data[place] ^= 0x10
            path.write_bytes(data)
            return
    raise AssertionError("it is nowhere")


async def restart_damaged(cluster: Cluster, number: int, what: bytes) -> list[Repairer]:
    await eventually(lambda: cluster.replica(number).log_bounds[1] >= 40)
    others = [n for n in cluster.stores if n != number]
    await cluster.stores[number].down()
    flip(cluster, number, what)
    await cluster.stores[number].up()
    cluster.introduce()
    repairers = [repairer(cluster, n) for n in others]
    return [repairer(cluster, number), *repairers]


async def test_flipped_bits_are_repaired_from_the_peers(cluster: Cluster) -> None:
    await fill(cluster, 40)
    number = 1 + await cluster.leader() % 3
    mine, *_ = await restart_damaged(cluster, number, b"record  17")
    host = cluster.host(number)
    await eventually(lambda: SHARD in host.halts.all())
    assert host.halts.repairing() == {SHARD}
    with pytest.raises(Halted):
        host.replicas.running[SHARD]
    await mine.run_once()
    assert mine.counts["repaired"] == 1
    assert host.halts.all() == {}
    await fill(cluster, 5)
    await eventually(lambda: host.replicas.running[SHARD].log_bounds[1] >= 45)
    found = await host.read_log(SHARD, Lsn(1), 1 << 20)
    assert [said(run.block)[:10] for run in found.runs[:40]] == [
        b"record %3d" % n for n in range(40)
    ]
    await cluster.stores[number].down()
    await cluster.stores[number].up()
    cluster.introduce()
    assert cluster.host(number).halts.all() == {}
    await eventually(lambda: cluster.replica(number).log_bounds[1] >= 45)


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("on_its_way", [False, True])
async def test_what_was_found_damaged_acknowledges_nothing_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, leads: bool, on_its_way: bool
) -> None:
    """Seed 7310848: garbage collection found a leader's log damaged, and before the leader's next
    tick an entry was committed with its help. Its repair reaches what it had acknowledged when the
    damage was found. So the repair took that entry away again, and the replica voted for a log
    without it.
    """
    host = cluster.host(await cluster.leader())
    for number in range(10):
        await host.append(SHARD, request(block=b"%d" % number), 30.0)
    leader = await cluster.leader()
    other, away = [number for number in cluster.stores if number != leader]
    # `other` may lack entries that were committed with the help of `away` alone.
    commit = cluster.replica(leader).raft.commit
    await eventually(lambda: cluster.replica(other).raft.commit >= commit)
    await cluster.stores[away].down()
    damaged = leader if leads else other
    replica = cluster.replica(damaged)
    tick = Replica.tick
    monkeypatch.setattr(
        Replica, "tick", lambda self, now_s: None if self is replica else tick(self, now_s)
    )
    logdb, log = replica.directory.logdb, replica.log
    faults: list[Fault | None] = []

    def found() -> None:
        logdb.fault_found((SHARD, replica.replica_id), "found by a test", Index(5))
        faults.append(log.fault)

    if on_its_way:
        finish = logdb.finish

        def found_before(group: CommitGroup) -> None:
            if not faults:
                found()
            finish(group)

        monkeypatch.setattr(logdb, "finish", found_before)
    else:
        found()
    with pytest.raises(LogServiceError):
        await cluster.host(leader).append(SHARD, request(block=b"new"), 2.0)
    fault = faults[0]
    assert fault is not None
    assert fault.repairable
    assert SHARD in cluster.host(damaged).halts.all()
    (alone,) = {leader, other} - {damaged}
    assert cluster.replica(alone).raft.commit <= fault.acked_through


async def test_two_of_three_are_repaired_from_the_third(cluster: Cluster) -> None:
    """Each replica has whole what is damaged in the other, but damaged replicas answer no
    request.
    """
    await fill(cluster, 40)
    for number in cluster.stores:
        await eventually(lambda n=number: cluster.replica(n).log_bounds[1] >= 40)  # type: ignore[misc]
    first, second = [n for n in cluster.stores if n != 2]
    for number in (first, second):
        await cluster.stores[number].down()
    flip(cluster, first, b"record  17")
    flip(cluster, second, b"record  23")
    for number in (first, second):
        await cluster.stores[number].up()
    cluster.introduce()
    repairers = [repairer(cluster, number) for number in cluster.stores]
    await eventually(lambda: all(cluster.host(n).halts.all() for n in (first, second)))
    for one in repairers:
        await one.run_once()
    assert [one.counts.get("repaired", 0) for one in repairers] == [1, 0, 1]
    await fill(cluster, 5)
    for number in cluster.stores:
        await eventually(lambda n=number: cluster.replica(n).log_bounds[1] >= 45)  # type: ignore[misc]
        found = await cluster.host(number).read_log(SHARD, Lsn(1), 1 << 20)
        assert [said(run.block)[:10] for run in found.runs[:40]] == [
            b"record %3d" % n for n in range(40)
        ]


async def test_a_repair_over_what_the_peers_compacted_takes_their_snapshot(
    cluster: Cluster,
) -> None:
    await fill(cluster, 40)
    leader = await cluster.leader()
    number = 1 + leader % 3
    snapshots = {}
    for other in {1, 2, 3} - {number}:
        await eventually(lambda o=other: cluster.replica(o).log_bounds[1] == 40)  # type: ignore[misc]
        snapshots[other] = cluster.replica(other).applied_snapshot()
    await fill(cluster, 10)
    await cluster.host(leader).propose(
        SHARD, commands.encode(commands.Truncate(APP, Lsn(45), 0)), 30.0
    )
    mine, *_ = await restart_damaged(cluster, number, b"record  17")
    for other, snapshot in snapshots.items():
        await cluster.host(other).read_index(SHARD, 30.0)
        await cluster.replica(other).install_snapshot(snapshot, Lsn(45))
    host = cluster.host(number)
    await eventually(lambda: SHARD in host.halts.all())
    await mine.run_once()
    assert (mine.counts["repaired"], mine.counts["snapshots"]) == (1, 1)
    await eventually(lambda: host.replicas.running[SHARD].log_bounds[1] == 50)
    found = await host.read_log(SHARD, Lsn(46), 1 << 20)
    assert [said(run.block)[:10] for run in found.runs] == [b"record %3d" % n for n in range(5, 10)]
    await cluster.stores[number].down()
    await cluster.stores[number].up()
    cluster.introduce()
    assert cluster.host(number).halts.all() == {}


async def test_without_peers_it_waits_and_is_reported_as_halted_in_the_end(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-REPAIR-3."""
    await fill(cluster, 40)
    number = 1 + await cluster.leader() % 3
    mine, *_ = await restart_damaged(cluster, number, b"record  17")
    host = cluster.host(number)
    await eventually(lambda: SHARD in host.halts.all())
    for other in {1, 2, 3} - {number}:
        await cluster.host(other).replicas.stop(SHARD)
    await mine.run_once()
    assert host.halts.repairing() == {SHARD}
    monkeypatch.setattr(bounds, "REPAIR_STALLED_S_MAX", 0.0)
    await mine.run_once()
    assert host.halts.repairing() == set()
    assert SHARD in host.halts.all()
    assert mine.counts["waited"] == 2


async def test_a_replica_that_is_removed_meanwhile_is_not_repaired(cluster: Cluster) -> None:
    await fill(cluster, 40)
    number = 1 + await cluster.leader() % 3
    mine, *_ = await restart_damaged(cluster, number, b"record  17")
    host = cluster.host(number)
    await eventually(lambda: SHARD in host.halts.all())
    under_way = asyncio.ensure_future(mine.run_once())
    await asyncio.sleep(0)
    await host.replicas.remove(SHARD, ReplicaId(number))
    await under_way
    assert host.replicas.infos() == []
    assert not cluster.stores[number].fatal


async def test_a_replica_that_is_removed_while_its_exports_go_is_not_repaired(
    cluster: Cluster,
) -> None:
    """A write behind the tombstone of the replica would end the store (INV-PLAN-REMOVED)."""
    await fill(cluster, 40)
    number = 1 + await cluster.leader() % 3
    mine, *_ = await restart_damaged(cluster, number, b"record  17")
    host = cluster.host(number)
    await eventually(lambda: SHARD in host.halts.all())
    asked: list[Index] = []

    async def removed_meanwhile(shard: ShardId, replica: ReplicaId, index: Index) -> None:
        asked.append(index)
        await host.replicas.remove(shard, replica)

    for directory in host.directories:
        directory.forget_exports = removed_meanwhile
    under_way = asyncio.ensure_future(mine.run_once())
    await eventually(lambda: under_way.done() or bool(cluster.stores[number].fatal))
    assert asked
    assert host.directories.removed(SHARD, ReplicaId(number))
    assert not cluster.stores[number].fatal


async def test_a_peer_gives_nothing_to_strangers_and_survives_garbage(cluster: Cluster) -> None:
    """INV-REPAIR-2."""
    await fill(cluster, 3)
    host, asker = cluster.host(1), cluster.host(2).identity
    served = repairer(cluster, 1)
    assert served.counts == {}
    good = FETCH.encode(repair.Fetch(SHARD, 2, 2))
    assert await host.on_request(asker, FETCH.method, good)
    for peer, body in (
        (replace(asker, incarnations=(Incarnation(9),)), good),
        (cluster.host(3).identity, good),
        (asker, b"\xff\x00"),
        (asker, FETCH.encode(repair.Fetch(SHARD, 7, 2))),
        (asker, FETCH.encode(repair.Fetch(SHARD, 2, 2**63))),
        (asker, FETCH.encode(repair.Fetch(99, 2, 2))),
    ):
        with pytest.raises(LogServiceError):
            await host.on_request(peer, FETCH.method, body)
    assert await host.on_request(asker, FETCH.method, good)


@pytest.mark.parametrize(
    "fetched",
    [
        repair.Fetched(b"", (1, 1), [(1, 40, 1, 1, 1, b"x")]),
        repair.Fetched(b"", (9, 9), []),
        repair.Fetched(b"no snapshot", (0, 0), []),
        repair.Fetched(b"", (1, 11), [(1, 11, 11, 1, 99, b"x")]),
        repair.Fetched(b"", (1, 11), [(1, 11, 10, 1, 2, b"x")]),
        repair.Fetched(b"", (1, 11), [(0, 11, 11, 1, 2, b"x")]),
        repair.Fetched(b"", (1, 11), [(2**62, 11, 11, 1, 2, b"x")]),
        repair.Fetched(b"", (1, 11), [(1, 11, 11, 2**32, 2, b"x")]),
        repair.Fetched(b"", (1, 11), [(1, 11, 11, -1, 2, b"x")]),
        repair.Fetched(b"", (1, 11), [(1, 11, 11, 1, 3, b"x")]),
        repair.Fetched(
            installed(40, 2**62, state=log_machine(SHARD).save_snapshot()).snapshot.encode(),
            (0, 0),
            [],
        ),
    ],
)
async def test_answers_that_do_not_fit_change_nothing(
    cluster: Cluster, fetched: repair.Fetched
) -> None:
    log = damaged_log(World())
    mine = repairer(cluster, 1)
    with pytest.raises((InvalidArgument, ValueError)):
        mine._update(log, FAULT, Index(11), (1, 11), fetched)


async def test_a_peer_that_does_not_answer_is_passed_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPAIR_REQUEST_TIMEOUT_S is made short: the other peer has everything."""
    monkeypatch.setattr(bounds, "REPAIR_REQUEST_TIMEOUT_S", 0.2)
    await fill(cluster, 40)
    number = 1 + await cluster.leader() % 3
    mine, *_ = await restart_damaged(cluster, number, b"record  17")
    host = cluster.host(number)
    await eventually(lambda: SHARD in host.halts.all())
    asked = 0

    async def hangs(peer: PeerIdentity, wanted: repair.Fetch) -> repair.Fetched:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()
        return repair.Fetched(b"", (0, 0), [])

    silent = min({1, 2, 3} - {number})
    cluster.host(silent).requests.register(FETCH, hangs)
    await mine.run_once()
    assert asked
    assert mine.counts["repaired"] == 1
    assert host.halts.all() == {}
