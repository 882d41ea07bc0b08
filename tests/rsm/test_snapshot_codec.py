"""The byte form of a log shard's state: canonical, checked, and enough to go on from."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from logservice.ids import Lsn
from logservice.rsm.commands import (
    AcquireWriter,
    AllocateTimestamps,
    OpenSession,
    SetHold,
    Truncate,
)
from logservice.rsm.log_rsm import LogRsm
from logservice.snapshot import SnapshotCorrupt
from tests.rsm.shard_driver import ShardDriver, landed

PREFIX = struct.Struct("<IHHI")


def busy_shard() -> ShardDriver:
    """A state with something in every field."""
    shard = ShardDriver()
    sessions = [shard.value(OpenSession()) for _ in range(3)]
    for sequence in range(1, 71):
        shard.append(2, session=sessions[0], sequence=sequence)
    shard.append(session=sessions[1], sequence=1)
    shard.append(session=sessions[1], sequence=7)
    shard.append(3, session=12345, sequence=1)
    shard.append(epoch=9)
    shard.append(expected=4)
    shard.value(AllocateTimestamps(77))
    shard.value(SetHold(Lsn(30), "zeta"))
    shard.value(SetHold(Lsn(40), "alpha"))
    shard.value(Truncate(Lsn(100), 0))
    shard.value(AcquireWriter(0, False, "holder"))
    shard.value(Truncate(Lsn(120), 1))
    return shard


def restored(data: bytes) -> LogRsm:
    rsm = LogRsm()
    rsm.recover_from_snapshot(data)
    return rsm


def test_a_state_survives_the_round_trip() -> None:
    shard = busy_shard()
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
    states = []
    for names in (("a", "b", "c"), ("c", "a", "b")):
        shard = ShardDriver()
        shard.append(9)
        for name in names:
            shard.value(SetHold(Lsn(3 + ord(name) - ord("a")), name))
        states.append(shard.rsm.save_snapshot())
    assert states[0] == states[1]


def test_empty_bytes_are_a_new_shard() -> None:
    shard = busy_shard()
    shard.rsm.recover_from_snapshot(b"")
    assert shard.rsm.save_snapshot() == LogRsm().save_snapshot()
    assert ShardDriver(shard.rsm).append() == landed(1)


def test_damage_anywhere_is_found_and_leaves_the_old_state() -> None:
    data = busy_shard().rsm.save_snapshot()
    rsm = busy_shard().rsm
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        with pytest.raises(SnapshotCorrupt):
            rsm.recover_from_snapshot(bytes(damaged))
    for length in range(1, len(data)):
        with pytest.raises(SnapshotCorrupt):
            rsm.recover_from_snapshot(data[:length])
    assert rsm.save_snapshot() == data


def test_a_state_with_a_good_checksum_that_no_log_made_is_refused_or_canonical() -> None:
    """Mutates the body and repairs its checksum, so that the checks behind it are what decides."""
    data = busy_shard().rsm.save_snapshot()
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
