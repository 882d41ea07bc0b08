"""Rights and tokens that end while lanes are open: who is told what, what goes on, and what the
audit log and the counters say afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import logservice_client.token_file as token_file
import pytest
from logservice_client import LogClient, Tls
from logservice_wire.errors import PermissionDenied, Reason
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice.clock import SystemClock
from logservice.server.edge.call_book import OK
from logservice.server.store import Store
from logservice.server.tokens.token_check import TOKENS
from tests.papers import uri
from tests.server.secured import CLIENTS, OWNER, channel_of, lay_out, papers_of, secured
from tests.server.served import typed
from tests.server.test_access import change, client_of
from tests.server.test_audit import told
from tests.server.test_lanes_on_the_wire import Lanes, Request, blocks
from tests.server.tokens.issuer import token
from tests.server.tokens.test_clients_with_tokens import renew, shown
from tests.server.tokens.test_store_tokens import (
    BACKEND,
    channel,
    grant,
    store_with_tokens,
    token_port,
)
from tests.waiting import eventually

LOGS = 4


async def more_logs(store: Store) -> list[int]:
    """LOGS logs that serve, the first one included."""
    async with LogClient(
        store.client_address, tls=Tls(CLIENTS.pem, OWNER.certificate, OWNER.key)
    ) as owner:
        logs = [1, *[await owner.hakeeper.create_shard() for _ in range(LOGS - 1)]]
        for one in logs:
            await owner.shard(one).connect()
    return logs


def counted(store: Store) -> Counter[str]:
    """How calls of AppendShards and their lanes ended so far."""
    port = store._client_port
    assert port is not None
    return Counter(
        {
            name.removeprefix("AppendShards/"): count
            for name, count in port.calls.ended().items()
            if name.startswith("AppendShards/")
        }
    )


async def test_rights_over_one_log_are_taken_while_others_share_its_stream(tmp_path: Path) -> None:
    """Its callers are told so at once; the others go on over the same call; granted again, it goes
    on in a new lane. Each lane leaves one line with its LSNs, and the refusal one.
    """
    lay_out(tmp_path)
    who = uri("client", "writer")
    async with secured(tmp_path, "[audit]\ndata = true") as store:
        logs = await more_logs(store)
        for one in logs:
            await change(store, who, f"shard/{one}", grant=["append"])
        before = counted(store)
        async with client_of(store, papers_of("writer")) as client:
            handles = [client.shard(one) for one in logs]
            assert await asyncio.gather(*(one.append(b"a") for one in handles)) == [1] * LOGS
            [stream] = client._caller.streams._streams.values()
            await change(store, who, f"shard/{logs[1]}", revoke=["append"])
            told_to = await asyncio.gather(
                *(one.append(b"b") for one in handles), return_exceptions=True
            )
            refused = told_to[1]
            assert isinstance(refused, PermissionDenied)
            assert refused.metadata["shard"] == str(logs[1])
            assert told_to[:1] + told_to[2:] == [2] * (LOGS - 1)
            await change(store, who, f"shard/{logs[1]}", grant=["append"])
            assert await asyncio.gather(*(one.append(b"c") for one in handles)) == [3, 2, 3, 3]
            assert [*client._caller.streams._streams.values()] == [stream]
        await eventually(lambda: (counted(store) - before).total() == LOGS + 2)
        ends = counted(store) - before
    # The client has closed a lane before the call's end or not.
    assert ends.pop("PERMISSION_DENIED") == 1
    assert ends.keys() <= {OK, "CANCELLED"}
    lines = [line for line in told(tmp_path / "data" / "audit") if line["what"] == "AppendShards"]
    denied = [line for line in lines if line["decision"] == "denied"]
    assert [(line["who"], line["shard"]) for line in denied] == [(who, logs[1])]
    ended = [line for line in lines if line["decision"] == "allowed"]
    assert sorted((line["shard"], line["first_lsn"], line["last_lsn"]) for line in ended) == sorted(
        [(logs[1], 1, 1), (logs[1], 2, 2), *((one, 1, 3) for one in logs if one != logs[1])]
    )


async def opened(log: Any, shards: Sequence[int], shown: Sequence[tuple[str, str]]) -> Any:
    """What opens a lane for each of `shards`."""
    opens = []
    for lane, shard in enumerate(shards, 1):
        request = log_pb2.OpenSessionRequest(shard_id=shard)
        session = await log.OpenSession(request, metadata=tuple(shown))
        opens.append(
            Request.Open(
                lane=lane,
                shard_id=shard,
                session_id=session.session_id,
                session_nonce=session.nonce,
            )
        )
    return opens


def bearer(**claims: Any) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token(**claims)}"),)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, it makes the store see a wall clock that is ten minutes ahead: a token that is made
    without other wishes is over then.
    """

    def ahead() -> None:
        wall_us = SystemClock().wall_us
        monkeypatch.setattr(SystemClock, "wall_us", lambda _: wall_us() + 600_000_000)

    return ahead


