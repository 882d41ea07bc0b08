"""Identities: one form, byte by byte, and exactly one per certificate (INV-IDENTITY-1)."""

from __future__ import annotations

import pytest
from logservice_wire.errors import Unauthenticated

from logservice.identity import Identity, IdentityKind, only_identity, parse_uri

GOOD = "spiffe://d.example/cluster/prod/store/store-1"


def test_the_form() -> None:
    found = parse_uri(GOOD)
    assert found == Identity("d.example", "prod", IdentityKind.STORE, "store-1")
    assert found.uri == GOOD
    client = parse_uri("spiffe://d.example/cluster/prod/client/wal")
    assert client is not None
    assert client.kind is IdentityKind.CLIENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "store-1",
        "spiffe://d.example",
        "SPIFFE://d.example/cluster/prod/store/store-1",
        "https://d.example/cluster/prod/store/store-1",
        "spiffe://D.example/cluster/prod/store/store-1",
        "spiffe://d.example:80/cluster/prod/store/store-1",
        "spiffe://user@d.example/cluster/prod/store/store-1",
        "spiffe://d.example/cluster/prod/Store/store-1",
        "spiffe://d.example/cluster/prod/admin/store-1",
        "spiffe://d.example/cluster/prod/store/store-1/",
        "spiffe://d.example/cluster/prod/store/store-1?x=1",
        "spiffe://d.example/cluster/prod/store/store-1#x",
        "spiffe://d.example/cluster/prod/store/store%2d1",
        "spiffe://d.example/cluster/prod/store/../client/a",
        "spiffe://d.example/cluster//store/store-1",
        "spiffe://d.example/cluster/prod/store/",
        "spiffe://d.example/cluster/prod/store/-x",
        "spiffe://d.example/cluster/prod/store/store-1\n",
        " spiffe://d.example/cluster/prod/store/store-1",
        "spiffe://d.example/cluster/prod/store/st\u043ere-1",
        "spiffe://d.example/cluster/prod/store/store-1\x00",
        "spiffe://d.example/cluster/prod/store/" + "a" * 129,
    ],
)
def test_everything_else_is_none(text: str) -> None:
    assert parse_uri(text) is None
    with pytest.raises(Unauthenticated):
        only_identity([text], "d.example", "prod")


@pytest.mark.parametrize("uris", [[], [GOOD, GOOD], [GOOD, "https://example.org/"]])
def test_exactly_one_is_accepted(uris: list[str]) -> None:
    with pytest.raises(Unauthenticated, match="exactly one"):
        only_identity(uris, "d.example", "prod")


def test_of_this_domain_and_cluster() -> None:
    assert only_identity([GOOD], "d.example", "prod").name == "store-1"
    with pytest.raises(Unauthenticated, match="trust domain"):
        only_identity([GOOD], "e.example", "prod")
    with pytest.raises(Unauthenticated, match="of cluster prod"):
        only_identity([GOOD], "d.example", "test")
