"""The lines of calls: their order, their bounds, and that nothing of them is ever left over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from logservice_wire.errors import Busy, LogServiceError, NotReady

from logservice import bounds
from logservice.server.edge.call_lines import REASONS, CallLines, Place


class Bench:
    """Lines on a clock of the test's own, and calls that note when they begin."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.lines = CallLines(lambda: self.now_s)
        self.began: list[tuple[str, int]] = []
        self.places: dict[tuple[str, int], Place] = {}
        self.tasks: dict[tuple[str, int], asyncio.Task[Place]] = {}
        self._next = 0

    async def call(self, whose: str, size: int = 1, left_s: float = 60.0) -> tuple[str, int]:
        key = (whose, self._next)
        self._next += 1

        async def begin() -> Place:
            place = self.places[key] = await self.lines.enter(whose, size, lambda: left_s)
            self.began.append(key)
            return place

        self.tasks[key] = asyncio.create_task(begin())
        await settled()
        return key

    async def calls(self, whose: str, count: int) -> list[tuple[str, int]]:
        return [await self.call(whose) for _ in range(count)]

    async def end(self, key: tuple[str, int]) -> None:
        self.lines.leave(self.places.pop(key))
        await settled()

    async def two_identities(self) -> None:
        """From now on nobody is alone."""
        for whose in ("first", "second"):
            await self.end(await self.call(whose))
        self.began.clear()

    def begun(self, whose: str) -> int:
        return sum(key[0] == whose for key in self.places)


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def nothing_is_left(lines: CallLines) -> bool:
    return (lines.waiting, lines.size, len(lines), lines.figures()["begun"]) == (0, 0, 0, 0)


async def test_a_quiet_identity_goes_before_what_a_loud_one_has_waiting() -> None:
    """Reaches CALLS_BEGUN_MAX."""
    bench = Bench()
    await bench.two_identities()
    await bench.calls("loud", 200)
    assert bench.begun("loud") == bounds.CALLS_BEGUN_MAX
    assert bench.lines.waiting == 200 - bounds.CALLS_BEGUN_MAX
    await bench.call("quiet")
    assert bench.begun("quiet") == 1


async def test_calls_of_an_identity_begin_in_their_order() -> None:
    """INV-TURN-1."""
    bench = Bench()
    await bench.two_identities()
    keys = await bench.calls("loud", 200)
    for key in keys:
        await bench.end(key)
    assert bench.began == keys
    assert nothing_is_left(bench.lines)


async def test_the_places_are_divided_among_who_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reaches CALLS_BEGUN_MIN."""
    monkeypatch.setattr(bounds, "CALLS_BEGUN_MAX", 12)
    bench = Bench()
    await bench.two_identities()
    await bench.call("b")
    keys = await bench.calls("a", 30)
    assert bench.begun("a") == 6
    await bench.calls("b", 30)
    assert bench.begun("b") == 6
    for other in "cdefg":
        await bench.calls(other, 30)
        assert bench.begun(other) == bounds.CALLS_BEGUN_MIN
    for key in keys[:6]:
        await bench.end(key)
    assert bench.begun("a") == bounds.CALLS_BEGUN_MIN, "its share became smaller"


async def test_freed_places_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CALLS_BEGUN_MAX", 15)
    bench = Bench()
    await bench.two_identities()
    gone = await bench.call("gone")
    keys = {whose: await bench.calls(whose, 20) for whose in "ab"}
    for whose in "ab":
        while bench.begun(whose) > 5:
            await bench.end(next(key for key in keys[whose] if key in bench.places))
    bench.began.clear()
    await bench.end(gone)
    assert [whose for whose, _ in bench.began] == ["a", "b", "a", "b"]


async def test_who_is_alone_is_not_held_back() -> None:
    """Reaches CALL_ALONE_S."""
    bench = Bench()
    await bench.calls("only", 300)
    assert bench.begun("only") == 300, "nobody else has ever called"
    bench = Bench()
    await bench.two_identities()
    await bench.calls("loud", 300)
    assert bench.begun("loud") == bounds.CALLS_BEGUN_MAX
    bench.now_s += bounds.CALL_ALONE_S - 0.001
    for key in list(bench.places):
        bench.places[key].since_s = bench.now_s
    bench.lines.look()
    await settled()
    assert bench.begun("loud") == bounds.CALLS_BEGUN_MAX
    bench.now_s += 0.001
    bench.lines.look()
    await settled()
    assert bench.begun("loud") == 300


async def test_who_is_alone_does_not_pass_its_own_line() -> None:
    """INV-TURN-1 between the moment from which it is alone and the next look."""
    bench = Bench()
    await bench.two_identities()
    count = bounds.CALLS_BEGUN_MAX
    keys = await bench.calls("loud", count + 2)
    bench.now_s += bounds.CALL_ALONE_S
    late = await bench.call("loud")
    assert bench.begun("loud") == count
    bench.lines.look()
    await settled()
    assert bench.began == [*keys, late]


async def test_who_called_long_ago_and_waits_is_somebody_else() -> None:
    bench = Bench()
    await bench.two_identities()
    await bench.calls("b", bounds.CALLS_BEGUN_MAX + 1)
    bench.now_s += 1
    await bench.call("a")
    bench.now_s += bounds.CALL_ALONE_S
    for place in bench.places.values():
        place.since_s = bench.now_s
    await bench.calls("a", bounds.CALLS_BEGUN_MAX)
    assert bench.begun("a") == bounds.CALLS_BEGUN_MAX // 2


@pytest.mark.parametrize("how", ["cancelled", "late"])
async def test_a_line_whose_last_calls_do_not_begin_is_gone(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-TURN-3; and what it had is free for others."""
    monkeypatch.setattr(bounds, "CALLS_BEGUN_MAX", 2)
    monkeypatch.setattr(bounds, "CALLS_BEGUN_MIN", 1)
    bench = Bench()
    await bench.two_identities()
    await bench.call("b")
    only = await bench.call("a")
    last = await bench.call("a", left_s=1.0)
    await bench.calls("b", 4)
    assert (bench.begun("a"), bench.begun("b")) == (1, 1)
    if how == "cancelled":
        bench.tasks[last].cancel()
    else:
        bench.now_s += 1.0
    await bench.end(only)
    assert len(bench.lines) == 1
    assert bench.begun("b") == 2


