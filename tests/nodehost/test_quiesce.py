"""Quiesced replicas: they cost no ticks, and still learn that the other side is gone."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument, NotReady

from logservice import bounds
from logservice.config import RaftSection
from logservice.ids import ReplicaId, ShardId, StoreId
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.replica import quiesce
from logservice.nodehost.replica.quiesce import Quiescence
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.versions import NEWEST
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.waiting import eventually


@pytest.fixture(params=[1, NEWEST])
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """With both forms of the beat: from version 2 on its answer is another one."""
    cluster = Cluster(tmp_path, quiesce_ticks=10)
    for store in cluster.stores.values():
        store.version = request.param
    await cluster.up()
    yield cluster
    await cluster.down()


def quiesced(cluster: Cluster) -> set[int]:
    return {
        number
        for number, store in cluster.stores.items()
        if store.host is not None and len(store.host._quiescence)
    }


async def quiesce_all(cluster: Cluster) -> int:
    """Wait until everybody is quiesced; returns the leader's store."""
    leader = await cluster.leader()
    await cluster.host(leader).append(SHARD, request(), 30.0)
    await eventually(lambda: quiesced(cluster) == {1, 2, 3})
    return leader


async def ticks_pass(cluster: Cluster, number: int, ticks: int) -> None:
    counter = cluster.host(number)._quiescence
    until = counter._ticks + ticks
    await eventually(lambda: counter._ticks >= until)


async def test_quiesced_replicas_are_not_ticked_and_an_append_wakes_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await quiesce_all(cluster)
    term = cluster.replica(leader).raft.term
    ticked: list[Replica] = []
    tick = Replica.tick
    monkeypatch.setattr(
        Replica, "tick", lambda self, now_s: (ticked.append(self), tick(self, now_s))[1]
    )
    await ticks_pass(cluster, leader, 60)
    assert not ticked, "three election timeouts without one tick"
    outcome = await cluster.host(leader).append(SHARD, request(), 30.0)
    assert outcome.lsn == 2
    assert ticked is not None
    await quiesce_all(cluster)
    assert cluster.replica(leader).raft.term == term


async def test_a_read_at_a_quiesced_follower(cluster: Cluster) -> None:
    leader = await quiesce_all(cluster)
    follower = leader % 3 + 1
    index = await cluster.host(follower).read_index(SHARD, 30.0)
    assert index == cluster.replica(leader).raft.commit


async def test_quiesced_info_is_one_object_until_something_changes(
    cluster: Cluster,
) -> None:
    leader = await quiesce_all(cluster)
    host = cluster.host(leader)
    info = host.replicas.info(SHARD)
    assert info is not None
    assert info.quiesced
    assert host.replicas.info(SHARD) is info
    await host.replicas.running[SHARD].install_snapshot(
        host.replicas.running[SHARD].applied_snapshot(), info.applied_lsn
    )
    compacted = host.replicas.info(SHARD)
    assert compacted is not None
    assert compacted.first_index > info.first_index
    await host.append(SHARD, request(), 30.0)
    awake = host.replicas.info(SHARD)
    assert awake is not None
    assert awake.applied_lsn == info.applied_lsn + 1


async def never(sender: PeerIdentity, beat: tuple[int, ...]) -> tuple[int, ...] | None:
    """Who hangs answers nothing."""
    raise NotReady("it hangs")


async def test_a_leader_whose_store_hangs_is_replaced(cluster: Cluster) -> None:
    leader = await quiesce_all(cluster)
    host = cluster.host(leader)
    host.ticker.stop()  # its connections stay up, and it says nothing any more
    host.requests.register(quiesce.BEAT, never)
    others = [number for number in (1, 2, 3) if number != leader]
    await eventually(lambda: any(cluster.replica(number).ready_to_lead for number in others))


async def test_a_leader_whose_store_dies_is_replaced(cluster: Cluster) -> None:
    leader = await quiesce_all(cluster)
    await cluster.stores[leader].down()
    assert await cluster.leader() != leader


