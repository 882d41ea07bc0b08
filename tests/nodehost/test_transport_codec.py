"""The message codec: round trips of every class, and nothing but CodecError for anything else."""

from __future__ import annotations

import random
import struct
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logservice.entry import Entry, EntryKind
from logservice.ids import Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.membership import Member, Membership
from logservice.nodehost.transport.wire.codec import (
    Buffer,
    CodecError,
    decode_batch,
    encode_message,
)
from logservice.raft import messages as raft
from logservice.raft.messages import Message
from logservice.snapshot import Snapshot

TO, FROM, TERM = ReplicaId(2**63), ReplicaId(7), Term(41)
ENTRIES = (
    Entry(Term(1), Index(5), Lsn(10), 3, EntryKind.BLOCK, b"block bytes"),
    Entry(Term(2), Index(6), Lsn(13), 0, EntryKind.NOOP, b""),
    Entry(Term(2), Index(7), Lsn(13), 0, EntryKind.COMMAND, b"c" * 1000),
    Entry(Term(2), Index(8), Lsn(13), 0, EntryKind.CONFIG, b"\x00"),
)
SNAPSHOT = Snapshot(
    Index(9),
    Term(4),
    Lsn(99),
    Membership(
        voters=(ReplicaId(1), ReplicaId(2)),
        change_epoch=Index(3),
        members=(Member(ReplicaId(1), StoreId("store-a"), Incarnation(2**62)),),
    ),
    b"state",
)


def samples() -> list[Message]:
    head: dict[str, typing.Any] = {"to": TO, "sender": FROM, "term": TERM}
    one, two, three = Index(1), Index(2), Term(3)
    return [
        raft.AppendEntries(**head, prev_index=one, prev_term=three, entries=ENTRIES, commit=two),
        raft.AppendEntries(**head, prev_index=one, prev_term=three),
        raft.AppendResponse(**head, index=two),
        raft.AppendResponse(
            **head, index=two, reject=True, hint_index=Index(2**64 - 1), hint_term=Term(9)
        ),
        raft.AppendResponse(**head, index=two, room=0, closed=True),
        *(
            raft.RequestVote(**head, last_index=two, last_term=three, pre=pre, transfer=transfer)
            for pre in (False, True)
            for transfer in (False, True)
        ),
        *(
            raft.VoteResponse(**head, reject=reject, pre=pre)
            for pre in (False, True)
            for reject in (False, True)
        ),
        raft.Heartbeat(**head, commit=two, context=b"ctx"),
        raft.Heartbeat(**head),
        raft.HeartbeatResponse(**head, context=b"ctx"),
        raft.HeartbeatResponse(**head),
        raft.HeartbeatResponse(**head, context=b"ctx", room=1 << 20, closed=True),
        raft.Quiesce(**head, index=two),
        raft.InstallSnapshot(**head, snapshot=SNAPSHOT),
        raft.TimeoutNow(**head),
        raft.TransferLeader(**head),
        raft.Propose(**head, entries=ENTRIES),
        raft.Propose(**head, entries=()),
        raft.ReadIndexRequest(**head, context=b"read"),
        raft.ReadIndexResponse(**head, context=b"read", index=two),
        raft.Unreachable(**head),
        raft.SnapshotStatus(**head, reject=True),
        raft.SnapshotStatus(**head),
    ]


def encode(*batch: tuple[int, Message]) -> bytes:
    buffers: list[Buffer] = []
    size = sum(encode_message(ShardId(shard), message, buffers) for shard, message in batch)
    data = b"".join(buffers)
    assert len(data) == size
    return data


def test_every_message_class_has_a_sample() -> None:
    assert {type(message) for message in samples()} == set(typing.get_args(Message))


@pytest.mark.parametrize("message", samples(), ids=lambda message: type(message).__name__)
def test_round_trip(message: Message) -> None:
    data = encode((2**64 - 1, message))
    assert decode_batch(data) == [(2**64 - 1, message)]
    assert decode_batch(memoryview(data)) == [(2**64 - 1, message)]


