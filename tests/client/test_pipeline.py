"""Appends of threads that do not wait: order, back pressure, failures, the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from logservice_client import SyncLogClient, pipeline
from logservice_client.bounds import PIPELINED_BYTES_MAX, PIPELINED_RECORDS_MAX
from logservice_wire.bounds import RECORD_BYTES_MAX
from logservice_wire.errors import (
    Busy,
    ClientClosed,
    DeadlineExceeded,
    InvalidArgument,
    LineageChanged,
    Outcome,
    TooLarge,
    WrongExpectedLsn,
)

from tests.client.fake_server import FakeCluster
from tests.client.running_fake import running_fake

WAIT_S = 60.0


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with running_fake(stores=1) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[SyncLogClient]:
    with SyncLogClient(cluster.endpoints) as client:
        yield client


def test_lsns_are_in_the_order_of_the_calls(client: SyncLogClient) -> None:
    """INV-PIPELINE-1, with calls that wait in between."""
    log = client.shard(1)
    futures = []
    for number in range(3000):
        record: bytes | list[bytes] = b"%d" % number
        futures.append(log.append_async([record, b"and"] if number % 7 == 0 else record))
        if number == 1000:
            waited = log.append(b"waited")
            assert waited == futures[-1].result(WAIT_S) + 1, "it overtook nothing"
    lsns = [future.result(WAIT_S) for future in futures]
    assert lsns == sorted(lsns)
    found = dict(log.records(1, until_tail=True))
    assert [found[lsn] for lsn in lsns] == [b"%d" % number for number in range(3000)]


def test_threads_share_one_order(client: SyncLogClient, cluster: FakeCluster) -> None:
    def append_many(name: int) -> list[Future[int]]:
        log = client.shard(1)
        return [log.append_async(b"%d/%d" % (name, number)) for number in range(500)]

    with ThreadPoolExecutor(4) as threads:
        for futures in threads.map(append_many, range(4)):
            lsns = [future.result(WAIT_S) for future in futures]
            assert lsns == sorted(lsns)
    assert cluster.blocks_seen < 1000, "they share blocks"


def test_too_much_waits_for_room(
    client: SyncLogClient, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-PIPELINE-2."""
    assert PIPELINED_RECORDS_MAX == 65_536
    monkeypatch.setattr(pipeline, "PIPELINED_RECORDS_MAX", 10)
    log = client.shard(1)
    log.append(b"first")
    cluster.stores[0].frozen.set()
    futures = [log.append_async(b"a") for _ in range(10)]
    with pytest.raises(Busy) as caught:
        log.append_async(b"one too many", timeout=0.05)
    assert caught.value.outcome is Outcome.NOT_APPLIED
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(log.append_async, b"late")
        cluster.stores[0].frozen.clear()
        assert late.result(WAIT_S).result(WAIT_S) == 12
    assert [future.result(0) for future in futures] == list(range(2, 12))


