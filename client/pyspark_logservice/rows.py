"""Rows: one task's range, from the stores to Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark_logservice.options import ReadOptions
from pyspark_logservice.plan import LsnRange
from pyspark_logservice.wanted import EVERYTHING, Wanted

if TYPE_CHECKING:
    import pyarrow as pa


def rows(
    options: ReadOptions, piece: LsnRange | None, wanted: Wanted = EVERYTHING
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, as Arrow batches; None of them for an empty plan, for which Spark makes
    a task all the same.
    """
    # Imported by the tasks only: the driver plans without Arrow.
    from pyspark_logservice.batches import BatchMaker
    from pyspark_logservice.fetch import RangeFetcher

    if piece is None:
        return
    maker = BatchMaker(
        piece.shard,
        piece.start,
        piece.end,
        include_gaps=options.include_gaps,
        columns=options.columns,
        only=piece.only,
        times_us=wanted.times_us,
    )
    for asked_lsn, answer in RangeFetcher(options, piece).answers():
        yield from maker.batches(asked_lsn, answer)
