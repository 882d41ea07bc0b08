"""Bootstrap: the first life of the cluster and of every shard.

Theory of operation. A shard begins with one decision in the replicated state: on which stores, and
in which data directories, its first replicas live. That membership is recorded as `initial` and
never decided again, neither when no replica is reported nor when all stores are gone. The shard's
replicas are then started like any other member that does not run on its live store: the command is
delivered again until it is acknowledged.

INV-HK-BOOTSTRAP-ONCE: a shard's initial membership is written at most once.

All initial replicas begin from the same snapshot at (index 1, term 1), so the initial membership's
change epoch is 1. Replica ids come from one counter and are never reused; those of shard 0's first
replicas are below HAKEEPER_FIRST_REPLICA_ID.

The deadline of the first start counts replicated ticks; `phase` says what follows when it passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.phase import BY_PERSON, Phase
from logservice.hakeeper.commands.policy import Policy
from logservice.hakeeper.commands.proposals import CreateShard, InitialCluster, Joining, SetPhase
from logservice.hakeeper.logs.change import named, wrong_wish
from logservice.hakeeper.logs.creations import remember, repeated
from logservice.hakeeper.marks import mark
from logservice.hakeeper.repair.placement import Placement
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores import cluster_version, limits
from logservice.hakeeper.stores.health import Health, healths, leader_report, majority
from logservice.hakeeper.stores.holdings import holdings, touch
from logservice.hakeeper.stores.zones import is_in, zone_of
from logservice.hakeeper.tombstones import behind_deleted, is_deleted
from logservice.ids import (
    HAKEEPER_NAME,
    HAKEEPER_SHARD,
    Incarnation,
    Index,
    ReplicaId,
    ShardId,
    StoreId,
)
from logservice.invariants import invariant
from logservice.membership import Member, Membership, MembershipCorrupt
from logservice.outcome import Applied, Outcome, Rejected

FIRST_EPOCH = Index(1)

Place = tuple[StoreId, Incarnation]
"""A store, and the data directory in it."""


def initial_membership(members: Sequence[Member], witnesses: int = 0) -> Membership:
    """The membership a shard is born with: all voters, change epoch 1. The last ones are
    `witnesses`.
    """
    ordered = tuple(sorted(members, key=lambda member: member.replica_id))
    voters = tuple(member.replica_id for member in ordered)
    return Membership(
        voters=voters,
        witnesses=voters[len(voters) - witnesses :],
        change_epoch=FIRST_EPOCH,
        members=ordered,
    )


def set_phase(state: State, phase: Phase) -> None:
    """Enter a phase; its deadline starts now."""
    state.phase = phase
    state.phase_tick = state.tick
    state.dirty = True


def apply_initial(state: State, proposal: InitialCluster) -> Outcome:
    """The first configuration; later ones change nothing. `data` of the outcome is the phase.

    Rejected: INVALID_ARGUMENT{field}.
    """
    if state.phase is not Phase.CREATED:
        return Applied(data=state.phase.encode(), duplicate=True)
    try:
        membership = Membership.decode(proposal.membership)
    except MembershipCorrupt:
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "membership"})
    if initial_membership(membership.members) != membership or not membership.voters:
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "membership"})
    if max(membership.voters) >= bounds.HAKEEPER_FIRST_REPLICA_ID:
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "membership"})
    names = {spec.name for spec in proposal.log_shards} | {HAKEEPER_NAME}
    if len(names) != len(proposal.log_shards) + 1:
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "log_shards"})
    state.cluster_id = proposal.cluster_id
    state.default_replicas = proposal.replicas
    state.store_timeout_ticks = proposal.store_timeout_ticks
    state.joining = proposal.joining
    if proposal.joining is not Joining.AUTOMATIC:
        # A store that joined before the configuration came has to ask again.
        known = {member.store_id for member in membership.members}
        state.stores = {name: store for name, store in state.stores.items() if name in known}
    hakeeper = ShardState(HAKEEPER_SHARD, HAKEEPER_NAME, len(membership.voters), state.tick)
    _bear(hakeeper, membership)
    state.shards[HAKEEPER_SHARD] = hakeeper
    for spec in proposal.log_shards:
        shard_id = _unused_shard_id(state)
        state.shards[shard_id] = ShardState(shard_id, spec.name, spec.replicas, state.tick)
    set_phase(state, Phase.BOOTSTRAPPING)
    return Applied(data=state.phase.encode())


def apply_create(state: State, proposal: CreateShard) -> Outcome:
    """A new log shard, placed at once; `value` of the outcome is its id.

    Rejected: NOT_READY before the first shards are placed, SHARD_EXISTS{shard}, SHARD_DELETED
    {shard} for the id of a deleted log, INVALID_ARGUMENT{field}, NOT_ENOUGH_STORES{wanted,
    available}, BUSY when there are HAKEEPER_SHARDS_MAX.
    """
    again = repeated(state, proposal)
    if again is not None:
        return again
    if state.phase not in (Phase.COMMANDS_RECEIVED, Phase.RUNNING):
        return Rejected(Reason.NOT_READY, {"phase": state.phase.value})
    if is_deleted(state, proposal.shard):
        return Rejected(Reason.SHARD_DELETED, {"shard": str(proposal.shard)})
    if proposal.shard != HAKEEPER_SHARD and proposal.shard in state.shards:
        return Rejected(Reason.SHARD_EXISTS, {"shard": str(proposal.shard)})
    if len(state.shards) >= bounds.HAKEEPER_SHARDS_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_SHARDS_MAX)})
    if state.cluster_version >= 2:
        problem = wrong_wish(proposal.replicas, proposal.labels, proposal.policy)
        if problem is not None:
            return problem
    shard_id = proposal.shard or _unused_shard_id(state)
    name = proposal.name or f"shard-{shard_id}"
    known = named(state, name)
    if known is not None:
        return Rejected(Reason.SHARD_EXISTS, {"shard": str(known.shard), "name": name})
    shard = ShardState(
        shard_id,
        name,
        proposal.replicas or state.default_replicas,
        state.tick,
        policy=proposal.policy,
        labels=dict(sorted(proposal.labels.items())),
        witnesses=proposal.witnesses,
    )
    if shard.witnesses and not 2 * shard.witnesses < shard.wanted:
        why = f"fewer than half of {shard.wanted} replicas"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "witnesses", "why": why})
    refused = limits.refusal(state, shard_id, shard.policy)
    if refused is not None:
        return refused
    placement = Placement(state)
    stores = placement.choose(shard, shard.wanted)
    if len(stores) < shard.wanted:
        return Rejected(
            Reason.NOT_ENOUGH_STORES,
            {"wanted": str(shard.wanted), "available": str(len(stores))},
        )
    state.shards[shard_id] = shard
    # The witnesses come last: the better places, and those where the leader shall be, are for
    # replicas that store records.
    home = shard.policy.leader_zone
    if home and shard.witnesses:
        stores = sorted(stores, key=lambda store: not is_in(zone_of(store), home))
    _place(state, shard, [(store.store, placement.directory(store)) for store in stores])
    remember(state, proposal, shard_id)
    limits.changed(state, Policy(), shard)
    return Applied(value=shard_id)


def apply_set_phase(state: State, proposal: SetPhase) -> Outcome:
    """A person's transition; `data` is the phase afterwards, changed or not."""
    if (state.phase, proposal.phase) in BY_PERSON:
        set_phase(state, proposal.phase)
    return Applied(data=state.phase.encode())


