"""Which time of an append is in which stage, with a clock that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from logservice.clock import ManualClock
from logservice.entry import Entry, EntryKind
from logservice.envelope import ProposalId
from logservice.histogram import Histogram
from logservice.ids import Index, Lsn, Term
from logservice.nodehost.replica.append_stages import AppendStages
from logservice.nodehost.replica.pending import Pending, PendingBook
from logservice.outcome import Applied


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self.stages = AppendStages(self.clock)
        self.book = PendingBook(self.stages)

    def received(self) -> Pending:
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        return Pending(future, 1e9, 1, ProposalId(1, 1), self.clock.monotonic())

    def apply(self, index: int, *items: Pending, term: int = 1) -> None:
        entry = Entry(Term(term), Index(index), Lsn(1), 1, EntryKind.BLOCK, b"")
        self.book.applied(entry, [(item.proposal, Applied()) for item in items])

    def totals_ms(self) -> dict[str, int]:
        found = {**self.stages.stages(), "whole": self.stages.whole.histogram()}
        return {name: round(one.total / 1000) for name, one in found.items()}

    def count(self) -> int:
        (count,) = {sum(one.counts) for one in self.histograms()}
        return count

    def histograms(self) -> list[Histogram]:
        return [*self.stages.stages().values(), self.stages.whole.histogram()]


async def test_the_stages_are_the_times_between() -> None:
    world = World()
    early = world.received()
    world.clock.advance(0.010)
    late = world.received()
    world.clock.advance(0.020)
    world.book.register(5, 1, [early, late])
    world.clock.advance(0.040)
    world.book.committed(5)
    world.clock.advance(0.080)
    world.apply(5, early, late)
    assert world.count() == 2
    assert world.totals_ms() == {
        "queue": 30 + 20,
        "replicate": 40 * 2,
        "apply": 80 * 2,
        "whole": 150 + 140,
    }


async def test_an_entry_is_committed_when_the_commit_index_first_reaches_it() -> None:
    world = World()
    first, second, third = (world.received() for _ in range(3))
    for index, item in ((5, first), (6, second), (7, third)):
        world.book.register(index, 1, [item])
    for commit in (4, 5, 5, 7):  # the one before, and twice the same
        world.clock.advance(0.010)
        world.book.committed(commit)
    world.clock.advance(0.010)
    for index, item in ((5, first), (6, second), (7, third)):
        world.apply(index, item)
    assert world.totals_ms() == {
        "queue": 0,
        "replicate": 20 + 40 + 40,
        "apply": 30 + 10 + 10,
        "whole": 150,
    }
    assert len(world.book._commits) == 1, "what is below the applied index is let go"


@pytest.mark.parametrize("expired", [False, True])
async def test_an_append_counts_also_when_its_caller_has_given_up(expired: bool) -> None:
    world = World()
    item, other = world.received(), world.received()
    world.book.register(5, 1, [item, other])
    if expired:
        item.future.cancel()
    world.clock.advance(0.010)
    world.apply(5, item, other)
    assert world.count() == 2
    assert world.totals_ms()["whole"] == 20


async def test_what_another_leaders_entry_replaced_is_not_counted_as_applied() -> None:
    world = World()
    world.book.register(5, 1, [world.received()])
    world.apply(5, world.received(), term=2)
    assert [sum(one.counts) for one in world.histograms()] == [1, 0, 0, 0]


async def test_a_command_is_no_append() -> None:
    world = World()
    item = world.received()
    world.book.register(5, 1, [Pending(item.future, 1e9, 1, item.proposal)])
    world.book.committed(5)
    world.apply(5, item)
    assert world.count() == 0
