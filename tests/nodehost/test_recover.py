"""Recover: the longest log that is left goes on as another history, and the evidence stays."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from logservice_wire.errors import InvalidArgument, Reason

from logservice.config_change import ChangeKind, ChangeStep, ConfigChange, Transition, encode_change
from logservice.entry import Entry, EntryKind
from logservice.envelope import NO_PROPOSAL, encode_command
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hard_state import HardState
from logservice.ids import (
    NO_REPLICA,
    ClusterId,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.lineage import NO_LINEAGE
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot, Update
from logservice.logdb.io.data_directory import IDENTITY_NAME, DataDirectory, read_identity
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.io.segment_keys import KeysMissing
from logservice.logdb.io.vfs import read_file
from logservice.logdb.log_db import LogDb
from logservice.logdb.recovery import offline
from logservice.membership import Member, Membership
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.disks.executor import InlineExecutor
from logservice.nodehost.recover.choice import Choice, choose
from logservice.nodehost.recover.evidence import Evidence, read_directory
from logservice.nodehost.recover.rebuild import (
    UNFINISHED_NAME,
    Rebuilt,
    Target,
    rebuild,
    refusal,
)
from logservice.nodehost.replica.start import choose_start
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from logservice.rsm import commands
from logservice.rsm.commands import AcquireWriter, OpenSession
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.sessions import SESSION_EXPIRED
from logservice.sealing_keys import Keys
from logservice.snapshot import Snapshot
from logservice.versions import KNOWN
from tests.hakeeper.model import Model
from tests.logdb.helpers import RING, SMALL, all_entries
from tests.nodehost.assembled import assemble
from tests.owners import APP, NONCE
from tests.rsm.shard_driver import ShardDriver, request
from tests.server.served import OPTIONS
from tests.waiting import eventually

SHARD = ShardId(1)
VOTERS = (ReplicaId(1), ReplicaId(2), ReplicaId(3))


def incarnation(number: int) -> Incarnation:
    return Incarnation(100 + number)


def members(*voters: int, **more: Any) -> Membership:
    named = {*voters, *more.get("outgoing", ()), *more.get("learners", ())}
    return Membership(
        voters=tuple(ReplicaId(one) for one in voters),
        change_epoch=Index(1),
        members=tuple(
            Member(ReplicaId(one), StoreId(f"s{one}"), incarnation(one)) for one in sorted(named)
        ),
        **more,
    )


THREE = members(1, 2, 3)


class Disks:
    """Data directories of stores that do not run, on one file system."""

    def __init__(self) -> None:
        self.vfs = MemoryVfs()
        self.kv = MemoryKvEngine()
        self.now_ms = 1_800_000_000_000
        self.incarnation = 999
        self.letter = b"L"
        self.keys: Keys | None = None

    def store(
        self,
        number: int,
        entries: Iterable[Entry],
        *,
        shard: ShardId = SHARD,
        membership: Membership = THREE,
        state: bytes = b"",
        commit: int = 1,
        version: int = 2,
        at: int = 1,
    ) -> str:
        """A data directory with one replica, whose log begins behind a snapshot at index `at`."""
        path = f"/s{number}"
        directory = DataDirectory.open(
            path,
            vfs=self.vfs,
            cluster_id=ClusterId("c"),
            store_id=StoreId(f"s{number}"),
            draw_incarnation=lambda: incarnation(number),
        )
        directory.raise_version(version)
        db = LogDb.open(
            path, identity=directory, vfs=self.vfs, kv=self.kv, options=SMALL, keys=self.keys
        )
        new = tuple(entries)
        term = new[-1].term if new else Term(1)
        first = Snapshot(Index(at), Term(1), Lsn(1), membership, state)
        replica = ReplicaId(number)
        db.commit(
            [
                Update(
                    shard,
                    replica,
                    hard_state=HardState(Term(1), NO_REPLICA, Index(at)),
                    snapshot=InstalledSnapshot(first, Lsn(0)),
                    bootstrap=Bootstrap(membership, join=False),
                )
            ]
        )
        if new:
            hard = HardState(term, NO_REPLICA, Index(commit))
            db.commit([Update(shard, replica, hard_state=hard, entries=new)])
        db.close()
        directory.close()
        return path

    def bytes_of(self, path: str) -> dict[str, bytes]:
        found = {}
        for name in self.vfs.listdir(path):
            inside = posixpath.join(path, name)
            try:
                found[inside] = read_file(self.vfs, inside)
            except OSError:
                found.update(self.bytes_of(inside))
        return found

    def choices(self, *paths: str) -> list[Choice]:
        found: list[Evidence] = []
        for path in paths:
            found += read_directory(self.vfs, path, lambda _: None, self.keys)
        return choose(found)

    def rebuild(self, choices: list[Choice], path: str = "/new") -> list[Rebuilt]:
        target = Target(
            path,
            StoreId("s3"),
            "ann",
            SMALL,
            lambda size: self.letter * size,
            lambda: self.incarnation,
            lambda: self.now_ms,
            self.keys,
        )
        return rebuild(self.vfs, self.kv, choices, target, lambda _: None)

    def again(self, path: str, *, letter: bytes, later_ms: int = 1) -> Rebuilt:
        """Another operator does the same with a copy of the directory of store 3."""
        self.letter = letter
        self.now_ms += later_ms
        self.incarnation += 1
        (done,) = self.rebuild(self.choices("/s3"), path)
        return done

    def open(self, path: str = "/new") -> tuple[DataDirectory, LogDb]:
        directory = DataDirectory.open(
            path, vfs=self.vfs, cluster_id=ClusterId("c"), store_id=StoreId("s3")
        )
        return directory, LogDb.open(
            path, identity=directory, vfs=self.vfs, kv=self.kv, options=SMALL, keys=self.keys
        )


def log_entries(*blocks: tuple[int, int], term_of: int = 2) -> list[Entry]:
    """A session, a writer's epoch, and one block of `count` records per `(count, term)`."""
    driver = ShardDriver()
    driver.index = Index(1)
    made = [
        driver.command_entry(OpenSession(APP, NONCE)),
        driver.command_entry(AcquireWriter(APP, False, 0, False, "db")),
        *(driver.block_entry(request(count, epoch=1)) for count, _ in blocks),
    ]
    terms = [term_of, term_of, *(term for _, term in blocks)]
    return [
        Entry(Term(term), one.index, one.lsn, one.record_count, one.kind, one.payload)
        for one, term in zip(made, terms, strict=True)
    ]


