"""Authorisation on a real store: every RPC by every role, made from the proto descriptors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient, Tls
from logservice_wire.bounds import REPLAYED_PER_SERVICE_MAX
from logservice_wire.errors import LogServiceError, PermissionDenied, Reason
from logservice_wire.roles import Role
from logservice_wire.status import from_status_details
from logservice_wire.v1 import hakeeper_pb2, hakeeper_pb2_grpc, log_pb2, log_pb2_grpc

from logservice.clock import ManualClock
from logservice.nodehost.agent.access_book import AccessBook
from logservice.nodehost.agent.heartbeats import HeartbeatSender
from logservice.server.audit.trail import Trail
from logservice.server.edge.guard import SERVED
from logservice.server.store import Store
from tests.papers import CLIENT, Papers, days, uri
from tests.server.secured import ADMIN, CLIENTS, OWNER, channel_of, lay_out, papers_of, secured
from tests.server.served import block, typed
from tests.server.test_audit import told
from tests.tidy.test_rpcs import rpcs

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROLES = [*Role, None]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    directory = tmp_path_factory.mktemp("access")
    lay_out(directory)
    async with secured(directory) as made:
        yield made


def client_of(store: Store, papers: Papers) -> LogClient:
    return LogClient(store.client_address, tls=Tls(CLIENTS.pem, papers.certificate, papers.key))


async def change(store: Store, identity: str, scope: str, **roles: list[str]) -> None:
    """Change the access list and wait until it is in force."""
    async with client_of(store, OWNER) as client:
        denies = "deny" in roles or "undeny" in roles
        keeper = client.hakeeper
        changed = keeper.change_denial if denies else keeper.change_access
        version = await changed(identity, scope, **roles)
    async with asyncio.timeout(60):
        assert store.gate is not None
        while store.gate.access.list.version < version:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.01)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bearers(store: Store) -> dict[Role | None, Papers]:
    """One client per role over everything, and one without any."""
    for role in Role:
        await change(store, uri("client", f"has-{role}"), "*", grant=[role])
    return {role: papers_of(f"has-{role}") for role in ROLES}


async def lane_of(channel: grpc.aio.Channel, shard: int) -> Reason | str:
    """Open a lane of a shard on a stream of its own, and return what became of it."""
    message = log_pb2.AppendShardsRequest
    call = log_pb2_grpc.LogStub(channel).AppendShards(timeout=60)
    await call.write(message(opens=[message.Open(lane=1, shard_id=shard)]))
    [lane] = (await call.read()).lanes
    call.cancel()
    found = from_status_details(lane.status)
    return found.reason if found is not None else "ok"


def needed(path: str) -> frozenset[Role]:
    """The roles of which one lets a caller in; of a stream of many shards, into a lane."""
    rpc = SERVED[path]
    return rpc.each_as.roles if rpc.each_as is not None and not rpc.roles else rpc.roles


async def attempt(channel: grpc.aio.Channel, path: str) -> Reason | str:
    """Call an RPC with a request that says as little as possible; return what became of it."""
    message = SERVED[path].request
    request = message()
    if "shard_id" in request.DESCRIPTOR.fields_by_name:
        # A Close is for ever, and the tests after this one append to shard 1.
        request.shard_id = 1 if not path.endswith("/CloseShard") else 999
    if "open" in request.DESCRIPTOR.fields_by_name:
        request.open.shard_id = 1
    method = rpcs()[path]
    encode = message.SerializeToString
    try:
        if path.endswith("/AppendShards"):
            return await lane_of(channel, 1)
        if method.client_streaming:
            call = channel.stream_stream(path, request_serializer=encode)
            await anext(aiter(call(iter([request]), timeout=60)), None)
        elif method.server_streaming:
            follow = channel.unary_stream(path, request_serializer=encode)
            stream = follow(request, timeout=60)
            await anext(aiter(stream), None)
            stream.cancel()
        else:
            await channel.unary_unary(path, request_serializer=encode)(request, timeout=60)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return "UNIMPLEMENTED"
        return typed(error).reason
    return "ok"


@pytest.mark.parametrize("role", ROLES, ids=str)
@pytest.mark.parametrize("path", sorted(SERVED))
async def test_every_rpc_by_every_role(
    store: Store, bearers: dict[Role | None, Papers], path: str, role: Role | None
) -> None:
    allowed = not needed(path) or role in needed(path)
    async with channel_of(store, bearers[role]) as channel:
        outcome = await attempt(channel, path)
    assert (outcome is not Reason.PERMISSION_DENIED) is allowed, outcome
    assert outcome is not Reason.UNAUTHENTICATED


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shut_out(store: Store) -> Papers:
    """A client that was granted everything, and is denied everything."""
    await change(store, uri("client", "shut-out"), "*", grant=[str(role) for role in Role])
    await change(store, uri("client", "shut-o*"), "*", deny=["all"])
    return papers_of("shut-out")


@pytest.mark.parametrize("path", sorted(SERVED))
async def test_no_rpc_for_who_is_denied_everything(
    store: Store, shut_out: Papers, path: str
) -> None:
    """But for health, which an identity is enough for."""
    async with channel_of(store, shut_out) as channel:
        outcome = await attempt(channel, path)
    assert (outcome is Reason.PERMISSION_DENIED) is bool(needed(path)), outcome


@pytest.mark.parametrize("path", sorted(SERVED))
async def test_the_configured_admin_may_do_everything(store: Store, path: str) -> None:
    async with channel_of(store, OWNER) as channel:
        assert await attempt(channel, path) is not Reason.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("papers", "reason"),
    [
        (CLIENTS.issue(uri("store", "s1"), purposes=CLIENT), Reason.PERMISSION_DENIED),
        (CLIENTS.issue(uri("client", "admin"), uri("client", "b")), Reason.UNAUTHENTICATED),
        (CLIENTS.issue(uri("client", "admin", cluster="d")), Reason.UNAUTHENTICATED),
        (CLIENTS.issue(uri("client", "admin", domain="d.example")), Reason.UNAUTHENTICATED),
        (CLIENTS.issue(uri("client", "Admin")), Reason.PERMISSION_DENIED),
        (CLIENTS.issue(uri("client", "admin.")), Reason.PERMISSION_DENIED),
        (CLIENTS.issue("https://admin.example/"), Reason.UNAUTHENTICATED),
        (CLIENTS.issue(hosts=["admin"]), Reason.UNAUTHENTICATED),
        (CLIENTS.issue(hosts=(), common_name="admin"), Reason.UNAUTHENTICATED),
        (CLIENTS.issue(hosts=(), common_name=uri("client", "admin")), Reason.UNAUTHENTICATED),
    ],
    ids=[
        "a-stores",
        "two-names",
        "another-cluster",
        "another-domain",
        "another-case",
        "another-dot",
        "no-spiffe",
        "dns-only",
        "common-name",
        "uri-as-common-name",
    ],
)
async def test_who_is_nobody(store: Store, papers: Papers, reason: Reason) -> None:
    async with channel_of(store, papers) as channel:
        assert await attempt(channel, "/logservice.v1.Log/Connect") is reason


async def test_scopes_hold(store: Store) -> None:
    """Shard 1 may be used, by its number, its name log-1 and its prefix; no other shard may."""
    for number, scope in enumerate(("shard/1", "name/log-1", "name/log*")):
        who = f"scoped-{number}"
        await change(store, uri("client", who), scope, grant=["append"])
        async with client_of(store, papers_of(who)) as client:
            await client.shard(1).append(b"x")
    async with client_of(store, OWNER) as client:
        other = await client.hakeeper.create_shard(replicas=1)
    for number, scope in enumerate((f"shard/{other}", "name/log-2", "name/log-11*", "cluster")):
        who = f"elsewhere-{number}"
        await change(store, uri("client", who), scope, grant=["append"])
        async with channel_of(store, papers_of(who)) as channel:
            request = log_pb2.AppendRequest(shard_id=1, block=block(b"x"))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await log_pb2_grpc.LogStub(channel).Append(request)
            assert typed(caught.value).reason is Reason.PERMISSION_DENIED


async def test_a_service_holds_only_the_logs_that_its_identity_may_truncate(store: Store) -> None:
    await change(store, uri("client", "tn"), "cluster", grant=["append"])
    await change(store, uri("client", "tn"), "shard/1", grant=["truncate"])
    said = [hakeeper_pb2.ReplayedLsn(shard_id=one, lsn=1) for one in (1, 2)]
    async with channel_of(store, papers_of("tn")) as channel:
        stub: Any = hakeeper_pb2_grpc.HAKeeperStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Heartbeat(hakeeper_pb2.HeartbeatRequest(service_id="tn", replayed=said))
        error = typed(caught.value)
        assert (error.reason, error.metadata["shard"]) == (Reason.PERMISSION_DENIED, "2")
        many = [said[0]] * (REPLAYED_PER_SERVICE_MAX + 1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Heartbeat(hakeeper_pb2.HeartbeatRequest(service_id="tn", replayed=many))
        assert typed(caught.value).reason is Reason.TOO_LARGE
        allowed = hakeeper_pb2.HeartbeatRequest(service_id="tn", kind="tn", replayed=said[:1])
        [answer] = (await stub.Heartbeat(allowed)).replayed
        assert (answer.shard_id, answer.lsn) == (1, 1)


async def test_a_change_is_in_force_within_two_heartbeats(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is heartbeats, not time: those that began between the answer and the new list."""
    beat, update = HeartbeatSender.beat_once, AccessBook.update
    begun = 0
    updates: dict[int, int] = {}

    async def counted(self: HeartbeatSender, *, few: bool) -> Any:
        nonlocal begun
        begun += 1
        return await beat(self, few=few)

    def noted(self: AccessBook, version: int, grants: Any, denials: Any) -> None:
        update(self, version, grants, denials)
        updates[version] = begun

    monkeypatch.setattr(HeartbeatSender, "beat_once", counted)
    monkeypatch.setattr(AccessBook, "update", noted)
    identity = uri("client", "prompt")
    request = log_pb2.ReadRequest(shard_id=1, lsn=1)
    async with client_of(store, OWNER) as client, channel_of(store, papers_of("prompt")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        for granted, revoked in ((["read"], []), ([], ["read"])):
            version = await client.hakeeper.change_access(
                identity, "shard/1", grant=granted, revoke=revoked
            )
            answered = begun
            async with asyncio.timeout(60):
                while version not in updates:  # noqa: ASYNC110 - no event for it
                    await asyncio.sleep(0.001)
            assert updates[version] - answered <= 2
            if granted:
                await log.Read(request)
                continue
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await log.Read(request)
            assert typed(caught.value).reason is Reason.PERMISSION_DENIED


async def test_a_revoked_role_ends_streams_under_way(store: Store) -> None:
    """Within two heartbeats the list is in force; the next message on the stream ends it."""
    identity = uri("client", "streamer")
    await change(store, identity, "shard/1", grant=["append", "read"])
    async with channel_of(store, papers_of("streamer")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        session = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=1))
        stream = log.AppendStream()
        opened = log_pb2.AppendStreamRequest.Open(
            shard_id=1, session_id=session.session_id, session_nonce=session.nonce
        )
        blocks = [
            log_pb2.AppendStreamRequest.Block(sequence=number, block=block(b"x"))
            for number in (1, 2, 3)
        ]
        await stream.write(log_pb2.AppendStreamRequest(open=opened, blocks=blocks[:1]))
        acked = await stream.read()
        assert acked.acks[0].sequence == 1
        follow = log.Follow(log_pb2.FollowRequest(shard_id=1, lsn=1))
        await follow.read()
        # Another grant changes the list, and both streams go on.
        await change(store, uri("client", "somebody"), "*", grant=["read"])
        await stream.write(log_pb2.AppendStreamRequest(blocks=blocks[1:2]))
        assert (await stream.read()).acks[0].sequence == 2
        await change(store, identity, "shard/1", revoke=["append", "read"])
        await stream.write(log_pb2.AppendStreamRequest(blocks=blocks[2:]))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
            await stream.read()
        assert typed(caught.value).reason is Reason.PERMISSION_DENIED
        async with client_of(store, OWNER) as owner:
            await owner.shard(1).append(b"for the follower")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while True:
                await follow.read()
        assert typed(caught.value).reason is Reason.PERMISSION_DENIED


