"""ledger: what callers sent and were acked, and whether the log has exactly that.

Every request carries a number in its first record. After a window the log is read from where it
stood before it: each number is there once, at the LSN that its ack named, no LSN is left out, and
nothing else is there. A request is in the ledger from the moment it is sent, so one that failed and
was retried twice would be found, too.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterable

from logservice_client import LogClient, Shard
from logservice_client.read_result import Records

NUMBER_BYTES = 8
SHARDS_AT_A_TIME = 50
"""Logs that are asked, and read back, together."""
TIMEOUT_S = 120.0


class Wrong(Exception):
    """A log does not have what was acked."""


class Ledger:
    """The requests of one window. `per_request`: records of each request."""

    def __init__(self, size: int, per_request: int = 1) -> None:
        """`size`: bytes of a record, at least those of a number."""
        if size < NUMBER_BYTES:
            raise ValueError(f"a record of {size} bytes has no room for a number")
        self.per_request = per_request
        self._padding = bytes(size - NUMBER_BYTES)
        self._rest = [bytes(size)] * (per_request - 1)
        self._sent = 0
        self._acked = array("Q")

    def record(self) -> tuple[int, bytes]:
        """The next number, and a record that carries it."""
        number = self._sent
        self._sent = number + 1
        return number, number.to_bytes(NUMBER_BYTES, "big") + self._padding

    def records(self) -> tuple[int, list[bytes]]:
        """The next number, and the records of a request that carries it."""
        number, first = self.record()
        return number, [first, *self._rest]

    def acked(self, number: int, lsn: int) -> None:
        """A request was acked at this LSN."""
        self._acked.append(number)
        self._acked.append(lsn)

    async def check(self, client: LogClient, places: Iterable[tuple[int, int]]) -> int:
        """Read logs back; the number of records. `places`: shards, and the LSN behind which each
        stood before the window. Raises Wrong.
        """
        found = array("Q", bytes(8 * self._sent))
        counts = [await self._read(client.shard(shard), last + 1, found) for shard, last in places]
        if sum(counts) != self._sent * self.per_request:
            raise Wrong(f"{self._sent * self.per_request} records sent, {sum(counts)} found")
        if 0 in found:
            raise Wrong(f"record {found.index(0)} is not there")
        if len(self._acked) != 2 * self._sent:
            raise Wrong(f"{self._sent} requests sent, {len(self._acked) // 2} acked")
        for place in range(0, len(self._acked), 2):
            number, lsn = self._acked[place], self._acked[place + 1]
            if found[number] != lsn:
                raise Wrong(f"request {number} was acked at LSN {lsn} and is at {found[number]}")
        return sum(counts)

    async def _read(self, shard: Shard, lsn: int, found: array[int]) -> int:
        """Notes the place of every number; the count of records."""
        began = lsn
        async for item in shard.follow(lsn, until_tail=True):
            if not isinstance(item, Records) or item.first_lsn != lsn:
                raise Wrong(f"LSN {lsn} of shard {shard.shard_id} has no record")
            self._note(item, began, found)
            lsn = item.next_lsn
            await asyncio.sleep(0)
        return lsn - began

    def _note(self, item: Records, began: int, found: array[int]) -> None:
        records = item.records()
        ahead = -(item.first_lsn - began) % self.per_request
        for place in range(ahead, len(records), self.per_request):
            number = int.from_bytes(records[place][:NUMBER_BYTES], "big")
            if number >= len(found) or found[number]:
                raise Wrong(f"LSN {item.first_lsn + place} has a record that was not sent once")
            found[number] = item.first_lsn + place


async def tails(client: LogClient, shards: Iterable[int]) -> list[tuple[int, int]]:
    """Where logs stand: shards, each with its newest LSN."""

    async def tail(shard: int) -> tuple[int, int]:
        status = await client.shard(shard).status(timeout=TIMEOUT_S)
        return shard, status.position.applied_lsn

    wanted, found = list(shards), []
    for at in range(0, len(wanted), SHARDS_AT_A_TIME):
        found += await asyncio.gather(*map(tail, wanted[at : at + SHARDS_AT_A_TIME]))
    return found
