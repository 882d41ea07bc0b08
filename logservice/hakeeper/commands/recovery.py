"""RecoverCluster: what HAKeeper has to know once it goes on by force, from an old copy of itself.

`logservice recover` appends it to the log of shard 0 that it rebuilds (`nodehost.recover`). No
store takes it from a caller or from another store. It exists from cluster version 2 on.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from logservice import bounds
from logservice.hakeeper.commands.wire_types import MembershipBytes, Shard, Text


class RecoveredShard(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A shard that was rebuilt, and the membership that it has since: one voter."""

    shard: Shard
    membership: MembershipBytes


class RecoverCluster(
    Struct, tag="recover", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Shard 0 was rebuilt, together with these shards, by that person."""

    shards: Annotated[
        tuple[RecoveredShard, ...], Meta(min_length=1, max_length=bounds.HAKEEPER_SHARDS_MAX)
    ]
    person: Text
