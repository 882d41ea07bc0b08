"""HAKeeper's view with the stores' own answers, and what is left when one of them is missing."""

from __future__ import annotations

from logservice.server.monitor.cluster.rows import ClusterReport, HAKeeperAnswer, StoreAnswer, build
from logservice.server.monitor.own.status import StoreStatus, decode, encode
from tests.server.monitor.samples import not_ready, replica, shard_view, status, view

FOLLOWER = replica(1, "follower", replica=11, applied_index=80, followers=())


def words(**statuses: StoreStatus) -> dict[str, StoreAnswer]:
    return {store: StoreAnswer(one) for store, one in statuses.items()}


def whole() -> ClusterReport:
    asked = words(s1=status("s1"), s2=status("s2", replicas=(FOLLOWER,)))
    asked["s3"] = StoreAnswer(error="NOT_READY: refused")
    return build(HAKeeperAnswer(view(shard_view()), 0.1, ""), asked, status("s1"))


def test_the_leader_says_who_lags() -> None:
    (shard,) = whole().shards
    assert (shard.leader_store, shard.lag_entries, shard.hold_name) == ("s1", 7, "backup")
    assert [(item.store, item.lag_entries, item.leader) for item in shard.replicas] == [
        ("s1", 0, True),
        ("s2", 0, False),
        ("s3", 7, False),
    ]
    # What a store says itself is newer than what it reported to HAKeeper.
    assert [item.applied_index for item in shard.replicas] == [88, 80, 50]


def test_a_silent_store_is_shown_with_what_was_known() -> None:
    silent = whole().stores[2]
    assert (silent.store, silent.alive, silent.answers, silent.ready) == ("s3", False, False, False)
    assert silent.error
    assert silent.disk_free_bytes == 200


def test_the_cluster_in_short() -> None:
    row = whole().cluster
    assert (row.stores, row.stores_alive, row.stores_ready) == (3, 2, 2)
    assert (row.shards, row.shards_without_leader, row.operators) == (1, 0, 1)
    assert row.flags == ("look here",)
    assert {event.store for event in row.events} == {"s1", "s2"}


def test_without_hakeeper_the_stores_words_remain() -> None:
    report = build(
        HAKeeperAnswer(None, -1.0, "no majority"),
        words(s1=status("s1"), s2=status("s2", replicas=(FOLLOWER,))),
        status("s2"),
    )
    assert report.cluster.phase == "unknown"
    assert report.cluster.hakeeper_error == "no majority"
    assert [(shard.shard, shard.leader_store) for shard in report.shards] == [(1, "s1")]
    assert [item.store for item in report.shards[0].replicas] == ["s1", "s2"]


def test_the_newer_term_wins_between_two_who_lead() -> None:
    old = replica(1, term=3)
    new = replica(1, term=4, replica=11)
    report = build(
        HAKeeperAnswer(view(shard_view()), 0.0, ""),
        words(s1=status("s1", replicas=(old,)), s2=status("s2", replicas=(new,))),
        status("s1"),
    )
    assert report.shards[0].leader_store == "s2"


def test_hakeepers_word_about_the_leader_is_older_than_its_own() -> None:
    lost = replica(1, "follower", leader=0)
    report = build(
        HAKeeperAnswer(view(shard_view()), 0.0, ""),
        words(s1=status("s1", replicas=(lost,))),
        status("s1"),
    )
    assert report.shards[0].leader_store == ""
    assert report.cluster.shards_without_leader == 1


def test_an_old_view_names_no_leaders_and_silent_replicas_are_shown() -> None:
    lost = replica(1, "follower", replica=11, leader=0)
    asked = words(s2=status("s2", replicas=(lost,)))
    asked |= {"s1": StoreAnswer(error="refused"), "s3": StoreAnswer(error="refused")}
    report = build(
        HAKeeperAnswer(view(shard_view(1), shard_view(2)), 9.0, "no majority"), asked, status("s2")
    )
    assert [shard.leader_store for shard in report.shards] == ["", ""]
    assert [item.health for item in report.shards[0].replicas] == ["silent", "alive", "silent"]
    assert report.cluster.shards_lacking_replicas == 2


def test_followers_know_the_leader_of_a_store_that_does_not_answer() -> None:
    asked = words(s2=status("s2", replicas=(FOLLOWER,)))
    asked["s1"] = StoreAnswer(error="too slow")
    report = build(HAKeeperAnswer(view(shard_view()), 0.0, ""), asked, status("s2"))
    assert report.shards[0].leader_store == "s1"


def test_a_store_that_is_not_ready_says_why() -> None:
    report = build(
        HAKeeperAnswer(view(), 0.0, ""),
        words(s1=status("s1", reasons=(not_ready("disk_full"),))),
        status("s1"),
    )
    assert not report.stores[0].ready
    assert report.stores[0].reasons[0].code == "disk_full"


def test_a_status_travels() -> None:
    assert decode(encode(status())) == status()


def test_a_store_that_came_back_empty_has_no_live_replica_whatever_hakeeper_remembers() -> None:
    lost = replica(1, "follower", leader=0, voters=3)
    empty = status("s2", phase="serving", replicas=())
    report = build(
        HAKeeperAnswer(view(shard_view()), 9.0, "no majority", 4.0),
        words(s1=status("s1", phase="serving", replicas=(lost,)), s2=empty)
        | {"s3": StoreAnswer(error="refused")},
        status("s2"),
    )
    (shard,) = report.shards
    assert [item.health for item in shard.replicas] == ["alive", "missing", "silent"]
    assert shard.voters == 3
    assert (report.cluster.hakeeper_age_s, report.cluster.hakeeper_silent_s) == (9.0, 4.0)


def test_what_was_heard_long_ago_is_not_shown_as_heard_now() -> None:
    asked = words(s1=status("s1")) | {"s2": StoreAnswer(error="refused")}
    report = build(HAKeeperAnswer(view(shard_view()), 9.0, "no majority"), asked, status("s1"))
    ages = {store.store: store.heartbeat_age_ticks for store in report.stores}
    fresh = {store.store_id: store.ticks_since_heartbeat for store in view(shard_view()).stores}
    assert ages == {store: ticks + 90 for store, ticks in fresh.items()}
    assert {store.store: store.alive for store in report.stores}["s2"] is False
    unknown = build(HAKeeperAnswer(view(shard_view()), -1.0, "no majority"), asked, status("s1"))
    assert {store.heartbeat_age_ticks for store in unknown.stores} == {-1}
