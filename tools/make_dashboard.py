"""Writes the dashboard, deploy/grafana/logservice.json; `--check` compares the file instead.

A panel is a title, a unit, what it says, and its queries; this file decides the layout and the rest
of Grafana's schema once. tests/deploy/test_monitoring_files.py compares the names of metrics with
the real ones; `make test-prometheus` asks a real Prometheus the queries, and compares the document
with Grafana's own types.

Theory of operation. There are three variables: the Prometheus (`source`), the clusters and the
stores. Stores are the values of the label `instance` among those that say they are of a chosen
cluster (`logservice_store_info` has its name). So what is chosen reaches every panel without any
label of the scraper's: a figure of a store is asked for with `instance=~"$store"`, which
`_of_chosen_stores` adds. A figure of a cluster comes from whichever store leads shard 0, chosen or
not; it is asked for by `_of_chosen_clusters`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

TARGET: Final = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "logservice.json"

_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
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
_SHARD_RECORDS: Final = "max by (cluster, shard) (rate(logservice_shard_applied_lsn[1m]))"
"""Each replica applies every record; the same shard's id may exist in several clusters."""

_METRIC: Final = re.compile(r"\b((?:logservice[_:]|process_)[a-z0-9_:]+)(?:\{([^}]*)\})?")


class Panel(NamedTuple):
    """What differs from one panel to another. `kind` is Grafana's name of its type."""

    kind: str
    title: str
    unit: str
    says: str
    """The text behind the panel's i."""
    queries: tuple[tuple[str, str], ...]
    """Each query with its legend."""


def _of_chosen_stores(query: str) -> str:
    """`query` with the chosen stores in every selector."""

    def chosen(match: re.Match[str]) -> str:
        labels = [one for one in (match[2], 'instance=~"$store"') if one]
        return f"{match[1]}{{{', '.join(labels)}}}"

    return _METRIC.sub(chosen, query)


def _of_chosen_clusters(name: str) -> str:
    """The figure `name` that one store tells for its cluster, over the chosen clusters.

    For two minutes after an election two stores have told it; the larger figure counts, as in the
    alerts.
    """
    chosen = 'logservice_store_info{cluster=~"$cluster"}'
    return f"sum(max by (cluster) (last_over_time({name}[2m]) and on (instance) {chosen}))"


def _number(title: str, unit: str, says: str, query: str) -> Panel:
    return Panel("stat", title, unit, says, ((_of_chosen_stores(query), ""),))


def _cluster_number(title: str, says: str, name: str) -> Panel:
    return Panel("stat", title, "none", says, ((_of_chosen_clusters(name), ""),))


