"""metrics: a StoreStatus as Prometheus series.

Theory of operation. There are no metric objects on any hot path: at a scrape one status is taken
from the loop and turned into families here, in a thread of the admin port. Names follow
Prometheus's conventions (base units, `_total` for what only grows). Label sets are bounded: stores
and reasons by the code, shards by METRIC_SHARDS_MAX (`shard_series`), methods by the proto. The
store that leads shard 0 adds the cluster's figures, so that sums over stores count them once.

When the loop does not give a status in time, there are only `logservice_loop_responsive` at 0 and
the process's own figures, which is what an alert needs then.

docs/operations/metrics.md lists the names; a test compares the list with the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from logservice import bounds
from logservice.memory_budget import PARTS
from logservice.nodehost.replica.read_limits import ReadClass
from logservice.server import log_lines
from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.own.readiness import Code
from logservice.server.monitor.own.status import (
    Buckets,
    DirectoryStatus,
    ReplicaStatus,
    StoreStatus,
)
from logservice.server.monitor.port import shard_series
from logservice.server.monitor.port.board import Board, LoopStuck, NotServing


class _Figure(NamedTuple):
    """The name, kind and help of a figure of log storage outside of the program."""

    name: str
    counter: bool
    help: str


_TOKENS: Final[Mapping[str, _Figure]] = {
    "token_keys": _Figure("token_keys", False, "Keys of the tokens' issuer that are in use."),
    "token_keys_age_seconds": _Figure(
        "token_keys_age_seconds", False, "Since the issuer said its keys; -1: never."
    ),
    "token_key_failures": _Figure(
        "token_key_failures", True, "Looks at the issuer's keys that found none to use."
    ),
    "tokens_checked": _Figure(
        "tokens_checked", True, "Tokens whose signature was looked at; others were remembered."
    ),
    "tokens_refused": _Figure("tokens_refused", True, "Tokens that were not accepted."),
}

_LOGDB: Final[Mapping[str, _Figure]] = {
    "segment_bytes": _Figure("segment_bytes", False, "Bytes of segment files on disk."),
    "segment_files": _Figure("segment_files", False, "Segment files on disk."),
    "live_bytes": _Figure("live_bytes", False, "Bytes of entries still needed."),
    "garbage_bytes": _Figure("garbage_bytes", False, "Bytes of sealed segments nobody needs."),
    "spare_bytes": _Figure("spare_segment_bytes", False, "Bytes of segments kept for reuse."),
    "index_bytes_written": _Figure(
        "index_bytes_written", True, "Bytes of rows written to the derived index."
    ),
    "segments_retired": _Figure("segments_retired", True, "Segments collected."),
    "segments_recycled": _Figure("segments_recycled", True, "Segments kept for reuse."),
    "column_bytes": _Figure("index_column_bytes", False, "Index columns held in memory."),
    "oldest_segment": _Figure("oldest_segment", False, "Id of the oldest segment."),
    "oldest_live_bytes": _Figure("oldest_segment_live_bytes", False, "Live bytes in it."),
    "groups": _Figure("commit_groups", True, "Commit groups written."),
    "durable_writes": _Figure(
        "durable_writes", True, "Writes of commit groups that waited for the disk."
    ),
    "entries_written": _Figure("entries_written", True, "Entries written to segments."),
    "bytes_written": _Figure("segment_bytes_written", True, "Bytes written, without copies."),
    "bytes_rewritten": _Figure(
        "segment_bytes_rewritten", True, "Bytes copied by garbage collection."
    ),
    "free_bytes": _Figure("disk_free_bytes", False, "Bytes the file system still has."),
    "disk_full": _Figure("disk_full", False, "1 above the high-water mark: blocks are refused."),
    "disk_closed": _Figure("disk_closed", False, "1 below the reserve's floor."),
    "disk_room": _Figure("disk_room_bytes", False, "Promised to the leader of each shard here."),
    "ballast": _Figure("ballast_present", False, "The reserve for a full disk is there."),
    "faulty_replicas": _Figure("faulty_replicas", False, "Replicas whose log is damaged."),
}

_SCRUB: Final[Mapping[str, _Figure]] = {
    "rate": _Figure(
        "scrub_rate_bytes_per_second", False, "At most, with what the comparison reads."
    ),
    "bytes": _Figure(
        "scrub_pass_bytes", False, "Sealed bytes of the pass under way, else of the next one."
    ),
    "done_bytes": _Figure(
        "scrub_pass_done_bytes", False, "Of them, done; 0 while no pass is under way."
    ),
    "last_s": _Figure(
        "scrub_last_pass_seconds", False, "What the newest whole pass took; 0 before the first."
    ),
}

_CATCH_UP: Final[Mapping[str, _Figure]] = {
    "bytes_per_s": _Figure(
        "catch_up_rate_bytes_per_second", False, "Sent at most to members that are far behind."
    ),
    "sent_bytes": _Figure("catch_up_sent_bytes", True, "Bytes of entries sent to such members."),
    "delayed": _Figure("catch_up_delayed", True, "Messages to them that waited for their turn."),
    "waiting": _Figure("catch_up_waiting", False, "Messages to them that wait for it now."),
}

_READS: Final[Mapping[str, _Figure]] = {
    "bytes_per_s": _Figure("read_rate_bytes_per_second", False, "Read at most for clients."),
    "reads": _Figure("reads", True, "Reads that returned something."),
    "bytes": _Figure("read_bytes", True, "Bytes of blocks that they returned."),
    "delayed": _Figure("reads_delayed", True, "Reads that waited for their turn."),
    "refused": _Figure("reads_refused", True, "Reads that got BUSY for the limits of their class."),
    "waiting": _Figure("reads_waiting", False, "Reads that wait for their turn now."),
    "under_way": _Figure("reads_under_way", False, "Reads that have their turn."),
}

_CALL_LINES: Final[Mapping[str, _Figure]] = {
    "waiting": _Figure("call_line_calls", False, "Unary calls that wait for their turn."),
    "waiting_bytes": _Figure("call_line_bytes", False, "Bytes of their requests."),
    "begun": _Figure("calls_begun", False, "Unary calls that have their turn."),
    "waited": _Figure("call_line_waited", True, "Unary calls that began after a wait."),
    "waited_seconds": _Figure("call_line_waited_seconds", True, "How long those waited."),
}

_INTEGRITY: Final[Mapping[str, tuple[str, str]]] = {
    "recovery_damages": ("recovery_damages", "Damaged places found at the start."),
    "recovery_unattributed": (
        "recovery_unattributed_damages",
        "Those of which nobody knows whose they are.",
    ),
    "scrub_passes": ("scrub_passes", "Passes of the scrub over all sealed segments."),
    "scrub_bytes": ("scrub_bytes", "Bytes that the scrub verified."),
    "scrub_damages": ("scrub_damages", "Places that did not verify."),
    "compare_passes": ("compare_passes", "Passes that compared the shards led here."),
    "compare_ranges": ("compare_ranges", "Ranges compared between replicas."),
    "compare_states": ("compare_states", "States compared between replicas."),
    "compare_served": ("compare_served", "Digests computed for the stores of leaders."),
    "compare_refused": ("compare_refused", "Answers of other stores that were none."),
    "compare_wrong": ("compare_wrong_replicas", "Replicas found to differ from a majority."),
    "compare_undecided": ("compare_undecided", "Differences that nobody could decide at once."),
    "compare_contested": ("compare_contested", "Differences without a majority: shards halted."),
    "compare_halted": ("compare_halted", "Replicas here that halted because they differ."),
    "repair_repaired": ("repairs", "Replicas here that were repaired in place."),
    "repair_entries": ("repair_entries", "Entries fetched for repairs."),
    "repair_snapshots": ("repair_snapshots", "Snapshots fetched for repairs."),
    "repair_waited": ("repair_waits", "Attempts at a repair that no peer could help with."),
}

_TWICE: Final = frozenset(
    {
        "disk_free_bytes",
        "group_bytes_p50",
        "group_bytes_p99",
        "durable_write_p50_us",
        "durable_write_p99_us",
    }
)
"""Figures of `LogDbStats` that another series has already."""

_PEER_GAUGES: Final = frozenset(
    {"round_trip_us", "connections", "queued_bytes", "strangers", "partial_bytes"}
)

_REPLICA: Final[Mapping[str, str]] = {
    "term": "Raft term.",
    "committed_index": "Newest index known durable on a majority.",
    "applied_index": "Newest applied index.",
    "last_index": "Newest index in the log.",
    "first_lsn": "Oldest readable LSN.",
    "applied_lsn": "Newest applied LSN.",
    "truncated_lsn": "Every record up to it may go.",
    "holds": "Named holds.",
    "sessions": "Sessions of writers.",
    "exports": "Exported snapshots kept for truncation.",
    "stalled_bytes": "Bytes that truncation should have freed and did not.",
}


class StatusCollector(Collector):
    """The collector in the store's own registry; `collect` runs in a thread of the admin port."""

    def __init__(self, board: Board) -> None:
        """Take every status from `board`."""
        self._board = board

    def describe(self) -> Iterable[Metric]:
        """Describe nothing ahead of time, because that would ask the loop before it runs."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families of one status."""
        yield log_family()
        try:
            status = self._board.status()
        except LoopStuck:
            yield _gauge("loop_responsive", "1 while the event loop answers in time.", 0)
            return
        yield _gauge("loop_responsive", "1 while the event loop answers in time.", 1)
        yield from store_families(status)
        yield from replica_families(status.replicas)
        if any(item.shard == 0 and item.role == "leader" for item in status.replicas):
            try:
                yield from cluster_families(self._board.cluster())
            except (LoopStuck, NotServing):
                return


