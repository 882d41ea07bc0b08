"""The files of an archive in a bucket, on a real server of S3's protocol (moto's, on loopback)."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from logservice_client import LogClient
from logservice_wire.archive_name import FileRefused
from logservice_wire.block import encode_block
from logservice_wire.errors import InvalidArgument
from pyarrow import fs

from logservice.archive import bucket as buckets
from logservice.archive.bucket import Bucket, Credentials, Place, signed
from logservice.archive.folder import Files
from logservice.archive.lag import Metrics
from logservice.archive.manifest import Manifest, mark, marked
from logservice.archive.settings import ArchiveSection
from logservice.archive.shipping import Shipper
from logservice.archive.verifying import verify
from tests.client.fake_server import FakeCluster
from tools.own_environment import ROOT, own_environment

CREDENTIALS = Credentials("key", "secret")


class Killed(BaseException):
    """The process ends here."""


SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(*server.get_host_and_port(), sep=":", flush=True)
sys.stdin.read()
"""
"""It ends with its standard input, so also when the test is killed."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    program = ROOT / ".venv-s3" / "bin" / "python"
    if os.environ.get("LOGSERVICE_REQUIRE_S3"):
        program = own_environment("s3") / "python"
    elif not program.exists():
        pytest.skip("no server of S3's protocol here: make test-s3")
    with subprocess.Popen(
        [program, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@pytest.fixture
def files(endpoint: str, request: pytest.FixtureRequest) -> Bucket:
    name = "b" + hashlib.sha256(request.node.name.encode()).hexdigest()[:20]
    fs.S3FileSystem(
        access_key="key",
        secret_key="secret",
        scheme="http",
        endpoint_override=endpoint,
        allow_bucket_creation=True,
    ).create_dir(name)
    return Bucket(Place(name, "some/prefix", "us-east-1", endpoint, plaintext=True), CREDENTIALS)


def put(files: Files, name: str, content: bytes) -> None:
    with files.put(name) as file:
        file.write(content)


def test_the_promises_of_files(files: Bucket) -> None:
    files.check()
    assert files.names("") == [], "the probe is gone"
    put(files, "a/b/one", b"1234")
    assert files.names("a/b") == ["one"]
    assert files.read("a/b/one", 4) == b"1234"
    with files.open("a/b/one", 4) as file:
        file.seek(2)
        assert file.read() == b"34"
    with pytest.raises(RuntimeError), files.put("a/b/two") as file:
        file.write(b"12")
        raise RuntimeError
    assert files.names("a/b") == ["one"]
    assert files.names("nowhere") == []
    with pytest.raises(FileRefused):
        files.read("a/b/one", 3)
    for wrong in (3, 5):
        with pytest.raises(FileRefused):
            files.open("a/b/one", wrong)
    for missing in (files.read, files.open):
        with pytest.raises(FileNotFoundError):
            missing("a/none", 4)
    files.remove("a/b/one")
    files.remove("a/b/one")
    assert files.names("a/b") == []


def test_one_of_two_writers_is_told_that_it_wrote(files: Bucket) -> None:
    assert files.put_if_absent("m/1", b"mine")
    assert not files.put_if_absent("m/1", b"another")
    assert files.read("m/1", 4) == b"mine"
    assert files.put_if_absent("m/1", b"mine"), "our own attempt, whose answer was lost"


def test_a_server_that_overwrites_is_refused(
    files: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "_ABSENT", {})
    with pytest.raises(InvalidArgument, match="If-None-Match"):
        files.check()


def test_what_the_server_refuses_is_an_error(endpoint: str) -> None:
    nowhere = Bucket(Place("nobucket", "", "us-east-1", endpoint, plaintext=True), CREDENTIALS)
    with pytest.raises(OSError, match="404"):
        nowhere.put_if_absent("a", b"1")
    silent = Bucket(Place("b", "", "us-east-1", "127.0.0.1:1", plaintext=True), CREDENTIALS)
    with pytest.raises(OSError, match="refused"):
        silent.put_if_absent("a", b"1")


def test_the_signature_is_that_of_the_manual() -> None:
    """Amazon S3 API Reference, Signature Calculations: Examples, "PUT Object"."""
    given = signed(
        "PUT",
        "/test%24file.text",
        {
            "host": "examplebucket.s3.amazonaws.com",
            "date": "Fri, 24 May 2013 00:00:00 GMT",
            "x-amz-storage-class": "REDUCED_REDUNDANCY",
        },
        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        "us-east-1",
        Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        datetime(2013, 5, 24, tzinfo=UTC),
    )
    assert given["authorization"].endswith(
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
    )


def test_credentials_are_of_the_environment_and_never_shown() -> None:
    found = Credentials.of_environment(
        {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SESSION_TOKEN": "t"}
    )
    assert found == Credentials("k", "hidden", "t")
    assert "hidden" not in repr(found)
    with pytest.raises(InvalidArgument, match="AWS_SECRET_ACCESS_KEY"):
        Credentials.of_environment({"AWS_ACCESS_KEY_ID": "k"})


async def test_a_log_in_a_bucket(files: Bucket, tmp_path: Path) -> None:
    """Two archivers in turn, one of them killed before its row; everything is verified."""
    cluster = await FakeCluster.start()
    try:
        async with LogClient(cluster.endpoints) as client:
            mark(files, "fake")
            assert marked(files) == "fake"
            manifest = Manifest(files, 1)

            def shipper(**more: Any) -> Shipper:
                settings = ArchiveSection(object_bytes=3000)
                return Shipper(
                    client.shard(1), "wal", "fake", manifest, settings, Metrics(), **more
                )

            def kill(step: str) -> None:
                if step == "object-durable":
                    raise Killed

            first, second = shipper(), shipper()
            for number in range(10):
                cluster.logs[1].append(encode_block([b"%d" % number * 100] * 20, 1))
                await (first if number % 2 else second).ship(to_tail=True)
            cluster.logs[1].append(encode_block([b"last"], 1))
            with pytest.raises(Killed):
                await shipper(reached=kill).ship(to_tail=True)
            while await first.ship(to_tail=True):
                pass
            assert manifest.remove_unnamed() == 1
            found = await verify(files, 1, client)
            assert (found.problems, found.records, found.end_lsn) == ([], 201, 202)
            assert found.compared == found.ranges > 5
    finally:
        await cluster.stop()
