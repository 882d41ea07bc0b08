"""SimConfig: everything a seed decides before the first event.

This is swarm testing: a run with every fault at once hides what a run with few of them shows. So
each seed draws which faults there are at all, and how strong they are; one seed in five has none.
The draw is printed with every failure.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields
from typing import Final

from logservice.bounds import (
    APPLY_STUCK_S,
    CATCH_UP_BEHIND_BYTES,
    CATCH_UP_TURN_BYTES,
    LOGDB_GROUP_BYTES_GOAL,
    RETENTION_AGE_S_MIN,
    RETENTION_BYTES_MIN,
    RETENTION_RECORDS_MIN,
    SCRUB_PASS_INTERVAL_S,
    UNWRITTEN_BYTES_MAX,
)
from logservice.sim.net import NetFaults
from logservice.versions import ONLY_FIRST, VersionRange

SHORT_S = 20.0
"""The least that a short seed lives. A quarter of a common one's is start and end."""

CALM_SHARE = 0.2
"""The share of seeds without any fault; in these nobody may campaign after the start."""

YEAR_US: Final = 365 * 86_400 * 1_000_000


@dataclass(slots=True)
class SimConfig:
    """Seconds are virtual. An interval of 0 means never."""

    seed: int
    calm: bool = False
    short: bool = False
    """Another world than the common one of the same number: see `draw`."""
    stores: int = 3
    shards: int = 2
    replicas: int = 3
    fault_s: float = 20.0
    least_s: float = 0.0
    """Clients and faults go on until the world is this old."""
    faults_from_start: bool = False

    versions: VersionRange = ONLY_FIRST
    """What the stores' programs know, see `logservice.versions`; ordinary worlds draw it."""
    upgrade: bool = False
    """The programs know the first version only, and are replaced one after the other."""
    administered: bool = False
    """Somebody uses the verbs of administration all the time."""
    zones: int = 0
    """Stores name one of so many zones, and zones are lost; 0: they name none."""
    idle_s: float = 0.0
    """Once everything has settled nothing happens for so long, and nothing may be moved then."""

    tick_ms: int = 50
    heartbeat_ticks: int = 2
    election_ticks: int = 10
    quiesce_ticks: int = 0
    lease_read: bool = False
    hakeeper_tick_s: float = 0.2
    heartbeat_interval_s: float = 1.0
    store_timeout_s: float = 3.0
    segment_bytes: int = 32 * 1024
    entry_cache_bytes: int = 1024 * 1024
    entry_bytes_target: int = 64 * 1024
    group_bytes_goal: int = LOGDB_GROUP_BYTES_GOAL
    rewrite_live_ratio: float = 0.25
    exports_max: int = 3
    truncation_interval_s: float = 1.0

    threaded_disks: tuple[bool, ...] = ()
    """Per store: commit groups take virtual time, so that passes overlap with them."""
    disk_delay_s: float = 0.002
    clock_rates: tuple[float, ...] = ()
    wall_steps: tuple[tuple[tuple[float, int], ...], ...] = ()
    """Per store: from when on its time of day is how many microseconds ahead (`loop.SimClock`)."""

    writers: int = 2
    session_writers: int = 2
    readers: int = 2
    operations_per_s: float = 20.0
    """The rate of all clients together. The cost of a run depends on it most."""
    pipeline: int = 1
    catch_up_bytes_per_s: int = 0
    """What a store sends to members that are far behind; 0: as in the product, which is more than
    any world has."""
    catch_up_behind_bytes: int = CATCH_UP_BEHIND_BYTES
    catch_up_turn_bytes: int = CATCH_UP_TURN_BYTES
    unwritten_bytes_max: int = UNWRITTEN_BYTES_MAX
    """Bytes of a store's entries that may wait for its disks."""
    fenced: bool = False
    truncates: bool = True

    loud: bool = False
    """Somebody appends to the first log as much as goes; see `clients.loud`."""

    holders: bool = False
    """Somebody holds each log with a time to live; see `clients.holder`."""

    jobs: bool = False
    """A job appends to each log in named sessions; see `clients.job`."""
    names_max: int = 0
    """Named sessions of one identity; 0: as in the product. See `lowered`."""
    forks: bool = False
    """Logs go on as another history, which named sessions do not survive; see `clients.forker`."""

    hold_readers: bool = False
    """Somebody reads each log under holds of a reader; see `clients.holding_reader`."""
    reader_hold_stands_s: float = 0.0
    """When such a hold lapses that stands still, and behind how many bytes one does; 0: as in the
    product. See `lowered`."""
    reader_hold_bytes: int = 0

    drives_per_pass: int = 0
    """Operators that a pass of HAKeeper drives; 0: as in the product. See `lowered`."""

    restores: bool = False
    """There is one more log, which is restored; see `clients.restorer`."""

    mirrors: bool = False
    """It is a mirror, with an open end; see `clients.mirrorer`."""

    encrypted: bool = False
    """Stores have keys, and encrypt what they write once the cluster is at version 2."""
    keys_interval_s: float = 0.0
    """How long a store's key is the active one, about."""

    retention: tuple[int, int, int] = (0, 0, 0)
    """What the policy of all logs keeps: seconds, bytes, records; 0: everything."""

    net: NetFaults = field(default_factory=NetFaults)
    crash_interval_s: float = 0.0
    power_share: float = 0.5
    all_crash: bool = False
    clean_restarts: bool = False
    index_damage_share: float = 0.0
    """The share of crashes after which the derived index is damaged, on any store."""
    down_s: float = 2.0
    pause_interval_s: float = 0.0
    partition_interval_s: float = 0.0
    partition_s: float = 3.0
    disk_fail_interval_s: float = 0.0
    disk_full_interval_s: float = 0.0
    stall_interval_s: float = 0.0
    long_turn_interval_s: float = 0.0
    """How often a turn of a store's loop takes time, about, until the world heals; 0: none does."""
    stands: bool = False
    """Replicas get stuck: their apply stands still; see `faults.standing`."""
    apply_stuck_s: float = APPLY_STUCK_S
    victim: int = 0
    """The one store whose disk may be lost or rot (0: none): never more than a minority."""
    disk_loss: bool = False
    directories: tuple[int, ...] = ()
    """Data directories of each store."""
    disk_death: bool = False
    """One of the victim's data directories stops answering, for good, while the store runs."""
    rot: bool = False
    read_fail_interval_s: float = 0.0
    """On the victim's disk, if it rots: a sector that cannot be read, now and then."""
    dead_sector_interval_s: float = 0.0
    """Its process ends, and some sector of its segments is dead for good, often the derived index
    with it, so that recovery meets them.
    """
    damage_interval_s: float = 0.0
    """A place on it goes bad while its process runs, at a chosen moment; see `faults.damage`."""
    scrub_interval_s: float = 3.0
    diverges: bool = False
    """A committed entry changes on one disk, with valid checksums; see `faults.divergence`."""
    compare_interval_s: float = SCRUB_PASS_INTERVAL_S
    rogue: str = ""
    """Who the adversary is, if there is one; see `rogue`."""
    rogue_asked: bool = False
    """By whoever runs the campaign, and not by the seed."""
    rogue_store: int = 0
    """The store that was taken over, if one was."""
    rogue_per_s: float = 0.0
    attacks: tuple[str, ...] = ()
    ages: bool = False
    """Millions of terms pass while a member is away; see `rogue.ages`."""

    @property
    def reserve_bytes(self) -> int:
        """Free bytes below which a disk is full for blocks."""
        return 8 * self.segment_bytes

    @property
    def pause_s(self) -> float:
        """Between two operations of one client."""
        clients = self.shards * (self.writers + self.session_writers + self.readers)
        return clients / self.operations_per_s

    def text(self) -> str:
        """One line for people."""
        return " ".join(f"{one.name}={getattr(self, one.name)}" for one in fields(self))

    @property
    def election_timeout_s(self) -> float:
        """The longest one that is drawn, on the slowest clock."""
        slowest = min(self.clock_rates, default=1.0)
        return 2 * self.tick_ms * self.election_ticks / 1000 / slowest


