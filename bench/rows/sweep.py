"""sweep: throughput against callers, for the plot: each side goes through all numbers in a turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.peers.peer import Peer, Workload
from bench.rows.appends import alone, peer_bouts
from bench.rows.ours import running
from bench.rows.row import OURS, Bout, Figure, Setting, Span, Turn, figure_of

CALLERS: Final = (1, 4, 16, 64, 256, 1000)


def rate_at(callers: int) -> str:
    """The name of the value of so many callers."""
    return f"rate_{callers}"


@contextmanager
def sweep(size: int, setting: Setting) -> Iterator[list[Bout]]:
    """All numbers of callers; half a window each."""
    workloads = [Workload(callers, size) for callers in CALLERS]
    span = Span(warmup_s=setting.warmup_s / 2, seconds=setting.seconds / 2)
    with running(setting.directory / OURS) as ours:

        async def mine() -> Figure:
            return joined([await ours.appends(one, **span) for one in workloads])

        def turn_of(peer: Peer) -> Turn:
            async def turn() -> Figure:
                samples = [await peer.sample(one, **span) for one in workloads]
                return joined([figure_of(one, one.records) for one in samples])

            return turn

        yield [*peer_bouts(setting, workloads, mine, turn_of), alone(mine, fallback=True)]


def joined(figures: list[Figure]) -> Figure:
    """One figure of those at each number of callers."""
    values = {
        rate_at(callers): figure.values["rate"]
        for callers, figure in zip(CALLERS, figures, strict=True)
    }
    return Figure(values, sum(figure.checked for figure in figures))
