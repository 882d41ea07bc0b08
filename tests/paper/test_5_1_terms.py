"""Raft paper 5.1 and figure 2, "Rules for Servers"."""

from __future__ import annotations

import pytest

from logservice.ids import Index, ReplicaId, Term
from logservice.raft.messages import AppendResponse, HeartbeatResponse, Message, VoteResponse
from logservice.raft.ready import Role
from tests.paper.solo import ME, Solo, accept, append, ask, beat, grant, only
from tests.raft.cluster import taken


def test_p1_a_replica_starts_as_follower() -> None:
    assert Solo().role() is Role.FOLLOWER


def heartbeat_answer(term: int) -> Message:
    return HeartbeatResponse(to=ME, sender=ReplicaId(2), term=Term(term))


@pytest.mark.parametrize("role", ["follower", "candidate", "leader"])
@pytest.mark.parametrize(
    "newer",
    [
        append(2, 5, (1, 1)),
        beat(2, 5),
        ask(2, 5, (1, 1)),
        grant(2, 5, reject=True),
        accept(2, 5, 1),
        heartbeat_answer(5),
    ],
    ids=lambda message: type(message).__name__,
)
def test_p2_a_newer_term_in_any_message_is_taken_over(role: str, newer: Message) -> None:
    solo = Solo()
    if role == "candidate":
        solo.raft.campaign()
        solo.take()
    elif role == "leader":
        solo.lead()
    solo.receive(newer)
    assert (solo.raft.term, solo.role()) == (5, Role.FOLLOWER)


def test_p3_the_term_is_durable_before_anything_of_it_is_said() -> None:
    solo = Solo()
    solo.raft.step(ask(2, 5, (1, 1)))
    ready = taken(solo.raft)
    assert ready.must_sync
    assert ready.hard_state is not None
    assert ready.hard_state.term == 5
    assert ready.messages == ()


@pytest.mark.parametrize("stale", [append(2, 3, (1, 1)), beat(2, 3), ask(2, 3, (9, 3))])
def test_p4_an_older_term_is_refused(stale: Message) -> None:
    solo = Solo(term=4, check_quorum=True)
    sent = solo.receive(stale)
    assert solo.raft.term == 4
    assert solo.raft.leader == 0
    for answer in only(VoteResponse, sent):
        assert answer.reject
    for refused in only(AppendResponse, sent):
        assert (refused.term, refused.index) == (4, 0), "it learns the newer term"


def test_p5_the_term_survives_a_restart() -> None:
    solo = Solo()
    solo.receive(beat(2, 7))
    solo.restart()
    assert solo.raft.term == 7


def test_p6_committed_entries_are_applied_in_order_once() -> None:
    solo = Solo(log=(1, 1, 1), term=1)
    applied: list[int] = []
    raft = solo.raft
    for commit in (2, 2, 4, 3):
        raft.step(beat(2, 1, commit=commit))
        while (ready := raft.take_ready()) is not None:
            raft.persisted(ready)
            applied += [entry.index for entry in ready.committed_entries]
            if ready.committed_entries:
                raft.applied(Index(applied[-1]))
    assert applied == [2, 3, 4]
