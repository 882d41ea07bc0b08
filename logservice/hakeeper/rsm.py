"""HAKeeperRsm: the replicated state machine of shard 0.

Theory of operation. It applies proposals in log order and answers each with an outcome; an input
that is malformed, contradictory or late is a `Rejected`, never an exception, because an exception
would stop every replica of shard 0 at the same entry, for ever. There is no clock: time is the
number of applied ticks.

Fencing: a Tick or ScheduleCommands names the term in which its proposer led shard 0. It counts only
if its entry has that same term. So what a deposed leader still proposes has no effect, whoever
forwards it. Decisions need no other fence, because they are made at apply (see `check`).

References: `state_machine.StateMachine`; MatrixOne's pkg/hakeeper/rsm.go for the contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from logservice_wire.errors import InvalidArgument, Reason

from logservice import bounds
from logservice.entry import Entry, EntryKind
from logservice.envelope import EnvelopeCorrupt, ProposalId, decode_blocks, decode_command
from logservice.hakeeper import state
from logservice.hakeeper.allocation import apply_allocate
from logservice.hakeeper.answers import queries, views
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.store_commands import QueuedCommand, ServiceOrder, TransferLeader
from logservice.hakeeper.repair import check
from logservice.hakeeper.repair.bootstrap import apply_create, apply_initial, apply_set_phase
from logservice.hakeeper.stores import access, enrolment, heartbeats, services
from logservice.hakeeper.stores.delivery import queue_command
from logservice.ids import StoreId, Term
from logservice.outcome import Applied, Outcome, Rejected
from logservice.state_machine import Standing


class HAKeeperRsm:
    """Implements `StateMachine`."""

    def __init__(self) -> None:
        """The state before the first entry."""
        self._state = state.State()

    @property
    def state(self) -> state.State:
        """The state itself, for tests and for views on the same store. No caller may change it."""
        return self._state

    def update(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        """Apply one committed entry and return one outcome per proposal in it.

        No input makes it raise.
        """
        self._state.index = entry.index
        try:
            if entry.kind is EntryKind.BLOCK:
                refused = Rejected(Reason.INVALID_ARGUMENT, {"field": "shard"})
                return [(block.proposal, refused) for block in decode_blocks(entry.payload)]
            if entry.kind is not EntryKind.COMMAND:
                return []
            proposal_id, command = decode_command(entry.payload)
        except EnvelopeCorrupt:
            return []
        try:
            proposal = proposals.decode(command)
        except proposals.ProposalCorrupt:
            return [(proposal_id, Rejected(Reason.INVALID_ARGUMENT, {"field": "command"}))]
        return [(proposal_id, self._apply(entry.term, proposal))]

    def lookup(self, query: object) -> object:
        """Answer a `queries.Query` with a view. Raises InvalidArgument for anything else."""
        if isinstance(query, queries.GetCluster):
            return views.cluster_view(self._state)
        if isinstance(query, queries.GetShard):
            shard = self._state.shards.get(query.shard)
            if shard is None:
                return None
            return replace(views.shard_view(self._state, shard), membership=shard.membership)
        if isinstance(query, queries.GetAccess):
            return views.AccessView(self._state.access_version, access.grants(self._state))
        if isinstance(query, queries.GetPhase):
            return self._state.phase.value
        raise InvalidArgument("unknown query", field="query")

    def save_snapshot(self) -> bytes:
        """The whole state; equal state gives equal bytes."""
        return state.save(self._state)

    def recover_from_snapshot(self, state_bytes: bytes) -> None:
        """Replace the state. Raises SnapshotCorrupt and then keeps the old one."""
        self._state = state.load(state_bytes)

    def check_snapshot(self, state_bytes: bytes) -> Standing:
        """See `StateMachine`."""
        return Standing(state.load(state_bytes).index, None)

    def close(self) -> None:
        """Does nothing: the state machine holds no resource."""

    def _apply(self, term: Term, proposal: proposals.Proposal) -> Outcome:
        if isinstance(proposal, proposals.Tick):
            return self._tick(term, proposal)
        if isinstance(proposal, proposals.StoreHeartbeat):
            return heartbeats.apply_store(self._state, proposal)
        if isinstance(proposal, proposals.ServiceHeartbeat):
            return services.apply_service(self._state, proposal)
        if isinstance(proposal, proposals.AckCommands):
            return heartbeats.apply_ack(self._state, proposal)
        if isinstance(proposal, proposals.AllocateIds):
            return apply_allocate(self._state, proposal)
        if isinstance(proposal, proposals.CreateShard):
            return apply_create(self._state, proposal)
        if isinstance(proposal, proposals.InitialCluster):
            return apply_initial(self._state, proposal)
        if isinstance(proposal, proposals.ScheduleCommands):
            return self._schedule(term, proposal)
        if isinstance(proposal, proposals.ChangeAccess):
            return access.apply_change(self._state, proposal)
        if isinstance(proposal, proposals.AdmitStore):
            return enrolment.apply_admit(self._state, proposal)
        if isinstance(proposal, proposals.SetJoining):
            return enrolment.apply_joining(self._state, proposal)
        return apply_set_phase(self._state, proposal)

    def _tick(self, term: Term, tick: proposals.Tick) -> Outcome:
        if tick.term != term:
            return Rejected(Reason.STALE_EPOCH, {"epoch": str(term)})
        self._state.term = term
        if self._state.phase is not Phase.CREATED:
            self._state.tick += 1
            check.on_tick(self._state)
        return Applied(value=self._state.tick)

    def _schedule(self, term: Term, schedule: proposals.ScheduleCommands) -> Outcome:
        if schedule.term != term:
            return Rejected(Reason.STALE_EPOCH, {"epoch": str(term)})
        queues: list[list[QueuedCommand]] = []
        for order in schedule.orders:
            store = self._state.stores.get(StoreId(order.target))
            service = self._state.services.get(order.target)
            if isinstance(order.command, ServiceOrder) and service is not None:
                queues.append(service.queue)
            elif isinstance(order.command, TransferLeader) and store is not None:
                queues.append(store.queue)
            else:
                return Rejected(Reason.INVALID_ARGUMENT, {"field": "orders"})
        wanted: dict[str, int] = {}
        for queue, order in zip(queues, schedule.orders, strict=True):
            wanted[order.target] = wanted.get(order.target, len(queue)) + 1
        if max(wanted.values()) > bounds.HAKEEPER_QUEUE_MAX:
            return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_QUEUE_MAX)})
        first = self._state.next_command_id
        for queue, order in zip(queues, schedule.orders, strict=True):
            queue_command(self._state, queue, 0, order.command)
        return Applied(value=first, count=len(queues))
