"""mirroring: one log of a second cluster that follows a log of the first one.

Theory of operation. The copy is a log that takes blocks under their own LSNs, with an open end
(`rsm.restoring`). It keeps all that matters: how far it is, and its lineage, which is the source's
next one. So this process may be killed at any step, and the next one goes on at the copy's next
LSN; two at once do no harm.

A *pass* asks the source how far it is, brings what is there, moves the hold, and lets go in the
copy what the source has let go. In between a Follow waits for the next record. The hold is set
before the copy is begun, has no expiry, and stands where the copy goes on: it moves only to an LSN
that the copy has answered for. So a source is truncated up to what is mirrored and no further, for
as long as somebody mirrors it or forgets to release the hold.

What ends a mirror for good is a `MirrorEnded`; everything else is tried again. Who goes on with a
mirror that another process has made compares the last LSNs of both first.

INV-MIRROR-3: the source's hold is never above the copy's applied next LSN. INV-MIRROR-4: LSNs that
the source truncated before they were mirrored end the mirror; no gap takes their place.
INV-MIRROR-6: a mirror whose source has become another lineage takes nothing more of it. It is known
by the id: a source that was recovered twice has two lineages of one number.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal

from logservice_client import LogClient, Shard
from logservice_wire.errors import (
    HoldRefused,
    InvalidArgument,
    LineageChanged,
    ShardNotFound,
    Truncated,
    VerbRefused,
)
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.archive.copying import Batch, Copy, Pace
from logservice.archive.living_blocks import LivingBlocks, Span
from logservice.archive.restore_target import create
from logservice.archive.restoring import timestamps_after
from logservice.lineage import LINEAGE_BYTES, NO_LINEAGE
from logservice.mirror.lag import Lag

STEPS: Final = ("hold-set", "made", "begun", "blocks-taken", "hold-moved", "let-go")
"""What is behind a mirror when it calls `reached`."""


class MirrorEnded(VerbRefused):
    """This mirror does not go on; `why` is one of promoted, truncated, lineage, differs, in-use."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A log of the source by its name, and what it is called in the target."""

    name: str
    into: str
    truncate: Literal["with-source", "never"] = "with-source"
    from_lsn: int = 0


