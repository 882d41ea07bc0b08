"""Replicas and leaders are moved to be better placed: when, how many at once, and that it ends. It
names INV-HK-BALANCE-WAITS.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from logservice_wire.errors import NotReady, Reason
from msgspec.structs import replace

from logservice import bounds
from logservice.hakeeper import state as states
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.balancing import BalanceMode, Balancing
from logservice.hakeeper.commands.policy import Policy, ZoneRule
from logservice.hakeeper.commands.store_commands import ChangeMembership, TransferLeader
from logservice.hakeeper.commands.verbs import ChangeSettings, Rebalance, SetRepair
from logservice.hakeeper.repair import check
from logservice.hakeeper.repair.rebalance import is_whole
from logservice.hakeeper.repair.rehearsal import in_slices, rehearse
from logservice.hakeeper.repair.safety import voters_after
from logservice.hakeeper.state import Cause, Repair, State
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.outcome import Applied, Rejected
from logservice.versions import KNOWN, ONLY_FIRST
from tests.hakeeper.model import HEARTBEAT_TICKS, Model, expiry, rejected
from tests.hakeeper.placements import labelled, random_cluster
from tests.hakeeper.random_states import STATES, random_state
from tests.hakeeper.test_safety import spare_votes, up

LOGS = 6
QUIET_TICKS = 3000


def started(zones: str, shards: int = LOGS, *, labelled: bool = True) -> Model:
    """Stores s1, s2, ... in these zones, one letter for each."""
    model = Model(len(zones), versions=KNOWN)
    for store, zone in zip(model.stores.values(), zones, strict=True):
        store.labels = {"zone": zone} if labelled else {}
    model.start(shards=shards)
    assert model.state.cluster_version == 2
    return model


def label(model: Model, zones: str) -> None:
    for store, zone in zip(model.stores.values(), zones, strict=True):
        store.labels = {"zone": zone}


def zones_of(model: Model, shard: ShardId) -> Counter[str]:
    members = model.shards[shard].membership.members
    return Counter(model.stores[member.store_id].labels.get("zone", "") for member in members)


def logs(model: Model) -> list[ShardId]:
    return [shard for shard in model.shards if shard != HAKEEPER_SHARD]


def spread(model: Model) -> bool:
    """Whether no zone has two voters of a log."""
    return model.healthy() and all(
        max(zones_of(model, shard).values()) == 1 for shard in logs(model)
    )


def loads(model: Model) -> Counter[str]:
    """Replicas of logs on every store."""
    return Counter(
        member.store_id
        for shard in logs(model)
        for member in model.shards[shard].membership.members
    )


def led(model: Model) -> Counter[str]:
    """Logs that every store leads."""
    found: Counter[str] = Counter()
    for shard in logs(model):
        oracle = model.shards[shard]
        member = oracle.membership.member(oracle.leader)
        assert member is not None
        found[member.store_id] += 1
    return found


def even(found: Counter[str], stores: int) -> bool:
    counts = [*found.values(), *[0] * (stores - len(found))]
    return max(counts) - min(counts) <= 1


def changes(model: Model) -> int:
    return sum(len(oracle.changes) for oracle in model.shards.values())


def transfers(model: Model) -> int:
    return sum(oracle.term for oracle in model.shards.values())


def assert_at_rest(model: Model, ticks: int = QUIET_TICKS) -> None:
    """Nothing moves any more."""
    before = changes(model), transfers(model), model.state.next_operator_id
    model.run(ticks)
    assert (changes(model), transfers(model), model.state.next_operator_id) == before


def begun_moves(model: Model) -> list[int]:
    """Let time pass until no move was begun for 400 ticks; returns when each was."""
    begun: list[int] = []
    seen: set[int] = set()
    while not (begun and not model.state.operators and model.state.tick > begun[-1] + 400):
        model.run(1)
        moves = {
            number
            for number, operator in model.state.operators.items()
            if operator.kind is Repair.MOVE and number not in seen
        }
        begun += [model.state.tick] * len(moves)
        seen |= moves
    return begun


def longest_pause(begun: list[int]) -> int:
    return max(later - earlier for earlier, later in itertools.pairwise(begun))


@pytest.mark.parametrize("heartbeat_ticks", [1, HEARTBEAT_TICKS])
def test_a_look_follows_when_the_moves_of_the_one_before_have_ended(
    monkeypatch: pytest.MonkeyPatch, heartbeat_ticks: int
) -> None:
    """One store joins, and two replicas come at a time. Before, each pair waited for the next idle
    pass, up to 20 s.
    """
    monkeypatch.setattr("tests.hakeeper.model.HEARTBEAT_TICKS", heartbeat_ticks)
    model = started("abc", 12)
    model.add_store("s4").labels = {"zone": "a"}
    model.run(100)
    assert model.propose(Rebalance(replicas=True, leaders=False)) == Applied()
    begun = begun_moves(model)
    assert len(begun) == 6
    most = 4 * bounds.HAKEEPER_BALANCE_TICKS
    assert longest_pause(begun) <= most, "a move takes four heartbeats at least"
    model.run_until(lambda: not model.state.balance.looks_owed, 100)


@pytest.mark.parametrize("shards", [24, bounds.HAKEEPER_BALANCE_SHARDS])
def test_a_look_follows_although_its_moves_ended_before_the_next_one(
    monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    """Stores report at once, so a move takes less than the second between two looks. The next look,
    at the leaders or at another part of the shards, found nothing to go on with then, and what was
    left of a zone that came back waited for the next idle pass: 64 logs took more than three
    minutes. With shard 0, that many are two parts.
    """
    monkeypatch.setattr("tests.hakeeper.model.HEARTBEAT_TICKS", 1)
    model = started("aabbcc", shards)
    for name in ("s5", "s6"):
        model.kill(name)
    model.run(expiry(model))
    model.run_until(model.healthy, 4000)
    for name in ("s5", "s6"):
        model.revive(name)
    begun = begun_moves(model)
    assert spread(model)
    assert len(begun) >= shards
    assert longest_pause(begun) <= 2 * bounds.HAKEEPER_BALANCE_TICKS


# --- zones ----------------------------------------------------------------------------------------


def test_a_new_cluster_has_its_logs_in_three_zones() -> None:
    model = started("aabbcc")
    assert {max(zones_of(model, shard).values()) for shard in logs(model)} == {1}
    model.run(bounds.HAKEEPER_STEADY_TICKS + 400)
    assert zones_of(model, HAKEEPER_SHARD) == {"a": 1, "b": 1, "c": 1}
    assert_at_rest(model)


def test_a_zone_that_is_lost_for_good_and_another_that_comes() -> None:
    model = started("aabbcc")
    for name in ("s5", "s6"):
        model.kill(name)
    model.run(expiry(model))
    model.run_until(model.healthy, 2000)
    for shard in logs(model):
        assert sorted(zones_of(model, shard).values()) == [1, 2]
    for number in (7, 8):
        model.add_store(f"s{number}").labels = {"zone": "d"}
    model.run_until(lambda: spread(model), 2000)
    model.run(400)
    assert_at_rest(model)


def test_a_zone_that_comes_back_gets_its_replicas_again_and_nothing_else_moves() -> None:
    model = started("aabbcc")
    for name in ("s5", "s6"):
        model.kill(name)
    model.run(expiry(model))
    model.run_until(model.healthy, 2000)
    before = changes(model)
    for name in ("s5", "s6"):
        model.revive(name)
    model.run_until(lambda: spread(model), 2000)
    assert changes(model) - before <= 3 * (LOGS + 1)
    model.run(600)
    assert_at_rest(model)


def agree(model: Model, shard: ShardId, policy: Policy) -> None:
    assert isinstance(model.propose(proposals.ChangeShard(shard, policy=policy)), Applied)


def test_a_hard_rule_waits_for_the_zone() -> None:
    model = started("aabbcc", shards=1)
    [shard] = logs(model)
    assert isinstance(
        model.propose(proposals.ChangeShard(shard, policy=Policy(ZoneRule.HARD))), Applied
    )
    for name in ("s5", "s6"):
        model.kill(name)
    model.run(expiry(model) + 600)
    assert zones_of(model, shard) == {"a": 1, "b": 1, "c": 1}
    assert any(f"shard {shard}: no spare store" in flag for flag in model.state.flags)
    model.add_store("s7").labels = {"zone": "d"}
    model.run_until(lambda: spread(model) and not model.state.flags, 1500)
    assert zones_of(model, shard) == {"a": 1, "b": 1, "d": 1}


def test_a_hard_rule_that_labels_break_is_flagged_and_mended() -> None:
    model = started("aabbcc", shards=1)
    [shard] = logs(model)
    assert isinstance(
        model.propose(proposals.ChangeShard(shard, policy=Policy(ZoneRule.HARD))), Applied
    )
    label(model, "aaaaaa")
    model.run_until(lambda: bool(model.state.flags), 400)
    assert list(model.state.flags) == [
        f"shard {shard}: zone a has 3 of its voters, against its rule"
    ]
    label(model, "abcabc")
    model.run_until(lambda: spread(model) and not model.state.flags, 1500)


def test_labels_that_are_given_out_one_by_one_move_nothing_before_the_last() -> None:
    model = started("aabbcc", labelled=False)
    model.run(400)
    before = changes(model)
    stores = list(model.stores.values())
    for store, zone in zip(stores[:-1], "aabbc", strict=True):
        store.labels = {"zone": zone}
        model.run(250)
    assert changes(model) == before
    assert any("store s6 names no zone" in flag for flag in model.state.flags)
    stores[-1].labels = {"zone": "c"}
    model.run_until(lambda: spread(model) and not model.state.flags, 3000)


# --- replicas -------------------------------------------------------------------------------------


def test_a_person_balances_and_it_ends() -> None:
    model = started("aaa", labelled=False)
    model.add_store("s4")
    model.run(600)
    assert loads(model)["s4"] == 0, "nothing moves before a person says so"
    assert model.propose(Rebalance(replicas=True, leaders=False)) == Applied()
    model.run_until(lambda: model.state.balance.replicas_wished_tick == 0, 2000)
    model.run_until(model.healthy, 100)
    total = loads(model) + Counter(
        member.store_id for member in model.shards[HAKEEPER_SHARD].membership.members
    )
    assert max(total.values()) - min(total.values()) <= 1
    model.run(600)
    assert_at_rest(model)


def test_a_look_passes_so_many_and_the_round_reaches_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wish of a person ends where it ends when one look passes everything."""
    monkeypatch.setattr("logservice.bounds.HAKEEPER_BALANCE_REPLICAS", 2)
    monkeypatch.setattr("logservice.bounds.HAKEEPER_BALANCE_LEADERS", 3)
    model = started("aaa", labelled=False)
    model.add_store("s4")
    model.run(bounds.HAKEEPER_STEADY_TICKS + 50)
    walks: set[tuple[tuple[str, bool, int], ...]] = set()
    passed: set[int] = set()
    assert model.propose(Rebalance(replicas=True, leaders=True)) == Applied()
    while model.state.balance.replicas_wished_tick or model.state.balance.leaders_wished_tick:
        model.run(1)
        known = model.state.balance
        walks.add(known.replicas_walk)
        passed.add(known.leaders_after)
        assert model.state.tick < 6000
    model.run_until(model.healthy, 100)
    assert len(walks) > 3
    assert passed >= {0, 3, 6}
    assert loads(model)["s4"] >= LOGS // 2
    assert led(model)["s4"]
    model.run(600)
    assert_at_rest(model)


