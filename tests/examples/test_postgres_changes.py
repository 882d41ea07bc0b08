"""The shipper of changes, without PostgreSQL and without a log service: what it reports, where it
goes on, and what is in the log when it is killed at any point.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import pytest
from logservice_client import DeadlineExceeded, UnknownOutcome

from examples.postgres.ownership import LogTaken, take_over
from examples.postgres.protocol import ConnectionLost, KeepAlive, ServerError, WalData
from examples.postgres.replication import Answer, System
from examples.postgres.wal_position import position_text
from examples.postgres_changes.appends import APPEND_BYTES_MAX
from examples.postgres_changes.change import BEGIN_COPY, KEYS, Change, Entry, Mark, decode
from examples.postgres_changes.keys import keys_of_record
from examples.postgres_changes.log_end import EndMissing, end_of
from examples.postgres_changes.shipper import Shipper
from examples.postgres_changes.stream import MARK_BYTES
from examples.postgres_changes.transactions import ShippingRefused
from tests.examples import pgoutput_messages as pg
from tests.examples.memory_log import Content, MemoryLog

SYSTEM = 77
BEGIN = 1000
ROWS_AT_FIRST = 5
LATE_IDS = 8


@dataclass
class Transaction:
    """A commit record from `commit` to `end`, and the ids that it inserted."""

    commit: int
    end: int
    ids: list[int]

    def relation(self, at: int) -> int:
        """The table of the id there: `t`, or one that the copy does not have."""
        return 1 if at < LATE_IDS else 2


class Server:
    """A PostgreSQL: its transactions, and a slot."""

    def __init__(self, seed: int = 1, transactions: int = 30, rows_max: int = 12) -> None:
        self.chance = random.Random(seed)
        self.system = SYSTEM
        self.rows_max = rows_max
        self.position = BEGIN
        self.transactions: list[Transaction] = []
        self.next_id = 100
        self.slot: int | None = None  # what was reported to it
        self.copies = 0
        self.on_report: Callable[[int], None] = lambda _: None
        self.lose_copies = 0
        """End so many connections in the middle of a copy."""
        self.lose_after = 0
        """End each connection after so many messages; 0: never."""
        self.tells_otherwise = False
        """A transaction that is told again is another one."""
        self.asks = False
        """Keep-alives want an answer at once."""
        self.pending = transactions

    def work(self, transactions: int) -> None:
        for _ in range(transactions):
            rows = self.chance.randrange(1, self.rows_max)
            start = self.position + self.chance.randrange(0, 50)
            ids = list(range(self.next_id, self.next_id + rows))
            self.next_id += rows
            self.position = start + 40
            self.transactions.append(Transaction(start, self.position, ids))

    def written(self, wal_bytes: int) -> None:
        """WAL without a change for us."""
        self.position += wal_bytes

    def crash(self) -> None:
        """What was reported last is forgotten: the slot's file is older."""
        assert self.slot is not None
        self.slot = max(BEGIN, self.slot - 200)

    async def connect(self) -> ServerConnection:
        return ServerConnection(self)


class ServerConnection:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.left: list[bytes] = []
        self.sent = 0
        self.next = 0
        self.known = self.late_known = False

    async def identify(self) -> System:
        return System(self.server.system, 1, self.server.position, 24)

    async def query(self, text: str) -> Answer:
        server = self.server
        if "FROM pg_replication_slots" in text:
            if server.slot is None:
                return Answer([], [])
            where = position_text(server.slot).encode()
            return Answer([[b"pgoutput", b"postgres", where]], [])
        if "unnest(p.attnames)" in text:
            return Answer([[b"public", b"t", None, b"r", one] for one in (b"id", b"word")], [])
        if "JOIN pg_index" in text:
            return Answer([[b"public", b"t", b"id"]], [])
        if text.startswith("DROP_REPLICATION_SLOT"):
            server.slot = None
            return Answer([], [])
        if text.startswith("CREATE_REPLICATION_SLOT"):
            assert server.slot is None
            server.slot = server.position
            where = position_text(server.slot).encode()
            return Answer([[b"slot", where, None, b"pgoutput"]], [])
        snapshot = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        assert text in (snapshot, "COMMIT") or "FROM pg_publication " in text
        return Answer([[b"1"]], [])

    async def rows(self, text: str) -> AsyncGenerator[list[bytes | None]]:
        assert text == 'SELECT "id", "word" FROM ONLY "public"."t"'
        self.server.copies += 1
        for number in range(ROWS_AT_FIRST):
            if number == 2 and self.server.copies <= self.server.lose_copies:
                raise ConnectionLost("lost")
            yield [b"%d" % number, None]
        self.server.work(self.server.pending)  # who writes does not wait for the copy
        self.server.pending = 0

    async def start_changes(self, slot: str, position: int, publication: str) -> None:
        server = self.server
        assert (slot, publication) == ("slot", "publication")
        assert server.slot is not None
        begin = max(position, server.slot)
        self.next = sum(one.commit < begin for one in server.transactions)

    def _told(self, one: Transaction) -> list[bytes]:
        messages = [pg.begin(one.commit)]
        if not self.known:
            messages.append(pg.relation(1, "t", ["id", "word"], ["id"]))
            self.known = True
        if len(one.ids) > LATE_IDS and not self.late_known:
            messages.append(pg.relation(2, "late", ["id", "word"], ["id"]))
            self.late_known = True
        word = str(self.server.chance.random()) if self.server.tells_otherwise else "word"
        messages += [pg.insert(one.relation(at), str(id_), word) for at, id_ in enumerate(one.ids)]
        return [*messages, pg.commit(one.commit, one.end)]

    async def next_of_stream(self) -> WalData | KeepAlive:
        await asyncio.sleep(0)
        server = self.server
        if server.lose_after and self.sent >= server.lose_after:
            for _ in range(30):  # what has come is on its way
                await asyncio.sleep(0)
            raise ConnectionLost("lost")
        if not self.left:
            if self.next == len(server.transactions):
                await asyncio.sleep(0.001)
                return KeepAlive(server.position, server.asks)
            self.left = self._told(server.transactions[self.next])
            self.next += 1
        self.sent += 1
        return WalData(0, 0, self.left.pop(0))

    async def report(self, flushed: int) -> None:
        assert self.server.slot is not None
        self.server.slot = max(self.server.slot, flushed)
        self.server.on_report(flushed)

    def close(self) -> None:
        self.server.chance.random()


