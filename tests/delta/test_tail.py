"""tail and ``logservice-table``: a real cluster's logs in a real Delta table."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from logservice_client import LogClient, Records, SyncLogClient
from logservice_client.testing import Cluster, local_cluster
from logservice_delta import LogName, LogTable, Pace, TableConflict, tail
from logservice_delta.command import parse_arguments
from logservice_delta.tail import ITEM_BYTES, Waiting
from logservice_wire.block import Block, encode_block
from logservice_wire.column_block import Binary, Parts, block_of_parts, encode_columns
from logservice_wire.errors import CorruptBlock, Truncated
from logservice_wire.v1 import log_pb2

from tests.client.fake_server import FakeCluster
from tests.delta.rows import lsns, values
from tests.waiting import eventually
from tests.wire.test_wide_block import LIES

pytestmark = pytest.mark.processes

RUN_S = 120
CLIENT = str(Path(__file__).parents[2] / "client")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with local_cluster(stores=3, logs=0) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[SyncLogClient]:
    with cluster.client() as client:
        yield client


def command(cluster: Cluster, table: Path, *words: object) -> list[str]:
    program = [sys.executable, "-m", "logservice_delta.command", "--table", str(table)]
    return program + [str(one) for one in words]


def environment(cluster: Cluster) -> dict[str, str]:
    return dict(os.environ) | cluster.environment


def run(cluster: Cluster, table: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(cluster, table, *words),
        env=environment(cluster),
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )


def said(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def tail_of(
    cluster: Cluster, shard: int, uri: Path, **more: Any
) -> tuple[int, list[tuple[int, int]]]:
    commits: list[tuple[int, int]] = []
    async with cluster.async_client() as client:
        log = client.shard(shard)
        await log.status()
        assert log.lineage is not None
        table = LogTable.open(str(uri), LogName("c", shard), log.lineage)
        rows = await tail(log, table, committed=lambda *commit: commits.append(commit), **more)
    return rows, commits


def test_it_goes_on_where_the_table_is(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    log = client.shard(client.hakeeper.create_shard(name="orders"))
    expected: dict[int, bytes] = {}
    ends: list[dict[str, Any]] = []
    for part in range(3):
        records = [b"%d/%d" % (part, number) for number in range(100 + part)]
        first = log.append(records)
        expected |= dict(enumerate(records, first))
        ends.append(said(run(cluster, tmp_path / "t", "--log", "orders"))[-1])
    assert [(one["rows"], one["last_lsn"], one["ended"]) for one in ends] == [
        (100, 100, "tail"),
        (101, 201, "tail"),
        (102, 303, "tail"),
    ]
    assert values(tmp_path / "t") == expected
    # Nothing new is no commit.
    (_, again) = said(run(cluster, tmp_path / "t", "--log", log.shard_id))
    assert (again["rows"], again["version"]) == (0, ends[-1]["version"])
    times = DeltaTable(str(tmp_path / "t")).to_pyarrow_table()["timestamp"].to_pylist()
    assert all(abs(one.timestamp() - time.time()) < 3600 for one in times)


async def test_gaps_have_no_rows(tmp_path: Path) -> None:
    """On the fake: a leader judges before it appends, so real ones leave gaps hardly ever."""
    fake = await FakeCluster.start(3)
    try:
        async with LogClient(fake.endpoints) as client:
            log = client.shard(1)
            await log.append([b"a", b"b"])
            fake.logs[1].put_gap(5, log_pb2.GAP_REASON_FENCED)
            assert await log.append(b"c") == 8
            fake.logs[1].put_gap(2, log_pb2.GAP_REASON_SEQUENCE)
            await log.status()
            assert log.lineage is not None
            for rows in (3, 0):
                table = LogTable.open(str(tmp_path / "t"), LogName("c", 1), log.lineage)
                assert await tail(log, table, until_tail=True) == rows
    finally:
        await fake.stop()
    assert values(tmp_path / "t") == {1: b"a", 2: b"b", 8: b"c"}


def at_ends(rows: pa.Table) -> int:
    """Up to the last record that is an end."""
    found = rows["value"].to_pylist()
    return max((number for number, value in enumerate(found, 1) if value == b"end"), default=0)


@pytest.mark.parametrize("commit_bytes", [1, 2000, 1 << 20])
async def test_rows_that_belong_together_come_together(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path, commit_bytes: int
) -> None:
    """INV-TABLE-4, with blocks that are cut anywhere, and with runs that end anywhere."""
    log = client.shard(client.hakeeper.create_shard())
    chance = random.Random(commit_bytes)
    expected: dict[int, bytes] = {}
    pace = Pace(commit_bytes, 3600.0)
    for part in range(6):
        for _ in range(10):
            records = [
                b"end" if chance.random() < 0.05 else b"%d/%d" % (part, number)
                for number in range(chance.randint(1, 30))
            ]
            expected |= dict(enumerate(records, log.append(records)))
        rows, commits = await tail_of(
            cluster, log.shard_id, tmp_path / "t", until_tail=True, pace=pace, ends=at_ends
        )
        assert rows == sum(count for count, _ in commits)
        assert all(expected[last] == b"end" for _, last in commits)
        whole = max(lsn for lsn, value in expected.items() if value == b"end")
        found = {lsn: value for lsn, value in expected.items() if lsn <= whole}
        assert values(tmp_path / "t") == found
        assert lsns(tmp_path / "t", log.shard_id) == sorted(found)


async def test_what_has_no_end_is_looked_at_when_it_has_doubled(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    log = client.shard(client.hakeeper.create_shard())
    for _ in range(300):
        log.append([b"x" * 100])
    looked: list[int] = []

    def never(rows: pa.Table) -> int:
        looked.append(len(rows))
        return 0

    rows, commits = await tail_of(
        cluster, log.shard_id, tmp_path / "t", until_tail=True, pace=Pace(1, 3600.0), ends=never
    )
    assert (rows, commits) == (0, [])
    assert looked[-1] == 300
    assert all(2 * a <= b for a, b in itertools.pairwise(looked[:-1]))


def test_keys_headers_and_times_have_columns(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    log = client.shard(client.hakeeper.create_shard())
    log.append([b"plain"])
    log.append_columns(
        [b"x", b"y"],
        keys=[b"k", None],
        times_us=[20, 21],
        headers=[{"a": b"1"}, {}],
        codec="zstd",
    )
    said(run(cluster, tmp_path / "t", "--log", log.shard_id))
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by("lsn")
    assert found["value"].to_pylist() == [b"plain", b"x", b"y"]
    assert found["key"].to_pylist() == [None, b"k", None]
    assert found["headers"].to_pylist() == [None, [("a", b"1")], []]
    assert [one.timestamp() for one in found["timestamp"].to_pylist()[1:]] == [2e-5, 2.1e-5]


def test_what_python_has_no_word_for(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    """Times of any 64 bits; a name that a record has twice, of which a table keeps both."""
    log = client.shard(client.hakeeper.create_shard())
    ends = [-(2**63), -62_135_596_800_000_001, 253_402_300_800_000_000, 2**63 - 1]
    log.append_columns([b""] * 4, keys=[b"", None, b"", None], times_us=ends)
    offsets = struct.pack("<iii", 0, 1, 2)
    named = (struct.pack("<ii", 0, 2), Binary(offsets, b"aa"), Binary(offsets, b"12"))
    log.append_block(block_of_parts(Parts(1, ONE, headers=named), 5))
    said(run(cluster, tmp_path / "t", "--log", log.shard_id))
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by("lsn")
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [*ends, 5]
    assert found["key"].to_pylist() == [b"", None, b"", None, None]
    assert found["headers"].to_pylist() == [*[None] * 4, [("a", b"1"), ("a", b"2")]]


def test_a_damaged_column_ends_it_and_says_where(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    log = client.shard(client.hakeeper.create_shard())
    log.append([b"one", b"two"])
    said(run(cluster, tmp_path / "t", "--log", log.shard_id))
    log.append([b"three"])
    named = (struct.pack("<ii", 0, 1), Binary(ONE.offsets, b"\xff"), Binary(ONE.offsets, b"v"))
    log.append_block(block_of_parts(Parts(1, ONE, headers=named), 5))
    log.append([b"five"])
    for _ in range(2):
        done = run(cluster, tmp_path / "t", "--log", log.shard_id)
        assert done.returncode == 1
        assert "name of a header" in done.stderr
        assert "first_lsn=4 last_lsn=4" in done.stderr
        assert values(tmp_path / "t") == {1: b"one", 2: b"two"}


def test_it_waits_for_opened_bytes() -> None:
    """A few bytes may be a great many."""
    block = Block.parse(encode_columns([bytes(10**7)], 0, codec="zstd"))
    waiting = Waiting()
    waiting.take(Records(1, 1, 1, block, 0))
    assert len(block.data) < 10**5
    assert waiting.size > 10**7


ONE = Binary(struct.pack("<ii", 0, 1), b"v")


async def test_a_few_bytes_that_are_much_memory_are_committed_by_what_they_are_opened_to(
    tmp_path: Path,
) -> None:
    """A writer may let 64 MiB of a log be 16 GiB of columns; nobody has them all at once."""
    bomb = encode_columns([bytes(1 << 20)], 7, codec="zstd")
    small = encode_columns([bytes(40_000)], 7, codec="lz4")
    assert len(bomb) < 8000
    assert len(small) < 600
    fake = await FakeCluster.start(1)
    try:
        async with LogClient(fake.endpoints) as client:
            log = client.shard(1)
            await log.status()
            for _ in range(6):
                await log.append_block(bomb)
            for _ in range(40):
                await log.append_block(small)
            assert log.lineage is not None
            table = LogTable.open(str(tmp_path / "t"), LogName("c", 1), log.lineage)
            commits: list[tuple[int, int]] = []
            pace = Pace(commit_bytes=2 << 20, commit_s=3600.0)
            await tail(
                log,
                table,
                until_tail=True,
                pace=pace,
                committed=lambda *commit: commits.append(commit),
            )
    finally:
        await fake.stop()
    assert commits == [(2, 2), (2, 4), (2, 6), (40, 46)]


def test_blocks_of_a_byte_count_as_what_they_are_in_memory() -> None:
    waiting = Waiting()
    block = Block.parse(encode_block([b"x"], 7))
    for lsn in range(1, 101):
        waiting.take(Records(lsn, 1, 1, block, 0))
    assert waiting.size == 100 * (len(block.data) + ITEM_BYTES)
    assert len(waiting.rows(1)) == 100


async def test_blocks_that_nobody_can_read(tmp_path: Path) -> None:
    """Who may append can append one, and no store looks. It ends the tail, or is left out."""
    lies = [LIES[name]() for name in ("negative", "a name that is not UTF-8")]
    fake = await FakeCluster.start(1)
    try:
        async with LogClient(fake.endpoints) as client:
            log = client.shard(1)
            assert await log.append(b"a") == 1
            for number, lie in enumerate(lies):
                assert await log.append_block(lie) == 2 + 2 * number
            assert await log.append(b"b") == 6
            assert log.lineage is not None
            for _ in range(2):
                table = LogTable.open(str(tmp_path / "t"), LogName("c", 1), log.lineage)
                with pytest.raises(CorruptBlock) as caught:
                    await tail(log, table, until_tail=True)
                assert caught.value.number("first_lsn") == 2
            told: list[tuple[int, int]] = []

            def unreadable(records: int, error: CorruptBlock) -> None:
                told.append((error.number("first_lsn"), records))

            assert await tail(log, table, until_tail=True, unreadable=unreadable) == 2
            assert told == [(2, 2), (4, 2)]
            # Where nothing else came the table goes on, too.
            assert await log.append_block(lies[0]) == 7
            table = LogTable.open(str(tmp_path / "t"), LogName("c", 1), log.lineage)
            assert await tail(log, table, until_tail=True, unreadable=unreadable) == 0
            table = LogTable.open(str(tmp_path / "t"), LogName("c", 1), log.lineage)
            assert table.last_lsn == 8
    finally:
        await fake.stop()
    assert values(tmp_path / "t") == {1: b"a", 6: b"b"}


def test_the_command_says_what_nobody_can_read(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    log = client.shard(client.hakeeper.create_shard())
    log.append(b"a")
    log.append_block(LIES["offsets that descend"]())
    log.append(b"b")
    done = run(cluster, tmp_path / "t", "--log", log.shard_id)
    assert done.returncode == 1
    assert "CORRUPT_BLOCK" in done.stderr
    assert "lsn=2" in done.stderr
    lines = said(run(cluster, tmp_path / "t", "--log", log.shard_id, "--leave-out-unreadable"))
    assert [(one["left_out"], one["lsn"]) for one in lines if "left_out" in one] == [(2, 2)]
    assert values(tmp_path / "t") == {1: b"a", 4: b"b"}


async def test_it_commits_by_bytes_and_by_time(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.async_client() as client:
        shard = await client.hakeeper.create_shard()
        stop = asyncio.Event()
        log = client.shard(shard)
        for number in range(8):
            await log.append(b"%d" % number + bytes(999))
        pace = Pace(commit_bytes=3000, commit_s=0.5)
        following = asyncio.create_task(
            tail_of(cluster, shard, tmp_path / "t", pace=pace, stop=stop)
        )

        def has(last: int) -> bool:
            with contextlib.suppress(Exception):
                return lsns(tmp_path / "t", shard) == list(range(1, last + 1))
            return False

        await eventually(lambda: has(8))  # the last two came by time
        await log.append(b"late")
        await eventually(lambda: has(9))
        stop.set()
        rows, commits = await following
    assert rows == 9
    assert commits[:2] == [(3, 3), (3, 6)]


def test_what_was_taken_is_committed_when_it_is_stopped(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    shard = client.hakeeper.create_shard()
    client.shard(shard).append([b"a", b"b"])
    process = subprocess.Popen(
        command(cluster, tmp_path / "t", "--log", shard, "--follow", "--commit-s", 3600),
        env=environment(cluster),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["from_lsn"] == 1
    client.shard(shard).append(b"c")
    time.sleep(1)  # it may take it, or not
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=RUN_S)
    *_, end = [json.loads(line) for line in told.splitlines()]
    assert (process.returncode, end["ended"]) == (0, "stopped")
    assert lsns(tmp_path / "t", shard) == list(range(1, end["last_lsn"] + 1))
    (*_, end) = said(run(cluster, tmp_path / "t", "--log", shard))
    assert lsns(tmp_path / "t", shard) == [1, 2, 3]


def test_it_can_be_stopped_while_nothing_answers(tmp_path: Path) -> None:
    """A listening socket that says nothing, so that no call comes back before its deadline."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = ["--endpoints", f"127.0.0.1:{silent.getsockname()[1]}", "--log", "a"]
        with (
            subprocess.Popen(
                [sys.executable, "-m", "logservice_delta.command", "--table", "t", *words],
                cwd=tmp_path,
                env=dict(os.environ) | {"PYTHONPATH": CLIENT},
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
            silent.accept()[0],
        ):
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=RUN_S)
    assert (process.returncode, told) == (
        1,
        "logservice-table: stopped; the table has what was committed\n",
    )
    assert not (tmp_path / "t").exists()


