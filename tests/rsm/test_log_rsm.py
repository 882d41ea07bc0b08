"""LogRsm, rule by rule; the tests of G2, G4, G5 and G9 name the guarantee they stand for."""

from __future__ import annotations

import pytest
from logservice_wire.errors import Reason

from logservice.bounds import (
    HOLDS_MAX,
    HOLDS_PER_OWNER_MAX,
    SESSION_IDLE_ENTRIES,
    SESSION_WINDOW,
    TIMESTAMPS_PER_CALL_MAX,
)
from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, Term
from logservice.invariants import InvariantViolation
from logservice.outcome import Applied
from logservice.owner import Author
from logservice.rsm import sessions
from logservice.rsm.commands import (
    AcquireWriter,
    AllocateTimestamps,
    Connect,
    OpenSession,
    ReleaseHold,
    ReleaseWriter,
    SetHold,
    Truncate,
)
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.queries import LogStatusQuery
from logservice.rsm.state import TIMESTAMP_MAX, RejectedRange
from tests.owners import APP, NONCE, OTHER, STORE
from tests.rsm.shard_driver import ShardDriver, landed, refused, request


@pytest.fixture
def shard() -> ShardDriver:
    return ShardDriver()


def gaps(shard: ShardDriver) -> list[tuple[int, int, Reason]]:
    found = shard.rsm.state.rejected_between(Lsn(1), shard.next_lsn)
    assert isinstance(found, tuple)
    return [(gap.first_lsn, gap.record_count, gap.reason) for gap in found]


# --- order and LSNs ----------------------------------------------------------------------------


def test_g2_lsns_are_dense_over_every_kind_of_entry(shard: ShardDriver) -> None:
    shard.noop()
    assert shard.append(3) == landed(1, 3)
    shard.noop(EntryKind.CONFIG)
    shard.value(Connect())
    assert shard.append_all(request(2), request(1), request(4)) == [
        landed(4, 2),
        landed(6, 1),
        landed(7, 4),
    ]
    assert (shard.rsm.state.next_lsn, shard.rsm.state.applied_index) == (11, 5)


def test_g2_a_refused_block_inside_an_entry_leaves_its_neighbours_where_they_are(
    shard: ShardDriver,
) -> None:
    session = shard.value(OpenSession(APP, NONCE))
    outcomes = shard.append_all(
        request(2, session=session, sequence=1),
        request(3, session=session, sequence=3),
        request(1, session=session, sequence=2),
    )
    assert outcomes[0] == landed(1, 2)
    assert refused(outcomes[1]) == ("SEQUENCE_GAP", {"last": "1"})
    assert outcomes[2] == landed(6, 1)
    assert gaps(shard) == [(3, 3, Reason.SEQUENCE_GAP)]


def test_g2_after_the_first_failure_in_a_session_nothing_later_succeeds(shard: ShardDriver) -> None:
    session = shard.value(OpenSession(APP, NONCE))
    outcomes = shard.append_all(
        request(session=session, sequence=1, expected=9),
        *(request(session=session, sequence=sequence) for sequence in range(2, 6)),
    )
    assert refused(outcomes[0])[0] == "WRONG_EXPECTED_LSN"
    assert [refused(outcome)[0] for outcome in outcomes[1:]] == ["SEQUENCE_GAP"] * 4
    assert shard.append(session=session, sequence=1) == landed(6)


def test_inv_rsm_order_a_hole_or_a_repeated_entry_stops_the_store(shard: ShardDriver) -> None:
    shard.noop()
    for index in (1, 3):
        with pytest.raises(InvariantViolation, match="INV-RSM-ORDER"):
            shard.rsm.update(Entry(Term(1), Index(index), Lsn(1), 0, EntryKind.NOOP, b""))


def test_inv_log_lsn_an_entry_that_does_not_follow_stops_the_store(shard: ShardDriver) -> None:
    shard.append(2)
    for lsn, count, kind in (
        (2, 0, EntryKind.NOOP),
        (4, 1, EntryKind.BLOCK),
        (3, 1, EntryKind.NOOP),
    ):
        with pytest.raises(InvariantViolation, match="INV-LOG-LSN"):
            shard.rsm.update(Entry(Term(1), Index(2), Lsn(lsn), count, kind, b""))


def test_a_new_shard_may_start_behind_its_first_snapshot() -> None:
    rsm = LogRsm()
    rsm.recover_from_snapshot(b"")
    rsm.update(Entry(Term(1), Index(2), Lsn(1), 0, EntryKind.NOOP, b""))
    assert rsm.state.applied_index == 2


