"""The shipper: what a commit added to the -wal file goes into the log before the commit counts.

After each commit it reads the frames that the commit added, appends them as *one block*, and
waits for the ack. Only then is the transaction acked to whoever asked for it. What it alone
keeps: the LSN behind the last acked transaction (where recovery after a checkpoint must start)
and the running content hash of the database as of that transaction.

An append whose outcome is unknown leaves the shipper stopped: the transaction may or may not be
in the log, and shipping a later one past it would break the order. The log client retries with
the same session and sequence for as long as it may, so this happens only when its time is up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from examples.sqlite_wal.content_hash import ContentHash
from examples.sqlite_wal.page_record import encode_transaction
from examples.sqlite_wal.wal_format import Frame, WalReader


class Appender(Protocol):
    """The one thing that is needed of a log."""

    def append(self, records: Sequence[bytes]) -> int:
        """Append the records as one block and wait until it is durable; the LSN of the first."""
        ...


@dataclass(slots=True)
class Shipped:
    """Totals since the start, and the position after the last acked transaction."""

    transactions: int = 0
    frames: int = 0
    bytes_shipped: int = 0
    next_lsn: int = 1
    digest: bytes = b""


class Shipper:
    """Ships one database. Create it before the first transaction in WAL mode; not thread-safe."""

    def __init__(self, database: Path, wal: Path, page_size: int, log: Appender) -> None:
        self._reader = WalReader(wal)
        self._content = ContentHash.of_file(database, page_size)
        self._log = log
        self._unknown = False
        self.acked = Shipped(digest=self._content.digest)

    def ship(self) -> int:
        """Append what was committed since the last call; the number of transactions acked now.

        Raises what the log raises; then nothing more can be shipped.
        """
        if self._unknown:
            raise RuntimeError("the outcome of an earlier transaction is unknown")
        count = 0
        for frames in transactions(self._reader.committed_frames()):
            self._content.apply(frames)
            transaction = self.acked.transactions + 1
            records = encode_transaction(transaction, frames, self._content.digest)
            self._unknown = True
            lsn = self._log.append(records)
            self._unknown = False
            self.acked = Shipped(
                transactions=transaction,
                frames=self.acked.frames + len(frames),
                bytes_shipped=self.acked.bytes_shipped + sum(map(len, records)),
                next_lsn=lsn + len(records),
                digest=self._content.digest,
            )
            count += 1
        return count


def transactions(frames: Sequence[Frame]) -> list[list[Frame]]:
    """Cut a run of frames behind each commit frame."""
    found: list[list[Frame]] = [[]]
    for frame in frames:
        found[-1].append(frame)
        if frame.commits:
            found.append([])
    return found[:-1]
