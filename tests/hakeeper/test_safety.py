"""G8 over random states: an oracle of its own judges every queued command. It names
INV-HK-TOLERANCE and INV-HK-MEMBER."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from logservice import bounds
from logservice.config_change import OF_WITNESSES, ChangeKind
from logservice.hakeeper import state
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.store_commands import (
    ChangeMembership,
    RemoveReplica,
    StartReplica,
    Step,
    TransferLeader,
)
from logservice.hakeeper.repair import check, safety
from logservice.hakeeper.state import CHANGES_MEMBERSHIP, ShardState, State
from logservice.ids import Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.membership import Membership
from tests.hakeeper.campaign import cases
from tests.hakeeper.random_states import NOW, STATES, TIMEOUT, random_state


def up(here: State, shard: ShardState) -> set[ReplicaId]:
    """The members that serve and that a live store reports, by replica id and incarnation."""
    found = set()
    for member in shard.members.members:
        store = here.stores.get(member.store_id)
        if store is None or store.last_tick + TIMEOUT < NOW:
            continue
        report = store.replicas.get(shard.shard)
        if report is None or report.replica != member.replica_id or report.halted:
            continue
        if store.uses(member.incarnation) and report.incarnation == member.incarnation:
            found.add(member.replica_id)
    return found


_VOTES = (ChangeKind.ADD_VOTER, ChangeKind.ADD_WITNESS)


def spare_votes(voters: set[ReplicaId], living: set[ReplicaId]) -> int:
    return len(voters & living) - (len(voters) // 2 + 1)


def swapped_in_place(shard: ShardState, command: ChangeMembership, living: set[ReplicaId]) -> bool:
    """Whether an empty voter comes in the same step in which a dead one of its store goes."""
    coming = [step for step in command.steps if step.kind in _VOTES]
    going = [step.replica for step in command.steps if step.kind is ChangeKind.REMOVE]
    stores = {one.replica_id: one.store_id for one in shard.members.members}
    return (
        len(coming) == len(going) == 1
        and going[0] not in living
        and stores.get(going[0]) == coming[0].store
    )


def judge_change(here: State, command: ChangeMembership) -> None:
    shard = here.shards[command.shard]
    members = shard.members
    assert not members.joint
    assert command.expected_epoch == members.change_epoch
    voters = set(members.voters)
    after, witnesses = set(voters), set(members.witnesses)
    for step in command.steps:
        assert step.replica not in members.removed
        if step.kind is not ChangeKind.REMOVE and members.contains(step.replica):
            assert (step.kind in OF_WITNESSES) is (step.replica in members.witnesses)
        if step.kind in OF_WITNESSES:
            assert shard.witnesses, "a witness of a log that was created without"
            witnesses.add(step.replica)
        if step.kind in _VOTES:
            after.add(step.replica)
        elif step.kind is ChangeKind.REMOVE:
            after.discard(step.replica)
        else:
            assert step.kind in (ChangeKind.ADD_LEARNER, ChangeKind.ADD_WITNESS_LEARNER)
            assert step.replica not in voters
            here_already = {
                one.store_id for one in members.members if members.contains(one.replica_id)
            }
            assert step.store not in here_already
    living = up(here, shard)
    assert after
    assert spare_votes(after, living) >= spare_votes(voters, living), command
    if after != voters:
        assert 2 * len(after & witnesses) < len(after), "INV-HK-WITNESS"
        arriving = after - voters
        assert len(arriving) <= 1
        assert arriving <= living or swapped_in_place(shard, command, living)
        assert spare_votes(after, living) >= 0


def judge(here: State) -> Counter[str]:
    """Judge every queued command and return how many of each kind there were."""
    kinds: Counter[str] = Counter()
    for store in here.sorted_stores():
        for queued in store.queue:
            command = queued.command
            kinds[type(command).__name__] += 1
            assert store.last_tick + TIMEOUT >= NOW, "a command for an expired store"
            if isinstance(command, ChangeMembership):
                judge_change(here, command)
            elif isinstance(command, RemoveReplica):
                members = here.shards[command.shard].members
                assert not members.contains(command.replica)
                known = store.replicas.get(command.shard)
                older = known is not None and known.epoch < members.change_epoch
                assert older or command.replica in members.removed
            elif isinstance(command, TransferLeader):
                shard = here.shards[command.shard]
                assert command.target in shard.members.full_voters
                assert command.target in up(here, shard), "a leader that is not there"
            else:
                assert isinstance(command, StartReplica)
                assert store.uses(command.incarnation)
                shard = here.shards[command.shard]
                assert shard.members.contains(command.replica)
                assert command.fresh == (command.replica not in shard.started)
    return kinds


def judge_operators(here: State, before: set[int]) -> None:
    changing = Counter(
        one.shard
        for one in here.operators.values()
        if one.kind in CHANGES_MEMBERSHIP and one.id not in before
    )
    assert all(count == 1 for count in changing.values())
    assert len(here.operators) - len(before) <= bounds.HAKEEPER_OPERATORS_MAX + 100
    ids = [queued.id for store in here.sorted_stores() for queued in store.queue]
    assert len(set(ids)) == len(ids)


def check_and_judge(states: range, version: int) -> Counter[str]:
    """Let passes decide in random states; return how many commands of each kind that gave."""
    kinds: Counter[str] = Counter()
    for seed in states:
        here = random_state(random.Random(seed), version)
        twin = state.load(state.save(here))
        before = set(here.operators)
        try:
            for _ in range(3):
                check.run(here)
            if here.phase in (Phase.RUNNING, Phase.COMMANDS_RECEIVED):
                kinds += judge(here)
            judge_operators(here, before)
            refused = [flag for flag in here.flags if "refused" in flag]
            if version > 1:
                # Here some operators bring a learner that is a voter, which none does that began.
                refused = [flag for flag in refused if not flag.endswith("is a voter")]
            assert not refused, here.flags
            for _ in range(3):
                check.run(twin)
            assert state.save(twin) == state.save(here), "the result depends on more than the state"
        except BaseException:
            print("seed", seed)
            raise
    return kinds


@pytest.mark.parametrize("most", [1, 3])
def test_no_random_state_leads_to_a_dangerous_command_when_few_operators_are_driven(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """INV-HK-DRIVES: what is left out of a pass keeps its command, which stays as harmless."""
    monkeypatch.setattr("logservice.bounds.HAKEEPER_DRIVES_PER_PASS_MAX", most)
    monkeypatch.setattr("logservice.bounds.HAKEEPER_DRIVES_IN_TURN_MIN", 1)
    states = cases(1000)
    kinds = check_and_judge(states, 2)
    for kind in ("ChangeMembership", "RemoveReplica", "StartReplica"):
        assert kinds[kind] > len(states) / 200, kinds


def test_no_random_state_leads_to_a_dangerous_command() -> None:
    kinds = check_and_judge(range(STATES), 1)
    assert kinds["ChangeMembership"] > STATES / 20, kinds
    assert kinds["RemoveReplica"] > STATES / 40, kinds
    assert kinds["StartReplica"] > STATES / 20, kinds


def test_the_last_gate_refuses_what_the_planners_would_never_ask() -> None:
    """`safety.objection` alone agrees with the oracle on random commands."""
    refused = allowed = 0
    for seed in range(1500):
        dice = random.Random(seed)
        here = random_state(dice)
        shard = dice.choice(here.sorted_shards())
        ids = [member.replica_id for member in shard.members.members] or [ReplicaId(1)]
        target = dice.choice(sorted(here.stores))
        kinds = [ChangeKind.REMOVE, ChangeKind.ADD_VOTER, ChangeKind.ADD_LEARNER]
        steps = tuple(
            Step(dice.choice(kinds), dice.choice(ids), "s0", Incarnation(1))
            for _ in range(dice.randrange(1, 3))
        )
        change = ChangeMembership(shard.shard, shard.members.change_epoch, steps)
        objection = safety.objection(here, target, change)
        live = here.stores[target].last_tick + TIMEOUT >= NOW
        voters = set(shard.members.voters)
        after = set(safety.voters_after(shard.members, change))
        if objection:
            refused += 1
            continue
        allowed += 1
        assert live
        assert not shard.members.joint
        living = up(here, shard)
        assert after == voters or spare_votes(after, living) >= spare_votes(voters, living)
    assert refused > 300
    assert allowed > 100


@pytest.fixture
def here() -> State:
    """A random state in which store s0 is live and shard 0 is placed."""
    for seed in range(1000):
        made = random_state(random.Random(seed))
        store = made.stores[StoreId("s0")]
        shard = made.shards[ShardId(0)]
        if store.last_tick == NOW and shard.initial and not shard.members.joint:
            return made
    raise AssertionError("no such state")


def test_the_gate_knows_every_reason(here: State) -> None:
    target = StoreId("s0")
    shard = here.shards[ShardId(0)]
    member = shard.members.voters[0]
    other = Incarnation(999)

    def objection(command: object, to: StoreId = target) -> str:
        return safety.objection(here, to, command)  # type: ignore[arg-type]

    late = ChangeMembership(ShardId(0), Index(shard.members.change_epoch + 1), ())
    unknown = ChangeMembership(ShardId(77), Index(1), ())
    everybody = tuple(Step(ChangeKind.REMOVE, one) for one in shard.members.voters)
    nobody = ChangeMembership(ShardId(0), shard.members.change_epoch, everybody)
    start = StartReplica(ShardId(0), member, other, shard.membership, join=True, fresh=True)
    assert "not live" in objection(nobody, StoreId("nobody"))
    assert "newest" in objection(late)
    assert "unknown" in objection(unknown)
    assert "tolerance" in objection(nobody)
    assert "is a member" in objection(RemoveReplica(ShardId(0), member))
    assert "unknown" in objection(RemoveReplica(ShardId(77), member))
    assert "data directory" in objection(start)
    assert "not up" in objection(TransferLeader(ShardId(0), member))
    assert objection(RemoveReplica(ShardId(0), ReplicaId(123_456))) == ""


def test_a_joint_configuration_is_not_changed(here: State) -> None:
    shard = here.shards[ShardId(0)]
    old = shard.members
    joint = Membership(
        voters=old.voters, outgoing=old.voters, members=old.members, change_epoch=old.change_epoch
    )
    shard.membership = joint.encode()
    change = ChangeMembership(ShardId(0), old.change_epoch, ())
    assert "joint" in safety.objection(here, StoreId("s0"), change)
