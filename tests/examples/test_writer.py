"""The database's thread: goals, work between transactions, failures."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from logservice_wire.v1 import hakeeper_pb2

from examples.demo.watch import shard_is_full
from examples.sqlite_wal.writer import Writer


class SignallingLog:
    """Acks everything until `fail_at` appends; tells when a number of appends is reached."""

    def __init__(self) -> None:
        self.appends = 0
        self.next_lsn = 1
        self.fail_at: int | None = None
        self.reached = threading.Condition()

    def append(self, records: Sequence[bytes]) -> int:
        with self.reached:
            self.appends += 1
            if self.fail_at is not None and self.appends >= self.fail_at:
                raise TimeoutError("no leader")
            lsn, self.next_lsn = self.next_lsn, self.next_lsn + len(records)
            self.reached.notify_all()
            return lsn

    def wait_for(self, appends: int) -> None:
        with self.reached:
            assert self.reached.wait_for(lambda: self.appends >= appends, timeout=60)


@pytest.fixture
def log() -> SignallingLog:
    return SignallingLog()


@pytest.fixture
def writer(tmp_path: Path, log: SignallingLog) -> Iterator[Writer]:
    writer = Writer(tmp_path / "db", log, seed=4)
    writer.open()
    yield writer
    writer.end()


def test_it_writes_to_the_goal_and_no_further(writer: Writer, log: SignallingLog) -> None:
    writer.run_to(25)
    log.wait_for(25)
    assert writer.do(lambda: writer.acked) == 25
    assert writer.do(lambda: log.appends) == 25
    assert writer.shipper.acked.transactions == 25
    assert all(ack.began <= ack.ended for ack in writer.acks)


def test_work_runs_between_transactions_while_it_writes(writer: Writer) -> None:
    writer.run_to(100_000)
    counts = [writer.do(lambda: writer.acked) for _ in range(5)]
    assert counts == sorted(counts)
    writer.halt()
    assert writer.do(lambda: writer.acked) == writer.do(lambda: writer.acked)


def test_an_error_in_work_goes_to_the_caller_and_the_thread_lives(writer: Writer) -> None:
    with pytest.raises(ZeroDivisionError):
        writer.do(lambda: 1 // 0)
    assert writer.do(lambda: 7) == 7


def test_a_failed_append_stops_the_thread_and_is_told(writer: Writer, log: SignallingLog) -> None:
    log.fail_at = 10
    writer.run_to(100)
    writer.join(timeout=60)
    with pytest.raises(RuntimeError, match="no leader"):
        writer.check()
    with pytest.raises(RuntimeError, match="no leader"):
        writer.do(lambda: None)
    assert writer.acked == 9


def shard(*replicas: hakeeper_pb2.ReplicaInfo, joint: bool = False) -> hakeeper_pb2.ShardInfo:
    return hakeeper_pb2.ShardInfo(shard_id=1, replicas=replicas, joint=joint)


def replica(store: str, *, role: str = "voter", reported: bool = True) -> hakeeper_pb2.ReplicaInfo:
    return hakeeper_pb2.ReplicaInfo(store_id=store, role=role, reported=reported)


def test_a_full_shard_has_three_reporting_voters_on_three_live_stores() -> None:
    three = [replica("a"), replica("b"), replica("c")]
    alive = {"a", "b", "c", "d"}
    assert shard_is_full(shard(*three), alive)
    assert not shard_is_full(shard(*three[:2]), alive)
    assert not shard_is_full(shard(*three), alive - {"c"})
    assert not shard_is_full(shard(*three, replica("d", role="learner")), alive)
    assert not shard_is_full(shard(*three[:2], replica("d", reported=False)), alive)
    assert not shard_is_full(shard(*three[:2], replica("a")), alive)
    assert not shard_is_full(shard(*three, joint=True), alive)
