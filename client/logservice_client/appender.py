"""Appender: one shard's appends, batched naturally, each applied at most once.

Theory of operation. A caller puts records into the BatchQueue and waits for a future. One worker
task gives each batch its number (`sequence`) and sends it; the acks settle the futures. There is no
linger timer: a block leaves as soon as fewer than `NATURAL_BLOCKS_INFLIGHT_MAX` are in flight, and
records that come meanwhile share the next one. So one caller pays no delay, and a thousand callers
share a few blocks.

The session of a numbered batch decides what becomes of it, never a single attempt:

INV-APPENDER-1: a batch is repeated only under the same session, sequence and bytes; the server
applies that at most once and answers the original LSN.
INV-APPENDER-2: batches are sent, resent and settled in the order of their sequences.
INV-APPENDER-3: a batch moves to another session only when a smaller sequence of the old one is
known never to be applied (a *hole*): the old session then refuses it as a gap for ever, so it
cannot be applied twice.
INV-APPENDER-4: a caller is never told more than is known: "not applied" only if no attempt can have
been applied or can still be applied.

Failures, in these terms:

- The stream breaks, the leader changes or a queue is full: the worker pauses, connects to wherever
  the route says, and resends everything unsettled.
- A batch is refused for good (fenced, wrong LSN, corrupt): its callers get the error, its sequence
  becomes a hole, and what was sent behind it moves to a new session. When the log was closed, what
  was sent behind it gets the error, too.
- The session has expired: every unsettled batch is of unknown outcome.
- The log has another lineage: everybody is told, and the handle takes no append until the program
  has accepted it (`lineage`).
- A deadline passes: the callers are told. A batch that was sent stays in its place, and is resent
  as long as anybody behind it waits. A timer looks at the deadlines, so they hold without a worker.
- The worker is cancelled with all other tasks of the loop: if anybody waits, another one begins and
  resends everything unsettled. The worker breaks: everybody is told (INV-CLIENT-TASK).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextvars import Context
from typing import Final

from logservice_wire.errors import (
    Busy,
    ClientClosed,
    DeadlineExceeded,
    LineageChanged,
    LogServiceError,
    NotReady,
    Outcome,
    Reason,
    UnknownOutcome,
)
from logservice_wire.rpcs import OPEN_SESSION
from logservice_wire.v1 import log_pb2

from logservice_client.append_stream import AppendStream, Session
from logservice_client.background import Every, begin_task
from logservice_client.batch import Batch, BatchQueue
from logservice_client.bounds import (
    BLOCKS_INFLIGHT_MAX,
    BYTES_INFLIGHT_MAX,
    MESSAGE_BYTES_MAX,
    NATURAL_BLOCKS_INFLIGHT_MAX,
    STALL_TIMEOUT_MAX_S,
    STALL_TIMEOUT_S,
    WATCH_INTERVAL_S,
)
from logservice_client.caller import Caller
from logservice_client.failure import answered, refused_for_now
from logservice_client.life import closed
from logservice_client.lineage import KnownLineage
from logservice_client.log_lines import Line
from logservice_client.pacing import Backoff, Deadline, LeaderHint
from logservice_client.redundancy import Redundancy
from logservice_client.reporter import Outage
from logservice_client.shards_stream import Lane, OlderStore

_FOR_GOOD: Final = frozenset(
    {
        Reason.FENCED,
        Reason.INVALID_ARGUMENT,
        Reason.TOO_LARGE,
        Reason.CORRUPT_BLOCK,
        Reason.SEQUENCE_REUSED,
        Reason.SHARD_CLOSED,
    }
)
"""Refusals that hold for every copy of the block, also for copies that are still on their way."""

_FOR_EVERYBODY: Final = frozenset(
    {
        Reason.UNAUTHENTICATED,
        Reason.PERMISSION_DENIED,
        Reason.WRONG_CLUSTER,
        Reason.SHARD_DELETED,
        Reason.LINEAGE_CHANGED,
    }
)
"""Refusals of whatever the client appends, not of one block."""


_NOWHERE: Final = frozenset({Reason.SHARD_NOT_FOUND, Reason.SHARD_DELETED, Reason.HANDSHAKE_FAILED})
"""There is no address to append at, and waiting brings none."""


class Appender:
    """The appending half of one shard's handle. Everything runs on the client's loop."""

    def __init__(self, caller: Caller, shard: int, history: KnownLineage) -> None:
        """Idle until the first append. `history`: of the handle."""
        self._caller = caller
        self._history = history
        self._shard = shard
        self._loop = asyncio.get_running_loop()
        self.queue = BatchQueue(self._loop)
        self._unsettled: deque[Batch] = deque()
        self._unsettled_bytes = 0
        self._session: Session | None = None
        self._next_sequence = 1
        self._sealed = False
        self._hint = LeaderHint()
        self.append_time_us = 0
        """The newest append time that an ack named; 0 for none."""
        self._worker: asyncio.Task[None] | None = None
        self._watch: Every | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._stream: Lane | AppendStream | None = None
        self._stall_s = STALL_TIMEOUT_S
        self._backoff = Backoff()
        self._outage = Outage(shard, "append")
        self._had_session = False
        self._told_fenced = -1
        self._closed = False
        self.redundancy = Redundancy()
        """What the newest ack of the leader said."""

    def started(self) -> None:
        """Wake the worker, because something was queued."""
        if not self._wake.is_set():
            self._wake.set()
        if self._worker is None:
            if self._closed:
                self._give_up_all(closed(maybe_applied=False))
                return
            # The worker serves every caller, so it runs in no caller's context; otherwise the first
            # caller would have the session's calls in its trace.
            self._worker = begin_task(
                self._work(), self._worker_ended, name=f"append-{self._shard}", context=Context()
            )
            if self._watch is None:
                self._watch = Every(WATCH_INTERVAL_S, self._look)

    async def wait_for_room(self, deadline_s: float) -> None:
        """Return when the queue may take more; memory stays bounded while the log is away. Raises
        ClientClosed; Busy at the deadline, which is on the loop's clock.
        """
        try:
            async with asyncio.timeout_at(deadline_s):
                while self.queue.crowded and not self._closed:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise Busy("too much waits to be appended to this log") from None
        self._caller.life.check()

    async def close(self) -> None:
        """Stop; whoever still waits learns whether the outcome is unknown or nothing was sent."""
        self._closed = True
        if self._watch is not None:
            self._watch.stop()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        self._end()

    def _end(self) -> None:
        self._give_up_all(closed(maybe_applied=False))
        self._room.set()

    # --- the worker ------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            while not (self.queue.pending or self._unsettled):
                self._outage.forget()
                self._wake.clear()
                await self._wake.wait()
            address = ""
            try:
                address = await self._caller.router.pick(self._shard, self._patience())
                session = await self._ensure_session()
                if self._unsettled or self.queue.pending:
                    await self._serve(address, session)
            except LogServiceError as error:
                if address:
                    self._caller.router.learn_failure(self._shard, address, error)
                    self._failed(error)
                elif error.reason in _NOWHERE:
                    self._give_up_all(error)
                else:
                    self._delayed(error)
                if self._unsettled or self.queue.pending:
                    pause_s = self._backoff.next_s(error)
                    self._outage.failed(error)
                    self._caller.reporter.retried(self._shard, "append", address, error, pause_s)
                    await asyncio.sleep(pause_s)

    def _worker_ended(self, why: BaseException | None) -> None:
        self._worker = None
        if self._closed:
            self._end()
            return
        # What was on its way may be applied, whatever becomes of it.
        self._failed(UnknownOutcome("the client's own task has ended"))
        if not isinstance(why, asyncio.CancelledError):
            self._give_up_all(NotReady("the client's own task has broken", why=repr(why)))
        elif self._awaited():
            self.started()

    def _awaited(self) -> bool:
        batches = (*self._unsettled, *self.queue.pending)
        return any(not future.done() for batch in batches for future in batch.futures)

    def _patience(self) -> Deadline:
        return Deadline(self._stall_s)

    async def _ensure_session(self) -> Session:
        if self._sealed and not self._unsettled:
            self._forget_unsettled()
        if self._session is None:
            opened = await self._caller.call(
                self._shard,
                OPEN_SESSION,
                log_pb2.OpenSessionRequest(shard_id=self._shard, lineage=self._history.named),
                self._stall_s,
            )
            self._history.heard(opened.position)
            self._session = Session(opened.session_id, opened.nonce)
            self._next_sequence = 1
            opened_line = Line.SESSION_OPENED_AGAIN if self._had_session else Line.SESSION_OPENED
            opened_line.say(self._shard)
            self._had_session = True
        return self._session

    async def _serve(self, address: str, session: Session) -> None:
        """Serve one stream, until it fails or another address or epoch is wanted."""
        batches: Sequence[Batch] = tuple(self._unsettled)
        epoch = batches[0].epoch if batches else self.queue.pending[0].epoch
        stream = self._caller.streams.open(
            address, self._shard, session, epoch, self._acked, lineage=self._history.named
        )
        stream.on_change(self._wake.set)
        self._stream = stream
        leaving = False
        try:
            while True:
                if batches:
                    for batch in batches:
                        batch.attempts += 1
                        batch.on_wire = True
                    alone = len(batches) == len(self._unsettled)
                    for message in _messages(batches):
                        await stream.send(message, first_unsettled=alone)
                        alone = False
                    batches = ()
                if stream.ended:
                    await stream.raise_failure()
                leaving = (
                    leaving
                    or self._caller.streams.outdated(stream)
                    or self._should_move(stream, epoch)
                )
                if leaving and not self._unsettled:
                    return
                # What is on its way is acked first: nothing has to be sent again.
                batches = () if leaving else self._take(epoch)
                if batches:
                    continue
                self._wake.clear()
                await self._wake.wait()
        except OlderStore:
            # It has taken nothing, and the next stream there is one that it knows.
            for batch in self._unsettled:
                batch.attempts -= batch.on_wire
                batch.on_wire = False
        finally:
            self._stream = None
            await stream.close()

    def _should_move(self, stream: Lane | AppendStream, epoch: int) -> bool:
        pending = self.queue.pending
        if self._sealed or (pending and pending[0].epoch != epoch):
            return True
        hint, router = stream.leader_address, self._caller.router
        if hint == stream.address:
            self._hint.reached()
            return False
        # Appends go on through the follower until the leader is connected: an address that cannot
        # be reached costs nothing, and the next stream does go there.
        if not pending or not hint or not router.connected(hint) or not self._hint.follow(hint):
            return False
        router.learn_leader(self._shard, hint)
        return True

    def _take(self, epoch: int) -> list[Batch]:
        """Number and encode what may leave now; at most one message's worth."""
        queue, unsettled = self.queue, self._unsettled
        pending = queue.pending
        taken: list[Batch] = []
        if (
            not pending
            or self._sealed
            or (len(unsettled) >= NATURAL_BLOCKS_INFLIGHT_MAX and not pending[0].full)
        ):
            return taken
        crowded = queue.crowded
        now_us = time.time_ns() // 1000
        size = 0
        while (
            pending
            and pending[0].epoch == epoch
            and len(unsettled) < BLOCKS_INFLIGHT_MAX
            and self._unsettled_bytes < BYTES_INFLIGHT_MAX
            and size < MESSAGE_BYTES_MAX
        ):
            batch = queue.pop()
            if batch is None:
                break
            if batch.epoch != epoch:
                queue.put_back([batch])
                break
            batch.sequence = self._next_sequence
            self._next_sequence += 1
            size += len(batch.encode(now_us))
            unsettled.append(batch)
            self._unsettled_bytes += batch.size
            taken.append(batch)
        if crowded:
            self._room.set()
        return taken

    def _acked(
        self, acks: Sequence[log_pb2.AppendStreamResponse.Ack], position: log_pb2.LogPosition
    ) -> None:
        """Settle batches in order; called by the stream for every message of acks."""
        meter = self._caller.reporter.meter
        for ack in acks:
            batch = self._unsettled[0] if self._unsettled else None
            if batch is None or (ack.sequence, ack.record_count) != (
                batch.sequence,
                batch.record_count,
            ):
                raise UnknownOutcome(f"an ack of sequence {ack.sequence} fits no block")
            self._unsettled.popleft()
            self._unsettled_bytes -= batch.size
            self.append_time_us = max(self.append_time_us, ack.append_time_us)
            batch.settle(ack.lsn)
            if meter is not None:
                took_s = self._loop.time() - batch.queued_s
                meter.appended(self._shard, batch.record_count, batch.size, took_s)
        self._stall_s = STALL_TIMEOUT_S
        self._backoff.reset()
        self._outage.went_on()
        if position.voters:
            said = Redundancy(position.healthy_voters, position.voters)
            if said != self.redundancy:
                self.redundancy = said
                if meter is not None:
                    meter.redundant(self._shard, said)
        self._wake.set()

    # --- failures --------------------------------------------------------------------------------

    def _failed(self, error: LogServiceError) -> None:
        """The attempt to serve the queue at some address ended with `error`."""
        if error.reason is Reason.TOO_LARGE and not error.number("sequence"):
            # gRPC's own refusal of a message names no block. The messages before that one may be
            # applied, so with several on their way nobody may be told "not applied".
            error = error if len(self._unsettled) <= 1 else _unknown(error)
        refused = self._refused(error)
        for batch in self._unsettled:
            if batch.on_wire:
                batch.on_wire = False
                batch.maybe_applied |= error.outcome is Outcome.UNKNOWN or batch is not refused
        repeated = refused_for_now(error)
        if isinstance(error, LineageChanged):
            self._history.refused(error)
        if error.reason is Reason.SESSION_EXPIRED:
            self._lose_session(error)
        elif error.reason in _FOR_EVERYBODY:
            self._give_up_all(error)
        elif repeated or error.outcome is Outcome.UNKNOWN:
            self._delayed(error)
        elif refused is not None:
            self._refuse(refused, error)
        elif (waiting := self.queue.pop()) is not None:
            # The refusal came before a block was sent: the first block asked for this stream.
            waiting.fail(error)

    def _delayed(self, error: LogServiceError) -> None:
        """All callers go on waiting; they get `error` if their deadline comes first."""
        for batch in (*self._unsettled, *self.queue.pending):
            batch.last_error = error

    def _refused(self, error: LogServiceError) -> Batch | None:
        """The batch that `error` is about: the one it names, else the first unsettled one."""
        named = error.number("sequence")
        for batch in self._unsettled:
            if named in (0, batch.sequence):
                return batch
        return None

    def _refuse(self, refused: Batch, error: LogServiceError) -> None:
        """`refused` is not applied by this attempt, and no attempt will be made again."""
        for_good = error.reason in _FOR_GOOD or (
            error.reason is Reason.WRONG_EXPECTED_LSN
            and error.number("next") > refused.expected_lsn
        )
        # An earlier attempt that ended without an outcome may still be on its way.
        hole = for_good or not refused.maybe_applied
        position = self._unsettled.index(refused)
        behind = list(self._unsettled)[position + 1 :]
        while len(self._unsettled) > position:
            self._unsettled_bytes -= self._unsettled.pop().size
        refused.fail(error if hole else _unknown(error))
        if hole and not behind and refused.attempts == 1:
            # No copy of this number is anywhere: the next block may have it.
            self._next_sequence = refused.sequence
        else:
            self._sealed = True
        if hole:
            self.queue.put_back([batch for batch in behind if batch.futures])
        else:
            for batch in behind:
                batch.fail(_unknown(error))
        if error.reason is Reason.SHARD_CLOSED:
            # Nothing behind it is applied either, in this session or another one.
            while (waiting := self.queue.pop()) is not None:
                waiting.fail(error)
        if error.reason is Reason.FENCED:
            if refused.epoch != self._told_fenced:
                self._told_fenced = refused.epoch
                Line.FENCED.say(self._shard, refused.epoch, error)
            for batch in [*self.queue.pending]:
                if batch.epoch == refused.epoch:
                    self.queue.drop(batch)
                    batch.fail(error)

    def _lose_session(self, error: LogServiceError) -> None:
        Line.SESSION_LOST.say(self._shard, len(self._unsettled), error)
        for batch in self._unsettled:
            batch.fail(_unknown(error))
        self._forget_unsettled()

    def _give_up_all(self, error: LogServiceError) -> None:
        # A first block that is surely not applied is a hole: nothing behind it can be applied.
        first = self._unsettled[0] if self._unsettled else None
        hole = first is not None and not (first.maybe_applied or first.on_wire)
        for batch in self._unsettled:
            batch.fail(error if hole else _unknown(error))
        self._forget_unsettled()
        while (waiting := self.queue.pop()) is not None:
            waiting.fail(error)
        self._room.set()

    def _forget_unsettled(self) -> None:
        self._unsettled.clear()
        self._unsettled_bytes = 0
        self._session = None
        self._sealed = False

    # --- deadlines and stalls --------------------------------------------------------------------

    def _look(self) -> float:
        """Look at deadlines and stalls now and then: one timer for all callers."""
        if not (self._unsettled or self.queue.pending):
            return WATCH_INTERVAL_S
        now_s = self._loop.time()
        self._expire(now_s)
        stream = self._stream
        if stream is not None and self._unsettled and stream.silent_s(now_s) > self._stall_s:
            self._stall_s = min(self._stall_s * 2, STALL_TIMEOUT_MAX_S)
            silent_s = stream.silent_s(now_s)
            Line.STALLED.say(self._shard, stream.address, silent_s)
            stream.break_off(f"no ack for {silent_s:.1f} s")
        return WATCH_INTERVAL_S

    def unsent(self, batch: Batch) -> LogServiceError:
        """What the callers of a batch are told that was not sent in their time."""
        last = batch.last_error or NotReady("the deadline passed before it was sent")
        return answered(self._caller.router.explained(self._shard, last), mutating=False)

    def unacked(self, batch: Batch) -> LogServiceError:
        """The same of one that was sent."""
        late = DeadlineExceeded("no ack in time", sequence=batch.sequence)
        return self._caller.router.explained(self._shard, late)

    def _expire(self, now_s: float) -> None:
        for batch in [*self.queue.pending]:
            if batch.deadline_s <= now_s:
                self.queue.drop(batch)
                self._room.set()
                batch.fail(self.unsent(batch))
        for batch in [*self._unsettled]:
            if batch.deadline_s <= now_s and batch.futures:
                last = batch.last_error
                if batch.on_wire or batch.maybe_applied or last is None:
                    batch.fail(self.unacked(batch))
                else:
                    self._refuse(batch, last)
                    return
        unsettled = self._unsettled
        # Without unacked blocks the session is kept: the worker may be between two streams.
        if unsettled and self._stream is None and not any(batch.futures for batch in unsettled):
            self._forget_unsettled()


def _messages(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    """`batches` in messages of at most MESSAGE_BYTES_MAX, or one block each.

    A resend is everything in flight; in one message it could be larger than the server takes.
    """
    message: list[Batch] = []
    size = 0
    for batch in batches:
        if message and size + len(batch.block) > MESSAGE_BYTES_MAX:
            yield message
            message, size = [], 0
        message.append(batch)
        size += len(batch.block)
    if message:
        yield message


def _unknown(error: LogServiceError) -> LogServiceError:
    """What the callers of a sent block are told when `error` ends the attempts to append it."""
    if error.outcome is Outcome.UNKNOWN:
        return error
    if isinstance(error, ClientClosed):
        return closed(maybe_applied=True)
    unknown = UnknownOutcome(error.message)
    unknown.metadata = dict(error.metadata)
    unknown.__cause__ = error
    return unknown
