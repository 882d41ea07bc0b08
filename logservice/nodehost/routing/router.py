"""Router: brings requests to the leader of their shard.

On the leader's store requests go into the replica's intake. On other stores those that may be
forwarded (`forwarding`) are forwarded until their deadline, each at most one hop per attempt; the
others wait for a leader and then end in NOT_LEADER, which says where it is. A request is tried
again here only after an answer that proves that nothing was proposed (NOT_LEADER, NOT_READY,
SHARD_NOT_FOUND, HALTED). An unknown outcome goes to the caller, because only the caller's session
makes a repetition safe.

INV-FORWARD-1: nothing is proposed for a peer but appends, new sessions and probes, in a shard of
which the peer has a member. Memberships and leaderships are changed by the leader's own store only.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Protocol

from logservice_wire.errors import (
    DeadlineExceeded,
    Halted,
    InvalidArgument,
    LogServiceError,
    NotLeader,
    NotReady,
    ShardNotFound,
    UnknownOutcome,
)

from logservice import trace
from logservice.clock import Clock
from logservice.config_change import ConfigChange
from logservice.ids import HAKEEPER_SHARD, ReplicaId, ShardId, StoreId
from logservice.membership import Membership
from logservice.nodehost.peers.requests import REFUSED_BY, PeerRequests
from logservice.nodehost.replica.intake import Waiting
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.routing import forwarding
from logservice.nodehost.routing.forwarding import ForwardedAppend, ForwardedCommand
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.outcome import Applied
from logservice.raft.ready import Role
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.commands import is_forwarded
from logservice.trace import Call, Tracing


class RouterHost(Protocol):
    """What the router needs of a NodeHost, which says what each method does."""

    identity: PeerIdentity
    clock: Clock
    tracing: Tracing
    requests: PeerRequests

    def replica(self, shard: ShardId) -> Replica: ...

    def leader_store(self, shard: ShardId) -> StoreId | None: ...

    def submit_append(
        self, shard: ShardId, request: AppendRequest, timeout_s: float, *, local_only: bool = False
    ) -> asyncio.Future[Applied]: ...

    async def propose(
        self, shard: ShardId, command: bytes, timeout_s: float, *, local_only: bool = False
    ) -> Applied: ...


class Router:
    """See the module's text. There is one per NodeHost."""

    def __init__(self, host: RouterHost, tick_s: float, election_timeout_s: float) -> None:
        """Take the peers' forwarded requests of `host`."""
        self._host = host
        self._retry_s = tick_s
        self._election_s = election_timeout_s
        self._tasks: set[asyncio.Task[None]] = set()
        host.requests.register(forwarding.APPEND, self._on_append)
        host.requests.register(forwarding.PROPOSE, self._on_propose)

    def stop(self) -> None:
        """Answer the requests that are on their way with an unknown outcome."""
        for task in list(self._tasks):
            task.cancel()

    def route(self, replica: Replica) -> None:
        """Send what waits in the intake of `replica`, which does not lead, on its way."""
        store = self._host.leader_store(replica.shard)
        elsewhere = store is not None and store != self._host.identity.store_id
        replica.intake.send_back(
            lambda: self._host.requests.not_leader(store), leader_known=elsewhere
        )
        if store is None or not elsewhere:
            return
        for item in replica.intake.forward_all():
            task = asyncio.get_running_loop().create_task(self._forward(replica, store, item))
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._forwarded, replica, item))

    async def change_membership(
        self, shard: ShardId, change: ConfigChange, timeout_s: float
    ) -> Membership:
        """See `NodeHost.change_membership`."""
        deadline_s = self._host.clock.monotonic() + timeout_s
        while True:
            replica = self._host.replica(shard)
            if self._host.clock.monotonic() >= deadline_s:
                raise DeadlineExceeded("no leader took the membership change in time")
            if replica.raft.role is Role.LEADER:
                future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
                replica.propose_change(change, future, deadline_s)
                return Membership.decode((await future).data)
            self._check_leader(shard)
            await asyncio.sleep(self._retry_s)

    async def transfer_leadership(
        self, shard: ShardId, target: ReplicaId, timeout_s: float
    ) -> None:
        """See `NodeHost.transfer_leadership`."""
        host = self._host
        deadline_s = host.clock.monotonic() + timeout_s
        asked_s = -self._election_s
        replica = host.replica(shard)
        if target not in replica.raft.membership.voters:
            raise InvalidArgument("not a voter of the shard", field="target")
        while True:
            now_s = host.clock.monotonic()
            if replica.raft.leader == target:
                return
            if replica.stopped:
                raise UnknownOutcome("the replica stopped while leadership was transferred")
            if now_s >= deadline_s:
                raise DeadlineExceeded("leadership was not transferred in time")
            if replica.raft.role is not Role.LEADER:
                self._check_leader(shard)
            elif now_s - asked_s >= self._election_s:
                # The core gives a transfer up after an election timeout; then we ask for it again.
                asked_s = now_s
                replica.raft.transfer_leader(target)
                replica.activate()
            await asyncio.sleep(self._retry_s / 2)

    def _check_leader(self, shard: ShardId) -> None:
        """Raises NotLeader when another store is known to lead."""
        store = self._host.leader_store(shard)
        if store is not None and store != self._host.identity.store_id:
            raise self._host.requests.not_leader(store)

    def _forwarded(self, replica: Replica, item: Waiting, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        replica.intake.came_back(item)
        # A task that was cancelled before its first step has answered nobody.
        item.pending.fail(NotReady("the store is stopping")) if task.cancelled() else None

    async def _forward(self, replica: Replica, store: str, item: Waiting) -> None:
        pending = item.pending
        left_s = pending.deadline_s - self._host.clock.monotonic()
        if left_s <= 0:
            pending.fail(NotReady("no leader took the request in time"))
            return
        ask, shard, call = self._host.requests.ask, replica.shard, item.call
        try:
            if item.append is not None:
                append = ForwardedAppend(shard, left_s, item.append, call)
                applied = await ask(store, forwarding.APPEND, append, left_s)
            else:
                command = ForwardedCommand(shard, left_s, item.command, call)
                applied = await ask(store, forwarding.PROPOSE, command, left_s)
            pending.resolve(applied)
        except (NotLeader, NotReady, ShardNotFound, Halted):
            # The request was surely not proposed there: look for the leader again, a tick later.
            await asyncio.sleep(self._retry_s)
            if replica.stopped:
                pending.fail(NotReady("the replica stopped"))
            else:
                replica.intake.put_back(item)
                replica.serve_intake()
        except LogServiceError as error:
            if REFUSED_BY in error.metadata:
                # The leader does not know this store as a member (any more), so the caller has to
                # go to the leader.
                pending.fail(self._host.requests.not_leader(StoreId(store)))
            else:
                pending.fail(error)
        except asyncio.CancelledError:
            pending.fail(UnknownOutcome("the store is stopping"))
            raise

    async def _on_append(self, peer: PeerIdentity, asked: ForwardedAppend) -> Applied:
        shard, timeout_s, request, call = asked
        with self._span("forwarded append", call, shard):
            return await self._host.submit_append(shard, request, timeout_s, local_only=True)

    async def _on_propose(self, peer: PeerIdentity, asked: ForwardedCommand) -> Applied:
        shard, timeout_s, command, call = asked
        if shard == HAKEEPER_SHARD or not is_forwarded(command):
            raise self._host.requests.refuse(peer, forwarding.PROPOSE, "not forwarded")
        if not forwarding.vouches(peer.store_id, command):
            raise self._host.requests.refuse(
                peer, forwarding.PROPOSE, "vouched for by another store"
            )
        with self._span("forwarded command", call, shard):
            return await self._host.propose(shard, command, timeout_s, local_only=True)

    def _span(
        self, name: str, call: Call | None, shard: ShardId
    ) -> contextlib.AbstractContextManager[None]:
        """A span for what a peer asked for: it belongs to the call that the peer serves."""
        return trace.span(self._host.tracing, name, call, shard=shard)
