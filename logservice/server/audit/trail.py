"""AuditTrail: lines on disk, hash-chained, written by a thread of their own.

Theory of operation. Lines wait in a bounded queue. The thread seals them (`chain`) and writes them;
it syncs once a second, when somebody waits, when a file is full, and at the end. It asks for
further lines that are due by then (folded lines) itself. Lines of one identity beyond its share of
the disk (`flooding`) are counted instead of written.

The next process goes on in the last file, unless that file is full or its end is torn; so a store
that starts again and again does not push anything out. Every file begins with a line that names the
file itself and the oldest file that was kept. So a file that is missing, and that rotation did not
remove, is noticed (`chain.verify`). Older files are unlinked after that line is on disk.

INV-AUDIT-1: lines are numbered without gaps and chained (`chain`), across files and restarts.

A crash can lose the lines of the last second that nobody waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from logservice import bounds
from logservice.server.audit import chain
from logservice.server.audit.chain import Line, Trail
from logservice.server.audit.flooding import Shares

_SYNC_S: Final = 1.0
_RETRY_S: Final = 1.0

logger = logging.getLogger(__name__)


class AuditTrail:
    """One of a store's trails. `open`, then `put`, then `close`."""

    def __init__(
        self,
        directory: Path,
        trail: Trail,
        *,
        file_bytes_max: int,
        files_max: int,
        due: Callable[[float], list[Line]] = lambda _: [],
        shares: Shares | None = None,
    ) -> None:
        """`due`: called on the thread, returns the lines to be written by now. Nothing is opened
        yet.
        """
        self.failed = ""
        """Why nothing can be written at present; "" when all is well."""
        self.lost = 0
        """Lines that were dropped because the queue was full."""
        self._directory = directory
        self._trail = trail
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._due = due
        self._shares = shares
        self._queue: queue.Queue[tuple[Line, asyncio.Future[None] | None] | None] = queue.Queue(
            bounds.AUDIT_QUEUE_LINES_MAX
        )
        self._seq = 0
        self._hash = chain.FIRST_HASH
        self._number = 0
        self._oldest = 1
        self._descriptor = -1
        self._size = 0
        self._lost_written = 0
        self._removable: list[Path] = []
        """Files that rotation does not keep. The oldest is the last in the list, and is removed
        first."""
        self._thread = threading.Thread(target=self._run, name=f"audit {trail}", daemon=True)

    def open(self) -> None:
        """Continue the chain. Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        torn = self._continue()
        if self._descriptor < 0:
            self._new_file()
        self._write([stamped({**self._place(chain.OPENED), "torn_bytes": torn})])
        os.fdatasync(self._descriptor)
        self._thread.start()

    def close(self) -> None:
        """Write what waits, and stop."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(timeout=bounds.STOP_FLUSH_S)

    def put(self, line: Line, written: asyncio.Future[None] | None = None) -> bool:
        """Queue a line; `written` is settled once it is on disk. False when too many lines wait."""
        try:
            self._queue.put_nowait((line, written))
        except queue.Full:
            return False
        return True

    def _place(self, what: str) -> Line:
        return {"what": what, "file": self._number, "oldest": self._oldest}

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
            lines = [line for line, _ in batch] + self._due(time.monotonic() if going else math.inf)
            if self._shares is not None:
                lines = self._shares.within(lines, time.monotonic(), last=not going)
            if self.lost > self._lost_written:
                lines.append(stamped({"what": "audit.lost", "count": self.lost}))
            if not going:
                lines.append(stamped({"what": chain.CLOSED}))
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
                if lines or not self._size:
                    self._write(lines)
                    lines = []
                if sync or self._removable:
                    os.fdatasync(self._descriptor)
                while self._removable:
                    self._removable[-1].unlink(missing_ok=True)
                    self._removable.pop()
                # A file that is full when its last line is written stays; the next start begins a
                # new file.
                if going and self._size >= self._file_bytes_max:
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
        """Write all lines or none: bytes that a failed write left behind are cut off again."""
        if not self._size and not (lines and lines[0].get("what") == chain.OPENED):
            lines = [stamped(self._place(chain.CONTINUED)), *lines]
        seq, before = self._seq, self._hash
        sealed = bytearray()
        for line in lines:
            seq += 1
            data, before = chain.seal(line, seq, before)
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
        files = chain.files_of(self._directory, self._trail)
        kept = files[-(self._files_max - 1) :] if self._files_max > 1 else []
        self._new_file()
        os.close(old)
        self._oldest = chain.file_number(kept[0]) if kept else self._number
        # The old files are removed with the next line, after it is on disk: the new file begins
        # with the statement that they are gone.
        self._removable = files[: len(files) - len(kept)][::-1]

    def _new_file(self) -> None:
        path = self._directory / chain.file_name(self._trail, self._number + 1)
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
        """Find the end of the chain, and go on in its file; returns the bytes behind its end."""
        files = chain.files_of(self._directory, self._trail)
        self._number = chain.file_number(files[-1]) if files else 0
        self._oldest = chain.file_number(files[0]) if files else 1
        torn = 0
        for path in reversed(files):
            whole, newline, rest = path.read_bytes().rpartition(b"\n")
            torn = torn or len(rest)
            if not newline:
                continue
            lines = whole.split(b"\n")
            self._oldest = min(self._oldest, _stated_oldest(lines))
            for skipped, line in enumerate(reversed(lines)):
                with contextlib.suppress(ValueError, KeyError):
                    last = chain.parse(line)
                    # Behind a damaged end the chain goes on, and the break in it stays visible.
                    self._seq, self._hash = int(str(last["seq"])) + skipped, str(last["hash"])
                    if path == files[-1] and not rest and not skipped:
                        self._go_on(path)
                    return torn
        return torn

    def _go_on(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags)
        self._size = os.fstat(descriptor).st_size
        if self._size < self._file_bytes_max:
            self._descriptor = descriptor
        else:
            os.close(descriptor)


def stamped(line: Line) -> Line:
    """`line` with the present time."""
    now = datetime.datetime.now(datetime.UTC)
    return {"at": now.isoformat(timespec="milliseconds"), **line}


def _stated_oldest(lines: list[bytes]) -> int:
    """The oldest file that the last statement among `lines` names: a missing file stays missed."""
    for line in reversed(lines):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = chain.parse(line)
            if found.get("what") in chain.STATEMENTS:
                return int(str(found["oldest"]))
    return 2**62


def _settle(written: asyncio.Future[None]) -> None:
    def settle() -> None:
        if not written.done():
            written.set_result(None)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        written.get_loop().call_soon_threadsafe(settle)
