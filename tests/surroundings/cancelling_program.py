"""A program that cancels every task of its loop but its own, as a shutdown recipe or a framework of
tests does, while appends are in flight. `test_cancel` runs it as a process.

It prints one line of JSON: what became of each append, by its record.
"""

from __future__ import annotations

import asyncio
import json
import sys

from logservice_client import LogClient, LogServiceError, Shard

ROUNDS = 24
WRITERS = 8
LIMIT_S = 60.0
TIMEOUTS: tuple[float | None, ...] = (None, 5.0, 2.0)


async def one(log: Shard, record: bytes, timeout: float | None) -> tuple[str, int]:
    """How the append ended, and its LSN if it has one."""
    try:
        return "acked", await log.append(record, timeout=timeout)
    except LogServiceError as error:
        return error.outcome.value, 0


def cancel_all_but(mine: set[asyncio.Task[tuple[str, int]]]) -> None:
    """Cancel what the program did not begin itself."""
    for task in asyncio.all_tasks() - mine - {asyncio.current_task()}:
        task.cancel()


async def cancelled_after(client: LogClient, turns: int, said: dict[str, object]) -> None:
    """Cancel after so many turns of the loop; then append once more with the same client."""
    log = client.shard(1)
    mine = set()
    for writer in range(WRITERS):
        record = b"%d %d" % (turns, writer)
        timeout = TIMEOUTS[writer % len(TIMEOUTS)]
        mine.add(asyncio.create_task(one(log, record, timeout), name=record.decode()))
    for _ in range(turns):
        await asyncio.sleep(0)
    cancel_all_but(mine)
    record = b"%d later" % turns
    mine.add(asyncio.create_task(one(log, record, None), name=record.decode()))
    done, left = await asyncio.wait(mine, timeout=LIMIT_S)
    for task in done:
        said[task.get_name()] = task.result()
    for task in left:
        said[task.get_name()] = "never returned"
        task.cancel()


async def main(endpoints: str) -> None:
    said: dict[str, object] = {}
    for turns in range(ROUNDS):
        async with LogClient(endpoints) as client:
            await cancelled_after(client, turns, said)
        if "never returned" in said.values():
            break
    async with LogClient(endpoints) as client:
        # The same in the middle of a stream that is open.
        await client.shard(1).append(b"first")
        for turns in range(ROUNDS, 2 * ROUNDS):
            await cancelled_after(client, turns % ROUNDS + 100, said)
            if "never returned" in said.values():
                break
    print(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
