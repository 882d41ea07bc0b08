"""watching: WatchEvents, and what the watchers of one store share.

Theory of operation. The events are in HAKeeper's replicated state under dense revisions, so they
are the same wherever they are read. A store asks for the newest ones EVENTS_POLL_S apart while it
has watchers, once for all of them: its own replica of shard 0 if it runs one, else another store.
It keeps the newest page. Watchers that have reached the page take from it; one that is further
behind asks for pages of its own until it has.

What a local replica has applied may be old, when its store is cut off. So the newest ones are asked
for linearizably every EVENTS_CONFIRM_S. Watchers that hear nothing are told how far they have seen
everything as often as that. When no such answer came for EVENTS_SILENT_S the watchers end with
NOT_READY, and go on at another store.

A watcher is bounded in memory by the message that is being written for it, and is cut off when it
takes none (`edge.guarded_stream`). A store has at most EVENT_WATCHERS_MAX watchers and
EVENT_WATCHERS_PER_IDENTITY_MAX of one identity.

INV-WATCH-1: a watcher is told every event behind its revision that it asked for, in order and once,
or ends with an error. What it has been told through is only moved forward by what was written.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from logservice_wire.errors import Busy, EventsCompacted, InvalidArgument, LogServiceError, NotReady
from logservice_wire.v1 import hakeeper_pb2

from logservice import bounds
from logservice.background import begin_task
from logservice.hakeeper.answers.queries import GetEvents
from logservice.hakeeper.commands.cluster_events import ClusterEvent
from logservice.invariants import invariant
from logservice.nodehost.agent.hakeeper_client import HAKeeperClient
from logservice.server.edge.call import Context

_NEWEST: Final = 2**62
"""No event has this revision: whoever asks for events behind it learns the newest one's."""


class EventFeed:
    """One per store."""

    def __init__(
        self, hakeeper: HAKeeperClient, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing is asked before somebody watches."""
        self._hakeeper = hakeeper
        self._clock = clock
        self._newest: deque[ClusterEvent] = deque(maxlen=bounds.HAKEEPER_EVENTS_PER_PAGE_MAX)
        self._last = 0
        self._confirmed_s = 0.0
        self._changed = asyncio.Event()
        self._watchers: Counter[str] = Counter()
        self._poller: asyncio.Task[None] | None = None

    @property
    def watchers(self) -> int:
        """How many watch here."""
        return self._watchers.total()

    @asynccontextmanager
    async def watched_by(self, identity: str, limit_s: float) -> AsyncIterator[int]:
        """Watch; yields the revision of the newest event. Raises Busy, and what asking raises."""
        if (
            self.watchers >= bounds.EVENT_WATCHERS_MAX
            or self._watchers[identity] >= bounds.EVENT_WATCHERS_PER_IDENTITY_MAX
        ):
            raise Busy("too many watchers of events", retry_after_ms=1000)
        self._watchers[identity] += 1
        try:
            page = await self._hakeeper.events(GetEvents(_NEWEST), limit_s, stale=False)
            self._confirmed_s = self._clock()
            if self._poller is None:
                self._newest.clear()
                self._last = page.last
                # INV-STORE-1: a feed that stands still would look like a quiet cluster.
                self._poller = begin_task(self._poll())
            yield page.last
        finally:
            self._watchers[identity] -= 1
            self._watchers += Counter()  # drops those who are at zero
            if not self._watchers and self._poller is not None:
                self._poller.cancel()
                self._poller = None

    async def behind(self, after: int) -> tuple[Sequence[ClusterEvent], int]:
        """The next events behind `after`, and the revision through which these are all. There may
        be none after EVENTS_CONFIRM_S. Raises EventsCompacted; NotReady when HAKeeper is silent.
        """
        deadline_s = self._clock() + bounds.EVENTS_CONFIRM_S
        while True:
            changed = self._changed
            found = await self._next(after)
            if found:
                return found, found[-1].revision
            now_s = self._clock()
            silent_s = now_s - self._confirmed_s
            if silent_s > bounds.EVENTS_SILENT_S:
                raise NotReady("HAKeeper is silent")
            if now_s >= deadline_s and silent_s < bounds.EVENTS_CONFIRM_S * 2:
                return (), after
            # A replica here that has not applied what is known elsewhere is asked again soon.
            wait_s = bounds.EVENTS_POLL_S if after < self._last else deadline_s - now_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(wait_s, bounds.EVENTS_POLL_S)):
                    await changed.wait()

    async def _next(self, after: int) -> Sequence[ClusterEvent]:
        kept = self._newest
        if kept and kept[0].revision <= after + 1 <= kept[-1].revision:
            first = after + 1 - kept[0].revision
            return [
                kept[number]
                for number in range(first, min(first + bounds.EVENTS_PER_MESSAGE_MAX, len(kept)))
            ]
        if after >= self._last:
            return ()
        query = GetEvents(after, bounds.EVENTS_PER_MESSAGE_MAX)
        page = await self._hakeeper.events(query, bounds.HAKEEPER_ATTEMPT_TIMEOUT_S, stale=True)
        if page.oldest > after + 1:
            raise EventsCompacted(oldest=page.oldest)
        return page.events

    async def _poll(self) -> None:
        """Ask again and again; ends when it is cancelled."""
        while True:
            await asyncio.sleep(bounds.EVENTS_POLL_S)
            stale = self._clock() - self._confirmed_s < bounds.EVENTS_CONFIRM_S
            try:
                page = await self._hakeeper.events(
                    GetEvents(self._last), bounds.HAKEEPER_ATTEMPT_TIMEOUT_S, stale=stale
                )
            except LogServiceError:
                continue
            if not stale:
                self._confirmed_s = self._clock()
            if page.events:
                self._newest.extend(page.events)
                self._last = page.events[-1].revision
            elif page.oldest > self._last + 1:
                self._newest.clear()
                self._last = page.oldest - 1
            else:
                continue
            self._changed.set()
            self._changed = asyncio.Event()


async def watch(
    feed: EventFeed,
    identity: str,
    limit_s: float,
    request: hakeeper_pb2.WatchEventsRequest,
    context: Context,
) -> None:
    """One WatchEvents: writes messages until the caller goes away."""
    kinds = frozenset(request.kinds)
    shard = request.shard if request.HasField("shard") else None
    async with feed.watched_by(identity, limit_s) as newest:
        after = request.after if request.HasField("after") else newest
        if after > newest:
            raise InvalidArgument(f"the newest event is {newest}", field="after")
        await context.write(hakeeper_pb2.WatchEventsResponse(revision=after))
        while True:
            found, through = await feed.behind(after)
            invariant(not found or found[0].revision == after + 1, "INV-WATCH-1", after=after)
            wanted = [
                one
                for one in found
                if (not kinds or one.kind in kinds) and (shard is None or one.shard == shard)
            ]
            await context.write(_response(wanted, through))
            after = through


def _response(events: Sequence[ClusterEvent], through: int) -> hakeeper_pb2.WatchEventsResponse:
    return hakeeper_pb2.WatchEventsResponse(
        events=[
            hakeeper_pb2.ClusterEvent(
                revision=one.revision,
                tick=one.tick,
                kind=one.kind,
                shard_id=one.shard,
                replica_id=one.replica,
                store=one.store,
                text=one.text,
            )
            for one in events
        ],
        revision=through,
    )
