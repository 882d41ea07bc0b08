"""The option ``archive``: a log's history from its archive and the rest from the stores, as one."""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from logservice_client import LogClient, SyncLogClient
from logservice_client.testing import Cluster, local_cluster
from logservice_wire.column_block import Binary, Parts, block_of_parts
from logservice_wire.errors import CorruptBlock, LineageChanged
from logservice_wire.v1 import log_pb2
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_logservice.archive import ArchiveError, Chain, Place
from pyspark_logservice.checks import OptionError
from pyspark_logservice.loss import DataLossError
from pyspark_logservice.options import Use, parse_options
from pyspark_logservice.plan import plan
from pyspark_logservice.rows import rows
from pyspark_logservice.stream import LogStreamReader
from pyspark_logservice.wanted import EVERYTHING, Numbers, Wanted

from logservice.archive.folder import Folder
from logservice.archive.lag import Metrics
from logservice.archive.manifest import Manifest, mark
from logservice.archive.settings import ArchiveSection
from logservice.archive.shipping import Shipper
from tests.client.running_fake import running_fake
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


@dataclass
class Logged:
    """A log, what was appended to it, and its archive."""

    cluster: Cluster
    client: SyncLogClient
    folder: Path
    shard: int = 0
    name: str = ""
    records: dict[int, bytes] = field(default_factory=dict)

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def append(self, count: int) -> None:
        made = [b"%s-%d" % (self.name.encode(), number) for number in range(count)]
        first = self.client.shard(self.shard).append(made)
        self.records |= dict(enumerate(made, first))

    def archive(self) -> None:
        """What there is; a run makes an object of it."""
        self.files.mkdir(parents=True, exist_ok=True)
        config = self.folder / "archive.toml"
        config.write_text(
            f"[archive]\nfolder = {json.dumps(str(self.files))}\n"
            f"[cluster]\nendpoints = {json.dumps(self.cluster.endpoints)}\n"
            f"[logs]\nnames = {json.dumps([self.name])}\n"
        )
        program = str(Path(sys.executable).with_name("logservice"))
        wait_until(
            # HAKeeper hears a moment later than the client that a new log is open.
            lambda: (
                not subprocess.run([program, "archive", "run", "--once", "-c", config]).returncode
            )
        )

    def truncate(self, lsn: int) -> None:
        log = self.client.shard(self.shard)
        for hold in log.status().holds:
            log.release_hold(hold.name)
        assert log.truncate(lsn) == lsn

    def options(self, use: Use = Use.BATCH, **more: str) -> Any:
        given = {
            "logservice.endpoints": ",".join(self.cluster.endpoints),
            "shard": str(self.shard),
            "archive": str(self.files),
        }
        return parse_options({**given, **more}, use)

    def read(self, wanted: Wanted = EVERYTHING, **more: str) -> pa.Table:
        options = self.options(**more)
        found = [batch for piece in plan(options, wanted) for batch in rows(options, piece, wanted)]
        return pa.Table.from_batches(found)

    def values(self, **more: str) -> dict[int, bytes]:
        found = self.read(**more)
        lsns = found["lsn"].to_pylist()
        assert len(set(lsns)) == len(lsns)
        return dict(zip(lsns, found["value"].to_pylist(), strict=True))

    def manifest(self) -> list[Path]:
        return sorted((self.files / "logs" / f"{self.shard:020d}" / "manifest").iterdir())

    def objects(self) -> list[Path]:
        return sorted((self.files / "logs" / f"{self.shard:020d}" / "objects").iterdir())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with local_cluster(logs=0) as cluster:
        yield cluster


def made_log(cluster: Cluster, client: SyncLogClient, folder: Path, *counts: int) -> Logged:
    """A log, archived after so many records each time; each time is an object."""
    name = f"log-{len(client.hakeeper.list_shards())}"
    made = Logged(cluster, client, folder, client.hakeeper.create_shard(name=name), name)
    for count in counts:
        made.append(count)
        made.archive()
    return made


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[SyncLogClient]:
    with cluster.client() as client:
        yield client


@pytest.fixture(scope="module")
def log(
    cluster: Cluster, client: SyncLogClient, tmp_path_factory: pytest.TempPathFactory
) -> Logged:
    """LSNs 1 to 250 in three objects, 1 to 200 of them truncated, and 251 to 300 in no archive. It
    is read only.
    """
    made = made_log(cluster, client, tmp_path_factory.mktemp("archive"), 100, 100, 50)
    made.append(50)
    made.truncate(200)
    return made