async def test_a_call_that_lasts_makes_room() -> None:
    """Reaches CALL_PLACE_S."""
    bench = Bench()
    await bench.two_identities()
    count = bounds.CALLS_BEGUN_MAX
    keys = await bench.calls("loud", 3 * count)
    bench.now_s += bounds.CALL_PLACE_S - 0.001
    bench.lines.look()
    await settled()
    assert len(bench.began) == count
    bench.now_s += 0.001
    bench.lines.look()
    await settled()
    assert len(bench.began) == 2 * count
    for key in keys[:count]:
        await bench.end(key)
    assert len(bench.began) == 2 * count, "its place was given back before"


async def test_the_lines_look_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reaches CALL_LINE_LOOK_S."""
    monkeypatch.setattr(bounds, "CALL_LINE_LOOK_S", 0.001)
    bench = Bench()
    await bench.two_identities()
    await bench.calls("loud", bounds.CALLS_BEGUN_MAX + 1)
    assert bench.lines.waiting == 1
    bench.now_s += bounds.CALL_PLACE_S
    async with asyncio.timeout(60):
        while bench.lines.waiting:  # noqa: ASYNC110 - the lines have no event for it
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("bound", "reason", "whose"),
    [
        ("CALL_LINE_CALLS_MAX", "calls", "loud"),
        ("IDENTITY_CALL_LINE_BYTES_MAX", "identity_bytes", "loud"),
        ("CALL_LINE_BYTES_MAX", "bytes", "loud"),
    ],
)
async def test_what_waits_is_bounded(
    bound: str, reason: str, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-TURN-2: reaches CALL_LINE_CALLS_MAX, CALL_LINE_BYTES_MAX,
    IDENTITY_CALL_LINE_BYTES_MAX, made small, and says CALL_LINE_RETRY_MS.
    """
    monkeypatch.setattr(bounds, bound, 5)
    bench = Bench()
    await bench.two_identities()
    await bench.calls(whose, bounds.CALLS_BEGUN_MAX + 5)
    over = await bench.call(whose)
    with pytest.raises(Busy) as caught:
        await bench.tasks[over]
    assert caught.value.number("retry_after_ms") == bounds.CALL_LINE_RETRY_MS
    assert bench.lines.refused[reason] == bench.lines.figures()[f"refused/{reason}"] == 1
    await bench.end(next(iter(bench.places)))
    again = await bench.call(whose)
    assert not bench.tasks[again].done(), "there is room again"
    assert bench.lines.waiting == 5


