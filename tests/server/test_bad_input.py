"""Bad input gets its typed error and changes nothing: one test per line of the list, over gRPC.

The lines about starting a store are in `test_start_refused.py`.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.block import HEADER_BYTES
from logservice_wire.bounds import (
    BLOCK_BYTES_MAX,
    BLOCK_PLAIN_BYTES_MAX,
    BLOCK_RECORDS_MAX,
    SESSION_WINDOW,
)
from logservice_wire.column_block import encode_columns
from logservice_wire.errors import LogServiceError, Outcome, Reason
from logservice_wire.rpcs import APPEND_SHARDS, APPEND_STREAM, RPCS, Rpc
from logservice_wire.v1 import log_pb2

from tests.resealed import resealed
from tests.server.served import Served, block, typed

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Shard:
    """Requests to one shard; `refused` fails unless the state stayed as it was."""

    def __init__(self, log: Any, shard_id: int) -> None:
        self.log = log
        self.shard_id = shard_id

    async def append(self, data: bytes, **fields: Any) -> log_pb2.AppendResponse:
        request = log_pb2.AppendRequest(shard_id=self.shard_id, block=data, **fields)
        response: log_pb2.AppendResponse = await self.log.Append(request)
        return response

    async def read(self, lsn: int, **fields: Any) -> log_pb2.ReadResponse:
        request = log_pb2.ReadRequest(shard_id=self.shard_id, lsn=lsn, **fields)
        response: log_pb2.ReadResponse = await self.log.Read(request)
        return response

    async def truncate(self, lsn: int, epoch: int = 0) -> int:
        request = log_pb2.TruncateRequest(shard_id=self.shard_id, lsn=lsn, writer_epoch=epoch)
        return int((await self.log.Truncate(request)).truncated_lsn)

    async def acquire(self, holder: str, expected: int, *, takeover: bool = False) -> int:
        request = log_pb2.AcquireWriterRequest(
            shard_id=self.shard_id, holder=holder, expected_epoch=expected, takeover=takeover
        )
        return int((await self.log.AcquireWriter(request)).epoch)

    async def session(self) -> dict[str, Any]:
        """The fields that name a session, in an append and in a stream's first message."""
        request = log_pb2.OpenSessionRequest(shard_id=self.shard_id)
        opened = await self.log.OpenSession(request)
        return {"session_id": opened.session_id, "session_nonce": opened.nonce}

    async def state(self) -> log_pb2.GetShardStatusResponse:
        """What bad input must not change: everything but indexes and leader hints."""
        request = log_pb2.GetShardStatusRequest(shard_id=self.shard_id)
        status: log_pb2.GetShardStatusResponse = await self.log.GetShardStatus(request)
        for name in ("committed_index", "applied_index", "term"):
            status.ClearField(name)  # type: ignore[arg-type]
        return status

    async def refused(
        self, call: Awaitable[object], reason: Reason, *, gap: bool = False
    ) -> LogServiceError:
        """`gap`: the leader may have given the block LSNs already; they hold no record then."""
        before = await self.state()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        after = await self.state()
        if not gap:
            assert after == before
        error = typed(caught.value)
        assert error.reason is reason, error
        return error


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(1) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shard(served: Served) -> Shard:
    return Shard(served.stores[0].log, await served.new_shard())


def with_offsets(*offsets: int) -> bytes:
    """A block of three records of 2 bytes with other offsets."""
    data = bytearray(block(b"ab", b"cd", b"ef"))
    struct.pack_into("<4i", data, HEADER_BYTES, *offsets)
    return resealed(data)


# --- shard and block -----------------------------------------------------------------------------


async def test_unknown_shard(shard: Shard) -> None:
    stranger = Shard(shard.log, 999)
    for call in (stranger.append(block()), stranger.read(1), stranger.truncate(1)):
        error = await shard.refused(call, Reason.SHARD_NOT_FOUND)
        assert error.metadata["shard"] == "999"
    for call in (stranger.session(), stranger.acquire("a", 0), stranger.state()):
        await shard.refused(call, Reason.SHARD_NOT_FOUND)


