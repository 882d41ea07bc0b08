"""Single decisions of operators and of the pass that drives them."""

from __future__ import annotations

from logservice import bounds
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.store_commands import ChangeMembership, StartReplica
from logservice.hakeeper.repair.operators import Finish, Send, plan
from logservice.hakeeper.state import Operator, Repair
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, Incarnation, ReplicaId, ShardId, StoreId
from logservice.membership import Member
from logservice.outcome import Applied
from logservice.versions import KNOWN
from tests.hakeeper.model import Model, expiry

ONE = ShardId(1)


def catching_up(stores: int = 5) -> Model:
    """A cluster that lost store 1; shard 0's learner is on its way and far behind."""
    model = Model(stores)
    model.start(shards=0)
    model.copy_speed = 0
    model.shards[HAKEEPER_SHARD].last += 100_000
    model.kill("s1")
    model.run_until(lambda: _step(model) == "catching up", 400)
    return model


def _step(model: Model) -> str:
    operators = model.state.sorted_operators()
    return operators[0].step if operators else ""


def test_a_learner_that_halts_is_given_up() -> None:
    model = catching_up()
    first = model.state.sorted_operators()[0]
    model.stores[first.store].copies[HAKEEPER_SHARD].halted = "damaged"
    model.copy_speed = 5000
    model.run_until(model.healthy, 600)
    members = model.shards[HAKEEPER_SHARD].membership
    assert first.replica in members.removed
    assert not members.contains(first.replica)


def test_a_learner_whose_store_lost_its_disk_is_given_up() -> None:
    model = catching_up()
    first = model.state.sorted_operators()[0]
    model.wipe(first.store)
    model.copy_speed = 5000
    model.run_until(model.healthy, 600)
    assert first.replica in model.shards[HAKEEPER_SHARD].membership.removed


def test_a_learner_whose_data_is_gone_is_given_up() -> None:
    model = catching_up()
    first = model.state.sorted_operators()[0]
    del model.stores[first.store].copies[HAKEEPER_SHARD]
    model.executions.clear()
    model.copy_speed = 5000
    model.run_until(model.healthy, 600)
    assert first.replica in model.shards[HAKEEPER_SHARD].membership.removed
    attempts = [
        queued.command
        for _, queued in model.executions
        if isinstance(queued.command, StartReplica) and queued.command.replica == first.replica
    ]
    assert [one.fresh for one in attempts] == [False]


def test_a_store_that_cannot_start_a_learner_is_given_up_after_so_many_times() -> None:
    """Until HAKEEPER_STEP_FAILURES_MAX is reached the store is asked again, then another one is."""
    model = Model(5)
    model.start(shards=0)
    for store in model.stores.values():
        store.refuses.add(HAKEEPER_SHARD)
    model.kill("s1")
    model.run_until(lambda: bool(model.state.operators), 600)
    first = model.state.sorted_operators()[0]
    most = 0

    def given_up() -> bool:
        nonlocal most
        known = model.state.operators.get(first.id)
        most = max(most, known.failures if known is not None else 0)
        return first.store in model.state.shards[HAKEEPER_SHARD].avoid

    model.run_until(given_up, 600)
    assert most == bounds.HAKEEPER_STEP_FAILURES_MAX
    for store in model.stores.values():
        store.refuses.clear()
    model.run_until(model.healthy, 600)
    assert not any(
        one.store_id == first.store for one in model.shards[HAKEEPER_SHARD].membership.members
    )


def test_a_late_initial_member_starts_from_the_recorded_beginning() -> None:
    """The membership has changed since, but its log begins at the same snapshot as the others'."""
    model = Model(6)
    model.start(shards=0)
    model.propose(proposals.CreateShard(ONE, "", 5))
    shard = model.state.shards[ONE]
    born = shard.initial
    late, lost, *_ = shard.members.members
    model.stores[late.store_id].refuses.add(ONE)
    model.run(60)
    model.kill(lost.store_id)
    model.run_until(lambda: "leave" in model.shards[ONE].changes, 600)
    model.run(50)
    assert shard.membership != shard.initial == born
    model.executions.clear()
    model.stores[late.store_id].refuses.clear()
    model.run(60)
    starts = [
        queued.command
        for store, queued in model.executions
        if store == late.store_id and isinstance(queued.command, StartReplica)
    ]
    assert [(one.shard, one.membership, one.join, one.fresh) for one in starts] == [
        (ONE, born, False, True)
    ]
    assert late.replica_id in model.running(ONE)


def test_a_command_without_effect_is_repeated_at_a_measured_pace() -> None:
    model = Model(4)
    model.start(shards=1)
    store = next(one for one in model.stores.values() if ONE in one.copies)
    store.copies[ONE].running = False
    store.refuses.add(ONE)
    model.executions.clear()
    model.run(300)
    attempts = [one for one in model.executions if isinstance(one[1].command, StartReplica)]
    assert 5 <= len(attempts) <= 300 // bounds.HAKEEPER_COMMAND_RETRY_TICKS + 1
    assert len({queued.id for _, queued in attempts}) == len(attempts)


