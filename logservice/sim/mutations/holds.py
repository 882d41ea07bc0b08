"""Seeded bugs of holds that expire, and of readers' holds, which lapse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logservice import bounds, versions
from logservice.nodehost.replica import reader_holds
from logservice.nodehost.replica.hold_expiry import HoldExpiry
from logservice.nodehost.replica.hold_times import HoldTimes
from logservice.rsm import log_rsm
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.state import LogState
from logservice.sim.config import SimConfig
from logservice.sim.mutations.registry import mutation_in, wrap
from logservice.versions import VersionRange


def _held(config: SimConfig) -> None:
    config.versions = VersionRange(versions.FIRST, versions.NEWEST)
    config.holders = True


def _stood(config: SimConfig) -> None:
    _held(config)
    config.hold_readers, config.reader_hold_stands_s, config.reader_hold_bytes = True, 6.0, 0


def _full(config: SimConfig) -> None:
    _held(config)
    config.hold_readers, config.reader_hold_stands_s, config.reader_hold_bytes = True, 0.0, 4096


@mutation_in(_held)
def _hold_expires_at_any_revision() -> None:
    def mutate(original: Any) -> Any:
        def expire(self: LogRsm, command: Any) -> Any:
            known = self.state.holds.get(command.name)
            revision = known.revision if known is not None else command.revision
            return original(self, replace(command, revision=revision))

        return expire

    wrap(LogRsm, "_expire_hold", mutate)


@mutation_in(_held)
def _holds_never_expire() -> None:
    wrap(HoldExpiry, "_expire", lambda _: lambda _self, _replica, _name, _hold: None)


@mutation_in(_held)
def _holds_expire_late() -> None:
    def mutate(original: Any) -> Any:
        def expires_in_s(self: HoldTimes, name: str, now_s: float) -> Any:
            return original(self, name, now_s - 10.0)

        return expires_in_s

    wrap(HoldTimes, "expires_in_s", mutate)


@mutation_in(_held)
def _renewal_does_not_count() -> None:
    def mutate(original: Any) -> Any:
        def look(self: HoldTimes, state: LogState, now_s: float) -> None:
            before = dict(self._seen)
            original(self, state, now_s)
            for name, (hold, _) in self._seen.items():
                if name in before and before[name][0].lsn == hold.lsn:
                    self._seen[name] = (hold, before[name][1])

        return look

    wrap(HoldTimes, "look", mutate)


@mutation_in(_held)
def _hold_expires_early() -> None:
    def mutate(original: Any) -> Any:
        def expires_in_s(self: HoldTimes, name: str, now_s: float) -> Any:
            return original(self, name, now_s + 3.5)

        return expires_in_s

    wrap(HoldTimes, "expires_in_s", mutate)


@mutation_in(_held)
def _expiry_lets_every_hold_go() -> None:
    def mutate(original: Any) -> Any:
        def settle(self: LogState) -> Any:
            if self.requested_lsn > self.truncated_lsn and any(
                hold.ttl_s for hold in self.holds.values()
            ):
                holds, self.holds = self.holds, {}
                try:
                    return original(self)
                finally:
                    self.holds = holds
            return original(self)

        return settle

    wrap(LogState, "settle_truncation", mutate)


@mutation_in(_stood)
def _readers_hold_that_stands_never_lapses() -> None:
    wrap(HoldExpiry, "stood_s", lambda _: lambda _self, _replica, _name: 0.0)


@mutation_in(_stood)
def _readers_hold_that_stands_lapses_early() -> None:
    def mutate(original: Any) -> Any:
        def stood_s(self: HoldExpiry, replica: Any, name: str) -> float:
            stood: float = original(self, replica, name)
            return 2.0 * stood

        return stood_s

    wrap(HoldExpiry, "stood_s", mutate)


@mutation_in(_stood)
def _every_hold_lapses_as_a_readers() -> None:
    wrap(reader_holds, "is_reader_hold", lambda _: lambda name: bool(name))


@mutation_in(_full)
def _readers_hold_keeps_any_number_of_bytes() -> None:
    wrap(reader_holds, "beyond_bytes", lambda _: _nothing)


def _nothing(replica: Any, newest: Any, size: int) -> Any:
    yield from ()
    return 0


@mutation_in(_full)
def _readers_hold_lapses_at_a_part_of_its_bytes() -> None:
    def mutate(original: Any) -> Any:
        return lambda replica, newest, size: original(replica, newest, size // 4)

    wrap(reader_holds, "beyond_bytes", mutate)


@mutation_in(_stood)
def _readers_holds_of_one_identity_have_no_bound() -> None:
    wrap(log_rsm, "READER_HOLDS_PER_OWNER_MAX", lambda most: most + bounds.HOLDS_MAX)
