"""Frames and snapshots that are not whole: memory follows what arrived, and its sum is bounded."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from logservice import bounds
from logservice.ids import ShardId, StoreId
from logservice.nodehost.transport.wire import chunks, frame, receive_budget
from logservice.nodehost.transport.wire.chunks import SnapshotAssembly, split
from logservice.nodehost.transport.wire.codec import Buffer, CodecError, encode_message
from logservice.nodehost.transport.wire.frame import (
    FrameError,
    FrameKind,
    FrameReader,
    encode_frame,
)
from logservice.nodehost.transport.wire.receive_budget import ReceiveBudget, Share
from tests.nodehost.test_transport_frames import feed
from tests.nodehost.transport_conformance import A, B, C, heartbeat, install


def header(length: int) -> bytes:
    head = struct.pack("<HBBII", 0x4C57, frame.VERSION, FrameKind.MESSAGES, length, 0)
    return head + struct.pack("<I", zlib.crc32(head))


# --- frames ---------------------------------------------------------------------------------------


def test_a_buffer_follows_what_arrived() -> None:
    """INV-FRAME-1: whatever the header says, the buffer is never more than twice what arrived, plus
    the first buffer.
    """
    held: list[int] = []
    reader = FrameReader(bounds.PEER_HELLO_BYTES_MAX)
    reader.widen(bounds.PEER_FRAME_BYTES_MAX, held.append)
    feed(reader, header(bounds.PEER_FRAME_BYTES_MAX), 10**9)
    assert held == [bounds.PEER_FRAME_FIRST_BYTES]
    arrived = 0
    while arrived < 5_000_000:
        room = reader.get_buffer()
        count = min(len(room), 70_000)
        assert list(reader.received(count)) == []
        arrived += count
        assert held[-1] <= max(bounds.PEER_FRAME_FIRST_BYTES, 2 * arrived)
        assert len(room) <= held[-1]
    assert reader.unfinished
    reader.close()
    assert held[-1] == 0


def test_nothing_of_size_is_held_before_the_handshake() -> None:
    reader = FrameReader(bounds.PEER_HELLO_BYTES_MAX)
    assert len(reader.get_buffer()) == bounds.PEER_HELLO_BYTES_MAX + frame.HEADER_BYTES


def test_widening_keeps_what_is_there() -> None:
    """Behind a HELLO a part of something else may have arrived already."""
    reader = FrameReader(100)
    body = random.Random(1).randbytes(900_000)
    first = b"".join(encode_frame(FrameKind.HELLO, [b"hello"], 5))
    second = b"".join(encode_frame(FrameKind.MESSAGES, [body], len(body)))
    room = reader.get_buffer()
    both = (first + second)[: len(room)]
    room[: len(both)] = both
    frames = reader.received(len(both))
    assert next(frames) == (FrameKind.HELLO, b"hello")
    reader.widen(10**6, lambda _: None)
    assert list(frames) == []
    assert feed(reader, second[len(both) - len(first) :], 50_000) == [(FrameKind.MESSAGES, body)]


# --- the budget -----------------------------------------------------------------------------------


class Peer:
    """A connection with something that is not whole."""

    def __init__(self, budget: ReceiveBudget, store: StoreId) -> None:
        self.cuts: list[str] = []
        self.share: Share = budget.share(store, self.cuts.append)


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> ReceiveBudget:
    monkeypatch.setattr(receive_budget, "PEER_PARTIAL_STORE_BYTES_MAX", 40)
    monkeypatch.setattr(receive_budget, "PEER_PARTIAL_BYTES_MAX", 100)
    return ReceiveBudget()


def test_a_store_has_its_bound(budget: ReceiveBudget) -> None:
    one, two = Peer(budget, A), Peer(budget, A)
    one.share.take(30)
    two.share.take(10)
    with pytest.raises(FrameError):
        two.share.take(11)
    assert (budget.bytes, budget.cuts) == (30, 1), "it gave back what it held"
    one.share.take(40)
    one.share.give_back()
    assert budget.bytes == 0


def test_who_holds_the_most_goes_first(budget: ReceiveBudget) -> None:
    """The store that holds little never goes; of the other's connections the largest goes."""
    hoard, beside, other, honest = (Peer(budget, one) for one in (A, A, C, B))
    hoard.share.take(30)
    beside.share.take(9)
    other.share.take(30)
    honest.share.take(31)
    assert budget.bytes == 100
    honest.share.take(35)
    assert hoard.cuts
    assert [one.cuts for one in (honest, other, beside)] == [[], [], []]
    assert budget.bytes == 9 + 30 + 35
    honest.share.take(40)
    hoard.share.take(21)
    with pytest.raises(FrameError):
        Peer(budget, B).share.take(1)


