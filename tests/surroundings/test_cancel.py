"""A program cancels every task of its loop, the client's own included, while appends are in flight.

Every append ends, with an LSN or with a typed error whose outcome is true, and the client goes on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from logservice_client.testing import Cluster, local_cluster

from tests.surroundings import cancelling_program

LIMIT_S = 300.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with local_cluster(stores=3) as running:
        yield running


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """A Python program, until it ends."""
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_every_append_ends_with_the_truth(cluster: Cluster) -> None:
    done = run("-m", cancelling_program.__name__, ",".join(cluster.endpoints))
    assert done.returncode == 0, done.stderr
    said: dict[str, tuple[str, int]] = json.loads(done.stdout)
    never = [record for record, what in said.items() if what == "never returned"]
    assert never == [], f"{len(never)} of {len(said)} appends never returned"
    assert done.stderr == ""
    with cluster.client() as client:
        there = list(client.shard(1).records(1, until_tail=True))
    times = Counter(record.decode() for _, record in there)
    where = {record.decode(): lsn for lsn, record in there}
    assert max(times.values()) == 1, "none twice"
    for record, (what, lsn) in said.items():
        if what == "acked":
            assert where.get(record) == lsn, record
        if what == "not_applied":
            assert record not in where, record
    later = {record: what for record, (what, _) in said.items() if record.endswith("later")}
    assert set(later.values()) == {"acked"}, "the client goes on"
