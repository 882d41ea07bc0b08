"""Interfaces: what the parts of a simulated world know of each other.

Two pairs. `ObservedStore` and `ObservedWorld` are what a checker may look at, and it changes
nothing. `Store` and `World` are what clients, faults and the rogue work with. `Observer` is told
what happens. The classes themselves (`store.SimStore`, `world.World`, `checkers.checker.Checks`)
are put together in `world` alone; everything else imports this file and none of those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from logservice.entry import Entry
from logservice.ids import ClusterId, Incarnation, ShardId, StoreId
from logservice.logdb.format.update import Update
from logservice.logdb.gc.collection import GarbageCollection
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.replica.replica import Replica
from logservice.raft.messages import Message
from logservice.sealing_keys import Keys
from logservice.sim.config import SimConfig
from logservice.sim.disk import SimDisk
from logservice.sim.loop import Cost, Process, SimLoop
from logservice.sim.net import SimNet, SimTransport
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine
from logservice.versions import VersionRange

CLUSTER: Final = ClusterId("sim")
DATA_DIRECTORY: Final = "/data"


@dataclass(frozen=True, slots=True)
class Crash:
    """How a process ends. `power`: what was not synced is lost, but for the share `survive`."""

    power: bool
    survive: float = 0.0
    keep_names: bool = False


# --- what checkers observe ------------------------------------------------------------------------


class ObservedStore(Protocol):
    """A store through all its lives, as a checker sees it."""

    @property
    def store_id(self) -> StoreId: ...

    @property
    def world(self) -> ObservedWorld: ...

    @property
    def up(self) -> bool:
        """A process of it lives."""

    @property
    def parts(self) -> StoreParts | None:
        """What the present life has opened."""

    @property
    def process(self) -> Process | None: ...

    @property
    def disk(self) -> SimDisk: ...

    @property
    def clock_is_off_by_us(self) -> int:
        """How far its time of day is from the world's now."""

    def running(self, shard: ShardId) -> Replica | None:
        """Its replica of a shard, None when none runs."""

    def replicas(self) -> list[Replica]:
        """Its running replicas, by shard."""


class ObservedWorld(Protocol):
    """The world as a checker sees it."""

    @property
    def config(self) -> SimConfig: ...

    @property
    def now_s(self) -> float:
        """Virtual time."""

    @property
    def stores(self) -> Sequence[ObservedStore]: ...

    @property
    def cluster_version(self) -> int:
        """The highest that a running store has learned."""


class Observer(Protocol):
    """Who is told what happens, when it happens."""

    def sent(self, store: ObservedStore, shard: ShardId, message: Message) -> None:
        """A replica hands a message to its transport."""

    def finished(
        self,
        store: ObservedStore,
        parts: StoreParts,
        group: CommitGroup,
        updates: Sequence[Update],
    ) -> None:
        """Log storage says that a group is durable."""

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        """A state machine has applied an entry."""

    def started(self, store: ObservedStore, parts: StoreParts) -> None:
        """A new life has recovered its log storage and will serve next."""

    def collecting(self, store: ObservedStore, collection: GarbageCollection) -> None:
        """A garbage collection is planned, and nothing of it is done."""

    def collected(self, store: ObservedStore, collection: GarbageCollection) -> None:
        """It has ended, and not for lack of room."""


# --- what everybody else works with ---------------------------------------------------------------


class ArmedDamage(Protocol):
    """Damage that waits for its moment; see `faults.damage`."""

    @property
    def armed(self) -> frozenset[str]:
        """The moments that it waits for."""

    def arm(self, *, sectors: Callable[[], bool]) -> None:
        """The next moment of a kind that chance chooses is the one."""

    def strike_anyhow(self) -> None:
        """The moment did not come in time."""


class Store(ObservedStore, Protocol):
    """A store as clients, faults and the rogue see it."""

    stall_s: float
    """By how much longer every disk operation takes."""

    cost: Cost
    """What the turns of its loop take."""

    versions: VersionRange
    """What the program of its next life knows."""

    ring: Keys | None
    """What it encrypts its entries with."""

    @property
    def number(self) -> int: ...

    @property
    def world(self) -> World: ...

    @property
    def address(self) -> str: ...

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of its first data directory in the newest life."""

    @property
    def directories(self) -> list[str]: ...

    @property
    def transport(self) -> SimTransport | None: ...

    @property
    def damage(self) -> ArmedDamage: ...

    @property
    def halted(self) -> frozenset[ShardId]:
        """Shards whose replica here cannot be trusted."""

    @property
    def gave_up_a_directory(self) -> bool:
        """The running store does not use one of its data directories."""

    def crash(self, crash: Crash) -> None:
        """End the process now."""

    def crash_inside(self, crash: Crash, calls: int) -> None:
        """End the process inside one of its next disk calls."""

    def stop(self) -> None:
        """End it in good order."""

    def lose_disk(self) -> None:
        """The next life begins with an empty disk."""

    def kill_directory(self) -> None:
        """The disk of one data directory is gone, for good."""

    def fail_disk(self, number: int, calls: int) -> None:
        """One of the next disk calls fails."""

    def fail_read(self, reads: int) -> None:
        """One of the next reads of a segment fails."""

    def fill_disk(self, left_bytes: int) -> None:
        """The disk is full but for some bytes."""


class World(ObservedWorld, Protocol):
    """The world as its parts see it."""

    loop: SimLoop
    net: SimNet
    oracle: Oracle
    counts: Counter[str]

    @property
    def stores(self) -> Sequence[Store]: ...

    @property
    def shards(self) -> Sequence[ShardId]:
        """The log shards."""

    @property
    def checks(self) -> Observer: ...

    @property
    def healing(self) -> bool:
        """The faults are over."""

    @property
    def client_names(self) -> list[str]:
        """The endpoints of the clients."""

    def note(self, kind: str, *what: object) -> None:
        """An event for the trace."""

    def violate(self, checker: str, detail: str, error: BaseException | None = None) -> None:
        """Something is wrong."""

    def state(self) -> str:
        """All replicas in one line, for reports."""

    def listens(self, store: Store, transport: SimTransport) -> None:
        """A new life of a store has a transport."""

    def died(self, store: Store) -> None:
        """Its process ended."""
