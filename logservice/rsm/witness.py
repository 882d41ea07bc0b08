"""Witness: a voter that stores where records are, and no records.

Theory of operation. The leader sends a witness the entries of its log without their payloads, and
snapshots without state (`raft.leading.sending`). The witness makes these positions durable as every
follower does, acknowledges them, and votes. It never leads. So a log with two full replicas and a
witness goes on when one of the three is away, on the disks of two.

What this costs is guarantee G1. An append may be acknowledged when one full replica and the
witness have it. Whoever creates such a log says so (`waive_g1`).

- If that replica is away for a while, the log stands still: the other one lacks what the witness
  knows to be committed, and gets no vote from it. It forgets nothing.
- If that replica's disk is lost, the record is lost, and the log stands still for good.

Fewer than half of the voters are witnesses. So every majority has a full replica, and what is
committed is on at least one.

Which replicas are witnesses stands in the membership, and never changes for a replica id
(`raft.membership.change`). A replica knows it of itself by its bootstrap record, before it has
heard anything.

INV-WITNESS-1: a replica runs this state machine exactly if it is a witness by the membership in its
bootstrap record. So no payload is missed by a state machine that needs it.
INV-WITNESS-2: a store answers nothing out of a witness's log: no read, no look-up, no digest, no
entries for a repair. Whoever asks hears that the store has no replica that could answer.
INV-WITNESS-3: a witness's log is bounded: it is compacted behind what is applied when it has
WITNESS_ENTRIES_MAX entries. No one reads it, so nothing waits for that.

Sources: Paris, "Voting with Witnesses" (1986); Dragonboat, whose witness stores positions, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from logservice_wire.errors import ShardNotFound

from logservice.entry import Entry
from logservice.envelope import ProposalId
from logservice.outcome import Outcome
from logservice.snapshot import SnapshotCorrupt
from logservice.state_machine import Standing

_NOWHERE: Final = Standing(None, None)


class WitnessRsm:
    """The state machine without a state; see `StateMachine`."""

    def update(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        """Nothing waits here for an outcome: a witness does not lead."""
        return ()

    def lookup(self, query: object) -> object:
        """Raises ShardNotFound (INV-WITNESS-2)."""
        raise ShardNotFound("the replica on this store is a witness: it holds no records")

    def save_snapshot(self) -> bytes:
        """Nothing."""
        return b""

    def save_in_slices(self) -> Iterator[bytes]:
        """Nothing."""
        return iter((b"",))

    def prepare(self, state: bytes) -> Iterator[None]:
        """There is nothing to read."""
        return iter(())

    def recover_from_snapshot(self, state: bytes) -> None:
        """Raises SnapshotCorrupt for a state with content: it was meant for somebody else."""
        self.check_snapshot(state)

    def check_snapshot(self, state: bytes) -> Standing:
        """See `StateMachine`."""
        if state:
            raise SnapshotCorrupt("a state for a witness")
        return _NOWHERE

    def close(self) -> None:
        """Nothing is held."""
