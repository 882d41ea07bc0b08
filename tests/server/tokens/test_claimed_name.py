"""Which client a claim names: two claims are never one client, nor a claim a certificate's."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logservice_wire.errors import Unauthenticated

from logservice import bounds
from logservice.identity import parse_uri
from logservice.server.tokens.claimed_name import client_of, reserved


def name_of(claim: str, prefix: str = "token.") -> str:
    return client_of(claim, prefix, "d", "c").name


def claim_of(name: str) -> str:
    """Reads a name back."""
    plain = re.sub(
        rb"_(_|[0-9a-f]{2})",
        lambda found: b":" if found[1] == b"_" else bytes.fromhex(found[1].decode()),
        name.removeprefix("token.").encode(),
    )
    return plain.decode("utf-8", "surrogatepass")


def test_a_service_account() -> None:
    assert name_of("system:serviceaccount:orders:backend") == (
        "token.system__serviceaccount__orders__backend"
    )
    assert name_of("a_b|c@d.e-f") == "token.a_5fb_7cc_40d.e-f"


@given(st.text(min_size=1, max_size=20))
def test_a_name_can_be_read_back(claim: str) -> None:
    """INV-TOKEN-1: so no two claims have one name."""
    try:
        name = name_of(claim)
    except Unauthenticated:
        assert len(claim.encode("utf-8", "surrogatepass")) * 3 + 6 > bounds.NAME_BYTES_MAX
        return
    assert claim_of(name) == claim
    assert reserved(name, "token.")
    found = parse_uri(client_of(claim, "token.", "d", "c").uri)
    assert found is not None
    assert found.name == name


def test_a_claim_that_makes_no_name() -> None:
    """TOKEN_CLAIM_BYTES_MAX, and what is no name without a prefix."""
    longest = "a" * (bounds.NAME_BYTES_MAX - len("token."))
    assert name_of(longest)
    for claim in ("", longest + "a", "a" * (bounds.TOKEN_CLAIM_BYTES_MAX + 1)):
        with pytest.raises(Unauthenticated):
            name_of(claim)
    assert name_of("admin", "") == "admin"
    for claim in ("/x", ":x", "../x", "-x", ""):
        with pytest.raises(Unauthenticated):
            name_of(claim, "")


def test_without_a_prefix_nothing_is_reserved() -> None:
    assert not reserved("token.x", "")
    assert not reserved("tokens", "token.")
    assert reserved("token.x", "token.")
