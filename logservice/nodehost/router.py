"""Router: brings requests to the leader of their shard.

On the leader's store they go into the replica's intake; elsewhere they are forwarded, each at most
one hop per attempt, until the deadline. Only an answer that proves that nothing was proposed
(NOT_LEADER, NOT_READY, SHARD_NOT_FOUND, HALTED) is tried again here; an unknown outcome goes to the
caller, because only the caller's session makes a repetition safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING

from logservice_wire.errors import (
    DeadlineExceeded,
    Halted,
    InvalidArgument,
    LogServiceError,
    NotLeader,
    NotReady,
    PermissionDenied,
    ShardNotFound,
    UnknownOutcome,
)

from logservice import trace
from logservice.ids import HAKEEPER_SHARD, ReplicaId, ShardId
from logservice.membership import Membership
from logservice.nodehost import forwarding
from logservice.nodehost.intake import Waiting
from logservice.nodehost.replica import Replica
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.outcome import Applied
from logservice.raft.config_change import ConfigChange, decode_change, encode_change
from logservice.raft.ready import Role
from logservice.trace import Call

if TYPE_CHECKING:
    from logservice.nodehost.node_host import NodeHost


class Router:
    """One per NodeHost."""

    def __init__(self, host: NodeHost) -> None:
        """Take the peers' forwarded requests of `host`."""
        self._host = host
        self._retry_s = host.options.tick_ms / 1000
        self._tasks: set[asyncio.Task[None]] = set()
        host.register_handler(forwarding.APPEND, self._on_append)
        host.register_handler(forwarding.PROPOSE, self._on_propose)
        host.register_handler(forwarding.CHANGE, self._on_change)
        host.register_handler(forwarding.TRANSFER, self._on_transfer)

    def stop(self) -> None:
        """Answer what is on its way with an unknown outcome."""
        for task in list(self._tasks):
            task.cancel()

    def route(self, replica: Replica) -> None:
        """Move what waits in the intake of `replica` on its way, if there is one."""
        if replica.raft.role is Role.LEADER:
            self._host.activate(replica)
            return
        store = self._host.leader_store(replica.shard)
        replica.intake.fail_local_only(lambda: NotLeader("not the leader", leader=store or ""))
        if store is None or store == self._host.identity.store_id:
            return
        for item in replica.intake.forward_all():
            task = asyncio.get_running_loop().create_task(self._forward(replica, store, item))
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._forwarded, replica, item))

    async def change_membership(
        self, shard: ShardId, change: ConfigChange, timeout_s: float, *, local_only: bool = False
    ) -> Membership:
        """See `NodeHost.change_membership`."""
        deadline_s = self._host.clock.monotonic() + timeout_s
        while True:
            replica = self._host.replica(shard)
            left_s = deadline_s - self._host.clock.monotonic()
            if left_s <= 0:
                raise DeadlineExceeded("no leader took the membership change in time")
            if replica.raft.role is Role.LEADER:
                future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
                replica.propose_change(change, future, deadline_s)
                return Membership.decode((await future).data)
            store = self._host.leader_store(shard)
            if local_only:
                raise NotLeader("not the leader", leader=store or "")
            if store is not None:
                body = forwarding.encode_request(
                    shard, left_s, encode_change(change), trace.current.get()
                )
                try:
                    answer = await self._host.transport.request(
                        store, forwarding.CHANGE, body, left_s
                    )
                    return Membership.decode(forwarding.decode_applied(answer).data)
                except (NotLeader, NotReady, ShardNotFound):
                    pass
            await asyncio.sleep(self._retry_s)

    async def transfer_leadership(
        self, shard: ShardId, target: ReplicaId, timeout_s: float, *, local_only: bool = False
    ) -> None:
        """See `NodeHost.transfer_leadership`."""
        host = self._host
        deadline_s = host.clock.monotonic() + timeout_s
        asked_s = -host.options.election_timeout_s
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
            # The core gives a transfer up after an election timeout; then it is asked for again.
            if now_s - asked_s >= host.options.election_timeout_s:
                if replica.raft.role is Role.LEADER:
                    asked_s = now_s
                    replica.raft.transfer_leader(target)
                    host.activate(replica)
                elif local_only:
                    raise NotLeader("not the leader", leader=host.leader_store(shard) or "")
                else:
                    await self._ask_transfer(shard, target, deadline_s - now_s)
            await asyncio.sleep(self._retry_s / 2)

    async def _ask_transfer(self, shard: ShardId, target: ReplicaId, left_s: float) -> None:
        store = self._host.leader_store(shard)
        if store is None or store == self._host.identity.store_id:
            return
        body = forwarding.encode_request(
            shard, left_s, forwarding.encode_replica(target), trace.current.get()
        )
        with contextlib.suppress(NotLeader, NotReady, ShardNotFound):
            await self._host.transport.request(store, forwarding.TRANSFER, body, left_s)

    def _forwarded(self, replica: Replica, item: Waiting, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        replica.intake.came_back(item)
        # A task that was cancelled before its first step has answered nobody.
        item.pending.fail(NotReady("the store is stopping")) if task.cancelled() else None

    async def _forward(self, replica: Replica, store: str, item: Waiting) -> None:
        pending = item.pending
        left_s = pending.deadline_s - self._host.clock.monotonic()
        if left_s <= 0:
            pending.fail(DeadlineExceeded("no leader took the request in time"))
            return
        if item.append is not None:
            method = forwarding.APPEND
            body = forwarding.encode_append(replica.shard, left_s, item.append, item.call)
        else:
            method = forwarding.PROPOSE
            body = forwarding.encode_request(replica.shard, left_s, item.command, item.call)
        try:
            answer = await self._host.transport.request(store, method, body, left_s)
            pending.resolve(forwarding.decode_applied(answer))
        except (NotLeader, NotReady, ShardNotFound, Halted):
            # Surely not proposed there: look for the leader again, a tick later.
            await asyncio.sleep(self._retry_s)
            if replica.stopped:
                pending.fail(NotReady("the replica stopped"))
            else:
                replica.intake.put_back(item)
                self.route(replica)
        except LogServiceError as error:
            pending.fail(error)
        except asyncio.CancelledError:
            pending.fail(UnknownOutcome("the store is stopping"))
            raise

    async def _on_append(self, peer: PeerIdentity, body: bytes) -> bytes:
        shard, timeout_s, request, call = forwarding.decode_append(body)
        with self._span("forwarded append", call, shard):
            applied = await self._host.submit_append(shard, request, timeout_s, local_only=True)
        return forwarding.encode_applied(applied)

    async def _on_propose(self, peer: PeerIdentity, body: bytes) -> bytes:
        shard, timeout_s, command, call = forwarding.decode_request(body)
        self._check_hakeeper(peer, shard)
        with self._span("forwarded command", call, shard):
            applied = await self._host.propose(shard, command, timeout_s, local_only=True)
        return forwarding.encode_applied(applied)

    def _span(
        self, name: str, call: Call | None, shard: ShardId
    ) -> contextlib.AbstractContextManager[None]:
        """What a peer asked for belongs to the call that it serves."""
        return trace.span(self._host.tracing, name, call, shard=shard)

    def _check_hakeeper(self, peer: PeerIdentity, shard: ShardId) -> None:
        """Only a member of shard 0 passes on what others propose to it.

        Everybody else asks by `hakeeper.propose`, where who speaks for whom is checked.
        """
        if shard != HAKEEPER_SHARD:
            return
        info = self._host.replica_info(shard)
        members = info.membership.members if info is not None else ()
        if all(member.store_id != peer.store_id for member in members):
            raise PermissionDenied(f"{peer.store_id} runs no replica of shard 0")

    async def _on_change(self, peer: PeerIdentity, body: bytes) -> bytes:
        shard, timeout_s, rest, call = forwarding.decode_request(body)
        with self._span("forwarded change", call, shard):
            membership = await self.change_membership(
                shard, decode_change(rest), timeout_s, local_only=True
            )
        return forwarding.encode_applied(Applied(data=membership.encode()))

    async def _on_transfer(self, peer: PeerIdentity, body: bytes) -> bytes:
        shard, timeout_s, rest, call = forwarding.decode_request(body)
        target = forwarding.decode_replica(rest)
        with self._span("forwarded transfer", call, shard):
            await self.transfer_leadership(shard, target, timeout_s, local_only=True)
        return b""
