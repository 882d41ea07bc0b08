"""Forwarding: requests that reach a store whose replica does not lead, on their way to the one that
does.

The byte forms of the requests a peer may send for a shard, and of their answers. Requests begin
with the ids of the call they belong to (``length u8``, `trace.encode`). Answers carry the outcome;
a refusal travels as the transport's typed error. The leader's store never
forwards again (`local_only`), so a request crosses at most one hop per attempt.
"""

from __future__ import annotations

import struct

from logservice_wire.errors import InvalidArgument, UnknownOutcome

from logservice import trace
from logservice.bounds import BLOCK_BYTES_MAX, BLOCK_RECORDS_MAX, COMMAND_BYTES_MAX
from logservice.ids import Lsn, ReplicaId, SessionId, ShardId
from logservice.outcome import Applied
from logservice.rsm.append_request import AppendRequest
from logservice.trace import Call

APPEND = "shard.append"
PROPOSE = "shard.propose"
CHANGE = "shard.change"
TRANSFER = "shard.transfer"

_APPEND = struct.Struct("<QdQQQQI")
_HEAD = struct.Struct("<Qd")
_REPLICA = struct.Struct("<Q")
_APPLIED = struct.Struct("<QQQB")


def encode_append(
    shard: ShardId, timeout_s: float, request: AppendRequest, call: Call | None = None
) -> bytes:
    """Whose it is, shard, what is left of the deadline, the request."""
    head = _APPEND.pack(
        shard,
        timeout_s,
        request.session,
        request.sequence,
        request.writer_epoch,
        request.expected_lsn,
        request.record_count,
    )
    return _ids(call) + head + request.block


def decode_append(body: bytes) -> tuple[ShardId, float, AppendRequest, Call | None]:
    """Inverse of `encode_append`; raises InvalidArgument."""
    call, start = _call(body)
    block_at = start + _APPEND.size
    if len(body) < block_at:
        raise InvalidArgument("forwarded append cut short", field="body")
    shard, timeout_s, session, sequence, epoch, expected, count = _APPEND.unpack_from(body, start)
    if not 0 < count <= BLOCK_RECORDS_MAX or len(body) - block_at > BLOCK_BYTES_MAX:
        # The store that sent it checked the block. An entry that followers refuse would stop the
        # shard for ever, so nobody is trusted with that.
        raise InvalidArgument("forwarded block out of bounds", field="block")
    request = AppendRequest(
        session=SessionId(session),
        sequence=sequence,
        writer_epoch=epoch,
        expected_lsn=Lsn(expected),
        record_count=count,
        block=body[block_at:],
    )
    return ShardId(shard), timeout_s, request, call


def encode_request(
    shard: ShardId, timeout_s: float, rest: bytes, call: Call | None = None
) -> bytes:
    """A command or an encoded membership change."""
    return _ids(call) + _HEAD.pack(shard, timeout_s) + rest


def decode_request(body: bytes) -> tuple[ShardId, float, bytes, Call | None]:
    """Inverse of `encode_request`; raises InvalidArgument."""
    call, start = _call(body)
    rest_at = start + _HEAD.size
    if len(body) < rest_at:
        raise InvalidArgument("forwarded request cut short", field="body")
    if len(body) - rest_at > COMMAND_BYTES_MAX:
        raise InvalidArgument("forwarded command out of bounds", field="command")
    shard, timeout_s = _HEAD.unpack_from(body, start)
    return ShardId(shard), timeout_s, body[rest_at:], call


def _ids(call: Call | None) -> bytes:
    ids = trace.encode(call)
    return bytes((len(ids),)) + ids


def _call(body: bytes) -> tuple[Call | None, int]:
    """Whose request it is, and where the rest of it begins."""
    if not body:
        raise InvalidArgument("forwarded request cut short", field="body")
    start = 1 + body[0]
    return trace.decode(body[1:start]), start


def encode_replica(replica: ReplicaId) -> bytes:
    """The target of a leadership transfer."""
    return _REPLICA.pack(replica)


def decode_replica(body: bytes) -> ReplicaId:
    """Inverse of `encode_replica`; raises InvalidArgument."""
    if len(body) != _REPLICA.size:
        raise InvalidArgument("replica id cut short", field="body")
    return ReplicaId(_REPLICA.unpack(body)[0])


def encode_applied(applied: Applied) -> bytes:
    """The answer."""
    return (
        _APPLIED.pack(applied.lsn, applied.count, applied.value, applied.duplicate) + applied.data
    )


def decode_applied(body: bytes) -> Applied:
    """Inverse of `encode_applied`; raises UnknownOutcome: whoever answers may have done it."""
    if len(body) < _APPLIED.size:
        raise UnknownOutcome("the leader's store answers in another language")
    lsn, count, value, duplicate = _APPLIED.unpack_from(body)
    return Applied(lsn, count, value, body[_APPLIED.size :], bool(duplicate))
