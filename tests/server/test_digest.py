"""Digest of three stores over real gRPC: any replica gives the same, in bounded calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire import digest as digests
from logservice_wire.block import Block
from logservice_wire.digest import START, Digester
from logservice_wire.errors import LogServiceError, Reason
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.rsm.admission import ADMIT, Admission
from tests.server.served import Served, ServedStore, block, typed
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shard(served: Served) -> int:
    return await served.new_shard()


async def append(served: Served, shard: int, *records: bytes, **fields: Any) -> None:
    data = block(*records)
    await served.leader(shard).log.Append(
        log_pb2.AppendRequest(shard_id=shard, block=data, **fields)
    )


async def ask(store: ServedStore, shard: int, low: int, high: int, **fields: Any) -> Any:
    return await store.log.Digest(
        log_pb2.DigestRequest(shard_id=shard, from_lsn=low, to_lsn=high, **fields)
    )


async def refused(call: Any) -> LogServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return typed(caught.value)


async def test_every_replica_gives_what_a_reader_computes(
    served: Served, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-DIGEST-1 over the wire, with a gap and cut blocks."""
    await append(served, shard, b"a", b"bb", b"")
    leader = served.leader(shard)
    await leader.log.AcquireWriter(log_pb2.AcquireWriterRequest(shard_id=shard, holder="w"))
    # The leader lets it through, so that apply has to refuse it: it names no writer's epoch.
    with monkeypatch.context() as lenient:
        lenient.setattr(Admission, "_judge", lambda *_: ADMIT)
        assert (await refused(append(served, shard, b"x", b"y"))).reason is Reason.FENCED
    await append(served, shard, b"c", b"d", writer_epoch=1)
    read = await leader.log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=1))
    wanted = Digester(2, read.next_lsn - 1)
    for run in read.blocks:
        if run.gap:
            wanted.add_gap(run.first_lsn, run.record_count, run.gap)
        else:
            wanted.add_block(run.first_lsn, Block.parse(run.block))
    assert wanted.gap_lsns == 2
    for store in served.stores:
        found = await ask(store, shard, 2, read.next_lsn - 1)
        assert found.digest == wanted.digest()
        assert (found.records, found.gap_lsns, found.value_bytes) == (3, 2, 3)
        assert found.at_lsn == read.next_lsn - 1
        assert found.position.applied_lsn == read.next_lsn - 1


async def test_calls_are_bounded_and_go_on_at_another_replica(
    served: Served, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(8):
        await append(served, shard, *[b"x" * 10] * 10)
    whole = (await ask(served.stores[0], shard, 3, 80)).digest
    monkeypatch.setattr(digests, "PIECE_LSNS", 16)
    in_pieces = (await ask(served.stores[0], shard, 3, 80)).digest
    assert in_pieces != whole, "the size of a piece is part of the definition"
    monkeypatch.setattr(bounds, "DIGEST_CALL_S", 0.0)
    monkeypatch.setattr(bounds, "STREAM_MESSAGE_BYTES_GOAL", 1)
    at_lsn, chain, calls, counts = 0, START, 0, [0, 0, 0]
    while True:
        store = served.stores[calls % 3]
        answer = await ask(store, shard, 3, 80, at_lsn=at_lsn, chain=chain if at_lsn else b"")
        calls += 1
        for at, count in enumerate((answer.records, answer.gap_lsns, answer.value_bytes)):
            counts[at] += count
        if answer.digest:
            break
        assert answer.at_lsn > at_lsn
        at_lsn, chain = answer.at_lsn, answer.chain
    assert answer.digest == in_pieces
    assert calls == 5
    assert counts == [77, 0, 770], "nothing is counted twice"


async def test_what_cannot_be_digested_is_refused(served: Served, shard: int) -> None:
    await append(served, shard, *[b"x"] * 10)
    store = served.leader(shard)
    beyond = await refused(ask(store, shard, 1, 12))
    assert (beyond.reason, beyond.number("next_lsn")) == (Reason.BEYOND_TAIL, 11)
    beyond = await refused(ask(store, shard, 20, 22))
    assert (beyond.reason, beyond.number("next_lsn")) == (Reason.BEYOND_TAIL, 11)
    await store.log.Truncate(log_pb2.TruncateRequest(shard_id=shard, lsn=4))
    truncated = await refused(ask(store, shard, 4, 9))
    assert (truncated.reason, truncated.number("first_lsn")) == (Reason.TRUNCATED, 5)
    for bad in (
        {"low": 0, "high": 5},
        {"low": 5, "high": 5},
        {"low": 5, "high": 9, "covers": 1},
        {"low": 5, "high": 9, "at_lsn": 4},
        {"low": 5, "high": 9, "at_lsn": 6, "chain": b"x"},
        {"low": 5, "high": 2**64 - 1, "at_lsn": 5, "chain": b"x" * 32},
    ):
        assert (await refused(ask(store, shard, **bad))).reason is Reason.INVALID_ARGUMENT
    assert (await refused(ask(store, 0, 1, 2))).reason is Reason.INVALID_ARGUMENT
    assert (await refused(ask(store, 999, 1, 2))).reason is Reason.SHARD_NOT_FOUND


async def test_a_truncation_in_the_middle_is_said(
    served: Served, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a digest of what was half read."""
    for _ in range(4):
        await append(served, shard, *[b"x"] * 10)
    store = served.leader(shard)
    monkeypatch.setattr(digests, "PIECE_LSNS", 10)
    monkeypatch.setattr(bounds, "DIGEST_CALL_S", 0.0)
    monkeypatch.setattr(bounds, "STREAM_MESSAGE_BYTES_GOAL", 1)
    first = await ask(store, shard, 1, 41)
    assert first.at_lsn == 11
    await store.log.Truncate(log_pb2.TruncateRequest(shard_id=shard, lsn=15))
    error = await refused(ask(store, shard, 1, 41, at_lsn=11, chain=first.chain))
    assert (error.reason, error.number("first_lsn")) == (Reason.TRUNCATED, 16)


async def test_a_caller_who_leaves_ends_it_and_its_memory(
    served: Served, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        await append(served, shard, *[b"x"] * 10)
    monkeypatch.setattr(bounds, "STREAM_MESSAGE_BYTES_GOAL", 1)
    store = served.leader(shard)
    host: Any = store.host
    slices, goes_on = 0, asyncio.Event()
    read_log = host.read_log

    async def slow(*arguments: Any) -> Any:
        nonlocal slices
        slices += 1
        if slices == 2:
            await goes_on.wait()
        return await read_log(*arguments)

    monkeypatch.setattr(type(host), "read_log", lambda _, *arguments, **_more: slow(*arguments))
    call = ask(store, shard, 1, 41)
    asked = asyncio.ensure_future(call)
    await eventually(lambda: slices == 2)
    assert store.answers.used > 0
    asked.cancel()
    await eventually(lambda: store.answers.used == 0)
    goes_on.set()
    assert slices == 2
