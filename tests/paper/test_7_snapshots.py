"""Raft paper section 7: log compaction and InstallSnapshot."""

from __future__ import annotations

from logservice.ids import Index, ReplicaId, Term
from logservice.raft.messages import AppendEntries, AppendResponse, InstallSnapshot
from logservice.raft.ready import Role
from tests.paper.solo import ME, Solo, accept, append, entries, only, snapshot
from tests.raft.cluster import membership, taken

MEMBERS = membership([1, 2, 3])


def install(index: int, term: int, leader_term: int) -> InstallSnapshot:
    return InstallSnapshot(
        to=ME,
        sender=ReplicaId(2),
        term=Term(leader_term),
        snapshot=snapshot(index, term, MEMBERS),
    )


def test_p1_a_snapshot_is_sent_when_the_next_entry_is_gone() -> None:
    solo = Solo(3, log=(1, 1, 1), term=1)
    solo.lead()
    solo.receive(accept(3, 2, 5))
    solo.storage.install(snapshot(5, 2, MEMBERS))
    refusal = AppendResponse(
        to=ME,
        sender=ReplicaId(2),
        term=Term(2),
        index=Index(4),
        reject=True,
        hint_index=Index(2),
        hint_term=Term(1),
    )
    (sent,) = only(InstallSnapshot, solo.receive(refusal))
    assert (sent.to, sent.snapshot.index, sent.snapshot.term) == (2, 5, 2)


def test_p2_nothing_else_is_sent_until_the_snapshot_is_answered() -> None:
    solo = Solo(3, log=(1,), term=1)
    solo.lead()
    solo.receive(accept(3, 2, 3))
    solo.storage.install(snapshot(3, 2, MEMBERS))
    refusal = AppendResponse(to=ME, sender=ReplicaId(2), term=Term(2), index=Index(2), reject=True)
    solo.receive(refusal)
    assert [m.to for m in only(AppendEntries, solo.propose())] == [3]
    sent = only(AppendEntries, solo.receive(accept(2, 2, 3)))
    assert [(m.to, m.prev_index) for m in sent] == [(2, 3)]


def test_p3_a_newer_snapshot_replaces_the_whole_log() -> None:
    solo = Solo(3, log=(1, 1), term=1)
    (answer,) = only(AppendResponse, solo.receive(install(9, 2, 3)))
    assert solo.storage.snapshot().index == 9
    assert solo.terms() == []
    assert (solo.raft.commit, solo.raft.applied_index) == (9, 9)
    assert (answer.index, answer.reject) == (9, False)


def test_p4_a_snapshot_of_a_prefix_keeps_the_entries_behind_it() -> None:
    solo = Solo(3, log=(1, 1, 1), term=1)
    solo.receive(install(3, 1, 2))
    assert solo.terms() == [1, 1, 1]
    assert solo.raft.commit == 3


def test_p5_the_answer_waits_until_the_snapshot_is_durable() -> None:
    solo = Solo(3)
    solo.raft.step(install(9, 2, 3))
    ready = taken(solo.raft)
    assert ready.must_sync
    assert ready.snapshot is not None
    assert ready.messages == ()
    assert solo.raft.applied_index == 1
    solo.storage.save(ready.hard_state, (), ready.snapshot)
    solo.raft.persisted(ready)
    assert solo.raft.applied_index == 9


def test_p6_replication_goes_on_behind_a_snapshot() -> None:
    solo = Solo(3)
    solo.receive(install(9, 2, 3))
    solo.receive(append(2, 3, (9, 2), entries(3, 3, first=10), commit=10))
    assert solo.terms() == [3, 3]
    assert solo.raft.applied_index == 10


def test_p7_a_replica_does_not_campaign_while_it_takes_a_snapshot() -> None:
    solo = Solo(3)
    solo.raft.step(install(9, 2, 3))
    solo.raft.campaign()
    assert solo.role() is Role.FOLLOWER
    solo.take()
    solo.raft.campaign()
    assert solo.role() is Role.CANDIDATE


def test_p8_a_snapshot_brings_the_configuration() -> None:
    solo = Solo(3)
    wider = membership([1, 2, 3, 4, 5])
    message = InstallSnapshot(
        to=ME, sender=ReplicaId(2), term=Term(3), snapshot=snapshot(9, 2, wider)
    )
    solo.receive(message)
    assert solo.raft.membership == wider
    solo.restart()
    assert solo.raft.membership == wider
