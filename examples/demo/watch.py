"""Looking at the cluster from outside: what HAKeeper says, what each store says, what the disk
holds.

Plain calls of the public services, each with a short deadline; any store answers for the cluster,
so a dead one is skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import grpc
from logservice_wire.v1 import admin_pb2, admin_pb2_grpc, hakeeper_pb2, hakeeper_pb2_grpc

CALL_TIMEOUT_S = 3.0
FULL_REPLICAS = 3


class Watch:
    """Answers questions about one cluster; `places` gives client addresses by store id."""

    def __init__(self, places: Callable[[], Mapping[str, str]]) -> None:
        self._places = places

    def cluster(self) -> hakeeper_pb2.ClusterState | None:
        """HAKeeper's view; None while no store can give it."""
        for address in self._places().values():
            with grpc.insecure_channel(address) as channel:
                stub = hakeeper_pb2_grpc.HAKeeperStub(channel)
                request = hakeeper_pb2.GetClusterStateRequest()
                try:
                    state: hakeeper_pb2.ClusterState = stub.GetClusterState(
                        request, timeout=CALL_TIMEOUT_S
                    )
                    return state
                except grpc.RpcError:
                    continue
        return None

    def store(self, store_id: str) -> admin_pb2.StoreStatus | None:
        """What a store says of itself; None when it does not answer."""
        with grpc.insecure_channel(self._places()[store_id]) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            try:
                status: admin_pb2.StoreStatus = stub.GetStoreStatus(
                    admin_pb2.GetStoreStatusRequest(), timeout=CALL_TIMEOUT_S
                )
                return status
            except grpc.RpcError:
                return None

    def leader(self, shard: int) -> str | None:
        """The store whose replica leads the shard, by its own word."""
        for store_id in self._places():
            status = self.store(store_id)
            for replica in status.replicas if status else ():
                if replica.shard_id == shard and replica.role == "leader":
                    return store_id
        return None

    def some_leader(self, shard: int, wait: Callable[[Callable[[], bool]], None]) -> str:
        """The same; `wait` returns when what it is given holds, or raises."""
        found: list[str] = []

        def there() -> bool:
            leader = self.leader(shard)
            found.extend([leader] if leader is not None else [])
            return bool(found)

        wait(there)
        return found[0]

    def applied_lsn(self, store_id: str, shard: int) -> int:
        """Newest LSN that the replica on this store has applied; 0 when it does not answer."""
        status = self.store(store_id)
        found = [r.applied_lsn for r in status.replicas if r.shard_id == shard] if status else []
        return found[0] if found else 0

    def full(self) -> bool:
        """Every shard, HAKeeper's own included, has its voters, all alive, none in transition."""
        state = self.cluster()
        if state is None or not state.shards:
            return False
        alive = {store.store_id for store in state.stores if not store.expired}
        return all(shard_is_full(shard, alive) for shard in state.shards)


def shard_is_full(shard: hakeeper_pb2.ShardInfo, alive: set[str]) -> bool:
    """Three voters on three live stores that all report, no learner, no joint configuration."""
    voters = [replica for replica in shard.replicas if replica.role == "voter"]
    return (
        len(voters) == FULL_REPLICAS
        and len(voters) == len(shard.replicas)
        and all(voter.reported and voter.store_id in alive for voter in voters)
        and len({voter.store_id for voter in voters}) == FULL_REPLICAS
        and not shard.joint
    )


def bytes_on_disk(folder: Path) -> int:
    """Size of the log's segment files below a store's folder."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # garbage collection goes on meanwhile
            total += path.stat().st_size if is_segment(path) else 0
    return total


def is_segment(path: Path) -> bool:
    """Whether a file of the data directory holds log entries."""
    return path.suffix == ".segment" and path.is_file()
