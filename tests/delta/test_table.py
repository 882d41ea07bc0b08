"""LogTable, beside a real Delta table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from logservice_client.lineage import Lineage
from logservice_client.table_position import JOB_CHARS_MAX
from logservice_delta.table import LogName, LogTable, TableConflict, append_rows
from logservice_wire.errors import InvalidArgument, LineageChanged

from tests.delta.rows import lsns, made_rows

NAME = LogName("c", 1)
FIRST = Lineage()
LINES = {letter: letter * 16 for letter in (b"a", b"b", b"z")}


def opened(uri: Path, lineage: Lineage = FIRST, **more: Any) -> LogTable:
    name = more.pop("name", NAME)
    return LogTable.open(str(uri), name, lineage, **more)


def test_inv_table_1_it_goes_on_behind_what_it_has(tmp_path: Path) -> None:
    """INV-TABLE-1."""
    table = opened(tmp_path / "t")
    assert table.last_lsn == 0
    table.append(made_rows(1, 10), 10)
    table.append(made_rows(11, 12), 15)  # 13 to 15 are gaps
    assert (table.last_lsn, lsns(tmp_path / "t")) == (15, list(range(1, 13)))
    again = opened(tmp_path / "t")
    assert again.last_lsn == 15
    for last in (15, 14, 0):
        with pytest.raises(InvalidArgument):
            again.append(made_rows(16, 16), last)
    assert lsns(tmp_path / "t") == list(range(1, 13))


def test_inv_table_1_of_two_runs_one_is_told(tmp_path: Path) -> None:
    one = opened(tmp_path / "t")
    one.append(made_rows(1, 10), 10)
    two = opened(tmp_path / "t")
    two.append(made_rows(11, 15), 15)
    with pytest.raises(TableConflict, match="up to LSN 15"):
        one.append(made_rows(11, 20), 20)
    assert lsns(tmp_path / "t") == list(range(1, 16))
    assert opened(tmp_path / "t").last_lsn == 15


def test_both_runs_may_make_the_table(tmp_path: Path) -> None:
    one, two = opened(tmp_path / "t"), opened(tmp_path / "t")
    one.append(made_rows(1, 2), 2)
    with pytest.raises(TableConflict):
        two.append(made_rows(1, 3), 3)
    assert lsns(tmp_path / "t") == [1, 2]


def test_other_logs_and_other_jobs_are_in_nobodys_way(tmp_path: Path) -> None:
    one, two = opened(tmp_path / "t"), opened(tmp_path / "t", name=LogName("c", 2))
    one.append(made_rows(1, 10), 10)
    two.append(made_rows(1, 5, shard=2), 5)
    one.append(made_rows(11, 12), 12)
    assert lsns(tmp_path / "t") == list(range(1, 13))
    assert lsns(tmp_path / "t", 2) == list(range(1, 6))
    # What has no column for the log may be of many jobs.
    kept: list[int] = []

    def count(table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
        counted = pa.table({"rows": [len(rows)]})
        write_deltalake(table, counted, mode="append", commit_properties=properties)
        kept.append(len(rows))

    DeltaTable.create(str(tmp_path / "u"), pa.schema([("rows", pa.int64())]))
    for job in ("one", "two"):
        opened(tmp_path / "u", name=LogName("c", 1, job), write=count).append(made_rows(1, 4), 4)
    assert kept == [4, 4]


def test_inv_table_3_rows_of_somebody_else_are_not_added_to(tmp_path: Path) -> None:
    """INV-TABLE-3."""
    opened(tmp_path / "t").append(made_rows(1, 10), 10)
    for name in (LogName("c", 1, "other"), LogName("d", 1)):
        with pytest.raises(TableConflict, match="does not say how far"):
            opened(tmp_path / "t", name=name)
    assert opened(tmp_path / "t", name=LogName("d", 2)).last_lsn == 0


def test_inv_table_2_a_history_goes_on_from_where_both_are_the_same(tmp_path: Path) -> None:
    """INV-TABLE-2."""
    a, b, z = (LINES[one] for one in (b"a", b"b", b"z"))
    opened(tmp_path / "t", Lineage(1, a, 5)).append(made_rows(1, 10), 10)
    # The table has LSNs 1 to 10 of `a`, so `b` goes on only if it forked from `a` at 10 or later.
    for lineage, parent in (
        (Lineage(2, b, 9), a),
        (Lineage(2, b, 10), z),
        (Lineage(2, b, 10), b""),
        (FIRST, b""),
    ):
        with pytest.raises(LineageChanged) as changed:
            opened(tmp_path / "t", lineage, parent=parent)
        assert changed.value.metadata["actual"] == lineage.id.hex()
    table = opened(tmp_path / "t", Lineage(2, b, 10), parent=a)
    table.append(made_rows(11, 12), 12)
    assert opened(tmp_path / "t", Lineage(2, b, 10), parent=a).last_lsn == 12
    assert lsns(tmp_path / "t") == list(range(1, 13))


def test_an_older_history_is_refused_after_the_table_went_on(tmp_path: Path) -> None:
    """A store of the history before may still answer, and the table has more than it."""
    a, b = LINES[b"a"], LINES[b"b"]
    opened(tmp_path / "t", Lineage(1, a, 0)).append(made_rows(1, 10), 10)
    opened(tmp_path / "t", Lineage(2, b, 10), parent=a).append(made_rows(11, 20), 20)
    with pytest.raises(LineageChanged):
        opened(tmp_path / "t", Lineage(1, a, 0))


def test_the_position_survives_what_people_do_to_tables(tmp_path: Path) -> None:
    """Checkpoints, compaction, vacuum and clean-up of Delta's log, and deletion of rows."""
    uri = str(tmp_path / "t")
    table = opened(tmp_path / "t")
    for last in range(1, 6):
        table.append(made_rows(last, last), last)
    theirs = DeltaTable(uri)
    theirs.optimize.compact()
    theirs.vacuum(0, dry_run=False, enforce_retention_duration=False)
    theirs.create_checkpoint()
    theirs.cleanup_metadata()
    theirs.delete("lsn <= 2")
    assert lsns(uri) == [3, 4, 5]
    table.append(made_rows(6, 6), 6)  # its handle is of a version before all that
    again = opened(tmp_path / "t")
    assert again.last_lsn == 6
    again.append(made_rows(7, 7), 7)
    assert lsns(uri) == [3, 4, 5, 6, 7]


