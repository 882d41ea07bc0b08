"""Records that wait in a file without a name until all of them are there.

A copy that PostgreSQL does not finish has then left nothing in the log. The file is as large as
the rows, and lies where TMPDIR says; it goes with the process.
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Final

from examples.postgres_changes.appends import Record

_BATCH: Final = struct.Struct(">I")
_RECORD: Final = struct.Struct(">Ii")
_NO_KEY: Final = -1


class Spool:
    """Batches of records, given back in the order in which they came."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="logservice-copy-")  # noqa: SIM115

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    async def put(self, batch: Sequence[Record]) -> None:
        """Raises OSError, e.g. when the disk is full."""
        parts = [_BATCH.pack(len(batch))]
        for one in batch:
            key_length = _NO_KEY if one.key is None else len(one.key)
            parts += [_RECORD.pack(len(one.value), key_length), one.value, one.key or b""]
        await asyncio.to_thread(self._file.write, b"".join(parts))

    async def batches(self) -> AsyncIterator[list[Record]]:
        """All of them, from the first."""
        await asyncio.to_thread(self._file.seek, 0)
        while batch := await asyncio.to_thread(self._read):
            yield batch

    def _read(self) -> list[Record]:
        """The next batch; none at the end."""
        head = self._file.read(_BATCH.size)
        count = _BATCH.unpack(head)[0] if head else 0
        return [self._read_record() for _ in range(count)]

    def _read_record(self) -> Record:
        length, key_length = _RECORD.unpack(self._file.read(_RECORD.size))
        value = self._file.read(length)
        return Record(value, None if key_length == _NO_KEY else self._file.read(key_length))