def test_a_batch_keeps_order_and_shards() -> None:
    batch = list(enumerate(samples()))
    assert decode_batch(encode(*batch)) == batch
    assert decode_batch(b"") == []


def test_payloads_are_not_copied_when_encoding() -> None:
    payload = b"x" * 100_000
    entry = Entry(Term(1), Index(1), Lsn(1), 1, EntryKind.BLOCK, payload)
    message = raft.AppendEntries(
        to=TO, sender=FROM, prev_index=Index(0), prev_term=Term(0), entries=(entry,)
    )
    buffers: list[Buffer] = []
    encode_message(ShardId(1), message, buffers)
    assert any(buffer is payload for buffer in buffers)


def test_decoded_payloads_are_bytes_of_their_own() -> None:
    data = bytearray(encode((1, samples()[0])))
    ((_, message),) = decode_batch(memoryview(data))
    data[:] = bytes(len(data))
    assert isinstance(message, raft.AppendEntries)
    assert message.entries == ENTRIES


@pytest.mark.parametrize("message", samples(), ids=lambda message: type(message).__name__)
def test_every_cut_is_an_error(message: Message) -> None:
    data = encode((1, message))
    for size in range(1, min(len(data), 300)):
        with pytest.raises(CodecError):
            decode_batch(data[:size])


@pytest.mark.parametrize(
    ("offset", "layout", "value"),
    [
        (0, "B", 0),
        (0, "B", 99),
        (1, "B", 0x80),
        (2, "H", 1),
        (4, "I", 2**32 - 1),
        (4, "I", 5),
        (64 + 28, "I", 2**32 - 1),
        (64 + 32, "B", 77),
    ],
)
def test_absurd_fields_are_refused(offset: int, layout: str, value: int) -> None:
    data = bytearray(encode((1, samples()[0])))
    struct.pack_into("<" + layout, data, offset, value)
    with pytest.raises(CodecError):
        decode_batch(bytes(data))


def test_a_size_without_meaning_is_refused() -> None:
    data = bytearray(encode((1, raft.TimeoutNow(to=TO, sender=FROM))))
    struct.pack_into("<I", data, 4, 1)
    with pytest.raises(CodecError):
        decode_batch(bytes(data))


def test_a_damaged_snapshot_is_refused() -> None:
    data = bytearray(encode((1, raft.InstallSnapshot(to=TO, sender=FROM, snapshot=SNAPSHOT))))
    data[-1] ^= 1
    with pytest.raises(CodecError):
        decode_batch(bytes(data))


def test_mutated_batches_give_messages_or_codec_errors() -> None:
    chance = random.Random(20260101)
    good = [encode(*enumerate(samples())), *(encode((1, message)) for message in samples())]
    refused = 0
    for _ in range(20_000):
        data = bytearray(chance.choice(good))
        for _ in range(chance.randint(1, 4)):
            match chance.randrange(4):
                case 0:
                    data[chance.randrange(len(data))] = chance.randrange(256)
                case 1:
                    del data[chance.randrange(len(data)) :]
                case 2:
                    position = chance.randrange(len(data))
                    data[position:position] = chance.randbytes(chance.randint(1, 9))
                case _:
                    position = chance.randrange(len(data))
                    word = chance.choice((b"\xff" * 4, b"\0" * 4, b"\xff" * 8))
                    data[position : position + len(word)] = word
            if not data:
                break
        try:
            batch = decode_batch(bytes(data))
        except CodecError:
            refused += 1
        else:
            assert decode_batch(encode(*batch)) == batch
    assert refused > 5_000


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_messages_or_codec_errors(data: bytes) -> None:
    try:
        batch = decode_batch(data)
    except CodecError:
        return
    assert decode_batch(encode(*batch)) == batch
