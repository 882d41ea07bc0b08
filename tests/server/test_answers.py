"""The budget of answers: its edges, its order, and that a reader who takes nothing is cut."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable
from time import sleep
from typing import TypeVar

import grpc.aio
import pytest
from logservice_wire.errors import Busy
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.server.edge.answers import AnswerBudget, Taken
from logservice.server.edge.gate import calling
from tests.hostile import http2
from tests.server.served import Served, block
from tests.waiting import eventually

T = TypeVar("T")


async def of(whose: str, work: Awaitable[T]) -> T:
    """What follows is done in the name of somebody."""

    async def named() -> T:
        calling.set(whose)
        return await work

    return await asyncio.create_task(named(), context=contextvars.copy_context())


async def test_an_identity_gets_its_share_and_not_a_byte_more() -> None:
    """Reaches IDENTITY_ANSWER_BYTES_MAX and ANSWER_BYTES_MAX, made small."""
    budget = AnswerBudget(100, 40)
    held = await of("a", budget.take(40, 1))
    with pytest.raises(Busy) as caught:
        await of("a", budget.take(1, 0.01))
    assert caught.value.number("retry_after_ms") == bounds.ANSWER_RETRY_MS
    assert (await of("b", budget.take(40, 1))).size == 40
    with pytest.raises(Busy):
        await of("c", budget.take(21, 0.01))
    assert (await of("c", budget.take(20, 1))).size == 20
    assert budget.used == 100
    held.give_back()
    held.give_back()
    assert budget.used == 60
    assert (await of("a", budget.take(40, 1))).size == 40


async def test_more_than_there_can_ever_be_is_all_there_is() -> None:
    budget = AnswerBudget(100, 40)
    taken = await budget.take(1000, 1)
    assert taken.size == 40
    taken.shrink(7)
    assert budget.used == 7
    taken.shrink(1000)
    assert budget.used == 7


async def test_who_waits_comes_in_order_and_holds_up_nobody_else() -> None:
    budget = AnswerBudget(100, 40)
    held = await of("a", budget.take(40, 1))
    order: list[str] = []

    async def waits(name: str, size: int) -> Taken:
        taken = await budget.take(size, 30)
        order.append(name)
        return taken

    first = asyncio.create_task(of("a", waits("first", 40)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = asyncio.create_task(of("a", waits("second", 1)))
    other = await of("b", waits("other", 10))
    assert order == ["other"]
    held.shrink(39)
    await asyncio.sleep(0.01)
    assert order == ["other"]
    held.give_back()
    (await first).give_back()
    await second
    assert order == ["other", "first", "second"]
    other.give_back()


async def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ANSWER_WAITERS_MAX", 2)
    budget = AnswerBudget(10, 10)
    held = await budget.take(10, 1)
    waiting = [asyncio.create_task(budget.take(5, 30)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await budget.take(1, 30)
    held.give_back()
    assert [(await one).size for one in waiting] == [5, 5]


async def test_nothing_is_lost_when_who_waits_goes_away() -> None:
    budget = AnswerBudget(10, 10)
    held = await budget.take(10, 1)
    waiting = asyncio.create_task(budget.take(10, 30))
    await asyncio.sleep(0)
    waiting.cancel()
    held.give_back()
    await asyncio.wait([waiting])
    assert budget.used == 0
    held = await budget.take(10, 1)
    # Granted and cancelled in the same turn of the loop.
    waiting = asyncio.create_task(budget.take(10, 30))
    await asyncio.sleep(0)
    held.give_back()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert budget.used == 0


async def test_what_comes_as_the_time_is_over_is_given_back() -> None:
    budget = AnswerBudget(10, 10)
    held = await budget.take(10, 1)
    waiting = asyncio.create_task(budget.take(10, 0.05))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    loop.call_at(loop.time() + 0.001, held.give_back)
    sleep(0.1)  # noqa: ASYNC251 - both are due in the same turn of the loop, the grant first
    with pytest.raises(Busy):
        await waiting
    assert budget.used == 0


async def test_catch_up_reads_get_their_share_and_not_a_byte_more() -> None:
    """Reaches ANSWER_CATCH_UP_SHARE, of all and of an identity (INV-ANSWER-2)."""
    assert bounds.ANSWER_CATCH_UP_SHARE == 0.5
    budget = AnswerBudget(100, 40)
    held = await of("a", budget.take(1000, 1, behind=True))
    assert held.size == 20, "more than there can ever be is all there is"
    with pytest.raises(Busy):
        await of("a", budget.take(1, 0.01, behind=True))
    tail = await of("a", budget.take(20, 0))
    for whose, size in (("b", 20), ("c", 10)):
        assert (await of(whose, budget.take(size, 1, behind=True))).size == size
    assert (budget.used, budget.used_behind) == (70, 50)
    with pytest.raises(Busy):
        await of("d", budget.take(1, 0.01, behind=True))
    assert (await of("d", budget.take(30, 0))).size == 30
    tail.give_back()
    with pytest.raises(Busy):
        await of("d", budget.take(1, 0.01, behind=True))
    held.shrink(5)
    assert (budget.used, budget.used_behind) == (65, 35)
    assert (await of("e", budget.take(15, 0.01, behind=True))).size == 15


async def test_a_catch_up_read_that_waits_holds_up_no_read_at_the_tail() -> None:
    budget = AnswerBudget(100, 40)
    held = await budget.take(20, 1, behind=True)
    waiting = asyncio.create_task(budget.take(5, 30, behind=True))
    await asyncio.sleep(0)
    tail = await budget.take(20, 0)
    late = asyncio.create_task(budget.take(20, 30))
    await asyncio.sleep(0)
    tail.give_back()
    assert (await late).size == 20
    assert not waiting.done()
    held.shrink(15)
    assert (await waiting).behind
    assert budget.used_behind == 20


async def test_an_answer_that_is_there_is_counted_or_goes() -> None:
    budget = AnswerBudget(100, 40)
    taken = budget.take_now(40)
    with pytest.raises(Busy):
        budget.take_now(1)
    assert budget.refused == 1
    taken.give_back()
    assert budget.used == 0


async def test_a_reader_who_takes_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share of the budget is given back, and a reader beside it goes on."""
    monkeypatch.setattr(bounds, "ANSWER_STALL_S", 0.5)
    monkeypatch.setattr(bounds, "ANSWER_BYTES_PER_S_MIN", 1 << 40)
    async with Served(1) as served:
        shard = await served.new_shard()
        store = served.stores[0]
        await store.log.Append(log_pb2.AppendRequest(shard_id=shard, block=block(bytes(4 << 20))))
        budget = store.answers
        request = log_pb2.ReadRequest(shard_id=shard, lsn=1)
        _, writer = await asyncio.open_connection(*store.address.split(":"))
        writer.write(unread(request))
        await eventually(lambda: budget.used >= 4 << 20)
        assert (await store.log.Read(request)).blocks
        await eventually(lambda: budget.used == 0, 20)
        writer.close()
        with pytest.raises(grpc.aio.AioRpcError):
            await store.log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=99))
        assert budget.used == 0


def unread(request: log_pb2.ReadRequest) -> bytes:
    """A connection that asks once and opens its window for nothing."""
    return (
        http2.PREFACE
        + http2.settings(0)
        + http2.frame(http2.SETTINGS, http2.ACK, 0)
        + http2.headers(1, http2.request_fields("/logservice.v1.Log/Read"))
        + http2.message(1, request.SerializeToString())
    )
