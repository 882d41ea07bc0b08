"""``--timeout`` is one budget: no call of a command is given more than what is left of it.

The cluster of these tests answers every call at the last moment, by a clock of its own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from logservice_client.caller import Caller
from logservice_wire.errors import DeadlineExceeded
from logservice_wire.rpcs import GET_CLUSTER_REPORT
from logservice_wire.v1 import admin_pb2

from logservice import bounds
from logservice.cli.ctl import direct_call, outside_view, time_left
from logservice.cli.ctl.client_session import Session
from logservice.cli.logctl import logctl
from logservice.cli.shell import exit_codes
from logservice.server.monitor.own.status import to_json
from tests.documents import picture
from tests.documents.test_documents import ANSWERS, COMMANDS

TIMEOUT_S = 8.0

PATIENT = {"append", "read", "follow", "digest", "session-forget"}
"""For them it is how long each part may take; their help says so."""


class Late(grpc.RpcError):
    """What gRPC raises when the time of a call is over."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.DEADLINE_EXCEEDED

    def details(self) -> str:
        return "Deadline Exceeded"

    def trailing_metadata(self) -> tuple[()]:
        return ()


class World:
    """Each call takes all the time that it is given, and is answered then, unless it is `lost`.
    `beside`: that call is made at the begin, beside the others.
    """

    def __init__(self, timeout_s: float) -> None:
        self.now_s = self.began_s = 1000.0
        self.ends_s = self.began_s + timeout_s
        self.lost: set[str] = set()
        self.beside = ""
        self.given: list[tuple[str, float, float]] = []
        self._lock = threading.Lock()
        # They are made before a loop runs: some run one themselves.
        self._answers = {name: make() for name, make in ANSWERS.items()}
        self._answers |= {
            "GetShardInfo": picture.shard_info(1),
            "GetTruncation": admin_pb2.GetTruncationResponse(),
            "ListIdentities": admin_pb2.ListIdentitiesResponse(),
        }

    def monotonic(self) -> float:
        return self.now_s

    def _take(self, name: str, given_s: float) -> None:
        with self._lock:
            if name == self.beside:
                self.given.append((name, given_s, self.ends_s - self.began_s))
                return
            self.given.append((name, given_s, self.ends_s - self.now_s))
            self.now_s += given_s

    async def call(
        self, _: Caller, shard: int | None, rpc: Any, request: Any, timeout_s: float, **__: object
    ) -> Any:
        self._take(rpc.name, timeout_s)
        if rpc.name in self.lost:
            raise DeadlineExceeded("nobody answers")
        return self._answer(rpc.name)

    @contextmanager
    def channel(self, *_: object) -> Iterator[Any]:
        def unary_unary(path: str, **_: object) -> Any:
            name = path.rpartition("/")[2]

            def call(request: object, timeout: float) -> Any:
                self._take(name, timeout)
                if name in self.lost:
                    raise Late
                return self._answer(name)

            return call

        yield SimpleNamespace(unary_unary=unary_unary)

    def _answer(self, name: str) -> Any:
        if name == "GetClusterReport" and "GetClusterState" in self.lost:
            return admin_pb2.ClusterReport(json=to_json(picture.report(hakeeper=False)))
        return self._answers[name]

    def check(self) -> None:
        """No call was given more than what was left, or the least time that a call gets."""
        assert self.given
        least_s = bounds.COMMAND_TIME_LEFT_MIN_S
        too_long = [one for one in self.given if one[1] > max(one[2], least_s) + 0.001]
        assert not too_long, f"(call, given, left): {self.given}"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(TIMEOUT_S)
    monkeypatch.setattr(time_left, "time", made)
    monkeypatch.setattr(Caller, "call", lambda *a, **k: made.call(*a, **k))
    monkeypatch.setattr(direct_call, "_channel", made.channel)
    return made


def _run(monkeypatch: pytest.MonkeyPatch, *words: object, timeout_s: float = TIMEOUT_S) -> Any:
    named = ["h:1" if word == "ADDRESS" else str(word) for word in words]
    argv = ["logctl", "--endpoints", "h:1", "--timeout", str(timeout_s), *named, "-o", "json"]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as caught:
        exit_codes.run(logctl, "logctl")
    return caught.value.code


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - PATIENT))
def test_a_command_keeps_to_its_time(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _run(monkeypatch, *COMMANDS[name]) != exit_codes.INTERNAL
    world.check()


@pytest.mark.parametrize("lost", ["GetClusterState", "GetShardInfo", "GetShardStatus"])
@pytest.mark.parametrize(
    "words",
    [
        "stores",
        "shards",
        "shards --truncation",
        "shards --truncation --state open",
        "repairs",
        "doctor",
        "identities",
        "shard show 1",
        "shard show orders",
        "transfer orders",
        "diff FILE",
        "export",
    ],
)
def test_so_does_one_that_does_not_get_all_its_answers(
    words: str, lost: str, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("[logs.orders]\n")
    world.lost = {lost}
    world.beside = "GetShardStatus" if words == "shard show 1" else ""
    named = [str(file) if word == "FILE" else word for word in words.split()]
    assert _run(monkeypatch, *named) != exit_codes.INTERNAL
    world.check()


@pytest.mark.parametrize("timeout_s", [4.0, 10.0])
@pytest.mark.parametrize("words", ["stores", "shards", "doctor"])
def test_a_store_has_the_time_to_report_while_others_stand_still(
    words: str, timeout_s: float, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks HAKeeper, then every store, and waits ADMIN_PEER_WAIT_S for each."""
    world.ends_s = world.began_s + timeout_s
    world.lost = {"GetClusterState"}
    monkeypatch.setattr("logservice.cli.ctl.outside_view._PROBE_S", 0.05)
    _run(monkeypatch, words, timeout_s=timeout_s)
    world.check()
    [given_s, *_] = [given_s for name, given_s, _ in world.given if name == "GetClusterReport"]
    assert given_s > 2 * bounds.ADMIN_PEER_WAIT_S


def test_a_report_does_not_wait_for_a_store_that_stands_still(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other store is silent until the report is asked for; both were asked at once."""
    reported = threading.Event()
    early: list[str] = []

    def call(address: str, rpc: Any, *_: object) -> Any:
        if rpc is GET_CLUSTER_REPORT:
            reported.set()
            return admin_pb2.ClusterReport(json=to_json(picture.report()))
        if address == "h:2" and not reported.wait(20):
            early.append(address)
        return admin_pb2.StoreStatus(store_id="s1" if address == "h:1" else "s2")

    monkeypatch.setattr(outside_view, "call_store", call)
    seen = outside_view.view_from_outside("h:2,h:1", TIMEOUT_S, None)
    assert (early, seen.error) == ([], "")
    assert seen.report is not None
    assert [one.address for one in seen.probes[:2]] == ["h:2", "h:1"]


def test_what_is_left_becomes_less_and_never_nothing(world: World) -> None:
    session = Session("h:1", TIMEOUT_S)
    assert session.timeout_s == TIMEOUT_S
    world.now_s += 3
    assert (session.timeout_s, session.patience_s) == (TIMEOUT_S - 3, TIMEOUT_S)
    world.now_s += 30
    assert session.timeout_s == bounds.COMMAND_TIME_LEFT_MIN_S > 0