def place_first_shards(state: State) -> str:
    """Place every log shard of InitialCluster, or none. The answer says what is missing."""
    newest = max((store.first_tick for store in state.stores.values()), default=0)
    quiet_since = max(newest, state.phase_tick)
    if quiet_since + bounds.HAKEEPER_PLACEMENT_QUIET_TICKS > state.tick:
        state.dirty = True
        return "bootstrap: waiting for stores"
    missing, _ = _first_places(state)
    if missing:
        return missing
    # The cluster version says what counts in the choice.
    cluster_version.begin(state)
    missing, choices = _first_places(state)
    if missing:
        return missing
    for shard, chosen in choices:
        _place(state, shard, chosen)
    set_phase(state, Phase.COMMANDS_RECEIVED)
    return ""


def _first_places(state: State) -> tuple[str, list[tuple[ShardState, Sequence[Place]]]]:
    """Places for the shards of InitialCluster, and what is missing to find them for all."""
    placement = Placement(state)
    choices: list[tuple[ShardState, Sequence[Place]]] = []
    for shard in state.sorted_shards():
        if shard.initial:
            continue
        stores = placement.choose(shard, shard.wanted)
        if len(stores) < shard.wanted:
            missing = f"shard {shard.shard} wants {shard.wanted} stores, {len(stores)} fit"
            return f"bootstrap: {missing}", []
        places = [(store.store, placement.directory(store)) for store in stores]
        for place in places:
            placement.take(shard.shard, *place)
        choices.append((shard, places))
    return "", choices


