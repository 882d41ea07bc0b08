"""The story: what happens, in order, and what must hold at each point.

`Story.run` reads like the README's description of the demo. Each step raises DemoFailed when what
it says did not happen; nothing is checked by reading the output.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from examples.demo.screen import Screen, check
from examples.demo.watch import Watch, bytes_on_disk
from examples.sqlite_wal import replay
from examples.sqlite_wal.recovery import last_versions, records_of_parquet, recover
from examples.sqlite_wal.service_log import ServiceLog
from examples.sqlite_wal.shipper import Shipped
from examples.sqlite_wal.writer import Writer
from logservice.cli.processes.local_cluster import LocalCluster

SHARD: Final = 1
SEED: Final = 2
STORES: Final = 3
SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "storage": {"segment_bytes": 4 * 1024 * 1024, "ballast_bytes": 0},
    "hakeeper": {"store_timeout_s": 10.0},
    "truncation": {"interval_s": 1.0},
}

KILL_LEADER_AT: Final = 500
AFTER_FAILOVER: Final = 1000
"""Transactions acked before the leader is killed, and until the next trouble."""

UNTIL_TOLD: Final = 1_000_000
"""More transactions than there is time for: however slow the machine, a fault hits a writer that
writes."""

BEFORE_CHECKPOINT: Final = 2000
AFTER_CHECKPOINT: Final = 1500
PAUSE_DURING_REPAIR_S: Final = 0.02
"""Writing goes on while HAKeeper waits and repairs, without filling the disk."""

START_LIMIT_S: Final = 60.0
WRITE_LIMIT_S: Final = 120.0
CATCH_UP_LIMIT_S: Final = 60.0
REPAIR_LIMIT_S: Final = 90.0
FREE_LIMIT_S: Final = 60.0
MIB: Final = 1024 * 1024


class Story:
    """One run of the demo in a directory of its own."""

    def __init__(self, directory: Path, screen: Screen) -> None:
        self.screen = screen
        self.directory = directory
        self.cluster = LocalCluster.create(
            directory / "cluster", stores=STORES, shards=1, settings=SETTINGS
        )
        self.watch = Watch(lambda: {name: p.client for name, p in self.cluster.stores.items()})
        self.image = directory / "checkpoint-image"
        self.log: ServiceLog
        self.writer: Writer

    def run(self) -> bool:
        """The whole story; True when Spark was part of it."""
        self.start_cluster()
        self.start_writing()
        killed = self.kill_leader()
        self.bring_back(killed)
        self.lose_a_store(spare=killed)
        checkpoint = self.checkpoint()
        self.truncate(checkpoint)
        acked, rows = self.write_more_and_lose_the_database()
        with_spark = replay.java_is_here()
        records = self.replay(checkpoint, acked, with_spark=with_spark)
        self.recover(records, checkpoint, acked, rows)
        return with_spark

    def close(self) -> None:
        """Stop what runs."""
        self.cluster.down()

    def start_cluster(self) -> None:
        """Three processes; HAKeeper forms shard 0 and creates shard 1."""
        with self.screen.step(f"{STORES} stores start, HAKeeper creates the shards") as step:
            self.cluster.up(START_LIMIT_S)
            self._wait_until("every shard has three replicas", self.watch.full, START_LIMIT_S)
            step.say(f"shards 0 and {SHARD} are full")
        self.screen.cluster(self.watch)

    def start_writing(self) -> None:
        """The database ships its first transactions."""
        with self.screen.step("the database writes") as step:
            self.log = ServiceLog(self.cluster.endpoints(), SHARD)
            self.writer = Writer(self.directory / "shop.db", self.log, seed=SEED)
            self.writer.open()
            self.writer.run_to(UNTIL_TOLD)
            self._wait_acked(KILL_LEADER_AT)
            step.say(f"{self.writer.acked} transactions acked")

    def kill_leader(self) -> str:
        """SIGKILL of shard 1's leader in the middle of the writing."""
        with self.screen.step(f"the leader of shard {SHARD} is killed (SIGKILL)") as step:
            leader = self._leader()
            killed_at = time.monotonic()
            acked = self.writer.acked
            check(self.cluster.kill(leader), f"{leader} did not run")
            gone_at = time.monotonic()
            goal = self.writer.acked + AFTER_FAILOVER
            self.writer.run_to(goal)
            self._wait_acked(acked + 1, lambda: self.writer.acks[-1].began > gone_at)
            # An ack that the dying leader had sent already does not count: wait for a commit that
            # began without it, and say how long any commit had to wait.
            first = next(ack for ack in self.writer.acks if ack.ended > gone_at)
            longest = max(ack.ended - max(ack.began, killed_at) for ack in self.writer.acks[acked:])
            step.say(f"{leader} killed at transaction {acked}")
            step.say(f"next ack {first.ended - killed_at:.2f} s after the kill")
            step.say(f"the longest wait of a commit was {longest:.2f} s")
            self._wait_acked(goal)
            step.say(f"writing went on to transaction {self.writer.acked}")
        return leader

    def bring_back(self, store_id: str) -> None:
        """The killed store starts again and catches up."""
        with self.screen.step(f"{store_id} comes back") as step:
            tail = self.writer.shipper.acked.next_lsn - 1
            self.cluster.start(store_id)
            self.screen.wait(
                f"{store_id} catches up",
                lambda: (self.watch.applied_lsn(store_id, SHARD), tail),
                limit_s=CATCH_UP_LIMIT_S,
            )
            step.say(f"caught up to LSN {tail}")

    def lose_a_store(self, spare: str) -> None:
        """Another store is lost with its disk; a fourth one takes its replicas over."""
        lost = self.watch.leader(0)  # HAKeeper itself is repaired, too
        if lost is None or lost == spare:
            lost = next(name for name in self.cluster.stores if name != spare)
        with self.screen.step(f"{lost} is lost for good, a new store joins") as step:
            self.writer.run_to(UNTIL_TOLD, pause_s=PAUSE_DURING_REPAIR_S)
            before = self.writer.acked
            self.cluster.forget(lost)
            new = self.cluster.add(f"store-{STORES + 1}")
            self.cluster.admit(new)
            step.say(f"a person admits {new} for shard 0 (logctl admit --hakeeper)")
            began = time.monotonic()
            repaired = self._repaired(new)
            self._wait_until(
                "HAKeeper notices", lambda: not self.watch.full() or repaired(), REPAIR_LIMIT_S
            )
            self._wait_until("HAKeeper repairs every shard", repaired, REPAIR_LIMIT_S)
            step.say(f"{new} replaced {lost} in shards 0 and {SHARD}")
            step.say(f"all full again after {time.monotonic() - began:.1f} s (10 s of it silence)")
            step.say(f"{self.writer.acked - before} transactions acked meanwhile")
            self.writer.check()
        self.screen.cluster(self.watch)

    def checkpoint(self) -> Shipped:
        """The database moves its pages into its file and keeps a copy as the image; returns the
        position that the image covers.
        """
        with self.screen.step("the database checkpoints") as step:
            self.writer.run_to(max(BEFORE_CHECKPOINT, self.writer.acked))
            self._wait_acked(BEFORE_CHECKPOINT)
            self.writer.halt()
            self.writer.do(lambda: self.writer.database.checkpoint(self.image))
            covered = self.writer.shipper.acked
            step.say(f"image of {self.image.stat().st_size / MIB:.1f} MiB")
            step.say(f"checkpoint LSN {covered.next_lsn}, {covered.transactions} transactions")
        return covered

    def truncate(self, checkpoint: Shipped) -> None:
        """Truncate what the image covers, and check that every store frees it."""
        with self.screen.step("the log is truncated below the checkpoint") as step:
            before = self._bytes_by_store()
            truncated = self.log.truncate(checkpoint.next_lsn - 1)
            check(truncated == checkpoint.next_lsn - 1, f"truncated to LSN {truncated}")

            def freed() -> tuple[int, int]:
                now = self._bytes_by_store()
                return sum(now[name] * 4 < size for name, size in before.items()), len(before)

            self.screen.wait("stores free the space", freed, limit_s=FREE_LIMIT_S)
            after = self._bytes_by_store()
            for name, size in sorted(before.items()):
                check(after[name] < size, f"{name} freed nothing: {size} -> {after[name]} bytes")
                step.say(f"{name}: {size / MIB:.1f} -> {after[name] / MIB:.1f} MiB on disk")

    def write_more_and_lose_the_database(self) -> tuple[Shipped, str]:
        """More transactions, one that never leaves the machine, then the machine is gone."""
        with self.screen.step("more transactions, then the database's machine is lost") as step:
            goal = self.writer.acked + AFTER_CHECKPOINT
            self.writer.run_to(goal)
            self._wait_acked(goal)
            self.writer.halt()
            rows = self.writer.do(self.writer.database.rows_hash)
            self.writer.do(self.writer.database.run_unshipped_transaction)
            acked = self.writer.shipper.acked
            for path in (self.writer.database.path, self.writer.database.wal_path):
                path.unlink()
            self.writer.end()
            step.say(f"{acked.transactions} transactions acked")
            step.say(f"{self.writer.rolled_back} rolled back, {acked.frames} frames")
            step.say(f"{acked.bytes_shipped / MIB:.1f} MiB shipped")
            step.say(f"last acked LSN {acked.next_lsn - 1}; one more commit was never shipped")
        return acked, rows

    def replay(
        self, checkpoint: Shipped, acked: Shipped, *, with_spark: bool
    ) -> list[tuple[int, bytes]]:
        """Every record from the checkpoint LSN on, in order."""
        first, tail = checkpoint.next_lsn, acked.next_lsn
        how = "on Spark" if with_spark else "by the plain client (no Java here)"
        with self.screen.step(f"the shard is replayed {how}") as step:
            if with_spark:
                out = self.directory / "replayed"
                job = replay.replay_on_spark(self.cluster.endpoints(), SHARD, first, tail, out)
                records = records_of_parquet(out)
                check(job["records"] == len(records), f"the job says {job}")
                step.say(f"{job['value_bytes'] / MIB:.1f} MiB in {job['seconds']} s of Spark")
            else:
                records = self.log.read(first, tail)
            step.say(f"{len(records)} records, LSN {first} to {tail - 1}")
        return records

    def recover(
        self, records: list[tuple[int, bytes]], checkpoint: Shipped, acked: Shipped, rows: str
    ) -> None:
        """Write the pages over the image and compare with what was acked."""
        with self.screen.step("the database is recovered") as step:
            versions = last_versions(
                records,
                first_lsn=checkpoint.next_lsn,
                first_transaction=checkpoint.transactions + 1,
            )
            target = self.directory / "recovered.db"
            recovered = recover(self.image, versions, target)
            check(recovered.integrity == "ok", f"integrity_check: {recovered.integrity}")
            check(
                versions.last_commit.transaction == acked.transactions,
                f"last transaction {versions.last_commit.transaction}, acked {acked.transactions}",
            )
            check(recovered.digest == acked.digest, "the pages are not those of the last ack")
            check(recovered.rows_hash == rows, "the rows are not those of the last ack")
            check(recovered.never_acked_rows == 0, "a transaction that was never acked is there")
            check(recovered.rolled_back_rows == 0, "a transaction that was rolled back is there")
            step.say(f"{versions.transactions} transactions, {len(versions.pages)} pages applied")
            step.say("integrity_check ok; content hash is that of the last acked transaction")

    def _leader(self) -> str:
        """The leader of shard 1; waits while there is none."""
        return self.watch.some_leader(
            SHARD,
            lambda there: self._wait_until(f"shard {SHARD} has a leader", there, START_LIMIT_S),
        )

    def _repaired(self, new_store: str) -> Callable[[], bool]:
        def repaired() -> bool:
            state = self.watch.cluster()
            if state is None or not self.watch.full():
                return False
            return all(
                any(replica.store_id == new_store for replica in shard.replicas)
                for shard in state.shards
            )

        return repaired

    def _bytes_by_store(self) -> dict[str, int]:
        return {
            name: bytes_on_disk(self.cluster.process(name).directory)
            for name in self.cluster.stores
        }

    def _wait_acked(self, goal: int, also: Callable[[], bool] = lambda: True) -> None:
        def progress() -> tuple[int, int]:
            self.writer.check()
            acked = self.writer.acked
            return (acked, goal) if acked < goal or also() else (acked, acked + 1)

        self.screen.wait("transactions acked", progress, limit_s=WRITE_LIMIT_S)

    def _wait_until(self, what: str, holds: Callable[[], bool], limit_s: float) -> None:
        self.screen.wait(what, lambda: (int(holds()), 1), limit_s=limit_s)
