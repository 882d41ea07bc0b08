"""SimNet: the wires between the processes of the simulated world, and what goes wrong on them.

A wire goes from one endpoint (a store or a client) to another. What is sent arrives after a delay
that chance draws, and in order per wire, as on a connection. Faults change that:

- loss and duplication of batches, delays, reordering (`NetFaults`, per world);
- `block(sender, receiver)`: nothing passes in that direction; all partition shapes are made of it;
- `clog(sender, receiver, until)`: what is sent waits until then.

Requests are not lost or doubled one by one. They travel on a connection, which breaks as a whole
when one direction is blocked or the other side dies; then their outcome is unknown.

`SimTransport` is one more implementation of `seam.Transport`. It shows the world every message that
leaves (`SimNet.observe`): there the checkers see what a replica promises to others.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from logservice_wire.errors import (
    DeadlineExceeded,
    LogServiceError,
    NotReady,
    UnknownOutcome,
    WrongCluster,
)

from logservice.ids import ShardId, StoreId
from logservice.nodehost.transport.seam import PeerIdentity, TransportHandler
from logservice.nodehost.transport.wire.chunks import snapshot_fits
from logservice.nodehost.transport.wire.codec import Buffer, decode_batch, encode_message
from logservice.raft.messages import InstallSnapshot, Message
from logservice.sim.loop import Process, SimLoop

Batch = list[tuple[ShardId, Message]]

_REFUSED_S = 0.001
"""A connection to a port where nobody listens is refused this fast."""

_BROKEN_S = 0.2
"""A connection that is cut is noticed this late at the earliest."""


@dataclass(slots=True)
class NetFaults:
    """Shares of batches; seconds. The world turns them off when it heals."""

    loss: float = 0.0
    duplication: float = 0.0
    reorder: float = 0.0
    delay_mean_s: float = 0.0005
    delay_min_s: float = 0.0001
    through_codec: bool = False


class SimNet:
    """All wires."""

    def __init__(self, loop: SimLoop, chance: random.Random, faults: NetFaults) -> None:
        """A network without partitions."""
        self.loop = loop
        self.faults = faults
        self.observe: Callable[[SimTransport, ShardId, Message], None] | None = None
        """Is shown every message that a store hands to its transport."""
        self.overhear: Callable[[PeerIdentity, StoreId, Batch], None] | None = None
        """Is shown every batch that is going to arrive: its sender, its receiver, what is in it."""
        self.batches = 0
        self.lost = 0
        self.doubled = 0
        self.reordered = 0
        self.trace: Callable[..., None] | None = None
        self._chance = chance
        self._listening: dict[str, SimTransport] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._clogged: dict[tuple[str, str], float] = {}
        self._slow: dict[tuple[str, str], float] = {}
        self._clear_at: dict[tuple[str, str], float] = {}

    # --- faults -----------------------------------------------------------------------------------

    def block(self, sender: str, receiver: str) -> None:
        """Nothing passes in this direction from now on."""
        self._blocked.add((sender, receiver))

    def unblock(self, sender: str, receiver: str) -> None:
        """It passes again."""
        self._blocked.discard((sender, receiver))

    def clog(self, sender: str, receiver: str, until_s: float) -> None:
        """What is sent waits until then."""
        self._clogged[sender, receiver] = until_s

    def slow(self, sender: str, receiver: str, delay_s: float) -> None:
        """A wire with this much more delay; 0 for none."""
        self._slow[sender, receiver] = delay_s

    def heal(self) -> None:
        """Every wire works."""
        self._blocked.clear()
        self._clogged.clear()
        self._slow.clear()
        self._clear_at.clear()

    def passes(self, sender: str, receiver: str) -> bool:
        """Something sent now would arrive."""
        return (sender, receiver) not in self._blocked

    def connected(self, one: str, other: str) -> bool:
        """It passes both ways."""
        return self.passes(one, other) and self.passes(other, one)

    # --- wires ------------------------------------------------------------------------------------

    def arrival_s(self, sender: str, receiver: str, *, may_overtake: bool) -> float:
        """How long what is sent now takes."""
        faults, chance, now_s = self.faults, self._chance, self.loop.now_s
        wire = (sender, receiver)
        at_s = now_s + faults.delay_min_s + chance.expovariate(1.0) * faults.delay_mean_s
        at_s += self._slow.get(wire, 0.0)
        if wire in self._clogged:
            at_s = max(at_s, self._clogged[wire])
        if not may_overtake:
            at_s = max(at_s, self._clear_at.get(wire, 0.0))
            self._clear_at[wire] = at_s
        return at_s - now_s

    def listen(self, address: str, transport: SimTransport) -> None:
        """Raises OSError when the address is in use by a living process."""
        there = self._listening.get(address)
        if there is not None and there.process.alive and there is not transport:
            raise OSError(f"cannot listen for stores on {address}: address in use")
        self._listening[address] = transport

    def close(self, address: str, transport: SimTransport) -> None:
        """Nobody listens there any more."""
        if self._listening.get(address) is transport:
            del self._listening[address]

    def at(self, address: str) -> SimTransport | None:
        """Who listens there; the dead do not."""
        there = self._listening.get(address)
        return there if there is not None and there.process.alive and there.running else None

    def send(self, sender: SimTransport, store: StoreId, address: str, batch: Batch) -> None:
        """Put a batch on its wire."""
        faults, chance = self.faults, self._chance
        self.batches += 1
        me = sender.identity.store_id
        if not self.passes(me, store):
            self.lost += 1
            if chance.random() < 0.3:
                self.loop.call_in(sender.process, _BROKEN_S, sender.unreachable, store)
            return
        if faults.loss and chance.random() < faults.loss:
            self.lost += 1
            if chance.random() < 0.2:
                self.loop.call_in(sender.process, _BROKEN_S, sender.unreachable, store)
            return
        there = self.at(address)
        if there is None or there.identity.store_id != store:
            self.loop.call_in(sender.process, _REFUSED_S, sender.unreachable, store)
            return
        if faults.through_codec:
            batch = _recoded(batch)
        copies = 1
        if faults.duplication and chance.random() < faults.duplication:
            copies = 2
            self.doubled += 1
        if self.overhear is not None:
            self.overhear(sender.identity, store, batch)
        for copy in range(copies):
            overtakes = copy > 0 or (faults.reorder > 0 and chance.random() < faults.reorder)
            delay_s = self.arrival_s(me, store, may_overtake=overtakes)
            if overtakes:
                self.reordered += copy == 0
                delay_s += chance.expovariate(1.0) * 4 * faults.delay_mean_s
            self.loop.call_in(there.process, delay_s, there.receive, sender.identity, batch)

    def call(
        self,
        caller: str,
        process: Process,
        there: SimTransport,
        work: Callable[[], Awaitable[object]],
        timeout_s: float,
        answer: asyncio.Future[object],
    ) -> None:
        """Have `work` done in the process of `there`, for `caller` in `process`.

        `answer` gets the result; NotReady if it surely did not begin; UnknownOutcome if nobody can
        say. Whoever waits keeps the time.
        """
        callee = there.identity.store_id

        def settle(result: object, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        async def serve() -> None:
            result: object = None
            error: BaseException | None = None
            try:
                async with asyncio.timeout(timeout_s):
                    result = await work()
            except LogServiceError as problem:
                error = problem
            except TimeoutError:
                error = DeadlineExceeded()
            except asyncio.CancelledError:
                error = UnknownOutcome("the connection broke")
            except Exception as problem:  # noqa: BLE001 - a boundary: the peer gets an outcome
                there.broken(problem)
                error = UnknownOutcome(type(problem).__name__)
            if not self.connected(callee, caller):
                return
            back_s = self.arrival_s(callee, caller, may_overtake=False)
            self.loop.call_in(process, back_s, settle, result, error)

        if not self.connected(caller, callee):
            settle_s = _BROKEN_S
            self.loop.call_in(process, settle_s, settle, None, NotReady("no connection"))
            return
        delay_s = self.arrival_s(caller, callee, may_overtake=False)
        self.loop.call_in(there.process, delay_s, lambda: there.begin(serve()))
        there.watchers.append(partial(self._gone, process, settle))

    def _gone(
        self, process: Process, settle: Callable[[object, BaseException | None], None]
    ) -> None:
        self.loop.call_in(process, _REFUSED_S, settle, None, UnknownOutcome("the store is gone"))

    def died(self, transport: SimTransport) -> None:
        """Its process is dead: whoever waits for its answer is told."""
        watchers, transport.watchers = transport.watchers, []
        for gone in watchers:
            gone()


class SimTransport:
    """See the module and `seam.Transport`. `address` is fixed: a store comes back where it was."""

    def __init__(
        self,
        identity: PeerIdentity,
        net: SimNet,
        process: Process,
        address: str,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        """`on_broken` is told about exceptions that are no answers."""
        self.identity = identity
        self.process = process
        self.broken = on_broken
        self.watchers: list[Callable[[], None]] = []
        self._net = net
        self._address = address
        self._handler: TransportHandler | None = None
        self._addresses: dict[StoreId, tuple[str, ...]] = {}
        self._outbox: dict[StoreId, Batch] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._waiting: dict[asyncio.Future[object], None] = {}

    # --- Transport --------------------------------------------------------------------------------

    async def start(self, handler: TransportHandler) -> None:
        self._net.listen(self._address, self)
        self._handler = handler

    async def stop(self) -> None:
        self._handler = None
        self._net.close(self._address, self)
        self._outbox.clear()
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(UnknownOutcome("closed here"))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def running(self) -> bool:
        """It listens."""
        return self._handler is not None

    @property
    def address(self) -> str:
        return self._address

    def restate(self, identity: PeerIdentity) -> None:
        self.identity = identity

    def set_address(self, store: StoreId, address: str, *others: str) -> None:
        self._addresses[store] = (address, *others)

    def send(self, store: StoreId, shard: ShardId, message: Message) -> bool:
        if store not in self._addresses or self._handler is None or not self.process.alive:
            return False
        if type(message) is InstallSnapshot and not snapshot_fits(message):
            return False
        if self._net.observe is not None:
            self._net.observe(self, shard, message)
        self._outbox.setdefault(store, []).append((shard, message))
        return True

    def flush(self) -> None:
        outbox, self._outbox = self._outbox, {}
        if self.process.alive:
            for store, batch in outbox.items():
                self._net.send(self, store, self._where(store), batch)

    async def request(self, target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        if self._handler is None:
            raise NotReady("the transport is not running")
        address = self._where(StoreId(target))
        if target == self.identity.store_id:
            address = self._address
        if ":" not in address:
            raise NotReady(f"the address of {target} is not known", store=target)
        there = self._net.at(address)
        if there is None:
            raise NotReady(f"{address} cannot be reached", address=address)
        if there.identity.cluster_id != self.identity.cluster_id:
            raise WrongCluster(f"{address} belongs to another cluster")
        if target in self._addresses and there.identity.store_id != target:
            raise NotReady(f"{there.identity.store_id} listens at {address}, not {target}")
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        work = partial(there.answer, self.identity, method, body)
        me = self.identity.store_id
        self._waiting[answer] = None
        self._net.call(me, self.process, there, work, timeout_s, answer)
        try:
            async with asyncio.timeout(timeout_s):
                result = await answer
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer from {target}") from error
        finally:
            del self._waiting[answer]
        assert isinstance(result, bytes)
        return result

    def _where(self, store: StoreId) -> str:
        """The first address of a store at which it listens; a bare address is its own."""
        addresses = self._addresses.get(store, (str(store),))
        for address in addresses:
            there = self._net.at(address)
            if there is not None and there.identity.store_id == store:
                return address
        return addresses[0]

    # --- for the network --------------------------------------------------------------------------

    def receive(self, peer: PeerIdentity, batch: Batch) -> None:
        """A batch arrives, in this process."""
        if self._handler is None or peer.cluster_id != self.identity.cluster_id:
            return
        if self._net.trace is not None:
            self._net.trace("receive", self.identity.store_id, peer.store_id, batch)
        self._handler.on_messages(peer, batch)

    def unreachable(self, store: StoreId) -> None:
        """What was sent to `store` is lost."""
        if self._handler is not None:
            self._handler.on_unreachable(store)

    async def answer(self, peer: PeerIdentity, method: str, body: bytes) -> bytes:
        """A request arrives."""
        if self._handler is None:
            raise NotReady("the store is not running")
        return await self._handler.on_request(peer, method, body)

    def begin(self, work: Awaitable[None]) -> None:
        """Serve a request as a task of this process."""
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        if len(self.watchers) > 4096:
            del self.watchers[:2048]

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)


def _recoded(batch: Batch) -> Batch:
    buffers: list[Buffer] = []
    for shard, message in batch:
        encode_message(shard, message, buffers)
    return decode_batch(b"".join(buffers))
