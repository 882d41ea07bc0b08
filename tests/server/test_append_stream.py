"""INV-STREAM-1 with a scripted NodeHost: order of acks, first failure, flow control."""

from __future__ import annotations

import asyncio
import sys
from collections import deque

import pytest
from grpc.aio import EOF
from logservice_wire.block import encode_block
from logservice_wire.errors import (
    CorruptBlock,
    Fenced,
    InvalidArgument,
    LogServiceError,
    UnknownOutcome,
)
from logservice_wire.v1 import log_pb2

from logservice import trace
from logservice.outcome import Applied
from logservice.rsm.append_request import AppendRequest
from logservice.server.services.append_lane import AppendLane
from logservice.server.services.append_stream import AppendStream
from tests.owners import CLAIM

BLOCK = encode_block([b"a", b"bc"], 1)
Message = log_pb2.AppendStreamRequest


class FakeCall:
    """The context of one call: messages in, messages out."""

    def __init__(self) -> None:
        self._incoming: asyncio.Queue[object] = asyncio.Queue()
        self.sent: list[log_pb2.AppendStreamResponse] = []

    def send(self, *sequences: int, block: bytes = BLOCK) -> None:
        self._incoming.put_nowait(message(*sequences, block=block))

    def close(self) -> None:
        self._incoming.put_nowait(EOF)

    def put(self, item: Message) -> None:
        self._incoming.put_nowait(item)

    async def read(self) -> object:
        return await self._incoming.get()

    async def write(self, response: log_pb2.AppendStreamResponse) -> None:
        self.sent.append(response)

    def acked(self) -> list[int]:
        return [ack.sequence for response in self.sent for ack in response.acks]


class FakeHost:
    """Keeps what was proposed; the test settles it."""

    def __init__(self) -> None:
        self.proposed: list[AppendRequest] = []
        self.futures: deque[asyncio.Future[Applied]] = deque()
        self.refuse_with: LogServiceError | None = None

    def submit(self, request: AppendRequest) -> asyncio.Future[Applied]:
        if self.refuse_with is not None:
            raise self.refuse_with
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self.proposed.append(request)
        self.futures.append(future)
        return future

    def settle(self, number: int, lsn: int) -> None:
        self.futures[number].set_result(Applied(lsn=lsn, count=2))

    def fail(self, number: int, error: LogServiceError) -> None:
        self.futures[number].set_exception(error)


def message(*sequences: int, block: bytes = BLOCK) -> Message:
    return Message(blocks=[Message.Block(sequence=number, block=block) for number in sequences])


def opened(call: FakeCall, host: FakeHost, first: Message, inflight_max: int = 64) -> AppendStream:
    lane = AppendLane(
        9,
        3,
        CLAIM,
        host.submit,
        lambda acked_lsn: log_pb2.LogPosition(applied_lsn=max(7, acked_lsn)),
    )
    return AppendStream(call, lane, inflight_max, first)  # type: ignore[arg-type]


async def turn() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_blocks_are_proposed_before_the_first_is_answered() -> None:
    call, host = FakeCall(), FakeHost()
    task = asyncio.create_task(opened(call, host, message(1, 2)).run())
    call.send(3)
    await turn()
    assert [(item.session, item.sequence, item.writer_epoch) for item in host.proposed] == [
        (9, 1, 3),
        (9, 2, 3),
        (9, 3, 3),
    ]
    assert host.proposed[0].record_count == 2
    assert call.sent == []
    task.cancel()


