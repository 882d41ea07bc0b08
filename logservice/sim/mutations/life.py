"""Seeded bugs of a log's life: made, placed, moved, closed and deleted; and of cluster versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from logservice import bounds, versions
from logservice.hakeeper import feed, state
from logservice.hakeeper.commands.replies import HoldOrder
from logservice.hakeeper.logs import deletion
from logservice.hakeeper.repair import bootstrap, checkers, safety
from logservice.hakeeper.repair.spread import Spread
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.stores import cluster_version, heartbeats, service_holds, tn_shards
from logservice.ids import Index, Lsn, ShardId
from logservice.logdb.format.update import Bootstrap
from logservice.raft.state import State
from logservice.rsm.admission import ADMIT, Admission
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.snapshot_codec import encode_state
from logservice.sim.config import SimConfig
from logservice.sim.mutations.registry import mutation_in, wrap
from logservice.versions import VersionRange

_ZONES = 3


def _administered(config: SimConfig) -> None:
    """Somebody uses every verb, and zones are lost."""
    config.versions = VersionRange(versions.FIRST, versions.NEWEST)
    config.administered = not config.calm
    config.zones = _ZONES if config.administered else 0


def _upgraded(config: SimConfig) -> None:
    config.versions = VersionRange(versions.FIRST, versions.NEWEST)
    config.upgrade = not config.calm


# --- closing --------------------------------------------------------------------------------------


@mutation_in(_administered)
def _closed_log_takes_appends() -> None:
    def mutate(original: Any) -> Any:
        def apply_block(self: LogRsm, block: Any, lsn: Any, index: Any) -> Any:
            end = self.state.closed_index
            self.state.closed_index = Index(0)
            try:
                return original(self, block, lsn, index)
            finally:
                self.state.closed_index = end

        return apply_block

    wrap(LogRsm, "_apply_block", mutate)
    wrap(Admission, "_judge", lambda _: lambda *_: ADMIT)


@mutation_in(_administered)
def _end_of_a_closed_log_missing_from_the_snapshot() -> None:
    def save_snapshot(self: LogRsm) -> bytes:
        return encode_state(replace(self.state, closed_index=Index(0), closed_lsn=Lsn(0)))

    wrap(LogRsm, "save_snapshot", lambda _: save_snapshot)


@mutation_in(_administered)
def _second_close_names_another_end() -> None:
    def mutate(original: Any) -> Any:
        def apply(self: LogRsm, command: Any, entry: Any) -> Any:
            outcome = original(self, command, entry)
            if type(command).__name__ == "Close" and outcome.duplicate:
                return replace(outcome, value=entry.index)
            return outcome

        return apply

    wrap(LogRsm, "_apply", mutate)


# --- deleting -------------------------------------------------------------------------------------


@mutation_in(_administered)
def _deleted_without_a_tombstone() -> None:
    wrap(deletion, "bury", lambda _: lambda *_: None)


@mutation_in(_administered)
def _stores_are_not_told_of_deletions() -> None:
    wrap(heartbeats, "buried", lambda _: lambda *_: ())


@mutation_in(_administered)
def _tombstones_missing_from_the_snapshot() -> None:
    def save_snapshot(self: HAKeeperRsm) -> bytes:
        return state.save(structs.replace(self._state, deleted=[]))

    wrap(HAKeeperRsm, "save_snapshot", lambda _: save_snapshot)


@mutation_in(_administered)
def _id_of_a_deleted_log_given_again() -> None:
    def mutate(original: Any) -> Any:
        def next_id(found: Any) -> Any:
            dead = [first for first, _ in found.deleted if ShardId(first) not in found.shards]
            return ShardId(dead[0]) if dead else original(found)

        return next_id

    wrap(bootstrap, "_unused_shard_id", mutate)


# --- holds for services ---------------------------------------------------------------------------


@mutation_in(_administered)
def _hold_of_a_service_too_high() -> None:
    wrap(service_holds, "_target", lambda original: lambda *found: original(*found) + 5)


@mutation_in(_administered)
def _holds_of_a_service_released_while_it_lives() -> None:
    def mutate(original: Any) -> Any:
        def orders(found: Any, store: Any) -> Any:
            made = original(found, store)
            return made or tuple(
                HoldOrder(shard, name)
                for shard, report in store.replicas.items()
                for name, _ in report.service_holds
            )

        return orders

    wrap(service_holds, "orders", mutate)


@mutation_in(_administered)
def _holds_stay_when_their_service_is_gone() -> None:
    wrap(
        service_holds,
        "orders",
        lambda original: lambda *found: tuple(one for one in original(*found) if one.lsn),
    )


# --- zones, the feed, versions --------------------------------------------------------------------


@mutation_in(_administered)
def _zones_do_not_count() -> None:
    wrap(Spread, "crowd", lambda _: lambda _self, _zone: 0)
    wrap(Spread, "takes", lambda _: lambda _self, _zone: True)


@mutation_in(_administered)
def _revision_of_the_feed_skipped() -> None:
    def mutate(original: Any) -> Any:
        def truncated(found: Any, shard: Any, lsn: Any) -> None:
            original(found, shard, lsn)
            found.feed.last += 1

        return truncated

    wrap(feed, "truncated", mutate)


@mutation_in(_upgraded)
def _raised_before_every_store_can() -> None:
    wrap(cluster_version, "unready", lambda _: lambda _state, _version: [])


# --- witnesses ------------------------------------------------------------------------------------


def _with_witnesses(config: SimConfig) -> None:
    """As `_administered`, on disks that lose nothing: some logs have a witness."""
    _administered(config)
    config.victim, config.disk_loss, config.disk_death = 0, False, False
    config.rot, config.diverges = False, False
    config.read_fail_interval_s = config.dead_sector_interval_s = config.damage_interval_s = 0.0


@mutation_in(_with_witnesses)
def _witness_may_lead() -> None:
    def mutate(original: Any) -> Any:
        def promotable(self: State) -> bool:
            known, self.membership = self.membership, structs.replace(self.membership, witnesses=())
            try:
                found: bool = original(self)
                return found
            finally:
                self.membership = known

        return promotable

    wrap(State, "promotable", mutate)


@mutation_in(_with_witnesses)
def _witness_runs_the_state_machine_of_a_log() -> None:
    wrap(Bootstrap, "of_witness", lambda _: lambda _self, _replica: False)


@mutation_in(_with_witnesses)
def _lost_replica_becomes_a_witness() -> None:
    wrap(checkers, "brings_witness", lambda _: lambda shard, _old: bool(shard.witnesses))
    wrap(safety, "too_many_witnesses", lambda _: lambda _shard, _change: False)


# --- TN shards ------------------------------------------------------------------------------------


@mutation_in(_administered)
def _silent_process_keeps_no_time_to_stop() -> None:
    def mutate(original: Any) -> Any:
        def check(found: Any) -> None:
            waits, bounds.HAKEEPER_TN_ALIVE_TICKS = bounds.HAKEEPER_TN_ALIVE_TICKS, 15  # type: ignore[misc]
            try:
                original(found)
            finally:
                bounds.HAKEEPER_TN_ALIVE_TICKS = waits  # type: ignore[misc]

        return check

    wrap(tn_shards, "check", mutate)


@mutation_in(_administered)
def _withdrawn_tn_shard_is_given_away_at_once() -> None:
    def mutate(original: Any) -> Any:
        def check(found: Any) -> None:
            original(found)
            for number, one in sorted(found.tn_shards.items()):
                if one.withdrawn_tick:
                    tn_shards._free(found, number, "not waited for")

        return check

    wrap(tn_shards, "check", mutate)


@mutation_in(_administered)
def _heartbeats_of_the_next_process_speak_for_the_one_before() -> None:
    def mutate(original: Any) -> Any:
        def take(found: Any, service: Any, beat: Any) -> None:
            for one in found.tn_shards.values():
                if one.service == service.service:
                    one.boot_id = beat.boot_id
            original(found, service, beat)

        return take

    wrap(tn_shards, "take", mutate)