async def test_shard_0_is_no_log(shard: Shard) -> None:
    error = await shard.refused(Shard(shard.log, 0).append(block()), Reason.INVALID_ARGUMENT)
    assert error.metadata["field"] == "shard_id"


@pytest.mark.parametrize(
    "rpc",
    [
        one
        for one in RPCS.values()
        if "/logservice.v1.Log/" in one.path and one not in (APPEND_STREAM, APPEND_SHARDS)
    ],
    ids=lambda rpc: rpc.name,
)
async def test_every_rpc_of_a_log_refuses_shard_0_and_unknown_shards(
    shard: Shard, rpc: Rpc[Any, Any]
) -> None:
    """Every row of the table is tried, with whatever else the request needs to get as far as its
    shard.
    """
    needed = {"block": block(), "lsn": 1, "name": "n", "holder": "h", "count": 1}
    needed |= {"from_lsn": 1, "to_lsn": 2, "base_lsn": 1, "end_lsn": 2, "digest": bytes(32)}
    needed |= {
        "first_lsn": 1,
        "blocks": [{"block": block()}],
        "lineage": b"l" * 16,
        "content": b"c" * 32,
    }
    if rpc.name == "BeginRestore":
        needed |= {"lineage": {"number": 1, "id": b"l" * 16}, "next_timestamp": 1}
    known = {
        name: value
        for name, value in needed.items()
        if name in rpc.request.DESCRIPTOR.fields_by_name
    }
    call = getattr(shard.log, rpc.name)
    for number, reason in ((0, Reason.INVALID_ARGUMENT), (999, Reason.SHARD_NOT_FOUND)):
        answered = call(rpc.request(**{rpc.shard: number}, **known))
        error = await shard.refused(_end_of(answered), reason)
        assert error.metadata == ({"field": "shard_id"} if number == 0 else {"shard": "999"}), (
            error.metadata
        )


async def _end_of(answered: Any) -> None:
    """How a call ends, be it unary or a stream of answers."""
    if isinstance(answered, grpc.aio.UnaryStreamCall):
        async for _ in answered:
            pass
    else:
        await answered


async def test_empty_block(shard: Shard) -> None:
    data = bytearray(block(b""))
    struct.pack_into("<I", data, 8, 0)
    await shard.refused(shard.append(resealed(data)), Reason.INVALID_ARGUMENT)


async def test_no_bytes(shard: Shard) -> None:
    await shard.refused(shard.append(b""), Reason.CORRUPT_BLOCK)


async def test_bad_crc(shard: Shard) -> None:
    good = block(b"hello")
    for position in (0, 17, HEADER_BYTES, len(good) - 1):
        data = bytearray(good)
        data[position] ^= 0x10
        error = await shard.refused(shard.append(bytes(data)), Reason.CORRUPT_BLOCK)
        assert error.metadata["detail"]


async def test_wrong_counts(shard: Shard) -> None:
    for count in (2, 1000, 2**31):
        data = bytearray(block(b"hello"))
        struct.pack_into("<I", data, 8, count)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await shard.append(resealed(data))
        assert typed(caught.value).reason in (Reason.CORRUPT_BLOCK, Reason.TOO_LARGE)
    assert (await shard.state()).position.applied_lsn == 0


@pytest.mark.parametrize(
    "offsets",
    [
        (0, 4, 2, 6),
        (0, 2, 4, 9),
        (0, 2, 4, 4096),
        (1, 2, 4, 6),
        (0, -2, 4, 6),
        (0, 2, 4, 2**31 - 1),
    ],
)
async def test_offsets_not_ascending_or_past_the_end(
    shard: Shard, offsets: tuple[int, ...]
) -> None:
    await shard.refused(shard.append(with_offsets(*offsets)), Reason.CORRUPT_BLOCK)


