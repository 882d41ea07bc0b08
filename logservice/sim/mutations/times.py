"""Seeded bugs of append times: how they are stamped, kept, remembered and searched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logservice import versions
from logservice.ids import Lsn
from logservice.nodehost.clocks import clock_watch
from logservice.nodehost.clocks.clock_watch import ClockWatch
from logservice.nodehost.replica import time_search
from logservice.nodehost.replica.append_time import AppendTime
from logservice.nodehost.routing.clock_leaving import ClockLeaving
from logservice.outcome import Applied
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.sessions import Session
from logservice.rsm.snapshot_codec import decode_state
from logservice.sim.config import YEAR_US, SimConfig, step_walls
from logservice.sim.mutations.registry import mutation_in, wrap
from logservice.versions import VersionRange


def _timed(config: SimConfig) -> None:
    """Few logs, many appends, clocks that jump, and crashes."""
    config.versions = VersionRange(versions.FIRST, versions.NEWEST)
    config.shards = 1
    config.operations_per_s = 20.0
    config.session_writers = max(2, config.session_writers)
    if not config.calm:
        config.crash_interval_s = config.crash_interval_s or 3.0
    step_walls(config, share=1.0)


@mutation_in(_timed)
def _stamp_has_no_bound() -> None:
    def wall_us(self: ClockWatch) -> int:
        return self._clock.wall_us()

    wrap(ClockWatch, "wall_us", lambda _: wall_us)


@mutation_in(_timed)
def _store_judges_by_its_own_clock_only() -> None:
    def agreed_us(offsets: Any, known: int, within_us: int) -> int:
        return int(offsets[0])

    wrap(clock_watch, "agreed_us", lambda _: agreed_us)


def _one_clock_is_wrong(config: SimConfig) -> None:
    """A store is a year ahead from the beginning to the end; all others are right."""
    _timed(config)
    config.replicas = 3
    wrong = config.seed % config.stores
    config.wall_steps = tuple(
        ((0.0, YEAR_US),) if store == wrong else () for store in range(config.stores)
    )


@mutation_in(_one_clock_is_wrong)
def _store_with_a_wrong_clock_goes_on_leading() -> None:
    def leave(self: ClockLeaving, replicas: Any, near: Any) -> None:
        pass

    wrap(ClockLeaving, "leave", lambda _: leave)


@mutation_in(_timed)
def _stamp_is_the_clock_alone() -> None:
    def stamp(self: AppendTime) -> int:
        last_us = self._rsm.state.append_time_us
        return max(1, self._clock.wall_us() or 0) if last_us or self._version.value >= 2 else 0

    wrap(AppendTime, "stamp", lambda _: stamp)


@mutation_in(_timed)
def _stamp_forgets_the_uncommitted_tail() -> None:
    def mutate(original: Any) -> Any:
        def stamp(self: AppendTime) -> int:
            self.newest_us = 0
            return int(original(self))

        return stamp

    wrap(AppendTime, "stamp", mutate)


@mutation_in(_timed)
def _newest_append_time_missing_from_the_snapshot() -> None:
    def recover(self: LogRsm, state: bytes) -> None:
        self.__init__()  # type: ignore[misc]
        if state:
            self.state = decode_state(state)
            self.state.append_time_us = 0

    wrap(LogRsm, "recover_from_snapshot", lambda _: recover)


@mutation_in(_timed)
def _repetition_is_told_the_time_of_now() -> None:
    def mutate(original: Any) -> Any:
        def repetition(self: Session, sequence: int, block: Any) -> Any:
            outcome = original(self, sequence, block)
            if isinstance(outcome, Applied) and outcome.value:
                return replace(outcome, value=self.window[-1][3] + 1)
            return outcome

        return repetition

    wrap(Session, "repetition", mutate)


@mutation_in(_timed)
def _search_ends_behind_the_entry() -> None:
    def mutate(original: Any) -> Any:
        def entry_at(replica: Any, lsn: Lsn) -> Any:
            found = yield from original(replica, lsn)
            return found and replace(found, first_lsn=Lsn(found.first_lsn + 1))

        return entry_at

    wrap(time_search, "entry_at", mutate)
