"""A store joins by a heartbeat, with what is its own, and without a replica of shard 0."""

from __future__ import annotations

import pytest
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.proposals import Joining
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import HAKEEPER_SHARD, Incarnation, ShardId, StoreId
from logservice.outcome import Applied, Rejected
from tests.hakeeper.model import Model, expiry, rejected


def beat(
    name: str, incarnation: int, *, peer: str = "", client: str = "", sequence: int = 1
) -> proposals.StoreHeartbeat:
    return proposals.StoreHeartbeat(
        StoreId(name),
        "",
        peer or f"{name}:1",
        client or f"{name}:2",
        (proposals.DirectoryReport(Incarnation(incarnation)),),
        5,
        sequence,
    )


def started(stores: int = 3) -> Model:
    model = Model(stores)
    model.admits = False
    model.start()
    return model


def test_a_store_joins_by_its_heartbeat_and_everybody_hears_of_its_directories() -> None:
    model = started()
    outcome = model.propose(beat("new", 77))
    assert isinstance(outcome, Applied)
    [entry] = [one for one in replies.decode(outcome.data).directory if one.store == StoreId("new")]
    assert entry.incarnations == (77,)


def test_nobody_joins_with_the_data_directory_of_another_store() -> None:
    """INV-HK-JOIN also holds when that store has long been silent: its disk may have come back
    under another store's name.
    """
    model = started()
    theirs = model.stores[StoreId("s1")].incarnation
    for _ in range(2):
        before = dict(model.state.stores)
        assert rejected(model.propose(beat("new", theirs))) is Reason.PERMISSION_DENIED
        assert model.state.stores == before
        model.kill("s1")
        model.run(expiry(model) + 1)
    model.propose(beat("new", theirs))
    model.run(2)
    assert (
        "store new was turned away: a data directory that is enrolled for s1" in model.state.flags
    )


def test_an_enrolled_store_does_not_take_another_ones_directory_either() -> None:
    """INV-HK-JOIN."""
    model = started()
    s2 = model.state.stores[StoreId("s2")]
    theirs = proposals.DirectoryReport(model.stores[StoreId("s1")].incarnation)
    stolen = proposals.StoreHeartbeat(
        StoreId("s2"), "", "s2:1", "s2:2", (*s2.directories, theirs), s2.boot_id, s2.sequence + 1
    )
    assert rejected(model.propose(stolen)) is Reason.PERMISSION_DENIED
    assert theirs not in model.state.stores[StoreId("s2")].directories


@pytest.mark.parametrize("taken", [{"peer": "s1:1"}, {"client": "s1:2"}, {"peer": "s1:2"}])
def test_nobody_joins_under_the_address_of_a_store_that_is_alive(taken: dict[str, str]) -> None:
    """INV-HK-JOIN."""
    model = started()
    assert rejected(model.propose(beat("new", 77, **taken))) is Reason.PERMISSION_DENIED
    model.kill("s1")
    model.run(expiry(model) + 1)
    # The machine was replaced by another one with the same address.
    assert isinstance(model.propose(beat("new", 77, **taken)), Applied)


def test_stores_that_all_moved_may_swap_addresses() -> None:
    model = started()
    s1, s2 = model.state.stores[StoreId("s1")], model.state.stores[StoreId("s2")]
    moved = proposals.StoreHeartbeat(
        StoreId("s1"), "", s2.peer_address, s2.client_address, s1.directories, 999, 1
    )
    assert isinstance(model.propose(moved), Applied)


def test_by_verb_a_store_waits_until_it_is_admitted() -> None:
    model = started()
    assert model.propose(proposals.SetJoining(Joining.BY_VERB)) == Applied()
    assert rejected(model.propose(beat("new", 77))) is Reason.PERMISSION_DENIED
    model.run(2)
    assert "store new waits to be admitted: logctl admit new" in model.state.flags
    assert StoreId("new") not in model.state.stores
    assert model.propose(proposals.AdmitStore(StoreId("new"))) == Applied()
    assert isinstance(model.propose(beat("new", 77)), Applied)
    model.run(2)
    assert not [flag for flag in model.state.flags if "new" in flag]
    # A store that belongs to the cluster stays in it, with another disk, too.
    model.wipe("s2")
    model.run(5)
    assert len(model.state.stores) == 4


def test_by_verb_from_the_first_configuration_on() -> None:
    model = Model(3)
    model.admits = False
    model.propose(beat("early", 78))
    first = model.propose
    model.propose = lambda one: first(  # type: ignore[method-assign]
        _by_verb(one) if isinstance(one, proposals.InitialCluster) else one
    )
    model.start()
    assert sorted(model.state.stores) == ["s1", "s2", "s3"]
    assert rejected(model.propose(beat("early", 78, sequence=2))) is Reason.PERMISSION_DENIED


def _by_verb(one: proposals.InitialCluster) -> proposals.InitialCluster:
    return proposals.InitialCluster(
        one.cluster_id,
        one.membership,
        one.log_shards,
        one.replicas,
        one.store_timeout_ticks,
        Joining.BY_VERB,
    )


def test_who_was_turned_away_is_remembered_within_bounds_and_for_a_while() -> None:
    model = started()
    model.propose(proposals.SetJoining(Joining.BY_VERB))
    for number in range(bounds.HAKEEPER_APPLICANTS_MAX + 5):
        model.propose(beat(f"x{number}", 5000 + number))
    assert len(model.state.applicants) == bounds.HAKEEPER_APPLICANTS_MAX
    machine = HAKeeperRsm()
    machine.recover_from_snapshot(model.rsm.save_snapshot())
    assert machine.state.applicants == model.state.applicants
    assert machine.save_snapshot() == model.rsm.save_snapshot()
    model.run(expiry(model) + 2)
    assert model.state.applicants == {}
    assert not [flag for flag in model.state.flags if "admitted" in flag]


def test_a_newly_joined_store_gets_no_replica_of_shard_0_without_a_verb() -> None:
    """INV-HK-ELIGIBLE."""
    model = started(4)
    model.kill("s1")
    model.run(expiry(model) + 1500)
    stores = {one.store_id for one in model.shards[HAKEEPER_SHARD].membership.members}
    assert "s4" not in stores
    flag = "shard 0: no spare store to replace replica 1; let one have it: logctl admit s4"
    assert f"{flag} --hakeeper" in model.state.flags
    # A log has moved there, which needs no person's word.
    assert "s1" not in {one.store_id for one in model.shards[ShardId(1)].membership.members}
    model.propose(proposals.AdmitStore(StoreId("s4"), hakeeper=True))
    model.run_until(model.healthy, 1500)
    assert not model.state.flags


def test_administration_of_stores_waits_for_the_first_configuration() -> None:
    model = Model(3)
    for proposal in (proposals.AdmitStore(StoreId("x")), proposals.SetJoining(Joining.BY_VERB)):
        assert rejected(model.propose(proposal)) is Reason.NOT_READY


def test_admissions_are_bounded() -> None:
    model = started()
    for number in range(bounds.HAKEEPER_STORES_MAX):
        model.propose(proposals.AdmitStore(StoreId(f"x{number}")))
    refused = model.propose(proposals.AdmitStore(StoreId("one more")))
    assert isinstance(refused, Rejected)
    assert refused.reason is Reason.BUSY
