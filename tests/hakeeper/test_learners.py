"""Standing learners: they come, stay, move and go as the policy says, and vote for nothing. It
names INV-HK-LEARNER and G8.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.config_change import ChangeKind
from logservice.hakeeper.commands.policy import LearnersIn, Policy, ZoneRule
from logservice.hakeeper.commands.proposals import ChangeShard, CreateShard, DeleteShard
from logservice.hakeeper.commands.store_commands import ChangeMembership, Step
from logservice.hakeeper.commands.verbs import (
    CancelOperator,
    Errand,
    ForgetStore,
    SetLeader,
    SetRepair,
    SetStoreMode,
    StoreMode,
    WishReplica,
)
from logservice.hakeeper.repair import check, safety
from logservice.hakeeper.repair.drain import remaining
from logservice.hakeeper.repair.rehearsal import Stage
from logservice.hakeeper.state import Repair, load, save
from logservice.hakeeper.stores import learners
from logservice.hakeeper.wishes import impact
from logservice.ids import HAKEEPER_SHARD, ShardId, StoreId
from logservice.outcome import Applied, Outcome, Rejected
from logservice.versions import KNOWN
from tests.hakeeper.campaign import cases, histories
from tests.hakeeper.model import Model, expiry, rejected
from tests.hakeeper.random_states import random_state
from tests.hakeeper.test_safety import judge, judge_operators

ONE = ShardId(1)


def zoned(zones: str, shards: int = 1) -> Model:
    """A running cluster with a store in each of these zones: ``aab`` is two in `a`, one in `b`. The
    voters of the logs are on the first three, and zones do not move them.
    """
    model = Model(3, versions=KNOWN)
    for store, zone in zip(model.stores.values(), zones, strict=False):
        store.labels = {"zone": zone}
    model.start(shards=shards)
    assert model.state.cluster_version == 2
    for shard in sorted(model.shards):
        change = ChangeShard(shard, policy=Policy(ZoneRule.NONE))
        assert isinstance(model.propose(change), Applied)
    for number, zone in enumerate(zones[3:], 4):
        model.add_store(f"s{number}").labels = {"zone": zone}
    model.run(30)
    return model


def want(model: Model, shard: ShardId = ONE, rule: ZoneRule = ZoneRule.NONE, **wanted: int) -> None:
    """The log wants so many learners in the zones; `any` stands for anywhere."""
    found = {zone.removeprefix("any"): count for zone, count in wanted.items()}
    rows = tuple(LearnersIn(zone, count) for zone, count in sorted(found.items()))
    outcome = model.propose(ChangeShard(shard, policy=Policy(rule, learners=rows)))
    assert isinstance(outcome, Applied), outcome


def learners_of(model: Model, shard: ShardId = ONE) -> list[StoreId]:
    """The stores of the log's learners, as the log itself has them."""
    members = model.shards[shard].membership
    return sorted(m.store_id for m in members.members if m.replica_id in members.learners)


def voters_of(model: Model, shard: ShardId = ONE) -> list[StoreId]:
    members = model.shards[shard].membership
    return sorted(m.store_id for m in members.members if m.replica_id in members.voters)


def zones_of(model: Model, shard: ShardId = ONE) -> list[str]:
    return sorted(model.stores[store].labels["zone"] for store in learners_of(model, shard))


def at_rest(model: Model) -> bool:
    """Every member of every log runs, and nothing is under way."""
    return not model.state.operators and all(
        not oracle.membership.joint
        and {*oracle.membership.voters, *oracle.membership.learners} <= model.running(shard)
        for shard, oracle in model.shards.items()
    )


def settle(model: Model, ticks: int = 600) -> None:
    model.run_until(lambda: at_rest(model), ticks)
    model.run(bounds.HAKEEPER_IDLE_CHECK_TICKS)
    changes = [list(oracle.changes) for oracle in model.shards.values()]
    model.run(3 * bounds.HAKEEPER_IDLE_CHECK_TICKS)
    assert at_rest(model), model.describe()
    assert [oracle.changes for oracle in model.shards.values()] == changes, "it goes on changing"


def why(outcome: Outcome) -> str:
    assert isinstance(outcome, Rejected), outcome
    assert outcome.reason is Reason.VERB_REFUSED
    return outcome.metadata["why"]


def three_and_a_learner() -> tuple[Model, StoreId]:
    """Three voters, a learner in zone b, and a spare store in each zone."""
    model = zoned("aaaabb")
    model.stores[StoreId("s6")].reachable = False
    want(model, b=1)
    model.run_until(lambda: bool(learners_of(model)) and at_rest(model), 300)
    [home] = learners_of(model)
    model.stores[StoreId("s6")].reachable = True
    settle(model)
    return model, home


