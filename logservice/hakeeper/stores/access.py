"""Access: changes of the access list in the replicated state.

Theory of operation. The list lives in shard 0, so that every store follows the same one and a
change survives whatever a majority survives. A change adds roles to, or takes roles from, one
identity over one scope; the same change twice is one change. A store learns of a change by the
answer to its next heartbeat (`heartbeats._reply`): the heartbeat says which version the store has,
and the answer carries the list when the version has changed.

Who may change it is decided at the edge, before it is proposed (`server.edge.gate`).
"""

from __future__ import annotations

from typing import Final

from logservice_wire.errors import InvalidArgument, Reason
from logservice_wire.roles import Role

from logservice import bounds
from logservice.access import by_identity, check_grantee, checked_roles
from logservice.hakeeper.commands.proposals import AccessGrant, ChangeAccess
from logservice.hakeeper.state import State
from logservice.outcome import Applied, Outcome, Rejected

_HOLD_ROLE: Final = 2
"""The first cluster version whose programs know the role."""


def apply_change(state: State, change: ChangeAccess) -> Outcome:
    """`value` of the outcome is the version of the list that has the change.

    Rejected: INVALID_ARGUMENT for an invalid identity, scope or role, or for a change without
    roles; BUSY when there are ACCESS_GRANTS_MAX grants.
    """
    try:
        check_grantee(change.identity, change.scope)
        granted, revoked = checked_roles(change.grant), checked_roles(change.revoke)
    except InvalidArgument as error:
        return Rejected(Reason.INVALID_ARGUMENT, {**error.metadata, "why": error.message})
    if state.cluster_version < _HOLD_ROLE and Role.HOLD in {*granted, *revoked}:
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "roles", "why": "needs version 2"})
    if not granted and not revoked:
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "roles", "why": "none is named"})
    scopes = state.access.get(change.identity, {})
    before = scopes.get(change.scope, ())
    after = tuple(sorted({*before, *granted} - set(revoked)))
    if after == before:
        return Applied(value=state.access_version)
    count = sum(len(one) for one in state.access.values())
    if not before and count >= bounds.ACCESS_GRANTS_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.ACCESS_GRANTS_MAX)})
    scopes = {scope: roles for scope, roles in scopes.items() if scope != change.scope}
    if after:
        scopes[change.scope] = after
    if scopes:
        state.access[change.identity] = dict(sorted(scopes.items()))
    else:
        del state.access[change.identity]
    state.access_version += 1
    return Applied(value=state.access_version)


def grants(state: State) -> tuple[AccessGrant, ...]:
    """The whole list, in a fixed order."""
    return tuple(
        AccessGrant(grant.identity, grant.scope, grant.roles) for grant in by_identity(state.access)
    )
