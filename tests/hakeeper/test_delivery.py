"""Heartbeats come in, and commands go out at least once, in order, to the right process. Ids are
allocated once per request."""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.store_commands import (
    CommandResult,
    RemoveReplica,
    ServiceOrder,
    TransferLeader,
)
from logservice.hakeeper.repair import check
from logservice.hakeeper.state import State
from logservice.hakeeper.stores import delivery
from logservice.hakeeper.stores.delivery import queue_command
from logservice.ids import Incarnation, Index, ReplicaId, ShardId, StoreId, Term
from logservice.membership import Membership
from logservice.outcome import Applied, Outcome
from tests.hakeeper.model import Model, rejected

S1 = StoreId("s1")


def beat(
    sequence: int, *, base: int = 0, boot: int = 1, incarnation: int = 1, **fields: object
) -> proposals.StoreHeartbeat:
    return proposals.StoreHeartbeat(
        S1,
        "",
        "s1:1",
        "s1:2",
        (proposals.DirectoryReport(Incarnation(incarnation)),),
        boot,
        sequence,
        base,
        **fields,  # type: ignore[arg-type]
    )


def report(
    shard: int, replica: int, incarnation: int = 1, epoch: int = 0, membership: bytes = b""
) -> proposals.ReplicaReport:
    return proposals.ReplicaReport(
        ShardId(shard),
        ReplicaId(replica),
        Incarnation(incarnation),
        Index(epoch),
        membership or Membership().encode(),
    )


def reply_of(outcome: Outcome) -> replies.HeartbeatReply:
    assert isinstance(outcome, Applied), outcome
    return replies.decode(outcome.data)


def order(state: State, shard: int) -> int:
    command = RemoveReplica(ShardId(shard), ReplicaId(1))
    return queue_command(state, state.stores[S1].queue, 0, command)


def test_a_command_is_repeated_until_its_result_arrives() -> None:
    model = Model(0)
    model.propose(beat(1))
    number = order(model.state, 5)
    for sequence in (2, 3, 4):
        commands = reply_of(model.propose(beat(sequence))).commands
        assert [queued.id for queued in commands] == [number]
    assert reply_of(model.propose(beat(5, results=(CommandResult(number),)))).commands == ()
    assert model.state.stores[S1].queue == []


def test_a_repeated_heartbeat_gets_the_same_answer_and_changes_nothing() -> None:
    model = Model(0)
    model.propose(beat(1, replicas=(report(1, 5),)))
    order(model.state, 5)
    first = reply_of(model.propose(beat(2, replicas=(report(2, 6),))))
    again = reply_of(model.propose(beat(2, replicas=(report(3, 7),))))
    assert again == first
    assert set(model.state.stores[S1].replicas) == {2}
    late = reply_of(model.propose(beat(1)))
    assert late.commands == first.commands
    assert set(model.state.stores[S1].replicas) == {2}


def test_differences_apply_to_the_last_heartbeat_only() -> None:
    model = Model(0)
    model.propose(beat(1, replicas=(report(1, 5), report(2, 6))))
    model.propose(beat(2, base=1, replicas=(report(3, 7),), gone=(ShardId(1),)))
    assert set(model.state.stores[S1].replicas) == {2, 3}
    answer = reply_of(model.propose(beat(4, base=3, gone=(ShardId(2),))))
    assert answer.need_full
    assert set(model.state.stores[S1].replicas) == {2, 3}
    assert not reply_of(model.propose(beat(5, replicas=(report(9, 9),)))).need_full
    assert set(model.state.stores[S1].replicas) == {9}


def test_a_difference_to_nothing_known_asks_for_everything() -> None:
    model = Model(0)
    assert reply_of(model.propose(beat(9, base=8))).need_full
    assert model.state.stores == {}
    model.propose(beat(1))
    assert reply_of(model.propose(beat(2, base=1, boot=2))).need_full
    assert model.state.stores[S1].boot_id == 1


