"""Close: a log has one end, nothing is appended behind it, and who is told so can rely on it."""

from __future__ import annotations

import random

import pytest
from logservice_wire.errors import Reason

from logservice.ids import Index, Lsn
from logservice.invariants import InvariantViolation
from logservice.outcome import Applied
from logservice.rsm import snapshot_codec
from logservice.rsm.admission import ADMIT, PARK, Admission, Refuse
from logservice.rsm.commands import (
    AcquireWriter,
    AllocateTimestamps,
    Close,
    Connect,
    OpenSession,
    ReleaseHold,
    SetHold,
    Truncate,
    closes_log,
    decode,
    encode,
    is_forwarded,
)
from logservice.rsm.log_rsm import LogRsm
from logservice.snapshot import SnapshotCorrupt
from tests.owners import APP, NONCE
from tests.rsm.shard_driver import ShardDriver, landed, refused, request


@pytest.fixture
def log() -> ShardDriver:
    """A log with three records in a session; its session id is 1."""
    driver = ShardDriver()
    assert driver.value(OpenSession(APP, NONCE)) == 1
    driver.append(3, session=1, sequence=1)
    return driver


def test_the_byte_form_is_fixed_and_no_other_store_proposes_it() -> None:
    data = encode(Close(APP))
    assert data.hex() == "09020000" + "03000200" + "617070" + "7331"
    assert decode(data) == Close(APP)
    assert closes_log(data)
    assert not closes_log(encode(Connect()))
    assert not is_forwarded(data)


def test_the_end_is_the_next_lsn_at_the_close_and_stays(log: ShardDriver) -> None:
    """INV-RSM-CLOSED."""
    assert log.command(Close(APP)) == Applied(lsn=Lsn(4), value=3)
    assert refused(log.append(2, session=1, sequence=2)) == ("SHARD_CLOSED", {"end": "4"})
    assert log.command(Close(APP)) == Applied(lsn=Lsn(4), value=3, duplicate=True)
    assert (log.status.closed_index, log.status.closed_lsn) == (3, 4)
    with pytest.raises(InvariantViolation, match="INV-RSM-CLOSED"):
        log.rsm.state.close(Index(9))


def test_a_repetition_gets_its_original_lsns_also_behind_the_close(log: ShardDriver) -> None:
    """The session decides before the Close does: "closed" means that it was not applied."""
    log.command(Close(APP))
    assert log.append(3, session=1, sequence=1) == landed(1, 3, duplicate=True)
    assert refused(log.append(1, session=1, sequence=2))[0] == "SHARD_CLOSED"
    assert refused(log.append(1, session=1, sequence=3))[0] == "SEQUENCE_GAP"
    assert refused(log.append(1, session=7, sequence=1))[0] == "SESSION_EXPIRED"


def test_the_close_decides_before_epoch_and_expected_lsn(log: ShardDriver) -> None:
    log.value(AcquireWriter(APP, False, 0, False, "db"))
    log.command(Close(APP))
    for wrong in ({"epoch": 9}, {"expected": 77}, {}):
        assert refused(log.append(**wrong))[0] == "SHARD_CLOSED"


def test_what_lies_behind_the_end_is_no_part_of_the_log(log: ShardDriver) -> None:
    """Only a leader that breaks the rules makes such entries; they neither grow the log nor fill
    the table of gaps.
    """
    log.command(Close(APP))
    for _ in range(3):
        log.append(5)
    assert log.rsm.state.end_lsn == 4
    assert log.rsm.state.next_lsn == 19
    assert log.status.rejected_range_count == 0
    assert refused(log.command(Truncate(APP, Lsn(4), 0))) == ("BEYOND_TAIL", {"next_lsn": "4"})


def test_everything_but_appending_goes_on(log: ShardDriver) -> None:
    log.value(SetHold(APP, False, Lsn(2), "reader"))
    log.command(Close(APP))
    assert refused(log.command(OpenSession(APP, NONCE))) == ("SHARD_CLOSED", {"end": "4"})
    assert log.value(Truncate(APP, Lsn(3), 0)) == 1
    assert log.value(SetHold(APP, False, Lsn(3), "reader")) == 3
    assert log.value(ReleaseHold(APP, False, "reader")) == 3
    assert log.value(AcquireWriter(APP, False, 0, False, "db")) == 1
    assert log.value(AllocateTimestamps(10)) == 1
    assert isinstance(log.command(Connect()), Applied)
    assert log.status.first_lsn == 4


