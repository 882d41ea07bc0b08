"""The synchronous face: the same calls from ordinary code and from many threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from logservice_client import LsnAtTime, SyncLogClient
from logservice_client.tn_shards import TnShard
from logservice_wire.block import encode_block
from logservice_wire.errors import InvalidArgument, PermissionDenied, Truncated
from logservice_wire.v1 import hakeeper_pb2

from tests.client.fake_server import FakeCluster
from tests.client.running_fake import running_fake


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with running_fake(stores=1) as cluster:
        yield cluster


async def test_on_a_thread_that_runs_a_loop_of_its_own(cluster: FakeCluster) -> None:
    """As every cell of a notebook does."""
    with SyncLogClient(cluster.endpoints) as client:
        shard = client.shard(client.hakeeper.create_shard(name="of-a-notebook"))
        assert shard.append(b"a") == 1
        assert [item.first_lsn for item in shard.follow(1, until_tail=True)] == [1]


def test_every_call(cluster: FakeCluster) -> None:
    with SyncLogClient(cluster.endpoints) as client:
        shard_id = client.hakeeper.create_shard(name="all-calls")
        shard = client.shard(shard_id)
        assert shard.shard_id == client.log(f"shard-{shard_id}").shard_id == shard_id
        assert shard.acquire_writer("me") == shard.writer_epoch == 1
        assert shard.append([b"a", b"b"]) == 1
        assert not shard.redundancy.known, "the fake does not say"
        assert shard.append_block(encode_block([b"c"], 0), expected_lsn=3) == 3
        assert shard.read(2).records() == [b"b", b"c"]
        assert [item.first_lsn for item in shard.follow(1, until_tail=True)] == [1, 3]
        assert shard.digest(1, 4).records == 3
        shard.set_hold("h", 2)
        assert shard.append_time_us == 3
        assert shard.lsn_at_time(2) == LsnAtTime(3, truncated=False)
        assert shard.truncate(2) == 1
        assert shard.renew_hold("h") == 2
        with shard.hold("job", 2, ttl=5) as held:
            assert held.sure
            held.move(3)
            held.check()
            assert held.lsn == 3
            assert cluster.logs[shard_id].holds == {"h": 2, "job": 3}
        shard.release_hold("h")
        with pytest.raises(Truncated):
            shard.read(1)
        assert shard.status().writer_holder == "me"
        assert shard.connect().applied_lsn == 3
        assert len(shard.allocate_timestamps(3)) == 3
        shard.release_writer()
        for name in "abc":
            shard.named_session(name, epoch=7, content=b"c" * 32, stamp_us=1)
        listed = shard.named_sessions()
        assert [(one.name, one.epoch) for one in listed] == [("a", 7), ("b", 7), ("c", 7)]
        shard.forget_session(listed[0].session_id, last_used=listed[0].last_used)
        assert [one.name for one in shard.named_sessions(stale=True)] == ["b", "c"]
        assert client.hakeeper.allocate_ids(2) == range(1, 3)
        assert client.hakeeper.shard_info(shard_id).shard_id == shard_id
        assert len(client.hakeeper.cluster_state().stores) == 1
        assert client.replica_addresses(shard_id) == tuple(cluster.endpoints)
    client.close()


def test_threads_share_blocks(cluster: FakeCluster) -> None:
    with SyncLogClient(cluster.endpoints) as client:
        shard = client.shard(client.hakeeper.create_shard())
        with ThreadPoolExecutor(16) as threads:
            lsns = list(threads.map(lambda number: shard.append(b"%d" % number), range(500)))
        assert sorted(lsns) == list(range(1, 501))
        found = shard.read(1).records()
        assert [found[lsn - 1] for lsn in lsns] == [b"%d" % number for number in range(500)]


def test_a_follow_that_is_left_early_is_ended(cluster: FakeCluster) -> None:
    with SyncLogClient(cluster.endpoints) as client:
        shard = client.shard(client.hakeeper.create_shard())
        shard.append(b"a")
        items = shard.follow(1)
        assert next(items).first_lsn == 1
        items.close()  # type: ignore[attr-defined]


def test_arguments_are_checked_where_they_are_given() -> None:
    with pytest.raises(InvalidArgument):
        SyncLogClient("")


def test_a_service_runs_until_it_or_the_client_is_closed(cluster: FakeCluster) -> None:
    handled = threading.Event()
    cluster.orders[7] = hakeeper_pb2.ServiceCommand(id=7, kind="k")
    cluster.replayed_holds = [hakeeper_pb2.ReplayedHold(shard_id=1, lsn=4, held_lsn=5, first_lsn=1)]

    def handler(command: hakeeper_pb2.ServiceCommand) -> None:
        assert command.id == 7
        handled.set()

    with SyncLogClient(cluster.endpoints) as client:
        service = client.hakeeper.service("tn-1", "tn", handler, address="a:1")
        service.replayed(1, 4)
        service.relabel({"zone": "z2"})
        assert service.held(1, timeout=30) == 5
        assert service.holds[1].lsn == 4
        assert service.silent_s < 60
        assert handled.wait(30)
        service.forget(1)
        with pytest.raises(InvalidArgument):
            service.held(1)
        service.close()
        beats = len(cluster.beats)
        cluster.taken.add("cn-1")
        other = client.hakeeper.service("cn-1", "cn", handler)
        wait([asyncio.run_coroutine_threadsafe(asyncio.wait([other._running]), client._loop.loop)])
        with pytest.raises(PermissionDenied):
            other.close()
        assert len(cluster.beats) == beats
        client.hakeeper.service("tn-2", "tn", handler)


def test_a_thread_serves_until_its_event_is_set(cluster: FakeCluster) -> None:
    began, over = threading.Event(), threading.Event()

    def serve(shard: TnShard, ended: threading.Event) -> None:
        assert shard.shard_id == 14
        began.set()
        assert ended.wait(30)
        over.set()

    cluster.serve = [hakeeper_pb2.ServedTnShard(tn_shard_id=4, shard_id=14, replica=1)]
    with SyncLogClient(cluster.endpoints) as client:
        service = client.hakeeper.service("tn-1", "tn", lambda _: None, serve=serve)
        assert began.wait(30)
        service.close()
        assert over.is_set()
    assert not cluster.beats[-1].takes_tn_shards
