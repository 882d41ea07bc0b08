"""A process of a `tn` service, for tests: it appends to the log of each TN shard that it serves.

`python -m tests.server.tn_service NAME ENDPOINTS`. Each record is "name replica number"; SIGTERM
ends it in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from logservice_client import LogClient
from logservice_client.tn_shards import TnShard
from logservice_wire.errors import LogServiceError
from logservice_wire.v1 import hakeeper_pb2


async def main(name: str, endpoints: list[str]) -> None:
    """Serve until SIGTERM."""

    async def ignore(_: hakeeper_pb2.ServiceCommand) -> None:
        """No command concerns this service."""

    async with LogClient(endpoints) as client:

        async def serve(tn_shard: TnShard) -> None:
            shard = client.shard(tn_shard.shard_id)
            await shard.acquire_writer(f"{name}/{tn_shard.replica}", takeover=True, timeout=30)
            number = 0
            while tn_shard.left_s > 0:
                number += 1
                record = f"{name} {tn_shard.replica} {number}".encode()
                with contextlib.suppress(LogServiceError):
                    await shard.append(record, timeout=1)
                await asyncio.sleep(0.02)

        service = client.hakeeper.service(name, "tn", ignore, serve=serve)
        service._interval_s = 0.1
        running = asyncio.create_task(service.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2].split(",")))
