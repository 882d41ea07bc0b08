"""Every call that the client libraries of both releases know, once, against any store.

It is started by its path with the endpoints and a shard of its own, and ends with 0 when each
call did what it says.
"""

from __future__ import annotations

import asyncio
import sys

from logservice_client import LogClient
from logservice_wire.block import encode_block
from logservice_wire.errors import LogServiceError

_IDENTITY = "spiffe://logservice.internal/cluster/c/client/app"


async def log_calls(client: LogClient, number: int) -> None:
    """The service Log."""
    log = client.shard(number)
    await log.connect(timeout=30)
    first = await log.append([b"a", b"b", b"c"], timeout=30)
    await log.append_block(encode_block([b"d"], 1), expected_lsn=first + 3, timeout=30)
    found = await log.read(first, timeout=30)
    assert found.records() == [b"a", b"b", b"c", b"d"], found
    followed = [run async for run in log.follow(first, until_tail=True)]
    assert followed[-1].next_lsn == first + 4
    epoch = await log.acquire_writer("calls", expected_epoch=0, takeover=True, timeout=30)
    assert await log.append(b"e", timeout=30) == first + 4
    status = await log.status(timeout=30)
    assert status.position.applied_lsn == first + 4
    await log.set_hold("calls", first + 2, timeout=30)
    assert await log.truncate(first + 4, timeout=30) == first + 1
    await log.release_hold("calls", timeout=30)
    stamps = await log.allocate_timestamps(5, timeout=30)
    assert len(stamps) == 5
    await log.release_writer(epoch=epoch, timeout=30)
    await truncated(client, number, first)


async def truncated(client: LogClient, number: int, lsn: int) -> None:
    """The record is gone, and the error says so."""
    try:
        await client.shard(number).read(lsn, timeout=30)
    except LogServiceError as error:
        if error.reason.value == "TRUNCATED":
            return
        raise
    raise AssertionError("a truncated record was read")


async def hakeeper_calls(client: LogClient, name: str) -> int:
    """The service HAKeeper; returns a new shard."""
    hakeeper = client.hakeeper
    state = await hakeeper.cluster_state(timeout=30)
    assert state.state == "running"
    shard = await hakeeper.create_shard(name=name, timeout=30)
    ids = await hakeeper.allocate_ids(7, key="calls", timeout=30)
    assert len(ids) == 7
    await hakeeper.change_access(_IDENTITY, "cluster", grant=["read"], timeout=30)
    grants = await hakeeper.access_list(timeout=30)
    assert any(one.identity == _IDENTITY for one in grants.grants)
    await hakeeper.change_access(_IDENTITY, "cluster", revoke=["read"], timeout=30)
    await hakeeper.set_joining("automatic", timeout=30)
    return shard


async def main() -> None:
    """All of them."""
    async with LogClient(sys.argv[1]) as client:
        shard = await hakeeper_calls(client, sys.argv[2])
        await log_calls(client, shard)
    print("every call answered")


asyncio.run(main())
