"""Adversary: who the rogue says it is, what it draws, and how what it sends arrives.

Everything passes the codec, so that only what bytes can say is sent. It arrives within milliseconds
whatever the faults of the network, unless the way from a taken-over store is cut.
"""

from __future__ import annotations

import asyncio
import random
import re
import struct
from collections import Counter, deque
from collections.abc import Coroutine
from functools import partial

from logservice_wire.errors import LogServiceError

from logservice.ids import HAKEEPER_SHARD, Incarnation, ReplicaId, ShardId, StoreId
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.nodehost.transport.wire.codec import (
    Buffer,
    CodecError,
    decode_batch,
    encode_message,
)
from logservice.raft.messages import Message, RequestVote
from logservice.sim.interfaces import CLUSTER, Store, World
from logservice.sim.net import Batch
from logservice.sim.rogue.limits import Limits
from logservice.sim.rogue.scene import Scene, Victim

STRANGER = StoreId("stranger")

_REMEMBERED = 400
"""Batches kept for replays."""

_NEVER_FORGIVEN = ("crash", "unhandled", "world", "rogue-defect")
_OF_A_SHARD = re.compile(r"shard (\d+)")

_REQUEST_S = 2.0
_REQUESTS_AT_ONCE_MAX = 64

EDGES = (0, 1, 2**31, 2**32, 2**53, 2**61, 2**62 - 1, 2**62, 2**63 - 1, 2**64 - 1)
"""Where numbers break."""

LEAPS = (-1, 0, 0, 0, 1, 1, 1, 2, 3, 100, 1023, 1024, 1025, 1_000_000)
"""From a true number to one that may be taken for it."""


