"""20 000 hostile inputs for every decoder of bytes from a disk or a peer: each must give a value or
its one typed error, and never another exception.

Half of the inputs are mutations whose checksum is made right again, so that they reach the code
behind it: a checksum keeps out accidents, and not the bugs of whoever wrote the bytes.
"""

from __future__ import annotations

import random
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from logservice_wire.errors import Busy

from logservice.ids import ClusterId, Incarnation, StoreId
from logservice.logdb.checkpoint.checkpoint import CheckpointUnusable, load_checkpoint, load_columns
from logservice.logdb.format.columns import EntryColumns
from logservice.logdb.format.commit_group import RecordRun, decode_directory, decode_group_header
from logservice.logdb.format.encryption import segment_cipher
from logservice.logdb.format.group_encoder import encode_runs
from logservice.logdb.format.record import (
    RecordCorrupt,
    RecordKind,
    decode_header,
    decode_meta,
    payload_view,
)
from logservice.logdb.format.segment import SegmentVersionError, decode_segment_header
from logservice.logdb.format.segment_scan import scan_segment
from logservice.logdb.io.data_directory import Identity
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.read.entry_read import EntryRead
from logservice.membership import Membership, MembershipCorrupt
from logservice.nodehost.transport.wire import control
from logservice.nodehost.transport.wire.control import ControlError
from logservice.nodehost.transport.wire.frame import (
    FrameError,
    FrameKind,
    FrameReader,
    encode_frame,
)
from logservice.snapshot import Snapshot, SnapshotCorrupt
from tests.crash.every_bit import OneSegment, write
from tests.logdb.helpers import ENCRYPTED as STORES_ENCRYPT
from tests.logdb.helpers import World, entries, installed, members, update

EXECUTIONS = 20_000
WRITTEN = write(16 * 1024, mark=True)
SEED = OneSegment(WRITTEN.data, WRITTEN.incarnation).seed(1)
CRC = struct.Struct("<I")


def record(data: bytes) -> object:
    header = decode_header(data, 0, SEED)
    payload = bytes(payload_view(data, 0, header, SEED))
    return None if header.kind is RecordKind.ENTRY else decode_meta(header, payload)


def frames(data: bytes) -> object:
    reader = FrameReader(1 << 12)
    found = []
    while data:
        room = reader.get_buffer()
        part, data = data[: len(room)], data[len(room) :]
        room[: len(part)] = part
        found += list(reader.received(len(part)))
    return found


@dataclass(frozen=True)
class Decoder:
    """One decoder under test. samples: good inputs. errors: what it may raise. repair: makes the
    checksum of an input right again.
    """

    name: str
    decode: Callable[[bytes], object]
    samples: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = ()
    repair: Callable[[bytearray], None] | None = None


def crc_at(position: int, first: int = 0, seed: int = SEED) -> Callable[[bytearray], None]:
    """Put the checksum of what lies between `first` and `position` at `position`."""

    def repair(data: bytearray) -> None:
        if len(data) >= position + 4:
            CRC.pack_into(data, position, zlib.crc32(data[first:position], seed))

    return repair


def repair_snapshot(data: bytearray) -> None:
    if len(data) > 44:
        CRC.pack_into(data, 40, zlib.crc32(data[44:], zlib.crc32(data[:40])))


def repair_identity(data: bytearray) -> None:
    body = bytes(data).partition(b"\n")[0]
    data[:] = body + b"\n%08x\n" % zlib.crc32(body)


def groups() -> Iterator[int]:
    for group in scan_segment(memoryview(WRITTEN.data), 1, 64, SEED).groups():
        yield group.position.offset


