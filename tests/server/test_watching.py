"""WatchEvents at one store: every event in order and once, bounded watchers, honest silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from logservice_wire.errors import Busy, EventsCompacted, InvalidArgument, NotReady
from logservice_wire.v1 import hakeeper_pb2

from logservice import bounds
from logservice.background import BROKEN
from logservice.hakeeper import feed
from logservice.hakeeper.answers.queries import GetEvents
from logservice.hakeeper.commands.cluster_events import EventKind, EventPage
from logservice.hakeeper.state import State
from logservice.server.services.watching import EventFeed, watch


class Keeper:
    """Shard 0 as this store reaches it. `applied`: what a replica here has applied, if it is not
    everything.
    """

    def __init__(self) -> None:
        self.state = State(cluster_version=2)
        self.applied: int | None = None
        self.fails = False
        self.asked: list[tuple[GetEvents, bool]] = []

    def tell(self, count: int = 1, kind: EventKind = EventKind.LEADER, shard: int = 1) -> None:
        for _ in range(count):
            feed.tell(self.state, kind, shard=shard)

    async def events(self, query: GetEvents, timeout_s: float, *, stale: bool) -> EventPage:
        self.asked.append((query, stale))
        if self.fails:
            raise NotReady("HAKeeper has no leader")
        page = feed.page(self.state, query.after, query.limit)
        if stale and self.applied is not None:
            known = tuple(one for one in page.events if one.revision <= self.applied)
            return EventPage(known, page.oldest, self.applied)
        return page


class Written:
    """The context of a watch. `stuck`: the watcher takes nothing any more."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[hakeeper_pb2.WatchEventsResponse] = asyncio.Queue()
        self.stuck = False

    async def write(self, message: hakeeper_pb2.WatchEventsResponse) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        self.messages.put_nowait(message)


class Watch:
    """One watcher, running."""

    def __init__(self, events: EventFeed, identity: str = "me", **request: Any) -> None:
        self.context = Written()
        asked = hakeeper_pb2.WatchEventsRequest(**request)
        context: Any = self.context
        self.task = asyncio.create_task(watch(events, identity, 1.0, asked, context))

    async def message(self) -> hakeeper_pb2.WatchEventsResponse:
        return await asyncio.wait_for(self.context.messages.get(), 5.0)

    async def revisions(self, through: int) -> list[int]:
        found: list[int] = []
        while True:
            message = await self.message()
            found += [one.revision for one in message.events]
            if message.revision >= through:
                assert message.revision == through
                return found

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setattr(bounds, "EVENTS_POLL_S", 0.005)
    monkeypatch.setattr(bounds, "EVENTS_CONFIRM_S", 0.05)
    return Keeper()


@pytest_asyncio.fixture
async def events(keeper: Keeper) -> AsyncIterator[EventFeed]:
    client: Any = keeper
    yield EventFeed(client)


async def test_every_event_once_and_in_order(keeper: Keeper, events: EventFeed) -> None:
    keeper.tell(700)
    watcher = Watch(events, after=0)
    assert (await watcher.message()).revision == 0
    assert (await watcher.message()).revision == bounds.EVENTS_PER_MESSAGE_MAX
    assert await watcher.revisions(700) == list(range(bounds.EVENTS_PER_MESSAGE_MAX + 1, 701))
    keeper.tell(3)
    assert await watcher.revisions(703) == [701, 702, 703]
    keeper.tell(bounds.HAKEEPER_EVENTS_PER_PAGE_MAX + 300)
    last = keeper.state.feed.last
    assert await watcher.revisions(last) == list(range(704, last + 1))
    await watcher.end()


async def test_from_now_on(keeper: Keeper, events: EventFeed) -> None:
    keeper.tell(5)
    watcher = Watch(events)
    first = await watcher.message()
    assert (first.revision, len(first.events)) == (5, 0)
    keeper.tell()
    assert await watcher.revisions(6) == [6]
    await watcher.end()


async def test_only_what_was_asked_for(keeper: Keeper, events: EventFeed) -> None:
    keeper.tell(2)
    keeper.tell(kind=EventKind.PHASE, shard=0)
    keeper.tell(shard=7)
    by_kind = Watch(events, after=0, kinds=["phase"])
    by_shard = Watch(events, after=0, shard=7)
    assert await by_kind.revisions(4) == [3]
    assert await by_shard.revisions(4) == [4]
    await by_kind.end()
    await by_shard.end()


