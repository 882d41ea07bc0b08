"""What the core refuses: absurd messages from peers, and proposals it cannot take now.

Both are ordinary outcomes. Nothing that a peer or a client sends may trip an invariant: the answer
to a message that no correct replica sends is `MessageRejected`, and such a message has changed
nothing.
"""

from __future__ import annotations

import enum


class RejectReason(enum.Enum):
    """Why a message from a peer was refused."""

    WRONG_ADDRESS = "wrong_address"
    """Not for this replica, or from nobody, or from this replica itself."""
    OUT_OF_RANGE = "out_of_range"
    """A number no correct replica sends."""
    LOCAL_ONLY = "local_only"
    """A local report that came from outside."""
    UNKNOWN_PEER = "unknown_peer"
    """An answer from a replica outside the configuration, for example late after its removal."""
    SECOND_LEADER = "second_leader"
    """Another replica claims to lead the same term."""
    BROKEN_ENTRIES = "broken_entries"
    """Entries with holes, terms that go back, or bad counts."""
    LSN_MISMATCH = "lsn_mismatch"
    """INV-LOG-LSN does not hold for what was sent."""
    COMMITTED_CONFLICT = "committed_conflict"
    """Would overwrite a committed entry, or commit what this log does not have."""
    BAD_SNAPSHOT = "bad_snapshot"
    """A snapshot that cannot follow what is committed here."""


class MessageRejected(Exception):
    """A message was refused and changed nothing. The shell counts it and goes on."""

    def __init__(self, reason: RejectReason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason
        self.detail = detail


class DropReason(enum.Enum):
    """Why a proposal, change or read was not taken. In every case it is definitely not applied."""

    NO_LEADER = "no_leader"
    TRANSFERRING = "transferring"
    """Leadership is being handed over."""
    BUSY = "busy"
    """Too many uncommitted bytes or waiting reads."""
    NOT_MEMBER = "not_member"
    """This leader is no longer in the configuration."""
    CHANGE_PENDING = "change_pending"
    """A membership change is not applied yet."""
    TERM_NOT_COMMITTED = "term_not_committed"
    """The no-op of this leader's term is not committed yet."""
    JOINT = "joint"
    """The joint configuration must be left first."""
    NOT_JOINT = "not_joint"
    """There is no joint configuration to leave."""
    NEW_MAJORITY_NOT_READY = "new_majority_not_ready"
    """A majority of the new configuration is not active and caught up."""


class ProposalDropped(Exception):
    """The proposal was not appended here and will not be."""

    def __init__(self, reason: DropReason) -> None:
        super().__init__(reason.value)
        self.reason = reason