def test_a_replaced_command_leaves_the_queue() -> None:
    """One operator never has two commands waiting, whatever it wanted before."""
    model = Model(4)
    model.start(shards=1)
    model.kill("s1")
    for _ in range(400):
        model.run(1)
        queued = [one.operator for store in model.state.sorted_stores() for one in store.queue]
        assert len(queued) == len(set(queued))
    model = Model(3)
    model.start(shards=1)
    leader = model.shards[ONE].leader
    member = model.shards[ONE].membership.member(leader)
    assert member is not None
    model.add_store("s4")
    other = next(one for one in model.shards[ONE].membership.members if one != member)
    model.kill(other.store_id)
    seen: set[StoreId] = set()
    for _ in range(300):
        model.run(1)
        for store in model.state.sorted_stores():
            for one in store.queue:
                if isinstance(one.command, ChangeMembership) and one.command.shard == ONE:
                    seen.add(store.store)
                    # The leader moves before the command is fetched, and the next plan follows.
                    model.shards[ONE].leader = NO_REPLICA
        queued = [one.operator for store in model.state.sorted_stores() for one in store.queue]
        assert len(queued) == len(set(queued))
    assert seen


def test_a_replica_that_is_being_repaired_is_left_alone_until_its_repair_stands_still() -> None:
    model = Model(4)
    model.start(shards=1)
    store = next(one for one in model.stores.values() if ONE in one.copies)
    copy = store.copies[ONE]
    copy.halted, copy.repairing = "damaged", True
    model.run(200)
    assert model.state.shards[ONE].members.contains(copy.replica)
    assert not model.state.operators
    copy.repairing = False
    model.run_until(lambda: copy.replica in model.shards[ONE].membership.removed, 300)
    model.run_until(model.healthy, 600)


def test_a_halted_replica_without_a_spare_store_is_replaced_on_its_own_store() -> None:
    """The halted replica never votes again, so without it the shard survives as many failures as
    before (G8).

    Three stores are the usual cluster. Without this its shard would stay at two replicas for ever.
    """
    model = Model(3)
    model.start(shards=1)
    store = next(one for one in model.stores.values() if ONE in one.copies)
    old = store.copies[ONE].replica
    store.copies[ONE].halted = "damaged"
    model.run_until(lambda: old in model.shards[ONE].membership.removed, 300)
    model.run_until(model.healthy, 600)
    assert store.copies[ONE].replica != old
    assert len(model.shards[ONE].membership.voters) == 3


def test_time_alone_wakes_the_checkers_when_a_disk_was_replaced() -> None:
    model = Model(4, timeout=150)
    model.start(shards=0)
    model.wipe("s1")
    model.run_until(
        lambda: model.state.stores[StoreId("s1")].uses(model.stores[StoreId("s1")].incarnation),
        20,
    )
    changed = model.state.stores[StoreId("s1")].directories_tick
    model.run_until(lambda: bool(model.state.operators), 300)
    assert model.state.tick - changed == model.timeout + 1


def test_time_alone_wakes_the_checkers_when_a_store_has_settled() -> None:
    model = Model(4, timeout=150)
    model.start(shards=0)
    model.kill("s4")
    model.run(expiry(model) + 50)
    model.kill("s1")
    model.run(expiry(model) + 20)
    assert "shard 0: no spare store to replace replica 1" in model.state.flags
    model.revive("s4")
    model.run_until(lambda: bool(model.state.operators), 200)
    spare = model.state.stores[StoreId("s4")]
    assert model.state.tick - spare.live_since == model.timeout // 2


def test_a_lost_mark_goes_with_its_replica() -> None:
    model = Model(4)
    model.start(shards=1)
    store = next(one for one in model.stores.values() if ONE in one.copies)
    del store.copies[ONE]
    model.run_until(lambda: bool(model.state.shards[ONE].lost), 100)
    model.run_until(model.healthy, 400)
    assert model.state.shards[ONE].lost == []
    assert set(model.state.shards[ONE].started) == set(model.shards[ONE].membership.voters)


def test_a_slow_repair_is_flagged_and_goes_on() -> None:
    model = catching_up()
    model.run(bounds.HAKEEPER_SLOW_OPERATOR_TICKS)
    assert [flag for flag in model.state.flags if "is slow: catching up" in flag]
    model.copy_speed = 50_000
    model.run_until(model.healthy, 200)
    assert model.state.flags == {}


