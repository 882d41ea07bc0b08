"""The two forms of the log, and the ids of the call that is being served."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from logservice_wire.v1 import log_pb2

from logservice import trace
from logservice.events import Event, emit
from logservice.safe_text import unsafe
from logservice.server.log_format import ConsoleFormat, JsonFormat
from logservice.server.services.context import StoreContext
from tests.server.served import Served

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "events.md"


class Call:
    def __init__(self, *metadata: tuple[str, str | bytes]) -> None:
        self._metadata = metadata

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self._metadata


def event_record(caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    with caplog.at_level(logging.INFO):
        emit(logging.getLogger("x"), Event.SLOW_DISK, p99_us=5)
    return caplog.records[-1]


def test_json_keeps_name_and_fields_apart(caplog: pytest.LogCaptureFixture) -> None:
    line = json.loads(JsonFormat("s1").format(event_record(caplog)))
    assert line["event"] == "slow_disk"
    assert line["fields"] == {"p99_us": 5}
    assert (line["store"], line["level"]) == ("s1", "warning")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])


def test_nobody_writes_lines_into_our_log() -> None:
    hostile = logging.LogRecord("x", logging.INFO, "f", 1, "%s", ("a\nb\x1b[2Jc",), None)
    for form in (ConsoleFormat(), JsonFormat("s1")):
        assert re.search(r"[\x00-\x1f\x7f]", form.format(hostile)) is None
    try:
        raise ValueError("a\n2026-01-01T00:00:00.000Z INFO    x: all is well\x9b2J\u202e")
    except ValueError:
        quoting = logging.LogRecord("x", logging.ERROR, "f", 1, "bad", (), sys.exc_info())
    first, *others = ConsoleFormat().format(quoting).split("\n")
    assert not unsafe("".join([first, *others]))
    assert all(line.startswith("  ") for line in others)


def test_a_traceback_stays_in_its_json_line() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "bad", (), sys.exc_info())
    text = JsonFormat("s1").format(record)
    assert "\n" not in text
    assert "ValueError: boom" in json.loads(text)["error"]
    assert "ValueError: boom" in ConsoleFormat().format(record)


async def in_call(context: Call) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    trace.current.set(context)
    return trace.trace_ids(), trace.answer_metadata()


async def test_ids_of_a_call_do_not_leak_into_the_next() -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    call = Call(("x-request-id", "req-7"), ("traceparent", parent), ("other", b"\xff"))
    ids, metadata = await asyncio.create_task(in_call(call))
    assert ids == {"request_id": "req-7", "trace_id": "a" * 32, "span_id": "b" * 16}
    assert metadata == (("x-request-id", "req-7"),)
    assert trace.trace_ids() == {}


@pytest.mark.parametrize("value", ["", "x" * 129, "a b", "a\nb", "é", "a'", b"bytes"])
async def test_foreign_ids_are_left_out(value: Any) -> None:
    call = Call(("x-request-id", value), ("traceparent", value))
    assert await asyncio.create_task(in_call(call)) == ({}, ())


def test_the_page_lists_every_event() -> None:
    listed = re.findall(r"^\| `([a-z_]+)` \| (\w+)", PAGE.read_text(), re.MULTILINE)
    wanted = [(event.key, logging.getLevelName(event.level).lower()) for event in Event]
    assert listed == wanted


async def test_what_outlives_a_call_knows_nothing_of_it_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-TRACE-1. A timer that was set in a call went on for minutes; gRPC gave its lines the
    bytes that lay where the metadata had been, and a line about those was the end of the store.
    """
    contexts: list[contextvars.Context] = []
    position = StoreContext.position

    def noticed(self: StoreContext, *arguments: Any) -> Any:
        if trace.trace_ids() == {"request_id": "x" * 64}:
            contexts.append(contextvars.copy_context())
        return position(self, *arguments)

    monkeypatch.setattr(StoreContext, "position", noticed)
    request = log_pb2.ReadRequest(lsn=1)
    async with Served(1) as served:
        request.shard_id = await served.new_shard()
        call = served.stores[0].channel.unary_unary(
            "/logservice.v1.Log/Read",
            request_serializer=log_pb2.ReadRequest.SerializeToString,
            response_deserializer=log_pb2.ReadResponse.FromString,
        )
        for _ in range(50):
            await call(request, metadata=(("x-request-id", "x" * 64),))
        assert len(contexts) >= 50
        assert all(one.run(trace.trace_ids) == {} for one in contexts)
        assert all(one.run(trace.answer_metadata) == () for one in contexts)
