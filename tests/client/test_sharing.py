"""Callers who ask the same at the same time share an answer, and only one that is new enough."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from logservice_client import LogClient
from logservice_client.life import Life
from logservice_client.sharing import Sharing
from logservice_wire.errors import ClientClosed, DeadlineExceeded, NotReady

from tests.client.fake_server import FakeCluster


class Store:
    """Answers when it is told to; an answer is how many requests there were."""

    def __init__(self) -> None:
        self.sent = 0
        self.timeouts_s: list[float] = []
        self._answers: list[asyncio.Future[None]] = []

    async def ask(self, timeout_s: float) -> int:
        self.sent += 1
        self.timeouts_s.append(timeout_s)
        number, answer = self.sent, asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        await answer
        return number

    async def answer(self, error: Exception | None = None) -> None:
        """The oldest request."""
        answer = self._answers.pop(0)
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)
        await turns()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def asked(
    sharing: Sharing, store: Store, question: bytes = b"end", timeout_s: float = 60.0
) -> asyncio.Task[int]:
    task = asyncio.create_task(sharing.ask(question, timeout_s, store.ask))
    await turns()
    return task


async def test_who_asks_while_a_request_is_under_way_shares_the_next_one() -> None:
    """INV-CLIENT-SHARE."""
    sharing, store = Sharing(Life()), Store()
    first = await asked(sharing, store)
    others = [await asked(sharing, store) for _ in range(5)]
    assert store.sent == 1
    await store.answer()
    assert await first == 1
    assert not any(task.done() for task in others), "an answer from before they asked"
    assert store.sent == 2
    late = await asked(sharing, store)
    await store.answer()
    assert [await task for task in others] == [2] * 5
    await store.answer()
    assert await late == 3
    alone = await asked(sharing, store)
    await store.answer()
    assert await alone == 4


async def test_other_questions_wait_for_nobody() -> None:
    sharing, store = Sharing(Life()), Store()
    one, two = await asked(sharing, store), await asked(sharing, store, b"another")
    assert store.sent == 2
    await store.answer()
    await store.answer()
    assert (await one, await two) == (1, 2)


async def test_a_failure_is_of_whom_it_met_and_the_others_ask_for_themselves() -> None:
    sharing, store = Sharing(Life()), Store()
    first = await asked(sharing, store)
    others = [await asked(sharing, store, timeout_s=30.0 + n) for n in range(3)]
    await store.answer(NotReady("no leader"))
    with pytest.raises(NotReady):
        await first
    assert store.sent == 2
    await store.answer(NotReady("no leader"))
    assert sum(task.done() for task in others) == 1
    assert store.sent == 4
    await store.answer()
    await store.answer()
    outcomes = await asyncio.gather(*others, return_exceptions=True)
    assert sorted(one for one in outcomes if isinstance(one, int)) == [3, 4]
    assert sum(isinstance(one, NotReady) for one in outcomes) == 1
    assert all(29 < limit_s <= 32 for limit_s in store.timeouts_s[1:])
    assert not sharing._next


async def test_who_is_cancelled_takes_nobody_with_him() -> None:
    sharing, store = Sharing(Life()), Store()
    first = await asked(sharing, store)
    others = [await asked(sharing, store) for _ in range(3)]
    others[0].cancel()
    first.cancel()
    await turns()
    assert store.sent == 2, "the first one's request is over"
    others[2].cancel()  # who asks for both
    await turns()
    assert store.sent == 3
    store._answers[-1].set_result(None)
    assert await others[1] == 3
    assert not sharing._next


@pytest.mark.parametrize("later", range(8))
async def test_who_is_told_to_ask_and_leaves_at_once_hands_it_on(later: int) -> None:
    """`later`: turns of the loop after the answer; in some of them it was told and did not run."""
    sharing, store = Sharing(Life()), Store()
    first = await asked(sharing, store)
    others = [await asked(sharing, store) for _ in range(2)]
    store._answers[0].set_result(None)
    for _ in range(later):
        await asyncio.sleep(0)
    others[1].cancel()
    await turns()
    assert await first == 1
    store._answers[-1].set_result(None)
    assert await others[0] == store.sent
    assert store.sent in (2, 3)
    assert not sharing._next


async def test_the_time_of_who_waits_is_his_own() -> None:
    sharing, store = Sharing(Life()), Store()
    first = await asked(sharing, store)
    with pytest.raises(DeadlineExceeded):
        await sharing.ask(b"end", 0.01, store.ask)
    await store.answer()
    assert await first == 1
    assert store.sent == 1
    assert not sharing._next


async def test_the_end_of_the_client_ends_those_who_wait() -> None:
    """INV-CLIENT-END."""
    life = Life()
    sharing, store = Sharing(life), Store()
    first, second = await asked(sharing, store), await asked(sharing, store)
    life.close()
    life.end_calls()
    with pytest.raises(ClientClosed):
        await second
    first.cancel()
    await turns()
    assert not sharing._next


def count_calls(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    call = client._caller.call

    async def counted(shard: int | None, rpc: Any, *args: Any, **named: Any) -> Any:
        calls.append(rpc.name)
        return await call(shard, rpc, *args, **named)

    monkeypatch.setattr(client._caller, "call", counted)
    return calls


async def test_a_handle_shares_what_is_linearizable_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = await FakeCluster.start(1, (1,))
    try:
        async with LogClient(cluster.endpoints) as client:
            log = client.shard(1)
            await log.append(b"record")
            calls = count_calls(client, monkeypatch)
            found = await asyncio.gather(*(log.status() for _ in range(50)))
            assert {one.position.applied_lsn for one in found} == {1}
            assert calls == ["GetShardStatus"] * 2
            results = await asyncio.gather(*(log.read(1) for _ in range(50)))
            assert [one.records() for one in results] == [[b"record"]] * 50
            assert calls[2:] == ["Read"] * 2
            await asyncio.gather(*(log.status(stale=True) for _ in range(50)))
            await asyncio.gather(*(log.read(1, stale=True) for _ in range(50)))
            assert len(calls) == 104
    finally:
        await cluster.stop()
