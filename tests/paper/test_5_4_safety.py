"""Raft paper 5.4: safety."""

from __future__ import annotations

import pytest

from logservice.hard_state import HardState
from logservice.ids import Index, ReplicaId, Term
from logservice.raft.log.memory_storage import MemoryStorage
from logservice.raft.messages import AppendEntries, VoteResponse
from logservice.raft.ready import Role
from tests.paper.solo import Solo, accept, ask, entry, only
from tests.raft.cluster import Cluster, first_snapshot, membership


@pytest.mark.parametrize(
    ("candidate", "granted"),
    [
        ((3, 2), True),
        ((4, 2), True),
        ((2, 3), True),
        ((2, 2), False),
        ((9, 1), False),
        ((3, 1), False),
    ],
)
def test_p1_only_a_log_at_least_as_new_gets_the_vote(
    candidate: tuple[int, int], granted: bool
) -> None:
    """5.4.1: the newer last term decides first, then the length."""
    solo = Solo(3, log=(1, 2), term=3)
    (answer,) = only(VoteResponse, solo.receive(ask(2, 4, candidate)))
    assert answer.reject is not granted
    assert answer.term == 4


@pytest.mark.parametrize(
    ("acked", "commit"),
    [(2, 1), (3, 1), (4, 4)],
)
def test_p2_only_entries_of_the_own_term_are_committed_by_counting(acked: int, commit: int) -> None:
    """5.4.2: a majority of replicas for an older entry proves nothing."""
    solo = Solo(3, log=(1, 2), term=2)
    solo.lead()
    solo.receive(accept(2, 3, acked), accept(3, 3, acked))
    assert solo.raft.commit == commit


def test_p3_figure_8() -> None:
    """An entry of term 2 on three of five replicas is still replaced by one of term 3.

    So it must not have been committed. Once an entry of term 4 is on three of five, nothing can
    replace it.
    """
    members = membership([1, 2, 3, 4, 5])

    def log(cluster: Cluster, number: int, now: int, *terms: int) -> None:
        storage = MemoryStorage(first_snapshot(members))
        storage.save(
            HardState(Term(now), ReplicaId(0), Index(1)), [entry(2, term, b"x") for term in terms]
        )
        cluster.start(number, storage)

    def picture() -> Cluster:
        """(c): 1 leads term 4 and has copied its entry of term 2 to 3; 5 has one of term 3."""
        cluster = Cluster(members=members, check_quorum=False, pre_vote=False)
        for number, terms in ((1, (2,)), (2, (2,)), (3, ()), (4, ()), (5, (3,))):
            log(cluster, number, 3, *terms)
        cluster.isolate(5)
        return cluster

    cluster = picture()
    no_op = 3

    def lose_the_no_op(message: object) -> bool:
        """An append may arrive where it does not fit; otherwise no follower could be probed."""
        if not isinstance(message, AppendEntries):
            return False
        fits = cluster[message.to].last_index >= message.prev_index
        return fits and any(item.index == no_op for item in message.entries)

    cluster.elect(1)
    assert cluster[1].commit == 3, "with its own entry the older one is committed"

    cluster = picture()
    cluster.limits = type(cluster.limits)(message_bytes=0)
    for number in (1, 2, 3, 4):
        cluster.restart(number)
    cluster.drop = lose_the_no_op
    cluster.elect(1)
    cluster.tick(3)
    with_entry = [n for n in (1, 2, 3, 4) if cluster.replicas[n].storage.last_index() >= 2]
    assert len(with_entry) >= 3
    assert cluster[1].commit == 1, "(c): on a majority, and yet not committed"
    cluster.crash(1)
    cluster.drop = lambda _: False
    cluster.heal()
    for _ in range(20):  # (d)
        cluster[5].campaign()
        cluster.settle()
        if cluster.role(5) is Role.LEADER:
            break
    assert cluster.role(5) is Role.LEADER
    cluster.tick(3)
    assert cluster.replicas[2].storage.term(Index(2)) == 3
    cluster.check_logs()


def test_p4_a_leader_has_every_committed_entry() -> None:
    for seed in range(20):
        cluster = Cluster(5, seed=seed)
        for _ in range(4):
            leader = cluster.wait_for_leader()
            leader.raft.propose([])
            cluster.tick()
            cluster.crash(leader.id)
            cluster.wait_for_leader(besides=leader.id)
            cluster.restart(leader.id)
            cluster.tick(5)
        cluster.check_logs()


def test_p5_vote_and_log_survive_a_restart_together() -> None:
    solo = Solo(3, log=(1,), term=1)
    solo.receive(ask(2, 2, (2, 1)))
    solo.restart()
    (answer,) = only(VoteResponse, solo.receive(ask(3, 2, (9, 1))))
    assert answer.reject
    (again,) = only(VoteResponse, solo.receive(ask(2, 2, (2, 1))))
    assert not again.reject, "the same candidate gets the same answer"


def test_p6_messages_may_come_twice_or_late_without_harm() -> None:
    solo = Solo(3)
    solo.lead()
    solo.propose(b"x")
    for _ in range(3):
        solo.receive(accept(2, 1, 3), accept(2, 1, 2))
    assert solo.raft.commit == 3
    assert solo.raft.status().progress[ReplicaId(2)].match == 3
