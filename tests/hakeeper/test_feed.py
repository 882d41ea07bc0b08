"""The feed: every replica has the same events under the same revisions, and none is missing."""

from __future__ import annotations

from logservice import bounds
from logservice.hakeeper import feed
from logservice.hakeeper.answers.queries import GetEvents, decode_answer, encode_answer
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.cluster_events import ClusterEvent, EventKind, EventPage
from logservice.hakeeper.commands.verbs import (
    ChangeSettings,
    Rebalance,
    SetLeader,
    SetRepair,
    SetStoreMode,
    StoreMode,
)
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import State
from logservice.ids import Lsn, ShardId
from logservice.outcome import Applied
from logservice.versions import KNOWN
from tests.hakeeper.model import Model


def running(stores: int = 4, shards: int = 1) -> Model:
    model = Model(stores, versions=KNOWN)
    model.start(shards)
    model.run(100)
    return model


def events(model: Model, after: int = 0) -> list[ClusterEvent]:
    answer = model.rsm.lookup(GetEvents(after))
    assert isinstance(answer, EventPage)
    assert [one.revision for one in answer.events] == list(
        range(after + 1, after + 1 + len(answer.events))
    )
    return list(answer.events)


def kinds(found: list[ClusterEvent]) -> list[str]:
    return [one.kind for one in found]


def test_a_cluster_tells_how_it_was_born() -> None:
    told = kinds(events(running()))
    assert told.count(EventKind.PHASE) == 2
    assert {EventKind.VERSION, EventKind.LEADER} <= set(told)


def test_a_lost_store_is_told_with_its_repair_and_its_return() -> None:
    model = running()
    before = model.rsm.state.feed.last
    lost = model.rsm.state.shards[ShardId(1)].members.members[0].store_id
    model.stores[lost].up = False
    model.run(600)
    told = events(model, before)
    down = next(one for one in told if one.kind == EventKind.STORE_DOWN)
    assert down.store == lost
    begun = [one for one in told if one.kind == EventKind.OPERATOR_BEGUN]
    ended = [one for one in told if one.kind == EventKind.OPERATOR_ENDED]
    assert begun
    assert all(down.revision < one.revision for one in begun)
    replaced = next(one for one in ended if "replace" in one.text and one.shard == 1)
    assert replaced.text.endswith("done")
    member = [one for one in told if one.kind == EventKind.MEMBERSHIP and one.shard == 1]
    assert lost not in member[-1].text
    after = model.rsm.state.feed.last
    model.stores[lost].up = True
    model.run(100)
    assert (EventKind.STORE_UP, lost) in [(one.kind, one.store) for one in events(model, after)]


def test_a_halted_replica_is_told_once() -> None:
    model = running()
    before = model.rsm.state.feed.last
    member = model.rsm.state.shards[ShardId(1)].members.members[0]
    model.stores[member.store_id].copies[ShardId(1)].halted = "damage"
    model.run(60)
    told = [one for one in events(model, before) if one.kind == EventKind.REPLICA_HALTED]
    assert [(one.replica, one.store, one.text) for one in told] == [
        (member.replica_id, member.store_id, "damage")
    ]


def test_a_verb_that_changes_nothing_is_not_told() -> None:
    model = running()
    before = model.rsm.state.feed.last
    names = sorted(model.stores)
    verb = SetStoreMode(names[0], StoreMode.READ_ONLY, "disk")
    assert isinstance(model.propose(verb), Applied)
    assert isinstance(model.propose(verb), Applied)
    assert isinstance(model.propose(ChangeSettings(store_timeout_ticks=200)), Applied)
    told = [(one.kind, one.store) for one in events(model, before)]
    assert told == [(EventKind.VERB, names[0]), (EventKind.SETTINGS, "")]


def test_every_setting_and_every_verb_is_told_in_words() -> None:
    model = running()
    before = model.rsm.state.feed.last
    for asked in (
        ChangeSettings(store_timeout_ticks=200),
        ChangeSettings(replica_balance="on"),
        ChangeSettings(leader_balance="off"),
        ChangeSettings(replace_stuck="off"),
        ChangeSettings(replace_stuck="off"),
        ChangeSettings(catch_up_bytes_per_s=2_000_000),
        ChangeSettings(tail_read_bytes_per_s=4_000_000, catch_up_read_bytes_per_s=3_000_000),
        Rebalance(replicas=True, leaders=False),
        Rebalance(replicas=True, leaders=False, stop=True),
        SetRepair("", 36_000, "a new switch"),
        SetRepair("", 0),
        SetLeader(ShardId(1), 9_000, "", "a measurement"),
        SetLeader(ShardId(1), 0),
    ):
        assert isinstance(model.propose(asked), Applied), asked
    told = [
        one.text
        for one in events(model, before)
        if one.kind in (EventKind.SETTINGS, EventKind.VERB)
    ]
    replicas = "store timeout 20 s, 3 replicas, stores join automatic, replica balance"
    reads = "tail reads as configured, catch-up reads as configured"
    usual = f"catch-up as configured, {reads}"
    assert told == [
        f"{replicas} manual, leader balance on, replace stuck on, {usual}",
        f"{replicas} on, leader balance on, replace stuck on, {usual}",
        f"{replicas} on, leader balance off, replace stuck on, {usual}",
        f"{replicas} on, leader balance off, replace stuck off, {usual}",
        f"{replicas} on, leader balance off, replace stuck off, catch-up 2000000 bytes/s, {reads}",
        f"{replicas} on, leader balance off, replace stuck off, catch-up 2000000 bytes/s,"
        " tail reads 4000000 bytes/s, catch-up reads 3000000 bytes/s",
        "rebalance of replicas",
        "rebalance of replicas is ended",
        "repair off for 60 min: a new switch",
        "repair on",
        "leader stays for 15 min: a measurement",
        "leader is free",
    ]


