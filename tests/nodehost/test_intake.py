"""Intake: order and parking of requests, over a core that only gives places."""

from __future__ import annotations

import asyncio

import pytest
from logservice_wire.errors import (
    Busy,
    DiskFull,
    Halted,
    NotReady,
    Outcome,
    UnknownOutcome,
)

from logservice import bounds
from logservice.bounds import APPEND_TIME_US_MAX
from logservice.clock import ManualClock
from logservice.entry import Entry, EntryKind, Proposal
from logservice.envelope import NO_PROPOSAL, encode_command
from logservice.hakeeper.commands.replies import ShardLimits
from logservice.ids import Incarnation, Index, Lsn, SessionId, ShardId, StoreId, Term
from logservice.memory_part import MemoryPart
from logservice.nodehost.replica.append_stages import AppendStages
from logservice.nodehost.replica.append_time import AppendTime
from logservice.nodehost.replica.intake import Intake
from logservice.nodehost.replica.pace import LimitTable, Pace
from logservice.nodehost.replica.pending import PendingBook
from logservice.nodehost.replica.unwritten import Unwritten
from logservice.outcome import Applied
from logservice.raft.core import Proposing
from logservice.raft.errors import DropReason, ProposalDropped
from logservice.raft.messages import ROOM_MAX
from logservice.raft.ready import Role
from logservice.rsm import commands
from logservice.rsm.admission import Admission
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.log_rsm import LogRsm
from logservice.versions import KnownVersion
from tests.owners import APP, CLAIM, NONCE

SHARD = ShardId(1)
TRUNCATE = commands.Truncate(APP, Lsn(1), 0)


class Wall(ManualClock):
    """Says always the same."""

    confirmed = True

    def __init__(self, now_us: int) -> None:
        super().__init__()
        self._now_us = now_us

    def wall_us(self) -> int:
        return self._now_us


class Core:
    """A leader whose entries are applied one by one, when the test says so."""

    def __init__(self, rsm: LogRsm) -> None:
        self.rsm = rsm
        self.term = Term(1)
        self.entries: list[Entry] = []
        self.next_lsn = Lsn(1)
        self.uncommitted_bytes = 0
        self.block_room = self.quorum_room = ROOM_MAX
        self.room_untold = False
        self.quorum_closed = False
        self.role = Role.LEADER
        self.failure: Exception | None = None
        self.woken = 0
        self.refused: list[int] = []

    def refused_for_own_room(self, size: int) -> None:
        self.refused.append(size)

    def wake(self) -> None:
        self.woken += 1

    def proposing(self) -> Proposing:
        closed = not self.block_room and self.quorum_closed
        return Proposing(
            self.term,
            self.last_index,
            self.next_lsn,
            self.uncommitted_bytes,
            self.block_room,
            closed,
        )

    @property
    def last_index(self) -> Index:
        return Index(len(self.entries))

    def propose(self, proposals: list[Proposal]) -> list[tuple[Index, Term, Lsn]]:
        if self.failure is not None:
            raise self.failure
        places = []
        for item in proposals:
            index = Index(self.last_index + 1)
            entry = Entry(
                self.term, index, self.next_lsn, item.record_count, item.kind, item.payload
            )
            self.entries.append(entry)
            places.append((index, self.term, entry.lsn))
            self.next_lsn = entry.next_lsn
        return places