async def test_a_leader_that_stops_alone_is_missed(cluster: Cluster) -> None:
    """The leader's store lives on and beats, and says that it does not lead this shard any more."""
    leader = await quiesce_all(cluster)
    await cluster.host(leader).replicas.stop(SHARD)
    assert await cluster.leader() != leader


async def test_a_follower_that_was_started_anew_wakes_the_leader(cluster: Cluster) -> None:
    leader = await quiesce_all(cluster)
    follower = leader % 3 + 1
    term = cluster.replica(leader).raft.term
    await cluster.stores[follower].down()
    await cluster.stores[follower].up()
    cluster.introduce()
    await quiesce_all(cluster)
    assert cluster.replica(leader).raft.term == term
    assert cluster.replica(follower).raft.leader == leader


async def test_a_follower_that_applies_slowly_is_not_taken_for_a_lost_store(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short seed 18000202: the leader's store heard no beat of the other, took it for lost, and
    its own followers of leaders there campaigned.
    """
    leader = await quiesce_all(cluster)
    follower = leader % 3 + 1
    slow = cluster.replica(follower)
    idle = Replica.idle.fget
    assert idle is not None
    monkeypatch.setattr(Replica, "idle", property(lambda self: self is not slow and idle(self)))
    cluster.host(follower)._quiescence.touch(slow)
    assert slow.raft.quiesced
    host = cluster.host(leader)
    await ticks_pass(cluster, leader, 3 * host._quiescence._silent_ticks)
    assert len(host._quiescence) == 1
    assert slow.raft.quiesced


async def test_one_of_two_stores_asks_and_the_other_answers(tmp_path: Path) -> None:
    """From cluster version 2 on, until the one that asks falls silent."""
    cluster = Cluster(tmp_path)
    for store in cluster.stores.values():
        store.quiesce_ticks, store.version = 10, NEWEST
    await cluster.up()
    await quiesce_all(cluster)
    await ticks_pass(cluster, 1, 40)  # who asked before they knew of each other has stopped
    asked: Counter[tuple[str, str]] = Counter()
    for number in (1, 2, 3):
        host = cluster.host(number)

        async def hear(
            sender: PeerIdentity, beat: tuple[int, ...], own: NodeHost = host
        ) -> tuple[int, ...] | None:
            asked[sender.store_id, own.identity.store_id] += 1
            return await own._quiescence._on_beat(sender, beat)

        host.requests.register(quiesce.BEAT, hear)
    await ticks_pass(cluster, 1, 60)
    first = {pair: count for pair, count in asked.items() if pair[0] < pair[1]}
    assert len(first) >= 2, (
        "two followers share their leaders only, so they may have nothing to say"
    )
    # On a busy machine one may be late, and then the other asks.
    assert sum(first.values()) > 4 * (asked.total() - sum(first.values()))
    assert quiesced(cluster) == {1, 2, 3}
    cluster.host(1).ticker.stop()
    asked.clear()
    await eventually(lambda: {one for one, other in asked if other == "store-1"} != set())
    await cluster.down()


async def test_a_store_that_is_asked_beats_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then waits a tick longer than the one that asks. A greater name is nothing to it."""
    cluster = Cluster(tmp_path)
    for store in cluster.stores.values():
        store.quiesce_ticks, store.version = 10, NEWEST
    await cluster.up()
    leader = await quiesce_all(cluster)
    for number in (1, 2, 3):
        cluster.host(number).ticker.stop()
    beats = cluster.host(max(leader, 2))._quiescence
    every, last = beats._beat_ticks, beats._newest_beat
    assert every > 3, "else there is nothing between two beats"
    heard = (0, 0)

    async def asked(number: int, ticks: int) -> tuple[int, int]:
        """The newest beat and the next one, after so many ticks and a question."""
        beats._ticks = last + ticks
        await beats._on_beat(cluster.host(number).identity, heard)
        return beats._newest_beat - last, beats._next_beat - last

    beats._next_beat = last + every
    for greater in range(max(leader, 2) + 1, 4):
        assert await asked(greater, every - 1) == (0, every)
    assert await asked(1, every // 2) == (0, every + 1), "it has just beaten"
    assert await asked(1, every) == (every, 2 * every + 1)
    assert await asked(1, every) == (every, 2 * every + 1), "once is enough"
    beats._ticks = 2 * every + 1 + last - 1
    beats.tick(0.0)
    assert beats._newest_beat == 2 * every + 1 + last, "nobody asked"
    assert beats._next_beat == 3 * every + 1 + last
    await cluster.down()


async def test_an_idle_store_sleeps_until_the_next_beat(cluster: Cluster) -> None:
    """And a replica that is asked for something has each tick counted."""
    leader = await quiesce_all(cluster)
    host = cluster.host(leader)
    await eventually(lambda: host._ticks_to_act() > 2)
    host.replicas.running[SHARD].reads.add(asyncio.get_running_loop().create_future(), 1e9)
    host._quiescence.touch(host.replicas.running[SHARD])
    assert host._ticks_to_act() == 1


async def test_many_replicas_that_count_time_are_ticked_one_by_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaches TICK_SLEEP_REPLICAS_MAX, made small."""
    leader = await quiesce_all(cluster)
    quiescence = cluster.host(leader)._quiescence
    quiescence.touch(cluster.host(leader).replicas.running[SHARD])
    monkeypatch.setattr(bounds, "TICK_SLEEP_REPLICAS_MAX", 0)
    assert quiescence.ticks_to_act() == 1


def test_shard_0_quiesces_between_its_entries() -> None:
    """HAKEEPER_QUIESCE_MS, in ticks; never later than a log, and never where none quiesces."""

    def ticks(shard: int, **options: int) -> int:
        return NodeHostOptions(**options).raft_config(ShardId(shard), ReplicaId(1)).quiesce_ticks

    assert ticks(1) == 200
    assert ticks(0) * 50 == bounds.HAKEEPER_QUIESCE_MS
    assert ticks(0) + 1 < RaftSection().heartbeat_every_ticks, "it sends no heartbeat before"
    assert ticks(0, tick_ms=1000) == 2
    assert ticks(0, quiesce_ticks=3) == 3
    assert ticks(0, quiesce_ticks=0) == 0


async def test_an_answer_to_a_beat_is_not_answered(tmp_path: Path) -> None:
    """Two stores without a quiesced shard would go on for ever."""
    cluster = Cluster(tmp_path)
    await cluster.up()
    heard: list[tuple[StoreId, tuple[int, ...]]] = []
    for number in (1, 2):
        host = cluster.host(number)

        async def hear(
            sender: PeerIdentity, beat: tuple[int, ...], beats: Quiescence = host._quiescence
        ) -> tuple[int, ...] | None:
            heard.append((sender.store_id, beat))
            return await beats._on_beat(sender, beat)

        host.requests.register(quiesce.BEAT, hear)
    first = cluster.host(1).identity
    await cluster.host(2).on_request(first, quiesce.BEAT.method, quiesce._BEAT.pack(7, 1))
    await ticks_pass(cluster, 2, 20)
    assert heard == [("store-1", (7, 1)), ("store-2", (0, 0))]
    await cluster.down()


async def test_another_boot_id_counts_as_a_lost_connection(cluster: Cluster) -> None:
    leader = await quiesce_all(cluster)
    host = cluster.host(leader)
    follower = cluster.stores[leader % 3 + 1]
    assert follower.host is not None
    await ticks_pass(cluster, leader, 30)  # the leader's store has heard the present boot id
    identity = follower.host.identity
    reborn = dataclasses.replace(identity, boot_id=identity.boot_id + 1)
    assert quiesced(cluster) == {1, 2, 3}
    await host.on_request(reborn, quiesce.BEAT.method, quiesce._BEAT.pack(0, 0))
    assert host.replicas.running[SHARD].ticked
    assert not host.replicas.running[SHARD].raft.quiesced


async def test_damage_of_a_quiesced_replica_is_noticed(cluster: Cluster) -> None:
    leader = await quiesce_all(cluster)
    follower = cluster.host(leader % 3 + 1)
    replica = follower.replicas.running[SHARD]
    replica.log.blame("a bit flipped")
    assert replica.ticked
    await eventually(lambda: SHARD in follower.halts.all())
    assert len(follower._quiescence) == 0


async def test_damage_of_another_replica_of_the_shard_wakes_nobody(cluster: Cluster) -> None:
    """The data of a replica that was replaced here may still be read."""
    leader = await quiesce_all(cluster)
    host = cluster.host(leader)
    host.replicas.damaged(SHARD, ReplicaId(99))
    host.replicas.damaged(ShardId(99), host.replicas.running[SHARD].replica_id)
    assert quiesced(cluster) == {1, 2, 3}


async def test_a_damaged_replica_does_not_quiesce(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its damage was found in the very tick after which it would have quiesced."""
    leader = await cluster.leader()
    follower = cluster.host(leader % 3 + 1)
    replica = follower.replicas.running[SHARD]
    tick = Replica.tick

    def last_tick(self: Replica, now_s: float) -> None:
        tick(self, now_s)
        if self is replica and self.idle:
            self.log.blame("a bit flipped")

    monkeypatch.setattr(Replica, "tick", last_tick)
    await eventually(lambda: SHARD in follower.halts.all())


async def test_garbage_instead_of_a_beat(cluster: Cluster) -> None:
    leader = await quiesce_all(cluster)
    host = cluster.host(leader)
    for body in (b"", b"x" * 15, b"x" * 17):
        with pytest.raises(InvalidArgument):
            await host.on_request(cluster.host(leader % 3 + 1).identity, quiesce.BEAT.method, body)
    assert quiesced(cluster) == {1, 2, 3}


async def test_digests_agree_whatever_the_order(cluster: Cluster) -> None:
    """Many shards with leaders here and there quiesce, and nobody is woken by a beat."""
    shards = [ShardId(number) for number in range(2, 14)]
    for shard in shards:
        for number in (1, 2, 3):
            await cluster.host(number).replicas.start(
                shard, ReplicaId(number), cluster.membership(), join=False
            )
    hosts = [cluster.host(number) for number in (1, 2, 3)]
    await eventually(lambda: all(len(host._quiescence) == 13 for host in hosts))
    terms = [host.replicas.running[shard].raft.term for host in hosts for shard in shards]
    await ticks_pass(cluster, 1, 100)
    assert all(len(host._quiescence) == 13 for host in hosts)
    assert terms == [host.replicas.running[shard].raft.term for host in hosts for shard in shards]
    await asyncio.gather(*(hosts[0].append(shard, request(), 30.0) for shard in shards))


async def test_an_error_in_a_replicas_tick_halts_that_replica_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-QUIESCE-4: its store goes on, and so does the shard on the others."""
    leader = await cluster.leader()
    follower = leader % 3 + 1
    broken = cluster.replica(follower)
    watch = Replica._watch_applying

    def breaks(replica: Replica) -> None:
        if replica is broken:
            raise KeyError("no such thing")
        watch(replica)

    monkeypatch.setattr(Replica, "_watch_applying", breaks)
    host = cluster.host(follower)
    await eventually(lambda: SHARD in host.halts.all())
    assert "KeyError('no such thing')" in host.halts.all()[SHARD].reason
    assert cluster.stores[follower].fatal == []
    await ticks_pass(cluster, follower, 10)
    await cluster.host(leader).append(SHARD, request(), 30.0)


async def test_a_replica_that_halted_takes_no_other_one_with_it(cluster: Cluster) -> None:
    """Whoever finds damage in its log late may find another replica of the shard in its place."""
    leader = await cluster.leader()
    host = cluster.host(leader % 3 + 1)
    old = host.replicas.running[SHARD]
    await host.replicas.stop(SHARD)
    await host.replicas.start(SHARD, old.replica_id, cluster.membership(), join=False)
    new = host.replicas.running[SHARD]
    host.replicas.halt(old, "damage was found late")
    assert host.replicas.running[SHARD] is new
    assert SHARD not in host.halts.all()
