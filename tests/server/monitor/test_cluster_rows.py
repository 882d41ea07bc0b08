"""HAKeeper's view with the stores' own answers, and what is left when one of them is missing."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as replace_struct

from logservice import bounds
from logservice.cli.ctl.top_view import trouble
from logservice.hakeeper.answers.views import ServiceView, TnShardView
from logservice.hakeeper.commands.cluster_events import ClusterEvent
from logservice.hakeeper.commands.replies import ReplayedHold
from logservice.ids import Lsn, ShardId
from logservice.server.monitor.cluster.rows import ClusterReport, HAKeeperAnswer, StoreAnswer, build
from logservice.server.monitor.own.status import StoreStatus, decode, encode
from tests.server.monitor.samples import not_ready, replica, shard_view, status, view

FOLLOWER = replica(1, "follower", replica=11, applied_index=80, followers=())

SHOWN = bounds.ADMIN_SERVICES_SHOWN


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


def test_the_weight_of_a_log_is_in_its_row() -> None:
    shard = replace(shard_view(), weight=400)
    report = build(HAKeeperAnswer(view(shard), 0.0, ""), words(s1=status("s1")), status("s1"))
    assert report.shards[0].weight == 400


def test_a_standing_learner_is_no_voter() -> None:
    """Else a log that has lost a voter would look whole."""
    shard = shard_view()
    members = (*shard.replicas[:2], replace(shard.replicas[2], role="learner", zone="z9"))
    shard = replace(shard, replicas=members, learners={"z9": 1})
    report = build(HAKeeperAnswer(view(shard), 0.0, ""), words(s1=status("s1")), status("s1"))
    assert report.cluster.shards_lacking_replicas == 1
    assert report.shards[0].live_voters == 2
    assert report.shards[0].learners == {"z9": 1}
    assert report.shards[0].replicas[2].zone == "z9"
    assert trouble(replace_struct(report.shards[0], leader_store="s1")) == (3, "2 of 3")


def test_tn_shards_and_the_names_of_their_logs() -> None:
    served = TnShardView(7, ShardId(1), "", "tn-1", 2, "served", 30)
    nobody = TnShardView(8, ShardId(9), "owner", "", 0, "nobody", 4)
    known = replace(view(shard_view()), tn_shards=(served, nobody))
    report = build(HAKeeperAnswer(known, 0.0, ""), {}, status("s1"))
    assert [(one.tn_shard, one.log, one.service, one.standing) for one in report.tn_shards] == [
        (7, "log-1", "tn-1", "served"),
        (8, "", "", "nobody"),
    ]
    assert build(HAKeeperAnswer(None, -1.0, "x"), {}, status("s1")).tn_shards == ()


def test_services_and_the_newest_event_first() -> None:
    replayed = (
        ReplayedHold(ShardId(1), Lsn(10), Lsn(11), Lsn(1)),
        ReplayedHold(ShardId(2), Lsn(10), Lsn(31), Lsn(31), behind_ticks=5),
        ReplayedHold(ShardId(3), Lsn(10), behind_ticks=70),
    )
    service = ServiceView("cn-1", "cn", "h:1", {"zone": "z1"}, "who", 4, 296, (7, 8), replayed)
    known = replace(view(shard_view()), services=(service,))
    many = [replace(service, service_id=f"cn-{one:04}") for one in range(SHOWN, -1, -1)]
    crowd = build(HAKeeperAnswer(replace(known, services=tuple(many)), 0.0, ""), {}, status("s1"))
    assert (len(crowd.services), crowd.cluster.services) == (SHOWN, SHOWN + 1)
    assert crowd.services[0].service == "cn-0000"
    events = [ClusterEvent(one, tick=9 * one, kind="leader", store="s1") for one in (1, 2)]
    report = build(HAKeeperAnswer(known, 0.0, ""), {}, status("s1"), events)
    [row] = report.services
    assert (row.service, row.kind, row.waiting, row.expires_in_ticks) == ("cn-1", "cn", 2, 296)
    assert (row.replays, row.not_held, row.behind_ticks) == (3, 2, 70)
    assert [(one.revision, one.tick) for one in report.feed] == [(2, 18), (1, 9)]
