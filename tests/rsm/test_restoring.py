"""A log that is being restored takes what its restore brings, at the LSNs that it had, and nothing
else; and opens when its digest is the promised one.
"""

from __future__ import annotations

from typing import Any

import pytest
from logservice_wire.block import encode_block
from logservice_wire.errors import LogServiceError, Reason

from logservice.bounds import (
    LINEAGE_EPOCH_BITS,
    REJECTED_RANGES_MAX,
    RESTORED_GAP_BYTES,
    RESTORED_GAP_LSNS_MAX,
    RESTORED_LINEAGES_MAX,
    RESTORED_LSN_MAX,
)
from logservice.entry import ENTRY_RECORDS_MAX, Entry, EntryKind, counts_error
from logservice.envelope import BlockEnvelope, ProposalId, encode_blocks
from logservice.ids import NO_SESSION, Index, Lsn, SessionId, Term
from logservice.lineage import NO_LINEAGE, Lineage
from logservice.outcome import Applied, Outcome, Rejected
from logservice.rsm import commands
from logservice.rsm.admission import ADMIT, PARK, Admission, Refuse
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.commands import BeginRestore, EndRestore, decides_writer, encode, is_forwarded
from logservice.rsm.restoring import RESTORED_GAPS, Restoring
from logservice.rsm.snapshot_codec import decode_state, encode_state
from logservice.rsm.state import TIMESTAMP_MAX, RejectedRange
from logservice.snapshot import SnapshotCorrupt
from tests.owners import APP, CLAIM, NONCE
from tests.rsm.shard_driver import ShardDriver, refused, request

OWN, PARENT, DIGEST = b"1" * 16, b"2" * 16, b"d" * 32


def begin(**more: Any) -> BeginRestore:
    given: dict[str, Any] = {
        "author": APP,
        "number": 3,
        "lineage": OWN,
        "parent": PARENT,
        "base_lsn": Lsn(11),
        "end_lsn": Lsn(21),
        "writer_epoch": (2 << LINEAGE_EPOCH_BITS) + 7,
        "next_timestamp": 1000,
        "digest": DIGEST,
    }
    return BeginRestore(**{**given, **more})


def end(lineage: bytes = OWN, digest: bytes = DIGEST, **more: Any) -> EndRestore:
    """Of the whole range that `begin` promises."""
    given: dict[str, Any] = {"base_lsn": Lsn(11), "end_lsn": Lsn(21)}
    return EndRestore(APP, lineage, digest, **{**given, **more})


def item(
    count: int,
    lsn: int,
    *,
    gap: int = 0,
    nonce: bytes = OWN,
    block: bytes | None = None,
    time_us: int = 0,
) -> AppendRequest:
    """What a restore brings for `count` LSNs from `lsn` on."""
    data = (b"" if gap else b"r" * count) if block is None else block
    return AppendRequest(
        NO_SESSION,
        gap,
        0,
        Lsn(lsn),
        count,
        data,
        CLAIM._replace(nonce=nonce),
        restored=True,
        append_time_us=time_us,
    )


def bring(log: ShardDriver, *items: AppendRequest) -> list[Outcome]:
    return log.append_all(*items)


@pytest.fixture
def log() -> ShardDriver:
    """Restoring has begun, and what lies below the base is there."""
    driver = ShardDriver()
    driver.noop()
    assert driver.command(begin()) == Applied(lsn=1, value=3)
    assert bring(driver, item(10, 1, gap=1)) == [Applied(lsn=1, count=10)]
    return driver


def test_a_restored_log_has_the_lsns_gaps_and_epoch_that_it_should(log: ShardDriver) -> None:
    bring(log, item(4, 11))
    bring(log, item(3, 15, gap=2))
    bring(log, item(3, 18))
    assert log.command(end()) == Applied(lsn=21)
    state = log.rsm.state
    assert (state.truncated_lsn, state.requested_lsn, state.next_lsn) == (10, 10, 21)
    assert state.rejected == [RejectedRange(Lsn(15), 3, Reason.WRONG_EXPECTED_LSN)]
    assert state.lineage == Lineage(3, OWN, PARENT, Lsn(20))
    assert (state.writer_epoch, state.writer_holder) == ((3 << LINEAGE_EPOCH_BITS) + 1, "")
    assert state.next_timestamp == 1000
    assert state.restoring is None
    # The next append has the next LSN, at once: not only when some old mark is passed.
    epoch = log.value(commands.AcquireWriter(APP, False, state.writer_epoch, False, "db"))
    assert log.append(2, epoch=epoch) == Applied(lsn=21, count=2)
    old = (2 << LINEAGE_EPOCH_BITS) + 7
    assert refused(log.append(epoch=old))[0] == "FENCED"
    assert refused(log.append())[0] == "FENCED"
    assert refused(log.command(commands.Truncate(APP, Lsn(12), old)))[0] == "FENCED"