async def test_a_denial_wins_over_every_grant(store: Store) -> None:
    """Over a grant of everything, over roles of which any would do, over the cluster's role, and
    over grants that are made after it (INV-ACCESS-3); and everybody else goes on.
    """
    identity, request = uri("client", "shut-1"), log_pb2.ReadRequest(shard_id=1, lsn=1)
    status = log_pb2.GetShardStatusRequest(shard_id=1)
    await change(store, identity, "*", grant=[str(role) for role in Role])
    async with channel_of(store, papers_of("shut-1")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        keeper: Any = hakeeper_pb2_grpc.HAKeeperStub(channel)

        async def refused(call: Any) -> bool:
            try:
                await call
            except grpc.aio.AioRpcError as error:
                found = typed(error)
            else:
                return False
            assert (found.reason, found.metadata["by"]) == (Reason.PERMISSION_DENIED, "rule")
            return True

        async def state() -> tuple[bool, bool, bool, bool]:
            resolve = hakeeper_pb2.ResolveShardRequest(name="log-1")
            return (
                await refused(log.Read(request)),
                await refused(log.GetShardStatus(status)),
                await refused(keeper.ResolveShard(resolve)),
                await refused(keeper.GetClusterState(hakeeper_pb2.GetClusterStateRequest())),
            )

        assert await state() == (False, False, False, False)
        await change(store, identity, "shard/1", deny=["read"])
        assert await state() == (True, False, False, False)
        # Of a role over the cluster, too, which would do for the status.
        await change(store, identity, "shard/1", deny=["all"])
        assert await state() == (True, True, False, False)
        await change(store, identity, "shard/1", undeny=["all"])
        await change(store, uri("client", "shut-*"), "name/log-*", deny=["all"])
        assert await state() == (True, True, True, False)
        await change(store, identity, "name/log-1", grant=["read"])
        assert await state() == (True, True, True, False)
        await change(store, uri("client", "shut-*"), "*", deny=["all"])
        assert await state() == (True, True, True, True)
        async with channel_of(store, papers_of("has-read")) as others:
            await change(store, uri("client", "has-read"), "*", grant=["read"])
            stub: Any = log_pb2_grpc.LogStub(others)
            await stub.Read(request)
        await change(store, uri("client", "shut-*"), "*", undeny=["all"])
        await change(store, uri("client", "shut-*"), "name/log-*", undeny=["all"])
        assert await state() == (False, False, False, False)


async def test_a_denial_ends_streams_under_way(store: Store) -> None:
    """As a revoked grant does: the next message on the stream ends it."""
    identity = uri("client", "denied-streamer")
    await change(store, identity, "*", grant=["append", "read"])
    async with channel_of(store, papers_of("denied-streamer")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        session = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=1))
        stream = log.AppendStream()
        opened = log_pb2.AppendStreamRequest.Open(
            shard_id=1, session_id=session.session_id, session_nonce=session.nonce
        )
        blocks = [
            log_pb2.AppendStreamRequest.Block(sequence=number, block=block(b"x"))
            for number in (1, 2)
        ]
        await stream.write(log_pb2.AppendStreamRequest(open=opened, blocks=blocks[:1]))
        assert (await stream.read()).acks[0].sequence == 1
        follow = log.Follow(log_pb2.FollowRequest(shard_id=1, lsn=1))
        await follow.read()
        await change(store, uri("client", "denied-*"), "*", deny=["all"])
        await stream.write(log_pb2.AppendStreamRequest(blocks=blocks[1:]))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert typed(caught.value).metadata["by"] == "rule"
        async with client_of(store, OWNER) as owner:
            await owner.shard(1).append(b"for the follower")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while True:
                await follow.read()
        assert typed(caught.value).reason is Reason.PERMISSION_DENIED
        await change(store, uri("client", "denied-*"), "*", undeny=["all"])


