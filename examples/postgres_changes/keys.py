"""Which columns tell a table's rows apart, and what the log says of it.

The key is the stream's: the columns that PostgreSQL's replica identity sends of an old row. The
copy asks the catalog for the same columns (`catalog`). A column that an index only includes is none
of them. With `REPLICA IDENTITY FULL` the stream marks every column; then the key is the primary key
of the catalog, as it is now.

Readers find a row by its key, and the log's keys are values without names. So a key of other
columns finds no row that the log has under the old one. Only a new copy makes that right, and
shipping ends with words. A session does not see what an earlier one has seen, hence the record
``K``: the key columns of all tables that the log has. It lies behind the beginning of a copy, and
again wherever a table comes that it does not name. Each mark has the LSN of the newest one.

INV-PG-KEYS: behind a ``B``, all keys of a table are of the same columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from examples.postgres_changes.change import KEYS, Change, ChangeError, key_of

Columns = tuple[str, ...]
"""Those that tell a table's rows apart, in the table's order; () when there are none."""

Keys = dict[tuple[str, str], Columns]
"""By schema and table."""


def record_of_keys(keys: Mapping[tuple[str, str], Columns], commit: int, seq: int) -> Change:
    """The record ``K``."""
    row = {key_of(name): key_of(columns) for name, columns in keys.items()}
    return Change(KEYS, commit, seq, row=row)


def keys_of_record(entry: object) -> Keys:
    """What a record ``K`` says. Raises ChangeError when it is another one."""
    if not isinstance(entry, Change) or entry.op != KEYS or entry.row is None:
        raise ChangeError("a mark names a record that has no keys")
    found: Keys = {}
    for name, columns in entry.row.items():
        schema, table = json.loads(name)
        found[schema, table] = tuple(json.loads(columns or "[]"))
    return found


def keyless(schema: str, table: str) -> str:
    """Why a table is refused."""
    return (
        f"{schema}.{table} has no published columns that tell its rows apart in the stream: give it"
        " a primary key that is not DEFERRABLE, or REPLICA IDENTITY USING INDEX, or take it out of"
        " the publication"
    )


def rekeyed(schema: str, table: str, known: Columns, found: Columns) -> str:
    """Why shipping ends."""
    return (
        f"{schema}.{table} has the key ({', '.join(found)}) now, and the rows of the log have the"
        f" key ({', '.join(known)}): make a new copy"
    )
