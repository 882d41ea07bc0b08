"""HakeeperClient: the state of the cluster, new shards, unique ids. Any store answers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from logservice_wire.rpcs import (
    ADMIT_STORE,
    ALLOCATE_IDS,
    CHANGE_ACCESS,
    CREATE_SHARD,
    GET_ACCESS_LIST,
    GET_CLUSTER_STATE,
    SET_JOINING,
)
from logservice_wire.v1 import hakeeper_pb2

from logservice_client.bounds import TIMEOUT_DEFAULT_S
from logservice_client.caller import Caller
from logservice_client.pacing import Deadline


class HakeeperClient:
    """Get it from `LogClient.hakeeper`; timeouts and errors as in `Shard`."""

    def __init__(self, caller: Caller) -> None:
        """Use the client's connections."""
        self._caller = caller

    async def cluster_state(
        self, *, stale: bool = False, timeout: float | None = None
    ) -> hakeeper_pb2.ClusterState:
        """Stores, shards, replicas, repairs under way. `stale`: as far as the asked store knows."""
        request = hakeeper_pb2.GetClusterStateRequest(stale=stale)
        return await self._caller.call(None, GET_CLUSTER_STATE, request, timeout)

    async def shard_info(
        self, shard_id: int, *, timeout: float | None = None
    ) -> hakeeper_pb2.ShardInfo:
        """Where the replicas of a shard are; raises ShardNotFound."""
        deadline = Deadline(TIMEOUT_DEFAULT_S if timeout is None else timeout)
        return await self._caller.router.shard_info(shard_id, deadline)

    async def create_shard(
        self,
        *,
        shard_id: int = 0,
        name: str = "",
        replicas: int = 0,
        timeout: float | None = None,
    ) -> int:
        """Create a log and return its id. With 0 HAKeeper chooses the id, and the
        cluster's number of replicas.

        Raises ShardExists, NotEnoughStores; after UnknownOutcome ask `shard_info`.
        """
        request = hakeeper_pb2.CreateShardRequest(shard_id=shard_id, name=name, replicas=replicas)
        return (await self._caller.call(None, CREATE_SHARD, request, timeout)).shard_id

    async def access_list(self, *, timeout: float | None = None) -> hakeeper_pb2.AccessList:
        """Who may do what."""
        request = hakeeper_pb2.GetAccessListRequest()
        return await self._caller.call(None, GET_ACCESS_LIST, request, timeout)

    async def change_access(
        self,
        identity: str,
        scope: str,
        *,
        grant: Sequence[str] = (),
        revoke: Sequence[str] = (),
        timeout: float | None = None,
    ) -> int:
        """Give roles to `identity` over `scope`, or take them; returns the list's new version.

        In force on every store within two heartbeats. Raises InvalidArgument, PermissionDenied.
        """
        request = hakeeper_pb2.ChangeAccessRequest(
            identity=identity, scope=scope, grant=grant, revoke=revoke
        )
        return (await self._caller.call(None, CHANGE_ACCESS, request, timeout)).version

    async def admit_store(
        self, store_id: str, *, hakeeper: bool = False, timeout: float | None = None
    ) -> None:
        """Say that a store belongs to the cluster; `hakeeper`: it may run a replica of shard 0."""
        request = hakeeper_pb2.AdmitStoreRequest(store_id=store_id, hakeeper=hakeeper)
        await self._caller.call(None, ADMIT_STORE, request, timeout)

    async def set_joining(self, joining: str, *, timeout: float | None = None) -> None:
        """Set how stores join from now on: "automatic", or "by-verb" (`admit_store`)."""
        request = hakeeper_pb2.SetJoiningRequest(joining=joining)
        await self._caller.call(None, SET_JOINING, request, timeout)

    async def allocate_ids(
        self, count: int = 1, *, key: str = "", timeout: float | None = None
    ) -> range:
        """`count` ids that nobody else gets from the counter `key`."""
        request = hakeeper_pb2.AllocateIdsRequest(key=key, count=count, request_id=uuid.uuid4().hex)
        response = await self._caller.call(None, ALLOCATE_IDS, request, timeout)
        return range(response.first, response.first + count)
