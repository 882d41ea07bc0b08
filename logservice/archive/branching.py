"""branching: what a new log has to be, to begin as another one that lives.

Theory of operation. A branch is a restore (`restoring`) whose source is no archive but the living
log, of this cluster or of another one. The range is chosen, a hold keeps it in the source, and the
source's own stores say its digest. So nothing is trusted on the way: the new log opens only when
its leader's store has read the same digest from its own log (INV-RESTORE-3). The source goes on
meanwhile, and is not changed but for the hold.

The hold lives as long as this process, and a minute longer (`HeldLog`). A process that was killed
is started again, and sets a new one; what was truncated in between is said and refused, never
passed over. If somebody continues the source by force meanwhile, its calls raise LINEAGE_CHANGED.

INV-BRANCH-1: LSN n of the branch is LSN n of the source, as the source's digest of the range says.
INV-BRANCH-2: a branch that was begun is finished with the range and the digest that it was begun
with, or not at all.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from logservice_client import RangeDigest, Shard
from logservice_client.held_log import HeldLog
from logservice_wire.errors import HoldRefused, InvalidArgument
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.archive.living_blocks import Span
from logservice.archive.restoring import Promise, check_no_mirror, timestamps_after
from logservice.lineage import NO_LINEAGE


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the operator said of the range; None: nothing. end_lsn: behind the last LSN. point_us:
    the time of the last block, or later.
    """

    from_lsn: int | None = None
    end_lsn: int | None = None
    point_us: int | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """A range of a living log. timed: whether all of it has append times; first_time_us: that of
    its first LSN, or 0.
    """

    promise: Promise
    found: RangeDigest
    first_time_us: int

    @property
    def timed(self) -> bool:
        """A log that has given one append time gives one to everything behind it."""
        return self.first_time_us > 0

    @property
    def span(self) -> Span:
        """What is read of the source."""
        return Span(
            self.promise.base_lsn,
            self.promise.end_lsn,
            self.timed,
            self.first_time_us,
            bounds.RESTORED_GAPS_MAX,
        )


def as_begun(wanted: Wanted, target: log_pb2.GetShardStatusResponse) -> Wanted:
    """What was not said is as it was begun, or done, in the log `target`. Raises InvalidArgument
    for a mirror.
    """
    if target.HasField("restoring"):
        check_no_mirror(target.restoring)
        base_lsn, end_lsn = target.restoring.base_lsn, target.restoring.end_lsn
    elif target.position.lineage.number:
        base_lsn, end_lsn = target.position.first_lsn, target.position.lineage.fork_lsn + 1
    else:
        return wanted
    unsaid = wanted.end_lsn is None and wanted.point_us is None
    return Wanted(
        base_lsn if wanted.from_lsn is None else wanted.from_lsn,
        end_lsn if unsaid else wanted.end_lsn,
        wanted.point_us,
    )


@asynccontextmanager
async def held_branch(source: Shard, wanted: Wanted) -> AsyncIterator[Branch]:
    """The branch, while the source keeps its records.

    Raises InvalidArgument when the source does not have the range, and what the calls raise.
    """
    held = await _hold(source, wanted.from_lsn)
    try:
        status = await source.status()
        next_lsn = status.position.applied_lsn + 1
        end_lsn = await _end(source, wanted, next_lsn)
        if not held.lsn < end_lsn <= min(next_lsn, bounds.RESTORED_LSN_MAX):
            raise InvalidArgument(
                f"the log has LSNs {held.lsn} to {next_lsn - 1}, and the last wanted one is "
                f"{end_lsn - 1}",
                field="to_lsn",
            )
        _check_gaps(status, held.lsn, end_lsn)
        first = (await source.read(held.lsn, max_bytes=1)).items[0]
        found = await source.digest(held.lsn, end_lsn, patience=bounds.RESTORE_PATIENCE_S)
        lineage = status.position.lineage
        promise = Promise(
            held.lsn,
            end_lsn,
            found.digest,
            lineage.number + 1,
            lineage.id or NO_LINEAGE,
            status.writer_epoch,
            timestamps_after(status.next_timestamp),
        )
        yield Branch(promise, found, first.append_time_us)
    finally:
        # What matters is what was read, and that has the digest; so a hold that did not stand all
        # the time is no error here.
        await held.release()


def _check_gaps(source: log_pb2.GetShardStatusResponse, base_lsn: int, end_lsn: int) -> None:
    """Raises InvalidArgument when the branch is all of the log, and that has more gaps than a log
    takes over. How many a part of it has is known only when it was read (`living_blocks`).
    """
    whole = (source.position.first_lsn, source.position.applied_lsn + 1)
    if (base_lsn, end_lsn) == whole and source.gaps > bounds.RESTORED_GAPS_MAX:
        raise InvalidArgument(
            f"the log has {source.gaps} gaps, and a branch takes over {bounds.RESTORED_GAPS_MAX}: "
            "begin at a later LSN",
            field="from_lsn",
        )


async def _hold(source: Shard, from_lsn: int | None) -> HeldLog:
    """A hold that stands, and is renewed, at `from_lsn`, or else at the first LSN that is left;
    truncation may go on meanwhile.
    """
    name = f"branch-{secrets.token_hex(4)}"
    lsn = from_lsn or (await source.status()).position.first_lsn
    while True:
        held = source.hold(name, lsn)
        try:
            await held.set()
            return held
        except HoldRefused as error:
            first_lsn = error.number("first_lsn")
            if from_lsn is not None:
                raise InvalidArgument(
                    f"LSNs {from_lsn} to {first_lsn - 1} are truncated", field="from_lsn"
                ) from error
            lsn = first_lsn


async def _end(source: Shard, wanted: Wanted, next_lsn: int) -> int:
    """The LSN behind the last one of the branch. Raises InvalidArgument for a time that the log
    does not prove: something older may be truncated, or still be appended.
    """
    if wanted.point_us is None:
        return next_lsn if wanted.end_lsn is None else wanted.end_lsn
    found = await source.lsn_at_time(wanted.point_us + 1)
    if found.truncated:
        raise InvalidArgument("the log was truncated beyond that time", field="to")
    if found.lsn >= next_lsn:
        raise InvalidArgument(
            "the log has nothing younger than that time: leave out the time, if all that there is "
            "will do",
            field="to",
        )
    return found.lsn