def test_a_log_without_a_writer_has_none_afterwards() -> None:
    driver = ShardDriver()
    driver.command(begin(writer_epoch=0, base_lsn=Lsn(1), end_lsn=Lsn(3)))
    bring(driver, item(2, 1))
    driver.command(end(base_lsn=Lsn(1), end_lsn=Lsn(3)))
    assert driver.append() == Applied(lsn=3, count=1)
    assert refused(driver.append(epoch=1))[0] == "FENCED"
    assert driver.value(commands.AcquireWriter(APP, False, 0, False, "db")) == (
        (3 << LINEAGE_EPOCH_BITS) + 1
    )


@pytest.mark.parametrize(
    "command",
    [
        commands.OpenSession(APP, NONCE),
        commands.Truncate(APP, Lsn(3), 0),
        commands.SetHold(APP, False, Lsn(12), "h"),
        commands.SetHoldFor(APP, True, Lsn(12), 60, "h"),
        commands.RenewHold(APP, "h"),
        commands.ReleaseHold(APP, True, "h"),
        commands.AcquireWriter(APP, True, 0, True, "db"),
        commands.ReleaseWriter(APP, True, (3 << LINEAGE_EPOCH_BITS) + 1),
        commands.AllocateTimestamps(1),
    ],
    ids=lambda command: type(command).__name__,
)
def test_nothing_else_changes_what_the_log_is_to_be(
    log: ShardDriver, command: commands.Command
) -> None:
    before = encode_state(log.rsm.state)
    told = refused(log.command(command))
    assert told == ("SHARD_RESTORING", {"next": "11", "end": "21"})
    log.rsm.state.applied_index = Index(log.rsm.state.applied_index - 1)
    assert encode_state(log.rsm.state) == before


def test_inv_restore_1_only_a_log_in_which_nothing_happened() -> None:
    """INV-RESTORE-1."""

    def after(*what: commands.Command, append: bool = False) -> Outcome:
        driver = ShardDriver()
        for command in what:
            driver.command(command)
        if append:
            driver.append()
        return driver.command(begin())

    assert isinstance(after(commands.Connect()), Applied)
    for wrong in (
        after(append=True),
        after(commands.OpenSession(APP, NONCE)),
        after(commands.SetHoldFor(APP, False, Lsn(1), 0, "h")),
        after(commands.AcquireWriter(APP, False, 0, False, "db")),
        after(commands.AllocateTimestamps(1)),
        after(commands.Close(APP)),
        after(commands.BeginLineage(APP, 1, PARENT, NO_LINEAGE)),
        after(begin(lineage=b"9" * 16)),
    ):
        assert isinstance(wrong, Rejected)
        assert wrong.reason in (Reason.VERB_REFUSED, Reason.SHARD_RESTORING)


def test_a_begin_that_is_repeated_changes_nothing(log: ShardDriver) -> None:
    assert log.command(begin()) == Applied(lsn=11, value=3, duplicate=True)
    assert log.rsm.state.restoring == Restoring(Lsn(11), Lsn(21), DIGEST)


