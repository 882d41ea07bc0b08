"""batches: rows in which one client appends whole blocks, a few of them under way.

The bulk row is beside the raw disk, on which three copies are written at the same time: three
stores on one disk can do no better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from bench.probes.raw_disk import COPIES, raw_files
from bench.rows.appends import alone
from bench.rows.ours import Batches, running
from bench.rows.row import OURS, Bout, Figure, Setting, Turn

COPIES_SIDE = "raw disk, three copies"


@contextmanager
def blocks(load: Batches, setting: Setting) -> Iterator[list[Bout]]:
    """Records per second."""
    with running(setting.directory / OURS) as ours:
        yield [alone(partial(ours.batches, load, **setting.span))]


@contextmanager
def bulk(load: Batches, setting: Setting) -> Iterator[list[Bout]]:
    """Bytes of records per second, beside the raw disk."""
    with running(setting.directory / OURS) as ours:

        async def mine() -> Figure:
            figure = await ours.batches(load, **setting.span)
            values = {**figure.values, "rate": figure.values["rate"] * load.size}
            return Figure(values, figure.checked, figure.latencies_ms)

        @contextmanager
        def opened() -> Iterator[Mapping[str, Turn]]:
            with raw_files(setting.directory, COPIES) as files:

                async def disk() -> Figure:
                    return Figure({"rate": await asyncio.to_thread(files.copies, setting.seconds)})

                yield {OURS: mine, COPIES_SIDE: disk}

        yield [Bout(COPIES_SIDE, opened)]
