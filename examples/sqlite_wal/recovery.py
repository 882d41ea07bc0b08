"""Recovery: the records behind a checkpoint, over the checkpoint's image.

Input is what the replay job wrote: Parquet files with (at least) the columns ``lsn`` and
``value``, one row per record, in any order. Per page the last version counts; the last commit
marker says how large the database is and what it must hash to.

LSNs need not be consecutive here: an append that was retried across a leader change can leave a
typed gap. What must not be missing is checked by the records themselves: transactions are numbered
without a hole, each marker says how many frames there were, and the hash is compared in the end.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from examples.sqlite_wal.content_hash import ContentHash
from examples.sqlite_wal.page_record import CommitRecord, PageRecord, decode
from examples.sqlite_wal.workload import NEVER_ACKED, ROLLED_BACK, rows_hash


class RecoveryError(Exception):
    """The records cannot be the log of this database."""


@dataclass(frozen=True, slots=True)
class LastVersions:
    """The newest version of every page, and the last commit marker."""

    pages: dict[int, bytes]
    records: int
    transactions: int
    last_commit: CommitRecord


@dataclass(frozen=True, slots=True)
class Recovered:
    """A recovered database, checked."""

    integrity: str
    digest: bytes
    rows_hash: str
    never_acked_rows: int
    rolled_back_rows: int


def records_of_parquet(folder: Path) -> list[tuple[int, bytes]]:
    """`(lsn, value)` of all rows, by LSN."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(folder, columns=["lsn", "value"]).sort_by("lsn")
    return list(
        zip(table.column("lsn").to_pylist(), table.column("value").to_pylist(), strict=True)
    )


def last_versions(
    records: Iterable[tuple[int, bytes]], *, first_lsn: int, first_transaction: int
) -> LastVersions:
    """Fold records, in order of LSN. Raises RecoveryError for anything missing or doubled."""
    pages: dict[int, bytes] = {}
    commit: CommitRecord | None = None
    count = transactions = frames = 0
    last_lsn = first_lsn - 1
    for lsn, value in records:
        if lsn <= last_lsn:
            raise RecoveryError(f"LSN {lsn} follows {last_lsn}")
        last_lsn = lsn
        count += 1
        match decode(value):
            case PageRecord() as page:
                pages[page.page_number] = page.data
                frames += 1
            case CommitRecord() as marker:
                if marker.frames != frames:
                    raise RecoveryError(
                        f"transaction {marker.transaction}: {frames} of {marker.frames} frames"
                    )
                if marker.transaction != first_transaction + transactions:
                    raise RecoveryError(
                        f"transaction {marker.transaction} comes as number {transactions + 1}"
                        f" after {first_transaction - 1}"
                    )
                commit = marker
                transactions += 1
                frames = 0
    if commit is None or frames:
        raise RecoveryError("the records do not end with a commit")
    return LastVersions(pages, count, transactions, commit)


def recover(image: Path, versions: LastVersions, target: Path) -> Recovered:
    """Write the pages over a copy of the checkpoint image and check the result."""
    commit = versions.last_commit
    shutil.copyfile(image, target)
    with open(target, "r+b") as file:
        for number, data in sorted(versions.pages.items()):
            if number <= commit.database_pages:
                file.seek((number - 1) * commit.page_size)
                file.write(data)
        file.truncate(commit.database_pages * commit.page_size)
    digest = ContentHash.of_file(target, commit.page_size).digest
    connection = sqlite3.connect(target)
    try:
        integrity = str(connection.execute("PRAGMA integrity_check").fetchone()[0])
        never_acked = _count(connection, "account", "note", NEVER_ACKED)
        rolled_back = _count(connection, "account", "note", ROLLED_BACK)
        rolled_back += _count(connection, "document", "title", ROLLED_BACK)
        return Recovered(integrity, digest, rows_hash(connection), never_acked, rolled_back)
    finally:
        connection.close()


def _count(connection: sqlite3.Connection, table: str, column: str, value: str) -> int:
    query = f"SELECT count(*) FROM {table} WHERE {column} = ?"
    return int(connection.execute(query, (value,)).fetchone()[0])