async def test_a_lane_needs_a_grant_over_its_own_shard_and_loses_it_alone(store: Store) -> None:
    """INV-LANES-2 with a valid certificate: what is not granted is refused in its lane, and a grant
    that is revoked, or denied by a rule, ends the lane that it was for.
    """
    identity, message = uri("client", "laner"), log_pb2.AppendShardsRequest
    await change(store, identity, "shard/1", grant=["append"])
    async with client_of(store, OWNER) as owner:
        second = await owner.hakeeper.create_shard()
        await owner.shard(second).connect()
    async with channel_of(store, papers_of("laner")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        call = log.AppendShards()
        acked: list[tuple[int, int]] = []
        ended: dict[int, LogServiceError | None] = {}
        opened = 0

        async def write(*sent: tuple[int, int], shard: int = 0, session: Any = None) -> None:
            nonlocal opened
            opens = []
            if shard:
                opened += 1
                nonce, number = (session.nonce, session.session_id) if session else (bytes(16), 1)
                opens = [
                    message.Open(
                        lane=opened, shard_id=shard, session_id=number, session_nonce=nonce
                    )
                ]
            blocks = [
                message.Block(lane=lane, sequence=number, block=block(b"x"))
                for lane, number in sent
            ]
            await call.write(message(opens=opens, blocks=blocks))

        async def until(acks: int, ends: int) -> None:
            async with asyncio.timeout(60):
                while len(acked) < acks or len(ended) < ends:
                    for lane in (await call.read()).lanes:
                        acked.extend((lane.lane, ack.sequence) for ack in lane.acks)
                        if lane.ended:
                            ended[lane.lane] = from_status_details(lane.status)

        mine = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=1))
        await write((1, 1), shard=1, session=mine)
        await write((2, 1), shard=second)
        await until(1, 1)
        assert isinstance(ended[2], PermissionDenied)
        assert (ended[2].metadata["role"], ended[2].metadata["shard"]) == ("append", str(second))
        await change(store, identity, f"shard/{second}", grant=["append"])
        other = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=second))
        await write((3, 1), (1, 2), shard=second, session=other)
        await until(3, 1)
        await change(store, identity, "shard/1", revoke=["append"])
        await write((1, 3), (3, 2))
        await until(4, 2)
        assert isinstance(ended[1], PermissionDenied)
        assert sorted(acked) == [(1, 1), (1, 2), (3, 1), (3, 2)]
        await change(store, uri("client", "lan*"), "*", deny=["all"])
        await write((3, 3))
        await until(4, 3)
        assert isinstance(ended[3], PermissionDenied)
        assert ended[3].metadata["by"] == "rule"
        call.cancel()
        await change(store, uri("client", "lan*"), "*", undeny=["all"])