async def test_a_stream_that_waits_keeps_no_message() -> None:
    """Neither the first one nor the newest: each may be of megabytes, and a stream lasts days."""
    call, host = FakeCall(), FakeHost()
    messages = [message(1), message(2)]
    held = [sys.getrefcount(one) for one in messages]
    task = asyncio.create_task(opened(call, host, messages[0]).run())
    call.put(messages[1])
    await turn()
    assert len(host.proposed) == 2
    assert [sys.getrefcount(one) for one in messages] == held
    task.cancel()


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", True),
        ("", False),
        ("x" * 1_000_000, False),
    ],
)
async def test_whose_block_it_is_is_known_while_it_is_proposed(sent: str, kept: bool) -> None:
    """A value that is no traceparent is dropped: otherwise it would be kept, uncounted, as long as
    the block.
    """
    call, host = FakeCall(), FakeHost()
    seen: list[trace.Call | None] = []

    def submit(request: AppendRequest) -> asyncio.Future[Applied]:
        seen.append(trace.current.get())
        return FakeHost.submit(host, request)

    host.submit = submit  # type: ignore[method-assign]
    first = Message(blocks=[Message.Block(sequence=1, block=BLOCK, traceparent=sent)])
    task = asyncio.create_task(opened(call, host, first).run())
    await turn()
    assert seen == [trace.Carried(sent) if kept else None]
    host.settle(0, 1)
    call.close()
    await task
    assert call.acked() == [1]


async def test_acks_keep_the_order_and_share_a_message() -> None:
    call, host = FakeCall(), FakeHost()
    task = asyncio.create_task(opened(call, host, message(1, 2, 3)).run())
    await turn()
    host.settle(2, 5)
    host.settle(1, 3)
    await turn()
    assert call.sent == []
    host.settle(0, 1)
    call.close()
    await task
    assert len(call.sent) == 1
    assert [(ack.sequence, ack.lsn, ack.record_count) for ack in call.sent[0].acks] == [
        (1, 1, 2),
        (2, 3, 2),
        (3, 5, 2),
    ]
    assert call.sent[0].position.applied_lsn == 7


async def test_first_failure_ends_the_stream_and_nothing_later_is_acked() -> None:
    call, host = FakeCall(), FakeHost()
    task = asyncio.create_task(opened(call, host, message(1, 2, 3)).run())
    await turn()
    host.settle(2, 5)
    host.fail(1, Fenced("", epoch=4, holder="b"))
    host.settle(0, 1)
    with pytest.raises(Fenced) as caught:
        await task
    assert call.acked() == [1]
    assert caught.value.metadata == {"epoch": "4", "holder": "b", "sequence": "2"}
    call.send(4)
    await turn()
    assert len(host.proposed) == 3


async def test_a_bad_block_fails_behind_what_came_before() -> None:
    call, host = FakeCall(), FakeHost()
    task = asyncio.create_task(opened(call, host, message(1)).run())
    call.send(2, block=BLOCK[:-1] + b"\xff")
    call.send(3)
    await turn()
    assert len(host.proposed) == 1
    host.settle(0, 1)
    with pytest.raises(CorruptBlock) as caught:
        await task
    assert call.acked() == [1]
    assert caught.value.number("sequence") == 2


@pytest.mark.parametrize("second", [Message(open=Message.Open(shard_id=1)), message(0)])
async def test_mistakes_in_the_protocol(second: Message) -> None:
    call, host = FakeCall(), FakeHost()
    call.put(second)
    with pytest.raises(InvalidArgument):
        await opened(call, host, Message()).run()
    assert host.proposed == []


async def test_unanswered_blocks_are_bounded() -> None:
    call, host = FakeCall(), FakeHost()
    task = asyncio.create_task(opened(call, host, message(1, 2, 3, 4), inflight_max=2).run())
    await turn()
    assert len(host.proposed) == 2
    host.settle(0, 1)
    await turn()
    assert len(host.proposed) == 3
    assert call.acked() == [1]
    host.settle(1, 3)
    await turn()
    host.settle(2, 5)
    host.settle(3, 7)
    call.close()
    await task
    assert call.acked() == [1, 2, 3, 4]


async def test_refused_at_once() -> None:
    call, host = FakeCall(), FakeHost()
    host.refuse_with = UnknownOutcome("stopping")
    with pytest.raises(UnknownOutcome):
        await opened(call, host, message(1)).run()


async def test_cancelled_call_leaves_no_unretrieved_error() -> None:
    call, host = FakeCall(), FakeHost()
    task = asyncio.create_task(opened(call, host, message(1, 2)).run())
    await turn()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    host.fail(1, UnknownOutcome("the replica stopped"))
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    host.futures.clear()
    await turn()
    assert reported == []


async def test_empty_stream() -> None:
    call, host = FakeCall(), FakeHost()
    call.close()
    await opened(call, host, Message()).run()
    assert call.sent == []