async def test_too_many_records(shard: Shard) -> None:
    data = bytearray(block(b""))
    struct.pack_into("<I", data, 8, BLOCK_RECORDS_MAX + 1)
    error = await shard.refused(shard.append(resealed(data)), Reason.TOO_LARGE)
    assert error.number("limit") == BLOCK_RECORDS_MAX
    assert error.number("value") == BLOCK_RECORDS_MAX + 1


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (4, 0x0303, Reason.CODEC_MISSING),  # version and codec
        (5, 3, Reason.CODEC_MISSING),
        (8, 3, Reason.CORRUPT_BLOCK),  # records shown
        (20, 2**32 - 1, Reason.CORRUPT_BLOCK),  # the first of them
        (32, BLOCK_RECORDS_MAX + 1, Reason.TOO_LARGE),
        (36, BLOCK_PLAIN_BYTES_MAX + 1, Reason.TOO_LARGE),
        (36, BLOCK_PLAIN_BYTES_MAX, Reason.CORRUPT_BLOCK),
        (40, 2**32 - 1, Reason.CORRUPT_BLOCK),
        (44, 1, Reason.CODEC_MISSING),
    ],
)
async def test_an_envelope_of_a_wide_block_that_lies(
    shard: Shard, at: int, value: int, reason: Reason
) -> None:
    data = bytearray(encode_columns([b"a", b"b"], 1, keys=[b"k", None], codec="zstd"))
    struct.pack_into("<H" if at < 8 else "<I", data, at, value)
    await shard.refused(shard.append(resealed(data)), reason)
    await shard.refused(shard.append(bytes(data[:47])), Reason.CORRUPT_BLOCK)


async def test_too_large(shard: Shard) -> None:
    error = await shard.refused(shard.append(bytes(BLOCK_BYTES_MAX + 8)), Reason.TOO_LARGE)
    assert error.number("limit") == BLOCK_BYTES_MAX


# --- reading -------------------------------------------------------------------------------------


async def test_read_at_0(shard: Shard) -> None:
    error = await shard.refused(shard.read(0), Reason.INVALID_ARGUMENT)
    assert error.metadata["field"] == "lsn"


async def test_read_below_first(shard: Shard) -> None:
    await shard.append(block(b"a", b"b", b"c"))
    await shard.append(block(b"d"))
    await shard.truncate(3)
    for lsn in (1, 3):
        error = await shard.refused(shard.read(lsn), Reason.TRUNCATED)
        assert error.number("first_lsn") == 4
    assert [item.first_lsn for item in (await shard.read(4)).blocks] == [4]


async def test_read_at_tail_and_beyond(shard: Shard) -> None:
    empty = await shard.read(1)
    assert (list(empty.blocks), empty.next_lsn) == ([], 1)
    await shard.append(block(b"a", b"b"))
    at_tail = await shard.read(3)
    assert (list(at_tail.blocks), at_tail.next_lsn) == ([], 3)
    assert (at_tail.position.first_lsn, at_tail.position.applied_lsn) == (1, 2)
    for lsn in (4, 2**63):
        error = await shard.refused(shard.read(lsn), Reason.BEYOND_TAIL)
        assert error.number("next_lsn") == 3


async def test_no_values_is_refused_like_any_read(shard: Shard) -> None:
    await shard.append(block(b"a", b"b"))
    await shard.append(block(b"c"))
    await shard.truncate(2)
    for lsn, reason in (
        (0, Reason.INVALID_ARGUMENT),
        (1, Reason.TRUNCATED),
        (9, Reason.BEYOND_TAIL),
    ):
        await shard.refused(shard.read(lsn, no_values=True), reason)
    at_tail = await shard.read(4, no_values=True)
    assert (list(at_tail.blocks), at_tail.next_lsn) == ([], 4)


# --- truncating ----------------------------------------------------------------------------------


