"""SimStore: one store of the simulated world, through all its lives.

Between lives only the disk remains. A life is a `Process` that runs the production assembly
(`nodehost.assembly.store_parts`) over simulated seams. It ends in one of three ways:

- a crash: the process is killed, or power goes together with what was not synced, at any moment or
  inside the n-th disk call from now;
- a clean stop;
- the store itself gives up.

INV-SIM-CAUSE: a store gives up, or leaves a directory out, only for a reason that the world gave it
(a disk fault). Sectors that cannot be read are none.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import Awaitable, Callable, Sequence

from logservice_wire.errors import (
    Halted,
    InvalidArgument,
    LogServiceError,
    WrongCluster,
)

from logservice.hakeeper.commands.proposals import AdmitStore
from logservice.ids import HAKEEPER_SHARD, Incarnation, ShardId, StoreId
from logservice.invariants import InvariantViolation
from logservice.logdb.io.kv import KvError
from logservice.logdb.io.segment_keys import KeysMissing
from logservice.logdb.options import LogDbOptions
from logservice.nodehost.agent.bootstrap import InitialMember
from logservice.nodehost.agent.hakeeper_ticks import FirstConfiguration
from logservice.nodehost.agent.heartbeats import StoreDescription
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.assembly.store_parts import StoreParts, StoreSeams, StoreSettings
from logservice.nodehost.disks.executor import InlineExecutor
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.nodehost.truncation.worker import TruncationWorker
from logservice.sealing_keys import Keys
from logservice.sim.disk import PowerCut, SimDisk, SimExecutor
from logservice.sim.faults.damage import Damage
from logservice.sim.faults.zones import label_of
from logservice.sim.interfaces import CLUSTER, DATA_DIRECTORY, Crash, World
from logservice.sim.loop import Cost, Process, SimClock, ahead_us
from logservice.sim.net import SimTransport
from logservice.sim.observed import ObservedHAKeeperRsm, ObservedLogRsm, observe_logdb
from logservice.state_machine import StateMachine
from logservice.versions import ONLY_FIRST

_ADMIT_TIMEOUT_S = 2.0
_TURN_TICKS_MAX = 2.5
"""What a turn takes at the most, in worlds in which turns take time: more than a tick."""
_REPLAY_ENTRIES_MAX = 40
"""So that replays reach their bound: the logs of a world are short."""


class SimStore:
    """See the module's text."""

    def __init__(self, world: World, number: int) -> None:
        """A store with an empty disk that does not run yet."""
        self.world = world
        self.number = number
        self.store_id = StoreId(f"store-{number}")
        self.address = f"memory:{number}"
        self.rate = world.config.clock_rates[number - 1] if world.config.clock_rates else 1.0
        self.chance = random.Random(f"store/{number}/{world.config.seed}")
        self.lives = 0
        self.incarnation = Incarnation(0)
        """The incarnation of the first data directory in the newest life."""
        count = world.config.directories[number - 1] if world.config.directories else 1
        self.directories = [DATA_DIRECTORY, *(f"{DATA_DIRECTORY}-{n}" for n in range(2, count + 1))]
        self.disk = SimDisk(self.chance, self._cut, world.counts)
        self.process: Process | None = None
        self.parts: StoreParts | None = None
        self.transport: SimTransport | None = None
        self.damage = Damage(self)
        self.wanted_up = True
        self.stall_s = 0.0
        self.cost = Cost(
            random.Random(f"turns/{number}/{world.config.seed}"),
            world.config.long_turn_interval_s,
            _TURN_TICKS_MAX * world.config.tick_ms / 1000,
        )
        """What the turns of its loop take."""
        self.versions = ONLY_FIRST if world.config.upgrade else world.config.versions
        self.ring = self._with_key(None) if world.config.encrypted else None
        self._executors: list[SimExecutor] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._crash = Crash(power=False)
        self._disk_faults = False

    @property
    def up(self) -> bool:
        """A process of it lives."""
        return self.process is not None and self.process.alive

    @property
    def halted(self) -> frozenset[ShardId]:
        """Shards whose replica here cannot be trusted."""
        return frozenset(self.parts.host.halts.all() if self.parts is not None else ())

    @property
    def scrub_passes(self) -> int:
        """How often this life has read all sealed segments of its disk."""
        if self.parts is None or not self.up:
            return 0
        return min(scrubber.progress.passes for scrubber in self.parts.scrubbers)

    @property
    def clock_is_off_by_us(self) -> int:
        """How far its time of day is from the world's now."""
        return abs(ahead_us(self._wall_steps, self.world.loop.now_s))

    @property
    def _wall_steps(self) -> Sequence[tuple[float, int]]:
        config = self.world.config
        return config.wall_steps[self.number - 1] if config.wall_steps else ()

    def running(self, shard: ShardId) -> Replica | None:
        """Its replica of a shard, None when none runs."""
        if self.parts is None or not self.up:
            return None
        return self.parts.host.replicas.running.get(shard)

    def replicas(self) -> list[Replica]:
        """Its running replicas, by shard."""
        if self.parts is None or not self.up:
            return []
        shards = sorted({shard for shard, _ in self.parts.host.directories.replicas()})
        return [replica for shard in shards if (replica := self.running(shard)) is not None]

    # --- lives ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a new life, unless one is under way."""
        if self.up:
            return
        self.lives += 1
        self.disk.up()
        loop = self.world.loop
        self.process = loop.process(
            f"{self.store_id}#{self.lives}", local_s=self.chance.uniform(0, 1000), rate=self.rate
        )
        if self.cost.interval_s:
            self.process.cost = self.cost
        self._executors, self._tasks = [], []
        self.parts = None
        self.transport = None
        self.damage.began()
        self._disk_faults = self.disk.fault_waits
        self.world.note("start", self.store_id, self.lives)
        loop.spawn(self.process, self._live())

    def crash(self, crash: Crash) -> None:
        """End the process now; what an executor has under way is cut at a random disk call."""
        if not self.up:
            return
        self.world.note("crash", self.store_id, crash)
        assert self.process is not None
        self._crash = crash
        self._dead()
        for executor in self._executors:
            if self.chance.random() < 0.7:
                self.disk.up_for_the_last(self.chance.randrange(5))
                executor.cut_short()
        self._finish()

    def crash_inside(self, crash: Crash, calls: int) -> None:
        """End the process inside one of its next disk calls."""
        if self.up:
            self.world.note("crash-inside", self.store_id, crash, calls)
            self._crash = crash
            self.disk.cut_after(calls)

    def stop(self) -> None:
        """End it in good order."""
        if self.up and self.process is not None and self.parts is not None:
            self.world.note("stop", self.store_id)
            self.world.loop.spawn(self.process, self._stop(self.parts))

    def lose_disk(self) -> None:
        """Everything is gone; the next life begins with an empty disk."""
        self.world.note("disk-lost", self.store_id)
        self.crash(Crash(power=True))
        self.disk = SimDisk(self.chance, self._cut, self.world.counts)

    def kill_directory(self) -> None:
        """The disk of one data directory is gone, for good; the others are not touched."""
        path = self.chance.choice(self.directories)
        self.world.note("directory-lost", self.store_id, path)
        self._disk_faults = True
        self.disk.lose(path)

    @property
    def gave_up_a_directory(self) -> bool:
        """The running store does not use one of its data directories.

        The directory failed, or it did not answer at the start and was left out.
        """
        if self.parts is None or not self.up:
            return False
        used = [one for one in self.parts.host.directories if not one.failed]
        return len(used) < len(self.directories)

    def fail_disk(self, number: int, calls: int) -> None:
        """One of the next disk calls fails."""
        self._disk_faults = True
        self.disk.fail(number, calls)

    def fail_read(self, reads: int) -> None:
        """One of the next reads of a segment fails. A running store has no reason to give up."""
        self.disk.fail_read(reads)

    def fill_disk(self, left_bytes: int) -> None:
        """The disk is full but for some bytes: no reason to give up (INV-SIM-CAUSE)."""
        self.disk.fill(left_bytes)

    def gave_up(self, error: BaseException) -> None:
        """The store ends itself, or an error that nobody handled ends it."""
        if not self.up:
            return
        self.world.note("gave-up", self.store_id, repr(error))
        if not self._excused(error):
            self.world.violate("crash", f"{self.store_id} gave up: {error!r}", error)
        self._crash = Crash(power=False)
        self._dead()
        self._finish()

    def broke(self, error: InvariantViolation) -> None:
        """A replica halts because an invariant of it does not hold: a defect of the product."""
        self.world.violate("invariant", f"a replica of {self.store_id} broke: {error!r}", error)

    def tally(self) -> None:
        """Add what this life has counted to the world's counts."""
        if self.parts is None:
            return
        counts = self.world.counts
        for what, count in self.parts.repairer.counts.items():
            counts[f"repair {what}"] += count
        for what, count in self.parts.comparer.counts.items():
            counts[f"compare {what}"] += count
        counts["fault turns that took time"] += self.cost.count
        self.cost.count = 0
        counts["catch-up turns that waited"] += self.parts.host.catch_up.delayed
        for scrubber in self.parts.scrubbers:
            damages = scrubber.progress.damages
            counts["scrub damages"] += damages
            if damages and not (self.world.config.rot or self.disk.lost):
                self.world.violate("scrub", f"{self.store_id}: {damages} damages on a good disk")

    # --- inside -----------------------------------------------------------------------------------

    def _excused(self, error: BaseException) -> bool:
        if isinstance(error, InvalidArgument):
            # The very first start of a store writes an identity when there is no ballast yet.
            unusable = self._disk_faults or self.disk.full
            return unusable and error.metadata.get("field") == "data_directory"
        if isinstance(error, OSError | KvError | Halted | WrongCluster):
            # A young store may have one page of segments, and a disk that gives no byte of them
            # counts as lost. Somebody finds the loose cable.
            silent = "no segment can be read" in str(error) and self.disk.revive()
            return self._disk_faults or self.disk.refused_write or silent
        return isinstance(error, PowerCut)

    def _cut(self) -> None:
        """A disk call did not return; its stack unwinds, and then the process is gone."""
        if self.process is not None and self.process.alive:
            self.world.note("cut", self.store_id)
            self._dead()
            self.world.loop.call_in(self.world.loop.world, 0.0, self._finish)

    def _dead(self) -> None:
        assert self.process is not None
        self.disk.stop()
        self.world.loop.kill(self.process)
        if self.transport is not None:
            self.world.net.died(self.transport)

    def _finish(self) -> None:
        crash = self._crash
        self.disk.stop()
        self.tally()
        self.parts = None
        if crash.power:
            self.disk.lose_power(keep_names=crash.keep_names, survive=crash.survive)
        else:
            self.disk.kill()
        self.disk.forget_faults()
        self.world.died(self)

    async def _live(self) -> None:
        try:
            parts = self._assemble()
            self.incarnation = parts.host.identity.incarnations[0]
            self.world.checks.started(self, parts)
            observe_logdb(self, parts, self.damage)
            self.parts = parts
            caused = self._disk_faults or self.disk.full or self.disk.refused_write
            if self.gave_up_a_directory and not caused:
                self.world.violate("directories", f"{self.store_id} left one out at its start")
            await parts.start()
            zones = self.world.config.zones
            labels = {"zone": label_of(self.number, zones)} if zones else {}
            description = StoreDescription(
                f"host-{self.number}", self.address, f"{self.store_id}:client", labels
            )
            for work in parts.background(lambda: description):
                self._background(work)
            for worker in parts.workers:
                self._background(functools.partial(self._truncate, worker))
            self._background(functools.partial(self._admit, parts))
            if self.ring is not None:
                self._background(functools.partial(self._change_keys, parts))
        except BaseException as error:  # noqa: BLE001 - the world judges it
            self.gave_up(error)

    def _assemble(self) -> StoreParts:
        world, process = self.world, self.process
        assert process is not None
        config = world.config
        clock = SimClock(world.loop, process, self._wall_steps)
        members = [InitialMember(StoreId(f"store-{n}"), f"memory:{n}") for n in (1, 2, 3)]
        settings = StoreSettings(
            cluster_id=CLUSTER,
            store_id=self.store_id,
            data_directories=self.directories,
            members=members,
            first=FirstConfiguration(
                CLUSTER, config.shards + config.restores, config.replicas, config.store_timeout_s
            ),
            options=NodeHostOptions(
                tick_ms=config.tick_ms,
                heartbeat_ticks=config.heartbeat_ticks,
                election_ticks=config.election_ticks,
                quiesce_ticks=config.quiesce_ticks,
                lease_read=config.lease_read,
                entry_bytes_target=config.entry_bytes_target,
                group_bytes_goal=config.group_bytes_goal,
                apply_stuck_s=config.apply_stuck_s,
                catch_up_bytes_per_s=config.catch_up_bytes_per_s,
                catch_up_behind_bytes=config.catch_up_behind_bytes,
                catch_up_turn_bytes=config.catch_up_turn_bytes,
                unwritten_bytes_max=config.unwritten_bytes_max,
                fsync_inline_max_s=-1.0 if config.threaded_disks[self.number - 1] else 1.0,
            ),
            logdb=LogDbOptions(
                segment_bytes=config.segment_bytes,
                entry_cache_bytes=config.entry_cache_bytes,
                ballast_bytes=2 * config.segment_bytes,
                reserve_bytes=config.reserve_bytes,
                rewrite_live_ratio=config.rewrite_live_ratio,
                rewrite_bytes_max=4 * config.segment_bytes,
            ),
            keys=self.ring,
            exports_max=config.exports_max,
            replay_entries_max=_REPLAY_ENTRIES_MAX,
            hakeeper_tick_s=config.hakeeper_tick_s,
            heartbeat_interval_s=config.heartbeat_interval_s,
            scrub_interval_s=config.scrub_interval_s,
            compare_interval_s=config.compare_interval_s,
            versions=self.versions,
        )
        seams = StoreSeams(
            disk=lambda path: DiskSeams(
                self.disk,
                self.disk.kv,
                self._executor(config.disk_delay_s),
                self._executor(config.disk_delay_s),
                self._executor(config.disk_delay_s * 3),
                InlineExecutor(),
            ),
            clock=clock,
            make_transport=self._make_transport,
            draw_id=lambda: self.chance.getrandbits(63),
            rng=random.Random(f"elections/{self.number}/{self.lives}/{config.seed}"),
            draw_bytes=random.Random(f"nonces/{self.number}/{self.lives}/{config.seed}").randbytes,
            on_fatal=self.gave_up,
            on_broken=self.broke,
            state_machines=self._state_machine,
        )
        return StoreParts(settings, seams)

    def _make_transport(self, identity: PeerIdentity) -> SimTransport:
        assert self.process is not None
        self.transport = SimTransport(
            identity, self.world.net, self.process, self.address, self.gave_up
        )
        self.world.listens(self, self.transport)
        return self.transport

    def _executor(self, delay_s: float) -> SimExecutor:
        assert self.process is not None

        def delay() -> float:
            if self.stall_s:
                self.world.counts["fault stalled disk operation"] += 1
            return self.chance.expovariate(1.0) * delay_s + self.stall_s

        executor = SimExecutor(self.world.loop, self.process, delay)
        self._executors.append(executor)
        return executor

    def _state_machine(self, shard: ShardId) -> StateMachine:
        if shard == HAKEEPER_SHARD:
            return ObservedHAKeeperRsm(self, shard, self.world.checks)
        return ObservedLogRsm(self, shard, self.world.checks)

    async def _admit(self, parts: StoreParts) -> None:
        """Be the person who admits every store to shard 0, asking from where HAKeeper leads."""
        missing = [store.store_id for store in self.world.stores]
        while missing:
            admit = AdmitStore(missing[-1], hakeeper=True)
            try:
                await parts.client.administer(admit, _ADMIT_TIMEOUT_S)
            except LogServiceError:
                await asyncio.sleep(1.0)
            else:
                missing.pop()

    def _with_key(self, ring: Keys | None) -> Keys:
        """The ring with one key more, which is the active one."""
        held = {} if ring is None else ring.keys
        number = 1 + max((int(key_id[1:]) for key_id in held), default=0)
        key = random.Random(f"key/{self.number}/{number}/{self.world.config.seed}").randbytes(32)
        return Keys(f"k{number}", {**held, f"k{number}": key})

    async def _change_keys(self, parts: StoreParts) -> None:
        """Be the person who makes another key now and then, and tries to do without old ones."""
        config = self.world.config
        chance = random.Random(f"other keys/{self.number}/{self.lives}/{config.seed}")
        while True:
            await asyncio.sleep(chance.expovariate(1.0) * config.keys_interval_s)
            assert self.ring is not None
            whole = self._with_key(self.ring)
            few = {one: whole.keys[one] for one in (self.ring.active, whole.active)}
            everywhere = not parts.unopened and not any(
                one.used.failed for one in parts.directories
            )
            try:
                if not everywhere:
                    raise KeysMissing("a directory that is not open may need any of them")
                parts.use_keys(Keys(whole.active, few))
                self.ring = Keys(whole.active, few)
            except KeysMissing:
                parts.use_keys(whole)
                self.ring = whole
            self.world.counts["fault another key"] += 1
            if len(few) == len(self.ring.keys) < len(whole.keys):
                self.world.counts["fault old keys gone"] += 1

    def _background(self, work: Callable[[], Awaitable[None]]) -> None:
        async def guarded() -> None:
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - the world judges it
                self.gave_up(error)

        self._tasks.append(asyncio.get_running_loop().create_task(guarded()))

    async def _truncate(self, worker: TruncationWorker) -> None:
        """What `server.schedule` does, without its scheduler."""
        while True:
            half_s = self.world.config.truncation_interval_s / 2
            await asyncio.sleep(half_s)
            with contextlib.suppress(LogServiceError):
                self.world.counts["truncation grown"] += await worker.export_grown()
            await asyncio.sleep(half_s)
            with contextlib.suppress(LogServiceError):
                more = True
                while more:
                    report = await worker.run_once()
                    self.world.counts.update(
                        {f"truncation {step}": count for step, count in report.counts.items()}
                    )
                    more = report.more

    async def _stop(self, parts: StoreParts) -> None:
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await parts.stop()
            parts.close()
        except BaseException as error:  # noqa: BLE001 - the world judges it
            self.gave_up(error)
            return
        self._crash = Crash(power=self.chance.random() < 0.5)
        if self.up:
            self._dead()
            self._finish()
