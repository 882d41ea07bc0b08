"""RaftLog and Tail: marks, overwrites, and what an acknowledgement of a write may mean."""

from __future__ import annotations

import random
from typing import cast

import pytest

from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.invariants import InvariantViolation
from logservice.raft.log.log import RaftLog, Tail, limit_size
from logservice.raft.log.memory_storage import MemoryStorage
from logservice.raft.log.storage import CompactedError, UnavailableError
from logservice.raft.messages import AppendEntries
from logservice.snapshot import Snapshot
from tests.raft.cluster import Cluster, first_snapshot, membership, unreadable


def entry(index: int, term: int, *, lsn: int = 1, records: int = 0, size: int = 0) -> Entry:
    kind = EntryKind.BLOCK if records else EntryKind.NOOP
    return Entry(Term(term), Index(index), Lsn(lsn), records, kind, b"x" * size)


def run(*terms: int, first: int = 2) -> list[Entry]:
    """Entries with these terms from index `first` on."""
    return [entry(first + offset, term) for offset, term in enumerate(terms)]


def open_log(*terms: int, commit: int = 1, applied: int = 1) -> RaftLog:
    storage = MemoryStorage(first_snapshot(membership([1])))
    storage.save(entries=run(*terms))
    return RaftLog(storage, HardState(commit=Index(commit)), Index(applied), 2**60)


# --- the tail -----------------------------------------------------------------------------------


def test_the_tail_gives_each_entry_once() -> None:
    tail = Tail(2)
    tail.append(run(1, 1))
    assert [item.index for item in tail.untaken()] == [2, 3]
    tail.take()
    assert tail.untaken() == ()
    tail.append(run(1, first=4))
    assert [item.index for item in tail.untaken()] == [4]


@pytest.mark.parametrize(("first", "given_again"), [(4, [4]), (3, [3]), (2, [2])])
def test_an_overwrite_is_given_again(first: int, given_again: list[int]) -> None:
    tail = Tail(2)
    tail.append(run(1, 1))
    tail.take()
    tail.append(run(2, first=first))
    assert [item.index for item in tail.untaken()] == given_again


def test_an_overwrite_below_the_tail_moves_it() -> None:
    tail = Tail(10)
    tail.append(run(5, 5, first=7))
    assert (tail.offset, tail.stable_next, tail.taken_next) == (7, 7, 7)


def test_stale_acknowledgements_change_nothing() -> None:
    tail = Tail(5)
    tail.append(run(2, 2, 2, first=5))
    tail.take()
    tail.stable_to(6, 1)
    tail.stable_to(4, 2)
    tail.stable_to(8, 2)
    assert tail.stable_next == 5
    tail.stable_to(6, 2)
    assert tail.stable_next == 7


def test_what_is_durable_and_applied_is_forgotten() -> None:
    tail = Tail(2)
    tail.append(run(1, 1, 1))
    tail.take()
    tail.stable_to(3, 1)
    tail.trim(applied=4)
    assert [item.index for item in tail.entries] == [4]
    assert tail.offset == 4


def test_inv_tail_aba() -> None:
    """INV-TAIL-ABA: index 2 is written with term 1, then with term 2, then as it was at first.

    The acknowledgement of the first write names the entry that the log holds at the end, but at
    that moment storage may hold the second. So it must not count.
    """
    cluster = Cluster(3)
    follower = cluster.replicas[3]

    def append(sender: int, term: int, entries: list[Entry]) -> None:
        follower.raft.step(
            AppendEntries(
                to=ReplicaId(3),
                sender=ReplicaId(sender),
                term=Term(term),
                prev_index=Index(1),
                prev_term=Term(1),
                entries=tuple(entries),
            )
        )
        cluster.take(follower)

    first = entry(2, 1, records=1)
    append(1, 2, [first])
    append(2, 3, [entry(2, 3, records=5)])
    append(1, 4, [first])
    tail = follower.raft._state.log.tail
    cluster.persist(follower)
    assert tail.stable_next == 2, "the write of another term is still to come"
    cluster.persist(follower)
    assert tail.stable_next == 2
    cluster.persist(follower)
    assert tail.stable_next == 3
    assert follower.storage.term(Index(2)) == 1


# --- the log ------------------------------------------------------------------------------------


def test_terms_and_lsns_come_from_storage_tail_and_snapshot() -> None:
    log = open_log(1, 1, 2)
    log.append([entry(5, 3, records=4), entry(6, 3, lsn=5)])
    assert [log.term(index) for index in range(1, 7)] == [1, 1, 1, 2, 3, 3]
    assert [log.next_lsn(index) for index in range(1, 7)] == [1, 1, 1, 1, 5, 5]
    with pytest.raises(UnavailableError):
        log.term(7)
    log.restore(Snapshot(Index(9), Term(4), Lsn(8), membership([1]), b""))
    assert (log.term(9), log.next_lsn(9), log.last_index, log.first_index()) == (4, 8, 9, 10)
    with pytest.raises(CompactedError):
        log.term(6)
    with pytest.raises(CompactedError):
        log.next_lsn(6)
    with pytest.raises(UnavailableError):
        log.next_lsn(10)
    with pytest.raises(CompactedError):
        log.slice(5, 10, 100)


def test_a_slice_crosses_from_storage_into_the_tail() -> None:
    log = open_log(1, 1)
    log.append(run(2, 2, first=4))
    assert [item.index for item in log.slice(2, 6, 100)] == [2, 3, 4, 5]
    assert [item.index for item in log.slice(3, 5, 100)] == [3, 4]
    assert log.slice(4, 4, 100) == ()


