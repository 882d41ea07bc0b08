"""HeldLog: renewed in time, moved on request, and honest about what it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from logservice_client import LogClient, held_log
from logservice_client.bounds import HOLD_RENEWALS_PER_TTL
from logservice_client.held_log import HeldLog
from logservice_wire.errors import (
    HoldLost,
    HoldRefused,
    InvalidArgument,
    LogServiceError,
    NotReady,
    PermissionDenied,
    UnknownOutcome,
)

from tests.client.fake_server import FakeCluster
from tests.waiting import eventually

TTL_S = 60


@dataclass
class Log:
    """What a log knows of the hold. `fails`: what its next answers are."""

    shard_id: int = 7
    lsn: int = 0
    truncated: int = 0
    sets: int = 0
    renewals: int = 0
    released: bool = False
    fails: list[LogServiceError] = field(default_factory=list)
    during: Callable[[], None] = lambda: None
    stands_still: bool = False

    async def set_hold(self, name: str, lsn: int, *, ttl: int = 0) -> None:
        self._answers()
        assert ttl == TTL_S
        if lsn <= self.truncated:
            raise HoldRefused(first_lsn=self.truncated + 1)
        self.lsn = lsn
        self.sets += 1
        self.during()
        await asyncio.sleep(0)

    async def renew_hold(self, name: str, *, timeout: float | None = None) -> int:
        self._answers()
        self.renewals += 1
        if self.stands_still:
            await asyncio.Event().wait()
        if not self.lsn:
            raise HoldLost(name=name, first_lsn=self.truncated + 1)
        return self.lsn

    async def release_hold(self, name: str, *, timeout: float | None = None) -> None:
        self.released = True
        self.lsn = 0

    def _answers(self) -> None:
        if self.fails:
            raise self.fails.pop(0)


class Timer:
    """Every, by the time of the test."""

    def __init__(self, due_s: float, look: Callable[[], float]) -> None:
        self.due_s = due_s
        self.look = look
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


class Time:
    """The machine's time, which the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        self.asked: list[float] = []
        self._timers: list[Timer] = []
        monkeypatch.setattr(held_log, "boottime_s", lambda: self.now_s)
        monkeypatch.setattr(held_log, "Every", self._every)

    def _every(self, first_s: float, look: Callable[[], float]) -> Timer:
        self.asked.append(first_s)
        self._timers.append(Timer(self.now_s + first_s, look))
        return self._timers[-1]

    async def passes(self, seconds: float) -> None:
        """Time passes, and everybody does what is due."""
        self.now_s += seconds
        for timer in self._timers:
            if timer.due_s <= self.now_s and not timer.stopped:
                self.asked.append(timer.look())
                timer.due_s = self.now_s + self.asked[-1]
        await asyncio.sleep(0.001)


@pytest.fixture
async def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


async def test_what_is_left_stands_until_it_expires() -> None:
    log = Log()
    held = HeldLog(log, "job", 5, TTL_S)
    await held.set()
    await held.leave()
    assert (log.lsn, log.released) == (5, False)
    assert held.sure


async def test_it_is_renewed_at_a_third_of_its_time_and_released(time: Time) -> None:
    log = Log()
    async with HeldLog(log, "h", 5, TTL_S) as held:
        for number in range(1, 10):
            await time.passes(TTL_S / HOLD_RENEWALS_PER_TTL)
            assert log.renewals == number
            held.check()
    assert set(time.asked) == {TTL_S / HOLD_RENEWALS_PER_TTL}
    assert (log.sets, log.released) == (1, True)
    await time.passes(TTL_S)
    assert log.renewals == 9, "nobody renews it any more"


async def test_a_renewal_that_is_cancelled_is_followed_by_the_next(time: Time) -> None:
    """INV-CLIENT-TASK: a program may cancel all tasks of its loop."""
    log = Log()
    async with HeldLog(log, "h", 5, TTL_S) as held:
        for number in range(1, 4):
            log.stands_still = True
            await time.passes(TTL_S / HOLD_RENEWALS_PER_TTL)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0.001)
            log.stands_still = False
            await time.passes(TTL_S / HOLD_RENEWALS_PER_TTL)
            assert log.renewals == 2 * number
            held.check()


async def test_inv_client_hold_without_answers_it_is_sure_for_its_time_since_it_was_sent(
    time: Time,
) -> None:
    """INV-CLIENT-HOLD. The answer took four seconds: they do not count."""
    log = Log(during=lambda: setattr(time, "now_s", time.now_s + 4))
    async with HeldLog(log, "h", 5, TTL_S) as held:
        log.fails = [NotReady("no leader")] * 3
        await time.passes(TTL_S - 5)
        held.check()
        await time.passes(1)
        assert not held.sure
        with pytest.raises(HoldLost, match="was not renewed for 60 s"):
            held.check()
        # A renewal that comes through proves that it stood all the time.
        log.fails.clear()
        await time.passes(TTL_S)
        held.check()


async def test_a_hold_that_is_gone_is_lost_for_good(time: Time) -> None:
    log = Log()
    with pytest.raises(HoldLost) as left:
        async with HeldLog(log, "h", 5, TTL_S) as held:
            log.lsn, log.truncated = 0, 40
            held.check()
            await time.passes(TTL_S / HOLD_RENEWALS_PER_TTL)
            for ask in (held.check, held.check):
                with pytest.raises(HoldLost) as lost:
                    ask()
                assert lost.value.number("first_lsn") == 41
            with pytest.raises(HoldLost):
                await held.move(50)
    assert left.value.number("first_lsn") == 41
    assert (log.sets, log.released) == (1, False), "it is not set again, and not released"


async def test_an_error_of_the_block_is_not_replaced_by_the_loss(time: Time) -> None:
    log = Log()
    with pytest.raises(ValueError, match="of the block"):
        async with HeldLog(log, "h", 5, TTL_S):
            log.lsn = 0
            await time.passes(TTL_S / HOLD_RENEWALS_PER_TTL)
            raise ValueError("of the block")


async def test_somebody_moved_it_up(time: Time) -> None:
    log = Log()
    async with HeldLog(log, "h", 5, TTL_S) as held:
        log.lsn = 4  # lower is as good
        await time.passes(TTL_S / HOLD_RENEWALS_PER_TTL)
        held.check()
        log.lsn = 6
        await time.passes(TTL_S / HOLD_RENEWALS_PER_TTL)
        with pytest.raises(HoldLost):
            held.check()
        held._lost = None


async def test_a_move_is_forward_and_its_own_renewals_are_no_loss(time: Time) -> None:
    log = Log()
    async with HeldLog(log, "h", 5, TTL_S) as held:
        with pytest.raises(InvalidArgument):
            await held.move(4)
        # The outcome is not known: the hold stands where it was, or there.
        log.fails = [UnknownOutcome("lost")]
        with pytest.raises(UnknownOutcome):
            await held.move(9)
        assert held.lsn == 9
        log.lsn = 9
        await time.passes(TTL_S / HOLD_RENEWALS_PER_TTL)
        held.check()
        log.truncated = 20
        with pytest.raises(HoldLost) as lost:
            await held.move(15)
        assert lost.value.number("first_lsn") == 21
        held._lost = None


@pytest.mark.parametrize("owner", ["", "another"])
async def test_who_may_not_renew_it(time: Time, owner: str) -> None:
    """It became another identity's; or the grant is gone, and the hold may stand for a while."""
    log = Log()
    async with HeldLog(log, "h", 5, TTL_S) as held:
        metadata = {"owner": owner} if owner else {}
        log.fails = [PermissionDenied("no", **metadata)]
        await time.passes(TTL_S / HOLD_RENEWALS_PER_TTL)
        assert held.sure == (not owner)
        held._lost = None
        held._sent_s = time.now_s


async def test_a_hold_that_cannot_be_set_begins_no_block(time: Time) -> None:
    log = Log(truncated=7)
    with pytest.raises(HoldRefused):
        async with HeldLog(log, "h", 5, TTL_S):
            pytest.fail("the block ran")
    await time.passes(TTL_S)
    assert log.renewals == 0


async def test_a_renewal_that_hangs_does_not_keep_the_block_from_ending(time: Time) -> None:
    log = Log()
    hangs = asyncio.Event()

    async def never(name: str, *, timeout: float | None = None) -> int:
        hangs.set()
        await asyncio.Event().wait()
        return 0

    log.renew_hold = never  # type: ignore[method-assign]
    async with HeldLog(log, "h", 5, TTL_S):
        await time.passes(TTL_S / HOLD_RENEWALS_PER_TTL)
        await eventually(hangs.is_set)
    assert log.released


async def test_a_store_that_knows_no_times_to_live_keeps_no_hold_for_ever(
    cluster: FakeCluster,
) -> None:
    """A store of release 0.1.0 ignores the field; nobody would release what its client left."""
    cluster.older = True
    async with LogClient(cluster.endpoints) as client:
        log = client.shard(1)
        await log.append([b"a", b"b"])
        with pytest.raises(NotReady, match="cluster version 2"):
            await log.set_hold("job", 1, ttl=TTL_S)
        with pytest.raises(NotReady):
            async with log.hold("job", 1):
                raise AssertionError("it does not stand")
        assert cluster.logs[1].holds == {}
        await log.set_hold("for ever", 1)
        assert cluster.logs[1].holds == {"for ever": 1}
        cluster.older = False
        async with log.hold("job", 1) as held:
            assert held.sure
