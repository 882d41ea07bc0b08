"""A data directory with an unattributed loss may have lost a replica that was never reported. It
names INV-HK-LOST-TRACK and G6.
"""

from __future__ import annotations

import pytest

from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.store_commands import StartReplica
from logservice.ids import HAKEEPER_SHARD, Incarnation, ReplicaId, ShardId, StoreId
from logservice.membership import Member
from tests.hakeeper.model import Model, Store, expiry

ONE = ShardId(1)


def members_on(model: Model, store: Store, shard: ShardId = ONE) -> list[Member]:
    members = model.shards[shard].membership.members
    return [one for one in members if one.store_id == store.name]


def begins(model: Model, replica: ReplicaId) -> int:
    """How often the replica's store was told to begin it empty."""
    return sum(
        isinstance(queued.command, StartReplica)
        and queued.command.replica == replica
        and queued.command.fresh
        for _, queued in model.executions
    )


def begun_and_not_reported(spare: int) -> tuple[Model, Store, ReplicaId]:
    """Shard 1 lost a store for good, and its new replica has just begun where it was told to."""
    model = Model(4 + spare)
    model.start(shards=1)
    gone = next(store for store in model.stores.values() if members_on(model, store))
    before = {member.replica_id for member in model.shards[ONE].membership.members}
    model.kill(gone.name)

    def begun() -> bool:
        return any(
            ONE in store.copies and store.copies[ONE].replica not in before
            for store in model.stores.values()
        )

    model.run_until(begun, expiry(model) + 600)
    [store] = [
        store
        for store in model.stores.values()
        if ONE in store.copies and store.copies[ONE].replica not in before
    ]
    replica = store.copies[ONE].replica
    assert replica not in model.state.shards[ONE].started, "HAKeeper has not heard of it"
    return model, store, replica


def loses_all_of_it(model: Model, store: Store) -> None:
    model.kill(store.name)
    del store.copies[ONE]
    model.revive(store.name)
    store.unattributed_loss = (store.incarnation,)


@pytest.mark.parametrize("spare", [0, 1])
def test_who_may_have_run_is_not_begun_again(spare: int) -> None:
    model, store, replica = begun_and_not_reported(spare)
    assert begins(model, replica) == 1
    loses_all_of_it(model, store)
    model.run_until(model.healthy, 2000)
    assert begins(model, replica) == 1
    assert replica not in model.shards[ONE].membership.voters


def test_without_lost_track_it_is_known_that_it_never_ran() -> None:
    model, store, replica = begun_and_not_reported(0)
    loses_all_of_it(model, store)
    store.unattributed_loss = ()
    model.run_until(model.healthy, 2000)
    assert begins(model, replica) == 2
    assert replica in model.shards[ONE].membership.voters


def test_the_directory_takes_new_replicas_all_the_same() -> None:
    """The directory cannot have lost a replica that came after it was opened. There are three
    stores and no spare one.
    """
    model = Model(3)
    model.start(shards=1)
    store = model.stores[StoreId("s3")]
    [old] = members_on(model, store)
    loses_all_of_it(model, store)
    model.run_until(model.healthy, 2000)
    [new] = members_on(model, store)
    assert new.replica_id != old.replica_id
    assert begins(model, new.replica_id) == 1
    assert new.replica_id in model.state.shards[ONE].started


def test_only_the_directory_that_lost_track_is_distrusted() -> None:
    model = Model(1)
    store = model.stores[StoreId("s1")]
    store.others = (Incarnation(2001),)
    model.start(shards=4, replicas=1)
    shards = [shard for shard in model.state.shards.values() if shard.shard != HAKEEPER_SHARD]
    there = {shard.shard for shard in shards if shard.members.members[0].incarnation == 2001}
    assert 0 < len(there) < len(shards)
    for shard in shards:
        shard.started = []
    model.revive("s1")
    store.unattributed_loss = (Incarnation(2001),)
    store.copies = {HAKEEPER_SHARD: store.copies[HAKEEPER_SHARD]}
    model.heartbeat(store)
    assert {shard.shard for shard in shards if shard.started} == there


def test_what_was_planned_before_is_dropped_and_what_is_planned_after_is_kept() -> None:
    model, store, replica = begun_and_not_reported(0)
    model.drop_reply = lambda name: name == store.name
    loses_all_of_it(model, store)
    model.heartbeat(store)
    queue = model.state.stores[store.name].queue
    assert [queued for queued in queue if isinstance(queued.command, StartReplica)] == []
    model.run(20)
    [queued] = model.state.stores[store.name].queue
    assert isinstance(queued.command, StartReplica)
    assert (queued.command.replica, queued.command.fresh) == (replica, False)
    model.heartbeat(store)  # the same process says the same again, and nothing is dropped
    assert model.state.stores[store.name].queue == [queued]


def test_a_heartbeat_names_directories_within_bounds() -> None:
    model = Model(1)
    model.start(shards=1, replicas=1)
    many = tuple(Incarnation(number) for number in range(1, 1000))
    beat = proposals.StoreHeartbeat(
        StoreId("s9"),
        "",
        "",
        "",
        (proposals.DirectoryReport(Incarnation(1)),),
        1,
        1,
        unattributed_loss=many,
    )
    with pytest.raises(proposals.ProposalCorrupt):
        proposals.decode(proposals.encode(beat))
