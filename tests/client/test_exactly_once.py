"""Random lives of a client: whatever fails, the log holds what the callers were told (G2, G5).

Every seed draws callers with different habits and a sequence of faults: lost messages, answers lost
after the effect, copies that take effect late, passing and lasting refusals, an expired session, a
leader that moves. Afterwards the log is compared with what each caller heard.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from logservice_client import LogClient, Shard
from logservice_wire.block import encode_block
from logservice_wire.errors import (
    Busy,
    DiskFull,
    LogServiceError,
    NotReady,
    Outcome,
    SequenceGap,
    UnknownOutcome,
    WrongExpectedLsn,
)

from tests.client.fake_server import FakeCluster, Fault


class Heard:
    """What the callers were told."""

    def __init__(self) -> None:
        self.acked: dict[int, bytes] = {}
        self.refused: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self.orders: list[list[int]] = []


def draw_fault(draw: random.Random) -> Fault:
    match draw.randrange(16):
        case 0 | 1:
            return Fault(lost="before")
        case 2 | 3:
            return Fault(lost="after")
        case 4:
            return Fault(lost="late")
        case 5:
            return Fault(draw.choice([NotReady(), Busy(), SequenceGap(last=0), UnknownOutcome()]))
        case 6:
            return Fault(DiskFull())
    return Fault()


async def caller(shard: Shard, name: int, draw: random.Random, heard: Heard) -> None:
    order: list[int] = []
    for number in range(8):
        records = [b"%d-%d-%d" % (name, number, k) for k in range(draw.choice([1, 1, 1, 3]))]
        try:
            match draw.randrange(8):
                case 0:
                    lsn = await shard.append_block(encode_block(records, 0))
                case 1:
                    lsn = await shard.append(records, expected_lsn=draw.randrange(1, 60))
                case 2:
                    lsn = await shard.append(records, timeout=0.05)
                case _:
                    lsn = await shard.append(records if len(records) > 1 else records[0])
        except LogServiceError as error:
            told = heard.unknown if error.outcome is Outcome.UNKNOWN else heard.refused
            told.update(records)
        else:
            order.append(lsn)
            heard.acked.update(zip(range(lsn, lsn + len(records)), records, strict=True))
        if draw.randrange(4) == 0:
            await asyncio.sleep(0)
    heard.orders.append(order)


async def disturb(cluster: FakeCluster, draw: random.Random) -> None:
    for _ in range(6):
        await asyncio.sleep(draw.uniform(0, 0.03))
        match draw.randrange(4):
            case 0:
                cluster.leader = draw.randrange(3)
            case 1:
                cluster.forward = draw.random() < 0.7
            case 2:
                dead = cluster.stores[draw.randrange(3)]
                await dead.kill()
                await asyncio.sleep(0.01)
                await dead.start()
            case 3:
                cluster.logs[1].sessions.clear()


@pytest.mark.parametrize("seed", range(16))
async def test_the_log_holds_what_the_callers_were_told(cluster: FakeCluster, seed: int) -> None:
    draw = random.Random(seed)
    heard = Heard()
    cluster.logs[1].gaps = draw.random() < 0.5
    cluster.copies_survive = draw.random() < 0.5
    cluster.commit_delay_s = draw.choice([0.0, 0.001])
    cluster.faults.extend(draw_fault(draw) for _ in range(80))
    async with LogClient(cluster.endpoints) as client:
        shard = client.shard(1)
        await asyncio.gather(
            disturb(cluster, draw),
            *(caller(shard, name, random.Random(seed * 100 + name), heard) for name in range(6)),
        )
        cluster.faults.clear()
        for append in cluster.on_their_way:
            try:
                append()
            except LogServiceError:
                continue
        found: dict[int, bytes] = {}
        lsn = 1
        while (result := await shard.read(lsn)).items:
            for block in result.blocks:
                found.update(enumerate(block.records(), block.first_lsn))
            lsn = result.next_lsn
    present = list(found.values())
    assert len(present) == len(set(present)), "a record is there twice"
    assert {lsn: found.get(lsn) for lsn in heard.acked} == heard.acked
    assert not heard.refused & set(present), "refused, but there"
    assert set(present) <= set(heard.acked.values()) | heard.unknown
    assert all(order == sorted(order) for order in heard.orders)


async def test_a_late_copy_behind_a_refused_block_is_not_a_second_append(
    client: LogClient, cluster: FakeCluster
) -> None:
    """INV-APPENDER-3 is for this: a later sequence outlives the stream that was refused."""
    shard = client.shard(1)
    await shard.append(b"first")
    cluster.commit_delay_s = 0.01
    cluster.copies_survive = True
    outcomes = await asyncio.gather(
        shard.append_block(encode_block([b"0"], 0)),
        shard.append_block(encode_block([b"1"], 0)),
        shard.append_block(encode_block([b"2"], 0), expected_lsn=99),
        shard.append_block(encode_block([b"3"], 0)),
        shard.append_block(encode_block([b"4"], 0)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [int, int, WrongExpectedLsn, int, int]
    assert cluster.on_their_way
    for append in cluster.on_their_way:
        with pytest.raises(SequenceGap):
            append()
    assert (await shard.read(1)).records() == [b"first", b"0", b"1", b"3", b"4"]
    assert cluster.logs[1].sessions_opened == 2


async def test_a_late_copy_of_a_refused_block_is_not_called_refused(
    client: LogClient, cluster: FakeCluster
) -> None:
    """INV-APPENDER-4: the first attempt may still arrive, so its outcome is unknown."""
    shard = client.shard(1)
    await shard.append(b"first")
    cluster.commit_delay_s = 0.01
    cluster.faults += [Fault(lost="late"), Fault(DiskFull())]
    outcomes = await asyncio.gather(
        *(shard.append_block(encode_block([b"%d" % number], 0)) for number in range(3)),
        return_exceptions=True,
    )
    late = list(cluster.on_their_way)
    cluster.on_their_way.clear()
    for append in late:
        append()
    assert isinstance(outcomes[0], UnknownOutcome)
    present = (await shard.read(1)).records()
    assert len(present) == len(set(present))
    for outcome, record in zip(outcomes, (b"0", b"1", b"2"), strict=True):
        if isinstance(outcome, int):
            assert present[outcome - 1] == record
        else:
            assert isinstance(outcome, UnknownOutcome)
