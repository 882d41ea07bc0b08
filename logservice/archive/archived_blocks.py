"""archived_blocks: what a restored log takes, from the objects of an archive.

Theory of operation. Objects are read in a thread, batch by batch, for they wait for a disk or a
network. What an object has is checked again as it was for the plan (`restore_source`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator

from logservice_wire.v1 import log_pb2

from logservice.archive.copying import Batch, Batching, below_base
from logservice.archive.folder import Files
from logservice.archive.manifest import Manifest
from logservice.archive.restore_plan import Plan
from logservice.archive.restore_source import object_runs
from logservice.sealing_keys import Keys


class ArchivedBlocks:
    """Those of one plan."""

    def __init__(self, files: Files, plan: Plan, keys: Keys | None = None) -> None:
        """`keys`: for objects that are sealed."""
        self._manifest = Manifest(files, plan.shard_id)
        self._plan = plan
        self._keys = keys

    async def batches(self, lsn: int) -> AsyncGenerator[Batch]:
        """See `copying.Source`. Raises ArchiveDamaged, OSError."""
        found = self._batches(lsn)
        while (batch := await asyncio.to_thread(next, found, None)) is not None:
            yield batch

    def _batches(self, lsn: int) -> Generator[Batch]:
        batching = Batching(lsn)
        for block in self._blocks(lsn):
            done = batching.add(block, block.record_count or _count(block.block))
            if done is not None:
                yield done
        rest = batching.rest()
        if rest is not None:
            yield rest

    def _blocks(self, lsn: int) -> Generator[log_pb2.RestoredBlock]:
        plan = self._plan
        yield from below_base(lsn, plan.base_lsn, plan.first_time_us)
        lsn = max(lsn, plan.base_lsn)
        for row in plan.rows:
            if row.end_lsn <= lsn:
                continue
            with object_runs(self._manifest, row, self._keys) as found:
                for run in found:
                    part = run.part(lsn, plan.end_lsn)
                    if part is None:
                        continue
                    for block in part.blocks():
                        if not plan.timed:
                            block.append_time_us = 0
                        yield block


def _count(block: bytes) -> int:
    """The records of a block that was just made."""
    return int.from_bytes(block[8:12], "little")
