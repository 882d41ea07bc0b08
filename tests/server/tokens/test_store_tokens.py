"""A real store that takes tokens beside certificates: who gets in, as whom, and for how long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from logservice_client import LogClient, Tls
from logservice_wire.errors import LogServiceError, Reason
from logservice_wire.v1 import hakeeper_pb2, hakeeper_pb2_grpc, log_pb2, log_pb2_grpc

from logservice.config import tokens_address
from logservice.server.edge.guard import SERVED
from logservice.server.store import Store
from logservice.server.tokens.token_check import TOKENS as TOKENS_KEY
from tests.papers import Papers, uri
from tests.server.secured import (
    ADMIN,
    CLIENTS,
    OPTIONS,
    OWNER,
    credentials,
    lay_out,
    papers_of,
    secured,
)
from tests.server.served import typed
from tests.server.test_access import ROLES, attempt, needed
from tests.server.test_audit import told
from tests.server.tokens.issuer import AUDIENCE, ISSUER, claims, forged, jwk, key, publish, token
from tests.waiting import eventually

TOKENS = f"""
[tokens]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
jwks = "keys.json"
leeway_s = 0.0
"""
BACKEND = uri("client", "token.backend")


@asynccontextmanager
async def store_with_tokens(directory: Path, more: str = "") -> AsyncIterator[Store]:
    lay_out(directory)
    publish(directory / "keys.json", jwk(key("RS256"), "k1"))
    async with secured(directory, TOKENS + more) as store:
        yield store


def token_port(store: Store) -> str:
    return tokens_address(store._config, store.client_address)


def channel(store: Store, papers: Papers | None = None) -> grpc.aio.Channel:
    """To the port for certificates with `papers`, else to the one for tokens."""
    address = token_port(store) if papers is None else store.client_address
    return grpc.aio.secure_channel(address, credentials(papers), OPTIONS)


async def status(made: grpc.aio.Channel, *shown: str) -> Any:
    """GetShardStatus with these authorizations."""
    stub = log_pb2_grpc.LogStub(made)
    request = log_pb2.GetShardStatusRequest(shard_id=1)
    metadata = tuple(("authorization", one) for one in shown)
    return await stub.GetShardStatus(request, timeout=60, metadata=metadata)


async def refusal(made: grpc.aio.Channel, *shown: str) -> LogServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await status(made, *shown)
    return typed(caught.value)


async def grant(store: Store, identity: str, *roles: str) -> None:
    tls = Tls(CLIENTS.pem, OWNER.certificate, OWNER.key)
    async with LogClient(store.client_address, tls=tls) as client:
        version = await client.hakeeper.change_access(identity, "*", grant=roles)
    gate = store.gate
    assert gate is not None
    await eventually(lambda: gate.access.list.version >= version)


async def test_a_token_is_an_identity_with_its_grants(tmp_path: Path) -> None:
    """Over a connection without a certificate; the audit log names who it was."""
    async with store_with_tokens(tmp_path) as store, channel(store) as made:
        good = f"Bearer {token()}"
        denied = await refusal(made, good)
        assert denied.reason is Reason.PERMISSION_DENIED
        assert BACKEND in denied.message
        await grant(store, BACKEND, "read", "append")
        assert (await status(made, good)).position.applied_lsn == 0
        # Another token of the same identity, and another identity.
        assert await status(made, f"bearer {token(jti='other')}")
        assert (
            await refusal(made, f"Bearer {token(sub='other')}")
        ).reason is Reason.PERMISSION_DENIED
    denied_lines = [line for line in told(tmp_path / "data" / "audit") if line["who"] == BACKEND]
    assert [line["decision"] for line in denied_lines] == ["denied"]


async def test_without_a_good_token_nobody_gets_in(tmp_path: Path) -> None:
    async with store_with_tokens(tmp_path) as store:
        await grant(store, BACKEND, "read")
        async with channel(store) as made:
            for shown in (
                (),
                ("Basic YTpi",),
                ("Bearer ",),
                ("Bearer x.y.z",),
                (f"Bearer {token()}", f"Bearer {token()}"),
                (f"Bearer {forged({'alg': 'none', 'kid': 'k1'}, claims())}",),
                (f"Bearer {token(which=1)}",),
                (f"Bearer {token(aud='other')}",),
                (f"Bearer {token()}{'A' * 4096}",),
            ):
                assert (await refusal(made, *shown)).reason is Reason.UNAUTHENTICATED
            assert await status(made, f"Bearer {token()}")


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in directory.rglob("*") if path.is_file()]


async def test_no_token_is_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reads logs, the audit log, errors or the disk could be the client."""
    caplog.set_level(logging.DEBUG)
    tokens = [token(), token(which=1), token(aud="other"), token(exp=1), token(kid="unknown")]
    said = ""
    async with store_with_tokens(tmp_path) as store, channel(store) as made:
        for one in tokens:
            error = await refusal(made, f"Bearer {one}")
            said += f"{error.message} {error.metadata}"
        assert store._monitor is not None
        said += repr(store._monitor.reporter.status())
    files = await asyncio.to_thread(contents, tmp_path)
    assert len(files) > 10
    for one in tokens:
        _, claimed, signature = one.split(".")
        for part in (claimed, signature):
            assert part not in said + caplog.text
            assert not any(part.encode() in data for data in files)


