"""What a service has replayed holds the truncation of its logs, for as long as it lives."""

from __future__ import annotations

import random

import msgspec
import pytest
from logservice_wire.bounds import REPLAYED_PER_SERVICE_MAX
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.entry import Entry, EntryKind
from logservice.envelope import ProposalId, encode_command
from logservice.hakeeper.answers.views import cluster_view
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.replies import HoldOrder, ReplayedHold
from logservice.hakeeper.state import Replayed
from logservice.hakeeper.stores import service_holds
from logservice.ids import HAKEEPER_SHARD, Index, Lsn, ShardId, StoreId, Term
from logservice.outcome import Applied
from logservice.owner import Author
from logservice.rsm import commands
from logservice.rsm.log_rsm import LogRsm
from logservice.service_hold import hold_name, is_service_hold
from logservice.versions import KNOWN
from tests.hakeeper.model import Copy, Model, Store, rejected
from tests.hakeeper.test_holdings import same

ONE, TWO = ShardId(1), ShardId(2)
GONE_TICKS = bounds.HAKEEPER_SERVICE_TIMEOUT_TICKS + bounds.HAKEEPER_TICKS_PER_S + 1


class Log:
    """One log, as its own state machine has it."""

    def __init__(self) -> None:
        self.rsm = LogRsm()

    def _apply(self, kind: EntryKind, payload: bytes, records: int = 0) -> object:
        state = self.rsm.state
        entry = Entry(
            Term(1), Index(state.applied_index + 1), state.next_lsn, records, kind, payload
        )
        [(_, outcome)] = self.rsm.update(entry)
        return outcome

    def command(self, command: commands.Command) -> object:
        return self._apply(
            EntryKind.COMMAND, encode_command(ProposalId(1, 1), commands.encode(command))
        )

    def grow(self, records: int) -> None:
        state = self.rsm.state
        self.rsm.state.applied_index = Index(state.applied_index + 1)
        self.rsm.state.next_lsn = Lsn(state.next_lsn + records)

    def truncate(self, lsn: int) -> None:
        self.command(commands.Truncate(Author("w", StoreId("s1")), Lsn(lsn), 0))

    def carry_out(self, order: HoldOrder) -> None:
        """As `nodehost.agent.service_holds` does."""
        known = self.rsm.state.holds.get(order.name)
        if order.lsn:
            lsn = Lsn(max(order.lsn, self.rsm.state.truncated_lsn + 1))
            author = Author(order.owner, StoreId("s1"))
            self.command(commands.SetHold(author, False, lsn, order.name))
        elif known is not None:
            author = Author(known.owner, StoreId("s1"))
            self.command(commands.ReleaseHold(author, False, order.name))

    @property
    def truncated(self) -> int:
        return self.rsm.state.truncated_lsn

    @property
    def holds(self) -> dict[str, int]:
        return {name: hold.lsn for name, hold in self.rsm.state.holds.items()}


class World(Model):
    """A cluster of version 2 whose logs are real, with services that replay them."""

    def __init__(self) -> None:
        self.logs: dict[ShardId, Log] = {}
        super().__init__(3, versions=KNOWN)
        self.orders: list[HoldOrder] = []
        self.late: list[HoldOrder] = []
        self.deaf_stores = False
        self.on_reply = self._reply
        self.start(shards=2)

    def _reply(self, _: Store, reply: replies.HeartbeatReply) -> None:
        self.orders += reply.holds
        if not self.deaf_stores:
            for order in reply.holds:
                self.logs[order.shard].carry_out(order)

    def _report(self, store: Store, shard: ShardId, copy: Copy) -> proposals.ReplicaReport:
        report = super()._report(store, shard, copy)
        if shard == HAKEEPER_SHARD:
            return report
        state = self.logs.setdefault(shard, Log()).rsm.state
        held = tuple((n, h.lsn) for n, h in sorted(state.holds.items()) if is_service_hold(n))
        return msgspec.structs.replace(
            report,
            applied_lsn=Lsn(state.end_lsn - 1),
            truncated_lsn=state.truncated_lsn,
            requested_lsn=state.requested_lsn,
            holds=len(state.holds),
            service_holds=held if report.leads else (),
        )

    def beat(
        self, name: str = "tn-1", owner: str = "a", **replayed: int
    ) -> tuple[ReplayedHold, ...]:
        """A heartbeat of a service; `replayed`: s1=5 is LSN 5 of shard 1."""
        said = tuple(sorted((ShardId(int(n[1:])), Lsn(lsn)) for n, lsn in replayed.items()))
        outcome = self.propose(
            proposals.ServiceHeartbeat(name, "tn", "h:1", owner=owner, replayed=said)
        )
        assert isinstance(outcome, Applied)
        same(self.state)
        return replies.decode(outcome.data).replayed

    def settle(self) -> None:
        """Time for a report, an answer and the report after it."""
        self.run(31)


