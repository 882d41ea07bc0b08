"""What the log ends with: that, and nothing else, says where the shipper goes on.

It is read backwards, in steps that grow, until a mark is found.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol

from logservice_wire.v1 import log_pb2

from examples.postgres.records import PATIENCE_S, Followed, records
from examples.postgres_changes.change import BEGIN_COPY, Change, Entry, Mark, decode
from examples.postgres_changes.keys import Keys, keys_of_record

STEP_FACTOR: Final = 8
"""How much further each step goes back. What was read in vain is little beside the last step."""


class EndMissing(Exception):
    """What says where and how to go on is truncated."""


class Log(Followed, Protocol):
    """What is asked of a log: `logservice_client.Shard` has it."""

    async def status(
        self, *, stale: bool = False, timeout: float | None = None
    ) -> log_pb2.GetShardStatusResponse: ...


@dataclass(frozen=True, slots=True)
class End:
    """`mark`: the last one; `begun`: the first change behind it, and its LSN: a part of something.
    `last_lsn`: the log's.
    """

    mark: Mark | None
    begun: Change | None
    begun_lsn: int
    last_lsn: int

    @property
    def in_a_copy(self) -> bool:
        """Whether a copy of all tables was begun and not finished."""
        return self.begun is not None and self.begun.op == BEGIN_COPY


async def end_of(log: Log) -> End:
    """Raises EndMissing, ChangeError, and errors of the log."""
    position = (await log.status(timeout=PATIENCE_S)).position
    first, last = position.first_lsn, position.applied_lsn
    step = 1
    while True:
        lsn = max(first, last - step + 1)
        end = await _looked_at(log, lsn, last)
        if end.mark is not None or lsn == first:
            break
        step *= STEP_FACTOR
    if end.mark is None and first > 1:
        raise EndMissing(
            "the log's last mark is truncated, so nothing says where to go on: make a new copy"
        )
    return end


async def keys_at(log: Log, lsn: int) -> Keys:
    """What the record ``K`` there says. Raises EndMissing, ChangeError, and errors of the log."""
    first = (await log.status(timeout=PATIENCE_S)).position.first_lsn
    if lsn >= first:
        async with aclosing(records(log, lsn, lsn)) as found:
            async for _, record in found:
                return keys_of_record(decode(record))
    raise EndMissing(
        f"the record with the columns of the log's keys (LSN {lsn}) is truncated: make a new copy"
    )


async def _looked_at(log: Log, first: int, last: int) -> End:
    mark: Mark | None = None
    begun: Change | None = None
    begun_lsn = 0
    async with aclosing(records(log, first, last)) as found:
        async for lsn, record in found:
            entry: Entry = decode(record)
            if isinstance(entry, Mark):
                mark, begun, begun_lsn = entry, None, 0
            elif begun is None or entry.op == BEGIN_COPY:
                begun, begun_lsn = entry, lsn
    return End(mark, begun, begun_lsn, last)
