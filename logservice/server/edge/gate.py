"""Gate: who is calling, and whether this caller may do that. Every RPC passes here first.

Theory of operation. The caller is the identity in its connection's certificate; the gate reads it
from the certificate itself (`logservice.certificate`), once per chain. Where tokens are configured
it may be that of the call's bearer token instead (`server.tokens`), which is checked once, too. A
call that shows both is refused unless both are of one identity, and lasts as long as both do. The
access list in force on
this store (`nodehost.agent.access_book`) decides what the caller may do. The decision is remembered
until the list changes, so an RPC costs a look-up; a stream asks once, and again only when the list
has another version. Grants may speak of names of shards. HAKeeper is asked for an unknown one, and
the answer is remembered as long: a renamed shard gives the list another version. A denial is final
to a client, so only what is known is denied: while HAKeeper is silent, what the store does not know
to be granted is neither let in nor denied.

Without TLS there are no identities: everybody is `ANONYMOUS` and may do everything. That is what
plaintext on loopback means, and the configuration had to say so.

INV-GATE-1: what is not granted is not let in. That includes a call with no row in `RPCS`, no
identity, no list, or no answer from HAKeeper about a name.
INV-GATE-2: a decision is used only with the version of the access list, the revocation lists and
the issuer's keys that it was made by, and never after the certificate or token it rests on has
expired (`clock.Expiry`: no step of the wall clock prolongs it), or the list is so old that it
grants nothing.
INV-GATE-3: a denial is said only of what is known: by a list that is HAKeeper's present one, and a
name that is as new, or no name. What cannot be told is NOT_READY{directory}.
INV-GATE-4: a caller that shows a certificate and a token is let in only if both are good and of one
identity.
INV-GATE-5: no quota of identities, whatever its values, keeps an administrator whom this store's
configuration names from the calls that take it back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cryptography import x509
from logservice_wire.errors import LogServiceError, NotReady, PermissionDenied, Unauthenticated
from logservice_wire.rpcs import Rpc

from logservice import bounds
from logservice.access import AccessList
from logservice.certificate import Bearer, Purpose, Serial, read_chain, too_long_a_path
from logservice.clock import NEVER, Clock, Expiry, SystemClock
from logservice.identity import IdentityKind
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.nodehost.agent.access_book import AccessBook
from logservice.owner import ANONYMOUS
from logservice.revocation import Revocations
from logservice.server.edge.call import Context
from logservice.server.edge.quota import Quota, QuotaLimits
from logservice.server.tokens.jwks import Keys
from logservice.server.tokens.token_check import CheckedToken, Tokens, bearer_token

calling: Final[ContextVar[str]] = ContextVar("calling")
"""The identity whose call is being served. `server.edge.guard` sets it before any handler runs."""

DIRECTORY: Final = "directory"
"""Metadata key of NOT_READY: what this store cannot tell while HAKeeper is silent."""

NOTHING_REVOKED: Final = Revocations()
"""The revocations where no revocation lists are configured."""

NameOf = Callable[[ShardId], Awaitable[str | None]]

_Shown = tuple[bytes, str]
"""A certificate chain and a token; either may be empty."""

_Asked = tuple[str, frozenset[str], bool, ShardId]
"""Identity, roles of which one will do, `Rpc.cluster_too`, shard: what a decision depends on."""


@dataclass(slots=True)
class Caller:
    """One certificate chain, or one token, or both. Callers of one identity share `quota`.

    expires: when the certificate or the token, or what is known of the certificate's revocation,
    expires. not_after: the same without revocation. checked_by: the revocation lists that its
    certificates were looked up in; keys: the issuer's keys that its token was checked by (None: it
    has no token).
    """

    uri: str
    expires: Expiry
    quota: Quota
    admin: bool = False
    not_after: Expiry = NEVER
    serials: tuple[Serial, ...] = ()
    checked_by: Revocations = NOTHING_REVOKED
    serial: str = ""
    """Of its own certificate, in hexadecimal."""
    keys: Keys | None = None

    @property
    def by_token_only(self) -> bool:
        """Whether no certificate was shown: the call came in where none is asked for."""
        return self.keys is not None and not self.serials


@dataclass(frozen=True, slots=True)
class Identities:
    """What a certificate must say, and who may do everything (`SecuritySection.admins`)."""

    trust_domain: str
    cluster_id: str
    admins: Collection[str] = ()
    revocations: Callable[[], Revocations] = lambda: NOTHING_REVOKED
    """Returns the lists that are in use."""
    authorities: Callable[[], Sequence[x509.Certificate]] | None = None
    """Returns the authorities that are accepted now. None: the library's own check is enough."""
    tokens: Tokens | None = None
    """Checks bearer tokens; None: there are only certificates."""

    def tokens_keys(self) -> Keys | None:
        """The keys that tokens are checked by now."""
        return self.tokens.keys() if self.tokens is not None else None

    def unchanged(self, caller: Caller) -> bool:
        """Whether everything that `caller` was checked by is still in use."""
        return caller.checked_by is self.revocations() and (
            caller.keys is None or caller.keys is self.tokens_keys()
        )


