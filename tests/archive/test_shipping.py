"""An archive of logs that are truncated, by archivers that are killed, and by two at once."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytest_asyncio
from logservice_client import LogClient
from logservice_wire.block import encode_block
from logservice_wire.errors import InvalidArgument, LineageChanged, LogServiceError, NotReady

from logservice import bounds
from logservice.archive.cluster_section import ClusterSection
from logservice.archive.damage import ArchiveDamaged
from logservice.archive.folder import Folder
from logservice.archive.lag import Lag, Metrics
from logservice.archive.manifest import Manifest, mark, marked, shard_ids
from logservice.archive.range_file import read_batches
from logservice.archive.running import Archiver
from logservice.archive.settings import (
    ArchiveSection,
    LogsSection,
    Settings,
)
from logservice.archive.shipping import STEPS, Shipper
from logservice.archive.verifying import contents, verify
from logservice.sealing_keys import Keys
from tests.client.fake_log import FakeLog
from tests.client.fake_server import FakeCluster
from tests.waiting import eventually


class Killed(BaseException):
    """The process ends here."""


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = await FakeCluster.start()
    yield cluster
    await cluster.stop()


class Bench:
    """A log, its archive, and archivers of it."""

    def __init__(self, cluster: FakeCluster, folder: Path, client: LogClient) -> None:
        self.log: FakeLog = cluster.logs[1]
        self.folder = Folder(folder)
        self.client = client
        self.manifest = Manifest(self.folder, 1)
        self.metrics = Metrics()
        self.wrote: dict[int, bytes | int] = {}
        """What each LSN was told to be, before anything was truncated."""

    def append(self, *records: bytes) -> None:
        for lsn, record in enumerate(records, self.log.next_lsn):
            self.wrote[lsn] = record
        self.log.append(encode_block(records, 1))

    def gap(self, count: int, reason: int) -> None:
        for lsn in range(self.log.next_lsn, self.log.next_lsn + count):
            self.wrote[lsn] = reason
        self.log.put_gap(count, reason)

    def shipper(self, **more: Any) -> Shipper:
        settings = ArchiveSection(folder="-", object_bytes=2000)
        return Shipper(
            self.client.shard(1), "wal", "fake", self.manifest, settings, self.metrics, **more
        )

    async def ship_all(self, shipper: Shipper | None = None) -> None:
        shipper = shipper or self.shipper()
        while await shipper.ship(to_tail=True):
            pass

    def check(self) -> set[int]:
        """INV-ARCHIVE-1 to 3; returns the LSNs that are missing."""
        missing: set[int] = set()
        expected = 1
        for row in self.manifest.rows():
            assert row.first_lsn == expected
            expected = row.end_lsn
            lsns = range(row.first_lsn, row.end_lsn)
            if row.missing:
                missing |= set(lsns)
                continue
            with self.manifest.open(row) as file:
                rows = [one for batch in read_batches(file) for one in batch.to_pylist()]
            assert [one["lsn"] for one in rows] == list(lsns)
            for one in rows:
                found = one["gap"] if one["record"] is None else one["record"]
                assert found == self.wrote[one["lsn"]]
        if "archive" in self.log.holds:
            assert self.log.holds["archive"] <= max(expected, self.log.truncated + 1)
        return missing


@pytest_asyncio.fixture
async def bench(cluster: FakeCluster, tmp_path: Path) -> AsyncIterator[Bench]:
    async with LogClient(cluster.endpoints) as client:
        yield Bench(cluster, tmp_path, client)


async def test_a_log_is_archived_up_to_its_tail(bench: Bench) -> None:
    for number in range(50):
        bench.append(*[b"%d" % number * 10] * 10)
    bench.gap(3, 1)
    bench.append(b"")
    await bench.ship_all()
    assert bench.check() == set()
    rows = list(bench.manifest.rows())
    assert rows[-1].end_lsn == 505
    assert len(rows) > 5, "each object is bounded"
    assert bench.log.holds == {"archive": 505}
    assert sum(row.records for row in rows) == 501
    assert next(gap for row in rows for gap in row.gaps).first_lsn == 501
    found = await verify(bench.folder, 1, bench.client)
    assert (found.problems, found.compared, found.ranges) == ([], len(rows), len(rows))
    assert not await bench.shipper().ship(to_tail=True), "nothing new"


async def test_an_object_has_a_bounded_number_of_lsns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ARCHIVE_OBJECT_LSNS_MAX", 50)
    monkeypatch.setattr(bounds, "ARCHIVE_READ_BYTES", 1)
    for _ in range(12):
        bench.append(*[b""] * 10)
    await bench.ship_all()
    assert [row.end_lsn for row in bench.manifest.rows()] == [51, 101, 121]


async def test_a_quiet_log_is_looked_at_seldom(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses double up to ARCHIVE_POLL_MAX_S."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 7:
            raise Killed

    shipper = bench.shipper()
    assert not await shipper.ship(to_tail=True)
    monkeypatch.setattr("logservice.archive.shipping.asyncio.sleep", pause)
    with pytest.raises(Killed):
        await shipper._wait_until_due(False)
    assert pauses == [1.0, 2.0, 4.0, 8.0, *[bounds.ARCHIVE_POLL_MAX_S] * 3]


async def test_what_was_truncated_before_is_said(bench: Bench) -> None:
    bench.append(*[b"a"] * 20)
    bench.log.truncate(8, 0)
    await bench.ship_all()
    assert bench.check() == set(range(1, 9))
    # Somebody releases the hold and truncates: what is lost is said, and nothing else.
    bench.append(*[b"b"] * 20)
    bench.log.holds.clear()
    bench.log.truncate(30, 0)
    bench.append(b"c")
    await bench.ship_all()
    assert bench.check() == set(range(1, 9)) | set(range(21, 31))
    found = contents(bench.folder, 1)
    assert (found.missing_lsns, found.records, found.end_lsn) == (18, 23, 42)


async def test_the_hold_keeps_what_is_not_archived(bench: Bench) -> None:
    bench.append(*[b"a"] * 10)
    await bench.ship_all()
    bench.append(*[b"b"] * 10)
    assert bench.log.truncate(20, 0) == 10
    await bench.ship_all()
    assert bench.log.truncate(20, 0) == 20 if bench.log.truncated < 20 else True
    assert bench.check() == set()


@pytest.mark.parametrize("step", STEPS)
async def test_an_archiver_that_is_killed_behind_a_step(bench: Bench, step: str) -> None:
    def kill(reached: str) -> None:
        if reached == step:
            raise Killed

    bench.append(*[b"a" * 50] * 30)
    with pytest.raises(Killed):
        await bench.shipper(reached=kill).ship(to_tail=True)
    bench.check()
    bench.log.truncate(29, 0)
    bench.append(b"b")
    await bench.ship_all()
    assert bench.check() == set()
    bench.manifest.remove_unnamed()
    objects = bench.folder.names("logs/00000000000000000001/objects")
    assert objects == sorted(row.object.split("/")[1] for row in bench.manifest.rows())


@pytest.mark.parametrize("seed", range(25))
async def test_two_archivers_that_are_killed_while_the_log_is_truncated(
    bench: Bench, seed: int
) -> None:
    """INV-ARCHIVE-1 to 4: whatever happens, each LSN is archived once or said to be missing, and it
    is missing only if it was truncated while nothing held it.
    """
    rng = random.Random(seed)
    unheld: set[int] = set()

    def kill(_: str) -> None:
        if rng.random() < 0.1:
            raise Killed

    async def archiver() -> None:
        shipper = bench.shipper(reached=kill)
        for _ in range(12):
            try:
                await shipper.ship(to_tail=True)
            except Killed:
                shipper = bench.shipper(reached=kill)
                bench.manifest.remove_unnamed()
            await asyncio.sleep(0)

    async def database() -> None:
        for _ in range(60):
            bench.append(*[b"x" * rng.randrange(100)] * rng.randint(1, 30))
            if rng.random() < 0.2:
                bench.gap(rng.randint(1, 5), rng.randint(1, 4))
            if rng.random() < 0.05 and bench.log.holds.pop("archive", None):
                pass
            before = bench.log.truncated
            if rng.random() < 0.5 and before + 1 < bench.log.next_lsn - 1:
                bench.log.truncate(rng.randrange(before + 1, bench.log.next_lsn), 0)
                if "archive" not in bench.log.holds:
                    unheld.update(range(before + 1, bench.log.truncated + 1))
            await asyncio.sleep(0.002)

    await asyncio.gather(archiver(), archiver(), database())
    bench.check()
    await bench.ship_all()
    assert bench.check() <= unheld
    assert contents(bench.folder, 1).end_lsn == bench.log.next_lsn
    assert (await verify(bench.folder, 1, bench.client)).problems == []


async def test_the_hold_does_not_move_before_the_row_is_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-ARCHIVE-3: the object is durable, the row is not."""

    def fail(*_: object) -> bool:
        raise OSError(28, "no space")

    bench.append(b"a", b"b")
    with monkeypatch.context() as full:
        full.setattr(Folder, "put_if_absent", fail)
        with pytest.raises(OSError, match="no space"):
            await bench.shipper().ship(to_tail=True)
    assert bench.log.holds == {"archive": 1}
    await bench.ship_all()
    assert bench.log.holds == {"archive": 3}


