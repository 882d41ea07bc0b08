"""Progress, its window, read rounds and the tracker, one rule at a time."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable

import pytest

from logservice.ids import Index, ReplicaId
from logservice.raft.config import RaftConfig, RaftLimits
from logservice.raft.tracker.progress import (
    SNAPSHOT_PERIODS_MAX,
    Inflights,
    Progress,
    ProgressState,
)
from logservice.raft.tracker.read_rounds import ReadRequest, ReadRounds
from logservice.raft.tracker.tracker import Configuration, Tracker, VoteResult

ONE, TWO, THREE = ReplicaId(1), ReplicaId(2), ReplicaId(3)


def probing(next_index: int = 5, window: int = 2) -> Progress:
    return Progress(next_index=next_index, inflights=Inflights(window, 0), learner=False)


def replicating(match: int = 4, window: int = 2) -> Progress:
    progress = probing(window=window)
    progress.maybe_update(match)
    progress.become_replicate()
    return progress


def test_a_probe_waits_for_its_answer() -> None:
    progress = probing()
    progress.sent_entries(0, 0)
    assert not progress.paused(), "an empty probe may be repeated"
    progress.sent_entries(3, 30)
    assert progress.paused()
    assert progress.next == 5
    assert progress.maybe_update(5)
    assert not progress.paused()


def test_replication_is_optimistic_until_the_window_is_full() -> None:
    progress = replicating()
    progress.sent_entries(2, 20)
    assert (progress.next, progress.paused()) == (7, False)
    progress.sent_entries(1, 10)
    assert (progress.next, progress.paused()) == (8, True)
    progress.maybe_update(6)
    progress.inflights.free_through(6)
    assert (progress.match, progress.paused(), len(progress.inflights)) == (6, False, 1)


def test_old_answers_change_nothing() -> None:
    progress = replicating(match=4)
    assert not progress.maybe_update(4)
    assert not progress.maybe_update(2)
    assert (progress.match, progress.next) == (4, 5)


@pytest.mark.parametrize(
    ("rejected", "hint", "moved", "next_index"),
    [(4, 3, True, 4), (4, 0, True, 1), (3, 0, False, 5), (9, 0, False, 5), (4, 9, True, 4)],
)
def test_a_probe_moves_back_to_the_hint(
    rejected: int, hint: int, moved: bool, next_index: int
) -> None:
    progress = probing()
    assert progress.maybe_decrease(rejected, hint) == moved
    assert progress.next == next_index


def test_a_refused_replicating_one_goes_back_to_its_match() -> None:
    progress = replicating(match=4)
    progress.sent_entries(5, 5)
    assert not progress.maybe_decrease(4, 0)
    assert progress.maybe_decrease(7, 0)
    assert progress.next == 5


def test_a_snapshot_pauses_until_it_is_answered_or_long_overdue() -> None:
    progress = probing()
    progress.become_snapshot(9)
    assert progress.paused()
    assert (progress.next, progress.pending_snapshot) == (10, 9)
    for _ in range(SNAPSHOT_PERIODS_MAX):
        progress.snapshot_period()
        assert progress.state is ProgressState.SNAPSHOT
    progress.snapshot_period()
    assert not progress.paused()
    assert (progress.state, progress.next) == (ProgressState.PROBE, 1)


def test_after_a_snapshot_the_probe_starts_behind_it() -> None:
    progress = probing()
    progress.become_snapshot(9)
    progress.become_probe()
    assert progress.next == 10


def test_inv_progress_holds_for_any_history() -> None:
    """INV-PROGRESS: match < next, whatever answers come and in whatever order."""
    for seed in range(100):
        drawn = random.Random(seed)
        progress = probing(next_index=drawn.randrange(1, 9))
        for _ in range(60):
            number, other = drawn.randrange(1, 12), drawn.randrange(12)
            actions: list[Callable[[], object]] = [
                functools.partial(progress.maybe_update, number),
                functools.partial(progress.maybe_decrease, number, other),
                functools.partial(progress.sent_entries, number % 3, number),
                progress.become_probe,
                progress.become_replicate,
                functools.partial(progress.become_snapshot, progress.match + number),
                progress.snapshot_period,
            ]
            drawn.choice(actions)()
            assert progress.match < progress.next


def test_the_window_against_a_list() -> None:
    for seed in range(50):
        drawn = random.Random(seed)
        window = Inflights(drawn.randrange(1, 6), drawn.choice([0, 30]))
        model: list[tuple[int, int]] = []
        index = 0
        for _ in range(80):
            action = drawn.random()
            if action < 0.6 and not window.full():
                index += drawn.randrange(1, 4)
                size = drawn.randrange(20)
                window.add(index, size)
                model.append((index, size))
            elif action < 0.95:
                through = drawn.randrange(index + 2)
                window.free_through(through)
                model = [item for item in model if item[0] > through]
            else:
                window.reset()
                model = []
            assert len(window) == len(model)
            assert window.bytes == sum(size for _, size in model)
            too_many = len(model) >= window.max_messages
            assert window.full() == (too_many or 0 < window.max_bytes <= window.bytes)


def test_reads_join_only_a_round_that_has_not_left() -> None:
    """INV-READ."""
    rounds = ReadRounds()
    request = ReadRequest(TWO, b"r", Index(3))
    assert not rounds.join(request)
    context = rounds.start(ONE, now=7)
    assert rounds.join(request)
    assert rounds.acknowledge(TWO, context) is None, "its heartbeats have not left: a forgery"
    rounds.close()
    assert not rounds.join(request)
    assert rounds.newest_context() == context
    found = rounds.acknowledge(TWO, context)
    assert found is not None
    assert found.acks == {ONE: True, TWO: True}
    assert rounds.confirm(found) == [request]
    assert (rounds.waiting, rounds.newest_context()) == (0, b"")
    assert rounds.acknowledge(TWO, context) is None


@pytest.mark.parametrize("context", [b"", b"short", b"12345678", b"far too long"])
def test_unknown_contexts_are_nothing(context: bytes) -> None:
    assert ReadRounds().acknowledge(TWO, context) is None


def test_whoever_asks_in_step_with_the_periods_still_sees_an_active_replica() -> None:
    """Simulator seed 306: HAKeeper always sampled right after a check, so a repair waited for
    ever.
    """
    tracker = Tracker(ONE, RaftLimits())
    tracker.restore(Configuration(frozenset({ONE, TWO})), 1)
    progress = tracker.progress[TWO]
    progress.recent_active = True
    progress.begin_period()
    assert not progress.recent_active
    assert progress.active
    progress.begin_period()
    assert not progress.active, "two periods without a word"


def test_learners_neither_vote_nor_count_as_active() -> None:
    tracker = Tracker(ONE, RaftLimits())
    tracker.restore(Configuration(frozenset({ONE, TWO}), learners=frozenset({THREE})), 1)
    for progress in tracker.progress.values():
        progress.recent_active = False
    tracker.progress[ONE].recent_active = True
    tracker.progress[THREE].recent_active = True
    assert not tracker.quorum_active()
    tracker.progress[TWO].recent_active = True
    assert tracker.quorum_active()
    tracker.record_vote(ONE, granted=True)
    assert tracker.record_vote(THREE, granted=True) is VoteResult.PENDING


def test_the_first_answer_of_a_voter_stands() -> None:
    tracker = Tracker(ONE, RaftLimits())
    tracker.restore(Configuration(frozenset({ONE, TWO, THREE})), 1)
    tracker.record_vote(TWO, granted=False)
    tracker.record_vote(TWO, granted=True)
    assert tracker.votes == {TWO: False}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ((0, 10, 1), "replica_id"),
        ((1, 10, 0), "heartbeat_ticks"),
        ((1, 5, 5), "election_ticks"),
    ],
)
def test_settings_that_cannot_work(fields: tuple[int, int, int], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RaftConfig(ReplicaId(fields[0]), fields[1], fields[2])
