"""INV-LOOP-LENT: the loops of clients that are gone, and the clients that get them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Iterator

import pytest
from logservice_client import SyncLogClient, loop_thread
from logservice_client.loop_thread import LoopThread
from logservice_wire.errors import ClientClosed

from tests.client.fake_server import FakeCluster
from tests.client.running_fake import running_fake


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with running_fake(stores=1) as cluster:
        yield cluster


async def nothing() -> None:
    """The end of a client."""


@pytest.fixture
def none_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "_idle", deque())


@pytest.mark.usefixtures("none_idle")
def test_inv_loop_lent_a_loop_is_of_one_client_at_a_time_and_is_never_closed() -> None:
    """INV-LOOP-LENT, INV-LOOP-THREAD."""
    first, second = LoopThread(), LoopThread()
    assert first.loop is not second.loop
    loop = first.loop
    ended = threading.Event()

    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    async def begin() -> None:
        _tasks.append(asyncio.create_task(endless()))

    _tasks: list[asyncio.Task[None]] = []
    first.wait(begin())
    first.close(nothing)
    assert ended.is_set()
    with pytest.raises(ClientClosed):
        first.wait(nothing())
    assert not loop.is_closed()
    third, fourth = LoopThread(), LoopThread()
    assert third.loop is loop
    assert fourth.loop not in (loop, second.loop)

    async def here() -> threading.Thread:
        return threading.current_thread()

    assert third.wait(here()) is not fourth.wait(here())
    for one in (second, third, fourth):
        one.close(nothing)
    assert len(loop_thread._idle) == 3


@pytest.mark.usefixtures("none_idle")
def test_a_last_word_that_fails_leaves_the_loop_to_the_next() -> None:
    async def fails() -> None:
        raise OSError("the last word")

    thread = LoopThread()
    loop = thread.loop
    with pytest.raises(OSError, match="the last word"):
        thread.close(fails)
    assert LoopThread().loop is loop


@pytest.mark.usefixtures("none_idle")
def test_a_forked_child_makes_a_loop_of_its_own() -> None:
    LoopThread().close(nothing)
    child = os.fork()
    if not child:
        try:
            thread = LoopThread()
            thread.wait(nothing())
            thread.close(nothing)
        finally:
            os._exit(0 if len(loop_thread._idle) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(loop_thread._idle) == 1


def test_clients_that_end_beside_others_print_nothing(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC hands a loop's events to any loop that it knows, and a closed one raised there."""

    def lives() -> None:
        for _ in range(60):
            with SyncLogClient(cluster.endpoints) as client:
                log = client.shard(1)
                log.append(b"x")
                following = log.follow(1)
                next(following)  # the call is under way when the client ends

    threads = [threading.Thread(target=lives) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "Event loop is closed" not in caplog.text + capfd.readouterr().err
