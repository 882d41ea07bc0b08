"""Arrow batches for Spark from the answers of a store, without touching single records.

A large block becomes one batch whose value buffers are windows on the bytes of the block. Small
blocks, which a database's commits are, would cost more per batch than per byte; neighbours are put
together until there is enough, and then their columns are copied once, in C.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from logservice_client.arrow import lsns, repeated, values
from logservice_client.read_result import Gap, Records, item_of
from logservice_wire.errors import CorruptBlock
from logservice_wire.v1 import log_pb2

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_FIELDS: Final = [
    pa.field("shard", pa.int64()),
    pa.field("lsn", pa.int64()),
    pa.field("term", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("value", pa.binary()),
]
SCHEMA: Final = pa.schema(_FIELDS)
SCHEMA_WITH_GAPS: Final = pa.schema([*_FIELDS, pa.field("gap", pa.string())])
"""Spark makes these of the schemas in `source`, and compares them to the letter."""

TOGETHER_BYTES: Final = 1024 * 1024
"""Blocks are put together until they have so many bytes."""

ALONE_BYTES: Final = 128 * 1024
"""A block of this size goes alone, uncopied."""


class BatchMaker:
    """The rows of one LSN range. Checks that the store leaves no LSN out."""

    def __init__(self, shard: int, start: int, end: int, *, include_gaps: bool) -> None:
        """Rows for ``start <= lsn < end``."""
        self._shard = shard
        self._lsn = start
        self._end = end
        self._include_gaps = include_gaps
        self._schema = SCHEMA_WITH_GAPS if include_gaps else SCHEMA

    def batches(self, asked_lsn: int, answer: log_pb2.ReadResponse) -> Iterator[pa.RecordBatch]:
        """The batches of one answer; raises CorruptBlock when LSNs are missing from it."""
        together: list[Records] = []
        size = 0
        self._lsn = max(self._lsn, asked_lsn)
        for run in answer.blocks:
            if self._lsn >= self._end:
                break
            item = item_of(run, self._lsn)
            if item.first_lsn != self._lsn or item.record_count < 1:
                raise CorruptBlock(detail=f"LSN {self._lsn} is missing from the answer")
            item = item.until(self._end)
            self._lsn = item.next_lsn
            if isinstance(item, Gap):
                if self._include_gaps:
                    yield from self._flush(together)
                    yield self._gap(item)
                    together, size = [], 0
                continue
            alone = len(item.block.data) >= ALONE_BYTES
            consecutive = not together or together[-1].next_lsn == item.first_lsn
            if alone or not consecutive or size >= TOGETHER_BYTES:
                yield from self._flush(together)
                together, size = [], 0
            together.append(item)
            size += len(item.block.data)
        yield from self._flush(together)
        if self._lsn < min(answer.next_lsn, self._end):
            raise CorruptBlock(detail=f"LSN {self._lsn} is missing from the answer")

    def _flush(self, items: list[Records]) -> Iterator[pa.RecordBatch]:
        if not items:
            return
        count = items[-1].next_lsn - items[0].first_lsn
        columns = [
            repeated(self._shard, count, pa.int64()),
            lsns(items[0].first_lsn, count),
            _joined([repeated(item.term, item.record_count, pa.int64()) for item in items]),
            _joined([repeated(item.timestamp_us, item.record_count, _TIMESTAMP) for item in items]),
            _joined([values(item.block, item.skipped, item.record_count) for item in items]),
        ]
        if self._include_gaps:
            columns.append(pa.nulls(count, pa.string()))
        yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _gap(self, gap: Gap) -> pa.RecordBatch:
        count = gap.record_count
        columns = [
            repeated(self._shard, count, pa.int64()),
            lsns(gap.first_lsn, count),
            repeated(gap.term, count, pa.int64()),
            pa.nulls(count, _TIMESTAMP),
            pa.nulls(count, pa.binary()),
            pa.repeat(pa.scalar(gap.reason.name.lower(), pa.string()), count),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
