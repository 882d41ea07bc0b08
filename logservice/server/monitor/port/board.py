"""Board: where the threads of the admin port get what the event loop knows.

Theory of operation. A request runs in a thread of the admin port. It asks the loop for a value and
waits for it; the value is immutable. The loop makes a value at most as often as the reporters
allow. So many browsers, or a hostile one, cost the shards no more than that. A loop that does
not answer within ADMIN_LOOP_WAIT_S is stuck (a disk that hangs in an inline fsync, a bug), and the
probes say so (`LoopStuck`). Recovery holds the loop, too, for as long as it takes. So until
`started` the answer is the status made at the beginning.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from logservice import bounds
from logservice.server.monitor.cluster.console import Console
from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.own.status import StoreStatus

T = TypeVar("T")


class LoopStuck(Exception):
    """The event loop did not answer in time, or is gone."""


class NotServing(Exception):
    """The store has not opened its log storage yet."""


class Board:
    """It is made on the loop; `status` and `cluster` are called from other threads."""

    def __init__(
        self, status: Callable[[], StoreStatus], wait_s: float = bounds.ADMIN_LOOP_WAIT_S
    ) -> None:
        """Call `status` once here, and later on the running loop."""
        self._starting: StoreStatus | None = status()
        self._loop = asyncio.get_running_loop()
        self._status = status
        self._cluster: Callable[[], Awaitable[ClusterReport]] | None = None
        self._console: Console | None = None
        self._wait_s = wait_s

    def started(
        self, report: Callable[[], Awaitable[ClusterReport]], console: Console | None = None
    ) -> None:
        """Ask the loop from now on; `report` makes the report on the cluster, and `console` has
        the rest.
        """
        self._starting = None
        self._console = console
        self._cluster = report

    def status(self) -> StoreStatus:
        """The status of this store. Raises LoopStuck."""
        starting = self._starting
        if starting is not None:
            return starting

        async def ask() -> StoreStatus:
            return self._status()

        return self._on_loop(ask())

    def cluster(self) -> ClusterReport:
        """The report on the cluster. Raises LoopStuck, NotServing."""
        report = self._cluster
        if report is None:
            raise NotServing

        async def ask() -> ClusterReport:
            return await report()

        return self._on_loop(ask())

    def console(self, ask: Callable[[Console], Awaitable[T]]) -> T:
        """What `ask` makes of the console. Raises LoopStuck, NotServing, and what `ask` raises."""
        console = self._console
        if console is None:
            raise NotServing

        async def answer() -> T:
            return await ask(console)

        return self._on_loop(answer())

    def ask(self, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer of `question`, which runs on the loop. Raises LoopStuck, and what it raises.

        While recovery holds the loop nothing answers.
        """
        return self._on_loop(question())

    def _on_loop(self, ask: Coroutine[Any, Any, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(ask, self._loop)
        except RuntimeError as error:
            ask.close()
            raise LoopStuck("the event loop is closed") from error
        try:
            return future.result(self._wait_s)
        except (concurrent.futures.CancelledError, TimeoutError) as error:
            future.cancel()
            raise LoopStuck(f"the event loop has not answered for {self._wait_s:g} s") from error
