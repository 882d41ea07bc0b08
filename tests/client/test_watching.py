"""A watch goes on past stores that go away: no event is left out, and none comes twice."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import logservice_client.watching
import pytest
from logservice_client import LogClient, SyncLogClient
from logservice_wire.errors import EventsCompacted, NotReady

from tests.client.fake_server import FakeCluster
from tests.client.running_fake import running_fake
from tests.waiting import eventually


async def revisions(client: LogClient, count: int, after: int | None = 0, **wanted: object) -> list:
    found = []
    watched = client.hakeeper.watch_events(after, **wanted)  # type: ignore[arg-type]
    async with aclosing(watched) as events:
        async for event in events:
            found.append(event.revision)
            if len(found) == count:
                break
    return found


async def test_a_watch_that_breaks_goes_on_behind_the_last_event(
    cluster: FakeCluster, client: LogClient
) -> None:
    cluster.events += ["leader", "membership"]
    cluster.events_break = 2

    async def more() -> None:
        await eventually(lambda: not cluster.events_break)
        cluster.events.append("phase")

    adding = asyncio.create_task(more())
    assert await revisions(client, 3) == [1, 2, 3]
    await adding


async def test_a_store_that_dies_is_left(cluster: FakeCluster, client: LogClient) -> None:
    cluster.events += ["leader"]
    found = []
    async with aclosing(client.hakeeper.watch_events(0)) as events:
        async for event in events:
            found.append(event.revision)
            if len(found) == 2:
                break
            watched_at = [one for one in cluster.stores if "WatchEvents" in one.calls]
            await watched_at[0].kill()
            cluster.events.append("store-down")
    assert found == [1, 2]


async def test_from_now_on(cluster: FakeCluster, client: LogClient) -> None:
    cluster.events += ["leader"] * 5

    async def later() -> None:
        await eventually(lambda: any("WatchEvents" in one.calls for one in cluster.stores))
        cluster.events.append("phase")

    adding = asyncio.create_task(later())
    assert await revisions(client, 1, None) == [6]
    await adding


async def test_only_some_kinds(cluster: FakeCluster, client: LogClient) -> None:
    cluster.events += ["leader", "phase", "leader"]
    assert await revisions(client, 2, kinds=["leader"]) == [1, 3]


async def test_messages_say_how_far_a_watcher_of_few_kinds_has_seen(
    cluster: FakeCluster, client: LogClient
) -> None:
    cluster.events += ["leader", "phase"]
    async with aclosing(client.hakeeper.event_messages(0, kinds=["none"])) as messages:
        async for message in messages:
            assert not message.events
            if message.revision == 2:
                break


async def test_who_fell_behind_learns_the_oldest_event(
    cluster: FakeCluster, client: LogClient
) -> None:
    cluster.events += ["leader"] * 9
    cluster.compacted = 5
    with pytest.raises(EventsCompacted) as error:
        await revisions(client, 1)
    assert error.value.number("oldest") == 6
    assert await revisions(client, 4, 5) == [6, 7, 8, 9]


async def test_a_store_that_says_nothing_is_left(
    cluster: FakeCluster, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logservice_client.watching, "WATCH_SILENCE_S", 0.1)
    cluster.events += ["leader"]
    for one in cluster.stores:
        one.silent = True
    with pytest.raises(NotReady, match="says nothing"):
        await revisions(client, 1, patience=3.0)
    assert sum("WatchEvents" in one.calls for one in cluster.stores) > 1


def test_from_a_thread() -> None:
    with running_fake(stores=1) as cluster, SyncLogClient(cluster.endpoints) as client:
        cluster.events += ["leader", "phase"]
        events = client.hakeeper.watch_events(0)
        assert [next(events).kind, next(events).kind] == ["leader", "phase"]
        events.close()  # type: ignore[attr-defined]