# --- they come and stay ---------------------------------------------------------------------------


def test_learners_come_to_the_zones_that_the_policy_names_and_stay_learners() -> None:
    model = zoned("aaabbc")
    want(model, b=2, c=1)
    model.run_until(lambda: len(learners_of(model)) == 3, 300)
    settle(model)
    assert zones_of(model) == ["b", "b", "c"]
    assert len(voters_of(model)) == 3
    assert model.shards[ONE].changes == ["ADD_LEARNER"] * 3


def test_a_log_is_born_with_its_learners_and_loses_them_with_its_end() -> None:
    model = zoned("aaabbb")
    policy = Policy(ZoneRule.BEST_EFFORT, learners=(LearnersIn("b", 1),))
    outcome = model.propose(CreateShard(ShardId(0), "read", 3, policy=policy))
    assert isinstance(outcome, Applied)
    shard = ShardId(outcome.value)
    model.run_until(lambda: shard in model.shards and bool(learners_of(model, shard)), 300)
    settle(model)
    [home] = learners_of(model, shard)
    assert model.stores[home].labels == {"zone": "b"}
    assert isinstance(model.propose(DeleteShard(shard, "read", force=True)), Applied)
    model.run(60)
    assert not [store.name for store in model.stores.values() if shard in store.copies]


def test_a_learner_anywhere_takes_any_store_and_fewer_are_wanted_later() -> None:
    model = zoned("aaabc")
    want(model, any=2)
    model.run_until(lambda: len(learners_of(model)) == 2, 300)
    settle(model)
    want(model, c=1)
    model.run_until(lambda: zones_of(model) == ["c"], 300)
    settle(model)
    want(model)
    model.run_until(lambda: not learners_of(model), 300)
    settle(model)
    assert not [
        s for s in model.stores.values() if ONE in s.copies and s.name not in voters_of(model)
    ]


def test_a_learner_that_moves_to_another_zone_is_never_missed() -> None:
    model = zoned("aaabc")
    want(model, b=1)
    model.run_until(lambda: zones_of(model) == ["b"], 300)
    settle(model)
    want(model, c=1)
    seen = set()
    while zones_of(model) != ["c"]:
        seen.add(tuple(zones_of(model)))
        model.run(1)
        assert model.now < 3000
    assert seen == {("b",), ("b", "c")}


def test_a_zone_without_a_store_that_fits_is_told_and_served_when_one_comes() -> None:
    model = zoned("aaab")
    want(model, c=1)
    model.run(60)
    assert "shard 1: no store for a learner in c" in model.state.flags
    model.add_store("s5").labels = {"zone": "c"}
    model.run_until(lambda: zones_of(model) == ["c"], 300)
    settle(model)
    assert not [flag for flag in model.state.flags if "learner" in flag]


def test_a_learner_follows_the_label_of_its_store() -> None:
    model = zoned("aaabb")
    want(model, b=1)
    model.run_until(lambda: len(learners_of(model)) == 1, 300)
    settle(model)
    [home] = learners_of(model)
    model.stores[home].labels = {"zone": "x"}
    model.run_until(
        lambda: learners_of(model) not in ([home], []) and zones_of(model) == ["b"], 300
    )
    settle(model)


def test_no_learner_comes_to_the_host_of_another_replica() -> None:
    model = Model(6, hosts=3, versions=KNOWN)
    model.start()
    want(model, any=1)
    model.run(100)
    assert learners_of(model) == []
    assert "shard 1: no store for a learner" in model.state.flags


# --- they are lost --------------------------------------------------------------------------------


def test_a_learner_waits_longer_than_a_voter_and_is_then_replaced() -> None:
    model, home = three_and_a_learner()
    model.kill(home)
    model.run(bounds.HAKEEPER_LEARNER_LOST_TICKS - 20)
    assert learners_of(model) == [home]
    model.run(60)
    model.run_until(lambda: learners_of(model) not in ([], [home]), 300)
    assert zones_of(model) == ["b"]
    model.revive(home)
    settle(model)
    assert ONE not in model.stores[home].copies


def test_a_learner_that_comes_back_in_time_goes_on_where_it_was() -> None:
    model, home = three_and_a_learner()
    changes = list(model.shards[ONE].changes)
    model.kill(home)
    model.run(2 * expiry(model))
    model.revive(home)
    settle(model)
    assert learners_of(model) == [home]
    assert model.shards[ONE].changes == changes


