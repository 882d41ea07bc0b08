"""Witnesses: a log keeps as many as it was created with. It names INV-HK-WITNESS."""

from __future__ import annotations

import random

import pytest
from logservice_wire.errors import NotReady, Reason

from logservice import bounds
from logservice.config_change import ChangeKind
from logservice.hakeeper.commands.policy import LearnersIn, Policy, ZoneRule
from logservice.hakeeper.commands.proposals import ChangeShard, CreateShard
from logservice.hakeeper.commands.store_commands import ChangeMembership, Step, TransferLeader
from logservice.hakeeper.commands.verbs import (
    Errand,
    Rebalance,
    SetLeader,
    SetStoreMode,
    StoreMode,
    WishReplica,
)
from logservice.hakeeper.repair import safety, surplus
from logservice.hakeeper.state import Repair, load, save
from logservice.hakeeper.stores.health import Health
from logservice.ids import Index, ReplicaId, ShardId, StoreId
from logservice.membership import Member, Membership
from logservice.outcome import Applied, Rejected
from logservice.versions import KNOWN, ONLY_FIRST
from tests.hakeeper.campaign import histories
from tests.hakeeper.model import Model, expiry, rejected
from tests.hakeeper.test_learners import at_rest, settle, why

LOG = ShardId(7)
_OF_A_WISH = (Reason.VERB_REFUSED, Reason.INVALID_ARGUMENT)
OPEN = Policy(ZoneRule.NONE)


def cluster(stores: int = 5, zones: str = "") -> Model:
    model = Model(stores, versions=KNOWN)
    for store, zone in zip(model.stores.values(), zones, strict=False):
        store.labels = {"zone": zone}
    model.start(shards=1)
    return model


def create(model: Model, replicas: int = 3, witnesses: int = 1, policy: Policy = OPEN) -> None:
    wish = CreateShard(LOG, "with-witness", replicas, policy=policy, witnesses=witnesses)
    assert model.propose(wish) == Applied(value=LOG)
    model.run(60)


def members_of(model: Model) -> Membership:
    """As the log itself has them."""
    return model.shards[LOG].membership


def home_of(model: Model, replica: ReplicaId) -> StoreId:
    member = members_of(model).member(replica)
    assert member is not None
    return member.store_id


def witness_of(model: Model) -> ReplicaId:
    """The voter that stores no records."""
    members = members_of(model)
    [found] = set(members.voters) - set(members.full_voters)
    return found


def shape(model: Model) -> tuple[int, int]:
    """How many voters store records, and how many do not."""
    members = members_of(model)
    return len(members.full_voters), len(members.voters) - len(members.full_voters)


# --- creation -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("replicas", "most"), [(1, 0), (3, 1), (5, 2), (7, 3)])
def test_fewer_than_half_of_the_replicas_are_witnesses(replicas: int, most: int) -> None:
    model = cluster(7)
    before = save(model.state)
    for witnesses in range(most + 1, 5):
        asked = CreateShard(LOG, "x", replicas, witnesses=witnesses)
        outcome = model.propose(asked)
        assert isinstance(outcome, Rejected)
        assert (outcome.reason, outcome.metadata["field"]) == (Reason.INVALID_ARGUMENT, "witnesses")
    assert set(load(save(model.state)).shards) == set(load(before).shards)
    create(model, replicas, most)
    settle(model)
    assert shape(model) == (replicas - most, most)
    assert model.state.shards[LOG].members.witnesses == members_of(model).witnesses


def test_a_cluster_of_the_first_version_has_none() -> None:
    model = Model(3, versions=ONLY_FIRST)
    model.start()
    with pytest.raises(NotReady):
        model.propose(CreateShard(LOG, "x", 3, witnesses=1))


def test_a_repetition_that_asks_for_other_witnesses_is_another_wish() -> None:
    model = cluster()
    wish = CreateShard(LOG, "x", 3, "once", "me", witnesses=1)
    assert model.propose(wish) == Applied(value=LOG)
    assert model.propose(wish) == Applied(value=LOG, duplicate=True)
    other = CreateShard(LOG, "x", 3, "once", "me")
    assert rejected(model.propose(other)) is Reason.INVALID_ARGUMENT


