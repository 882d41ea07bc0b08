"""Our side of a row counts what was acked, reads it back, and notices what is not so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from logservice_client import LogClient

from bench.load.closed_loop import Sample
from bench.peers.peer import Workload
from bench.rows.ledger import Ledger, Wrong, tails
from bench.rows.ours import SHARD, Batches, Ours, running
from bench.rows.row import POINTS, Span, figure_of

pytestmark = pytest.mark.processes

WINDOW = Span(warmup_s=0.1, seconds=0.3)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    with running(tmp_path_factory.mktemp("bench") / "cluster", shards=3) as found:
        yield found


@pytest.mark.parametrize(
    "workload",
    [Workload(4, 16), Workload(6, 100, shards=3), Workload(3, 16, connections=3)],
    ids=["one client", "three shards", "three connections"],
)
async def test_all_that_was_sent_is_read_back(ours: Ours, workload: Workload) -> None:
    figure = await ours.appends(workload, **WINDOW)
    assert figure.checked >= figure.values["rate"] * WINDOW["seconds"] > 0
    assert len(figure.latencies_ms) == len(POINTS)
    assert figure.latencies_ms == sorted(figure.latencies_ms)


async def test_batches_are_counted_in_records(ours: Ours) -> None:
    figure = await ours.batches(Batches(2, 10, 100), **WINDOW)
    assert figure.checked % 10 == 0
    assert figure.checked >= figure.values["rate"] * WINDOW["seconds"] > 0


async def test_a_record_that_nobody_sent_is_noticed(ours: Ours) -> None:
    ledger = Ledger(16)
    async with LogClient(ours.cluster.endpoints()) as client:
        before = await tails(client, [SHARD])
        number, record = ledger.record()
        ledger.acked(number, await client.shard(SHARD).append(record))
        assert await ledger.check(client, before) == 1
        await client.shard(SHARD).append(bytes([255] * 16))
        with pytest.raises(Wrong, match="was not sent once"):
            await ledger.check(client, before)


async def test_a_record_that_is_there_twice_is_noticed(ours: Ours) -> None:
    ledger = Ledger(16)
    async with LogClient(ours.cluster.endpoints()) as client:
        before = await tails(client, [SHARD])
        number, record = ledger.record()
        ledger.acked(number, await client.shard(SHARD).append(record))
        await client.shard(SHARD).append(record)
        with pytest.raises(Wrong, match="was not sent once"):
            await ledger.check(client, before)


async def test_an_acked_record_that_is_missing_or_elsewhere_is_noticed(ours: Ours) -> None:
    ledger = Ledger(16)
    async with LogClient(ours.cluster.endpoints()) as client:
        before = await tails(client, [SHARD])
        number, record = ledger.record()
        ledger.acked(number, 1 + await client.shard(SHARD).append(record))
        with pytest.raises(Wrong, match="request 0 was acked at LSN"):
            await ledger.check(client, before)
        ledger.record()
        with pytest.raises(Wrong, match="2 records sent, 1 found"):
            await ledger.check(client, before)


async def test_a_request_without_an_ack_is_noticed(ours: Ours) -> None:
    ledger = Ledger(16)
    async with LogClient(ours.cluster.endpoints()) as client:
        before = await tails(client, [SHARD])
        await client.shard(SHARD).append(ledger.record()[1])
        with pytest.raises(Wrong, match="1 requests sent, 0 acked"):
            await ledger.check(client, before)


def test_a_record_has_room_for_its_number() -> None:
    with pytest.raises(ValueError, match="no room"):
        Ledger(7)


def test_a_window_without_acks_is_a_figure_of_nothing() -> None:
    assert figure_of(Sample(0, 1.0, ())).values == {"rate": 0.0}