def test_what_was_replayed_holds_the_truncation_and_moves_up_with_it() -> None:
    world = World()
    log = world.logs[ONE]
    log.grow(100)
    [first] = world.beat(s1=10)
    assert (first.lsn, first.held_lsn, first.gone) == (10, 0, False)
    world.settle()
    [told] = world.beat(s1=10)
    assert (told.held_lsn, told.first_lsn) == (11, 1)
    assert log.holds == {told.hold: 11}
    log.truncate(60)
    assert log.truncated == 10
    world.beat(s1=40)
    world.settle()
    assert (log.truncated, log.holds) == (40, {told.hold: 41})
    [view] = cluster_view(world.state).services
    assert [(one.lsn, one.held_lsn) for one in view.replayed] == [(40, 41)]


def test_a_hold_moves_up_only_while_a_truncation_waits_for_it() -> None:
    """A busy log would take a command for each heartbeat of each service."""
    world = World()
    log = world.logs[ONE]
    log.grow(1000)
    world.beat(s1=1)
    world.settle()
    before = log.rsm.state.applied_index
    for lsn in range(2, 12):
        world.beat(s1=lsn)
        world.settle()
    assert log.rsm.state.applied_index == before
    log.truncate(5)
    world.settle()
    assert log.truncated == 5


def test_it_ends_with_the_service_or_when_the_service_forgets_the_log() -> None:
    world = World()
    for log in world.logs.values():
        log.grow(10)
    world.beat(s1=1, s2=1)
    world.settle()
    assert all(len(log.holds) == 1 for log in world.logs.values())
    world.beat(s2=1)
    world.settle()
    assert world.logs[ONE].holds == {}
    assert len(world.logs[TWO].holds) == 1
    world.run(GONE_TICKS)
    world.settle()
    assert world.logs[TWO].holds == {}
    same(world.state)


def test_nothing_ends_while_hakeeper_is_silent() -> None:
    world = World()
    world.logs[ONE].grow(10)
    world.beat(s1=1)
    world.settle()
    world.now += 10 * GONE_TICKS  # no tick is applied
    world.beat(s1=1)
    world.logs[ONE].truncate(9)
    assert world.logs[ONE].truncated == 1


def test_inv_hk_service_hold_a_late_order_cannot_remove_what_is_wanted_now() -> None:
    """INV-HK-SERVICE-HOLD: the service went, came back, and the order to release comes last."""
    world = World()
    log = world.logs[ONE]
    log.grow(100)
    world.beat(s1=10)
    world.settle()
    world.deaf_stores = True
    world.orders.clear()
    world.run(GONE_TICKS + 31)
    [late, *_] = world.orders
    assert late.lsn == 0
    world.deaf_stores = False
    world.beat(s1=20)
    world.settle()
    [told] = world.beat(s1=20)
    assert told.hold != late.name
    log.carry_out(late)
    assert log.holds == {told.hold: 21}
    # A late order to set is made up for.
    log.carry_out(HoldOrder(ONE, late.name, Lsn(11), "a"))
    assert len(log.holds) == 2
    world.settle()
    assert log.holds == {told.hold: 21}


def test_a_service_that_comes_back_from_its_checkpoint_gets_what_is_left() -> None:
    world = World()
    log = world.logs[ONE]
    log.grow(100)
    world.beat(s1=50)
    world.settle()
    log.truncate(30)
    world.beat(s1=40)
    world.settle()
    [told] = world.beat(s1=40)
    assert (told.held_lsn, told.first_lsn) == (41, 31)
    world.beat(s1=10)
    world.settle()
    [told] = world.beat(s1=10)
    assert (told.lsn, told.held_lsn, told.first_lsn) == (10, 31, 31)
    assert list(log.holds) == [told.hold]
    log.truncate(90)
    assert log.truncated == 30


