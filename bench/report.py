"""The table: one row per shape, ours and etcd's side by side, median and range of the rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.closed_loop import Sample


@dataclass(slots=True)
class Row:
    """All rounds of one shape."""

    name: str
    ours: list[Sample] = field(default_factory=list)
    etcd: list[Sample] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """Everything that was measured."""

    environment: Mapping[str, str]
    rows: list[Row] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=dict)
    """Seconds, by what took them."""

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows of the throughput table, as text."""
        header = ["workload", "ours: records/s", "p50 / p99 ms"]
        header += ["etcd: puts/s", "p50 / p99 ms", "ours / etcd"]
        rows = []
        for row in self.rows:
            ratio = ""
            if row.ours and row.etcd:
                ratio = f"{_rate(row.ours) / _rate(row.etcd):.2f}x"
            ours, peer = (
                (_rates(row.ours), _latencies(row.ours)),
                (_rates(row.etcd), _latencies(row.etcd)),
            )
            rows.append([row.name, *ours, *peer, ratio])
        return header, rows

    def time_cells(self) -> list[list[str]]:
        """Rows of the table of times."""
        return [
            [what, f"{median(seconds):.2f} s", f"{min(seconds):.2f} - {max(seconds):.2f} s"]
            for what, seconds in self.times.items()
        ]

    def show(self, console: Console) -> None:
        """Print both tables with the environment above."""
        for name, value in self.environment.items():
            console.print(f"{name}: {value}")
        header, rows = self.cells()
        table = Table(*header)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        times = Table("what", "median", "range")
        for row in self.time_cells():
            times.add_row(*row)
        console.print(times)

    def markdown(self) -> str:
        """The tables for docs/performance.md."""
        lines = [f"- {name}: {value}" for name, value in self.environment.items()]
        header, rows = self.cells()
        lines += ["", *_markdown_table(header, rows), ""]
        lines += _markdown_table(["what", "median", "range"], self.time_cells())
        return "\n".join(lines) + "\n"


def _rate(samples: Sequence[Sample]) -> float:
    return median(sample.rate for sample in samples)


def _rates(samples: Sequence[Sample]) -> str:
    if not samples:
        return "-"
    rates = [sample.rate for sample in samples]
    return f"{_thousands(median(rates))} ({_thousands(min(rates))} - {_thousands(max(rates))})"


def _latencies(samples: Sequence[Sample]) -> str:
    if not samples:
        return "-"
    middle = median(sample.percentile(0.50) for sample in samples)
    high = median(sample.percentile(0.99) for sample in samples)
    return f"{middle:.2f} / {high:.2f}"


def _thousands(value: float) -> str:
    if value >= 100_000:
        return f"{value / 1000:.0f} k"
    return f"{value / 1000:.1f} k" if value >= 10_000 else f"{value:.0f}"


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
