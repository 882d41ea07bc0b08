"""What a leader knows of the room on its members' disks, and what follows from it."""

from __future__ import annotations

import itertools

import pytest

from logservice.config_change import Transition
from logservice.entry import EntryKind, Proposal
from logservice.ids import ReplicaId
from logservice.raft import quiesce
from logservice.raft.messages import ROOM_MAX
from logservice.raft.ready import Role
from tests.raft.cluster import Cluster, add, block, change, remove

COMMAND = Proposal(EntryKind.COMMAND, 0, b"truncate")


def led(count: int = 3) -> Cluster:
    cluster = Cluster(count)
    cluster.elect(1)
    cluster.tick()
    return cluster


def say(cluster: Cluster, rooms: dict[int, int], *, closed: bool = False) -> None:
    """Give these disks this room, and let the leader hear of it."""
    for number, room in rooms.items():
        cluster[number].set_room(room, closed)
    cluster.tick(2)


@pytest.mark.parametrize("rooms", list(itertools.product((0, 100, ROOM_MAX), repeat=3)))
def test_a_quorum_decides_and_the_leader_itself(rooms: tuple[int, int, int]) -> None:
    """INV-ROOM-1: the bound that the leader's shell admits blocks by."""
    cluster = led()
    cluster.drop = lambda message: type(message).__name__ == "TimeoutNow"
    say(cluster, dict(enumerate(rooms, 1)))
    middle = sorted(rooms)[1]
    assert cluster[1].quorum_room == middle
    assert cluster[1].block_room == min(rooms[0], middle)


def test_acks_carry_the_room_too() -> None:
    cluster = led()
    cluster[2].set_room(7, False)
    cluster[3].set_room(7, False)
    cluster[1].propose([block(b"x")])
    cluster.settle()
    assert cluster[1].block_room == 7


def test_a_silent_member_has_no_room_and_a_new_leader_assumes_room() -> None:
    cluster = led()
    say(cluster, {2: 0})
    assert cluster[1].block_room == ROOM_MAX
    cluster.isolate(3)
    cluster.tick(2 * cluster.election_ticks)
    assert cluster[1].role is Role.LEADER
    assert cluster[1].block_room == 0, "what only the full one would hold is not admitted"
    cluster.heal()
    cluster.tick(2)
    assert cluster[1].block_room == ROOM_MAX


def test_a_new_leader_counts_on_nobody_once_a_quorum_has_spoken() -> None:
    """INV-ROOM-4. A dead member's share of an election timeout once filled the reserve of the one
    that lived: then a log could not even be truncated.
    """
    cluster = Cluster()
    cluster.isolate(3)
    cluster[2].set_room(0, False)
    cluster.elect(1)
    assert cluster[1].block_room == 0
    assert cluster[1].room_untold, "the third one may have room"
    cluster.tick(2 * cluster.election_ticks)
    assert cluster[1].role is Role.LEADER
    assert not cluster[1].room_untold
    cluster.heal()
    cluster.tick(2)
    assert cluster[1].block_room == ROOM_MAX


def test_a_leader_that_nobody_has_spoken_to_yet_refuses_nothing() -> None:
    """Nothing is committed before a quorum speaks, and it may have room."""
    cluster = Cluster()
    cluster.drop = lambda message: type(message).__name__ == "AppendResponse"
    cluster.elect(2)
    assert cluster[2].block_room == ROOM_MAX
    assert cluster[2].room_untold
    cluster.drop = lambda _: False
    cluster.tick(2)
    assert not cluster[2].room_untold


def test_a_member_that_comes_in_counts_once_it_has_spoken() -> None:
    """INV-ROOM-4."""
    cluster = led()
    say(cluster, {3: 0})
    cluster[1].propose_change(change(add(4), remove(2)))
    cluster.settle()
    assert cluster[1].membership.voters == (1, 3, 4)
    assert cluster[1].block_room == 0
    assert cluster[1].room_untold
    cluster.start(4)
    cluster.tick(3)
    assert cluster[1].block_room == ROOM_MAX


def test_both_halves_of_a_joint_configuration_must_have_room() -> None:
    cluster = Cluster(5)
    cluster.elect(1)
    cluster[1].propose_change(change(remove(4, 5), transition=Transition.EXPLICIT))
    cluster.settle()
    assert cluster[1].membership.joint
    say(cluster, {3: 0, 4: 0, 5: 0})
    assert cluster[1].block_room == 0
    cluster[1].propose_change(change())
    cluster.settle()
    assert not cluster[1].membership.joint
    assert cluster[1].block_room == ROOM_MAX