async def test_truncate_lower_or_equal(shard: Shard) -> None:
    await shard.append(block(*[b"r"] * 10))
    assert await shard.truncate(5) == 5
    for lsn in (4, 5):
        error = await shard.refused(shard.truncate(lsn), Reason.STALE_TRUNCATE)
        assert error.number("current") == 5


async def test_truncate_beyond_the_tail(shard: Shard) -> None:
    await shard.append(block(b"a"))
    error = await shard.refused(shard.truncate(2), Reason.BEYOND_TAIL)
    assert error.number("next_lsn") == 2
    await shard.refused(shard.truncate(0), Reason.INVALID_ARGUMENT)


# --- mirrors -------------------------------------------------------------------------------------


def begins(shard_id: int, **more: Any) -> log_pb2.BeginRestoreRequest:
    lineage = log_pb2.Lineage(number=1, id=b"l" * 16)
    given = {"base_lsn": 1, "writer_epoch": 1, "next_timestamp": 1, "mirror": True}
    return log_pb2.BeginRestoreRequest(shard_id=shard_id, lineage=lineage, **{**given, **more})


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"end_lsn": 2}, "mirror"),
        ({"digest": bytes(32)}, "mirror"),
        ({"end_lsn": 2, "digest": b"d" * 32}, "mirror"),
        ({"mirror": False}, "restore"),
        ({"mirror": False, "digest": b"d" * 32}, "restore"),
        ({"mirror": False, "digest": bytes(32)}, "restore"),
        ({"writer_epoch": 0}, "restore"),
        ({"base_lsn": 0}, "restore"),
        ({"base_lsn": 2**48}, "restore"),
        ({"base_lsn": 2**64 - 1}, "restore"),
    ],
    ids=str,
)
async def test_a_begin_that_is_none_of_a_mirror(
    shard: Shard, wrong: dict[str, Any], field: str
) -> None:
    error = await shard.refused(
        shard.log.BeginRestore(begins(shard.shard_id, **wrong)), Reason.INVALID_ARGUMENT
    )
    assert error.metadata["field"] == field


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, Reason.INVALID_ARGUMENT),
        ({"base_lsn": 1}, Reason.INVALID_ARGUMENT),
        ({"next_timestamp": 5}, Reason.INVALID_ARGUMENT),
        ({"end_lsn": 2, "next_timestamp": 2**63}, Reason.INVALID_ARGUMENT),
        ({"end_lsn": 2, "digest": b"d" * 31, "base_lsn": 1}, Reason.INVALID_ARGUMENT),
        ({"end_lsn": 2, "digest": b"d" * 33, "base_lsn": 1}, Reason.INVALID_ARGUMENT),
        ({"end_lsn": 2, "digest": b"d" * 32}, Reason.INVALID_ARGUMENT),
        ({"end_lsn": 3}, Reason.SHARD_RESTORING),
        ({"end_lsn": 2**64 - 1}, Reason.SHARD_RESTORING),
        ({"end_lsn": 2, "base_lsn": 2}, Reason.SHARD_RESTORING),
        ({"end_lsn": 2, "digest_lsn": 3}, Reason.INVALID_ARGUMENT),
        ({"end_lsn": 2, "digest_lsn": 2**64 - 1}, Reason.INVALID_ARGUMENT),
        ({"end_lsn": 2, "digest_lsn": 2, "digest": b"d" * 32}, Reason.INVALID_ARGUMENT),
        ({"digest_lsn": 1}, Reason.INVALID_ARGUMENT),
        ({"end_lsn": 2, "base_lsn": 1, "digest": b"d" * 32}, Reason.CORRUPT_BLOCK),
        ({"end_lsn": 2, "digest_lsn": 1, "digest": b"d" * 32}, Reason.CORRUPT_BLOCK),
    ],
    ids=str,
)
async def test_a_promote_that_opens_nothing(
    shard: Shard, wrong: dict[str, Any], reason: Reason
) -> None:
    """Nor does a truncation of what the mirror does not have do anything."""
    own: dict[str, Any] = {"shard_id": shard.shard_id, "lineage": b"l" * 16}
    await shard.log.BeginRestore(begins(shard.shard_id))
    one = log_pb2.RestoredBlock(block=block())
    await shard.log.RestoreBlocks(log_pb2.RestoreBlocksRequest(**own, first_lsn=1, blocks=[one]))
    await shard.refused(
        shard.log.FinishRestore(log_pb2.FinishRestoreRequest(**own, **wrong)), reason
    )
    for lsn in (2, 2**64 - 1):
        request = log_pb2.RestoreBlocksRequest(**own, truncated_lsn=lsn)
        await shard.refused(shard.log.RestoreBlocks(request), Reason.BEYOND_TAIL)
    status = await shard.log.GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=shard.shard_id))
    assert (status.restoring.mirror, status.restoring.next_lsn) == (True, 2)
    assert (await shard.read(1)).next_lsn == 2


