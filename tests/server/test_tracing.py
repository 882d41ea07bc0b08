"""Traces: what a client says of its call is in log lines, audit lines and spans of every store that
had a part in it; without an exporter there is nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from logservice_client import LogClient
from logservice_client.tls import TlsFiles
from logservice_wire.errors import InvalidArgument, ShardNotFound, StaleTruncate
from logservice_wire.v1 import log_pb2, log_pb2_grpc
from msgspec import structs
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from logservice import bounds, config
from logservice.cli.processes.local_cluster import free_ports
from logservice.config import StoreConfig, TracingSection
from logservice.server.audit.chain import Trail, files_of
from logservice.server.log_format import JsonFormat
from logservice.server.store import Store
from logservice.server.telemetry import OpenTelemetry, tracing_of
from logservice.trace import NO_TRACING
from tests.server.secured import OWNER, channel_of, lay_out, secured, written

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
Cluster = list[tuple[Store, InMemorySpanExporter, OpenTelemetry]]


def store_config(directory: Path, number: int, clients: list[int], peers: list[int]) -> StoreConfig:
    members = ", ".join(
        f'{{ store_id = "s{one}", peer_address = "127.0.0.1:{port}" }}'
        for one, port in enumerate(peers, 1)
    )
    return config.parse(
        f"""
        [store]
        store_id = "s{number}"
        cluster_id = "c"
        data_directories = ["{directory}/s{number}"]
        [listen]
        insecure_plaintext = true
        client = "127.0.0.1:{clients[number - 1]}"
        peer = "127.0.0.1:{peers[number - 1]}"
        [bootstrap]
        hakeeper_members = [{members}]
        [raft]
        tick_ms = 20
        [hakeeper]
        heartbeat_interval_s = 0.1
        [storage]
        segment_bytes = 1048576
        ballast_bytes = 0
        """
    )


@contextlib.asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Cluster]:
    """Three stores in this process, each with spans in memory."""
    ports = free_ports(6)
    stores: Cluster = []
    for number in (1, 2, 3):
        spans = InMemorySpanExporter()
        tracing = OpenTelemetry(spans, "c", f"s{number}")
        made = Store(store_config(directory, number, ports[:3], ports[3:]), tracing)
        stores.append((made, spans, tracing))
    try:
        await asyncio.gather(*(store.start() for store, _, _ in stores))
        yield stores
    finally:
        await asyncio.gather(*(store.stop() for store, _, _ in stores))


async def first_append(addresses: list[str]) -> None:
    """An untraced append, as soon as the shard is there."""
    async with asyncio.timeout(60), LogClient(addresses) as client:
        while True:
            try:
                await client.shard(1).append(b"before", timeout=30)
                return
            except ShardNotFound:
                await asyncio.sleep(0.1)


def spans_of(spans: InMemorySpanExporter, tracing: OpenTelemetry, name: str) -> list[ReadableSpan]:
    """The spans of the client's trace."""
    tracing._provider.force_flush()
    return [
        one
        for one in spans.get_finished_spans()
        if one.name == name and one.context is not None and f"{one.context.trace_id:032x}" == TRACE
    ]


def parent_of(one: ReadableSpan) -> str:
    return f"{one.parent.span_id:016x}" if one.parent is not None else ""


def id_of(one: ReadableSpan) -> str:
    assert one.context is not None
    return f"{one.context.span_id:016x}"


async def test_a_trace_goes_from_the_client_through_a_store_to_the_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as stores:
        addresses = [store.client_address for store, _, _ in stores]
        await first_append(addresses)
        channels = [
            grpc.aio.insecure_channel(address, [("grpc.enable_http_proxy", 0)])
            for address in addresses
        ]
        try:
            stubs: list[Any] = [log_pb2_grpc.LogStub(channel) for channel in channels]
            for stub in stubs:
                await stub.Connect(
                    log_pb2.ConnectRequest(shard_id=1), metadata=(("traceparent", TRACEPARENT),)
                )
        finally:
            for channel in channels:
                await channel.close(None)
        received = {
            number: spans_of(spans, tracing, "Connect")
            for number, (_, spans, tracing) in enumerate(stores)
        }
        forwarded = {
            number: spans_of(spans, tracing, "forwarded command")
            for number, (_, spans, tracing) in enumerate(stores)
        }
        assert [len(found) for found in received.values()] == [1, 1, 1]
        assert {parent_of(found[0]) for found in received.values()} == {PARENT}
        (leader,) = [number for number, found in forwarded.items() if found]
        assert {parent_of(one) for one in forwarded[leader]} == {
            id_of(found[0]) for number, found in received.items() if number != leader
        }
        resource = received[leader][0].resource.attributes
        assert resource["service.instance.id"] == f"s{leader + 1}"


