"""following: a log from an LSN on, past replicas that go away; answer by answer.

Theory of operation. A Follow is a stream of one store. When it breaks, it is asked for again at
another replica, from the LSN behind what was handed out. So nothing is left out and nothing comes
twice, and that is not left to the stores:

INV-CLIENT-READ: runs are handed out in the order of their LSNs and without holes between them: each
answer goes on where the one before ended. The one exception is a follow that was asked to pass over
what is older than a time; there LSNs may be missing, and none comes twice. What does not fit raises
Discontinuity. (G3, checked here.)

The client may be closed between two answers, while nobody waits here; so each step says that it is
under way, and the whole does not (`life`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from logservice_wire.errors import LineageChanged, LogServiceError
from logservice_wire.read_answer import ReadAnswer
from logservice_wire.rpcs import FOLLOW
from logservice_wire.v1 import log_pb2

from logservice_client.caller import Caller
from logservice_client.failure import answered, may_repeat, typed_failures
from logservice_client.lag import Standing
from logservice_client.lineage import KnownLineage
from logservice_client.pacing import Backoff, Deadline
from logservice_client.read_result import Gap, Records, runs_of
from logservice_client.reporter import Outage


@dataclass(frozen=True, slots=True)
class Answer:
    """What one message of a store brought. next_lsn: where it goes on. at_tail: the replica had
    applied nothing behind it. tail_lsn: the newest LSN that it had applied.
    """

    items: list[Records | Gap]
    next_lsn: int
    at_tail: bool
    tail_lsn: int


class Following:
    """One follow. `wanted`: the first request; the later ones go on from the answers."""

    def __init__(
        self,
        caller: Caller,
        history: KnownLineage,
        wanted: log_pb2.FollowRequest,
        patience_s: float,
    ) -> None:
        """Nothing is asked before `answers`."""
        self._caller = caller
        self._history = history
        self._wanted = wanted
        self._patience_s = patience_s
        self._backoff = Backoff()
        self._holes = bool(wanted.from_timestamp_us or wanted.from_append_time_us)
        self._outage = Outage(wanted.shard_id, "follow")
        self._received = Standing(wanted.lsn)

    async def answers(self) -> AsyncGenerator[Answer]:
        """See `Shard.follow`. An answer may have no items."""
        reporter, shard = self._caller.reporter, self._wanted.shard_id
        reporter.follows(shard, self._received)
        try:
            async with aclosing(self._answers()) as answers:
                async for answer in answers:
                    yield answer
        finally:
            reporter.follows_no_more(shard, self._received)

    async def _answers(self) -> AsyncGenerator[Answer]:
        wanted = self._wanted
        deadline = Deadline(self._patience_s)
        while not 0 < wanted.until_lsn < wanted.lsn:
            self._history.check()
            address = ""
            try:
                with self._caller.life.under_way():
                    address = await self._caller.router.pick(wanted.shard_id, deadline, near=True)
                wanted.lineage = self._history.named
                async with aclosing(self._responses(address)) as responses:
                    async for response in responses:
                        answer = self._taken(response)
                        self._backoff.reset()
                        self._outage.went_on()
                        yield answer
                        if 0 < wanted.until_lsn < wanted.lsn:
                            return
                        deadline = Deadline(self._patience_s)
                return
            except LineageChanged as error:
                self._history.refused(error)
                raise
            except LogServiceError as error:
                if address:
                    self._caller.router.learn_failure(wanted.shard_id, address, error)
                pause_s = self._backoff.next_s(error)
                late = deadline.remaining_s() <= pause_s
                if late or not may_repeat(error, mutating=False, idempotent=True):
                    if late:
                        error = self._caller.router.explained(wanted.shard_id, error)
                    ended = answered(error, mutating=False)
                    raise ended from ended.__cause__
                self._outage.failed(error)
                self._caller.reporter.retried(wanted.shard_id, FOLLOW.name, address, error, pause_s)
            with self._caller.life.under_way():
                await asyncio.sleep(pause_s)

    def _taken(self, response: ReadAnswer) -> Answer:
        wanted = self._wanted
        self._history.heard(response.position)
        self._history.check()
        items = runs_of(response, wanted.lsn, holes=self._holes)
        next_lsn = max(wanted.lsn, response.next_lsn)
        if wanted.until_lsn:
            # Blocks are never cut by a store.
            next_lsn = min(next_lsn, wanted.until_lsn + 1)
            items = [
                item.until(wanted.until_lsn + 1)
                for item in items
                if item.first_lsn <= wanted.until_lsn
            ]
        wanted.lsn = next_lsn
        tail_lsn = response.position.applied_lsn
        self._count(items, next_lsn, tail_lsn)
        return Answer(items, next_lsn, next_lsn > tail_lsn, tail_lsn)

    def _count(self, items: list[Records | Gap], next_lsn: int, tail_lsn: int) -> None:
        reporter = self._caller.reporter
        if reporter.meter is None:
            return
        self._received.heard(tail_lsn)
        self._received.took(next_lsn, items[-1].append_time_us if items else 0)
        found = [item for item in items if isinstance(item, Records)]
        reporter.followed(
            self._wanted.shard_id,
            sum(item.record_count for item in found),
            sum(len(item.block.data) for item in found),
        )

    async def _responses(self, address: str) -> AsyncGenerator[ReadAnswer]:
        caller = self._caller
        request = log_pb2.FollowRequest()
        request.CopyFrom(self._wanted)  # gRPC reads it later
        call = caller.pool.follow(address, FOLLOW)(request, metadata=caller.metadata())
        responses = aiter(call)
        try:
            while True:
                with caller.life.under_way(), typed_failures(mutating=False):
                    response = await anext(responses, None)
                if response is None:
                    return
                yield response
        finally:
            call.cancel()
