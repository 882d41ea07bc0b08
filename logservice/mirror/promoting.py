"""promoting: makes a mirror a log of its own, which a database appends to.

Theory of operation. A *planned* promote loses nothing. The mirror is brought to the end of its
source and compared with it (`comparing`), while the source is appended to; then what came meanwhile
is, and so on, until a round is short. What would stop the rest is found there, and it can be ended
anywhere: nothing was changed. Then the source is closed, for ever, so its end is fixed. The rest is
brought, and the mirror opens at the source's end if its leader's store reads the digest from it, of
the LSNs that were not compared before, that the source's stores say. Only then the hold goes. So
nobody can append for about as long as the last round took, however much was mirrored. Each step can
be repeated, so whoever was killed says it again; behind the close that is the only way. What was
compared is forgotten then, so that costs a comparison of everything.

Why what was compared before need not be again is INV-MIRROR-7's to say. The leader's store has not
read it itself; a replica of the mirror that differs from the others is found as in every log.

A *forced* one needs nothing of the source, which may be gone. The mirror opens where it is. The
source is not fenced: if it lives, its writer goes on there. What it acknowledged behind the last
mirrored LSN is not here, and nobody knows how much that is. A source that answers is compared
before, for as long as the caller says; one that is silent costs MIRROR_ASKED_S. A mirror that is
found to differ is opened only if nothing is to be compared.

INV-MIRROR-5: a planned promote opens at the end of a source that is closed, and everything that
both have is the same; a forced one says the last mirrored LSN, the source's end as it is known,
what was compared and what was not, and that nobody knows what is behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from logservice.mirror.comparing import Comparison
from logservice.mirror.mirroring import Mirror, MirrorEnded

STEPS: Final = ("complete", "compared", "closed", "all-taken", "digested", "open", "released")
"""What is behind a planned promote when it calls `reached`."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What a forced promote knows of the source. LSNs [from_lsn, equal_lsn) are the same in both.
    source_end_lsn: None when nobody said it. why: the comparison ended before the end of the
    mirror; "" when it did not.
    """

    from_lsn: int = 0
    equal_lsn: int = 0
    source_end_lsn: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Promoted:
    """What the log is now. fresh: False when it was promoted before. source_end_lsn: None when
    nobody said it. closed_s: for so long nobody could append; None when that is not known.
    compared: of a forced one that has opened it.
    """

    shard_id: int
    end_lsn: int
    writer_epoch: int
    fresh: bool
    source_end_lsn: int | None
    closed_s: float | None = None
    compared: Compared | None = None


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
        self.standing = _NOTHING_CHANGED
        """What is behind it, for whoever ends it in between."""
        self._mirror = mirror
        self._target = target
        self._say = say
        self._reached = reached
        self._comparison = Comparison(mirror, say=say)

    async def check(self) -> log_pb2.GetShardStatusResponse | None:
        """Bring the mirror to its source's end and compare them, until a round is short. Returns
        None; or the log's status when it was promoted before, at the end of a source that is
        closed.

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
                self.standing = _OPEN
                return status
            raise
        self._reached("complete")
        if (await mirror.source.status()).closed_index:
            self.standing = _CLOSED
            self._say("the source was closed before; all is compared once more")
        loop, took_s = asyncio.get_running_loop(), 0.0
        for _ in range(bounds.MIRROR_ROUNDS_MAX):
            began_s = loop.time()
            await self._complete()
            await self._comparison.up_to(mirror.next_lsn)
            took_s = loop.time() - began_s
            if took_s <= bounds.MIRROR_SHORT_ROUND_S:
                break
        self._reached("compared")
        self._say(
            f"complete up to LSN {mirror.next_lsn - 1}, and the same as its source; the last round "
            f"took {took_s:.1f} s, and about so long nobody can append"
        )
        return None

    async def planned(self) -> Promoted:
        """Close the source, and open the mirror at its end.

        Raises what `check` raises, then nothing was changed; and what the calls raise, then the
        source may be closed, and this is to be said again. CorruptBlock: it is closed, and the
        mirror is not the same.
        """
        mirror = self._mirror
        status = await self.check()
        fresh, closed_s, loop = status is None, None, asyncio.get_running_loop()
        if fresh:
            began_s = loop.time()
            self.standing = _CLOSED  # perhaps: the answer may be lost
            closed = await mirror.source.close_log()
            self._reached("closed")
            self._say(f"the source is closed behind LSN {closed.end_lsn - 1}")
            await self._complete()
            self._reached("all-taken")
            await self._open(closed.end_lsn)
            closed_s = None if closed.duplicate else loop.time() - began_s
            self.standing = _OPEN
            self._reached("open")
            self._say(f"open: {mirror.pair.into} goes on at LSN {closed.end_lsn}")
        # Who closes a log is an administrator of it.
        await mirror.release(override=True)
        self._reached("released")
        found = await mirror.find_copy()
        made = self._promoted(found, fresh, (await mirror.source.status()).end_lsn)
        return replace(made, closed_s=closed_s)

    async def forced(
        self,
        timestamps_above: int | None,
        compare_s: float = bounds.MIRROR_FORCED_COMPARE_S,
    ) -> Promoted:
        """Open the mirror where it is. timestamps_above: the log gives out timestamps above that
        one; None: none any more. compare_s: the source, if it answers, is compared for so long
        before; 0: not at all.

        Raises MirrorEnded when they differ; then nothing was changed.
        """
        mirror = self._mirror
        status = await mirror.find_copy()
        fresh = status.HasField("restoring")
        if fresh and not status.restoring.mirror:
            raise VerbRefused(f"{mirror.pair.into} is no mirror", why="restored")
        if not fresh and not status.position.lineage.number:
            raise VerbRefused(f"{mirror.pair.into} is no mirror", why="open")
        if fresh and status.restoring.next_lsn < status.restoring.base_lsn:
            raise VerbRefused(
                f"{mirror.pair.into} has nothing of its source yet: it cannot be opened",
                why="empty",
            )
        compared = await self._compared_by_force(status, compare_s if fresh else 0.0)
        if fresh:
            stamp = 0 if timestamps_above is None else timestamps_above + 1
            await self._open_at(status.restoring.next_lsn, stamp)
            self.standing = _OPEN
        found = await mirror.find_copy()
        made = self._promoted(found, fresh, compared.source_end_lsn)
        return replace(made, compared=compared if fresh else None)

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

    async def _open(self, end_lsn: int) -> None:
        """With the digest of what was not compared before the source was closed."""
        mirror = self._mirror
        assert mirror.next_lsn == end_lsn, (mirror.next_lsn, end_lsn)
        stamp = timestamps_after((await mirror.source.status()).next_timestamp)
        for _ in range(bounds.MIRROR_PROMOTE_ATTEMPTS_MAX):
            from_lsn, digest = min(await self._comparison.first_lsn(), end_lsn), b""
            try:
                if from_lsn < end_lsn:
                    found = await mirror.source.digest(
                        from_lsn, end_lsn, patience=bounds.RESTORE_PATIENCE_S
                    )
                    digest = found.digest
                self._reached("digested")
                return await mirror.copy.finish(
                    digest_lsn=from_lsn, end_lsn=end_lsn, digest=digest, next_timestamp=stamp
                )
            except (ShardRestoring, Truncated):
                # One of the two has let something go.
                continue
        raise VerbRefused("one of the two logs is truncated all the time", why="truncated")

    async def _open_at(self, next_lsn: int, stamp: int) -> None:
        """By force."""
        for _ in range(bounds.MIRROR_PROMOTE_ATTEMPTS_MAX):
            try:
                return await self._mirror.copy.finish(
                    digest_lsn=next_lsn, end_lsn=next_lsn, next_timestamp=stamp
                )
            except ShardRestoring as error:
                next_lsn = error.number("next")
        raise VerbRefused("somebody still mirrors: end that process first", why="mirrored")

    async def _compared_by_force(
        self, status: log_pb2.GetShardStatusResponse, compare_s: float
    ) -> Compared:
        """What the source says, if it says anything, and as much as the time is for. Raises
        MirrorEnded when they differ.
        """
        mirror = self._mirror
        try:
            async with asyncio.timeout(bounds.MIRROR_ASKED_S):
                source = await mirror.find_source()
        except TimeoutError:
            return Compared(why=f"the source did not answer within {bounds.MIRROR_ASKED_S:g} s")
        except LogServiceError as error:
            return Compared(why=f"the source did not answer: {error}")
        source_end_lsn = source.position.applied_lsn + 1
        if not compare_s:
            return Compared(source_end_lsn=source_end_lsn, why="nothing was to be compared")
        end_lsn, why = min(status.restoring.next_lsn, source_end_lsn), ""
        found = Comparison(mirror, say=self._say, patience_s=bounds.MIRROR_ASKED_S)
        try:
            async with asyncio.timeout(compare_s):
                await found.up_to(end_lsn)
        except MirrorEnded as ended:
            raise MirrorEnded(
                f"{ended.message}. Nothing was opened: with --compare-for 0 it is opened all the "
                "same",
                why=ended.metadata["why"],
            ) from ended
        except TimeoutError:
            why = f"{compare_s:g} s were over"
        except LogServiceError as error:
            why = str(error)
        return Compared(found.from_lsn, found.equal_lsn, source_end_lsn, why)

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


_NOTHING_CHANGED: Final = "Nothing was closed and nothing was opened."
_CLOSED: Final = (
    "The source is closed, or may be: nobody can append to either log. Say the command again; it "
    "goes on, and nothing else does."
)
_OPEN: Final = "The mirror is open. Say the command again: it does what is left."