async def test_a_stranger_holds_no_call(tmp_path: Path) -> None:
    """A call without a good token is answered by its headers. Calls whose requests never come would
    otherwise use up those that the store serves at a time.
    """

    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with store_with_tokens(tmp_path) as store, channel(store) as made:
        for shown in ((), (("authorization", f"Bearer {token(which=1)}"),)):
            for path in ("/logservice.v1.Log/Append", "/grpc.health.v1.Health/Check"):
                call = made.stream_unary(path)(nothing(), metadata=shown, timeout=60)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert typed(caught.value).reason is Reason.UNAUTHENTICATED


async def test_the_certificates_port_asks_for_certificates_as_before(tmp_path: Path) -> None:
    """A token opens no handshake there, and a certificate none on the other port."""
    async with store_with_tokens(tmp_path) as store:
        await grant(store, BACKEND, "read")
        without = grpc.aio.secure_channel(store.client_address, credentials(None), OPTIONS)
        async with without:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await status(without, f"Bearer {token()}")
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        shown = grpc.aio.secure_channel(token_port(store), credentials(OWNER), OPTIONS)
        async with shown:
            assert (await refusal(shown)).reason is Reason.UNAUTHENTICATED


async def test_a_certificate_and_a_token_must_be_of_one_identity(tmp_path: Path) -> None:
    """INV-GATE-4, where the operator lets tokens name the clients of certificates."""
    with_no_prefix = store_with_tokens(tmp_path, 'name_prefix = ""')
    async with with_no_prefix as store, channel(store, OWNER) as made:
        assert await status(made)
        assert await status(made, f"Bearer {token(sub='admin')}")
        other = await refusal(made, f"Bearer {token(sub='backend')}")
        assert other.reason is Reason.UNAUTHENTICATED
        assert "different identities" in other.message
        bad = await refusal(made, f"Bearer {token(sub='admin', which=1)}")
        assert bad.reason is Reason.UNAUTHENTICATED
        # Both have to be good for as long as the call lasts.
        ends_s = int(time.time()) + 2
        short = f"Bearer {token(sub='admin', exp=ends_s)}"
        assert await status(made, short)
        await asyncio.sleep(ends_s - time.time() + 0.01)
        assert (await refusal(made, short)).reason is Reason.UNAUTHENTICATED
        assert await status(made)


async def test_a_certificate_cannot_have_a_tokens_name(tmp_path: Path) -> None:
    """INV-TOKEN-1: with the prefix, which is the default."""
    async with store_with_tokens(tmp_path) as store:
        await grant(store, BACKEND, "read")
        async with channel(store, papers_of("token.backend")) as made:
            refused = await refusal(made)
            assert refused.reason is Reason.UNAUTHENTICATED
            assert "only tokens" in refused.message
        async with channel(store) as made:
            # A token that says it is the administrator of the certificates is somebody else.
            said = await refusal(made, f"Bearer {token(sub='admin')}")
            assert said.reason is Reason.PERMISSION_DENIED
            assert ADMIN not in said.message


