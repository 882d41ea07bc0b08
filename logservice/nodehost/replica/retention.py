"""Retention: lets records go that a log's policy does not keep, in the logs that are led here.

Theory of operation. A log's policy may say for how long records are kept, and how many bytes or
records of the newest ones (`hakeeper.commands.policy`). The store of the log's leader judges, at
every visit of the truncation worker, and proposes one entry, RETAIN, with the LSN up to which
records go. So there is one decision, which all replicas apply alike, and from there on it is a
truncation like any other: the same worker frees the space, and readers are told TRUNCATED.

A record goes as soon as *one* of the bounds that are set lets it go. Whatever they say stays: what
a hold keeps, the newest entry, and the record that a bound cuts an entry at. A writer's epoch does
not fence it (the exception in G9): the log's owner asked for it, by a policy.

*Age* is judged by append times in the log. An append time may be too old: an entry is
stamped one microsecond behind the newest one while its leader has not learned the time that a
majority of clocks confirms (`append_time`), however long after it. Such an entry says nothing about
its age, nor does the first one of a log. One that lies further ahead was stamped by a clock: it is
*dated*. A record is old if it lies in or before a dated entry
that is old, because entries are appended in their order. The present is what a majority of clocks
confirms (`ClockWatch.past_us`), and idle logs grow old by it, too. Nobody's age is judged while
this store's clock is far off, or not compared yet.

*Bytes* are those of this replica's log, behind the entry. *Records* are counted by LSNs, those of
gaps, too: what was refused when it was applied is part of the newest records.

INV-RETAIN-AGE: while most clocks are right, and were when entries were stamped, no record goes by
its age before it has it. Both the stamp and the present are within twice CLOCK_SKEW_MAX_S of the
time (INV-TIME-4), and so much is added to the age: a record goes up to forty seconds later, and the
worker's interval. A store that has nobody to compare its clock with believes what it showed when it
was lowest since the store started, carried on by the monotonic clock. So a jump while it runs frees
nothing early there either; a clock that was wrong when the store started may.
INV-RETAIN-KEEPS: the newest `retention_bytes` bytes and `retention_records` records stay, unless
another bound lets them go; so does the newest entry, whatever the bounds are.
INV-RETAIN-POLICY: nothing is proposed by a policy that HAKeeper has not confirmed for
RETENTION_POLICY_S_MAX, nor before cluster version 2. So a policy that is taken back is over by
then, also on a store that HAKeeper does not reach. What was proposed by it and has no outcome may
still take effect, as with any entry: when the others are down meanwhile, once they are back.

What it costs: a log without a policy one look-up. A search by age reads some twenty entries in the
read executor; its result counts until a later one is possible, so an idle log is not read again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Generator
from typing import Final, NamedTuple, Protocol

from logservice_wire.errors import LogServiceError, Reason

from logservice import bounds
from logservice.clock import Clock
from logservice.events import Event, emit
from logservice.hakeeper.commands.replies import ShardLimits
from logservice.ids import Index, Lsn, ShardId
from logservice.logdb.read.entry_read import Fetch
from logservice.nodehost.replica.log_reading import run_steps
from logservice.nodehost.replica.pace import LimitTable
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.time_search import entry_at, searching
from logservice.outcome import Applied
from logservice.rsm import commands
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.state import LogState
from logservice.versions import KnownVersion

logger = logging.getLogger(__name__)

_SINCE: Final = 2
"""The first cluster version whose replicas know the entry."""

_SLACK_US: Final = int(4 * bounds.CLOCK_SKEW_MAX_S * 1_000_000)
_ROUNDS_MAX: Final = 64
"""Looks for a dated entry: each goes twice as far back as the one before."""

_NOTHING: Final = Lsn(0)


class PastTime(Protocol):
    """What an age is judged by (`clocks.clock_watch.ClockWatch`)."""

    def past_us(self) -> int | None:
        """Microseconds since 1970; None while nothing is known that may be judged by."""
        ...


class _Aged(NamedTuple):
    """A search by age: what it was for, and what came out. It counts until the log begins
    elsewhere, the age is another one, or `until_us` is old; 0: until the log has another end.
    """

    first_lsn: Lsn
    age_s: int
    end_lsn: Lsn
    until_us: int
    lsn: Lsn

    def counts(self, first: Lsn, age_s: int, end: Lsn, old_us: int) -> bool:
        """Whether another search would find the same; `old_us`: what is stamped before is old."""
        later = old_us > self.until_us if self.until_us else end != self.end_lsn
        return (self.first_lsn, self.age_s) == (first, age_s) and not later


class Retention:
    """One per NodeHost, on its loop thread."""

    def __init__(
        self, clock: Clock, time: PastTime, limits: LimitTable, version: KnownVersion
    ) -> None:
        """`limits` has the policies; `version`: what this store has learned."""
        self._clock = clock
        self._time = time
        self._limits = limits
        self._version = version
        self._aged: dict[ShardId, _Aged] = {}
        self._proposed: set[ShardId] = set()
        self._untold: dict[ShardId, tuple[float, int]] = {}
        """Since when nothing was told of a log, and how many records have gone since."""
        self.records = 0
        """Records that have gone by this store's word."""

    def ages(self, shard: ShardId) -> bool:
        """Whether anything of the log may go by its policy, for its age or what follows it."""
        return _lets_go(self._limits.of(shard))

    async def visit(self, replica: Replica) -> None:
        """Propose what may go of the replica's log, if anything may."""
        policy = self._limits.of(replica.shard)
        if not _lets_go(policy) or not self._decides(replica):
            self._aged.pop(replica.shard, None)
            return
        try:
            lsn = await run_steps(replica, self._judging(replica, policy))
        except LogServiceError:
            return  # it stopped, or is damaged: others see to that
        if lsn and self._decides(replica) and self._limits.of(replica.shard) == policy:
            self._propose(replica, lsn)

    def _decides(self, replica: Replica) -> bool:
        """Whether the log is led here and open for it, by a policy of now (INV-RETAIN-POLICY)."""
        rsm = replica.log_rsm
        return (
            rsm is not None
            and not replica.stopped
            and replica.ready_to_lead
            and rsm.state.restoring is None
            and replica.shard not in self._proposed
            and self._version.value >= _SINCE
            and self._clock.boottime() - self._limits.heard_s <= bounds.RETENTION_POLICY_S_MAX
        )

    # --- judging ----------------------------------------------------------------------------------

    def _judging(self, replica: Replica, policy: ShardLimits) -> Generator[Fetch, None, Lsn]:
        """The LSN up to which records go now; 0 for none. Yields fetches (`run_steps`)."""
        rsm = replica.log_rsm
        assert rsm is not None
        state = rsm.state
        if state.end_lsn <= replica.first_lsn:
            return _NOTHING
        lsn = _NOTHING
        if policy.retention_age_s:
            lsn = yield from self._old(replica, rsm, policy.retention_age_s)
        newest = yield from newest_entry(replica, rsm)
        if policy.retention_bytes and newest:
            lsn = max(lsn, (yield from beyond_bytes(replica, newest, policy.retention_bytes)))
        if replica.stopped or not newest or newest < replica.log.first_index():
            return _NOTHING
        if policy.retention_records:
            lsn = max(lsn, Lsn(state.end_lsn - 1 - policy.retention_records))
        lsn = min(lsn, Lsn(replica.log.next_lsn(Index(newest - 1)) - 1))
        lsn = _below_holds(state, lsn)
        return lsn if lsn > state.truncated_lsn else _NOTHING

    def _old(self, replica: Replica, rsm: LogRsm, age_s: int) -> Generator[Fetch, None, Lsn]:
        """The last LSN that is so old; 0 for none (INV-RETAIN-AGE)."""
        now_us = self._time.past_us()
        if now_us is None:
            return _NOTHING
        old_us = now_us - age_s * 1_000_000 - _SLACK_US
        if old_us < 1:
            return _NOTHING
        first, end = replica.first_lsn, rsm.state.end_lsn
        known = self._aged.get(replica.shard)
        if known is not None and known.counts(first, age_s, end, old_us):
            return known.lsn
        found = yield from searching(replica, old_us)
        lsn = yield from _dated(replica, rsm, Lsn(found.lsn - 1), first)
        until_us = 0
        if found.lsn < end:
            following = yield from entry_at(replica, found.lsn)
            until_us = following.append_time_us if following is not None else old_us
        self._aged[replica.shard] = _Aged(first, age_s, end, until_us, lsn)
        return lsn

    # --- proposing --------------------------------------------------------------------------------

    def _propose(self, replica: Replica, lsn: Lsn) -> None:
        command = commands.encode(commands.Retain(self._limits.version, lsn))
        deadline_s = self._clock.monotonic() + bounds.STORE_COMMAND_TIMEOUT_S
        try:
            outcome = replica.propose(command, deadline_s)
        except LogServiceError:
            return  # it is busy; the next visit comes
        self._proposed.add(replica.shard)
        outcome.add_done_callback(functools.partial(self._done, replica.shard))

    def _done(self, shard: ShardId, outcome: asyncio.Future[Applied]) -> None:
        self._proposed.discard(shard)
        if outcome.cancelled() or outcome.exception() is not None or outcome.result().duplicate:
            return
        self.records += outcome.result().count
        now_s = self._clock.monotonic()
        told_s, records = self._untold.get(shard, (float("-inf"), 0))
        records += outcome.result().count
        if now_s - told_s >= bounds.RETENTION_TOLD_S:
            told_s = now_s
            through = outcome.result().value
            emit(logger, Event.RECORDS_RETIRED, shard=shard, records=records, lsn=through)
            records = 0
        self._untold[shard] = (told_s, records)


