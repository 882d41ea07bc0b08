"""Repairer: restores a damaged replica in place, from the committed entries of its peers.

Theory of operation. A faulty replica does not run: it neither votes, nor acknowledges, nor leads.
If only entries were lost (`logdb.format.fault`), its hard state still says what it promised. What
is missing is what it *acknowledged*: the leader may have counted that. So its log is filled, from
the first damaged entry on, with entries that a peer has applied, which are therefore committed,
until nothing that it may have acknowledged can be missing. In the same commit group as the last of
them the fault goes, and then the replica runs again. Entries that the peers have compacted come as
their installed snapshot.

What the replica fetches is right whatever it had there: a committed entry is *the* entry at its
index, and an entry that it acknowledged and that is no longer in the committed log was lawfully
replaced.

- INV-REPAIR-1: until the repair is complete, durably, nothing of the replica runs.
- INV-REPAIR-2: a peer gives entries only to a replica that its own membership lists, on that store,
  with that data directory; and only entries it has applied.
- INV-REPAIR-3: a repair without progress for REPAIR_STALLED_S_MAX is reported as halted, so that
  HAKeeper replaces the replica under a new id; trying goes on until it does.

References: "Protocol-Aware Recovery for Consensus-Based Storage" (FAST 2018).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from logservice_wire.errors import InvalidArgument, LogServiceError, ShardNotFound
from msgspec import Struct

from logservice import bounds
from logservice.clock import Clock
from logservice.entry import Entry, EntryKind, counts_error
from logservice.events import Event, emit
from logservice.hard_state import HardState
from logservice.ids import NO_REPLICA, NUMBER_MAX, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.logdb.format.fault import Fault
from logservice.logdb.format.update import InstalledSnapshot, Update
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.nodehost.hearing.contents import state_problem
from logservice.nodehost.peers.question import Asker, packed, question
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.replica.log_reading import read_entries
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.replica_table import ReplicaTable
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.snapshot import Snapshot
from logservice.state_machine import StateMachine

logger = logging.getLogger(__name__)

_Key = tuple[ShardId, ReplicaId]


class Fetch(Struct, array_like=True, forbid_unknown_fields=True):
    """Entries from `low` on, for `replica`, which is damaged."""

    shard: int
    replica: int
    low: int


class Fetched(Struct, array_like=True, forbid_unknown_fields=True):
    """What a peer has: (term, index, LSN, records, kind, payload) of committed entries.

    snapshot: its installed one instead, when `low` is compacted there. before: term and next LSN of
    the entry before `low`.
    """

    snapshot: bytes
    before: tuple[int, int]
    entries: list[tuple[int, int, int, int, int, bytes]]


_FETCH: Final = packed(Fetch, field="fetch")

FETCH: Final = question(
    "repair.fetch",
    Asker.MEMBER,
    _FETCH,
    packed(Fetched),
    lambda body: ShardId(_FETCH.decode(body).shard),
)


class Repairer:
    """One per store. `run` until cancelled, or `run_once` by whoever keeps the time."""

    def __init__(
        self,
        replicas: ReplicaTable,
        requests: PeerRequests,
        identity: PeerIdentity,
        clock: Clock,
        known_stores: Callable[[], Iterable[StoreId]],
        state_machines: Callable[[ShardId], StateMachine],
    ) -> None:
        """`known_stores`: who may have a replica of the shard, its members aside."""
        self._replicas = replicas
        self._requests = requests
        self._own_store = identity.store_id
        self._clock = clock
        self._known_stores = known_stores
        self._state_machines = state_machines
        self._positions: dict[_Key, tuple[Fault, Index]] = {}
        self._progress_s: dict[_Key, float] = {}
        self._totals: Counter[str] = Counter()
        requests.register(FETCH, self._serve)

    @property
    def counts(self) -> Mapping[str, int]:
        """Repairs complete, entries and snapshots fetched, attempts without a peer that helped."""
        return dict(self._totals)

    async def run(self) -> None:
        """Repair for ever."""
        while True:
            await self.run_once()
            await asyncio.sleep(bounds.REPAIR_INTERVAL_S)

    async def run_once(self) -> None:
        """Bring every repair as far as it goes now. Operating errors are counted, not raised."""
        logs = self._replicas.halts.repairable()
        keys = {(log.shard, log.replica) for log in logs}
        for key in [key for key in self._progress_s if key not in keys]:
            self._forget(key)
        for log in logs:
            key = (log.shard, log.replica)
            self._progress_s.setdefault(key, self._clock.monotonic())
            try:
                await self._repair(key, log)
            except (LogServiceError, OSError) as error:
                logger.info("shard %d: the repair did not get on: %s", log.shard, error)
            self._watch(key)

    # --- the damaged side -------------------------------------------------------------------------

    async def _repair(self, key: _Key, log: ReplicaLog) -> None:
        """Fetch until it is whole; returns early when no peer can help now."""
        # What it had under way when it halted is written first: it may name a later term, or vote.
        await self._replicas.commit_repair(Update(*key))
        while (fault := log.fault) is not None and fault.repairable:
            start = max(fault.damaged_from, log.first_index())
            known, reached = self._positions.get(key, (fault, start))
            position = max(reached, start) if known == fault else start
            if log.first_index() > max(fault.acked_through, log.hard_state.commit):
                # A snapshot that was on its way covers all of it; nobody has to help.
                update: Update | None = Update(*key, repair=fault)
            else:
                update = await self._next(log, fault, position)
            if update is None:
                self._totals["waited"] += 1
                return
            await self._replicas.commit_repair(update)
            end = update.entries[-1].index if update.entries else log.last_index()
            self._positions[key] = (fault, Index(end + 1))
            self._progress_s[key] = self._clock.monotonic()
            self._replicas.halts.stands_still(*key, still=False)
        if log.fault is None:
            self._totals["repaired"] += 1
            emit(logger, Event.REPLICA_REPAIRED, shard=log.shard, replica=log.replica)
            self._forget(key)
            self._replicas.start_repaired(*key)

    async def _next(self, log: ReplicaLog, fault: Fault, position: Index) -> Update | None:
        """What to write next; None when no peer has it."""
        before = Index(position - 1)
        ours = (log.term(before), log.next_lsn(before))
        wanted = Fetch(log.shard, log.replica, position)
        for store in self._peers(log):
            try:
                fetched = await self._requests.ask(
                    store, FETCH, wanted, bounds.REPAIR_REQUEST_TIMEOUT_S
                )
                update = self._update(log, fault, position, ours, fetched)
            except (LogServiceError, ValueError) as error:
                logger.debug("shard %d: store %s does not help: %s", log.shard, store, error)
                continue
            if update is not None:
                return update
        return None

    def _update(
        self,
        log: ReplicaLog,
        fault: Fault,
        position: Index,
        ours: tuple[int, int],
        fetched: Fetched,
    ) -> Update | None:
        """Checked, because what is wrong would be a broken invariant of log storage later."""
        if fetched.snapshot:
            snapshot = Snapshot.decode(fetched.snapshot)
            _check_numbers(snapshot.term, snapshot.index, snapshot.next_lsn)
            problem = state_problem(snapshot, self._state_machines(log.shard))
            if problem:
                raise InvalidArgument(problem, field="snapshot")
            if snapshot.index < position:
                return None
            self._totals["snapshots"] += 1
            installed = InstalledSnapshot(snapshot, Lsn(snapshot.next_lsn - 1))
            return Update(
                log.shard,
                log.replica,
                _hard_state(log, snapshot.index, snapshot.term),
                snapshot=installed,
                reset_log=True,
                repair=fault,
            )
        if fetched.before != ours:
            raise InvalidArgument(
                f"the peer has {fetched.before} before {position}, here it is {ours}", field="log"
            )
        entries: list[Entry] = []
        term, lsn = ours
        for row in fetched.entries:
            entry = Entry(
                Term(row[0]), Index(row[1]), Lsn(row[2]), row[3], EntryKind(row[4]), row[5]
            )
            if entry.index != position + len(entries) or entry.lsn != lsn or entry.term < term:
                raise InvalidArgument("the peer's entries do not follow each other", field="log")
            _check_numbers(entry.term, entry.index, entry.lsn)
            if wrong := counts_error(entry):
                raise InvalidArgument(f"broken_entries: {wrong}", field="log")
            term, lsn = entry.term, entry.next_lsn
            entries.append(entry)
        if not entries:
            return None
        self._totals["entries"] += len(entries)
        hard_state = _hard_state(log, entries[-1].index, entries[-1].term)
        return Update(log.shard, log.replica, hard_state, tuple(entries), repair=fault)

    def _peers(self, log: ReplicaLog) -> list[StoreId]:
        """Members as far as this log knows, then everybody else: the membership may have moved."""
        known = log.installed.snapshot.membership if log.installed is not None else None
        if known is None and log.bootstrap is not None:
            known = log.bootstrap.membership
        stores = [member.store_id for member in known.members] if known is not None else []
        stores += sorted(store for store in self._known_stores() if store not in stores)
        return [store for store in stores if store != self._own_store]

    def _watch(self, key: _Key) -> None:
        begun_s = self._progress_s.get(key)
        if begun_s is None:
            return
        still = self._clock.monotonic() - begun_s > bounds.REPAIR_STALLED_S_MAX
        self._replicas.halts.stands_still(*key, still=still)

    def _forget(self, key: _Key) -> None:
        self._positions.pop(key, None)
        self._progress_s.pop(key, None)

    # --- the peer's side --------------------------------------------------------------------------

    async def _serve(self, peer: PeerIdentity, wanted: Fetch) -> Fetched:
        replica = self._replicas.running[ShardId(wanted.shard)]
        if replica.witness:
            raise ShardNotFound("no records are here", shard=replica.shard)
        membership = replica.raft.membership
        member = membership.member(ReplicaId(wanted.replica))
        if (
            member is None
            or not membership.contains(member.replica_id)
            or not peer.may_speak_for(member)
        ):
            raise InvalidArgument("it is no member, or of another data directory", field="replica")
        return await _committed(replica, Index(wanted.low))


async def _committed(replica: Replica, low: Index) -> Fetched:
    reader = replica.reader
    if low < reader.first_index():
        return Fetched(reader.snapshot().encode(), (0, 0), [])
    if low > replica.applied + 1:
        raise InvalidArgument(f"applied through {replica.applied} here", field="low")
    before = reader.term(Index(low - 1)), reader.next_lsn(Index(low - 1))
    entries: tuple[Entry, ...] = ()
    if low <= replica.applied:
        high = Index(min(low + bounds.REPAIR_ENTRIES_AT_ONCE, replica.applied + 1))
        entries = await read_entries(replica, low, high, bounds.REPAIR_BYTES_AT_ONCE)
    return Fetched(
        b"",
        before,
        [(e.term, e.index, e.lsn, e.record_count, int(e.kind), bytes(e.payload)) for e in entries],
    )


def _check_numbers(*numbers: int) -> None:
    """What is beyond would not fit into a record when it grows, and end the store."""
    if max(numbers) >= NUMBER_MAX:
        raise InvalidArgument(f"{max(numbers)} is no term, index or LSN", field="log")


def _hard_state(log: ReplicaLog, index: Index, term: Term) -> HardState:
    """What goes with committed entries up to `index`: they raise the commit index, and a term
    beyond its own is one in which it has voted for nobody.
    """
    hard = log.hard_state
    commit = Index(max(hard.commit, index))
    if term > hard.term:
        return HardState(term, NO_REPLICA, commit)
    return HardState(hard.term, hard.vote, commit)
