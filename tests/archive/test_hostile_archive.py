"""What whoever may write into an archive's folder can put there: each reader ends in words.

The manifest fits the object each time, as it does when both are written by the same hand. Readers
are `verify`, a restore, and Spark's.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from logservice_client.arrow import lsns
from logservice_wire import parquet_pages
from logservice_wire.archive_name import FileRefused, is_object, open_below
from logservice_wire.column_block import encode_columns
from logservice_wire.errors import CodecMissing, CorruptBlock
from logservice_wire.parquet_pages import PLAIN, PagesRefused, check_footer, check_pages
from pyspark_logservice.archive import ArchiveError, Chain, Place
from pyspark_logservice.archive_batches import batches

from logservice import bounds
from logservice.archive.folder import Folder
from logservice.archive.manifest import FORMAT, Manifest, Row, mark
from logservice.archive.range_file import SCHEMA, RangeWriter, read_batches
from logservice.archive.restore_source import object_runs
from logservice.archive.verifying import verify
from tests.archive.test_range_file import some_items
from tests.resealed import resealed

MIB = 1 << 20
NAME = f"objects/{1:020d}-ab.parquet"
PLAIN_FILE = {"use_dictionary": False, "column_encoding": {"record": "PLAIN", "block": "PLAIN"}}


def table(records: list[bytes] | pa.Array) -> pa.Table:
    count = len(records)
    record = records if isinstance(records, pa.Array) else pa.array(records, pa.binary())
    times = pa.array([5] * count, SCHEMA.field("written").type)
    columns = [lsns(1, count), record, pa.nulls(count, pa.int32()), times, times]
    return pa.table([*columns, pa.nulls(count, pa.binary())], schema=SCHEMA)


def parquet(content: pa.Table, **options: object) -> bytes:
    file = io.BytesIO()
    pq.write_table(content, file, compression="zstd", **{**PLAIN_FILE, **options})
    return file.getvalue()


def put(root: Path, content: bytes, name: str = NAME, end_lsn: int = 2) -> Path:
    """An archive with one row, and its object where `name` says, if that is a name of ours."""
    mark(Folder(root), "c")
    row = Row(
        format=FORMAT,
        cluster_id="c",
        shard_id=7,
        name="log",
        first_lsn=1,
        end_lsn=end_lsn,
        archived_us=1,
        previous="",
        object=name,
        object_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        digest="0",
        append_time_us=(5, 5),
    )
    manifest = Manifest(Folder(root), 7)
    assert manifest.add(row)
    path = root / manifest.path(NAME)
    path.parent.mkdir()
    path.write_bytes(content)
    return path


def verified(root: Path) -> str:
    """What `logservice archive verify` finds."""
    (problem, *_) = asyncio.run(verify(Folder(root), 7)).problems
    return problem


def restored(root: Path) -> str:
    """What a restore ends with."""
    with pytest.raises(CorruptBlock) as error:
        manifest = Manifest(Folder(root), 7)
        for row in manifest.rows():
            with object_runs(manifest, row, None) as runs:
                for _ in runs:
                    pass
    return str(error.value)


def in_spark(root: Path) -> str:
    """What a task of Spark ends with."""
    with pytest.raises(ArchiveError) as error:
        place = Place(str(root))
        rows = Chain(place, "c", 7).between(1, 2)
        if not rows:
            raise ArchiveError("it lists regular files only, and the chain has ended before")
        list(batches(place, 7, rows[0], 1, 2, include_gaps=True, columns=("lsn", "value")))
    return str(error.value)


readers = pytest.mark.parametrize("reader", [verified, restored, in_spark])
Reader = Callable[[Path], str]


# --- what a newer program wrote -------------------------------------------------------------------


def of_a_newer_program(what: str) -> bytes:
    """An object whose only row is a block with another codec, or a gap for another reason."""
    block = bytearray(encode_columns([b"a"], 5, keys=[b"k"]))
    block[5] = 7
    rows = table([b""]).to_pydict()
    rows["record"] = [None]
    rows["gap"] = [99 if what == "gap" else None]
    rows["block"] = [None if what == "gap" else resealed(block)]
    return parquet(pa.table(rows, schema=SCHEMA))


@pytest.mark.parametrize(("what", "unknown"), [("block", "codec 7"), ("gap", "an unknown reason")])
def test_what_a_newer_program_wrote_is_too_new_and_not_damaged(
    tmp_path: Path, what: str, unknown: str
) -> None:
    put(tmp_path, of_a_newer_program(what))
    manifest = Manifest(Folder(tmp_path), 7)
    (row,) = manifest.rows()
    with pytest.raises(CodecMissing) as error, object_runs(manifest, row, None) as runs:
        list(runs)
    assert f"has {unknown}: it is too new for this program; upgrade" in error.value.message
    assert error.value.metadata["first_lsn"] == "1"


def test_verify_says_that_an_object_is_too_new(tmp_path: Path) -> None:
    put(tmp_path, of_a_newer_program("block"))
    assert "CODEC_MISSING: the block has codec 7: it is too new" in verified(tmp_path)


def test_spark_says_that_an_object_is_too_new_and_goes_on_behind_a_gap(tmp_path: Path) -> None:
    put(tmp_path, of_a_newer_program("block"))
    place = Place(str(tmp_path))
    (row,) = Chain(place, "c", 7).between(1, 2)
    with pytest.raises(CodecMissing, match="codec 7: it is too new"):
        list(batches(place, 7, row, 1, 2, include_gaps=True, columns=("lsn", "value")))


# --- names ----------------------------------------------------------------------------------------


@readers
@pytest.mark.parametrize(
    "name",
    [
        "../../../../../../dev/zero",
        "/dev/zero",
        f"objects/../{NAME}",
        f"{NAME}/../../../ARCHIVE.json",
        "objects/\u0660" + NAME[9:],
        NAME + "\n",
    ],
)
def test_an_object_has_the_name_that_an_archiver_gives(
    tmp_path: Path, reader: Reader, name: str
) -> None:
    put(tmp_path, b"x", name)
    assert "names no object" in reader(tmp_path)


@readers
@pytest.mark.parametrize("place", ["object", "row"])
@pytest.mark.parametrize("kind", ["fifo", "device", "outside", "folder", "link in the way"])
def test_what_is_no_file_of_the_archive_is_not_opened(
    tmp_path: Path, reader: Reader, place: str, kind: str
) -> None:
    """It neither hangs nor is read without end."""
    root = tmp_path / "archive"
    root.mkdir()
    path = put(root, parquet(table([b"a"])))
    if place == "row":
        path = root / f"logs/{7:020d}/manifest/{1:020d}.json"
    other = tmp_path / "other"
    if kind == "link in the way":
        path.parent.rename(other)
        path.parent.symlink_to(other)
    else:
        path.rename(other)
        match kind:
            case "fifo":
                os.mkfifo(path)
            case "device":
                path.symlink_to("/dev/zero")
            case "outside":
                path.symlink_to(other)
            case "folder":
                path.mkdir()
    assert reader(root)


def test_names_that_are_opened(tmp_path: Path) -> None:
    """INV-ARCHIVE-NAME: the archive's own folder may be reached by a link."""
    assert is_object(NAME)
    (tmp_path / "real/a").mkdir(parents=True)
    (tmp_path / "real/a/b.json").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with open_below(tmp_path / "link", "a/b.json") as file:
        assert file.read() == b"1"
    for name in ("", "a//b.json", "../real/a/b.json", "a/./b.json", ".a", "a/b\0"):
        with pytest.raises(FileRefused):
            open_below(tmp_path / "link", name)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileRefused):
        open_below(tmp_path, "real/a")
    with pytest.raises(FileNotFoundError):
        open_below(tmp_path, "real/a/none")
    assert len(os.listdir("/proc/self/fd")) == before


