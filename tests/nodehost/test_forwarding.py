"""Forwarding: its byte forms, and the claims that no peer is trusted with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from logservice_wire.errors import CorruptBlock, InvalidArgument, TooLarge, UnknownOutcome

from logservice import bounds
from logservice.ids import ShardId
from logservice.nodehost.peers.applied import APPLIED_FIXED
from logservice.nodehost.routing import forwarding
from logservice.nodehost.routing.forwarding import ForwardedAppend, ForwardedCommand
from logservice.rsm import commands
from logservice.trace import Carried
from tests.nodehost.cluster import request
from tests.owners import STORE


def test_a_request_comes_back_as_it_was() -> None:
    sent = request(7, b"block", session=3, sequence=4, epoch=5, expected=6)
    body = forwarding.encode_append(ForwardedAppend(ShardId(9), 1.5, sent))
    assert forwarding.decode_append(body, STORE) == (9, 1.5, sent, None)
    assert forwarding.append_shard(body) == 9


def test_whose_request_it_is_comes_along() -> None:
    call = Carried(f"00-{'a' * 32}-{'b' * 16}-01", "x" * 128)
    body = forwarding.encode_append(ForwardedAppend(ShardId(9), 1.5, request(7), call))
    assert forwarding.decode_append(body, STORE)[3] == call
    odd = Carried("no traceparent", "two words")
    body = forwarding.encode_command(ForwardedCommand(ShardId(9), 1.5, b"command", odd))
    assert forwarding.decode_command(body) == (9, 1.5, b"command", None)


@pytest.mark.parametrize("body", [b"", b"\xff", b"\x05ab", b"\x00", b"\x03a b" + bytes(15)])
def test_a_body_that_is_cut_short_is_refused(body: bytes) -> None:
    for decode in (lambda data: forwarding.decode_append(data, STORE), forwarding.append_shard):
        with pytest.raises(InvalidArgument):
            decode(body)
    with pytest.raises(InvalidArgument):
        forwarding.decode_command(body)


@pytest.mark.parametrize("count", [0, 6, 8, 1000, bounds.BLOCK_RECORDS_MAX + 1, 2**32 - 1])
def test_a_record_count_that_is_not_the_blocks_is_refused(count: int) -> None:
    """Otherwise the leader's log would hold records that nobody can read, or an entry that
    followers refuse, which would be the end of the shard.
    """
    sent = replace(request(7), record_count=count)
    with pytest.raises(InvalidArgument):
        forwarding.decode_append(
            forwarding.encode_append(ForwardedAppend(ShardId(1), 1.0, sent)), STORE
        )


@pytest.mark.parametrize("block", [b"", b"garbage", request(1).block[:-8], request(1).block + b"1"])
def test_a_forwarded_block_is_validated_again(block: bytes) -> None:
    """Seven bytes of garbage once passed as a thousand records."""
    for count in (1, 1000):
        sent = replace(request(1), record_count=count, block=block)
        with pytest.raises((InvalidArgument, CorruptBlock)):
            forwarding.decode_append(
                forwarding.encode_append(ForwardedAppend(ShardId(1), 1.0, sent)), STORE
            )


def test_one_flipped_bit_in_a_forwarded_block_is_found() -> None:
    whole = request(1, b"record").block
    for at in range(len(whole)):
        block = whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :]
        sent = replace(request(1), block=block)
        with pytest.raises((InvalidArgument, CorruptBlock, TooLarge)):
            forwarding.decode_append(
                forwarding.encode_append(ForwardedAppend(ShardId(1), 1.0, sent)), STORE
            )


def test_oversized_bodies_are_refused() -> None:
    sent = replace(request(1), block=bytes(bounds.BLOCK_BYTES_MAX + 1))
    with pytest.raises((InvalidArgument, CorruptBlock, TooLarge)):
        forwarding.decode_append(
            forwarding.encode_append(ForwardedAppend(ShardId(1), 1.0, sent)), STORE
        )
    command = bytes(bounds.COMMAND_BYTES_MAX + 1)
    with pytest.raises(InvalidArgument):
        forwarding.decode_command(
            forwarding.encode_command(ForwardedCommand(ShardId(1), 1.0, command))
        )


@pytest.mark.parametrize("answer", [b"", b"\x01" * 24])
def test_g5_an_answer_that_cannot_be_read_leaves_the_outcome_unknown(answer: bytes) -> None:
    """The error was InvalidArgument once. It says "definitely not applied", and the leader may have
    applied the request.
    """
    with pytest.raises(UnknownOutcome):
        APPLIED_FIXED.decode(answer)


def test_only_sessions_and_probes_are_forwarded() -> None:
    """A new command is not forwarded until somebody decides that it may be."""
    tags = {tag for tag in commands.Tag if commands.is_forwarded(bytes((tag, 1, 0, 0)))}
    assert tags == {commands.Tag.OPEN_SESSION, commands.Tag.CONNECT}
    assert not commands.is_forwarded(b"")
