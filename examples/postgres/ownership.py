"""Who may ship into a log: one server, by name, and of its shippers the newest.

The name is the holder of the log's writer epoch. A shipper acquires the epoch only while the log
has none, or has it under the shipper's own name; so the shipper of a server that was replaced can
be started again as often as somebody likes, and takes nothing back. `take_over` is the deliberate
step: it gives the log another name, and from then on nothing of the old shipper takes effect (G9).
It comes *before* a restore, for what the old server could still get acknowledged behind the restore
would be lost.

INV-PG-OWNER: a shipper acquires the writer epoch from nobody but an earlier shipper of its own
name, and never again after another one acquired it.
"""

from __future__ import annotations

from logservice_client import LogServiceError, Outcome, Shard, StaleEpoch, UnknownOutcome
from logservice_client.caller import AFTER_UNKNOWN


class LogTaken(Exception):
    """Another shipper has the log."""


class Ownership:
    """The right to append to one log, under one name."""

    def __init__(self, log: Shard, name: str) -> None:
        self._log = log
        self.name = name
        self._epoch = 0  # of ours; 0: none yet, or we cannot know

    async def acquire(self, timeout_s: float) -> None:
        """Acquire the writer epoch, which fences every append that is on its way. Raises LogTaken,
        and errors of the log.
        """
        epoch = await self.check(timeout_s)
        try:
            self._epoch = await self._log.acquire_writer(
                self.name, expected_epoch=epoch, timeout=timeout_s
            )
        except StaleEpoch as error:
            if AFTER_UNKNOWN in error.metadata and error.holder == self.name:
                self._epoch = 0  # it may be our own attempt whose answer was lost: look again
                raise UnknownOutcome("the writer epoch may be ours") from error
            raise LogTaken(f"{error.holder!r} acquired the log at the same moment") from error
        except LogServiceError as error:
            if error.outcome is Outcome.UNKNOWN:
                self._epoch = 0  # the next one may find an epoch of ours that we do not know
            raise

    async def check(self, timeout_s: float) -> int:
        """The log's writer epoch, which we may replace. Raises LogTaken."""
        status = await self._log.status(timeout=timeout_s)
        if status.writer_epoch and status.writer_holder != self.name:
            raise LogTaken(f"{status.writer_holder!r} has the log, and this is {self.name!r}")
        if self._epoch and status.writer_epoch != self._epoch:
            raise LogTaken(f"another shipper of {self.name!r} has the log")
        return status.writer_epoch


async def take_over(log: Shard, name: str, timeout_s: float) -> int:
    """Give the log to the server of this name, whoever had it; the new epoch."""
    return await log.acquire_writer(name, takeover=True, timeout=timeout_s)
