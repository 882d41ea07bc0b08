"""Replayer: a service of the database that says what it has replayed, and keeps what it was told.

Theory of operation. It speaks to whichever store it meets, as the services do, and its answers get
lost. What it says is drawn: it goes on, stands still, goes back, forgets a log, begins again as
another process, and is silent for a while. When an answer says that a log is held, no replica may
truncate what comes behind the LSN that was said, as long as the service is surely alive. It is so
for most of the time-out after the heartbeat was sent, and until it says something else: that may be
taken though the answer is lost.

At the end it forgets all logs, or goes silent for good. Then its holds have to go, after the
time-out at the latest.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from logservice_wire.errors import LogServiceError

from logservice import bounds
from logservice.hakeeper.commands import replies
from logservice.hakeeper.commands.proposals import ServiceHeartbeat
from logservice.ids import Lsn, ShardId
from logservice.rsm.log_rsm import LogRsm
from logservice.service_hold import is_service_hold
from logservice.sim.interfaces import World

_RHYTHM_S: Final = 0.2
_TIMEOUT_S: Final = 1.0
_SURELY: Final = 0.8
"""Of the time-out: HAKeeper's ticks are not exact."""
_SILENT_SHARE: Final = 0.02
_RESTART_SHARE: Final = 0.05
_SILENT_AT_THE_END_SHARE: Final = 0.2


class _Told(NamedTuple):
    """Records of the log behind `lsn` stay until then."""

    lsn: int
    until_s: float


class Replayer:
    """One per world that is administered."""

    def __init__(self, world: World, last_lsn: Callable[[ShardId], int]) -> None:
        """`last_lsn`: about the last LSN of a log."""
        self._last_lsn = last_lsn
        self._world = world
        self._chance = random.Random(f"replayer/{world.config.seed}")
        self._said: dict[ShardId, int] = {}
        self._told: dict[ShardId, _Told] = {}
        self._finishing = False
        self._boot_id, self._sequence, self._heard = 1, 0, False
        self.beat_s = 0.0
        """When it last sent a heartbeat."""
        self._timeout_s = bounds.HAKEEPER_SERVICE_TIMEOUT_TICKS * world.config.hakeeper_tick_s

    async def run(self) -> None:
        """Until the faults end, and then until nothing more is to be said."""
        while not self._finishing:
            await asyncio.sleep(self._chance.expovariate(1.0) * _RHYTHM_S)
            self._look()
            if self._chance.random() < _SILENT_SHARE:
                await asyncio.sleep(self._chance.random() * self._timeout_s)
                self._look()
            if self._heard and self._chance.random() < _RESTART_SHARE:
                # A process that nobody has heard of could be taken for the newest one later.
                self._boot_id, self._sequence, self._heard = self._boot_id + 1, 0, False
            self._change()
            await self._beat()
        self._told.clear()
        if self._chance.random() >= _SILENT_AT_THE_END_SHARE:
            self._said.clear()
            while not await self._beat():  # noqa: ASYNC110 - nobody tells when a store answers
                await asyncio.sleep(_RHYTHM_S)

    def finish(self) -> None:
        """The faults have ended."""
        self._finishing = True

    @property
    def patience_s(self) -> float:
        """After so long without a heartbeat its holds are on their way out. It is never silent for
        so long and heard of again.
        """
        return self._timeout_s + bounds.HAKEEPER_TICKS_PER_S * self._world.config.hakeeper_tick_s

    def left(self) -> str:
        """A hold for a service that is still there; empty when there is none."""
        return next(self._holds(), "")

    def _holds(self) -> Iterator[str]:
        for store in self._world.stores:
            for shard in self._world.shards:
                replica = store.running(shard)
                if replica is None or not replica.ready_to_lead:
                    continue
                machine = replica.state_machine
                assert isinstance(machine, LogRsm)
                for name in filter(is_service_hold, sorted(machine.state.holds)):
                    yield f"shard {shard} has hold {name}"

    def _change(self) -> None:
        """Draw what is said next. What was told before is true of what is said now at most."""
        shard, draw = self._chance.choice(self._world.shards), self._chance.random()
        last = max(0, self._last_lsn(shard))
        before = self._said.get(shard)
        if before is None:
            self._said[shard] = self._chance.randint(0, last)
        elif draw < 0.15:
            del self._said[shard]
        elif draw < 0.3:
            self._said[shard] = self._chance.randint(0, before)
        elif draw < 0.7:
            self._said[shard] = self._chance.randint(before, max(before, last))
        told, now = self._told.get(shard), self._said.get(shard)
        if told is not None and (now is None or before is None or now < before):
            del self._told[shard]
        elif told is not None and now is not None:
            self._told[shard] = told._replace(lsn=max(told.lsn, now))

    async def _beat(self) -> bool:
        """Say it to some store; whether it was answered."""
        stores = [one for one in self._world.stores if one.up and one.parts is not None]
        if not stores:
            return False
        parts, sent_s = self._chance.choice(stores).parts, self._world.loop.now_s
        self.beat_s = sent_s
        assert parts is not None
        said = tuple(sorted((shard, Lsn(lsn)) for shard, lsn in self._said.items()))
        self._sequence += 1
        beat = ServiceHeartbeat(
            "tn-1",
            "tn",
            "h:1",
            owner="replayer",
            replayed=said,
            boot_id=self._boot_id,
            sequence=self._sequence,
        )
        counts = self._world.counts
        try:
            async with asyncio.timeout(_TIMEOUT_S + 0.5):
                applied = await parts.client.propose(beat, _TIMEOUT_S)
        except (LogServiceError, TimeoutError):
            counts["service heartbeats lost"] += 1
            return False
        counts["service heartbeats"] += 1
        self._heard = True
        for one in replies.decode(applied.data).replayed:
            if one.held_lsn and one.first_lsn <= one.lsn + 1:
                counts["service holds in force"] += 1
                self._told[one.shard] = _Told(one.lsn, sent_s + _SURELY * self._timeout_s)
                if one.held_lsn > one.lsn + 1:
                    self._wrong(f"LSN {one.lsn} of shard {one.shard} is held from {one.held_lsn}")
        self._look()
        return True

    def _look(self) -> None:
        for shard, told in self._told.items():
            truncated = self._world.oracle.shard(shard).truncated_lsn
            if truncated > told.lsn and self._world.loop.now_s < told.until_s:
                self._wrong(f"shard {shard} is truncated to {truncated}, and {told} was promised")

    def _wrong(self, detail: str) -> None:
        self._world.violate("service hold", detail)
