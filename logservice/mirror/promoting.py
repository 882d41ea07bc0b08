"""promoting: makes a mirror a log of its own, which a database appends to.

Theory of operation. A *planned* promote loses nothing. The mirror is brought to the end of its
source first, and compared with it; what would stop the rest is found there, while the source still
serves. Then the source is closed, for ever, so its end is fixed. What came in between is brought,
and the mirror opens at the source's end if its leader's store reads the digest from it that the
source's stores say. Only then the hold goes. Each step can be repeated, so whoever was killed says
it again; behind the close that is the only way.

A *forced* one asks nothing of the source, which may be gone. The mirror opens where it is. The
source is not fenced: if it lives, its writer goes on there. What it acknowledged behind the last
mirrored LSN is not here, and nobody knows how much that is.

The digest is of what the mirror has. When the source has let go some of that, the rest is compared,
and what is gone there is vouched for by the checksums of its blocks.

INV-MIRROR-5: a planned promote opens at the end of a source that is closed, with its digest; a
forced one says the last mirrored LSN, the source's end as it is known, and that nobody knows what
is behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logservice_client import LogClient
from logservice_wire.errors import (
    DiskFull,
    LogServiceError,
    ShardRestoring,
    Truncated,
    VerbRefused,
)
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.archive.restoring import timestamps_after
from logservice.mirror.mirroring import Mirror, MirrorEnded

STEPS: Final = ("complete", "compared", "closed", "all-taken", "digested", "open", "released")
"""What is behind a planned promote when it calls `reached`."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """What the log is now. fresh: False when it was promoted before. source_end_lsn: None when
    nobody said it.
    """

    shard_id: int
    end_lsn: int
    writer_epoch: int
    fresh: bool
    source_end_lsn: int | None


class Promotion:
    """Of one mirror."""

    def __init__(
        self,
        mirror: Mirror,
        target: LogClient,
        *,
        say: Callable[[str], None] = lambda _: None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`say` is told what is done, for a person. `reached`: tests end the process there."""
        self._mirror = mirror
        self._target = target
        self._say = say
        self._reached = reached

    async def check(self) -> log_pb2.GetShardStatusResponse | None:
        """Bring the mirror to its source's end, and compare them. Returns None; or the log's status
        when it was promoted before, at the end of a source that is closed.

        Raises MirrorEnded, DiskFull, and what the calls raise.
        """
        mirror = self._mirror
        try:
            await mirror.begin(make=False)
            await self._check_disks()
            await self._complete()
        except MirrorEnded as ended:
            if ended.metadata["why"] != "promoted":
                raise
            status = await mirror.find_copy()
            source = await mirror.source.status()
            if source.closed_index and source.end_lsn == status.position.lineage.fork_lsn + 1:
                return status
            raise
        self._reached("complete")
        await self._digest(compare=True)
        self._reached("compared")
        self._say(f"complete up to LSN {mirror.next_lsn - 1}, and the same as its source")
        return None

    async def planned(self) -> Promoted:
        """Close the source, and open the mirror at its end.

        Raises what `check` raises, then nothing was changed; and what the calls raise, then the
        source may be closed, and this is to be said again. CorruptBlock: it is closed, and the
        mirror is not the same.
        """
        mirror = self._mirror
        status = await self.check()
        fresh = status is None
        if fresh:
            closed = await mirror.source.close_log()
            self._reached("closed")
            self._say(f"the source is closed behind LSN {closed.end_lsn - 1}")
            await self._complete()
            self._reached("all-taken")
            await self._open(closed.end_lsn)
            self._reached("open")
        # Who closes a log is an administrator of it.
        await mirror.release(override=True)
        self._reached("released")
        found = await mirror.find_copy()
        return self._promoted(found, fresh, (await mirror.source.status()).end_lsn)

    async def forced(self, timestamps_above: int | None) -> Promoted:
        """Open the mirror where it is. timestamps_above: the log gives out timestamps above that
        one; None: none any more.
        """
        mirror = self._mirror
        status = await mirror.find_copy()
        source_end_lsn = await self._source_end()
        fresh = status.HasField("restoring")
        if fresh and not status.restoring.mirror:
            raise VerbRefused(f"{mirror.pair.into} is no mirror", why="restored")
        if not fresh and not status.position.lineage.number:
            raise VerbRefused(f"{mirror.pair.into} is no mirror", why="open")
        if fresh:
            stamp = 0 if timestamps_above is None else timestamps_above + 1
            await self._open_at(status.restoring.next_lsn, stamp)
        found = await mirror.find_copy()
        return self._promoted(found, fresh, source_end_lsn)

    # --- steps ------------------------------------------------------------------------------------

    async def _check_disks(self) -> None:
        """Raises DiskFull when a store of the target has no room: that is better known before the
        source is closed.
        """
        state = await self._target.hakeeper.cluster_state()
        full = [
            store.store_id
            for store in state.stores
            if not store.expired and any(one.full for one in store.directories)
        ]
        if full:
            raise DiskFull(f"stores of the target have full disks: {', '.join(full)}")

    async def _complete(self) -> None:
        """Until the mirror has what the source has."""
        while not await self._mirror.bring():
            lag = self._mirror.lag
            self._say(f"up to LSN {lag.next_lsn - 1} of {lag.end_lsn - 1}")

    async def _digest(self, *, compare: bool) -> tuple[int, bytes]:
        """The mirror's first LSN and the digest from there on, as the source says it, as far as
        that goes. Raises MirrorEnded when they differ; unless it is to `compare`, the source alone
        is asked where it has all, and the mirror's opening tells.
        """
        mirror = self._mirror
        for _ in range(bounds.MIRROR_PROMOTE_ATTEMPTS_MAX):
            base_lsn = (await mirror.copy.status()).restoring.base_lsn
            first_lsn = max(base_lsn, (await mirror.source.status()).position.first_lsn)
            try:
                if first_lsn == base_lsn < mirror.next_lsn and not compare:
                    found = await mirror.source.digest(
                        base_lsn, mirror.next_lsn, patience=bounds.RESTORE_PATIENCE_S
                    )
                    return base_lsn, found.digest
                if first_lsn < mirror.next_lsn:
                    await mirror.compared(first_lsn, mirror.next_lsn)
                if compare or base_lsn == mirror.next_lsn:
                    return 0, b""
                own = await mirror.copy.shard.digest(
                    base_lsn, mirror.next_lsn, patience=bounds.RESTORE_PATIENCE_S
                )
                return base_lsn, own.digest
            except Truncated:
                continue
        raise VerbRefused("one of the two logs is truncated all the time", why="truncated")

    async def _open(self, end_lsn: int) -> None:
        mirror = self._mirror
        assert mirror.next_lsn == end_lsn, (mirror.next_lsn, end_lsn)
        stamp = timestamps_after((await mirror.source.status()).next_timestamp)
        for _ in range(bounds.MIRROR_PROMOTE_ATTEMPTS_MAX):
            base_lsn, digest = await self._digest(compare=False)
            self._reached("digested")
            try:
                return await mirror.copy.finish(
                    base_lsn=base_lsn, end_lsn=end_lsn, digest=digest, next_timestamp=stamp
                )
            except ShardRestoring:
                # Another process has let something go in the mirror.
                continue
        raise VerbRefused("the mirror is truncated all the time", why="truncated")

    async def _open_at(self, next_lsn: int, stamp: int) -> None:
        """By force."""
        for _ in range(bounds.MIRROR_PROMOTE_ATTEMPTS_MAX):
            try:
                return await self._mirror.copy.finish(end_lsn=next_lsn, next_timestamp=stamp)
            except ShardRestoring as error:
                next_lsn = error.number("next")
        raise VerbRefused("somebody still mirrors: end that process first", why="mirrored")

    async def _source_end(self) -> int | None:
        """If anybody there says it."""
        try:
            async with asyncio.timeout(bounds.MIRROR_ASKED_S):
                return await self._mirror.source_end()
        except (LogServiceError, TimeoutError):
            return None

    def _promoted(
        self, status: log_pb2.GetShardStatusResponse, fresh: bool, source_end_lsn: int | None
    ) -> Promoted:
        return Promoted(
            self._mirror.copy.shard.shard_id,
            status.position.lineage.fork_lsn + 1,
            status.writer_epoch,
            fresh,
            source_end_lsn,
        )