@readers
def test_no_more_is_read_than_the_row_says(tmp_path: Path, reader: Reader) -> None:
    path = put(tmp_path, parquet(table([b"a"])))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    assert "bytes" in reader(tmp_path)


def test_a_row_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ARCHIVE_ROW_BYTES_MAX, for each reader."""
    put(tmp_path, parquet(table([b"a"])))
    path = f"logs/{7:020d}/manifest/{1:020d}.json"
    size = (tmp_path / path).stat().st_size
    place = Place(str(tmp_path))
    monkeypatch.setattr("logservice.archive.manifest.ARCHIVE_ROW_BYTES_MAX", size)
    assert len(list(Manifest(Folder(tmp_path), 7).rows())) == 1
    assert len(place.read(path, size) or b"") == size
    monkeypatch.setattr("logservice.archive.manifest.ARCHIVE_ROW_BYTES_MAX", size - 1)
    with pytest.raises(CorruptBlock, match="more than"):
        list(Manifest(Folder(tmp_path), 7).rows())
    with pytest.raises(ArchiveError, match="more than"):
        place.read(path, size - 1)


# --- what an object opens to ----------------------------------------------------------------------


def bombs() -> dict[str, bytes]:
    """Objects of a few kilobytes."""
    large = bytes(MIB)
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 5000), pa.array([large], pa.binary()))
    dictionary = table([b""] * 5000).set_column(1, "record", repeated)
    many = {"record": "DELTA_BYTE_ARRAY", "block": "PLAIN"}
    lengths = {"record": "DELTA_LENGTH_BYTE_ARRAY", "block": "PLAIN"}
    return {
        "dictionary": parquet(
            dictionary, use_dictionary=["record"], column_encoding=None, store_schema=False
        ),
        "prefixes": parquet(table([large] * 300), column_encoding=many),
        "lengths": parquet(table([large] * 8), column_encoding=lengths),
        "page": parquet(table([bytes(40 * MIB)])),
        "pages": parquet(table([large] * 40)),
        "data page 2": parquet(table([large] * 40), data_page_version="2.0"),
    }


@readers
@pytest.mark.parametrize("kind", bombs().keys())
def test_inv_archive_bomb(
    tmp_path: Path, reader: Reader, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before it is opened: Arrow has allocated nothing of that size."""
    monkeypatch.setattr(bounds, "ARCHIVE_ROW_GROUP_BYTES_MAX", 32 * MIB)
    monkeypatch.setattr("pyspark_logservice.archive_batches.ARCHIVE_OPENED_BYTES_MAX", 32 * MIB)
    content = bombs()[kind]
    assert len(content) < 64 * 1024
    rows = pq.ParquetFile(io.BytesIO(content)).metadata.num_rows
    put(tmp_path, content, end_lsn=1 + rows)
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    assert "column record" in (said := reader(tmp_path)) or "row group" in said
    assert pool.max_memory() - before < 8 * MIB


