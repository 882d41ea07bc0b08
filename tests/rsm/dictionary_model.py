"""A model of a log shard's state machine, as simple as possible.

It has no window, no tables of fixed size and nothing incremental: it remembers all that ever
happened and works out every answer from that. It shares no code with `logservice.rsm`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Answer = tuple[str, dict[str, int | str]]
"""An answer: ("ok", numbers), or (reason, metadata as numbers and words)."""


def ok(**numbers: int) -> Answer:
    return "ok", {"lsn": 0, "count": 0, "value": 0, "duplicate": 0, **numbers}


@dataclass
class ModelSession:
    opened: int
    used: int
    owner: str
    accepted: list[tuple[int, int, bytes]] = field(default_factory=list)


@dataclass
class DictionaryModel:
    """The model. Its limits are arguments, so that a test can make them small.

    `rank`: when several owners have the same number of sessions, the one that ranks highest gives
    way.
    """

    window: int
    sessions_max: int
    owned_max: int
    idle_entries: int
    holds_max: int
    holds_owned_max: int
    rank: Callable[[str], bytes]
    next_lsn: int = 1
    index: int = 0
    truncated: int = 0
    requested: int = 0
    timestamps: int = 1
    holds: dict[str, int] = field(default_factory=dict)
    hold_owners: dict[str, str] = field(default_factory=dict)
    hold_times: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each hold: the entry that last set or renewed it, 0 in the old form, and its ttl."""
    sessions: dict[int, ModelSession] = field(default_factory=dict)
    grants: list[str] = field(default_factory=list)
    grantees: list[str] = field(default_factory=list)
    released: bool = True
    gaps: list[tuple[int, int, str]] = field(default_factory=list)

    def entry(self) -> None:
        self.index += 1

    @property
    def writer(self) -> dict[str, int | str]:
        return {"epoch": len(self.grants), "holder": "" if self.released else self.grants[-1]}

    def may_write(self, epoch: int, who: str) -> bool:
        if not self.grants:
            return epoch == 0
        return not self.released and epoch == len(self.grants) and who == self.grantees[-1]

    def append(
        self,
        count: int,
        session: int,
        sequence: int,
        epoch: int,
        expected: int,
        who: str,
        block: bytes,
        behind: int = 0,
    ) -> Answer:
        """Append a block. `behind`: the records of the blocks behind it in the same entry."""
        lsn, self.next_lsn = self.next_lsn, self.next_lsn + count
        answer = self._judge(lsn, count, session, sequence, epoch, expected, who, block, behind)
        if answer[0] != "ok":
            self.gaps.append((lsn, count, answer[0]))
        elif answer[1]["duplicate"]:
            self.gaps.append((lsn, count, "SEQUENCE_GAP"))
        return answer

    def _judge(
        self,
        lsn: int,
        count: int,
        session: int,
        sequence: int,
        epoch: int,
        expected: int,
        who: str,
        block: bytes,
        behind: int,
    ) -> Answer:
        row = None
        if session:
            if session not in self.sessions or self.sessions[session].owner != who:
                return "SESSION_EXPIRED", {}
            row = self.sessions[session]
            row.used = self.index
            last = len(row.accepted)
            if sequence > last + 1:
                return "SEQUENCE_GAP", {"last": last}
            if sequence <= last:
                if sequence <= last - self.window or sequence < 1:
                    return "SESSION_EXPIRED", {}
                original, records, known = row.accepted[sequence - 1]
                if known != block:
                    return "SEQUENCE_REUSED", {"lsn": original}
                return ok(lsn=original, count=records, duplicate=1)
        if not self.may_write(epoch, who):
            return "FENCED", self.writer
        if expected not in (0, lsn):
            return "WRONG_EXPECTED_LSN", {"next": lsn + count + behind}
        if row is not None:
            row.accepted.append((lsn, count, block))
        return ok(lsn=lsn, count=count)

    def owned(self, who: str) -> list[int]:
        """The sessions of `who`; the one that was idle for longest comes first."""
        mine = [session for session, row in self.sessions.items() if row.owner == who]
        return sorted(mine, key=lambda session: (self.sessions[session].used, session))

    def open_session(self, who: str) -> Answer:
        giving = ""
        if len(self.owned(who)) == self.owned_max:
            giving = who
        elif len(self.sessions) == self.sessions_max:
            owners = {row.owner for row in self.sessions.values()}
            giving = max(owners, key=lambda owner: (len(self.owned(owner)), self.rank(owner)))
            if len(self.owned(giving)) <= len(self.owned(who)):
                giving = who
        if giving:
            oldest = self.owned(giving)[0]
            idle = self.index - self.sessions[oldest].used > self.idle_entries
            if giving == who and not idle:
                return "BUSY", {"retry_after_ms": 1000}
            del self.sessions[oldest]
        self.sessions[self.index] = ModelSession(self.index, self.index, who)
        return ok(value=self.index)

    def truncate(self, lsn: int, epoch: int, who: str) -> Answer:
        if not self.may_write(epoch, who):
            return "FENCED", self.writer
        if lsn <= self.requested:
            return "STALE_TRUNCATE", {"current": self.truncated, "requested": self.requested}
        if lsn >= self.next_lsn:
            return "BEYOND_TAIL", {"next_lsn": self.next_lsn}
        self.requested = lsn
        return ok(value=self._settle())

    def retain(self, lsn: int) -> Answer:
        if lsn >= self.next_lsn - 1:
            return "BEYOND_TAIL", {"next_lsn": self.next_lsn}
        before = self.truncated
        bound = min([lsn, *(held - 1 for held in self.holds.values())])
        self.truncated = max(before, bound)
        self.requested = max(self.requested, self.truncated)
        gone = self.truncated - before
        return ok(value=self.truncated, count=gone, duplicate=int(not gone))

    def _settle(self) -> int:
        bound = min([self.requested, *(lsn - 1 for lsn in self.holds.values())])
        self.truncated = max(self.truncated, bound)
        return self.truncated

    def set_hold(
        self, name: str, lsn: int, who: str, override: bool, ttl: int | None = None
    ) -> Answer:
        owner = self.hold_owners.get(name, who)
        if owner != who and not override:
            return "PERMISSION_DENIED", {"role": "admin", "owner": owner}
        if lsn <= self.truncated:
            return "HOLD_REFUSED", {"first_lsn": self.truncated + 1}
        if name not in self.holds:
            if list(self.hold_owners.values()).count(who) == self.holds_owned_max:
                return "TOO_LARGE", {}
            if len(self.holds) == self.holds_max:
                return "BUSY", {"retry_after_ms": 1000}
        self.holds[name] = lsn
        self.hold_owners[name] = owner
        self.hold_times[name] = (0, 0) if ttl is None else (self.index, ttl)
        self._settle()
        return ok(value=lsn)

    def renew_hold(self, name: str, who: str) -> Answer:
        if name not in self.holds:
            return "HOLD_LOST", {"name": name, "first_lsn": self.truncated + 1}
        if self.hold_owners[name] != who:
            return "PERMISSION_DENIED", {"role": "admin", "owner": self.hold_owners[name]}
        self.hold_times[name] = (self.index, self.hold_times[name][1])
        return ok(lsn=self.holds[name], value=self.index)

    def expire_hold(self, name: str, revision: int) -> Answer:
        known, ttl = self.hold_times.get(name, (0, 0))
        if ttl == 0 or known != revision:
            return ok(value=self.truncated, duplicate=1)
        for table in (self.holds, self.hold_owners, self.hold_times):
            del table[name]
        return ok(value=self._settle())

    def release_hold(self, name: str, who: str, override: bool) -> Answer:
        unknown = name not in self.holds
        owner = self.hold_owners.get(name, who)
        if owner != who and not override:
            return "PERMISSION_DENIED", {"role": "admin", "owner": owner}
        self.hold_owners.pop(name, None)
        self.hold_times.pop(name, None)
        self.holds.pop(name, None)
        return ok(value=self._settle(), duplicate=int(unknown))

    def _taken_from(self, who: str) -> Answer | None:
        if self.released or self.grantees[-1] == who:
            return None
        return "PERMISSION_DENIED", {"role": "admin", "owner": self.grantees[-1]}

    def acquire(
        self, expected: int, takeover: bool, holder: str, who: str, override: bool
    ) -> Answer:
        if expected != len(self.grants) and not takeover:
            return "STALE_EPOCH", self.writer
        taken = self._taken_from(who)
        if taken and not override:
            return taken
        self.grants.append(holder)
        self.grantees.append(who)
        self.released = False
        self.requested = self.truncated
        return ok(value=len(self.grants))

    def release(self, epoch: int, who: str, override: bool) -> Answer:
        if not self.grants or epoch != len(self.grants):
            return "STALE_EPOCH", self.writer
        taken = self._taken_from(who)
        if taken and not override:
            return taken
        again, self.released = self.released, True
        return ok(value=epoch, duplicate=int(again))

    def allocate(self, count: int) -> Answer:
        first, self.timestamps = self.timestamps, self.timestamps + count
        return ok(value=first, count=count)

    def connect(self) -> Answer:
        return ok(lsn=self.next_lsn, value=self.index)

    def gaps_above_truncation(self) -> list[tuple[int, int, str]]:
        return [gap for gap in self.gaps if gap[0] + gap[1] - 1 > self.truncated]
