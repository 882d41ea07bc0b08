"""What a promote compares before it closes its source, and what is left then; and by force."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from logservice_client import Shard
from logservice_wire.errors import NotReady, VerbRefused

from logservice import bounds
from logservice.mirror import comparing
from logservice.mirror.comparing import Comparison
from logservice.mirror.mirroring import Mirror, MirrorEnded
from logservice.mirror.promoting import Compared, Promotion
from tests.archive.test_restoring import told
from tests.mirror.test_mirroring import Silent, Two, complete, two

__all__ = ["two"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

Ranges = list[tuple[int, int, int]]
"""(shard, from, to) of each digest that was asked for."""


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> Ranges:
    seen: Ranges = []
    digest = Shard.digest

    async def told_of(self: Shard, from_lsn: int, to_lsn: int, **more: Any) -> Any:
        seen.append((self.shard_id, from_lsn, to_lsn))
        return await digest(self, from_lsn, to_lsn, **more)

    monkeypatch.setattr(Shard, "digest", told_of)
    return seen


def before_the_close(mirror: Mirror, monkeypatch: pytest.MonkeyPatch, doing: Any) -> None:
    """Do that when all is compared and the source is about to be closed."""
    close = mirror.source.close_log

    async def close_log() -> Any:
        await doing()
        return await close()

    monkeypatch.setattr(mirror.source, "close_log", close_log)


async def compared(two: Two, mirror: Mirror) -> Comparison:
    await complete(mirror)
    found = Comparison(mirror)
    await found.up_to(mirror.next_lsn)
    return found


async def test_inv_mirror_7_while_it_is_closed_only_the_rest_is_read(
    two: Two, monkeypatch: pytest.MonkeyPatch, ranges: Ranges
) -> None:
    """INV-MIRROR-7."""
    log = await two.log(monkeypatch)
    mirror = two.mirror(log)
    copy = await complete(mirror)

    async def late() -> None:
        ranges.clear()
        await log.append([b"late"] * 3)

    said: list[str] = []
    before_the_close(mirror, monkeypatch, late)
    found = await two.promotion(mirror, say=said.append).planned()
    assert ranges == [(log.shard_id, 228, 231)]
    assert (found.end_lsn, found.fresh) == (231, True)
    assert found.closed_s is not None
    assert await told(copy, 11) == await told(log, 11)
    assert "the same as its source; the last round took" in said[0]
    assert said[-1].endswith("goes on at LSN 231")


async def test_with_nothing_behind_it_nothing_is_read(
    two: Two, monkeypatch: pytest.MonkeyPatch, ranges: Ranges
) -> None:
    log = await two.log()
    mirror = two.mirror(log)
    await complete(mirror)

    async def nothing() -> None:
        ranges.clear()

    before_the_close(mirror, monkeypatch, nothing)
    assert (await two.promotion(mirror).planned()).end_lsn == 221
    assert ranges == []


@pytest.mark.parametrize("truncate", ["with-source", "never"])
@pytest.mark.parametrize("lsn", [50, 220, 225])
async def test_truncations_between_the_comparison_and_the_close(
    two: Two, monkeypatch: pytest.MonkeyPatch, truncate: str, lsn: int
) -> None:
    """Below what was compared, and beyond: where the two begin does not matter."""
    log = await two.log()
    mirror = two.mirror(log, pair={"truncate": truncate})
    await complete(mirror)
    after: dict[int, Any] = {}

    async def late() -> None:
        await log.append([b"late"] * 10)
        while not await mirror.bring():
            pass
        await mirror.release(override=True)
        await log.truncate(lsn)
        after.update(await told(log, lsn + 1))

    before_the_close(mirror, monkeypatch, late)
    found = await two.promotion(mirror).planned()
    assert (found.end_lsn, found.fresh) == (231, True)
    assert await told(mirror.copy.shard, lsn + 1) == after
    first_lsn = (await mirror.copy.shard.status()).position.first_lsn
    assert first_lsn == (11 if truncate == "never" else lsn + 1)


async def test_what_is_truncated_while_it_is_compared_is_passed_over(
    two: Two, monkeypatch: pytest.MonkeyPatch, ranges: Ranges
) -> None:
    monkeypatch.setattr(bounds, "MIRROR_HOLD_S", 0.0)
    monkeypatch.setattr(comparing, "_FIRST_STEP_LSNS", 10)
    monkeypatch.setattr(bounds, "MIRROR_COMPARED_STEP_S", 0.0)
    log = await two.log()
    mirror = two.mirror(log)
    await complete(mirror)
    real, calls = mirror.compared, 0

    async def cut(*given: Any, **more: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            await log.truncate(99)
        await real(*given, **more)

    monkeypatch.setattr(mirror, "compared", cut)
    ranges.clear()
    found = Comparison(mirror)
    await found.up_to(221)
    assert (found.from_lsn, found.equal_lsn) == (11, 221)
    begun = sorted({one for shard, one, _ in ranges if shard == log.shard_id})
    assert begun[:4] == [11, 21, 26, 100], "the third one was truncated"


async def test_another_lineage_of_the_mirror_is_compared_again(two: Two) -> None:
    log = await two.log()
    mirror = two.mirror(log)
    found = await compared(two, mirror)
    assert (found.from_lsn, found.equal_lsn, await found.first_lsn()) == (11, 221, 221)
    found._lineage = b"of the cluster that was recovered"
    assert await found.first_lsn() == 11
    assert found.equal_lsn == 0


async def test_the_ranges_take_about_half_a_second(two: Two) -> None:
    log = await two.log()
    found = await compared(two, two.mirror(log))
    assert found._step_lsns > comparing._FIRST_STEP_LSNS
    for _ in range(40):
        found._adapt(0.0)
    assert found._step_lsns == bounds.MIRROR_COMPARED_STEP_LSNS_MAX
    for _ in range(40):
        found._adapt(60.0)
    assert found._step_lsns == 1
    found._adapt(1.5 * bounds.MIRROR_COMPARED_STEP_S)
    assert found._step_lsns == 1


async def test_a_source_that_never_rests_is_closed_after_so_many_rounds(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MIRROR_ROUNDS_MAX, MIRROR_SHORT_ROUND_S."""
    monkeypatch.setattr(bounds, "MIRROR_SHORT_ROUND_S", -1.0)
    monkeypatch.setattr(bounds, "MIRROR_ROUNDS_MAX", 4)
    log = await two.log()
    mirror = two.mirror(log)
    await complete(mirror)
    real, rounds = Comparison.up_to, []

    async def up_to(self: Comparison, end_lsn: int) -> None:
        rounds.append(end_lsn)
        await real(self, end_lsn)
        await log.append(b"more")

    monkeypatch.setattr(Comparison, "up_to", up_to)
    assert (await two.promotion(mirror).planned()).end_lsn == 225
    assert rounds == [221, 222, 223, 224]


