"""log_service: the Log service of one store.

Theory of operation. A method checks what can be checked without state, hands one command or block
to the NodeHost, and turns the answer into the response. Bad input gets its error before it is
proposed. What depends on state (epochs, sequences, LSNs) is decided by the replicated state machine
alone; this file decides nothing about the log. Any store with a replica answers; the NodeHost
forwards proposals to the leader's store.
"""

from __future__ import annotations

import asyncio
import secrets

from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in grpc-stubs
from logservice_wire.block import validate_block
from logservice_wire.errors import InvalidArgument
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice.checksum import crc32
from logservice.ids import NO_SESSION, Lsn, SessionId, ShardId
from logservice.outcome import Applied
from logservice.owner import NO_NONCE, NONCE_BYTES
from logservice.rsm import commands
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.queries import LogStatus, LogStatusQuery
from logservice.server.edge.effects import effect
from logservice.server.edge.errors import Context, handler
from logservice.server.services import reading
from logservice.server.services.append_stream import AppendStream
from logservice.server.services.context import StoreContext, at_least, log_shard, shard_not_found
from logservice.server.services.deadlines import in_time, timeout_s


class LogService(log_pb2_grpc.LogServicer):
    """See the module's text and the comments of the proto."""

    def __init__(self, store: StoreContext) -> None:
        """Serve the replicas of `store`."""
        self._store = store
        self._host = store.host

    @handler
    async def Connect(
        self, request: log_pb2.ConnectRequest, context: Context
    ) -> log_pb2.ConnectResponse:
        """Probe: through the log and the state machine."""
        shard, _ = await self._propose(request.shard_id, commands.Connect(), context)
        return log_pb2.ConnectResponse(position=self._store.position(shard))

    @handler
    async def OpenSession(
        self, request: log_pb2.OpenSessionRequest, context: Context
    ) -> log_pb2.OpenSessionResponse:
        """A new session; its id is the index of its entry."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        command = commands.OpenSession(self._store.author(), nonce)
        shard, applied = await self._propose(request.shard_id, command, context)
        return log_pb2.OpenSessionResponse(
            position=self._store.position(shard), session_id=applied.value, nonce=nonce
        )

    @handler
    async def Append(
        self, request: log_pb2.AppendRequest, context: Context
    ) -> log_pb2.AppendResponse:
        """One block."""
        shard = log_shard(request.shard_id)
        if (request.session_id == NO_SESSION) != (request.sequence == 0):
            raise InvalidArgument("session_id and sequence go together", field="sequence")
        nonce = _nonce(request.session_nonce) if request.session_id else NO_NONCE
        block = request.block
        append = AppendRequest(
            session=SessionId(request.session_id),
            sequence=request.sequence,
            writer_epoch=request.writer_epoch,
            expected_lsn=Lsn(request.expected_lsn),
            record_count=validate_block(block, crc32=crc32),
            block=block,
            claim=self._store.author().claim(nonce),
        )
        limit_s = timeout_s(context, self._store.limits)
        with in_time(self._host.expire, shard, limit_s):
            applied = await effect(self._host.append(shard, append, limit_s))
        return log_pb2.AppendResponse(
            position=at_least(self._store.position(shard), applied.lsn + applied.count - 1),
            lsn=applied.lsn,
            record_count=applied.count,
            duplicate=applied.duplicate,
        )

    @handler
    async def AppendStream(self, _: object, context: Context) -> None:
        """Many blocks; see `server.services.append_stream`."""
        first = await context.read()
        if first is EOF:
            return
        if not first.HasField("open"):
            raise InvalidArgument("the first message opens the stream", field="open")
        opened = first.open
        shard = log_shard(opened.shard_id)
        if opened.session_id == NO_SESSION:
            raise InvalidArgument("a stream needs a session", field="open.session_id")
        claim = self._store.author().claim(_nonce(opened.session_nonce))
        if self._host.replica_info(shard) is None:
            raise shard_not_found(shard)
        # The call may live for days; it is each block that has a deadline.
        limit_s = self._store.limits.rpc_timeout_default_s

        def submit(request: AppendRequest) -> asyncio.Future[Applied]:
            return self._host.submit_append(shard, request, limit_s)

        await AppendStream(
            context,
            opened,
            claim,
            submit,
            lambda: self._store.position(shard),
            self._store.limits.stream_blocks_inflight_max,
            self._host.tracing,
        ).run(first)

    @handler
    async def Read(self, request: log_pb2.ReadRequest, context: Context) -> log_pb2.ReadResponse:
        """Blocks from an LSN on; see `server.services.reading`."""
        return await reading.read(self._store, request, context)

    @handler
    async def Follow(self, request: log_pb2.FollowRequest, context: Context) -> None:
        """Blocks until a stop condition; see `server.services.reading`."""
        await reading.follow(self._store, request, context)

    @handler
    async def Truncate(
        self, request: log_pb2.TruncateRequest, context: Context
    ) -> log_pb2.TruncateResponse:
        """Move the truncation LSN up."""
        lsn = reading.readable_lsn(request.lsn)
        command = commands.Truncate(self._store.author(), lsn, request.writer_epoch)
        shard, applied = await self._propose(request.shard_id, command, context)
        return log_pb2.TruncateResponse(
            position=self._store.position(shard), truncated_lsn=applied.value
        )

    @handler
    async def GetShardStatus(
        self, request: log_pb2.GetShardStatusRequest, context: Context
    ) -> log_pb2.GetShardStatusResponse:
        """The shard's replicated state, and where this replica stands."""
        shard = log_shard(request.shard_id)
        query = LogStatusQuery()
        if request.stale:
            status = self._host.stale_lookup(shard, query)
        else:
            limit_s = timeout_s(context, self._store.limits)
            with in_time(self._host.expire, shard, limit_s):
                status = await self._host.lookup(shard, query, limit_s)
        assert isinstance(status, LogStatus)
        info = self._host.replica_info(shard)
        if info is None:
            raise shard_not_found(shard)
        return log_pb2.GetShardStatusResponse(
            position=self._store.position(shard),
            truncated_lsn=status.truncated_lsn,
            requested_truncation_lsn=status.requested_truncation_lsn,
            committed_index=info.committed,
            applied_index=info.applied,
            term=info.term,
            writer_holder=status.writer_holder,
            writer_epoch=status.writer_epoch,
            writer_owner=status.writer_owner,
            holds=[
                log_pb2.Hold(name=hold.name, lsn=hold.lsn, owner=hold.owner)
                for hold in status.holds
            ],
            next_timestamp=status.next_timestamp,
            sessions=status.session_count,
            replica_id=info.replica,
            store_id=info.store_id,
        )

    @handler
    async def AcquireWriter(
        self, request: log_pb2.AcquireWriterRequest, context: Context
    ) -> log_pb2.AcquireWriterResponse:
        """Compare-and-swap on the writer epoch, or an explicit takeover."""
        command = commands.AcquireWriter(
            self._store.author(),
            request.override,
            request.expected_epoch,
            request.takeover,
            request.holder,
        )
        shard, applied = await self._propose(request.shard_id, command, context)
        return log_pb2.AcquireWriterResponse(
            position=self._store.position(shard), epoch=applied.value
        )

    @handler
    async def ReleaseWriter(
        self, request: log_pb2.ReleaseWriterRequest, context: Context
    ) -> log_pb2.ReleaseWriterResponse:
        """Give the epoch back; nobody may append until the next grant."""
        author = self._store.author()
        command = commands.ReleaseWriter(author, request.override, request.epoch)
        shard, _ = await self._propose(request.shard_id, command, context)
        return log_pb2.ReleaseWriterResponse(position=self._store.position(shard))

    @handler
    async def SetHold(
        self, request: log_pb2.SetHoldRequest, context: Context
    ) -> log_pb2.SetHoldResponse:
        """Records from an LSN on must stay."""
        lsn = reading.readable_lsn(request.lsn)
        command = commands.SetHold(self._store.author(), request.override, lsn, request.name)
        shard, _ = await self._propose(request.shard_id, command, context)
        return log_pb2.SetHoldResponse(position=self._store.position(shard))

    @handler
    async def ReleaseHold(
        self, request: log_pb2.ReleaseHoldRequest, context: Context
    ) -> log_pb2.ReleaseHoldResponse:
        """They need no longer."""
        command = commands.ReleaseHold(self._store.author(), request.override, request.name)
        shard, _ = await self._propose(request.shard_id, command, context)
        return log_pb2.ReleaseHoldResponse(position=self._store.position(shard))

    @handler
    async def AllocateTimestamps(
        self, request: log_pb2.AllocateTimestampsRequest, context: Context
    ) -> log_pb2.AllocateTimestampsResponse:
        """A half-open range of timestamps nobody else gets."""
        shard, applied = await self._propose(
            request.shard_id, commands.AllocateTimestamps(request.count), context
        )
        return log_pb2.AllocateTimestampsResponse(
            position=self._store.position(shard), first=applied.value
        )

    async def _propose(
        self, shard_id: int, command: commands.Command, context: Context
    ) -> tuple[ShardId, Applied]:
        shard = log_shard(shard_id)
        data = commands.encode(command)
        limit_s = timeout_s(context, self._store.limits)
        with in_time(self._host.expire, shard, limit_s):
            return shard, await effect(self._host.propose(shard, data, limit_s))


def _nonce(nonce: bytes) -> bytes:
    if len(nonce) != NONCE_BYTES:
        raise InvalidArgument(
            f"expected the {NONCE_BYTES} bytes of OpenSession's answer", field="session_nonce"
        )
    return nonce
