"""State: everything HAKeeper knows, and its snapshot form.

Theory of operation. The whole state is replicated: time (`tick`), what stores reported, the
operators with their steps and deadlines, and the commands that were not acknowledged yet. So a new
leader of shard 0 knows exactly what the old one was doing. The structs are plain data; the modules
beside this one decide how they change.

Determinism: dictionaries keep insertion order, and a replica that recovered from a snapshot
inserted in another order than one that did not. So nothing may iterate over a dictionary of the
state without sorting its keys (`sorted_stores` and its like). `save` sorts before it encodes, so
that equal states give equal bytes.

Bytes: version byte, then the MessagePack array of `State`, in the form of its cluster version
(`versioned`).
"""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct, field

from logservice import bounds, versions
from logservice.hakeeper.commands.balancing import Balancing
from logservice.hakeeper.commands.cluster_events import Feed
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.policy import Policy
from logservice.hakeeper.commands.proposals import DirectoryReport, Joining, ReplicaReport
from logservice.hakeeper.commands.quotas import IdentityQuota
from logservice.hakeeper.commands.store_commands import AnyCommand, QueuedCommand
from logservice.hakeeper.commands.verbs import Errand, StoreMode, WorkState
from logservice.hakeeper.commands.versioned import Versioned
from logservice.ids import (
    HAKEEPER_SHARD,
    NO_REPLICA,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.membership import Membership, decoded
from logservice.snapshot import SnapshotCorrupt


class StoreState(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
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
    mode: StoreMode = StoreMode.OPEN
    mode_reason: str = ""
    repair_off_until: int = 0
    """Until this tick nothing of the store is replaced; see `standing`."""
    repair_off_reason: str = ""
    steady_since: int = 0
    """The tick of the first heartbeat of its process, or of the first one after a gap."""
    failed_since: dict[Incarnation, int] = {}
    """The data directories that fail, and since which tick."""
    stuck: tuple[tuple[ShardId, ReplicaId], ...] = ()
    """Replicas that apply nothing, as the store last said."""
    access_version: int = 0
    """The access list that is in force there, as the store last said."""
    stuck_since: dict[ReplicaId, int] = {}
    """Since which tick the store says so of each of those in `stuck`."""
    drained: tuple[Incarnation, ...] = ()
    """The data directories that people drain (`wishes.directories`), in ascending order; also those
    that the store does not report now."""

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

    @property
    def taking(self) -> list[DirectoryReport]:
        """The data directories that may get a replica: they work, and nobody drains them."""
        return [
            one
            for one in self.directories
            if not one.failed and one.incarnation not in self.drained
        ]


class Replayed(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """How far a service has replayed a log. `since`: the index of the entry that first said so.
    `behind_since`: the tick since when the log has had more and `lsn` did not move, else 0.
    """

    lsn: Lsn
    since: Index
    behind_since: int = 0


class ServiceState(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """One of the database's own services."""

    service: str
    kind: str
    address: str
    labels: dict[str, str]
    last_tick: int
    queue: list[QueuedCommand] = []
    owner: str = ""
    replayed: dict[ShardId, Replayed] = {}
    """See `stores.service_holds`."""
    boot_id: int = 0
    """Of the process that speaks for the service; 0 when it says none."""
    sequence: int = 0
    old_boots: list[int] = []
    """Processes that spoke for it before."""
    work_state: WorkState = WorkState.WORKING
    takes_tn_shards: bool = False
    """Its newest process serves TN shards that it is given."""


class TnShard(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A unit of the database's work on a log, and the process that serves it; `stores.tn_shards`.

    service, boot_id: the process that it was given to; empty and 0 while nobody has it. replica
    grows each time it is given away. heard_tick: when the process was last heard. withdrawn_tick:
    since when answers to it do not name the TN shard any more, 0 while they do. free_tick: since
    when nobody has it.
    """

    shard: ShardId
    identity: str = ""
    service: str = ""
    boot_id: int = 0
    replica: int = 0
    serving: bool = False
    placed_tick: int = 0
    heard_tick: int = 0
    withdrawn_tick: int = 0
    free_tick: int = 0
    avoid: str = ""
    """The service that did not begin to serve it."""


class Applicant(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A store that was turned away: when it last asked, and why."""

    tick: int
    why: str


class Behind(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The furthest index that a replica behind the commit index was seen at, and since when."""

    index: Index
    tick: int


class LeaderWish(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """Until that tick the leader stays: on `store`, or where it is when that is empty."""

    store: StoreId
    until: int
    reason: str


class ShardState(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """One shard as it should be, and its newest known membership.

    initial: the membership it was bootstrapped with. It is decided at most once, and empty until
    then. started: members reported at least once. abandoned: learners that may still appear,
    although their operators were given up. lost: members whose store says that their data is gone.
    avoid: stores that could not take the shard, and until which tick. disagreement: says that two
    memberships of one epoch were reported. behind: replicas that live and have not reached the
    commit index (`standstill`). policy, labels: see `logs.change`, which counts the revisions.
    deleting_tick: when the log was deleted (`logs.deletion`), else 0.
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
    policy: Policy = Policy()
    leader_wish: LeaderWish | None = None
    labels: dict[str, str] = {}
    revision: int = 0
    deleting_tick: int = 0
    led_tick: int = 0
    """When the leadership was last handed over to balance leaders, or to bring it home."""
    directory_index: int = 0
    """The index of the entry that last changed its row of the directory; see `marks`."""
    unstuck_tick: int = 0
    """When a replica that applied nothing was last moved away; see `stuck`."""
    witnesses: int = 0
    """How many of the wanted replicas store no records; it never changes."""
    recovered: ReplicaId = NO_REPLICA
    """The replica that the shard last went on from by force; see `stores.recovered`."""

    @property
    def members(self) -> Membership:
        """The newest known membership, decoded."""
        return decoded(self.membership)


class Creation(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A request that made a log: when (an index of shard 0), which, and what it asked for (a
    digest).
    """

    index: Index
    shard: ShardId
    wish: bytes


class SentOrder(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A request that made a command for a service: which, and a digest of what it asked for."""

    command: int
    wish: bytes


class Repair(enum.StrEnum):
    """What an operator is for."""

    REPLACE = "replace"
    """Replace a lost or halted voter by a new replica."""
    ADD = "add"
    """Add a voter, because there are fewer than wanted."""
    REMOVE = "remove"
    """Remove a voter that is not wanted or needs no successor first, or a learner."""
    START = "start"
    """Start a member that its live store does not run."""
    KILL = "kill"
    """Remove the data of a replica that is no member any more."""
    MOVE = "move"
    """Replace a voter, which may be well, by a new replica on another store."""
    LEAD = "lead"
    """Hand the leadership to a voter."""
    LEARN = "learn"
    """Add a standing learner."""


class Cause(enum.StrEnum):
    """Why an operator was begun."""

    REPAIR = "repair"
    DRAIN = "drain"
    WISH = "wish"
    """A one-time wish, or the wish where a leader shall be."""
    BALANCE = "balance"
    """Stores that have more than others."""
    ZONE = "zone"
    """Voters, or the leader, are not in the zones where the policy wants them."""
    STUCK = "stuck"
    """A replica that applies nothing."""


BRINGS_VOTER = frozenset({Repair.REPLACE, Repair.ADD, Repair.MOVE})
BRINGS_REPLICA = BRINGS_VOTER | {Repair.LEARN}
CHANGES_MEMBERSHIP = BRINGS_REPLICA | {Repair.REMOVE}


class Operator(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A repair under way. It ends when the reported state says so.

    replica: the new replica (BRINGS_REPLICA), else the one that the repair is about. old: the
    replica to remove. store and incarnation: where `replica` is or shall be. command and target:
    what was last queued, and for which store. failures: how often `replica` could not be started.
    wish: the one-time wish that it is for. cancelled: a person gave it up. promotes: `replica` was
    a standing learner. witness: `replica` stores no records. heard, driven_tick, said: see
    `stores.drives`.
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
    cause: Cause = Cause.REPAIR
    wish: int = 0
    cancelled: bool = False
    promotes: bool = False
    witness: bool = False
    heard: bool = False
    """Something happened to it since it was driven."""
    driven_tick: int = 0
    """When it was driven last, or was left over when it began."""
    said: tuple[str, ...] = ()
    """What was to be said then; part of `flags`."""


class Wish(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A one-time wish about a replica (`verbs.WishReplica`). `ended_tick` is 0 while it is worked
    for; then `result` says what became of it. `step` says what it waits for. `tries`: how many
    operators for it were given up.
    """

    id: int
    errand: Errand
    shard: ShardId
    source: StoreId
    target: StoreId
    reason: str
    forced: bool
    created_tick: int
    step: str = ""
    tries: int = 0
    ended_tick: int = 0
    result: str = ""


class GoneStore(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A store that was forgotten: when, whether with its replicas, and its data directories, which
    never count again.
    """

    tick: int
    lost: bool
    incarnations: tuple[Incarnation, ...]


class State(Struct, array_like=True, forbid_unknown_fields=True, dict=True):
    """The whole state. `flags`: what needs a person's attention, and since which tick. `dirty`:
    whether something changed that the checkers have not seen. `holdings` are kept with it, as an
    attribute that is no field.
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
    cluster_version: int = versions.FIRST
    """See `stores.cluster_version`."""
    wishes: dict[int, Wish] = {}
    next_wish_id: int = 1
    repair_off_until: int = 0
    """Until this tick nothing is replaced; see `standing`."""
    repair_off_reason: str = ""
    gone_stores: dict[StoreId, GoneStore] = {}
    deleted: list[tuple[int, int]] = []
    """Ids of deleted logs, as ranges, for ever; see `tombstones`."""
    creations: dict[str, Creation] = {}
    """The newest requests for logs; see `logs.creations`."""
    balance: Balancing = Balancing()
    feed: Feed = field(default_factory=Feed)
    """The newest events of the cluster; see `feed`."""

    looks_left: int = 0
    """How many restless shards the present round has still to look at; see `check`."""
    last_look: int = 0
    """The shard that was looked at last."""
    noted: dict[ShardId, list[str]] = {}
    """What the last look at a restless shard had to say; part of `flags`."""

    directory_index: int = 0
    """The newest mark of a row of the directory; see `marks`."""
    directory_lost: int = 0
    """The newest mark of a row that is gone for good."""
    stores_index: int = 0
    """The index of the entry that last changed the list of stores."""
    limits_version: int = 0
    """Grows when the limits of a log change; see `stores.limits`."""

    last_wish: int = 0
    """The wish that was looked at last, 0 when all were; see `errands`."""
    replace_stuck: bool = True
    """Whether replicas that apply nothing are moved to other stores; see `stuck`."""
    catch_up_bytes_per_s: int = 0
    """What each store may send to members that are far behind; 0: what it is configured to."""
    sent: dict[bytes, SentOrder] = {}
    """The newest requests for commands to services; see `stores.orders`."""
    tn_shards: dict[int, TnShard] = {}
    next_tn_shard: int = 1
    recovered_tick: int = 0
    """When shard 0 was last rebuilt from an old copy of itself; see `stores.recovered`."""
    tail_read_bytes_per_s: int = 0
    """What each store may read for clients whose entries are in memory; the next: on the disk; 0:
    what it is configured to."""
    catch_up_read_bytes_per_s: int = 0
    denied: dict[str, dict[str, tuple[str, ...]]] = {}
    """Identity, or how identities begin -> scope -> roles that are denied; see `access`."""
    quotas: dict[str, IdentityQuota] = {}
    """By identity; that of "" is of every identity. See `stores.quotas`."""
    quotas_version: int = 0
    ids_from: int = 1
    """Where the ids of a key begin that has given out none yet; see `given_out`."""

    def sorted_stores(self) -> list[StoreState]:
        """All stores, by store id."""
        return [self.stores[store] for store in sorted(self.stores)]

    def sorted_shards(self) -> list[ShardState]:
        """All shards, by shard id: shard 0, which everything else depends on, comes first."""
        return [self.shards[shard] for shard in sorted(self.shards)]

    def sorted_operators(self) -> list[Operator]:
        """All operators, the oldest first."""
        return [self.operators[operator] for operator in sorted(self.operators)]

    def sorted_wishes(self) -> list[Wish]:
        """The one-time wishes that are worked for, the oldest first."""
        return [wish for _, wish in sorted(self.wishes.items()) if not wish.ended_tick]

    def hakeeper_membership(self) -> bytes:
        """Shard 0's newest known membership, encoded; empty before InitialCluster."""
        shard = self.shards.get(HAKEEPER_SHARD)
        return shard.membership if shard is not None else b""


_VERSIONS: Final = {1: b"\x05", 2: b"\x06"}
_form: Final[Versioned[State]] = Versioned(State, _VERSIONS, SnapshotCorrupt)


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
    state.denied = dict(sorted(state.denied.items()))
    state.quotas = dict(sorted(state.quotas.items()))
    state.admitted = dict(sorted(state.admitted.items()))
    state.applicants = dict(sorted(state.applicants.items()))
    state.wishes = dict(sorted(state.wishes.items()))
    state.gone_stores = dict(sorted(state.gone_stores.items()))
    state.creations = dict(sorted(state.creations.items()))
    state.sent = dict(sorted(state.sent.items()))
    state.tn_shards = dict(sorted(state.tn_shards.items()))
    state.noted = dict(sorted(state.noted.items()))
    for store in state.stores.values():
        _sort(store, "labels", "replicas", "forgotten", "failed_since", "stuck_since")
    for service in state.services.values():
        _sort(service, "labels", "replayed")
    for shard in state.shards.values():
        # Of these there are most, and hardly one has two of anything.
        if (
            len(shard.avoid) > 1
            or len(shard.abandoned) > 1
            or len(shard.behind) > 1
            or len(shard.labels) > 1
        ):
            _sort(shard, "avoid", "abandoned", "behind", "labels")
    return _form.encode(state, state.cluster_version)


def _sort(row: Struct, *names: str) -> None:
    # Most of these are empty, and there are many rows.
    for name in names:
        known = getattr(row, name)
        if len(known) > 1:
            setattr(row, name, dict(sorted(known.items())))


def load(data: bytes) -> State:
    """Inverse of `save`; `b""` is the state before the first entry. Raises SnapshotCorrupt."""
    if not data:
        return State()
    state, version = _form.decode(data)
    if state.cluster_version != version:
        raise SnapshotCorrupt(f"a state of cluster version {state.cluster_version} as {version}")
    return state
