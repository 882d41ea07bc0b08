"""State: everything HAKeeper knows, and its snapshot form.

Theory of operation. The whole state is replicated: time (`tick`), what stores reported, the
operators with their steps and deadlines, and the commands that were not acknowledged yet. So a new
leader of shard 0 knows exactly what the old one was doing. The structs are plain data; the modules
beside this one decide how they change.

Determinism: dictionaries keep insertion order, and a replica that recovered from a snapshot
inserted in another order than one that did not. So nothing may iterate over a dictionary of the
state without sorting its keys (`sorted_stores` and its like). `save` sorts before it encodes, so
that equal states give equal bytes.

Bytes: version byte, then the MessagePack array of `State`.
"""

from __future__ import annotations

import enum
import functools

import msgspec
from msgspec import Struct

from logservice import bounds
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import DirectoryReport, Joining, ReplicaReport
from logservice.hakeeper.commands.store_commands import AnyCommand, QueuedCommand
from logservice.ids import (
    HAKEEPER_SHARD,
    NO_REPLICA,
    Incarnation,
    Index,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.membership import Membership
from logservice.snapshot import SnapshotCorrupt

_VERSION = b"\x05"


class StoreState(Struct, array_like=True, forbid_unknown_fields=True):
    """One store.

    live_since: the tick of its first heartbeat, or of the first one after it had expired.
    directories: its data directories as last reported. directories_tick: when one of them was last
    found to be gone, or the first ones were reported. forgotten: replicas whose log ends before
    entries that were durable there (`heartbeats`, INV-HK-GONE-BACK).
    """

    store: StoreId
    host: str
    peer_address: str
    client_address: str
    directories: tuple[DirectoryReport, ...]
    boot_id: int
    sequence: int
    first_tick: int
    last_tick: int
    live_since: int
    directories_tick: int
    expired: bool = False
    old_boots: list[int] = []
    labels: dict[str, str] = {}
    replicas: dict[ShardId, ReplicaReport] = {}
    stored: tuple[tuple[ShardId, ReplicaId], ...] = ()
    queue: list[QueuedCommand] = []
    forgotten: dict[ShardId, tuple[ReplicaId, Index]] = {}

    @property
    def host_label(self) -> str:
        """Machine label; without one a store counts as its own machine."""
        return self.host or self.store

    def directory(self, incarnation: Incarnation) -> DirectoryReport | None:
        """The data directory with this incarnation; None when the store has none such now."""
        for directory in self.directories:
            if directory.incarnation == incarnation:
                return directory
        return None

    def uses(self, incarnation: Incarnation) -> bool:
        """Whether the store has the data directory, and that directory did not fail."""
        directory = self.directory(incarnation)
        return directory is not None and not directory.failed


class ServiceState(Struct, array_like=True, forbid_unknown_fields=True):
    """One of the database's own services."""

    service: str
    kind: str
    address: str
    labels: dict[str, str]
    last_tick: int
    queue: list[QueuedCommand] = []
    owner: str = ""


class Applicant(Struct, array_like=True, forbid_unknown_fields=True):
    """A store that was turned away: when it last asked, and why."""

    tick: int
    why: str


class Behind(Struct, array_like=True, forbid_unknown_fields=True):
    """The furthest index that a replica behind the commit index was seen at, and since when."""

    index: Index
    tick: int


class ShardState(Struct, array_like=True, forbid_unknown_fields=True):
    """One shard as it should be, and its newest known membership.

    initial: the membership it was bootstrapped with. It is decided at most once, and empty until
    then. started: members reported at least once. abandoned: learners that may still appear,
    although their operators were given up. lost: members whose store says that their data is gone.
    avoid: stores that could not take the shard, and until which tick. disagreement: says that two
    memberships of one epoch were reported. behind: replicas that live and have not reached the
    commit index (`standstill`).
    """

    shard: ShardId
    name: str
    wanted: int
    created_tick: int
    initial: bytes = b""
    membership: bytes = b""
    leader: ReplicaId = NO_REPLICA
    leader_term: int = 0
    started: list[ReplicaId] = []
    abandoned: dict[ReplicaId, int] = {}
    lost: list[ReplicaId] = []
    avoid: dict[StoreId, int] = {}
    disagreement: str = ""
    behind: dict[ReplicaId, Behind] = {}

    @property
    def members(self) -> Membership:
        """The newest known membership, decoded."""
        return decoded(self.membership)


class Repair(enum.StrEnum):
    """What an operator is for."""

    REPLACE = "replace"
    """Replace a lost or halted voter by a new replica."""
    ADD = "add"
    """Add a voter, because there are fewer than wanted."""
    REMOVE = "remove"
    """Remove a lost voter that needs no successor first, or an abandoned learner."""
    START = "start"
    """Start a member that its live store does not run."""
    KILL = "kill"
    """Remove the data of a replica that is no member any more."""


CHANGES_MEMBERSHIP = frozenset({Repair.REPLACE, Repair.ADD, Repair.REMOVE})


class Operator(Struct, array_like=True, forbid_unknown_fields=True):
    """A repair under way. It ends when the reported state says so.

    replica: the new replica (REPLACE, ADD), else the one that the repair is about. old: the replica
    to remove. store and incarnation: where `replica` is or shall be. command and target: what was
    last queued, and for which store. failures: how often `replica` could not be started.
    """

    id: int
    kind: Repair
    shard: ShardId
    replica: ReplicaId
    old: ReplicaId
    store: StoreId
    incarnation: Incarnation
    created_tick: int
    step: str = ""
    command_id: int = 0
    command: AnyCommand | None = None
    target: StoreId = StoreId("")
    issued_tick: int = 0
    failures: int = 0
    error: str = ""


class State(Struct, array_like=True, forbid_unknown_fields=True):
    """The whole state. `flags`: what needs a person's attention, and since which tick. `dirty`:
    whether something changed that the checkers have not seen.
    """

    phase: Phase = Phase.CREATED
    phase_tick: int = 0
    index: Index = Index(0)
    term: Term = Term(0)
    tick: int = 0
    cluster_id: str = ""
    default_replicas: int = 3
    store_timeout_ticks: int = 0
    stores: dict[StoreId, StoreState] = {}
    services: dict[str, ServiceState] = {}
    shards: dict[ShardId, ShardState] = {}
    operators: dict[int, Operator] = {}
    next_replica_id: int = bounds.HAKEEPER_FIRST_REPLICA_ID
    next_shard_id: int = 1
    next_operator_id: int = 1
    next_command_id: int = 1
    id_counters: dict[str, int] = {}
    id_requests: dict[str, int] = {}
    id_request_order: list[str] = []
    flags: dict[str, int] = {}
    dirty: bool = False
    access: dict[str, dict[str, tuple[str, ...]]] = {}
    """Identity -> scope -> roles; see `access`."""
    access_version: int = 0
    joining: Joining = Joining.AUTOMATIC
    admitted: dict[StoreId, bool] = {}
    """Stores that a person admitted; True: also for shard 0. See `enrolment`."""
    applicants: dict[StoreId, Applicant] = {}

    def sorted_stores(self) -> list[StoreState]:
        """All stores, by store id."""
        return [self.stores[store] for store in sorted(self.stores)]

    def sorted_shards(self) -> list[ShardState]:
        """All shards, by shard id: shard 0, which everything else depends on, comes first."""
        return [self.shards[shard] for shard in sorted(self.shards)]

    def sorted_operators(self) -> list[Operator]:
        """All operators, the oldest first."""
        return [self.operators[operator] for operator in sorted(self.operators)]

    def hakeeper_membership(self) -> bytes:
        """Shard 0's newest known membership, encoded; empty before InitialCluster."""
        shard = self.shards.get(HAKEEPER_SHARD)
        return shard.membership if shard is not None else b""


@functools.lru_cache(maxsize=8192)
def decoded(membership: bytes) -> Membership:
    """`Membership.decode` with a cache: the state holds bytes, and the checkers ask often."""
    return Membership.decode(membership) if membership else Membership()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)


