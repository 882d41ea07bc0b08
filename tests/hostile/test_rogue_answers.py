"""A store that answers its own clients wrongly: what the client notices, and what it cannot.

The store is the fake of `tests.client`, which tells lies on request. A store that was taken over
can acknowledge falsely to its own clients (THREAT_MODEL.md), and make up a block with its checksum:
nothing here would find that out. What does not fit what the client knows is an error of a type.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from logservice_client import LogClient, shard
from logservice_client.bounds import NAMED_SESSIONS_MAX
from logservice_client.named_session import NamedSession
from logservice_client.read_result import result_of
from logservice_wire.block import Codec, Flag, encode_block, wrapped
from logservice_wire.column_block import encode_columns
from logservice_wire.errors import (
    CorruptBlock,
    Discontinuity,
    LogServiceError,
    NotReady,
    SequenceGap,
    SequenceReused,
    SessionExpired,
    UnknownOutcome,
)
from logservice_wire.v1 import log_pb2
from pyspark_logservice.batches import BatchMaker
from pyspark_logservice.options import COLUMNS

from logservice import bounds
from tests.client.fake_log import FakeLog
from tests.client.fake_server import FakeCluster

CONTENT = b"c" * 32
Lie = Callable[[log_pb2.OpenSessionResponse], None]


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    made = await FakeCluster.start(stores=1)
    yield made
    await made.stop()


def block(k: int, stamp_us: int = 7) -> bytes:
    return encode_block([b"record %d" % k], stamp_us)


async def opened(client: LogClient) -> NamedSession:
    return await client.shard(1).named_session("job", epoch=0, content=CONTENT, stamp_us=7)


def another_stamp(answer: log_pb2.OpenSessionResponse) -> None:
    answer.stamp_us = 8


def another_session(answer: log_pb2.OpenSessionResponse) -> None:
    answer.session_id += 77


def another_nonce(answer: log_pb2.OpenSessionResponse) -> None:
    answer.nonce = bytes(16)


def fewer(answer: log_pb2.OpenSessionResponse) -> None:
    answer.appended -= 1


def more(answer: log_pb2.OpenSessionResponse) -> None:
    answer.appended += 1


def too_many(answer: log_pb2.OpenSessionResponse) -> None:
    answer.appended = 2**64 - 1


def no_name(answer: log_pb2.OpenSessionResponse) -> None:
    answer.named = False


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        (another_session, SessionExpired),
        (another_nonce, SessionExpired),
        (more, SequenceGap),
        (too_many, UnknownOutcome),
        (no_name, NotReady),
    ],
)
async def test_a_session_that_is_none_appends_nothing(
    cluster: FakeCluster, lie: Lie, error: type[LogServiceError]
) -> None:
    """In epoch 0, where any session would begin."""
    async with LogClient(cluster.endpoints) as client:
        mine = await opened(client)
        await mine.append(block(1))
        cluster.lie = lie
        with pytest.raises(error):
            theirs = await opened(client)
            await theirs.append(block(theirs.appended + 1, theirs.stamp_us))
    assert [run.block for run in cluster.logs[1].runs] == [block(1)]


async def test_a_count_that_is_too_low_appends_nothing_twice(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints) as client:
        await (await opened(client)).append(block(1))
        cluster.lie = fewer
        await (await opened(client)).append(block(1))
    assert [run.block for run in cluster.logs[1].runs] == [block(1)]


async def test_another_stamp_makes_another_block_which_the_log_refuses(
    cluster: FakeCluster,
) -> None:
    async with LogClient(cluster.endpoints) as client:
        await (await opened(client)).append(block(1))

        def both(answer: log_pb2.OpenSessionResponse) -> None:
            fewer(answer)
            another_stamp(answer)

        cluster.lie = both
        theirs = await opened(client)
        with pytest.raises(SequenceReused):
            await theirs.append(block(1, theirs.stamp_us))
    assert [run.block for run in cluster.logs[1].runs] == [block(1)]


async def test_a_list_of_names_without_end_ends(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NAMED_SESSIONS_MAX of the client."""
    assert NAMED_SESSIONS_MAX == bounds.NAMED_SESSIONS_MAX
    monkeypatch.setattr(shard, "NAMED_SESSIONS_MAX", 9)

    def listed(log: FakeLog) -> list[log_pb2.NamedSession]:
        return [log_pb2.NamedSession(session_id=2**64 - 1, name="again")] * 3

    monkeypatch.setattr(FakeLog, "listed", listed)
    async with LogClient(cluster.endpoints) as client:
        monkeypatch.setattr(client.shard(1)._caller, "call", _endless(client.shard(1)._caller.call))
        assert len(await client.shard(1).named_sessions()) in range(9, 12)


