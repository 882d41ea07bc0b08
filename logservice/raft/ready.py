"""Ready: the effects of a step, as data, and the shell's duties.

The duties, in order (safety rests on them):

1. If `hard_state` changes term or vote, persist it before any message of this Ready leaves: no
   message that carries a new term, RequestVote included, may be seen by others first. Otherwise
   `messages` may leave at once, in parallel with the local write (Raft thesis 10.2.1).
2. Persist `snapshot`, `hard_state`, `entries` in one commit group; fdatasync if `must_sync`.
3. After that, call `Raft.persisted(ready)`: it delivers the part of `messages_after_append` that is
   addressed to the replica itself. Send the others.
4. Apply `committed_entries` (all of them are persisted here already), then call
   `Raft.applied(index)`. For every CONFIG entry call `Raft.apply_config_change(entry)` when it is
   applied.
5. Several Readys may be waiting for the disk; they are persisted in the order they were taken.
"""

from __future__ import annotations

import enum

from logservice_wire.value import value

from logservice.entry import Entry
from logservice.hard_state import HardState
from logservice.ids import Index, ReplicaId
from logservice.raft.messages import Message
from logservice.snapshot import Snapshot


class Role(enum.Enum):
    """What a replica is at the moment."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@value
class SoftState:
    """Who leads and what this replica is, for information only; it is never written."""

    leader: ReplicaId
    role: Role


@value
class ReadState:
    """The read of `context` may be served once `index` is applied."""

    index: Index
    context: bytes


@value
class Ready:
    """One batch of effects; a field is empty or None when there is nothing of its kind to do."""

    soft_state: SoftState | None
    hard_state: HardState | None
    must_sync: bool
    entries: tuple[Entry, ...]
    snapshot: Snapshot | None
    messages: tuple[Message, ...]
    messages_after_append: tuple[Message, ...]
    committed_entries: tuple[Entry, ...]
    read_states: tuple[ReadState, ...]