@pytest.mark.parametrize(
    "wrong",
    [
        request(2),
        request(2, expected=11),
        request(2, session=1, sequence=1),
        item(2, 11, nonce=b"7" * 16),
        item(2, 12),
        item(2, 10),
        item(11, 11),
        item(2, 11, block=b""),
        item(2, 11, gap=1, block=b"xx"),
        item(2, 11, gap=9),
    ],
)
def test_inv_restore_2_a_block_that_is_not_the_next_one_of_the_restore_spoils_it(
    log: ShardDriver, wrong: AppendRequest
) -> None:
    """INV-RESTORE-2: a leader that is right proposes no such block; after one that is not the log
    never opens.
    """
    (outcome,) = log.append_all(wrong)
    assert isinstance(outcome, Rejected)
    assert isinstance(Admission(log.rsm).admit(wrong, Lsn(11)), Refuse) or wrong.record_count > 10
    bring(log, item(7, 13))
    if wrong.record_count == 2:
        bring(log, item(1, 20))
        state = log.rsm.state
        assert state.rejected[0].first_lsn == 11
    assert encode_state(decode_state(encode_state(log.rsm.state))) == encode_state(log.rsm.state)


def test_a_corrupt_gap_is_an_entry_by_itself(log: ShardDriver) -> None:
    """Readers take an entry that begins with one for refused as a whole."""
    first, second = bring(log, item(2, 11, gap=4), item(2, 13))
    assert isinstance(first, Rejected)
    assert isinstance(second, Applied)


def test_inv_restore_3_it_opens_only_whole_and_with_the_promised_digest(log: ShardDriver) -> None:
    """INV-RESTORE-3."""
    assert refused(log.command(end()))[0] == "SHARD_RESTORING"
    bring(log, item(10, 11))
    for less in ({"end_lsn": Lsn(20)}, {"base_lsn": Lsn(12)}, {"end_lsn": Lsn(22)}):
        assert refused(log.command(end(**less)))[0] == "SHARD_RESTORING"
    assert refused(log.command(end(OWN, b"e" * 32)))[0] == "CORRUPT_BLOCK"
    assert refused(log.command(end(digest_lsn=Lsn(12))))[0] == "CORRUPT_BLOCK", "only of the whole"
    assert refused(log.command(end(PARENT, DIGEST)))[0] == "LINEAGE_CHANGED"
    assert log.rsm.state.restoring is not None
    assert log.command(end()) == Applied(lsn=21)
    assert log.command(end()) == Applied(lsn=21, duplicate=True)
    log.rsm.state.writer_epoch = 0
    log.append(3)
    assert log.command(begin()) == Applied(lsn=24, value=3, duplicate=True)


def test_a_half_restored_log_is_closed_and_takes_nothing_more(log: ShardDriver) -> None:
    assert log.command(commands.Close(APP)) == Applied(lsn=11, value=log.index)
    assert refused(bring(log, item(10, 11))[0])[0] == "SHARD_CLOSED"
    assert refused(log.command(end()))[0] == "SHARD_CLOSED"
    assert encode_state(decode_state(encode_state(log.rsm.state))) == encode_state(log.rsm.state)


def test_a_recovery_in_the_middle_of_a_restore_goes_on_under_its_lineage(log: ShardDriver) -> None:
    other = b"5" * 16
    log.command(commands.BeginLineage(APP, 4, other, OWN))
    assert refused(bring(log, item(1, 11))[0])[0] == "SHARD_RESTORING"
    driver = ShardDriver(log.rsm)
    assert bring(driver, item(9, 12, nonce=other)) == [Applied(lsn=12, count=9)]
    assert driver.command(end(other, DIGEST)) == Applied(lsn=21)


@pytest.mark.parametrize(
    "wrong",
    [
        {"writer_epoch": 3 << LINEAGE_EPOCH_BITS},
        {"writer_epoch": 2**63},
        {"writer_epoch": 2**64 - 1},
        {"number": 1},
        {"number": RESTORED_LINEAGES_MAX + 1, "writer_epoch": 0},
        {"lineage": PARENT},
        {"lineage": NO_LINEAGE},
        {"base_lsn": Lsn(0)},
        {"base_lsn": Lsn(21)},
        {"end_lsn": Lsn(RESTORED_LSN_MAX + 1)},
        {"next_timestamp": 0},
        {"next_timestamp": 2**63},
        {"digest": b"short"},
    ],
    ids=str,
)
def test_inv_restore_4_what_cannot_be_true_is_refused(wrong: dict[str, Any]) -> None:
    """INV-RESTORE-4. Elsewhere a false epoch was believed, and nobody could write any more."""
    with pytest.raises(LogServiceError) as caught:
        encode(begin(**wrong))
    assert caught.value.reason is Reason.INVALID_ARGUMENT