async def test_appends_of_a_stream_are_traced_block_by_block(tmp_path: Path) -> None:
    async with cluster(tmp_path) as stores:
        addresses = [store.client_address for store, _, _ in stores]
        traced = TRACEPARENT
        await first_append(addresses)
        async with LogClient(addresses, traceparent=lambda: traced) as client:
            await client.shard(1).append(b"one")
            traced = ""
            await client.shard(1).append(b"two")
            traced = TRACEPARENT
            await client.shard(1).truncate(2)
            with pytest.raises(StaleTruncate):
                await client.shard(1).truncate(1)
        blocks = [
            one for _, spans, tracing in stores for one in spans_of(spans, tracing, "append block")
        ]
        assert [parent_of(one) for one in blocks] == [PARENT]
        truncates = [
            one for _, spans, tracing in stores for one in spans_of(spans, tracing, "Truncate")
        ]
        failed = [one for one in truncates if not one.status.is_ok]
        assert [dict(one.attributes or {})["error.type"] for one in failed] == [
            "FAILED_PRECONDITION"
        ]


async def test_log_and_audit_lines_name_the_span(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path)
    spans = InMemorySpanExporter()
    tracing = OpenTelemetry(spans, "c", "s1")
    monkeypatch.setattr("logservice.server.store.tracing_of", lambda _: tracing)
    async with secured(tmp_path, "[audit]\ndata = true") as store:
        lines = logged(store, monkeypatch)
        async with channel_of(store, OWNER) as channel:
            stub: Any = log_pb2_grpc.LogStub(channel)
            await stub.GetShardStatus(
                log_pb2.GetShardStatusRequest(shard_id=1),
                metadata=(("traceparent", TRACEPARENT), ("x-request-id", "req-7")),
            )
        (one,) = spans_of(spans, tracing, "GetShardStatus")
        assert parent_of(one) == PARENT
        assert dict(one.attributes or {})["logservice.request_id"] == "req-7"
    ids = {"request_id": "req-7", "trace_id": TRACE, "span_id": id_of(one)}
    assert next(line for line in lines if line["message"] == "asked").items() >= ids.items()
    audited = [
        json.loads(line)
        for path in files_of(tmp_path / "data" / "audit", Trail.CALLS)
        for line in path.read_text().splitlines()
    ]
    found = next(line for line in audited if line.get("request_id") == "req-7")
    assert found.items() >= ids.items()


def logged(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is logged while a status is asked for, as the store's log would have it."""
    lines: list[dict[str, Any]] = []
    form = JsonFormat("s1")

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(form.format(record)))

    logger = logging.getLogger("tests.tracing")
    logger.setLevel(logging.INFO)
    logger.addHandler(Lines())
    assert store._parts is not None
    host = store._parts.host
    inner = host.lookup

    async def asked(*arguments: Any, **more: Any) -> Any:
        logger.info("asked")
        return await inner(*arguments, **more)

    monkeypatch.setattr(host, "lookup", asked)
    return lines


async def test_without_an_exporter_the_ids_are_the_clients_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path)
    async with secured(tmp_path) as store:
        assert store._tracing is NO_TRACING
        lines = logged(store, monkeypatch)
        ca, certificate, key = written(OWNER, tmp_path)
        async with LogClient(
            store.client_address,
            tls=TlsFiles(ca, certificate, key),
            traceparent=lambda: TRACEPARENT,
        ) as client:
            await client.shard(1).status()
    ids = {"trace_id": TRACE, "span_id": PARENT}
    assert next(line for line in lines if line["message"] == "asked").items() >= ids.items()


@pytest.fixture
def told(tmp_path: Path) -> Callable[[str], StoreConfig]:
    def parsed(exporter: str) -> StoreConfig:
        section = TracingSection(exporter=exporter)
        return structs.replace(store_config(tmp_path, 1, [1], [2]), tracing=section)

    return parsed


def test_the_configuration_chooses_the_exporter(told: Callable[[str], StoreConfig]) -> None:
    assert tracing_of(told("")) is NO_TRACING
    found = tracing_of(told("otlp_proto_http"))
    assert isinstance(found, OpenTelemetry)
    found.close()


def test_a_collector_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    class Hanging(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            answers.wait(60)
            return super().export(spans)

    monkeypatch.setattr(bounds, "STOP_FLUSH_S", 0.05)
    exporter = Hanging()
    tracing = OpenTelemetry(exporter, "c", "s1")
    tracing.begin("something", None).end("")
    tracing.close()
    assert exporter.get_finished_spans() == (), "it did not wait for the answer"
    answers.set()


def test_the_end_exports_what_is_left() -> None:
    exporter = InMemorySpanExporter()
    tracing = OpenTelemetry(exporter, "c", "s1")
    tracing.begin("something", None).end("BUSY")
    tracing.close()
    assert [one.name for one in exporter.get_finished_spans()] == ["something"]


def test_an_exporter_that_is_not_installed_is_refused(told: Callable[[str], StoreConfig]) -> None:
    with pytest.raises(InvalidArgument, match="no exporter 'jaeger'") as refused:
        tracing_of(told("jaeger"))
    assert refused.value.metadata["field"] == "tracing.exporter"


def test_nothing_of_opentelemetry_is_imported_unless_it_is_wanted() -> None:
    code = (
        "import sys, logservice.server.store, logservice_client\n"
        "found = [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "raise SystemExit(str(found) if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
