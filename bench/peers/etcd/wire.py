"""The few requests of etcd's v3 API that the bench sends, as bytes.

They are encoded here, so that both sides pay for the same Python client and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import grpc.aio

PUT: Final = "/etcdserverpb.KV/Put"
RANGE: Final = "/etcdserverpb.KV/Range"
STATUS: Final = "/etcdserverpb.Maintenance/Status"

Call = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]


def call(channel: grpc.aio.Channel, path: str) -> Call:
    """A method whose request and answer are bytes."""
    return channel.unary_unary(path, request_serializer=None, response_deserializer=None)


def put_request(key: bytes, value: bytes) -> bytes:
    """etcdserverpb.PutRequest{key = 1, value = 2}."""
    return b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(len(value)) + value


def range_request(key: bytes) -> bytes:
    """etcdserverpb.RangeRequest{key = 1}: linearizable, of one key."""
    return b"\x0a" + _varint(len(key)) + key


def is_leader(status: bytes) -> bool:
    """Whether a member leads. StatusResponse{header = 1 {member_id = 2}, leader = 4} names both."""
    member = _header(status).get(2)
    return member is not None and member == dict(_fields(status)).get(4)


def revision(answer: bytes) -> int:
    """Of the store, of any answer: header = 1 {revision = 3}. Every put adds one."""
    number = _header(answer).get(3, 0)
    assert isinstance(number, int)
    return number


def _header(answer: bytes) -> dict[int, int | bytes]:
    header = dict(_fields(answer)).get(1, b"")
    assert isinstance(header, bytes)
    return dict(_fields(header))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """`(number, value)` of a message that has only varints and byte strings."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        value, position = _read_varint(message, position)
        if tag & 7 == 2:
            yield tag >> 3, message[position : position + value]
            position += value
        else:
            yield tag >> 3, value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
