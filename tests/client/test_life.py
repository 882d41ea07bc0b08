"""The end of a client: what is under way ends with ClientClosed, and later use raises at once
(INV-CLIENT-END, INV-LOOP-THREAD).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from logservice_client import LogClient, SyncLogClient
from logservice_client.life import Life
from logservice_wire.errors import ClientClosed, InvalidArgument, LogServiceError, Outcome

from tests.client.fake_server import FakeCluster
from tests.client.running_fake import running_fake
from tests.waiting import eventually

WAIT_S = 60.0
"""A call that never ends fails the test after this."""


async def consumed(client: LogClient) -> None:
    async for _ in client.shard(1).follow(1):
        pass


async def watched(client: LogClient) -> None:
    async for _ in client.hakeeper.watch_events():
        pass


async def held(client: LogClient) -> None:
    async def handler(command: Any) -> None:
        raise AssertionError(command)

    service = client.hakeeper.service("tn-1", "tn", handler)
    service.replayed(1, 1)
    await service.held(1, timeout=WAIT_S)


Call = Callable[[LogClient], Awaitable[object]]

CALLS: dict[str, tuple[Call, Outcome]] = {
    "append": (lambda client: client.shard(1).append(b"a", timeout=WAIT_S), Outcome.UNKNOWN),
    "append, no timeout": (lambda client: client.shard(1).append(b"a"), Outcome.UNKNOWN),
    "read": (lambda client: client.shard(1).read(1), Outcome.NOT_APPLIED),
    "truncate": (lambda client: client.shard(1).truncate(1), Outcome.UNKNOWN),
    "follow": (consumed, Outcome.NOT_APPLIED),
    "digest": (lambda client: client.shard(1).digest(1, 2), Outcome.NOT_APPLIED),
    "cluster state": (lambda client: client.hakeeper.cluster_state(), Outcome.NOT_APPLIED),
    "create": (lambda client: client.hakeeper.create_shard(), Outcome.UNKNOWN),
    "watch": (watched, Outcome.NOT_APPLIED),
    "a hold that does not come": (held, Outcome.NOT_APPLIED),
}


async def silent(cluster: FakeCluster) -> None:
    """No store answers any more."""
    for store in cluster.stores:
        store.silent = True


async def arrived(cluster: FakeCluster) -> None:
    await eventually(lambda: any(store.calls for store in cluster.stores))


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_is_under_way_ends(cluster: FakeCluster, name: str) -> None:
    call, outcome = CALLS[name]
    client = LogClient(cluster.endpoints)
    await client.shard(1).append(b"first")
    await client.hakeeper.cluster_state()
    for store in cluster.stores:
        store.silent = True
        store.calls.clear()
        store.frozen.set()
    running = asyncio.ensure_future(call(client))
    if name.startswith("append"):
        await cluster.received(2)
    elif name != "a hold that does not come":
        await arrived(cluster)
    else:
        await asyncio.sleep(0)
    await client.close()
    with pytest.raises(ClientClosed) as caught:
        await asyncio.wait_for(running, WAIT_S)
    assert caught.value.outcome is outcome


@pytest.mark.parametrize("name", CALLS)
async def test_use_after_close_raises_at_once(cluster: FakeCluster, name: str) -> None:
    call, _ = CALLS[name]
    client = LogClient(cluster.endpoints)
    client.shard(1)
    await client.close()
    await client.close()
    with pytest.raises(ClientClosed) as caught:
        await asyncio.wait_for(call(client), WAIT_S)
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert not any(store.calls for store in cluster.stores)


async def test_what_was_not_sent_is_not_applied(cluster: FakeCluster) -> None:
    cluster.leader = -1
    client = LogClient(cluster.endpoints)
    appending = asyncio.ensure_future(client.shard(1).append(b"a"))
    await arrived(cluster)
    await client.close()
    with pytest.raises(ClientClosed) as caught:
        await appending
    assert caught.value.outcome is Outcome.NOT_APPLIED


async def test_a_cancellation_stays_one(cluster: FakeCluster) -> None:
    await silent(cluster)
    async with LogClient(cluster.endpoints) as client:
        running = asyncio.ensure_future(client.shard(1).read(1))
        await arrived(cluster)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_service_and_a_hold_end_with_their_client(cluster: FakeCluster) -> None:
    async def handler(command: Any) -> None:
        raise AssertionError(command)

    client = LogClient(cluster.endpoints)
    await client.shard(1).append(b"a")
    held_log = client.shard(1).hold("job", 1, ttl=1)
    await held_log.set()
    running = asyncio.create_task(client.hakeeper.service("tn-1", "tn", handler).run())
    await eventually(lambda: cluster.beats)
    await client.close()
    with pytest.raises(ClientClosed):
        await asyncio.wait_for(running, WAIT_S)
    keeping = held_log._keeping
    assert keeping is not None
    await eventually(lambda: keeping.stopped)


# --- the synchronous client ---------------------------------------------------------------------


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with running_fake(stores=1) as cluster:
        yield cluster


def follow_all(client: SyncLogClient) -> None:
    for _ in client.shard(1).follow(1):
        pass


SYNC_CALLS: dict[str, Callable[[SyncLogClient], object]] = {
    "append": lambda client: client.shard(1).append(b"a", timeout=WAIT_S),
    "read": lambda client: client.shard(1).read(1, timeout=WAIT_S),
    "follow": follow_all,
    "cluster state": lambda client: client.hakeeper.cluster_state(),
}


@pytest.mark.parametrize("name", SYNC_CALLS)
def test_a_waiting_thread_is_let_go(fake: FakeCluster, name: str) -> None:
    client = SyncLogClient(fake.endpoints)
    client.shard(1).append(b"first")
    store = fake.stores[0]
    store.calls.clear()
    store.silent = True
    store.frozen.set()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(SYNC_CALLS[name], client)
        with suppress(TimeoutError):
            running.result(0.2)
        client.close()
        with pytest.raises(ClientClosed):
            running.result(WAIT_S)


@pytest.mark.parametrize("name", SYNC_CALLS)
def test_a_thread_that_comes_later_is_told(fake: FakeCluster, name: str) -> None:
    client = SyncLogClient(fake.endpoints)
    client.shard(1)
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        SYNC_CALLS[name](client)


def test_a_follow_that_was_begun_ends(fake: FakeCluster) -> None:
    client = SyncLogClient(fake.endpoints)
    client.shard(1).append([b"a"])
    items = client.shard(1).follow(1)
    assert next(items).first_lsn == 1
    client.close()
    with pytest.raises(ClientClosed):
        next(items)


def test_threads_that_race_with_close_are_all_told(fake: FakeCluster) -> None:
    client = SyncLogClient(fake.endpoints)
    log = client.shard(1)
    begun = threading.Barrier(9)

    def append_on(_: int) -> LogServiceError:
        begun.wait()
        while True:
            try:
                log.append(b"a")
            except LogServiceError as error:
                return error

    with ThreadPoolExecutor(8) as threads:
        running = [threads.submit(append_on, number) for number in range(8)]
        begun.wait()
        client.close()
        assert {type(one.result(WAIT_S).reason) for one in running} == {type(ClientClosed.reason)}
        assert all(isinstance(one.result(), ClientClosed) for one in running)


def use_in_child(client: SyncLogClient, answers: Any) -> None:
    for call in SYNC_CALLS.values():
        try:
            call(client)
        except ClientClosed as error:
            answers.send(str(error))
        else:
            answers.send("nothing raised")
    client.close()
    answers.send("closed")


def test_a_forked_child_is_told(fake: FakeCluster) -> None:
    with SyncLogClient(fake.endpoints) as client:
        client.shard(1).append(b"first")
        mine, childs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(
            target=use_in_child, args=(client, childs)
        )
        child.start()
        try:
            for _ in SYNC_CALLS:
                assert mine.poll(WAIT_S), "the child waits for ever"
                assert "fork" in mine.recv()
            assert mine.poll(WAIT_S)
            assert mine.recv() == "closed"
        finally:
            child.kill()
            child.join()
        assert client.shard(1).append(b"second") == 2


def test_a_use_costs_no_system_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """It did: a tenth of what an append in a full block cost a client was the process id."""
    life = Life()

    def asked() -> int:
        pytest.fail("the process id was asked for")

    monkeypatch.setattr(os, "getpid", asked)
    life.check()


# --- arguments ----------------------------------------------------------------------------------

WRONG: dict[str, Call] = {
    "no time": lambda client: client.shard(1).append(b"a", timeout=0),
    "negative time": lambda client: client.shard(1).read(1, timeout=-1),
    "no number": lambda client: client.shard(1).status(timeout=float("nan")),
    "time of a block": lambda client: client.shard(1).append_block(b"", timeout=-1),
    "time of a list": lambda client: client.hakeeper.list_shards(timeout=0),
    "time of a wait": lambda client: client.hakeeper.wait_deleted(1, timeout=0),
    "patience": lambda client: anext(client.shard(1).follow(1, patience=0)),
    "patience of a watch": lambda client: anext(client.hakeeper.watch_events(patience=-1)),
    "patience of a digest": lambda client: client.shard(1).digest(1, 2, patience=0),
    "negative LSN": lambda client: client.shard(1).read(-1),
    "large LSN": lambda client: client.shard(1).read(2**64),
    "LSN to follow": lambda client: anext(client.shard(1).follow(-1)),
    "LSN to stop": lambda client: anext(client.shard(1).follow(1, until_lsn=2**64)),
    "LSN to truncate": lambda client: client.shard(1).truncate(-1),
    "LSN of a hold": lambda client: client.shard(1).set_hold("h", 2**64),
    "expected LSN": lambda client: client.shard(1).append(b"a", expected_lsn=2**64),
    "count": lambda client: client.shard(1).allocate_timestamps(-1),
    "count of ids": lambda client: client.hakeeper.allocate_ids(2**64),
    "text for a number": lambda client: client.shard(1).read("1"),  # type: ignore[arg-type]
    "shard": lambda client: client.hakeeper.shard_info(-1),
    "shard to create": lambda client: client.hakeeper.create_shard(shard_id=2**64),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_argument_is_a_typed_error(client: LogClient, name: str) -> None:
    with pytest.raises(InvalidArgument):
        await WRONG[name](client)


@pytest.mark.parametrize("shard_id", [0, -1, 2**64])
async def test_logs_have_ids_of_64_bits(client: LogClient, shard_id: int) -> None:
    with pytest.raises(InvalidArgument):
        client.shard(shard_id)


async def test_a_long_time_is_a_time(client: LogClient) -> None:
    """gRPC is told of TIMEOUT_MAX_S at most."""
    log = client.shard(1)
    assert await log.append(b"a", timeout=float("inf")) == 1
    assert (await log.connect(timeout=10**30)).applied_lsn == 1
    assert (await log.status(timeout=float("inf"))).position.applied_lsn == 1
