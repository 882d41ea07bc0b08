"""A whole store in this process: assembly, readiness, HAKeeper's service, stop and restart."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from logservice_wire.errors import Reason
from logservice_wire.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    hakeeper_pb2,
    hakeeper_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
)

from logservice import config
from logservice.bounds import ALLOCATE_IDS_MAX
from logservice.cli.processes.local_cluster import free_ports
from logservice.config import StoreConfig
from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.own import status
from logservice.server.services import admin_service
from logservice.server.store import Store
from tests.server.served import block, typed

pytestmark = pytest.mark.asyncio(loop_scope="module")


def configured(directory: Path) -> StoreConfig:
    client, peer = free_ports(2)
    return config.parse(
        f"""
        [store]
        store_id = "s1"
        cluster_id = "c"
        data_directories = ["{directory}"]
        [listen]
        insecure_plaintext = true
        client = "127.0.0.1:{client}"
        peer = "127.0.0.1:{peer}"
        [bootstrap]
        hakeeper_members = [{{ store_id = "s1", peer_address = "127.0.0.1:{peer}" }}]
        replicas = 1
        [raft]
        tick_ms = 10
        heartbeat_ticks = 2
        election_ticks = 10
        [hakeeper]
        tick_ms = 20
        heartbeat_interval_s = 0.1
        [storage]
        segment_bytes = 1048576
        ballast_bytes = 0
        scrub_bytes_per_s = 1000000
        [truncation]
        interval_s = 0.2
        """
    )


class Client:
    """Stubs of every service of one store."""

    def __init__(self, store: Store) -> None:
        self.channel = grpc.aio.insecure_channel(
            store.client_address, [("grpc.enable_http_proxy", 0)]
        )
        self.log: Any = log_pb2_grpc.LogStub(self.channel)
        self.hakeeper: Any = hakeeper_pb2_grpc.HAKeeperStub(self.channel)
        self.admin: Any = admin_pb2_grpc.AdminStub(self.channel)
        self.health: Any = health_pb2_grpc.HealthStub(self.channel)

    async def shard_ready(self, shard: int) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.log.Connect(log_pb2.ConnectRequest(shard_id=shard))
                    return
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.05)

    async def append(self, shard: int, *records: bytes) -> int:
        request = log_pb2.AppendRequest(shard_id=shard, block=block(*records))
        return int((await self.log.Append(request)).lsn)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    store = Store(configured(tmp_path_factory.mktemp("store") / "data"))
    await store.start()
    found = Client(store)
    await found.shard_ready(1)
    yield found
    await found.channel.close(None)
    await store.stop()


async def refused(call: Any, reason: Reason) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert typed(caught.value).reason is reason


async def test_health(client: Client) -> None:
    answer = await client.health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_cluster_state(client: Client) -> None:
    async with asyncio.timeout(60):
        while True:
            state = await client.hakeeper.GetClusterState(hakeeper_pb2.GetClusterStateRequest())
            if state.state == "running" and all(
                replica.reported for shard in state.shards for replica in shard.replicas
            ):
                break
            await asyncio.sleep(0.05)
    assert state.cluster_id == "c"
    assert [store.store_id for store in state.stores] == ["s1"]
    assert not state.stores[0].expired
    assert state.stores[0].disk_used_bytes > 0
    assert {0, 1} <= {shard.shard_id for shard in state.shards}
    stale = await client.hakeeper.GetClusterState(hakeeper_pb2.GetClusterStateRequest(stale=True))
    assert stale.cluster_id == "c"


async def test_a_report_is_made_in_slices_and_bounded(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaches REPORT_ROWS_PER_SLICE and REPORT_BYTES_MAX, which are made small."""
    report = await client.admin.GetClusterReport(admin_pb2.GetClusterReportRequest())
    decoded = msgspec.json.decode(report.json, type=ClusterReport)
    for rows in (1, 2, 256):
        monkeypatch.setattr(status, "REPORT_ROWS_PER_SLICE", rows)
        assert await status.to_json_in_slices(decoded) == status.to_json(decoded)
    monkeypatch.setattr(admin_service, "REPORT_BYTES_MAX", 100)
    await refused(
        client.admin.GetClusterReport(admin_pb2.GetClusterReportRequest()), Reason.TOO_LARGE
    )


