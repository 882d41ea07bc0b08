"""From the workload by way of the shipper and its records to recovery, without a log service."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from examples.sqlite_wal.page_record import (
    KIND_COMMIT,
    CommitRecord,
    PageRecord,
    RecordError,
    decode,
)
from examples.sqlite_wal.recovery import (
    LastVersions,
    RecoveryError,
    last_versions,
    records_of_parquet,
    recover,
)
from examples.sqlite_wal.shipper import Shipped, Shipper
from examples.sqlite_wal.workload import Database, Result


class MemoryLog:
    """A log that acks everything, unless told to fail."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.fail = False

    def append(self, records: Sequence[bytes]) -> int:
        if self.fail:
            raise TimeoutError
        self.records += records
        return len(self.records) - len(records) + 1

    def from_lsn(self, lsn: int) -> list[tuple[int, bytes]]:
        return list(enumerate(self.records[lsn - 1 :], lsn))


class Story:
    """A database with its shipper."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.log = MemoryLog()
        self.database = Database(folder / "db", seed=seed)
        self.shipper = Shipper(
            self.database.path, self.database.wal_path, self.database.page_size, self.log
        )
        self.image = folder / "image"
        self.recovered = folder / "recovered"
        self.database.create_schema()
        assert self.shipper.ship() == 1

    def run(self, transactions: int) -> None:
        for _ in range(transactions):
            result = self.database.run_transaction()
            assert self.shipper.ship() == (result is Result.COMMITTED)

    def last_versions_after(self, checkpoint: Shipped) -> LastVersions:
        return last_versions(
            self.log.from_lsn(checkpoint.next_lsn),
            first_lsn=checkpoint.next_lsn,
            first_transaction=checkpoint.transactions + 1,
        )


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    story = Story(tmp_path)
    yield story
    story.database.close()


def test_pages_behind_a_checkpoint_restore_the_database(story: Story) -> None:
    story.run(150)
    story.database.checkpoint(story.image)
    checkpoint = story.shipper.acked
    story.run(150)
    rows = story.database.rows_hash()
    story.database.run_unshipped_transaction()

    versions = story.last_versions_after(checkpoint)
    recovered = recover(story.image, versions, story.recovered)

    assert recovered.integrity == "ok"
    assert recovered.digest == story.shipper.acked.digest
    assert recovered.rows_hash == rows
    assert (recovered.never_acked_rows, recovered.rolled_back_rows) == (0, 0)
    assert versions.last_commit.transaction == story.shipper.acked.transactions


def test_a_database_that_shrinks_is_restored_to_its_size(story: Story) -> None:
    story.database.checkpoint(story.image)
    checkpoint = story.shipper.acked
    story.run(100)
    with sqlite3.connect(story.database.path) as connection:
        connection.execute("DELETE FROM document")
        connection.commit()
        connection.execute("VACUUM")
    connection.close()
    assert story.shipper.ship() >= 1
    versions = story.last_versions_after(checkpoint)
    assert max(versions.pages) > versions.last_commit.database_pages
    recovered = recover(story.image, versions, story.recovered)
    assert recovered.integrity == "ok"
    assert recovered.digest == story.shipper.acked.digest


def test_a_transaction_is_one_block_of_pages_and_a_marker(story: Story) -> None:
    before = len(story.log.records)
    story.database.run_unshipped_transaction()
    assert story.shipper.ship() == 1
    *pages, marker = [decode(record) for record in story.log.records[before:]]
    assert isinstance(marker, CommitRecord)
    assert marker.frames == len(pages)
    assert marker.digest == story.shipper.acked.digest
    assert all(isinstance(page, PageRecord) and page.transaction == 2 for page in pages)
    assert [page.database_pages != 0 for page in pages if isinstance(page, PageRecord)][-1]


def test_after_an_unknown_outcome_nothing_is_shipped(story: Story) -> None:
    acked = story.shipper.acked
    story.database.run_unshipped_transaction()
    story.log.fail = True
    with pytest.raises(TimeoutError):
        story.shipper.ship()
    story.log.fail = False
    with pytest.raises(RuntimeError, match="unknown"):
        story.shipper.ship()
    assert story.shipper.acked == acked


def test_what_is_missing_or_doubled_is_noticed(story: Story) -> None:
    story.run(20)
    records = story.log.from_lsn(1)
    markers = [at for at, (_, value) in enumerate(records) if value[0] == KIND_COMMIT]
    cases = {
        "frames": records[:1] + records[2:],
        "follows": [*records[:5], *records[4:]],
        "comes as number": records[: markers[2] + 1] + records[markers[3] + 1 :],
        "end with a commit": records[:-1],
        "do not end": [],
    }
    for message, damaged in cases.items():
        with pytest.raises(RecoveryError, match=message):
            last_versions(damaged, first_lsn=1, first_transaction=1)
    with pytest.raises(RecoveryError, match="comes as number"):
        last_versions(records[markers[0] + 1 :], first_lsn=1, first_transaction=1)


def test_a_gap_in_the_lsns_loses_nothing(story: Story) -> None:
    story.run(5)
    records = [(lsn + (7 if lsn > 9 else 0), value) for lsn, value in story.log.from_lsn(1)]
    versions = last_versions(records, first_lsn=1, first_transaction=1)
    assert versions.transactions == story.shipper.acked.transactions


def test_parquet_rows_come_back_by_lsn(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    for name, lsns in (("b", [3, 4]), ("a", [2, 1])):
        table = pa.table({"shard": [1, 1], "lsn": lsns, "value": [b"%d" % lsn for lsn in lsns]})
        parquet.write_table(table, folder / f"{name}.parquet")
    assert records_of_parquet(folder) == [(1, b"1"), (2, b"2"), (3, b"3"), (4, b"4")]


@pytest.mark.parametrize("record", [b"", b"\x03", b"\x01\x00", b"\x02" + bytes(100)])
def test_foreign_records_are_refused(record: bytes) -> None:
    with pytest.raises(RecordError):
        decode(record)
