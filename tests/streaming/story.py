"""Story: queries of Spark read and write logs under load while everything around them is killed.

Three stores, two logs, one writer, and two queries of Spark that follow both logs by a pattern,
from the first record on. One has a sink of its own; the other one writes what it reads into a third
log, `copies`, and that is brought into a Delta table. Again and again one of these is killed with
SIGKILL:

    the store that leads a log     and started again
    the workers of tasks           in the middle of a micro-batch
    an executor                    in the middle of a micro-batch, with its workers
    the process that asks          where the logs stand: the query ends, and goes on
    the driver                     in the middle of a micro-batch, all its processes; the next one
                                   goes on from the checkpoint
    the program of the table       and the next one goes on where the table is

After each the reading query has to come further, or the table. At the end the writer stops, the
queries read the rest, and then each log has the queries' holds, and the sink has the log's LSNs:
each of them, each once, with its record, and everything that was acked is among them. A micro-batch
that was done more than once had the same rows each time. The log `copies` has each record of both
logs once, and no other one, and the table has the LSNs of `copies`, each once, with its record.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from logservice_client import Records, SyncLogClient

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores
from tests.programs import StoryFailed, check
from tests.stories import Teller
from tests.streaming.driver import ASKING, EXECUTOR, GAVE_UP, WORKERS, Driver
from tests.streaming.load import Load
from tests.streaming.tabling import Tabling

SETTINGS: Final[dict[str, dict[str, object]]] = {
    "storage": {"segment_bytes": 1 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.3, "store_timeout_s": 30},
}
LOGS: Final = ("events-a", "events-b")
COPIES: Final = "copies"
UP_LIMIT_S: Final = 60.0
WAIT_LIMIT_S: Final = 600.0
"""Of a machine at a load of 14 a JVM with its first query took five minutes."""
POLL_S: Final = 0.1
BETWEEN_S: Final = (0.5, 4.0)
DOWN_S: Final = (0.0, 0.5, 2.0)

HOLDS: Final = {"reader:story", "reader:story-writing"}
STORE: Final = "the store that leads"
WORKERS_OF_TASKS: Final = "the workers of tasks"
AN_EXECUTOR: Final = "an executor"
DRIVER: Final = "the driver"
TABLE: Final = "the program of the table"
FAULTS: Final = {
    STORE: "",
    WORKERS_OF_TASKS: WORKERS,
    AN_EXECUTOR: EXECUTOR,
    "the process that asks": ASKING,
    DRIVER: "",
    TABLE: "",
}

FATAL: Final = (
    *("DataLossError", "OffsetError", "OptionError", "CorruptBlock", "CORRUPT_BLOCK"),
    *("LineageChanged", "LINEAGE_CHANGED", "Discontinuity", "TRUNCATED"),
    *("DifferentRetryError", "LostWriteError"),
)
"""What a query may not end with, whatever is killed."""


@dataclass(slots=True)
class Seen:
    """What the run came to. `again`: micro-batches that were begun more than once; `ended`: how
    often a query ended by itself; `gave_up`: drivers that ended because a query did so again and
    again; `cut`: micro-batches that were under way when the driver was killed; `recovered_s`: from
    a kill to the next micro-batch that is done.
    """

    kills: Counter[str] = field(default_factory=Counter)
    minutes: float = 0.0
    processes: int = 0
    cut: int = 0
    batches: int = 0
    again: int = 0
    ended: int = 0
    gave_up: int = 0
    records: dict[str, int] = field(default_factory=dict)
    gap_lsns: int = 0
    acked: int = 0
    copied: int = 0
    versions: int = 0
    recovered_s: dict[str, list[float]] = field(default_factory=dict)


class Story:
    """One run; `run` raises StoryFailed. `end` ends what it started."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        say: Callable[[str], None],
        *,
        rounds: int,
        minutes: float = 0.0,
    ) -> None:
        """`rounds`: in each everything is killed once, in an order of its own. There are this many,
        and more until `minutes` are over.
        """
        self.seen = Seen()
        self._rounds, self._minutes = rounds, minutes
        self._chance = random.Random(f"{seed}/kills")
        self._teller = Teller(say)
        self._cluster = LocalCluster.create(directory / "cluster", stores=3, settings=SETTINGS)
        self._endpoints = self._cluster.endpoints()
        self._driver = Driver(directory / "query", self._endpoints, "events-*", COPIES)
        self._table = Tabling(directory / "tabling", self._endpoints, COPIES)
        self._load: Load | None = None
        self._seed = seed
        self._ids: dict[str, int] = {}
        self._records: Counter[bytes] = Counter()

    def run(self) -> None:
        """The whole story."""
        self._cluster.up(UP_LIMIT_S)
        with SyncLogClient(self._endpoints) as client:
            for name in LOGS:
                self._ids[name] = client.hakeeper.create_shard(name=name)
            copies = client.hakeeper.create_shard(name=COPIES)
            self._load = Load(self._endpoints, self._ids, self._seed)
            self._load.begin()
            self._driver.begin()
            self._table.begin()
            self._further("the queries begin", 0, 0)
            began_s = time.monotonic()
            for number in itertools.count(1):
                minutes = (time.monotonic() - began_s) / 60
                if number > self._rounds and minutes >= self._minutes:
                    break
                faults = list(FAULTS)
                self._chance.shuffle(faults)
                for fault in faults:
                    time.sleep(self._chance.uniform(*BETWEEN_S))
                    self._disturb(client, f"{number}, minute {minutes:.0f}: {fault}", fault)
            self.seen.minutes = (time.monotonic() - began_s) / 60
            self._load.end()
            self._finish()
            self._compare(client)
            self._compare_copies(client, copies)

    def end(self) -> None:
        """End every process that was started here."""
        self._driver.kill()
        with contextlib.suppress(StoryFailed):
            self._table.kill()
        try:
            if self._load is not None:
                self._load.end()
        finally:
            kill_stores(self._cluster)

    # --- killing ---------------------------------------------------------------------------------

    def _disturb(self, client: SyncLogClient, what: str, fault: str) -> None:
        if fault in (WORKERS_OF_TASKS, AN_EXECUTOR, DRIVER):
            self._wait("a micro-batch", self._within)
        done, ended = len(self._done()), len(self._ended())
        began_s = time.monotonic()
        if fault == TABLE:
            killed = self._kill_table(what)
        elif fault == STORE:
            self._kill_leader(client)
            killed = 1
        elif fault == DRIVER:
            killed = self._driver.kill()
            self.seen.cut += self._within()
            time.sleep(self._chance.choice(DOWN_S))
            self._driver.begin()
        else:
            # Between two starts of a query there are none.
            most = 1 if fault == AN_EXECUTOR else None
            killed = self._wait(what, lambda: self._driver.kill_some(FAULTS[fault], most))
        self.seen.kills[fault] += 1
        self.seen.processes += killed
        if fault != TABLE:
            self._further(f"{what}, {killed} processes", done, ended)
        self.seen.recovered_s.setdefault(fault, []).append(time.monotonic() - began_s)

    def _kill_table(self, what: str) -> int:
        """In the middle of some commit, perhaps."""
        self._wait(what, lambda: self._table.version >= 0)
        killed = self._table.kill()
        version, began_s = self._table.version, time.monotonic()
        self._table.begin()
        self._wait(what, lambda: self._table.version > version)
        self._teller.tell(f"{what}: goes on after {time.monotonic() - began_s:.1f} s")
        return killed

    def _kill_leader(self, client: SyncLogClient) -> None:
        shard = self._chance.choice(list(self._ids.values()))

        def leader() -> str:
            store = client.shard(shard).status(timeout=UP_LIMIT_S).position.leader_store
            return store if store in self._cluster.stores else ""

        store = self._wait("a leader", leader)
        check(self._cluster.kill(store), f"{store} had ended by itself")
        time.sleep(self._chance.choice(DOWN_S))
        self._cluster.start(store)

    def _further(self, what: str, done: int, ended: int) -> None:
        """Wait until another micro-batch is done; one was under way, perhaps, so two are."""
        began_s = time.monotonic()
        self._wait(what, lambda: len(self._done()) >= done + 2)
        more = len(self._ended()) - ended
        restarts = f", the query ended {more} times" if more else ""
        self._teller.tell(f"{what}: goes on after {time.monotonic() - began_s:.1f} s{restarts}")

    def _wait(self, what: str, found: Callable[[], Any]) -> Any:
        end_s = time.monotonic() + WAIT_LIMIT_S
        while not (answer := found()):
            check(self._driver_runs(), f"{what}: the driver ended by itself")
            check(time.monotonic() < end_s, f"{what}: not after {WAIT_LIMIT_S:.0f} s")
            self._check_ended()
            time.sleep(POLL_S)
        return answer

    def _driver_runs(self) -> bool:
        """Whether the driver runs, or another one in the place of one that gave up: as a program
        runs under a supervisor.
        """
        if self._driver.exit_code == GAVE_UP:
            self._teller.tell("the driver gave up: the next one goes on")
            self.seen.gave_up += 1
            self._driver.kill()
            self._driver.begin()
        return self._driver.exit_code is None

    def _check_ended(self) -> None:
        for line in self._ended():
            bad = [word for word in FATAL if word in line["error"]]
            check(not bad, f"the query ended with {line['error']}")

    def _finish(self) -> None:
        """The query reads the rest, as long as it gets further."""
        (self._driver.directory / "finish").touch()
        done, end_s = -1, 0.0
        while self._driver_runs():
            if len(self._done()) > done:
                done, end_s = len(self._done()), time.monotonic() + WAIT_LIMIT_S
            check(time.monotonic() < end_s, f"no further than micro-batch {done}")
            self._check_ended()
            time.sleep(POLL_S)
        check(self._driver.exit_code == 0, f"the driver ended with {self._driver.exit_code}")
        self._check_ended()
        self.seen.ended = len(self._ended())

    # --- what there is at the end ----------------------------------------------------------------

    def _compare(self, client: SyncLogClient) -> None:
        assert self._load is not None
        done = self._attempts()
        self.seen.batches = len(done)
        begun = Counter(line["began"] for line in self._ledger() if "began" in line)
        self.seen.again = sum(times > 1 for times in begun.values())
        check(
            self.seen.again >= self.seen.cut,
            f"{self.seen.cut} micro-batches were cut off, and {self.seen.again} begun again",
        )
        sunk = self._sunk(sorted(done))
        for name, shard in self._ids.items():
            holds = {one.name: one.lsn for one in client.shard(shard).status().holds}
            check(holds.keys() == HOLDS, f"{name}: its holds are {holds}")
            truth = self._log(client, shard)
            self._records.update(truth.values())
            stands = all(1 < lsn <= max(truth) + 1 for lsn in holds.values())
            check(stands, f"{name}: held from {holds} on")
            acked = self._load.acked[shard]
            missing = [lsn for lsn, record in acked.items() if truth.get(lsn) != record]
            check(not missing, f"{name}: acked and not in the log: {missing[:5]}")
            found = [(lsn, value) for of, lsn, value in sunk if of == shard]
            lsns = Counter(lsn for lsn, _ in found)
            doubled = sorted(lsn for lsn, times in lsns.items() if times > 1)
            check(not doubled, f"{name}: more than once in the sink: LSNs {doubled[:5]}")
            lost = sorted(truth.keys() - lsns.keys())
            check(not lost, f"{name}: not in the sink: LSNs {lost[:5]}, {len(lost)} in all")
            strange = sorted(lsns.keys() - truth.keys())
            check(not strange, f"{name}: not in the log: LSNs {strange[:5]}")
            log, sink = digest(sorted(truth.items())), digest(sorted(found))
            check(log == sink, f"{name}: digest {sink} of the sink, {log} of the log")
            self.seen.records[name] = len(found)
            self.seen.acked += len(acked)
            self._teller.tell(f"{name}: {len(found)} LSNs, each once; digest {log[:16]}")

    def _compare_copies(self, client: SyncLogClient, shard: int) -> None:
        """The written log, and the table of it."""
        copies = self._log(client, shard)
        found = Counter(copies.values())
        doubled = [one for one, times in found.items() if times > self._records[one] > 0]
        check(not doubled, f"{COPIES}: more than once: {doubled[:3]}")
        lost, strange = self._records - found, found - self._records
        check(not lost, f"{COPIES}: not there: {list(lost)[:3]}, {lost.total()} in all")
        check(not strange, f"{COPIES}: of no log: {list(strange)[:3]}")
        self.seen.copied = len(copies)
        self._table.finish()
        rows = self._table.rows()
        missing = sorted(copies.keys() - rows.keys())
        check(not missing, f"not in the table: LSNs {missing[:5]}, {len(missing)} in all")
        check(rows == copies, "the table has other records than the log, or more")
        self.seen.versions = self._table.version
        self._teller.tell(
            f"{COPIES}: {len(copies)} records, each once, in the log and in the table"
        )

    def _attempts(self) -> dict[int, list[Any]]:
        """Of each micro-batch what every attempt at it wrote."""
        found: dict[int, list[Any]] = {}
        for line in self._done():
            number = line["batch"]
            check(line["written"] == line["again"], f"batch {number} read again differs: {line}")
            found.setdefault(number, []).append(line["written"])
        for number, attempts in found.items():
            same = all(one == attempts[0] for one in attempts)
            check(same, f"batch {number} had other rows when it was done again: {attempts}")
        check(sorted(found) == list(range(len(found))), f"batches {sorted(found)}")
        return found

    def _sunk(self, batches: list[int]) -> list[tuple[int, int, bytes]]:
        rows: list[tuple[int, int, bytes]] = []
        there = sorted(int(one.name.partition("=")[2]) for one in self._sink.iterdir())
        check(there == batches, f"the sink has batches {there}, and the ledger {batches}")
        for number in batches:
            for file in sorted((self._sink / f"batch={number}").glob("*.parquet")):
                table = pq.ParquetFile(file).read()
                columns = [table.column(name).to_pylist() for name in ("shard", "lsn", "value")]
                rows += zip(*columns, strict=True)
        return rows

    def _log(self, client: SyncLogClient, shard: int) -> dict[int, bytes]:
        """The records of a log, by a linearizable read of all of it."""
        found: dict[int, bytes] = {}
        lsn = 1
        while True:
            result = client.shard(shard).read(lsn, timeout=UP_LIMIT_S)
            for item in result.items:
                if isinstance(item, Records):
                    found.update(enumerate(item.records(), item.first_lsn))
                else:
                    self.seen.gap_lsns += item.record_count
            if result.next_lsn == lsn:
                return found
            lsn = result.next_lsn

    @property
    def _sink(self) -> Path:
        return self._driver.directory / "rows"

    def _ledger(self) -> list[dict[str, Any]]:
        return _lines(self._driver.directory / "ledger.jsonl")

    def _done(self) -> list[dict[str, Any]]:
        return [line for line in self._ledger() if "batch" in line]

    def _within(self) -> bool:
        """Whether a micro-batch is under way, as far as the ledger says."""
        ledger = self._ledger()
        return bool(ledger) and "began" in ledger[-1]

    def _ended(self) -> list[dict[str, Any]]:
        return _lines(self._driver.directory / "ended.jsonl")


def digest(rows: list[tuple[int, bytes]]) -> str:
    """Of LSNs with their records, in order."""
    found = hashlib.sha256()
    for lsn, record in rows:
        found.update(lsn.to_bytes(8, "little") + len(record).to_bytes(4, "little") + record)
    return found.hexdigest()


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that somebody may be writing, or was killed while writing."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
