"""HAKeeper hands no leadership to a store that says that its clock is wrong."""

from __future__ import annotations

from logservice.hakeeper.repair.leadership import Leadership
from logservice.hakeeper.stores.standing import takes_leaders
from logservice.ids import StoreId
from logservice.versions import CLOCK_LABEL
from tests.hakeeper.placements import add_shard, cluster


def test_no_leader_is_handed_to_a_store_whose_clock_is_far() -> None:
    state = cluster("", "", "")
    for _ in range(9):
        add_shard(state, ["s1", "s2", "s3"])
    before = Leadership(state, rests=False).next()
    assert before is not None
    target = before.target
    state.stores[target].labels[CLOCK_LABEL] = "far"
    assert not takes_leaders(state, target)
    after = Leadership(state, rests=False).next()
    assert after is not None
    assert after.target not in (target, StoreId("s1"))


def test_below_cluster_version_2_the_label_says_nothing() -> None:
    state = cluster("")
    state.cluster_version = 1
    state.stores[StoreId("s1")].labels[CLOCK_LABEL] = "far"
    assert takes_leaders(state, StoreId("s1"))
