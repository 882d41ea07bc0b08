"""Requests are measured before they are parsed: lists of nothing, floods of fields, garbage."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from logservice_client.bounds import GRPC_MESSAGE_BYTES_MAX as CLIENTS_MESSAGE_BYTES_MAX
from logservice_wire.errors import InvalidArgument, TooLarge
from logservice_wire.rpcs import APPEND, APPEND_SHARDS, APPEND_STREAM, RESTORE_BLOCKS, RPCS
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.server.edge.channel_options import SERVER_OPTIONS
from logservice.server.edge.message_limits import Refused, checked_parser, field_count

STREAM = log_pb2.AppendStreamRequest


def parser(message: Any) -> Any:
    return checked_parser(message.DESCRIPTOR, message.FromString)


def refused(parsed: object, kind: type[Exception]) -> None:
    assert isinstance(parsed, Refused)
    assert isinstance(parsed.error, kind)


def test_good_requests_are_parsed() -> None:
    stream = STREAM(open=STREAM.Open(shard_id=1, session_id=2))
    for number in range(bounds.SESSION_WINDOW):
        stream.blocks.add(sequence=number + 1, block=b"x" * number)
    assert parser(STREAM)(stream.SerializeToString()) == stream
    read = log_pb2.ReadRequest(shard_id=1, lsn=2)
    assert parser(log_pb2.ReadRequest)(read.SerializeToString()) == read
    append = log_pb2.AppendRequest(shard_id=1, block=b"x" * bounds.BLOCK_BYTES_MAX)
    assert parser(log_pb2.AppendRequest)(append.SerializeToString()) == append


def test_blocks_of_a_message_are_counted() -> None:
    most = b"\x12\x00" * bounds.STREAM_MESSAGE_FIELDS_MAX
    assert isinstance(parser(STREAM)(most), STREAM)
    refused(parser(STREAM)(most + b"\x12\x00"), TooLarge)


def test_lanes_and_blocks_of_a_message_are_counted_together() -> None:
    """SHARDS_MESSAGE_FIELDS_MAX."""
    message = log_pb2.AppendShardsRequest()
    for number in range(bounds.SHARDS_MESSAGE_FIELDS_MAX // 4):
        message.opens.add(lane=number + 1, shard_id=1)
        message.blocks.add(lane=number + 1, sequence=1)
        message.blocks.add(lane=number + 1, sequence=2)
        message.closes.add(lane=number + 1)
    parse = parser(log_pb2.AppendShardsRequest)
    assert parse(message.SerializeToString()) == message
    refused(parse(message.SerializeToString() + b"\x0a\x00"), TooLarge)
    refused(parse(message.SerializeToString() + b"\x1a\x00"), TooLarge)


def test_a_restore_brings_as_many_blocks_as_it_may() -> None:
    """RESTORE_MESSAGE_FIELDS_MAX. It was counted as a stream is, and no log of more than 62 blocks
    could be restored through a store's client port.
    """
    message = log_pb2.RestoreBlocksRequest(
        shard_id=1, lineage=b"1" * 16, first_lsn=1, truncated_lsn=1
    )
    for _ in range(bounds.RESTORE_CALL_ITEMS_MAX):
        message.blocks.add(gap=1, record_count=1)
    parse = parser(log_pb2.RestoreBlocksRequest)
    assert parse(message.SerializeToString()) == message
    message.blocks.add(gap=1, record_count=1)
    refused(parse(message.SerializeToString()), TooLarge)


def test_empty_messages_by_the_million_cost_nothing() -> None:
    """4 MiB of empty sub-messages are parsed in a process of its own, because its memory is
    measured.
    """
    code = """
import resource
from logservice_wire.v1 import log_pb2
from logservice.server.edge.message_limits import Refused, checked_parser
message = log_pb2.AppendStreamRequest
parse = checked_parser(message.DESCRIPTOR, message.FromString)
data = b"\\x12\\x00" * (2 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert type(parse(data)) is Refused
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert int(result.stdout) < 8 * 1024, "KiB"


@pytest.mark.parametrize(
    "message",
    [
        rpc.request
        for rpc in RPCS.values()
        if rpc not in (APPEND, APPEND_STREAM, APPEND_SHARDS, RESTORE_BLOCKS)
    ],
)
def test_requests_without_blocks_are_small(message: Any) -> None:
    parse = parser(message)
    # An unknown field as filling: it is what nobody needs.
    size = bounds.SMALL_REQUEST_BYTES_MAX - 5
    filling = b"\xfa\x7f" + bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    at_edge = filling + bytes(size)
    assert len(at_edge) == bounds.SMALL_REQUEST_BYTES_MAX
    assert isinstance(parse(at_edge), message)
    refused(parse(at_edge + b"\x08\x01"), TooLarge)


@pytest.mark.parametrize(
    "data",
    [
        b"\x12",
        b"\x12\x05x",
        b"\x80" * 11,
        b"\x0b",
        b"\x0c",
        b"\x0f\x01",
        b"\x09\x01",
        b"\x0d\x01",
        b"\x12\xff\xff\xff\xff\x0f",
        b"\x00",
        b"\x12\x02\x08\x80",
    ],
)
def test_garbage_gets_its_error(data: bytes) -> None:
    refused(parser(STREAM)(data), InvalidArgument)


def test_counting_gives_up_early() -> None:
    assert field_count(b"\x08\x01" * 1_000_000, 10) == 11
    assert field_count(b"\x08\x01\x11" + bytes(8) + b"\x1d" + bytes(4) + b"\x22\x01x", 10) == 4
    assert field_count(b"", 10) == 0


def test_the_largest_answer_fits_a_message_of_both_sides() -> None:
    """GRPC_MESSAGE_BYTES_MAX of the store and of the client: the answer is a Read of READ_BYTES_MAX
    whose last block begins one byte before the end of what was asked for.
    """
    answer = log_pb2.ReadResponse(next_lsn=2**62)
    for size in (bounds.READ_BYTES_MAX - 1, bounds.BLOCK_BYTES_MAX):
        answer.blocks.add(first_lsn=2**62, block=bytes(size))
    assert len(answer.SerializeToString()) <= bounds.GRPC_MESSAGE_BYTES_MAX
    assert bounds.GRPC_MESSAGE_BYTES_MAX <= CLIENTS_MESSAGE_BYTES_MAX
    assert dict(SERVER_OPTIONS)["grpc.max_send_message_length"] == bounds.GRPC_MESSAGE_BYTES_MAX