def draw(seed: int, *, short: bool = False) -> SimConfig:
    """The configuration of a seed.

    `short` is what long campaigns run: faults last until the world has lived `SHORT_S`, and the
    background (ticks, exports, rewriting) has a slower rhythm. That gives more worlds per
    core-second.
    """
    chance = random.Random(f"config/{seed}")
    stores = chance.choice((3, 3, 3, 3, 4, 4, 5, 7))
    config = SimConfig(
        seed=seed,
        calm=chance.random() < CALM_SHARE,
        stores=stores,
        shards=chance.choice((1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, chance.randint(5, 8))),
        replicas=5 if stores >= 5 and chance.random() < 0.3 else 3,
        fault_s=chance.choice((15.0, 20.0, 20.0, 30.0)),
        faults_from_start=chance.random() < 0.15,
        tick_ms=chance.choice((30, 50, 50, 100)),
        heartbeat_ticks=chance.choice((1, 2, 2, 3)),
        election_ticks=chance.choice((8, 10, 10, 15)),
        hakeeper_tick_s=chance.choice((0.1, 0.2, 0.2, 0.25)),
        heartbeat_interval_s=chance.choice((0.5, 1.0, 1.0)),
        store_timeout_s=chance.choice((2.5, 3.0, 5.0)),
        segment_bytes=chance.choice((4096, 8192, 32 * 1024, 128 * 1024)),
        entry_cache_bytes=chance.choice((0, 2048, 64 * 1024, 1 << 20)),
        entry_bytes_target=chance.choice((256, 4096, 64 * 1024)),
        rewrite_live_ratio=chance.choice((0.25, 0.9)),
        exports_max=chance.choice((2, 3, 5, 20)),
        truncation_interval_s=chance.choice((0.3, 0.7, 1.5, 3.0)),
        threaded_disks=tuple(chance.random() < 0.5 for _ in range(stores)),
        disk_delay_s=chance.choice((0.0005, 0.002, 0.005, 0.02)),
        writers=chance.choice((0, 1, 2, 3)),
        session_writers=chance.choice((1, 2, 3)),
        readers=chance.choice((1, 2)),
        operations_per_s=chance.choice((10.0, 20.0, 20.0, 60.0)),
        pipeline=chance.choice((1, 1, 3)),
        fenced=chance.random() < 0.3,
        truncates=chance.random() < 0.8,
    )
    # From a chance of its own: the seeds of before keep the rest of their worlds.
    config.group_bytes_goal = random.Random(f"group/{seed}").choice(
        (1, 1, 300, 2000, LOGDB_GROUP_BYTES_GOAL)
    )
    config.unwritten_bytes_max = random.Random(f"unwritten/{seed}").choice(
        (4096, UNWRITTEN_BYTES_MAX, UNWRITTEN_BYTES_MAX, UNWRITTEN_BYTES_MAX)
    )
    step_walls(config)
    config.net.through_codec = chance.random() < 0.3
    config.net.delay_mean_s = chance.choice((0.0003, 0.001, 0.003))
    if not config.calm:
        _draw_faults(config, chance)
    if short:
        config.short = True
        config.fault_s, config.least_s = 8.0, SHORT_S
        config.truncation_interval_s = chance.choice((0.3, 1.5, 2.0, 3.0))
        config.rewrite_live_ratio = chance.choice((0.25, 0.25, 0.9))
        config.tick_ms = chance.choice((30, 50, 100, 100))
        config.hakeeper_tick_s = chance.choice((0.1, 0.2, 0.25, 0.5))
        config.operations_per_s = chance.choice((5.0, 10.0, 20.0))
    # A round trip has to be well below an election timeout (Raft paper, section 5.6), or the first
    # leader may never come (seed 125; short seeds 200028, 201145, 300077).
    longest_s = config.election_ticks * config.tick_ms / 1000 / 6
    config.net.delay_mean_s = min(config.net.delay_mean_s, longest_s)
    # Short, so that shards fall silent between two operations, and wake in the middle of faults.
    config.quiesce_ticks = chance.choice((0, 2, 5, 20, 40))
    config.lease_read = chance.random() < 0.2
    if chance.random() < 0.3:
        config.operations_per_s = min(config.operations_per_s, 5.0)
    if config.lease_read and not config.calm and chance.random() < 0.3:
        watch_leases(config)
    _draw_more(config, chance)
    return config


