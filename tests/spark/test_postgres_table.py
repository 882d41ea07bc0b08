"""The example of a table on Spark that follows PostgreSQL, beside a table that is kept by hand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.postgres_changes.change import Mark
from tests.examples.changing_table import filled, generated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_sparks_table_is_what_the_table_was(tmp_path: Path, spark: SparkSession) -> None:
    """With micro-batches that end anywhere, one of them done three times."""
    from examples.postgres_changes.spark_table import KEPT_BATCHES, Sink, Tables

    entries, states = generated(1, 40)
    tables = Tables(tmp_path, spark)
    sink = Sink(tables, "public", "t")
    chance, begin, number = random.Random(1), 0, 0
    while begin < len(entries):
        end = min(len(entries), begin + chance.randint(1, 60))
        rows = [(lsn + 1, entries[lsn].encode()) for lsn in range(begin, end)]
        batch = spark.createDataFrame(rows, "lsn BIGINT, value BINARY")
        for _ in range(3 if number == 2 else 1):
            sink.take(batch, number)
        marks = sum(isinstance(one, Mark) for one in entries[:end])
        found = {row["key"]: dict(row["row"]) for row in tables.rows(number).collect()}
        columns = ["id", "a", 'odd "name"', "late"]
        expected = states[marks - 1] if marks else {}
        assert filled(found, columns) == filled(expected, columns)
        begin, number = end, number + 1
    assert tables.finished() == [number - KEPT_BATCHES, number - 1]
