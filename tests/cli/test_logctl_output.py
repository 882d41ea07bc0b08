"""Every leaf command of logctl answers in both forms: scripts rely on `-o json` everywhere."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner
from logservice_wire.v1 import hakeeper_pb2

from logservice import bounds
from logservice.cli.ctl import cluster
from logservice.cli.ctl.client_session import Session
from logservice.cli.logctl import logctl


def leaves(command: click.Command, name: str = "logctl") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for child_name in command.list_commands(context):
        child = command.get_command(context, child_name)
        assert child is not None
        yield from leaves(child, f"{name} {child_name}")


LEAVES = dict(leaves(logctl))


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_every_command_takes_the_form_of_its_output(name: str) -> None:
    (option,) = [item for item in LEAVES[name].params if item.name == "form"]
    assert "-o" in option.opts
    assert isinstance(option.type, click.Choice)
    assert set(option.type.choices) == {"table", "wide", "json"}


def test_the_walk_found_the_commands() -> None:
    assert len(LEAVES) >= 17
    assert "logctl hold release" in LEAVES


def test_a_kind_of_event_that_this_program_does_not_know_is_named() -> None:
    """It may be a newer store's; with a slip of the pen nothing would ever be printed."""
    asked = CliRunner().invoke(logctl, ["events", "--kind", "store-donw", "--kind", "leader"])
    assert "this program knows no kind store-donw; it knows store-joined, " in asked.output
    asked = CliRunner().invoke(logctl, ["events", "--kind", "store-down"])
    assert "knows no kind" not in asked.output


@pytest.mark.parametrize("words", [["create", "8"], ["set", "7", "--name", "8"]])
def test_a_name_of_digits_would_be_taken_for_an_id(words: list[str]) -> None:
    asked = CliRunner().invoke(logctl, ["shard", *words])
    assert asked.exit_code == 2
    assert "digits alone would be taken for an id" in asked.output


def test_the_labels_beside_the_zone_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    store = hakeeper_pb2.StoreInfo(store_id="s1", zone="eu/a")
    store.labels.update({"zone": "a", "region": "eu", "rack": "7", "disk": "nvme"})
    state = hakeeper_pb2.ClusterState(cluster_id="c", stores=[store])
    monkeypatch.setattr(cluster, "state_of", lambda _session: state)
    asked = CliRunner().invoke(logctl, ["--endpoints", "h:1", "stores", "-o", "json"])
    (row,) = json.loads(asked.output)
    assert (row["zone"], row["labels"]) == ("eu/a", {"disk": "nvme", "rack": "7"})


@pytest.mark.parametrize("kind", ["retention-bytes", "retention-records", "max-bytes-per-s"])
def test_a_number_of_a_policy_that_no_message_holds_is_refused(kind: str) -> None:
    asked = CliRunner().invoke(logctl, ["shard", "create", f"--{kind}", str(2**62 + 1)])
    assert (asked.exit_code, "is not in the range" in asked.output) == (2, True)


class _Watched:
    """A client whose cluster has had one event, 65 s ago by HAKeeper's ticks."""

    def __init__(self, event: hakeeper_pb2.ClusterEvent) -> None:
        self.hakeeper = self
        self._event = event

    async def cluster_state(self, timeout: float) -> hakeeper_pb2.ClusterState:
        tick = self._event.tick + 65 * bounds.HAKEEPER_TICKS_PER_S
        return hakeeper_pb2.ClusterState(revision=7, tick=tick)

    async def event_messages(
        self, start: int, **options: object
    ) -> AsyncIterator[hakeeper_pb2.WatchEventsResponse]:
        yield hakeeper_pb2.WatchEventsResponse(events=[self._event], revision=7)


@pytest.mark.parametrize("columns", ["80", "200", None])
def test_an_event_has_the_time_of_day(columns: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    event = hakeeper_pb2.ClusterEvent(
        revision=7, tick=1234, kind="operator-ended", shard_id=2, store="store-2"
    )
    event.text = "19 lead: done, and one more word"
    now_s = 1_700_000_065.0
    monkeypatch.setattr(time, "time", lambda: now_s)
    monkeypatch.setattr(Session, "run", lambda _session, work: asyncio.run(work(_Watched(event))))
    environment = {"COLUMNS": columns}
    words = ["--endpoints", "h:1", "events"]
    said = CliRunner().invoke(logctl, words, env=environment).output.splitlines()
    assert said[0].startswith(
        "    7  11-14 22:13:20Z     123.4 s  operator-ended     shard 2, store"
    )
    assert max(map(len, said)) <= int(columns or 1000)
    assert " ".join(" ".join(said).split()).endswith("store-2: 19 lead: done, and one more word")
    assert (len(said) > 1) is (columns == "80")
    found = json.loads(CliRunner().invoke(logctl, [*words, "-o", "json"]).output)
    assert (found["tick"], found["time"]) == (1234, "2023-11-14T22:13:20Z")


@pytest.mark.parametrize(("store", "noted"), [("s1", False), ("s9", True)])
def test_a_store_admitted_ahead_is_noted(
    store: str, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be admitted before its first start, so it is no error; a slip of the pen is seen."""
    admitted = []

    class Keeper:
        async def admit_store(self, store_id: str, **options: object) -> None:
            admitted.append(store_id)

        async def cluster_state(self, **options: object) -> hakeeper_pb2.ClusterState:
            stores = [hakeeper_pb2.StoreInfo(store_id=name) for name in ("s1", "s2")]
            return hakeeper_pb2.ClusterState(stores=stores)

    client = SimpleNamespace(hakeeper=Keeper())
    monkeypatch.setattr(Session, "run", lambda _session, work: asyncio.run(work(client)))
    said = CliRunner().invoke(logctl, ["--endpoints", "h:1", "admit", store, "-o", "json"])
    assert admitted == [store]
    assert json.loads(said.stdout) == {"store": store, "hakeeper": False}
    assert ("no store called s9 has joined yet" in said.stderr) is noted
    assert ("There are s1, s2" in said.stderr) is noted
