"""What a person reads of an error: what is wrong and the next step, and an outcome that is true."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator

import grpc
import pytest
from logservice_client import LogClient, Outcome, watching
from logservice_client.failure import _by_code, answered
from logservice_client.following import Following
from logservice_client.pacing import Deadline
from logservice_client.routing import Router
from logservice_wire.errors import (
    DeadlineExceeded,
    Fenced,
    InvalidArgument,
    LogServiceError,
    NotReady,
    StaleEpoch,
    StaleTruncate,
    Truncated,
    UnknownOutcome,
    VerbRefused,
)
from logservice_wire.v1 import hakeeper_pb2

from tests.client.fake_server import FakeCluster


@pytest.mark.parametrize("made", [Fenced, StaleEpoch, StaleTruncate, VerbRefused, InvalidArgument])
def test_an_error_does_not_repeat_its_own_name(made: type[LogServiceError]) -> None:
    error = made()
    assert error.reason.value.lower().replace("_", " ") not in error.message.lower()
    assert len(error.message.split()) > 5, "it says the next step"


def test_the_next_step_of_a_writer_is_an_argument() -> None:
    assert "takeover=True" in str(Fenced(epoch=2, holder="db-2"))
    assert "expected_epoch=" in str(StaleEpoch(epoch=2))


def test_a_lost_connection_is_said_in_words() -> None:
    for mutating in (True, False):
        told = str(_by_code(grpc.StatusCode.UNAVAILABLE, "Stream removed", mutating=mutating))
        assert "the connection with the store was lost" in told
        assert "Stream removed" not in told


def test_what_changes_nothing_has_no_unknown_outcome() -> None:
    for error in (DeadlineExceeded("late"), UnknownOutcome("lost")):
        assert answered(error, mutating=True) is error
        told = answered(error, mutating=False)
        assert (told.outcome, told.message) == (Outcome.NOT_APPLIED, error.message)


async def test_a_read_whose_time_is_over_has_no_unknown_outcome(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with LogClient(cluster.endpoints) as client:
        log = client.shard(1)
        await log.append(b"one")
        for store in cluster.stores:
            store.silent = True
        with pytest.raises(LogServiceError) as told:
            await log.read(1, timeout=0.3)
        assert told.value.outcome is Outcome.NOT_APPLIED
        for store in cluster.stores:
            store.silent = False


async def test_a_follow_and_a_watch_have_no_unknown_outcome(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> AsyncGenerator[None]:
        raise UnknownOutcome("a code that means nothing here", broken="DATA_LOSS")
        yield

    monkeypatch.setattr(Following, "_responses", broken)
    monkeypatch.setattr(watching, "_responses", broken)
    async with LogClient(cluster.endpoints) as client:
        for answers in (client.shard(1).follow(1), client.hakeeper.watch_events()):
            with pytest.raises(NotReady, match="means nothing here") as told:
                async for _ in answers:
                    pass
            assert told.value.outcome is Outcome.NOT_APPLIED


async def test_an_error_of_a_store_keeps_its_cause(cluster: FakeCluster) -> None:
    """The failure of gRPC, which a traceback shows; an error that caused itself would hide it."""
    async with LogClient(cluster.endpoints) as client:
        log = client.shard(1)
        await log.append(b"one")
        await log.truncate(1)
        for call in (log.read(1), anext(log.follow(1))):
            with pytest.raises(Truncated) as caught:
                await call
            assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)


async def test_a_host_that_does_not_resolve_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio, "open_connection", unknown)
    async with LogClient("no-such-host.invalid:9700") as client:
        with pytest.raises(NotReady, match="its host name does not resolve"):
            # A resolver may take its time: no deadline of ours is in the way.
            await client._pool.connect("no-such-host.invalid:9700")


async def test_no_majority_is_said_with_who_answers(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints) as client:
        router: Router = client._router
        await router.shard_info(1, Deadline(5.0))
        replicas = router.replicas(1)
        assert len(replicas) == 3
        late = DeadlineExceeded("no ack in time", sequence=7)
        router.learn_leader(1, replicas[0])
        router.learn_failure(1, replicas[0], late)
        assert router.explained(1, late) is late, "two may answer"
        router.learn_failure(1, replicas[1], UnknownOutcome("no answer"))
        told = router.explained(1, late)
        assert isinstance(told, DeadlineExceeded)
        assert told.number("sequence") == 7
        assert told.message == (
            f"no majority of log 1 answers: {replicas[0]}, {replicas[1]} did not, "
            f"{replicas[2]} may; it was led at {replicas[0]} last"
        )
        refused = StaleTruncate()
        assert router.explained(1, refused) is refused
        router.learn_answer(replicas[0])
        assert router.explained(1, late) is late
        router.learn_info(1, hakeeper_pb2.ShardInfo())
        assert router.explained(1, late) is late, "nothing is known"
