"""TN shards: one process serves each at a time, whatever gets lost (INV-HK-TN)."""

from __future__ import annotations

import functools
import random

import pytest
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.answers.views import cluster_view
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.cluster_events import EventKind
from logservice.hakeeper.commands.verbs import (
    CreateTnShard,
    DeleteTnShard,
    SetWorkState,
    WorkState,
)
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import load
from logservice.ids import Index, ShardId, Term
from logservice.outcome import Applied, Rejected
from logservice.versions import KNOWN
from tests.hakeeper.model import Model, rejected
from tests.hakeeper.service_process import Process

SECOND = bounds.HAKEEPER_TICKS_PER_S


class World(Model):
    """A model with processes; `second` lets a second pass, and each process says a heartbeat."""

    def __init__(self) -> None:
        super().__init__(3, versions=KNOWN)
        self.start(shards=4)
        self.processes: list[Process] = []
        self.boots = 0

    def begin(self, name: str, **fields: object) -> Process:
        self.boots += 1
        made = Process(name, 1000 + self.boots, **fields)  # type: ignore[arg-type]
        self.processes.append(made)
        return made

    def beat(self, process: Process) -> None:
        answer = self.propose(process.say())
        assert isinstance(answer, Applied), answer
        process.hear(replies.decode(answer.data), self.state.tick, self.state.tick)

    def seconds(self, count: int) -> None:
        for _ in range(count):
            for process in self.processes:
                if process.up:
                    self.beat(process)
            self.run(SECOND)
            for process in self.processes:
                process.pass_time(self.state.tick)
            self.check()

    def check(self) -> None:
        served = [number for one in self.processes if one.up for number in one.serving]
        assert len(served) == len(set(served)), "INV-HK-TN"

    def create(self, shard: int, identity: str = "") -> int:
        made = self.propose(CreateTnShard(ShardId(shard), identity))
        assert isinstance(made, Applied), made
        return made.value


@functools.cache
def _started() -> bytes:
    return World().rsm.save_snapshot()


@pytest.fixture
def world() -> World:
    return World()


def test_a_tn_shard_goes_to_the_service_that_has_the_fewest(world: World) -> None:
    first, second = world.begin("tn-b"), world.begin("tn-a")
    world.seconds(1)
    numbers = [world.create(shard) for shard in (1, 2, 3)]
    assert numbers == [1, 2, 3]
    world.seconds(3)
    assert (second.serving, first.serving) == ({1: 1, 3: 1}, {2: 1})
    third = world.begin("tn-0")
    world.seconds(5)
    assert third.serving == {}, "nothing is moved to even out the numbers"
    world.create(4)
    world.seconds(3)
    assert third.serving == {4: 1}
    views = cluster_view(world.rsm.state).tn_shards
    assert [(one.tn_shard, one.shard, one.service, one.standing) for one in views] == [
        (1, 1, "tn-a", "served"),
        (2, 2, "tn-b", "served"),
        (3, 3, "tn-a", "served"),
        (4, 4, "tn-0", "served"),
    ]
    placed = [one.placed_tick for one in world.state.tn_shards.values()]
    assert [one.standing_ticks for one in views] == [world.state.tick - one for one in placed]
    assert len({one.standing_ticks for one in views}) > 1


def test_a_silent_process_loses_it_after_it_stopped_by_itself(world: World) -> None:
    """Reaches HAKEEPER_TN_ALIVE_TICKS."""
    first, second = world.begin("tn-a"), world.begin("tn-b")
    world.create(1)
    world.seconds(3)
    assert first.serving == {1: 1}
    first.up = False
    heard = world.state.services["tn-a"].last_tick
    while not second.serving:
        world.seconds(1)
        assert world.state.tick < heard + bounds.HAKEEPER_TN_ALIVE_TICKS + 4 * SECOND
    assert world.state.tick > heard + bounds.HAKEEPER_TN_ALIVE_TICKS
    assert second.serving == {1: 2}
    # It comes back: nobody gives it back to it.
    first.up = True
    world.seconds(5)
    assert (first.serving, second.serving) == ({}, {1: 2})


def test_a_draining_service_leaves_and_is_waited_for(world: World) -> None:
    first, second = world.begin("tn-a", keeps=True), world.begin("tn-b")
    world.create(1)
    world.seconds(3)
    world.propose(SetWorkState("tn-a", WorkState.DRAINING))
    world.seconds(30)
    assert (first.serving, second.serving) == ({1: 1}, {})
    assert "TN shard 1 of shard 1: tn-a does not leave it" in world.state.flags
    assert cluster_view(world.rsm.state).tn_shards[0].standing == "leaving"
    since = world.state.tn_shards[1].withdrawn_tick
    assert cluster_view(world.rsm.state).tn_shards[0].standing_ticks == world.state.tick - since
    first.keeps = False
    world.seconds(4)
    assert (first.serving, second.serving) == ({}, {1: 2})
    world.propose(SetWorkState("tn-b", WorkState.DRAINING))
    world.seconds(20)
    assert second.serving == {}
    assert "TN shard 1 of shard 1: no tn service takes it" in world.state.flags
    world.propose(SetWorkState("tn-a", WorkState.WORKING))
    world.seconds(4)
    assert first.serving == {1: 3}


