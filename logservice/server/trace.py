"""trace: the ids that a caller gave its request, for log lines and answers.

A caller may send ``x-request-id`` and a W3C ``traceparent`` as gRPC metadata. Lines that are logged
while the call is served carry both, and a failed call's trailing metadata gives the request id
back, so that one failure can be found in the logs of client and stores.

Serving a call costs one assignment here: the metadata is read only when somebody asks. gRPC runs
every call in a task of its own, so nothing has to be reset. What callers send is foreign: ids that
are not plain and short are left out.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Any, Final

REQUEST_ID: Final = "x-request-id"
TRACEPARENT: Final = "traceparent"

_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9._:/-]{1,128}", re.ASCII)
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}", re.ASCII)

_call: ContextVar[Any] = ContextVar("logservice_call", default=None)


def enter(context: Any) -> None:
    """The call of the gRPC `context` is served by this task from now on."""
    _call.set(context)


def trace_ids() -> dict[str, str]:
    """request_id, trace_id and span_id of the call being served; empty outside of one."""
    context = _call.get()
    if context is None:
        return {}
    found: dict[str, str] = {}
    for key, value in context.invocation_metadata() or ():
        if key == REQUEST_ID and isinstance(value, str) and _PLAIN_ID.fullmatch(value):
            found["request_id"] = value
        elif key == TRACEPARENT and isinstance(value, str):
            match = _TRACEPARENT.fullmatch(value)
            if match is not None:
                found["trace_id"], found["span_id"] = match[1], match[2]
    return found


def answer_metadata() -> tuple[tuple[str, str], ...]:
    """What a failed call's trailing metadata says of its request."""
    request_id = trace_ids().get("request_id")
    return ((REQUEST_ID, request_id),) if request_id is not None else ()
