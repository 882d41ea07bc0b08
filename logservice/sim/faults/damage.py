"""Damage: under a running store a bit of an entry flips, or its sector dies, at a chosen moment.

All other damage happens between two lives, or once in a read. This damage comes while the store
works, at a moment at which its log storage is busy: entries, votes and membership changes are on
their way to the disk, a snapshot is installed, a replica is repaired, garbage is collected, the
disk is full, a group was begun ahead. Mostly the damaged place is read at once, so that it is found
at that moment. Otherwise whoever reads it first finds it. In the newest segment that could be
nobody, because the scrub reads sealed segments only (short seed 2500949, denser); there the place
is always read.

The damaged entry lies before the newest group that is durable. Behind it, only a durable mark tells
damage from a torn write (G6).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence

from logservice_wire.errors import Halted

from logservice import versions
from logservice.entry import EntryKind
from logservice.ids import Index, ShardId
from logservice.logdb.format.record import RECORD_HEADER_BYTES
from logservice.logdb.format.segment import segment_name
from logservice.logdb.format.update import Update
from logservice.logdb.index.replica_state import Key
from logservice.logdb.log_db import LogDb
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.sim.disk import SECTOR_BYTES
from logservice.sim.interfaces import Store

MOMENTS = (
    "append",
    "vote",
    "membership change",
    "truncation",
    "leader's snapshot",
    "repair",
    "removal of a replica",
    "copies",
    "removal of a segment",
    "cut of a segment",
    "group ahead",
    "no room",
)
"""What log storage may be doing; see `moment_of` and `observed`."""


def moment_of(update: Update) -> str:
    """What an update is about."""
    if update.remove:
        return "removal of a replica"
    if update.repair is not None:
        return "repair"
    if update.snapshot is not None:
        return "leader's snapshot" if update.reset_log else "truncation"
    if any(entry.kind is EntryKind.CONFIG for entry in update.entries):
        return "membership change"
    return "append" if update.entries else "vote"


class Damage:
    """One per store. It is armed by `Faults` and told of moments by `observed`."""

    def __init__(self, store: Store) -> None:
        """Nothing is wrong until it is armed."""
        self.armed: frozenset[str] = frozenset()
        self._store = store
        self._chance = random.Random(f"damage/{store.number}/{store.world.config.seed}")
        self._newest: dict[str, tuple[int, int]] = {}
        self._sectors: Callable[[], bool] = lambda: False

    def arm(self, *, sectors: Callable[[], bool]) -> None:
        """Strike at the next moment of a kind that chance chooses. `sectors`: may a sector die?"""
        self.armed = frozenset(self._chance.sample(MOMENTS, self._chance.choice((1, 3))))
        self._sectors = sectors

    def begun(self, logdb: LogDb, updates: Sequence[Update]) -> None:
        """A group with these updates is on its way."""
        for update in updates if self.armed else ():
            self.comes(logdb, moment_of(update), (update.shard, update.replica))

    def comes(self, logdb: LogDb, moment: str, key: Key | None = None) -> None:
        """A moment of this kind has come, to the replica `key` if it is one's own."""
        store = self._store
        if moment not in self.armed or store.process is None or store.world.healing:
            return
        self.armed = frozenset()
        delay_s = self._chance.choice((0.0, 0.0, store.world.config.disk_delay_s))
        store.world.loop.call_in(store.process, delay_s, self._strike, logdb, moment, key)

    def durable(self, logdb: LogDb, place: tuple[int, int]) -> None:
        """The newest durable group of a data directory begins there: (segment, offset)."""
        self._newest[logdb.directory] = place

    def began(self) -> None:
        """A new life: nothing that it finds is known to be durable before its first group is."""
        self.armed = frozenset()
        self._newest = {}

    def strike_anyhow(self) -> None:
        """The moment did not come in time."""
        if self.armed and self._store.parts is not None and self._store.up:
            self.armed = frozenset()
            directory = self._chance.choice(self._store.parts.directories)
            self._strike(directory.logdb, "none in particular", None)

    def _strike(self, logdb: LogDb, moment: str, key: Key | None) -> None:
        store, chance = self._store, self._chance
        if store.world.healing or not store.up or store.parts is None:
            return
        keys = logdb.replicas()
        if not keys:
            return
        own = key is not None and key in keys and chance.random() < 0.7
        shard, replica = next(one for one in keys if one == key) if own else chance.choice(keys)
        log = logdb.log(shard, replica)
        found = self._place(logdb, log)
        if found is None or self._another_is_given_up(shard):
            return
        index, path, offset, size, sealed = found
        if not sealed and log.faulty:
            return
        if sealed and chance.random() < 0.3 and self._sectors():
            store.disk.kill_sector(path, chance.randrange(offset, offset + size) // SECTOR_BYTES)
        else:
            store.disk.flip(path, chance.randrange(offset, offset + size), 1 << chance.randrange(8))
        store.world.counts[f"fault damage at a moment: {moment}"] += 1
        store.world.note("damage", store.store_id, moment, shard, replica, index, path, offset)
        if not sealed or chance.random() < 0.7:
            # A faulty replica reads nothing: that is left to the scrub.
            with contextlib.suppress(Halted):
                self._read(log, index)

    def _another_is_given_up(self, shard: ShardId) -> bool:
        """Another voter, in a failed directory, may just be replaced on its own store.

        While that change is joint, the old voter and its successor never run at once, so one of the
        two majorities lacks a vote. One more damaged voter then stops the shard for good (short
        seed 2300261). From cluster version 2 on such a voter is waited for, so only a change that
        is joint counts.
        """
        others = [one for one in self._store.world.stores if one is not self._store]
        running = [one.running(shard) for one in self._store.world.stores]
        waited_for = self._store.world.cluster_version > versions.FIRST
        given_up = not waited_for and any(one.gave_up_a_directory for one in others)
        return given_up or any(one.raft.membership.joint for one in running if one is not None)

    def _place(self, logdb: LogDb, log: ReplicaLog) -> tuple[Index, str, int, int, bool] | None:
        """An entry before the newest durable group: index, file, offset and size of its record, and
        whether that is in another segment.
        """
        first, last = log.first_index(), log.last_index()
        newest = self._newest.get(logdb.directory)
        if newest is None or first > last:
            return None
        for low in (max(first, last - 3), first, first):
            index = Index(self._chance.randint(low, last))
            try:
                place = log.place(index)
            except Halted:
                return None
            if (place.segment, place.offset) < newest:
                path = f"{logdb.directory}/segments/{segment_name(place.segment)}"
                size, sealed = RECORD_HEADER_BYTES + place.length, place.segment < newest[0]
                return index, path, place.offset, size, sealed
        return None

    def _read(self, log: ReplicaLog, index: Index) -> None:
        fetch = log.fetch(index, Index(index + 1), 1, ahead=False)
        try:
            fetch.run()
        finally:
            log.end_fetch(fetch)
        log.fetched(fetch)
