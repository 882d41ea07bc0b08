"""Faults stay within what the promises of a store allow for."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from logservice.ids import Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.membership import Member, Membership
from logservice.sim.config import draw
from logservice.sim.disk import SECTOR_BYTES, SimDisk
from logservice.sim.faults.faults import Faults
from logservice.sim.world import World

SEGMENT = "/data/segments/0000000000000001.segment"


@pytest.fixture
def world() -> Iterator[World]:
    """A world whose first store has a rotting disk, does not run, and has one empty segment."""
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
    """Seed 481: the store took its disk for lost, although no sector of it was dead."""
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


def running(number: int, last_index: int, *voters: int, epoch: int = 1) -> Any:
    """The parts of a store that faults look at: one replica of shard 1; `voters` are numbers of
    stores.
    """
    members = tuple(
        Member(ReplicaId(one), StoreId(f"store-{one % 10}"), Incarnation(one)) for one in voters
    )
    membership = Membership(
        voters=tuple(ReplicaId(one) for one in voters), members=members, change_epoch=Index(epoch)
    )
    replica = SimpleNamespace(
        shard=ShardId(1),
        replica_id=ReplicaId(number),
        raft=SimpleNamespace(membership=membership, last_index=last_index),
    )
    return SimpleNamespace(
        store_id=StoreId(f"store-{number % 10}"),
        up=True,
        parts=object(),
        replicas=lambda: [replica],
        running=lambda shard: replica,
    )


@pytest.mark.parametrize(
    ("second", "third", "may_be_lost"),
    [
        (running(2, 9, 1, 2, 3), running(3, 9, 1, 2, 3), True),
        (running(2, 9, 1, 2, 13), running(13, 0), False),
        (running(2, 9, 1, 2, 13, epoch=2), running(3, 9, 1, 2, 3), False),
        (running(2, 9, 2, 13, 14, epoch=2), running(3, 9, 1, 2, 3), True),
    ],
    ids=["whole", "successor without data", "successor not begun", "not a voter any more"],
)
def test_a_disk_is_lost_only_while_the_other_voters_have_their_data(
    world: World, monkeypatch: pytest.MonkeyPatch, second: Any, third: Any, may_be_lost: bool
) -> None:
    """Short seed 88000042: the successor of a voter in a failed directory had not begun yet."""
    monkeypatch.setattr(World, "cluster_version", 1)
    victim = running(1, 9, 1, 2, 3)
    victim.up = False
    victim.replicas = list
    world.stores = [victim, second, third]
    assert Faults(world)._others_have_their_data(victim) == may_be_lost


@pytest.mark.parametrize(
    ("version", "works_again", "may_be_lost"),
    [(1, True, False), (2, True, True), (2, False, False)],
)
def test_a_voter_in_a_failed_directory_has_its_data_again_after_a_restart(
    world: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    version: int,
    works_again: bool,
    may_be_lost: bool,
) -> None:
    """Short seed 88000042: from cluster version 2 on HAKeeper waits for it, so a disk may be lost
    meanwhile.
    """
    monkeypatch.setattr(World, "cluster_version", version)
    victim, second, third = (running(number, 9, 1, 2, 3) for number in (1, 2, 3))
    victim.up, victim.replicas = False, list
    failed = SimpleNamespace(failed="broken", incarnation=Incarnation(2))
    second.parts = SimpleNamespace(host=SimpleNamespace(directories=[failed]))
    second.disk = SimpleNamespace(lost=[] if works_again else ["data"])
    second.running = lambda _: None
    second.replicas = list
    world.stores = [victim, second, third]
    assert Faults(world)._others_have_their_data(victim) == may_be_lost


@pytest.mark.parametrize(
    ("error", "fault", "blamed"),
    [
        (OSError(5, "an error"), False, True),
        (OSError(5, "an error"), True, False),
        (RuntimeError("a defect"), True, True),
    ],
    ids=["without a fault", "with one", "for something else"],
)
def test_a_store_gives_up_only_for_a_disk_fault(
    world: World, error: Exception, *, fault: bool, blamed: bool
) -> None:
    """INV-SIM-CAUSE: any other end of a store is reported."""
    store = world.stores[0]
    store.process = world.loop.process("store-1#1")
    if fault:
        store.fail_disk(5, 0)
    store.gave_up(error)
    assert [one.checker for one in world.violations] == ["crash"] * blamed
    assert not store.up
