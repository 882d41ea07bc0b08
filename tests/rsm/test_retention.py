"""RETAIN: what it lets go, and what it may not."""

from __future__ import annotations

import pytest

from logservice.ids import Lsn
from logservice.outcome import Applied
from logservice.rsm.commands import (
    AcquireWriter,
    Close,
    ReleaseHold,
    Retain,
    SetHold,
    SetHoldFor,
    Truncate,
)
from logservice.rsm.log_rsm import LogRsm
from tests.owners import APP, OTHER
from tests.rsm.shard_driver import ShardDriver, refused
from tests.rsm.test_restoring import begin

POLICY = 3


@pytest.fixture
def shard() -> ShardDriver:
    shard = ShardDriver()
    shard.append(100)
    return shard


def retain(shard: ShardDriver, lsn: int) -> tuple[int, bool]:
    """How many records went, and whether that was nothing."""
    outcome = shard.command(Retain(POLICY, Lsn(lsn)))
    assert isinstance(outcome, Applied)
    assert outcome.value == shard.status.truncated_lsn
    return outcome.count, outcome.duplicate


def positions(shard: ShardDriver) -> tuple[int, int]:
    status = shard.status
    return status.truncated_lsn, status.requested_truncation_lsn


def test_g4_retention_truncates_and_never_back(shard: ShardDriver) -> None:
    assert retain(shard, 40) == (40, False)
    assert retain(shard, 40) == (0, True)
    assert retain(shard, 30) == (0, True)
    assert positions(shard) == (40, 40)
    stale = ("STALE_TRUNCATE", {"current": "40", "requested": "40"})
    assert refused(shard.command(Truncate(APP, Lsn(40), 0))) == stale
    assert shard.value(Truncate(APP, Lsn(50), 0)) == 50


def test_inv_rsm_retain_holds_win_and_nothing_is_left_to_do_later(shard: ShardDriver) -> None:
    """INV-RSM-RETAIN."""
    shard.value(SetHold(APP, False, Lsn(21), "backup"))
    shard.value(SetHoldFor(OTHER, False, Lsn(61), 60, "job"))
    assert retain(shard, 80) == (20, False)
    shard.value(ReleaseHold(APP, False, "backup"))
    assert positions(shard) == (20, 20), "what the policy keeps may be more by now"
    assert retain(shard, 80) == (40, False)


def test_inv_rsm_retain_the_newest_record_stays(shard: ShardDriver) -> None:
    beyond = ("BEYOND_TAIL", {"next_lsn": "101"})
    for lsn in (100, 101, 2**64 - 1):
        assert refused(shard.command(Retain(POLICY, Lsn(lsn)))) == beyond
    assert retain(shard, 99) == (99, False)
    empty = ShardDriver()
    assert refused(empty.command(Retain(POLICY, Lsn(1)))) == ("BEYOND_TAIL", {"next_lsn": "1"})


def test_inv_rsm_retain_a_truncation_that_a_hold_keeps_back_stays(shard: ShardDriver) -> None:
    shard.value(SetHold(APP, False, Lsn(21), "backup"))
    shard.value(Truncate(APP, Lsn(90), 0))
    assert positions(shard) == (20, 90)
    shard.value(SetHold(APP, False, Lsn(41), "backup"))
    assert positions(shard) == (40, 90)
    assert retain(shard, 60) == (0, True)
    shard.value(ReleaseHold(APP, False, "backup"))
    assert positions(shard) == (90, 90)


def test_g9_no_epoch_fences_it_and_it_fences_nobody(shard: ShardDriver) -> None:
    epoch = shard.value(AcquireWriter(APP, False, 0, False, "db"))
    assert retain(shard, 10) == (10, False)
    assert shard.status.writer_epoch == epoch
    assert shard.value(Truncate(APP, Lsn(20), epoch)) == 20


def test_a_closed_log_is_retained_up_to_its_end(shard: ShardDriver) -> None:
    shard.command(Close(APP))
    shard.append(5)
    assert refused(shard.command(Retain(POLICY, Lsn(100))))[0] == "BEYOND_TAIL"
    assert retain(shard, 99) == (99, False)


def test_a_log_that_is_restored_takes_none(shard: ShardDriver) -> None:

    empty = ShardDriver()
    empty.value(begin())
    assert refused(empty.command(Retain(POLICY, Lsn(1))))[0] == "SHARD_RESTORING"


def test_a_replica_that_recovers_has_the_same_state(shard: ShardDriver) -> None:
    shard.append(3, epoch=7)  # a gap, at 101
    shard.append(3)
    retain(shard, 102)
    assert shard.rsm.state.rejected
    other = LogRsm()
    other.recover_from_snapshot(shard.rsm.save_snapshot())
    assert other.save_snapshot() == shard.rsm.save_snapshot()
    assert other.status() == shard.status
    retain(shard, 103)
    assert not shard.rsm.state.rejected
