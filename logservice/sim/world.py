"""World: one simulated cluster, from its first start to the verdict.

Phases: the cluster starts (shard 0 bootstraps, HAKeeper makes the log shards); clients work while
faults happen (*safety*: nothing may ever be wrong); everything is healed and every shard must take
appends again within `CONVERGE_ELECTIONS` election timeouts (*liveness*); then all replicas are read
from end to end and the histories are judged. A calm world has no faults and must have no elections
after its start either.
"""

from __future__ import annotations

import asyncio
import gc
import random
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from logservice_wire.errors import Halted, LogServiceError

from logservice import bounds, versions
from logservice.checksum import crc32
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import Operator, State
from logservice.ids import HAKEEPER_SHARD, Lsn, ShardId
from logservice.nodehost.replica.log_reading import read_log_here
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.time_search import lsn_at_time_here
from logservice.raft.messages import Message, RequestVote
from logservice.rsm import commands
from logservice.rsm.log_rsm import LogRsm
from logservice.sim.checkers import ALL
from logservice.sim.checkers.checker import Checks
from logservice.sim.checkers.exact_truncation import covered_and_held
from logservice.sim.checkers.retention import OLD_LATE_S, OLD_SHARE, Retained
from logservice.sim.checkers.times import leads_in_vain
from logservice.sim.clients import final_checks
from logservice.sim.clients.administrator import Administrator
from logservice.sim.clients.client import Client, ShardHistory, runs_of, stamps_of, times_of
from logservice.sim.clients.forker import Forker
from logservice.sim.clients.holder import GONE_S, Holder
from logservice.sim.clients.holding_reader import HoldingReader
from logservice.sim.clients.job import Job
from logservice.sim.clients.job_checks import jobs
from logservice.sim.clients.loud import Loud
from logservice.sim.clients.mirrorer import Mirrorer
from logservice.sim.clients.neighbour import Neighbour
from logservice.sim.clients.policy_setter import PolicySetter
from logservice.sim.clients.replayer import Replayer
from logservice.sim.clients.restorer import RESTORER, Restorer
from logservice.sim.clients.tn_services import TnServices
from logservice.sim.clients.workload import Keeper, Reader, SessionWriter, Writer
from logservice.sim.config import SimConfig
from logservice.sim.faults.divergence import Diverging
from logservice.sim.faults.faults import Faults
from logservice.sim.faults.standing import Standing
from logservice.sim.faults.upgrade import Upgrade
from logservice.sim.faults.zones import ZONES_FOR_A_RULE, Zones, crowded, label_of
from logservice.sim.history import Outcome, Read, Run, Truncate, check
from logservice.sim.interfaces import Crash, Store
from logservice.sim.loop import Process, SimLoop
from logservice.sim.lowered import lowered
from logservice.sim.net import SimNet, SimTransport
from logservice.sim.oracle import Oracle
from logservice.sim.rogue import Rogue
from logservice.sim.rogue.ages import Ages
from logservice.sim.rogue.watch import Pulse, Watch
from logservice.sim.store import SimStore

START_S = 60.0
"""A cluster without faults is there much sooner."""

CONVERGE_ELECTIONS = 10
"""Election timeouts (the longest that can be drawn) from healing to appends in every shard."""

RESTART_S = 2.0
"""What a store needs to be back after healing: start, recovery, addresses."""

SETTLE_S = 60.0
"""For repairs and the followers' last entries, before all replicas are read."""

SPREAD_S = 300.0
"""For moves to other zones, one after the other, once the stores do not flap any more."""

BALANCE_S = 600.0
"""Longer than HAKEEPER_LEAD_REST_TICKS and HAKEEPER_STEADY_TICKS together, on the slowest clock."""

SAMPLE_S = 0.5


@dataclass(slots=True)
class Violation:
    """What a checker saw, when."""

    checker: str
    detail: str
    at_s: float
    traceback: str = ""


@dataclass(slots=True)
class Report:
    """What became of a seed."""

    seed: int
    violations: list[Violation]
    virtual_s: float
    stores: int
    counts: dict[str, int]
    digest: int
    callbacks: int

    @property
    def cluster_hours(self) -> float:
        """Virtual hours of the whole cluster."""
        return self.virtual_s / 3600