class Bench:
    def __init__(self, wall_us: int = 0) -> None:
        """`wall_us`: what the clock says for good, when entries are stamped."""
        self.rsm = LogRsm()
        self.core = Core(self.rsm)
        self.book = PendingBook(AppendStages(ManualClock()))
        self.clock = ManualClock()
        self.table = LimitTable()
        self.pace = Pace(self.table, self.clock, SHARD)
        self.proposals = MemoryPart(bounds.STORE_PROPOSAL_BYTES_MAX)
        self.memory = MemoryPart(bounds.UNWRITTEN_BYTES_MAX)
        self.unwritten = Unwritten(self.memory, Incarnation(1), StoreId("own"))
        self.intake = Intake(
            self.core,  # type: ignore[arg-type]
            Admission(self.rsm),
            self.book,
            self.pace,
            AppendTime(self.rsm, Wall(wall_us), KnownVersion(2)) if wall_us else None,
            self.unwritten,
            self.proposals,
            shard=SHARD,
            origin=7,
            count_max=100,
            bytes_max=1 << 20,
            entry_bytes_target=1,
        )
        opened = encode_command(NO_PROPOSAL, commands.encode(commands.OpenSession(APP, NONCE)))
        self.core.propose([Proposal(EntryKind.COMMAND, 0, opened)])
        self.apply_next()
        self.session = SessionId(1)

    def add(self, sequence: int = 0, expected: int = 0) -> asyncio.Future[Applied]:
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        session = self.session if sequence else SessionId(0)
        request = AppendRequest(session, sequence, 0, Lsn(expected), 1, b"x", CLAIM)
        self.intake.add(future, 1e9, append=request)
        return future

    def drain(self, *, ready: bool = True) -> None:
        self.intake.drain(self.core.proposing(), self.rsm.state.applied_index, ready=ready)

    def close_disks(self) -> None:
        self.core.block_room = self.core.quorum_room = 0
        self.core.quorum_closed = True

    def command(self, command: commands.Command) -> asyncio.Future[Applied]:
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self.intake.add(future, 1e9, command=commands.encode(command))
        return future

    def open_disks(self) -> None:
        self.core.block_room = self.core.quorum_room = ROOM_MAX
        self.core.quorum_closed = False

    def written(self) -> None:
        """What was put into the log is on the disk."""
        self.unwritten.give_back(self.unwritten.hand_over())

    def apply_next(self) -> None:
        entry = self.core.entries[self.rsm.state.applied_index]
        self.book.applied(entry, self.rsm.update(entry))


async def test_so_many_bytes_wait_and_one_more_is_refused() -> None:
    """Reaches PENDING_PROPOSAL_BYTES_MAX, which is made small; a refused request takes nothing."""
    bench = Bench()
    each = len(b"x") + 128
    bench.intake._bytes_max = 3 * each
    for sequence in (1, 2, 3):
        bench.add(sequence)
    with pytest.raises(Busy):
        bench.add(4)
    assert len(bench.intake) == 3
    bench.drain()
    with pytest.raises(Busy):
        bench.add(4)
    bench.apply_next()
    bench.add(4)


async def test_so_many_proposals_wait_and_one_more_is_refused() -> None:
    """Reaches PENDING_PROPOSALS_MAX, made small; a proposal counts until it is applied."""
    bench = Bench()
    bench.intake._count_max = 3
    for sequence in (1, 2, 3):
        bench.add(sequence)
    with pytest.raises(Busy):
        bench.add(4)
    bench.drain()
    with pytest.raises(Busy):
        bench.add(4)
    bench.apply_next()
    bench.add(4)


async def test_idle_intakes_share_an_empty_queue_that_nobody_gets_into() -> None:
    """It is 760 bytes for each idle replica."""
    idle, busy = Bench(), Bench()
    nobody = idle.intake.waiting
    assert busy.intake.waiting is nobody
    future = busy.add()
    assert (len(idle.intake), len(busy.intake)) == (0, 1)
    busy.drain()
    busy.apply_next()
    busy.intake.settle()
    assert future.done()
    assert busy.intake.waiting is nobody, "what was made for the requests is given back"
    busy.add()
    assert [len(busy.intake.forward_all()), len(busy.intake), len(nobody)] == [1, 0, 0]


