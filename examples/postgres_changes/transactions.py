"""From what `pgoutput` says to changes.

A row is known by its key (`keys`): the columns that the stream marks. With `REPLICA IDENTITY FULL`
it marks all, and the catalog is asked. A table whose rows nothing tells apart is refused, and so is
one whose key is not of the columns that the log has it by (INV-PG-KEYS).

An update that changes the key is a delete and an insert. A large value that an update did not touch
(`KEPT`) is not in the stream; it comes from the old row where the identity is FULL, and else is
left out of the record, which says the same: it stays. Only where the key changes as well the old
row's value would have to be found by a reader in another row. That is refused, in words, and not
left to readers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from examples.postgres.protocol import ProtocolError
from examples.postgres_changes.change import DELETE, INSERT, TRUNCATE, UPDATE, Change, Entry, Mark
from examples.postgres_changes.change import key_of as text_of_key
from examples.postgres_changes.keys import Columns, Keys, keyless, record_of_keys, rekeyed
from examples.postgres_changes.pgoutput import (
    KEPT,
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Other,
    Relation,
    Truncate,
    Update,
    Values,
)

Asked = Callable[[str, str], Awaitable[Columns]]
"""The catalog's primary key of a table (schema, name), as it is now."""

FULL = "f"


class ShippingRefused(Exception):
    """What PostgreSQL has cannot be told truly. Another try changes nothing."""


class Transactions:
    """The changes of one stream. Feed it every message. `keys`: those that the log has."""

    def __init__(self, system: int, keys: Keys, asked: Asked) -> None:
        self._system = system
        self._keys = dict(keys)
        self._asked = asked
        self._relations: dict[int, Relation] = {}
        self._columns: dict[int, Columns] = {}
        self._commit: int | None = None
        self._seq = 0

    @property
    def open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._commit is not None

    async def take(self, message: Message) -> list[Entry]:
        """What comes of it. Raises ShippingRefused, ProtocolError."""
        match message:
            case Begin(commit) if self._commit is None:
                self._commit, self._seq = commit, 0
                return []
            case Commit(commit, end, time_us) if commit == self._commit:
                self._commit = None
                # One without a change for us needs no mark.
                return [Mark(commit, end, self._seq, self._system, time_us)] if self._seq else []
            case Relation():
                self._relations[message.oid] = message
                self._columns.pop(message.oid, None)
                return []
            case Other():
                return []
            case Begin() | Commit():
                raise ProtocolError(f"pgoutput says {message} in the middle of something else")
        if self._commit is None:
            raise ProtocolError(f"pgoutput says {message} outside of a transaction")
        oids = message.oids if isinstance(message, Truncate) else (message.oid,)
        first = [entry for oid in oids for entry in await self._named(oid)]
        return [*first, *(self._numbered(change) for change in self._changes(message))]

    async def _named(self, oid: int) -> list[Entry]:
        """What comes before a change of this table: INV-PG-KEYS. PostgreSQL says what a relation
        is also where no row of it follows, e.g. of a partition whose rows are its table's.
        """
        if oid in self._columns:
            return []
        relation = self._relation(oid)
        name = relation.schema, relation.table
        found = await self._key_columns(relation)
        known = self._keys.get(name)
        if known is not None and found and found != known:
            raise ShippingRefused(rekeyed(*name, known, found))
        if not found or not set(found) <= set(relation.columns):
            raise ShippingRefused(keyless(*name))
        self._columns[oid] = found
        if known is not None:
            return []
        self._keys[name] = found
        return [self._numbered(record_of_keys(self._keys, 0, 0))]

    def _numbered(self, change: Change) -> Change:
        self._seq += 1
        assert self._commit is not None
        return Change(
            change.op,
            self._commit,
            self._seq - 1,
            change.schema,
            change.table,
            change.key,
            change.row,
        )

    async def _key_columns(self, relation: Relation) -> Columns:
        if relation.identity == FULL:
            return await self._asked(relation.schema, relation.table)
        marked = zip(relation.columns, relation.identifying, strict=True)
        return tuple(name for name, is_key in marked if is_key)

    def _changes(self, message: Message) -> list[Change]:
        match message:
            case Insert(oid, new):
                relation, row = self._row(oid, new)
                return [_change(INSERT, relation, self._key(oid, row), row)]
            case Update(oid, old, new):
                return self._update(oid, old, new)
            case Delete(oid, old):
                relation, row = self._row(oid, old)
                return [_change(DELETE, relation, self._key(oid, row))]
            case Truncate(oids):
                return [_change(TRUNCATE, self._relation(oid), None) for oid in oids]
        raise ProtocolError(f"pgoutput says {message}")

    def _update(self, oid: int, old: Values | None, new: Values) -> list[Change]:
        relation, row = self._row(oid, new)
        before: Mapping[str, str | None] = {}
        if old is not None:
            _, before = self._row(oid, old)
            if relation.identity == FULL:
                row = {**before, **row}
        key = self._key(oid, row)
        key_before = key if old is None else self._key(oid, before)
        if key == key_before:
            return [_change(UPDATE, relation, key, row)]
        if len(row) < len(relation.columns):
            raise ShippingRefused(
                f"{relation.schema}.{relation.table}: the row {key_before} became {key} and keeps a"
                " large value that the stream does not have; a table where keys change needs"
                " REPLICA IDENTITY FULL. Set it, and make a new copy"
            )
        return [_change(DELETE, relation, key_before), _change(INSERT, relation, key, row)]

    def _relation(self, oid: int) -> Relation:
        found = self._relations.get(oid)
        if found is None:
            raise ProtocolError(f"pgoutput has not said what relation {oid} is")
        return found

    def _row(self, oid: int, values: Values) -> tuple[Relation, dict[str, str | None]]:
        """The row by the names of its columns, without what is kept."""
        relation = self._relation(oid)
        if len(values) != len(relation.columns):
            raise ProtocolError(f"a row of {len(values)} columns for {relation.table}")
        named = zip(relation.columns, values, strict=True)
        return relation, {name: value for name, value in named if value is not KEPT}

    def _key(self, oid: int, row: Mapping[str, str | None]) -> str:
        relation, columns = self._relation(oid), self._columns[oid]
        # A partition may have a replica identity of its own: other columns of the old row are null.
        if any(row.get(name) is None for name in columns):
            raise ShippingRefused(f"{relation.schema}.{relation.table}: a key is not in the stream")
        return text_of_key([row[name] for name in columns])


def _change(
    op: str, relation: Relation, key: str | None, row: Mapping[str, str | None] | None = None
) -> Change:
    return Change(op, 0, 0, relation.schema, relation.table, key, row)
