"""Checkers: which repairs to begin, and which flags to raise.

Theory of operation. A checker looks at the state and returns findings: operators to start, and
flags for people. It decides by exact (shard, replica, incarnation). Per shard at most one operator
that changes the membership is under way. Shard 0 is treated like every other shard, and is looked
at first.

    a voter is LOST or HALTED   more voters than wanted         REMOVE it
                                a spare store                   REPLACE it there
                                none, but its own store lives
                                without its data (directory),
                                or it is HALTED                 REPLACE it in place; of shard 0
                                                                only when it cannot come back
                                none at all                     flag and wait
    fewer voters than wanted    a spare store                   ADD
    no live majority            nothing can be changed          flag: a person must look
    a member ALIVE, behind      it does not move                flag (`standstill`)
    a member MISSING            its store is live               START
    a replica in no membership  its store is live               KILL

A replacement in place is one change that swaps a voter that cannot help for an empty one on the
same store. To remove the old voter first and to add one later would leave the shard with fewer
voters for as long as the store is away, and it would need each of them (simulator, seed 301: the
next lost disk ended the shard).

A replica is killed only if the membership that lacks it is newer than the replica's own, or says
that the id was removed. A replica is never touched when it is listed, when an operator is bringing
it, when its store is expired, or when its shard is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from logservice import bounds
from logservice.hakeeper.repair import standstill
from logservice.hakeeper.repair.bootstrap import allocate_replica_id
from logservice.hakeeper.repair.placement import Placement
from logservice.hakeeper.state import (
    CHANGES_MEMBERSHIP,
    Operator,
    Repair,
    ShardState,
    State,
    StoreState,
)
from logservice.hakeeper.stores.health import REPLACEABLE, Health, healths, live_store, tolerance
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, Incarnation, ReplicaId, ShardId, StoreId
from logservice.membership import Member

_NO_DIRECTORY = Incarnation(0)
"""The incarnation of operators that bring no replica: a replica id is enough to remove one."""


class Checkers:
    """One pass over one state. `found`: new operators, which are in the state already. `flags`:
    texts for people.
    """

    def __init__(self, state: State) -> None:
        """Index the operators under way."""
        self._state = state
        self._lazy_placement: Placement | None = None
        self.found: list[Operator] = []
        self.flags: list[str] = []
        self._changing: set[ShardId] = set()
        self._changes = 0
        self._busy: set[tuple[Repair, ShardId, ReplicaId, StoreId]] = set()
        self._arriving: set[tuple[ShardId, ReplicaId]] = set()
        for operator in state.sorted_operators():
            self._note(operator)

    def check_starts(self) -> None:
        """START what is MISSING. Nothing else may be done before the cluster runs."""
        for shard in self._placed():
            self._starts(shard, healths(self._state, shard))

    def check_all(self) -> None:
        """Run every checker, for shard 0 first."""
        observes = self._state.tick % bounds.HAKEEPER_IDLE_CHECK_TICKS == 0
        for shard in self._placed():
            found = healths(self._state, shard)
            self._voters(shard, found)
            self._starts(shard, found)
            if observes:
                standstill.observe(self._state, shard, found)
            if shard.behind:
                self.flags += standstill.flags(self._state, shard, found)
            if shard.disagreement:
                self.flags.append(f"shard {shard.shard}: {shard.disagreement} of the same epoch")
        for store in self._state.sorted_stores():
            if live_store(self._state, store.store) is not None:
                self._zombies(store)

    @property
    def _placement(self) -> Placement:
        # Counting every store's load takes as long as the rest of an idle pass.
        if self._lazy_placement is None:
            self._lazy_placement = Placement(self._state)
        return self._lazy_placement

    def _placed(self) -> Iterator[ShardState]:
        return (shard for shard in self._state.sorted_shards() if shard.initial)

    def _note(self, operator: Operator) -> None:
        if operator.kind in CHANGES_MEMBERSHIP:
            self._changing.add(operator.shard)
            self._changes += 1
            self._arriving.add((operator.shard, operator.replica))
        self._busy.add((operator.kind, operator.shard, operator.replica, operator.store))

    def _begin(
        self,
        kind: Repair,
        shard: ShardState,
        replica: ReplicaId,
        old: ReplicaId,
        store: StoreId,
        incarnation: Incarnation = _NO_DIRECTORY,
    ) -> None:
        operator = Operator(
            self._state.next_operator_id,
            kind,
            shard.shard,
            replica,
            old,
            store,
            incarnation,
            self._state.tick,
        )
        self._state.next_operator_id += 1
        self._state.operators[operator.id] = operator
        self._note(operator)
        self.found.append(operator)

    # --- voters ---------------------------------------------------------------------------------

    def _voters(self, shard: ShardState, found: Mapping[ReplicaId, Health]) -> None:
        members = shard.members
        up = [replica for replica, health in found.items() if health is Health.ALIVE]
        lost = [voter for voter in members.voters if found[voter] in REPLACEABLE]
        if (lost or len(members.voters) < shard.wanted) and tolerance(members, up) < 0:
            self.flags.append(f"shard {shard.shard}: no live majority")
            return
        if shard.shard in self._changing or members.joint:
            return
        if self._orphan(shard):
            return
        if len(members.voters) > shard.wanted:
            if lost:
                self._remove(shard, lost[0])
            else:
                self.flags.append(f"shard {shard.shard}: more voters than wanted")
        elif lost:
            self._replace(shard, lost[0], found[lost[0]])
        elif len(members.voters) < shard.wanted:
            self._arrive(shard, Repair.ADD, NO_REPLICA, None)

    def _orphan(self, shard: ShardState) -> bool:
        """Remove a learner whose operator was given up while its addition was under way."""
        members = shard.members
        for replica, epoch in sorted(shard.abandoned.items()):
            if replica in members.learners:
                self._remove(shard, replica)
                return True
            if epoch < members.change_epoch:
                del shard.abandoned[replica]
        return False

    def _remove(self, shard: ShardState, old: ReplicaId) -> None:
        if self._room(shard):
            member = shard.members.member(old)
            store = member.store_id if member is not None else StoreId("")
            self._begin(Repair.REMOVE, shard, old, old, store)

    def _replace(self, shard: ShardState, old: ReplicaId, health: Health) -> None:
        member = shard.members.member(old)
        where = member.store_id if member is not None else None
        if self._arrive(shard, Repair.REPLACE, old, where) or member is None:
            return
        store = live_store(self._state, member.store_id)
        gone = store is not None and (not store.uses(member.incarnation) or old in shard.lost)
        if (
            store is None
            or not (gone or health is Health.HALTED)
            or self._may_come_back(shard, member, store)
            or not self._placement.takes_another(shard, store)
        ):
            verb = self._verb(shard, where)
            self.flags.append(f"shard {shard.shard}: no spare store to replace replica {old}{verb}")
            return
        self._bring(shard, Repair.REPLACE, old, store)

    @staticmethod
    def _may_come_back(shard: ShardState, member: Member, store: StoreState) -> bool:
        """Whether this is a replica of shard 0 in a failed directory, which may work again after a
        restart. It is not replaced in place: if another replica of shard 0 failed before the
        successor runs, no HAKeeper would be left to start the successor.
        """
        directory = store.directory(member.incarnation)
        return shard.shard == HAKEEPER_SHARD and directory is not None and bool(directory.failed)

    def _arrive(
        self, shard: ShardState, kind: Repair, old: ReplicaId, leaving: StoreId | None
    ) -> bool:
        """Begin to bring a replica to a spare store; False when there is no such store."""
        choice = self._placement.choose(shard, 1, leaving)
        if not choice:
            if kind is Repair.ADD:
                verb = self._verb(shard, leaving)
                self.flags.append(f"shard {shard.shard}: no spare store for another replica{verb}")
            return False
        self._bring(shard, kind, old, choice[0])
        return True

    def _verb(self, shard: ShardState, leaving: StoreId | None) -> str:
        """What a person may say so that shard 0 gets a spare store."""
        if shard.shard != HAKEEPER_SHARD:
            return ""
        store = self._placement.admissible(shard, leaving)
        return f"; let one have it: logctl admit {store} --hakeeper" if store else ""

    def _bring(self, shard: ShardState, kind: Repair, old: ReplicaId, store: StoreState) -> None:
        """Begin to bring a new replica to that store, as soon as there is room for more work."""
        if not self._room(shard):
            return
        if self._placement.arriving(store.store) >= bounds.HAKEEPER_OPERATORS_PER_STORE_MAX:
            return
        incarnation = self._placement.directory(store)
        self._placement.take(shard.shard, store.store, incarnation)
        new = allocate_replica_id(self._state)
        self._begin(kind, shard, new, old, store.store, incarnation)

    def _room(self, shard: ShardState) -> bool:
        """Whether one more change may begin: work at once is bounded. Shard 0 always has room,
        because all other repairs need it.
        """
        return shard.shard == HAKEEPER_SHARD or self._changes < bounds.HAKEEPER_OPERATORS_MAX

    # --- replicas on stores ---------------------------------------------------------------------

    def _starts(self, shard: ShardState, found: Mapping[ReplicaId, Health]) -> None:
        for replica, health in found.items():
            if health is not Health.MISSING or (shard.shard, replica) in self._arriving:
                continue
            member = shard.members.member(replica)
            if member is None or member.store_id not in self._state.stores:
                continue
            store = member.store_id
            if (Repair.START, shard.shard, replica, store) not in self._busy:
                self._begin(Repair.START, shard, replica, NO_REPLICA, store, member.incarnation)

    def _zombies(self, store: StoreState) -> None:
        for shard_id, report in sorted(store.replicas.items()):
            shard = self._state.shards.get(shard_id)
            if shard is None or not shard.initial:
                self.flags.append(
                    f"store {store.store}: runs a replica of unknown shard {shard_id}"
                )
                continue
            member = shard.members.member(report.replica)
            if shard.members.contains(report.replica):
                if member is None or (member.store_id, member.incarnation) != (
                    store.store,
                    report.incarnation,
                ):
                    self.flags.append(
                        f"shard {shard_id}: replica {report.replica} runs on {store.store}"
                        " but is bound to another store or data directory"
                    )
                continue
            older = report.epoch < shard.members.change_epoch
            self._kill(store, shard, report.replica, certain=older)
        for shard_id, replica in store.stored:
            shard = self._state.shards.get(shard_id)
            if shard is not None and shard.initial:
                self._kill(store, shard, replica, certain=False)

    def _kill(
        self, store: StoreState, shard: ShardState, replica: ReplicaId, *, certain: bool
    ) -> None:
        members = shard.members
        if members.contains(replica) or (shard.shard, replica) in self._arriving:
            return
        if not certain and replica not in members.removed:
            return
        if (Repair.KILL, shard.shard, replica, store.store) not in self._busy:
            self._begin(Repair.KILL, shard, replica, NO_REPLICA, store.store)