def test_the_one_who_asks_may_be_the_one(budget: ReceiveBudget) -> None:
    others = [Peer(budget, StoreId(f"s-{number}")) for number in range(4)]
    for one in others:
        one.share.take(20)
    asking = Peer(budget, A)
    asking.share.take(20)
    with pytest.raises(FrameError):
        asking.share.take(25)
    assert not any(one.cuts for one in others)
    assert budget.bytes == 80


def test_one_hoarder_leaves_room_for_the_largest_of_another() -> None:
    """The bounds are chosen for this: see `bounds.transport`."""
    assert 2 * bounds.PEER_PARTIAL_STORE_BYTES_MAX < bounds.PEER_PARTIAL_BYTES_MAX
    largest = bounds.PEER_SNAPSHOT_BYTES_MAX + bounds.PEER_FRAME_BYTES_MAX
    assert largest <= bounds.PEER_PARTIAL_STORE_BYTES_MAX


# --- chunks ---------------------------------------------------------------------------------------


def bodies(message: object = None, size: int = 3_500_000) -> list[bytes]:
    buffers: list[Buffer] = []
    length = encode_message(ShardId(5), install(size) if message is None else message, buffers)  # type: ignore[arg-type]
    return [b"".join(map(bytes, body)) for body in split(buffers, length)]


def assembly() -> tuple[SnapshotAssembly, ReceiveBudget]:
    made = ReceiveBudget()
    return SnapshotAssembly(made.share(A, lambda _: None)), made


def test_chunks_are_put_together() -> None:
    one, made = assembly()
    pieces = bodies()
    assert len(pieces) == 4
    assert all(len(piece) <= bounds.PEER_SNAPSHOT_CHUNK_BYTES + 24 for piece in pieces)
    for _ in range(2):
        for piece in pieces[:-1]:
            assert one.add(piece) == []
        assert made.bytes == 3 * bounds.PEER_SNAPSHOT_CHUNK_BYTES
        assert one.add(pieces[-1]) == [(5, install(3_500_000))]
        assert made.bytes == 0


@pytest.mark.parametrize("order", [(1,), (0, 2), (0, 0), (0, 1, 1)])
def test_chunks_out_of_order_are_refused(order: tuple[int, ...]) -> None:
    one, _ = assembly()
    pieces = bodies()
    for place in order[:-1]:
        one.add(pieces[place])
    with pytest.raises(CodecError):
        one.add(pieces[order[-1]])


def test_two_snapshots_do_not_mix() -> None:
    one, _ = assembly()
    one.add(bodies()[0])
    with pytest.raises(CodecError):
        one.add(bodies(size=3_500_001)[1])


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    pieces = bodies(size=1_500_000)
    chance = random.Random(7)
    for _ in range(20):
        damaged = [bytearray(piece) for piece in pieces]
        target = chance.choice(damaged)
        bit = chance.randrange(len(target) * 8)
        target[bit // 8] ^= 1 << bit % 8
        one, _ = assembly()
        with pytest.raises((CodecError, FrameError)):
            for piece in damaged:
                one.add(bytes(piece))
            raise CodecError("it is not whole, which the connection's end will drop")


def test_chunks_carry_snapshots_only() -> None:
    one, _ = assembly()
    with pytest.raises(CodecError):
        for piece in bodies(heartbeat(1, b"x" * 2_000_000)):
            one.add(piece)


def test_a_snapshot_that_is_announced_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = bodies()
    (total,) = struct.unpack_from("<Q", pieces[0])
    monkeypatch.setattr(chunks, "PEER_SNAPSHOT_BYTES_MAX", total)
    assembly()[0].add(pieces[0])
    monkeypatch.setattr(chunks, "PEER_SNAPSHOT_BYTES_MAX", total - 1)
    with pytest.raises(CodecError):
        assembly()[0].add(pieces[0])


def test_what_is_dropped_is_given_back() -> None:
    one, made = assembly()
    one.add(bodies()[0])
    one.drop()
    assert made.bytes == 0
    for piece in bodies()[:-1]:
        one.add(piece)
