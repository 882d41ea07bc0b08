"""Raft paper 5.3: log replication."""

from __future__ import annotations

import pytest

from logservice.hard_state import HardState
from logservice.ids import Index, ReplicaId, Term
from logservice.raft.log.memory_storage import MemoryStorage
from logservice.raft.messages import AppendEntries, AppendResponse
from logservice.raft.ready import Role
from tests.paper.solo import ME, Solo, accept, append, beat, entries, entry, only
from tests.raft.cluster import Cluster, first_snapshot, membership, taken


def test_p1_a_leader_appends_a_proposal_and_sends_it_to_all() -> None:
    solo = Solo(3)
    solo.lead()
    solo.receive(accept(2, 1, 2), accept(3, 1, 2))
    sent = only(AppendEntries, solo.propose(b"x"))
    assert [message.to for message in sent] == [2, 3]
    for message in sent:
        assert (message.prev_index, message.prev_term) == (2, 1)
        assert [item.payload for item in message.entries] == [b"x"]
        assert message.entries[0].term == 1


@pytest.mark.parametrize(
    ("size", "acks", "committed"),
    [
        (1, [], True),
        (3, [], False),
        (3, [2], True),
        (3, [2, 3], True),
        (5, [2], False),
        (5, [2, 3], True),
        (5, [2, 3, 4, 5], True),
    ],
)
def test_p2_an_entry_is_committed_once_a_majority_has_it(
    size: int, acks: list[int], committed: bool
) -> None:
    solo = Solo(size)
    solo.lead()
    solo.receive(*(accept(peer, 1, 2) for peer in range(2, size + 1)))
    solo.propose()
    solo.receive(*(accept(peer, 1, 3) for peer in acks))
    assert (solo.raft.commit == 3) == committed


def test_p3_committing_an_entry_commits_everything_before_it() -> None:
    solo = Solo(3, log=(1, 2), term=2)
    solo.lead()
    assert solo.raft.commit == 1
    solo.receive(accept(2, 3, 4))
    assert solo.raft.commit == 4
    assert solo.raft.applied_index == 4


def test_p4_followers_learn_the_commit_index_and_apply() -> None:
    solo = Solo(3)
    solo.receive(append(2, 1, (1, 1), entries(1, 1), commit=2))
    assert (solo.raft.commit, solo.raft.applied_index) == (2, 2)
    solo.receive(append(2, 1, (3, 1), commit=3))
    assert solo.raft.applied_index == 3


def test_p5_the_commit_index_is_bounded_by_what_the_message_proves() -> None:
    """Figure 2: min(leader's commit, index of the last *new* entry)."""
    solo = Solo(3, log=(1, 1, 1), term=1)
    solo.receive(append(2, 2, (2, 1), commit=4))
    assert solo.raft.commit == 2
    solo.receive(append(2, 2, (2, 1), entries(2, first=3), commit=9))
    assert solo.raft.commit == 3


def test_p6_a_leader_never_changes_its_own_log() -> None:
    solo = Solo(3, log=(1, 1), term=1)
    solo.lead()
    solo.propose(b"x")
    before = solo.terms()
    solo.receive(accept(2, 2, 4), accept(3, 2, 3))
    solo.tick(5)
    solo.take()
    assert solo.terms() == before


@pytest.mark.parametrize(
    ("previous", "ok"),
    [((1, 1), True), ((2, 1), True), ((3, 2), True), ((3, 1), False), ((4, 2), False)],
)
def test_p7_the_consistency_check(previous: tuple[int, int], ok: bool) -> None:
    solo = Solo(3, log=(1, 2), term=2)
    (answer,) = only(AppendResponse, solo.receive(append(2, 3, previous)))
    assert answer.reject is not ok
    assert answer.index == previous[0]
    if not ok:
        assert answer.hint_index <= 3, "the refusal says where the logs may agree"


