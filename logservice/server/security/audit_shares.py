"""Shares: how much of an audit trail one identity may fill.

Theory of operation. A trail keeps so many bytes, and the oldest go first: whoever writes most
decides how far back it reaches. So every identity has a share in bytes per second, and what is more
is counted: one line per AUDIT_REPEAT_S says how many lines of whom were left out. Denials and calls
that were let in are counted apart, so that nobody hides the ones behind the others.

INV-AUDIT-2: one identity adds at most its share to a trail, and what was left out is counted.

At most AUDIT_IDENTITIES_MAX are told apart; further ones share one share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from logservice import bounds

Line = dict[str, object]

_AROUND = 192
"""Bytes of a line that are not its fields: number, hash, time, quotes."""


@dataclass(slots=True)
class _Share:
    who: str
    denied: bool
    left: float
    at_s: float
    over: int = 0
    first: object = ""
    last: object = ""
    since_s: float = 0.0


class Shares:
    """Of one trail. Not thread-safe: each trail asks on one thread only."""

    def __init__(self, bytes_per_s: float) -> None:
        """A share grows by so much; what is not used adds up for AUDIT_BURST_S."""
        self._rate = bytes_per_s
        self._most = bytes_per_s * bounds.AUDIT_BURST_S
        self._shares: dict[tuple[str, bool], _Share] = {}
        self._over: deque[_Share] = deque()
        self._forget_s = 0.0

    def take(self, line: Line, now_s: float, times: int = 1) -> bool:
        """Whether there is room for `line`, `times` over, in the share of whom it is about."""
        share = self._share(line, now_s)
        size = times * _size(line)
        if size > share.left:
            return False
        share.left -= size
        return True

    def within(self, lines: Iterable[Line], now_s: float, *, last: bool = False) -> list[Line]:
        """What may be written of `lines`, and what is to be said of those that may not.

        `last`: nothing is written after this.
        """
        kept = []
        for line in lines:
            if "who" not in line or self.take(line, now_s):
                kept.append(line)
                continue
            share = self._share(line, now_s)
            if not share.over:
                self._over.append(share)
                share.first, share.since_s = line.get("at", ""), now_s
            share.over += 1
            share.last = line.get("at", "")
        kept += self._told(now_s, last=last)
        return kept

    def _told(self, now_s: float, *, last: bool) -> list[Line]:
        found: list[Line] = []
        while self._over and (last or now_s - self._over[0].since_s >= bounds.AUDIT_REPEAT_S):
            share = self._over.popleft()
            found.append(
                {
                    "at": share.last, "what": "audit.left_out", "who": share.who,
                    "count": share.over, "decision": "denied" if share.denied else "allowed",
                    "first": share.first, "last": share.last,
                }
            )  # fmt: skip
            share.over = 0
        return found

    def _share(self, line: Line, now_s: float) -> _Share:
        key = (str(line.get("who", "")), line.get("decision") == "denied")
        share = self._shares.get(key)
        if share is None:
            if len(self._shares) >= bounds.AUDIT_IDENTITIES_MAX:
                self._forget(now_s)
            if len(self._shares) >= bounds.AUDIT_IDENTITIES_MAX:
                key = ("others", key[1])
            share = self._shares.setdefault(key, _Share(*key, self._most, now_s))
        share.left = self._grown(share, now_s)
        share.at_s = now_s
        return share

    def _forget(self, now_s: float) -> None:
        """Those whose share is whole again; looked for once in a while, for it takes time."""
        if now_s < self._forget_s:
            return
        self._forget_s = now_s + bounds.AUDIT_BURST_S
        self._shares = {
            key: one
            for key, one in self._shares.items()
            if one.over or self._grown(one, now_s) < self._most
        }

    def _grown(self, share: _Share, now_s: float) -> float:
        return min(self._most, share.left + (now_s - share.at_s) * self._rate)


def _size(line: Line) -> int:
    return _AROUND + sum([len(name) + len(str(value)) + 6 for name, value in line.items()])
