"""A fork: another history of the log, which nobody takes for the one before."""

from __future__ import annotations

import pytest
from logservice_wire.errors import Reason

from logservice.bounds import LINEAGE_TIMESTAMP_STEP, LINEAGES_MAX
from logservice.ids import Lsn
from logservice.invariants import InvariantViolation
from logservice.lineage import FIRST, NO_LINEAGE, Lineage
from logservice.outcome import Applied
from logservice.rsm.admission import Admission, Refuse
from logservice.rsm.commands import (
    AcquireWriter,
    AllocateTimestamps,
    BeginLineage,
    Close,
    CommandMalformed,
    OpenSession,
    ReleaseWriter,
    SetHold,
    Truncate,
    begins_lineage,
    decode,
    encode,
    is_forwarded,
)
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.snapshot_codec import decode_state, encode_state
from logservice.rsm.state import TIMESTAMP_MAX
from logservice.snapshot import SnapshotCorrupt
from tests.owners import APP, NONCE
from tests.rsm.shard_driver import ShardDriver, landed, refused

ONE, TWO = b"1" * 16, b"2" * 16
FORK = BeginLineage(APP, 1, ONE, NO_LINEAGE)


@pytest.fixture
def log() -> ShardDriver:
    """A log with three records in session 1, and a writer of epoch 1."""
    driver = ShardDriver()
    assert driver.value(OpenSession(APP, NONCE)) == 1
    assert driver.value(AcquireWriter(APP, False, 0, False, "db")) == 1
    driver.append(3, session=1, sequence=1, epoch=1)
    return driver


def test_the_byte_form_is_fixed_and_nobody_takes_it_from_a_caller(log: ShardDriver) -> None:
    data = encode(FORK)
    by = "03000200" + "617070" + "7331"
    assert data.hex() == "0d020000" + by + "0100000000000000" + "31" * 16 + "00" * 16
    assert decode(data) == FORK
    assert begins_lineage(data)
    assert not is_forwarded(data)
    verdict = Admission(log.rsm).admit_command(data)
    assert isinstance(verdict, Refuse)
    assert refused(verdict.outcome) == ("INVALID_ARGUMENT", {"field": "command"})


@pytest.mark.parametrize(
    ("number", "lineage", "parent"),
    [
        (0, ONE, NO_LINEAGE),
        (LINEAGES_MAX + 1, ONE, TWO),
        (1, NO_LINEAGE, NO_LINEAGE),
        (1, ONE, TWO),
        (2, ONE, NO_LINEAGE),
        (2, ONE, ONE),
        (1, b"short", NO_LINEAGE),
    ],
)
def test_a_lineage_that_none_can_be_is_malformed(
    number: int, lineage: bytes, parent: bytes
) -> None:
    command = BeginLineage(APP, number, lineage, parent)
    with pytest.raises(Exception, match="INVALID_ARGUMENT"):
        encode(command)
    if len(lineage) == 16:
        head, layout = encode(FORK)[:-40], BeginLineage.layout
        with pytest.raises(CommandMalformed):
            decode(head + layout.pack(number, lineage, parent))


def test_inv_lineage_1_a_fork_names_the_present_lineage(log: ShardDriver) -> None:
    assert log.command(FORK) == Applied(lsn=Lsn(4), value=1)
    assert log.rsm.state.lineage == Lineage(1, ONE, NO_LINEAGE, Lsn(3))
    for wrong in (FORK, BeginLineage(APP, 2, TWO, b"x" * 16), BeginLineage(APP, 3, TWO, ONE)):
        reason, metadata = refused(log.command(wrong))
        assert reason == Reason.LINEAGE_CHANGED.value
        assert (metadata["actual"], metadata["fork_lsn"]) == (ONE.hex(), "3")
    assert log.rsm.state.lineage.number == 1
    log.append(2)
    assert log.command(BeginLineage(APP, 2, TWO, ONE)) == Applied(lsn=Lsn(6), value=2)
    assert log.status.lineage == Lineage(2, TWO, ONE, Lsn(5))
    with pytest.raises(InvariantViolation, match="INV-LINEAGE-1"):
        log.rsm.state.fork(Lineage(4, ONE, TWO, Lsn(5)))


