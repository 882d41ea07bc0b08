"""The command line against real store processes: one cluster for all tests of this file."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from logservice.cli.logctl import logctl
from logservice.cli.main import logservice
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 300},
    "truncation": {"interval_s": 1.0},
}


class Program:
    """Runs `logctl` or `logservice` in this process, as the entry points do."""

    def __init__(
        self, command: click.Command, cluster: LocalCluster, capture: pytest.CaptureFixture[str]
    ) -> None:
        self._command = command
        self._cluster = cluster
        self._capture = capture

    def __call__(self, *arguments: object, stdin: bytes = b"") -> SimpleNamespace:
        text = [str(argument) for argument in arguments]
        if self._command is logctl:
            text = ["--endpoints", ",".join(self._cluster.endpoints()), *text]
        self._capture.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
            patch.setattr(sys, "argv", ["program", *text])
            patch.setenv("LOGSERVICE_TIMEOUT", "60")  # the machine may be busy
            with pytest.raises(SystemExit) as caught:
                exit_codes.run(self._command, "program")
        shown = self._capture.readouterr()
        assert "Traceback" not in shown.err
        return SimpleNamespace(code=caught.value.code, out=shown.out, err=shown.err)

    def json(self, *arguments: object) -> object:
        """The one JSON document that ``-o json`` prints."""
        result = self(*arguments, "-o", "json")
        assert result.code == 0, result.err
        return json.loads(result.out)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    running = LocalCluster.create(tmp_path_factory.mktemp("cluster") / "c", settings=SETTINGS)
    try:
        running.up(60)
        yield running
    finally:
        running.down()
        assert set(running.pids().values()) == {None}


@pytest.fixture
def ctl(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(logctl, cluster, capfd)


@pytest.fixture
def service(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(logservice, cluster, capfd)


@pytest.fixture
def shard(ctl: Program) -> int:
    created = ctl.json("shard", "create")
    assert isinstance(created, dict)
    return int(created["shard"])


# --- logctl: records -----------------------------------------------------------------------------


def test_append_and_read(ctl: Program, shard: int) -> None:
    assert ctl.json("append", shard, "one", "zwö") == {"first_lsn": 1, "records": 2}
    lines = "".join(f"line {number}\n" for number in range(250)).encode()
    piped = ctl("append", shard, "--batch", 100, "-o", "json", stdin=lines)
    assert json.loads(piped.out) == {"first_lsn": 3, "records": 250}
    assert ctl("read", shard, "--count", 3).out == "1\tone\n2\tzwö\n3\tline 0\n"
    assert ctl("read", shard, "--from", 252, "--raw").out == "line 249\n"
    assert ctl("read", shard, "--from", 2, "--until", 3, "--stale").out == "2\tzwö\n3\tline 0\n"
    assert ctl("read", shard, "--from", 253).out == ""
    found = [json.loads(line) for line in ctl("read", shard, "-o", "json").out.splitlines()]
    assert [row["lsn"] for row in found] == list(range(1, 253))
    assert found[1]["record"] == "zwö"


def test_bytes_that_are_no_text(ctl: Program, shard: int) -> None:
    assert ctl("append", shard, stdin=b"\xff\xfe\n").code == 0
    assert json.loads(ctl("read", shard, "-o", "json").out)["record_base64"] == "//4="


def test_a_line_of_stdin_loses_its_end_and_nothing_else(ctl: Program, shard: int) -> None:
    r"""One end: `\r\r` is a record, and so is nothing between two ends."""
    assert ctl("append", shard, stdin=b"\r\r\n\x00\xc3(\r\n\n a \t\n\r\r").code == 0
    rows = [json.loads(line) for line in ctl("read", shard, "-o", "json").out.splitlines()]
    records = [
        base64.b64decode(row["record_base64"]) if "record_base64" in row else row["record"].encode()
        for row in rows
    ]
    assert records == [b"\r", b"\x00\xc3(", b"", b" a \t", b"\r\r"]


def test_follow_to_a_limit(ctl: Program, shard: int) -> None:
    ctl("append", shard, "a", "b", "c")
    assert ctl("follow", shard, "--count", 2, "--raw").out == "a\nb\n"
    assert ctl("follow", shard, "--from", 2, "--until", 3).out == "2\tb\n3\tc\n"


def test_reading_what_is_gone_or_not_there_yet(ctl: Program, shard: int) -> None:
    ctl("append", shard, "a", "b", "c")
    assert ctl.json("truncate", shard, 2) == {"truncated_lsn": 2}
    gone = ctl("read", shard, "--from", 1)
    assert (gone.code, gone.out) == (exit_codes.REFUSED, "")
    assert "TRUNCATED" in gone.err
    assert "first_lsn=3" in gone.err
    assert "BEYOND_TAIL" in ctl("read", shard, "--from", 9).err
    assert ctl.json("truncate", shard, 2) == {"truncated_lsn": 2}
    lower = ctl("truncate", shard, 1)
    assert lower.code == exit_codes.REFUSED
    assert "current=2" in lower.err


# --- logctl: the state of a shard ----------------------------------------------------------------


def test_writer(ctl: Program, shard: int) -> None:
    assert ctl.json("writer", "acquire", shard, "me") == {"epoch": 1, "holder": "me"}
    fenced = ctl("append", shard, "x")
    assert fenced.code == exit_codes.REFUSED
    assert "FENCED" in fenced.err
    assert ctl("append", shard, "--epoch", 1, "x").code == 0
    assert ctl("writer", "acquire", shard, "you").code == exit_codes.REFUSED
    assert ctl.json("writer", "acquire", shard, "you", "--takeover") == {
        "epoch": 2,
        "holder": "you",
    }
    assert ctl("writer", "release", shard, 2).code == 0
    status = ctl.json("shard", "show", shard)
    assert isinstance(status, dict)
    assert (status["writer_epoch"], status["writer_holder"]) == (2, "")


def test_holds(ctl: Program, shard: int) -> None:
    ctl("append", shard, *"abcdef")
    assert ctl("hold", "set", shard, "backup", 3).code == 0
    assert ctl.json("truncate", shard, 5) == {"truncated_lsn": 2}
    status = ctl.json("shard", "show", shard)
    assert isinstance(status, dict)
    assert status["holds"] == {"backup": 3}
    assert ctl("hold", "set", shard, "late", 1).code == exit_codes.REFUSED
    assert ctl("hold", "release", shard, "backup").code == 0
    status = ctl.json("shard", "show", shard)
    assert isinstance(status, dict)
    assert status["truncated_lsn"] == 5
    stale = ctl.json("shard", "show", shard, "--stale")
    assert isinstance(stale, dict)
    assert stale["truncated_lsn"] in (2, 5), "one replica may be behind"


def test_a_hold_with_a_time_to_live_goes_by_itself(ctl: Program, shard: int) -> None:
    ctl("append", shard, *"abcdef")
    set_now = ctl.json("hold", "set", shard, "job", 3, "--ttl", 5)
    assert set_now == {"name": "job", "lsn": 3, "ttl_s": 5}
    assert ctl("hold", "set", shard, "backup", 5).code == 0
    assert ctl.json("truncate", shard, 5) == {"truncated_lsn": 2}
    assert ctl.json("hold", "renew", shard, "job") == {"renewed": "job", "lsn": 3}
    rows = ctl.json("hold", "list", shard)
    assert isinstance(rows, list)
    backup, job = rows
    assert (backup["name"], backup["ttl_s"], backup["expires_in_s"]) == ("backup", None, None)
    assert (job["name"], job["lsn"], job["owner"], job["keeps"]) == ("job", 3, "anonymous", 3)
    assert 0 <= job["age_s"] <= job["ttl_s"] == 5
    wait_until(lambda: "job" not in (shown := ctl("hold", "list", shard).out) and "backup" in shown)
    status = ctl.json("shard", "show", shard)
    assert isinstance(status, dict)
    assert status["truncated_lsn"] == 4
    lost = ctl("hold", "renew", shard, "job")
    assert lost.code == exit_codes.REFUSED
    assert "HOLD_LOST" in lost.err
    for wrong in (1, 4, 604_801):
        assert ctl("hold", "set", shard, "job", 5, "--ttl", wrong).code != 0


def test_timestamps_and_ids(ctl: Program, shard: int) -> None:
    first, second = ctl.json("timestamps", shard, 10), ctl.json("timestamps", shard)
    assert first == {"first": 1, "next": 11}
    assert second == {"first": 11, "next": 12}
    ids = ctl.json("ids", 5, "--key", f"test-{shard}")
    assert ids == {"first": 1, "next": 6}


# --- logctl: the cluster -------------------------------------------------------------------------


def test_shards_and_stores(ctl: Program, cluster: LocalCluster, shard: int) -> None:
    rows = ctl.json("stores")
    assert isinstance(rows, list)
    assert [row["store"] for row in rows] == list(cluster.stores)
    assert [row["client"] for row in rows] == cluster.endpoints()
    assert all(row["alive"] for row in rows)
    rows = ctl.json("shards")
    assert isinstance(rows, list)
    mine = next(row for row in rows if row["shard"] == shard)
    assert sorted(mine["replicas"]) == list(cluster.stores)
    assert rows[0]["name"] == "hakeeper"
    table = ctl("shards").out
    assert "hakeeper" in table
    assert "leader" in table
    # A shard that was just created is flagged until its leader has been reported, and to start a
    # replica is a repair until it has been reported, too.
    wait_until(lambda: ctl("repairs").code == 0 and ctl.json("repairs") == [])
    address = cluster.endpoints()[0]
    said = ctl.json("store", address)
    assert isinstance(said, dict)
    assert said["store_id"] == "store-1"
    parts = {one["part"]: one for one in said["memory"]}
    assert int(parts["caches"]["used_bytes"]) > 0
    assert parts["proposals"]["key"] == "proposal_bytes_max"
    table = ctl("store", address).out
    assert "segment files" in table
    assert "limits.proposal_bytes_max" in table
    by_name = ctl.json("store", str(said["store_id"]))
    assert isinstance(by_name, dict)
    assert by_name["store_id"] == said["store_id"]
    nowhere = ctl("store", "store-9")
    assert nowhere.code == exit_codes.USAGE
    assert "no store is called store-9; there are store-1, store-2, store-3" in nowhere.err


def test_creating_a_shard_twice(ctl: Program) -> None:
    assert ctl.json("shard", "create", "--id", 77, "named") == {"shard": 77}
    again = ctl("shard", "create", "--id", 77)
    assert again.code == exit_codes.REFUSED
    assert "SHARD_EXISTS" in again.err
    many = ctl("shard", "create", "--replicas", 9)
    assert "NOT_ENOUGH_STORES" in many.err


def test_transfer(ctl: Program, shard: int) -> None:
    def leader() -> str:
        status = ctl.json("shard", "show", shard)
        assert isinstance(status, dict)
        return str(status["leader_store"])

    def transferred() -> bool:
        """Whether one try worked. On a busy machine leadership may move by itself before one of the
        three calls has answered.
        """
        before = leader()
        moved = ctl.json("transfer", shard)
        assert isinstance(moved, dict)
        return before != moved["leader"] == leader()

    wait_until(transferred)
    nowhere = ctl("transfer", shard, "store-9")
    assert nowhere.code == exit_codes.USAGE
    assert "they are on store-1, store-2, store-3" in nowhere.err


def test_wrong_command_lines(ctl: Program, service: Program) -> None:
    for arguments in (
        ["read"],
        ["read", "0"],
        ["read", "-1"],
        ["append", "1", "--batch", "0"],
        ["append", "1", "--expected-lsn", "1"],
        ["nothing"],
        ["shard", "show", "1", "-o", "xml"],
    ):
        assert ctl(*arguments).code == exit_codes.USAGE, arguments
    assert service("cluster", "status", "--dir", "/nowhere/at/all").code == exit_codes.USAGE


def test_unknown_shard_and_unreachable_cluster(ctl: Program) -> None:
    unnamed = ctl("read", "one")
    assert unnamed.code == exit_codes.REFUSED
    assert "SHARD_NOT_FOUND: no log is called 'one'" in unnamed.err
    missing = ctl("--timeout", 2, "shard", "show", 999)
    assert missing.code == exit_codes.REFUSED
    assert "SHARD_NOT_FOUND" in missing.err
    nobody = ctl("--endpoints", "127.0.0.1:1", "--timeout", 1, "shard", "show", 1)
    assert nobody.code == exit_codes.UNAVAILABLE
    nobody = ctl("--endpoints", "", "shard", "show", 1)
    assert nobody.code == exit_codes.USAGE


# --- logservice ----------------------------------------------------------------------------------


def test_cluster_status(service: Program, cluster: LocalCluster) -> None:
    rows = service.json("cluster", "status", "--dir", cluster.directory)
    assert isinstance(rows, list)
    assert [row["pid"] for row in rows] == list(cluster.pids().values())
    assert all(row["running"] for row in rows)


def behind(ctl: Program) -> dict[str, int]:
    """By how many entries which store is behind in shard 1, as its leader's store says."""
    shown = ctl.json("shard", "show", 1)
    assert isinstance(shown, dict)
    return shown["behind_entries"] or {}


