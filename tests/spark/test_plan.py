"""Plans: ranges are resolved once and cut without holes; losses are errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logservice_client import LsnAtTime, SyncLogClient
from pyspark_logservice.checks import OptionError
from pyspark_logservice.loss import DataLossError
from pyspark_logservice.options import ReadOptions, parse_options
from pyspark_logservice.plan import LsnRange, narrow, plan, resolve, split

from tests.client.running_fake import running_fake


def options(**given: str) -> ReadOptions:
    return parse_options({"logservice.endpoints": "a:1", "shard": "1", **given})


@pytest.mark.parametrize(
    ("given_options", "first", "applied", "expected"),
    [
        ({}, 1, 0, (1, 1)),
        ({}, 5, 9, (5, 10)),
        ({"startingLsn": "7"}, 5, 9, (7, 10)),
        ({"startingLsn": "10"}, 5, 9, (10, 10)),
        ({"endingLsn": "8"}, 5, 9, (5, 8)),
        ({"startingLsn": "6", "endingLsn": "6"}, 5, 9, (6, 6)),
        ({"startingLsn": "8", "endingLsn": "8"}, 5, 9, (8, 8)),
        ({"startingLsn": "2", "failOnDataLoss": "false"}, 5, 9, (5, 10)),
        ({"startingLsn": "2", "endingLsn": "4", "failOnDataLoss": "false"}, 5, 9, (5, 5)),
    ],
)
def test_resolve(
    given_options: dict[str, str], first: int, applied: int, expected: tuple[int, int]
) -> None:
    assert resolve(options(**given_options), 1, first, applied) == expected


@pytest.mark.parametrize(
    ("given_options", "word"),
    [
        ({"startingLsn": "4"}, "LSNs 4 to 4 were truncated; the oldest record is 5"),
        ({"startingLsn": "11"}, "newest is 9"),
        ({"endingLsn": "11"}, "newest is 9"),
    ],
)
def test_losses(given_options: dict[str, str], word: str) -> None:
    with pytest.raises(DataLossError, match=word):
        resolve(options(**given_options), 1, 5, 9)


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=4),
    st.integers(1, 40),
    st.integers(1, 1000),
)
def test_pieces_cover_everything_once(sizes: list[int], least: int, most: int) -> None:
    whole = [LsnRange(n, 10, 10 + size, ("a", "b", "c")) for n, size in enumerate(sizes, 1)]
    pieces = split(whole, least, most)
    for piece in whole:
        mine = [p for p in pieces if p.shard == piece.shard]
        assert sum(p.records for p in mine) == piece.records
        edges = [piece.start, *(p.end for p in mine)]
        assert [p.start for p in mine] == edges[:-1]
        assert all(0 < p.records <= most for p in mine)
        assert {len(set(p.addresses)) for p in mine} <= {3}
    assert len(pieces) >= min(least, sum(sizes))


def test_pieces_prefer_the_replicas_in_turn() -> None:
    pieces = split([LsnRange(1, 1, 7, ("a", "b", "c"))], 6, 1000)
    assert [piece.addresses[0] for piece in pieces] == ["a", "b", "c", "a", "b", "c"]


def test_tasks_prefer_the_replicas_of_their_zone_in_turn() -> None:
    whole = LsnRange(1, 1, 5, ("leader", "b", "c", "d"), ("c", "b"))
    assert [piece.addresses for piece in split([whole], 4, 1)] == [
        ("c", "b", "leader", "d"),
        ("b", "c", "d", "leader"),
        ("c", "b", "leader", "d"),
        ("b", "c", "d", "leader"),
    ]
    assert options(**{"logservice.zone": "eu/a"}).zone == "eu/a"


BASE_MS = 1_795_600_800_000


def at(ms: int) -> str:
    return str(BASE_MS + ms)


class Timed:
    """A log from whose LSN 5 on each record was appended a millisecond after the one before; those
    below are truncated.
    """

    @property
    def client(self) -> Timed:
        return self

    def shard(self, shard: int) -> Timed:
        return self

    def chain(self, shard: int) -> None:
        return None

    def lsn_at_time(self, append_time_us: int, *, timeout: float) -> LsnAtTime:
        lsn = -(-append_time_us // 1000) - BASE_MS
        return LsnAtTime(max(5, min(lsn, 13)), lsn <= 5)


@pytest.mark.parametrize(
    ("given_options", "expected"),
    [
        ({"startingTimestamp": at(7)}, (7, 10)),
        ({"startingTimestamp": at(12)}, (10, 10)),  # appended behind the end that was asked for
        ({"endingTimestamp": at(7)}, (5, 7)),
        ({"endingTimestamp": at(12)}, (5, 10)),
        ({"endingTimestamp": at(2)}, (5, 5)),
        ({"startingTimestamp": at(6), "endingTimestamp": at(8)}, (6, 8)),
        ({"startingTimestamp": at(2), "failOnDataLoss": "false"}, (5, 10)),
    ],
)
def test_times_narrow_a_range(given_options: dict[str, str], expected: tuple[int, int]) -> None:
    asked: Any = Timed()
    assert narrow(options(**given_options), asked, 1, 5, 10) == expected


def test_a_time_that_may_have_been_truncated_is_a_loss() -> None:
    asked: Any = Timed()
    with pytest.raises(DataLossError, match="may have been truncated"):
        narrow(options(startingTimestamp=at(5)), asked, 1, 5, 10)


def test_logs_are_planned_by_names_and_patterns() -> None:
    with running_fake(shards=(1, 2, 3, 4)) as cluster:
        cluster.names = {1: "wal-a", 2: "wal-b", 3: "wal[c]", 4: "shop"}
        endpoints = ",".join(cluster.endpoints)
        with SyncLogClient(endpoints) as client:
            for shard in cluster.logs:
                client.shard(shard).append([b"a", b"b"])

        def planned(**given: str) -> list[int]:
            asked = {"logservice.endpoints": endpoints, **given}
            return [piece.shard for piece in plan(parse_options(asked))]

        assert planned(shards="wal-*") == [1, 2]
        assert planned(shards="wal*c*,4") == [3, 4]
        assert planned(shards="*b,wal-*") == [1, 2]
        assert planned(shards="wal[*") == [3]
        with pytest.raises(OptionError, match="no log has a name like 'w\\?l-\\*'"):
            planned(shards="w?l-*")
        with pytest.raises(OptionError, match="no log has a name like 'x\\*'"):
            planned(shards="wal-*,x*,4")
        assert planned(shards="*") == [1, 2, 3, 4]
        with pytest.raises(OptionError, match="names shard 4, which is not read"):
            planned(shards="wal-*", startingOffsets='{"1": 1, "4": 1}')


def test_tasks_of_about_as_many_bytes() -> None:
    """Records get longer in the middle of the log."""
    with running_fake() as cluster:
        endpoints = ",".join(cluster.endpoints)
        with SyncLogClient(endpoints) as client:
            for size in (100, 10_000):
                for _ in range(100):
                    client.shard(1).append([bytes(size)] * 10)
        asked = {"logservice.endpoints": endpoints, "shard": "1"}
        assert len(plan(parse_options(asked))) == 1
        pieces = plan(parse_options({**asked, "maxBytesPerPartition": "1000000"}))
    edges = [1, *(piece.end for piece in pieces)]
    assert [*(piece.start for piece in pieces), 2001] == edges
    sizes = [
        sum(100 if lsn <= 1000 else 10_000 for lsn in range(piece.start, piece.end))
        for piece in pieces
    ]
    assert 10 <= len(pieces) <= 13
    assert max(sizes) <= 1_300_000
    assert [piece.addresses[0] for piece in pieces[:3]] != [pieces[0].addresses[0]] * 3


def test_a_log_is_planned_by_its_name() -> None:
    with running_fake(shards=(1, 3)) as cluster:
        endpoints = ",".join(cluster.endpoints)
        with SyncLogClient(endpoints) as client:
            client.shard(3).append([b"a", b"b"])
        asked = {"logservice.endpoints": endpoints, "shard": "shard-3"}
        [found] = plan(parse_options(asked))
    assert (found.shard, found.start, found.end) == (3, 1, 3)
