"""Impact: what it would cost if these stores were away, together and for good.

Theory of operation. A copy of the state in which the stores are silent is judged by what repairs
are judged by: health and tolerance say which shards would stop, and the planner that chooses stores
for repairs says which replicas would find no new place. The state itself is not changed. So the
answer is what HAKeeper would do, and not another opinion about it.

    quorum      the shard would have no majority, or has none now
    capacity    no store would fit for a voter or a standing learner, or the bytes would not fit
    zones       the voters of the shard would be in fewer zones than now
    leader      a person wants the leader of the shard to be there

The bytes of one replica are not reported, so the sum over the stores counts. Its cost grows with
the number of replicas on the stores, so it runs when a person asks, in slices, and never in a pass.

A drain is judged at a stretch, because every replica of shard 0 has to come to the same answer at
the same entry. So only logs that may lack something are judged one by one (`ample`), and at most
HAKEEPER_JUDGED_PER_VERB_MAX of them: if nothing is wrong with those, the drain begins, and flags
say what waits of the others. Whoever wants to know that before asks for the impact.

INV-HK-JUDGED: a verb chooses places for no more logs than the bound says.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass

import msgspec

from logservice import bounds
from logservice.hakeeper.repair.drain import members_on
from logservice.hakeeper.repair.placement import Placement
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores import learners, standing
from logservice.hakeeper.stores.health import Health, healths, live_store, tolerance
from logservice.hakeeper.stores.holdings import lend
from logservice.hakeeper.stores.zones import NO_ZONE, zone_of
from logservice.hakeeper.wishes import named_store
from logservice.hakeeper.wishes.ample import Ample
from logservice.ids import HAKEEPER_SHARD, Incarnation, ReplicaId, ShardId, StoreId
from logservice.membership import Member
from logservice.sliced import Sliced

_SLICE = 16
"""Shards that are judged at a stretch, in less than a millisecond."""

QUORUM, CAPACITY, ZONES, LEADER = "quorum", "capacity", "zones", "leader"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that would be worse. `shard` is None when it is about the stores as a whole."""

    kind: str
    shard: ShardId | None
    text: str


@dataclass(frozen=True, slots=True)
class Impact:
    """The answer. `replicas` and `leaders` are those on the stores now."""

    shards: int
    replicas: int
    leaders: int
    findings: tuple[Finding, ...]


def of(state: State, stores: Collection[StoreId]) -> Impact:
    """What it would cost if the stores were away. A store that is not known is a finding, too: a
    slip of the pen must not read as "it costs nothing".
    """
    return Sliced(in_slices(state, stores)).at_a_stretch()


def of_drain(state: State, store: StoreId, incarnation: Incarnation | None = None) -> list[Finding]:
    """What would wait if the store, or one data directory of it, were drained: it goes on until all
    replicas have left, so no quorum is at stake. A replica never goes to another directory of its
    store, so both are judged as if the store were away.
    """
    away = frozenset((store,))
    after = _without(state, away)
    placement = Placement(after)
    ample = Ample(after, placement)
    findings: list[Finding] = []
    judged = 0
    for shard, member in members_on(state, store):
        if incarnation not in (None, member.incarnation) or ample.has_room(shard, member):
            continue
        if judged == bounds.HAKEEPER_JUDGED_PER_VERB_MAX:
            break
        judged += 1
        findings += _places(state, placement, shard, [member], {member.replica_id})
    return findings + _bytes(state, away, incarnation)


def in_slices(state: State, stores: Collection[StoreId]) -> Generator[None, None, Impact]:
    """The answer of `of`, at the end. The state may change meanwhile: each shard is judged as it is
    when its turn comes.
    """
    away = frozenset(stores)
    after = _without(state, away)
    placement = Placement(after)
    touched: dict[ShardId, list[Member]] = {}
    leaders = 0
    for store in sorted(away):
        known = state.stores.get(store)
        for shard, member in members_on(state, store):
            touched.setdefault(shard.shard, []).append(member)
            report = known.replicas.get(shard.shard) if known is not None else None
            leaders += report is not None and report.leads
        yield
    findings = [
        Finding(UNKNOWN, None, named_store.no_store(state, store))
        for store in sorted(away - set(state.stores))
    ]
    for number, shard_id in enumerate(sorted(touched), 1):
        if shard_id in state.shards:
            shard, leaving = state.shards[shard_id], touched[shard_id]
            gone = {member.replica_id for member in leaving}
            findings += _quorum(state, shard, gone)
            findings += _places(state, placement, shard, leaving, gone)
        if number % _SLICE == 0:
            yield
    findings += _bytes(state, away)
    replicas = sum(len(members) for members in touched.values())
    return Impact(len(touched), replicas, leaders, tuple(findings))


