"""Access: who may do what with which shard, as data and as one decision.

Theory of operation. The access list is a set of grants ``(identity, scope, roles)``; what is not
granted is denied. A scope is one of::

    *            everything: every shard, and the cluster itself
    cluster      what belongs to no shard: cluster state, ids, new shards, the access list
    shard/7      one shard
    name/wal     the shard of that name
    name/wal-*   every shard whose name begins so; shards created later too

Roles are independent of each other: ADMIN over a shard does not allow reading its records. Whoever
has ADMIN over the cluster can grant itself anything, and each grant leaves a trail.

The list is replicated in shard 0 (`hakeeper.stores.access`) and changes as a whole; its version
tells two states apart. This file alone decides what a grant means. The decision is pure, so it is
the same on every store.

References: THREAT_MODEL.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from logservice_wire.errors import InvalidArgument
from logservice_wire.roles import Role
from logservice_wire.value import value

from logservice.bounds import NAME_BYTES_MAX
from logservice.identity import IdentityKind, parse_uri
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.safe_text import unsafe

EVERYTHING: Final = "*"
CLUSTER: Final = "cluster"
_SHARD_SCOPE: Final = re.compile(r"shard/([1-9][0-9]{0,17})", re.ASCII)
_NAME_SCOPE: Final = re.compile(rf"name/([^*]{{0,{NAME_BYTES_MAX}}})(\*?)")

_SOME_SHARD: Final = ShardId(-1)
"""A log whose id no scope names."""


@value
class Grant:
    """`roles` of `identity` (a client's URI) over `scope`; roles are sorted, without repetition."""

    identity: str
    scope: str
    roles: tuple[str, ...]


def checked_roles(roles: Iterable[str]) -> tuple[str, ...]:
    """`roles`, sorted and without repetition. Raises InvalidArgument for what is no role."""
    try:
        return tuple(sorted({Role(role) for role in roles}))
    except ValueError as error:
        known = ", ".join(Role)
        raise InvalidArgument(f"{error}; roles are: {known}", field="roles") from error


def check_grantee(identity: str, scope: str) -> None:
    """Raises InvalidArgument when a grant to `identity` over `scope` could never take effect."""
    found = parse_uri(identity)
    if found is None or found.kind is not IdentityKind.CLIENT:
        raise InvalidArgument(
            "expected spiffe://<trust domain>/cluster/<cluster id>/client/<name>", field="identity"
        )
    if scope in (EVERYTHING, CLUSTER) or _SHARD_SCOPE.fullmatch(scope):
        return
    match = _NAME_SCOPE.fullmatch(scope)
    if match is None or unsafe(scope) or match.group(0) == "name/":
        raise InvalidArgument(
            "expected *, cluster, shard/<id>, name/<name> or name/<prefix>*", field="scope"
        )


class AccessList:
    """Grants, arranged for questions. Immutable; `version` names the state of the list."""

    def __init__(self, version: int = 0, grants: Iterable[Grant] = ()) -> None:
        """`grants` may be in any order, and several may be of one identity."""
        self.version = version
        self.grants = tuple(grants)
        self._scopes: dict[str, list[tuple[str, frozenset[str]]]] = {}
        for grant in self.grants:
            scopes = self._scopes.setdefault(grant.identity, [])
            scopes.append((grant.scope, frozenset(grant.roles)))

    def has_some_role(self, identity: str) -> bool:
        """Whether there is any grant to `identity`, over whatever it is."""
        return any(roles for _, roles in self._scopes.get(identity, ()))

    def needs_name(self, identity: str) -> bool:
        """Whether an answer about a shard depends on the shard's name."""
        return any(scope.startswith("name/") for scope, _ in self._scopes.get(identity, ()))

    def roles(self, identity: str, shard: ShardId, name: str | None) -> frozenset[str]:
        """Roles over a shard; `HAKEEPER_SHARD` stands for the cluster. `name` None is unknown."""
        found: frozenset[str] = frozenset()
        for scope, roles in self._scopes.get(identity, ()):
            if _covers(scope, shard, name):
                found |= roles
        return found

    def roles_by_name(self, identity: str, name: str) -> frozenset[str]:
        """Roles over whatever log has that name."""
        return self.roles(identity, _SOME_SHARD, name)


def _covers(scope: str, shard: ShardId, name: str | None) -> bool:
    if scope == EVERYTHING:
        return True
    if shard == HAKEEPER_SHARD:
        return scope == CLUSTER
    kind, _, rest = scope.partition("/")
    if kind == "shard":
        return rest == str(int(shard))
    if kind != "name" or name is None:
        return False
    return name.startswith(rest[:-1]) if rest.endswith("*") else name == rest


def by_identity(grants: Mapping[str, Mapping[str, tuple[str, ...]]]) -> tuple[Grant, ...]:
    """Grants of a table identity -> scope -> roles, in a fixed order."""
    return tuple(
        Grant(identity, scope, grants[identity][scope])
        for identity in sorted(grants)
        for scope in sorted(grants[identity])
    )
