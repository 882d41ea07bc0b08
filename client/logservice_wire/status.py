"""Errors on the wire: LogServiceError <-> the bytes of a google.rpc.Status with an ErrorInfo.

gRPC's convention for rich errors: the trailing metadata key `STATUS_DETAILS_KEY` holds a serialized
``google.rpc.Status``, one of whose details is ``google.rpc.ErrorInfo{domain, reason, metadata}``.
Client and server both use these functions; neither needs grpc to be importable here.

A status of another domain, an unknown reason, or bytes that do not parse give None, and the caller
falls back to the bare gRPC code: what the network sends never raises here.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

# googleapis-common-protos ships stubs without the py.typed marker that would announce them.
from google.rpc.code_pb2 import Code  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from logservice_wire.errors import ERROR_DOMAIN, LogServiceError, Reason, error_for

STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"
"""Trailing metadata key, fixed by gRPC's convention."""


def status_code_number(error: LogServiceError) -> int:
    """The number of the error's gRPC status code."""
    return int(Code.Value(error.status))


def to_status_details(error: LogServiceError) -> bytes:
    """The value of `STATUS_DETAILS_KEY` for `error`."""
    status = Status(code=status_code_number(error), message=error.message)
    status.details.add().Pack(
        ErrorInfo(reason=error.reason.value, domain=ERROR_DOMAIN, metadata=dict(error.metadata))
    )
    return bytes(status.SerializeToString())


def from_status_details(data: bytes) -> LogServiceError | None:
    """The error that `to_status_details` was given, or None when `data` is not one of ours."""
    status = Status()
    info = ErrorInfo()
    try:
        status.ParseFromString(data)
        for detail in status.details:
            if detail.Unpack(info) and info.domain == ERROR_DOMAIN:
                error = error_for(Reason(info.reason), status.message)
                error.metadata = dict(info.metadata)
                return error
    except (DecodeError, ValueError):
        return None
    return None


def bare_status(data: bytes) -> tuple[int, str]:
    """The code and the message of a ``google.rpc.Status``, whoever made it; UNKNOWN of bytes that
    do not parse.
    """
    status = Status()
    try:
        status.ParseFromString(data)
    except DecodeError:
        return int(Code.Value("UNKNOWN")), "a status that cannot be read"
    return int(status.code), str(status.message)
