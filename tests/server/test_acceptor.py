"""Calls are taken from gRPC's core as they arrive; and what is left when the library has other
names than those that are used for it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from logservice import bounds
from logservice.server.edge import acceptor, wake_ups
from logservice.server.edge.acceptor import Accepts
from logservice.server.edge.wake_ups import WakeUpLoop
from tests.waiting import eventually

Handler = Callable[[bytes, Any], Awaitable[bytes]]


@asynccontextmanager
async def serving(handler: Handler, rpcs_max: int = 5000) -> AsyncIterator[tuple[Any, Any]]:
    """A server of one method, and the method's stub."""
    server = acceptor.server_of((("grpc.so_reuseport", 0),), rpcs_max)
    method = grpc.unary_unary_rpc_method_handler(handler)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", {"Call": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    options = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        yield server, channel.unary_unary("/t/Call")
    await server.stop(0)


async def echo(request: bytes, _: Any) -> bytes:
    return request


def test_the_installed_library_has_every_name_that_is_used() -> None:
    """When this fails after an upgrade of grpcio: quiet identities wait behind loud ones until
    `acceptor` and `wake_ups` know the new names.
    """
    assert acceptor.missing() == []

    async def started() -> bool:
        acceptor.server_of((), 1)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WakeUpLoop)
        return loop.drains

    with asyncio.Runner(loop_factory=WakeUpLoop) as runner:
        assert runner.run(started())


async def test_calls_that_nobody_answers_do_not_hold_up_the_next_one() -> None:
    """Reaches ACCEPTS_OUTSTANDING: more calls are under way than are asked for at a time."""
    may_end, begun = asyncio.Event(), 0

    async def held(request: bytes, _: Any) -> bytes:
        nonlocal begun
        begun += 1
        await may_end.wait()
        return request

    async with serving(held) as (_, call):
        count = bounds.ACCEPTS_OUTSTANDING + 50
        calls = [asyncio.ensure_future(call(b"%d" % number)) for number in range(count)]
        await eventually(lambda: begun == count)
        may_end.set()
        assert await asyncio.gather(*calls) == [b"%d" % number for number in range(count)]


