"""Heartbeats: what is reported, and how commands are carried out."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import msgspec
import pytest
from logservice_wire.errors import (
    DeadlineExceeded,
    DiskFull,
    LogServiceError,
    NotReady,
    PermissionDenied,
    Reason,
    StaleEpoch,
    UnknownOutcome,
)

from logservice import bounds
from logservice.config_change import ChangeKind, ChangeStep, ConfigChange
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.policy import Policy
from logservice.hakeeper.commands.quotas import IdentityQuota
from logservice.hakeeper.commands.store_commands import (
    AnyCommand,
    ChangeMembership,
    RemoveReplica,
    ServiceOrder,
    StartReplica,
    Step,
    TransferLeader,
)
from logservice.hakeeper.marks import mark_all
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.state import ShardState
from logservice.hakeeper.stores.delivery import queue_command
from logservice.hakeeper.stores.holdings import forget
from logservice.ids import Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId
from logservice.invariants import InvariantViolation
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.membership import Member, Membership
from logservice.nodehost.agent.access_book import AccessBook
from logservice.nodehost.agent.address_book import AddressBook
from logservice.nodehost.agent.directory import Directory
from logservice.nodehost.agent.hakeeper_client import HAKeeperClient
from logservice.nodehost.agent.heartbeats import HeartbeatSender, StoreDescription
from logservice.nodehost.agent.remembered_file import Copy
from logservice.nodehost.agent.version_learner import VersionLearner
from logservice.nodehost.info import HaltedReplica
from logservice.nodehost.replica.read_limits import ReadClass
from logservice.outcome import Applied
from logservice.pause import Pause
from logservice.raft.ready import Role
from logservice.versions import CLOCK_LABEL, KNOWN
from tests.nodehost.fake_host import FakeHost, FakeNetwork, Shard0, info
from tests.waiting import eventually

ONE, TWO = ShardId(1), ShardId(2)


class Rig:
    """Store s1 runs shard 0's state machine and beats to it."""

    def __init__(self, *, unattributed_loss: bool = False) -> None:
        self.shard0 = Shard0()
        self.network = FakeNetwork()
        self.host = FakeHost(self.network, "s1", self.shard0)
        self.host.leads = True
        self.me = Member(ReplicaId(1024), StoreId("s1"), self.host.identity.incarnations[0])
        self.membership = initial_membership([self.me])
        first = initial_membership(
            [Member(ReplicaId(1), StoreId("s1"), self.host.identity.incarnations[0])]
        )
        self.shard0.membership = first
        self.shard0.propose(
            proposals.encode(proposals.InitialCluster("c", first.encode(), (), 1, 100))
        )
        self.state.phase = Phase.RUNNING
        self.vfs = MemoryVfs()
        self.book = AddressBook([Copy(self.vfs, "/book")], {StoreId("s2"): "s2:1"})
        self.access = AccessBook([Copy(self.vfs, "/access")], self.host.clock)
        self.directory = Directory([Copy(self.vfs, "/directory")], self.host.clock)
        self.sender = HeartbeatSender(
            self.host,
            HAKeeperClient(self.host, self.book),
            self.book,
            self.access,
            lambda: StoreDescription("rack-1", "s1:1", "s1:50", {"zone": "a"}),
            self.directory,
            VersionLearner(self.host.cluster_version, (), lambda *_: None),
            interval_s=0.02,
            unattributed_loss=self.host.identity.incarnations if unattributed_loss else (),
        )

    @property
    def state(self):  # type: ignore[no-untyped-def]
        return self.shard0.rsm.state

    def beats(self) -> list[proposals.StoreHeartbeat]:
        return [one for one in self.shard0.applied if isinstance(one, proposals.StoreHeartbeat)]

    def run_here(self, shard: ShardId, replica: int, **fields: object) -> None:
        self.host.stored.add((shard, ReplicaId(replica)))
        base = info(self.host.identity, shard, ReplicaId(replica), self.membership)
        self.host.infos[shard] = dataclasses.replace(base, **fields)  # type: ignore[arg-type]

    async def order(self, command: AnyCommand) -> int:
        """Queue a command, deliver it, wait for it."""
        if StoreId("s1") not in self.state.stores:
            await self.sender.beat_once()
        command_id = queue_command(self.state, self.state.stores["s1"].queue, 0, command)
        await self.sender.beat_once()
        await self.sender.settle()
        return command_id

    async def result(self) -> tuple[str, str]:
        await self.sender.beat_once()
        [result] = self.beats()[-1].results
        return result.reason, result.detail


