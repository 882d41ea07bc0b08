"""TN shards on real stores, with services that are processes: hung, ended, killed.

A hung process must not go on where it was when it wakes: neither its own clock nor the log lets it.
HAKeeper's ticks are five times as fast here, so a process has two seconds.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import groupby
from pathlib import Path

import pytest
from logservice_client.client import LogClient
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.processes.local_cluster import free_ports
from logservice.server.store import Store
from tests.server.test_administration import NUMBERS, configured


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[list[Store]]:
    ports = free_ports(6)
    made = [Store(configured(tmp_path, number, ports)) for number in NUMBERS]
    await asyncio.gather(*(store.start() for store in made))
    yield made
    await asyncio.gather(*(store.stop() for store in made))


async def until_served(client: LogClient, service: str) -> hakeeper_pb2.TnShardInfo:
    async with asyncio.timeout(60):
        while True:
            state = await client.hakeeper.cluster_state(timeout=30)
            found = [one for one in state.tn_shards if one.standing == "served"]
            if found and found[0].service_id == service:
                return found[0]
            await asyncio.sleep(0.05)


async def test_a_tn_shard_outlives_every_process_and_is_served_by_one_at_a_time(
    stores: list[Store],
) -> None:
    endpoints = [store.client_address for store in stores]
    processes: dict[str, subprocess.Popen[bytes]] = {}

    def begin(name: str) -> None:
        command = [sys.executable, "-m", "tests.server.tn_service", name, ",".join(endpoints)]
        processes[name] = subprocess.Popen(command)

    try:
        async with LogClient(endpoints) as client:
            shard_id = await client.hakeeper.create_shard(name="wal", timeout=60)
            begin("tn-a")
            number = await client.hakeeper.create_tn_shard(shard_id, timeout=30)
            assert await client.hakeeper.create_tn_shard(shard_id, timeout=30) == number
            assert (await until_served(client, "tn-a")).replica == 1
            begin("tn-b")
            await asyncio.sleep(1)

            processes["tn-a"].send_signal(signal.SIGSTOP)
            assert (await until_served(client, "tn-b")).replica == 2
            processes["tn-a"].send_signal(signal.SIGCONT)
            await asyncio.sleep(1)

            processes["tn-b"].send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(processes["tn-b"].wait, 30) == 0
            assert (await until_served(client, "tn-a")).replica == 3
            begin("tn-b")
            await asyncio.sleep(1)
            processes["tn-a"].kill()
            assert (await until_served(client, "tn-b")).replica == 4
            await asyncio.sleep(0.5)
            await client.hakeeper.delete_tn_shard(number, timeout=30)
            await asyncio.sleep(1)

            shard = client.shard(shard_id)
            records: list[bytes] = []
            lsn, found = 1, await shard.read(1, timeout=30)
            tail = found.applied_lsn
            while lsn <= found.applied_lsn:
                found = await shard.read(lsn, timeout=30)
                records += found.records()
                lsn = found.next_lsn
            assert found.applied_lsn == tail, "somebody still appends"
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    who = [record.rsplit(b" ", 1)[0] for record in records]
    assert [key for key, _ in groupby(who)] == [b"tn-a 1", b"tn-b 2", b"tn-a 3", b"tn-b 4"]
