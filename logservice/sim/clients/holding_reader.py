"""HoldingReader: a job that reads under holds of a reader, which lapse by more than their time.

Theory of operation. It is a holder with the names that the role `hold` allows
(`logservice_wire.reader_hold`), of another identity than those who append, and reads what it holds.
Besides what every holder does it stands still at one LSN and renews for ever, until the hold has
lapsed, and then reads there: what it is told is TRUNCATED, or records (`sim.history`). And it sets
more holds than an identity may have.

What it is promised ends when its hold has stood for too long, too. Where holds lapse by the bytes
behind them it is promised nothing, because it does not know those: `checkers.holds` does, and looks
at each expiry, and at holds that are over a bound and do not go.
"""

from __future__ import annotations

from typing import Final

from logservice_wire.errors import HoldLost, LogServiceError, TooLarge
from logservice_wire.reader_hold import PREFIX

from logservice import bounds
from logservice.ids import Lsn
from logservice.rsm import commands
from logservice.sim.clients.client import Held
from logservice.sim.clients.holder import TTL_S, Holder
from logservice.sim.clients.workload import Reader

_CROWD_SHARE: Final = 0.1
_STUBBORN_SHARE: Final = 0.5


class HoldingReader(Holder, Reader):
    """One per shard, in some worlds of cluster version 2."""

    identity = "reader"
    _at = 0
    _placed_s = 0.0

    async def _live(self) -> None:
        draw, config = self.chance.random(), self.world.config
        self._at = 0
        if draw < _CROWD_SHARE:
            await self._crowd()
        elif draw < _STUBBORN_SHARE and (config.reader_hold_stands_s or config.reader_hold_bytes):
            await self._stand()
        else:
            await super()._live()

    @property
    def _hold(self) -> str:
        return f"{PREFIX}{self.name}-{self._number}"

    async def _renew(self, lsn: int) -> None:
        await self._read(lsn, stale=False)
        await super()._renew(lsn)

    async def _stand(self) -> None:
        """Stay where it is, and renew until the hold has lapsed."""
        lsn = await self._set(max(1, self.history.applied_lsn - self.chance.randint(0, 20)))
        while not self.stopping:
            await self._sleep(TTL_S * self.chance.uniform(0.15, 0.35))
            try:
                await self._renew(lsn)
            except HoldLost:
                self.counts["readers' holds lapsed"] += 1
                await self._read(lsn, stale=False)
                raise

    async def _crowd(self) -> None:
        """More holds than one identity may have."""
        names = [f"{self._hold}-{one}" for one in range(bounds.READER_HOLDS_PER_OWNER_MAX + 1)]
        lsn = Lsn(max(1, self.history.applied_lsn))
        asked = 0
        try:
            for name in names:
                asked += 1
                await self._asks(
                    lambda by, name=name: commands.SetHoldFor(  # type: ignore[misc]
                        by, False, lsn, TTL_S, name
                    )
                )
        except TooLarge as error:
            self.failed(error)
            self.counts["readers' holds refused"] += 1
        except LogServiceError:
            self._number += 1
            raise
        for name in names[:asked]:
            await self._asks(
                lambda by, name=name: commands.ReleaseHold(by, False, name)  # type: ignore[misc]
            )
        self._number += 1

    def _promised(self, lsn: int, sent_s: float) -> None:
        config = self.world.config
        if lsn != self._at:
            self._at, self._placed_s = lsn, sent_s
        if config.reader_hold_bytes:
            return
        until_s = sent_s + self._surely_s
        if config.reader_hold_stands_s:
            fastest = max(1.0, *config.clock_rates) if config.clock_rates else 1.0
            until_s = min(until_s, self._placed_s + config.reader_hold_stands_s / fastest)
        claim = Held(lsn, self.now, until_s - 0.001)
        self._claims.append(claim)
        self.history.holds.append(claim)
