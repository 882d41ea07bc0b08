"""Stores that are forgotten, and what comes back under their name. It names INV-HK-GONE."""

from __future__ import annotations

import pytest
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.proposals import Joining
from logservice.hakeeper.commands.verbs import ForgetStore, SetStoreMode, StoreMode
from logservice.hakeeper.repair.drain import remaining
from logservice.hakeeper.state import GoneStore
from logservice.hakeeper.stores.enrolment import eligible
from logservice.ids import HAKEEPER_SHARD, Incarnation, ShardId, StoreId
from logservice.outcome import Applied
from tests.hakeeper.model import Model, expiry, rejected
from tests.hakeeper.test_drain import drain, empty, started, stores_of, why

ONE = ShardId(1)
S1, S5 = StoreId("s1"), StoreId("s5")


def forget(model: Model, store: StoreId, *, lost: bool = False, force: bool = False) -> None:
    assert model.propose(ForgetStore(store, lost, force)) == Applied()
    assert store not in model.state.stores


def lose(model: Model, *names: str) -> None:
    for name in names:
        model.kill(name)
    model.run(expiry(model))


def test_a_drained_store_is_forgotten() -> None:
    model = started(5)
    assert "drain it first" in why(model.propose(ForgetStore(S1)))
    drain(model, S1)
    model.run_until(lambda: empty(model, S1), 400)
    model.run(20)
    forget(model, S1)
    assert model.propose(ForgetStore(S1)) == Applied(duplicate=True)
    model.run(100)
    assert S1 not in model.state.stores, "its heartbeats brought it back"
    assert "store s1 was turned away: a data directory of s1, which was forgotten" in (
        model.state.flags
    )
    model.kill("s1")
    model.run_until(model.healthy, 400)
    model.run_until(lambda: not model.state.flags, 300)


def test_a_store_that_still_removes_a_replica_is_not_forgotten() -> None:
    model = started(5)
    drain(model, S1)
    model.run_until(lambda: not remaining(model.state, model.state.stores[S1]).members, 400)
    assert "still being removed" in why(model.propose(ForgetStore(S1, force=True)))
    model.run_until(lambda: empty(model, S1), 100)
    forget(model, S1)


def test_a_lost_store_is_forgotten_and_its_replicas_are_made_anew_without_waiting() -> None:
    model = started(4, timeout=1000)
    model.kill("s1")
    model.run(100)
    assert "heard from" in why(model.propose(ForgetStore(S1, lost=True)))
    model.run(1000)
    forget(model, S1, lost=True)
    model.run_until(model.healthy, 200)
    assert all("s1" not in stores_of(model, shard) for shard in model.shards)


def test_the_same_disk_never_belongs_to_the_cluster_again() -> None:
    model = started(4)
    lose(model, "s1")
    forget(model, S1, lost=True)
    model.revive("s1")
    model.run(300)
    assert S1 not in model.state.stores
    assert model.state.applicants[S1].why == "a data directory of s1, which was forgotten"
    model.propose(proposals.AdmitStore(S1, hakeeper=True))
    model.run(100)
    assert S1 not in model.state.stores


def test_nor_does_it_in_another_store() -> None:
    model = started(4)
    old = model.stores[S1].incarnation
    lose(model, "s1")
    forget(model, S1, lost=True)
    model.stores[S5] = other = model.add_store("s5")
    other.others = (old,)
    model.run(100)
    assert S5 not in model.state.stores
    assert model.state.applicants[S5].why == "a data directory of s1, which was forgotten"
    other.others = ()
    model.run(50)
    assert S5 in model.state.stores


def test_the_same_name_with_an_empty_disk_is_a_new_store() -> None:
    """Others let such a store answer for what it had lost, or never let it in again."""
    model = started(4)
    lose(model, "s1")
    forget(model, S1, lost=True)
    model.run_until(model.healthy, 500)
    before = {shard: stores_of(model, shard) for shard in model.shards}
    model.wipe("s1")
    model.run(300)
    assert S1 in model.state.stores
    assert {shard: stores_of(model, shard) for shard in model.shards} == before
    assert not model.stores[S1].copies
    model.propose(proposals.AdmitStore(S1, hakeeper=True))
    model.kill("s2")
    model.run_until(model.healthy, 500)
    assert "s1" in stores_of(model, HAKEEPER_SHARD)


