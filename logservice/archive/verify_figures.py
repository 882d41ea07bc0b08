"""verify_figures: what a verification found, for Prometheus, which cannot ask its process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prometheus_client import Gauge, write_to_textfile

from logservice.archive.process_metrics import ProcessMetrics
from logservice.archive.verifying import Contents


def write_figures(path: Path, found: Sequence[Contents], now_s: float) -> None:
    """For Prometheus, as the node exporter's textfile collector reads it: all of them were read to
    their end, at that moment. Raises OSError.
    """
    metrics = ProcessMetrics("logservice_archive", "shard")
    problems = metrics.gauge("verify_problems", "What is wrong with the archive of a log")
    for one in found:
        problems.labels(str(one.shard_id)).set(len(one.problems))
    Gauge(
        "logservice_archive_verified_timestamp_seconds",
        "When all of the archive was read to its end",
        registry=metrics.registry,
    ).set(now_s)
    write_to_textfile(str(path), metrics.registry)