async def test_store_status_and_cluster_report(client: Client) -> None:
    await client.append(1, b"a")
    own = await client.admin.GetStoreStatus(admin_pb2.GetStoreStatusRequest())
    assert (own.store_id, own.cluster_id) == ("s1", "c")
    assert own.durable_writes > 0
    assert own.segment_bytes > 0
    mine = next(item for item in own.replicas if item.shard_id == 1)
    assert (mine.role, mine.first_lsn) == ("leader", 1)
    one = await client.admin.GetStoreStatus(admin_pb2.GetStoreStatusRequest(only_shard=1))
    assert [item.shard_id for item in one.replicas] == [1]
    hakeeper = await client.admin.GetStoreStatus(admin_pb2.GetStoreStatusRequest(only_shard=0))
    assert [item.shard_id for item in hakeeper.replicas] == [0], "0 is a shard, not all of them"
    none = await client.admin.GetStoreStatus(admin_pb2.GetStoreStatusRequest(only_shard=1 << 63))
    assert not none.replicas
    report = await client.admin.GetClusterReport(admin_pb2.GetClusterReportRequest())
    found = json.loads(report.json)
    assert found["cluster"]["asked_store"] == "s1"
    assert {shard["shard"] for shard in found["shards"]} >= {0, 1}
    later = await client.admin.GetClusterReport(admin_pb2.GetClusterReportRequest(made_now=True))
    assert json.loads(later.json)["cluster"]["time_us"] > found["cluster"]["time_us"]


async def test_shard_info(client: Client) -> None:
    info = await client.hakeeper.GetShardInfo(hakeeper_pb2.GetShardInfoRequest(shard_id=1))
    assert info.name == "log-1"
    assert len(info.client_addresses) == 1
    assert [replica.store_id for replica in info.replicas] == ["s1"]
    await refused(
        client.hakeeper.GetShardInfo(hakeeper_pb2.GetShardInfoRequest(shard_id=999)),
        Reason.SHARD_NOT_FOUND,
    )


async def test_eight_shards_at_run_time(client: Client) -> None:
    shards = []
    for number in range(8):
        request = hakeeper_pb2.CreateShardRequest(name=f"extra-{number}")
        shards.append((await client.hakeeper.CreateShard(request)).shard_id)
    assert len(set(shards)) == 8
    for shard in shards:
        await client.shard_ready(shard)
        assert await client.append(shard, b"first") == 1


async def test_create_shard_refusals(client: Client) -> None:
    create = client.hakeeper.CreateShard
    request = hakeeper_pb2.CreateShardRequest
    await refused(create(request(shard_id=1)), Reason.SHARD_EXISTS)
    await refused(create(request(name="log-1")), Reason.SHARD_EXISTS)
    await refused(create(request(replicas=3)), Reason.NOT_ENOUGH_STORES)
    await refused(create(request(replicas=1000)), Reason.INVALID_ARGUMENT)
    await refused(create(request(name="x" * 129)), Reason.INVALID_ARGUMENT)
    await refused(create(request(shard_id=2**64 - 1)), Reason.INVALID_ARGUMENT)


async def test_ids_are_unique_and_idempotent_by_request(client: Client) -> None:
    allocate = client.hakeeper.AllocateIds
    request = hakeeper_pb2.AllocateIdsRequest
    first = await allocate(request(key="k", count=10, request_id="r1"))
    again = await allocate(request(key="k", count=10, request_id="r1"))
    other = await allocate(request(key="k", count=1, request_id="r2"))
    assert (first.first, again.first, other.first) == (1, 1, 11)
    await refused(allocate(request(key="k")), Reason.INVALID_ARGUMENT)
    await refused(allocate(request(key="k", count=ALLOCATE_IDS_MAX + 1)), Reason.INVALID_ARGUMENT)


async def test_heartbeat_of_a_database_service(client: Client) -> None:
    request = hakeeper_pb2.HeartbeatRequest(
        service_id="tn-1", kind="tn", address="127.0.0.1:1", labels={"zone": "a"}
    )
    assert list((await client.hakeeper.Heartbeat(request)).commands) == []
    await refused(
        client.hakeeper.Heartbeat(hakeeper_pb2.HeartbeatRequest(kind="tn")),
        Reason.INVALID_ARGUMENT,
    )


