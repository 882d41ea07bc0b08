"""AuditLog: who did what to which shard, and whether it was let in; hash-chained, on disk.

Theory of operation. Lines come from the guard (`server.guard`), never from the append path itself,
and are written by a thread of their own from a bounded queue: the event loop pays for building a
dictionary. The file is synced once a second, when it is full, and at close.

Always written: calls of administration (rules with `admin`), before they run and when they have
ended, and every denial. A call of administration runs only after its line is on disk; while the log
cannot be written it is refused. Calls on data are written when the configuration says so; one that
finds the queue full is counted, and the count is written later.

The same denial again and again (same caller, call, shard, reason) becomes one line with a count per
AUDIT_REPEAT_S, so that nobody can push the rest of the log out of its last file.

INV-AUDIT-1: lines are numbered without gaps and chained (`audit_chain`), across files and restarts.

What a crash can lose: lines of denials and data of the last second; never that of a call of
administration that ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from logservice_wire.errors import NotReady

from logservice import bounds
from logservice.server import audit_chain

Line = dict[str, object]
_SYNC_S: Final = 1.0
_RETRY_S: Final = 1.0

logger = logging.getLogger(__name__)


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
    ) -> None:
        """`data`: calls on data are written, too. Nothing is opened yet."""
        self.data = data
        self.failed = ""
        """Why nothing can be written at present; "" when all is well."""
        self.lost = 0
        """Lines that found the queue full."""
        self._directory = directory
        self._store = store
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._queue: queue.Queue[tuple[Line, asyncio.Future[None] | None] | None] = queue.Queue(
            bounds.AUDIT_QUEUE_LINES_MAX
        )
        self._repeats: dict[tuple[object, ...], tuple[float, int, Line]] = {}
        self._seq = 0
        self._hash = audit_chain.FIRST_HASH
        self._number = 0
        self._descriptor = -1
        self._size = 0
        self._lost_written = 0
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def open(self) -> None:
        """Continue the chain in a new file. Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        torn = self._continue()
        self._new_file()
        self._write([{"what": audit_chain.OPENED, "torn_bytes": torn}])
        os.fdatasync(self._descriptor)
        self._thread.start()

    def close(self) -> None:
        """Write what waits, and stop."""
        if self._thread.is_alive():
            self._end_repeats(float("inf"))
            self._queue.put(None)
            self._thread.join(timeout=bounds.STOP_FLUSH_S)

    def alarms(self) -> list[str]:
        """What a person must look at."""
        found = [f"the audit log cannot be written: {self.failed}"] if self.failed else []
        if self.lost:
            found.append(f"{self.lost} lines of the audit log were lost")
        return found

    # --- lines, on the event loop -----------------------------------------------------------------

    async def admit(self, line: Line) -> None:
        """Write a call of administration and wait until it is on disk. Raises NotReady."""
        if self.failed:
            raise NotReady("the audit log cannot be written; administration has to wait")
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((self._stamped(line), written))
        except queue.Full as error:
            raise NotReady("the audit log is behind; administration has to wait") from error
        try:
            async with asyncio.timeout(bounds.AUDIT_ADMIT_S):
                await written
        except TimeoutError as error:
            raise NotReady("the audit log cannot be written in time") from error

    def record(self, line: Line) -> None:
        """Write a line some time soon."""
        try:
            self._queue.put_nowait((self._stamped(line), None))
        except queue.Full:
            self.lost += 1

    def deny(self, line: Line) -> None:
        """Write a denial, the same one again within AUDIT_REPEAT_S only as a count."""
        now_s = time.monotonic()
        self._end_repeats(now_s)
        key = tuple(line.get(name) for name in ("who", "what", "shard", "reason"))
        known = self._repeats.get(key)
        if known is not None:
            self._repeats[key] = (known[0], known[1] + 1, line)
            return
        if len(self._repeats) < bounds.AUDIT_REPEATS_MAX:
            self._repeats[key] = (now_s, 0, line)
        self.record(line)

    def _end_repeats(self, now_s: float) -> None:
        while self._repeats:
            key, (since_s, count, line) = next(iter(self._repeats.items()))
            if now_s - since_s < bounds.AUDIT_REPEAT_S and len(self._repeats) < (
                bounds.AUDIT_REPEATS_MAX
            ):
                return
            del self._repeats[key]
            if count:
                self.record({**line, "count": count})

    def _stamped(self, line: Line) -> Line:
        now = datetime.datetime.now(datetime.UTC)
        return {"at": now.isoformat(timespec="milliseconds"), "store": self._store, **line}

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        synced_s = time.monotonic()
        going = True
        while going:
            batch: list[tuple[Line, asyncio.Future[None] | None]] = []
            with contextlib.suppress(queue.Empty):
                item = self._queue.get(timeout=_SYNC_S)
                while item is not None:
                    batch.append(item)
                    if len(batch) >= bounds.AUDIT_BATCH_LINES_MAX:
                        break
                    item = self._queue.get_nowait()
                going = item is not None
            lines = [line for line, _ in batch]
            if self.lost > self._lost_written:
                lines.append(self._stamped({"what": "audit.lost", "count": self.lost}))
            waiting = [one for _, one in batch if one is not None]
            due = bool(waiting) or not going or time.monotonic() - synced_s >= _SYNC_S
            self._persist(lines, sync=due, going=going)
            self._lost_written = self.lost
            if due:
                synced_s = time.monotonic()
            for one in waiting:
                _settle(one)
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _persist(self, lines: list[Line], *, sync: bool, going: bool) -> None:
        """Write, and on failure try again until it works or the store stops."""
        while True:
            try:
                if lines:
                    self._write(lines)
                    lines = []
                if sync:
                    os.fdatasync(self._descriptor)
                if self._size >= self._file_bytes_max:
                    self._rotate()
            except OSError as error:
                if not self.failed:
                    logger.error("the audit log cannot be written: %s", error)
                self.failed = error.strerror or str(error)
                if not going:
                    return
                time.sleep(_RETRY_S)
            else:
                self.failed = ""
                return

    def _write(self, lines: list[Line]) -> None:
        """All lines or none: what a failed write left behind is cut off again."""
        seq, before = self._seq, self._hash
        sealed = bytearray()
        for line in lines:
            seq += 1
            data, before = audit_chain.seal(line, seq, before)
            sealed += data
        view = memoryview(sealed)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            os.lseek(self._descriptor, self._size, os.SEEK_SET)
            raise
        self._seq, self._hash = seq, before
        self._size += len(sealed)

    def _rotate(self) -> None:
        os.fdatasync(self._descriptor)
        old = self._descriptor
        self._new_file()
        os.close(old)
        files = audit_chain.files_of(self._directory)
        for path in files[: max(0, len(files) - self._files_max)]:
            path.unlink()

    def _new_file(self) -> None:
        path = self._directory / audit_chain.file_name(self._number + 1)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._number += 1
        self._size = 0
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _continue(self) -> int:
        """Find the end of the chain; returns the bytes behind its last whole line."""
        files = audit_chain.files_of(self._directory)
        self._number = audit_chain.file_number(files[-1]) if files else 0
        torn = 0
        for path in reversed(files):
            whole, newline, rest = path.read_bytes().rpartition(b"\n")
            torn = torn or len(rest)
            if not newline:
                continue
            lines = whole.split(b"\n")
            for skipped, line in enumerate(reversed(lines)):
                with contextlib.suppress(ValueError, KeyError):
                    last = audit_chain.parse(line)
                    # Behind a damaged end the chain goes on with its break in it, for all to see.
                    self._seq, self._hash = int(str(last["seq"])) + skipped, str(last["hash"])
                    return torn
        return torn


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


def _settle(written: asyncio.Future[None]) -> None:
    def settle() -> None:
        if not written.done():
            written.set_result(None)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        written.get_loop().call_soon_threadsafe(settle)
