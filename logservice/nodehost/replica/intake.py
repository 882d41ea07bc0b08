"""Intake: what callers want proposed, in order of arrival, until it is in the log.

On the leader's store a pass drains the intake: consecutive blocks share an entry, commands get
entries of their own, and the leader's pre-check (`rsm.admission`) refuses what could only become a
gap. On other stores each request is forwarded to the leader's store, and the answer is passed on.
Without a leader requests wait, within their deadlines. A leader proposes nothing before its term's
first entry is applied: until then it cannot know what the log decides.

A block that the disks of a quorum have no room for (`tracker.room`) is refused here with DISK_FULL,
before it is proposed. Admission answers first what is no append at all (repetitions, fenced
writers). A command needs no room of its own, so that a full log can be truncated.

Somebody else may have taken the reserve while a block was on its way, so that the disks of a quorum
are closed. Then the block stays in the log, with whatever is behind it, until there is room.
Appends that come meanwhile do not wait for their deadlines: they are refused at once, and so are
sessions that are opened for appends. Every other command waits. The refusal speaks of this attempt
alone. The block that is stuck may be that of an earlier attempt: a caller who repeats a sequence
knows that the earlier attempt ended with an unknown outcome, and says so.

A drain takes INTAKE_TURN_BYTES at most; with more waiting the replica has its next turn behind the
other shards, so that a disk's queue (`write_queue`) has writes to choose from.

Requests of all replicas of a store share a part of its memory (`memory_part`), each log a holder:
one that nobody can serve leaves room for the others. A request takes its size when it comes, and
`settle` gives back what is neither here, nor on its way to another store, nor in the book.

What a limited log appends is paid for here (`pace`), and its entries share what may wait for the
disks (`unwritten`). While nothing may be taken, appends keep their order and commands go past them.

INV-INTAKE-1: an admitted block's LSN in admission is the LSN that the core gives it.
INV-INTAKE-2: after `settle` a replica holds of that part what its requests take, and no more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import (
    Busy,
    DiskFull,
    Halted,
    LogServiceError,
    NotReady,
    UnknownOutcome,
)

from logservice import bounds, trace
from logservice.entry import EntryKind, Proposal
from logservice.envelope import (
    ENVELOPE_BYTES,
    BlockEnvelope,
    ProposalId,
    encode_blocks,
    encode_command,
)
from logservice.ids import NO_SESSION, Index, Lsn, SessionId, ShardId
from logservice.invariants import InvariantViolation, invariant
from logservice.memory_part import MemoryPart
from logservice.nodehost.replica.append_time import AppendTime
from logservice.nodehost.replica.pace import Pace
from logservice.nodehost.replica.pending import Pending, PendingBook
from logservice.nodehost.replica.unwritten import Unwritten
from logservice.outcome import Applied
from logservice.raft.core import Proposing, Raft
from logservice.raft.errors import ProposalDropped
from logservice.raft.ready import Role
from logservice.rsm.admission import Admission, Admit, Refuse
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.commands import opens_session
from logservice.trace import Call

_DEPTH_BYTES_MAX = bounds.RAFT_UNCOMMITTED_BYTES_MAX // 2
"""Uncommitted bytes beyond which draining pauses: a request that waits here can still be refused or
forwarded."""


_ENTRIES_INFLIGHT_MAX = 1
"""Unapplied entries of the leader at which small requests wait and share the next one.

