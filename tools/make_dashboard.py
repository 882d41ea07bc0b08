"""Writes the dashboard, deploy/grafana/logservice.json; `--check` compares the file instead.

A panel is a title, a unit and its queries; this file decides the layout and the rest of Grafana's
schema once. tests/deploy/test_monitoring_files.py compares the names of metrics with the real ones.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

TARGET: Final = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "logservice.json"

_WIDTH: Final = 24
_HEIGHT: Final = 8

_DURABLE_WRITE = "logservice:durable_write_{share}_seconds:rate5m"
_GROUP_BYTES: Final = (
    "histogram_quantile({share}, sum by (instance, le)"
    " (rate(logservice_commit_group_bytes_bucket[5m])))"
)
_P50: Final = (
    "histogram_quantile(0.5, sum by ({by}, le) (rate(logservice_{name}_seconds_bucket[5m])))"
)
_P99: Final = _P50.replace("0.5", "0.99")


class Panel(NamedTuple):
    """What differs from one panel to another. `kind` is Grafana's name of its type."""

    kind: str
    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """Each query with its legend."""


def _number(title: str, unit: str, *queries: tuple[str, str]) -> Panel:
    return Panel("stat", title, unit, queries)


def _graph(title: str, unit: str, *queries: tuple[str, str]) -> Panel:
    return Panel("timeseries", title, unit, queries)


ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Is it well",
        (
            _number("Stores ready", "none", ("sum(logservice_ready)", "")),
            _number(
                "Shards without a leader", "none", ("logservice_cluster_shards_without_leader", "")
            ),
            _number(
                "Shards short of replicas",
                "none",
                ("logservice_cluster_shards_lacking_replicas", ""),
            ),
            _number("Repairs", "none", ("logservice_cluster_operators", "")),
            _number("Flags", "none", ("logservice_cluster_flags", "")),
            _number(
                "First certificate ends in",
                "s",
                ("min(logservice_certificate_expiry_timestamp_seconds) - time()", ""),
            ),
            _graph(
                "Why stores are not ready",
                "none",
                ("logservice_not_ready_reasons > 0", "{{instance}} {{reason}}"),
            ),
            _graph(
                "HAKeeper last answered", "s", ("logservice_heartbeat_age_seconds", "{{instance}}")
            ),
            _graph(
                "Failed calls",
                "reqps",
                ("logservice:rpc_errors:rate5m > 0", "{{method}} {{reason}}"),
            ),
        ),
    ),
    (
        "Load",
        (
            _graph("Records", "wps", ("logservice:records:rate1m", "all shards")),
            _graph(
                "Busiest shards, records",
                "wps",
                ("topk(10, logservice:shard_records:rate1m)", "shard {{shard}}"),
            ),
            _graph(
                "Written to segments",
                "Bps",
                ("rate(logservice_segment_bytes_written_total[1m])", "{{instance}}"),
            ),
            _graph(
                "Entries per durable write",
                "none",
                ("logservice:entries_per_durable_write:rate5m", "{{instance}}"),
            ),
            _graph(
                "Leaders per store", "none", ('logservice_replicas{role="leader"}', "{{instance}}")
            ),
            _graph(
                "Processor", "percentunit", ("rate(process_cpu_seconds_total[1m])", "{{instance}}")
            ),
            _graph("Memory", "bytes", ("process_resident_memory_bytes", "{{instance}}")),
            _graph(
                "Between stores",
                "Bps",
                ("rate(logservice_peer_bytes_sent_total[1m])", "{{instance}}"),
            ),
            _graph(
                "Strangers at the peer port",
                "short",
                ("logservice_peer_strangers", "{{instance}} now"),
                (
                    "rate(logservice_peer_strangers_turned_away_total[1m])",
                    "{{instance}} turned away per second",
                ),
            ),
        ),
    ),
    (
        "Latency",
        (
            _graph(
                "Append",
                "s",
                (_P50.format(name="append", by="instance"), "{{instance}} p50"),
                (_P99.format(name="append", by="instance"), "{{instance}} p99"),
            ),
            _graph(
                "Append, mean by stage",
                "s",
                (
                    "sum by (stage) (rate(logservice_append_stage_seconds_sum[5m]))"
                    " / sum by (stage) (rate(logservice_append_stage_seconds_count[5m]))",
                    "{{stage}}",
                ),
            ),
            _graph(
                "Append, p99 by stage",
                "s",
                (_P99.format(name="append_stage", by="stage"), "{{stage}}"),
            ),
            _graph(
                "Read",
                "s",
                (_P50.format(name="read", by="class"), "{{class}} p50"),
                (_P99.format(name="read", by="class"), "{{class}} p99"),
            ),
            _graph(
                "Slowest methods, p99",
                "s",
                (f"topk(10, {_P99.format(name='rpc', by='method')})", "{{method}}"),
            ),
            _graph(
                "Calls",
                "reqps",
                ("sum by (outcome) (rate(logservice_rpcs_total[5m]))", "{{outcome}}"),
            ),
        ),
    ),
    (
        "Disks",
        (
            _graph(
                "Durable write",
                "s",
                (_DURABLE_WRITE.format(share="p50"), "{{instance}} {{directory}} p50"),
                (_DURABLE_WRITE.format(share="p99"), "{{instance}} {{directory}} p99"),
            ),
            _graph(
                "Size of commit groups (p50, p99)",
                "bytes",
                (_GROUP_BYTES.format(share=0.5), "{{instance}} p50"),
                (_GROUP_BYTES.format(share=0.99), "{{instance}} p99"),
            ),
            _graph("Free", "bytes", ("logservice_disk_free_bytes", "{{instance}} {{directory}}")),
            _graph(
                "Log on disk", "bytes", ("logservice_segment_bytes", "{{instance}} {{directory}}")
            ),
            _graph(
                "Write amplification",
                "none",
                ("logservice:write_amplification:rate1h", "{{instance}}"),
            ),
            _graph(
                "Left of the scrub's pass",
                "s",
                ("logservice:scrub_left_seconds", "{{instance}} {{directory}}"),
            ),
        ),
    ),
    (
        "Shards",
        (
            _graph(
                "Followers furthest behind, entries",
                "none",
                (
                    "topk(10, logservice_shard_follower_lag_entries)",
                    "{{shard}} {{follower}}",
                ),
            ),
            _graph(
                "Terms that changed",
                "none",
                ("changes(logservice_shard_term[5m]) > 0", "shard {{shard}} {{instance}}"),
            ),
            _graph(
                "Most retained records",
                "none",
                ("topk(10, max by (shard) (logservice_shard_retained_records))", "{{shard}}"),
            ),
            _graph(
                "Kept by holds although truncated",
                "none",
                ("max by (shard) (logservice_shard_held_back_records) > 0", "{{shard}}"),
            ),
            _graph(
                "Visits of the truncation worker",
                "none",
                (
                    "sum by (outcome) (rate(logservice_truncation_visits_total[5m]))",
                    "{{outcome}}",
                ),
            ),
            _graph(
                "Damage found, replicas repaired",
                "none",
                ("increase(logservice_scrub_damages_total[1h])", "scrub {{instance}}"),
                (
                    "increase(logservice_compare_wrong_replicas_total[1h])",
                    "differ {{instance}}",
                ),
                ("increase(logservice_repairs_total[1h])", "repaired {{instance}}"),
            ),
        ),
    ),
)


