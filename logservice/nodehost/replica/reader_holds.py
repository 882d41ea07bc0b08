"""ReaderHolds: readers' holds that keep too much, or for too long, lapse, in the logs led here.

Theory of operation. A reader sets holds by a role that does not let it decide about a log's space
(`logservice_wire.reader_hold`). So what its hold may keep is bounded, whether it renews it or not:
READER_HOLD_BYTES_MAX bytes of the log behind it, and READER_HOLD_STANDS_S_MAX seconds at one LSN.
The store of the log's leader judges, at every visit of the truncation worker, and proposes the
expiry that a hold gets whose time to live is over (`hold_expiry`): one that names a revision. A
renewal that comes in between makes it void, and the next visit proposes it again.

The bytes are those of this replica's log, up to the newest entry. How long a hold stands at its LSN
is what this store knows (`hold_times`); a restart of it begins anew.

INV-READER-HOLD: while one store leads the log, and takes commands for it, a reader's hold that is
over one of these bounds is gone after two visits, if nobody renews it between each visit and the
command that it proposes. No other hold goes by them.
"""

from __future__ import annotations

from collections.abc import Generator

from logservice_wire.errors import LogServiceError
from logservice_wire.reader_hold import is_reader_hold

from logservice import bounds
from logservice.ids import Lsn
from logservice.logdb.read.entry_read import Fetch
from logservice.nodehost.replica.hold_expiry import HoldExpiry
from logservice.nodehost.replica.log_reading import run_steps
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.retention import beyond_bytes, newest_entry


class ReaderHolds:
    """One per NodeHost, on its loop thread."""

    def __init__(self, expiry: HoldExpiry) -> None:
        """`expiry` counts the time, and proposes."""
        self._expiry = expiry

    async def visit(self, replica: Replica) -> None:
        """Let holds of readers lapse that are over a bound."""
        if not self._holds(replica):
            return
        try:
            behind = await run_steps(replica, _too_far_back(replica))
        except LogServiceError:
            return  # it stopped, or is damaged: others see to that
        for name in self._holds(replica):
            assert replica.log_rsm is not None
            hold = replica.log_rsm.state.holds[name]
            stood_s = self._expiry.stood_s(replica, name)
            if stood_s > bounds.READER_HOLD_STANDS_S_MAX or hold.lsn <= behind:
                self._expiry.lapse(replica, name, hold)

    @staticmethod
    def _holds(replica: Replica) -> list[str]:
        """Names of those that may lapse by this store's word."""
        rsm = replica.log_rsm
        if rsm is None or replica.stopped or not replica.ready_to_lead:
            return []
        return [
            name for name, hold in rsm.state.holds.items() if hold.ttl_s and is_reader_hold(name)
        ]


def _too_far_back(replica: Replica) -> Generator[Fetch, None, Lsn]:
    """The last LSN behind which there is more than a reader's hold may keep; 0 for none."""
    assert replica.log_rsm is not None
    newest = yield from newest_entry(replica, replica.log_rsm)
    if not newest:
        return Lsn(0)
    return (yield from beyond_bytes(replica, newest, bounds.READER_HOLD_BYTES_MAX))
