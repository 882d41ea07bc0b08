"""ClusterReporter: the report on the whole cluster that any store can give.

Theory of operation. A report combines two sources. HAKeeper's view says what should be and what
heartbeats reported. Every store's own `StoreStatus`, asked for by peer request, says what is:
latencies, writers, holds, lag, events. Which stores there are is HAKeeper's word, too. A store that
does not answer within ADMIN_PEER_WAIT_S is shown as such, with what HAKeeper last knew of it. If
HAKeeper cannot be asked, the report has the newest view that was seen, with its age, and shards
come from the stores' own statuses: an operator needs the report most when the cluster is at its
worst.

A replica of shard 0 here may have applied more than the newest view has. Its view is as old as
HAKeeper's last answer to this process, to a heartbeat or a question. If there never was one, the
age is unknown.

A report is made when it is asked for. A second question within ADMIN_CLUSTER_AGE_S gets the same
report, so that many pages cost as much as one. A caller that decides by the report what to do next
(the doctor between two steps of an upgrade) asks for one that is begun after its question. A report
made a moment earlier would still show a store as well that was just stopped. A report costs the
loop one pass over the replicas of the cluster, in slices, so that other work runs in between. To
keep that below a tenth of the loop, the next one begins no sooner than ten times as long after it,
whoever asks.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from logservice_wire.errors import LogServiceError

from logservice import bounds
from logservice.background import begin_task
from logservice.hakeeper.answers.views import ClusterView
from logservice.ids import HAKEEPER_SHARD, StoreId
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.peers.question import NOTHING, Asker, Form, question
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.server.monitor.cluster import rows as cluster_rows
from logservice.server.monitor.cluster.feed_tail import FeedTail
from logservice.server.monitor.cluster.rows import ClusterReport, HAKeeperAnswer, StoreAnswer
from logservice.server.monitor.own.reporter import StatusReporter
from logservice.server.monitor.own.status import StoreStatus, decode, encode

STATUS: Final = question("monitor.status", Asker.ENROLLED, NOTHING, Form(encode, decode))
"""Asks a store for its status."""

_BUSY_SHARE = 10
"""After a report that took t seconds of the loop none is made for ten times t."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A report with what it was made of. view: HAKeeper's, None when it never answered. statuses:
    of the stores that answered, without their replicas, which the rows of the report have.
    """

    report: ClusterReport
    view: ClusterView | None
    statuses: Mapping[str, StoreStatus]


class ClusterReporter:
    """One per store, on the loop thread."""

    def __init__(self, parts: StoreParts, reporter: StatusReporter) -> None:
        """Keep the parts, and answer other stores from now on."""
        self._parts = parts
        self._reporter = reporter
        self._clock = parts.host.clock
        self._view: ClusterView | None = None
        self._view_s: float | None = None
        self._error = ""
        self._newest: Sight | None = None
        self._good_until_s = 0.0
        self._rest_until_s = 0.0
        self._making: asyncio.Task[tuple[Sight, float]] | None = None
        self._feed = FeedTail(parts.client.events)
        parts.host.requests.register(STATUS, self._answer)

    async def report(self, *, made_now: bool = False) -> ClusterReport:
        """The report; all callers that wait share the one being made.

        `made_now`: it must be begun after this call.
        """
        return (await self.sight(made_now=made_now)).report

    async def sight(self, *, made_now: bool = False) -> Sight:
        """The report and what it was made of."""
        asked_s = self._clock.monotonic()
        if not made_now and self._newest is not None and asked_s < self._good_until_s:
            return self._newest
        while True:
            if self._making is None or self._making.done():
                self._making = begin_task(self._make(), awaited=True)
            sight, begun_s = await asyncio.shield(self._making)
            if not made_now or begun_s >= asked_s:
                return sight

    async def _answer(self, peer: PeerIdentity, asked: None) -> StoreStatus:
        return self._reporter.status()

    async def _make(self) -> tuple[Sight, float]:
        """Make a report; also returns when its first question was asked."""
        await asyncio.sleep(self._rest_until_s - self._clock.monotonic())
        begun_s = self._clock.monotonic()
        await self._ask_hakeeper()
        view = self._view
        words = await self._ask_stores(self._stores(view))
        if view is not None:
            await self._feed.follow(view.revision)
        started_s = self._clock.monotonic()
        word = HAKeeperAnswer(
            view,
            _since(self._view_s, started_s),
            self._error,
            _since(self._answered_s(), started_s),
        )
        shards = []
        for row in cluster_rows.shard_rows(word, words):
            shards.append(row)
            if len(shards) % bounds.ADMIN_ROWS_PER_SLICE == 0:
                await asyncio.sleep(0)
        report = cluster_rows.build(word, words, self._reporter.status(), self._feed.newest, shards)
        now_s = self._clock.monotonic()
        statuses = {
            store: msgspec.structs.replace(word.status, replicas=())
            for store, word in words.items()
            if word.status is not None
        }
        self._newest = sight = Sight(report, view, statuses)
        self._rest_until_s = now_s + _BUSY_SHARE * (now_s - started_s)
        self._good_until_s = max(now_s + bounds.ADMIN_CLUSTER_AGE_S, self._rest_until_s)
        return sight, begun_s

    def _stores(self, view: ClusterView | None) -> set[StoreId]:
        """The stores of the cluster, by HAKeeper's word. Until it has begun they are those that the
        configuration names; later that may name one that was forgotten.
        """
        known = set(self._parts.book.peer_addresses())
        hakeeper = [
            replica.store_id
            for shard in (view.shards if view is not None else ())
            if shard.shard_id == HAKEEPER_SHARD
            for replica in shard.replicas
        ]
        if view is None or not hakeeper:
            return known
        return known.intersection(hakeeper) | {store.store_id for store in view.stores}

    async def _ask_hakeeper(self) -> None:
        try:
            self._view = await self._parts.client.cluster(bounds.ADMIN_PEER_WAIT_S)
            self._view_s = self._clock.monotonic()
            self._error = ""
        except LogServiceError as error:
            self._error = str(error)
            await self._take_local_view()

    async def _take_local_view(self) -> None:
        """Take what the replica of shard 0 here has applied, if it is newer than the known view."""
        if self._parts.host.replicas.info(HAKEEPER_SHARD) is None:
            return
        try:
            view = await self._parts.client.cluster(bounds.ADMIN_PEER_WAIT_S, stale=True)
        except LogServiceError:
            return
        if self._view is None or view.tick > self._view.tick:
            self._view, self._view_s = view, self._answered_s()

    def _answered_s(self) -> float | None:
        """When HAKeeper last answered this process, to a heartbeat or a question."""
        heartbeats = self._parts.heartbeats
        beat_s = heartbeats.last_success_s if heartbeats is not None else None
        return max((at_s for at_s in (self._view_s, beat_s) if at_s is not None), default=None)

    async def _ask_stores(self, wanted: Iterable[StoreId]) -> dict[str, StoreAnswer]:
        slots = asyncio.Semaphore(bounds.ADMIN_STORES_AT_ONCE)

        async def ask(store: StoreId) -> StoreAnswer:
            async with slots:
                asked_s, asked_us = self._clock.monotonic(), self._clock.wall_us()
                try:
                    status = await self._parts.host.requests.ask(
                        store, STATUS, None, bounds.ADMIN_PEER_WAIT_S
                    )
                except LogServiceError as error:
                    return StoreAnswer(error=str(error))
                took_us = (self._clock.monotonic() - asked_s) * 1_000_000
                # It is compared as if the store had read its clock half-way. The way of the answer
                # may explain up to half of the time it took, so only what is beyond that half is
                # a difference of the clocks.
                offset_us = status.wall_time_us - asked_us - took_us / 2
                certain_us = math.copysign(max(0.0, abs(offset_us) - took_us / 2), offset_us)
                return StoreAnswer(status, took_us=int(took_us), clock_offset_us=int(certain_us))

        stores = sorted(wanted)
        found = await asyncio.gather(*(ask(store) for store in stores))
        return dict(zip(stores, found, strict=True))


def _since(at_s: float | None, now_s: float) -> float:
    return -1.0 if at_s is None else now_s - at_s
