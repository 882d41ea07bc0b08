"""Campaign: many seeds, one after the other or in several processes, and their sums.

A seed is a pure function of its number and of the code, so it can run anywhere and be repeated by
its number alone. The ledger is a file of JSON lines, one per seed that ended: whoever continues a
campaign skips what is in it, and the figures of all runs can be summed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from logservice import versions
from logservice.sim.config import (
    SimConfig,
    draw,
    make_costly,
    make_encrypted,
    make_few_drives,
    make_hold_readers,
    make_jobs,
    make_loud,
    make_retaining,
    make_slow_catch_up,
    make_standing,
)
from logservice.sim.rogue import make_rogue
from logservice.sim.world import Report, World
from logservice.versions import VersionRange

SEED_CPU_MAX_S = 120.0
"""Fifty times what a seed takes."""

IDLE_CPU_MAX_SHARE = 0.2
"""Processor time for each simulated second of an idle hour: four times what one takes on a busy
machine of two cores (0.044 s)."""


@dataclass(slots=True)
class Result:
    """A report with what it cost."""

    report: Report
    cpu_s: float
    config: SimConfig

    @property
    def ok(self) -> bool:
        """Nothing was wrong."""
        return not self.report.violations


class Stuck(BaseException):
    """A seed took more processor time than any world needs: something in it never returns."""


@contextlib.contextmanager
def processor_limit(seconds: float) -> Iterator[None]:
    """Raise Stuck in the block after this much processor time. Main thread only."""

    def stuck(number: int, frame: object) -> None:
        raise Stuck(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stuck)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


OLDER_SHARE = 0.2
"""The share of worlds whose programs know the first cluster version only."""

UPGRADE_SHARE = 0.3
"""The share of worlds with faults that are upgraded from the first cluster version on."""

ADMINISTERED = 0.55
"""Up to where the draw of a world with verbs makes it one that is administered."""

ZONES = (0, 2, 3)
"""How many zones the stores of a world that is administered name."""

IDLE_SHARE = 0.01
"""Of the draw of calm worlds: those that live an hour more, in which nothing happens. Such an hour
takes two or three minutes of processor time, so about one seed in five hundred has one."""

IDLE_S = 3600.0

IDLE_KEYS_INTERVAL_S = 300.0
"""How long a store's key is the active one in a world with an idle hour."""

LOUD_SHARE = 0.6
"""Up to where the draw of a world without faults gives it a loud log. Not at the first cluster
version, whose worlds are compared with what they were."""

STANDING_SHARE = 0.25
"""Of worlds of version 2 those in which replicas get stuck. They have no rogue, no loud log, and no
disk that loses what it had: a log whose leader is stuck may need all of its other replicas."""

CATCH_UP_SHARE = 0.3
"""Of worlds of version 2 those in which catch-up is limited to what a small log holds."""


HOLDERS_SHARE = 0.4
"""Of worlds of version 2 without a rogue those in which logs are held with a time to live."""

JOBS_SHARE = 0.3
"""Of worlds of version 2 without a rogue those in which a job appends to each log."""

HOLD_READERS_SHARE = 0.2
"""Of worlds of version 2 without a rogue those in which logs are read under holds of readers."""

FEW_DRIVES_SHARE = 0.3
"""Of worlds of version 2 without a rogue those whose HAKeeper drives few operators in a pass."""

FEW_DRIVES = (2, 3, 4)
"""How many. Of two one is a first place, and one is in turn."""

RESTORES_SHARE = 0.2
"""Of worlds of version 2 without a rogue those in which a log is restored."""

MIRRORS_SHARE = 0.5
"""Of the worlds with a restore those in which it is a mirror."""

ENCRYPTED_SHARE = 0.2
"""Of worlds of version 2 those whose stores encrypt their entries. It is drawn by a chance of its
own, so that the others stay as they were."""

COSTLY_SHARE = 0.15
"""Of worlds of version 2 with faults and without a rogue those in which turns of the loop take
time. It is drawn by a chance of its own, so that the others stay as they were."""

COSTLY_INTERVALS_S = (0.3, 1.0, 3.0)
"""How often one does."""

RETENTION_SHARE = 0.25
"""Of worlds of version 2 those whose logs have a retention. They have no rogue and no upgrade, and
nobody administers them, so that the policy is one for the whole world."""

