"""The data source ``logservice``: glue between Spark's interface and planning, fetching, batches.

Spark constructs readers in several processes and pickles them; so constructors only check options,
and connections are made where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_logservice.options import OptionError, ReadOptions, parse_options
from pyspark_logservice.plan import LsnRange, plan

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA: Final = StructType(
    [
        StructField("shard", LongType()),
        StructField("lsn", LongType()),
        StructField("term", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("value", BinaryType()),
    ]
)
SCHEMA_WITH_GAPS: Final = StructType([*SCHEMA.fields, StructField("gap", StringType())])
"""Where gap is not null, timestamp and value are."""


class LogServiceDataSource(DataSource):
    """``spark.read.format("logservice")``; options in `pyspark_logservice.options`."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "logservice"

    def schema(self) -> StructType:
        """One row per record; with includeGaps one per LSN."""
        return SCHEMA_WITH_GAPS if parse_options(self.options).include_gaps else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for a batch query."""
        if schema != self.schema():
            raise OptionError(f"the schema is fixed: {self.schema().simpleString()}")
        return LogReader(parse_options(self.options))


class LogReader(DataSourceReader):
    """Reads fixed LSN ranges, one per task."""

    def __init__(self, options: ReadOptions) -> None:
        """No I/O: this runs in several processes."""
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Ask where the logs stand and cut what is to be read."""
        return [InputPartition(piece) for piece in plan(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, as Arrow batches."""
        from pyspark_logservice.batches import BatchMaker
        from pyspark_logservice.fetch import RangeFetcher

        piece: LsnRange | None = partition.value
        if piece is None:
            return  # an empty plan: Spark makes one task all the same
        maker = BatchMaker(
            piece.shard, piece.start, piece.end, include_gaps=self._options.include_gaps
        )
        for asked_lsn, answer in RangeFetcher(self._options, piece).answers():
            yield from maker.batches(asked_lsn, answer)
