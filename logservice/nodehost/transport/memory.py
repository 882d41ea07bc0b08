"""MemoryTransport: the transport's twin inside one process, for tests and the simulator.

Stores on one `MemoryNetwork` reach each other by made-up addresses. Delivery is in order per link
(a sender and a receiver), never inside the sender's call, and the same for the same calls: there
is no chance in here. Faults come from outside: `cut` and `heal` links (one-way or both), a
`delay_s` and a `drop` function per network.

What is delivered are the very same immutable objects; with `through_codec` they take the way over
bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from logservice_wire.errors import (
    DeadlineExceeded,
    LogServiceError,
    NotReady,
    UnknownOutcome,
    WrongCluster,
)

from logservice.background import begin_task
from logservice.ids import ShardId, StoreId
from logservice.invariants import invariant
from logservice.nodehost.transport.seam import PeerIdentity, TransportHandler
from logservice.nodehost.transport.wire.chunks import snapshot_fits
from logservice.nodehost.transport.wire.codec import Buffer, decode_batch, encode_message
from logservice.raft.messages import InstallSnapshot, Message

Batch = list[tuple[ShardId, Message]]


class MemoryNetwork:
    """The wires between memory transports, and the faults on them."""

    def __init__(self, *, through_codec: bool = False) -> None:
        """`through_codec`: encode and decode every batch, as a real network would."""
        self.through_codec = through_codec
        self.delay_s: Callable[[StoreId, StoreId], float] | None = None
        """Seconds a batch or request takes from one store to another; None: none."""
        self.drop: Callable[[StoreId, StoreId, ShardId, Message], bool] | None = None
        """True loses the message."""
        self._stores: dict[str, MemoryTransport] = {}
        self._cut: set[tuple[StoreId, StoreId]] = set()
        self._wires: dict[tuple[StoreId, StoreId], deque[Callable[[], None]]] = {}
        self._next_port = 1

    # --- faults -----------------------------------------------------------------------------------

    def cut(self, sender: StoreId, receiver: StoreId, *, one_way: bool = False) -> None:
        """Nothing passes from `sender` to `receiver` (nor back); requests under way are unknown."""
        self._cut.add((sender, receiver))
        if not one_way:
            self._cut.add((receiver, sender))
        for transport in list(self._stores.values()):
            transport.links_changed()

    def isolate(self, store: StoreId) -> None:
        """Cut the store from everybody."""
        for transport in list(self._stores.values()):
            if transport.identity.store_id != store:
                self.cut(store, transport.identity.store_id)

    def heal(self) -> None:
        """All links work again."""
        self._cut.clear()

    def connected(self, sender: StoreId, receiver: StoreId) -> bool:
        """True when bytes pass in both directions, which a connection needs."""
        return (sender, receiver) not in self._cut and (receiver, sender) not in self._cut

    def passes(self, sender: StoreId, receiver: StoreId) -> bool:
        """True when messages pass in this direction."""
        return (sender, receiver) not in self._cut

    # --- for MemoryTransport ----------------------------------------------------------------------

    def attach(self, transport: MemoryTransport, address: str) -> str:
        """Listen; returns the address. Raises OSError when it is in use."""
        if not address:
            address = f"memory:{self._next_port}"
            self._next_port += 1
        if address in self._stores:
            raise OSError(f"cannot listen for stores on {address}: address in use")
        self._stores[address] = transport
        return address

    def detach(self, address: str) -> None:
        """Stop listening."""
        self._stores.pop(address, None)

    def at(self, address: str) -> MemoryTransport | None:
        """Who listens there."""
        return self._stores.get(address)

    def carry(self, sender: StoreId, receiver: StoreId, deliver: Callable[[], None]) -> None:
        """Call `deliver` later, in order on this link."""
        loop = asyncio.get_running_loop()
        wire = self._wires.setdefault((sender, receiver), deque())
        wire.append(deliver)
        delay_s = self.delay_s(sender, receiver) if self.delay_s is not None else 0.0
        if delay_s > 0:
            loop.call_later(delay_s, self._arrive, wire)
        else:
            loop.call_soon(self._arrive, wire)

    @staticmethod
    def _arrive(wire: deque[Callable[[], None]]) -> None:
        wire.popleft()()


class MemoryTransport:
    """See the module and `seam.Transport`."""

    def __init__(self, identity: PeerIdentity, network: MemoryNetwork, address: str = "") -> None:
        """`address` empty: the network chooses one."""
        self.identity = identity
        self._network = network
        self._address = address
        self._handler: TransportHandler | None = None
        self._addresses: dict[StoreId, tuple[str, ...]] = {}
        self._outbox: dict[StoreId, Batch] = {}
        self._waiting: dict[asyncio.Future[bytes], StoreId] = {}
        self._serving: set[asyncio.Task[None]] = set()

    # --- Transport --------------------------------------------------------------------------------

    async def start(self, handler: TransportHandler) -> None:
        """See `Transport`."""
        invariant(self._handler is None, "INV-TRANSPORT-1", detail="started twice")
        self._address = self._network.attach(self, self._address)
        self._handler = handler

    async def stop(self) -> None:
        """See `Transport`."""
        self._handler = None
        self._network.detach(self._address)
        self._outbox.clear()
        self._fail_waiting(lambda _: True, "closed here")
        tasks = list(self._serving)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def address(self) -> str:
        """See `Transport`."""
        return self._address

    def restate(self, identity: PeerIdentity) -> None:
        """See `Transport`. Every message states it."""
        self.identity = identity

    def set_address(self, store: StoreId, address: str, *others: str) -> None:
        """See `Transport`."""
        self._addresses[store] = (address, *others)

    def send(self, store: StoreId, shard: ShardId, message: Message) -> bool:
        """See `Transport`."""
        if store not in self._addresses or self._handler is None:
            return False
        if type(message) is InstallSnapshot and not snapshot_fits(message):
            return False
        self._outbox.setdefault(store, []).append((shard, message))
        return True

    def flush(self) -> None:
        """See `Transport`."""
        outbox, self._outbox = self._outbox, {}
        for store, batch in outbox.items():
            self._network.carry(self.identity.store_id, store, partial(self._pass, store, batch))

    async def request(self, target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        """See `Transport`."""
        if self._handler is None:
            raise NotReady("the transport is not running")
        address = self._where(StoreId(target))
        if target == self.identity.store_id:
            address = self._address
        if ":" not in address:
            raise NotReady(f"the address of {target} is not known", store=target)
        peer = self._reachable(address, StoreId(target))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = peer.identity.store_id
        self._network.carry(
            self.identity.store_id,
            peer.identity.store_id,
            lambda: peer.serve(self, method, body, timeout_s, answer),
        )
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer from {target}") from error
        finally:
            self._waiting.pop(answer, None)

    # --- for the network and other transports -----------------------------------------------------

    def links_changed(self) -> None:
        """Requests whose link was cut will not be answered."""
        mine = self.identity.store_id
        self._fail_waiting(lambda peer: not self._network.connected(mine, peer), "the link was cut")

    def receive(self, peer: PeerIdentity, batch: Batch) -> bool:
        """A batch arrives; False when nobody listens or the cluster is another."""
        if self._handler is None or peer.cluster_id != self.identity.cluster_id:
            return False
        self._handler.on_messages(peer, batch)
        return True

    def serve(
        self,
        sender: MemoryTransport,
        method: str,
        body: bytes,
        timeout_s: float,
        answer: asyncio.Future[bytes],
    ) -> None:
        """A request arrives."""
        if self._handler is None:
            sender.answered(answer, NotReady(f"{self._address} is not listening"), lost=False)
            return
        work = self._serve(self._handler, sender, method, body, timeout_s, answer)
        self._serving.add(begin_task(work, self._serving.discard))

    def answered(
        self, answer: asyncio.Future[bytes], result: bytes | LogServiceError, *, lost: bool
    ) -> None:
        """A response arrives, or (`lost`) the connection broke before it could."""
        if answer.done():
            return
        if lost:
            answer.set_exception(UnknownOutcome("the connection broke"))
        elif isinstance(result, LogServiceError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    # --- inside -----------------------------------------------------------------------------------

    def _where(self, store: StoreId) -> str:
        """The first address of a store at which it listens; a bare address is its own."""
        addresses = self._addresses.get(store, (str(store),))
        for address in addresses:
            there = self._network.at(address)
            if there is not None and there.identity.store_id == store:
                return address
        return addresses[0]

    def _reachable(self, address: str, target: StoreId) -> MemoryTransport:
        peer = self._network.at(address)
        mine = self.identity
        if peer is None or not self._network.connected(mine.store_id, peer.identity.store_id):
            raise NotReady(f"{address} cannot be reached", address=address)
        if peer.identity.cluster_id != mine.cluster_id:
            raise WrongCluster(
                f"{address} belongs to another cluster",
                cluster=peer.identity.cluster_id,
                expected=mine.cluster_id,
            )
        if target in self._addresses and peer.identity.store_id != target:
            raise NotReady(f"{peer.identity.store_id} listens at {address}, not {target}")
        return peer

    def _pass(self, store: StoreId, batch: Batch) -> None:
        network, mine = self._network, self.identity.store_id
        if self._handler is None:
            return
        peer = network.at(self._where(store))
        if peer is None or peer.identity.store_id != store or not network.passes(mine, store):
            self._handler.on_unreachable(store)
            return
        drop = network.drop
        if drop is not None:
            batch = [one for one in batch if not drop(mine, store, one[0], one[1])]
        if network.through_codec:
            batch = _recoded(batch)
        if batch and not peer.receive(self.identity, batch):
            self._handler.on_unreachable(store)

    async def _serve(
        self,
        handler: TransportHandler,
        sender: MemoryTransport,
        method: str,
        body: bytes,
        timeout_s: float,
        answer: asyncio.Future[bytes],
    ) -> None:
        result: bytes | LogServiceError
        lost = False
        try:
            async with asyncio.timeout(timeout_s):
                result = await handler.on_request(sender.identity, method, body)
        except LogServiceError as error:
            result = error
        except TimeoutError:
            result = DeadlineExceeded()
        except asyncio.CancelledError:
            sender.answered(answer, UnknownOutcome(), lost=True)
            raise
        except Exception as error:  # noqa: BLE001 - a boundary: the peer must get an outcome
            result = UnknownOutcome(f"{method}: {type(error).__name__}")
        mine, theirs = self.identity.store_id, sender.identity.store_id
        lost = not self._network.connected(mine, theirs)
        self._network.carry(mine, theirs, lambda: sender.answered(answer, result, lost=lost))

    def _fail_waiting(self, affected: Callable[[StoreId], bool], cause: str) -> None:
        for answer, peer in list(self._waiting.items()):
            if affected(peer) and not answer.done():
                answer.set_exception(UnknownOutcome(cause))


def _recoded(batch: Batch) -> Batch:
    buffers: list[Buffer] = []
    for shard, message in batch:
        encode_message(shard, message, buffers)
    return decode_batch(b"".join(buffers))
