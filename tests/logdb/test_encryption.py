"""Encrypted segments: they open with their keys, and with nothing else; no key is no damage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from logservice.bounds import LOGDB_READ_COPY_BYTES_MAX
from logservice.checksum import crc32
from logservice.envelope import ENVELOPE_BYTES, BlockEnvelope, ProposalId, encode_blocks
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, SessionId
from logservice.logdb.format.commit_group import RecordRun, group_bytes
from logservice.logdb.format.encryption import SegmentCipher, segment_cipher
from logservice.logdb.format.group_encoder import encode_runs
from logservice.logdb.format.record import (
    ASSOCIATED_BYTES,
    ENCRYPTED_OVERHEAD_BYTES,
    ENCRYPTED_VERSION,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Meta,
    RecordCorrupt,
    RecordKind,
    decode_header,
    payload_view,
    record_bytes,
    segment_seed,
)
from logservice.logdb.format.segment import PLAIN, decode_segment_header, segment_name
from logservice.logdb.format.segment_scan import scan_segment
from logservice.logdb.io.segment_keys import KeysMissing, SegmentKeys
from logservice.logdb.log_db import LogDb
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.logdb.recovery import offline
from logservice.logdb.space.disk_space import _PROMISED_SHARE
from logservice.owner import Claim
from logservice.sealing_keys import Keys, key_tag
from tests.logdb.helpers import (
    RING,
    SMALL,
    World,
    all_entries,
    entries,
    entry,
    log_of,
    picture,
    update,
    visible,
)

B_ACTIVE = Keys("b", RING.keys)
ONLY_B = Keys("b", {"b": RING.keys["b"]})
WRONG = Keys("a", {"a": b"x" * 32, "b": RING.keys["b"]})
MARKER = b"nobody but the holder of the key"


def encrypted(**more: object) -> World:
    return World(keys=RING, cluster_version=2, **more)  # type: ignore[arg-type]


def written(world: World, last: int = 12) -> LogDb:
    """Several segments, with entries of two replicas."""
    db = world.open()
    for index in range(1, last + 1):
        db.commit(
            [
                update(1, 1, entries(index, index, size=500), hard=(1, 1, index - 1)),
                update(2, 1, (entry(index, payload=MARKER * (index % 3)),)),
            ]
        )
    return db


def image(world: World, segment: int) -> bytearray:
    return world.memory._files[f"/data/segments/{segment_name(segment)}"].cached


def tag_of(world: World, segment: int) -> int:
    header = decode_segment_header(bytes(image(world, segment)[:64]), segment, world.incarnation)
    assert header is not None
    return header.label.tag


def records(world: World, segment: int) -> Iterator[int]:
    """Where the records of entries begin."""
    data, seed = bytes(image(world, segment)), segment_seed(world.incarnation, segment)
    for group in scan_segment(memoryview(data), segment, SEGMENT_HEADER_BYTES, seed).groups():
        for run in group.runs:
            if run.columns is not None:
                yield from run.columns.offsets


def the_disk(world: World) -> bytes:
    return b"".join(bytes(file.cached) for file in world.memory._files.values())


# --- what is on the disk --------------------------------------------------------------------------


def test_what_was_written_is_read_and_is_not_on_the_disk() -> None:
    plain = World(keys=None, cluster_version=2)
    seen = picture(written(plain))
    assert MARKER in the_disk(plain)
    world = encrypted()
    db = written(world)
    assert picture(db) == seen
    assert MARKER not in the_disk(world)
    assert b"1/3 1/3" not in the_disk(world)
    for copy in (world.copy(), world.without_index()):
        copy.memory.kill()
        assert picture(copy.open()) == seen
    assert db.encrypts
    assert dict(db.stats().key_bytes).keys() == {"a"}
    assert {tag_of(world, one) for one in db._files.sizes} == {key_tag("a")}


@pytest.mark.parametrize("size", [0, 1, 7, 8, LOGDB_READ_COPY_BYTES_MAX, 3 << 20])
def test_payloads_of_any_size(size: int) -> None:
    """The largest are read by themselves, beside their header."""
    world = encrypted(options=replace(SMALL, segment_bytes=1 << 16))
    db = world.open()
    some = (entry(1, payload=b""), *entries(2, 3, size=size), entry(4, payload=b"x"))
    db.commit([update(1, 1, some)])
    assert all_entries(log_of(db)) == some
    assert [log_of(db).payload_bytes(one.index) for one in some] == [0, size, size, 1]
    assert log_of(db).entries(Index(1), Index(5), size) == some[: 2 if size else 3]
    assert log_of(db).entries(Index(1), Index(5), size - 1) == some[:1]


def test_a_read_stops_where_a_plain_one_stops() -> None:
    """Not what lies on the disk counts, but what was written: like what is in memory."""
    for size in (100, 101, 107):
        world = encrypted()
        db = world.open()
        db.commit([update(1, 1, entries(1, 9, size=size))])
        log = log_of(db)
        for room in range(1, 9 * size, 50):
            found = log.entries(Index(1), Index(10), room)
            assert len(found) == max(1, room // size), room


def test_a_group_that_fills_its_segment_exactly() -> None:
    world = encrypted()
    db = world.open()
    db.commit([update(1, 1, entries(1, 1, size=100))])
    at = db._writer.position
    room = SMALL.segment_bytes - at.offset - group_bytes(1, RECORD_HEADER_BYTES)
    assert room % 8 == 0
    db.commit([update(1, 1, entries(2, 2, size=room - ENCRYPTED_OVERHEAD_BYTES))])
    assert db._writer.position.segment == at.segment
    assert db._writer.position.offset == SMALL.segment_bytes
    db.commit([update(1, 1, entries(3, 3, size=1))])
    assert db._writer.position.segment == at.segment + 1
    seen = picture(db)
    assert picture(world.reopen(db)) == seen
    assert db.recovery_report.damages == []


def test_the_same_bytes_are_encrypted_differently_each_time() -> None:
    world = encrypted()
    db = world.open()
    db.commit([update(1, 1, [entry(number, payload=MARKER) for number in (1, 2, 3)])])
    (at, other, third) = records(world, 1)
    length = len(MARKER) + ENCRYPTED_OVERHEAD_BYTES
    found = {bytes(image(world, 1)[one + 72 :][:length]) for one in (at, other, third)}
    nonces = {one[:12] for one in found}
    assert len(found) == len(nonces) == 3


def test_a_group_of_many_replicas_has_a_nonce_for_each_entry() -> None:
    world = encrypted(options=replace(SMALL, segment_bytes=1 << 16))
    db = world.open()
    db.commit([update(shard, 1, entries(1, 1 + shard % 3)) for shard in range(1, 40)])
    nonces = [bytes(image(world, 1)[one + 72 :][:12]) for one in records(world, 1)]
    assert len(set(nonces)) == len(nonces) == sum(1 + shard % 3 for shard in range(1, 40))
    seen = picture(db)
    assert picture(world.reopen(db)) == seen


# --- what does not open ---------------------------------------------------------------------------


def cipher(segment: int = 1, key: bytes = b"a" * 32, incarnation: int = 77) -> SegmentCipher:
    return segment_cipher("a", key, incarnation, segment, random.Random(1).randbytes)


def test_an_encrypted_payload_opens_only_as_what_it_was_written_as() -> None:
    """INV-ENC-1."""
    one, head = cipher(), bytes(range(ASSOCIATED_BYTES))
    data = one.encrypt(one.nonces(1), b"payload", head)
    assert one.open(data, head) == b"payload"
    assert len(data) == 7 + ENCRYPTED_OVERHEAD_BYTES
    for other in (cipher(2), cipher(1, b"b" * 32), cipher(1, incarnation=78)):
        assert other.label.check != one.label.check
        with pytest.raises(RecordCorrupt):
            other.open(data, head)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RecordCorrupt):
            one.open(flipped, head)
    for place in range(ASSOCIATED_BYTES):
        changed = bytearray(head)
        changed[place] ^= 1
        with pytest.raises(RecordCorrupt):
            one.open(data, changed)
    for size in range(len(data)):
        with pytest.raises(RecordCorrupt):
            one.open(data[:size], head)


def test_a_payload_that_was_moved_to_another_record_is_refused() -> None:
    world = encrypted()
    db = world.open()
    db.commit([update(1, 1, entries(1, 3, size=100))])
    data, seed = image(world, 1), segment_seed(world.incarnation, 1)
    first, second, _ = records(world, 1)
    length = 100 + ENCRYPTED_OVERHEAD_BYTES
    moved = bytes(data[first + 72 :][:length])
    data[second + 72 : second + 72 + length] = moved
    data[second + 64 : second + 68] = crc32(moved, seed).to_bytes(4, "little")
    data[second + 68 : second + 72] = crc32(data[second : second + 68], seed).to_bytes(4, "little")
    header = decode_header(bytes(data), second, seed)
    assert payload_view(bytes(data), second, header, seed) == moved
    log = log_of(db)
    assert log.entries(Index(1), Index(2), 1000) == entries(1, 1, size=100)
    assert visible(db)[1, 1] is None
    assert "does not open" in log.faulty
    assert log.fault.damaged_from == 2


def test_a_plain_record_in_an_encrypted_segment_is_refused_and_the_other_way_round() -> None:
    """INV-ENC-2."""
    for world in (encrypted(), World(keys=None, cluster_version=2)):
        db = world.open()
        db.commit([update(1, 1, entries(1, 3, size=100))])
        data, seed = image(world, 1), segment_seed(world.incarnation, 1)
        _, at, _ = records(world, 1)
        data[at + 2] ^= 3  # the other version of the two
        data[at + 68 : at + 72] = crc32(data[at : at + 68], seed).to_bytes(4, "little")
        assert visible(db)[1, 1] is None
        assert "plain and encrypted" in log_of(db).faulty


@pytest.mark.parametrize("at", [0, 3, 12, 71, 72, 83, 84, 150, 171])
def test_a_flipped_bit_is_damage_of_that_record(at: int) -> None:
    plain, world = World(keys=None, cluster_version=2), encrypted()
    found = []
    for one in (plain, world):
        db = one.open()
        db.commit([update(1, 1, entries(1, 3, size=100)), update(2, 1, entries(1, 2))])
        place = list(records(one, 1))[1]
        one.memory.flip(f"/data/segments/{segment_name(1)}", place + at, 1)
        assert visible(db)[1, 1] is None
        assert visible(db)[2, 1] is not None
        fault = log_of(db).fault
        found.append((fault.damaged_from, fault.reason.split(", ")[1]))  # type: ignore[union-attr]
    assert found[0] == found[1]


def test_only_an_entry_is_ever_encrypted() -> None:
    for kind in RecordKind:
        run = RecordRun(
            1, 1, 1, [Meta(kind, 1, HardState() if kind is RecordKind.HARD_STATE else None)]
        )
        body: list[bytes | memoryview] = []
        if kind is RecordKind.ENTRY:
            run = RecordRun(1, 1, 1, [], (entry(1),))
        encode_runs(body, [run], 1, 1, 64)
        data = bytearray(b"".join(body))
        assert not decode_header(bytes(data), 0, 1).encrypted
        data[2] = ENCRYPTED_VERSION
        data[68:72] = crc32(data[:68], 1).to_bytes(4, "little")
        if kind is RecordKind.ENTRY:
            assert decode_header(bytes(data), 0, 1).encrypted
            continue
        with pytest.raises(RecordCorrupt, match="record version 2"):
            decode_header(bytes(data), 0, 1)


# --- keys that are not there ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ring", "what"),
    [
        (None, f"not in the ring: tag {key_tag('a'):08x}"),
        (ONLY_B, f"not in the ring: tag {key_tag('a'):08x}"),
        (WRONG, "another key under the same id: a"),
    ],
)
def test_a_key_that_is_not_there_is_told_before_anything_is_changed(
    ring: Keys | None, what: str
) -> None:
    """INV-ENC-3."""
    world = encrypted()
    seen = picture(db := written(world))
    world.close(db)
    before = the_disk(world)
    for copy in (world.copy(), world.without_index()):
        copy.keys = ring
        with pytest.raises(KeysMissing, match=what) as caught:
            copy.open()
        assert caught.value.metadata["field"] == "storage.keys"
        assert the_disk(copy) == before
        copy.directory.close()  # type: ignore[union-attr]
        copy.keys = RING
        assert picture(copy.open()) == seen


def test_a_damaged_header_loses_nothing_and_hides_no_missing_key() -> None:
    world = encrypted()
    seen = picture(db := written(world))
    world.close(db)
    for segment in db._files.sizes:
        world.memory.flip(f"/data/segments/{segment_name(segment)}", 12, 1)
    for copy in (world.copy(), world.without_index()):
        opened = copy.open()
        assert picture(opened) == seen
        assert dict(opened.stats().key_bytes).keys() == {"a"}
    for ring in (None, ONLY_B, WRONG):
        copy = world.copy()
        copy.keys = ring
        with pytest.raises(KeysMissing, match=r"no key of the ring opens 0.*\.segment, whose head"):
            copy.open()


def test_a_damaged_header_of_a_plain_segment_needs_no_key() -> None:
    world = World(keys=None, cluster_version=2)
    seen = picture(db := written(world))
    world.close(db)
    for segment in db._files.sizes:
        world.memory.flip(f"/data/segments/{segment_name(segment)}", 12, 1)
    assert picture(world.copy().open()) == seen
    world.keys = RING
    assert picture(world.open()) == seen


def test_only_the_entries_need_keys() -> None:
    world = encrypted()
    world.close(written(world))
    report = offline.check(world.vfs, "/data", kv=world.kv)
    assert report.ok
    assert report.entries == 24
    assert offline.check(world.vfs, "/data", keys=RING).ok
    with pytest.raises(KeysMissing):
        offline.check(world.vfs, "/data", keys=ONLY_B)
    with pytest.raises(KeysMissing):
        offline.check(world.vfs, "/data", keys=WRONG)
    assert list(offline.dump(world.vfs, "/data"))
    assert offline.rebuild_index(world.vfs, "/data", world.kv).ok
    assert {one.key for one in offline.statistics(world.vfs, "/data")} == {
        f"tag {key_tag('a'):08x}"
    }
    assert {one.key for one in offline.statistics(world.vfs, "/data", keys=RING)} == {"a"}
    for ring in (None, ONLY_B, WRONG):
        with (
            offline.stored_log(world.vfs, "/data", 1, keys=ring) as log,
            pytest.raises(KeysMissing, match="no key that was given opens segment 1"),
        ):
            list(log.entries())
    with offline.stored_log(world.vfs, "/data", 1, keys=RING) as log:
        assert tuple(log.entries()) == entries(1, 12, size=500)


def test_tools_know_the_key_of_a_segment_whose_header_is_damaged() -> None:
    world = encrypted()
    world.close(written(world))
    world.memory.flip(f"/data/segments/{segment_name(1)}", 12, 1)
    assert "unknown" in {one.key for one in offline.statistics(world.vfs, "/data")}
    assert {one.key for one in offline.statistics(world.vfs, "/data", keys=RING)} == {"a"}
    with (
        offline.stored_log(world.vfs, "/data", 1, keys=ONLY_B) as log,
        pytest.raises(KeysMissing, match="unknown"),
    ):
        list(log.entries())
    assert offline.check(world.vfs, "/data", keys=RING).ok


# --- rotation -------------------------------------------------------------------------------------


def test_another_active_key_begins_a_segment() -> None:
    """INV-WRITER-5, INV-ENC-2."""
    world = encrypted()
    db = world.open()
    db.commit([update(1, 1, entries(1, 1))])
    first = db._writer.position.segment
    db.use_keys(B_ACTIVE)
    db.commit([update(1, 1, entries(2, 2))])
    db.commit([update(1, 1, entries(3, 3))])
    assert db._writer.position.segment == first + 1
    assert (tag_of(world, first), tag_of(world, first + 1)) == (key_tag("a"), key_tag("b"))
    assert dict(db.stats().key_bytes).keys() == {"a", "b"}
    seen = picture(db)
    assert picture(world.reopen(db)) == seen
    world.keys = B_ACTIVE
    assert picture(world.kill()) == seen


def test_a_group_that_is_begun_ahead_has_the_key_of_its_segment() -> None:
    world = encrypted(options=replace(SMALL, segment_bytes=1 << 16))
    db = world.open()
    db.commit([update(1, 1, entries(1, 1))])
    one = db.begin([update(1, 1, entries(2, 2))])
    two = db.begin_ahead([update(1, 1, entries(3, 3))])
    assert two is not None
    db.write(one)
    db.use_keys(B_ACTIVE)
    db.finish(one)
    assert db.begin_ahead([update(1, 1, entries(4, 4))]) is None, "it belongs into a new segment"
    db.write(two)
    db.finish(two)
    db.commit([update(1, 1, entries(4, 4))])
    seen = picture(db)
    assert all_entries(log_of(db)) == entries(1, 4)
    assert {tag_of(world, one) for one in db._files.sizes} == {key_tag("a"), key_tag("b")}
    assert picture(world.kill()) == seen


def test_keys_that_change_while_a_new_segment_is_on_its_way() -> None:
    world = encrypted()
    db = world.open()
    group = db.begin([update(1, 1, entries(1, 1))])
    with pytest.raises(KeysMissing, match="segments need the key a"):
        db.use_keys(ONLY_B)
    db.use_keys(B_ACTIVE)
    db.write(group)
    db.finish(group)
    db.commit([update(1, 1, entries(2, 2))])
    assert [tag_of(world, one) for one in sorted(db._files.sizes)] == [key_tag("a"), key_tag("b")]
    seen = picture(db)
    assert all_entries(log_of(db)) == entries(1, 2)
    assert picture(world.kill()) == seen


def test_a_ring_without_a_key_that_is_needed_is_not_taken() -> None:
    """INV-ENC-3."""
    world = encrypted()
    db = written(world)
    with pytest.raises(KeysMissing, match="the key a, which is not in the ring"):
        db.use_keys(ONLY_B)
    with pytest.raises(KeysMissing, match="another key a"):
        db.use_keys(WRONG)
    db.commit([update(1, 1, entries(13, 13))])
    assert dict(db.stats().key_bytes).keys() == {"a"}


def test_an_old_key_may_go_when_its_segments_are_gone() -> None:
    world = encrypted()
    db = written(world)
    db.use_keys(B_ACTIVE)
    for index in range(13, 20):
        db.commit(
            [
                update(1, 1, entries(index, index, size=500)),
                update(2, 1, entries(index, index)),
            ]
        )
    db.commit([update(1, 1, snapshot=14), update(2, 1, snapshot=14)])
    while db.collect_garbage().unlinked:
        pass
    assert dict(db.stats().key_bytes).keys() == {"b"}
    db.use_keys(ONLY_B)
    seen = picture(db)
    world.close(db)
    world.keys = ONLY_B
    assert picture(world.open()) == seen


def test_copies_are_encrypted_with_the_key_of_their_new_segment() -> None:
    """INV-ENC-2; they keep their write sequences (INV-REC-1)."""
    world = encrypted()
    db = written(world)
    db.use_keys(B_ACTIVE)
    db.commit([update(1, 1, snapshot=11), update(3, 1, entries(1, 1))])
    kept = all_entries(log_of(db, 2))
    sequences = _write_sequences(log_of(db, 2))
    report = db.collect_garbage()
    assert report.rewritten_records >= 12
    assert report.unlinked
    assert all_entries(log_of(db, 2)) == kept
    assert _write_sequences(log_of(db, 2)) == sequences
    assert key_tag("b") in {tag_of(world, one) for one in db._files.sizes}
    seen = picture(db)
    for copy in (world.copy(), world.without_index()):
        copy.memory.crash()
        assert picture(copy.open()) == seen


def _write_sequences(log: ReplicaLog) -> list[int]:
    fetch = log.fetch(log.first_index(), Index(log.last_index() + 1), 1 << 30)
    found = [read.run(log._files.vfs) for read in fetch.reads]
    log.end_fetch(fetch)
    return [sequence for one in found for sequence, _ in one]


# --- plain and encrypted --------------------------------------------------------------------------


def test_before_the_cluster_version_is_raised_everything_is_plain() -> None:
    world = World(keys=RING, cluster_version=1)
    db = written(world)
    assert not db.encrypts
    assert dict(db.stats().key_bytes).keys() == {"plain"}
    assert MARKER in the_disk(world)
    assert world.directory is not None
    world.directory.raise_version(2)
    assert db.encrypts
    db.commit([update(1, 1, entries(13, 13))])
    assert dict(db.stats().key_bytes).keys() == {"a", "plain"}
    seen = picture(db)
    assert picture(world.kill()) == seen
    assert picture(world.without_index().open()) == seen


def test_a_log_with_plain_and_encrypted_entries() -> None:
    world = World(keys=None, cluster_version=2)
    db = written(world)
    world.keys = RING
    db = world.reopen(db)
    for index in range(13, 20):
        db.commit([update(1, 1, entries(index, index, size=500))])
    assert all_entries(log_of(db)) == entries(1, 19, size=500)
    db.commit([update(1, 1, snapshot=18)])
    while db.collect_garbage().unlinked:
        pass
    assert dict(db.stats().key_bytes).keys() == {"a"}, "what lived in plain segments was copied"
    assert MARKER not in the_disk(world)
    seen = picture(db)
    assert picture(world.kill()) == seen


def test_no_plain_bytes_lie_behind_encrypted_ones() -> None:
    """INV-WRITER-6: neither a spare of before nor one that comes later is one with plain bytes."""
    options = replace(SMALL, spare_segments_max=3)
    world = World(keys=None, cluster_version=2, options=options)
    db = written(world, 30)
    db.commit([update(1, 1, snapshot=28), update(2, 1, snapshot=28)])
    assert db.collect_garbage().unlinked
    assert db.stats().spare_bytes
    world.keys = RING
    db = world.reopen(db)
    assert db.stats().spare_bytes
    for index in range(31, 60):
        db.commit([update(1, 1, entries(index, index, size=500))])
    assert not db.stats().spare_bytes
    db.commit([update(1, 1, snapshot=40)])
    while db.collect_garbage().unlinked:
        pass
    assert db.stats().spare_bytes, "encrypted ones are kept"
    assert MARKER not in the_disk(world)
    seen = picture(db)
    assert picture(world.kill()) == seen


def test_what_is_copied_from_plain_segments_needs_more_room() -> None:
    world = World(keys=None, cluster_version=2, options=replace(SMALL, reserve_bytes=8192))
    db = written(world)
    room = db._copies_room()
    assert room == db._space.copies_room()
    world.keys = RING
    db = world.reopen(db)
    assert db._copies_room() == db._space.copies_room() * 2 // 3
    for length in (0, 1, 8, 100, 5000):
        grown = record_bytes(length + ENCRYPTED_OVERHEAD_BYTES)
        assert 2 * grown <= 3 * record_bytes(length)


def test_a_promise_covers_what_encryption_adds_to_the_smallest_block() -> None:
    """INV-SPACE-1: also where each block is an entry and a commit group of its own."""
    for size in (1, 40, 1000):
        block = BlockEnvelope(
            ProposalId(1, 1),
            SessionId(1),
            1,
            0,
            Lsn(0),
            1,
            bytes(size),
            Claim(bytes(16), bytes(16), 1),
        )
        payload = encode_blocks([block], 1)
        on_disk = group_bytes(1, record_bytes(len(payload) + ENCRYPTED_OVERHEAD_BYTES))
        assert on_disk <= _PROMISED_SHARE * (ENVELOPE_BYTES + size)


def test_a_crash_that_drops_a_torn_group_and_its_segment() -> None:
    """The number of a segment may be used again, and so its key; its nonces are not."""
    world = encrypted()
    seen: set[bytes] = set()
    for _ in range(3):
        copy = world.without_index()
        db = copy.open()
        group = db.begin([update(1, 1, (entry(1, payload=MARKER),))])
        payload = next(bytes(one) for one in group.encoded.buffers if len(one) == len(MARKER) + 28)
        assert group.encoded.position.segment == 1
        assert payload[:12] not in {one[:12] for one in seen}
        seen.add(payload)
    assert len(seen) == 3


def test_who_has_no_ring_cannot_begin_a_cipher() -> None:
    keys = SegmentKeys()
    assert keys.active_tag == 0
    assert keys.cipher(77, 1) is None
    assert keys.overhead(1) == 0
    assert PLAIN.tag == 0
