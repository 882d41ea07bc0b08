"""Recovery of shard 0: it goes on from an old copy of itself and does no harm by what it forgot."""

from __future__ import annotations

import pytest
from logservice_wire.errors import Reason
from msgspec.structs import replace

from logservice import bounds
from logservice.hakeeper import feed
from logservice.hakeeper.commands.proposals import (
    AllocateIds,
    CreateShard,
    DeleteShard,
    DirectoryReport,
    StoreHeartbeat,
)
from logservice.hakeeper.commands.recovery import RecoverCluster, RecoveredShard
from logservice.hakeeper.commands.store_commands import RemoveReplica
from logservice.hakeeper.commands.verbs import (
    AdoptShard,
    Errand,
    SetLeader,
    SetStoreMode,
    StoreMode,
    WishReplica,
)
from logservice.hakeeper.repair.safety import objection
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.stores import enrolment
from logservice.hakeeper.stores.recovered import is_older, waits_for
from logservice.ids import HAKEEPER_SHARD, Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.membership import Member, Membership
from logservice.outcome import Applied, Outcome, Rejected
from logservice.versions import KNOWN
from tests.hakeeper.model import Copy, Model

LOG, OTHER = ShardId(1), ShardId(2)
NEW_DISK = Incarnation(9009)


@pytest.fixture
def model() -> Model:
    """Five stores; shard 0 and the first log are on s1, s2, s3."""
    model = Model(5, versions=KNOWN)
    model.start(shards=2)
    model.run_until(model.healthy, 800)
    return model


def alone(
    model: Model, shard: ShardId, store: str, replica: int = 2**32 + 9, disk: int = NEW_DISK
) -> Membership:
    """What the tool makes of the shard's membership."""
    before = model.state.shards[shard].members
    return Membership(
        voters=(ReplicaId(replica),),
        removed=tuple(sorted({*before.removed, *before.voters})),
        change_epoch=Index(before.change_epoch + 1000),
        members=(Member(ReplicaId(replica), StoreId(store), Incarnation(disk)),),
    )


def recover(model: Model, *shards: ShardId, store: str = "s1") -> dict[ShardId, Membership]:
    rows = {shard: alone(model, shard, store) for shard in shards}
    found = model.propose(
        RecoverCluster(
            tuple(RecoveredShard(shard, one.encode()) for shard, one in rows.items()), "ann"
        )
    )
    assert found == Applied(count=len(rows))
    return rows


def test_it_takes_the_new_memberships_by_no_report(model: Model) -> None:
    rows = recover(model, HAKEEPER_SHARD, LOG)
    for shard, members in rows.items():
        known = model.state.shards[shard]
        assert known.members == members
        assert (known.leader, known.started) == (0, list(members.voters))
    assert model.state.shards[OTHER].members != rows[LOG]
    again = HAKeeperRsm()
    again.recover_from_snapshot(model.rsm.save_snapshot())
    assert again.save_snapshot() == model.rsm.save_snapshot()
    assert again.state.recovered_tick == model.state.recovered_tick > 0


def test_every_number_goes_on_above_what_was_given_out(model: Model) -> None:
    model.propose(AllocateIds("tx", 10))
    before = model.rsm.save_snapshot()
    old = HAKeeperRsm()
    old.recover_from_snapshot(before)
    rows = recover(model, HAKEEPER_SHARD)
    state = model.state
    for name in (
        "next_shard_id",
        "next_operator_id",
        "next_command_id",
        "next_wish_id",
        "next_tn_shard",
        "access_version",
        "limits_version",
        "quotas_version",
    ):
        moved = getattr(state, name) - getattr(old.state, name)
        assert moved == bounds.RECOVERED_NUMBER_STEP, name
    assert state.next_replica_id > rows[HAKEEPER_SHARD].voters[0] + 2**31
    for key in ("tx", "first used behind the copy"):
        ids = model.propose(AllocateIds(key, 10))
        assert isinstance(ids, Applied)
        assert ids.value == old.state.id_counters["tx"] + bounds.RECOVERED_ID_STEP
    assert state.feed.last > old.state.feed.last + bounds.RECOVERED_NUMBER_STEP
    assert feed.page(state, old.state.feed.last + 5, 10).events == ()
    assert feed.page(state, old.state.feed.last + 5, 10).oldest > bounds.RECOVERED_NUMBER_STEP
    made = model.propose(CreateShard(ShardId(0), "later", 3))
    assert isinstance(made, Applied)
    assert made.value > bounds.RECOVERED_NUMBER_STEP


