"""The order of the stores that is kept, against one sorted anew. It names INV-HK-RANKING."""

from __future__ import annotations

import random

from logservice.hakeeper.commands.policy import ZoneRule
from logservice.hakeeper.repair.placement import Placement
from logservice.hakeeper.repair.ranking import Ranking
from logservice.hakeeper.repair.spread import Spread
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores import learners
from logservice.hakeeper.stores.zones import zone_of
from logservice.ids import StoreId
from tests.hakeeper.placements import labelled, sorted_anew
from tests.hakeeper.random_states import STATES, random_state


def plain_choice(
    placement: Placement, state: State, shard: ShardState, count: int, leaving: StoreId | None
) -> list[StoreId]:
    site = placement.site(shard, leaving)
    found: list[StoreId] = []
    for _ in range(count):
        for name in sorted_anew(placement, state, site.spread):
            if not site.refusal(state.stores[name]):
                found.append(name)
                site.take(state.stores[name])
                break
    return found


def coin(dice: random.Random) -> bool:
    return dice.random() < 0.2


def test_the_order_is_that_of_sorting_anew() -> None:
    """INV-HK-RANKING."""
    dice = random.Random(12)
    for _ in range(300):
        names = [StoreId(f"s{number:02}") for number in range(dice.randrange(25))]
        zones: list[str] = dice.choice([["a"], ["a", "b", "c"], ["", "a"], [*names, "a"]])
        standing = {
            name: (coin(dice), coin(dice), coin(dice), dice.choice(zones)) for name in names
        }
        shares = {name: dice.randrange(8) for name in names}
        ranking = Ranking(standing, shares)
        for _ in range(20):
            crowd = [dice.choice(zones) for _ in range(dice.randrange(4))]
            spread = Spread(dice.choice(list(ZoneRule)), 3, crowd)
            wanted = sorted(
                names,
                key=lambda name: (
                    *standing[name][:3],
                    spread.crowd(standing[name][3]),
                    shares[name],
                    name,
                ),
            )
            assert list(ranking.order(spread)) == wanted
            for name in dice.sample(names, min(len(names), 3)):
                shares[name] = dice.randrange(8)
                ranking.change(name, shares[name])
            ranking.change(StoreId("not-ranked"), 5)


def test_placement_chooses_as_if_it_sorted_anew() -> None:
    """Whatever the state, and whatever was chosen, moved or lost before."""
    chosen = 0
    for seed in range(STATES // 4):
        dice = random.Random(seed)
        version = dice.choice([1, 2])
        state = labelled(dice, random_state(dice, version))
        placement = Placement(state)
        for shard in state.sorted_shards():
            homes = [one.store_id for one in shard.members.members]
            leaving = dice.choice([None, *homes])
            count = dice.randrange(1, 4)
            wanted = plain_choice(placement, state, shard, count, leaving)
            found = placement.choose(shard, count, leaving)
            assert [one.store for one in found] == wanted
            chosen += len(found)
            for store in found:
                if leaving is not None and placement.load(leaving) > 0 and dice.random() < 0.3:
                    placement.moved(leaving, store.store)
                else:
                    placement.take(shard.shard, store.store, placement.directory(store))
            zone = dice.choice(["", "a", "b"])
            learner = placement.choose_learner(shard, zone)
            site = placement.site(shard, None)
            apart = Spread(ZoneRule.NONE, shard.wanted, ())
            fit = [
                name
                for name in sorted_anew(placement, state, apart)
                if learners.covers(zone, zone_of(state.stores[name]))
                and not site.learner_refusal(state.stores[name])
            ]
            assert fit[:1] == ([learner.store] if learner is not None else [])
    assert chosen > STATES // 4