def test_a_commit_whose_outcome_is_unknown_is_looked_up(tmp_path: Path) -> None:
    outcomes: list[str] = ["in", "out", "out"]

    def unreliable(table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
        outcome = outcomes.pop(0) if outcomes else ""
        if outcome != "out":
            append_rows(DeltaTable(table.table_uri), rows, properties)
        if outcome:
            raise OSError("the connection is gone")

    table = opened(tmp_path / "t", write=unreliable)
    table.append(made_rows(1, 3), 3)
    with pytest.raises(OSError, match="gone"):
        table.append(made_rows(4, 5), 5)
    assert table.last_lsn == 3
    table.append(made_rows(4, 5), 5, patience_s=30)
    assert lsns(tmp_path / "t") == [1, 2, 3, 4, 5]


def test_what_a_commit_is_refused_for_is_told(tmp_path: Path) -> None:
    table = opened(tmp_path / "t")
    with pytest.raises(Exception, match=r"(?i)schema|column|field"):
        table.append(pa.table({"other": [1]}), 1)
    assert (table.last_lsn, opened(tmp_path / "t").last_lsn) == (0, 0)


@pytest.mark.parametrize("job", ["", "a/b", "x" * (JOB_CHARS_MAX + 1)])
def test_a_job_has_a_name_of_its_own(job: str) -> None:
    with pytest.raises(InvalidArgument):
        LogName("c", 1, job)
    assert LogName("c", 1, "x" * JOB_CHARS_MAX).job


def test_delta_itself_refuses_two_transactions_of_one_id(tmp_path: Path) -> None:
    """What all this stands on, without our code."""
    write_deltalake(tmp_path, made_rows(1, 1), mode="append")
    one, two = DeltaTable(tmp_path), DeltaTable(tmp_path)
    for table, fails in ((one, False), (two, True)):
        properties = CommitProperties(app_transactions=[Transaction("a", 1)])
        try:
            write_deltalake(table, made_rows(2, 2), mode="append", commit_properties=properties)
        except CommitFailedError:
            assert fails
        else:
            assert not fails
    assert lsns(tmp_path) == [1, 2]


WRITER = """
import sys
from logservice_client.lineage import Lineage
from logservice_delta.table import LogName, LogTable
from tests.delta.rows import made_rows
table = LogTable.open(sys.argv[1], LogName("c", 1), Lineage())
print(table.last_lsn, flush=True)
while True:
    last = table.last_lsn + 7
    table.append(made_rows(table.last_lsn + 1, last), last)
    print(last, flush=True)
"""


@pytest.mark.long
def test_a_writer_that_is_killed_at_any_moment(tmp_path: Path) -> None:
    """By SIGKILL, after a number of bytes of its output: in the middle of some commit."""
    told = 0
    paths = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "client")]
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(paths)}
    for kill in range(8):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "t")]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            found = [int(process.stdout.readline()) for _ in range(2 + 3 * kill)]
            process.send_signal(signal.SIGKILL)
        assert found[0] >= told
        told = found[-1]
    last = opened(tmp_path / "t").last_lsn
    assert last >= told
    assert lsns(tmp_path / "t") == list(range(1, last + 1))