def test_a_leader_with_a_full_disk_hands_over_to_one_with_room() -> None:
    cluster = led(5)
    say(cluster, {1: 0, 2: 0, 5: 1000})
    cluster.tick(2)
    (leader,) = [number for number in range(1, 6) if cluster.role(number) is Role.LEADER]
    assert leader in (3, 4, 5)
    cluster.tick(3)
    assert cluster[leader].block_room > 0


def test_a_leader_whose_disk_alone_is_too_full_for_a_block_hands_over() -> None:
    """INV-ROOM-3: else the block is refused for as long as somebody sends it."""
    cluster = led()
    say(cluster, {1: 100, 2: 200, 3: 400})
    cluster.tick(4 * cluster.election_ticks)
    assert cluster.role(1) is Role.LEADER, "nobody sent anything larger"
    cluster[1].refused_for_own_room(200)
    cluster.tick(4)
    assert cluster.role(1) is Role.FOLLOWER
    (leader,) = [number for number in (2, 3) if cluster.role(number) is Role.LEADER]
    cluster.tick(2)
    assert cluster[leader].block_room == 200


def test_a_block_that_no_quorum_takes_moves_nobody() -> None:
    cluster = led()
    say(cluster, {1: 100, 2: 100, 3: 400})
    term = cluster[1].term
    cluster[1].refused_for_own_room(200)
    cluster.tick(4)
    say(cluster, {2: 400})
    cluster.tick(4 * cluster.election_ticks)
    assert cluster.role(1) is Role.LEADER, "what was refused is forgotten with the next heartbeat"
    assert cluster[1].term == term


def test_a_full_leader_stays_while_nobody_with_room_keeps_up() -> None:
    cluster = led()
    for number in (2, 3):
        cluster.isolate(number)
        cluster[1].report_unreachable(ReplicaId(number))
    cluster[1].set_room(0, False)
    cluster[1].tick()
    cluster[1].tick()
    assert cluster[1].quorum_room == ROOM_MAX
    assert cluster[1].status().leader_transferee == 0


def test_nobody_hands_over_when_a_quorum_is_full() -> None:
    cluster = led()
    say(cluster, {2: 0})
    say(cluster, {1: 0})
    term = cluster[1].term
    cluster.tick(4 * cluster.election_ticks)
    assert cluster[1].role is Role.LEADER
    assert cluster[1].term == term
    assert cluster[1].block_room == 0


def test_control_entries_commit_on_full_disks_and_blocks_sent_before_are_taken() -> None:
    cluster = led()
    cluster.isolate(3)
    cluster[1].propose([block(b"admitted before")])
    say(cluster, {2: 0})
    say(cluster, {1: 0})
    cluster.heal()
    say(cluster, {3: 0})
    (place,) = cluster[1].propose([COMMAND]) or []
    cluster.tick(2)
    assert [cluster[number].commit for number in (1, 2, 3)] == [place[0]] * 3


def test_a_closed_disk_takes_control_entries_but_no_block() -> None:
    """INV-ROOM-2."""
    cluster = led()
    say(cluster, {3: 0}, closed=True)
    cluster[1].propose([COMMAND])
    cluster.settle()
    before = cluster[3].last_index
    assert before == cluster[1].last_index
    for number in range(20):
        cluster[1].propose([block(b"%d" % number), COMMAND])
        cluster.settle()
    cluster.tick(30)
    assert cluster[3].last_index == before
    assert cluster[1].commit == before + 40, "a full minority stops nothing"
    say(cluster, {3: 5000})
    cluster.tick(5)
    assert cluster[3].last_index == cluster[3].commit == before + 40


def test_a_follower_that_closes_takes_what_is_on_its_way_up_to_the_first_block() -> None:
    cluster = led()
    cluster[1].propose([COMMAND, block(b"x"), COMMAND])
    cluster.take(cluster.replicas[1])
    cluster[3].set_room(0, True)
    cluster.settle()
    first = cluster[1].last_index - 3
    assert cluster[3].last_index == first + 1
    assert cluster[1].commit == first + 3
    cluster.tick(3)
    assert cluster[3].last_index == first + 1
    cluster[3].set_room(10, False)
    cluster.tick(3)
    assert cluster[3].last_index == first + 3


def test_a_closed_follower_that_the_log_was_compacted_behind_gets_the_snapshot() -> None:
    cluster = led()
    say(cluster, {3: 0}, closed=True)
    for number in range(10):
        cluster[1].propose([block(b"%d" % number)])
        cluster.settle()
    cluster.compact(1)
    cluster.tick(5)
    assert cluster[3].applied_index == cluster[1].applied_index
    assert cluster[3].status().first_index_of_term == 0


