"""Network: how fast another store answers, over the connection that the shards use.

Theory of operation. The question ``measure.echo`` carries a number and bytes; the answer repeats
the number and says how many bytes came. Small ones, one after the other, measure the round trip;
large ones, a few at a time, how much goes through. Requests and messages of shards take turns on
the connection, so nothing is held up by more than one such request. The clock is asked for with
each small one's neighbour, the question that clocks are compared by (`clocks.clock_watch`).

A peer that answers late, or something else, is a finding and not an error: it is judged "bad".

INV-MEASURE-2: a measurement asks for no more bytes than SELF_TEST_NETWORK_BYTES_MAX and no longer
than SELF_TEST_PART_S for each part and one SELF_TEST_ANSWER_S; it believes no answer that does not
say what was sent.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final

from logservice_wire.errors import InvalidArgument, LogServiceError
from logservice_wire.value import value

from logservice import bounds
from logservice.background import begin_task
from logservice.ids import StoreId
from logservice.nodehost.clocks.clock_watch import TIME
from logservice.nodehost.measuring.figure import (
    Figure,
    Verdict,
    at_least,
    at_most,
    fact,
    quantile,
)
from logservice.nodehost.peers.question import Asker, Question
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.transport.seam import PeerIdentity

_NUMBER: Final = struct.Struct("<Q")
_ANSWER: Final = struct.Struct("<QQ")
_MIB: Final = 1 << 20


@value
class Sent:
    """What is sent: a number, and bytes that mean nothing."""

    number: int
    content: bytes


@value
class Heard:
    """What came: the number, and how many bytes."""

    number: int
    size: int


def _decode(body: bytes) -> Sent:
    if not _NUMBER.size <= len(body) <= _NUMBER.size + bounds.SELF_TEST_REQUEST_BYTES_MAX:
        raise InvalidArgument(f"{len(body)} bytes are no echo", field="body")
    return Sent(_NUMBER.unpack_from(body)[0], body[_NUMBER.size :])


def _decode_answer(body: bytes, sent: Sent) -> Heard:
    if body != _ANSWER.pack(sent.number, len(sent.content)):
        raise InvalidArgument("the answer is not about what was sent", field="answer")
    return Heard(sent.number, len(sent.content))


ECHO: Final[Question[Sent, Heard]] = Question(
    "measure.echo",
    Asker.ENROLLED,
    lambda sent: _NUMBER.pack(sent.number) + sent.content,
    lambda body, _: _decode(body),
    lambda heard: _ANSWER.pack(heard.number, heard.size),
    _decode_answer,
)


async def answer_echo(peer: PeerIdentity, asked: Sent) -> Heard:
    """The handler of ECHO."""
    return Heard(asked.number, len(asked.content))


class Way:
    """The way to one other store."""

    def __init__(
        self,
        requests: PeerRequests,
        store: StoreId,
        now_s: Callable[[], float],
        wall_us: Callable[[], int],
    ) -> None:
        self._requests = requests
        self._store = store
        self._now_s = now_s
        self._wall_us = wall_us
        self._number = 0

    async def measure(self) -> list[Figure]:
        """Measure it. Raises nothing of the peer's."""
        try:
            return [*await self._round_trips(), await self._throughput(), await self._clock()]
        except LogServiceError as error:
            return [fact("answers", f"{error.reason.value}: {error.message}", Verdict.BAD)]

    async def _ask(self, content: bytes) -> None:
        self._number += 1
        sent = Sent(self._number, content)
        await self._requests.ask(self._store, ECHO, sent, bounds.SELF_TEST_ANSWER_S)

    async def _round_trips(self) -> list[Figure]:
        took_us: list[float] = []
        until_s = self._now_s() + bounds.SELF_TEST_PART_S
        while len(took_us) < bounds.SELF_TEST_ECHOES_MAX and (
            not took_us or self._now_s() < until_s
        ):
            began_s = self._now_s()
            await self._ask(b"")
            took_us.append((self._now_s() - began_s) * 1e6)
        took_us.sort()
        slow, bad = bounds.SELF_TEST_TRIP_SLOW_US, bounds.SELF_TEST_TRIP_BAD_US
        return [
            at_most("round trip p50", quantile(took_us, 0.5), "us", slow, bad),
            at_most("round trip p99", quantile(took_us, 0.99), "us", 4 * slow, 4 * bad),
            at_most("round trip max", took_us[-1], "us", 8 * slow, 8 * bad),
        ]

    async def _throughput(self) -> Figure:
        content = bytes(bounds.SELF_TEST_REQUEST_BYTES_MAX)
        left = bounds.SELF_TEST_NETWORK_BYTES_MAX // len(content)
        until_s = self._now_s() + bounds.SELF_TEST_PART_S
        sent = 0

        async def some() -> None:
            nonlocal left, sent
            while left > 0 and self._now_s() < until_s:
                left -= 1
                await self._ask(content)
                sent += len(content)

        began_s = self._now_s()
        count = bounds.SELF_TEST_REQUESTS_AT_ONCE
        tasks = [begin_task(some(), awaited=True) for _ in range(count)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        rate = sent / _MIB / max(self._now_s() - began_s, 1e-6)
        slow, bad = bounds.SELF_TEST_NETWORK_SLOW_MIB_PER_S, bounds.SELF_TEST_NETWORK_BAD_MIB_PER_S
        return at_least("throughput", rate, "MiB/s", slow, bad)

    async def _clock(self) -> Figure:
        began_s, own_us = self._now_s(), self._wall_us()
        answer = await self._requests.ask(self._store, TIME, None, bounds.SELF_TEST_ANSWER_S)
        half_us = (self._now_s() - began_s) * 1e6 / 2
        off_ms = (answer.wall_us - own_us - half_us) / 1000
        far_ms = bounds.CLOCK_SKEW_MAX_S * 1000
        text = f"its clock is {abs(off_ms):.1f} ms {'ahead' if off_ms > 0 else 'behind'}"
        return at_most("clock offset", abs(off_ms), "ms", far_ms / 10, far_ms, text)
