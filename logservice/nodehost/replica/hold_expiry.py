"""HoldExpiry: proposes that a hold has expired, in the logs that are led here.

Theory of operation. A hold with a time to live ends by an entry of its log, EXPIRE_HOLD, which
names the hold's revision (`rsm.state`, INV-RSM-HOLD-REVISION). The store of the log's leader counts
(`hold_times`) and proposes it. What makes that safe without agreement about time:

- a proposal that comes late, twice, or from a leader whose term is over names a revision that is
  over, or is in no log;
- a pause of this process counts as HOLD_LOOK_S at most, because what renews the hold may wait in a
  socket (as with INV-HOST-TICK).

What it costs: a replica whose holds have changed says so (`LogState.hold_changes`), which is a
comparison for each pass that applies something. Only replicas with a hold that may expire are
looked at again, once in HOLD_LOOK_S, and their holds only when one of them is due. A quiesced
replica is looked at like any other; to propose wakes its shard up.

INV-HOLD-TTL: no expiry is proposed of a hold that was set or renewed less than its time to live
ago, by this store's clock; but for those of readers, which lapse by other bounds, too
(INV-READER-HOLD).
INV-HOLD-EXPIRES: a hold that nobody renews is gone within its time to live, two looks and the time
of one command, while one store leads the log, takes commands for it and does not pause, and if no
more than HOLD_EXPIRIES_PER_LOOK_MAX are due in a look. An expiry that came to nothing is proposed
again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import NamedTuple

from logservice_wire.errors import LogServiceError

from logservice import bounds
from logservice.clock import Clock
from logservice.events import Event, emit
from logservice.ids import ShardId
from logservice.nodehost.replica.replica import BREAKS, Replica
from logservice.outcome import Applied
from logservice.rsm import commands
from logservice.rsm.state import Hold

logger = logging.getLogger(__name__)


class HoldTime(NamedTuple):
    """Of one hold, as a replica here knows it. expires_in_s: None when it never expires, or another
    store decides.
    """

    age_s: float
    expires_in_s: float | None


class HoldExpiry:
    """One per NodeHost, on its loop thread."""

    def __init__(self, clock: Clock) -> None:
        """Nothing is looked at yet."""
        self._clock = clock
        self._clock_s = clock.monotonic()
        self._changed: dict[ShardId, Replica] = {}
        self._timed: dict[ShardId, Replica] = {}
        self._proposed: set[tuple[ShardId, str]] = set()
        self._look_s = 0.0
        self.now_s = 0.0
        """Seconds since the start; of a pause of the process at most HOLD_LOOK_S count."""
        self.expired = 0
        """Holds that have expired by this store's word."""

    def changed(self, replica: Replica) -> None:
        """The holds of its log are not what they were, or not as they were known."""
        self._changed[replica.shard] = replica

    def times(self, replica: Replica) -> dict[str, HoldTime]:
        """How old the holds of its log are, and when they expire, by name."""
        if replica.log_rsm is None:
            return {}
        self._count(self._clock.monotonic())
        self._see(replica)
        known, state, now_s = replica.hold_times, replica.log_rsm.state, self.now_s
        return {
            name: HoldTime(known.age_s(name, now_s), known.expires_in_s(name, now_s))
            for name in state.holds
        }

    def oldest_age_s(self, replica: Replica) -> float:
        """Of the holds that keep back a truncation: for how long one was neither set nor renewed,
        at the most; 0 without any.
        """
        state = replica.log_rsm.state if replica.log_rsm is not None else None
        if state is None or state.requested_lsn == state.truncated_lsn:
            return 0.0
        self._count(self._clock.monotonic())
        self._see(replica)
        return replica.hold_times.oldest_age_s(state.requested_lsn, self.now_s)

    def stood_s(self, replica: Replica, name: str) -> float:
        """How long a hold stands at its LSN, as far as it is known here."""
        self._count(self._clock.monotonic())
        self._see(replica)
        return replica.hold_times.stood_s(name, self.now_s)

    def lapse(self, replica: Replica, name: str, hold: Hold) -> None:
        """Propose that a hold has expired although its time is not over (`reader_holds`)."""
        if (replica.shard, name) not in self._proposed:
            self._expire(replica, name, hold)

    def tick(self, now_s: float) -> None:
        """Count the time, and look when it is time for it. `now_s`: the host's clock."""
        self._count(now_s)
        if self.now_s < self._look_s or not (self._changed or self._timed):
            return
        self._look_s = self.now_s + bounds.HOLD_LOOK_S
        self._look()

    def _count(self, now_s: float) -> None:
        """Whoever notes what has changed counts first: a time before the change would be early."""
        self.now_s += min(max(0.0, now_s - self._clock_s), bounds.HOLD_LOOK_S)
        self._clock_s = now_s

    def _look(self) -> None:
        changed, self._changed = self._changed, {}
        self._timed |= changed
        left = bounds.HOLD_EXPIRIES_PER_LOOK_MAX
        for shard, replica in list(self._timed.items()):
            try:
                left -= self._look_at(replica, left)
            except BREAKS as error:
                replica.fail(error)
            if replica.stopped or not replica.hold_times.timed:
                del self._timed[shard]

    def _look_at(self, replica: Replica, most: int) -> int:
        """Propose that holds of its log have expired; returns of how many."""
        if replica.stopped:
            return 0
        self._see(replica)
        proposed = 0
        for name, hold in replica.hold_times.expired(self.now_s):
            if proposed < most and (replica.shard, name) not in self._proposed:
                proposed += 1
                self._expire(replica, name, hold)
        return proposed

    def _see(self, replica: Replica) -> None:
        assert replica.log_rsm is not None
        replica.hold_times.look(replica.log_rsm.state, self.now_s)
        replica.hold_times.leads(replica.raft.term if replica.ready_to_lead else 0, self.now_s)

    def _expire(self, replica: Replica, name: str, hold: Hold) -> None:
        command = commands.encode(commands.ExpireHold(hold.revision, name))
        deadline_s = self._clock.monotonic() + bounds.STORE_COMMAND_TIMEOUT_S
        try:
            outcome = replica.propose(command, deadline_s)
        except LogServiceError:
            return  # it is busy; the next look comes soon
        self._proposed.add((replica.shard, name))
        outcome.add_done_callback(functools.partial(self._done, replica.shard, name, hold))

    def _done(
        self, shard: ShardId, name: str, hold: Hold, outcome: asyncio.Future[Applied]
    ) -> None:
        self._proposed.discard((shard, name))
        if outcome.cancelled() or outcome.exception() is not None or outcome.result().duplicate:
            return
        self.expired += 1
        emit(
            logger,
            Event.HOLD_EXPIRED,
            shard=shard,
            hold=name,
            owner=hold.owner,
            lsn=hold.lsn,
            ttl_s=hold.ttl_s,
        )
