"""What shard 0 gives out once is given out once, also by one that goes on from an old copy of
itself, or takes over what another cluster has given out. Every field of its state has a rule for
the first; `tests/cli/test_restored_facts.py` has those for the second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.given_out import GivenOut
from logservice.hakeeper.commands.proposals import (
    AllocateIds,
    ChangeAccess,
    CreateShard,
    DeleteShard,
    ServiceHeartbeat,
)
from logservice.hakeeper.commands.quotas import IdentityQuota
from logservice.hakeeper.commands.verbs import (
    CreateTnShard,
    SetLeader,
    SetQuota,
    SetStoreMode,
    SkipNumbers,
    StoreMode,
)
from logservice.hakeeper.given_out import given_out
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import ShardState, State, StoreState, TnShard
from logservice.hakeeper.tombstones import is_deleted
from logservice.ids import HAKEEPER_SHARD, ShardId, StoreId
from logservice.outcome import Applied, Rejected
from logservice.versions import KNOWN
from tests.hakeeper.model import Model
from tests.hakeeper.test_recovery import recover

LOG = ShardId(1)
ME = "spiffe://t/cluster/c/client/me"

Rule = Callable[[Any, Any], bool]


def kept(old: Any, new: Any) -> bool:
    return bool(old == new)


def one_by_one(old: Any, new: Any) -> bool:
    return bool(new >= old + bounds.RECOVERED_NUMBER_STEP)


def withdrawn(old: Any, new: Any) -> bool:
    return not new


def goes_on(old: Any, new: Any) -> bool:
    """Time, and what is found anew by the next looks at the state."""
    return True


STATE: dict[str, Rule] = {
    "phase": kept,
    "phase_tick": kept,
    "index": goes_on,
    "term": kept,
    "tick": lambda old, new: new == old + 1,
    "cluster_id": kept,
    "default_replicas": kept,
    "store_timeout_ticks": kept,
    "stores": lambda old, new: old.keys() == new.keys(),
    "services": kept,
    "shards": lambda old, new: old.keys() == new.keys(),
    "operators": withdrawn,
    "next_replica_id": lambda old, new: new >= old + bounds.RECOVERED_REPLICA_STEP,
    "next_shard_id": one_by_one,
    "next_operator_id": one_by_one,
    "next_command_id": one_by_one,
    "id_counters": withdrawn,  # every key goes on from `ids_from`
    "id_requests": kept,
    "id_request_order": kept,
    "flags": goes_on,
    "dirty": goes_on,
    "access": kept,
    "access_version": one_by_one,
    "joining": kept,
    "admitted": kept,
    "applicants": kept,
    "cluster_version": kept,
    "wishes": kept,
    "next_wish_id": one_by_one,
    "repair_off_until": withdrawn,
    "repair_off_reason": withdrawn,
    "gone_stores": kept,
    "deleted": kept,
    "creations": kept,
    "balance": kept,
    "feed": lambda old, new: new.ring[0].revision >= old.last + bounds.RECOVERED_NUMBER_STEP,
    "looks_left": goes_on,
    "last_look": goes_on,
    "noted": goes_on,
    "directory_index": goes_on,
    "directory_lost": kept,
    "stores_index": goes_on,
    "limits_version": one_by_one,
    "last_wish": goes_on,
    "replace_stuck": kept,
    "catch_up_bytes_per_s": kept,
    "sent": kept,
    "tn_shards": lambda old, new: old.keys() == new.keys(),
    "next_tn_shard": one_by_one,
    "recovered_tick": lambda old, new: new > old,
    "tail_read_bytes_per_s": kept,
    "catch_up_read_bytes_per_s": kept,
    "denied": kept,
    "quotas": kept,
    "quotas_version": one_by_one,
    "ids_from": lambda old, new: new >= old + bounds.RECOVERED_ID_STEP,
}


def as_it_was(names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), kept)


OF_A_LOG = as_it_was(
    """
    shard name wanted created_tick initial membership leader leader_term started abandoned
    lost avoid disagreement behind policy labels revision deleting_tick led_tick
    directory_index unstuck_tick witnesses recovered
    """
) | {"leader_wish": withdrawn}
"""Of one that was not rebuilt itself."""

OF_A_STORE = as_it_was(
    """
    store host peer_address client_address directories boot_id sequence first_tick last_tick
    live_since directories_tick expired old_boots labels replicas stored forgotten
    steady_since failed_since stuck access_version stuck_since drained
    """
) | {
    "queue": withdrawn,
    "mode": lambda old, new: new is StoreMode.OPEN,
    "mode_reason": withdrawn,
    "repair_off_until": withdrawn,
    "repair_off_reason": withdrawn,
}

OF_A_TN_SHARD = as_it_was(
    """
    shard identity service boot_id serving placed_tick heard_tick withdrawn_tick free_tick
    avoid
    """
) | {"replica": one_by_one}

RULES = {State: STATE, ShardState: OF_A_LOG, StoreState: OF_A_STORE, TnShard: OF_A_TN_SHARD}


@pytest.fixture
def model() -> Model:
    model = Model(3, versions=KNOWN)
    model.start(shards=2)
    model.run_until(model.healthy, 800)
    return model


def fill(model: Model) -> State:
    """Have it give out some of all; returns a copy of the state then."""
    for proposal in (
        CreateShard(ShardId(0), "gone", 3),
        CreateShard(ShardId(77), "chosen", 3, request_id="r"),
        AllocateIds("tx", 1000, request_id="q"),
        AllocateIds("rows", 5),
        CreateTnShard(LOG),
        ServiceHeartbeat("tn-1", "tn", "a:1", boot_id=5, sequence=1, takes_tn_shards=True),
        ChangeAccess(ME, "*", grant=("read",)),
        ChangeAccess(ME, "shard/2", deny=("append",)),
        SetQuota(IdentityQuota("", rpcs_max=9)),
        SetStoreMode(StoreId("s3"), StoreMode.READ_ONLY, "why", force=True),
        SetLeader(LOG, 1000),
    ):
        assert isinstance(model.propose(proposal), Applied), proposal
    gone = model.propose(DeleteShard(ShardId(3), "gone", force=True))
    assert isinstance(gone, Applied), gone
    model.run(5)
    old = HAKeeperRsm()
    old.recover_from_snapshot(model.rsm.save_snapshot())
    return old.state


def wrong(rules: dict[str, Rule], old: object, new: object) -> dict[str, tuple[Any, Any]]:
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in rules}
    return {name: pair for name, pair in pairs.items() if not rules[name](*pair)}


@pytest.mark.parametrize("kind", RULES)
def test_every_fact_has_a_rule(kind: type[msgspec.Struct]) -> None:
    assert set(RULES[kind]) == set(kind.__struct_fields__)


def test_every_fact_of_a_recovered_shard_0_is_as_its_rule_says(model: Model) -> None:
    old = fill(model)
    recover(model, HAKEEPER_SHARD)
    new = model.state
    assert not wrong(STATE, old, new)
    for number, shard in old.shards.items():
        if number != HAKEEPER_SHARD:
            assert not wrong(OF_A_LOG, shard, new.shards[number])
    for name, store in old.stores.items():
        assert not wrong(OF_A_STORE, store, new.stores[name])
    for tn_number, tn_shard in old.tn_shards.items():
        assert not wrong(OF_A_TN_SHARD, tn_shard, new.tn_shards[tn_number])


def test_inv_hk_given_out_another_cluster_goes_on_above_and_skips_once(model: Model) -> None:
    given = given_out(fill(model))
    assert given.next_id == 1001
    assert given.deleted == ((3, 3),)
    other = Model(3, versions=KNOWN)
    other.start(shards=2)
    other.run_until(other.healthy, 800)
    other.propose(AllocateIds("tx", 3))
    before = given_out(other.state)
    assert other.propose(SkipNumbers(given)) == Applied()
    after = given_out(other.state)
    for name in GivenOut.__struct_fields__:
        if name != "deleted":
            step = {
                "next_id": bounds.RECOVERED_ID_STEP,
                "next_replica_id": bounds.RECOVERED_REPLICA_STEP,
            }.get(name, bounds.RECOVERED_NUMBER_STEP)
            raised = getattr(after, name) - step
            assert raised in (getattr(given, name), getattr(given, name) + 1), name
            assert raised >= getattr(before, name) or name == "revision"
    for key in ("tx", "rows", "of nobody yet"):
        ids = other.propose(AllocateIds(key, 7))
        assert isinstance(ids, Applied)
        assert ids.value == 1001 + bounds.RECOVERED_ID_STEP
    assert other.propose(SkipNumbers(given)) == Applied()
    again = other.propose(AllocateIds("tx", 1))
    assert isinstance(again, Applied)
    assert again.value == 1008 + bounds.RECOVERED_ID_STEP, "skipped once"
    refused = other.propose(CreateShard(ShardId(3), "x", 3))
    assert isinstance(refused, Rejected)
    assert refused.reason is Reason.SHARD_DELETED


def test_ids_of_deleted_logs_leave_out_the_logs_that_live(model: Model) -> None:
    assert model.propose(SkipNumbers(GivenOut(deleted=((1, 5), (6, 9), (20, 30))))) == Applied()
    assert model.state.deleted == [(3, 9), (20, 30)]
    assert not is_deleted(model.state, LOG)


def test_the_id_of_a_new_log_is_found_at_once_behind_any_range(model: Model) -> None:
    """An archive may say that as many logs were deleted as there are numbers."""
    most = bounds.GIVEN_OUT_MAX
    assert model.propose(SkipNumbers(GivenOut(deleted=((1, most),)))) == Applied()
    made = model.propose(CreateShard(ShardId(0), "later", 3))
    assert made == Applied(value=most + 1)


@pytest.mark.parametrize(
    "given",
    [
        GivenOut(next_id=bounds.GIVEN_OUT_MAX + 1),
        GivenOut(deleted=((1, bounds.GIVEN_OUT_MAX + 1),)),
        GivenOut(deleted=((0, 5),)),
        GivenOut(deleted=((5, 4),)),
    ],
)
def test_what_are_no_numbers_is_refused(model: Model, given: GivenOut) -> None:
    before = given_out(model.state)
    refused = model.propose(SkipNumbers(given))
    assert isinstance(refused, Rejected)
    assert refused.reason is Reason.INVALID_ARGUMENT
    assert given_out(model.state) == before


def test_without_room_for_tombstones_nothing_is_skipped(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HAKEEPER_DELETED_RANGES_MAX", 2)
    before = given_out(model.state)
    apart = ((10, 10), (12, 12), (14, 14))
    refused = model.propose(SkipNumbers(GivenOut(1000, deleted=apart)))
    assert isinstance(refused, Rejected)
    assert refused.reason is Reason.BUSY
    assert given_out(model.state) == before
    assert model.propose(SkipNumbers(GivenOut(1000, deleted=apart[:2]))) == Applied()
