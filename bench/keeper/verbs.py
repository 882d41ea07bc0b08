"""What people ask of a large HAKeeper: how long each verb holds the loop up, and what follows it.

Theory of operation. Each verb is applied as its encoded proposal, and then ten seconds pass: what a
wish begins is done in ticks, so the longest one counts as much as the verb itself. A verb that is
refused was judged, too. Verbs that take something away come last; the world is whole again before
each of the others.

What a verb costs may grow with the replicas of its store. So a drain and a forgetting are measured
in a cluster of few stores, too, each with more than a thousand.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from bench.keeper.world import World
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.policy import LearnersIn, Policy, ZoneRule
from logservice.hakeeper.commands.verbs import (
    CancelWish,
    ChangeSettings,
    Errand,
    ForgetStore,
    Rebalance,
    SetLeader,
    SetRepair,
    SetStoreMode,
    StoreMode,
    WishReplica,
)
from logservice.ids import HAKEEPER_SHARD, ShardId, StoreId

AFTER_TICKS = 100

CROWDED_STORES = 9
CROWDED_SHARDS = 4000

Note = Callable[[str, float, str], None]


def measure(world: World, note: Note) -> None:
    """Ask for everything once."""
    ask = _asking(world, note)
    shard = world.shards[ShardId(5)]
    homes = [member.store_id for member in shard.membership.members]
    keepers = {one.store_id for one in world.shards[HAKEEPER_SHARD].membership.members}
    others = [name for name in sorted(world.stores) if name not in keepers]
    free = next(name for name in others if name not in homes)
    ask("read-only", SetStoreMode(others[0], StoreMode.READ_ONLY))
    ask("open", SetStoreMode(others[0], StoreMode.OPEN))
    ask("repair off", SetRepair("", 1000))
    ask("repair on", SetRepair("", 0))
    ask("settings", ChangeSettings(default_replicas=3))
    ask("move a replica", WishReplica(Errand.MOVE, ShardId(5), homes[0], free))
    ask("cancel a wish", CancelWish(1))
    ask("pin a leader", SetLeader(ShardId(6), AFTER_TICKS, StoreId("")))
    hard, read = Policy(ZoneRule.HARD), Policy(learners=(LearnersIn("z1", 1),))
    ask("policy: zones", proposals.ChangeShard(ShardId(7), policy=hard))
    ask("policy: a learner", proposals.ChangeShard(ShardId(8), policy=read))
    ask("create a log", proposals.CreateShard(ShardId(0), "asked-for", 3))
    ask("delete a log", proposals.DeleteShard(ShardId(9), "log-9", force=True))
    ask("rebalance", Rebalance(replicas=True, leaders=True))
    ask("drain", SetStoreMode(others[1], StoreMode.DRAINING))
    ask("forget, refused", ForgetStore(others[1]))
    zone = [name for name in others if world.stores[name].zone == "z1" and name != others[1]]
    most = [ask("", SetStoreMode(name, StoreMode.DRAINING), 0) for name in zone]
    note("asked for: drain a zone, store by store, longest", max(most), "ms")
    world.run(AFTER_TICKS)
    note("asked for: drain a zone, ticks after, longest", _longest_tick(world), "ms")
    for name in (others[1], *zone):
        ask("", SetStoreMode(name, StoreMode.OPEN), 0)
    _until_whole(world)
    ask("rebalance after drains", Rebalance(replicas=True, leaders=True))
    ask("end of rebalance", Rebalance(replicas=True, leaders=True, stop=True))
    _until_whole(world)
    world.lose([others[2]])
    while not world.state.stores[others[2]].expired:
        world.run(1)
    ask("forget a lost store", ForgetStore(others[2], lost=True))
    _until_whole(world)
    del world.stores[others[2]]
    # A log that has to be in three zones is never whole again when one of them is lost.
    ask("", proposals.ChangeShard(ShardId(7), policy=Policy()), 0)


def crowded(version: int, note: Note) -> None:
    """A drain and a forgetting of a store with many replicas, and what follows."""
    world = World(CROWDED_STORES, 3, version)
    world.create(CROWDED_SHARDS)
    gc.collect()
    gc.freeze()
    keepers = {one.store_id for one in world.shards[HAKEEPER_SHARD].membership.members}
    drained, lost = [name for name in sorted(world.stores) if name not in keepers][:2]
    ask = _asking(world, note)
    note("crowded: replicas of the store that is drained", len(world.stores[drained].copies), "")
    ask("crowded: drain", SetStoreMode(drained, StoreMode.DRAINING))
    ask("crowded: open", SetStoreMode(drained, StoreMode.OPEN))
    _until_whole(world)
    note("crowded: replicas of the store that is lost", len(world.stores[lost].copies), "")
    world.lose([lost])
    while not world.state.stores[lost].expired:
        world.run(1)
    ask("crowded: forget", ForgetStore(lost, lost=True))


def _asking(world: World, note: Note) -> Callable[..., float]:
    def ask(what: str, asked: proposals.Proposal, ticks: int = AFTER_TICKS) -> float:
        world.spent.clear()
        world.propose("verb", asked, refusable=True)
        [seconds] = world.spent["verb"].seconds
        if what:
            note(f"asked for: {what}", 1e3 * seconds, "ms")
            world.run(ticks)
            note(f"asked for: {what}, ticks after, longest", _longest_tick(world), "ms")
        return 1e3 * seconds

    return ask


def _longest_tick(world: World) -> float:
    return 1e3 * max(world.spent["tick"].seconds)


def _until_whole(world: World) -> None:
    for _ in range(10_000):
        world.run(1)
        if not world.state.operators and not world.lost_voters():
            return
    raise AssertionError(f"{len(world.state.operators)} operators do not end")