@pytest.mark.parametrize(("limit", "last"), [(0, 2), (10, 2), (20, 3), (30, 4), (45, 5), (99, 5)])
def test_a_slice_is_cut_at_its_limit(limit: int, last: int) -> None:
    storage = MemoryStorage(first_snapshot(membership([1])))
    storage.save(entries=[entry(2, 1, size=10), entry(3, 1, size=10)])
    log = RaftLog(storage, HardState(), Index(1), 2**60)
    log.append([entry(4, 1, size=10), entry(5, 1, size=10)])
    assert log.slice(2, 6, limit)[-1].index == last


def test_the_limit_lets_one_entry_through() -> None:
    assert limit_size([entry(1, 1, size=9)], 3) == [entry(1, 1, size=9)]


def test_committed_entries_are_never_replaced() -> None:
    log = open_log(1, 1, commit=3)
    with pytest.raises(InvariantViolation) as violated:
        log.append(run(2, first=3))
    assert violated.value.invariant_id == "INV-LOG-1"


def test_the_commit_index_never_goes_back_nor_beyond_the_log() -> None:
    log = open_log(1, 1, commit=3)
    assert not log.commit_to(2)
    assert log.committed == 3
    with pytest.raises(InvariantViolation):
        log.commit_to(4)


def test_nothing_is_applied_before_it_is_committed_and_applied_never_goes_back() -> None:
    log = open_log(1, 1, commit=2)
    with pytest.raises(InvariantViolation):
        log.applied_to(3)
    log.hand_out(log.next_committed())
    log.applied_to(2)
    log.applied_to(1)
    assert (log.applied, log.handed_out) == (2, 2)


def test_an_entry_that_cannot_be_read_is_not_one_of_another_term() -> None:
    """Otherwise a short old append would cut off the acknowledged entries behind it."""
    log = open_log(1, 1, 1, 1)
    with unreadable(cast(MemoryStorage, log.storage), "term"), pytest.raises(UnavailableError):
        log.first_new(run(1, 1))
    assert log.first_new(run(1, 1)) == 2
    assert log.first_new(run(1, 1, 1, 1, 1)) == 4


def test_only_durable_entries_are_handed_out() -> None:
    """INV-LOG-2."""
    log = open_log(1)
    log.append(run(1, 1, first=3))
    log.commit_to(4)
    assert [item.index for item in log.next_committed()] == [2]
    log.stable_to(3, 1)
    assert [item.index for item in log.next_committed()] == [2, 3]
    log.hand_out(log.next_committed())
    assert log.next_committed() == ()


def test_a_read_that_fails_is_tried_again_after_a_tick() -> None:
    log = open_log(1, commit=2)
    storage = log.storage
    entries = storage.entries
    broken = True

    def sometimes(low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        if broken:
            raise UnavailableError
        return entries(low, high, max_bytes)

    storage.entries = sometimes  # type: ignore[method-assign]
    assert log.next_committed() == ()
    assert not log.has_committed_to_hand_out(), "or the shell would spin"
    broken = False
    log.retry_reads()
    assert [item.index for item in log.next_committed()] == [2]


def test_conflict_by_term_equals_the_linear_search() -> None:
    """The binary search finds what a walk down the log would find."""
    drawn = random.Random(4)
    for _ in range(300):
        terms = sorted(drawn.randrange(1, 6) for _ in range(drawn.randrange(1, 12)))
        log = open_log(*terms)
        for index in range(len(terms) + 4):
            for term in range(7):
                assert log.conflict_by_term(index, term) == walk_down(log, index, term)


def walk_down(log: RaftLog, index: int, term: int) -> tuple[int, int]:
    while index > 0:
        try:
            here = log.term(index)
        except (CompactedError, UnavailableError):
            return index, 0
        if here <= term:
            return index, here
        index -= 1
    return 0, 0


def test_the_log_against_a_dumb_model() -> None:
    """Random appends, overwrites, writes and applies, against plain lists."""
    for seed in range(60):
        check_against_model(random.Random(seed))


def check_against_model(drawn: random.Random) -> None:
    storage = MemoryStorage(first_snapshot(membership([1])))
    log = RaftLog(storage, HardState(), Index(1), 2**60)
    terms = [1]  # by index, from 1
    term = 1
    given: list[tuple[Entry, ...]] = []
    handed: list[int] = []
    for _ in range(80):
        action = drawn.random()
        if action < 0.3:
            term += drawn.random() < 0.3
            first = drawn.randrange(log.committed + 1, log.last_index + 2)
            new = run(*[term] * drawn.randrange(1, 4), first=first)
            log.append(new)
            terms[first - 1 :] = [term] * len(new)
        elif action < 0.5:
            given.append(log.tail.untaken())
            log.tail.take()
        elif action < 0.7 and given:
            written = given.pop(0)
            storage.save(entries=written)
            # As with one term only: the acknowledgement counts if no newer write is on its way.
            if written and not any(given):
                log.stable_to(written[-1].index, written[-1].term)
        elif action < 0.8:
            log.commit_to(drawn.randrange(log.committed, log.last_index + 1))
        else:
            entries = log.next_committed()
            if entries:
                log.hand_out(entries)
                handed += [item.index for item in entries]
                assert entries[-1].index <= storage.last_index()
                log.applied_to(entries[-1].index)
        assert log.last_index == len(terms)
        assert [log.term(index) for index in range(1, len(terms) + 1)] == terms
        low = drawn.randrange(2, len(terms) + 2)
        high = drawn.randrange(low, len(terms) + 2)
        assert [item.term for item in log.slice(low, high, 100)] == terms[low - 1 : high - 1]
    assert handed == list(range(2, log.applied + 1))
