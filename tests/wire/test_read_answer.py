"""A ReadResponse that is written and read past protobuf is what protobuf writes and reads."""

from __future__ import annotations

import random

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from logservice_wire import pieced, read_answer
from logservice_wire.errors import Reason
from logservice_wire.pieced import Pieced
from logservice_wire.read_answer import LargeBlock, ReadAnswer, parsed
from logservice_wire.v1 import log_pb2

from logservice.ids import Lsn, Term
from logservice.nodehost.replica.log_reading import LogRun
from logservice.server.services.answer_bytes import AnswerBytes

LARGE, SMALL = read_answer.LARGE_BYTES, pieced.LARGE_BYTES

SIZES = (0, 1, 127, 128, SMALL - 1, SMALL, 100_000, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE)


def response(sizes: list[int], seed: int = 1) -> log_pb2.ReadResponse:
    drawn = random.Random(seed)
    position = log_pb2.LogPosition(first_lsn=3, applied_lsn=2**63, leader_address="here:1")
    position.lineage.id = bytes(16)
    made = log_pb2.ReadResponse(position=position, next_lsn=2**40, end_lsn=drawn.randrange(2))
    for number, size in enumerate(sizes):
        made.blocks.add(
            first_lsn=drawn.getrandbits(60),
            record_count=drawn.getrandbits(31),
            block=drawn.randbytes(size),
            gap=drawn.randrange(5),
            term=number,
            append_time_us=drawn.getrandbits(60),
        )
    return made


def fields(answer: ReadAnswer | log_pb2.ReadResponse) -> tuple[object, ...]:
    blocks = [
        (one.first_lsn, one.record_count, one.block, one.gap, one.term, one.append_time_us)
        for one in answer.blocks
    ]
    assert not any(one.block_bytes or one.timestamp_us for one in answer.blocks)
    return answer.position, answer.next_lsn, answer.end_lsn, blocks


@given(st.lists(st.sampled_from(SIZES), max_size=8), st.integers(0, 9))
def test_it_reads_what_protobuf_wrote(sizes: list[int], seed: int) -> None:
    """INV-ANSWER-WIRE."""
    wanted = response(sizes, seed)
    found = parsed(wanted.SerializeToString())
    assert fields(found) == fields(wanted)
    past = sum(isinstance(one, LargeBlock) for one in found.blocks)
    assert past == sum(one.ByteSize() >= LARGE for one in wanted.blocks)


@given(st.lists(st.sampled_from(SIZES), max_size=8), st.integers(0, 9))
def test_protobuf_reads_what_it_wrote(sizes: list[int], seed: int) -> None:
    wanted = response(sizes, seed)
    blocks = [one.block for one in wanted.blocks]
    head = log_pb2.ReadResponse()
    head.CopyFrom(wanted)
    del head.blocks[:]
    answer = AnswerBytes(head, ())
    for one, block in zip(wanted.blocks, blocks, strict=True):
        rest = log_pb2.LogBlock()
        rest.CopyFrom(one)
        rest.ClearField("block")
        answer.add(rest, memoryview(block))
    size = answer.ByteSize()
    data = answer.SerializeToString()
    assert log_pb2.ReadResponse.FromString(data) == wanted
    assert fields(parsed(data)) == fields(wanted)
    assert size == len(data) == answer.ByteSize()


@given(st.lists(st.sampled_from(SIZES), max_size=8), st.booleans())
def test_an_append_is_written_as_protobuf_writes_it(sizes: list[int], opens: bool) -> None:
    wanted, written = log_pb2.AppendStreamRequest(), log_pb2.AppendStreamRequest()
    if opens:
        wanted.open.shard_id = written.open.shard_id = 5
    message = Pieced(written, log_pb2.AppendStreamRequest.Block.BLOCK_FIELD_NUMBER)
    for number, size in enumerate(sizes):
        rest = log_pb2.AppendStreamRequest.Block(sequence=number, traceparent="00-1-2-01")
        wanted.blocks.add(sequence=number, traceparent="00-1-2-01", block=b"\1" * size)
        message.add(rest, b"\1" * size)
    assert message.ByteSize() == wanted.ByteSize()
    assert log_pb2.AppendStreamRequest.FromString(message.SerializeToString()) == wanted


def test_what_is_no_block_may_change_until_it_is_encoded() -> None:
    run = LogRun(Lsn(7), 1, Term(1), b"", Reason.FENCED)
    answer = AnswerBytes(log_pb2.ReadResponse(next_lsn=8), (run,))
    answer.add(log_pb2.LogBlock(first_lsn=7), bytes(LARGE))
    answer.position.leader_address = "there:2"
    assert answer.blocks[0].first_lsn == 7
    assert answer.next_lsn == 8
    assert parsed(answer.SerializeToString()).position.leader_address == "there:2"


def test_pieces_of_a_message_are_merged_and_the_last_of_two_blocks_counts() -> None:
    """INV-ANSWER-WIRE."""
    one, two = response([LARGE]), response([5, LARGE + 3], seed=2)
    again = log_pb2.LogBlock(first_lsn=1, block=bytes(LARGE)).SerializeToString()
    again += log_pb2.LogBlock(block=b"\1" * (LARGE + 9), term=4).SerializeToString()
    nested = b"\x12" + pieced.varint(len(again)) + again
    data = one.SerializeToString() + nested + two.SerializeToString()
    assert fields(parsed(data)) == fields(log_pb2.ReadResponse.FromString(data))


@pytest.mark.parametrize(
    "odd",
    [
        b"\xba\x3e\x03abc",  # a field of a later version: number 999
        b"\x2a\x03abc",  # another one, whose tag is short
        b"\x28\x96\x01",
        b"\x2d\x01\x02\x03\x04",  # 32 bits
        b"\x18\x85\x80\x80\x80\x00",  # a varint that is longer than need be
        b"\x10\x05",  # blocks, and no message
    ],
)
def test_what_it_does_not_know_is_protobufs(odd: bytes) -> None:
    """INV-ANSWER-WIRE."""
    data = response([LARGE, 3]).SerializeToString()
    for whole in (odd + data, data + odd, data + odd + data):
        assert fields(parsed(whole)) == fields(log_pb2.ReadResponse.FromString(whole))


def test_damage_is_refused_as_protobuf_refuses_it() -> None:
    """INV-ANSWER-WIRE."""
    data = response([LARGE, 3, LARGE]).SerializeToString()
    drawn = random.Random(5)
    refused = 0
    near = [*range(60), *range(LARGE, LARGE + 120), *range(len(data) - 60, len(data))]
    for at in near:
        changed = bytearray(data)
        changed[at] ^= 1 << drawn.randrange(8)
        for broken in (data[:at], bytes(changed)):
            try:
                wanted = fields(log_pb2.ReadResponse.FromString(broken))
            except DecodeError:
                refused += 1
                with pytest.raises(DecodeError):
                    parsed(broken)
            else:
                assert fields(parsed(broken)) == wanted
    assert refused > 100
