"""HakeeperClient: the state of the cluster, new shards, unique ids. Any store answers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from logservice_wire.errors import DeleteRefused, NotReady, ShardDeleted
from logservice_wire.rpcs import (
    ADMIT_STORE,
    ADOPT_SHARD,
    ALLOCATE_IDS,
    CANCEL_OPERATOR,
    CANCEL_WISH,
    CHANGE_SETTINGS,
    CHANGE_SHARD,
    CHECK_IMPACT,
    CLOSE_SHARD,
    CREATE_SHARD,
    CREATE_TN_SHARD,
    DELETE_SHARD,
    DELETE_TN_SHARD,
    DRAIN_DIRECTORY,
    FORGET_STORE,
    GET_CLUSTER_STATE,
    GET_SHARD_INFO,
    LIST_SHARDS,
    MOVE_REPLICA,
    PLAN_BALANCE,
    RAISE_CLUSTER_VERSION,
    REBALANCE,
    RESOLVE_SHARD,
    SEND_SERVICE_COMMAND,
    SET_JOINING,
    SET_LEADER,
    SET_PHASE,
    SET_REPAIR,
    SET_SERVICE_STATE,
    SET_STORE_MODE,
)
from logservice_wire.v1 import hakeeper_pb2, log_pb2

from logservice_client.access_calls import AccessCalls
from logservice_client.arguments import message, seconds
from logservice_client.bounds import TIMEOUT_DEFAULT_S
from logservice_client.number_calls import NumberCalls
from logservice_client.pacing import Backoff, Deadline
from logservice_client.service import Handler, Service
from logservice_client.tn_shards import Serve, TnShards
from logservice_client.watching import watch_events


class HakeeperClient(AccessCalls, NumberCalls):
    """Get it from `LogClient.hakeeper`; timeouts and errors as in `Shard`."""

    def __repr__(self) -> str:
        return "<HakeeperClient>"

    async def cluster_state(
        self, *, stale: bool = False, timeout: float | None = None
    ) -> hakeeper_pb2.ClusterState:
        """Stores, shards, replicas, repairs under way. `stale`: as far as the asked store knows."""
        request = message(hakeeper_pb2.GetClusterStateRequest, stale=stale)
        return await self._caller.call(None, GET_CLUSTER_STATE, request, timeout)

    async def shard_info(
        self, shard_id: int, *, fresh: bool = False, timeout: float | None = None
    ) -> hakeeper_pb2.ShardInfo:
        """Where the replicas of a shard are, and what is wanted of it. Raises ShardNotFound,
        ShardDeleted. `fresh`: as HAKeeper has it now, and not as the asked store knows.
        """
        request = message(hakeeper_pb2.GetShardInfoRequest, shard_id=shard_id, fresh=fresh)
        info = await self._caller.call(None, GET_SHARD_INFO, request, timeout)
        self._caller.router.learn_info(shard_id, info)
        return info

    async def create_shard(
        self,
        *,
        shard_id: int = 0,
        name: str = "",
        replicas: int = 0,
        policy: hakeeper_pb2.ShardPolicy | None = None,
        labels: Mapping[str, str] | None = None,
        request_id: str = "",
        witnesses: int = 0,
        waive_g1: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Create a log and return its id. With 0 HAKeeper chooses the id, and the
        cluster's number of replicas.

        Raises ShardExists, NotEnoughStores; after UnknownOutcome ask `shard_info`. With a
        `request_id` of your own, which nobody uses for another log, call again after
        UnknownOutcome: the same request makes one log, whoever answers. Such a request, a policy,
        labels and witnesses need cluster version 2, else NotReady.

        `witnesses`: so many of the replicas, fewer than half, vote and store no records. Then an
        acknowledged append may be on the disk of one store only, so guarantee G1 does not hold for
        the log, and `waive_g1` has to be said with it.
        """
        request = message(
            hakeeper_pb2.CreateShardRequest,
            shard_id=shard_id,
            name=name,
            replicas=replicas,
            policy=policy,
            labels=labels,
            request_id=request_id,
            witnesses=witnesses,
            waive_g1=waive_g1,
        )
        rpc = replace(CREATE_SHARD, idempotent=True) if request_id else CREATE_SHARD
        return (await self._caller.call(None, rpc, request, timeout)).shard_id

    async def change_shard(
        self,
        shard_id: int,
        *,
        name: str = "",
        replicas: int = 0,
        policy: hakeeper_pb2.ShardPolicy | None = None,
        labels: Mapping[str, str] | None = None,
        revision: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Change what is wanted of a log, and return its new revision. What is left out stays.

        `policy` and `labels` replace the whole. Replicas come and go afterwards, one by one.
        Raises ShardNotFound, ShardDeleted, ShardExists for a name that is taken, StaleEpoch{epoch}
        when the log has another revision than the one that is named.
        """
        request = message(
            hakeeper_pb2.ChangeShardRequest,
            shard_id=shard_id,
            name=name,
            replicas=replicas,
            policy=policy,
            revision=revision,
        )
        if labels is not None:
            request.labels.labels.update(labels)
            request.labels.SetInParent()
        return (await self._caller.call(None, CHANGE_SHARD, request, timeout)).revision

    async def delete_shard(
        self, shard_id: int, name: str, *, force: bool = False, timeout: float | None = None
    ) -> None:
        """Delete the log of that id and name for ever: its records, its replicas, its id.

        The log is closed first, unless it is deleted by force. Raises DeleteRefused{why} for a log
        with holds or under protection, before anything is changed. `force` deletes one with holds
        all the same, and also a log that cannot be closed because its majority is lost, but none
        under protection. What is appended to an open log while it is deleted by force may be acked
        and lost. To delete a deleted log succeeds.
        """
        deadline = Deadline(seconds(timeout))
        request = message(
            hakeeper_pb2.DeleteShardRequest, shard_id=shard_id, name=name, force=force
        )
        try:
            await self._caller.call(None, DELETE_SHARD, request, deadline.left_s())
        except DeleteRefused as refused:
            if refused.metadata.get("why") != "open":
                raise
        else:
            return
        # Nothing but the open log is in the way. A Close is never taken back, so it comes last.
        closing = message(log_pb2.CloseShardRequest, shard_id=shard_id)
        closed = await self._caller.call(shard_id, CLOSE_SHARD, closing, deadline.left_s())
        request.closed_index = closed.closed_index
        await self._caller.call(None, DELETE_SHARD, request, deadline.left_s())

    async def wait_deleted(self, shard_id: int, *, timeout: float | None = None) -> None:
        """Return once no live store has a replica of a deleted log; raises NotReady{held_by}."""
        deadline = Deadline(seconds(timeout))
        backoff = Backoff()
        while True:
            try:
                info = await self.shard_info(shard_id, fresh=True, timeout=deadline.left_s())
            except ShardDeleted:
                return
            held_by = ",".join(info.held_by)
            waiting = NotReady(f"still on {held_by}", held_by=held_by)
            pause_s = backoff.next_s(waiting)
            if deadline.remaining_s() <= pause_s:
                raise waiting
            await asyncio.sleep(pause_s)

    async def list_shards(
        self,
        *,
        states: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        name_prefix: str = "",
        limit: int | None = None,
        timeout: float | None = None,
    ) -> list[hakeeper_pb2.ShardInfo]:
        """The logs, by id: only those in one of `states` (creating, open, closed, deleting), with
        all of `labels` (an empty value stands for any) and a name that begins with `name_prefix`.
        The first `limit` of them, or all.
        """
        deadline = Deadline(seconds(timeout))
        found: list[hakeeper_pb2.ShardInfo] = []
        request = message(
            hakeeper_pb2.ListShardsRequest,
            states=states,
            labels=labels,
            name_prefix=name_prefix,
            limit=limit or 0,
        )
        while True:
            page = await self._caller.call(None, LIST_SHARDS, request, deadline.left_s())
            found += page.shards
            if not page.after or (limit is not None and len(found) >= limit):
                return found[:limit]
            request.after = page.after

    async def resolve_shard(
        self, name: str, *, fresh: bool = False, timeout: float | None = None
    ) -> hakeeper_pb2.ShardInfo:
        """The living log that is called so; raises ShardNotFound. While HAKeeper is silent the
        asked store tells what it knew (`directory_index`), unless that must be `fresh`.
        """
        request = message(hakeeper_pb2.ResolveShardRequest, name=name, fresh=fresh)
        return await self._caller.call(None, RESOLVE_SHARD, request, timeout)

    async def watch_events(
        self,
        after: int | None = None,
        *,
        kinds: Sequence[str] = (),
        shard_id: int | None = None,
        patience: float = TIMEOUT_DEFAULT_S,
    ) -> AsyncGenerator[hakeeper_pb2.ClusterEvent]:
        """The events of the cluster behind revision `after`, in order, each once, without end.

        `after` None: what happens from now on. `kinds`, `shard_id`: only these. When a store is
        lost, the watch goes on at another one; it raises when none can serve for `patience`
        seconds. Raises EventsCompacted{oldest} when the next event is not kept any more: look at
        `cluster_state`, and watch behind the `revision` that it names. Raises NotReady below
        cluster version 2.
        """
        watched = self.event_messages(after, kinds=kinds, shard_id=shard_id, patience=patience)
        async with aclosing(watched) as messages:
            async for message in messages:
                for event in message.events:
                    yield event

    def event_messages(
        self,
        after: int | None = None,
        *,
        kinds: Sequence[str] = (),
        shard_id: int | None = None,
        patience: float = TIMEOUT_DEFAULT_S,
    ) -> AsyncGenerator[hakeeper_pb2.WatchEventsResponse]:
        """`watch_events`, as the messages that a store sends: some events, or none, and the
        revision through which these are all. Keep that revision to go on behind it later.
        """
        return watch_events(self._caller, after, kinds=kinds, shard_id=shard_id, patience=patience)

    async def admit_store(
        self, store_id: str, *, hakeeper: bool = False, timeout: float | None = None
    ) -> None:
        """Say that a store belongs to the cluster; `hakeeper`: it may run a replica of shard 0."""
        request = message(hakeeper_pb2.AdmitStoreRequest, store_id=store_id, hakeeper=hakeeper)
        await self._caller.call(None, ADMIT_STORE, request, timeout)

    def service(
        self,
        service_id: str,
        kind: str,
        handler: Handler,
        *,
        address: str = "",
        labels: Mapping[str, str] | None = None,
        serve: Serve | None = None,
    ) -> Service:
        """A service of the database, not yet running: `run` it in a task. `handler` gets its
        commands, each at least once. A service of the kind "tn" that takes TN shards names `serve`:
        it is run for each TN shard that the service is given, and cancelled when that goes
        elsewhere (`tn_shards`).
        """
        taken = TnShards(serve) if serve is not None else None
        return Service(
            self._caller, service_id, kind, address, labels or {}, handler, tn_shards=taken
        )

    async def create_tn_shard(
        self, shard_id: int, *, identity: str = "", timeout: float | None = None
    ) -> int:
        """A TN shard for a log, and its id. A log has one at most: asked again, it is the same one.
        `identity`: only services of that identity get it. Needs cluster version 2.

        Raises ShardNotFound, InvalidArgument when the one that is there is for another identity.
        """
        request = message(hakeeper_pb2.CreateTnShardRequest, shard_id=shard_id, identity=identity)
        return (await self._caller.call(None, CREATE_TN_SHARD, request, timeout)).tn_shard_id

    async def delete_tn_shard(self, tn_shard_id: int, *, timeout: float | None = None) -> None:
        """Nobody shall serve it any more; whoever does learns it with the next heartbeat. The log
        stays. Raises InvalidArgument for one that never was.
        """
        request = message(hakeeper_pb2.DeleteTnShardRequest, tn_shard_id=tn_shard_id)
        await self._caller.call(None, DELETE_TN_SHARD, request, timeout)

    async def send_service_command(
        self,
        service_id: str,
        kind: str,
        payload: bytes = b"",
        *,
        request_id: str = "",
        timeout: float | None = None,
    ) -> int:
        """Send a command to a service and return its id, which `cluster_state` shows among those
        that wait until the service has handled it. Needs cluster version 2.

        The call repeats itself without making a second command. With a `request_id` of your own,
        which you use for no other command, call again after UnknownOutcome. Raises InvalidArgument
        for an unknown service, Busy when too many commands wait.
        """
        request = message(
            hakeeper_pb2.SendServiceCommandRequest,
            service_id=service_id,
            kind=kind,
            payload=payload,
            request_id=request_id or uuid.uuid4().hex,
        )
        response = await self._caller.call(None, SEND_SERVICE_COMMAND, request, timeout)
        return response.command_id

    async def set_service_state(
        self, service_id: str, work_state: str, *, timeout: float | None = None
    ) -> None:
        """Tell a service to drain ("draining"), or to work again ("working"). It learns it with its
        next heartbeat; `cluster_state` shows "drained" once it says so. Needs cluster version 2.

        Raises InvalidArgument for an unknown service or work state.
        """
        request = message(
            hakeeper_pb2.SetServiceStateRequest, service_id=service_id, work_state=work_state
        )
        await self._caller.call(None, SET_SERVICE_STATE, request, timeout)

    async def set_joining(self, joining: str, *, timeout: float | None = None) -> None:
        """Set how stores join from now on: "automatic", or "by-verb" (`admit_store`)."""
        request = message(hakeeper_pb2.SetJoiningRequest, joining=joining)
        await self._caller.call(None, SET_JOINING, request, timeout)

    async def set_store_mode(
        self,
        store_id: str,
        mode: str,
        *,
        reason: str = "",
        force: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Use a store as "open", "read-only" or "draining" from now on; `cluster_state` shows how
        far a drain has come (`StoreInfo.empty`). Raises VerbRefused, which names the impact.
        """
        request = message(
            hakeeper_pb2.SetStoreModeRequest,
            store_id=store_id,
            mode=mode,
            reason=reason,
            force=force,
        )
        await self._caller.call(None, SET_STORE_MODE, request, timeout)

    async def drain_directory(
        self,
        store_id: str,
        incarnation: int,
        *,
        undo: bool = False,
        force: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Let leaders and replicas leave one data directory of a store, or use it again;
        `cluster_state` shows how far it has come (`DirectoryInfo.empty`). Raises VerbRefused, which
        names the impact.
        """
        request = message(
            hakeeper_pb2.DrainDirectoryRequest,
            store_id=store_id,
            incarnation=incarnation,
            undo=undo,
            force=force,
        )
        await self._caller.call(None, DRAIN_DIRECTORY, request, timeout)

    async def set_repair(
        self,
        off_s: float,
        *,
        store_id: str = "",
        reason: str = "",
        timeout: float | None = None,
    ) -> None:
        """Let HAKeeper replace nothing of a store, or of any, for so long; 0: repairs go on."""
        request = message(
            hakeeper_pb2.SetRepairRequest,
            store_id=store_id,
            off_ms=_milliseconds(off_s),
            reason=reason,
        )
        await self._caller.call(None, SET_REPAIR, request, timeout)

    async def forget_store(
        self,
        store_id: str,
        *,
        lost: bool = False,
        force: bool = False,
        timeout: float | None = None,
    ) -> None:
        """A store that is empty, or `lost` for good, does not belong to the cluster any more. Its
        data directories never do again. Raises VerbRefused.
        """
        request = message(
            hakeeper_pb2.ForgetStoreRequest, store_id=store_id, lost=lost, force=force
        )
        await self._caller.call(None, FORGET_STORE, request, timeout)

    async def adopt_shard(
        self, shard_id: int, membership: bytes, *, reason: str = "", timeout: float | None = None
    ) -> None:
        """The log lost its majority for good, and goes on from the replica that
        `logservice recover` has made; `membership` is what the tool names. Raises VerbRefused while
        a majority of its voters is up.
        """
        request = message(
            hakeeper_pb2.AdoptShardRequest, shard_id=shard_id, membership=membership, reason=reason
        )
        await self._caller.call(None, ADOPT_SHARD, request, timeout)

    async def move_replica(
        self,
        shard_id: int,
        *,
        from_store: str = "",
        to_store: str = "",
        reason: str = "",
        force: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Wish a voter from one store to another; without `from_store` the next one that is wanted
        goes there, without `to_store` the next one that is not wanted goes from there. Returns the
        id of the wish, 0 when it is so already; `ClusterState.wishes` shows what became of it.
        Raises VerbRefused.
        """
        request = message(
            hakeeper_pb2.MoveReplicaRequest,
            shard_id=shard_id,
            from_store=from_store,
            to_store=to_store,
            reason=reason,
            force=force,
        )
        return (await self._caller.call(None, MOVE_REPLICA, request, timeout)).wish_id

    async def cancel_wish(self, wish_id: int, *, timeout: float | None = None) -> None:
        """Withdraw a wish; what was begun for it is taken back where it is not done."""
        request = message(hakeeper_pb2.CancelWishRequest, wish_id=wish_id)
        await self._caller.call(None, CANCEL_WISH, request, timeout)

    async def cancel_operator(self, operator_id: int, *, timeout: float | None = None) -> None:
        """Give up an operator, and the wish that it is for. A repair begins again, elsewhere."""
        request = message(hakeeper_pb2.CancelOperatorRequest, operator_id=operator_id)
        await self._caller.call(None, CANCEL_OPERATOR, request, timeout)

    async def set_leader(
        self,
        shard_id: int,
        for_s: float,
        *,
        store_id: str = "",
        reason: str = "",
        timeout: float | None = None,
    ) -> None:
        """Keep the leader of a shard on a store for so long, or, without one, where it is; 0 ends
        that. Raises VerbRefused.
        """
        request = message(
            hakeeper_pb2.SetLeaderRequest,
            shard_id=shard_id,
            store_id=store_id,
            for_ms=_milliseconds(for_s),
            reason=reason,
        )
        await self._caller.call(None, SET_LEADER, request, timeout)

    async def check_impact(
        self, store_ids: Sequence[str], *, timeout: float | None = None
    ) -> hakeeper_pb2.Impact:
        """What it would cost if these stores were away, together and for good. Changes nothing."""
        request = message(hakeeper_pb2.CheckImpactRequest, store_ids=store_ids)
        return await self._caller.call(None, CHECK_IMPACT, request, timeout)

    async def change_settings(
        self,
        *,
        store_timeout_s: float = 0.0,
        default_replicas: int = 0,
        joining: str = "",
        replica_balance: str = "",
        leader_balance: str = "",
        replace_stuck: str = "",
        catch_up_bytes_per_s: int | None = None,
        tail_read_bytes_per_s: int | None = None,
        catch_up_read_bytes_per_s: int | None = None,
        force: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change settings of the cluster; what is not named stays. Raises VerbRefused for a store
        timeout that would expire a store which lives. The balances are "on", "manual" or "off";
        whether a replica that applies nothing moves to another store is "on" or "off".
        `catch_up_bytes_per_s`: what each store sends to replicas that are far behind;
        `tail_read_bytes_per_s`, `catch_up_read_bytes_per_s`: what it reads for clients whose
        entries are in memory, or on the disk; 0: what it is configured to.
        """
        request = message(
            hakeeper_pb2.ChangeSettingsRequest,
            store_timeout_ms=_milliseconds(store_timeout_s),
            default_replicas=default_replicas,
            joining=joining,
            force=force,
            replica_balance=replica_balance,
            leader_balance=leader_balance,
            replace_stuck=replace_stuck,
            catch_up_bytes_per_s=catch_up_bytes_per_s,
            tail_read_bytes_per_s=tail_read_bytes_per_s,
            catch_up_read_bytes_per_s=catch_up_read_bytes_per_s,
        )
        await self._caller.call(None, CHANGE_SETTINGS, request, timeout)

    async def rebalance(
        self,
        *,
        replicas: bool = False,
        leaders: bool = False,
        stop: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Even the stores' replicas, their leaders or both, until nothing is left to move; `stop`
        ends that. Raises VerbRefused when the setting is off.
        """
        request = message(
            hakeeper_pb2.RebalanceRequest, replicas=replicas, leaders=leaders, stop=stop
        )
        await self._caller.call(None, REBALANCE, request, timeout)

    async def balance_plan(
        self, *, replicas: bool = True, leaders: bool = True, timeout: float | None = None
    ) -> hakeeper_pb2.BalancePlan:
        """What `rebalance` would move now, and how far one that was begun has come."""
        request = message(hakeeper_pb2.PlanBalanceRequest, replicas=replicas, leaders=leaders)
        return await self._caller.call(None, PLAN_BALANCE, request, timeout)

    async def set_phase(self, phase: str, *, timeout: float | None = None) -> str:
        """Set the phase of a first start; returns the phase afterwards, changed or not."""
        request = message(hakeeper_pb2.SetPhaseRequest, phase=phase)
        return (await self._caller.call(None, SET_PHASE, request, timeout)).phase

    async def raise_cluster_version(self, version: int, *, timeout: float | None = None) -> int:
        """Let the cluster do what older programs cannot; returns the version that it has now. There
        is no way back. Raises VerbRefused{stores} while the programs of these stores are older.
        """
        request = message(hakeeper_pb2.RaiseClusterVersionRequest, version=version)
        response = await self._caller.call(None, RAISE_CLUSTER_VERSION, request, timeout)
        return response.cluster_version

    async def allocate_ids(
        self, count: int = 1, *, key: str = "", timeout: float | None = None
    ) -> range:
        """`count` ids that nobody else gets from the counter `key`."""
        request = message(
            hakeeper_pb2.AllocateIdsRequest, key=key, count=count, request_id=uuid.uuid4().hex
        )
        response = await self._caller.call(None, ALLOCATE_IDS, request, timeout)
        return range(response.first, response.first + count)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
