"""A wrong argument of a verb is named as the caller wrote it, and said in words."""

from __future__ import annotations

import pytest
from logservice_wire.errors import InvalidArgument, Reason
from logservice_wire.v1 import hakeeper_pb2
from msgspec import Struct

from logservice import bounds
from logservice.hakeeper.answers.views import cluster_view
from logservice.hakeeper.commands.balancing import BalanceMode
from logservice.hakeeper.commands.proposals import ChangeShard, SendOrder
from logservice.hakeeper.commands.verbs import (
    CancelOperator,
    CancelWish,
    ChangeSettings,
    DeleteTnShard,
    Errand,
    ForgetStore,
    Rebalance,
    SetLeader,
    SetRepair,
    SetStoreMode,
    StoreMode,
    WishReplica,
)
from logservice.ids import ShardId, StoreId
from logservice.outcome import Applied, Rejected
from tests.hakeeper.model import Model
from tests.hakeeper.test_drain import started

ONE, NONE = ShardId(1), ShardId(99)
S1, S2, S9 = StoreId("s1"), StoreId("s2"), StoreId("s9")
LONG = bounds.HAKEEPER_WISH_TICKS_MAX + 1

WRONG = [
    (SetStoreMode(S9, StoreMode.DRAINING), "SetStoreMode", "store_id", "no store is called s9"),
    (SetRepair("s9", 5), "SetRepair", "store_id", "no store is called s9"),
    (SetRepair("", LONG), "SetRepair", "off_ms", "a week at most"),
    (ForgetStore(S9), "ForgetStore", "store_id", "no store is called s9"),
    (WishReplica(Errand.MOVE, NONE, S1, S2), "MoveReplica", "shard_id", "no living shard 99"),
    (
        WishReplica(Errand.MOVE, ONE, S9, StoreId("s8")),
        "MoveReplica",
        "from_store",
        "no store is called s9; there are s1, s2, s3, s4",
    ),
    (WishReplica(Errand.MOVE, ONE, S1, S9), "MoveReplica", "to_store", "no store is called s9"),
    (WishReplica(Errand.MOVE, ONE, S9, S1), "MoveReplica", "from_store", "no store is called s9"),
    (WishReplica(Errand.ADD, ONE, "", S9), "MoveReplica", "to_store", "no store is called s9"),
    (WishReplica(Errand.REMOVE, ONE, S9), "MoveReplica", "from_store", "no store is called s9"),
    (WishReplica(Errand.MOVE, ONE, S1, S1), "MoveReplica", "from_store", "they differ"),
    (WishReplica(Errand.MOVE, ONE, S1, ""), "MoveReplica", "to_store", "they differ"),
    (CancelWish(77), "CancelWish", "wish_id", "no wish 77 is known"),
    (CancelOperator(77), "CancelOperator", "operator_id", "no operator 77 is under way"),
    (SetLeader(NONE, 5, S1), "SetLeader", "shard_id", "no living shard 99"),
    (SetLeader(ONE, 5, S9), "SetLeader", "store_id", "no store is called s9; there are s1"),
    (SetLeader(ONE, LONG, S1), "SetLeader", "for_ms", "a week at most"),
    (ChangeSettings(store_timeout_ticks=1), "ChangeSettings", "store_timeout_ms", "seconds"),
    (ChangeSettings(default_replicas=99), "ChangeSettings", "default_replicas", "at most"),
    (ChangeSettings(joining="never"), "ChangeSettings", "joining", "automatic, by-verb"),
    (ChangeSettings(replace_stuck="x"), "ChangeSettings", "replace_stuck", "on, off"),
    (
        ChangeSettings(catch_up_bytes_per_s=bounds.CATCH_UP_BYTES_PER_S_MIN - 1),
        "ChangeSettings",
        "catch_up_bytes_per_s",
        f"0, or {bounds.CATCH_UP_BYTES_PER_S_MIN} to {bounds.CATCH_UP_BYTES_PER_S_MAX}",
    ),
    (
        ChangeSettings(catch_up_bytes_per_s=bounds.CATCH_UP_BYTES_PER_S_MAX + 1),
        "ChangeSettings",
        "catch_up_bytes_per_s",
        "0, or",
    ),
    (
        ChangeSettings(tail_read_bytes_per_s=bounds.CATCH_UP_BYTES_PER_S_MIN - 1),
        "ChangeSettings",
        "tail_read_bytes_per_s",
        "0, or",
    ),
    (
        ChangeSettings(catch_up_read_bytes_per_s=bounds.CATCH_UP_BYTES_PER_S_MAX + 1),
        "ChangeSettings",
        "catch_up_read_bytes_per_s",
        "0, or",
    ),
    (ChangeSettings(leader_balance="x"), "ChangeSettings", "leader_balance", BalanceMode.MANUAL),
    (Rebalance(replicas=False, leaders=False), "Rebalance", "replicas", "neither"),
    (ChangeShard(ONE, replicas=2), "ChangeShard", "replicas", "an odd number"),
    (DeleteTnShard(7), "DeleteTnShard", "tn_shard_id", "never was a TN shard 7"),
    (
        SendOrder("nobody", "reload", b"", "r"),
        "SendServiceCommand",
        "service_id",
        "no service is called",
    ),
]


@pytest.fixture(scope="module")
def model() -> Model:
    return started(4, shards=1)


@pytest.mark.parametrize(("verb", "rpc", "field", "words"), WRONG)
def test_the_field_of_the_request_and_why(
    model: Model, verb: Struct, rpc: str, field: str, words: str
) -> None:
    before = model.state.next_wish_id, len(model.state.operators)
    outcome = model.propose(verb)  # type: ignore[arg-type]
    assert isinstance(outcome, Rejected)
    assert outcome.reason is Reason.INVALID_ARGUMENT
    assert outcome.metadata["field"] == field
    assert words in outcome.metadata["why"]
    assert field in getattr(hakeeper_pb2, f"{rpc}Request").DESCRIPTOR.fields_by_name
    assert (model.state.next_wish_id, len(model.state.operators)) == before


def test_a_person_reads_why_before_the_names() -> None:
    error = InvalidArgument(field="from_store", why="s9 has no voter of shard 1")
    assert str(error) == (
        "INVALID_ARGUMENT: a field of the request is wrong: correct the one that is named, nothing "
        "was done: s9 has no voter of shard 1 (field=from_store)"
    )


@pytest.mark.parametrize(
    "name", ["catch_up_bytes_per_s", "tail_read_bytes_per_s", "catch_up_read_bytes_per_s"]
)
def test_a_rate_is_set_kept_and_taken_back(name: str) -> None:
    model = started(3, shards=1)
    least, most = bounds.CATCH_UP_BYTES_PER_S_MIN, bounds.CATCH_UP_BYTES_PER_S_MAX
    for wished, held in ((least, least), (None, least), (most, most), (0, 0)):
        assert model.propose(ChangeSettings(**{name: wished})) == Applied()
        assert getattr(model.rsm.state, name) == held
        settings = cluster_view(model.rsm.state).settings
        assert getattr(settings, name) == held
        rates = (
            settings.catch_up_bytes_per_s,
            settings.tail_read_bytes_per_s,
            settings.catch_up_read_bytes_per_s,
        )
        assert sum(rates) == held, "and no other one"
