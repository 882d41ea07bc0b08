"""What becomes of each fact of shard 0 in a cluster that `restore-all` brings back.

Shard 0 of both clusters is read from their disks, and compared field by field. Every field has its
rule here, so that a new one cannot be forgotten; docs/operations/restore-a-log.md says the same to
people.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from logservice_client import LogClient, SyncLogClient
from logservice_wire.errors import ShardDeleted
from logservice_wire.v1 import hakeeper_pb2

from logservice import bounds
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from logservice.hakeeper.state import ShardState, State
from logservice.ids import HAKEEPER_SHARD
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.nodehost.recover.evidence import read_directory
from tests.cli.test_archive_restore import program
from tests.cli.test_archive_restore_all import cluster, configured
from tests.local_stores import kill_stores

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

Rule = Callable[[Any, Any], bool]
"""Whether the second value is what the rule makes of the first one."""


def kept(old: Any, new: Any) -> bool:
    return bool(old == new)


def above(step: int) -> Rule:
    """It goes on at least `step` above what was given out."""
    return lambda old, new: old + step <= new <= old + 2 * step + bounds.RECOVERED_NUMBER_STEP


def its_own(old: Any, new: Any) -> bool:
    """It is about this cluster's machines, clock or log of shard 0, or about what is under way."""
    return True


def not_known(old: Any, new: Any) -> bool:
    """The page says that it does not come back."""
    return not new


def all_of_it(old: Any, new: Any) -> bool:
    """All that the old cluster had is there."""
    return set(old) <= set(new)


ONE_BY_ONE = above(bounds.RECOVERED_NUMBER_STEP)

RULES: dict[str, Rule] = {
    "phase": kept,
    "phase_tick": its_own,
    "index": its_own,
    "term": its_own,
    "tick": its_own,
    "cluster_id": its_own,
    "default_replicas": kept,
    "store_timeout_ticks": kept,
    "stores": its_own,
    "services": not_known,
    "shards": all_of_it,
    "operators": its_own,
    "next_replica_id": above(bounds.RECOVERED_REPLICA_STEP),
    "next_shard_id": ONE_BY_ONE,
    "next_operator_id": ONE_BY_ONE,
    "next_command_id": ONE_BY_ONE,
    "id_counters": lambda old, new: not new or min(new.values()) > max(old.values()),
    "id_requests": not_known,
    "id_request_order": not_known,
    "flags": its_own,
    "dirty": its_own,
    "access": kept,
    "access_version": ONE_BY_ONE,
    "joining": its_own,
    "admitted": its_own,
    "applicants": its_own,
    "cluster_version": kept,
    "wishes": its_own,
    "next_wish_id": ONE_BY_ONE,
    "repair_off_until": its_own,
    "repair_off_reason": its_own,
    "gone_stores": its_own,
    "deleted": kept,
    "creations": not_known,
    "balance": lambda old, new: (old.replicas, old.leaders) == (new.replicas, new.leaders),
    "feed": lambda old, new: ONE_BY_ONE(old.last, new.last),
    "looks_left": its_own,
    "last_look": its_own,
    "noted": its_own,
    "directory_index": its_own,
    "directory_lost": its_own,
    "stores_index": its_own,
    "limits_version": ONE_BY_ONE,
    "last_wish": its_own,
    "replace_stuck": kept,
    "catch_up_bytes_per_s": kept,
    "sent": not_known,
    "tn_shards": not_known,
    "next_tn_shard": ONE_BY_ONE,
    "recovered_tick": its_own,
    "tail_read_bytes_per_s": kept,
    "catch_up_read_bytes_per_s": kept,
    "denied": kept,
    "quotas": kept,
    "quotas_version": ONE_BY_ONE,
    "ids_from": lambda old, new: new >= old + bounds.RECOVERED_ID_STEP,
}