# --- writer epochs -------------------------------------------------------------------------------


async def test_old_writer_epoch_or_none_once_one_was_granted(shard: Shard) -> None:
    await shard.append(block(b"a"))
    first = await shard.acquire("one", 0)
    second = await shard.acquire("two", first)
    for epoch in (0, first, second + 1):
        for call in (shard.append(block(b"b"), writer_epoch=epoch), shard.truncate(1, epoch)):
            error = await shard.refused(call, Reason.FENCED, gap=True)
            assert error.number("epoch") == second
            assert error.metadata["holder"] == "two"
    assert (await shard.append(block(b"c"), writer_epoch=second)).record_count == 1


async def test_no_epoch_is_fenced_after_release_too(shard: Shard) -> None:
    epoch = await shard.acquire("one", 0)
    await shard.log.ReleaseWriter(
        log_pb2.ReleaseWriterRequest(shard_id=shard.shard_id, epoch=epoch)
    )
    for asked in (0, epoch):
        await shard.refused(shard.append(block(), writer_epoch=asked), Reason.FENCED, gap=True)


async def test_acquire_with_a_stale_epoch(shard: Shard) -> None:
    epoch = await shard.acquire("one", 0)
    error = await shard.refused(shard.acquire("two", 0), Reason.STALE_EPOCH)
    assert (error.number("epoch"), error.metadata["holder"]) == (epoch, "one")
    assert await shard.acquire("two", 0, takeover=True) > epoch
    await shard.refused(shard.acquire("", 0), Reason.INVALID_ARGUMENT)
    await shard.refused(shard.acquire("x" * 129, 0), Reason.TOO_LARGE)


async def test_wrong_expected_lsn(shard: Shard) -> None:
    await shard.append(block(b"a", b"b"))
    for lsn in (2, 4):
        error = await shard.refused(
            shard.append(block(b"c"), expected_lsn=lsn), Reason.WRONG_EXPECTED_LSN, gap=True
        )
        assert error.number("next") == 3
    assert (await shard.append(block(b"c"), expected_lsn=3)).lsn == 3


# --- sessions ------------------------------------------------------------------------------------


async def test_sequence_with_a_gap(shard: Shard) -> None:
    session = await shard.session()
    await shard.append(block(b"a"), **session, sequence=1)
    error = await shard.refused(
        shard.append(block(b"b"), **session, sequence=3), Reason.SEQUENCE_GAP, gap=True
    )
    assert error.number("last") == 1


async def test_repeated_sequence_returns_the_original_lsns(shard: Shard) -> None:
    session = await shard.session()
    first = await shard.append(block(b"a", b"b"), **session, sequence=1)
    await shard.append(block(b"c"), **session, sequence=2)
    before = await shard.state()
    again = await shard.append(block(b"a", b"b"), **session, sequence=1)
    assert (again.lsn, again.record_count, again.duplicate) == (first.lsn, 2, True)
    assert not first.duplicate
    assert await shard.state() == before


