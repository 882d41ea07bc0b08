"""Tests of the checkers: each raises an alarm about what must never be, and about nothing else.

`make mutants` shows it for the checkers whose bug no other guard meets first. The others (queues,
disk room, LOG-LSN, truncation, a vote of a removed replica) meet their bug here, and so do two
checkers that once raised an alarm without a reason.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from logservice_wire.errors import Halted

from logservice import bounds
from logservice.entry import Entry, EntryKind
from logservice.hakeeper.commands.proposals import DirectoryReport, ReplicaReport
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import Operator, Repair, ShardState, StoreState
from logservice.ids import (
    HAKEEPER_SHARD,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.membership import Member, Membership
from logservice.raft.messages import Heartbeat, RequestVote, VoteResponse
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.state import Hold
from logservice.sim.checkers import ALL, snapshots
from logservice.sim.checkers.checker import Checker
from logservice.sim.checkers.drives import Drives
from logservice.sim.checkers.holds import HoldsStand
from logservice.sim.checkers.leaders import LeaderCompleteness
from logservice.sim.checkers.logs import LogLsn, LogMatching, StateMachineSafety
from logservice.sim.checkers.promises import Zombies
from logservice.sim.checkers.retention import Retained, _Kept, _Log
from logservice.sim.checkers.snapshots import Truncation
from logservice.sim.checkers.stores import DiskRoom, HAKeeperView, Queues
from logservice.sim.config import draw
from logservice.sim.oracle import Oracle
from logservice.sim.world import World as SimWorld
from tests.logdb.helpers import World, entries, entry, members, update

SHARD, ONE, TWO = ShardId(1), ReplicaId(1), ReplicaId(2)


class Watch:
    """One checker and its alarms."""

    def __init__(self, kind: type[Checker]) -> None:
        self.oracle = Oracle()
        self._said: list[str] = []
        self.checker: Any = kind(self.oracle, self._speak)

    def _speak(self, name: str, detail: str) -> None:
        assert name == self.checker.name
        self._said.append(detail)

    def said(self) -> list[str]:
        """The alarms since the last call."""
        found, self._said = self._said, []
        return found


def test_every_checker_has_a_name_of_its_own() -> None:
    assert len({kind.name for kind in ALL} - {""}) == len(ALL)


# --- queues ---------------------------------------------------------------------------------------


def busy(waiting: int = 0, booked: int = 0, uncommitted: int = 0, held: int = 0) -> Any:
    book = SimpleNamespace(count=booked, bytes=booked)
    raft = SimpleNamespace(uncommitted_bytes=uncommitted)
    replica = SimpleNamespace(shard=SHARD, intake=[None] * waiting, book=book, raft=raft)
    return SimpleNamespace(
        store_id="s1", replicas=lambda: [replica], process=SimpleNamespace(held=[None] * held)
    )


@pytest.mark.parametrize(
    ("most", "more"),
    [
        (
            busy(waiting=bounds.PENDING_PROPOSALS_MAX),
            busy(waiting=bounds.PENDING_PROPOSALS_MAX + 1),
        ),
        (busy(9, bounds.PENDING_PROPOSALS_MAX - 9), busy(9, bounds.PENDING_PROPOSALS_MAX - 8)),
        (busy(), busy(booked=-1)),
        (
            busy(uncommitted=2 * bounds.RAFT_UNCOMMITTED_BYTES_MAX),
            busy(uncommitted=2 * bounds.RAFT_UNCOMMITTED_BYTES_MAX + 1),
        ),
        (busy(held=100_000), busy(held=100_001)),
    ],
    ids=["intake", "intake and book", "a book that counts wrong", "uncommitted", "paused"],
)
def test_a_queue_beyond_its_bound(most: Any, more: Any) -> None:
    watch = Watch(Queues)
    watch.checker.sample([most])
    assert watch.said() == []
    watch.checker.sample([more])
    assert watch.said()


# --- disks ----------------------------------------------------------------------------------------


def disk_of(left: int, *, full: bool = True, calm: bool = False, room: int = 1) -> Any:
    config = SimpleNamespace(reserve_bytes=800, calm=calm)
    disk = SimpleNamespace(full=full, least_after_segment=left, left_bytes=5000)
    raft = SimpleNamespace(block_room=room)
    replica = SimpleNamespace(shard=SHARD, ready_to_lead=True, raft=raft)
    return SimpleNamespace(
        store_id="s1", world=SimpleNamespace(config=config), disk=disk, replicas=lambda: [replica]
    )


def test_the_last_bytes_of_a_full_disk() -> None:
    watch = Watch(DiskRoom)
    for fine in (disk_of(100), disk_of(0, full=False), disk_of(100, room=0)):
        watch.checker.sample([fine])
    assert watch.said() == []
    watch.checker.sample([disk_of(99)])
    assert watch.said()
    watch.checker.sample([disk_of(0, full=False, calm=True, room=0)])
    assert watch.said() == ["s1 refuses blocks of shard 1"]


# --- logs -----------------------------------------------------------------------------------------

STORE: Any = SimpleNamespace(store_id="s1")


def durable(world: World, *updates: Any) -> Any:
    """The parts of a store as a checker is given them after a commit."""
    db = world.open()
    for one in updates:
        db.commit([one])
    return SimpleNamespace(
        log=lambda shard, replica: db.log(shard, replica),
        host=SimpleNamespace(directories=SimpleNamespace(replicas=lambda: db.replicas())),
    )


def test_a_hole_in_the_lsns() -> None:
    watch = Watch(LogLsn)
    parts = durable(World(), update(1, 1, entries(1, 3)))
    watch.checker.finished(STORE, parts, None, [update(1, 1, entries(4, 5))])
    assert watch.said() == []
    wrong = (entry(4), entry(5, lsn=6), entry(6, lsn=7))
    watch.checker.finished(STORE, parts, None, [update(1, 1, wrong)])
    assert watch.said() == ["shard 1 on s1: index 5 has LSN 6, not 5"]
    watch.checker.finished(STORE, parts, None, [update(1, 1, [entry(4, lsn=9)])])
    assert watch.said(), "the first of a group, too"


def test_the_same_place_with_another_entry() -> None:
    watch = Watch(LogMatching)
    one = durable(World(), update(1, 1, entries(1, 3)))
    watch.checker.finished(STORE, one, None, [update(1, 1, entries(2, 3))])
    watch.checker.finished(STORE, one, None, [update(1, 2, entries(2, 3))])
    assert watch.said() == []
    watch.checker.finished(STORE, one, None, [update(1, 1, [entry(3, payload=b"another")])])
    assert len(watch.said()) == 1
    other = durable(World(), update(1, 1, [entry(1), entry(2, term=2), entry(3, term=2)]))
    watch.checker.finished(STORE, other, None, [update(1, 1, entries(3, 3))])
    assert "the entry before has term 2, elsewhere 1" in watch.said()[0]


def test_what_a_crash_left_is_durable_although_nobody_was_told() -> None:
    """Short seed 60172: all stores were killed before any fsync returned. After their restart they
    recovered and applied entries that nobody had called durable; what recovery finds is durable.
    """
    watch = Watch(LogMatching)
    machine: Any = None
    safety = StateMachineSafety(watch.oracle, lambda _, detail: watch._said.append(detail))
    safety.applied(STORE, SHARD, entry(1), machine)
    assert "durable nowhere" in watch.said()[0]
    parts = durable(World(), update(1, 1, entries(1, 4)))
    watch.checker.started(STORE, parts)
    for applied in entries(1, 4):
        safety.applied(STORE, SHARD, applied, machine)
    assert watch.said() == []
    assert watch.oracle.shard(SHARD).holders[3, 1] == {ONE}
    safety.applied(STORE, SHARD, entry(4, payload=b"another"), machine)
    assert watch.said(), "what was recovered counts: another entry in its place is wrong"


def test_a_leader_without_a_committed_entry() -> None:
    watch = Watch(LeaderCompleteness)
    db = World().open()
    db.commit([update(1, 1, entries(1, 3))])
    directory = SimpleNamespace(logdb=db)
    replica = SimpleNamespace(
        shard=SHARD, replica_id=ONE, directory=directory, raft=SimpleNamespace(last_index=3)
    )
    store = SimpleNamespace(store_id="s1", parts=object())
    oracle = watch.oracle.shard(SHARD)
    oracle.committed, oracle.committed_through = {3: 1}, 3
    watch.checker.sent(store, replica, Heartbeat(to=TWO, sender=ONE, term=Term(2)))
    assert watch.said() == []
    oracle.committed, oracle.committed_through = {4: 2}, 4
    watch.checker.sent(store, replica, Heartbeat(to=TWO, sender=ONE, term=Term(3)))
    assert "without the committed entry 4 of term 2" in watch.said()[0]


# --- truncation -----------------------------------------------------------------------------------


def install(watch: Watch, applied: int, snapshot: int, **more: Any) -> list[str]:
    replica = SimpleNamespace(replica_id=ONE, applied=applied)
    store = SimpleNamespace(store_id="s1", running=lambda shard: replica)
    parts = SimpleNamespace(log=lambda *_: SimpleNamespace(bootstrap=None))
    watch.checker.finished(store, parts, None, [update(1, 1, snapshot=snapshot, **more)])
    return watch.said()


def test_t1_an_install_above_what_was_truncated() -> None:
    watch = Watch(Truncation)
    watch.oracle.shard(SHARD).truncated_lsn = 20
    assert install(watch, applied=30, snapshot=20) == []
    (found,) = install(watch, applied=30, snapshot=21)
    assert found.startswith("T1")
    # The record of a truncation may name any LSN: nobody has applied one as high as that.
    assert install(watch, applied=30, snapshot=10, next_lsn=25)
    shard0 = [update(0, 1, snapshot=99)]
    watch.checker.finished(SimpleNamespace(store_id="s1"), None, None, shard0)
    assert watch.said() == [], "shard 0 has no records"


def test_t3_an_install_above_what_is_applied() -> None:
    watch = Watch(Truncation)
    watch.oracle.shard(SHARD).truncated_lsn = 20
    (found,) = install(watch, applied=9, snapshot=10)
    assert found.startswith("T3")
    assert install(watch, applied=9, snapshot=10, reset=True) == [], "received from the leader"


def readable(monkeypatch: pytest.MonkeyPatch, found: Any) -> Any:
    """A store whose log is read from LSN 6."""

    def read(replica: Any, first: Lsn, max_bytes: int, *, restoring: bool) -> Any:
        assert restoring, "also what is not verified yet has to be there"
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(snapshots, "read_log_here", read)
    replica = SimpleNamespace(shard=SHARD, log_rsm=LogRsm(), applied=9, first_lsn=Lsn(6))
    return SimpleNamespace(store_id="s1", parts=object(), up=True, replicas=lambda: [replica])


def test_t2_records_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def sample(truncated: int, found: Any) -> list[str]:
        watch = Watch(Truncation)
        watch.oracle.shard(SHARD).truncated_lsn = truncated
        watch.checker.sample([readable(monkeypatch, found)])
        return watch.said()

    whole = SimpleNamespace(runs=(1,), applied_lsn=9)
    assert sample(5, whole) == []
    assert "reads from LSN 6, truncated is 4" in sample(4, whole)[0]
    assert "empty at LSN 6" in sample(5, SimpleNamespace(runs=(), applied_lsn=9))[0]
    assert sample(5, SimpleNamespace(runs=(), applied_lsn=5)) == [], "there is nothing yet"
    assert sample(5, KeyError(6))
    assert sample(5, Halted("damaged")) == [], "it lies about nothing"


# --- who speaks -----------------------------------------------------------------------------------


def speaks(watch: Watch, incarnation: int, removed: Sequence[tuple[int, int]] = ()) -> list[str]:
    bound = Membership(voters=(ONE,), members=(Member(ONE, StoreId("s1"), Incarnation(7)),))
    logdb = SimpleNamespace(removed=lambda: set(removed))
    replica = SimpleNamespace(
        shard=SHARD,
        replica_id=ONE,
        incarnation=Incarnation(incarnation),
        raft=SimpleNamespace(membership=bound),
        directory=SimpleNamespace(logdb=logdb),
    )
    vote = VoteResponse(to=TWO, sender=ONE, term=Term(3))
    watch.checker.sent(STORE, replica, vote)
    return watch.said()


def test_no_vote_of_a_removed_replica_nor_of_an_emptied_disk() -> None:
    assert speaks(Watch(Zombies), 7) == []
    assert "a removed replica speaks" in speaks(Watch(Zombies), 7, [(1, 1)])[0]
    watch = Watch(Zombies)
    assert speaks(watch, 7) == []
    assert len(speaks(watch, 8)) == 2, "not the one it is bound to, nor the one that spoke before"


# --- what HAKeeper believes -----------------------------------------------------------------------


def believing(epoch: int = 0, applied: int = 0, truncated: int = 0, incarnation: int = 7) -> Any:
    """A store whose replica of shard 0 has this state of shard 1 and of store s1."""
    machine = HAKeeperRsm()
    shape = Membership(
        voters=members().voters, members=members().members, change_epoch=Index(epoch)
    )
    machine.state.shards[SHARD] = ShardState(SHARD, "wal", 3, 1, b"", shape.encode())
    report = ReplicaReport(
        SHARD,
        ONE,
        Incarnation(7),
        Index(epoch),
        b"",
        applied_index=Index(applied),
        truncated_lsn=Lsn(truncated),
    )
    machine.state.stores[StoreId("s1")] = StoreState(
        StoreId("s1"),
        "",
        "",
        "",
        (DirectoryReport(Incarnation(incarnation)),),
        1,
        1,
        1,
        1,
        1,
        1,
        replicas={SHARD: report},
    )
    raft = SimpleNamespace(membership=Membership())
    replica = SimpleNamespace(shard=ShardId(0), replica_id=ONE, raft=raft, state_machine=machine)
    return SimpleNamespace(store_id=StoreId("s1"), replicas=lambda: [replica])


def view(committed: int) -> Watch:
    watch = Watch(HAKeeperView)
    identity = SimpleNamespace(incarnations=(Incarnation(7),))
    parts = SimpleNamespace(host=SimpleNamespace(identity=identity))
    watch.checker.started(SimpleNamespace(store_id=StoreId("s1")), parts)
    oracle = watch.oracle.shard(SHARD)
    oracle.committed_through, oracle.truncated_lsn = committed, 4
    return watch


def test_an_epoch_is_old_enough_when_anybody_has_applied_it() -> None:
    """Short seed 98: a leader with a slow disk applies a change later than its followers, and their
    reports are true all the same.
    """
    watch = view(committed=40)
    watch.checker.sample([believing(epoch=40)])
    assert watch.said() == []
    watch.checker.sample([believing(epoch=41)])
    assert watch.said() == ["HAKeeper believes epoch 41 of shard 1; applied anywhere is 40"]


def test_reports_of_what_was_never_so() -> None:
    for claim in ({"applied": 41}, {"truncated": 5}, {"incarnation": 8}):
        watch = view(committed=40)
        watch.checker.sample([believing(applied=40, truncated=4)])
        assert watch.said() == []
        watch.checker.sample([believing(**claim)])
        assert len(watch.said()) == 1, claim


def test_another_membership_at_the_same_epoch() -> None:
    watch = view(committed=40)
    watch.checker.sample([believing(epoch=5)])
    other = Membership(voters=(ONE,), change_epoch=Index(5))
    replica = SimpleNamespace(
        shard=SHARD, replica_id=TWO, raft=SimpleNamespace(membership=other), state_machine=None
    )
    watch.checker.sample([SimpleNamespace(store_id="s2", replicas=lambda: [replica])])
    assert "shard 1 epoch 5" in watch.said()[0]


@pytest.mark.parametrize(("term", "seen"), [(2, 0), (3, 1)])
def test_only_an_election_of_a_new_term_disturbs_a_calm_world(term: int, seen: int) -> None:
    """Short seed 830285: the first election had two candidates. The slower one's request for votes
    left its store when the other had led for a tenth of a second.
    """
    config = next(found for seed in itertools.count(1) if (found := draw(seed)).calm)
    world = SimWorld(config)
    world._started = True
    world.checks = cast(Any, SimpleNamespace(sent=lambda *_: None))
    world.oracle.shard(ShardId(1)).leaders[2] = ReplicaId(1026)
    transport = cast(Any, SimpleNamespace(identity=SimpleNamespace(store_id=StoreId("store-1"))))
    message = RequestVote(
        to=ReplicaId(1024),
        sender=ReplicaId(1025),
        term=Term(term),
        last_index=Index(1),
        last_term=Term(1),
    )
    try:
        world._sent(transport, ShardId(1), message)
    finally:
        world.loop.bury()
    assert [violation.checker for violation in world.violations] == ["calm"] * seen


def test_a_hold_that_a_truncation_has_passed() -> None:
    watch, rsm = Watch(HoldsStand), LogRsm()
    rsm.state.next_lsn, rsm.state.truncated_lsn = Lsn(20), Lsn(9)
    rsm.state.put_hold("above", Hold(Lsn(10), "app", Index(3), 5))
    command = Entry(Term(1), Index(7), Lsn(20), 0, EntryKind.COMMAND, b"")
    store = cast(Any, SimpleNamespace(store_id="s1"))
    watch.checker.applied(store, SHARD, command, rsm)
    assert watch.said() == []
    rsm.state.put_hold("passed", Hold(Lsn(9), "app"))
    watch.checker.applied(store, SHARD, command, rsm)
    (said,) = watch.said()
    assert said.startswith("s1/1 at index 7: truncated through 9, past passed ")


# --- what a pass of HAKeeper drives ---------------------------------------------------------------


class Passes:
    """Shard 0's state, entry by entry, with a checker of what its passes drive."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bounds, "HAKEEPER_DRIVES_PER_PASS_MAX", 3)
        monkeypatch.setattr(bounds, "HAKEEPER_DRIVES_IN_TURN_MIN", 1)
        self.watch = Watch(Drives)
        self.machine = HAKeeperRsm()
        self.state = self.machine.state
        self.state.cluster_version = 2
        self.state.shards = {ShardId(n): ShardState(ShardId(n), "log", 3, 0) for n in range(20)}
        self.index = 0

    def begin(self, *shards: int) -> None:
        for shard in shards:
            number = self.state.next_operator_id
            where = ReplicaId(number), ReplicaId(0), StoreId("s1"), Incarnation(1)
            self.state.operators[number] = Operator(
                number, Repair.START, ShardId(shard), *where, self.state.tick, heard=True
            )
            self.state.operators[number].driven_tick = self.state.tick
            self.state.next_operator_id += 1

    def applied(self) -> list[str]:
        self.index += 1
        self.watch.checker.applied(STORE, HAKEEPER_SHARD, entry(self.index), self.machine)
        return self.watch.said()

    def tick(self, *drives: int, ends: Sequence[int] = (), begins: Sequence[int] = ()) -> list[str]:
        """A tick whose pass drives these; some end by it, and begin."""
        self.state.tick += 1
        for number in drives:
            self.state.operators[number].driven_tick = self.state.tick
        for number in ends:
            del self.state.operators[number]
        self.begin(*begins)
        return self.applied()


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    made = Passes(monkeypatch)
    made.applied()
    made.begin(1, 2, 3, 4)
    assert made.applied() == []
    return made