def test_kill_start_stop(service: Program, ctl: Program, cluster: LocalCluster) -> None:
    where = ["--dir", cluster.directory]
    ctl("append", 1, "before")
    assert service("cluster", "kill", *where, "store-2").code == 0
    assert service("cluster", "kill", *where, "store-2").code == exit_codes.USAGE
    assert service("cluster", "status", *where).code == exit_codes.NEGATIVE
    assert ctl("append", 1, "during").code == 0
    wait_until(lambda: "store-2" in behind(ctl))
    shown = ctl.json("shard", "show", 1)
    assert isinstance(shown, dict)
    assert list(shown["behind_entries"]) == list(shown["behind_bytes"]) == ["store-2"]
    assert shown["behind_bytes"]["store-2"] >= len("during")
    assert shown["behind_to_go_s"] == {"store-2": None}, "it does not come nearer"
    assert service("cluster", "start", *where, "store-2").code == 0
    wait_until(lambda: ctl("store", cluster.stores["store-2"].client).code == 0)
    wait_until(lambda: behind(ctl) == {})
    assert service("cluster", "stop", *where, "store-3").code == 0
    assert "stopped" in cluster.process("store-3").last_lines(3)
    assert ctl("append", 1, "after").code == 0
    cluster.start("store-3")
    wait_until(lambda: ctl("store", cluster.stores["store-3"].client).code == 0)
    assert service("cluster", "up", *where).code == 0


