"""The byte form of a log shard's state: canonical, checked, and enough to go on from."""

from __future__ import annotations

import random
import struct
import zlib
from collections import deque
from collections.abc import Callable

import pytest
from logservice_wire.errors import Reason

from logservice.bounds import HOLD_TTL_S_MAX, HOLD_TTL_S_MIN, SESSIONS_PER_OWNER_MAX
from logservice.ids import Index, Lsn, SessionId
from logservice.owner import NO_NONCE
from logservice.rsm.commands import (
    AcquireWriter,
    AllocateTimestamps,
    OpenSession,
    SetHold,
    SetHoldFor,
    Truncate,
    TruncateMirror,
)
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.sessions import Session, SessionTable
from logservice.rsm.snapshot_codec import decode_state, encode_state
from logservice.rsm.state import Hold, LogState, RejectedRange
from logservice.snapshot import SnapshotCorrupt
from tests.owners import APP, CLAIM, NONCE
from tests.rsm.shard_driver import ShardDriver, landed
from tests.rsm.test_restoring import OWN, begin, bring, item

PREFIX = struct.Struct("<IHHI")


def busy_shard() -> ShardDriver:
    """A state with something in every field."""
    shard = ShardDriver()
    sessions = [shard.value(OpenSession(APP, NONCE)) for _ in range(3)]
    for sequence in range(1, 71):
        shard.append(2, session=sessions[0], sequence=sequence)
    shard.append(session=sessions[1], sequence=1)
    shard.append(session=sessions[1], sequence=7)
    shard.append(3, session=12345, sequence=1)
    shard.append(epoch=9)
    shard.append(expected=4)
    shard.value(AllocateTimestamps(77))
    shard.value(SetHold(APP, False, Lsn(30), "zeta"))
    shard.value(SetHold(APP, False, Lsn(40), "alpha"))
    shard.value(Truncate(APP, Lsn(100), 0))
    shard.value(AcquireWriter(APP, False, 0, False, "holder"))
    shard.value(Truncate(APP, Lsn(120), 1))
    return shard


def shard_with_revisions() -> ShardDriver:
    """A busy one, of cluster version 2."""
    shard = busy_shard()
    shard.value(SetHoldFor(APP, False, Lsn(90), 60, "timed"))
    shard.value(SetHoldFor(APP, False, Lsn(90), 0, "alpha"))
    return shard


def mirrored_shard() -> ShardDriver:
    """A mirror that is held and truncated."""
    shard = ShardDriver()
    shard.value(begin(end_lsn=Lsn(0), digest=bytes(32)))
    bring(shard, item(10, 1, gap=1), item(4, 11), item(3, 15, gap=2), item(3, 18))
    shard.value(SetHoldFor(APP, False, Lsn(14), 60, "reader"))
    shard.value(TruncateMirror(APP, OWN, Lsn(18)))
    return shard


MAKERS = pytest.mark.parametrize("make", [busy_shard, shard_with_revisions, mirrored_shard])


def restored(data: bytes) -> LogRsm:
    rsm = LogRsm()
    rsm.recover_from_snapshot(data)
    return rsm


@MAKERS
def test_a_state_survives_the_round_trip(make: Callable[[], ShardDriver]) -> None:
    shard = make()
    data = shard.rsm.save_snapshot()
    copy = restored(data)
    assert copy.status() == shard.status
    assert copy.save_snapshot() == data


def test_a_restored_state_decides_the_same() -> None:
    shard = busy_shard()
    twin = ShardDriver(restored(shard.rsm.save_snapshot()))
    for session, sequence in ((1, 70), (1, 7), (1, 6), (1, 71), (2, 1), (2, 2), (3, 1), (9, 1)):
        for epoch in (0, 1):
            ours = shard.append(session=session, sequence=sequence, epoch=epoch)
            assert twin.append(session=session, sequence=sequence, epoch=epoch) == ours
    assert twin.rsm.save_snapshot() == shard.rsm.save_snapshot()