async def test_watchers_share_the_asking(keeper: Keeper, events: EventFeed) -> None:
    watchers = [Watch(events) for _ in range(20)]
    for one in watchers:
        await one.message()
    keeper.asked.clear()
    keeper.tell(3)
    for one in watchers:
        assert await one.revisions(3) == [1, 2, 3]
    assert sum(query.after == 0 for query, _ in keeper.asked) < len(watchers)
    for one in watchers:
        await one.end()
    assert events.watchers == 0


async def test_nobody_is_asked_when_nobody_watches(keeper: Keeper, events: EventFeed) -> None:
    watcher = Watch(events)
    await watcher.message()
    await watcher.end()
    keeper.asked.clear()
    await asyncio.sleep(10 * bounds.EVENTS_POLL_S)
    assert keeper.asked == []
    keeper.tell(2)
    again = Watch(events, after=0)
    assert await again.revisions(2) == [1, 2]
    await again.end()


async def test_who_fell_behind_is_told_the_oldest(keeper: Keeper, events: EventFeed) -> None:
    keeper.tell(bounds.HAKEEPER_FEED_EVENTS_MAX + 9)
    with pytest.raises(EventsCompacted) as error:
        await Watch(events, after=8).task
    assert error.value.number("oldest") == 10
    watcher = Watch(events, after=9)
    last = keeper.state.feed.last
    assert await watcher.revisions(last) == list(range(10, last + 1))
    await watcher.end()
    assert events.watchers == 0


async def test_an_event_that_is_not_there_yet_cannot_be_passed(
    keeper: Keeper, events: EventFeed
) -> None:
    keeper.tell(3)
    with pytest.raises(InvalidArgument) as error:
        await Watch(events, after=4).task
    assert error.value.metadata["field"] == "after"


async def test_a_replica_here_that_is_behind_loses_no_event(
    keeper: Keeper, events: EventFeed
) -> None:
    keeper.tell(10)
    keeper.applied = 4
    watcher = Watch(events, after=0)
    first = await watcher.message()
    assert first.revision == 0
    found = await watcher.revisions(4)
    keeper.applied = None
    assert found + await watcher.revisions(10) == list(range(1, 11))
    await watcher.end()


async def test_a_quiet_cluster_is_confirmed(keeper: Keeper, events: EventFeed) -> None:
    keeper.tell(2)
    watcher = Watch(events)
    await watcher.message()
    keeper.asked.clear()
    for _ in range(3):
        quiet = await watcher.message()
        assert (quiet.revision, len(quiet.events)) == (2, 0)
    assert any(not stale for _, stale in keeper.asked)
    await watcher.end()


async def test_silence_of_hakeeper_is_no_quiet_cluster(
    keeper: Keeper, events: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "EVENTS_SILENT_S", 0.2)
    watcher = Watch(events)
    await watcher.message()
    keeper.fails = True
    with pytest.raises(NotReady, match="silent"):
        await watcher.task


async def test_an_election_is_waited_for(keeper: Keeper, events: EventFeed) -> None:
    watcher = Watch(events)
    await watcher.message()
    keeper.fails = True
    await asyncio.sleep(20 * bounds.EVENTS_POLL_S)
    keeper.tell(2)
    keeper.fails = False
    assert await watcher.revisions(2) == [1, 2]
    await watcher.end()


async def test_watchers_are_bounded(
    keeper: Keeper, events: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "EVENT_WATCHERS_MAX", bounds.EVENT_WATCHERS_PER_IDENTITY_MAX + 1)
    async with AsyncExitStack() as watching_now:
        for _ in range(bounds.EVENT_WATCHERS_PER_IDENTITY_MAX):
            await watching_now.enter_async_context(events.watched_by("a", 1.0))
        with pytest.raises(Busy):
            await watching_now.enter_async_context(events.watched_by("a", 1.0))
        await watching_now.enter_async_context(events.watched_by("b", 1.0))
        with pytest.raises(Busy):
            await watching_now.enter_async_context(events.watched_by("c", 1.0))
    assert events.watchers == 0
    async with events.watched_by("a", 1.0):
        assert events.watchers == 1


async def test_a_feed_that_breaks_ends_the_store(
    keeper: Keeper, events: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-STORE-1, INV-TASK-END: the handler of a store's loop ends it."""
    crashed = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: crashed.set_result(context["exception"] if BROKEN in context else None)
    )
    watcher = Watch(events)
    await watcher.message()
    monkeypatch.setattr(keeper, "events", None)
    assert isinstance(await asyncio.wait_for(crashed, 5.0), TypeError)
    await watcher.end()
