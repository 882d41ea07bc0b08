"""Forwarding: requests that reach a store whose replica does not lead, on their way to the one that
does.

Only what touches nothing that belongs to somebody is forwarded: an append, a new session, a probe
(`commands.is_forwarded`). Whoever truncates, takes the writer over or holds records is
authenticated by the leader's store itself (NOT_LEADER says where that is). The forwarding store has
checked what it sends and is not trusted with that: a block is validated again, with its count.

The byte forms of the requests a peer may send for a shard, and of their answers. Requests begin
with the ids of the call they belong to (``length u8``, `trace.encode`). Answers carry the outcome;
a refusal travels as the transport's typed error. In whose name a request is made is said by the
store that sends it, which authenticated the client; the one that takes it writes into the entry
which store that was, by the connection it came over. The leader's store never
forwards again (`local_only`), so a request crosses at most one hop per attempt.
"""

from __future__ import annotations

import struct

from logservice_wire.block import validate_block
from logservice_wire.errors import InvalidArgument, UnknownOutcome

from logservice import trace
from logservice.bounds import COMMAND_BYTES_MAX
from logservice.checksum import crc32
from logservice.ids import Lsn, SessionId, ShardId, StoreId
from logservice.outcome import Applied
from logservice.owner import Claim, store_digest
from logservice.rsm import commands
from logservice.rsm.append_request import AppendRequest
from logservice.trace import Call

APPEND = "shard.append"
PROPOSE = "shard.propose"

_APPEND = struct.Struct("<QdQQQQI16s16s")
_HEAD = struct.Struct("<Qd")
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
        request.claim.owner,
        request.claim.nonce,
    )
    return _ids(call) + head + request.block


def decode_append(
    body: bytes, sender: StoreId
) -> tuple[ShardId, float, AppendRequest, Call | None]:
    """Inverse of `encode_append`, as sent by `sender`; raises InvalidArgument, CorruptBlock,
    TooLarge.
    """
    call, start = _call(body)
    block_at = start + _APPEND.size
    if len(body) < block_at:
        raise InvalidArgument("forwarded append cut short", field="body")
    shard, timeout_s, session, sequence, epoch, expected, count, owner, nonce = _APPEND.unpack_from(
        body, start
    )
    block = body[block_at:]
    if validate_block(block, crc32=crc32) != count:
        raise InvalidArgument("forwarded block holds another number of records", field="block")
    request = AppendRequest(
        session=SessionId(session),
        sequence=sequence,
        writer_epoch=epoch,
        expected_lsn=Lsn(expected),
        record_count=count,
        block=block,
        claim=Claim(owner, nonce, store_digest(sender)),
    )
    return ShardId(shard), timeout_s, request, call


def encode_request(
    shard: ShardId, timeout_s: float, rest: bytes, call: Call | None = None
) -> bytes:
    """A command."""
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


def append_shard(body: bytes) -> ShardId:
    """Which shard an encoded append is for; raises InvalidArgument."""
    return _shard(body, _APPEND)


def request_shard(body: bytes) -> ShardId:
    """Which shard an encoded request is for; raises InvalidArgument."""
    return _shard(body, _HEAD)


def _shard(body: bytes, layout: struct.Struct) -> ShardId:
    start = 1 + body[0] if body else 1
    if len(body) < start + layout.size:
        raise InvalidArgument("forwarded request cut short", field="body")
    return ShardId(layout.unpack_from(body, start)[0])


def vouches(sender: StoreId, command: bytes) -> bool:
    """False for a command that says that another store than `sender` authenticated who asks.

    What is no command at all is refused by admission.
    """
    try:
        author = commands.author_of(commands.decode(command))
    except commands.CommandMalformed:
        return True
    return author is None or author.store == sender


def _ids(call: Call | None) -> bytes:
    ids = trace.encode(call)
    return bytes((len(ids),)) + ids


def _call(body: bytes) -> tuple[Call | None, int]:
    """Whose request it is, and where the rest of it begins."""
    if not body:
        raise InvalidArgument("forwarded request cut short", field="body")
    start = 1 + body[0]
    return trace.decode(body[1:start]), start


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
