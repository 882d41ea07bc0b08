"""The layout of a local cluster, without starting anything; `test_processes.py` runs real ones."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument, LogServiceError, NotReady, ShardNotFound
from logservice_wire.rpcs import CONNECT, GET_CLUSTER_STATE, GET_SHARD_INFO, Rpc
from logservice_wire.v1 import hakeeper_pb2

from logservice import config
from logservice.cli.processes import local_cluster
from logservice.cli.processes.local_cluster import LocalCluster, free_ports
from logservice.config import ConfigError


def test_every_store_gets_a_valid_configuration(tmp_path: Path) -> None:
    cluster = LocalCluster.create(
        tmp_path / "c", stores=3, shards=4, settings={"storage": {"segment_bytes": 4 << 20}}
    )
    parsed = {name: config.load(cluster.process(name).config_path) for name in cluster.stores}
    assert list(parsed) == ["store-1", "store-2", "store-3"]
    for name, one in parsed.items():
        assert one.store.store_id == name
        assert one.store.cluster_id == cluster.cluster_id
        assert one.store.data_directories == [str(tmp_path / "c" / name / "data")]
        assert one.storage.segment_bytes == 4 << 20
        assert one.bootstrap.log_shards == 4
        assert one.bootstrap.replicas == 3
        assert one.bootstrap == parsed["store-1"].bootstrap
    addresses = [a for one in parsed.values() for a in (one.listen.client, one.listen.peer)]
    assert len(set(addresses)) == 6
    assert cluster.endpoints() == [one.listen.client for one in parsed.values()]
    assert cluster.pids() == dict.fromkeys(parsed)


@pytest.mark.parametrize(
    ("known", "state", "lacks", "asked"),
    [
        (None, "running", False, ["CONNECT", "INFO"]),
        (ShardNotFound(), "running", True, ["CONNECT", "INFO", "STATE"]),
        (ShardNotFound(), "bootstrapping", False, ["CONNECT", "INFO", "STATE"]),
        (NotReady(), "running", False, ["CONNECT", "INFO"]),
    ],
)
def test_all_logs_are_listed_only_for_one_that_hakeeper_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
    known: LogServiceError | None,
    state: str,
    lacks: bool,
    asked: list[str],
) -> None:
    """While thousands of logs begin, the store that is asked has other work."""
    names = {CONNECT: "CONNECT", GET_SHARD_INFO: "INFO", GET_CLUSTER_STATE: "STATE"}
    seen: list[str] = []

    def call(_address: str, rpc: Rpc, *_: object) -> hakeeper_pb2.ClusterState:
        seen.append(names[rpc])
        error = ShardNotFound() if rpc is CONNECT else known if rpc is GET_SHARD_INFO else None
        if error is not None:
            raise error
        return hakeeper_pb2.ClusterState(state=state)

    monkeypatch.setattr(local_cluster, "call_store", call)
    monkeypatch.setattr(local_cluster, "call_leader", call)
    assert (local_cluster._missing("here:1", 7, None) == "") is lacks
    assert seen == asked


def test_opened_again_it_is_the_same(tmp_path: Path) -> None:
    created = LocalCluster.create(tmp_path, stores=2)
    assert LocalCluster.open(tmp_path) == created


def test_stores_take_the_zones_in_turn(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, stores=4, zones=3)
    assert LocalCluster.open(tmp_path) == cluster
    zones = [config.load(cluster.process(name).config_path).store.labels for name in cluster.stores]
    assert zones == [{"zone": "z1"}, {"zone": "z2"}, {"zone": "z3"}, {"zone": "z1"}]


def test_a_cluster_without_zones_is_described_as_in_release_0_1_0(tmp_path: Path) -> None:
    LocalCluster.create(tmp_path, stores=2)
    assert "labels" not in (tmp_path / "cluster.json").read_text()


def test_wrong_requests(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no cluster in"):
        LocalCluster.open(tmp_path)
    with pytest.raises(InvalidArgument, match="1 to 9"):
        LocalCluster.create(tmp_path, stores=0)
    with pytest.raises(ConfigError, match=r"storage\.segment_bytes: expected int"):
        LocalCluster.create(tmp_path, settings={"storage": {"segment_bytes": "large"}})
    assert not (tmp_path / "cluster.json").exists()
    cluster = LocalCluster.create(tmp_path)
    with pytest.raises(InvalidArgument, match="holds a cluster already"):
        LocalCluster.create(tmp_path)
    with pytest.raises(InvalidArgument, match="no store 'store-9'"):
        cluster.kill("store-9")
    with pytest.raises(InvalidArgument, match="exists"):
        cluster.add("store-1")


def test_damaged_description(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"stores": 3}')
    with pytest.raises(InvalidArgument, match="cannot be read"):
        LocalCluster.open(tmp_path)


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="cannot create"):
        LocalCluster.create(tmp_path / "file" / "c")


def test_forgotten_store_leaves_nothing(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path)
    cluster.forget("store-2")
    assert not (tmp_path / "store-2").exists()
    cluster.forget("store-3")
    assert list(LocalCluster.open(tmp_path).stores) == ["store-1"]


def test_the_name_of_a_lost_store_is_not_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalCluster, "start", lambda *_: 0)
    LocalCluster.create(tmp_path).forget("store-3")
    assert LocalCluster.open(tmp_path).add() == "store-4"


def test_ports_are_free_and_below_the_outgoing_range() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ports = free_ports(20)
    assert len(set(ports)) == 20
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 <= port < lowest for port in ports)
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    # No process listens on the first ports yet, or at the moment, but they are taken all the same.
    assert not set(ports) & set(free_ports(20))


def test_a_new_store_finds_the_others_when_the_first_ones_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalCluster, "start", lambda *_: 0)
    cluster = LocalCluster.create(tmp_path, stores=1)
    second = cluster.add()
    cluster.forget("store-1")
    third = cluster.add()
    assert (second, third) == ("store-2", "store-3")
    members = config.load(cluster.process(third).config_path).bootstrap.hakeeper_members
    assert [member.store_id for member in members] == [second]
