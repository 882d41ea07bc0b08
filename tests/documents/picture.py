"""One cluster that is the same at every run, with another value in every field.

It has three stores: s1 leads both logs, s2 has a failed data directory, a full one and a halted
replica, and s3 is silent. This file gives what a NodeHost says of them (`ReplicaInfo`) and
HAKeeper's state. The product makes everything else from that: status, views, rows, answers. Values
stand by position, so that a field may get a better name in Python without a change here.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from logservice_wire.v1 import admin_pb2, hakeeper_pb2

from logservice.clock import ManualClock
from logservice.config import BootstrapSection, HAKeeperSection, LimitsSection
from logservice.hakeeper.answers.views import ClusterView, cluster_view
from logservice.hakeeper.commands.cluster_events import ClusterEvent
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import DirectoryReport, ReplicaReport
from logservice.hakeeper.commands.store_commands import QueuedCommand, ServiceOrder
from logservice.hakeeper.commands.verbs import StoreMode
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.state import (
    LeaderWish,
    Operator,
    Repair,
    Replayed,
    ServiceState,
    ShardState,
    State,
    StoreState,
    TnShard,
)
from logservice.histogram import LATENCY_BUCKETS_US, Histogram, Tally
from logservice.ids import (
    NO_REPLICA,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
    Tick,
)
from logservice.membership import Member, Membership
from logservice.nodehost.agent.directory import Directory
from logservice.nodehost.agent.lookups import Lookups
from logservice.nodehost.info import HaltedReplica, ReplicaInfo
from logservice.nodehost.replica.append_stages import AppendStages
from logservice.nodehost.transport.link.stats import TransportStats
from logservice.raft.ready import Role
from logservice.rsm.queries import HoldStatus, LogStatus
from logservice.server.edge.call_book import CallBook
from logservice.server.monitor.cluster.rows import ClusterReport, HAKeeperAnswer, StoreAnswer, build
from logservice.server.monitor.own.event_ring import EventRing
from logservice.server.monitor.own.readiness import Code
from logservice.server.monitor.own.reporter import StatusReporter
from logservice.server.monitor.own.status import EventLine, Reason, StoreStatus
from logservice.server.reload.reloads import InEffect
from logservice.server.services.admin_service import AdminService
from logservice.server.services.hakeeper_service import HAKeeperService
from tests.server.monitor.samples import directory

STORES = ("s1", "s2", "s3")
SHARDS = (0, 1, 2)


def members(shard: int) -> Membership:
    return initial_membership(
        [
            Member(ReplicaId(100 * (shard + 1) + place), StoreId(store), Incarnation(10 * place))
            for place, store in enumerate(STORES, 1)
        ]
    )


def replica_info(shard: int, place: int) -> ReplicaInfo:
    base = 1000 * (shard + 1) + 100 * place
    first = 100 * (shard + 1)
    leads = place == 1
    return ReplicaInfo(
        ShardId(shard),
        ReplicaId(first + place),
        StoreId(STORES[place - 1]),
        Incarnation(10 * place),
        members(shard),
        Role.LEADER if leads else Role.FOLLOWER,
        Term(shard + 3),
        ReplicaId(first + 1),
        Index(base + 1),
        Index(base + 90),
        Index(base + 80),
        Index(base + 70),
        Lsn(base + 2),
        Lsn(base + 60),
        Lsn(base + 1),
        ((ReplicaId(first + 2), Index(base + 85)), (ReplicaId(first + 3), Index(base + 5)))
        if leads
        else (),
        (ReplicaId(first + 2),) if leads else (),
        "",
    )


def replica_report(shard: int, place: int) -> ReplicaReport:
    base = 1000 * (shard + 1) + 100 * place - 3
    first = 100 * (shard + 1)
    membership = members(shard)
    return ReplicaReport(
        ShardId(shard),
        ReplicaId(first + place),
        Incarnation(10 * place),
        membership.change_epoch,
        membership.encode(),
        place == 1,
        shard + 3,
        ReplicaId(first + 1),
        Index(base + 1),
        Index(base + 90),
        Index(base + 80),
        Index(base + 70),
        Lsn(base + 2),
        Lsn(base + 60),
        Lsn(base + 1),
        ((ReplicaId(first + 2), Index(base + 85)),),
        (ReplicaId(first + 2),),
        "checksum" if (shard, place) == (2, 2) else "",
        (shard, place) == (2, 2),
    )


def _store(place: int) -> StoreState:
    name = STORES[place - 1]
    directories = [
        DirectoryReport(
            Incarnation(10 * place), 1000 * place, 2000 * place, "", f"/{name}/a", place == 2
        )
    ]
    if place == 2:
        directories.append(DirectoryReport(Incarnation(21), 0, 0, "I/O error", "/s2/b", False))
    return StoreState(
        StoreId(name),
        f"rack-{place}",
        f"{name}.peer:1",
        f"{name}.client:2",
        tuple(directories),
        70 + place,
        80 + place,
        1,
        9990 if place < 3 else 9000 - place,
        5,
        2,
        place == 3,
        [61],
        {"zone": f"z{place}"},
        {ShardId(shard): replica_report(shard, place) for shard in SHARDS if place < 3 or shard},
    )


def state() -> State:
    """HAKeeper's state."""
    shards = {
        ShardId(number): ShardState(
            ShardId(number),
            f"log-{number}",
            3,
            1,
            members(number).encode(),
            members(number).encode(),
            ReplicaId(100 * (number + 1) + 1),
            number + 3,
            [one.replica_id for one in members(number).members],
        )
        for number in SHARDS
    }
    operator = Operator(
        7,
        Repair.REPLACE,
        ShardId(1),
        ReplicaId(240),
        ReplicaId(203),
        StoreId("s4"),
        Incarnation(40),
        9900,
        "catching up",
        55,
        None,
        StoreId("s1"),
        9950,
        1,
        "no room",
    )
    found = State(
        phase=Phase.RUNNING,
        index=Index(500),
        term=Term(4),
        tick=Tick(10000),
        cluster_id="prod",
        store_timeout_ticks=100,
        operators={7: operator},
        flags={"look here": 9, "and here": 8},
    )
    found.stores = {StoreId(STORES[place - 1]): _store(place) for place in (1, 2, 3)}
    found.shards = shards
    found.services = {
        "log-reader": ServiceState(
            "log-reader",
            "cn",
            "cn-1:7000",
            {"zone": "z1"},
            9990,
            [QueuedCommand(31, 0, Term(4), ServiceOrder("flush", b"now"))],
            "owner-c",
            {ShardId(1): Replayed(Lsn(2100), Index(3), 9000)},
        ),
        "tables": ServiceState("tables", "tn", "tn-1:7000", {}, 9950),
    }
    asked = found.stores[StoreId("s2")]
    asked.mode, asked.mode_reason = StoreMode.READ_ONLY, "a slow disk"
    shards[ShardId(1)].leader_wish = LeaderWish(StoreId("s1"), 10600, "near its writers")
    found.tn_shards = {
        2: TnShard(ShardId(1), "", "tables", 77, 3, serving=True, placed_tick=9400),
        5: TnShard(ShardId(2), "owner-c", replica=1, free_tick=9880),
    }
    return found


