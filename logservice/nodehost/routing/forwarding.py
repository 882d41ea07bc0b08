"""Forwarding: requests that reach a store whose replica does not lead go to the leader's store.

Only what touches nothing that belongs to somebody is forwarded: an append, a new session, a probe
(`commands.is_forwarded`). Whoever truncates, takes the writer over or holds records is
authenticated by the leader's store itself (NOT_LEADER says where that is). The forwarding store has
checked what it sends, but is not trusted with that: a block is validated again, with its count.

This file has the byte forms of the requests that a peer may send for a shard, and of their answers.
Requests begin with the ids of the call they belong to (``length u8``, `trace.encode`). Answers
carry the outcome; a refusal travels as the transport's typed error. The store that sends a request
authenticated the client, and says in whose name it is made. The store that takes it knows the
sender by the connection, and writes into the entry which store vouched. The leader's store never
forwards again (`local_only`), so a request crosses at most one hop per attempt.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from logservice_wire.block import validate_block
from logservice_wire.errors import InvalidArgument

from logservice import trace
from logservice.bounds import COMMAND_BYTES_MAX
from logservice.checksum import crc32
from logservice.ids import Lsn, SessionId, ShardId, StoreId
from logservice.nodehost.peers.applied import APPLIED_FIXED
from logservice.nodehost.peers.question import Asker, Form, Question, question
from logservice.outcome import Applied
from logservice.owner import Claim, store_digest
from logservice.rsm import commands
from logservice.rsm.append_request import AppendRequest
from logservice.trace import Call

_APPEND = struct.Struct("<QdQQQQI16s16s")
_HEAD = struct.Struct("<Qd")


class ForwardedAppend(NamedTuple):
    """timeout_s: what is left of the caller's deadline. call: whose it is."""

    shard: ShardId
    timeout_s: float
    request: AppendRequest
    call: Call | None = None


class ForwardedCommand(NamedTuple):
    """timeout_s: what is left of the caller's deadline. call: whose it is."""

    shard: ShardId
    timeout_s: float
    command: bytes
    call: Call | None = None


def encode_append(append: ForwardedAppend) -> bytes:
    """The bytes are: ids of the call, shard, what is left of the deadline, request."""
    shard, timeout_s, request, call = append
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


def decode_append(body: bytes, sender: StoreId) -> ForwardedAppend:
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
    return ForwardedAppend(ShardId(shard), timeout_s, request, call)


def encode_command(forwarded: ForwardedCommand) -> bytes:
    """The bytes are: ids of the call, shard, what is left of the deadline, command."""
    shard, timeout_s, command, call = forwarded
    return _ids(call) + _HEAD.pack(shard, timeout_s) + command


def decode_command(body: bytes) -> ForwardedCommand:
    """Inverse of `encode_command`; raises InvalidArgument."""
    call, start = _call(body)
    rest_at = start + _HEAD.size
    if len(body) < rest_at:
        raise InvalidArgument("forwarded request cut short", field="body")
    if len(body) - rest_at > COMMAND_BYTES_MAX:
        raise InvalidArgument("forwarded command out of bounds", field="command")
    shard, timeout_s = _HEAD.unpack_from(body, start)
    return ForwardedCommand(ShardId(shard), timeout_s, body[rest_at:], call)


def append_shard(body: bytes) -> ShardId:
    """Which shard an encoded append is for; raises InvalidArgument."""
    return _shard(body, _APPEND)


def command_shard(body: bytes) -> ShardId:
    """Which shard an encoded command is for; raises InvalidArgument."""
    return _shard(body, _HEAD)


def _shard(body: bytes, layout: struct.Struct) -> ShardId:
    start = 1 + body[0] if body else 1
    if len(body) < start + layout.size:
        raise InvalidArgument("forwarded request cut short", field="body")
    return ShardId(layout.unpack_from(body, start)[0])


def vouches(sender: StoreId, command: bytes) -> bool:
    """False for a command that says that another store than `sender` authenticated its author.

    Bytes that are no command are refused later, by admission.
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
    """The call that the request belongs to, and where the rest of the request begins."""
    if not body:
        raise InvalidArgument("forwarded request cut short", field="body")
    start = 1 + body[0]
    return trace.decode(body[1:start]), start


APPEND: Final[Question[ForwardedAppend, Applied]] = Question(
    "shard.append",
    Asker.MEMBER,
    encode_append,
    decode_append,
    APPLIED_FIXED.encode,
    lambda data, _: APPLIED_FIXED.decode(data),
    append_shard,
)
PROPOSE: Final = question(
    "shard.propose",
    Asker.MEMBER,
    Form(encode_command, decode_command),
    APPLIED_FIXED,
    command_shard,
)
