"""Worlds with a rogue: what a seed draws for them, on top of what it has drawn anyway.

About half of them are *gentle*: nothing else goes wrong, so every election and every stall is the
rogue's doing. The others have faults, but none that takes one of the two honest copies for good: a
liar and a lost disk are two failures, and three replicas stand one.
"""

from __future__ import annotations

import random
from enum import StrEnum

from logservice.sim.config import SimConfig
from logservice.sim.rogue.attacks import ATTACKS, NOT_YET

GENTLE_SHARE = 0.4
"""The share of worlds that become gentle although they are not calm."""

SHARDS_MAX = 4
"""Enough for some that it has a replica of and some that it has not."""

SHORT_S = 11.0
"""The least that a short world with a rogue lives: it needs no faults to be old enough for."""


class Worlds(StrEnum):
    """Who the rogue is."""

    NONE = ""
    STRANGER = "stranger"
    MEMBER = "member"
    TRAITOR = "traitor"
    """A member that holds nothing back in log shards: it misuses what it was elected to."""


KINDS = (Worlds.STRANGER,) * 4 + (Worlds.MEMBER,) * 4 + (Worlds.TRAITOR,)


def make_rogue(
    config: SimConfig, only: tuple[str, ...] = (), who: Worlds = Worlds.NONE
) -> SimConfig:
    """Put a rogue into a drawn world; `only`: these attacks and no others; `who`: NONE draws."""
    chance = random.Random(f"rogue/{config.seed}")
    drawn = chance.choice(KINDS)
    config.rogue = who or drawn
    config.rogue_store = chance.randint(1, config.stores)
    config.rogue_per_s = chance.choice((2.0, 4.0, 10.0, 25.0))
    usual = [name for name in ATTACKS if name not in NOT_YET]
    count = chance.choice((1, 2, 4, len(usual)))
    config.attacks = only or tuple(chance.sample(usual, count))
    gentle = config.calm or chance.random() < GENTLE_SHARE
    config.shards = min(config.shards, SHARDS_MAX)
    if config.short:
        config.fault_s, config.least_s = 6.0, SHORT_S
        config.operations_per_s = min(config.operations_per_s, 10.0)
    config.faults_from_start = False
    config.compare_interval_s = chance.choice((1.0, 3.0))
    if gentle:
        _make_gentle(config)
    config.ages = not gentle and chance.random() < 0.4
    if config.rogue != Worlds.STRANGER:
        config.lease_read = False
        config.victim, config.disk_loss, config.disk_death, config.rot = 0, False, False, False
        config.read_fail_interval_s = config.dead_sector_interval_s = 0.0
        config.damage_interval_s = 0.0
        config.diverges = False
    return config


def _make_gentle(config: SimConfig) -> None:
    config.calm = True
    config.victim, config.rot, config.diverges, config.lease_read = 0, False, False, False
    # A store whose clock is wrong gives its leaderships away, without a rogue's help.
    config.clock_rates, config.wall_steps = (), ()
    config.election_ticks = max(config.election_ticks, 8)
    net = config.net
    net.loss = net.duplication = net.reorder = 0.0
    net.delay_mean_s = min(net.delay_mean_s, 0.003)
