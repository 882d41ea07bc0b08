"""catch_up: what appends keep while a new replica of another log fetches 1 GiB from their leader.

See `bench.neighbours.beside_catch_up`: here it runs with the default limit of catch-up.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.neighbours.beside_catch_up import MIB, Bench
from bench.rows.appends import alone
from bench.rows.ours import running
from bench.rows.row import OURS, Bout, Figure, Setting
from logservice import bounds

CALLERS: Final = 64
LIMIT_MIB: Final = bounds.CATCH_UP_BYTES_PER_S // MIB


@contextmanager
def catch_up(setting: Setting) -> Iterator[list[Bout]]:
    """The share of appends that is left, and MiB a second of the new replica."""
    mib = int(setting.size(1024, 128, "MiB"))
    setting.notes.append(f"catch-up is limited to {LIMIT_MIB} MiB/s, the default")
    with running(setting.directory / OURS) as ours:
        options = argparse.Namespace(
            mib=mib, rounds=1, limits=[LIMIT_MIB], callers=CALLERS, seconds=setting.seconds
        )

        async def turn() -> Figure:
            [window] = await Bench(ours.cluster, options).run()
            during = window.during
            values = {
                "kept": window.kept,
                "rate": during.rate,
                "p50_ms": during.p50_ms,
                "p99_ms": during.p99_ms,
                "max_ms": during.longest_ms,
                "mib_per_s": window.mib / window.seconds,
            }
            return Figure(values, round(window.mib * MIB / 1000))

        yield [alone(turn)]
