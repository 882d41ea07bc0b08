"""Columns of a write: ``value``; which log a row is for, by ``shard`` or by ``name``; and what else
a record may have: ``key``, ``timestamp`` and ``headers``.

A column that is not known is refused: a value that would be left out in silence is lost. Spark says
which columns there are before it runs anything, so this is judged on the driver.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_logservice.writing.options import WriteOptions

VALUE: Final = "value"
SHARD: Final = "shard"
NAME: Final = "name"
KEY: Final = "key"
TIMESTAMP: Final = "timestamp"
HEADERS: Final = "headers"

MORE: Final = (KEY, TIMESTAMP, HEADERS)
"""Columns that make wide blocks, in the order that `blocks` has them."""

_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    VALUE: (BinaryType, StringType),
    KEY: (BinaryType, StringType),
    TIMESTAMP: (TimestampType,),
    SHARD: (LongType, IntegerType, ShortType, ByteType),
    NAME: (StringType,),
}

_HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)


class ColumnError(ValueError):
    """The frame has a column that cannot be written, or lacks one; or a row has such a value."""


def routing_column(schema: StructType, options: WriteOptions) -> str:
    """The column that says which log a row is for; "" when there is one log. Raises ColumnError."""
    for field in schema.fields:
        if field.name == HEADERS:
            _check_headers(field.dataType)
            continue
        types = _TYPES.get(field.name)
        if types is None:
            raise ColumnError(
                f"column {field.name!r} cannot be written; a row is 'value', and 'shard' or "
                "'name', 'key', 'timestamp', 'headers' where there are such"
            )
        if not isinstance(field.dataType, types):
            wanted = " or ".join(one().simpleString() for one in types)
            raise ColumnError(
                f"column {field.name!r} is {field.dataType.simpleString()}, not {wanted}"
            )
    names = schema.fieldNames()
    if VALUE not in names or len(set(names)) < len(names):
        raise ColumnError("a row has one column 'value'")
    if SHARD in names and NAME in names:
        raise ColumnError("columns 'shard' and 'name' exclude each other")
    routing = SHARD if SHARD in names else NAME if NAME in names else ""
    if not routing and len(options.logs) > 1:
        raise ColumnError("with several logs, a column 'shard' or 'name' says where a row goes")
    if routing == NAME and any(log.isdecimal() for log in options.logs):
        raise ColumnError("with a column 'name', option 'shards' has names, not ids")
    return routing


def more_columns(schema: StructType) -> tuple[str, ...]:
    """Which columns of MORE the frame has: then its blocks are wide ones, null or not."""
    return tuple(name for name in MORE if name in schema.fieldNames())


def _check_headers(found: DataType) -> None:
    """They are as Kafka's source has them. Whether a null may be there is for the rows."""
    pair = found.elementType if isinstance(found, ArrayType) else None
    fields = pair.fields if isinstance(pair, StructType) else []
    if [(one.name, type(one.dataType)) for one in fields] != [
        ("key", StringType),
        ("value", BinaryType),
    ]:
        wanted = _HEADERS.simpleString()
        raise ColumnError(f"column {HEADERS!r} is {found.simpleString()}, not {wanted}")
