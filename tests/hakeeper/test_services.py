"""Services are bounded, belong to their owner, and go when they are silent (INV-HK-SERVICES)."""

from __future__ import annotations

import msgspec
import pytest
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.answers.views import cluster_view
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.verbs import SetWorkState, WorkState
from logservice.hakeeper.state import load
from logservice.ids import Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId
from logservice.outcome import Applied, Outcome, Rejected
from logservice.versions import KNOWN
from tests.hakeeper.model import Model, rejected


def beat(name: str, owner: str = "a", **labels: str) -> proposals.ServiceHeartbeat:
    return proposals.ServiceHeartbeat(name, "cn", "host:1", labels, owner=owner)


def order(
    service: str, request_id: str, payload: bytes = b"", kind: str = "reload"
) -> proposals.SendOrder:
    return proposals.SendOrder(service, kind, payload, request_id, owner="admin")


def fitting(name: str, spare: int = 0) -> dict[str, str]:
    """Labels with which a service takes `spare` bytes less than the bound."""
    left = bounds.HAKEEPER_SERVICE_BYTES_MAX - len(name) - len("cn") - len("host:1") - spare
    labels: dict[str, str] = {}
    while left:
        key = f"{len(labels):04}"
        size = min(left - len(key), 120)
        if 0 < left - len(key) - size <= len(key):
            size -= 8
        labels[key] = "x" * size
        left -= len(key) + size
    return labels


def test_what_one_service_takes_is_bounded() -> None:
    """46 KB of labels in each of 4 096 services once made a snapshot that no replica ever got."""
    model = Model(3)
    model.start()
    assert isinstance(model.propose(beat("s", **fitting("s"))), Applied)
    before = model.rsm.save_snapshot()
    assert rejected(model.propose(beat("t", **fitting("t"), y=""))) is Reason.TOO_LARGE
    huge = {f"{number:0128}": "x" * 128 for number in range(bounds.HAKEEPER_LABELS_MAX)}
    assert rejected(model.propose(beat("t", **huge))) is Reason.TOO_LARGE
    assert len(model.rsm.save_snapshot()) == len(before)


def test_one_identity_does_not_crowd_out_the_services_of_others() -> None:
    model = Model(3)
    model.start()
    for number in range(bounds.HAKEEPER_SERVICES_PER_OWNER_MAX):
        assert isinstance(model.propose(beat(f"a{number}", **fitting("a", 3))), Applied)
    assert rejected(model.propose(beat("one more"))) is Reason.BUSY
    assert isinstance(model.propose(beat("other", owner="b")), Applied)
    # The identity can still send heartbeats for the services it has.
    assert isinstance(model.propose(beat("a0")), Applied)