def save(state: State) -> bytes:
    """The snapshot. It reorders dictionaries in place, which no reader can observe."""
    state.stores = dict(sorted(state.stores.items()))
    state.services = dict(sorted(state.services.items()))
    state.shards = dict(sorted(state.shards.items()))
    state.operators = dict(sorted(state.operators.items()))
    state.id_counters = dict(sorted(state.id_counters.items()))
    state.id_requests = dict(sorted(state.id_requests.items()))
    state.flags = dict(sorted(state.flags.items()))
    state.access = dict(sorted(state.access.items()))
    state.admitted = dict(sorted(state.admitted.items()))
    state.applicants = dict(sorted(state.applicants.items()))
    for store in state.stores.values():
        store.labels = dict(sorted(store.labels.items()))
        store.replicas = dict(sorted(store.replicas.items()))
        store.forgotten = dict(sorted(store.forgotten.items()))
    for service in state.services.values():
        service.labels = dict(sorted(service.labels.items()))
    for shard in state.shards.values():
        shard.avoid = dict(sorted(shard.avoid.items()))
        shard.abandoned = dict(sorted(shard.abandoned.items()))
        shard.behind = dict(sorted(shard.behind.items()))
    return _VERSION + _encoder.encode(state)


def load(data: bytes) -> State:
    """Inverse of `save`; `b""` is the state before the first entry. Raises SnapshotCorrupt."""
    if not data:
        return State()
    if data[:1] != _VERSION:
        raise SnapshotCorrupt(f"HAKeeper state version {data[:1].hex()}")
    try:
        return _decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotCorrupt(f"HAKeeper state: {error}") from error
