"""jwks: an issuer's public keys, read from its JSON Web Key Set as a whole or not at all.

Theory of operation. A key is used with one algorithm, which follows from its kind: RSA of
RSA_KEY_BITS_MIN to RSA_KEY_BITS_MAX bits with RS256, P-256 with ES256, Ed25519 with EdDSA. There is
no other algorithm and nothing that a token says about itself changes one, so a public key can never
be taken for the secret of an HMAC.

A set that holds a private or a symmetric key is refused: somebody has published a secret, and
whoever read the set can make tokens. So is one with two keys of one id, because a token would be
checked by either. Keys for other uses or of other kinds, and keys without an id, are left out.

INV-TOKEN-2: a token is checked by the one key that it names, with the one algorithm of that key.

References: RFC 7517 (key sets), RFC 8725 sections 3.1 and 3.2 (algorithms), RFC 8037 (Ed25519).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from logservice_wire.errors import InvalidArgument

from logservice import bounds

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

_KINDS: Final[Mapping[tuple[object, object], str]] = {
    ("RSA", ""): "RS256",
    ("EC", "P-256"): "ES256",
    ("OKP", "Ed25519"): "EdDSA",
}
"""The algorithm by kind and curve."""

_SECRET: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
"""Members of a key that nobody but its owner may have."""


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """One key. `encoded` (DER) stands for it in comparisons."""

    algorithm: str
    encoded: bytes
    public: PublicKey = field(compare=False)


Keys = Mapping[str, IssuerKey]
"""The keys in use by their id."""


def read_keys(data: bytes, algorithms: Collection[str]) -> Keys:
    """The usable keys of a set that are of one of `algorithms`. Raises InvalidArgument, which says
    nothing of a key but its id.
    """
    if len(data) > bounds.JWKS_BYTES_MAX:
        raise InvalidArgument(f"it is longer than {bounds.JWKS_BYTES_MAX} bytes")
    try:
        listed = json.loads(data)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidArgument("it is no JSON Web Key Set") from None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise InvalidArgument("it is no JSON Web Key Set")
    if len(listed) > bounds.JWKS_KEYS_MAX:
        raise InvalidArgument(f"it has {len(listed)} keys, and {bounds.JWKS_KEYS_MAX} are accepted")
    found: dict[str, IssuerKey] = {}
    ids: set[str] = set()
    for one in listed:
        kid = _id_of(one)
        if one.get("kty") == "oct" or _SECRET & one.keys():
            raise InvalidArgument(
                f"it holds a private or symmetric key ({kid or 'without an id'}): a secret is out"
            )
        if not kid:
            continue
        if kid in ids:
            raise InvalidArgument(f"it has two keys with the id {kid!r}")
        ids.add(kid)
        key = _key_of(one, kid)
        if key is not None and key.algorithm in algorithms:
            found[kid] = key
    if not found:
        raise InvalidArgument("it has no key that can be used")
    return found


def _id_of(one: dict[str, Any]) -> str:
    kid = one.get("kid", "")
    if not isinstance(kid, str) or len(kid) > bounds.JWKS_KEY_ID_CHARS_MAX:
        raise InvalidArgument("it has a key whose id is no text, or too long")
    return kid


def _key_of(one: dict[str, Any], kid: str) -> IssuerKey | None:
    """None for a key of another kind or use."""
    kind, curve = one.get("kty"), one.get("crv", "")
    named = isinstance(kind, str) and isinstance(curve, str)
    algorithm = _KINDS.get((kind, curve)) if named else None
    operations = one.get("key_ops", ["verify"])
    if (
        algorithm is None
        or one.get("use", "sig") != "sig"
        or one.get("alg", algorithm) != algorithm
        or not isinstance(operations, list)
        or "verify" not in operations
    ):
        return None
    try:
        public = jwt.PyJWK(one, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise InvalidArgument(f"its key {kid!r} is damaged") from None
    if isinstance(public, rsa.RSAPublicKey):
        if not bounds.RSA_KEY_BITS_MIN <= public.key_size <= bounds.RSA_KEY_BITS_MAX:
            raise InvalidArgument(f"its RSA key {kid!r} has {public.key_size} bits")
    elif not isinstance(public, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey):
        raise InvalidArgument(f"its key {kid!r} is not what it says")
    encoded = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return IssuerKey(algorithm, encoded, public)
