"""flooding: nobody pushes the lines of others out of the audit log.

Theory of operation. A trail keeps a bounded number of bytes and removes the oldest first, so
whoever writes most decides how far back it reaches. Two rules bound what one identity adds:

*Folding.* A denial that is repeated becomes one line with a count. Two denials are the same when
caller, call and reason are equal; the shard and the address may differ, because a denied caller can
name another shard each time. The first denial is written at once. Those that follow within
AUDIT_REPEAT_S are counted. Then one line says how many there were and when the first and the last
one was, and it names AUDIT_SHARDS_NAMED_MAX of their shards. At most AUDIT_REPEATS_MAX different
denials are counted at a time; further ones are counted together, by their reason alone.

*Shares.* Every identity has a share of a trail in bytes per second. Lines beyond the share are
counted: one line per AUDIT_REPEAT_S says how many lines of which identity were left out. Denials
and admitted calls have separate shares, so that nobody hides the ones behind the others. At most
AUDIT_IDENTITIES_MAX identities are told apart; further ones have one share together.

INV-AUDIT-2: one identity adds at most its share to a trail, and what was left out is counted.

Denials come from the event loop, and the thread that writes them fetches their counts; both hold a
lock for no longer than one look-up in a table. Shares belong to one thread each.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from logservice import bounds
from logservice.server.audit.chain import Line

_Key = tuple[object, object, object]


@dataclass(slots=True)
class _Fold:
    line: Line
    since_s: float
    count: int = 0
    first: object = ""
    last: object = ""
    shards: dict[object, None] = field(default_factory=dict)
    more_shards: bool = False

    def add(self, line: Line) -> None:
        if not self.count:
            self.first = line.get("at", "")
        self.count += 1
        self.last = line.get("at", "")
        shard = line.get("shard")
        if shard is None or shard in self.shards:
            return
        if len(self.shards) < bounds.AUDIT_SHARDS_NAMED_MAX:
            self.shards[shard] = None
        else:
            self.more_shards = True

    def told(self) -> Line:
        found = {name: value for name, value in self.line.items() if name != "shard"}
        found |= {"at": self.last, "count": self.count, "first": self.first, "last": self.last}
        if self.shards:
            found["shards"] = list(self.shards)
        if self.more_shards:
            found["more_shards"] = True
        return found


class Folding:
    """The denials of one store, folded."""

    def __init__(self) -> None:
        """Nothing was denied yet."""
        self._folds: dict[_Key, _Fold] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many different denials are counted now."""
        return len(self._folds)

    def add(self, line: Line, now_s: float) -> bool:
        """Whether `line` is the first of its kind, to be written at once; else it is counted."""
        key: _Key = (line.get("who"), line.get("what"), line.get("reason"))
        with self._lock:
            fold = self._folds.get(key)
            if fold is not None:
                fold.add(line)
                return False
            if len(self._folds) < bounds.AUDIT_REPEATS_MAX:
                self._folds[key] = _Fold(line, now_s)
                return True
            key = ("others", "several", line.get("reason"))
            head: Line = {
                **{name: line[name] for name in ("decision", "reason", "store") if name in line},
                "who": "others",
                "what": "several",
            }
            self._folds.setdefault(key, _Fold(head, now_s)).add(line)
            return False

    def due(self, now_s: float) -> list[Line]:
        """The counts whose time is over."""
        found = []
        with self._lock:
            for key, fold in list(self._folds.items()):
                if now_s - fold.since_s >= bounds.AUDIT_REPEAT_S:
                    del self._folds[key]
                    if fold.count:
                        found.append(fold.told())
        return found


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
    """The shares of one trail. Not thread-safe: each trail asks on one thread only."""

    def __init__(self, bytes_per_s: float) -> None:
        """`bytes_per_s`: how fast a share grows. What is not used adds up for AUDIT_BURST_S."""
        self._rate = bytes_per_s
        self._most = bytes_per_s * bounds.AUDIT_BURST_S
        self._shares: dict[tuple[str, bool], _Share] = {}
        self._over: deque[_Share] = deque()
        self._forget_s = 0.0

    def take(self, line: Line, now_s: float, times: int = 1) -> bool:
        """Whether the share of the identity in `line` has room for `line`, `times` over; takes the
        room.
        """
        share = self._share(line, now_s)
        size = times * _size(line)
        if size > share.left:
            return False
        share.left -= size
        return True

    def within(self, lines: Iterable[Line], now_s: float, *, last: bool = False) -> list[Line]:
        """Those of `lines` that may be written, and lines that say how many of the others were left
        out.

        `last`: nothing is written after this call.
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
                    "at": share.last,
                    "what": "audit.left_out",
                    "who": share.who,
                    "count": share.over,
                    "decision": "denied" if share.denied else "allowed",
                    "first": share.first,
                    "last": share.last,
                }
            )
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
        """Forget identities whose share is whole again; only now and then, because it takes
        time.
        """
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
