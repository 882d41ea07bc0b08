"""A log of a second cluster that follows one of the first: the same LSNs, killed at every step,
overtaken, promoted.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from logservice_client import LogClient, Shard
from logservice_wire.errors import (
    CorruptBlock,
    DiskFull,
    Fenced,
    InvalidArgument,
    NotReady,
    PermissionDenied,
    ShardClosed,
    ShardNotFound,
    ShardRestoring,
    TooLarge,
    VerbRefused,
)

from logservice import bounds
from logservice.archive.cluster_section import ClusterSection
from logservice.mirror import mirroring, promoting
from logservice.mirror.lag import Lag, Metrics
from logservice.mirror.mirroring import STEPS, Mirror, MirrorEnded, Pair
from logservice.mirror.promoting import Promotion
from logservice.mirror.running import Mirrors
from logservice.mirror.settings import PairSection, Settings
from logservice.mirror.standing import standing
from tests.archive.test_restoring import Killed, told, written
from tests.mirror.named_logs import NamedLogs
from tests.server.served import Served
from tests.server.test_lineage import fork

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclasses.dataclass
class Two:
    """Two clusters, a client of each."""

    first: Served
    source: NamedLogs
    target: NamedLogs
    addresses: list[str]

    async def log(self, monkeypatch: pytest.MonkeyPatch | None = None) -> Shard:
        """A log of the source with LSNs 11 to 227, under a name that nothing else has."""
        shard = await self.first.new_shard()
        self.source.names[f"log-{shard}"] = int(shard)
        client: Any = self.source
        return await written(self.first, client, int(shard), monkeypatch)

    def mirror(self, log: Shard, **more: Any) -> Mirror:
        source: Any = more.pop("source", self.source)
        pair = Pair(f"log-{log.shard_id}", f"copy-{log.shard_id}", **more.pop("pair", {}))
        target: Any = self.target
        return Mirror(source, target, pair, hold="mirror", **more)

    def promotion(self, mirror: Mirror, **more: Any) -> Promotion:
        target: Any = self.target
        return Promotion(mirror, target, **more)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two() -> AsyncIterator[Two]:
    async with AsyncExitStack() as closing:
        first = await closing.enter_async_context(Served(3))
        second = await closing.enter_async_context(Served(1))
        addresses = [store.address for store in first.stores]
        here = await closing.enter_async_context(LogClient(addresses))
        there = await closing.enter_async_context(LogClient([second.stores[0].address]))
        yield Two(first, NamedLogs(first, here), NamedLogs(second, there), addresses)


async def complete(mirror: Mirror) -> Shard:
    """Until it has what its source has; the copy."""
    if not mirror.next_lsn:
        await mirror.begin()
    while not await mirror.bring():
        pass
    return mirror.copy.shard


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 (what it waits for says nothing)
        await asyncio.sleep(0.02)


async def hold_of(log: Shard) -> int | None:
    return {one.name: one.lsn for one in (await log.status()).holds}.get("mirror")


def killed_at(step: str) -> Callable[[str], None]:
    def reached(name: str) -> None:
        if name == step:
            raise Killed

    return reached


async def test_a_mirror_is_the_same_is_read_and_follows(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MIRROR_HOLD_S", 0.0)
    log = await two.log(monkeypatch)
    mirror = two.mirror(log)
    copy = await complete(mirror)
    assert await told(copy, 11) == await told(log, 11)
    assert str(await copy.digest(11, 228)) == str(await log.digest(11, 228))
    assert await hold_of(log) == 228, "without an expiry, where the copy goes on"
    assert (await log.status()).holds[0].ttl_s == 0
    with pytest.raises(ShardRestoring):
        await copy.append(b"of somebody else", timeout=30)
    monkeypatch.setattr(bounds, "MIRROR_LOOK_S", 600.0)
    waiting = asyncio.ensure_future(mirror.wait())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert await log.append([b"live"] * 3, expected_lsn=228) == 228
    await asyncio.wait_for(waiting, 60)
    assert await complete(mirror) is copy
    assert await told(copy, 228) == await told(log, 228)
    assert (mirror.lag.lsns, mirror.lag.next_lsn) == (0, 231)
    # What the source lets go goes here, too; the hold keeps it to what is mirrored.
    await log.append([b"behind"] * 5)
    assert await log.truncate(235) == 230
    await complete(mirror)
    await complete(mirror)
    assert (await copy.status()).restoring.base_lsn == (await log.status()).position.first_lsn
    assert (await log.status()).position.first_lsn > 231


async def test_wide_blocks_go_over_as_they_are_and_nobody_opens_them(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-BLOCK-OPAQUE: mirroring, comparing, promoting."""
    monkeypatch.setattr(bounds, "MIRROR_HOLD_S", 0.0)
    log = await two.log()
    first = (await log.status()).position.applied_lsn + 1
    for codec in (None, "zstd", "lz4"):
        await log.append_columns([b"a", b"b"], keys=[None, b""], times_us=[1, 2], codec=codec)
    for name in ("Cursor", "decompress"):
        monkeypatch.setattr(f"logservice_wire.block.{name}", None)
    mirror = two.mirror(log)
    copy = await complete(mirror)
    wanted = [bytes(one.block.data) for one in (await log.read(first)).blocks]
    assert len(wanted) == 3
    assert [bytes(one.block.data) for one in (await copy.read(first)).blocks] == wanted
    assert str(await copy.digest(11, first + 6)) == str(await log.digest(11, first + 6))
    await two.promotion(mirror).planned()
    assert [bytes(one.block.data) for one in (await copy.read(first)).blocks] == wanted