def test_a_learner_whose_disk_is_gone_is_replaced_at_once_even_on_its_own_store() -> None:
    model = zoned("aaab")
    want(model, b=1)
    model.run_until(lambda: zones_of(model) == ["b"], 300)
    settle(model)
    [home] = learners_of(model)
    before = model.shards[ONE].membership.learners
    model.wipe(home)
    model.run_until(
        lambda: model.shards[ONE].membership.learners not in (before, ()) and at_rest(model), 600
    )
    assert learners_of(model) == [home]


def test_repair_off_holds_for_learners_too() -> None:
    model, home = three_and_a_learner()
    assert isinstance(model.propose(SetRepair("", 2000, "a test")), Applied)
    model.wipe(home)
    model.run(3 * expiry(model))
    assert learners_of(model) == [home]
    model.run(2000)
    settle(model)
    assert len(model.running(ONE)) == 4


# --- a voter comes first --------------------------------------------------------------------------


def test_a_lost_voter_gets_a_new_store_and_the_learner_stays_one() -> None:
    model, home = three_and_a_learner()
    [first, *_] = voters_of(model)
    model.kill(first)
    model.run(expiry(model))
    settle(model)
    assert learners_of(model) == [home]
    assert first not in voters_of(model)
    assert len(voters_of(model)) == 3


def test_without_another_store_the_learner_takes_the_lost_voters_place() -> None:
    model = zoned("aaab")
    want(model, b=1)
    model.run_until(lambda: zones_of(model) == ["b"], 300)
    settle(model)
    [home] = learners_of(model)
    [first, *_] = voters_of(model)
    model.kill(first)
    model.run(expiry(model))
    model.run_until(lambda: home in voters_of(model) and at_rest(model), 300)
    assert model.shards[ONE].changes == ["ADD_LEARNER", "ADD_VOTER+REMOVE", "leave"]
    model.run(30)
    assert "shard 1: no store for a learner in b" in model.state.flags
    model.stores[first].labels = {"zone": "b"}
    model.revive(first)
    model.run_until(lambda: learners_of(model) == [first], 300)
    settle(model)


def test_a_learner_that_is_behind_is_not_made_a_voter() -> None:
    model = zoned("aaab")
    model.copy_speed = 0
    model.shards[ONE].last += 100_000
    want(model, b=1)
    model.run_until(lambda: zones_of(model) == ["b"], 300)
    model.kill(voters_of(model)[0])
    model.run(3 * expiry(model))
    assert len(learners_of(model)) == 1
    model.copy_speed = 100_000
    model.run_until(lambda: not learners_of(model), 300)
    assert len(voters_of(model)) == 3


def test_the_zone_rule_keeps_a_learner_from_the_vote() -> None:
    model = zoned("abcc")
    want(model, rule=ZoneRule.HARD, c=1)
    model.run_until(lambda: zones_of(model) == ["c"], 600)
    settle(model)
    inside = next(one for one in voters_of(model) if model.stores[one].labels["zone"] == "a")
    model.kill(inside)
    model.run(3 * expiry(model))
    assert zones_of(model) == ["c"], "two of three voters would be in one zone"


@pytest.mark.parametrize("rule", [ZoneRule.HARD, ZoneRule.BEST_EFFORT])
def test_a_learner_in_the_only_place_of_a_zone_takes_the_place_of_a_voter(rule: ZoneRule) -> None:
    """Short seed 157: two of three voters stayed in one zone of three."""
    model = zoned("aabc")
    want(model, any=1)
    model.run_until(lambda: zones_of(model) == ["c"], 300)
    settle(model)
    want(model, rule=rule, any=1)
    settle(model)
    assert sorted(model.stores[one].labels["zone"] for one in voters_of(model)) == ["a", "b", "c"]
    assert zones_of(model) == ["a"]


def test_the_dry_run_of_a_rebalance_tells_of_a_learner_that_becomes_a_voter() -> None:
    model = zoned("aabc")
    want(model, any=1)
    model.run_until(lambda: zones_of(model) == ["c"], 300)
    settle(model)
    [home] = learners_of(model)
    want(model, rule=ZoneRule.HARD, any=1)
    found = Stage(model.state)
    list(found.moves(replicas=False))
    assert [(one.shard, one.target) for one in found.moved] == [(ONE, home)]