def test_inv_restore_4_the_highest_epoch_that_can_be_true_locks_nobody_out() -> None:
    driver = ShardDriver()
    highest = (3 << LINEAGE_EPOCH_BITS) - 1
    driver.command(
        begin(writer_epoch=highest, base_lsn=Lsn(1), end_lsn=Lsn(2), next_timestamp=TIMESTAMP_MAX)
    )
    bring(driver, item(1, 1))
    driver.command(end(base_lsn=Lsn(1), end_lsn=Lsn(2)))
    known = driver.status.writer_epoch
    assert known == (3 << LINEAGE_EPOCH_BITS) + 1
    epoch = driver.value(commands.AcquireWriter(APP, False, known, False, "db"))
    assert driver.append(epoch=epoch) == Applied(lsn=2, count=1)
    # Nobody knows which timestamps the source gave out: the log gives out none.
    assert refused(driver.command(commands.AllocateTimestamps(1)))[0] == "TOO_LARGE"


def test_the_bounds_of_what_is_restored() -> None:
    driver = ShardDriver()
    base = RESTORED_GAP_LSNS_MAX + 2
    driver.command(begin(base_lsn=Lsn(base), end_lsn=Lsn(RESTORED_LSN_MAX)))
    admission = Admission(driver.rsm)
    assert isinstance(admission.admit(item(base - 1, 1, gap=1), Lsn(1)), Refuse)
    assert isinstance(admission.admit(item(base, 1, gap=1), Lsn(1)), Refuse)
    assert admission.admit(item(RESTORED_GAP_LSNS_MAX, 1, gap=1), Lsn(1)) is ADMIT
    bring(driver, item(RESTORED_GAP_LSNS_MAX, 1, gap=1), item(1, base - 1, gap=1))
    assert (driver.rsm.state.next_lsn, driver.rsm.state.rejected) == (base, [])


def test_admission_judges_as_apply_will(log: ShardDriver) -> None:
    admission = Admission(log.rsm)
    assert admission.admit(item(2, 11), Lsn(11)) is ADMIT
    admission.appended(item(2, 11), Lsn(11))
    assert admission.admit(item(2, 13), Lsn(13)) is ADMIT
    verdict = admission.admit(item(2, 11), Lsn(13))
    assert isinstance(verdict, Refuse)
    assert refused(verdict.outcome)[0] == "WRONG_EXPECTED_LSN"
    ordinary = admission.admit(request(1), Lsn(13))
    assert isinstance(ordinary, Refuse)
    assert refused(ordinary.outcome)[0] == "SHARD_RESTORING"
    for data in (encode(end()), encode(commands.Close(APP))):
        admission.reset()
        admission.command_appended(data, Index(log.index + 1))
        assert admission.admit(item(2, 13), Lsn(13)) is PARK
    assert decides_writer(encode(begin()))
    assert not is_forwarded(encode(begin()))


def test_a_log_that_is_open_takes_no_block_of_a_restore() -> None:
    verdict = Admission(ShardDriver().rsm).admit(item(1, 1), Lsn(1))
    assert isinstance(verdict, Refuse)
    assert refused(verdict.outcome)[0] == "VERB_REFUSED"


def test_a_block_of_a_restore_that_is_over_is_no_record(log: ShardDriver) -> None:
    bring(log, item(10, 11))
    log.command(end())
    log.rsm.state.writer_epoch = 0
    assert refused(bring(log, item(1, 21))[0])[0] == "FENCED"


def test_append_times_come_with_the_blocks_and_never_fall(log: ShardDriver) -> None:
    admission = Admission(log.rsm)
    assert admission.admit(item(1, 11, time_us=50), Lsn(11)) is ADMIT
    admission.appended(item(1, 11, time_us=50), Lsn(11))
    assert admission.admit(item(1, 12, time_us=50), Lsn(12)) is ADMIT
    assert isinstance(admission.admit(item(1, 12, time_us=49), Lsn(12)), Refuse)
    assert isinstance(admission.admit(item(1, 12, time_us=2**63 - 1), Lsn(12)), Refuse)
    state = log.rsm.state
    state.append_time_us = 50
    assert state.takes_time(50)
    state.restoring = None
    assert not state.takes_time(50), "INV-TIME-1 of a log that is open"


