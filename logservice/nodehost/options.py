"""NodeHostOptions: the numbers that a NodeHost runs with. `server.store` fills them from the
configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

from logservice import bounds
from logservice.ids import HAKEEPER_SHARD, ReplicaId, ShardId
from logservice.raft.config import RaftConfig


@dataclass(frozen=True, slots=True)
class NodeHostOptions:
    """Times are in ticks unless the name says otherwise.

    entry_bytes_target: blocks that arrive in one pass share an entry up to this size.
    fsync_inline_max_s: for a slower disk the loop does not wait, so that ticks go on.
    group_bytes_goal: see `Engine`. quiesce_ticks: an idle shard quiesces after so many
    ticks; with 0 it never does. lease_read: linearizable reads need no round to the other replicas
    while a lease holds; it must be the same on every store, and no clock may run 10 % faster than
    another. apply_stuck_s: see `replica.applying`. catch_up_bytes_per_s (0: no limit) and
    the other two: see `replica.catch_up`. tail_read_bytes_per_s and catch_up_read_bytes_per_s: see
    `replica.read_limits`. unwritten_bytes_max, store_proposal_bytes_max: of all replicas together;
    see `replica.unwritten` and `replica.intake`.
    """

    tick_ms: int = 50
    heartbeat_ticks: int = 2
    election_ticks: int = 20
    quiesce_ticks: int = 200
    lease_read: bool = False
    entry_bytes_target: int = 1024 * 1024
    fsync_inline_max_s: float = 0.0005
    group_bytes_goal: int = bounds.LOGDB_GROUP_BYTES_GOAL
    pending_proposals_max: int = bounds.PENDING_PROPOSALS_MAX
    pending_proposal_bytes_max: int = bounds.PENDING_PROPOSAL_BYTES_MAX
    pending_reads_max: int = bounds.PENDING_READS_MAX
    apply_stuck_s: float = bounds.APPLY_STUCK_S
    catch_up_bytes_per_s: int = bounds.CATCH_UP_BYTES_PER_S
    catch_up_behind_bytes: int = bounds.CATCH_UP_BEHIND_BYTES
    catch_up_turn_bytes: int = bounds.CATCH_UP_TURN_BYTES
    tail_read_bytes_per_s: int = bounds.CATCH_UP_BYTES_PER_S_MAX
    catch_up_read_bytes_per_s: int = bounds.CATCH_UP_BYTES_PER_S_MAX
    unwritten_bytes_max: int = bounds.UNWRITTEN_BYTES_MAX
    store_proposal_bytes_max: int = bounds.STORE_PROPOSAL_BYTES_MAX

    @property
    def tick_s(self) -> float:
        """The length of a tick."""
        return self.tick_ms / 1000

    @property
    def election_timeout_s(self) -> float:
        """The base election timeout; a drawn timeout is 1 to 2 times as long."""
        return self.tick_ms * self.election_ticks / 1000

    def raft_config(self, shard: ShardId, replica_id: ReplicaId) -> RaftConfig:
        """What a core runs with.

        Shard 0 gets an entry or two each second and nothing in between, so it never waits as long
        as a log does: it quiesces when one of HAKeeper's ticks could have come and did not. By
        default that is before its first heartbeat, so between two of its entries it sends none.
        """
        quiesce_ticks = self.quiesce_ticks
        if shard == HAKEEPER_SHARD:
            soon_ticks = max(2, bounds.HAKEEPER_QUIESCE_MS // self.tick_ms)
            quiesce_ticks = min(quiesce_ticks, soon_ticks)
        return RaftConfig(
            replica_id=replica_id,
            election_ticks=self.election_ticks,
            heartbeat_ticks=self.heartbeat_ticks,
            guard_changes=True,
            commit_notice_waits=True,
            quiesce_ticks=quiesce_ticks,
            lease_read=self.lease_read,
            lease_span=self.lease_span_us,
        )

    @property
    def lease_span_us(self) -> int:
        """How long a confirmed round lets a leader answer alone, in microseconds.

        A follower's promise lasts at least `election_ticks` - 2.5 ticks of its clock: the first
        tick may come at once, and a tick behind a late one comes after half the time. The span is
        three quarters of a little less, which leaves room for clocks that differ by a fifth.
        """
        return max(1, (self.election_ticks - 3) * self.tick_ms * 750)