async def test_the_most_calls_at_a_time_are_as_many_as_before() -> None:
    may_end, begun = asyncio.Event(), 0

    async def held(request: bytes, _: Any) -> bytes:
        nonlocal begun
        begun += 1
        await may_end.wait()
        return request

    async with serving(held, 7) as (_, call):
        calls = [asyncio.ensure_future(call(b"")) for _ in range(30)]
        await eventually(lambda: sum(one.done() for one in calls) == 23)
        assert begun == 7
        may_end.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [one for one in answers if isinstance(one, grpc.aio.AioRpcError)]
        assert {one.code() for one in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert len(refused) == 23
        await call(b"")


async def test_a_stop_ends_in_time_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    async def slow(request: bytes, _: Any) -> bytes:
        await asyncio.sleep(0.05)
        return request

    async with serving(slow) as (server, call):
        calls = [asyncio.ensure_future(call(b"x")) for _ in range(50)]
        await asyncio.sleep(0.02)
        async with asyncio.timeout(30):
            await server.stop(10)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all(one == b"x" or isinstance(one, grpc.aio.AioRpcError) for one in answers)
    await asyncio.sleep(0)
    assert failures == []
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("problem", ["missing", "shape"])
async def test_without_the_names_the_librarys_own_server_serves(
    problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if problem == "missing":
        monkeypatch.setattr(acceptor, "missing", lambda: ["_make_request_call_future"])
    else:

        def other_shape(*_: object) -> grpc.aio.Server:
            raise TypeError("__init__() takes exactly 7 positional arguments")

        monkeypatch.setattr(acceptor, "_early_server", other_shape)
    async with serving(echo) as (server, call):
        assert type(server) is type(grpc.aio.server())
        assert await call(b"x") == b"x"
    told = [one for one in caplog.records if "many calls at a time" in one.message]
    assert len(told) == 1


def test_a_name_that_is_not_there_is_named() -> None:
    assert acceptor.missing([(object(), "_make_request_call_future"), (object, "mro")]) == [
        "_make_request_call_future"
    ]


# --- what was asked of the core -------------------------------------------------------------------


class Core:
    """Stands for gRPC's core: hands out calls when the test says so."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[Any]] = []
        self.accepts = Accepts(self._ask)

    def _ask(self) -> asyncio.Future[Any]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


async def test_calls_are_passed_on_in_their_order() -> None:
    """INV-ACCEPT-1: whatever order the requests for them were made in."""
    core = Core()
    first = core.accepts.take()
    assert len(core.asked) == core.accepts.outstanding == bounds.ACCEPTS_OUTSTANDING
    for number in (3, 0, 2):
        core.asked[number].set_result(number)
    assert await first == 3
    assert await core.accepts.take() == 0
    assert await core.accepts.take() == 2
    waits = core.accepts.take()
    assert len(core.asked) == bounds.ACCEPTS_OUTSTANDING + 3
    await asyncio.sleep(0)
    assert not waits.done()


async def test_a_call_that_is_there_takes_no_turn_of_the_loop() -> None:
    core = Core()
    core.accepts.take()
    for number in range(5):
        core.asked[number].set_result(number)
    await asyncio.sleep(0)
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1

    asyncio.get_running_loop().call_soon(turn)
    for _ in range(4):
        await asyncio.wait([core.accepts.take()], return_when=asyncio.FIRST_COMPLETED)
    assert turns == 0


async def test_a_failure_is_passed_on_and_a_stop_drops_what_is_not_begun() -> None:
    core = Core()
    waits = core.accepts.take()
    core.asked[0].set_exception(RuntimeError("the core says no"))
    with pytest.raises(RuntimeError, match="says no"):
        await waits
    waits = core.accepts.take()
    core.asked[1].cancel()
    await asyncio.wait([waits])
    assert waits.cancelled()
    waits = core.accepts.take()
    core.accepts.stop()
    core.asked[2].set_result("a call")
    await asyncio.sleep(0)
    assert not waits.done(), "nothing begins any more"
    for asked in core.asked[3:]:
        asked.set_exception(RuntimeError("stopped"))
    with pytest.raises(RuntimeError, match="stopped"):
        await waits
    await asyncio.sleep(0)
    assert core.accepts.outstanding == 0


# --- wake-ups -------------------------------------------------------------------------------------


class Poller:
    """Stands for gRPC's poller: reads one byte, then handles the whole queue."""

    def __init__(self) -> None:
        self.reads, self.writes = socket.socketpair()
        self.queue: list[int] = []
        self.handled: list[int] = []
        self.woken = 0

    def _handle_events(self, *_: object) -> None:
        assert len(self.reads.recv(1)) == 1
        self.woken += 1
        self.handled += self.queue
        self.queue.clear()

    def event(self, number: int) -> None:
        self.queue.append(number)
        self.writes.send(b"1")

    def close(self) -> None:
        self.reads.close()
        self.writes.close()


@pytest.mark.parametrize("bound", [True, False])
def test_all_wake_ups_are_heard_in_one_turn(bound: bool) -> None:
    """INV-WAKE-1, whatever the library binds its handler with. Reaches WAKE_UPS_PER_TURN."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        handler: Any = poller._handle_events
        loop.add_reader(poller.reads, functools.partial(handler, loop) if bound else handler)
        for number in range(100):
            poller.event(number)
        await asyncio.sleep(0.01)
        assert (poller.woken, poller.handled) == (1, [*range(100)])
        poller.event(100)
        await eventually(lambda: poller.handled == [*range(101)])
        for number in range(bounds.WAKE_UPS_PER_TURN, bounds.WAKE_UPS_PER_TURN + 2):
            poller.event(number)
        poller.writes.send(bytes(bounds.WAKE_UPS_PER_TURN))
        await asyncio.sleep(0.05)
        assert poller.woken == 4
        assert poller.queue == []
        loop.remove_reader(poller.reads)

    poller = Poller()
    with asyncio.Runner(loop_factory=WakeUpLoop) as runner:
        runner.run(run())
    poller.close()


def test_other_readers_are_left_alone_and_a_poller_that_is_not_known_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[bytes] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WakeUpLoop)
        loop.add_reader(reads, lambda count: seen.append(reads.recv(count)), 1)
        writes.send(b"abc")
        await eventually(lambda: len(seen) == 3)
        loop.remove_reader(reads)
        assert not loop.drains
        wake_ups.warn(loop)

    reads, writes = socket.socketpair()
    with asyncio.Runner(loop_factory=WakeUpLoop) as runner:
        runner.run(run())
    reads.close()
    writes.close()
    assert seen == [b"a", b"b", b"c"]
    assert [one.message for one in caplog.records if "is not known" in one.message]