def view() -> ClusterView:
    return cluster_view(state())


class _Parts:
    """The parts of the store at `place` that a `StatusReporter` looks at."""

    def __init__(self, place: int) -> None:
        infos = [replica_info(shard, place) for shard in SHARDS]
        halted: dict[ShardId, HaltedReplica] = {}
        if place == 2:
            lost = infos.pop()
            halted[lost.shard] = HaltedReplica(lost.replica, Incarnation(21), "I/O error")
        self.unopened = (
            [SimpleNamespace(path="/s2/b", incarnation=Incarnation(21), failed="I/O error")]
            if place == 2
            else []
        )
        self.heartbeats = SimpleNamespace(last_success_s=995.0, turned_away="")
        self.directory = SimpleNamespace(index=88, age_s=lambda: 0.75)
        self.bootstrapper = SimpleNamespace(refused="", waiting="")
        self.comparer = SimpleNamespace(undecided=(), pass_shards=12, pass_shards_done=5)
        alarm = SimpleNamespace(
            shard=ShardId(1),
            replica=ReplicaId(201),
            reason=SimpleNamespace(value="slow_member"),
            truncatable_bytes=4096,
        )
        self.workers = [SimpleNamespace(alarms=[alarm] if place == 1 else [])]
        self.host = SimpleNamespace(
            directories=[],
            replicas=SimpleNamespace(
                infos=lambda: infos,
                running={
                    shard: SimpleNamespace(leader_store="s1", lag_bytes=lambda match: 7 * match)
                    for shard in SHARDS
                },
            ),
            halts=SimpleNamespace(all=lambda: halted),
            stale_lookup=self._log_status,
            refusals=SimpleNamespace(counts={"stranger": 3}),
            limits=SimpleNamespace(delayed=4),
            catch_up=SimpleNamespace(
                figures=lambda: {"bytes_per_s": 9, "sent_bytes": 8, "delayed": 7, "waiting": 6}
            ),
            reads=SimpleNamespace(
                figures=lambda: {"tail/bytes": 5, "catch_up/waiting": 2},
                took=lambda: {"tail": _counted(90, 4), "catch_up": _counted(3_000, 2)},
            ),
            stages=_stages(),
            clocks=SimpleNamespace(ahead_us=12_500, far=False),
            retention=SimpleNamespace(records=9000),
            hold_expiry=SimpleNamespace(oldest_age_s=lambda replica: 77.5),
            requests=SimpleNamespace(refused={("shard.append", "member"): 6}),
        )

    def scrub_passes(self) -> dict[Incarnation, object]:
        return {}

    def truncation_counts(self) -> dict[str, int]:
        return {"installed": 31}

    def integrity_counts(self) -> dict[str, int]:
        return {"compared": 41}

    def exports_count(self, shard: ShardId, replica: ReplicaId) -> int:
        return 50 + shard

    def _log_status(self, shard: ShardId, query: object) -> LogStatus:
        base = 1000 * (shard + 1)
        holds = (
            HoldStatus("backup", Lsn(base + 30), "owner-b"),
            HoldStatus("reader", Lsn(base + 20), "owner-r"),
        )
        return LogStatus(
            Index(base + 70),
            Lsn(base + 61),
            Lsn(base + 2),
            Lsn(base + 1),
            Lsn(base + 40),
            f"writer-{shard}",
            "owner-w",
            9,
            holds,
            77,
            6,
            2,
        )


