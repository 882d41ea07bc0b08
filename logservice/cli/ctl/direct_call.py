"""direct_call: one unary call to one given store, without routing or retries.

It is for what only that store can answer (its own status) or do (hand over its leadership).
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import grpc
from logservice_client.tls import TlsFiles
from logservice_wire.errors import (
    DeadlineExceeded,
    LogServiceError,
    NotLeader,
    NotReady,
    PermissionDenied,
    Unauthenticated,
    UnknownOutcome,
    VerbRefused,
)
from logservice_wire.rpcs import Rpc
from logservice_wire.status import STATUS_DETAILS_KEY, from_status_details

from logservice.cli.ctl.time_left import left_s, now_s

_HINTS_MAX: Final = 3
"""How many hints are followed: leaders that change faster than that are worth an error."""


class Unreachable(NotReady):
    """No store answered at the address."""


RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


def call_store(
    address: str,
    rpc: Rpc[RequestT, ResponseT],
    request: RequestT,
    timeout_s: float,
    tls: TlsFiles | None = None,
) -> ResponseT:
    """Call the store. Raises the store's error, or Unreachable."""
    with _channel(address, tls) as channel:
        call = channel.unary_unary(
            rpc.path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=rpc.parse_response,
        )
        try:
            response: ResponseT = call(request, timeout=timeout_s)
        except grpc.RpcError as failure:
            raise _typed(failure, address) from failure
        return response


def call_leader(
    address: str,
    rpc: Rpc[RequestT, ResponseT],
    request: RequestT,
    timeout_s: float,
    tls: TlsFiles | None = None,
) -> ResponseT:
    """Call the store, and after NOT_LEADER call the store that the error names, in all that time
    together.
    """
    ends_s = now_s() + timeout_s
    for _ in range(_HINTS_MAX):
        try:
            return call_store(address, rpc, request, left_s(ends_s), tls)
        except NotLeader as error:
            if not error.metadata.get("address"):
                raise
            address = error.metadata["address"]
    return call_store(address, rpc, request, left_s(ends_s), tls)


def _channel(address: str, tls: TlsFiles | None) -> grpc.Channel:
    options = (("grpc.enable_http_proxy", 0),)
    if tls is None:
        return grpc.insecure_channel(address, options)
    current = tls.current()
    return grpc.secure_channel(address, current.credentials(), options + current.options())


def _typed(failure: Any, address: str) -> LogServiceError:
    for key, value in failure.trailing_metadata() or ():
        if key == STATUS_DETAILS_KEY:
            error = from_status_details(value)
            if error is not None:
                return error
    code: grpc.StatusCode = failure.code()
    message = f"{address}: {code.name}: {failure.details()}"
    if code is grpc.StatusCode.UNAVAILABLE:
        return Unreachable(message)
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return PermissionDenied(message)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return Unauthenticated(message)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(message)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return VerbRefused(f"{address} has an older program, which does not know this call")
    return UnknownOutcome(message)