def entries(content: Content) -> list[Entry]:
    return [decode(record) for record in content.records if record is not None]


def begins_copy(entry: Entry) -> bool:
    return isinstance(entry, Change) and entry.op == BEGIN_COPY


def check_log(server: Server, content: Content) -> None:
    """INV-PG-CHANGES: behind the last B each change once, in order, up to the last mark."""
    found = entries(content)
    begin = max(
        number
        for number, one in enumerate(found)
        if isinstance(one, Change) and one.op == BEGIN_COPY
    )
    changes = [one for one in found[begin:] if isinstance(one, Change)]
    marks = [one for one in found[begin:] if isinstance(one, Mark)]
    assert [one.op for one in changes[: ROWS_AT_FIRST + 2]] == ["B", "K"] + ["R"] * ROWS_AT_FIRST
    position = marks[0].end
    expected = [
        (one.commit, ("", "t", "late")[one.relation(at)], f'["{number}"]')
        for one in server.transactions
        if one.commit >= position
        for at, number in enumerate(one.ids)
    ]
    rows = [one for one in changes[ROWS_AT_FIRST + 2 :] if one.op != KEYS]
    assert [(one.commit, one.table, one.key) for one in rows] == expected
    check_keys(content, {table for _, table, _ in expected} | {"t"})
    assert marks[-1].end >= server.transactions[-1].end
    assert isinstance(found[-1], Mark)
    seq = 0
    for one in found[begin:]:
        assert (one.changes if isinstance(one, Mark) else one.seq) == seq
        seq = 0 if isinstance(one, Mark) else seq + 1


def check_keys(content: Content, tables: set[str]) -> None:
    """INV-PG-KEYS: each mark names the newest K, and one K is enough for a table."""
    newest, count = 0, 0
    for lsn, record in enumerate(content.records, 1):
        if record is None:
            continue
        entry = decode(record)
        if isinstance(entry, Mark):
            assert entry.keys == newest
        elif entry.op == KEYS:
            newest, count = lsn, count + 1
        elif begins_copy(entry):
            count = 0
    record = content.records[newest - 1]
    assert record is not None
    assert keys_of_record(decode(record)) == {("public", table): ("id",) for table in tables}
    assert count == len(tables)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in the programs
        await asyncio.sleep(0)


async def ended(running: asyncio.Task[None]) -> None:
    """Killed. A task group that fails, of Python 3.11, loses a cancellation of the same moment."""
    while not running.done():
        running.cancel()
        await asyncio.wait([running], timeout=0.01)


def made(
    server: Server, log: MemoryLog, name: str = "db-1", said: list[str] | None = None
) -> Shipper:
    say = (said if said is not None else []).append
    return Shipper(log, name, "slot", "publication", server.connect, say)  # type: ignore[arg-type]


