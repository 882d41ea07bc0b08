"""The ledger of the upgrade story notices what it is there for."""

from __future__ import annotations

from tests.upgrade.ledger import Ledger


def ledger() -> Ledger:
    told = Ledger()
    told.note("w", {"shard": 1, "number": 0, "count": 2, "lsn": 1, "time_s": 1.0})
    told.note("w", {"shard": 1, "number": 2, "count": 1, "error": "UNKNOWN_OUTCOME"})
    told.note("w", {"shard": 1, "number": 3, "count": 1, "lsn": 4, "time_s": 4.0})
    return told


GOOD = [(1, "w/0"), (2, "w/1"), (3, "w/2"), (4, "w/3")]


def test_a_log_with_every_acked_record_is_right() -> None:
    assert list(ledger().problems(1, GOOD)) == []
    assert list(ledger().problems(1, [one for one in GOOD if one[1] != "w/2"])) == []
    assert ledger().count() == 3
    assert ledger().errors == {"UNKNOWN_OUTCOME": 1}


def test_lost_doubled_and_moved_records_are_found() -> None:
    (lost,) = ledger().problems(1, GOOD[1:])
    assert lost == "shard 1: 1 records lost: w/0"
    (doubled,) = ledger().problems(1, [*GOOD, (5, "w/2")])
    assert doubled == "shard 1: 1 records doubled: w/2"
    (moved,) = ledger().problems(1, [*GOOD[:3], (9, "w/3")])
    assert moved == "shard 1: 1 records moved: w/3"


def test_the_longest_time_without_an_ack_counts_the_ends() -> None:
    assert ledger().longest_gap_s(0.0, 5.0) == 3.0
    assert ledger().longest_gap_s(0.0, 9.0) == 5.0