async def test_a_heartbeat_says_who_and_what() -> None:
    rig = Rig()
    rig.run_here(ONE, 1024, role=Role.LEADER, applied_index=Index(7), applied_lsn=Lsn(70))
    rig.host.stored.add((TWO, ReplicaId(1030)))
    await rig.sender.beat_once()
    store = rig.state.stores["s1"]
    assert (store.host, store.peer_address, store.client_address) == ("rack-1", "s1:1", "s1:50")
    assert store.labels == {"zone": "a", **KNOWN.labels()}
    [incarnation] = rig.host.identity.incarnations
    assert store.directories == (proposals.DirectoryReport(incarnation, 10, 90, "", "/d"),)
    report = store.replicas[ONE]
    assert (report.replica, report.leads, report.applied_index, report.applied_lsn) == (
        1024,
        True,
        7,
        70,
    )
    assert report.match == ((2, 1),)
    assert report.recently_active == (2,)
    assert store.stored == ((TWO, 1030),)


async def test_a_heartbeat_says_that_the_clock_is_far_for_as_long_as_it_is() -> None:
    rig = Rig()
    for far in (False, True, False):
        rig.host.clocks.far = far
        await rig.sender.beat_once()
        assert (CLOCK_LABEL in rig.state.stores["s1"].labels) is far


async def test_what_a_directory_lost_track_of_is_said_before_any_command_can_come() -> None:
    """INV-HK-LOST-TRACK: a member may have run there, so it is not begun and HAKeeper is told."""
    rig = Rig(unattributed_loss=True)
    shard = rig.state.shards.setdefault(ONE, ShardState(ONE, "log-1", 1, 0))
    shard.initial = shard.membership = rig.membership.encode()
    await rig.sender.beat_once()
    await rig.sender.beat_once()
    assert {beat.unattributed_loss for beat in rig.beats()} == {
        tuple(rig.host.identity.incarnations)
    }
    assert shard.started == [rig.me.replica_id]
    await rig.order(
        StartReplica(ONE, rig.me.replica_id, rig.me.incarnation, shard.membership, False, False)
    )
    assert (await rig.result())[0] == Reason.SHARD_NOT_FOUND.value
    assert rig.host.stored == set()


async def test_followers_report_nothing_about_others() -> None:
    rig = Rig()
    rig.run_here(ONE, 1024)
    await rig.sender.beat_once()
    report = rig.state.stores["s1"].replicas[ONE]
    assert (report.leads, report.match, report.recently_active) == (False, (), ())


async def test_only_differences_are_sent() -> None:
    rig = Rig()
    for shard in range(1, 50):
        rig.run_here(ShardId(shard), 1000 + shard)
    await rig.sender.beat_once()
    assert len(rig.beats()[-1].replicas) == 49
    rig.run_here(ShardId(3), 1003, applied_index=Index(9))
    del rig.host.infos[ShardId(4)]
    await rig.sender.beat_once()
    last = rig.beats()[-1]
    assert [report.shard for report in last.replicas] == [3]
    assert last.gone == (4,)
    assert set(rig.state.stores["s1"].replicas) == set(range(1, 50)) - {4}
    assert rig.state.stores["s1"].replicas[3].applied_index == 9
    assert len(proposals.encode(last)) < 400


