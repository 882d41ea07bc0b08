"""Listeners: what happens on a NodeHost, told to whoever embeds it.

Theory of operation. A part of the host tells an event where it happens, on the loop thread. The
host's own log (`replica.role_log`) hears it there at once, because it is ours and never waits.
Everybody else has `listen`ed: each listener has a queue and a thread of its own, which hands it one
event after the other, in the order in which they happened. Nothing is told per append, per message
or per tick.

INV-LISTEN-1: whatever a listener does, the host goes on as if it were not there. The loop thread
only puts into a queue that has room. An event that finds the queue full is left out, and the next
one that finds room comes behind `EventsMissed`, which says how many are missing. What a listener
raises is logged, and it is told the next event.

Reference: Dragonboat, `raftio.IRaftEventListener` and `raftio.ISystemEventListener`. There one
goroutine serves all listeners, so a slow one holds up the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from logservice_wire.errors import InvalidArgument, NotReady

from logservice import bounds
from logservice.ids import Index, ReplicaId, ShardId, StoreId, Term
from logservice.raft.ready import Role

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """A replica here has another role, or knows of another leader. `leader` is NO_REPLICA while it
    knows of none. `epoch`: the change that its membership came by.
    """

    shard: ShardId
    replica: ReplicaId
    role: Role
    term: Term
    leader: ReplicaId
    epoch: Index


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """Another membership is in force at a replica here, by the change with that epoch."""

    shard: ShardId
    replica: ReplicaId
    role: Role
    epoch: Index
    voters: tuple[ReplicaId, ...]
    learners: tuple[ReplicaId, ...]


@dataclass(frozen=True, slots=True)
class ReplicaStarted:
    """A replica runs here from now on."""

    shard: ShardId
    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class ReplicaStopped:
    """A replica does not run here any more; its data stays."""

    shard: ShardId
    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class ReplicaRemoved:
    """The data of a replica is removed, durably and for ever."""

    shard: ShardId
    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class ReplicaHalted:
    """The data of a replica cannot be trusted, so it does not run."""

    shard: ShardId
    replica: ReplicaId
    reason: str


@dataclass(frozen=True, slots=True)
class ApplyingChanged:
    """A replica has got stuck: it applies nothing although entries are committed; or it goes on."""

    shard: ShardId
    replica: ReplicaId
    stuck: bool
    applied: Index
    committed: Index


@dataclass(frozen=True, slots=True)
class SnapshotRecovered:
    """A replica began anew from a snapshot of its leader, which ends at entry `index`."""

    shard: ShardId
    replica: ReplicaId
    index: Index


@dataclass(frozen=True, slots=True)
class LogCompacted:
    """The entries of a replica through `index` are covered by an installed snapshot, durably."""

    shard: ShardId
    replica: ReplicaId
    index: Index


@dataclass(frozen=True, slots=True)
class PeerUnreachable:
    """Messages to a store were dropped: its connection broke, or its queue is full."""

    store: StoreId


@dataclass(frozen=True, slots=True)
class HostStopping:
    """The host stops; this is its last event."""


@dataclass(frozen=True, slots=True)
class EventsMissed:
    """So many events before the next one were left out, because the listener was too slow."""

    count: int


HostEvent = (
    RoleChanged
    | MembershipChanged
    | ReplicaStarted
    | ReplicaStopped
    | ReplicaRemoved
    | ReplicaHalted
    | ApplyingChanged
    | SnapshotRecovered
    | LogCompacted
    | PeerUnreachable
    | HostStopping
    | EventsMissed
)

Listener = Callable[[HostEvent], object]
"""It is called on a thread of its own, with one event after the other. It may take its time, and
must not call the host, whose methods belong to the loop thread.
"""


class Listening:
    """One listener's queue and thread."""

    def __init__(self, listener: Listener) -> None:
        """The thread waits for the first event."""
        self._listener = listener
        self._queue: queue.Queue[HostEvent | None] = queue.Queue(bounds.LISTENER_EVENTS_MAX)
        self.ended = False
        self._left_out = 0
        self._thread = threading.Thread(target=self._run, name="host-events", daemon=True)
        self._thread.start()

    def put(self, event: HostEvent) -> None:
        """Let `event` wait for the listener, if there is room."""
        try:
            if self._left_out:
                self._queue.put_nowait(EventsMissed(self._left_out))
                self._left_out = 0
            self._queue.put_nowait(event)
        except queue.Full:
            self._left_out += 1

    def end(self) -> None:
        """What waits is still told, and then nothing any more. A listener that never returns keeps
        its thread, which does not keep the process.
        """
        self.ended = True
        with contextlib.suppress(queue.Full):  # then the thread looks at `ended` in the end
            self._queue.put_nowait(None)

    def join(self, timeout_s: float) -> None:
        """Wait until the listener was told everything. It may be called from any thread."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not (self.ended and self._queue.empty()):
            event = self._queue.get()
            if event is None:
                return
            try:
                self._listener(event)
            except Exception:
                logger.exception("a listener failed at %s", event)


class Listeners:
    """One per NodeHost, on its loop thread."""

    def __init__(self, own: Listener) -> None:
        """`own` is told on the loop thread; it must neither wait nor raise."""
        self._own = own
        self._others: list[Listening] = []
        self._stopped = False

    def listen(self, listener: Listener) -> Listening:
        """Tell `listener` what happens from now on; `end` of the answer ends it.

        Raises InvalidArgument when there are LISTENERS_MAX already, NotReady when the host has
        stopped: nothing happens there any more.
        """
        if self._stopped:
            raise NotReady("the host has stopped")
        self._others = [one for one in self._others if not one.ended]
        if len(self._others) >= bounds.LISTENERS_MAX:
            raise InvalidArgument(
                f"a host has at most {bounds.LISTENERS_MAX} listeners", field="listener"
            )
        listening = Listening(listener)
        self._others.append(listening)
        return listening

    def tell(self, event: HostEvent) -> None:
        """Something has happened."""
        self._own(event)
        for one in self._others:
            if not one.ended:
                one.put(event)

    async def stop(self) -> None:
        """Tell them that the host stops, and wait until they know, for LISTENER_STOP_S each."""
        self.tell(HostStopping())
        self._stopped = True
        others, self._others = self._others, []
        for one in others:
            one.end()
        for one in others:
            await asyncio.to_thread(one.join, bounds.LISTENER_STOP_S)
