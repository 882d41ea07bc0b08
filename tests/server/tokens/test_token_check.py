"""Which tokens are good. All tests but the first are attacks, or mistakes that look like one."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import jwt
import pytest
from logservice_wire.errors import NotReady, Unauthenticated
from msgspec.structs import replace

from logservice import bounds
from logservice.server.tokens.issuer_keys import IssuerKeys
from logservice.server.tokens.jwks import Keys, read_keys
from logservice.server.tokens.token_check import TOKENS, Tokens, bearer_token
from tests.server.tokens.issuer import (
    SECTION,
    claims,
    forged,
    jwk,
    jwks,
    key,
    part,
    private_pem,
    public_pem,
    token,
)

KINDS = [("RS256", "k1"), ("ES256", "k2"), ("EdDSA", "k3")]


class Fixed(IssuerKeys):
    """Keys that a test puts there; whether the issuer is being asked is said by the test, too."""

    def __init__(self, *listed: dict[str, Any]) -> None:
        super().__init__(SECTION)
        self.found: Keys = read_keys(jwks(*listed), SECTION.algorithms) if listed else {}
        self.asking = False

    def current(self) -> Keys:
        return self.found

    def unknown(self, kid: str) -> bool:
        return self.asking


KEYS = Fixed(*(jwk(key(kind), kid) for kind, kid in KINDS))


def tokens(keys: IssuerKeys = KEYS, **changed: Any) -> Tokens:
    return Tokens(replace(SECTION, **changed), "d", "c", keys)


def refusal(text: str, check: Tokens | None = None) -> str:
    with pytest.raises(Unauthenticated) as caught:
        (check or tokens()).check(text)
    return caught.value.message


@pytest.mark.parametrize(("kind", "kid"), KINDS)
def test_a_good_token(kind: str, kid: str) -> None:
    """INV-TOKEN-4, with each algorithm; `aud` may be a list."""
    said = claims(aud=["other", "logservice"])
    found = tokens().check(token(kind, kid, **said))
    assert found.identity.uri == "spiffe://d/cluster/c/client/token.backend"
    assert found.expires_s == said["exp"] + SECTION.leeway_s
    assert found.keys is KEYS.current()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"exp": None}, "exp"),
        ({"iat": None}, "iat"),
        ({"iss": None}, "iss"),
        ({"aud": None}, "aud"),
        ({"sub": None}, "sub"),
        ({"exp": timedelta(seconds=-31)}, "expired"),
        ({"exp": "soon"}, "exp"),
        ({"exp": float("inf")}, "exp"),
        ({"exp": float("nan")}, "exp"),
        ({"iat": timedelta(seconds=60)}, "not yet valid"),
        ({"nbf": timedelta(seconds=60)}, "not yet valid"),
        ({"iss": "https://issuer.example/"}, "issuer"),
        ({"iss": ["https://issuer.example"]}, "ssuer"),
        ({"aud": "logservice2"}, "udience"),
        ({"aud": ["a", "b"]}, "udience"),
        ({"aud": {"logservice": 1}}, "claim format"),
        ({"aud": []}, "aud"),
        ({"sub": 7}, "ubject"),
        ({"sub": ""}, "empty"),
        ({"sub": "a" * 200}, "name of a client"),
    ],
)
def test_a_signed_token_that_says_something_else(changed: dict[str, Any], said: str) -> None:
    """INV-TOKEN-4. A duration counts from now on."""
    now = int(time.time())
    meant = {
        name: now + int(value.total_seconds()) if isinstance(value, timedelta) else value
        for name, value in changed.items()
    }
    assert said in refusal(token(**meant))


def test_a_token_that_lives_too_long() -> None:
    now = int(time.time())
    day = int(SECTION.lifetime_max_s)
    tokens().check(token(iat=now - 100, exp=now - 100 + day))
    assert "lives longer" in refusal(token(iat=now, exp=now + day + 1))
    # Also when it was made so long ago that it ends soon.
    assert "lives longer" in refusal(token(iat=now - 365 * day, exp=now + 60))


def test_the_public_key_is_no_secret_of_an_hmac() -> None:
    """INV-TOKEN-2: the oldest trick there is, with the key in each of its spellings."""
    for kind, kid in KINDS:
        spellings = [public_pem(key(kind)), json.dumps(jwk(key(kind), kid)).encode()]
        for secret in (*spellings, *(one.strip() for one in spellings)):
            text = forged({"alg": "HS256", "kid": kid}, claims(), secret)
            assert "way of its key" in refusal(text)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, "HS256", "RS512", "PS256"])
def test_another_algorithm_than_that_of_the_key(algorithm: str | None) -> None:
    """INV-TOKEN-2, also by an honest signature."""
    header = {"alg": algorithm, "kid": "k1"}
    assert "way of its key" in refusal(forged(header, claims()))
    if algorithm in ("RS512", "PS256"):
        text = jwt.encode(claims(), private_pem(key("RS256")), algorithm, {"kid": "k1"})
        assert "way of its key" in refusal(text)
    # An algorithm that is accepted, and not that of the named key.
    assert "way of its key" in refusal(token("ES256", "k1"))


def test_a_configured_algorithm_is_the_only_one() -> None:
    only = Fixed(jwk(key("RS256"), "k1"))
    only.found = read_keys(jwks(jwk(key("RS256"), "k1"), jwk(key("ES256"), "k2")), ["ES256"])
    assert "names no key" in refusal(token("RS256", "k1"), tokens(only))
    tokens(only).check(token("ES256", "k2"))


@pytest.mark.parametrize(
    "header",
    [
        {"jku": "https://evil.example/keys"},
        {"x5u": "https://evil.example/chain"},
        {"jwk": jwk(key("RS256", 1), "k1")},
        {"x5c": ["AAAA"]},
    ],
)
def test_a_key_that_the_token_brings_along_is_not_looked_at(header: dict[str, Any]) -> None:
    assert "Signature verification failed" in refusal(token(which=1, header=header))
    # And it does no harm beside a good signature.
    tokens().check(token(header=header))


@pytest.mark.parametrize(
    "kid", ["../../etc/passwd", "k1' OR '1'='1", "k1\0", "K1", " k1", "k" * 1500]
)
def test_a_key_id_is_looked_up_and_nothing_else(kid: str) -> None:
    assert "names no key" in refusal(token(kid=kid))


def test_a_token_without_a_key_id() -> None:
    assert "names no key" in refusal(token(kid=None))
    for odd in (7, ["k1"], {"k1": 1}, None, True):
        assert refusal(forged({"alg": "RS256", "kid": odd}, claims(), b"x"))


def test_an_extension_that_must_be_understood() -> None:
    for crit in (["b64"], ["exp"], [], "b64"):
        header = {"crit": crit, "b64": True, "alg": "RS256", "kid": "k1"}
        assert refusal(forged(header, claims(), b"x"))
    assert refusal(forged({"b64": False, "crit": ["b64"], "alg": "RS256", "kid": "k1"}, claims()))


def test_a_token_of_another_signer_or_changed_on_the_way() -> None:
    assert "Signature verification failed" in refusal(token(which=1))
    head, _, signature = token().split(".")
    text = ".".join((head, part(json.dumps(claims(sub="admin")).encode()), signature))
    assert "Signature verification failed" in refusal(text)


def test_what_is_no_token() -> None:
    """TOKEN_BYTES_MAX, and texts that a parser chokes on."""
    deep = part(b"[" * 3000)
    many = part(b'{"alg":' + b"9" * 2900 + b"}")
    for text in ("", "x", "a.b", "a.b.c", "...", "\0", "ä.ö.ü", f"{deep}.e30.", f"{many}.e30.x"):
        assert "cannot be read" in refusal(text)
    for header in (b"[]", b"null", b'"RS256"', b"{", b"\xff"):
        assert "cannot be read" in refusal(f"{part(header)}.e30.e30")
    body = part(b"[" * 2000)
    assert refusal(f"{part(json.dumps({'alg': 'RS256', 'kid': 'k1'}).encode())}.{body}.e30")
    assert "longer than" in refusal("a" * (bounds.TOKEN_BYTES_MAX + 1))
    assert "cannot be read" in refusal("a" * bounds.TOKEN_BYTES_MAX)


def test_an_unknown_key_is_no_denial_while_the_issuer_is_asked() -> None:
    keys = Fixed(jwk(key("RS256"), "k1"))
    check = tokens(keys)
    keys.asking = True
    with pytest.raises(NotReady) as caught:
        check.check(token(kid="new"))
    assert caught.value.metadata == {TOKENS: "keys"}
    keys.asking = False
    assert "names no key" in refusal(token(kid="new"), check)
    assert check.refused == 1


def test_the_claim_that_names_the_client_is_chosen() -> None:
    check = tokens(claim="email", name_prefix="mail.")
    found = check.check(token(email="ada@example.org"))
    assert found.identity.name == "mail.ada_40example.org"
    for wrong in (None, 7, ["ada"], {"a": "b"}):
        assert refusal(token(email=wrong), check)


def test_the_header_of_a_call() -> None:
    assert bearer_token([]) == ""
    assert bearer_token(["Bearer abc"]) == bearer_token(["bearer  abc "]) == "abc"
    for wrong in (
        ["Basic abc"],
        ["Bearer"],
        ["Bearer "],
        [""],
        ["Bearer a", "Bearer a"],
        [b"Bearer a"],
    ):
        with pytest.raises(Unauthenticated):
            bearer_token(wrong)