def test_inv_rsm_canon_the_order_of_events_that_end_alike_does_not_show() -> None:
    """INV-RSM-CANON."""
    states = []
    for names in (("a", "b", "c"), ("c", "a", "b")):
        shard = ShardDriver()
        shard.append(9)
        for name in names:
            shard.value(SetHold(APP, False, Lsn(3 + ord(name) - ord("a")), name))
        states.append(shard.rsm.save_snapshot())
    assert states[0] == states[1]


def test_empty_bytes_are_a_new_shard() -> None:
    shard = busy_shard()
    shard.rsm.recover_from_snapshot(b"")
    assert shard.rsm.save_snapshot() == LogRsm().save_snapshot()
    assert ShardDriver(shard.rsm).append() == landed(1)


@MAKERS
def test_damage_anywhere_is_found_and_leaves_the_old_state(
    make: Callable[[], ShardDriver],
) -> None:
    data = make().rsm.save_snapshot()
    rsm = make().rsm
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        with pytest.raises(SnapshotCorrupt):
            rsm.recover_from_snapshot(bytes(damaged))
    for length in range(1, len(data)):
        with pytest.raises(SnapshotCorrupt):
            rsm.recover_from_snapshot(data[:length])
    assert rsm.save_snapshot() == data


@MAKERS
def test_a_state_with_a_good_checksum_that_no_log_made_is_refused_or_canonical(
    make: Callable[[], ShardDriver],
) -> None:
    """Mutated bodies with a right checksum: the checks behind the checksum decide."""
    data = make().rsm.save_snapshot()
    rng = random.Random(7)
    refused = 0
    for _ in range(4000):
        body = bytearray(data[PREFIX.size :])
        for _ in range(rng.randint(1, 3)):
            match rng.randrange(4):
                case 0:
                    body[rng.randrange(len(body))] = rng.randrange(256)
                case 1:
                    body[rng.randrange(60)] ^= 1 << rng.randrange(8)
                case 2:
                    del body[rng.randrange(len(body)) :][:4]
                case _:
                    body.insert(rng.randrange(len(body)), rng.randrange(256))
        prefix = PREFIX.pack(*PREFIX.unpack_from(data)[:3], zlib.crc32(body))
        try:
            state = restored(prefix + bytes(body))
        except SnapshotCorrupt:
            refused += 1
            continue
        assert state.save_snapshot() == prefix + bytes(body)
    assert refused > 1000


def broken(**changes: object) -> LogState:
    """A small state with fields that no log could have given it."""
    state = LogState(
        applied_index=Index(5000), next_lsn=Lsn(100), truncated_lsn=Lsn(10), requested_lsn=Lsn(20)
    )
    for name, value in changes.items():
        setattr(state, name, value)
    return state


def held(lsn: int = 11, owner: str = APP.identity, revision: int = 0, ttl_s: int = 0) -> Hold:
    return Hold(Lsn(lsn), owner, Index(revision), ttl_s)


def crowd(count: int) -> SessionTable:
    """A table with `count` sessions of one owner."""
    return SessionTable(
        {
            SessionId(number): Session(CLAIM.owner, NONCE, 0, Index(5000))
            for number in range(1, count + 1)
        }
    )


def table(*rows: tuple[int, int, int, list[tuple[int, int]]], nonce: bytes = NONCE) -> SessionTable:
    return SessionTable(
        {
            SessionId(session): Session(
                CLAIM.owner, nonce, last, Index(used), deque((Lsn(a), b, 7, 0) for a, b in window)
            )
            for session, last, used, window in rows
        }
    )