async def test_what_is_stored_is_looked_at_when_the_replicas_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And now and then all the same, and as long as something is stored that does not run."""
    rig = Rig()
    rig.run_here(ONE, 1024)
    looks = 0
    stored = rig.host.directories.replicas

    def counted() -> list[tuple[ShardId, ReplicaId]]:
        nonlocal looks
        looks += 1
        return stored()

    monkeypatch.setattr(rig.host.directories, "replicas", counted)

    async def looked(beats: int = 5) -> int:
        nonlocal looks
        looks = 0
        for _ in range(beats):
            await rig.sender.beat_once()
        return looks

    assert await looked() == 1, "the first report is a full one"
    assert await looked() == 0
    rig.run_here(ONE, 1024, applied_index=Index(9))
    assert await looked() == 0
    rig.run_here(TWO, 1025)
    assert await looked() == 1
    rig.run_here(TWO, 1026)
    assert await looked() == 5, "another replica of the shard: the first one's data is still there"
    assert rig.beats()[-1].stored == ((TWO, ReplicaId(1025)),)
    rig.host.stored.discard((TWO, ReplicaId(1025)))
    assert await looked() == 1
    del rig.host.infos[TWO]
    assert await looked() == 5
    rig.host.stored.discard((TWO, ReplicaId(1026)))
    assert await looked(60) == 3, "once more, and at every thirtieth"


async def test_heartbeats_of_stores_with_a_replica_of_shard_0_go_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    ended: list[float] = []

    class Clock:
        now_s = 0.0

        def monotonic(self) -> float:
            return self.now_s

    clock = Clock()
    monkeypatch.setattr(rig.host, "clock", clock)
    monkeypatch.setattr(rig.sender._pause, "end", lambda: ended.append(clock.now_s))
    rig.sender._interval_s, rig.sender._next_s = 1.0, 10.0
    for clock.now_s in (9.0, 9.7, 9.8, 9.99, 10.0, 10.5):
        rig.sender.hakeeper_applied()
    assert ended == [9.8, 9.99], "when it is nearly due, and never twice"
    earlier_s = 2 * bounds.HAKEEPER_TOGETHER_S
    assert rig.sender._next_in_s() == 1.0 - earlier_s, "in time for the entry that it missed"
    assert rig.sender._next_in_s() == 1.0
    rig.sender._interval_s, rig.sender._next_s = 0.2, 20.0
    clock.now_s = 19.99
    rig.sender.hakeeper_applied()
    assert rig.sender._next_in_s() == pytest.approx(0.18), "and by no more than a tenth"


async def test_the_commands_of_the_first_start_are_fetched_as_soon_as_they_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    slept: list[float] = []
    ended: list[Phase] = []
    propose = HAKeeperClient.propose

    async def answered_before(
        self: HAKeeperClient, proposal: proposals.Proposal, timeout_s: float
    ) -> Applied:
        answer = await propose(self, proposal, timeout_s)
        if slept:
            rig.state.phase = Phase.COMMANDS_RECEIVED
        return answer

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    rig.sender._interval_s = 3600.0
    rig.state.phase = Phase.BOOTSTRAPPING
    monkeypatch.setattr(HAKeeperClient, "propose", answered_before)
    monkeypatch.setattr(rig.sender._pause, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await rig.sender.run()
    assert [seconds == 0 for seconds in slept] == [False, True, False], "once"

    rig.sender._pause = Pause()
    monkeypatch.setattr(rig.sender._pause, "end", lambda: ended.append(rig.state.phase))
    for phase in (Phase.BOOTSTRAPPING, Phase.COMMANDS_RECEIVED, Phase.RUNNING):
        rig.state.phase = phase
        if phase is Phase.BOOTSTRAPPING:
            slept.clear()
            await rig.sender.beat_once()
        rig.sender.hakeeper_applied()
        rig.sender.hakeeper_applied()
    assert ended == [Phase.COMMANDS_RECEIVED], "a sleep is ended, too, once"


class Sleeper:
    """Ends the sleeps of a rig's sender: as soon as no command is under way, if one is, else when
    the time has passed. `at`: what happens in which sleep, from 1 on; in the last one `run` ends.
    """

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = rig
        self.now_s = 5.0
        self.slept: list[float] = []
        self.ends = 0
        self.at: dict[int, Callable[[], object]] = {}
        rig.sender._interval_s = 1000.0
        monkeypatch.setattr(rig.host, "clock", self)
        monkeypatch.setattr(rig.sender._pause, "sleep", self.sleep)
        monkeypatch.setattr(rig.sender._pause, "end", self.end)

    def monotonic(self) -> float:
        return self.now_s

    boottime = monotonic

    def end(self) -> None:
        self.ends += 1

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at.get(len(self.slept), lambda: None)()
        if self.rig.sender._tasks:
            await self.rig.sender.settle()
        else:
            self.now_s += seconds
        if len(self.slept) == max(self.at):
            raise asyncio.CancelledError

    async def run(self) -> None:
        with pytest.raises(asyncio.CancelledError):
            await self.rig.sender.run()

    def order(self, *shards: int) -> None:
        queue = self.rig.state.stores["s1"].queue
        [incarnation] = self.rig.host.identity.incarnations
        for shard in shards:
            command = StartReplica(
                ShardId(shard),
                ReplicaId(1000 + shard),
                incarnation,
                self.rig.membership.encode(),
                join=False,
                fresh=True,
            )
            queue_command(self.rig.state, queue, 0, command)


async def test_replicas_that_were_started_are_told_of_between_the_heartbeats_of_the_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    rig.run_here(ONE, 1001)
    sleeper = Sleeper(rig, monkeypatch)

    def changed() -> None:
        rig.run_here(ONE, 1001, applied_index=Index(9))

    sleeper.at = {1: lambda: sleeper.order(2, 3), 2: changed, 3: lambda: sleeper.order(4), 6: int}
    await sleeper.run()
    told = [([one.shard for one in beat.replicas], len(beat.results)) for beat in rig.beats()]
    assert told == [
        ([1], 0),
        ([], 0),
        ([2, 3], 2),  # at once, and of nothing else
        ([], 0),  # a little later, for what is to be started next
        ([4], 1),
        ([], 0),
    ]
    soon_s = bounds.HEARTBEAT_SOON_S
    assert sleeper.slept[:5] == pytest.approx([1000.0, 1000.0, soon_s, 1000.0 - soon_s, soon_s])
    assert sleeper.ends == 2, "once for all that were started together"


async def test_heartbeats_between_the_others_do_not_move_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And those of the intervals tell of everything."""
    rig = Rig()
    rig.run_here(ONE, 1001)
    sleeper = Sleeper(rig, monkeypatch)
    sleeper.at = {1: lambda: sleeper.order(2), 5: int}

    def changed() -> None:
        rig.run_here(ONE, 1001, applied_index=Index(9))
        rig.run_here(TWO, 1002, applied_index=Index(7))

    sleeper.at[4] = changed
    await sleeper.run()
    told = [[one.shard for one in beat.replicas] for beat in rig.beats()]
    assert told == [[1], [], [2], [], [1, 2]]
    assert sleeper.slept[3] == pytest.approx(1000.0 - bounds.HEARTBEAT_SOON_S)


