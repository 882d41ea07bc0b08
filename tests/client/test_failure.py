"""What gRPC reports, as typed errors: a mutating call is never called "not applied" by guessing."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from logservice_client.failure import error_of, may_repeat
from logservice_wire.errors import (
    Busy,
    DeadlineExceeded,
    Fenced,
    InvalidArgument,
    LogServiceError,
    NotReady,
    Outcome,
    PermissionDenied,
    Reason,
    TooLarge,
    Truncated,
    Unauthenticated,
    UnknownOutcome,
    error_for,
)
from logservice_wire.status import STATUS_DETAILS_KEY, to_status_details


def failure(
    code: grpc.StatusCode, details: str = "why", trailer: bytes | None = None
) -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata()
    if trailer is not None:
        trailing.add(STATUS_DETAILS_KEY, trailer)
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details, None)


@pytest.mark.parametrize("reason", list(Reason))
def test_our_own_errors_come_back_as_they_were(reason: Reason) -> None:
    error = error_for(reason, "m", first_lsn=3)
    found = error_of(
        failure(grpc.StatusCode[error.status], trailer=to_status_details(error)), mutating=True
    )
    assert (type(found), found.metadata) == (type(error), error.metadata)


@pytest.mark.parametrize(
    ("code", "reading", "writing"),
    [
        (grpc.StatusCode.UNAVAILABLE, NotReady, UnknownOutcome),
        (grpc.StatusCode.CANCELLED, NotReady, UnknownOutcome),
        (grpc.StatusCode.ABORTED, NotReady, UnknownOutcome),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded, DeadlineExceeded),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Busy, UnknownOutcome),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgument, InvalidArgument),
        (grpc.StatusCode.UNIMPLEMENTED, InvalidArgument, InvalidArgument),
        (grpc.StatusCode.UNAUTHENTICATED, Unauthenticated, Unauthenticated),
        (grpc.StatusCode.PERMISSION_DENIED, PermissionDenied, PermissionDenied),
        (grpc.StatusCode.INTERNAL, UnknownOutcome, UnknownOutcome),
        (grpc.StatusCode.UNKNOWN, UnknownOutcome, UnknownOutcome),
        (grpc.StatusCode.DATA_LOSS, UnknownOutcome, UnknownOutcome),
    ],
)
def test_bare_codes(
    code: grpc.StatusCode, reading: type[LogServiceError], writing: type[LogServiceError]
) -> None:
    assert type(error_of(failure(code), mutating=False)) is reading
    assert type(error_of(failure(code, trailer=b"\xff\xff"), mutating=True)) is writing


def test_a_call_over_the_limit_of_concurrent_calls_was_never_served() -> None:
    refused = failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!")
    assert type(error_of(refused, mutating=True)) is Busy


def test_a_message_over_the_length_limit() -> None:
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    details = "CLIENT: Received message larger than max (9 vs. 4)"
    assert type(error_of(failure(code, details), mutating=False)) is TooLarge


@pytest.mark.parametrize(
    ("details", "writing"),
    [
        ("SERVER: Received message larger than max (9 vs. 4)", TooLarge),
        ("SERVER: Decompressed message larger than max (9 vs. 4)", TooLarge),
        ("CLIENT: Sent message larger than max (9 vs. 4)", TooLarge),
        ("SERVER: Sent message larger than max (9 vs. 4)", UnknownOutcome),
        ("CLIENT: Received message larger than max (9 vs. 4)", UnknownOutcome),
    ],
)
def test_g5_an_answer_over_the_length_limit_is_that_of_a_call_that_was_served(
    details: str, writing: type[LogServiceError]
) -> None:
    """The error was once TOO_LARGE, which means "definitely not applied", although the call was
    served.
    """
    found = error_of(failure(grpc.StatusCode.RESOURCE_EXHAUSTED, details), mutating=True)
    assert type(found) is writing


@pytest.mark.parametrize(
    ("error", "reading", "idempotent", "other"),
    [
        (NotReady(), True, True, True),
        (Busy(), True, True, True),
        (UnknownOutcome(), True, True, False),
        (DeadlineExceeded(), True, True, False),
        (error_for(Reason.SESSION_EXPIRED), False, False, False),
        (error_for(Reason.DISK_FULL), False, False, False),
        (Fenced(), False, False, False),
        (Truncated(), False, False, False),
    ],
)
def test_what_may_be_repeated(
    error: LogServiceError, reading: bool, idempotent: bool, other: bool
) -> None:
    assert may_repeat(error, mutating=False, idempotent=True) is reading
    assert may_repeat(error, mutating=True, idempotent=True) is idempotent
    assert may_repeat(error, mutating=True, idempotent=False) is other


def test_a_bug_of_the_server_is_not_asked_for_again() -> None:
    error = error_of(failure(grpc.StatusCode.INTERNAL), mutating=False)
    assert error.outcome is Outcome.UNKNOWN
    assert not may_repeat(error, mutating=False, idempotent=True)


def test_what_a_later_cluster_version_takes_is_not_asked_for_again() -> None:
    for mutating, idempotent in ((False, True), (True, True), (True, False)):
        early = NotReady(cluster_version=1, needed=2)
        assert not may_repeat(early, mutating=mutating, idempotent=idempotent)
        assert may_repeat(NotReady("no leader"), mutating=mutating, idempotent=idempotent)
