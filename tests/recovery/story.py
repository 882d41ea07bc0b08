"""Story: a cluster loses two of its three disks, then everything, and its database goes on.

The database is that of the SQLite example: it ships each transaction before the next one, and what
it was after any of them is known. An archiver runs beside the cluster, and a mirror of its log in
another one. Then

    a checkpoint, a truncation     what it covers is free on every disk
    two of three disks are lost    acked transactions are gone, on purpose: the third store was down
    recovered by force             the fork is named, and is exactly where the third store stood
    the database goes on           from its image and what is left; the old lineage is refused
    a point in time                the log as it was then, beside the living one
    everything is lost             stores, disks, the database's machine; not the archive
    all logs restored              into an empty cluster, and compared by digest
    the database goes on           at the next LSN; its old epoch is refused
    the mirror is promoted         the database goes on at a second site, at the next LSN

Every step that ends with a living cluster ends with `space`: what a truncation covers is gone from
every replica, and the files of every store are what INV-GC-SPACE allows.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from logservice_client import LogClient, SyncLogClient
from logservice_wire.errors import Fenced, LineageChanged, LogServiceError

from examples.sqlite_wal.service_log import ServiceLog
from examples.sqlite_wal.shipper import Shipped
from logservice.cli.processes.local_cluster import LocalCluster
from tests.cluster_state import whole
from tests.local_stores import kill_stores
from tests.programs import (
    Archive,
    Mirror,
    Space,
    StoryFailed,
    check,
    program,
    told,
    wait,
)
from tests.shipped_database import Known, ShippedDatabase, recovered_from
from tests.stories import Teller

SEGMENT_BYTES = 1 << 20
SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": SEGMENT_BYTES, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.3, "store_timeout_s": 5},
    "truncation": {"interval_s": 1.0},
}
UP_LIMIT_S = 60.0
SURVIVOR = "store-3"
OPERATOR = "the operator of this story"


@dataclass(frozen=True, slots=True)
class Size:
    """How large the story is. transactions: of the database in a step."""

    audits: int
    transactions: int


LONG = Size(16, 600)
SHORT = Size(3, 150)


@dataclass(slots=True)
class Step:
    """A row of the table."""

    name: str
    seconds: float = 0.0
    note: str = ""


class Story:
    """One run; `run` raises StoryFailed. `end` ends what it started."""

    def __init__(self, directory: Path, size: Size, say: Callable[[str], None]) -> None:
        """Nothing is started yet."""
        self.size = size
        self.directory = directory
        self.teller = Teller(say)
        self.steps: list[Step] = []
        self.clusters: list[LocalCluster] = []
        self.archives: list[Archive] = []
        self.mirrors: list[Mirror] = []
        self.site: LocalCluster
        """The second site: another cluster, of one store."""
        self.shop = 0
        self.audits: dict[int, int] = {}
        """The next LSN of each log beside the database's."""
        self.truncated_lsn = 0
        """Up to where the database's log was truncated."""
        self.checkpoint: Shipped
        self.known: Known
        """The database as it has to be."""
        self.database: ShippedDatabase

    def run(self) -> None:
        """The whole story."""
        with self.step("a database on a log, an archive and a mirror beside it"):
            self.start()
        with self.step("a checkpoint and a truncation"):
            self.truncate()
        with self.step("two of three disks are lost for good") as step:
            lost = self.lose_two_disks(step)
        with self.step("recovered by force") as step:
            self.recover(step, lost)
        with self.step("the database goes on from what is left"):
            self.go_on_from_what_is_left()
        with self.step("a point in time") as step:
            self.point_in_time(step)
        with self.step("everything is lost but the archive") as step:
            digests, epoch = self.lose_everything(step)
        with self.step("all logs are restored into an empty cluster") as step:
            self.restore_all(step, digests)
        with self.step("the database goes on, its old epoch is refused"):
            self.go_on_elsewhere(epoch)
        with self.step("the mirror is promoted, the database goes on there") as step:
            self.promote(step)

    def end(self) -> None:
        """End every process that was started here."""
        for archive in self.archives:
            archive.process.end()
        for mirror in self.mirrors:
            mirror.process.end()
        for cluster in self.clusters:
            if cluster.directory.exists():
                kill_stores(cluster)

    # --- steps ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Three stores, a log for the database, others beside it."""
        self.new_cluster("site", stores=1)
        self.site = self.cluster
        self.new_cluster("first")
        with self.client() as client:
            self.shop = client.hakeeper.create_shard(name="shop")
            for number in range(self.size.audits):
                self.audits[client.hakeeper.create_shard(name=f"audit-{number}")] = 1
        self.write_audits()
        self.new_archive().begin()
        self.new_mirror("shop-before")
        log = ServiceLog(self.cluster.endpoints(), self.shop)
        self.database = ShippedDatabase(self.new_file("shop.db"), log, seed=1)
        self.known = self.database.run(self.size.transactions)
        self.space()

    def truncate(self) -> None:
        """The database copies itself, and lets go what the copy covers."""
        self.checkpoint = self.database.checkpoint(self.image)
        self.wait_archived()
        self.wait_mirrored()
        # At this moment next to nothing lives: a store that frees too little shows.
        self.let_go()
        self.known = self.database.run(self.size.transactions // 2)

    def lose_two_disks(self, step: Step) -> Known:
        """The third store is down when the last transactions are acked; then the others are lost.
        Returns what the database was with them.
        """
        self.known = self.database.run(self.size.transactions // 4)
        self.write_audits()
        self.wait(f"{SURVIVOR} has it all", self.survivor_lacks)
        kept = dict(self.audits)
        self.cluster.kill(SURVIVOR)
        lost = self.database.run(self.size.transactions // 4)
        self.write_audits()
        self.audits = kept
        kill_stores(self.cluster)
        for store in self.cluster.stores:
            if store != SURVIVOR:
                shutil.rmtree(self.data(store))
        acked = lost.acked.transactions - self.known.acked.transactions
        step.note = f"{acked} acked transactions were on no other disk"
        return lost

    def recover(self, step: Step, lost: Known) -> None:
        """From the one disk that is left. Nothing that was on it is lost, and the rest is named."""
        kept = {self.shop: self.known.acked.next_lsn - 1}
        kept |= {log: next_lsn - 1 for log, next_lsn in self.audits.items()}
        evidence = self.cluster.directory / "evidence"
        self.data(SURVIVOR).rename(evidence)
        shards = {one["shard"]: one for one in told("logservice", "recover", "inspect", evidence)}
        for log, lsn in kept.items():
            found = shards[log]["last_lsn"]
            check(found == lsn, f"log {log}: {SURVIVOR} had LSN {lsn}, recover finds {found}")
        words = ("write", "--all", "--from", evidence, "--to", self.data(SURVIVOR))
        refused = program("logservice", "recover", *words)
        check(refused.returncode and not self.data(SURVIVOR).exists(), "nobody said that it may")
        done = told("logservice", "recover", *words, "--i-know-records-may-be-lost", OPERATOR)
        forks = {one["shard"]: one["fork_lsn"] for one in done}
        for log, lsn in kept.items():
            check(forks[log] == lsn, f"log {log} goes on behind LSN {forks[log]}, not {lsn}")
        self.cluster.start(SURVIVOR)
        fork_lsn = kept[self.shop]
        self.old_lineage_is_refused(fork_lsn)
        for store in self.cluster.stores:
            self.cluster.start(store)
        step.note = (
            f"lost: LSNs above {fork_lsn}, of which {fork_lsn + 1} to "
            f"{lost.acked.next_lsn - 1} were acked"
        )

    def old_lineage_is_refused(self, fork_lsn: int) -> None:
        """The database, which believes in what is lost, is told; so is the archive."""
        try:
            lsn = self.database.log.append([b"of a database that believes in the old history"])
        except LineageChanged as error:
            found = error.number("fork_lsn")
            check(found == fork_lsn, f"the database is told of a fork at {found}, not {fork_lsn}")
        else:
            raise StoryFailed(f"an append of the old history got LSN {lsn}")
        said = f"was continued by force behind LSN {fork_lsn}:"
        output = self.archives[-1].process.output
        self.wait(
            "the archiver refuses the new history",
            lambda: "" if said in output.read_text() else "it has not said so",
        )
        mirror = self.mirrors.pop()
        self.wait(
            "the mirror takes nothing of the new history",
            lambda: "" if mirror.process.ended else "it runs",
        )
        check("continued by force" in mirror.process.output.read_text(), "the mirror said no why")
        # What nobody mirrors any more need not be kept.
        with self.client() as client:
            client.shard(self.shop).release_hold("mirror")

    def go_on_from_what_is_left(self) -> None:
        """The database is made anew of its image and the log, which is archived elsewhere now."""
        self.archives[-1].process.end()
        self.new_archive().begin()
        self.database.close()
        self.database = self.recovered("from what is left", self.size.transactions)
        self.wait("every log has its replicas", self.lacks)
        self.space()

    def point_in_time(self, step: Step) -> None:
        """The log as it was at a time that somebody wrote down, beside the living log."""
        then = self.known
        point_us = time.time_ns() // 1000
        time.sleep(0.01)
        self.known = self.database.run(self.size.transactions // 4)
        self.wait_archived()
        words = ("archive", "restore", "-c", self.archives[-1].config, "shop", "--as", "shop-then")
        moment = f"{point_us // 10**6}.{point_us % 10**6:06d}"
        found = told("logservice", *words, "--to", moment)
        first_lsn, end_lsn = found["first_lsn"], found["end_lsn"]
        wanted = then.acked.next_lsn
        check(end_lsn == wanted, f"at that time the next LSN was {wanted}, restored: {end_lsn}")
        log = ServiceLog(self.cluster.endpoints(), found["shard"])
        made = recovered_from(
            log, self.image, self.checkpoint, end_lsn, self.new_file("shop-then.db")
        )
        log.close()
        check(not (why := then.differs(made)), f"the database of that time: {why}")
        with self.client() as client:
            digests = {
                str(client.shard(one).digest(first_lsn, end_lsn))
                for one in (self.shop, found["shard"])
            }
        check(len(digests) == 1, "the copy has another digest than the log")
        other = program("logservice", *words)
        check("another history" in other.stderr, f"restored to another end: {other.stderr}")
        behind = self.known.acked.transactions - then.acked.transactions
        step.note = f"LSN {end_lsn - 1}, {behind} transactions before the end"
        self.space()

    def lose_everything(self, step: Step) -> tuple[dict[tuple[int, int, int], str], int]:
        """Stores, disks and the database's machine, after one more truncation. Returns the digests
        that the logs had, by log and range, and the writer's epoch.
        """
        ranges = [(self.shop, self.checkpoint.next_lsn, self.known.acked.next_lsn)]
        digests = self.digests(ranges)
        self.truncate()
        self.write_audits()
        self.wait_archived()
        ranges = [(self.shop, self.checkpoint.next_lsn, self.known.acked.next_lsn)]
        ranges += [(log, 1, next_lsn) for log, next_lsn in self.audits.items()]
        digests |= self.digests(ranges)
        with self.client() as client:
            epoch = client.shard(self.shop).status().writer_epoch
        self.database.close()
        self.archives[-1].process.end()
        kill_stores(self.cluster)
        shutil.rmtree(self.cluster.directory)
        for file in self.directory.glob("*.db*"):
            file.unlink()
        step.note = f"archived: {len(self.audits) + 1} logs"
        return digests, epoch

    def restore_all(self, step: Step, digests: dict[tuple[int, int, int], str]) -> None:
        """Every log is what it was, from the first archived LSN to the last one."""
        self.new_cluster("second")
        archive = self.archives[-1]
        archive.configure(self.cluster.endpoints())
        began_s = time.monotonic()
        rows = told("logservice", "archive", "restore-all", "-c", archive.config)
        step.note = f"in {time.monotonic() - began_s:.1f} s"
        restored = {one["shard"]: one["end_lsn"] for one in rows if one["state"] == "restored"}
        wanted = {**self.audits, self.shop: self.known.acked.next_lsn}
        check(restored == wanted, f"restored up to {restored}, not {wanted}")
        for (log, first, end), digest in self.digests(list(digests)).items():
            known = digests[log, first, end]
            check(digest == known, f"log {log}, LSNs {first} to {end - 1}: {digest}, not {known}")
        self.truncated_lsn = 0  # the archive has what the database let go since
        self.space()

    def go_on_elsewhere(self, epoch: int) -> None:
        """On another machine, in another cluster; then the machine from before comes back."""
        try:
            lsn = asyncio.run(append_with(self.cluster.endpoints(), self.shop, epoch))
        except Fenced:
            pass
        else:
            raise StoryFailed(f"a writer with the epoch of the lost cluster got LSN {lsn}")
        self.new_mirror("shop")
        self.database = self.recovered("elsewhere", self.size.transactions // 2)
        with self.client() as client:
            after = client.shard(self.shop).status()
        check(after.writer_epoch > epoch, f"epoch {after.writer_epoch} after {epoch}")
        end = self.known.acked.next_lsn
        target = self.new_file("shop-once-more.db")
        found = recovered_from(self.database.log, self.image, self.checkpoint, end, target)
        check(not (why := self.known.differs(found)), f"the database at the end: {why}")
        self.wait_mirrored()
        self.let_go()

    def promote(self, step: Step) -> None:
        """The log moves to the second site: its source is closed, and nothing is missing."""
        self.known = self.database.run(self.size.transactions // 4)
        self.database.close()
        with self.client() as client:
            epoch = client.shard(self.shop).status().writer_epoch
        began_s = time.monotonic()
        found = told("logservice", "mirror", "promote", "-c", self.mirrors[-1].config, "shop")
        step.note = f"in {time.monotonic() - began_s:.1f} s"
        end = self.known.acked.next_lsn
        check(found["next_lsn"] == end, f"it goes on at LSN {found['next_lsn']}, not {end}")
        self.clusters.append(self.site)
        self.shop = found["shard"]
        try:
            lsn = asyncio.run(append_with(self.cluster.endpoints(), self.shop, epoch))
        except Fenced:
            pass
        else:
            raise StoryFailed(f"a writer with the epoch of the source got LSN {lsn}")
        self.database = self.recovered("at the second site", self.size.transactions // 4)
        self.space()
        self.database.close()

    # --- what it uses -----------------------------------------------------------------------------

    @property
    def cluster(self) -> LocalCluster:
        """The newest one."""
        return self.clusters[-1]

    @property
    def image(self) -> Path:
        """The database's own copy, kept elsewhere."""
        return self.directory / "checkpoint-image"

    def recovered(self, where: str, transactions: int) -> ShippedDatabase:
        """The database made of its image and of all that the log has; it must be the one that is
        known, and then runs so many transactions more.
        """
        log = ServiceLog(self.cluster.endpoints(), self.shop)
        with self.client() as client:
            next_lsn = client.shard(self.shop).status().position.applied_lsn + 1
        target = self.new_file(f"shop {where}.db")
        found = recovered_from(log, self.image, self.checkpoint, next_lsn, target)
        check(not (why := self.known.differs(found)), f"the database {where}: {why}")
        seed = self.known.acked.transactions
        database = ShippedDatabase(target, log, seed=seed, after=self.known)
        self.known = database.run(transactions)
        return database

    def let_go(self) -> None:
        """Truncate what the image covers, and see it go."""
        wanted = self.checkpoint.next_lsn - 1
        reached = self.database.log.truncate(wanted)
        check(reached == wanted, f"truncated to LSN {reached}, not {wanted}")
        self.truncated_lsn = wanted
        self.space()

    def space(self) -> None:
        """T4, INV-GC-SPACE: no replica keeps an entry that a truncation covers, and the sealed
        segments of a store take at most so many times what lives in them; the newest is beside.
        """
        space = Space(self.cluster, SEGMENT_BYTES)
        truncated = {self.shop: self.truncated_lsn}
        self.wait("no more is kept than may be", lambda: space.too_much(truncated))
        self.teller.tell(f"  {space.kept}")

    def survivor_lacks(self) -> str:
        """What the store that will survive has not applied yet."""
        wanted = {**self.audits, self.shop: self.known.acked.next_lsn}
        with SyncLogClient([self.cluster.stores[SURVIVOR].client]) as near:
            for log, next_lsn in wanted.items():
                found = near.shard(log).status(stale=True).position.applied_lsn + 1
                if found < next_lsn:
                    return f"log {log} is at LSN {found} of {next_lsn}"
        return ""

    def lacks(self) -> str:
        """What the cluster lacks."""
        try:
            with self.client() as client:
                return whole(client.hakeeper.cluster_state(timeout=10))
        except LogServiceError as error:
            return str(error)

    def wait_archived(self) -> None:
        """Wait until the archive has all that was acked."""
        wanted = {"shop": self.database.shipper.acked.next_lsn}
        for number, next_lsn in enumerate(self.audits.values()):
            wanted[f"audit-{number}"] = next_lsn
        self.wait("all of it is archived", lambda: self.archives[-1].lacks(wanted))

    def wait_mirrored(self) -> None:
        """Wait until the second site has all that was acked."""
        wanted = self.database.shipper.acked.next_lsn
        if self.mirrors:
            self.wait("all of it is mirrored", lambda: self.mirrors[-1].lacks({"shop": wanted}))

    def write_audits(self) -> None:
        """A few records into each log beside the database's."""
        with self.client() as client:
            for log, next_lsn in self.audits.items():
                records = [b"audit %d of log %d" % (lsn, log) for lsn in range(10)]
                lsn = client.shard(log).append(records, timeout=UP_LIMIT_S)
                check(lsn == next_lsn, f"log {log} goes on at LSN {lsn}, not {next_lsn}")
                self.audits[log] = lsn + len(records)

    def digests(self, ranges: list[tuple[int, int, int]]) -> dict[tuple[int, int, int], str]:
        """What the logs are there."""
        with self.client() as client:
            return {
                (log, first, end): str(client.shard(log).digest(first, end))
                for log, first, end in ranges
            }

    def new_cluster(self, name: str, *, stores: int = 3) -> None:
        """Stores with empty disks."""
        made = LocalCluster.create(self.directory / name, stores=stores, settings=SETTINGS)
        self.clusters.append(made)
        made.up(UP_LIMIT_S)
        self.wait("every log has its replicas", self.lacks)

    def new_archive(self) -> Archive:
        """An empty archive of the cluster."""
        folder = self.directory / f"archive-{len(self.archives) + 1}"
        made = Archive(folder, ["shop", "audit-*"])
        made.configure(self.cluster.endpoints())
        self.archives.append(made)
        return made

    def new_mirror(self, name: str) -> None:
        """Of the database's log, as it is in the newest cluster."""
        target = self.site.endpoints()
        made = Mirror(self.directory, self.cluster.endpoints(), target, {"shop": name})
        self.mirrors.append(made)
        made.begin()

    def new_file(self, name: str) -> Path:
        return self.directory / name

    def data(self, store: str) -> Path:
        """A store's data directory."""
        return self.cluster.directory / store / "data"

    def client(self) -> SyncLogClient:
        return SyncLogClient(self.cluster.endpoints())

    def wait(self, what: str, missing: Callable[[], str]) -> None:
        wait(self.teller, what, missing)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Say it, and how long it took."""
        self.teller.tell(name)
        self.steps.append(Step(name))
        began_s = time.monotonic()
        yield self.steps[-1]
        self.steps[-1].seconds = time.monotonic() - began_s
        self.teller.tell(
            f"  took {self.steps[-1].seconds:.1f} s; {self.steps[-1].note}".rstrip("; ")
        )


async def append_with(endpoints: list[str], log: int, epoch: int) -> int:
    """Append as somebody with that writer epoch."""
    async with LogClient(endpoints) as client:
        shard = client.shard(log)
        shard.writer_epoch = epoch
        return await shard.append(b"of a machine that comes back", timeout=UP_LIMIT_S)
