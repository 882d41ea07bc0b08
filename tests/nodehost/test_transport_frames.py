"""Framing, control bodies and the send queue, without sockets."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logservice_wire.errors import Reason, UnknownOutcome, error_for, error_table

from logservice.ids import Incarnation, StoreId
from logservice.memory_part import MemoryPart
from logservice.nodehost.transport.link.send_queue import Item, SendQueue
from logservice.nodehost.transport.wire import control
from logservice.nodehost.transport.wire.control import ControlError, Hello, Lane
from logservice.nodehost.transport.wire.frame import (
    HEADER_BYTES,
    JOIN_BYTES_MAX,
    Buffer,
    FrameError,
    FrameKind,
    FrameReader,
    encode_frame,
)
from tests.nodehost.transport_conformance import A, identity

LIMIT = 4 * 1024 * 1024


def widened(limit: int) -> FrameReader:
    """A reader after the handshake."""
    reader = FrameReader(100)
    reader.widen(limit, lambda _: None)
    return reader


def feed(reader: FrameReader, data: bytes, step: int) -> list[tuple[FrameKind, bytes]]:
    """Give the bytes to the reader as a socket would, at most `step` at a time."""
    frames = []
    position = 0
    while position < len(data):
        room = reader.get_buffer()
        assert len(room) > 0
        count = min(step, len(room), len(data) - position)
        room[:count] = data[position : position + count]
        position += count
        frames += [(kind, bytes(body)) for kind, body in reader.received(count)]
    return frames


@pytest.mark.parametrize("step", [1, 7, 16, 4096, 10**9])
def test_any_cut_of_the_stream_gives_the_same_frames(step: int) -> None:
    chance = random.Random(step)
    sizes = [0, 1, 15, 16, 17, 300] if step < 16 else [0, 1, 70_000, 262_128, 262_129, 900_000, 5]
    bodies = [chance.randbytes(size) for size in sizes]
    kinds = [chance.choice(list(FrameKind)) for _ in bodies]
    stream = b"".join(
        chunk
        for kind, body in zip(kinds, bodies, strict=True)
        for chunk in encode_frame(kind, [body], len(body))
    )
    assert feed(widened(LIMIT), stream, step) == list(zip(kinds, bodies, strict=True))


def test_large_buffers_are_not_joined() -> None:
    large = b"L" * (JOIN_BYTES_MAX + 1)
    buffers: list[Buffer] = [b"a", b"b", large, b"c", b"d"]
    chunks = encode_frame(FrameKind.MESSAGES, buffers, len(large) + 4)
    assert [len(chunk) for chunk in chunks] == [HEADER_BYTES, 2, len(large), 2]
    assert chunks[2] is large


def test_every_flipped_bit_of_a_frame_is_noticed() -> None:
    frame = b"".join(encode_frame(FrameKind.MESSAGES, [bytes(range(40))], 40))
    for bit in range(len(frame) * 8):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameError):
            feed(FrameReader(LIMIT), bytes(damaged), 10**9)


def test_a_frame_over_the_limit_is_refused_before_its_body() -> None:
    head = encode_frame(FrameKind.HELLO, [b"x" * 101], 101)[0]
    with pytest.raises(FrameError):
        feed(FrameReader(100), bytes(head), 10**9)
    reader = FrameReader(100)
    reader.widen(101, lambda _: None)
    assert feed(reader, bytes(head), 10**9) == []


# --- control -------------------------------------------------------------------------------------


def test_hello_round_trip() -> None:
    hello = Hello(3, Lane.BULK, identity(A, cluster="cluster-ä"), StoreId("store-b"))
    assert control.decode_hello(control.encode_hello(hello)) == hello
    three = dataclasses.replace(hello.identity, incarnations=tuple(map(Incarnation, (5, 9, 7))))
    hello = dataclasses.replace(hello, identity=three)
    assert control.decode_hello(control.encode_hello(hello)) == hello
    with pytest.raises(ControlError):
        control.decode_hello(control.encode_hello(hello)[:-1])


@pytest.mark.parametrize("reason", list(Reason))
def test_every_error_crosses(reason: Reason) -> None:
    error = error_for(reason, "some words", first_lsn=7, holder="h", empty="")
    body = b"".join(control.encode_failure(9, error))
    request_id, result = control.decode_response(body)
    assert request_id == 9
    assert type(result) is error_table()[reason]
    assert isinstance(result, Exception)
    assert (str(result), result.metadata) == (str(error), error.metadata)


def test_a_reason_of_a_newer_version_is_an_unknown_outcome() -> None:
    error = error_for(Reason.BUSY, "words")
    body = b"".join(control.encode_failure(9, error)).replace(b"BUSY", b"NEWS")
    _, result = control.decode_response(body)
    assert isinstance(result, UnknownOutcome)
    assert result.message == "NEWS: words"


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=120))
def test_any_bytes_are_a_control_body_or_an_error(data: bytes) -> None:
    for decode in (
        control.decode_hello,
        control.decode_request,
        control.decode_response,
        control.decode_refusal,
    ):
        try:
            decode(data)
        except ControlError:
            continue


# --- the queue -----------------------------------------------------------------------------------


def item(flow: int, size: int, kind: FrameKind = FrameKind.MESSAGES) -> Item:
    return Item(kind, flow, [], size)


def drain(queue: SendQueue, bytes_max: int = 1) -> list[Item]:
    taken: list[Item] = []
    while items := queue.take(bytes_max):
        taken += items
    return taken


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 3), st.sampled_from([1, 50, 100, 500])), st.integers(1, 400)
        ),
        max_size=60,
    )
)
def test_a_flow_keeps_its_order(script: list[tuple[int, int] | int]) -> None:
    """INV-QUEUE-1, whatever is put and taken."""
    queue = SendQueue(10**9, 100)
    put: list[Item] = []
    taken: list[Item] = []
    for step in script:
        if isinstance(step, int):
            taken += queue.take(step)
        else:
            put.append(item(*step))
            assert queue.put(put[-1])
        assert queue.bytes == sum(one.size for one in put) - sum(one.size for one in taken)
        assert len(queue) == len(put) - len(taken)
    taken += drain(queue)
    assert queue.bytes == 0
    for flow in range(4):
        assert [id(one) for one in put if one.flow == flow] == [
            id(one) for one in taken if one.flow == flow
        ]
    assert all(one.sent for one in put)


def test_small_items_of_others_go_first() -> None:
    queue = SendQueue(10**9, 100)
    large, behind, other = item(1, 500), item(1, 1), item(2, 1)
    for one in (large, behind, other):
        queue.put(one)
    assert [id(one) for one in drain(queue)] == [id(other), id(large), id(behind)]


def test_only_messages_share_a_frame() -> None:
    queue = SendQueue(10**9, 100)
    for kind in (FrameKind.MESSAGES, FrameKind.MESSAGES, FrameKind.REQUEST, FrameKind.REQUEST):
        queue.put(item(1, 10, kind))
    assert [len(queue.take(1000)) for _ in range(4)] == [2, 1, 1, 0]


def test_the_bound_holds_but_one_item_always_fits() -> None:
    queue = SendQueue(100, 1000)
    assert queue.put(item(1, 500))
    assert not queue.put(item(1, 1))
    assert [one.size for one in queue.clear()] == [500]
    assert queue.put(item(1, 60))
    assert not queue.put(item(1, 41))
    assert queue.put(item(1, 40))


def test_queues_to_all_stores_share_their_bytes() -> None:
    """INV-MEM-1: whatever a queue lets go of, sent or dropped, the others may have."""
    part = MemoryPart(1000)
    deaf, urgent, other = (SendQueue(10**9, 1000, part, name) for name in ("a", "a urgent", "b"))
    while deaf.put(item(1, 100)):
        pass
    assert part.used == deaf.bytes == 500
    assert urgent.put(item(1, 100))
    assert not other.put_all([item(1, 100), item(1, 101)])
    assert other.put_all([item(1, 100), item(1, 100)])
    assert (part.used, len(other)) == (800, 2)
    drain(other)
    urgent.clear()
    assert part.used == 500
    deaf.clear()
    assert part.used == 0