@pytest.fixture
def damaged(log: Logged, tmp_path: Path) -> Logged:
    """The same with a copy of the archive, for somebody to damage."""
    shutil.copytree(log.files, tmp_path / "files")
    return replace(log, folder=tmp_path)


@pytest.fixture
def fresh(cluster: Cluster, client: SyncLogClient, tmp_path: Path) -> Logged:
    """LSNs 1 to 100 in an object, 1 to 60 truncated, 101 to 150 in no archive."""
    made = made_log(cluster, client, tmp_path, 100)
    made.append(50)
    made.truncate(60)
    return made


def test_history_and_tail_are_one(log: Logged) -> None:
    assert log.values() == log.records
    assert sorted(log.records) == list(range(1, 301))
    pieces = plan(log.options())
    assert [(one.start, one.end, one.archived is not None) for one in pieces] == [
        (1, 101, True),
        (101, 201, True),
        (201, 251, True),
        (251, 301, False),
    ]
    found = log.read()
    assert found.schema.names == ["shard", "lsn", "timestamp", "value"]
    assert all(abs(one.timestamp() - time.time()) < 3600 for one in found["timestamp"].to_pylist())
    with pytest.raises(DataLossError):
        plan(parse_options({**given_without_archive(log), "startingLsn": "1"}))


def given_without_archive(log: Logged) -> dict[str, str]:
    return {
        "logservice.endpoints": ",".join(log.cluster.endpoints),
        "shard": str(log.shard),
    }


@pytest.mark.parametrize(
    ("first", "behind"),
    [(1, 2), (100, 102), (37, 243), (250, 252), (251, 260), (201, 251), (1, 301), (300, 301)],
)
def test_ranges(log: Logged, first: int, behind: int) -> None:
    found = log.values(startingLsn=str(first), endingLsn=str(behind), minPartitions="3")
    assert found == {lsn: log.records[lsn] for lsn in range(first, behind)}


def test_columns_and_conditions(log: Logged) -> None:
    bare = log.read(includeValue="false")
    assert bare.schema.names == ["shard", "lsn", "timestamp"]
    assert bare["lsn"].to_pylist() == list(range(1, 301))
    only = (3, 99, 100, 150, 249, 260)
    assert log.read(Wanted(lsns=Numbers(only=only)))["lsn"].to_pylist() == list(only)
    ranged = log.read(Wanted(lsns=Numbers(first=90, behind=110)))
    assert ranged["lsn"].to_pylist() == list(range(90, 110))
    times = sorted(set(log.read()["timestamp"].cast(pa.int64()).to_pylist()))
    assert len(times) == 4
    for numbers, expected in (
        (Numbers(first=times[1], behind=times[3]), range(101, 251)),
        (Numbers(only=(times[0], times[3])), [*range(1, 101), *range(251, 301)]),
        (Numbers(first=times[3] + 1), []),
    ):
        wanted = Wanted(times_us=numbers)
        options = log.options()
        found = [
            lsn
            for piece in plan(options, wanted)
            for batch in rows(options, piece, wanted)
            for lsn in batch.column("lsn").to_pylist()
        ]
        assert found == list(expected)
    with pytest.raises(OptionError, match="term"):
        log.options(columns="lsn,term")


def test_wide_blocks_are_opened(cluster: Cluster, client: SyncLogClient, tmp_path: Path) -> None:
    """Also parts of one, between ordinary ones; records may have a time each."""
    made = made_log(cluster, client, tmp_path)
    handle = client.shard(made.shard)
    made.append(3)
    for codec in (None, "zstd"):
        first = handle.append_columns(
            [b"x", b"", b"z"], times_us=[20, 21, 22], keys=[b"k", None, b""], codec=codec
        )
        made.records |= dict(enumerate([b"x", b"", b"z"], first))
        made.append(2)
    made.archive()
    made.truncate(13)
    made.append(1)
    assert made.values() == made.records
    assert made.values(startingLsn="5", endingLsn="11") == {
        lsn: made.records[lsn] for lsn in range(5, 11)
    }
    found = made.read(startingLsn="4", endingLsn="7")
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [20, 21, 22]
    wanted = Wanted(times_us=Numbers(only=(21,)))
    assert made.read(wanted)["lsn"].to_pylist() == [5, 10]
    assert made.read(includeValue="false")["lsn"].to_pylist() == sorted(made.records)


EVERY = "*,key,headers,record_time"


