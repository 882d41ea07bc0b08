"""What an archive can give back is checked first; an archive is hostile input."""

from __future__ import annotations

import io
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from logservice_client import Gap, GapReason, Records
from logservice_wire.block import Block, encode_block, validate_block
from logservice_wire.digest import Digester, digest_text
from logservice_wire.errors import InvalidArgument, LogServiceError

from logservice import bounds
from logservice.archive.damage import ArchiveDamaged
from logservice.archive.folder import Folder
from logservice.archive.manifest import FORMAT, Manifest, Row, mark
from logservice.archive.range_file import SCHEMA, RangeWriter
from logservice.archive.restore_plan import Plan, find, make_plan
from logservice.archive.restore_source import Run, runs
from logservice.sealing_keys import Keys

LINEAGE = "ab" * 16


class Made:
    """An archive of log 1, made by hand: records and gaps from `first_lsn` on."""

    def __init__(self, root: Path, shard: int = 1) -> None:
        self.root = root
        self.files = Folder(root)
        mark(self.files, "c")
        self.manifest = Manifest(self.files, shard)
        self.shard = shard
        self.time_us = 100

    def missing(self, first_lsn: int, end_lsn: int, **more: Any) -> None:
        self._add(first_lsn, end_lsn, **more)

    def add(self, first_lsn: int, count: int, **more: Any) -> None:
        """One object: a block for each ten LSNs, and a gap at its end."""
        word = "ab" * 8
        name = self.manifest.object_name(first_lsn, word)
        keys = more.pop("keys", None)
        timed = more.pop("timed", True)
        with self.files.put(self.manifest.path(name)) as file:
            writer = RangeWriter(file, first_lsn, keys=keys, name=self.manifest.path(name))
            lsn = first_lsn
            while lsn < first_lsn + count - 2:
                size = min(10, first_lsn + count - 2 - lsn)
                block = encode_block([b"%d" % at for at in range(lsn, lsn + size)], lsn)
                time_us = self.time_us if timed else 0
                writer.add(Records(lsn, size, 1, Block.parse(block), 0, time_us))
                lsn += size
                self.time_us += 1
            writer.add(Gap(lsn, 2, 1, GapReason.FENCED, self.time_us if timed else 0))
            digest = writer.finish()
        given = {
            "object": name,
            "object_bytes": writer.file.size,
            "sha256": writer.file.sha256,
            "digest": digest,
            "key_id": "" if keys is None else keys.active,
            "append_time_us": writer.append_time_us,
        }
        self._add(first_lsn, first_lsn + count, **{**given, **more})

    def _add(self, first_lsn: int, end_lsn: int, **more: Any) -> None:
        given = {
            "format": FORMAT,
            "cluster_id": "c",
            "shard_id": self.shard,
            "name": "wal",
            "first_lsn": first_lsn,
            "end_lsn": end_lsn,
            "archived_us": 1,
            "previous": self.manifest.end().previous,
        }
        assert self.manifest.add(Row(**{**given, **more}))

    def row_path(self, first_lsn: int) -> Path:
        return self.root / f"logs/{self.shard:020d}/manifest/{first_lsn:020d}.json"

    def change(self, first_lsn: int, **more: Any) -> None:
        """Another row in its place. Only the last row of a chain can be replaced unseen."""
        path = self.row_path(first_lsn)
        row = msgspec.json.decode(path.read_bytes(), type=Row)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(row, **more)))

    def object_of(self, first_lsn: int) -> Path:
        return self.root / self.manifest.path(self.manifest.object_name(first_lsn, "ab" * 8))

    def plan(self, keys: Keys | None = None, **more: Any) -> Plan:
        return make_plan(self.files, self.shard, keys, **more)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """LSNs 1 to 10 are missing, 11 to 60 are in two objects."""
    archive = Made(tmp_path)
    archive.missing(1, 11)
    archive.add(11, 30, writer_epoch=3, next_timestamp=50)
    archive.add(41, 20, writer_epoch=4, next_timestamp=70)
    return archive


