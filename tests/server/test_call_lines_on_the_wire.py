"""Calls that wait for their turn on a real secured store: whatever happens to them there, each gets
an answer, and nothing of them is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from logservice_wire.errors import Outcome, Reason
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice import bounds
from logservice.nodehost.node_host import NodeHost
from logservice.server.edge.call_lines import CallLines
from logservice.server.monitor.port.metrics import store_families
from logservice.server.store import Store
from tests.server.secured import OWNER, channel_of, lay_out, papers_of, secured
from tests.server.served import block, typed
from tests.waiting import eventually

APPEND = log_pb2.AppendRequest(shard_id=1, block=block(b"x" * 1000))
STATUS = log_pb2.GetShardStatusRequest(shard_id=1)


class Held:
    """A store whose appends wait, and on which an identity has one call begun at a time."""

    def __init__(self, store: Store, channel: grpc.aio.Channel) -> None:
        self.store = store
        self.channel = channel
        self.log: Any = log_pb2_grpc.LogStub(channel)
        self.may_go_on = asyncio.Event()
        self.begun = 0

    @property
    def lines(self) -> CallLines:
        assert self.store._client_port is not None
        return self.store._client_port.lines

    async def append(self, **more: Any) -> asyncio.Task[Any]:
        """An append, once the store has begun it or let it wait."""
        before = self.begun + self.lines.waiting
        task = asyncio.create_task(_ended(self.log.Append(APPEND, **more)))
        await eventually(lambda: self.begun + self.lines.waiting > before)
        return task

    async def all_gone(self) -> None:
        lines = self.lines
        await eventually(lambda: (lines.waiting, lines.size, len(lines)) == (0, 0, 0))


async def _ended(call: Any) -> Any:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        return error


@pytest_asyncio.fixture
async def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Held]:
    append = NodeHost.append

    async def waits(*arguments: Any) -> Any:
        made.begun += 1
        await made.may_go_on.wait()
        return await append(*arguments)

    lay_out(tmp_path)
    async with secured(tmp_path) as store, channel_of(store, OWNER) as channel:
        made = Held(store, channel)
        async with channel_of(store, papers_of("other")) as another:
            # Somebody who may do nothing has called, so nobody is alone.
            await _ended(log_pb2_grpc.LogStub(another).GetShardStatus(STATUS))
        await made.log.GetShardStatus(STATUS)
        monkeypatch.setattr(bounds, "CALLS_BEGUN_MAX", 1)
        monkeypatch.setattr(bounds, "CALLS_BEGUN_MIN", 1)
        monkeypatch.setattr(bounds, "CALL_ALONE_S", 1e9)
        monkeypatch.setattr(bounds, "CALL_PLACE_S", 1e9)
        monkeypatch.setattr(NodeHost, "append", waits)
        yield made
        made.may_go_on.set()


async def test_they_come_in_turn_and_somebody_else_does_not_wait(held: Held) -> None:
    calls = [await held.append() for _ in range(3)]
    assert (held.begun, held.lines.waiting) == (1, 2)
    assert held.lines.size > 2000
    async with channel_of(held.store, papers_of("other")) as another:
        denied = await _ended(log_pb2_grpc.LogStub(another).GetShardStatus(STATUS, timeout=60))
        assert typed(denied).reason is Reason.PERMISSION_DENIED, "it had its turn"
    held.may_go_on.set()
    answers = await asyncio.gather(*calls)
    lsns = [answer.lsn for answer in answers]
    assert lsns == sorted(lsns)
    await held.all_gone()


async def test_health_does_not_wait(held: Held) -> None:
    for _ in range(3):
        await held.append()
    health: Any = health_pb2_grpc.HealthStub(held.channel)
    answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=60)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_call_whose_time_ends_there_is_told_before(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "DEADLINE_MARGIN_S", 2.0)
    monkeypatch.setattr(bounds, "DEADLINE_MARGIN_SHARE", 0.7)
    first = await held.append()
    error = typed(await (await held.append(timeout=3.0)))
    assert (error.reason, error.outcome) == (Reason.BUSY, Outcome.NOT_APPLIED)
    assert held.begun == 1, "it never began"
    held.may_go_on.set()
    await first
    await held.all_gone()


async def test_a_call_whose_deadline_is_over_never_begins(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC has answered it already."""
    monkeypatch.setattr(bounds, "CALL_LINE_LOOK_S", 1000.0)
    first = await held.append()
    late = await held.append(timeout=0.5)
    assert (await late).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    held.may_go_on.set()
    await first
    await held.all_gone()
    assert held.begun == 1


@pytest.mark.parametrize("how", ["cancelled", "disconnected"])
async def test_a_caller_who_leaves(held: Held, how: str) -> None:
    first = await held.append()
    channel = channel_of(held.store, OWNER)
    call: Any = log_pb2_grpc.LogStub(channel).Append(APPEND)
    await eventually(lambda: held.lines.waiting == 1)
    if how == "cancelled":
        call.cancel()
    else:
        await channel.close()
    await eventually(lambda: held.lines.waiting == 0)
    await channel.close()
    held.may_go_on.set()
    await first
    await held.all_gone()
    assert held.begun == 1


async def test_who_waits_when_the_store_stops_is_told(held: Held) -> None:
    first = await held.append()
    waiting = [await held.append() for _ in range(5)]
    assert held.store._client_port is not None
    stopping = asyncio.create_task(held.store._client_port.stop())
    for one in waiting:
        error = typed(await one)
        assert (error.reason, error.outcome) == (Reason.NOT_READY, Outcome.NOT_APPLIED)
    held.may_go_on.set()
    await stopping
    await first
    await held.all_gone()


async def test_the_metrics_say_who_waits_and_why_somebody_was_refused(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> dict[str, float]:
        assert held.store._monitor is not None
        status = held.store._monitor.reporter.status(0)
        return {
            sample.name + "".join(f"/{value}" for value in sample.labels.values()): sample.value
            for family in store_families(status)
            for sample in family.samples
            if "call" in sample.name
        }

    monkeypatch.setattr(bounds, "CALL_LINE_CALLS_MAX", 1)
    calls = [await held.append() for _ in range(2)]
    assert typed(await _ended(held.log.Append(APPEND))).reason is Reason.BUSY
    found = shown()
    assert found["logservice_call_line_calls"] == found["logservice_calls_begun"] == 1
    assert found["logservice_call_line_bytes"] > 1000
    assert found["logservice_call_line_refused_total/calls"] == 1
    held.may_go_on.set()
    await asyncio.gather(*calls)
    await held.all_gone()
    found = shown()
    assert found["logservice_call_line_waited_total"] == 1
    assert found["logservice_call_line_waited_seconds_total"] > 0
