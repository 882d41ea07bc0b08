"""Tests of the harness: a legal client alone sees no failure, and it notices what goes wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.hostile.victim import (
    STALL_S_MAX,
    Experience,
    LegalClient,
    Peak,
    attacked,
    descriptors,
    resident_mib,
)

pytestmark = pytest.mark.processes


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


def test_what_went_wrong_is_seen() -> None:
    with pytest.raises(AssertionError):
        Experience(failures=["Busy"]).check(0)
    with pytest.raises(AssertionError):
        Experience(latencies=[0.1], stall_s=STALL_S_MAX + 0.1).check()
    with pytest.raises(AssertionError):
        Experience().check()