async def test_the_configured_admins_cannot_be_locked_out(store: Store) -> None:
    """Neither by their name nor by a rule about everybody; and they can take it back."""
    everybody = ADMIN.removesuffix("admin") + "*"
    for who in (ADMIN, everybody):
        await change(store, who, "*", deny=["all"])
    async with client_of(store, OWNER) as client:
        await client.shard(1).append(b"still here")
        found = await client.hakeeper.access_list()
        assert {one.identity for one in found.denials} >= {ADMIN, everybody}
        assert list(found.admins) == [ADMIN]
    # The stores' own calls are on another plane: the log is served, the list is followed.
    for who in (ADMIN, everybody):
        await change(store, who, "*", undeny=["all"])


def hold_requests(name: str) -> list[tuple[str, Any]]:
    return [
        ("SetHold", log_pb2.SetHoldRequest(shard_id=1, name=name, lsn=1, ttl_s=60)),
        ("RenewHold", log_pb2.RenewHoldRequest(shard_id=1, name=name)),
        ("ReleaseHold", log_pb2.ReleaseHoldRequest(shard_id=1, name=name)),
    ]


@pytest.mark.parametrize("role", ROLES, ids=str)
async def test_readers_holds_need_a_role_of_their_own(
    store: Store, bearers: dict[Role | None, Papers], role: Role | None
) -> None:
    """Reading does not imply it, and it allows no other hold."""
    async with channel_of(store, bearers[role]) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        for name in ("reader:query", "reader", "nightly"):
            of_reader = name == "reader:query"
            allowed = role is Role.TRUNCATE or (role is Role.HOLD and of_reader)
            for method, request in hold_requests(name):
                if allowed:
                    await getattr(log, method)(request)
                    continue
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await getattr(log, method)(request)
                error = typed(caught.value)
                assert error.reason is Reason.PERMISSION_DENIED
                assert error.metadata["role"] == ("hold or truncate" if of_reader else "truncate")


