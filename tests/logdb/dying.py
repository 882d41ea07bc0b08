"""DyingVfs: files in memory, on a disk of which some sectors can no longer be read."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from logservice.logdb.io.memory_vfs import MemoryVfs
from tests.logdb.helpers import World


class DyingVfs(MemoryVfs):
    """`dead`: the sectors that cannot be read, by file. As on a real disk, a sector that is written
    whole is good again, and a write of a part of a sector has to read it first.
    """

    def __init__(self, healthy: MemoryVfs, sector: int = 4096) -> None:
        self.__dict__ = healthy.copy().__dict__
        self.sector = sector
        self.dead: dict[str, set[int]] = {}
        self.refused = 0

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        if self.dead and self._dead(handle) & self._sectors(offset, offset + max(size, 1)):
            self.refused += 1
            raise OSError(errno.EIO, "sector")
        return super().pread(handle, size, offset)

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        end = offset + sum(map(len, buffers))
        touched = self._dead(handle) & self._sectors(offset, end)
        for number in touched:
            if number * self.sector < offset or (number + 1) * self.sector > end:
                raise OSError(errno.EIO, "sector")
        self._dead(handle).difference_update(touched)
        super().pwritev(handle, buffers, offset)

    def truncate(self, handle: int, size: int) -> None:
        if size % self.sector and size // self.sector in self._dead(handle):
            raise OSError(errno.EIO, "sector")
        self._dead(handle).difference_update(self._sectors(size, self.size(handle)))
        super().truncate(handle, size)

    def kill_bytes(self, path: str, start: int, end: int) -> None:
        """Kill every sector with one of these bytes."""
        self.dead.setdefault(path, set()).update(self._sectors(start, end))

    def _dead(self, handle: int) -> set[int]:
        return self.dead.setdefault(self._paths.get(handle, ""), set())

    def _sectors(self, start: int, end: int) -> set[int]:
        return set(range(start // self.sector, -(-end // self.sector)))


def dying(world: World, *, index: bool, sector: int = 4096) -> tuple[World, DyingVfs]:
    """A copy of a world, with its derived index or without, on a disk that may die."""
    copy = world.copy() if index else world.without_index()
    vfs = DyingVfs(copy.memory, sector)
    copy.vfs = vfs
    return copy, vfs