async def test_truncate_never_keeps_what_the_source_lets_go(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MIRROR_HOLD_S", 0.0)
    log = await two.log()
    before = await told(log, 11)
    mirror = two.mirror(log, pair={"truncate": "never"})
    copy = await complete(mirror)
    await log.truncate(100)
    await complete(mirror)
    assert (await told(copy, 11)) == before
    found = await two.promotion(mirror).planned()
    assert found.fresh
    assert (await told(copy, 11)) == before


@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_mirror_goes_on(
    two: Two, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """INV-MIRROR-3, whoever was killed when: the hold never stands above what the copy has."""
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 2)
    monkeypatch.setattr(bounds, "MIRROR_HOLD_S", 0.0)
    log = await two.log(monkeypatch)
    mirror = two.mirror(log, reached=killed_at(step))
    with pytest.raises(Killed):
        await complete(mirror)
        await log.truncate(50)
        await complete(mirror)
    held_lsn = await hold_of(log)
    assert held_lsn is not None
    made = two.target.names.get(mirror.pair.into)
    if made is not None:
        status = await two.target.shard(made).status()
        if status.HasField("restoring"):
            assert held_lsn <= max(status.restoring.next_lsn, status.restoring.base_lsn)
    await log.append(b"meanwhile")
    async with LogClient(two.addresses) as other:
        copy = await complete(two.mirror(log, source=two.source.again(other)))
        first_lsn = (await copy.status()).restoring.base_lsn
        assert await told(copy, first_lsn) == await told(log, first_lsn)


async def test_two_mirrors_at_once_do_no_harm(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 3)
    monkeypatch.setattr(bounds, "MIRROR_HOLD_S", 0.0)
    log = await two.log(monkeypatch)
    async with LogClient(two.addresses) as other:
        mirrors = [two.mirror(log), two.mirror(log, source=two.source.again(other))]
        await mirrors[0].begin()
        copies = await asyncio.gather(*map(complete, mirrors))
        for number in range(20):
            await log.append(b"%d" % number)
            await asyncio.gather(*(mirror.bring() for mirror in mirrors))
            await log.truncate(228 + number - 1)
        copies = await asyncio.gather(*map(complete, mirrors))
    lsn = (await log.status()).position.first_lsn
    assert await told(copies[0], lsn) == await told(log, lsn)


async def test_inv_mirror_4_what_was_truncated_before_ends_it(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-MIRROR-4."""
    log = await two.log()
    mirror = two.mirror(log)
    await complete(mirror)
    await log.append([b"not mirrored"] * 10)
    await log.release_hold("mirror")
    await log.truncate(225)
    with pytest.raises(MirrorEnded, match=r"LSNs 221 to 225 are gone.*hold mirror") as ended:
        await mirror.bring()
    assert ended.value.metadata["why"] == "truncated"
    with pytest.raises(MirrorEnded, match="LSNs 221 to 225 are gone"):
        await two.mirror(log).begin()
    # While it is read, too.
    other = await two.log()
    monkeypatch.setattr(bounds, "ARCHIVE_READ_BYTES", 1)
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 1)
    sent = 0

    def reached(name: str) -> None:
        nonlocal sent
        sent += name == "blocks-taken"
        if sent == 3:
            tasks.append(asyncio.ensure_future(let_go()))

    async def let_go() -> None:
        await other.release_hold("mirror")
        await other.truncate(200)

    tasks: list[asyncio.Future[None]] = []
    mirror = two.mirror(other, reached=reached)
    with pytest.raises(MirrorEnded, match="to 200 are gone"):
        await complete(mirror)
        await asyncio.sleep(0)


async def test_a_hold_that_somebody_released_is_set_again(two: Two) -> None:
    log = await two.log()
    mirror = two.mirror(log)
    await complete(mirror)
    await log.release_hold("mirror")
    await mirror.bring()
    assert await hold_of(log) == 221


async def test_inv_mirror_6_another_log_or_history_is_no_source(two: Two) -> None:
    """INV-MIRROR-6; `make recovery` plays a source that is continued by force."""
    log = await two.log()
    mirror = two.mirror(log)
    await complete(mirror)
    # A log of the same name that has other records at those LSNs.
    other = two.source.shard(int(await two.first.new_shard()))
    await other.append([b"other"] * 230)
    two.source.names[mirror.pair.name] = other.shard_id
    with pytest.raises(MirrorEnded, match=r"LSNs 11 to 220 of .* are not those") as ended:
        await two.mirror(log).begin()
    assert ended.value.metadata["why"] == "differs"
    assert await hold_of(other) is None
    empty = await two.first.new_shard()
    two.source.names[mirror.pair.name] = int(empty)
    with pytest.raises(MirrorEnded, match=r"has LSNs up to 220, .* up to 0"):
        await two.mirror(log).begin()
    # A log of another lineage: this mirror's promoted copy, as a source of the next one.
    two.source.names[mirror.pair.name] = log.shard_id
    assert (await two.promotion(two.mirror(log)).planned()).fresh
    with pytest.raises(MirrorEnded) as ended:
        await two.mirror(log).begin()
    assert ended.value.metadata["why"] == "promoted"


async def test_inv_mirror_6_two_forks_of_one_number_are_two_sources(two: Two) -> None:
    """Of a source that was recovered twice: nothing in its LSNs or records tells them apart."""
    log = await two.first.new_shard()
    twin = await two.first.new_shard()
    name = f"log-{log}"
    two.source.names[name] = int(log)
    await fork(two.first, log, b"1" * 16)
    await fork(two.first, twin, b"2" * 16)
    shard = two.source.shard(int(log))
    mirror = two.mirror(shard)
    copy = await complete(mirror)
    status = await copy.status()
    assert (status.position.lineage.number, status.lineage_parent) == (2, b"1" * 16)
    source: Any = two.source
    target: Any = two.target
    assert not (await standing(source, target, mirror.pair, "mirror")).problem
    two.source.names[name] = int(twin)
    found = await standing(source, target, mirror.pair, "mirror")
    assert "continued by force" in found.problem
    for again in (two.mirror(shard), two.mirror(shard)):
        with pytest.raises(MirrorEnded) as ended:
            await again.begin()
        assert ended.value.metadata["why"] == "lineage"
    two.source.names[name] = int(log)
    await two.mirror(shard).begin()


async def test_a_log_that_is_in_use_is_no_target(two: Two) -> None:
    log = await two.log()
    mirror = two.mirror(log)
    made = await two.target.create_shard(name=mirror.pair.into, shard_id=0)
    await two.target.shard(made).append(b"somebody's")
    with pytest.raises(VerbRefused):
        await mirror.begin()
    with pytest.raises(InvalidArgument, match="no mirror yet"):
        await two.mirror(log).begin(make=False)


async def test_an_empty_source_and_one_that_is_truncated_to_its_end(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The LSNs below the base have no time that would be later than that of the first record."""
    monkeypatch.setattr(bounds, "MIRROR_HOLD_S", 0.0)
    for truncated in (False, True):
        shard = await two.first.new_shard()
        two.source.names[f"log-{shard}"] = int(shard)
        log = two.source.shard(int(shard))
        if truncated:
            await log.append([b"x"] * 7)
            await log.truncate(7)
        mirror = two.mirror(log)
        copy = await complete(mirror)
        await log.append([b"y"] * 3)
        await complete(mirror)
        assert await told(copy, 8 if truncated else 1) == await told(log, 8 if truncated else 1)
        assert (await two.promotion(mirror).planned()).end_lsn == (11 if truncated else 4)


async def test_from_an_lsn(two: Two) -> None:
    log = await two.log()
    copy = await complete(two.mirror(log, pair={"from_lsn": 100}))
    assert (await copy.status()).restoring.base_lsn == 100
    assert await told(copy, 100) == await told(log, 100)


async def test_the_hold_moves_while_it_catches_up(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MIRROR_PASS_S: a source with much to mirror gets space back before all of it is there."""
    monkeypatch.setattr(bounds, "MIRROR_PASS_S", 0.0)
    monkeypatch.setattr(bounds, "MIRROR_HOLD_S", 0.0)
    monkeypatch.setattr(bounds, "RESTORE_CALL_ITEMS_MAX", 2)
    log = await two.log()
    mirror = two.mirror(log)
    await mirror.begin()
    seen = []
    while not await mirror.bring():
        seen.append((await hold_of(log), max(11, mirror.next_lsn)))
    assert len(seen) > 3
    assert all(held == there for held, there in seen)


async def test_a_log_without_append_times_is_not_mirrored(two: Two) -> None:
    """Of cluster version 1: between its records and later ones there is no order of times."""
    async with Served(1, cluster_version=1) as old, LogClient([old.stores[0].address]) as client:
        source: Any = NamedLogs(old, client)
        shard = int(await old.new_shard())
        source.names["old"] = shard
        await client.shard(shard).append(b"x")
        target: Any = two.target
        mirror = Mirror(source, target, Pair("old", "new"), hold="mirror")
        with pytest.raises(InvalidArgument, match=r"LSN 1 has no append time.*from_lsn = 2"):
            await mirror.begin()
        assert "new" not in two.target.names


# --- promoting ------------------------------------------------------------------------------------


async def test_a_planned_promote_goes_on_at_the_next_lsn(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await two.log(monkeypatch)
    mirror = two.mirror(log)
    copy = await complete(mirror)
    await log.append(b"the last one")
    before = await told(log, 11)
    said: list[str] = []
    found = await two.promotion(mirror, say=said.append).planned()
    assert (found.end_lsn, found.source_end_lsn, found.fresh) == (229, 229, True)
    assert found.writer_epoch == 2**32 + 1
    assert any("closed behind LSN 228" in line for line in said)
    with pytest.raises(ShardClosed):
        await log.append(b"of a writer that does not know")
    assert await hold_of(log) is None
    assert await told(copy, 11) == before
    stranger = two.target.shard(copy.shard_id)
    stranger.writer_epoch = 1
    with pytest.raises(Fenced):
        await stranger.append(b"with the old epoch")
    assert await stranger.acquire_writer("db", expected_epoch=found.writer_epoch) > 2**32 + 1
    assert await stranger.append(b"next") == 229
    assert (await stranger.allocate_timestamps()).start == 101 + bounds.LINEAGE_TIMESTAMP_STEP
    again = await two.promotion(two.mirror(log)).planned()
    assert (again.fresh, again.end_lsn) == (False, 229)


@pytest.mark.parametrize("step", promoting.STEPS)
async def test_a_killed_promote_is_said_again(two: Two, step: str) -> None:
    """INV-MIRROR-5: at the end of a source that is closed, whoever was killed when."""
    log = await two.log()
    await complete(two.mirror(log))
    await log.append(b"not mirrored yet")
    with pytest.raises(Killed):
        await two.promotion(two.mirror(log), reached=killed_at(step)).planned()
    closed = bool((await log.status()).closed_index)
    assert closed == (step not in ("complete", "compared"))
    mirror = two.mirror(log)
    found = await two.promotion(mirror).planned()
    assert (found.end_lsn, found.fresh) == (222, step not in ("open", "released"))
    assert await told(mirror.copy.shard, 11) == await told(log, 11)
    assert await hold_of(log) is None


async def test_another_identity_promotes_what_a_process_mirrors(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hold is the process's: it is not touched before the end, and an administrator may."""
    log = await two.log()
    await complete(two.mirror(log))
    monkeypatch.setattr(two.first, "caller", "logservice://d/c/client/operator")
    with pytest.raises(PermissionDenied):
        await two.mirror(log).begin()
    await log.append([b"behind"] * 3)
    mirror = two.mirror(log, keeps_hold=False)
    before = await hold_of(log)
    assert await two.promotion(mirror).check() is None
    assert await hold_of(log) == before
    assert (await two.promotion(mirror).planned()).end_lsn == 224
    assert await hold_of(log) is None


async def test_what_would_fail_is_said_before_the_source_is_closed(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await two.log()
    with pytest.raises(InvalidArgument, match="no mirror yet"):
        await two.promotion(two.mirror(log)).planned()
    mirror = two.mirror(log)
    copy = await complete(mirror)
    monkeypatch.setattr(two.target, "full", ["s2"])
    with pytest.raises(DiskFull, match="s2"):
        await two.promotion(mirror).planned()
    monkeypatch.undo()
    assert await two.promotion(mirror).check() is None
    assert not (await log.status()).closed_index
    assert (await copy.status()).restoring.mirror


async def test_a_mirror_that_differs_is_not_opened(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await two.log()
    mirror = two.mirror(log)
    copy = await complete(mirror)
    other = await two.log()
    await other.append([b"z"] * 5)
    wrong = await other.digest(221, 222)
    close = mirror.source.close_log

    async def digest(*_: Any, **__: Any) -> Any:
        return wrong

    async def close_log() -> Any:
        # What comes between the comparison and the close is compared by the opening.
        await log.append(b"late")
        closed = await close()
        monkeypatch.setattr(mirror.source, "digest", digest)
        return closed

    monkeypatch.setattr(mirror.source, "close_log", close_log)
    promotion = two.promotion(mirror)
    with pytest.raises(CorruptBlock):
        await promotion.planned()
    assert (await copy.status()).restoring.mirror
    assert "Say the command again" in promotion.standing


async def test_a_forced_promote_asks_nothing_of_the_source(two: Two) -> None:
    log = await two.log()
    mirror = two.mirror(log)
    copy = await complete(mirror)
    await log.append([b"lost"] * 3)
    found = await two.promotion(two.mirror(log)).forced(None)
    assert (found.end_lsn, found.source_end_lsn, found.fresh) == (221, 224, True)
    with pytest.raises(TooLarge):
        await copy.allocate_timestamps()
    copy.writer_epoch = 0
    with pytest.raises(Fenced):
        await copy.append(b"without an epoch")
    # The source is not fenced, and says so; its hold keeps what is missing here.
    assert await log.append(b"it goes on") == 224
    assert await hold_of(log) is not None
    again = await two.promotion(two.mirror(log)).forced(None)
    assert (again.end_lsn, again.fresh) == (221, False)
    with pytest.raises(MirrorEnded, match="log of its own, since LSN 220"):
        await two.promotion(two.mirror(log)).planned()
    with pytest.raises(MirrorEnded):
        await mirror.bring()
    assert not (await log.status()).closed_index


async def test_a_forced_promote_of_what_is_no_mirror(two: Two) -> None:
    log = await two.log()
    with pytest.raises(ShardNotFound):
        await two.promotion(two.mirror(log)).forced(None)
    made = await two.target.create_shard(name=f"copy-{log.shard_id}", shard_id=0)
    with pytest.raises(VerbRefused, match="no mirror"):
        await two.promotion(two.mirror(log)).forced(None)
    assert (await two.target.shard(made).status()).position.lineage.number == 0


async def test_a_promote_that_is_disturbed_gives_up(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MIRROR_PROMOTE_ATTEMPTS_MAX: another process brings, or lets go, all the time."""
    log = await two.log()
    await complete(two.mirror(log))
    asked = 0

    async def finish_restore(self: Shard, lineage: bytes, **wanted: Any) -> Any:
        nonlocal asked
        asked += 1
        raise ShardRestoring(next=wanted["end_lsn"], base=11, end=0)

    monkeypatch.setattr(bounds, "MIRROR_PROMOTE_ATTEMPTS_MAX", 3)
    with monkeypatch.context() as patched:
        patched.setattr(Shard, "finish_restore", finish_restore)
        with pytest.raises(VerbRefused, match="still mirrors"):
            await two.promotion(two.mirror(log)).forced(None)
        assert asked == 3
        with pytest.raises(VerbRefused, match="truncated all the time"):
            await two.promotion(two.mirror(log)).planned()
        assert asked == 6
    assert (await two.promotion(two.mirror(log)).planned()).fresh


async def test_a_target_without_room_is_waited_for(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt ends, and the next one goes on where the copy is; nothing was let go there."""
    monkeypatch.setattr(mirroring, "_PATIENCE_S", 0.0)
    log = await two.log()
    mirror = two.mirror(log)
    await mirror.begin()
    real, full = Shard.restore_blocks, True

    async def restore_blocks(self: Shard, request: Any, **more: Any) -> int:
        if full:
            raise DiskFull(room_bytes=0)
        return await real(self, request, **more)

    monkeypatch.setattr(Shard, "restore_blocks", restore_blocks)
    with pytest.raises(DiskFull):
        await mirror.bring()
    assert await log.truncate(100) == 10, "the hold stands where the copy goes on"
    assert mirror.lag.lsns == 220
    full = False
    monkeypatch.undo()
    copy = await complete(two.mirror(log))
    assert await told(copy, 11) == await told(log, 11)


# --- the process ----------------------------------------------------------------------------------


async def test_the_process_retries_for_ever_and_leaves_what_ended(
    two: Two, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounds, "MIRROR_RETRY_S", 0.01)
    monkeypatch.setattr(bounds, "MIRROR_LOOK_S", 0.2)
    logs = [await two.log() for _ in range(2)]
    names = [f"log-{log.shard_id}" for log in logs]
    settings = Settings(
        ClusterSection(["-"]),
        ClusterSection(["-"]),
        {name: PairSection(into=f"copy-of-{name}") for name in names},
    )
    failing = 3
    real = two.source.resolve_shard

    async def resolve_shard(name: str, *, fresh: bool) -> Any:
        nonlocal failing
        failing -= 1
        if failing >= 0:
            raise NotReady("nobody is there")
        return await real(name, fresh=fresh)

    monkeypatch.setattr(two.source, "resolve_shard", resolve_shard)
    source: Any = two.source
    target: Any = two.target
    caplog.set_level("INFO", "logservice.mirror")
    mirrors = Mirrors(source, target, settings)
    running = asyncio.ensure_future(mirrors.run())
    async with asyncio.timeout(120):
        await until(lambda: all(one.lag.next_lsn == 221 for one in mirrors.mirrors))
        value = mirrors.metrics.registry.get_sample_value
        failures = [value("logservice_mirror_failures_total", {"log": name}) for name in names]
        assert sum(one or 0.0 for one in failures) == 3.0
        await logs[0].append([b"gone"] * 3)
        promotions = [
            two.promotion(Mirror(source, target, one.pair, hold="mirror"))
            for one in mirrors.mirrors
        ]
        found = await promotions[0].planned()
        assert found.end_lsn == 224
        await logs[1].close_log()
        await logs[1].release_hold("mirror")
        await logs[1].truncate(220)
        await asyncio.sleep(0.3)
        assert not running.done(), "the other one goes on"
        made = two.target.names[f"copy-of-{names[1]}"]
        await promotions[1].forced(2**60)
        assert await running
    assert [one.lag.stopped for one in mirrors.mirrors] == [True, True]
    assert value("logservice_mirror_stopped", {"log": names[0]}) is None
    assert value("logservice_mirror_lag_seconds", {"log": names[0]}) is None
    assert await hold_of(logs[0]) is None
    assert (await two.target.shard(made).allocate_timestamps()).start == 2**60 + 1
    assert "not mirrored now: NOT_READY" in caplog.text
    assert "complete up to LSN 220" in caplog.text


async def test_lag_says_what_a_disaster_would_cost() -> None:
    now = 100.0
    lag = Lag(lambda: now)
    metrics = Metrics()
    metrics.watch("orders", lag)
    lag.looked(11, 100.0)
    now = 103.0
    assert (lag.lsns, lag.seconds) == (11, 3.0)
    lag.has(6)
    assert (lag.lsns, lag.seconds) == (5, 3.0)
    lag.has(11)
    assert (lag.lsns, lag.seconds) == (0, 3.0), "since the source was asked"
    now = 104.0
    lag.looked(11, 104.0)
    lag.has(11)
    assert lag.seconds == 0.0
    now = 164.0
    value = metrics.registry.get_sample_value
    assert value("logservice_mirror_lag_seconds", {"log": "orders"}) == 60.0, "nobody knows"
    assert value("logservice_mirror_next_lsn", {"log": "orders"}) == 11.0
    assert value("logservice_mirror_stopped", {"log": "orders"}) == 0.0


class Silent:
    """A cluster that does not answer."""

    class hakeeper:
        """Its HAKeeper."""

        @staticmethod
        async def resolve_shard(name: str, *, fresh: bool) -> object:
            await asyncio.Event().wait()
            raise AssertionError((name, fresh))


async def test_a_status_says_within_seconds_which_cluster_is_silent(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is gone took the client's whole patience, one cluster after the other, and only the
    source was named.
    """
    monkeypatch.setattr(bounds, "MIRROR_ASKED_S", 2.0)
    log = await two.log()
    mirror = two.mirror(log)
    await complete(mirror)
    silent: Any = Silent()
    source: Any = two.source
    target: Any = two.target
    found = await standing(source, target, mirror.pair, "mirror")
    assert (found.state, found.behind, found.problem) == ("mirror", 0, "")
    found = await standing(silent, target, mirror.pair, "mirror")
    assert (found.state, found.next_lsn) == ("mirror", mirror.next_lsn)
    assert found.problem == "source: no answer within 2 s"
    found = await standing(source, silent, mirror.pair, "mirror")
    assert (found.state, found.source_end_lsn) == ("unknown", mirror.next_lsn)
    assert found.problem == "target: no answer within 2 s"
    found = await standing(silent, silent, mirror.pair, "mirror")
    assert found.problem == "source: no answer within 2 s; target: no answer within 2 s"