def test_a_plan_says_what_will_be_there(made: Made) -> None:
    plan = made.plan()
    assert (plan.base_lsn, plan.end_lsn, plan.records, plan.gap_lsns) == (11, 61, 46, 4)
    assert (plan.number, plan.parent, plan.writer_epoch) == (1, bytes(16), 4)
    assert plan.next_timestamp == 70 + bounds.LINEAGE_TIMESTAMP_STEP
    assert (plan.timed, plan.first_time_us) == (True, 100)
    assert made.plan(timestamps_above=7).next_timestamp == 8
    part = made.plan(from_lsn=20, end_lsn=50)
    assert (part.base_lsn, part.end_lsn, len(part.rows)) == (20, 50, 2)
    assert part.digest != plan.digest
    assert find(made.files, "wal") == find(made.files, "1") == (1, "wal")


def test_a_log_is_found_by_its_name_if_only_one_has_it(made: Made) -> None:
    with pytest.raises(InvalidArgument, match="0 logs"):
        find(made.files, "other")
    Made(made.root, 2).add(1, 10)
    with pytest.raises(InvalidArgument, match="say which: 1, 2"):
        find(made.files, "wal")
    assert find(made.files, "2") == (2, "wal")
    with pytest.raises(InvalidArgument, match="no archive"):
        find(Folder(made.root / "logs"), "wal")


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"from_lsn": 10}, "the archive has LSNs 11 to 60, not 10 to 60"),
        ({"end_lsn": 62}, "not 11 to 61"),
        ({"from_lsn": 61}, "the archive has"),
        ({"from_lsn": 30, "end_lsn": 30}, "the archive has"),
        ({"timestamps_above": 2**63}, "no timestamp"),
    ],
)
def test_what_is_not_in_the_archive_is_refused(
    made: Made, wanted: dict[str, int], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        made.plan(**wanted)


def test_missing_lsns_in_between_are_said_as_a_range(made: Made) -> None:
    made.missing(61, 71, writer_epoch=4)
    made.add(71, 10, writer_epoch=4)
    for whole in ({}, {"from_lsn": 30}, {"from_lsn": 70}):
        with pytest.raises(InvalidArgument, match="LSNs 61 to 70 were truncated"):
            made.plan(**whole)
    assert made.plan(end_lsn=61).end_lsn == 61
    assert made.plan(from_lsn=71).base_lsn == 71
    only = Made(made.root, 2)
    only.missing(1, 5)
    with pytest.raises(InvalidArgument, match="all is missing"):
        only.plan()
    with pytest.raises(InvalidArgument, match="nothing of that log"):
        Made(made.root, 3).plan()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


BROKEN: dict[str, Callable[[Made], object]] = {
    "a row is gone": lambda made: made.row_path(11).unlink(),
    "a row was replaced": lambda made: made.change(11, digest="records-1:" + "00" * 32),
    "another digest": lambda made: made.change(41, digest="records-1:" + "00" * 32),
    "another end": lambda made: made.change(41, end_lsn=62),
    "an earlier end": lambda made: made.change(41, end_lsn=60),
    "an end beyond all": lambda made: made.change(41, end_lsn=2**60),
    "an object is gone": lambda made: made.object_of(41).unlink(),
    "a bit of an object": lambda made: flip(made.object_of(11)),
    "an object cut short": lambda made: made.object_of(11).write_bytes(
        made.object_of(11).read_bytes()[:-5]
    ),
    "the other range's object": lambda made: shutil.copy(made.object_of(11), made.object_of(41)),
    "its name and sum, too": lambda made: made.change(
        41,
        object="objects/00000000000000000011-" + "ab" * 8 + ".parquet",
        **_sum(made.object_of(11)),
    ),
    "another log's row": lambda made: made.change(41, shard_id=2),
    "another cluster's row": lambda made: made.change(41, cluster_id="d"),
    "a way out of the folder": lambda made: made.change(41, object="../../../ARCHIVE.json"),
    "an epoch that falls": lambda made: made.change(41, writer_epoch=2),
    "an epoch of a later lineage": lambda made: made.change(41, writer_epoch=1 << 32),
    "an epoch at the end of all": lambda made: made.change(41, writer_epoch=2**64 - 1),
    "an epoch beyond 64 bits": lambda made: made.change(41, writer_epoch=2**70),
    "an epoch below none": lambda made: made.change(41, writer_epoch=-1),
    "a number without a lineage": lambda made: made.change(41, lineage_number=1),
    "another lineage": lambda made: made.change(41, lineage=LINEAGE),
    "no JSON": lambda made: made.row_path(41).write_bytes(b"{"),
}


def _sum(path: Path) -> dict[str, Any]:
    import hashlib

    data = path.read_bytes()
    return {"object_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_archive_is_refused(made: Made, what: str) -> None:
    """INV-RESTORE-5. A falsely high epoch is among them: elsewhere one was believed."""
    BROKEN[what](made)
    with pytest.raises(ArchiveDamaged):
        made.plan()


def test_a_row_of_another_format_is_refused(made: Made) -> None:
    made.change(41, format=2)
    with pytest.raises(InvalidArgument, match="format 2"):
        made.plan()


@pytest.mark.parametrize(
    ("lineage", "number", "epoch", "wanted"),
    [
        (LINEAGE, 3, (3 << 32) + 1, 4),
        (LINEAGE, 0, (3 << 32) + 1, 4),
        (LINEAGE, 0, 0, 2),
        (LINEAGE, 2, (3 << 32) + 1, None),
        (LINEAGE, 2**16, 0, None),
        (LINEAGE, 2**31, 0, None),
        (LINEAGE, 0, 2**63, None),
        (LINEAGE, -1, 0, None),
        ("ab", 1, 0, None),
        ("xy" * 16, 1, 0, None),
        ("00" * 16, 1, 0, None),
    ],
)
def test_the_number_of_the_lineage(
    tmp_path: Path, lineage: str, number: int, epoch: int, wanted: int | None
) -> None:
    archive = Made(tmp_path)
    archive.add(1, 5, lineage=lineage, lineage_number=number, writer_epoch=epoch)
    if wanted is None:
        with pytest.raises(ArchiveDamaged):
            archive.plan()
    else:
        assert (archive.plan().number, archive.plan().parent.hex()) == (wanted, LINEAGE)


def test_timestamps_that_nobody_knows_are_not_given_out(tmp_path: Path) -> None:
    archive = Made(tmp_path)
    archive.add(1, 5)
    assert archive.plan().next_timestamp == 2**63 - 1
    archive.change(1, next_timestamp=2**63 - 1)
    assert archive.plan().next_timestamp == 2**63 - 1
    archive.change(1, next_timestamp=-5)
    assert archive.plan().next_timestamp == 2**63 - 1


def test_more_gaps_than_a_log_remembers(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "RESTORED_GAPS_MAX", 1)
    with pytest.raises(InvalidArgument, match="more than 1 gaps"):
        made.plan()
    assert made.plan(from_lsn=41).gap_lsns == 2


def test_sealed_objects_need_their_keys(tmp_path: Path) -> None:
    keys = Keys("k", {"k": b"1" * 32})
    archive = Made(tmp_path)
    archive.add(1, 30, keys=keys)
    with pytest.raises(InvalidArgument, match="sealed"):
        archive.plan()
    with pytest.raises(LogServiceError):
        archive.plan(Keys("k", {"k": b"2" * 32}))
    assert archive.plan(keys).end_lsn == 31


# --- objects -------------------------------------------------------------------------------------


def rows(count: int = 4, **columns: Any) -> pa.Table:
    given: dict[str, Any] = {
        "lsn": range(5, 5 + count),
        "record": [b"a", b"bc", None, b""][:count],
        "gap": [None, None, 1, None][:count],
        "written": [7, 7, None, 8][:count],
        "append_time": [9, 9, 9, 9][:count],
        "block": [None] * count,
    }
    given.update(columns)
    arrays = [pa.array(given[field.name], field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def parquet(table: pa.Table) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(table, file, use_dictionary=["gap", "written", "append_time"])
    file.seek(0)
    return file


def test_runs_have_one_time_and_one_reason() -> None:
    found = list(runs(parquet(rows()), 5, 9))
    assert [(one.first_lsn, one.count, one.gap, one.written_us) for one in found] == [
        (5, 2, 0, 7),
        (7, 1, 1, 0),
        (8, 1, 0, 8),
    ]
    block = next(iter(found[0].blocks()))
    assert Block.parse(block.block).records() == [b"a", b"bc"]
    assert (Block.parse(block.block).timestamp_us, block.append_time_us) == (7, 9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lsn": [5, 6, 7, 9]},
        {"lsn": [6, 7, 8, 9]},
        {"record": [b"a", None, None, b""]},
        {"record": [b"a", b"b", b"c", b""]},
        {"gap": [None, None, 0, None]},
        {"gap": [None, None, -1, None]},
        {"written": [7, None, None, 8]},
        {"append_time": [9, 8, 9, 9]},
        {"append_time": [-1, 9, 9, 9]},
        {"append_time": [bounds.APPEND_TIME_US_MAX + 1] * 4},
        {"append_time": [9, None, 9, 9]},
    ],
    ids=str,
)
def test_rows_that_no_log_has_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArchiveDamaged):
        list(runs(parquet(rows(**wrong)), 5, 9))


def test_an_object_of_another_length_is_refused() -> None:
    for end in (8, 10):
        with pytest.raises(ArchiveDamaged):
            list(runs(parquet(rows()), 5, end))


@pytest.mark.parametrize("column", range(6))
def test_columns_of_other_types_are_refused(column: int) -> None:
    table = rows()
    other = pa.array(["x"] * 4) if column != 1 else pa.array([b"x"] * 4, pa.large_binary())
    changed = table.set_column(column, table.schema.names[column], other)
    with pytest.raises(ArchiveDamaged, match="columns"):
        list(runs(parquet(changed), 5, 9))


def test_a_row_group_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ARCHIVE_ROW_GROUP_BYTES_MAX", 10)
    with pytest.raises(ArchiveDamaged, match="row group"):
        list(runs(parquet(rows()), 5, 9))


@pytest.mark.parametrize("seed", range(150))
def test_fuzzed_objects_are_read_or_refused(seed: int) -> None:
    """Whatever the bytes are: our error, or runs whose blocks are valid."""
    rng = random.Random(seed)
    data = bytearray(parquet(rows()).getvalue())
    for _ in range(rng.randint(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.2:
        del data[rng.randrange(len(data)) :]
    try:
        for run in runs(io.BytesIO(bytes(data)), 5, 9):
            for block in run.blocks():
                assert block.gap or validate_block(block.block)
    except ArchiveDamaged:
        pass


def columns(records: list[bytes]) -> Run:
    part = pa.array(records, pa.binary())
    _, offsets, data = part.buffers()
    column = memoryview(offsets)[: 4 * (len(records) + 1)].cast("B").cast("i")
    return Run(100, len(records), 0, 3, 5, column, memoryview(data or b""))


@pytest.mark.parametrize("seed", range(20))
def test_blocks_are_of_a_bounded_size_and_lose_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(bounds, "RESTORE_BLOCK_BYTES", 100)
    records = [rng.randbytes(rng.choice((0, 0, 1, 30, 99, 100, 101, 500))) for _ in range(50)]
    low = rng.randrange(50)
    high = rng.randint(low + 1, 50)
    run = columns(records).part(100 + low, 100 + high)
    assert run is not None

    def blocks() -> Iterator[list[bytes]]:
        for one in run.blocks():
            assert one.append_time_us == 3
            found = Block.parse(one.block)
            assert found.timestamp_us == 5
            assert found.record_count == 1 or len(found.columns().values.data) <= 100
            yield found.records()

    assert [one for block in blocks() for one in block] == records[low:high]
    whole, own = Digester(100 + low, 100 + high), Digester(100 + low, 100 + high)
    run.feed(own)
    whole.add_block(100, Block.parse(encode_block(records, 1)))
    assert digest_text(own.digest()) == digest_text(whole.digest())


def test_a_record_that_no_log_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = columns([b"x" * (9 << 20)])
    with pytest.raises(ArchiveDamaged, match="LSN 100"):
        list(run.blocks())


def test_what_lies_outside_is_no_part() -> None:
    run = columns([b"a", b"b"])
    assert run.part(102, 110) is None
    assert run.part(90, 100) is None