def test_stores_that_can_give_nothing_keep_nobody_waiting() -> None:
    """Of three zones, two get more stores; the stores of the third have the more replicas for that,
    and can give none of them to another zone. A round that took each replica in its turn passed all
    of theirs between two moves: this took 2 100 ticks, and half of them nothing moved.
    """
    model = started("abcc", 64)
    for number, zone in enumerate("abab", 5):
        model.add_store(f"s{number}").labels = {"zone": zone}
    model.run(100)
    assert model.propose(Rebalance(replicas=True, leaders=False)) == Applied()
    began = model.state.tick
    model.run_until(lambda: model.state.balance.replicas_wished_tick == 0, 2000)
    moves = sum(loads(model)[name] for name in ("s5", "s6", "s7", "s8"))
    assert moves == 84
    # Two stores give two each at once, and a move takes four heartbeats.
    rounds = moves // (2 * bounds.HAKEEPER_MOVES_PER_STORE_MAX)
    assert model.state.tick - began <= rounds * 6 * HEARTBEAT_TICKS
    assert_at_rest(model)


def test_a_broken_rule_is_remembered_while_others_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logservice.bounds.HAKEEPER_BALANCE_SHARDS", 2)
    model = started("aabbcc", shards=4)
    for shard in logs(model):
        agree(model, shard, Policy(ZoneRule.HARD))
    label(model, "aaaaaa")
    model.run_until(lambda: len(model.state.balance.breaches) == 4, 4000)
    rest = "zone a has 3 of its voters, against its rule"
    assert set(model.state.flags) == {f"shard {one}: {rest}" for one in logs(model)}
    first, *others = logs(model)
    agree(model, first, Policy())
    expected = {f"shard {one}: {rest}" for one in others}
    model.run_until(lambda: set(model.state.flags) == expected, 2000)


