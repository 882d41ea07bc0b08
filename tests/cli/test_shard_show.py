"""`logctl shard show` asks HAKeeper and the leader at once, and says which of them was silent."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from logservice_client.hakeeper import HakeeperClient
from logservice_client.shard import Shard
from logservice_wire.errors import (
    DeadlineExceeded,
    LogServiceError,
    NotLeader,
    NotReady,
    PermissionDenied,
    ShardDeleted,
    ShardNotFound,
)
from logservice_wire.v1 import admin_pb2, hakeeper_pb2, log_pb2

from logservice.cli.ctl import shard_show
from logservice.cli.logctl import logctl
from logservice.cli.shell import exit_codes


class World:
    """What HAKeeper, the stores' copies, the leader and its store answer about shard 7."""

    def __init__(self) -> None:
        self.info: hakeeper_pb2.ShardInfo | LogServiceError = hakeeper_pb2.ShardInfo(
            shard_id=7,
            name="orders",
            state="open",
            wanted_replicas=3,
            replicas=[
                hakeeper_pb2.ReplicaInfo(store_id="s1", role="voter", leader=True),
                hakeeper_pb2.ReplicaInfo(store_id="s2", role="voter"),
            ],
            leader_store="s1",
            leader_address="s1:1",
            policy=hakeeper_pb2.ShardPolicy(zone_rule="hard", max_bytes_per_s=70_000),
            holds=1,
        )
        self.copy: hakeeper_pb2.ShardInfo | LogServiceError = NotReady("no copy")
        self.told: log_pb2.GetShardStatusResponse | LogServiceError = (
            log_pb2.GetShardStatusResponse(
                position=log_pb2.LogPosition(first_lsn=11, applied_lsn=14, leader_store="s1"),
                truncated_lsn=10,
                writer_holder="db",
                writer_epoch=9,
                holds=[log_pb2.Hold(name="backup", lsn=30, owner="ann")],
                max_bytes_per_s=65_536,
            )
        )
        self.never_told = False
        self.stale: list[bool] = []
        self.asked = asyncio.Event()

    async def shard_info(
        self, _: object, shard: int, *, fresh: bool = False, timeout: float
    ) -> hakeeper_pb2.ShardInfo:
        assert (shard, timeout > 0) == (7, True)
        # Both questions are under way at once: HAKeeper answers when the leader was asked.
        await self.asked.wait()
        found = self.info if fresh else self.copy
        if isinstance(found, LogServiceError):
            raise found
        return found

    async def status(
        self, log: Shard, *, stale: bool = False, timeout: float
    ) -> log_pb2.GetShardStatusResponse:
        assert (log.shard_id, timeout > 0) == (7, True)
        self.stale.append(stale)
        self.asked.set()
        if self.never_told:
            await asyncio.Event().wait()
        if isinstance(self.told, LogServiceError):
            raise self.told
        return self.told

    def store_status(self, address: str, *_: object) -> admin_pb2.StoreStatus:
        assert address == "s1:1"
        found = admin_pb2.StoreStatus()
        leading = found.replicas.add(shard_id=7)
        leading.followers.add(store_id="s2", lag_entries=5, lag_bytes=600, to_go_s=1.26)
        leading.followers.add(store_id="s3", lag_entries=0)
        return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(HakeeperClient, "shard_info", lambda *a, **k: made.shard_info(*a, **k))
    monkeypatch.setattr(Shard, "status", lambda *a, **k: made.status(*a, **k))
    monkeypatch.setattr(shard_show, "call_store", made.store_status)
    return made


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[Any, str, str]]:
    def running(*words: str) -> tuple[Any, str, str]:
        named = ["logctl", "--endpoints", "127.0.0.1:1", "shard", "show", "7", *words]
        monkeypatch.setattr(sys, "argv", named)
        with pytest.raises(SystemExit) as caught:
            exit_codes.run(logctl, "logctl")
        out, err = capsys.readouterr()
        return caught.value.code, out, err

    return running


_OF_HAKEEPER = ("name", "state", "replicas", "labels", "zone_rule", "reported_holds", "revision")
_OF_THE_LEADER = ("first_lsn", "applied_lsn", "truncated_lsn", "writer_holder", "holds", "lineage")


def test_both_are_shown(world: World, run: Callable[..., Any]) -> None:
    code, out, err = run("-o", "json")
    assert (code, err) == (exit_codes.OK, "")
    found = json.loads(out)
    assert (found["name"], found["leader_store"], found["applied_lsn"]) == ("orders", "s1", 14)
    assert (found["holds"], found["hold_owners"]) == ({"backup": 30}, {"backup": "ann"})
    assert found["reported_holds"] == 1, "what HAKeeper knows, which is late"
    assert (found["max_bytes_per_s"], found["enforced_max_bytes_per_s"]) == (70_000, 65_536)
    assert (found["behind_entries"], found["behind_to_go_s"]) == ({"s2": 5}, {"s2": 1.3})
    assert found["end_lsn"] is None
    assert world.stale == [False]