async def test_a_difference_is_found_while_the_source_is_open(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await two.log()
    mirror = two.mirror(log)
    await complete(mirror)
    # Further back than whoever goes on with a mirror looks.
    monkeypatch.setattr(bounds, "MIRROR_COMPARED_LSNS", 10)
    await another_source(two, log, mirror, 210)
    promotion = two.promotion(two.mirror(log))
    with pytest.raises(MirrorEnded, match=r"LSNs 11 to 74 of .* are not those"):
        await promotion.planned()
    source = two.source.shard(two.source.names[mirror.pair.name])
    assert not (await source.status()).closed_index
    assert promotion.standing == "Nothing was closed and nothing was opened."


async def another_source(two: Two, log: Shard, mirror: Mirror, same_from: int) -> Shard:
    """A log of the same name that has other records below that LSN."""
    other = two.source.shard(int(await two.first.new_shard()))
    await other.append([b"other"] * (same_from - 1))
    for lsn in range(same_from, 221):
        await other.append((await log.read(lsn)).records()[0])
    two.source.names[mirror.pair.name] = other.shard_id
    return other


async def test_said_again_behind_the_close_all_is_compared_once_more(
    two: Two, ranges: Ranges
) -> None:
    log = await two.log()
    mirror = two.mirror(log)
    await complete(mirror)
    await log.close_log()
    ranges.clear()
    said: list[str] = []
    found = await two.promotion(two.mirror(log), say=said.append).planned()
    assert (found.fresh, found.closed_s) == (True, None), "nobody knows since when"
    assert "the source was closed before" in said[0]
    assert min(one for _, one, _ in ranges) == 11


# --- by force -------------------------------------------------------------------------------------


async def test_a_forced_promote_says_what_is_the_same(two: Two, ranges: Ranges) -> None:
    log = await two.log()
    await complete(two.mirror(log))
    await log.append([b"lost"] * 3)
    found = await two.promotion(two.mirror(log)).forced(None)
    assert found.compared == Compared(11, 221, 224, "")
    again = await two.promotion(two.mirror(log)).forced(None)
    assert (again.fresh, again.compared, again.source_end_lsn) == (False, None, 224)


async def test_a_forced_promote_waits_for_no_dead_source(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MIRROR_ASKED_S", 0.2)
    log = await two.log()
    await complete(two.mirror(log))
    source: Any = Silent()
    target: Any = two.target
    mirror = Mirror(source, target, two.mirror(log).pair, hold="mirror")
    found = await Promotion(mirror, target).forced(None)
    assert found.compared == Compared(why="the source did not answer within 0.2 s")
    assert (found.end_lsn, found.source_end_lsn) == (221, None)


@pytest.mark.parametrize("dies", [True, False])
async def test_a_source_that_falls_silent_or_is_slow(
    two: Two, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """MIRROR_FORCED_COMPARE_S: what was compared until then is said."""
    monkeypatch.setattr(bounds, "MIRROR_COMPARED_STEP_S", 0.0)
    log = await two.log()
    mirror = two.mirror(log)
    await complete(mirror)
    real, calls = mirror.compared, 0

    async def answer(*given: Any, **more: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            if dies:
                raise NotReady("nobody is there")
            await asyncio.Event().wait()
        await real(*given, **more)

    monkeypatch.setattr(mirror, "compared", answer)
    found = await two.promotion(mirror).forced(None, 30.0 if dies else 1.0)
    why = "NOT_READY: nobody is there" if dies else "1 s were over"
    assert found.compared == Compared(11, 107, 221, why)
    assert found.end_lsn == 221


async def test_by_force_a_mirror_that_differs_is_opened_only_uncompared(two: Two) -> None:
    log = await two.log()
    mirror = two.mirror(log)
    copy = await complete(mirror)
    other = await another_source(two, log, mirror, 210)
    with pytest.raises(MirrorEnded, match=r"LSNs 11 to 74 .*--compare-for 0") as ended:
        await two.promotion(two.mirror(log)).forced(None)
    assert ended.value.metadata["why"] == "differs"
    assert (await copy.status()).restoring.mirror
    found = await two.promotion(two.mirror(log)).forced(None, 0.0)
    assert found.compared == Compared(source_end_lsn=221, why="nothing was to be compared")
    assert not (await other.status()).closed_index


async def test_a_mirror_that_has_nothing_is_not_opened_by_force(two: Two) -> None:
    log = await two.log()
    mirror = two.mirror(log)
    await mirror.begin()
    with pytest.raises(VerbRefused, match="has nothing of its source yet"):
        await two.promotion(two.mirror(log)).forced(None)
    assert (await mirror.copy.status()).restoring.mirror
