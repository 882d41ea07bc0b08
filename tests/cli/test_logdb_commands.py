"""`logservice logdb` on a directory that a store left behind, whole and damaged."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from logservice_wire.block import encode_block
from logservice_wire.column_block import encode_columns

from logservice.cli.main import logservice
from logservice.cli.shell import exit_codes
from logservice.entry import Entry, EntryKind
from logservice.envelope import BlockEnvelope, ProposalId, encode_blocks
from logservice.hard_state import HardState
from logservice.ids import NO_SESSION, ClusterId, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.logdb.format.update import Bootstrap, Update
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.leveldb_kv import LevelDbEngine
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.membership import Membership
from tests.owners import CLAIM

Run = Callable[..., SimpleNamespace]


def entry(index: int) -> Entry:
    envelope = BlockEnvelope(ProposalId(1, index), NO_SESSION, 0, 0, Lsn(0), 2, b"b" * 100, CLAIM)
    lsn = Lsn(2 * index - 1)
    return Entry(Term(1), Index(index), lsn, 2, EntryKind.BLOCK, encode_blocks([envelope]))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path, vfs = str(tmp_path / "data"), PosixVfs()
    directory = DataDirectory.open(path, vfs=vfs, cluster_id=ClusterId("c"), store_id=StoreId("s1"))
    options = LogDbOptions(segment_bytes=1 << 20, ballast_bytes=0)
    logdb = LogDb.open(path, identity=directory, vfs=vfs, kv=LevelDbEngine(vfs), options=options)
    state = HardState(Term(1), ReplicaId(4), Index(0))
    for index in range(1, 11):
        logdb.commit([Update(ShardId(7), ReplicaId(4), hard_state=state, entries=(entry(index),))])
    logdb.close()
    directory.close()
    return tmp_path / "data"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(*arguments: object) -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["logservice", "logdb", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            exit_codes.run(logservice, "logservice")
        shown = capsys.readouterr()
        return SimpleNamespace(code=caught.value.code, out=shown.out, err=shown.err)

    return call


def damage(data: Path) -> None:
    """Flip a bit of an entry that other groups follow."""
    segment = min((data / "segments").iterdir())
    content = bytearray(segment.read_bytes())
    content[content.index(b"b" * 100) + 50] ^= 1
    segment.write_bytes(content)


def test_check_says_ok(data: Path, run: Run) -> None:
    result = run("check", data, "-o", "json")
    assert result.code == 0
    report = json.loads(result.out)
    assert (report["ok"], report["store"], report["entries"]) == (True, "s1", 10)
    (replica,) = report["replicas"]
    assert (replica["shard"], replica["replica"]) == (7, 4)
    assert (replica["first_index"], replica["last_index"], replica["next_lsn"]) == (1, 10, 21)
    assert "ok" in run("check", data, "--headers-only").out


def test_check_finds_damage(data: Path, run: Run) -> None:
    damage(data)
    result = run("check", data, "-o", "json")
    assert result.code == exit_codes.NEGATIVE
    report = json.loads(result.out)
    assert not report["ok"]
    assert report["damages"]
    assert run("check", data).code == exit_codes.NEGATIVE


def test_dump(data: Path, run: Run) -> None:
    rows = [json.loads(line) for line in run("dump", data, "-o", "json").out.splitlines()]
    entries = [row for row in rows if row["kind"] == "entries"]
    assert [row["first_index"] for row in entries] == list(range(1, 11))
    assert [row["first_lsn"] for row in entries] == list(range(1, 20, 2))
    text = run("dump", data).out
    assert "shard 7 replica 4 10..10 LSN 19..20" in text


def test_keys_of_a_file_or_a_command(data: Path, run: Run, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    ring.write_text(f'active = "k"\n[keys]\nk = "{"A" * 43}="\n')
    assert run("check", data, "--keys-file", ring).code != exit_codes.OK, "others may read it"
    ring.chmod(0o600)
    assert run("check", data, "--keys-file", ring).code == exit_codes.OK
    assert run("check", data, "--keys-command", f"cat {ring}").code == exit_codes.OK
    both = run("check", data, "--keys-file", ring, "--keys-command", "true")
    assert "from a file or a command" in both.err
    (row,) = json.loads(run("stats", data, "-o", "json", "--keys-file", ring).out)
    assert row["key"] == "plain"


def test_stats(data: Path, run: Run) -> None:
    (row,) = json.loads(run("stats", data, "-o", "json").out)
    assert row["pinned_by"] == ["7/4"]
    assert 0 < row["live_bytes"] <= row["used_bytes"] <= row["size"]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A directory with shard 7. Entries 1 to 4 have two records each, the second block was refused,
    entry 4 is not committed, and the replica is halted for good.
    """
    path, vfs = str(tmp_path / "written"), PosixVfs()
    directory = DataDirectory.open(path, vfs=vfs, cluster_id=ClusterId("c"), store_id=StoreId("s1"))
    options = LogDbOptions(segment_bytes=1 << 20, ballast_bytes=0)
    logdb = LogDb.open(path, identity=directory, vfs=vfs, kv=LevelDbEngine(vfs), options=options)
    shard, replica, state = ShardId(7), ReplicaId(4), HardState(Term(1), ReplicaId(4), Index(0))
    for index in range(1, 5):
        block = encode_block([b"one %d" % index, b"two" + b"\xff" * (index == 4)], timestamp_us=1)
        expected = Lsn(99 if index == 2 else 0)
        envelope = BlockEnvelope(ProposalId(1, index), NO_SESSION, 0, 0, expected, 2, block, CLAIM)
        payload = encode_blocks([envelope])
        new = Entry(Term(1), Index(index), Lsn(2 * index - 1), 2, EntryKind.BLOCK, payload)
        logdb.commit([Update(shard, replica, hard_state=state, entries=(new,))])
    logdb.commit([Update(shard, replica, hard_state=HardState(Term(1), replica, Index(3)))])
    logdb.log(shard, replica).blame("no majority of replicas agrees")
    logdb.record_faults()
    logdb.close()
    directory.close()
    return tmp_path / "written"


