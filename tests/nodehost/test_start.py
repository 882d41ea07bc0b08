"""Where a replica starts from, and what proves that it must not start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from logservice_wire.errors import Halted

from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.logdb.format.update import InstalledSnapshot, Update
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.membership import Membership
from logservice.nodehost.replica.start import choose_start
from logservice.raft.messages import InstallSnapshot
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.snapshot_codec import encode_state
from logservice.rsm.state import LogState
from logservice.snapshot import Snapshot
from tests.logdb.helpers import World, entries
from tests.logdb.helpers import update as log_update
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.waiting import eventually

GARBAGE = b"this is no state"


def snapshot(index: int, term: int = 1, state: bytes = b"") -> Snapshot:
    next_lsn = Lsn(index + 1)
    state = state or encode_state(LogState(applied_index=Index(index), next_lsn=next_lsn))
    return Snapshot(Index(index), Term(term), next_lsn, Membership(), state)


def log_with(last: int, installed: Snapshot | None = None) -> ReplicaLog:
    db = World().open()
    db.commit([log_update(new=entries(1, last))])
    if installed is not None:
        db.commit([Update(SHARD, ReplicaId(1), snapshot=InstalledSnapshot(installed, Lsn(9)))])
    return db.log(SHARD, ReplicaId(1))


def test_the_newest_export_that_the_log_knows() -> None:
    log = log_with(20, snapshot(5))
    assert choose_start(log, None, LogRsm()) == snapshot(5)
    assert choose_start(log, snapshot(3), LogRsm()) == snapshot(5)
    assert choose_start(log, snapshot(20), LogRsm()) == snapshot(20)
    assert log.fault is None


@pytest.mark.parametrize(
    ("export", "words"),
    [(snapshot(21), "its log ends at 20"), (snapshot(12, term=2), "of term 2")],
)
def test_an_export_that_the_log_contradicts_proves_a_loss(export: Snapshot, words: str) -> None:
    """INV-START-1: it is unknown what else is gone, perhaps a vote; so there is no repair in
    place.
    """
    log = log_with(20, snapshot(5))
    with pytest.raises(Halted, match=words):
        choose_start(log, export, LogRsm())
    assert log.fault is not None
    assert not log.fault.repairable


def test_an_export_without_an_installed_snapshot_proves_a_loss() -> None:
    with pytest.raises(Halted, match="snapshot is gone"):
        choose_start(log_with(20), snapshot(5), LogRsm())


def test_an_export_that_does_not_decode_is_passed_over() -> None:
    log = log_with(20, snapshot(5))
    assert choose_start(log, snapshot(9, state=GARBAGE), LogRsm()) == snapshot(5)
    assert log.fault is None


def test_an_installed_state_of_another_index_is_a_fault_and_no_crash_loop() -> None:
    """The state was taken over from a leader that lied; each start broke an invariant."""
    forged = replace(snapshot(5), state=snapshot(4).state)
    with pytest.raises(Halted, match="has applied 4"):
        choose_start(log_with(20, forged), None, LogRsm())


def test_an_installed_state_that_does_not_decode_is_a_fault() -> None:
    log = log_with(20, snapshot(5, state=GARBAGE))
    with pytest.raises(Halted, match="installed snapshot at 5"):
        choose_start(log, None, LogRsm())
    assert log.faulty


async def test_a_store_with_undecodable_state_starts_without_that_replica(tmp_path: Path) -> None:
    """Such state used to end the process at every start."""
    cluster = Cluster(tmp_path)
    await cluster.up()
    host = cluster.host(await cluster.leader())
    await host.append(SHARD, request(block=b"kept"), 30.0)
    store = cluster.stores[2]
    await eventually(lambda: cluster.replica(2).log_bounds[1] == 1)
    await cluster.host(2).replicas.stop(SHARD)
    log = store.logdb.log(SHARD, ReplicaId(2))
    assert log.installed is not None
    last = log.last_index()
    bad = Snapshot(last, log.term(last), log.next_lsn(last), Membership(), GARBAGE)
    store.logdb.commit([Update(SHARD, ReplicaId(2), snapshot=InstalledSnapshot(bad, Lsn(1)))])
    await store.down()
    await store.up()
    cluster.introduce()
    assert "installed snapshot" in cluster.host(2).halts.all()[SHARD].reason
    leader = cluster.host(await cluster.leader())
    await leader.append(SHARD, request(block=b"after"), 30.0)
    await store.down()
    await store.up()
    assert SHARD in cluster.host(2).halts.all(), "the mark is durable"
    await cluster.down()


async def test_a_snapshot_of_a_leader_that_does_not_decode_is_refused(tmp_path: Path) -> None:
    """Nothing of the snapshot is persisted: afterwards there would be no way back."""
    cluster = Cluster(tmp_path)
    await cluster.up()
    leader = await cluster.leader()
    number = 1 + leader % 3
    await cluster.host(leader).append(SHARD, request(block=b"kept"), 30.0)
    replica = cluster.replica(number)
    before = replica.info()
    good = cluster.replica(leader).applied_snapshot()
    bad = replace(good, index=Index(good.index + 50), state=GARBAGE)
    replica.hear(
        cluster.host(leader).identity,
        InstallSnapshot(
            to=ReplicaId(number), sender=ReplicaId(leader), term=before.term, snapshot=bad
        ),
    )
    assert cluster.host(number).refusals.counts["snapshot"] == 1
    await cluster.host(leader).append(SHARD, request(block=b"after"), 30.0)
    await eventually(lambda: cluster.replica(number).log_bounds[1] == 2)
    assert replica.info().first_index == before.first_index
    await cluster.down()
