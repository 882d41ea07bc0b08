"""FakeCluster: stores that speak the public contract over real gRPC, with their logs in memory.

All stores share the logs, so "replication" is perfect; what can be made to fail is what a client
sees: stores that are dead, silent or not ready, leaders that move, answers that get lost after the
append took effect, blocks that are refused.

``python -m tests.client.fake_server --stores 3`` serves until it is told to stop, for measuring.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from logservice_wire.errors import (
    DeleteRefused,
    EventsCompacted,
    LogServiceError,
    NotLeader,
    NotReady,
    PermissionDenied,
    ShardDeleted,
    ShardExists,
    ShardNotFound,
    StaleEpoch,
)
from logservice_wire.status import STATUS_DETAILS_KEY, to_status_details
from logservice_wire.v1 import hakeeper_pb2, hakeeper_pb2_grpc, log_pb2, log_pb2_grpc

from tests.client.fake_log import Applied, FakeLog, leave_out_values

OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.max_receive_message_length", 64 << 20),
)


class Fault:
    """What happens to the next append that arrives: `error` before it is applied, or `lost` after.

    `lost`: "before" and "after" break the stream without a status of ours, without and with the
    effect; "late" breaks it too, and the copy on its way takes effect some appends later.
    """

    def __init__(self, error: LogServiceError | None = None, *, lost: str = "") -> None:
        self.error = error
        self.lost = lost


class ConnectionLost(Exception):
    """The answer got lost on the way."""


class FakeCluster:
    """The stores and what they share."""

    def __init__(self) -> None:
        self.stores: list[FakeStore] = []
        self.logs: dict[int, FakeLog] = {}
        self.names: dict[int, str] = {}
        """How ListShards names a log, if not shard-<id>."""
        self.deleted: set[int] = set()
        self.leader = 0
        self.forward = True
        self.older = False
        """Whether the stores are of release 0.1.0, which knows no names of sessions, and
        no times to live."""
        self.lie: Callable[[log_pb2.OpenSessionResponse], None] = lambda answer: None
        """What a store that was taken over makes of its answer about a name."""
        self.hakeeper_ready = True
        self.advertise_leader = True
        self.redundancy = (0, 0)
        """Healthy voters and voters, as acks tell."""
        self.commit_delay_s = 0.0
        self.digest_pieces = 1000
        """How many runs one Digest goes through, at least."""
        self.knows_no_values = True
        self.faults: deque[Fault] = deque()
        self.ids: dict[str, int] = {}
        self.id_requests: dict[str, int] = {}
        self.blocks_seen = 0
        self.copies_survive = False
        self.on_their_way: deque[Callable[[], Applied]] = deque()
        self.streams_seen = 0
        """Streams of one shard, and lanes."""
        self.shards_streams_seen = 0
        self.shards_messages_seen = 0
        self.events: list[str] = []
        """Kinds of the cluster's events: the first one has revision 1."""
        self.compacted = 0
        """Events that are not kept any more."""
        self.orders: dict[int, hakeeper_pb2.ServiceCommand] = {}
        self.serve: list[hakeeper_pb2.ServedTnShard] = []
        self.tn_shards: dict[int, tuple[int, str]] = {}
        """Commands that wait for a service."""
        self.sent: dict[str, int] = {}
        """The command that each request id made."""
        self.beats: list[hakeeper_pb2.HeartbeatRequest] = []
        self.holds_for_services = True
        self.replayed_holds: list[hakeeper_pb2.ReplayedHold] = []
        self.old_boots: set[int] = set()
        self.taken: set[str] = set()
        """Names of services that belong to another identity."""
        self.events_break = 0
        """How many watches break when nothing is left to tell."""
        self.blocks_received = 0
        self._received = asyncio.Event()

    @classmethod
    async def start(cls, stores: int = 3, shards: tuple[int, ...] = (1,)) -> FakeCluster:
        cluster = cls()
        for shard in shards:
            cluster.logs[shard] = FakeLog(shard)
        for number in range(stores):
            store = FakeStore(cluster, f"store-{number + 1}")
            await store.start()
            cluster.stores.append(store)
        return cluster

    @property
    def endpoints(self) -> list[str]:
        return [store.address for store in self.stores]

    @property
    def leader_store(self) -> FakeStore | None:
        return self.stores[self.leader] if self.leader >= 0 else None

    async def stop(self) -> None:
        for store in self.stores:
            await store.kill()

    def note_received(self, blocks: int) -> None:
        self.blocks_received += blocks
        self._received.set()

    async def received(self, blocks: int) -> None:
        """Return when that many blocks have arrived on streams, applied or not."""
        while self.blocks_received < blocks:
            self._received.clear()
            await self._received.wait()

    def position(self, log: FakeLog) -> log_pb2.LogPosition:
        position = log_pb2.LogPosition(first_lsn=log.truncated + 1, applied_lsn=log.next_lsn - 1)
        leader = self.leader_store
        if leader is not None and self.advertise_leader:
            position.leader_store, position.leader_address = leader.name, leader.address
            position.healthy_voters, position.voters = self.redundancy
        if log.lineage.number:
            position.lineage.CopyFrom(log.lineage)
        return position

    def shard_info(self, shard: int) -> hakeeper_pb2.ShardInfo:
        if not self.hakeeper_ready:
            raise NotReady("HAKeeper has no leader")
        if shard in self.deleted:
            raise ShardDeleted(shard=shard)
        if shard not in self.logs:
            raise ShardNotFound(shard=shard)
        leader = self.leader_store
        leading = leader.address if leader is not None else ""
        addresses = sorted(self.endpoints, key=lambda address: address != leading)
        return hakeeper_pb2.ShardInfo(
            shard_id=shard,
            wanted_replicas=len(self.stores),
            leader_address=leading,
            client_addresses=addresses,
            replicas=[
                hakeeper_pb2.ReplicaInfo(
                    replica_id=number,
                    store_id=store.name,
                    reported=True,
                    zone=store.zone,
                    client_address=store.address,
                )
                for number, store in enumerate(self.stores, 1)
            ],
        )

    async def apply(self, append: Callable[[], Applied]) -> Applied:
        """Apply one append, with whatever fault is next in line."""
        self.blocks_seen += 1
        fault = self.faults.popleft() if self.faults else Fault()
        if fault.error is not None:
            raise fault.error
        if fault.lost == "late":
            self.on_their_way.append(append)
        if fault.lost in ("before", "late"):
            raise ConnectionLost
        if self.on_their_way and self.blocks_seen % 3 == 0:
            with suppress(LogServiceError):
                self.on_their_way.popleft()()
        applied = append()
        if fault.lost == "after":
            raise ConnectionLost
        return applied


