"""The bytes on disk: the worked example of docs/formats/segment.md, and hostile input for every
decoder.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.logdb.format.columns import from_bytes, to_bytes
from logservice.logdb.format.commit_group import (
    NO_GROUP,
    RecordRun,
    decode_directory,
    decode_group_header,
    group_bytes,
)
from logservice.logdb.format.fault import REPAIRED, Fault
from logservice.logdb.format.group_encoder import encode_group, encode_runs
from logservice.logdb.format.record import (
    Meta,
    MetaValue,
    RecordCorrupt,
    RecordKind,
    decode_header,
    decode_meta,
    payload_view,
    segment_seed,
)
from logservice.logdb.format.segment import (
    SegmentVersionError,
    decode_segment_header,
    encode_segment_header,
)
from logservice.logdb.format.segment_scan import scan_segment
from logservice.logdb.format.update import Bootstrap
from tests.logdb.helpers import entries, installed, members

INCARNATION = 0x0102030405060708
SEED = segment_seed(INCARNATION, 1)


def example() -> bytes:
    hard = Meta(RecordKind.HARD_STATE, 1, HardState(Term(2), ReplicaId(7), Index(0)))
    entry = Entry(Term(2), Index(1), Lsn(1), 1, EntryKind.BLOCK, b"hello, log")
    group = encode_group(
        [RecordRun(1, 7, 1, [hard], (entry,))],
        sequence=1,
        flags=0,
        seed=SEED,
        segment=1,
        offset=64,
        previous=NO_GROUP,
    )
    data = encode_segment_header(1, INCARNATION, 1) + b"".join(group.buffers)
    assert len(data) == 64 + group.size
    return data


def test_the_document_shows_the_bytes() -> None:
    text = (Path(__file__).parents[2] / "docs/formats/segment.md").read_text()
    dump = [
        line.split("|")[0].split(None, 1)[1]
        for line in text.splitlines()
        if line[:2] in ("00", "01")
    ]
    assert bytes.fromhex("".join(dump)) == example()
    assert f"{SEED:#x}" in text


def test_the_bytes_of_the_document_are_read_back() -> None:
    view = memoryview(example())
    header = decode_segment_header(view, 1, INCARNATION)
    assert header is not None
    assert (header.segment, header.first_sequence) == (1, 1)
    scan = scan_segment(view, 1, 64, SEED)
    assert (len(scan.items), scan.end) == (1, len(view))
    (group,) = scan.groups()
    assert group.intact
    assert group.size == group_bytes(1, 160)
    (run,) = group.runs
    assert run.metas[0].value == HardState(Term(2), ReplicaId(7), Index(0))
    assert run.columns is not None
    assert (run.columns.first, run.columns.last, run.columns.next_lsn) == (1, 1, 2)
    assert bytes(view[run.columns.offsets[0] + 72 :][:10]) == b"hello, log"


def test_nothing_verifies_in_another_place() -> None:
    data = example()
    view = memoryview(data)
    other = segment_seed(INCARNATION, 2)
    assert decode_group_header(view, 1, 64, SEED) is not None
    assert decode_group_header(view, 2, 64, SEED) is None
    assert decode_group_header(view, 1, 64, other) is None
    assert decode_directory(view, 144, SEED) is not None
    assert decode_directory(view, 144, other) is None
    moved = memoryview(bytes(8) + data)
    assert decode_group_header(moved, 1, 72, SEED) is None
    with pytest.raises(RecordCorrupt):
        decode_header(view, 256, other)
    assert decode_segment_header(view, 2, INCARNATION) is None
    assert decode_segment_header(view, 1, INCARNATION + 1) is None
    assert decode_segment_header(view[:60], 1, INCARNATION) is None


def test_a_future_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logservice.logdb.format.segment.SEGMENT_VERSION", 2)
    data = encode_segment_header(1, INCARNATION, 1)
    monkeypatch.undo()
    with pytest.raises(SegmentVersionError, match="format version 2"):
        decode_segment_header(data, 1, INCARNATION)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (RecordKind.HARD_STATE, HardState(Term(9), ReplicaId(8), Index(7))),
        (RecordKind.COMMIT, Index(5)),
        (RecordKind.CUT, Index(6)),
        (RecordKind.BOOTSTRAP, Bootstrap(members(), join=True)),
        (RecordKind.BOOTSTRAP, Bootstrap(members(), join=False)),
        (RecordKind.TOMBSTONE, None),
        (RecordKind.FAULTY, Fault("über", Index(3), Index(9))),
        (RecordKind.FAULTY, Fault("unattributed")),
        (RecordKind.FAULTY, REPAIRED),
    ],
)
def test_records_come_back(kind: RecordKind, value: MetaValue) -> None:
    buffers: list[bytes | memoryview] = []
    meta = Meta(kind, 1 << 60, value)
    run = RecordRun(1 << 63, 1 << 62, meta.write_sequence, [meta])
    _, size = encode_runs(buffers, [run], SEED, 1, 0)
    data = b"".join(buffers)
    assert len(data) == size
    assert size % 8 == 0
    header = decode_header(data, 0, SEED)
    assert (header.shard, header.replica) == (1 << 63, 1 << 62)
    assert decode_meta(header, payload_view(data, 0, header, SEED)) == meta


def test_columns_are_little_endian() -> None:
    column = from_bytes("Q", b"\x01" + bytes(7) + b"\x00\x01" + bytes(6))
    assert list(column) == [1, 256]
    assert to_bytes(column) == b"\x01" + bytes(7) + b"\x00\x01" + bytes(6)
    assert list(from_bytes("I", b"\x02\x00\x00\x00")) == [2]


def test_any_bytes_are_scanned_without_surprise() -> None:
    """20 000 mutations of a segment: the scanner never raises and never invents a record."""
    group = encode_group(
        [
            RecordRun(1, 7, 1, [], entries(1, 4)),
            RecordRun(2, 9, 5, [Meta(RecordKind.BOOTSTRAP, 5, Bootstrap(members(), join=False))]),
        ],
        sequence=1,
        flags=0,
        seed=SEED,
        segment=1,
        offset=64,
        previous=NO_GROUP,
    )
    good = bytes(64) + b"".join(group.buffers) + bytes(40)
    (whole,) = scan_segment(memoryview(good), 1, 64, SEED).groups()
    known = {(run.shard, run.replica, run.write_sequence) for run in whole.runs}
    rng = random.Random(1)
    for _ in range(20_000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            start = rng.randrange(64, len(data))
            match rng.randrange(4):
                case 0:
                    data[start] ^= 1 << rng.randrange(8)
                case 1:
                    data[start : start + 8] = rng.randbytes(8)
                case 2:
                    del data[start : start + rng.randrange(1, 90)]
                case _:
                    data[start:start] = data[64 : 64 + rng.randrange(1, 300)]
        scan = scan_segment(memoryview(bytes(data)), 1, 64, SEED)
        for found in scan.groups():
            for run in found.runs:
                assert (run.shard, run.replica, run.write_sequence) in known


def test_any_payload_of_a_verified_record_is_decoded_or_refused() -> None:
    buffers: list[bytes | memoryview] = []
    bootstrap = Meta(RecordKind.BOOTSTRAP, 1, Bootstrap(members(), join=True))
    encode_runs(buffers, [RecordRun(1, 1, bootstrap.write_sequence, [bootstrap])], SEED, 1, 64)
    data = b"".join(buffers)
    header = decode_header(data, 0, SEED)
    payloads = [data[72 : 72 + header.length], installed(5).snapshot.encode()]
    rng = random.Random(2)
    for _ in range(20_000):
        payload = bytearray(rng.choice(payloads))
        for _ in range(rng.randrange(1, 5)):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        del payload[rng.randrange(len(payload)) :]
        for kind in (RecordKind.BOOTSTRAP, RecordKind.INSTALLED, RecordKind.FAULTY):
            try:
                meta = decode_meta(replace(header, kind=kind), bytes(payload))
            except RecordCorrupt:
                continue
            assert meta.kind is kind


def test_payloads_of_entries_are_not_copied() -> None:
    """INV-REC-2."""
    buffers: list[bytes | memoryview] = []
    (long,) = entries(1, 1, size=100_000)
    encode_runs(buffers, [RecordRun(1, 1, 1, [], (long,))], SEED, 1, 64)
    assert any(buffer is long.payload for buffer in buffers)
