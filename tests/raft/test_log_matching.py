"""Log matching against a deliberately dumb model: one follower, and every leader it might hear of.

The world is a list of leaders' logs, one per term, each as a correct election would allow. Such a
log is an older one that has every committed entry, cut anywhere above those and extended. Messages
quote any of the logs, in any order: old, repeated, overlapping, with LSNs that do not fit. The
model of the follower is a list of entries and four lines of the paper (figure 2, AppendEntries 2
to 5).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.raft.config import RaftConfig
from logservice.raft.core import Raft
from logservice.raft.errors import MessageRejected, RejectReason
from logservice.raft.log.memory_storage import MemoryStorage
from logservice.raft.messages import AppendEntries, AppendResponse
from tests.raft.cluster import first_snapshot, membership

HISTORIES = 1000
MESSAGES = 30
"""Messages per history: 30 000 cases in all."""

ME = ReplicaId(9)
START = Entry(Term(1), Index(1), Lsn(1), 0, EntryKind.NOOP, b"")
"""Where every log starts: the first snapshot."""


@dataclass
class World:
    """Leaders' logs by term; the first `committed` entries are in every later one."""

    drawn: random.Random
    logs: dict[int, list[Entry]] = field(default_factory=lambda: {1: [START]})
    committed: int = 1

    def elect(self) -> None:
        """The log of a new term's leader: an older log, cut above its committed entries, and new
        ones.
        """
        term = max(self.logs) + 1
        fitting = [log for log in self.logs.values() if self.agree(log) == self.committed]
        log = list(self.drawn.choice(fitting))
        del log[self.drawn.randrange(self.committed, len(log) + 1) :]
        for _ in range(self.drawn.randrange(1, 5)):
            count = self.drawn.randrange(3)
            kind = EntryKind.BLOCK if count else EntryKind.NOOP
            log.append(Entry(Term(term), Index(len(log) + 1), log[-1].next_lsn, count, kind, b""))
        self.logs[term] = log

    def commit(self) -> None:
        """The newest leader commits some of its log."""
        log = self.logs[max(self.logs)]
        self.committed = self.drawn.randrange(self.committed, len(log) + 1)

    def agree(self, log: Sequence[Entry]) -> int:
        """How many of the committed entries are in `log`."""
        known = self.logs[max(self.logs)][: self.committed]
        return sum(one == other for one, other in zip(log, known, strict=False))

    def message(self) -> AppendEntries:
        """A message that some leader may have sent at some time."""
        drawn = self.drawn
        newest = max(self.logs)
        term = newest if drawn.random() < 0.6 else drawn.randrange(1, newest + 1)
        log = self.logs[term]
        previous = drawn.randrange(1, len(log) + 1)
        end = min(len(log), previous + drawn.randrange(5))
        return AppendEntries(
            to=ME,
            sender=ReplicaId(1 + term % 5),
            term=Term(term),
            prev_index=Index(previous),
            prev_term=log[previous - 1].term,
            entries=tuple(log[previous:end]),
            commit=Index(drawn.randrange(self.agree(log) + 1)),
        )


@dataclass
class Model:
    """The follower of the paper; LSNs are checked as INV-LOG-LSN says."""

    log: list[Entry] = field(default_factory=lambda: [START])
    commit: int = 1
    term: int = 1

    def append(self, m: AppendEntries) -> int | RejectReason | None:
        """The acknowledged index; None when it is refused or dropped; or why no leader sends
        this.
        """
        if m.term < self.term:
            return None
        self.term = m.term
        if m.prev_index < self.commit:
            return self.commit
        if m.prev_index > len(self.log) or self.log[m.prev_index - 1].term != m.prev_term:
            return None
        if m.entries and m.entries[0].lsn != self.log[m.prev_index - 1].next_lsn:
            return RejectReason.LSN_MISMATCH
        for entry in m.entries:
            if entry.index > len(self.log) or self.log[entry.index - 1].term != entry.term:
                self.log[entry.index - 1 :] = [entry]
        last = m.prev_index + len(m.entries)
        self.commit = max(self.commit, min(m.commit, last))
        return last


def follower() -> tuple[Raft, MemoryStorage]:
    storage = MemoryStorage(first_snapshot(membership([1, 2, 3, 4, 5, ME])))
    start = storage.snapshot()
    raft = Raft(
        RaftConfig(ME, 10, 1),
        storage,
        HardState(Term(1)),
        start.membership,
        start.index,
        lambda _: 0,
    )
    return raft, storage


def answer(raft: Raft, storage: MemoryStorage, m: AppendEntries) -> int | RejectReason | None:
    """The core's answer in the model's terms; everything that it wrote becomes durable."""
    try:
        raft.step(m)
    except MessageRejected as rejected:
        return rejected.reason
    acknowledged: int | None = None
    while (ready := raft.take_ready()) is not None:
        storage.save(ready.hard_state, ready.entries, ready.snapshot)
        raft.persisted(ready)
        if ready.committed_entries:
            raft.applied(ready.committed_entries[-1].index)
        for response in ready.messages_after_append:
            assert isinstance(response, AppendResponse)
            if not response.reject and response.index:  # index 0 only tells an old leader our term
                acknowledged = response.index
    return acknowledged


def shifted(m: AppendEntries) -> AppendEntries:
    """The same entries with LSNs that fit each other but not the entries before them."""
    return replace(m, entries=tuple(replace(e, lsn=Lsn(e.lsn + 1)) for e in m.entries))


def test_a_follower_against_the_model() -> None:
    seen = dict.fromkeys(("acknowledged", "refused", "lsn", "overwritten", "committed"), 0)
    for seed in range(HISTORIES):
        one_history(random.Random(seed), seen)
    assert all(count > 400 for count in seen.values()), seen


def one_history(drawn: random.Random, seen: dict[str, int]) -> None:
    world, model = World(drawn), Model()
    raft, storage = follower()
    for _ in range(MESSAGES):
        if drawn.random() < 0.2:
            world.elect()
        if drawn.random() < 0.1:
            world.commit()
        m = world.message()
        if drawn.random() < 0.1:
            m = shifted(m)
        before, committed = list(model.log), model.log[: model.commit]
        expected = model.append(m)
        assert answer(raft, storage, m) == expected
        stored = storage.entries(Index(2), Index(storage.last_index() + 1), 2**60)
        assert list(stored) == model.log[1:]
        assert (raft.last_index, raft.commit) == (len(model.log), model.commit)
        assert raft.next_lsn == model.log[-1].next_lsn
        assert model.log[: len(committed)] == committed, "what is committed stays"
        seen["acknowledged"] += isinstance(expected, int)
        seen["refused"] += expected is None
        seen["lsn"] += expected is RejectReason.LSN_MISMATCH
        seen["overwritten"] += model.log[: len(before)] != before
        seen["committed"] += model.commit > len(committed)
