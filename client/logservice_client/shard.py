"""Shard: the handle of one log: append, read, follow, truncate, and what belongs to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from logservice_wire.block import encoded_size, peek_block
from logservice_wire.bounds import RECORD_BYTES_MAX
from logservice_wire.column_block import encode_columns
from logservice_wire.errors import (
    LineageChanged,
    LogServiceError,
    StaleTruncate,
)
from logservice_wire.rpcs import (
    ACQUIRE_WRITER,
    ALLOCATE_TIMESTAMPS,
    BEGIN_RESTORE,
    CLOSE_SHARD,
    CONNECT,
    FINISH_RESTORE,
    FORGET_SESSION,
    GET_SHARD_STATUS,
    LIST_SESSIONS,
    LSN_AT_TIME,
    READ,
    RELEASE_HOLD,
    RELEASE_WRITER,
    RENEW_HOLD,
    RESTORE_BLOCKS,
    SET_HOLD,
    TRUNCATE,
)
from logservice_wire.v1 import log_pb2

from logservice_client.appender import Appender
from logservice_client.arguments import message, seconds
from logservice_client.batch import Batch
from logservice_client.bounds import (
    HOLD_TTL_S,
    NAMED_SESSIONS_MAX,
    OWN_TIMER_MAX_S,
    TIMEOUT_DEFAULT_S,
)
from logservice_client.caller import AFTER_UNKNOWN, Caller
from logservice_client.digesting import Progress, RangeDigest, digest_of
from logservice_client.follow import Follow
from logservice_client.following import Answer, Following
from logservice_client.held_log import HeldLog
from logservice_client.lag import Standing
from logservice_client.named_session import NamedSession, too_early
from logservice_client.pipeline import HandedOver
from logservice_client.read_result import Gap, LsnAtTime, ReadResult, Records, result_of
from logservice_client.records import Record, checked_records, expected, too_large
from logservice_client.redundancy import Redundancy
from logservice_client.shard_calls import ShardCalls

if TYPE_CHECKING:
    import pyarrow


class Shard(ShardCalls):
    """One log, as one client sees it. Get it from `LogClient.shard`; safe for many tasks.

    Every call takes `timeout` in seconds (default `TIMEOUT_DEFAULT_S`) and raises classes of
    `logservice_wire.errors`; `error.outcome` tells whether a failed call may have taken effect.
    """

    def __init__(self, caller: Caller, shard_id: int) -> None:
        """See `LogClient.shard`."""
        super().__init__(caller, shard_id)
        self._appender = Appender(caller, shard_id, self._history)
        self._loop = asyncio.get_running_loop()

    @property
    def redundancy(self) -> Redundancy:
        """How many voters stood behind the newest acked append, as the leader knew."""
        return self._appender.redundancy

    @property
    def append_time_us(self) -> int:
        """The newest append time that an ack of this handle's appends named, microseconds since
        1970; 0 before the first, and below cluster version 2. A read says it of each block.
        """
        return self._appender.append_time_us

    # --- appending -------------------------------------------------------------------------------

    async def append(
        self,
        record: Record | Sequence[Record],
        *,
        expected_lsn: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Append one record, or several that become durable together; return the (first) LSN.

        Returns when the records are on the disks of a majority. Calls of many tasks share blocks;
        their LSNs are in the order of the calls. Several records always share one block, so they
        are appended together or not at all, with consecutive LSNs. With `expected_lsn` the first
        record lands exactly there, or WrongExpectedLsn{next} is raised.

        Each record is appended at most once, however often the client has to try. After an error
        with outcome UNKNOWN (UnknownOutcome, DeadlineExceeded, SessionExpired), or a cancellation,
        it may have been appended or may still be: read on from the last LSN you know to find out.
        """
        self._caller.life.check()
        self._history.check()
        deadline_s = self._loop.time() + seconds(timeout)
        queue = self._appender.queue
        if queue.crowded:
            await self._appender.wait_for_room(deadline_s)
        if isinstance(record, bytes) and expected_lsn is None:
            if len(record) > RECORD_BYTES_MAX:
                raise too_large(encoded_size(1, len(record)))
            future = queue.put_record(record, self.writer_epoch, deadline_s)
        else:
            records, size = checked_records(record)
            future = queue.put_records(
                records, size, self.writer_epoch, deadline_s, expected(expected_lsn)
            )
        return await self._lsn(future, timeout, deadline_s)

    def hand_over(self, waiting: Iterable[HandedOver]) -> None:
        """Queue what threads have handed over, in this order (`pipeline`). Each future gets the LSN
        or the error.
        """
        queue = self._appender.queue
        for one in waiting:
            try:
                self._caller.life.check()
                self._history.check()
            except LogServiceError as error:
                one.future.set_exception(error)
                continue
            queue.put_answered(
                one.future, one.records, one.size, one.epoch, one.deadline_s, one.expected_lsn
            )
            batch = queue.last_batch()
            batch.traceparent = batch.traceparent or one.traceparent
        self._appender.started()

    def traceparent(self) -> str:
        """The W3C trace context of the caller, here and now; "" for none."""
        found = self._caller.traceparent
        return found() if found is not None else ""

    async def append_columns(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Mapping[str, bytes]] | None = None,
        times_us: Sequence[int] | None = None,
        codec: str | None = None,
        expected_lsn: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Append records with keys, headers and times of their own (microseconds since 1970), as
        far as they have such, as one block; return the first LSN. `codec`: "zstd" or "lz4"
        compresses them here, and readers open them. All else is as with `append`.

        Readers need a client that knows such blocks, and the package of the codec. Below cluster
        version 2 NotReady{cluster_version, needed} is raised at once; values alone, without a
        codec, are a plain block. Raises InvalidArgument, TooLarge, CodecMissing.
        """
        block = encode_columns(
            values,
            time.time_ns() // 1000,
            keys=keys,
            headers=headers,
            times_us=times_us,
            codec=codec,
        )
        return await self.append_block(block, expected_lsn=expected_lsn, timeout=timeout)

    async def append_arrow(
        self,
        data: pyarrow.RecordBatch | pyarrow.Array,
        *,
        codec: str | None = None,
        expected_lsn: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Append a column of values, or a RecordBatch of the columns value and, if wished, key,
        headers and timestamp, as one block, without a look at any record. Needs the [arrow] extra.
        All else is as with `append_columns`.
        """
        from logservice_client.arrow import block_of

        block = block_of(data, codec)
        return await self.append_block(block, expected_lsn=expected_lsn, timeout=timeout)

    async def append_block(
        self,
        block: bytes,
        *,
        expected_lsn: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Append a block made by `encode_block` or `encode_columns` of `logservice_wire`, or by
        `arrow.block_of`; return its first LSN.

        The leader checks the block's checksum. All else is as with `append`.
        """
        self._caller.life.check()
        self._history.check()
        deadline_s = self._loop.time() + seconds(timeout)
        count = peek_block(block)
        if self._appender.queue.crowded:
            await self._appender.wait_for_room(deadline_s)
        future = self._appender.queue.put_block(
            bytes(block), count, self.writer_epoch, deadline_s, expected(expected_lsn)
        )
        return await self._lsn(future, timeout, deadline_s)

    async def named_session(
        self,
        name: str,
        *,
        epoch: int,
        content: bytes,
        stamp_us: int,
        ttl_s: int = 0,
        timeout: float | None = None,
    ) -> NamedSession:
        """Open the session of that name for an epoch: appends that a later process can go on with
        (`named_session`). It needs cluster version 2.

        content: 32 bytes that stand for all blocks of the epoch; whoever opens it again has to say
        the same. stamp_us: of an epoch that nobody has opened before. ttl_s: see the proto.
        """
        request = message(
            log_pb2.OpenSessionRequest,
            shard_id=self.shard_id,
            name=name,
            epoch=epoch,
            content=content,
            stamp_us=stamp_us,
            ttl_s=ttl_s,
        )
        self._history.check()
        session = NamedSession(self._caller, self._history, request, lambda: self.writer_epoch)
        await session.open(timeout)
        return session

    async def named_sessions(
        self, *, stale: bool = False, timeout: float | None = None
    ) -> list[log_pb2.NamedSession]:
        """The log's named sessions, of all identities, by id. Each page is of another moment."""
        found: list[log_pb2.NamedSession] = []
        more = True
        while more:
            request = message(
                log_pb2.ListSessionsRequest,
                shard_id=self.shard_id,
                after=found[-1].session_id if found else 0,
                stale=stale,
            )
            page = await self._call(LIST_SESSIONS, request, timeout, stale=stale)
            found += page.sessions
            more = page.more and bool(page.sessions) and len(found) < NAMED_SESSIONS_MAX
        return found

    async def forget_session(
        self,
        session_id: int,
        *,
        last_used: int,
        override: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Let the name of a session go, so that there is room for another one. What its epoch has
        appended stays; work of it that is done again later may append it a second time.

        last_used: as `named_sessions` said; VerbRefused when it was used since. `override`: even if
        it belongs to another identity, which needs the role admin over the shard. One that is not
        there is forgotten already.
        """
        request = message(
            log_pb2.ForgetSessionRequest,
            shard_id=self.shard_id,
            session_id=session_id,
            last_used=last_used,
            override=override,
        )
        await self._call(FORGET_SESSION, request, timeout)

    async def _lsn(
        self, future: asyncio.Future[int], timeout: float | None, deadline_s: float
    ) -> int:
        batch = self._appender.queue.last_batch()
        if not batch.traceparent:
            batch.traceparent = self.traceparent()
        self._appender.started()
        if timeout is None or (timeout >= OWN_TIMER_MAX_S and deadline_s >= batch.deadline_s):
            # The appender looks after the batch's deadline: no timer for each caller.
            try:
                return await future
            except asyncio.CancelledError:
                batch.abandoned += 1
                raise
        return await self._lsn_within(future, batch, timeout)

    async def _lsn_within(self, future: asyncio.Future[int], batch: Batch, timeout_s: float) -> int:
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            batch.abandoned += 1
            if batch.sequence == 0:
                # The caller's records are left out when the batch is numbered.
                raise self._appender.unsent(batch) from None
            raise self._appender.unacked(batch) from None
        except asyncio.CancelledError:
            batch.abandoned += 1
            raise

    # --- reading ---------------------------------------------------------------------------------

    async def read(
        self,
        lsn: int,
        *,
        max_bytes: int = 0,
        stale: bool = False,
        timeout: float | None = None,
    ) -> ReadResult:
        """Read from `lsn` on, about `max_bytes` (0: the server's default), at least one block.

        At the tail + 1 the result is empty. Raises Truncated{first_lsn} below the oldest record,
        BeyondTail{next_lsn} further on. `stale`: read what the replica has applied, without
        asking the others. Without it the read misses nothing that was acked before the call.
        """
        request = message(
            log_pb2.ReadRequest, shard_id=self.shard_id, lsn=lsn, max_bytes=max_bytes, stale=stale
        )
        if stale:
            response = await self._call(READ, request, timeout, stale=True)
        else:
            response = await self._question(READ, request, timeout)
        return result_of(response, lsn)

    def follow(
        self,
        lsn: int,
        *,
        until_lsn: int | None = None,
        until_tail: bool = False,
        from_timestamp_us: int = 0,
        until_timestamp_us: int = 0,
        from_append_time_us: int = 0,
        until_append_time_us: int = 0,
        on_tail: Callable[[int], None] | None = None,
        patience: float = TIMEOUT_DEFAULT_S,
    ) -> Follow:
        """Read from `lsn` on and wait for more, for ever or until a condition holds.

        until_lsn: stop after that LSN. until_tail: stop at the tail as it is now. The timestamps
        skip blocks written before the one, and stop at the first block written at or after the
        other. The append times do the same by the times that the log gave to the blocks, and find
        the first one without reading what lies before it. Truncated{first_lsn} is raised when a
        truncated record may have had that time, unless `lsn` excludes it. It stops at the end of a
        closed log in any case. When a replica is lost, reading goes on at another one; it raises
        when none can serve for `patience` seconds.

        `on_tail` is called with the next LSN whenever everything before it was taken and the
        replica had nothing more to give; the first time no earlier than the tail at the beginning.
        What is returned says how far it is behind the tail: `Follow.lag`.
        """
        answers = self.follow_answers(
            lsn,
            until_lsn=until_lsn,
            until_tail=until_tail,
            from_timestamp_us=from_timestamp_us,
            until_timestamp_us=until_timestamp_us,
            from_append_time_us=from_append_time_us,
            until_append_time_us=until_append_time_us,
            tell_tail=on_tail is not None,
            patience=patience,
        )
        standing = Standing(lsn)
        return Follow(standing, _items_of(answers, standing, on_tail))

    async def follow_answers(
        self,
        lsn: int,
        *,
        until_lsn: int | None = None,
        until_tail: bool = False,
        from_timestamp_us: int = 0,
        until_timestamp_us: int = 0,
        from_append_time_us: int = 0,
        until_append_time_us: int = 0,
        tell_tail: bool = False,
        patience: float = TIMEOUT_DEFAULT_S,
    ) -> AsyncGenerator[Answer]:
        """`follow`, answer by answer. `tell_tail`: begin with an empty answer when `lsn` is behind
        the tail already.
        """
        seconds(patience, "patience")
        wanted = message(
            log_pb2.FollowRequest,
            shard_id=self.shard_id,
            lsn=lsn,
            until_lsn=until_lsn or 0,
            from_timestamp_us=from_timestamp_us,
            until_timestamp_us=until_timestamp_us,
            from_append_time_us=from_append_time_us,
            until_append_time_us=until_append_time_us,
        )
        tail_lsn = 0
        if until_tail or tell_tail:
            tail_lsn = (await self.status(timeout=patience)).position.applied_lsn
        if until_tail:
            until_lsn = tail_lsn if until_lsn is None else min(until_lsn, tail_lsn)
        if until_lsn is not None and until_lsn < lsn:
            return
        wanted.until_lsn = until_lsn or 0
        if tell_tail and lsn > tail_lsn:
            yield Answer([], lsn, at_tail=True, tail_lsn=tail_lsn)
        following = Following(self._caller, self._history, wanted, patience)
        async with aclosing(following.answers()) as answers:
            async for answer in answers:
                at_tail = answer.at_tail and answer.next_lsn > tail_lsn
                yield Answer(answer.items, answer.next_lsn, at_tail, answer.tail_lsn)

    async def records(
        self,
        from_lsn: int,
        *,
        until_lsn: int | None = None,
        until_tail: bool = False,
        on_tail: Callable[[int], None] | None = None,
        patience: float = TIMEOUT_DEFAULT_S,
    ) -> AsyncGenerator[tuple[int, bytes]]:
        """`follow`, record by record, each with its LSN; gaps are left out.

        It is a comfort. A program that wants speed takes the blocks of `follow`.
        """
        items = self.follow(
            from_lsn,
            until_lsn=until_lsn,
            until_tail=until_tail,
            on_tail=on_tail,
            patience=patience,
        )
        async with aclosing(items):
            async for item in items:
                if isinstance(item, Records):
                    for pair in enumerate(item.records(), item.first_lsn):
                        yield pair

    async def digest(
        self,
        from_lsn: int,
        to_lsn: int,
        *,
        stale: bool = False,
        address: str = "",
        progress: Progress | None = None,
        patience: float = TIMEOUT_DEFAULT_S,
    ) -> RangeDigest:
        """The digest of the LSNs from `from_lsn` to before `to_lsn`: records and gaps, whatever
        blocks they are in. Two ranges with equal digests are equal, also in two clusters.

        `address`: ask the store there and no other one. `stale`: what the replica has applied,
        without asking the others. `progress` is told how far it is. It raises when no call
        succeeds for `patience` seconds; Truncated{first_lsn} when a part of the range is truncated,
        BeyondTail{next_lsn} when the log does not reach as far.
        """
        self._history.check()
        seconds(patience, "patience")
        request = message(
            log_pb2.DigestRequest,
            shard_id=self.shard_id,
            from_lsn=from_lsn,
            to_lsn=to_lsn,
            stale=stale,
            lineage=self._history.named,
        )
        try:
            return await digest_of(
                self._caller, request, address=address, progress=progress, patience=patience
            )
        except LineageChanged as error:
            self._history.refused(error)
            raise

    async def lsn_at_time(
        self, append_time_us: int, *, stale: bool = False, timeout: float | None = None
    ) -> LsnAtTime:
        """The first LSN appended at `append_time_us` or later, microseconds since 1970; the LSN
        behind the last record when there is none. `stale`: as in `read`.
        """
        request = message(
            log_pb2.LsnAtTimeRequest,
            shard_id=self.shard_id,
            append_time_us=append_time_us,
            stale=stale,
        )
        response = await self._call(LSN_AT_TIME, request, timeout, stale=stale)
        return LsnAtTime(response.lsn, response.truncated)

    # --- the rest --------------------------------------------------------------------------------

    async def connect(self, *, timeout: float | None = None) -> log_pb2.LogPosition:
        """Probe: write and read through the shard's state machine; return the log's position."""
        request = message(log_pb2.ConnectRequest, shard_id=self.shard_id)
        return (await self._call(CONNECT, request, timeout)).position

    async def truncate(self, lsn: int, *, timeout: float | None = None) -> int:
        """Allow every record up to and including `lsn` to go; return the truncation LSN.

        The answer is below `lsn` when a hold asks for more; the log does the rest when it may. To
        repeat the newest call is no error. Raises StaleTruncate{current} for a lower `lsn`.
        """
        request = message(
            log_pb2.TruncateRequest, shard_id=self.shard_id, lsn=lsn, writer_epoch=self.writer_epoch
        )
        try:
            response = await self._call(TRUNCATE, request, timeout)
        except StaleTruncate as error:
            current = error.number("current")
            repeated = lsn in (current, error.number("requested"))
            # Or it was our own attempt whose answer was lost.
            if repeated or (AFTER_UNKNOWN in error.metadata and current >= lsn):
                return current
            raise
        return response.truncated_lsn

    async def status(
        self, *, stale: bool = False, timeout: float | None = None
    ) -> log_pb2.GetShardStatusResponse:
        """Positions, writer, holds, sessions. Do not change the answer: callers who ask at the same
        time share one, and it still has all that was acked before each of them asked.
        """
        request = message(log_pb2.GetShardStatusRequest, shard_id=self.shard_id, stale=stale)
        if stale:
            return await self._call(GET_SHARD_STATUS, request, timeout, stale=True)
        return await self._question(GET_SHARD_STATUS, request, timeout)

    async def acquire_writer(
        self,
        holder: str,
        *,
        expected_epoch: int = 0,
        takeover: bool = False,
        override: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Become the only one whose appends and truncates take effect; return the new epoch.

        Compare-and-swap: `expected_epoch` is the epoch as the caller knows it (0: none granted
        yet). When another one is in force, StaleEpoch{epoch, holder} is raised, unless `takeover`
        is set. While another identity has the epoch, PermissionDenied is raised, unless the caller
        has the role admin over the shard and sets `override`. The epoch belongs to this client's
        identity. This handle's appends carry the epoch from now on. It is never acquired again by
        itself: after Fenced another writer is at work, and whether to take over is the caller's
        decision.
        """
        request = message(
            log_pb2.AcquireWriterRequest,
            shard_id=self.shard_id,
            holder=holder,
            expected_epoch=expected_epoch,
            takeover=takeover,
            override=override,
        )
        response = await self._call(ACQUIRE_WRITER, request, timeout)
        self.writer_epoch = response.epoch
        return self.writer_epoch

    async def release_writer(
        self, *, epoch: int = 0, override: bool = False, timeout: float | None = None
    ) -> None:
        """Give the right up; appends of this handle carry no epoch afterwards.

        `epoch`: give up another epoch than this handle's. `override`: give up another identity's
        epoch, which needs the role admin over the shard.
        """
        request = message(
            log_pb2.ReleaseWriterRequest,
            shard_id=self.shard_id,
            epoch=epoch or self.writer_epoch,
            override=override,
        )
        await self._call(RELEASE_WRITER, request, timeout)
        self.writer_epoch = 0

    async def set_hold(
        self,
        name: str,
        lsn: int,
        *,
        ttl: int = 0,
        override: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Keep records from `lsn` on until the hold is moved or released.

        With `ttl` it expires when it was neither set nor renewed for so many seconds, counted from
        this call; `hold` renews it by itself. Raises HoldRefused when records from `lsn` on are
        truncated already, and PermissionDenied when the hold belongs to another identity, unless
        the caller has the role admin over the shard and sets `override`. A store of before cluster
        version 2 ignores `ttl`, and its hold would stand for ever: it is released again, and
        NotReady raised.
        """
        request = message(
            log_pb2.SetHoldRequest,
            shard_id=self.shard_id,
            name=name,
            lsn=lsn,
            override=override,
            ttl_s=ttl,
        )
        answer = await self._call(SET_HOLD, request, timeout)
        if ttl and not answer.ttl_s:
            with suppress(LogServiceError):
                await self.release_hold(name, override=override, timeout=timeout)
            raise too_early("holds with a time to live")

    async def renew_hold(self, name: str, *, timeout: float | None = None) -> int:
        """Let a hold live for its time again, from this call on; return the LSN where it stands.

        Raises HoldLost{first_lsn} when there is no such hold: it expired, or somebody released it.
        """
        request = message(log_pb2.RenewHoldRequest, shard_id=self.shard_id, name=name)
        return (await self._call(RENEW_HOLD, request, timeout)).lsn

    def hold(self, name: str, lsn: int, *, ttl: int = HOLD_TTL_S) -> HeldLog:
        """Keep records from `lsn` on while a block of code runs; see `HeldLog`.

        async with log.hold("nightly-backup", lsn) as held: ...
        """
        return HeldLog(self, name, lsn, ttl)

    async def release_hold(
        self, name: str, *, override: bool = False, timeout: float | None = None
    ) -> None:
        """Drop a hold; one that does not exist is dropped already. `override`: as in `set_hold`."""
        request = message(
            log_pb2.ReleaseHoldRequest, shard_id=self.shard_id, name=name, override=override
        )
        await self._call(RELEASE_HOLD, request, timeout)

    async def allocate_timestamps(self, count: int = 1, *, timeout: float | None = None) -> range:
        """`count` timestamps that nobody else gets, above all given out before."""
        request = message(log_pb2.AllocateTimestampsRequest, shard_id=self.shard_id, count=count)
        response = await self._call(ALLOCATE_TIMESTAMPS, request, timeout)
        return range(response.first, response.first + count)

    async def close_log(self, *, timeout: float | None = None) -> log_pb2.CloseShardResponse:
        """Close the log: nothing is appended any more, by anybody, ever; return its end.

        Later appends raise ShardClosed{end}. Reading, truncation and holds go on. To close a closed
        log changes nothing and names the same end. Needs the role admin over the shard.
        """
        request = message(log_pb2.CloseShardRequest, shard_id=self.shard_id)
        return await self._call(CLOSE_SHARD, request, timeout)

    async def begin_restore(
        self, request: log_pb2.BeginRestoreRequest, *, timeout: float | None = None
    ) -> log_pb2.BeginRestoreResponse:
        """Make a new log one that is being restored: it serves nothing until it is complete and
        verified. The handle goes on in its new lineage. Needs the role admin over the shard, as the
        next two. `logservice archive restore` is the whole of it.
        """
        request.shard_id = self.shard_id
        response = await self._call(BEGIN_RESTORE, request, timeout)
        self.accept_lineage()
        return response

    async def restore_blocks(
        self, request: log_pb2.RestoreBlocksRequest, *, timeout: float | None = None
    ) -> int:
        """Put the next LSNs into a log that is being restored; returns the LSN behind those that
        it has. Raises WrongExpectedLsn{next} when the log goes on at another one.
        """
        request.shard_id = self.shard_id
        return (await self._call(RESTORE_BLOCKS, request, timeout)).next_lsn

    async def finish_restore(
        self,
        lineage: bytes,
        *,
        base_lsn: int = 0,
        end_lsn: int = 0,
        digest: bytes = b"",
        next_timestamp: int = 0,
        digest_lsn: int = 0,
        timeout: float | None = None,
    ) -> log_pb2.FinishRestoreResponse:
        """Verify and open the log. The answer says whether it is open; else call again. Raises
        CorruptBlock when what is in it is not what was promised.

        A mirror is promoted: `end_lsn` is its next LSN, else ShardRestoring{base, next}. `digest`:
        the source's of [digest_lsn, end_lsn); b"" compares nothing. `digest_lsn`: 0 for `base_lsn`;
        the caller answers for what lies below. `next_timestamp`: 0 for a log that gives out none
        any more.
        """
        request = message(
            log_pb2.FinishRestoreRequest,
            shard_id=self.shard_id,
            lineage=lineage,
            base_lsn=base_lsn,
            end_lsn=end_lsn,
            digest=digest,
            next_timestamp=next_timestamp,
            digest_lsn=digest_lsn,
        )
        return await self._call(FINISH_RESTORE, request, timeout)

    def __repr__(self) -> str:
        return f"<Shard {self.shard_id}, writer epoch {self.writer_epoch}>"

    async def close(self) -> None:
        """Stop appending; see `LogClient.close`."""
        await self._appender.close()


async def _items_of(
    answers: AsyncGenerator[Answer], standing: Standing, on_tail: Callable[[int], None] | None
) -> AsyncGenerator[Records | Gap]:
    async with aclosing(answers):
        async for answer in answers:
            standing.heard(answer.tail_lsn)
            for item in answer.items:
                standing.took(item.next_lsn, item.append_time_us)
                yield item
            standing.took(answer.next_lsn, 0)
            if answer.at_tail and on_tail is not None:
                on_tail(answer.next_lsn)
