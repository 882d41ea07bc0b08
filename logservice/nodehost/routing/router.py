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
from collections.abc import Mapping

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
from logservice.background import begin_task
from logservice.clock import Clock
from logservice.config_change import ConfigChange
from logservice.ids import HAKEEPER_SHARD, ReplicaId, ShardId, StoreId
from logservice.membership import Membership
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.peers.requests import REFUSED_BY, PeerRequests
from logservice.nodehost.replica.intake import Waiting
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.routing import forwarding
from logservice.nodehost.routing.forwarding import ForwardedAppend, ForwardedCommand
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.outcome import Applied
from logservice.raft.ready import Role
from logservice.rsm.commands import is_forwarded
from logservice.trace import Call, Tracing


class Router:
    """See the module's text. There is one per NodeHost."""

    def __init__(
        self,
        running: Mapping[ShardId, Replica],
        requests: PeerRequests,
        identity: PeerIdentity,
        clock: Clock,
        options: NodeHostOptions,
        tracing: Tracing,
    ) -> None:
        """Take what peers forward. `running` are the replicas that run here; to look up a shard
        without one raises ShardNotFound or Halted.
        """
        self._running = running
        self._requests = requests
        self._own_store = identity.store_id
        self._clock = clock
        self._tracing = tracing
        self._retry_s = options.tick_ms / 1000
        self._election_s = options.election_timeout_s
        self._tasks: set[asyncio.Task[None]] = set()
        requests.register(forwarding.APPEND, self._on_append)
        requests.register(forwarding.PROPOSE, self._on_propose)

    def stop(self) -> None:
        """Answer the requests that are on their way with an unknown outcome."""
        for task in list(self._tasks):
            task.cancel()

    def route(self, replica: Replica) -> None:
        """Send what waits in the intake of `replica`, which does not lead, on its way."""
        store = replica.leader_store
        elsewhere = store is not None and store != self._own_store
        replica.intake.send_back(lambda: self._requests.not_leader(store), leader_known=elsewhere)
        if store is None or not elsewhere:
            return
        for item in replica.intake.forward_all():
            forwarded = functools.partial(self._forwarded, replica, item)
            self._tasks.add(begin_task(self._forward(replica, store, item), forwarded))

    async def change_membership(
        self, shard: ShardId, change: ConfigChange, timeout_s: float
    ) -> Membership:
        """Change who is in the shard; returns the membership that the change made.

        Raises NotLeader where another store leads, StaleEpoch when the compare-and-swap on the
        change epoch was lost, Busy while another change is under way.
        """
        deadline_s = self._clock.monotonic() + timeout_s
        while True:
            replica = self._running[shard]
            if self._clock.monotonic() >= deadline_s:
                raise DeadlineExceeded("no leader took the membership change in time")
            if replica.raft.role is Role.LEADER:
                future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
                replica.propose_change(change, future, deadline_s)
                return Membership.decode((await future).data)
            self._check_leader(replica)
            await asyncio.sleep(self._retry_s)

    async def transfer_leadership(
        self, shard: ShardId, target: ReplicaId, timeout_s: float
    ) -> None:
        """Ask for `target` to lead; returns when it leads, as seen here.

        Raises NotLeader where another store leads, InvalidArgument when `target` cannot lead,
        DeadlineExceeded when it did not come to lead (an election timeout aborts the transfer).
        """
        deadline_s = self._clock.monotonic() + timeout_s
        asked_s = -self._election_s
        replica = self._running[shard]
        members = replica.raft.membership
        if target not in members.full_voters:
            what = "a witness, which never leads" if target in members.voters else "no voter"
            raise InvalidArgument(f"the replica is {what}", field="target")
        while True:
            now_s = self._clock.monotonic()
            if replica.raft.leader == target:
                return
            if replica.stopped:
                raise UnknownOutcome("the replica stopped while leadership was transferred")
            if now_s >= deadline_s:
                raise DeadlineExceeded("leadership was not transferred in time")
            if replica.raft.role is not Role.LEADER:
                self._check_leader(replica)
            elif now_s - asked_s >= self._election_s:
                # The core gives a transfer up after an election timeout; then we ask for it again.
                asked_s = now_s
                replica.raft.transfer_leader(target)
                replica.activate()
            await asyncio.sleep(self._retry_s / 2)

    def _check_leader(self, replica: Replica) -> None:
        """Raises NotLeader when another store is known to lead."""
        store = replica.leader_store
        if store is not None and store != self._own_store:
            raise self._requests.not_leader(store)

    def _forwarded(self, replica: Replica, item: Waiting, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        replica.intake.came_back(item)
        # A task that was cancelled before its first step has answered nobody.
        item.pending.fail(NotReady("the store is stopping")) if task.cancelled() else None

    async def _forward(self, replica: Replica, store: str, item: Waiting) -> None:
        pending = item.pending
        left_s = pending.deadline_s - self._clock.monotonic()
        if left_s <= 0:
            pending.fail(NotReady("no leader took the request in time"))
            return
        ask, shard, call = self._requests.ask, replica.shard, item.call
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
                pending.fail(self._requests.not_leader(StoreId(store)))
            else:
                pending.fail(error)
        except asyncio.CancelledError:
            pending.fail(UnknownOutcome("the store is stopping"))
            raise

    async def _on_append(self, peer: PeerIdentity, asked: ForwardedAppend) -> Applied:
        shard, timeout_s, request, call = asked
        with self._span("forwarded append", call, shard):
            deadline_s = self._clock.monotonic() + timeout_s
            return await self._running[shard].append(request, deadline_s, local_only=True)

    async def _on_propose(self, peer: PeerIdentity, asked: ForwardedCommand) -> Applied:
        shard, timeout_s, command, call = asked
        if shard == HAKEEPER_SHARD or not is_forwarded(command):
            raise self._requests.refuse(peer, forwarding.PROPOSE, "not forwarded")
        if not forwarding.vouches(peer.store_id, command):
            raise self._requests.refuse(peer, forwarding.PROPOSE, "vouched for by another store")
        with self._span("forwarded command", call, shard):
            deadline_s = self._clock.monotonic() + timeout_s
            return await self._running[shard].propose(command, deadline_s, local_only=True)

    def _span(
        self, name: str, call: Call | None, shard: ShardId
    ) -> contextlib.AbstractContextManager[None]:
        """A span for what a peer asked for: it belongs to the call that the peer serves."""
        return trace.span(self._tracing, name, call, shard=shard)
