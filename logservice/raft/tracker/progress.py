"""Progress: what the leader knows of one replica, and how it may send to it.

- PROBE: the follower's position is a guess; one append at a time until it answers.
- REPLICATE: the position is known; appends are pipelined up to the in-flight window.
- SNAPSHOT: it needs a snapshot; nothing else is sent until that is through.

INV-PROGRESS: ``match < next``, and `match` is an index that the follower has durably in the
leader's present term. Owner: the leader of a term; reset at each change of term.

`Inflights` is the window of appends that are on their way: bounded in messages and in bytes, each
remembered by its last index. An answer for an index frees everything at or below it, because a
follower acknowledges a prefix. The last one may pass the byte bound, so that a large entry can go.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

from logservice_wire.value import value

from logservice.ids import Index
from logservice.raft.messages import ROOM_MAX

SNAPSHOT_PERIODS_MAX: Final = 4
"""Election timeouts a snapshot may take to be answered. Snapshots are small; records follow it."""


class ProgressState(enum.Enum):
    """How the leader sends to a replica."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Inflights:
    """A sliding window. Mutable, owned by one `Progress`."""

    __slots__ = ("_window", "bytes", "max_bytes", "max_messages")

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        """Start empty; 0 for `max_bytes` means no bound on bytes."""
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.bytes = 0
        self._window: deque[tuple[int, int]] | None = None
        """None while nothing is on the way: an empty deque takes a block of 64."""

    def __len__(self) -> int:
        """Messages on the way."""
        return len(self._window) if self._window is not None else 0

    def add(self, last_index: int, size: int) -> None:
        """A message up to `last_index` left; indexes only grow."""
        if self._window is None:
            self._window = deque()
        self._window.append((last_index, size))
        self.bytes += size

    def free_through(self, index: int) -> None:
        """The follower has everything up to `index`."""
        window = self._window
        if window is None:
            return
        while window and window[0][0] <= index:
            self.bytes -= window.popleft()[1]

    def full(self) -> bool:
        """Whether no further entries may be sent."""
        return len(self) >= self.max_messages or (
            self.max_bytes > 0 and self.bytes >= self.max_bytes
        )

    def forget_room(self) -> None:
        """The shard is idle: take no memory while nothing is on the way."""
        if not self._window:
            self._window = None

    def reset(self) -> None:
        """Forget everything: what is on the way may be lost."""
        self._window = None
        self.bytes = 0


@value
class ReplicaProgress:
    """A picture of one `Progress`, for the shell and people."""

    match: Index
    next: Index
    state: ProgressState
    recent_active: bool
    active: bool
    learner: bool
    paused: bool
    pending_snapshot: Index
    inflight: int
    inflight_bytes: int
    inflight_full: bool