class _Clock:
    def monotonic(self) -> float:
        return 1000.0

    boottime = monotonic

    def wall_us(self) -> int:
        return 1_700_000_000_000_000


def _counted(us: int, times: int) -> Histogram:
    tally = Tally(LATENCY_BUCKETS_US)
    tally.add(us, times)
    return tally.histogram()


def _stages() -> AppendStages:
    made = AppendStages(ManualClock())
    made.queue.add(40, 3)
    made.replicate.add(700, 3)
    made.apply.add(150, 3)
    made.whole.add(890, 3)
    return made


def _calls() -> CallBook:
    made = CallBook()
    truncate = made.row("Truncate", timed=True)
    assert truncate.took is not None
    truncate.took.add(2_500)
    truncate.ended["OK"] += 1
    made.row("AppendStream", timed=False).end("CANCELLED", 0.0)
    return made


def store_status(place: int, turned_away: str = "") -> StoreStatus:
    """The status that a store's reporter makes; this file sets directories and a few other
    fields. `turned_away`: why HAKeeper takes no heartbeat of the store.
    """
    name = STORES[place - 1]
    reporter = StatusReporter(
        cast(
            Any,
            SimpleNamespace(
                store=SimpleNamespace(store_id=name, cluster_id="prod"),
                bootstrap=BootstrapSection(hakeeper_members=[]),
                hakeeper=HAKeeperSection(store_timeout_s=30),
            ),
        ),
        EventRing(10),
        lambda: {"Append/FENCED": 2},
        cast(Any, _Clock()),
    )
    reporter.client_address = f"{name}.client:2"
    reporter.peer_address = f"{name}.peer:1"
    reporter.admin_address = f"{name}.admin:3"
    reporter.in_effect = lambda: InEffect(
        "5f1c9b2e7a604d83", 1_764_000_000_000_000, ("raft.tick_ms",)
    )
    reporter.set_phase("serving")
    parts = _Parts(place)
    parts.heartbeats.turned_away = turned_away
    reporter.attach(
        cast(Any, parts),
        TransportStats,
        None,
        lambda: ("ballast is gone",),
        lambda: {"waiting": 3.0, "refused/calls": 2.0},
        calls=_calls(),
    )
    made = reporter.status()
    healthy = directory(path=f"/{name}/a", incarnation=10 * place)
    return msgspec.structs.replace(
        made,
        version="9.8.7",
        directories=(healthy, *made.directories),
        logdb=dict(healthy.logdb),
        certificates={"client": 2e9, "peer": 1.9e9},
        transport={"messages_sent": 7.0},
        events=(
            EventLine(number=1, time_us=5, level="info", event="x", message=f"{name} says"),
            EventLine(number=2, time_us=9, level="warning", event="y", message="again"),
        ),
        reasons=made.reasons or (Reason(code=Code.NO_LEADER, detail="why", shard=1),),
    )