async def test_the_next_sequence_stays_behind_one_that_is_parked() -> None:
    bench = Bench()
    other = bench.add()
    # A block that is not committed has the expected LSN: the append waits, with all that is in the
    # log.
    first, later = bench.add(sequence=1, expected=1), bench.add()
    bench.drain()
    assert bench.core.last_index == 3
    bench.apply_next()
    assert other.done()
    second = bench.add(sequence=2)
    bench.drain()
    assert not second.done(), "no gap: the first sequence is here, and judged after the next entry"
    bench.apply_next()
    bench.drain()
    assert later.done()
    assert "WRONG_EXPECTED_LSN" in str(first.exception())
    assert "SEQUENCE_GAP" in str(second.exception())


async def test_a_new_term_judges_what_an_older_one_parked() -> None:
    bench = Bench()
    bench.add()
    parked = bench.add(sequence=1, expected=1)
    bench.drain()
    # Another leader's entries took the place of the tail, and this replica leads again.
    del bench.core.entries[1:]
    bench.core.next_lsn = Lsn(1)
    bench.core.term = Term(3)
    bench.drain()
    bench.apply_next()
    assert parked.result().lsn == 1


async def test_everybody_is_answered_when_the_core_finds_damage_behind_the_append() -> None:
    bench = Bench()
    bench.add()
    parked, proposed = bench.add(sequence=1, expected=1), bench.add()
    bench.core.failure = Halted("segment 1 at 64: checksum")
    with pytest.raises(Halted):
        bench.drain()
    bench.intake.fail_all(NotReady("the replica stopped"))
    assert isinstance(proposed.exception(), UnknownOutcome)
    assert isinstance(parked.exception(), NotReady)


async def test_what_was_forwarded_counts_until_it_is_answered() -> None:
    """A leader that takes requests and never answers must not cost memory without bound."""
    bench = Bench()
    for _ in range(100):
        bench.add()
    taken = bench.intake.forward_all()
    assert len(taken) == 100
    with pytest.raises(Busy):
        bench.add()
    bench.intake.came_back(taken[0])
    bench.intake.put_back(taken[0])
    with pytest.raises(Busy):
        bench.add()
    bench.intake.came_back(taken[1])
    bench.add()


async def test_a_full_quorum_refuses_blocks_and_takes_commands() -> None:
    """INV-ROOM-2: a truncation goes on."""
    bench = Bench()
    bench.core.block_room = bench.core.quorum_room = 0
    block, repeated = bench.add(sequence=1), bench.add(sequence=1)
    command = bench.command(TRUNCATE)
    before = len(bench.core.entries)
    bench.drain()
    for refused in (block, repeated):
        error = refused.exception()
        assert isinstance(error, DiskFull)
        assert error.retryable
        assert error.outcome is Outcome.NOT_APPLIED
        assert "truncate" in error.message
    assert len(bench.core.entries) == before + 1, "the command only"
    assert bench.core.woken, "what a quiesced leader knows of the disks is old"
    bench.core.block_room = bench.core.quorum_room = ROOM_MAX
    again = bench.add(sequence=1)
    bench.apply_next()
    bench.drain()
    bench.apply_next()
    assert command.done()
    assert again.result().lsn == 1


async def test_while_a_member_may_yet_say_that_it_has_room_a_refusal_is_not_final() -> None:
    """INV-ROOM-4."""
    bench = Bench()
    bench.core.block_room = bench.core.quorum_room = 0
    bench.core.room_untold = True
    refused = bench.add(sequence=1)
    bench.drain()
    error = refused.exception()
    assert isinstance(error, Busy)
    assert error.outcome is Outcome.NOT_APPLIED


async def test_a_repetition_is_answered_on_a_full_disk() -> None:
    bench = Bench()
    first = bench.add(sequence=1)
    bench.drain()
    bench.apply_next()
    bench.core.block_room = bench.core.quorum_room = 0
    again = bench.add(sequence=1)
    bench.drain()
    assert again.result().lsn == first.result().lsn
    assert again.result().duplicate