def _below_holds(state: LogState, lsn: Lsn) -> Lsn:
    """`lsn`, or below the lowest hold: an entry that frees nothing is not worth proposing."""
    return min([lsn, *(Lsn(hold.lsn - 1) for hold in state.holds.values())])


def _lets_go(policy: ShardLimits) -> bool:
    return bool(policy.retention_age_s or policy.retention_bytes or policy.retention_records)


def newest_entry(replica: Replica, rsm: LogRsm) -> Generator[Fetch, None, Index]:
    """The newest entry that readers see; 0 when it went meanwhile."""
    log, last = replica.log, Lsn(rsm.state.end_lsn - 1)
    if replica.stopped or last < replica.first_lsn:
        return Index(0)
    needed = log.fetch_index_of_lsn(last, 0)
    if needed is not None:
        yield needed
        if replica.stopped or last < replica.first_lsn:
            return Index(0)
        log.fetched(needed)
    return log.index_of_lsn(last)


def beyond_bytes(replica: Replica, newest: Index, size: int) -> Generator[Fetch, None, Lsn]:
    """The last LSN behind whose entry so many bytes lie; 0 for none."""
    log = replica.log
    index, below = log.before_newest(size, newest), Index(log.first_index() - 1)
    if index <= below and log.bytes_between(below, newest) < size:
        return _NOTHING
    needed = log.fetch_index(Index(index + 1), 0)
    if needed is not None:
        # A part of the index that is not in memory counts as a whole, the lowest one for nothing:
        # now it is, ask again.
        yield needed
        if replica.stopped or newest < log.first_index():
            return _NOTHING
        log.fetched(needed)
        index = log.before_newest(size, newest)
    if index < log.first_index():
        return _NOTHING
    return Lsn(log.next_lsn(index) - 1)


