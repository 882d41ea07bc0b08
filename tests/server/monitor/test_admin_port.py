"""The admin port of a real store, over HTTP, from the start of the store's parts to their end."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from logservice import bounds
from logservice.config import Address
from logservice.server import monitor
from logservice.server.monitor.own.status import StoreStatus
from logservice.server.monitor.port.app import AdminApp
from logservice.server.monitor.port.board import Board
from logservice.server.monitor.port.metrics import Metrics
from logservice.server.monitor.port.server import AdminServer
from logservice.server.store import Store
from tests.server.monitor.samples import status
from tests.server.test_store import Client, configured

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Answered:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()

    def json(self) -> Any:
        return json.loads(self.body)


def ask(address: str, path: str, method: str = "GET", **headers: str) -> Answered:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        return Answered(connection.getresponse())
    finally:
        connection.close()


class Port:
    def __init__(self, store: Store) -> None:
        assert store.admin_address
        self.address = store.admin_address

    async def get(self, path: str, method: str = "GET", **headers: str) -> Answered:
        return await asyncio.to_thread(ask, self.address, path, method, **headers)

    async def until_applied(self, shard: int, lsn: int) -> None:
        """Wait, because the port's answers may be as old as ADMIN_CLUSTER_AGE_S and
        ADMIN_STATUS_AGE_S.
        """
        async with asyncio.timeout(60):
            while True:
                answer = await self.get("/api/v1/shards")
                shards = answer.json() if answer.status == 200 else []
                if any((one["shard"], one["applied_lsn"]) == (shard, lsn) for one in shards):
                    return
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Port]:
    store = Store(configured(tmp_path_factory.mktemp("store") / "data"))
    logger = logging.getLogger("logservice")
    level = logger.level
    logger.setLevel(logging.INFO)
    await store.start()
    client = Client(store)
    await client.shard_ready(1)
    await client.append(1, b"a", b"b")
    found = Port(store)
    await found.until_applied(1, 2)
    yield found
    await client.channel.close(None)
    await store.stop()
    logger.setLevel(level)


async def test_probes(port: Port) -> None:
    assert (await port.get("/healthz")).status == 200
    async with asyncio.timeout(60):
        while (answer := await port.get("/readyz")).status != 200:  # noqa: ASYNC110 - not ours
            await asyncio.sleep(0.05)
    assert answer.json() == {"ready": True, "store": "s1", "reasons": []}


async def test_metrics(port: Port) -> None:
    answer = await port.get("/metrics")
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    assert found["logservice_loop_responsive"] == 1
    assert found["logservice_durable_writes_total"] > 0
    assert found["process_resident_memory_bytes"] > 0
    assert found["logservice_cluster_shards"] >= 2
    assert found["logservice_scrub_rate_bytes_per_second"] == 1_000_000
    assert found["logservice_scrub_pass_bytes"] == 0, "nothing is sealed yet"
    accepted = "application/openmetrics-text; version=1.0.0"
    assert (await port.get("/metrics", Accept=accepted)).body.endswith(b"# EOF\n")


async def test_documents(port: Port) -> None:
    async with asyncio.timeout(60):
        while True:
            cluster = (await port.get("/api/v1/cluster")).json()
            if cluster["phase"] == "running" and not cluster["shards_without_leader"]:
                break
            await asyncio.sleep(0.05)
    assert (cluster["stores_alive"], cluster["asked_store"]) == (1, "s1")
    (store,) = (await port.get("/api/v1/stores")).json()
    assert store["answers"]
    assert abs(store["clock_offset_us"]) < 1_000_000
    shards = (await port.get("/api/v1/shards")).json()
    log = next(shard for shard in shards if shard["shard"] == 1)
    assert (log["leader_store"], log["applied_lsn"], log["lag_entries"]) == ("s1", 2, 0)
    page = (await port.get("/api/v1/shards/page?sort=shard&descending=1&count=1")).json()
    assert [one["row"]["shard"] for one in page["rows"]] == [max(one["shard"] for one in shards)]
    assert (page["matching"], page["shards"]) == (len(shards), len(shards))
    refused = await port.get("/api/v1/shards/page?count=0")
    assert (refused.status, "count" in refused.json()["error"]) == (400, True)
    assert (await port.get("/api/v1/operators")).json() == []
    own = (await port.get("/api/v1/store")).json()
    assert own["phase"] == "serving"
    assert any(event["event"] == "leader_here" for event in own["events"])


async def test_the_page_may_load_nothing_from_elsewhere(port: Port) -> None:
    page = await port.get("/ui")
    assert page.status == 200
    assert "script-src 'self'" in str(page.headers["Content-Security-Policy"])
    assert "default-src 'none'" in str(page.headers["Content-Security-Policy"])
    folder = Path(monitor.__file__).parent / "ui"
    scripts = sorted(f"/ui/{file.name}" for file in folder.glob("*.js"))
    assert len(scripts) > 15
    for path in ("/ui", "/ui/app.css", *scripts):
        text = (await port.get(path)).body.decode()
        assert text.strip()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
    assert (await port.get("/")).headers["Location"] == "/ui"


async def test_read_only(port: Port) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert (await port.get("/api/v1/cluster", method)).status == 405
    head = await port.get("/metrics", "HEAD")
    assert (head.status, head.body) == (200, b"")
    for path in ("/nope", "/api/v1/", "/api/v1/secrets", "/ui/../config.py", "/ui/%2e%2e/x"):
        assert (await port.get(path)).status == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:99", 200),
        ("[::1]:7", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("10.0.0.1", 421),
    ],
)
async def test_names_that_point_here_are_refused(port: Port, host: str, status: int) -> None:
    assert (await port.get("/readyz", Host=host)).status in ({200, 503} if status == 200 else {421})


async def test_large_headers_are_refused(port: Port) -> None:
    answer = await port.get("/healthz", Junk="x" * (bounds.ADMIN_REQUEST_BYTES_MAX + 1))
    assert answer.status == 431


async def test_silent_connections_do_not_lock_others_out(port: Port) -> None:
    parsed = Address.parse(port.address, "admin")
    silent = [socket.create_connection((parsed.host, parsed.port)) for _ in range(20)]
    try:
        for one in silent:
            one.sendall(b"GET /healthz HT")
        assert (await port.get("/healthz")).status == 200
    finally:
        for one in silent:
            one.close()


async def test_a_stuck_loop_is_told() -> None:
    """The loop, which runs in another thread, is held; the port answers all the same."""
    held, stuck = threading.Event(), threading.Event()
    boards: list[Board] = []

    def run() -> None:
        async def main() -> None:
            board = Board(status, wait_s=0.2)
            board.started(lambda: asyncio.sleep(0))  # type: ignore[arg-type, return-value]
            boards.append(board)
            await asyncio.sleep(0)
            stuck.set()
            while not held.is_set():
                time.sleep(0.01)  # noqa: ASYNC251 - what is tested

        asyncio.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    assert await asyncio.to_thread(stuck.wait, 60)
    board = boards[0]
    app = AdminApp(board, Metrics(board).text, loopback_only=True)
    server = AdminServer(Address("127.0.0.1", 0), app)
    server.start()
    try:
        assert (await asyncio.to_thread(ask, server.address, "/healthz")).status == 503
        ready = await asyncio.to_thread(ask, server.address, "/readyz")
        assert (ready.status, ready.json()["reasons"][0]["code"]) == (503, "no_reply")
        metrics = await asyncio.to_thread(ask, server.address, "/metrics")
        assert b"logservice_loop_responsive 0.0" in metrics.body
    finally:
        held.set()
        await asyncio.to_thread(thread.join)
        server.stop()


async def test_before_recovery_the_store_is_alive_and_not_ready() -> None:
    board = Board(StoreStatus)
    app = AdminApp(board, Metrics(board).text, loopback_only=True)
    server = AdminServer(Address("127.0.0.1", 0), app)
    server.start()
    try:
        assert (await asyncio.to_thread(ask, server.address, "/healthz")).status == 200
        assert (await asyncio.to_thread(ask, server.address, "/api/v1/shards")).status == 503
    finally:
        server.stop()
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(ask, server.address, "/healthz")


async def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        board = Board(StoreStatus)
        app = AdminApp(board, Metrics(board).text, loopback_only=True)
        with pytest.raises(OSError, match="cannot listen for operators"):
            AdminServer(Address("127.0.0.1", taken.getsockname()[1]), app)