def test_records_of_a_halted_replica_with_what_a_person_must_know(written: Path, run: Run) -> None:
    result = run("records", written, 7, "--until", 7)
    assert result.code == 0
    assert result.out.splitlines() == ["1\tone 1", "2\ttwo", "5\tone 3", "6\ttwo", "7\tone 4"]
    assert "replica 4 is halted: no majority of replicas agrees" in result.err
    assert "# 3..4: no records (wrong_expected_lsn)" in result.err
    assert "# 7..8: perhaps never committed" in result.err
    raw = run("records", written, 7, "--from", 5, "--until", 5, "--raw")
    assert raw.out == "one 3\n"
    rows = [json.loads(line) for line in run("records", written, 7, "-o", "json").out.splitlines()]
    assert rows[0] == {"lsn": 1, "record": "one 1"}
    assert rows[-1] == {"lsn": 8, "record_base64": "dHdv/w=="}
    assert run("records", written, 8).code != 0


def test_records_of_wide_blocks_and_which_package_is_missing(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, vfs = str(tmp_path / "data"), PosixVfs()
    directory = DataDirectory.open(path, vfs=vfs, cluster_id=ClusterId("c"), store_id=StoreId("s1"))
    options = LogDbOptions(segment_bytes=1 << 20, ballast_bytes=0)
    logdb = LogDb.open(path, identity=directory, vfs=vfs, kv=LevelDbEngine(vfs), options=options)
    for index, codec in ((1, None), (2, "zstd"), (3, "lz4")):
        block = encode_columns([b"one %d" % index, b"two"], 1, keys=[None, b""], codec=codec)
        envelope = BlockEnvelope(ProposalId(1, index), NO_SESSION, 0, 0, Lsn(0), 2, block, CLAIM)
        payload = encode_blocks([envelope])
        new = Entry(Term(1), Index(index), Lsn(2 * index - 1), 2, EntryKind.BLOCK, payload)
        logdb.commit([Update(ShardId(7), ReplicaId(4), entries=(new,))])
    logdb.close()
    directory.close()
    whole = run("records", tmp_path / "data", 7, "--raw")
    assert whole.out.split("\n") == ["one 1", "two", "one 2", "two", "one 3", "two", ""]
    monkeypatch.setitem(sys.modules, "zstandard", None)
    result = run("records", tmp_path / "data", 7, "--raw")
    assert result.code == exit_codes.NEGATIVE
    assert result.out.split("\n") == ["one 1", "two", "one 3", "two", ""]
    assert "# 3..4: " in result.err
    assert "pip install zstandard" in result.err


def test_a_witness_is_said_to_be_one(tmp_path: Path, run: Run) -> None:
    path, vfs = str(tmp_path / "data"), PosixVfs()
    directory = DataDirectory.open(path, vfs=vfs, cluster_id=ClusterId("c"), store_id=StoreId("s1"))
    options = LogDbOptions(segment_bytes=1 << 20, ballast_bytes=0)
    logdb = LogDb.open(path, identity=directory, vfs=vfs, kv=LevelDbEngine(vfs), options=options)
    members = Membership(voters=(ReplicaId(4),), witnesses=(ReplicaId(4),))
    bare = Entry(Term(1), Index(1), Lsn(1), 2, EntryKind.BLOCK, b"")
    logdb.commit([Update(ShardId(7), ReplicaId(4), bootstrap=Bootstrap(members, True))])
    logdb.commit([Update(ShardId(7), ReplicaId(4), entries=(bare,))])
    logdb.close()
    directory.close()
    result = run("records", tmp_path / "data", 7)
    assert (result.code, result.out) == (1, "")
    assert "a witness's log" in result.err


def test_records_of_a_damaged_replica_up_to_the_damage_and_what_is_lost(
    written: Path, run: Run
) -> None:
    segment = min((written / "segments").iterdir())
    content = bytearray(segment.read_bytes())
    content[content.index(b"one 3")] ^= 1
    segment.write_bytes(content)
    result = run("records", written, 7, "--raw")
    assert result.code == exit_codes.NEGATIVE
    assert result.out.count("one") == 1
    assert "lost entries 3 to 3" in result.err


def test_rebuild_index(data: Path, run: Run) -> None:
    shutil.rmtree(data / "index")
    assert run("rebuild-index", data).code == 0
    assert (data / "index").is_dir()
    assert run("check", data).code == 0


def test_refusals(data: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    stranger = run("check", tmp_path / "empty")
    assert stranger.code == exit_codes.REFUSED
    assert "not a data directory" in stranger.err
    assert run("check", tmp_path / "absent").code == exit_codes.USAGE
    vfs = PosixVfs()
    running = DataDirectory.open(
        str(data), vfs=vfs, cluster_id=ClusterId("c"), store_id=StoreId("s1")
    )
    try:
        for command in ("check", "dump", "stats", "rebuild-index"):
            busy = run(command, data)
            assert busy.code == exit_codes.USAGE, command
            assert "running" in busy.err
        assert run("check", data, "--live").code == 0
    finally:
        running.close()