class Progress:
    """Mutable; fields are read by the replication code directly, changed by the methods here."""

    __slots__ = (
        "active_before",
        "closed",
        "flow_paused",
        "inflights",
        "learner",
        "match",
        "next",
        "pending_snapshot",
        "recent_active",
        "room",
        "sent_commit",
        "snapshot_periods",
        "state",
        "told",
    )

    def __init__(
        self, *, next_index: int, inflights: Inflights, learner: bool, recent_active: bool = False
    ) -> None:
        """A replica whose log is unknown; the first append goes from `next_index`."""
        self.match = 0
        self.next = next_index
        self.sent_commit = 0
        self.state = ProgressState.PROBE
        self.pending_snapshot = 0
        self.snapshot_periods = 0
        self.recent_active = recent_active
        self.active_before = False
        self.flow_paused = False
        self.inflights = inflights
        self.learner = learner
        self._nothing_told()

    def reset(self, match: int, next_index: int) -> None:
        """Back to the start of a term."""
        self.match = match
        self.next = next_index
        self.sent_commit = 0
        self.recent_active = False
        self.active_before = False
        self._nothing_told()
        self._enter(ProgressState.PROBE)

    def tell(self, room: int, closed: bool) -> None:
        """What the disk takes from now on (`tracker.room`)."""
        self.room, self.closed, self.told = room, closed, True

    def _nothing_told(self) -> None:
        """`told`: it has said in this term what its disk takes, or was silent for too long."""
        self.room, self.closed, self.told = ROOM_MAX, False, False

    def begin_period(self) -> None:
        """One election timeout ends, with the check of the quorum, and another begins."""
        self.active_before = self.recent_active
        self.recent_active = False

    def wake(self) -> None:
        """The shard was quiesced and wakes: a new period begins. A member that was active when the
        shard fell silent counts as active in it, because it could not be heard of meanwhile.
        """
        self.active_before = self.active
        self.recent_active = False

    @property
    def active(self) -> bool:
        """Heard of in this period or the one before.

        This can be asked at any moment. `recent_active` alone is false for everybody just after a
        period began, so a caller that asks in step with the periods would never see it true.
        """
        return self.recent_active or self.active_before

    @property
    def takes_blocks(self) -> bool:
        """Not closed, and not silent. Its `room` is 0 when it is full, and also when silent."""
        return not self.closed and (self.room > 0 or self.active)

    def _enter(self, state: ProgressState) -> None:
        self.flow_paused = False
        self.pending_snapshot = 0
        self.snapshot_periods = 0
        self.state = state
        self.inflights.reset()

    def become_probe(self) -> None:
        """Send one at a time from after what is known, or from after the snapshot just sent."""
        if self.state is ProgressState.SNAPSHOT:
            self.next = max(self.match + 1, self.pending_snapshot + 1)
        else:
            self.next = self.match + 1
        self._enter(ProgressState.PROBE)
        self.sent_commit = min(self.sent_commit, self.next - 1)

    def become_replicate(self) -> None:
        """Pipeline from after the match."""
        self._enter(ProgressState.REPLICATE)
        self.next = self.match + 1

    def become_snapshot(self, index: int) -> None:
        """A snapshot at `index` is on the way."""
        self._enter(ProgressState.SNAPSHOT)
        self.pending_snapshot = index
        self.next = index + 1
        self.sent_commit = index

    def snapshot_period(self) -> None:
        """An election timeout passed. After SNAPSHOT_PERIODS_MAX of them without an answer the
        snapshot was lost, and so was the report of its loss: probe again, which sends the next one.
        """
        if self.state is ProgressState.SNAPSHOT:
            self.snapshot_periods += 1
            if self.snapshot_periods > SNAPSHOT_PERIODS_MAX:
                self.pending_snapshot = 0
                self.become_probe()

    def paused(self) -> bool:
        """Nothing may be sent but heartbeats."""
        return self.flow_paused or self.state is ProgressState.SNAPSHOT

    def sent_entries(self, count: int, size: int) -> None:
        """An append with `count` entries of `size` payload bytes left."""
        if self.state is ProgressState.REPLICATE:
            if count:
                self.next += count
                self.inflights.add(self.next - 1, size)
            # The append that fills the window counts as a probe: only its answer lets more go.
            self.flow_paused = self.inflights.full()
        elif count:
            self.flow_paused = True

    def can_bump_commit(self, commit: int) -> bool:
        """An empty append would tell the follower of a commit it has the entries for."""
        return commit > self.sent_commit and self.sent_commit < self.next - 1

    def maybe_update(self, index: int) -> bool:
        """The follower has everything up to `index` durably; False when that is old news."""
        if index <= self.match:
            return False
        self.match = index
        if self.next <= index:
            self.next = index + 1
        self.flow_paused = False
        return True

    def maybe_decrease(self, rejected: int, match_hint: int) -> bool:
        """The follower refused an append behind `rejected`; False when the refusal is stale."""
        if self.state is ProgressState.REPLICATE:
            if rejected <= self.match:
                return False
            self.next = self.match + 1
        else:
            if self.next - 1 != rejected:
                return False
            self.next = max(min(rejected, match_hint + 1), self.match + 1)
            self.flow_paused = False
        self.sent_commit = min(self.sent_commit, self.next - 1)
        return True

    def picture(self) -> ReplicaProgress:
        return ReplicaProgress(
            match=Index(self.match),
            next=Index(self.next),
            state=self.state,
            recent_active=self.recent_active,
            active=self.active,
            learner=self.learner,
            paused=self.paused(),
            pending_snapshot=Index(self.pending_snapshot),
            inflight=len(self.inflights),
            inflight_bytes=self.inflights.bytes,
            inflight_full=self.inflights.full(),
        )
