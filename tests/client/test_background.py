"""INV-CLIENT-TASK: the end of a task is noticed, whatever ended it; a timer outlives tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
import pytest
from logservice_client import LogClient, LogServiceError, Outcome
from logservice_client.appender import Appender
from logservice_client.background import Every, begin_task
from logservice_client.channels import ChannelPool
from logservice_wire.errors import Busy, NotReady

from tests.client.fake_server import FakeCluster
from tests.waiting import eventually


class Reported:
    """What the loop's exception handler is given."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        asyncio.get_running_loop().set_exception_handler(self)

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.messages.append(f"{context['message']}: {context['exception']!r}")


def cancel_all_others() -> None:
    """As a program may."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_the_end_of_a_task_is_told_once_whatever_ended_it() -> None:
    reported = Reported()
    ended: list[BaseException | None] = []

    async def work(error: Exception | None) -> None:
        await asyncio.sleep(0)
        if error is not None:
            raise error

    begin_task(work(None), ended.append)
    await eventually(lambda: len(ended) == 1)
    begin_task(work(NotReady("no leader")), ended.append)
    await eventually(lambda: len(ended) == 2)
    assert reported.messages == []
    begin_task(work(KeyError("a bug")), ended.append, name="append-7")
    await eventually(lambda: len(ended) == 3)
    assert reported.messages == ["append-7 has broken: KeyError('a bug')"]
    begin_task(work(None), ended.append)
    cancel_all_others()  # before its first step
    await eventually(lambda: len(ended) == 4)
    assert [type(why) for why in ended] == [
        type(None),
        NotReady,
        KeyError,
        asyncio.CancelledError,
    ]


async def test_a_timer_goes_on_when_tasks_are_cancelled_and_looks_raise() -> None:
    loop = asyncio.get_running_loop()
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    looks: list[int] = []

    def look() -> float:
        looks.append(len(looks))
        if len(looks) == 2:
            raise KeyError("a bug")
        return 0.001

    every = Every(0.001, look)
    cancel_all_others()
    await eventually(lambda: len(looks) >= 4)
    assert len(reported) == 1
    every.stop()
    count = len(looks)
    await asyncio.sleep(0.01)
    assert len(looks) == count


async def test_who_waits_for_a_worker_that_broke_is_told_at_once(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = Reported()
    async with LogClient(cluster.endpoints) as client:
        log = client.shard(1)
        await log.append(b"one")

        def broken(*_: object) -> bool:
            raise KeyError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(Appender, "_should_move", broken)
            with pytest.raises(LogServiceError) as told:
                await log.append(b"two")
            assert told.value.outcome is Outcome.NOT_APPLIED, "it broke before it was sent"
        assert reported.messages == ["append-1 has broken: KeyError('a bug')"]
        assert await log.append(b"three") == 2, "the next worker goes on"


async def test_who_waits_for_room_waits_no_longer_than_its_timeout(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logservice_client.batch.WAITING_RECORDS_MAX", 2)
    async with LogClient(cluster.endpoints) as client:
        log = client.shard(1)
        for store in cluster.stores:
            await store.kill()
        full = [asyncio.ensure_future(log.append(b"full", timeout=60.0)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Busy) as told:
            await log.append(b"more", timeout=0.05)
        assert told.value.outcome is Outcome.NOT_APPLIED
        for one in full:
            one.cancel()


async def test_room_that_comes_by_deadlines_is_seen(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logservice_client.batch.WAITING_RECORDS_MAX", 2)
    monkeypatch.setattr("logservice_client.shard.OWN_TIMER_MAX_S", 0.0)
    async with LogClient(cluster.endpoints) as client:
        log = client.shard(1)
        for store in cluster.stores:
            await store.kill()
        full = [asyncio.ensure_future(log.append(b"full", timeout=0.2)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(NotReady):
            await log.append(b"more", timeout=2.0)
        for one in full:
            with pytest.raises(LogServiceError):
                await one


async def test_a_channel_whose_renewal_is_cancelled_is_renewed_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Source:
        now = 1

        def current(self) -> Any:
            return self.now

    monkeypatch.setattr("logservice_client.channels.TLS_RELOAD_S", 0.0)
    # The fake cluster speaks no TLS.
    monkeypatch.setattr(
        ChannelPool, "_new_channel", lambda _, address: grpc.aio.insecure_channel(address)
    )
    source = Source()
    pool = ChannelPool(source)  # type: ignore[arg-type]
    address = cluster.endpoints[0]
    await pool.connect(address)
    old = pool._channels[address]
    source.now = 2
    pool._look()
    cancelled = [task for task in asyncio.all_tasks() if task.get_name() == f"renew-{address}"]
    assert len(cancelled) == 1
    cancelled[0].cancel()
    await asyncio.wait(cancelled)
    assert pool._channels[address] is old
    await asyncio.sleep(0)
    pool._look()
    await eventually(lambda: pool._channels[address] is not old)
    await pool.close()
