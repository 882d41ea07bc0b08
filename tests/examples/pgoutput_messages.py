"""What `pgoutput` would say, for tests: the bytes of its messages."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from examples.postgres_changes.pgoutput import KEPT, Kept

Value = str | Kept | None


def begin(commit: int) -> bytes:
    return b"B" + struct.pack(">QqI", commit, 1_000_000, 7)


def commit(at: int, end: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, at, end, 1_000_000)


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def relation(
    oid: int, table: str, columns: Sequence[str], keys: Sequence[str], identity: str = "d"
) -> bytes:
    found = b"R" + struct.pack(">I", oid) + text("public") + text(table) + identity.encode()
    found += struct.pack(">H", len(columns))
    for name in columns:
        key = identity == "f" or name in keys
        found += struct.pack(">B", key) + text(name) + struct.pack(">Ii", 25, -1)
    return found


def values(row: Sequence[Value]) -> bytes:
    found = struct.pack(">H", len(row))
    for value in row:
        if value is None:
            found += b"n"
        elif value is KEPT:
            found += b"u"
        else:
            assert isinstance(value, str)
            found += b"t" + struct.pack(">i", len(value.encode())) + value.encode()
    return found


def insert(oid: int, *row: Value) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + values(row)


def update(oid: int, new: Sequence[Value], old: Sequence[Value] = (), kind: str = "K") -> bytes:
    before = kind.encode() + values(old) if old else b""
    return b"U" + struct.pack(">I", oid) + before + b"N" + values(new)


def delete(oid: int, *old: Value) -> bytes:
    return b"D" + struct.pack(">I", oid) + b"K" + values(old)


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(">IB", len(oids), 0) + struct.pack(f">{len(oids)}I", *oids)