def test_a_dry_run_is_of_the_moment_when_it_was_asked_for() -> None:
    model = started("aaa", shards=12, labelled=False)
    model.add_store("s4")
    model.run(50)
    plan = rehearse(model.state, replicas=True, leaders=True)
    assert plan.moves
    assert plan.hand_overs
    steps = in_slices(model.state, replicas=True, leaders=True)
    next(steps)
    assert model.propose(Rebalance(replicas=True, leaders=True)) == Applied()
    model.kill("s1")
    later = []
    while not later:
        model.run(20)
        try:
            next(steps)
        except StopIteration as ended:
            later.append(ended.value)
    assert later[0].moves == plan.moves
    assert later[0].hand_overs == plan.hand_overs


def test_hakeeper_balances_by_itself_when_it_should() -> None:
    model = started("aaa", labelled=False)
    assert model.propose(ChangeSettings(replica_balance="on")) == Applied()
    model.add_store("s4")
    model.run_until(lambda: loads(model)["s4"] >= LOGS // 2, 2000)
    model.run_until(model.healthy, 400)


def test_moves_at_once_are_bounded() -> None:
    model = started("aaa", shards=12, labelled=False)
    for number in (4, 5, 6):
        model.add_store(f"s{number}")
    model.run(50)
    model.copy_speed = 1
    for oracle in model.shards.values():
        oracle.last += 100_000
    model.run(50)
    assert model.propose(Rebalance(replicas=True, leaders=False)) == Applied()
    model.run(300)
    moves = [one for one in model.state.operators.values() if one.kind is Repair.MOVE]
    assert all(one.cause is Cause.BALANCE for one in moves)
    arriving = Counter(one.store for one in moves)
    assert arriving == dict.fromkeys(("s4", "s5", "s6"), bounds.HAKEEPER_MOVES_PER_STORE_MAX)
    assert len(moves) <= bounds.HAKEEPER_MOVES_MAX


def test_hakeepers_leader_changes_at_every_moment_of_it() -> None:
    for moment in range(0, 80, 7):
        model = started("aabbcc", shards=4, labelled=False)
        model.add_store("s7")
        label(model, "aabbccc")
        model.propose(Rebalance(replicas=True, leaders=True))
        model.run(moment)
        model.new_hakeeper_leader()
        model.run_until(lambda here=model: spread(here) and not here.state.operators, 3000)
        model.run(100)
        assert model.state.balance.replicas_wished_tick == 0


def test_nothing_moves_while_something_is_lost() -> None:
    """INV-HK-BALANCE-WAITS."""
    model = started("aaa", labelled=False)
    model.kill("s1")
    model.run(expiry(model) + 200)
    assert any("no spare store" in flag for flag in model.state.flags)
    before = changes(model)
    model.propose(Rebalance(replicas=True, leaders=False))
    label(model, "abc")
    model.run(300)
    assert changes(model) == before
    assert model.state.balance.waits == "shard 0 is not whole"
    assert model.state.balance.replicas_wished_tick


def test_nothing_moves_while_repair_is_off() -> None:
    model = started("aabbcc", labelled=False)
    assert isinstance(model.propose(SetRepair("", 1000, "")), Applied)
    label(model, "aabbcc")
    before = changes(model)
    model.run(500)
    assert changes(model) == before
    assert model.state.balance.waits == "repair is off"
    model.run(600)
    model.run_until(lambda: spread(model), 2000)


def test_a_store_that_cannot_start_a_replica_is_not_asked_for_ever() -> None:
    model = started("aaa", shards=3, labelled=False)
    bad = model.add_store("s4")
    bad.refuses = set(model.shards)
    model.propose(Rebalance(replicas=True, leaders=False))
    model.run_until(lambda: model.state.balance.replicas_wished_tick == 0, 6000)
    model.run_until(model.healthy, 100)
    assert loads(model)["s4"] == 0


def test_a_person_stops_it() -> None:
    model = started("aaa", shards=12, labelled=False)
    model.propose(ChangeSettings(leader_balance="off"))
    model.add_store("s4")
    model.run(50)
    model.propose(Rebalance(replicas=True, leaders=False))
    model.run_until(lambda: bool(model.state.operators), 100)
    assert model.propose(Rebalance(replicas=True, leaders=False, stop=True)) == Applied()
    model.run_until(model.healthy, 400)
    assert loads(model)["s4"] == bounds.HAKEEPER_MOVES_PER_STORE_MAX
    assert_at_rest(model, 600)


def test_what_is_off_is_refused() -> None:
    model = started("aaa", shards=1, labelled=False)
    assert model.propose(ChangeSettings(replica_balance="off", leader_balance="off")) == Applied()
    for verb in (Rebalance(replicas=True, leaders=False), Rebalance(replicas=False, leaders=True)):
        outcome = model.propose(verb)
        assert rejected(outcome) is Reason.VERB_REFUSED
        assert isinstance(outcome, Rejected)
        assert outcome.metadata["why"].endswith("_balance is off")
    assert model.propose(Rebalance(replicas=True, leaders=True, stop=True)) == Applied()
    nothing = Rebalance(replicas=False, leaders=False)
    assert rejected(model.propose(nothing)) is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize("field", ["replica_balance", "leader_balance"])
def test_a_mode_that_does_not_exist_is_refused_and_changes_nothing(field: str) -> None:
    model = started("aaa", shards=1, labelled=False)
    before = model.rsm.save_snapshot()
    outcome = model.propose(ChangeSettings(**{field: "sometimes"}))
    assert isinstance(outcome, Rejected)
    assert outcome.metadata["field"] == field
    model.state.index -= 1
    assert model.rsm.save_snapshot() == before


# --- leaders --------------------------------------------------------------------------------------


def test_leaders_spread_by_themselves_after_a_rolling_restart() -> None:
    model = started("aaa", labelled=False)
    model.run_until(lambda: even(led(model), 3), 1000)
    for name in ("s1", "s2", "s3"):
        model.kill(name)
        model.run(30)
        model.revive(name)
        model.run(30)
    model.run_until(lambda: even(led(model), 3), bounds.HAKEEPER_LEAD_REST_TICKS + 1000)
    model.run(800)
    assert_at_rest(model)


def test_leaders_stay_where_they_are_when_nobody_should_move_them() -> None:
    model = started("aaa", labelled=False)
    assert model.propose(ChangeSettings(leader_balance="manual")) == Applied()
    model.run_until(lambda: even(led(model), 3) or not model.state.operators, 1000)
    for shard in logs(model):
        model.shards[shard].leader = min(model.shards[shard].membership.voters)
    before = led(model)
    model.run(1500)
    assert led(model) == before
    assert model.propose(Rebalance(replicas=False, leaders=True)) == Applied()
    model.run_until(lambda: model.state.balance.leaders_wished_tick == 0, 600)
    assert even(led(model), 3)
    assert model.state.balance.leaders is BalanceMode.MANUAL


def test_the_leader_goes_home_when_its_zone_is_back() -> None:
    model = started("abc", shards=3)
    for shard in logs(model):
        assert isinstance(
            model.propose(proposals.ChangeShard(shard, policy=Policy(leader_zone="b"))), Applied
        )
    model.run_until(lambda: led(model) == {"s2": 3}, 1000)
    model.run(bounds.HAKEEPER_LEAD_REST_TICKS)
    model.kill("s2")
    model.run(30)
    assert led(model)["s2"] == 0
    model.revive("s2")
    waited = model.run_until(lambda: led(model) == {"s2": 3}, 1500)
    assert waited >= bounds.HAKEEPER_STEADY_TICKS
    model.run(800)
    assert_at_rest(model)


def test_a_zone_that_comes_and_goes_costs_few_hand_overs() -> None:
    model = started("abc", shards=3)
    for shard in logs(model):
        assert isinstance(
            model.propose(proposals.ChangeShard(shard, policy=Policy(leader_zone="b"))), Applied
        )
    model.run_until(lambda: led(model) == {"s2": 3}, 1000)
    began = model.state.next_operator_id
    for _ in range(20):
        model.kill("s2")
        model.run(80)
        model.revive("s2")
        model.run(2 * HEARTBEAT_TICKS)
    assert model.state.next_operator_id - began <= 3


# --- safety ---------------------------------------------------------------------------------------


def drawn(dice: random.Random) -> State:
    """Any state, or a whole cluster in which something may be lost or halted."""
    if dice.random() < 0.3:
        here = labelled(dice, random_state(dice))
        here.cluster_version = 2
    else:
        here = random_cluster(dice)
        here.shards = {shard: one for shard, one in here.shards.items() if dice.random() < 0.95}
        lost = dice.choice(here.sorted_stores())
        if dice.random() < 0.2:
            lost.last_tick -= 2 * here.store_timeout_ticks
        for shard, report in lost.replicas.items():
            if dice.random() < 0.05:
                lost.replicas[shard] = replace(report, halted="damaged")
    here.balance = Balancing(BalanceMode.ON, BalanceMode.ON, dice.choice([0, 5]))
    for one in here.stores.values():
        one.steady_since = dice.choice([0, here.tick])
    return here


def judge(here: State) -> Counter[str]:
    """No queued change lowers the live voters below what they were, or a quorum."""
    kinds: Counter[str] = Counter()
    for one in here.sorted_stores():
        for queued in one.queue:
            command = queued.command
            kinds[type(command).__name__] += 1
            if isinstance(command, TransferLeader):
                assert command.target in here.shards[command.shard].members.voters
            if not isinstance(command, ChangeMembership):
                continue
            shard = here.shards[command.shard]
            voters, living = set(shard.members.voters), up(here, shard)
            after = set(voters_after(shard.members, command))
            if shard.wanted >= len(voters):
                assert spare_votes(after, living) >= spare_votes(voters, living)
            assert spare_votes(after, living) >= min(0, spare_votes(voters, living))
    return kinds


def test_no_random_state_leads_to_a_dangerous_change() -> None:
    """G8 and INV-HK-BALANCE-WAITS, with everything switched on that moves replicas."""
    kinds: Counter[str] = Counter()
    for seed in range(STATES):
        here = drawn(random.Random(seed))
        twin = states.load(states.save(here)) if seed % 10 == 0 else None
        check.run(here)
        kinds += judge(here)
        causes = Counter(str(one.cause) for one in here.operators.values())
        kinds += causes
        if causes["zone"] or causes["balance"]:
            moved = {one.shard for one in here.operators.values() if one.kind is Repair.MOVE}
            rest = [shard for shard in here.sorted_shards() if shard.shard not in moved]
            if moved:
                assert all(is_whole(here, shard) for shard in rest if shard.initial), seed
        if twin is not None:
            check.run(twin)
            assert states.save(twin) == states.save(here), "the result depends on more"
    assert kinds["ChangeMembership"] > STATES / 2, kinds
    assert kinds["zone"] > STATES / 10, kinds
    assert kinds["balance"] > STATES / 2, kinds


# --- versions -------------------------------------------------------------------------------------


def test_at_version_1_nothing_moves() -> None:
    model = Model(6, versions=ONLY_FIRST)
    for store, zone in zip(model.stores.values(), "aabbcc", strict=True):
        store.labels = {"zone": zone}
    model.start(shards=LOGS)
    before = model.state.next_operator_id
    model.run(2000)
    assert model.state.next_operator_id == before
    assert all(one.steady_since == 0 for one in model.state.stores.values())
    with pytest.raises(NotReady):
        proposals.encode(Rebalance(replicas=True, leaders=False), 1)
