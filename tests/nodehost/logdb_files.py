"""Real log storage for tests: real files, real LevelDB, small segments."""

from __future__ import annotations

from pathlib import Path

from logservice.ids import ClusterId, Incarnation, StoreId
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.leveldb_kv import LevelDbEngine
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions


def open_identity(directory: Path, store_id: str) -> DataDirectory:
    return DataDirectory.open(
        str(directory),
        vfs=PosixVfs(),
        cluster_id=ClusterId("test-cluster"),
        store_id=StoreId(store_id),
    )


class OpenLogDb:
    """A data directory with its log storage."""

    def __init__(
        self, directory: Path, store_id: str, segment_bytes: int = 1 << 20, vfs: Vfs | None = None
    ) -> None:
        vfs = vfs or PosixVfs()
        self.data = open_identity(directory, store_id)
        self.incarnation = Incarnation(self.data.incarnation)
        self.logdb = LogDb.open(
            str(directory),
            identity=self.data,
            vfs=vfs,
            kv=LevelDbEngine(vfs),
            options=LogDbOptions(segment_bytes=segment_bytes, ballast_bytes=0),
        )

    def close(self) -> None:
        self.logdb.close()
        self.data.close()
