"""Which columns tell a table's rows apart: a real PostgreSQL, a real log, tables beside `SELECT *`.

They need Debian's postgresql: `make test-postgres`, which installs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from logservice_client import LogClient, SyncLogClient

from examples.postgres.replication import Connection
from examples.postgres.server import ORDINARY, Postgres
from examples.postgres.wal_position import position_of
from examples.postgres_changes import tool
from examples.postgres_changes.catalog import PARAMETERS
from examples.postgres_changes.delta_table import KEY
from examples.postgres_changes.log_end import end_of
from examples.postgres_changes.shipper import Shipper
from examples.postgres_changes.transactions import ShippingRefused
from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import started_cluster

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not os.environ.get("LOGSERVICE_REQUIRE_POSTGRES"),
        reason="they need a PostgreSQL: `make test-postgres`",
    ),
]

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
}
LIMIT_S = 120.0


@dataclass
class Place:
    """A database of a server, and a new log."""

    server: Postgres
    cluster: LocalCluster
    folder: Path
    database: str
    shard: int

    def sql(self, *statements: str) -> list[list[bytes | None]]:
        """Each in a transaction of its own; the rows of the last one."""
        return asyncio.run(self._sql(statements))

    async def _sql(self, statements: tuple[str, ...]) -> list[list[bytes | None]]:
        connection = await self._connect(replication=False)
        try:
            rows: list[list[bytes | None]] = []
            for one in statements:
                rows = (await connection.query(one)).rows
            return rows
        finally:
            connection.close()

    def ship(self) -> None:
        """A shipper from its beginning until everything that is committed now is in the log."""
        asyncio.run(self._ship())

    def copy(self) -> None:
        """A new copy of all tables."""
        asyncio.run(self._copy())

    async def _ship(self) -> None:
        ((text, *_), *_) = await self._sql(("SELECT pg_current_wal_flush_lsn()",))
        goal = position_of((text or b"").decode())
        async with LogClient(self.cluster.endpoints()) as client:
            log = client.shard(self.shard)
            shipping = asyncio.create_task(self._shipper(client).run())
            try:
                async with asyncio.timeout(LIMIT_S):
                    while True:
                        mark = (await end_of(log)).mark
                        if shipping.done() or (mark is not None and mark.end >= goal):
                            break
                        # WAL without a change is told of only together with the next one.
                        await self._sql(("INSERT INTO beat DEFAULT VALUES",))
                        await asyncio.sleep(0.05)
            finally:
                shipping.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await shipping

    async def _copy(self) -> None:
        async with LogClient(self.cluster.endpoints()) as client:
            await self._shipper(client).copy()

    def _shipper(self, client: LogClient) -> Shipper:
        slot = f"slot_{self.database}"
        log = client.shard(self.shard)
        return Shipper(log, "db", slot, "logservice", self._connect, lambda text: None)

    async def _connect(self, *, replication: bool = True) -> Connection:
        parameters = (PARAMETERS if replication else ORDINARY) | {"database": self.database}
        return await Connection.connect(self.server.address, parameters, body_bytes_max=1 << 26)

    def check(self, *tables: str) -> None:
        """Each Delta table is PostgreSQL's, row by row."""
        words = [word for table in tables for word in ("--table", f"public.{table}")]
        folder = self.folder / "delta"
        command = ["table", "--shard", str(self.shard), "--dir", str(folder), *words]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOGSERVICE_ENDPOINTS", ",".join(self.cluster.endpoints()))
            assert tool.main(command) == 0
        for table in tables:
            ((text, *_),) = self.sql(f"SELECT json_agg(t) FROM (SELECT * FROM {table}) t")
            expected = json.loads(text or b"[]")
            found = DeltaTable(str(folder / f"public.{table}")).to_pyarrow_table()
            rows = found.drop_columns([KEY]).to_pylist()
            assert _texts(rows) == _texts(expected), table


def _texts(rows: list[dict[str, object]]) -> list[str]:
    texts = [{name: None if one is None else str(one) for name, one in row.items()} for row in rows]
    return sorted(json.dumps(row, sort_keys=True) for row in texts)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(
        tmp_path_factory.mktemp("cluster") / "c", stores=1, settings=SETTINGS
    ) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    # Not pytest's own folder: its path is longer than a unix socket's may be.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    folder.chmod(0o755)
    made = Postgres(folder / "s")
    try:
        made.create(synchronous_standby_names="''", wal_level="logical", max_replication_slots="40")
        made.start()
        made.wait()
        yield made
    finally:
        made.kill()
        shutil.rmtree(folder)