async def test_a_command_for_a_service_is_one_by_its_request_id(client: Client) -> None:
    beat = hakeeper_pb2.HeartbeatRequest(service_id="cn-1", kind="cn")
    await client.hakeeper.Heartbeat(beat)
    send = client.hakeeper.SendServiceCommand
    request = hakeeper_pb2.SendServiceCommandRequest
    first = await send(request(service_id="cn-1", kind="k", payload=b"p", request_id="r1"))
    again = await send(request(service_id="cn-1", kind="k", payload=b"p", request_id="r1"))
    other = await send(request(service_id="cn-1", kind="k", payload=b"p", request_id="r2"))
    assert first.command_id == again.command_id < other.command_id
    commands = (await client.hakeeper.Heartbeat(beat)).commands
    assert [one.id for one in commands] == [first.command_id, other.command_id]
    await refused(send(request(service_id="cn-1", kind="k")), Reason.INVALID_ARGUMENT)
    await refused(
        send(request(service_id="cn-1", kind="l", request_id="r1")), Reason.INVALID_ARGUMENT
    )


async def test_appends_and_reads_leave_no_lines_in_the_log(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines are for events; other work that goes on meanwhile may leave a few."""
    count = 200
    with caplog.at_level(logging.DEBUG, logger="logservice"):
        for _ in range(count):
            lsn = await client.append(1, b"quiet")
            await client.log.Read(log_pb2.ReadRequest(shard_id=1, lsn=lsn))
    lines = [one for one in caplog.records if one.name.startswith("logservice")]
    assert len(lines) < count // 10, [one.getMessage() for one in lines][:20]


async def test_truncation_returns_disk_space(client: Client) -> None:
    request = hakeeper_pb2.CreateShardRequest(name="truncated")
    shard = (await client.hakeeper.CreateShard(request)).shard_id
    await client.shard_ready(shard)

    async def status() -> Any:
        return await client.admin.GetStoreStatus(admin_pb2.GetStoreStatusRequest())

    async def segment_bytes() -> int:
        return int((await status()).segment_bytes)

    lsn = 0
    for _ in range(24):
        lsn = await client.append(shard, b"x" * 500_000)
    async with asyncio.timeout(60):
        # The status may be as old as ADMIN_STATUS_AGE_S.
        while (full := await segment_bytes()) <= 10 * 1024 * 1024:  # noqa: ASYNC110 - not ours
            await asyncio.sleep(0.1)
    await client.log.Truncate(log_pb2.TruncateRequest(shard_id=shard, lsn=lsn - 1))
    # What lies above the truncation LSN keeps the newest export from being installed; one more
    # append after it lets the next export cover the truncated ones.
    await client.append(shard, b"tail")
    async with asyncio.timeout(60):
        while await segment_bytes() > full // 2:
            await client.append(shard, b"tail")
            await client.log.Truncate(log_pb2.TruncateRequest(shard_id=shard, lsn=lsn + 1))
            lsn += 1
            await asyncio.sleep(0.1)
        while not (await status()).truncation_counts["installed"]:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)


async def test_stop_and_restart_keep_everything(tmp_path: Path) -> None:
    settings = configured(tmp_path / "data")
    for round_number in range(3):
        store = Store(settings)
        await store.start()
        client = Client(store)
        try:
            await client.shard_ready(1)
            assert await client.append(1, b"round %d" % round_number) == round_number + 1
            found = await client.log.Read(log_pb2.ReadRequest(shard_id=1, lsn=1))
            assert [run.first_lsn for run in found.blocks] == list(range(1, round_number + 2))
        finally:
            await client.channel.close(None)
            await store.stop()


async def test_a_stopping_store_ends_its_streams(tmp_path: Path) -> None:
    store = Store(configured(tmp_path / "data"))
    await store.start()
    client = Client(store)
    await client.shard_ready(1)
    follow = client.log.Follow(log_pb2.FollowRequest(shard_id=1, lsn=1))
    reading = asyncio.create_task(follow.read())
    await asyncio.sleep(0.05)
    async with asyncio.timeout(60):
        await store.stop()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reading
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    await client.channel.close(None)
