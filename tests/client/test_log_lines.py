"""What the client writes to the program's log: which lines at which level, and never a record."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import logservice_client.appender as appender_module
import logservice_client.log_lines as log_lines
import pytest
from logservice_client import Fenced, HoldLost, LogClient, LogServiceError, Outcome, reporter
from logservice_client.bounds import LOGGED_ERROR_CHARS_MAX, OUTAGE_TOLD_S
from logservice_client.channels import ChannelPool
from logservice_client.held_log import HeldLog
from logservice_client.log_lines import LOGGER, Line, shown_error
from logservice_client.reporter import Outage
from logservice_wire.errors import Busy, NotReady, SessionExpired, UnknownOutcome

from tests.client.fake_server import FakeCluster, Fault
from tests.waiting import eventually

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
SECRET = b"a-record-that-nobody-may-read"


class Heard(logging.Handler):
    """Every line, as the handler of a program would get it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def said(self) -> list[tuple[str, int]]:
        """Names of the lines, with the levels that they came at."""
        names = {line.text: line.name for line in Line}
        return [(names[str(record.msg)], record.levelno) for record in self.records]

    def levels_of(self, *lines: Line) -> list[int]:
        return [level for name, level in self.said if Line[name] in lines]

    def everything(self) -> str:
        return "\n".join(f"{one.getMessage()} {one.args!r} {vars(one)!r}" for one in self.records)


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler, level = Heard(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    yield handler
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(level)


def forms_of(secret: bytes) -> list[str]:
    return [secret.decode("latin-1"), secret.hex(), repr(secret)[2:-1]]


async def test_inv_client_log_a_troubled_day_without_a_byte_of_a_record(
    cluster: FakeCluster, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-CLIENT-LOG."""
    nonces: list[bytes] = []
    session_class = appender_module.Session

    def session(session_id: int, nonce: bytes) -> Any:
        nonces.append(nonce)
        return session_class(session_id, nonce)

    monkeypatch.setattr(appender_module, "Session", session)
    async with LogClient(cluster.endpoints) as client:
        log = client.shard(1)
        await log.append(SECRET)
        assert heard.said == [("SESSION_OPENED", logging.DEBUG)], "a good day has no line but this"
        cluster.faults.append(Fault(Busy(retry_after_ms=1)))
        await log.append([SECRET, SECRET])
        assert heard.levels_of(Line.RETRIED) == [logging.DEBUG]

        cluster.leader = 1
        await cluster.stores[0].kill()
        await log.append(SECRET)
        assert heard.levels_of(Line.LEADER_LOST) == [logging.INFO]
        await log.status()
        assert heard.levels_of(Line.LEADER_MOVED) == [logging.INFO]

        cluster.faults.append(Fault(SessionExpired()))
        with pytest.raises(LogServiceError) as expired:
            await log.append(SECRET)
        assert expired.value.outcome is Outcome.UNKNOWN
        await log.append(SECRET)
        assert heard.levels_of(Line.SESSION_LOST) == [logging.WARNING]
        assert heard.levels_of(Line.SESSION_OPENED_AGAIN) == [logging.INFO]

        await log.acquire_writer("one")
        async with LogClient(cluster.endpoints) as other:
            await other.shard(1).acquire_writer("two", takeover=True)
        for _ in range(3):
            with pytest.raises(Fenced):
                await log.append(SECRET)
        assert heard.levels_of(Line.FENCED) == [logging.WARNING], "once for an epoch"

        cluster.logs[1].fork(b"1" * 16, 2)
        for _ in range(2):
            with pytest.raises(LogServiceError):
                await log.read(1)
        assert heard.levels_of(Line.LINEAGE_CHANGED) == [logging.WARNING], "told once"
    text = heard.everything()
    assert nonces
    for secret in (SECRET, *nonces):
        assert not [form for form in forms_of(secret) if form in text]


async def test_a_leader_that_stands_still(
    cluster: FakeCluster, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender_module, "STALL_TIMEOUT_S", 0.2)
    async with LogClient(cluster.endpoints) as client:
        await client.shard(1).append(b"a")
        cluster.commit_delay_s = 3600.0
        waiting = asyncio.create_task(client.shard(1).append(b"b"))
        await eventually(lambda: heard.levels_of(Line.STALLED))
        cluster.commit_delay_s = 0.0
        await waiting
    assert set(heard.levels_of(Line.STALLED)) == {logging.WARNING}


async def test_an_outage_is_told_once_and_its_end(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    outage = Outage(7, "append")
    outage.failed(NotReady())
    now_s += OUTAGE_TOLD_S - 0.1
    outage.failed(NotReady())
    outage.went_on()
    assert heard.said == [], "an election is nothing to tell"
    for _ in range(3):
        outage.failed(NotReady())
        now_s += OUTAGE_TOLD_S
    outage.went_on()
    outage.went_on()
    assert heard.said == [("OUTAGE", logging.WARNING), ("OUTAGE_OVER", logging.INFO)]
    assert heard.records[1].getMessage() == "log 7: append goes on, after 15.0 s"


async def test_nobody_waits_so_nothing_is_interrupted(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    outage = Outage(7, "append")
    outage.failed(NotReady())
    outage.forget()
    now_s += 3600
    outage.failed(NotReady())
    outage.went_on()
    assert heard.said == []


async def test_a_log_that_takes_no_appends_for_long(
    cluster: FakeCluster, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "OUTAGE_TOLD_S", 0.05)
    async with LogClient(cluster.endpoints) as client:
        log = client.shard(1)
        await log.append(b"a")
        cluster.faults.extend([Fault(NotReady())] * 1000)
        waiting = asyncio.create_task(log.append(b"b"))
        await eventually(lambda: heard.levels_of(Line.OUTAGE))
        cluster.faults.clear()
        await waiting
    assert heard.levels_of(Line.OUTAGE) == [logging.WARNING]
    assert heard.levels_of(Line.OUTAGE_OVER) == [logging.INFO]


class _Holds:
    shard_id = 7

    def __init__(self) -> None:
        self.fails: LogServiceError = NotReady()

    async def set_hold(self, name: str, lsn: int, *, ttl: int = 0) -> None: ...

    async def renew_hold(self, name: str, *, timeout: float | None = None) -> int:
        raise self.fails

    async def release_hold(self, name: str, *, timeout: float | None = None) -> None: ...


async def test_a_hold(heard: Heard) -> None:
    holds = _Holds()
    held = HeldLog(holds, "backup", 5, 60)
    held._interval_s = 0.001
    async with held:
        held._ttl_s = 0
        await eventually(lambda: heard.levels_of(Line.HOLD_NOT_RENEWED))
        holds.fails = HoldLost(first_lsn=9)
        await eventually(lambda: heard.levels_of(Line.HOLD_LOST))
        with pytest.raises(HoldLost):
            held.check()
        held._lost = None
        held._ttl_s = 60
    assert set(heard.levels_of(Line.HOLD_NOT_RENEWED)) == {logging.WARNING}
    assert heard.levels_of(Line.HOLD_LOST) == [logging.ERROR]
    assert "log 7: hold 'backup' is lost; records from LSN 5 on" in heard.everything()


async def test_new_certificates(heard: Heard) -> None:
    class Source:
        def __init__(self) -> None:
            self.now = 1

        def current(self) -> Any:
            return self.now

    source = Source()
    pool = ChannelPool(source)  # type: ignore[arg-type]
    source.now = 2
    pool._look()
    assert heard.said == [("CERTIFICATES_RENEWED", logging.INFO)]
    await pool.close()


async def test_a_follow_that_goes_on_elsewhere(cluster: FakeCluster, heard: Heard) -> None:
    async with LogClient(cluster.endpoints) as client:
        log = client.shard(1)
        await log.append(SECRET)
        following = log.follow(1)
        await anext(following)
        cluster.leader = 1
        await cluster.stores[0].kill()
        waiting = asyncio.ensure_future(anext(following))
        await eventually(lambda: heard.levels_of(Line.RETRIED))
        await log.append(SECRET)
        assert (await waiting).first_lsn == 2
        await following.aclose()
    assert "Follow failed at" in heard.everything()
    assert SECRET.decode() not in heard.everything()


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[31mred", "x" * 10_000])
def test_inv_client_log_what_a_store_says_stays_one_short_line(text: str) -> None:
    """INV-CLIENT-LOG."""
    shown = shown_error(UnknownOutcome(text))
    assert shown.isprintable()
    assert len(shown) <= LOGGED_ERROR_CHARS_MAX * 4 + 10
    assert shown_error(UnknownOutcome("as it is")) == "UNKNOWN_OUTCOME: as it is"


def test_nothing_is_said_at_import_and_nothing_without_logging() -> None:
    program = """
import logging, sys
root = logging.getLogger()
if sys.argv[1] == "everything":
    logging.basicConfig(level=logging.DEBUG)
before = list(root.handlers), root.level
import logservice_client
from logservice_client.log_lines import Line
assert (list(root.handlers), root.level) == before, "the program's logging is its own"
if sys.argv[1] == "nothing":
    Line.HOLD_LOST.say(1, "h", 5)
"""
    for what in ("everything", "nothing"):
        ran = subprocess.run(
            [sys.executable, "-c", program, what], capture_output=True, text=True, check=True
        )
        assert [line for line in ran.stderr.splitlines() if "log " in line] == []


def test_an_argument_is_made_only_when_somebody_listens(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(error: LogServiceError) -> str:
        raise AssertionError

    monkeypatch.setattr(log_lines, "shown_error", shown)
    LOGGER.setLevel(logging.INFO)
    Line.RETRIED.say(1, "append", "a:1", 5, NotReady())
    assert heard.records == []


def test_the_page_lists_every_line_with_its_level() -> None:
    rows = re.findall(
        r"^\| (DEBUG|INFO|WARNING|ERROR) \| `(.+?)` \|", PAGE.read_text(), re.MULTILINE
    )
    assert rows == [
        (logging.getLevelName(line.level), re.sub(r"%(\.1f|[dsr])", "…", line.text))
        for line in Line
    ]
