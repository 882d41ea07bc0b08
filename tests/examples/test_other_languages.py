"""The clients of examples/go and examples/java, which were written from docs/protocol.md alone.

Both are one program in two languages, and say the same lines. They write to a cluster of three
stores. Record n of a log is "n HOLDER", whoever wrote it: so whatever is lost, doubled, out of
order or of a fenced writer shows.

Building them needs their tools and packages, and takes minutes the first time: `make test-go`,
`make test-java`. Their own tests (blocks, errors, the leader, sessions) run then, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from logservice_client import SyncLogClient, SyncShard
from logservice_wire.errors import error_table

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import started_cluster
from tests.waiting import wait_until
from tools.own_environment import ROOT, own_environment

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.5, "store_timeout_s": 300},
}
RECORDS = 20_000
FENCED = 3
"""The program's exit code when another writer has the log."""
GO_PLUGINS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
)
TABLE = re.compile(
    r"// table: (retryable|final), (not applied|unknown)\n(.*?)(?=// table)", re.DOTALL
)


def run(folder: Path, *words: str, **environment: str) -> None:
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def build_go(folder: Path) -> list[str]:
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(go).exists():
        pytest.skip("no Go here")
    plugins = folder.parent / "bin"
    for plugin in GO_PLUGINS:
        run(folder, go, "build", "-o", f"{plugins}/", plugin)
    run(
        folder,
        str(own_environment("proto") / "python"),
        "-W",
        "ignore",
        "-m",
        "grpc_tools.protoc",
        f"-I{ROOT / 'proto'}",
        "--go_out=.",
        "--go_opt=module=logservice.internal",
        "--go-grpc_out=.",
        "--go-grpc_opt=module=logservice.internal",
        *sorted(map(str, (ROOT / "proto" / "logservice_wire" / "v1").glob("*.proto"))),
        PATH=f"{plugins}{os.pathsep}{os.environ['PATH']}",
    )
    run(folder, go, "vet", ".")
    run(folder, go, "test", ".")
    run(folder, go, "build", "-o", "example", ".")
    return [str(folder / "example")]


def build_java(folder: Path) -> list[str]:
    for tool in ("javac", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} here")
    run(folder, "mvn", "-B", "-ntp", f"-Dproto={ROOT / 'proto'}", "package")
    return ["java", "-jar", str(folder / "target" / "wal-1.jar")]