def test_what_was_wished_or_under_way_is_withdrawn(model: Model) -> None:
    model.propose(SetStoreMode(StoreId("s4"), StoreMode.DRAINING, force=True))
    model.propose(SetLeader(LOG, StoreId(""), 1000))
    source = model.state.shards[OTHER].members.members[0].store_id
    model.propose(WishReplica(Errand.MOVE, OTHER, source, "", force=True))
    model.kill(str(source))
    model.run(model.timeout * 3)
    recover(model, HAKEEPER_SHARD)
    state = model.state
    assert state.operators == {}
    assert all(wish.ended_tick for wish in state.wishes.values())
    assert all(shard.leader_wish is None for shard in state.shards.values())
    assert all(store.mode is StoreMode.OPEN and not store.queue for store in state.stores.values())


def test_inv_hk_recovered_nothing_is_removed_before_everybody_has_reported(model: Model) -> None:
    for name in ("s4", "s5"):
        model.kill(name)
    model.run(5)
    recover(model, HAKEEPER_SHARD, LOG)
    assert set(waits_for(model.state)) == {f"s{number}" for number in range(1, 6)}
    model.run(50)
    assert waits_for(model.state) == ["s4", "s5"]
    stray = RemoveReplica(OTHER, ReplicaId(77_777))
    assert "s4, s5" in objection(model.state, StoreId("s1"), stray)
    older = RemoveReplica(LOG, ReplicaId(77_777))
    assert objection(model.state, StoreId("s1"), older) == "", "INV-HK-OLDER"
    assert is_older(model.state.shards[LOG], ReplicaId(77_777))
    model.revive("s4")
    model.run(50)
    assert "s5" in objection(model.state, StoreId("s1"), stray)
    del model.state.stores[StoreId("s5")]  # as `store forget` does
    assert objection(model.state, StoreId("s1"), stray) == ""


def test_a_membership_that_no_recovery_makes_is_refused(model: Model) -> None:
    before = model.rsm.save_snapshot()
    for bad in (b"", b"x", model.state.shards[LOG].membership):
        found = model.propose(RecoverCluster((RecoveredShard(LOG, bad),), "ann"))
        assert isinstance(found, Rejected)
        assert found.metadata == {"field": "membership"}
    again = HAKeeperRsm()
    again.recover_from_snapshot(before)
    assert again.state.shards[LOG].membership == model.state.shards[LOG].membership
    assert model.state.recovered_tick == 0


def beat_of(model: Model, store: str, members: Membership, boot: int) -> StoreHeartbeat:
    """The first heartbeat of a process of the store that runs such a replica of shard 0."""
    known = model.stores[StoreId(store)]
    first = members.members[0]
    copy = Copy(first.replica_id, 5000, members, incarnation=first.incarnation)
    return StoreHeartbeat(
        known.name,
        known.host,
        f"{store}:1",
        f"{store}:2",
        (DirectoryReport(first.incarnation, 0, 100, ""),),
        boot,
        1,
        0,
        {**known.labels, **known.versions.labels()},
        replicas=(model._report(known, HAKEEPER_SHARD, copy),),
    )


@pytest.mark.parametrize("replica", [2**32 + 8, 2**32 + 9, 2**32 + 10, 2**33 + 7])
def test_inv_hk_sibling_a_store_of_another_recovery_is_turned_away(
    model: Model, replica: int
) -> None:
    """The second one was recovered in the same millisecond, so that only its directory differs. The
    last one is a replica that the other HAKeeper has added since.
    """
    original = model.state.shards[HAKEEPER_SHARD].members
    sibling = alone(model, HAKEEPER_SHARD, "s4", replica, disk=9010)
    rows = recover(model, HAKEEPER_SHARD, LOG)
    before = model.state.stores[StoreId("s4")].boot_id
    found = model.propose(beat_of(model, "s4", sibling, 71))
    assert isinstance(found, Rejected)
    assert found.reason is Reason.PERMISSION_DENIED
    assert "another recovery" in found.metadata["joining"]
    known = model.state.stores[StoreId("s4")]
    assert (known.boot_id, known.queue) == (before, [])
    assert any("another recovery" in flag for flag in enrolment.flags(model.state))
    # Its own one, what that has become, and what was there before both, are heard.
    own = rows[HAKEEPER_SHARD]
    later = Member(ReplicaId(2**33 + 8), StoreId("s4"), Incarnation(9012))
    grown = replace(
        own,
        voters=(*own.voters, later.replica_id),
        members=(*own.members, later),
        change_epoch=Index(own.change_epoch + 5),
    )
    older = replace(original, voters=(ReplicaId(900),), removed=(), members=())
    older = replace(older, members=(Member(ReplicaId(900), StoreId("s4"), Incarnation(9011)),))
    for boot, members in ((72, own), (73, grown), (74, older)):
        store = str(members.members[0].store_id)
        assert not isinstance(model.propose(beat_of(model, store, members, boot)), Rejected)


