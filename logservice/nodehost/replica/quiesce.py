"""Quiescence: which replicas are ticked, and how the others learn of another store's death.

A replica whose core is quiesced (`raft.quiesce`) and that nobody waits for is not ticked, so a tick
costs what is active, however many shards there are. Whatever concerns a replica goes through
`Replica.activate`, which has it ticked again (`touch`).

Quiesced replicas send no heartbeats. In their place each store sends one beat to each store that it
shares quiesced shards with, every quarter of an election timeout. The beat holds a digest of the
quiesced shards that the sender leads with a member on the receiver. From it the receiver knows

- that the store is alive: after more than an election timeout without a beat, the quiesced shards
  shared with it act as if the connection to it had broken;
- that it is the same process: they act so, too, when the boot id is another one;
- that each replica that is quiesced here as a follower of a leader there is led there, in that
  term, by a quiesced leader. When the digests differ for an election timeout (the leader's replica
  halted, was stopped, or woke up and its heartbeats do not arrive), the followers wake up and wake
  their leaders.

A store also answers the beat of a leader's store with which it shares no quiesced shard. A follower
whose core is quiesced may have entries left to apply; so it is ticked, and is not quiesced here.
Its store would send no beat for it, and the leader's would take a store that lives for lost.

From cluster version 2 on the answer to a beat is itself one: digest, count and boot id of the store
that answers. So of two stores only the one with the lesser name asks, as long as it does: the other
asks, too, when it was not asked for a little longer than a beat takes.

A store that is asked by one of a lesser name beats along with it, so that all wake up together. It
waits for that one a tick longer than a beat takes, so beats are a tick further apart at most.

INV-QUIESCE-3: a replica that is not ticked has nothing that time could change: no request, no read,
nothing to apply or to send.
INV-QUIESCE-4: an error of one replica's time halts that replica, and the others are ticked.

A pass over the replicas or over the peers is one moment of the ticker (INV-HOST-TICK-3): what it
wakes counts no tick inside it, so what it has not yet come to is as it was.

A beat resets no election timer: replicas that count time are ticked, and listen to their leader
only.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from dataclasses import dataclass, field
from typing import Final

from logservice_wire.errors import InvalidArgument, LogServiceError

from logservice import bounds
from logservice.background import begin_task
from logservice.ids import ReplicaId, ShardId, StoreId
from logservice.invariants import invariant
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.peers.question import Asker, Form, question
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.replica.replica import BREAKS, Replica
from logservice.nodehost.ticker import Ticker
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.ready import Role
from logservice.versions import KnownVersion

_BEAT = struct.Struct("<QQ")
_MARK = struct.Struct("<QQQ")
_ANSWER = struct.Struct("<QQQ")
_LEADS_NONE: Final = (0, 0)

_ANSWERS_SINCE: Final = 2
"""The first cluster version in which the answer to a beat says something."""


def _decode_beat(body: bytes) -> tuple[int, ...]:
    if len(body) != _BEAT.size:
        raise InvalidArgument(f"a beat has {_BEAT.size} bytes", field="body")
    return _BEAT.unpack(body)


def _decode_answer(data: bytes) -> tuple[int, ...] | None:
    if data and len(data) != _ANSWER.size:
        raise InvalidArgument(f"an answer to a beat has {_ANSWER.size} bytes", field="body")
    return _ANSWER.unpack(data) if data else None


_ANSWERED: Final[Form[tuple[int, ...] | None]] = Form(
    lambda answer: _ANSWER.pack(*answer) if answer is not None else b"", _decode_answer
)

BEAT: Final = question(
    "store-beat", Asker.ENROLLED, Form(lambda beat: _BEAT.pack(*beat), _decode_beat), _ANSWERED
)
"""Digest and count of the quiesced shards that the sender leads with a member on the receiver. The
answer has those of the receiver, and its boot id, or nothing.
"""


@dataclass(slots=True)
class _Quiesced:
    """A quiesced replica: where the other side is, and what it adds to the digest."""

    replica: Replica
    leads: bool
    stores: tuple[StoreId, ...]
    mark: int


@dataclass(slots=True)
class _Peer:
    """Another store, while quiesced shards are shared with it.

    `heard` and `answered`: the ticks of its newest beat, and of the newest that was answered with
    another.
    `led` and `led_count` are digest and count of the shards that are led here, `followed` and
    `followed_count` of those that are led there.
    """

    heard: int
    answered: int | None = None
    boot_id: int | None = None
    led: int = 0
    led_count: int = 0
    followed: int = 0
    followed_count: int = 0
    differs_since: int | None = None
    shards: dict[ShardId, None] = field(default_factory=dict)


class Quiescence:
    """See the module's text. One per NodeHost, on its loop thread."""

    def __init__(
        self,
        options: NodeHostOptions,
        requests: PeerRequests,
        ticker: Ticker,
        identity: PeerIdentity,
        version: KnownVersion,
    ) -> None:
        """Hear the beats of others. `version`: what this store has learned."""
        self._options = options
        self._requests = requests
        self._ticker = ticker
        self._store, self._boot_id = identity.store_id, identity.boot_id
        self._version = version
        self._beat_ticks = max(1, options.election_ticks // 4)
        self._silent_ticks = options.election_ticks + self._beat_ticks
        self._ticks = 0
        self._newest_beat = 0
        self._next_beat = self._beat_ticks
        self._ticked: dict[ShardId, Replica] = {}
        self._quiesced: dict[ShardId, _Quiesced] = {}
        self._peers: dict[StoreId, _Peer] = {}
        self._owed: set[StoreId] = set()
        self._beating: set[StoreId] = set()
        self._beats: set[asyncio.Task[None]] = set()
        requests.register(BEAT, self._on_beat)

    def __len__(self) -> int:
        return len(self._quiesced)

    def touch(self, replica: Replica) -> None:
        """Something concerns this replica: it is ticked from now on."""
        self.forget(replica)
        self._ticked[replica.shard] = replica
        replica.ticked = True
        replica.changed()

    def forget(self, replica: Replica) -> None:
        """`replica` is ticked again, or it stopped."""
        quiesced = self._quiesced.get(replica.shard)
        if quiesced is None or quiesced.replica is not replica:
            return
        del self._quiesced[replica.shard]
        for store in quiesced.stores:
            self._share(store, quiesced, -1)

    def damaged(self, replica: Replica) -> None:
        """The data of `replica` cannot be trusted. If it is quiesced it is ticked again, and its
        next tick halts it.
        """
        quiesced = self._quiesced.get(replica.shard)
        if quiesced is not None and quiesced.replica is replica:
            self.touch(replica)

    async def stop(self) -> None:
        """End the beats that are on their way."""
        for task in list(self._beats):
            task.cancel()
        await asyncio.gather(*self._beats, return_exceptions=True)

    # --- time -------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Tick the active replicas, and tick those no more that are idle."""
        self._ticks += 1
        for shard, replica in list(self._ticked.items()):
            if replica.stopped:
                if self._ticked.get(shard) is replica:
                    del self._ticked[shard]
                continue
            try:
                self._tick(replica, now_s)
            except BREAKS as error:
                replica.fail(error)
        if self._ticks >= self._next_beat:
            self._beat()
            self._next_beat = self._newest_beat + self._beat_ticks

    def _tick(self, replica: Replica, now_s: float) -> None:
        replica.tick(now_s)
        if replica.intake.waiting:
            replica.serve_intake()
        elif replica.idle and not replica.damaged and not replica.stopped:
            self._quiesce(replica)

    def ticks_to_act(self) -> int:
        """In how many ticks `tick` may do more than count, unless something happens before."""
        if len(self._ticked) > bounds.TICK_SLEEP_REPLICAS_MAX:
            return 1
        ticks = self._next_beat - self._ticks
        if not self._owed and all(map(self._is_spared, self._peers, self._peers.values())):
            ticks += self._beat_ticks  # nobody is asked at the next beat, as it seems
        for replica in self._ticked.values():
            if ticks == 1 or replica.stopped:
                return 1
            try:
                ticks = min(ticks, replica.ticks_to_act())
            except BREAKS as error:
                replica.fail(error)
                return 1
        return ticks

    def _quiesce(self, replica: Replica) -> None:
        invariant(replica.idle, "INV-QUIESCE-3", shard=replica.shard)
        raft = replica.raft
        leads = raft.role is Role.LEADER
        others = raft.membership.others(replica.replica_id) if leads else (raft.leader,)
        found = [replica.store_of(one) for one in others]
        stores = [store for store in found if store is not None]
        if len(stores) < len(found):
            return  # no beat could tell of it: the address of a member is not known here
        mark = _mark(replica.shard, raft.leader, raft.term)
        quiesced = _Quiesced(replica, leads, tuple(stores), mark)
        self._quiesced[replica.shard] = quiesced
        for store in quiesced.stores:
            self._share(store, quiesced, 1)
        del self._ticked[replica.shard]
        replica.ticked = False

    def _share(self, store: StoreId, quiesced: _Quiesced, change: int) -> None:
        peer = self._peers.get(store)
        if peer is None:
            peer = self._peers[store] = _Peer(heard=self._ticks)
        if quiesced.leads:
            peer.led ^= quiesced.mark
            peer.led_count += change
        else:
            peer.followed ^= quiesced.mark
            peer.followed_count += change
        if change > 0:
            peer.shards[quiesced.replica.shard] = None
        else:
            peer.shards.pop(quiesced.replica.shard, None)
            if not peer.shards:
                del self._peers[store]

    # --- beats ------------------------------------------------------------------------------------

    def _beat_along(self) -> None:
        """A store that asks has beaten: beat with it, now and next time."""
        if self._ticks - self._newest_beat > self._beat_ticks // 2:
            self._beat()
        self._next_beat = self._newest_beat + self._beat_ticks + 1
        self._ticker.look_again(later=True)

    def _beat(self) -> None:
        self._newest_beat = self._ticks
        for store, peer in list(self._peers.items()):
            if self._ticks - peer.heard > self._silent_ticks:
                self._lost(store, peer)
            elif not self._is_spared(store, peer):
                self._begin(store, (peer.led, peer.led_count))
        for store in sorted(self._owed - self._peers.keys()):
            self._begin(store, _LEADS_NONE)
        self._owed.clear()

    def _is_spared(self, store: StoreId, peer: _Peer) -> bool:
        """That store asks, so it need not be asked."""
        patience_ticks = self._beat_ticks + 3
        return (
            store < self._store
            and peer.answered is not None
            and self._ticks - peer.answered <= patience_ticks
        )

    def _begin(self, store: StoreId, beat: tuple[int, int]) -> None:
        if store in self._beating:
            return
        self._beating.add(store)
        self._beats.add(begin_task(self._send(store, beat), self._beats.discard))

    async def _send(self, store: StoreId, beat: tuple[int, int]) -> None:
        timeout_s = self._options.tick_ms / 1000 * self._silent_ticks
        try:
            answer = await self._requests.ask(store, BEAT, beat, timeout_s)
            if answer is not None:
                with self._ticker.moment:
                    self._hear(store, answer[2], answer[:2])
        except LogServiceError:
            pass  # that store hears nothing, and draws its own conclusion
        finally:
            self._beating.discard(store)

    async def _on_beat(self, sender: PeerIdentity, beat: tuple[int, ...]) -> tuple[int, ...] | None:
        with self._ticker.moment:
            return self._answer(sender, beat)

    def _answer(self, sender: PeerIdentity, beat: tuple[int, ...]) -> tuple[int, ...] | None:
        store = sender.store_id
        self._hear(store, sender.boot_id, beat)
        answers = self._version.value >= _ANSWERS_SINCE
        peer = self._peers.get(store)
        if peer is None:
            # A beat of none may be an answer itself: two stores would go on for ever.
            if beat != _LEADS_NONE and not answers:
                self._owed.add(store)
        elif answers:
            peer.answered = self._ticks
            if store < self._store:
                self._beat_along()
        if not answers:
            return None
        led = (peer.led, peer.led_count) if peer is not None else _LEADS_NONE
        return (*led, self._boot_id)

    def _hear(self, store: StoreId, boot_id: int, beat: tuple[int, ...]) -> None:
        peer = self._peers.get(store)
        if peer is None:
            return
        peer.heard = self._ticks
        if peer.boot_id not in (None, boot_id):
            self._lost(store, peer)
            return
        peer.boot_id = boot_id
        if beat == (peer.followed, peer.followed_count):
            peer.differs_since = None
        elif peer.differs_since is None:
            peer.differs_since = self._ticks
        elif self._ticks - peer.differs_since >= self._options.election_ticks:
            peer.differs_since = None
            self._wake_followers(peer)

    def _lost(self, store: StoreId, peer: _Peer) -> None:
        """Wake the quiesced replicas with a member on `store`, as if its connection had broken."""
        for shard in list(peer.shards):
            quiesced = self._quiesced.get(shard)
            if quiesced is None:
                continue
            replica = quiesced.replica
            for member in replica.raft.membership.others(replica.replica_id):
                if replica.store_of(member) == store:
                    replica.unreachable(member)
            self.touch(replica)

    def _wake_followers(self, peer: _Peer) -> None:
        for shard in list(peer.shards):
            quiesced = self._quiesced.get(shard)
            if quiesced is not None and not quiesced.leads:
                quiesced.replica.wake()


def _mark(shard: ShardId, leader: ReplicaId, term: int) -> int:
    """What one shard adds to a digest. It is added by exclusive or, because shards quiesce in any
    order.
    """
    packed = _MARK.pack(shard, leader, term)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")
