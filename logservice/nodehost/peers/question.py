"""Question: one kind of request that stores make of each other, described once.

Theory of operation. A question is a value: its method, who may ask it, and the byte forms of the
request and of the answer. Asking and answering both go through it (`peers.requests`), so neither
side touches bytes, and what is declared here is what is checked. Who may ask is one of

    ANY         any store with a certificate of the cluster: a heartbeat, which is how a store joins
    ENROLLED    a store that HAKeeper has enrolled, or that the configuration names: what is asked
                about the cluster or about this store
    MEMBER      a store with a member of the shard that the request names, bound to a data directory
                that it states, by the newest membership known here: everything about a shard

The shard is read from the bytes alone, before the rest is looked at: who may not ask costs no more.

Most messages are MessagePack arrays of a struct's fields (`packed`), some behind a version byte. A
store that does not know a version, or a method because it is older, has no answer.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec
from logservice_wire.errors import InvalidArgument, NotReady

from logservice.ids import ShardId, StoreId

Q = TypeVar("Q")
A = TypeVar("A")
M = TypeVar("M")

ShardOf = Callable[[bytes], ShardId]
"""Reads the shard that a request is about; raises InvalidArgument."""


class Asker(enum.Enum):
    """Who may ask; see the module's text."""

    ANY = "any"
    ENROLLED = "enrolled"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Form(Generic[M]):
    """The bytes of one message. `decode` raises a LogServiceError."""

    encode: Callable[[M], bytes]
    decode: Callable[[bytes], M]


@dataclass(frozen=True, slots=True)
class Question(Generic[Q, A]):
    """See the module's text. `shard_of` goes with MEMBER.

    decode: a request, as sent by that store. decode_answer: the answer to that request. Both raise
    a LogServiceError for what is none.
    """

    method: str
    asker: Asker
    encode: Callable[[Q], bytes]
    decode: Callable[[bytes, StoreId], Q]
    encode_answer: Callable[[A], bytes]
    decode_answer: Callable[[bytes, Q], A]
    shard_of: ShardOf | None = None


def question(
    method: str, asker: Asker, request: Form[Q], answer: Form[A], shard_of: ShardOf | None = None
) -> Question[Q, A]:
    """A question whose messages are understood by themselves."""
    return Question(
        method,
        asker,
        request.encode,
        lambda body, _: request.decode(body),
        answer.encode,
        lambda data, _: answer.decode(data),
        shard_of,
    )


def packed(
    message: type[M], version: Callable[[], bytes] = lambda: b"", field: str = "body"
) -> Form[M]:
    """The MessagePack array of a struct's fields behind the version that is written now, a byte or
    nothing.

    Decoding raises InvalidArgument with `field` for what is no such message.
    """
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(message)

    def decode(data: bytes) -> M:
        known = version()
        size = len(known)
        if data[:size] != known:
            raise InvalidArgument(f"version {data[:size].hex()} is not known", field="version")
        try:
            return decoder.decode(data[size:])
        except (msgspec.MsgspecError, ValueError) as error:
            raise InvalidArgument(str(error), field=field) from error

    return Form(lambda sent: version() + encoder.encode(sent), decode)


def mapped(message: type[M]) -> Form[M]:
    """The MessagePack map of a struct whose fields all have defaults, for answers that people look
    at: a store of another version leaves fields out, or has more of them.

    Decoding raises NotReady for what is no such message: that store speaks another language.
    """
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(message)

    def decode(data: bytes) -> M:
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, ValueError) as error:
            raise NotReady(f"the store answers in another language: {error}") from error

    return Form(encoder.encode, decode)


NOTHING: Final[Form[None]] = Form(lambda _: b"", lambda _: None)
"""A message without content; what a peer puts there is not looked at."""
