"""What a Delta table has, for its tests."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from logservice_delta.table import SCHEMA


def lsns(uri: str | Path, shard: int = 1) -> list[int]:
    """The LSNs of a log's rows, sorted, as often as they are there."""
    found = DeltaTable(str(uri)).to_pyarrow_table()
    return sorted(
        lsn
        for one, lsn in zip(found["shard"].to_pylist(), found["lsn"].to_pylist(), strict=True)
        if one == shard
    )


def values(uri: str | Path) -> dict[int, bytes]:
    """The values by LSN, of a table of one log."""
    found = DeltaTable(str(uri)).to_pyarrow_table()
    return dict(zip(found["lsn"].to_pylist(), found["value"].to_pylist(), strict=True))


def made_rows(first: int, last: int, shard: int = 1) -> pa.Table:
    """Rows as a log has them."""
    numbers = range(first, last + 1)
    return pa.table(
        {
            "shard": [shard] * len(numbers),
            "lsn": list(numbers),
            "term": [1] * len(numbers),
            "timestamp": [0] * len(numbers),
            "value": [b"record %d" % one for one in numbers],
            "key": [None] * len(numbers),
            "headers": [None] * len(numbers),
        },
        schema=SCHEMA,
    )
