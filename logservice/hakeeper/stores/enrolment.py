"""Enrolment: which stores belong to the cluster, and which of them may run HAKeeper.

Theory of operation. A store joins by its first heartbeat, and by nothing else. A certificate proves
a store's name; this file decides which data directories and addresses the store may bring along.
The setting `joining` says whether every name that the peer CA signed is accepted ("automatic"), or
only a name that a person has admitted ("by-verb"). The initial members of shard 0 need no
admission. A store that is turned away is remembered for a store timeout, so that a flag can name
it; the number of those is bounded.

Shard 0 decides about all other shards. So no store gets a replica of shard 0 merely because it
joined: only initial members of shard 0 do, and stores that a person has admitted for it.

INV-HK-JOIN: no heartbeat takes a data directory that is enrolled for another store. No heartbeat by
which a store joins takes the address of another store that is heard from.

INV-HK-ELIGIBLE: a new replica of shard 0 is placed only on a store that was one of its initial
members, and was not forgotten since, or was admitted for it.

INV-HK-GONE: a data directory of a store that was forgotten never belongs to the cluster again,
under whatever name it comes. The same name with an empty disk is a new store, which joins like any
other.
"""

from __future__ import annotations

from typing import Final

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import AdmitStore, Joining, SetJoining, StoreHeartbeat
from logservice.hakeeper.state import Applicant, State
from logservice.hakeeper.stores import cluster_version
from logservice.hakeeper.stores.health import silent
from logservice.hakeeper.stores.recovered import is_sibling
from logservice.ids import HAKEEPER_SHARD, StoreId
from logservice.membership import decoded
from logservice.outcome import Applied, Outcome, Rejected

_RECOVERIES_SINCE: Final = 2
"""The first cluster version at which shard 0 can be recovered."""


def eligible(state: State, store: StoreId) -> bool:
    """INV-HK-ELIGIBLE: whether the store may get a replica of shard 0."""
    return _initial(state, store) or state.admitted.get(store, False)


def refusal(state: State, beat: StoreHeartbeat) -> Rejected | None:
    """Why the heartbeat is refused, or None when it is accepted. A refusal is noted for a flag."""
    known = state.stores.get(beat.store)
    why = cluster_version.refusal(state, beat.labels) or _taken(state, beat)
    if not why and state.cluster_version >= _RECOVERIES_SINCE and is_sibling(state, beat):
        why = "it runs a HAKeeper of another recovery of shard 0"
    if not why and known is None and not _may_join(state, beat.store):
        why = "not admitted"
    if not why:
        state.applicants.pop(beat.store, None)
        return None
    if beat.store not in state.applicants:
        while len(state.applicants) >= bounds.HAKEEPER_APPLICANTS_MAX:
            oldest = min(state.applicants.items(), key=lambda one: (one[1].tick, one[0]))
            del state.applicants[oldest[0]]
        state.dirty = True
    state.applicants[beat.store] = Applicant(state.tick, why)
    return Rejected(Reason.PERMISSION_DENIED, {"joining": why})


def apply_admit(state: State, admit: AdmitStore) -> Outcome:
    """Admit a store, whether it has joined already or not. Rejected: NOT_READY, BUSY."""
    if state.phase is Phase.CREATED:
        return Rejected(Reason.NOT_READY, {"phase": state.phase.value})
    if admit.store not in state.admitted and len(state.admitted) >= bounds.HAKEEPER_STORES_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_STORES_MAX)})
    state.admitted[admit.store] = admit.hakeeper or state.admitted.get(admit.store, False)
    state.applicants.pop(admit.store, None)
    state.dirty = True
    return Applied()


def apply_joining(state: State, change: SetJoining) -> Outcome:
    """Set how stores join from now on. A store that has joined stays. Rejected: NOT_READY."""
    if state.phase is Phase.CREATED:
        return Rejected(Reason.NOT_READY, {"phase": state.phase.value})
    state.joining = change.joining
    return Applied()


def flags(state: State) -> list[str]:
    """One flag for each store that was turned away lately."""
    found = []
    for name, applicant in sorted(state.applicants.items()):
        if applicant.why == "not admitted":
            found.append(f"store {name} waits to be admitted: logctl admit {name}")
        else:
            found.append(f"store {name} was turned away: {applicant.why}")
    return found


def expire(state: State) -> None:
    """Forget a store that was turned away once it does not ask any more."""
    for name, applicant in list(state.applicants.items()):
        if silent(state, applicant.tick):
            del state.applicants[name]
            state.dirty = True


def _initial(state: State, store: StoreId) -> bool:
    if store in state.gone_stores:
        return False
    shard = state.shards.get(HAKEEPER_SHARD)
    members = decoded(shard.initial).members if shard is not None else ()
    return any(member.store_id == store for member in members)


def _may_join(state: State, store: StoreId) -> bool:
    if state.joining is Joining.AUTOMATIC:
        return True
    return store in state.admitted or _initial(state, store)


def _taken(state: State, beat: StoreHeartbeat) -> str:
    """INV-HK-JOIN: what the heartbeat names although it belongs to another store."""
    known = state.stores.get(beat.store)
    own = {one.incarnation for one in known.directories} if known is not None else set()
    new = {one.incarnation for one in beat.directories} - own
    if known is not None and not new:
        return ""
    for name, gone in sorted(state.gone_stores.items()):
        if new.intersection(gone.incarnations):
            return f"a data directory of {name}, which was forgotten"
    for other in state.sorted_stores():
        if other.store == beat.store:
            continue
        if any(one.incarnation in new for one in other.directories):
            return f"a data directory that is enrolled for {other.store}"
        if known is None and not silent(state, other.last_tick):
            theirs = {other.peer_address, other.client_address} - {""}
            if theirs & {beat.peer_address, beat.client_address}:
                return f"an address of {other.store}, which is alive"
    return ""
