"""token_check: whether a bearer token is good, and which client it then stands for.

Theory of operation. A token is looked at from the outside in, and nothing that it says is used
before it is checked: its length, the key that its header names among the issuer's, the algorithm of
that key, the signature, and then what it claims. It must name the issuer and, among its
audiences, this service; it must say when it was made and when it ends, must not be from the future,
and must not live longer than `lifetime_max_s`, because a token cannot be taken back. The library
(PyJWT) does the decoding and the arithmetic; which key and which algorithm is decided here
(INV-TOKEN-2).

`Tokens` checks a token each time that it is asked. The gate remembers tokens with the keys that
they were checked by, and asks again when these are not in use any more.

INV-TOKEN-4: a token is accepted only with all of what is named above; its end is never later than
it says, but for `leeway_s`.

References: RFC 7519, RFC 8725; RFC 6750 (the header).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import jwt
from logservice_wire.errors import NotReady, Unauthenticated

from logservice import bounds
from logservice.config import TokensSection
from logservice.identity import Identity
from logservice.server.tokens.claimed_name import client_of, reserved
from logservice.server.tokens.issuer_keys import IssuerKeys
from logservice.server.tokens.jwks import Keys

TOKENS: Final = "tokens"
"""Metadata key of NOT_READY: why this store cannot tell now whether a token is good."""

_WRONG: Final = (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""What the library raises about tokens that anybody can make up."""


@dataclass(frozen=True, slots=True)
class CheckedToken:
    """Whose a token is, until when (wall clock), and the keys that it was checked by."""

    identity: Identity
    expires_s: float
    keys: Keys


class Tokens:
    """What the gate asks about tokens."""

    def __init__(
        self, section: TokensSection, trust_domain: str, cluster_id: str, keys: IssuerKeys
    ) -> None:
        """`keys`: those of the issuer, as they are followed."""
        self._section = section
        self._trust_domain = trust_domain
        self._cluster_id = cluster_id
        self._issuer_keys = keys
        self.refused = 0
        """Tokens that were not accepted."""
        self.checked = 0
        """Signatures that were verified."""

    def figures(self) -> dict[str, float]:
        """For the status: what is in use and what was done, by the names of the metrics."""
        keys = self._issuer_keys
        return {
            "token_keys": keys.count,
            "token_keys_age_seconds": keys.age_s if keys.age_s < float("inf") else -1,
            "token_key_failures": keys.failures,
            "tokens_checked": self.checked,
            "tokens_refused": self.refused,
        }

    def keys(self) -> Keys:
        """The keys in use; another object when they have changed."""
        return self._issuer_keys.current()

    def reserved(self, name: str) -> bool:
        """Whether `name` is one that a certificate must not have."""
        return reserved(name, self._section.name_prefix)

    def check(self, token: str) -> CheckedToken:
        """Whose `token` is. Raises Unauthenticated, or NotReady{tokens} when it cannot be told."""
        try:
            return self._check(token)
        except Unauthenticated:
            self.refused += 1
            raise

    def _check(self, token: str) -> CheckedToken:
        if len(token) > bounds.TOKEN_BYTES_MAX:
            raise Unauthenticated(f"the token is longer than {bounds.TOKEN_BYTES_MAX} bytes")
        try:
            header = jwt.get_unverified_header(token)
        except _WRONG as error:
            raise Unauthenticated("the token cannot be read") from error
        keys, kid = self.keys(), header.get("kid", "")
        key = keys.get(kid) if kid else None
        if key is None:
            if kid and self._issuer_keys.unknown(kid):
                raise NotReady(
                    "the keys of the tokens' issuer are not known yet, or are being asked for",
                    **{TOKENS: "keys"},
                )
            raise Unauthenticated("the token names no key of the issuer")
        if header.get("alg") != key.algorithm or "crit" in header:
            raise Unauthenticated("the token is not signed in the way of its key")
        self.checked += 1
        section = self._section
        try:
            claims = jwt.decode(
                token,
                key.public,
                algorithms=[key.algorithm],
                audience=section.audience,
                issuer=section.issuer,
                leeway=section.leeway_s,
                options={"require": ["iss", "aud", "exp", "iat", section.claim]},
            )
            expires_s, made_s = int(claims["exp"]), int(claims["iat"])
        except _WRONG as error:
            raise Unauthenticated(f"the token is not accepted: {_told(error)}") from error
        if expires_s - made_s > section.lifetime_max_s:
            raise Unauthenticated(
                f"the token lives longer than the {section.lifetime_max_s:g} s that are accepted"
            )
        claim = claims[section.claim]
        if not isinstance(claim, str):
            raise Unauthenticated(f"the token's claim {section.claim} is no text")
        identity = client_of(claim, section.name_prefix, self._trust_domain, self._cluster_id)
        return CheckedToken(identity, expires_s + section.leeway_s, keys)


def bearer_token(values: Iterable[Any]) -> str:
    """The token among a call's ``authorization`` values; "" when there are none.

    Raises Unauthenticated for several, and for another scheme.
    """
    found = list(values)
    if not found:
        return ""
    if len(found) > 1 or not isinstance(found[0], str):
        raise Unauthenticated("one authorization is accepted, as text")
    scheme, _, token = found[0].partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("the authorization is no bearer token")
    return token.strip()


def _told(error: Exception) -> str:
    """What may be said to somebody who is not known: the kind of the mistake."""
    return str(error) if isinstance(error, jwt.PyJWTError) else type(error).__name__