def test_a_store_where_the_leader_shall_be_gets_no_witness() -> None:
    for number in range(5):
        zones = "abc"[number % 3 :] + "abc"[: number % 3]
        model = cluster(3, zones)
        create(model, policy=Policy(leader_zone="a"))
        witness = witness_of(model)
        assert model.stores[home_of(model, witness)].labels["zone"] != "a"


def test_a_witness_counts_in_the_zone_rule() -> None:
    """Two replicas with records in two zones, and the witness in a third."""
    model = cluster(6, "abcabc")
    create(model, policy=Policy(ZoneRule.HARD))
    homes = [model.stores[one.store_id].labels["zone"] for one in members_of(model).members]
    assert sorted(homes) == ["a", "b", "c"]


# --- repair, moves --------------------------------------------------------------------------------


def test_a_lost_witness_is_replaced_by_a_witness() -> None:
    model = cluster()
    create(model)
    witness = witness_of(model)
    model.kill(home_of(model, witness))
    model.run(expiry(model) + 200)
    settle(model)
    assert shape(model) == (2, 1)
    assert witness_of(model) != witness
    assert "ADD_WITNESS_LEARNER" in model.shards[LOG].changes
    assert "ADD_WITNESS+REMOVE" in model.shards[LOG].changes


def test_a_lost_full_replica_is_replaced_by_a_full_one() -> None:
    model = cluster()
    create(model)
    before = members_of(model)
    model.kill(home_of(model, before.full_voters[0]))
    model.run(expiry(model) + 200)
    settle(model)
    assert shape(model) == (2, 1)
    assert members_of(model).witnesses == before.witnesses
    assert before.full_voters[0] not in members_of(model).voters


def test_a_witness_without_its_data_is_swapped_in_place_when_no_store_is_spare() -> None:
    model = cluster(3)
    create(model)
    witness = witness_of(model)
    home = home_of(model, witness)
    model.wipe(home)
    model.run(expiry(model) + 200)
    settle(model)
    assert shape(model) == (2, 1)
    new = witness_of(model)
    assert (new != witness, home_of(model, new)) == (True, home)


def test_it_moves_from_a_drained_store_and_by_a_wish() -> None:
    model = cluster(5)
    create(model)
    witness = witness_of(model)
    home = home_of(model, witness)
    assert isinstance(model.propose(SetStoreMode(home, StoreMode.DRAINING, "", False)), Applied)
    model.run(300)
    settle(model)
    moved = witness_of(model)
    assert home_of(model, moved) != home
    homes = {one.store_id for one in members_of(model).members}
    spare = next(one for one in sorted(model.stores) if one not in homes | {home})
    wish = WishReplica(Errand.MOVE, LOG, home_of(model, moved), spare, "", False)
    assert isinstance(model.propose(wish), Applied)
    settle(model)
    there = witness_of(model)
    assert (shape(model), home_of(model, there)) == ((2, 1), spare)


def test_a_standing_learner_never_takes_its_place() -> None:
    """No other store could take the witness: the log goes on without, and keeps its learner."""
    model = cluster(4)
    create(model, policy=Policy(ZoneRule.NONE, learners=(LearnersIn("", 1),)))
    settle(model)
    [learner] = members_of(model).learners
    witness = witness_of(model)
    model.kill(home_of(model, witness))
    model.run(expiry(model) + 300)
    assert members_of(model).learners == (learner,)
    assert members_of(model).witnesses == (witness,)
    assert any(f"replace replica {witness}" in flag for flag in model.state.flags)


def test_it_keeps_its_number_of_replicas() -> None:
    model = cluster(5)
    create(model)
    refused = model.propose(ChangeShard(LOG, replicas=5))
    assert isinstance(refused, Rejected)
    assert (refused.reason, refused.metadata["field"]) == (Reason.INVALID_ARGUMENT, "replicas")
    assert isinstance(model.propose(ChangeShard(LOG, name="other", replicas=3)), Applied)
    homes = {one.store_id for one in members_of(model).members}
    spare = next(one for one in sorted(model.stores) if one not in homes)
    kept = "keeps its number"
    assert kept in why(model.propose(WishReplica(Errand.ADD, LOG, "", spare, "", True)))
    assert kept in why(
        model.propose(WishReplica(Errand.REMOVE, LOG, sorted(homes)[0], "", "", True))
    )


