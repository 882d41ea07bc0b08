"""Console: what a page shows beyond the report: histories, one store, one shard, claims.

Theory of operation. What a store alone knows is asked for at that store, by peer requests, when
somebody looks at it; so it costs nothing while nobody looks, and any store can show every other
one. Each answer is bounded. A store that does not answer within ADMIN_PEER_WAIT_S is named as
silent, and the rest is shown.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from logservice_wire.errors import InvalidArgument, LogServiceError, ShardNotFound
from msgspec import Struct

from logservice import bounds
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.peers.question import Asker, Question, mapped, packed, question
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.server.monitor.cluster.report import ClusterReporter, Sight
from logservice.server.monitor.cluster.rows import OperatorRow, ShardRow, StoreRow
from logservice.server.monitor.cluster.work import Work, work
from logservice.server.monitor.own.claims import Claims, ClaimsQuestion, LocalClaims, together
from logservice.server.monitor.own.history import History, HistoryQuestion, Series
from logservice.server.monitor.own.shard_inside import ShardInside, ShardQuestion, ShardsInside
from logservice.server.monitor.own.status import StoreStatus

Q = TypeVar("Q")
A = TypeVar("A")


def _version() -> bytes:
    return b"\x01"


HISTORY: Final = question(
    "monitor.history", Asker.ENROLLED, packed(HistoryQuestion, _version), mapped(Series)
)
"""Asks a store for a history."""

SHARD: Final = question(
    "monitor.shard", Asker.ENROLLED, packed(ShardQuestion, _version), mapped(ShardInside)
)
"""Asks a store what it knows of its replica of a shard."""

CLAIMS: Final = question(
    "monitor.claims", Asker.ENROLLED, packed(ClaimsQuestion, _version), mapped(Claims)
)
"""Asks a store for claims of the logs that it leads."""


class StoreDetail(Struct, frozen=True, kw_only=True):
    """One store. status: what it says of itself, without its replicas; None when it is silent."""

    row: StoreRow
    status: StoreStatus | None
    time_us: int
    highest_version: int = 0
    used_version: int = 0


class MemberDetail(Struct, frozen=True, kw_only=True):
    """What one member's store says of its replica, or why it says nothing."""

    store: str
    inside: ShardInside | None = None
    error: str = ""


class ShardDetail(Struct, frozen=True, kw_only=True):
    """One shard. The leader's store, where it is known, is the first of the members."""

    row: ShardRow
    members: tuple[MemberDetail, ...]
    operators: tuple[OperatorRow, ...]
    time_us: int


class Console:
    """One per store, on the loop thread."""

    def __init__(
        self,
        parts: StoreParts,
        cluster: ClusterReporter,
        history: History,
        claims: LocalClaims,
        shards: ShardsInside,
    ) -> None:
        """Answers other stores from now on."""
        self._requests = parts.host.requests
        self._cluster = cluster

        async def series(_: PeerIdentity, asked: HistoryQuestion) -> Series:
            return history.series(asked)

        async def claims_here(_: PeerIdentity, asked: ClaimsQuestion) -> Claims:
            return await claims.page(asked)

        async def inside(_: PeerIdentity, asked: ShardQuestion) -> ShardInside:
            return shards.of(asked.shard)

        self._requests.register(HISTORY, series)
        self._requests.register(CLAIMS, claims_here)
        self._requests.register(SHARD, inside)

    async def sight(self) -> Sight:
        """See `ClusterReporter.sight`."""
        return await self._cluster.sight()

    async def work(self) -> Work:
        """What is under way."""
        return work(await self.sight())

    async def history(self, store: str, span: str) -> Series:
        """Of one store; "" is the one that is asked. Raises what `_ask` raises, and InvalidArgument
        for a store that nobody knows.
        """
        sight = await self.sight()
        asked = store or sight.report.cluster.asked_store
        _row_of(sight, asked)
        return await self._ask(asked, HISTORY, HistoryQuestion(span))

    async def store(self, store: str) -> StoreDetail:
        """One store. Raises InvalidArgument when nobody knows it."""
        sight = await self.sight()
        row = _row_of(sight, store)
        views = sight.view.stores if sight.view is not None else ()
        view = next((one for one in views if one.store_id == store), None)
        return StoreDetail(
            row=row,
            status=sight.statuses.get(store),
            time_us=sight.report.cluster.time_us,
            highest_version=view.highest_version if view is not None else 0,
            used_version=view.used_version if view is not None else 0,
        )

    async def shard(self, shard: int) -> ShardDetail:
        """One shard. Raises ShardNotFound."""
        report = (await self.sight()).report
        row = next((one for one in report.shards if one.shard == shard), None)
        if row is None:
            raise ShardNotFound(f"no shard {shard}", shard=shard)
        stores = sorted(
            {one.store for one in row.replicas}, key=lambda one: (one != row.leader_store, one)
        )[: bounds.ADMIN_STORES_AT_ONCE]

        async def ask(store: str) -> MemberDetail:
            try:
                inside = await self._ask(store, SHARD, ShardQuestion(shard))
            except LogServiceError as error:
                return MemberDetail(store=store, error=str(error))
            return MemberDetail(store=store, inside=inside)

        return ShardDetail(
            row=row,
            members=tuple(await asyncio.gather(*map(ask, stores))),
            operators=tuple(one for one in report.operators if one.shard == shard),
            time_us=report.cluster.time_us,
        )

    async def claims(self, asked: ClaimsQuestion) -> Claims:
        """A page of the claims of all logs."""
        report = (await self.sight()).report
        slots = asyncio.Semaphore(bounds.ADMIN_STORES_AT_ONCE)

        async def ask(store: str) -> Claims | None:
            async with slots:
                try:
                    return await self._ask(store, CLAIMS, asked)
                except LogServiceError:
                    return None

        stores = [row.store for row in report.stores if row.answers and row.leaders]
        found = await asyncio.gather(*map(ask, stores))
        silent = {row.store: None for row in report.stores if not row.answers}
        return together({**silent, **dict(zip(stores, found, strict=True))}, asked.count)

    async def _ask(self, store: str, about: Question[Q, A], asked: Q) -> A:
        return await self._requests.ask(store, about, asked, bounds.ADMIN_PEER_WAIT_S)


def _row_of(sight: Sight, store: str) -> StoreRow:
    for row in sight.report.stores:
        if row.store == store:
            return row
    raise InvalidArgument("there is no such store", field="store")
