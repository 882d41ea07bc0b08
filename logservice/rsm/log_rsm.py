"""LogRsm: the state machine of a log shard. It judges every block and carries out every command.

Applied in log order on every replica, so everything here is deterministic: no clock, no randomness,
no unordered iteration. It never raises on what a client or peer can send: a bad command is
`Rejected`.

A block is judged in this order, which `rsm.admission` repeats before a block gets its LSN:
session (repetition, expired, gap) -> closed -> writer epoch -> expected LSN -> applied. The session
comes before the Close, so that SHARD_CLOSED means "not applied and never will be", also to a caller
whose earlier attempt had no known outcome. A refused block keeps its LSNs, because later entries
already lie behind it in the log; they become a rejected range, which readers see as a typed gap. So
does a repetition: its records are at their original LSNs.

A log that is being restored, or is a mirror, takes the blocks of the restore and no other
(`rsm.restoring`).

An entry says when its blocks were appended, as its leader stamped it (`logservice.envelope`). An
entry whose time does not grow (INV-TIME-1 of `rsm.state`) is refused as a whole, like one that does
not decode.

The entry says who asked (`logservice.owner`). What belongs to an identity is changed by that
identity alone, or by administration, whose command then says `override`.

Invariants (checked; a violation stops the store, because the log below broke its promise):

- INV-RSM-ORDER: entries come without holes; only a new shard's state may start at any index.
- INV-LOG-LSN: an entry's LSN is the one the entry before ended with; only BLOCK entries carry
  records.

References: docs/guarantees.md, G2, G4, G5, G9.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logservice_wire.errors import Reason
from logservice_wire.reader_hold import is_reader_hold

from logservice.bounds import (
    HOLDS_MAX,
    HOLDS_PER_OWNER_MAX,
    READER_HOLDS_MAX,
    READER_HOLDS_PER_OWNER_MAX,
)
from logservice.entry import Entry, EntryKind
from logservice.envelope import (
    BlockEnvelope,
    EnvelopeCorrupt,
    ProposalId,
    append_time_of,
    decode_blocks,
    decode_command,
)
from logservice.ids import Lsn
from logservice.invariants import invariant
from logservice.lineage import Lineage
from logservice.outcome import Applied, Outcome, Rejected, belongs_to
from logservice.owner import Author, owner_digest
from logservice.rsm.commands import (
    AcquireWriter,
    AllocateTimestamps,
    BeginLineage,
    BeginRestore,
    Close,
    Command,
    CommandMalformed,
    Connect,
    EndRestore,
    ExpireHold,
    ForgetSession,
    OpenNamedSession,
    OpenSession,
    ReleaseHold,
    ReleaseWriter,
    RenewHold,
    Retain,
    SetHold,
    SetHoldFor,
    Truncate,
    TruncateMirror,
    decode,
)
from logservice.rsm.queries import HoldStatus, LogStatus, LogStatusQuery, NamedSessionsQuery
from logservice.rsm.restoring import RESTORED_GAPS, Restoring, problem
from logservice.rsm.sessions import SESSION_EXPIRED, sequence_gap
from logservice.rsm.snapshot_codec import decode_state, encode_state
from logservice.rsm.state import TIMESTAMP_MAX, Hold, LogState
from logservice.state_machine import Standing

_NO_ROOM = Rejected(Reason.BUSY, {"retry_after_ms": "1000"})
_TOO_MANY_HOLDS = Rejected(
    Reason.TOO_LARGE,
    {
        "name": "holds of one identity",
        "limit": str(HOLDS_PER_OWNER_MAX),
        "value": str(HOLDS_PER_OWNER_MAX + 1),
    },
)
_TOO_MANY_READER_HOLDS = Rejected(
    Reason.TOO_LARGE,
    {
        "name": "readers' holds of one identity",
        "limit": str(READER_HOLDS_PER_OWNER_MAX),
        "value": str(READER_HOLDS_PER_OWNER_MAX + 1),
    },
)
_CORRUPT = Rejected(Reason.CORRUPT_BLOCK)
_WHILE_RESTORING = (
    BeginLineage | BeginRestore | EndRestore | TruncateMirror | Close | Connect | ExpireHold
)
_WHILE_READ = SetHold | SetHoldFor | RenewHold | ReleaseHold
"""What a mirror takes besides: who reads may want to keep."""
_EMPTY = Rejected(Reason.INVALID_ARGUMENT, {"field": "block"})


class LogRsm:
    """A `StateMachine`; see there for who may call what."""

    def __init__(self) -> None:
        """The state of a new shard."""
        self.state = LogState()
        """The applied state, to look at: only `update` and `recover_from_snapshot` change it."""

    def update(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        """Apply one committed entry; one outcome per proposal inside, in order."""
        state = self.state
        # For every entry: to build the context of an invariant costs more than to compare.
        if entry.index != state.applied_index + 1 and (state.applied_index or entry.index < 1):
            invariant(False, "INV-RSM-ORDER", applied=state.applied_index, index=entry.index)
        if entry.lsn != state.next_lsn or (
            entry.record_count and entry.kind is not EntryKind.BLOCK
        ):
            invariant(
                False,
                "INV-LOG-LSN",
                next_lsn=state.next_lsn,
                lsn=entry.lsn,
                kind=entry.kind,
                count=entry.record_count,
            )
        outcomes: Sequence[tuple[ProposalId, Outcome]] = ()
        if entry.kind is EntryKind.BLOCK:
            outcomes = self._apply_blocks(entry)
        elif entry.kind is EntryKind.COMMAND:
            outcomes = self._apply_command(entry)
        state.applied_index = entry.index
        state.next_lsn = Lsn(entry.lsn + entry.record_count)
        return outcomes

    def lookup(self, query: object) -> object:
        """Answer a query of `rsm.queries`; TypeError for anything else, which no client can
        send.
        """
        if isinstance(query, LogStatusQuery):
            return self.status()
        if isinstance(query, NamedSessionsQuery):
            return self.state.named.page(query)
        raise TypeError(f"not a query of a log shard: {query!r}")

    def status(self) -> LogStatus:
        """The answer to `LogStatusQuery`."""
        state = self.state
        return LogStatus(
            applied_index=state.applied_index,
            next_lsn=state.next_lsn,
            first_lsn=Lsn(state.truncated_lsn + 1),
            truncated_lsn=state.truncated_lsn,
            requested_truncation_lsn=state.requested_lsn,
            writer_holder=state.writer_holder,
            writer_owner=state.writer_owner,
            writer_epoch=state.writer_epoch,
            holds=tuple(HoldStatus(name, *hold) for name, hold in sorted(state.holds.items())),
            next_timestamp=state.next_timestamp,
            session_count=len(state.sessions) + len(state.named),
            rejected_range_count=len(state.rejected),
            closed_index=state.closed_index,
            closed_lsn=state.closed_lsn,
            lineage=state.lineage,
            restoring=state.restoring,
        )

    def save_snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""
        return encode_state(self.state)

    def save_in_slices(self) -> Iterator[bytes]:
        """See `StateMachine`: a log's state is small."""
        return iter((self.save_snapshot(),))

    def prepare(self, state: bytes) -> Iterator[None]:
        """See `StateMachine`: a log's state is small."""
        return iter(())

    def recover_from_snapshot(self, state: bytes) -> None:
        """Replace the state; `b""` stands for that of a new shard. The old state stays when
        SnapshotCorrupt is raised.
        """
        self.state = decode_state(state) if state else LogState()

    def check_snapshot(self, state: bytes) -> Standing:
        decoded = decode_state(state) if state else LogState()
        return Standing(decoded.applied_index, decoded.next_lsn)

    def close(self) -> None:
        """Nothing to release."""

    # --- blocks ----------------------------------------------------------------------------------

    def _apply_blocks(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        state = self.state
        try:
            blocks = list(decode_blocks(entry.payload))
            append_time_us = append_time_of(entry.payload)
        except EnvelopeCorrupt:
            # No correct leader makes such an entry; its LSNs are taken, so they become a gap.
            state.reject(entry.lsn, entry.record_count, Reason.CORRUPT_BLOCK)
            return ()
        if sum(
            block.record_count for block in blocks
        ) != entry.record_count or not state.takes_time(append_time_us):
            state.reject(entry.lsn, entry.record_count, Reason.CORRUPT_BLOCK)
            return [(block.proposal, _CORRUPT) for block in blocks]
        state.append_time_us = append_time_us
        outcomes: list[tuple[ProposalId, Outcome]] = []
        lsn = entry.lsn
        for block in blocks:
            outcome = self._apply_block(block, lsn, entry)
            if isinstance(outcome, Rejected):
                restoring = outcome.reason is Reason.SHARD_RESTORING
                state.reject(
                    lsn, block.record_count, Reason.FENCED if restoring else outcome.reason
                )
            elif outcome.duplicate:
                state.reject(lsn, block.record_count, Reason.SEQUENCE_GAP)
            outcomes.append((block.proposal, outcome))
            lsn = Lsn(lsn + block.record_count)
        return outcomes

    def _apply_block(self, block: BlockEnvelope, lsn: Lsn, entry: Entry) -> Outcome:
        """Judge one block that lies at `lsn`. Only an accepted one advances its session."""
        state = self.state
        count = block.record_count
        if state.restoring is not None or (
            state.lineage.number and state.is_of_restore(block.session, block.claim.nonce)
        ):
            return self._apply_restored(block, lsn, entry)
        session = None
        if block.session:
            session = state.session(block.session)
            if session is None or not session.is_of(block.claim):
                return SESSION_EXPIRED
            session.touch(entry.index, state.append_time_us)
            step = block.sequence - session.last_sequence
            if step <= 0:
                return session.repetition(block.sequence, block.block)
            if step > 1:
                return sequence_gap(session.last_sequence)
        if state.closed_index:
            return state.closed()
        if not state.admits(block.writer_epoch, block.claim.owner):
            return state.fenced()
        if block.expected_lsn and block.expected_lsn != lsn:
            # Blocks behind it in the entry keep their LSNs, whether they are applied or not.
            return Rejected(Reason.WRONG_EXPECTED_LSN, {"next": str(entry.next_lsn)})
        if count == 0:
            return _EMPTY
        if session is not None:
            session.accept(lsn, count, block.block, state.append_time_us)
        return Applied(lsn=lsn, count=count, value=state.append_time_us)

    def _apply_restored(self, block: BlockEnvelope, lsn: Lsn, entry: Entry) -> Outcome:
        """A block while the log is restored, or one of a restore that is over."""
        state, count = self.state, block.record_count
        refused = state.refuses_restored(block.session, block.claim.nonce, block.expected_lsn, lsn)
        if refused is not None:
            return refused
        restoring = state.restoring
        assert restoring is not None
        sequence = block.sequence
        if problem(restoring, lsn, count, len(block.block), sequence) or (
            # Readers take an entry that begins with this reason for one that is refused as a whole.
            RESTORED_GAPS.get(sequence) is Reason.CORRUPT_BLOCK and count != entry.record_count
        ):
            return _CORRUPT
        if sequence and lsn >= restoring.base_lsn:
            state.reject(lsn, count, RESTORED_GAPS[sequence])
        if restoring.mirror and lsn + count == restoring.base_lsn:
            state.reach_base(restoring.base_lsn)
        return Applied(lsn=lsn, count=count, value=state.append_time_us)

    # --- commands --------------------------------------------------------------------------------

    def _apply_command(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        try:
            proposal, data = decode_command(entry.payload)
        except EnvelopeCorrupt:
            return ()
        try:
            command = decode(data)
        except CommandMalformed as problem:
            return ((proposal, Rejected(problem.error.reason, problem.error.metadata)),)
        return ((proposal, self._apply(command, entry)),)

    def _apply(self, command: Command, entry: Entry) -> Outcome:
        state = self.state
        if (
            state.restoring is not None
            and not isinstance(command, _WHILE_RESTORING)
            and not (state.served and isinstance(command, _WHILE_READ))
        ):
            return state.restoring.refusal(state.next_lsn)
        match command:
            case OpenSession() | OpenNamedSession():
                return self._open_session(command, entry)
            case ForgetSession():
                return state.named.forget(entry.index, command)
            case Truncate():
                return self._truncate(command)
            case SetHold(author, override, lsn, name):
                return self._set_hold(author, override, name, Hold(lsn, author.identity))
            case SetHoldFor(author, override, lsn, ttl_s, name):
                wanted = Hold(lsn, author.identity, entry.index, ttl_s)
                return self._set_hold(author, override, name, wanted)
            case RenewHold():
                return self._renew_hold(command, entry)
            case ReleaseHold():
                return self._release_hold(command)
            case ExpireHold():
                return self._expire_hold(command)
            case Retain():
                return self._retain(command)
            case AcquireWriter(author, override, expected_epoch, takeover, holder):
                if not takeover and expected_epoch != state.writer_epoch:
                    return Rejected(Reason.STALE_EPOCH, state.writer_metadata())
                if not (override or state.writer_is_of(author.identity)):
                    return belongs_to(state.writer_owner)
                return Applied(value=state.grant_writer(holder, author.identity))
            case ReleaseWriter(author, override, epoch):
                if epoch == 0 or epoch != state.writer_epoch:
                    return Rejected(Reason.STALE_EPOCH, state.writer_metadata())
                if not (override or state.writer_is_of(author.identity)):
                    return belongs_to(state.writer_owner)
                known = state.writer_holder != ""
                state.release_writer()
                return Applied(value=epoch, duplicate=not known)
            case AllocateTimestamps(count):
                first = state.next_timestamp
                if first > TIMESTAMP_MAX - count:
                    return Rejected(
                        Reason.TOO_LARGE, {"name": "timestamp", "limit": str(TIMESTAMP_MAX)}
                    )
                state.next_timestamp = first + count
                return Applied(value=first, count=count)
            case Connect():
                return Applied(lsn=state.next_lsn, value=entry.index)
            case Close():
                again = bool(state.closed_index)
                if not again:
                    state.close(entry.index)
                return Applied(lsn=state.closed_lsn, value=state.closed_index, duplicate=again)
            case BeginLineage(_, number, lineage, parent):
                if (number, parent) != (state.lineage.number + 1, state.lineage.id):
                    return state.of_lineage(parent)
                state.fork(Lineage(number, lineage, parent, Lsn(state.end_lsn - 1)))
                return Applied(lsn=state.end_lsn, value=number)
            case BeginRestore():
                return self._begin_restore(command)
            case EndRestore():
                return self._end_restore(command)
            case TruncateMirror():
                return self._truncate_mirror(command)

    def _open_session(self, command: OpenSession | OpenNamedSession, entry: Entry) -> Outcome:
        state = self.state
        closed = state.closed() if state.closed_index else None
        if isinstance(command, OpenNamedSession):
            return state.named.open(entry.index, command, state.append_time_us, closed)
        if closed is not None:
            return closed
        if not state.sessions.open(
            entry.index, owner_digest(command.author.identity), command.nonce
        ):
            return _NO_ROOM
        return Applied(value=entry.index)

    def _begin_restore(self, command: BeginRestore) -> Outcome:
        """A repetition is known by the lineage, which the restorer draws at random."""
        state = self.state
        if state.lineage.id == command.lineage:
            return Applied(lsn=state.next_lsn, value=command.number, duplicate=True)
        if not state.nothing_happened:
            return Rejected(
                Reason.VERB_REFUSED, {"why": "only a log in which nothing happened is restored"}
            )
        # What a mirror will have of its source is said at its end.
        fork_lsn = Lsn((command.end_lsn or command.base_lsn) - 1)
        lineage = Lineage(command.number, command.lineage, command.parent, fork_lsn)
        restoring = Restoring(command.base_lsn, command.end_lsn, command.digest)
        state.begin_restore(lineage, restoring, command.writer_epoch, command.next_timestamp)
        return Applied(lsn=state.next_lsn, value=command.number)

    def _end_restore(self, command: EndRestore) -> Outcome:
        state, restoring = self.state, self.state.restoring
        if command.lineage != state.lineage.id:
            return state.of_lineage(command.lineage)
        if restoring is None:
            return Applied(lsn=state.next_lsn, duplicate=True)
        if state.closed_index:
            return state.closed()
        whole = (restoring.base_lsn, restoring.end_lsn or state.next_lsn)
        if (command.base_lsn, command.end_lsn) != whole or state.next_lsn != command.end_lsn:
            return restoring.refusal(state.next_lsn)
        whole_digest = (restoring.digest, 0)
        if not restoring.mirror and (command.digest, command.digest_lsn) != whole_digest:
            return Rejected(
                Reason.CORRUPT_BLOCK, {"detail": "the digest is not the one that was promised"}
            )
        state.end_restore(command.end_lsn, command.next_timestamp)
        return Applied(lsn=state.next_lsn)

    def _truncate_mirror(self, command: TruncateMirror) -> Outcome:
        """What is truncated already, or was never there, is a repetition (INV-MIRROR-TRUNC)."""
        state, restoring = self.state, self.state.restoring
        if command.lineage != state.lineage.id:
            return state.of_lineage(command.lineage)
        if restoring is None or not restoring.mirror:
            return Rejected(Reason.VERB_REFUSED, {"why": "the log is no mirror"})
        if state.closed_index:
            return state.closed()
        if command.lsn >= state.next_lsn:
            return Rejected(Reason.BEYOND_TAIL, {"next_lsn": str(state.next_lsn)})
        again = command.lsn <= max(state.requested_lsn, restoring.base_lsn - 1)
        if not again:
            state.requested_lsn = command.lsn
            state.settle_truncation()
        return Applied(lsn=state.next_lsn, value=state.truncated_lsn, duplicate=again)

    def _truncate(self, command: Truncate) -> Outcome:
        state = self.state
        if not state.admits(command.writer_epoch, owner_digest(command.author.identity)):
            return state.fenced()
        if command.lsn <= state.requested_lsn:
            return Rejected(
                Reason.STALE_TRUNCATE,
                {"current": str(state.truncated_lsn), "requested": str(state.requested_lsn)},
            )
        if command.lsn >= state.end_lsn:
            return Rejected(Reason.BEYOND_TAIL, {"next_lsn": str(state.end_lsn)})
        state.requested_lsn = command.lsn
        return Applied(value=state.settle_truncation())

    def _retain(self, command: Retain) -> Outcome:
        """No epoch fences it: the log's owner has asked for it by the policy (INV-RSM-RETAIN)."""
        state = self.state
        if command.lsn >= state.end_lsn - 1:
            return Rejected(Reason.BEYOND_TAIL, {"next_lsn": str(state.end_lsn)})
        before = state.truncated_lsn
        truncated = state.retain(command.lsn)
        return Applied(value=truncated, count=truncated - before, duplicate=truncated == before)

    def _set_hold(self, author: Author, override: bool, name: str, wanted: Hold) -> Outcome:
        state = self.state
        owner = author.identity
        known = state.holds.get(name)
        if known is not None and known.owner != owner:
            if not override:
                return belongs_to(known.owner)
            owner = known.owner
        if wanted.lsn <= state.truncated_lsn:
            return Rejected(Reason.HOLD_REFUSED, {"first_lsn": str(state.truncated_lsn + 1)})
        if known is None:
            if wanted.revision and is_reader_hold(name):
                of_readers = [hold for one, hold in state.holds.items() if is_reader_hold(one)]
                if sum(hold.owner == owner for hold in of_readers) >= READER_HOLDS_PER_OWNER_MAX:
                    return _TOO_MANY_READER_HOLDS
                if len(of_readers) >= READER_HOLDS_MAX:
                    return _NO_ROOM
            if state.holds_of(owner) >= HOLDS_PER_OWNER_MAX:
                return _TOO_MANY_HOLDS
            if len(state.holds) >= HOLDS_MAX:
                return _NO_ROOM
        state.put_hold(name, wanted._replace(owner=owner))
        state.settle_truncation()
        return Applied(value=wanted.lsn)

    def _renew_hold(self, command: RenewHold, entry: Entry) -> Outcome:
        """The answer names where the hold stands, for it may have been moved by somebody else; and
        nothing from there on is truncated (INV-RSM-HOLD-RENEWED).
        """
        state = self.state
        known = state.holds.get(command.name)
        if known is None:
            return Rejected(
                Reason.HOLD_LOST,
                {"name": command.name, "first_lsn": str(state.truncated_lsn + 1)},
            )
        if known.owner != command.author.identity:
            return belongs_to(known.owner)
        state.put_hold(command.name, known._replace(revision=entry.index))
        return Applied(lsn=known.lsn, value=entry.index)

    def _expire_hold(self, command: ExpireHold) -> Outcome:
        """INV-RSM-HOLD-REVISION."""
        state = self.state
        known = state.holds.get(command.name)
        if known is None or not known.ttl_s or known.revision != command.revision:
            return Applied(value=state.truncated_lsn, duplicate=True)
        state.drop_hold(command.name)
        return Applied(value=state.settle_truncation())

    def _release_hold(self, command: ReleaseHold) -> Outcome:
        state = self.state
        known = state.holds.get(command.name)
        # Releasing a hold that does not exist succeeds, so that a retry does.
        if known is not None:
            if not (command.override or known.owner == command.author.identity):
                return belongs_to(known.owner)
            state.drop_hold(command.name)
        return Applied(value=state.settle_truncation(), duplicate=known is None)
