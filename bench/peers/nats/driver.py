"""The callers of a NATS JetStream: ``python -m bench.peers.nats.driver NAME=URL ...``.

Runs in ``.venv-peers``. Every shard is a stream of its own, with three replicas, made for the
window and deleted after it. Every caller publishes to its stream and waits for the ack, through a
connection to the server that leads the stream; callers of one client share that connection.
Afterwards the streams must have as many messages as were acked.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import nats
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import APIError

from bench.load.closed_loop import Request, Sample, measure
from bench.peers.peer import Lost, Workload
from bench.peers.program import serve

REPLICAS: Final = 3
TIMEOUT_S: Final = 30.0
START_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Stream:
    """One that was made for a window."""

    name: str
    subject: str
    leader: str
    """The name of the server that leads it."""
    acked: itertools.count[int]


class Driver:
    """What knows the servers."""

    def __init__(self, urls: dict[str, str]) -> None:
        self._urls = urls
        self._number = itertools.count()

    def measure(self, workload: Workload, warmup_s: float, seconds: float) -> Sample:
        return asyncio.run(self._measure(workload, warmup_s, seconds))

    async def wait_until_ready(self) -> None:
        """Until a stream can be made, which needs a leader of the servers."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                async with AsyncExitStack() as stack:
                    client = await self._client(stack, next(iter(self._urls)))
                    await client.delete_stream((await self._stream(client, "ready")).name)
                    return
            except (APIError, nats.errors.Error, OSError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)

    async def _measure(self, workload: Workload, warmup_s: float, seconds: float) -> Sample:
        async with AsyncExitStack() as stack:
            clients = {name: await self._client(stack, name) for name in self._urls}
            manager = next(iter(clients.values()))
            names = [f"bench{next(self._number)}" for _ in range(workload.shards)]
            streams = [await self._stream(manager, name) for name in names]
            callers = []
            for number in range(workload.callers):
                stream = streams[number % len(streams)]
                client = clients[stream.leader]
                if workload.connections > 1:
                    client = await self._client(stack, stream.leader)
                callers.append(_publish(client, stream, bytes(workload.size)))
            sample = await measure(callers, warmup_s=warmup_s, seconds=seconds)
            for stream in streams:
                acked = next(stream.acked)
                has = (await manager.stream_info(stream.name)).state.messages
                if has != acked:
                    raise Lost(f"{acked} messages were acked, {stream.name} has {has}")
                await manager.delete_stream(stream.name)
            return sample

    async def _client(self, stack: AsyncExitStack, name: str) -> JetStreamContext:
        client = await nats.connect(self._urls[name], allow_reconnect=False)
        stack.push_async_callback(client.close)
        return client.jetstream(timeout=TIMEOUT_S)

    async def _stream(self, client: JetStreamContext, name: str) -> Stream:
        config = StreamConfig(
            name=name, subjects=[name], num_replicas=REPLICAS, storage=StorageType.FILE
        )
        info: Any = await client.add_stream(config)
        return Stream(name, name, info.cluster.leader, itertools.count())


def _publish(client: JetStreamContext, stream: Stream, record: bytes) -> Request:
    async def request() -> int:
        await client.publish(stream.subject, record, timeout=TIMEOUT_S)
        next(stream.acked)
        return 1

    return request


def main() -> None:
    """Serve."""
    driver = Driver(dict(word.split("=", 1) for word in sys.argv[1:]))
    asyncio.run(driver.wait_until_ready())
    serve(driver.measure)


if __name__ == "__main__":
    main()
