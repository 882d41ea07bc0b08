"""The counter-examples to single-server membership change (D. Ongaro, "bug in single-server
membership changes", raft-dev, 10 July 2015): one add and one remove, two adds, two removes.

All have one shape. There are four servers in configuration C. S1 leads and creates D, which reaches
nobody who is needed to elect another leader. S2, S3 and S4 elect S2 in C, and S2 creates E, which a
majority of *E* holds. D and E each differ from C by one server, but from each other by two: they
have disjoint majorities. A majority of D elects S1, which overwrites what E has committed. The
tests run every assignment of servers to that shape, so that no labelling is left out.

The bug needs two things, and this core has neither:

- a leader that creates a configuration before it has committed an entry of its own term (the fix
  published with the bug; `change_needs_own_commit`);
- configurations that count from the moment they are in a log, as in the dissertation. Here they
  count when they are applied. D was never committed, so S1 still needs a majority of C, and E is
  committed by a majority of C: those intersect, whatever D and E are. So with the rule off the
  construction stops where E would be committed. `LogTimeCluster` shows that nothing else stops it:
  when changes count as soon as they are written, the violation follows as published.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from logservice.config_change import ConfigChange
from logservice.entry import EntryKind
from logservice.raft.errors import DropReason, ProposalDropped
from logservice.raft.messages import RequestVote, VoteResponse
from logservice.raft.ready import Role
from tests.raft.cluster import Cluster, Replica, add, block, change, committed_in_term, remove

C = (1, 2, 3, 4)
NO_OP, OF_D = 2, 3
"""The indexes of the no-op of S1's first term, which all have, and of the entry that creates D."""


@dataclass(frozen=True)
class Example:
    """S1 makes `d` and S2 makes `e`; the majorities of D and E that decide share no server."""

    name: str
    d: ConfigChange
    e: ConfigChange
    d_majority: tuple[int, ...]
    e_majority: tuple[int, ...]


ADD_5 = change(add(5))
EXAMPLES = [
    Example("two adds", ADD_5, change(add(6)), (1, 4, 5), (2, 3, 6)),
    *(
        Example(f"add 5, remove {gone}", ADD_5, change(remove(gone)), (1, 4, 5), (2, 3))
        for gone in (1, 4)
    ),
    *(
        Example(f"remove {gone}, add 5", change(remove(gone)), ADD_5, (1, 4), (2, 3, 5))
        for gone in (2, 3)
    ),
    *(
        Example(
            f"remove {one}, remove {other}",
            change(remove(one)),
            change(remove(other)),
            (1, 4),
            (2, 3),
        )
        for one in (2, 3)
        for other in (1, 4)
    ),
]
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
each_rule = pytest.mark.parametrize("rule", [True, False], ids=["rule on", "rule off"])


class LogTimeCluster(Cluster):
    """Membership as in the dissertation: a change counts when it is written, committed or not."""

    def persist(self, replica: Replica) -> None:
        entries = replica.waiting[0].entries
        super().persist(replica)
        for entry in entries:
            if entry.kind is EntryKind.CONFIG:
                replica.membership = replica.raft.apply_config_change(entry).membership

    def apply(self, replica: Replica) -> None:
        entry = replica.to_apply.popleft()
        self.check_applied(replica, entry)
        replica.applied[entry.index] = entry
        replica.raft.applied(entry.index)


def only_between(cluster: Cluster, *servers: int) -> None:
    """Deliver the messages between these servers only."""
    cluster.drop = lambda m: m.to not in servers or m.sender not in servers


def start(kind: type[Cluster], *, rule: bool) -> Cluster:
    """S1 leads C, and everybody knows that its no-op is committed. No pre-vote, no leases: the
    dissertation's algorithm has neither.
    """
    cluster = kind(
        len(C), pre_vote=False, check_quorum=False, change_needs_own_commit=rule, watch_disk=False
    )
    cluster.start(5)
    cluster.start(6)
    cluster.elect(1)
    cluster.tick()
    assert {cluster[server].commit for server in C} == {NO_OP}
    return cluster


def create_d(cluster: Cluster, example: Example) -> None:
    """S1 creates D; it reaches only who is new in it."""
    only_between(cluster, 1, 5)
    cluster[1].propose_change(example.d)
    cluster.settle()
    assert cluster.replicas[1].storage.last_index() == OF_D


