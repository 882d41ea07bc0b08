"""Router: which address to send a shard's next request to.

What is known of a shard comes from three sources, newest first: leader hints in answers and
errors, HAKeeper's GetShardInfo (asked through any store), and the endpoints that the user named.
Any replica accepts any request, so a wrong or old route costs a hop, never a wrong result; and when
HAKeeper has no leader itself, the replicas known from before still work. Hence the rules:

- an address that failed, or that had not connected when a later one had, goes to the end of the
  list for a while; it is never forgotten, and gRPC goes on connecting to it;
- connecting races: the next address is tried beside a silent one after `CONNECT_STAGGER_S`, at once
  beside one that refused; the first to connect wins;
- HAKeeper is asked in the background after a failure, and waited for only while nothing is known;
- reads go to a replica in the client's own zone first, if the client says where it is; any replica
  serves linearizable reads, so what crosses zones is a question and not the records.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from logservice_wire.errors import (
    HandshakeFailed,
    LogServiceError,
    NotReady,
    Outcome,
    Reason,
    ShardDeleted,
    error_for,
)
from logservice_wire.rpcs import GET_SHARD_INFO
from logservice_wire.v1 import hakeeper_pb2, log_pb2

from logservice_client.background import begin_task
from logservice_client.bounds import (
    ATTEMPT_TIMEOUT_S,
    CONNECT_STAGGER_S,
    FAILED_ADDRESS_S,
    NEAR_REFRESH_S,
    ROUTE_REFRESH_S,
    UNREADY_ADDRESS_S,
)
from logservice_client.channels import ChannelPool
from logservice_client.failure import ELSEWHERE, typed_failures
from logservice_client.log_lines import Line
from logservice_client.pacing import Deadline
from logservice_client.reporter import Reporter

ValueT = TypeVar("ValueT")


_WITHOUT_LEADER: Final = frozenset(
    {Reason.NOT_READY, Reason.NOT_LEADER, Reason.DEADLINE, Reason.UNKNOWN_OUTCOME}
)
"""Reasons why a call ends while a log has no leader."""


class Route:
    """The known addresses of one shard. `leader` is empty when it is unknown; `led` is the last
    one. `near`: those of `replicas` that are in the client's zone. `deleted`: says that the shard
    is gone for good.
    """

    __slots__ = ("asked_at_s", "deleted", "leader", "led", "near", "refresh", "replicas")

    def __init__(self) -> None:
        """Nothing is known."""
        self.leader = ""
        self.led = ""
        self.deleted: ShardDeleted | None = None
        self.replicas: tuple[str, ...] = ()
        self.near: tuple[str, ...] = ()
        self.asked_at_s = float("-inf")
        self.refresh: asyncio.Task[None] | None = None


class Router:
    """Routes of one client. It sends GetShardInfo itself and nothing else."""

    def __init__(
        self,
        pool: ChannelPool,
        endpoints: Sequence[str],
        zone: str = "",
        reporter: Reporter | None = None,
    ) -> None:
        """`endpoints`: client addresses (host:port) of any stores; shuffled to spread clients.
        `zone`: where the client is, in the words of the stores' labels; "" for nowhere.
        """
        self._pool = pool
        self._reporter = reporter or Reporter()
        self._zone = zone
        self._endpoints = random.sample(list(endpoints), len(endpoints))
        self._routes: dict[int, Route] = {}
        self._failed_until_s: dict[str, float] = {}
        self._silent: set[str] = set()
        """Addresses that did not answer when they were asked last."""
        self._hakeeper = ""

    @property
    def endpoints(self) -> str:
        """The addresses that the user named, separated by commas."""
        return ",".join(sorted(self._endpoints))

    async def pick(self, shard: int, deadline: Deadline, *, near: bool = False) -> str:
        """A connected address for the shard, its leader if that is known and reachable; with `near`
        a replica in the client's zone before the leader.

        Raises NotReady when no address connects before `deadline`, ShardNotFound when HAKeeper
        says that there is no such shard, ShardDeleted when it says that it was deleted.
        """
        route = self._routes.get(shard)
        if route is not None and route.deleted is not None:
            raise ShardDeleted(route.deleted.message, **route.deleted.metadata)
        if route is None or not (route.leader or route.replicas):
            await self._learn_first(shard, deadline)
        if near and self._zone and self._age_s(shard) > NEAR_REFRESH_S:
            self._refresh_soon(shard)
        return await self.connect_first(self.candidates(shard, near=near), deadline)

    async def pick_any(self, deadline: Deadline) -> str:
        """A connected address of any store; that of HAKeeper's leader if a store named it: every
        store answers queries, and only the leader's store administers.
        """
        return await self.connect_first(self.candidates(None), deadline)

    def candidates(self, shard: int | None, *, near: bool = False) -> list[str]:
        """Addresses worth trying, best first: leader, replicas, endpoints; failed ones last. With
        `near` the replicas in the client's zone come before the leader.
        """
        route = self._routes.get(shard) if shard is not None else None
        known: list[str] = []
        if route is not None:
            known = [*route.near] if near else []
            known += [route.leader] if route.leader else []
            known += route.replicas
        elif self._hakeeper:
            known = [self._hakeeper]
        known += self._endpoints
        if route is None:
            known += [address for other in self._routes.values() for address in other.replicas]
        return sorted(dict.fromkeys(known), key=self._failed)

    def connected(self, address: str) -> bool:
        """Whether a request for the leader `address` would go there at once. If not, connect."""
        return self._pool.connected(address) and not self._failed(address)

    def _failed(self, address: str) -> bool:
        """Whether it failed lately, so that others are tried first."""
        until_s = self._failed_until_s.get(address)
        return until_s is not None and until_s > asyncio.get_running_loop().time()

    def replicas(self, shard: int) -> tuple[str, ...]:
        """Addresses of the shard's replicas as HAKeeper last told, leader first."""
        route = self._routes.get(shard)
        return route.replicas if route is not None else ()

    def near(self, shard: int) -> tuple[str, ...]:
        """Those of the replicas that are in the client's zone and run."""
        route = self._routes.get(shard)
        return route.near if route is not None else ()

    def learn_info(self, shard: int, info: hakeeper_pb2.ShardInfo) -> None:
        """Note where the replicas of the shard are."""
        route = self._route(shard)
        route.asked_at_s = asyncio.get_running_loop().time()
        route.replicas = tuple(address for address in info.client_addresses if address)
        near = [
            replica.client_address
            for replica in info.replicas
            if replica.reported and self._zone and _is_in(replica.zone, self._zone)
            # A witness has no records to read.
            if replica.role != "witness"
        ]
        # Clients of one zone share its replicas.
        route.near = tuple(random.sample(near, len(near)))
        if info.leader_address and not route.leader:
            self.learn_leader(shard, info.leader_address)

    def learn_position(self, shard: int, position: log_pb2.LogPosition) -> None:
        """Note the leader that an answer names."""
        if position.leader_address:
            self.learn_leader(shard, position.leader_address)

    def learn_leader(self, shard: int, address: str) -> None:
        """Send the shard's next request to `address` first."""
        route = self._route(shard)
        if address == route.leader:
            return
        before, route.led = route.led, address
        route.leader = address
        if before not in ("", address):
            self._reporter.redirected(shard, address, before)

    def learn_answer(self, address: str) -> None:
        """Note that `address` answers."""
        self._silent.discard(address)

    def explained(self, shard: int, error: LogServiceError) -> LogServiceError:
        """`error` as the end of a call of which the time is over, with who answers, if that is no
        majority of the shard's replicas.
        """
        route = self._routes.get(shard)
        replicas = route.replicas if route is not None else ()
        silent = [address for address in replicas if address in self._silent]
        if route is None or error.reason not in _WITHOUT_LEADER or 2 * len(silent) < len(replicas):
            return error
        if not silent:
            return error
        rest = [address for address in replicas if address not in self._silent]
        why = f"{', '.join(silent)} did not" + (f", {', '.join(rest)} may" if rest else "")
        led = f"; it was led at {route.led} last" if route.led else ""
        told = error_for(error.reason, f"no majority of log {shard} answers: {why}{led}")
        told.metadata = dict(error.metadata)
        told.__cause__ = error
        return told

    def learn_failure(self, shard: int | None, address: str, error: LogServiceError) -> None:
        """Note that `address` could not serve the call, and why."""
        now = asyncio.get_running_loop().time()
        hint = error.metadata.get("address", "") if error.reason is Reason.NOT_LEADER else ""
        if error.outcome is Outcome.UNKNOWN or error.metadata.get("address") == address:
            self._failed_until_s[address] = now + FAILED_ADDRESS_S
            self._silent.add(address)
        elif error.reason in ELSEWHERE and hint != address:
            self._failed_until_s[address] = now + UNREADY_ADDRESS_S
        else:
            return
        if shard is None:
            self._hakeeper = hint
            self._failed_until_s.pop(hint, None)
            return
        route = self._route(shard)
        if hint:
            self.learn_leader(shard, hint)
            self._failed_until_s.pop(hint, None)
        elif route.leader == address:
            route.leader = ""
            Line.LEADER_LOST.say(shard, address, error)
        self._refresh_soon(shard)

    async def connect_first(self, candidates: Sequence[str], deadline: Deadline) -> str:
        """The first of `candidates` that connects; earlier ones get a head start."""
        if self._pool.connected(candidates[0]):
            return candidates[0]

        async def connect(address: str) -> str:
            try:
                await self._pool.connect(address)
            except (NotReady, HandshakeFailed):
                self._later(address)
                raise
            return address

        first = await _race(connect, candidates, deadline)
        # Or each call would give a silent address its head start again.
        for slower in candidates[: candidates.index(first)]:
            self._later(slower)
        return first

    def _later(self, address: str) -> None:
        """It did not connect: for a while others are tried first."""
        self._silent.add(address)
        self._failed_until_s[address] = asyncio.get_running_loop().time() + FAILED_ADDRESS_S

    async def shard_info(self, shard: int, deadline: Deadline) -> hakeeper_pb2.ShardInfo:
        """GetShardInfo of the first store that answers; every store is asked once. Raises
        ShardNotFound, ShardDeleted, NotReady.
        """

        async def ask(address: str) -> hakeeper_pb2.ShardInfo | LogServiceError:
            await self._pool.connect(address)
            call = self._pool.unary(address, GET_SHARD_INFO)
            timeout_s = max(0.001, min(deadline.remaining_s(), ATTEMPT_TIMEOUT_S))
            try:
                with typed_failures(mutating=False):
                    info: hakeeper_pb2.ShardInfo = await call(
                        hakeeper_pb2.GetShardInfoRequest(shard_id=shard), timeout=timeout_s
                    )
            except LogServiceError as error:
                if isinstance(error, ShardDeleted):
                    self._route(shard).deleted = error
                if error.reason in (Reason.SHARD_NOT_FOUND, Reason.SHARD_DELETED):
                    return error  # an answer like any other: no other store knows better
                raise
            return info

        found = await _race(ask, self.candidates(shard), deadline)
        if isinstance(found, LogServiceError):
            raise found
        self.learn_info(shard, found)
        return found

    async def close(self) -> None:
        """Stop asking."""
        tasks = [route.refresh for route in self._routes.values() if route.refresh is not None]
        await _cancelled(tasks)

    def _route(self, shard: int) -> Route:
        return self._routes.setdefault(shard, Route())

    async def _learn_first(self, shard: int, deadline: Deadline) -> None:
        """Ask HAKeeper because nothing is known; the endpoints have to do when it cannot tell."""
        route = self._route(shard)
        if asyncio.get_running_loop().time() - route.asked_at_s < ROUTE_REFRESH_S:
            return
        try:
            limit = Deadline(min(deadline.remaining_s(), ATTEMPT_TIMEOUT_S))
            await self.shard_info(shard, limit)
        except LogServiceError as error:
            if error.reason in (
                Reason.SHARD_NOT_FOUND,
                Reason.SHARD_DELETED,
                Reason.HANDSHAKE_FAILED,
            ):
                raise
            route.asked_at_s = asyncio.get_running_loop().time()

    def _age_s(self, shard: int) -> float:
        """How long ago the route of the shard was asked for."""
        return asyncio.get_running_loop().time() - self._route(shard).asked_at_s

    def _refresh_soon(self, shard: int) -> None:
        route = self._route(shard)
        now = asyncio.get_running_loop().time()
        if route.refresh is None and now - route.asked_at_s >= ROUTE_REFRESH_S:
            route.asked_at_s = now

            def ended(_: BaseException | None) -> None:
                route.refresh = None

            route.refresh = begin_task(self._refresh(shard), ended, name=f"route-{shard}")

    async def _refresh(self, shard: int) -> None:
        # Whoever needs the route goes on with what is known, and asks again.
        with contextlib.suppress(LogServiceError):
            await self.shard_info(shard, Deadline(ATTEMPT_TIMEOUT_S))


