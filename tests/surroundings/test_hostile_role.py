"""What a role, a database and a server set for ordinary sessions acts on no session of ours.

A real PostgreSQL and a real log. Every setting that decides which rows are seen, how a value is
written or how long a session may last is hostile, at all three places; the tables are `SELECT *`
all the same. A copy that is refused or ended leaves no records in the log. Nor does it matter
whether anything reads what the shipper says.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from logservice_client import LogClient, SyncLogClient

from examples.postgres.address import Address
from examples.postgres.replication import Connection
from examples.postgres.server import ORDINARY, Postgres
from examples.postgres.wal_position import position_of
from examples.postgres_changes import tool
from examples.postgres_changes.delta_table import KEY
from examples.postgres_changes.followers import Program
from examples.postgres_changes.followers import tool as tool_command
from examples.postgres_changes.log_end import end_of
from examples.postgres_changes.tool import REFUSED
from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import started_cluster
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not os.environ.get("LOGSERVICE_REQUIRE_POSTGRES"),
        reason="they need a PostgreSQL: `make test-surroundings`",
    ),
]

CLUSTER: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
}

HOSTILE = {
    "statement_timeout": "'1ms'",
    "lock_timeout": "'1ms'",
    "idle_in_transaction_session_timeout": "'1ms'",
    "idle_session_timeout": "'1ms'",
    "wal_sender_timeout": "'1s'",
    "row_security": "on",
    "search_path": "'traps'",
    "datestyle": "'SQL, DMY'",
    "intervalstyle": "'sql_standard'",
    "timezone": "'Asia/Kathmandu'",
    "extra_float_digits": "-15",
    "bytea_output": "'escape'",
    "client_encoding": "'LATIN1'",
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
    "transform_null_equals": "on",
    "default_transaction_isolation": "'serializable'",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "xmlbinary": "'hex'",
    "gin_fuzzy_search_limit": "1",
}
"""`lc_monetary` is not among them: Debian's image has no locale but C."""

TABLE = """
CREATE TABLE t (id int PRIMARY KEY, made timestamptz, took interval, share float8, raw bytea,
                name text, of regclass, cost money, day date);
CREATE FUNCTION filled(first int, last int) RETURNS void LANGUAGE sql AS $$
  INSERT INTO public.t SELECT i, '2026-03-04 05:06:07.89+00'::timestamptz + i * interval '1 h',
    i * interval '1 day 2 h', i / 3.0, decode(md5(i::text), 'hex'), E'\\u00fc\\\\' || i,
    'public.t', (i / 7.0)::numeric::money, '2026-03-04'::date + i
  FROM generate_series(first, last) i
$$;
CREATE SCHEMA traps;
CREATE VIEW traps.pg_publication_tables AS SELECT * FROM pg_catalog.pg_publication_tables LIMIT 0;
CREATE PUBLICATION logservice FOR TABLE t;
"""

FIRST = ["1", "2026-03-04 06:06:07.89+00", "1 day 02:00:00", "0.3333333333333333"]
FIRST += ["\\xc4ca4238a0b923820dcc509a6f75849b", "ü\\1", "public.t", "$0.14", "2026-03-05"]
"""A row of the table, as it is written where nobody has set anything."""