@pytest.mark.parametrize(
    ("previous", "new", "expected"),
    [
        ((3, 2), (3,), [1, 2, 3]),
        ((2, 1), (3, 4), [1, 3, 4]),
        ((1, 1), (1,), [1, 2]),
        ((1, 1), (3,), [3]),
        ((1, 1), (1, 2, 3), [1, 2, 3]),
    ],
)
def test_p8_conflicting_entries_and_all_after_them_go_others_stay(
    previous: tuple[int, int], new: tuple[int, ...], expected: list[int]
) -> None:
    solo = Solo(3, log=(1, 2), term=2)
    solo.receive(append(2, 5, previous, entries(*new, first=previous[0] + 1)))
    assert solo.terms() == expected


def test_p9_a_message_that_was_delayed_does_not_shorten_the_log() -> None:
    solo = Solo(3)
    long = append(2, 1, (1, 1), entries(1, 1, 1))
    short = append(2, 1, (1, 1), entries(1))
    solo.receive(long, short)
    assert solo.terms() == [1, 1, 1]


def test_p10_the_answer_waits_for_the_disk() -> None:
    solo = Solo(3)
    solo.raft.step(append(2, 1, (1, 1), entries(1)))
    ready = taken(solo.raft)
    assert ready.messages == ()
    assert len(ready.entries) == 1
    assert len(ready.messages_after_append) == 1


@pytest.mark.parametrize(
    "follower",
    [
        (1, 1, 1, 4, 4, 5, 5, 6, 6),
        (1, 1, 1, 4),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
        (1, 1, 1, 4, 4, 4, 4),
        (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
    ],
    ids=list("abcdef"),
)
def test_p11_figure_7_any_follower_ends_with_the_leaders_log(follower: tuple[int, ...]) -> None:
    leader_log = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    cluster = Cluster(3)
    members = membership([1, 2, 3])
    for number, terms in ((1, leader_log), (2, follower), (3, (1,))):
        storage = MemoryStorage(first_snapshot(members))
        storage.save(HardState(Term(7), ReplicaId(0), Index(1)), entries(*terms))
        cluster.start(number, storage)
    cluster.elect(1)
    cluster.tick(3)
    expected = [*leader_log, 8]
    for number in (1, 2, 3):
        storage = cluster.replicas[number].storage
        found = [storage.term(Index(index)) for index in range(2, storage.last_index() + 1)]
        assert found == expected


def test_p12_a_refusal_moves_back_by_whole_terms() -> None:
    """Section 5.3's optimisation: a leader gets one refusal per conflicting term, not per entry."""
    solo = Solo(3, log=(1,) + (2,) * 40, term=2)
    solo.lead()
    refusal = AppendResponse(
        to=ME,
        sender=ReplicaId(2),
        term=Term(3),
        index=Index(42),
        reject=True,
        hint_index=Index(30),
        hint_term=Term(1),
    )
    (probe,) = [m for m in only(AppendEntries, solo.receive(refusal)) if m.to == 2]
    assert (probe.prev_index, probe.prev_term) == (2, 1)


def test_p13_what_a_follower_did_not_answer_is_sent_again() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.drop = lambda m: isinstance(m, AppendEntries) and m.to == 3
    for _ in range(3):
        leader.propose([])
        cluster.tick(2)
    cluster.drop = lambda _: False
    cluster.tick(3)
    assert cluster[3].last_index == leader.last_index


def test_p14_a_slow_follower_holds_nobody_up() -> None:
    solo = Solo(3)
    solo.lead()
    solo.receive(accept(2, 1, 2))
    for number in range(20):
        solo.propose(b"%d" % number)
        solo.receive(accept(2, 1, 3 + number))
    assert solo.raft.commit == 22
    assert solo.role() is Role.LEADER


def test_p15_entries_with_the_same_index_and_term_are_the_same() -> None:
    solo = Solo(3)
    solo.receive(append(2, 1, (1, 1), [entry(2, 1, b"first")]))
    solo.receive(append(2, 1, (1, 1), [entry(2, 1, b"again")]))
    (kept,) = solo.storage.entries(Index(2), Index(3), 100)
    assert kept.payload == b"first"


def test_p16_a_heartbeat_carries_no_commit_beyond_the_receivers_log() -> None:
    solo = Solo(3)
    solo.lead()
    solo.receive(accept(2, 1, 2))
    solo.tick()
    commits = {m.to: m.commit for m in solo.take() if hasattr(m, "commit")}
    assert commits == {2: 2, 3: 0}
    assert beat(2, 1).commit == 0