def test_a_closed_state_has_a_version_of_its_own_and_an_open_one_the_old(log: ShardDriver) -> None:
    """A log that was never closed has the bytes of 0.1.0."""
    assert log.rsm.save_snapshot()[4] == 2
    log.command(Close(APP))
    log.append(2)
    data = log.rsm.save_snapshot()
    assert data[4] == 3
    again = LogRsm()
    again.recover_from_snapshot(data)
    assert again.save_snapshot() == data
    assert (again.state.closed_index, again.state.end_lsn) == (3, 4)
    other = ShardDriver(again)
    assert refused(other.append(1, session=1, sequence=2)) == ("SHARD_CLOSED", {"end": "4"})


@pytest.mark.parametrize(
    ("closed_index", "closed_lsn"),
    [(0, 4), (99, 4), (3, 0), (3, 99), (3, 2)],
)
def test_a_closed_state_that_no_log_made_is_refused(
    log: ShardDriver, closed_index: int, closed_lsn: int
) -> None:
    log.command(Close(APP))
    good = log.rsm.save_snapshot()
    at = snapshot_codec._PREFIX.size + snapshot_codec._HEAD.size
    body = bytearray(good[snapshot_codec._PREFIX.size :])
    snapshot_codec._CLOSED.pack_into(
        body, at - snapshot_codec._PREFIX.size, closed_index, closed_lsn
    )
    prefix = snapshot_codec._PREFIX.pack(
        snapshot_codec._MAGIC, 3, 0, snapshot_codec.crc32(bytes(body))
    )
    with pytest.raises(SnapshotCorrupt):
        snapshot_codec.decode_state(prefix + body)


def test_admission_parks_behind_an_uncommitted_close(log: ShardDriver) -> None:
    admission = Admission(log.rsm)
    close = log.command_entry(Close(APP))
    admission.command_appended(encode(Close(APP)), close.index)
    again, new = request(3, session=1, sequence=1), request(1, session=1, sequence=2)
    first = admission.admit(again, log.next_lsn)
    assert isinstance(first, Refuse)
    assert first.outcome == landed(1, 3, duplicate=True)
    assert admission.admit(new, log.next_lsn) is PARK
    assert admission.admit(request(1, epoch=9), log.next_lsn) is not ADMIT
    log.apply(close)
    answer = admission.admit(new, log.next_lsn, waited=True)
    assert isinstance(answer, Refuse)
    assert refused(answer.outcome) == ("SHARD_CLOSED", {"end": "4"})


def test_a_close_that_was_cut_off_closes_nothing(log: ShardDriver) -> None:
    """Another leader overwrote it: the new term begins without it."""
    admission = Admission(log.rsm)
    admission.command_appended(encode(Close(APP)), Index(log.index + 1))
    assert admission.admit(request(), log.next_lsn) is PARK
    admission.reset()
    assert admission.admit(request(), log.next_lsn) is ADMIT


@pytest.mark.parametrize("seed", range(30))
def test_nothing_closed_grows_whatever_comes_and_every_replica_agrees(seed: int) -> None:
    """Random entries around a Close, applied to one replica in one go, and to another one with a
    snapshot in between.
    """
    rng = random.Random(seed)
    log = ShardDriver()
    log.value(OpenSession(APP, NONCE))
    close_at = rng.randrange(20)
    accepted: list[tuple[int, int]] = []
    sequence = 0
    other = LogRsm()
    for step in range(40):
        if step == close_at:
            log.command(Close(APP))
        number = sequence + rng.choice((0, 1, 1, 1, 2))
        outcome = log.append(
            1 + number % 3,
            session=1 if number else 0,
            sequence=number,
            epoch=rng.choice((0, 0, 0, 1)),
            expected=rng.choice((0, 0, int(log.next_lsn))),
        )
        if isinstance(outcome, Applied) and not outcome.duplicate:
            assert step < close_at
            accepted.append((outcome.lsn, outcome.count))
            sequence = max(sequence, number)
        elif step >= close_at and not isinstance(outcome, Applied):
            assert outcome.reason in (
                Reason.SHARD_CLOSED,
                Reason.SEQUENCE_GAP,
                Reason.SESSION_EXPIRED,
                Reason.SEQUENCE_REUSED,
            )
        if rng.random() < 0.2:
            for entry in log.entries[other.state.applied_index :]:
                other.update(entry)
            fresh = LogRsm()
            fresh.recover_from_snapshot(other.save_snapshot())
            other = fresh
    for entry in log.entries[other.state.applied_index :]:
        other.update(entry)
    assert other.save_snapshot() == log.rsm.save_snapshot()
    end = log.rsm.state.end_lsn
    assert all(lsn + count <= end for lsn, count in accepted)
