"""INV-T4 on disks that are nearly full: real stores, each on a small file system of its own.

Logs fill the disks to 95 %, with no visit of the worker on the way: as when a log fills its disk
within one interval. No export is near, and nothing was freed before. Then one log is truncated, and
two visits later every live replica begins behind the last entry that is covered, and has every
record above the truncation LSN. Where that is, the test reads from the entries before anything is
truncated; it does not ask the worker.

The files follow in whole segments. What must hold of them is INV-GC-SPACE, as G4 says: a sealed
segment stays only if more than a quarter of it is alive. What is copied out of the others may be
more than a full disk has room for at once (INV-GC-ROOM). So no bound is known for one log
that shares its segments with others; all logs of the directory are judged together. One log that
has the directory for itself is judged alone, too: two neighbouring segments hold more than one of
them has room for, because the second began where the first had no room for its first group.

Nothing is judged by time. A visit in which a leader kept something for a member, as G4 allows, does
not count; the members are level before each, so few do.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from logservice_wire.errors import DiskFull, LogServiceError, Truncated

from logservice.ids import Index, Lsn, ReplicaId, ShardId
from logservice.logdb.options import LogDbOptions
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.truncation.steps import Step
from logservice.rsm import commands
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.owners import APP
from tests.tmpfs import free_bytes, mounted
from tests.waiting import eventually

KIB = 1024
SEGMENT_BYTES = 128 * KIB
DISK_BYTES = 8 * 1024 * KIB
RESERVE_BYTES = DISK_BYTES // 20
OTHER = ShardId(2)
VISITS = 2
UNCOUNTED_MAX = 20
ATTEMPTS = 2000
HUGE_RECORDS = 100
_BATCH = 20


@dataclass(frozen=True)
class Pattern:
    """blocks: (bytes, records), which the logs of `shards` append in turn. share: of the first
    log's records, truncated; None: into the middle of one of its huge entries.
    """

    blocks: tuple[tuple[int, int], ...]
    share: float | None
    shards: tuple[ShardId, ...] = (SHARD,)


PATTERNS = {
    "big": Pattern(((100 * KIB, 1),), 0.8),
    "small": Pattern(((4 * KIB, 1),), 0.8),
    "larger_than_a_segment": Pattern(((3 * SEGMENT_BYTES, 1),), 0.5),
    "middle_of_a_huge_one": Pattern(
        ((3 * SEGMENT_BYTES, HUGE_RECORDS), *[(4 * KIB, 1)] * 20), None
    ),
    "all_of_it": Pattern(((64 * KIB, 1),), 1.0),
    "two_logs_in_each_segment": Pattern(((16 * KIB, 1),), 0.9, (SHARD, OTHER)),
    "little_of_another_in_each_segment": Pattern(((8 * KIB, 1),), 0.9, (*[SHARD] * 9, OTHER)),
}
_SMALLER = ((16 * KIB, 1), (4 * KIB, 1))
"""What still goes where the disks have no room for larger blocks."""


class Nearly(Cluster):
    """Three stores whose disks a test fills."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.visited: dict[int, str] = {}
        """The newest segment of each store when its last visit began: what was sealed since then,
        no visit has seen. On a full disk a segment may be as small as one group.
        """
        for store in self.stores.values():
            store.options = LogDbOptions(
                segment_bytes=SEGMENT_BYTES,
                ballast_bytes=0,
                reserve_bytes=RESERVE_BYTES,
                spare_segments_max=0,
            )

    def live(self) -> list[int]:
        return [number for number, store in self.stores.items() if store.host is not None]

    def full(self) -> list[int]:
        running = {number: self.host(number).replicas.running[SHARD] for number in self.live()}
        return [number for number, replica in running.items() if replica.directory.disk.full]

    async def append(self, block: tuple[int, int], shard: ShardId) -> int:
        """Append one block; returns its first LSN. Raises DiskFull."""
        size, records = block
        for _ in range(ATTEMPTS):
            host = self.host(await self.leader(shard))
            try:
                return (await host.append(shard, request(records, bytes(size)), 60.0)).lsn
            except DiskFull:
                raise
            except LogServiceError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(0.01)
        raise AssertionError("nobody took the block")

    async def append_in_time(self, shard: ShardId) -> int:
        """Append when the leader has heard that the disks have room again."""
        for _ in range(ATTEMPTS):
            try:
                return await self.append((KIB, 1), shard)
            except DiskFull:
                await asyncio.sleep(0.01)
        raise AssertionError("there is no room")

    async def fill(self, pattern: Pattern) -> None:
        """Append until the disks of enough members are full to stop the log: of two that live both
        are needed, so one is enough.
        """
        enough = len(self.live()) - 1
        blocks: list[Iterable[tuple[int, int]]] = [pattern.blocks, *[[one] for one in _SMALLER]]
        shards = itertools.cycle(pattern.shards)
        turns = itertools.cycle(blocks.pop(0))
        while len(self.full()) < enough:
            batch = [(next(turns), next(shards)) for _ in range(_BATCH)]
            tried = (self.append(block, shard) for block, shard in batch)
            for error in await asyncio.gather(*tried, return_exceptions=True):
                if not isinstance(error, BaseException):
                    continue
                if not isinstance(error, DiskFull):
                    raise error
                if error.number("room_bytes") and blocks:
                    turns = itertools.cycle(blocks.pop(0))
                    break
            await asyncio.sleep(0)

    async def truncate(self, lsn: int) -> None:
        command = commands.encode(commands.Truncate(APP, Lsn(lsn), 0))
        for _ in range(ATTEMPTS):
            try:
                await self.host(await self.leader()).propose(SHARD, command, 60.0)
            except LogServiceError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(0.01)
            else:
                return
        raise AssertionError("nobody took the truncation")

    async def level(self, truncated: int) -> None:
        """Wait until every live replica knows the truncation LSN, and the leader that they all
        have everything.
        """

        def are_level() -> bool:
            infos = [self.host(number).replicas.info(SHARD) for number in self.live()]
            leading = [info for info in infos if info is not None and info.match]
            if None in infos or len(leading) != 1:
                return False
            last, match = leading[0].last_index, dict(leading[0].match)
            return set(leading[0].recently_active) == set(self.live()) and all(
                info.applied_index == last
                and info.truncated_lsn == truncated
                and match.get(info.replica, last) == last
                for info in infos
                if info is not None
            )

        await eventually(are_level)

    async def visit(self, number: int) -> bool:
        """One visit, as the schedule runs it: at once again when there is more. Whether it counts:
        the leader kept nothing for a member.
        """
        parts = self.stores[number].parts
        assert parts is not None
        (worker,) = parts.workers
        more = True
        while more:
            self.visited[number] = self.files(number)[-1].name
            more = (await worker.run_once()).more
        return worker.decisions.of((SHARD, ReplicaId(number))).install != Step.KEPT_FOR_MEMBER

    def ends(self) -> dict[Index, Lsn]:
        """Of each entry of the log, the LSN behind its records. All replicas have the same."""
        log = self.replica(self.live()[0]).log
        indexes = range(log.first_index() - 1, log.last_index() + 1)
        return {Index(index): log.next_lsn(Index(index)) for index in indexes}

    def files(self, number: int) -> list[Path]:
        """The segments' files, the newest last."""
        return sorted((self.stores[number].directory / "segments").glob("*.segment"))

    def kept(self, number: int) -> int:
        """Bytes of the segments' files."""
        return sum(file.stat().st_size for file in self.files(number))


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Nearly]:
    made = Nearly(tmp_path)
    with mounted([store.directory for store in made.stores.values()], DISK_BYTES):
        await made.up()
        for number in made.stores:
            await made.host(number).replicas.start(
                OTHER, ReplicaId(number), made.membership(), join=False
            )
        try:
            yield made
        finally:
            await made.down()


