"""The shipper, without PostgreSQL and without a log service: what it reports, where it goes on, and
what is in the log when it is killed at any point.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from logservice_client import (
    DeadlineExceeded,
    LogServiceError,
    NotReady,
    StaleEpoch,
    UnknownOutcome,
    WrongExpectedLsn,
)
from logservice_client.caller import AFTER_UNKNOWN

from examples.postgres.ownership import LogTaken, Ownership, take_over
from examples.postgres.protocol import ConnectionLost, KeepAlive, ServerError, WalData
from examples.postgres.replication import System, TimelineEnded
from examples.postgres.sessions import ShippingLost
from examples.postgres.wal_position import position_text, segment_name
from examples.postgres_wal import wal_log
from examples.postgres_wal.base_backup import BackupStart
from examples.postgres_wal.chunk import HISTORY, WAL, Chunk, ChunkError, decode
from examples.postgres_wal.shipper import Shipper
from examples.postgres_wal.stream import (
    APPEND_BYTES_MAX,
    APPENDS_INFLIGHT_MAX,
    WAL_WAITING_BYTES_MAX,
    Stream,
)
from examples.postgres_wal.timelines import ShippingRefused
from examples.postgres_wal.truncation import truncate_below
from examples.postgres_wal.wal_log import WalMissing
from tests.examples.memory_log import Content, MemoryLog

MIB = 1 << 20
SYSTEM = 77
BEGIN = 3 * MIB


class Server:
    """A PostgreSQL: its WAL by timeline, and what was reported to it."""

    def __init__(self, seed: int = 1, size: int = 40_000) -> None:
        self.chance = random.Random(seed)
        self.timeline = 1
        self.wal: dict[int, bytes] = {1: self.chance.randbytes(size)}
        self.histories: dict[int, bytes] = {}
        self.left_at: dict[int, int] = {}
        self.reported = 0
        self.on_report: Callable[[int], None] = lambda _: None
        self.streamed = False
        self.lose_after = 0
        """End each connection after so many pieces; 0: never."""

    def end(self, timeline: int) -> int:
        return BEGIN + len(self.wal[timeline])

    def promote(self, back: int = 0, size: int = 30_000) -> None:
        """Begin the next timeline, so many bytes before the end of this one."""
        old, new = self.timeline, self.timeline + 1
        keep = len(self.wal[old]) - back
        self.wal[new] = self.wal[old][:keep] + self.chance.randbytes(size)
        self.left_at[old] = BEGIN + keep
        line = f"{old}\t{position_text(BEGIN + keep)}\tno reason\n".encode()
        self.histories[new] = self.histories.get(old, b"") + line
        self.timeline = new

    async def connect(self) -> ServerConnection:
        return ServerConnection(self)


class ServerConnection:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.timeline = self.position = self.pieces = 0
        self.closed = False

    async def identify(self) -> System:
        server = self.server
        # It is young when it is asked for the first time: the log begins with its first segment.
        position = server.end(server.timeline) if server.streamed else BEGIN + 9
        return System(SYSTEM, server.timeline, position, 20)

    async def ensure_slot(self, slot: str) -> None:
        assert slot == "slot"

    async def timeline_history(self, timeline: int) -> bytes:
        return self.server.histories[timeline]

    async def start_stream(self, slot: str, timeline: int, position: int) -> None:
        self.timeline, self.position = timeline, position
        self.server.streamed = True

    async def next_of_stream(self) -> WalData | KeepAlive | TimelineEnded:
        await asyncio.sleep(0)
        server = self.server
        if server.lose_after and self.pieces >= server.lose_after:
            raise ConnectionLost("lost")
        end = server.left_at.get(self.timeline, server.end(self.timeline))
        if self.position >= end:
            if self.timeline != server.timeline:
                return TimelineEnded()
            await asyncio.sleep(0.001)
            return KeepAlive(end, True)
        self.pieces += 1
        size = min(server.chance.randrange(1, 900), end - self.position)
        start = self.position
        self.position += size
        data = server.wal[self.timeline][start - BEGIN : start - BEGIN + size]
        return WalData(start, end, data)

    async def report(self, flushed: int) -> None:
        self.server.reported = max(self.server.reported, flushed)
        self.server.on_report(flushed)

    def close(self) -> None:
        self.closed = True


def chunks(content: Content) -> list[Chunk]:
    return [decode(record) for record in content.records if record is not None]


def durable(content: Content, timeline: int) -> bytes:
    """The WAL of a timeline in the log; it must be one piece."""
    found = b""
    for chunk in chunks(content):
        if chunk.kind == WAL and chunk.timeline == timeline:
            assert chunk.start == BEGIN + len(found), "a hole, or something twice"
            found += chunk.data
    return found


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in the programs
        await asyncio.sleep(0)


async def shipped(server: Server, log: MemoryLog, name: str = "db-1") -> list[str]:
    """Ship until everything is reported; what the shipper said. Raises what ended it."""
    said: list[str] = []
    shipper = Shipper(log, name, "slot", server.connect, said.append)
    running = asyncio.create_task(shipper.run())
    try:
        await until(lambda: server.reported >= server.end(server.timeline) or running.done())
        if running.done():
            running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return said


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.postgres.sessions.PAUSE_S", 0.0)


# --- a stream -------------------------------------------------------------------------------------


class Pieces:
    """A source that gives what it has, and then waits."""

    def __init__(self, *pieces: WalData | KeepAlive | TimelineEnded) -> None:
        self.pieces = list(pieces)
        self.reports: list[int] = []
        self.given = 0

    async def next_of_stream(self) -> WalData | KeepAlive | TimelineEnded:
        if not self.pieces:
            await asyncio.Event().wait()
        self.given += 1
        return self.pieces.pop(0)

    async def report(self, flushed: int) -> None:
        self.reports.append(flushed)


def begin(position: int = BEGIN) -> Chunk:
    return Chunk(WAL, 20, 1, SYSTEM, position, b"")


def row_of(count: int, size: int = 10) -> list[WalData]:
    return [
        WalData(BEGIN + number * size, 0, bytes([number % 256]) * size) for number in range(count)
    ]


async def settled() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


async def test_nothing_is_reported_before_its_ack() -> None:
    """INV-PG-FLUSHED."""
    log, source = MemoryLog(), Pieces(*row_of(5), TimelineEnded())
    log.hold = asyncio.Event()
    running = asyncio.create_task(Stream(log, source, begin(), 1).run())
    await settled()
    assert len(log.content.records) == 5
    assert set(source.reports) == {BEGIN}
    log.hold.set()
    await running
    assert source.reports[-1] == BEGIN + 50


async def test_acks_count_in_the_order_of_the_appends() -> None:
    """INV-PG-FLUSHED: a later append that is acked first reports nothing."""
    acks = [asyncio.Event() for _ in range(3)]

    class Slow(MemoryLog):
        async def append(self, record, *, expected_lsn=None, timeout=None):
            number = len(self.appended)
            lsn = await super().append(record, expected_lsn=expected_lsn, timeout=timeout)
            await acks[number].wait()
            return lsn

    log, source = Slow(), Pieces(*row_of(3, APPEND_BYTES_MAX))
    running = asyncio.create_task(Stream(log, source, begin(), 1).run())
    await settled()
    assert len(log.appended) == 3
    acks[2].set()
    acks[1].set()
    await settled()
    assert set(source.reports) == {BEGIN}
    acks[0].set()
    await settled()
    assert source.reports[-1] == BEGIN + 3 * APPEND_BYTES_MAX
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_nothing_lands_behind_an_append_that_failed() -> None:
    """INV-PG-ORDER, INV-PG-FLUSHED."""
    log = MemoryLog()
    source = Pieces(*row_of(6, APPEND_BYTES_MAX))

    def fail(number: int) -> None:
        if number == 2:
            raise DeadlineExceeded("not in time")

    log.on_append = fail
    with pytest.raises((DeadlineExceeded, WrongExpectedLsn)):
        await Stream(log, source, begin(), 1).run()
    assert len(log.content.records) == 2
    assert max(source.reports) <= BEGIN + 2 * APPEND_BYTES_MAX


@pytest.mark.parametrize("start", [BEGIN + 1, BEGIN - 1, BEGIN + MIB])
async def test_a_hole_in_what_is_streamed_is_an_error(start: int) -> None:
    source = Pieces(WalData(start, 0, b"x"))
    log = MemoryLog()
    with pytest.raises(ShippingLost, match="what comes next"):
        await Stream(log, source, begin(), 1).run()
    assert not log.content.records


async def test_appends_under_way_and_wal_that_waits_are_bounded() -> None:
    log, source = MemoryLog(), Pieces(*row_of(60, APPEND_BYTES_MAX))
    log.hold = asyncio.Event()
    running = asyncio.create_task(Stream(log, source, begin(), 1).run())
    await settled()
    assert len(log.appended) == APPENDS_INFLIGHT_MAX
    waits = WAL_WAITING_BYTES_MAX // APPEND_BYTES_MAX
    assert source.given == APPENDS_INFLIGHT_MAX + waits + 1
    log.hold.set()
    await until(lambda: source.reports[-1] == BEGIN + 60 * APPEND_BYTES_MAX)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_comes_while_appends_are_under_way_shares_one() -> None:
    log, source = MemoryLog(), Pieces(*row_of(200), TimelineEnded())
    log.hold = asyncio.Event()
    running = asyncio.create_task(Stream(log, source, begin(), 1).run())
    await settled()
    log.hold.set()
    await running
    assert sum(map(len, log.appended)) == 200
    assert len(log.appended) <= APPENDS_INFLIGHT_MAX + 1


async def test_a_server_that_asks_is_answered() -> None:
    source = Pieces(KeepAlive(BEGIN, False), KeepAlive(BEGIN, True), TimelineEnded())
    await Stream(MemoryLog(), source, begin(), 1).run()
    assert source.reports == [BEGIN, BEGIN]


# --- from the log to where it goes on -------------------------------------------------------------


async def test_everything_is_shipped_and_reported() -> None:
    server, log = Server(), MemoryLog()
    said = await shipped(server, log)
    assert durable(log.content, 1) == server.wal[1]
    assert said == [f"streaming timeline 1 from {position_text(BEGIN)}"]
    assert (log.content.holder, log.content.epoch) == ("db-1", 1)


async def test_another_shipper_goes_on_where_the_log_ends() -> None:
    server, content = Server(), Content()
    await shipped(server, MemoryLog(content))
    server.wal[1] += b"more of it"
    said = await shipped(server, MemoryLog(content))
    assert durable(content, 1) == server.wal[1]
    assert said == [f"streaming timeline 1 from {position_text(server.end(1) - 10)}"]


@pytest.mark.parametrize("seed", range(30))
async def test_a_shipper_that_is_interrupted_loses_and_doubles_nothing(seed: int) -> None:
    """Connections are lost, appends fail before and behind their effect, acks are lost."""
    chance = random.Random(seed)
    server, log = Server(seed), MemoryLog()
    server.lose_after = chance.choice([0, 3, 20])

    def trouble(_: int) -> None:
        if chance.random() < 0.2:
            raise chance.choice([UnknownOutcome, NotReady, DeadlineExceeded, WrongExpectedLsn])

    log.on_append = trouble
    log.on_ack = trouble
    server.on_report = lambda flushed: _is_durable(log.content, flushed)
    async with asyncio.timeout(120):
        await shipped(server, log)
    assert durable(log.content, 1) == server.wal[1]


def _is_durable(content: Content, flushed: int) -> None:
    assert flushed <= BEGIN + len(durable(content, 1))


@pytest.mark.parametrize("seed", range(30))
async def test_a_shipper_that_is_killed_at_any_point_loses_and_doubles_nothing(seed: int) -> None:
    """Each is killed after some turns of the loop, and leaves what it had under way."""
    chance = random.Random(seed)
    server, content = Server(seed, 120_000), Content()
    server.on_report = lambda flushed: _is_durable(content, flushed)
    kills = 0
    while server.reported < server.end(1):
        log = MemoryLog(content)
        shipper = Shipper(log, "db-1", "slot", server.connect, lambda _: None)
        running = asyncio.create_task(shipper.run())
        for _ in range(chance.randrange(1, 60)):
            await asyncio.sleep(0)
        kills += not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert kills > 3
    assert durable(content, 1) == server.wal[1]


async def test_gaps_at_the_end_of_the_log_are_passed_over() -> None:
    server, content = Server(), Content()
    await shipped(server, MemoryLog(content))
    content.records += [None] * 23
    server.wal[1] += b"more of it"
    await shipped(server, MemoryLog(content))
    assert durable(content, 1) == server.wal[1]


async def test_a_log_that_is_truncated_to_its_end_says_nothing() -> None:
    server, content = Server(), Content()
    await shipped(server, MemoryLog(content))
    content.first_lsn = len(content.records) + 1
    server.wal[1] += b"more of it"
    with pytest.raises(WalMissing):
        await shipped(server, MemoryLog(content))


async def test_a_log_of_something_else_is_left_alone() -> None:
    content = Content([b"a record of another program"])
    with pytest.raises(ChunkError):
        await shipped(Server(), MemoryLog(content))
    assert len(content.records) == 1


# --- timelines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("back", [0, 500])
async def test_a_new_timeline_begins_with_its_history(back: int) -> None:
    server, content = Server(), Content()
    await shipped(server, MemoryLog(content))
    server.promote(back)
    server.reported = 0
    await shipped(server, MemoryLog(content))
    assert durable(content, 2) == server.wal[2]
    (history,) = [chunk for chunk in chunks(content) if chunk.kind == HISTORY]
    assert history.data == server.histories[2]


async def test_the_rest_of_an_old_timeline_is_shipped_first() -> None:
    server, content = Server(), Content()
    await shipped(server, MemoryLog(content))
    server.wal[1] += server.chance.randbytes(7000)
    server.promote()
    server.promote()
    server.reported = 0
    await shipped(server, MemoryLog(content))
    for timeline in (1, 2, 3):
        assert (
            durable(content, timeline)
            == (server.wal[timeline][: server.left_at.get(timeline, 1 << 60) - BEGIN])
        )


@pytest.mark.parametrize("seed", range(10))
async def test_timelines_under_trouble(seed: int) -> None:
    chance = random.Random(seed)
    server, log = Server(seed, 5000), MemoryLog()
    server.promote(chance.randrange(100), 5000)
    server.promote(chance.randrange(100), 5000)
    server.lose_after = 7

    def trouble(_: int) -> None:
        if chance.random() < 0.2:
            raise chance.choice([UnknownOutcome, DeadlineExceeded])

    log.on_append = log.on_ack = trouble
    # The log has the beginning of timeline 1 already.
    first = Chunk(WAL, 20, 1, SYSTEM, BEGIN, server.wal[1][:100])
    log.content.records.append(first.encode())
    async with asyncio.timeout(120):
        await shipped(server, log)
    assert durable(log.content, 3) == server.wal[3]
    assert [chunk.timeline for chunk in chunks(log.content) if chunk.kind == HISTORY] == [2, 3]


async def test_a_server_of_an_older_timeline_is_turned_away_without_a_trace() -> None:
    server, content = Server(), Content()
    await shipped(server, MemoryLog(content))
    old = Server()
    server.promote()
    server.reported = 0
    await shipped(server, MemoryLog(content))
    before = (content.epoch, len(content.records))
    with pytest.raises(ShippingRefused, match="another server has taken over"):
        await shipped(old, MemoryLog(content))
    assert (content.epoch, len(content.records)) == before


# --- who has the log ------------------------------------------------------------------------------


async def test_a_shipper_of_another_name_is_turned_away_without_a_trace() -> None:
    """INV-PG-OWNER."""
    server, content = Server(), Content()
    await shipped(server, MemoryLog(content))
    server.wal[1] += b"more of it"
    before = content.epoch
    with pytest.raises(LogTaken, match="'db-1' has the log"):
        await shipped(server, MemoryLog(content), "db-2")
    assert content.epoch == before


async def test_a_shipper_that_was_replaced_reports_nothing_more() -> None:
    """INV-PG-OWNER: fenced in the middle, it ends, and is turned away when it is started again."""
    server, content = Server(size=400_000), Content()
    log = MemoryLog(content)
    said: list[str] = []
    shipper = Shipper(log, "db-1", "slot", server.connect, said.append)
    running = asyncio.create_task(shipper.run())
    await until(lambda: bool(content.records))
    await take_over(MemoryLog(content), "db-2", 1.0)
    there = len(durable(content, 1))
    with pytest.raises(LogTaken, match="db-2"):
        await running
    assert len(durable(content, 1)) == there
    assert server.reported <= BEGIN + there < server.end(1)
    with pytest.raises(LogTaken):
        await shipped(server, MemoryLog(content))
    assert content.holder == "db-2"


async def test_the_newer_of_two_shippers_of_one_name_has_the_log() -> None:
    """INV-PG-OWNER."""
    content = Content()
    older, newer = MemoryLog(content), MemoryLog(content)
    first = Ownership(older, "db-1")
    await first.acquire(1.0)
    await first.acquire(1.0)
    await Ownership(newer, "db-1").acquire(1.0)
    with pytest.raises(LogTaken, match="another shipper"):
        await first.acquire(1.0)
    assert content.epoch == newer.writer_epoch


async def test_an_epoch_whose_answer_was_lost_is_ours() -> None:
    """INV-PG-OWNER: only an attempt of our own may have taken it."""
    content = Content()

    class Losing(MemoryLog):
        failure: LogServiceError | None = None

        async def acquire_writer(self, holder: str, **arguments: object) -> int:
            epoch = await super().acquire_writer(holder, **arguments)
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
            return epoch

    log = Losing(content)
    ownership = Ownership(log, "db-1")
    await ownership.acquire(1.0)
    stale = StaleEpoch(holder="db-1", epoch=2, **{AFTER_UNKNOWN: "true"})
    for failure in (UnknownOutcome("lost"), stale):
        log.failure = failure
        with pytest.raises(UnknownOutcome):
            await ownership.acquire(1.0)
        await ownership.acquire(1.0)
    assert content.epoch == log.writer_epoch == 5
    log.failure = StaleEpoch(holder="db-1", epoch=2)
    with pytest.raises(LogTaken):
        await ownership.acquire(1.0)


@pytest.mark.parametrize("code", ["58P01", "42501"])
async def test_what_cannot_get_better_ends_the_shipper(code: str) -> None:
    server = Server()

    class Refusing(ServerConnection):
        async def start_stream(self, slot: str, timeline: int, position: int) -> None:
            raise ServerError(code, "no")

    async def connect() -> ServerConnection:
        return Refusing(server)

    server.connect = connect
    with pytest.raises(ServerError, match="no"):
        await shipped(server, MemoryLog())


# --- files out of the log -------------------------------------------------------------------------


async def log_of(server: Server) -> MemoryLog:
    log = MemoryLog()
    await shipped(server, log)
    return log


async def test_segments_are_the_bytes_of_the_wal() -> None:
    server = Server(size=3 * MIB + 12_345)
    log = await log_of(server)
    for number in range(3):
        start = BEGIN + number * MIB
        found = await wal_log.file_named(log, segment_name(1, start, 20))
        assert found == server.wal[1][number * MIB : (number + 1) * MIB]
    last = await wal_log.segment(log, 1, BEGIN + 3 * MIB, 20)
    assert last == server.wal[1][3 * MIB :] + bytes(MIB - 12_345)
    assert await wal_log.segment(log, 1, BEGIN + 4 * MIB, 20) is None
    assert await wal_log.segment(log, 2, BEGIN, 20) is None


async def test_a_log_that_ends_with_a_segment_has_no_next_one() -> None:
    log = await log_of(Server(size=MIB))
    assert await wal_log.segment(log, 1, BEGIN, 20) is not None
    assert await wal_log.segment(log, 1, BEGIN + MIB, 20) is None


async def test_segments_and_histories_of_timelines() -> None:
    server = Server(size=MIB + 5000)
    log = await log_of(server)
    server.promote(back=1000, size=MIB)
    server.reported = 0
    await shipped(server, log)
    whole = {timeline: wal + bytes(2 * MIB) for timeline, wal in server.wal.items()}
    second = BEGIN + MIB
    assert await wal_log.segment(log, 1, second, 20) == whole[1][MIB : 2 * MIB]
    assert await wal_log.segment(log, 2, second, 20) == whole[2][MIB : 2 * MIB]
    assert await wal_log.segment(log, 2, second + MIB, 20) == whole[2][2 * MIB : 3 * MIB]
    # Before it left timeline 1 it has no files of its own: PostgreSQL looks for those of 1 then.
    assert await wal_log.segment(log, 1, second + MIB, 20) is None
    assert await wal_log.file_named(log, "00000002.history") == server.histories[2]
    assert await wal_log.file_named(log, "00000001.history") is None
    assert await wal_log.file_named(log, "00000003.history") is None


async def test_positions_are_found_by_bisection_among_gaps() -> None:
    server = Server(size=600_000)
    log = await log_of(server)
    chance = random.Random(3)
    records: list[bytes | None] = []
    for record in log.content.records:
        records += [None] * chance.choice([0, 0, 0, 1, 9])
        records.append(record)
    log.content.records = records + [None] * 5
    for _ in range(50):
        position = BEGIN + chance.randrange(600_000)
        log.reads = 0
        lsn = await wal_log.lsn_at(log, 1, position)
        record = records[lsn - 1]
        assert record is not None
        chunk = decode(record)
        assert chunk.start <= position < chunk.end
        assert log.reads < 400
    assert await wal_log.segment(log, 1, BEGIN, 20) == server.wal[1] + bytes(MIB - 600_000)


async def test_a_hole_in_the_log_is_an_error() -> None:
    """INV-PG-ORDER."""
    log = await log_of(Server())
    del log.content.records[5]
    with pytest.raises(ChunkError, match="follows"):
        await wal_log.segment(log, 1, BEGIN, 20)


async def test_wal_that_is_truncated_is_not_the_end_of_the_wal() -> None:
    """PostgreSQL would begin a new timeline there."""
    log = await log_of(Server(size=2 * MIB))
    log.content.first_lsn = await wal_log.lsn_at(log, 1, BEGIN + 10_000)
    with pytest.raises(WalMissing):
        await wal_log.segment(log, 1, BEGIN, 20)
    log.content.first_lsn = await wal_log.lsn_at(log, 1, BEGIN + MIB + 10_000)
    for start in (BEGIN, BEGIN + MIB):
        with pytest.raises(WalMissing):
            await wal_log.segment(log, 1, start, 20)


async def test_an_empty_log_has_no_files() -> None:
    assert await wal_log.file_named(MemoryLog(), segment_name(1, BEGIN, 20)) is None
    assert await wal_log.file_named(MemoryLog(), "00000002.history") is None


async def test_other_names_are_no_files() -> None:
    log = await log_of(Server())
    assert await wal_log.file_named(log, "backup_label") is None


# --- truncation -----------------------------------------------------------------------------------


async def test_a_truncation_keeps_what_the_backup_needs() -> None:
    server = Server(size=3 * MIB)
    log = await log_of(server)
    start = BEGIN + MIB
    backup = BackupStart(1, start + 777, segment_name(1, start, 20))
    lsn = await truncate_below(log, "db-1", backup)
    assert log.content.first_lsn == lsn + 1 > 1
    assert await wal_log.segment(log, 1, start, 20) == server.wal[1][MIB : 2 * MIB]
    oldest = log.content.records[lsn]
    assert oldest is not None
    assert decode(oldest).start <= start < decode(oldest).end


async def test_a_truncation_is_refused() -> None:
    log = await log_of(Server(size=MIB))
    behind = BackupStart(1, BEGIN + 2 * MIB, segment_name(1, BEGIN + 2 * MIB, 20))
    with pytest.raises(WalMissing, match="nothing of"):
        await truncate_below(log, "db-1", behind)
    with pytest.raises(LogTaken):
        await truncate_below(log, "db-2", behind)
    with pytest.raises(WalMissing, match="empty"):
        await truncate_below(MemoryLog(), "db-1", behind)
    assert log.content.first_lsn == 1
