"""Strangers: asks HAKeeper who the members of a shard are, when somebody unknown speaks for it.

A replica may be away while all the others are replaced. It knows none of the new ones and hears
none of them (`members`); only HAKeeper can tell it that they are members now. HAKeeper is asked for
MEMBERS_ASKED_AT_ONCE shards every MEMBERS_ASK_S, one after the other, however many strangers speak:
a stranger with a certificate can cause that question and nothing else. The members of shard 0 are
looked up in the address book, which heartbeats keep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from logservice_wire.errors import LogServiceError

from logservice import bounds
from logservice.ids import ShardId
from logservice.membership import Membership

Ask = Callable[[ShardId], Awaitable[Membership | None]]


class Strangers:
    """The shards for which a stranger spoke; one per NodeHost."""

    def __init__(self) -> None:
        """Nobody spoke yet."""
        self._shards: dict[ShardId, None] = {}
        self._spoke = asyncio.Event()

    def heard(self, shard: ShardId) -> None:
        """Somebody who is no known member spoke for `shard`, which runs here."""
        self._shards[shard] = None
        self._spoke.set()

    async def run(self, ask: Ask, name: Callable[[ShardId, Membership], None]) -> None:
        """Ask for ever; `name` is told the members."""
        while True:
            await self._spoke.wait()
            for _ in range(min(len(self._shards), bounds.MEMBERS_ASKED_AT_ONCE)):
                await self.run_once(ask, name)
            await asyncio.sleep(bounds.MEMBERS_ASK_S)

    async def run_once(self, ask: Ask, name: Callable[[ShardId, Membership], None]) -> None:
        """Ask for the shard for which a stranger spoke first."""
        shard = next(iter(self._shards))
        del self._shards[shard]
        if not self._shards:
            self._spoke.clear()
        try:
            membership = await ask(shard)
        except LogServiceError:
            return  # the stranger will speak again
        if membership is not None:
            name(shard, membership)
