"""channels: many connections of one process, as that many processes would have them.

gRPC shares a connection among the channels to one address; these have one each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import grpc.aio

OWN_CONNECTION: Final = (("grpc.use_local_subchannel_pool", 1),)
"""The option of such a channel."""


@asynccontextmanager
async def own_channels(address: str, count: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    """Channels that connect with their first call; closed at the end."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                grpc.aio.insecure_channel(address, options=OWN_CONNECTION)
            )
            for _ in range(count)
        ]


@asynccontextmanager
async def connected_channels(address: str, count: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    """The same, all of them connected."""
    async with own_channels(address, count) as channels:
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        yield channels
