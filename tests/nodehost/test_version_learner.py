"""When a store goes over to a higher cluster version, and what its disks say by then."""

from __future__ import annotations

import asyncio
import errno
from typing import Any, cast

import pytest

from logservice.invariants import InvariantViolation
from logservice.nodehost.agent.version_learner import VersionLearner, said_by_all
from logservice.nodehost.disks.directory import Directory
from logservice.versions import KnownVersion
from tests.waiting import eventually


class Used:
    """What the learner needs of a `Directory`."""

    failed = ""
    path = "/d"


class Disk:
    """A data directory whose disk does what the test says."""

    def __init__(self, version: int = 1) -> None:
        self.used = cast("Directory", Used())
        self.cluster_version = version
        self.errors: list[BaseException] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.tries = 0

    async def raise_version(self, cluster_version: int) -> None:
        self.tries += 1
        await self.answers.wait()
        if self.errors:
            raise self.errors.pop()
        self.cluster_version = cluster_version


class Store:
    """A learner over some disks."""

    def __init__(self, *disks: Disk) -> None:
        self.known = KnownVersion()
        self.known.learn(said_by_all(disks))
        self.learner = VersionLearner(self.known, disks, self.failed)

    def failed(self, directory: Any, error: OSError) -> None:
        directory.failed = str(error)


async def test_a_store_uses_a_version_when_all_its_disks_say_it() -> None:
    """INV-VERSION-2."""
    quick, slow = Disk(), Disk()
    slow.answers.clear()
    store = Store(quick, slow)
    store.learner.hear(2, placed=True)
    await eventually(lambda: quick.cluster_version == 2)
    store.learner.hear(2, placed=True)
    assert store.known.value == 1
    slow.answers.set()
    await eventually(lambda: store.known.value == 2)
    assert slow.cluster_version == 2
    assert (quick.tries, slow.tries) == (1, 1), "a disk that is being written is left alone"


async def test_nothing_is_written_at_the_version_that_the_store_has() -> None:
    disk = Disk()
    store = Store(disk)
    store.learner.hear(1, placed=True)
    assert disk.tries == 0
    assert store.known.value == 1


async def test_a_store_begins_at_what_all_its_disks_say_and_catches_up() -> None:
    """A crash came in between, or a disk is new."""
    old, new = Disk(2), Disk(1)
    store = Store(old, new)
    assert store.known.value == 1
    store.learner.hear(2, placed=True)
    await eventually(lambda: store.known.value == 2)
    assert (old.tries, new.tries) == (0, 1)
    assert Store(old, new).known.value == 2


async def test_a_disk_that_fails_does_not_count() -> None:
    broken, good = Disk(), Disk()
    broken.errors = [OSError(errno.EIO, "Input/output error")]
    store = Store(broken, good)
    store.learner.hear(2, placed=True)
    await eventually(lambda: store.known.value == 2)
    assert "Input/output" in broken.used.failed
    assert broken.cluster_version == 1


async def test_a_stuck_disk_that_is_given_up_does_not_hold_the_store_back() -> None:
    stuck, good = Disk(), Disk()
    stuck.answers.clear()
    store = Store(stuck, good)
    store.learner.hear(2, placed=True)
    await eventually(lambda: good.cluster_version == 2)
    assert store.known.value == 1
    stuck.used.failed = "given up"
    store.learner.hear(2, placed=True)
    assert store.known.value == 2
    await store.learner.stop()


async def test_a_full_disk_is_tried_again() -> None:
    disk = Disk()
    disk.errors = [OSError(errno.ENOSPC, "No space left on device")]
    store = Store(disk)
    store.learner.hear(2, placed=True)
    await eventually(lambda: disk.tries == 1 and not disk.errors)
    assert not disk.used.failed
    assert store.known.value == 1
    store.learner.hear(2, placed=True)
    await eventually(lambda: store.known.value == 2)


async def test_what_needs_a_higher_version_may_be_tried_again_until_the_store_has_settled() -> None:
    """A new cluster leaves its first version by itself, and a store hears of it a little later."""
    store = Store(Disk())

    def needed() -> int:
        return store.known.too_early(2).number("needed")

    assert needed() == 0, "nothing was heard yet"
    store.learner.hear(1, placed=False)
    assert needed() == 0, "a new cluster"
    store.learner.hear(1, placed=True)
    assert needed() == 2, "that is a person's business"
    store.learner.hear(2, placed=True)
    assert needed() == 0, "its disks are being told"
    await eventually(lambda: store.known.value == 2)
    store.learner.hear(1, placed=True)
    store.learner.hear(2, placed=True)
    assert store.known.too_early(3).number("needed") == 3


async def test_a_broken_invariant_ends_the_heartbeats() -> None:
    disk = Disk()
    disk.errors = [InvariantViolation("INV-DIR-2", {})]
    store = Store(disk)
    store.learner.hear(2, placed=True)
    await eventually(lambda: not disk.errors)
    await asyncio.sleep(0)
    with pytest.raises(InvariantViolation):
        store.learner.hear(2, placed=True)