def _draw_more(config: SimConfig, chance: random.Random) -> None:
    """Draw what came later, last and in this order, so that older draws of a seed stay the same."""
    config.directories = tuple(chance.choice((1, 1, 1, 2, 3)) for _ in range(config.stores))
    if config.victim and chance.random() < 0.5:
        config.disk_death = config.directories[config.victim - 1] > 1
    if not config.calm and chance.random() < 0.25:
        config.diverges = True
        config.compare_interval_s = chance.choice((1.0, 3.0, 5.0))
    if config.rot and chance.random() < 0.6:
        config.read_fail_interval_s = chance.choice((1.0, 3.0, 8.0))
    if config.rot and chance.random() < 0.6:
        config.dead_sector_interval_s = chance.choice((2.0, 4.0, 8.0))
    if config.rot and chance.random() < 0.6:
        config.damage_interval_s = chance.choice((1.0, 2.0, 4.0))


def make_rotten(config: SimConfig) -> None:
    """The disk of one store rots, and more often than its process dies for other reasons."""
    config.victim = config.victim or 1
    config.rot, config.disk_loss, config.disk_death = True, False, False
    config.crash_interval_s = 1.5


def step_walls(config: SimConfig, share: float = 0.6) -> None:
    """Let the times of day of the stores differ, and jump, in this share of the worlds."""
    chance = random.Random(f"wall/{config.seed}")
    if chance.random() >= share:
        return
    if chance.random() < 0.5:
        config.wall_steps = tuple(_wall_steps(chance) for _ in range(config.stores))
    else:
        # One clock is wrong, and all others are right: the checker of times knows what it may see.
        wrong = chance.randrange(config.stores)
        config.wall_steps = tuple(
            _wrong_steps(chance) if store == wrong else () for store in range(config.stores)
        )


