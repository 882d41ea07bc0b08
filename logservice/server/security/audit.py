"""AuditLog: who did what to which shard, and whether it was let in.

Theory of operation. Lines come from the guard (`server.guard.guard`) and, for what stores do to
each other, from `nodehost.peer_requests`; never from the append path itself. There are two trails,
each with files, a chain and a thread of its own (`audit_trail`):

    administration   calls of administration (rules with `admin`), before they run and when they
                     have ended; nothing else, so that nothing else can push them out
    calls            denials, what stores were refused, and calls on data if the configuration
                     says so

A call of administration runs only after its line is on disk; while the trail cannot be written it
is refused, and so is one of an identity that has filled its share of the trail. Denials are folded
(`audit_folding`), and one identity fills no more than its share of either trail (`audit_shares`).
A line about data that finds the queue full is counted, and the count is written later.

What a crash can lose: lines of denials and data of the last second, counts of the last
AUDIT_REPEAT_S; never the line of a call of administration that ran.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logservice_wire.errors import Busy, NotReady

from logservice import bounds
from logservice.server.security.audit_chain import Trail
from logservice.server.security.audit_folding import Folding
from logservice.server.security.audit_shares import Shares
from logservice.server.security.audit_trail import AuditTrail, Line, stamped


class AuditLog:
    """One per store. `open`, then `record` and `admit`, then `close`."""

    def __init__(
        self,
        directory: Path,
        store: str,
        *,
        data: bool = False,
        file_bytes_max: int = bounds.AUDIT_FILE_BYTES_MAX,
        files_max: int = bounds.AUDIT_FILES_MAX,
        identity_bytes_per_s: int = bounds.AUDIT_IDENTITY_BYTES_PER_S,
    ) -> None:
        """`data`: calls on data are written, too. The sizes are those of each trail."""
        self.data = data
        self._store = store
        self._folding = Folding()
        self._admin_shares = Shares(bounds.AUDIT_ADMIN_BYTES_PER_S)
        self._administration = AuditTrail(
            directory, Trail.ADMINISTRATION, file_bytes_max=file_bytes_max, files_max=files_max
        )
        self._calls = AuditTrail(
            directory,
            Trail.CALLS,
            file_bytes_max=file_bytes_max,
            files_max=files_max,
            due=self._folding.due,
            shares=Shares(identity_bytes_per_s),
        )

    @property
    def failed(self) -> str:
        """Why nothing can be written at present; "" when all is well."""
        return self._administration.failed or self._calls.failed

    @property
    def lost(self) -> int:
        """Lines that found a queue full."""
        return self._administration.lost + self._calls.lost

    def open(self) -> None:
        """Continue both chains. Raises OSError."""
        self._administration.open()
        self._calls.open()

    def close(self) -> None:
        """Write what waits, and stop."""
        self._administration.close()
        self._calls.close()

    def alarms(self) -> list[str]:
        """What a person must look at."""
        found = [f"the audit log cannot be written: {self.failed}"] if self.failed else []
        if self.lost:
            found.append(f"{self.lost} lines of the audit log were lost")
        return found

    async def admit(self, line: Line) -> None:
        """Write a call of administration and wait until it is on disk. Raises NotReady, Busy."""
        trail = self._administration
        if trail.failed:
            raise NotReady("the audit log cannot be written; administration has to wait")
        line = self._stamped(line)
        # Its end is written without asking again, so there must be room for both.
        if not self._admin_shares.take(line, time.monotonic(), times=2):
            raise Busy(
                "the audit log has no room for so many calls of administration of one identity",
                retry_after_ms=1000,
            )
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not trail.put(line, written):
            raise NotReady("the audit log is behind; administration has to wait")
        try:
            async with asyncio.timeout(bounds.AUDIT_ADMIT_S):
                await written
        except TimeoutError as error:
            raise NotReady("the audit log cannot be written in time") from error

    def record(self, line: Line, *, admin: bool = False) -> None:
        """Write a line some time soon. `admin`: about a call of administration."""
        trail = self._administration if admin else self._calls
        if not trail.put(self._stamped(line)):
            trail.lost += 1

    def deny(self, line: Line) -> None:
        """Write a denial, the same one again within AUDIT_REPEAT_S only as a count."""
        line = self._stamped(line)
        if self._folding.add(line, time.monotonic()) and not self._calls.put(line):
            self._calls.lost += 1

    def peer(self, store: str, what: str, *, reason: str) -> None:
        """What another store did; `reason`: why it was refused, empty when it was let through."""
        decision = "denied" if reason else "allowed"
        line: Line = {"who": f"store/{store}", "what": what, "decision": decision}
        self.deny({**line, "reason": reason} if reason else line)

    def _stamped(self, line: Line) -> Line:
        return stamped({"store": self._store, **line})


def lsn_range(request: Any, response: Any) -> dict[str, object]:
    """The LSNs a call on data was about, by the names that the proto gives them; may be empty."""
    first = getattr(response, "lsn", 0)
    if first:
        return {"first_lsn": first, "last_lsn": first + response.record_count - 1}
    asked = getattr(request, "lsn", 0)
    following = getattr(response, "next_lsn", 0)
    if asked and following:
        return {"first_lsn": asked, "last_lsn": following - 1}
    return {"last_lsn": asked} if asked else {}


def stream_range(line: Mapping[str, object], message: Any) -> dict[str, object]:
    """`line` with the LSNs that one message of a stream adds: acks, or blocks that were read."""
    acks = getattr(message, "acks", None)
    if acks:
        first, last = acks[0].lsn, acks[-1].lsn + acks[-1].record_count - 1
    elif getattr(message, "blocks", None) is not None and message.blocks:
        first, last = message.blocks[0].first_lsn, message.next_lsn - 1
    else:
        return dict(line)
    return {**line, "first_lsn": line.get("first_lsn", first), "last_lsn": last}
