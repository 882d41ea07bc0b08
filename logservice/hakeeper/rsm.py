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

from collections.abc import Iterator, Sequence
from dataclasses import replace

from logservice_wire.errors import InvalidArgument, Reason

from logservice import bounds
from logservice.entry import Entry, EntryKind
from logservice.envelope import EnvelopeCorrupt, ProposalId, decode_blocks, decode_command
from logservice.hakeeper import feed, following, slices, state
from logservice.hakeeper.allocation import apply_allocate
from logservice.hakeeper.answers import listing, queries, views
from logservice.hakeeper.answers.directory import directory_page
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.recovery import RecoverCluster
from logservice.hakeeper.commands.store_commands import QueuedCommand, ServiceOrder, TransferLeader
from logservice.hakeeper.given_out import given_out
from logservice.hakeeper.logs.change import apply_change, named
from logservice.hakeeper.logs.deletion import apply_delete
from logservice.hakeeper.repair import check, rehearsal
from logservice.hakeeper.repair.bootstrap import apply_create, apply_initial, apply_set_phase
from logservice.hakeeper.repair.recovery import apply_recover
from logservice.hakeeper.state import State
from logservice.hakeeper.stores import (
    access,
    cluster_version,
    enrolment,
    heartbeats,
    orders,
    services,
)
from logservice.hakeeper.stores.delivery import queue_command
from logservice.hakeeper.stores.holdings import build_in_slices, holdings
from logservice.hakeeper.tombstones import is_deleted
from logservice.hakeeper.wishes import impact, verbs
from logservice.ids import HAKEEPER_SHARD, StoreId, Term
from logservice.outcome import Applied, Outcome, Rejected
from logservice.sliced import Sliced
from logservice.snapshot import SnapshotCorrupt
from logservice.state_machine import Standing

_NOT_UNDERSTOOD = Rejected(Reason.INVALID_ARGUMENT, {"field": "command"})


class HAKeeperRsm:
    """Implements `StateMachine`."""

    def __init__(self) -> None:
        """The state before the first entry."""
        self._state = state.State()
        self._prepared: tuple[bytes, State] | None = None
        """A state that was read already, and from which bytes."""

    @property
    def state(self) -> state.State:
        """The state itself, for tests and for views on the same store. No caller may change it."""
        return self._state

    def update(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        """Apply one committed entry and return one outcome per proposal in it.

        No input makes it raise.
        """
        self._state.index = entry.index
        if self._prepared is not None and self._prepared[1].index <= entry.index:
            self._prepared = None
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
            proposal, version = proposals.decode_versioned(command)
        except proposals.ProposalCorrupt:
            return [(proposal_id, _NOT_UNDERSTOOD)]
        if version > self._state.cluster_version and not isinstance(
            proposal, proposals.RaiseVersion
        ):
            # A replica whose program is older does not understand it. All have to do the same.
            return [(proposal_id, _NOT_UNDERSTOOD)]
        before = feed.mark(self._state)
        outcome = self._apply(entry.term, proposal)
        following.follow(self._state, proposal, outcome)
        feed.tell_outcome(self._state, before, proposal, outcome)
        return [(proposal_id, outcome)]

    def lookup(self, query: object) -> object:
        """Answer a `queries.Query` with a view, or with a `Sliced` one. Raises InvalidArgument for
        anything else.
        """
        if isinstance(query, queries.GetCluster):
            return views.cluster_view(self._state)
        if isinstance(query, queries.GetSummary):
            own = self._state.shards.get(HAKEEPER_SHARD)
            return views.cluster_view(self._state, [own] if own is not None else [])
        if isinstance(query, queries.GetShard):
            shard = self._state.shards.get(query.shard)
            if shard is None:
                gone = is_deleted(self._state, query.shard)
                return views.gone_view(query.shard) if gone else None
            return replace(views.shard_view(self._state, shard), membership=shard.membership)
        if isinstance(query, queries.ResolveShard):
            living = named(self._state, query.name)
            return views.shard_view(self._state, living) if living is not None else None
        if isinstance(query, queries.ListShards):
            return Sliced(listing.in_slices(self._state, query))
        if isinstance(query, queries.GetAccess):
            return views.access_view(self._state)
        if isinstance(query, queries.GetDirectory):
            return directory_page(self._state, query.since, query.after, query.limit)
        if isinstance(query, queries.GetEvents):
            return feed.page(self._state, query.after, query.limit)
        if isinstance(query, queries.GetGivenOut):
            return given_out(self._state)
        if isinstance(query, queries.GetPhase):
            return self._state.phase.value
        if isinstance(query, queries.IsQuiet):
            return check.quiet(self._state)
        if isinstance(query, queries.PlanBalance):
            wanted = {"replicas": query.replicas, "leaders": query.leaders}
            return Sliced(rehearsal.in_slices(self._state, **wanted))
        if isinstance(query, queries.CheckImpact):
            return Sliced(impact.in_slices(self._state, query.stores))
        raise InvalidArgument("unknown query", field="query")

    def save_snapshot(self) -> bytes:
        """The whole state; equal state gives equal bytes."""
        return state.save(self._state)

    def save_in_slices(self) -> Iterator[bytes]:
        """See `StateMachine`."""
        return slices.save_in_slices(self._state)

    def prepare(self, state_bytes: bytes) -> Iterator[None]:
        """See `StateMachine`."""
        if not state_bytes:
            return
        try:
            found = yield from slices.load_in_slices(state_bytes)
        except SnapshotCorrupt:
            return
        yield from build_in_slices(found)
        self._prepared = state_bytes, found

    def recover_from_snapshot(self, state_bytes: bytes) -> None:
        """Replace the state. Raises SnapshotCorrupt and then keeps the old one."""
        self._state = self._read(state_bytes)
        self._prepared = None
        holdings(self._state)  # here, and not in the first tick that needs them

    def check_snapshot(self, state_bytes: bytes) -> Standing:
        """See `StateMachine`."""
        found = self._read(state_bytes)
        self._prepared = state_bytes, found
        return Standing(found.index, None)

    def _read(self, state_bytes: bytes) -> State:
        if self._prepared is not None and self._prepared[0] is state_bytes:
            return self._prepared[1]
        return state.load(state_bytes)

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
        if isinstance(proposal, proposals.ChangeShard):
            return apply_change(self._state, proposal)
        if isinstance(proposal, proposals.DeleteShard):
            return apply_delete(self._state, proposal)
        if isinstance(proposal, proposals.SendOrder):
            return orders.apply_order(self._state, proposal)
        if isinstance(proposal, proposals.SetJoining):
            return enrolment.apply_joining(self._state, proposal)
        if isinstance(proposal, proposals.RaiseVersion):
            return cluster_version.apply_raise(self._state, proposal)
        if isinstance(proposal, RecoverCluster):
            return apply_recover(self._state, proposal)
        if isinstance(proposal, proposals.SetPhase):
            return apply_set_phase(self._state, proposal)
        return verbs.apply(self._state, proposal)

    def _tick(self, term: Term, tick: proposals.Tick) -> Outcome:
        if tick.term != term:
            return Rejected(Reason.STALE_EPOCH, {"epoch": str(term)})
        self._state.term = term
        if self._state.phase is not Phase.CREATED:
            for _ in range(tick.count):
                self._state.tick += 1
                check.on_tick(self._state)
                feed.tell_truncations(self._state)
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