async def shipped(server: Server, log: MemoryLog, name: str = "db-1") -> list[str]:
    """Ship until everything is reported; what the shipper said. Raises what ended it."""
    said: list[str] = []
    running = asyncio.create_task(made(server, log, name, said).run())

    def through() -> bool:
        last = server.transactions[-1].end if server.transactions else BEGIN
        marked = bool(log.content.records) and isinstance(entries(log.content)[-1], Mark)
        return marked and server.pending == 0 and (server.slot or 0) >= last

    try:
        await until(lambda: through() or running.done())
        if running.done():
            running.result()
    finally:
        await ended(running)
    return said


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small appends, so that transactions and copies are larger than one."""
    monkeypatch.setattr("examples.postgres.sessions.PAUSE_S", 0.0)
    monkeypatch.setattr("examples.postgres_changes.stream.APPEND_BYTES_MAX", 400)
    monkeypatch.setattr("examples.postgres_changes.copy.APPEND_BYTES_MAX", 200)
    assert APPEND_BYTES_MAX > 400


def watched(server: Server, log: MemoryLog) -> MemoryLog:
    """INV-PG-CHANGES-FLUSHED: whatever is reported is the end of a mark in the log, or before."""

    def reported(flushed: int) -> None:
        ends = [one.end for one in entries(log.content) if isinstance(one, Mark)]
        assert flushed <= max(ends)

    server.on_report = reported
    return log


async def test_a_copy_and_what_comes_behind_it() -> None:
    server, log = Server(), MemoryLog()
    said = await shipped(server, watched(server, log))
    assert said[:2] == ["copying all tables", f"copied {ROWS_AT_FIRST} rows as of 0/3E8"]
    check_log(server, log.content)
    assert max(map(len, log.appended)) > 1
    assert server.copies == 1


@pytest.mark.parametrize("seed", range(25))
async def test_killed_again_and_again(seed: int) -> None:
    """At an append that may have taken effect or not, whatever it holds; and PostgreSQL crashes."""
    server, content = Server(seed), Content()
    chance = random.Random(seed)
    for _ in range(12):
        log = watched(server, MemoryLog(content))
        last = chance.randrange(12)
        kill = asyncio.Event()

        def at(number: int, last: int = last, kill: asyncio.Event = kill) -> None:
            if number == last:
                kill.set()
                raise UnknownOutcome("killed")

        setattr(log, chance.choice(["on_append", "on_ack"]), at)
        running = asyncio.create_task(made(server, log).run())
        await until(lambda kill=kill: kill.is_set() or server.pending == 0)
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        await ended(running)
        if server.slot is not None and content.records and chance.random() < 0.3:
            server.crash()
        server.work(1)
    await shipped(server, watched(server, MemoryLog(content)))
    check_log(server, content)


@pytest.mark.parametrize("every", [1, 2, 3, 7, 20])
async def test_a_connection_that_is_lost_again_and_again(every: int) -> None:
    server, log = Server(rows_max=4), MemoryLog()
    server.lose_after = every + 5  # a whole transaction has to fit: nothing of it is remembered
    await shipped(server, watched(server, log))
    check_log(server, log.content)


@pytest.mark.parametrize("error", [DeadlineExceeded("late"), UnknownOutcome("gone")])
async def test_acks_that_are_lost(error: Exception) -> None:
    server, log = Server(), MemoryLog()
    chance = random.Random(3)

    def sometimes(number: int) -> None:
        if number % 5 == 4 and chance.random() < 0.7:
            raise error

    log.on_ack = sometimes
    await shipped(server, watched(server, log))
    check_log(server, log.content)


async def test_a_copy_that_was_not_finished_is_begun_anew() -> None:
    server, content = Server(), Content()
    log = MemoryLog(content)

    def at(number: int) -> None:
        if number == 1:
            raise asyncio.CancelledError

    log.on_append = at
    with pytest.raises(asyncio.CancelledError):
        await made(server, log).run()
    assert (await end_of(MemoryLog(content))).in_a_copy
    await shipped(server, watched(server, MemoryLog(content)))
    assert server.copies == 2
    check_log(server, content)


async def test_copies_that_postgresql_does_not_finish_leave_nothing() -> None:
    """Whatever ends them, and as often as it does."""
    server, log = Server(), MemoryLog()
    server.lose_copies = 5
    await shipped(server, watched(server, log))
    assert server.copies == 6
    assert [begins_copy(one) for one in entries(log.content)].count(True) == 1
    check_log(server, log.content)


async def test_a_new_copy_in_the_same_log() -> None:
    server, content = Server(), Content()
    await shipped(server, MemoryLog(content))
    server.slot = None
    server.work(3)
    with pytest.raises(ShippingRefused, match="no slot"):
        await made(server, MemoryLog(content)).run()
    await made(server, MemoryLog(content)).copy()
    server.work(3)
    await shipped(server, watched(server, MemoryLog(content)))
    check_log(server, content)
    assert sum(map(begins_copy, entries(content))) == 2


async def test_a_slot_that_somebody_else_has_read() -> None:
    server, content = Server(), Content()
    await shipped(server, MemoryLog(content))
    server.work(1)
    server.slot = server.position
    with pytest.raises(ShippingRefused, match="somebody else"):
        await made(server, MemoryLog(content)).run()


async def test_another_database_system() -> None:
    server, content = Server(), Content()
    await shipped(server, MemoryLog(content))
    server.system += 1
    with pytest.raises(ShippingRefused, match="database system 77"):
        await made(server, MemoryLog(content)).run()


async def test_a_transaction_that_is_told_otherwise_is_refused() -> None:
    """INV-PG-CHANGES: what is there already is compared, and not believed to be the same."""
    server, content = Server(transactions=1), Content()
    await shipped(server, MemoryLog(content))
    server.transactions.append(Transaction(server.position, server.position + 40, [*range(50)]))
    server.position += 40
    log = MemoryLog(content)
    before = len(content.records)

    def at(number: int) -> None:
        if number == 3:
            raise RuntimeError("killed")

    log.on_append = at
    with pytest.raises(RuntimeError, match="killed"):
        await made(server, log).run()
    assert len(content.records) > before
    assert not isinstance(entries(content)[-1], Mark)
    server.tells_otherwise = True
    with pytest.raises(ShippingRefused, match="make a new copy"):
        await made(server, MemoryLog(content)).run()
    server.tells_otherwise = False
    await shipped(server, MemoryLog(content))
    check_log(server, content)


async def test_two_at_once() -> None:
    """The newer one fences the older one, which ends; between them nothing is lost or doubled."""
    server, content = Server(), Content()
    first = asyncio.create_task(made(server, MemoryLog(content)).run())
    await until(lambda: server.pending == 0)
    server.work(20)
    second = asyncio.create_task(made(server, watched(server, MemoryLog(content))).run())
    with pytest.raises(LogTaken):
        await first

    def all_told() -> bool:
        """A slot is there before its copy is; the mark at the log's end comes behind both."""
        last = entries(content)[-1] if content.records else None
        return isinstance(last, Mark) and last.end >= server.transactions[-1].end

    await until(lambda: all_told() or second.done())
    await ended(second)
    check_log(server, content)


