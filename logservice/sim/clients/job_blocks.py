"""JobBlocks: what a job of the simulated world appends, and what a reader finds of it.

Theory of operation. A piece of work is an epoch of a name, and has its *rows*: a letter, because an
attempt may come to other rows than the one before it. The blocks are a function of these three, so
every attempt has the same ones; only their stamp is not known before the epoch is opened. Some
blocks are wide, with keys, headers and times, some of these compressed. All of that follows from
the block's name and from the number of the record, so a reader can tell whether a wide block is
what was appended (`wide_batch_of`), to the last column.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from logservice_wire.block import HEADER_BYTES, Block, encode_block
from logservice_wire.column_block import encode_columns

from logservice.rsm.commands import SESSION_CONTENT_BYTES

_TIMES_FROM_US: Final = 1_600_000_000_000_000
_FORMS: Final = ("plain", "plain", "wide", "wide", "zstd", "lz4")


@dataclass(frozen=True, slots=True)
class JobBlock:
    """One block of a piece of work. `room`: bytes behind its name."""

    batch: str
    count: int
    form: str
    room: int

    def encode(self, stamp_us: int) -> bytes:
        """Its bytes, once the stamp of the epoch is known."""
        name = self.batch.encode() + b"." * self.room
        values = [name + b"." * (-len(name) & 7), *[b""] * (self.count - 1)]
        if self.form == "plain":
            return encode_block(values, stamp_us)
        return encode_columns(
            values,
            stamp_us,
            keys=keys_of(self.batch, self.count),
            headers=headers_of(self.batch, self.count),
            times_us=times_of(self.batch, self.count),
            codec=None if self.form == "wide" else self.form,
        )


class Work:
    """One piece of work: block k, from 1, is ``blocks[k - 1]``."""

    def __init__(self, name: str, epoch: int, rows: str, *, long: bool = False) -> None:
        """`long`: of more blocks than a session remembers one by one."""
        chance = random.Random(f"work/{name}/{epoch}/{rows}")
        self.name, self.epoch, self.rows = name, epoch, rows
        size = chance.randint(66, 80) if long else chance.choice((1, 2, 3, 3, 4, 6))
        self.blocks = [
            JobBlock(
                f"{name}:{epoch}{rows}:{number}",
                chance.choice((1, 1, 2, 5)),
                chance.choice(_FORMS),
                chance.choice((0, 0, 16, 100, 800)) if not long else 0,
            )
            for number in range(1, size + 1)
        ]
        digest = blake2b(digest_size=SESSION_CONTENT_BYTES)
        for block in self.blocks:
            digest.update(block.encode(0))
        self.content = digest.digest()


def keys_of(batch: str, count: int) -> list[bytes | None]:
    """The keys of a wide block: every third record has none."""
    name = batch.encode()
    return [None if number % 3 == 1 else b"%s/%d" % (name, number) for number in range(count)]


def headers_of(batch: str, count: int) -> list[dict[str, bytes]]:
    """Its headers."""
    return [{"batch": batch.encode(), "n": b"%d" % number} for number in range(count)]


def times_of(batch: str, count: int) -> list[int]:
    """Its records' times."""
    return [_TIMES_FROM_US + len(batch) * 1000 + number for number in range(count)]


def wide_batch_of(block: bytes | memoryview) -> str:
    """The name in a wide block; "" when any column of it is not what that name stands for. Raises
    LogServiceError and ValueError for what is no block.
    """
    parsed = Block.parse(block)
    columns = parsed.columns()
    batch = parsed.record(0).rstrip(b".").decode()
    count = parsed.record_count
    right = (
        columns.keys() == keys_of(batch, count)
        and columns.headers() == headers_of(batch, count)
        and columns.times_us() == times_of(batch, count)
        and columns.records()[1:] == [b""] * (count - 1)
    )
    return batch if right else ""


def stamp_of(block: bytes | memoryview) -> int:
    """The stamp in the header of a block; 0 for what is too short to be one."""
    return int.from_bytes(block[HEADER_BYTES - 8 : HEADER_BYTES], "little", signed=True)
