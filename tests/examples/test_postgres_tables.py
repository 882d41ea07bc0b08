"""A Delta table of changes, beside a table that is kept by hand."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from examples.postgres_changes import delta_table
from examples.postgres_changes.change import Change, ChangeError, Entry, Mark
from examples.postgres_changes.delta_table import KEY, SCHEMA, Follow, whole
from tests.examples.changing_table import Table, filled, generated


def made(uri: str) -> None:
    DeltaTable.create(uri, SCHEMA)


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
    made(uri)
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
    made(uri)
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


OWN_NAMES = [
    "_gone",
    "_stays_0",
    "_stays_1",
    "key",
    "gone",
    "c0",
    "c1",
    "stays0",
    "s",
    "t",
    's"."c0',
]


def test_columns_that_are_called_as_the_tool_s_own(tmp_path: Path) -> None:
    """Also where an update leaves some of them as they are."""
    uri = str(tmp_path / "t")
    made(uri)
    follow = Follow("public", "t")
    row: dict[str, str | None] = {name: f"1 {name}" for name in OWN_NAMES}
    change = {"s": "new", "_gone": None}
    entries: list[list[Entry]] = [
        [Change("I", 1, 0, "public", "t", "1", row), Change("I", 1, 1, "public", "t", "2", row)],
        [Change("U", 2, 0, "public", "t", "1", change), Change("D", 2, 1, "public", "t", "2")],
    ]
    for number, some in enumerate(entries):
        follow(DeltaTable(uri), rows_of(some), properties(number + 1))
    assert in_delta(uri) == {"1": row | change}


@pytest.mark.parametrize("name", ["_key", "_KEY"])
def test_a_column_that_is_called_as_the_key_is_refused(tmp_path: Path, name: str) -> None:
    uri = str(tmp_path / "t")
    made(uri)
    change = Change("I", 1, 0, "public", "t", "1", {name: "x"})
    with pytest.raises(ChangeError, match=r"public\.t has a column '_(key|KEY)'.*rename"):
        Follow("public", "t")(DeltaTable(uri), rows_of([change]), properties(1))
    assert DeltaTable(uri).version() == 0


def test_columns_that_differ_in_case_are_an_error(tmp_path: Path) -> None:
    """A table of Delta does not tell them apart."""
    uri = str(tmp_path / "t")
    made(uri)
    change = Change("I", 1, 0, "public", "t", "1", {"a": "x", "A": "y"})
    with pytest.raises(DeltaError):
        Follow("public", "t")(DeltaTable(uri), rows_of([change]), properties(1))
