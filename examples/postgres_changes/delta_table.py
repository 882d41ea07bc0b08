"""A Delta table that is what a table of PostgreSQL was, transaction by transaction.

Each commit of the Delta table ends with a mark of the log, so no reader sees half a transaction,
and it has the position in the log with it (`logservice_delta`): so each change takes effect once,
whatever is killed. Only a transaction of more than WHOLE_BYTES_MAX comes in pieces.

The columns are those of PostgreSQL, as texts, and `_key` before them. A column that PostgreSQL got
is added when the first row has it. One of that name is refused; whatever else a merge needs has
names that no column of PostgreSQL's meets, for its source has none of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from examples.postgres_changes.change import (
    BEGIN_COPY,
    DELETE,
    MARK_PREFIX,
    TRUNCATE,
    UPDATE,
    Change,
    ChangeError,
    decode,
)

KEY: Final = "_key"
SCHEMA: Final = pa.schema([pa.field(KEY, pa.string(), nullable=False)])
"""What a table begins with."""

WHOLE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Values of a transaction that is waited for in memory. What is larger comes in pieces."""

Row = Mapping[str, str | None]


def whole(rows: pa.Table) -> int:
    """How many of these rows of the log may be committed: up to the last mark."""
    marks = pc.indices_nonzero(pc.starts_with(rows["value"], MARK_PREFIX))
    if len(marks):
        return int(marks[-1].as_py()) + 1
    return len(rows) if rows["value"].nbytes > WHOLE_BYTES_MAX else 0


@dataclass(slots=True)
class Folded:
    """What changes come to. `cleared`: all rows that were there before go.

    `rows`: by key the whole new row, or what of it has changed (`parts`), or None: it goes.
    """

    cleared: bool = False
    rows: dict[str, Row | None] = field(default_factory=dict)
    parts: set[str] = field(default_factory=set)

    def take(self, change: Change) -> None:
        """The next one."""
        if change.op in (BEGIN_COPY, TRUNCATE):
            self.cleared = True
            self.rows.clear()
            self.parts.clear()
            return
        key = change.key or ""
        if change.op == DELETE:
            self.rows[key] = None
            self.parts.discard(key)
            return
        row = change.row or {}
        before = self.rows.get(key)
        if change.op == UPDATE and before is not None:
            self.rows[key] = {**before, **row}
            return
        self.rows[key] = row
        if change.op == UPDATE:
            self.parts.add(key)
        else:
            self.parts.discard(key)


def folded(values: Iterable[bytes], schema: str, table: str) -> Folded:
    """What these records come to for one table. Raises ChangeError."""
    found = Folded()
    for value in values:
        entry = decode(value)
        if not isinstance(entry, Change):
            continue
        if entry.op == BEGIN_COPY or (entry.schema, entry.table) == (schema, table):
            found.take(entry)
    return found


class Follow:
    """Puts changes of one of PostgreSQL's tables into a Delta table: a `LogTable`'s `write`."""

    def __init__(self, schema: str, table: str) -> None:
        self._schema = schema
        self._name = table

    def __call__(self, table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
        """One commit that takes the properties; columns that are new are added before it. Raises
        DeltaError, ChangeError.
        """
        changes = folded(rows["value"].to_pylist(), self._schema, self._name)
        columns = self._columns(table, changes)
        if changes.cleared:
            kept = {key: row for key, row in changes.rows.items() if row is not None}
            data = _rows(kept, columns)
            write_deltalake(table, data, mode="overwrite", commit_properties=properties)
            return
        before = table.version()
        if changes.rows:
            _merge(table, changes, columns, properties)
        if table.version() == before:  # a merge that finds nothing to do makes no commit
            data = _rows({}, columns)
            write_deltalake(table, data, mode="append", commit_properties=properties)

    def _columns(self, table: DeltaTable, changes: Folded) -> list[str]:
        """Those of the table, with new ones added to it."""
        known = [one.name for one in table.schema().fields if one.name != KEY]
        new: dict[str, None] = {}
        for row in changes.rows.values():
            new |= dict.fromkeys(row or ())
        for name in new:
            if name.lower() == KEY:
                raise ChangeError(
                    f"{self._schema}.{self._name} has a column {name!r}, and in {KEY!r} the table"
                    " has a row's key: rename it, or do not publish it"
                )
        fresh = [name for name in new if name not in known]
        if fresh:
            table.alter.add_columns(
                [Field(name, PrimitiveType("string"), nullable=True) for name in fresh]
            )
            table.update_incremental()
        return known + fresh


def _rows(rows: Mapping[str, Row], columns: list[str]) -> pa.Table:
    data = {KEY: pa.array(list(rows), pa.string())}
    for name in columns:
        data[name] = pa.array([row.get(name) for row in rows.values()], pa.string())
    return pa.table(data, _schema(columns))


def _schema(columns: list[str]) -> pa.Schema:
    return pa.schema([*SCHEMA, *(pa.field(name, pa.string()) for name in columns)])


def _merge(
    table: DeltaTable, changes: Folded, columns: list[str], properties: CommitProperties
) -> None:
    """Change by key. What an update did not say stays. The source's columns have names of their
    own: ``key``, ``gone``, and for each of the table's its number.
    """
    rows = {key: row or {} for key, row in changes.rows.items()}
    source: dict[str, pa.Array] = {
        "key": pa.array(list(rows), pa.string()),
        "gone": pa.array([row is None for row in changes.rows.values()], pa.bool_()),
    }
    updates, inserts = {}, {_quoted(KEY): "s.key"}
    for number, name in enumerate(columns):
        source[f"c{number}"] = pa.array([row.get(name) for row in rows.values()], pa.string())
        value = inserts[_quoted(name)] = f"s.c{number}"
        stays = [key in changes.parts and name not in row for key, row in rows.items()]
        if any(stays):
            source[f"stays{number}"] = pa.array(stays, pa.bool_())
            value = f"CASE WHEN s.stays{number} THEN t.{_quoted(name)} ELSE {value} END"
        updates[_quoted(name)] = value
    merge = table.merge(
        pa.table(source),
        f"t.{_quoted(KEY)} = s.key",
        source_alias="s",
        target_alias="t",
        commit_properties=properties,
    )
    merge = merge.when_matched_delete("s.gone")
    if updates:
        merge = merge.when_matched_update(updates)
    merge.when_not_matched_insert(inserts, predicate="NOT s.gone").execute()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
