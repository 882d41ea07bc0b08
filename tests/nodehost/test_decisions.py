"""What the truncation worker says of its newest visit of each replica."""

from __future__ import annotations

import errno

from logservice_wire.errors import NotReady

from logservice.clock import ManualClock
from logservice.ids import Lsn, ReplicaId, ShardId
from logservice.nodehost.truncation.decisions import Decision, Decisions
from logservice.nodehost.truncation.steps import Step
from tests.nodehost.test_truncation import ENTRY_BYTES, World

KEY = (ShardId(1), ReplicaId(11))


async def test_a_visit_is_known_by_its_replica() -> None:
    world = World()
    log, other = world.host.add(1, 11), world.host.add(2, 12)
    assert world.worker.decisions.of(KEY).install == ""
    for one in (log, other):
        one.append(10)
    log.truncated = Lsn(4)
    for _ in range(3):
        await world.run()
    mine = world.worker.decisions.of(KEY)
    assert (mine.install, mine.export) == (Step.NOTHING_TRUNCATED, Step.NOT_ADVANCED)
    assert mine.freed_bytes == 4 * ENTRY_BYTES
    assert world.worker.decisions.of((ShardId(2), ReplicaId(12))).freed_bytes == 0
    other.halted = "broken"
    await world.run()
    found = world.worker.decisions.of((ShardId(2), ReplicaId(12)))
    assert (found.install, found.export) == (Step.HALTED, "")


async def test_what_is_freed_adds_up() -> None:
    world = World()
    log = world.host.add(1, 11)
    log.append(30)
    for lsn in (10, 20, 30):
        log.truncated = Lsn(lsn)
        await world.run()
        await world.run()
    assert world.worker.decisions.of(KEY).freed_bytes == 30 * ENTRY_BYTES


async def test_a_failure_is_told_with_its_words_until_the_next_visit() -> None:
    world = World()
    log = world.host.add(1, 11)
    log.append(10)
    log.truncated = Lsn(5)

    async def refuse() -> None:
        raise NotReady("the directory failed")

    world.host.on_install = refuse
    await world.run()
    assert world.worker.decisions.of(KEY).install == Step.LATER
    await world.run()
    found = world.worker.decisions.of(KEY)
    assert (found.install, found.export) == (Step.INSTALL_FAILED, Step.NOT_ADVANCED)
    assert found.error == "NotReady: NOT_READY: the directory failed"
    assert found.freed_bytes == 0
    world.host.on_install = None
    await world.run()
    assert world.worker.decisions.of(KEY).error == ""


async def test_a_replica_without_data_is_forgotten() -> None:
    world = World()
    world.host.add(1, 11).append(3)
    await world.run()
    assert world.worker.decisions.of(KEY).install
    del world.host.replicas[ShardId(1)]
    await world.run()
    assert world.worker.decisions.of(KEY) == Decision()


def test_the_time_is_that_of_the_visit_and_the_words_are_bounded() -> None:
    clock = ManualClock()
    decisions = Decisions(clock)
    clock.advance(7)
    decisions.visited(KEY, [Step.INSTALLED, Step.EXPORTED])
    clock.advance(2)
    decisions.failed(KEY, OSError(errno.ENOSPC, "x" * 1000))
    decisions.exported(KEY, Step.EXPORT_FAILED)
    found = decisions.of(KEY)
    assert (found.install, found.export, found.at_s) == (
        Step.INSTALLED,
        Step.EXPORT_FAILED,
        9.0,
    )
    assert len(found.error) == 200