def test_a_process_that_does_not_begin_loses_it_to_another_one(world: World) -> None:
    """Reaches HAKEEPER_TN_MOVE_TICKS."""
    idle, second = world.begin("tn-a", obeys=False), world.begin("tn-b")
    world.create(1)
    world.seconds(3)
    placed = world.state.tn_shards[1].placed_tick
    while not second.serving:
        world.seconds(1)
    assert world.state.tn_shards[1].placed_tick > placed + bounds.HAKEEPER_TN_MOVE_TICKS
    assert (idle.serving, second.serving) == ({}, {1: 2})
    second.up = False
    idle.obeys = True
    world.seconds(25)
    assert idle.serving == {1: 3}, "it is asked again when there is no other"


def test_a_process_that_gives_up_or_takes_none_any_more_is_left_at_once(world: World) -> None:
    first, second = world.begin("tn-a"), world.begin("tn-b")
    world.create(1)
    world.seconds(3)
    first.serving, first.takes = {}, False
    world.seconds(3)
    assert second.serving == {1: 2}
    # One that was given it and ends before it began is left at once, too.
    second.serving, second.takes = {}, False
    third = world.begin("tn-c", obeys=False)
    world.seconds(3)
    assert world.state.tn_shards[1].service == "tn-c"
    third.takes = False
    first.takes = True
    world.seconds(3)
    assert first.serving == {1: 4}


def test_the_next_process_of_a_service_says_nothing_about_the_one_before(world: World) -> None:
    before = world.begin("tn-a")
    world.create(1)
    world.seconds(3)
    before.up = False
    world.processes.remove(before)
    after = world.begin("tn-a")
    died = world.state.tick
    while not after.serving:
        world.seconds(1)
    assert after.serving == {1: 2}
    assert world.state.tick > died - SECOND + bounds.HAKEEPER_TN_ALIVE_TICKS


def test_who_may_not_or_cannot_serve_gets_none(world: World) -> None:
    world.begin("cn-1", kind="cn")
    world.begin("tn-0", owner="mallory")
    world.begin("tn-1", takes=False)
    nameless = proposals.ServiceHeartbeat("tn-2", "tn", "h:1", owner="db", takes_tn_shards=True)
    world.propose(nameless)  # it says no boot id, so nobody knows its heartbeats' order
    world.create(1, identity="db")
    world.seconds(5)
    assert world.state.tn_shards[1].service == ""
    good = world.begin("tn-9")
    world.seconds(3)
    assert good.serving == {1: 1}


def test_what_is_refused(world: World) -> None:
    """Reaches HAKEEPER_TN_SHARDS_MAX."""
    assert rejected(world.propose(CreateTnShard(ShardId(0)))) is Reason.SHARD_NOT_FOUND
    assert rejected(world.propose(CreateTnShard(ShardId(99)))) is Reason.SHARD_NOT_FOUND
    assert rejected(world.propose(DeleteTnShard(1))) is Reason.INVALID_ARGUMENT
    assert world.create(1, "db") == 1
    again = world.propose(CreateTnShard(ShardId(1), "db"))
    assert again == Applied(value=1, duplicate=True)
    assert rejected(world.propose(CreateTnShard(ShardId(1)))) is Reason.INVALID_ARGUMENT
    assert world.propose(DeleteTnShard(1)) == Applied(value=1)
    assert world.propose(DeleteTnShard(1)) == Applied(value=1, duplicate=True)
    assert world.create(1) == 2, "an id is never given again"
    some = world.state.tn_shards[2]
    for number in range(3, bounds.HAKEEPER_TN_SHARDS_MAX + 2):
        world.state.tn_shards[number] = type(some)(ShardId(1000 + number))
    assert rejected(world.propose(CreateTnShard(ShardId(2)))) is Reason.BUSY
    before = world.rsm.save_snapshot()
    assert rejected(world.propose(DeleteTnShard(5000))) is Reason.INVALID_ARGUMENT
    assert load(before).tn_shards == world.state.tn_shards


def test_a_log_with_a_tn_shard_is_deleted_by_force_only_and_the_tn_shard_with_it(
    world: World,
) -> None:
    first = world.begin("tn-a")
    world.create(2)
    world.seconds(3)
    name = world.state.shards[ShardId(2)].name
    refused = world.propose(proposals.DeleteShard(ShardId(2), name, Index(5)))
    assert isinstance(refused, Rejected)
    assert (refused.reason, refused.metadata["why"]) == (Reason.DELETE_REFUSED, "tn-shard")
    assert isinstance(world.propose(proposals.DeleteShard(ShardId(2), name, force=True)), Applied)
    world.seconds(2)
    assert first.serving == {}
    assert world.state.tn_shards == {}