def _endless(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def asked(shard_id: int, rpc: Any, request: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(request, log_pb2.ListSessionsRequest):
            request.after = 0
        return await call(shard_id, rpc, request, *rest, **more)

    return asked


# --- reads ----------------------------------------------------------------------------------------


def answer_of(*blocks: bytes) -> log_pb2.ReadResponse:
    log = FakeLog(1)
    for one in blocks:
        log.append(one)
    return log.read(1, 1 << 24)


WIDE = encode_columns(
    [b"a", b"b", b"c"], 5, keys=[b"k", None, b""], times_us=[1, 2, 3], codec="zstd"
)


def longer(answer: log_pb2.ReadResponse) -> None:
    answer.blocks[0].record_count += 1
    answer.next_lsn += 1


def shorter(answer: log_pb2.ReadResponse) -> None:
    answer.blocks[0].record_count -= 1
    answer.next_lsn -= 1


def endless(answer: log_pb2.ReadResponse) -> None:
    answer.blocks[0].record_count = 2**32 - 1


def empty(answer: log_pb2.ReadResponse) -> None:
    answer.blocks[0].record_count = 0


def later(answer: log_pb2.ReadResponse) -> None:
    answer.blocks[0].first_lsn += 1


def last(answer: log_pb2.ReadResponse) -> None:
    answer.blocks[0].first_lsn = 2**64 - 1


def behind(answer: log_pb2.ReadResponse) -> None:
    answer.next_lsn = 2**64 - 1


def flipped(answer: log_pb2.ReadResponse) -> None:
    data = bytearray(answer.blocks[0].block)
    data[-1] ^= 1
    answer.blocks[0].block = bytes(data)


def cut(answer: log_pb2.ReadResponse) -> None:
    answer.blocks[0].block = answer.blocks[0].block[:-8]


def bomb(answer: log_pb2.ReadResponse) -> None:
    """With a good checksum: it says a gigabyte inside, and a little outside."""
    body = b"\x28\xb5\x2f\xfd\xa0" + (1 << 30).to_bytes(4, "little") + bytes(40)
    answer.blocks[0].block = wrapped(Codec.ZSTD, Flag(0), body, 64, 3, 0)


READING_LIES = [longer, shorter, endless, empty, later, last, behind, flipped, cut, bomb]


@pytest.mark.parametrize("lie", READING_LIES)
@pytest.mark.parametrize("data", [WIDE, encode_block([b"a", b"b", b"c"], 5)], ids=["wide", "plain"])
def test_the_client_notices(data: bytes, lie: Callable[[log_pb2.ReadResponse], None]) -> None:
    answer = answer_of(data)
    lie(answer)
    with pytest.raises((CorruptBlock, Discontinuity)):
        result_of(answer, 1).records()


@pytest.mark.parametrize("lie", READING_LIES)
@pytest.mark.parametrize("columns", [COLUMNS, ("lsn", "timestamp"), ("lsn",)], ids=len)
def test_spark_notices_what_it_looks_at(
    columns: tuple[str, ...], lie: Callable[[log_pb2.ReadResponse], None]
) -> None:
    answer = answer_of(WIDE)
    lie(answer)
    maker = BatchMaker(1, 1, 5, include_gaps=False, columns=columns)
    if lie is bomb and columns == ("lsn",):
        assert list(maker.batches(1, answer)), "nobody opens it"
        return
    with pytest.raises(CorruptBlock):
        list(maker.batches(1, answer))


@pytest.mark.parametrize("records", [0, 2**32 - 1])
@pytest.mark.parametrize("first_lsn", [0, 1, 2, 2**64 - 1])
def test_a_run_without_values_that_is_none_makes_no_rows_beyond_the_range(
    first_lsn: int, records: int
) -> None:
    answer = answer_of(WIDE)
    run = answer.blocks[0]
    run.block, run.block_bytes, run.timestamp_us = b"", 2**32 - 1, -(2**63)
    run.first_lsn, run.record_count = first_lsn, records
    maker = BatchMaker(1, 1, 4, include_gaps=False, columns=("lsn", "timestamp"))
    try:
        rows = [lsn for batch in maker.batches(1, answer) for lsn in batch["lsn"].to_pylist()]
    except CorruptBlock:
        assert records == 0 or first_lsn > 1
    else:
        assert rows == [1, 2, 3]