async def test_what_was_not_answered_is_told_with_the_next_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    sleeper = Sleeper(rig, monkeypatch)
    propose, lost = HAKeeperClient.propose, [NotReady()]

    async def loses(
        self: HAKeeperClient, proposal: proposals.Proposal, timeout_s: float
    ) -> Applied:
        if len(sleeper.slept) == 2 and lost:
            raise lost.pop()
        return await propose(self, proposal, timeout_s)

    monkeypatch.setattr(HAKeeperClient, "propose", loses)
    sleeper.at = {1: lambda: sleeper.order(2), 4: int}
    await sleeper.run()
    assert [([one.shard for one in beat.replicas], len(beat.results)) for beat in rig.beats()] == [
        ([], 0),
        ([], 0),
        ([2], 1),
    ]
    assert sleeper.slept[2] == pytest.approx(1000.0)


async def test_after_a_lost_answer_everything_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    rig.run_here(ONE, 1024)
    await rig.sender.beat_once()
    rig.run_here(TWO, 1025)
    with monkeypatch.context() as patch:
        propose = HAKeeperClient.propose

        async def lost(
            self: HAKeeperClient, proposal: proposals.Proposal, timeout_s: float
        ) -> None:
            await propose(self, proposal, timeout_s)
            raise UnknownOutcome("the answer was lost")

        patch.setattr(HAKeeperClient, "propose", lost)
        with pytest.raises(UnknownOutcome):
            await rig.sender.beat_once()
    rig.run_here(ShardId(3), 1026)
    assert (await rig.sender.beat_once()).need_full
    assert set(rig.state.stores["s1"].replicas) == {1, 2}
    await rig.sender.beat_once()
    assert set(rig.state.stores["s1"].replicas) == {1, 2, 3}
    assert rig.beats()[-1].base == 0


async def test_a_halted_replica_is_reported_with_its_reason() -> None:
    rig = Rig()
    rig.host.stored.add((ONE, ReplicaId(1024)))
    [incarnation] = rig.host.identity.incarnations
    rig.host.halts[ONE] = HaltedReplica(ReplicaId(1024), incarnation, "corrupt" * 1000)
    await rig.sender.beat_once()
    report = rig.state.stores["s1"].replicas[ONE]
    assert report.replica == 1024
    assert report.halted.startswith("corrupt")
    assert len(report.halted) == 1024
    rig.host.halts.clear()
    await rig.sender.beat_once()
    assert rig.state.stores["s1"].replicas == {}


async def test_the_directory_is_learned_and_told_to_the_transport() -> None:
    rig = Rig()
    other = proposals.StoreHeartbeat(
        StoreId("s2"), "", "s2:7", "s2:50", (proposals.DirectoryReport(Incarnation(1)),), 9, 1
    )
    rig.shard0.propose(proposals.encode(other))
    await rig.sender.beat_once()
    assert rig.host.transport.addresses == {"s2": "s2:7"}
    assert rig.book.knows_hakeeper
    assert AddressBook([Copy(rig.vfs, "/book")], {}).peer_addresses()[StoreId("s2")] == "s2:7"