@pytest.fixture
def place(server: Postgres, cluster: LocalCluster, tmp_path: Path) -> Place:
    with SyncLogClient(cluster.endpoints()) as client:
        shard = client.hakeeper.create_shard()
    database = f"d{shard}"
    server.query(f"CREATE DATABASE {database}")
    made = Place(server, cluster, tmp_path, database, shard)
    made.sql(
        "CREATE TABLE beat (n bigserial PRIMARY KEY)",
        "CREATE PUBLICATION logservice FOR ALL TABLES",
    )
    return made


CHANGES = (
    "INSERT INTO t VALUES (4, 'v', 'new'), (5, 'u', 'new')",
    "UPDATE t SET payload = 'changed' WHERE id IN (1, 4)",
    "DELETE FROM t WHERE id = 2",
    "UPDATE t SET id = 30 WHERE id = 3",
    "UPDATE t SET kind = 'moved', payload = 'again' WHERE id = 5",
)

BIG = "repeat('abcdefgh', 2000)"

KEYED = {
    "primary": "PRIMARY KEY (id)",
    "include": "PRIMARY KEY (id) INCLUDE (payload)",
    "composite": "PRIMARY KEY (kind, id)",
    "composite-include": "PRIMARY KEY (kind, id) INCLUDE (payload)",
    "full": "PRIMARY KEY (id) | REPLICA IDENTITY FULL",
    "full-include": "PRIMARY KEY (id) INCLUDE (payload) | REPLICA IDENTITY FULL",
    "index": "UNIQUE (id) | REPLICA IDENTITY USING INDEX t_id_key",
    "index-include": "UNIQUE (id) INCLUDE (payload)"
    " | REPLICA IDENTITY USING INDEX t_id_payload_key",
    "index-beside-a-key": "PRIMARY KEY (kind, id), UNIQUE (id)"
    " | REPLICA IDENTITY USING INDEX t_id_key",
    "index-beside-a-deferrable-key": "PRIMARY KEY (kind, id) DEFERRABLE, UNIQUE (id)"
    " | REPLICA IDENTITY USING INDEX t_id_key",
}

KEYLESS = {
    "default-without-a-key": "CHECK (true)",
    "nothing": "PRIMARY KEY (id) | REPLICA IDENTITY NOTHING",
    "full-without-a-key": "CHECK (true) | REPLICA IDENTITY FULL",
    "deferrable": "PRIMARY KEY (id) DEFERRABLE",
    "deferred-full": "PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED | REPLICA IDENTITY FULL",
}


def made(place: Place, form: str, table: str = "t") -> None:
    """A table with rows. `form`: what stands in CREATE TABLE, and ALTER TABLE's action."""
    constraint, _, action = form.partition(" | ")
    place.sql(
        f"CREATE TABLE {table} (id int NOT NULL, kind text NOT NULL, payload text, {constraint})",
        *([f"ALTER TABLE {table} {action}"] if action else []),
        f"INSERT INTO {table} VALUES (1, 'x', 'one'), (2, 'w', NULL), (3, 'y', 'three')",
    )


@pytest.mark.parametrize("form", KEYED.values(), ids=KEYED.keys())
def test_rows_of_the_copy_are_those_that_change(place: Place, form: str) -> None:
    made(place, form)
    place.ship()
    place.check("t")
    place.sql(*CHANGES)
    place.ship()
    place.check("t")


@pytest.mark.parametrize("form", KEYLESS.values(), ids=KEYLESS.keys())
def test_a_table_whose_rows_nothing_tells_apart_is_refused_by_the_copy(
    place: Place, form: str
) -> None:
    made(place, form)
    with pytest.raises(ShippingRefused, match=r"public\.t .*REPLICA IDENTITY"):
        place.ship()
    place.sql("DROP TABLE t")
    place.ship()


@pytest.mark.parametrize("form", KEYLESS.values(), ids=KEYLESS.keys())
def test_a_table_whose_rows_nothing_tells_apart_is_refused_by_the_stream(
    place: Place, form: str
) -> None:
    place.ship()
    made(place, form)
    with pytest.raises(ShippingRefused, match=r"public\.t .*REPLICA IDENTITY"):
        place.ship()


