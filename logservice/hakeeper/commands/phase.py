"""Phase: how far the cluster's first start has come, and which transitions exist.

    CREATED --InitialCluster--> BOOTSTRAPPING --first shards placed--> COMMANDS_RECEIVED
    COMMANDS_RECEIVED --a majority of each runs--> RUNNING
    COMMANDS_RECEIVED --HAKEEPER_BOOTSTRAP_TICKS_MAX passed--> BOOTSTRAP_FAILED
    BOOTSTRAP_FAILED --a person, by SetPhase--> COMMANDS_RECEIVED (a new deadline)
    BOOTSTRAP_FAILED --a majority of each runs, from cluster version 2 on--> RUNNING

The deadline counts replicated ticks, so a leader change of shard 0 neither shortens nor forgets it
(in MatrixOne a leader change in this phase fails the bootstrap). BOOTSTRAP_FAILED stops nothing
that runs, and replicas that are missing are still started. It says that a person must look, and
there are no repairs until a majority of each shard runs or that person has set the phase back. At
cluster version 1 nothing is started, and only a person ends it.
"""

from __future__ import annotations

import enum
from typing import Final


class Phase(enum.StrEnum):
    """The values are what people and the wire see."""

    CREATED = "created"
    BOOTSTRAPPING = "bootstrapping"
    COMMANDS_RECEIVED = "commands_received"
    RUNNING = "running"
    BOOTSTRAP_FAILED = "bootstrap_failed"


BY_PERSON: Final = frozenset(
    {
        (Phase.COMMANDS_RECEIVED, Phase.RUNNING),
        (Phase.COMMANDS_RECEIVED, Phase.BOOTSTRAP_FAILED),
        (Phase.BOOTSTRAP_FAILED, Phase.COMMANDS_RECEIVED),
    }
)
"""Transitions that SetPhase may ask for; every other pair changes nothing."""