def test_an_empty_disk_under_the_old_name_without_a_verb_is_handled_as_ever() -> None:
    """Nobody said that the store is lost: it counts as the same store with another directory."""
    model = started(4)
    model.wipe("s1")
    model.run_until(lambda: "s1" not in stores_of(model, ONE) or "s1" in model.stores, 600)
    model.run_until(model.healthy, 900)
    for oracle in model.shards.values():
        for member in oracle.membership.members:
            assert member.incarnation == model.stores[member.store_id].incarnation


def test_a_forgotten_name_is_admitted_anew_by_a_person_only() -> None:
    model = started(4)
    model.propose(proposals.SetJoining(Joining.BY_VERB))
    model.admits = False
    assert eligible(model.state, S1)
    lose(model, "s1")
    forget(model, S1, lost=True)
    assert not eligible(model.state, S1)
    model.wipe("s1")
    model.run(50)
    assert S1 not in model.state.stores
    assert "store s1 waits to be admitted: logctl admit s1" in model.state.flags
    model.propose(proposals.AdmitStore(S1))
    model.run(50)
    assert S1 in model.state.stores
    assert not eligible(model.state, S1)


def test_the_replica_that_may_be_the_last_copy_is_given_up_by_force_only() -> None:
    model = started(5, shards=1)
    first, second, _ = sorted(stores_of(model, ONE))
    lose(model, first, second)
    assert "may be needed" in why(model.propose(ForgetStore(StoreId(first), lost=True)))
    forget(model, StoreId(first), lost=True, force=True)


def test_the_last_places_for_replicas_are_forgotten_by_force_only() -> None:
    model = started(4, shards=0)
    spare = next(store for store in model.stores if not model.stores[store].copies)
    model.propose(SetStoreMode(S1, StoreMode.READ_ONLY))
    outcome = model.propose(ForgetStore(spare))
    assert "2 stores would be left" in why(outcome)
    forget(model, spare, force=True)


def test_forgetting_is_remembered_by_a_new_leader_and_bounded() -> None:
    model = started(4)
    lose(model, "s1")
    many = bounds.HAKEEPER_GONE_INCARNATIONS_MAX
    disks = tuple(map(Incarnation, range(10**6, 10**6 + many)))
    model.state.gone_stores[StoreId("crowd")] = GoneStore(1, lost=True, incarnations=disks)
    assert rejected(model.propose(ForgetStore(S1, lost=True))) is Reason.BUSY
    model.state.gone_stores[StoreId("crowd")] = GoneStore(1, lost=True, incarnations=disks[1:])
    forget(model, S1, lost=True)
    model.new_hakeeper_leader()
    model.revive("s1")
    model.run(100)
    assert S1 not in model.state.stores


@pytest.mark.parametrize("lost", [True, False])
def test_a_store_that_was_never_known_is_not_forgotten(*, lost: bool) -> None:
    model = started(3, shards=0)
    assert rejected(model.propose(ForgetStore(S5, lost))) is Reason.INVALID_ARGUMENT


def test_a_removed_member_in_history_does_not_come_back_across_a_raise() -> None:
    """A replica that was removed at cluster version 1 returns at version 2: it is killed, and its
    id is in no membership again.
    """
    model = Model(4)
    model.start(shards=1)
    model.kill("s1")
    model.run_until(model.healthy, 400)
    removed = {shard: oracle.membership.removed for shard, oracle in model.shards.items()}
    assert removed[HAKEEPER_SHARD]
    model.raise_version(2)
    model.new_hakeeper_leader()
    model.revive("s1")
    model.run_until(lambda: not model.stores[S1].copies, 200)
    model.run_until(model.healthy, 200)
    for shard, oracle in model.shards.items():
        assert not set(removed[shard]) & {one.replica_id for one in oracle.membership.members}