def started(disks: Disks, one: Rebuilt, path: str = "/new") -> tuple[Any, Membership, list[Entry]]:
    """The state machine and membership of a replica that starts there, and its entries."""
    from logservice.raft.membership.change import membership_after

    directory, db = disks.open(path)
    try:
        log = db.log(one.shard, one.replica)
        assert not log.faulty
        assert log.bootstrap is not None
        machine: Any = LogRsm() if one.shard else HAKeeperRsm()
        base = choose_start(log, None, machine)
        assert base is not None
        machine.recover_from_snapshot(base.state)
        membership = base.membership
        found = list(all_entries(log))
        assert log.hard_state.commit == log.last_index() == found[-1].index
        assert log.hard_state.term == found[-1].term
        for entry in found:
            machine.update(entry)
            if entry.kind is EntryKind.CONFIG:
                membership = membership_after(membership, entry)
        return machine, membership, found
    finally:
        db.close()
        directory.close()


def test_the_longest_log_goes_on_as_another_history() -> None:
    disks = Disks()
    shorter = disks.store(2, log_entries((3, 2)), commit=4)
    longer = disks.store(3, log_entries((3, 2), (2, 2)))
    before = disks.bytes_of(shorter) | disks.bytes_of(longer)
    # Two of three are a majority; one of them has lost its disk for the purpose of this test.
    (only,) = disks.choices(longer)
    assert (only.last_lsn, only.whole_majority, refusal(only)) == (5, False, "")
    (done,) = disks.rebuild([only])
    assert disks.bytes_of(shorter) | disks.bytes_of(longer) == before, "INV-RECOVER-1"
    machine, membership, found = started(disks, done)
    state = machine.state
    assert (state.lineage.number, state.lineage.id) == (1, b"L" * 16)
    assert (state.lineage.parent, state.lineage.fork_lsn) == (NO_LINEAGE, 5)
    assert (state.next_lsn, state.writer_epoch, len(state.sessions)) == (6, 2**32 + 1, 0)
    assert [entry.lsn for entry in found if entry.record_count] == [1, 4]
    # INV-RECOVER-3
    assert membership == done.membership
    assert membership.voters == (done.replica,)
    assert done.replica > 2**32
    assert membership.removed == VOTERS
    assert membership.members == (Member(done.replica, StoreId("s3"), Incarnation(999)),)
    assert {entry.term for entry in found[-3:]} == {3}, "above every term of the evidence"
    assert read_identity(disks.vfs, "/new").incarnation == 999


