"""Access: changes of the access list in the replicated state.

Theory of operation. The list lives in shard 0, so that every store follows the same one and a
change survives whatever a majority survives. A change adds roles to, or takes roles from, one
identity over one scope; the same change twice is one change. Denials change likewise, in a table
of their own. A store learns of a change by the answer to its next heartbeat (`heartbeats._reply`):
the heartbeat says which version the store has, and the answer carries the list when the version has
changed.

A rule over one shard by its id is refused while there is no such shard: it would say "done" to a
slip of the pen. It may be taken away at any time.

Who may change it is decided at the edge, before it is proposed (`server.edge.gate`).
"""

from __future__ import annotations

from typing import Final

from logservice_wire.errors import InvalidArgument, Reason
from logservice_wire.roles import Role

from logservice import bounds
from logservice.access import (
    ALL,
    by_identity,
    check_denied,
    check_grantee,
    checked_roles,
    denied_roles,
    scoped_shard,
)
from logservice.hakeeper.commands.proposals import AccessGrant, ChangeAccess
from logservice.hakeeper.state import State
from logservice.outcome import Applied, Outcome, Rejected

_HOLD_ROLE: Final = 2
"""The first cluster version whose programs know the role."""

_SCOPES_CHECKED: Final = 2
"""The first cluster version at which a rule is about a log that there is."""


def apply_change(state: State, change: ChangeAccess) -> Outcome:
    """`value` of the outcome is the version of the list that has the change.

    Rejected: INVALID_ARGUMENT for an invalid identity, scope or role, for a change without
    roles, or for one of grants and denials at once; BUSY when there are ACCESS_GRANTS_MAX
    grants, or ACCESS_DENIALS_MAX denials.
    """
    if change.deny or change.undeny:
        return _change_denial(state, change)
    try:
        check_grantee(change.identity, change.scope)
        granted, revoked = checked_roles(change.grant), checked_roles(change.revoke)
    except InvalidArgument as error:
        return Rejected(Reason.INVALID_ARGUMENT, {**error.metadata, "why": error.message})
    if state.cluster_version < _HOLD_ROLE and Role.HOLD in {*granted, *revoked}:
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "roles", "why": "needs version 2"})
    if not granted and not revoked:
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "roles", "why": "none is named"})
    before = state.access.get(change.identity, {}).get(change.scope, ())
    after = tuple(sorted({*before, *granted} - set(revoked)))
    if set(after) - set(before) and (why := _no_log(state, change.scope)):
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "scope", "why": why})
    return _put(state, state.access, change, before, after, bounds.ACCESS_GRANTS_MAX)


def _change_denial(state: State, change: ChangeAccess) -> Outcome:
    try:
        check_denied(change.identity, change.scope)
        denied, undenied = denied_roles(change.deny), denied_roles(change.undeny)
    except InvalidArgument as error:
        return Rejected(Reason.INVALID_ARGUMENT, {**error.metadata, "why": error.message})
    if change.grant or change.revoke:
        why = "a change is of grants or of denials"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "roles", "why": why})
    before = state.denied.get(change.identity, {}).get(change.scope, ())
    if ALL in before and undenied and ALL not in undenied:
        why = f"the rule denies all roles, those of later releases, too: undeny {ALL}"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "roles", "why": why})
    if ALL in undenied:
        after = denied
    elif ALL in {*before, *denied}:
        after = (ALL,)
    else:
        after = tuple(sorted({*before, *denied} - set(undenied)))
    if set(after) - set(before) and ALL not in before and (why := _no_log(state, change.scope)):
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "scope", "why": why})
    return _put(state, state.denied, change, before, after, bounds.ACCESS_DENIALS_MAX)


def _no_log(state: State, scope: str) -> str:
    """Why a rule over the scope would be about no log; a name may be that of a later one."""
    shard = scoped_shard(scope)
    if state.cluster_version < _SCOPES_CHECKED or shard is None or shard in state.shards:
        return ""
    return f"there is no shard {shard}; name/<name> is also about one that is created later"


def _put(
    state: State,
    table: dict[str, dict[str, tuple[str, ...]]],
    change: ChangeAccess,
    before: tuple[str, ...],
    after: tuple[str, ...],
    rules_max: int,
) -> Outcome:
    """The rule of an identity and a scope has the roles `after`, and had those `before`."""
    if after == before:
        return Applied(value=state.access_version)
    count = sum(len(one) for one in table.values())
    if not before and count >= rules_max:
        return Rejected(Reason.BUSY, {"limit": str(rules_max)})
    scopes = {**table.get(change.identity, {}), change.scope: after}
    if not after:
        del scopes[change.scope]
    if scopes:
        table[change.identity] = dict(sorted(scopes.items()))
    else:
        del table[change.identity]
    state.access_version += 1
    return Applied(value=state.access_version)


def grants(state: State) -> tuple[AccessGrant, ...]:
    """All grants, in a fixed order."""
    return _rows(state.access)


def denials(state: State) -> tuple[AccessGrant, ...]:
    """All denials, in a fixed order."""
    return _rows(state.denied)


def _rows(table: dict[str, dict[str, tuple[str, ...]]]) -> tuple[AccessGrant, ...]:
    return tuple(AccessGrant(one.identity, one.scope, one.roles) for one in by_identity(table))