def test_a_log_that_is_unknown_or_deleted_is_gone_and_the_service_lives_on() -> None:
    world = World()
    world.logs[ONE].grow(5)
    told = world.beat(s0=1, s1=1, s77=1)
    assert [(one.shard, one.gone) for one in told] == [(0, True), (1, False), (77, True)]
    world.settle()
    name = world.state.shards[ONE].name
    delete = proposals.DeleteShard(ONE, name, Index(3))
    assert rejected(world.propose(delete)) is Reason.DELETE_REFUSED
    forced = proposals.DeleteShard(ONE, name, force=True)
    assert isinstance(world.propose(forced), Applied)
    [view] = cluster_view(world.state).services
    assert view.replayed[0].gone
    assert service_holds.flags(world.state) == []
    assert world.beat(s1=1) == (ReplayedHold(ONE, Lsn(1), gone=True),)
    assert world.state.services["tn-1"].replayed == {}


def test_inv_hk_replayed_what_services_replay_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-HK-REPLAYED: for each service, each identity, and in all."""
    assert bounds.HAKEEPER_REPLAYED_PER_SERVICE_MAX == REPLAYED_PER_SERVICE_MAX
    world = World()
    many = {f"s{one}": 1 for one in range(1, bounds.HAKEEPER_REPLAYED_PER_SERVICE_MAX + 2)}
    said = tuple((ShardId(one), Lsn(1)) for one in range(1, len(many) + 1))
    beat = proposals.ServiceHeartbeat("tn-1", "tn", "h:1", owner="a", replayed=said)
    assert rejected(world.propose(beat)) is Reason.INVALID_ARGUMENT
    assert world.state.services == {}
    assert len(world.beat(**dict.fromkeys(list(many)[:-1], 1))) == len(many) - 1
    monkeypatch.setattr("logservice.bounds.HAKEEPER_REPLAYED_MAX", 4)
    monkeypatch.setattr("logservice.bounds.HAKEEPER_REPLAYED_PER_OWNER_MAX", 2)
    world.beat()
    world.beat("tn-2", s1=1, s2=1)
    pair = ((ONE, Lsn(1)),)
    over = proposals.ServiceHeartbeat("tn-3", "tn", "h:1", owner="a", replayed=pair)
    assert rejected(world.propose(over)) is Reason.BUSY
    assert "tn-3" not in world.state.services
    world.beat("tn-3", "b", s1=1, s2=1)
    third = proposals.ServiceHeartbeat("tn-4", "tn", "h:1", owner="c", replayed=pair)
    assert rejected(world.propose(third)) is Reason.BUSY
    world.beat("tn-2", s1=2, s2=2)  # no more than it has


def test_so_many_holds_are_asked_for_at_once_and_those_that_protect_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logservice.bounds.HAKEEPER_HOLD_ORDERS_MAX", 1)
    world = World()
    world.beat("gone", s1=1)
    world.settle()
    world.deaf_stores = True
    world.run(GONE_TICKS)
    world.beat("new", s1=1)
    world.orders.clear()
    world.run(11)
    assert {order.lsn for order in world.orders} == {2}
    world.deaf_stores = False
    world.settle()
    world.settle()
    assert [name.split(":")[-1] for name in world.logs[ONE].holds] == ["new"]


def test_a_service_that_is_alive_and_stands_still_raises_a_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stall, idle = 400, bounds.HAKEEPER_IDLE_CHECK_TICKS
    monkeypatch.setattr("logservice.bounds.HAKEEPER_REPLAY_STALL_TICKS", stall)
    world = World()
    log = world.logs[ONE]
    log.grow(10)

    def live(ticks: int, lsn: int) -> None:
        for _ in range(ticks // 20):
            world.beat(s1=lsn)
            world.run(20)

    live(stall + idle + 40, 10)
    assert world.state.flags == {}, "there is nothing to replay"
    log.grow(1)
    live(stall - 20, 10)
    assert world.state.flags == {}
    live(60 + idle, 10)
    text = "service tn-1 replays nothing of shard 1, and holds it from 11 on"
    assert list(world.state.flags) == [text]
    assert world.beat(s1=10)[0].behind_ticks > stall
    world.beat(s1=11)
    world.run(idle)
    assert world.state.flags == {}


def test_a_hold_is_released_before_its_successor_is_set_only_to_make_room() -> None:
    world = World()
    log = world.logs[ONE]
    log.grow(9)
    world.beat(s1=5)
    world.settle()
    author = Author("a", StoreId("s1"))
    for number in range(bounds.HOLDS_PER_OWNER_MAX - 1):
        log.command(commands.SetHold(author, False, Lsn(9), f"of a job {number:03}"))
    [before] = world.beat(s1=5)
    [after] = world.beat(s1=4)
    assert after.hold != before.hold
    world.run(11)
    assert before.hold not in log.holds
    world.settle()
    assert log.holds[after.hold] == 5


def test_the_service_of_another_identity_begins_its_holds_anew() -> None:
    world = World()
    world.logs[ONE].grow(9)
    world.beat(s1=1)
    world.settle()
    service = world.state.services["tn-1"]
    service.last_tick -= GONE_TICKS  # silent, and not swept yet
    world.beat(owner="b", s1=2)
    world.settle()
    [(name, hold)] = world.logs[ONE].rsm.state.holds.items()
    assert (hold.owner, hold.lsn) == ("b", 3)
    assert name == hold_name("tn-1", world.state.services["tn-1"].replayed[ONE].since)


def test_a_store_that_does_not_lead_is_asked_for_nothing() -> None:
    world = World()
    world.beat(s1=1)
    for store in world.state.sorted_stores():
        leads = store.replicas[ONE].leads
        assert bool(service_holds.orders(world.state, store)) == leads


def test_a_long_name_is_cut_and_the_number_keeps_it_apart() -> None:
    long = "ä" * bounds.NAME_BYTES_MAX
    names = {hold_name(long, Index(2**62 - one)) for one in range(3)}
    assert len(names) == 3
    assert all(len(name.encode()) <= bounds.NAME_BYTES_MAX for name in names)
    assert all(is_service_hold(name) for name in names)
    assert not is_service_hold("services")


def test_at_version_1_nothing_of_it_exists() -> None:
    model = Model(3)
    model.start()
    beat = proposals.ServiceHeartbeat("tn-1", "tn", "h:1", replayed=((ONE, Lsn(1)),))
    with pytest.raises(Exception, match="needs version 2"):
        model.propose(beat)
    plain = proposals.encode(proposals.ServiceHeartbeat("tn-1", "tn", "h:1"), 1)
    assert isinstance(model.propose_bytes(plain), Applied)
    assert model.state.services["tn-1"].replayed == {}


@pytest.mark.parametrize("seed", range(6))
def test_truncation_never_passes_what_a_live_service_was_told_is_held(seed: int) -> None:
    """Orders are lost, late and repeated; services come, go back, go and come again."""
    dice = random.Random(seed)
    world = World()
    log = world.logs[ONE]
    promised: dict[str, tuple[str, int]] = {}
    lsns: dict[str, int] = {}
    for _ in range(250):
        world.deaf_stores = dice.random() < 0.3
        world.late += dice.sample(world.orders, min(len(world.orders), 2))
        world.orders.clear()
        name = dice.choice(["x", "y", "z"])
        act = dice.randrange(8)
        log.grow(dice.randrange(5))
        if act < 4:
            lsns[name] = max(0, lsns.get(name, 0) + dice.choice([0, 3, 9, -4]))
            [told] = world.beat(name, s1=lsns[name])
            promised.pop(name, None)
            if told.held_lsn:
                assert told.held_lsn <= max(told.lsn + 1, told.first_lsn)
            if told.held_lsn and told.first_lsn <= told.lsn + 1:
                promised[name] = (told.hold, told.lsn)
        elif act == 4 and name in world.state.services:
            world.beat(name)
            promised.pop(name, None)
        elif act == 5 and log.rsm.state.end_lsn > 2:
            log.truncate(dice.randrange(1, log.rsm.state.end_lsn))
        elif act == 6 and world.late and dice.random() < 0.5:
            log.carry_out(dice.choice(world.late))
        else:
            world.run(dice.choice([11, 31, GONE_TICKS if dice.random() < 0.1 else 60]))
        promised = {n: one for n, one in promised.items() if n in world.state.services}
        for hold, lsn in promised.values():
            assert hold in log.holds
            assert log.truncated <= lsn, "INV-HK-SERVICE-HOLD"
    world.deaf_stores = False
    world.run(GONE_TICKS)
    world.settle()
    assert log.holds == {}
    same(world.state)


def test_a_pair_is_named_by_the_entry_that_began_it() -> None:
    world = World()
    world.beat(s1=1)
    first = world.state.services["tn-1"].replayed[ONE]
    world.beat(s1=2)
    assert world.state.services["tn-1"].replayed[ONE] == Replayed(Lsn(2), first.since)
    world.beat()
    world.beat(s1=2)
    assert world.state.services["tn-1"].replayed[ONE].since > first.since
