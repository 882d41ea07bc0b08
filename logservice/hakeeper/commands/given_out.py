"""GivenOut: the numbers that shard 0 gives out only once, as they are asked for and sent.

`hakeeper.given_out` says what becomes of it. It exists from cluster version 2 on.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from logservice import bounds

_Number = Annotated[int, Meta(ge=0, le=bounds.GIVEN_OUT_MAX)]


class GivenOut(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """Every number below these may have been given out.

    next_id: of AllocateIds, over all keys. revision: of the newest event. deleted: the ids of
    deleted logs, as ranges.
    """

    next_shard_id: _Number = 0
    next_replica_id: _Number = 0
    next_operator_id: _Number = 0
    next_command_id: _Number = 0
    next_wish_id: _Number = 0
    next_tn_shard: _Number = 0
    next_id: _Number = 0
    access_version: _Number = 0
    limits_version: _Number = 0
    quotas_version: _Number = 0
    revision: _Number = 0
    deleted: Annotated[
        tuple[tuple[_Number, _Number], ...], Meta(max_length=bounds.HAKEEPER_DELETED_RANGES_MAX)
    ] = ()
