"""The newest events of the cluster, as a report has them."""

from __future__ import annotations

import asyncio

import pytest
from logservice_wire.errors import NotReady

from logservice import bounds
from logservice.hakeeper.answers.queries import GetEvents
from logservice.hakeeper.commands.cluster_events import ClusterEvent, EventPage
from logservice.server.monitor.cluster.feed_tail import FeedTail

SHOWN = bounds.ADMIN_FEED_EVENTS


class Feed:
    """Some replica of shard 0, which has applied the events through `last`."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.asked: list[int] = []
        self.silent = False

    async def __call__(self, query: GetEvents, timeout_s: float, *, stale: bool) -> EventPage:
        self.asked.append(query.after)
        if self.silent:
            raise NotReady("no leader")
        found = tuple(
            ClusterEvent(one, tick=one, kind="leader")
            for one in range(query.after + 1, self.last + 1)
        )
        return EventPage(found, oldest=1, last=self.last)


def kept(tail: FeedTail) -> list[int]:
    return [event.revision for event in tail.newest]


def follow(tail: FeedTail, revision: int) -> list[int]:
    asyncio.run(tail.follow(revision))
    return kept(tail)


def test_it_asks_only_for_what_is_new() -> None:
    feed = Feed(3)
    tail = FeedTail(feed)
    assert follow(tail, 0) == []
    assert follow(tail, 3) == [1, 2, 3]
    assert follow(tail, 3) == [1, 2, 3]
    feed.last = 5
    assert follow(tail, 5) == [1, 2, 3, 4, 5]
    assert follow(tail, 4) == [1, 2, 3, 4, 5], "an older view tells nothing new"
    assert feed.asked == [0, 3]


@pytest.mark.parametrize("revision", [SHOWN - 1, SHOWN, SHOWN + 1, 10 * SHOWN])
def test_it_keeps_the_newest(revision: int) -> None:
    """It reaches ADMIN_FEED_EVENTS."""
    feed = Feed(revision)
    found = follow(FeedTail(feed), revision)
    assert found == list(range(max(0, revision - SHOWN) + 1, revision + 1))


def test_a_gap_is_never_shown_as_none() -> None:
    feed = Feed(2)
    tail = FeedTail(feed)
    follow(tail, 2)
    feed.last = 5 * SHOWN
    assert follow(tail, feed.last) == list(range(4 * SHOWN + 1, 5 * SHOWN + 1))


def test_without_an_answer_what_is_known_stays() -> None:
    feed = Feed(2)
    tail = FeedTail(feed)
    follow(tail, 2)
    feed.silent = True
    assert follow(tail, 9) == [1, 2]
    feed.silent = False
    assert follow(tail, 9) == [1, 2], "that replica has not applied them yet"
    feed.last = 9
    assert follow(tail, 9) == list(range(1, 10))
