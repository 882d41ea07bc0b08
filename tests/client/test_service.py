"""A service registers, gets each command at least once and in order, and outlives silence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from logservice_client import LogClient
from logservice_client.service import Service
from logservice_wire.bounds import REPLAYED_PER_SERVICE_MAX
from logservice_wire.errors import (
    DeadlineExceeded,
    HoldRefused,
    InvalidArgument,
    PermissionDenied,
    ShardNotFound,
    StaleEpoch,
    TooLarge,
)
from logservice_wire.v1 import hakeeper_pb2

from tests.client.fake_server import FakeCluster, Fault
from tests.waiting import eventually


class Handled:
    """A handler that notes what it was given, and fails as often as it is told to."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.failures = 0

    async def __call__(self, command: hakeeper_pb2.ServiceCommand) -> None:
        if self.failures:
            self.failures -= 1
            raise ValueError("not now")
        self.ids.append(command.id)


def order(cluster: FakeCluster, number: int) -> None:
    cluster.orders[number] = hakeeper_pb2.ServiceCommand(id=number, kind="k")


@asynccontextmanager
async def running(client: LogClient, handled: Handled) -> AsyncIterator[Service]:
    service = Service(client.hakeeper._caller, "cn-1", "cn", "a:1", {"z": "1"}, handled, 0.01)
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_commands_are_acknowledged_after_they_were_handled(
    cluster: FakeCluster, client: LogClient
) -> None:
    order(cluster, 5)
    order(cluster, 6)
    handled = Handled()
    async with running(client, handled) as service:
        await eventually(lambda: not cluster.orders)
        assert handled.ids == [5, 6]
        assert service.silent_s < 60
    assert cluster.beats[0].kind == "cn"
    assert dict(cluster.beats[0].labels) == {"z": "1"}


async def test_a_command_whose_answer_was_lost_is_sent_once(
    cluster: FakeCluster, client: LogClient
) -> None:
    cluster.faults.append(Fault(lost="after"))
    assert await client.hakeeper.send_service_command("cn-1", "reload", b"now") == 1
    assert await client.hakeeper.send_service_command("cn-1", "reload", b"now") == 2
    assert len(cluster.orders) == 2, "each call has a request id of its own"
    for _ in range(2):
        mine = await client.hakeeper.send_service_command("cn-1", "reload", request_id="mine")
        assert mine == 3
    assert "mine" in cluster.sent


async def test_a_handler_that_fails_gets_the_command_again_and_before_the_next(
    cluster: FakeCluster, client: LogClient
) -> None:
    order(cluster, 5)
    order(cluster, 6)
    handled = Handled()
    handled.failures = 2
    async with running(client, handled) as service:
        await eventually(lambda: not cluster.orders)
        assert service.failures == 2
    assert handled.ids == [5, 6]


async def test_a_service_that_starts_again_gets_what_was_not_handled(
    cluster: FakeCluster, client: LogClient
) -> None:
    order(cluster, 5)
    first, second = Handled(), Handled()
    first.failures = 10**9
    async with running(client, first) as service:
        await eventually(lambda: service.failures)
    async with running(client, second):
        await eventually(lambda: not cluster.orders)
    assert second.ids == [5]


async def test_other_labels_are_said_with_the_next_heartbeat(
    cluster: FakeCluster, client: LogClient
) -> None:
    async with running(client, Handled()) as service:
        await eventually(lambda: cluster.beats)
        service.relabel({"work": "draining"})
        await eventually(lambda: dict(cluster.beats[-1].labels) == {"work": "draining"})


async def test_silence_is_outlived(
    cluster: FakeCluster, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logservice_client.service.SERVICE_HEARTBEAT_TIMEOUT_S", 0.1)
    cluster.hakeeper_ready = False
    handled = Handled()
    async with running(client, handled) as service:
        await eventually(lambda: service.unheard)
        assert service.silent_s == float("inf")
        cluster.hakeeper_ready = True
        order(cluster, 5)
        await eventually(lambda: handled.ids == [5])


async def test_a_name_of_another_identity_ends_it(cluster: FakeCluster, client: LogClient) -> None:
    cluster.taken.add("cn-1")
    service = client.hakeeper.service("cn-1", "cn", Handled())
    with pytest.raises(PermissionDenied):
        await service.run()


def held(lsn: int, held_lsn: int = 0, first_lsn: int = 1, **more: object) -> Any:
    return hakeeper_pb2.ReplayedHold(
        shard_id=1, lsn=lsn, held_lsn=held_lsn, first_lsn=first_lsn, **more
    )


async def test_what_was_replayed_is_said_until_it_is_forgotten(
    cluster: FakeCluster, client: LogClient
) -> None:
    async with running(client, Handled()) as service:
        service.replayed(1, 10)
        cluster.replayed_holds = [held(10, 11)]
        assert await service.held(1, timeout=30) == 11
        assert [(one.shard_id, one.lsn) for one in cluster.beats[-1].replayed] == [(1, 10)]
        service.replayed(1, 4)
        with pytest.raises(DeadlineExceeded):  # the hold is higher than what is wanted now
            await service.held(1, timeout=0.05)
        cluster.replayed_holds = [held(4, 8, first_lsn=8)]
        with pytest.raises(HoldRefused) as refused:
            await service.held(1, timeout=30)
        assert refused.value.metadata == {"first_lsn": "8"}
        cluster.replayed_holds = [held(4, gone=True)]
        await eventually(lambda: service.holds[1].gone)
        with pytest.raises(ShardNotFound):
            await service.held(1, timeout=30)
        service.forget(1)
        await eventually(lambda: not cluster.beats[-1].replayed)
        with pytest.raises(InvalidArgument):
            await service.held(1, timeout=30)


async def test_before_version_2_the_service_is_registered_and_nothing_is_held(
    cluster: FakeCluster, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logservice_client.service.SERVICE_HEARTBEAT_TIMEOUT_S", 0.05)
    monkeypatch.setattr("logservice_client.service.SERVICE_TOO_EARLY_S", 0.05)
    cluster.holds_for_services = False
    async with running(client, Handled()) as service:
        service.replayed(1, 10)
        await eventually(lambda: service.silent_s < 60)
        with pytest.raises(DeadlineExceeded):
            await service.held(1, timeout=0.05)
        cluster.replayed_holds = [held(10, 11)]
        cluster.holds_for_services = True
        assert await service.held(1, timeout=30) == 11


async def test_what_cannot_be_replayed_is_refused_at_once(client: LogClient) -> None:
    service = client.hakeeper.service("tn-1", "tn", Handled())
    for shard_id, lsn in ((0, 1), (1, -1)):
        with pytest.raises(InvalidArgument):
            service.replayed(shard_id, lsn)
    for shard_id in range(1, REPLAYED_PER_SERVICE_MAX + 1):
        service.replayed(shard_id, 0)
    with pytest.raises(TooLarge):
        service.replayed(REPLAYED_PER_SERVICE_MAX + 1, 0)
    service.replayed(1, 1)


async def test_the_older_of_two_processes_under_one_name_ends(
    cluster: FakeCluster, client: LogClient
) -> None:
    service = Service(client.hakeeper._caller, "cn-1", "cn", "a:1", {}, Handled(), 0.01)
    task = asyncio.create_task(service.run())
    await eventually(lambda: len(cluster.beats) > 2)
    assert [one.sequence for one in cluster.beats[:3]] == [1, 2, 3]
    cluster.old_boots.add(cluster.beats[0].boot_id)
    with pytest.raises(StaleEpoch):
        await asyncio.wait_for(task, 30)
