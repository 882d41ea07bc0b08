"""What is taken of an issuer's key set, and what spoils it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.server.tokens.jwks import read_keys
from tests.server.tokens.issuer import jwk, jwks, key

ALL = ("RS256", "ES256", "EdDSA")


def test_a_key_has_the_algorithm_of_its_kind() -> None:
    """INV-TOKEN-2"""
    found = read_keys(jwks(*(jwk(key(kind), kind) for kind in ALL)), ALL)
    assert {kid: one.algorithm for kid, one in found.items()} == {kind: kind for kind in ALL}
    assert found == read_keys(jwks(*(jwk(key(kind), kind) for kind in ALL)), ALL)
    assert found != read_keys(jwks(*(jwk(key(kind, 1), kind) for kind in ALL)), ALL)


def test_only_the_algorithms_that_are_configured() -> None:
    both = jwks(jwk(key("RS256"), "r"), jwk(key("ES256"), "e"))
    assert set(read_keys(both, ["ES256"])) == {"e"}
    with pytest.raises(InvalidArgument, match="no key that can be used"):
        read_keys(both, ["EdDSA"])


@pytest.mark.parametrize(
    "other",
    [
        {"use": "enc"},
        {"alg": "RS512"},
        {"alg": "HS256"},
        {"key_ops": ["encrypt"]},
        {"key_ops": "verify"},
        {"kty": "secret"},
        {"kty": ["RSA"]},
    ],
)
def test_keys_for_something_else_are_left_out(other: dict[str, Any]) -> None:
    good = jwk(key("ES256"), "good")
    assert set(read_keys(jwks(jwk(key("RS256"), "other", **other), good), ALL)) == {"good"}


def test_keys_without_an_id_or_of_another_curve_are_left_out() -> None:
    other = jwk(ec.generate_private_key(ec.SECP384R1()), "other")
    listed = jwks(jwk(key("RS256"), None), jwk(key("RS256"), ""), other, jwk(key("RS256"), "good"))
    assert set(read_keys(listed, ALL)) == {"good"}


def private_jwk() -> dict[str, Any]:
    said: dict[str, Any] = RSAAlgorithm.to_jwk(key("RS256"), as_dict=True)  # type: ignore[arg-type]
    return {**said, "kid": "secret"}


@pytest.mark.parametrize(
    "secret",
    [{"kty": "oct", "k": "c2VjcmV0", "kid": "s"}, {"kty": "oct", "kid": "s"}, private_jwk()],
)
def test_a_secret_in_the_set_spoils_it(secret: dict[str, Any]) -> None:
    """Whoever read the set can make tokens with a private or symmetric key. Nothing of it is
    said."""
    with pytest.raises(InvalidArgument, match="a secret is out") as caught:
        read_keys(jwks(jwk(key("ES256"), "good"), secret), ALL)
    assert str(secret.get("d", "c2VjcmV0")) not in str(caught.value)


def test_two_keys_with_one_id_spoil_it() -> None:
    with pytest.raises(InvalidArgument, match="two keys"):
        read_keys(jwks(jwk(key("RS256"), "k"), jwk(key("ES256"), "k")), ALL)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b"null",
        b'{"keys": {}}',
        b'{"keys": [1]}',
        b'{"keys": []}',
        b'{"keys": [{"kid": 7, "kty": "RSA"}]}',
        b'{"keys": ' + b"[" * 100_000,
        b"\xff\xfe",
        json.dumps({"keys": [jwk(key("RS256"), "k") | {"n": "!"}]}).encode(),
        json.dumps({"keys": [jwk(key("ES256"), "k") | {"x": "AAAA"}]}).encode(),
        json.dumps({"keys": [jwk(key("EdDSA"), "k") | {"x": 5}]}).encode(),
    ],
)
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument):
        read_keys(data, ALL)


def test_an_rsa_key_that_is_too_short_spoils_it() -> None:
    short = jwk(rsa.generate_private_key(65537, 1024), "k")
    with pytest.raises(InvalidArgument, match="1024 bits"):
        read_keys(jwks(short), ALL)


def test_a_set_is_bounded() -> None:
    """JWKS_BYTES_MAX, JWKS_KEYS_MAX, JWKS_KEY_ID_CHARS_MAX"""
    good = jwk(key("ES256"), "k" * bounds.JWKS_KEY_ID_CHARS_MAX)
    data = jwks(good)
    room = bounds.JWKS_BYTES_MAX - len(data)
    assert read_keys(data + b" " * room, ALL)
    with pytest.raises(InvalidArgument, match="longer than"):
        read_keys(data + b" " * (room + 1), ALL)
    many = [{"kty": "other", "kid": str(number)} for number in range(bounds.JWKS_KEYS_MAX)]
    assert read_keys(jwks(good, *many[1:]), ALL)
    with pytest.raises(InvalidArgument, match="are accepted"):
        read_keys(jwks(good, *many), ALL)
    with pytest.raises(InvalidArgument, match="too long"):
        read_keys(jwks(good | {"kid": good["kid"] + "k"}), ALL)