One is enough to keep the log busy: what waits goes as soon as the entry before it is applied, or
when it fills an entry.
"""


@dataclass(slots=True)
class Waiting:
    """One request that is not in the log yet. Exactly one of `append` and `command` is set.

    `local_only`: another store forwarded the request to this one, as the leader's store. If this
    store does not lead any more, that store looks for the leader again; otherwise requests could
    travel in circles. `forwarded`: this store may pass the request on to the leader's store; if
    not, the caller has to go there. `call` is the call that the request belongs to.
    """

    pending: Pending
    append: AppendRequest | None
    command: bytes
    local_only: bool
    forwarded: bool
    call: Call | None = None
    park_until: int = 0


_NOBODY: Final[deque[Waiting]] = deque(maxlen=0)
"""Nobody waits: an empty deque takes 760 bytes, and there are thousands of idle replicas."""


class Intake:
    """See the module's text. `origin` makes proposal ids unique over restarts. `times` stamps the
    entries with blocks; a shard without blocks has neither that nor `admission`. `part` is what the
    requests of all replicas may take.
    """

    def __init__(
        self,
        raft: Raft,
        admission: Admission | None,
        book: PendingBook,
        pace: Pace,
        times: AppendTime | None,
        unwritten: Unwritten,
        part: MemoryPart,
        *,
        shard: ShardId,
        origin: int,
        count_max: int,
        bytes_max: int,
        entry_bytes_target: int,
    ) -> None:
        self._raft = raft
        self._admission = admission
        self._book = book
        self._pace = pace
        self._times = times
        self._unwritten = unwritten
        self._part = part
        self._shard = shard
        self._held = 0
        self.crowded = False
        """Whether requests wait because too much waits for the disk (`unwritten`)."""
        self.paced = False
        """Whether appends wait for the limits of the log."""
        self.turn_over = False
        """Whether more waits, and the other shards have their turn first."""
        self._origin = origin
        self._number = 0
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._entry_bytes_target = entry_bytes_target
        self.waiting = _NOBODY
        """The requests that are neither in the log nor on their way to another store. Only `_waits`
        adds to it."""
        self._waiting_bytes = 0
        self._waiting_records = 0
        self._waiting_commands = 0
        self._away = 0
        self._away_bytes = 0
        self._admission_term = -1
        self._block_room = 0

    def __len__(self) -> int:
        return len(self.waiting)

    def add(
        self,
        future: asyncio.Future[Applied],
        deadline_s: float,
        *,
        append: AppendRequest | None = None,
        command: bytes = b"",
        local_only: bool = False,
        forwarded: bool = True,
    ) -> None:
        """Take a request. Raises Busy when a bound is reached; then nothing was taken."""
        size = len(append.block) + 128 if append is not None else len(command) + 128
        if (
            len(self.waiting) + self._away + self._book.count >= self._count_max
            or self._waiting_bytes + self._away_bytes + self._book.bytes + size > self._bytes_max
        ):
            raise Busy("too many proposals wait", retry_after_ms=20)
        if append is not None and self._pace.limited and self._raft.role is Role.LEADER:
            wait_s = self._pace.refuse_after_s(self._waiting_bytes, self._waiting_records)
            if wait_s:
                raise _over_limit(wait_s)
        if not self._part.take(self._shard, size):
            raise Busy("the proposals of all logs take the store's memory", retry_after_ms=50)
        self._held += size
        pending = Pending(future, deadline_s, size)
        if append is not None:
            pending.received_s = self._book.stages.now()
        self._waits(
            Waiting(
                pending,
                append,
                command,
                local_only,
                forwarded,
                trace.current.get(),
            )
        )

    def _waits(self, item: Waiting, *, first: bool = False) -> None:
        if self.waiting is _NOBODY:
            self.waiting = deque()
        (self.waiting.appendleft if first else self.waiting.append)(item)
        self._count(item, 1)

    def _count(self, item: Waiting, sign: int) -> None:
        self._waiting_bytes += sign * item.pending.size
        if item.append is not None:
            self._waiting_records += sign * item.append.record_count
        else:
            self._waiting_commands += sign

    def settle(self) -> None:
        """Give back what requests took that are answered (INV-INTAKE-2)."""
        left = self._waiting_bytes + self._away_bytes + self._book.bytes
        if left < self._held:
            self._part.give_back(self._shard, self._held - left)
            self._held = left
        if not left and not self.waiting:
            self.waiting = _NOBODY

    def forward_all(self) -> list[Waiting]:
        """Remove and return what waits, to be forwarded. Each request counts here until
        `came_back`: a leader that does not answer must not cost more memory than one that is
        missing.
        """
        taken = self._take_all()
        self._away += len(taken)
        self._away_bytes += sum(item.pending.size for item in taken)
        return taken

    def came_back(self, item: Waiting) -> None:
        """An attempt to forward `item` ended in any way."""
        self._away -= 1
        self._away_bytes -= item.pending.size
        self.settle()

    def put_back(self, item: Waiting) -> None:
        """A forwarded request surely did not reach a leader; it waits for the next one."""
        self._waits(item)

    def drain(self, now: Proposing, applied: int, *, ready: bool) -> None:
        """Leader only: move what waits into the log, as far as bounds and parked requests allow.

        `now` is what the core says about the next proposal. `ready` says that the first entry of
        the leader's term is applied. Before that nothing is moved.
        """
        if not ready:
            if self._raft.quorum_closed:
                self._refuse_unready()
            return
        block_room = self._block_room = now.block_room
        if block_room and self._worth_waiting(now.last_index - applied):
            return
        self._follow_term(now.term)
        batch = _Batch(now.next_lsn, now.last_index, self._times)
        parked: list[Waiting] = []
        kept: list[Waiting] = []
        self.paced, limited = False, self._pace.limited
        self.crowded, memory = False, self._unwritten.room
        tight, taken = limited or memory < self._waiting_bytes, 0
        behind: set[SessionId] = set()
        depth = _DEPTH_BYTES_MAX - now.uncommitted_bytes
        room = min(depth, bounds.INTAKE_TURN_BYTES)
        disk_room = block_room and block_room - now.uncommitted_bytes
        while self.waiting and room > 0:
            item = self.waiting[0]
            if item.append is not None and item.pending.size > disk_room < block_room:
                break  # the disks take no more at a time: what is on its way goes first
            size = item.pending.size
            if tight and item.append is not None and self._held_back(size, memory - taken):
                if not self._waiting_commands:
                    break
                kept.append(self.waiting.popleft())
                self._count(item, -1)
                continue
            self.waiting.popleft()
            self._count(item, -1)
            if item.pending.future.done():
                continue
            if now.closed and self._refused_on_closed_disks(item, batch.next_lsn):
                continue
            session = item.append.session if item.append is not None else NO_SESSION
            if item.park_until > applied or session in behind:
                parked.append(item)
            elif self._take(item, batch, parked):
                room -= item.pending.size
                if item.append is not None:
                    taken += item.pending.size
                    disk_room -= item.pending.size
                    if disk_room < 0:
                        invariant(False, "INV-ROOM-1", room=block_room, short=-disk_room)
                    if limited:
                        self._pace.take(len(item.append.block), item.append.record_count)
            if not parked or parked[-1] is not item:
                continue
            kept.append(item)
            if session:
                # While this sequence is not in the log, admission would take the next one of its
                # session for a gap. This one may wait for more entries than admission asked for.
                behind.add(session)
        self.turn_over = room <= 0 and depth > bounds.INTAKE_TURN_BYTES and bool(self.waiting)
        if taken:
            self._unwritten.take_own(taken)
        try:
            self._propose(batch)
        finally:
            for item in parked:
                item.park_until = max(item.park_until, self._raft.last_index)
            for item in reversed(kept):
                self._waits(item, first=True)
            self.settle()

    def _held_back(self, size: int, memory: int) -> bool:
        """Whether an append of `size` bytes waits: for memory, for its log's limit, or behind one
        that does.
        """
        if not (self.crowded or self.paced):
            self.crowded = size > memory
            self.paced = not self.crowded and self._pace.limited and self._pace.wait_s() > 0
        return self.crowded or self.paced

    def _follow_term(self, term: int) -> None:
        if self._admission is None or term == self._admission_term:
            return
        # What admission remembers of an older term's tail may have been cut since.
        self._admission.reset()
        if self._times is not None:
            self._times.begin_term()
        self._admission_term = term
        for item in self.waiting:
            item.park_until = 0

    def _worth_waiting(self, unapplied: int) -> bool:
        """Whether requests should wait for the unapplied entries, and then share one entry.

        This is natural batching, as in the client: while an entry is on its way, what arrives
        shares the next one. The cost is per entry, and a full entry gains nothing by waiting.
        """
        return unapplied >= _ENTRIES_INFLIGHT_MAX and self._waiting_bytes < self._entry_bytes_target

    def expire(self, now_s: float) -> None:
        """Answer requests whose deadline passed: never proposed, so definitely not applied."""
        for item in self.waiting:
            if item.pending.deadline_s <= now_s:
                held = self.paced and item.append is not None and self._raft.role is Role.LEADER
                late = _over_limit(self._pace.wait_s()) if held else None
                item.pending.fail(late or NotReady("no leader took the request in time"))
        if any(item.pending.future.done() for item in self.waiting):
            for item in self._take_all():
                if not item.pending.future.done():
                    self._waits(item)
        self.settle()

    def fail_all(self, error: LogServiceError) -> None:
        """The replica stops: nothing here was proposed."""
        for item in self._take_all():
            item.pending.fail(error)
        self.settle()

    def send_back(self, make_error: Callable[[], LogServiceError], *, leader_known: bool) -> None:
        """This store is not the leader's: send back the requests that were forwarded to it. Once
        callers can be told where the leader is, send back what is not forwarded at all, too.
        """

        def goes(item: Waiting) -> bool:
            return item.local_only or (leader_known and not item.forwarded)

        if any(goes(item) for item in self.waiting):
            for item in self._take_all():
                if goes(item):
                    item.pending.fail(make_error())
                else:
                    self.put_back(item)
            self.settle()

    def _take_all(self) -> list[Waiting]:
        taken = list(self.waiting)
        self.waiting = _NOBODY
        self._waiting_bytes = self._waiting_records = self._waiting_commands = 0
        self.paced = False
        return taken

    def _take(self, item: Waiting, batch: _Batch, parked: list[Waiting]) -> bool:
        """Put one request into the batch; False when it was answered or parked instead."""
        admission = self._admission
        request = item.append
        if admission is not None:
            verdict = (
                admission.admit(request, batch.next_lsn, waited=item.park_until > 0)
                if request is not None
                else admission.admit_command(item.command)
            )
            if isinstance(verdict, Refuse):
                item.pending.resolve(verdict.outcome)
                return False
            if not isinstance(verdict, Admit):
                parked.append(item)
                return False
        if request is not None and item.pending.size > self._block_room:
            item.pending.fail(self._no_room(item.pending.size))
            return False
        self._number += 1
        item.pending.proposal = ProposalId(self._origin, self._number)
        if request is None:
            command = encode_command(item.pending.proposal, item.command)
            index = batch.add_command(item.pending, command)
            if admission is not None:
                admission.command_appended(item.command, index)
            return True
        if admission is not None:
            admission.appended(request, batch.next_lsn)
        batch.add_block(
            item.pending,
            BlockEnvelope(
                item.pending.proposal,
                request.session,
                request.sequence,
                request.writer_epoch,
                request.expected_lsn,
                request.record_count,
                request.block,
                request.claim,
            ),
            self._entry_bytes_target,
            request.append_time_us,
        )
        return True

    def _refuse_unready(self) -> None:
        """The disks of a quorum are closed: refuse what waits, because the term's first entry may
        be stuck behind a block that the disks do not take.
        """
        for item in self._take_all():
            if not self._refused_on_closed_disks(item, None):
                self.put_back(item)
        self.settle()

    def _refused_on_closed_disks(self, item: Waiting, next_lsn: Lsn | None) -> bool:
        """Whether `item` is an append, or opens a session for appends, and so has been answered.

        With `next_lsn` admission is asked first: it knows the answer to what is applied already.
        """
        request, admission = item.append, self._admission
        if request is None:
            if admission is None or not opens_session(item.command):
                return False
        elif admission is not None and next_lsn is not None:
            verdict = admission.admit(request, next_lsn)
            if isinstance(verdict, Refuse):
                item.pending.resolve(verdict.outcome)
                return True
        item.pending.fail(self._no_room(item.pending.size))
        return True

    def _no_room(self, size: int) -> LogServiceError:
        """Why a block is refused. It was not proposed, so it is definitely not applied."""
        # What a quiesced leader knows of the disks is as old as its silence. A refused block is
        # never proposed and so wakes nobody: without this the leader would refuse for ever.
        self._raft.wake()
        quorum = self._raft.quorum_room
        if size <= quorum:
            # Only this leader's own disk has no room: it hands over to one that has (INV-ROOM-3).
            self._raft.refused_for_own_room(size)
            return Busy(
                "the leader's disk has no room for this, another one takes over", retry_after_ms=100
            )
        if self._raft.room_untold:
            return Busy("not every disk has told the new leader of its room", retry_after_ms=100)
        if quorum:
            return DiskFull(
                f"the disks of the shard's majority have room for blocks of {quorum} bytes: append "
                "smaller ones, truncate, or give the disks more room; then try again",
                room_bytes=quorum,
            )
        return DiskFull(
            "the disks of the shard's majority are above their high-water mark: truncate, or give "
            "the disks more room; then try again",
            room_bytes=0,
        )

    def _propose(self, batch: _Batch) -> None:
        batch.close_entry()
        if not batch.proposals:
            return
        try:
            placed = self._raft.propose(batch.proposals)
        except ProposalDropped:
            # Nothing was appended, but admission already counts on the batch, so it is told. The
            # callers get BUSY, which means definitely not applied.
            if self._admission is not None:
                self._admission.dropped(self._raft.last_index)
            batch.take_back_times()
            for items in batch.items:
                for pending in items:
                    pending.fail(Busy("the leader cannot take proposals now", retry_after_ms=50))
            return
        except Halted:
            # The core found its storage damaged behind the append; the replica stops.
            for items in batch.items:
                for pending in items:
                    pending.fail(UnknownOutcome("the replica halted"))
            raise
        if placed is None:
            raise InvariantViolation("INV-INTAKE-1", {"role": self._raft.role})
        for (index, term, lsn), first_lsn, items in zip(
            placed, batch.first_lsns, batch.items, strict=True
        ):
            if lsn != first_lsn:
                invariant(False, "INV-INTAKE-1", index=index, lsn=lsn, admitted=first_lsn)
            self._book.register(index, term, items)


def _over_limit(wait_s: float) -> Busy:
    return Busy("the log's limit is used up", retry_after_ms=max(1, round(wait_s * 1000)))


class _Batch:
    """Entries being put together in one drain."""

    def __init__(self, next_lsn: Lsn, last_index: Index, times: AppendTime | None) -> None:
        self.next_lsn = next_lsn
        self._last_index = last_index
        self._times = times
        self._stamped_us = times.newest_us if times is not None else 0
        self.proposals: list[Proposal] = []
        self.items: list[list[Pending]] = []
        self.first_lsns: list[Lsn] = []
        self._blocks: list[BlockEnvelope] = []
        self._pendings: list[Pending] = []
        self._bytes = 0
        self._restored_us = 0
        self._entry_lsn = next_lsn

    def add_block(
        self,
        pending: Pending,
        block: BlockEnvelope,
        entry_bytes_target: int,
        append_time_us: int = 0,
    ) -> None:
        """`append_time_us`: that of a block of a restore; all blocks of an entry have one time. A
        gap of a restore, which has no block, is an entry by itself.
        """
        size = ENVELOPE_BYTES + len(block.block)
        if self._blocks and (
            self._bytes + size > entry_bytes_target
            or append_time_us != self._restored_us
            or not (block.block and self._blocks[-1].block)
        ):
            self.close_entry()
        self._restored_us = append_time_us
        self._blocks.append(block)
        self._pendings.append(pending)
        self._bytes += size
        self.next_lsn = Lsn(self.next_lsn + block.record_count)

    def add_command(self, pending: Pending, payload: bytes) -> Index:
        self.close_entry()
        self.proposals.append(Proposal(EntryKind.COMMAND, 0, payload))
        self.items.append([pending])
        self.first_lsns.append(self.next_lsn)
        return Index(self._last_index + len(self.proposals))

    def close_entry(self) -> None:
        if not self._blocks:
            return
        stamp = self._restored_us or (self._times.stamp() if self._times is not None else 0)
        payload = encode_blocks(self._blocks, stamp)
        self.proposals.append(Proposal(EntryKind.BLOCK, self.next_lsn - self._entry_lsn, payload))
        self.items.append(self._pendings)
        self.first_lsns.append(self._entry_lsn)
        self._entry_lsn = self.next_lsn
        self._blocks, self._pendings, self._bytes = [], [], 0

    def take_back_times(self) -> None:
        """Nothing of it got into the log."""
        if self._times is not None:
            self._times.take_back(self._stamped_us)