def test_keys_headers_and_times_are_the_same_from_both(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    """What the stores say before a part of it is archived and truncated, within a block, too."""
    made = made_log(cluster, client, tmp_path)
    handle = client.shard(made.shard)
    made.append(2)
    for codec in (None, "lz4"):
        handle.append_columns([b"k"], keys=[b""], codec=codec)
        handle.append_columns(
            [b"x", b"y", b"z"],
            times_us=[20, 2**62, 22],
            headers=[{"h": b"1", "ä": b""}, {}, {"": b"2"}],
            codec=codec,
        )
        made.append(1)
    stored = table_of(parse_options(given_without_archive(made) | {"columns": EVERY}))
    expected = stored.drop_columns(["term"])
    assert expected["key"].null_count == 10
    assert expected["headers"].null_count == 8
    assert expected["record_time"].null_count == 6
    made.archive()
    made.truncate(10)
    made.append(1)
    both = made.read(columns=EVERY, endingLsn="13")
    assert both.schema == expected.schema
    assert both.equals(expected)
    for first, behind in ((5, 6), (4, 11), (8, 12), (10, 13)):
        part = made.read(columns=EVERY, startingLsn=str(first), endingLsn=str(behind))
        assert part.equals(expected.slice(first - 1, behind - first))
    assert made.read(columns="headers")["headers"].null_count == 9


def test_a_damaged_column_in_an_archive_says_where(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    made = made_log(cluster, client, tmp_path)
    made.append(2)
    one = struct.pack("<ii", 0, 1)
    named = (one, Binary(one, b"\xff"), Binary(one, b"c"))
    client.shard(made.shard).append_block(
        block_of_parts(Parts(1, Binary(one, b"v"), headers=named), 5)
    )
    made.archive()
    made.truncate(2)
    assert made.read(columns="value")["value"].to_pylist()[2] == b"v"
    with pytest.raises(CorruptBlock, match=r"name of a header.*first_lsn=3 last_lsn=3"):
        made.read(columns=EVERY)


async def shipped(endpoints: list[str], files: Path) -> None:
    """Archive log 1 of stores that are no processes of their own."""
    folder = Folder(files)
    async with LogClient(endpoints) as client:
        cluster_id = (await client.hakeeper.cluster_state()).cluster_id
        mark(folder, cluster_id)
        settings = ArchiveSection(folder="-")
        manifest = Manifest(folder, 1)
        shipper = Shipper(client.shard(1), "wal", cluster_id, manifest, settings, Metrics())
        while await shipper.ship(to_tail=True):
            pass


def test_gaps_are_the_same_in_both(tmp_path: Path) -> None:
    """On the fake: a leader judges before it appends, so real ones leave gaps hardly ever."""
    with running_fake() as fake, SyncLogClient(fake.endpoints) as client:
        log = client.shard(1)
        for reason in (log_pb2.GAP_REASON_FENCED, log_pb2.GAP_REASON_SEQUENCE):
            log.append([b"a", b"b"])
            fake.logs[1].put_gap(3, reason)
            log.append([b"c"])
            if reason == log_pb2.GAP_REASON_FENCED:
                (tmp_path / "files").mkdir()
                asyncio.run(shipped(fake.endpoints, tmp_path / "files"))
                between = log.status().position.applied_lsn
        stored = {"logservice.endpoints": ",".join(fake.endpoints), "shard": "1"}
        more = {"includeGaps": "true", "columns": "lsn,gap,timestamp"}
        in_stores, in_both = (
            parse_options({**stored, **more, **archive})
            for archive in ({}, {"archive": str(tmp_path / "files")})
        )
        expected = table_of(in_stores)
        assert expected["gap"].to_pylist() == [
            *(None, None, "fenced", "fenced", "fenced", None),
            *(None, None, "sequence", "sequence", "sequence", None),
        ]
        log.truncate(between)
        assert table_of(in_both).to_pydict() == expected.to_pydict()
        bare = parse_options({**stored, "archive": str(tmp_path / "files")})
        assert table_of(bare)["lsn"].to_pylist() == [1, 2, 6, 7, 8, 12]


def table_of(options: Any) -> pa.Table:
    return pa.Table.from_batches(batch for piece in plan(options) for batch in rows(options, piece))


def test_times(log: Logged) -> None:
    """Of LSNs that the stores have not any more."""
    with SyncLogClient(log.cluster.endpoints) as client:
        place = Place(str(log.files))
        cluster_id = client.hakeeper.cluster_state().cluster_id
        chain = Chain(place, cluster_id, log.shard)
    rows_of = chain.between(1, 251)
    times = [one.append_times_us for one in rows_of]
    assert all(times)
    for number, lsn in ((0, 1), (1, 101), (2, 201)):
        begin, end = rows_of[number].append_times_us or (0, 0)
        assert chain.lsn_at_time(begin) == lsn
        assert chain.lsn_at_time(begin - 1) in (lsn, lsn - 100 if lsn > 1 else 1, lsn)
        assert chain.lsn_at_time(end + 1) == rows_of[number].end_lsn
    middle_ms = -(-(rows_of[1].append_times_us or (0, 0))[0] // 1000)
    found = log.values(startingTimestamp=str(middle_ms))
    assert found == {lsn: one for lsn, one in log.records.items() if lsn >= min(found)}
    assert min(found) in (101, 201)  # all of a block have one time, which may be the very one
    past_ms = (rows_of[0].append_times_us or (0, 0))[0] // 1000
    assert log.values(startingTimestamp=str(past_ms)) == log.records


class Query:
    """Micro-batches as Spark makes them."""

    def __init__(self, log: Logged, **options: str) -> None:
        self.options = log.options(Use.STREAM, **options)
        self.reader = LogStreamReader(self.options)
        self.offset = json.loads(json.dumps(self.reader.initialOffset()))
        self.lsns: list[int] = []

    def batch(self) -> tuple[dict[str, Any], dict[str, Any]]:
        limit = self.reader.getDefaultReadLimit() or ReadAllAvailable()
        start, end = self.offset, self.reader.latestOffset(self.offset, limit)
        self.lsns += self.of(start, end)
        self.offset = json.loads(json.dumps(end))
        return start, end

    def of(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        if start == end:
            return []
        found = [
            lsn
            for piece in self.reader.partitions(start, end)
            for batch in self.reader.read(piece)
            for lsn in batch.column("lsn").to_pylist()
        ]
        return sorted(found)


@pytest.mark.parametrize(
    "limit", [{}, {"maxRecordsPerTrigger": "40"}, {"maxBytesPerTrigger": "400"}]
)
def test_a_stream_begins_in_the_archive(log: Logged, limit: dict[str, str]) -> None:
    query = Query(log, **limit)
    made = [query.batch()]
    while len(query.lsns) < 300:
        made.append(query.batch())
    assert query.lsns == list(range(1, 301))
    assert len(made) > 3 or not limit
    query.reader.stop()


def test_a_micro_batch_is_read_again_from_the_archive(fresh: Logged) -> None:
    """What was read from the stores, with the same columns and the same rows."""
    query = Query(fresh, maxRecordsPerTrigger="40")
    made = [query.batch() for _ in range(5)]
    assert query.lsns == list(range(1, 151))
    expected = [query.of(*one) for one in made]
    fresh.append(10)
    fresh.archive()
    fresh.truncate(155)
    assert [query.of(*one) for one in made] == expected
    query.batch()
    assert query.lsns == list(range(1, 161))
    query.reader.stop()


def test_truncated_after_it_was_planned(fresh: Logged) -> None:
    options = fresh.options()
    pieces = plan(options)
    fresh.append(10)
    fresh.archive()
    fresh.truncate(140)
    assert lsns_of(options, pieces) == list(range(1, 151))


def lsns_of(options: Any, pieces: list[Any]) -> list[int]:
    return [
        lsn
        for piece in pieces
        for batch in rows(options, piece)
        for lsn in batch.column("lsn").to_pylist()
    ]


def test_a_hole_between_archive_and_stores(fresh: Logged) -> None:
    options = fresh.options()
    *_, last = plan(options)
    fresh.truncate(130)
    with pytest.raises(DataLossError, match="101 to 130"):
        lsns_of(options, [last])
    assert lsns_of(fresh.options(failOnDataLoss="false"), [last]) == list(range(131, 151))
    with pytest.raises(DataLossError, match="131"):
        plan(fresh.options(startingLsn="1"))
    assert sorted(fresh.values()) == list(range(131, 151)), "earliest is what goes on to the tail"


def test_what_was_gone_before_the_archive_came(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    made = made_log(cluster, client, tmp_path, 10)
    made.append(10)
    made.truncate(15)
    made.archive()
    made.append(5)
    assert len(made.manifest()) == 3, "one row says that 11 to 15 are missing"
    with pytest.raises(DataLossError, match="11 to 15"):
        plan(made.options())
    found = made.values(failOnDataLoss="false")
    assert sorted(found) == [*range(1, 11), *range(16, 26)]


def test_a_place_without_an_archive(log: Logged, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for archive, why in (
        (str(tmp_path / "empty"), "no archive"),
        (str(tmp_path / "none"), "no archive"),
        ("relative/path", "neither an absolute path"),
        ("nonsense://x", "neither an absolute path"),
    ):
        with pytest.raises(OptionError, match=why):
            plan(log.options(archive=archive))


def test_another_clusters_archive(damaged: Logged) -> None:
    mark = damaged.files / "ARCHIVE.json"
    said = json.loads(mark.read_text())
    mark.chmod(0o600)
    mark.write_text(json.dumps(said | {"cluster_id": "other"}))
    with pytest.raises(OptionError, match="of cluster 'other'"):
        plan(damaged.options())


def test_a_log_that_the_archive_does_not_have(client: SyncLogClient, log: Logged) -> None:
    other = client.hakeeper.create_shard()
    client.shard(other).append([b"a", b"b"])
    assert sorted(log.values(shard=str(other))) == [1, 2]


def changed(path: Path, **fields: object) -> None:
    row = json.loads(path.read_text())
    path.chmod(0o600)
    path.write_text(json.dumps({**row, **fields}))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"format": 2}, "format 2"),
        ({"shard_id": 999}, "of log 999"),
        ({"cluster_id": "x"}, "of cluster 'x'|of log"),
        ({"first_lsn": 7}, "and not of log|of log"),
        ({"end_lsn": 1}, "ends before"),
        ({"end_lsn": "x"}, "no row"),
        ({"end_lsn": None}, "no row"),
        ({"append_time_us": 3}, "no row"),
        ({"lineage": "zz"}, "no row"),
        ({"key_id": "k"}, "sealed"),
        ({"end_lsn": 100}, "no row for LSN 100"),
        ({"sha256": "0" * 64}, "damaged"),
        ({"object_bytes": 1}, "more than 1 bytes"),
        ({"object_bytes": 1 << 40}, "damaged"),
        ({"object": "objects/none"}, "names no object"),
        ({"object": f"objects/{1:020d}-0.parquet"}, "gone"),
    ],
)
def test_rows_that_are_wrong(damaged: Logged, fields: dict[str, object], why: str) -> None:
    changed(damaged.manifest()[0], **fields)
    with pytest.raises(ArchiveError, match=why):
        damaged.read()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe"])
def test_rows_that_are_none(damaged: Logged, content: bytes) -> None:
    damaged.manifest()[0].chmod(0o600)
    damaged.manifest()[0].write_bytes(content)
    with pytest.raises(ArchiveError, match="no row"):
        damaged.read()


def test_a_row_in_the_middle_is_gone(damaged: Logged) -> None:
    damaged.manifest()[1].unlink()
    with pytest.raises(ArchiveError, match="no row for LSN 101"):
        damaged.read()


def test_inv_archived_3_a_flipped_bit(damaged: Logged) -> None:
    """INV-ARCHIVED-3, at a few places of an object."""
    path = damaged.objects()[0]
    content = path.read_bytes()
    path.chmod(0o600)
    for at in range(0, len(content), max(1, len(content) // 7)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(ArchiveError, match="damaged"):
            damaged.read()
    path.write_bytes(content)
    assert damaged.values() == damaged.records


def test_inv_archived_1_another_history(damaged: Logged) -> None:
    """INV-ARCHIVED-1."""
    for path in damaged.manifest():
        changed(path, lineage="ab" * 16, lineage_number=1)
    with pytest.raises(LineageChanged):
        plan(damaged.options())


def test_an_archive_that_begins_while_a_stream_runs(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    """INV-ARCHIVED-2: it grows from nothing, row after row."""
    made = made_log(cluster, client, tmp_path, 10)
    shutil.rmtree(made.files / "logs")
    query = Query(made)
    query.batch()
    for _ in range(3):
        made.append(10)
        made.archive()
        made.truncate(len(made.records) - 3)
        query.batch()
    assert query.lsns == list(range(1, 41))
    query.reader.stop()


@pytest.mark.spark
def test_in_spark(spark: SparkSession, damaged: Logged) -> None:
    from pyspark_logservice import DefaultSource

    spark.dataSource.register(DefaultSource)
    reader = spark.read.format("logservice").options(
        **{**given_without_archive(damaged), "archive": str(damaged.files)}
    )
    found = {row.lsn: bytes(row.value) for row in reader.load().collect()}
    assert found == damaged.records
    assert reader.load().count() == 300
    bad = damaged.objects()[0]
    bad.chmod(0o600)
    bad.write_bytes(b"x")
    with pytest.raises(Exception, match="is damaged"):
        reader.load().count()
