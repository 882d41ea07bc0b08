"""Tests of the harness: a legal client alone sees no failure, and it notices what goes wrong."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from tests.hostile.victim import (
    STALL_S_MAX,
    Experience,
    LegalClient,
    Peak,
    attacked,
    connections_from,
    descriptors,
    resident_mib,
)

pytestmark = pytest.mark.processes

STRANGER = "127.0.0.8"


def test_a_legal_client_alone(tmp_path: Path) -> None:
    with attacked(tmp_path / "cluster") as cluster:
        pids = [pid for pid in cluster.pids().values() if pid is not None]
        assert len(pids) == 3
        with LegalClient(cluster) as client, Peak(pids[0]) as peak:
            time.sleep(1.0)
        client.seen.check(least=10)
        assert client.seen.p99_s > 0
        assert peak.mib >= resident_mib(pids[0]) * 0.5
        assert descriptors(pids[0]) > 3


def test_connections_are_counted_by_their_address() -> None:
    """Of this process, which is both ends: the accepted ones count, closed ones do not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ours = [socket.create_connection(("127.0.0.1", port), 10, (STRANGER, 0)) for _ in range(3)]
        accepted = [server.accept()[0] for _ in range(3)]
        assert connections_from(os.getpid(), STRANGER) == 3
        accepted.pop().close()
        assert connections_from(os.getpid(), STRANGER) == 2
        assert connections_from(os.getpid(), "127.0.0.19") == 0
        for one in (*ours, *accepted):
            one.close()


def test_what_went_wrong_is_seen() -> None:
    with pytest.raises(AssertionError):
        Experience(failures=["Busy"]).check(0)
    with pytest.raises(AssertionError):
        Experience(latencies=[0.1], stall_s=STALL_S_MAX + 0.1).check()
    with pytest.raises(AssertionError):
        Experience().check()
