"""Room: what the disks of a shard's members still take, and what a leader may therefore append.

With each acknowledgement and each heartbeat answer a member says two things about its disk:

- `room`: bytes of blocks that this shard's leader may have appended and not yet committed. 0: the
  disk is above its high-water mark. It is a promise: the disk takes what was admitted under it,
  from the reserve behind the mark, however full it is by then.
- `closed`: the reserve, too, is nearly used up. Blocks for this disk wait at the leader. Of an
  append that is already on its way, the disk takes the entries before the first block. Control
  entries (commands, membership changes, no-ops) still go, as long as no block is before them.

The shell measures both and sets them (`Raft.set_room`). Blocks are refused in one place only, by
the leader's shell before it proposes them:

- INV-ROOM-1: a block is admitted only while its bytes and all uncommitted ones fit the room of the
  leader itself and of a quorum. A full minority stops nothing, a full quorum refuses.
- INV-ROOM-2: nothing but a block is ever refused or held back for lack of room: truncation,
  elections and membership changes go on.

A quorum closes only when something other than blocks under a promise fills its disks: promises
alone leave the reserve its floor. What was appended before that, and everything behind it, then
waits for room (`Tracker.closed`). Callers do not wait for it: `nodehost.replica.intake` refuses.

A member counts as having room until a quorum has said something in this term: nothing can be
committed before, so nothing piles up. A member that was not heard of for an election timeout counts
as having none.

- INV-ROOM-4: what the disks of a quorum that speaks do not take is not admitted for the sake of a
  member that is silent. Else a dead member's share of an election timeout, however much is appended
  in that, would fill the others' reserves. While such a member may yet speak, a refusal says so: it
  is BUSY, not DISK_FULL.

- INV-ROOM-3: a leader never stays where only its own disk refuses a block. It hands leadership to a
  member that has room for what was refused (`leading.hand_over`), also when its own disk is not
  full, and merely promises less than the block: where many replicas share a disk, a promise is
  small long before the disk is full.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from logservice.entry import Entry, EntryKind


def before_blocks(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """What a closed disk still takes of what comes next in its log."""
    return tuple(itertools.takewhile(lambda entry: entry.kind is not EntryKind.BLOCK, entries))
