"""Seeded bugs of retention: what it judges by, what it may not touch, what it leaves."""

from __future__ import annotations

from typing import Any

from logservice import versions
from logservice.ids import Lsn
from logservice.logdb.index.index import EntryIndex
from logservice.nodehost.clocks.clock_watch import ClockWatch
from logservice.nodehost.replica import retention
from logservice.nodehost.replica.retention import Retention
from logservice.rsm.state import LogState
from logservice.sim.config import SimConfig, make_retaining
from logservice.sim.mutations.registry import mutation_in, wrap
from logservice.versions import VersionRange

_YEAR_US = 365 * 86_400 * 1_000_000


def _retaining(config: SimConfig) -> None:
    config.versions = VersionRange(versions.FIRST, versions.NEWEST)
    make_retaining(config)


def _by_age(config: SimConfig) -> None:
    """One clock is a year ahead, and its store leads until it is found out, again and again."""
    config.versions = VersionRange(versions.FIRST, versions.NEWEST)
    make_retaining(config, aged=True)
    config.shards, config.truncation_interval_s = 2, 0.3
    config.wall_steps = (((0.0, _YEAR_US),), *[()] * (config.stores - 1))
    if not config.calm:
        config.crash_interval_s, config.down_s = 1.5, 1.0


def _held(config: SimConfig) -> None:
    _retaining(config)
    config.retention = (0, 0, 100)
    config.holders = True
    config.operations_per_s = 20.0


@mutation_in(_by_age)
def _age_judged_by_the_clock_of_the_store_alone() -> None:
    def past_us(self: ClockWatch) -> int:
        return self._clock.wall_us()

    wrap(ClockWatch, "past_us", lambda _: past_us)


@mutation_in(_held)
def _retention_passes_holds() -> None:
    wrap(retention, "_below_holds", lambda _: lambda _state, lsn: lsn)
    wrap(LogState, "retain", lambda _: lambda self, lsn: _let_go(self, lsn))


def _let_go(state: LogState, lsn: Lsn) -> Lsn:
    state.requested_lsn = max(state.requested_lsn, lsn)
    return state._truncate(lsn)


@mutation_in(_retaining)
def _retention_frees_one_entry_too_many() -> None:
    def mutate(original: Any) -> Any:
        def before_newest(self: EntryIndex, size: int, through: int) -> int:
            return min(int(original(self, size, through)) + 1, through - 1)

        return before_newest

    wrap(EntryIndex, "before_newest", mutate)


@mutation_in(_retaining)
def _retention_frees_nothing() -> None:
    async def visit(self: Retention, replica: Any) -> None:
        pass

    wrap(Retention, "visit", lambda _: visit)