async def test_a_block_waits_for_room_and_a_larger_one_than_the_room_is_refused() -> None:
    """INV-ROOM-1."""
    bench = Bench()
    bench.core.block_room = bench.core.quorum_room = 200
    bench.core.uncommitted_bytes = 100
    waits, before = bench.add(), len(bench.core.entries)
    bench.drain()
    assert not waits.done()
    assert len(bench.core.entries) == before
    bench.core.uncommitted_bytes = 0
    bench.drain()
    assert len(bench.core.entries) == before + 1
    bench.core.block_room = bench.core.quorum_room = 100
    refused = bench.add()
    bench.drain()
    error = refused.exception()
    assert isinstance(error, DiskFull)
    assert error.number("room_bytes") == 100


@pytest.mark.parametrize("room", [0, 100])
async def test_a_leader_whose_own_disk_alone_is_too_full_is_busy_and_hands_over(room: int) -> None:
    """INV-ROOM-3."""
    bench = Bench()
    bench.core.block_room = room
    refused = bench.add()
    bench.drain()
    assert isinstance(refused.exception(), Busy)
    assert len(bench.core.refused) == 1
    assert bench.core.refused[0] > 100


def disk_full(future: asyncio.Future[Applied]) -> bool:
    error = future.exception()
    assert isinstance(error, DiskFull), error
    return error.outcome is Outcome.NOT_APPLIED


async def test_nobody_waits_behind_a_block_that_closed_disks_do_not_take() -> None:
    bench = Bench()
    stuck = bench.add(sequence=1)
    bench.drain()
    bench.close_disks()
    again, later, other = bench.add(sequence=1), bench.add(sequence=2), bench.add()
    session, truncate = bench.command(commands.OpenSession(APP, NONCE)), bench.command(TRUNCATE)
    before = len(bench.core.entries)
    bench.drain()
    assert all(disk_full(future) for future in (again, later, other, session))
    assert not stuck.done(), "only its own entry says what became of it"
    assert len(bench.core.entries) == before + 1, "what makes room is in the log"
    bench.open_disks()
    retried = bench.add(sequence=1)
    bench.drain()
    bench.apply_next()
    bench.apply_next()
    bench.drain()
    assert truncate.done()
    assert stuck.result().lsn == retried.result().lsn == 1


async def test_closed_disks_let_a_repetition_have_its_answer() -> None:
    bench = Bench()
    first = bench.add(sequence=1)
    bench.drain()
    bench.apply_next()
    bench.close_disks()
    again = bench.add(sequence=1)
    bench.drain()
    assert again.result().lsn == first.result().lsn


async def test_full_disks_that_are_not_closed_keep_a_repetition_of_what_is_on_its_way() -> None:
    bench = Bench()
    stuck = bench.add(sequence=1)
    bench.drain()
    bench.core.block_room = bench.core.quorum_room = 0
    again = bench.add(sequence=1)
    bench.drain()
    assert not again.done()
    bench.apply_next()
    bench.drain()
    assert again.result().lsn == stuck.result().lsn


async def test_a_leader_whose_first_entry_waits_for_closed_disks_refuses_blocks() -> None:
    bench = Bench()
    block, session = bench.add(sequence=1), bench.command(commands.OpenSession(APP, NONCE))
    first, second = bench.command(TRUNCATE), bench.command(TRUNCATE)
    bench.drain(ready=False)
    assert not any(future.done() for future in (block, session, first, second))
    bench.close_disks()
    before = len(bench.core.entries)
    bench.drain(ready=False)
    assert disk_full(block)
    assert disk_full(session)
    assert len(bench.core.entries) == before
    bench.open_disks()
    bench.drain()
    assert len(bench.core.entries) == before + 2
    assert not first.done()
    assert not second.done()


# --- limits of the log ----------------------------------------------------------------------------


def limited(records_per_s: int) -> Bench:
    bench = Bench()
    bench.table.update(1, [ShardLimits(SHARD, 0, records_per_s)])
    bench.pace.follow_table()
    return bench