async def test_a_fresh_replica_is_started_and_acknowledged() -> None:
    rig = Rig()
    command = StartReplica(
        ONE,
        ReplicaId(1024),
        rig.host.identity.incarnations[0],
        rig.membership.encode(),
        join=False,
        fresh=True,
    )
    await rig.order(command)
    assert rig.host.calls == [("start", ONE, 1024, rig.membership, False)]
    assert rig.state.stores["s1"].queue
    assert await rig.result() == ("", "")
    assert rig.state.stores["s1"].queue == []
    await rig.sender.beat_once()
    assert rig.beats()[-1].results == ()


async def test_a_replica_whose_data_is_gone_is_not_started_empty() -> None:
    rig = Rig()
    command = StartReplica(
        ONE,
        ReplicaId(1024),
        rig.host.identity.incarnations[0],
        rig.membership.encode(),
        join=False,
        fresh=False,
    )
    await rig.order(command)
    assert rig.host.calls == []
    reason, _ = await rig.result()
    assert reason == Reason.SHARD_NOT_FOUND.value
    rig.host.stored.add((ONE, ReplicaId(1024)))
    await rig.order(command)
    assert [call[0] for call in rig.host.calls] == ["start"]


async def test_a_replica_bound_to_another_data_directory_is_not_started() -> None:
    rig = Rig()
    command = StartReplica(
        ONE, ReplicaId(1024), Incarnation(5), rig.membership.encode(), join=True, fresh=True
    )
    await rig.order(command)
    assert rig.host.calls == []
    reason, detail = await rig.result()
    assert reason == Reason.INVALID_ARGUMENT.value
    assert "incarnation" in detail


async def test_the_other_commands_reach_the_host() -> None:
    rig = Rig()
    step = Step(ChangeKind.ADD_VOTER, ReplicaId(5), "s2", Incarnation(3))
    await rig.order(RemoveReplica(ONE, ReplicaId(4)))
    await rig.order(ChangeMembership(ONE, Index(9), (step,)))
    await rig.order(TransferLeader(ONE, ReplicaId(5)))
    change = ConfigChange(
        (ChangeStep(ChangeKind.ADD_VOTER, ReplicaId(5), StoreId("s2"), Incarnation(3)),), Index(9)
    )
    assert rig.host.calls == [
        ("remove", ONE, 4),
        ("change", ONE, change),
        ("transfer", ONE, 5),
    ]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (StaleEpoch("lost"), Reason.STALE_EPOCH),
        (DiskFull(), Reason.DISK_FULL),
        (UnknownOutcome(), Reason.UNKNOWN_OUTCOME),
        (ZeroDivisionError("a bug"), Reason.UNKNOWN_OUTCOME),
    ],
)
async def test_failures_are_reported_not_swallowed(failure: Exception, reason: Reason) -> None:
    rig = Rig()
    rig.host.failure = failure
    await rig.order(RemoveReplica(ONE, ReplicaId(4)))
    found, detail = await rig.result()
    assert found == reason.value
    assert detail


async def test_orders_for_services_and_damaged_memberships_are_refused() -> None:
    rig = Rig()
    await rig.order(ServiceOrder("x", b""))
    assert (await rig.result())[0] == Reason.INVALID_ARGUMENT.value
    incarnation = rig.host.identity.incarnations[0]
    await rig.order(StartReplica(ONE, ReplicaId(4), incarnation, b"damaged", join=True, fresh=True))
    assert (await rig.result())[0] == Reason.INVALID_ARGUMENT.value


async def test_a_command_delivered_again_is_not_repeated() -> None:
    rig = Rig()
    await rig.order(RemoveReplica(ONE, ReplicaId(4)))
    rig.host.propose_failures = [NotReady()] * 3
    await rig.sender.beat_once()
    await rig.sender.settle()
    assert rig.host.calls == [("remove", ONE, 4)]


async def test_a_slow_command_does_not_silence_the_store() -> None:
    rig = Rig()
    release = asyncio.Event()

    async def slow(shard: ShardId, replica: ReplicaId) -> None:
        await release.wait()

    rig.host.replicas.remove = slow  # type: ignore[method-assign]
    await rig.sender.beat_once()
    queue_command(rig.state, rig.state.stores["s1"].queue, 0, RemoveReplica(ONE, ReplicaId(4)))
    for _ in range(5):
        await rig.sender.beat_once()
    assert rig.beats()[-1].results == ()
    release.set()
    await rig.sender.settle()
    assert await rig.result() == ("", "")