def test_a_closed_disk_still_votes_and_follows() -> None:
    cluster = led()
    say(cluster, {1: 0, 2: 0, 3: 0}, closed=True)
    cluster.crash(1)
    leader = cluster.wait_for_leader(besides=1)
    assert leader.raft.commit == leader.raft.last_index


def test_a_membership_change_on_closed_disks() -> None:
    cluster = led()
    say(cluster, {1: 0, 2: 0, 3: 0}, closed=True)
    cluster.start(4)
    cluster[1].propose_change(change(add(4)))
    cluster.tick(5)
    assert ReplicaId(4) in cluster[1].membership.voters
    assert cluster[4].applied_index == cluster[1].applied_index


def test_a_leader_that_wakes_up_believes_what_the_disks_said_before() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    for _ in range(3):
        quiesce.wake(cluster[1]._state)
        cluster[1]._state.quiesced = True
        quiesce.wake(cluster[1]._state)
        cluster[1]._state.quiesced = True
    assert cluster[1].block_room == ROOM_MAX


def test_a_replica_that_joins_says_what_its_disk_takes_as_soon_as_it_is_a_member() -> None:
    """The room of its own disk may come before its first snapshot tells it that it is a member."""
    cluster = led()
    cluster.start(4)
    cluster[4].set_room(7, False)
    cluster[1].propose_change(change(add(4)))
    cluster.settle()
    cluster.tick(5)
    assert 4 in cluster[4].membership.voters
    say(cluster, {1: 3, 2: 100})
    assert cluster[1].quorum_room == 7, "of 3, 7, 100 and no bound: what three of four have"


def test_a_quorum_is_closed_when_no_quorum_takes_what_was_appended() -> None:
    cluster = led()
    assert not cluster[1].quorum_closed
    say(cluster, {2: 0}, closed=True)
    assert not cluster[1].quorum_closed, "the leader and the third replica are a quorum"
    say(cluster, {3: 0}, closed=True)
    assert cluster[1].quorum_closed
    cluster[1].propose([block(b"stuck"), COMMAND])
    cluster.tick(5)
    assert cluster[1].commit == cluster[1].last_index - 2
    say(cluster, {1: 0}, closed=True)
    say(cluster, {3: 0})
    assert not cluster[1].quorum_closed, "what the leader appended, its own disk has"
    assert cluster[1].commit == cluster[1].last_index


def test_who_proposes_asks_once_and_only_a_leader_answers() -> None:
    cluster = led()
    leader = cluster[1]
    say(cluster, {2: 0}, closed=True)
    cluster.isolate(3)
    leader.propose([block(b"stuck")])
    cluster.settle()
    found = leader.proposing()
    assert found is not None
    assert (found.term, found.last_index) == (leader.term, leader.last_index)
    assert (found.next_lsn, found.uncommitted_bytes) == (leader.next_lsn, len(b"stuck"))
    assert (found.block_room, found.closed) == (leader.block_room, False)
    say(cluster, {1: 0})
    cluster.tick(2 * cluster.election_ticks - 1)
    found = leader.proposing()
    assert found is not None
    assert (found.block_room, found.closed) == (0, leader.quorum_closed)
    assert cluster[2].proposing() is None


def test_a_silent_member_takes_no_block() -> None:
    cluster = led(5)
    say(cluster, {2: 0, 3: 0}, closed=True)
    assert not cluster[1].quorum_closed
    cluster.isolate(4)
    cluster.tick(2 * cluster.election_ticks)
    assert cluster[1].role is Role.LEADER
    assert cluster[1].quorum_closed
    cluster.heal()
    cluster.tick(2)
    assert not cluster[1].quorum_closed


def test_a_new_leader_that_heard_of_nobody_takes_no_quorum_for_closed() -> None:
    cluster = Cluster(3)
    cluster.drop = lambda message: type(message).__name__ == "AppendResponse"
    for number in (2, 3):
        cluster[number].set_room(0, True)
    cluster.elect(1)
    assert cluster[1].role is Role.LEADER
    assert not cluster[1].quorum_closed
    cluster.tick(2)
    assert cluster[1].quorum_closed


def test_both_halves_of_a_joint_configuration_must_not_be_closed() -> None:
    cluster = Cluster(5)
    cluster.elect(1)
    cluster[1].propose_change(change(remove(4, 5), transition=Transition.EXPLICIT))
    cluster.settle()
    say(cluster, {4: 0, 5: 0}, closed=True)
    assert not cluster[1].quorum_closed
    say(cluster, {3: 0}, closed=True)
    assert cluster[1].quorum_closed
    cluster[1].propose_change(change())
    cluster.settle()
    assert not cluster[1].quorum_closed
