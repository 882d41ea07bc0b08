"""HAKeeper's leader dies at every step of every verb, and each verb ends as it says, once.

Theory of operation. A verb is played once without a fault. Of each entry that shard 0 applies
meanwhile it is noted whether the course of things changed with it: an operator, its step, a queued
command, a membership, a wish, a mode. Those entries are the steps. Then the verb is played again
for each step, twice: the leader of shard 0 dies just before the entry is applied, which is lost
then, or just after it, and whoever waited gets no answer. For `LEADERLESS_TICKS` nobody leads. The
next leader has recovered from a snapshot, and a tick that the dead one left behind comes late. Who
asked for the verb asks again until there is an answer. At the end the cluster is what it was
without the fault: the same replicas in as many changes, each wish and each event of the verb once.

Nothing is drawn: the model is deterministic, and so a step has the same number in every run up to
the death.

Two things are no verbs of HAKeeper's: the Close of a log is an entry of the log itself, and
ScheduleCommands, of cluster version 1, promises nothing to who asks again (SendOrder does).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

import pytest
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.cluster_events import EventKind
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.policy import LearnersIn, Policy, ZoneRule
from logservice.hakeeper.commands.verbs import (
    AdoptShard,
    CancelOperator,
    CancelWish,
    ChangeSettings,
    CreateTnShard,
    DeleteTnShard,
    Errand,
    ForgetStore,
    Rebalance,
    SetLeader,
    SetRepair,
    SetStoreMode,
    SetWorkState,
    StoreMode,
    WishReplica,
    WorkState,
)
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.state import State
from logservice.hakeeper.stores.health import silent
from logservice.ids import (
    HAKEEPER_SHARD,
    Incarnation,
    Index,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.membership import Member, Membership
from logservice.outcome import Applied, Outcome, Rejected
from logservice.versions import KNOWN, ONLY_FIRST, VersionRange
from tests.hakeeper.model import Copy, Model, ShardOracle, Store
from tests.hakeeper.service_process import Process
from tests.papers import uri

LEADERLESS_TICKS: Final = 15
MOST_TICKS: Final = 700
REST_TICKS: Final = 80
"""So long nothing may change any more at the end: longer than two idle passes."""

ONE, TWO = ShardId(1), ShardId(2)
S1, S4 = StoreId("s1"), StoreId("s4")

_TOLD: Final = frozenset(
    {
        EventKind.LOG_CREATED,
        EventKind.LOG_CHANGED,
        EventKind.LOG_DELETED,
        EventKind.STORE_FORGOTTEN,
        EventKind.PHASE,
        EventKind.VERSION,
        EventKind.SETTINGS,
    }
)
"""What the feed tells once for each verb, however often it was asked for."""


class NoLeader(Exception):
    """Nobody answers: it may have been applied, or not."""


class Mortal(Model):
    """A model whose leader of shard 0 dies once, at the entry `dies_at` behind `watch`."""

    def __init__(self, stores: int, versions: VersionRange = KNOWN) -> None:
        self.watched = False
        self.entries = 0
        self.dies_at = 0
        self.dies_after = False
        self.back_at = 0
        self.deaths = 0
        self.steps: list[int] = []
        """The entries that changed the course of things."""
        self.processes: list[Process] = []
        """They speak once in a second."""
        super().__init__(stores, versions=versions, timeout=40)

    def watch(self, dies_at: int, *, dies_after: bool) -> None:
        self.watched, self.entries = True, 0
        self.dies_at, self.dies_after = dies_at, dies_after

    def propose_bytes(self, command: bytes) -> Outcome:
        if not self.watched:
            return super().propose_bytes(command)
        if self.now < self.back_at:
            raise NoLeader
        self.entries += 1
        if self.entries == self.dies_at and not self.dies_after:
            self._die()
        before = course(self.state) if not self.dies_at else ()
        outcome = super().propose_bytes(command)
        if not self.dies_at and course(self.state) != before:
            self.steps.append(self.entries)
        if self.entries == self.dies_at:
            self._die()
        return outcome

    def propose(self, proposal: proposals.Proposal) -> Outcome:
        """What is proposed; a tick of a cluster without a leader is none."""
        if not isinstance(proposal, proposals.Tick):
            return super().propose(proposal)
        try:
            return super().propose(proposal)
        except NoLeader:
            return Rejected(Reason.NOT_LEADER, {})

    def heartbeat(self, store: Store, *, lose_reply: bool = False) -> None:
        try:
            super().heartbeat(store, lose_reply=lose_reply)
        except NoLeader:
            return

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            super().run(1)
            for process in self.processes:
                if self.now % bounds.HAKEEPER_TICKS_PER_S == 0:
                    self._speak(process)
                process.pass_time(self.now)
            served = [number for one in self.processes for number in one.serving]
            assert len(served) == len(set(served)), "INV-HK-TN"

    def _speak(self, process: Process) -> None:
        try:
            answer = self.propose(process.say())
        except NoLeader:
            return
        assert isinstance(answer, Applied), answer
        process.hear(replies.decode(answer.data), self.now, self.now)

    def ask(self, verb: proposals.Proposal) -> Outcome:
        """Ask until somebody answers."""
        while True:
            try:
                return self.propose(verb)
            except NoLeader:
                self.run(1)

    def _die(self) -> None:
        self.deaths += 1
        self.new_hakeeper_leader()
        late = super().propose(proposals.Tick(Term(self.term - 1))) if self.dies_after else None
        assert late is None or (isinstance(late, Rejected) and late.reason is Reason.STALE_EPOCH)
        self.back_at = self.now + LEADERLESS_TICKS
        raise NoLeader


def course(state: State) -> tuple[object, ...]:
    """What of the state says how far things are. Times and reports are no part of it."""
    return (
        state.phase,
        state.cluster_version,
        state.balance,
        state.store_timeout_ticks,
        state.repair_off_until,
        [
            (one.id, one.step, one.command_id, one.cancelled, one.failures)
            for one in state.operators.values()
        ],
        [
            (one.store, one.mode, one.expired, [queued.id for queued in one.queue])
            for one in state.stores.values()
        ],
        [
            (one.shard, one.membership, one.wanted, one.name, one.deleting_tick, one.policy)
            for one in state.shards.values()
        ],
        [(one.id, one.step, one.ended_tick) for one in state.wishes.values()],
        [one.leader_wish for one in state.shards.values()],
        sorted(state.gone_stores),
        sorted(state.admitted),
        (state.joining, state.access_version, dict(state.id_counters)),
        [
            (name, one.work_state, [queued.id for queued in one.queue])
            for name, one in state.services.items()
        ],
        [
            (number, one.service, one.replica, one.serving, bool(one.withdrawn_tick))
            for number, one in state.tn_shards.items()
        ],
    )


Made = Callable[[], Mortal]
Asks = Callable[[Mortal], list[proposals.Proposal]]


@dataclass(frozen=True)
class Case:
    """Verbs in a world that `made` makes; `ended` says that they have had their effect."""

    name: str
    made: Made
    asks: Asks
    ended: Callable[[Mortal], bool]


def at_rest(model: Mortal) -> bool:
    """Nothing is under way, and every member that is up runs."""
    return (
        not model.state.operators
        and not any(store.queue for store in model.state.stores.values())
        and {shard.shard for shard in model.state.shards.values() if shard.initial}
        == set(model.shards) - gone(model)
        and all(
            not oracle.membership.joint
            and {*oracle.membership.voters, *oracle.membership.learners} <= model.running(shard)
            for shard, oracle in model.shards.items()
            if shard not in gone(model)
        )
    )


def gone(model: Mortal) -> set[ShardId]:
    return {shard for shard in model.shards if shard not in model.state.shards}


def summary(model: Mortal) -> dict[str, object]:
    """What has to be the same, however often the leader died."""
    state = model.state
    return {
        "phase": (state.phase, state.cluster_version, state.store_timeout_ticks),
        "shards": {
            shard: (
                oracle.changes,
                voters(model, shard),
                learners(model, shard),
                state.shards[shard].name if shard in state.shards else "deleted",
                state.shards[shard].revision if shard in state.shards else 0,
            )
            for shard, oracle in model.shards.items()
        },
        "copies": {name: sorted(store.copies) for name, store in model.stores.items()},
        "modes": {name: store.mode for name, store in state.stores.items()},
        "gone": sorted(state.gone_stores),
        "admitted": sorted(state.admitted),
        "wishes": [(one.errand, one.shard, one.result) for _, one in sorted(state.wishes.items())],
        "told": sorted(
            (one.kind, one.shard, one.store, one.text)
            for one in state.feed.ring
            if one.kind in _TOLD
        ),
        "flags": sorted(state.flags),
        "rules": (state.joining, state.access, state.access_version, state.id_counters),
        "services": {name: (one.work_state, one.queue) for name, one in state.services.items()},
        "TN shards": {
            number: (one.shard, one.service, one.replica) for number, one in state.tn_shards.items()
        },
        "processes": [
            (one.name, one.serving, one.drained, sorted(one.handled.values()))
            for one in model.processes
        ],
    }


def voters(model: Model, shard: ShardId = ONE) -> list[StoreId]:
    members = model.shards[shard].membership
    return sorted(one.store_id for one in members.members if one.replica_id in members.voters)


def learners(model: Model, shard: ShardId = ONE) -> list[StoreId]:
    members = model.shards[shard].membership
    return sorted(one.store_id for one in members.members if one.replica_id in members.learners)


def leader(model: Model, shard: ShardId = ONE) -> StoreId:
    oracle = model.shards[shard]
    member = oracle.membership.member(oracle.leader)
    return member.store_id if member is not None else StoreId("")


def was_no_operator(outcome: Outcome) -> bool:
    """Who asks again to give an operator up is told that it is over, which it is."""
    return isinstance(outcome, Rejected) and outcome.metadata.get("field") == "operator_id"


def play(case: Case, made: Mortal, dies_at: int = 0, *, dies_after: bool = False) -> Mortal:
    """Play the verbs, and let the leader die at that entry; the model when all is at rest again."""
    model = deepcopy(made)
    asked = case.asks(model)
    model.watch(dies_at, dies_after=dies_after)
    for verb in asked:
        outcome = model.ask(verb)
        over = model.deaths and isinstance(verb, CancelOperator)
        assert isinstance(outcome, Applied) or (over and was_no_operator(outcome)), outcome
    model.run_until(lambda: case.ended(model) and at_rest(model), MOST_TICKS)
    changes = [list(oracle.changes) for oracle in model.shards.values()]
    model.run(REST_TICKS)
    assert case.ended(model)
    assert at_rest(model)
    assert [oracle.changes for oracle in model.shards.values()] == changes, "it goes on"
    return model


# --- worlds ---------------------------------------------------------------------------------------


def world(stores: int = 4, shards: int = 1, versions: VersionRange = KNOWN) -> Mortal:
    model = Mortal(stores, versions)
    model.start(shards=shards)
    model.run_until(lambda: at_rest(model), 100)
    return model


def done(model: Mortal, *verbs: proposals.Proposal) -> Mortal:
    """The world after these verbs have ended."""
    for verb in verbs:
        outcome = model.propose(verb)
        assert isinstance(outcome, Applied), outcome
    model.run(2)
    model.run_until(lambda: at_rest(model), MOST_TICKS)
    return model


def unborn(versions: VersionRange = KNOWN) -> Mortal:
    """Nobody has proposed the first configuration yet."""
    model = Mortal(3, versions)
    members = [
        Member(ReplicaId(number + 1), store.name, store.incarnation)
        for number, store in enumerate(model.stores.values())
    ]
    membership = initial_membership(members)
    model.shards[HAKEEPER_SHARD] = ShardOracle(membership)
    for member in members:
        copies = model.stores[member.store_id].copies
        copies[HAKEEPER_SHARD] = Copy(member.replica_id, 1, membership)
    return model


def first_configuration(model: Mortal) -> proposals.InitialCluster:
    membership = model.shards[HAKEEPER_SHARD].membership.encode()
    return proposals.InitialCluster("c", membership, (proposals.ShardSpec("log-1", 3),), 3, 40)


def at_version_1() -> Mortal:
    """A cluster of 0.1.0 whose programs know version 2 by now."""
    model = world(versions=ONLY_FIRST)
    for store in model.stores.values():
        store.versions = KNOWN
    model.run(20)
    return model


def with_an_applicant() -> Mortal:
    """s4 is there, and may have no replica of shard 0; s1 is lost."""
    model = world(3)
    model.admits = False
    model.add_store("s4")
    model.kill(S1)
    model.run(200)
    assert S1 in voters(model, HAKEEPER_SHARD)
    assert S1 not in voters(model)
    return model


def with_learner(stores: int = 4) -> Mortal:
    model = done(world(stores), proposals.ChangeShard(ONE, policy=LEARNS))
    assert len(learners(model)) == 1
    return model


def slow_move() -> Mortal:
    """A move whose learner has not caught up."""
    model = world()
    model.copy_speed = 0
    model.shards[ONE].last += 100_000
    outcome = model.propose(move(model))
    assert isinstance(outcome, Applied)
    model.run_until(lambda: bool(learners(model)) and bool(model.state.operators), 100)
    return model


def slow_drain() -> Mortal:
    model = world()
    model.copy_speed = 0
    for oracle in model.shards.values():
        oracle.last += 100_000
    outcome = model.propose(SetStoreMode(S1, StoreMode.DRAINING))
    assert isinstance(outcome, Applied)
    model.run_until(lambda: all(learners(model, one) for one in model.shards), 100)
    return model


def without_s1() -> Mortal:
    """s1 was drained and has stopped."""
    model = done(world(), SetStoreMode(S1, StoreMode.DRAINING))
    model.kill(S1)
    model.run_until(lambda: silent(model.state, model.state.stores[S1].last_tick), 100)
    return done(model)


def lost_s1() -> Mortal:
    """s1 is lost, and nothing is replaced, because repair is off."""
    model = done(world(), SetRepair("", 5000))
    model.kill(S1)
    model.run_until(lambda: silent(model.state, model.state.stores[S1].last_tick), 100)
    return model


def lost_majority() -> Mortal:
    """All three stores of the second log are gone for good; shard 0 runs on others."""
    model = world(9)
    others = voters(model, HAKEEPER_SHARD)
    done(model, *(SetStoreMode(one, StoreMode.READ_ONLY, force=True) for one in others))
    done(model, proposals.CreateShard(ShardId(0), "second", 3))
    done(model, *(SetStoreMode(one, StoreMode.OPEN) for one in others))
    for store in voters(model, TWO):
        assert store not in others
        model.kill(store)
    model.run(model.timeout * 2)
    return model


def adopted(model: Mortal) -> list[proposals.Proposal]:
    """`logservice recover` has made a replica of the second log on s1, which has started again."""
    oracle, new = model.shards[TWO], ReplicaId(2**32 + 9)
    before, disk = oracle.membership, Incarnation(9009)
    oracle.last = 5000
    oracle.membership = Membership(
        voters=(new,),
        removed=tuple(sorted({*before.removed, *before.voters})),
        change_epoch=Index(before.change_epoch + 1000),
        members=(Member(new, S1, disk),),
    )
    model.stores[S1].others = (disk,)
    model.stores[S1].copies[TWO] = Copy(new, oracle.last, oracle.membership, incarnation=disk)
    return [AdoptShard(TWO, oracle.membership.encode(), "by hand")]


def with_services(*verbs: proposals.Proposal) -> Mortal:
    """Two processes of the database, and what those verbs have made."""
    model = world()
    model.processes = [Process("tn-a", 1001), Process("tn-b", 1002)]
    model.run(2 * bounds.HAKEEPER_TICKS_PER_S)
    done(model, *verbs)
    model.run(5 * bounds.HAKEEPER_TICKS_PER_S)
    return model


def work_state(model: Mortal) -> WorkState:
    return model.state.services["tn-a"].work_state


def failed_start() -> Mortal:
    """The first start of a cluster of version 1 failed, which only a person ends."""
    model = unborn(ONLY_FIRST)
    for store in model.stores.values():
        store.refuses.add(ONE)
    assert isinstance(model.propose(first_configuration(model)), Applied)
    model.run(bounds.HAKEEPER_BOOTSTRAP_TICKS_MAX + 100)
    assert model.state.phase is Phase.BOOTSTRAP_FAILED
    for store in model.stores.values():
        store.refuses.clear()
    return model


def crowded() -> Mortal:
    """Four logs on three stores, and a fourth store that is empty."""
    model = Mortal(3)
    model.start(shards=4)
    model.run_until(lambda: at_rest(model), 100)
    model.add_store("s4")
    model.run(700)
    assert at_rest(model)
    return model


def move(model: Mortal, source: StoreId | None = None) -> WishReplica:
    [target] = [store for store in sorted(model.stores) if store not in voters(model)]
    return WishReplica(Errand.MOVE, ONE, source or max(voters(model)), target, "by hand")


def deletion(model: Mortal) -> list[proposals.Proposal]:
    return [proposals.DeleteShard(ONE, model.state.shards[ONE].name, force=True)]


def forgotten(model: Mortal) -> bool:
    return S1 not in model.state.stores and all(S1 not in voters(model, s) for s in model.shards)


def drained(model: Mortal) -> bool:
    return not model.stores[S1].copies


def running(model: Mortal) -> bool:
    return model.state.phase is Phase.RUNNING


DATABASE: Final = uri("client", "database")
LEARNS: Final = Policy(ZoneRule.NONE, learners=(LearnersIn("", 1),))


def wished(model: Mortal) -> bool:
    """Every one-time wish is carried out, and the log has as many voters as it wants."""
    return all(one.result == "done" for one in model.state.wishes.values()) and all(
        len(voters(model, one.shard)) == one.wanted for one in model.state.shards.values()
    )


def off(model: Mortal, store: StoreId = S1) -> bool:
    return all(store not in voters(model, one) for one in model.shards)


CASES: Final = [
    Case("the first start", unborn, lambda model: [first_configuration(model)], running),
    Case(
        "create a log",
        world,
        lambda _: [proposals.CreateShard(ShardId(0), "new", 3, "request-1")],
        lambda model: TWO in model.shards,
    ),
    Case(
        "change a log's name and labels",
        world,
        lambda _: [proposals.ChangeShard(ONE, name="other", labels={"a": "b"})],
        lambda model: model.state.shards[ONE].name == "other",
    ),
    Case(
        "three replicas become five",
        lambda: world(5),
        lambda _: [proposals.ChangeShard(ONE, replicas=5)],
        lambda model: len(voters(model)) == 5,
    ),
    Case(
        "three replicas become one",
        world,
        lambda _: [proposals.ChangeShard(ONE, replicas=1)],
        lambda model: len(voters(model)) == 1,
    ),
    Case("delete a log", world, deletion, lambda model: ONE not in model.state.shards),
    Case("move a replica", world, lambda model: [move(model)], wished),
    Case("move the leader's replica", world, lambda model: [move(model, leader(model))], wished),
    Case(
        "add a replica where it was wished",
        lambda: world(6),
        lambda model: [
            WishReplica(Errand.ADD, ONE, "", max(model.stores.keys() - voters(model))),
            proposals.ChangeShard(ONE, replicas=5),
        ],
        wished,
    ),
    Case(
        "remove the replica that was wished",
        world,
        lambda model: [
            WishReplica(Errand.REMOVE, ONE, voters(model)[1], ""),
            proposals.ChangeShard(ONE, replicas=1),
        ],
        wished,
    ),
    Case("cancel a wish", slow_move, lambda _: [CancelWish(1)], lambda m: not learners(m)),
    Case(
        "cancel an operator",
        slow_move,
        lambda model: [CancelOperator(max(model.state.operators))],
        lambda model: not learners(model),
    ),
    Case(
        "a learner comes",
        world,
        lambda _: [proposals.ChangeShard(ONE, policy=LEARNS)],
        lambda model: len(learners(model)) == 1,
    ),
    Case(
        "a learner goes",
        with_learner,
        lambda _: [proposals.ChangeShard(ONE, policy=Policy(ZoneRule.NONE))],
        lambda model: not learners(model),
    ),
    Case(
        "a learner leaves a store that is drained",
        lambda: with_learner(5),
        lambda model: [SetStoreMode(learners(model)[0], StoreMode.DRAINING, force=True)],
        lambda model: all(
            store.mode is StoreMode.OPEN or not model.stores[store.store].copies
            for store in model.state.stores.values()
        ),
    ),
    Case(
        "pin a leader",
        world,
        lambda model: [SetLeader(ONE, 5000, max(voters(model)))],
        lambda model: leader(model) == max(voters(model)),
    ),
    Case("drain a store", world, lambda _: [SetStoreMode(S1, StoreMode.DRAINING)], drained),
    Case(
        "open a store that is being drained",
        slow_drain,
        lambda _: [SetStoreMode(S1, StoreMode.OPEN)],
        lambda model: not any(learners(model, one) for one in model.shards),
    ),
    Case(
        "a store becomes read-only",
        world,
        lambda _: [SetStoreMode(S1, StoreMode.READ_ONLY, force=True)],
        lambda model: model.state.stores[S1].mode is StoreMode.READ_ONLY,
    ),
    Case("forget an empty store", without_s1, lambda _: [ForgetStore(S1)], forgotten),
    Case(
        "forget a lost store",
        lost_s1,
        lambda _: [ForgetStore(S1, lost=True), SetRepair("", 0)],
        forgotten,
    ),
    Case(
        "repair goes on, and a lost store is replaced", lost_s1, lambda _: [SetRepair("", 0)], off
    ),
    Case(
        "admit a store, and shard 0 is repaired",
        with_an_applicant,
        lambda _: [proposals.AdmitStore(S4, hakeeper=True)],
        off,
    ),
    Case(
        "balance replicas",
        crowded,
        lambda _: [Rebalance(replicas=True, leaders=False)],
        lambda model: not model.state.balance.replicas_wished_tick,
    ),
    Case(
        "balance leaders",
        crowded,
        lambda _: [Rebalance(replicas=False, leaders=True)],
        lambda model: not model.state.balance.leaders_wished_tick,
    ),
    Case(
        "settings",
        world,
        lambda _: [ChangeSettings(store_timeout_ticks=60)],
        lambda model: model.state.store_timeout_ticks == 60,
    ),
    Case(
        "a person lets a failed first start go on",
        failed_start,
        lambda _: [proposals.SetPhase(Phase.COMMANDS_RECEIVED)],
        running,
    ),
    Case(
        "a pinned leader is free again",
        lambda: done(world(), SetLeader(ONE, 5000, S1)),
        lambda _: [SetLeader(ONE, 0)],
        lambda model: model.state.shards[ONE].leader_wish is None,
    ),
    Case(
        "stores join by a verb from now on",
        world,
        lambda _: [proposals.SetJoining(proposals.Joining.BY_VERB)],
        lambda model: model.state.joining is proposals.Joining.BY_VERB,
    ),
    Case(
        "a grant",
        world,
        lambda _: [proposals.ChangeAccess(DATABASE, "shard/1", ("read", "append"))],
        lambda model: DATABASE in model.state.access,
    ),
    Case(
        "a range of ids",
        world,
        lambda _: [proposals.AllocateIds("tx", 100, "request-1", DATABASE)],
        lambda model: model.state.id_counters.get("tx", 0) > 0,
    ),
    Case(
        "a log that lost its majority is adopted",
        lost_majority,
        adopted,
        lambda model: len(voters(model, TWO)) == 3 and S1 in voters(model, TWO),
    ),
    Case(
        "a command for a service",
        with_services,
        lambda _: [proposals.SendOrder("tn-a", "flush", b"1", "request-1", DATABASE)],
        lambda model: list(model.processes[0].handled.values()) == [("flush", b"1")],
    ),
    Case(
        "a TN shard",
        with_services,
        lambda _: [CreateTnShard(ONE)],
        lambda model: any(one.serving for one in model.processes),
    ),
    Case(
        "a TN shard ends",
        lambda: with_services(CreateTnShard(ONE)),
        lambda _: [DeleteTnShard(1)],
        lambda model: not any(one.serving for one in model.processes),
    ),
    Case(
        "a service that serves a TN shard drains",
        lambda: with_services(CreateTnShard(ONE)),
        lambda _: [SetWorkState(StoreId("tn-a"), WorkState.DRAINING)],
        lambda model: work_state(model) is WorkState.DRAINED and bool(model.processes[1].serving),
    ),
    Case(
        "a service works again",
        lambda: with_services(SetWorkState(StoreId("tn-a"), WorkState.DRAINING)),
        lambda _: [SetWorkState(StoreId("tn-a"), WorkState.WORKING)],
        lambda model: work_state(model) is WorkState.WORKING,
    ),
    Case(
        "raise the cluster version",
        at_version_1,
        lambda _: [proposals.RaiseVersion(2)],
        lambda model: model.state.cluster_version == 2,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verb_ends_as_it_says_once_whenever_the_leader_dies(case: Case) -> None:
    made = case.made()
    undisturbed = play(case, made)
    wanted = summary(undisturbed)
    assert undisturbed.steps[0] == 1, "the verb changed nothing"
    for step in undisturbed.steps:
        for dies_after in (False, True):
            where = f"step {step}, {'after' if dies_after else 'before'}"
            model = play(case, made, step, dies_after=dies_after)
            assert model.deaths == 1, where
            assert summary(model) == wanted, where