LOG_RULES: dict[str, Rule] = {
    "shard": kept,
    "name": kept,
    "wanted": kept,
    "created_tick": its_own,
    "initial": its_own,
    "membership": its_own,
    "leader": its_own,
    "leader_term": its_own,
    "started": its_own,
    "abandoned": its_own,
    "lost": its_own,
    "avoid": its_own,
    "disagreement": its_own,
    "behind": its_own,
    "policy": lambda old, new: (
        new
        == msgspec.structs.replace(old, retention_age_s=0, retention_bytes=0, retention_records=0)
    ),
    "leader_wish": not_known,
    "labels": kept,
    "revision": its_own,
    "deleting_tick": kept,
    "led_tick": its_own,
    "directory_index": its_own,
    "unstuck_tick": its_own,
    "witnesses": kept,
    "recovered": not_known,
}


def shard_0(cluster: LocalCluster) -> State:
    """What the one store of the cluster, which does not run, has of shard 0."""
    [data] = [one for one in cluster.directory.rglob("data*") if (one / "IDENTITY").exists()]
    [found] = [
        one
        for one in read_directory(PosixVfs(), str(data), lambda _: None)
        if one.shard == HAKEEPER_SHARD
    ]
    assert found.hakeeper is not None, found.damage
    return found.hakeeper.state


def give_out(client: SyncLogClient) -> dict[str, Any]:
    """Have the cluster give out some of all."""
    keeper = client.hakeeper
    logs = [keeper.create_shard(name=f"log-of-{number}") for number in range(3)]
    return {
        "ids": keeper.allocate_ids(1000, key="tx")[-1],
        "other": keeper.allocate_ids(3, key="rows")[-1],
        "shard": logs[-1],
        "tn": keeper.create_tn_shard(logs[0]),
        "logs": logs,
    }


async def set_quota(endpoints: list[str]) -> None:
    async with LogClient(endpoints) as client:
        await client.hakeeper.set_quota(requests_per_s=50_000, streams_max=99)


@pytest.mark.parametrize(
    ("kind", "rules"), [(State, RULES), (ShardState, LOG_RULES)], ids=["cluster", "log"]
)
def test_every_fact_has_a_rule(kind: type, rules: dict[str, Rule]) -> None:
    assert set(rules) == {one.name for one in msgspec.structs.fields(kind)}


def test_every_fact_comes_back_as_its_rule_says(tmp_path: Path) -> None:
    with cluster(tmp_path / "old") as old:
        with SyncLogClient(old.endpoints()) as client:
            before = give_out(client)
            kept_log, gone, last = before["logs"]
            policy = hakeeper_pb2.ShardPolicy(protected=True, weight=300, retention_age_s=86_400)
            client.hakeeper.change_shard(kept_log, policy=policy, labels={"team": "shop"})
            for log in before["logs"]:
                client.shard(log).append(b"one")
            client.hakeeper.delete_shard(gone, "log-of-1", force=True)
            client.hakeeper.wait_deleted(gone)
            client.hakeeper.change_settings(replica_balance="manual", default_replicas=1)
            asyncio.run(set_quota(old.endpoints()))
        config = configured(tmp_path, old)
        assert program("archive", "run", "-c", config, "--once").returncode == 0
        kill_stores(old)
        was = shard_0(old)
    with cluster(tmp_path / "new") as new:
        config = configured(tmp_path, new)
        for _ in range(2):
            done = program("archive", "restore-all", "-c", config, "--grants", "-o", "json")
            assert done.returncode == exit_codes.OK, done.stdout + done.stderr
        kill_stores(new)
        found = shard_0(new)
        wrong = {
            name: (getattr(was, name), getattr(found, name))
            for name, rule in RULES.items()
            if not rule(getattr(was, name), getattr(found, name))
        }
        assert not wrong
        for number in (kept_log, last):
            pair = was.shards[number], found.shards[number]
            for name, rule in LOG_RULES.items():
                assert rule(*(getattr(one, name) for one in pair)), (number, name, pair)
        new.up(60)
        with SyncLogClient(new.endpoints()) as client:
            with pytest.raises(ShardDeleted):
                client.hakeeper.shard_info(gone, fresh=True)
            again = {
                "ids": client.hakeeper.allocate_ids(1, key="tx")[0],
                "other": client.hakeeper.allocate_ids(1, key="rows")[0],
                "shard": client.hakeeper.create_shard(name="later"),
                "tn": client.hakeeper.create_tn_shard(kept_log),
            }
            for name, value in again.items():
                assert value > before[name], name
            assert again["ids"] > bounds.RECOVERED_ID_STEP
