"""The story: what happens, in order, and what must hold at each point.

`Story.run` reads like the README's description of the demo. Each step raises DemoFailed when what
it says did not happen.

Three servers play in it. *db-1* is lost with its machine, and *db-2* is restored in its place.
*db-3* takes over from db-2 while that one still runs and thinks that it is the database.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from logservice_client import LogClient, Shard

from examples.demo.screen import Screen, check
from examples.demo.watch import Watch
from examples.postgres.server import Postgres, give_to_postgres
from examples.postgres.wal_position import position_text
from examples.postgres_wal import wal_log
from examples.postgres_wal.shipper_process import ShipperProcess
from examples.postgres_wal.tool import TAKEN, restore_command
from examples.postgres_wal.workload import (
    BENCH_CLIENTS,
    SCHEMA,
    Bench,
    Remembering,
    balances,
    remembered,
    state,
)
from logservice.cli.processes.local_cluster import LocalCluster

T = TypeVar("T")

SHARD: Final = 1
STORES: Final = 3
SEGMENT_MIB: Final = 4
"""Smaller than PostgreSQL's default of 16, so that the story has several files of WAL."""

SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "storage": {"segment_bytes": 4 * 1024 * 1024, "ballast_bytes": 0},
}

LIMIT_S: Final = 180.0
"""For everything that is waited for. It says that something hangs, not that it is slow."""

WAITING_WATCH_S: Final = 2.0
"""How long clients are watched whose commits must not be acknowledged."""


@dataclass(frozen=True, slots=True)
class Size:
    """How long a story is: commits that the remembering clients wait for at each point."""

    commits: int
    scale: int
    latency_s: int
    """Seconds of each measurement of how long a commit takes."""


LONG: Final = Size(commits=1500, scale=5, latency_s=10)
SHORT: Final = Size(commits=200, scale=1, latency_s=1)

