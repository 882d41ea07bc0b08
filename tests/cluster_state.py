"""What HAKeeper's view of a cluster says, for stories that wait for it."""

from __future__ import annotations

from logservice_wire.v1 import hakeeper_pb2


def whole(state: hakeeper_pb2.ClusterState, without: list[str] | None = None) -> str:
    """What keeps a log from having all its voters on living stores; none of them on `without`."""
    expired = {store.store_id for store in state.stores if store.expired} | set(without or ())
    for shard in state.shards:
        voters = [one for one in shard.replicas if one.role == "voter"]
        bad = [one for one in voters if not one.reported or one.store_id in expired]
        if bad or len(voters) != shard.wanted_replicas or not shard.leader_store:
            stores = sorted(one.store_id for one in voters)
            return f"shard {shard.shard_id} has voters on {stores}, leader {shard.leader_store!r}"
    if state.operators:
        return f"operator {state.operators[0].kind} of shard {state.operators[0].shard_id}"
    return ""
