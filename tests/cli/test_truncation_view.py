"""`logctl shards --truncation` asks each store for its own replicas, and says who is silent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner
from logservice_wire.errors import NotReady
from logservice_wire.v1 import admin_pb2, hakeeper_pb2

from logservice.cli.ctl import truncation_view
from logservice.cli.logctl import logctl
from logservice.cli.shell import exit_codes

PAGE = 4


class Stores:
    """Three stores, each with a replica of each shard; `s2` is silent when asked to be."""

    def __init__(self) -> None:
        self.shards = list(range(10))
        self.silent: set[str] = set()
        self.asked: list[tuple[str, int, int, bool]] = []
        self.stuck = {3, 7}

    def state(self, _: object) -> hakeeper_pb2.ClusterState:
        def replicas(shard: int) -> list[hakeeper_pb2.ClusterState.Replica]:
            kind = type(hakeeper_pb2.ClusterState().shards.add().replicas.add())
            names = ("s1", "s2") if shard == 5 else ("s1", "s2", "s3")
            return [kind(store_id=name) for name in names]

        state = hakeeper_pb2.ClusterState()
        for name in ("s1", "s2", "s3"):
            state.stores.add(store_id=name, client_address=f"{name}:1")
        for shard in self.shards:
            state.shards.add(shard_id=shard).replicas.extend(replicas(shard))
        return state

    def call(self, address: str, _rpc: object, request: Any, *_: object) -> Any:
        name = address.partition(":")[0]
        self.asked.append((name, request.from_shard, request.limit, request.stuck))
        if name in self.silent:
            raise NotReady("it does not answer")
        limit = min(request.limit or PAGE, PAGE)
        found = [
            one
            for one in self.shards
            if one >= request.from_shard and (not request.stuck or one in self.stuck)
        ]
        return admin_pb2.GetTruncationResponse(
            store_id=name,
            replicas=[
                admin_pb2.TruncationStanding(
                    shard_id=one,
                    truncated_lsn=5,
                    requested_lsn=9 if one in self.stuck else 5,
                    hold_name="backup",
                    hold_owner="ann",
                    decision="installed",
                    decided_ms_ago=1500,
                )
                for one in found[:limit]
            ],
            next_shard=found[limit] if len(found) > limit else 0,
        )


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Stores:
    made = Stores()
    monkeypatch.setattr(truncation_view, "state_of", made.state)
    monkeypatch.setattr(truncation_view, "call_store", made.call)
    return made


@pytest.fixture
def run() -> Callable[..., Any]:
    def invoked(*words: str) -> Any:
        arguments = ["--endpoints", "s1:1", "shards", *words, "-o", "json"]
        # `exit_codes.run` makes the exit code of what the command returns.
        return CliRunner().invoke(logctl, arguments, standalone_mode=False)

    return invoked


def test_all_pages_of_all_stores(stores: Stores, run: Callable[..., Any]) -> None:
    done = run("--truncation")
    assert done.return_value == exit_codes.OK
    rows = json.loads(done.stdout)
    assert [(row["shard"], row["store"]) for row in rows] == [
        (shard, store) for shard in range(10) for store in ("s1", "s2", "s3")
    ]
    by_shard = {row["shard"]: row for row in rows}
    assert (by_shard[3]["held_by"], by_shard[3]["hold_owner"]) == ("backup", "ann")
    # A hold that keeps nothing back is not what holds the space.
    assert (by_shard[4]["held_by"], by_shard[4]["decided_s_ago"]) == (None, 1.5)


def test_one_shard_is_asked_of_its_members_only(stores: Stores, run: Callable[..., Any]) -> None:
    rows = json.loads(run("--truncation", "5").stdout)
    assert [(row["shard"], row["store"]) for row in rows] == [(5, "s1"), (5, "s2")]
    assert sorted(stores.asked) == [("s1", 5, 1, False), ("s2", 5, 1, False)]
    # The page of a store that has no replica begins with the next shard.
    stores.shards.remove(6)
    assert json.loads(run("--truncation", "6").stdout) == []


def test_only_what_is_stuck(stores: Stores, run: Callable[..., Any]) -> None:
    rows = json.loads(run("--truncation", "--stuck").stdout)
    assert {row["shard"] for row in rows} == {3, 7}
    assert isinstance(run("--stuck").exception, click.UsageError)


def test_a_silent_store_is_named_and_the_others_are_shown(
    stores: Stores, run: Callable[..., Any]
) -> None:
    stores.silent = {"s2"}
    done = run("--truncation")
    assert done.return_value == exit_codes.UNAVAILABLE
    assert "s2 does not answer" in done.stderr
    assert {row["store"] for row in json.loads(done.stdout)} == {"s1", "s3"}
