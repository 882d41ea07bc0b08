"""A client in a child process works where gRPC can, and is refused in words where it cannot."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from logservice_client.testing import Cluster, local_cluster

from tests.surroundings import forking_program

LIMIT_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with local_cluster() as running:
        yield running


def said_by_children(cluster: Cluster, way: str, when: str) -> list[str]:
    """What each child printed."""
    words = [sys.executable, "-m", forking_program.__name__, way, when, cluster.endpoints[0]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == forking_program.FORKED.get(way, 1), done.stdout
    return lines


@pytest.mark.parametrize("way", ["os.fork", "workers", "fork"])
@pytest.mark.parametrize("when", ["after", "closed"])
def test_after_a_call_a_forked_child_is_told_what_works(
    cluster: Cluster, way: str, when: str
) -> None:
    for said in said_by_children(cluster, way, when):
        assert said.startswith("ClientClosed"), said
        for word in ("spawn", "forkserver", "fork before", "not_applied"):
            assert word in said


@pytest.mark.parametrize("way", ["os.fork", "workers", "fork"])
def test_before_the_first_call_a_fork_is_harmless(cluster: Cluster, way: str) -> None:
    for said in said_by_children(cluster, way, "before"):
        assert said.startswith("appended "), said


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_a_process_that_begins_anew_works_after_a_call(cluster: Cluster, way: str) -> None:
    for said in said_by_children(cluster, way, "after"):
        assert said.startswith("appended "), said
