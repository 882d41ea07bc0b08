"""A log in memory, for the programs that ship from PostgreSQL: what they ask of `Shard`.

One handle per client, as in the service: each has its own writer epoch. Gaps can be put in, and
appends held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from logservice_client import (
    Fenced,
    Gap,
    GapReason,
    ReadResult,
    Records,
    StaleEpoch,
    WrongExpectedLsn,
)
from logservice_wire.block import Block, encode_block
from logservice_wire.v1 import log_pb2


@dataclass
class Content:
    """What every handle sees. A record of None is a gap."""

    records: list[bytes | None] = field(default_factory=list)
    first_lsn: int = 1
    epoch: int = 0
    holder: str = ""


class MemoryLog:
    """A handle."""

    def __init__(self, content: Content | None = None) -> None:
        self.content = content if content is not None else Content()
        self.writer_epoch = 0
        self.appended: list[list[bytes]] = []
        self.on_append: Callable[[int], None] = lambda _: None
        """Called with the number of the append before it takes effect; raises to fail it."""
        self.on_ack: Callable[[int], None] = lambda _: None
        """Called after it took effect: raises when the ack is lost."""
        self.hold: asyncio.Event | None = None
        """Acks wait for it."""
        self.reads = 0

    async def status(
        self, *, stale: bool = False, timeout: float | None = None
    ) -> log_pb2.GetShardStatusResponse:
        content = self.content
        position = log_pb2.LogPosition(
            first_lsn=content.first_lsn, applied_lsn=len(content.records)
        )
        return log_pb2.GetShardStatusResponse(
            position=position,
            writer_epoch=content.epoch,
            writer_holder=content.holder,
            truncated_lsn=content.first_lsn - 1,
        )

    async def read(
        self,
        lsn: int,
        *,
        max_bytes: int = 0,
        stale: bool = False,
        timeout: float | None = None,
    ) -> ReadResult:
        self.reads += 1
        content = self.content
        assert lsn >= content.first_lsn
        if lsn > len(content.records):
            return ReadResult((), lsn, content.first_lsn, len(content.records))
        item = self._item(lsn)
        return ReadResult((item,), item.next_lsn, content.first_lsn, len(content.records))

    async def follow(
        self, lsn: int, *, until_lsn: int | None = None, patience: float = 30.0
    ) -> AsyncGenerator[Records | Gap]:
        assert until_lsn is not None
        while lsn <= until_lsn:
            item = self._item(lsn)
            yield item
            lsn = item.next_lsn

    async def append(
        self,
        record: bytes | Sequence[bytes],
        *,
        expected_lsn: int | None = None,
        timeout: float | None = None,
    ) -> int:
        records = [record] if isinstance(record, bytes) else list(record)
        number = len(self.appended)
        self.appended.append(records)
        self.on_append(number)
        content = self.content
        if self.writer_epoch != content.epoch:
            raise Fenced(epoch=content.epoch, holder=content.holder)
        lsn = len(content.records) + 1
        if expected_lsn not in (None, lsn):
            raise WrongExpectedLsn(next=lsn)
        content.records += records
        self.on_ack(number)
        if self.hold is not None:
            await self.hold.wait()
        return lsn

    async def append_columns(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        expected_lsn: int | None = None,
        timeout: float | None = None,
    ) -> int:
        assert keys is not None
        assert len(keys) == len(values)
        return await self.append(list(values), expected_lsn=expected_lsn, timeout=timeout)

    async def acquire_writer(
        self,
        holder: str,
        *,
        expected_epoch: int = 0,
        takeover: bool = False,
        override: bool = False,
        timeout: float | None = None,
    ) -> int:
        content = self.content
        if not takeover and expected_epoch != content.epoch:
            raise StaleEpoch(epoch=content.epoch, holder=content.holder)
        content.epoch += 1
        content.holder = holder
        self.writer_epoch = content.epoch
        return content.epoch

    async def truncate(self, lsn: int, *, timeout: float | None = None) -> int:
        self.content.first_lsn = lsn + 1
        return lsn

    def _item(self, lsn: int) -> Records | Gap:
        record = self.content.records[lsn - 1]
        if record is None:
            return Gap(lsn, 1, 1, GapReason.SEQUENCE)
        return Records(lsn, 1, 1, Block.parse(encode_block([record], 0)), 0)
