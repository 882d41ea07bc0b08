"""A writer of the upgrade story: appends for ever, and remembers what was acked.

It runs with the client library of either release, so it uses only what both have. It is started by
its path with its settings as JSON, prints one line of JSON for each ack or typed error, and ends
when standard input does. Every record is `name/number`, so a reader can tell whose it is.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from logservice_client import LogClient
from logservice_wire.errors import LogServiceError

_PAUSE_S = 0.01
_TIMEOUT_S = 30.0


async def write(client: LogClient, name: str, shard: int) -> None:
    """Append three records at a time, one call after the other."""
    log = client.shard(shard)
    number = 0
    while True:
        records = [f"{name}/{number + place}".encode() for place in range(3)]
        said: dict[str, Any] = {"shard": shard, "number": number, "count": len(records)}
        number += len(records)
        try:
            said["lsn"] = await log.append(records, timeout=_TIMEOUT_S)
        except LogServiceError as error:
            said["error"] = error.reason.value
            said["outcome"] = error.outcome.name
        said["time_s"] = time.monotonic()
        print(json.dumps(said), flush=True)
        await asyncio.sleep(_PAUSE_S)


async def main() -> None:
    """Write until standard input ends, and settle what is under way."""
    settings = json.loads(sys.argv[1])
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    async with LogClient(settings["endpoints"]) as client:
        tasks = [
            loop.create_task(write(client, settings["name"], shard)) for shard in settings["shards"]
        ]
        await asyncio.wait([loop.create_task(ended.wait()), *tasks], return_when="FIRST_COMPLETED")
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


asyncio.run(main())