Handler = Callable[..., Awaitable[Any]]


def typed(handler: Handler) -> Handler:
    """Errors of the handler as the real server sends them."""

    @functools.wraps(handler)
    async def guarded(store: FakeStore, request: Any, context: Any) -> Any:
        store.calls.append(handler.__name__)
        if store.silent:
            await asyncio.Event().wait()
        try:
            return await handler(store, request, context)
        except LogServiceError as error:
            await context.abort(
                grpc.StatusCode[error.status],
                error.message,
                ((STATUS_DETAILS_KEY, to_status_details(error)),),
            )
        except ConnectionLost:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost")

    return guarded


class FakeLane:
    """A lane: the context that the server of one stream writes to, and who serves it."""

    def __init__(
        self,
        store: FakeStore,
        opened: log_pb2.AppendShardsRequest.Open,
        answers: asyncio.Queue[log_pb2.AppendShardsResponse.Lane | Exception],
    ) -> None:
        self.waiting: asyncio.Queue[Any] = asyncio.Queue()
        self._number = opened.lane
        self._answers = answers
        self.task = asyncio.create_task(self._serve(store, opened))

    async def write(self, response: log_pb2.AppendStreamResponse) -> None:
        self._answers.put_nowait(
            log_pb2.AppendShardsResponse.Lane(
                lane=self._number, position=response.position, acks=response.acks
            )
        )

    async def _serve(self, store: FakeStore, opened: log_pb2.AppendShardsRequest.Open) -> None:
        end = log_pb2.AppendShardsResponse.Lane(lane=self._number, ended=True)
        try:
            await store.serve_lane(opened, self.waiting, self)
        except LogServiceError as error:
            end.status = to_status_details(error)
        except ConnectionLost as lost:
            self._answers.put_nowait(lost)
            return
        self._answers.put_nowait(end)


