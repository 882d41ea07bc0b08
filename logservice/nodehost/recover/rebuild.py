"""Rebuild: a new data directory with shards that go on from the longest log that is left.

Theory of operation. The log of the chosen replica is copied as it is: its installed snapshot and
every entry behind it. Then entries are appended that no leader proposed:

1. of a log, the fork (`rsm.commands.BeginLineage`): from there on it is another history;
   of shard 0, what it has to know of all shards that were rebuilt (`commands.RecoverCluster`);
2. the membership change that takes a new replica in, in this directory, and all others out, through
   a joint configuration as any change of several members.

Their term is above every term of the evidence, and all of them count as committed. So a replica
that starts here finds itself the only voter of its shard. Whatever catches up, restarts or replays
the log sees the fork and the change where they happened. HAKeeper then brings the other voters.

- INV-RECOVER-3: the new replica has an id and a directory that nobody ever had, and every other id
  that the membership names is removed in it. Evidence may be used twice, because what was made of
  it is lost, too; so the id has the time of day in it, and is above that of the first time. So a
  replica of the old membership is heard by none of the new one, and has no vote there. Where two
  operators recover in one millisecond, the directories still tell the two replicas apart.
- INV-RECOVER-4: until everything is durable the directory has no identity file, and no store
  starts on it. It gets that file by a rename, the last step. A run that was cut short is begun
  anew, in the same place.
- INV-RECOVER-1: the evidence is only read.

References: etcd's restore with a new cluster; TiKV's unsafe recovery, which changes the survivors
in place; docs/operations/lost-quorum.md.
"""

from __future__ import annotations

import json
import posixpath
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from logservice_wire.errors import InvalidArgument