async def test_what_a_log_may_not_append_yet_waits_and_keeps_its_order() -> None:
    bench = limited(2)
    appends = [bench.add(sequence) for sequence in range(1, 5)]
    bench.drain()
    bench.apply_next()
    bench.apply_next()
    assert [one.done() for one in appends] == [True, True, False, False]
    assert bench.intake.paced
    for done in (3, 4):
        bench.clock.advance(0.51)
        bench.drain()
        bench.apply_next()
        assert [one.done() for one in appends] == [True] * done + [False] * (4 - done)
    assert [one.result().lsn for one in appends] == [1, 2, 3, 4]
    assert not len(bench.intake)


async def test_commands_go_past_appends_that_wait_for_a_limit() -> None:
    bench = limited(1)
    appends = [bench.add(sequence) for sequence in (1, 2)]
    bench.drain()
    bench.apply_next()
    truncate: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
    bench.intake.add(truncate, 1e9, command=commands.encode(TRUNCATE))
    bench.drain()
    bench.apply_next()
    assert [one.done() for one in (*appends, truncate)] == [True, False, True]
    bench.clock.advance(1.1)
    bench.drain()
    bench.apply_next()
    assert appends[1].result().lsn == 2


async def test_beyond_what_may_wait_appends_are_refused_with_the_time_to_wait() -> None:
    bench = limited(4)
    for sequence in range(1, 6):
        bench.add(sequence)
    bench.drain()
    for sequence in range(6, 9):
        bench.add(sequence)
    with pytest.raises(Busy) as refused:
        bench.add(9)
    assert 500 <= int(refused.value.metadata["retry_after_ms"]) <= 1500
    assert len(bench.intake) == 4
    bench.core.role = Role.FOLLOWER
    bench.add(9)


async def test_an_append_that_waits_for_the_limit_beyond_its_deadline_is_told_so() -> None:
    bench = limited(1)
    appends = [bench.add(sequence) for sequence in (1, 2)]
    bench.drain()
    bench.intake.expire(2e9)
    with pytest.raises(Busy, match="limit"):
        appends[1].result()
    assert not len(bench.intake)


# --- turns ----------------------------------------------------------------------------------------


async def test_a_turn_takes_so_much_and_says_that_more_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    monkeypatch.setattr(bounds, "INTAKE_TURN_BYTES", 2 * 129)
    appends = [bench.add(sequence) for sequence in range(1, 6)]
    bench.intake._entry_bytes_target = 0
    for entries, more in ((2, True), (4, True), (5, False)):
        bench.drain()
        assert (len(bench.core.entries) - 1, bench.intake.turn_over) == (entries, more)
    for _ in appends:
        bench.apply_next()
    assert [one.result().lsn for one in appends] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("lost", ["dropped", "cut"])
async def test_a_stamp_that_got_into_no_log_leaves_out_no_time(lost: str) -> None:
    """At APPEND_TIME_US_MAX the next entry has the next microsecond or is refused (INV-TIME-1). A
    leader whose clock is there must not refuse appends for good because of what came to nothing.
    """
    bench = Bench(wall_us=APPEND_TIME_US_MAX + 5)
    first = bench.add()
    bench.drain()
    bench.apply_next()
    assert (await first).value == APPEND_TIME_US_MAX
    if lost == "dropped":
        bench.core.failure = ProposalDropped(DropReason.TRANSFERRING)
        bench.add()
        bench.drain()
        bench.core.failure = None
    else:
        bench.add()
        bench.drain()
        bench.core.next_lsn = bench.core.entries.pop().lsn
        bench.core.term = Term(2)
    for later in (1, 2):
        ack = bench.add()
        bench.drain()
        bench.apply_next()
        assert (await ack).value == APPEND_TIME_US_MAX + later


