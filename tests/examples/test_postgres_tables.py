"""A Delta table of changes, beside a table that is kept by hand."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from examples.postgres_changes import delta_table
from examples.postgres_changes.change import Change, Entry, Mark
from examples.postgres_changes.delta_table import KEY, Follow, whole
from tests.examples.changing_table import Table, filled, generated


def rows_of(entries: list[Entry]) -> pa.Table:
    return pa.table({"value": pa.array([one.encode() for one in entries], pa.binary())})


def properties(number: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction("app", number)])


def in_delta(uri: str) -> Table:
    found = DeltaTable(uri).to_pyarrow_table()
    rows = found.to_pylist()
    assert len({row[KEY] for row in rows}) == len(rows)
    return {row.pop(KEY): row for row in rows}


@pytest.mark.parametrize("seed", range(6))
def test_a_delta_table_is_what_the_table_was(tmp_path: Path, seed: int) -> None:
    """After each commit, each of which ends with a mark."""
    entries, states = generated(seed, 40)
    chance = random.Random(seed)
    uri = str(tmp_path / "t")
    delta_table.create(uri)
    follow, begin, at = Follow("public", "t"), 0, -1
    while begin < len(entries):
        end = begin
        for _ in range(chance.randint(1, 6)):
            while end < len(entries) and not isinstance(entries[end], Mark):
                end += 1
            end, at = min(end + 1, len(entries)), at + (end < len(entries))
        follow(DeltaTable(uri), rows_of(entries[begin:end]), properties(end))
        found = DeltaTable(uri)
        assert found.transaction_version("app") == end
        columns = [one.name for one in found.schema().fields if one.name != KEY]
        assert in_delta(uri) == filled(states[at], columns)
        begin = end
    assert at == len(states) - 1


def test_deletes_of_what_is_not_there_move_the_position(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    delta_table.create(uri)
    follow = Follow("public", "t")
    come = Change("I", 1, 0, "public", "t", "1", {"a": "x"})
    follow(DeltaTable(uri), rows_of([come]), properties(1))
    gone = [Change("D", 2, 0, "public", "t", "2"), Mark(2, 3, 1, 7, 0)]
    follow(DeltaTable(uri), rows_of([*gone]), properties(3))
    assert DeltaTable(uri).transaction_version("app") == 3
    assert in_delta(uri) == {"1": {"a": "x"}}


def test_what_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    change, mark = Change("I", 1, 0, "public", "t", "1", {"a": "x"}), Mark(1, 2, 1, 7, 0)
    assert whole(rows_of([change, change])) == 0
    assert whole(rows_of([change, mark])) == 2
    assert whole(rows_of([change, mark, mark, change])) == 3
    large = rows_of([change, change, change])
    monkeypatch.setattr(delta_table, "WHOLE_BYTES_MAX", large["value"].nbytes)
    assert whole(large) == 0
    assert whole(rows_of([change] * 4)) == 4