BUILDERS: dict[str, Callable[[Path], list[str]]] = {"go": build_go, "java": build_java}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(tmp_path_factory.mktemp("cluster") / "c", settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module", params=list(BUILDERS))
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that start the program. Nothing is written into the tree."""
    language = request.param
    if not os.environ.get(f"LOGSERVICE_REQUIRE_{language.upper()}"):
        pytest.skip(f"building it takes minutes: `make test-{language}`")
    folder = tmp_path_factory.mktemp(language) / "example"
    shutil.copytree(
        ROOT / "examples" / language, folder, ignore=shutil.ignore_patterns("target", "wire")
    )
    return BUILDERS[language](folder)


@dataclass
class Writer:
    """One run of the program."""

    process: subprocess.Popen[bytes]
    output: Path

    def lines(self) -> list[str]:
        """What it said, without a line that it is about to say."""
        return self.output.read_text().rpartition("\n")[0].splitlines()

    def ended(self, code: int) -> list[str]:
        assert self.process.wait(600) == code, self.output.read_text()
        return self.lines()

    def durable(self) -> dict[int, int]:
        """Numbers by LSN, as it said that they are durable."""
        said = (re.fullmatch(r"durable: (\d+) at LSN (\d+)", line) for line in self.lines())
        return {int(one[2]): int(one[1]) for one in said if one}


def test_a_log_that_is_not_there_is_said_at_once(built: list[str], cluster: LocalCluster) -> None:
    """Long before the time of the call is over."""
    words = [*built, "-endpoints", ",".join(cluster.endpoints()), "-shard", "987654321"]
    done = subprocess.run(
        [*words, "-timeout", "1000"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("SHARD_NOT_FOUND") == 1
    assert done.stderr.endswith("(not applied)\n")


class Place:
    """A new log on the cluster, and those who write to it."""

    def __init__(
        self, built: list[str], cluster: LocalCluster, log: SyncShard, folder: Path
    ) -> None:
        self.log = log
        self._words = [*built, "-endpoints", ",".join(cluster.endpoints())]
        self._folder = folder
        self.writers: list[Writer] = []

    def start(self, holder: str, records: int, **options: int) -> Writer:
        words = [*self._words, "-shard", str(self.log.shard_id), "-holder", holder]
        for name, value in {"records": records, **options}.items():
            words += [f"-{name.replace('_', '-')}", str(value)]
        output = self._folder / f"writer-{len(self.writers)}"
        with output.open("wb") as file:
            process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
        self.writers.append(Writer(process, output))
        return self.writers[-1]

    def wait_for(self, writer: Writer, records: int) -> None:
        """Until the writer said that so many are durable."""

        def enough() -> bool:
            assert writer.process.poll() is None, writer.output.read_text()
            return max(writer.durable().values(), default=0) >= records

        wait_until(enough, timeout_s=300)

    def records(self, from_lsn: int = 1) -> dict[int, str]:
        found = self.log.records(from_lsn, until_tail=True)
        return {lsn: record.decode() for lsn, record in found}


@pytest.fixture
def place(built: list[str], cluster: LocalCluster, tmp_path: Path) -> Iterator[Place]:
    with SyncLogClient(cluster.endpoints()) as client:
        log = client.shard(client.hakeeper.create_shard())
        made = Place(built, cluster, log, tmp_path)
        try:
            yield made
        finally:
            for writer in made.writers:
                with contextlib.suppress(ProcessLookupError):
                    writer.process.kill()
                writer.process.wait()


def test_every_record_once_although_answers_are_lost_and_the_leader_is_killed(
    place: Place, cluster: LocalCluster
) -> None:
    writer = place.start("db-1", RECORDS, lose_every=10)
    place.wait_for(writer, RECORDS // 10)
    leader = place.log.status().position.leader_store
    cluster.kill(leader)
    said = writer.ended(0)
    cluster.start(leader)
    assert re.fullmatch(r"epoch \d+: db-1 writes", said[0])
    assert said[1] == "recovered 0 records up to LSN 0, the last is 0"
    repeated = re.fullmatch(
        rf"appended {RECORDS} records, (\d+) blocks acknowledged by a repetition", said[-1]
    )
    assert repeated, said[-1]
    assert int(repeated[1]) > 0  # what was lost had been applied
    found = place.records()
    assert list(found.values()) == [f"{number} db-1" for number in range(1, RECORDS + 1)]
    durable = writer.durable()
    assert len(durable) == RECORDS // 10
    assert all(found[lsn] == f"{number} db-1" for lsn, number in durable.items())


def test_a_takeover_fences_whoever_writes_and_the_checkpoint_truncates(place: Place) -> None:
    old = place.start("db-1", -1)
    place.wait_for(old, 1000)
    checkpoint = 500
    new = place.start("db-2", 100, checkpoint=checkpoint)
    said = new.ended(0)
    epoch = re.fullmatch(r"epoch (\d+): db-2 writes", said[0])
    assert epoch
    assert old.ended(FENCED)[-1] == f"fenced: epoch {epoch[1]} was granted to db-2"
    recovered = re.fullmatch(r"recovered (\d+) records up to LSN (\d+), the last is (\d+)", said[1])
    assert recovered, said[1]
    last = int(recovered[3])
    assert said[-3:] == [
        "appended 100 records, 0 blocks acknowledged by a repetition",
        f"truncated up to LSN {checkpoint}",
        f"LSN 1 is gone: the log begins at LSN {checkpoint + 1}",
    ]
    found = place.records(checkpoint + 1)
    assert list(found.values()) == [
        *(f"{number} db-1" for number in range(checkpoint + 1, last + 1)),
        *(f"{number} db-2" for number in range(last + 1, last + 101)),
    ]
    # All that the old one was told is durable is there, and was recovered.
    assert max(old.durable().values()) <= last
    assert all(
        found[lsn] == f"{number} db-1" for lsn, number in old.durable().items() if lsn > checkpoint
    )


def test_a_killed_writer_is_recovered_and_goes_on(place: Place) -> None:
    killed = place.start("db-1", -1)
    place.wait_for(killed, 1000)
    killed.process.kill()
    killed.process.wait()
    said = place.start("db-1", 100).ended(0)
    recovered = re.fullmatch(r"recovered (\d+) records up to LSN (\d+), the last is (\d+)", said[1])
    assert recovered, said[1]
    last = int(recovered[3])
    assert max(killed.durable().values()) <= last
    assert int(recovered[1]) == last
    assert list(place.records().values()) == [f"{number} db-1" for number in range(1, last + 101)]


@pytest.mark.parametrize("source", ["go/failure.go", "java/src/main/java/example/Failure.java"])
def test_its_table_of_reasons_is_that_of_the_page(source: str) -> None:
    table = TABLE.findall((ROOT / "examples" / source).read_text())
    said = {
        reason: (retryable == "retryable", outcome.replace(" ", "_"))
        for retryable, outcome, reasons in table
        for reason in re.findall(r'"([A-Z_]+)"', reasons)
    }
    assert said == {
        reason.value: (error.retryable, error.outcome.value)
        for reason, error in error_table().items()
    }