def test_a_promotion_that_is_not_needed_any_more_leaves_the_learner_where_it_is() -> None:
    model = zoned("aaab")
    want(model, b=1)
    model.run_until(lambda: zones_of(model) == ["b"], 300)
    settle(model)
    [home] = learners_of(model)
    first, second, _ = voters_of(model)
    model.kill(first)
    model.run_until(lambda: any(one.promotes for one in model.state.operators.values()), 300)
    model.kill(second)
    model.run(1)
    model.revive(first)
    model.revive(second)
    settle(model)
    assert home in {*learners_of(model), *voters_of(model)}
    assert len(voters_of(model)) == 3


def test_inv_hk_learner_the_gate_refuses_a_vote_for_one_that_stands() -> None:
    model, home = three_and_a_learner()
    shard = model.state.shards[ONE]
    [learner] = shard.members.learners
    store = model.state.stores[home]
    step = Step(ChangeKind.ADD_VOTER, learner, home, store.directories[0].incarnation)
    promotion = ChangeMembership(ONE, shard.members.change_epoch, (step,))
    assert "learner that stands" in safety.objection(model.state, home, promotion)
    voter = shard.members.voters[0]
    demotion = ChangeMembership(
        ONE, shard.members.change_epoch, (Step(ChangeKind.ADD_LEARNER, voter),)
    )
    assert "is a voter" in safety.objection(model.state, home, demotion)


# --- every verb on a learner ----------------------------------------------------------------------


def test_every_verb_on_a_learner() -> None:
    model, home = three_and_a_learner()
    [voter, other, _] = voters_of(model)
    spare = next(one for one in model.stores if one not in {home, *voters_of(model)})
    before = save(model.state)

    def wish(errand: Errand, source: str, target: str) -> Outcome:
        return model.propose(WishReplica(errand, ONE, source, target, "a test"))

    assert "has a learner" in why(wish(Errand.MOVE, home, spare))
    assert "has a learner" in why(wish(Errand.REMOVE, home, ""))
    assert "has a replica of the shard" in why(wish(Errand.MOVE, voter, home))
    assert "has a replica of the shard" in why(wish(Errand.ADD, "", home))
    assert "no voter" in why(model.propose(SetLeader(ONE, 100, home, "a test")))
    assert "1 replicas" in why(model.propose(ForgetStore(home)))
    assert model.state.wishes == load(before).wishes
    assert [one.kind for one in impact.of(model.state, [home]).findings] == []
    assert voter != other


def test_a_learner_leaves_a_drained_store_after_its_successor_came() -> None:
    model, home = three_and_a_learner()
    assert isinstance(model.propose(SetStoreMode(home, StoreMode.DRAINING, "", True)), Applied)
    while home in learners_of(model):
        model.run(1)
        assert learners_of(model)
        assert model.now < 3000
    settle(model)
    assert zones_of(model) == ["b"]
    assert remaining(model.state, model.state.stores[home]).empty


def test_a_drain_waits_for_a_place_for_the_learner() -> None:
    model = zoned("aaab")
    want(model, b=1)
    model.run_until(lambda: zones_of(model) == ["b"], 300)
    settle(model)
    [home] = learners_of(model)
    [finding] = impact.of(model.state, [home]).findings
    assert finding.text == "shard 1 would lack a learner in b"
    assert "would lack a learner" in why(model.propose(SetStoreMode(home, StoreMode.DRAINING, "")))
    assert isinstance(model.propose(SetStoreMode(home, StoreMode.DRAINING, "", True)), Applied)
    model.run(200)
    assert learners_of(model) == [home]
    assert "shard 1: no store for a learner in b" in model.state.flags
    want(model)
    model.run_until(lambda: remaining(model.state, model.state.stores[home]).empty, 300)


def test_a_learner_on_a_store_that_is_forgotten_is_replaced() -> None:
    model, home = three_and_a_learner()
    model.kill(home)
    model.run(expiry(model))
    assert isinstance(model.propose(ForgetStore(home, lost=True)), Applied)
    model.run_until(lambda: learners_of(model) not in ([], [home]), 300)
    settle(model)
    assert zones_of(model) == ["b"]


def test_a_learner_on_its_way_can_be_cancelled() -> None:
    model = zoned("aaabb")
    model.stores[StoreId("s5")].refuses.add(ONE)
    model.stores[StoreId("s4")].refuses.add(ONE)
    want(model, b=1)
    model.run_until(lambda: bool(model.state.operators), 100)
    [operator] = model.state.operators.values()
    assert operator.kind is Repair.LEARN
    assert model.propose(CancelOperator(operator.id)) == Applied()
    assert model.propose(CancelOperator(operator.id)) == Applied(duplicate=True)
    model.run_until(lambda: operator.id not in model.state.operators, 300)
    for store in model.stores.values():
        store.refuses.clear()
    model.run_until(lambda: len(learners_of(model)) == 1, 2 * bounds.HAKEEPER_AVOID_TICKS)
    settle(model)


