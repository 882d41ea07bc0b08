"""The database: an ordinary SQLite file in WAL mode and a write workload on it.

Nothing here knows of the log service. Transactions insert, update and delete rows, store large
blobs, and some are rolled back; rows of those carry `ROLLED_BACK`, so that one that survives
would be seen. SQLite never checkpoints by itself (`wal_autocheckpoint=0`): the owner decides
when.
"""

from __future__ import annotations

import enum
import hashlib
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Final

ROLLED_BACK: Final = "rolled back"
NEVER_ACKED: Final = "committed here, never shipped"
BLOB_BYTES: Final = (32 * 1024, 192 * 1024)
ACCOUNTS_KEPT: Final = 4000
DOCUMENTS_KEPT: Final = 40
_CACHE_PAGES: Final = 100
"""Small, so that large transactions spill uncommitted frames into the -wal file."""

SCHEMA = """
CREATE TABLE account (
    id INTEGER PRIMARY KEY, owner TEXT NOT NULL, balance INTEGER NOT NULL, note TEXT
);
CREATE INDEX account_owner ON account (owner);
CREATE TABLE document (id INTEGER PRIMARY KEY, title TEXT NOT NULL, body BLOB NOT NULL);
"""


class Result(enum.Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"


class Database:
    """One SQLite database and the transactions that are run on it. Not thread-safe."""

    def __init__(self, path: Path, *, seed: int) -> None:
        self.path = path
        self.wal_path = Path(f"{path}-wal")
        self._random = random.Random(seed)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._execute("PRAGMA journal_mode=WAL")
        self._execute("PRAGMA wal_autocheckpoint=0")
        self._execute("PRAGMA synchronous=OFF")  # what is durable is decided by the log
        self._execute(f"PRAGMA cache_size={_CACHE_PAGES}")
        self.page_size = int(self._connection.execute("PRAGMA page_size").fetchone()[0])

    def create_schema(self) -> None:
        """The first transaction."""
        self._connection.executescript(f"BEGIN;{SCHEMA}COMMIT;")

    def run_transaction(self) -> Result:
        """One transaction of the mix."""
        work = self._random.choices(
            (self._insert, self._update, self._delete, self._store_document, self._change_mind),
            weights=(40, 30, 10, 8, 12),
        )[0]
        self._execute("BEGIN")
        result = work()
        self._execute("COMMIT" if result is Result.COMMITTED else "ROLLBACK")
        return result

    def run_unshipped_transaction(self) -> None:
        """A commit that the owner never gets to ship."""
        self._connection.execute(
            "INSERT INTO account (owner, balance, note) VALUES ('late', 0, ?)", (NEVER_ACKED,)
        )

    def checkpoint(self, image: Path) -> None:
        """Move everything into the database file, empty the -wal file, copy the former."""
        busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise RuntimeError("checkpoint found the database busy")
        shutil.copyfile(self.path, image)

    def close(self) -> None:
        """Close as SQLite does: the last connection checkpoints, unless the files are gone."""
        self._connection.close()

    def rows_hash(self) -> str:
        """Hash of all rows of all tables, as SQL sees them."""
        return rows_hash(self._connection)

    def _execute(self, sql: str) -> None:
        self._connection.execute(sql)

    def _insert(self) -> Result:
        rows = [
            (f"owner-{self._random.randrange(500)}", self._random.randrange(10_000), self._text())
            for _ in range(self._random.randint(1, 8))
        ]
        self._connection.executemany(
            "INSERT INTO account (owner, balance, note) VALUES (?, ?, ?)", rows
        )
        return Result.COMMITTED

    def _update(self) -> Result:
        for _ in range(self._random.randint(1, 4)):
            owner = f"owner-{self._random.randrange(500)}"
            self._connection.execute(
                "UPDATE account SET balance = balance + ?, note = ? WHERE owner = ?",
                (self._random.randint(-100, 100), self._text(), owner),
            )
        return self._always_write()

    def _delete(self) -> Result:
        self._connection.execute(
            "DELETE FROM account WHERE id <= (SELECT max(id) FROM account) - ?", (ACCOUNTS_KEPT,)
        )
        self._connection.execute(
            "DELETE FROM account WHERE owner = ?", (f"owner-{self._random.randrange(500)}",)
        )
        self._connection.execute(
            "DELETE FROM document WHERE id <= (SELECT max(id) FROM document) - ?", (DOCUMENTS_KEPT,)
        )
        return self._always_write()

    def _store_document(self) -> Result:
        body = self._random.randbytes(self._random.randint(*BLOB_BYTES))
        self._connection.execute(
            "INSERT INTO document (title, body) VALUES (?, ?)", (self._text(), body)
        )
        return Result.COMMITTED

    def _change_mind(self) -> Result:
        """Writes more than the page cache holds now and then, and rolls it back."""
        large = self._random.random() < 0.3
        body = self._random.randbytes(BLOB_BYTES[1] * 4 if large else 1000)
        self._connection.execute(
            "INSERT INTO document (title, body) VALUES (?, ?)", (ROLLED_BACK, body)
        )
        self._connection.execute("UPDATE account SET note = ? WHERE id % 7 = 0", (ROLLED_BACK,))
        return Result.ROLLED_BACK

    def _always_write(self) -> Result:
        """Insert a row, so that a transaction whose other statements matched none has something to
        ship.
        """
        self._connection.execute(
            "INSERT INTO account (owner, balance, note) VALUES ('audit', 0, ?)", (self._text(),)
        )
        return Result.COMMITTED

    def _text(self) -> str:
        return self._random.randbytes(self._random.randint(10, 60)).hex()


def rows_hash(connection: sqlite3.Connection) -> str:
    """Hash of all rows of all tables, in key order."""
    digest = hashlib.sha256()
    for table in ("account", "document"):
        for row in connection.execute(f"SELECT * FROM {table} ORDER BY id"):
            digest.update(repr(row).encode())
    return digest.hexdigest()
