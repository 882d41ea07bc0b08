"""Every leaf command of logctl answers in both forms: scripts rely on `-o json` everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl import cluster
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
    assert set(option.type.choices) == {"table", "json"}


def test_the_walk_found_the_commands() -> None:
    assert len(LEAVES) >= 17
    assert "logctl hold release" in LEAVES


def test_a_kind_of_event_that_this_program_does_not_know_is_named() -> None:
    """It may be a newer store's; with a slip of the pen nothing would ever be printed."""
    asked = CliRunner().invoke(logctl, ["events", "--kind", "store-donw", "--kind", "leader"])
    assert "this program knows no kind store-donw; it knows store-joined, " in asked.output
    asked = CliRunner().invoke(logctl, ["events", "--kind", "store-down"])
    assert "knows no kind" not in asked.output


@pytest.mark.parametrize("words", [["create"], ["set", "7"]])
def test_a_name_of_digits_would_be_taken_for_an_id(words: list[str]) -> None:
    asked = CliRunner().invoke(logctl, ["shard", *words, "--name", "8"])
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
