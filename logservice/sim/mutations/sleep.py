"""Seeded bugs of quiesce (who may sleep, what wakes them), and of what HAKeeper believes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from logservice.hakeeper.stores import heartbeats
from logservice.ids import Index
from logservice.raft import quiesce
from logservice.raft.ready import Role
from logservice.raft.state import State
from logservice.sim.mutations.registry import mutation, wrap


@mutation
def _quiesced_follower_never_wakes() -> None:
    def mutate(original: Callable[[State], None]) -> Any:
        return lambda s: None if s.role is Role.FOLLOWER else original(s)

    wrap(quiesce, "wake", mutate)


@mutation
def _quiesced_leader_never_wakes() -> None:
    def mutate(original: Callable[[State], None]) -> Any:
        return lambda s: None if s.role is Role.LEADER else original(s)

    wrap(quiesce, "wake", mutate)


@mutation
def _hakeeper_believes_a_change_that_was_not_applied() -> None:
    def mutate(original: Any) -> Any:
        def apply_store(state: Any, beat: Any) -> Any:
            outcome = original(state, beat)
            for shard in state.sorted_shards():
                if shard.membership and beat.sequence % 8 == 7:
                    members = shard.members
                    ahead = structs.replace(members, change_epoch=Index(members.change_epoch + 1))
                    shard.membership = ahead.encode()
            return outcome

        return apply_store

    wrap(heartbeats, "apply_store", mutate)
