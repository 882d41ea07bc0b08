"""StateMachine: the seam between a replica and what it replicates.

There are three implementations: `rsm.log_rsm.LogRsm` for log shards, `hakeeper.rsm.HAKeeperRsm` for
shard 0, and `rsm.witness.WitnessRsm` for a witness of a log shard. All are deterministic: they use
no clock, no randomness and no unordered iteration, and no input makes them raise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from logservice_wire.value import value

from logservice.entry import Entry
from logservice.envelope import ProposalId
from logservice.ids import Index, Lsn
from logservice.outcome import Outcome


@value
class Standing:
    """Where a state stands: the last index it has applied (None for a state without content), and
    the LSN of the record that follows (None for a machine that knows no LSNs).
    """

    applied: Index | None
    next_lsn: Lsn | None


class StateMachine(Protocol):
    """In-memory replicated state. Called by one thread, in log order, every entry exactly once."""

    def update(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        """Apply one committed entry of any kind; NOOP and CONFIG only move the applied index.

        Returns one outcome per proposal inside, in order.
        """
        ...

    def lookup(self, query: object) -> object:
        """Answer a query from the present state; never changes it. A long answer is `Sliced`."""
        ...

    def save_snapshot(self) -> bytes:
        """The whole state. Equal state gives equal bytes."""
        ...

    def save_in_slices(self) -> Iterator[bytes]:
        """The bytes of `save_snapshot` as of the call, in pieces. What is applied between two of
        them changes nothing of it.
        """
        ...

    def prepare(self, state: bytes) -> Iterator[None]:
        """Read `state` in steps, so that `check_snapshot` and `recover_from_snapshot` of the same
        object take no time. What does not decode is left to them.
        """
        ...

    def recover_from_snapshot(self, state: bytes) -> None:
        """Replace the state. `b""` is the state of a new shard. Raises SnapshotCorrupt."""
        ...

    def check_snapshot(self, state: bytes) -> Standing:
        """Where `state` stands; changes nothing. Raises SnapshotCorrupt when
        `recover_from_snapshot` would not take it.
        """
        ...

    def close(self) -> None:
        """Release what is held; no call follows."""
        ...