def _chosen(ends: dict[Index, Lsn], share: float | None) -> int:
    """The LSN to truncate at."""
    if share is not None:
        return int((max(ends.values()) - 1) * share)
    lsns = sorted(ends.values())
    huge = [before for before, after in itertools.pairwise(lsns) if after - before >= HUGE_RECORDS]
    return huge[len(huge) // 2] + HUGE_RECORDS // 2


@pytest.mark.parametrize("down", [False, True], ids=["all_up", "one_down"])
@pytest.mark.parametrize("name", PATTERNS)
async def test_t4_on_a_disk_that_is_95_percent_full(stores: Nearly, name: str, down: bool) -> None:
    pattern = PATTERNS[name]
    if down:
        await stores.leader()
        await stores.stores[3].down()
    await stores.fill(pattern)
    for number in stores.full():
        assert free_bytes(stores.stores[number].directory) <= DISK_BYTES // 20
    await stores.level(0)
    ends = stores.ends()
    before = {number: stores.kept(number) for number in stores.live()}
    lsn = _chosen(ends, pattern.share)
    covered = max(index for index, end in ends.items() if end - 1 <= lsn)
    await stores.truncate(lsn)
    await _visit_twice(stores, lsn)
    for number in stores.live():
        await _judge_log(stores, number, lsn, covered, max(ends.values()))
        _judge_files(stores, number, alone=len(set(pattern.shards)) == 1)
        if len(set(pattern.shards)) == 1:
            assert stores.kept(number) < before[number]
    # Appends go on by themselves, once the next tick has looked at the disks.
    await eventually(lambda: stores.full() == [])
    assert await stores.append_in_time(SHARD) >= max(ends.values())
    assert await stores.append_in_time(OTHER)


@pytest.mark.parametrize("down", [False, True], ids=["all_up", "one_down"])
async def test_a_disk_fills_no_further_than_its_floor_while_no_tick_looks_at_it(
    stores: Nearly, down: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-SPACE-3. One late tick once cost so much of the reserve that a log was stuck for good:
    its truncation waited for room that only the truncation could make.
    """
    await stores.leader()
    if down:
        await stores.stores[3].down()
    monkeypatch.setattr(NodeHost, "_tick_directory", lambda _, of: of.engine.mark_if_idle())
    for block in _SMALLER:
        with pytest.raises(DiskFull):
            while True:
                await stores.append(block, SHARD)
    for number in stores.live():
        assert free_bytes(stores.stores[number].directory) >= RESERVE_BYTES // 4
    assert stores.full()
    monkeypatch.undo()
    await stores.truncate(1)


async def _visit_twice(stores: Nearly, lsn: int) -> None:
    left = dict.fromkeys(stores.live(), VISITS)
    for _ in range(UNCOUNTED_MAX):
        for number in [number for number, visits in left.items() if visits]:
            await stores.level(lsn)
            left[number] -= await stores.visit(number)
    assert not any(left.values()), "what is kept for a member stays, though all are level"


async def _judge_log(stores: Nearly, number: int, lsn: int, covered: Index, end: Lsn) -> None:
    log = stores.replica(number).log
    # No whole entry that is covered, and nothing above.
    assert log.first_index() - 1 >= covered
    assert log.next_lsn(Index(log.first_index() - 1)) - 1 <= lsn
    host = stores.host(number)
    with pytest.raises(Truncated):
        await host.read_log(SHARD, Lsn(lsn), 1)
    position = Lsn(lsn + 1)
    while position < end:
        part = await host.read_log(SHARD, position, 1024 * KIB)
        assert part.runs, f"records from {position} on are missing"
        position = part.next_lsn


def _judge_files(stores: Nearly, number: int, *, alone: bool) -> None:
    sizes = {file.name: file.stat().st_size for file in stores.files(number)}
    sealed = [size for name, size in sizes.items() if name < stores.visited[number]]
    since = [size for name, size in sizes.items() if name > stores.visited[number]]
    live = stores.stores[number].logdb.stats().live_bytes
    assert sum(sealed) <= 4 * live
    if alone:
        assert sum(sealed) <= 2 * live + max([SEGMENT_BYTES, *sealed])
        # Nothing was appended since, so that is little.
        assert sum(since) <= 2 * SEGMENT_BYTES
