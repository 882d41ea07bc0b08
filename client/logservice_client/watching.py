"""watching: the events of the cluster, past stores that go away.

A watch is a stream of one store. When it breaks, it goes on at another store behind the last
revision that was told, which is the same everywhere; so none is left out and none comes twice. A
store says at least every few seconds that it is still there, so one that says nothing for
WATCH_SILENCE_S is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in grpc-stubs
from logservice_wire.errors import LogServiceError, NotReady
from logservice_wire.rpcs import WATCH_EVENTS
from logservice_wire.v1 import hakeeper_pb2

from logservice_client.arguments import message, seconds
from logservice_client.bounds import TIMEOUT_DEFAULT_S, WATCH_SILENCE_S
from logservice_client.caller import Caller
from logservice_client.failure import answered, may_repeat, typed_failures
from logservice_client.pacing import Backoff, Deadline


async def watch_events(
    caller: Caller,
    after: int | None = None,
    *,
    kinds: Sequence[str] = (),
    shard_id: int | None = None,
    patience: float = TIMEOUT_DEFAULT_S,
) -> AsyncGenerator[hakeeper_pb2.WatchEventsResponse]:
    """What the stores say, one message after the other. See `HakeeperClient.watch_events`."""
    backoff = Backoff()
    deadline = Deadline(seconds(patience, "patience"))
    request = message(hakeeper_pb2.WatchEventsRequest, after=after, kinds=kinds, shard=shard_id)
    while True:
        address = ""
        try:
            with caller.life.under_way():
                address = await caller.router.pick_any(deadline)
            async with aclosing(_responses(caller, address, request)) as responses:
                async for response in responses:
                    request.after = response.revision
                    backoff.reset()
                    yield response
                    deadline = Deadline(patience)
            raise NotReady("the watch has ended")
        except LogServiceError as error:
            if address:
                caller.router.learn_failure(None, address, error)
            pause_s = backoff.next_s(error)
            if not may_repeat(error, mutating=False, idempotent=True) or (
                deadline.remaining_s() <= pause_s
            ):
                ended = answered(error, mutating=False)
                raise ended from ended.__cause__
            caller.reporter.retried(None, WATCH_EVENTS.name, address, error, pause_s)
        with caller.life.under_way():
            await asyncio.sleep(pause_s)


async def _responses(
    caller: Caller, address: str, request: hakeeper_pb2.WatchEventsRequest
) -> AsyncGenerator[hakeeper_pb2.WatchEventsResponse]:
    call = caller.pool.follow(address, WATCH_EVENTS)(request, metadata=caller.metadata())
    try:
        while True:
            try:
                with caller.life.under_way(), typed_failures(mutating=False):
                    async with asyncio.timeout(WATCH_SILENCE_S):
                        response = await call.read()
            except TimeoutError:
                raise NotReady(f"{address} says nothing any more") from None
            if response is EOF:
                return
            yield response
    finally:
        call.cancel()
