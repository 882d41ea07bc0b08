"""Truncation: what lies below the newest base backup may go.

It is done by whoever has the log. The epoch that a truncate carries is the one in force, so a
shipper that runs is not disturbed; a server that was replaced is refused by its name.
"""

from __future__ import annotations

from typing import Final

from logservice_client import Shard, StaleTruncate

from examples.postgres.ownership import Ownership
from examples.postgres_wal import wal_log
from examples.postgres_wal.base_backup import BackupStart
from examples.postgres_wal.wal_log import WalMissing

TIMEOUT_S: Final = 60.0


async def truncate_below(log: Shard, name: str, backup: BackupStart) -> int:
    """Truncate below the segment in which the backup begins; the LSN up to which records may go.

    Raises LogTaken, and WalMissing when the log does not have what the backup needs.
    """
    log.writer_epoch = await Ownership(log, name).check(TIMEOUT_S)
    last = await wal_log.last_chunk(log)
    if last is None:
        raise WalMissing("the log is empty")
    start = backup.segment_start(last.segment_log2)
    if await wal_log.segment(log, backup.timeline, start, last.segment_log2) is None:
        raise WalMissing(f"the log has nothing of {backup.file}, with which the backup begins")
    lsn = await wal_log.lsn_at(log, backup.timeline, start) - 1
    if lsn <= 0:
        return 0
    try:
        return await log.truncate(lsn, timeout=TIMEOUT_S)
    except StaleTruncate as error:
        return error.current
