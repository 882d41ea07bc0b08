"""process_metrics: the metrics of a process beside a cluster, each with one label for its log."""

from __future__ import annotations

import contextlib

from prometheus_client import CollectorRegistry, Counter, Gauge


class ProcessMetrics:
    """A registry of its own, and how its metrics are made."""

    def __init__(self, prefix: str, label: str) -> None:
        """`prefix`: of every name. `label`: what names a log."""
        self.registry = CollectorRegistry()
        self._prefix = prefix
        self._labels = (label,)
        self._made: list[Gauge | Counter] = []

    def gauge(self, name: str, text: str) -> Gauge:
        """What is so now."""
        made = Gauge(f"{self._prefix}_{name}", text, self._labels, registry=self.registry)
        self._made.append(made)
        return made

    def counter(self, name: str, text: str) -> Counter:
        """What happened so often."""
        made = Counter(f"{self._prefix}_{name}", text, self._labels, registry=self.registry)
        self._made.append(made)
        return made

    def forget(self, log: str) -> None:
        """It needs this process no more: nothing is behind, and nobody has to be woken."""
        for metric in self._made:
            with contextlib.suppress(KeyError):
                metric.remove(log)
