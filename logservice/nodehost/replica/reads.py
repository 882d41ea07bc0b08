"""Who waits for one replica to have applied something: a read index, or a record.

ReadBook holds the linearizable reads, many to one Raft round. Every read that waits when a round
begins shares its context. A read may be served at the leader's commit index once a majority has
confirmed, after the read arrived, that the leader still leads, and once that index is applied here
(Raft paper section 8, thesis 6.4). A read never joins a round that began before it arrived: the
confirmation could be older than a write the reader knows of.

Contexts are ``boot nonce, round number``: unique over restarts, so that an answer to the old
process cannot confirm a read of the new one.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass

from logservice_wire.errors import Busy, LogServiceError, NotReady

from logservice.ids import Index, Lsn
from logservice.raft.ready import ReadState

_CONTEXT = struct.Struct("<QQ")

_ROUNDS_MAX = 8
"""Rounds on the way at a time; further reads wait for the next round and share it."""


@dataclass(slots=True)
class _Waiting:
    future: asyncio.Future[Index]
    deadline_s: float


class ReadBook:
    """The linearizable reads of one replica; see the module's text."""

    def __init__(self, nonce: int, reads_max: int) -> None:
        """`nonce` differs at every process start."""
        self._nonce = nonce
        self._reads_max = reads_max
        self._round = 0
        self.waiting: list[_Waiting] = []
        """The reads for which no round was begun yet."""
        self._rounds: dict[bytes, tuple[int, list[_Waiting]]] = {}
        self.unapplied: list[tuple[Index, list[_Waiting]]] = []
        """The reads that are confirmed at an index that is not applied here yet."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, future: asyncio.Future[Index], deadline_s: float) -> None:
        """A read arrived. Raises Busy when too many wait."""
        if self._count >= self._reads_max:
            raise Busy("too many reads wait", retry_after_ms=50)
        self._count += 1
        self.waiting.append(_Waiting(future, deadline_s))

    def begin_round(self, ask: Callable[[bytes], bool], tick: int) -> None:
        """Send one context for all reads that wait. `ask` says whether a leader could be asked."""
        if not self.waiting or len(self._rounds) >= _ROUNDS_MAX:
            return
        self._round += 1
        context = _CONTEXT.pack(self._nonce, self._round)
        # The round is registered first: with a single voter the answer comes from within the call.
        batch, self.waiting = self.waiting, []
        self._rounds[context] = (tick, batch)
        if not ask(context):
            del self._rounds[context]
            self.waiting = batch + self.waiting

    def confirmed(self, states: tuple[ReadState, ...], applied: Index) -> None:
        """A majority confirmed contexts; their reads wait for the index to be applied."""
        for state in states:
            found = self._rounds.pop(state.context, None)
            if found is None:
                continue
            if state.index <= applied:
                self._serve(state.index, found[1])
            else:
                self.unapplied.append((state.index, found[1]))

    def applied(self, index: Index) -> None:
        """Everything up to `index` is applied."""
        while self.unapplied and self.unapplied[0][0] <= index:
            wanted, batch = self.unapplied.pop(0)
            self._serve(wanted, batch)

    def retry_lost(self, tick: int, ticks_max: int) -> bool:
        """Begin rounds anew that have had no answer for `ticks_max` ticks (a message or the leader
        was lost): a read changes nothing, so asking twice is safe. True when something waits.
        """
        lost = [key for key, (began, _) in self._rounds.items() if tick - began >= ticks_max]
        for key in lost:
            self.waiting = self._rounds.pop(key)[1] + self.waiting
        return bool(self.waiting)

    def expire(self, now_s: float) -> None:
        """Answer the reads whose deadline passed; NOT_READY is true, as a read changes nothing."""
        for batch in self._batches():
            for item in batch:
                if item.deadline_s <= now_s and not item.future.done():
                    item.future.set_exception(NotReady("no leader confirmed the read in time"))
        live = [item for item in self.waiting if not item.future.done()]
        self._count -= len(self.waiting) - len(live)
        self.waiting = live

    def fail_all(self, error: LogServiceError) -> None:
        """The replica stops."""
        for batch in self._batches():
            for item in batch:
                if not item.future.done():
                    item.future.set_exception(error)
        self.waiting = []
        self._rounds = {}
        self.unapplied.clear()
        self._count = 0

    def _batches(self) -> list[list[_Waiting]]:
        return [
            self.waiting,
            *(batch for _, batch in self._rounds.values()),
            *(batch for _, batch in self.unapplied),
        ]

    def _serve(self, index: Index, batch: list[_Waiting]) -> None:
        self._count -= len(batch)
        for item in batch:
            if not item.future.done():
                item.future.set_result(index)


class LsnWaiters:
    """Who waits until a record is applied at one replica."""

    def __init__(self) -> None:
        """Nobody waits."""
        self.waiting: list[tuple[Lsn, asyncio.Future[bool]]] = []

    async def wait(self, lsn: Lsn, next_lsn: Lsn, timeout_s: float) -> bool:
        """Whether a record with `lsn` is applied in time; `next_lsn` follows the applied ones."""
        if lsn < next_lsn:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting = [item for item in self.waiting if not item[1].done()]
        self.waiting.append((lsn, future))
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return False

    def applied(self, next_lsn: Lsn, *, ended: bool = False) -> None:
        """Everything below `next_lsn` is applied; `ended`: and nothing ever follows."""
        waiting = []
        for lsn, future in self.waiting:
            if future.done():
                continue
            if ended or lsn < next_lsn:
                future.set_result(True)
            else:
                waiting.append((lsn, future))
        self.waiting = waiting

    def stop(self) -> None:
        """Nothing is applied any more."""
        for _, future in self.waiting:
            if not future.done():
                future.set_result(False)
        self.waiting = []
