"""Records of a log, one by one: what both shippers read back of what they have appended."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Protocol

from logservice_client import Follow, Gap

PATIENCE_S: Final = 60.0
"""How long a reader waits for a replica that serves."""


class Followed(Protocol):
    """What is asked of a log: `logservice_client.Shard` has it."""

    def follow(
        self, lsn: int, *, until_lsn: int | None = None, patience: float = 30.0
    ) -> Follow: ...


async def records(log: Followed, first: int, last: int) -> AsyncGenerator[tuple[int, bytes]]:
    """The records of these LSNs, each with its own."""
    if last < first:
        return
    async with aclosing(log.follow(first, until_lsn=last, patience=PATIENCE_S)) as items:
        async for item in items:
            if isinstance(item, Gap):
                continue
            for lsn, record in enumerate(item.records(), item.first_lsn):
                yield lsn, record
