"""AppendStreams: which stream a log's appends go over.

Theory of operation. All logs whose appends go to one store share one call there (`shards_stream`);
when it has as many lanes as it may have, the next one begins. A store of release 0.1.0 does not
know that call and answers UNIMPLEMENTED, having taken nothing. Then each log gets a stream of its
own there (`append_stream`), until OLDER_STORE_S has passed: the store may have been upgraded. Then
a log leaves that stream, which would last for days, before its next block, and one log of them all
asks again.
"""

from __future__ import annotations

import asyncio

from logservice_client.append_stream import AckHandler, AppendStream, Session
from logservice_client.bounds import OLDER_STORE_S
from logservice_client.channels import ChannelPool
from logservice_client.shards_stream import Lane, ShardsStream


class AppendStreams:
    """The streams of one client."""

    def __init__(self, pool: ChannelPool) -> None:
        """There are none yet."""
        self._pool = pool
        self._streams: dict[str, ShardsStream] = {}
        """By address, the newest one."""
        self._older_until_s: dict[str, float] = {}

    def open(
        self,
        address: str,
        shard: int,
        session: Session,
        epoch: int,
        on_acks: AckHandler,
        lineage: bytes = b"",
    ) -> Lane | AppendStream:
        """A stream for the appends of `shard` at `address`; nothing is sent before its first
        `send`. `lineage`: see `lineage`.
        """
        if not self._shares(address):
            return AppendStream(self._pool, address, shard, session, epoch, on_acks, lineage)
        stream = self._streams.get(address)
        if stream is None or not stream.has_room:
            stream = ShardsStream(self._pool, address, lambda: self._older(address))
            self._streams[address] = stream
        return stream.lane(shard, session, epoch, on_acks, lineage)

    def outdated(self, stream: Lane | AppendStream) -> bool:
        """Whether `open` may have something better than `stream`."""
        return isinstance(stream, AppendStream) and self._shares(stream.address)

    def _shares(self, address: str) -> bool:
        """Whether the store at `address` may know streams of many shards."""
        now_s = asyncio.get_running_loop().time()
        return self._older_until_s.get(address, 0.0) <= now_s

    def _older(self, address: str) -> None:
        """The store at `address` knows no streams of many shards."""
        self._older_until_s[address] = asyncio.get_running_loop().time() + OLDER_STORE_S