@pytest.mark.parametrize("adopted", [False, True])
def test_an_old_replica_that_comes_back_is_told_to_go(model: Model, adopted: bool) -> None:
    """The store of one of the old voters was away; it still runs it under the old membership."""
    shard = model.state.shards[LOG]
    old = shard.members.members[0]
    if adopted:
        for member in shard.members.members:
            model.kill(member.store_id)
        model.run(model.timeout * 2)
        rows = {LOG: alone(model, LOG, "s5")}
        assert model.propose(AdoptShard(LOG, rows[LOG].encode(), "ann")) == Applied()
        model.revive(str(old.store_id))
        if not model.stores[StoreId("s5")].up:
            model.revive("s5")
    else:
        rows = recover(model, LOG, store="s5")
    copy = model.stores[old.store_id].copies[LOG]
    assert isinstance(copy, Copy)
    assert copy.replica == old.replica_id
    goes_on(model, rows[LOG])
    model.run(200)
    asked = {
        (store, queued.command.replica)
        for store, queued in model.executions
        if isinstance(queued.command, RemoveReplica) and queued.command.shard == LOG
    }
    assert (old.store_id, old.replica_id) in asked
    assert rows[LOG].voters[0] not in {replica for _, replica in asked}


def test_a_log_is_adopted_only_when_its_majority_is_gone(model: Model) -> None:
    rows = alone(model, OTHER, "s5")
    verb = AdoptShard(OTHER, rows.encode(), "ann")
    assert "majority of its voters is up" in why(model.propose(verb))
    voters = [member.store_id for member in model.state.shards[OTHER].members.members]
    for name in voters[:2]:
        model.kill(name)
    model.run(model.timeout * 2)
    assert model.propose(verb) == Applied()
    assert model.propose(verb) == Applied(duplicate=True)
    assert model.state.shards[OTHER].members == rows
    assert model.state.next_replica_id > rows.voters[0]
    other = alone(model, OTHER, "s4")
    assert other.voters == rows.voters
    assert "with that id" in why(model.propose(AdoptShard(OTHER, other.encode(), "ann")))
    older = alone(model, OTHER, "s4", replica=2**32)
    assert "newer replicas" in why(model.propose(AdoptShard(OTHER, older.encode(), "ann")))


def test_what_cannot_be_adopted(model: Model) -> None:
    good = alone(model, LOG, "s5").encode()
    for verb, reason in (
        (AdoptShard(HAKEEPER_SHARD, good), Reason.INVALID_ARGUMENT),
        (AdoptShard(ShardId(99), good), Reason.SHARD_NOT_FOUND),
        (AdoptShard(LOG, b"x"), Reason.INVALID_ARGUMENT),
        (AdoptShard(LOG, model.state.shards[LOG].membership), Reason.INVALID_ARGUMENT),
    ):
        found = model.propose(verb)
        assert isinstance(found, Rejected)
        assert found.reason is reason
    assert model.propose(DeleteShard(LOG, "log-1", force=True)) == Applied(value=LOG)
    found = model.propose(AdoptShard(LOG, good))
    assert isinstance(found, Rejected)
    assert found.reason is Reason.SHARD_DELETED


def test_an_older_replica_goes_whatever_it_reports(model: Model) -> None:
    """INV-HK-OLDER: its membership may have a higher epoch than the one that went on, because the
    evidence did not know of the change.
    """
    rows = recover(model, LOG, store="s5")
    old = model.stores[StoreId("s1")].copies[LOG]
    ahead = replace(old.membership, change_epoch=Index(rows[LOG].change_epoch + 50_000))
    model.stores[StoreId("s1")].copies[LOG] = Copy(
        ReplicaId(900), 5000, replace(ahead, voters=(ReplicaId(900),))
    )
    goes_on(model, rows[LOG])
    model.run(200)
    asked = {
        (store, queued.command.replica)
        for store, queued in model.executions
        if isinstance(queued.command, RemoveReplica) and queued.command.shard == LOG
    }
    assert (StoreId("s1"), ReplicaId(900)) in asked


def why(outcome: Outcome) -> str:
    assert isinstance(outcome, Rejected)
    return outcome.metadata["why"]


def goes_on(model: Model, members: Membership) -> None:
    """Store s5 has the directory that the tool wrote, and runs the new replica."""
    model.shards[LOG].membership = members
    model.stores[StoreId("s5")].others = (NEW_DISK,)
    model.stores[StoreId("s5")].copies[LOG] = Copy(
        members.voters[0], 5000, members, incarnation=NEW_DISK
    )
