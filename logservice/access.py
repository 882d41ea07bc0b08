"""Access: who may do what with which shard, as data and as one decision.

Theory of operation. The access list is a set of grants ``(identity, scope, roles)``; what is not
granted is denied. Beside them stand denials, of the same form, which may name all identities that
begin so (``.../client/etl-*``) and all roles (`ALL`). A scope is one of::

    *            everything: every shard, and the cluster itself
    cluster      what belongs to no shard: cluster state, ids, new shards, the access list
    shard/7      one shard
    name/wal     the shard of that name
    name/wal-*   every shard whose name begins so; shards created later too

Roles are independent of each other: ADMIN over a shard does not allow reading its records. Whoever
has ADMIN over the cluster can grant itself anything, and each grant leaves a trail.

INV-ACCESS-3: a role that a denial covers is held by no grant there, whatever the order in which the
two were made. A denial over a shard also covers a role over the cluster that would do instead.
While the name of a shard is not known, a denial by name covers it.

The list is replicated in shard 0 (`hakeeper.stores.access`) and changes as a whole; its version
tells two states apart. This file alone decides what a grant means. The decision is pure, so it is
the same on every store.

References: THREAT_MODEL.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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

PREFIX: Final = "*"
"""Ends the identity of a denial that is about every identity that begins so."""

ALL: Final = "all"
"""In a denial: every role, those of later releases, too."""


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


def scoped_shard(scope: str) -> ShardId | None:
    """The one shard that a checked scope names by its id."""
    match = _SHARD_SCOPE.fullmatch(scope)
    return ShardId(int(match.group(1))) if match is not None else None


def denied_roles(roles: Iterable[str]) -> tuple[str, ...]:
    """`roles` of a denial: `ALL` alone, or `checked_roles`. Raises InvalidArgument."""
    found = tuple(roles)
    rest = checked_roles(role for role in found if role != ALL)
    return (ALL,) if ALL in found else rest


def check_denied(identity: str, scope: str) -> None:
    """Raises InvalidArgument when a denial to `identity` over `scope` could never take effect."""
    named = identity
    if identity.endswith(PREFIX):
        # Any name that begins so; none is needed before the star.
        named = identity[: -len(PREFIX)] + ("x" if identity.endswith(f"/{PREFIX}") else "")
    try:
        check_grantee(named, scope)
    except InvalidArgument as error:
        if error.metadata.get("field") != "identity":
            raise
        raise InvalidArgument(
            f"{error.message}, or .../client/<prefix>*", field="identity"
        ) from error


class _Rules:
    """Rules of one identity: scope and roles of each, in the order of the list."""

    __slots__ = ("by_name", "rules")

    def __init__(self) -> None:
        self.rules: list[tuple[str, frozenset[str]]] = []
        self.by_name = False
        """Whether one of them speaks of names."""

    def add(self, grant: Grant) -> None:
        self.rules.append((grant.scope, frozenset(grant.roles)))
        self.by_name = self.by_name or grant.scope.startswith("name/")


_NO_RULES: Final = _Rules()


class AccessList:
    """Grants and denials, arranged for questions. Immutable; `version` names the state of the list.

    A question costs a look-up for each length that a prefix of a denial has, however many denials
    there are.
    """

    def __init__(
        self, version: int = 0, grants: Iterable[Grant] = (), denials: Iterable[Grant] = ()
    ) -> None:
        """The rules may be in any order, and several may be of one identity."""
        self.version = version
        self.grants = tuple(grants)
        self.denials = tuple(denials)
        self._scopes: dict[str, _Rules] = {}
        self._denied: dict[str, _Rules] = {}
        for table, rules in ((self._scopes, self.grants), (self._denied, self.denials)):
            for rule in rules:
                table.setdefault(rule.identity, _Rules()).add(rule)
        self._lengths = tuple(
            sorted({len(name) - len(PREFIX) for name in self._denied if name.endswith(PREFIX)})
        )

    def has_some_role(self, identity: str) -> bool:
        """Whether there is any grant to `identity`, over whatever it is, that no denial takes over
        all of that.
        """
        denials = [rule for _, rules in self._denials_of(identity) for rule in rules.rules]
        for scope, roles in self._scopes.get(identity, _NO_RULES).rules:
            left = roles
            for where, denied in denials:
                if _all_within(scope, where):
                    left = frozenset() if ALL in denied else left - denied
            if left:
                return True
        return False

    def needs_name(self, identity: str) -> bool:
        """Whether an answer about a shard depends on the shard's name."""
        granted = self._scopes.get(identity, _NO_RULES)
        return granted.by_name or any(rules.by_name for _, rules in self._denials_of(identity))

    def roles(self, identity: str, shard: ShardId, name: str | None) -> frozenset[str]:
        """Roles over a shard; `HAKEEPER_SHARD` stands for the cluster. `name` None is unknown."""
        found: frozenset[str] = frozenset()
        for scope, roles in self._scopes.get(identity, _NO_RULES).rules:
            if _covers(scope, shard, name):
                found |= roles
        return self.without_denied(found, identity, shard, name) if found else found

    def roles_by_name(self, identity: str, name: str) -> frozenset[str]:
        """Roles over whatever log has that name."""
        return self.roles(identity, _SOME_SHARD, name)

    def without_denied(
        self, roles: frozenset[str], identity: str, shard: ShardId, name: str | None
    ) -> frozenset[str]:
        """Those of `roles` that no denial over the shard covers (INV-ACCESS-3)."""
        for _, rules in self._denials_of(identity):
            for scope, denied in rules.rules:
                if _covers(scope, shard, name, unknown=True):
                    roles = frozenset() if ALL in denied else roles - denied
        return roles

    def without_denied_name(
        self, roles: frozenset[str], identity: str, name: str
    ) -> frozenset[str]:
        """The same over whatever log has that name."""
        return self.without_denied(roles, identity, _SOME_SHARD, name)

    def granting(self, identity: str, role: str, shard: ShardId, name: str | None) -> list[Grant]:
        """The grants that give the role there, unless a denial takes it."""
        return [
            one
            for one in self.grants
            if one.identity == identity and role in one.roles and _covers(one.scope, shard, name)
        ]

    def denying(self, identity: str, role: str, shard: ShardId, name: str | None) -> list[Grant]:
        """The denials that cover the role there."""
        of = {name for name, _ in self._denials_of(identity)}
        return [
            one
            for one in self.denials
            if one.identity in of
            and (role in one.roles or ALL in one.roles)
            and _covers(one.scope, shard, name, unknown=True)
        ]

    def _denials_of(self, identity: str) -> Iterator[tuple[str, _Rules]]:
        """The denials that are about the identity, by what they call it."""
        if not self._denied:
            return
        prefixes = (identity[:one] + PREFIX for one in self._lengths if one <= len(identity))
        for called in (identity, *prefixes):
            found = self._denied.get(called)
            if found is not None:
                yield called, found


def _covers(scope: str, shard: ShardId, name: str | None, *, unknown: bool = False) -> bool:
    """`unknown`: what to say of a scope by name while the name is not known."""
    if scope == EVERYTHING:
        return True
    if shard == HAKEEPER_SHARD:
        return scope == CLUSTER
    kind, _, rest = scope.partition("/")
    if kind == "shard":
        return rest == str(int(shard))
    if kind != "name":
        return False
    if name is None:
        return unknown
    return name.startswith(rest[:-1]) if rest.endswith("*") else name == rest


def _all_within(scope: str, where: str) -> bool:
    """Whether `where` covers whatever `scope` does, as far as the two say so themselves."""
    if where in (EVERYTHING, scope):
        return True
    begins = where.startswith("name/") and where.endswith("*")
    return begins and scope.startswith(where[:-1])


def by_identity(grants: Mapping[str, Mapping[str, tuple[str, ...]]]) -> tuple[Grant, ...]:
    """Grants or denials of a table identity -> scope -> roles, in a fixed order."""
    return tuple(
        Grant(identity, scope, grants[identity][scope])
        for identity in sorted(grants)
        for scope in sorted(grants[identity])
    )
