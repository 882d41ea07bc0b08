"""Append times in the state machine: INV-TIME-1, and what of them is in a snapshot."""

from __future__ import annotations

import random
import struct

import pytest
from logservice_wire.errors import Reason

from logservice.bounds import APPEND_TIME_US_MAX, SESSION_WINDOW
from logservice.entry import Entry, EntryKind
from logservice.envelope import EnvelopeCorrupt, append_time_of, decode_blocks, encode_blocks
from logservice.ids import Lsn
from logservice.outcome import Applied, Outcome, Rejected
from logservice.rsm import snapshot_codec
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.commands import Close, OpenSession, Truncate
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.snapshot_codec import decode_state, encode_state
from logservice.snapshot import SnapshotCorrupt
from tests.owners import APP, NONCE
from tests.rsm.shard_driver import ShardDriver, request

CORRUPT = Rejected(Reason.CORRUPT_BLOCK)


def timed_entry(shard: ShardDriver, time_us: int, *requests: AppendRequest) -> Entry:
    entry = shard.block_entry(*requests)
    blocks = list(decode_blocks(entry.payload))
    payload = encode_blocks(blocks, time_us)
    return Entry(entry.term, entry.index, entry.lsn, entry.record_count, entry.kind, payload)


def append_at(shard: ShardDriver, time_us: int, *requests: AppendRequest) -> list[Outcome]:
    return shard.apply(timed_entry(shard, time_us, *(requests or (request(),))))


def test_all_blocks_of_an_entry_are_acked_with_its_time() -> None:
    shard = ShardDriver()
    assert append_at(shard, 7, request(2), request(1)) == [
        Applied(lsn=1, count=2, value=7),
        Applied(lsn=3, count=1, value=7),
    ]
    assert append_at(shard, 8) == [Applied(lsn=4, count=1, value=8)]


def test_without_a_time_there_is_none() -> None:
    shard = ShardDriver()
    assert shard.append() == Applied(lsn=1, count=1, value=0)
    assert shard.rsm.state.append_time_us == 0
    assert encode_state(shard.rsm.state)[4] == snapshot_codec._FIRST


@pytest.mark.parametrize("time_us", [0, 1, 99, 100])
def test_inv_time_1_an_entry_whose_time_does_not_grow_is_refused_as_a_whole(time_us: int) -> None:
    shard = ShardDriver()
    session = shard.value(OpenSession(APP, NONCE))
    append_at(shard, 100, request(session=session, sequence=1))
    bad = [request(2, session=session, sequence=2), request()]
    assert append_at(shard, time_us, *bad) == [CORRUPT, CORRUPT]
    assert shard.rsm.state.append_time_us == 100
    assert [gap.reason for gap in shard.rsm.state.rejected] == [Reason.CORRUPT_BLOCK]
    # The sequence was not used up, and the log goes on.
    good = request(session=session, sequence=2)
    assert append_at(shard, 101, good) == [Applied(lsn=5, count=1, value=101)]


def test_a_leader_that_lies_cannot_use_up_the_times() -> None:
    shard = ShardDriver()
    assert append_at(shard, APPEND_TIME_US_MAX + 1) == [CORRUPT]
    assert append_at(shard, 2**63 - 1) == [CORRUPT]
    assert append_at(shard, APPEND_TIME_US_MAX)[0] != CORRUPT
    assert append_at(shard, APPEND_TIME_US_MAX + 2) == [CORRUPT]
    assert append_at(shard, APPEND_TIME_US_MAX + 1)[0] != CORRUPT
    assert append_at(shard, APPEND_TIME_US_MAX + 2)[0] != CORRUPT
    assert decode_state(encode_state(shard.rsm.state)).append_time_us == APPEND_TIME_US_MAX + 2


def test_a_repetition_is_told_the_original_time_also_behind_a_snapshot() -> None:
    shard = ShardDriver()
    session = shard.value(OpenSession(APP, NONCE))
    for sequence in range(1, SESSION_WINDOW + 5):
        append_at(shard, 10 * sequence, request(session=session, sequence=sequence))
    other = LogRsm()
    other.recover_from_snapshot(shard.rsm.save_snapshot())
    assert other.save_snapshot() == shard.rsm.save_snapshot()
    behind = ShardDriver(other)
    for time_us, sequence in ((10_000, SESSION_WINDOW + 4), (20_000, 10)):
        (again,) = append_at(behind, time_us, request(session=session, sequence=sequence))
        assert again == Applied(lsn=sequence, count=1, value=10 * sequence, duplicate=True)
    # The entry of a repetition was stamped, too.
    assert behind.rsm.state.append_time_us == 20_000


