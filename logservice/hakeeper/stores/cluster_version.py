"""Cluster version: when the cluster begins to do what older programs cannot.

Theory of operation. `versions` says what a cluster version is. Every store says the range of
versions that its program knows, in a label of its heartbeats. A proposal of a form that is newer
than the cluster version is refused, as a replica of the older program refuses it, so all replicas
of shard 0 agree while their programs differ.

The version is raised by one, by a person, when every store that HAKeeper knows is live and knows
the next version. A store that is away and holds a member of a shard counts, too: it may run the
older program, and its replica would not understand what follows. Such a store has to come back, or
its replicas have to be replaced. A store that is away and holds none is refused when it comes back
with the older program.

A new cluster whose stores all know a newer version begins there: nothing of it was written by an
older program.

From then on a store that does not know the version is refused, with its heartbeat as the place: it
becomes silent, and its replicas are replaced. Its data directories say the version, too, so that
an older program does not even start there (`logdb.io.data_directory`).

INV-HK-VERSION: the cluster version only grows, by one, and only when every known store is live and
knows the next one. What is said here of stores that are away is the only exception.

What remains: a store that is taken back to the older program after its last heartbeat, and less
than a store timeout before the version is raised, is found only when its next heartbeat is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from logservice_wire.errors import Reason

from logservice import bounds, versions
from logservice.hakeeper.commands.proposals import RaiseVersion
from logservice.hakeeper.marks import mark_all
from logservice.hakeeper.state import State
from logservice.hakeeper.stores.health import silent
from logservice.invariants import invariant
from logservice.outcome import Applied, Outcome, Rejected


def apply_raise(state: State, proposal: RaiseVersion) -> Outcome:
    """`value` of the outcome is the cluster version afterwards.

    Rejected: INVALID_ARGUMENT for more than one step; VERB_REFUSED{why, stores} when these stores
    are silent or do not know the version.
    """
    if proposal.version <= state.cluster_version:
        return Applied(value=state.cluster_version, duplicate=True)
    if proposal.version != state.cluster_version + 1:
        why = f"one step at a time: the next one is {state.cluster_version + 1}"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "version", "why": why})
    missing = unready(state, proposal.version)
    if missing:
        names = ",".join(missing)[: bounds.NAME_BYTES_MAX]
        return Rejected(
            Reason.VERB_REFUSED,
            {
                "why": f"not live with a program that knows version {proposal.version}: {names}",
                "forcible": "false",
                "stores": names,
                "cluster_version": str(state.cluster_version),
            },
        )
    _raise(state, proposal.version)
    return Applied(value=state.cluster_version)


def begin(state: State) -> None:
    """The first shards are placed: a new cluster takes the highest version that all stores know."""
    while not unready(state, state.cluster_version + 1):
        _raise(state, state.cluster_version + 1)


def unready(state: State, version: int) -> list[str]:
    """The stores that keep the cluster from that version, in the order of their names."""
    holding = {
        member.store_id
        for shard in state.sorted_shards()
        for member in shard.members.members
        if shard.members.contains(member.replica_id)
    }
    live = {name for name, store in state.stores.items() if not silent(state, store.last_tick)}
    return sorted(
        name
        for name in holding | live
        if name not in live or version not in versions.said(state.stores[name].labels)
    )


def refusal(state: State, labels: Mapping[str, str]) -> str:
    """Why a store with these labels cannot take part; empty if it can.

    Nobody is refused at the first version: its replicas of shard 0 do not know this rule.
    """
    known = versions.said(labels)
    if state.cluster_version == versions.FIRST or state.cluster_version in known:
        return ""
    return (
        f"the cluster is at version {state.cluster_version}, and its program knows"
        f" {known.lowest} to {known.highest}"
    )


def _raise(state: State, version: int) -> None:
    invariant(version == state.cluster_version + 1, "INV-HK-VERSION", version=version)
    state.cluster_version = version
    state.dirty = True
    mark_all(state)