def test_bytes_wait_for_room_too(
    client: SyncLogClient, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PIPELINED_BYTES_MAX == 32 << 20
    monkeypatch.setattr(pipeline, "PIPELINED_BYTES_MAX", 1000)
    log = client.shard(1)
    log.append(b"first")
    cluster.stores[0].frozen.set()
    large = log.append_async(bytes(5000))
    with pytest.raises(Busy):
        log.append_async(b"", timeout=0.05)
    cluster.stores[0].frozen.clear()
    assert large.result(WAIT_S) == 2


def test_a_failure_is_that_of_one_append(client: SyncLogClient) -> None:
    log = client.shard(1)
    good = log.append_async(b"a")
    wrong = log.append_async(b"b", expected_lsn=7)
    after = log.append_async(b"c")
    assert good.result(WAIT_S) == 1
    with pytest.raises(WrongExpectedLsn) as caught:
        wrong.result(WAIT_S)
    assert caught.value.next_lsn == 2
    assert after.result(WAIT_S) == 2


def test_appends_that_expect_their_lsn_stop_at_a_hole(client: SyncLogClient) -> None:
    log = client.shard(1)
    futures = [log.append_async(b"a", expected_lsn=lsn) for lsn in (1, 2, 4, 4, 5, 6)]
    assert [future.exception(WAIT_S) is None for future in futures] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_a_future_ends_with_its_time(client: SyncLogClient, cluster: FakeCluster) -> None:
    log = client.shard(1)
    log.append(b"first")
    cluster.stores[0].frozen.set()
    future = log.append_async(b"a", timeout=0.2)
    with pytest.raises(DeadlineExceeded):
        future.result(WAIT_S)


def test_the_end_of_the_client_ends_all(cluster: FakeCluster) -> None:
    """INV-PIPELINE-3."""
    client = SyncLogClient(cluster.endpoints)
    log = client.shard(1)
    log.append(b"first")
    cluster.stores[0].frozen.set()
    futures = [log.append_async(b"a") for _ in range(5000)]
    assert not futures[0].cancel()
    client.close()
    assert all(isinstance(future.exception(0), ClientClosed) for future in futures)
    with pytest.raises(ClientClosed):
        log.append_async(b"late")


def test_handing_over_that_races_with_the_end(cluster: FakeCluster) -> None:
    client = SyncLogClient(cluster.endpoints)
    log = client.shard(1)
    begun = threading.Barrier(5)

    def append_on(_: int) -> list[Future[int]]:
        futures: list[Future[int]] = []
        begun.wait()
        while True:
            try:
                futures.append(log.append_async(b"a"))
            except ClientClosed:
                return futures

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(append_on, number) for number in range(4)]
        begun.wait()
        client.close()
        for one in running:
            for future in one.result(WAIT_S):
                error = future.exception(WAIT_S)
                assert error is None or isinstance(error, ClientClosed)


def test_what_a_callback_may_do(client: SyncLogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    log = client.shard(1)
    told: Future[object] = Future()

    def waits(_: Future[int]) -> None:
        try:
            told.set_result(log.append(b"b"))
        except InvalidArgument as error:
            told.set_result(error)

    log.append_async(b"a").add_done_callback(waits)
    assert isinstance(told.result(WAIT_S), InvalidArgument)
    next_one: Future[Future[int]] = Future()

    def goes_on(_: Future[int]) -> None:
        next_one.set_result(log.append_async(b"c"))

    log.append_async(b"b").add_done_callback(goes_on)
    assert next_one.result(WAIT_S).result(WAIT_S) == 3
    monkeypatch.setattr(pipeline, "PIPELINED_RECORDS_MAX", 0)
    refused: Future[object] = Future()

    def finds_no_room(_: Future[int]) -> None:
        try:
            refused.set_result(log.append_async(b"d"))
        except Busy as error:
            refused.set_result(error)

    def begin() -> None:
        done: Future[int] = Future()
        done.add_done_callback(finds_no_room)
        done.set_result(1)

    client._loop.call_soon(begin)
    assert isinstance(refused.result(WAIT_S), Busy), "it would wait for itself"


def test_wrong_arguments_are_refused_by_the_call(client: SyncLogClient) -> None:
    log = client.shard(1)
    with pytest.raises(TooLarge):
        log.append_async(bytes(RECORD_BYTES_MAX + 1))
    for record, lsn, timeout in (([], 1, 1), ("text", 1, 1), (b"a", 0, 1), (b"a", 1, 0)):
        with pytest.raises(InvalidArgument):
            log.append_async(record, expected_lsn=lsn, timeout=timeout)  # type: ignore[arg-type]
    assert log.status().position.applied_lsn == 0


def test_another_history_is_told_to_every_future(
    client: SyncLogClient, cluster: FakeCluster
) -> None:
    log = client.shard(1)
    log.append([b"a", b"b"])
    cluster.logs[1].fork(b"l" * 16, keep=1)
    with pytest.raises(LineageChanged) as caught:
        log.read(1)
    assert (caught.value.fork_lsn, caught.value.lineage_number) == (1, 1)
    with pytest.raises(LineageChanged):
        log.append_async(b"c").result(WAIT_S)


def test_a_follow_crosses_between_the_threads_once_for_each_answer(
    client: SyncLogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = client.shard(1)
    for number in range(200):
        log.append(b"%d" % number)
    crossings = 0
    wait = log._wait

    def counted(work: object) -> object:
        nonlocal crossings
        crossings += 1
        return wait(work)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "_wait", counted)
    assert len(list(log.follow(1, until_lsn=200))) == 200
    assert crossings <= 5
