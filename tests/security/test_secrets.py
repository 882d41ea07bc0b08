"""A real store process is made to fail in every way at hand; no secret may come out of it.

Secrets: private keys, and the records themselves, which belong to whoever may read the shard and to
nobody who reads logs, metrics or the audit log. Also: what it leaves on disk is its user's alone.
"""

from __future__ import annotations

import asyncio
import logging
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography.hazmat.primitives import serialization
from logservice_client import LogClient
from logservice_wire.errors import LogServiceError
from logservice_wire.rpcs import GET_STORE_STATUS
from logservice_wire.v1 import admin_pb2, log_pb2, log_pb2_grpc

from logservice.cli.ctl.direct_call import call_store
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.nodehost.node_host import NodeHost
from logservice.rsm.append_request import AppendRequest
from logservice.server.log_format import ConsoleFormat, JsonFormat
from tests.papers import SERVER, uri
from tests.security.rotation import SETTINGS
from tests.server.secured import CLIENTS, OWNER, channel_of, lay_out, secured
from tests.server.served import block
from tests.waiting import eventually

pytestmark = pytest.mark.processes

CANARY = b"CANARY-ab8e41f0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("secrets") / "cluster"
    settings = {**SETTINGS, "audit": {"data": True}}
    made = LocalCluster.create(directory, stores=1, settings=settings, tls=True)
    made.up()
    yield made
    made.down()


async def provoke(cluster: LocalCluster) -> None:
    """Appends, denials, garbage and broken certificate files, all with canaries in them."""
    (address,) = cluster.endpoints()
    async with LogClient(address, tls=cluster.client_tls()) as client:
        await client.shard(1).append(CANARY)
        with pytest.raises(LogServiceError):
            await client.shard(1).read(10_000)
    async with LogClient(address, tls=cluster.client_tls("stranger")) as client:
        with pytest.raises(LogServiceError):
            await client.shard(1).append(CANARY)
    tls = cluster.client_tls()
    assert tls is not None
    with grpc.secure_channel(address, tls.current().credentials()) as channel:
        log = log_pb2_grpc.LogStub(channel)
        for damaged in (CANARY, CANARY * 100):
            with pytest.raises(grpc.RpcError):
                log.Append(log_pb2.AppendRequest(shard_id=1, block=damaged))
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/logservice.v1.Log/Append")(b"\xff" + CANARY)
    log_path = cluster.process("store-1").log_path
    for plane in ("client", "peer"):
        path = cluster.directory / "certs" / "stores" / "store-1" / f"{plane}-plane.key"
        good = path.read_bytes()
        path.write_bytes(good[: len(good) // 2] + CANARY)
        told = f"{plane} plane: the old certificate stays in use"
        await eventually(lambda told=told: told in log_path.read_text())
        path.write_bytes(good)


def secrets(directory: Path) -> list[bytes]:
    """Every line of every private key there that says something, and the canary."""
    found = [CANARY]
    for path in directory.rglob("*.key"):
        found += [line for line in path.read_bytes().splitlines() if b"-----" not in line]
    assert len(found) > 5
    return found


def test_no_secret_comes_out(cluster: LocalCluster) -> None:
    kept = secrets(cluster.directory / "certs")
    asyncio.run(provoke(cluster))
    (address,) = cluster.endpoints()
    request = admin_pb2.GetStoreStatusRequest()
    status = call_store(address, GET_STORE_STATUS, request, 60.0, cluster.client_tls())
    shown = {"status": str(status).encode()}
    process = cluster.process("store-1")
    shown["log"] = process.log_path.read_bytes()
    assert shown["log"].count(b"stays in use") >= 2
    for path in (process.directory / "data" / "audit").iterdir():
        shown[path.name] = path.read_bytes()
    for page in ("metrics", "healthz", "readyz", "api/v1/stores", "api/v1/cluster"):
        url = f"http://{cluster.stores['store-1'].admin}/{page}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                shown[page] = answer.read()
        except urllib.error.HTTPError as error:
            shown[page] = error.read()
    assert len(shown["metrics"]) > 1000
    for place, text in shown.items():
        for secret in kept:
            assert secret not in text, place
    config = process.config_path.read_bytes()
    assert all(secret not in config for secret in kept)
    environment = Path(f"/proc/{process.pid()}/environ").read_bytes()
    command = Path(f"/proc/{process.pid()}/cmdline").read_bytes()
    assert all(secret not in environment + command for secret in kept)


async def test_a_traceback_shows_code_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug of ours with a record in its hands; a library that quotes the key it cannot read."""
    lay_out(tmp_path)

    async def append(_: NodeHost, __: object, request: AppendRequest, *___: object) -> None:
        held = {bytes(request.block): 1}
        raise KeyError(len(held))

    def load(data: bytes, **_: object) -> None:
        raise ValueError(data.decode())

    def lines(text: str) -> list[str]:
        return [
            form.format(record)
            for record in caplog.records
            for form in (JsonFormat("s1"), ConsoleFormat())
            if text in record.getMessage()
        ]

    async with secured(tmp_path) as store:
        with caplog.at_level(logging.DEBUG, logger="logservice"):
            monkeypatch.setattr(NodeHost, "append", append)
            async with channel_of(store, OWNER) as channel:
                request = log_pb2.AppendRequest(shard_id=1, block=block(CANARY))
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await log_pb2_grpc.LogStub(channel).Append(request)
            assert caught.value.code() is grpc.StatusCode.INTERNAL
            monkeypatch.setattr(serialization, "load_pem_private_key", load)
            CLIENTS.issue(uri("store", "s1"), purposes=SERVER).write(tmp_path / "client-plane")
            await eventually(lambda: lines("stays in use"))
    told = lines("failed")
    assert len(told) == 2
    assert all("Traceback" in line and "KeyError: 1" in line for line in told)
    secret = [line.decode() for line in secrets(tmp_path)]
    everything = "\n".join([str(caught.value), *lines("")])
    assert [one for one in secret if one in everything] == []


def test_what_it_writes_is_its_users_alone(cluster: LocalCluster) -> None:
    """The whole of a local cluster: data, logs, process ids, configurations, certificates."""
    directory = cluster.directory
    names = {path.name for path in directory.rglob("*")}
    assert {"cluster.json", "store.toml", "store.log", "store.pid", "audit"} <= names
    for path in [directory, *directory.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode & 0o077 == 0, f"{path}: {mode:04o}"