def lasting() -> int:
    """The end of a token that is good then, too."""
    return int(time.time()) + 3600


async def test_a_token_ends_while_its_lanes_are_open(
    tmp_path: Path, later: Callable[[], None]
) -> None:
    """It is the caller's, not a log's, so the next message ends the call, and takes nothing. Lanes
    of another caller go on. With another token the same sessions go on where they were.
    """
    async with store_with_tokens(tmp_path, "[audit]\ndata = true\n") as store:
        logs = await more_logs(store)
        await grant(store, BACKEND, "append")
        before = counted(store)
        lanes = range(1, LOGS + 1)
        async with channel(store) as made, channel_of(store, OWNER) as others:
            log: Any = log_pb2_grpc.LogStub(made)
            other: Any = log_pb2_grpc.LogStub(others)
            short = bearer()
            opens = await opened(log, logs, short)
            mine, theirs = Lanes(log, short), Lanes(other)
            await mine.write(opens=opens, blocks=[one for lane in lanes for one in blocks(lane, 1)])
            await mine.until(dict.fromkeys(lanes, 1))
            await theirs.write(opens=await opened(other, logs, ()), blocks=blocks(1, 1))
            await theirs.until({1: 1})
            later()
            await mine.write(blocks=blocks(2, 2))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await mine.until({2: 2})
            error = typed(caught.value)
            assert (error.reason, dict(error.metadata)) == (
                Reason.NOT_READY,
                {TOKENS: "stream"},
            )
            assert not mine.ended
            await theirs.write(blocks=[*blocks(1, 2), *blocks(2, 1)])
            await theirs.until({1: 2, 2: 1})
            again = Lanes(log, bearer(exp=lasting()))
            await again.write(
                opens=opens, blocks=[one for lane in lanes for one in blocks(lane, 2)]
            )
            await again.until(dict.fromkeys(lanes, 1))
            assert not any(ack.duplicate for acks in again.acks.values() for ack in acks)
            await again.call.done_writing()
            await again.until({}, ended=LOGS)
            assert again.ended == dict.fromkeys(lanes)
            assert await again.call.read() is grpc.aio.EOF  # type: ignore[attr-defined]
            assert await again.call.code() is grpc.StatusCode.OK
            theirs.call.cancel()
            await eventually(lambda: (counted(store) - before).total() == 3 * (LOGS + 1))
            ends = counted(store) - before
    # A lane whose call has ended is OK when all of it was answered.
    assert ends == {OK: 3 * LOGS + 1, "NOT_READY": 1, "CANCELLED": 1}
    lines = [line for line in told(tmp_path / "data" / "audit") if line["what"] == "AppendShards"]
    denied = [line for line in lines if line["decision"] == "denied"]
    assert [line["who"] for line in denied] == [BACKEND]
    mine_ended = [
        line for line in lines if line["decision"] == "allowed" and line["who"] == BACKEND
    ]
    assert len(mine_ended) == 2 * LOGS
    assert all(line["first_lsn"] == line["last_lsn"] for line in mine_ended)


async def test_a_client_of_many_logs_whose_token_is_renewed(
    tmp_path: Path, later: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first token ends while lanes of all logs are open; all go on, and nothing is doubled."""
    async with store_with_tokens(tmp_path) as store:
        logs = await more_logs(store)
        await grant(store, BACKEND, "read", "append")
        monkeypatch.setattr(token_file, "TOKEN_LOOK_S", 0.0)
        tls = shown(tmp_path, token())
        async with LogClient(token_port(store), tls=tls) as client, asyncio.timeout(120):
            for count in range(1, 21):
                if count == 11:
                    renew(tmp_path / "token", token(exp=lasting()))
                    later()
                lsns = await asyncio.gather(
                    *(client.shard(one).append(b"%d" % count) for one in logs)
                )
                assert lsns == [count] * LOGS
            assert counted(store)["NOT_READY"] == 1, "one stream has ended, with all its lanes"
            for one in logs:
                found = [item async for item in client.shard(one).records(1, until_tail=True)]
                assert found == [(number, b"%d" % number) for number in range(1, 21)]
