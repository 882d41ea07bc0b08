"""Calls that wait until the store asks gRPC for them: none is dropped below PENDING_CALLS_MAX."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc
import grpc.aio

from logservice import bounds
from logservice.server.edge.channel_options import SERVER_OPTIONS

PATH = "/s/M"
CALLS = 4000
"""As many as one connection may have, and four times what gRPC keeps by itself."""


class Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Answers at once."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._serve)

    async def _serve(self, request: bytes, _: object) -> bytes:
        return request


async def test_calls_that_wait_to_be_accepted_are_not_dropped() -> None:
    """The store's loop stands still until all of them have been sent. A call that gRPC drops ends
    as CANCELLED, and its caller cannot know whether it took effect.
    """
    assert CALLS <= bounds.CONNECTION_CALLS_MAX
    assert CALLS <= bounds.PENDING_CALLS_MAX == bounds.IDENTITY_RPCS_MAX
    server = grpc.aio.server(
        options=SERVER_OPTIONS, maximum_concurrent_rpcs=bounds.CONCURRENT_RPCS_MAX
    )
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    answers: list[Any] = []
    connected, sent = threading.Event(), threading.Event()

    def client() -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(60)
            connected.set()
            calls = [channel.unary_unary(PATH).future(b"") for _ in range(CALLS)]
            sent.set()
            answers.extend(call.code() for call in calls)

    thread = threading.Thread(target=client)
    thread.start()
    await asyncio.to_thread(connected.wait, 60)
    sent.wait(60)
    threading.Event().wait(1.0)  # the loop stands still while the core takes them in
    await asyncio.to_thread(thread.join, 60)
    assert [code for code in answers if code is not grpc.StatusCode.OK] == []
    assert len(answers) == CALLS
    await server.stop(None)