def report(*, hakeeper: bool = True) -> ClusterReport:
    """The cluster as s1 shows it; `hakeeper`: whether HAKeeper answers."""
    words = {
        "s1": StoreAnswer(store_status(1), took_us=11, clock_offset_us=-12),
        "s2": StoreAnswer(store_status(2), took_us=21, clock_offset_us=22),
        "s3": StoreAnswer(error="NOT_READY: refused"),
    }
    word = HAKeeperAnswer(
        view(), 0.25 if hakeeper else 9.0, "" if hakeeper else "no majority", 0.125
    )
    events = (
        ClusterEvent(6, Tick(1200), "store-down", store="s3"),
        ClusterEvent(7, Tick(1234), "leader", ShardId(1), 101, "s1", "term 3"),
    )
    return build(word, words, store_status(1), events)


class _Hearing:
    """HAKeeper as the services of a store reach it."""

    def expire(self, shard: ShardId) -> None:
        raise AssertionError("it answers at once")

    async def cluster(self, limit_s: float, *, stale: bool = False) -> ClusterView:
        return view()

    async def shard(self, shard: ShardId, limit_s: float, *, stale: bool = False) -> object:
        return next((one for one in view().shards if one.shard_id == shard), None)


_CONTEXT = cast(Any, SimpleNamespace(time_remaining=lambda: None))


def _service() -> HAKeeperService:
    hearing = cast(Any, _Hearing())
    nothing = Directory((), ManualClock())
    lookups = Lookups(hearing, nothing, lambda _: "", lambda _: NO_REPLICA)
    return HAKeeperService(hearing, lookups, LimitsSection, cast(Any, None), str)


def cluster_state() -> hakeeper_pb2.ClusterState:
    """The answer of GetClusterState."""
    service = _service()
    request = hakeeper_pb2.GetClusterStateRequest()
    return cast(hakeeper_pb2.ClusterState, asyncio.run(service.GetClusterState(request, _CONTEXT)))


def shard_info(shard: int) -> hakeeper_pb2.ShardInfo:
    """The answer of GetShardInfo."""
    service = _service()
    request = hakeeper_pb2.GetShardInfoRequest(shard_id=shard)
    return cast(hakeeper_pb2.ShardInfo, asyncio.run(service.GetShardInfo(request, _CONTEXT)))


def store_answer(place: int) -> admin_pb2.StoreStatus:
    """The answer of GetStoreStatus."""
    store = cast(Any, SimpleNamespace(host=None))
    service = AdminService(store, lambda: store_status(place), cast(Any, None))
    request = admin_pb2.GetStoreStatusRequest()
    return cast(admin_pb2.StoreStatus, asyncio.run(service.GetStoreStatus(request, _CONTEXT)))
