"""Unwritten: what a replica has in memory that is not on its disk yet, and when it takes no more.

Theory of operation. Entries come from a leader, or from those who append here, as fast as they
like; they leave memory at the pace of the disk. A log keeps at most what its leader may have under
way, but a store has thousands of logs. So all replicas of a store share one part of its memory
(`memory_part`). A message of a leader takes its size from it before the core hears it; an own
append does before it is put into the log. The write that brings the entries to the disk gives the
size back when it is durable, or when it will never be written. What never got into a write, because
the core refused it or had it already, is given back by the next pass.

A message for which there is no room is dropped, whole, before the core. That is safe for the reason
for which a network may lose it: the core never saw it, so it answers nothing, and its log, its
commit index and its term are what they were (INV-UNWRITTEN-1). No other message is looked at here:
heartbeats and votes are heard, the term and the election timer go on, and the leader is not
deposed. And the leader sends again. The answer to its next heartbeat says that the follower is
behind, whereupon it sends what follows its match index, one message for each heartbeat while
nothing comes back. So a store that is full is asked at the pace of heartbeats and not of the
network. A snapshot is sent again as after any loss (`Replica._retry_snapshots`).

Nobody waits for ever. What is held is given back as the disk goes on, and needs nothing else for
it: no quorum, no apply, no other store. A part of which nothing is held takes anything, and a
holder that holds nothing finds room beside those who take all they can. The holders are the stores
that send, one by one for each data directory, so that neither a store that floods nor a disk that
stands still takes the room of the others.

Own appends wait in the intake while there is no room, where they are bounded and have deadlines.
Commands of the state machine do not wait and are not counted: they are small and few, and one of
them may be what truncates the log on a full disk.

INV-UNWRITTEN-1: a message that is not taken changes nothing of the replica and is answered by
nothing.
INV-UNWRITTEN-2: what a replica holds is given back exactly once: by its write, by the pass that
made no write of it, or by its stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logservice.ids import Incarnation, StoreId
from logservice.invariants import invariant
from logservice.memory_part import MemoryPart
from logservice.raft.log.log import payload_bytes
from logservice.raft.messages import AppendEntries, InstallSnapshot, Message

_ENTRY_BYTES: Final = 256
"""What an entry takes beside its payload: a flood of empty ones is memory, too."""

Holder = tuple[Incarnation, StoreId]
Charge = tuple[Holder, int]


def size_of(message: Message) -> int:
    """Bytes that `message` would keep in memory until they are on the disk."""
    if type(message) is AppendEntries:
        entries = message.entries
        return payload_bytes(entries) + _ENTRY_BYTES * len(entries) if entries else 0
    if type(message) is InstallSnapshot:
        return len(message.snapshot.state) + _ENTRY_BYTES
    return 0


class Unwritten:
    """One per replica; see the module's text."""

    __slots__ = ("_charges", "_incarnation", "_own", "_part")

    def __init__(self, part: MemoryPart, incarnation: Incarnation, own: StoreId) -> None:
        """`part` is the store's; `own` is this store."""
        self._part = part
        self._incarnation = incarnation
        self._own = (incarnation, own)
        self._charges: list[Charge] = []

    def take(self, sender: StoreId, size: int) -> bool:
        """Hold what a message of `sender` brings; False when there is no room for it."""
        holder = (self._incarnation, sender)
        if not self._part.take(holder, size):
            return False
        self._charges.append((holder, size))
        return True

    @property
    def room(self) -> int:
        """For own appends."""
        return self._part.room(self._own)

    def take_own(self, size: int) -> None:
        """Own appends of at most `room` bytes go into the log."""
        taken = self._part.take(self._own, size)
        invariant(taken, "INV-MEM-1", size=size)
        self._charges.append((self._own, size))

    def hand_over(self) -> Sequence[Charge]:
        """What is held since the last call. Whoever gets it gives it back."""
        charges, self._charges = self._charges, []
        return charges

    def give_back(self, charges: Sequence[Charge]) -> None:
        """That much is on the disk, or nowhere."""
        for holder, size in charges:
            self._part.give_back(holder, size)
