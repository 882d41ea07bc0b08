"""SnapshotRequests: snapshots and compactions that somebody asks a NodeHost for.

The truncation worker does both by itself. This is for who embeds a NodeHost and wants to say when,
in Dragonboat's terms: request a snapshot, ordinary or exported to a path; install an exported one;
compact to an index. What is asked for is done by the part that the worker uses, too
(`nodehost.truncation.keeper`), under the same rules; here is when it is let in and how it ends.

INV-ASK-1: every request ends by its deadline, or when the host stops, in one typed outcome, and
one request of a replica is under way at a time. DEADLINE and UNKNOWN_OUTCOME say that what was
begun may still happen; each request may be repeated, and then changes nothing that is done.

Reference: Dragonboat's `RequestSnapshot`, and `SyncRequestImportSnapshot` of MatrixOne's fork.
Those let the caller compact what he likes. Here nothing goes that the truncation LSN does not
cover.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from logservice_wire.errors import (
    Busy,
    DeadlineExceeded,
    Halted,
    InvalidArgument,
    NotReady,
    ShardNotFound,
    UnknownOutcome,
)

from logservice.bounds import SNAPSHOT_REQUEST_RETRY_S
from logservice.ids import HAKEEPER_SHARD, Incarnation, Index, ShardId
from logservice.invariants import InvariantViolation
from logservice.nodehost.replica.log_reading import check_open
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.under_way import UnderWay


class Snapshots(Protocol):
    """What is asked of the snapshots in one data directory. Each answers with the index at which
    the snapshot is. Those that work at files raise OSError, after which nothing is known.
    """

    async def save(self, replica: Replica) -> Index:
        """Put the applied state aside, where a restart and a truncation find it."""
        ...

    async def export_to(self, replica: Replica, path: str) -> Index:
        """Write the applied state to a file."""
        ...

    async def install_from(self, replica: Replica, path: str) -> Index:
        """Compact the log behind the snapshot in a file."""
        ...

    async def compact(self, replica: Replica, index: Index) -> Index:
        """Compact the log behind an index."""
        ...


class SnapshotRequests:
    """There is one per NodeHost, on its loop thread."""

    def __init__(self, running: Mapping[ShardId, Replica], waiting: UnderWay) -> None:
        """`running[shard]` raises what says why there is no replica."""
        self._running = running
        self._waiting = waiting
        self._snapshots: dict[Incarnation, Snapshots] = {}
        self._under_way: set[ShardId] = set()

    def serve(self, incarnation: Incarnation, snapshots: Snapshots) -> None:
        """Let `snapshots` do what is asked of replicas in the data directory."""
        self._snapshots[incarnation] = snapshots

    def forget(self, incarnation: Incarnation) -> None:
        """The data directory is not used any more."""
        self._snapshots.pop(incarnation, None)

    async def run(
        self,
        shard: ShardId,
        work: Callable[[Snapshots, Replica], Awaitable[Index]],
        timeout_s: float,
    ) -> Index:
        """INV-ASK-1. Raises ShardNotFound, Halted, ShardDeleted (no replica of a log runs here),
        ShardRestoring, InvalidArgument (shard 0), Busy, DeadlineExceeded, NotReady,
        UnknownOutcome (the disk failed, or the host stopped meanwhile), and what `work` raises.
        """
        replica = self._running[shard]
        snapshots = self._for(replica)
        if shard in self._under_way:
            retry_ms = int(SNAPSHOT_REQUEST_RETRY_S * 1000)
            raise Busy("another request is at its snapshots", retry_after_ms=retry_ms, shard=shard)
        self._under_way.add(shard)
        try:
            late = DeadlineExceeded("it did not end in time", shard=shard)
            stopped = UnknownOutcome("the host stopped meanwhile", shard=shard)
            async with self._waiting.until(timeout_s, late, stopped):
                return await work(snapshots, replica)
        except OSError as error:
            raise UnknownOutcome(f"a disk failed: {error}", shard=shard) from error
        except InvariantViolation as error:
            replica.fail(error)
            raise Halted(f"it halted meanwhile: {error}", shard=shard) from error
        finally:
            self._under_way.discard(shard)

    def _for(self, replica: Replica) -> Snapshots:
        shard = replica.shard
        if shard == HAKEEPER_SHARD:
            raise InvalidArgument("shard 0 compacts itself", field="shard")
        if replica.witness or replica.log_rsm is None:
            raise ShardNotFound("no records are here", shard=shard)
        check_open(replica.log_rsm)
        snapshots = self._snapshots.get(replica.incarnation)
        if snapshots is None:
            raise NotReady("nobody keeps snapshots here", shard=shard)
        return snapshots