def test_a_log_remembers_so_many_gaps(log: ShardDriver) -> None:
    state = log.rsm.state
    gap = RejectedRange(Lsn(11), 1, Reason.FENCED)
    state.rejected = [gap] * REJECTED_RANGES_MAX
    verdict = Admission(log.rsm).admit(item(1, 11, gap=1), Lsn(11))
    assert isinstance(verdict, Refuse)
    assert refused(verdict.outcome)[0] == "BUSY"
    state.rejected = [gap] * (REJECTED_RANGES_MAX - 2)
    admission = Admission(log.rsm)
    for lsn in (11, 12):
        assert admission.admit(item(1, lsn, gap=1), Lsn(lsn)) is ADMIT
        admission.appended(item(1, lsn, gap=1), Lsn(lsn))
    assert admission.admit(item(1, 13, gap=1), Lsn(13)) == verdict
    assert admission.admit(item(1, 13), Lsn(13)) is ADMIT


def test_a_snapshot_carries_the_promise(log: ShardDriver) -> None:
    bring(log, item(2, 11), item(3, 13, gap=3))
    data = encode_state(log.rsm.state)
    again = decode_state(data)
    assert again.restoring == Restoring(Lsn(11), Lsn(21), DIGEST)
    assert encode_state(again) == data
    assert RESTORED_GAPS[3] is again.rejected[0].reason


@pytest.mark.parametrize(
    "changed",
    [
        {"restoring": Restoring(Lsn(0), Lsn(21), DIGEST)},
        {"restoring": Restoring(Lsn(21), Lsn(21), DIGEST)},
        {"restoring": Restoring(Lsn(1), Lsn(RESTORED_LSN_MAX + 1), DIGEST)},
        {"restoring": Restoring(Lsn(11), Lsn(0), DIGEST)},
        {"restoring": Restoring(Lsn(0), Lsn(0), DIGEST)},
        {"restoring": Restoring(Lsn(1), Lsn(10), DIGEST)},
        {"lineage": Lineage()},
        {"lineage": Lineage(3, OWN, PARENT, Lsn(21))},
        {"restoring": None},
        {"requested_lsn": Lsn(3)},
        {"writer_holder": "db", "writer_owner": "app"},
    ],
    ids=str,
)
def test_a_state_that_no_restore_makes_is_refused(
    log: ShardDriver, changed: dict[str, Any]
) -> None:
    for name, value in changed.items():
        setattr(log.rsm.state, name, value)
    if "lineage" in changed:
        log.rsm.state.append_time_us = 1
    with pytest.raises(SnapshotCorrupt):
        decode_state(encode_state(log.rsm.state))


def test_a_session_of_a_restored_log_is_an_ordinary_one(log: ShardDriver) -> None:
    bring(log, item(10, 11))
    log.command(end())
    log.rsm.state.writer_epoch = 0
    session = log.value(commands.OpenSession(APP, NONCE))
    assert log.append(1, session=SessionId(session), sequence=1) == Applied(lsn=21, count=1)


def test_only_an_entry_without_room_for_a_record_has_many_lsns() -> None:
    """At the size that a lone restored gap has; a witness gets it without its payload."""
    gap = BlockEnvelope(
        ProposalId(1, 1), NO_SESSION, 1, 0, Lsn(1), RESTORED_GAP_LSNS_MAX, b"", CLAIM
    )
    payload = encode_blocks([gap], 5)
    assert len(payload) == RESTORED_GAP_BYTES

    def error(count: int, payload: bytes) -> str:
        return counts_error(Entry(Term(1), Index(1), Lsn(1), count, EntryKind.BLOCK, payload))

    for small in (payload, b""):
        assert error(RESTORED_GAP_LSNS_MAX, small) == ""
        assert error(RESTORED_GAP_LSNS_MAX + 1, small) != ""
    large = payload + b"x"
    assert error(ENTRY_RECORDS_MAX, large) == ""
    assert error(ENTRY_RECORDS_MAX + 1, large) != ""
    assert error(1, payload + encode_block([b""], 1)) == ""
