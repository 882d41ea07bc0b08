"""INV-SPARK-WRITE without Spark: attempts that die, differ, work at once; stores that fail."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

import pyarrow as pa
import pytest
from logservice_client import SyncLogClient
from logservice_client.sync import SyncNamedSession
from logservice_wire.block import Block
from logservice_wire.codecs import codec_of
from logservice_wire.errors import PermissionDenied, SequenceReused, ShardNotFound
from logservice_wire.v1 import log_pb2
from pyspark_logservice.writing import blocks as blocks_module
from pyspark_logservice.writing.blocks import Blocks
from pyspark_logservice.writing.identity import Work
from pyspark_logservice.writing.options import WriteOptions
from pyspark_logservice.writing.writer import (
    DifferentRetryError,
    LostWriteError,
    Written,
    append_all,
)

from tests.client.fake_log import FakeLog
from tests.client.fake_server import FakeCluster, Fault

HOME, AWAY = 1, 2
Rows = Mapping[int, Sequence[bytes]]


class Died(Exception):
    """A task ends here."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block for every record."""
    monkeypatch.setattr(blocks_module, "BLOCK_RECORDS", 1)


@pytest.fixture
def cluster(cluster: FakeCluster) -> FakeCluster:
    cluster.logs[AWAY] = FakeLog(AWAY)
    return cluster


def work(partition: int = 3, epoch: int = 41) -> Work:
    session, job = f"spark-stream/q/{partition}", f"micro-batch {epoch} of query q"
    return Work("spark-stream/q", session, epoch, partition, job)


@contextmanager
def blocks_of(rows: Rows) -> Iterator[Blocks]:
    blocks = Blocks("shard", {log: log for log in rows}, HOME)
    try:
        for log, values in rows.items():
            logs = pa.array([log] * len(values), pa.int64())
            column = pa.array(values, pa.binary())
            blocks.add(pa.RecordBatch.from_arrays([logs, column], ["shard", "value"]))
        yield blocks
    finally:
        blocks.close()


def attempt(cluster: FakeCluster, rows: Rows, doing: Work | None = None) -> Written:
    endpoints = ",".join(cluster.endpoints)
    options = WriteOptions(endpoints=endpoints, logs=("1", "2"), rpc_timeout_s=30)
    with SyncLogClient(endpoints) as client, blocks_of(rows) as blocks:
        return append_all(client, options, doing or work(), HOME, blocks)


def dies_after(monkeypatch: pytest.MonkeyPatch, appends: int) -> None:
    """The next task dies when it is about to append one more."""
    left, append = [appends], SyncNamedSession.append

    def dying(session: SyncNamedSession, block: bytes, *, timeout: float | None = None) -> None:
        if not left[0]:
            monkeypatch.setattr(SyncNamedSession, "append", append)
            raise Died
        left[0] -= 1
        append(session, block, timeout=timeout)

    monkeypatch.setattr(SyncNamedSession, "append", dying)


def records(cluster: FakeCluster, log: int = HOME) -> list[bytes]:
    runs = [run.block for run in cluster.logs[log].runs if run.block]
    return [record for block in runs for record in Block.parse(block).records()]


ROWS: Rows = {HOME: [b"a", b"b", b"c"], AWAY: [b"x", b"y"]}


@pytest.mark.parametrize("appends", range(5))
def test_a_retry_goes_on_where_an_attempt_died(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, appends: int
) -> None:
    dies_after(monkeypatch, appends)
    with pytest.raises(Died):
        attempt(cluster, ROWS)
    assert len(records(cluster)) + len(records(cluster, AWAY)) == appends
    for _ in range(2):  # and a micro-batch that is run again when it was done
        assert attempt(cluster, ROWS) == Written(3, {HOME: 3, AWAY: 2})
        assert (records(cluster), records(cluster, AWAY)) == (ROWS[HOME], ROWS[AWAY])


