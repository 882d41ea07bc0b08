"""Log storage against a plain dictionary: any operations, any crashes, the same answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, ShardId, Term
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot, Update
from logservice.logdb.options import LogDbOptions
from tests.logdb.helpers import World, all_entries, installed, log_of, members

REPLICAS = [(1, 1), (1, 2), (2, 1), (7, 300)]
CONFIGURATIONS = [
    LogDbOptions(segment_bytes=4096, entry_cache_bytes=0, ballast_bytes=0),
    LogDbOptions(segment_bytes=4096, entry_cache_bytes=1 << 20, ballast_bytes=4096),
    LogDbOptions(
        segment_bytes=6000, entry_cache_bytes=700, ballast_bytes=0, rewrite_live_ratio=0.9
    ),
    LogDbOptions(segment_bytes=16384, entry_cache_bytes=0, ballast_bytes=0, rewrite_live_ratio=0.0),
    LogDbOptions(
        segment_bytes=5000,
        entry_cache_bytes=0,
        ballast_bytes=0,
        rewrite_live_ratio=1.0,
        rewrite_bytes_max=500,
    ),
]


@dataclass
class Model:
    """A simple model of one replica."""

    hard: HardState = field(default_factory=HardState)
    floor: tuple[int, int, int] = (0, 0, 1)
    snapshot: InstalledSnapshot | None = None
    bootstrap: Bootstrap | None = None
    log: dict[int, Entry] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return max(self.log, default=self.floor[0])

    def next_lsn(self, index: int) -> int:
        return self.floor[2] if index == self.floor[0] else self.log[index].next_lsn

    def term(self, index: int) -> int:
        return self.floor[1] if index == self.floor[0] else self.log[index].term


class LogDbMachine(RuleBasedStateMachine):
    """Rules build one group of updates at a time. After every rule the model equals the store."""

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[tuple[int, int], Model] = {}
        self.removed: set[tuple[int, int]] = set()

    @initialize(options=st.sampled_from(CONFIGURATIONS))
    def start(self, options: LogDbOptions) -> None:
        self.world = World(options=options)
        self.db = self.world.open()

    def model(self, key: tuple[int, int]) -> Model | None:
        if key in self.removed:
            return None
        return self.models.setdefault(key, Model())

    @rule(
        keys=st.lists(st.sampled_from(REPLICAS), min_size=1, max_size=4, unique=True),
        back=st.integers(0, 6),
        counts=st.lists(st.integers(0, 3), min_size=1, max_size=5),
        size=st.sampled_from([0, 1, 30, 700]),
        new_term=st.booleans(),
    )
    def append(
        self, keys: list[tuple[int, int]], back: int, counts: list[int], size: int, new_term: bool
    ) -> None:
        updates = []
        for key in keys:
            model = self.model(key)
            if model is None:
                continue
            first = max(model.last + 1 - back, model.hard.commit + 1, model.floor[0] + 1)
            term = max(model.term(model.last), model.hard.term, 1) + new_term
            lsn = model.next_lsn(first - 1)
            new: list[Entry] = []
            for number, count in enumerate(counts):
                payload = (b"%d.%d.%d " % (term, first + number, lsn) * size)[:size]
                new.append(
                    Entry(
                        Term(term),
                        Index(first + number),
                        Lsn(lsn),
                        count,
                        EntryKind.BLOCK if count else EntryKind.COMMAND,
                        payload,
                    )
                )
                lsn += count
            hard = HardState(Term(term), ReplicaId(term % 5), model.hard.commit)
            for index in [i for i in model.log if i >= first]:
                del model.log[index]
            model.log.update((e.index, e) for e in new)
            if term != model.hard.term:
                model.hard = hard
            updates.append(
                Update(ShardId(key[0]), ReplicaId(key[1]), model.hard, entries=tuple(new))
            )
        self.db.commit(updates)

    @rule(key=st.sampled_from(REPLICAS), share=st.floats(0, 1), sync=st.booleans())
    def advance_commit(self, key: tuple[int, int], share: float, sync: bool) -> None:
        model = self.model(key)
        if model is None:
            return
        commit = model.hard.commit + int((model.last - model.hard.commit) * share)
        model.hard = HardState(model.hard.term, model.hard.vote, Index(commit))
        self.db.commit([Update(ShardId(key[0]), ReplicaId(key[1]), model.hard)], sync=sync)
        if not sync:
            # It may be lost; a crash rule would have to know. Make it travel with something.
            self.db.commit(
                [Update(ShardId(99), ReplicaId(1), bootstrap=Bootstrap(members(), True))]
            )

    @rule(key=st.sampled_from(REPLICAS), share=st.floats(0, 1))
    def install(self, key: tuple[int, int], share: float) -> None:
        model = self.model(key)
        if model is None or model.hard.commit <= model.floor[0]:
            return
        index = model.floor[0] + int((model.hard.commit - model.floor[0]) * share)
        snapshot = installed(index, model.term(index), model.next_lsn(index), b"%d" % index)
        self.db.commit([Update(ShardId(key[0]), ReplicaId(key[1]), snapshot=snapshot)])
        model.floor = (index, snapshot.snapshot.term, snapshot.snapshot.next_lsn)
        model.snapshot = snapshot
        for old in [i for i in model.log if i <= index]:
            del model.log[old]

    @rule(key=st.sampled_from(REPLICAS), ahead=st.integers(-3, 9), term=st.integers(0, 2))
    def receive_snapshot(self, key: tuple[int, int], ahead: int, term: int) -> None:
        model = self.model(key)
        if model is None:
            return
        index = max(model.last + ahead, model.hard.commit, model.floor[0], 1)
        new_term = max(model.hard.term, model.term(model.last)) + term
        snapshot = installed(index, new_term, index * 10 + 1)
        model.hard = HardState(Term(new_term), ReplicaId(new_term % 5), Index(index))
        self.db.commit(
            [
                Update(
                    ShardId(key[0]),
                    ReplicaId(key[1]),
                    model.hard,
                    snapshot=snapshot,
                    reset_log=True,
                    bootstrap=Bootstrap(members(), join=True),
                )
            ]
        )
        model.log.clear()
        model.floor = (index, new_term, index * 10 + 1)
        model.snapshot = snapshot
        model.bootstrap = Bootstrap(members(), join=True)

    @rule(key=st.sampled_from(REPLICAS[2:]))
    def remove(self, key: tuple[int, int]) -> None:
        if key not in self.removed:
            self.db.commit([Update(ShardId(key[0]), ReplicaId(key[1]), remove=True)])
            self.removed.add(key)
            self.models.pop(key, None)

    @rule()
    def collect_garbage(self) -> None:
        self.db.collect_garbage()

    @rule()
    def mark(self) -> None:
        self.db.mark_durable()

    @rule(options=st.sampled_from(CONFIGURATIONS))
    def restart(self, options: LogDbOptions) -> None:
        self.world.close(self.db)
        self.db = self.world.open(options)

    @rule()
    def kill(self) -> None:
        self.db = self.world.kill()

    @rule()
    def cut_power(self) -> None:
        self.world.memory.crash()
        self.db = self.world.open()

    @precondition(lambda self: self.models)
    @rule()
    def lose_the_index(self) -> None:
        self.world.memory.kill()
        self.world.kv.destroy("/data/index")
        self.db = self.world.open()

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "db"):
            return
        assert not self.db.recovery_report.damages
        assert self.db.removed() == self.removed
        keys = {*self.models, *self.removed, (99, 1)}
        assert {key for key in keys if _asked(self.db.has_removed, key)} == self.removed
        assert sorted(key for key in keys if _asked(self.db.stores, key)) == self.db.replicas()
        for key, model in self.models.items():
            log = log_of(self.db, *key)
            assert not log.faulty, key
            assert log.hard_state == model.hard, key
            assert (log.installed, log.bootstrap) == (model.snapshot, model.bootstrap), key
            assert (log.first_index(), log.last_index()) == (model.floor[0] + 1, model.last), key
            assert all_entries(log) == tuple(model.log[i] for i in sorted(model.log)), key
            for index in (log.first_index() - 1, log.last_index()):
                assert log.term(Index(index)) == model.term(index)
                assert log.next_lsn(Index(index)) == model.next_lsn(index)
            for found in model.log.values():
                for lsn in {found.lsn, found.next_lsn - 1} if found.record_count else ():
                    assert log.index_of_lsn(Lsn(lsn)) == found.index


def _asked(question: Callable[[ShardId, ReplicaId], bool], key: tuple[int, int]) -> bool:
    return question(ShardId(key[0]), ReplicaId(key[1]))


TestLogDbModel = LogDbMachine.TestCase
TestLogDbModel.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
