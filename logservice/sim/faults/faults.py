"""Faults: the tasks that make life hard, each in its own rhythm, as the configuration drew them.

The shapes of partitions are those of reference lists (isolate one, halves, one-way, bridge, ring,
clients cut off, slow, clogged, flapping); a shape is a set of one-way blocks between endpoints.
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
import random
from collections.abc import Awaitable, Callable

from logservice import versions
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES, segment_seed
from logservice.logdb.format.segment_scan import scan_segment
from logservice.membership import Member, Membership
from logservice.raft.ready import Role
from logservice.sim.faults.last_group import LastGroup
from logservice.sim.interfaces import DATA_DIRECTORY, Crash, Store, World

Links = set[tuple[str, str]]


class Faults:
    """One per world; `run` until cancelled."""

    def __init__(self, world: World) -> None:
        """Nothing happens before `run`."""
        self.world = world
        self.chance = random.Random(f"faults/{world.config.seed}")
        self._disk_died = False
        self._sectors = random.Random(f"sectors/{world.config.seed}")
        self._last_group = LastGroup(world.config.seed, self._count)

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """The faults of this configuration."""
        config = self.world.config
        kinds: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (config.crash_interval_s, self._crash),
            (config.pause_interval_s, self._pause),
            (config.partition_interval_s, self._partition),
            (config.disk_fail_interval_s, self._disk_fails),
            (config.read_fail_interval_s, self._read_fails),
            (config.dead_sector_interval_s, self._dead_sectors),
            (config.damage_interval_s, self._damage),
            (config.disk_full_interval_s, self._disk_full),
            (config.stall_interval_s, self._stall),
        ]
        return [self._rhythm(interval_s, fault) for interval_s, fault in kinds if interval_s > 0]

    def _rhythm(
        self, interval_s: float, fault: Callable[[], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            while True:
                await asyncio.sleep(self.chance.expovariate(1.0) * interval_s)
                await fault()

        return run

    def _any(self) -> Store:
        """Any store, but leaders of something more often."""
        stores = self.world.stores
        leading = [one for one in stores if any(r.raft.role is Role.LEADER for r in one.replicas())]
        if leading and self.chance.random() < 0.5:
            return self.chance.choice(leading)
        return self.chance.choice(stores)

    def _count(self, kind: str) -> None:
        self.world.counts[f"fault {kind}"] += 1

    # --- processes --------------------------------------------------------------------------------

    def _draw_crash(self) -> Crash:
        chance = self.chance
        return Crash(
            power=chance.random() < self.world.config.power_share,
            survive=chance.choice((0.0, 0.0, 0.5, 1.0)),
            keep_names=chance.random() < 0.5,
        )

    async def _crash(self) -> None:
        world, chance, config = self.world, self.chance, self.world.config
        if config.all_crash and chance.random() < 0.2:
            self._count("all-crash")
            crash = self._draw_crash()
            for store in world.stores:
                store.crash(crash)
            return
        store = self._any()
        if store.number == config.victim and chance.random() < 0.5:
            if config.disk_death and not self._disk_died:
                if self._others_have_their_data(store):
                    self._disk_died = True
                    self._count("directory-lost")
                    store.kill_directory()
            elif config.disk_loss and chance.random() < 0.5:
                if self._others_have_their_data(store):
                    self._count("disk-loss")
                    store.lose_disk()
            elif config.rot:
                self._rot(store)
            return
        if config.clean_restarts and chance.random() < 0.4:
            self._count("clean-stop")
            store.stop()
        elif chance.random() < 0.4:
            self._count("crash-in-disk-call")
            store.crash_inside(self._draw_crash(), chance.choice((0, 1, 2, 5, 20)))
            self._power_follows(store)
        else:
            self._count("crash")
            store.crash(self._draw_crash())
            if chance.random() < config.index_damage_share and not store.up:
                self._count("index-damage")
                store.disk.kv.damage(f"{DATA_DIRECTORY}/index")

    def _others_have_their_data(self, victim: Store) -> bool:
        """No other voter of its shards waits for its first data.

        The successor of a replica whose directory failed waits so. With the victim's disk gone as
        well, two of three would be lost for good (short seed 88000042). From cluster version 2 on
        the replica itself is waited for, and has its data again when its store was restarted.
        """
        waited_for = self.world.cluster_version > versions.FIRST
        stores = {store.store_id: store for store in self.world.stores}
        newest: dict[ShardId, Membership] = {}
        for replica in (one for store in stores.values() for one in store.replicas()):
            found, known = replica.raft.membership, newest.get(replica.shard)
            if known is None or found.change_epoch > known.change_epoch:
                newest[replica.shard] = found
        for shard, membership in newest.items():
            voters = {*membership.voters, *membership.outgoing}
            members = [one for one in membership.members if one.replica_id in voters]
            if all(one.store_id != victim.store_id for one in members):
                continue
            for member in members:
                store = stores[member.store_id]
                if store is victim or not store.up or store.parts is None:
                    continue
                running = store.running(shard)
                if running is None and waited_for and self._comes_back(store, member):
                    continue
                if (
                    running is None
                    or running.replica_id != member.replica_id
                    or not running.raft.last_index
                ):
                    return False
        return True

    def _comes_back(self, store: Store, member: Member) -> bool:
        """The member's data directory failed, and works again in the store's next life."""
        return not store.disk.lost and any(
            directory.failed and directory.incarnation == member.incarnation
            for directory in (store.parts.host.directories if store.parts is not None else ())
        )

    def _power_follows(self, store: Store) -> None:
        """Often the power goes a little later, when the next life has made promises of its own."""
        if self.chance.random() < 0.4:
            world = self.world
            crash = Crash(power=True, keep_names=self.chance.random() < 0.5)
            delay_s = self.chance.uniform(1.0, 4.0)
            world.loop.call_in(world.loop.world, delay_s, self._power_cut, store, crash)

    def _power_cut(self, store: Store, crash: Crash) -> None:
        if not self.world.healing:
            store.crash(crash)

    def _rot(self, store: Store) -> None:
        """Bits flip while the power is off.

        In the newest segment they flip before its last group only: that group is the stated window
        of G6, unless it is a durable mark.
        """
        store.crash(self._draw_crash())
        folder = f"{DATA_DIRECTORY}/segments"
        if not store.disk.exists(folder) or self._last_group.strike(store):
            return
        names = store.disk.listdir(folder)
        if names:
            name = self.chance.choice((*names, names[-1]))
            path = f"{folder}/{name}"
            end: int | None = None
            if name == names[-1]:
                end = self._known_durable(store, path, name)
                if not end:
                    return
                self._count("rot in the newest segment")
            kind = self.chance.choice(("bits", "bits", "lost-write", "misdirected-write"))
            self._count(f"rot {kind}")
            where: object
            if kind == "bits":
                where = store.disk.rot(path, self.chance.choice((1, 1, 4)), end)
            elif kind == "lost-write":
                where = store.disk.overwrite(path, "", end)
            else:
                where = store.disk.overwrite(path, f"{folder}/{self.chance.choice(names)}", end)
            self.world.note("rot", kind, store.store_id, path, where)
        if self.chance.random() < 0.3:
            store.disk.kv.damage(f"{DATA_DIRECTORY}/index")

    async def _dead_sectors(self) -> None:
        """Sectors are found dead at the next start, the newest ones more often.

        Those of the newest group and behind it may die, too: nothing of them may be taken for torn
        (INV-REC-4). One sector stays good, because a disk that gives nothing is lost, which is
        another fault.
        """
        chance, store = self._sectors, self.world.stores[self.world.config.victim - 1]
        disk = store.disk
        if not self._heard(store):
            return
        store.crash(self._draw_crash())
        folder = f"{chance.choice(store.directories)}/segments"
        if not disk.exists(folder):
            return
        for _ in range(chance.choice((1, 1, 2))):
            paths = [f"{folder}/{n}" for n in disk.listdir(folder) if n.endswith(".segment")]
            good = [(path, number) for path in paths for number in disk.good_sectors(path)]
            if len(good) < 2:
                break
            place = chance.choice(good[-8:] if chance.random() < 0.5 else good)
            disk.kill_sector(*place)
            self._count("dead sector")
            self.world.note("dead-sector", store.store_id, *place)
        if chance.random() < 0.3:
            self._fail_read(store, chance.choice((0, 1, 2)))
        if chance.random() < 0.5:
            self._count("index-damage")
            disk.kv.damage(posixpath.dirname(folder) + "/index")

    def _known_durable(self, store: Store, path: str, name: str) -> int:
        """Where the newest segment's last group begins: all before it has a successor."""
        segment = int(name.split(".")[0], 16)
        seed = segment_seed(store.incarnation, segment)
        view = memoryview(store.disk.image(path))
        groups = scan_segment(view, segment, SEGMENT_HEADER_BYTES, seed).groups()
        return max((group.position.offset for group in groups if group.intact), default=0)

    async def _pause(self) -> None:
        store = self._any()
        process = store.process
        if process is None or not process.alive or process.paused:
            return
        self._count("pause")
        self.world.note("pause", store.store_id)
        self.world.loop.pause(process)
        await asyncio.sleep(self.chance.choice((0.1, 0.5, 1.5, 4.0)))
        self.world.note("resume", store.store_id)
        self.world.loop.resume(process, self.chance)

    # --- network ----------------------------------------------------------------------------------

    async def _partition(self) -> None:
        world, chance, net = self.world, self.chance, self.world.net
        name, links = self._shape()
        self._count(f"partition {name}")
        world.note("partition", name, sorted(links))
        seconds = chance.expovariate(1.0) * world.config.partition_s
        if name == "slow":
            for link in sorted(links):
                net.slow(*link, chance.uniform(0.1, 0.5))
        elif name == "clog":
            for link in sorted(links):
                net.clog(*link, world.loop.now_s + seconds * chance.random())
        elif name == "flap":
            for _ in range(max(1, int(seconds / 0.2))):
                self._set(links, blocked=True)
                await asyncio.sleep(0.1)
                self._set(links, blocked=False)
                await asyncio.sleep(0.1)
        else:
            self._set(links, blocked=True)
        await asyncio.sleep(seconds)
        for link in sorted(links):
            net.unblock(*link)
            net.slow(*link, 0.0)
        world.note("partition-ends", name)

    def _set(self, links: Links, *, blocked: bool) -> None:
        net = self.world.net
        for link in sorted(links):
            if blocked:
                net.block(*link)
            else:
                net.unblock(*link)

    def _shape(self) -> tuple[str, Links]:
        chance = self.chance
        names = [str(store.store_id) for store in self.world.stores]
        chance.shuffle(names)
        one, rest = names[0], names[1:]
        clients = self.world.client_names
        half = names[: len(names) // 2]
        other = names[len(names) // 2 :]
        leader = self._leader(chance.choice([HAKEEPER_SHARD, *self.world.shards]))
        cut_leader = _both([leader], [name for name in names if name != leader])
        shapes: list[tuple[str, Links]] = [
            ("isolate-leader", cut_leader),
            ("isolate-one", _both([one], rest)),
            ("isolate-hakeeper", self._hakeeper(names)),
            ("halves", _both(half, other)),
            ("send-only", {(name, one) for name in rest}),
            ("receive-only", {(one, name) for name in rest}),
            ("bridge", _both(half, [name for name in other if name != one])),
            ("ring", _ring(names)),
            ("clients", _both(clients, [name for name in names if name != leader])),
            ("slow", _both([one], rest)),
            ("clog", _both([one], rest) if chance.random() < 0.5 else _both(half, other)),
            ("flap", _both([one], rest)),
        ]
        return chance.choice(shapes)

    def _leader(self, shard: int) -> str:
        for store in self.world.stores:
            for replica in store.replicas():
                if replica.shard == shard and replica.raft.role is Role.LEADER:
                    return str(store.store_id)
        return str(self.world.stores[0].store_id)

    def _hakeeper(self, names: list[str]) -> Links:
        leader = self._leader(HAKEEPER_SHARD)
        return _both([leader], [name for name in names if name != leader])

    # --- disks ------------------------------------------------------------------------------------

    async def _disk_fails(self) -> None:
        self._count("disk-error")
        number = self.chance.choice((errno.EIO, errno.EIO, errno.ENOSPC))
        store = self._any()
        store.fail_disk(number, self.chance.randrange(20))
        self._power_follows(store)
        if len(store.directories) > 1:
            # A store with another directory goes on without the failed one, until a person looks.
            self.world.loop.call_in(self.world.loop.world, 4.0, self._look_at, store)

    def _look_at(self, store: Store) -> None:
        if not self.world.healing and store.gave_up_a_directory and not store.disk.lost:
            store.stop()

    async def _read_fails(self) -> None:
        """Fail one read on the disk that may rot: what cannot be read is as good as damaged."""
        store = self.world.stores[self.world.config.victim - 1]
        self._count("read-error")
        self._fail_read(store, self.chance.choice((0, 0, 1, 5, 20)))
        if len(store.directories) > 1:
            self.world.loop.call_in(self.world.loop.world, 4.0, self._look_at, store)

    def _fail_read(self, store: Store, reads: int) -> None:
        """Fail a read, but not that of the only sector of a store that starts next.

        See `_dead_sectors` (seed 481 of the worlds with damage at moments).
        """
        if store.up or self._good_sectors(store) > 1:
            store.fail_read(reads)

    async def _damage(self) -> None:
        store = self.world.stores[self.world.config.victim - 1]
        store.damage.arm(sectors=lambda: self._heard(store) and self._good_sectors(store) > 2)
        for _ in range(50):
            await asyncio.sleep(0.1)
            if not store.damage.armed:
                break
        store.damage.strike_anyhow()
        if len(store.directories) > 1:
            self.world.loop.call_in(self.world.loop.world, 4.0, self._look_at, store)

    def _good_sectors(self, store: Store) -> int:
        """How many sectors of its segments can be read, in the directory that has the fewest."""
        disk = store.disk
        folders = [f"{one}/segments" for one in store.directories]
        counts = [
            sum(len(disk.good_sectors(f"{folder}/{name}")) for name in disk.listdir(folder))
            for folder in folders
            if disk.exists(folder)
        ]
        return min(counts, default=0)

    def _heard(self, store: Store) -> bool:
        """Whether it has heard that there is a cluster.

        A damaged store that has not may not take part in the first start, and waits for a person
        (INV-BOOT-2).
        """
        return store.up and store.parts is not None and store.parts.book.knows_hakeeper

    async def _disk_full(self) -> None:
        stores = [self._any()]
        if self.chance.random() < 0.4:
            # Most of them at once: the shards refuse blocks, and nothing else.
            count = len(self.world.stores)
            stores = self.chance.sample(self.world.stores, self.chance.randint(2, count))
        reserve = self.world.config.reserve_bytes
        for store in stores:
            self._count("disk-full")
            store.fill_disk(self.chance.choice((0, 4096, reserve // 5, reserve // 2, reserve)))
            self.world.note("disk-full", store.store_id)
        await asyncio.sleep(self.chance.uniform(0.5, 3.0))
        for store in stores:
            store.disk.heal()

    async def _stall(self) -> None:
        store = self._any()
        self._count("stall")
        store.stall_s = self.chance.choice((0.05, 0.2, 1.0))
        await asyncio.sleep(self.chance.uniform(0.5, 3.0))
        store.stall_s = 0.0


def _both(ones: list[str], others: list[str]) -> Links:
    links = {(a, b) for a in ones for b in others}
    return links | {(b, a) for a, b in links}


def _ring(names: list[str]) -> Links:
    """Each sees its neighbours only: every majority is another one."""
    links: Links = set()
    size = len(names)
    for place, name in enumerate(names):
        for step in range(2, size - 1):
            links.add((name, names[(place + step) % size]))
    return links