def test_a_lost_voter_too_many_is_removed_and_a_live_one_is_flagged() -> None:
    model = Model(5)
    model.start(shards=0, replicas=5)
    model.state.shards[HAKEEPER_SHARD].wanted = 4
    model.state.dirty = True
    model.run(50)
    assert list(model.state.flags) == ["shard 0: more voters than wanted"]
    assert not model.shards[HAKEEPER_SHARD].changes
    model.kill("s5")
    model.run_until(lambda: model.healthy(4), 300)
    assert model.shards[HAKEEPER_SHARD].changes == ["REMOVE"]


def test_fewer_voters_than_wanted_get_another_one() -> None:
    model = Model(4)
    model.start(shards=0)
    model.state.shards[HAKEEPER_SHARD].wanted = 4
    model.state.dirty = True
    model.run_until(lambda: model.healthy(4), 200)
    assert model.shards[HAKEEPER_SHARD].changes == ["ADD_LEARNER", "ADD_VOTER"]
    model.state.shards[HAKEEPER_SHARD].wanted = 5
    model.state.dirty = True
    model.run(50)
    assert list(model.state.flags) == ["shard 0: no spare store for another replica"]


def test_a_removal_that_waits_gives_way_to_that_of_a_voter_that_cannot_help() -> None:
    """Short seed 710085 with commit groups of 60 bytes: one voter halted after the removal of
    another had begun, and the removal and the repair waited for each other.
    """
    model = Model(5, versions=KNOWN)
    model.start(shards=1, replicas=5)
    members = sorted(model.shards[ONE].membership.members, key=lambda one: one.store_id)
    well, lost = members[-2:]

    def removal(member: Member) -> Operator:
        replica, store = member.replica_id, member.store_id
        return Operator(99, Repair.REMOVE, ONE, replica, replica, store, Incarnation(0), 0)

    model.kill(lost.store_id)
    model.run(expiry(model))
    model.state.shards[ONE].wanted = 4
    assert plan(model.state, removal(well)) == Finish("another voter cannot help")
    assert isinstance(plan(model.state, removal(lost)), Send)
    waiting = removal(well)
    waiting.id = model.state.next_operator_id
    model.state.next_operator_id += 1
    model.state.operators = {waiting.id: waiting}
    model.state.dirty = True
    model.run_until(lambda: len(model.shards[ONE].membership.voters) == 4, 300)
    assert lost not in model.shards[ONE].membership.members


def test_operators_about_what_is_gone_finish() -> None:
    model = Model(3)
    model.start(shards=1)
    shard = model.shards[ONE].membership

    def operator(kind: Repair, replica: int, shard_id: ShardId = ONE) -> Operator:
        return Operator(
            1,
            kind,
            shard_id,
            ReplicaId(replica),
            ReplicaId(replica),
            StoreId("s1"),
            model.stores[StoreId("s1")].incarnation,
            0,
        )

    for kind in Repair:
        assert plan(model.state, operator(kind, 5, ShardId(99))) == Finish("the shard is gone")
    assert plan(model.state, operator(Repair.START, 5)) == Finish("no member any more")
    assert plan(model.state, operator(Repair.START, shard.voters[0])) == Finish("done")
    assert plan(model.state, operator(Repair.KILL, shard.voters[0])) == Finish("it is a member")
    assert plan(model.state, operator(Repair.KILL, 5)) == Finish("done")
    assert plan(model.state, operator(Repair.REMOVE, 5)) == Finish("done")
    assert plan(model.state, operator(Repair.ADD, shard.voters[0])) == Finish("done")
    live = plan(model.state, operator(Repair.REMOVE, shard.voters[0]))
    assert live == Finish("the replica is back")


def test_a_change_goes_to_a_live_voter_when_no_leader_is_known() -> None:
    model = Model(4)
    model.start(shards=0)
    for store in model.state.stores.values():
        for shard, report in store.replicas.items():
            store.replicas[shard] = proposals.ReplicaReport(
                shard, report.replica, report.incarnation, report.epoch, report.membership
            )
    arrival = Operator(
        1,
        Repair.REPLACE,
        HAKEEPER_SHARD,
        ReplicaId(2000),
        ReplicaId(1),
        StoreId("s4"),
        Incarnation(1004),
        0,
    )
    model.kill("s1")
    model.state.stores[StoreId("s1")].last_tick = -1000
    wanted = plan(model.state, arrival)
    assert isinstance(wanted, Send)
    assert (wanted.target, wanted.step) == ("s2", "add the learner")


def test_too_many_shards_are_busy() -> None:
    model = Model(3)
    model.start()
    shard = model.state.shards[ONE]
    for number in range(2, bounds.HAKEEPER_SHARDS_MAX):
        model.state.shards[ShardId(number)] = shard
    outcome = model.propose(proposals.CreateShard(ShardId(0), "", 0))
    assert not isinstance(outcome, Applied)
    assert outcome.reason.value == "BUSY"