def gap(lsn: int, count: int) -> RejectedRange:
    return RejectedRange(Lsn(lsn), count, Reason.FENCED)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"truncated_lsn": 30}, "truncation LSN"),
        ({"requested_lsn": 100}, "truncation LSN"),
        ({"next_timestamp": 0}, "timestamp"),
        ({"writer_holder": "w"}, "holder without an epoch"),
        ({"writer_holder": "w", "writer_epoch": 1}, "holder without an owner"),
        ({"writer_owner": "w", "writer_epoch": 1}, "holder without an owner"),
        ({"holds": {"h": held(10)}}, "hold below"),
        ({"holds": {"": held()}}, "holds out of order"),
        ({"holds": {"n" * 129: held()}}, "name too long"),
        ({"holds": {"h": held(owner="")}}, "holds of one identity"),
        ({"holds": {"h": held(owner="o" * 513)}}, "name too long"),
        ({"holds": {str(number): held() for number in range(257)}}, "too many holds"),
        ({"holds": {str(number): held() for number in range(129)}}, "holds of one identity"),
        ({"holds": {"h": held(revision=5001)}}, "revision of a hold"),
        ({"holds": {"h": held(revision=9, ttl_s=HOLD_TTL_S_MIN - 1)}}, "time to live"),
        ({"holds": {"h": held(revision=9, ttl_s=HOLD_TTL_S_MAX + 1)}}, "time to live"),
        ({"holds": {"g": held(revision=9), "h": held(ttl_s=60)}}, "time to live"),
        ({"closed_lsn": 100, "holds": {"h": held(revision=9)}}, "an end without a Close"),
        ({"sessions": table((9, 0, 9, []), nonce=NO_NONCE)}, "without a nonce"),
        ({"sessions": crowd(SESSIONS_PER_OWNER_MAX + 1)}, "sessions of one identity"),
        ({"sessions": table((5001, 0, 5001, []))}, "sessions out of order"),
        ({"sessions": table((9, 0, 8, []))}, "sessions out of order"),
        ({"sessions": table((9, 2, 9, [(1, 1)]))}, "session window"),
        ({"sessions": table((9, 2, 9, [(5, 2), (6, 1)]))}, "window out of order"),
        ({"sessions": table((9, 1, 9, [(5, 0)]))}, "window out of order"),
        ({"sessions": table((9, 1, 9, [(99, 2)]))}, "beyond the tail"),
        ({"rejected": [gap(20, 5), gap(24, 1)]}, "ranges out of order"),
        ({"rejected": [gap(20, 0)]}, "ranges out of order"),
        ({"rejected": [gap(9, 2)]}, "out of the log"),
        ({"rejected": [gap(99, 2)]}, "out of the log"),
    ],
)
def test_a_state_that_breaks_an_invariant_is_refused(changes: dict[str, object], what: str) -> None:
    """INV-RSM-TRUNC, INV-RSM-HOLD, INV-RSM-EPOCH, INV-RSM-GAP and INV-RSM-SESSION are checked when
    a state is read back.
    """
    decode_state(encode_state(broken()))
    with pytest.raises(SnapshotCorrupt, match=what):
        decode_state(encode_state(broken(**changes)))


def test_a_state_is_written_in_the_oldest_version_that_can_say_it() -> None:
    """Release 0.1.0 writes and reads version 2, and refuses 3."""
    shard = busy_shard()
    before = shard.rsm.save_snapshot()
    assert PREFIX.unpack_from(before)[1] == 2
    shard.value(SetHoldFor(APP, False, Lsn(90), 0, "zeta"))
    assert PREFIX.unpack_from(shard.rsm.save_snapshot())[1] == 3
    shard.value(SetHold(APP, False, Lsn(90), "zeta"))
    assert PREFIX.unpack_from(shard.rsm.save_snapshot())[1] == 2


def test_a_state_in_a_version_that_it_does_not_need_is_refused() -> None:
    """INV-RSM-CANON: equal states would else have two forms."""
    state = broken(holds={"h": held()})
    body = encode_state(state)[PREFIX.size :]
    head, rest = body[:64], body[64:]
    newer = head + bytes(16 + 48 + 8 + 48) + rest[:12] + struct.pack("<QI", 0, 0) + rest[12:]
    newer += bytes(4)  # named sessions
    data = PREFIX.pack(PREFIX.unpack_from(encode_state(state))[0], 3, 0, zlib.crc32(newer)) + newer
    with pytest.raises(SnapshotCorrupt, match="says nothing more"):
        decode_state(data)