@pytest.mark.parametrize("payload", [b"", b"\0" * 8, b"\1\0\0\0\0\0\0\0short", b"\xff" * 200])
def test_an_entry_that_is_no_envelope_becomes_a_gap(shard: ShardDriver, payload: bytes) -> None:
    assert shard.apply(shard.entry(EntryKind.BLOCK, 4, payload)) == []
    assert gaps(shard) == [(1, 4, Reason.CORRUPT_BLOCK)]
    assert shard.append() == landed(5)


def test_an_entry_whose_count_differs_from_its_blocks_becomes_a_gap(shard: ShardDriver) -> None:
    good = shard.block_entry(request(2), request(3))
    shard.next_lsn, shard.index = Lsn(1), Index(0)
    outcomes = shard.apply(shard.entry(EntryKind.BLOCK, 4, good.payload))
    assert [refused(outcome)[0] for outcome in outcomes] == ["CORRUPT_BLOCK"] * 2
    assert gaps(shard) == [(1, 4, Reason.CORRUPT_BLOCK)]


def test_a_block_without_records_is_refused_and_takes_no_lsn(shard: ShardDriver) -> None:
    assert refused(shard.append(0)) == ("INVALID_ARGUMENT", {"field": "block"})
    assert gaps(shard) == []


# --- sessions ----------------------------------------------------------------------------------


def test_g5_a_retry_is_applied_once_and_returns_the_original_lsns(shard: ShardDriver) -> None:
    session = shard.value(OpenSession(APP, NONCE))
    assert shard.append(2, session=session, sequence=1) == landed(1, 2)
    assert shard.append(1, session=session, sequence=2) == landed(3)
    assert shard.append(2, session=session, sequence=1) == landed(1, 2, duplicate=True)
    assert gaps(shard) == [(4, 2, Reason.SEQUENCE_GAP)]
    assert shard.append(session=session, sequence=3) == landed(6)


def test_g5_a_session_remembers_its_window_and_not_more(shard: ShardDriver) -> None:
    session = shard.value(OpenSession(APP, NONCE))
    last = SESSION_WINDOW + 5
    for sequence in range(1, last + 1):
        assert shard.append(session=session, sequence=sequence) == landed(sequence)
    oldest = last - SESSION_WINDOW + 1
    assert shard.append(session=session, sequence=oldest) == landed(oldest, duplicate=True)
    for sequence in (oldest - 1, 1, 0):
        assert refused(shard.append(session=session, sequence=sequence)) == ("SESSION_EXPIRED", {})


def test_g5_an_unknown_session_never_appends(shard: ShardDriver) -> None:
    assert refused(shard.append(session=99, sequence=1))[0] == "SESSION_EXPIRED"
    assert gaps(shard) == [(1, 1, Reason.SESSION_EXPIRED)]


def test_g5_a_rejection_does_not_advance_the_session(shard: ShardDriver) -> None:
    session = shard.value(OpenSession(APP, NONCE))
    assert refused(shard.append(session=session, sequence=1, epoch=4))[0] == "FENCED"
    assert refused(shard.append(session=session, sequence=2))[0] == "SEQUENCE_GAP"
    assert shard.append(session=session, sequence=1) == landed(3)


def test_sequences_of_different_sessions_are_independent(shard: ShardDriver) -> None:
    first, second = shard.value(OpenSession(APP, NONCE)), shard.value(OpenSession(APP, NONCE))
    assert first != second
    assert shard.append(session=first, sequence=1) == landed(1)
    assert shard.append(session=second, sequence=1) == landed(2)
    assert shard.append(session=second, sequence=1) == landed(2, duplicate=True)


