"""The log level of a running store: set by an administrator, over when its time is, never kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import click
import grpc.aio
import pytest
from logservice_wire.errors import InvalidArgument, Reason
from logservice_wire.v1 import admin_pb2, admin_pb2_grpc

from logservice.bounds import LOG_LEVEL_S_MAX
from logservice.cli.ctl import log_level as shown
from logservice.cli.ctl.store import checked_level
from logservice.config import LoggingSection
from logservice.log_levels import LOG_LEVELS
from logservice.server.audit.chain import Trail
from logservice.server.log_level import LogLevel
from tests.server.secured import ADMIN, OWNER, channel_of, lay_out, papers_of, secured
from tests.server.served import typed
from tests.server.test_audit import told
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    """The logger that the level is for; the test run gets its own level back."""
    logger = logging.getLogger()
    before = logger.level
    logger.setLevel("INFO")
    yield logger
    logger.setLevel(before)


@pytest.mark.parametrize("level", LOG_LEVELS)
async def test_every_level_of_the_configuration(root: logging.Logger, level: str) -> None:
    kept = LogLevel("info")
    kept.set(level)
    assert (kept.level, kept.configured, kept.ends_in_s) == (level, "info", 0)
    assert logging.getLevelName(root.level) == level.upper()
    kept.close()
    assert root.level == logging.INFO


async def test_the_levels_are_those_of_the_configuration() -> None:
    assert get_args(get_type_hints(LoggingSection)["level"]) == LOG_LEVELS
    assert [checked_level(level) for level in LOG_LEVELS] == list(LOG_LEVELS)
    for word in ("loud", "DEBUG", "", "add"):
        with pytest.raises(click.UsageError, match=", ".join(LOG_LEVELS)):
            checked_level(word)


async def test_it_is_over_with_its_time(
    root: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    kept = LogLevel("warning")
    kept.set("debug", 0.05)
    assert root.level == logging.DEBUG
    assert 0 < kept.ends_in_s <= 0.05
    await eventually(lambda: kept.level == "warning")
    assert (root.level, kept.ends_in_s) == (logging.WARNING, 0)
    first, last = (record.getMessage() for record in caplog.records)
    assert first == "the log level is debug, for 0.05 s"
    assert last == "the log level is warning again, as configured"


async def test_a_log_that_falls_silent_says_why(
    root: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    kept = LogLevel("info")
    kept.set("error")
    kept.set("debug")
    silent, loud = (record.getMessage() for record in caplog.records)
    assert silent == "the log level is error, until the store restarts"
    assert loud == "the log level is debug, until the store restarts"
    kept.set("info", 60)
    assert caplog.records[-1].getMessage() == "the log level is info, as configured"


async def test_the_next_change_ends_the_one_before(root: logging.Logger) -> None:
    """The timer of the first one would fall into the second one's time."""
    kept = LogLevel("info")
    kept.set("debug", 0.01)
    kept.set("error")
    assert kept.ends_in_s == 0
    kept.set("debug", 60)
    kept.set("info", 60)
    assert kept.ends_in_s == 0, "it is the configured one, so that nothing ends"
    kept.set("error")
    await asyncio.sleep(0.05)
    assert root.level == logging.ERROR
    kept.close()


async def test_what_is_refused_changes_nothing(root: logging.Logger) -> None:
    kept = LogLevel("info")
    kept.set("debug", LOG_LEVEL_S_MAX)
    for level, for_s in (("verbose", 0), ("", 0), ("DEBUG", 0), ("error", LOG_LEVEL_S_MAX + 0.001)):
        with pytest.raises(InvalidArgument):
            kept.set(level, for_s)
    assert (kept.level, root.level) == ("debug", logging.DEBUG)
    assert kept.ends_in_s > LOG_LEVEL_S_MAX - 600
    kept.close()


BAD = [
    (admin_pb2.SetLogLevelRequest(), "level"),
    (admin_pb2.SetLogLevelRequest(level="trace"), "level"),
    (admin_pb2.SetLogLevelRequest(level="info\n"), "level"),
    (admin_pb2.SetLogLevelRequest(level="x" * 10_000), "level"),
    (admin_pb2.SetLogLevelRequest(for_ms=1), "level"),
    (admin_pb2.SetLogLevelRequest(level="debug", for_ms=LOG_LEVEL_S_MAX * 1000 + 1), "for_ms"),
    (admin_pb2.SetLogLevelRequest(level="debug", for_ms=2**64 - 1), "for_ms"),
]


async def test_a_store_is_told_another_level(tmp_path: Path, root: logging.Logger) -> None:
    """Only an administrator may; the audit log has it; the status shows it; a stop ends it."""
    lay_out(tmp_path)
    request = admin_pb2.SetLogLevelRequest(level="debug", for_ms=600_000)
    async with secured(tmp_path) as store:
        async with channel_of(store, papers_of("stranger")) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await admin_pb2_grpc.AdminStub(channel).SetLogLevel(request, timeout=60)
            assert typed(caught.value).reason is Reason.PERMISSION_DENIED
        assert root.level == logging.INFO
        async with channel_of(store, OWNER) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            for bad, field in BAD:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stub.SetLogLevel(bad, timeout=60)
                assert typed(caught.value).reason is Reason.INVALID_ARGUMENT
                assert typed(caught.value).metadata["field"] == field
            status = await stub.GetStoreStatus(admin_pb2.GetStoreStatusRequest(), timeout=60)
            assert (status.log_level.level, status.log_level.configured) == ("info", "info")
            assert root.level == logging.INFO
            answer = await stub.SetLogLevel(request, timeout=60)
            status = await stub.GetStoreStatus(admin_pb2.GetStoreStatusRequest(), timeout=60)
        assert root.level == logging.DEBUG
        for found in (answer.log_level, status.log_level):
            assert (found.level, found.configured) == ("debug", "info")
            assert 0 < found.ends_in_ms <= 600_000
    assert root.level == logging.INFO
    audit = tmp_path / "data" / "audit"
    refused = [one for one in told(audit) if one["what"] == "SetLogLevel"]
    assert [one["decision"] for one in refused] == ["denied"]
    *_, begun, ended = told(audit, Trail.ADMINISTRATION)
    assert (begun["what"], begun["who"], begun["decision"]) == ("SetLogLevel", ADMIN, "allowed")
    assert 'level: "debug"' in str(begun["request"])
    assert ended["outcome"] == "ok"


@pytest.mark.parametrize(
    ("level", "text", "until"),
    [
        (admin_pb2.LogLevel(), None, None),
        (admin_pb2.LogLevel(level="info", configured="info"), "info", None),
        (
            admin_pb2.LogLevel(level="debug", configured="info"),
            "debug until the store restarts, then info",
            "the store restarts",
        ),
        (
            admin_pb2.LogLevel(level="error", configured="info", ends_in_ms=1),
            "error until 1 s are over, then info",
            "1 s are over",
        ),
    ],
)
async def test_what_people_read(
    level: admin_pb2.LogLevel, text: str | None, until: str | None
) -> None:
    """An older store says nothing of its level."""
    assert shown.level_text(level) == text
    assert shown.level_fields(level)["until"] == until
