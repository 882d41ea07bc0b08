"""What tests of placement and balance share: states of stores in zones, and 0.1.0's choice."""

from __future__ import annotations

import random
from collections.abc import Sequence

from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.policy import Policy, ZoneRule
from logservice.hakeeper.commands.proposals import DirectoryReport, ReplicaReport
from logservice.hakeeper.commands.verbs import StoreMode
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.repair.placement import Placement, is_full
from logservice.hakeeper.repair.spread import Spread
from logservice.hakeeper.state import CHANGES_MEMBERSHIP, ShardState, State, StoreState
from logservice.hakeeper.stores.enrolment import eligible
from logservice.hakeeper.stores.health import settled, silent
from logservice.hakeeper.stores.holdings import forget
from logservice.hakeeper.stores.zones import zone_of
from logservice.ids import HAKEEPER_SHARD, Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.membership import Member

NOW, TIMEOUT = 10_000, 100
MIB = 1024 * 1024
CAUGHT_UP = Index(5000)


def store(
    name: str, zone: str = "", *, size_mib: int = 1000, used_mib: int = 0, host: str = ""
) -> StoreState:
    """A store that lives. Its only data directory has the number of its name as incarnation."""
    number = int(name.strip("s"))
    directory = DirectoryReport(Incarnation(number), used_mib * MIB, (size_mib - used_mib) * MIB)
    return StoreState(
        StoreId(name),
        host,
        f"{name}:1",
        f"{name}:2",
        (directory,),
        number,
        1,
        first_tick=0,
        last_tick=NOW,
        live_since=0,
        directories_tick=0,
        labels={"zone": zone} if zone else {},
    )


def cluster(*zones: str) -> State:
    """Stores s1, s2, ... in these zones, of a cluster at version 2 without a shard."""
    state = State(phase=Phase.RUNNING, tick=NOW, store_timeout_ticks=TIMEOUT, cluster_version=2)
    for number, zone in enumerate(zones, 1):
        state.stores[StoreId(f"s{number}")] = store(f"s{number}", zone)
    return state


def add_shard(
    state: State, stores: Sequence[str], policy: Policy | None = None, *, leader: int = 0
) -> ShardState:
    """A shard whose voters run on these stores, the one at position `leader` leads."""
    number = ShardId(max(state.shards, default=0) + 1)
    members = []
    for name in stores:
        incarnation = state.stores[StoreId(name)].directories[0].incarnation
        members.append(Member(ReplicaId(state.next_replica_id), StoreId(name), incarnation))
        state.next_replica_id += 1
    membership = initial_membership(members).encode()
    shard = ShardState(number, f"log-{number}", len(members), 0, membership, membership)
    shard.policy = policy or Policy()
    shard.started = [member.replica_id for member in members]
    state.shards[number] = shard
    forget(state)
    for position, member in enumerate(members):
        leads = position == leader
        others = [one.replica_id for one in members if one is not member]
        state.stores[member.store_id].replicas[number] = ReplicaReport(
            number,
            member.replica_id,
            member.incarnation,
            Index(1),
            membership,
            leads,
            4,
            members[leader].replica_id,
            committed_index=CAUGHT_UP,
            match=tuple((replica, CAUGHT_UP) for replica in others) if leads else (),
            recently_active=tuple(others) if leads else (),
        )
    return shard


def zones_of(state: State, stores: Sequence[str]) -> list[str]:
    return sorted(state.stores[StoreId(name)].labels.get("zone", "") for name in stores)


def labelled(dice: random.Random, state: State) -> State:
    """The state with zones, disks of different sizes and policies in it, some of them strange."""
    zones = dice.choice([["a", "b", "c"], ["a", "b"], ["a"], ["a", "b", "c", "d", ""]])
    for one in state.sorted_stores():
        zone = dice.choice(zones)
        one.labels = {"zone": zone} if zone else {}
        one.directories = tuple(
            DirectoryReport(
                found.incarnation,
                dice.randrange(2000) * MIB,
                dice.randrange(8000) * MIB,
                found.failed,
                full=dice.random() < 0.1,
            )
            for found in one.directories
        )
    for shard in state.sorted_shards():
        shard.policy = Policy(dice.choice(list(ZoneRule)), dice.choice(["", *zones]))
    return state