ROGUE_SHARE = 0.05
"""The share of worlds with a rogue in a campaign that does not ask for one in each."""

Attacks = tuple[str, ...] | None
"""None: in some worlds. Else every world has one, with these attacks only; empty: what it draws."""


def world_of(
    seed: int, *, short: bool = False, rogue: Attacks = None, version: int = 0
) -> SimConfig:
    """The configuration of a seed in a campaign. `version`: the highest cluster version that the
    stores know; 0: as the seed draws it.
    """
    config = draw(seed, short=short)
    chance = random.Random(f"version/{seed}").random()
    highest = version or (versions.FIRST if chance < OLDER_SHARE else versions.NEWEST)
    config.versions = VersionRange(versions.FIRST, highest)
    encrypts = random.Random(f"encrypted/{seed}").random() < ENCRYPTED_SHARE
    if highest > versions.FIRST and encrypts:
        make_encrypted(config)
    catching_up = random.Random(f"catch-up/{seed}")
    if highest > versions.FIRST and catching_up.random() < CATCH_UP_SHARE:
        make_slow_catch_up(config, catching_up.choice((8192, 16_384, 65_536)))
    if rogue is not None:
        config.rogue_asked = True
        config = make_rogue(config, rogue)
    elif random.Random(f"any rogue/{seed}").random() < ROGUE_SHARE:
        config = make_rogue(config)
    config.restores = highest > versions.FIRST and not config.rogue and _may_restore(seed)
    config.mirrors = config.restores and _may_mirror(seed)
    config.holders = highest > versions.FIRST and not config.rogue and _may_hold(seed)
    if highest > versions.FIRST and not config.rogue:
        _limit_drives(config)
        _add_jobs(config)
    if config.calm:
        if highest > versions.FIRST and not config.rogue:
            if OLDER_SHARE <= chance < OLDER_SHARE + IDLE_SHARE:
                idle(config)
            elif chance < LOUD_SHARE:
                make_loud(config)
            elif _may_stand(seed):
                make_standing(config)
            if not config.idle_s and _may_retain(seed):
                make_retaining(config)
        return config
    costly = random.Random(f"costly turns/{seed}")
    if highest > versions.FIRST and not config.rogue and costly.random() < COSTLY_SHARE:
        make_costly(config, costly.choice(COSTLY_INTERVALS_S))
    config.upgrade = not version and chance > 1 - UPGRADE_SHARE
    # Beside a rogue nobody administers: whatever changes in HAKeeper then is the rogue's doing.
    config.administered = not config.rogue and highest > versions.FIRST and chance < ADMINISTERED
    if config.administered:
        config.zones = random.Random(f"zones/{seed}").choice(ZONES)
    lossy = config.victim or config.disk_fail_interval_s or config.diverges or config.zones
    old = highest == versions.FIRST or config.upgrade
    if not (old or config.rogue or lossy) and _may_stand(seed):
        make_standing(config)
    if not (old or config.rogue or config.administered) and _may_retain(seed):
        make_retaining(config)
    return config


def _may_retain(seed: int) -> bool:
    return random.Random(f"retention/{seed}").random() < RETENTION_SHARE


def _may_hold(seed: int) -> bool:
    return random.Random(f"holders/{seed}").random() < HOLDERS_SHARE


def _limit_drives(config: SimConfig) -> None:
    chance = random.Random(f"drives/{config.seed}")
    if chance.random() < FEW_DRIVES_SHARE:
        make_few_drives(config, chance.choice(FEW_DRIVES))


def _add_jobs(config: SimConfig) -> None:
    if random.Random(f"any jobs/{config.seed}").random() < JOBS_SHARE:
        make_jobs(config)
    if random.Random(f"any hold readers/{config.seed}").random() < HOLD_READERS_SHARE:
        make_hold_readers(config)


def _may_restore(seed: int) -> bool:
    return random.Random(f"restores/{seed}").random() < RESTORES_SHARE


def _may_mirror(seed: int) -> bool:
    return random.Random(f"mirrors/{seed}").random() < MIRRORS_SHARE


def _may_stand(seed: int) -> bool:
    return random.Random(f"standing/{seed}").random() < STANDING_SHARE


