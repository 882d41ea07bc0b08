r"""The record of the log: one change of one row, in JSON, or the mark that a transaction is whole.

=====  ============================================================================================
op     what it says
=====  ============================================================================================
``B``  everything that was there before is void: a copy of all tables begins
``K``  the columns of each table's key, from here on (`keys`)
``R``  a row of that copy
``I``  an insert: `row` is the whole row
``U``  an update: the columns in `row` have these values, the others those that they had
``D``  a delete
``T``  a truncate: all rows of this table go
``C``  all changes since the mark before are one whole, a transaction or a copy
=====  ============================================================================================

``commit`` is the position in PostgreSQL's WAL of the transaction's commit record, ``seq`` counts
its changes from 0. ``key`` is the row's key: the values of its columns, as a list in JSON, in a
text. ``row`` has its columns by name; a value is PostgreSQL's text for it, or null. A mark has
``end``: everything that was committed before this position is in the log. It is also the position
from which PostgreSQL is asked on. ``keys`` is the LSN of the newest ``K``.

    {"op":"U","commit":23734784,"seq":1,"schema":"public","table":"t","key":"[\"7\"]","row":{...}}

The record's key in the log is the table and the row's key; it is null where there is no row.

INV-PG-CHANGES: behind a ``B`` each change is in the log once, in PostgreSQL's order: commits grow
from transaction to transaction, and sequences are without holes within one. Readers count what lies
before the last mark. What lies behind it is a part of something, and the rest of it may never come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

BEGIN_COPY: Final = "B"
KEYS: Final = "K"
COPIED: Final = "R"
INSERT: Final = "I"
UPDATE: Final = "U"
DELETE: Final = "D"
TRUNCATE: Final = "T"
MARK: Final = "C"

MARK_PREFIX: Final = b'{"op":"C",'
"""A mark is told by its beginning."""


class ChangeError(Exception):
    """A record that is no change."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change. See the table above for what an op has."""

    op: str
    commit: int
    seq: int
    schema: str = ""
    table: str = ""
    key: str | None = None
    row: Mapping[str, str | None] | None = None

    def encode(self) -> bytes:
        """The record."""
        fields: dict[str, object] = {"op": self.op, "commit": self.commit, "seq": self.seq}
        if self.table:
            fields |= {"schema": self.schema, "table": self.table}
        if self.key is not None:
            fields["key"] = self.key
        if self.row is not None:
            fields["row"] = self.row
        return _text(fields)

    def record_key(self) -> bytes | None:
        """The key that the record has in the log."""
        if self.key is None:
            return None
        return f"{self.schema}.{self.table} {self.key}".encode()


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything before is whole. `changes`: how many of them; `system`: PostgreSQL's identifier of
    the database system; `time_us`: of the commit, microseconds since 1970; `keys`: the LSN of the
    newest ``K``.
    """

    commit: int
    end: int
    changes: int
    system: int
    time_us: int
    keys: int = 0

    def encode(self) -> bytes:
        """The record. It begins with MARK_PREFIX."""
        return _text(
            {
                "op": MARK,
                "commit": self.commit,
                "seq": self.changes,
                "end": self.end,
                "system": str(self.system),  # beyond what a JSON number is good for
                "time": self.time_us,
                "keys": self.keys,
            }
        )

    def record_key(self) -> None:
        """It is of no row."""


Entry = Change | Mark


def key_of(values: Sequence[str | None]) -> str:
    """The text that stands for a row's key."""
    return _text(values).decode()


def decode(record: bytes) -> Entry:
    """What a record says. Raises ChangeError."""
    try:
        found: dict[str, Any] = json.loads(record)
        op, commit, seq = found["op"], found["commit"], found["seq"]
        if op == MARK:
            system, time_us = int(found["system"]), found["time"]
            return Mark(commit, found["end"], seq, system, time_us, found["keys"])
        schema, table = found.get("schema", ""), found.get("table", "")
        return Change(op, commit, seq, schema, table, found.get("key"), found.get("row"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ChangeError(f"a record of the log is no change of PostgreSQL: {error!r}") from error


def _text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