DIFFERENT: dict[str, Rows] = {
    "another order": {HOME: [b"b", b"a", b"c"], AWAY: [b"x", b"y"]},
    "a row less": {HOME: [b"a", b"b", b"c"], AWAY: [b"x"]},
    "a row more": {HOME: [b"a", b"b", b"c", b"d"], AWAY: [b"x", b"y"]},
    "a row in another log": {HOME: [b"a", b"b"], AWAY: [b"x", b"y", b"c"]},
    "only another log": {AWAY: [b"a", b"b", b"c", b"x", b"y"]},
    "nothing": {},
    "other rows": {HOME: [b"1", b"2", b"3"], AWAY: [b"4", b"5"]},
}


@pytest.mark.parametrize("appends", [0, 1, 4, 5])
@pytest.mark.parametrize("rows", DIFFERENT.values(), ids=DIFFERENT)
def test_a_retry_that_differs_is_told_and_appends_nothing(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, rows: Rows, appends: int
) -> None:
    if appends < 5:
        dies_after(monkeypatch, appends)
        with pytest.raises(Died):
            attempt(cluster, ROWS)
    else:
        attempt(cluster, ROWS)
    before = (records(cluster), records(cluster, AWAY))
    with pytest.raises(DifferentRetryError, match="partition 3 of micro-batch 41 of query q"):
        attempt(cluster, rows)
    assert (records(cluster), records(cluster, AWAY)) == before
    attempt(cluster, ROWS)
    assert (records(cluster), records(cluster, AWAY)) == (ROWS[HOME], ROWS[AWAY])


Fields = Mapping[str, object]
KEYED: list[Fields] = [
    {"value": b"a", "key": b"k", "headers": [{"key": "h", "value": b"1"}]},
    {"value": b"b", "key": None, "headers": []},
    {"value": b"c", "key": b"", "headers": None},
]


def attempt_of_rows(
    cluster: FakeCluster, rows: Sequence[Fields], codec: str | None = None
) -> Written:
    endpoints = ",".join(cluster.endpoints)
    options = WriteOptions(endpoints=endpoints, logs=("1",), rpc_timeout_s=30, codec=codec)
    batch = pa.RecordBatch.from_pylist(rows, KEYED_SCHEMA)
    blocks = Blocks("", {}, HOME, more=("key", "headers"), codec=codec)
    try:
        blocks.add(batch)
        with SyncLogClient(endpoints) as client:
            return append_all(client, options, work(), HOME, blocks)
    finally:
        blocks.close()


KEYED_SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@pytest.mark.parametrize(
    "change",
    [
        {"key": b""},
        {"headers": [{"key": "h", "value": b"2"}]},
        {"headers": [{"key": "H", "value": b"1"}]},
    ],
)
def test_a_retry_with_another_key_or_header_is_told(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, change: Fields
) -> None:
    dies_after(monkeypatch, 1)
    with pytest.raises(Died):
        attempt_of_rows(cluster, KEYED)
    with pytest.raises(DifferentRetryError, match="partition 3 of micro-batch 41 of query q"):
        attempt_of_rows(cluster, [{**KEYED[0], **change}, *KEYED[1:]])
    assert records(cluster) == [b"a"]
    attempt_of_rows(cluster, KEYED)
    blocks = [Block.parse(run.block).columns() for run in cluster.logs[HOME].runs]
    assert list(chain.from_iterable(one.keys() for one in blocks)) == [b"k", None, b""]
    assert [pairs for one in blocks for pairs in one.headers()] == [{"h": b"1"}, {}, {}]


