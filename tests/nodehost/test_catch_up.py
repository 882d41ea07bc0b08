"""The limit of catch-up: who waits for a turn, what is paid for it, and that every turn comes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from logservice import bounds
from logservice.clock import ManualClock
from logservice.entry import Entry
from logservice.ids import Index
from logservice.logdb.log_db import LogDb
from logservice.logdb.read.entry_read import Fetch
from logservice.nodehost.replica.catch_up import CatchUpBudget, CatchUpGate
from logservice.nodehost.replica.log_reader import LogReader
from logservice.raft.log.storage import UnavailableError
from tests.logdb.helpers import World, entries, log_of, update

MESSAGE = bounds.CATCH_UP_TURN_BYTES
RATE = 4 * MESSAGE
BURST = RATE * bounds.CATCH_UP_BURST_S


class Timers:
    """A clock, and what is to be called when it gets there."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self.due: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay_s: float, call: Callable[[], object]) -> Timers:
        self.due.append((self.clock.monotonic() + delay_s, call))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def advance(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while self.due and self.due[0][0] <= end:
            at, call = self.due.pop(0)
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            call()
        self.clock.advance(end - self.clock.monotonic())


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    made = Timers()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    return made


class Told(list[tuple[str, int]]):
    """Who was given a turn, and for what."""


class Asking(CatchUpGate):
    """Whoever asks for turns, without a log."""

    def __init__(self, name: str, told: Told) -> None:
        self.name = name
        self.told = told

    def granted(self, low: int, paid: int, free_bytes: int) -> None:
        self.told.append((self.name, low))
        self.paid = paid, free_bytes


def test_turns_come_in_their_order_and_at_the_rate(timers: Timers) -> None:
    """INV-CATCHUP-2: forty messages of one do not delay another's first."""
    budget, told = CatchUpBudget(timers.clock, RATE), Told()
    one, other = Asking("one", told), Asking("other", told)
    for low in (1, 2, 3):
        budget.ask(one, low, 0)
    budget.ask(other, 7, 0)
    assert told == [("one", 1)]
    assert (budget.waiting, budget.delayed) == (3, 3)
    timers.advance(0.26)
    assert told == [("one", 1), ("one", 2)]
    timers.advance(0.5)
    assert told == [("one", 1), ("one", 2), ("one", 3), ("other", 7)]
    assert budget.waiting == 0


def test_who_is_given_a_turn_may_ask_for_the_next(timers: Timers) -> None:
    """A replica that is told asks within that, if its turn of the loop lasts for a tick: turns are
    not given inside another one, and one timer waits for the next.
    """
    budget, told = CatchUpBudget(timers.clock, RATE), Told()
    depth, deepest = 0, 0

    class Greedy(Asking):
        def granted(self, low: int, paid: int, free_bytes: int) -> None:
            nonlocal depth, deepest
            depth += 1
            deepest = max(deepest, depth)
            super().granted(low, paid, free_bytes)
            if low < 6:
                budget.ask(self, low + 1, MESSAGE // 2)
            depth -= 1

    greedy = Greedy("one", told)
    budget.ask(greedy, 1, 0)
    budget.ask(greedy, 3, 0)
    timers.advance(0.25)
    assert deepest == 1
    assert len(timers.due) <= 1
    timers.advance(10.0)
    assert sorted(low for _, low in told) == [1, 2, 3, 3, 4, 4, 5, 5, 6, 6]


def test_no_more_is_handed_out_than_the_rate(timers: Timers) -> None:
    """INV-CATCHUP-1, over any time, whatever part of a message is used."""
    chance = random.Random(3)
    budget, told = CatchUpBudget(timers.clock, RATE), Told()
    asking = Asking("one", told)
    sent: list[tuple[float, int]] = []
    for low in range(400):
        budget.ask(asking, low, 0)
        while (told[-1:] or [("", -1)])[0] != ("one", low):
            timers.advance(0.001)
        size = chance.choice((MESSAGE, MESSAGE // 3, 100))
        budget.used(size, *asking.paid)
        sent.append((timers.clock.monotonic(), size))
        if chance.random() < 0.02:
            timers.advance(5.0)
    for first in range(0, len(sent), 7):
        total = 0
        for at, size in sent[first:]:
            total += size
            assert total <= RATE * (at - sent[first][0]) + BURST + MESSAGE + 1
    spent_s = sent[-1][0] - sent[0][0]
    assert budget.sent_bytes == sum(size for _, size in sent)
    assert spent_s < 5.0 * 20 + budget.sent_bytes / RATE * 1.2, "what was not used is paid back"


def test_an_entry_larger_than_a_message_is_paid_for(timers: Timers) -> None:
    budget, told = CatchUpBudget(timers.clock, RATE), Told()
    asking = Asking("one", told)
    budget.ask(asking, 1, 0)
    budget.used(8 * MESSAGE, *asking.paid)
    budget.ask(asking, 2, 0)
    timers.advance(1.9)
    assert told == [("one", 1)]
    timers.advance(0.1)
    assert told == [("one", 1), ("one", 2)]


def test_what_the_log_grew_by_is_not_paid_for(timers: Timers) -> None:
    """A log that takes in more than the limit does not lose its member."""
    budget, told = CatchUpBudget(timers.clock, RATE), Told()
    asking = Asking("one", told)
    for low in range(100):
        budget.ask(asking, low, 2 * MESSAGE)
        budget.used(MESSAGE, *asking.paid)
    assert len(told) == 100
    budget.ask(asking, 100, MESSAGE // 2)
    budget.used(MESSAGE, *asking.paid)
    budget.ask(asking, 101, 0)
    assert len(told) == 101
    timers.advance(0.13)
    assert len(told) == 102, "half of the message was paid for"


def test_another_rate_is_in_force_at_once(timers: Timers) -> None:
    budget, told = CatchUpBudget(timers.clock, RATE), Told()
    asking = Asking("one", told)
    for low in range(5):
        budget.ask(asking, low, 0)
    budget.change(100 * RATE)
    timers.advance(0.26)
    assert len(told) == 5, "what was owed stays owed for as long as it was, one message"
    budget.change(0)
    assert budget.bytes_per_s == RATE, "what the store is configured to"
    budget.change(RATE)
    assert budget.bytes_per_s == RATE


def test_without_a_limit_nobody_waits(timers: Timers) -> None:
    budget, told = CatchUpBudget(timers.clock, 0), Told()
    asking = Asking("one", told)
    for low in range(100):
        budget.ask(asking, low, 0)
    assert (len(told), budget.delayed) == (100, 0)


def test_whoever_stops_waits_no_more(timers: Timers) -> None:
    budget, told = CatchUpBudget(timers.clock, RATE), Told()
    one, other = Asking("one", told), Asking("other", told)
    budget.ask(one, 1, 0)
    budget.ask(one, 2, 0)
    budget.ask(other, 3, 0)
    budget.leave(one)
    timers.advance(0.5)
    assert told == [("one", 1), ("other", 3)]


# --- the gate of a replica, and its reader --------------------------------------------------------

SMALL = 3000
"""A message of three entries."""


@pytest.fixture
def log() -> Iterator[LogDb]:
    world = World()
    db = world.open()
    for first in range(1, 41, 8):
        db.commit([update(1, 1, entries(first, first + 7, size=1000))])
    yield db
    world.close(db)


class Sender:
    """A reader with a gate: a leader's, whose log has 40 entries of 1000 bytes, 30 applied."""

    def __init__(self, db: LogDb, budget: CatchUpBudget, behind_bytes: int = 20_000) -> None:
        self.woken = 0
        self.db = db
        self.urgent = False
        self.gate = CatchUpGate(
            budget, log_of(db), behind_bytes, self.wake, urgent=lambda: self.urgent
        )
        self.applied = Index(30)
        self.fetches: list[Fetch] = []
        self.reader = LogReader(
            log_of(db), self.fetches.append, gate=self.gate, applied=lambda: self.applied
        )

    def wake(self) -> None:
        self.woken += 1

    def send(self, low: int, size: int = 4000) -> tuple[Entry, ...] | None:
        """What leaves for a member that needs `low` next; the disk answers at once."""
        last = log_of(self.db).last_index()
        try:
            return self.reader.entries(Index(low), Index(last + 1), size)
        except UnavailableError:
            if not self.fetches:
                return None
        work: Future[None] = Future()
        work.set_result(None)
        for fetch in self.fetches:
            fetch.run()
            self.reader.arrived(work, fetch)
        self.fetches.clear()
        self.reader.take_arrived()
        try:
            return self.send(low, size)
        finally:
            self.reader.forget()


def used_up(timers: Timers) -> CatchUpBudget:
    budget = CatchUpBudget(timers.clock, 4 * SMALL, SMALL)
    budget.ask(Asking("before", Told()), 1, 0)
    return budget


def test_only_who_is_far_behind_waits(timers: Timers, log: LogDb) -> None:
    sender = Sender(log, used_up(timers))
    assert sender.send(25) == entries(25, 28, size=1000), "it keeps up"
    assert sender.send(31) == entries(31, 34, size=1000), "what is to be applied here"
    assert sender.send(2) is None
    assert sender.send(2) is None, "asking again changes nothing"
    assert not sender.reader.turn_came()
    timers.advance(0.3)
    assert sender.woken == 1
    assert sender.reader.turn_came()
    assert not sender.reader.turn_came()
    assert sender.send(2) == entries(2, 4, size=1000)
    assert sender.send(2) is None, "one turn, one message"
    assert sender.send(31) == entries(31, 34, size=1000)


def test_what_a_replica_applies_waits_for_no_turn(timers: Timers, log: LogDb) -> None:
    """Else a restart would wait for other members' catch-up."""
    sender = Sender(log, used_up(timers))
    sender.applied = Index(1)
    assert sender.send(2) == entries(2, 5, size=1000)


def test_a_shard_that_stands_still_waits_for_no_turn(timers: Timers, log: LogDb) -> None:
    """No majority has what is committed: the log goes on when a member has caught up."""
    sender = Sender(log, used_up(timers))
    assert sender.send(2) is None
    sender.urgent = True
    assert sender.send(2) == entries(2, 5, size=1000)
    assert sender.send(6) == entries(6, 9, size=1000)
    sender.urgent = False
    assert sender.send(10) is None


def test_two_members_have_their_turns(timers: Timers, log: LogDb) -> None:
    sender = Sender(log, used_up(timers))
    assert (sender.send(2), sender.send(9)) == (None, None)
    timers.advance(0.3)
    assert sender.send(9) is None
    assert sender.send(2) == entries(2, 4, size=1000)
    timers.advance(0.3)
    assert sender.send(9) == entries(9, 11, size=1000)


def test_a_turn_at_once_wakes_nobody(timers: Timers, log: LogDb) -> None:
    sender = Sender(log, CatchUpBudget(timers.clock, RATE, SMALL))
    assert sender.send(2) == entries(2, 4, size=1000)
    assert (sender.woken, sender.reader.turn_came()) == (0, False)


def test_stale_turns_do_not_keep_a_member_out(timers: Timers, log: LogDb) -> None:
    """INV-CATCHUP-3: a member that moved on while it waited leaves its old turns behind."""
    sender = Sender(log, CatchUpBudget(timers.clock, RATE), behind_bytes=1000)
    for round_ in range(5):
        for low in range(2, 30):
            sender.send(low, 1)
        timers.advance(10.0)
        assert sender.send(2 + round_) is not None


def test_growth_since_the_last_turn_is_free(timers: Timers, log: LogDb) -> None:
    budget = CatchUpBudget(timers.clock, 4 * SMALL, SMALL)
    sender = Sender(log, budget)
    assert sender.send(2) == entries(2, 4, size=1000)
    assert budget.sent_bytes == SMALL
    log.commit([update(1, 1, entries(41, 48, size=2000))])
    timers.advance(0.3)
    assert sender.send(5) is not None
    assert sender.send(8) is not None, "the message before was free"
    assert sender.send(11) is None


def test_a_replica_that_stops_leaves_the_queue(timers: Timers, log: LogDb) -> None:
    budget = used_up(timers)
    sender = Sender(log, budget)
    assert sender.send(2) is None
    assert budget.waiting == 1
    sender.gate.stop()
    assert budget.waiting == 0
    timers.advance(1.0)
    assert sender.woken == 0