def test_inv_lineage_2_no_epoch_is_granted_twice(log: ShardDriver) -> None:
    """The entries that granted epochs 2, 3, ... may be among the lost ones."""
    log.command(FORK)
    (after, holder) = (log.status.writer_epoch, log.status.writer_holder)
    assert (after, holder) == (2**32 + 1, "")
    for epoch in (0, 1, 2, after):
        assert refused(log.append(epoch=epoch))[0] == "FENCED"
        assert refused(log.command(Truncate(APP, Lsn(1), epoch)))[0] == "FENCED"
    assert refused(log.command(AcquireWriter(APP, False, 1, False, "db")))[0] == "STALE_EPOCH"
    assert refused(log.command(ReleaseWriter(APP, False, 1)))[0] == "STALE_EPOCH"
    assert log.value(AcquireWriter(APP, False, after, False, "db")) == after + 1
    assert log.append(epoch=after + 1) == landed(8)


def test_inv_lineage_2_also_where_the_first_grant_was_lost() -> None:
    log = ShardDriver()
    log.append(1)
    log.command(FORK)
    assert log.status.writer_epoch == 0
    assert log.append(1) == landed(2)
    assert refused(log.append(epoch=1))[0] == "FENCED"
    assert log.value(AcquireWriter(APP, False, 0, False, "db")) == 2**32 + 1


def test_inv_lineage_3_sessions_end(log: ShardDriver) -> None:
    log.command(FORK)
    log.value(AcquireWriter(APP, False, 2**32 + 1, False, "db"))
    for sequence in (1, 2, 3):
        outcome = log.append(3, session=1, sequence=sequence, epoch=2**32 + 2)
        assert refused(outcome)[0] == "SESSION_EXPIRED"


def test_inv_lineage_4_timestamps_go_on_above(log: ShardDriver) -> None:
    log.value(AllocateTimestamps(10))
    log.command(FORK)
    assert log.value(AllocateTimestamps(1)) == 11 + LINEAGE_TIMESTAMP_STEP
    log.rsm.state.next_timestamp = TIMESTAMP_MAX - 1
    log.command(BeginLineage(APP, 2, TWO, ONE))
    assert refused(log.command(AllocateTimestamps(1)))[0] == "TOO_LARGE"


def test_a_truncation_that_a_hold_keeps_back_ends_with_its_epoch(log: ShardDriver) -> None:
    log.command(SetHold(APP, False, Lsn(2), "backup"))
    log.command(Truncate(APP, Lsn(3), 1))
    assert (log.status.truncated_lsn, log.status.requested_truncation_lsn) == (1, 3)
    log.command(FORK)
    assert (log.status.truncated_lsn, log.status.requested_truncation_lsn) == (1, 1)
    assert [hold.name for hold in log.status.holds] == ["backup"]


def test_a_closed_log_forks_at_its_end(log: ShardDriver) -> None:
    log.command(Close(APP))
    log.append(5, epoch=1)  # refused: LSNs behind the end
    assert log.command(FORK) == Applied(lsn=Lsn(4), value=1)
    assert (log.status.lineage.fork_lsn, log.status.closed_lsn) == (3, 4)
    data = encode_state(log.rsm.state)
    assert encode_state(decode_state(data)) == data


def test_a_log_without_a_fork_has_the_bytes_of_release_0_1_0(log: ShardDriver) -> None:
    before = encode_state(log.rsm.state)
    assert before[4:6] == b"\x02\x00"
    assert log.rsm.state.lineage == FIRST
    log.command(FORK)
    assert encode_state(log.rsm.state)[4:6] == b"\x03\x00"


def test_a_snapshot_carries_the_lineage(log: ShardDriver) -> None:
    log.command(FORK)
    log.append(2)
    other = LogRsm()
    other.recover_from_snapshot(log.rsm.save_snapshot())
    assert other.state.lineage == log.rsm.state.lineage
    assert other.save_snapshot() == log.rsm.save_snapshot()


@pytest.mark.parametrize(
    "lineage",
    [
        Lineage(1, NO_LINEAGE, NO_LINEAGE, Lsn(0)),
        Lineage(1, ONE, TWO, Lsn(0)),
        Lineage(2, ONE, ONE, Lsn(0)),
        Lineage(2, ONE, NO_LINEAGE, Lsn(0)),
        Lineage(1, ONE, NO_LINEAGE, Lsn(4)),
        Lineage(LINEAGES_MAX + 1, ONE, TWO, Lsn(0)),
    ],
)
def test_a_lineage_that_no_log_could_have_is_refused(log: ShardDriver, lineage: Lineage) -> None:
    log.rsm.state.lineage = lineage
    with pytest.raises(SnapshotCorrupt):
        decode_state(encode_state(log.rsm.state))
