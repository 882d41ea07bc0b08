"""fixtures: a cluster for pytest. Needs pytest, and is the only file that imports it.

In your ``conftest.py``: ``pytest_plugins = ["logservice_client.testing.fixtures"]``. The option
``logservice_stores`` in pytest's configuration says how many stores there are; one by default,
which is ready soonest.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logservice_client.sync import SyncShard
from logservice_client.testing.cluster import Cluster, local_cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """See the header."""
    parser.addini("logservice_stores", "how many stores the fixture's cluster has", default="1")


@pytest.fixture(scope="session")
def logservice_cluster(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster for all tests of the session. What its stores logged is in pytest's temporary
    directory afterwards, like every other file of a test.
    """
    stores = int(pytestconfig.getini("logservice_stores"))
    directory = tmp_path_factory.mktemp("logservice")
    with local_cluster(stores=stores, logs=0, directory=directory) as cluster:
        yield cluster


@pytest.fixture
def logservice_log(logservice_cluster: Cluster) -> Iterator[SyncShard]:
    """A new, empty log for one test; what others wrote is in other logs."""
    with logservice_cluster.client() as client:
        yield client.shard(client.hakeeper.create_shard())
