"""Planning: from the options and where the logs stand now to LSN ranges, one per Spark task.

A plan is fixed: the ends are resolved once, by asking, and every task reads exactly its range, so
that reading the same plan again gives the same rows. LSNs are dense, so cutting a range needs no
knowledge of blocks; a block on a cut is read by both neighbours, each showing its own part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from logservice_client import LsnAtTime
from logservice_wire.errors import ShardRestoring

from pyspark_logservice.archive import ArchivedRange, Chain
from pyspark_logservice.checks import EARLIEST, LATEST, OptionError
from pyspark_logservice.holds import Holds
from pyspark_logservice.logs import Logs, turned
from pyspark_logservice.loss import DataLossError, check_loss
from pyspark_logservice.options import ReadOptions, check_named
from pyspark_logservice.sizes import outline
from pyspark_logservice.wanted import EVERYTHING, Numbers, Wanted


@dataclass(frozen=True, slots=True)
class LsnRange:
    """``start <= lsn < end`` of one shard, and the stores that have it, the preferred one first.
    `near`: those of them that are in the zone of the options. `lineage`: the log's when the plan
    was made; a task reads no other history. `only`: of these LSNs, in order; () for all.
    `archived`: the range is a part of that one, and is read from the archive.
    """

    shard: int
    start: int
    end: int
    addresses: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    lineage: bytes = b""
    only: tuple[int, ...] = ()
    archived: ArchivedRange | None = None

    @property
    def records(self) -> int:
        """The number of LSNs."""
        return self.end - self.start


def plan(options: ReadOptions, wanted: Wanted = EVERYTHING) -> list[LsnRange]:
    """The ranges to read; empty when there is nothing. Raises OptionError,
    DataLossError, LogServiceError.
    """
    with Logs(options) as logs:
        named = logs.named()
        shards = sorted({*named, *_matching(logs)})
        check_named(options, shards)
        shards = [shard for shard in shards if shard in wanted.shards]
        ranges = []
        for shard, found in logs.standings(shards).items():
            if not found.readable:
                if shard in named:
                    raise ShardRestoring(f"shard {shard} is being restored")
                continue
            start, end = resolve(options, shard, found.first_lsn, found.next_lsn - 1)
            start, end = narrow(options, logs, shard, start, end)
            start, end = wanted.lsns.cut(start, end)
            ranges.append(LsnRange(shard, start, end, lineage=found.lineage.id))
        starts = {one.shard: one.start for one in ranges if one.records > 0}
        for shard, oldest in Holds(options).keep(logs, starts).items():
            [whole] = [one for one in ranges if one.shard == shard]
            check_loss(options, shard, whole.start, oldest, whole.end)
        pieces = cut(options, logs, ranges)
    return pieces if wanted.lsns.only is None else list(_thinned(pieces, wanted.lsns))


def _matching(logs: Logs) -> Iterator[int]:
    """The logs that patterns mean. A pattern that means none is a mistake, and not an empty frame.
    Raises OptionError.
    """
    for pattern, shards in logs.by_pattern().items():
        if not shards and pattern != "*":
            raise OptionError(f"option 'shards': no log has a name like {pattern!r}")
        yield from shards


def _thinned(pieces: Iterable[LsnRange], wanted: Numbers) -> Iterator[LsnRange]:
    """The pieces that have single LSNs that are wanted."""
    for piece in pieces:
        only = wanted.between(piece.start, piece.end)
        if only:
            yield replace(piece, start=only[0], end=only[-1] + 1, only=only)


def resolve(options: ReadOptions, shard: int, first_lsn: int, applied_lsn: int) -> tuple[int, int]:
    """Start and end of what to read of one shard, whose readable LSNs are given."""
    start, end = options.starting.of(shard), options.ending.of(shard)
    start = {EARLIEST: first_lsn, LATEST: applied_lsn + 1}.get(start, start)
    end = applied_lsn + 1 if end == LATEST else end
    if end > applied_lsn + 1 or start > applied_lsn + 1:
        raise DataLossError(
            f"shard {shard}: asked for LSNs {start} to {end - 1}, but the newest is {applied_lsn}"
        )
    if start < first_lsn:
        check_loss(options, shard, start, first_lsn, max(start, end))
        start = first_lsn
    return start, max(start, end)


def narrow(options: ReadOptions, logs: Logs, shard: int, start: int, end: int) -> tuple[int, int]:
    """The part of a range that was appended between the times of the options."""
    if options.ending_time_us:
        found = lsn_at_time(options, logs, shard, options.ending_time_us)
        end = max(start, min(end, found.lsn))
    if options.starting_time_us:
        found = lsn_at_time(options, logs, shard, options.starting_time_us)
        if found.truncated and options.fail_on_data_loss:
            raise DataLossError(
                f"shard {shard}: records from that time on may have been truncated; the "
                f"oldest record is {found.lsn}. Keep records with a hold, or set failOnDataLoss to "
                "false to read what is left"
            )
        start = max(start, min(end, found.lsn))
    return start, end


def lsn_at_time(options: ReadOptions, logs: Logs, shard: int, time_us: int) -> LsnAtTime:
    """The first LSN that was appended then or later, in the archive or behind it."""
    found = logs.client.shard(shard).lsn_at_time(time_us, timeout=options.rpc_timeout_s)
    chain = logs.chain(shard)
    if not found.truncated or chain is None or not chain.first_lsn <= found.lsn <= chain.end_lsn:
        return found
    lsn = min(found.lsn, chain.lsn_at_time(time_us))
    return LsnAtTime(lsn, truncated=lsn == chain.first_lsn > 1)


def cut(options: ReadOptions, logs: Logs, ranges: Iterable[LsnRange]) -> list[LsnRange]:
    """The pieces of the ranges, one per task, with the stores to read them from."""
    filled = [whole for whole in ranges if whole.records > 0]

    def pieces_of(number: int) -> list[LsnRange]:
        archived, stored = from_archive(options, logs.chain(filled[number].shard), filled[number])
        if not stored.records:
            return archived
        addresses, near = logs.addresses(stored.shard)
        stored = replace(stored, addresses=addresses, near=near)
        return archived + by_bytes(options, logs, stored)

    found = logs.each(pieces_of, range(len(filled)))
    pieces = [piece for some in found for piece in some]
    return split(pieces, options.partitions_min, options.partition_records_max)


def from_archive(
    options: ReadOptions, chain: Chain | None, whole: LsnRange
) -> tuple[list[LsnRange], LsnRange]:
    """The pieces of a range that are in the archive, and what lies behind them. Raises
    DataLossError for LSNs of which the archive says that they were gone before it came.
    """
    if chain is None or not chain.first_lsn <= whole.start < chain.end_lsn:
        return [], whole
    pieces = []
    for row in chain.between(whole.start, whole.end):
        start, end = max(row.first_lsn, whole.start), min(row.end_lsn, whole.end)
        if row.path:
            pieces.append(replace(whole, start=start, end=end, archived=row))
        else:
            check_loss(options, whole.shard, start, row.end_lsn, end, "of the archive, ")
    return pieces, replace(whole, start=min(whole.end, chain.end_lsn))


def by_bytes(options: ReadOptions, logs: Logs, whole: LsnRange) -> list[LsnRange]:
    """The range in pieces of about as many bytes as a task takes."""
    found = outline(logs.sample(whole.shard), whole.start, whole.end, options.partition_bytes)
    count = min(max(1, math.ceil(found.total / options.partition_bytes)), whole.records)
    edges = [found.lsn_at(found.total * number / count) for number in range(1, count)]
    edges = sorted({whole.start, *edges, whole.end})
    return [
        replace(
            whole,
            start=start,
            end=end,
            addresses=turned(whole.addresses, number),
            near=turned(whole.near, number),
        )
        for number, (start, end) in enumerate(pairwise(edges))
    ]


def split(
    ranges: Sequence[LsnRange], partitions_min: int, partition_records_max: int
) -> list[LsnRange]:
    """Cut into at least `partitions_min` pieces of at most `partition_records_max` records.

    Pieces of a shard prefer its replicas in turn, so that tasks spread over stores; with near ones
    they prefer those in turn, and the others after them.
    """
    total = sum(whole.records for whole in ranges)
    pieces = []
    for whole in ranges:
        if whole.records == 0:
            continue
        share = -(-partitions_min * whole.records // total)
        count = min(max(share, -(-whole.records // partition_records_max)), whole.records)
        for number in range(count):
            others = tuple(one for one in whole.addresses if one not in whole.near)
            pieces.append(
                replace(
                    whole,
                    start=whole.start + whole.records * number // count,
                    end=whole.start + whole.records * (number + 1) // count,
                    addresses=turned(whole.near, number) + turned(others, number),
                )
            )
    return pieces