_LATENCY: Final = re.compile(r"^latency average = ([\d.]+) ms$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Moment:
    """The database at a time, while nobody wrote."""

    time: str
    state: dict[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Load:
    """Who writes into a server."""

    clients: Remembering
    bench: Bench


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
        self.backup = directory / "backup" / "base"
        self._servers: list[Postgres] = []
        self._shippers: list[ShipperProcess] = []
        self._clients: list[Remembering] = []
        self._shipper: ShipperProcess  # the newest

    def run(self) -> None:
        """The whole story."""
        self.directory.chmod(0o755)  # PostgreSQL's user passes through it
        first = self.start()
        self.ship(first, "db-1")
        self.fill(first)
        self.measure(first)
        before = self.load(first, 1)
        self.back_up(first)
        killed = self.kill_leader(before.clients)
        self.kill_shipper(first, before.clients)
        self.truncate(killed)
        moment = self.remember_the_moment(first, before)
        after = self.load(first, 2)
        self.lose_the_machine(first, after)
        second = self.restore("db-2", "the machine is replaced from the base backup and the log")
        self.compare(second, [before, after])
        self.go_back(moment)
        clients = self.go_on(second)
        self.replace_a_living_one(second, [before.clients, after.clients, clients])

    def close(self) -> None:
        """Stop what runs."""
        for shipper in self._shippers:
            shipper.kill()
        for server in self._servers:
            server.kill()
        for client in self._clients:
            client.end()
        self.cluster.down()

    # --- a database that ships --------------------------------------------------------------------

    def start(self) -> Postgres:
        """Three stores and an empty database."""
        with self.screen.step(f"{STORES} stores and PostgreSQL start") as step:
            self.cluster.up(LIMIT_S)
            server = self._server("db-1")
            server.create(segment_mib=SEGMENT_MIB)
            server.start()
            server.wait()
            step.say(server.value("SHOW server_version"))
            step.say(
                f"synchronous_standby_names = {server.value('SHOW synchronous_standby_names')}"
            )
        return server

    def ship(self, server: Postgres, name: str) -> ShipperProcess:
        """A shipper for it, which PostgreSQL takes as its synchronous standby."""
        output = self.directory / f"{name}-shipper.log"
        shipper = ShipperProcess(server, name, self.cluster.endpoints(), SHARD, output)
        self._shippers.append(shipper)
        self._shipper = shipper
        return shipper

    def fill(self, server: Postgres) -> None:
        """Make pgbench's tables; every commit of it waits for the log already."""
        with self.screen.step("the database is filled") as step:
            self._wait("the shipper is the synchronous standby", lambda: self._synchronous(server))
            server.query("CREATE EXTENSION amcheck")
            server.query(SCHEMA)
            scale = str(self.size.scale)
            server.run("pgbench", *server.place, "-i", "-q", "-s", scale, "postgres")
            step.say(f"pgbench, scale {scale}; WAL up to {self._position(server)}")

    def measure(self, server: Postgres) -> None:
        """How long a commit of one row takes, in PostgreSQL alone and with the log. Nothing is
        checked: it depends on the machine.
        """
        with self.screen.step("how long a commit takes") as step:
            server.query("CREATE TABLE measured (a int)")
            script = self.directory / "one-row.sql"
            script.write_text("INSERT INTO measured VALUES (1);\n")
            words = ["-n", "-f", str(script), "-T", str(self.size.latency_s)]
            for clients in (1, 8):
                taken = []
                for wait in ("local", "on"):
                    place = f"dbname=postgres options='-c synchronous_commit={wait}'"
                    more = [*words, "-c", str(clients), place]
                    said = server.run("pgbench", *server.place, *more)
                    (average,) = _LATENCY.findall(said)
                    taken.append(average)
                alone, with_log = taken
                step.say(f"{clients} clients: {alone} ms alone, {with_log} ms with the log")

    def load(self, server: Postgres, part: int) -> Load:
        """pgbench, and clients that remember what was acknowledged."""
        clients = self._remembering(server, part)
        bench = Bench(server, self.directory / f"pgbench-{part}")
        bench.start()
        self._more(clients, self.size.commits // 2)
        return Load(clients, bench)

    def back_up(self, server: Postgres) -> None:
        """A base backup, while everybody writes."""
        with self.screen.step("a base backup is made (pg_basebackup, without WAL)") as step:
            give_to_postgres(self.backup.parent)
            server.base_backup(self.backup)
            step.say((self.backup / "backup_label").read_text().splitlines()[0])

    def kill_leader(self, clients: Remembering) -> str:
        """SIGKILL of the log's leader in the middle; commits go on."""
        with self.screen.step("the log's leader is killed (SIGKILL)") as step:
            leader = self._leader()
            killed_at = time.monotonic()
            check(self.cluster.kill(leader), f"{leader} did not run")
            # An ack that the dying leader had sent does not count: a commit that began without it.
            self._wait(
                "commits go on",
                lambda: any(ack.began > killed_at + 1.0 for ack in clients.acks[-50:]),
            )
            self._more(clients, self.size.commits)
            longest = max(
                ack.ended - max(ack.began, killed_at)
                for ack in clients.acks
                if ack.ended > killed_at
            )
            step.say(f"{leader} killed; the longest wait of a commit was {longest:.2f} s")
            check(self._leader() != leader, f"{leader} leads though it is dead")
            self.cluster.start(leader)
        return leader

    def kill_shipper(self, server: Postgres, clients: Remembering) -> None:
        """SIGKILL of the shipper: commits wait until there is another one."""
        with self.screen.step("the shipper is killed (SIGKILL), and started again") as step:
            killed_at = time.monotonic()
            self._shipper.kill()
            self._watch_waiting(server, clients)
            self.ship(server, "db-1")
            self._more(clients, self.size.commits)
            longest = max(ack.ended - ack.began for ack in clients.acks if ack.ended > killed_at)
            step.say(f"no commit without it; the longest wait was {longest:.2f} s")

    def truncate(self, killed: str) -> None:
        """What lies below the base backup goes."""
        with self.screen.step("the log is truncated below the base backup") as step:
            said = self._tool("truncate", "--name", "db-1", str(self.backup))
            first = asyncio.run(self._asked(_first_lsn))
            check(first > 1, f"nothing was truncated: {said}")
            step.say(said)
            step.say(f"the log begins at LSN {first}; {killed} runs again")

    def remember_the_moment(self, server: Postgres, load: Load) -> Moment:
        """Everybody pauses, and the content of all tables is written down, with the time."""
        with self.screen.step("a moment is remembered") as step:
            load.clients.end()
            load.bench.end()
            moment = Moment(server.value("SELECT clock_timestamp()"), state(server))
            step.say(moment.time)
            step.say(f"{moment.state['remembered'][0]} rows remembered")
            step.say(f"{moment.state['pgbench_history'][0]} transactions of pgbench")
        return moment

    # --- the loss ---------------------------------------------------------------------------------

    def lose_the_machine(self, server: Postgres, load: Load) -> None:
        """PostgreSQL is killed in the middle of its commits, and its directory is removed."""
        with self.screen.step("the database's machine is lost") as step:
            self._more(load.clients, self.size.commits)
            server.kill()
            self._shipper.kill()
            load.clients.join()
            load.bench.join()
            shutil.rmtree(server.directory)
            check(not load.clients.remarks, f"PostgreSQL remarked: {load.clients.remarks[:1]}")
            check(load.bench.failed, "pgbench was not in the middle of anything")
            step.say("PostgreSQL and its shipper killed, the whole directory removed")

    def restore(self, name: str, title: str, **recovery: str) -> Postgres:
        """The log is taken over, then a new server is restored from base backup and log."""
        with self.screen.step(title) as step:
            if not recovery:
                step.say(self._tool("take-over", "--name", name))
            began = time.monotonic()
            server = self._server(name)
            command = restore_command(self._variables(), SHARD)
            server.restore(self.backup, {"restore_command": _quoted(command), **recovery})
            server.start()
            server.wait(recovered=not recovery)
            if recovery:
                self._wait("it has recovered", lambda: _paused(server))
            files = server.log.read_text(errors="replace").count("restored log file")
            step.say(f"{files} files out of the log in {time.monotonic() - began:.1f} s")
        return server

    def compare(self, server: Postgres, loads: list[Load]) -> None:
        """Everything acknowledged is there, and nothing is torn."""
        with self.screen.step("the restored database is compared") as step:
            acked = {ack.id for one in loads for ack in one.clients.acks}
            found = remembered(server)
            check(acked <= found, f"{len(acked - found)} acknowledged commits are lost")
            step.say(f"all {len(acked)} acknowledged commits are there")
            step.say(f"{len(found) - len(acked)} that were under way, too")
            check(len(balances(server)) == 1, f"sums differ: {balances(server)}")
            rows = int(server.value("SELECT count(*) FROM pgbench_history"))
            done = sum(one.bench.acked for one in loads)
            check(
                done <= rows <= done + BENCH_CLIENTS,
                f"pgbench was told of {done} transactions, and there are {rows}",
            )
            step.say(f"pgbench's sums agree; {rows} transactions, {done} acknowledged")
            server.run("pg_amcheck", *server.place, "--heapallindexed", "postgres")
            step.say("pg_amcheck finds nothing")
            server.stop()
            said = server.run("pg_checksums", "--check", "-D", server.data)
            check("Bad checksums:  0" in said, said)
            step.say("pg_checksums: no bad page")
            server.start()
            server.wait()

    def go_back(self, moment: Moment) -> None:
        """A server as it was at the moment, and not a commit more."""
        server = self.restore(
            "then",
            "a server is restored to the moment",
            recovery_target_time=_quoted(moment.time),
            recovery_target_action="'pause'",
        )
        with self.screen.step("its tables are those of the moment") as step:
            found = state(server)
            check(found == moment.state, f"{found} and not {moment.state}")
            step.say("rows and content of every table are equal")
            server.remove()
            self._servers.remove(server)

    # --- going on ---------------------------------------------------------------------------------

    def go_on(self, server: Postgres) -> Remembering:
        """The new server ships into the same log, on its own timeline; the old shipper cannot."""
        with self.screen.step("db-2 goes on with the log") as step:
            zombie = self.ship(server, "db-1")
            code = zombie.wait(LIMIT_S)
            check(code == TAKEN, f"the shipper of db-1 ended with {code}: {zombie.said()}")
            step.say("a shipper by the name of db-1 is turned away")
            self.ship(server, "db-2")
            clients = self._remembering(server, 3)
            self._more(clients, self.size.commits)
            step.say(f"{len(clients.acks)} commits; {self._end()}")
        return clients

    def replace_a_living_one(self, old: Postgres, clients: list[Remembering]) -> None:
        """A server takes over while the old one and its shipper run, which gets no more acks."""
        shipper = self._shipper
        server = self.restore("db-3", "db-3 takes over from db-2, which still runs")
        with self.screen.step("db-2 is a zombie") as step:
            waiting = clients[-1]
            code = shipper.wait(LIMIT_S)
            check(code == TAKEN, f"its shipper ended with {code}: {shipper.said()}")
            again = self.ship(old, "db-2")
            check(again.wait(LIMIT_S) == TAKEN, "its shipper got the log back")
            self._watch_waiting(old, waiting)
            step.say("its shipper is turned away twice, and its clients wait for ever")
            old.kill()
            waiting.join()
            check(not waiting.remarks, f"{waiting.remarks[:1]}")
            found = remembered(server)
            everybody = {ack.id for one in clients for ack in one.acks}
            check(everybody <= found, f"{len(everybody - found)} acknowledged commits are lost")
            step.say(f"all {len(everybody)} commits that db-1 and db-2 acknowledged are in db-3")
        with self.screen.step("db-3 goes on with the log") as step:
            self.ship(server, "db-3")
            third = self._remembering(server, 4)
            self._more(third, self.size.commits)
            third.end()
            check(len(balances(server)) == 1, f"sums differ: {balances(server)}")
            end = self._end()
            check("timeline 3" in end, end)
            step.say(f"{len(third.acks)} commits; {end}")

    # --- helpers ----------------------------------------------------------------------------------

    def _server(self, name: str) -> Postgres:
        server = Postgres(self.directory / name)
        self._servers.append(server)
        return server

    def _remembering(self, server: Postgres, part: int) -> Remembering:
        clients = Remembering(server, part * 10_000_000)
        self._clients.append(clients)
        clients.start()
        return clients

    def _more(self, clients: Remembering, commits: int) -> None:
        """Wait for so many more acknowledged commits."""
        goal = len(clients.acks) + commits

        def progress() -> tuple[int, int]:
            check(self._shipper.code is None, f"the shipper has ended: {self._shipper.said()}")
            return min(len(clients.acks), goal), goal

        self.screen.wait("commits", progress, limit_s=LIMIT_S)

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        self.screen.wait(what, lambda: (int(condition()), 1), limit_s=LIMIT_S)

    def _watch_waiting(self, server: Postgres, clients: Remembering) -> None:
        """Every client waits for the standby, and none gets anything acknowledged."""
        sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = '' AND wait_event = "
        waiting = f"{sql} 'SyncRep'"
        self._wait("every commit waits", lambda: int(server.value(waiting)) == clients.clients)
        acked = len(clients.acks)
        time.sleep(WAITING_WATCH_S)
        check(int(server.value(waiting)) == clients.clients, "a commit waits no more")
        check(len(clients.acks) == acked, "a commit was acknowledged without the standby")

    def _synchronous(self, server: Postgres) -> bool:
        return (
            server.value("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
            == "1"
        )

    def _position(self, server: Postgres) -> str:
        return server.value("SELECT pg_current_wal_flush_lsn()")

    def _leader(self) -> str:
        return self.watch.some_leader(
            SHARD, lambda there: self._wait("the log has a leader", there)
        )

    def _tool(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "examples.postgres_wal.tool", *words, "--shard", str(SHARD)],
            env={**os.environ, **self._variables()},
            capture_output=True,
            text=True,
            check=False,
        )
        check(done.returncode == 0, f"{words[0]}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def _variables(self) -> dict[str, str]:
        return {"LOGSERVICE_ENDPOINTS": ",".join(self.cluster.endpoints())}

    def _end(self) -> str:
        """What the log ends with, in words."""
        last = asyncio.run(self._asked(wal_log.last_chunk))
        assert last is not None
        return f"the log ends with timeline {last.timeline} at {position_text(last.end)}"

    async def _asked(self, question: Callable[[Shard], Awaitable[T]]) -> T:
        async with LogClient(self.cluster.endpoints()) as client:
            return await question(client.shard(SHARD))


async def _first_lsn(log: Shard) -> int:
    return (await log.status()).position.first_lsn


def _paused(server: Postgres) -> bool:
    return server.value("SELECT pg_get_wal_replay_pause_state()") == "paused"


def _quoted(value: str) -> str:
    """A value of PostgreSQL's configuration."""
    return "'" + value.replace("'", "''") + "'"
