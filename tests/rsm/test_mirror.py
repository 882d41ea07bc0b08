"""A mirror: a restore with an open end. It follows, is read, is truncated as its source is, and
opens where its promote says.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logservice_wire.errors import LogServiceError, Reason

from logservice.bounds import LINEAGE_EPOCH_BITS, RESTORED_LSN_MAX
from logservice.ids import Index, Lsn
from logservice.lineage import NO_LINEAGE, Lineage
from logservice.outcome import Applied, Rejected
from logservice.rsm import commands
from logservice.rsm.admission import ADMIT, Admission, Refuse
from logservice.rsm.commands import EndRestore, TruncateMirror, decode, encode, is_forwarded
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.restoring import Restoring
from logservice.rsm.snapshot_codec import decode_state, encode_state
from logservice.rsm.state import TIMESTAMP_MAX, Hold, RejectedRange
from logservice.snapshot import SnapshotCorrupt
from tests.owners import APP, NONCE
from tests.rsm.shard_driver import ShardDriver, refused, request
from tests.rsm.test_restoring import OWN, PARENT, begin, bring, item

ZEROS = bytes(32)
FLOOR = 3 << LINEAGE_EPOCH_BITS


def mirror(**more: Any) -> commands.BeginRestore:
    return begin(**{"end_lsn": Lsn(0), "digest": ZEROS, **more})


def promote(base: int, end: int, timestamp: int = 5_000, *, lineage: bytes = OWN) -> EndRestore:
    return EndRestore(APP, lineage, b"d" * 32, Lsn(base), Lsn(end), timestamp)


def cut(lsn: int, lineage: bytes = OWN) -> TruncateMirror:
    return TruncateMirror(APP, lineage, Lsn(lsn))


@pytest.fixture
def log() -> ShardDriver:
    """A mirror from LSN 11 on that has LSNs 11 to 20, of which 15 to 17 are a gap."""
    driver = ShardDriver()
    driver.noop()
    assert driver.command(mirror()) == Applied(lsn=1, value=3)
    bring(driver, item(10, 1, gap=1))
    bring(driver, item(4, 11))
    bring(driver, item(3, 15, gap=2))
    bring(driver, item(3, 18))
    return driver


def same_everywhere(log: ShardDriver) -> None:
    """Another replica, and one that begins at a snapshot anywhere, have the same bytes."""
    data = encode_state(log.rsm.state)
    for begins in range(len(log.entries)):
        other = LogRsm()
        for entry in log.entries[:begins]:
            other.update(entry)
        again = LogRsm()
        again.recover_from_snapshot(other.save_snapshot())
        for entry in log.entries[begins:]:
            again.update(entry)
        assert again.save_snapshot() == data


def test_a_mirror_is_read_from_its_base_on() -> None:
    log = ShardDriver()
    log.command(mirror())
    state = log.rsm.state
    assert (state.served, state.truncated_lsn) == (False, 0)
    bring(log, item(4, 1, gap=1))
    assert (state.served, state.truncated_lsn) == (False, 0)
    bring(log, item(6, 5, gap=1))
    assert (state.served, state.truncated_lsn, state.requested_lsn) == (True, 10, 10)
    bring(log, item(2, 11))
    assert state.restoring == Restoring(Lsn(11), Lsn(0), ZEROS)
    assert log.status.first_lsn == 11
    assert state.lineage == Lineage(3, OWN, PARENT, Lsn(10))
    assert (state.writer_epoch, state.writer_holder) == (FLOOR + 1, "")
    same_everywhere(log)


def test_a_mirror_from_the_first_lsn_on_is_read_at_once() -> None:
    log = ShardDriver()
    log.command(mirror(base_lsn=Lsn(1)))
    assert (log.rsm.state.served, log.rsm.state.lineage.fork_lsn) == (True, 0)
    same_everywhere(log)


def test_inv_mirror_2_it_opens_at_the_end_that_is_named(log: ShardDriver) -> None:
    """INV-MIRROR-2."""
    assert log.command(promote(11, 21)) == Applied(lsn=21)
    state = log.rsm.state
    assert state.restoring is None
    assert state.lineage == Lineage(3, OWN, PARENT, Lsn(20))
    assert (state.truncated_lsn, state.requested_lsn, state.next_timestamp) == (10, 10, 5_000)
    assert log.command(promote(11, 21)) == Applied(lsn=21, duplicate=True)
    assert refused(log.append())[0] == "FENCED"
    epoch = log.value(commands.AcquireWriter(APP, False, FLOOR + 1, False, "db"))
    assert epoch == FLOOR + 2
    assert log.append(2, epoch=epoch) == Applied(lsn=22, count=2)
    assert log.value(commands.AllocateTimestamps(1)) == 5_000
    same_everywhere(log)


@pytest.mark.parametrize("what", ["a block", "a truncation", "too little", "too much", "no base"])
def test_inv_mirror_2_another_range_opens_nothing(log: ShardDriver, what: str) -> None:
    """INV-MIRROR-2: what came between the digest and the entry makes the promote fail."""
    wrong = promote(11, 21)
    if what == "a block":
        bring(log, item(1, 21))
    elif what == "a truncation":
        log.command(cut(12))
    else:
        ends = {"too little": (11, 20), "too much": (11, 22), "no base": (12, 21)}
        wrong = promote(*ends[what])
    before = encode_state(log.rsm.state)
    assert refused(log.command(wrong))[0] == "SHARD_RESTORING"
    log.rsm.state.applied_index = Index(log.rsm.state.applied_index - 1)
    assert encode_state(log.rsm.state) == before
    assert log.rsm.state.restoring is not None


def test_a_mirror_that_has_not_come_to_its_base_does_not_open() -> None:
    log = ShardDriver()
    log.command(mirror())
    bring(log, item(4, 1, gap=1))
    with pytest.raises(LogServiceError):
        encode(promote(11, 5))
    assert refused(log.command(promote(5, 5)))[0] == "SHARD_RESTORING"
    assert refused(log.command(commands.SetHold(APP, False, Lsn(5), "h")))[0] == "SHARD_RESTORING"
    assert log.command(cut(3)) == Applied(lsn=5, value=0, duplicate=True)
    assert refused(log.command(cut(5))) == ("BEYOND_TAIL", {"next_lsn": "5"})


@pytest.mark.parametrize("base", [1, 11])
def test_a_mirror_without_lsns_opens_as_well(base: int) -> None:
    """All of its source was truncated."""
    log = ShardDriver()
    log.command(mirror(base_lsn=Lsn(base)))
    if base > 1:
        bring(log, item(base - 1, 1, gap=1))
    assert log.command(promote(base, base)) == Applied(lsn=base)
    log.rsm.state.writer_epoch = 0
    assert log.append() == Applied(lsn=base, count=1)
    same = encode_state(decode_state(encode_state(log.rsm.state)))
    assert same == encode_state(log.rsm.state)


def test_timestamps_go_on_above_all_that_is_known(log: ShardDriver) -> None:
    copy = encode_state(log.rsm.state)
    for named, then in ((0, TIMESTAMP_MAX), (7, 1000), (5_000, 5_000)):
        log.rsm.recover_from_snapshot(copy)
        driver = ShardDriver(log.rsm)
        driver.command(promote(11, 21, named))
        assert driver.rsm.state.next_timestamp == then


@pytest.mark.parametrize(
    "command",
    [
        commands.OpenSession(APP, NONCE),
        commands.Truncate(APP, Lsn(13), 0),
        commands.Retain(1, Lsn(13)),
        commands.AcquireWriter(APP, True, 0, True, "db"),
        commands.ReleaseWriter(APP, True, FLOOR + 1),
        commands.AllocateTimestamps(1),
    ],
    ids=lambda command: type(command).__name__,
)
def test_nothing_else_changes_a_mirror(log: ShardDriver, command: commands.Command) -> None:
    before = encode_state(log.rsm.state)
    told = refused(log.command(command))
    assert told == ("SHARD_RESTORING", {"next": "21", "end": "0", "base": "11"})
    log.rsm.state.applied_index = Index(log.rsm.state.applied_index - 1)
    assert encode_state(log.rsm.state) == before


def test_inv_mirror_trunc_only_what_it_has_and_never_backwards(log: ShardDriver) -> None:
    """INV-MIRROR-TRUNC. Gaps below go."""
    state = log.rsm.state
    assert refused(log.command(cut(21))) == ("BEYOND_TAIL", {"next_lsn": "21"})
    assert refused(log.command(cut(12, PARENT)))[0] == "LINEAGE_CHANGED"
    assert log.command(cut(10)) == Applied(lsn=21, value=10, duplicate=True)
    assert log.command(cut(12)) == Applied(lsn=21, value=12)
    assert state.restoring == Restoring(Lsn(13), Lsn(0), ZEROS)
    assert state.rejected == [RejectedRange(Lsn(15), 3, Reason.WRONG_EXPECTED_LSN)]
    for again in (12, 11, 1):
        assert log.command(cut(again)) == Applied(lsn=21, value=12, duplicate=True)
    assert log.command(cut(20)) == Applied(lsn=21, value=20)
    assert (state.restoring, state.rejected) == (Restoring(Lsn(21), Lsn(0), ZEROS), [])
    bring(log, item(1, 21))
    assert refused(log.command(promote(11, 22)))[0] == "SHARD_RESTORING"
    assert log.command(promote(21, 22)) == Applied(lsn=22)
    assert (state.truncated_lsn, state.requested_lsn) == (20, 20)
    same_everywhere(log)


def test_inv_mirror_trunc_a_hold_keeps_it_back(log: ShardDriver) -> None:
    state = log.rsm.state
    assert isinstance(log.command(commands.SetHoldFor(APP, False, Lsn(14), 60, "h")), Applied)
    assert log.command(cut(18)) == Applied(lsn=21, value=13)
    assert (state.requested_lsn, state.restoring) == (18, Restoring(Lsn(14), Lsn(0), ZEROS))
    same_everywhere(log)
    assert isinstance(log.command(commands.RenewHold(APP, "h")), Applied)
    log.command(commands.SetHold(APP, False, Lsn(16), "h"))
    assert state.restoring == Restoring(Lsn(16), Lsn(0), ZEROS)
    log.command(commands.ReleaseHold(APP, False, "h"))
    assert state.restoring == Restoring(Lsn(19), Lsn(0), ZEROS)
    assert refused(log.command(commands.SetHold(APP, False, Lsn(18), "h")))[0] == "HOLD_REFUSED"
    same_everywhere(log)


def test_what_a_hold_keeps_back_does_not_go_after_the_promote(log: ShardDriver) -> None:
    """It came with the mirror, and would take effect under a writer of the new lineage (G9)."""
    log.command(commands.SetHold(APP, False, Lsn(14), "h"))
    log.command(cut(18))
    assert isinstance(log.command(promote(14, 21)), Applied)
    log.command(commands.ReleaseHold(APP, False, "h"))
    state = log.rsm.state
    assert (state.truncated_lsn, state.requested_lsn) == (13, 13)


def test_a_mirror_ends_for_its_entries_with_the_promote(log: ShardDriver) -> None:
    log.command(promote(11, 21))
    log.rsm.state.writer_epoch = 0
    assert refused(bring(log, item(1, 21))[0])[0] == "FENCED"
    assert refused(log.command(cut(12)))[0] == "VERB_REFUSED"
    late = Admission(log.rsm).admit(item(1, 22), Lsn(22))
    assert isinstance(late, Refuse)
    assert refused(late.outcome)[0] == "VERB_REFUSED"


def test_another_restore_is_not_truncated() -> None:
    log = ShardDriver()
    log.command(begin())
    bring(log, item(10, 1, gap=1), item(4, 11))
    assert refused(log.command(cut(12)))[0] == "VERB_REFUSED"
    assert refused(log.command(commands.SetHold(APP, False, Lsn(12), "h")))[0] == "SHARD_RESTORING"
    assert (log.rsm.state.served, log.rsm.state.truncated_lsn) == (False, 0)


def test_a_mirror_that_is_closed_is_given_up(log: ShardDriver) -> None:
    assert log.command(commands.Close(APP)) == Applied(lsn=21, value=log.index)
    assert refused(bring(log, item(1, 21))[0])[0] == "SHARD_CLOSED"
    assert refused(log.command(promote(11, 21)))[0] == "SHARD_CLOSED"
    assert refused(log.command(cut(12)))[0] == "SHARD_CLOSED"
    same_everywhere(log)


def test_inv_mirror_1_it_takes_what_a_restore_takes(log: ShardDriver) -> None:
    """INV-MIRROR-1: INV-RESTORE-2 holds, and only the end is open."""
    admission = Admission(log.rsm)
    assert admission.admit(item(1000, 21), Lsn(21)) is ADMIT
    for wrong in (request(2), item(2, 22), item(2, 20), item(2, 21, nonce=b"7" * 16)):
        verdict = admission.admit(wrong, Lsn(21))
        assert isinstance(verdict, Refuse)
        (outcome,) = log.append_all(wrong)
        assert isinstance(outcome, Rejected)
        log = ShardDriver(LogRsm())
        log.command(mirror(base_lsn=Lsn(1)))
        bring(log, item(20, 1))
    state = log.rsm.state
    state.next_lsn = Lsn(RESTORED_LSN_MAX - 1)
    high = Lsn(RESTORED_LSN_MAX - 1)
    assert Admission(log.rsm).admit(item(1, high), high) is ADMIT
    assert isinstance(Admission(log.rsm).admit(item(2, high), high), Refuse)


def test_a_recovery_in_the_middle_goes_on_under_its_lineage(log: ShardDriver) -> None:
    other = b"5" * 16
    log.command(commands.BeginLineage(APP, 4, other, OWN))
    assert refused(log.command(cut(12)))[0] == "LINEAGE_CHANGED"
    assert refused(log.command(promote(11, 21)))[0] == "LINEAGE_CHANGED"
    assert bring(log, item(1, 21, nonce=other)) == [Applied(lsn=21, count=1)]
    assert log.command(cut(12, other)) == Applied(lsn=22, value=12)
    assert log.command(promote(13, 22, lineage=other)) == Applied(lsn=22)
    assert log.rsm.state.lineage == Lineage(4, other, OWN, Lsn(21))
    assert log.rsm.state.writer_epoch == (4 << LINEAGE_EPOCH_BITS) + 1
    same_everywhere(log)


@pytest.mark.parametrize(
    "wrong",
    [
        {"writer_epoch": 0},
        {"digest": b"d" * 32},
        {"digest": b""},
        {"base_lsn": Lsn(0)},
        {"base_lsn": Lsn(RESTORED_LSN_MAX)},
        {"next_timestamp": 0},
    ],
    ids=str,
)
def test_inv_mirror_epoch_what_is_no_mirror_is_refused(wrong: dict[str, Any]) -> None:
    """INV-MIRROR-EPOCH: one without an epoch would open unfenced."""
    assert decode(encode(mirror())) == mirror()
    assert mirror(base_lsn=Lsn(RESTORED_LSN_MAX - 1)) == decode(
        encode(mirror(base_lsn=Lsn(RESTORED_LSN_MAX - 1)))
    )
    with pytest.raises(LogServiceError) as caught:
        encode(mirror(**wrong))
    assert caught.value.reason is Reason.INVALID_ARGUMENT


def test_commands_that_no_state_accepts_are_refused() -> None:
    for wrong in (
        cut(0),
        promote(0, 5),
        promote(6, 5),
        promote(1, RESTORED_LSN_MAX + 1),
        promote(1, 5, 2**63),
    ):
        with pytest.raises(LogServiceError) as caught:
            encode(wrong)
        assert caught.value.reason is Reason.INVALID_ARGUMENT
    assert not is_forwarded(encode(cut(1)))


def test_a_mirror_survives_a_snapshot(log: ShardDriver) -> None:
    log.command(commands.SetHoldFor(APP, False, Lsn(14), 60, "h"))
    log.command(cut(18))
    data = encode_state(log.rsm.state)
    again = decode_state(data)
    assert again.restoring == Restoring(Lsn(14), Lsn(0), ZEROS)
    assert again.served
    assert encode_state(again) == data
    driver = ShardDriver(log.rsm)
    driver.rsm.recover_from_snapshot(data)
    assert bring(driver, item(2, 21)) == [Applied(lsn=21, count=2)]


@pytest.mark.parametrize(
    "changed",
    [
        {"restoring": Restoring(Lsn(11), Lsn(0), b"d" * 32)},
        {"restoring": Restoring(Lsn(12), Lsn(0), ZEROS)},
        {"restoring": Restoring(Lsn(10), Lsn(0), ZEROS)},
        {"restoring": Restoring(Lsn(RESTORED_LSN_MAX), Lsn(0), ZEROS)},
        {"restoring": Restoring(Lsn(22), Lsn(0), ZEROS)},
        {"lineage": Lineage()},
        {"lineage": Lineage(3, OWN, PARENT, Lsn(21))},
        {"truncated_lsn": Lsn(9)},
        {"writer_epoch": 0},
        {"writer_holder": "db", "writer_owner": "app"},
    ],
    ids=str,
)
def test_a_state_that_no_mirror_has_is_refused(log: ShardDriver, changed: dict[str, Any]) -> None:
    for name, value in changed.items():
        setattr(log.rsm.state, name, value)
    if "lineage" in changed:
        log.rsm.state.append_time_us = 1
    with pytest.raises(SnapshotCorrupt):
        decode_state(encode_state(log.rsm.state))


def test_a_state_with_a_hold_below_its_base_is_refused() -> None:
    log = ShardDriver()
    log.command(mirror())
    log.rsm.state.put_hold("h", Hold(Lsn(5), "app"))
    with pytest.raises(SnapshotCorrupt):
        decode_state(encode_state(log.rsm.state))


def test_only_a_log_in_which_nothing_happened_becomes_a_mirror() -> None:
    log = ShardDriver()
    log.append()
    assert refused(log.command(mirror()))[0] == "VERB_REFUSED"
    other = ShardDriver()
    other.command(mirror())
    assert other.command(mirror()) == Applied(lsn=1, value=3, duplicate=True)
    assert refused(other.command(mirror(lineage=b"9" * 16)))[0] == "VERB_REFUSED"
    assert NO_LINEAGE not in (OWN, PARENT)


small = st.integers(0, 6)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    base=st.sampled_from([1, 2, 4, 9]),
    steps=st.lists(
        st.tuples(st.sampled_from("bbbbgtthrcp"), small, st.integers(-2, 3)), max_size=40
    ),
)
def test_whatever_comes_a_mirror_is_one_that_a_snapshot_can_say(
    base: int, steps: list[tuple[str, int, int]]
) -> None:
    """Blocks, gaps, truncations, holds, a close, a promote, many of them wrong; every state on the
    way keeps the invariants, and another replica that begins at its snapshot comes to the same one.
    """
    log = ShardDriver()
    log.command(mirror(base_lsn=Lsn(base)))
    bring(log, *[item(1, lsn, gap=1) for lsn in range(1, base)])
    for what, size, off in steps:
        state = log.rsm.state
        next_lsn, count = int(state.next_lsn), size % 4 + 1
        twin = ShardDriver(LogRsm())
        twin.rsm.recover_from_snapshot(encode_state(state))
        if what in "bg":
            wrong = off if off == 3 else 0
            entry = log.block_entry(item(count, next_lsn + wrong, gap=size % 4 * (what == "g")))
        else:
            low = int(state.truncated_lsn) + off + size
            command: commands.Command = {
                "t": cut(max(low, 1)),
                "h": commands.SetHoldFor(APP, False, Lsn(max(low, 1)), 60, f"h{size % 2}"),
                "r": commands.ReleaseHold(APP, False, f"h{size % 2}"),
                "c": commands.Close(APP) if size == 6 else commands.Connect(),
                "p": promote(min(max(low + 1, 1), next_lsn), next_lsn),
            }[what]
            entry = log.command_entry(command)
        assert log.apply(entry) == [outcome for _, outcome in twin.rsm.update(entry)]
        assert encode_state(twin.rsm.state) == encode_state(decode_state(encode_state(state)))
        assert state.truncated_lsn <= state.requested_lsn < state.next_lsn
        assert all(hold.lsn > state.truncated_lsn for hold in state.holds.values())
        assert all(gap.next_lsn > state.truncated_lsn + 1 for gap in state.rejected)
        if state.restoring is not None:
            assert state.restoring.base_lsn == state.truncated_lsn + 1
            assert (state.lineage.fork_lsn, state.writer_epoch) == (base - 1, FLOOR + 1)
        else:
            assert state.lineage.fork_lsn >= state.truncated_lsn