def chosen_by_0_1_0(
    state: State, shard: ShardState | None, count: int, leaving: StoreId | None
) -> list[StoreId]:
    """What release 0.1.0 chooses, told in its own way: sorted once, by the number of replicas."""
    load: dict[StoreId, int] = {}
    coming: set[StoreId] = set()
    for known in state.sorted_shards():
        for member in known.members.members:
            if known.members.contains(member.replica_id):
                load[member.store_id] = load.get(member.store_id, 0) + 1
    for operator in state.sorted_operators():
        if operator.kind in CHANGES_MEMBERSHIP and operator.replica != operator.old:
            load[operator.store] = load.get(operator.store, 0) + 1
            if shard is not None and operator.shard == shard.shard:
                coming.add(operator.store)
    used: set[StoreId] = set()
    if shard is not None:
        used = coming | {
            one.store_id for one in shard.members.members if shard.members.contains(one.replica_id)
        }
    hosts = {
        state.stores[name].host_label if name in state.stores else name for name in used - {leaving}
    }
    one_host = len({one.host_label for one in state.stores.values()}) <= 1

    def order(one: StoreState) -> tuple[bool, bool, int, StoreId]:
        full = all(found.full or found.failed for found in one.directories)
        return not settled(state, one), full, load.get(one.store, 0), one.store

    found: list[StoreId] = []
    for one in sorted(state.sorted_stores(), key=order):
        works = not all(directory.failed for directory in one.directories)
        if len(found) == count or silent(state, one.last_tick) or not works or one.store in used:
            continue
        if shard is not None:
            avoided = shard.avoid.get(one.store, 0) > state.tick
            if avoided or not settled(state, one):
                continue
            if shard.shard == HAKEEPER_SHARD and not eligible(state, one.store):
                continue
        if not one_host and one.host_label in hosts:
            continue
        found.append(one.store)
        hosts.add(one.host_label)
    return found


def sorted_anew(placement: Placement, state: State, spread: Spread) -> list[StoreId]:
    """The stores as placement's header tells the preference, all of them sorted."""

    def preference(name: StoreId) -> tuple[bool, bool, bool, int, int, StoreId]:
        store = state.stores[name]
        share = placement.load(name)
        if state.cluster_version >= 2:
            largest = max(placement.size(one.store) for one in placement.stores)
            share = (share + 1) * largest // placement.size(name)
        crowd = spread.crowd(zone_of(store))
        closed = store.mode is not StoreMode.OPEN
        return closed, not settled(state, store), is_full(store), crowd, share, name

    return sorted((store.store for store in placement.stores), key=preference)


def random_cluster(dice: random.Random) -> State:
    """A cluster in which nothing is lost, and everything may be in the wrong place."""
    zones = dice.choice([["a", "b", "c"], ["a", "b"], ["a"], ["a", "b", "c", "d"], ["a", ""], [""]])
    state = cluster(*(dice.choice(zones) for _ in range(dice.randrange(1, 9))))
    hosts = dice.choice([0, 0, 0, 1, 3, 5])
    for number, one in enumerate(state.sorted_stores()):
        size = dice.choice([1000, 1000, 1000, 2000, 4000])
        used = dice.randrange(size)
        full = dice.random() < 0.07
        (known,) = one.directories
        one.directories = (
            DirectoryReport(known.incarnation, used * MIB, (size - used) * MIB, full=full),
        )
        one.host = f"h{number % hosts}" if hosts else ""
        if dice.random() < 0.07:
            one.live_since = NOW - 1
        one.steady_since = dice.choice([0, 0, 0, NOW - 1])
    for _ in range(dice.randrange(16)):
        names = sorted(state.stores)
        dice.shuffle(names)
        taken: list[str] = []
        for name in names[: dice.choice([1, 3, 3, 3, 5])]:
            host = state.stores[name].host_label
            if hosts < 2 or host not in {state.stores[StoreId(one)].host_label for one in taken}:
                taken.append(name)
        policy = Policy(dice.choice(list(ZoneRule)), dice.choice(["", "", *zones]))
        add_shard(state, taken, policy, leader=dice.randrange(len(taken)))
    return state
