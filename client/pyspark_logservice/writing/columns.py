"""Columns of a write: ``value``, and which log a row is for, by ``shard`` or by ``name``.

A column that is not known is refused: a value that would be left out in silence is lost. Spark says
which columns there are before it runs anything, so this is judged on the driver.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from pyspark_logservice.writing.options import WriteOptions

VALUE: Final = "value"
SHARD: Final = "shard"
NAME: Final = "name"

_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    VALUE: (BinaryType, StringType),
    SHARD: (LongType, IntegerType, ShortType, ByteType),
    NAME: (StringType,),
}

LATER: Final = ("key", "timestamp")
"""Columns of wide blocks, which a write does not make yet. They join `_TYPES`, and `blocks` takes
them beside the values, into the digest, too, and makes wide blocks where they are."""


class ColumnError(ValueError):
    """The frame has a column that cannot be written, or lacks one; or a row has such a value."""


def routing_column(schema: StructType, options: WriteOptions) -> str:
    """The column that says which log a row is for; "" when there is one log. Raises ColumnError."""
    for field in schema.fields:
        if field.name in LATER:
            raise ColumnError(f"column {field.name!r} cannot be written yet: records are values")
        types = _TYPES.get(field.name)
        if types is None:
            raise ColumnError(
                f"column {field.name!r} cannot be written; a row is 'value', and 'shard' or 'name'"
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
