"""Statuses and views for the tests beside this file."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from logservice.hakeeper.answers.views import (
    ClusterView,
    DirectoryView,
    OperatorView,
    ReplicaView,
    ShardView,
    StoreView,
)
from logservice.histogram import Histogram
from logservice.ids import Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId
from logservice.logdb.space.disk_space import DiskState
from logservice.logdb.space.oldest_pins import OldestPin
from logservice.logdb.space.stats import LogDbStats
from logservice.nodehost.assembly.store_parts import INTEGRITY
from logservice.nodehost.integrity.scrub import ScrubPass
from logservice.nodehost.replica.append_stages import STAGES
from logservice.nodehost.transport.link.stats import TransportStats
from logservice.server.monitor.own.reporter import buckets, figures
from logservice.server.monitor.own.status import (
    Buckets,
    DirectoryStatus,
    EventLine,
    FollowerStatus,
    OldestPinStatus,
    Reason,
    ReplicaStatus,
    StoreStatus,
)


def logdb_stats() -> LogDbStats:
    """Figures in which every field is as far from its neighbours' values as it can be."""
    values: dict[str, Any] = {
        field.name: number for number, field in enumerate(fields(LogDbStats), 1000)
    }
    disk = DiskState(1 << 40, full=False, closed=False, room=9)
    histograms = {
        "durable_write_us": Histogram((100, 1000), (5, 2, 1), 3_000),
        "group_bytes": Histogram((512, 4096), (1, 0, 3), 60_000),
    }
    more = {"disk": disk, "oldest_reason": "mostly live", **histograms}
    more["oldest_pins"] = (OldestPin(4, 40, 900), OldestPin(2, 21, 500))
    more["key_bytes"] = (("k1", 700), ("plain", 300))
    return LogDbStats(**(values | more))


def directory(**changes: Any) -> DirectoryStatus:
    stats = logdb_stats()
    values: dict[str, Any] = {
        "path": "/d",
        "incarnation": 5,
        "logdb": figures(stats),
        "oldest_reason": stats.oldest_reason,
        "oldest_pins": tuple(
            OldestPinStatus(shard=pin.shard, replica=pin.replica, live_bytes=pin.live_bytes)
            for pin in stats.oldest_pins
        ),
        "key_bytes": dict(stats.key_bytes),
        "durable_write_seconds": buckets(stats.durable_write_us, 1e6),
        "group_bytes": buckets(stats.group_bytes, 1),
        "scrub": figures(ScrubPass(4096.0, 300, 100, 7.5)),
    }
    return DirectoryStatus(**(values | changes))


def replica(shard: int = 1, role: str = "leader", **changes: Any) -> ReplicaStatus:
    values: dict[str, Any] = {
        "shard": shard,
        "replica": 10 * shard,
        "role": role,
        "term": 3,
        "leader": 10 * shard,
        "leader_store": "s1",
        "membership_epoch": 2,
        "voters": 3,
        "first_index": 5,
        "last_index": 90,
        "committed_index": 89,
        "applied_index": 88,
        "first_lsn": 11,
        "applied_lsn": 110,
        "truncated_lsn": 10,
        "requested_truncation_lsn": 40,
        "holds": 1,
        "hold_lsn": 11,
        "hold_name": "backup",
        "sessions": 2,
        "exports": 4,
        "followers": (
            FollowerStatus(replica=10 * shard + 1, store="s2", lag_entries=0, active=True),
            FollowerStatus(replica=10 * shard + 2, store="s3", lag_entries=7, active=False),
        ),
    }
    return ReplicaStatus(**(values | changes))


def status(store: str = "s1", **changes: Any) -> StoreStatus:
    values: dict[str, Any] = {
        "store": store,
        "cluster": "c",
        "version": "0.1.0",
        "phase": "serving",
        "uptime_s": 5.0,
        "heartbeat_age_s": 0.5,
        "logdb": figures(logdb_stats()),
        "directories": (directory(),),
        "transport": figures(TransportStats(messages_sent=7, round_trip_us=1500)),
        "truncation": {"installed": 3},
        "integrity": dict.fromkeys(INTEGRITY, 4),
        "messages_refused": {"stranger": 3},
        "reads": {"tail/bytes": 7, "catch_up/refused": 3},
        "call_lines": {"waiting": 3.0, "waited_seconds": 1.5, "refused/calls": 2.0},
        "memory": {"unwritten/used": 5, "unwritten/limit": 9, "unwritten/refused": 2},
        "requests_refused": {"shard.append/member": 6},
        "compare_shards": 12,
        "compare_shards_done": 5,
        "rpc_errors": {"Append/FENCED": 2},
        "append_seconds": Buckets(bounds=(0.001, 0.01), counts=(4, 2, 1), total=6.5),
        "append_stage_seconds": {
            stage: Buckets(bounds=(0.001, 0.01), counts=(7 - place, place, 0), total=place)
            for place, stage in enumerate(STAGES, 1)
        },
        "read_seconds": {
            "tail": Buckets(bounds=(0.001, 0.01), counts=(5, 0, 0), total=0.5),
            "catch_up": Buckets(bounds=(0.001, 0.01), counts=(1, 2, 3), total=9.0),
        },
        "rpc_seconds": {"Truncate": Buckets(bounds=(0.001, 0.01), counts=(0, 3, 0), total=0.25)},
        "rpcs": {"Append/OK": 9, "Append/FENCED": 2},
        "certificates": {"peer": 2e9},
        "tokens": {
            "token_keys": 2,
            "token_keys_age_seconds": 7.0,
            "token_key_failures": 1,
            "tokens_checked": 5,
            "tokens_refused": 3,
        },
        "replicas": (replica(),),
        "events": (EventLine(number=1, time_us=5, level="info", event="x", message="m"),),
        "reasons": (),
    }
    return StoreStatus(**(values | changes))


def not_ready(code: str, shard: int = -1) -> Reason:
    return Reason(code=code, detail="why", shard=shard)


def member(number: int, store: str, **changes: Any) -> ReplicaView:
    values: dict[str, Any] = {
        "replica_id": ReplicaId(number),
        "store_id": StoreId(store),
        "incarnation": Incarnation(1),
        "role": "voter",
        "reported": True,
        "leader": False,
        "health": "alive",
        "applied_index": Index(50),
        "first_lsn": Lsn(11),
        "applied_lsn": Lsn(100),
    }
    return ReplicaView(**(values | changes))


def shard_view(shard: int = 1) -> ShardView:
    return ShardView(
        ShardId(shard),
        f"log-{shard}",
        3,
        (member(10, "s1", leader=True), member(11, "s2"), member(12, "s3")),
        "s1",
        "h1:1",
        3,
        Index(2),
        False,
        ("h1:1",),
    )


def view(*shards: ShardView) -> ClusterView:
    stores = tuple(
        StoreView(
            StoreId(f"s{number}"),
            f"h{number}",
            f"h{number}:2",
            f"h{number}:1",
            number == 3,
            number,
            1,
            (DirectoryView("/d", Incarnation(number), 100, 200, 1, ""),),
        )
        for number in (1, 2, 3)
    )
    operator = OperatorView(
        7, ShardId(1), "replace", "add learner", 40, ReplicaId(13), StoreId("s4"), ""
    )
    return ClusterView("c", "running", 99, 4, stores, shards, (operator,), ("look here",))