NEW_KEY = (
    "ALTER TABLE t DROP CONSTRAINT t_pkey",
    "ALTER TABLE t ADD PRIMARY KEY (kind)",
)
REKEYED = {
    "another-key": ("PRIMARY KEY (id)", NEW_KEY),
    "another-key-full": ("PRIMARY KEY (id) | REPLICA IDENTITY FULL", NEW_KEY),
    "another-index": (
        "PRIMARY KEY (id), UNIQUE (kind)",
        ("ALTER TABLE t REPLICA IDENTITY USING INDEX t_kind_key",),
    ),
    "another-name": ("PRIMARY KEY (id)", ("ALTER TABLE t RENAME id TO number",)),
}


@pytest.mark.parametrize(("form", "change"), REKEYED.values(), ids=REKEYED.keys())
@pytest.mark.parametrize("when", ["streamed", "before the next session"])
def test_a_key_that_is_another_one_needs_a_new_copy(
    place: Place, form: str, change: tuple[str, ...], when: str
) -> None:
    """Rows that the log has under the old key are never found by the new one."""
    made(place, form)
    place.sql("UPDATE t SET kind = 'z' WHERE id = 3", "DELETE FROM t WHERE id = 2")
    place.ship()
    place.sql("UPDATE t SET payload = 'old' WHERE id = 1")
    place.sql(*change)
    with pytest.raises(ShippingRefused, match=r"public\.t .*make a new copy"):
        if when == "before the next session":
            place.ship()  # no row has told of the key; the catalog does where the identity is FULL
        place.sql("UPDATE t SET payload = 'new' WHERE kind = 'x'")
        place.ship()
    place.copy()
    place.sql("UPDATE t SET payload = 'newer' WHERE kind = 'z'")
    place.ship()
    place.check("t")


def test_a_key_that_stays_goes_on_under_another_identity(place: Place) -> None:
    made(place, "PRIMARY KEY (id)")
    place.ship()
    place.sql("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET payload = 'f' WHERE id = 1")
    place.ship()
    place.sql(
        "ALTER TABLE t DROP CONSTRAINT t_pkey",
        "ALTER TABLE t ADD PRIMARY KEY (id) INCLUDE (kind)",
        "ALTER TABLE t REPLICA IDENTITY DEFAULT",
        *CHANGES,
    )
    place.ship()
    place.check("t")


def test_a_table_that_comes_later_is_known_in_the_next_session(place: Place) -> None:
    place.ship()
    made(place, "PRIMARY KEY (id) INCLUDE (payload)")
    place.ship()
    place.sql(*CHANGES)
    place.ship()
    place.check("t")
    place.sql(*NEW_KEY, "UPDATE t SET payload = 'new' WHERE kind = 'moved'")
    with pytest.raises(ShippingRefused, match=r"public\.t .*make a new copy"):
        place.ship()


def test_large_values_under_a_key_that_includes_them(place: Place) -> None:
    made(place, "PRIMARY KEY (id)", "u")
    place.sql(
        "CREATE TABLE t (id int, n int, kind text, payload text, PRIMARY KEY (id) INCLUDE (n))",
        "ALTER TABLE t ALTER payload SET STORAGE EXTERNAL",
        f"INSERT INTO t SELECT i, i, 'x', {BIG} FROM generate_series(1, 3) i",
    )
    place.ship()
    place.sql("UPDATE t SET n = 7 WHERE id = 1", "UPDATE t SET kind = 'y' WHERE id = 2")
    place.ship()
    place.check("t", "u")


def test_a_key_of_a_partition_that_is_not_its_table_s(place: Place) -> None:
    """The old row has the columns that identify it in its partition, and no others."""
    place.sql(
        "DROP PUBLICATION logservice",
        "CREATE TABLE t (id int PRIMARY KEY, kind text, payload text) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100)",
        "ALTER TABLE t1 ALTER kind SET NOT NULL",
        "CREATE UNIQUE INDEX t1_kind ON t1 (kind)",
        "INSERT INTO t VALUES (1, 'a', 'one'), (2, 'b', 'two')",
        "CREATE PUBLICATION logservice FOR TABLE beat, t WITH (publish_via_partition_root)",
    )
    place.ship()
    place.sql("UPDATE t SET payload = 'p' WHERE id = 1", "DELETE FROM t WHERE id = 2")
    place.ship()
    place.check("t")
    place.sql(
        "ALTER TABLE t1 REPLICA IDENTITY USING INDEX t1_kind",
        "DELETE FROM t WHERE kind = 'a'",
    )
    with pytest.raises(ShippingRefused, match=r"public\.t.*a key is not in the stream"):
        place.ship()