def test_a_full_session_table_evicts_only_what_was_idle_for_long(
    shard: ShardDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_PER_OWNER_MAX", 3)
    monkeypatch.setattr(sessions, "SESSION_IDLE_ENTRIES", 10)
    ids = [shard.value(OpenSession(APP, NONCE)) for _ in range(3)]
    assert refused(shard.command(OpenSession(APP, NONCE)))[0] == "BUSY"
    for _ in range(10):
        shard.noop()
    shard.append(session=ids[0], sequence=1)
    newest = shard.value(OpenSession(APP, NONCE))
    # The second was idle for longest. The first was just used. The third is old enough, too.
    assert shard.append(session=ids[0], sequence=2) == landed(2)
    assert refused(shard.append(session=ids[1], sequence=1))[0] == "SESSION_EXPIRED"
    assert shard.value(OpenSession(APP, NONCE)) > newest
    assert refused(shard.append(session=ids[2], sequence=1))[0] == "SESSION_EXPIRED"
    assert refused(shard.command(OpenSession(APP, NONCE)))[0] == "BUSY"
    assert shard.append(session=newest, sequence=1) == landed(5)


def test_a_session_seen_within_the_idle_entries_survives_any_demand(
    shard: ShardDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_PER_OWNER_MAX", 2)
    monkeypatch.setattr(sessions, "SESSION_IDLE_ENTRIES", 20)
    kept = shard.value(OpenSession(APP, NONCE))
    for sequence in range(1, 12):
        shard.append(session=kept, sequence=sequence)
        for _ in range(8):
            shard.command(OpenSession(APP, NONCE))
    assert shard.append(session=kept, sequence=12) != landed(0)
    assert isinstance(shard.append(session=kept, sequence=13), Applied)
    assert SESSION_IDLE_ENTRIES > SESSION_WINDOW


# --- writer epoch ------------------------------------------------------------------------------


def test_g9_without_a_grant_only_appends_without_an_epoch_pass(shard: ShardDriver) -> None:
    assert shard.append() == landed(1)
    assert refused(shard.append(epoch=1)) == ("FENCED", {"epoch": "0", "holder": ""})


def test_g9_only_the_newest_epoch_appends_and_truncates(shard: ShardDriver) -> None:
    shard.append(10)
    assert shard.value(AcquireWriter(APP, False, 0, False, "a")) == 1
    assert shard.append(epoch=1) == landed(11)
    assert shard.value(AcquireWriter(APP, False, 1, False, "b")) == 2
    who = {"epoch": "2", "holder": "b"}
    for old in (0, 1, 3):
        assert refused(shard.append(epoch=old)) == ("FENCED", who)
        assert refused(shard.command(Truncate(APP, Lsn(5), old))) == ("FENCED", who)
    assert shard.append(epoch=2) == landed(15)
    assert shard.value(Truncate(APP, Lsn(5), 2)) == 5
    assert gaps(shard) == [(lsn, 1, Reason.FENCED) for lsn in (12, 13, 14)]


def test_g9_after_a_release_nobody_appends_or_truncates_until_the_next_grant(
    shard: ShardDriver,
) -> None:
    shard.append(5)
    epoch = shard.value(AcquireWriter(APP, False, 0, False, "a"))
    assert shard.command(ReleaseWriter(APP, False, epoch)) == Applied(value=1)
    for any_epoch in (0, 1, 2):
        fenced = ("FENCED", {"epoch": "1", "holder": ""})
        assert refused(shard.append(epoch=any_epoch)) == fenced
        assert refused(shard.command(Truncate(APP, Lsn(2), any_epoch))) == fenced
    assert shard.value(AcquireWriter(APP, False, 1, False, "b")) == 2
    assert isinstance(shard.append(epoch=2), Applied)


def test_g9_a_held_back_truncation_of_an_older_epoch_dies_with_it(shard: ShardDriver) -> None:
    shard.append(20)
    shard.value(SetHold(APP, False, Lsn(6), "backup"))
    assert shard.value(Truncate(APP, Lsn(15), 0)) == 5
    shard.value(AcquireWriter(APP, False, 0, False, "a"))
    assert shard.status.requested_truncation_lsn == 5
    assert shard.value(ReleaseHold(APP, False, "backup")) == 5
    assert shard.value(Truncate(APP, Lsn(15), 1)) == 15


def test_a_grant_is_a_compare_and_swap_unless_it_is_a_takeover(shard: ShardDriver) -> None:
    assert shard.value(AcquireWriter(APP, False, 0, False, "a")) == 1
    assert refused(shard.command(AcquireWriter(APP, False, 0, False, "b"))) == (
        "STALE_EPOCH",
        {"epoch": "1", "holder": "a"},
    )
    assert shard.value(AcquireWriter(APP, False, 0, True, "b")) == 2
    assert (shard.status.writer_epoch, shard.status.writer_holder) == (2, "b")


def test_release_needs_the_present_epoch_and_may_be_repeated(shard: ShardDriver) -> None:
    assert refused(shard.command(ReleaseWriter(APP, False, 0)))[0] == "STALE_EPOCH"
    shard.value(AcquireWriter(APP, False, 0, False, "a"))
    shard.value(AcquireWriter(APP, False, 1, False, "b"))
    assert refused(shard.command(ReleaseWriter(APP, False, 1))) == (
        "STALE_EPOCH",
        {"epoch": "2", "holder": "b"},
    )
    assert shard.command(ReleaseWriter(APP, False, 2)) == Applied(value=2)
    assert shard.command(ReleaseWriter(APP, False, 2)) == Applied(value=2, duplicate=True)


def test_decision_order_session_before_epoch_before_expected_lsn(shard: ShardDriver) -> None:
    session = shard.value(OpenSession(APP, NONCE))
    shard.append(session=session, sequence=1)
    shard.value(AcquireWriter(APP, False, 0, False, "a"))
    assert shard.append(session=session, sequence=1, expected=77) == landed(1, duplicate=True)
    assert refused(shard.append(session=session, sequence=3, expected=77))[0] == "SEQUENCE_GAP"
    assert refused(shard.append(session=session, sequence=2, expected=77))[0] == "FENCED"
    wrong = shard.append(2, session=session, sequence=2, epoch=1, expected=77)
    assert refused(wrong) == ("WRONG_EXPECTED_LSN", {"next": "7"})
    assert shard.append(session=session, sequence=2, epoch=1, expected=7) == landed(7)


# --- truncation and holds ----------------------------------------------------------------------


def test_g4_truncation_is_monotone_and_tells_the_current_one(shard: ShardDriver) -> None:
    shard.append(10)
    assert refused(shard.command(Truncate(APP, Lsn(0), 0)))[0] == "STALE_TRUNCATE"
    assert shard.value(Truncate(APP, Lsn(4), 0)) == 4
    for lower in (4, 3, 0):
        assert refused(shard.command(Truncate(APP, Lsn(lower), 0))) == (
            "STALE_TRUNCATE",
            {"current": "4", "requested": "4"},
        )
    assert shard.rsm.state.truncated_lsn == 4


def test_g4_truncation_stops_at_the_tail(shard: ShardDriver) -> None:
    assert refused(shard.command(Truncate(APP, Lsn(1), 0))) == ("BEYOND_TAIL", {"next_lsn": "1"})
    shard.append(10)
    assert refused(shard.command(Truncate(APP, Lsn(11), 0))) == ("BEYOND_TAIL", {"next_lsn": "11"})
    assert shard.value(Truncate(APP, Lsn(10), 0)) == 10
    assert (shard.status.first_lsn, shard.status.next_lsn) == (11, 11)


def test_g4_a_hold_keeps_its_records_until_it_goes(shard: ShardDriver) -> None:
    shard.append(100)
    shard.value(SetHold(APP, False, Lsn(50), "backup"))
    shard.value(SetHold(APP, False, Lsn(70), "replay"))
    assert shard.value(Truncate(APP, Lsn(90), 0)) == 49
    assert (shard.status.truncated_lsn, shard.status.requested_truncation_lsn) == (49, 90)
    assert refused(shard.command(Truncate(APP, Lsn(80), 0))) == (
        "STALE_TRUNCATE",
        {"current": "49", "requested": "90"},
    )
    assert shard.value(ReleaseHold(APP, False, "backup")) == 69
    shard.value(SetHold(APP, False, Lsn(85), "replay"))
    assert shard.rsm.state.truncated_lsn == 84
    assert shard.value(ReleaseHold(APP, False, "replay")) == 90


def test_g4_a_truncation_that_a_hold_keeps_back_entirely_is_accepted_and_waits(
    shard: ShardDriver,
) -> None:
    shard.append(10)
    shard.value(SetHold(APP, False, Lsn(1), "all"))
    assert shard.command(Truncate(APP, Lsn(8), 0)) == Applied(value=0)
    assert shard.value(ReleaseHold(APP, False, "all")) == 8


def test_g4_a_hold_cannot_bring_truncated_records_back(shard: ShardDriver) -> None:
    shard.append(10)
    shard.value(Truncate(APP, Lsn(4), 0))
    for lsn in (0, 1, 4):
        assert refused(shard.command(SetHold(APP, False, Lsn(lsn), "late"))) == (
            "HOLD_REFUSED",
            {"first_lsn": "5"},
        )
    assert shard.value(SetHold(APP, False, Lsn(5), "late")) == 5
    assert shard.status.holds == (("late", 5, APP.identity, 0, 0),)


def test_releasing_an_unknown_hold_succeeds_as_a_repetition(shard: ShardDriver) -> None:
    assert shard.command(ReleaseHold(APP, False, "never")) == Applied(value=0, duplicate=True)


def test_holds_are_bounded_and_known_ones_can_still_move(shard: ShardDriver) -> None:
    shard.append(10)
    for number in range(HOLDS_MAX):
        author = APP if number < HOLDS_PER_OWNER_MAX else OTHER
        shard.value(SetHold(author, False, Lsn(3), f"hold-{number}"))
    third = Author("third", STORE)
    assert refused(shard.command(SetHold(third, False, Lsn(3), "one too many")))[0] == "BUSY"
    assert shard.value(SetHold(APP, False, Lsn(4), "hold-0")) == 4


def test_truncation_forgets_gaps_that_lie_wholly_below_it(shard: ShardDriver) -> None:
    for lsn in range(1, 31, 3):
        shard.append(3, expected=lsn + 1)
    assert len(gaps(shard)) == 10
    shard.value(Truncate(APP, Lsn(8), 0))
    assert gaps(shard)[0] == (7, 3, Reason.WRONG_EXPECTED_LSN)
    shard.value(Truncate(APP, Lsn(9), 0))
    assert gaps(shard)[0] == (10, 3, Reason.WRONG_EXPECTED_LSN)
    between = shard.rsm.state.rejected_between(Lsn(15), Lsn(19))
    assert between == (
        RejectedRange(Lsn(13), 3, Reason.WRONG_EXPECTED_LSN),
        RejectedRange(Lsn(16), 3, Reason.WRONG_EXPECTED_LSN),
    )
    assert shard.rsm.state.rejected_between(Lsn(19), Lsn(15)) == ()


# --- the other commands ------------------------------------------------------------------------


def test_timestamp_ranges_are_half_open_and_follow_each_other(shard: ShardDriver) -> None:
    assert shard.command(AllocateTimestamps(100)) == Applied(value=1, count=100)
    assert shard.value(AllocateTimestamps(TIMESTAMPS_PER_CALL_MAX)) == 101
    assert shard.value(AllocateTimestamps(1)) == 101 + TIMESTAMPS_PER_CALL_MAX


def test_timestamps_end_before_they_overflow(shard: ShardDriver) -> None:
    shard.rsm.state.next_timestamp = TIMESTAMP_MAX - 5
    assert refused(shard.command(AllocateTimestamps(6)))[0] == "TOO_LARGE"
    assert shard.value(AllocateTimestamps(5)) == TIMESTAMP_MAX - 5


def test_connect_goes_through_the_log(shard: ShardDriver) -> None:
    shard.append(3)
    assert shard.command(Connect()) == Applied(lsn=4, value=2)


@pytest.mark.parametrize(
    "data", [b"", b"\1", b"\0\2\0\0", b"\x63\2\0\0", b"\1\1\0\0", b"\2\2\0\0x"]
)
def test_a_malformed_command_is_refused_and_changes_nothing(
    shard: ShardDriver, data: bytes
) -> None:
    before = shard.status
    assert refused(shard.command(data))[0] == "INVALID_ARGUMENT"
    after = shard.status
    assert after.applied_index == before.applied_index + 1
    assert (after.next_timestamp, after.session_count, after.truncated_lsn) == (1, 0, 0)


def test_a_command_entry_without_a_proposal_id_is_passed_over(shard: ShardDriver) -> None:
    assert shard.apply(shard.entry(EntryKind.COMMAND, 0, b"short")) == []
    assert shard.rsm.state.applied_index == 1


def test_status_shows_the_whole_state(shard: ShardDriver) -> None:
    shard.append(10)
    shard.value(SetHold(APP, False, Lsn(9), "z"))
    shard.value(SetHold(APP, False, Lsn(6), "a"))
    shard.value(Truncate(APP, Lsn(7), 0))
    shard.value(OpenSession(APP, NONCE))
    shard.value(AllocateTimestamps(9))
    status = shard.rsm.lookup(LogStatusQuery())
    assert status == shard.status
    assert status.holds == (("a", 6, APP.identity, 0, 0), ("z", 9, APP.identity, 0, 0))
    assert (status.first_lsn, status.truncated_lsn, status.requested_truncation_lsn) == (6, 5, 7)
    assert (status.next_timestamp, status.session_count, status.rejected_range_count) == (10, 1, 0)


def test_an_unknown_query_is_a_programmer_error(shard: ShardDriver) -> None:
    with pytest.raises(TypeError):
        shard.rsm.lookup("status")
