"""A database of the SQLite example whose machine and cluster may be lost: how it is known again.

Nothing runs beside the caller: a transaction is shipped before the next one begins. So what the
database was when a transaction was acked can be asked between any two of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.sqlite_wal.recovery import Recovered, last_versions, recover
from examples.sqlite_wal.service_log import ServiceLog
from examples.sqlite_wal.shipper import Shipped, Shipper
from examples.sqlite_wal.workload import Database


@dataclass(frozen=True, slots=True)
class Known:
    """What a database was: acked up to there, with these rows."""

    acked: Shipped
    rows: str

    def differs(self, found: Recovered) -> str:
        """What is wrong with a recovered database; empty when it is this one."""
        if found.integrity != "ok":
            return f"integrity_check says {found.integrity}"
        if found.digest != self.acked.digest:
            return "the pages are not those of the last acked transaction"
        if found.rows_hash != self.rows:
            return "the rows are not those of the last acked transaction"
        if found.never_acked_rows or found.rolled_back_rows:
            return "rows are there that were never acked, or were rolled back"
        return ""


class ShippedDatabase:
    """One database, one log."""

    def __init__(self, path: Path, log: ServiceLog, *, seed: int, after: Known | None = None):
        """`after`: the file at `path` was recovered, and goes on from there; else it is new."""
        self.log = log
        self.database = Database(path, seed=seed)
        self.shipper = Shipper(
            self.database.path, self.database.wal_path, self.database.page_size, log
        )
        if after is None:
            self.database.create_schema()
            self.shipper.ship()
        else:
            self.shipper.acked = Shipped(
                transactions=after.acked.transactions,
                next_lsn=after.acked.next_lsn,
                digest=after.acked.digest,
            )

    def run(self, transactions: int) -> Known:
        """Run and ship so many; what the database is then."""
        for _ in range(transactions):
            self.database.run_transaction()
            self.shipper.ship()
        return Known(self.shipper.acked, self.database.rows_hash())

    def checkpoint(self, image: Path) -> Shipped:
        """Copy it to `image`; up to where the image goes."""
        self.database.checkpoint(image)
        return self.shipper.acked

    def close(self) -> None:
        """Close both."""
        self.database.close()
        self.log.close()


def recovered_from(
    log: ServiceLog, image: Path, checkpoint: Shipped, next_lsn: int, target: Path
) -> Recovered:
    """Write the log's records up to `next_lsn` over the image."""
    versions = last_versions(
        log.read(checkpoint.next_lsn, next_lsn),
        first_lsn=checkpoint.next_lsn,
        first_transaction=checkpoint.transactions + 1,
    )
    return recover(image, versions, target)
