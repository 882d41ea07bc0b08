"""Completion offers the names of what there is, and is silent when it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from unittest.mock import AsyncMock

import click
import pytest
from click.shell_completion import ShellComplete
from logservice_client.hakeeper import HakeeperClient
from logservice_wire.v1 import hakeeper_pb2

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
    """The machine may be busy for all of a second, so completion has more time here."""
    monkeypatch.setenv("LOGSERVICE_ENDPOINTS", ",".join(cluster.endpoints))
    monkeypatch.setattr(completed_names, "COMPLETION_TIMEOUT_S", 60.0)


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


def test_the_holds_of_the_log_on_the_line(cluster: FakeCluster) -> None:
    """By its id or its name. A name that no shell takes as it stands is left out."""
    log = cluster.logs[2]
    for name in ("nightly", "night-2", "a b", "$(reboot)", "-x"):
        log.set_hold(name, 1, 0)
    assert offered("hold", "release", "2", "") == ["night-2", "nightly"]
    assert offered("hold", "renew", "shard-2", "nightl") == ["nightly"]
    assert offered("hold", "set", "--ttl", "60", "shard-2", "n") == ["night-2", "nightly"]
    assert offered("hold", "release", "1", "") == []
    assert offered("hold", "release", "no-such-log", "") == []
    assert offered("hold", "set", "2", "nightly", "") == [], "an LSN is not completed"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("services", "drain"), ["cn-1", "tn-1"]),
        (("services", "undrain"), ["cn-1", "tn-1"]),
        (("services", "replayed"), ["cn-1", "tn-1"]),
        (("services", "order"), ["cn-1", "tn-1"]),
        (("tn", "delete"), ["11", "12"]),
    ],
)
def test_services_and_tn_shards(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], found: list[str]
) -> None:
    state = hakeeper_pb2.ClusterState(
        services=[hakeeper_pb2.ServiceInfo(service_id=name) for name in ("tn-1", "cn-1", "`x`")],
        tn_shards=[hakeeper_pb2.TnShardInfo(tn_shard_id=number) for number in (12, 11)],
    )
    asked = AsyncMock(return_value=state)
    monkeypatch.setattr(HakeeperClient, "cluster_state", asked)
    assert offered(*words, "") == found
    assert offered(*words, found[0]) == [found[0]]


def test_every_log_and_store_of_every_command_is_completed() -> None:
    asks = {
        "SHARD": completed_names.shards,
        "STORE": completed_names.stores,
        "[STORE]": completed_names.stores,
        "STORE...": completed_names.stores,
        "FROM": completed_names.stores,
        "TO": completed_names.stores,
    }
    named = {"service": completed_names.services, "tn_shard": completed_names.tn_shards}
    found = [
        (name, one.metavar, one._custom_shell_complete)
        for name, command in LEAVES.items()
        for one in command.params
        if isinstance(one, click.Argument) and one.metavar in asks
    ]
    assert len(found) > 30
    assert [row for row in found if row[2] is not asks[row[1]]] == []
    others = [
        (name, one.name, one._custom_shell_complete)
        for name, command in LEAVES.items()
        for one in command.params
        if isinstance(one, click.Argument)
        and (one.name in named or (name.startswith("logctl hold ") and one.name == "name"))
    ]
    assert len(others) == 8
    assert [row for row in others if row[2] is not named.get(row[1], completed_names.holds)] == []


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
    monkeypatch.setattr(completed_names, "COMPLETION_TIMEOUT_S", COMPLETION_TIMEOUT_S)
    for store in cluster.stores:
        monkeypatch.setattr(store, "silent", True)
    given: list[float] = []
    timeout = asyncio.timeout

    def noted(seconds: float) -> asyncio.Timeout:
        given.append(seconds)
        return timeout(seconds)

    monkeypatch.setattr(completed_names.asyncio, "timeout", noted)  # type: ignore[attr-defined]
    assert offered("read", "") == []
    assert offered("hold", "release", "shard-2", "") == [], "two questions, one time"
    # The client has time-outs of its own for each attempt.
    assert given.count(COMPLETION_TIMEOUT_S) == 2, "a call is given 10 s"