def test_a_pass_that_drives_more_than_its_bound(passes: Passes) -> None:
    assert passes.tick(1, 2, 3) == []
    (found,) = passes.tick(2, 3, 4, ends=[1])
    assert "drove the operators [1, 2, 3, 4]" in found
    passes.state.shards.clear()
    assert passes.tick(ends=[2, 3, 4], begins=[5, 6, 7, 8]) == [], "logs that were deleted"
    passes.state.tick += 1
    passes.begin(5, 6, 7, 8)
    for operator in passes.state.operators.values():
        operator.heard = False
    assert "drove the operators [9, 10, 11, 12]" in passes.applied()[0]


def test_an_operator_that_is_passed_over_too_often(passes: Passes) -> None:
    """One of four waits for three passes, if one place is in turn."""
    for _ in range(3):
        assert passes.tick(1, 2, 3) == []
    (found,) = passes.tick(1, 2, 3, begins=[5])
    assert found == "4 passes passed operator 4 of shard 4 over, one of 4"
    assert passes.tick(4, 2) == []
    # They are five now, and that of shard 3 was passed over once.
    for _ in range(3):
        assert passes.tick(1, 2, 5) == []
    assert [len(passes.tick(1, 2, 5)) for _ in range(2)] == [1, 2]


def test_an_operator_that_waits_without_passes(passes: Passes) -> None:
    """Five ticks after it was driven it is due, and then others may be before it for three."""
    for _ in range(bounds.HAKEEPER_OPERATOR_CHECK_TICKS - 1 + 3):
        assert passes.tick() == []
    assert len(passes.tick()) == 4


