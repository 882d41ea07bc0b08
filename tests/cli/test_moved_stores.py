"""A cluster of real processes comes up although addresses changed while its stores were down.

The addresses that a store learned of the others are wrong then. The configuration has the new
addresses of the moved stores or, when only one moved, that store tells the others where it is now.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from logservice_client import SyncLogClient

from logservice.cli.processes.local_cluster import LocalCluster, free_ports
from tests.local_stores import kill_stores

UP_S = 30.0
"""A hundred times what it takes, because the machine may be busy."""


def moved(cluster: LocalCluster, *names: str, told: tuple[str, ...]) -> LocalCluster:
    """Give the stores `names` other ports, and write them into the configuration of `told`."""
    places = [cluster.stores[name] for name in names]
    old = [address for place in places for address in (place.client, place.peer, place.admin)]
    new = [f"127.0.0.1:{port}" for port in free_ports(len(old))]
    configs = [cluster.process(name).config_path for name in told]
    for path in (cluster.directory / "cluster.json", *configs):
        text = path.read_text()
        for one, other in zip(old, new, strict=True):
            text = text.replace(one, other)
        path.write_text(text)
    return LocalCluster.open(cluster.directory)


def served_everywhere(cluster: LocalCluster) -> None:
    """Check that each store reaches the leader, wherever the leader is."""
    for place in cluster.stores.values():
        with SyncLogClient(place.client) as client:
            assert client.shard(1).append(b"a record", timeout=UP_S) >= 1


@pytest.mark.parametrize(
    "names",
    [("store-1", "store-2", "store-3"), ("store-2", "store-3")],
    ids=lambda names: f"{len(names)}-of-3",
)
def test_moved_stores_find_each_other(tmp_path: Path, names: tuple[str, ...]) -> None:
    cluster = LocalCluster.create(tmp_path / "c", stores=3)
    everybody = tuple(cluster.stores)
    try:
        cluster.up(UP_S)
        cluster.down()
        cluster = moved(cluster, *names, told=everybody)
        cluster.up(UP_S)
        served_everywhere(cluster)
    finally:
        kill_stores(cluster)


def test_a_store_that_moves_alone_tells_the_others(tmp_path: Path) -> None:
    """The configuration of the others has its old address. All stores are restarted afterwards."""
    cluster = LocalCluster.create(tmp_path / "c", stores=3)
    try:
        cluster.up(UP_S)
        cluster.stop("store-3")
        cluster = moved(cluster, "store-3", told=("store-3",))
        cluster.up(UP_S)
        served_everywhere(cluster)
    finally:
        kill_stores(cluster)
