"""RaftConfig: the settings of one replica's core. All times are in ticks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from logservice import bounds
from logservice.ids import NO_REPLICA, ReplicaId


@dataclass(frozen=True, slots=True)
class RaftLimits:
    """Soft limits; replicas of a shard may differ in them. Bytes are payload bytes."""

    message_bytes: int = bounds.RAFT_MESSAGE_BYTES_MAX
    inflight_messages: int = bounds.RAFT_INFLIGHT_MESSAGES_MAX
    inflight_bytes: int = bounds.RAFT_INFLIGHT_BYTES_MAX
    uncommitted_bytes: int = bounds.RAFT_UNCOMMITTED_BYTES_MAX
    committed_bytes_per_ready: int = bounds.RAFT_COMMITTED_BYTES_PER_READY_MAX
    pending_reads: int = bounds.PENDING_READS_MAX


_LIMITS: Final = RaftLimits()


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Settings of one replica.

    - election_ticks: the least time without a leader before a campaign; the draw is between it and
      twice it. heartbeat_ticks must be smaller.
    - step_down_on_removal: a leader that applies its own removal or demotion stops leading, with
      hand_over_on_removal after the new voters know of it (see `leading.hand_over`), else at once.
    - watch_disk: a leader gives leadership away when entries waited for its own disk and the disk
      made none durable for an election timeout.
    - change_needs_own_commit: a leader takes no membership change before the no-op of its term is
      committed. guard_changes: nor one whose new majority is not active and caught up.
    - commit_notice_waits: followers learn of a commit from the next append, read answer or tick,
      not from a message of its own; in a closed loop that halves the messages.
    - quiesce_ticks: ticks without a request after which an idle shard falls silent (see `quiesce`);
      0: never. A leader that was given nothing to append waits for less (`State.quiet_ticks`). The
      replicas of a shard may differ in it.
    - lease_read: needs check_quorum, and must be the same on every replica. lease_span: how long a
      confirmed round gives a lease, in the units of the core's `lease_clock`; 0: three quarters of
      the election timeout, in ticks. It must end, on any clock, before a follower that answered the
      round votes for anybody.
    """

    replica_id: ReplicaId
    election_ticks: int
    heartbeat_ticks: int
    pre_vote: bool = True
    check_quorum: bool = True
    limits: RaftLimits = _LIMITS
    step_down_on_removal: bool = True
    disable_change_validation: bool = False
    lease_read: bool = False
    lease_span: int = 0
    hand_over_on_removal: bool = True
    watch_disk: bool = True
    change_needs_own_commit: bool = True
    guard_changes: bool = False
    commit_notice_waits: bool = False
    quiesce_ticks: int = 0

    def __post_init__(self) -> None:
        """Refuse settings that cannot work; raises ValueError with the name of the setting."""
        if self.replica_id == NO_REPLICA:
            raise ValueError("replica_id: 0 means no replica")
        if self.heartbeat_ticks < 1:
            raise ValueError("heartbeat_ticks: at least 1")
        if self.election_ticks <= self.heartbeat_ticks:
            raise ValueError("election_ticks: must be greater than heartbeat_ticks")
        if self.quiesce_ticks < 0:
            raise ValueError("quiesce_ticks: at least 0")
        if self.lease_read and not self.check_quorum:
            raise ValueError("lease_read: needs check_quorum")