def _dated(replica: Replica, rsm: LogRsm, lsn: Lsn, first: Lsn) -> Generator[Fetch, None, Lsn]:
    """The last LSN of a dated entry at or before `lsn`, of the newest one or one that is twice as
    far back; 0 when none is found above `first`.
    """
    step = 1
    for _ in range(_ROUNDS_MAX):
        lsn = _below_refused(rsm, lsn)
        entry = (yield from entry_at(replica, lsn)) if lsn >= first else None
        if entry is None:
            return _NOTHING
        earlier = _below_refused(rsm, Lsn(entry.first_lsn - 1))
        before = (yield from entry_at(replica, earlier)) if earlier >= first else None
        if before is None:
            return _NOTHING
        if entry.append_time_us > before.append_time_us + 1 > 1:
            return Lsn(entry.next_lsn - 1)
        lsn = Lsn(entry.first_lsn - step)
        step *= 2
    return _NOTHING


def _below_refused(rsm: LogRsm, lsn: Lsn) -> Lsn:
    """`lsn`, or the one before the entries there that were refused as a whole: their times are not
    believed.
    """
    while gaps := rsm.state.rejected_between(lsn, Lsn(lsn + 1)):
        if gaps[0].reason is not Reason.CORRUPT_BLOCK:
            break
        lsn = Lsn(gaps[0].first_lsn - 1)
    return lsn
