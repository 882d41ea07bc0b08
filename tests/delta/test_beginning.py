"""Where a job begins whose table has nothing of the log, and what a run that fails leaves."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from logservice_client import Records, SyncLogClient
from logservice_client.lineage import Lineage
from logservice_client.testing import Cluster
from logservice_delta import LogName, LogTable, TableConflict
from logservice_delta.command import parse_arguments
from logservice_delta.table import LibraryPanicked
from logservice_wire.errors import InvalidArgument

from tests.delta.rows import lsns, made_rows
from tests.delta.test_tail import client, cluster, run, said

__all__ = ["client", "cluster"]

LINEAGE = Lineage()
NAME = LogName("c", 7)


def rows(first: int, last: int) -> pa.Table:
    return made_rows(first, last, 7)


@pytest.mark.processes
def test_a_log_that_was_truncated_before(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    """The normal state of a write-ahead log."""
    log = client.shard(client.hakeeper.create_shard())
    log.append([b"a"] * 10)
    log.append([b"b"] * 10)
    (item, *_) = log.read(11).items
    assert isinstance(item, Records)
    between = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=item.append_time_us)
    log.truncate(5)

    def job(name: str, *begin: object) -> subprocess.CompletedProcess[str]:
        return run(cluster, tmp_path / name, "--log", log.shard_id, "--hold", name, *begin)

    for name, begin, first in (
        ("default", (), 6),
        ("earliest", ("--from", "earliest"), 6),
        ("lsn", ("--from", 13), 13),
        ("end", ("--from", 21), 21),
        ("time", ("--from", between.isoformat()), 11),
        ("past", ("--from", "2001-01-01"), 6),
        ("future", ("--from", (between + timedelta(days=9)).isoformat()), 21),
    ):
        (begun, *_) = said(job(name, *begin))
        assert begun["from_lsn"] == first, name
        assert begun["version"] is None
        if first <= 20:
            assert lsns(tmp_path / name, log.shard_id) == list(range(first, 21))
    (begun, *_) = said(job("lsn", "--from", 7))
    assert begun["from_lsn"] == 21, "the table says where it goes on"


@pytest.mark.processes
def test_a_run_that_fails_leaves_no_table(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    log = client.shard(client.hakeeper.create_shard())
    log.append([b"a"] * 10)
    log.truncate(5)
    for begin in (5, 12):
        done = run(cluster, tmp_path / "t", "--log", log.shard_id, "--from", begin)
        assert done.returncode == 2
        assert f"has LSNs 6 to 10, and --from says {begin}; --from earliest" in done.stderr
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("begin", ["0", "-1", "latest", "5 o'clock", "\u0663", ""])
def test_a_beginning_that_is_none(begin: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--log", "a", "--table", "t", "--from", begin])
    assert "is none of earliest, an LSN" in capsys.readouterr().err


def test_inv_table_5_a_table_is_made_by_its_first_commit(tmp_path: Path) -> None:
    """INV-TABLE-5."""
    uri = str(tmp_path / "t")
    table = LogTable.open(uri, NAME, LINEAGE)
    table.begin_at(4)
    assert (table.last_lsn, table.version) == (3, None)
    assert not (tmp_path / "t").exists()
    table.append(rows(4, 5), 5)
    assert table.version == 1
    again = LogTable.open(uri, NAME, LINEAGE)
    assert again.last_lsn == 5
    with pytest.raises(InvalidArgument, match="up to LSN 5"):
        again.begin_at(9)


def test_inv_table_5_of_two_runs_that_find_none_one_is_told(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    first, second = (LogTable.open(uri, NAME, LINEAGE) for _ in range(2))
    first.append(rows(1, 3), 3)
    with pytest.raises(TableConflict, match="up to LSN 3"):
        second.append(rows(1, 3), 3)
    assert lsns(tmp_path / "t", 7) == [1, 2, 3]


def test_a_first_commit_that_fails_is_tried_again(tmp_path: Path) -> None:
    failures = [OSError("full"), OSError("full")]

    def write(table: DeltaTable, some: pa.Table, properties: CommitProperties) -> None:
        if failures:
            raise failures.pop()
        write_deltalake(table, some, mode="append", commit_properties=properties)

    table = LogTable.open(str(tmp_path / "t"), NAME, LINEAGE, write=write)
    table.begin_at(2)
    table.append(rows(2, 3), 3, patience_s=30)
    assert lsns(tmp_path / "t", 7) == [2, 3]


def test_a_panic_of_the_library_is_an_error(tmp_path: Path) -> None:
    """It is no Exception, and passes every handler."""
    calls = 0

    def write(table: DeltaTable, some: pa.Table, properties: CommitProperties) -> None:
        nonlocal calls
        calls += 1
        raise _panic()

    table = LogTable.open(str(tmp_path / "t"), NAME, LINEAGE, write=write)
    with pytest.raises(LibraryPanicked, match="two of one name"):
        table.append(rows(1, 1), 1, patience_s=30)
    assert calls == 1


def _panic() -> BaseException:
    kind: Callable[[str], BaseException] = type("PanicException", (BaseException,), {})
    return kind("two of one name")


@pytest.mark.parametrize("name", ["a%20b", "%2F", "x%ffy"])
def test_a_path_that_the_library_does_not_find_again(tmp_path: Path, name: str) -> None:
    for uri in (str(tmp_path / name), (tmp_path / name).as_uri()):
        with pytest.raises(InvalidArgument, match="percent sign"):
            LogTable.open(uri, NAME, LINEAGE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a b", "100%", "%zz", "ü#?"])
def test_a_path_with_other_signs(tmp_path: Path, name: str) -> None:
    for number, uri in enumerate((str(tmp_path / name), (tmp_path / f"u{name}").as_uri())):
        LogTable.open(uri, NAME, LINEAGE).append(rows(1, 2), 2)
        assert LogTable.open(uri, NAME, LINEAGE).last_lsn == 2, number
