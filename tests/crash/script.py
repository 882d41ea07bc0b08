"""A scenario as data: the steps that a process performs on a real store, and what must be seen
after each.

The steps depend on the scenario's name alone. So the process that performs them and the one that
judges what is left agree without talking.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, Term
from logservice.logdb.format.update import Update
from logservice.logdb.options import LogDbOptions
from tests.crash.plain import Key, Picture, PlainStore
from tests.logdb.helpers import update

OPTIONS = LogDbOptions(
    segment_bytes=4096,
    entry_cache_bytes=0,
    ballast_bytes=0,
    rewrite_bytes_max=64 * 1024,
    reserve_bytes=0,
)


class Do(enum.Enum):
    """What a step does."""

    COMMIT = "commit"
    COMMIT_UNSYNCED = "commit without a sync of its own"
    MARK = "durable mark"
    CHECKPOINT = "derived index brought up to date"
    COLLECT = "garbage collection"
    RESTART = "clean restart"
    KILL = "killed and restarted"
    TEAR = "a group torn in the middle, restarted"
    SYNC_FAILS = "a group whose sync fails, restarted"
    LOSE_INDEX = "derived index deleted, restarted"
    UPGRADE = "derived index of the version before, restarted"
    RAISE = "written for cluster version 2 from now on"
    EXPORT = "snapshot exported"
    DROP_EXPORTS = "exports dropped up to an index"


@dataclass(frozen=True, slots=True)
class Step:
    """One step. share: how much of a torn group is written."""

    do: Do
    updates: tuple[Update, ...] = ()
    share: float = 0.0
    key: Key = (1, 1)
    index: int = 0


@dataclass(frozen=True, slots=True)
class Expected:
    """What must be seen of the store, and which export of each replica is the newest."""

    picture: Picture
    exports: dict[Key, int]
    commits: dict[Key, tuple[int, int]]
    """For each replica: the commit index that may not be lost, and the highest that was written."""


@dataclass
class Script:
    """Collects steps. `plain` is the state after them, from which the next one is built.

    pipelined: a commit that follows another is begun while that one is at the disk, where that is
    allowed. cluster_version: what the data directory is written for from the start on.
    """

    options: LogDbOptions = OPTIONS
    pipelined: bool = False
    cluster_version: int = 1
    plain: PlainStore = field(default_factory=PlainStore)
    steps: list[Step] = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)
    exports: dict[Key, int] = field(default_factory=dict)
    _durable: dict[Key, int] = field(default_factory=dict)
    _waiting: dict[Key, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._expect()

    def _expect(self) -> None:
        commits = {
            key: (self._durable.get(key, 0), found.commit)
            for key, found in self.plain.replicas.items()
        }
        self.expected.append(Expected(self.plain.picture(), dict(self.exports), commits))

    def _say(self, updates: Sequence[Update], *, sync: bool) -> None:
        """Note the commit indexes of a group; those that waited travel with a synced one."""
        said = {
            (int(change.shard), int(change.replica)): int(change.hard_state.commit)
            for change in updates
            if change.hard_state is not None
        }
        self._waiting.update(said)
        if sync:
            self._flush()

    def _flush(self) -> None:
        self._durable.update(self._waiting)
        self._waiting.clear()

    def do(self, do: Do) -> None:
        """Add a step that changes nothing that can be seen."""
        self.steps.append(Step(do))
        if do is Do.KILL:
            self._waiting.clear()
        elif do in (Do.RESTART, Do.LOSE_INDEX, Do.UPGRADE):
            self._flush()
        self._expect()

    def commit(self, *updates: Update, sync: bool = True) -> None:
        """Add a step that commits one group."""
        self.steps.append(Step(Do.COMMIT if sync else Do.COMMIT_UNSYNCED, updates))
        self.plain.apply(updates)
        self._say(updates, sync=sync)
        self._expect()

    def tear(self, share: float, *updates: Update) -> None:
        """Add a step that writes only a share of a group before the process dies."""
        self.steps.append(Step(Do.TEAR, updates, share))
        self._waiting.clear()
        self._expect()

    def sync_fails(self, *updates: Update) -> None:
        """Add a step that writes a group whose sync fails; the restarted process keeps it."""
        self.steps.append(Step(Do.SYNC_FAILS, updates))
        self.plain.apply(updates)
        self._say(updates, sync=True)
        self._expect()

    def export(self, key: Key, index: int, *, drop: bool = False) -> None:
        """Add a step that exports a snapshot at `index`, or drops all exports up to it."""
        self.steps.append(Step(Do.DROP_EXPORTS if drop else Do.EXPORT, key=key, index=index))
        newest = self.exports.get(key, 0)
        if not drop:
            self.exports[key] = max(newest, index)
        elif newest <= index:
            self.exports[key] = 0
        self._expect()

    # --- building updates -----------------------------------------------------------------------

    def append(
        self,
        key: Key,
        count: int,
        *,
        size: int = 60,
        back: int = 0,
        new_term: bool = False,
        vote: int = 0,
        commit: int | None = None,
        kinds: Sequence[EntryKind] = (EntryKind.BLOCK,),
    ) -> Update:
        """An update with the next `count` entries of a replica, begun `back` entries earlier."""
        found = self.plain.replica(key)
        first = max(found.last + 1 - back, found.commit + 1, found.floor + 1)
        term = max(found.term, 1) + new_term
        return update(
            *key,
            [self.entry(key, first + n, term, size, kinds[n % len(kinds)]) for n in range(count)],
            hard=(
                term,
                vote if new_term else found.vote,
                found.commit if commit is None else min(commit, first + count - 1),
            ),
        )

    @staticmethod
    def entry(key: Key, index: int, term: int, size: int, kind: EntryKind) -> Entry:
        """An entry with its index as LSN and one record: no LSN depends on what was replaced."""
        payload = (b"%d.%d.%d.%d " % (*key, term, index) * size)[:size]
        return Entry(Term(term), Index(index), Lsn(index), 1, kind, payload)
