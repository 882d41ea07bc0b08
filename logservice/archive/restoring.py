"""restoring: brings the records of another log into a log of this cluster.

Theory of operation. A *promise* is made first: the range, its digest, and the lineage that the log
will have. Whoever makes it has read and checked everything (`restore_plan` of an archive,
`branching` of a log that lives). The log in the cluster then keeps what matters: the promise, and
how far it is. So this process may be killed at any step, and the next one goes on at the log's next
LSN; two at once do no harm, for each block says its LSN and only the next one is taken. A restore
of another range or of other records than those that were begun is refused.

The log's lineage is drawn here, at random, and names the restore. A log whose lineage forks at the
end of the range, and which has its digest, was restored already.

How the blocks get there is `copying`; where they come from is a `Source`'s to know
(`archived_blocks`, `living_blocks`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logservice_client import Shard
from logservice_wire.digest import digest_text
from logservice_wire.errors import InvalidArgument, Truncated
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.archive.copying import Copy, Pace, Source
from logservice.lineage import LINEAGE_BYTES

STEPS: Final = ("begun", "blocks-taken", "all-taken", "open")
"""What is behind a restore when it calls `reached`."""


TIMESTAMP_MAX: Final = 2**63 - 1
"""A log that has come so far gives out none."""


def timestamps_after(known: int) -> int:
    """The next timestamp of a log whose source has `known` as its next one; 0: nobody knows."""
    if not 1 <= known <= TIMESTAMP_MAX:
        return TIMESTAMP_MAX
    return min(known + bounds.LINEAGE_TIMESTAMP_STEP, TIMESTAMP_MAX)


@dataclass(frozen=True, slots=True)
class Promise:
    """The range [base_lsn, end_lsn) and its digest. number: of the lineage that the log will have;
    parent: that of the source. writer_epoch: the newest that the source is known to have granted.
    """

    base_lsn: int
    end_lsn: int
    digest: bytes
    number: int
    parent: bytes
    writer_epoch: int
    next_timestamp: int


def check_no_mirror(restoring: log_pb2.Restoring) -> None:
    """Raises InvalidArgument: a mirror follows its source until it is promoted, and has no end."""
    if restoring.mirror:
        raise InvalidArgument("the log is a mirror of another one", field="log")


class Restorer:
    """One log."""

    def __init__(
        self,
        shard: Shard,
        promise: Promise,
        source: Source,
        *,
        bytes_per_s: int = bounds.RESTORE_BYTES_PER_S,
        patience_s: float = bounds.RESTORE_PATIENCE_S,
        progress: Callable[[int], None] = lambda _: None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """See `Copy`."""
        self._copy = Copy(
            shard,
            pace=Pace(bytes_per_s),
            patience_s=patience_s,
            progress=progress,
            reached=reached,
        )
        self._promise = promise
        self._source = source
        self._reached = reached

    async def run(self) -> bool:
        """Restore, verify, open; False: the log was restored before.

        Raises InvalidArgument (the log is another one), CorruptBlock (what was
        restored has another digest; it stays shut), and what the calls and
        the source raise.
        """
        next_lsn = await self._begin()
        if next_lsn is None:
            return False
        self._reached("begun")
        await self._copy.fill(self._source, next_lsn, self._promise.end_lsn)
        self._reached("all-taken")
        await self._copy.finish()
        self._reached("open")
        return True

    async def _begin(self) -> int | None:
        """The next LSN; None when there is nothing to do any more."""
        promise = self._promise
        status = await self._copy.begin(self._begin_request())
        if not status.HasField("restoring"):
            await self._check_done(status.position)
            return None
        found = status.restoring
        check_no_mirror(found)
        wanted = (promise.base_lsn, promise.end_lsn, promise.digest)
        if (found.base_lsn, found.end_lsn, found.digest) != wanted:
            raise InvalidArgument(
                f"another restore has begun in the log: LSNs {found.base_lsn} to "
                f"{found.end_lsn - 1} with {digest_text(found.digest)}",
                field="log",
            )
        return found.next_lsn

    def _begin_request(self) -> log_pb2.BeginRestoreRequest:
        promise = self._promise
        lineage = log_pb2.Lineage(number=promise.number, id=secrets.token_bytes(LINEAGE_BYTES))
        return log_pb2.BeginRestoreRequest(
            lineage=lineage,
            parent=promise.parent,
            base_lsn=promise.base_lsn,
            end_lsn=promise.end_lsn,
            writer_epoch=promise.writer_epoch,
            next_timestamp=promise.next_timestamp,
            digest=promise.digest,
        )

    async def _check_done(self, position: log_pb2.LogPosition) -> None:
        """Raises InvalidArgument unless the log was restored by this promise."""
        promise = self._promise
        same = position.lineage.fork_lsn == promise.end_lsn - 1
        if same:
            try:
                found = await self._copy.shard.digest(promise.base_lsn, promise.end_lsn)
                same = str(found) == digest_text(promise.digest)
            except Truncated:
                same = False
        if not same:
            raise InvalidArgument("the log has another history, or is in use", field="log")
