"""Random schedules of faults over the model cluster, healed at the end. It names G8 and
INV-HK-TOLERANCE.

The model asserts, against the real state of its shards, that no change lowers a shard's tolerance,
that no member is killed (INV-HK-MEMBER), that no removed id comes back and that nothing is started
in a wrong data directory. After everything healed, these tests demand that every shard that can
still recover is whole again, and stays as it is.
"""

from __future__ import annotations

import random

import pytest

from logservice.hakeeper.commands import proposals
from logservice.ids import ShardId
from tests.hakeeper.campaign import histories
from tests.hakeeper.model import Model, Store

SEEDS = histories(40)
ROUNDS = 25


def disturb(model: Model, dice: random.Random) -> None:
    """Begin one fault, or end one."""
    store = dice.choice(list(model.stores.values()))
    action = dice.randrange(12)
    if action <= 2:
        model.kill(store.name)
    elif action <= 4 and not store.up:
        model.revive(store.name)
    elif action == 5 and dice.random() < 0.5:
        model.wipe(store.name)
    elif action == 6:
        store.reachable = not store.reachable
    elif action == 7 and store.copies:
        dice.choice(list(store.copies.values())).running = False
    elif action == 8 and store.copies and dice.random() < 0.3:
        dice.choice(list(store.copies.values())).halted = "damaged"
    elif action == 9:
        store.refuses = {ShardId(dice.randrange(4))} if dice.random() < 0.5 else set()
    elif action == 10:
        model.propose(proposals.CreateShard(ShardId(0), "", 0))
    elif model.executions:
        # A command was delayed on the way, or was delivered to a process before its restart.
        name, queued = dice.choice(model.executions)
        if model.stores[name].up and queued.id not in model.stores[name].executed:
            model.execute(model.stores[name], queued)
    model.copy_speed = dice.choice([0, 50, 5000])
    if dice.random() < 0.2:
        model.new_hakeeper_leader()


def recoverable(model: Model, shard: ShardId) -> bool:
    return model.tolerance(shard) >= 0


def heal(model: Model) -> None:
    """Let everything work again, and add a spare store, without which HAKeeper waits."""
    model.add_store("spare")
    for store in model.stores.values():
        _heal_store(model, store)
    model.drop_reply = lambda _: False
    model.copy_speed = 5000


def _heal_store(model: Model, store: Store) -> None:
    store.reachable = True
    store.refuses = set()
    if not store.up:
        model.revive(store.name)


def shard_is_whole(model: Model, shard: ShardId) -> bool:
    oracle = model.shards[shard]
    return (
        len(oracle.membership.voters) == 3
        and not oracle.membership.joint
        and not oracle.membership.learners
        and set(oracle.membership.voters) <= model.running(shard)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_never_lower_tolerance_and_heal(seed: int) -> None:
    dice = random.Random(seed)
    model = Model(dice.choice([3, 4, 5, 6]), timeout=dice.choice([40, 100]))
    model.start(shards=dice.choice([1, 3]))
    loss = dice.choice([0.0, 0.3])
    model.drop_reply = lambda _: dice.random() < loss
    for _ in range(ROUNDS):
        disturb(model, dice)
        model.run(dice.choice([3, 20, 60]))
    heal(model)
    # Live stores start the replicas that they still can; then shards with a majority are repaired.
    model.run(200)
    ask = [shard for shard in model.shards if recoverable(model, shard)]
    model.run_until(lambda: all(shard_is_whole(model, shard) for shard in ask), 2500)
    model.run(300)
    done = {shard: len(model.shards[shard].changes) for shard in ask}
    model.run(600)
    assert {shard: len(model.shards[shard].changes) for shard in ask} == done, "oscillation"
    repairs = [one for one in model.state.sorted_operators() if one.shard in ask]
    assert not repairs, model.describe()


def test_the_schedules_do_repair_something() -> None:
    """This tests the test above, which would prove nothing without swaps, kills and removals."""
    changes: set[str] = set()
    for seed in range(12):
        dice = random.Random(seed)
        model = Model(5, timeout=40)
        model.start(shards=2)
        for _ in range(ROUNDS):
            disturb(model, dice)
            model.run(60)
        for oracle in model.shards.values():
            changes.update(oracle.changes)
        changes.update(type(queued.command).__name__ for _, queued in model.executions)
    assert {"ADD_LEARNER", "ADD_VOTER+REMOVE", "leave", "REMOVE"} <= changes
    assert {"StartReplica", "RemoveReplica", "ChangeMembership"} <= changes
