"""Checkers: which repairs to begin, and which flags to raise.

Theory of operation. A checker looks at the state and returns findings: operators to start, and
flags for people. It decides by exact (shard, replica, incarnation). Per shard at most one operator
that changes the membership is under way. Shard 0 is treated like every other shard, and is looked
at first.

    a voter is LOST or HALTED   more voters than wanted         REMOVE it
                                a spare store                   REPLACE it there
                                a standing learner that may
                                have its place                  REPLACE it by that one
                                none, but its own store lives
                                without its data (directory),
                                or it is HALTED                 REPLACE it in place, unless it may
                                                                come back
                                none at all                     flag and wait
    more voters than wanted     all of them help                REMOVE one (`surplus`)
    fewer voters than wanted    a spare store, or a learner     ADD
    no live majority            nothing can be changed          flag: a person must look
    a member ALIVE, behind      it does not move                flag (`standstill`)
    a member MISSING            its store is live               START
    a replica in no membership  its store is live               KILL

What people wish of stores, replicas and leaders comes after that, in files of its own (`wishes`);
they begin their operators by `move` and `lead`.

A replacement in place is one change that swaps a voter that cannot help for an empty one on the
same store. To remove the old voter first and to add one later would leave the shard with fewer
voters for as long as the store is away, and it would need each of them (simulator, seed 301: the
next lost disk ended the shard).

A voter in a failed directory is waited for, because the directory may work again after a restart of
its store. Its successor on the same store can begin only when the old one is removed, so until then
both may be unable to vote, and a second voter that fails in that time would stop the shard for good
(simulator, short seeds 2300261 and 88000042). Restarts take seconds. After a minute the directory
is most likely broken, and then a shard that stays short of a voter is worse than the swap, as long
as all others are well.

A replica is killed only if the membership that lacks it is newer than the replica's own, or says
that the id was removed. A replica is never touched when it is listed, when an operator is bringing
it, when its store is expired, or when its shard is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from logservice import bounds
from logservice.hakeeper import feed
from logservice.hakeeper.commands.proposals import ReplicaReport
from logservice.hakeeper.commands.verbs import Errand
from logservice.hakeeper.repair import standstill, surplus
from logservice.hakeeper.repair.bootstrap import allocate_replica_id
from logservice.hakeeper.repair.placement import Placement
from logservice.hakeeper.repair.site import takes_another
from logservice.hakeeper.state import (
    CHANGES_MEMBERSHIP,
    Cause,
    Operator,
    Repair,
    ShardState,
    State,
    StoreState,
)
from logservice.hakeeper.stores import learners, standing
from logservice.hakeeper.stores.health import (
    REPLACEABLE,
    Health,
    healths,
    keeping_up,
    live_store,
    silent,
    tolerance,
)
from logservice.hakeeper.stores.holdings import holdings, touch
from logservice.hakeeper.stores.recovered import is_older
from logservice.hakeeper.tombstones import is_deleted
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, Incarnation, ReplicaId, ShardId, StoreId
from logservice.membership import Member

_NO_DIRECTORY = Incarnation(0)
"""The incarnation of operators that bring no replica: a replica id is enough to remove one."""

_VERBS = 2
"""From this cluster version on people wish for stores, replicas and leaders."""


class Checkers:
    """One pass over one state. `found`: new operators, which are in the state already. `flags`:
    texts for people.
    """

    def __init__(self, state: State) -> None:
        """Index the operators under way."""
        self.state = state
        self._lazy_placement: Placement | None = None
        self.found: list[Operator] = []
        self.flags: list[str] = []
        self._changing: set[ShardId] = set()
        self._handing_over: set[ShardId] = set()
        self._changes = 0
        self._most_changes = most_changes(state)
        self._errands = 0
        self._waits = False
        self._busy: set[tuple[Repair, ShardId, ReplicaId, StoreId]] = set()
        self._arriving: set[tuple[ShardId, ReplicaId]] = set()
        for operator in state.sorted_operators():
            self._note(operator)

    def check_starts(self) -> None:
        """START what is MISSING. Nothing else may be done before the cluster runs.

        Each pass asks, and a first start may make thousands of shards: so only those are looked at
        that may lack a replica (INV-HK-RESTLESS), and only while one more START may begin.
        """
        shards, restless = self.state.shards, holdings(self.state).restless(self.state)
        for shard in self._placed(shards[one] for one in restless if one in shards):
            if not self._room_for_errand(shard):
                break
            self._starts(shard, healths(self.state, shard))

    def check_all(self) -> None:
        """Run every checker, for shard 0 first. From cluster version 2 on `looks` does that."""
        observes = self.state.tick % bounds.HAKEEPER_IDLE_CHECK_TICKS == 0
        for shard in self._placed(self.state.sorted_shards()):
            found = healths(self.state, shard)
            self._voters(shard, found)
            self._starts(shard, found)
            if observes:
                standstill.observe(self.state, shard)
            if shard.behind:
                self.flags += standstill.flags(self.state, shard, found)
            if shard.disagreement:
                self.flags.append(f"shard {shard.shard}: {shard.disagreement} of the same epoch")
        for store in self.state.sorted_stores():
            if live_store(self.state, store.store) is not None:
                self._zombies(store)

    def look(self, shard_id: ShardId) -> list[str]:
        """Look at one shard, and at what is stray of it, from cluster version 2 on. The answer is
        what there is to say.
        """
        state = self.state
        others, self.flags, self._waits = self.flags, [], False
        shard = state.shards.get(shard_id)
        if shard is not None and shard.initial and not shard.deleting_tick:
            found = healths(state, shard)
            self._voters(shard, found)
            self._starts(shard, found)
            if shard.behind:
                self.flags += standstill.flags(state, shard, found)
            if shard.disagreement:
                self.flags.append(f"shard {shard.shard}: {shard.disagreement} of the same epoch")
        for name in sorted(holdings(state).strays.get(shard_id, ())):
            store = live_store(state, name)
            if store is not None:
                self._stray(store, shard_id)
        said, self.flags = self.flags, others
        if self._waits:
            # It was not asked where a replica could go. What was said of that still holds.
            said = [*state.noted.get(shard_id, ()), *said]
        return list(dict.fromkeys(said))

    @property
    def choices(self) -> int:
        """How often a store was chosen in this pass."""
        return self._lazy_placement.choices if self._lazy_placement is not None else 0

    @property
    def placement(self) -> Placement:
        """The choices of this pass."""
        # Counting every store's load takes as long as the rest of an idle pass.
        if self._lazy_placement is None:
            self._lazy_placement = Placement(self.state)
        return self._lazy_placement

    def _placed(self, shards: Iterable[ShardState]) -> Iterator[ShardState]:
        return (shard for shard in shards if shard.initial and not shard.deleting_tick)

    def _note(self, operator: Operator) -> None:
        if operator.kind in CHANGES_MEMBERSHIP:
            self._changing.add(operator.shard)
            self._changes += 1
            self._arriving.add((operator.shard, operator.replica))
        if operator.kind is Repair.LEAD:
            self._handing_over.add(operator.shard)
        if operator.kind in (Repair.START, Repair.KILL) and operator.shard != HAKEEPER_SHARD:
            self._errands += 1
        self._busy.add((operator.kind, operator.shard, operator.replica, operator.store))

    def _begin(
        self,
        kind: Repair,
        shard: ShardState,
        replica: ReplicaId,
        old: ReplicaId,
        store: StoreId,
        incarnation: Incarnation = _NO_DIRECTORY,
        cause: Cause = Cause.REPAIR,
        wish: int = 0,
        *,
        promotes: bool = False,
        witness: bool = False,
    ) -> None:
        operator = Operator(
            self.state.next_operator_id,
            kind,
            shard.shard,
            replica,
            old,
            store,
            incarnation,
            self.state.tick,
            cause=cause,
            wish=wish,
            promotes=promotes,
            witness=witness,
        )
        self.state.next_operator_id += 1
        self.state.operators[operator.id] = operator
        feed.operator_begun(self.state, operator)
        self._note(operator)
        self.found.append(operator)

    # --- voters ---------------------------------------------------------------------------------

    def _voters(self, shard: ShardState, found: Mapping[ReplicaId, Health]) -> None:
        members = shard.members
        up = [replica for replica, health in found.items() if health is Health.ALIVE]
        lost = [voter for voter in members.voters if found[voter] in REPLACEABLE]
        lost = [voter for voter in lost if not standing.repair_off(self.state, _home(shard, voter))]
        if (lost or len(members.voters) < shard.wanted) and tolerance(members, up) < 0:
            self.flags.append(f"shard {shard.shard}: no live majority")
            return
        if shard.shard in self._changing or members.joint:
            return
        if self._orphan(shard):
            return
        if self.state.cluster_version >= _VERBS and not self.room(shard):
            self._waits = True
            return
        if len(members.voters) > shard.wanted:
            if lost:
                self.remove(shard, lost[0])
            elif self.state.cluster_version >= _VERBS:
                self.remove(shard, surplus.choose(self.state, shard, found))
            else:
                self.flags.append(f"shard {shard.shard}: more voters than wanted")
        elif lost:
            self._replace(shard, lost[0], found[lost[0]])
        elif len(members.voters) < shard.wanted and not standing.repair_off(self.state, None):
            self._add(shard)

    def _orphan(self, shard: ShardState) -> bool:
        """Remove a learner whose operator was given up while its addition was under way."""
        members = shard.members
        for replica, epoch in sorted(shard.abandoned.items()):
            if replica in members.learners:
                self.remove(shard, replica)
                return True
            if epoch < members.change_epoch:
                del shard.abandoned[replica]
                touch(self.state, shard.shard)
        return False

    def remove(self, shard: ShardState, old: ReplicaId) -> None:
        """Begin to remove a member, if there is room for one more change."""
        if self.room(shard):
            member = shard.members.member(old)
            store = member.store_id if member is not None else StoreId("")
            self._begin(Repair.REMOVE, shard, old, old, store)

    def _add(self, shard: ShardState) -> None:
        """Bring one more voter: to where a person wishes it, if it fits there, else to any store
        that fits.
        """
        wish = standing.wished(self.state, shard.shard, Errand.ADD)
        store = live_store(self.state, wish.target) if wish is not None else None
        if wish is None or store is None or self.placement.refusal(shard, store, None):
            if self._arrive(shard, Repair.ADD, NO_REPLICA, None):
                return
            if not self._promote(shard, Repair.ADD, NO_REPLICA, None):
                verb = self._verb(shard, None)
                self.flags.append(f"shard {shard.shard}: no spare store for another replica{verb}")
        else:
            self._bring(shard, Repair.ADD, NO_REPLICA, store, Cause.WISH, wish.id)

    def _replace(self, shard: ShardState, old: ReplicaId, health: Health) -> None:
        member = shard.members.member(old)
        where = member.store_id if member is not None else None
        if self._arrive(shard, Repair.REPLACE, old, where):
            return
        if self._promote(shard, Repair.REPLACE, old, where) or member is None:
            return
        store = live_store(self.state, member.store_id)
        gone = store is not None and (not store.uses(member.incarnation) or old in shard.lost)
        if (
            store is None
            or not (gone or health is Health.HALTED)
            or self._may_come_back(shard, member, store)
            or not takes_another(self.state, shard, store)
        ):
            verb = self._verb(shard, where)
            self.flags.append(f"shard {shard.shard}: no spare store to replace replica {old}{verb}")
            return
        self._bring(shard, Repair.REPLACE, old, store)

    def _may_come_back(self, shard: ShardState, member: Member, store: StoreState) -> bool:
        """Whether a replica in a failed directory is waited for: the directory may work again when
        the store is restarted.

        A replica of shard 0 is never swapped in place: if another one failed before its successor
        runs, no HAKeeper would be left to start the successor. Every other one is, when it has
        waited for HAKEEPER_FAILED_DIRECTORY_TICKS and all other voters are well; at cluster version
        1 it does not wait.
        """
        directory = store.directory(member.incarnation)
        if directory is None or not directory.failed:
            return False
        if shard.shard == HAKEEPER_SHARD or self.state.cluster_version < _VERBS:
            return shard.shard == HAKEEPER_SHARD
        since = store.failed_since.get(member.incarnation, self.state.tick)
        if since + bounds.HAKEEPER_FAILED_DIRECTORY_TICKS > self.state.tick:
            return True
        return not {*shard.members.voters} - {member.replica_id} <= keeping_up(self.state, shard)

    def _arrive(
        self, shard: ShardState, kind: Repair, old: ReplicaId, leaving: StoreId | None
    ) -> bool:
        """Begin to bring a replica to a spare store; False when there is no such store."""
        choice = self.placement.choose(shard, 1, leaving)
        if choice:
            self._bring(shard, kind, old, choice[0])
        return bool(choice)

    def _promote(
        self, shard: ShardState, kind: Repair, old: ReplicaId, leaving: StoreId | None
    ) -> bool:
        """Begin to make a voter of a standing learner that keeps up; False when there is none.

        No other store could take the voter, so the learner is in its place: a log can do without a
        read replica, and not without a voter. A witness's place is not for it: the log would have
        more records to keep in step than it was created with, and one voter less that costs little.
        """
        if brings_witness(shard, old):
            return False
        found = learners.standing(self.state, shard)
        good = keeping_up(self.state, shard) if found else frozenset()
        for member in found:
            store = live_store(self.state, member.store_id)
            if store is None or member.replica_id not in good:
                continue
            if member.incarnation in store.drained:
                continue
            if not self.placement.site(shard, leaving).promotion_refusal(store):
                self._begin(
                    kind,
                    shard,
                    member.replica_id,
                    old,
                    store.store,
                    member.incarnation,
                    promotes=True,
                )
                return True
        return False

    def _verb(self, shard: ShardState, leaving: StoreId | None) -> str:
        """What a person may say so that shard 0 gets a spare store."""
        if shard.shard != HAKEEPER_SHARD:
            return ""
        store = self.placement.admissible(shard, leaving)
        return f"; let one have it: logctl admit {store} --hakeeper" if store else ""

    def _bring(
        self,
        shard: ShardState,
        kind: Repair,
        old: ReplicaId,
        store: StoreState,
        cause: Cause = Cause.REPAIR,
        wish: int = 0,
    ) -> bool:
        """Begin to bring a new replica to that store, as soon as there is room for more work."""
        if not self.room(shard):
            return False
        if self.placement.arriving(store.store) >= bounds.HAKEEPER_OPERATORS_PER_STORE_MAX:
            return False
        incarnation = self.placement.directory(store)
        self.placement.take(shard.shard, store.store, incarnation)
        new = allocate_replica_id(self.state)
        witness = kind is not Repair.LEARN and brings_witness(shard, old)
        self._begin(kind, shard, new, old, store.store, incarnation, cause, wish, witness=witness)
        return True

    def room(self, shard: ShardState) -> bool:
        """Whether one more change may begin: work at once is bounded. Shard 0 always has room,
        because all other repairs need it.
        """
        return shard.shard == HAKEEPER_SHARD or self._changes < self._most_changes

    def _room_for_errand(self, shard: ShardState) -> bool:
        """Whether one more START or KILL may begin. More of them would only wait (`drives`)."""
        bounded = shard.shard != HAKEEPER_SHARD and self.state.cluster_version >= _VERBS
        return not bounded or self._errands < bounds.HAKEEPER_ERRANDS_MAX

    # --- what others begin ----------------------------------------------------------------------

    def changing(self, shard: ShardId) -> bool:
        """Whether an operator that changes the shard's membership is under way."""
        return shard in self._changing

    def move(
        self, shard: ShardState, old: ReplicaId, store: StoreState, cause: Cause, wish: int = 0
    ) -> bool:
        """Begin to move a voter to that store; False when that has to wait. The caller has chosen
        the store by `placement`.
        """
        if shard.shard in self._changing or shard.members.joint:
            return False
        return self._bring(shard, Repair.MOVE, old, store, cause, wish)

    def promote(self, shard: ShardState, old: ReplicaId, learner: Member, cause: Cause) -> bool:
        """Begin to make a voter of a standing learner, in the place of the voter `old`; False when
        that has to wait. The caller has asked whether it may become one.
        """
        if shard.shard in self._changing or shard.members.joint or not self.room(shard):
            return False
        replica, store = learner.replica_id, learner.store_id
        kind, directory = Repair.MOVE, learner.incarnation
        self._begin(kind, shard, replica, old, store, directory, cause, promotes=True)
        return True

    def learn(self, shard: ShardState, store: StoreState) -> bool:
        """Begin to bring a standing learner to that store; False when that has to wait."""
        return self._bring(shard, Repair.LEARN, NO_REPLICA, store)

    def lead(self, shard: ShardState, replica: ReplicaId, cause: Cause) -> bool:
        """Begin to hand the leadership to that voter; False when that has to wait."""
        member = shard.members.member(replica)
        if member is None or shard.shard in self._handing_over:
            return False
        if not self.may_lead():
            return False
        self._begin(Repair.LEAD, shard, replica, NO_REPLICA, member.store_id, cause=cause)
        return True

    def may_lead(self) -> bool:
        """Whether another leadership may be handed over now."""
        return len(self._handing_over) < bounds.HAKEEPER_LEADS_MAX

    # --- replicas on stores ---------------------------------------------------------------------

    def _starts(self, shard: ShardState, found: Mapping[ReplicaId, Health]) -> None:
        for replica, health in found.items():
            if health is not Health.MISSING or (shard.shard, replica) in self._arriving:
                continue
            member = shard.members.member(replica)
            if member is None or member.store_id not in self.state.stores:
                continue
            store = member.store_id
            begun = (Repair.START, shard.shard, replica, store) in self._busy
            if not begun and self._room_for_errand(shard):
                self._begin(Repair.START, shard, replica, NO_REPLICA, store, member.incarnation)

    def _zombies(self, store: StoreState) -> None:
        for _, report in sorted(store.replicas.items()):
            self._zombie(store, report)
        for shard_id, replica in store.stored:
            self._left_over(store, shard_id, replica)

    def _stray(self, store: StoreState, shard_id: ShardId) -> None:
        """What the store runs or stores of one shard."""
        report = store.replicas.get(shard_id)
        if report is not None:
            self._zombie(store, report)
        for stored, replica in store.stored:
            if stored == shard_id:
                self._left_over(store, stored, replica)

    def _zombie(self, store: StoreState, report: ReplicaReport) -> None:
        shard_id = report.shard
        if is_deleted(self.state, shard_id):
            return  # the answers to the store's heartbeats tell it
        shard = self.state.shards.get(shard_id)
        if shard is None or not shard.initial:
            self.flags.append(f"store {store.store}: runs a replica of unknown shard {shard_id}")
            return
        member = shard.members.member(report.replica)
        if not shard.members.contains(report.replica):
            older = report.epoch < shard.members.change_epoch
            self._kill(store, shard, report.replica, certain=older)
            return
        bound = (member.store_id, member.incarnation) if member is not None else None
        if bound != (store.store, report.incarnation):
            self.flags.append(
                f"shard {shard_id}: replica {report.replica} runs on {store.store}"
                " but is bound to another store or data directory"
            )

    def _left_over(self, store: StoreState, shard_id: ShardId, replica: ReplicaId) -> None:
        shard = self.state.shards.get(shard_id)
        if shard is not None and shard.initial and not shard.deleting_tick:
            self._kill(store, shard, replica, certain=False)

    def _kill(
        self, store: StoreState, shard: ShardState, replica: ReplicaId, *, certain: bool
    ) -> None:
        members = shard.members
        if members.contains(replica) or (shard.shard, replica) in self._arriving:
            return
        certain = certain or is_older(shard, replica)
        if not certain and replica not in members.removed:
            return
        begun = (Repair.KILL, shard.shard, replica, store.store) in self._busy
        if not begun and self._room_for_errand(shard):
            self._begin(Repair.KILL, shard, replica, NO_REPLICA, store.store)


def most_changes(state: State) -> int:
    """How many changes of memberships may be under way. From cluster version 2 on a large cluster
    makes one for each of its live stores: no store has more to copy than in a small one, and a lost
    zone is repaired in minutes.
    """
    if state.cluster_version < _VERBS:
        return bounds.HAKEEPER_OPERATORS_MAX
    live = sum(not silent(state, store.last_tick) for store in state.stores.values())
    return max(bounds.HAKEEPER_OPERATORS_MAX, min(live, bounds.HAKEEPER_CHANGES_MAX))


def brings_witness(shard: ShardState, old: ReplicaId) -> bool:
    """Whether the voter that takes the place of `old`, or comes beside all others when that is
    NO_REPLICA, is to be a witness. Replicas that store records are brought first.
    """
    members = shard.members
    if old != NO_REPLICA:
        return old in members.witnesses
    return len(members.full_voters) >= shard.wanted - shard.witnesses


def _home(shard: ShardState, replica: ReplicaId) -> StoreId | None:
    member = shard.members.member(replica)
    return member.store_id if member is not None else None
