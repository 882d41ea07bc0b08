"""A log's life in HAKeeper: born once, changed, deleted once, and never back."""

from __future__ import annotations

import random

import pytest
from logservice_wire.errors import NotReady, Reason

from logservice import bounds
from logservice.hakeeper import tombstones
from logservice.hakeeper.answers import listing, queries
from logservice.hakeeper.answers.views import ShardPage, ShardView
from logservice.hakeeper.commands import proposals, verbs
from logservice.hakeeper.commands.policy import Policy, ZoneRule
from logservice.hakeeper.commands.replies import ShardLimits
from logservice.hakeeper.commands.store_commands import StartReplica
from logservice.hakeeper.repair import safety
from logservice.hakeeper.state import State
from logservice.hakeeper.stores import holdings, limits
from logservice.ids import Index, Lsn, ShardId, StoreId
from logservice.invariants import InvariantViolation
from logservice.outcome import Applied, Outcome, Rejected
from logservice.sliced import Sliced
from logservice.versions import KNOWN
from tests.hakeeper.model import HEARTBEAT_TICKS, Copy, Model, expiry, rejected

CLOSED = (Index(40), Lsn(1001))


@pytest.fixture
def model() -> Model:
    """Four stores at the newest version, with log 1 (log-1) on three of them."""
    one = Model(4, versions=KNOWN)
    one.start()
    assert one.state.cluster_version == 2
    return one


def create(model: Model, name: str = "", **fields: object) -> Outcome:
    return model.propose(proposals.CreateShard(ShardId(0), name, 3, **fields))  # type: ignore[arg-type]


def born(model: Model, name: str = "", **fields: object) -> ShardId:
    outcome = create(model, name, **fields)
    assert isinstance(outcome, Applied), outcome
    model.run(40)
    return ShardId(outcome.value)


def delete(model: Model, shard: int, name: str, closed: int = 40, force: bool = False) -> Outcome:
    return model.propose(proposals.DeleteShard(ShardId(shard), name, Index(closed), force))


def close(model: Model, shard: int) -> None:
    model.shards[ShardId(shard)].closed = CLOSED
    model.run(2 * HEARTBEAT_TICKS)


def view(model: Model, shard: int) -> ShardView:
    found = model.rsm.lookup(queries.GetShard(ShardId(shard)))
    assert isinstance(found, ShardView)
    return found


def holders(model: Model, shard: int) -> list[str]:
    return sorted(store.name for store in model.stores.values() if ShardId(shard) in store.copies)


def refusal(outcome: Outcome) -> tuple[Reason, dict[str, str]]:
    assert isinstance(outcome, Rejected), outcome
    return outcome.reason, dict(outcome.metadata)


def wrong(outcome: Outcome) -> tuple[str, str]:
    """The field of an INVALID_ARGUMENT, and why."""
    reason, metadata = refusal(outcome)
    assert reason is Reason.INVALID_ARGUMENT
    return metadata["field"], metadata["why"]


# --- birth ----------------------------------------------------------------------------------------


def test_a_repeated_request_is_the_same_log_whatever_it_is_called_now(model: Model) -> None:
    wish = {"request_id": "r1", "owner": "ann", "policy": Policy(protected=True)}
    shard = born(model, "wal", **wish)
    again = create(model, "wal", **wish)
    assert again == Applied(value=shard, duplicate=True)
    model.propose(proposals.ChangeShard(shard, name="old-wal"))
    model.new_hakeeper_leader()
    assert create(model, "wal", **wish) == Applied(value=shard, duplicate=True)
    # Another owner's request of that id, and another wish under it, are not that request.
    assert born(model, "bobs", request_id="r1", owner="bob") != shard
    other = create(model, "wal", request_id="r1", owner="ann")
    assert wrong(other) == ("request_id", "an earlier request of this id asked for something else")


def test_a_late_repetition_of_the_create_does_not_bring_a_deleted_log_back(model: Model) -> None:
    shard = born(model, "wal", request_id="r1")
    assert delete(model, shard, "wal", force=True) == Applied(value=shard)
    assert refusal(create(model, "wal", request_id="r1")) == (
        Reason.SHARD_DELETED,
        {"shard": str(shard)},
    )
    model.run(60)
    assert rejected(create(model, "wal", request_id="r1")) is Reason.SHARD_DELETED
    assert born(model, "wal", request_id="r2") > shard