def chunks(content: bytes) -> list[SimpleNamespace]:
    """Those of the first row group, as they may be changed."""
    group = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0)
    names = ("path_in_schema", "file_path", "has_dictionary_page", "dictionary_page_offset")
    names += ("data_page_offset", "total_compressed_size")
    columns = [group.column(number) for number in range(group.num_columns)]
    return [SimpleNamespace(**{name: getattr(one, name) for name in names}) for one in columns]


def judged(content: bytes, columns: list[SimpleNamespace], created_by: str = "") -> int:
    group = SimpleNamespace(num_columns=len(columns), column=columns.__getitem__)
    metadata = SimpleNamespace(
        created_by=created_by or "parquet-cpp-arrow version 1",
        num_row_groups=1,
        row_group=lambda number: group,
    )
    return check_pages(io.BytesIO(content), metadata, plain=PLAIN, bytes_max=MIB)


def header(*fields: bytes) -> bytes:
    return b"".join(fields) + b"\0"


def i32(step: int, value: int, kind: int = 5) -> bytes:
    number, found = value << 1, b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return bytes([step << 4 | kind]) + found + bytes([number])


DATA_PAGE = b"\x2c" + header(i32(1, 1), i32(1, 0), i32(1, 3), i32(1, 3))


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"\x15",
        header(),
        header(i32(1, 0), i32(1, 9)),
        header(i32(1, 0), i32(1, 2 * MIB), i32(1, 1), DATA_PAGE),
        header(i32(1, 0), i32(1, 9), i32(1, 1 << 30), DATA_PAGE),
        header(i32(1, 0), i32(1, 9, kind=6), i32(1, 1), DATA_PAGE),
        header(i32(1, 0), i32(1, 1 << 33), i32(1, 1), DATA_PAGE),
        header(i32(1, 0), i32(1, 9), i32(1, 1)),
        header(i32(1, 0), i32(1, 9), b"\x05\x04" + i32(0, 9)[1:], i32(1, 1), DATA_PAGE),
        header(i32(1, 0), i32(1, 9), i32(1, 1), b"\x19\xf8\xff\xff\xff\xff\x0f"),
        header(i32(1, 0), i32(1, 9), i32(1, 1), b"\x18\xff\xff\xff\xff\x0f"),
        header(i32(1, 0), i32(1, 9), i32(1, 1), b"\x1c" * 40),
        header(i32(1, 0), b"\x15" + b"\xff" * 20),
        header(i32(1, 2), i32(1, 9), i32(1, 1), b"\x4c" + header(i32(1, 1), i32(1, 0))),
    ],
)
def test_a_header_that_could_be_read_otherwise(page: bytes) -> None:
    """Cut, without its numbers, twice the same field, another type, a dictionary of bytes."""
    content = b"PAR1" + page + b"\0"
    chunk = SimpleNamespace(
        path_in_schema="record",
        file_path="",
        has_dictionary_page=False,
        dictionary_page_offset=None,
        data_page_offset=4,
        total_compressed_size=len(page) + 1,
    )
    with pytest.raises(PagesRefused):
        judged(content, [chunk])
    good = header(i32(1, 0), i32(1, 9), i32(1, 1), DATA_PAGE)
    chunk.total_compressed_size = len(good) + 1
    assert judged(b"PAR1" + good + b"\0", [chunk]) == 9


