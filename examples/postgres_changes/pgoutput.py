"""What PostgreSQL's plugin `pgoutput` says, version 1: committed transactions, one after the other.

A function of bytes. What is not in its form is a ProtocolError. Texts are UTF-8, since the
connection asks for that. A value is a text, NULL (None), or `KEPT`: a large value that an update
did not touch, which PostgreSQL does not read again for us.

References: PostgreSQL's documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from examples.postgres.protocol import EPOCH_2000_S, ProtocolError


class Kept(enum.Enum):
    """A value that stays what it was."""

    KEPT = enum.auto()


KEPT: Final = Kept.KEPT

Values = tuple[str | Kept | None, ...]
"""Of a row, in the order of its relation's columns."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins. `commit`: the position of its commit record."""

    commit: int


@dataclass(frozen=True, slots=True)
class Commit:
    """And ends. `end`: the position behind its commit record."""

    commit: int
    end: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is from here on. `identity`: what an update or a delete tells of the old row:
    ``d`` its primary key, ``i`` the columns of an index, ``f`` all of it, ``n`` nothing.
    """

    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[str, ...]
    identifying: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    """A row comes."""

    oid: int
    new: Values


@dataclass(frozen=True, slots=True)
class Update:
    """A row changes. `old`: what identifies it, or all of it; None: its identity did not change."""

    oid: int
    old: Values | None
    new: Values


@dataclass(frozen=True, slots=True)
class Delete:
    """A row goes."""

    oid: int
    old: Values


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of these tables go."""

    oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """Something that changes no row: a type, an origin."""


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other


def decode(data: bytes) -> Message:
    """The message. Raises ProtocolError."""
    reading = _Reading(data)
    try:
        read = _READERS.get(reading.letter())
        if read is None:
            raise ProtocolError(f"pgoutput says {data[:1]!r}")
        found = read(reading)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise ProtocolError(f"a message {data[:1]!r} of pgoutput without form: {error}") from error
    if not isinstance(found, Other) and not reading.at_end:
        raise ProtocolError(f"a message {data[:1]!r} of pgoutput with something behind it")
    return found


class _Reading:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def numbers(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def letter(self) -> str:
        return chr(self.numbers(">B")[0])

    def bytes(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError("it ends early")
        self._at += count
        return self._data[self._at - count : self._at]

    def text(self) -> str:
        found = self.bytes(self._data.index(b"\0", self._at) - self._at).decode()
        self._at += 1
        return found

    def values(self) -> Values:
        (count,) = self.numbers(">H")
        return tuple(self._value() for _ in range(count))

    def _value(self) -> str | Kept | None:
        match self.letter():
            case "n":
                return None
            case "u":
                return KEPT
            case "t":
                (length,) = self.numbers(">i")
                return self.bytes(length).decode()
            case kind:
                raise ValueError(f"a value of kind {kind!r}")

    def expect(self, letter: str) -> None:
        if self.letter() != letter:
            raise ValueError(f"{letter} is missing")


def _begin(reading: _Reading) -> Message:
    commit, _, _ = reading.numbers(">QqI")
    return Begin(commit)


def _commit(reading: _Reading) -> Message:
    _, commit, end, time = reading.numbers(">BQQq")
    return Commit(commit, end, time + EPOCH_2000_S * 1_000_000)


def _relation(reading: _Reading) -> Message:
    (oid,) = reading.numbers(">I")
    schema, table, identity = reading.text(), reading.text(), reading.letter()
    columns, identifying = [], []
    (count,) = reading.numbers(">H")
    for _ in range(count):
        (flags,) = reading.numbers(">B")
        columns.append(reading.text())
        identifying.append(bool(flags & 1))
        reading.numbers(">Ii")
    # What has no schema in the stream is in pg_catalog.
    return Relation(
        oid, schema or "pg_catalog", table, identity, tuple(columns), tuple(identifying)
    )


def _insert(reading: _Reading) -> Message:
    (oid,) = reading.numbers(">I")
    reading.expect("N")
    return Insert(oid, reading.values())


def _update(reading: _Reading) -> Message:
    (oid,) = reading.numbers(">I")
    kind, old = reading.letter(), None
    if kind in "KO":
        old, kind = reading.values(), reading.letter()
    if kind != "N":
        raise ValueError("N is missing")
    return Update(oid, old, reading.values())


def _delete(reading: _Reading) -> Message:
    (oid,) = reading.numbers(">I")
    if reading.letter() not in "KO":
        raise ValueError("K or O is missing")
    return Delete(oid, reading.values())


def _truncate(reading: _Reading) -> Message:
    count, _ = reading.numbers(">IB")
    return Truncate(tuple(reading.numbers(">I")[0] for _ in range(count)))


_READERS: Final[dict[str, Callable[[_Reading], Message]]] = {
    "B": _begin,
    "C": _commit,
    "R": _relation,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
    "O": lambda _: Other(),
    "Y": lambda _: Other(),
}