async def test_so_many_commands_are_carried_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """STORE_COMMANDS_AT_ONCE_MAX is made small; the other commands wait for a place."""
    monkeypatch.setattr(bounds, "STORE_COMMANDS_AT_ONCE_MAX", 2)
    rig = Rig()
    release, under_way, most, done = asyncio.Event(), 0, 0, 0

    async def slow(shard: ShardId, replica: ReplicaId) -> None:
        nonlocal under_way, most, done
        under_way += 1
        most = max(most, under_way)
        await release.wait()
        under_way -= 1
        done += 1

    rig.host.replicas.remove = slow  # type: ignore[method-assign]
    await rig.sender.beat_once()
    for number in range(4, 9):
        command = RemoveReplica(ONE, ReplicaId(number))
        queue_command(rig.state, rig.state.stores["s1"].queue, 0, command)
    await rig.sender.beat_once()
    await eventually(lambda: under_way == 2)
    release.set()
    await rig.sender.settle()
    assert (most, done) == (2, 5)


async def test_a_command_that_takes_too_long_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """STORE_COMMAND_TIMEOUT_S is made short; the host gets it as its timeout."""
    monkeypatch.setattr(bounds, "STORE_COMMAND_TIMEOUT_S", 0.01)
    rig = Rig()
    given: list[float] = []

    async def hangs(shard: ShardId, target: ReplicaId, timeout_s: float) -> None:
        given.append(timeout_s)
        await asyncio.sleep(timeout_s)
        raise DeadlineExceeded("too slow")

    rig.host.router.transfer_leadership = hangs  # type: ignore[method-assign]
    await rig.order(TransferLeader(ONE, ReplicaId(4)))
    reason, _ = await rig.result()
    assert reason == Reason.DEADLINE.value
    assert given == [0.01]


async def test_a_heartbeat_that_finds_nobody_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """HEARTBEAT_TIMEOUT_S is made short; the next heartbeat finds its way."""
    monkeypatch.setattr(bounds, "HEARTBEAT_TIMEOUT_S", 0.05)
    rig = Rig()
    local, rig.host.local = rig.host.local, None
    with pytest.raises(NotReady):
        await rig.sender.beat_once()
    rig.host.local = local
    await rig.sender.beat_once()
    assert len(rig.beats()) == 1


async def test_a_cancelled_command_is_accepted_again() -> None:
    rig = Rig()
    release = asyncio.Event()
    calls: list[ReplicaId] = []

    async def slow(shard: ShardId, replica: ReplicaId) -> None:
        calls.append(replica)
        await release.wait()

    rig.host.replicas.remove = slow  # type: ignore[method-assign]
    await rig.sender.beat_once()
    queue_command(rig.state, rig.state.stores["s1"].queue, 0, RemoveReplica(ONE, ReplicaId(4)))
    await rig.sender.beat_once()
    await asyncio.sleep(0)
    await rig.sender.stop()
    release.set()
    await rig.sender.beat_once()
    await rig.sender.settle()
    assert calls == [4, 4]


async def test_a_broken_invariant_ends_the_sender() -> None:
    rig = Rig()

    async def broken(shard: ShardId, replica: ReplicaId) -> None:
        raise InvariantViolation("INV-TEST", {})

    rig.host.replicas.remove = broken  # type: ignore[method-assign]
    await rig.order(RemoveReplica(ONE, ReplicaId(4)))
    with pytest.raises(InvariantViolation):
        await rig.sender.beat_once()


async def test_it_runs_until_cancelled_and_survives_an_absent_hakeeper() -> None:
    rig = Rig()
    rig.host.propose_failures = [StaleEpoch()] * 3
    task = asyncio.get_running_loop().create_task(rig.sender.run())
    await eventually(lambda: len(rig.beats()) >= 3)
    assert rig.host.transport.addresses == {"s2": "s2:1"}
    assert rig.sender.last_success_s is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_empty_membership_of_a_joining_replica_is_fine() -> None:
    rig = Rig()
    rig.run_here(ONE, 1024, membership=Membership())
    await rig.sender.beat_once()
    assert rig.state.stores["s1"].replicas[ONE].epoch == 0


def at_version_2(rig: Rig) -> None:
    rig.state.cluster_version = 2
    rig.host.cluster_version.learn(2)


async def test_what_the_first_version_has_no_place_for_is_said_from_the_second_on() -> None:
    """A sleeping replica gives the same picture again; its report is made anew all the same."""
    rig = Rig()
    rig.run_here(ONE, 1024, closed_index=Index(5), closed_lsn=Lsn(9), holds=3)
    await rig.sender.beat_once()
    assert rig.state.stores["s1"].replicas[ONE].holds == 0
    at_version_2(rig)
    await rig.sender.beat_once()
    report = rig.state.stores["s1"].replicas[ONE]
    assert (report.closed_index, report.closed_lsn, report.holds) == (5, 9, 3)