def test_the_newest_creations_are_remembered(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HAKEEPER_CREATIONS_REMEMBERED", 2)
    first = [born(model, request_id=f"r{number}") for number in range(3)]
    assert len(model.state.creations) == 2
    assert create(model, request_id="r2") == Applied(value=first[2], duplicate=True)
    assert create(model, request_id="r1") == Applied(value=first[1], duplicate=True)
    forgotten = create(model, request_id="r0")
    assert isinstance(forgotten, Applied)
    assert forgotten.value not in first


def test_a_wish_that_nobody_can_have_is_refused(model: Model) -> None:
    before = model.rsm.save_snapshot()
    even = model.propose(proposals.CreateShard(ShardId(0), "x", 4))
    assert wrong(even) == ("replicas", "an odd number")
    room = bounds.HAKEEPER_SHARD_LABEL_BYTES_MAX
    label = {f"{number:03}": "v" * 125 for number in range(room // 128)}
    assert sum(len(key) + len(text) for key, text in label.items()) == room
    wide = create(model, "x", labels=label | {"k": ""})
    assert wrong(wide) == ("labels", f"{room} bytes at most")
    named = model.propose(proposals.ChangeShard(ShardId(0), name="y"))
    assert wrong(named) == ("shard_id", "shard 0 keeps its name and has no labels")
    model.state.index = Index(model.state.index - 3)
    assert model.rsm.save_snapshot() == before
    assert isinstance(create(model, "x", labels=label), Applied)


def test_policy_and_labels_are_shown_and_survive_a_new_leader(model: Model) -> None:
    policy = Policy(ZoneRule.NONE, "z1", True)
    shard = born(model, "wal", policy=policy, labels={"b": "2", "a": "1"})
    model.new_hakeeper_leader()
    found = view(model, shard)
    assert (found.zone_rule, found.leader_zone, found.protected) == ("none", "z1", True)
    assert (found.labels, found.state) == ({"a": "1", "b": "2"}, "open")
    assert model.state.shards[shard].policy == policy


# --- change ---------------------------------------------------------------------------------------


def test_a_change_replaces_what_it_names_and_counts(model: Model) -> None:
    change = proposals.ChangeShard(ShardId(1), name="wal", labels={"team": "x"}, revision=0)
    assert model.propose(change) == Applied(value=1)
    assert refusal(model.propose(change)) == (Reason.STALE_EPOCH, {"epoch": "1"})
    again = proposals.ChangeShard(ShardId(1), name="wal", labels={"team": "x"})
    assert model.propose(again) == Applied(value=1, duplicate=True)
    assert model.propose(
        proposals.ChangeShard(ShardId(1), policy=Policy(leader_zone="z2"))
    ) == Applied(value=2)
    found = view(model, 1)
    assert (found.name, found.labels, found.leader_zone, found.revision) == (
        "wal",
        {"team": "x"},
        "z2",
        2,
    )
    assert model.propose(proposals.ChangeShard(ShardId(1), replicas=1)) == Applied(value=3)
    assert model.state.shards[ShardId(1)].wanted == 1


def test_names_are_unique_among_living_logs(model: Model) -> None:
    second = born(model, "second")
    taken = model.propose(proposals.ChangeShard(second, name="log-1"))
    assert refusal(taken) == (Reason.SHARD_EXISTS, {"shard": "1", "name": "log-1"})
    assert refusal(create(model, "log-1"))[0] is Reason.SHARD_EXISTS
    delete(model, 1, "log-1", force=True)
    assert model.propose(proposals.ChangeShard(second, name="log-1")) == Applied(value=1)
    assert model.rsm.lookup(queries.ResolveShard("second")) is None
    found = model.rsm.lookup(queries.ResolveShard("log-1"))
    assert isinstance(found, ShardView)
    assert found.shard_id == second


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (proposals.ChangeShard(ShardId(9), name="x"), Reason.SHARD_NOT_FOUND),
        (proposals.ChangeShard(ShardId(0), name="x"), Reason.INVALID_ARGUMENT),
        (proposals.ChangeShard(ShardId(0), labels={}), Reason.INVALID_ARGUMENT),
        (proposals.ChangeShard(ShardId(1), replicas=2), Reason.INVALID_ARGUMENT),
    ],
)
def test_changes_that_are_refused(
    model: Model, change: proposals.ChangeShard, reason: Reason
) -> None:
    assert rejected(model.propose(change)) is reason


# --- the Close in the reports ---------------------------------------------------------------------


def test_the_leader_or_a_majority_says_that_a_log_is_closed(model: Model) -> None:
    close(model, 1)
    found = view(model, 1)
    assert (found.state, found.closed_index, found.end_lsn) == ("closed", 40, 1001)
    for store in model.stores.values():
        model.kill(store.name)
    for tick in range(expiry(model)):
        model.propose(proposals.Tick(model.state.term))
        assert tick >= 0
    assert view(model, 1).state == "closed"


def test_one_store_that_lies_closes_nothing(model: Model) -> None:
    leader = model.shards[ShardId(1)].leader
    for store in model.stores.values():
        copy = store.copies.get(ShardId(1))
        if copy is not None and copy.replica != leader:
            report = store.reported[ShardId(1)]
            known = model.state.stores[store.name].replicas
            known[ShardId(1)] = type(report)(
                **{
                    name: getattr(report, name)
                    for name in report.__struct_fields__
                    if name not in ("closed_index", "closed_lsn")
                },
                closed_index=CLOSED[0],
                closed_lsn=CLOSED[1],
            )
            break
    assert view(model, 1).state == "open"


# --- deletion -------------------------------------------------------------------------------------


def test_a_closed_log_is_deleted_and_its_space_comes_back(model: Model) -> None:
    assert len(holders(model, 1)) == 3
    close(model, 1)
    assert delete(model, 1, "log-1") == Applied(value=1)
    assert view(model, 1).state == "deleting"
    assert len(view(model, 1).held_by) == 3
    assert delete(model, 1, "log-1") == Applied(value=1, duplicate=True)
    model.run(3 * HEARTBEAT_TICKS)
    assert holders(model, 1) == []
    assert view(model, 1).state == "deleted"
    assert ShardId(1) not in model.state.shards
    assert model.state.deleted == [(1, 1)]
    assert not model.state.flags
    assert delete(model, 1, "whatever") == Applied(value=1, duplicate=True)
    assert rejected(model.propose(proposals.ChangeShard(ShardId(1), name="x"))) is (
        Reason.SHARD_DELETED
    )


def test_the_id_is_never_used_again_and_the_name_is(model: Model) -> None:
    close(model, 1)
    delete(model, 1, "log-1")
    by_hand = model.propose(proposals.CreateShard(ShardId(1), "again", 3))
    assert refusal(by_hand) == (Reason.SHARD_DELETED, {"shard": "1"})
    model.run(60)
    by_hand = model.propose(proposals.CreateShard(ShardId(1), "again", 3))
    assert refusal(by_hand) == (Reason.SHARD_DELETED, {"shard": "1"})
    assert born(model, "log-1") == 2


def test_a_store_that_was_away_removes_its_replica_when_it_comes_back(model: Model) -> None:
    """Also long after the log left the state, and under a new leader of HAKeeper."""
    away = holders(model, 1)[0]
    model.kill(away)
    model.run(expiry(model))
    close(model, 1)
    delete(model, 1, "log-1")
    model.run(2 * HEARTBEAT_TICKS)
    assert ShardId(1) not in model.state.shards
    assert holders(model, 1) == [away]
    model.new_hakeeper_leader()
    model.revive(away)
    model.run(2 * HEARTBEAT_TICKS)
    assert holders(model, 1) == []
    assert not [flag for flag in model.state.flags if "unknown" in flag]


def test_a_store_that_is_only_late_is_waited_for(model: Model) -> None:
    late = holders(model, 1)[0]
    model.kill(late)
    close(model, 1)
    delete(model, 1, "log-1")
    model.run(3 * HEARTBEAT_TICKS)
    assert view(model, 1).held_by == (late,)
    model.revive(late)
    model.run(3 * HEARTBEAT_TICKS)
    assert view(model, 1).state == "deleted"


def test_an_unknown_shard_is_kept_and_flagged(model: Model) -> None:
    store = model.stores[StoreId("s1")]
    known = store.copies[ShardId(1)]
    model.shards[ShardId(77)] = model.shards[ShardId(1)]
    store.copies[ShardId(77)] = Copy(known.replica, 1, known.membership)
    model.run(2 * HEARTBEAT_TICKS)
    assert ShardId(77) in store.copies
    assert any("unknown shard 77" in flag for flag in model.state.flags)


def test_a_rogue_store_that_reports_a_deleted_log_changes_nothing(model: Model) -> None:
    rogue = holders(model, 1)[0]
    close(model, 1)
    delete(model, 1, "log-1")
    copy = model.stores[StoreId(rogue)].copies[ShardId(1)]
    model.run(3 * HEARTBEAT_TICKS)
    before = (list(model.state.shards), list(model.state.deleted))
    for _ in range(3):
        model.stores[StoreId(rogue)].copies[ShardId(1)] = copy
        model.run(HEARTBEAT_TICKS)
    assert (list(model.state.shards), list(model.state.deleted)) == before
    assert not model.state.operators
    assert not model.state.flags


HAKEEPERS = {"field": "shard_id", "why": "shard 0 is HAKeeper itself"}


@pytest.mark.parametrize(
    ("prepare", "fields", "reason", "metadata"),
    [
        ("", {"shard": 0, "name": "hakeeper"}, Reason.INVALID_ARGUMENT, HAKEEPERS),
        ("", {"shard": 9, "name": "x"}, Reason.SHARD_NOT_FOUND, {"shard": "9"}),
        (
            "",
            {"shard": 1, "name": "other"},
            Reason.INVALID_ARGUMENT,
            {"field": "name", "why": "shard 1 has another name", "name": "log-1"},
        ),
        ("", {"shard": 1, "name": "log-1", "closed": 0}, Reason.DELETE_REFUSED, {"why": "open"}),
        ("", {"shard": 1, "name": "log-1"}, Reason.NOT_READY, {"field": "closed_index"}),
        (
            "close",
            {"shard": 1, "name": "log-1", "closed": 41},
            Reason.INVALID_ARGUMENT,
            {"field": "closed_index", "why": "the log was closed by another entry"},
        ),
        (
            "close hold",
            {"shard": 1, "name": "log-1"},
            Reason.DELETE_REFUSED,
            {"why": "holds", "holds": "2"},
        ),
        (
            "close protect",
            {"shard": 1, "name": "log-1"},
            Reason.DELETE_REFUSED,
            {"why": "protected"},
        ),
    ],
)
def test_a_deletion_is_refused_and_changes_nothing(
    model: Model, prepare: str, fields: dict[str, object], reason: Reason, metadata: dict[str, str]
) -> None:
    if "hold" in prepare:
        model.shards[ShardId(1)].holds = 2
    if "protect" in prepare:
        model.propose(proposals.ChangeShard(ShardId(1), policy=Policy(protected=True)))
    if "close" in prepare:
        close(model, 1)
    before = model.rsm.save_snapshot()
    assert refusal(delete(model, **fields)) == (reason, metadata)  # type: ignore[arg-type]
    model.state.index = Index(model.state.index - 1)
    assert model.rsm.save_snapshot() == before
    model.index += 1
    forced = delete(model, **{**fields, "force": True})  # type: ignore[arg-type]
    may = fields.get("name") == "log-1" and "protect" not in prepare
    assert isinstance(forced, Applied) == may


def test_inv_hk_protected_only_another_policy_takes_the_protection_off(model: Model) -> None:
    """INV-HK-PROTECTED: not force, and not a log that is closed or has lost its majority."""
    model.propose(proposals.ChangeShard(ShardId(1), policy=Policy(protected=True)))
    close(model, 1)
    for name in holders(model, 1)[:2]:
        model.stores[StoreId(name)].copies.pop(ShardId(1))
    model.run(5)
    for force in (False, True):
        outcome = delete(model, 1, "log-1", force=force)
        assert refusal(outcome) == (Reason.DELETE_REFUSED, {"why": "protected"})
    model.new_hakeeper_leader()
    outcome = delete(model, 1, "log-1", force=True)
    assert refusal(outcome) == (Reason.DELETE_REFUSED, {"why": "protected"})
    model.propose(proposals.ChangeShard(ShardId(1), policy=Policy()))
    assert isinstance(delete(model, 1, "log-1", force=True), Applied)


def test_force_deletes_a_log_whose_majority_is_lost(model: Model) -> None:
    for name in holders(model, 1)[:2]:
        model.stores[StoreId(name)].copies.pop(ShardId(1))
    model.run(5)
    assert delete(model, 1, "log-1", force=True) == Applied(value=1)
    model.run(2 * HEARTBEAT_TICKS)
    assert holders(model, 1) == []
    assert view(model, 1).state == "deleted"


def test_inv_hk_undead_nothing_is_done_for_a_deleted_log(model: Model) -> None:
    """INV-HK-UNDEAD: operators and commands about it end with it, and the gate lets none pass."""
    victim = holders(model, 1)[0]
    model.kill(victim)
    model.run_until(lambda: bool(model.state.operators), 3 * expiry(model))
    assert any(store.queue for store in model.state.stores.values()) or model.state.operators
    delete(model, 1, "log-1", force=True)
    assert all(one.shard != 1 for one in model.state.operators.values())
    assert not any(
        getattr(item.command, "shard", None) == 1
        for store in model.state.stores.values()
        for item in store.queue
    )
    initial = model.state.shards[ShardId(1)]
    command = StartReplica(
        ShardId(1),
        initial.members.voters[0],
        model.state.stores[StoreId("s2")].directories[0].incarnation,
        initial.initial,
        join=False,
        fresh=True,
    )
    assert safety.objection(model.state, StoreId("s2"), command) == "the log is deleted"
    model.run(3 * expiry(model))
    model.revive(victim)
    model.run(3 * expiry(model))
    assert holders(model, 1) == []
    assert all(one.shard != 1 for one in model.state.operators.values())


def test_wishes_about_a_log_end_with_it(model: Model) -> None:
    source = holders(model, 1)[0]
    [target] = set(model.stores) - set(holders(model, 1))
    wish = verbs.WishReplica(verbs.Errand.MOVE, ShardId(1), source, target)
    assert isinstance(model.propose(wish), Applied)
    delete(model, 1, "log-1", force=True)
    model.run(3 * HEARTBEAT_TICKS)
    assert [one.result for one in model.state.wishes.values()] == ["the log was deleted"]
    assert not model.state.operators
    assert holders(model, 1) == []


def test_hakeepers_leader_may_change_at_every_step(model: Model) -> None:
    for step in range(4):
        shard = born(model, f"log-x{step}")
        for moment in ("close", "delete", "remove", "gone"):
            if moment == "close":
                model.shards[shard].closed = CLOSED
                model.run(2 * HEARTBEAT_TICKS)
            elif moment == "delete":
                assert delete(model, shard, f"log-x{step}") == Applied(value=shard)
            else:
                model.run(HEARTBEAT_TICKS if moment == "remove" else 2 * HEARTBEAT_TICKS)
            if ("close", "delete", "remove", "gone")[step] == moment:
                model.new_hakeeper_leader()
        assert view(model, shard).state == "deleted"
        assert holders(model, shard) == []


# --- tombstones -----------------------------------------------------------------------------------


def test_inv_hk_tombstone_ranges_are_those_of_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-HK-TOMBSTONE."""
    for seed in range(200):
        rng = random.Random(seed)
        state, gone = State(), set[int]()
        for number in rng.sample(range(1, 60), 40):
            tombstones.bury(state, ShardId(number))
            gone.add(number)
            spread = [one for low, high in state.deleted for one in range(low, high + 1)]
            assert spread == sorted(gone)
            pairs = zip(state.deleted, state.deleted[1:], strict=False)
            assert all(before[1] + 1 < after[0] for before, after in pairs)
        for number in range(62):
            assert tombstones.is_deleted(state, ShardId(number)) == (number in gone)
    with pytest.raises(InvariantViolation, match="INV-HK-TOMBSTONE"):
        tombstones.bury(state, ShardId(min(gone)))


def test_there_is_an_end_to_the_ranges(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HAKEEPER_DELETED_RANGES_MAX", 1)
    second = born(model, "second")
    assert delete(model, 1, "log-1", force=True) == Applied(value=1)
    assert refusal(delete(model, second, "second", force=True)) == (Reason.BUSY, {"limit": "1"})


def test_an_answer_names_so_many_deleted_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HAKEEPER_DELETED_PER_REPLY_MAX", 2)
    state = State(deleted=[(3, 5), (9, 9)])
    held = [ShardId(number) for number in (9, 5, 4, 1, 4)]
    assert tombstones.buried(state, held) == (4, 5)
    assert tombstones.buried(State(), held) == ()


# --- look-ups -------------------------------------------------------------------------------------


def listed(model: Model, **fields: object) -> tuple[list[int], int]:
    found = model.rsm.lookup(queries.ListShards(**fields))  # type: ignore[arg-type]
    assert isinstance(found, Sliced)
    page = found.at_a_stretch()
    return [one.shard_id for one in page.shards], page.after


def test_logs_are_listed_page_by_page_and_filtered(model: Model) -> None:
    for number in range(2, 7):
        assert born(model, f"wal-{number}", labels={"parity": str(number % 2)}) == number
    assert listed(model) == ([1, 2, 3, 4, 5, 6], 0)
    assert listed(model, limit=2) == ([1, 2], 2)
    assert listed(model, limit=2, after=ShardId(4)) == ([5, 6], 0)
    assert listed(model, prefix="wal-") == ([2, 3, 4, 5, 6], 0)
    assert listed(model, labels={"parity": "1"}) == ([3, 5], 0)
    assert listed(model, labels={"parity": ""}, limit=4) == ([2, 3, 4, 5], 5)
    close(model, 4)
    assert listed(model, states=("closed",)) == ([4], 0)
    delete(model, 4, "wal-4")
    assert listed(model, states=("open",)) == ([1, 2, 3, 5, 6], 0)
    assert listed(model, states=("deleting",)) == ([4], 0)
    create(model, "new")
    assert listed(model, states=("creating",)) == ([7], 0)


def test_entries_are_applied_while_logs_are_listed(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is there all the time is shown, and one that goes is not in the way."""
    monkeypatch.setattr(listing, "_SLICE", 1)
    for number in range(2, 9):
        born(model, f"wal-{number}")
    found = model.rsm.lookup(queries.ListShards(states=("open",), limit=4))
    steps = found.steps  # type: ignore[attr-defined]
    for _ in range(3):
        next(steps)
    close(model, 4)
    del model.state.shards[ShardId(5)]
    holdings.forget(model.state)
    with pytest.raises(StopIteration) as ended:
        while True:
            next(steps)
    page = ended.value.value
    assert ([one.shard_id for one in page.shards], page.after) == ([1, 2, 3, 6], 6)
    assert listed(model, states=("closed",)) == ([4], 0)


def test_a_page_has_an_end(model: Model) -> None:
    largest = queries.ListShards(limit=bounds.HAKEEPER_SHARDS_PER_PAGE_MAX)
    assert queries.decode_query(queries.encode_query(largest)) == largest
    with pytest.raises(queries.QueryCorrupt):
        queries.decode_query(
            queries.encode_query(queries.ListShards(limit=bounds.HAKEEPER_SHARDS_PER_PAGE_MAX + 1))
        )


def test_questions_and_answers_travel(model: Model) -> None:
    model.propose(proposals.ChangeShard(ShardId(1), labels={"a": "b"}))
    for query in (queries.ListShards(labels={"a": ""}), queries.ResolveShard("log-1")):
        assert queries.decode_query(queries.encode_query(query)) == query
        answer = model.rsm.lookup(query)
        if isinstance(answer, Sliced):
            answer = answer.at_a_stretch()
        assert isinstance(answer, ShardPage | ShardView)
        assert queries.decode_answer(query, queries.encode_answer(answer)) == answer


# --- limits ---------------------------------------------------------------------------------------


def limit(model: Model, shard: int, **wish: int) -> Outcome:
    return model.propose(proposals.ChangeShard(ShardId(shard), policy=Policy(**wish)))


def test_limits_are_shown_and_stores_are_told_of_all_of_them(model: Model) -> None:
    second = born(model, "second", policy=Policy(weight=300))
    assert limits.news(model.state, 0) == (ShardLimits(second, weight=300),)
    version = model.state.limits_version
    limit(model, 1, max_bytes_per_s=1 << 20, max_records_per_s=50)
    assert model.state.limits_version == version + 1
    assert limits.news(model.state, version) == (
        ShardLimits(ShardId(1), 1 << 20, 50),
        ShardLimits(second, weight=300),
    )
    found = view(model, 1)
    assert (found.max_bytes_per_s, found.max_records_per_s, found.weight) == (1 << 20, 50, 100)
    model.new_hakeeper_leader()
    assert limits.news(model.state, version + 1) is None
    model.propose(proposals.ChangeShard(ShardId(1), name="another"))
    model.propose(
        proposals.ChangeShard(
            ShardId(1),
            policy=Policy(max_bytes_per_s=1 << 20, max_records_per_s=50, leader_zone="z"),
        )
    )
    assert model.state.limits_version == version + 1, "nothing for the stores in that"
    delete(model, second, "second", force=True)
    limit(model, 1)
    assert limits.news(model.state, version) == ()


def test_the_retention_is_shown_and_stores_are_told_of_it(model: Model) -> None:
    second = born(model, "second", policy=Policy(retention_age_s=86_400))
    limit(model, 1, retention_bytes=1 << 30, retention_records=1000)
    assert limits.news(model.state, 0) == (
        ShardLimits(ShardId(1), retention_bytes=1 << 30, retention_records=1000),
        ShardLimits(second, retention_age_s=86_400),
    )
    found = view(model, 1)
    assert (found.retention_age_s, found.retention_bytes, found.retention_records) == (
        0,
        1 << 30,
        1000,
    )
    assert view(model, second).retention_age_s == 86_400
    version = model.state.limits_version
    model.new_hakeeper_leader()
    limit(model, 1)
    assert model.state.limits_version == version + 1
    assert limits.news(model.state, version) == (ShardLimits(second, retention_age_s=86_400),)


def test_the_bounds_of_a_retention(model: Model) -> None:
    for field, least in (
        ("retention_age_s", bounds.RETENTION_AGE_S_MIN),
        ("retention_bytes", bounds.RETENTION_BYTES_MIN),
        ("retention_records", bounds.RETENTION_RECORDS_MIN),
    ):
        low = limit(model, 1, **{field: least - 1})
        assert wrong(low) == (field, f"at least {least}, or 0 for no limit")
        assert isinstance(limit(model, 1, **{field: least}), Applied)
        assert wrong(limit(model, 0, **{field: least})) == ("shard_id", "shard 0 has no limits")
    most = bounds.RETENTION_AGE_S_MAX
    assert wrong(limit(model, 1, retention_age_s=most + 1)) == (
        "retention_age_s",
        f"at most {most}, or 0 for no limit",
    )
    assert isinstance(limit(model, 1, retention_age_s=most), Applied)


def test_a_cluster_of_version_1_has_no_retention() -> None:
    """It cannot be said there, so no store of it is told."""
    change = proposals.ChangeShard(ShardId(1), policy=Policy(retention_records=1000))
    with pytest.raises(NotReady):
        proposals.encode(change, 1)
    made = proposals.CreateShard(ShardId(0), "x", 3, policy=Policy(retention_records=1000))
    with pytest.raises(NotReady):
        proposals.encode(made, 1)


def test_limits_that_nobody_can_have_are_refused(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    low = limit(model, 1, max_bytes_per_s=bounds.SHARD_BYTES_PER_S_MIN - 1)
    least = bounds.SHARD_BYTES_PER_S_MIN
    assert wrong(low) == ("max_bytes_per_s", f"at least {least}, or 0 for no limit")
    assert isinstance(limit(model, 1, max_bytes_per_s=bounds.SHARD_BYTES_PER_S_MIN), Applied)
    assert wrong(limit(model, 0, weight=1)) == ("shard_id", "shard 0 has no limits")
    for weight in (0, -1, bounds.SHARD_WEIGHT_MAX + 1):
        change = proposals.ChangeShard(ShardId(1), policy=Policy(weight=weight))
        with pytest.raises(proposals.ProposalCorrupt):
            proposals.decode(proposals.encode(change, 2))
    second = born(model, "second")
    monkeypatch.setattr(bounds, "HAKEEPER_LIMITED_SHARDS_MAX", 1)
    assert refusal(limit(model, second, weight=5)) == (Reason.BUSY, {"limit": "1"})
    assert refusal(create(model, "third", policy=Policy(weight=5)))[0] is Reason.BUSY
    assert isinstance(limit(model, 1, weight=bounds.SHARD_WEIGHT_MAX), Applied)