def test_logs_are_told_as_they_come_and_go() -> None:
    model = running()
    before = model.rsm.state.feed.last
    created = model.propose(proposals.CreateShard(ShardId(0), "orders", 3))
    assert isinstance(created, Applied)
    shard = ShardId(created.value)
    assert isinstance(model.propose(proposals.ChangeShard(shard, labels={"a": "b"})), Applied)
    gone = model.propose(proposals.DeleteShard(shard, "orders", force=True))
    assert isinstance(gone, Applied)
    again = model.propose(proposals.DeleteShard(shard, "orders", force=True))
    assert isinstance(again, Applied)
    told = [one for one in events(model, before) if one.shard == shard]
    assert kinds(told) == [EventKind.LOG_CREATED, EventKind.LOG_CHANGED, EventKind.LOG_DELETED]


def test_a_watcher_that_fell_behind_learns_the_oldest_revision() -> None:
    state = State(cluster_version=2)
    more = 10
    for number in range(bounds.HAKEEPER_FEED_EVENTS_MAX + more):
        feed.tell(state, EventKind.VERB, text=str(number))
    assert len(state.feed.ring) == bounds.HAKEEPER_FEED_EVENTS_MAX
    late = feed.page(state, more - 1, 5)
    assert (late.events, late.oldest) == ((), more + 1)
    first = feed.page(state, more, 5)
    assert [one.revision for one in first.events] == [more + one for one in range(1, 6)]
    last = bounds.HAKEEPER_FEED_EVENTS_MAX + more
    assert first.last == last
    assert feed.page(state, last, 5).events == ()
    assert feed.page(state, last + 7, 5).events == ()
    assert feed.page(State(cluster_version=2), 0, 5) == EventPage((), 1, 0)


def test_a_replica_that_came_by_a_snapshot_goes_on_with_the_same_revisions() -> None:
    model = running()
    other = HAKeeperRsm()
    other.recover_from_snapshot(model.rsm.save_snapshot())
    assert other.state.feed == model.rsm.state.feed
    entries = len(model.rsm.state.feed.ring)
    assert entries > 0
    assert other.save_snapshot() == model.rsm.save_snapshot()


def test_truncations_of_a_log_are_one_event_at_a_bounded_rate() -> None:
    state = running(shards=1).rsm.state
    state.feed.truncations.clear()
    before = state.feed.last
    for lsn in range(10, 20):
        feed.truncated(state, ShardId(1), Lsn(lsn))
    state.tick += 1 if state.tick % bounds.HAKEEPER_FEED_TRUNCATION_TICKS == 0 else 0
    feed.tell_truncations(state)
    assert state.feed.last == before
    state.tick += -state.tick % bounds.HAKEEPER_FEED_TRUNCATION_TICKS
    feed.tell_truncations(state)
    assert [(one.kind, one.shard, one.text) for one in state.feed.ring[-1:]] == [
        (EventKind.TRUNCATED, 1, "19")
    ]
    assert state.feed.last == before + 1
    assert not state.feed.truncations


def test_many_truncated_logs_take_turns() -> None:
    state = State(cluster_version=2, tick=bounds.HAKEEPER_FEED_TRUNCATION_TICKS)
    logs = bounds.HAKEEPER_FEED_TRUNCATIONS_MAX + 1
    for number in range(logs, 0, -1):
        feed.truncated(state, ShardId(number), Lsn(5))
    feed.tell_truncations(state)
    assert list(state.feed.truncations) == [1]


def test_flags_of_one_pass_are_bounded() -> None:
    state = State(cluster_version=2)
    flags = [f"{number:05}" for number in range(bounds.HAKEEPER_FEED_FLAGS_PER_PASS + 3)]
    feed.tell_flags(state, [], flags)
    assert state.feed.last == bounds.HAKEEPER_FEED_FLAGS_PER_PASS + 1
    assert state.feed.ring[-1].text == "and 3 more"
    feed.tell_flags(state, flags, flags)
    assert state.feed.last == bounds.HAKEEPER_FEED_FLAGS_PER_PASS + 1


def test_a_long_text_is_cut() -> None:
    state = State(cluster_version=2)
    feed.tell(state, EventKind.VERB, text="x" * (bounds.HAKEEPER_FEED_TEXT_MAX + 1))
    assert len(state.feed.ring[0].text) == bounds.HAKEEPER_FEED_TEXT_MAX


def test_at_version_1_nothing_is_told() -> None:
    model = Model(3)
    model.start()
    model.run(100)
    assert model.rsm.state.cluster_version == 1
    assert model.rsm.state.feed.last == 0
    assert not model.rsm.state.feed.ring


def test_a_page_travels() -> None:
    model = running()
    page = model.rsm.lookup(GetEvents(0, 3))
    assert isinstance(page, EventPage)
    assert len(page.events) == 3
    assert decode_answer(GetEvents(0, 3), encode_answer(page)) == page
