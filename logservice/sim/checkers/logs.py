"""Logs: equal places hold equal entries, and what is applied anywhere is committed everywhere.

The checkers look at every entry that becomes durable and at every entry that is applied. They fill
the oracle on the way: which entries there are, who holds them, which of them are committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from logservice_wire.errors import Halted

from logservice.entry import Entry
from logservice.ids import Index, ReplicaId, ShardId
from logservice.logdb.format.update import Update
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.logdb.segment_writer import CommitGroup
from logservice.membership import Membership
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.sim.checkers.checker import Checker
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import UNKNOWN, ShardOracle, facts_of
from logservice.state_machine import StateMachine


class LogMatching(Checker):
    """Log matching: two logs that hold an entry of the same index and term agree up to it.

    By induction it suffices that such entries are equal and that the entries before them have the
    same term. Every entry is checked when it becomes durable anywhere (Raft paper, section 5.3).
    This checker tells the oracle which entries there are and who holds them.
    """

    name = "log-matching"

    def started(self, store: ObservedStore, parts: StoreParts) -> None:
        """What a crash left may never have been called finished."""
        for shard, replica in parts.host.directories.replicas():
            log = parts.log(shard, replica)
            oracle = self.oracle.shard(shard)
            witness = is_witness(log)
            for index in range(log.first_index(), log.last_index() + 1):
                place = (index, int(log.term(Index(index))))
                oracle.holders.setdefault(place, set()).add(replica)
                if place not in oracle.entries:
                    # Written everywhere and killed before anybody's fsync returned (seed 60172).
                    with contextlib.suppress(Halted):  # its damage is another checker's business
                        (entry,) = log.entries(Index(index), Index(index + 1), 1)
                        oracle.entries[place] = facts_of(entry, witness=witness)

    def finished(
        self, store: ObservedStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        for update in updates:
            if not update.entries:
                continue
            oracle = self.oracle.shard(update.shard)
            log = parts.log(update.shard, update.replica)
            first, witness = update.entries[0], is_witness(log)
            try:
                before = int(log.term(Index(first.index - 1)))
            except KeyError:
                before = -1
            for entry in update.entries:
                place = (int(entry.index), int(entry.term))
                facts = facts_of(entry, witness=witness)
                known = oracle.entries.setdefault(place, facts)
                if known.digest == UNKNOWN:
                    oracle.entries[place] = facts
                if not known.agrees(facts):
                    self.wrong(
                        f"shard {update.shard} (index, term) {place}: {known} and, "
                        f"on {store.store_id}, {facts}"
                    )
                if before >= 0:
                    known_before = oracle.before.setdefault(place, before)
                    if known_before != before:
                        self.wrong(
                            f"shard {update.shard} {place} on {store.store_id}: the entry before "
                            f"has term {before}, elsewhere {known_before}"
                        )
                oracle.holders.setdefault(place, set()).add(update.replica)
                before = int(entry.term)


class LogLsn(Checker):
    """LOG-LSN: the LSNs of consecutive entries are consecutive, in every log, committed or not."""

    name = "log-lsn"

    def finished(
        self, store: ObservedStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        for update in updates:
            if not update.entries:
                continue
            first = update.entries[0]
            log = parts.log(update.shard, update.replica)
            try:
                expected = int(log.next_lsn(Index(first.index - 1)))
            except KeyError:
                expected = int(first.lsn)
            for entry in update.entries:
                if entry.lsn != expected:
                    self.wrong(
                        f"shard {update.shard} on {store.store_id}: index {entry.index} has LSN "
                        f"{entry.lsn}, not {expected}"
                    )
                expected = int(entry.next_lsn)


class StateMachineSafety(Checker):
    """State machine safety: no two replicas ever apply different entries at the same index.

    This holds over all replicas and all their lives, and what is applied is durable somewhere (Raft
    paper, section 5.4.3). This checker tells the oracle what is committed.
    """

    name = "state-machine-safety"

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        oracle = self.oracle.shard(shard)
        index, term = int(entry.index), int(entry.term)
        known = oracle.committed.setdefault(index, term)
        oracle.committed_through = max(oracle.committed_through, index)
        if known != term:
            self.wrong(
                f"shard {shard} index {index}: {store.store_id} applied the entry of term {term}, "
                f"another replica that of term {known}"
            )
        facts = oracle.entries.get((index, term))
        if facts is None:
            self.wrong(f"shard {shard} ({index}, {term}) was applied and is durable nowhere")
        elif not facts.agrees(facts_of(entry)):
            self.wrong(f"shard {shard} ({index}, {term}) on {store.store_id}: not what is durable")


_NEWEST = 4


class CommitQuorum(Checker):
    """What is applied anywhere is durable on a majority (G1), whatever its leader believed, and on
    at least one voter that is no witness.

    This is looked at when an entry is applied for the first time. Under a joint membership both
    majorities must have it. The membership that counted is the one that its leader had applied;
    others may be further by now, so any of the newest few will do.
    """

    name = "commit-quorum"

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        oracle = self.oracle.shard(shard)
        _learn(oracle, store, shard)
        place = (int(entry.index), int(entry.term))
        holders = oracle.holders.get(place, set())
        if place in oracle.counted or not oracle.memberships:
            return
        oracle.counted.add(place)
        if not any(_quorum(one, holders) for one in oracle.memberships[-_NEWEST:]):
            self.wrong(
                f"shard {shard} {place} was applied on {store.store_id}; durable only on "
                f"{sorted(holders)} of {oracle.memberships[-1].voters}"
            )

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        for store in stores:
            for replica in store.replicas():
                _learn(self.oracle.shard(replica.shard), store, replica.shard)


def is_witness(log: ReplicaLog) -> bool:
    """Whether the log is that of a witness."""
    return log.bootstrap is not None and log.bootstrap.of_witness(log.replica)


def _learn(oracle: ShardOracle, store: ObservedStore, shard: ShardId) -> None:
    replica = store.running(shard)
    if replica is None:
        return
    membership = replica.raft.membership
    if not oracle.memberships or (
        membership is not oracle.memberships[-1]
        and membership.change_epoch > oracle.memberships[-1].change_epoch
    ):
        oracle.memberships.append(membership)


def _quorum(membership: Membership, holders: Iterable[ReplicaId]) -> bool:
    have = set(holders)

    def half(voters: tuple[ReplicaId, ...]) -> bool:
        return not voters or len(have.intersection(voters)) > len(voters) // 2

    full = not membership.voters or not have.isdisjoint(membership.full_voters)
    return half(membership.voters) and half(membership.outgoing) and full