def closing(state: State, store: StoreId) -> list[Finding]:
    """What it would cost if the store took no new replicas any more."""
    others = [
        known.host_label
        for known in state.sorted_stores()
        if known.store != store
        and live_store(state, known.store) is not None
        and standing.takes_replicas(state, known.store)
    ]
    wanted = max((shard.wanted for shard in state.shards.values()), default=0)
    if len(others) >= wanted:
        return []
    text = f"{len(others)} stores would be left that take replicas, and {wanted} are wanted"
    return [Finding(CAPACITY, None, text)]


def _without(state: State, away: Collection[StoreId]) -> State:
    """The state in which those stores have been silent for long enough."""
    long_ago = state.tick - state.store_timeout_ticks - 1
    stores = {
        name: msgspec.structs.replace(store, last_tick=long_ago) if name in away else store
        for name, store in state.stores.items()
    }
    after = msgspec.structs.replace(state, stores=stores)
    lend(state, after)
    return after


def _quorum(state: State, shard: ShardState, gone: Collection[ReplicaId]) -> list[Finding]:
    members = shard.members
    up = {one for one, found in healths(state, shard).items() if found is Health.ALIVE}
    if tolerance(members, up) < 0:
        text = f"shard {shard.shard} has no live majority now"
        return [Finding(QUORUM, shard.shard, text)]
    if tolerance(members, up.difference(gone)) < 0:
        left = len(set(members.voters) & up.difference(gone))
        text = f"shard {shard.shard} would stop: {left} of {len(members.voters)} voters left"
        return [Finding(QUORUM, shard.shard, text)]
    return []


def _places(
    state: State,
    placement: Placement,
    shard: ShardState,
    leaving: list[Member],
    gone: Collection[ReplicaId],
) -> list[Finding]:
    """What a shard would lack that has to do without its replicas in `gone`, which are `leaving`.
    `placement`: without their stores.
    """
    members, findings = shard.members, []
    needed = shard.wanted - len(set(members.voters).difference(gone))
    choice = placement.choose(shard, needed, leaving[0].store_id) if needed > 0 else ()
    for store in choice:
        placement.take(shard.shard, store.store, placement.directory(store))
    if len(choice) < needed:
        text = f"shard {shard.shard} would lack {needed - len(choice)} of {shard.wanted} replicas"
        if shard.shard == HAKEEPER_SHARD:
            spare = placement.admissible(shard, leaving[0].store_id)
            text += f"; let {spare} have one: logctl admit {spare} --hakeeper" if spare else ""
        findings.append(Finding(CAPACITY, shard.shard, text))
    findings += _lacking_learners(state, placement, shard, gone)
    before = zones(state, shard, frozenset())
    after = zones(state, shard, gone) | {zone_of(store) for store in choice}
    if len(after) < len(before):
        text = f"shard {shard.shard} would be in {len(after)} zones, now in {len(before)}"
        findings.append(Finding(ZONES, shard.shard, text))
    wish = standing.leader_wish(state, shard)
    if wish is not None and any(member.store_id == wish.store for member in leaving):
        text = f"the leader of shard {shard.shard} shall be on {wish.store}"
        findings.append(
            Finding(LEADER, shard.shard, f"{text} for {standing.left(state, wish.until)}")
        )
    return findings


def _lacking_learners(
    state: State, placement: Placement, shard: ShardState, gone: Collection[ReplicaId]
) -> list[Finding]:
    """The learners that leave and would find no new place. `placement`: without the stores."""
    there = learners.standing(state, shard)
    left = [one for one in there if one.replica_id not in gone]
    if len(left) == len(there):
        return []
    findings = []
    for zone in learners.match(state, shard, left).lacking:
        store = placement.choose_learner(shard, zone)
        if store is not None:
            placement.learn(shard.shard, store.store, placement.directory(store))
            continue
        where = f" in {zone}" if zone else ""
        text = f"shard {shard.shard} would lack a learner{where}"
        findings.append(Finding(CAPACITY, shard.shard, text))
    return findings


def zones(state: State, shard: ShardState, gone: Collection[ReplicaId]) -> set[str]:
    """The zones of the shard's voters, those in `gone` left out."""
    found = set()
    for member in shard.members.members:
        store = state.stores.get(member.store_id)
        if member.replica_id in shard.members.voters and member.replica_id not in gone:
            found.add(zone_of(store) if store is not None else NO_ZONE)
    return found


def _bytes(
    state: State, away: Collection[StoreId], only: Incarnation | None = None
) -> list[Finding]:
    """`only`: the one data directory that counts of those stores."""
    needed = free = 0
    for store in state.sorted_stores():
        for directory in store.directories:
            if store.store in away and only not in (None, directory.incarnation):
                continue
            if store.store in away:
                needed += directory.used_bytes if store.replicas else 0
            elif live_store(state, store.store) is not None and not directory.failed:
                free += directory.free_bytes
    if needed <= free:
        return []
    where = "on the stores" if only is None else "in the directory"
    text = f"{needed} bytes are {where}, and {free} are free on the others"
    return [Finding(CAPACITY, None, text)]