def test_the_state_of_shard_0_fits_a_snapshot_with_all_the_services_there_may_be() -> None:
    model = Model(3)
    model.start()
    for number in range(bounds.HAKEEPER_SERVICES_MAX):
        name, owner = f"s{number:04}", str(number // bounds.HAKEEPER_SERVICES_PER_OWNER_MAX)
        assert isinstance(model.propose(beat(name, owner, **fitting(name))), Applied)
    assert rejected(model.propose(beat("one more", "z"))) is Reason.BUSY
    limit = bounds.HAKEEPER_SERVICES_MAX * (bounds.HAKEEPER_SERVICE_BYTES_MAX + 512)
    assert len(model.rsm.save_snapshot()) < limit


def test_a_service_belongs_to_who_registered_it_for_as_long_as_it_lives() -> None:
    model = Model(3)
    model.start()
    model.propose(beat("cn-1", owner="a", zone="a"))
    assert rejected(model.propose(beat("cn-1", owner="b"))) is Reason.PERMISSION_DENIED
    assert model.state.services["cn-1"].labels == {"zone": "a"}
    model.run(bounds.HAKEEPER_SERVICE_TIMEOUT_TICKS + 11)
    assert model.state.services == {}, "silence alone ends it"
    assert isinstance(model.propose(beat("cn-1", owner="b")), Applied)


def test_ids_are_allocated_again_only_to_who_asked_for_them() -> None:
    """Another identity that guessed a request id once got the same range: two had the same ids."""
    model = Model(3)
    model.start()
    first = model.propose(proposals.AllocateIds("k", 10, "request", owner="a"))
    again = model.propose(proposals.AllocateIds("k", 10, "request", owner="a"))
    other = model.propose(proposals.AllocateIds("k", 10, "request", owner="b"))
    assert isinstance(first, Applied)
    assert isinstance(again, Applied)
    assert isinstance(other, Applied)
    assert (first.value, again.value, other.value) == (1, 1, 11)


def test_what_one_store_reports_is_bounded_however_it_adds_up() -> None:
    """Reports are differences. Each may be small, and all of them as large as the store likes."""
    model = Model(3)
    model.start()
    known = model.state.stores[StoreId("s1")]
    sequence, refused = known.sequence, False
    for round_ in range(12):
        reports = tuple(
            proposals.ReplicaReport(
                ShardId(1000 + 50 * round_ + number),
                ReplicaId(9),
                known.directories[0].incarnation,
                Index(0),
                b"",
                halted="x" * 1000,
                match=tuple((ReplicaId(one + 1), Index(1)) for one in range(625)),
            )
            for number in range(50)
        )
        outcome = model.propose(
            proposals.StoreHeartbeat(
                StoreId("s1"),
                "",
                "s1:1",
                "s1:2",
                known.directories,
                known.boot_id,
                sequence + 1,
                sequence,
                replicas=reports,
            )
        )
        if not isinstance(outcome, Applied):
            assert rejected(outcome) is Reason.INVALID_ARGUMENT
            refused = True
            break
        sequence += 1
    assert refused
    assert len(model.rsm.save_snapshot()) < 2 * bounds.HAKEEPER_STORE_BYTES_MAX


def test_the_labels_of_a_store_are_bounded() -> None:
    model = Model(3)
    model.start()
    labels = {f"{number:0100}": "x" * 100 for number in range(bounds.HAKEEPER_LABELS_MAX)}
    new = proposals.StoreHeartbeat(
        StoreId("s9"),
        "",
        "s9:1",
        "s9:2",
        (proposals.DirectoryReport(Incarnation(99)),),
        1,
        1,
        labels=labels,
    )
    assert rejected(model.propose(new)) is Reason.INVALID_ARGUMENT


def test_a_command_waits_until_the_service_acknowledges_it() -> None:
    model = Model(3, versions=KNOWN)
    model.start()
    model.propose(beat("cn-1", zone="z1"))
    sent = model.propose(order("cn-1", "r", b"now"))
    assert isinstance(sent, Applied)
    for _ in range(2):
        answer = model.propose(beat("cn-1"))
        assert isinstance(answer, Applied)
        (command,) = replies.decode(answer.data).commands
        assert command.id == sent.value
    (view,) = cluster_view(model.rsm.state).services
    assert (view.kind, view.owner, view.waiting) == ("cn", "a", (sent.value,))
    done = proposals.ServiceHeartbeat("cn-1", "cn", "host:1", acked=(sent.value,), owner="a")
    answer = model.propose(done)
    assert isinstance(answer, Applied)
    assert replies.decode(answer.data).commands == ()
    assert cluster_view(model.rsm.state).services[0].waiting == ()


def work_state(model: Model, drained: bool = False) -> str:
    """What the service is told with its next heartbeat, and what is shown of it."""
    answer = model.propose(msgspec.structs.replace(beat("cn-1"), drained=drained))
    assert isinstance(answer, Applied)
    (view,) = cluster_view(model.rsm.state).services
    told = replies.decode(answer.data).work_state
    assert view.work_state == told
    return told


def test_a_service_drains_until_it_says_that_it_is_drained() -> None:
    model = Model(3, versions=KNOWN)
    model.start()
    assert work_state(model) == "working"
    assert work_state(model, drained=True) == "working"  # nobody told it to
    for _ in range(2):
        assert model.propose(SetWorkState("cn-1", WorkState.DRAINING)) == Applied()
        assert work_state(model) == "draining"
    assert work_state(model, drained=True) == "drained"
    assert model.propose(SetWorkState("cn-1", WorkState.DRAINING)) == Applied()
    assert work_state(model, drained=True) == "drained"
    assert work_state(model) == "draining"  # it got work again, or was started again
    kept = load(model.rsm.save_snapshot())
    assert kept.services["cn-1"].work_state is WorkState.DRAINING
    assert model.propose(SetWorkState("cn-1", WorkState.WORKING)) == Applied()
    assert work_state(model, drained=True) == "working"
    told = [one.kind for one in model.rsm.state.feed.ring if one.store == "cn-1"]
    assert told == ["service-joined", "verb", "service-drained", "verb"]


def test_who_is_unknown_does_not_drain_and_only_the_service_says_that_it_is_drained() -> None:
    model = Model(3, versions=KNOWN)
    model.start()
    work_state(model)
    before = cluster_view(model.rsm.state)
    unknown = SetWorkState("cn-2", WorkState.DRAINING)
    assert rejected(model.propose(unknown)) is Reason.INVALID_ARGUMENT
    for_it = SetWorkState("cn-1", WorkState.DRAINED)
    assert rejected(model.propose(for_it)) is Reason.INVALID_ARGUMENT
    assert cluster_view(model.rsm.state) == before


def test_a_service_is_shown_until_it_expires() -> None:
    model = Model(3, versions=KNOWN)
    model.start()
    model.propose(beat("cn-1"))
    model.run(100)
    (view,) = cluster_view(model.rsm.state).services
    assert view.ticks_since_heartbeat == 100
    left = view.expires_in_ticks
    assert left == bounds.HAKEEPER_SERVICE_TIMEOUT_TICKS + 1 - 100
    model.run(left - 1)
    assert len(cluster_view(model.rsm.state).services) == 1
    model.run(bounds.HAKEEPER_TICKS_PER_S)
    assert cluster_view(model.rsm.state).services == ()


def test_commands_that_wait_are_bounded() -> None:
    model = Model(3, versions=KNOWN)
    model.start()
    large = order("cn-0", "r", b"x" * bounds.HAKEEPER_ORDER_BYTES_MAX)
    assert rejected(model.propose(large)) is Reason.INVALID_ARGUMENT
    services = bounds.HAKEEPER_ORDERS_MAX // bounds.HAKEEPER_QUEUE_MAX
    for number in range(services + 1):
        model.propose(beat(f"cn-{number}"))
    for number in range(services):
        for again in range(bounds.HAKEEPER_QUEUE_MAX):
            assert isinstance(model.propose(order(f"cn-{number}", f"{number}.{again}")), Applied)
        if not number:
            assert rejected(model.propose(order("cn-0", "more"))) is Reason.BUSY
    last = order(f"cn-{services}", "more")
    assert rejected(model.propose(last)) is Reason.BUSY
    repeated = model.propose(order("cn-0", "0.7"))
    assert isinstance(repeated, Applied), "a repetition needs no room"
    assert repeated.duplicate
    long = order("cn-0", "long", b"x" * (bounds.HAKEEPER_ORDER_BYTES_MAX + 1))
    assert rejected(model.propose(long)) is Reason.INVALID_ARGUMENT


def test_a_request_that_is_repeated_is_one_command() -> None:
    """INV-HK-ORDERS, whatever became of the first: it waits, was handled, or went."""
    model = Model(3, versions=KNOWN)
    model.start()
    model.propose(beat("cn-1"))
    sent = model.propose(order("cn-1", "r", b"now"))
    assert isinstance(sent, Applied)
    same = Applied(value=sent.value, duplicate=True)

    def waiting() -> tuple[int, ...]:
        return cluster_view(model.rsm.state).services[0].waiting

    assert model.propose(order("cn-1", "r", b"now")) == same
    assert waiting() == (sent.value,)
    model.propose(proposals.ServiceHeartbeat("cn-1", "cn", "h:1", acked=(sent.value,), owner="a"))
    assert model.propose(order("cn-1", "r", b"now")) == same
    assert waiting() == ()
    model.run(bounds.HAKEEPER_SERVICE_TIMEOUT_TICKS + 11)
    assert model.propose(order("cn-1", "r", b"now")) == same
    model.propose(beat("cn-1"))
    model.rsm.recover_from_snapshot(model.rsm.save_snapshot())
    assert model.propose(order("cn-1", "r", b"now")) == same
    assert waiting() == ()


def test_a_request_id_is_of_one_identity_and_one_command() -> None:
    model = Model(3, versions=KNOWN)
    model.start()
    for name in ("cn-1", "cn-2"):
        model.propose(beat(name))
    sent = model.propose(order("cn-1", "r", b"now"))
    assert isinstance(sent, Applied)
    for other in (order("cn-2", "r", b"now"), order("cn-1", "r"), order("cn-1", "r", b"now", "x")):
        outcome = model.propose(other)
        assert isinstance(outcome, Rejected)
        assert (outcome.reason, outcome.metadata["field"]) == (
            Reason.INVALID_ARGUMENT,
            "request_id",
        )
    theirs = model.propose(proposals.SendOrder("cn-1", "reload", b"now", "r", owner="else"))
    assert isinstance(theirs, Applied)
    assert theirs.value > sent.value
    assert rejected(model.propose(order("cn-1", ""))) is Reason.INVALID_ARGUMENT
    assert [len(one.waiting) for one in cluster_view(model.rsm.state).services] == [2, 0]


def test_the_newest_requests_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HAKEEPER_ORDERS_REMEMBERED", 2)
    model = Model(3, versions=KNOWN)
    model.start()
    model.propose(beat("cn-1"))
    sent = [model.propose(order("cn-1", f"r{number}")) for number in range(3)]
    ids = [one.value for one in sent if isinstance(one, Applied)]
    assert len(model.state.sent) == 2
    before = model.rsm.save_snapshot()
    model.state.sent = dict(reversed(model.state.sent.items()))
    assert model.rsm.save_snapshot() == before, "equal states have equal bytes"
    for number in (1, 2):
        again = model.propose(order("cn-1", f"r{number}"))
        assert again == Applied(value=ids[number], duplicate=True)
    forgotten = model.propose(order("cn-1", "r0"))
    assert isinstance(forgotten, Applied)
    assert forgotten.value > ids[2]


def test_the_newest_process_speaks_for_a_service_and_late_heartbeats_change_nothing() -> None:
    model = Model(3, versions=KNOWN)
    model.start()

    def say(boot_id: int, sequence: int, lsn: int) -> Outcome:
        replayed = ((ShardId(1), Lsn(lsn)),)
        return model.propose(
            proposals.ServiceHeartbeat(
                "tn-1", "tn", "h:1", replayed=replayed, boot_id=boot_id, sequence=sequence
            )
        )

    def lsn() -> int:
        return model.state.services["tn-1"].replayed[ShardId(1)].lsn

    assert isinstance(say(7, 1, 10), Applied)
    assert isinstance(say(7, 3, 30), Applied)
    model.run(50)
    last = model.state.services["tn-1"].last_tick
    for late in (2, 3):
        answer = say(7, late, 20)
        assert isinstance(answer, Applied)
        [told] = replies.decode(answer.data).replayed
        assert (told.lsn, lsn(), model.state.services["tn-1"].last_tick) == (30, 30, last)
    assert isinstance(say(8, 1, 25), Applied)
    outcome = say(7, 9, 40)
    assert isinstance(outcome, Rejected)
    assert (outcome.reason, outcome.metadata) == (Reason.STALE_EPOCH, {"holder": "8"})
    assert lsn() == 25
    for boot_id in range(9, 9 + 2 * bounds.HAKEEPER_BOOTS_REMEMBERED):
        assert isinstance(say(boot_id, 1, 25), Applied)
    assert len(model.state.services["tn-1"].old_boots) == bounds.HAKEEPER_BOOTS_REMEMBERED
    assert isinstance(say(0, 0, 26), Applied), "who says no boot id is always taken"
