"""The core's benchmark measures what it says: commits, and idle cores that keep their roles."""

from __future__ import annotations

from bench.parts.raft import (
    ELECTION_TICKS,
    Trio,
    append_table,
    hear_leader,
    idle_follower,
    idle_leader,
    leader_tick,
    tick_table,
)
from logservice.entry import EntryKind, Proposal
from logservice.raft.ready import Role


def test_an_append_is_applied_by_the_leader_and_compaction_keeps_up() -> None:
    trio = Trio()
    for number in range(3):
        trio.append([Proposal(EntryKind.BLOCK, 2, b"x")] * 4)
        assert trio.leader.applied_index == trio.leader.last_index == 2 + 4 * (number + 1)
        trio.compact()
    for core in trio.cores.values():
        assert core.raft.applied_index == trio.leader.last_index
        assert core.storage.first_index() == core.storage.last_index() + 1
    assert trio.leader.next_lsn == 1 + 2 * 4 * 3


def test_idle_cores_stay_idle() -> None:
    leader, follower = idle_leader(), idle_follower()
    term = leader.raft.term
    for _ in range(5 * ELECTION_TICKS):
        leader_tick(leader)
        follower.raft.tick()
        hear_leader(follower)
    assert (leader.raft.role, leader.raft.term) == (Role.LEADER, term)
    assert (follower.raft.role, follower.raft.term) == (Role.FOLLOWER, 1)


def test_the_tables_have_a_row_per_shape() -> None:
    assert append_table(0.001).row_count == 3
    assert tick_table([1, 2]).row_count == 2
