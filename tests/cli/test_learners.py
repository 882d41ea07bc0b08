"""A standing learner on real processes: read near it, lose it, truncate, and take it away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import InvalidArgument, LogServiceError, VerbRefused
from logservice_wire.rpcs import GET_SHARD_STATUS, TRANSFER_LEADER
from logservice_wire.v1 import admin_pb2, hakeeper_pb2, log_pb2

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
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 4},
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


def replicas(client: SyncLogClient, shard: int) -> list[hakeeper_pb2.ReplicaInfo]:
    return list(client.hakeeper.shard_info(shard, fresh=True).replicas)


@pytest.fixture(scope="module")
def near(client: SyncLogClient) -> hakeeper_pb2.ReplicaInfo:
    """The learner that shard 1 gets in the zone where it has no voter."""
    stores = client.hakeeper.cluster_state().stores
    taken = {one.store_id for one in replicas(client, 1)}
    [spare] = [one for one in stores if one.store_id not in taken]
    info = client.hakeeper.shard_info(1, fresh=True)
    info.policy.learners[spare.zone] = 1
    client.hakeeper.change_shard(1, policy=info.policy, revision=info.revision)

    def found() -> list[hakeeper_pb2.ReplicaInfo]:
        return [one for one in replicas(client, 1) if one.role == "learner" and one.reported]

    wait_until(lambda: bool(found()), 60)
    [learner] = found()
    assert (learner.store_id, learner.zone) == (spare.store_id, spare.zone)
    return learner


def applied(near: hakeeper_pb2.ReplicaInfo) -> tuple[int, int]:
    """The oldest and the newest LSN, as the learner alone knows them; zeros without an answer."""
    request = log_pb2.GetShardStatusRequest(shard_id=1, stale=True)
    try:
        found = call_store(near.client_address, GET_SHARD_STATUS, request, 10, None)
    except LogServiceError:
        return 0, 0
    return found.position.first_lsn, found.position.applied_lsn


def test_reads_near_a_learner_are_as_fresh_as_all_others(
    client: SyncLogClient, cluster: LocalCluster, near: hakeeper_pb2.ReplicaInfo
) -> None:
    with SyncLogClient(cluster.endpoints(), zone=near.zone) as reader:
        for number in range(20):
            lsn = client.shard(1).append(b"%d" % number)
            found = reader.shard(1).read(lsn)
            assert found.records() == [b"%d" % number]
        assert reader.near_addresses(1) == (near.client_address,)
        assert reader.shard(1).status(stale=True).position.applied_lsn == lsn
    assert client.shard(1).redundancy.voters == 3, "a learner counts in no ack"


def test_what_nobody_may_do_with_a_learner_is_refused(
    client: SyncLogClient, ctl: Program, near: hakeeper_pb2.ReplicaInfo
) -> None:
    with pytest.raises(VerbRefused) as refused:
        client.hakeeper.move_replica(1, from_store=near.store_id, to_store="", reason="a test")
    assert "has a learner" in refused.value.metadata["why"]
    leader = client.hakeeper.shard_info(1).leader_address
    request = admin_pb2.TransferLeaderRequest(shard_id=1, store_id=near.store_id)
    with pytest.raises(InvalidArgument):
        call_store(leader, TRANSFER_LEADER, request, 10, None)
    shown = ctl.json("shard", "show", 1)
    assert isinstance(shown, dict)
    assert shown["learners"] == {near.zone: 1}
    assert f"{near.store_id} (learner)" in shown["replicas"]


def test_a_learner_that_was_away_gets_what_is_left_of_a_truncated_log(
    client: SyncLogClient, cluster: LocalCluster, near: hakeeper_pb2.ReplicaInfo
) -> None:
    log = client.shard(1)
    cluster.kill(near.store_id)
    for _ in range(24):
        last = log.append(b"x" * (256 << 10))
    log.truncate(last - 1)
    wait_until(lambda: log.status().position.first_lsn == last, 30)
    cluster.start(near.store_id)
    wait_until(lambda: applied(near) == (last, last), 60)
    again = log.append(b"after")
    wait_until(lambda: applied(near) == (last, again), 30)


def test_without_learners_in_the_policy_the_copy_is_removed(
    ctl: Program, client: SyncLogClient, near: hakeeper_pb2.ReplicaInfo
) -> None:
    ctl.json("shard", "set", 1, "--learners", "0")
    wait_until(lambda: {one.role for one in replicas(client, 1)} == {"voter"}, 60)
    wait_until(lambda: applied(near) == (0, 0), 30)
    made = ctl.json("shard", "create", "--learners", "1", "copied")
    assert isinstance(made, dict)
    wait_until(
        lambda: [one.role for one in replicas(client, made["shard"])].count("learner") == 1, 60
    )
    wrong = ctl("shard", "set", 1, "--learners", "z1=x")
    assert wrong.code == 2
    assert "expected zone=number" in wrong.err
    assert ctl("shard", "set", 1, "--learners", "z1=17").code == 2
