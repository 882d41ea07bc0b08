"""Which handler a call gets, by its headers alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc

from logservice import bounds
from logservice.server.edge.dispatch import Dispatch


def handler_for(headers: list[tuple[str, str]]) -> tuple[Any, Any]:
    """The handler that is served, and the one that a call with `headers` gets."""

    async def behavior(request: object, context: object) -> None:
        pass

    served = grpc.stream_stream_rpc_method_handler(behavior)
    dispatch = Dispatch(None)
    dispatch.add("service", {"Method": served})
    details: Any = SimpleNamespace(method="/service/Method", invocation_metadata=headers)
    return served, dispatch.service(details)


def test_headers_over_the_bound_reach_no_handler() -> None:
    """INV-DISPATCH-1: a field counts for its name, its value and 32 bytes."""
    room = bounds.METADATA_BYTES_MAX - 32 - len("name")
    served, found = handler_for([("name", "x" * room)])
    assert found is served
    served, found = handler_for([("name", "x" * (room + 1))])
    assert found is not served
    assert found is not None
    count = bounds.METADATA_BYTES_MAX // 32 + 1
    served, found = handler_for([("", "")] * count)
    assert found is not served
