"""Forwarding: byte forms, and what no peer is trusted with."""

from __future__ import annotations

import pytest
from logservice_wire.errors import InvalidArgument, UnknownOutcome

from logservice import bounds
from logservice.ids import ShardId
from logservice.nodehost import forwarding
from logservice.trace import Carried
from tests.nodehost.cluster import request


def test_a_request_comes_back_as_it_was() -> None:
    sent = request(7, b"block", session=3, sequence=4, epoch=5, expected=6)
    body = forwarding.encode_append(ShardId(9), 1.5, sent)
    assert forwarding.decode_append(body) == (9, 1.5, sent, None)


def test_whose_request_it_is_comes_along() -> None:
    call = Carried(f"00-{'a' * 32}-{'b' * 16}-01", "x" * 128)
    body = forwarding.encode_append(ShardId(9), 1.5, request(7), call)
    assert forwarding.decode_append(body)[3] == call
    odd = Carried("no traceparent", "two words")
    body = forwarding.encode_request(ShardId(9), 1.5, b"command", odd)
    assert forwarding.decode_request(body) == (9, 1.5, b"command", None)


@pytest.mark.parametrize("body", [b"", b"\xff", b"\x05ab", b"\x00", b"\x03a b" + bytes(15)])
def test_a_body_that_is_cut_short_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        forwarding.decode_append(body)
    with pytest.raises(InvalidArgument):
        forwarding.decode_request(body)


@pytest.mark.parametrize("count", [0, bounds.BLOCK_RECORDS_MAX + 1, 2**32 - 1])
def test_a_record_count_that_followers_refuse_is_refused_before_the_leader_takes_it(
    count: int,
) -> None:
    """The leader's log would hold an entry that nobody else ever accepts: the end of the shard."""
    with pytest.raises(InvalidArgument):
        forwarding.decode_append(forwarding.encode_append(ShardId(1), 1.0, request(count)))


def test_oversized_bodies_are_refused() -> None:
    block = bytes(bounds.BLOCK_BYTES_MAX + 1)
    with pytest.raises(InvalidArgument):
        forwarding.decode_append(forwarding.encode_append(ShardId(1), 1.0, request(1, block)))
    command = bytes(bounds.COMMAND_BYTES_MAX + 1)
    with pytest.raises(InvalidArgument):
        forwarding.decode_request(forwarding.encode_request(ShardId(1), 1.0, command))


@pytest.mark.parametrize("answer", [b"", b"\x01" * 24])
def test_g5_an_answer_that_cannot_be_read_leaves_the_outcome_unknown(answer: bytes) -> None:
    """It was InvalidArgument: definitely not applied, of what the leader may have applied."""
    with pytest.raises(UnknownOutcome):
        forwarding.decode_applied(answer)