class Mirror:
    """One pair."""

    def __init__(
        self,
        source: LogClient,
        target: LogClient,
        pair: Pair,
        *,
        hold: str,
        keeps_hold: bool = True,
        pace: Pace | None = None,
        reached: Callable[[str], None] = lambda _: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`keeps_hold`: else a hold that stands is left to whoever set it, who may be another
        identity. `pace`: shared by the mirrors of a process. `reached`: tests end the process
        there.
        """
        self.pair = pair
        self.lag = Lag(now_s)
        self.source: Shard
        self.copy: Copy
        self.base_lsn = 0
        self.next_lsn = 0
        self._clients = source, target
        self._hold = hold
        self._keeps_hold = keeps_hold
        self._pace = pace or Pace()
        self._reached = reached
        self._now_s = now_s
        self._held_lsn = 0
        self._held_s = 0.0
        self._let_go_lsn = 0
        self._first_time_us = 1

    async def begin(self, *, make: bool = True) -> None:
        """Find both logs, hold the source, and begin the copy where that is to be done. Raises
        MirrorEnded, InvalidArgument, and what the calls raise. `make`: else a mirror that was not
        begun is refused.
        """
        source, target = self._clients
        self.base_lsn = self.next_lsn = 0
        found = await source.hakeeper.resolve_shard(self.pair.name, fresh=True)
        self.source = source.shard(found.shard_id)
        status = await self._source_status()
        copy = await self._find(target)
        begun = None if copy is None else await copy.status()
        if begun is None or not (begun.HasField("restoring") or begun.position.lineage.number):
            if not make:
                raise InvalidArgument(f"{self.pair.into} is no mirror yet", field="log")
            first_lsn = max(status.position.first_lsn, self.pair.from_lsn)
            base_lsn = await self._hold_from(first_lsn)
            self._reached("hold-set")
            request = await self._begin_request(status, base_lsn)
            if copy is None:
                made = await create(target, self.pair.into, 0)
                copy = self._copy_of(target.shard(made.shard_id))
                self._reached("made")
            begun = await copy.begin(request)
            self._reached("begun")
        assert copy is not None
        self.copy = copy
        self._check(begun, status)
        self.base_lsn, self.next_lsn = begun.restoring.base_lsn, begun.restoring.next_lsn
        self._let_go_lsn = self.base_lsn - 1
        await self._compare(status)
        if self._keeps_hold or not self._held(await self._source_status()):
            await self._hold_from(max(self.base_lsn, self.next_lsn))
        if self.next_lsn < self.base_lsn:
            self._first_time_us = await self._time_of(self.base_lsn)

    async def bring(self) -> bool:
        """One pass; returns whether the copy has all that the source had when it was asked.

        Raises MirrorEnded, and what the calls raise.
        """
        asked_s = self._now_s()
        status = await self._source_status()
        end_lsn = status.position.applied_lsn + 1
        self.lag.looked(end_lsn, asked_s)
        self.lag.has(self.next_lsn)
        if status.position.first_lsn > max(self.base_lsn, self.next_lsn):
            await self._overtaken(status.position.first_lsn)
        behind = self.next_lsn < max(end_lsn, self.base_lsn)
        held = self._held(status)
        if not (behind and held) and not (await self.copy.status()).HasField("restoring"):
            # Whoever promotes releases the hold afterwards: it is not set again.
            raise _ended("promoted", f"{self.pair.into} was promoted")
        if behind:
            span = Span(self.base_lsn, end_lsn, True, self._first_time_us)
            try:
                found = await self.copy.fill_from(
                    _ForAWhile(LivingBlocks(self.source, span, patience_s=_PATIENCE_S)),
                    self.next_lsn,
                )
            except Truncated as error:
                await self._overtaken(error.number("first_lsn"))
                return False
            if found is None:
                raise _ended("promoted", f"{self.pair.into} was promoted")
            self._has(found)
        await self._move_hold(force=not held)
        await self._let_go(status.truncated_lsn)
        return self.next_lsn >= max(end_lsn, self.base_lsn)

    async def wait(self) -> None:
        """Until the source has more, or is to be looked at."""
        # A hold that is still to be moved does not wait for the next look.
        behind = self._keeps_hold and self._held_lsn < max(self.base_lsn, self.next_lsn)
        limit_s = bounds.MIRROR_HOLD_S if behind else bounds.MIRROR_LOOK_S
        until_s = self._now_s() + limit_s
        try:
            async with (
                asyncio.timeout(limit_s),
                aclosing(self.source.follow(self.next_lsn, until_lsn=self.next_lsn)) as more,
            ):
                async for _ in more:
                    return
        except TimeoutError:
            return
        # The log is closed, and there is no more.
        await asyncio.sleep(max(0.0, until_s - self._now_s()))

    async def compared(
        self, from_lsn: int, to_lsn: int, *, patience_s: float = bounds.RESTORE_PATIENCE_S
    ) -> None:
        """Raises MirrorEnded unless both have the same digest of the range."""
        there, here = await asyncio.gather(
            self.source.digest(from_lsn, to_lsn, patience=patience_s),
            self.copy.shard.digest(from_lsn, to_lsn, patience=patience_s),
        )
        if there.digest != here.digest:
            raise _ended(
                "differs",
                f"LSNs {from_lsn} to {to_lsn - 1} of {self.pair.into} are not those of "
                f"{self.pair.name}: that is another log, or another history of it",
            )

    async def release(self, *, override: bool = False) -> None:
        """Give up the source's records. `override`: as an administrator, whoever set the hold."""
        await self.source.release_hold(self._hold, override=override)

    async def release_if_moved(self) -> None:
        """The same, if the source ends where the mirror was opened: it has nothing more to give."""
        opened = (await self.copy.status()).position.lineage.fork_lsn + 1
        status = await self._source_status()
        if status.closed_index and status.end_lsn == opened:
            await self.release()

    async def find_source(self) -> log_pb2.GetShardStatusResponse:
        """The source, whatever lineage it has now. Raises what the calls raise."""
        source = self._clients[0]
        found = await source.hakeeper.resolve_shard(self.pair.name, fresh=True)
        self.source = source.shard(found.shard_id)
        return await self.source.status()

    async def find_copy(self) -> log_pb2.GetShardStatusResponse:
        """The mirror, without a word to its source. Raises ShardNotFound."""
        copy = await self._find(self._clients[1])
        if copy is None:
            raise ShardNotFound(f"there is no log {self.pair.into}")
        self.copy = copy
        return await copy.status()

    # --- steps ------------------------------------------------------------------------------------

    def _held(self, source: log_pb2.GetShardStatusResponse) -> bool:
        return any(hold.name == self._hold for hold in source.holds)

    async def _source_status(self) -> log_pb2.GetShardStatusResponse:
        try:
            return await self.source.status()
        except LineageChanged as error:
            raise _ended(
                "lineage",
                f"{self.pair.name} was continued by force behind LSN {error.number('fork_lsn')}, "
                "and is another history from there on",
            ) from error

    async def _find(self, target: LogClient) -> Copy | None:
        try:
            info = await target.hakeeper.resolve_shard(self.pair.into, fresh=True)
        except ShardNotFound:
            return None
        return self._copy_of(target.shard(info.shard_id))

    def _copy_of(self, shard: Shard) -> Copy:
        return Copy(
            shard,
            pace=self._pace,
            patience_s=_PATIENCE_S,
            progress=self._has,
            reached=self._reached,
        )

    async def _begin_request(
        self, status: log_pb2.GetShardStatusResponse, base_lsn: int
    ) -> log_pb2.BeginRestoreRequest:
        lineage = status.position.lineage
        self._first_time_us = await self._time_of(base_lsn)
        return log_pb2.BeginRestoreRequest(
            lineage=log_pb2.Lineage(number=lineage.number + 1, id=secrets.token_bytes(_ID)),
            parent=lineage.id or NO_LINEAGE,
            base_lsn=base_lsn,
            # A log that gets its first writer later is fenced from the beginning.
            writer_epoch=max(1, status.writer_epoch),
            next_timestamp=timestamps_after(status.next_timestamp),
            mirror=True,
        )

    async def _time_of(self, lsn: int) -> int:
        """When that LSN was appended; of one that is not there yet, earlier than every other.
        Raises InvalidArgument for a time that is not known.
        """
        items = (await self.source.read(lsn, max_bytes=1)).items
        if not items:
            return 1
        if not items[0].append_time_us:
            timed_lsn = (await self.source.lsn_at_time(1)).lsn
            raise InvalidArgument(
                f"LSN {lsn} has no append time: it is of cluster version 1. Begin at LSN "
                f"{timed_lsn}, if that will do: from_lsn = {timed_lsn}",
                field="from_lsn",
            )
        return items[0].append_time_us

    def _check(
        self, begun: log_pb2.GetShardStatusResponse, source: log_pb2.GetShardStatusResponse
    ) -> None:
        """Raises MirrorEnded unless the copy may be a mirror of this source."""
        lineage = begun.position.lineage
        if not begun.HasField("restoring"):
            raise _ended(
                "promoted" if lineage.number else "in-use",
                f"{self.pair.into} is no mirror: it is a log of its own, "
                + (f"since LSN {lineage.fork_lsn}" if lineage.number else "and is in use"),
            )
        if not begun.restoring.mirror:
            raise _ended("in-use", f"{self.pair.into} is being restored")
        if not is_of(begun, source):
            raise _ended(
                "lineage",
                f"{self.pair.into} is no mirror of what {self.pair.name} is now, which was "
                "continued by force, or is another log",
            )

    async def _compare(self, status: log_pb2.GetShardStatusResponse) -> None:
        """Raises MirrorEnded when the copy has something else than the source."""
        next_lsn, end_lsn = self.next_lsn, status.position.applied_lsn + 1
        if next_lsn > max(end_lsn, self.base_lsn):
            raise _ended(
                "differs",
                f"{self.pair.into} has LSNs up to {next_lsn - 1}, {self.pair.name} up to "
                f"{end_lsn - 1}: that is another log, or another history of it",
            )
        from_lsn = max(
            self.base_lsn, status.position.first_lsn, next_lsn - bounds.MIRROR_COMPARED_LSNS
        )
        if from_lsn < next_lsn:
            await self.compared(from_lsn, next_lsn)

    async def _hold_from(self, lsn: int) -> int:
        """Hold `lsn`, or the first LSN that is left when nothing was mirrored yet; returns where.

        Raises MirrorEnded when the mirror needs what is gone.
        """
        while True:
            try:
                await self.source.set_hold(self._hold, lsn)
            except HoldRefused as error:
                first_lsn = error.number("first_lsn")
                if self.base_lsn or self.next_lsn:
                    await self._overtaken(first_lsn)
                    lsn = max(self.base_lsn, self.next_lsn)
                else:
                    lsn = first_lsn
            else:
                self._held_lsn, self._held_s = lsn, self._now_s()
                return lsn

    async def _overtaken(self, first_lsn: int) -> None:
        """The source begins at `first_lsn`. Raises MirrorEnded unless another process has brought
        the copy there meanwhile (INV-MIRROR-4).
        """
        status = await self.copy.status()
        if not status.HasField("restoring"):
            raise _ended("promoted", f"{self.pair.into} was promoted")
        self.next_lsn = status.restoring.next_lsn
        wanted_lsn = max(status.restoring.base_lsn, self.next_lsn)
        if wanted_lsn < first_lsn:
            raise _ended(
                "truncated",
                f"{self.pair.name} was truncated before it was mirrored: LSNs {wanted_lsn} to "
                f"{first_lsn - 1} are gone. Somebody released the hold {self._hold}. Promote "
                f"{self.pair.into} as it is, or delete it and begin anew",
            )

    def _has(self, next_lsn: int) -> None:
        """The copy has answered for everything before that LSN."""
        self.next_lsn = next_lsn
        self.lag.has(next_lsn)

    async def _move_hold(self, *, force: bool) -> None:
        """INV-MIRROR-3. Not for each block: a move is an entry of the source's log."""
        wanted_lsn = max(self.base_lsn, self.next_lsn)
        due = self._keeps_hold and self._now_s() - self._held_s >= bounds.MIRROR_HOLD_S
        if force or (due and wanted_lsn > self._held_lsn):
            await self._hold_from(wanted_lsn)
            self._reached("hold-moved")

    async def _let_go(self, truncated_lsn: int) -> None:
        """What the source has let go, as far as the copy has it."""
        lsn = min(truncated_lsn, self.next_lsn - 1)
        if (
            self.pair.truncate == "never"
            or lsn <= self._let_go_lsn
            or self.next_lsn < self.base_lsn
        ):
            return
        request = log_pb2.RestoreBlocksRequest(
            lineage=self.copy.lineage, first_lsn=self.next_lsn, truncated_lsn=lsn
        )
        await self.copy.shard.restore_blocks(request)
        self._let_go_lsn = lsn
        self._reached("let-go")


_ID: Final = LINEAGE_BYTES
_PATIENCE_S: Final = bounds.MIRROR_PATIENCE_S


class _ForAWhile:
    """Blocks for MIRROR_PASS_S: then the hold is moved before there are more."""

    def __init__(self, blocks: LivingBlocks) -> None:
        self._blocks = blocks

    async def batches(self, lsn: int) -> AsyncGenerator[Batch]:
        """See `copying.Source`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + bounds.MIRROR_PASS_S
        async with aclosing(self._blocks.batches(lsn)) as batches:
            async for batch in batches:
                yield batch
                if loop.time() >= until_s:
                    return


def is_of(copy: log_pb2.GetShardStatusResponse, source: log_pb2.GetShardStatusResponse) -> bool:
    """Whether the copy was begun as one of what the source is now."""
    known = source.position.lineage.id or NO_LINEAGE
    return copy.position.lineage.number > 0 and copy.lineage_parent == known


def _ended(why: str, message: str) -> MirrorEnded:
    return MirrorEnded(message, why=why)
