"""Folding: the same denial again and again is one line with a count.

Theory of operation. The same is: the same caller, call and reason; which shard it was about and
where it came from may differ, for whoever is denied can name another shard each time. The first is
written at once; within AUDIT_REPEAT_S those that follow are counted, and one line then says how
many, when the first and the last was, and names AUDIT_SHARDS_NAMED_MAX of their shards.

At most AUDIT_REPEATS_MAX different ones are counted at a time; what comes beyond is counted
together, by its reason alone.

Lines come from the event loop and are fetched by the thread that writes them; both hold a lock for
no longer than a look into a table.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from logservice import bounds

Line = dict[str, object]
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
    """Denials of one store."""

    def __init__(self) -> None:
        """Nothing was denied yet."""
        self._folds: dict[_Key, _Fold] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Different denials that are counted now."""
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
                "who": "others", "what": "several",
            }  # fmt: skip
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
