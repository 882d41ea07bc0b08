"""Raft paper section 8 and thesis chapter 6: what clients may rely on."""

from __future__ import annotations

from logservice.ids import ReplicaId, Term
from logservice.raft.messages import Heartbeat, HeartbeatResponse
from logservice.raft.ready import ReadState
from tests.paper.solo import ME, Solo, accept, only
from tests.raft.cluster import taken


def answer(sender: int, term: int, context: bytes) -> HeartbeatResponse:
    return HeartbeatResponse(to=ME, sender=ReplicaId(sender), term=Term(term), context=context)


def test_p1_no_read_before_an_entry_of_the_own_term_is_committed() -> None:
    solo = Solo(3, log=(1, 1), term=1)
    solo.lead()
    solo.raft.read_index(b"r")
    assert only(Heartbeat, solo.take()) == []
    sent = only(Heartbeat, solo.receive(accept(2, 2, 4)))
    assert len(sent) == 2, "now the round starts"
    solo.raft.step(answer(2, 2, sent[0].context))
    assert taken(solo.raft).read_states == (ReadState(solo.raft.commit, b"r"),)


def test_p2_a_read_needs_a_quorum_that_still_follows() -> None:
    solo = Solo(5)
    solo.lead()
    solo.receive(*(accept(peer, 1, 2) for peer in (2, 3, 4, 5)))
    solo.raft.read_index(b"r")
    context = only(Heartbeat, solo.take())[0].context
    solo.raft.step(answer(2, 1, context))
    assert taken(solo.raft).read_states == ()
    solo.raft.step(answer(2, 1, context))
    assert taken(solo.raft).read_states == (), "one answer counts once"
    solo.raft.step(answer(3, 1, context))
    assert taken(solo.raft).read_states == (ReadState(solo.raft.commit, b"r"),)


def test_p3_the_index_is_the_commit_index_when_the_read_came() -> None:
    solo = Solo(3)
    solo.lead()
    solo.receive(accept(2, 1, 2), accept(3, 1, 2))
    solo.raft.read_index(b"r")
    context = only(Heartbeat, solo.take())[0].context
    solo.propose(b"later")
    solo.receive(accept(2, 1, 3))
    solo.raft.step(answer(2, 1, context))
    assert taken(solo.raft).read_states[0].index == 2


def test_p4_an_answer_to_an_older_round_confirms_nothing_newer() -> None:
    solo = Solo(3)
    solo.lead()
    solo.receive(accept(2, 1, 2), accept(3, 1, 2))
    solo.raft.read_index(b"old")
    old = only(Heartbeat, solo.take())[0].context
    solo.raft.read_index(b"new")
    solo.take()
    solo.raft.step(answer(2, 1, old))
    assert [state.context for state in taken(solo.raft).read_states] == [b"old"]


def test_p5_a_leader_that_steps_down_forgets_its_reads() -> None:
    solo = Solo(3)
    solo.lead()
    solo.receive(accept(2, 1, 2), accept(3, 1, 2))
    solo.raft.read_index(b"r")
    context = only(Heartbeat, solo.take())[0].context
    solo.receive(accept(2, 5, 2))
    solo.lead()
    solo.raft.step(answer(2, solo.raft.term, context))
    assert taken(solo.raft).read_states == ()
