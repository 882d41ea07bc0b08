"""Rows: one task's range, from the stores or from the archive to Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from logservice_wire.errors import Truncated

from pyspark_logservice.archive import Place
from pyspark_logservice.logs import Logs
from pyspark_logservice.loss import check_loss
from pyspark_logservice.options import ReadOptions
from pyspark_logservice.plan import LsnRange, from_archive
from pyspark_logservice.wanted import EVERYTHING, Wanted

if TYPE_CHECKING:
    import pyarrow as pa


def rows(
    options: ReadOptions, piece: LsnRange | None, wanted: Wanted = EVERYTHING
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, as Arrow batches; None of them for an empty plan, for which Spark makes
    a task all the same.
    """
    if piece is None:
        return
    if piece.archived is None:
        yield from _stored(options, piece, wanted)
        return
    # Imported by the tasks only: the driver plans without Arrow.
    from pyspark_logservice.archive_batches import batches

    yield from batches(
        Place(options.archive),
        piece.shard,
        piece.archived,
        piece.start,
        piece.end,
        include_gaps=options.include_gaps,
        columns=options.columns,
        only=piece.only,
        times_us=wanted.times_us,
    )


def _stored(options: ReadOptions, piece: LsnRange, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    from pyspark_logservice.batches import BatchMaker
    from pyspark_logservice.fetch import RangeFetcher

    maker = BatchMaker(
        piece.shard,
        piece.start,
        piece.end,
        include_gaps=options.include_gaps,
        columns=options.columns,
        only=piece.only,
        times_us=wanted.times_us,
    )
    fetcher = RangeFetcher(options, piece)
    try:
        for asked_lsn, answer in fetcher.answers():
            yield from maker.batches(asked_lsn, answer)
    except Truncated as error:
        left = replace(piece, start=max(piece.start, maker.next_lsn))
        yield from _truncated_meanwhile(options, left, error.first_lsn, wanted)


def _truncated_meanwhile(
    options: ReadOptions, left: LsnRange, first_lsn: int, wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    """What is left of a range whose beginning was truncated after it was planned: that was archived
    before, or it is lost.
    """
    with Logs(options) as logs:
        archived, stored = from_archive(options, logs.chain(left.shard), left)
    if not archived:
        check_loss(options, left.shard, left.start, first_lsn, left.end)
        stored = replace(left, start=min(first_lsn, left.end))
    for one in (*archived, stored):
        if one.records:
            only = tuple(lsn for lsn in left.only if one.start <= lsn < one.end)
            if only or not left.only:
                yield from rows(options, replace(one, only=only), wanted)