HEADERS = tuple(WRITTEN.data[at : at + 80] for at in groups())
DIRECTORIES = tuple(WRITTEN.data[at + 80 : at + 1000] for at in groups())
RECORDS = tuple(
    WRITTEN.data[at : at + 1200]
    for at in range(64, len(WRITTEN.data), 8)
    if WRITTEN.data[at : at + 3] == b"GR\x01"
)
IDENTITY = Identity(ClusterId("c"), StoreId("s1"), Incarnation(77), 2, 5, 9).encode()
SNAPSHOT = installed(9, state=b"state" * 20).snapshot.encode()
HELLO = control.Hello(
    1,
    control.Lane.BULK,
    control.PeerIdentity(ClusterId("c"), StoreId("s"), (Incarnation(5), Incarnation(6)), 9),
    StoreId("t"),
)


def scanned(data: bytes) -> object:
    return scan_segment(memoryview(data), 1, 64, SEED)


RUN = max(
    (
        run.columns
        for group in scan_segment(memoryview(WRITTEN.data), 1, 64, SEED).groups()
        for run in group.runs
        if run.columns is not None and (run.shard, run.replica) == (1, 1)
    ),
    key=len,
)
"""The entries of replica 1 of shard 1, which lie one behind the other."""
START = RUN.offsets[0]
RUN_BYTES = WRITTEN.data[START : START + RUN.size]


