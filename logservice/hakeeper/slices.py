"""Slices: a large snapshot of shard 0 is written and read without holding up the event loop.

Theory of operation. At 10 000 shards nearly all of a snapshot is what stores report of their
replicas. Each store's row is bytes of its own inside the whole, so rows are written and read one by
one, and whoever asked lets other work run between two slices.

*Writing* is of the state as of the call. Everything but the stores is encoded at once, and the rows
of the stores are copied: only the reports are shared, and those never change, because a heartbeat
brings a new table of them (`heartbeats`). So entries may be applied while the slices are taken
(INV-HK-SLICES).

*Reading* takes the rows of stores and shards out, reads the rest as a state without them, and then
each row. Bytes that have another form than `save` gives are left to `load`.

INV-HK-SLICES: the joined slices are the bytes that `save` would have given at the call, whatever
was applied since.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator
from typing import Any, Final

import msgspec

from logservice.hakeeper.commands.versioned import Versioned
from logservice.hakeeper.state import ShardState, State, StoreState, load, save
from logservice.ids import ShardId, StoreId
from logservice.invariants import invariant
from logservice.snapshot import SnapshotCorrupt

SLICE_REPORTS: Final = 2048
"""Reports of replicas in one slice, about 5 ms."""

SLICE_BYTES: Final = 1 << 19
"""A snapshot that is not larger is read at a stretch."""

_HEAD_BYTES: Final = 4
"""The version byte, and the head of an array of 16 to 65 535 fields."""

_NOTHING: Final = b"\x80"

_store: Final[Versioned[StoreState]] = Versioned(StoreState, {1: b"", 2: b""}, SnapshotCorrupt)
_shard: Final[Versioned[ShardState]] = Versioned(ShardState, {1: b"", 2: b""}, SnapshotCorrupt)
_text: Final = msgspec.msgpack.Encoder()
_store_rows: Final = msgspec.msgpack.Decoder(dict[StoreId, msgspec.Raw])
_shard_rows: Final = msgspec.msgpack.Decoder(dict[ShardId, msgspec.Raw])


def _head() -> msgspec.msgpack.Decoder[Any]:
    """Reads how long the fields are, up to the shards."""
    names = State.__struct_fields__
    fields = [(name, msgspec.Raw) for name in names[: names.index("shards") + 1]]
    return msgspec.msgpack.Decoder(msgspec.defstruct("Head", fields, array_like=True))


_heads: Final = _head()


def save_in_slices(state: State) -> Iterator[bytes]:
    """The bytes of `save` as of now. A small state is one slice."""
    rest = copy.copy(state)
    rest.stores = {}
    whole = save(rest)
    names = State.__struct_fields__
    before = names[: names.index("stores")]
    at = _HEAD_BYTES + sum(len(_text.encode(getattr(rest, name))) for name in before)
    invariant(whole[at : at + 1] == _NOTHING, "INV-HK-SLICES", at=at)
    rows = {name: _copied(state.stores[name]) for name in sorted(state.stores)}
    return _slices(whole, at, rows, state.cluster_version)


def load_in_slices(data: bytes) -> Generator[None, None, State]:
    """The state of `load`, returned at the end. Raises SnapshotCorrupt."""
    try:
        found = _tables(data)
        stores, shards = found["stores"], found["shards"]
        store_rows = _store_rows.decode(memoryview(data)[stores.start : stores.stop])
        shard_rows = _shard_rows.decode(memoryview(data)[shards.start : shards.stop])
    except (msgspec.MsgspecError, ValueError):
        return load(data)
    if len(data) > SLICE_BYTES:
        yield
    between = data[stores.stop : shards.start]
    rest = (data[: stores.start], _NOTHING, between, _NOTHING, data[shards.stop :])
    state = load(b"".join(rest))
    version, read = state.cluster_version, 0
    for name, row in store_rows.items():
        state.stores[name] = store = _store.decode_as(row, version)
        read += len(store.replicas)
        if read >= SLICE_REPORTS:
            read = 0
            yield
    for read, (number, row) in enumerate(shard_rows.items(), 1):
        state.shards[number] = _shard.decode_as(row, version)
        if read % SLICE_REPORTS == 0:
            yield
    return state


def _tables(data: bytes) -> dict[str, slice]:
    """Where each field is, up to the shards. Raises ValueError when it cannot be told."""
    if data[1:2] != b"\xdc":
        raise ValueError("the state has fewer fields than any version")
    head = _heads.decode(memoryview(data)[1:])
    found, at = {}, _HEAD_BYTES
    for name in head.__struct_fields__:
        end = at + len(getattr(head, name))
        found[name] = slice(at, end)
        at = end
    return found


def _copied(store: StoreState) -> StoreState:
    row = copy.copy(store)
    for name in row.__struct_fields__:
        known = getattr(row, name)
        if isinstance(known, list):
            setattr(row, name, list(known))
        elif isinstance(known, dict) and name != "replicas":
            setattr(row, name, dict(sorted(known.items())))
    return row


def _slices(
    whole: bytes, at: int, rows: dict[StoreId, StoreState], version: int
) -> Iterator[bytes]:
    slice_ = [whole[:at], _table_head(len(rows))]
    reports = 0
    for name, row in rows.items():
        if reports >= SLICE_REPORTS:
            yield b"".join(slice_)
            slice_, reports = [], 0
        row.replicas = dict(sorted(row.replicas.items()))
        slice_ += [_text.encode(name), _store.encode(row, version)]
        reports += len(row.replicas)
    yield b"".join((*slice_, whole[at + 1 :]))


def _table_head(size: int) -> bytes:
    if size < 16:
        return bytes([0x80 | size])
    return b"\xde" + size.to_bytes(2, "big")
