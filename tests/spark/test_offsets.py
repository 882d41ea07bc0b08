"""Offsets of streaming queries: one position has one text, and nothing is read into one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logservice_client.lineage import Lineage
from pyspark_logservice.offsets import OffsetError, StreamOffset

ID = bytes(range(16))


def test_a_log_that_was_never_continued_is_its_lsn_and_nothing_else() -> None:
    offset = StreamOffset({1: 425183}, {1: Lineage()})
    assert json.dumps(offset.to_json()) == '{"1": 425183}'
    assert StreamOffset.of_json({"1": 425183}).lineage_of(1) == Lineage()


def test_shards_stand_in_the_order_of_their_numbers() -> None:
    offset = StreamOffset({10: 4, 2: 7, 1: 1}, {10: Lineage(2, ID), 2: Lineage(1, ID)})
    assert json.dumps(offset.to_json()) == (
        f'{{"1": 1, "2": 7, "10": 4, "lineages": {{"2": "1-{ID.hex()}", "10": "2-{ID.hex()}"}}}}'
    )


@given(
    st.dictionaries(
        st.integers(1, 2**63 - 1),
        st.tuples(
            st.integers(1, 2**63 - 1),
            st.builds(
                Lineage, st.integers(1, 2**40), st.binary(min_size=16, max_size=16), st.just(0)
            )
            | st.just(Lineage()),
        ),
    )
)
def test_an_offset_comes_back_as_the_same_text(found: dict[int, tuple[int, Lineage]]) -> None:
    lsns = {shard: lsn for shard, (lsn, _) in found.items()}
    lineages = {shard: lineage for shard, (_, lineage) in found.items()}
    offset = StreamOffset(lsns, lineages)
    text = json.dumps(offset.to_json())
    again = StreamOffset.of_json(json.loads(text))
    assert json.dumps(again.to_json()) == text
    assert again.lsns == lsns
    assert all(again.lineage_of(shard) == lineages[shard] for shard in lsns)


@pytest.mark.parametrize(
    "given_offset",
    [
        {"1": 0},
        {"1": 5.0},
        {"1": True},
        {"1": "5"},
        {"0": 5},
        {"a": 5},
        {"1": 2**63},
        {"1": 5, "more": {}},
        {"1": 5, "lineages": []},
        {"1": 5, "lineages": {"2": f"1-{ID.hex()}"}},
        {"1": 5, "lineages": {"1": ID.hex()}},
        {"1": 5, "lineages": {"1": f"0-{ID.hex()}"}},
        {"1": 5, "lineages": {"1": 7}},
    ],
)
def test_what_is_not_known_is_refused(given_offset: dict[str, Any]) -> None:
    with pytest.raises(OffsetError, match="cannot read"):
        StreamOffset.of_json(given_offset)
