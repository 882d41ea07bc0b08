"""Services are bounded, belong to their owner, and go when they are silent (INV-HK-SERVICES)."""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands import proposals
from logservice.ids import Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.outcome import Applied
from tests.hakeeper.model import Model, rejected


def beat(name: str, owner: str = "a", **labels: str) -> proposals.ServiceHeartbeat:
    return proposals.ServiceHeartbeat(name, "cn", "host:1", labels, owner=owner)


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
