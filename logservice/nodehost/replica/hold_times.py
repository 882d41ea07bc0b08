"""HoldTimes: since when a replica knows of its log's holds, and when they expire.

Theory of operation. No state machine looks at a clock, so the state has a hold's revision and its
time to live, and not when it was set. Each replica remembers when it saw the revision; from that
follows how old the hold is, as a lower bound. A replica that leads also counts its time to live,
from the later of two moments: it saw the revision, and it began to lead. A new leader begins anew,
because while there was none nobody could renew the hold. Every error makes the count too short, so
a hold may expire late and never early (`hold_expiry`).

Between two looks a hold may end and be set again, or move away and back. It stands at its LSN since
the entry that put it there last, which the state names (`LogState.holds_since`), whatever the look
before has seen at that LSN.

Time is that of `HoldExpiry.now_s`. Nothing here is asked per entry.
"""

from __future__ import annotations

from collections.abc import Iterator

from logservice.ids import Index, Lsn
from logservice.rsm.state import Hold, LogState


class HoldTimes:
    """What one replica remembers."""

    __slots__ = ("_due_s", "_led_since_s", "_seen", "_stood", "_term", "changes", "timed")

    def __init__(self) -> None:
        """No hold was seen yet."""
        self._seen: dict[str, tuple[Hold, float]] = {}
        self._stood: dict[str, tuple[tuple[Lsn, Index], float]] = {}
        self._term = self._led_since_s = self._due_s = 0.0
        self.changes = -1
        """`LogState.hold_changes` as of the last look; -1 when the state is another one since."""
        self.timed = False
        """Whether one of the holds has a time to live."""

    def look(self, state: LogState, now_s: float) -> None:
        """See what has changed."""
        if state.hold_changes == self.changes:
            return
        before = self._seen
        self._seen = {
            name: before[name] if name in before and before[name][0] == hold else (hold, now_s)
            for name, hold in state.holds.items()
        }
        # What a snapshot brought may have ended and been set again in between.
        stood = self._stood if self.changes >= 0 else {}
        self._stood = {
            name: stood[name] if name in stood and stood[name][0] == place else (place, now_s)
            for name, place in self._places(state)
        }
        self.changes = state.hold_changes
        self.timed = any(hold.ttl_s for hold in state.holds.values())
        self._due_s = 0.0

    def _places(self, state: LogState) -> Iterator[tuple[str, tuple[Lsn, Index]]]:
        """The LSN of each hold, and the revision that put it there, as far as that was seen."""
        for name, hold in state.holds.items():
            yield name, (hold.lsn, state.holds_since.get(name, Index(0)))

    def leads(self, term: int, now_s: float) -> None:
        """The replica leads `term`, with the term's first entry applied; 0: it leads none."""
        if term != self._term:
            self._term, self._led_since_s, self._due_s = term, now_s, 0.0

    def expired(self, now_s: float) -> Iterator[tuple[str, Hold]]:
        """The holds whose time to live is over, if the replica leads."""
        if not self._term or now_s < self._due_s:
            return
        self._due_s = float("inf")
        for name, (hold, _) in self._seen.items():
            left_s = self.expires_in_s(name, now_s)
            if left_s is not None:
                self._due_s = min(self._due_s, now_s + left_s)
                if left_s <= 0:
                    yield name, hold

    def age_s(self, name: str, now_s: float) -> float:
        """How long the hold is known here as it stands."""
        seen = self._seen.get(name)
        return now_s - seen[1] if seen is not None else 0.0

    def stood_s(self, name: str, now_s: float) -> float:
        """How long the hold is known here at its LSN, renewed or not."""
        stood = self._stood.get(name)
        return now_s - stood[1] if stood is not None else 0.0

    def expires_in_s(self, name: str, now_s: float) -> float | None:
        """When the hold is over; None when it never is, or the replica does not lead."""
        seen = self._seen.get(name)
        if seen is None or not self._term or not seen[0].ttl_s:
            return None
        return max(0.0, max(seen[1], self._led_since_s) + seen[0].ttl_s - now_s)

    def oldest_age_s(self, through: Lsn, now_s: float) -> float:
        """The age of the oldest hold at or below an LSN; 0 without any."""
        ages = (now_s - since_s for hold, since_s in self._seen.values() if hold.lsn <= through)
        return max(ages, default=0.0)
