"""records: what one append may be, checked before it is queued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from logservice_wire.block import encoded_size
from logservice_wire.bounds import BLOCK_BYTES_MAX, BLOCK_RECORDS_MAX, RECORD_BYTES_MAX
from logservice_wire.errors import InvalidArgument, TooLarge

from logservice_client.arguments import number

Record = bytes | bytearray | memoryview


def checked_records(record: Record | Sequence[Record]) -> tuple[list[bytes], int]:
    """The records of one append, as bytes objects that nobody can change while they wait, and how
    many bytes they are. Raises InvalidArgument and TooLarge.
    """
    records = _as_bytes(record)
    sizes = [*map(len, records)]
    size = sum(sizes)
    if (
        len(records) > BLOCK_RECORDS_MAX
        or encoded_size(len(records), size) > BLOCK_BYTES_MAX
        or max(sizes) > RECORD_BYTES_MAX
    ):
        raise too_large(encoded_size(len(records), size))
    return records, size


def _as_bytes(record: Record | Sequence[Record]) -> list[bytes]:
    if isinstance(record, bytes | bytearray | memoryview):
        return [bytes(record)]
    if isinstance(record, str):
        raise InvalidArgument("a record is bytes, not str", field="record")
    records = list(record)
    if not records:
        raise InvalidArgument("nothing to append", field="record")
    kinds = {*map(type, records)}
    if kinds == {bytes}:
        return cast(list[bytes], records)  # nobody can change one of them
    for kind in kinds:
        if not issubclass(kind, bytes | bytearray | memoryview):
            raise InvalidArgument(f"a record is bytes, not {kind.__name__}", field="record")
    return [bytes(item) for item in records]


def expected(lsn: int | None) -> int:
    """The LSN that an append names, 0 for None. Raises InvalidArgument."""
    return 0 if lsn is None else number(lsn, "expected_lsn", least=1)


def too_large(size: int) -> TooLarge:
    """Of a block that would be `size` bytes long."""
    return TooLarge(
        "more than one block can hold", name="block_bytes", value=size, limit=BLOCK_BYTES_MAX
    )