def test_encrypted_evidence_needs_its_keys_and_is_written_encrypted() -> None:
    disks = Disks()
    disks.keys = RING
    path = disks.store(3, log_entries((3, 2), (2, 2)))
    for ring in (None, Keys("b", {"b": RING.keys["b"]}), Keys("a", {"a": b"x" * 32})):
        disks.keys = ring
        with pytest.raises(KeysMissing, match="no key that was given opens segment 1"):
            disks.choices(path)
    disks.keys = Keys("b", RING.keys)
    (only,) = disks.choices(path)
    (done,) = disks.rebuild([only])
    machine, _, found = started(disks, done)
    assert machine.state.lineage.fork_lsn == 5
    assert [entry.lsn for entry in found if entry.record_count] == [1, 4]
    directory, db = disks.open()
    assert dict(db.stats().key_bytes).keys() == {"b"}
    db.close()
    directory.close()


def test_evidence_that_is_used_twice_makes_two_replicas() -> None:
    """INV-RECOVER-3: what was made of it first was started, and its disk was lost, too. HAKeeper,
    which had adopted that one, takes the second for newer, and never for the same.
    """
    disks = Disks()
    (only,) = disks.choices(disks.store(3, log_entries((3, 2))))
    (first,) = disks.rebuild([only])
    (only,) = disks.choices("/s3")
    disks.now_ms += 1
    (second,) = disks.rebuild([only], "/again")
    assert second.replica > first.replica


def test_raft_decides_which_log_is_the_longest() -> None:
    """A higher last term beats a longer log: what is longer there was never committed."""
    disks = Disks()
    long = disks.store(1, log_entries((1, 2), (1, 2), (1, 2)))
    newer = disks.store(2, log_entries((1, 2), (9, 5)))
    (choice,) = disks.choices(long, newer)
    assert choice.chosen is not None
    assert (choice.chosen.replica, choice.last_lsn, choice.term) == (2, 10, 5)


def test_with_a_majority_nothing_is_forced() -> None:
    """INV-RECOVER-2."""
    disks = Disks()
    paths = [disks.store(number, log_entries((1, 2))) for number in (1, 2)]
    (choice,) = disks.choices(*paths)
    assert "start these stores" in refusal(choice)
    with pytest.raises(InvalidArgument, match="majority"):
        disks.rebuild([choice])
    assert not disks.vfs.exists("/new")


def test_both_halves_of_a_joint_membership_need_a_majority() -> None:
    disks = Disks()
    joint = members(3, 4, 5, outgoing=(ReplicaId(1), ReplicaId(2), ReplicaId(3)))
    paths = [disks.store(number, log_entries((1, 2)), membership=joint) for number in (3, 4)]
    (choice,) = disks.choices(*paths)
    assert refusal(choice) == ""
    (done,) = disks.rebuild([choice])
    _, membership, _ = started(disks, done)
    assert (membership.joint, membership.voters) == (False, (done.replica,))
    assert set(membership.removed) == {1, 2, 3, 4, 5}


def test_learners_and_witnesses_leave_too() -> None:
    disks = Disks()
    known = members(1, 2, 3, learners=(ReplicaId(8),), witnesses=(ReplicaId(2),))
    source = disks.store(3, log_entries((1, 2)), membership=known)
    witness = disks.store(2, log_entries((1, 2), (6, 2)), membership=known)
    (choice,) = disks.choices(source, witness)
    assert choice.chosen is not None
    assert (choice.chosen.replica, choice.last_lsn) == (3, 1)
    assert choice.known_lost == 7, "the witness has positions of what is lost"
    (done,) = disks.rebuild([choice])
    _, membership, _ = started(disks, done)
    assert set(membership.removed) == {1, 2, 3, 8}
    assert membership.full_voters == (done.replica,)