def test_a_result_counts_even_when_the_reports_do_not() -> None:
    model = Model(0)
    model.propose(beat(1))
    number = order(model.state, 5)
    model.propose(beat(4, base=3, results=(CommandResult(number),)))
    assert model.state.stores[S1].queue == []


def test_a_heartbeat_of_an_earlier_process_is_refused() -> None:
    model = Model(0)
    model.propose(beat(7, boot=1, replicas=(report(1, 5),)))
    model.propose(beat(1, boot=2))
    assert rejected(model.propose(beat(8, boot=1, replicas=(report(1, 5),)))) is Reason.STALE_EPOCH
    assert model.state.stores[S1].replicas == {}
    for boot in range(3, 30):
        model.propose(beat(1, boot=boot))
    assert len(model.state.stores[S1].old_boots) == bounds.HAKEEPER_BOOTS_REMEMBERED


def test_another_data_directory_does_not_get_the_old_ones_commands() -> None:
    model = Model(0)
    model.propose(beat(1))
    order(model.state, 5)
    reply = reply_of(model.propose(beat(1, boot=2, incarnation=2)))
    assert reply.commands == ()
    assert model.state.stores[S1].queue == []


def test_an_answer_carries_a_bounded_number_of_commands_in_order() -> None:
    model = Model(0)
    model.propose(beat(1))
    numbers = [order(model.state, shard) for shard in range(100)]
    first = reply_of(model.propose(beat(2))).commands
    assert [one.id for one in first] == numbers[: bounds.HAKEEPER_COMMANDS_PER_REPLY_MAX]
    results = tuple(CommandResult(one.id) for one in first)
    rest = reply_of(model.propose(beat(3, results=results))).commands
    assert [one.id for one in rest] == numbers[bounds.HAKEEPER_COMMANDS_PER_REPLY_MAX :]


def test_contradicting_reports_are_refused_whole() -> None:
    model = Model(3)
    model.start(shards=1)
    before = model.state.stores[S1].sequence
    incarnation = int(model.stores[S1].incarnation)
    boot = model.stores[S1].boot_id
    twice = (report(1, 5, incarnation), report(1, 6, incarnation))
    damaged = (report(1, 5, incarnation, 1, b"damaged"),)
    other = Membership(change_epoch=Index(4)).encode()
    wrong_epoch = (report(1, 5, incarnation, 9, other),)
    for reports, field in (
        (twice, "replicas"),
        (damaged, "membership"),
        (wrong_epoch, "epoch"),
        ((report(1, 5, incarnation + 1),), "incarnation"),
    ):
        outcome = model.propose(beat(9999, boot=boot, incarnation=incarnation, replicas=reports))
        assert rejected(outcome) is Reason.INVALID_ARGUMENT
        assert outcome.metadata == {"field": field}  # type: ignore[union-attr]
    assert model.state.stores[S1].sequence == before


def test_the_table_of_stores_is_bounded() -> None:
    model = Model(0)
    for number in range(bounds.HAKEEPER_STORES_MAX):
        heartbeat = proposals.StoreHeartbeat(
            StoreId(f"x{number}"),
            "",
            "",
            "",
            (proposals.DirectoryReport(Incarnation(100 + number)),),
            1,
            1,
        )
        model.propose(heartbeat)
    assert rejected(model.propose(beat(1))) is Reason.BUSY


def test_the_directory_names_every_store() -> None:
    model = Model(3)
    model.start()
    incarnation = int(model.stores[S1].incarnation)
    answer = model.propose(beat(9999, boot=model.stores[S1].boot_id, incarnation=incarnation))
    directory = reply_of(answer).directory
    assert [entry.store for entry in directory] == ["s1", "s2", "s3"]
    assert directory[1].client_address == "s2:2"


# --- services --------------------------------------------------------------------------------


