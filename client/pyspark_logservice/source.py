"""The data source ``logservice``: glue between Spark's interface and planning, fetching, writing.

Spark constructs readers in several processes and pickles them; so constructors only check options,
and connections are made where they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_logservice.checks import OptionError
from pyspark_logservice.one_line import in_one_line
from pyspark_logservice.options import ReadOptions, Use, parse_options
from pyspark_logservice.plan import plan
from pyspark_logservice.rows import rows
from pyspark_logservice.wanted import EVERYTHING
from pyspark_logservice.writing.options import parse_write_options

if TYPE_CHECKING:
    import pyarrow as pa

FIELDS: Final = {
    "shard": LongType(),
    "lsn": LongType(),
    "term": LongType(),
    "timestamp": TimestampType(),
    "value": BinaryType(),
    "key": BinaryType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
    "record_time": TimestampType(),
    "gap": StringType(),
}
"""Where gap is not null, all of a record is: timestamp, value, key, headers, record_time. The type
of `headers` is that of Kafka's source: a block has pairs in an order, and may have a name twice,
which a map could not; and its names are UTF-8.
"""


def schema_of(options: ReadOptions) -> StructType:
    """The columns that the options ask for."""
    return StructType([StructField(name, FIELDS[name]) for name in options.columns])


class LogServiceDataSource(DataSource):
    """``spark.read.format("logservice")``; options in `pyspark_logservice.options`."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "logservice"

    @in_one_line()
    def schema(self) -> StructType:
        """One row per record; with includeGaps one per LSN."""
        return schema_of(parse_options(self.options, Use.ANY))

    @in_one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for a batch query."""
        options = self._checked(schema, Use.BATCH)
        # Spark refuses every read of a reader that takes conditions when that is not switched on.
        return PushedReader(options) if options.push_filters else LogReader(options)

    @in_one_line()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader for a streaming query."""
        options = self._checked(schema, Use.STREAM)
        try:
            from pyspark_logservice.stream import LogStreamReader
        except ImportError as error:
            # Its interface for limits came with 4.2; without one, a query would read everything
            # that there is in its first micro-batch.
            raise OptionError("streaming queries need Spark 4.2 or newer") from error
        return LogStreamReader(options)

    @in_one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer for a batch."""
        from pyspark_logservice.writing.writer import LogWriter, check_logs

        _only_appends(overwrite=overwrite)
        options = parse_write_options(self.options, stream=False)
        writer = LogWriter(options, schema)
        check_logs(options)
        return writer

    @in_one_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A writer for a streaming query."""
        from pyspark_logservice.writing.writer import LogStreamWriter, check_logs

        _only_appends(overwrite=overwrite)
        options = parse_write_options(self.options, stream=True)
        writer = LogStreamWriter(options, schema)
        check_logs(options)
        return writer

    def _checked(self, schema: StructType, use: Use) -> ReadOptions:
        options = parse_options(self.options, use)
        fixed = schema_of(options)
        if schema != fixed:
            raise OptionError(f"the schema is fixed: {fixed.simpleString()}")
        return options


def _only_appends(*, overwrite: bool) -> None:
    if overwrite:
        raise OptionError("a log is appended to: mode 'append', and output mode 'append'")


class LogReader(DataSourceReader):
    """Reads fixed LSN ranges, one per task."""

    def __init__(self, options: ReadOptions) -> None:
        """No I/O: this runs in several processes."""
        self._options = options
        self._wanted = EVERYTHING

    @in_one_line()
    def partitions(self) -> Sequence[InputPartition]:
        """Ask where the logs stand and cut what is to be read."""
        return [InputPartition(piece) for piece in plan(self._options, self._wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, as Arrow batches."""
        return rows(self._options, partition.value, self._wanted)


class PushedReader(LogReader):
    """Takes the conditions of a query on what it knows of a row before its value."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take conditions; those that are returned are for Spark."""
        left = []
        for condition in filters:
            met = self._wanted.met(condition)
            if met is None:
                left.append(condition)
            else:
                self._wanted = met
        return left
