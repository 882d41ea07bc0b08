"""The shards that a page shows: which, in which order, with which rates; what a query may say."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace

from logservice import bounds
from logservice.server.monitor.cluster.rows import (
    ClusterReport,
    HAKeeperAnswer,
    ReplicaRow,
    ShardRow,
    build,
)
from logservice.server.monitor.port.query import BadQuery
from logservice.server.monitor.port.shard_page import (
    Choice,
    ShardPages,
    condition,
    parse,
)
from tests.server.monitor.samples import status

SECOND = 1_000_000


def row(
    number: int, voters: int = 3, readers: int = 0, readers_wanted: int = 0, **changes: Any
) -> ShardRow:
    members = [ReplicaRow(replica=one, store=f"s{one}", role="voter") for one in range(voters)]
    reading = [ReplicaRow(replica=9, store="r", role="learner") for _ in range(readers)]
    values: dict[str, Any] = {
        "wanted": 3,
        "leader_store": "s0",
        "replicas": (*members, *reading),
    } | changes
    return ShardRow(shard=number, learners={"": readers_wanted}, **values)


def report(*rows: ShardRow, at_s: float = 0.0) -> ClusterReport:
    me = replace(status("s1"), wall_time_us=int(at_s * SECOND))
    return build(HAKeeperAnswer(None, -1.0, "silent"), {}, me, shards=rows)


def shown(rows: list[ShardRow], **choice: Any) -> list[int]:
    page = ShardPages().page(report(*rows), parse(urlencode(choice)))
    return [one.row.shard for one in page.rows]


def down(shard: ShardRow, *members: int) -> ShardRow:
    replicas = [
        replace(one, health="silent") if place in members else one
        for place, one in enumerate(shard.replicas)
    ]
    return replace(shard, replicas=tuple(replicas))


@pytest.mark.parametrize(
    ("shard", "text", "level"),
    [
        (row(1), "ok", "good"),
        (row(1, leader_store=""), "no leader", "bad"),
        (down(row(1), 0, 1), "no majority", "bad"),
        (down(row(1), 2), "1 replica down", "warn"),
        (down(row(1, voters=5), 1, 2), "2 replicas down", "warn"),
        (row(1, stalled="disk"), "truncation stalled", "warn"),
        (row(1, voters=2, readers=2), "2 of 3 replicas", "warn"),
        (row(1, joint=True), "changing", "warn"),
        (row(1, readers=1, readers_wanted=2), "1 of 2 learners", "warn"),
        (row(1, readers=2, readers_wanted=2), "ok", "good"),
        (row(1, state="deleting"), "deleting", "warn"),
        (row(1, state="closed"), "closed", "good"),
    ],
)
def test_what_is_the_matter_with_a_shard(shard: ShardRow, text: str, level: str) -> None:
    """A learner does not stand in for a voter."""
    found = condition(shard)
    assert (found.text, found.level) == (text, level)


def test_only_the_rows_that_a_page_shows() -> None:
    pages = ShardPages()
    everything = report(
        *(row(number, leader_store="s0" if number % 2 else "") for number in range(60))
    )
    page = pages.page(everything, Choice(offset=50, count=25))
    assert [one.row.shard for one in page.rows] == list(range(50, 60))
    assert (page.matching, page.shards, page.without_leader[:3]) == (60, 60, (0, 2, 4))
    assert len(page.without_leader) == 8
    assert pages.page(everything, Choice(offset=60, count=25)).offset == 50, "the last page"
    assert pages.page(report(), Choice(offset=9)).offset == 0


def test_filters() -> None:
    rows = [row(1, name="Log-A"), row(2, writer_holder="tn-7"), row(30, leader_store="s9"), row(4)]
    assert shown(rows, filter=" lOG-a ") == [1]
    assert shown(rows, filter="tn-7") == [2]
    assert shown(rows, filter="s9") == [30]
    assert shown(rows, filter="30") == [30]
    assert shown([row(1), row(2, joint=True)], filter="changing") == [2]
    assert shown(rows, filter="nobody") == []
    assert shown([row(1), row(2, joint=True), row(3, state="closed")], troubled=1) == [2, 3]


def test_orders() -> None:
    """Among equals the lower shard comes first, either way round."""
    rows = [row(1, name="log-10"), row(2, name="log-9"), row(3, name="Log-9"), row(4, name="")]
    assert shown(rows, sort="name") == [4, 2, 3, 1]
    assert shown(rows, sort="name", descending=1) == [1, 2, 3, 4]
    assert shown(rows, sort="shard", descending=1) == [4, 3, 2, 1]
    ranks = [row(1), row(2, leader_store=""), row(3, joint=True)]
    assert shown(ranks, sort="state") == [2, 3, 1]
    long = [row(1, name="a" + "9" * 5000), row(2, name="a" + "8" * 5000)]
    assert shown(long, sort="name") == [2, 1]


def test_rates_are_taken_between_two_reports_that_are_near() -> None:
    pages = ShardPages()
    first = report(row(1, applied_lsn=100), row(2, applied_lsn=50))
    assert [one.records_per_s for one in pages.page(first, Choice()).rows] == [None, None]
    then = report(row(1, applied_lsn=140), row(2, applied_lsn=49), row(3), at_s=2)
    for _ in range(2):  # the same report says the same
        page = pages.page(then, Choice(sort="rate", descending=True))
        assert [(one.row.shard, one.records_per_s) for one in page.rows] == [
            (1, 20.0),
            (2, None),
            (3, None),
        ]
        assert page.records_per_s == 20.0
    span = bounds.ADMIN_RATE_SPAN_S
    edge = report(row(1, applied_lsn=140 + int(span)), at_s=2 + span)
    assert pages.page(edge, Choice()).rows[0].records_per_s == 1.0
    late = report(row(1, applied_lsn=9999), at_s=2 + 2 * span + 0.001)
    assert pages.page(late, Choice()).rows[0].records_per_s is None
    back = report(row(1, applied_lsn=99999), at_s=0)
    assert pages.page(back, Choice()).rows[0].records_per_s is None, "the clock was set back"


@pytest.mark.parametrize(
    "query",
    [
        "nobody=1",
        "sort=weather",
        "troubled=yes",
        "offset=-1",
        "offset=²",
        "offset=99999999999",
        "count=0",
        f"count={bounds.ADMIN_SHARDS_SHOWN + 1}",
        "count=",
        "offset=1&offset=2",
        "filter=%ff",
        "a=1&" * 7,
        "filter=" + "x" * (bounds.ADMIN_FILTER_CHARS_MAX + 1),
    ],
)
def test_a_query_that_says_nothing_is_refused(query: str) -> None:
    with pytest.raises(BadQuery):
        parse(query)


def test_the_edges_of_a_query() -> None:
    longest = "x" * bounds.ADMIN_FILTER_CHARS_MAX
    found = parse(urlencode({"filter": longest, "count": bounds.ADMIN_SHARDS_SHOWN}))
    assert (found.filter, found.count) == (longest, bounds.ADMIN_SHARDS_SHOWN)
    assert parse("") == Choice()