class Metrics:
    """The store's registry and its text form."""

    def __init__(self, board: Board) -> None:
        """Make a registry of its own, so that two stores in one process do not mix."""
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(StatusCollector(board))

    def text(self, accept: str) -> tuple[bytes, str]:
        """The exposition for an Accept header, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def _heard_of_hakeeper(status: StoreStatus) -> Iterator[Metric]:
    yield _gauge(
        "heartbeat_age_seconds", "Since HAKeeper last answered; -1: never.", status.heartbeat_age_s
    )
    yield _gauge(
        "shard_directory_age_seconds",
        "Since HAKeeper said that this store's copy of the directory of logs is new; -1: no copy.",
        status.directory_age_s,
    )
    yield _gauge(
        "clock_ahead_seconds",
        "This store's clock against what most stores agree on; 0: not compared.",
        status.clock_ahead_us / 1e6,
    )
    yield _gauge(
        "clock_far", "1 while that is so much that it gives leaderships away.", status.clock_far
    )


def log_family() -> Metric:
    """What the loop need not say."""
    lost = CounterMetricFamily(
        "logservice_log_lines_dropped", "Lines of the log that stderr did not take."
    )
    lost.add_metric([], log_lines.dropped())
    return lost


def _visits(status: StoreStatus) -> Iterator[Metric]:
    visits = CounterMetricFamily(
        "logservice_truncation_visits",
        "Visits of the truncation worker, by outcome.",
        labels=["outcome"],
    )
    for outcome, count in sorted(status.truncation.items()):
        visits.add_metric([outcome], count)
    yield visits
    yield _gauge(
        "truncation_visit_age_seconds",
        "Since the newest visit of the truncation worker ended, or since the start.",
        status.visit_age_s,
    )


def store_families(status: StoreStatus) -> Iterator[Metric]:
    """The families that concern the whole store."""
    info = GaugeMetricFamily(
        "logservice_store_info", "Who this is.", labels=["store", "cluster", "version"]
    )
    info.add_metric([status.store, status.cluster, status.version], 1)
    yield info
    yield _gauge("uptime_seconds", "Since the process started.", status.uptime_s)
    yield _gauge("ready", "1 when clients should be sent here.", int(not status.reasons))
    reasons = GaugeMetricFamily(
        "logservice_not_ready_reasons", "Reasons not to be ready, by code.", labels=["reason"]
    )
    for code in Code:
        reasons.add_metric([code], sum(reason.code == code for reason in status.reasons))
    yield reasons
    yield from _heard_of_hakeeper(status)
    yield _gauge("alarms", "What a person must look at although it is ready.", len(status.alarms))
    yield _certificates(status.certificates)
    yield from _tokens(status.tokens)
    yield _one_histogram(
        "loop_turn_seconds",
        "How long the event loop was busy at a stretch.",
        status.loop_turn_seconds,
    )
    yield from _latencies(status)
    yield from _directories(status.directories)
    for name, number in sorted(status.transport.items()):
        yield _peer(name, number)
    yield from _visits(status)
    for key, number in status.integrity.items():
        name, text = _INTEGRITY.get(key, (key, f"Count of {key}."))
        family = CounterMetricFamily(f"logservice_{name}", text)
        family.add_metric([], number)
        yield family
    yield from _of_policies(status)
    yield from _by_key(_CATCH_UP, status.catch_up)
    yield from _reads(status.reads)
    yield from _call_lines(status.call_lines)
    yield from _memory(status.memory)
    refused = CounterMetricFamily(
        "logservice_messages_refused",
        "Raft messages of other stores that were not heard.",
        labels=["reason"],
    )
    for reason, count in sorted(status.messages_refused.items()):
        refused.add_metric([reason], count)
    yield refused
    requests = CounterMetricFamily(
        "logservice_peer_requests_refused",
        "Requests of other stores that a rule refused.",
        labels=["method", "rule"],
    )
    for key, count in sorted(status.requests_refused.items()):
        method, _, rule = key.partition("/")
        requests.add_metric([method, rule], count)
    yield requests
    yield _gauge("compare_pass_shards", "Of the comparison under way.", status.compare_shards)
    yield _gauge(
        "compare_pass_shards_done", "Of them, compared or passed over.", status.compare_shards_done
    )
    yield from _ends(status)


def _of_policies(status: StoreStatus) -> Iterator[Metric]:
    """What the policies of logs held up, and let go."""
    for name, text, count in (
        (
            "appends_delayed",
            "Appends that waited, or got BUSY, for the limits of their logs.",
            status.appends_delayed,
        ),
        (
            "records_retired",
            "Records that went by the retention of logs that are led here.",
            status.records_retired,
        ),
    ):
        family = CounterMetricFamily(f"logservice_{name}", text)
        family.add_metric([], count)
        yield family


def _by_key(shown: Mapping[str, _Figure], figures: Mapping[str, float]) -> Iterator[Metric]:
    """Those of `figures` that are shown; what a store does not say is 0."""
    for key, figure in shown.items():
        kind = CounterMetricFamily if figure.counter else GaugeMetricFamily
        family = kind(f"logservice_{figure.name}", figure.help)
        family.add_metric([], figures.get(key, 0))
        yield family


def _reads(figures: Mapping[str, int]) -> Iterator[Metric]:
    """By class; see `read_limits`."""
    for key, figure in _READS.items():
        kind = CounterMetricFamily if figure.counter else GaugeMetricFamily
        family = kind(f"logservice_{figure.name}", figure.help, labels=["class"])
        for read_class in ReadClass:
            family.add_metric([read_class], figures.get(f"{read_class}/{key}", 0))
        yield family


def _call_lines(figures: Mapping[str, float]) -> Iterator[Metric]:
    yield from _by_key(_CALL_LINES, figures)
    refused = CounterMetricFamily(
        "logservice_call_line_refused",
        "Unary calls that could not wait for their turn, or not long enough.",
        labels=["reason"],
    )
    for key, count in sorted(figures.items()):
        name, _, reason = key.partition("/")
        if name == "refused":
            refused.add_metric([reason], count)
    yield refused


_MEMORY: Final[Mapping[str, _Figure]] = {
    "used": _Figure("memory_part_bytes", False, "Bytes of a part of the memory budget in use."),
    "limit": _Figure("memory_part_limit_bytes", False, "Bytes that the part may have."),
    "refused": _Figure(
        "memory_part_refused", True, "How often somebody had to pay because the part was full."
    ),
}


def _memory(figures: Mapping[str, int]) -> Iterator[Metric]:
    """By part; see `memory_budget`."""
    for key, figure in _MEMORY.items():
        kind = CounterMetricFamily if figure.counter else GaugeMetricFamily
        family = kind(f"logservice_{figure.name}", figure.help, labels=["part"])
        for part in PARTS:
            if f"{part.name}/{key}" in figures:
                family.add_metric([part.name], figures[f"{part.name}/{key}"])
        yield family


def _certificates(found: Mapping[str, float]) -> Metric:
    expiry = GaugeMetricFamily(
        "logservice_certificate_expiry_timestamp_seconds",
        "When the certificate in use expires.",
        labels=["plane"],
    )
    for plane, moment in sorted(found.items()):
        expiry.add_metric([plane], moment)
    return expiry


def _tokens(found: Mapping[str, float]) -> Iterator[Metric]:
    """Nothing where no tokens are taken."""
    for key, figure in _TOKENS.items():
        if key in found:
            kind = CounterMetricFamily if figure.counter else GaugeMetricFamily
            yield kind(f"logservice_{figure.name}", figure.help, value=found[key])


def _one_histogram(name: str, text: str, found: Buckets) -> Metric:
    family = HistogramMetricFamily(f"logservice_{name}", text)
    family.add_metric([], *_cumulative(found))
    return family


def _latencies(status: StoreStatus) -> Iterator[Metric]:
    yield _one_histogram(
        "append_seconds",
        "From when an append was received until its caller was told, on the leader's store.",
        status.append_seconds,
    )
    yield _histogram(
        "append_stage_seconds",
        "The stages of that, which add up to it.",
        "stage",
        status.append_stage_seconds,
    )
    yield _histogram(
        "read_seconds",
        "From when a read was asked for until its entries were in memory.",
        "class",
        status.read_seconds,
    )
    yield _histogram("rpc_seconds", "What unary calls took.", "method", status.rpc_seconds)


def _ends(status: StoreStatus) -> Iterator[Metric]:
    """How calls ended."""
    for name, text, label, counts in (
        ("rpcs", "Calls that are over.", "outcome", status.rpcs),
        ("rpc_errors", "Failed calls by method and reason.", "reason", status.rpc_errors),
    ):
        family = CounterMetricFamily(f"logservice_{name}", text, labels=["method", label])
        for key, count in sorted(counts.items()):
            method, _, ended = key.partition("/")
            family.add_metric([method, ended], count)
        yield family


def replica_families(replicas: Sequence[ReplicaStatus]) -> Iterator[Metric]:
    """One series per figure and replica here, and how many replicas there are in each role."""
    roles = GaugeMetricFamily("logservice_replicas", "Replicas here by role.", labels=["role"])
    for role in ("leader", "follower", "candidate", "pre_candidate", "halted"):
        roles.add_metric([role], sum(replica.role == role for replica in replicas))
    yield roles
    shown = shard_series.shown(replicas)
    yield from shard_series.quantile_families(replicas)
    yield _gauge(
        "shards_without_series", "Replicas without series of their own.", len(replicas) - len(shown)
    )
    for name, text in _REPLICA.items():
        yield _per_shard(name, text, ((item, getattr(item, name)) for item in shown))
    yield _per_shard("leader", "1 when it leads here.", ((r, r.role == "leader") for r in shown))
    yield _per_shard("has_leader", "1 when it knows a leader.", ((r, r.leader != 0) for r in shown))
    yield _per_shard("halted", "1 when it cannot be trusted.", ((r, bool(r.halted)) for r in shown))
    yield _per_shard(
        "truncation_stalled",
        "1 when truncation frees nothing.",
        ((r, bool(r.stalled)) for r in shown),
    )
    yield _per_shard(
        "retained_records",
        "Records that can be read.",
        ((r, r.applied_lsn - r.first_lsn + 1 if r.first_lsn else 0) for r in shown),
    )
    yield _per_shard(
        "held_back_records",
        "Records that a hold keeps although their truncation was asked for.",
        ((r, shard_series.held_back(r)) for r in shown),
    )
    yield _per_shard(
        "hold_age_seconds",
        "Seconds for which a hold that keeps back records was neither set nor renewed.",
        ((r, r.hold_age_s) for r in shown),
    )
    yield _per_shard(
        "hold_age_records",
        "Records above the lowest hold.",
        ((r, r.applied_lsn - r.hold_lsn + 1 if r.holds else 0) for r in shown),
    )
    lag = GaugeMetricFamily(
        "logservice_shard_follower_lag_entries",
        "Entries not yet durable on a follower.",
        labels=["shard", "follower"],
    )
    for item in shown:
        for follower in item.followers:
            lag.add_metric([str(item.shard), follower.store], follower.lag_entries)
    yield lag


def cluster_families(report: ClusterReport) -> Iterator[Metric]:
    """What HAKeeper knows; only the store that leads shard 0 shows it."""
    row = report.cluster
    stores = GaugeMetricFamily("logservice_cluster_stores", "Stores by state.", labels=["state"])
    stores.add_metric(["alive"], row.stores_alive)
    stores.add_metric(["expired"], row.stores - row.stores_alive)
    yield stores
    yield _gauge("cluster_shards", "Shards.", row.shards)
    yield _gauge("cluster_shards_without_leader", "Shards nobody leads.", row.shards_without_leader)
    yield _gauge(
        "cluster_shards_lacking_replicas",
        "Shards with fewer live replicas than wanted.",
        row.shards_lacking_replicas,
    )
    yield _gauge("cluster_operators", "Repairs under way.", row.operators)
    yield _gauge(
        "cluster_oldest_operator_ticks",
        "Age of the oldest repair; a tick is 100 ms.",
        max((operator.age_ticks for operator in report.operators), default=0),
    )
    yield _gauge("cluster_flags", "What needs a person's attention.", len(row.flags))
    versions = {store.version for store in report.stores if store.answers}
    yield _gauge("cluster_versions", "Different versions among the stores.", len(versions))
    skew = [abs(store.clock_offset_us) for store in report.stores if store.answers]
    largest_s = max(skew, default=0) / 1e6
    yield _gauge("cluster_clock_skew_seconds", "Largest difference to this clock.", largest_s)


def _directories(directories: Sequence[DirectoryStatus]) -> Iterator[Metric]:
    """One series per figure and data directory; the label is its place in the configuration."""
    working = GaugeMetricFamily(
        "logservice_directory_working",
        "0 when the data directory failed.",
        labels=["directory", "path"],
    )
    kept = GaugeMetricFamily(
        "logservice_oldest_segment_kept",
        "1: why the oldest segment is still there.",
        labels=["directory", "reason"],
    )
    pinned = GaugeMetricFamily(
        "logservice_oldest_segment_pinned_bytes",
        f"Whose live bytes are in it: the {bounds.METRIC_PINS_MAX} replicas with most of them.",
        labels=["directory", "shard", "replica"],
    )
    keys = GaugeMetricFamily(
        "logservice_segment_key_bytes",
        "Bytes of segment files by the key that their entries are encrypted with.",
        labels=["directory", "key"],
    )
    families: dict[str, Any] = {}
    for place, directory in enumerate(directories):
        working.add_metric([str(place), directory.path], int(not directory.failed))
        if directory.oldest_reason:
            kept.add_metric([str(place), directory.oldest_reason], 1)
        for pin in directory.oldest_pins:
            pinned.add_metric([str(place), str(pin.shard), str(pin.replica)], pin.live_bytes)
        for key, size in directory.key_bytes.items():
            keys.add_metric([str(place), key], size)
        for figure, number in _figures(directory):
            name = f"logservice_{figure.name}"
            if name not in families:
                kind = CounterMetricFamily if figure.counter else GaugeMetricFamily
                families[name] = kind(name, figure.help, labels=["directory"])
            families[name].add_metric([str(place)], number)
    yield working
    yield kept
    yield pinned
    yield keys
    yield from families.values()
    yield _by_directory(
        "durable_write_seconds",
        "What a commit group took to be written and on the disk.",
        [directory.durable_write_seconds for directory in directories],
    )
    yield _by_directory(
        "commit_group_bytes",
        "Size of commit groups.",
        [directory.group_bytes for directory in directories],
    )


def _figures(directory: DirectoryStatus) -> Iterator[tuple[_Figure, float]]:
    for field, number in directory.logdb.items():
        if field not in _TWICE:
            unnamed = _Figure(f"logdb_{field}", False, f"LogDbStats.{field}.")
            yield _LOGDB.get(field, unnamed), number
    for field, figure in _SCRUB.items():
        if field in directory.scrub:
            yield figure, directory.scrub[field]


def _by_directory(name: str, text: str, directories: Sequence[Buckets]) -> Metric:
    numbered = ((str(place), found) for place, found in enumerate(directories))
    # A directory that has failed has no figures.
    return _histogram(name, text, "directory", {key: one for key, one in numbered if one.counts})


def _histogram(name: str, text: str, label: str, found: Mapping[str, Buckets]) -> Metric:
    family = HistogramMetricFamily(f"logservice_{name}", text, labels=[label])
    for key, one in found.items():
        family.add_metric([key], *_cumulative(one))
    return family


def _cumulative(found: Buckets) -> tuple[list[tuple[str, float]], float]:
    edges = [*(str(float(bound)) for bound in found.bounds), "+Inf"]
    return list(zip(edges, accumulate(found.counts or (0,)), strict=True)), found.total


def _peer(name: str, number: float) -> Metric:
    if name == "round_trip_us":
        return _gauge("peer_round_trip_seconds", "Newest ping to another store.", number / 1e6)
    if name in _PEER_GAUGES:
        return _gauge(f"peer_{name}", f"TransportStats.{name}, now.", number)
    family = CounterMetricFamily(f"logservice_peer_{name}", f"TransportStats.{name}.")
    family.add_metric([], number)
    return family


def _gauge(name: str, text: str, number: float) -> Metric:
    family = GaugeMetricFamily(f"logservice_{name}", text)
    family.add_metric([], number)
    return family


def _per_shard(name: str, text: str, values: Iterable[tuple[ReplicaStatus, float]]) -> Metric:
    family = GaugeMetricFamily(f"logservice_shard_{name}", text, labels=["shard"])
    for replica, number in values:
        family.add_metric([str(replica.shard)], number)
    return family