def judge(state: State) -> str:
    """Find out whether the first start has succeeded or failed. The answer says what is missing.

    Success counts replicas that are *running* and a leader, not what a membership lists. It counts
    them against the voters that there are: a person may want more of a log already, and those come
    only once the cluster runs (seed 16000064).
    """
    for shard in _doubtful(state):
        if shard.deleting_tick:
            continue
        up = sum(
            found is Health.ALIVE
            for replica, found in healths(state, shard).items()
            if replica in shard.members.voters or state.cluster_version < 2
        )
        voters = len(shard.members.voters) if state.cluster_version >= 2 else shard.wanted
        if up >= majority(voters) and leader_report(state, shard) is not None:
            continue
        late = state.phase_tick + bounds.HAKEEPER_BOOTSTRAP_TICKS_MAX < state.tick
        if late and state.phase is Phase.COMMANDS_RECEIVED:
            set_phase(state, Phase.BOOTSTRAP_FAILED)
        return f"bootstrap: shard {shard.shard} has {up} of {voters} replicas up or no leader"
    set_phase(state, Phase.RUNNING)
    return ""


def _doubtful(state: State) -> list[ShardState]:
    """The shards, in their order, that may have too few replicas up or no leader. Every other one
    has all its members up (INV-HK-RESTLESS), and one of them says that it leads.
    """
    known = holdings(state)
    led = set[ShardId]().union(*known.led.values())
    found = (state.shards.keys() - led) | (state.shards.keys() & known.restless(state))
    return [state.shards[number] for number in sorted(found)]


def allocate_replica_id(state: State) -> ReplicaId:
    """The next replica id; no other replica of any shard ever has it."""
    replica = ReplicaId(state.next_replica_id)
    state.next_replica_id += 1
    return replica


def _unused_shard_id(state: State) -> ShardId:
    # It skips the numbers that people chose for their shards, each of them at most once, and those
    # of deleted logs, a range at once: an archive may say that there were millions.
    while state.next_shard_id in state.shards or is_deleted(state, ShardId(state.next_shard_id)):
        state.next_shard_id = behind_deleted(state, ShardId(state.next_shard_id + 1))
    return ShardId(state.next_shard_id)


def _place(state: State, shard: ShardState, places: Sequence[Place]) -> None:
    members = [Member(allocate_replica_id(state), *place) for place in places]
    _bear(shard, initial_membership(members, shard.witnesses))
    shard.created_tick = state.tick
    touch(state, shard.shard)
    mark(state, shard)
    state.dirty = True


def _bear(shard: ShardState, membership: Membership) -> None:
    invariant(not shard.initial, "INV-HK-BOOTSTRAP-ONCE", shard=shard.shard)
    shard.initial = shard.membership = membership.encode()