@dataclass(slots=True)
class Gate:
    """One per store. `identities` None: plaintext."""

    access: AccessBook
    identities: Identities | None
    name_of: NameOf
    limits_of: Callable[[str], QuotaLimits] = lambda _: QuotaLimits()
    clock: Clock = field(default_factory=SystemClock)
    denied: int = 0
    """Calls that were refused here."""
    undoing: Quota = field(default_factory=lambda: Quota(QuotaLimits()))
    """What configured administrators use for what undoes (`Rpc.undoes`)."""
    _callers: dict[_Shown, Caller] = field(default_factory=dict)
    _quotas: dict[str, Quota] = field(default_factory=dict)
    _decided: dict[_Asked, bool] = field(default_factory=dict)
    _decided_by: AccessList | None = None
    _names: dict[ShardId, str] = field(default_factory=dict)

    def caller(self, context: Context) -> Caller:
        """Who is calling. Raises Unauthenticated, PermissionDenied (a store's certificate),
        NotReady (whether a token is good cannot be told now).
        """
        if self.identities is None:
            return self.bearer(b"")
        shown = context.auth_context()
        # The library names the bearer's own certificate and, apart from it, what was sent with it.
        chain = b"".join((*shown.get("x509_pem_cert", ()), *shown.get("x509_pem_cert_chain", ())))
        if self.identities.tokens is None:
            return self.bearer(chain)
        said = [
            value for name, value in context.invocation_metadata() or () if name == "authorization"
        ]
        return self.bearer(chain, said)

    def bearer(self, chain: bytes, authorization: Sequence[str | bytes] = ()) -> Caller:
        """Who shows a chain of certificates (PEM, the own one first; may be empty) that TLS has
        verified, and these ``authorization`` headers. Raises what `caller` does.
        """
        if self.identities is None:
            return self._known((b"", ""), ANONYMOUS, float("inf"))
        token = ""
        if authorization and self.identities.tokens is not None:
            token = bearer_token(authorization)
        shown = (chain, token)
        found = self._callers.get(shown)
        if found is None or (token and found.keys is not self.identities.tokens_keys()):
            found = self._identify(shown)
        if found.checked_by is not self.identities.revocations():
            self._look_up(found)
        if found.expires.is_over(self.clock):
            self.denied += 1
            what = "token" if token else "certificate"
            raise Unauthenticated(f"the {what} has expired")
        return found

    async def admit(
        self, caller: Caller, rpc: Rpc[Any, Any], shard: ShardId, name: str = ""
    ) -> AccessList | None:
        """Let `caller` through and return the list that allowed it; raises PermissionDenied, or
        NotReady{directory} when it cannot be told whether the caller may. `name`: that the request
        gives, if the RPC is `named`.

        None: no list was asked, and no list can change the decision.
        """
        if self.identities is None or caller.admin or not rpc.roles:
            return None
        listed = self._listed()
        if listed is not self._decided_by or len(self._decided) > bounds.GATE_DECISIONS_MAX:
            if listed is not self._decided_by:
                self._names.clear()
            self._decided.clear()
            self._decided_by = listed
        roles: frozenset[str] = rpc.roles
        if name:
            if roles & listed.roles_by_name(caller.uri, name):
                return listed
            roles = listed.without_denied_name(roles, caller.uri, name)
        key = (caller.uri, roles, rpc.cluster_too, shard)
        allowed = self._decided.get(key)
        if allowed is None:
            allowed = self._allows(listed, key, None)
            sure = True
            if not allowed:
                known = await self._name(listed, caller.uri, shard)
                allowed = self._allows(listed, key, known)
                sure = allowed or not self._unsure(listed, caller.uri, shard, known)
            if sure and listed is self._decided_by:
                self._decided[key] = allowed
        if not allowed:
            self._need_current(caller)
            self.denied += 1
            raise self._denial(listed, caller.uri, rpc, shard, name)
        return listed

    def admit_with_any_role(self, caller: Caller) -> None:
        """Let `caller` through if it has some role over something. Raises what `admit` does."""
        if self.identities is None or caller.admin:
            return
        if not self._listed().has_some_role(caller.uri):
            self._need_current(caller)
            self.denied += 1
            raise PermissionDenied(f"{caller.uri} has no role over anything")

    def quota_of(self, caller: Caller, rpc: Rpc[Any, Any]) -> Quota:
        """What pays for the call (INV-GATE-5)."""
        return self.undoing if rpc.undoes and caller.admin else caller.quota

    def in_force(self, caller: Caller, listed: AccessList | None) -> bool:
        """Whether a decision by `listed` still holds (INV-GATE-2)."""
        return (
            (listed is None or (listed is self.access.list and not self.access.too_old))
            and (not caller.admin or self._is_admin(caller.uri))
            and not caller.expires.is_over(self.clock)
            and (self.identities is None or self.identities.unchanged(caller))
        )

    def take_limits(self) -> None:
        """What identities may use has changed."""
        for uri, quota in self._quotas.items():
            quota.change(self.limits_of(uri))

    def configure(self, admins: Collection[str]) -> None:
        """Other administrators from now on, also among callers that are known."""
        if self.identities is not None and self.identities.admins != admins:
            self.identities = replace(self.identities, admins=admins)
            # Who may do everything is noted with each caller.
            self._callers.clear()

    # --- inside -----------------------------------------------------------------------------------

    def _listed(self) -> AccessList:
        """The list in force. Raises NotReady when it is too old."""
        if self.access.too_old:
            raise NotReady(
                "HAKeeper has been silent for so long that no grant holds any more",
                **{DIRECTORY: "age"},
            )
        return self.access.list

    def _need_current(self, caller: Caller) -> None:
        """Raises NotReady when a denial could be wrong (INV-GATE-3)."""
        if not self.access.current:
            raise NotReady(
                f"{caller.uri} may do this only by a grant that this store has not heard of, "
                "and HAKeeper is silent",
                **{DIRECTORY: "grants"},
            )

    def _identify(self, shown: _Shown) -> Caller:
        assert self.identities is not None  # only then there is something to show
        chain, token = shown
        self._callers.pop(shown, None)
        try:
            bearer = self._of_certificate(chain) if chain or not token else None
            checked = self._of_token(token) if token else None
        except LogServiceError:
            self.denied += 1
            raise
        if bearer is None:
            assert checked is not None  # one of the two was shown
            found = self._known(shown, checked.identity.uri, checked.expires_s)
        else:
            found = self._known(shown, bearer.identity.uri, bearer.not_after_s)
            found.serials = bearer.serials
            found.serial = f"{bearer.serials[0].number:x}"
        if checked is not None:
            if checked.identity.uri != found.uri:
                del self._callers[shown]
                self.denied += 1
                raise Unauthenticated("the certificate and the token are of different identities")
            found.keys = checked.keys
            of_token = Expiry.at(checked.expires_s, self.clock)
            found.not_after = found.expires = found.not_after.earlier(of_token)
        self._look_up(found)
        if found.expires.is_over(self.clock):
            # The wall clock may be wrong: then this is no end to remember.
            del self._callers[shown]
        return found

    def _of_certificate(self, chain: bytes) -> Bearer:
        assert self.identities is not None  # only then there are certificates
        tokens = self.identities.tokens
        if not chain and tokens is not None:
            raise Unauthenticated("neither a certificate nor a bearer token")
        domain, cluster = self.identities.trust_domain, self.identities.cluster_id
        bearer = read_chain(chain, Purpose.CALLING, domain, cluster)
        if self.identities.authorities is not None:
            # gRPC's library does not ask how far down an authority may sign.
            problem = too_long_a_path(chain, self.identities.authorities())
            if problem:
                raise Unauthenticated(problem)
        if bearer.identity.kind is not IdentityKind.CLIENT:
            raise PermissionDenied(f"{bearer.identity.uri} is no client")
        if tokens is not None and tokens.reserved(bearer.identity.name):
            raise Unauthenticated("the certificate has a name that only tokens can have")
        return bearer

    def _of_token(self, token: str) -> CheckedToken:
        assert self.identities is not None  # only then there are tokens
        assert self.identities.tokens is not None
        return self.identities.tokens.check(token)

    def _look_up(self, caller: Caller) -> None:
        """Look for a caller's certificates in the lists in use. Raises Unauthenticated."""
        assert self.identities is not None  # only then there are certificates
        lists = self.identities.revocations()
        problem = lists.problem(caller.serials, self.clock.wall_us() / 1_000_000)
        if problem:
            self.denied += 1
            raise Unauthenticated(problem)
        caller.checked_by = lists
        known_until = Expiry.at(lists.known_until_s(caller.serials), self.clock)
        caller.expires = caller.not_after.earlier(known_until)

    def _known(self, shown: _Shown, uri: str, expires_s: float) -> Caller:
        found = self._callers.get(shown)
        if found is None:
            if len(self._callers) >= bounds.GATE_CALLERS_MAX:
                self._callers.clear()
            quota = self._quotas.get(uri)
            if quota is None:
                if len(self._quotas) >= bounds.GATE_CALLERS_MAX:
                    self._quotas = {name: one for name, one in self._quotas.items() if one.busy}
                    # They would go on by quotas that hear of no change.
                    self._callers.clear()
                quota = self._quotas[uri] = Quota(self.limits_of(uri))
            admin = self._is_admin(uri)
            expires = Expiry.at(expires_s, self.clock)
            found = self._callers[shown] = Caller(uri, expires, quota, admin, expires)
        return found

    def _is_admin(self, uri: str) -> bool:
        return self.identities is not None and uri in self.identities.admins

    async def _name(self, listed: AccessList, uri: str, shard: ShardId) -> str | None:
        if shard == HAKEEPER_SHARD or not listed.needs_name(uri):
            return None
        name = self._names.get(shard)
        if name is None:
            try:
                name = await self.name_of(shard)
            except LogServiceError as error:
                raise NotReady(
                    f"whether {uri} may do this depends on the name of shard {shard}, which cannot "
                    f"be told now: {error.message}",
                    **{DIRECTORY: "name", "shard": shard},
                ) from error
            if name is not None and listed is self._decided_by:
                if len(self._names) >= bounds.GATE_NAMES_MAX:
                    self._names.clear()
                self._names[shard] = name
        return name

    def _denial(
        self, listed: AccessList, uri: str, rpc: Rpc[Any, Any], shard: ShardId, name: str
    ) -> PermissionDenied:
        wanted = " or ".join(sorted(rpc.roles))
        where = "the cluster" if shard == HAKEEPER_SHARD else f"shard {shard}"
        known = self._names.get(shard)
        denied = bool(name) and listed.without_denied_name(rpc.roles, uri, name) != rpc.roles
        if not self._unsure(listed, uri, shard, known):
            denied = denied or listed.without_denied(rpc.roles, uri, shard, known) != rpc.roles
        if denied:
            # Which rule it is, is for whoever may read the list: `logctl acl check`.
            return PermissionDenied(
                f"{uri} has no role {wanted} over {where}, and a rule denies it",
                role=wanted,
                shard=shard,
                by="rule",
            )
        return PermissionDenied(
            f"{uri} has no role {wanted} over {where}", role=wanted, shard=shard
        )

    @staticmethod
    def _unsure(listed: AccessList, uri: str, shard: ShardId, name: str | None) -> bool:
        """Whether a denial may only mean that the shard's name is not known yet."""
        return name is None and shard != HAKEEPER_SHARD and listed.needs_name(uri)

    @staticmethod
    def _allows(listed: AccessList, asked: _Asked, name: str | None) -> bool:
        uri, roles, cluster_too, shard = asked
        if roles & listed.roles(uri, shard, name):
            return True
        if not cluster_too:
            return False
        found = roles & listed.roles(uri, HAKEEPER_SHARD, None)
        return bool(found and listed.without_denied(found, uri, shard, name))


def shard_of(rpc: Rpc[Any, Any], request: Any) -> ShardId:
    """The shard that a request is about; HAKEEPER_SHARD stands for the cluster."""
    if not rpc.shard:
        return HAKEEPER_SHARD
    found = request
    for name in rpc.shard.split("."):
        found = getattr(found, name)
    return ShardId(found)