def test_the_newest_time_is_in_the_snapshot() -> None:
    """Else the leader behind a snapshot could stamp what was stamped before (INV-TIME-2)."""
    shard = ShardDriver()
    append_at(shard, 500)
    shard.command(Truncate(APP, Lsn(1), 0))
    state = decode_state(encode_state(shard.rsm.state))
    assert state.append_time_us == 500
    other = LogRsm()
    other.recover_from_snapshot(shard.rsm.save_snapshot())
    assert append_at(ShardDriver(other), 500) == [CORRUPT]


def test_a_closed_log_keeps_its_times() -> None:
    shard = ShardDriver()
    session = shard.value(OpenSession(APP, NONCE))
    append_at(shard, 7, request(session=session, sequence=1))
    shard.command(Close(APP))
    shard.rsm.recover_from_snapshot(shard.rsm.save_snapshot())
    assert append_at(shard, 8, request(session=session, sequence=1)) == [
        Applied(lsn=1, count=1, value=7, duplicate=True)
    ]


def test_a_window_with_times_that_no_log_has_is_refused() -> None:
    shard = ShardDriver()
    session = shard.value(OpenSession(APP, NONCE))
    for sequence in (1, 2):
        append_at(shard, 10 * sequence, request(session=session, sequence=sequence))
    state = shard.rsm.state
    ((_, row),) = list(state.sessions)
    first, second = row.window
    for times in ((20, 10), (10, 21)):
        row.window.clear()
        row.window.extend(
            (*one[:3], time) for one, time in zip((first, second), times, strict=True)
        )
        with pytest.raises(SnapshotCorrupt, match="append time"):
            decode_state(encode_state(state))


def test_a_newer_state_that_says_nothing_new_is_refused() -> None:
    """INV-RSM-CANON: equal states have equal bytes."""
    shard = ShardDriver()
    append_at(shard, 7)
    state = shard.rsm.state
    newer = bytearray(encode_state(state))
    before = (snapshot_codec._PREFIX, snapshot_codec._HEAD, snapshot_codec._CLOSED)
    at = sum(one.size for one in (*before, snapshot_codec._LINEAGE))
    newer[at : at + 8] = bytes(8)
    body = bytes(newer[snapshot_codec._PREFIX.size :])
    struct.pack_into("<I", newer, 8, snapshot_codec.crc32(body))
    with pytest.raises(SnapshotCorrupt, match="says nothing more"):
        decode_state(bytes(newer))


def test_heads_that_are_none_are_refused() -> None:
    for head in (
        b"",
        bytes(7),
        struct.pack("<II", 1, 1),
        struct.pack("<IIq", 1, 1, 0),
        struct.pack("<IIq", 1, 1, -5),
        struct.pack("<IIq", 1, 2, 5),
    ):
        with pytest.raises(EnvelopeCorrupt):
            append_time_of(head)
        with pytest.raises(EnvelopeCorrupt):
            list(decode_blocks(head))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_times_are_replicas_stay_equal_and_times_grow(seed: int) -> None:
    rng = random.Random(seed)
    shard, twin = ShardDriver(), LogRsm()
    before = 0
    for _ in range(200):
        roll = rng.choice([0, 1, -(2**40), 2**40, 2**62]) + rng.randrange(50)
        entry = timed_entry(shard, max(0, min(before + roll, 2**63 - 1)), request())
        payload = bytearray(entry.payload)
        for _ in range(rng.randrange(3)):
            payload[rng.randrange(24)] ^= 1 << rng.randrange(8)
        entry = Entry(entry.term, entry.index, entry.lsn, 1, EntryKind.BLOCK, bytes(payload))
        assert shard.apply(entry) == [outcome for _, outcome in twin.update(entry)]
        after = shard.rsm.state.append_time_us
        assert after >= before
        before = after
        if rng.random() < 0.1:
            twin.recover_from_snapshot(shard.rsm.save_snapshot())
    assert twin.save_snapshot() == shard.rsm.save_snapshot()