def test_the_feed_tells_what_becomes_of_it(world: World) -> None:
    first = world.begin("tn-a")
    world.create(3)
    world.seconds(3)
    first.up = False
    world.seconds(20)
    world.propose(DeleteTnShard(1))
    told = [one for one in world.state.feed.ring if one.kind == EventKind.TN_SHARD]
    assert [(one.shard, one.replica, one.store, one.text) for one in told] == [
        (3, 0, "", "1 created"),
        (3, 1, "tn-a", "1 given to tn-a"),
        (3, 1, "tn-a", "1 served by tn-a"),
        (3, 1, "tn-a", "1 tn-a is silent"),
        (3, 1, "", "1 deleted"),
    ]


def test_a_cluster_of_version_1_has_none() -> None:
    model = Model(3)
    model.start()
    with pytest.raises(Exception, match="version"):
        model.propose(CreateTnShard(ShardId(1)))


class Chaos(World):
    """Heartbeats and answers get lost or late, processes die, hang and are followed by others."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        Model.__init__(self, 3, versions=KNOWN)
        self.rsm = HAKeeperRsm()
        self.rsm.recover_from_snapshot(_started())
        self.index, self.term = int(self.state.index), int(self.state.term)
        self.processes = []
        self.boots = 0
        self.highest: dict[int, int] = {}
        self.waiting: dict[Process, tuple[int, int, replies.HeartbeatReply | None]] = {}
        """Of a process that waits for an answer: when it sent, when it hears, what it hears."""
        self.late: list[tuple[int, proposals.ServiceHeartbeat]] = []

    def tick(self) -> None:
        rng = self.rng
        self.propose(proposals.Tick(Term(self.term)))
        now = self.state.tick
        for when, beat in [one for one in self.late if one[0] <= now]:
            self.late.remove((when, beat))
            self.propose(beat)  # it comes late, or a second time; nobody hears the answer
        for process in self.processes:
            if not process.up:
                continue
            sent, hears, reply = self.waiting.pop(process, (0, now, None))
            if hears > now:
                self.waiting[process] = sent, hears, reply
            elif reply is not None:
                process.hear(reply, sent, now)
            elif rng.random() < 0.12:
                self.send(process, now)
            process.pass_time(now)
        self.check()
        for one in self.processes:
            for number, replica in one.serving.items():
                assert replica >= self.highest.get(number, 0), "a newer one was served before"
                self.highest[number] = replica

    def send(self, process: Process, now: int) -> None:
        rng, beat = self.rng, process.say()
        if rng.random() < 0.2:
            self.late.append((now + rng.randrange(1, 200), beat))
        delay = rng.choice((0, 0, 0, 1, 5, 40, 90, 140))
        if rng.random() < 0.2:
            self.waiting[process] = now, now + delay, None
            return
        answer = self.propose(beat)
        reply = replies.decode(answer.data) if isinstance(answer, Applied) else None
        if rng.random() < 0.15:
            reply = None
        self.waiting[process] = now, now + delay, reply

    def disturb(self) -> None:
        rng = self.rng
        names = ("tn-a", "tn-b", "tn-c")
        match rng.randrange(9):
            case 0 | 1:
                name = rng.choice(names)
                if sum(one.name == name and one.up for one in self.processes) < 2:
                    self.begin(name, obeys=rng.random() < 0.9)
            case 2 if self.processes:
                gone = rng.choice(self.processes)
                gone.up, gone.serving = False, {}
            case 3:
                state = rng.choice((WorkState.DRAINING, WorkState.WORKING))
                self.propose(SetWorkState(rng.choice(names), state))
            case 4:
                self.propose(CreateTnShard(ShardId(rng.randint(1, 4))))
            case 5 if rng.random() < 0.3:
                self.propose(DeleteTnShard(rng.randint(1, 6)))
            case 6 if self.processes:
                one = rng.choice(self.processes)
                one.takes = not one.takes
                one.serving = {} if not one.takes else one.serving
            case 7:
                self.new_hakeeper_leader()
            case _:
                pass


@pytest.mark.parametrize("block", range(20))
def test_inv_hk_tn_no_two_serve_it_at_once_in_random_worlds(block: int) -> None:
    """2 000 worlds."""
    served = moved = 0
    for seed in range(block * 100, block * 100 + 100):
        chaos = Chaos(seed)
        for _ in range(40):
            chaos.disturb()
            for _ in range(chaos.rng.randrange(1, 20)):
                chaos.tick()
        served += len(chaos.highest)
        moved += sum(replica > 1 for replica in chaos.highest.values())
    assert served > 60
    assert moved > 20
