"""The series, their names and their bounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from prometheus_client.core import Metric

from logservice import bounds
from logservice.nodehost.assembly.store_parts import INTEGRITY
from logservice.nodehost.integrity.scrub import ScrubPass
from logservice.server.monitor.cluster.rows import HAKeeperAnswer, StoreAnswer, build
from logservice.server.monitor.own.reporter import figures
from logservice.server.monitor.own.status import DirectoryStatus, FollowerStatus, ReplicaStatus
from logservice.server.monitor.port.metrics import (
    _INTEGRITY,
    _LOGDB,
    _SCRUB,
    cluster_families,
    log_family,
    replica_families,
    store_families,
)
from tests.server.monitor.samples import directory, logdb_stats, replica, shard_view, status, view

PAGE = Path(__file__).parents[3] / "docs" / "operations" / "metrics.md"


def families() -> list[Metric]:
    found = status()
    report = build(HAKeeperAnswer(view(shard_view()), 0.0, ""), {"s1": StoreAnswer(found)}, found)
    return [
        log_family(),
        *store_families(found),
        *replica_families(found.replicas),
        *cluster_families(report),
    ]


def value(name: str, **labels: str) -> float:
    for family in families():
        for sample in family.samples:
            if sample.name == f"logservice_{name}" and sample.labels == labels:
                return sample.value
    raise AssertionError(f"no {name} {labels}")


def names() -> set[str]:
    return {sample.name for family in families() for sample in family.samples} | {
        "logservice_loop_responsive"
    }


def test_the_page_lists_every_name() -> None:
    listed = set(re.findall(r"^\| `(logservice_[a-z0-9_]+)`", PAGE.read_text(), re.MULTILINE))
    assert listed == names()


def test_every_figure_of_log_storage_has_a_name_of_its_own() -> None:
    assert set(figures(logdb_stats())) >= set(_LOGDB)


def test_every_count_of_scrub_comparison_and_repair_has_a_name_of_its_own() -> None:
    assert set(INTEGRITY) == set(_INTEGRITY)
    assert value("compare_wrong_replicas_total") == value("repairs_total") == 4


def test_every_figure_of_a_pass_has_a_name() -> None:
    assert {field.name for field in fields(ScrubPass)} == set(_SCRUB)


def test_values() -> None:
    assert value("ready") == 1
    assert value("peer_messages_sent_total") == 7
    assert value("peer_round_trip_seconds") == 0.0015
    assert value("rpc_errors_total", method="Append", reason="FENCED") == 2
    assert value("rpcs_total", method="Append", outcome="OK") == 9
    assert value("rpcs_total", method="Append", outcome="FENCED") == 2
    assert value("messages_refused_total", reason="stranger") == 3
    assert value("read_bytes_total", **{"class": "tail"}) == 7
    assert value("reads_refused_total", **{"class": "catch_up"}) == 3
    assert value("reads_waiting", **{"class": "catch_up"}) == 0
    assert value("call_line_calls") == 3
    assert value("call_line_waited_seconds_total") == 1.5
    assert value("call_line_refused_total", reason="calls") == 2
    assert value("memory_part_bytes", part="unwritten") == 5
    assert value("memory_part_limit_bytes", part="unwritten") == 9
    assert value("memory_part_refused_total", part="unwritten") == 2
    assert value("peer_requests_refused_total", method="shard.append", rule="member") == 6
    assert value("shard_retained_records", shard="1") == 100
    assert value("shard_held_back_records", shard="1") == 30
    assert value("shard_hold_age_records", shard="1") == 100
    assert value("shard_follower_lag_entries", shard="1", follower="s3") == 7
    assert value("cluster_stores", state="expired") == 1
    assert value("cluster_oldest_operator_ticks") == 40
    assert value("oldest_segment_kept", directory="0", reason="mostly live") == 1
    assert value("oldest_segment_pinned_bytes", directory="0", shard="4", replica="40") == 900
    assert value("segment_key_bytes", directory="0", key="k1") == 700
    assert value("segment_key_bytes", directory="0", key="plain") == 300
    assert value("oldest_segment_pinned_bytes", directory="0", shard="2", replica="21") == 500
    assert value("scrub_rate_bytes_per_second", directory="0") == 4096
    assert value("scrub_pass_bytes", directory="0") == 300
    assert value("scrub_pass_done_bytes", directory="0") == 100
    assert value("scrub_last_pass_seconds", directory="0") == 7.5
    assert value("compare_pass_shards") == 12
    assert value("compare_pass_shards_done") == 5


def test_histograms() -> None:
    """Buckets add up, bounds are in base units, and the last one holds everything."""
    assert value("durable_write_seconds_bucket", directory="0", le="0.0001") == 5
    assert value("durable_write_seconds_bucket", directory="0", le="0.001") == 7
    assert value("durable_write_seconds_bucket", directory="0", le="+Inf") == 8
    assert value("durable_write_seconds_count", directory="0") == 8
    assert value("durable_write_seconds_sum", directory="0") == 0.003
    assert value("commit_group_bytes_bucket", directory="0", le="512.0") == 1
    assert value("commit_group_bytes_bucket", directory="0", le="+Inf") == 4
    assert value("commit_group_bytes_sum", directory="0") == 60_000


def test_latencies() -> None:
    assert value("append_seconds_bucket", le="0.01") == 6
    assert value("append_seconds_count") == 7
    assert value("append_seconds_sum") == 6.5
    assert value("append_stage_seconds_bucket", stage="replicate", le="0.001") == 5
    assert value("append_stage_seconds_sum", stage="apply") == 3
    assert value("read_seconds_count", **{"class": "catch_up"}) == 6
    assert value("rpc_seconds_count", method="Truncate") == 3


def test_a_directory_that_failed_has_no_histogram() -> None:
    failed = DirectoryStatus(path="/lost", failed="EIO")
    found = [
        sample.labels["directory"]
        for family in store_families(status(directories=(failed, directory())))
        for sample in family.samples
        if sample.name == "logservice_durable_write_seconds_count"
    ]
    assert found == ["1"]


def test_no_name_twice() -> None:
    found = [family.name for family in families()]
    assert len(found) == len(set(found))


def well(number: int, **changes: Any) -> ReplicaStatus:
    """A replica that nothing is wrong with, but for `changes`."""
    sound = {"requested_truncation_lsn": 0, "truncated_lsn": 0, "stalled": "", "followers": ()}
    return structs.replace(replica(number), **(sound | changes))


def shards_with_series(many: Sequence[ReplicaStatus]) -> list[int]:
    by_name = {family.name: family for family in replica_families(many)}
    found = [int(sample.labels["shard"]) for sample in by_name["logservice_shard_term"].samples]
    left = by_name["logservice_shards_without_series"].samples[0].value
    assert left == len(many) - len(found)
    return found


def test_series_of_shards_are_bounded() -> None:
    most = bounds.METRIC_SHARDS_MAX
    assert len(shards_with_series([well(number) for number in range(1, most + 1)])) == most
    assert shards_with_series([well(number) for number in range(1, most + 2)]) == []
    halted = [well(number, halted="why") for number in range(1, most + 6)]
    assert shards_with_series(halted) == list(range(1, most + 1))


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"halted": "damaged"}, True),
        ({"stuck": True}, True),
        ({"stalled": "no_export"}, True),
        ({"requested_truncation_lsn": 9}, True),
        ({"followers": (FollowerStatus(lag_entries=bounds.METRIC_LAG_ENTRIES + 1),)}, True),
        ({"followers": (FollowerStatus(lag_entries=bounds.METRIC_LAG_ENTRIES),)}, False),
        ({"leader": 0}, False),
    ],
    ids=str,
)
def test_on_a_large_store_only_what_is_wrong_has_series(
    changes: dict[str, Any], wrong: bool
) -> None:
    many = [well(number) for number in range(1, bounds.METRIC_SHARDS_MAX + 9)]
    many[6] = well(7, **changes)
    assert shards_with_series(many) == ([7] if wrong else [])


def test_quantiles_are_of_all_replicas() -> None:
    many = [well(number, stalled_bytes=number) for number in range(1, 1001)]
    by_name = {family.name: family for family in replica_families(many)}
    found = by_name["logservice_replicas_stalled_bytes"].samples
    assert {sample.labels["quantile"]: sample.value for sample in found} == {
        "0.5": 500,
        "0.9": 900,
        "0.99": 990,
        "1.0": 1000,
    }
    nobody = {family.name: family for family in replica_families([])}
    assert [one.value for one in nobody["logservice_replicas_stalled_bytes"].samples] == [0] * 4
