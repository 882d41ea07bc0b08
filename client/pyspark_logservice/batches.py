"""Arrow batches for Spark from the answers of a store, without touching single records.

A large block becomes one batch whose value buffers are windows on the bytes of the block. Small
blocks, which a database's commits are, would cost more per batch than per byte; neighbours are put
together until there is enough, and then their columns are copied once, in C.

Where the column `value` is not wanted, a store leaves the bytes of blocks out of its answer. An
older one sends them all the same; the rows are the same. Wide blocks come whole, and are opened
only for a column that is in them. Where a block has no keys, headers or times of its own, those
columns are null.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from logservice_client.arrow import (
    PAIRS,
    header_pairs,
    joined_values,
    keys,
    located,
    lsns,
    own_times,
    repeated,
    spread,
    times,
    values,
)
from logservice_client.read_result import Gap, Records, item_of
from logservice_wire.columns import Columns
from logservice_wire.errors import CorruptBlock
from logservice_wire.read_answer import ReadAnswer, Run
from logservice_wire.v1 import log_pb2
from logservice_wire.value import value

from pyspark_logservice.options import COLUMNS
from pyspark_logservice.wanted import Numbers

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
COLUMN_TYPES: Final = {
    "shard": pa.int64(),
    "lsn": pa.int64(),
    "term": pa.int64(),
    "timestamp": _TIMESTAMP,
    "value": pa.binary(),
    "key": pa.binary(),
    "headers": PAIRS,
    "record_time": _TIMESTAMP,
    "gap": pa.string(),
}
"""Spark makes these of the schemas in `source`, and compares them to the letter."""

TOGETHER_BYTES: Final = 1024 * 1024
"""Blocks are put together until they have so many bytes."""

ALONE_BYTES: Final = 128 * 1024
"""A block of this size goes alone, uncopied."""


@value
class Bare:
    """Consecutive records of one block whose bytes were left out."""

    first_lsn: int
    record_count: int
    term: int
    timestamp_us: int

    @property
    def next_lsn(self) -> int:
        """The LSN behind the last record."""
        return self.first_lsn + self.record_count

    def until(self, end_lsn: int) -> Bare:
        """The part below `end_lsn`."""
        return replace(self, record_count=min(self.record_count, end_lsn - self.first_lsn))


_NUMBER_BYTES: Final = 8
"""Of a row, for each column of numbers."""


MORE: Final = {"key": keys, "headers": header_pairs, "record_time": own_times}
"""Columns that only wide blocks have, and how each is made."""

_INSIDE: Final = frozenset({"timestamp", "value", *MORE})
"""Columns for which a block is opened."""


class BatchMaker:
    """The rows of one LSN range. Checks that the store leaves no LSN out."""

    def __init__(
        self,
        shard: int,
        start: int,
        end: int,
        *,
        include_gaps: bool,
        columns: Sequence[str] = COLUMNS,
        only: Sequence[int] = (),
        times_us: Numbers | None = None,
    ) -> None:
        """Rows for ``start <= lsn < end`` with those `columns`, in their order; the rest is not
        made. `only`: for these LSNs, if there are any. `times_us`: with such a timestamp; then for
        no gaps.
        """
        self._shard = shard
        self._lsn = start
        self._end = end
        self._include_gaps = include_gaps and times_us is None
        self._only = only
        self._times_us = times_us
        self._values = "value" in columns
        self._opens = not _INSIDE.isdisjoint(columns)
        self.schema = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])

    @property
    def next_lsn(self) -> int:
        """The LSN behind what was handed on."""
        return self._lsn

    def batches(self, asked_lsn: int, answer: ReadAnswer) -> Iterator[pa.RecordBatch]:
        """The batches of one answer; raises CorruptBlock when LSNs are missing from it."""
        together: list[Records | Bare] = []
        size = 0
        self._lsn = max(self._lsn, asked_lsn)
        for run in answer.blocks:
            if self._lsn >= self._end:
                break
            item = self._item(run)
            if item.first_lsn != self._lsn or item.record_count < 1:
                raise CorruptBlock(detail=f"LSN {self._lsn} is missing from the answer")
            if item.next_lsn > self._end:
                item = item.until(self._end)
            self._lsn = item.next_lsn
            if isinstance(item, Gap):
                if self._include_gaps:
                    yield from self._flush(together)
                    yield from self._thinned(self._gap(item), item.first_lsn)
                    together, size = [], 0
                continue
            if self._times_us is not None:
                if isinstance(item, Records) and item.block.wide:
                    yield from self._flush(together)
                    together, size = [], 0
                    yield from self._with_times(item, self._times_us)
                    continue
                if item.timestamp_us not in self._times_us:
                    continue
            weight = self._weight(item)
            alone = isinstance(item, Records) and (weight >= ALONE_BYTES or not item.whole)
            consecutive = not together or together[-1].next_lsn == item.first_lsn
            if alone or not consecutive or size >= TOGETHER_BYTES:
                yield from self._flush(together)
                together, size = [], 0
            if alone:
                yield from self._flush([item])
                continue
            together.append(item)
            size += weight
        yield from self._flush(together)
        if self._lsn < min(answer.next_lsn, self._end):
            raise CorruptBlock(detail=f"LSN {self._lsn} is missing from the answer")

    def _item(self, run: Run) -> Records | Bare | Gap:
        """One run, without the LSNs below the next one. Raises CorruptBlock."""
        if self._values or run.block or run.gap != log_pb2.GAP_REASON_NONE or not run.block_bytes:
            return item_of(run, self._lsn)
        skipped = max(0, self._lsn - run.first_lsn)
        first_lsn, count = run.first_lsn + skipped, run.record_count - skipped
        return Bare(first_lsn, count, run.term, run.timestamp_us)

    def _weight(self, item: Records | Bare) -> int:
        """About how many bytes there are of it, once it is opened."""
        if isinstance(item, Records):
            return item.block.memory_bytes
        return _NUMBER_BYTES * len(self.schema) * item.record_count

    def _flush(self, items: list[Records | Bare]) -> Iterator[pa.RecordBatch]:
        if not items:
            return
        count = items[-1].next_lsn - items[0].first_lsn
        yield from self._thinned(self._batch(items, count), items[0].first_lsn)

    def _batch(self, items: list[Records | Bare], count: int) -> pa.RecordBatch:
        # Many small blocks: what costs something for each of them is not done.
        plain = len(items) > 1 and not any(map(_is_wide, items))
        opened = [_opened(one) for one in items] if self._opens and not plain else []
        columns = [self._column(name, items, opened, count) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _with_times(self, item: Records, wanted: Numbers) -> Iterator[pa.RecordBatch]:
        """The rows of a wide block whose own times are wanted: its records may have some each."""
        mask = times_mask(times(item.columns()), wanted)
        if self._only:
            rows = pa.array(self._only, pa.int64())
            mask = pc.and_(mask, pc.is_in(lsns(item.first_lsn, item.record_count), rows))
        batch = self._batch([item], item.record_count).filter(mask)
        if batch.num_rows:
            yield batch

    def _thinned(self, batch: pa.RecordBatch, first_lsn: int) -> Iterator[pa.RecordBatch]:
        """The rows of the wanted LSNs of a batch that has consecutive ones."""
        if not self._only:
            yield batch
            return
        low = bisect_left(self._only, first_lsn)
        high = bisect_left(self._only, first_lsn + batch.num_rows)
        if low < high:
            rows = pc.subtract(pa.array(self._only[low:high], pa.int64()), first_lsn)
            yield batch.take(rows)

    def _column(
        self,
        name: str,
        items: list[Records | Bare],
        opened: list[Columns | Bare],
        count: int,
    ) -> pa.Array:
        match name:
            case "shard":
                return repeated(self._shard, count, pa.int64())
            case "lsn":
                return lsns(items[0].first_lsn, count)
            case "term":
                return spread([one.term for one in items], _ends(items), pa.int64())
            case "timestamp":
                if not opened:
                    return spread([one.timestamp_us for one in items], _ends(items), _TIMESTAMP)
                return _joined([_times_of(one) for one in opened])
            case "value":
                if not opened:
                    return joined_values([one.block for one in items if isinstance(one, Records)])
                return _joined([values(one) for one in opened if not isinstance(one, Bare)])
            case _ if name in MORE and any(map(_is_wide, items)):
                pairs = zip(items, opened, strict=True)
                return _joined([_more(name, item, one) for item, one in pairs])
        return pa.nulls(count, COLUMN_TYPES[name])

    def _gap(self, gap: Gap) -> pa.RecordBatch:
        count = gap.record_count
        known = {
            "shard": repeated(self._shard, count, pa.int64()),
            "lsn": lsns(gap.first_lsn, count),
            "term": repeated(gap.term, count, pa.int64()),
            "gap": repeated(gap.reason.name.lower(), count, pa.string()),
        }
        columns = [
            known.get(name, pa.nulls(count, COLUMN_TYPES[name])) for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def times_mask(times: pa.Array, wanted: Numbers) -> pa.Array:
    """Which of the times are wanted; no row without one."""
    numbers, mask = times.cast(pa.int64()), pc.is_valid(times)
    if wanted.only is not None:
        return pc.and_(mask, pc.is_in(numbers, pa.array(wanted.only, pa.int64())))
    if wanted.first is not None:
        mask = pc.and_(mask, pc.greater_equal(numbers, wanted.first))
    if wanted.behind is not None:
        mask = pc.and_(mask, pc.less(numbers, wanted.behind))
    return pc.fill_null(mask, False)


def _ends(items: Sequence[Records | Bare]) -> pa.Array:
    return pa.array(accumulate(one.record_count for one in items), pa.int32())


def _opened(item: Records | Bare) -> Columns | Bare:
    return item if isinstance(item, Bare) else item.columns()


def _times_of(opened: Columns | Bare) -> pa.Array:
    if isinstance(opened, Bare):
        return repeated(opened.timestamp_us, opened.record_count, _TIMESTAMP)
    return times(opened)


def _is_wide(item: Records | Bare) -> bool:
    return isinstance(item, Records) and item.block.wide


def _more(name: str, item: Records | Bare, opened: Columns | Bare) -> pa.Array:
    if isinstance(item, Bare) or isinstance(opened, Bare):
        return pa.nulls(item.record_count, COLUMN_TYPES[name])
    return located(MORE[name], item, opened)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
