"""Holder: a job that holds a log with a time to live, renews it, and often is not there in time.

Theory of operation. It sets a hold, renews it at a third of its time or so, moves it, and then
releases it, dies (and never says so), or is cut off for about its time to live and comes back. What
it was promised goes into the history: from the answer on, no reader is told that the LSN is
truncated, until its time to live has passed since it *sent* the request, on the fastest clock of
the world (`final_checks`, HOLD). It notices itself when a hold is lost that surely stands, or
stands above where it was put. It also plays the leader that comes late: it proposes an expiry of a
revision that is over, which must do nothing.

Where nothing fails, it also looks whether the hold of a dead job goes in time (INV-HOLD-EXPIRES).
In the other worlds that is looked at in the end (`world`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from logservice_wire.errors import HoldLost, LogServiceError, NotReady

from logservice import bounds
from logservice.ids import Index, Lsn
from logservice.nodehost.node_host import NodeHost
from logservice.outcome import Applied
from logservice.owner import Author
from logservice.rsm import commands
from logservice.sim.clients.client import READ_TIMEOUT_S, Client, Held

TTL_S: Final = bounds.HOLD_TTL_S_MIN
GONE_S: Final = TTL_S + 2 * bounds.HOLD_LOOK_S + READ_TIMEOUT_S
"""A hold that nobody renews is gone after so long on the leader's clock, the time of one command
included."""

_NEEDS: Final = 2
_SLICE_S: Final = 0.5


class Holder(Client):
    """One per shard, in some worlds of cluster version 2."""

    _number = 0
    _revision = Index(0)

    async def run(self) -> None:
        """Until told to stop."""
        rates = self.world.config.clock_rates
        self._surely_s = TTL_S / max(1.0, *rates) if rates else float(TTL_S)
        self._claims: list[Held] = []
        """Of the present name. A life that ends with its hold standing leaves it to the next one,
        which moves it: then the claims end (seed 91800)."""
        while not self.stopping:
            try:
                await self._live()
            except HoldLost as error:
                self.failed(error)
            except LogServiceError as error:
                # What was asked last may still happen, so that name is not used any more.
                self.failed(error)
                self._claims.clear()
                self._number += 1
                await self.pause(2.0)

    async def _live(self) -> None:
        chance = self.chance
        lsn = await self._set(max(1, self.history.applied_lsn - chance.randint(0, 20)))
        for _ in range(chance.randint(1, 4)):
            await self._sleep(TTL_S * chance.uniform(0.2, 0.5))
            if self.stopping:
                break
            if chance.random() < 0.3:
                lsn = await self._set(min(lsn + chance.randint(0, 10), self.history.applied_lsn))
            else:
                await self._renew(lsn)
        end = chance.random()
        if end < 0.2:
            self._claims_end()
            await self._asks(lambda by: commands.ReleaseHold(by, False, self._hold))
        elif end < 0.6:
            await self._die()
        else:
            await self._sleep(TTL_S * chance.uniform(0.6, 1.4))
            await self._renew(lsn)

    @property
    def _hold(self) -> str:
        return f"timed-{self._number}"

    async def _set(self, lsn: int) -> int:
        lsn = max(1, lsn)
        sent_s = self.now
        self._claims_end()
        await self._asks(lambda by: commands.SetHoldFor(by, False, Lsn(lsn), TTL_S, self._hold))
        self._promised(lsn, sent_s)
        return lsn

    async def _renew(self, lsn: int) -> None:
        sent_s, before = self.now, self._revision
        try:
            applied = await self._asks(lambda by: commands.RenewHold(by, self._hold))
        except HoldLost:
            until = max((claim.until for claim in self._claims), default=0.0)
            if self.now < until:
                self._wrong(f"{self._hold} is lost at {self.now:.3f}, promised until {until:.3f}")
            self.counts["holds lost"] += 1
            raise
        if applied.lsn > lsn:
            self._wrong(f"{self._hold} stands at LSN {applied.lsn}, and was put at {lsn}")
        self._revision = Index(applied.value)
        self._promised(lsn, sent_s)
        self.counts["holds renewed"] += 1
        if before and self.chance.random() < 0.4:
            late = await self._asks(lambda _: commands.ExpireHold(before, self._hold))
            if not late.duplicate:
                self._wrong(f"{self._hold} ended by an expiry of {before}, at {self._revision}")

    async def _die(self) -> None:
        """Nobody speaks for this hold any more; but where nothing fails somebody looks."""
        died_s, hold = self.now, self._hold
        self._claims.clear()
        self._number += 1
        self.counts["holds left"] += 1
        await self._sleep(GONE_S)
        config = self.world.config
        quiet = config.calm and not (config.stands or config.loud)
        if quiet and not self.stopping and self.now - died_s >= GONE_S:
            try:
                await self._asks(lambda by: commands.RenewHold(by, hold))
            except HoldLost:
                self.counts["holds gone in time"] += 1
            else:
                self._wrong(f"{hold} stands {self.now - died_s:.3f} s after it was renewed")

    def _promised(self, lsn: int, sent_s: float) -> None:
        claim = Held(lsn, self.now, sent_s + self._surely_s - 0.001)
        self._claims.append(claim)
        self.history.holds.append(claim)

    def _claims_end(self) -> None:
        for claim in self._claims:
            claim.until = min(claim.until, self.now)

    def _wrong(self, what: str) -> None:
        self.history.broken_holds.append(what)

    async def _asks(self, build: Callable[[Author], commands.Command]) -> Applied:
        async def work(host: NodeHost) -> Applied:
            if host.cluster_version.value < _NEEDS:
                raise NotReady("the cluster is too old for this")
            author = Author(self.identity, host.identity.store_id)
            return await host.propose(self.shard, commands.encode(build(author)), READ_TIMEOUT_S)

        return await self.ask(work, READ_TIMEOUT_S)

    async def _sleep(self, seconds: float) -> None:
        for _ in range(math.ceil(seconds / _SLICE_S)):
            if not self.stopping:
                await asyncio.sleep(seconds / math.ceil(seconds / _SLICE_S))
