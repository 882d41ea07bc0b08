"""G5 at the edge: whatever fails after a call took effect, nobody is told "not applied".

Every RPC that changes something is made on a real log, over real gRPC, while one later step fails:
the local replica halts or goes away between apply and answer, the answer cannot be built or
encoded, its bytes cannot be counted, the audit log and the span raise. What the caller makes of the
answer is what the client library makes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_client.failure import error_of
from logservice_wire.block import Block
from logservice_wire.digest import Digester
from logservice_wire.errors import LogServiceError, NotReady, Outcome
from logservice_wire.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    hakeeper_pb2,
    hakeeper_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
)

from logservice.ids import Incarnation, ShardId, StoreId
from logservice.membership import Member, Membership
from logservice.nodehost.assembly.directory_changes import DirectoryChanges
from logservice.nodehost.node_host import NodeHost
from logservice.outcome import Applied
from logservice.server.audit.log import AuditLog
from logservice.server.edge.auditor import Auditor
from logservice.server.edge.channel_options import SERVER_OPTIONS
from logservice.server.edge.gate import Gate, calling
from logservice.server.edge.guard import GuardedServer
from logservice.server.edge.quota import QuotaLimits
from logservice.server.log_level import LogLevel
from logservice.server.monitor.own.status import StoreStatus
from logservice.server.reload.reloads import InEffect, Reloaded, Reloads
from logservice.server.services.admin_service import AdminService
from logservice.server.services.context import StoreContext
from logservice.server.services.hakeeper_service import HAKeeperService
from logservice.server.services.log_service import LogService
from logservice.trace import NO_TRACING, Call, NoTracing, Span
from logservice.versions import NEWEST
from tests.server.served import LIMITS, Served, block, no_report

pytestmark = pytest.mark.asyncio(loop_scope="module")

Break = Callable[["Broken"], None]


class Audit(AuditLog):
    """Data calls are noted, too; nothing goes to a disk."""

    def __init__(self) -> None:
        self.data = True
        self.broken = False

    async def admit(self, line: object) -> None:
        """The line counts as on disk at once."""

    def record(self, line: object, *, admin: bool = False) -> None:
        if self.broken:
            raise OSError("no audit")


class Spans:
    """Every span fails when it ends."""

    def begin(self, name: str, call: Call | None, **attributes: str | int) -> Span:
        one = NO_TRACING.begin(name, call)

        def end(failure: str) -> None:
            raise RuntimeError("no span")

        return SimpleNamespace(call=one.call, end=end)


class Broken:
    """One store behind the guard; `after` runs as soon as a call has taken effect."""

    def __init__(self, host: NodeHost) -> None:
        self.host = host
        self.audit = Audit()
        self.after: Callable[[int], None] = lambda _: None
        self.encodes = True
        self.tracing: Any = NoTracing()
        self.effects = 0
        self.address_of: Callable[[Any], str] = lambda _: ""
        self.limits = QuotaLimits(bytes_per_s=1e12)
        self.gate = Gate(SimpleNamespace(list=None), None, None, lambda _: self.limits)  # type: ignore[arg-type]

    def took_effect(self, shard: int) -> None:
        self.effects += 1
        self.after(shard)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Stand between the generated code and the guard, with answers that cannot be encoded."""
        for name, one in handlers.items():
            encode = one.response_serializer

            def serializer(message: Any, encode: Any = encode) -> bytes:
                if not self.encodes:
                    raise ValueError("no bytes")
                return bytes(encode(message))

            handlers[name] = one._replace(response_serializer=serializer)  # type: ignore[index]
        self.guarded.add_registered_method_handlers(service, handlers)

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """See `GuardedServer`."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[grpc.aio.Channel]:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        self.guarded = GuardedServer(server, self.gate, Auditor(self.audit), self.tracing)
        host: Any = Telling(self)
        context = StoreContext(host, LIMITS, lambda store: self.address_of(store), calling.get)
        log_pb2_grpc.add_LogServicer_to_server(LogService(context), self)
        hakeeper_pb2_grpc.add_HAKeeperServicer_to_server(
            HAKeeperService(FakeHAKeeper(self), None, lambda: LIMITS, None, lambda: "me"),  # type: ignore[arg-type]
            self,
        )
        admin_pb2_grpc.add_AdminServicer_to_server(
            AdminService(
                context,
                StoreStatus,
                no_report,
                log_level=FakeLogLevel(self),
                reloads=FakeReloads(self),
                changes=FakeChanges(self),
            ),
            self,
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield channel
        finally:
            await server.stop(0)


class Telling:
    """The NodeHost, which tells when something has taken effect."""

    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broken.host, name)

    async def append(self, shard: ShardId, *args: Any) -> Applied:
        return await self._told(shard, self._broken.host.append(shard, *args))

    async def propose(self, shard: ShardId, *args: Any) -> Applied:
        return await self._told(shard, self._broken.host.propose(shard, *args))

    def submit_append(self, shard: ShardId, *args: Any, **more: Any) -> asyncio.Future[Applied]:
        told: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()

        def tell(done: asyncio.Future[Applied]) -> None:
            if error := done.exception():
                told.set_exception(error)
                return
            self._broken.took_effect(int(shard))
            told.set_result(done.result())

        self._broken.host.submit_append(shard, *args, **more).add_done_callback(tell)
        return told

    @property
    def router(self) -> Any:
        return SimpleNamespace(transfer_leadership=self._transfer_leadership)

    @property
    def replicas(self) -> Any:
        running = self._broken.host.replicas.running
        return SimpleNamespace(info=self._replica_info, running=running)

    async def _transfer_leadership(self, shard: ShardId, *args: Any) -> None:
        self._broken.took_effect(int(shard))

    def _replica_info(self, shard: ShardId) -> Any:
        found = self._broken.host.replicas.info(shard)
        if found is None:
            return None
        store = Member(found.replica, StoreId("s1"), Incarnation(1))
        membership = Membership(voters=(found.replica,), members=(store,))
        return SimpleNamespace(membership=membership, match=found.match, leader=0)

    async def _told(self, shard: int, work: Awaitable[Applied]) -> Applied:
        applied = await work
        self._broken.took_effect(int(shard))
        return applied


class FakeHAKeeper:
    """It applies everything; the values that it answers mean nothing."""

    cluster_version = NEWEST

    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    async def propose(self, proposal: object, timeout_s: float) -> Applied:
        self._broken.took_effect(1)
        return Applied(value=1)

    administer = propose

    def expire(self, shard: ShardId) -> None:
        """Do nothing: no request waits here."""


class FakeLogLevel(LogLevel):
    """It tells when it was set, and changes nothing of this process."""

    def __init__(self, broken: Broken) -> None:
        super().__init__("info")
        self._broken = broken

    def set(self, level: str, for_s: float = 0.0) -> None:
        self._broken.took_effect(1)


class FakeReloads(Reloads):
    """It tells when the configuration was read, and takes up nothing."""

    in_effect = InEffect("", 0)  # type: ignore[assignment]

    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    async def reload(self, *, dry_run: bool = False) -> Reloaded:
        self._broken.took_effect(1)
        return Reloaded((), (), ())


class FakeChanges(DirectoryChanges):
    """It tells when a data directory came or went, and changes nothing."""

    def __init__(self, broken: Broken) -> None:
        self._broken = broken

    async def add(self, path: str) -> Incarnation:
        self._broken.took_effect(1)
        return Incarnation(1)

    async def remove(self, path: str) -> Incarnation:
        self._broken.took_effect(1)
        return Incarnation(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(1) as running:
        yield running


# --- calls that change something ------------------------------------------------------------------

log, hakeeper, admin = log_pb2, hakeeper_pb2, admin_pb2


def digest_of_block() -> bytes:
    digester = Digester(1, 2)
    digester.add_block(1, Block.parse(block()))
    return digester.digest()


UNARY: dict[str, Any] = {
    "Log/Connect": log.ConnectRequest(),
    "Log/OpenSession": log.OpenSessionRequest(),
    "Log/Append": log.AppendRequest(block=block()),
    "Log/Truncate": log.TruncateRequest(lsn=1),
    "Log/AcquireWriter": log.AcquireWriterRequest(holder="w"),
    "Log/ReleaseWriter": log.ReleaseWriterRequest(epoch=1),
    "Log/SetHold": log.SetHoldRequest(name="other", lsn=2),
    "Log/RenewHold": log.RenewHoldRequest(name="held"),
    "Log/ForgetSession": log.ForgetSessionRequest(session_id=1),
    "Log/ReleaseHold": log.ReleaseHoldRequest(name="held"),
    "Log/CloseShard": log.CloseShardRequest(),
    "Log/BeginRestore": log.BeginRestoreRequest(
        lineage=log.Lineage(number=1, id=b"1" * 16),
        base_lsn=1,
        end_lsn=2,
        next_timestamp=1,
        digest=digest_of_block(),
    ),
    "Log/RestoreBlocks": log.RestoreBlocksRequest(
        lineage=b"1" * 16, first_lsn=1, blocks=[log.RestoredBlock(block=block())]
    ),
    "Log/FinishRestore": log.FinishRestoreRequest(lineage=b"1" * 16),
    "Log/AllocateTimestamps": log.AllocateTimestampsRequest(count=1),
    "HAKeeper/Heartbeat": hakeeper.HeartbeatRequest(service_id="cn-1", kind="cn"),
    "HAKeeper/AllocateIds": hakeeper.AllocateIdsRequest(key="k", count=1),
    "HAKeeper/CreateShard": hakeeper.CreateShardRequest(name="n", replicas=1),
    "HAKeeper/ChangeShard": hakeeper.ChangeShardRequest(shard_id=1, name="n"),
    "HAKeeper/DeleteShard": hakeeper.DeleteShardRequest(shard_id=1, name="n"),
    "HAKeeper/ChangeAccess": hakeeper.ChangeAccessRequest(
        identity="logservice://t/c/client/x", scope="*", grant=["read"]
    ),
    "HAKeeper/SkipNumbers": hakeeper.SkipNumbersRequest(
        given_out=hakeeper.GivenOut(next_id=5, deleted=[hakeeper.IdRange(first=900, last=901)])
    ),
    "HAKeeper/SetQuota": hakeeper.SetQuotaRequest(quota=hakeeper.IdentityQuota(rpcs_max=9)),
    "HAKeeper/AdmitStore": hakeeper.AdmitStoreRequest(store_id="s9"),
    "HAKeeper/SendServiceCommand": hakeeper.SendServiceCommandRequest(
        service_id="s", kind="k", request_id="r"
    ),
    "HAKeeper/SetServiceState": hakeeper.SetServiceStateRequest(
        service_id="s", work_state="draining"
    ),
    "HAKeeper/CreateTnShard": hakeeper.CreateTnShardRequest(shard_id=1),
    "HAKeeper/DeleteTnShard": hakeeper.DeleteTnShardRequest(tn_shard_id=1),
    "HAKeeper/SetJoining": hakeeper.SetJoiningRequest(joining="by-verb"),
    "HAKeeper/RaiseClusterVersion": hakeeper.RaiseClusterVersionRequest(version=2),
    "HAKeeper/SetStoreMode": hakeeper.SetStoreModeRequest(
        store_id="s1", mode="draining", force=True
    ),
    "HAKeeper/DrainDirectory": hakeeper.DrainDirectoryRequest(
        store_id="s1", incarnation=1, force=True
    ),
    "HAKeeper/SetRepair": hakeeper.SetRepairRequest(off_ms=1000),
    "HAKeeper/ForgetStore": hakeeper.ForgetStoreRequest(store_id="s9", force=True),
    "HAKeeper/AdoptShard": hakeeper.AdoptShardRequest(shard_id=1),
    "HAKeeper/MoveReplica": hakeeper.MoveReplicaRequest(from_store="s1", to_store="s2"),
    "HAKeeper/CancelWish": hakeeper.CancelWishRequest(wish_id=1),
    "HAKeeper/CancelOperator": hakeeper.CancelOperatorRequest(operator_id=1),
    "HAKeeper/SetLeader": hakeeper.SetLeaderRequest(for_ms=1000),
    "HAKeeper/ChangeSettings": hakeeper.ChangeSettingsRequest(default_replicas=1),
    "HAKeeper/Rebalance": hakeeper.RebalanceRequest(leaders=True),
    "HAKeeper/SetPhase": hakeeper.SetPhaseRequest(phase="running"),
    "Admin/TransferLeader": admin.TransferLeaderRequest(store_id="s1"),
    "Admin/SetLogLevel": admin.SetLogLevelRequest(level="debug"),
    "Admin/ReloadConfig": admin.ReloadConfigRequest(),
    "Admin/AddDirectory": admin.AddDirectoryRequest(path="/data"),
    "Admin/RemoveDirectory": admin.RemoveDirectoryRequest(path="/data"),
}
READING = {
    "ListSessions",
    "Read",
    "Follow",
    "LsnAtTime",
    "Digest",
    "GetShardStatus",
    "AppendStream",
    "AppendShards",
}
READING |= {"ListIdentities"}
READING |= {"GetClusterState", "GetShardInfo", "GetAccessList", "ListShards", "ResolveShard"}
READING |= {"CheckImpact", "GetGivenOut", "PlanBalance", "WatchEvents"}
READING |= {"GetStoreStatus", "GetClusterReport", "GetTruncation", "Measure"}


async def test_every_rpc_is_a_reading_one_or_tried_here() -> None:
    named = {
        f"{service.name}/{method.name}"
        for file in (log, hakeeper, admin)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if method.name not in READING
    }
    assert named == set(UNARY)


def _halt(broken: Broken) -> None:
    def halt(shard: int) -> None:
        replica = broken.host.replicas.running.get(ShardId(shard))
        if replica is not None:
            broken.host.replicas.halt(replica, "one bit was flipped")

    broken.after = halt


def _remove(broken: Broken) -> None:
    def remove(shard: int) -> None:
        asyncio.get_running_loop().create_task(broken.host.replicas.stop(ShardId(shard)))

    broken.after = remove


def _position(error: BaseException) -> Break:
    def arm(broken: Broken) -> None:
        def raising(_: object) -> str:
            raise error

        def after(_: int) -> None:
            broken.address_of = raising

        broken.after = after

    return arm


def _unencodable(broken: Broken) -> None:
    def after(_: int) -> None:
        broken.encodes = False

    broken.after = after


def _uncounted(broken: Broken) -> None:
    def raising(_: int) -> None:
        raise NotReady("no quota")

    def after(_: int) -> None:
        for quota in broken.gate._quotas.values():
            quota._bytes = SimpleNamespace(take=raising, wait_s=lambda: 0.0)  # type: ignore[assignment]

    broken.after = after


def _unaudited(broken: Broken) -> None:
    def after(_: int) -> None:
        broken.audit.broken = True

    broken.after = after


def _untraced(broken: Broken) -> None:
    broken.tracing = Spans()


BREAKS: dict[str, Break] = {
    "the replica halts": _halt,
    "the replica goes away": _remove,
    "the position is refused": _position(NotReady("no address")),
    "the position fails": _position(RuntimeError("a bug")),
    "the answer is not encoded": _unencodable,
    "its bytes are not counted": _uncounted,
    "it is not audited": _unaudited,
    "its span fails": _untraced,
}


async def prepared(host: NodeHost, served: Served, channel: grpc.aio.Channel) -> int:
    """A shard with three records, a held one and a writer-to-be."""
    shard = await served.new_shard()
    stub: Any = log_pb2_grpc.LogStub(channel)
    for _ in range(3):
        await stub.Append(log.AppendRequest(shard_id=shard, block=block()))
    await stub.SetHold(log.SetHoldRequest(shard_id=shard, name="held", lsn=2))
    return shard


async def restoring(served: Served, channel: grpc.aio.Channel, path: str) -> int:
    """A shard that is restored, as far as is needed for that call."""
    shard = await served.new_shard()
    for earlier in ("Log/BeginRestore", "Log/RestoreBlocks"):
        if path == earlier:
            break
        request = type(UNARY[earlier]).FromString(UNARY[earlier].SerializeToString())
        request.shard_id = shard
        assert await outcome_of(channel, earlier, request) is None
    return shard


async def outcome_of(channel: grpc.aio.Channel, path: str, request: Any) -> LogServiceError | None:
    """The outcome as the client library reports it; None when the call succeeded."""
    service, _, name = path.partition("/")
    module = {"Log": log_pb2_grpc, "HAKeeper": hakeeper_pb2_grpc, "Admin": admin_pb2_grpc}[service]
    stub = getattr(module, f"{service}Stub")(channel)
    try:
        await getattr(stub, name)(request, timeout=30)
    except grpc.aio.AioRpcError as failure:
        return error_of(failure, mutating=True)
    return None


@pytest.mark.parametrize("path", sorted(UNARY))
@pytest.mark.parametrize("what", sorted(BREAKS))
async def test_g5_nobody_is_told_not_applied_of_what_took_effect(
    served: Served, path: str, what: str
) -> None:
    """INV-EFFECT-1."""
    host = served.stores[0].host
    broken = Broken(host)
    if what == "its span fails":
        BREAKS[what](broken)
    async with broken.serving() as channel:
        shard = await prepared(host, served, channel)
        if "Restore" in path:
            shard = await restoring(served, channel, path)
        request = type(UNARY[path]).FromString(UNARY[path].SerializeToString())
        if "shard_id" in request.DESCRIPTOR.fields_by_name:
            request.shard_id = shard
        if path == "Log/ReleaseWriter":
            await outcome_of(channel, "Log/AcquireWriter", acquire(shard))
        broken.effects = 0
        BREAKS[what](broken)
        error = await outcome_of(channel, path, request)
    assert broken.effects == 1, error
    if error is not None:
        assert error.outcome is Outcome.UNKNOWN, error
    if what in ("its bytes are not counted", "it is not audited", "its span fails"):
        assert error is None or path == "HAKeeper/Heartbeat", error


def acquire(shard: int) -> log_pb2.AcquireWriterRequest:
    return log.AcquireWriterRequest(shard_id=shard, holder="w")


@pytest.mark.parametrize("what", sorted(BREAKS))
async def test_g5_acks_of_a_stream_are_sent_or_their_outcome_is_unknown(
    served: Served, what: str
) -> None:
    host = served.stores[0].host
    broken = Broken(host)
    if what == "its span fails":
        BREAKS[what](broken)
    async with broken.serving() as channel:
        shard = await prepared(host, served, channel)
        stub: Any = log_pb2_grpc.LogStub(channel)
        session = await stub.OpenSession(log.OpenSessionRequest(shard_id=shard))
        message = log.AppendStreamRequest
        opened = message.Open(
            shard_id=shard, session_id=session.session_id, session_nonce=session.nonce
        )
        call = stub.AppendStream(timeout=30)
        broken.effects = 0
        BREAKS[what](broken)
        blocks = [message.Block(sequence=number, block=block()) for number in (1, 2)]
        await call.write(message(open=opened, blocks=blocks))
        await call.done_writing()
        acked: list[int] = []
        error: LogServiceError | None = None
        try:
            async for answer in call:
                acked += [ack.sequence for ack in answer.acks]
        except grpc.aio.AioRpcError as failure:
            error = error_of(failure, mutating=True)
    assert broken.effects == 2
    assert acked == list(range(1, len(acked) + 1))
    if what in ("the replica halts", "the replica goes away", "its span fails"):
        assert acked == [1, 2]
        assert error is None
    if error is not None:
        assert error.outcome is Outcome.UNKNOWN, error


@pytest.mark.parametrize("what", sorted(BREAKS))
async def test_g5_acks_of_a_lane_are_sent_or_their_outcome_is_unknown(
    served: Served, what: str
) -> None:
    host = served.stores[0].host
    broken = Broken(host)
    if what == "its span fails":
        BREAKS[what](broken)
    async with broken.serving() as channel:
        shard = await prepared(host, served, channel)
        stub: Any = log_pb2_grpc.LogStub(channel)
        session = await stub.OpenSession(log.OpenSessionRequest(shard_id=shard))
        message = log.AppendShardsRequest
        opened = message.Open(
            shard_id=shard, session_id=session.session_id, session_nonce=session.nonce, lane=1
        )
        call = stub.AppendShards(timeout=30)
        broken.effects = 0
        BREAKS[what](broken)
        blocks = [message.Block(sequence=number, block=block(), lane=1) for number in (1, 2)]
        await call.write(message(opens=[opened], blocks=blocks))
        await call.done_writing()
        acked: list[int] = []
        error: LogServiceError | None = None
        try:
            async for answer in call:
                acked += [ack.sequence for lane in answer.lanes for ack in lane.acks]
        except grpc.aio.AioRpcError as failure:
            error = error_of(failure, mutating=True)
    assert broken.effects == 2
    assert acked == list(range(1, len(acked) + 1))
    if what in ("the replica halts", "the replica goes away", "its span fails"):
        assert acked == [1, 2]
        assert error is None
    if error is not None:
        assert error.outcome is Outcome.UNKNOWN, error
