"""What a bearer token costs a store: the first time that it is shown, and with every later call.

    python -m bench.parts.tokens

Figures are of one core, without gRPC: it is the processor time of the event loop that a token adds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from logservice.access import AccessList
from logservice.config import TokensSection
from logservice.server.edge.gate import Gate, Identities
from logservice.server.tokens.issuer_keys import IssuerKeys
from logservice.server.tokens.jwks import read_keys
from logservice.server.tokens.token_check import Tokens

SECTION = TokensSection(issuer="https://issuer.example", audience="logservice", jwks="keys.json")
KEYS: dict[str, tuple[Any, Any]] = {
    "RS256": (rsa.generate_private_key(65537, 2048), RSAAlgorithm),
    "ES256": (ec.generate_private_key(ec.SECP256R1()), ECAlgorithm),
    "EdDSA": (ed25519.Ed25519PrivateKey.generate(), OKPAlgorithm),
}


def microseconds(work: Callable[[], object], count: int) -> float:
    """The best of five runs, for each call."""
    runs = []
    for _ in range(5):
        began_s = time.perf_counter()
        for _ in range(count):
            work()
        runs.append((time.perf_counter() - began_s) / count * 1e6)
    return min(runs)


async def _no_name(_: object) -> None:
    return None


def main() -> None:
    """Print a row for each algorithm."""
    listed = [
        {**kind.to_jwk(private.public_key(), as_dict=True), "kid": name, "key_ops": ["verify"]}
        for name, (private, kind) in KEYS.items()
    ]
    keys = IssuerKeys(SECTION)
    found = read_keys(json.dumps({"keys": listed}).encode(), SECTION.algorithms)
    keys.current = lambda: found  # type: ignore[method-assign]
    tokens = Tokens(SECTION, "logservice.internal", "c", keys)
    access: Any = SimpleNamespace(list=AccessList(), current=True, too_old=False)
    gate = Gate(access, Identities("logservice.internal", "c", tokens=tokens), _no_name)
    now = int(time.time())
    claims = {
        "iss": SECTION.issuer,
        "aud": [SECTION.audience],
        "sub": "system:serviceaccount:orders:backend",
        "iat": now,
        "exp": now + 3600,
    }
    print("| algorithm | bytes | first time, us | later, us |")
    print("|---|---|---|---|")
    for name, (private, _) in KEYS.items():
        token = jwt.encode(claims, private, name, {"kid": name})
        metadata = (("user-agent", "bench"), ("authorization", f"Bearer {token}"))
        context: Any = SimpleNamespace(auth_context=dict, invocation_metadata=lambda m=metadata: m)
        first = microseconds(lambda t=token: tokens.check(t), 500)  # type: ignore[misc]
        later = microseconds(lambda c=context: gate.caller(c), 20_000)  # type: ignore[misc]
        print(f"| {name} | {len(token)} | {first:.0f} | {later:.1f} |")


if __name__ == "__main__":
    main()
