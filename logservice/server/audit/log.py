"""AuditLog: who did what to which shard, and whether it was let in.

Theory of operation. Lines come from the guard (`server.edge.guard`) and, about what stores do to
each other, from `nodehost.peers`; the append path itself writes none. There are two trails, each
with its own files, chain and thread (`trail`):

    administration   administrative calls (`Rpc.admin`), before they run and when they
                     have ended; nothing else, so that nothing else can push them out
    calls            denials, what stores were refused, and calls on data if the configuration
                     says so

An administrative call runs only after its line is on disk. It is refused while the trail cannot be
written, and when its identity has filled its share of the trail. Denials are folded, and no
identity fills more than its share of either trail (`flooding`). A line about data that finds the
queue full is counted, and the count is written later.

A crash can lose the lines about denials and data of the last second, and the counts of the last
AUDIT_REPEAT_S. It never loses the line of an administrative call that ran.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from logservice_wire.errors import Busy, NotReady

from logservice import bounds
from logservice.config import StoreConfig
from logservice.server.audit.chain import Line, Trail
from logservice.server.audit.flooding import Folding, Shares
from logservice.server.audit.trail import AuditTrail, stamped


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
        """`data`: calls on data are written, too. The sizes apply to each trail."""
        self.data = data
        self.directory = str(directory)
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
        """Lines that were dropped because a queue was full."""
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
        # The end of the call is written without asking again, so there must be room for both lines.
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
        """Queue a line. `admin`: the line is about a call of administration."""
        trail = self._administration if admin else self._calls
        if not trail.put(self._stamped(line)):
            trail.lost += 1

    def deny(self, line: Line) -> None:
        """Write a denial; the same one again within AUDIT_REPEAT_S is only counted."""
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


def audit_log_of(config: StoreConfig, data_directory: str) -> AuditLog:
    """The opened log, in `data_directory` unless the configuration names another one.

    Raises OSError.
    """
    section = config.audit
    log = AuditLog(
        Path(section.directory or data_directory) / ("" if section.directory else "audit"),
        config.store.store_id,
        data=section.data,
        file_bytes_max=section.file_bytes_max,
        files_max=section.files_max,
        identity_bytes_per_s=section.identity_bytes_per_s,
    )
    log.open()
    return log