class FakeStore(log_pb2_grpc.LogServicer, hakeeper_pb2_grpc.HAKeeperServicer):
    """One server process: `kill` closes every connection, `restart` comes back on the same port."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.address = "127.0.0.1:0"
        self.zone = ""
        self.ready = True
        self.silent = False
        self.other_log: FakeLog | None = None
        """What this store digests instead of the log that all share."""
        self.frozen = asyncio.Event()
        self.calls: list[str] = []
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        server = grpc.aio.server(options=OPTIONS)
        log_pb2_grpc.add_LogServicer_to_server(self, server)
        hakeeper_pb2_grpc.add_HAKeeperServicer_to_server(self, server)
        port = server.add_insecure_port(self.address)
        self.address = f"127.0.0.1:{port}"
        await server.start()
        self._server = server

    async def kill(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    def log(self, shard: int) -> FakeLog:
        if not self.ready:
            raise NotReady("no leader")
        log = self.cluster.logs.get(shard)
        if log is None:
            raise ShardNotFound(shard=shard)
        return log

    def leading_log(self, shard: int) -> FakeLog:
        """The log if this store may write to it: it leads, or it forwards to a living leader."""
        log = self.log(shard)
        leader = self.cluster.leader_store
        if leader is None or leader._server is None:
            raise NotReady("no leader")
        if leader is not self and not self.cluster.forward:
            raise NotLeader(leader=leader.name, address=leader.address)
        return log

    # --- Log -------------------------------------------------------------------------------------

    @typed
    async def Connect(self, request: log_pb2.ConnectRequest, context: Any) -> Any:
        log = self.leading_log(request.shard_id)
        return log_pb2.ConnectResponse(position=self.cluster.position(log))

    @typed
    async def OpenSession(self, request: log_pb2.OpenSessionRequest, context: Any) -> Any:
        log = self.leading_log(request.shard_id)
        log.check_lineage(request.lineage)
        if request.name and not self.cluster.older:
            session, found = log.open_named(request)
            answer = log_pb2.OpenSessionResponse(
                position=self.cluster.position(log),
                session_id=session,
                nonce=found.nonce,
                appended=found.last & (2**32 - 1),
                stamp_us=found.stamp_us,
                named=True,
            )
            self.cluster.lie(answer)
            return answer
        session, nonce = log.open_session()
        return log_pb2.OpenSessionResponse(
            position=self.cluster.position(log), session_id=session, nonce=nonce
        )

    @typed
    async def ListSessions(self, request: log_pb2.ListSessionsRequest, context: Any) -> Any:
        log = self.log(request.shard_id)
        behind = [one for one in log.listed() if one.session_id > request.after]
        return log_pb2.ListSessionsResponse(
            position=self.cluster.position(log), sessions=behind[:2], more=len(behind) > 2
        )

    @typed
    async def ForgetSession(self, request: log_pb2.ForgetSessionRequest, context: Any) -> Any:
        log = self.leading_log(request.shard_id)
        log.check_lineage(request.lineage)
        log.forget(request.session_id)
        return log_pb2.ForgetSessionResponse(position=self.cluster.position(log))

    @typed
    async def Append(self, request: log_pb2.AppendRequest, context: Any) -> Any:
        log = self.leading_log(request.shard_id)
        log.check_lineage(request.lineage)
        applied = await self.cluster.apply(
            lambda: log.append(
                request.block,
                session=request.session_id,
                nonce=request.session_nonce,
                sequence=request.sequence,
                epoch=request.writer_epoch,
                expected=request.expected_lsn,
            )
        )
        return log_pb2.AppendResponse(
            position=self.cluster.position(log),
            lsn=applied.lsn,
            record_count=applied.count,
            duplicate=applied.duplicate,
            append_time_us=applied.lsn,
        )

    @typed
    async def AppendStream(self, request: Any, context: Any) -> None:
        self.cluster.streams_seen += 1
        first = await anext(request)
        opened = first.open
        log = self.leading_log(opened.shard_id)
        log.check_lineage(opened.lineage)
        waiting: asyncio.Queue[log_pb2.AppendStreamRequest.Block | None] = asyncio.Queue()

        async def receive(message: log_pb2.AppendStreamRequest) -> None:
            for block in message.blocks:
                waiting.put_nowait(block)
            self.cluster.note_received(len(message.blocks))
            async for later in request:
                for block in later.blocks:
                    waiting.put_nowait(block)
                self.cluster.note_received(len(later.blocks))
            waiting.put_nowait(None)

        receiver = asyncio.create_task(receive(first))
        try:
            await self._serve_stream(opened, log, waiting, context)
        finally:
            receiver.cancel()

    @typed
    async def AppendShards(self, request: Any, context: Any) -> None:
        if self.cluster.older:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        answers: asyncio.Queue[log_pb2.AppendShardsResponse.Lane | Exception] = asyncio.Queue()
        lanes: dict[int, FakeLane] = {}
        newest = 0
        self.cluster.shards_streams_seen += 1

        async def receive() -> None:
            nonlocal newest
            async for message in request:
                self.cluster.shards_messages_seen += 1
                for opened in message.opens:
                    assert opened.lane > newest, "numbers of lanes grow"
                    newest = opened.lane
                    lanes[newest] = FakeLane(self, opened, answers)
                for block in message.blocks:
                    assert 0 < block.lane <= newest, "a lane is opened before its blocks"
                    lanes[block.lane].waiting.put_nowait(block)
                for closed in message.closes:
                    lanes[closed.lane].waiting.put_nowait(None)
                self.cluster.note_received(len(message.blocks))

        receiver = asyncio.create_task(receive())
        try:
            while True:
                said = [await answers.get()]
                while not answers.empty():
                    said.append(answers.get_nowait())
                response = log_pb2.AppendShardsResponse(
                    lanes=[one for one in said if not isinstance(one, Exception)]
                )
                if response.lanes:
                    await context.write(response)
                for one in said:
                    if isinstance(one, Exception):
                        raise one
        finally:
            receiver.cancel()
            for lane in lanes.values():
                lane.task.cancel()

    async def serve_lane(
        self,
        opened: log_pb2.AppendShardsRequest.Open,
        waiting: asyncio.Queue[Any],
        context: Any,
    ) -> None:
        """Serve one lane as a stream of its own would be served."""
        self.cluster.streams_seen += 1
        log = self.leading_log(opened.shard_id)
        log.check_lineage(opened.lineage)
        await self._serve_stream(opened, log, waiting, context)

    async def _serve_stream(
        self,
        opened: Any,
        log: FakeLog,
        waiting: asyncio.Queue[Any],
        context: Any,
    ) -> None:
        """Serve as a store does: what is there goes into one commit, and acks leave in order until
        a failure.
        """
        finished = False
        while not finished:
            group = [await waiting.get()]
            while not waiting.empty():
                group.append(waiting.get_nowait())
            if self.frozen.is_set():
                await asyncio.Event().wait()
            if self.cluster.commit_delay_s:
                await asyncio.sleep(self.cluster.commit_delay_s)
            response = log_pb2.AppendStreamResponse()
            failure: Exception | None = None
            for block in group:
                if block is None:
                    finished = True
                    break
                append = functools.partial(
                    log.append,
                    block.block,
                    session=opened.session_id,
                    nonce=opened.session_nonce,
                    sequence=block.sequence,
                    epoch=opened.writer_epoch,
                    expected=block.expected_lsn,
                )
                if failure is not None:
                    # It was proposed before the failure was known, and may come to the log late.
                    self.cluster.on_their_way.append(append)
                    continue
                try:
                    self.leading_log(opened.shard_id)
                    applied = await self.cluster.apply(append)
                except (LogServiceError, ConnectionLost) as error:
                    failure = error
                    if not self.cluster.copies_survive:
                        break
                    continue
                response.acks.add(
                    sequence=block.sequence,
                    lsn=applied.lsn,
                    record_count=applied.count,
                    duplicate=applied.duplicate,
                    append_time_us=applied.lsn,
                )
            if response.acks:
                response.position.CopyFrom(self.cluster.position(log))
                await context.write(response)
            if failure is not None:
                raise failure

    @typed
    async def Read(self, request: log_pb2.ReadRequest, context: Any) -> Any:
        log = self.log(request.shard_id)
        log.check_lineage(request.lineage)
        response = log.read(request.lsn, request.max_bytes or 1 << 20)
        if request.no_values and self.cluster.knows_no_values:
            leave_out_values(response)
        response.position.CopyFrom(self.cluster.position(log))
        return response

    @typed
    async def Digest(self, request: log_pb2.DigestRequest, context: Any) -> Any:
        log = self.other_log or self.log(request.shard_id)
        log.check_lineage(request.lineage)
        response = log.digest(request, self.cluster.digest_pieces)
        response.position.CopyFrom(self.cluster.position(log))
        return response

    @typed
    async def Follow(self, request: log_pb2.FollowRequest, context: Any) -> None:
        log = self.log(request.shard_id)
        log.check_lineage(request.lineage)
        lsn = request.lsn
        while request.until_lsn == 0 or lsn <= request.until_lsn:
            if not self.ready:
                raise NotReady("stopping")
            response = log.read(lsn, 1 << 20)
            if not response.blocks:
                await asyncio.sleep(0.005)
                continue
            response.position.CopyFrom(self.cluster.position(log))
            lsn = response.next_lsn
            await context.write(response)

    @typed
    async def LsnAtTime(self, request: log_pb2.LsnAtTimeRequest, context: Any) -> Any:
        log = self.log(request.shard_id)
        log.check_lineage(request.lineage)
        return log_pb2.LsnAtTimeResponse(
            position=self.cluster.position(log), lsn=log.lsn_at_time(request.append_time_us)
        )

    @typed
    async def Truncate(self, request: log_pb2.TruncateRequest, context: Any) -> Any:
        log = self.leading_log(request.shard_id)
        log.check_lineage(request.lineage)
        fault = self.cluster.faults.popleft() if self.cluster.faults else Fault()
        if fault.error is not None:
            raise fault.error
        truncated = log.truncate(request.lsn, request.writer_epoch)
        if fault.lost == "after":
            raise ConnectionLost
        return log_pb2.TruncateResponse(
            position=self.cluster.position(log), truncated_lsn=truncated
        )

    @typed
    async def GetShardStatus(self, request: log_pb2.GetShardStatusRequest, context: Any) -> Any:
        log = self.log(request.shard_id)
        return log_pb2.GetShardStatusResponse(
            position=self.cluster.position(log),
            truncated_lsn=log.truncated,
            writer_holder=log.holder,
            writer_epoch=log.epoch,
            holds=[log_pb2.Hold(name=name, lsn=lsn) for name, lsn in sorted(log.holds.items())],
            next_timestamp=log.next_timestamp,
            sessions=len(log.sessions),
            store_id=self.name,
            lineage_parent=log.parent,
        )

    @typed
    async def AcquireWriter(self, request: log_pb2.AcquireWriterRequest, context: Any) -> Any:
        log = self.leading_log(request.shard_id)
        log.check_lineage(request.lineage)
        fault = self.cluster.faults.popleft() if self.cluster.faults else Fault()
        epoch = log.acquire(request.holder, request.expected_epoch, request.takeover)
        if fault.lost == "after":
            raise ConnectionLost
        return log_pb2.AcquireWriterResponse(position=self.cluster.position(log), epoch=epoch)

    @typed
    async def ReleaseWriter(self, request: log_pb2.ReleaseWriterRequest, context: Any) -> Any:
        log = self.leading_log(request.shard_id)
        log.release(request.epoch)
        return log_pb2.ReleaseWriterResponse(position=self.cluster.position(log))

    @typed
    async def SetHold(self, request: log_pb2.SetHoldRequest, context: Any) -> Any:
        log = self.leading_log(request.shard_id)
        log.check_lineage(request.lineage)
        ttl_s = 0 if self.cluster.older else request.ttl_s
        log.set_hold(request.name, request.lsn, ttl_s)
        return log_pb2.SetHoldResponse(position=self.cluster.position(log), ttl_s=ttl_s)

    @typed
    async def RenewHold(self, request: log_pb2.RenewHoldRequest, context: Any) -> Any:
        log = self.leading_log(request.shard_id)
        log.check_lineage(request.lineage)
        lsn = log.renew_hold(request.name)
        return log_pb2.RenewHoldResponse(position=self.cluster.position(log), lsn=lsn)

    @typed
    async def ReleaseHold(self, request: log_pb2.ReleaseHoldRequest, context: Any) -> Any:
        log = self.leading_log(request.shard_id)
        log.holds.pop(request.name, None)
        return log_pb2.ReleaseHoldResponse(position=self.cluster.position(log))

    @typed
    async def AllocateTimestamps(
        self, request: log_pb2.AllocateTimestampsRequest, context: Any
    ) -> Any:
        log = self.leading_log(request.shard_id)
        return log_pb2.AllocateTimestampsResponse(
            position=self.cluster.position(log), first=log.allocate_timestamps(request.count)
        )

    @typed
    async def CloseShard(self, request: log_pb2.CloseShardRequest, context: Any) -> Any:
        log = self.leading_log(request.shard_id)
        again, log.closed = log.closed, True
        return log_pb2.CloseShardResponse(
            position=self.cluster.position(log),
            end_lsn=log.next_lsn,
            closed_index=9,
            duplicate=again,
        )

    # --- HAKeeper --------------------------------------------------------------------------------

    @typed
    async def GetAccessList(self, request: hakeeper_pb2.GetAccessListRequest, context: Any) -> Any:
        raise PermissionDenied(role="admin")

    @typed
    async def ResolveShard(self, request: hakeeper_pb2.ResolveShardRequest, context: Any) -> Any:
        found = request.name.removeprefix("shard-")
        if not found.isdecimal():
            raise ShardNotFound(f"no log is called {request.name!r}", name=request.name)
        return self.cluster.shard_info(int(found))

    @typed
    async def ListShards(self, request: hakeeper_pb2.ListShardsRequest, context: Any) -> Any:
        """Two logs a page."""
        found = hakeeper_pb2.ListShardsResponse()
        for shard in sorted(self.cluster.logs):
            name = self.cluster.names.get(shard, f"shard-{shard}")
            if shard > request.after and name.startswith(request.name_prefix):
                if len(found.shards) == min(request.limit or 2, 2):
                    found.after = found.shards[-1].shard_id
                    break
                found.shards.append(self.cluster.shard_info(shard))
                found.shards[-1].name = name
        return found

    @typed
    async def DeleteShard(self, request: hakeeper_pb2.DeleteShardRequest, context: Any) -> Any:
        log = self.cluster.logs.get(request.shard_id)
        if log is not None:
            if log.holds and not request.force:
                raise DeleteRefused(why="holds", holds=len(log.holds))
            if not (request.closed_index or request.force):
                raise DeleteRefused(why="open")
            del self.cluster.logs[request.shard_id]
            self.cluster.deleted.add(request.shard_id)
        return hakeeper_pb2.DeleteShardResponse()

    @typed
    async def GetShardInfo(self, request: hakeeper_pb2.GetShardInfoRequest, context: Any) -> Any:
        return self.cluster.shard_info(request.shard_id)

    @typed
    async def GetClusterState(
        self, request: hakeeper_pb2.GetClusterStateRequest, context: Any
    ) -> Any:
        state = hakeeper_pb2.ClusterState(
            cluster_id="fake", state="running", revision=len(self.cluster.events)
        )
        for store in self.cluster.stores:
            state.stores.add(store_id=store.name, client_address=store.address)
        state.shards.extend(self.cluster.shard_info(shard) for shard in sorted(self.cluster.logs))
        return state

    @typed
    async def Heartbeat(self, request: hakeeper_pb2.HeartbeatRequest, context: Any) -> Any:
        if not self.cluster.hakeeper_ready:
            raise NotReady("no leader")
        if request.service_id in self.cluster.taken:
            raise PermissionDenied(service=request.service_id)
        if request.boot_id in self.cluster.old_boots:
            raise StaleEpoch(holder=1)
        self.cluster.beats.append(request)
        for number in request.acked_commands:
            self.cluster.orders.pop(number, None)
        waiting = [self.cluster.orders[number] for number in sorted(self.cluster.orders)]
        if request.replayed and not self.cluster.holds_for_services:
            raise NotReady(cluster_version=1, needed=2)
        return hakeeper_pb2.HeartbeatResponse(
            commands=waiting,
            replayed=self.cluster.replayed_holds,
            serve=self.cluster.serve,
            tn_stop_ms=10_000,
        )

    @typed
    async def WatchEvents(self, request: hakeeper_pb2.WatchEventsRequest, context: Any) -> None:
        told, newest = self.cluster.events, len(self.cluster.events)
        after = request.after if request.HasField("after") else newest
        await context.write(hakeeper_pb2.WatchEventsResponse(revision=after))
        while True:
            if after < self.cluster.compacted:
                raise EventsCompacted(oldest=self.cluster.compacted + 1)
            if after < len(told):
                after += 1
                one = hakeeper_pb2.ClusterEvent(revision=after, kind=told[after - 1])
                wanted = [one] if one.kind in (request.kinds or [one.kind]) else []
                answer = hakeeper_pb2.WatchEventsResponse(events=wanted, revision=after)
                await context.write(answer)
            elif self.cluster.events_break:
                break
            else:
                await asyncio.sleep(0.01)
        self.cluster.events_break -= 1
        raise NotReady("HAKeeper is silent")

    @typed
    async def CreateShard(self, request: hakeeper_pb2.CreateShardRequest, context: Any) -> Any:
        shard = request.shard_id or max(self.cluster.logs, default=0) + 1
        if shard in self.cluster.logs:
            raise ShardExists(shard=shard)
        self.cluster.logs[shard] = FakeLog(shard)
        return hakeeper_pb2.CreateShardResponse(shard_id=shard)

    @typed
    async def SendServiceCommand(
        self, request: hakeeper_pb2.SendServiceCommandRequest, context: Any
    ) -> Any:
        sent, orders = self.cluster.sent, self.cluster.orders
        fault = self.cluster.faults.popleft() if self.cluster.faults else Fault()
        if request.request_id not in sent:
            number = sent[request.request_id] = len(sent) + 1
            orders[number] = hakeeper_pb2.ServiceCommand(
                id=number, kind=request.kind, payload=request.payload
            )
        if fault.lost == "after":
            raise ConnectionLost
        return hakeeper_pb2.SendServiceCommandResponse(command_id=sent[request.request_id])

    @typed
    async def CreateTnShard(self, request: hakeeper_pb2.CreateTnShardRequest, context: Any) -> Any:
        number = len(self.cluster.tn_shards) + 1
        self.cluster.tn_shards[number] = (request.shard_id, request.identity)
        return hakeeper_pb2.CreateTnShardResponse(tn_shard_id=number)

    @typed
    async def DeleteTnShard(self, request: hakeeper_pb2.DeleteTnShardRequest, context: Any) -> Any:
        del self.cluster.tn_shards[request.tn_shard_id]
        return hakeeper_pb2.DeleteTnShardResponse()

    @typed
    async def AllocateIds(self, request: hakeeper_pb2.AllocateIdsRequest, context: Any) -> Any:
        if not self.cluster.hakeeper_ready:
            raise NotReady("no leader")
        requests, ids = self.cluster.id_requests, self.cluster.ids
        fault = self.cluster.faults.popleft() if self.cluster.faults else Fault()
        if request.request_id not in requests:
            requests[request.request_id] = ids.get(request.key, 1)
            ids[request.key] = requests[request.request_id] + request.count
        if fault.lost == "after":
            raise ConnectionLost
        return hakeeper_pb2.AllocateIdsResponse(first=requests[request.request_id])


async def serve(stores: int, commit_delay_ms: float, shards: int) -> None:
    """Serve until cancelled. The first line that is printed names the endpoints."""
    cluster = await FakeCluster.start(stores, tuple(range(1, shards + 1)))
    cluster.commit_delay_s = commit_delay_ms / 1000
    print(",".join(cluster.endpoints), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Serve by command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", type=int, default=3)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--commit-delay-ms", type=float, default=0.0)
    options = parser.parse_args()
    asyncio.run(serve(options.stores, options.commit_delay_ms, options.shards))


if __name__ == "__main__":
    main()


async def settled(iterator: AsyncIterator[Any], count: int) -> list[Any]:
    """The first `count` items of an endless iterator."""
    items = []
    async for item in iterator:
        items.append(item)
        if len(items) == count:
            break
    return items
