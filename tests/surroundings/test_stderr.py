"""A process whose log goes into a pipe that is full, or has no reader, goes on with its work.

What reads the log (a collector, a terminal, the other end of a pipe) may stop, or go away. No store
and no program that runs beside one may depend on it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from logservice_client import ShardNotFound, SyncLogClient

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import started_cluster
from tests.programs import Mirror
from tests.waiting import wait_until

END_S = 60.0
DEBUG = {"logging": {"level": "debug"}}


class Output:
    """Where a process writes its log to, and what is read of it."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer

    def fill(self) -> None:
        """Leave no room for a single byte."""
        os.set_blocking(self.writer, False)
        for size in (65536, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(self.writer, b"x" * size)
        os.set_blocking(self.writer, True)

    def read(self) -> bytes:
        """What is there."""
        os.set_blocking(self.reader, False)
        found = bytearray()
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.reader, 65536):
                found += data
        return bytes(found)

    def close(self) -> None:
        """Both ends."""
        for end in (self.reader, self.writer):
            with contextlib.suppress(OSError):
                os.close(end)


@pytest.fixture(params=["pipe", "socket"])
def output(request: pytest.FixtureRequest) -> Iterator[Output]:
    """A pipe as a shell and a container have it, and a socket as systemd has it."""
    if request.param == "pipe":
        made = Output(*os.pipe())
    else:
        reader, writer = socket.socketpair()
        made = Output(reader.detach(), writer.detach())
    yield made
    made.close()


@contextlib.contextmanager
def running(command: list[str], output: Output) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes there; it is killed if it has not ended by itself."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output.writer, stderr=output.writer
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def has_log(client: SyncLogClient) -> bool:
    """Whether there is log 1."""
    try:
        client.hakeeper.shard_info(1, timeout=END_S)
    except ShardNotFound:
        return False
    return True


@contextlib.contextmanager
def store(folder: Path, output: Output) -> Iterator[tuple[LocalCluster, subprocess.Popen[bytes]]]:
    """A cluster of one store that writes there, once it has log 1."""
    cluster = LocalCluster.create(folder, stores=1, settings=DEBUG, tls=True)
    with running(cluster.process("store-1").command, output) as process:
        with SyncLogClient(cluster.endpoints(), tls=cluster.client_tls()) as client:
            wait_until(lambda: has_log(client), END_S)
        yield cluster, process


def append(cluster: LocalCluster, count: int) -> None:
    """So many acked appends."""
    with SyncLogClient(cluster.endpoints(), tls=cluster.client_tls()) as client:
        for number in range(count):
            client.shard(1).append(b"%d" % number, timeout=END_S)


def knock(cluster: LocalCluster, count: int) -> None:
    """Connections that are no TLS: gRPC's own code writes lines about them to stderr."""
    host, _, port = cluster.stores["store-1"].client.rpartition(":")
    for _ in range(count):
        with socket.create_connection((host, int(port)), 10) as made:
            made.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with contextlib.suppress(OSError):
                made.recv(100)


def page(cluster: LocalCluster, path: str) -> str:
    """A document of the admin port; an error of HTTP is raised."""
    address = cluster.stores["store-1"].admin
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def lines_dropped(cluster: LocalCluster) -> float:
    """What the store says that it has left out."""
    found = [
        line.split()[1]
        for line in page(cluster, "/metrics").splitlines()
        if line.startswith("logservice_log_lines_dropped_total")
    ]
    return float(found[0])


def test_a_store_serves_and_stops_while_nothing_reads_its_log(
    tmp_path: Path, output: Output
) -> None:
    output.fill()
    with store(tmp_path / "c", output) as (cluster, process):
        append(cluster, 1)
        knock(cluster, 100)
        append(cluster, 200)
        assert page(cluster, "/healthz") == "ok\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0


def test_a_store_serves_and_stops_after_the_reader_of_its_log_has_left(
    tmp_path: Path, output: Output
) -> None:
    with store(tmp_path / "c", output) as (cluster, process):
        append(cluster, 1)
        os.close(output.reader)
        knock(cluster, 20)
        append(cluster, 200)
        assert page(cluster, "/healthz") == "ok\n"
        assert lines_dropped(cluster) > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0


def test_a_mirror_goes_on_and_stops_while_nothing_reads_its_log(
    tmp_path: Path, output: Output
) -> None:
    output.fill()
    with started_cluster(tmp_path / "c", settings={}, stores=1) as cluster:
        append(cluster, 3)
        mirror = Mirror(tmp_path, cluster.endpoints(), cluster.endpoints(), {"log-1": "copy"})
        command = [sys.executable, "-m", "logservice", "mirror", "run", "-c", str(mirror.config)]
        with running(command, output) as process:
            wait_until(lambda: not mirror.lacks({"log-1": 4}))
            process.send_signal(signal.SIGTERM)
            assert process.wait(END_S) == 0


def test_a_table_grows_while_nothing_reads_what_its_program_says(
    tmp_path: Path, output: Output
) -> None:
    output.fill()
    table = tmp_path / "table"
    with started_cluster(tmp_path / "c", settings={}, stores=1) as cluster:
        append(cluster, 3)
        command = [sys.executable, "-m", "logservice_delta.command", "--follow", "--log", "1"]
        command += ["--endpoints", ",".join(cluster.endpoints()), "--table", str(table)]
        with running([*command, "--commit-s", "0.1"], output) as process:
            wait_until(lambda: rows_of(table) == 3)
            append(cluster, 3)
            wait_until(lambda: rows_of(table) == 6)
            process.send_signal(signal.SIGTERM)
            assert process.wait(END_S) == 0


def rows_of(table: Path) -> int:
    """What the Delta table has; 0 while there is none."""
    if not DeltaTable.is_deltatable(str(table)):
        return 0
    return int(DeltaTable(str(table)).to_pyarrow_table().num_rows)
