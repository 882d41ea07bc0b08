"""Catch-up: the rate at which a store sends old entries to members that are far behind.

Theory of operation. Replication and catch-up are the same messages of the same algorithm. What
tells them apart is where the leader has to begin: a member catches up when more than
`catch_up_behind_bytes` of the log lie between what it is sent next and the end. The core asks
log storage for those entries through the `LogReader`, and a read may fail with UnavailableError:
"not now". So the limit is one more reason for not now, in the shell. The core knows nothing of it:
to it, a member whose turn has not come is one whose entries are still at the disk.

One `CatchUpBudget` in a store holds for all shards that are led there. Members wait in one queue,
each with one message (CATCH_UP_TURN_BYTES), and are served in the order in which they asked. So
everybody who catches up gets the same share, whether one shard has two such members or forty have
one each. A turn is paid for when it is given, by what a message may hold, and what was not used is
paid back when the entries leave. A turn that is never used (the member was lost, or leadership) is
lost: the budget is spent, never exceeded.

Heartbeats, votes, commits and the entries of members that keep up ask nobody here. Nor do the
entries of shard 0, whose log is short and which every other repair waits for; nor what a replica
reads in order to apply it, because only entries that are applied here are catch-up.

Nor does anybody wait in a shard of which no majority of the voters has what is committed: there the
log stands still until a member has caught up, and nothing is more urgent.

What the log grew by since the member's last turn is not paid for. Otherwise a log that takes in
more than the limit would lose its member for ever; so a limit makes catching up slow, and never
endless.

INV-CATCHUP-1: over any time t the store hands out no more catch-up that has to wait than the rate
times t, the burst (CATCH_UP_BURST_S of it), what the logs grew by, and a message for each turn that
was paid for before and not used: a member has one, and leaves one behind where it had to be probed
again.
INV-CATCHUP-2: turns are given in the order in which they were asked for.
INV-CATCHUP-3: whoever asked has its turn at last, and is woken for it: nothing but the stop of its
replica takes it out of the queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from logservice import bounds
from logservice.clock import Clock
from logservice.entry import Entry
from logservice.ids import Index
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.raft.log.log import payload_bytes
from logservice.settable_rate import SettableRate

_TURNS_MAX: Final = 16
"""Turns that one replica waits for or holds: one for each other member of the largest shard, and
some that are stale."""


class CatchUpBudget:
    """The budget of one store; used on the loop thread."""

    def __init__(
        self,
        clock: Clock,
        bytes_per_s: int = bounds.CATCH_UP_BYTES_PER_S,
        turn_bytes: int = bounds.CATCH_UP_TURN_BYTES,
    ) -> None:
        """`bytes_per_s`: 0 for no limit; `turn_bytes`: of the message of one turn, unless a single
        entry is larger.
        """
        self.turn_bytes = turn_bytes
        self._rate = SettableRate(clock, bytes_per_s, bounds.CATCH_UP_BURST_S)
        self._queue: deque[tuple[CatchUpGate, int, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._serving = False
        """Turns are given. A replica that gets one may ask for the next; it comes in this pass."""
        self.sent_bytes = 0
        """Of entries that were handed out."""
        self.delayed = 0
        """Turns that had to wait."""

    @property
    def bytes_per_s(self) -> int:
        """The rate that is in force."""
        return self._rate.bytes_per_s

    @property
    def waiting(self) -> int:
        """Turns that wait."""
        return len(self._queue)

    def figures(self) -> dict[str, int]:
        """For people and metrics."""
        return {
            "bytes_per_s": self.bytes_per_s,
            "sent_bytes": self.sent_bytes,
            "delayed": self.delayed,
            "waiting": self.waiting,
        }

    def change(self, bytes_per_s: int) -> None:
        """The cluster's setting: another rate, in force at once; 0: what the store is configured
        to.
        """
        if self._rate.change(bytes_per_s):
            self._serve()

    def configure(self, bytes_per_s: int) -> None:
        """The store is configured to another rate."""
        if self._rate.configure(bytes_per_s):
            self._serve()

    def ask(self, gate: CatchUpGate, low: int, free_bytes: int) -> None:
        """A member needs entries from `low` on; `gate.granted` is called, perhaps at once."""
        self._queue.append((gate, low, free_bytes))
        if self._timer is None and not self._serving:
            self._serve()
        if self._queue and self._queue[-1][0] is gate:
            self.delayed += 1

    def used(self, size: int, paid: int, free_bytes: int) -> None:
        """A turn for which `paid` was taken handed out `size` bytes."""
        self.sent_bytes += size
        self._rate.take(max(0, size - free_bytes) - paid)

    def leave(self, gate: CatchUpGate) -> None:
        """Its replica stops."""
        self._queue = deque(turn for turn in self._queue if turn[0] is not gate)

    def _serve(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._serving = True
        try:
            while self._queue and not self._rate.wait_s():
                gate, low, free_bytes = self._queue.popleft()
                cost = max(0, self.turn_bytes - free_bytes)
                self._rate.take(cost)
                gate.granted(low, cost, free_bytes)
        finally:
            self._serving = False
        if self._queue:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._rate.wait_s(), self._serve)


class CatchUpGate:
    """What one replica, when it leads, has asked of the budget and may send."""

    def __init__(
        self,
        budget: CatchUpBudget,
        log: ReplicaLog,
        behind_bytes: int,
        wake: Callable[[], None],
        urgent: Callable[[], bool] = lambda: False,
    ) -> None:
        """`wake` is called when a turn is given; then the core has to try again. `urgent`: whether
        the shard stands still until a member has caught up.
        """
        self._budget = budget
        self._log = log
        self._behind_bytes = behind_bytes
        self._wake = wake
        self._urgent = urgent
        self._asking: dict[int, None] = {}
        """An empty set takes 216 bytes, a dictionary 64."""
        self._turns: dict[int, tuple[int, int]] = {}
        self._grown_from: dict[int, Index] = {}
        self._far_below = 0
        self._in_ask = False
        self.fresh = False
        """A turn was given since this was last set to False."""

    def passes(self, low: Index) -> bool:
        """Whether entries from `low` on may be read for a member now; if not, its turn comes."""
        if low in self._turns or not self._far(low) or self._urgent():
            return True
        if low not in self._asking and len(self._asking) < _TURNS_MAX:
            self._asking[low] = None
            since = self._grown_from.pop(low, None)
            last = self._log.last_index()
            grown = self._log.bytes_between(since, last) if since is not None else 0
            self._in_ask = True
            self._budget.ask(self, low, grown)
            self._in_ask = False
        return low in self._turns

    def bytes_max(self, low: Index) -> int:
        """What a message with entries from `low` on may hold; 0 when it needs no turn."""
        return self._budget.turn_bytes if low in self._turns else 0

    def handed_out(self, low: Index, entries: Sequence[Entry]) -> None:
        """Entries from `low` on go to a member."""
        turn = self._turns.pop(low, None)
        if turn is not None:
            self._budget.used(payload_bytes(entries), *turn)
            following = entries[-1].index + 1
            self._grown_from[following] = self._log.last_index()
            _forget_oldest(self._grown_from)

    def granted(self, low: int, paid: int, free_bytes: int) -> None:
        """See `CatchUpBudget.ask`."""
        self._asking.pop(low, None)
        self._turns[low] = (paid, free_bytes)
        _forget_oldest(self._turns)
        if not self._in_ask:
            self.fresh = True
            self._wake()

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._budget.leave(self)
        self._asking.clear()
        self._turns.clear()

    def _far(self, low: Index) -> bool:
        """A member that needs `low` next catches up. Once that is so it stays so, because the log
        only grows; a leader cuts nothing off.
        """
        if low <= self._far_below:
            return True
        last = self._log.last_index()
        if self._log.bytes_between(Index(low - 1), last) <= self._behind_bytes:
            return False
        self._far_below = low
        return True


def _forget_oldest(table: dict[int, tuple[int, int]] | dict[int, Index]) -> None:
    while len(table) > _TURNS_MAX:
        del table[next(iter(table))]