def test_a_footer_that_leads_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    content = parquet(table([b"a" * 100] * 50))
    opened = judged(content, chunks(content))
    assert 5000 < opened < 8000
    with pytest.raises(PagesRefused, match="written by"):
        judged(content, chunks(content), "parquet-cpp version 1.2.8")
    for change in ({"data_page_offset": -1}, {"total_compressed_size": -9}, {"file_path": "x"}):
        columns = chunks(content)
        vars(columns[1]).update(change)
        with pytest.raises(PagesRefused):
            judged(content, columns)
    monkeypatch.setattr(parquet_pages, "ARCHIVE_PAGES_MAX", 5)
    with pytest.raises(PagesRefused, match="many pages"):
        judged(content, chunks(content))
    monkeypatch.setattr(parquet_pages, "ARCHIVE_PAGES_MAX", 6)
    judged(content, chunks(content))
    monkeypatch.setattr(parquet_pages, "ARCHIVE_PAGE_HEADER_BYTES_MAX", 5)
    with pytest.raises(PagesRefused, match="no end"):
        judged(content, chunks(content))


def test_a_footer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    content = parquet(table([b"a"]))
    length = int.from_bytes(content[-8:-4], "little")
    monkeypatch.setattr(parquet_pages, "ARCHIVE_FOOTER_BYTES_MAX", length)
    check_footer(io.BytesIO(content))
    monkeypatch.setattr(parquet_pages, "ARCHIVE_FOOTER_BYTES_MAX", length - 1)
    for wrong in (content, b"", content[:-1], b"\xff\xff\xff\xffPAR1"):
        with pytest.raises(PagesRefused):
            check_footer(io.BytesIO(wrong))


def test_lsns_of_an_object_that_is_read_whole_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of nothing take some bytes each, and no byte of the file."""
    put(tmp_path, parquet(table([b"a"] * 9)), end_lsn=10)
    place = Place(str(tmp_path))
    (row,) = Chain(place, "c", 7).between(1, 2)

    def read() -> int:
        found = batches(place, 7, row, 1, 10, include_gaps=True, columns=("lsn",))
        return sum(one.num_rows for one in found)

    monkeypatch.setattr("pyspark_logservice.archive_batches.ARCHIVE_LSNS_MAX", 9)
    assert read() == 9
    monkeypatch.setattr("pyspark_logservice.archive_batches.ARCHIVE_LSNS_MAX", 8)
    with pytest.raises(ArchiveError, match="9 LSNs"):
        read()


def test_what_an_archiver_writes_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that it may have: small row groups, gaps, records of every size."""
    monkeypatch.setattr(bounds, "ARCHIVE_ROW_GROUP_BYTES", 10_000)
    file = io.BytesIO()
    items = some_items(random.Random(1), 300, 1)
    writer = RangeWriter(file, 1)
    for item in items:
        writer.add(item)
    writer.finish()
    assert sum(map(len, read_batches(file))) == items[-1].next_lsn - 1