async def test_another_name_is_turned_away() -> None:
    server, content = Server(), Content()
    await shipped(server, MemoryLog(content))
    epoch = content.epoch
    with pytest.raises(LogTaken):
        await made(server, MemoryLog(content), "db-2").run()
    assert content.epoch == epoch
    await take_over(MemoryLog(content), "db-2", 1.0)  # type: ignore[arg-type]
    with pytest.raises(LogTaken):
        await made(server, MemoryLog(content), "db-1").run()


# --- WAL without a change -------------------------------------------------------------------------


async def test_a_server_that_asks_gets_what_is_there_confirmed() -> None:
    """It asks when it shuts down, and waits until it hears of everything."""
    server, log = Server(), MemoryLog()
    await shipped(server, watched(server, log))
    server.written(10)
    server.asks = True
    running = asyncio.create_task(made(server, log).run())
    await until(lambda: server.slot == server.position)
    await ended(running)
    last = entries(log.content)[-1]
    assert isinstance(last, Mark)
    assert (last.end, last.changes) == (server.position, 0)
    server.work(3)
    await shipped(server, watched(server, log))
    check_log(server, log.content)


async def test_much_wal_without_a_change_is_confirmed_without_being_asked() -> None:
    server, log = Server(), MemoryLog()
    await shipped(server, watched(server, log))
    server.written(MARK_BYTES)
    before = len(log.content.records)
    running = asyncio.create_task(made(server, log).run())
    for _ in range(300):
        await asyncio.sleep(0)
    assert len(log.content.records) == before
    server.written(1)
    await until(lambda: server.slot == server.position)
    await ended(running)
    assert len(log.content.records) == before + 1


# --- the end of the log ---------------------------------------------------------------------------


async def test_the_end_of_a_log() -> None:
    log = MemoryLog()
    end = await end_of(log)
    assert (end.mark, end.begun, end.in_a_copy) == (None, None, False)
    mark = Mark(5, 9, 1, SYSTEM, 0)
    change = Change("I", 20, 0, "public", "t", '["1"]', {})
    content = log.content
    content.records += [mark.encode(), None, None]
    for behind in range(200):
        end = await end_of(log)
        assert end.mark == mark
        assert end.begun_lsn == (4 if behind else 0)
        assert end.last_lsn == 3 + behind
        content.records.append(change.encode())
    content.first_lsn = 3
    with pytest.raises(EndMissing):
        await end_of(log)


async def test_errors_that_no_waiting_makes_better() -> None:
    server = Server()

    async def refused() -> ServerConnection:
        raise ServerError("28P01", "password authentication failed")

    shipper = Shipper(MemoryLog(), "a", "slot", "publication", refused, print)  # type: ignore[arg-type]
    with pytest.raises(ServerError, match=re.escape("28P01")):
        await shipper.run()
    assert server.slot is None