def service(name: str, *acked: int) -> proposals.ServiceHeartbeat:
    return proposals.ServiceHeartbeat(name, "cn", f"{name}:1", {}, acked)


def schedule(model: Model, *orders: proposals.Order, term: int = 0) -> Outcome:
    return model.propose(proposals.ScheduleCommands(Term(term or model.term), orders))


def test_services_get_their_commands_at_least_once() -> None:
    model = Model(3)
    model.start()
    model.propose(service("cn-1"))
    outcome = schedule(
        model,
        proposals.Order("cn-1", ServiceOrder("flush", b"1")),
        proposals.Order("cn-1", ServiceOrder("flush", b"2")),
    )
    assert isinstance(outcome, Applied)
    first = outcome.value
    for _ in range(2):
        commands = reply_of(model.propose(service("cn-1"))).commands
        assert [queued.id for queued in commands] == [first, first + 1]
    [left] = reply_of(model.propose(service("cn-1", first))).commands
    assert left.command == ServiceOrder("flush", b"2")
    assert reply_of(model.propose(service("cn-2"))).commands == ()


def test_only_harmless_commands_can_be_scheduled() -> None:
    """G8: only the checkers change a membership, so no order can remove a replica."""
    model = Model(3)
    model.start()
    model.propose(service("cn-1"))
    for target, command in (
        ("s1", RemoveReplica(ShardId(1), ReplicaId(1024))),
        ("s1", ServiceOrder("x", b"")),
        ("cn-1", TransferLeader(ShardId(1), ReplicaId(1024))),
        ("nobody", ServiceOrder("x", b"")),
    ):
        outcome = schedule(model, proposals.Order(target, command))
        assert rejected(outcome) is Reason.INVALID_ARGUMENT
    assert all(not store.queue for store in model.state.stores.values())


def test_leadership_can_be_moved_by_order() -> None:
    model = Model(3)
    model.start()
    oracle = model.shards[ShardId(1)]
    target = oracle.membership.voters[2]
    member = oracle.membership.member(target)
    assert member is not None
    outcome = schedule(model, proposals.Order(member.store_id, TransferLeader(ShardId(1), target)))
    assert isinstance(outcome, Applied)
    model.run(20)
    assert oracle.leader == target
    assert model.state.stores[member.store_id].queue == []


def test_a_schedule_of_another_term_is_refused() -> None:
    model = Model(3)
    model.start()
    model.propose(service("cn-1"))
    order_one = proposals.Order("cn-1", ServiceOrder("x", b""))
    for term in (model.term - 1, model.term + 1):
        if term:
            assert rejected(schedule(model, order_one, term=term)) is Reason.STALE_EPOCH
    assert model.state.services["cn-1"].queue == []


def test_queues_of_services_are_bounded() -> None:
    model = Model(3)
    model.start()
    model.propose(service("cn-1"))
    orders = [proposals.Order("cn-1", ServiceOrder("x", b""))] * bounds.HAKEEPER_QUEUE_MAX
    assert isinstance(schedule(model, *orders), Applied)
    assert rejected(schedule(model, orders[0])) is Reason.BUSY
    assert len(model.state.services["cn-1"].queue) == bounds.HAKEEPER_QUEUE_MAX


def test_an_expired_service_makes_room_for_a_new_one() -> None:
    model = Model(3)
    model.start()
    for number in range(bounds.HAKEEPER_SERVICES_PER_OWNER_MAX):
        model.propose(service(f"cn-{number}"))
    assert rejected(model.propose(service("new"))) is Reason.BUSY
    model.state.tick += bounds.HAKEEPER_SERVICE_TIMEOUT_TICKS
    model.propose(service("cn-0"))
    model.run(bounds.HAKEEPER_TICKS_PER_S)
    assert isinstance(model.propose(service("new")), Applied)
    assert "cn-0" in model.state.services
    assert "cn-1" not in model.state.services