def test_an_operator_of_shard_0_behind_others(passes: Passes) -> None:
    assert passes.tick(3, 4, begins=[0, 0, 0]) == []
    assert passes.tick(5, 6, 1) == [], "the first places have others of shard 0"
    assert passes.tick(5, 7, ends=[6]) == [], "and so has one that ended"
    (found,) = passes.tick(5, 1, 2)
    assert found == "operators [7] of shard 0 wait, and a pass drove [1, 2, 5]"


def test_no_pass_of_cluster_version_1_is_judged(passes: Passes) -> None:
    passes.state.cluster_version = 1
    for _ in range(20):
        assert passes.tick() == []
    passes.state.cluster_version = 2
    assert passes.tick(ends=[1, 2, 3, 4]) == [], "it was another one when the pass began"


def test_what_lies_between_two_records_is_behind_the_first_one() -> None:
    """Short seed 65000194: a session was opened three times behind the last record that went, and
    the alarm began to count at the record after those.
    """
    config = dataclasses.replace(draw(1), retention=(0, 1000, 0))
    ends = [(1, 2, True, 0), (2, 2, False, 500), (2, 3, True, 650), (3, 4, True, 1100)]
    kept = [_Kept(first, end, blocks, 0.0, 0, before) for first, end, blocks, before in ends]
    checker = Watch(Retained).checker
    assert checker._kept(config, _Log(size=1500, entries=kept), 1, 1.0) == ""
    assert checker._kept(config, _Log(size=1499, entries=kept), 1, 1.0).startswith(
        "2 records and 999"
    )


def test_a_log_of_which_nothing_is_left_has_nothing_that_should_go() -> None:
    """Short seed 73000107: all of it was truncated, so its newest entry was not in the log."""

    def gone(lsn: int) -> int:
        raise KeyError(lsn)

    config = dataclasses.replace(draw(1), retention=(0, 1000, 5))
    state = SimpleNamespace(end_lsn=139, truncated_lsn=138, holds={})
    replica = SimpleNamespace(
        shard=ShardId(1),
        log_rsm=SimpleNamespace(state=state),
        log=SimpleNamespace(index_of_lsn=gone),
    )
    checker = Watch(Retained).checker
    checker._logs[ShardId(1)] = _Log()
    assert checker.left(cast("Any", replica), config, 1.0) == ""