async def test_what_is_left_is_held_before_a_row_says_what_is_missing(bench: Bench) -> None:
    bench.append(*[b"a"] * 20)
    bench.log.truncate(8, 0)
    held: list[dict[str, int]] = []

    def look(step: str) -> None:
        held.append(dict(bench.log.holds))
        if len(held) == 1:
            assert list(bench.manifest.rows()) == []
            bench.log.truncate(15, 0)

    await bench.ship_all(bench.shipper(reached=look))
    assert held[0] == {"archive": 9}
    assert bench.check() == set(range(1, 9)), "nothing more went meanwhile"


async def test_an_unfinished_object_of_another_archiver_is_left_alone(bench: Bench) -> None:
    """INV-ARCHIVE-4: its row may still be written."""
    bench.append(b"a")
    with bench.folder.put(bench.manifest.path(bench.manifest.object_name(1, "0" * 16))) as file:
        file.write(b"under way")
        assert bench.manifest.unnamed_objects() == []
        await bench.ship_all()
        assert len(bench.manifest.unnamed_objects()) == 1
    assert bench.manifest.remove_unnamed() == 1
    assert bench.manifest.unnamed_objects() == []
    bench.check()


async def test_damage_is_found(bench: Bench, tmp_path: Path) -> None:
    for _ in range(3):
        bench.append(*[b"a" * 100] * 20)
        await bench.ship_all()
    rows = list(bench.manifest.rows())
    path = tmp_path / bench.manifest.path(rows[1].object)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], b""):
        path.write_bytes(damaged)
        found = await verify(bench.folder, 1)
        assert len(found.problems) == 1
        assert rows[1].object in found.problems[0]
    path.unlink()
    assert "gone" in (await verify(bench.folder, 1)).problems[0]
    path.write_bytes(whole)
    assert (await verify(bench.folder, 1)).problems == []
    folder = tmp_path / "logs/00000000000000000001/manifest"
    names = sorted(one.name for one in folder.iterdir())
    row = folder / names[1]
    content = row.read_bytes()
    for other in (b"", b"{}", content.replace(b'"records": 20', b'"records": 21'), b"\xff" * 99):
        row.write_bytes(other)
        assert (await verify(bench.folder, 1)).problems, other
    row.unlink()
    with pytest.raises(ArchiveDamaged, match=f"no row for LSN {rows[1].first_lsn}"):
        list(bench.manifest.rows())
    row.write_bytes(content.replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(InvalidArgument, match="format 2"):
        list(bench.manifest.rows())


async def test_bytes_and_records_are_both_verified(bench: Bench, tmp_path: Path) -> None:
    """Other bytes with the same records, and other records whose bytes the row names."""
    bench.append(b"a", b"b")
    await bench.ship_all()
    [row] = bench.manifest.rows()
    path = tmp_path / bench.manifest.path(row.object)
    table = pq.read_table(path)
    pq.write_table(table, path, compression="none", use_dictionary=False)
    assert "not those that were archived" in (await verify(bench.folder, 1)).problems[0]
    records = pa.array([b"a", b"B"], pa.binary())
    pq.write_table(table.set_column(1, "record", records), path, use_dictionary=False)
    content = path.read_bytes()
    of_row = tmp_path / "logs/00000000000000000001/manifest/00000000000000000001.json"
    text = of_row.read_text().replace(row.sha256, hashlib.sha256(content).hexdigest())
    of_row.write_text(
        text.replace(f'"object_bytes": {row.object_bytes}', f'"object_bytes": {len(content)}')
    )
    assert "records with digest" in (await verify(bench.folder, 1)).problems[0]


async def test_keys_change_between_objects(bench: Bench) -> None:
    """Rotation: each object is opened with its own key."""
    keys = {"old": b"o" * 32, "new": b"n" * 32}
    active = ["old"]
    shipper = bench.shipper(keys=lambda: Keys(active[0], keys))
    for key in ("old", "new"):
        active[0] = key
        bench.append(b"secret")
        await bench.ship_all(shipper)
    assert [row.key_id for row in bench.manifest.rows()] == ["old", "new"]
    assert (await verify(bench.folder, 1, keys=Keys("new", keys))).problems == []
    without = await verify(bench.folder, 1, keys=Keys("new", {"new": keys["new"]}))
    assert len(without.problems) == 1
    assert len((await verify(bench.folder, 1)).problems) == 2


async def test_a_log_that_differs_from_its_archive_is_found(bench: Bench) -> None:
    bench.append(b"a", b"b")
    await bench.ship_all()
    other = FakeLog(1)
    other.append(encode_block([b"a", b"B"], 1))
    bench.log.runs = other.runs
    found = await verify(bench.folder, 1, bench.client)
    assert len(found.problems) == 1
    assert "the log has records-1:" in found.problems[0]


def test_an_archive_belongs_to_one_cluster(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(InvalidArgument, match="no archive"):
        marked(folder)
    mark(folder, "one")
    mark(folder, "one")
    with pytest.raises(InvalidArgument, match="of cluster one, not of two"):
        mark(folder, "two")
    assert marked(folder) == "one"


def settings(names: list[str], age_s: float = 60.0) -> Settings:
    return Settings(
        archive=ArchiveSection(folder="-", object_age_s=age_s),
        cluster=ClusterSection(endpoints=[]),
        logs=LogsSection(names=names),
    )


async def test_the_chosen_logs_and_no_others(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.names = {1: "wal-1", 2: "wal-2", 3: "other"}
    for shard in (2, 3):
        cluster.logs[shard] = FakeLog(shard)
    for log in cluster.logs.values():
        log.append(encode_block([b"a"], 1))
    async with LogClient(cluster.endpoints) as client:
        archiver = Archiver(client, settings(["wal-*"]), Folder(tmp_path))
        assert await archiver.run_once() == (2, [])
        assert shard_ids(Folder(tmp_path)) == [1, 2]
        assert [row.name for row in Manifest(Folder(tmp_path), 2).rows()] == ["wal-2"]
        archiver = Archiver(client, settings(["wal-2", "walk", "none-*"]), Folder(tmp_path))
        assert await archiver.run_once() == (1, ["walk"]), "a pattern may fit none"


async def test_it_goes_on_when_something_fails(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No leader, a full disk: counted, and tried again. A new log is found."""
    for name in ("ARCHIVE_POLL_S", "ARCHIVE_CHOOSE_S", "ARCHIVE_RETRY_S"):
        monkeypatch.setattr(bounds, name, 0.01)
    failures: list[Exception] = [OSError(28, "no space"), NotReady("no leader")]
    put = Folder.put

    def failing(folder: Folder, name: str) -> Any:
        if failures and name.endswith(".parquet"):
            raise failures.pop()
        return put(folder, name)

    monkeypatch.setattr(Folder, "put", failing)
    cluster.logs[1].append(encode_block([b"a"], 1))
    async with LogClient(cluster.endpoints) as client:
        archiver = Archiver(client, settings(["*"], 0.05), Folder(tmp_path))
        running = asyncio.create_task(archiver.run())
        await eventually(lambda: contents(Folder(tmp_path), 1).end_lsn == 2)
        failed = archiver.metrics.failures.labels("1")
        assert failed._value.get() == 2
        value = archiver.metrics.registry.get_sample_value
        await eventually(lambda: value("logservice_archive_archived_lsn", {"shard": "1"}) == 2.0)
        assert value("logservice_archive_missing_lsns_total", {"shard": "1"}) == 0.0
        cluster.logs[1].append(encode_block([b"b"], 1))
        await eventually(lambda: contents(Folder(tmp_path), 1).end_lsn == 3)
        cluster.logs[2] = FakeLog(2)
        cluster.logs[2].append(encode_block([b"c"], 1))
        await eventually(lambda: contents(Folder(tmp_path), 2).end_lsn == 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_another_owners_hold_is_an_error_and_nothing_is_archived(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logservice_wire.errors import PermissionDenied

    def refuse(*_: object) -> None:
        raise PermissionDenied("another's")

    bench.append(b"a")
    monkeypatch.setattr(bench.log, "set_hold", refuse)
    with pytest.raises(LogServiceError, match="another's"):
        await bench.shipper().ship(to_tail=True)
    assert list(bench.manifest.rows()) == []


# --- a log that is continued by force ------------------------------------------------------------


async def test_nothing_of_another_lineage_goes_into_an_archive(
    bench: Bench, cluster: FakeCluster, tmp_path: Path
) -> None:
    """LSNs above the fork are given out once more (INV-ARCHIVE-5). Whether the archiver saw the
    fork, or was started behind it, and whether the log ends before the archive or behind it.
    """
    for record in (b"1", b"2", b"3"):
        bench.append(record)
    await bench.ship_all()
    bench.log.fork(b"1" * 16, 1)
    before = list(bench.manifest.rows())
    for _ in range(2):
        async with LogClient(cluster.endpoints) as client:
            started = Bench(cluster, tmp_path, client).shipper()
            for shipper in (bench.shipper(), started):
                with pytest.raises(LineageChanged) as told:
                    await shipper.ship(to_tail=True)
                assert told.value.number("fork_lsn") == 1
                assert told.value.metadata["actual"] == (b"1" * 16).hex()
        bench.append(b"II", b"III", b"IV", b"V")
    assert list(bench.manifest.rows()) == before
    assert [row.lineage for row in before] == [""]


async def test_a_fork_between_two_reads_of_a_range(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        bench.append(b"a" * 100)
    monkeypatch.setattr(bounds, "ARCHIVE_READ_BYTES", 100)
    read = FakeLog.read
    reads = 0

    def forked(log: FakeLog, *given: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads == 2:
            log.fork(b"1" * 16, 1)
            log.append(encode_block([b"b" * 100] * 6, 1))
        return read(log, *given)

    monkeypatch.setattr(FakeLog, "read", forked)
    shipper = bench.shipper()
    with pytest.raises(LineageChanged):
        while await shipper.ship(to_tail=True):
            pass
    assert all(row.lineage == "" for row in bench.manifest.rows())
    assert reads >= 2


async def test_an_archive_of_a_log_with_a_lineage_says_it(bench: Bench, tmp_path: Path) -> None:
    bench.log.fork(b"2" * 16, 0)
    for _ in range(3):
        bench.append(b"a" * 3000)
    await bench.ship_all()
    rows = list(bench.manifest.rows())
    assert {row.lineage for row in rows} == {(b"2" * 16).hex()}
    path = tmp_path / f"logs/{1:020d}/manifest/{rows[-1].first_lsn:020d}.json"
    path.write_bytes(path.read_bytes().replace((b"2" * 16).hex().encode(), b"33" * 16))
    with pytest.raises(ArchiveDamaged, match="another lineage"):
        list(bench.manifest.rows())


async def test_an_archiver_that_waits_says_it_until_somebody_acts(
    cluster: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("ARCHIVE_POLL_S", "ARCHIVE_POLL_MAX_S", "ARCHIVE_CHOOSE_S", "ARCHIVE_RETRY_S"):
        monkeypatch.setattr(bounds, name, 0.01)
    for record in (b"a", b"b"):
        cluster.logs[1].append(encode_block([record], 1))
    async with LogClient(cluster.endpoints) as client:
        archiver = Archiver(client, settings(["*"], 0.05), Folder(tmp_path))
        running = asyncio.create_task(archiver.run())
        await eventually(lambda: contents(Folder(tmp_path), 1).end_lsn == 3)
        cluster.logs[1].fork(b"1" * 16, 1)
        failed = archiver.metrics.failures.labels("1")
        await eventually(lambda: failed._value.get() > 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert "continued by force behind LSN 1" in caplog.text


# --- lag ------------------------------------------------------------------------------------------


def test_lag() -> None:
    now = 0.0
    lag = Lag(lambda: now)
    assert (lag.records, lag.seconds, lag.estimated_bytes) == (0, 0.0, 0)
    lag.archived(1, 0, 0)
    lag.seen(11)
    now = 5.0
    lag.seen(21)
    now = 7.0
    assert (lag.records, lag.seconds, lag.estimated_bytes) == (20, 7.0, 0)
    lag.archived(11, 10, 1000)
    assert (lag.records, lag.seconds, lag.estimated_bytes) == (10, 2.0, 1000)
    lag.archived(21, 10, 1000)
    assert (lag.records, lag.seconds, lag.estimated_bytes) == (0, 0.0, 0)


def test_a_log_that_is_not_looked_at_says_so() -> None:
    """Its lag does not: nothing is known of what is behind."""
    now = 5.0
    lag = Lag(lambda: now)
    now = 8.0
    assert (lag.look_age_s, lag.seconds) == (3.0, 0.0)
    lag.seen(11)
    assert lag.look_age_s == 0.0
    lag.archived(11, 10, 1000)
    now = 1000.0
    lag.seen(11)
    now = 1900.0
    assert (lag.look_age_s, lag.seconds) == (900.0, 0.0)


def test_lag_remembers_a_bounded_number_of_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ARCHIVE_LAG_SAMPLES_MAX", 8)
    now = 0.0
    lag = Lag(lambda: now)
    for moment in range(1000):
        now = float(moment)
        lag.seen(moment + 2)
        assert len(lag._seen) <= 8
    assert lag.seconds == 999.0, "the oldest moment is never forgotten"
    lag.archived(1001, 1000, 0)
    assert lag.seconds == 0.0
