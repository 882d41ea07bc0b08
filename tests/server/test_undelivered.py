"""What counts as sent and not received, what is forgotten, and who goes for it."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass

import pytest

from logservice import bounds
from logservice.server.edge.undelivered import (
    Delivered,
    HalfCalls,
    Traffic,
    Undelivered,
    greediest,
    traffic,
)

MIB = 1 << 20


@dataclass(slots=True)
class One:
    """A connection, as far as a choice needs it."""

    name: str
    waiting: float
    group: str = "me"


def chosen(connections: list[One], of_group: int, in_all: int) -> list[str]:
    return [one.name for one in greediest(connections, of_group, in_all)]


def test_at_the_bound_nobody_goes_and_above_it_the_greediest() -> None:
    """INV-UNDELIVERED-1, for the connections of one identity."""
    both = [One("a", 60), One("b", 40)]
    assert chosen(both, 100, 1000) == []
    assert chosen([*both, One("c", 1)], 100, 1000) == ["a"]
    assert chosen([One("a", 101)], 100, 1000) == ["a"]
    assert chosen([One("a", 0)], 0, 0) == []


def test_in_all_the_greediest_group_goes_first() -> None:
    """INV-UNDELIVERED-1, for all connections together."""
    every = [One("a1", 40, "a"), One("a2", 40, "a"), One("b", 50, "b"), One("c", 10, "c")]
    assert chosen(every, 100, 140) == []
    assert chosen(every, 100, 139) == ["a2"]
    assert chosen(every, 100, 99) == ["a2", "b"]


def test_the_bounds_themselves() -> None:
    of_group, in_all = bounds.IDENTITY_UNDELIVERED_BYTES_MAX, bounds.UNDELIVERED_BYTES_MAX
    assert chosen([One("a", of_group)], of_group, in_all) == []
    assert chosen([One("a", of_group + 1)], of_group, in_all) == ["a"]
    full = [One("a", of_group, "a"), One("b", in_all - of_group, "b")]
    assert chosen(full, of_group, in_all) == []
    assert len(chosen([*full, One("c", 1, "c")], of_group, in_all)) == 1


def test_bytes_count_when_they_have_waited() -> None:
    one, nothing, sent = Undelivered(0.0), Delivered(streams={1: 0.0}), Traffic(8 * MIB, 0)
    waited = [one.look(look / 10, nothing, sent, 0.0) for look in range(1, 20)]
    first = next(at for at, size in enumerate(waited) if size)
    assert bounds.UNDELIVERED_AGE_S <= first / 10 <= 1.5 * bounds.UNDELIVERED_AGE_S
    assert 7.9 * MIB < waited[-1] <= 8 * MIB


def test_what_flows_never_counts() -> None:
    """4 MiB messages flow at a gigabyte a second; 128 MiB of them are under way at any time."""
    one, delivered, received = Undelivered(0.0), Delivered(streams={1: 0.0}), 0
    for look in range(1, 600):
        received += 100 * MIB
        while delivered.size + 4 * MIB <= received - 128 * MIB:
            delivered.add(4 * MIB)
        assert one.look(look / 10, delivered, Traffic(received, 0), 0.0) == 0


@pytest.mark.parametrize("streams", [0, 1])
def test_overhead_never_adds_up(streams: int) -> None:
    """For 30 minutes small messages come with 512 bytes around each, beside window updates for what
    is read, and pings.
    """
    one, delivered, received, sent = (
        Undelivered(0.0),
        Delivered(streams=dict.fromkeys(range(streams), 0.0)),
        0,
        0,
    )
    for second in range(1, 1800):
        for _ in range(100):
            delivered.add(100)
            received += 100 + 512
        sent += 100 * MIB
        received += 100 * MIB // 1000 + 50
        assert one.look(second, delivered, Traffic(received, sent), 0.0) == 0
        assert one.held == 0


def test_a_client_that_pings_only() -> None:
    one, delivered = Undelivered(0.0), Delivered(streams={1: 0.0})
    for second in range(1, 10_000):
        assert one.look(second, delivered, Traffic(47 * second, 0), 0.0) == 0


@pytest.mark.parametrize(
    ("streams", "oldest_s", "forgotten"), [(0, 2.0, 1), (0, 1.9, 0), (1, 2.0, 0)]
)
def test_what_was_given_up_is_forgotten(streams: int, oldest_s: float, forgotten: bool) -> None:
    """8 MiB came until 1.0 s; the oldest call that waits for its request began at `oldest_s`."""
    one, delivered, seen = (
        Undelivered(0.0),
        Delivered(streams=dict.fromkeys(range(streams), 0.0)),
        Traffic(8 * MIB, 0),
    )
    one.look(1.0, delivered, seen, 1.0)
    assert one.held > 7 * MIB
    one.look(10.0, delivered, seen, oldest_s)
    assert (one.held == 0) == forgotten


def test_the_kernel_counts() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
        listener.accept()[0] as accepted,
    ):
        client.sendall(bytes(1000))
        accepted.recv(1000, socket.MSG_WAITALL)
        accepted.sendall(bytes(500))
        assert traffic(accepted) == Traffic(1000, 500)


async def test_calls_that_are_whole_or_ended_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "HALF_CALLS_SWEEP_S", 0.01)
    calls = HalfCalls()

    async def call(*, whole: bool) -> None:
        calls.began()
        assert len(calls) == 1
        if whole:
            calls.whole()
            assert len(calls) == 0

    await asyncio.create_task(call(whole=True))
    await asyncio.create_task(call(whole=False))
    async with asyncio.timeout(10):
        while len(calls):  # noqa: ASYNC110 - a timer looks
            await asyncio.sleep(0.01)


async def test_the_oldest_call_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HALF_CALLS_SWEEP_S", 0.01)
    calls, ending = HalfCalls(), asyncio.Event()

    async def call() -> None:
        calls.began()
        await ending.wait()

    first = asyncio.create_task(call())
    await asyncio.sleep(0)
    began_s = calls.oldest_s()
    others = [asyncio.create_task(call()) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert calls.oldest_s() == began_s
    first.cancel()
    async with asyncio.timeout(10):
        while calls.oldest_s() == began_s:  # noqa: ASYNC110 - a timer looks
            await asyncio.sleep(0.01)
    ending.set()
    await asyncio.gather(*others)