def _wrong_steps(chance: random.Random) -> tuple[tuple[float, int], ...]:
    """The time of day of one store: off by a year or so, from the start or by a jump, and back."""
    ahead_us = chance.choice((YEAR_US, YEAR_US, -YEAR_US, 86_400_000_000, 50_000_000))
    since_s = chance.choice((0.0, chance.uniform(0.0, 20.0)))
    steps = [(since_s, ahead_us)]
    if chance.random() < 0.3:
        steps.append((since_s + chance.uniform(1.0, 15.0), 0))
    return tuple(steps)


def _wall_steps(chance: random.Random) -> tuple[tuple[float, int], ...]:
    """The time of day of a store: off by nothing, a little or a year, and it may jump."""
    steps = [(0.0, chance.choice((0, 0, 1_000, -1_000, 50_000_000, YEAR_US)))]
    for _ in range(chance.choice((0, 0, 1, 3))):
        ahead_us = chance.choice((0, 1_000_000, -1_000_000, 86_400_000_000, YEAR_US, -YEAR_US))
        steps.append((chance.uniform(0.0, 30.0), ahead_us))
    return tuple(sorted(steps))


def watch_leases(config: SimConfig) -> None:
    """Make a world of many readers, and of leaders that are cut off or paused.

    An answer from the past is a matter of milliseconds. Common worlds hardly ever hit them: mutants
    of the lease survived 250 of their seeds.
    """
    config.calm, config.lease_read, config.quiesce_ticks = False, True, 0
    config.pause_interval_s = config.partition_interval_s = config.partition_s = 2.0
    config.shards = min(config.shards, 2)
    config.writers, config.readers, config.operations_per_s = 2, 4, 60.0


def make_slow_catch_up(config: SimConfig, bytes_per_s: int) -> None:
    """Let members that are behind wait for their turns: a message is a few entries, and whoever
    lacks more than two of them is far behind.
    """
    config.catch_up_bytes_per_s = bytes_per_s
    config.catch_up_turn_bytes, config.catch_up_behind_bytes = 1024, 2048


def make_little_memory(config: SimConfig) -> None:
    """Let so little wait for slow disks that messages are dropped for it all the time."""
    config.unwritten_bytes_max = 2048
    config.threaded_disks, config.disk_delay_s = (True,) * config.stores, 0.02
    config.shards, config.operations_per_s = max(2, config.shards), 60.0


def make_few_drives(config: SimConfig, most: int) -> None:
    """Let a pass of HAKeeper drive so few operators that some have to wait in a small cluster."""
    config.drives_per_pass = most


def make_jobs(config: SimConfig) -> None:
    """Let a job append to each log. In some of these worlds logs are forked, and in some of the
    others there is room for few names.
    """
    chance = random.Random(f"jobs/{config.seed}")
    config.jobs = True
    config.forks = chance.random() < 0.4
    config.names_max = 0 if config.forks else chance.choice((0, 3))


def make_hold_readers(config: SimConfig) -> None:
    """Let somebody read each log under a reader's holds. In most worlds they lapse soon."""
    chance = random.Random(f"hold readers/{config.seed}")
    config.hold_readers = True
    kind = chance.choice(("stands", "bytes", "time"))
    config.reader_hold_stands_s = chance.choice((3.0, 8.0)) if kind == "stands" else 0.0
    config.reader_hold_bytes = chance.choice((1024, 4096)) if kind == "bytes" else 0