def _is_in(zone: str, wanted: str) -> bool:
    """Whether a store's zone is the wanted one: ``region/zone``, or either of its parts."""
    return bool(zone) and wanted in (zone, *zone.split("/", 1))


async def _race(
    attempt: Callable[[str], Awaitable[ValueT]], candidates: Sequence[str], deadline: Deadline
) -> ValueT:
    """The first success of `attempt` over `candidates`, started one by one.

    The next starts after `CONNECT_STAGGER_S`, or at once when one has failed. Losers are cancelled.
    Raises the last failure, HandshakeFailed before others, or NotReady with the candidates' names
    when `deadline` passes first. Attempts that end in the same moment as the one that counts have
    failures that are not looked at.
    """
    waiting = list(candidates)
    running: set[asyncio.Task[ValueT]] = set()
    failure: LogServiceError = NotReady("no address to try")
    try:
        while waiting or running:
            if waiting:
                task = begin_task(_started(attempt, waiting.pop(0)))
                task.add_done_callback(_seen)
                running.add(task)
            remaining_s = deadline.remaining_s()
            if remaining_s <= 0:
                why = failure.metadata.get("why", "")
                late = f"no store answered in time: {', '.join(candidates)}"
                raise NotReady(late, why=why) from failure
            pause_s = min(CONNECT_STAGGER_S, remaining_s) if waiting else remaining_s
            done, running = await asyncio.wait(
                running, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                error = _why(task)
                if error is None:
                    return task.result()
                if not isinstance(error, LogServiceError):
                    raise error
                if not isinstance(failure, HandshakeFailed):
                    failure = error
        raise failure
    finally:
        await _cancelled(running)


async def _started(attempt: Callable[[str], Awaitable[ValueT]], address: str) -> ValueT:
    return await attempt(address)


def _why(task: asyncio.Task[ValueT]) -> BaseException | None:
    """What an attempt failed with."""
    return NotReady("an attempt was cancelled") if task.cancelled() else task.exception()


def _seen(task: asyncio.Task[ValueT]) -> None:
    if not task.cancelled():
        task.exception()


async def _cancelled(tasks: Iterable[asyncio.Task[ValueT]]) -> None:
    """Cancel and forget; waits until they are gone so that nothing outlives its loop."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)
