"""Rows and figures for tests of what measures and reports, without any cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bench.peers.peer import Unavailable
from bench.probes.raw_disk import DiskProbe
from bench.results.result import Piece, Result, Run
from bench.rows.row import OURS, POINTS, Bout, Figure, Row, Setting, Target, Turn

PROBE = DiskProbe(150.0, 300.0, 500.0)


def figure(rate: float, p50_ms: float = 1.0) -> Figure:
    latencies = [p50_ms * (1 + place) for place in range(len(POINTS))]
    return Figure({"rate": rate, "p50_ms": p50_ms, "p99_ms": 3 * p50_ms}, 1, latencies)


def result(key: str, *rounds: Mapping[str, Figure]) -> Result:
    return Result(key, "2026-01-01", "2026-01-02", [dict(one) for one in rounds])


def run_of(*results: Result) -> Run:
    piece = Piece("2026-01-01", "2026-01-02", {"cores": "2"}, {"rounds": "5"}, PROBE, PROBE)
    piece.rows = [one.key for one in results]
    return Run(pieces=[piece], rows={one.key: one for one in results})


class FakeRow:
    """A row whose sides give what they are told to. `sides`: of each bout beside ours."""

    def __init__(
        self,
        key: str,
        sides: Mapping[str, Callable[[], Figure]],
        *,
        ours: Callable[[], Figure] = lambda: figure(100.0),
        missing: tuple[str, ...] = (),
        targets: tuple[Target, ...] = (),
    ) -> None:
        self.turns: list[str] = []
        self._sides, self._ours, self._missing = sides, ours, missing
        self.row = Row(key, key, "further", "appends/s", self._open, targets)

    @contextmanager
    def _open(self, setting: Setting) -> Iterator[list[Bout]]:
        bouts = [Bout(name, self._bout(name)) for name in (*self._missing, *self._sides)]
        yield [*bouts, Bout("", self._bout(""), fallback=True)]

    def _bout(self, name: str):
        @contextmanager
        def opened() -> Iterator[Mapping[str, Turn]]:
            if name in self._missing:
                raise Unavailable("no such program")
            turns = {OURS: self._turn(OURS, self._ours)}
            if name:
                turns[name] = self._turn(name, self._sides[name])
            yield turns

        return opened

    def _turn(self, name: str, gives: Callable[[], Figure]) -> Turn:
        async def turn() -> Figure:
            self.turns.append(name)
            found = gives()
            await asyncio.sleep(0)
            return found

        return turn
