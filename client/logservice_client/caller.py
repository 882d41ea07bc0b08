"""Caller: one unary call, repeated within its deadline as far as that is safe.

An attempt goes to a connected address. Afterwards either the answer is known, or the failure says
what may be done (`failure.may_repeat`): another attempt, elsewhere if the replica was the trouble,
after a jittered pause. When the deadline ends the repetition, the last failure is raised; but once
any attempt of a mutating call had an unknown outcome, "not applied" would be a lie, and
UnknownOutcome is raised instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from logservice_wire.errors import LogServiceError, Outcome, Reason, UnknownOutcome
from logservice_wire.rpcs import GET_SHARD_STATUS, READ, Rpc

from logservice_client.append_streams import AppendStreams
from logservice_client.arguments import seconds
from logservice_client.bounds import ATTEMPT_TIMEOUT_S, HALTED_REPLICAS_MAX, TIMEOUT_MAX_S
from logservice_client.channels import ChannelPool
from logservice_client.failure import REPEATABLE, answered, may_repeat, typed_failures
from logservice_client.life import Life, UnderWay
from logservice_client.pacing import LEAST_S, Backoff, Deadline
from logservice_client.reporter import Reporter
from logservice_client.routing import Router

NEAR: Final[frozenset[Rpc[Any, Any]]] = frozenset({READ, GET_SHARD_STATUS})
"""What a replica in the client's zone is asked for before the leader is."""

AFTER_UNKNOWN: Final = "after_unknown"
"""Metadata key: an attempt before the one that failed with this error may have taken effect."""

Traceparent = Callable[[], str]
"""Returns the W3C trace context that the present call belongs to, "" for none."""

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Caller:
    """Calls of one client."""

    def __init__(
        self,
        pool: ChannelPool,
        router: Router,
        traceparent: Traceparent | None = None,
        reporter: Reporter | None = None,
        life: Life | None = None,
    ) -> None:
        """Use the client's connections and routes. `traceparent`: see `LogClient`."""
        self.life = life or Life()
        self.pool = pool
        self.streams = AppendStreams(pool)
        self.router = router
        self.traceparent = traceparent
        self.reporter = reporter or Reporter()

    def metadata(self) -> tuple[tuple[str, str], ...] | None:
        """The metadata of a call that is made here and now."""
        found = self.traceparent() if self.traceparent is not None else ""
        return (("traceparent", found),) if found else None

    async def call(
        self,
        shard: int | None,
        rpc: Rpc[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float | None = None,
        *,
        address: str = "",
    ) -> ResponseT:
        """Call `rpc` at a replica of `shard`, or at any store when `shard` is None. With `address`
        every attempt goes there: for what that replica alone can say.

        Raises the error that the server answered, NotReady or another retryable one when the
        deadline passed without an effect, UnknownOutcome when a mutating call may have had one.
        """
        deadline_s = seconds(timeout_s)
        with self.life.under_way() as wait:
            return await self._repeated(wait, shard, rpc, request, Deadline(deadline_s), address)

    async def _repeated(
        self,
        wait: UnderWay,
        shard: int | None,
        rpc: Rpc[RequestT, ResponseT],
        request: RequestT,
        deadline: Deadline,
        only: str,
    ) -> ResponseT:
        backoff = Backoff()
        attempt_s = ATTEMPT_TIMEOUT_S
        unknown: LogServiceError | None = None
        halted = 0
        while True:
            address = ""
            try:
                if only:
                    address = await self.router.connect_first([only], deadline)
                elif shard is None:
                    address = await self.router.pick_any(deadline)
                else:
                    address = await self.router.pick(shard, deadline, near=rpc in NEAR)
                limit_s = deadline.remaining_s()
                if rpc.idempotent:
                    limit_s, attempt_s = min(limit_s, attempt_s), attempt_s * 2
                wait.maybe_applied |= rpc.mutates
                return await self._attempt(address, shard, rpc, request, limit_s)
            except LogServiceError as error:
                if address:
                    self.router.learn_failure(shard, address, error)
                elif error.reason is Reason.SHARD_NOT_FOUND:
                    raise
                if rpc.mutates and error.outcome is Outcome.UNKNOWN:
                    unknown = error
                wait.maybe_applied = unknown is not None
                halted += error.reason is Reason.HALTED
                pause_s = backoff.next_s(error)
                if (
                    halted >= HALTED_REPLICAS_MAX
                    or (shard is None and _is_hakeepers(error))
                    or deadline.remaining_s() <= pause_s
                    or not may_repeat(error, mutating=rpc.mutates, idempotent=rpc.idempotent)
                ):
                    if shard is not None and deadline.remaining_s() <= pause_s:
                        error = self.router.explained(shard, error)
                    ended = answered(_honest(error, unknown), mutating=rpc.mutates)
                    # An error that is raised from itself hides the failure of gRPC beneath it.
                    raise ended from ended.__cause__
                self.reporter.retried(shard, rpc.name, address, error, pause_s)
            await asyncio.sleep(pause_s)

    async def _attempt(
        self,
        address: str,
        shard: int | None,
        rpc: Rpc[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float,
    ) -> ResponseT:
        with typed_failures(mutating=rpc.mutates):
            response: ResponseT = await self.pool.unary(address, rpc)(
                request,
                timeout=min(max(timeout_s, LEAST_S), TIMEOUT_MAX_S),
                metadata=self.metadata(),
            )
        self.router.learn_answer(address)
        if shard is not None:
            self.router.learn_position(shard, response.position)  # type: ignore[attr-defined]
        return response


def _is_hakeepers(error: LogServiceError) -> bool:
    """Whether it is HAKeeper that says that there is no such log, and not a store that says that it
    has no replica of shard 0.
    """
    return error.reason is Reason.SHARD_NOT_FOUND and error.metadata.get("shard") != "0"


def _honest(error: LogServiceError, unknown: LogServiceError | None) -> LogServiceError:
    """What the caller is told when `error` ends a call that had an `unknown` attempt before."""
    if unknown is None or unknown is error:
        return error
    if error.reason in REPEATABLE:
        honest: LogServiceError = UnknownOutcome(error.message)
        honest.metadata = dict(error.metadata)
        honest.__cause__ = error
        return honest
    error.metadata = {**error.metadata, AFTER_UNKNOWN: "true"}
    return error