def test_a_table_begins_with_what_people_look_for(world: World, run: Callable[..., Any]) -> None:
    _, out, _ = run()
    names = [re.split(" {2,}", line)[0] for line in out.splitlines()]
    assert names[:4] == ["shard", "name", "state", "leader store"]
    assert names[4:7] == ["first lsn", "applied lsn", "truncated lsn"]
    assert {"writer holder", "holds"} <= set(names[:12])
    assert "end lsn" not in names, "it does not apply"
    _, out, _ = run("-o", "wide")
    assert "end lsn " in out


def test_any_replica_says_the_positions(world: World, run: Callable[..., Any]) -> None:
    code, _, _ = run("--stale")
    assert (code, world.stale) == (exit_codes.OK, [True])


@pytest.mark.parametrize("error", [NotLeader("electing"), DeadlineExceeded("late")])
def test_the_leader_is_silent(
    world: World, run: Callable[..., Any], error: LogServiceError
) -> None:
    world.told = error
    code, out, err = run("-o", "json")
    assert code == exit_codes.UNAVAILABLE
    said = json.loads(err)
    assert said["reason"] == error.reason.value
    assert said["message"] == f"the leader does not say its part: {error.message}"
    found = json.loads(out)
    assert [found[name] for name in _OF_THE_LEADER] == [None] * len(_OF_THE_LEADER)
    assert None not in [found[name] for name in _OF_HAKEEPER]
    world.told = error
    assert run("--stale")[2].startswith("no replica says its part: ")


def test_hakeeper_is_silent(world: World, run: Callable[..., Any]) -> None:
    """Then a store's copy is shown, which has no policy and no labels: none, not wrong ones."""
    assert isinstance(world.info, hakeeper_pb2.ShardInfo)
    copy = hakeeper_pb2.ShardInfo.FromString(world.info.SerializeToString())
    copy.directory_index, copy.directory_age_ms = 88, 7500
    world.info, world.copy = NotReady("no leader"), copy
    code, out, err = run("-o", "json")
    assert code == exit_codes.UNAVAILABLE
    assert json.loads(err)["message"] == "HAKeeper does not answer; as a store knew it 8 s ago"
    found = json.loads(out)
    assert (found["name"], found["state"], found["wanted_replicas"]) == ("orders", "open", 3)
    assert found["replicas"] == ["s1 (voter, leader)", "s2 (voter)"]
    assert [found[name] for name in ("labels", "zone_rule", "reported_holds")] == [None] * 3
    assert found["applied_lsn"] == 14

    world.copy = NotReady("no copy")
    code, out, err = run("-o", "json")
    assert code == exit_codes.UNAVAILABLE
    assert "no store has a copy" in err
    found = json.loads(out)
    assert [found[name] for name in _OF_HAKEEPER] == [None] * len(_OF_HAKEEPER)
    assert found["applied_lsn"] == 14


def test_nobody_answers(world: World, run: Callable[..., Any]) -> None:
    world.info, world.told = NotReady("no leader of shard 0"), NotLeader("none")
    code, out, err = run()
    assert (code, out) == (exit_codes.UNAVAILABLE, "")
    assert "no leader of shard 0" in err


@pytest.mark.parametrize(
    "no", [ShardNotFound("none", shard=7), ShardDeleted("gone"), PermissionDenied("no")]
)
def test_the_answer_is_no(world: World, run: Callable[..., Any], no: LogServiceError) -> None:
    """Whatever a replica that is still there says."""
    world.info = no
    code, out, _ = run()
    assert (code, out) == (exit_codes.REFUSED, "")


def test_a_shard_that_is_deleted_has_no_leader_to_wait_for(
    world: World, run: Callable[..., Any]
) -> None:
    assert isinstance(world.info, hakeeper_pb2.ShardInfo)
    world.info.state, world.info.leader_address, world.never_told = "deleting", "", True
    world.info.held_by.append("s2")
    code, out, err = run("-o", "json")
    assert (code, err) == (exit_codes.OK, "")
    assert json.loads(out)["held_by"] == ["s2"]


def test_who_may_see_the_shard_alone_is_told_all_but_how_far_replicas_are_behind(
    world: World, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's store says that, to whoever may look at the cluster."""

    def denied(*_: object) -> None:
        raise PermissionDenied("no")

    monkeypatch.setattr(shard_show, "call_store", denied)
    code, out, err = run("-o", "json")
    assert (code, err) == (exit_codes.OK, "")
    found = json.loads(out)
    assert found["behind_entries"] is None
    assert (found["applied_lsn"], found["reported_holds"]) == (14, 1)
