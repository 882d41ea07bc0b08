"""What a store measures when asked: bounded, one thing at a time, ended by whoever asked.

It names INV-MEASURE-1, INV-MEASURE-2 and INV-MEASURE-3.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from logservice_wire.errors import Busy, DeadlineExceeded, InvalidArgument, NotReady

from logservice import bounds
from logservice.bounds import (
    SELF_TEST_BYTES_MAX,
    SELF_TEST_ECHOES_MAX,
    SELF_TEST_NETWORK_BYTES_MAX,
    SELF_TEST_REQUEST_BYTES_MAX,
    SELF_TEST_RETRY_S,
    SELF_TEST_SYNCS_MAX,
    SELF_TEST_TIMERS,
)
from logservice.hakeeper.commands.replies import DirectoryEntry
from logservice.ids import StoreId
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.space.disk_space import DiskState
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.measuring.disk import FILE_NAME, Ended, measure_disk
from logservice.nodehost.measuring.figure import (
    Figure,
    Verdict,
    at_least,
    at_most,
    fact,
    quantile,
)
from logservice.nodehost.measuring.network import ECHO, Heard, Sent, Way
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.peers.question import Question
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from logservice.server import measuring as module
from logservice.server.measuring import Measuring
from tests.nodehost.assembled import assemble
from tests.nodehost.cluster import log_machine
from tests.waiting import eventually

S1, S2 = StoreId("s1"), StoreId("s2")


class Disk(PosixVfs):
    """A disk that counts what a test file gets, hangs or fails when told."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs: threading.Event | None = None
        self.fails = False
        self.largest = 0
        self.syncs = 0
        self.own: set[int] = set()

    def create(self, path: str) -> int:
        handle = super().create(path)
        if path.endswith(FILE_NAME):
            self.own.add(handle)
        return handle

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        if handle in self.own:
            if self.fails:
                raise OSError(errno.EIO, "broken")
            self.largest = max(self.largest, offset + sum(len(one) for one in buffers))
        super().pwritev(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        if handle in self.own:
            self.syncs += 1
            if self.hangs is not None:
                self.hangs.wait()
        super().fdatasync(handle)


def ticking(step_s: float) -> Callable[[], float]:
    now_s = 0.0

    def look() -> float:
        nonlocal now_s
        now_s += step_s
        return now_s

    return look


def names(figures: Sequence[Figure]) -> list[str]:
    return [one.name for one in figures]


def by_name(figures: Sequence[Figure]) -> dict[str, Figure]:
    return {one.name: one for one in figures}


# --- judging --------------------------------------------------------------------------------------


def test_a_figure_is_judged_by_both_thresholds() -> None:
    found = [at_most("a", value, "us", 10, 100).verdict for value in (0, 10, 11, 100, 101)]
    assert found == [Verdict.OK, Verdict.OK, Verdict.SLOW, Verdict.SLOW, Verdict.BAD]
    found = [at_least("a", value, "MiB/s", 100, 10).verdict for value in (101, 100, 99, 10, 9)]
    assert found == [Verdict.OK, Verdict.OK, Verdict.SLOW, Verdict.SLOW, Verdict.BAD]
    assert fact("a", "why").verdict is Verdict.NONE
    assert (quantile([], 0.5), quantile([1.0], 0.99), quantile([1.0, 2.0, 3.0], 0.5)) == (0, 1, 2)
    assert quantile([float(one) for one in range(200)], 0.99) == 198


# --- disks ----------------------------------------------------------------------------------------


def measured(disk: Disk, folder: Path, step_s: float = 1e-6) -> list[Figure]:
    return measure_disk(disk, str(folder), threading.Event(), lambda _: None, ticking(step_s))


def test_the_file_is_bounded_and_gone(tmp_path: Path) -> None:
    """INV-MEASURE-1"""
    disk = Disk()
    found = by_name(measured(disk, tmp_path))
    assert disk.largest == SELF_TEST_BYTES_MAX
    assert disk.syncs == SELF_TEST_SYNCS_MAX + 1
    assert list(tmp_path.iterdir()) == []
    assert {"fdatasync p50", "fdatasync p99", "fdatasync max"} <= found.keys()
    assert found["sequential write"].unit == found["sequential read"].unit == "MiB/s"
    assert found["free"].value > 0


def test_a_slow_disk_is_written_for_no_longer_than_a_part(tmp_path: Path) -> None:
    """By a clock that goes on by a second with each look: SELF_TEST_PART_S bounds every part."""
    disk = Disk()
    found = by_name(measured(disk, tmp_path, 1.0))
    assert 1 <= disk.syncs - 1 <= bounds.SELF_TEST_PART_S
    assert disk.largest <= (bounds.SELF_TEST_PART_S + 1) * (1 << 20)
    assert found["fdatasync p50"].verdict is Verdict.BAD
    assert found["sequential write"].verdict is Verdict.BAD


def test_a_disk_that_is_too_fast_is_not_believed(tmp_path: Path) -> None:
    found = by_name(measured(Disk(), tmp_path, 1e-6))
    assert found["fdatasync p50"].value < bounds.SELF_TEST_UNBELIEVABLE_US
    assert found["fdatasync honesty"].verdict is Verdict.BAD
    assert "fdatasync honesty" not in by_name(measured(Disk(), tmp_path, 1e-3))


@pytest.mark.parametrize("ends_at", [1, 5, SELF_TEST_SYNCS_MAX + 1])
def test_it_ends_between_any_two_operations(tmp_path: Path, ends_at: int) -> None:
    ends = threading.Event()

    class Ending(Disk):
        def fdatasync(self, handle: int) -> None:
            super().fdatasync(handle)
            if self.syncs == ends_at:
                ends.set()

    disk = Ending()
    with pytest.raises(Ended):
        measure_disk(disk, str(tmp_path), ends, lambda _: None)
    assert disk.syncs == ends_at
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_keeps_no_file(tmp_path: Path) -> None:
    disk = Disk()
    disk.fails = True
    with pytest.raises(OSError, match="broken"):
        measured(disk, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(bytes(1000))
    measured(Disk(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_pages_are_dropped_before_they_are_read(tmp_path: Path) -> None:
    asked: list[int] = []
    disk = Disk()
    measure_disk(disk, str(tmp_path), threading.Event(), asked.append, ticking(1e-6))
    assert len(asked) == 1
    assert asked[0] in disk.own


# --- one store ------------------------------------------------------------------------------------


class World:
    """Two stores of one network; s1 measures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = MemoryNetwork()
        self.disk = Disk()
        self.parts = self._store(S1, self.disk)
        self.other = self._store(S2, Disk())
        self.facts: Callable[[], list[Figure]] = list
        self.measuring = Measuring(
            self.parts, lambda _: self.facts(), lambda: self.facts(), lambda _: None
        )

    def _store(self, store: StoreId, disk: Disk) -> StoreParts:
        return assemble(
            store,
            [self.folder / store],
            lambda identity: MemoryTransport(identity, self.network),
            options=NodeHostOptions(tick_ms=10, election_ticks=20),
            on_fatal=lambda error: None,
            disk=lambda _: DiskSeams.on_files(disk),
            state_machines=log_machine,
        )

    @property
    def path(self) -> str:
        return self.parts.directories[0].data.path

    def left(self) -> bool:
        return (Path(self.path) / FILE_NAME).exists()

    async def up(self) -> None:
        for one, two in ((self.parts, self.other), (self.other, self.parts)):
            await one.start()
            one.host.cluster_version.learn(2)
            entries = [
                DirectoryEntry(
                    each.host.identity.store_id,
                    each.host.transport.address,
                    "",
                    each.host.identity.incarnations,
                )
                for each in (one, two)
            ]
            one.book.update(entries, b"")
        for one, two in ((self.parts, self.other), (self.other, self.parts)):
            one.host.transport.set_address(two.host.identity.store_id, two.host.transport.address)
        Measuring(self.other, lambda _: [], list, lambda _: None)

    async def down(self) -> None:
        if self.disk.hangs is not None:
            self.disk.hangs.set()
        for one in (self.parts, self.other):
            await one.stop()
            one.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    one = World(tmp_path)
    await one.up()
    yield one
    await one.down()


async def test_a_disk_is_measured_beside_its_log(world: World) -> None:
    world.facts = lambda: [fact("file system", "ext4", Verdict.OK)]
    found = await world.measuring.measure("disk", world.path)
    assert names(found)[0] == "file system"
    assert {"fdatasync p99", "sequential write", "free"} <= set(names(found))
    assert not world.left()


async def test_a_disk_that_is_nearly_full_is_not_written(world: World) -> None:
    used = world.parts.directories[0].used
    used.disk = DiskState(SELF_TEST_BYTES_MAX, full=False, closed=False, room=1 << 30)
    (found,) = await world.measuring.measure("disk", world.path)
    assert found.verdict is Verdict.BAD
    used.disk = DiskState(1 << 40, full=True, closed=False, room=0)
    (found,) = await world.measuring.measure("disk", world.path)
    assert "not measured" in found.text
    assert world.disk.largest == 0
    used.failed = "broken"
    (found,) = await world.measuring.measure("disk", world.path)
    assert "broken" in found.text
    used.failed = ""


async def test_a_stuck_disk_holds_up_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-MEASURE-3: the loop goes on, the caller is told, the next one is told at once, and the
    file is gone when the disk answers again.
    """
    monkeypatch.setattr(module.bounds, "SELF_TEST_DISK_S", 0.05)
    world.disk.hangs = threading.Event()
    (found,) = await world.measuring.measure("disk", world.path)
    assert (found.name, found.verdict) == ("answers", Verdict.BAD)
    assert "stuck" in found.text
    (found,) = await world.measuring.measure("disk", world.path)
    assert "earlier measurement" in found.text
    assert names(await world.measuring.measure("network", "s2"))[0] == "round trip p50"
    world.disk.hangs.set()
    await eventually(lambda: world.measuring._at_disks[world.path].done())
    assert not world.left()
    world.disk.hangs = None
    monkeypatch.setattr(module.bounds, "SELF_TEST_DISK_S", 20.0)
    assert "fdatasync p50" in names(await world.measuring.measure("disk", world.path))


async def test_a_caller_who_leaves_ends_it_and_no_file_stays(world: World) -> None:
    """INV-MEASURE-1, INV-MEASURE-3"""
    world.disk.hangs = threading.Event()
    caller = asyncio.ensure_future(world.measuring.measure("disk", world.path))
    await eventually(lambda: world.disk.syncs)
    assert world.left()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    world.disk.hangs.set()
    await eventually(lambda: not world.left())
    assert world.disk.syncs < SELF_TEST_SYNCS_MAX


async def test_hundreds_at_once_get_one_measurement(world: World) -> None:
    world.disk.hangs = threading.Event()
    work = [asyncio.ensure_future(world.measuring.measure("disk", world.path)) for _ in range(300)]
    await eventually(lambda: world.disk.syncs)
    done = [one for one in work if one.done()]
    assert len(done) == 299
    for one in done:
        error = one.exception()
        assert isinstance(error, Busy)
        assert error.metadata["retry_after_ms"] == str(int(SELF_TEST_RETRY_S * 1000))
    world.disk.hangs.set()
    (first,) = [one for one in work if one not in done]
    assert "fdatasync p99" in names(await first)
    assert names(await world.measuring.measure("machine", "")) != []


async def test_a_disk_that_fails_is_a_finding_and_the_store_lives(world: World) -> None:
    world.disk.fails = True
    (found,) = await world.measuring.measure("disk", world.path)
    assert found.verdict is Verdict.BAD
    assert "broken" in found.text
    assert world.parts.directories[0].used.failed == ""


async def test_a_leftover_is_removed_at_the_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.up()
    left = Path(world.path) / FILE_NAME
    await world.down()
    await asyncio.to_thread(left.write_bytes, bytes(1000))
    again = World(tmp_path)
    assert not again.left()
    await again.up()
    await again.down()


@pytest.mark.parametrize("what", ["", "disks", "disk", "network"])
async def test_what_cannot_be_measured(world: World, what: str) -> None:
    for target in ("", "nowhere", "s1"):
        with pytest.raises(InvalidArgument):
            await world.measuring.measure(what, target)
    await world.measuring.measure("machine", "")


async def test_timers_and_facts_of_the_machine(world: World) -> None:
    world.facts = lambda: [at_least("open files, limit", 5, "files", 3, 1)]
    found = by_name(await world.measuring.measure("machine", ""))
    assert {"timer late p50", "timer late p99", "timer late max"} <= found.keys()
    assert found["open files, limit"].verdict is Verdict.OK
    assert SELF_TEST_TIMERS * bounds.SELF_TEST_TIMER_S < bounds.SELF_TEST_DISK_S


# --- network --------------------------------------------------------------------------------------


async def test_the_way_to_another_store(world: World) -> None:
    found = by_name(await world.measuring.measure("network", "s2"))
    assert list(found) == [
        "round trip p50",
        "round trip p99",
        "round trip max",
        "throughput",
        "clock offset",
    ]
    assert found["throughput"].value > 0


async def test_before_version_2_nobody_is_asked(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.parts.start()
    world.parts.book.update([DirectoryEntry(S2, "x:1", "", ())], b"")
    with pytest.raises(NotReady):
        await world.measuring.measure("network", "s2")
    await world.down()


class Asked:
    """A peer, as its answers make it; counts what it was sent."""

    def __init__(self, answer: Callable[[bytes], Awaitable[bytes]] | None = None) -> None:
        self.answer = answer
        self.sent = 0
        self.echoes = 0
        self.at_once = self.most_at_once = 0

    async def ask(
        self, target: str, question: Question[object, object], asked: object, timeout_s: float
    ) -> object:
        body = question.encode(asked)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            if question is ECHO:
                self.sent += len(body)
                self.echoes += 1
            if self.answer is not None:
                return question.decode_answer(await self.answer(body), asked)
            heard = question.decode(body, S2)
            assert isinstance(heard, Sent)
            return Heard(heard.number, len(heard.content))
        finally:
            self.at_once -= 1


def way(asked: Asked, step_s: float = 1e-6) -> Way:
    return Way(asked, S2, ticking(step_s), lambda: 0)  # type: ignore[arg-type]


async def test_no_more_is_sent_than_the_bounds_say() -> None:
    """INV-MEASURE-2"""
    asked = Asked()
    one = way(asked)
    await one._round_trips()
    assert asked.echoes == SELF_TEST_ECHOES_MAX
    asked.sent = asked.echoes = 0
    await one._throughput()
    assert asked.echoes == SELF_TEST_NETWORK_BYTES_MAX // SELF_TEST_REQUEST_BYTES_MAX
    assert asked.sent <= SELF_TEST_NETWORK_BYTES_MAX + 8 * asked.echoes
    assert asked.most_at_once == bounds.SELF_TEST_REQUESTS_AT_ONCE


async def test_a_slow_way_is_asked_for_no_longer_than_a_part() -> None:
    asked = Asked()
    one = way(asked, 0.5)
    await one._round_trips()
    await one._throughput()
    assert asked.echoes < 20


@pytest.mark.parametrize(
    "nonsense",
    [
        b"",
        b"\0",
        bytes(16),
        b"\xff" * 16,
        bytes(1 << 20),
        (1).to_bytes(8, "little") + (99).to_bytes(8, "little"),
    ],
)
async def test_a_peer_that_answers_nonsense(nonsense: bytes) -> None:
    """INV-MEASURE-2"""

    async def answer(body: bytes) -> bytes:
        return nonsense

    (found,) = await way(Asked(answer)).measure()
    assert found.verdict is Verdict.BAD
    assert "not about what was sent" in found.text


async def test_a_peer_that_never_answers() -> None:
    async def answer(body: bytes) -> bytes:
        raise DeadlineExceeded("no answer to measure.echo")

    asked = Asked(answer)
    (found,) = await way(asked).measure()
    assert found.verdict is Verdict.BAD
    assert asked.echoes == 1, "one time-out is enough"
    assert bounds.SELF_TEST_ANSWER_S + 3 * bounds.SELF_TEST_PART_S < bounds.SELF_TEST_DISK_S


async def test_a_peer_whose_clock_is_wrong(world: World) -> None:
    ahead_us = int(bounds.CLOCK_SKEW_MAX_S * 2_000_000)
    one = Way(
        world.parts.host.requests,
        S2,
        world.parts.host.clock.monotonic,
        lambda: world.parts.host.clock.wall_us() - ahead_us,
    )
    found = by_name(await one.measure())["clock offset"]
    assert found.verdict is Verdict.BAD
    assert "ahead" in found.text


@pytest.mark.parametrize("size", [0, 7, 8 + SELF_TEST_REQUEST_BYTES_MAX + 1])
def test_what_is_no_echo_is_refused(size: int) -> None:
    with pytest.raises(InvalidArgument):
        ECHO.decode(bytes(size), S2)


def test_the_longest_echo() -> None:
    sent = Sent(2**64 - 1, bytes(SELF_TEST_REQUEST_BYTES_MAX))
    assert ECHO.decode(ECHO.encode(sent), S2) == sent
