"""PendingBook and ReadBook: which requests are answered, when, and with what."""

from __future__ import annotations

import asyncio
import sys

import pytest
from logservice_wire.errors import (
    Busy,
    DeadlineExceeded,
    Fenced,
    NotLeader,
    NotReady,
    Reason,
    UnknownOutcome,
)

from logservice.clock import ManualClock
from logservice.entry import Entry, EntryKind
from logservice.envelope import ProposalId
from logservice.ids import Index, Lsn, Term
from logservice.invariants import InvariantViolation
from logservice.nodehost.replica.append_stages import AppendStages
from logservice.nodehost.replica.pending import Pending, PendingBook
from logservice.nodehost.replica.reads import ReadBook
from logservice.outcome import Applied, Rejected
from logservice.raft.ready import ReadState
from tests.garbage import without_collector


def entry(index: int, term: int) -> Entry:
    return Entry(Term(term), Index(index), Lsn(1), 0, EntryKind.COMMAND, b"")


def pending(number: int = 1, deadline_s: float = 10.0) -> Pending:
    future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
    return Pending(future, deadline_s, 100, ProposalId(1, number))


async def test_outcomes_reach_the_proposals_of_the_same_index_and_term() -> None:
    book = PendingBook(AppendStages(ManualClock()))
    first, second = pending(1), pending(2)
    book.register(5, 2, [first, second])
    assert (book.count, book.bytes) == (2, 200)
    book.applied(
        entry(5, 2),
        [(ProposalId(1, 1), Applied(lsn=7)), (ProposalId(1, 2), Rejected(Reason.FENCED, {}))],
    )
    assert first.future.result().lsn == 7
    with pytest.raises(Fenced):
        second.future.result()
    assert (book.count, book.bytes) == (0, 0)


async def test_never_by_index_alone() -> None:
    book = PendingBook(AppendStages(ManualClock()))
    item = pending()
    book.register(5, 2, [item])
    book.applied(entry(5, 3), [(ProposalId(9, 9), Applied(lsn=7))])
    with pytest.raises(NotLeader):
        item.future.result()


async def test_outcomes_under_other_proposal_ids_stop_the_store() -> None:
    book = PendingBook(AppendStages(ManualClock()))
    book.register(5, 2, [pending(1)])
    with pytest.raises(InvariantViolation):
        book.applied(entry(5, 2), [(ProposalId(9, 9), Applied())])


async def test_leading_again_at_the_same_index_settles_the_old_proposal() -> None:
    book = PendingBook(AppendStages(ManualClock()))
    old, new = pending(1), pending(2)
    book.register(5, 2, [old])
    book.register(5, 4, [new])
    with pytest.raises(NotLeader):
        old.future.result()
    book.applied(entry(5, 4), [(ProposalId(1, 2), Applied(value=3))])
    assert new.future.result().value == 3
    assert book.count == 0


async def test_a_snapshot_over_the_index_leaves_the_outcome_unknown() -> None:
    book = PendingBook(AppendStages(ManualClock()))
    below, above = pending(1), pending(2)
    book.register(5, 2, [below])
    book.register(9, 2, [above])
    book.skipped(7)
    with pytest.raises(UnknownOutcome):
        below.future.result()
    assert not above.future.done()


async def test_deadlines_and_stop() -> None:
    book = PendingBook(AppendStages(ManualClock()))
    early, late = pending(1, 1.0), pending(2, 9.0)
    book.register(5, 2, [early, late])
    book.expire(5.0)
    with pytest.raises(DeadlineExceeded):
        early.future.result()
    book.fail_all(NotReady())
    with pytest.raises(NotReady):
        late.future.result()
    assert book.count == 0


async def test_a_proposal_that_failed_elsewhere_keeps_nothing_of_its_request() -> None:
    """As when it was forwarded: who forwards knows the block, and whom he tells of the error."""
    request = bytes(1000)

    def forward(body: bytes, item: Pending) -> None:
        try:
            raise NotReady(f"{len(body)} bytes did not leave")
        except NotReady as error:
            item.fail(error)

    with without_collector():
        before = sys.getrefcount(request)
        item = pending()
        forward(request, item)
        assert isinstance(item.future.exception(), NotReady)
        assert sys.getrefcount(request) == before


async def test_an_entry_nobody_waits_for_holds_no_room() -> None:
    """After a lost leadership the log may take long to reach its index again."""
    book = PendingBook(AppendStages(ManualClock()))
    early, late = pending(1, 1.0), pending(2, 9.0)
    book.register(5, 2, [early])
    book.register(6, 2, [pending(3, 1.0), late])
    book.expire(5.0)
    assert (book.count, book.bytes) == (2, 200)
    book.applied(entry(5, 2), [(early.proposal, Applied())])
    book.applied(entry(6, 3), [])
    assert isinstance(late.future.exception(), NotLeader)
    assert (book.count, book.bytes) == (0, 0)


def read(book: ReadBook, deadline_s: float = 10.0) -> asyncio.Future[Index]:
    future: asyncio.Future[Index] = asyncio.get_running_loop().create_future()
    book.add(future, deadline_s)
    return future


async def test_reads_share_a_round_and_wait_for_their_index() -> None:
    book = ReadBook(1, 100)
    contexts: list[bytes] = []
    first, second = read(book), read(book)
    book.begin_round(lambda context: contexts.append(context) is None, 0)
    late = read(book)
    assert len(contexts) == 1
    book.confirmed((ReadState(Index(8), contexts[0]),), Index(5))
    assert not first.done()
    book.applied(Index(8))
    assert (first.result(), second.result()) == (8, 8)
    assert not late.done(), "it arrived after the round began"


async def test_a_round_without_a_leader_is_not_begun() -> None:
    book = ReadBook(1, 100)
    waiting = read(book)
    book.begin_round(lambda context: False, 0)
    contexts: list[bytes] = []
    book.begin_round(lambda context: contexts.append(context) is None, 1)
    book.confirmed((ReadState(Index(3), contexts[0]),), Index(3))
    assert waiting.result() == 3


async def test_lost_rounds_begin_anew_and_late_answers_are_ignored() -> None:
    book = ReadBook(1, 100)
    contexts: list[bytes] = []
    waiting = read(book)
    book.begin_round(lambda context: contexts.append(context) is None, 0)
    assert not book.retry_lost(5, 20)
    assert book.retry_lost(20, 20)
    book.confirmed((ReadState(Index(3), contexts[0]),), Index(3))
    assert not waiting.done()
    book.begin_round(lambda context: contexts.append(context) is None, 20)
    assert contexts[0] != contexts[1]
    book.confirmed((ReadState(Index(3), contexts[1]),), Index(3))
    assert waiting.result() == 3


async def test_reads_are_bounded_and_expire() -> None:
    book = ReadBook(1, 1)
    waiting = read(book, 1.0)
    with pytest.raises(Busy):
        read(book)
    book.expire(2.0)
    with pytest.raises(NotReady):
        waiting.result()
    assert not read(book).done(), "the expired one made room"
    book.fail_all(NotReady())