async def test_one_identitys_bytes_leave_room_for_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "IDENTITY_CALL_LINE_BYTES_MAX", 5)
    monkeypatch.setattr(bounds, "CALL_LINE_BYTES_MAX", 8)
    bench = Bench()
    await bench.two_identities()
    await bench.call("b")
    await bench.calls("a", bounds.CALLS_BEGUN_MAX // 2 + 9)
    assert (bench.lines.size, bench.lines.refused["identity_bytes"]) == (5, 4)
    await bench.calls("b", bounds.CALLS_BEGUN_MAX // 2 + 3)
    assert (bench.lines.size, bench.lines.refused["bytes"]) == (8, 1)
    assert bench.lines.crowded_out == 5


async def test_a_call_without_time_never_begins() -> None:
    """INV-TURN-4, when a place comes free and when nobody looks before."""
    bench = Bench()
    await bench.two_identities()
    keys = await bench.calls("loud", bounds.CALLS_BEGUN_MAX)
    late = await bench.call("loud", left_s=1.0)
    last = await bench.call("loud", left_s=9.0)
    bench.now_s += 1.0
    await bench.end(keys[0])
    with pytest.raises(Busy, match="until its time was over"):
        await bench.tasks[late]
    assert late not in bench.began
    assert bench.began[-1] == last
    bench = Bench()
    await bench.two_identities()
    await bench.calls("loud", bounds.CALLS_BEGUN_MAX)
    late = await bench.call("loud", left_s=0.1)
    bench.now_s += 0.1
    bench.lines.look()
    await settled()
    with pytest.raises(Busy):
        await bench.tasks[late]
    assert bench.lines.refused["deadline"] == 1
    assert bench.lines.waiting == 0


async def test_who_leaves_the_line_leaves_nothing_there() -> None:
    bench = Bench()
    await bench.two_identities()
    keys = await bench.calls("loud", bounds.CALLS_BEGUN_MAX)
    leaves, stays = await bench.calls("loud", 2)
    bench.tasks[leaves].cancel()
    await settled()
    assert (bench.lines.waiting, bench.lines.size) == (1, 1)
    # Its place comes in the same moment in which it leaves.
    bench.lines.leave(bench.places.pop(keys[0]))
    bench.tasks[stays].cancel()
    await settled()
    assert bench.tasks[stays].cancelled()
    for key in keys[1:]:
        await bench.end(key)
    assert nothing_is_left(bench.lines)


async def test_who_waits_when_the_store_stops_is_told() -> None:
    bench = Bench()
    await bench.two_identities()
    await bench.calls("loud", bounds.CALLS_BEGUN_MAX + 3)
    bench.lines.close()
    await settled()
    refused = [task for key, task in bench.tasks.items() if key not in bench.began][-3:]
    for task in refused:
        with pytest.raises(NotReady):
            await task
    assert bench.lines.refused["stopping"] == 3
    with pytest.raises(NotReady):
        await bench.tasks[await bench.call("quiet")]
    for key in list(bench.places):
        await bench.end(key)
    assert nothing_is_left(bench.lines)


@pytest.mark.parametrize("seed", range(60))
async def test_nothing_is_lost_in_any_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-TURN-1 to INV-TURN-4 over random orders of calls, ends, departures and time."""
    monkeypatch.setattr(bounds, "CALLS_BEGUN_MAX", 6)
    monkeypatch.setattr(bounds, "CALLS_BEGUN_MIN", 2)
    monkeypatch.setattr(bounds, "CALL_LINE_CALLS_MAX", 20)
    monkeypatch.setattr(bounds, "CALL_LINE_BYTES_MAX", 60)
    monkeypatch.setattr(bounds, "IDENTITY_CALL_LINE_BYTES_MAX", 30)
    rng = random.Random(seed)
    bench = Bench()
    lines = bench.lines
    ends_s: dict[tuple[str, int], float] = {}

    async def new() -> None:
        left_s = rng.choice((0.1, 1.0, 60.0))
        key = await bench.call(rng.choice("aaaabbc"), rng.randrange(9), left_s)
        ends_s[key] = bench.now_s + left_s

    async def end() -> None:
        if bench.places:
            await bench.end(rng.choice(list(bench.places)))

    async def depart() -> None:
        waiting = [task for task in bench.tasks.values() if not task.done()]
        if waiting:
            rng.choice(waiting).cancel()

    async def both() -> None:
        """A place comes free while its next holder leaves."""
        if bench.places:
            lines.leave(bench.places.pop(rng.choice(list(bench.places))))
        await depart()

    async def wait() -> None:
        bench.now_s += rng.choice((0.01, 0.1, 0.3, 6.0))
        lines.look()

    steps: list[Callable[[], Any]] = [new, new, new, new, end, end, depart, both, wait]
    for _ in range(400):
        before = len(bench.began)
        await rng.choice(steps)()
        await settled()
        for key in bench.began[before:]:
            assert bench.now_s < ends_s[key]
        assert lines.waiting == sum(not task.done() for task in bench.tasks.values()) <= 20
        assert 0 <= lines.size <= 60
        assert all(line.held or line.waiting for line in lines._lines.values())
    for whose in "abc":
        order = [number for name, number in bench.began if name == whose]
        assert order == sorted(order)
    while bench.places or lines.waiting:
        for key in list(bench.places):
            await bench.end(key)
    assert nothing_is_left(lines)
    for task in bench.tasks.values():
        if not task.cancelled() and (failed := task.exception()) is not None:
            assert isinstance(failed, LogServiceError)
    assert set(lines.refused) == set(REASONS)
