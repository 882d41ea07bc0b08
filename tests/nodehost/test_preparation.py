"""A large state is read in steps before the snapshot that has it is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.membership import Membership
from logservice.nodehost.replica.preparation import Preparation
from logservice.raft.messages import InstallSnapshot
from logservice.rsm.log_rsm import LogRsm
from logservice.snapshot import Snapshot


class Slow(LogRsm):
    """It reads in so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def prepare(self, state: bytes) -> Iterator[None]:
        while self.left:
            self.left -= 1
            yield


def message() -> InstallSnapshot:
    snapshot = Snapshot(Index(9), Term(2), Lsn(5), Membership(), b"state")
    return InstallSnapshot(to=ReplicaId(1), sender=ReplicaId(2), term=Term(2), snapshot=snapshot)


def test_a_small_state_is_heard_at_once() -> None:
    heard: list[int] = []
    assert not Preparation(Slow(0)).before(message(), lambda: heard.append(1))
    assert heard == []


def test_a_large_state_is_heard_when_it_was_read() -> None:
    async def run() -> None:
        dropped = asyncio.Event()
        machine, heard = Slow(3), asyncio.Event()
        preparation = Preparation(machine)
        assert preparation.before(message(), heard.set)
        assert preparation.before(message(), dropped.set)
        await heard.wait()
        assert machine.left == 0
        assert not dropped.is_set(), "it is sent again"
        assert not preparation.before(message(), lambda: None), "the next one is read again"

    asyncio.run(run())


def test_nothing_is_heard_after_the_stop() -> None:
    async def run() -> None:
        heard: list[int] = []
        machine = Slow(3)
        preparation = Preparation(machine)
        assert preparation.before(message(), lambda: heard.append(1))
        preparation.stop()
        for _ in range(9):
            await asyncio.sleep(0)
        assert heard == []
        assert machine.left

    asyncio.run(run())
