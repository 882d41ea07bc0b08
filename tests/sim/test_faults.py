"""Faults stay within what is promised of stores that meet them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logservice.sim.config import draw
from logservice.sim.disk import SECTOR_BYTES, SimDisk
from logservice.sim.faults import Faults
from logservice.sim.world import World

SEGMENT = "/data/segments/0000000000000001.segment"


@pytest.fixture
def world() -> Iterator[World]:
    """Its first store rots, does not run, and has one segment, still without a byte."""
    config = draw(1)
    config.victim, config.directories = 1, (1,) * config.stores
    world = World(config)
    disk = world.stores[0].disk
    disk.make_directory("/data/segments")
    disk.create(SEGMENT)
    yield world
    world.loop.bury()


def sectors_of(world: World, count: int) -> SimDisk:
    disk = world.stores[0].disk
    disk.write_durably(disk.open_write(SEGMENT), [bytes(count * SECTOR_BYTES)], 0)
    return disk


@pytest.mark.parametrize(("sectors", "fails"), [(1, False), (2, True)])
async def test_the_only_sector_of_a_disk_is_read_at_the_start(
    world: World, *, sectors: int, fails: bool
) -> None:
    """Seed 481: the store took its disk for lost, of which no sector was dead."""
    disk = sectors_of(world, sectors)
    await Faults(world)._read_fails()
    assert (disk._reads_left >= 0) == fails


async def test_what_is_found_dead_leaves_a_sector_that_can_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faults, "_heard", lambda *_: True)
    faults, disk = Faults(world), sectors_of(world, 2)
    for _ in range(50):
        await faults._dead_sectors()
        alone = len(disk.good_sectors(SEGMENT)) == 1
        assert not alone or disk._reads_left < 0
    assert len(disk.good_sectors(SEGMENT)) == 1
