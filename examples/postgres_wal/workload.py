"""Who writes: pgbench, and clients that remember every commit that was acknowledged to them.

A commit counts as acknowledged when the server said so without a remark. PostgreSQL remarks when it
gives up waiting for the synchronous standby (somebody cancelled the wait): then the commit is in
this server only.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.postgres.protocol import PostgresError
from examples.postgres.replication import Connection
from examples.postgres.server import ORDINARY, Postgres, as_postgres, give_to_postgres

BENCH_CLIENTS: Final = 2
BENCH_TRANSACTIONS: Final = 20
"""Transactions of a client in one run of pgbench. Runs follow each other, so that the load can
pause."""

TABLES: Final = {
    "pgbench_accounts": "aid, bid, abalance",
    "pgbench_branches": "bid, bbalance",
    "pgbench_tellers": "tid, bid, tbalance",
    "pgbench_history": "tid, bid, aid, delta, mtime",
    "remembered": "id, note",
}

SCHEMA: Final = "CREATE TABLE remembered (id bigint PRIMARY KEY, note text NOT NULL)"
NOTE: Final = "x" * 200


@dataclass(frozen=True, slots=True)
class Ack:
    """A commit that was acknowledged, and when it began and ended (monotonic seconds)."""

    id: int
    began: float
    ended: float


class Remembering(threading.Thread):
    """Some clients that commit one row after the other, and remember what was acknowledged."""

    def __init__(self, server: Postgres, first_id: int, clients: int = 2) -> None:
        super().__init__(name="remembering", daemon=True)
        self._server = server
        self._ids = itertools.count(first_id)
        self.clients = clients
        self._over = threading.Event()
        self.acks: list[Ack] = []
        self.remarks: list[str] = []

    def run(self) -> None:
        """Until `end`, or until the server is gone."""
        asyncio.run(self._run())

    def end(self) -> None:
        """Stop; returns when no commit is under way."""
        self._over.set()
        self.join()

    async def _run(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(self.clients)))

    async def _client(self) -> None:
        try:
            connection = await Connection.connect(self._server.address, ORDINARY)
            try:
                while not self._over.is_set():
                    await self._commit(connection)
            finally:
                connection.close()
        except PostgresError:
            return  # the server is gone: what was acknowledged is remembered

    async def _commit(self, connection: Connection) -> None:
        number = next(self._ids)
        began = time.monotonic()
        answer = await connection.query(f"INSERT INTO remembered VALUES ({number}, '{NOTE}')")
        if answer.notices:
            self.remarks += answer.notices
        else:
            self.acks.append(Ack(number, began, time.monotonic()))


class Bench(threading.Thread):
    """pgbench, run after run. It writes a line for each transaction that was acknowledged to it."""

    def __init__(self, server: Postgres, directory: Path) -> None:
        super().__init__(name="pgbench", daemon=True)
        self._server = server
        self._directory = directory
        self._over = threading.Event()
        self.failed = False
        """Whether a run ended in the middle."""
        give_to_postgres(directory)

    def run(self) -> None:
        """Until `end`, or until a run fails: the server is gone."""
        while not self._over.is_set():
            command = [str(self._server.programs / "pgbench"), *self._server.place, "-n", "-l"]
            command += ["-c", str(BENCH_CLIENTS), "-t", str(BENCH_TRANSACTIONS), "postgres"]
            done = subprocess.run(
                as_postgres(command),
                capture_output=True,
                check=False,
                cwd=self._directory,
            )
            self.failed = done.returncode != 0
            if self.failed:
                return

    def end(self) -> None:
        """Stop; returns when no transaction is under way."""
        self._over.set()
        self.join()

    @property
    def acked(self) -> int:
        """Transactions that were acknowledged, by pgbench's own logs."""
        return sum(
            len(path.read_text().splitlines()) for path in self._directory.glob("pgbench_log.*")
        )


def state(server: Postgres) -> dict[str, tuple[str, str]]:
    """Rows and a hash of the content, of each table."""
    found: dict[str, tuple[str, str]] = {}
    for table, columns in TABLES.items():
        text = f"concat_ws('|', {columns})"
        sql = f"SELECT count(*), md5(string_agg({text}, ',' ORDER BY {text})) FROM {table}"
        ((count, digest),) = server.query(sql).rows
        found[table] = ((count or b"").decode(), (digest or b"").decode())
    return found


def balances(server: Postgres) -> set[str]:
    """The sums that pgbench's transactions keep equal: one value, if none was torn."""
    return {
        server.value(f"SELECT coalesce(sum({column}), 0) FROM {table}")
        for table, column in (
            ("pgbench_accounts", "abalance"),
            ("pgbench_tellers", "tbalance"),
            ("pgbench_branches", "bbalance"),
            ("pgbench_history", "delta"),
        )
    }


def remembered(server: Postgres) -> set[int]:
    """The rows of the clients that remember."""
    return {int(value or b"0") for (value,) in server.query("SELECT id FROM remembered").rows}
