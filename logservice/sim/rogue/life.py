"""Rogue: the adversary's life. When does it attack, what does it listen to, what does it answer?

An attack is a burst of one kind, at one replica or at whichever is in reach. What the adversary
listens to (requests for linearization points, whole batches) only serves later attacks.
"""

from __future__ import annotations

import asyncio
import random

from logservice.ids import ShardId, StoreId
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.messages import Message, ReadIndexRequest, RequestVote
from logservice.sim.interfaces import Store, World
from logservice.sim.net import Batch, SimTransport
from logservice.sim.rogue.adversary import Adversary
from logservice.sim.rogue.attacks import ATTACKS, old_read
from logservice.sim.rogue.requests import forged_answer
from logservice.sim.rogue.scene import Victim

_OVERHEARD_SHARE = 0.1
"""The share of batches that are kept. They span ten times as long, so replays are of old terms."""


class Rogue(Adversary):
    """One per world that has one. `begin` once the cluster serves."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._ears = random.Random(f"rogue's ears/{world.config.seed}")
        """Its own, because how much there is to hear must not move what the rogue does."""

    # --- its life ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """From now on."""
        self.scene.learn()
        self.begun = True
        self.spawn(self._run())

    async def _run(self) -> None:
        config, chance = self.world.config, self.chance
        while True:
            name = chance.choice(config.attacks)
            burst = chance.choice((1, 1, 1, 3, 8, 20))
            focus = chance.random() < 0.5
            victims = self.victims()
            led = [one for one in victims if self.leads(one)]
            if led and config.rogue == "traitor":
                victims, focus = led, True
            victim = chance.choice(victims) if victims and focus else None
            for _ in range(burst):
                self.strike(name, victim)
                await asyncio.sleep(chance.expovariate(1.0) / config.rogue_per_s)

    def strike(self, name: str, victim: Victim | None = None) -> None:
        """One attack."""
        self.scene.learn()
        victims = self.victims()
        if not victims:
            return
        if victim is None or victim.store.running(victim.shard) is not victim.replica:
            victim = self.chance.choice(victims)
        self.counts[name] += 1
        ATTACKS[name](self, victim)

    # --- where it listens -------------------------------------------------------------------------

    def hears(self, store: Store, shard: ShardId, message: Message) -> None:
        """An honest process sends a message."""
        if store is self.scene.home:
            if isinstance(message, RequestVote):
                self.limits.asks(shard, message)
        elif isinstance(message, ReadIndexRequest) and self.begun:
            self.contexts.append(message.context)
            replica = store.running(shard)
            if replica is not None and "reads" in self.world.config.attacks:
                old_read(self, Victim(store, replica))

    def overhears(self, sender: PeerIdentity, receiver: StoreId, batch: Batch) -> None:
        """A batch is on its way from one store to another: some are kept for `replays`."""
        if self._ears.random() < _OVERHEARD_SHARE:
            self.seen.append((sender, receiver, batch))

    def takes_over(self, store: Store, transport: SimTransport) -> None:
        """The honest process of a taken-over store begins a life: it answers some requests."""
        if store is not self.scene.home or "answers" not in self.world.config.attacks:
            return
        honest = transport.answer

        async def answer(peer: PeerIdentity, method: str, body: bytes) -> bytes:
            if self.begun and self.chance.random() < 0.5:
                forged = forged_answer(self, method, body)
                if forged is not None:
                    self.counts[f"answers forged {method}"] += 1
                    return forged
            return await honest(peer, method, body)

        transport.answer = answer  # type: ignore[method-assign]
