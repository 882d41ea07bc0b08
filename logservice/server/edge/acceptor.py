"""acceptor: takes calls from gRPC's core as they arrive, not one in every few turns of the loop.

Theory of operation. gRPC's Python library asks its core for one call at a time. What arrives
meanwhile waits in the core in one queue, whoever made it, and no code of ours can tell the callers
apart. So the core is asked for ACCEPTS_OUTSTANDING calls at once, and what it hands out is passed
on in that order. The library's own loop still begins each call, so `maximum_concurrent_rpcs` holds
as before.

That loop waits for a future with `asyncio.wait`. A call that is there already is handed over in
the same turn (`_Taken`); a turn for each call would bring the queue back.

The library has no public way to do this. Every private name of it is used here and in `wake_ups`,
and nowhere else. `server_of` looks for them first. Where one is missing it says so in the log and
returns the library's own server, which serves the same calls, only without this fairness.

INV-ACCEPT-1: every call that the core hands out is begun once, in the order of arrival, or dropped
because the server stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc.aio
from grpc._cython import cygrpc
from grpc.aio import _server

from logservice import bounds

logger = logging.getLogger(__name__)

Options = Sequence[tuple[str, Any]]

NAMES: Final[tuple[tuple[Any, str], ...]] = (
    (cygrpc, "AioServer"),
    (getattr(cygrpc, "AioServer", None), "_make_request_call_future"),
    (getattr(cygrpc, "AioServer", None), "shutdown"),
    (cygrpc, "get_working_loop"),
    (_server, "Server"),
    (_server, "_augment_channel_arguments"),
)
"""What this file needs of the library, beside its public interface."""


def missing(names: Sequence[tuple[Any, str]] = NAMES) -> list[str]:
    """Those of `names` that the installed library does not have."""
    return [name for owner, name in names if not callable(getattr(owner, name, None))]


def server_of(options: Options, maximum_concurrent_rpcs: int) -> grpc.aio.Server:
    """A server that accepts early, or the library's own."""
    problem = ", ".join(missing())
    if not problem:
        try:
            return _early_server(options, maximum_concurrent_rpcs)
        except (TypeError, AttributeError) as error:
            problem = str(error)
    logger.warning(
        "this version of gRPC cannot be asked for many calls at a time (%s): unary calls of a "
        "quiet identity wait behind those of a loud one",
        problem,
    )
    return grpc.aio.server(options=options, maximum_concurrent_rpcs=maximum_concurrent_rpcs)


class _Taken(asyncio.Future[Any]):
    """A future that tells at once who asks when it is done already."""

    def add_done_callback(self, fn: Callable[[Any], object], *, context: Any = None) -> None:
        if self.done():
            fn(self)
        else:
            super().add_done_callback(fn, context=context)


class Accepts:
    """What was asked of the core and what has come of it."""

    def __init__(self, ask: Callable[[], asyncio.Future[Any]]) -> None:
        """`ask` asks the core for one call."""
        self._ask = ask
        self.outstanding = 0
        self._arrived: deque[asyncio.Future[Any]] = deque()
        self._taker: _Taken | None = None
        self._stopping = False

    def take(self) -> asyncio.Future[Any]:
        """The next call, which may be there already. Whoever takes waits for one at a time."""
        while self.outstanding + len(self._arrived) < bounds.ACCEPTS_OUTSTANDING:
            self.outstanding += 1
            self._ask().add_done_callback(self._come)
        taker = self._taker = _Taken()
        self._hand_over()
        return taker

    def stop(self) -> None:
        """Drop what is not begun: the core waits for every call that it has handed out."""
        self._stopping = True
        self._arrived.clear()

    def _come(self, asked: asyncio.Future[Any]) -> None:
        self.outstanding -= 1
        if not asked.cancelled():
            failed = asked.exception()
            if failed is None and self._stopping:
                return
        self._arrived.append(asked)
        self._hand_over()
        if self._stopping:
            self._arrived.clear()

    def _hand_over(self) -> None:
        taker = self._taker
        if taker is None or not self._arrived:
            return
        if taker.done():
            return
        self._taker = None
        found = self._arrived.popleft()
        if found.cancelled():
            taker.cancel()
            return
        failed = found.exception()
        if failed is None:
            taker.set_result(found.result())
        else:
            taker.set_exception(failed)
            taker.exception()  # whoever waits gets it; nobody may be waiting any more


def _early_server(options: Options, maximum_concurrent_rpcs: int) -> grpc.aio.Server:
    # The classes are made here, so that a library without their bases can be told of.
    class Core(cygrpc.AioServer):  # type: ignore[misc, name-defined, unused-ignore]
        """The library's core server, asked for many calls."""

        _accepts: Accepts | None = None

        def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[Any]:
            if method is not None:  # a method that was registered in the core; we register none
                return super()._make_request_call_future(method)  # type: ignore[no-any-return, unused-ignore]
            if self._accepts is None:
                ask = super()._make_request_call_future
                self._accepts = Accepts(lambda: ask(None))
            return self._accepts.take()

        async def shutdown(self, grace: float | None) -> None:
            if self._accepts is not None:
                self._accepts.stop()
            await super().shutdown(grace)

    base: Any = _server.Server

    class Server(base):  # type: ignore[misc]
        """The library's server around it."""

        def __init__(self) -> None:
            self._loop = cygrpc.get_working_loop()
            arguments = _server._augment_channel_arguments(options, None)
            self._server = Core(self._loop, None, (), None, arguments, maximum_concurrent_rpcs)

    made: grpc.aio.Server = Server()
    return made
