"""What is wrong with a request is said by the name of its field."""

from __future__ import annotations

import pytest
from msgspec import Struct

from logservice.hakeeper.answers import queries
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.verbs import SetRepair, SetStoreMode, StoreMode
from logservice.ids import ShardId, StoreId
from logservice.server.services.complaint import complaint
from logservice.versions import NEWEST

LONG = "x" * 129


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (SetStoreMode(StoreId("s1"), StoreMode.OPEN, LONG), "reason: Expected `str` of length"),
        (SetStoreMode(StoreId(LONG), StoreMode.OPEN), "store: Expected `str` of length <= 128"),
        (SetRepair("s1", -1, "why"), "off_ticks: Expected `int` >= 0"),
        (proposals.CreateShard(ShardId(1), "a\x1b[31m", 3), "name: characters that cannot be seen"),
        (
            proposals.CreateShard(ShardId(1), "", 3, labels={"a": LONG}),
            "labels: Expected `str` of length <= 128",
        ),
    ],
)
def test_the_field_is_named(asked: Struct, words: str) -> None:
    with pytest.raises(proposals.ProposalCorrupt) as caught:
        proposals.decode(proposals.encode(asked, NEWEST))  # type: ignore[arg-type]
    assert words in complaint(caught.value, asked)


def test_of_a_query_too() -> None:
    query = queries.ResolveShard(LONG)
    with pytest.raises(queries.QueryCorrupt) as caught:
        queries.decode_query(queries.encode_query(query))
    assert complaint(caught.value, query).startswith("name: Expected `str` of length <= 128")


@pytest.mark.parametrize("text", ["70000 bytes", "Odd - at `$[0]`", "Odd - at `$[99]`", "at `$`"])
def test_what_is_about_no_field_stays(text: str) -> None:
    assert complaint(ValueError(text), queries.ResolveShard("x")) == text