def test_a_damaged_log_counts_up_to_the_damage() -> None:
    disks = Disks()
    path = disks.store(3, log_entries((1, 2), (1, 2), (1, 2)))
    segments = posixpath.join(path, "segments")
    (name,) = [one for one in disks.vfs.listdir(segments) if one.endswith(".segment")]
    file = posixpath.join(segments, name)
    data = read_file(disks.vfs, file)
    at = data.rindex(b"r")
    handle = disks.vfs.open_write(file)
    disks.vfs.pwritev(handle, [b"X"], at)
    disks.vfs.close(handle)
    (choice,) = disks.choices(path)
    assert choice.chosen is not None
    assert choice.chosen.damage
    assert choice.last_lsn < 3
    (done,) = disks.rebuild([choice])
    machine, _, _ = started(disks, done)
    assert machine.state.next_lsn == choice.last_lsn + 1


def test_below_cluster_version_2_it_is_refused() -> None:
    disks = Disks()
    (choice,) = disks.choices(disks.store(3, log_entries((1, 2)), version=1))
    assert "version 2" in refusal(choice)


def test_a_second_recovery_forks_the_first() -> None:
    disks = Disks()
    (choice,) = disks.choices(disks.store(3, log_entries((2, 2))))
    (first,) = disks.rebuild([choice])
    (again,) = disks.choices("/new")
    assert "start these stores" in refusal(again), "its only voter is here"
    assert again.chosen is not None
    assert again.chosen.lineage.number == 1
    # An old copy of the parent lies beside it: the newer lineage counts, whatever the terms.
    late = disks.store(2, log_entries((2, 2), (7, 9)))
    (both,) = disks.choices(late, "/new")
    assert both.chosen is not None
    assert both.chosen.directory == "/new"
    assert first.replica == both.chosen.replica


@pytest.mark.parametrize("later_ms", [0, 1, -1])
def test_inv_recover_5_two_recoveries_of_one_evidence_are_not_mixed(later_ms: int) -> None:
    """Whichever of the two has the longer log, or was made first, or in the same millisecond."""
    disks = Disks()
    evidence = disks.store(3, log_entries((2, 2)))
    one = disks.again("/one", letter=b"1")
    two = disks.again("/two", letter=b"2", later_ms=later_ms)
    assert one.lineage.parent == two.lineage.parent
    for paths in (("/one", "/two"), ("/two", "/one"), (evidence, "/one", "/two")):
        (both,) = disks.choices(*paths)
        assert "two histories" in refusal(both)
        assert {name in refusal(both) for name in ("/one", "/two")} == {True}
        with pytest.raises(InvalidArgument, match="two histories"):
            disks.rebuild([both], "/mixed")
    assert not disks.vfs.exists("/mixed")
    # Each of them with what it was made of is one history.
    for path in ("/one", "/two"):
        (alone,) = disks.choices(evidence, path)
        assert "start these stores" in refusal(alone)


def test_inv_recover_5_what_continues_one_of_them_does_not_continue_the_other() -> None:
    disks = Disks()
    disks.store(3, log_entries((2, 2)))
    disks.again("/one", letter=b"1")
    # In the same millisecond, so that not even the replica's id differs.
    disks.again("/two", letter=b"2", later_ms=0)
    (choice,) = disks.choices("/one")
    # Its one voter was joined by others, whose disks are lost now.
    disks.letter = b"3"
    disks.rebuild([replace(choice, whole_majority=False)], "/three")
    (both,) = disks.choices("/two", "/three")
    assert both.chosen is not None
    assert both.chosen.lineage.number == 2
    assert "two histories" in refusal(both)
    (line,) = disks.choices("/s3", "/one", "/three")
    assert "start these stores" in refusal(line)


@pytest.mark.parametrize("later_ms", [0, 1])
def test_inv_recover_5_also_of_shard_0_which_has_no_lineage(later_ms: int) -> None:
    """Only the directory tells two recoveries in the same millisecond apart."""
    model = Model(3, versions=KNOWN)
    model.start()
    model.run_until(model.healthy, 400)
    disks = Disks()
    state, at = model.rsm.save_snapshot(), model.rsm.state.index
    evidence = disks.store(3, (), shard=ShardId(0), state=state, at=at)
    disks.again("/one", letter=b"1")
    disks.again("/two", letter=b"2", later_ms=later_ms)
    (both,) = disks.choices("/one", "/two")
    assert "two histories" in refusal(both)
    (alone,) = disks.choices(evidence, "/two")
    assert "start these stores" in refusal(alone)


