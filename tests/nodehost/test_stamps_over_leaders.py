"""No leader that keeps the rules makes an entry that is refused for its append time (INV-TIME-1).

A model of Raft's logs, and the real intake, stamps and state machine. Three replicas with clocks
that differ and jump, two of which stand beyond the last time that a clock may give, learn of the
raise at different times. Leaders change, also with entries that are on no majority; an old leader
goes on in its own log until it hears of the new one; proposals are dropped.
"""

from __future__ import annotations

import random

import pytest

from logservice.bounds import APPEND_TIME_US_MAX
from logservice.entry import Entry, EntryKind
from logservice.envelope import append_time_of
from logservice.ids import Index, Term
from logservice.nodehost.replica.append_time import AppendTime
from logservice.outcome import Rejected
from logservice.raft.errors import DropReason, ProposalDropped
from logservice.versions import KnownVersion
from tests.nodehost.test_intake import Bench, Wall

STEPS = 400


class Member(Bench):
    """A replica: its log is that of its core, and it applies what the model says is committed."""

    def __init__(self) -> None:
        super().__init__()
        self.wall = Wall(1)
        self.version = KnownVersion(1)
        self.leads = 0
        self.applied_term = 1
        self.times: list[int] = []
        self._begin()

    def _begin(self) -> None:
        self.intake._times = AppendTime(self.rsm, self.wall, self.version)

    @property
    def log(self) -> list[Entry]:
        return self.core.entries

    @property
    def newest(self) -> tuple[int, int]:
        return self.log[-1].term, len(self.log)

    def keep(self, log: list[Entry]) -> None:
        self.core.entries = list(log)
        self.core.next_lsn = log[-1].next_lsn

    def add_no_op(self) -> None:
        core = self.core
        index = Index(core.last_index + 1)
        self.log.append(Entry(core.term, index, core.next_lsn, 0, EntryKind.NOOP, b""))

    def apply(self, commit: int) -> None:
        for entry in self.log[self.rsm.state.applied_index : commit]:
            for _, outcome in self.rsm.update(entry):
                assert not isinstance(outcome, Rejected), (entry.index, outcome)
            self.applied_term = entry.term
            if entry.kind is EntryKind.BLOCK:
                self.times.append(append_time_of(entry.payload))

    def append(self, rng: random.Random) -> None:
        if self.leads != self.core.term:
            return
        drops = rng.random() < 0.2
        self.core.failure = ProposalDropped(DropReason.TRANSFERRING) if drops else None
        for _ in range(rng.randint(1, 3)):
            self.add().add_done_callback(lambda done: done.cancelled() or done.exception())
        self.drain(ready=self.applied_term == self.core.term)

    def restart(self) -> None:
        """Its process forgets what it stamped, and the state comes back from a snapshot."""
        self.leads = 0
        state = self.rsm.save_snapshot()
        self.rsm.recover_from_snapshot(state)
        self._begin()


class Model:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.members = [Member() for _ in range(3)]
        self.committed = self.members[0].log[:1]
        self.term = 1

    def elect(self) -> None:
        candidate = self.rng.choice(self.members)
        voter = self.rng.choice([one for one in self.members if one is not candidate])
        if voter.newest > candidate.newest:
            return
        self.term += 1
        for one in (candidate, voter):
            one.core.term = Term(self.term)
            one.leads = 0
        candidate.leads = self.term
        candidate.add_no_op()

    def replicate(self) -> None:
        leader = next((one for one in self.members if one.leads == self.term), None)
        if leader is None:
            return
        for one in self.members:
            if one is leader or self.rng.random() < 0.4:
                continue
            same = shared(one.log, leader.log)
            sent = self.rng.randint(same, len(leader.log))
            if sent > same or one.core.term < self.term:
                one.core.term, one.leads = Term(self.term), 0
                if sent > same:
                    one.keep(leader.log[:sent])
        for index in range(len(leader.log), len(self.committed), -1):
            having = sum(shared(one.log, leader.log) >= index for one in self.members)
            if having >= 2 and leader.log[index - 1].term == self.term:
                assert shared(self.committed, leader.log) == len(self.committed), "the model"
                self.committed = leader.log[:index]
                break

    def step(self) -> None:
        rng = self.rng
        one = rng.choice(self.members)
        match rng.choices(range(6), (1, 6, 6, 2, 0.3, 0.3))[0]:
            case 0:
                self.elect()
            case 1:
                self.replicate()
            case 2:
                one.append(rng)
            case 3:
                one.wall._now_us = rng.choice(
                    (0, 5, rng.randint(1, 10**6), APPEND_TIME_US_MAX, APPEND_TIME_US_MAX + 10**9)
                )
            case 4:
                one.version.learn(2)
            case _:
                one.restart()
        for member in self.members:
            member.apply(shared(member.log, self.committed))


def shared(one: list[Entry], other: list[Entry]) -> int:
    """How many entries both begin with."""
    pairs = zip(one, other, strict=False)
    ends = (at for at, (mine, its) in enumerate(pairs) if mine.term != its.term)
    return next(ends, min(len(one), len(other)))


@pytest.mark.parametrize("first", range(0, 60, 20))
async def test_every_stamp_of_every_leader_is_taken(first: int) -> None:
    stamped = plain = 0
    for seed in range(first, first + 20):
        model = Model(seed)
        for _ in range(STEPS):
            model.step()
        times = max((member.times for member in model.members), key=len)
        timed = [time for time in times if time]
        plain += len(times) - len(timed)
        stamped += len(timed)
        assert timed == sorted(set(timed)), seed
        assert times == [0] * (len(times) - len(timed)) + timed, seed
    assert stamped > 100
    assert plain > 10
