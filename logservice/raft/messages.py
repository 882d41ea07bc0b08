"""Messages between the replicas of one shard: one frozen dataclass per type.

`to` and `sender` are replica ids of the shard the message belongs to; the shard itself is known to
the shell, which runs many of these cores. Replies to oneself (`sender == to`) stand for the local
disk: the self-vote and the self-ack are delivered after the fsync, so a leader never counts itself
early.
"""

from __future__ import annotations

from typing import Final

from logservice_wire.value import value

from logservice.entry import Entry
from logservice.ids import Index, ReplicaId, Term
from logservice.snapshot import Snapshot

ROOM_MAX: Final = 2**63 - 1
"""The room of a disk that bounds nothing; see `tracker.room`."""


@value(kw_only=True)
class _Message:
    to: ReplicaId
    sender: ReplicaId
    term: Term = Term(0)


@value(kw_only=True)
class AppendEntries(_Message):
    """Replicate `entries` after (prev_index, prev_term)."""

    prev_index: Index
    prev_term: Term
    entries: tuple[Entry, ...] = ()
    commit: Index = Index(0)


@value(kw_only=True)
class AppendResponse(_Message):
    """`index`: last index the follower has durably, or the rejected prev_index when `reject`.

    `hint_index`, `hint_term`: where the follower's log may agree with the leader's. `room`,
    `closed`: what the follower's disk takes, see `tracker.room`.
    """

    index: Index
    reject: bool = False
    hint_index: Index = Index(0)
    hint_term: Term = Term(0)
    room: int = ROOM_MAX
    closed: bool = False


@value(kw_only=True)
class RequestVote(_Message):
    """`pre`: a pre-vote, which changes nobody's term. `transfer`: asked for by the leader, so
    leader stickiness does not apply.
    """

    last_index: Index
    last_term: Term
    pre: bool = False
    transfer: bool = False


@value(kw_only=True)
class VoteResponse(_Message):
    """Answer to RequestVote; `pre` repeats the request's."""

    reject: bool = False
    pre: bool = False


@value(kw_only=True)
class Heartbeat(_Message):
    """Keeps the followers from campaigning; its answers confirm the read round of `context`."""

    commit: Index = Index(0)
    context: bytes = b""


@value(kw_only=True)
class HeartbeatResponse(_Message):
    """Echoes the context. `room`, `closed`: as in AppendResponse."""

    context: bytes = b""
    room: int = ROOM_MAX
    closed: bool = False


@value(kw_only=True)
class Quiesce(_Message):
    """Every member has everything up to `index`, and the leader falls silent; see `quiesce`."""

    index: Index


@value(kw_only=True)
class InstallSnapshot(_Message):
    """The leader no longer has the entries the follower needs."""

    snapshot: Snapshot


@value(kw_only=True)
class TimeoutNow(_Message):
    """Leadership transfer: campaign at once."""


@value(kw_only=True)
class TransferLeader(_Message):
    """Ask the leader to hand over to `sender`."""


@value(kw_only=True)
class Propose(_Message):
    """Entries forwarded to the leader; their term, index and lsn are not yet set."""

    entries: tuple[Entry, ...]


@value(kw_only=True)
class ReadIndexRequest(_Message):
    """A follower asks for a linearization point."""

    context: bytes


@value(kw_only=True)
class ReadIndexResponse(_Message):
    """Everything up to `index` must be applied before the read of `context` is served."""

    context: bytes
    index: Index


@value(kw_only=True)
class Unreachable(_Message):
    """Local report: messages to `sender` were lost."""


@value(kw_only=True)
class SnapshotStatus(_Message):
    """Local report: the snapshot sent to `sender` arrived or was `reject`ed."""

    reject: bool = False


Message = (
    AppendEntries
    | AppendResponse
    | RequestVote
    | VoteResponse
    | Heartbeat
    | HeartbeatResponse
    | Quiesce
    | InstallSnapshot
    | TimeoutNow
    | TransferLeader
    | Propose
    | ReadIndexRequest
    | ReadIndexResponse
    | Unreachable
    | SnapshotStatus
)
"""Every message the core takes or gives."""