async def ended(store: Store, stream: Any) -> LogServiceError:
    """How a stream that follows the log ends. It is looked at with every message, so there have to
    be some.
    """
    tls = Tls(CLIENTS.pem, OWNER.certificate, OWNER.key)
    async with LogClient(store.client_address, tls=tls) as client:

        async def append() -> None:
            while True:
                await client.shard(1).append(b"x")
                await asyncio.sleep(0.05)

        appending = asyncio.create_task(append())
        try:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                while await stream.read() is not grpc.aio.EOF:
                    pass
        finally:
            appending.cancel()
    return typed(caught.value)


def followed(made: grpc.aio.Channel, shown: str) -> Any:
    return log_pb2_grpc.LogStub(made).Follow(
        log_pb2.FollowRequest(shard_id=1, lsn=1), metadata=(("authorization", shown),), timeout=60
    )


async def test_a_token_that_ends_is_refused_on_calls_and_streams_under_way(tmp_path: Path) -> None:
    async with store_with_tokens(tmp_path) as store, channel(store) as made:
        await grant(store, BACKEND, "read")
        short = f"Bearer {token(exp=int(time.time()) + 3)}"
        assert await status(made, short)
        error = await ended(store, followed(made, short))
        # It may begin again with another token; with this one it may not.
        assert error.reason is Reason.NOT_READY
        assert error.metadata == {TOKENS_KEY: "stream"}
        assert "the token has expired" in error.message
        refused = await refusal(made, short)
        assert refused.reason is Reason.UNAUTHENTICATED
        assert refused.message == "the token has expired"


async def test_a_removed_key_ends_what_was_checked_by_it(tmp_path: Path) -> None:
    """Calls and streams, also of a token that the gate remembers; the new key is found at once."""
    async with store_with_tokens(tmp_path) as store, channel(store) as made:
        await grant(store, BACKEND, "read")
        old, new = f"Bearer {token()}", f"Bearer {token('ES256', 'k2')}"
        assert await status(made, old)
        tls = Tls(CLIENTS.pem, OWNER.certificate, OWNER.key)
        async with LogClient(store.client_address, tls=tls) as client:
            await client.shard(1).append(b"x")
        stream = followed(made, old)
        assert await stream.read()
        publish(tmp_path / "keys.json", jwk(key("ES256"), "k2"))
        keys = store._token_keys
        assert keys is not None
        assert (await refusal(made, new)).reason is Reason.NOT_READY
        await eventually(lambda: "k2" in keys.current())
        assert await status(made, new)
        assert (await refusal(made, old)).reason is Reason.UNAUTHENTICATED
        assert (await ended(store, stream)).metadata == {TOKENS_KEY: "stream"}


async def test_clients_with_tokens_are_told_the_ports_for_tokens(tmp_path: Path) -> None:
    async with store_with_tokens(tmp_path) as store:
        await grant(store, BACKEND, "read", "admin")
        request = hakeeper_pb2.GetShardInfoRequest(shard_id=1)
        shown = (("authorization", f"Bearer {token()}"),)
        async with channel(store) as made:
            stub = hakeeper_pb2_grpc.HAKeeperStub(made)
            info = await stub.GetShardInfo(request, metadata=shown, timeout=60)
            assert info.leader_address == token_port(store)
            assert list(info.client_addresses) == [token_port(store)]
            assert {one.client_address for one in info.replicas} == {token_port(store)}
            position = (await status(made, shown[0][1])).position
            assert position.leader_address == token_port(store)
        async with channel(store, OWNER) as made:
            stub = hakeeper_pb2_grpc.HAKeeperStub(made)
            info = await stub.GetShardInfo(request, timeout=60)
            assert info.leader_address == store.client_address


async def test_every_rpc_by_every_role_of_a_token(tmp_path: Path) -> None:
    """The access matrix holds for a token's identity as for a certificate's. The token goes along
    as gRPC's own call credentials, as clients in other languages send it.
    """
    async with store_with_tokens(tmp_path) as store:
        for role in ROLES:
            if role is not None:
                await grant(store, uri("client", f"token.{role}"), role)
            shown = grpc.composite_channel_credentials(
                credentials(None), grpc.access_token_call_credentials(token(sub=str(role)))
            )
            async with grpc.aio.secure_channel(token_port(store), shown, OPTIONS) as made:
                for path in sorted(SERVED):
                    outcome = await attempt(made, path)
                    allowed = not needed(path) or role in needed(path)
                    assert (outcome is not Reason.PERMISSION_DENIED) is allowed, (path, role)
                    assert outcome is not Reason.UNAUTHENTICATED