async def test_every_replica_of_a_deleted_log_is_removed() -> None:
    """The one that runs, and one that is only stored; an unknown log is kept."""
    rig = Rig()
    at_version_2(rig)
    rig.run_here(ONE, 1024)
    rig.host.stored.add((ONE, ReplicaId(1030)))
    rig.run_here(TWO, 1040)
    await rig.sender.beat_once()
    rig.state.deleted = [(1, 1)]
    for _ in range(2):
        await rig.sender.beat_once()
        await rig.sender.settle()
    assert rig.host.calls == [
        ("bury", ONE),
        ("remove", ONE, 1024),
        ("remove", ONE, 1030),
    ]
    assert rig.host.stored == {(TWO, ReplicaId(1040))}
    await rig.sender.beat_once()
    assert set(rig.state.stores["s1"].replicas) == {TWO}
    assert rig.state.stores["s1"].stored == ()


async def test_a_removal_that_fails_is_tried_again_with_the_next_answer() -> None:
    rig = Rig()
    at_version_2(rig)
    rig.run_here(ONE, 1024)
    rig.state.deleted = [(1, 1)]
    rig.host.failure = NotReady("the disk is stuck")
    await rig.sender.beat_once()
    await rig.sender.settle()
    assert rig.host.stored == {(ONE, ReplicaId(1024))}
    rig.host.failure = None
    await rig.sender.beat_once()
    await rig.sender.settle()
    assert rig.host.stored == set()


async def test_a_beat_asks_for_so_many_pages_of_the_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DIRECTORY_PAGES_PER_BEAT_MAX; what is left comes after the next beats."""
    monkeypatch.setattr(bounds, "DIRECTORY_PAGES_PER_BEAT_MAX", 2)
    wanted = Directory.wanted
    monkeypatch.setattr(
        Directory, "wanted", lambda self: msgspec.structs.replace(wanted(self), limit=3)
    )
    rig = Rig()
    for number in range(1, 10):
        shard = ShardId(number)
        rig.state.shards[shard] = ShardState(shard, f"log-{number}", 1, 0)
    await rig.sender.beat_once()
    assert not rig.vfs.exists("/directory")
    rig.state.cluster_version = 2
    rig.host.cluster_version.learn(2)
    mark_all(rig.state)
    for known in (0, 10):
        await rig.sender.beat_once()
        await rig.sender.settle()
        assert len(rig.directory) == known
    assert rig.directory.resolve("log-7") == rig.directory.row(ShardId(7)) is not None
    assert rig.vfs.exists("/directory")
    await rig.sender.beat_once()
    assert rig.beats()[-1].stores_index == rig.state.stores_index > 0


async def test_inv_beat_away_a_store_that_was_turned_away_leads_no_more() -> None:
    """It was forgotten while it was silent, and went on leading: HAKeeper never heard of the shard
    again, and could not replace it.
    """
    rig = Rig()
    others = [Member(ReplicaId(n), StoreId(f"s{n}"), Incarnation(n)) for n in (1025, 1026)]
    rig.membership = initial_membership([rig.me, *others])
    match = ((ReplicaId(1024), Index(9)), (ReplicaId(1025), Index(5)), (ReplicaId(1026), Index(8)))
    rig.run_here(ONE, 1024, role=Role.LEADER, match=match)
    rig.run_here(TWO, 1024)
    for refusal, asked in (
        (PermissionDenied("not for you"), []),
        (PermissionDenied("forgotten", joining="not admitted"), [("transfer", ONE, 1026)]),
    ):
        rig.host.propose_failures = [refusal]
        with pytest.raises(PermissionDenied):
            await rig.sender.beat_once()
        await rig.sender.settle()
        assert [call for call in rig.host.calls if call[0] == "transfer"] == asked


async def test_the_only_voter_stays_leader_when_its_store_is_turned_away() -> None:
    rig = Rig()
    rig.run_here(ONE, 1024, role=Role.LEADER)
    rig.host.propose_failures = [PermissionDenied("forgotten", joining="not admitted")]
    with pytest.raises(PermissionDenied):
        await rig.sender.beat_once()
    await rig.sender.settle()
    assert not rig.host.calls


async def test_a_store_that_is_turned_away_knows_why_until_it_is_taken() -> None:
    rig = Rig()
    await rig.sender.beat_once()
    assert rig.sender.turned_away == ""
    forgotten = "a data directory of s1, which was forgotten"
    for failure in (
        PermissionDenied("no", joining=forgotten),
        PermissionDenied("not for you"),
        StaleEpoch("older"),
    ):
        rig.host.propose_failures = [failure]
        with pytest.raises(LogServiceError):
            await rig.sender.beat_once()
        assert rig.sender.turned_away == forgotten
    await rig.sender.beat_once()
    assert rig.sender.turned_away == ""


async def test_heartbeats_without_an_answer_are_one_line_for_each_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused three times, lost three times, refused again; answered; refused again."""
    rig = Rig()
    refused, lost = PermissionDenied("no", joining="not admitted"), StaleEpoch("older")
    coming: list[LogServiceError | None] = [*[refused] * 3, *[lost] * 3, refused, None, refused]
    beat_once = rig.sender.beat_once

    async def next_one(*, few: bool) -> replies.HeartbeatReply:
        if not coming:
            raise asyncio.CancelledError
        failure = coming.pop(0)
        rig.host.propose_failures = [failure] if failure is not None else []
        return await beat_once(few=few)

    monkeypatch.setattr(rig.sender, "beat_once", next_one)
    monkeypatch.setattr(rig.sender, "_interval_s", 0.0)
    with caplog.at_level("INFO"), pytest.raises(asyncio.CancelledError):
        await rig.sender.run()
    lines = [one.message for one in caplog.records if "was not answered" in one.message]
    assert [line.split(": ")[1] for line in lines] == [
        "PERMISSION_DENIED",
        "STALE_EPOCH",
        "PERMISSION_DENIED",
    ]