class Bytes(MemoryVfs):
    """A disk with one file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return self.data[offset : offset + size]

    def will_need(self, handle: int, size: int, offset: int) -> None:
        pass


def entries_read(data: bytes) -> object:
    """The entries that a reader gets when the index has told it where they are."""
    offsets = array("I", [offset - START for offset in RUN.offsets])
    read = EntryRead((1, 1), 1, SEED, 0, RUN.first, offsets, RUN.lengths, None)
    found = read.run(Bytes(data))
    assert [entry.index for _, entry in found] == list(range(RUN.first, RUN.last + 1))
    return found


CIPHER = segment_cipher("key", bytes(32), WRITTEN.incarnation, 1, random.Random(1).randbytes)


def encrypted_run() -> tuple[EntryColumns, bytes]:
    """The same entries, encrypted, from offset 0 on."""
    run = RecordRun(1, 1, 1, [], entries(1, 5, size=40))
    body: list[bytes | memoryview] = []
    encode_runs(body, [run], SEED, 1, 0, CIPHER)
    return EntryColumns.of(run.entries, 1, 0, 1, run.overhead), b"".join(body)


ENCRYPTED, ENCRYPTED_BYTES = encrypted_run()


def encrypted_entries_read(data: bytes) -> object:
    """As `entries_read`."""
    read = EntryRead((1, 1), 1, SEED, 0, 1, ENCRYPTED.offsets, ENCRYPTED.lengths, CIPHER.open)
    found = read.run(Bytes(data))
    assert tuple(entry for _, entry in found) == entries(1, 5, size=40)
    return found


def encrypted_payload(data: bytes) -> object:
    """What opens is what was written, whatever the checksums say."""
    assert CIPHER.open(data[64:], data[:64]) == b"payload"
    return None


DECODERS = [
    Decoder(
        "encrypted entries of a read",
        encrypted_entries_read,
        (ENCRYPTED_BYTES,),
        (RecordCorrupt,),
        crc_at(68),
    ),
    Decoder(
        "encrypted payload",
        encrypted_payload,
        (bytes(64) + CIPHER.encrypt(bytes(12), b"payload", bytes(64)),),
        (RecordCorrupt,),
    ),
    *(
        [Decoder("entries of a read", entries_read, (RUN_BYTES,), (RecordCorrupt,), crc_at(68))]
        if not STORES_ENCRYPT
        else []  # what was written is encrypted then, and read above
    ),
    Decoder("record", record, RECORDS, (RecordCorrupt,), crc_at(68)),
    Decoder(
        "group header",
        lambda data: decode_group_header(data, 1, 64, SEED, 64),
        HEADERS,
        (),
        crc_at(76),
    ),
    Decoder("directory", lambda data: decode_directory(data, 0, SEED), DIRECTORIES),
    Decoder(
        "segment header",
        lambda data: decode_segment_header(data, 1, WRITTEN.incarnation),
        (WRITTEN.data[:64],),
        (SegmentVersionError,),
        crc_at(60),
    ),
    Decoder("segment", scanned, (WRITTEN.data[:2500],), (), crc_at(64 + 76, 64)),
    Decoder("identity", Identity.decode, (IDENTITY,), (ValueError,), repair_identity),
    Decoder("snapshot, export", Snapshot.decode, (SNAPSHOT,), (SnapshotCorrupt,), repair_snapshot),
    Decoder("membership", Membership.decode, (members().encode(),), (MembershipCorrupt,)),
    Decoder("peer hello", control.decode_hello, (control.encode_hello(HELLO),), (ControlError,)),
    Decoder(
        "peer request",
        control.decode_request,
        (b"".join(control.encode_request(1, 2, "method", b"body")),),
        (ControlError,),
    ),
    Decoder(
        "peer response",
        control.decode_response,
        (
            b"".join(control.encode_answer(1, b"body")),
            b"".join(control.encode_failure(2, Busy("words", retry_after_ms=5))),
        ),
        (ControlError,),
    ),
    Decoder(
        "peer frames",
        frames,
        (b"".join(encode_frame(FrameKind.MESSAGES, [bytes(60), b"more"], 64)) * 2,),
        (FrameError,),
    ),
]


def mutated(rng: random.Random, sample: bytes) -> bytearray:
    data = bytearray(sample)
    for _ in range(rng.randrange(1, 5)):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(6):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + 8] = rng.randbytes(8)
            case 2:
                data[at : at + 4] = rng.choice([b"\xff" * 4, bytes(4), b"\x00\x00\x00\x80"])
            case 3:
                del data[at : at + rng.randrange(1, 40)]
            case 4:
                data[at:at] = data[: rng.randrange(1, 40)]
            case _:
                del data[at:]
    return data


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_any_bytes_are_a_value_or_the_typed_error(decoder: Decoder) -> None:
    rng = random.Random(decoder.name)
    for sample in decoder.samples:
        decoder.decode(sample)
    refused = 0
    for number in range(EXECUTIONS):
        data = mutated(rng, rng.choice(decoder.samples))
        if number % 2 and decoder.repair is not None:
            decoder.repair(data)
        try:
            decoder.decode(bytes(data))
        except decoder.errors:
            refused += 1
    assert refused or not decoder.errors or decoder.name == "segment header"


def test_any_row_of_the_index_is_taken_or_refused() -> None:
    """A row that is not refused answers every question, perhaps with KeyError."""
    world = World()
    db = world.open()
    for first in range(1, 20, 2):
        db.commit([update(1, 1, entries(first, first + 1, size=300), hard=(1, 1, first))])
    db.commit([update(1, 1, snapshot=3), update(2, 1, bootstrap=True), update(3, 1, remove=True)])
    files = db._files
    db.close()
    assert isinstance(world.kv, MemoryKvEngine)
    good = dict(world.kv.open("/data/index").scan(b""))
    rng = random.Random(9)
    refused = taken = 0
    for _ in range(EXECUTIONS):
        rows = dict(good)
        key = rng.choice(list(rows))
        match rng.randrange(8):
            case 0:
                del rows[key]
            case 1:
                rows[bytes(mutated(rng, key))] = rows.pop(key)
            case _:
                rows[key] = bytes(mutated(rng, rows[key]))
        engine = MemoryKvEngine()
        kv = engine.open("/x")
        kv.write(list(rows.items()))
        try:
            _, states = load_checkpoint(kv, files)
        except CheckpointUnusable:
            refused += 1
            continue
        taken += 1
        for owner, state in states.items():
            for chunk in state.index.chunks:
                load_columns(kv, owner, chunk)
    assert refused > EXECUTIONS // 4
    assert taken
