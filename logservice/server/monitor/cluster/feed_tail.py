"""FeedTail: the newest events of the cluster, for the report.

Theory of operation. HAKeeper's view names the revision of the newest event that it has the effect
of. When that is newer than what is known here, the events in between are asked for once for each
report, and of those only as many as are shown. Any replica of shard 0 may answer: the events of a
revision are the same everywhere, and one that has not applied them yet answers the next time.
Without an answer the report has the events that are known, which is what a person needs then.
What is kept is consecutive, because a page is (`HAKeeperClient.events`). A page that does not
follow what is known takes its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from logservice_wire.errors import LogServiceError

from logservice import bounds
from logservice.hakeeper.answers.queries import GetEvents
from logservice.hakeeper.commands.cluster_events import ClusterEvent, EventPage


class Ask(Protocol):
    """`HAKeeperClient.events`."""

    async def __call__(self, query: GetEvents, timeout_s: float, *, stale: bool) -> EventPage:
        """Events behind a revision."""


class FeedTail:
    """One per reporter."""

    def __init__(self, ask: Ask) -> None:
        """Nothing is asked before `follow`."""
        self._ask = ask
        self._kept: deque[ClusterEvent] = deque(maxlen=bounds.ADMIN_FEED_EVENTS)

    @property
    def newest(self) -> Sequence[ClusterEvent]:
        """The events, the oldest one first."""
        return tuple(self._kept)

    async def follow(self, revision: int) -> None:
        """Fetch what is missing through `revision`; at cluster version 1 that is 0."""
        known = self._kept[-1].revision if self._kept else 0
        if revision <= known:
            return
        after = max(known, revision - bounds.ADMIN_FEED_EVENTS)
        try:
            page = await self._ask(GetEvents(after), bounds.ADMIN_PEER_WAIT_S, stale=True)
        except LogServiceError:
            return
        if page.events and after > known:
            self._kept.clear()
        self._kept.extend(page.events)