@pytest.mark.parametrize(("one", "other"), [("zstd", None), (None, "lz4"), ("lz4", "zstd")])
@pytest.mark.parametrize("appends", range(4))
def test_a_retry_goes_on_with_another_codec(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    one: str | None,
    other: str | None,
    appends: int,
) -> None:
    """And so with a codec whose library makes other bytes in another version."""
    dies_after(monkeypatch, appends)
    with contextlib.suppress(Died):
        attempt_of_rows(cluster, KEYED, one)
    for codec in (other, one):
        assert attempt_of_rows(cluster, KEYED, codec) == Written(3, {HOME: 3})
    assert records(cluster) == [b"a", b"b", b"c"]
    blocks = [Block.parse(run.block).data[5] for run in cluster.logs[HOME].runs]
    assert blocks == [codec_of(one)] * appends + [codec_of(other)] * (3 - appends)


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_another_attempt_appends_the_block_in_other_bytes_meanwhile(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """The log refuses ours as another block under that number; it is none."""
    append, woken = SyncNamedSession.append, threading.Event()

    def sleepy(session: SyncNamedSession, block: bytes, *, timeout: float | None = None) -> None:
        if not woken.is_set():
            woken.set()
            monkeypatch.setattr(SyncNamedSession, "append", append)
            dies_after(monkeypatch, ahead)
            with contextlib.suppress(Died):
                attempt_of_rows(cluster, KEYED, "lz4")
            monkeypatch.setattr(SyncNamedSession, "append", append)
        append(session, block, timeout=timeout)

    monkeypatch.setattr(SyncNamedSession, "append", sleepy)
    assert attempt_of_rows(cluster, KEYED, "zstd") == Written(3, {HOME: 3})
    assert records(cluster) == [b"a", b"b", b"c"]


def test_twins_with_different_codecs(cluster: FakeCluster) -> None:
    rows: list[Fields] = [{**KEYED[n % 3], "value": b"%d" % n} for n in range(90)]
    written: list[Written] = []
    twins = [
        threading.Thread(
            target=lambda codec=codec: written.append(  # type: ignore[misc]
                attempt_of_rows(cluster, rows, codec)
            )
        )
        for codec in ("zstd", "lz4", None)
    ]
    for twin in twins:
        twin.start()
    for twin in twins:
        twin.join()
    assert written == [Written(3, {HOME: 90})] * 3
    assert records(cluster) == [b"%d" % n for n in range(90)]


def test_a_number_that_the_log_has_and_does_not_count_is_an_error(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(session: SyncNamedSession, block: bytes, *, timeout: float | None = None) -> None:
        raise SequenceReused(lsn=1)

    monkeypatch.setattr(SyncNamedSession, "append", refused)
    with pytest.raises(DifferentRetryError):
        attempt_of_rows(cluster, KEYED, "zstd")
    assert records(cluster) == []


def test_an_attempt_that_is_refused_says_nothing_to_other_logs(cluster: FakeCluster) -> None:
    attempt(cluster, {HOME: [b"a"]})
    with pytest.raises(DifferentRetryError):
        attempt(cluster, ROWS)
    assert not cluster.logs[AWAY].named


def test_the_first_attempt_had_nothing_and_the_second_has_rows(cluster: FakeCluster) -> None:
    assert attempt(cluster, {}) == Written(3, {})
    with pytest.raises(DifferentRetryError):
        attempt(cluster, ROWS)
    assert records(cluster) == records(cluster, AWAY) == []


def test_micro_batches_and_partitions_are_work_of_their_own(cluster: FakeCluster) -> None:
    """Another number of partitions in the next micro-batch, too."""
    same: Rows = {HOME: [b"same"]}
    done = [
        work(p, epoch) for epoch, partitions in ((0, 2), (1, 4), (2, 1)) for p in range(partitions)
    ]
    for one in done:
        attempt(cluster, same, one)
        attempt(cluster, same, one)
    assert records(cluster) == [b"same"] * 7


def test_a_late_attempt_of_an_earlier_micro_batch_is_refused(cluster: FakeCluster) -> None:
    attempt(cluster, ROWS, work(epoch=41))
    attempt(cluster, {HOME: [b"next"]}, work(epoch=42))
    before = records(cluster)
    with pytest.raises(LostWriteError, match="partition 3 of micro-batch 41 of query q"):
        attempt(cluster, ROWS, work(epoch=41))
    assert records(cluster) == before == [*ROWS[HOME], b"next"]


def test_a_new_partition_of_an_earlier_micro_batch_is_refused(cluster: FakeCluster) -> None:
    """A checkpoint was set back, and the micro-batch is cut otherwise now."""
    attempt(cluster, ROWS, work(epoch=42))
    with pytest.raises(LostWriteError, match="partition 7 of micro-batch 41 of query q"):
        attempt(cluster, {HOME: [b"doubled"]}, work(7, epoch=41))
    assert records(cluster) == ROWS[HOME]


def test_a_late_task_of_an_earlier_micro_batch_appends_no_more(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had opened its session long before, and wakes up between two blocks."""
    append, woken = SyncNamedSession.append, threading.Event()

    def sleepy(session: SyncNamedSession, block: bytes, *, timeout: float | None = None) -> None:
        if session.appended == 1 and not woken.is_set():
            woken.set()
            monkeypatch.setattr(SyncNamedSession, "append", append)
            attempt(cluster, ROWS, work(epoch=41))
            attempt(cluster, {HOME: [b"p", b"q"]}, work(epoch=42))
        append(session, block, timeout=timeout)

    monkeypatch.setattr(SyncNamedSession, "append", sleepy)
    with pytest.raises(LostWriteError):
        attempt(cluster, ROWS, work(epoch=41))
    assert records(cluster) == [*ROWS[HOME], b"p", b"q"]
    assert records(cluster, AWAY) == ROWS[AWAY]


def test_a_session_that_is_gone_is_no_new_start(cluster: FakeCluster) -> None:
    attempt(cluster, ROWS)
    cluster.logs[HOME].fork(b"l" * 16, keep=1)
    for epoch in (41, 42):
        with pytest.raises(LostWriteError, match="was continued by force"):
            attempt(cluster, ROWS, work(epoch=epoch))
    assert records(cluster) == [b"a"]


def test_a_log_that_says_to_have_more_than_there_is_is_not_believed(cluster: FakeCluster) -> None:
    """A task that believed it would be done, with nothing of it in the log."""

    def more(answer: log_pb2.OpenSessionResponse) -> None:
        answer.appended = 99

    cluster.lie = more
    with pytest.raises(LostWriteError, match="has 99 blocks of it, of 3"):
        attempt(cluster, ROWS)
    assert records(cluster) == []


def test_a_log_that_is_not_there_keeps_the_whole_task_out(cluster: FakeCluster) -> None:
    del cluster.logs[AWAY]
    with pytest.raises(ShardNotFound):
        attempt(cluster, ROWS)
    assert records(cluster) == []


def test_a_log_that_may_not_be_written_keeps_the_whole_task_out(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise PermissionDenied("append over shard 2")

    monkeypatch.setattr(cluster.logs[AWAY], "open_named", refuse)
    with pytest.raises(PermissionDenied):
        attempt(cluster, ROWS)
    assert records(cluster) == []


@pytest.mark.parametrize("seed", range(10))
def test_twins_under_faults(cluster: FakeCluster, seed: int) -> None:
    """Two attempts at the same time, whose answers get lost: every row once, in order."""
    draw = random.Random(seed)
    rows: Rows = {log: [b"%d-%d" % (log, n) for n in range(90)] for log in (HOME, AWAY)}
    cluster.faults.extend(
        draw.choice([Fault(), Fault(), Fault(), Fault(lost="before"), Fault(lost="after")])
        for _ in range(200)
    )
    written: list[Written] = []
    twins = [
        threading.Thread(target=lambda: written.append(attempt(cluster, rows))) for _ in range(2)
    ]
    for twin in twins:
        twin.start()
    for twin in twins:
        twin.join()
    assert written == [Written(3, {HOME: 90, AWAY: 90})] * 2
    assert (records(cluster), records(cluster, AWAY)) == (rows[HOME], rows[AWAY])


def test_twins_that_differ_never_mix(cluster: FakeCluster) -> None:
    one: Rows = {HOME: [b"1-%d" % n for n in range(50)]}
    two: Rows = {HOME: [b"2-%d" % n for n in range(50)]}
    failed: list[DifferentRetryError] = []

    def run(rows: Rows) -> None:
        try:
            attempt(cluster, rows)
        except DifferentRetryError as error:
            failed.append(error)

    twins = [threading.Thread(target=run, args=[rows]) for rows in (one, two)]
    for twin in twins:
        twin.start()
    for twin in twins:
        twin.join()
    assert len(failed) == 1
    assert records(cluster) in (one[HOME], two[HOME])
