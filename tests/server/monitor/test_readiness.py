"""Each thing that is wrong is a reason of its own, and nothing else is a reason."""

from __future__ import annotations

import pytest

from logservice import bounds
from logservice.server.monitor.own.readiness import (
    Code,
    reasons,
    turned_away,
    without_hakeeper,
)
from logservice.server.monitor.own.status import ReplicaStatus
from tests.documents.picture import store_status
from tests.server.monitor.samples import directory, replica

PLENTY = [directory()]


def codes(phase: str, replicas: list[ReplicaStatus]) -> list[str]:
    return [reason.code for reason in reasons(phase, replicas, PLENTY)]


def test_a_serving_store_with_leaders_is_ready() -> None:
    assert codes("serving", [replica(), replica(2, "follower")]) == []


@pytest.mark.parametrize(("phase", "code"), [("starting", "starting"), ("stopping", "stopping")])
def test_phases(phase: str, code: str) -> None:
    assert codes(phase, []) == [code]


def test_one_full_disk_of_two() -> None:
    full = directory(path="/e", logdb={"disk_full": 1, "free_bytes": 7})
    (found,) = reasons("serving", [], [*PLENTY, full])
    assert (found.code, found.detail) == (Code.DISK_FULL, "/e: 7 bytes free")


def test_a_failed_directory() -> None:
    (found,) = reasons("serving", [], [*PLENTY, directory(failed="EIO", logdb={})])
    assert (found.code, found.detail) == (Code.DIRECTORY_FAILED, "/d: EIO")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"leader": 0}, Code.NO_LEADER),
        ({"halted": "checksum", "leader": 0}, Code.HALTED),
        ({"stalled": "no_export", "stalled_bytes": 9}, Code.TRUNCATION_STALLED),
    ],
)
def test_replicas(change: dict[str, object], code: str) -> None:
    found = reasons("serving", [replica(7, **change), replica(8)], PLENTY)
    assert [(reason.code, reason.shard) for reason in found] == [(code, 7)]
    assert found[0].detail


def test_many_shards_do_not_make_a_long_answer() -> None:
    lost = [replica(number, leader=0) for number in range(1, bounds.READY_REASONS_MAX + 50)]
    assert len(reasons("serving", lost, PLENTY)) == bounds.READY_REASONS_MAX


def test_replicas_that_differ_undecided_are_a_reason() -> None:
    (found,) = reasons("serving", [replica(7)], PLENTY, [7])
    assert (found.code, found.shard) == ("diverged", 7)
    many = range(bounds.READY_REASONS_MAX + 5)
    assert len(reasons("serving", [], PLENTY, many)) == bounds.READY_REASONS_MAX


def test_a_store_that_was_turned_away_says_so_first() -> None:
    assert turned_away("") == ()
    own = turned_away("a data directory of s1, which was forgotten")
    found = reasons("serving", [replica(7, leader=0)], PLENTY, (), own)
    assert [reason.code for reason in found] == [Code.TURNED_AWAY, Code.NO_LEADER]
    assert found[0].detail.endswith("a data directory of s1, which was forgotten")
    # The reporter asks whoever sends the heartbeats.
    assert store_status(1).reasons[0].code != Code.TURNED_AWAY
    assert store_status(1, turned_away="not admitted").reasons[0].code == Code.TURNED_AWAY


def test_until_hakeeper_answers_an_empty_store_is_of_no_use() -> None:
    (refused,) = without_hakeeper("another directory", "", empty=False)
    assert (refused.code, refused.detail) == (Code.SHARD_0_REFUSED, "another directory")
    (waiting,) = without_hakeeper("", "waits for s3", empty=True)
    assert (waiting.code, waiting.detail) == (Code.NO_HAKEEPER, "waits for s3")
    (unheard,) = without_hakeeper("", "", empty=True)
    assert unheard.detail
    assert without_hakeeper("", "", empty=False) == ()
    assert reasons("serving", [], PLENTY, (), (refused,)) == (refused,)
