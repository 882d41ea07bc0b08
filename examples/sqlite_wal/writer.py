"""The database's own thread: transactions, one after the other, each shipped before the next.

SQLite wants one thread, and so does the order of the log. Everybody else asks: `run_to` sets how
far to write, `do` runs a function between two transactions and returns its result. A failure
stops the thread and is raised to whoever asks next.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from examples.sqlite_wal.shipper import Appender, Shipper
from examples.sqlite_wal.workload import Database, Result

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ack:
    """When a transaction's append began and when it was acked (monotonic seconds)."""

    began: float
    ended: float


class Writer(threading.Thread):
    """Owns the database and its shipper."""

    def __init__(self, path: Path, log: Appender, *, seed: int) -> None:
        super().__init__(name="database", daemon=True)
        self._path, self._log, self._seed = path, log, seed
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._goal = 0
        self._pause_s = 0.0
        self._ended = False
        self._failure: BaseException | None = None
        self.acks: list[Ack] = []
        self.rolled_back = 0
        self._database: Database | None = None
        self.shipper: Shipper

    @property
    def acked(self) -> int:
        """Transactions acked so far."""
        return len(self.acks)

    @property
    def database(self) -> Database:
        """The database; only for functions that `do` runs."""
        assert self._database is not None
        return self._database

    def open(self) -> None:
        """Start the thread, create the database and ship its schema."""
        self.start()
        self.do(self._create)

    def run_to(self, transactions: int, *, pause_s: float = 0.0) -> None:
        """Go on until so many are acked, pausing between two; returns at once."""
        self._pause_s = pause_s
        self._goal = transactions
        self._work.put(lambda: None)

    def halt(self) -> None:
        """Write no more; returns when the transaction under way is acked."""
        self._goal = 0
        self.do(lambda: None)

    def do(self, function: Callable[[], T], timeout_s: float = 120.0) -> T:
        """Run `function` on the database's thread between two transactions."""
        self.check()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - handed to the caller whatever it is
                future.set_exception(error)

        self._work.put(run)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return future.result(timeout=0.5)
            except TimeoutError:
                self.check()
                if future.done() or time.monotonic() > deadline:
                    raise

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._failure is not None:
            raise RuntimeError(f"the database stopped: {self._failure}") from self._failure

    def end(self) -> None:
        """Stop the thread, which closes the database."""
        self._ended = True
        self._goal = 0
        self._work.put(lambda: None)
        self.join()

    def run(self) -> None:
        """The thread."""
        try:
            while not self._ended:
                if self.acked < self._goal:
                    self._take_waiting()
                    self._transaction()
                else:
                    self._work.get()()
        except BaseException as error:  # noqa: BLE001 - told to whoever asks next
            self._failure = error
        if self._database is not None:
            self._database.close()

    def _take_waiting(self) -> None:
        while True:
            try:
                self._work.get_nowait()()
            except queue.Empty:
                return

    def _transaction(self) -> None:
        if self._pause_s:
            time.sleep(self._pause_s)
        if self.database.run_transaction() is Result.ROLLED_BACK:
            self.rolled_back += 1
        self._ship()

    def _ship(self) -> None:
        began = time.monotonic()
        for _ in range(self.shipper.ship()):
            self.acks.append(Ack(began, time.monotonic()))

    def _create(self) -> None:
        self._database = Database(self._path, seed=self._seed)
        self.shipper = Shipper(
            self._path, self.database.wal_path, self.database.page_size, self._log
        )
        self.database.create_schema()
        self._ship()