def test_acknowledging_outside_of_a_heartbeat() -> None:
    model = Model(3)
    model.start()
    model.propose(service("cn-1"))
    outcome = schedule(model, proposals.Order("cn-1", ServiceOrder("x", b"")))
    assert isinstance(outcome, Applied)
    ack = proposals.AckCommands("cn-1", (CommandResult(outcome.value),))
    assert model.propose(ack) == Applied()
    assert model.state.services["cn-1"].queue == []
    number = order(model.state, 5)
    assert model.propose(proposals.AckCommands("s1", (CommandResult(number),))) == Applied()
    assert model.state.stores[S1].queue == []
    stranger = proposals.AckCommands("nobody", (CommandResult(number),))
    assert rejected(model.propose(stranger)) is Reason.INVALID_ARGUMENT


# --- ids -------------------------------------------------------------------------------------


def allocate(model: Model, key: str, count: int, request: str = "") -> Outcome:
    return model.propose(proposals.AllocateIds(key, count, request))


def test_ranges_of_ids_never_overlap() -> None:
    model = Model(3)
    model.start()
    assert allocate(model, "", 100) == Applied(value=1, count=100)
    assert allocate(model, "", 1) == Applied(value=101, count=1)
    assert allocate(model, "other", 5) == Applied(value=1, count=5)


def test_a_repeated_request_gets_the_same_range_also_after_a_snapshot() -> None:
    model = Model(3)
    model.start()
    assert allocate(model, "k", 10, "r") == Applied(value=1, count=10)
    model.new_hakeeper_leader()
    assert allocate(model, "k", 10, "r") == Applied(value=1, count=10, duplicate=True)
    assert allocate(model, "k", 10, "s") == Applied(value=11, count=10)
    assert allocate(model, "other", 10, "r") == Applied(value=1, count=10)


def test_the_memory_of_requests_is_bounded() -> None:
    model = Model(3)
    model.start()
    for number in range(bounds.ALLOCATE_REQUESTS_REMEMBERED + 2):
        allocate(model, "k", 1, f"r{number}")
    assert len(model.state.id_requests) == bounds.ALLOCATE_REQUESTS_REMEMBERED
    assert allocate(model, "k", 1, "r2") == Applied(value=3, count=1, duplicate=True)
    fresh = allocate(model, "k", 1, "r0")
    assert fresh == Applied(value=bounds.ALLOCATE_REQUESTS_REMEMBERED + 3, count=1)


def test_ids_before_the_first_configuration_and_beyond_the_bounds() -> None:
    model = Model(0)
    assert rejected(allocate(model, "", 1)) is Reason.NOT_READY
    model.state.phase = Phase.RUNNING
    model.state.id_counters["k"] = 2**62 - 5
    assert rejected(allocate(model, "k", 10)) is Reason.TOO_LARGE
    assert allocate(model, "k", 5) == Applied(value=2**62 - 5, count=5)
    model.state.id_counters = {str(number): 1 for number in range(bounds.ALLOCATE_KEYS_MAX)}
    assert rejected(allocate(model, "new", 1)) is Reason.BUSY
    assert allocate(model, "5", 1) == Applied(value=1, count=1)


def test_a_command_that_reached_no_leader_is_sent_to_the_leader_at_once() -> None:
    """It does not wait for HAKEEPER_COMMAND_RETRY_TICKS, because stores do not forward changes any
    more.
    """
    model = Model(4)
    model.start()
    model.kill("s1")
    model.run_until(lambda: any(one.command_id for one in model.state.operators.values()), 300)
    operator = next(one for one in model.state.operators.values() if one.command_id)
    first, store = operator.command_id, model.state.stores[operator.target]
    delivery.acknowledge(model.state, store, [CommandResult(first, Reason.NOT_LEADER.value)])
    check.run(model.state)
    assert operator.command_id > first
    assert any(item.id == operator.command_id for item in store.queue)