class Adversary:
    """The means of a rogue; `life.Rogue` uses them."""

    def __init__(self, world: World) -> None:
        """Does nothing yet."""
        config = world.config
        self.world = world
        self.chance = random.Random(f"rogue's deeds/{config.seed}")
        home = world.stores[config.rogue_store - 1] if config.rogue != "stranger" else None
        self.scene = Scene(world, home)
        self.limits = Limits(self.scene)
        self.counts: Counter[str] = Counter()
        self.seen: deque[tuple[PeerIdentity, StoreId, Batch]] = deque(maxlen=_REMEMBERED)
        self.contexts: deque[bytes] = deque(maxlen=1)
        """The contexts of reads that wait."""
        self.begun = False
        self.sequence = 1_000_000
        """The number of its next heartbeat: later than any honest one."""
        self.process = world.loop.process("rogue")
        self.own = tuple(Incarnation(self.chance.getrandbits(62) | 1) for _ in range(2))
        self.boot_id = self.chance.getrandbits(62)
        self._requests: set[asyncio.Task[object]] = set()

    # --- who it is --------------------------------------------------------------------------------

    @property
    def store_id(self) -> StoreId:
        """The name in its certificate."""
        home = self.scene.home
        return STRANGER if home is None else home.store_id

    @property
    def identity(self) -> PeerIdentity:
        """What it says of itself: TLS proves the name, and the rest is whatever it likes."""
        home, chance = self.scene.home, self.chance
        if home is not None and home.transport is not None and chance.random() < 0.9:
            return home.transport.identity
        others = [one.incarnation for one in self.scene.honest]
        claimed = (Incarnation(chance.choice(others)),) if chance.random() < 0.5 else self.own
        return PeerIdentity(CLUSTER, self.store_id, claimed, self.boot_id)

    def forgives(self, checker: str, detail: str) -> bool:
        """Whether it is only about what the rogue says of itself, or a traitor's own log shard."""
        if checker == "hakeeper-view" and detail.startswith(f"{self.store_id} "):
            return True
        if self.world.config.rogue != "traitor" or checker in _NEVER_FORGIVEN:
            return False
        if checker == "invariant":
            return True  # that it was not in another's shard shows where replicas halt (`watch`)
        found = _OF_A_SHARD.search(detail)
        shard = ShardId(int(found[1])) if found is not None else HAKEEPER_SHARD
        return shard != HAKEEPER_SHARD and self.scene.owns(shard)

    def victims(self) -> list[Victim]:
        """Whom it can reach now."""
        home = self.scene.home
        found = self.scene.victims()
        if home is None:
            return found
        passes = self.world.net.passes
        return [one for one in found if passes(home.store_id, one.store.store_id)]

    def leads(self, victim: Victim) -> bool:
        """The victim follows it."""
        return victim.replica.raft.leader in self.scene.ids(victim.shard)

    # --- what it draws ----------------------------------------------------------------------------

    def number(self, near: int) -> int:
        """Something that may be taken for `near`, or that breaks something."""
        chance = self.chance
        if chance.random() < 0.2:
            return chance.choice(EDGES)
        return max(0, near + chance.choice(LEAPS))

    def sender(self, victim: Victim) -> ReplicaId:
        """The replica that it speaks for: mostly its own, in its own shards."""
        chance, own = self.chance, self.scene.ids(victim.shard)
        if own and chance.random() < 0.85:
            return chance.choice(own)
        members = [one.replica_id for one in victim.replica.raft.membership.members]
        others = [*members, ReplicaId(chance.randint(1, 2000)), ReplicaId(2**63)]
        return chance.choice(others)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, victim: Victim, message: Message, shard: ShardId | None = None) -> None:
        """Put a forged message on its way."""
        buffers: list[Buffer] = []
        try:
            encode_message(victim.shard if shard is None else shard, message, buffers)
            batch = decode_batch(b"".join(buffers))
        except (CodecError, struct.error):
            # What no bytes could say was not sent.
            self.counts["frames refused"] += 1
            return
        self.deliver(victim.store, self.identity, batch)

    def deliver(
        self, store: Store, identity: PeerIdentity, batch: Batch, *, genuine: bool = False
    ) -> None:
        """A batch in its name; `genuine`: it was once really sent, to this store."""
        process = store.process
        if process is None or not process.alive:
            return
        delay_s = self.chance.uniform(0.0001, 0.003)
        self.world.loop.call_in(process, delay_s, self._arrive, store, identity, batch, genuine)

    def _arrive(self, store: Store, identity: PeerIdentity, batch: Batch, genuine: bool) -> None:
        transport = store.transport
        if transport is None or not transport.running:
            return
        for shard, message in batch:
            replica = store.running(shard)
            if replica is not None and not genuine:
                if isinstance(message, RequestVote) and message.sender in self.scene.ids(shard):
                    self.limits.asks(shard, message)
                if self.limits.holds_back(Victim(store, replica), message):
                    continue
            self.counts["messages"] += 1
            transport.receive(identity, [(shard, message)])

    def ask(
        self, store: Store, method: str, body: bytes, identity: PeerIdentity | None = None
    ) -> None:
        """Send a request; nobody waits for the answer. `identity`: in place of a drawn one."""
        if len(self._requests) < _REQUESTS_AT_ONCE_MAX:
            self.spawn(self.answer_of(store, method, body, identity))

    def spawn(self, work: Coroutine[object, object, object]) -> None:
        """Do something that takes a while, as one of the requests under way."""
        task = self.world.loop.spawn(self.process, work)
        self._requests.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._requests.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.violate("rogue-defect", f"the adversary itself fails: {error!r}", error)

    async def answer_of(
        self, store: Store, method: str, body: bytes, identity: PeerIdentity | None = None
    ) -> bytes | None:
        """A request and its answer; None for a refusal, or when nobody answers."""
        transport = store.transport
        if transport is None or not transport.running or not transport.process.alive:
            return None
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        work = partial(transport.answer, identity or self.identity, method, body)
        self.world.net.call(self.store_id, self.process, transport, work, _REQUEST_S, answer)
        self.counts[f"requests {method}"] += 1
        try:
            async with asyncio.timeout(_REQUEST_S + 0.5):
                result = await answer
        except (LogServiceError, TimeoutError) as error:
            reason = getattr(error, "reason", None)
            if reason is not None:
                self.counts[f"refused {method} {reason.value}"] += 1
            return None
        assert isinstance(result, bytes)
        self.counts[f"granted {method}"] += 1
        return result
