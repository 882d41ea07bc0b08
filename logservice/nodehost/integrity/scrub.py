"""Scrubber: finds damage in sealed segments before anybody needs them.

One per data directory. A *pass* visits every sealed segment, oldest first, in slices
(`logdb.scrub`); between passes there is a long pause. `run_once` verifies one slice, aside of the
loop; `run` paces it (`read_budget`). Damage makes the replica faulty, and that replica halts at
once, quiesced or not. Mending it is the repairer's part (`repair`).

The scrubber may be cancelled between any two slices and goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from logservice import bounds
from logservice.clock import Clock
from logservice.ids import ReplicaId, ShardId
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.scrub import ScrubTarget, Slice, read_slice
from logservice.nodehost.disks.executor import Executor
from logservice.nodehost.disks.read_budget import ReadBudget
from logservice.nodehost.integrity.pass_timer import PassTimer


@dataclass(slots=True)
class ScrubProgress:
    """Since the store started. segment, offset: where the pass under way is; finished_bytes: size
    of the segments that it is through with; all 0 between passes.

    damages: places that did not verify, each counted once per pass.
    """

    passes: int = 0
    segments: int = 0
    bytes_verified: int = 0
    damages: int = 0
    segment: int = 0
    offset: int = 0
    finished_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ScrubPass:
    """A pass as an operator sees it. rate: bytes per second at most, what the comparison of
    replicas reads included. bytes: what the pass under way has to go through, segments that were
    sealed meanwhile included; between passes, what the next one has. done_bytes: of them, done; 0
    between passes. last_s: how long the newest whole pass took; 0 before the first.
    """

    rate: float
    bytes: int
    done_bytes: int
    last_s: float


class Scrubber:
    """See the module's text. All methods on the loop thread."""

    def __init__(
        self,
        logdb: LogDb,
        vfs: Vfs,
        executor: Executor,
        clock: Clock,
        budget: ReadBudget,
        on_damaged: Callable[[Sequence[tuple[ShardId, ReplicaId]]], None],
        *,
        pass_interval_s: float = bounds.SCRUB_PASS_INTERVAL_S,
        slice_bytes: int = bounds.SCRUB_SLICE_BYTES,
    ) -> None:
        """`executor` must not be the one commit groups wait for. `on_damaged`: these are faulty."""
        self.progress = ScrubProgress()
        self._logdb = logdb
        self._vfs = vfs
        self._executor = executor
        self._clock = clock
        self._budget = budget
        self._on_damaged = on_damaged
        self._slice_bytes = slice_bytes
        self._target: ScrubTarget | None = None
        self.timer = PassTimer(clock, pass_interval_s, bounds.SCRUB_FIRST_PASS_S)
        """When a pass is due; the pause between passes may be changed."""
        self._began_s = self.timer.due_s
        self._last_s = 0.0
        self._ended = False
        self._slicing: asyncio.Future[None] | None = None

    def look(self) -> ScrubPass:
        """Where it stands."""
        progress = self.progress
        done, left = progress.finished_bytes, self._logdb.sealed_bytes(progress.segment)
        if self._target is not None:
            done += progress.offset
            left += self._target.size - progress.offset
        return ScrubPass(self._budget.bytes_per_s, done + left, done, self._last_s)

    async def run(self) -> None:
        """Scrub for ever, at the bounded rate."""
        while True:
            await self.timer.wait()
            if self._ended:
                return
            before = self.progress.bytes_verified
            self._slicing = asyncio.get_running_loop().create_future()
            try:
                await self.run_once()
            finally:
                self._slicing.set_result(None)
            await self._budget.spend(self.progress.bytes_verified - before)

    async def end(self) -> None:
        """Begin no further slice, and wait for the one that is read: the directory is let go of."""
        self._ended = True
        if self._slicing is not None:
            await self._slicing

    async def run_once(self) -> None:
        """Verify one slice; nothing happens before the next pass is due."""
        progress = self.progress
        if not self.timer.due:
            return
        if self._target is None:
            if progress.segment == 0:
                self._began_s = self._clock.monotonic()
            self._target = self._logdb.scrub_target(progress.segment)
            if self._target is None:
                self._end_pass()
                return
            progress.segment, progress.offset = self._target.segment, SEGMENT_HEADER_BYTES
        target, offset = self._target, progress.offset
        future = self._executor.submit(
            lambda: read_slice(self._vfs, target, offset, self._slice_bytes)
        )
        found: Slice = await asyncio.wrap_future(future)
        progress.bytes_verified += found.bytes_read
        progress.offset = found.next_offset
        if found.next_offset >= target.size:
            self._target = None
            progress.segments += 1
            progress.finished_bytes += target.size
        if found.damages:
            verdict = self._logdb.scrub_found(target.segment, found.damages)
            progress.damages += verdict.damages
            self._on_damaged(verdict.replicas)

    def _end_pass(self) -> None:
        progress = self.progress
        progress.passes += 1
        progress.segment = progress.offset = progress.finished_bytes = 0
        self._last_s = self._clock.monotonic() - self._began_s
        self.timer.passed()
