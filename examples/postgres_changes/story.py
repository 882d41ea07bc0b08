"""The story: what happens, in order, and what must hold at each point.

`Story.run` reads like docs/postgres-changes.md's description of it. Each step raises DemoFailed
when what it says did not happen.

A PostgreSQL with four tables is written to by several sessions. A shipper brings the changes into a
log, over TLS and with a password. A program makes Delta tables of the log, and a query of Spark
another one. All of them are killed meanwhile. At the end every table is PostgreSQL's, row by row.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pyarrow.parquet as pq
from deltalake import DeltaTable
from logservice_client import LogClient, Shard

from examples.demo.screen import Screen, check
from examples.demo.watch import Watch
from examples.postgres.certificates import Authority, give_tls
from examples.postgres.protocol import quoted
from examples.postgres.records import records
from examples.postgres.replication import Connection
from examples.postgres.server import Postgres
from examples.postgres.wal_position import position_of
from examples.postgres_changes.change import BEGIN_COPY, Mark, decode
from examples.postgres_changes.delta_table import KEY
from examples.postgres_changes.followers import CAME_LATE, Program, spark, spark_variables, tool
from examples.postgres_changes.log_end import end_of
from examples.postgres_changes.tool import TAKEN
from examples.postgres_changes.workload import NEW_COLUMN, SCHEMA, TABLES, Load
from examples.sqlite_wal.replay import java_is_here
from logservice.cli.processes.local_cluster import LocalCluster, free_ports

T = TypeVar("T")

SHARD: Final = 1
STORES: Final = 3
SETTINGS: Final[dict[str, dict[str, object]]] = {
    "storage": {"segment_bytes": 4 * 1024 * 1024, "ballast_bytes": 0},
}
USER: Final = "shipper"
PASSWORD: Final = "correct horse"
LIMIT_S: Final = 600.0
"""For everything that is waited for. It says that something hangs, not that it is slow."""

SPARK_TABLE: Final = "accounts"
IMMEDIATE: Final = ("stop", "-m", "immediate")

Rows = list[tuple[tuple[str, str | None], ...]]
"""A table: each row by the names of its columns, all sorted."""


@dataclass(frozen=True, slots=True)
class Size:
    """How long a story is: transactions at each point, and rows of the large one."""

    transactions: int
    large: int
    kills: int
    kill_spark: bool


LONG: Final = Size(transactions=600, large=60_000, kills=3, kill_spark=True)
SHORT: Final = Size(transactions=100, large=20_000, kills=1, kill_spark=False)


class Story:
    """One run of the demo in a directory of its own."""

    def __init__(self, directory: Path, screen: Screen, size: Size) -> None:
        self.screen = screen
        self.directory = directory
        self.size = size
        self.cluster = LocalCluster.create(
            directory / "cluster", stores=STORES, shards=1, settings=SETTINGS
        )
        self.watch = Watch(lambda: {name: p.client for name, p in self.cluster.stores.items()})
        self.server = Postgres(directory / "db", free_ports(1)[0])
        self.load = Load(self.server, seed=1)
        self._programs: list[Program] = []
        self._late = 0

    def run(self) -> None:
        """The whole story."""
        self.directory.chmod(0o755)  # PostgreSQL's user passes through it
        self.start()
        self.shipper = self._shipper("shipper")
        self.tables = self._tables()
        self.spark = self._spark()
        self.follow()
        self.large_transaction()
        self.kill_shipper()
        self.kill_leader()
        self.kill_tables()
        self.crash_postgres()
        self.add_a_column()
        self.second_shipper()
        self.kill_spark()
        self.come_to_the_end()
        self.look_at_the_log()
        self.compare_delta()
        self.compare_spark()

    def close(self) -> None:
        """Stop what runs."""
        for program in self._programs:
            program.kill()
        self.server.kill()
        try:
            self.load.end()
        finally:
            self.cluster.down()

    # --- steps ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Three stores, and a database with rows in it, which speaks TLS."""
        with self.screen.step(f"{STORES} stores and PostgreSQL start") as step:
            self.cluster.up(LIMIT_S)
            self.authority = Authority(self.directory / "ca")
            self.server.create(synchronous_standby_names="''", wal_level="logical")
            rules = [f"hostssl all {USER} 127.0.0.1/32 scram-sha-256"]
            give_tls(self.server, self.authority, rules)
            self.server.start()
            self.server.wait()
            self.server.query(f"CREATE ROLE {USER} LOGIN REPLICATION PASSWORD '{PASSWORD}'")
            self.server.query(SCHEMA)
            self.server.query(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {USER}")
            step.say(f"PostgreSQL {self.server.value('SHOW server_version')}, TLS and SCRAM")

    def follow(self) -> None:
        """The shipper begins with a copy, while everybody writes."""
        with self.screen.step("a copy of all tables, and what changes meanwhile") as step:
            self.load.start()
            self.shipper.start()
            self.tables.start("--follow")
            if self.spark is not None and self.size.kill_spark:
                self.spark.start("--follow")
            self._more()
            (line,) = [one for one in self.shipper.said().splitlines() if "copied" in one]
            step.say(line)

    def large_transaction(self) -> None:
        """One that is larger than an append, and one as large that is rolled back."""
        with self.screen.step("a transaction larger than an append") as step:
            insert = (
                "INSERT INTO visits SELECT -i, repeat(md5(i::text), 4)"
                f" FROM generate_series(1, {self.size.large}) i"
            )
            self.server.query(f"BEGIN; {insert}; ROLLBACK")
            self.server.query(insert)
            self.server.query(
                f"UPDATE visits SET page = 'again' WHERE id < -{self.size.large // 2}"
            )
            step.say(f"{self.size.large} rows, and as many that were rolled back")

    def kill_shipper(self) -> None:
        """SIGKILL, for the first time in the middle of the large transaction."""
        with self.screen.step("the shipper is killed (SIGKILL)") as step:
            parts = 0
            for _ in range(self.size.kills):
                self._wait("the log moves", self._moves())
                self.shipper.kill()
                end = asyncio.run(self._asked(end_of))
                parts += end.begun is not None
                self.shipper.start()
            self._more()
            step.say(f"killed {self.size.kills} times, {parts} within a transaction")

    def kill_leader(self) -> None:
        """SIGKILL of the log's leader; the shipper goes on at the next one."""
        with self.screen.step("the log's leader is killed (SIGKILL)") as step:
            leader = self._leader()
            check(self.cluster.kill(leader), f"{leader} did not run")
            self._more()
            self.cluster.start(leader)
            step.say(f"{leader} killed, and started again")

    def kill_tables(self) -> None:
        """SIGKILL of the program of the Delta tables."""
        with self.screen.step("the program of the tables is killed (SIGKILL)") as step:
            for _ in range(self.size.kills):
                self._wait("the tables move", self._tables_move())
                self.tables.kill()
                self.tables.start("--follow")
            step.say(f"killed {self.size.kills} times, at {self._versions()} versions")

    def crash_postgres(self) -> None:
        """PostgreSQL ends at once, and recovers."""
        with self.screen.step("PostgreSQL is stopped with -m immediate") as step:
            self.server.run("pg_ctl", "-D", self.server.data, *IMMEDIATE, "-w")
            self.server.start()
            self.server.wait()
            self._more()
            step.say("the slot and the log go on")

    def add_a_column(self) -> None:
        """A table changes while it is followed."""
        with self.screen.step("a table gets a column") as step:
            self.server.query(NEW_COLUMN)
            self.load.know_the_new_column()
            self._more()
            rows = self.server.value("SELECT count(*) FROM accounts WHERE branch IS NOT NULL")
            step.say(f"{rows} rows have it")

    def second_shipper(self) -> None:
        """Another shipper of the same name acquires the log; the first one gets nothing in."""
        with self.screen.step("two shippers at once") as step:
            second = self._shipper("second-shipper")
            second.start()
            code = self.shipper.wait(LIMIT_S)
            check(code == TAKEN, f"the first one ended with {code}: {self.shipper.said()}")
            self.shipper = second
            self._more()
            step.say("the first one is fenced, and ends; the second goes on")

    def kill_spark(self) -> None:
        """SIGKILL of the query's driver, with everything that it has started."""
        if self.spark is None or not self.size.kill_spark:
            return
        with self.screen.step("the driver of the query is killed (SIGKILL)") as step:
            program = self.spark

            def done() -> bool:
                if not program.runs:
                    self._check_late(program)
                    program.start("--follow")
                return bool(self._batches())

            self._wait("a micro-batch is done", done)
            check(program.runs, f"the query ended: {program.said()[-3000:]}")
            program.kill()
            step.say(f"micro-batches {self._batches()} are there")

    def come_to_the_end(self) -> None:
        """Nobody writes any more, and PostgreSQL shuts down: it waits until all is in the log."""
        with self.screen.step("everybody stops, and PostgreSQL shuts down") as step:
            self.load.end()
            position = position_of(self.server.value("SELECT pg_current_wal_flush_lsn()"))
            self.server.stop()
            end = asyncio.run(self._asked(end_of))
            assert end.mark is not None
            check(end.begun is None, "the log ends in the middle of something")
            check(end.mark.end >= position, "something is not in the log")
            step.say(f"{self.load.transactions} transactions, {self.load.rolled_back} rolled back")
            self.shipper.kill()
            self.server.start()
            self.server.wait()

    def look_at_the_log(self) -> None:
        """INV-PG-CHANGES, record by record."""
        with self.screen.step("the log is read") as step:
            ops, wholes = asyncio.run(self._asked(_ordered))
            step.say(f"{sum(ops.values())} changes in {wholes} transactions, each once")
            step.say(", ".join(f"{op} {count}" for op, count in sorted(ops.items())))

    def compare_delta(self) -> None:
        """Every Delta table, with PostgreSQL's."""
        with self.screen.step("the Delta tables are compared, row by row") as step:
            self.tables.kill()
            self.tables.start()
            check(self.tables.wait() == 0, f"the tables: {self.tables.said()[-2000:]}")
            for table in TABLES:
                expected = self._selected(table)
                found = DeltaTable(str(self.directory / "delta" / f"public.{table}"))
                rows = found.to_pyarrow_table().drop_columns([KEY]).to_pylist()
                _equal(f"the Delta table of {table}", _sorted(rows), expected)
                step.say(f"{table}: {len(expected)} rows, version {found.version()}")

    def compare_spark(self) -> None:
        """Spark's table, with PostgreSQL's."""
        if self.spark is None:
            return
        with self.screen.step("Spark's table is compared, row by row") as step:
            self.spark.start()
            while self.spark.wait() != 0:
                self._check_late(self.spark)
                step.say("its process came late, and the query began again")
                self.spark.start()
            newest = self._batches()[-1]
            rows_of = self.directory / "spark" / f"batch={newest}" / "rows"
            found = [dict(row) for row in pq.read_table(rows_of)["row"].to_pylist()]
            expected = self._selected(SPARK_TABLE)
            columns = [name for name, _ in expected[0]]
            rows = [{name: row.get(name) for name in columns} for row in found]
            _equal(f"Spark's table of {SPARK_TABLE}", _sorted(rows), expected)
            step.say(f"{SPARK_TABLE}: {len(expected)} rows, micro-batch {newest}")

    # --- programs ---------------------------------------------------------------------------------

    def _shipper(self, output: str) -> Program:
        secret = self.directory / "password"
        secret.write_text(PASSWORD + "\n")
        secret.chmod(0o600)
        where = ["--host", "localhost", "--port", str(self.server.port), "--user", USER]
        who = ["--password-file", str(secret), "--sslrootcert", str(self.directory / "ca/ca.pem")]
        command = tool("ship", "--shard", str(SHARD), "--name", "db-1", *where, *who)
        return self._program(command, output)

    def _tables(self) -> Program:
        words = [word for table in TABLES for word in ("--table", f"public.{table}")]
        place = ["--dir", str(self.directory / "delta"), "--commit-s", "0.5"]
        return self._program(tool("table", "--shard", str(SHARD), *words, *place), "tables")

    def _spark(self) -> Program | None:
        if not java_is_here():
            return None
        words = ["--shard", str(SHARD), "--table", f"public.{SPARK_TABLE}"]
        place = [
            "--dir",
            str(self.directory / "spark"),
            "--records-per-trigger",
            str(self.size.large),
        ]
        return self._program(spark(*words, *place), "spark.log", **spark_variables(self.directory))

    def _program(self, command: list[str], output: str, **more: str) -> Program:
        variables = {"LOGSERVICE_ENDPOINTS": ",".join(self.cluster.endpoints()), **more}
        made = Program(command, variables, self.directory / output)
        self._programs.append(made)
        return made

    def _check_late(self, query: Program) -> None:
        """Whether the query ended for a reason for which it is started again."""
        said = query.said()
        late = said.count(CAME_LATE) > self._late
        self._late = said.count(CAME_LATE)
        check(late, f"spark-submit: {said[-3000:]}")

    # --- helpers ----------------------------------------------------------------------------------

    def _more(self) -> None:
        """Wait for so many more transactions, and until the log has what is committed then."""
        goal = self.load.transactions + self.size.transactions
        self._wait("transactions", lambda: self.load.transactions >= goal)
        position = position_of(self.server.value("SELECT pg_current_wal_flush_lsn()"))
        self._wait("the log has them", lambda: self._reached() >= position)

    def _reached(self) -> int:
        """How far the log is. Nothing else makes it move when nobody writes; but they do."""
        end = asyncio.run(self._asked(end_of))
        return end.mark.end if end.mark is not None else 0

    def _moves(self) -> Callable[[], bool]:
        before = asyncio.run(self._asked(_last_lsn))
        return lambda: asyncio.run(self._asked(_last_lsn)) > before

    def _tables_move(self) -> Callable[[], bool]:
        before = self._versions()
        return lambda: self._versions() > before

    def _versions(self) -> int:
        """Of all Delta tables together."""
        found = (self.directory / "delta").glob("*/_delta_log/*.json")
        return sum(1 for _ in found)

    def _batches(self) -> list[int]:
        """The numbers of the micro-batches whose tables are whole."""
        found = (self.directory / "spark").glob("batch=*/rows/_SUCCESS")
        return sorted(int(path.parent.parent.name.partition("=")[2]) for path in found)

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        def progress() -> tuple[int, int]:
            for program in (self.shipper, self.tables):
                code = program.code
                check(code is None or code == TAKEN, f"{program.output} ended: {program.said()}")
            check(self.load.failed is None, f"the load ended: {self.load.failed!r}")
            return int(condition()), 1

        self.screen.wait(what, progress, limit_s=LIMIT_S)

    def _selected(self, table: str) -> Rows:
        return asyncio.run(self._select(table))

    async def _select(self, table: str) -> Rows:
        """What PostgreSQL says that the table is."""
        connection = await Connection.connect(
            self.server.address, {"database": "postgres"}, body_bytes_max=1 << 26
        )
        try:
            sql = (
                "SELECT attname FROM pg_attribute WHERE attrelid = "
                f"'public.{table}'::regclass AND attnum > 0 ORDER BY attnum"
            )
            columns = [(name or b"").decode() for (name,) in (await connection.query(sql)).rows]
            rows = (await connection.query(f"SELECT * FROM public.{quoted(table)}")).rows
        finally:
            connection.close()
        texts_of = [[None if one is None else one.decode() for one in row] for row in rows]
        return _sorted([dict(zip(columns, row, strict=True)) for row in texts_of])

    def _leader(self) -> str:
        return self.watch.some_leader(
            SHARD, lambda there: self._wait("the log has a leader", there)
        )

    async def _asked(self, question: Callable[[Shard], Awaitable[T]]) -> T:
        async with LogClient(self.cluster.endpoints()) as client:
            return await question(client.shard(SHARD))


def _sorted(rows: list[dict[str, str | None]]) -> Rows:
    return sorted((tuple(sorted(row.items())) for row in rows), key=json.dumps)


def _equal(what: str, found: Rows, expected: Rows) -> None:
    """Raises DemoFailed with the first rows that differ."""
    for one, other in itertools.zip_longest(found, expected):
        check(one == other, f"{what} has\n{one}\nand PostgreSQL\n{other}")


async def _last_lsn(log: Shard) -> int:
    return (await log.status()).position.applied_lsn


async def _ordered(log: Shard) -> tuple[dict[str, int], int]:
    """Changes by op, and marks with changes. Raises DemoFailed when the order is not kept."""
    ops: dict[str, int] = {}
    wholes, end, commit, seq = 0, 0, 0, 0
    position = (await log.status()).position
    async with aclosing(records(log, position.first_lsn, position.applied_lsn)) as found:
        async for lsn, record in found:
            entry = decode(record)
            if isinstance(entry, Mark):
                right = (
                    entry.changes == seq
                    and entry.end >= end
                    and (not seq or entry.commit == commit)
                )
                check(right, f"LSN {lsn}: {record!r} after {seq} changes of {commit}")
                wholes += bool(entry.changes)
                end, seq = entry.end, 0
                continue
            if entry.op == BEGIN_COPY:
                end = seq = 0
            check(entry.commit >= end, f"LSN {lsn}: {record!r} again, after {end}")
            check(seq == 0 or entry.commit == commit, f"LSN {lsn}: {record!r} within {commit}")
            check(entry.seq == seq, f"LSN {lsn}: {record!r} is not change {seq}")
            commit, seq = entry.commit, seq + 1
            ops[entry.op] = ops.get(entry.op, 0) + 1
    check(seq == 0, "the log ends in the middle of something")
    return ops, wholes
