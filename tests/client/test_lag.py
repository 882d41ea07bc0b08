"""How far a follow is behind the tail, as it says itself."""

from __future__ import annotations

from contextlib import aclosing, closing

import pytest
from logservice_client import Lag, LogClient, SyncLogClient, lag
from logservice_client.lag import Standing

from tests.client.fake_server import FakeCluster
from tests.client.running_fake import running_fake
from tests.client.served_on_a_thread import served_on_a_thread
from tests.waiting import eventually


def test_in_lsns_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag.time, "time", lambda: 1_000.0)
    standing = Standing(5)
    assert standing.lag() is None, "of the tail nothing was heard"
    standing.heard(10)
    assert standing.lag() == Lag(6, None), "nothing was taken, so no time is known"
    standing.took(8, 990_000_000)
    assert standing.lag() == Lag(3, 10.0)
    standing.took(9, 0)
    assert standing.lag() == Lag(2, 10.0), "a gap without a time"
    standing.heard(9)
    assert standing.lag() == Lag(2, 10.0), "another replica knows less"
    standing.took(11, 1_005_000_000)
    assert standing.lag() == Lag(0, 0.0)
    standing.heard(11)
    assert standing.lag() == Lag(1, 0.0), "a clock that is ahead of this one"


async def test_a_follow_counts_what_was_handed_out(cluster: FakeCluster, client: LogClient) -> None:
    log = client.shard(1)
    for _ in range(3):
        await log.append([b"a", b"b"])
    following = log.follow(1)
    assert (following.lag, following.next_lsn) == (None, 1)
    seen = []
    async with aclosing(following):
        async for item in following:
            assert following.next_lsn == item.next_lsn
            assert following.lag is not None
            seen.append(following.lag.lsns)
            if len(seen) == 3:
                break
    assert seen == [4, 2, 0]
    assert repr(following) == "<Follow, next LSN 7, Lag(lsns=0, seconds=0.0)>"


async def test_a_follow_that_ends_within_a_block_stands_there(
    cluster: FakeCluster, client: LogClient
) -> None:
    log = client.shard(1)
    await log.append([b"a", b"b", b"c", b"d"])
    told: list[int] = []
    following = log.follow(1, until_lsn=2, on_tail=told.append)
    assert [item.next_lsn async for item in following] == [3]
    assert following.next_lsn == 3
    assert following.lag is not None
    assert following.lag.lsns == 2
    assert told == [], "there is more"


def test_of_the_synchronous_client() -> None:
    with running_fake() as cluster, SyncLogClient(cluster.endpoints) as client:
        log = client.shard(1)
        log.append([b"a", b"b"])
        log.append(b"c")
        with closing(log.follow(1)) as items:
            assert items.lag is None
            assert next(items).next_lsn == 3
            assert items.lag is not None
            assert items.lag.lsns == 1
            for item in items:
                assert items.lag.lsns == 0
                assert items.next_lsn == item.next_lsn == 4
                break
        assert repr(items).startswith("<SyncFollow, next LSN 4, Lag(lsns=0")
        with pytest.raises(StopIteration):
            next(items)


def test_append_times_of_real_stores() -> None:
    with served_on_a_thread() as stores, SyncLogClient(stores.endpoints) as client:
        log = client.shard(1)
        for _ in range(3):
            log.append(b"a")
        with closing(log.follow(1)) as items:
            first = next(items)
            behind = items.lag
            assert behind is not None
            assert (first.next_lsn, behind.lsns) == (2, 2)
            assert behind.seconds is not None, "the log has append times"
            for item in items:
                if item.next_lsn == 4:
                    break
            assert items.lag == Lag(0, 0.0)


async def test_a_follow_that_is_left_is_not_counted_for_ever(cluster: FakeCluster) -> None:
    class Told:
        def __init__(self) -> None:
            self.lags: list[Lag | None] = []

        def __getattr__(self, name: str) -> object:
            return lambda *given: self.lags.append(given[1]) if name == "behind" else None

    told = Told()
    async with LogClient(cluster.endpoints, meter=told) as client:  # type: ignore[arg-type]
        log = client.shard(1)
        await log.append(b"a")

        following = log.follow(1)
        await anext(following)
        assert told.lags == [Lag(0, 0.0)]
        del following
        await eventually(lambda: told.lags[-1] is None)
