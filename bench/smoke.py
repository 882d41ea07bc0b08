"""`make bench-smoke`: has throughput collapsed? Ratios only, in turns, in less than 90 seconds.

Ours is compared with what a busy machine slows down alike: appends with etcd's, where Debian's
package can be had, and bytes with the raw disk. One caller is not compared with the disk: a raw
write needs no processor, and beside other work the ratio fell to a tenth of what it is alone.
`EXPECTED` are the lowest ratios that were seen on two shared cores. Machines differ, and neighbours
too, so only a *collapse* fails: less than a third of the ratio that is written down. What that is
for: a lost group commit, a store that polls, a client that no longer batches.
"""

from __future__ import annotations

import sys
import tempfile
from asyncio import Runner
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.measuring import measure_row, now
from bench.peers.peer import Workload
from bench.results.result import Result
from bench.rows.appends import appends
from bench.rows.catalogue import ROWS
from bench.rows.row import Setting
from logservice.server.process import tune_interpreter

COLLAPSE: Final = 1 / 3
"""Of the expected ratio; below it the run fails."""

ROUNDS: Final = 3
WARMUP_S: Final = 0.4
SECONDS: Final = 0.8
BARE: Final = {"one-caller": partial(appends, Workload(1, 256))}
"""Rows without what takes time and is not judged here."""
PEERS: Final = frozenset({"etcd-debian"})
WIDTH: Final = 130
"""Width of the table when there is no terminal."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The rate of a row, to that of the sides whose names begin so."""

    row: str
    side: str
    ratio: float


EXPECTED: Final = (
    Expected("one-caller", "etcd", 0.5),
    Expected("64-callers", "etcd", 3.0),
    Expected("bulk", "raw disk", 0.12),
)


@dataclass(frozen=True, slots=True)
class Found:
    """A ratio as it was measured: the median of the rounds; None: there was nothing beside us."""

    expected: Expected
    ratio: float | None

    @property
    def collapsed(self) -> bool:
        """Whether the run fails for it."""
        return self.ratio is not None and self.ratio < COLLAPSE * self.expected.ratio


def judge(results: dict[str, Result], expected: Sequence[Expected] = EXPECTED) -> list[Found]:
    """What became of each ratio."""
    found = []
    for one in expected:
        result = results[one.row]
        ratios = [
            ratio
            for side in result.sides()
            if side.startswith(one.side)
            for ratio in result.ratios(side, "rate")
        ]
        found.append(Found(one, median(ratios) if ratios else None))
    return found


def main() -> int:
    """Measure, and say what has collapsed."""
    tune_interpreter()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    keys = {one.row for one in EXPECTED}
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="logservice-smoke-") as name, Runner() as runner:
        setting = Setting(Path(name), ROUNDS, WARMUP_S, SECONDS, peers=PEERS, runner=runner)
        for row in (row for row in ROWS if row.key in keys):
            result = results[row.key] = Result(row.key, now())
            bare = replace(row, open=BARE.get(row.key, row.open))
            measure_row(bare, setting, lambda _: None, result)
            for peer, why in result.missing.items():
                console.print(f"{row.key}: without {peer}: {why}", markup=False)
    found = judge(results)
    console.print(table(found))
    for one in found:
        if one.collapsed:
            ratio, side = one.expected.ratio, one.expected.side
            console.print(
                f"bench-smoke failed: {one.expected.row} is {one.ratio:.3g}x of {side}, "
                f"less than a third of {ratio:g}x"
            )
    return int(any(one.collapsed for one in found))


def table(found: Sequence[Found]) -> Table:
    """A line for each ratio."""
    shown = Table("row", "to", "expected", "a collapse is below", "found", "")
    for one in found:
        ratio = one.expected.ratio
        words = (f"{ratio:g}x", f"{COLLAPSE * ratio:.3g}x")
        figure = "not measured" if one.ratio is None else f"{one.ratio:.3g}x"
        shown.add_row(
            one.expected.row, one.expected.side, *words, figure, "COLLAPSED" * one.collapsed
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
