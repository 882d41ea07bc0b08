"""From what `pgoutput` says to changes.

A row is known by its key: the primary key, or the columns of `REPLICA IDENTITY USING INDEX`. With
`REPLICA IDENTITY FULL` the stream does not say which columns those are; then the catalog is asked,
as it is now (`Keys`). A table whose rows nothing tells apart is refused.

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

Keys = Callable[[str, str], Awaitable[tuple[str, ...]]]
"""The key columns of a table (schema, name), in the order of its columns; () when it has none."""

FULL = "f"


class ShippingRefused(Exception):
    """What PostgreSQL has cannot be told truly. Another try changes nothing."""


class Transactions:
    """The changes of one stream. Feed it every message."""

    def __init__(self, system: int, keys: Keys) -> None:
        self._system = system
        self._keys = keys
        self._relations: dict[int, tuple[Relation, tuple[str, ...]]] = {}
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
                self._relations[message.oid] = message, await self._key_columns(message)
                return []
            case Other():
                return []
            case Begin() | Commit():
                raise ProtocolError(f"pgoutput says {message} in the middle of something else")
        if self._commit is None:
            raise ProtocolError(f"pgoutput says {message} outside of a transaction")
        return [self._numbered(change) for change in self._changes(message)]

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

    async def _key_columns(self, relation: Relation) -> tuple[str, ...]:
        columns, identifying = relation.columns, relation.identifying
        if relation.identity == FULL:
            found = await self._keys(relation.schema, relation.table)
        else:
            found = tuple(name for name, is_key in zip(columns, identifying, strict=True) if is_key)
        if not found or not set(found) <= set(columns):
            raise ShippingRefused(
                f"{relation.schema}.{relation.table} has no primary key in the publication, so its"
                " rows are not told apart"
            )
        return found

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
                return [_change(TRUNCATE, self._relation(oid)[0], None) for oid in oids]
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

    def _relation(self, oid: int) -> tuple[Relation, tuple[str, ...]]:
        found = self._relations.get(oid)
        if found is None:
            raise ProtocolError(f"pgoutput has not said what relation {oid} is")
        return found

    def _row(self, oid: int, values: Values) -> tuple[Relation, dict[str, str | None]]:
        """The row by the names of its columns, without what is kept."""
        relation, _ = self._relation(oid)
        if len(values) != len(relation.columns):
            raise ProtocolError(f"a row of {len(values)} columns for {relation.table}")
        named = zip(relation.columns, values, strict=True)
        return relation, {name: value for name, value in named if value is not KEPT}

    def _key(self, oid: int, row: Mapping[str, str | None]) -> str:
        relation, columns = self._relation(oid)
        if not all(name in row for name in columns):
            raise ShippingRefused(f"{relation.schema}.{relation.table}: a key is not in the stream")
        return text_of_key([row[name] for name in columns])


def _change(
    op: str, relation: Relation, key: str | None, row: Mapping[str, str | None] | None = None
) -> Change:
    return Change(op, 0, 0, relation.schema, relation.table, key, row)
