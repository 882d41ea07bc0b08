"""`logctl digest`: what a script may conclude from its exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner
from logservice_client import SyncLogClient
from logservice_wire.block import encode_block
from logservice_wire.errors import LogServiceError

from logservice.cli.ctl import digests
from logservice.cli.logctl import logctl
from logservice.cli.shell import exit_codes
from tests.client.fake_log import FakeLog
from tests.client.fake_server import FakeCluster
from tests.client.running_fake import running_fake


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with running_fake(stores=3) as cluster:
        with SyncLogClient(cluster.endpoints) as client:
            client.shard(1).append([b"a", b"b", b"c"])
        yield cluster


def run(cluster: FakeCluster, *words: str) -> tuple[int, Any]:
    """The exit code and what was printed as JSON."""
    given = ["--endpoints", ",".join(cluster.endpoints), "--timeout", "2s", *words, "-o", "json"]
    runner = CliRunner()
    with runner.isolation() as streams:
        try:
            code = logctl.main(given, prog_name="logctl", standalone_mode=False)
        except LogServiceError as error:
            return exit_codes.exit_code(error), error
        except click.UsageError as error:
            return error.exit_code, error
        return code, json.loads(streams[0].getvalue())


def test_one_digest(cluster: FakeCluster) -> None:
    code, found = run(cluster, "digest", "1", "1", "4")
    assert code == exit_codes.OK
    assert found["digest"].startswith("records-1:")
    assert (found["records"], found["gap_lsns"], found["value_bytes"]) == (3, 0, 3)


def test_all_replicas_are_asked_and_compared(cluster: FakeCluster) -> None:
    code, found = run(cluster, "digest", "1", "1", "4", "--all-replicas")
    assert code == exit_codes.OK
    assert [row["store"] for row in found] == ["store-1", "store-2", "store-3"]
    assert len({row["digest"] for row in found}) == 1
    assert [store.calls.count("Digest") for store in cluster.stores] == [1, 1, 1]
    other = FakeLog(1)
    other.append(encode_block([b"a", b"B", b"c"], 0))
    cluster.stores[1].other_log = other
    code, found = run(cluster, "digest", "1", "1", "4", "--all-replicas")
    assert code == exit_codes.NEGATIVE
    assert len({row["digest"] for row in found}) == 2
    cluster.stores[1].other_log = FakeLog(1)
    code, found = run(cluster, "digest", "1", "1", "4", "--all-replicas")
    assert code == exit_codes.REFUSED, "a replica that cannot say is not one that agrees"
    assert [row["digest"] is None for row in found] == [False, True, False]
    assert "BEYOND_TAIL" in found[1]["error"]


def test_a_replica_without_an_address_is_not_asked_elsewhere(cluster: FakeCluster) -> None:
    lost = cluster.stores[1].address
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster.stores[1], "address", "")
        words = ("digest", "1", "1", "4", "--all-replicas")
        given = [store.address or lost for store in cluster.stores]
        patch.setattr(FakeCluster, "endpoints", given)
        code, found = run(cluster, *words)
    assert code == exit_codes.UNAVAILABLE
    assert [row["digest"] is None for row in found] == [False, True, False]


def test_a_range_that_is_none(cluster: FakeCluster) -> None:
    assert run(cluster, "digest", "1", "4", "4")[0] == exit_codes.USAGE
    assert run(cluster, "digest", "1", "2", "9")[0] == exit_codes.REFUSED


def test_progress_is_said(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(digests, "_SAY_S", 0.0)
    progress = digests._Progress(11, 111)
    progress.told(61, "store-1: ")
    assert capsys.readouterr().err == "store-1: up to LSN 61 of 111, 50 %\n"