def make_loud(config: SimConfig) -> None:
    """Make a world without faults in which one log has more to write than the disks take."""
    config.calm, config.loud = True, True
    config.net = NetFaults(through_codec=config.net.through_codec)
    config.clock_rates, config.diverges = (), False
    config.unwritten_bytes_max = UNWRITTEN_BYTES_MAX
    # At the rate of worlds with small logs, a member that fell behind a loud one needs minutes.
    config.catch_up_bytes_per_s = 0
    config.shards, config.writers = max(2, min(config.shards, 4)), max(1, config.writers)
    config.threaded_disks, config.disk_delay_s = (True,) * config.stores, 0.02
    config.group_bytes_goal, config.entry_bytes_target, config.tick_ms = 300, 256, 50


def make_retaining(config: SimConfig, *, aged: bool = False) -> None:
    """Let the policies of all logs keep some of their records. In most of these worlds nobody
    truncates beside them, and the logs are few, so that they come to have more than that. `aged`:
    the policy is one of an age, in any case.
    """
    chance = random.Random(f"retaining/{config.seed}")
    config.truncates = config.truncates and chance.random() < 0.3
    config.shards, config.writers = min(config.shards, 2), max(1, config.writers)
    config.operations_per_s = max(config.operations_per_s, 20.0)
    age_s, size, records = RETENTION_AGE_S_MIN, RETENTION_BYTES_MIN, RETENTION_RECORDS_MIN
    config.retention = chance.choice(
        ((age_s, 0, 0), *[(0, size, 0)] * 2, *[(0, 0, records)] * 2, (0, 2 * size, 2 * records))
    )
    if aged:
        config.retention = (age_s, 0, 0)
    if config.retention[0]:
        # Two minutes have to pass in such a world: in a slow rhythm.
        config.tick_ms, config.hakeeper_tick_s, config.quiesce_ticks = 100, 0.5, 20
        config.truncation_interval_s = 3.0
        config.scrub_interval_s = max(config.scrub_interval_s, 10.0)


def make_encrypted(config: SimConfig) -> None:
    """Let every store encrypt its entries, with another key now and then."""
    chance = random.Random(f"keys/{config.seed}")
    config.encrypted, config.keys_interval_s = True, chance.choice((0.7, 3.0, 10.0))


def make_costly(config: SimConfig, interval_s: float) -> None:
    """Let turns of the loop take time: some more than a tick."""
    config.long_turn_interval_s = interval_s


def make_standing(config: SimConfig) -> None:
    """Let replicas get stuck. It is noticed after two seconds, because short worlds are short."""
    config.stands, config.apply_stuck_s = True, 2.0


def _draw_faults(config: SimConfig, chance: random.Random) -> None:
    def some(share: float) -> bool:
        return chance.random() < share

    net = config.net
    if some(0.4):
        net.loss = chance.choice((0.01, 0.05, 0.15, 0.3))
    if some(0.4):
        net.duplication = chance.choice((0.02, 0.1, 0.5))
    if some(0.4):
        net.reorder = chance.choice((0.02, 0.1, 0.5))
    if some(0.3):
        net.delay_mean_s = chance.choice((0.01, 0.03, 0.1))
    if some(0.6):
        config.crash_interval_s = chance.choice((1.5, 3.0, 6.0))
        config.power_share = chance.choice((0.0, 0.5, 1.0))
        config.all_crash = some(0.3)
        config.clean_restarts = some(0.3)
        config.index_damage_share = chance.choice((0.0, 0.0, 0.3))
        config.down_s = chance.choice((0.2, 1.0, 3.0, 6.0))
    if some(0.3):
        config.pause_interval_s = chance.choice((2.0, 5.0))
    if some(0.5):
        config.partition_interval_s = chance.choice((2.0, 4.0, 8.0))
        config.partition_s = chance.choice((0.5, 2.0, 5.0))
    if some(0.25):
        config.disk_fail_interval_s = chance.choice((4.0, 8.0))
    if some(0.15):
        config.disk_full_interval_s = 6.0
    if some(0.25):
        config.stall_interval_s = chance.choice((2.0, 5.0))
    if some(0.4):
        config.clock_rates = tuple(chance.uniform(0.9, 1.1) for _ in range(config.stores))
    if some(0.12):
        # Nervous: elections all the time, several candidates in one term.
        config.election_ticks = 3
        config.heartbeat_ticks = 1
        net.delay_mean_s = config.tick_ms / 1000 * chance.choice((0.3, 1.0))
    if some(0.35):
        config.victim = chance.randint(1, config.stores)
        config.disk_loss = some(0.5)
        config.rot = not config.disk_loss or some(0.3)
        if not config.crash_interval_s:
            config.crash_interval_s = 4.0