def elect_s2(cluster: Cluster) -> None:
    """S2, S3 and S4 make S2 the leader, and S1 hears of it; the no-op is lost on the way."""
    cluster.drop = lambda m: not isinstance(m, RequestVote | VoteResponse) or m.to not in C
    cluster.elect(2)
    assert cluster.role(1) is Role.FOLLOWER
    assert not committed_in_term(cluster[2])


def create_e(cluster: Cluster, example: Example) -> None:
    """S2 creates E before it has committed anything; it reaches a majority of E."""
    only_between(cluster, *example.e_majority)
    cluster[2].propose_change(example.e)
    cluster.tick(3)
    assert cluster[3].last_index == cluster[2].last_index == OF_D + 1


def campaign_for_d(cluster: Cluster, example: Example) -> None:
    """S1 asks for votes in the configuration that it follows; a majority of D hears it."""
    only_between(cluster, *example.d_majority)
    cluster[1].campaign()
    cluster.settle()
    assert cluster[1].term > cluster[2].term


@each_example
def test_d_and_e_share_a_parent_but_no_majority(example: Example) -> None:
    """The construction is the published one."""
    for made, majority in ((example.d, example.d_majority), (example.e, example.e_majority)):
        config = set(C) ^ {made.steps[0].replica_id}
        assert set(majority) <= config
        assert len(majority) > len(config) / 2
    assert not set(example.d_majority) & set(example.e_majority)
    assert 1 in example.d_majority
    assert 2 in example.e_majority


@each_example
@pytest.mark.parametrize("kind", [Cluster, LogTimeCluster])
def test_the_rule_refuses_the_fatal_step(kind: type[Cluster], example: Example) -> None:
    """S2 may not create E yet; once it may, S4 has S2's no-op and does not vote for S1."""
    cluster = start(kind, rule=True)
    create_d(cluster, example)
    elect_s2(cluster)
    with pytest.raises(ProposalDropped) as dropped:
        cluster[2].propose_change(example.e)
    assert dropped.value.reason is DropReason.TERM_NOT_COMMITTED
    only_between(cluster, 2, 3, 4)
    cluster.tick(3)
    create_e(cluster, example)
    campaign_for_d(cluster, example)
    assert cluster.role(1) is not Role.LEADER
    cluster.check_logs()


@each_example
def test_if_changes_counted_when_written_the_bug_would_be_there(example: Example) -> None:
    """Without the rule and with the dissertation's membership the published violation happens."""
    cluster = start(LogTimeCluster, rule=False)
    create_d(cluster, example)
    elect_s2(cluster)
    create_e(cluster, example)
    assert cluster[2].commit == OF_D + 1, "a majority of E has committed E"
    with pytest.raises(AssertionError, match=f"leader lacks committed entry {OF_D}"):
        campaign_for_d(cluster, example)
    assert cluster.role(1) is Role.LEADER


@each_example
def test_changes_that_count_when_applied_stop_it_without_the_rule(example: Example) -> None:
    """E is not committed by a majority of E, nor S1 elected by one of D: both need one of C."""
    cluster = start(Cluster, rule=False)
    create_d(cluster, example)
    elect_s2(cluster)
    create_e(cluster, example)
    assert cluster[2].commit == NO_OP, "two of C are no majority, whatever E is"
    campaign_for_d(cluster, example)
    assert cluster.role(1) is not Role.LEADER, "two of C are no majority, whatever D is"
    assert {cluster[server].membership.voters for server in C} == {C}


@each_rule
@each_example
def test_all_goes_well_once_everybody_is_back(example: Example, rule: bool) -> None:
    """Either change may have won, never both; and nothing that was committed is gone."""
    cluster = start(Cluster, rule=rule)
    create_d(cluster, example)
    elect_s2(cluster)
    if not rule:
        create_e(cluster, example)
    campaign_for_d(cluster, example)
    cluster.drop = lambda _: False
    leader = cluster.wait_for_leader()
    placed = leader.raft.propose([block(b"after")])
    assert placed is not None
    cluster.tick(3)
    leader = cluster.wait_for_leader()
    cluster.tick(5)
    assert b"after" in cluster.committed_payloads()
    outcomes = [set(C), *(set(C) ^ {e.steps[0].replica_id} for e in (example.d, example.e))]
    assert set(leader.raft.membership.voters) in outcomes
    cluster.check_logs()