def _graph(title: str, unit: str, says: str, *queries: tuple[str, str]) -> Panel:
    asked = tuple((_of_chosen_stores(query), legend) for query, legend in queries)
    return Panel("timeseries", title, unit, says, asked)


ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Is it well",
        (
            _number(
                "Stores ready",
                "none",
                "Chosen stores to which clients should be sent (GET /readyz).",
                "sum(logservice_ready)",
            ),
            _cluster_number(
                "Shards without a leader",
                "Of the chosen clusters, whichever stores are chosen. They take no appends.",
                "logservice_cluster_shards_without_leader",
            ),
            _cluster_number(
                "Shards short of replicas",
                "Of the chosen clusters. One more failure may stop them.",
                "logservice_cluster_shards_lacking_replicas",
            ),
            _cluster_number(
                "Repairs",
                "Under way in the chosen clusters; logctl operators shows their steps.",
                "logservice_cluster_operators",
            ),
            _cluster_number(
                "Flags",
                "What HAKeeper must not decide by itself; logctl repairs lists it.",
                "logservice_cluster_flags",
            ),
            _number(
                "First certificate ends in",
                "s",
                "Of the certificates that the chosen stores use. Empty without TLS.",
                "min(logservice_certificate_expiry_timestamp_seconds) - time()",
            ),
            _graph(
                "Why stores are not ready",
                "none",
                "Reasons by code, with how many replicas each concerns. Empty is well.",
                ("logservice_not_ready_reasons > 0", "{{instance}} {{reason}}"),
            ),
            _graph(
                "HAKeeper last answered",
                "s",
                "Age of the newest answer to a heartbeat; -1 is never. Seconds are well.",
                ("logservice_heartbeat_age_seconds", "{{instance}}"),
            ),
            _graph(
                "Failed calls",
                "reqps",
                "By method and reason; docs/operations/symptoms.md says what helps. Empty is well.",
                (
                    "sum by (method, reason) (logservice:rpc_errors:rate5m) > 0",
                    "{{method}} {{reason}}",
                ),
            ),
        ),
    ),
    (
        "Load",
        (
            _graph(
                "Records",
                "wps",
                "Records applied per second, of all shards that have a replica on a chosen store.",
                (f"sum({_SHARD_RECORDS})", "all shards"),
            ),
            _graph(
                "Busiest shards, records",
                "wps",
                "The ten shards with most records per second.",
                (f"topk(10, {_SHARD_RECORDS})", "{{cluster}} shard {{shard}}"),
            ),
            _graph(
                "Written to segments",
                "Bps",
                "Bytes of entries, without the copies of garbage collection.",
                (
                    "sum by (instance) (rate(logservice_segment_bytes_written_total[1m]))",
                    "{{instance}}",
                ),
            ),
            _graph(
                "Entries per durable write",
                "none",
                "How many entries share one wait for the disk. It grows with the load.",
                ("logservice:entries_per_durable_write:rate5m", "{{instance}}"),
            ),
            _graph(
                "Leaders per store",
                "none",
                "Shards that each store leads. Leaders do most of the work.",
                ('logservice_replicas{role="leader"}', "{{instance}}"),
            ),
            _graph(
                "Processor",
                "percentunit",
                "Cores that the process uses: 1 is one core. Near 1, the event loop is the limit.",
                ("rate(process_cpu_seconds_total[1m])", "{{instance}}"),
            ),
            _graph(
                "Memory",
                "bytes",
                "What the process has in memory (resident).",
                ("process_resident_memory_bytes", "{{instance}}"),
            ),
            _graph(
                "Between stores",
                "Bps",
                "Sent to other stores: replication, heartbeats, snapshots.",
                ("rate(logservice_peer_bytes_sent_total[1m])", "{{instance}}"),
            ),
            _graph(
                "Strangers at the peer port",
                "short",
                "Connections without a certificate, now, and turned away per second.",
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
                "From when an append was received until its caller was told, at the leader.",
                (_P50.format(name="append", by="instance"), "{{instance}} p50"),
                (_P99.format(name="append", by="instance"), "{{instance}} p99"),
            ),
            _graph(
                "Append, mean by stage",
                "s",
                "queue: until it is in the leader's log; replicate: until a majority has it; apply:"
                " until its caller is told. The stages add up to the whole.",
                (
                    "sum by (stage) (rate(logservice_append_stage_seconds_sum[5m]))"
                    " / sum by (stage) (rate(logservice_append_stage_seconds_count[5m]))",
                    "{{stage}}",
                ),
            ),
            _graph(
                "Append, p99 by stage",
                "s",
                "One in a hundred waits at least so long in the stage. These do not add up.",
                (_P99.format(name="append_stage", by="stage"), "{{stage}}"),
            ),
            _graph(
                "Read",
                "s",
                "Until the entries are in memory, with the wait for a turn. tail: from memory;"
                " catch_up: from the disk.",
                (_P50.format(name="read", by="class"), "{{class}} p50"),
                (_P99.format(name="read", by="class"), "{{class}} p99"),
            ),
            _graph(
                "Slowest methods, p99",
                "s",
                "Unary calls in the store, however they ended; without the network.",
                (f"topk(10, {_P99.format(name='rpc', by='method')})", "{{method}}"),
            ),
            _graph(
                "Calls",
                "reqps",
                "Calls that are over, by how they ended: OK, or the reason of the error.",
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
                "Until a commit group is on the disk. Appends wait for a majority of these.",
                (_DURABLE_WRITE.format(share="p50"), "{{instance}} {{directory}} p50"),
                (_DURABLE_WRITE.format(share="p99"), "{{instance}} {{directory}} p99"),
            ),
            _graph(
                "Size of commit groups (p50, p99)",
                "bytes",
                "Bytes that share one wait for the disk.",
                (_GROUP_BYTES.format(share=0.5), "{{instance}} p50"),
                (_GROUP_BYTES.format(share=0.99), "{{instance}} p99"),
            ),
            _graph(
                "Free",
                "bytes",
                "What the file system still has. Truncation gives space back.",
                ("logservice_disk_free_bytes", "{{instance}} {{directory}}"),
            ),
            _graph(
                "Log on disk",
                "bytes",
                "Segment files, with what nobody needs any more.",
                ("logservice_segment_bytes", "{{instance}} {{directory}}"),
            ),
            _graph(
                "Write amplification",
                "none",
                "Bytes written for each byte of an entry, over an hour; 1 is none copied.",
                ("logservice:write_amplification:rate1h", "{{instance}}"),
            ),
            _graph(
                "Left of the scrub's pass",
                "s",
                "Until all sealed segments were verified once more, at the rate that is allowed.",
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
                "Entries that a follower lacks, as its leader knows. It counts for no majority.",
                (
                    "topk(10, logservice_shard_follower_lag_entries)",
                    "{{cluster}} shard {{shard}} {{follower}}",
                ),
            ),
            _graph(
                "Terms that changed",
                "none",
                "Elections in five minutes. Again and again: a slow disk or a bad network.",
                (
                    "changes(logservice_shard_term[5m]) > 0",
                    "{{cluster}} shard {{shard}} {{instance}}",
                ),
            ),
            _graph(
                "Most retained records",
                "none",
                "The ten shards with most records that can be read.",
                (
                    "topk(10, max by (cluster, shard) (logservice_shard_retained_records))",
                    "{{cluster}} shard {{shard}}",
                ),
            ),
            _graph(
                "Kept by holds although truncated",
                "none",
                "Records that may go and that a hold keeps; logctl hold list says whose it is.",
                (
                    "max by (cluster, shard) (logservice_shard_held_back_records) > 0",
                    "{{cluster}} shard {{shard}}",
                ),
            ),
            _graph(
                "Visits of the truncation worker",
                "none",
                "Per second, by what came of them.",
                (
                    "sum by (outcome) (rate(logservice_truncation_visits_total[5m]))",
                    "{{outcome}}",
                ),
            ),
            _graph(
                "Damage found, replicas repaired",
                "none",
                "In an hour. scrub: places that did not verify; differ: replicas that a majority is"
                " against; repaired: in place, from other replicas.",
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
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _variables() -> list[dict[str, Any]]:
    """What is chosen at the top; a cluster decides which stores there are to choose from."""
    source = {
        "name": "source",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }
    cluster = _chosen_of("cluster", "Cluster", "label_values(logservice_store_info, cluster)")
    stores = 'label_values(logservice_store_info{cluster=~"$cluster"}, instance)'
    return [source, cluster, _chosen_of("store", "Store", stores)]


def _chosen_of(name: str, label: str, query: str) -> dict[str, Any]:
    """A variable with several values, at first all of them.

    Its values are asked for anew with every range of time (2), and sorted by name (1).
    """
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "options": [],
        "regex": "",
        "hide": 0,
    }


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    options: dict[str, Any] = (
        {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "orientation": "auto",
            "colorMode": "value",
            "graphMode": "area",
            "justifyMode": "auto",
            "textMode": "auto",
            "wideLayout": True,
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
        }
        if panel.kind == "stat"
        else {
            "legend": {
                "calcs": [],
                "displayMode": "list",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    )
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "expr": query,
                "legendFormat": legend,
                "datasource": _SOURCE,
            }
            for position, (query, legend) in enumerate(panel.queries)
        ],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
