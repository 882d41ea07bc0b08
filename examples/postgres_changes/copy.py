"""The copy of all tables, with which a log begins: their rows as they were at one position.

PostgreSQL makes the slot, and with it a snapshot of the database at just the position from which
the slot streams. So a change is in the copy or in the stream, and never in both.

The copy is one whole with a mark at its end. Its first record says that everything before is void.
One that was not finished is begun anew, with a new slot, since a snapshot dies with its connection.
So that such a beginning leaves no records behind, nothing is appended before PostgreSQL has sent
every row and the snapshot has ended: until then the records are in a file (`spool`). Only a shipper
or a log that fails while the file is appended leaves a part of a copy.
"""

from __future__ import annotations

import time
from typing import Final

from examples.postgres.protocol import (
    INSUFFICIENT_PRIVILEGE,
    ProtocolError,
    ServerError,
    quoted,
)
from examples.postgres.replication import Connection
from examples.postgres.wal_position import position_of
from examples.postgres_changes import catalog
from examples.postgres_changes.appends import APPEND_BYTES_MAX, Appends, Record, record_of
from examples.postgres_changes.catalog import Published
from examples.postgres_changes.change import BEGIN_COPY, COPIED, Change, Entry, Mark, key_of
from examples.postgres_changes.keys import Columns, Keys, keyless, record_of_keys
from examples.postgres_changes.spool import Spool
from examples.postgres_changes.transactions import ShippingRefused

_SNAPSHOT: Final = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class Copy:
    """One copy, through a connection with `replication=database`."""

    def __init__(
        self, connection: Connection, appends: Appends, slot: str, publication: str, system: int
    ) -> None:
        self._connection = connection
        self._appends = appends
        self._slot = slot
        self._publication = publication
        self._system = system
        self._spool = Spool()
        self._batch: list[Record] = []
        self._bytes = 0
        self._position = self._count = 0

    async def run(self) -> Mark:
        """Make the slot anew, and copy. The log's new last mark. Raises ShippingRefused,
        ServerError, ConnectionLost, OSError, and errors of the log.
        """
        with self._spool:
            mark = await self._read()
            async for batch in self._spool.batches():
                await self._appends.append(batch)
        return mark

    async def _read(self) -> Mark:
        """Everything into the spool."""
        if not await catalog.has_publication(self._connection, self._publication):
            raise ShippingRefused(f"the database has no publication {self._publication!r}")
        if await catalog.slot(self._connection, self._slot) is not None:
            await self._connection.query(f"DROP_REPLICATION_SLOT {quoted(self._slot)} WAIT")
        await self._connection.query(_SNAPSHOT)
        self._position = await self._make_slot()
        tables = await catalog.published(self._connection, self._publication)
        keys = await self._keys(tables)
        keys_lsn = self._appends.next_lsn + 1
        await self._put(Change(BEGIN_COPY, self._position, 0))
        await self._put(record_of_keys(keys, self._position, 1))
        for table in tables:
            await self._copy(table, keys[table.schema, table.table])
        mark = Mark(
            self._position,
            self._position,
            self._count,
            self._system,
            time.time_ns() // 1000,
            keys_lsn,
        )
        await self._put(mark)
        await self._flush()
        await self._connection.query("COMMIT")
        return mark

    async def _make_slot(self) -> int:
        """The position of the snapshot, and of the slot."""
        answer = await self._connection.query(
            f"CREATE_REPLICATION_SLOT {quoted(self._slot)} LOGICAL pgoutput (SNAPSHOT 'use')"
        )
        try:
            return position_of((answer.rows[0][1] or b"").decode())
        except (IndexError, ValueError) as error:
            raise ProtocolError(f"the server makes a slot and says {answer.rows}") from error

    async def _keys(self, tables: list[Published]) -> Keys:
        known = await catalog.keys_of_all(self._connection, self._publication)
        found: Keys = {}
        for one in tables:
            columns = known.get((one.schema, one.table), ())
            if not columns or not set(columns) <= set(one.columns):
                raise ShippingRefused(keyless(one.schema, one.table))
            found[one.schema, one.table] = columns
        return found

    async def _copy(self, table: Published, keys: Columns) -> None:
        try:
            async for values in self._connection.rows(table.query()):
                await self._put_row(table, keys, values)
        except ServerError as error:
            if error.code != INSUFFICIENT_PRIVILEGE:
                raise
            raise ShippingRefused(
                f"{table.schema}.{table.table}: {error}; the role needs SELECT on it, and BYPASSRLS"
                " where it has row level security"
            ) from error

    async def _put_row(self, table: Published, keys: Columns, values: list[bytes | None]) -> None:
        texts = [None if value is None else value.decode() for value in values]
        row = dict(zip(table.columns, texts, strict=True))
        key = key_of([row[name] for name in keys])
        await self._put(
            Change(COPIED, self._position, self._count, table.schema, table.table, key, row)
        )

    async def _put(self, entry: Entry) -> None:
        record = record_of(entry)
        if self._batch and self._bytes + record.size > APPEND_BYTES_MAX:
            await self._flush()
        self._batch.append(record)
        self._bytes += record.size
        self._count += 1

    async def _flush(self) -> None:
        await self._spool.put(self._batch)
        self._batch, self._bytes = [], 0
