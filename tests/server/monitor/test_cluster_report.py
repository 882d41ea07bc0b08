"""Which callers share a report on the cluster that was made for another, and which never do."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from logservice_wire.errors import NotReady

from logservice import bounds
from logservice.clock import ManualClock
from logservice.config import parse
from logservice.hakeeper.answers.views import ClusterView
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.server.monitor.cluster.report import ClusterReporter
from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.own.event_ring import EventRing
from logservice.server.monitor.own.reporter import StatusReporter
from logservice.server.monitor.own.status import StoreStatus
from tests.server.monitor.samples import shard_view, view
from tests.server.monitor.test_watch import CONFIG


class Slow(StatusReporter):
    """A reporter that takes time of the loop for every status."""

    takes_s = 0.0

    def status(self, age_s: float = bounds.ADMIN_STATUS_AGE_S) -> StoreStatus:
        cast(ManualClock, self._clock).advance(self.takes_s)
        return super().status(age_s)


class Asked:
    """A reporter whose HAKeeper answers when the test says so; every report asks HAKeeper once."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.questions = 0
        self._answers = asyncio.Semaphore(0)
        self.applied: ClusterView | None = None
        self.beats = SimpleNamespace(last_success_s=None)
        host = SimpleNamespace(
            clock=self.clock,
            requests=SimpleNamespace(register=lambda *_: None, ask=self._no_answer),
            replicas=SimpleNamespace(info=lambda shard: self.applied),
        )
        book = SimpleNamespace(peer_addresses=dict)
        parts = SimpleNamespace(
            host=host,
            book=book,
            client=SimpleNamespace(cluster=self._ask, events=None),
            heartbeats=self.beats,
        )
        self.own = Slow(parse(CONFIG), EventRing(10), dict, self.clock)
        self.reporter = ClusterReporter(cast(StoreParts, parts), self.own)

    async def _ask(self, timeout_s: float, stale: bool = False) -> ClusterView:
        if stale:
            assert self.applied is not None
            return self.applied
        self.questions += 1
        await self._answers.acquire()
        raise NotReady(f"question {self.questions}")

    async def _no_answer(self, *asked: object) -> bytes:
        raise NotReady("refused")

    def answer(self) -> None:
        self._answers.release()

    async def ask(self, *, made_now: bool) -> asyncio.Task[ClusterReport]:
        """Begin a report; it gets as far as it can without an answer."""
        self.clock.advance(0.001)
        asked = asyncio.create_task(self.reporter.report(made_now=made_now))
        for _ in range(10):
            await asyncio.sleep(0)
        return asked


def question(report: ClusterReport) -> str:
    return report.cluster.hakeeper_error


async def test_a_picture_is_shared_for_a_second() -> None:
    asked = Asked()
    asked.answer()
    first = await asked.reporter.report()
    asked.clock.advance(bounds.ADMIN_CLUSTER_AGE_S / 2)
    assert await asked.reporter.report() is first
    asked.clock.advance(bounds.ADMIN_CLUSTER_AGE_S)
    asked.answer()
    assert await asked.reporter.report() is not first


async def test_who_asks_for_one_made_now_gets_none_from_before() -> None:
    asked = Asked()
    asked.answer()
    old = await asked.reporter.report()
    decider = await asked.ask(made_now=True)
    assert not decider.done()
    asked.answer()
    new = await decider
    assert new is not old
    assert asked.questions == 2
    assert await asked.reporter.report() is new  # the page gets the new report, too


async def test_a_picture_under_way_began_too_early_and_the_next_one_serves_all_who_wait() -> None:
    asked = Asked()
    page = await asked.ask(made_now=False)
    deciders = [await asked.ask(made_now=True) for _ in range(3)]
    asked.answer()
    first = await page
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(decider.done() for decider in deciders)
    asked.answer()
    found = [await decider for decider in deciders]
    assert all(one is found[0] for one in found)
    assert found[0] is not first
    assert asked.questions == 2


async def test_a_picture_that_took_long_is_followed_by_a_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller that wants a report made now waits for the rest, too, because many such callers must
    not get the whole loop.
    """
    asked = Asked()
    asked.own.takes_s = 0.3
    asked.answer()
    await asked.reporter.report()
    over_s = asked.clock.monotonic() + 10 * 0.3

    async def sleep(seconds: float) -> None:
        asked.clock.advance(max(0.0, seconds))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asked.answer()
    await asked.reporter.report(made_now=True)
    assert asked.clock.monotonic() == pytest.approx(over_s + 0.3)
    assert asked.questions == 2


async def test_a_decider_who_gives_up_costs_the_others_nothing() -> None:
    asked = Asked()
    impatient = await asked.ask(made_now=True)
    page = await asked.ask(made_now=False)
    impatient.cancel()
    asked.answer()
    assert "question 1" in question(await page)


async def test_what_is_only_remembered_is_as_old_as_the_last_answer() -> None:
    """Its age does not begin with the look at it."""
    asked = Asked()
    asked.applied = view()
    asked.answer()
    row = (await asked.reporter.report(made_now=True)).cluster
    assert row.phase == "running"
    assert (row.hakeeper_age_s, row.hakeeper_silent_s) == (-1.0, -1.0)
    asked = Asked()
    asked.applied = view()
    asked.beats.last_success_s = asked.clock.monotonic()
    asked.clock.advance(95.0)
    asked.answer()
    row = (await asked.reporter.report(made_now=True)).cluster
    assert (row.hakeeper_age_s, row.hakeeper_silent_s) == (95.0, 95.0)
    # No newer view is remembered, so the view grows older, although heartbeats were answered since.
    asked.clock.advance(5.0)
    asked.beats.last_success_s = asked.clock.monotonic()
    asked.answer()
    row = (await asked.reporter.report(made_now=True)).cluster
    assert (row.hakeeper_age_s, row.hakeeper_silent_s) == (100.0, 0.0)


async def test_a_picture_of_many_shards_lets_other_work_run() -> None:
    """It reaches ADMIN_ROWS_PER_SLICE."""

    async def turns_of_others(shards: int) -> int:
        asked = Asked()
        asked.applied = view(*map(shard_view, range(1, shards + 1)))
        began = await asked.ask(made_now=False)
        turns = 0

        async def other_work() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        asked.answer()
        working = asyncio.create_task(other_work())
        report = await began
        working.cancel()
        assert len(report.shards) == shards
        return turns

    few = await turns_of_others(1)
    assert await turns_of_others(5 * bounds.ADMIN_ROWS_PER_SLICE) == few + 5
