"""Holdings: what can be counted in the state, kept up to date instead of counted again.

Theory of operation. At 10 000 shards to look at everything takes half a second, and almost nothing
in it has changed since the last look. So three questions are answered from here, each by a set that
follows the state: which shards have a member on a store, how many replicas are where, and which
shards are *restless*. A shard is restless when a look at it could do something or say something:

    of itself    it is joint, has too few or too many voters, not the learners of its policy, two
                 memberships of one epoch, or a replica that may be abandoned or stands still
    a member     its store does not plainly report it: exactly this replica in exactly this working
                 data directory, not halted; or the store is silent, or is drained, or a data
                 directory of it that has a member is
    a stray      a store runs or stores a replica that the shard's membership does not have there

All other shards have all their members up, and all their voters; a look at one of them does nothing
(INV-HK-RESTLESS). That is a statement about the state as it is, not about what happened to it. So
the sets can be built from any state, and are no part of it: a replica that recovered from a
snapshot builds them again, and decides as all others do.

Whoever changes what they are made of says so (`touch`, `touch_store`). For proposals that is done
in one place (`rsm`), where a kind that is not known there makes them be built anew (`forget`).

INV-HK-RESTLESS: a look at a shard that is not restless changes nothing and says nothing.

INV-HK-HOLDINGS: what is kept is what would be built from the state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeVar

from logservice.hakeeper.commands.policy import UNLIMITED, ZoneRule
from logservice.hakeeper.commands.verbs import StoreMode
from logservice.hakeeper.state import ServiceState, ShardState, State, StoreState
from logservice.hakeeper.stores import learners
from logservice.hakeeper.stores.ascending import Ascending, place
from logservice.hakeeper.stores.health import silent
from logservice.hakeeper.stores.turns import stands_still, turn
from logservice.hakeeper.tombstones import is_deleted
from logservice.ids import Incarnation, ReplicaId, ShardId, StoreId
from logservice.membership import Member, Membership

KeyT = TypeVar("KeyT")

_NAME = "holdings"
"""The attribute of a `State` that is no field, and so in no snapshot."""

_SLICE = 256
"""Shards that are counted at a stretch, about 4 ms."""

_FEW = 1000
"""With more shards touched, to sort all restless ones anew is cheaper than to place each."""


class Holdings:
    """What follows one state. `known`: the shards that there are. `on`: those with a member on a
    store. `load`, `load_of`: the replicas of a store and of a data directory. `led_by_wish`: shards
    with a wish about the leader, `homing`: with a zone for it, `apart`: whose zone rule is hard,
    `limited`: with limits. `uneasy`: those that are restless of themselves or for a member,
    whatever their stores do; `short`: those among them that are not whole: joint, or without a
    voter that they should have. `turns`: the shards by their `turn`. `led`: the shards that a store
    says to lead. `replaying`: the services that replay a shard. `lagging`: services that have
    stopped to replay one. `ending`: deleted logs of which a store may have a replica. `named`: the
    living logs of a name, in their order.
    """

    def __init__(self) -> None:
        """Nothing is counted yet (`count`)."""
        self.on: dict[StoreId, set[ShardId]] = {}
        self.load: dict[StoreId, int] = {}
        self.load_of: dict[Incarnation, int] = {}
        self.led_by_wish: set[ShardId] = set()
        self.homing = Ascending()
        self.known = Ascending()
        self.apart: set[ShardId] = set()
        self.limited: set[ShardId] = set()
        self.uneasy: set[ShardId] = set()
        self.short: set[ShardId] = set()
        self.strays: dict[ShardId, set[StoreId]] = {}
        self.turns: dict[int, set[ShardId]] = {}
        self.led: dict[StoreId, set[ShardId]] = {}
        self.replaying: dict[ShardId, set[str]] = {}
        self.lagging: set[str] = set()
        self.ending: set[ShardId] = set()
        self.named: dict[str, tuple[ShardId, ...]] = {}
        self._names: dict[ShardId, str] = {}
        self._members: dict[ShardId, tuple[Member, ...]] = {}
        self._sorted: list[ShardId] | None = None
        """The restless shards as they were when that was asked last; it is never changed in place,
        because who asked may still look at it."""
        self._touched: set[ShardId] = set()
        """What may have become restless since then, or have ceased to be."""
        self._away: frozenset[StoreId] = frozenset()

    def count(self, state: State) -> Iterator[None]:
        """Count everything once, in slices. The state does not change meanwhile."""
        for service in state.services.values():
            self.touch_service(service, ())
        reporters: dict[ShardId, set[StoreId]] = {}
        for store in state.stores.values():
            for shard_id in reported(store):
                reporters.setdefault(shard_id, set()).add(store.store)
        for number, shard_id in enumerate(state.shards.keys() | reporters.keys(), 1):
            self.touch(state, shard_id, reporters.get(shard_id, ()))
            if number % _SLICE == 0:
                yield

    def touch(self, state: State, shard_id: ShardId, reporters: Iterable[StoreId] = ()) -> None:
        """Something about the shard changed. `reporters`: stores that report it since then."""
        before = self._members.pop(shard_id, ())
        asked = {*self.strays.pop(shard_id, ()), *reporters}
        for member in before:
            self._count(shard_id, member, -1)
            asked.add(member.store_id)
        shard = state.shards.get(shard_id)
        members = shard.members if shard is not None else Membership()
        after = tuple(one for one in members.members if members.contains(one.replica_id))
        for member in after:
            self._count(shard_id, member, 1)
            asked.add(member.store_id)
        if after:
            self._members[shard_id] = after
        for name in asked:
            self._lead(state.stores.get(name), name, shard_id)
        strays = {
            store.store
            for name in asked
            if (store := state.stores.get(name)) is not None
            and _strayed(state, store, shard_id, shard)
        }
        if strays:
            self.strays[shard_id] = strays
        strange = [] if shard is None else [one for one in after if not _plain(state, shard, one)]
        restless = shard is not None and (bool(strange) or own_trouble(state, shard))
        _keep(self.uneasy, shard_id, restless)
        _keep(self.short, shard_id, shard is not None and restless and _lacks(shard, strange))
        if shard is not None:
            self.turns.setdefault(turn(shard_id), set()).add(shard_id)
        else:
            self.turns.get(turn(shard_id), set()).discard(shard_id)
        wished = shard is not None and shard.leader_wish is not None
        _keep(self.led_by_wish, shard_id, wished)
        self.homing.keep(shard_id, shard is not None and bool(shard.policy.leader_zone))
        self.known.keep(shard_id, shard is not None)
        hard = shard is not None and shard.policy.zone_rule is ZoneRule.HARD
        _keep(self.apart, shard_id, hard)
        limits = shard.policy.limits if shard is not None and not shard.deleting_tick else UNLIMITED
        _keep(self.limited, shard_id, limits != UNLIMITED)
        _keep(self.ending, shard_id, shard is not None and bool(shard.deleting_tick))
        self._name(shard_id, shard.name if shard is not None and not shard.deleting_tick else None)
        self._touched.add(shard_id)

    def _name(self, shard: ShardId, name: str | None) -> None:
        before = self._names.pop(shard, None)
        if name is not None:
            self._names[shard] = name
        if name == before:
            return
        if before is not None:
            self.named[before] = tuple(one for one in self.named[before] if one != shard)
            if not self.named[before]:
                del self.named[before]
        if name is not None:
            self.named[name] = tuple(sorted((*self.named.get(name, ()), shard)))

    def touch_service(self, service: ServiceState, before: Collection[ShardId]) -> None:
        """The service replays other logs now than those, or has stopped or gone on."""
        name = service.service
        if service.replayed.keys() != set(before):
            for shard in before:
                self._replays_no_more(name, shard)
            for shard in service.replayed:
                self.replaying.setdefault(shard, set()).add(name)
        lags = any(row.behind_since for row in service.replayed.values())
        _keep(self.lagging, name, lags)

    def forget_service(self, service: ServiceState) -> None:
        """The service is gone."""
        self.lagging.discard(service.service)
        for shard in service.replayed:
            self._replays_no_more(service.service, shard)

    def _replays_no_more(self, name: str, shard: ShardId) -> None:
        services = self.replaying[shard]
        services.discard(name)
        if not services:
            del self.replaying[shard]

    def forget_store(self, state: State, name: StoreId) -> None:
        """The store is not known any more. What memberships say of it stays. To touch each shard
        that it had would take 20 ms for a thousand.
        """
        here = {one for one in self.on.get(name, ()) if _is_placed(state.shards[one])}
        strays = [one for one, stores in self.strays.items() if name in stores]
        self.uneasy |= here
        self.short |= {one for one in here if votes_on(state.shards[one], name)}
        for shard_id in strays:
            self.strays[shard_id].discard(name)
            if not self.strays[shard_id]:
                del self.strays[shard_id]
        self.led.pop(name, None)
        self._touched |= here
        self._touched.update(strays)

    def copied(self) -> Holdings:
        """The same, which follows another state."""
        other = Holdings()
        for name, known in vars(self).items():
            setattr(other, name, _copied(known))
        return other

    def members_on(self, store: StoreId) -> list[ShardId]:
        """The shards that have a member on the store, in their order."""
        return sorted(self.on.get(store, ()))

    def restless(self, state: State) -> list[ShardId]:
        """The shards that are worth a look, in their order."""
        away = frozenset(
            store.store
            for store in state.stores.values()
            if store.mode is StoreMode.DRAINING
            or silent(state, store.last_tick)
            or any(one in self.load_of for one in store.drained)
        )
        if self._sorted is None or away != self._away or len(self._touched) > _FEW:
            found = self.uneasy | self.strays.keys()
            for name in away:
                found |= self.on.get(name, set())
            self._sorted, self._away = sorted(found), away
        elif self._touched:
            # To find and sort them all takes 2 ms in each tick while a zone is repaired.
            self._sorted = self._sorted.copy()
            for shard_id in self._touched:
                place(self._sorted, shard_id, self._is_restless(shard_id))
        self._touched.clear()
        return self._sorted

    def _is_restless(self, shard_id: ShardId) -> bool:
        if shard_id in self.uneasy or shard_id in self.strays:
            return True
        return any(one.store_id in self._away for one in self._members.get(shard_id, ()))

    def _lead(self, store: StoreState | None, name: StoreId, shard: ShardId) -> None:
        report = store.replicas.get(shard) if store is not None else None
        if report is not None and report.leads and not report.halted:
            self.led.setdefault(name, set()).add(shard)
        elif name in self.led:
            self.led[name].discard(shard)

    def _count(self, shard: ShardId, member: Member, by: int) -> None:
        store, incarnation = member.store_id, member.incarnation
        self.load[store] = self.load.get(store, 0) + by
        self.load_of[incarnation] = self.load_of.get(incarnation, 0) + by
        if not self.load_of[incarnation]:
            del self.load_of[incarnation]
        here = self.on.setdefault(store, set())
        if by > 0:
            here.add(shard)
        elif not self.load[store]:
            del self.load[store], self.on[store]
        else:
            here.discard(shard)


def holdings(state: State) -> Holdings:
    """The holdings of the state; they are built when they are first asked for."""
    found: Holdings | None = state.__dict__.get(_NAME)
    if found is None:
        found = built(state)
        state.__dict__[_NAME] = found
    return found


def built(state: State) -> Holdings:
    """What would be kept if it were built now."""
    found = Holdings()
    for _ in found.count(state):
        pass
    return found


def build_in_slices(state: State) -> Iterator[None]:
    """Build what `holdings` gives. The state does not change meanwhile."""
    found = Holdings()
    yield from found.count(state)
    state.__dict__[_NAME] = found


def lend(state: State, other: State) -> None:
    """`other` differs from `state` in nothing that is counted, and does not change: it uses the
    same holdings.
    """
    other.__dict__[_NAME] = holdings(state)


def touch(state: State, shard: ShardId, reporters: Iterable[StoreId] = ()) -> None:
    """The shard changed, or what these stores report of it."""
    found: Holdings | None = state.__dict__.get(_NAME)
    if found is not None:
        found.touch(state, shard, reporters)


def touch_service(state: State, service: ServiceState, before: Collection[ShardId]) -> None:
    """See `Holdings.touch_service`."""
    found: Holdings | None = state.__dict__.get(_NAME)
    if found is not None:
        found.touch_service(service, before)


def forget_service(state: State, service: ServiceState) -> None:
    """See `Holdings.forget_service`."""
    found: Holdings | None = state.__dict__.get(_NAME)
    if found is not None:
        found.forget_service(service)


def touch_store(state: State, store: StoreId) -> None:
    """The store came, was forgotten, or has other data directories: all that it has or reports
    changed.
    """
    found: Holdings | None = state.__dict__.get(_NAME)
    if found is None:
        return
    known = state.stores.get(store)
    if known is None:
        found.forget_store(state, store)
        return
    reports = reported(known)
    strays = {shard for shard, stores in found.strays.items() if store in stores}
    for shard in reports | strays | found.on.get(store, set()) | found.led.get(store, set()):
        found.touch(state, shard, (store,))


def give(state: State, other: State) -> None:
    """`other` is a copy of `state` that goes its own way: it gets holdings of its own."""
    other.__dict__[_NAME] = holdings(state).copied()


def forget(state: State) -> None:
    """Anything may have changed."""
    state.__dict__.pop(_NAME, None)


def own_trouble(state: State, shard: ShardState) -> bool:
    """Whether a look could have something to do for the shard's own sake, however its members are.
    A checker that looks at something new of a shard says so here.
    """
    if not _is_placed(shard):
        return False
    members = shard.members
    return bool(
        members.joint
        or len(members.voters) != shard.wanted
        or not learners.settled(state, shard)
        or shard.abandoned
        or shard.disagreement
        or any(members.member(voter) is None for voter in members.voters)
        or (shard.behind and stands_still(state, shard))
    )


def votes_on(shard: ShardState, store: StoreId) -> bool:
    """Whether a voter of the shard is on the store."""
    members = shard.members
    return any(
        one.store_id == store and one.replica_id in members.voters for one in members.members
    )


def _is_placed(shard: ShardState) -> bool:
    return bool(shard.initial) and not shard.deleting_tick


def _lacks(shard: ShardState, strange: Collection[Member]) -> bool:
    """Whether the shard is not whole, although none of its stores is silent. `strange`: its members
    that are not reported as they should be.
    """
    if not _is_placed(shard):
        return False
    members = shard.members
    return (
        members.joint
        or len(members.voters) != shard.wanted
        or any(members.member(voter) is None for voter in members.voters)
        or any(one.replica_id in members.voters for one in strange)
    )


def reported(store: StoreState) -> set[ShardId]:
    """The shards of which the store runs or stores a replica."""
    return {*store.replicas, *(shard for shard, _ in store.stored)}


def _copied(known: Any) -> Any:
    if isinstance(known, dict):
        return {key: set(one) if isinstance(one, set) else one for key, one in known.items()}
    return type(known)(known) if isinstance(known, set | Ascending) else known


def _keep(among: set[KeyT], one: KeyT, wanted: bool) -> None:
    (among.add if wanted else among.discard)(one)


def _plain(state: State, shard: ShardState, member: Member) -> bool:
    """Whether the member's store reports it as it should be. Then it is ALIVE while the store is
    heard from.
    """
    if not shard.initial or shard.deleting_tick:
        return True
    store = state.stores.get(member.store_id)
    report = store.replicas.get(shard.shard) if store is not None else None
    return (
        store is not None
        and report is not None
        and report.replica == member.replica_id
        and report.incarnation == member.incarnation
        and not report.halted
        and store.uses(member.incarnation)
    )


def _strayed(state: State, store: StoreState, shard_id: ShardId, shard: ShardState | None) -> bool:
    """Whether the store runs or stores something of the shard that is no member there."""
    report = store.replicas.get(shard_id)
    if report is not None and not is_deleted(state, shard_id):
        if shard is None or not shard.initial:
            return True
        if not _is_bound(shard, report.replica, store, report.incarnation):
            return True
    if shard is None or not shard.initial or shard.deleting_tick:
        return False
    return any(
        stored == shard_id and not shard.members.contains(replica)
        for stored, replica in store.stored
    )


def _is_bound(
    shard: ShardState, replica: ReplicaId, store: StoreState, incarnation: Incarnation
) -> bool:
    member = shard.members.member(replica)
    return (
        shard.members.contains(replica)
        and member is not None
        and (member.store_id, member.incarnation) == (store.store, incarnation)
    )