def test_inv_recover_5_replicas_of_one_history_are_no_strangers() -> None:
    """Behind in a change of the members, and ahead in one that was never committed."""
    disks = Disks()
    voters = {number: ReplicaId(number) for number in range(1, 7)}
    moved = members(4, 5, 3, removed=(voters[1], voters[2]))
    old = disks.store(1, log_entries((2, 2)))
    new = disks.store(4, log_entries((2, 3)), membership=moved)
    under_way = members(3, 4, 6, outgoing=(voters[3], voters[4], voters[5]))
    ahead = disks.store(6, log_entries((2, 2)), membership=under_way)
    (choice,) = disks.choices(old, new, ahead)
    assert choice.chosen is not None
    assert choice.chosen.directory == new
    assert refusal(choice) == ""


def test_a_place_that_is_taken_is_refused() -> None:
    disks = Disks()
    path = disks.store(3, log_entries((2, 2)))
    before = disks.bytes_of(path)
    with pytest.raises(InvalidArgument, match="not empty"):
        disks.rebuild(disks.choices(path), path)
    assert disks.bytes_of(path) == before


def test_sessions_and_epochs_of_the_old_history_have_no_effect() -> None:
    """G5, G9: also those that were opened and granted in the lost part."""
    disks = Disks()
    (choice,) = disks.choices(disks.store(3, log_entries((2, 2))))
    (done,) = disks.rebuild([choice])
    machine, _, found = started(disks, done)
    driver = ShardDriver(machine)
    driver.index, driver.next_lsn = found[-1].index, found[-1].next_lsn
    for session in range(1, driver.index + 1):
        assert driver.append(session=session, sequence=1, epoch=1) == SESSION_EXPIRED
    for epoch in range(4):
        outcome = driver.append(epoch=epoch)
        assert outcome.reason is Reason.FENCED  # type: ignore[union-attr]