def main(arguments: list[str]) -> int:
    """Write, or compare with ``--check``; returns the exit code."""
    text = json.dumps(dashboard(), indent=1) + "\n"
    if "--check" in arguments:
        same = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
        print("the dashboard is up to date" if same else f"{TARGET} differs: run without --check")
        return 0 if same else 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


def dashboard() -> dict[str, Any]:
    """The whole document."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "id": len(panels) + 1,
                "gridPos": {"x": 0, "y": top, "w": _WIDTH, "h": 1},
            }
        )
        top += 1
        left = 0
        for panel in row:
            width, height = (4, 4) if panel.kind == "stat" else (8, _HEIGHT)
            if left + width > _WIDTH:
                left, top = 0, top + panels[-1]["gridPos"]["h"]
            place = {"x": left, "y": top, "w": width, "h": height}
            panels.append(_panel(len(panels) + 1, panel, place))
            left += width
        top += panels[-1]["gridPos"]["h"]
    return {
        "title": "Log service",
        "uid": "logservice",
        "tags": ["logservice"],
        "timezone": "browser",
        "schemaVersion": 38,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "source",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                    "current": {},
                    "hide": 0,
                }
            ]
        },
        "panels": panels,
    }


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    options: dict[str, Any] = (
        {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
        if panel.kind == "stat"
        else {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        }
    )
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "expr": query,
                "legendFormat": legend,
                "datasource": source,
            }
            for position, (query, legend) in enumerate(panel.queries)
        ],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
