"""Named sessions from the outside: what each store answers, and who is turned away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient
from logservice_wire.errors import LogServiceError, NotReady, Reason
from logservice_wire.v1 import log_pb2

from logservice.bounds import SESSION_EPOCH_MAX, SESSIONS_LISTED_MAX
from logservice.rsm.named_sessions import nonce_of
from logservice.server.services import log_service
from tests.server.served import Served, ServedStore, block, typed

pytestmark = pytest.mark.asyncio(loop_scope="module")

EPOCH = 5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shard(served: Served) -> int:
    return await served.new_shard()


def opening(shard: int, **fields: Any) -> log_pb2.OpenSessionRequest:
    known = {"name": "job", "epoch": EPOCH, "content": b"c" * 32, "stamp_us": -7, **fields}
    return log_pb2.OpenSessionRequest(shard_id=shard, **known)


async def append(
    store: ServedStore, shard: int, opened: log_pb2.OpenSessionResponse, k: int, record: bytes
) -> log_pb2.AppendResponse:
    answer: log_pb2.AppendResponse = await store.log.Append(
        log_pb2.AppendRequest(
            shard_id=shard,
            block=block(record),
            session_id=opened.session_id,
            session_nonce=opened.nonce,
            sequence=EPOCH << 32 | k,
        )
    )
    return answer


async def refusal(call: Any) -> LogServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return typed(caught.value)


async def test_a_name_is_opened_by_the_leader_and_appended_to_by_it(
    served: Served, shard: int
) -> None:
    leader = served.leader(shard)
    opened = await leader.log.OpenSession(opening(shard))
    assert (opened.appended, opened.stamp_us, opened.nonce) == (0, -7, nonce_of("job"))
    assert (await append(leader, shard, opened, 1, b"a")).lsn == 1
    assert (await append(leader, shard, opened, 2, b"b")).lsn == 2
    again = await leader.log.OpenSession(opening(shard, stamp_us=99))
    assert (again.session_id, again.appended, again.stamp_us) == (opened.session_id, 2, -7)
    repeated = await append(leader, shard, again, 2, b"b")
    assert (repeated.lsn, repeated.duplicate) == (2, True)
    assert (await refusal(append(leader, shard, again, 2, b"x"))).reason is Reason.SEQUENCE_REUSED
    for follower in served.followers(shard):
        error = await refusal(follower.log.OpenSession(opening(shard)))
        assert error.reason is Reason.NOT_LEADER, "a name has an owner, so nobody passes it on"


async def test_who_differs_or_is_late_is_told(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    opened = await leader.log.OpenSession(opening(shard))
    other = leader.log.OpenSession(opening(shard, content=b"d" * 32))
    assert (await refusal(other)).reason is Reason.SEQUENCE_REUSED
    await leader.log.OpenSession(opening(shard, epoch=EPOCH + 1))
    for late in (leader.log.OpenSession(opening(shard)), append(leader, shard, opened, 1, b"a")):
        assert (await refusal(late)).reason is Reason.SESSION_EXPIRED


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"epoch": SESSION_EPOCH_MAX + 1}, "epoch"),
        ({"content": b""}, "content"),
        ({"content": b"c" * 33}, "content"),
        ({"name": "a\nb"}, "name"),
    ],
)
async def test_bad_input_is_refused_before_it_is_proposed(
    served: Served, shard: int, wrong: dict[str, Any], field: str
) -> None:
    leader = served.leader(shard)
    before = leader.host.replicas.info(shard)  # type: ignore[arg-type]
    error = await refusal(leader.log.OpenSession(opening(shard, **wrong)))
    assert (error.reason, error.metadata["field"]) == (Reason.INVALID_ARGUMENT, field)
    after = leader.host.replicas.info(shard)  # type: ignore[arg-type]
    assert before is not None
    assert after is not None
    assert after.committed_index == before.committed_index
    too_long = await refusal(leader.log.OpenSession(opening(shard, name="n" * 129)))
    assert too_long.reason is Reason.TOO_LARGE


async def test_the_ends_of_all_numbers(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    for name, epoch, stamp_us, ttl_s in (
        ("n" * 128, SESSION_EPOCH_MAX, 2**63 - 1, 2**32 - 1),
        ("ä" * 64, 0, -(2**63), 0),
    ):
        asked = opening(shard, name=name, epoch=epoch, stamp_us=stamp_us, ttl_s=ttl_s)
        opened = await leader.log.OpenSession(asked)
        assert (opened.appended, opened.stamp_us) == (0, stamp_us)
        for sequence in (0, epoch << 32, (epoch << 32) + 2, 2**64 - 1):
            request = log_pb2.AppendRequest(
                shard_id=shard,
                block=block(b"x"),
                session_id=opened.session_id,
                session_nonce=opened.nonce,
                sequence=sequence,
            )
            reasons = {Reason.SESSION_EXPIRED, Reason.SEQUENCE_GAP, Reason.INVALID_ARGUMENT}
            assert (await refusal(leader.log.Append(request))).reason in reasons
        request.sequence = (epoch << 32) + 1
        await leader.log.Append(request)
    listed = await leader.log.ListSessions(log_pb2.ListSessionsRequest(shard_id=shard))
    assert [one.appended for one in listed.sessions] == [1, 1]


async def test_a_megabyte_of_a_name_or_content_does_not_reach_the_log(
    served: Served, shard: int
) -> None:
    leader = served.leader(shard)
    for wrong in ({"name": "n" * (1 << 20)}, {"content": bytes(1 << 20)}, {"lineage": bytes(8)}):
        error = await refusal(leader.log.OpenSession(opening(shard, **wrong)))
        assert error.reason in (Reason.TOO_LARGE, Reason.INVALID_ARGUMENT)


async def test_without_a_name_the_other_fields_are_nothing(served: Served, shard: int) -> None:
    opened = await served.leader(shard).log.OpenSession(opening(shard, name="", content=b"x"))
    assert (opened.appended, opened.stamp_us) == (0, 0)
    assert opened.nonce != nonce_of("")


async def test_names_are_listed_page_by_page_and_forgotten(
    served: Served, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SESSIONS_LISTED_MAX."""
    assert SESSIONS_LISTED_MAX == 512
    monkeypatch.setattr(log_service, "SESSIONS_LISTED_MAX", 2)
    leader = served.leader(shard)
    for name in "abc":
        await leader.log.OpenSession(opening(shard, name=name, ttl_s=60))
    asked = log_pb2.ListSessionsRequest(shard_id=shard)
    for store in served.stores:
        page = await store.log.ListSessions(asked)
        assert [(one.name, one.owner, one.epoch, one.ttl_s) for one in page.sessions] == [
            ("a", "anonymous", EPOCH, 60),
            ("b", "anonymous", EPOCH, 60),
        ]
        assert page.more
    asked.after = page.sessions[1].session_id
    rest = await leader.log.ListSessions(asked)
    assert ([one.name for one in rest.sessions], rest.more) == (["c"], False)
    last = rest.sessions[0]
    forget = log_pb2.ForgetSessionRequest(
        shard_id=shard, session_id=last.session_id, last_used=last.last_used
    )
    for follower in served.followers(shard):
        assert (await refusal(follower.log.ForgetSession(forget))).reason is Reason.NOT_LEADER
    await leader.log.ForgetSession(forget)
    await leader.log.ForgetSession(forget)
    late = await refusal(leader.log.OpenSession(opening(shard, name="c")))
    assert late.reason is Reason.SESSION_EXPIRED
    assert (await leader.log.ListSessions(asked)).sessions[0].forgotten
    assert not (
        await leader.log.ListSessions(
            log_pb2.ListSessionsRequest(shard_id=shard, after=2**64 - 1, stale=True)
        )
    ).sessions
    largest = log_pb2.ForgetSessionRequest(shard_id=shard, session_id=2**64 - 1)
    await leader.log.ForgetSession(largest)


async def test_below_cluster_version_2_there_are_no_names() -> None:
    async with Served(1, cluster_version=1) as older:
        shard = await older.new_shard()
        (store,) = older.stores
        error = await refusal(store.log.OpenSession(opening(shard)))
        assert error.reason is Reason.NOT_READY
        async with LogClient(store.address) as client:
            with pytest.raises(NotReady) as caught:
                # At once, and not at the end of its time: no other store says anything else.
                await client.shard(shard).named_session(
                    "job", epoch=0, content=bytes(32), stamp_us=0, timeout=10**6
                )
            assert caught.value.number("needed") == 2
        for call in (
            store.log.ListSessions(log_pb2.ListSessionsRequest(shard_id=shard)),
            store.log.ForgetSession(log_pb2.ForgetSessionRequest(shard_id=shard, session_id=1)),
        ):
            assert (await refusal(call)).reason is Reason.NOT_READY
        assert (await store.log.OpenSession(opening(shard, name=""))).session_id