async def test_proposals_wait_while_too_much_waits_for_the_disk() -> None:
    """INV-MEM-1: what the log gets beyond UNWRITTEN_BYTES_MAX, made small, waits in the intake."""
    bench = Bench()
    size = 1 + 128
    bench.memory.limit = 4 * size
    bench.add()
    bench.drain()
    bench.apply_next()
    for _ in range(4):
        bench.add()
    bench.drain()
    # One was in the log, and a holder has as much as is free: one more finds room.
    assert (len(bench.intake), bench.memory.used, bench.intake.crowded) == (3, 2 * size, True)
    bench.apply_next()
    bench.drain()
    assert len(bench.intake) == 3
    bench.written()
    bench.drain()
    assert (len(bench.intake), bench.intake.crowded) == (0, False)


async def test_a_proposal_that_is_larger_than_its_share_goes_when_nothing_else_waits() -> None:
    bench = Bench()
    bench.memory.limit = 100
    bench.add()
    bench.drain()
    assert (len(bench.intake), bench.memory.used) == (0, 129)


async def test_proposals_that_the_core_drops_hold_nothing() -> None:
    """INV-UNWRITTEN-2"""
    bench = Bench()
    bench.core.failure = ProposalDropped(DropReason.TRANSFERRING)
    future = bench.add()
    bench.drain()
    bench.written()
    assert isinstance(future.exception(), Busy)
    assert bench.memory.used == 0


async def test_requests_of_all_logs_are_bounded_and_one_log_leaves_room() -> None:
    """Reaches STORE_PROPOSAL_BYTES_MAX, which is made small (INV-INTAKE-2). BUSY is definite."""
    bench = Bench()
    size, shared = 1 + 128, bench.proposals
    shared.limit = 4 * size
    waiting = [bench.add(), bench.add()]
    with pytest.raises(Busy, match="all logs"):
        bench.add()
    assert (len(bench.intake), shared.used, shared.refused) == (2, 2 * size, 1)
    assert shared.take("another log", size)
    shared.give_back("another log", size)
    bench.drain()
    assert shared.used == 2 * size, "it counts until its outcome is known"
    for _ in waiting:
        bench.apply_next()
    bench.intake.settle()
    assert shared.used == 0
    assert all(future.done() for future in waiting)


async def test_what_requests_took_is_given_back_whatever_becomes_of_them() -> None:
    """INV-INTAKE-2: expired in the intake and in the log, forwarded, refused, and stopped."""
    bench = Bench()
    shared = bench.proposals
    bench.add()
    bench.intake.expire(2e9)
    assert shared.used == 0
    bench.add()
    [item] = bench.intake.forward_all()
    bench.intake.settle()
    assert shared.used == 129, "its way to another store counts"
    bench.intake.put_back(item)
    bench.intake.came_back(item)
    assert shared.used == 129
    bench.intake.fail_all(NotReady("it stops"))
    assert shared.used == 0
    bench.add()
    bench.drain()
    bench.book.expire(2e9)
    bench.intake.expire(2e9)
    assert shared.used == 0
    bench.core.failure = ProposalDropped(DropReason.BUSY)
    bench.add()
    bench.drain()
    assert shared.used == 0


async def test_commands_go_past_appends_that_wait_for_memory() -> None:
    """A full disk is freed by a truncation: that one waits for nothing that the disk has to do."""
    bench = Bench()
    bench.memory.limit = 300
    bench.add()
    bench.drain()
    bench.apply_next()
    appends = [bench.add(), bench.add()]
    truncated = bench.command(TRUNCATE)
    bench.drain()
    assert (bench.intake.crowded, len(bench.intake)) == (True, 2)
    bench.apply_next()
    assert truncated.done()
    assert not any(future.done() for future in appends)
    bench.written()
    for _ in appends:
        bench.drain()
        bench.apply_next()
        bench.written()
    assert appends[0].result().lsn < appends[1].result().lsn
