"""Policy: what a log's owner wants of its replicas, beside their number.

It is a wish. `repair/` compares it with what is reported, and brings the two together.
"""

from __future__ import annotations

import enum
from typing import Annotated

from msgspec import Meta, Struct

from logservice import bounds
from logservice.hakeeper.commands.wire_types import Natural, Text, Weight

UNLIMITED = (0, 0, bounds.SHARD_WEIGHT_DEFAULT, 0, 0, 0)
"""The limits of a log that nobody limits, and of which everything is kept."""


class ZoneRule(enum.StrEnum):
    """How the voters of a log are spread over zones (the label `zone` of their stores)."""

    NONE = "none"
    """Zones do not matter."""
    BEST_EFFORT = "best-effort"
    """No zone has a majority of the voters, as long as there are stores enough for that."""
    HARD = "hard"
    """No zone ever has a majority of the voters: rather fewer replicas than wanted."""


class LearnersIn(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """So many standing learners in that zone; empty for anywhere."""

    zone: Text
    count: Annotated[int, Meta(ge=1, le=bounds.HAKEEPER_LEARNERS_MAX)]


class Policy(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """`leader_zone`: where the leader should be, empty for anywhere. `protected`: the log is
    not deleted, not even by force. `learners`: the standing learners, each zone once. What is
    appended per second: 0 for as much as goes. `weight`: its share of a disk that more logs want
    than it takes. Retention: what is older, or lies further back, than any one that is set may go;
    0: that is no reason. With none set, everything stays until a client truncates.
    """

    zone_rule: ZoneRule = ZoneRule.BEST_EFFORT
    leader_zone: Text = ""
    protected: bool = False
    learners: tuple[LearnersIn, ...] = ()
    max_bytes_per_s: Natural = 0
    max_records_per_s: Natural = 0
    weight: Weight = bounds.SHARD_WEIGHT_DEFAULT
    retention_age_s: Natural = 0
    retention_bytes: Natural = 0
    retention_records: Natural = 0

    @property
    def limits(self) -> tuple[int, int, int, int, int, int]:
        """What the stores have to know."""
        return (
            self.max_bytes_per_s,
            self.max_records_per_s,
            self.weight,
            self.retention_age_s,
            self.retention_bytes,
            self.retention_records,
        )
