"""Tests of the harness: a legal client alone sees no failure, and it notices what goes wrong."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
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
    lacked_s,
    resident_mib,
)
from tests.waiting import wait_until

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


def test_of_a_pause_only_that_counts_in_which_the_stores_had_their_cores() -> None:
    """A pause of 5.92 s failed on a slow machine: the stores had run for a fraction of it."""
    seen = Experience()
    seen.acked(5.92, pause_s=5.92, lacked_s=5.0)
    seen.check()
    seen.acked(5.92, pause_s=5.92, lacked_s=0.1)
    with pytest.raises(AssertionError, match=r"no ack for 5\.82 s, beside 0\.10 s of waiting"):
        seen.check()


def test_a_store_that_stands_still_is_seen(tmp_path: Path) -> None:
    """It waits for no core meanwhile: what a pause of it is made of is its own."""
    with attacked(tmp_path / "cluster", stores=1) as cluster:
        pid = next(iter(cluster.pids().values()))
        assert pid is not None
        with LegalClient(cluster) as client:
            wait_until(lambda: client.seen.latencies)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STALL_S_MAX + 0.5)
            os.kill(pid, signal.SIGCONT)
            wait_until(lambda: client.seen.stall_s > STALL_S_MAX)
    assert client.seen.failures == []


def test_a_process_that_wants_a_core_and_has_none_is_seen() -> None:
    """Two processes that never rest, on one core: each waits for about as long as it runs."""
    command = [sys.executable, "-c", "while True: pass"]
    core = min(os.sched_getaffinity(0))
    both = [subprocess.Popen(command) for _ in range(2)]
    try:
        for one in both:
            os.sched_setaffinity(one.pid, {core})
        threads = [(one.pid, one.pid) for one in both]
        begun_s = lacked_s(threads)
        wait_until(lambda: lacked_s(threads) - begun_s > 0.5)
    finally:
        for one in both:
            one.kill()
            one.wait()
    assert lacked_s(threads) == 0.0