def idle(config: SimConfig) -> None:
    """Add an hour in which nothing happens, in a slow rhythm: an hour of ticks is a long time."""
    config.idle_s = IDLE_S
    config.shards = min(config.shards, 2)
    config.tick_ms, config.hakeeper_tick_s, config.quiesce_ticks = 200, 0.5, 20
    config.heartbeat_interval_s, config.store_timeout_s = 2.0, 10.0
    config.truncation_interval_s = 60.0
    config.scrub_interval_s = config.compare_interval_s = 600.0
    # Nothing is written that a new key could seal, so every old one is kept, and a change goes
    # through all of them: a key a second makes that thousands (seed 920000013).
    config.keys_interval_s = max(config.keys_interval_s, IDLE_KEYS_INTERVAL_S)


def run_seed(
    seed: int,
    *,
    digest: bool = False,
    short: bool = False,
    rogue: Attacks = None,
    version: int = 0,
) -> Result:
    """Live through one seed, silently."""
    config = world_of(seed, short=short, rogue=rogue, version=version)
    started = time.process_time()
    heard = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with processor_limit(SEED_CPU_MAX_S + IDLE_CPU_MAX_SHARE * config.idle_s):
            report = World(config, digest=digest).run()
    finally:
        logging.disable(heard)
    return Result(report, time.process_time() - started, config)


def run_seeds(
    seeds: Iterable[int],
    jobs: int,
    *,
    digest: bool = False,
    short: bool = False,
    rogue: Attacks = None,
    version: int = 0,
) -> Iterator[Result]:
    """Results as they come; in order of seeds with one job."""
    if jobs <= 1:
        for seed in seeds:
            yield run_seed(seed, digest=digest, short=short, rogue=rogue, version=version)
        return
    source = iter(seeds)
    run = partial(run_seed, digest=digest, short=short, rogue=rogue, version=version)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        under_way: set[Future[Result]] = set()
        try:
            while True:
                for seed in islice(source, 2 * jobs - len(under_way)):
                    under_way.add(pool.submit(run, seed))
                if not under_way:
                    return
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in under_way:
                future.cancel()


@dataclass(slots=True)
class Totals:
    """Sums over seeds."""

    seeds: int = 0
    calm: int = 0
    failed: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, line: dict[str, Any]) -> None:
        """One ledger line."""
        self.seeds += 1
        self.calm += line["calm"]
        self.failed += bool(line["violations"])
        self.virtual_s += line["virtual_s"]
        self.cpu_s += line["cpu_s"]
        self.counts.update(line["counts"])

    @property
    def operations(self) -> int:
        """What clients did and heard an answer of."""
        return sum(self.counts[f"client {kind}"] for kind in ("Append", "Read", "Truncate"))

    def rows(self) -> list[tuple[str, str]]:
        """For people."""
        counts = self.counts
        rows = [
            ("seeds", f"{self.seeds} ({self.calm} calm)"),
            ("simulated cluster-hours", f"{self.virtual_s / 3600:.2f}"),
            ("simulated seconds per core-second", f"{self.virtual_s / max(self.cpu_s, 1e-9):.1f}"),
            ("client operations", f"{self.operations}"),
            ("entries applied", f"{counts['entries applied']}"),
            ("acked records, read back", f"{counts['acked records']}"),
            ("process lives ended", f"{counts['lives ended']}"),
            ("groups begun ahead", f"{counts['groups begun ahead']}"),
            ("batches lost, doubled", f"{counts['batches lost']}, {counts['batches doubled']}"),
        ]
        rows += [
            (name, str(count))
            for name, count in sorted(counts.items())
            if name.startswith(("fault ", "rogue "))
        ]
        return [*rows, ("seeds with violations", str(self.failed))]


def ledger_line(result: Result) -> dict[str, Any]:
    """What is remembered of a seed."""
    report = result.report
    return {
        "seed": report.seed,
        "short": result.config.short,
        "calm": result.config.calm,
        "rogue": result.config.rogue,
        "rogue_asked": result.config.rogue_asked,
        "virtual_s": round(report.virtual_s, 3),
        "cpu_s": round(result.cpu_s, 3),
        "violations": [f"{one.checker}: {one.detail}" for one in report.violations],
        "counts": report.counts,
        "digest": report.digest,
    }


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Its lines; a last one that was cut short does not count."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines
