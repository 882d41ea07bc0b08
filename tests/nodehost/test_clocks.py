"""A store compares its clock with those beside it, bounds what it stamps, and gives logs away.

Names INV-TIME-4, INV-CLOCK-AGREE, INV-CLOCK-FAR and INV-CLOCK-HEIR.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from logservice_wire.errors import NotReady

from logservice import bounds
from logservice.clock import SystemClock
from logservice.ids import ClusterId, Incarnation, StoreId
from logservice.nodehost.clocks.agreement import agreed_us, majority_answered
from logservice.nodehost.clocks.clock_watch import TIME, ClockWatch, Time
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.replica.append_time import AppendTime
from logservice.nodehost.routing.successors import APPLIES, Applies, Asked
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.rsm.log_rsm import LogRsm
from logservice.versions import KnownVersion
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.waiting import eventually

S_US = 1_000_000
YEAR_US = 365 * 86_400 * S_US
NOW_US = 1_800_000_000 * S_US
SKEW_US = int(bounds.CLOCK_SKEW_MAX_S * S_US)


# --- agreement -----------------------------------------------------------------------------------


def test_the_closest_majority_agrees_on_its_median() -> None:
    assert agreed_us([5], 1, 10) == 5
    assert agreed_us([0, 1, 900], 3, 10) == 0
    assert agreed_us([900, 905, 0], 3, 10) == 900
    assert agreed_us([0, 4, 5, 6, 900], 5, 10) == 5
    assert agreed_us([0, 10], 2, 10) == 0
    assert agreed_us([0, 11], 2, 10) is None
    assert agreed_us([0], 2, 10) is None
    assert agreed_us([], 1, 10) is None
    assert majority_answered([1, 2], 3)
    assert not majority_answered([1, 2], 4)


def test_inv_clock_agree_what_is_found_is_near_a_right_clock() -> None:
    """Whoever answers, and whatever the wrong ones say, while a majority of all is right."""
    chance = random.Random(7)
    for known, _ in itertools.product(range(1, 8), range(300)):
        wrong = chance.randrange((known + 1) // 2)
        offsets = [chance.choice((-30, -11, -10, 5, 9, 12, 1000)) for _ in range(wrong)]
        offsets += [0] * (known - wrong)
        answered = chance.sample(offsets, chance.randint(1, known))
        found = agreed_us(answered, known, 10)
        assert found is None or abs(found) <= 10
        if majority_answered(answered, known):
            assert min(answered) <= 0
        assert agreed_us(offsets, known, 10) is not None


# --- one store -----------------------------------------------------------------------------------


class Hand(SystemClock):
    """Both clocks are set by hand."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.ahead_us = 0
        self.answer_s = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        return self.passed_s

    def wall_us(self) -> int:
        return NOW_US + self.ahead_us + int(self.passed_s * S_US)


