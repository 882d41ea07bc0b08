"""A real PostgreSQL and a real log: files of WAL byte for byte, and a shipper that is killed.

They take a minute or two, and need Debian's postgresql: `make test-postgres`, which installs it.
The story as a whole is `make demo-postgres`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from logservice_client import LogClient, Shard, SyncLogClient

from examples.postgres.server import Postgres, PostgresFailed, as_postgres
from examples.postgres.wal_position import position_of, segment_name, segment_start
from examples.postgres_wal import wal_log
from examples.postgres_wal.shipper_process import ShipperProcess
from examples.postgres_wal.tool import FAILED, NO_SUCH_FILE, REFUSED, restore_command
from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import started_cluster
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not os.environ.get("LOGSERVICE_REQUIRE_POSTGRES"),
        reason="they need a PostgreSQL: `make test-postgres`",
    ),
]

T = TypeVar("T")

LOG2 = 20
SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(
        tmp_path_factory.mktemp("cluster") / "c", stores=1, settings=SETTINGS
    ) as running:
        yield running


class Place:
    """A folder for servers, and a new log."""

    def __init__(self, folder: Path, cluster: LocalCluster, shard: int) -> None:
        self.folder, self.cluster, self.shard = folder, cluster, shard
        self.servers: list[Postgres] = []
        self.shippers: list[ShipperProcess] = []
        self.variables = {"LOGSERVICE_ENDPOINTS": ",".join(cluster.endpoints())}

    def server(self, name: str) -> Postgres:
        server = Postgres(self.folder / name)
        self.servers.append(server)
        return server

    def new_server(self) -> Postgres:
        server = self.server("a")
        server.create(segment_mib=1)
        server.start()
        server.wait()
        return server

    def ship(self, server: Postgres, name: str = "db-1") -> ShipperProcess:
        output = self.folder / f"{name}.log"
        shipper = ShipperProcess(server, name, self.cluster.endpoints(), self.shard, output)
        self.shippers.append(shipper)
        return shipper

    def file(self, name: str) -> bytes | None:
        return asyncio.run(self._asked(lambda log: wal_log.file_named(log, name)))

    def reaches(self, position: int) -> bool:
        last = asyncio.run(self._asked(wal_log.last_chunk))
        return last is not None and last.end >= position

    async def _asked(self, question: Callable[[Shard], Awaitable[T]]) -> T:
        async with LogClient(self.cluster.endpoints()) as client:
            return await question(client.shard(self.shard))


@pytest.fixture
def place(cluster: LocalCluster) -> Iterator[Place]:
    # Not pytest's own folder: PostgreSQL's user may not pass through it, and its path is longer
    # than a unix socket's may be.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    folder.chmod(0o755)
    with SyncLogClient(cluster.endpoints()) as client:
        made = Place(folder, cluster, client.hakeeper.create_shard())
    try:
        yield made
    finally:
        for shipper in made.shippers:
            shipper.kill()
        for server in made.servers:
            server.kill()
        shutil.rmtree(folder)


def flushed(server: Postgres) -> int:
    return position_of(server.value("SELECT pg_current_wal_flush_lsn()"))


def fill(server: Postgres, rows: int) -> None:
    server.query(
        "CREATE TABLE IF NOT EXISTS t (a bigint, b text);"
        f"INSERT INTO t SELECT a, repeat(md5(a::text), 8) FROM generate_series(1, {rows}) a"
    )


def fill_locally(server: Postgres, rows: int) -> None:
    """Without waiting for the log."""
    server.query(
        "SET synchronous_commit = local;"
        f"INSERT INTO t SELECT a, repeat(md5(a::text), 8) FROM generate_series(1, {rows}) a"
    )


def test_files_are_those_of_pg_receivewal(place: Place) -> None:
    server = place.new_server()
    place.ship(server)
    fill(server, 10)  # acknowledged: it ships
    received = place.folder / "a" / "received"
    subprocess.run(as_postgres(["mkdir", received]), check=True)
    receiving = subprocess.Popen(
        as_postgres([server.programs / "pg_receivewal", *server.place, "-D", received])
    )
    try:
        fill(server, 20_000)
        end = flushed(server)
        names = [
            segment_name(1, start, LOG2)
            for start in range(segment_start(end, LOG2) - (4 << LOG2), end, 1 << LOG2)
        ]
        *whole, last = names

        wait_until(lambda: all((received / name).exists() for name in whole))
    finally:
        receiving.terminate()
        receiving.wait()
    for name in whole:
        assert place.file(name) == (received / name).read_bytes(), name
    # The last one: as far as there is WAL. Behind, PostgreSQL's own file has older WAL.
    own = (server.data / "pg_wal" / last).read_bytes()
    found = place.file(last)
    assert found is not None
    there = end - segment_start(end, LOG2)
    assert found[:there] == own[:there]
    assert len(found) == len(own)


def test_a_shipper_is_killed_again_and_again(place: Place) -> None:
    server = place.new_server()
    shipper = place.ship(server)
    fill(server, 10)
    begin = segment_start(flushed(server), LOG2) + (1 << LOG2)
    for kill in range(4):
        fill_locally(server, 4000)
        if kill % 2:  # in the middle of it, or when it has caught up
            fill(server, 1)
        shipper.kill()
        shipper = place.ship(server)
    fill(server, 1)  # acknowledged, so everything before is in the log
    end = flushed(server)
    assert end > begin + (3 << LOG2)
    for start in range(begin, segment_start(end, LOG2), 1 << LOG2):
        name = segment_name(1, start, LOG2)
        own = server.data / "pg_wal" / name
        assert place.file(name) == own.read_bytes(), name


def test_a_server_is_promoted_where_it_stands(place: Place) -> None:
    """It ends timeline 1 behind what was shipped: that comes first, then timeline 2."""
    server = place.new_server()
    shipper = place.ship(server)
    fill(server, 10)
    shipper.kill()
    fill_locally(server, 4000)
    rows = server.value("SELECT count(*) FROM t")
    server.stop()
    (server.data / "recovery.signal").touch()
    server.configure({"restore_command": "'false'"})
    server.start()
    server.wait()
    place.ship(server)
    server.query("INSERT INTO t VALUES (0, 'acknowledged on timeline 2')")
    assert place.reaches(flushed(server))
    assert place.file("00000002.history") is not None
    end = flushed(server)
    own = (server.data / "pg_wal" / segment_name(2, end, LOG2)).read_bytes()
    found = place.file(segment_name(2, end, LOG2))
    assert found is not None
    there = end - segment_start(end, LOG2)
    assert found[:there] == own[:there]
    assert server.value("SELECT count(*) FROM t") == str(int(rows) + 1)


def test_a_server_that_is_shut_down_and_started_again(place: Place) -> None:
    """It waits until its last record is shipped; the same shipper goes on with it afterwards."""
    server = place.new_server()
    shipper = place.ship(server)
    fill(server, 10)
    server.stop()
    said = server.run("pg_controldata", "-D", server.data)
    (line,) = [line for line in said.splitlines() if line.startswith("Latest checkpoint location")]
    assert place.reaches(position_of(line.split()[-1]) + 1)
    server.start()
    server.wait()
    fill(server, 10)
    assert place.reaches(flushed(server))
    assert shipper.code is None


def test_a_server_of_another_system_is_turned_away(place: Place) -> None:
    server = place.new_server()
    shipper = place.ship(server)
    fill(server, 10)
    shipper.kill()
    other = place.server("b")
    other.create(segment_mib=1)
    other.start()
    other.wait()
    turned_away = place.ship(other)
    assert turned_away.wait(120) == REFUSED
    assert "database system" in turned_away.said()


def test_recovery_stops_when_the_log_cannot_be_asked(place: Place) -> None:
    """It must not take an outage, or a Python that cannot start, for the end of the WAL."""
    server = place.new_server()
    place.ship(server)
    fill(server, 10)
    backup = place.folder / "a" / "backup"
    server.base_backup(backup)
    fill(server, 10)
    command = restore_command(place.variables, place.shard)
    broken = {
        "b": command.replace("examples.postgres_wal.tool", "examples.postgres_wal.gone"),
        "c": command.replace(f"--shard {place.shard}", "--shard 424242"),
        "d": command.replace(sys.executable, "/nowhere/python"),
    }
    for name, wrong in broken.items():
        restored = place.server(name)
        restored.restore(backup, {"restore_command": "'" + wrong + "'"})
        restored.start()
        with pytest.raises(PostgresFailed, match="exit code 255"):
            restored.wait()
    restored = place.server("e")
    restored.restore(backup, {"restore_command": "'" + command + "'"})
    restored.start()
    restored.wait()
    assert restored.value("SELECT count(*) FROM t") == "20"


def test_the_program_that_restores(place: Place) -> None:
    server = place.new_server()
    place.ship(server)
    fill(server, 10)
    tool = [sys.executable, "-m", "examples.postgres_wal.tool", "restore"]
    tool += ["--shard", str(place.shard)]
    environment = {**os.environ, **place.variables}

    def code(file: str, **more: str) -> int:
        return subprocess.run(
            [*tool, file, str(place.folder / "file")],
            env={**environment, **more},
            check=False,
        ).returncode

    assert code(segment_name(1, flushed(server), LOG2)) == 0
    assert (place.folder / "file").stat().st_size == 1 << LOG2
    assert code("00000002.history") == NO_SUCH_FILE
    assert code(segment_name(1, flushed(server) + (9 << LOG2), LOG2)) == NO_SUCH_FILE
    assert code("00000002.history", LOGSERVICE_ENDPOINTS="") == FAILED
