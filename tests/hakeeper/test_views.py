"""What HAKeeper shows, first for routing and second for people."""

from __future__ import annotations

from logservice.hakeeper.answers import queries
from logservice.hakeeper.answers.views import ClusterView, ShardView
from logservice.hakeeper.state import ShardState
from logservice.ids import ShardId, StoreId
from tests.hakeeper.model import Model

ONE = ShardId(1)


def shard(model: Model, number: int = 1) -> ShardView:
    view = model.rsm.lookup(queries.GetShard(ShardId(number)))
    assert isinstance(view, ShardView)
    return view


def cluster(model: Model) -> ClusterView:
    view = model.rsm.lookup(queries.GetCluster())
    assert isinstance(view, ClusterView)
    return view


def test_a_shard_is_shown_with_its_leader_first() -> None:
    model = Model(4)
    model.start(shards=1)
    model.run(20)
    view = shard(model)
    leader = model.shards[ONE].leader
    [store] = [one.store_id for one in view.replicas if one.leader]
    assert view.leader_store == store
    assert view.leader_address == view.client_addresses[0] == f"{store}:2"
    assert [one.replica_id for one in view.replicas if one.leader] == [leader]
    assert (view.name, view.wanted_replicas, view.joint) == ("log-1", 3, False)
    assert all(one.reported and one.health == "alive" for one in view.replicas)
    assert len(view.client_addresses) == 3


def test_lost_replicas_come_last_and_learners_are_called_so() -> None:
    model = Model(4)
    model.start(shards=1)
    model.copy_speed = 0
    model.shards[ONE].last += 100_000
    victim = model.shards[ONE].membership.members[0].store_id
    model.kill(victim)
    model.run(200)
    view = shard(model)
    assert view.client_addresses[-1] == f"{victim}:2"
    assert [one.role for one in view.replicas] == ["voter", "voter", "voter", "learner"]
    [lost] = [one for one in view.replicas if one.health == "lost"]
    assert (lost.store_id, lost.reported, lost.leader) == (victim, False, False)
    whole = cluster(model)
    [operator] = [one for one in whole.operators if one.shard_id == ONE]
    assert (operator.kind, operator.step) == ("replace", "catching up")
    assert operator.age_ticks > 0
    [expired] = [one for one in whole.stores if one.expired]
    assert expired.store_id == victim
    assert expired.ticks_since_heartbeat > model.timeout


def test_the_cluster_is_shown_whole() -> None:
    model = Model(3)
    model.start(shards=2)
    model.stores[StoreId("s1")].host = "rack"
    model.run(20)
    view = cluster(model)
    assert (view.cluster_id, view.phase) == ("c", "running")
    assert view.tick == model.state.tick
    assert [one.shard_id for one in view.shards] == [0, 1, 2]
    assert [(one.store_id, one.host) for one in view.stores] == [
        ("s1", "rack"),
        ("s2", "s2"),
        ("s3", "s3"),
    ]
    assert all(one.replicas == 3 and not one.expired for one in view.stores)
    assert view.operators == ()
    assert view.flags == ()


def test_before_the_first_configuration_there_is_nothing_to_show() -> None:
    model = Model(1)
    view = cluster(model)
    assert (view.phase, view.stores, view.shards) == ("created", (), ())
    assert model.rsm.lookup(queries.GetShard(ShardId(0))) is None
    assert model.rsm.lookup(queries.GetPhase()) == "created"


def test_a_view_is_a_copy() -> None:
    model = Model(3)
    model.start()
    before = cluster(model)
    tick = before.tick
    model.run(50)
    assert before.tick == tick


def test_a_shard_that_is_not_placed_yet_is_shown_empty() -> None:
    model = Model(3)
    model.start()
    model.state.shards[ShardId(9)] = ShardState(ShardId(9), "later", 3, 0)
    view = shard(model, 9)
    assert (view.replicas, view.leader_store, view.client_addresses) == ((), "", ())


def test_flags_keep_the_tick_they_were_raised_at() -> None:
    model = Model(3)
    model.start()
    model.kill("s2")
    model.run_until(lambda: bool(model.state.flags), 300)
    raised = dict(model.state.flags)
    model.run(200)
    assert model.state.flags == raised
