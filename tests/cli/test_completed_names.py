"""Completion offers the names of logs and stores, and is silent when it cannot."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import pytest
from click.shell_completion import ShellComplete

from logservice.bounds import COMPLETION_NAMES_MAX, COMPLETION_TIMEOUT_S
from logservice.cli.ctl import completed_names
from logservice.cli.logctl import logctl
from tests.cli.test_logctl_output import LEAVES
from tests.client.fake_server import FakeCluster
from tests.client.running_fake import running_fake

STORES = ["store-1", "store-2", "store-3"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with running_fake(shards=tuple(range(1, 8))) as cluster:
        cluster.names = {2: "wal-a/b:c", 3: "$(reboot)", 4: "a b", 5: "-x", 6: "77", 7: "*"}
        yield cluster


@pytest.fixture(autouse=True)
def environment(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSERVICE_ENDPOINTS", ",".join(cluster.endpoints))


def offered(*words: str) -> list[str]:
    """What may stand for the last word."""
    shell = ShellComplete(logctl, {}, "logctl", "_LOGCTL_COMPLETE")
    return [one.value for one in shell.get_completions(list(words[:-1]), words[-1])]


def test_the_names_of_logs() -> None:
    """Those that mean themselves on a command line: no word of the shell, no option, no id."""
    assert offered("read", "") == ["shard-1", "wal-a/b:c"]
    assert offered("shard", "show", "wal") == ["wal-a/b:c"]
    assert offered("shard", "show", "$") == offered("shard", "show", "7") == []


def test_the_names_of_stores(cluster: FakeCluster) -> None:
    """Nothing is asked about the words before, which may name logs."""
    for store in cluster.stores:
        store.calls.clear()
    assert offered("stores", "drain", "") == STORES
    assert offered("shard", "move", "no-such-log", "") == STORES
    assert offered("shard", "move", "shard-1", "store-1", "store-3") == ["store-3"]
    assert offered("transfer", "shard-1", "") == STORES
    assert offered("stores", "impact", "store-1", "s") == STORES
    assert {call for store in cluster.stores for call in store.calls} == {"GetClusterState"}


def test_every_log_and_store_of_every_command_is_completed() -> None:
    asks = {
        "SHARD": completed_names.logs,
        "STORE": completed_names.stores,
        "[STORE]": completed_names.stores,
        "STORE...": completed_names.stores,
        "FROM": completed_names.stores,
        "TO": completed_names.stores,
    }
    found = [
        (name, one.metavar, one._custom_shell_complete)
        for name, command in LEAVES.items()
        for one in command.params
        if isinstance(one, click.Argument) and one.metavar in asks
    ]
    assert len(found) > 30
    assert [row for row in found if row[2] is not asks[row[1]]] == []


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_names_are_offered(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    logs = dict.fromkeys(range(1, COMPLETION_NAMES_MAX + 1 + more), cluster.logs[1])
    monkeypatch.setattr(cluster, "logs", logs)
    monkeypatch.setattr(cluster, "names", {})
    assert len(offered("read", "")) == COMPLETION_NAMES_MAX


def test_it_is_silent_when_nobody_can_be_asked(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert offered("--endpoints", "127.0.0.1:1", "read", "") == []
    assert offered("--endpoints", "nonsense", "read", "") == []
    assert offered("--tls-ca", "/no/such/file", "read", "") == []
    monkeypatch.delenv("LOGSERVICE_ENDPOINTS")
    assert offered("read", "") == []
    assert capfd.readouterr() == ("", "")


def test_it_waits_for_nobody(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that takes the call and never answers costs COMPLETION_TIMEOUT_S."""
    for store in cluster.stores:
        monkeypatch.setattr(store, "silent", True)
    begun_s = time.monotonic()
    assert offered("read", "") == []
    assert offered("stores", "drain", "") == []
    each_s = (time.monotonic() - begun_s) / 2
    assert COMPLETION_TIMEOUT_S <= each_s < COMPLETION_TIMEOUT_S + 3, "a call is given 10 s"
