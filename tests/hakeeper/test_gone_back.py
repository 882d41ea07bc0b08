"""A data directory that was put back from an older copy of itself (INV-HK-GONE-BACK)."""

from __future__ import annotations

import pytest

from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.outcome import Applied
from tests.hakeeper.model import Model

ONE, TWO = ShardId(1), ShardId(2)
HERE, OTHER = Incarnation(77), Incarnation(78)


class Beats:
    """The heartbeats of one store, in the order of shard 0's log."""

    def __init__(self) -> None:
        self.model = Model(0)
        self.sequence = 0

    def __call__(
        self, boot: int, *reports: proposals.ReplicaReport, base: int = 0
    ) -> replies.HeartbeatReply:
        self.sequence += 1
        beat = proposals.StoreHeartbeat(
            StoreId("s1"),
            "",
            "p:1",
            "c:1",
            (proposals.DirectoryReport(HERE), proposals.DirectoryReport(OTHER)),
            boot,
            self.sequence,
            base,
            replicas=reports,
        )
        outcome = self.model.propose(beat)
        assert isinstance(outcome, Applied)
        return replies.decode(outcome.data)


def report(
    applied: int,
    last: int,
    shard: ShardId = ONE,
    replica: int = 5,
    incarnation: int = HERE,
    halted: str = "",
) -> proposals.ReplicaReport:
    return proposals.ReplicaReport(
        shard,
        ReplicaId(replica),
        Incarnation(incarnation),
        Index(0),
        b"",
        last_index=Index(last),
        applied_index=Index(applied),
        halted=halted,
    )


def lost(reply: replies.HeartbeatReply) -> list[tuple[int, int, int]]:
    return [(one.shard, one.replica, one.through) for one in reply.forgotten]


def test_a_log_that_ends_before_what_it_had_applied_is_told_until_the_store_has_acted() -> None:
    beat = Beats()
    beat(1, report(100, 110), report(7, 7, TWO))
    for _ in range(3):
        # Every answer says it, because an answer may be lost. The snapshot of shard 0 keeps it.
        assert lost(beat(2, report(40, 60), report(7, 7, TWO))) == [(1, 5, 100)]
        saved = beat.model.rsm.save_snapshot()
        beat.model.rsm = HAKeeperRsm()
        beat.model.rsm.recover_from_snapshot(saved)
    assert lost(beat(2, report(0, 0, halted="put back"), report(7, 7, TWO))) == []
    assert lost(beat(2, report(0, 0, halted="put back"), report(7, 7, TWO))) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (report(100, 110), report(0, 100)),  # what was not applied may have been torn off
        (report(100, 110), report(0, 0, halted="damaged")),  # the store says so itself
        (report(0, 0, halted="damaged"), report(90, 100)),  # it was repaired
        (report(100, 110), report(40, 60, replica=6)),  # another replica
        (report(100, 110), report(40, 60, incarnation=OTHER)),  # another directory
    ],
)
def test_a_restart_is_no_going_back(
    before: proposals.ReplicaReport, after: proposals.ReplicaReport
) -> None:
    beat = Beats()
    beat(1, before)
    assert lost(beat(2, after)) == []


def test_a_process_does_not_go_back_by_itself() -> None:
    beat = Beats()
    beat(1, report(100, 110))
    assert lost(beat(1, report(40, 60))) == []


def test_a_late_heartbeat_of_an_earlier_process_is_cleared_by_the_living_one() -> None:
    """The late heartbeat reports less and is taken for that of a newer process. The store is told,
    looks, and finds nothing missing.
    """
    beat = Beats()
    beat(2, report(100, 110))
    assert lost(beat(1, report(40, 60))) == [(1, 5, 100)]
    assert lost(beat(3, report(100, 120))) == []


def test_a_replica_that_is_gone_is_not_asked_for() -> None:
    beat = Beats()
    beat(1, report(100, 110))
    assert lost(beat(2, report(40, 60))) == [(1, 5, 100)]
    assert lost(beat(2)) == []