class World:
    """See the module's text. `run` once."""

    def __init__(
        self, config: SimConfig, *, trace: Callable[[str], None] | None = None, digest: bool = False
    ) -> None:
        """`trace` gets a line per event; `digest`: all of them end in `Report.digest`."""
        self.config = config
        self.loop = SimLoop()
        self.loop.on_error = self._unhandled
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self.digest = 0
        self._trace = trace
        self._digesting = digest or trace is not None
        self.net = SimNet(self.loop, random.Random(f"net/{config.seed}"), config.net)
        self.net.observe = self._sent
        if self._digesting:
            self.net.trace = self._received
        self.oracle = Oracle()
        self.checks = Checks(self.oracle, [one(self.oracle, self.violate) for one in ALL])
        self.chance = random.Random(f"world/{config.seed}")
        self.shards = [ShardId(number) for number in range(1, config.shards + 1)]
        self.histories = {shard: ShardHistory() for shard in self.shards}
        self.stores = [SimStore(self, number) for number in range(1, config.stores + 1)]
        self.rogue = Rogue(self) if config.rogue else None
        if self.rogue is not None and "replays" in config.attacks:
            self.net.overhear = self.rogue.overhears
        self._upgrade = Upgrade(self) if config.upgrade else None
        self._administrator = Administrator(self) if config.administered else None
        self._replayer = (
            Replayer(self, lambda shard: int(self.histories[shard].applied_lsn))
            if config.administered
            else None
        )
        self._tn = TnServices(self, self._administrator) if self._administrator else None
        self._standing = Standing(self) if config.stands else None
        self._watch = Watch(self.rogue) if self.rogue is not None else None
        self._policies = PolicySetter(self) if any(config.retention) else None
        self._restorer = (
            (Mirrorer if config.mirrors else Restorer)(
                self, RESTORER, ShardId(config.shards + 1), ShardHistory()
            )
            if config.restores
            else None
        )
        self.clients: list[Client] = []
        self._by_transport: dict[str, SimStore] = {
            str(store.store_id): store for store in self.stores
        }
        self.healing = False
        self._started = False
        self._client_tasks: list[asyncio.Task[None]] = []
        self._fault_tasks: list[asyncio.Task[None]] = []
        self._pulses: list[asyncio.Task[None]] = []
        self._upgrading: asyncio.Task[None] | None = None
        self._administering: list[asyncio.Task[None]] = []
        self._replaying: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[None] | None = None

    # --- running ----------------------------------------------------------------------------------

    def run(self) -> Report:
        """Live through it."""
        loop = self.loop
        before = gc.get_threshold()
        gc.set_threshold(100_000, 50, 100)
        try:
            main = loop.spawn(loop.world, self._main())
            main.add_done_callback(lambda _: loop.stop())
            with lowered(self.config):
                loop.run_forever()
            if main.done() and not main.cancelled() and main.exception() is not None:
                error = main.exception()
                self.violate("world", f"{error!r}", error)
            report = Report(
                self.config.seed,
                self.violations,
                loop.now_s,
                self.config.stores,
                self._counted(),
                self.digest,
                loop.callbacks,
            )
        finally:
            loop.bury()
            gc.set_threshold(*before)
        return report

    async def _main(self) -> None:
        config = self.config
        sampling = self.loop.spawn(self.loop.world, self._sample())
        for store in self.stores:
            self.loop.call_in(self.loop.world, self.chance.uniform(0, 0.5), store.start)
        if config.faults_from_start and not config.calm:
            self._begin_faults()
            self._begin_clients()
        else:
            await self._until_serving(START_S, "start")
            self._started = True
            if self.rogue is not None and self._watch is not None:
                await self._begin_rogue(self.rogue, self._watch)
            self._begin_clients()
            self._begin_faults()
        await asyncio.sleep(max(config.fault_s, config.least_s - self.loop.now_s))
        await self._heal()
        bound_s = RESTART_S + CONVERGE_ELECTIONS * config.election_timeout_s
        if config.faults_from_start:
            bound_s += START_S
        if self._standing is not None:
            # The leader may have handed over just before, in vain.
            bound_s += config.apply_stuck_s + bounds.APPLY_GIVE_WAY_S + bounds.APPLY_ASK_TIMEOUT_S
        await self._until_serving(bound_s, "liveness")
        if self._standing is not None:
            self._standing.release()
        await asyncio.sleep(1.0)
        if self._restorer is not None:
            await self._restores(self._restorer)
        for client in self.clients:
            client.stopping = True
        await asyncio.wait(self._client_tasks)
        if self._administrator is not None:
            await self._administrator.stop_clients()
        for pulse in self._pulses:
            pulse.cancel()
        await self._settle()
        if config.holders or config.hold_readers:
            await self._expired()
        if self._administrator is not None:
            await self._deletions(self._administrator)
            await self._spread(self._administrator)
        if self._replayer is not None:
            await self._released(self._replayer)
        if self._serving is not None:
            await self._serving
        if config.drives_per_pass:
            await self._repairs_end()
        if self._policies is not None:
            await self._retained(self._policies)
        if config.idle_s:
            await self._idle(config.idle_s)
        if config.diverges:
            await self._diverge()
        if held := await covered_and_held(self.stores):
            self.violate("truncation", f"T4: {held}")
        self.checks.sample(self.stores)
        self._judge()
        sampling.cancel()
        for store in self.stores:
            store.tally()

    def _begin_clients(self) -> None:
        config = self.config
        number = 0
        for shard in self.shards:
            kinds: list[type[Client]] = [
                *[Writer] * config.writers,
                *[SessionWriter] * config.session_writers,
                *[Reader] * config.readers,
                Keeper,
                Neighbour,
                *[Loud] * self._is_loud(shard),
            ]
            for kind in kinds:
                number += 1
                self._begin_client(kind(self, number, shard, self.histories[shard]))
        more: list[type[Client]] = [
            *[Holder] * config.holders,
            *[Job] * config.jobs,
            *[Forker] * config.forks,
            *[HoldingReader] * config.hold_readers,
        ]
        for kind in more:
            for shard in self.shards:
                number += 1
                self._begin_client(kind(self, number, shard, self.histories[shard]))
        if self._restorer is not None:
            self._begin_client(self._restorer)
        if self._policies is not None:
            self.loop.spawn(self.loop.world, self._policies.run())

    def _begin_client(self, client: Client) -> None:
        self.clients.append(client)
        self._client_tasks.append(self.loop.spawn(client.process, client.run()))

    async def _begin_rogue(self, rogue: Rogue, watch: Watch) -> None:
        """Begin once HAKeeper is done with the first start."""
        while True:
            await asyncio.sleep(0.1)
            if watch.ready(self.stores):
                break
        watch.begin()
        rogue.begin()
        if self.config.ages:
            self._fault_tasks.append(self.loop.spawn(self.loop.world, Ages(self).run()))
        if self.config.calm:
            for shard in self.shards:
                self._pulses.append(self.loop.spawn(rogue.process, Pulse(rogue, shard).run()))

    def _begin_faults(self) -> None:
        if not self.config.calm:
            for work in Faults(self).tasks():
                self._fault_tasks.append(self.loop.spawn(self.loop.world, _as_coroutine(work)))
        if self._standing is not None:
            self._fault_tasks.append(self.loop.spawn(self.loop.world, self._standing.run()))
        if self._upgrade is not None:
            self._upgrading = self.loop.spawn(self.loop.world, self._upgrade.run())
        if self._administrator is not None:
            for verbs in (self._administrator.run(), self._administrator.stalk()):
                self._administering.append(self.loop.spawn(self.loop.world, verbs))
        if self._replayer is not None:
            self._replaying = self.loop.spawn(self.loop.world, self._replayer.run())
        if self._tn is not None:
            self._serving = self.loop.spawn(self.loop.world, self._tn.run())
        if self.config.zones:
            losing = self.loop.spawn(self.loop.world, Zones(self).run())
            self._fault_tasks.append(losing)

    async def _heal(self) -> None:
        self.note("heal")
        self.healing = True
        for task in self._fault_tasks:
            task.cancel()
        if self._upgrade is not None:
            self._upgrade.finish()
        if self._administrator is not None:
            self._administrator.finish()
        if self._replayer is not None:
            self._replayer.finish()
        if self._tn is not None:
            self._tn.finish()
        self.net.heal()
        faults = self.net.faults
        faults.loss = faults.duplication = faults.reorder = 0.0
        faults.delay_mean_s = min(faults.delay_mean_s, 0.003)
        for store in self.stores:
            store.stall_s = 0.0
            store.cost.interval_s = 0.0
            store.disk.heal()
            if store.gave_up_a_directory and not store.disk.lost:
                # The fault is gone, but the store trusts what failed again only in another life.
                store.crash(Crash(power=False))
            if store.process is not None and store.process.paused:
                self.loop.resume(store.process)
            if not store.up:
                store.start()

    @property
    def cluster_version(self) -> int:
        """The highest that a running store has learned."""
        return max(
            (one.parts.host.cluster_version.value for one in self.stores if one.up and one.parts),
            default=versions.FIRST,
        )

    def _restart_what_gave_up(self) -> None:
        """The flags of HAKeeper ask a person to restart a store with a failed data directory.

        Before cluster version 2 nothing but shard 0 waits for that.
        """
        for store in self.stores if self.cluster_version > versions.FIRST else ():
            if store.gave_up_a_directory and not store.disk.lost:
                self.counts["stores restarted for a directory"] += 1
                store.stop()

    def listens(self, store: Store, transport: SimTransport) -> None:
        """A new life of a store has a transport; a rogue may answer in its place."""
        if self.rogue is not None:
            self.rogue.takes_over(store, transport)

    def died(self, store: Store) -> None:
        """Its process ended: it comes back after a while."""
        self.counts["lives ended"] += 1
        down_s = 0.2 if self.healing else self.chance.expovariate(1.0) * self.config.down_s
        self.loop.call_in(self.loop.world, down_s + 0.01, self.stores[store.number - 1].start)

    # --- waiting ----------------------------------------------------------------------------------

    async def _until_serving(self, bound_s: float, phase: str) -> None:
        """Wait until every shard takes an append at some replica."""
        deadline_s = self.loop.now_s + bound_s
        waiting = dict.fromkeys(self._kept_shards())
        if self._restorer is not None:
            waiting[self._restorer.shard] = None
        probe = Client(self, 0, self.shards[0], ShardHistory())
        while waiting:
            for shard in list(waiting):
                if await self._takes(probe, shard):
                    del waiting[shard]
            if waiting:
                if self.loop.now_s > deadline_s:
                    self.violate(phase, f"shards {list(waiting)} take no appends: {self.state()}")
                    return
                await asyncio.sleep(0.1)
        self.counts[f"{phase} milliseconds"] += int((self.loop.now_s - deadline_s + bound_s) * 1000)

    def _leads(self, store: SimStore, shard: ShardId) -> bool:
        replica = store.running(shard)
        return replica is not None and replica.ready_to_lead

    async def _takes(self, probe: Client, shard: ShardId) -> bool:
        data = commands.encode(commands.Connect())
        for store in self.stores:
            if self._leads(store, shard):
                try:
                    await probe.ask(lambda host: host.propose(shard, data, 1.0), 1.0, store)
                except LogServiceError:
                    continue
                return True
        return False

    async def _settle(self) -> None:
        """Wait until every replica of every shard has applied what its leader has committed."""
        deadline_s = self.loop.now_s + SETTLE_S + self._patience_s()
        passes = {store.number: (store.lives, store.scrub_passes) for store in self.stores}
        while self.loop.now_s < deadline_s:
            kept = [shard for shard, _ in self._kept_histories()]
            settled = all(map(self._settled, [HAKEEPER_SHARD, *kept]))
            if settled and (not self.config.rot or self._scrubbed(passes)):
                return
            self._restart_what_gave_up()
            await asyncio.sleep(0.2)
        self.violate("convergence", f"replicas do not settle: {self.state()}")

    def _patience_s(self) -> float:
        """How long HAKeeper waits for a directory that will never come back, because its disk is
        lost, and for how long it asks nothing more of a store where it failed too often: there may
        be no other (seed 14002683); it looks again at the next pass (short seeds 18000113,
        74000907). It counts ticks, which are longer in some worlds (seed 501437).
        """
        ticks = 0
        if any(store.gave_up_a_directory and store.disk.lost for store in self.stores):
            ticks += bounds.HAKEEPER_FAILED_DIRECTORY_TICKS + bounds.HAKEEPER_IDLE_CHECK_TICKS
        for _, replica in self._members(HAKEEPER_SHARD):
            machine = replica.state_machine
            if isinstance(machine, HAKeeperRsm) and any(
                shard.avoid for shard in machine.state.shards.values()
            ):
                ticks += bounds.HAKEEPER_AVOID_TICKS + bounds.HAKEEPER_IDLE_CHECK_TICKS
                break
        return ticks * self.config.hakeeper_tick_s

    async def _expired(self) -> None:
        """Wait until no hold with a time to live is left (INV-HOLD-EXPIRES). Nobody renews one any
        more; but each change of the leader, and of the term, begins the time anew.
        """
        slowest = min(self.config.clock_rates, default=1.0)
        last_s = self.loop.now_s + SETTLE_S + GONE_S / slowest
        since: dict[tuple[ShardId, int], float] = {}
        waited = False
        while left := list(self._timed_holds()):
            waited = True
            for shard, term, what in left:
                began_s = since.setdefault((shard, term), self.loop.now_s)
                until_s = began_s + GONE_S / slowest if term else last_s
                if self.loop.now_s > until_s:
                    self.violate("hold expiry", f"shard {shard}, {what}: {self.state()}")
                    return
            await asyncio.sleep(0.2)
        if waited:
            await self._settle()  # a truncation that waited for a hold has to get everywhere

    def _timed_holds(self) -> Iterator[tuple[ShardId, int, str]]:
        """With the term in which the replica leads; 0: it does not."""
        for shard, _ in self._kept_histories():
            for store, replica in self._members(shard):
                machine = replica.state_machine
                term = replica.raft.term if replica.ready_to_lead else 0
                if isinstance(machine, LogRsm):
                    for name, hold in machine.state.holds.items():
                        if hold.ttl_s:
                            yield shard, term, f"{store.store_id}: {name} {hold}"

    async def _restores(self, restorer: Restorer) -> None:
        """Wait until the log that is restored is open, if it may be."""
        deadline_s = self.loop.now_s + SETTLE_S
        restorer.hurried = True
        while True:
            await asyncio.sleep(0.5)
            late = self.loop.now_s >= deadline_s
            if late or restorer.broken or not restorer.unfinished:
                break
        if restorer.broken:
            self.violate("restore", restorer.broken)
        elif restorer.unfinished and self.cluster_version >= versions.NEWEST:
            self.violate("restore", f"it does not come to its end: {self.state()}")

    async def _retained(self, policies: PolicySetter) -> None:
        """Wait until nothing is left of the logs but what their policies keep."""
        config = self.config
        slowest = min(config.clock_rates, default=1.0)
        if config.retention[0]:
            await asyncio.sleep(OLD_SHARE * (config.retention[0] + OLD_LATE_S))
        deadline_s = self.loop.now_s + (SETTLE_S + 4 * config.truncation_interval_s) / slowest
        while left := [*self._unretained(policies)]:
            if self.loop.now_s > deadline_s:
                self.violate("retention", f"{left[0]}: {self.state()}")
                return
            await asyncio.sleep(0.5)
        await self._settle()

    def _unretained(self, policies: PolicySetter) -> Iterator[str]:
        if not policies.done:
            yield "the policies are not set"
        checker = next(one for one in self.checks.checkers if isinstance(one, Retained))
        for shard in self.shards:
            leading = [one for _, one in self._members(shard) if one.ready_to_lead]
            if not leading:
                yield f"shard {shard} has no leader"
            for replica in leading:
                if what := checker.left(replica, self.config, self.loop.now_s):
                    yield f"shard {shard}: {what}"

    async def _deletions(self, administrator: Administrator) -> None:
        """Wait until nothing is left of deleted logs."""
        deadline_s = self.loop.now_s + SETTLE_S
        while left := administrator.gone():
            if self.loop.now_s > deadline_s:
                self.violate("deletion", left[0])
                return
            await asyncio.sleep(0.5)

    async def _repairs_end(self) -> None:
        """Wait until every operator that is under way now has come to its end. Others may begin."""
        deadline_s = self.loop.now_s + SPREAD_S + self._patience_s()
        last, left = 0, list[Operator]()
        while True:
            state = self._led_hakeeper()
            if state is not None:
                last = last or state.next_operator_id
                left = [one for one in state.sorted_operators() if one.id < last]
                if not left:
                    return
            if self.loop.now_s > deadline_s:
                said = [f"{one.id} {one.kind} shard {one.shard}: {one.step}" for one in left]
                self.violate("drives", f"operators do not end: {said}; {self.state()}")
                return
            self._restart_what_gave_up()
            await asyncio.sleep(0.5)

    async def _released(self, replayer: Replayer) -> None:
        """Wait until no log is held for a service that is gone, or replays nothing any more. One
        that is silent now may speak once more (short seed 19000145).
        """
        began_s, patience_s = self.loop.now_s, SETTLE_S + replayer.patience_s
        while left := replayer.left():
            late = self.loop.now_s > max(began_s, replayer.beat_s) + patience_s
            if late or self.cluster_version < 2:
                self.violate("service hold", f"{left}, and its service is gone: {self.state()}")
                return
            await asyncio.sleep(0.5)
        # What moved for a zone has to settle before all replicas are read, and so has a truncation
        # that waited for the hold: its leader alone has applied that by now (seed 425).
        await self._settle()

    async def _spread(self, administrator: Administrator) -> None:
        """Wait until no zone has a majority of a log whose rule forbids that.

        A store that gave a data directory up takes no replicas, and a lost disk brings none back.
        """
        config = self.config
        if config.zones < ZONES_FOR_A_RULE or any(one.disk.lost for one in self.stores):
            return
        if self.cluster_version < versions.NEWEST:
            return  # version 1 knows no zones (seed 13000006)
        zones = {one.store_id: label_of(one.number, config.zones) for one in self.stores}
        deadline_s = self.loop.now_s + SPREAD_S
        while True:
            state = administrator.state()
            logs = [shard for shard, _ in self._kept_histories()]
            found = next(crowded(state, logs, zones), "") if state is not None else "no leader"
            if not found:
                break
            if self.loop.now_s > deadline_s:
                self.violate("zones", f"{found}: {self.state()}")
                return
            self._restart_what_gave_up()
            await asyncio.sleep(1.0)

    def _led_hakeeper(self) -> State | None:
        """What HAKeeper knows where it leads."""
        for _, replica in self._members(HAKEEPER_SHARD):
            machine = replica.state_machine
            if replica.ready_to_lead and isinstance(machine, HAKeeperRsm):
                return machine.state
        return None

    async def _idle(self, idle_s: float) -> None:
        """Nothing fails and nobody asks for anything: nothing may be moved, and no leader changes.

        What is balanced waits for stores that have not failed for a while, so first there is time
        for that.
        """
        await asyncio.sleep(BALANCE_S)
        await self._settle()
        before = self._moved()
        await asyncio.sleep(idle_s)
        after = self._moved()
        for what, was in before.items():
            if after.get(what) != was:
                self.violate("idle", f"{what} was {was} and is {after.get(what)}: {self.state()}")

    def _moved(self) -> dict[str, object]:
        """What changes when something is moved or handed over."""
        found: dict[str, object] = {}
        for shard in [HAKEEPER_SHARD, *self.shards]:
            for store, replica in self._members(shard):
                if not replica.ready_to_lead:
                    continue
                epoch = int(replica.raft.membership.change_epoch)
                found[f"shard {shard}"] = (store.store_id, int(replica.raft.term), epoch)
                machine = replica.state_machine
                if isinstance(machine, HAKeeperRsm):
                    found["the next operator"] = machine.state.next_operator_id
        return found

    async def _diverge(self) -> None:
        diverging = Diverging(self)
        forged = diverging.forge()
        if forged is None:
            return
        # A shard that was compared is compared again when it has grown.
        await self._until_serving(START_S, "liveness")
        if not await diverging.until_repaired(forged, SETTLE_S):
            self.violate("divergence", f"{forged.text()} is not what it was: {self.state()}")
            return
        await self._settle()

    def _scrubbed(self, before: dict[int, tuple[int, int]]) -> bool:
        """Whether the store whose disk may have rotted has read its sealed segments twice since.

        Then whatever is damaged was found, and what was found is repaired (`_settled`).
        """
        store = self.stores[self.config.victim - 1]
        lives, passes = before[store.number]
        return store.scrub_passes >= 2 + (passes if store.lives == lives else 0)

    def _settled(self, shard: ShardId) -> bool:
        leading = next((one for one in self._members(shard) if one[1].ready_to_lead), None)
        if leading is None:
            return False
        at, leader = leading
        # HAKeeper goes on with a change when the leader reports it. A taken-over store that leads
        # never does, so its own shard keeps a learner or a replica that is no member any more.
        if at is not self._home and not self._changes_are_over(shard, leader):
            return False
        if shard == HAKEEPER_SHARD:
            return True
        elsewhere = [replica for store, replica in self._members(shard) if store is not at]
        if leads_in_vain(at, leader, elsewhere):
            return False
        running = {replica.replica_id: replica for _, replica in self._members(shard)}
        members = leader.raft.membership
        ids = {*members.voters, *members.learners}
        if self.rogue is not None:
            ids -= set(self.rogue.scene.ids(shard))
        return all(
            one in running and running[one].applied == leader.raft.commit == leader.applied
            for one in ids
        )

    def _changes_are_over(self, shard: ShardId, leader: Replica) -> bool:
        """The shard has no learners but those that are wanted, and no store has data of a replica
        that was removed from it.
        """
        members = leader.raft.membership
        wanted = self._administrator.learners if self._administrator is not None else 0
        if members.joint or len(members.learners) > (wanted if shard in self.shards else 0):
            return False
        # A store that says what it likes of itself does not get the order to remove it.
        opened = [one.parts for one in self.stores if one is not self._home and one.parts]
        return all(
            members.contains(replica)
            for parts in opened
            for at, replica in parts.host.directories.replicas()
            if at == shard
        )

    def _members(self, shard: ShardId) -> list[tuple[SimStore, Replica]]:
        found = [(store, store.running(shard)) for store in self.stores]
        return [(store, replica) for store, replica in found if replica is not None]

    # --- the verdict ------------------------------------------------------------------------------

    def _judge(self) -> None:
        if self.violations:
            return
        for shard, history in self._kept_histories():
            for store, replica in self._members(shard):
                if store is self._home or replica.witness:
                    continue
                members = replica.raft.membership
                if replica.replica_id in (*members.voters, *members.learners):
                    try:
                        history.operations.append(self._final_read(store, shard, history))
                    except Halted as halted:
                        self.violate("scrub", f"{store.store_id} was not whole: {halted.message}")
            for asked_s, lsn in self._by_policy(shard):
                self.counts["truncated by retention"] += 1
                history.operations.append(
                    Truncate("retention", lsn, asked_s, asked_s, Outcome.UNKNOWN)
                )
            self._join_jobs(history)
            verdict = check(history.operations)
            for count in ("acked records", "reads", "acked records read back", "truncates"):
                self.counts[count] += verdict.counts[count]
            for violation in verdict.violations[:5]:
                self.violate("history", f"shard {shard} {violation.rule}: {violation.detail}")
            for problem in final_checks.fencing(history):
                self.violate("fencing", f"shard {shard}: {problem}")
            for problem in final_checks.stamps(history):
                self.violate("timestamps", f"shard {shard}: {problem}")
            for problem in final_checks.expected(history):
                self.violate("expected-lsn", f"shard {shard}: {problem}")
            for problem in final_checks.holds(history):
                self.violate("holds", f"shard {shard}: {problem}")
            for problem in final_checks.times(history):
                self.violate("append-times", f"shard {shard}: {problem}")
            for problem in jobs(history.jobs, history.operations):
                self.violate("jobs", f"shard {shard}: {problem}")
            for problem in final_checks.trespasses(history):
                self.violate("ownership", f"shard {shard}: {problem}")
            if self.config.loud and not self._is_loud(shard):
                for problem in final_checks.quiet(history):
                    self.violate("quiet", f"shard {shard}: {problem}")
        for log in self._administrator.lasting() if self._administrator is not None else ():
            for problem in log.broken():
                self.violate("closed-log", f"shard {log.shard}: {problem}")
            for store, replica in self._members(log.shard):
                members = replica.raft.membership
                found = len(members.voters) - len(members.full_voters)
                if replica.ready_to_lead and found != log.witnesses:
                    said = f"{found} witnesses, created with {log.witnesses}"
                    self.violate("witnesses", f"shard {log.shard} led by {store.store_id}: {said}")

    def _join_jobs(self, history: ShardHistory) -> None:
        """What all attempts of jobs say of a block is one append."""
        for record in history.jobs.epochs:
            for append, epoch in record.appends():
                history.operations.append(append)
                history.epochs[append.batch] = epoch

    def _by_policy(self, shard: ShardId) -> Sequence[tuple[float, int]]:
        """What retention let go of a log, and when."""
        checker = next(one for one in self.checks.checkers if isinstance(one, Retained))
        return checker.truncations.get(shard, ())

    def _search_times(self, replica: Replica, times: list[tuple[int, int]]) -> None:
        """LSN at a time, for some times, beside what the log says when it is read whole."""
        first, applied = replica.log_bounds
        for time_us in {us for _, us in times[:: max(1, len(times) // 5)]}:
            for asked_us in (time_us, time_us + 1):
                found = lsn_at_time_here(replica, asked_us)
                wanted = min((lsn for lsn, us in times if us >= asked_us), default=applied + 1)
                self.counts["times searched"] += 1
                if found.lsn != max(wanted, first) or found.truncated != (found.lsn == first > 1):
                    self.violate(
                        "lsn-at-time",
                        f"shard {replica.shard} on {replica.store_id}: {found} for {asked_us}, "
                        f"not {wanted}",
                    )

    def _final_read(self, store: SimStore, shard: ShardId, history: ShardHistory) -> Read:
        assert store.parts is not None
        host = store.parts.host
        now = self.loop.now_s
        first, applied = host.replicas.running[shard].log_bounds
        position = first
        runs: list[Run] = []
        times: list[tuple[int, int]] = []
        stamps: list[tuple[str, int]] = []
        while position <= applied:
            found = read_log_here(host.replicas.running[shard], position, 1 << 20)
            runs += runs_of(found)
            times += times_of(found)
            stamps += stamps_of(found)
            if found.next_lsn == position:
                break
            position = Lsn(found.next_lsn)
        history.times.update(times)
        history.jobs.stamps.update(stamps)
        self._search_times(host.replicas.running[shard], times)
        return Read(
            "final",
            str(store.store_id),
            now,
            now,
            first,
            tuple(runs),
            position,
            first,
            applied,
            linearizable=False,
            final=True,
        )

    # --- what happens -----------------------------------------------------------------------------

    def violate(self, checker: str, detail: str, error: BaseException | None = None) -> None:
        """Something is wrong: the run ends as soon as the present callback returns."""
        if self.rogue is not None and self.rogue.forgives(checker, detail):
            self.counts["rogue forgiven"] += 1
            return
        self.note("VIOLATION", checker, detail)
        lines = traceback.format_exception(error) if error is not None else []
        self.violations.append(Violation(checker, detail, self.loop.now_s, "".join(lines)))
        self.loop.stop()

    def note(self, kind: str, *what: object) -> None:
        """An event for the trace."""
        if self._digesting:
            line = f"{self.loop.now_s:10.6f} {kind} {' '.join(map(str, what))}"
            self.digest = crc32(line.encode(), self.digest)
            if self._trace is not None:
                self._trace(line)

    def state(self) -> str:
        """All replicas in one line, for reports."""
        parts = []
        for store in self.stores:
            if not store.up or store.parts is None:
                parts.append(f"{store.store_id}: down")
                continue
            for replica in store.replicas():
                raft = replica.raft
                parts.append(
                    f"{store.store_id}/{replica.shard}: r{replica.replica_id} {raft.role.value} "
                    f"t{raft.term} l{raft.leader} i{raft.last_index} c{raft.commit} "
                    f"a{replica.applied} v{raft.membership.voters}"
                )
            if store.parts.host.halts.all():
                parts.append(f"{store.store_id} halted {store.parts.host.halts.all()}")
        return "; ".join(parts)

    def _sent(self, transport: SimTransport, shard: ShardId, message: Message) -> None:
        store = self._by_transport[transport.identity.store_id]
        if isinstance(message, RequestVote):
            self.counts["vote requests"] += 1
            # On a slow disk a candidate's vote for itself may take longer than the election. It
            # then asks for votes in a term that already has its leader.
            late = message.term in self.oracle.shard(shard).leaders
            excused = message.transfer or late or self._rogue_has(shard) or self._is_loud(shard)
            if self.config.calm and self._started and not excused:
                self.violate("calm", f"an election without a fault: {message} of shard {shard}")
        self.checks.sent(store, shard, message)
        if self.rogue is not None:
            self.rogue.hears(store, shard, message)

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self.loop.now_s

    @property
    def client_names(self) -> list[str]:
        """The endpoints of the clients."""
        return [client.name for client in self.clients]

    @property
    def _home(self) -> Store | None:
        """The store that was taken over."""
        return self.rogue.scene.home if self.rogue is not None else None

    def _kept_shards(self) -> list[ShardId]:
        """The shards of which something is promised: a traitor may ruin its own."""
        rogue = self.rogue
        if rogue is None:
            return self.shards
        return [one for one in self.shards if not rogue.forgives("", f"shard {one}")]

    def _kept_histories(self) -> list[tuple[ShardId, ShardHistory]]:
        """The shards of which something is promised, with those that were made and are there."""
        made = self._administrator.lasting() if self._administrator is not None else []
        kept = [(shard, self.histories[shard]) for shard in self._kept_shards()]
        return kept + [(log.shard, log.history) for log in made]

    def _rogue_has(self, shard: ShardId) -> bool:
        """The rogue has a replica of the shard, and may cost the shard some elections."""
        return self.rogue is not None and self.rogue.scene.owns(shard)

    def _is_loud(self, shard: ShardId) -> bool:
        """Its votes wait behind more than the disks take, so its elections take long."""
        return self.config.loud and shard == self.shards[0]

    def _received(self, kind: str, store: str, peer: str, batch: object) -> None:
        assert isinstance(batch, list)
        for shard, message in batch:
            self.note(kind, store, "from", peer, shard, _brief(message))

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.checks.sample(self.stores)
            if self._watch is not None:
                self._watch.sample(self.stores)

    def _unhandled(self, process: Process, error: BaseException | None, message: str) -> None:
        for store in self.stores:
            if store.process is process:
                store.gave_up(error or RuntimeError(message))
                return
        if process.alive:
            self.violate("unhandled", f"{process.name}: {message} {error!r}", error)

    def _counted(self) -> dict[str, int]:
        counts = Counter(self.counts)
        for client in self.clients:
            for name, count in client.counts.items():
                counts[f"client {name}"] += count
        if self.rogue is not None:
            for name, count in (self.rogue.counts + self.rogue.limits.held_back).items():
                counts[f"rogue {name}"] += count
        counts["batches"] = self.net.batches
        counts["batches lost"] = self.net.lost
        counts["batches doubled"] = self.net.doubled
        counts["batches reordered"] = self.net.reordered
        counts["fault clock-rate"] = len(set(self.config.clock_rates))
        counts["fault clock-step"] = sum(len(steps) - 1 for steps in self.config.wall_steps)
        counts["disk calls"] = sum(store.disk.calls for store in self.stores)
        counts["entries applied"] = sum(
            len(oracle.committed) for oracle in self.oracle.shards.values()
        )
        return dict(sorted(counts.items()))


async def _as_coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def _brief(message: Message) -> str:
    """A message on one line, without payloads."""
    entries = getattr(message, "entries", ())
    text = f"{type(message).__name__} {message.sender}->{message.to} t{message.term}"
    for name in ("prev_index", "index", "commit", "last_index", "reject", "pre"):
        value = getattr(message, name, None)
        if value is not None:
            text += f" {name}={int(value)}"
    if entries:
        text += f" entries={len(entries)} crc={crc32(b''.join(e.payload for e in entries)):x}"
    return text
