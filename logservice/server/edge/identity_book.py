"""identity_book: who has called this store since it started, and who was denied what.

Theory of operation. A row for each identity: when it came first and last, from where, with which
certificate, how often, and what it was last denied. Calls whose identity nobody knows (no
certificate that counts) share one row, NOBODY. It answers which grants nobody uses and who is kept
out, for people; nothing is decided by it. It lives in memory: a store that restarts begins anew.

The rows are bounded. A newcomer pushes out the one that was used least recently; of those in use at
the moment, which streams are, the next one goes. `forgotten` says how many went, so nobody takes a
missing row for an identity that never came.

INV-SEEN-1: there are at most `rows_max` rows, and every row that went is counted.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import LogServiceError

from logservice import bounds
from logservice.ids import ShardId
from logservice.invariants import invariant

NOBODY: Final = ""
"""The identity of callers that have none that counts."""

_TRIES: Final = 16
"""So many rows in use are passed over for an idle one."""


@dataclass(slots=True, eq=False)
class Seen:
    """One identity. Times are of the wall clock, 0 for never; `peer` is as gRPC calls it."""

    identity: str
    first_s: float
    last_s: float = 0.0
    peer: str = ""
    serial: str = ""
    """Of the certificate that was shown last; and when that ends."""
    not_after_s: float = 0.0
    calls: int = 0
    """Calls and streams that began, also those that were refused then."""
    streams: int = 0
    """Under way."""
    busy: int = 0
    """Calls that were over a quota."""
    denials: int = 0
    denied_s: float = 0.0
    denied_what: str = ""
    """The RPC that was denied last, about which shard, and why."""
    denied_shard: int | None = None
    denied_why: str = ""


class IdentityBook:
    """One per store, on the loop thread."""

    def __init__(
        self,
        rows_max: int = bounds.IDENTITIES_SEEN_MAX,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nobody has called. `clock` is the wall clock."""
        self._rows_max = rows_max
        self._clock = clock
        self._rows: OrderedDict[str, Seen] = OrderedDict()
        self.since_s = clock()
        """When the store began to look."""
        self.forgotten = 0
        """Rows that were pushed out."""

    def __len__(self) -> int:
        return len(self._rows)

    def used(self, identity: str, peer: str, serial: str, not_after_s: float) -> Seen:
        """A call of the identity has begun."""
        row = self._row(identity)
        row.calls += 1
        row.last_s = self._clock()
        row.peer, row.serial, row.not_after_s = peer, serial, not_after_s
        return row

    def stream_ended(self, row: Seen) -> None:
        """A stream that was counted in `row.streams` is over: until now it was used."""
        row.streams -= 1
        row.last_s = self._clock()

    def denied(
        self, identity: str, peer: str, what: str, shard: ShardId | None, error: LogServiceError
    ) -> None:
        """A call of the identity was not let in."""
        row = self._row(identity)
        row.denials += 1
        row.denied_s = self._clock()
        row.denied_what = what
        row.denied_shard = None if shard is None else int(shard)
        row.denied_why = error.message[: bounds.DENIAL_TEXT_MAX]
        if identity == NOBODY:
            row.peer = peer

    def rows(self, after: str = "", only: str | None = None) -> list[Seen]:
        """All rows behind `after`, by identity; or the one of an identity."""
        if only is not None:
            found = self._rows.get(only)
            return [] if found is None else [found]
        names = sorted(name for name in self._rows if name > after or not after)
        return [self._rows[name] for name in names]

    def _row(self, identity: str) -> Seen:
        row = self._rows.get(identity)
        if row is not None:
            self._rows.move_to_end(identity)
            return row
        if len(self._rows) >= self._rows_max:
            self._push_out()
        row = self._rows[identity] = Seen(identity, self._clock())
        invariant(len(self._rows) <= self._rows_max, "INV-SEEN-1", rows=len(self._rows))
        return row

    def _push_out(self) -> None:
        for _ in range(_TRIES):
            name, row = next(iter(self._rows.items()))
            if not row.streams:
                break
            self._rows.move_to_end(name)
        self._rows.popitem(last=False)
        self.forgotten += 1
