"""A log with a witness on real processes: no ack without the waiver, goes on without one store,
stands still rather than forgets, and is repaired with what it had.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import (
    DeadlineExceeded,
    InvalidArgument,
    LogServiceError,
    NotLeader,
    NotReady,
    ShardNotFound,
    UnknownOutcome,
    VerbRefused,
)
from logservice_wire.rpcs import GET_SHARD_STATUS
from logservice_wire.v1 import hakeeper_pb2, log_pb2

from logservice.cli.ctl.direct_call import call_store
from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from tests.cli.test_processes import Program
from tests.local_stores import started_cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 1 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 20},
    "truncation": {"interval_s": 0.5},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(
        tmp_path_factory.mktemp("cluster") / "c", stores=4, zones=4, settings=SETTINGS
    ) as running:
        yield running


@pytest.fixture
def ctl(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(logctl, cluster, capfd)


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[SyncLogClient]:
    with SyncLogClient(cluster.endpoints()) as one:
        yield one


@pytest.fixture(scope="module")
def log(client: SyncLogClient) -> int:
    """The log, once its members are known."""
    made = client.hakeeper.create_shard(name="saved", replicas=3, witnesses=1, waive_g1=True)
    client.shard(made).append(b"first")
    wait_until(lambda: all(one.reported for one in replicas(client, made)), 30)
    return made


def replicas(client: SyncLogClient, shard: int) -> list[hakeeper_pb2.ReplicaInfo]:
    return list(client.hakeeper.shard_info(shard, fresh=True).replicas)


def by_role(client: SyncLogClient, shard: int, role: str) -> list[hakeeper_pb2.ReplicaInfo]:
    return [one for one in replicas(client, shard) if one.role == role]


def test_who_waives_nothing_gets_no_witness(client: SyncLogClient, ctl: Program) -> None:
    for witnesses, waived in ((1, False), (0, True)):
        with pytest.raises(InvalidArgument) as refused:
            client.hakeeper.create_shard(
                name="no", replicas=3, witnesses=witnesses, waive_g1=waived
            )
        assert refused.value.metadata["field"] == "waive_g1"
    with pytest.raises(InvalidArgument) as refused:
        client.hakeeper.create_shard(name="no", replicas=3, witnesses=2, waive_g1=True)
    assert refused.value.metadata["field"] == "witnesses"
    said = ctl("shard", "create", "no", "--witnesses", "1")
    assert said.code != 0
    assert "waive" in said.err
    names = {one.name for one in client.hakeeper.cluster_state().shards}
    assert "no" not in names


def test_it_is_shown_and_asked_for_nothing(
    client: SyncLogClient, cluster: LocalCluster, ctl: Program, log: int
) -> None:
    [witness] = by_role(client, log, "witness")
    shown = ctl.json("shard", "show", log)
    assert isinstance(shown, dict)
    assert shown["witnesses"] == 1
    assert f"{witness.store_id} (witness)" in shown["replicas"]
    assert witness.client_address not in client.hakeeper.shard_info(log).client_addresses
    with SyncLogClient(cluster.endpoints(), zone=witness.zone) as near:
        lsn = near.shard(log).append(b"from the zone of the witness")
        assert near.shard(log).read(lsn).records() == [b"from the zone of the witness"]
        assert near.near_addresses(log) == ()
    said = ctl("transfer", log, witness.store_id)
    assert said.code == 2
    assert "may lead" in said.err
    request = log_pb2.GetShardStatusRequest(shard_id=log, stale=True)
    with pytest.raises(ShardNotFound):
        call_store(witness.client_address, GET_SHARD_STATUS, request, 10, None)
    with pytest.raises(VerbRefused):
        client.hakeeper.set_leader(log, 5.0, store_id=witness.store_id, reason="a test")
    wait_until(lambda: client.shard(log).append(b"x") and _redundancy(client, log) == (2, 2), 30)


def _redundancy(client: SyncLogClient, log: int) -> tuple[int, int]:
    found = client.shard(log).redundancy
    return found.healthy_voters, found.voters


def test_it_stands_still_rather_than_forgets(
    client: SyncLogClient, cluster: LocalCluster, log: int
) -> None:
    """What the leader and the witness alone have is there again with the leader."""
    shard = client.shard(log)
    shard.append(b"everywhere")
    leader, other = sorted(by_role(client, log, "voter"), key=lambda one: not one.leader)
    cluster.kill(other.store_id)
    acked = [shard.append(b"%d" % number, timeout=30) for number in range(50)]
    cluster.kill(leader.store_id)
    cluster.start(other.store_id)
    with pytest.raises((NotReady, NotLeader, DeadlineExceeded, UnknownOutcome)):
        client.shard(log).append(b"nobody leads", timeout=5)
    cluster.start(leader.store_id)
    wait_until(lambda: _appends(client, log), 60)
    found = client.shard(log).read(acked[0], max_bytes=1 << 20).records()
    assert found[: len(acked)] == [b"%d" % number for number in range(50)]


def _appends(client: SyncLogClient, log: int) -> bool:
    try:
        client.shard(log).append(b"again", timeout=2)
    except LogServiceError:
        return False
    return True


def test_a_lost_witness_comes_back_elsewhere(
    client: SyncLogClient, cluster: LocalCluster, log: int
) -> None:
    # The test before has killed stores: HAKeeper may still be replacing what they had.
    spares: list[str] = []

    def asked() -> bool:
        state = client.hakeeper.cluster_state()
        found = replicas(client, log)
        witnesses = [one for one in found if one.role == "witness"]
        spare = {one.store_id for one in state.stores} - {one.store_id for one in found}
        settled = not state.operators and all(one.reported for one in found)
        if not settled or len(witnesses) != 1 or len(spare) != 1:
            return False
        spares[:] = spare
        client.hakeeper.move_replica(
            log, from_store=witnesses[0].store_id, to_store=spares[0], reason="a test"
        )
        return True

    wait_until(asked, 60)
    [spare] = spares

    def moved() -> bool:
        found = by_role(client, log, "witness")
        return len(replicas(client, log)) == 3 and [one.store_id for one in found] == [spare]

    wait_until(moved, 60)
    wait_until(lambda: by_role(client, log, "witness")[0].reported, 30)
    cluster.kill(next(one.store_id for one in by_role(client, log, "voter") if not one.leader))
    assert client.shard(log).append(b"with the new witness", timeout=30)
