"""LogSlice: what reading a log returns: runs of LSNs, each a block or a typed gap."""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice.ids import Lsn, Term
from logservice.value import value


@value
class LogRun:
    """`record_count` LSNs from `first_lsn` on. `gap` is None for a block, else why there is none.

    `first_lsn` may lie below the LSN asked for, when that is inside the block: blocks are opaque.
    """

    first_lsn: Lsn
    record_count: int
    term: Term
    block: bytes | memoryview
    gap: Reason | None = None


@value
class LogSlice:
    """Consecutive runs. `next_lsn` is where to go on; equal to the LSN asked for at the tail."""

    runs: tuple[LogRun, ...]
    next_lsn: Lsn
    first_lsn: Lsn
    applied_lsn: Lsn