def test_truncated_before_the_table_has_it(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    log = client.shard(client.hakeeper.create_shard())
    log.append([b"a"] * 10)
    said(run(cluster, tmp_path / "t", "--log", log.shard_id))
    log.append([b"b"] * 10)
    log.truncate(15)
    done = run(cluster, tmp_path / "t", "--log", log.shard_id)
    assert done.returncode == 1
    assert "Truncated" in done.stderr
    assert "16" in done.stderr
    assert lsns(tmp_path / "t", log.shard_id) == list(range(1, 11))


def test_a_hold_keeps_what_is_not_in_the_table(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    log = client.shard(client.hakeeper.create_shard())
    log.append([b"a"] * 10)
    words = ("--log", log.shard_id, "--hold", "table", "--hold-ttl", 600)
    said(run(cluster, tmp_path / "t", *words))
    (held,) = log.status().holds
    assert (held.name, held.lsn) == ("table", 11), "it stands while the job is away"
    log.append([b"b"] * 10)
    assert log.truncate(20) == 10
    (*_, end) = said(run(cluster, tmp_path / "t", *words))
    assert end["last_lsn"] == 20
    assert lsns(tmp_path / "t", log.shard_id) == list(range(1, 21))


@pytest.mark.long
def test_killed_again_and_again_while_stores_die(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path
) -> None:
    """Two logs in one table; the program dies by SIGKILL, the leader's store too."""
    shards = [client.hakeeper.create_shard() for _ in range(2)]
    written = dict.fromkeys(shards, 0)
    ended = threading.Event()

    def write() -> None:
        with cluster.client() as near:
            while not ended.is_set():
                for shard in shards:
                    first = near.shard(shard).append([b"x" * 200] * 20, timeout=60)
                    written[shard] = first + 19

    writer = threading.Thread(target=write)
    writer.start()
    words = [word for shard in shards for word in ("--log", shard)]
    words += ["--follow", "--commit-s", 0.05]
    draw = random.Random(20261127)
    commits = 0
    try:
        for kill in range(8):
            with subprocess.Popen(
                command(cluster, tmp_path / "t", *words),
                env=environment(cluster),
                stdout=subprocess.PIPE,
            ) as process:
                assert process.stdout is not None
                for _ in range(draw.randint(4, 14)):
                    commits += "rows" in json.loads(process.stdout.readline())
                time.sleep(draw.random() * 0.1)
                process.send_signal(signal.SIGKILL)
            if kill in (2, 5):
                dead = cluster.leader(shards[0])
                cluster.kill(dead)
                cluster.start(dead)
    finally:
        ended.set()
        writer.join()
    assert commits > 8
    said(run(cluster, tmp_path / "t", *[w for s in shards for w in ("--log", s)]))
    for shard in shards:
        found = lsns(tmp_path / "t", shard)
        with cluster.client() as near:
            kept = [
                lsn
                for item in near.shard(shard).follow(1, until_tail=True)
                if hasattr(item, "block")
                for lsn in range(item.first_lsn, item.next_lsn)
            ]
        assert found == kept
        assert found[-1] >= written[shard]


async def test_of_two_followers_one_ends(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.async_client() as client:
        shard = await client.hakeeper.create_shard()
        log = client.shard(shard)
        stop = asyncio.Event()
        pace = Pace(commit_s=0.05)
        both = [
            asyncio.create_task(tail_of(cluster, shard, tmp_path / "t", pace=pace, stop=stop))
            for _ in range(2)
        ]
        while not any(one.done() for one in both):
            await log.append([b"x"] * 3)
            await asyncio.sleep(0.01)
        stop.set()
        ends = await asyncio.gather(*both, return_exceptions=True)
        assert [isinstance(one, TableConflict) for one in ends].count(True) == 1, ends
        await tail_of(cluster, shard, tmp_path / "t", until_tail=True)
        last = (await log.status()).position.applied_lsn
    assert lsns(tmp_path / "t", shard) == list(range(1, last + 1))


async def test_a_failure_of_the_follow_is_its_own(cluster: Cluster, tmp_path: Path) -> None:
    async with LogClient(cluster.endpoints) as client:
        shard = await client.hakeeper.create_shard()
        log = client.shard(shard)
        await log.append([b"a"] * 5)
        await log.truncate(3)
        with pytest.raises(Truncated):
            await tail_of(cluster, shard, tmp_path / "t", until_tail=True)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--log", "a"],
        ["--table", "t"],
        ["--log", "a", "--log", "a", "--table", "t"],
        ["--log", "a", "--table", "t", "--commit-mib", "0"],
        ["--log", "a", "--table", "t", "--commit-s", "-1"],
        ["--log", "a", "--table", "t", "--commit-s", "nan"],
        ["--log", "a", "--table", "t", "--storage-option", "key"],
    ],
)
def test_wrong_command_lines(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(words)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--log", "none-such"], "none-such"),
        (["--log", "999999"], "999999"),
        (["--log", "a", "--job", "a/b"], "job"),
        (["--log", "a", "--endpoints", "nonsense"], "nonsense"),
        (["--log", "a", "--tls-ca", "/no/such/file"], "/no/such/file"),
        (["--log", "a", "--hold", "h", "--hold-ttl", "1"], "ttl"),
    ],
)
def test_what_is_refused_makes_no_row(
    cluster: Cluster, client: SyncLogClient, tmp_path: Path, words: list[str], problem: str
) -> None:
    if not any(one.name == "a" for one in client.hakeeper.list_shards()):
        client.hakeeper.create_shard(name="a")
    done = run(cluster, tmp_path / "t", *words)
    assert done.returncode in (1, 2)
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
