"""`logctl shards` is the one list: its filters, and what they mean while HAKeeper is silent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from logservice_wire.errors import NotReady
from logservice_wire.v1 import admin_pb2, hakeeper_pb2
from msgspec.structs import replace

from logservice.cli.ctl import outside_view, shard_list, truncation_view
from logservice.cli.logctl import logctl
from logservice.cli.shell import exit_codes
from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.cluster.seen import Seen
from tests.documents import picture

Runs = Callable[..., Any]


def _state() -> hakeeper_pb2.ClusterState:
    state = hakeeper_pb2.ClusterState()
    for name in ("s1", "s2"):
        state.stores.add(store_id=name, client_address=f"{name}:1")
    for shard, name, life, team, stores in (
        (0, "hakeeper", "open", "", "s1 s2"),
        (1, "wal-a", "open", "shop", "s1"),
        (2, "wal-b", "closed", "shop", "s2"),
        (3, "attic", "deleting", "attic", "s1 s2"),
    ):
        found = state.shards.add(shard_id=shard, name=name, state=life)
        if team:
            found.labels["team"] = team
        for store in stores.split():
            found.replicas.add(store_id=store, role="voter", reported=True)
    state.shards[1].policy.protected = True
    return state


@pytest.fixture
def run() -> Runs:
    def invoked(*words: str) -> Any:
        arguments = ["--endpoints", "s1:1", "shards", *words]
        return CliRunner().invoke(logctl, arguments, standalone_mode=False)

    return invoked


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_list, "state_of", lambda _: _state())
    monkeypatch.setattr(truncation_view, "state_of", lambda _: _state())


def _ids(done: Any) -> list[int]:
    assert done.exception is None, done.exception
    assert done.return_value == exit_codes.OK
    return [row["shard"] for row in json.loads(done.stdout)]


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ((), [0, 1, 2, 3]),
        (("2",), [2]),
        (("9",), []),
        (("--state", "open"), [0, 1]),
        (("--state", "open", "--state", "closed"), [0, 1, 2]),
        (("--label", "team=shop"), [1, 2]),
        (("--label", "team="), [1, 2, 3]),
        (("--label", "team=shop", "--label", "tier="), []),
        (("--prefix", "wal-"), [1, 2]),
        (("--prefix", "wal-", "--state", "closed", "--label", "team=shop"), [2]),
        (("2", "--state", "open"), []),
    ],
)
def test_all_filters_fit(run: Runs, words: tuple[str, ...], ids: list[int]) -> None:
    assert _ids(run(*words, "-o", "json")) == ids


@pytest.mark.usefixtures("known")
def test_a_row_says_where_a_shard_is_in_its_life(run: Runs) -> None:
    row = json.loads(run("1", "-o", "json").stdout)[0]
    assert (row["state"], row["protected"], row["labels"]) == ("open", True, {"team": "shop"})
    [head, _, line, *_] = run().stdout.splitlines()[1:]
    assert head.split()[:3] == ["shard", "name", "state"]
    assert line.split()[:3] == ["1", "wal-a", "open"]
    assert "labels" not in head
    assert "labels" in run("-o", "wide").stdout


@pytest.mark.usefixtures("known")
def test_truncation_of_those_that_fit(run: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def call(address: str, *_: object) -> admin_pb2.GetTruncationResponse:
        asked.append(address)
        found = admin_pb2.GetTruncationResponse()
        for shard in range(4):
            found.replicas.add(shard_id=shard)
        return found

    monkeypatch.setattr(truncation_view, "call_store", call)
    assert _ids(run("--truncation", "--label", "team=shop", "--state", "closed", "-o", "json")) == [
        2
    ]
    assert asked == ["s2:1"], "the only store with a replica of it"
    asked.clear()
    assert _ids(run("--truncation", "--prefix", "nothing", "-o", "json")) == []
    assert asked == []


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> list[ClusterReport]:
    """HAKeeper is silent; what is remembered is the report in the list."""
    reports = [picture.report(hakeeper=False)]
    silence = NotReady("no leader")
    monkeypatch.setattr(shard_list, "state_of", lambda _: silence)
    monkeypatch.setattr(truncation_view, "state_of", lambda _: silence)
    monkeypatch.setattr(outside_view, "view_from_outside", lambda *_: Seen((), reports[0], "", ()))
    return reports


def test_what_is_remembered_is_filtered(remembered: list[ClusterReport], run: Runs) -> None:
    first, *others = remembered[0].shards
    named = replace(first, name="wal-a", state="closed")
    remembered[0] = replace(remembered[0], shards=(named, *others))
    for words in (("--prefix", "wal-"), ("--state", "closed"), ("0",)):
        done = run(*words, "-o", "json")
        assert done.return_value == exit_codes.UNAVAILABLE, "nobody takes it for HAKeeper's word"
        [row] = json.loads(done.stdout)
        assert (row["name"], row["state"]) == ("wal-a", "closed")
        assert (row["labels"], row["protected"]) == (None, None)


def test_what_nobody_remembers_is_not_guessed(remembered: list[ClusterReport], run: Runs) -> None:
    first, *others = remembered[0].shards
    remembered[0] = replace(remembered[0], shards=(replace(first, name="", state=""), *others))
    for words in (
        ("--label", "team=shop"),
        ("--state", "open"),
        ("--prefix", "log"),
        ("--truncation", "--label", "team=shop"),
    ):
        done = run(*words, "-o", "json")
        assert isinstance(done.exception, NotReady)
        assert f"does not know what {words[-2]} asks of shard 0" in str(done.exception)
        assert done.stdout == ""
    done = run("1", "--state", "open", "-o", "json")
    assert [row["shard"] for row in json.loads(done.stdout)] == [1]


def test_a_store_of_the_first_release_says_no_states(
    run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = _state()
    for one in state.shards:
        one.state = ""
    monkeypatch.setattr(shard_list, "state_of", lambda _: state)
    assert _ids(run("--prefix", "wal", "-o", "json")) == [1, 2]
    assert isinstance(run("--state", "open").exception, NotReady)