async def test_sequence_too_old(shard: Shard) -> None:
    session = await shard.session()
    for sequence in range(1, SESSION_WINDOW + 2):
        await shard.append(block(b"a"), **session, sequence=sequence)
    await shard.refused(
        shard.append(block(b"a"), **session, sequence=1), Reason.SESSION_EXPIRED, gap=True
    )


async def test_unknown_session(shard: Shard) -> None:
    await shard.refused(
        shard.append(block(b"a"), session_id=12345, session_nonce=bytes(16), sequence=1),
        Reason.SESSION_EXPIRED,
        gap=True,
    )


@pytest.mark.parametrize("size", [0, 15, 17, 1_000_000])
async def test_a_nonce_of_another_size(shard: Shard, size: int) -> None:
    session = {**await shard.session(), "session_nonce": bytes(size)}
    append = shard.append(block(b"a"), **session, sequence=1)
    error = await shard.refused(append, Reason.INVALID_ARGUMENT)
    assert error.metadata["field"] == "session_nonce"


async def test_a_sequence_with_another_block(shard: Shard) -> None:
    session = await shard.session()
    first = await shard.append(block(b"a"), **session, sequence=1)
    error = await shard.refused(
        shard.append(block(b"b"), **session, sequence=1), Reason.SEQUENCE_REUSED
    )
    assert error.number("lsn") == first.lsn
    assert error.outcome is Outcome.NOT_APPLIED


async def test_session_without_sequence_and_the_reverse(shard: Shard) -> None:
    session = await shard.session()
    await shard.refused(shard.append(block(), **session), Reason.INVALID_ARGUMENT)
    await shard.refused(shard.append(block(), sequence=1), Reason.INVALID_ARGUMENT)


# --- holds, timestamps, streams ------------------------------------------------------------------


async def test_hold_below_the_truncation_lsn(shard: Shard) -> None:
    await shard.append(block(b"a", b"b", b"c"))
    await shard.truncate(2)
    request = log_pb2.SetHoldRequest(shard_id=shard.shard_id, name="backup", lsn=2)
    error = await shard.refused(shard.log.SetHold(request), Reason.HOLD_REFUSED)
    assert error.number("first_lsn") == 3
    for name, lsn in (("", 3), ("n", 0)):
        request = log_pb2.SetHoldRequest(shard_id=shard.shard_id, name=name, lsn=lsn)
        await shard.refused(shard.log.SetHold(request), Reason.INVALID_ARGUMENT)


async def test_timestamp_counts(shard: Shard) -> None:
    for count, reason in ((0, Reason.INVALID_ARGUMENT), (2_000_000, Reason.TOO_LARGE)):
        request = log_pb2.AllocateTimestampsRequest(shard_id=shard.shard_id, count=count)
        await shard.refused(shard.log.AllocateTimestamps(request), reason)


async def test_stream_that_is_not_opened_rightly(shard: Shard) -> None:
    message = log_pb2.AppendStreamRequest
    session = await shard.session()

    async def stream(*messages: log_pb2.AppendStreamRequest) -> None:
        async for _ in shard.log.AppendStream(iter(messages)):
            pass

    cases = [
        (message(blocks=[message.Block(sequence=1, block=block())]), Reason.INVALID_ARGUMENT),
        (message(open=message.Open(shard_id=shard.shard_id)), Reason.INVALID_ARGUMENT),
        (message(open=message.Open(shard_id=0, **session)), Reason.INVALID_ARGUMENT),
        (message(open=message.Open(shard_id=999, **session)), Reason.SHARD_NOT_FOUND),
    ]
    for first, reason in cases:
        await shard.refused(stream(first), reason)
    twice = message(open=message.Open(shard_id=shard.shard_id, **session))
    await shard.refused(stream(twice, twice), Reason.INVALID_ARGUMENT)
