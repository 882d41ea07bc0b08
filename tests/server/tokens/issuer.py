"""An issuer of tokens for tests: it has keys, publishes them, and signs whatever it is told."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from logservice.config import TokensSection

ISSUER = "https://issuer.example"
AUDIENCE = "logservice"
SECTION = TokensSection(issuer=ISSUER, audience=AUDIENCE, jwks="keys.json")

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def key(kind: str, which: int = 0) -> Private:
    """The same one for the same arguments: keys take long to make."""
    return _key(kind, which)


@cache
def _key(kind: str, _: int) -> Private:
    if kind == "RS256":
        return rsa.generate_private_key(65537, 2048)
    if kind == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


def jwk(private: Private, kid: str | None, **more: Any) -> dict[str, Any]:
    """The public half as an issuer publishes it."""
    public = private.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        said: dict[str, Any] = RSAAlgorithm.to_jwk(public, as_dict=True)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        said = ECAlgorithm.to_jwk(public, as_dict=True)
    else:
        said = OKPAlgorithm.to_jwk(public, as_dict=True)
    said.pop("key_ops", None)
    return said | ({} if kid is None else {"kid": kid}) | more


def jwks(*listed: dict[str, Any]) -> bytes:
    return json.dumps({"keys": listed}).encode()


def publish(path: Path, *listed: dict[str, Any]) -> None:
    """Put a set in the place of another in one step."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(jwks(*listed))
    fresh.rename(path)


def claims(**changed: Any) -> dict[str, Any]:
    """Good ones, with changes; None takes one away."""
    now = int(time.time())
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "backend", "iat": now, "exp": now + 600}
    return {name: value for name, value in (said | changed).items() if value is not None}


def token(
    kind: str = "RS256",
    kid: str | None = "k1",
    *,
    which: int = 0,
    header: dict[str, Any] | None = None,
    **changed: Any,
) -> str:
    """A signed token; `kid` None: its header names no key."""
    more = ({} if kid is None else {"kid": kid}) | (header or {})
    said = json.dumps(claims(**changed)).encode()
    return jwt.PyJWS().encode(said, key(kind, which), algorithm=kind, headers=more)


def forged(header: dict[str, Any], said: dict[str, Any], secret: bytes = b"") -> str:
    """A token whose signature is an HMAC with `secret`, or empty: for what no library makes."""
    import hashlib
    import hmac

    text = ".".join(part(json.dumps(one).encode()) for one in (header, said))
    signature = hmac.new(secret, text.encode(), hashlib.sha256).digest() if secret else b""
    return f"{text}.{part(signature)}"


def part(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def public_pem(private: Private) -> bytes:
    return private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def private_pem(private: Private) -> bytes:
    return private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