@dataclass
class Place:
    """A server, a database with rows, a role that ships, and a log."""

    server: Postgres
    cluster: LocalCluster
    folder: Path
    database: str
    role: str
    shard: int

    def sql(self, *statements: str) -> list[list[bytes | None]]:
        """As the superuser."""
        return asyncio.run(self._sql(self.server.address, statements))

    async def _sql(self, address: Address, statements: tuple[str, ...]) -> list[list[bytes | None]]:
        parameters = ORDINARY | {"database": self.database}
        connection = await Connection.connect(address, parameters, body_bytes_max=1 << 26)
        try:
            rows: list[list[bytes | None]] = []
            for one in statements:
                rows = (await connection.query(one)).rows
            return rows
        finally:
            connection.close()

    def shipper(self) -> Program:
        where = ["--host", self.server.address.host, "--port", str(self.server.address.port)]
        who = ["--user", self.role, "--database", self.database, "--slot", f"slot_{self.database}"]
        command = tool_command("ship", "--shard", str(self.shard), "--name", "db", *where, *who)
        return Program(command, self.variables, self.folder / "shipper.log")

    @property
    def variables(self) -> dict[str, str]:
        return {"LOGSERVICE_ENDPOINTS": ",".join(self.cluster.endpoints())}

    def reached(self) -> int:
        """The position up to which the log has everything."""

        async def asked() -> int:
            async with LogClient(self.cluster.endpoints()) as client:
                mark = (await end_of(client.shard(self.shard))).mark
                return 0 if mark is None else mark.end

        return asyncio.run(asked())

    def records(self) -> int:
        """How many the log has."""
        with SyncLogClient(self.cluster.endpoints()) as client:
            return client.shard(self.shard).status().position.applied_lsn

    def ship(self, *, while_it_ships: Callable[[], None] = lambda: None) -> None:
        """From here on until everything that is committed then is in the log."""
        shipper = self.shipper()
        shipper.start()
        try:
            wait_until(lambda: self.reached() or not shipper.runs)
            while_it_ships()
            ((text, *_),) = self.sql("SELECT pg_current_wal_flush_lsn()")
            goal = position_of((text or b"").decode())
            wait_until(lambda: self.reached() >= goal or not shipper.runs)
            assert shipper.runs, shipper.said()
        finally:
            shipper.kill()

    def check(self) -> None:
        """The Delta table is PostgreSQL's, text by text."""
        command = ["table", "--shard", str(self.shard), "--dir", str(self.folder / "delta")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOGSERVICE_ENDPOINTS", self.variables["LOGSERVICE_ENDPOINTS"])
            assert tool.main([*command, "--table", "public.t"]) == 0
        found = DeltaTable(str(self.folder / "delta" / "public.t")).to_pyarrow_table()
        names = [name for name in found.column_names if name != KEY]
        rows = [[row[name] for name in names] for row in found.to_pylist()]
        asked = self.sql("SET search_path = pg_catalog", "SELECT * FROM public.t")
        texts = [[None if one is None else one.decode() for one in row] for row in asked]
        assert sorted(rows, key=str) == sorted(texts, key=str)
        assert FIRST in rows


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(
        tmp_path_factory.mktemp("cluster") / "c", stores=1, settings=CLUSTER
    ) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    # Not pytest's own folder: its path is longer than a unix socket's may be.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    folder.chmod(0o755)
    made = Postgres(folder / "s")
    try:
        made.create(synchronous_standby_names="''", wal_level="logical")
        made.start()
        made.wait()
        yield made
    finally:
        made.kill()
        shutil.rmtree(folder)


@pytest.fixture
def place(server: Postgres, cluster: LocalCluster, tmp_path: Path) -> Iterator[Place]:
    with SyncLogClient(cluster.endpoints()) as client:
        shard = client.hakeeper.create_shard()
    database, role = f"d{shard}", f"shipper{shard}"
    server.query(f"CREATE DATABASE {database}")
    server.query(f"CREATE ROLE {role} LOGIN REPLICATION")
    made = Place(server, cluster, tmp_path, database, role, shard)
    made.sql(TABLE, f"GRANT SELECT ON t TO {role}", "SELECT filled(1, 5000)")
    yield made
    for name in HOSTILE:
        server.query(f"ALTER SYSTEM RESET {name}")
    server.query("SELECT pg_reload_conf()")


def be_hostile(place: Place, scope: str) -> None:
    whom = {"role": f"ROLE {place.role}", "database": f"DATABASE {place.database}"}
    for name, value in HOSTILE.items():
        if scope == "server":
            place.server.query(f"ALTER SYSTEM SET {name} = {value}")
        else:
            place.server.query(f"ALTER {whom[scope]} SET {name} = {value}")
    if scope == "server":
        place.server.query("SELECT pg_reload_conf()")
    if scope == "role":
        place.server.query(f"CREATE ROLE nobody{place.shard}")
        place.server.query(f"GRANT nobody{place.shard} TO {place.role}")
        place.server.query(f"ALTER ROLE {place.role} SET role = nobody{place.shard}")


def change(place: Place) -> None:
    place.sql(
        "SELECT filled(5001, 5050)",
        "UPDATE t SET share = share + 0.1, took = took * 1.5, cost = NULL WHERE id % 7 = 0",
        "DELETE FROM t WHERE id % 11 = 0",
    )


@pytest.mark.parametrize("scope", ["role", "database", "server"])
def test_settings_of_ordinary_sessions_act_on_none_of_ours(place: Place, scope: str) -> None:
    be_hostile(place, scope)
    place.ship(while_it_ships=lambda: change(place))
    place.check()
    assert "interrupted" not in (place.folder / "shipper.log").read_text()


def test_row_security_is_an_error_rather_than_fewer_rows(place: Place) -> None:
    """And the log has not a record more, however often the copy is begun."""
    place.sql("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    before = place.records()
    for _ in range(2):
        shipper = place.shipper()
        shipper.start()
        assert shipper.wait(120) == REFUSED, shipper.said()
    assert "public.t" in shipper.said()
    assert "BYPASSRLS" in shipper.said()
    assert place.records() == before
    place.sql(f"ALTER ROLE {place.role} BYPASSRLS")
    place.ship(while_it_ships=lambda: change(place))
    place.check()


def test_a_copy_that_fails_in_its_last_table_does_not_grow_the_log(place: Place) -> None:
    """However often it is begun: 3 MB of rows come before that table."""
    place.sql(
        "SELECT filled(6000, 18000)",
        "CREATE TABLE z (id int PRIMARY KEY)",
        "ALTER PUBLICATION logservice ADD TABLE z",
    )
    before = place.records()
    for _ in range(2):
        shipper = place.shipper()
        shipper.start()
        assert shipper.wait(120) != 0, shipper.said()
        assert "permission denied for table z" in shipper.said()
        assert place.records() == before
    place.sql(f"GRANT SELECT ON z TO {place.role}")
    place.ship(while_it_ships=lambda: change(place))
    place.check()


def test_a_shipper_goes_on_while_nothing_reads_what_it_says(place: Place) -> None:
    os.mkfifo(place.folder / "shipper.log")
    end = os.open(place.folder / "shipper.log", os.O_RDWR | os.O_NONBLOCK)
    try:
        for size in (65536, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(end, b"x" * size)
        place.ship(while_it_ships=lambda: change(place))
    finally:
        os.close(end)
    place.check()
