"""Errors survive the wire with reason, message and metadata; foreign bytes never raise."""

from __future__ import annotations

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from grpc_status import rpc_status
from hypothesis import given
from hypothesis import strategies as st
from logservice_wire.errors import (
    LogServiceError,
    NotLeader,
    Reason,
    Truncated,
    error_for,
    error_table,
)
from logservice_wire.status import (
    STATUS_DETAILS_KEY,
    from_status_details,
    status_code_number,
    to_status_details,
)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_round_trips(reason: Reason) -> None:
    error = error_for(reason, "what happened", first_lsn=17, holder="wal-writer")
    back = from_status_details(to_status_details(error))
    assert type(back) is error_table()[reason]
    assert back.message == "what happened"
    assert back.metadata == {"first_lsn": "17", "holder": "wal-writer"}
    assert str(back) == str(error)


def test_codes_are_those_of_grpc() -> None:
    for error_class in error_table().values():
        code = getattr(grpc.StatusCode, error_class.status)
        assert code.value[0] == status_code_number(error_class())


def test_the_key_is_the_one_grpc_uses() -> None:
    status = rpc_status.to_status(Status(code=9))
    assert [key for key, _ in status.trailing_metadata] == [STATUS_DETAILS_KEY]


def test_metadata_named_like_parameters() -> None:
    error = Truncated("gone")
    error.metadata = {"message": "m", "reason": "r", "self": "s"}
    back = from_status_details(to_status_details(error))
    assert back is not None
    assert back.metadata == error.metadata


def test_foreign_details_are_not_ours() -> None:
    status = Status(code=9, message="x")
    assert from_status_details(status.SerializeToString()) is None
    status.details.add().Pack(ErrorInfo(domain="elsewhere", reason="NOT_LEADER"))
    assert from_status_details(status.SerializeToString()) is None
    status.details.add().Pack(ErrorInfo(domain="logservice", reason="FROM_THE_FUTURE"))
    assert from_status_details(status.SerializeToString()) is None
    mixed = Status(code=9)
    mixed.details.add().Pack(ErrorInfo(domain="elsewhere", reason="NOT_LEADER"))
    mixed.details.add().Pack(ErrorInfo(domain="logservice", reason="NOT_LEADER"))
    assert isinstance(from_status_details(mixed.SerializeToString()), NotLeader)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise(data: bytes) -> None:
    assert from_status_details(data) is None or isinstance(
        from_status_details(data), LogServiceError
    )


@given(st.integers(0, 200), st.integers(0, 255))
def test_damaged_details_never_raise(position: int, value: int) -> None:
    data = bytearray(to_status_details(Truncated("gone", first_lsn=5)))
    data[position % len(data)] = value
    from_status_details(bytes(data))
