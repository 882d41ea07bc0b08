"""Watch: what a rogue must not bring about, beside what every checker looks for anyway.

- Everywhere: no honest replica halts for anything but its disk;
  what HAKeeper keeps of access, phase, shards and honest stores is what it was.
- In gentle worlds: shards that the rogue has no replica of keep their leaders, terms, members and
  replicas; its own have a bounded number of elections. Every shard takes appends all the time
  (`Pulse`), because every stall is the rogue's doing there. HAKeeper balances leaders there, too:
  a leader may change when HAKeeper's own state says that it began to hand the leadership over, and
  only to the replica that it names (seed 3 of the rogues).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from logservice_wire.errors import LogServiceError

from logservice.hakeeper.commands.cluster_events import EventKind
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import Repair, State
from logservice.ids import HAKEEPER_SHARD, ReplicaId, ShardId, StoreId
from logservice.raft.ready import Role
from logservice.rsm import commands
from logservice.sim.clients.client import Client, ShardHistory
from logservice.sim.interfaces import Store
from logservice.sim.rogue.adversary import Adversary
from logservice.sim.rogue.ages import TERMS

ELECTIONS_MAX = 12
"""In one of the rogue's own shards, in a whole gentle world: what its budget lets it cost."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What of HAKeeper's state a rogue does not move."""

    phase: str
    cluster_id: str
    replicas: int
    access: tuple[str, ...]
    shards: tuple[tuple[ShardId, str, int], ...]


def _kept(state: State) -> _Kept:
    return _Kept(
        state.phase,
        state.cluster_id,
        state.default_replicas,
        (*sorted(state.access), *sorted(state.denied)),
        tuple((one.shard, one.name, one.wanted) for one in state.sorted_shards()),
    )


class Watch:
    """One per world with a rogue; `begin`, then `sample` now and then."""

    def __init__(self, rogue: Adversary) -> None:
        """Nothing is known yet."""
        self._rogue = rogue
        self._world = rogue.world
        self._kept: _Kept | None = None
        self._applied = 0
        """What shard 0 had applied when it began. A restarted store goes through older states."""
        self._stored: dict[StoreId, frozenset[tuple[ShardId, ReplicaId]]] = {}
        self._leaders: dict[ShardId, tuple[int, ReplicaId]] = {}
        self._terms: dict[ShardId, int] = {}
        self._heirs: defaultdict[ShardId, dict[int, ReplicaId]] = defaultdict(dict)
        """By the revision of the event: to whom HAKeeper began to hand over the leadership."""

    def ready(self, stores: Sequence[Store]) -> bool:
        """HAKeeper knows that the cluster runs."""
        machines = [one.state_machine for store in stores for one in store.replicas()]
        return any(
            isinstance(one, HAKeeperRsm) and one.state.phase is Phase.RUNNING for one in machines
        )

    def begin(self) -> None:
        """What is so now is what must stay so."""
        self._applied = self._world.oracle.shard(HAKEEPER_SHARD).committed_through
        for store in self._world.stores:
            if store.parts is not None:
                self._stored[store.store_id] = frozenset(store.parts.host.directories.replicas())
            for replica in store.replicas():
                raft = replica.raft
                self._terms[replica.shard] = max(self._terms.get(replica.shard, 0), raft.term)
                if raft.role is Role.LEADER:
                    self._leaders[replica.shard] = (int(raft.term), replica.replica_id)

    def sample(self, stores: Sequence[Store]) -> None:
        """Look."""
        if not self._rogue.begun:
            return
        for store in stores:
            if store is self._rogue.scene.home or not store.up or store.parts is None:
                continue
            self._halts(store)
            for replica in store.replicas():
                caught_up = replica.applied >= self._applied
                if caught_up and isinstance(replica.state_machine, HAKeeperRsm):
                    self._hakeeper(replica.state_machine.state)
        if self._world.config.calm:
            for store in stores:
                if store is not self._rogue.scene.home and store.up and store.parts is not None:
                    self._untouched(store)
            self._elections()

    def _wrong(self, detail: str) -> None:
        self._world.violate("rogue", detail)

    def _halts(self, store: Store) -> None:
        """No replica halts, but for its disk: a world with bad disks is not looked at."""
        assert store.parts is not None
        config = self._world.config
        its_disk = config.rot or config.diverges or config.disk_death
        if its_disk or config.disk_fail_interval_s:
            return
        for shard, halted in store.parts.host.halts.all().items():
            if not halted.reason.startswith("data directory") and not self._may_break(shard):
                self._wrong(f"{store.store_id} shard {shard} halted: {halted.reason}")

    def _may_break(self, shard: ShardId) -> bool:
        return self._rogue.forgives("rogue", f"shard {shard}")

    def _hakeeper(self, state: State) -> None:
        for event in state.feed.ring:
            if event.kind == EventKind.OPERATOR_BEGUN and f" {Repair.LEAD.value}: " in event.text:
                self._heirs[event.shard][event.revision] = ReplicaId(event.replica)
        kept = _kept(state)
        if self._kept is None:
            self._kept = kept
        if kept != self._kept:
            self._wrong(f"HAKeeper has {kept}, and had {self._kept}")
        scene = self._rogue.scene
        honest = {store.store_id: store for store in scene.honest}
        known = {*honest, self._rogue.store_id}
        others = {one.incarnation for one in scene.honest}
        for store in state.sorted_stores():
            if store.store not in known:
                self._wrong(f"HAKeeper knows a store {store.store}")
            taken = {one.incarnation for one in store.directories} & others
            if store.store == self._rogue.store_id and taken:
                self._wrong(f"HAKeeper has {taken} of others in {store.store}")
            true = honest.get(store.store)
            if true is not None and store.peer_address != true.address:
                self._wrong(f"HAKeeper has {store.store} at {store.peer_address}")
        for led in state.sorted_shards():
            if not scene.owns(led.shard) and led.leader_term > self._newest(led.shard):
                self._wrong(f"HAKeeper has shard {led.shard} led in term {led.leader_term}")

    def _newest(self, shard: ShardId) -> int:
        terms = [
            int(replica.raft.term)
            for store in self._world.stores
            if (replica := store.running(shard)) is not None
        ]
        self._terms[shard] = max([self._terms.get(shard, 0), *terms])
        # Whoever led in the newest term may have gone again since the last look; where ages passed
        # that is a jump (`ages`), and what the rogue says lies far beyond it.
        return self._terms[shard] + TERMS * self._world.counts["fault millions of terms"]

    def _untouched(self, store: Store) -> None:
        """No replica of another's shard begins or goes, and who led it, or HAKeeper's choice,
        leads it.
        """
        assert store.parts is not None
        before = self._stored.get(store.store_id, frozenset())
        for shard, replica in before ^ frozenset(store.parts.host.directories.replicas()):
            if not self._rogue.scene.owns(shard):
                self._wrong(f"{store.store_id} began or removed replica {replica} of {shard}")
        for one in store.replicas():
            raft, shard = one.raft, one.shard
            if self._rogue.scene.owns(shard) or shard not in self._leaders:
                continue
            term, leader = self._leaders[shard]
            heirs = list(self._heirs[shard].values())
            if heirs:
                self._handed_over(shard, int(raft.term), heirs)
            elif raft.term != term or (raft.role is Role.LEADER) != (one.replica_id == leader):
                self._wrong(
                    f"shard {shard} had leader {leader} of term {term}: {self._world.state()}"
                )

    def _handed_over(self, shard: ShardId, term: int, heirs: Sequence[ReplicaId]) -> None:
        """Each handing over costs one term, which its heir leads or nobody."""
        begun_in, _ = self._leaders[shard]
        led = self._world.oracle.shard(shard).leaders
        uninvited = Counter(who for when, who in led.items() if when > begun_in) - Counter(heirs)
        if uninvited or term > begun_in + len(heirs):
            self._wrong(
                f"shard {shard}, term {begun_in} handed over to {heirs}: {self._world.state()}"
            )

    def _elections(self) -> None:
        for shard in [HAKEEPER_SHARD, *self._world.shards]:
            if not self._rogue.scene.owns(shard) or shard not in self._leaders:
                continue
            begun_in, _ = self._leaders[shard]
            leaders = self._world.oracle.shard(shard).leaders
            count = sum(term > begun_in for term in leaders)
            if count > ELECTIONS_MAX:
                self._wrong(f"shard {shard}: {count} elections")


OWN_STALL_ELECTIONS = 6.0
"""Election timeouts for which one of its own shards may stand still: an election that it spoils,
and the next one.
"""

_PER_ELECTION = 4
"""Beats in an election timeout, after which nothing may stand still."""


class Pulse:
    """The pulse of one shard. `run` until cancelled."""

    def __init__(self, rogue: Adversary, shard: ShardId) -> None:
        """Begins to count when it runs."""
        self._rogue = rogue
        self._world = rogue.world
        self._shard = shard
        self._client = Client(rogue.world, 0, shard, ShardHistory())
        self.longest_s = 0.0

    async def run(self) -> None:
        """See the module's text."""
        world, timeout_s = self._world, self._world.config.election_timeout_s
        last_s = world.loop.now_s
        while True:
            if await self._beats(timeout_s / 2):
                last_s = world.loop.now_s
            stalled_s = world.loop.now_s - last_s
            self.longest_s = max(self.longest_s, stalled_s)
            owned = self._rogue.scene.owns(self._shard)
            elections = OWN_STALL_ELECTIONS if owned else 1.0
            bound_s = timeout_s * (elections + 2 / _PER_ELECTION)
            if stalled_s > bound_s:
                whose = "its own" if owned else "not its"
                world.violate(
                    "rogue-stall",
                    f"shard {self._shard}, {whose}: no append for {stalled_s:.2f} s: "
                    f"{world.state()}",
                )
                return
            await asyncio.sleep(timeout_s / _PER_ELECTION)

    async def _beats(self, limit_s: float) -> bool:
        data = commands.encode(commands.Connect())
        for store in self._world.stores:
            replica = store.running(self._shard)
            if replica is None or not replica.ready_to_lead:
                continue
            try:
                await self._client.ask(
                    lambda host: host.propose(self._shard, data, limit_s), limit_s, store
                )
            except LogServiceError:
                continue
            return True
        return False
