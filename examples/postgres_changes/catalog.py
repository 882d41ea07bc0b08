"""What is asked of PostgreSQL's catalog: keys, published tables, the slot.

One connection with `replication=database` is for all of it; it takes SQL, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from examples.postgres.protocol import literal, quoted
from examples.postgres.replication import Connection
from examples.postgres.wal_position import position_of
from examples.postgres_changes.keys import Keys

PARAMETERS: Final = {"replication": "database"}
"""Of the startup message, beside the database."""

_KEYS: Final = """
SELECT n.nspname, c.relname, a.attname FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_index i ON i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
 AND CASE c.relreplident WHEN 'i' THEN i.indisreplident WHEN 'n' THEN false ELSE i.indisprimary END
JOIN pg_attribute a ON a.attrelid = c.oid
 AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE {which}
ORDER BY a.attnum
"""
"""The columns that an index includes (`indkey` behind `indnkeyatts`) are no key, and a deferrable
index holds only at the end of a transaction: PostgreSQL's stream takes neither."""

_PUBLISHED: Final = """
SELECT p.schemaname, p.tablename, p.rowfilter, c.relkind, unnest(p.attnames)
FROM pg_publication_tables p
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE p.pubname = {publication}
"""


@dataclass(slots=True)
class Published:
    """A table, and what of it is published."""

    schema: str
    table: str
    filter: str
    partitioned: bool
    columns: list[str]

    def query(self) -> str:
        """SQL for its rows."""
        columns = ", ".join(map(quoted, self.columns))
        only = "" if self.partitioned else "ONLY "
        where = f" WHERE {self.filter}" if self.filter else ""
        return f"SELECT {columns} FROM {only}{quoted(self.schema)}.{quoted(self.table)}{where}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot. `confirmed`: what was committed before it is not streamed again."""

    plugin: str
    database: str
    confirmed: int


async def keys_of_all(connection: Connection, publication: str) -> Keys:
    """Those of a publication's tables. One without such columns is not among them."""
    return await _keys(
        connection,
        "(n.nspname, c.relname) IN (SELECT schemaname, tablename FROM pg_publication_tables"
        f" WHERE pubname = {literal(publication)})",
    )


async def keys_of(connection: Connection, schema: str, table: str) -> Keys:
    """Those of one table."""
    which = f"n.nspname = {literal(schema)} AND c.relname = {literal(table)}"
    return await _keys(connection, which)


async def _keys(connection: Connection, which: str) -> Keys:
    found: Keys = {}
    for row in (await connection.query(_KEYS.format(which=which))).rows:
        schema, table, column = map(_text, row)
        found[schema, table] = (*found.get((schema, table), ()), column)
    return found


async def published(connection: Connection, publication: str) -> list[Published]:
    """The tables of a publication, as the connection's transaction sees them."""
    found: dict[tuple[str, str], Published] = {}
    rows = (await connection.query(_PUBLISHED.format(publication=literal(publication)))).rows
    for row in rows:
        schema, table, where, kind, column = map(_text, row)
        one = found.setdefault((schema, table), Published(schema, table, where, kind == "p", []))
        one.columns.append(column)
    return list(found.values())


async def has_publication(connection: Connection, publication: str) -> bool:
    """Whether there is one of that name."""
    sql = f"SELECT 1 FROM pg_publication WHERE pubname = {literal(publication)}"
    return bool((await connection.query(sql)).rows)


async def slot(connection: Connection, name: str) -> Slot | None:
    """The logical slot of that name."""
    rows = (
        await connection.query(
            "SELECT plugin, database, confirmed_flush_lsn FROM pg_replication_slots"
            f" WHERE slot_name = {literal(name)}"
        )
    ).rows
    if not rows:
        return None
    plugin, database, confirmed = map(_text, rows[0])
    return Slot(plugin, database, position_of(confirmed) if confirmed else 0)


def _text(value: bytes | None) -> str:
    return (value or b"").decode()
