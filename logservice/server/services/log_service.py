"""log_service: the Log service of one store.

Theory of operation. A method checks what can be checked without state, hands one command or block
to the NodeHost, and turns the answer into the response. Bad input gets its error before it is
proposed. What depends on state (epochs, sequences, LSNs) is decided by the replicated state machine
alone; this file decides nothing about the log. Any store with a replica answers; the NodeHost
forwards some proposals to the leader's store (`rsm.commands.is_forwarded`).

Most RPCs are one command of the log (`one_command`). A new one is a message pair in the proto, a
row of `logservice_wire.rpcs`, a command of `rsm.commands`, its effect in `rsm.log_rsm`, and a line
here.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Final, cast

from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in grpc-stubs
from logservice_wire import rpcs
from logservice_wire.block import validate_block
from logservice_wire.errors import InvalidArgument
from logservice_wire.rpcs import RequestT, ResponseT, Rpc
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice.bounds import SESSIONS_LISTED_MAX
from logservice.checksum import crc32
from logservice.ids import NO_SESSION, Index, Lsn, SessionId, ShardId
from logservice.nodehost.replica.hold_expiry import HoldTime
from logservice.outcome import Applied
from logservice.owner import NO_NONCE, NONCE_BYTES, Author
from logservice.rsm import commands, named_sessions
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.queries import (
    LogStatus,
    LogStatusQuery,
    NamedSessionsPage,
    NamedSessionsQuery,
)
from logservice.server.edge.call import Context, Method, effect, handler, in_time
from logservice.server.services import digesting, reading, restoring
from logservice.server.services.answer_bytes import AnswerBytes
from logservice.server.services.append_lane import (
    AppendLane,
    KeptOpen,
    checked_nonce,
    open_lane,
)
from logservice.server.services.append_shards import AppendShards, LanesContext
from logservice.server.services.append_stream import AppendStream
from logservice.server.services.context import (
    StoreContext,
    log_shard,
    readable_lsn,
    shard_not_found,
)
from logservice.server.services.lineage_check import check_lineage
from logservice.service_hold import PREFIX, is_service_hold

_CLOSES: Final = 2
"""The first cluster version that has `commands.Close`: an older replica does not understand it, and
would go on taking appends."""

_TIMED_HOLDS: Final = 2
"""The first cluster version in which a hold has a revision and may have a time to live."""

_HOLDS_FOR_SERVICES: Final = 2
"""From this cluster version on HAKeeper holds logs for services; a hold of theirs that it does not
know of it would release."""


_NAMED_SESSIONS: Final = 2
"""The first cluster version that has `commands.OpenNamedSession`."""


def one_command(
    rpc: Rpc[RequestT, ResponseT],
    command: Callable[[Author, RequestT], commands.Command],
    answers: str = "",
) -> Method[LogService, RequestT, ResponseT]:
    """The method of an RPC that is one command of the log.

    `command` makes the command from the caller and the request; it raises InvalidArgument.
    `answers` is the field of the response that takes the state machine's answer.
    """
    response: Callable[..., ResponseT] = rpc.response

    async def propose(service: LogService, request: RequestT, context: Context) -> ResponseT:
        asked = command(service.store.author(), request)
        lineage: bytes = getattr(request, "lineage", b"")
        shard, applied = await service.propose(getattr(request, rpc.shard), asked, context, lineage)
        found = {answers: applied.value} if answers else {}
        return response(position=service.store.position(shard), **found)

    propose.__name__, propose.__qualname__ = rpc.name, f"LogService.{rpc.name}"
    return handler(propose)


class LogService(log_pb2_grpc.LogServicer):
    """See the module's text and the comments of the proto."""

    def __init__(self, store: StoreContext) -> None:
        """Serve the replicas of `store`."""
        self.store = store
        self._host = store.host
        self._verifications = restoring.Verifications(store)

    Connect = one_command(rpcs.CONNECT, lambda *_: commands.Connect())
    Truncate = one_command(
        rpcs.TRUNCATE,
        lambda author, request: commands.Truncate(
            author, readable_lsn(request.lsn), request.writer_epoch
        ),
        answers="truncated_lsn",
    )
    AcquireWriter = one_command(
        rpcs.ACQUIRE_WRITER,
        lambda author, request: commands.AcquireWriter(
            author, request.override, request.expected_epoch, request.takeover, request.holder
        ),
        answers="epoch",
    )
    ReleaseWriter = one_command(
        rpcs.RELEASE_WRITER,
        lambda author, request: commands.ReleaseWriter(author, request.override, request.epoch),
    )
    ReleaseHold = one_command(
        rpcs.RELEASE_HOLD,
        lambda author, request: commands.ReleaseHold(author, request.override, request.name),
    )
    AllocateTimestamps = one_command(
        rpcs.ALLOCATE_TIMESTAMPS,
        lambda _, request: commands.AllocateTimestamps(request.count),
        answers="first",
    )

    @handler
    async def SetHold(
        self, request: log_pb2.SetHoldRequest, context: Context
    ) -> log_pb2.SetHoldResponse:
        """Records from an LSN on stay."""
        known = self._host.cluster_version.value
        if known >= _HOLDS_FOR_SERVICES and is_service_hold(request.name):
            raise InvalidArgument(
                f"names that begin with {PREFIX!r} are of the holds for services", field="name"
            )
        author, override, lsn = self.store.author(), request.override, readable_lsn(request.lsn)
        command: commands.Command
        if known >= _TIMED_HOLDS:
            command = commands.SetHoldFor(author, override, lsn, request.ttl_s, request.name)
        elif request.ttl_s:
            raise self._host.cluster_version.too_early(_TIMED_HOLDS)
        else:
            command = commands.SetHold(author, override, lsn, request.name)
        shard, _ = await self.propose(request.shard_id, command, context, request.lineage)
        position = self.store.position(shard)
        return log_pb2.SetHoldResponse(position=position, ttl_s=request.ttl_s)

    @handler
    async def RenewHold(
        self, request: log_pb2.RenewHoldRequest, context: Context
    ) -> log_pb2.RenewHoldResponse:
        """A hold lives for its time again."""
        self.store.need_version(_TIMED_HOLDS)
        command = commands.RenewHold(self.store.author(), request.name)
        shard, applied = await self.propose(request.shard_id, command, context, request.lineage)
        return log_pb2.RenewHoldResponse(position=self.store.position(shard), lsn=applied.lsn)

    @handler
    async def OpenSession(
        self, request: log_pb2.OpenSessionRequest, context: Context
    ) -> log_pb2.OpenSessionResponse:
        """A new session; its id is the index of its entry. With a name, that name's session."""
        if request.name:
            return await self._open_named(request, context)
        nonce = secrets.token_bytes(NONCE_BYTES)
        command = commands.OpenSession(self.store.author(), nonce)
        shard, applied = await self.propose(request.shard_id, command, context, request.lineage)
        return log_pb2.OpenSessionResponse(
            position=self.store.position(shard), session_id=applied.value, nonce=nonce
        )

    async def _open_named(
        self, request: log_pb2.OpenSessionRequest, context: Context
    ) -> log_pb2.OpenSessionResponse:
        self.store.need_version(_NAMED_SESSIONS)
        command = commands.OpenNamedSession(
            self.store.author(),
            request.epoch,
            request.ttl_s,
            request.stamp_us,
            request.content,
            request.name,
        )
        shard, applied = await self.propose(request.shard_id, command, context, request.lineage)
        appended, stamp_us = named_sessions.ANSWER.unpack(applied.data)
        return log_pb2.OpenSessionResponse(
            position=self.store.position(shard),
            session_id=applied.value,
            nonce=named_sessions.nonce_of(request.name),
            appended=appended,
            stamp_us=stamp_us,
            named=True,
        )

    @handler
    async def ListSessions(
        self, request: log_pb2.ListSessionsRequest, context: Context
    ) -> log_pb2.ListSessionsResponse:
        """Named sessions, for people."""
        self.store.need_version(_NAMED_SESSIONS)
        shard = log_shard(request.shard_id)
        query = NamedSessionsQuery(SESSIONS_LISTED_MAX, SessionId(request.after))
        page = await self._lookup(shard, query, request.stale, context)
        assert isinstance(page, NamedSessionsPage)
        sessions = [
            log_pb2.NamedSession(
                session_id=row.session,
                name=row.name,
                owner=row.owner,
                epoch=row.epoch,
                appended=row.appended,
                stamp_us=row.stamp_us,
                ttl_s=row.ttl_s,
                last_used=row.last_used,
                used_us=row.used_us,
                lost=row.lost,
                forgotten=row.forgotten,
            )
            for row in page.rows
        ]
        return log_pb2.ListSessionsResponse(
            position=self.store.position(shard), sessions=sessions, more=page.more
        )

    @handler
    async def ForgetSession(
        self, request: log_pb2.ForgetSessionRequest, context: Context
    ) -> log_pb2.ForgetSessionResponse:
        """The name of a session goes."""
        self.store.need_version(_NAMED_SESSIONS)
        command = commands.ForgetSession(
            self.store.author(),
            request.override,
            SessionId(request.session_id),
            Index(request.last_used),
        )
        shard, _ = await self.propose(request.shard_id, command, context, request.lineage)
        return log_pb2.ForgetSessionResponse(position=self.store.position(shard))

    @handler
    async def Append(
        self, request: log_pb2.AppendRequest, context: Context
    ) -> log_pb2.AppendResponse:
        """One block."""
        shard = log_shard(request.shard_id)
        if (request.session_id == NO_SESSION) != (request.sequence == 0):
            raise InvalidArgument("session_id and sequence go together", field="sequence")
        nonce = checked_nonce(request.session_nonce) if request.session_id else NO_NONCE
        block = request.block
        append = AppendRequest(
            session=SessionId(request.session_id),
            sequence=request.sequence,
            writer_epoch=request.writer_epoch,
            expected_lsn=Lsn(request.expected_lsn),
            record_count=validate_block(block, crc32=crc32),
            block=block,
            claim=self.store.author().claim(nonce),
        )
        await check_lineage(self.store, shard, request.lineage, context)
        with in_time(context, self.store.limits, self._host.expire, shard) as limit_s:
            applied = await effect(self._host.append(shard, append, limit_s))
        return log_pb2.AppendResponse(
            position=self.store.position(shard, applied.lsn + applied.count - 1),
            lsn=applied.lsn,
            record_count=applied.count,
            duplicate=applied.duplicate,
            append_time_us=applied.value,
        )

    @handler
    async def AppendStream(self, _: object, context: Context) -> None:
        """Many blocks; see `server.services.append_stream`."""
        first = await context.read()
        if first is EOF:
            return
        if not first.HasField("open"):
            raise InvalidArgument("the first message opens the stream", field="open")
        lane = await open_lane(self.store, first.open, context)
        inflight_max = self.store.limits.stream_blocks_inflight_max
        stream = AppendStream(context, lane, inflight_max, first)
        del first  # the stream lets go of it, and lasts for days
        await stream.run()

    @handler
    async def AppendShards(self, _: object, context: Context) -> None:
        """Many blocks of many shards; see `server.services.append_shards`."""
        inflight_max = self.store.limits.stream_blocks_inflight_max

        def opens(opened: KeptOpen) -> Awaitable[AppendLane]:
            return open_lane(self.store, opened, context)

        # The guard has put a `GuardedStream` in the place of gRPC's context.
        await AppendShards(cast(LanesContext, context), opens, inflight_max).run()

    @handler
    async def Read(self, request: log_pb2.ReadRequest, context: Context) -> AnswerBytes:
        """Blocks from an LSN on; see `server.services.reading`."""
        return await reading.read(self.store, request, context)

    @handler
    async def Follow(self, request: log_pb2.FollowRequest, context: Context) -> None:
        """Blocks until a stop condition; see `server.services.reading`."""
        await reading.follow(self.store, request, context)

    @handler
    async def LsnAtTime(
        self, request: log_pb2.LsnAtTimeRequest, context: Context
    ) -> log_pb2.LsnAtTimeResponse:
        """Where to begin; see `server.services.reading`."""
        return await reading.lsn_at_time(self.store, request, context)

    @handler
    async def Digest(
        self, request: log_pb2.DigestRequest, context: Context
    ) -> log_pb2.DigestResponse:
        """The digest of a range; see `server.services.digesting`."""
        return await digesting.digest(self.store, request, context)

    @handler
    async def CloseShard(
        self, request: log_pb2.CloseShardRequest, context: Context
    ) -> log_pb2.CloseShardResponse:
        """Nothing is appended any more; the leader's store takes it from the caller himself."""
        self.store.need_version(_CLOSES)
        command = commands.Close(self.store.author())
        shard, applied = await self.propose(request.shard_id, command, context)
        return log_pb2.CloseShardResponse(
            position=self.store.position(shard),
            end_lsn=applied.lsn,
            closed_index=applied.value,
            duplicate=applied.duplicate,
        )

    @handler
    async def BeginRestore(
        self, request: log_pb2.BeginRestoreRequest, context: Context
    ) -> log_pb2.BeginRestoreResponse:
        """See `server.services.restoring`."""
        command = restoring.begin(self.store, request)
        shard, applied = await self.propose(request.shard_id, command, context)
        return log_pb2.BeginRestoreResponse(
            position=self.store.position(shard), next_lsn=applied.lsn, duplicate=applied.duplicate
        )

    @handler
    async def RestoreBlocks(
        self, request: log_pb2.RestoreBlocksRequest, context: Context
    ) -> log_pb2.RestoreBlocksResponse:
        """See `server.services.restoring`."""
        return await restoring.take(self.store, request, context)

    @handler
    async def FinishRestore(
        self, request: log_pb2.FinishRestoreRequest, context: Context
    ) -> log_pb2.FinishRestoreResponse:
        """See `server.services.restoring`."""
        return await self._verifications.finish(request, context)

    @handler
    async def GetShardStatus(
        self, request: log_pb2.GetShardStatusRequest, context: Context
    ) -> log_pb2.GetShardStatusResponse:
        """The shard's replicated state, and where this replica stands."""
        shard = log_shard(request.shard_id)
        status = await self._lookup(shard, LogStatusQuery(), request.stale, context)
        assert isinstance(status, LogStatus)
        info = self._host.replicas.info(shard)
        if info is None:
            raise shard_not_found(shard)
        return log_pb2.GetShardStatusResponse(
            position=self.store.position(shard),
            truncated_lsn=status.truncated_lsn,
            requested_truncation_lsn=status.requested_truncation_lsn,
            committed_index=info.committed_index,
            applied_index=info.applied_index,
            term=info.term,
            writer_holder=status.writer_holder,
            writer_epoch=status.writer_epoch,
            writer_owner=status.writer_owner,
            holds=self._holds(shard, status),
            next_timestamp=status.next_timestamp,
            sessions=status.session_count,
            closed_index=status.closed_index,
            end_lsn=status.closed_lsn,
            replica_id=info.replica,
            store_id=info.store_id,
            max_bytes_per_s=info.max_bytes_per_s,
            max_records_per_s=info.max_records_per_s,
            appends_delayed=info.appends_delayed,
            restoring=restoring.standing(status),
            gaps=status.rejected_range_count,
            lineage_parent=status.lineage.parent if status.lineage.number else b"",
        )

    async def _lookup(self, shard: ShardId, query: object, stale: bool, context: Context) -> object:
        if stale:
            return self._host.stale_lookup(shard, query)
        with in_time(context, self.store.limits, self._host.expire, shard) as limit_s:
            return await self._host.lookup(shard, query, limit_s)

    def _holds(self, shard: ShardId, status: LogStatus) -> list[log_pb2.Hold]:
        times = self._host.hold_expiry.times(self._host.replicas.running[shard])
        return [
            log_pb2.Hold(
                name=hold.name,
                lsn=hold.lsn,
                owner=hold.owner,
                revision=hold.revision,
                ttl_s=hold.ttl_s,
                age_s=time.age_s,
                expires_in_s=time.expires_in_s,
            )
            for hold in status.holds
            # What was answered may be older than what is known of times by now.
            for time in (times.get(hold.name, HoldTime(0.0, None)),)
        ]

    async def propose(
        self, shard_id: int, command: commands.Command, context: Context, lineage: bytes = b""
    ) -> tuple[ShardId, Applied]:
        """Put `command` into the log and wait for the state machine's answer. `lineage`: the one
        that the request names.
        """
        shard = log_shard(shard_id)
        data = commands.encode(command)
        await check_lineage(self.store, shard, lineage, context)
        with in_time(context, self.store.limits, self._host.expire, shard) as limit_s:
            return shard, await effect(self._host.propose(shard, data, limit_s))