from logservice.bounds import RECOVER_BATCH_BYTES, RECOVERED_REPLICA_STEP
from logservice.clock import SystemClock
from logservice.config_change import ChangeKind, ChangeStep, ConfigChange, Transition, encode_change
from logservice.entry import Entry, EntryKind
from logservice.envelope import NO_PROPOSAL, encode_command
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.recovery import RecoverCluster, RecoveredShard
from logservice.hard_state import HardState
from logservice.ids import (
    HAKEEPER_SHARD,
    NO_REPLICA,
    Incarnation,
    Index,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.invariants import invariant
from logservice.lineage import LINEAGE_BYTES, Lineage
from logservice.logdb.format.update import Bootstrap, Update
from logservice.logdb.io.data_directory import IDENTITY_NAME, LOCK_NAME, DataDirectory
from logservice.logdb.io.kv import KvEngine
from logservice.logdb.io.vfs import Vfs, write_file
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.logdb.recovery.offline import StoredLog, stored_logs
from logservice.logdb.recovery.opening import INDEX_NAME
from logservice.membership import Membership
from logservice.nodehost.recover.choice import Choice
from logservice.nodehost.recover.evidence import Evidence, Progress, Walk, usable_entries
from logservice.owner import Author
from logservice.raft.membership.change import membership_after
from logservice.rsm import commands
from logservice.sealing_keys import Keys

UNFINISHED_NAME: Final = "IDENTITY.unfinished"
"""The identity of a directory that is being rebuilt (INV-RECOVER-4)."""

REPORT_NAME: Final = "RECOVERED"
"""What was rebuilt here, for people; no store reads it."""

_LINEAGES_SINCE: Final = 2
"""The first cluster version that has lineages."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A shard that was rebuilt. `lineage`: of a log; shard 0 has none."""

    shard: ShardId
    replica: ReplicaId
    membership: Membership
    last_index: Index
    lineage: Lineage
    source: str


@dataclass(frozen=True, slots=True)
class Target:
    """Where to, and in whose name. `draw_bytes`: random bytes; `draw`: an incarnation; `now_ms`:
    the time of day. `keys`: those of the evidence, with whose active one the entries are encrypted.
    """

    path: str
    store: StoreId
    person: str
    options: LogDbOptions = field(default_factory=LogDbOptions)
    draw_bytes: Callable[[int], bytes] = secrets.token_bytes
    draw: Callable[[], int] = lambda: secrets.randbits(63) | 1
    now_ms: Callable[[], int] = lambda: SystemClock().wall_us() // 1000
    keys: Keys | None = None


def refusal(choice: Choice) -> str:
    """Why the shard is not rebuilt; empty if it may be (INV-RECOVER-2, INV-RECOVER-5)."""
    chosen = choice.chosen
    if chosen is None:
        return "no log of it can be used"
    if choice.stranger is not None:
        return (
            f"{chosen.directory} and {choice.stranger.directory} are of two histories, of which "
            "none continues the other: name the directories of one"
        )
    if choice.whole_majority:
        return "a majority of its voters is here: start these stores instead"
    if chosen.identity.cluster_version < _LINEAGES_SINCE:
        version = chosen.identity.cluster_version
        return f"its cluster is at version {version}, and this needs version {_LINEAGES_SINCE}"
    return ""


def rebuild(
    vfs: Vfs, kv: KvEngine, choices: Sequence[Choice], target: Target, progress: Progress
) -> list[Rebuilt]:
    """Write the new data directory. Shard 0, if it is among them, learns of all others.

    Raises InvalidArgument for what cannot be rebuilt, or not there; Unusable when evidence changed
    its mind; OSError. Then the directory is not usable, and the same call begins it anew.
    """
    for choice in choices:
        if why := refusal(choice):
            raise InvalidArgument(f"shard {choice.shard}: {why}", field="shard")
    clusters = {one.chosen.identity.cluster_id for one in choices if one.chosen is not None}
    if len(clusters) != 1:
        raise InvalidArgument("the evidence is of several clusters, or of none", field="from")
    directory = _begin(vfs, kv, target, choices)
    try:
        db = LogDb.open(
            target.path,
            identity=directory,
            vfs=vfs,
            kv=kv,
            options=target.options,
            keys=target.keys,
            draw_bytes=target.draw_bytes,
        )
        try:
            done = [
                _Writer(vfs, db, one, target, directory.incarnation, progress).log()
                for one in choices
                if one.shard != HAKEEPER_SHARD
            ]
            for one in choices:
                if one.shard == HAKEEPER_SHARD:
                    writer = _Writer(vfs, db, one, target, directory.incarnation, progress)
                    done.insert(0, writer.hakeeper(done))
        finally:
            db.close()
        report = [_row(one) for one in done]
        write_file(
            vfs, posixpath.join(target.path, REPORT_NAME), json.dumps(report, indent=1).encode()
        )
        progress("everything is written: the directory gets its identity")
        vfs.rename(
            posixpath.join(target.path, UNFINISHED_NAME),
            posixpath.join(target.path, IDENTITY_NAME),
        )
        vfs.fsync_directory(target.path)
    finally:
        directory.close()
    return done


def _begin(vfs: Vfs, kv: KvEngine, target: Target, choices: Sequence[Choice]) -> DataDirectory:
    path = target.path
    if vfs.exists(path):
        names = set(vfs.listdir(path)) - {LOCK_NAME, IDENTITY_NAME + ".tmp", "lost+found"}
        if names and UNFINISHED_NAME not in names:
            raise InvalidArgument(f"{path} is not empty: name a new directory", field="to")
        kv.destroy(posixpath.join(path, INDEX_NAME))
        for name in sorted(names - {UNFINISHED_NAME}):
            _remove(vfs, posixpath.join(path, name))
        if names:
            vfs.unlink(posixpath.join(path, UNFINISHED_NAME))
    found = next(one.chosen.identity for one in choices if one.chosen is not None)
    directory = DataDirectory.open(
        path,
        vfs=vfs,
        cluster_id=found.cluster_id,
        store_id=target.store,
        draw_incarnation=target.draw,
    )
    try:
        directory.raise_version(found.cluster_version)
        vfs.rename(posixpath.join(path, IDENTITY_NAME), posixpath.join(path, UNFINISHED_NAME))
        vfs.fsync_directory(path)
    except BaseException:
        directory.close()
        raise
    return directory


def _remove(vfs: Vfs, path: str) -> None:
    try:
        vfs.unlink(path)
    except OSError:
        vfs.remove_tree(path)


class _Writer:
    """Writes one shard."""

    def __init__(
        self,
        vfs: Vfs,
        db: LogDb,
        choice: Choice,
        target: Target,
        incarnation: Incarnation,
        progress: Progress,
    ) -> None:
        assert choice.chosen is not None
        assert choice.chosen.walk is not None
        self._vfs = vfs
        self._db = db
        self._choice = choice
        self._chosen: Evidence = choice.chosen
        self._walk: Walk = choice.chosen.walk
        self._target = target
        self._incarnation = incarnation
        self._progress = progress
        self._term = Term(choice.term + 1)
        self.shard = choice.shard
        self.replica = _new_replica(choice, target.now_ms())

    def log(self) -> Rebuilt:
        """Rebuild a log."""
        known = self._chosen.lineage
        lineage = self._target.draw_bytes(LINEAGE_BYTES)
        author = Author(self._target.person, self._target.store)
        fork = commands.encode(commands.BeginLineage(author, known.number + 1, lineage, known.id))
        self._write([fork])
        log = self._chosen.log
        assert log is not None
        invariant(log.state.lineage.id == lineage, "INV-LINEAGE-1", shard=self.shard)
        return self._rebuilt(log.state.lineage)

    def hakeeper(self, others: Iterable[Rebuilt]) -> Rebuilt:
        """Rebuild shard 0, which learns what became of the others."""
        changes = list(self._changes(self._walk.membership, Index(self._walk.index + 2)))
        membership = changes[-1][1]
        rows = [(HAKEEPER_SHARD, membership)]
        rows += [(one.shard, one.membership) for one in others]
        recover = RecoverCluster(
            tuple(RecoveredShard(shard, one.encode()) for shard, one in rows),
            self._target.person,
        )
        self._write([proposals.encode(recover, _LINEAGES_SINCE)])
        invariant(self._walk.membership == membership, "INV-RECOVER-3", found=self._walk.membership)
        return self._rebuilt(Lineage())

    def _rebuilt(self, lineage: Lineage) -> Rebuilt:
        return Rebuilt(
            self.shard,
            self.replica,
            self._walk.membership,
            self._walk.index,
            lineage,
            self._chosen.directory,
        )

    def _write(self, decisions: Sequence[bytes]) -> None:
        shard, replica = self.shard, self.replica
        self._progress(f"shard {shard}: from {self._chosen.directory}, as replica {replica}")
        through = self._chosen.last_index
        with stored_logs(self._vfs, self._chosen.directory, self._target.keys) as (_, logs):
            source = next(
                one for one in logs if (one.shard, one.replica) == (shard, self._chosen.replica)
            )
            self._copy(source, through)
        entries = list(self._appended(decisions))
        for entry in entries:
            self._walk.take(entry)
        membership = self._walk.membership
        invariant(
            membership.voters == (replica,)
            and not (membership.joint or membership.learners or membership.learners_next),
            "INV-RECOVER-3",
            shard=shard,
            membership=membership,
        )
        last = entries[-1].index
        self._db.commit(
            [
                Update(
                    shard,
                    replica,
                    hard_state=HardState(self._term, NO_REPLICA, last),
                    entries=tuple(entries),
                )
            ]
        )

    def _copy(self, source: StoredLog, through: Index) -> None:
        assert source.installed is not None
        born = self._own_membership()
        first = HardState(self._term, NO_REPLICA, source.installed.snapshot.index)
        self._db.commit(
            [
                Update(
                    self.shard,
                    self.replica,
                    hard_state=first,
                    snapshot=source.installed,
                    bootstrap=Bootstrap(born, join=False),
                )
            ]
        )
        batch: list[Entry] = []
        size = 0
        for entry in usable_entries(source, through):
            batch.append(entry)
            size += len(entry.payload)
            if size >= RECOVER_BATCH_BYTES:
                self._progress(f"shard {self.shard}: copied up to entry {entry.index}")
                self._db.commit([Update(self.shard, self.replica, entries=tuple(batch))])
                batch, size = [], 0
        if batch:
            self._db.commit([Update(self.shard, self.replica, entries=tuple(batch))])

    def _own_membership(self) -> Membership:
        """What the shard will be, but for the index of its change: the new replica alone."""
        changes = list(self._changes(self._walk.membership, Index(self._walk.index + 2)))
        return changes[-1][1]

    def _appended(self, decisions: Sequence[bytes]) -> Iterator[Entry]:
        index, lsn = self._walk.index, self._walk.next_lsn
        for decision in decisions:
            index = Index(index + 1)
            payload = encode_command(NO_PROPOSAL, decision)
            yield Entry(self._term, index, lsn, 0, EntryKind.COMMAND, payload)
        for entry, _ in self._changes(self._chosen.membership, Index(index + 1)):
            yield entry

    def _changes(self, before: Membership, index: Index) -> Iterator[tuple[Entry, Membership]]:
        """The CONFIG entries from `index` on that leave the new replica alone, each with the
        membership behind it.
        """
        lsn = self._chosen.next_lsn

        def entry(change: ConfigChange) -> Entry:
            return Entry(self._term, index, lsn, 0, EntryKind.CONFIG, encode_change(change))

        membership = before
        if membership.joint:
            left = entry(ConfigChange())
            membership = membership_after(membership, left)
            yield left, membership
            index = Index(index + 1)
        own = ChangeStep(ChangeKind.ADD_VOTER, self.replica, self._target.store, self._incarnation)
        others = sorted({*membership.voters, *membership.learners, *membership.learners_next})
        change = ConfigChange(
            (own, *(ChangeStep(ChangeKind.REMOVE, one) for one in others)),
            membership.change_epoch,
            Transition.EXPLICIT,
        )
        joint = entry(change)
        membership = membership_after(membership, joint)
        yield joint, membership
        index = Index(index + 1)
        alone = entry(ConfigChange())
        yield alone, membership_after(membership, alone)


def _new_replica(choice: Choice, now_ms: int) -> ReplicaId:
    """An id that nobody has, nor was given while the evidence grew old, nor by an earlier recovery
    from it (INV-RECOVER-3).
    """
    known = {one.replica for one in choice.found}
    for one in choice.found:
        members = one.membership
        known.update(members.removed, (member.replica_id for member in members.members))
        known.update(members.voters, members.outgoing, members.learners, members.learners_next)
    return ReplicaId(max(known) + RECOVERED_REPLICA_STEP + now_ms)


def _row(one: Rebuilt) -> dict[str, object]:
    return {
        "shard": one.shard,
        "replica": one.replica,
        "source": one.source,
        "last_index": one.last_index,
        "membership": one.membership.encode().hex(),
        "lineage": one.lineage.id.hex(),
        "number": one.lineage.number,
        "fork_lsn": one.lineage.fork_lsn,
    }