def test_a_witness_is_given_no_leadership() -> None:
    model = cluster(3)
    create(model)
    witness = witness_of(model)
    home = home_of(model, witness)
    assert "never leads" in why(model.propose(SetLeader(LOG, 100, home)))
    assert "is a witness" in safety.objection(model.state, home, TransferLeader(LOG, witness))
    assert isinstance(model.propose(Rebalance(False, leaders=True)), Applied)
    model.run(600)
    assert model.shards[LOG].leader in members_of(model).full_voters


# --- safety ---------------------------------------------------------------------------------------


def test_no_change_makes_half_of_the_voters_witnesses() -> None:
    """INV-HK-WITNESS, whoever asks for it."""
    model = cluster(5)
    create(model)
    shard = model.state.shards[LOG]
    epoch, [witness], full = shard.members.change_epoch, shard.members.witnesses, 2
    voters = shard.members.full_voters
    assert len(voters) == full

    def refused(*steps: Step) -> str:
        target = home_of(model, voters[0])
        return safety.objection(model.state, target, ChangeMembership(LOG, epoch, steps))

    new = ReplicaId(5000)
    second = Step(ChangeKind.ADD_WITNESS, new, StoreId("s5"))
    assert "witnesses" in refused(second, Step(ChangeKind.REMOVE, voters[0])) or "tolerance" in (
        refused(second, Step(ChangeKind.REMOVE, voters[0]))
    )
    change = ChangeMembership(LOG, epoch, (second, Step(ChangeKind.REMOVE, voters[0])))
    assert safety.too_many_witnesses(shard, change)
    change = ChangeMembership(LOG, epoch, (second, Step(ChangeKind.REMOVE, witness)))
    assert not safety.too_many_witnesses(shard, change)
    shard.witnesses = 0
    assert safety.too_many_witnesses(shard, change), "it was created without"


@pytest.mark.parametrize("kind", ["witness", "full"])
def test_of_too_many_voters_one_of_the_kind_goes_that_there_are_too_many_of(kind: str) -> None:
    model = cluster(5)
    create(model)
    shard = model.state.shards[LOG]
    before, extra = shard.members, ReplicaId(5000)
    store = next(
        one for one in model.stores.values() if one.name not in {m.store_id for m in before.members}
    )
    witnesses = (*before.witnesses, extra) if kind == "witness" else before.witnesses
    shard.membership = Membership(
        voters=(*before.voters, extra),
        witnesses=witnesses,
        change_epoch=Index(50),
        members=(*before.members, Member(extra, store.name, store.incarnation)),
    ).encode()
    alive = dict.fromkeys(shard.members.voters, Health.ALIVE)
    gone = surplus.choose(model.state, shard, alive)
    assert (gone in witnesses) is (kind == "witness")


@pytest.mark.parametrize("seed", histories(12))
def test_it_comes_to_rest_with_its_witnesses_whatever_was_lost(seed: int) -> None:
    """A fixed point in a bounded number of rounds, from random losses, drains and moves."""
    dice = random.Random(seed)
    model = cluster(dice.choice([6, 7, 8]), "abcabcab")
    replicas, witnesses = dice.choice([(3, 1), (5, 1), (5, 2)])
    create(model, replicas, witnesses, Policy(dice.choice(list(ZoneRule))))
    for _ in range(6):
        model.run(dice.choice([1, 5, 20, 60]))
        store = dice.choice(sorted(model.stores))
        deed = dice.randrange(4)
        if deed <= 1 and at_rest(model):
            # One loss at a time: nothing stands two.
            model.kill(store)
            model.run(dice.choice([10, expiry(model), 500]))
            model.wipe(store) if dice.random() < 0.3 else model.revive(store)
        elif deed == 2:
            mode = dice.choice([StoreMode.DRAINING, StoreMode.OPEN])
            assert isinstance(model.propose(SetStoreMode(store, mode, "", True)), Applied)
        else:
            target = dice.choice(sorted(model.stores))
            outcome = model.propose(WishReplica(Errand.MOVE, LOG, store, target, "", True))
            assert isinstance(outcome, Applied) or rejected(outcome) in _OF_A_WISH
    for store in sorted(model.stores):
        assert isinstance(model.propose(SetStoreMode(store, StoreMode.OPEN, "", True)), Applied)
    model.run(bounds.HAKEEPER_AVOID_TICKS)
    settle(model, 3000)
    assert shape(model) == (replicas - witnesses, witnesses)
    assert not any(one.kind is Repair.REPLACE for one in model.state.operators.values())