class Neighbours:
    """The store under test, `a`, and what the others' clocks show; None: no answer."""

    def __init__(self, **ahead_us: int | None) -> None:
        self.ahead_us: Mapping[str, int | None] = ahead_us
        self.clock = Hand()
        self.version = KnownVersion(2)
        self.looks = 0
        identity = PeerIdentity(ClusterId("c"), StoreId("a"), (Incarnation(1),), 1)
        requests = PeerRequests(identity, self, lambda *_: None)
        self.watch = ClockWatch(
            identity, requests, self.clock, self.version, self.stores, self.looked
        )
        self.stamps = AppendTime(LogRsm(), self.watch, self.version)

    def stores(self) -> frozenset[StoreId]:
        return frozenset(map(StoreId, ("a", *self.ahead_us)))

    def looked(self) -> None:
        self.looks += 1

    async def request(self, target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        ahead_us = self.ahead_us[target]
        if ahead_us is None:
            raise NotReady("no answer")
        self.clock.passed_s += self.clock.answer_s / 2
        data = TIME.encode_answer(Time(NOW_US + ahead_us + int(self.clock.passed_s * S_US)))
        self.clock.passed_s += self.clock.answer_s / 2
        return data

    async def look(self) -> None:
        await self.watch.look(self.stores())

    @property
    def stamped_ahead_us(self) -> int:
        now_us = self.watch.wall_us()
        assert now_us is not None
        return now_us - NOW_US - int(self.clock.passed_s * S_US)


async def test_inv_time_4_a_clock_that_is_off_moves_the_times_by_the_bound() -> None:
    """CLOCK_SKEW_MAX_S, to the microsecond."""
    assert SKEW_US == bounds.CLOCK_SKEW_MAX_S * S_US
    beside = Neighbours(b=0, c=0)
    await beside.look()
    for ahead_us in (0, 700, -700, SKEW_US, -SKEW_US):
        beside.clock.ahead_us = ahead_us
        assert beside.stamped_ahead_us == ahead_us
    for ahead_us in (SKEW_US + 1, YEAR_US):
        beside.clock.ahead_us = ahead_us
        assert beside.stamped_ahead_us == SKEW_US
        beside.clock.ahead_us = -ahead_us
        assert beside.stamped_ahead_us == -SKEW_US
    # A step between two looks, and whatever time passes meanwhile: what was learned stays.
    beside.clock.ahead_us, beside.clock.passed_s = YEAR_US, 3_000.0
    assert beside.stamped_ahead_us == SKEW_US
    assert beside.stamps.stamp() == NOW_US + 3_000 * S_US + SKEW_US


async def test_inv_time_4_before_a_majority_has_answered_a_log_goes_on_from_its_times() -> None:
    beside = Neighbours(b=None, c=None)
    beside.clock.ahead_us = YEAR_US
    assert beside.stamps.stamp() == 0
    await beside.look()
    assert beside.watch.wall_us() is None
    beside.stamps._rsm.state.append_time_us = NOW_US
    assert [beside.stamps.stamp(), beside.stamps.stamp()] == [NOW_US + 1, NOW_US + 2]


async def test_inv_time_4_a_majority_that_answers_and_disagrees_bounds_by_its_lowest() -> None:
    beside = Neighbours(b=None, c=50 * S_US)
    beside.clock.ahead_us = YEAR_US
    await beside.look()
    assert beside.stamped_ahead_us == 50 * S_US + SKEW_US
    beside.clock.ahead_us = -YEAR_US
    assert beside.stamped_ahead_us == -YEAR_US
    # Once a majority has agreed, that counts, also when less is found later.
    beside.ahead_us, beside.clock.ahead_us = {"b": 0, "c": 50 * S_US}, 0
    await beside.look()
    beside.ahead_us, beside.clock.ahead_us = {"b": None, "c": YEAR_US}, YEAR_US // 2
    await beside.look()
    assert beside.stamped_ahead_us == SKEW_US
    beside.ahead_us = {"b": None, "c": None}
    await beside.look()
    assert beside.stamped_ahead_us == SKEW_US


async def test_inv_clock_far_only_a_majority_makes_a_clock_far_and_it_comes_back() -> None:
    beside = Neighbours(b=0, c=YEAR_US)
    beside.clock.ahead_us = -YEAR_US
    await beside.look()
    assert not beside.watch.far  # three clocks, three opinions
    beside.ahead_us = {"b": 0, "c": 0}
    beside.clock.ahead_us = SKEW_US
    await beside.look()
    assert not beside.watch.far
    beside.clock.ahead_us = SKEW_US + 1
    await beside.look()
    assert (beside.watch.far, beside.watch.ahead_us) == (True, SKEW_US + 1)
    assert beside.watch.alarms() == ["clock wrong: +10.0 s off what most stores agree on"]
    assert beside.watch.near == {"b", "c"}
    beside.clock.ahead_us = SKEW_US // 2 + 1
    await beside.look()
    assert beside.watch.far
    beside.clock.ahead_us = -SKEW_US // 2
    await beside.look()
    assert not beside.watch.far
    assert beside.watch.alarms() == []
    assert beside.looks == 5


async def test_an_answer_that_took_long_says_nothing() -> None:
    beside = Neighbours(b=0)
    beside.clock.answer_s = bounds.CLOCK_ASK_TIMEOUT_S
    await beside.look()
    assert beside.stamped_ahead_us == 0
    slow = Neighbours(b=0)
    slow.clock.answer_s = bounds.CLOCK_ASK_TIMEOUT_S + 0.01
    await slow.look()
    assert slow.watch.wall_us() is None


async def test_it_looks_at_its_time_and_at_once_after_a_jump(caplog: Any) -> None:
    beside = Neighbours(b=0, c=0)

    async def ticked(seconds: float) -> int:
        beside.clock.passed_s += seconds
        beside.watch.tick(beside.clock.passed_s, 1)
        if beside.watch._look is not None:
            await beside.watch._look
        return beside.looks

    beside.ahead_us = {"b": None, "c": None}
    assert await ticked(0.1) == 1
    beside.ahead_us = {"b": 0, "c": 0}
    assert await ticked(bounds.CLOCK_ASK_TIMEOUT_S) == 2  # nobody had answered
    beside.clock.passed_s += 0.1
    assert await ticked(bounds.CLOCK_LOOK_S - 0.2) == 3
    assert await ticked(bounds.CLOCK_LOOK_S - 0.1) == 3
    assert await ticked(0.2) == 4
    beside.clock.ahead_us = int(bounds.CLOCK_JUMP_MAX_S * S_US)
    assert await ticked(0.1) == 4
    beside.clock.ahead_us -= YEAR_US
    assert await ticked(0.1) == 5
    assert beside.watch.far
    assert [one.event for one in caplog.records] == ["clock_jumped", "clock_far"]
    await beside.watch.stop()


async def test_below_cluster_version_2_nobody_is_asked() -> None:
    beside = Neighbours(b=0, c=0)
    beside.version = beside.watch._version = KnownVersion(1)
    beside.watch.tick(0.0, 1)
    assert beside.watch._look is None
    beside.version.learn(2)
    beside.watch.tick(0.1, 1)
    assert beside.watch._look is not None
    await beside.watch._look
    assert beside.looks == 1


async def test_a_store_that_is_alone_has_nobody_to_ask() -> None:
    beside = Neighbours()
    beside.watch.tick(0.0, 1)
    beside.clock.ahead_us = YEAR_US
    assert beside.stamped_ahead_us == YEAR_US


async def test_inv_time_5_a_log_goes_on_from_its_times_until_a_majority_agrees() -> None:
    """A clock that is a year behind, and not found out yet, makes no block look old."""
    beside = Neighbours(b=None, c=0)
    beside.clock.ahead_us = -YEAR_US
    beside.watch.tick(0.0, 1)
    beside.stamps._rsm.state.append_time_us = NOW_US - 2 * YEAR_US
    await beside.look()
    assert not beside.watch.confirmed
    assert beside.stamps.stamp() == NOW_US - 2 * YEAR_US + 1
    beside.ahead_us = {"b": 0, "c": 0}
    await beside.look()
    assert beside.watch.confirmed
    assert beside.stamps.stamp() == NOW_US - SKEW_US
    beside.ahead_us = {"b": None, "c": None}
    await beside.look()
    assert beside.watch.confirmed, "what was agreed on counts"
    await beside.watch.stop()
    alone = Neighbours()
    assert not alone.watch.confirmed
    alone.watch.tick(0.0, 1)
    assert alone.watch.confirmed


async def test_inv_time_5_after_a_suspension_nothing_is_confirmed_until_a_majority_agrees() -> None:
    """All hosts stood still for an hour, and their monotonic clocks with them."""
    beside = Neighbours(b=0, c=0)
    beside.watch.tick(0.0, 1)
    await beside.look()
    stamped_us = beside.stamps.stamp()
    assert stamped_us == NOW_US
    hour_us = 3600 * S_US
    beside.clock.ahead_us = hour_us
    # A stamp of "an hour ago", for what is appended now, would make it old an hour early.
    assert beside.stamps.stamp() == stamped_us + 1, "before any tick"
    beside.ahead_us = {"b": None, "c": None}
    beside.clock.passed_s = 0.1
    beside.watch.tick(0.1, 1)
    assert beside.stamps.stamp() == stamped_us + 2
    await beside.look()
    assert not beside.watch.confirmed, "nobody answered"
    beside.ahead_us = {"b": hour_us, "c": hour_us}
    await beside.look()
    assert beside.watch.confirmed
    assert beside.stamps.stamp() == NOW_US + hour_us + S_US // 10
    await beside.watch.stop()


async def test_inv_time_5_answers_from_before_a_jump_confirm_nothing_behind_it() -> None:
    beside = Neighbours(b=0, c=0)
    asked, answers = beside.request, 0

    async def request(target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        nonlocal answers
        found = await asked(target, method, body, timeout_s)
        if target == "c" and not answers:
            answers += 1
            beside.clock.ahead_us = YEAR_US
            beside.watch.tick(0.0, 1)
        return found

    beside.request = request  # type: ignore[method-assign]
    await beside.look()
    assert not beside.watch.confirmed
    await beside.watch.stop()
    await beside.look()
    assert beside.watch.confirmed


async def test_inv_retain_age_what_an_age_is_judged_by() -> None:
    """INV-RETAIN-AGE: a clock that jumps by a year makes nothing old."""
    beside = Neighbours(b=0, c=0)
    assert beside.watch.past_us() is None
    await beside.look()
    assert beside.watch.past_us() == NOW_US
    beside.clock.ahead_us = YEAR_US
    assert beside.watch.past_us() == NOW_US + SKEW_US
    await beside.look()
    assert beside.watch.far
    assert beside.watch.past_us() is None
    beside.clock.ahead_us = 0
    await beside.look()
    assert beside.watch.past_us() == NOW_US


async def test_inv_retain_age_a_store_that_is_alone_goes_by_its_lowest_clock() -> None:
    alone = Neighbours()
    alone.watch.tick(0.0, 1)
    alone.clock.passed_s = 5.0
    assert alone.watch.past_us() == NOW_US + 5 * S_US
    alone.clock.ahead_us = YEAR_US
    alone.watch.tick(5.0, 1)
    assert alone.watch.past_us() == NOW_US + 5 * S_US
    alone.clock.ahead_us = -YEAR_US
    alone.watch.tick(5.1, 1)
    assert alone.watch.past_us() == NOW_US + 5 * S_US - YEAR_US
    alone.clock.ahead_us = 0
    alone.watch.tick(5.2, 1)
    assert alone.watch.past_us() == NOW_US + 5 * S_US - YEAR_US, "late, and never early"


# --- a cluster -----------------------------------------------------------------------------------


class Ahead(SystemClock):
    def __init__(self) -> None:
        self.ahead_us = 0

    def wall_us(self) -> int:
        return super().wall_us() + self.ahead_us


@pytest.fixture
async def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(bounds, "CLOCK_LOOK_S", 0.2)
    cluster = Cluster(tmp_path)
    for store in cluster.stores.values():
        store.more["clock"] = Ahead()
    await cluster.up()
    for number in cluster.stores:
        cluster.host(number).cluster_version.learn(2)
    yield cluster
    await cluster.down()


async def known_times(cluster: Cluster) -> None:
    """Every store has compared its clock."""
    hosts = [cluster.host(number) for number in cluster.stores]
    await eventually(lambda: all(host.clocks.wall_us() is not None for host in hosts))


async def test_a_leader_whose_clock_is_a_year_ahead_bounds_its_times_and_is_replaced(
    clocks: Cluster,
) -> None:
    """Appends go on meanwhile, on every store."""
    await known_times(clocks)
    leader = await clocks.leader()
    clocks.stores[leader].more["clock"].ahead_us = YEAR_US
    times: list[int] = []
    while clocks.replica(leader).raft.leader in (0, leader) or len(times) < 30:
        times.append((await clocks.host(leader).append(SHARD, request(), 30.0)).value)
    assert times == sorted(set(times))
    assert times[-1] <= SystemClock().wall_us() + SKEW_US + S_US
    successor = await clocks.leader()
    assert successor != leader
    # A clock that is right again is used again, and nobody takes its leaderships away.
    clocks.stores[leader].more["clock"].ahead_us = 0
    await eventually(lambda: not clocks.host(leader).clocks.far)
    replica = clocks.replica(leader)
    await clocks.host(successor).router.transfer_leadership(SHARD, replica.replica_id, 30.0)
    await eventually(lambda: replica.ready_to_lead)
    await clocks.host(leader).append(SHARD, request(), 30.0)


async def test_inv_clock_heir_no_voter_that_applies_nothing_gets_the_leadership(
    clocks: Cluster,
) -> None:
    """One near voter is stuck: the other one leads, although the stuck one has as much of the log.
    Where both others are stuck the leader stays.
    """
    asked: list[int] = []

    async def stuck(_: PeerIdentity, question: Asked) -> Applies:
        asked.append(question.replica)
        return Applies(1 << 40, stuck=True)

    await known_times(clocks)
    leader = await clocks.leader()
    other, heir = sorted({1, 2, 3} - {leader})
    clocks.host(other).requests.register(APPLIES, stuck)
    clocks.stores[leader].more["clock"].ahead_us = YEAR_US
    await eventually(lambda: clocks.replica(heir).ready_to_lead)
    assert asked
    clocks.stores[leader].more["clock"].ahead_us = 0
    await eventually(lambda: not clocks.host(leader).clocks.far)
    clocks.host(leader).requests.register(APPLIES, stuck)
    asked.clear()
    term = clocks.replica(heir).raft.term
    clocks.stores[heir].more["clock"].ahead_us = YEAR_US
    await eventually(lambda: len(asked) >= 6)
    assert clocks.replica(heir).raft.term == term
    assert clocks.replica(heir).ready_to_lead


async def test_inv_clock_heir_where_the_others_are_not_near_the_leader_stays(
    clocks: Cluster,
) -> None:
    """Three clocks with three opinions stop nothing and move nobody."""
    await known_times(clocks)
    leader = await clocks.leader()
    for number, store in clocks.stores.items():
        store.more["clock"].ahead_us = (number - 1) * YEAR_US
    term = clocks.replica(leader).raft.term
    for number in clocks.stores:
        clocks.host(number).clocks._due_s = 0.0
    jumped = [clocks.host(number).clocks for number in clocks.stores]
    await eventually(lambda: all(not one.near for one in jumped))
    for _ in range(20):
        await clocks.host(leader).append(SHARD, request(), 30.0)
    assert clocks.replica(leader).raft.term == term
    assert not any(one.far for one in jumped)
