"""Readers' holds that keep too much, or for too long, lapse; others never do by that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logservice import bounds
from logservice.bounds import (
    HOLD_LOOK_S,
    READER_HOLD_BYTES_MAX,
    READER_HOLD_STANDS_S_MAX,
    READER_HOLD_TTL_S_MAX,
)
from logservice.ids import Lsn
from logservice.rsm import commands
from logservice.rsm.commands import Command, RenewHold, SetHoldFor, Truncate
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.owners import APP
from tests.waiting import eventually


class Held:
    """Three stores with one log, and the holds of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def append(self, count: int, size: int = 500) -> None:
        for _ in range(count):
            leader = self.cluster.host(await self.cluster.leader())
            await leader.append(SHARD, request(1, bytes(size)), 60.0)

    async def propose(self, command: Command) -> None:
        host = self.cluster.host(await self.cluster.leader())
        await host.propose(SHARD, commands.encode(command), 60.0)

    async def hold(self, name: str, lsn: int, ttl_s: int = READER_HOLD_TTL_S_MAX) -> None:
        await self.propose(SetHoldFor(APP, False, Lsn(lsn), ttl_s, name))

    async def visit(self) -> list[str]:
        """The worker of each store visits; the names of the holds afterwards, on the leader."""
        for store in self.cluster.stores.values():
            if store.parts is not None:
                for worker in store.parts.workers:
                    await worker.run_once()
        leader = await self.cluster.leader()
        expiry = self.cluster.host(leader).hold_expiry
        await eventually(lambda: not expiry._proposed)
        rsm = self.cluster.replica(leader).log_rsm
        assert rsm is not None
        return sorted(rsm.state.holds)

    async def wait_s(self, seconds: float) -> None:
        """So much time goes by for the leader's store; what must happen meanwhile is not done."""
        self.cluster.host(await self.cluster.leader()).hold_expiry.now_s += seconds


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Held]:
    cluster = Cluster(tmp_path)
    await cluster.up()
    await cluster.leader()
    yield Held(cluster)
    await cluster.down()


async def test_inv_reader_hold_bytes(log: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-READER-HOLD: READER_HOLD_BYTES_MAX bytes behind it, and no byte more."""
    assert READER_HOLD_BYTES_MAX > 0
    await log.append(20)
    replica = log.cluster.replica(await log.cluster.leader())
    for name in ("reader:5", "reader:15", "backup"):
        await log.hold(name, 15 if name == "reader:15" else 5)
    entries = replica.log
    through = entries.index_of_lsn(Lsn(20))
    behind = entries.bytes_between(entries.index_of_lsn(Lsn(5)), through)
    assert behind > 15 * 500
    monkeypatch.setattr(bounds, "READER_HOLD_BYTES_MAX", behind + 1)
    assert await log.visit() == ["backup", "reader:15", "reader:5"]
    monkeypatch.setattr(bounds, "READER_HOLD_BYTES_MAX", behind)
    assert await log.visit() == ["backup", "reader:15"]
    await log.append(30)
    assert await log.visit() == ["backup"]
    # What it kept may go, and the other hold still counts.
    await log.propose(Truncate(APP, Lsn(40), 0))
    assert replica.log_rsm is not None
    assert replica.log_rsm.state.truncated_lsn == 4


async def test_inv_reader_hold_stands_still(log: Held) -> None:
    """INV-READER-HOLD: renewed or not, at one LSN for READER_HOLD_STANDS_S_MAX at most."""
    await log.append(10)
    for name in ("reader:still", "reader:moves", "backup"):
        await log.hold(name, 3)
    # The looks of `hold_expiry` see them.
    await eventually(lambda: log.cluster.host(1).hold_expiry.now_s > 0)
    assert await log.visit() == ["backup", "reader:moves", "reader:still"]
    for lsn in (4, 5, 6):
        await log.wait_s(READER_HOLD_STANDS_S_MAX / 3 - HOLD_LOOK_S)
        await log.propose(RenewHold(APP, "reader:still"))
        await log.propose(RenewHold(APP, "backup"))
        await log.hold("reader:moves", lsn)
        assert await log.visit() == ["backup", "reader:moves", "reader:still"]
    await log.wait_s(4 * HOLD_LOOK_S)
    await log.propose(RenewHold(APP, "reader:still"))
    assert await log.visit() == ["backup", "reader:moves"]