def _crash_cases(rng: random.Random) -> list[tuple[str, Callable[..., int] | None, bool]]:
    share = rng.random()
    return [
        ("nothing survives", None, False),
        ("names survive", None, True),
        ("all survives", lambda path, number, size: size, True),
        ("half of every write", lambda path, number, size: size // 2, True),
        ("a share", lambda path, number, size: int(size * share), True),
    ]


def test_inv_recover_4_a_crash_leaves_nothing_usable_or_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before each file operation the disk is copied; each copy is looked at after a kill and after
    power cuts, and the tool is run on it again.
    """
    disks = Disks()
    source = disks.store(3, log_entries((2, 2), (3, 2)))
    moments: list[tuple[str, MemoryVfs, MemoryKvEngine]] = []
    for name in (
        "create",
        "pwritev",
        "fdatasync",
        "sync_written",
        "preallocate",
        "truncate",
        "rename",
        "unlink",
        "fsync_directory",
    ):
        call = getattr(disks.vfs, name)

        def watched(*given: Any, _call: Any = call, _name: str = name, **named: Any) -> Any:
            moments.append((_name, disks.vfs.copy(), disks.kv.copy()))
            return _call(*given, **named)

        monkeypatch.setattr(disks.vfs, name, watched)
    (done,) = disks.rebuild(disks.choices(source))
    monkeypatch.undo()
    moments.append(("the end", disks.vfs.copy(), disks.kv.copy()))
    assert len(moments) > 25
    whole = 0
    rng = random.Random(3)
    for operation, vfs, kv in moments:
        for how, surviving, names in [("killed", None, True), *_crash_cases(rng)]:
            crashed = Disks()
            crashed.vfs, crashed.kv = vfs.copy(), kv.copy()
            if how == "killed":
                crashed.vfs.kill()
            else:
                crashed.vfs.crash(surviving, keep_names=names)
            where = (operation, how)
            if _usable(crashed):
                whole += 1
                machine, membership, _ = started(crashed, done)
                assert machine.state.lineage.fork_lsn == 5, where
                assert membership == done.membership, where
                continue
            for name in crashed.vfs.listdir("/new") if crashed.vfs.exists("/new") else []:
                # An identity alone: an empty directory, which is nobody's copy of anything.
                if name == IDENTITY_NAME:
                    crashed.vfs.unlink("/new/" + IDENTITY_NAME)
            (again,) = crashed.rebuild(crashed.choices(source))
            machine, membership, _ = started(crashed, again)
            assert machine.state.lineage.fork_lsn == 5, where
    assert whole >= 4, "after the last rename"


def _usable(disks: Disks) -> bool:
    """Whether a store would find a replica there."""
    if not disks.vfs.exists("/new/" + IDENTITY_NAME):
        return False
    try:
        with offline.stored_logs(disks.vfs, "/new") as (_, logs):
            return bool(logs)
    except InvalidArgument:
        return False  # no segments yet


def test_an_unfinished_directory_is_none_for_a_store() -> None:
    disks = Disks()
    (choice,) = disks.choices(disks.store(3, log_entries((2, 2))))
    disks.rebuild([choice])
    disks.vfs.rename("/new/" + IDENTITY_NAME, "/new/" + UNFINISHED_NAME)
    with pytest.raises(InvalidArgument, match="not empty"):
        disks.open()
    (done,) = disks.rebuild(disks.choices("/s3"))
    assert started(disks, done)[0].state.lineage.number == 1


def test_shard_0_learns_of_everything_that_was_rebuilt() -> None:
    model = Model(3, versions=KNOWN)
    model.start()
    model.run_until(model.healthy, 400)
    state = model.rsm.save_snapshot()
    known = model.rsm.state
    assert SHARD in known.shards
    disks = Disks()
    hakeeper = disks.store(3, (), shard=ShardId(0), state=state, at=known.index)
    choices = disks.choices(hakeeper)
    assert [one.shard for one in choices] == [0]
    (done,) = disks.rebuild(choices)
    machine, membership, _ = started(disks, done)
    assert machine.state.shards[0].members == membership
    assert machine.state.next_replica_id > done.replica
    assert machine.state.operators == {}


def test_entries_that_no_leader_proposed_are_read_like_others() -> None:
    """What the tool appends decodes as what it means."""
    disks = Disks()
    (choice,) = disks.choices(disks.store(3, log_entries((2, 2))))
    (done,) = disks.rebuild([choice])
    _, _, found = started(disks, done)
    fork, joint, alone = found[-3:]
    own = commands.BeginLineage(
        APP._replace(identity="ann", store=StoreId("s3")), 1, b"L" * 16, NO_LINEAGE
    )
    assert fork.payload == encode_command(NO_PROPOSAL, commands.encode(own))
    assert alone.payload == b""
    steps = (
        ChangeStep(ChangeKind.ADD_VOTER, done.replica, StoreId("s3"), Incarnation(999)),
        *(ChangeStep(ChangeKind.REMOVE, one) for one in VOTERS),
    )
    assert joint.payload == encode_change(ConfigChange(steps, Index(1), Transition.EXPLICIT))


def test_an_installed_state_that_no_store_would_start_from_is_not_used() -> None:
    disks = Disks()
    driver = ShardDriver()
    driver.append(3)
    (choice,) = disks.choices(disks.store(3, (), state=driver.rsm.save_snapshot(), at=9))
    assert choice.chosen is None
    assert "the state has applied 1" in choice.found[0].damage[0]
    with pytest.raises(InvalidArgument, match="no log of it can be used"):
        disks.rebuild([choice])


@pytest.mark.parametrize("order", [["/s3", "/new"], ["/new", "/s3"]])
async def test_a_store_goes_on_with_the_new_directory_beside_its_old_one(order: list[str]) -> None:
    """Both have a replica of the log. The one of the older history does not run, whatever the order
    of the directories; the rebuilt one is its log's only voter.
    """
    disks = Disks()
    (choice,) = disks.choices(disks.store(3, log_entries((2, 2))))
    (done,) = disks.rebuild([choice])
    broken: list[BaseException] = []
    parts = assemble(
        StoreId("s3"),
        order,
        lambda identity: MemoryTransport(identity, MemoryNetwork()),
        options=OPTIONS,
        on_fatal=broken.append,
        cluster_id=ClusterId("c"),
        disk=lambda _: DiskSeams(disks.vfs, disks.kv, *(InlineExecutor() for _ in range(4))),
        logdb=SMALL,
        state_machines=lambda _: LogRsm(),
    )
    host = parts.host
    await host.start()
    try:
        replica = host.replicas.running[SHARD]
        assert (replica.replica_id, replica.directory.path) == (done.replica, "/new")
        await eventually(lambda: replica.ready_to_lead)
        assert replica.lineage == done.lineage
        epoch = (2**32) + 1
        command = commands.AcquireWriter(APP, False, epoch, False, "db")
        await host.propose(SHARD, commands.encode(command), 10.0)
        applied = await host.append(SHARD, request(2, epoch=epoch + 1), 10.0)
        assert applied.lsn == 3
    finally:
        await host.stop()
    assert broken == []
