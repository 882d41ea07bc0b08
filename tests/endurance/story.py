"""Story: two hours of truncations, ten a second, with an archive and a mirror, and kills.

Three stores, three logs. Of each log somebody writes, somebody truncates every 100 ms, somebody
reads, and somebody reads its mirror. An archiver and a mirror follow. Every few seconds something
is killed, stopped or made to stand still: a store, two, all, the archiver, the mirror, the store of
the second site. Every few minutes the load pauses, and then

    the cluster is whole           every log has its voters
    archive and mirror have it     up to the last acked record
    no more is kept than may be    T4 and INV-GC-SPACE, on every store; how long that took
    the copies are the logs        by digest, from the first LSN that both have

At the end the archive is verified, each log is restored from it from its first LSN on and compared
record by record, the mirrors are promoted, and what they have is compared, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from logservice_client import LogClient
from logservice_wire.errors import LogServiceError

from examples.demo.watch import bytes_on_disk
from logservice.cli.processes.local_cluster import LocalCluster
from tests.cluster_state import whole
from tests.endurance.load import Figures, Known, Load, read_all, record_of
from tests.endurance.nemesis import Nemesis
from tests.local_stores import kill_stores
from tests.programs import Archive, Mirror, Space, check, told, wait
from tests.stories import Teller

SEGMENT_BYTES = 1 << 20
SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": SEGMENT_BYTES, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.3, "store_timeout_s": 30},
    "truncation": {"interval_s": 1.0},
}
LOGS = ("orders", "stock", "ledger")
AUDIT_INTERVAL_S = 150.0
SAMPLE_INTERVAL_S = 1.0
SAY_INTERVAL_S = 60.0
UP_LIMIT_S = 60.0


@dataclass(slots=True)
class Seen:
    """What was measured on the way. `shipped_s`: of each audit, from the end of the load until the
    cluster is whole, archive and mirror have everything. `settled_s`: from the truncation behind
    that to T4.
    """

    kept_bytes_max: dict[str, int] = field(default_factory=dict)
    rss_bytes_max: dict[str, int] = field(default_factory=dict)
    shipped_s: list[float] = field(default_factory=list)
    settled_s: list[float] = field(default_factory=list)
    compared_lsns: int = 0
    audits: int = 0
    restored_records: int = 0
    restored_gap_lsns: int = 0
    promoted_s: list[float] = field(default_factory=list)


class Story:
    """One run; `run` raises StoryFailed. `end` ends what it started."""

    def __init__(
        self, directory: Path, seconds: float, seed: int, say: Callable[[str], None]
    ) -> None:
        """Nothing is started yet."""
        self.seconds = seconds
        self.seed = seed
        self.directory = directory
        self.teller = Teller(say)
        self.figures = Figures()
        self.seen = Seen()
        self.faults: Counter[str] = Counter()
        self.known = {name: Known(name) for name in LOGS}
        self.ids: dict[str, int] = {}
        self.loads: dict[str, Load] = {}
        self.cluster = LocalCluster.create(directory / "first", stores=3, settings=SETTINGS)
        self.site = LocalCluster.create(directory / "site", stores=1, settings=SETTINGS)
        self.space = Space(self.cluster, SEGMENT_BYTES)
        self.archive = Archive(directory / "archive", list(LOGS))
        self.archive.configure(self.cluster.endpoints())
        copies = {name: f"{name}-copy" for name in LOGS}
        sites = self.cluster.endpoints(), self.site.endpoints()
        self.mirror = Mirror(directory, *sites, copies)

    def run(self) -> None:
        """The whole story."""
        asyncio.run(self._run())

    def end(self) -> None:
        """End every process that was started here."""
        self.archive.process.end()
        self.mirror.process.end()
        for cluster in (self.cluster, self.site):
            kill_stores(cluster)

    async def _run(self) -> None:
        for cluster in (self.site, self.cluster):
            await asyncio.to_thread(cluster.up, UP_LIMIT_S)
        async with (
            LogClient(self.cluster.endpoints()) as client,
            LogClient(self.site.endpoints()) as site,
        ):
            for name in LOGS:
                self.ids[name] = await client.hakeeper.create_shard(name=name)
            await self._wait("every log has its replicas", self._not_whole(client))
            self.archive.begin()
            self.mirror.begin()
            await self._first_records(client)
            await self._endure(client, site)
        await self._restore()
        await self._promote()

    async def _first_records(self, client: LogClient) -> None:
        """Once archive and mirror have them, both hold what follows."""
        for name, known in self.known.items():
            shard = client.shard(self.ids[name])
            known.acked(await shard.append(record_of(name, 0), timeout=UP_LIMIT_S), 1)
        ends = {name: known.next_lsn for name, known in self.known.items()}
        await self._wait("the first records are archived", lambda: self.archive.lacks(ends))
        await self._wait("the first records are mirrored", lambda: self.mirror.lacks(ends))

    async def _endure(self, client: LogClient, site: LogClient) -> None:
        """Load, faults and audits until the time is up."""
        nemesis = Nemesis(self.cluster, self.site, self.archive, self.mirror, self.seed)
        nemesis.done = self.faults
        for name in LOGS:
            shard, mirror = client.shard(self.ids[name]), await site.log(f"{name}-copy")
            self.loads[name] = Load(shard, mirror, self.known[name], self.figures, self.seed)
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(load.run()) for load in self.loads.values()]
            tasks.append(group.create_task(self._sample()))
            while (left_s := began_s + self.seconds - time.monotonic()) > 0:
                for load in self.loads.values():
                    load.go_on()
                await nemesis.disturb(min(AUDIT_INTERVAL_S, left_s))
                await self._audit(client, site)
            for task in tasks:
                task.cancel()

    # --- audits -----------------------------------------------------------------------------------

    async def _audit(self, client: LogClient, site: LogClient) -> None:
        await asyncio.gather(*(load.pause() for load in self.loads.values()))
        began_s = time.monotonic()
        await self._wait("every log has its replicas", self._not_whole(client))
        ends = {name: known.next_lsn for name, known in self.known.items()}
        await self._wait("all of it is archived", lambda: self.archive.lacks(ends))
        await self._wait("all of it is mirrored", lambda: self.mirror.lacks(ends))
        self.seen.shipped_s.append(time.monotonic() - began_s)
        began_s = time.monotonic()
        keep = random.Random(f"{self.seed}/{self.seen.audits}").choice((0, 50, 500))
        truncated = {}
        for name, load in self.loads.items():
            lsn = truncated[self.ids[name]] = max(1, ends[name] - 1 - keep)
            await load.let_go(lsn)
        await self._wait("no more is kept", lambda: self.space.too_much(truncated))
        self.seen.settled_s.append(time.monotonic() - began_s)
        self.teller.tell(f"  {self.space.kept}")
        await self._compare(client, site)
        self.seen.audits += 1

    async def _compare(self, client: LogClient, site: LogClient) -> None:
        """The copies have what the logs have."""
        for name, known in self.known.items():
            copy = await site.log(f"{name}-copy")
            log = client.shard(self.ids[name])
            firsts = [(await one.status()).position.first_lsn for one in (log, copy)]
            first_lsn = max(firsts)
            if first_lsn == known.next_lsn:
                continue
            one, other = [await shard.digest(first_lsn, known.next_lsn) for shard in (log, copy)]
            check(str(one) == str(other), f"{name}: its copy is another log: {one}, {other}")
            self.seen.compared_lsns += known.next_lsn - first_lsn

    async def _sample(self) -> None:
        """Remember how much was kept at most; say now and then how it goes."""
        said_s = time.monotonic()
        while True:
            await asyncio.to_thread(self._look)
            if time.monotonic() - said_s >= SAY_INTERVAL_S:
                said_s = time.monotonic()
                acked = sum(known.records for known in self.known.values())
                self.teller.tell(
                    f"{acked:,} records acked, {self.figures.truncations:,} truncations, "
                    f"{self.faults.total()} faults, {self.seen.audits} audits"
                )
            await asyncio.sleep(SAMPLE_INTERVAL_S)

    def _look(self) -> None:
        for label, cluster in (("", self.cluster), ("site ", self.site)):
            for store, pid in cluster.pids().items():
                used = bytes_on_disk(cluster.directory / store / "data")
                kept = self.seen.kept_bytes_max
                kept[label + store] = max(kept.get(label + store, 0), used)
                if pid is not None:
                    rss = self.seen.rss_bytes_max
                    rss[label + store] = max(rss.get(label + store, 0), rss_bytes(pid))

    # --- the end ----------------------------------------------------------------------------------

    async def _restore(self) -> None:
        """Restore each log from the archive, into the second site, and compare it as a whole."""
        self.archive.process.end()
        told("logservice", "archive", "verify", "-c", self.archive.config)
        self.archive.configure(self.site.endpoints())
        async with LogClient(self.site.endpoints()) as client:
            for name, known in self.known.items():
                began_s = time.monotonic()
                words = ["archive", "restore", "-c", self.archive.config, name]
                words += ["--as", f"{name}-restored", "--mib-per-s", "1000"]
                await asyncio.to_thread(told, "logservice", *words, limit_s=600.0)
                took_s = time.monotonic() - began_s
                reader = await read_all(await client.log(f"{name}-restored"), known, 1)
                self.seen.restored_records += reader.records
                self.seen.restored_gap_lsns += reader.gap_lsns
                self.teller.tell(
                    f"{name}: restored in {took_s:.1f} s, {reader.records:,} records compared"
                )

    async def _promote(self) -> None:
        """Promote the mirrors, and compare what they have."""
        async with LogClient(self.site.endpoints()) as client:
            for name, known in self.known.items():
                began_s = time.monotonic()
                words = ("mirror", "promote", "-c", self.mirror.config, name)
                found = await asyncio.to_thread(told, "logservice", *words)
                self.seen.promoted_s.append(time.monotonic() - began_s)
                next_lsn = found["next_lsn"]
                # Sessions and the closing take LSNs behind the last record.
                ends_well = next_lsn == found["source_end_lsn"] >= known.next_lsn
                check(ends_well, f"{name}: promoted as {found}, not at {known.next_lsn}")
                shard = client.shard(found["shard"])
                first_lsn = (await shard.status()).position.first_lsn
                await read_all(shard, known, first_lsn)
                await shard.acquire_writer("endurance", takeover=True)
                lsn = await shard.append(b"at the second site", timeout=UP_LIMIT_S)
                check(lsn >= next_lsn, f"{name}: it goes on at LSN {lsn}, not {next_lsn}")

    # --- what it uses -----------------------------------------------------------------------------

    def _not_whole(self, client: LogClient) -> Callable[[], str]:
        """`whole`, for a thread beside the loop."""
        loop = asyncio.get_running_loop()

        def missing() -> str:
            asked = client.hakeeper.cluster_state(timeout=10)
            try:
                return whole(asyncio.run_coroutine_threadsafe(asked, loop).result(30))
            except (LogServiceError, TimeoutError) as error:
                return str(error) or type(error).__name__

        return missing

    async def _wait(self, what: str, missing: Callable[[], str]) -> None:
        await asyncio.to_thread(wait, self.teller, what, missing)

    def rows(self) -> list[tuple[str, str]]:
        """What it came to."""
        seen, figures = self.seen, self.figures
        acked = sum(known.records for known in self.known.values())
        mib = ", ".join(
            f"{store} {used / 2**20:.1f}" for store, used in sorted(seen.kept_bytes_max.items())
        )
        rss = ", ".join(
            f"{store} {used / 2**20:.0f}" for store, used in sorted(seen.rss_bytes_max.items())
        )
        faults = ", ".join(f"{count} x {name}" for name, count in sorted(self.faults.items()))
        return [
            ("records acked", f"{acked:,} in {figures.appends:,} appends"),
            ("bytes of their values", f"{figures.value_bytes / 2**20:.0f} MiB"),
            ("longest append", f"{figures.longest_append_s:.1f} s"),
            ("truncations", f"{figures.truncations:,}; {figures.truncations_refused} no answer"),
            (
                "read while it was written",
                f"{figures.read:,} records, of the mirrors {figures.read_from_mirrors:,}; "
                f"{figures.jumps} truncated",
            ),
            ("faults", f"{self.faults.total()}: {faults}"),
            ("audits", f"{seen.audits}; {seen.compared_lsns:,} LSNs compared with the mirror"),
            ("whole, archived and mirrored", f"{spread(seen.shipped_s)} after the load's end"),
            ("T4 and INV-GC-SPACE", f"{spread(seen.settled_s)} after a truncation"),
            ("most in segments, MiB", mib),
            ("most memory, MiB", rss),
            (
                "restored and compared",
                f"{seen.restored_records:,} records, {seen.restored_gap_lsns} LSNs of gaps",
            ),
            ("promoted in", ", ".join(f"{took_s:.1f} s" for took_s in seen.promoted_s)),
        ]


def spread(times_s: list[float]) -> str:
    """Median and longest."""
    return f"{statistics.median(times_s):.1f} s, at most {max(times_s):.1f} s"


def rss_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * 4096
    return 0
