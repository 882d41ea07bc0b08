"""Ends: what is closed never grows, and what is deleted never comes back.

The two checkers remember what any replica has applied first, and hold every replica that applies
the same place later against it, whether it got there by the log or by a snapshot. Reference:
docs/guarantees.md, the table of what the end of a log promises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from logservice_wire.errors import LogServiceError, ShardDeleted

from logservice.entry import Entry
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import State
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.rsm.log_rsm import LogRsm
from logservice.sim.checkers.checker import Checker, Violate
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine


class Closed(Checker):
    """INV-RSM-CLOSED, seen from outside: behind a Close all replicas agree where the log ends, for
    ever, and none of them serves a record from there on.
    """

    name = "closed"

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        super().__init__(oracle, violate)
        self._ends: dict[ShardId, tuple[int, int]] = {}
        """shard -> (index of the Close, LSN behind the last record)."""

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        if isinstance(machine, LogRsm):
            state = machine.state
            if state.closed_index:
                self._ends.setdefault(shard, (int(state.closed_index), int(state.closed_lsn)))
            known = self._ends.get(shard)
            if known is not None and entry.index >= known[0]:
                self._compare(f"{store.store_id}/{shard} at index {entry.index}", machine, known)

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        for store in stores if self._ends else ():
            for replica in store.replicas():
                known, machine = self._ends.get(replica.shard), replica.state_machine
                if known is None or not isinstance(machine, LogRsm) or replica.applied < known[0]:
                    continue
                self._compare(f"{store.store_id}/{replica.shard}", machine, known)
                last = replica.log_bounds[1]
                if last >= known[1]:
                    self.wrong(f"{store.store_id}/{replica.shard} serves LSN {last}, {known}")

    def _compare(self, where: str, machine: LogRsm, known: tuple[int, int]) -> None:
        found = (int(machine.state.closed_index), int(machine.state.closed_lsn))
        if found != known:
            self.wrong(f"{where}: closed at {found}, and it was {known}")


class Deleted(Checker):
    """INV-HK-TOMBSTONE and INV-HK-UNDEAD, seen from outside.

    - A tombstone that any replica of shard 0 has applied is there in every one from that index on.
    - Such an id is that of no log, but for the one that is on its way out; nobody works on it.
    - Living logs have names of their own.
    - A store that has heard of the deletion, and runs no replica of the log, never runs one again
      in that life (INV-HOST-4).
    """

    name = "deleted"

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        super().__init__(oracle, violate)
        self._since: dict[ShardId, int] = {}
        """Deleted log -> the first index of shard 0 with its tombstone."""
        self._rid: set[tuple[str, ShardId]] = set()
        """Lives of stores that have heard of the deletion, and run nothing of the log."""

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        if not isinstance(machine, HAKeeperRsm):
            return
        state = machine.state
        for first, last in state.deleted:
            for number in range(first, last + 1):
                self._since.setdefault(ShardId(number), int(entry.index))
        if self._since:
            self._look(f"HAKeeper of {store.store_id} at index {entry.index}", entry.index, state)

    def _look(self, where: str, index: int, state: State) -> None:
        buried = {one for first, last in state.deleted for one in range(first, last + 1)}
        for shard, since in self._since.items():
            if index < since:
                continue
            if shard not in buried:
                self.wrong(f"{where} has forgotten that shard {shard} was deleted")
            known = state.shards.get(shard)
            if known is not None and not known.deleting_tick:
                self.wrong(f"{where}: deleted shard {shard} lives")
        for operator in state.operators.values():
            if operator.shard in buried:
                self.wrong(f"{where}: {operator.kind} for deleted shard {operator.shard}")
        names = Counter(
            one.name
            for one in state.shards.values()
            if one.shard != HAKEEPER_SHARD and not one.deleting_tick and one.name
        )
        for name, count in names.items():
            if count > 1:
                self.wrong(f"{where}: {count} logs have the name {name}")

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        for store in stores if self._since else ():
            parts, process = store.parts, store.process
            if parts is None or process is None or not store.up:
                continue
            for shard in self._since:
                life = (process.name, shard)
                if store.running(shard) is not None:
                    if life in self._rid:
                        self.wrong(f"{process.name} runs a replica of deleted shard {shard} again")
                elif _has_heard(parts, shard):
                    self._rid.add(life)


def _has_heard(parts: StoreParts, shard: ShardId) -> bool:
    """Whether the store tells callers that the log, of which it runs nothing, is deleted."""
    try:
        parts.host.replicas.running[shard]
    except ShardDeleted:
        return True
    except LogServiceError:
        return False
    return False
