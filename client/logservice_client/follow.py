"""Follow: the items of a follow, and how far it is behind the tail."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable

from logservice_client.lag import Lag, Standing
from logservice_client.read_result import Gap, Records


class FollowPosition:
    """Where a follow is: what the asynchronous and the synchronous one say of themselves."""

    def __init__(self, standing: Standing) -> None:
        """Whoever hands out items moves `standing` on."""
        self._standing = standing

    @property
    def lag(self) -> Lag | None:
        """How far what was handed out is behind the tail; None before the first answer. Any thread
        may ask.
        """
        return self._standing.lag()

    @property
    def next_lsn(self) -> int:
        """The LSN behind what was handed out: where another follow would go on."""
        return self._standing.next_lsn

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, next LSN {self.next_lsn}, {self.lag}>"


class Follow(FollowPosition):
    """Get it from `Shard.follow`; iterate over it once. Whoever leaves before the end closes it, as
    an asynchronous generator: ``async with aclosing(log.follow(1)) as items: ...``
    """

    def __init__(self, standing: Standing, items: AsyncGenerator[Records | Gap]) -> None:
        """`items` moves `standing` on."""
        super().__init__(standing)
        self._items = items

    def __aiter__(self) -> AsyncIterator[Records | Gap]:
        return self._items  # without this object on the way of each item

    def __anext__(self) -> Awaitable[Records | Gap]:
        return self._items.__anext__()

    async def aclose(self) -> None:
        """End it."""
        await self._items.aclose()
