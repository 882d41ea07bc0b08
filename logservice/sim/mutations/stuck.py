"""Seeded bugs around replicas that apply nothing, in worlds without other faults."""

from __future__ import annotations

from typing import Any

from logservice import versions
from logservice.nodehost.agent.heartbeats import HeartbeatSender
from logservice.nodehost.routing.giving_way import GivingWay
from logservice.nodehost.routing.successors import Applies, Successors
from logservice.sim.config import SimConfig, make_standing
from logservice.sim.mutations.registry import mutation_in, wrap
from logservice.sim.net import NetFaults
from logservice.versions import VersionRange

_FAR = 1 << 62


def _standing(config: SimConfig) -> None:
    config.versions = VersionRange(versions.FIRST, versions.NEWEST)
    config.calm, config.clock_rates, config.diverges = True, (), False
    config.net = NetFaults(through_codec=config.net.through_codec)
    make_standing(config)


@mutation_in(_standing)
def _stuck_leader_gives_way_to_a_stuck_follower() -> None:
    def mutate(original: Any) -> Any:
        async def ask(self: Successors, replica: Any, other: Any) -> Any:
            answer = await original(self, replica, other)
            return Applies(_FAR, stuck=False) if answer is not None and answer.stuck else answer

        return ask

    wrap(Successors, "_ask", mutate)


@mutation_in(_standing)
def _stuck_leader_stays() -> None:
    wrap(GivingWay, "stuck", lambda _: lambda _self, _replica: None)


@mutation_in(_standing)
def _nobody_is_told_of_stuck_replicas() -> None:
    wrap(HeartbeatSender, "_told_stuck", lambda _: lambda _self: ())
