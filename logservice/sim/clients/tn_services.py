"""TN services: processes of the database that serve TN shards, and a person who moves them.

Theory of operation. Each process runs what the client library has for this (`TnShards`): it sends
its heartbeats to whichever store it meets, answers get lost, and what it begins and ends is noted
here. To end takes it a while. A process may be killed or cut off from all stores, and the next one
of its name begins. The rule that is watched is INV-HK-TN: no TN shard is served by two processes at
a time. So is that of the numbers: a replica that is served is never smaller than one that was
served before.

When the faults have ended, every TN shard has to be served by somebody again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import Final

from logservice_client.bounds import TN_END_SHARE
from logservice_client.tn_shards import TnShard, TnShards
from logservice_wire.errors import LogServiceError
from logservice_wire.v1 import hakeeper_pb2

from logservice import bounds
from logservice.hakeeper.commands import replies
from logservice.hakeeper.commands.proposals import Proposal, ServiceHeartbeat
from logservice.hakeeper.commands.verbs import (
    CreateTnShard,
    DeleteTnShard,
    SetWorkState,
    WorkState,
)
from logservice.ids import StoreId
from logservice.sim.clients.administrator import Administrator
from logservice.sim.interfaces import World

_NAMES: Final = ("tn-a", "tn-b", "tn-c")
_HEARTBEAT_S: Final = 0.5
_TIMEOUT_S: Final = 1.0
_RHYTHM_S: Final = 0.7
"""Between two things that the person, or fate, does."""
_LOST_SHARE: Final = 0.1
"""Of the answers that come and are lost on the way to the process."""


@dataclass(eq=False, slots=True)
class _Process:
    """The newest one of its name."""

    boot_id: int
    shards: TnShards
    sequence: int = 0
    cut_off_until_s: float = 0.0
    task: asyncio.Task[None] | None = None


class TnServices:
    """One per world that is administered."""

    def __init__(self, world: World, administrator: Administrator) -> None:
        """Nothing runs yet."""
        self._world = world
        self._administrator = administrator
        self._chance = random.Random(f"tn/{world.config.seed}")
        self._processes: dict[str, _Process] = {}
        self._former: list[_Process] = []
        """Those that another one followed while they were cut off."""
        self._served: dict[int, tuple[int, int]] = {}
        """TN shard -> (boot id, replica) of the process that serves it."""
        self._highest: dict[int, int] = {}
        self._boots = 0
        self._finishing = False
        self._tick_s = world.config.hakeeper_tick_s

    async def run(self) -> None:
        """Until the faults end; then until every TN shard is served, and everything has ended."""
        for name in _NAMES[:2]:
            self._begin(name)
        while not self._finishing:
            await asyncio.sleep(self._chance.expovariate(1.0) * _RHYTHM_S)
            if not self._finishing and self._world.cluster_version >= 2:
                await self._act()
        await self._settle()
        for process in (*self._processes.values(), *self._former):
            await self._end(process)

    def finish(self) -> None:
        """The faults have ended."""
        self._finishing = True

    async def _act(self) -> None:
        draw, name = self._chance.randrange(10), self._chance.choice(_NAMES)
        match draw:
            case 0:
                if name in self._processes:
                    await self._end(self._processes.pop(name))
            case 1 | 2:
                if name in self._processes:
                    self._cut_off(self._processes[name])
            case 3 | 4:
                before = self._processes.get(name)
                if before is None:
                    self._begin(name)
                elif before.cut_off_until_s > self._world.loop.now_s:
                    self._former.append(before)
                    self._begin(name)
            case 5 | 6:
                await self._propose(CreateTnShard(self._chance.choice(self._world.shards)))
            case 7:
                await self._propose(DeleteTnShard(self._chance.randint(1, 6)))
            case _:
                state = self._chance.choice((WorkState.DRAINING, WorkState.WORKING))
                await self._propose(SetWorkState(StoreId(name), state))

    async def _propose(self, proposal: Proposal) -> bool:
        outcome = await self._administrator.attempt(proposal)
        return outcome is not None

    async def _settle(self) -> None:
        """Wait until all are served: as long as it takes to give up silent processes and late ones,
        and to ask the next one.
        """
        for name in _NAMES:
            if name not in self._processes:
                self._begin(name)
            self._processes[name].cut_off_until_s = 0.0
        deadline_s = self._world.loop.now_s + self._patience_s()
        while left := self._left():
            if self._world.loop.now_s > deadline_s:
                self._world.violate("tn shards", left)
                return
            for name in _NAMES:
                await self._propose(SetWorkState(StoreId(name), WorkState.WORKING))
            await asyncio.sleep(1.0)

    def _patience_s(self) -> float:
        ticks = bounds.HAKEEPER_TN_ALIVE_TICKS + 3 * bounds.HAKEEPER_TN_MOVE_TICKS
        return 60.0 + ticks * self._tick_s

    def _left(self) -> str:
        """A TN shard that nobody serves, as HAKeeper knows it; empty when there is none."""
        state = self._administrator.state()
        if state is None:
            return "HAKeeper has no leader"
        for number, one in sorted(state.tn_shards.items()):
            if not one.serving or number not in self._served:
                return f"nobody serves TN shard {number}: {one}"
        return ""

    # --- processes --------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        self._boots += 1
        boot_id = self._boots
        process = _Process(
            boot_id,
            TnShards(lambda shard: self._serve(boot_id, shard), lambda: self._world.loop.now_s),
        )
        self._processes[name] = process
        process.task = asyncio.get_running_loop().create_task(self._live(name, process))

    def _cut_off(self, process: _Process) -> None:
        longest_s = 2 * bounds.HAKEEPER_TN_ALIVE_TICKS * self._tick_s
        process.cut_off_until_s = self._world.loop.now_s + self._chance.uniform(0, longest_s)

    async def _end(self, process: _Process) -> None:
        assert process.task is not None
        process.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await process.task
        await process.shards.close()

    async def _live(self, name: str, process: _Process) -> None:
        watching = process.shards.watch()
        try:
            while True:
                await self._beat(name, process)
                await asyncio.sleep(_HEARTBEAT_S * self._chance.uniform(0.5, 1.5))
        finally:
            watching.stop()

    async def _beat(self, name: str, process: _Process) -> None:
        stores = [one for one in self._world.stores if one.up and one.parts is not None]
        if not stores or process.cut_off_until_s > self._world.loop.now_s:
            return
        parts, sent_s = self._chance.choice(stores).parts, self._world.loop.now_s
        assert parts is not None
        process.sequence += 1
        beat = ServiceHeartbeat(
            name,
            "tn",
            "h:1",
            owner="tn",
            boot_id=process.boot_id,
            sequence=process.sequence,
            serving=tuple(
                sorted((one.tn_shard_id, one.replica) for one in process.shards.serving())
            ),
            takes_tn_shards=True,
        )
        try:
            async with asyncio.timeout(_TIMEOUT_S + 0.5):
                applied = await parts.client.propose(beat, _TIMEOUT_S)
        except (LogServiceError, TimeoutError):
            return
        if self._chance.random() < _LOST_SHARE:
            return
        said = [
            hakeeper_pb2.ServedTnShard(
                tn_shard_id=one.tn_shard, shard_id=one.shard, replica=one.replica
            )
            for one in replies.decode(applied.data).serve
        ]
        process.shards.answered(said, sent_s, bounds.HAKEEPER_TN_STOP_TICKS * self._tick_s)

    async def _serve(self, boot_id: int, shard: TnShard) -> None:
        number = shard.tn_shard_id
        if number in self._served:
            self._world.violate("tn shards", f"{shard} is served twice: {self._served[number]}")
        if shard.replica < self._highest.get(number, 0):
            self._world.violate("tn shards", f"{shard} comes after {self._highest[number]}")
        self._world.counts["tn shards served"] += 1
        self._highest[number] = shard.replica
        self._served[number] = boot_id, shard.replica
        try:
            await asyncio.Event().wait()
        finally:
            # As long as it may take, but for what a look at the clock is late by.
            longest_s = 0.8 * TN_END_SHARE * bounds.HAKEEPER_TN_STOP_TICKS * self._tick_s
            await asyncio.sleep(self._chance.uniform(0, longest_s))
            if self._served.get(number) == (boot_id, shard.replica):
                del self._served[number]