async def test_the_limit_of_catch_up_arrives_and_leaves() -> None:
    rig = Rig()
    configured = rig.host.catch_up.bytes_per_s
    await rig.sender.beat_once()
    assert rig.host.catch_up.bytes_per_s == configured
    at_version_2(rig)
    rig.state.catch_up_bytes_per_s = 5_000_000
    await rig.sender.beat_once()
    assert rig.host.catch_up.bytes_per_s == 5_000_000
    rig.state.catch_up_bytes_per_s = 0
    await rig.sender.beat_once()
    assert rig.host.catch_up.bytes_per_s == configured


async def test_the_limits_of_reads_arrive_and_leave() -> None:
    rig = Rig()
    tail, behind = (rig.host.reads.of[kind] for kind in ReadClass)
    configured = tail.bytes_per_s, behind.bytes_per_s
    await rig.sender.beat_once()
    assert (tail.bytes_per_s, behind.bytes_per_s) == configured
    at_version_2(rig)
    rig.state.tail_read_bytes_per_s = 5_000_000
    rig.state.catch_up_read_bytes_per_s = 4_000_000
    await rig.sender.beat_once()
    assert (tail.bytes_per_s, behind.bytes_per_s) == (5_000_000, 4_000_000)
    rig.state.tail_read_bytes_per_s = 0
    await rig.sender.beat_once()
    assert (tail.bytes_per_s, behind.bytes_per_s) == (configured[0], 4_000_000)


async def test_quotas_of_identities_arrive_once_and_again_when_they_change() -> None:
    rig = Rig()
    heard: list[int] = []
    rig.host.quotas.listeners.append(lambda: heard.append(rig.host.quotas.version))
    await rig.sender.beat_once()
    at_version_2(rig)
    assert (await rig.sender.beat_once()).quotas is None
    rig.state.quotas[""] = IdentityQuota(rpcs_max=5)
    rig.state.quotas_version = 3
    await rig.sender.beat_once()
    assert rig.host.quotas.value("rpcs_max", "me") == 5
    assert (await rig.sender.beat_once()).quotas is None
    assert rig.beats()[-1].quotas_version == 3
    rig.state.quotas, rig.state.quotas_version = {}, 4
    await rig.sender.beat_once()
    assert rig.host.quotas.value("rpcs_max", "me") is None
    assert heard == [3, 4]


async def test_limits_of_logs_arrive_once_and_again_when_they_change() -> None:
    rig = Rig()
    await rig.sender.beat_once()
    at_version_2(rig)
    assert (await rig.sender.beat_once()).limits is None
    policy = Policy(max_bytes_per_s=1 << 20, weight=30)
    rig.state.shards[ONE] = ShardState(ONE, "log-1", 3, 0, policy=policy)
    rig.state.limits_version = 5
    forget(rig.state)
    said = await rig.sender.beat_once()
    assert said.limits == (replies.ShardLimits(ONE, 1 << 20, 0, 30),)
    assert rig.host.limits.of(ONE).weight == 30
    assert rig.host.limits.of(TWO) == replies.ShardLimits(TWO)
    assert (await rig.sender.beat_once()).limits is None
    assert rig.beats()[-1].limits_version == 5
