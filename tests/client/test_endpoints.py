"""Addresses that a client is given: refused at once when nobody could be reached by them."""

from __future__ import annotations

import pytest
from logservice_client import LogClient
from logservice_client.endpoints import parse_endpoints
from logservice_wire.errors import InvalidArgument


def test_as_text_and_as_a_list() -> None:
    wanted = ["a:1", "[::1]:65535"]
    assert parse_endpoints("a:1, [::1]:65535,") == wanted
    assert parse_endpoints(wanted) == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        " , ",
        "localhost",
        "localhost:",
        ":7600",
        "a:0",
        "a:65536",
        "a:x",
        "::1:7600",
        "a:\u0661",
    ],
)
async def test_what_is_no_address_is_refused_before_anything_is_dialled(wrong: str) -> None:
    """Without a port gRPC would dial 443."""
    with pytest.raises(InvalidArgument) as caught:
        LogClient(wrong)
    assert caught.value.metadata["field"] == "endpoints"
