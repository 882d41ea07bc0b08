"""LogDbMeter: the bytes that it says are in the segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, ReplicaId, ShardId, Term
from logservice.logdb.format.update import InstalledSnapshot, Update
from logservice.membership import Membership
from logservice.nodehost.truncation.log_meter import LogDbMeter
from logservice.snapshot import Snapshot
from tests.nodehost.logdb_files import OpenLogDb

KEY = (ShardId(1), ReplicaId(11))


def entries(first: int, count: int, records: int, size: int, lsn: int) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            Term(1), Index(first + n), Lsn(lsn + n * records), records, EntryKind.BLOCK, bytes(size)
        )
        for n in range(count)
    )


@pytest.mark.parametrize("restart", [False, True])
def test_bytes_follow_the_log(tmp_path: Path, restart: bool) -> None:
    files = OpenLogDb(tmp_path, "s", segment_bytes=8192)
    logdb = files.logdb
    first = Snapshot(Index(1), Term(1), Lsn(1), Membership(), b"")
    logdb.commit([Update(*KEY, snapshot=InstalledSnapshot(first, Lsn(0)))])
    # Entries 2..21 have two records each, of 100 bytes in all; 22..41 have one record of 1000.
    for entry in entries(2, 20, 2, 100, 1) + entries(22, 20, 1, 1000, 41):
        logdb.commit([Update(*KEY, entries=(entry,))])
    if restart:
        files.close()
        files = OpenLogDb(tmp_path, "s", segment_bytes=8192)
        logdb = files.logdb
    meter = LogDbMeter(logdb)

    def between(after: int, through: int) -> int:
        return meter.bytes_between(*KEY, Index(after), Index(through))

    assert between(1, 41) == between(0, 99) == pytest.approx(20 * 176 + 20 * 1072, rel=0.01)
    assert between(1, 21) + between(21, 41) == pytest.approx(between(1, 41), abs=9)
    assert between(31, 41) == pytest.approx(10 * 1072, rel=0.4 if restart else 0.01)
    assert between(41, 41) == between(50, 60) == 0
    truncatable = {lsn: meter.truncatable_bytes(*KEY, Lsn(lsn)) for lsn in (0, 1, 2, 40, 60)}
    assert truncatable[0] == 0
    assert truncatable[1] == 0  # the first entry holds LSN 2, too
    assert truncatable[2] == between(1, 2) > 0
    assert truncatable[40] == between(1, 21)
    assert truncatable[60] == between(1, 41)

    later = Snapshot(Index(21), Term(1), Lsn(41), Membership(), b"")
    logdb.commit([Update(*KEY, snapshot=InstalledSnapshot(later, Lsn(45)))])
    assert meter.truncatable_bytes(*KEY, Lsn(40)) == 0
    assert meter.truncatable_bytes(*KEY, Lsn(45)) == between(21, 26) > 0
    files.close()
