"""The client of examples/go, which was written from docs/protocol.md alone, and a cluster whose
leader dies.

Building it needs Go's tools and modules, and takes minutes the first time: `make test-go`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from logservice_client import SyncLogClient

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores
from tools.own_environment import ROOT, own_environment

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.5, "store_timeout_s": 300},
}
RECORDS = 1500
PLUGINS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate and build the client; nothing is written into the tree."""
    if not os.environ.get("LOGSERVICE_REQUIRE_GO"):
        pytest.skip("building it takes minutes: `make test-go`")
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(go).exists():
        pytest.skip("no Go here")
    folder = tmp_path_factory.mktemp("go") / "example"
    shutil.copytree(ROOT / "examples" / "go", folder)

    def run(*words: str, **environment: str) -> None:
        done = subprocess.run(
            words,
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    plugins = folder.parent / "bin"
    for plugin in PLUGINS:
        run(go, "build", "-o", f"{plugins}/", plugin)
    run(
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
    run(go, "vet", ".")
    run(go, "test", ".")
    run(go, "build", "-o", "example", ".")
    return folder / "example"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    running = LocalCluster.create(tmp_path_factory.mktemp("cluster") / "c", settings=SETTINGS)
    try:
        running.up(60)
        yield running
    finally:
        kill_stores(running)


def test_every_record_once_although_the_leader_is_killed(
    program: Path, cluster: LocalCluster
) -> None:
    started = subprocess.Popen(
        [
            str(program),
            "-endpoints",
            ",".join(cluster.endpoints()),
            "-records",
            str(RECORDS),
            "-timeout",
            "5m",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with SyncLogClient(cluster.endpoints()) as client:
        log = client.shard(1)
        while log.status().position.applied_lsn < RECORDS // 10:
            assert started.poll() is None, started.communicate()
        cluster.kill(log.status().position.leader_store)
        told, errors = started.communicate(timeout=600)
        assert started.returncode == 0, errors
        assert re.match(rf"appended {RECORDS}, read {RECORDS} of them", told), told
        records = list(log.read(1, max_bytes=16 << 20).records())
    assert len(records) == len(set(records)) == RECORDS