def run_store(directory: Path, config: str) -> subprocess.CompletedProcess[str]:
    path = directory / "store.toml"
    path.write_text(config)
    return subprocess.run(
        [sys.executable, "-m", "logservice", "store", "run", "-c", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_store_that_cannot_start(cluster: LocalCluster, tmp_path: Path) -> None:
    """A mistake in the configuration, a port in use and a directory in use each give one line and
    no traceback.
    """
    running = cluster.process("store-1").config_path.read_text()
    port, admin = cluster.stores["store-1"].client, cluster.stores["store-1"].admin
    good = running.replace(admin, "127.0.0.1:0")
    cases = {
        running: (6, f"cannot listen for operators on {admin}"),
        good.replace("tick_ms = 20", "tick_ms = 0"): (2, "raft.tick_ms: expected int >= 1, got 0"),
        good: (6, f"cannot listen for clients on {port}"),
        good.replace('["data"]', f'["{cluster.directory}/store-1/data"]'): (
            6,
            "another process uses the data directory",
        ),
    }
    for config, (code, words) in cases.items():
        ended = run_store(tmp_path, config)
        assert (ended.returncode, ended.stdout) == (code, "")
        assert words in ended.stderr
        assert "Traceback" not in ended.stderr


def test_sigterm_ends_a_store_with_code_0(tmp_path: Path) -> None:
    single = LocalCluster.create(tmp_path / "c", stores=1, settings=SETTINGS)
    try:
        single.up(60)
        pid = single.pids()["store-1"]
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert "stopped" in single.process("store-1").last_lines(2)
    finally:
        single.down()