async def test_a_readers_hold_is_its_readers(
    store: Store, bearers: dict[Role | None, Papers]
) -> None:
    async with (
        channel_of(store, bearers[Role.HOLD]) as channel,
        channel_of(store, bearers[Role.TRUNCATE]) as other,
    ):
        log: Any = log_pb2_grpc.LogStub(channel)
        others: Any = log_pb2_grpc.LogStub(other)
        set_hold, renew, release = (request for _, request in hold_requests("reader:mine"))
        await log.SetHold(set_hold)
        for call in (
            others.SetHold(set_hold),
            others.RenewHold(renew),
            others.ReleaseHold(release),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert typed(caught.value).metadata["owner"] == uri("client", "has-hold")
        override = log_pb2.ReleaseHoldRequest(shard_id=1, name="reader:mine", override=True)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await log.ReleaseHold(override)
        assert typed(caught.value).metadata["role"] == "admin"
        # One that does not expire is no reader's.
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await log.SetHold(log_pb2.SetHoldRequest(shard_id=1, name="reader:ever", lsn=1))
        assert typed(caught.value).metadata["field"] == "ttl_s"
        await log.ReleaseHold(release)


async def test_a_certificate_that_expires_ends_its_connection(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = CLIENTS.issue(uri("client", "admin"), hosts=(), purposes=CLIENT, end=days(1 / 24))
    status = log_pb2.GetShardStatusRequest(shard_id=1)
    async with channel_of(store, late) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        await log.GetShardStatus(status)
        assert store.gate is not None
        clock = ManualClock(time.time() + 7200.0)
        monkeypatch.setattr(store.gate, "clock", clock)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await log.GetShardStatus(status)
        assert typed(caught.value).reason is Reason.UNAUTHENTICATED


@pytest.mark.parametrize(
    "request_",
    [
        hakeeper_pb2.ChangeAccessRequest(),
        hakeeper_pb2.ChangeAccessRequest(identity="x", scope="*", grant=["read"]),
        hakeeper_pb2.ChangeAccessRequest(identity=uri("client", "a"), scope="x", grant=["read"]),
        hakeeper_pb2.ChangeAccessRequest(identity=uri("client", "a"), scope="*", grant=["x"]),
        hakeeper_pb2.ChangeAccessRequest(identity=uri("client", "a"), scope="*"),
        hakeeper_pb2.ChangeAccessRequest(
            identity=uri("client", "a"), scope="*", grant=["read"] * 1000
        ),
        hakeeper_pb2.ChangeAccessRequest(
            identity=uri("client", "a"), scope="name/" + "x" * 5000, grant=["read"]
        ),
        hakeeper_pb2.ChangeAccessRequest(identity="x*", scope="*", deny=["all"]),
        hakeeper_pb2.ChangeAccessRequest(identity="*", scope="*", deny=["all"]),
        hakeeper_pb2.ChangeAccessRequest(identity=uri("store", "s1"), scope="*", deny=["all"]),
        hakeeper_pb2.ChangeAccessRequest(identity=uri("client", "a"), scope="*", deny=["x"]),
        hakeeper_pb2.ChangeAccessRequest(identity=uri("client", "a"), scope="x", deny=["all"]),
        hakeeper_pb2.ChangeAccessRequest(identity=uri("client", "a"), scope="*", grant=["all"]),
        hakeeper_pb2.ChangeAccessRequest(
            identity=uri("client", "a"), scope="*", grant=["read"], deny=["read"]
        ),
        hakeeper_pb2.ChangeAccessRequest(identity=uri("client", "a*"), scope="*", grant=["read"]),
    ],
)
async def test_bad_changes(store: Store, request_: hakeeper_pb2.ChangeAccessRequest) -> None:
    async with channel_of(store, OWNER) as channel:
        keeper: Any = hakeeper_pb2_grpc.HAKeeperStub(channel)
        before = (await keeper.GetAccessList(hakeeper_pb2.GetAccessListRequest())).version
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await keeper.ChangeAccess(request_)
        assert typed(caught.value).reason is Reason.INVALID_ARGUMENT
        after = (await keeper.GetAccessList(hakeeper_pb2.GetAccessListRequest())).version
    assert after == before


async def test_the_list_survives_a_restart(tmp_path: Path) -> None:
    lay_out(tmp_path)
    async with secured(tmp_path) as store:
        await change(store, uri("client", "reader"), "*", grant=["read"])
    restarted = secured(tmp_path)
    async with restarted as store, client_of(store, papers_of("reader")) as client:
        await client.shard(1).read(1)


async def test_each_change_and_each_denial_leaves_a_line(tmp_path: Path) -> None:
    """Of denials it says whether a rule did it; of a change, all of it."""
    lay_out(tmp_path)
    identity = uri("client", "noted")
    async with secured(tmp_path) as store:
        await change(store, identity, "*", grant=["read"])
        await change(store, identity, "shard/1", deny=["all"])
        async with client_of(store, OWNER) as client:
            await client.hakeeper.set_quota(identity, rpcs_max=7)
        async with channel_of(store, papers_of("noted")) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await log_pb2_grpc.LogStub(channel).Read(  # type: ignore[attr-defined]
                    log_pb2.ReadRequest(shard_id=1, lsn=1)
                )
    audit = tmp_path / "data" / "audit"
    [line] = [one for one in told(audit) if one["who"] == identity]
    assert (line["what"], line["decision"], line["by"]) == ("Read", "denied", "rule")
    admitted = {
        str(one["request"]): one["what"]
        for one in told(audit, Trail.ADMINISTRATION)
        if "request" in one
    }
    assert f'identity: "{identity}" scope: "shard/1" deny: "all"' in admitted
    [quota] = [text for text, what in admitted.items() if what == "SetQuota"]
    assert "rpcs_max: 7" in quota


@pytest.mark.parametrize(
    "mistyped",
    [
        uri("client", "me", cluster="prod"),
        uri("client", "me", domain="logservice.external"),
        uri("client", "m*", cluster="prod"),
    ],
)
async def test_no_rule_is_made_for_who_cannot_come(store: Store, mistyped: str) -> None:
    """A denial with a mistake in it would shut out nobody; what is there may be taken back."""
    async with channel_of(store, OWNER) as channel:
        stub: Any = hakeeper_pb2_grpc.HAKeeperStub(channel)
        access, quota = hakeeper_pb2.ChangeAccessRequest, hakeeper_pb2.SetQuotaRequest
        limited = hakeeper_pb2.IdentityQuota(identity=mistyped, rpcs_max=1)
        for call, request in (
            (stub.ChangeAccess, access(identity=mistyped, scope="*", deny=["all"])),
            (stub.ChangeAccess, access(identity=mistyped, scope="*", grant=["read"])),
            (stub.SetQuota, quota(quota=limited)),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(request)
            refused = typed(caught.value)
            assert refused.reason is Reason.INVALID_ARGUMENT
            assert uri("client", "") in refused.message
        await stub.ChangeAccess(access(identity=mistyped, scope="*", undeny=["all"]))