def test_the_policy_is_checked_as_a_whole() -> None:
    model = zoned("aaab")
    most = bounds.HAKEEPER_LEARNERS_MAX

    def change(shard: ShardId, *rows: LearnersIn) -> Outcome:
        return model.propose(ChangeShard(shard, policy=Policy(learners=rows)))

    before = save(model.state)
    for rows in (
        (LearnersIn("a", 1), LearnersIn("a", 1)),
        (LearnersIn("a", most), LearnersIn("b", 1)),
    ):
        why = {"field": "learners", "why": f"each zone once, {most} in all at most"}
        assert change(ONE, *rows) == Rejected(Reason.INVALID_ARGUMENT, why)
        made = CreateShard(ShardId(0), "x", 3, policy=Policy(learners=rows))
        assert rejected(model.propose(made)) is Reason.INVALID_ARGUMENT
    assert rejected(change(HAKEEPER_SHARD, LearnersIn("a", 1))) is Reason.INVALID_ARGUMENT
    after = load(save(model.state))
    assert (after.shards, after.operators) == (load(before).shards, load(before).operators)
    assert isinstance(change(ONE, LearnersIn("a", most)), Applied)


def test_hakeeper_changes_its_leader_at_every_moment_while_a_learner_moves() -> None:
    for moment in range(0, 60, 5):
        model = zoned("aaabc")
        want(model, b=1)
        model.run_until(lambda model=model: zones_of(model) == ["b"], 300)  # type: ignore[misc]
        want(model, c=1)
        model.run(moment)
        model.new_hakeeper_leader()
        model.run_until(lambda model=model: zones_of(model) == ["c"], 300)  # type: ignore[misc]
        settle(model)


# --- random states --------------------------------------------------------------------------------


def test_no_random_state_with_learners_leads_to_a_dangerous_command() -> None:
    """20 000 states in a campaign; in each, the same result on a replica that recovered."""
    kinds: Counter[str] = Counter()
    operators: Counter[Repair] = Counter()
    for seed in cases(1200):
        here = random_state(random.Random(seed), version=2)
        twin = load(save(here))
        before = set(here.operators)
        try:
            for _ in range(3):
                check.run(here)
                check.run(twin)
            kinds += judge(here)
            judge_operators(here, before)
            operators.update(one.kind for key, one in here.operators.items() if key not in before)
            assert save(twin) == save(here), "the result depends on more than the state"
        except BaseException:
            print("seed", seed)
            raise
    assert operators[Repair.LEARN] > 5, operators
    assert kinds["ChangeMembership"] > 100, kinds


@pytest.mark.parametrize("seed", histories(12))
def test_learners_come_to_rest_whatever_was_asked_and_lost(seed: int) -> None:
    """A fixed point in a bounded number of rounds, from random policies, losses and drains."""
    dice = random.Random(seed)
    model = zoned("".join(dice.choice("abc") for _ in range(dice.choice([4, 5, 6, 7]))), shards=2)
    for _ in range(6):
        model.run(dice.choice([1, 5, 20, 60]))
        shard = ShardId(dice.choice([1, 2]))
        store = dice.choice(sorted(model.stores))
        deed = dice.randrange(5)
        if deed <= 1:
            zones = dice.sample(["a", "b", "c", "any"], dice.choice([0, 1, 2]))
            want(model, shard, **{zone: dice.choice([1, 1, 2]) for zone in zones})
        elif deed == 2 and all(one.up for one in model.stores.values()):
            model.kill(store)
            model.run(dice.choice([10, expiry(model), 500]))
            model.revive(store)
        elif deed == 3:
            model.stores[store].labels = {"zone": dice.choice("abc")}
        else:
            mode = dice.choice([StoreMode.DRAINING, StoreMode.OPEN])
            assert isinstance(model.propose(SetStoreMode(store, mode, "", True)), Applied)
    for store in sorted(model.stores):
        assert isinstance(model.propose(SetStoreMode(store, StoreMode.OPEN, "")), Applied)
    settle(model, 2000)
    for number in (1, 2):
        shard = model.state.shards[ShardId(number)]
        assert len(shard.members.voters) == 3
        there = learners.standing(model.state, shard)
        found = learners.match(model.state, shard, there)
        wanted = sum(one.count for one in shard.policy.learners)
        assert len(there) <= wanted
        missing = [
            flag for flag in model.state.flags if f"shard {number}: no store for a l" in flag
        ]
        assert bool(found.lacking) == bool(missing), (found, model.state.flags)
