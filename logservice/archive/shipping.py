"""shipping: brings one log into the archive, range by range.

Theory of operation. A range begins where the manifest ends. The hold is set there first; if LSNs
were truncated before that, a row says that they are missing, and only then the range begins behind
them. When there is enough for an object, or what there is has waited for long, it is read and
written to one. The object is made durable, then its row is, then the hold moves (`manifest` says
why in that order). Whatever ends this process between two steps, the next one begins again where
the manifest ends: an object without a row is written anew under another name, and a row without a
moved hold only keeps more records than needed.

A log that was continued by force since the last range is another history (`logservice.lineage`),
and nothing of it goes into this archive (INV-ARCHIVE-5). Before anything else an attempt asks for
the log's lineage. Everything that it reads afterwards is asked for in that one, so a row is of the
lineage that it names.

What an attempt knows is the manifest's end as it read it. It may be stale: then the row of another
archiver is there already, put-if-absent says so, and this one begins again behind it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, BinaryIO, Final, TypeVar

from logservice_client import Gap, Records, Shard
from logservice_wire.errors import HoldRefused, LineageChanged, Truncated

from logservice import bounds
from logservice.archive.lag import Lag, Metrics
from logservice.archive.manifest import FORMAT, End, Manifest, Row
from logservice.archive.range_file import RangeWriter
from logservice.archive.settings import ArchiveSection
from logservice.background import begin_task
from logservice.lineage import NO_LINEAGE
from logservice.sealing_keys import Keys

ValueT = TypeVar("ValueT")

STEPS: Final = (
    "hold-set",
    "object-begun",
    "object-written",
    "object-durable",
    "row-durable",
    "hold-moved",
)
"""What is behind an attempt when it calls `reached`, in this order."""


class LostRace(Exception):
    """Another archiver was faster; what it did is in the manifest."""


class Shipper:
    """One log."""

    def __init__(
        self,
        shard: Shard,
        name: str,
        cluster_id: str,
        manifest: Manifest,
        settings: ArchiveSection,
        metrics: Metrics,
        *,
        keys: Callable[[], Keys] | None = None,
        turns: asyncio.Semaphore | None = None,
        reached: Callable[[str], None] = lambda _: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`keys`: reads the keys that objects are sealed with. `turns`: how many objects are
        written at a time. `reached` is told each of STEPS: tests end the process there.
        """
        self.shard = shard
        self.name = name
        self.lag = Lag(now_s)
        self._cluster_id = cluster_id
        self.manifest = manifest
        self._settings = settings
        self._metrics = metrics
        self._keys = keys
        self._turns = turns or asyncio.Semaphore(1)
        self._reached = reached
        self._label = str(shard.shard_id)
        self._watched = False

    async def ship(self, *, to_tail: bool = False) -> bool:
        """Archive one range; returns whether there was anything. `to_tail`: what is there now,
        instead of waiting until it is much or old enough.

        Raises what reading and the hold raise, OSError, InvalidArgument; then nothing was archived.
        LineageChanged: nothing will be, for the archive is of another history of the log.
        """
        if not self._watched:
            self._watched = True
            self._metrics.watch(self.shard.shard_id, self.lag)
        try:
            return await self._ship(to_tail)
        except LostRace:
            self._metrics.lost_races.labels(self._label).inc()
            return True

    async def _ship(self, to_tail: bool) -> bool:
        end = await _in_thread(self.manifest.end)
        await self._check_lineage(end)
        first_lsn = await self._begin(end.lsn or 1, end.previous)
        if first_lsn is None:
            return True
        self.lag.archived(first_lsn, 0, 0)
        await self._wait_until_due(to_tail)
        if not self.lag.records:
            return False
        name = self.manifest.object_name(first_lsn, secrets.token_hex(8))
        try:
            async with self._turns:
                row = await self._write_object(name, first_lsn, end.previous)
        except Truncated:
            # Somebody released the hold: what is gone is noted by the next attempt.
            return True
        except FileNotFoundError as error:
            # Another archiver saw a row for this LSN, and took the unfinished object away.
            raise LostRace from error
        self._reached("object-durable")
        if not await _in_thread(self.manifest.add, row):
            await _in_thread(self.manifest.files.remove, self.manifest.path(name))
            raise LostRace
        self._reached("row-durable")
        await self._move_hold(row.end_lsn)
        self._reached("hold-moved")
        self.lag.archived(row.end_lsn, row.end_lsn - row.first_lsn, row.value_bytes)
        self._metrics.objects.labels(self._label).inc()
        self._metrics.object_bytes.labels(self._label).inc(row.object_bytes)
        return True

    async def _check_lineage(self, end: End) -> None:
        """Raises LineageChanged (INV-ARCHIVE-5)."""
        await self.shard.status()
        own = self.shard.lineage
        if end.lsn is None or own is None or end.lineage == self._lineage():
            return
        raise LineageChanged(
            "the archive is of another history of the log",
            expected=end.lineage or NO_LINEAGE.hex(),
            actual=own.id.hex(),
            number=own.number,
            fork_lsn=own.fork_lsn,
        )

    def _lineage(self) -> str:
        """As a row says it."""
        own = self.shard.lineage
        return own.id.hex() if own is not None and own.number else ""

    async def _begin(self, lsn: int, previous: str) -> int | None:
        """Set the hold where the chain ends. None: LSNs were missing, and there is a row about
        them.

        The hold is in force before the row says what is gone, so that nothing more goes meanwhile.
        """
        try:
            await self.shard.set_hold(self._settings.hold, lsn)
        except HoldRefused as error:
            first_lsn = error.number("first_lsn")
            await self._hold_first(first_lsn)
            kept = (await self.shard.status()).position.first_lsn
            self._reached("hold-set")
            row = Row(
                **self._head(lsn, kept, previous),
                writer_epoch=(await self.shard.status()).writer_epoch,
            )
            if not await _in_thread(self.manifest.add, row):
                raise LostRace from error
            self._metrics.missing_lsns.labels(self._label).inc(kept - lsn)
            return None
        self._reached("hold-set")
        return lsn

    async def _hold_first(self, first_lsn: int) -> None:
        """Hold what is left; truncation may go on meanwhile."""
        while True:
            try:
                return await self.shard.set_hold(self._settings.hold, first_lsn)
            except HoldRefused as error:
                first_lsn = error.number("first_lsn")

    async def _move_hold(self, lsn: int) -> None:
        try:
            await self.shard.set_hold(self._settings.hold, lsn)
        except HoldRefused:
            # Another archiver has moved it further, and the log was truncated up to there.
            return

    async def _wait_until_due(self, to_tail: bool) -> None:
        """Wait until an object is worth while: nothing is open meanwhile. Before the first one
        nobody knows how large records are, so that one is made at once.
        """
        wanted = self._settings
        pause_s, lineage = bounds.ARCHIVE_POLL_S, self._lineage()
        while True:
            # A replica's own word will do for a log that is looked at again.
            status = await self.shard.status(stale=not to_tail)
            if status.position.lineage.number and status.position.lineage.id.hex() != lineage:
                # A fork takes LSNs back, so it may be long before there is something to read.
                await self.shard.status()
            self.lag.seen(status.position.applied_lsn + 1)
            due = self.lag.records > 0 and (
                not self.lag.archived_lsns
                or self.lag.estimated_bytes >= wanted.object_bytes
                or self.lag.seconds >= wanted.object_age_s
            )
            if to_tail or due:
                return
            await asyncio.sleep(min(pause_s, wanted.object_age_s))
            pause_s = min(2 * pause_s, bounds.ARCHIVE_POLL_MAX_S)

    async def _write_object(self, name: str, first_lsn: int, previous: str) -> Row:
        """Write the object of the range from `first_lsn` on, durably, and make its row."""
        putting = self.manifest.files.put(self.manifest.path(name))
        keys = None if self._keys is None else await _in_thread(self._keys)
        with ExitStack() as closing:
            file = await _in_thread(_enter, closing, putting)
            self._reached("object-begun")
            writer = RangeWriter(file, first_lsn, keys=keys, name=self.manifest.path(name))
            closing.callback(writer.abandon)
            await self._fill(writer)
            digest = await _in_thread(writer.finish)
            status = await self.shard.status()
            self._reached("object-written")
            # The context ends with fsync and rename, which wait for the disk.
            await _in_thread(closing.pop_all().close)
        fed = writer.digester
        return Row(
            **self._head(first_lsn, fed.next_lsn, previous),
            object=name,
            object_bytes=writer.file.size,
            sha256=writer.file.sha256,
            key_id="" if keys is None else keys.active,
            digest=digest,
            records=fed.records,
            gap_lsns=fed.gap_lsns,
            value_bytes=fed.value_bytes,
            gaps=tuple(writer.gaps),
            writer_epoch=status.writer_epoch,
            next_timestamp=status.next_timestamp,
            append_time_us=writer.append_time_us,
        )

    async def _fill(self, writer: RangeWriter) -> None:
        """Read up to the tail as it is now, or until the object is large enough."""
        size, target = 0, self.lag.end_lsn
        while (
            writer.next_lsn < target
            and size < self._settings.object_bytes
            and writer.next_lsn - writer.digester.from_lsn < bounds.ARCHIVE_OBJECT_LSNS_MAX
        ):
            wanted = min(bounds.ARCHIVE_READ_BYTES, self._settings.object_bytes - size)
            found = await self.shard.read(writer.next_lsn, max_bytes=wanted)
            self.lag.seen(found.applied_lsn + 1)
            await _in_thread(_add, writer, found.items)
            size += sum(len(item.block.data) for item in found.blocks)

    def _head(self, first_lsn: int, end_lsn: int, previous: str) -> dict[str, Any]:
        """What a row says whatever became of its LSNs."""
        return {
            "format": FORMAT,
            "cluster_id": self._cluster_id,
            "shard_id": self.shard.shard_id,
            "name": self.name,
            "first_lsn": first_lsn,
            "end_lsn": end_lsn,
            "archived_us": time.time_ns() // 1000,
            "previous": previous,
            "lineage": self._lineage(),
            "lineage_number": 0 if self.shard.lineage is None else self.shard.lineage.number,
        }


def _enter(closing: ExitStack, context: AbstractContextManager[BinaryIO]) -> BinaryIO:
    return closing.enter_context(context)


def _add(writer: RangeWriter, items: Sequence[Records | Gap]) -> None:
    for item in items:
        writer.add(item)


async def _in_thread(call: Callable[..., ValueT], *given: Any) -> ValueT:
    """Call where it may wait. Who is cancelled waits for its end: nobody else may use what it uses
    until then.
    """
    work = begin_task(asyncio.to_thread(call, *given), awaited=True)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
