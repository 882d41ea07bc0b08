"""A replica of a PySyncObj: ``python -m bench.peers.pysyncobj.node FOLDER OWN OTHER OTHER``.

Runs in ``.venv-peers``. Its state counts the records that were applied. Callers are callbacks in
the process of the leader: as soon as one's record is acked it sends the next. The lines that it
takes are those of `program`; an empty one asks who leads and how many records there are.

It is tuned: as it comes it sends to its followers ten times a second, and so takes ten records a
second from one caller. Here it does so every 2 ms. The journal is a file that is mapped into
memory; there is no setting that flushes it.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated

from bench.load.closed_loop import Sample
from bench.peers.peer import Lost, Workload
from bench.peers.program import serve

PERIOD_S: Final = 0.002
START_S: Final = 60.0
PATIENCE_S: Final = 60.0


class Counted(SyncObj):  # type: ignore[misc]
    """The replicated object."""

    def __init__(self, folder: Path, own: str, others: list[str]) -> None:
        name = own.rpartition(":")[2]
        settings = SyncObjConf(
            appendEntriesPeriod=PERIOD_S,
            autoTickPeriod=PERIOD_S,
            connectionRetryTime=0.2,
            journalFile=str(folder / f"{name}.journal"),
            fullDumpFile=str(folder / f"{name}.dump"),
        )
        super().__init__(own, others, settings)
        self._records = 0

    @replicated  # type: ignore[untyped-decorator]
    def append(self, _: bytes) -> None:
        self._records += 1

    def records(self) -> int:
        return self._records


class Load:
    """One window's callers. `send` and `ended` run in the thread that ticks, at first in main's."""

    def __init__(self, log: Counted, workload: Workload, began: float, ends: float) -> None:
        self._log = log
        self._workload = workload
        self._began, self._ends = began, ends
        self._record = bytes(workload.size)
        self._stopped: list[int] = []
        self.done = threading.Event()
        self.acked = 0
        self.failed: list[int] = []
        self.latencies_ms: list[float] = []

    def start(self) -> None:
        for _ in range(self._workload.callers):
            self._send()

    def _send(self) -> None:
        started = time.perf_counter()
        if started >= self._ends or self.failed:
            self._stopped.append(1)
            if len(self._stopped) == self._workload.callers:
                self.done.set()
            return

        def ended(_: object, reason: int) -> None:
            if reason == FAIL_REASON.SUCCESS:
                now = time.perf_counter()
                self.acked += 1
                if self._began <= now < self._ends:
                    self.latencies_ms.append((now - started) * 1000)
            else:
                self.failed.append(reason)
            self._send()

        self._log.append(self._record, callback=ended)


def measure(log: Counted, workload: Workload, warmup_s: float, seconds: float) -> Sample:
    """One window, at the leader."""
    before = log.records()
    began = time.perf_counter() + warmup_s
    load = Load(log, workload, began, began + seconds)
    load.start()
    if not load.done.wait(warmup_s + seconds + PATIENCE_S):
        raise TimeoutError("callers still wait for their acks")
    if load.failed:
        raise RuntimeError(f"not acked, for the reasons {sorted(set(load.failed))}")
    if log.records() - before != load.acked:
        raise Lost(f"{load.acked} records were acked, {log.records() - before} were applied")
    return Sample(len(load.latencies_ms), seconds, tuple(sorted(load.latencies_ms)))


def main() -> None:
    """Serve."""
    folder, own, *others = sys.argv[1:]
    log = Counted(Path(folder), own, others)
    deadline = time.monotonic() + START_S
    while not log.isReady():
        if time.monotonic() > deadline:
            raise TimeoutError("no leader")
        time.sleep(0.05)

    def state() -> dict[str, Any]:
        return {"leads": log._isLeader(), "records": log.records()}

    serve(lambda *window: measure(log, *window), state)


if __name__ == "__main__":
    main()
