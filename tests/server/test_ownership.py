"""Sessions, writers and holds between identities, from the outside: a neighbour with a certificate.

A real store with TLS. A, the owner, and B, the neighbour, have every role there is but admin over
the same log; B speaks to the store with stubs of its own, so that it can send what no client would.
C has the role admin, and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient, Tls
from logservice_wire.errors import Outcome, Reason
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice.rsm import named_sessions
from logservice.server.audit.chain import Trail
from logservice.server.store import Store
from tests.papers import uri
from tests.server.secured import CLIENTS, channel_of, lay_out, papers_of, secured
from tests.server.served import block, typed
from tests.server.test_access import change
from tests.server.test_audit import lines

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHARD = 1
A, B, C = (uri("client", name) for name in ("owner", "neighbour", "operator"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("store")
    lay_out(directory)
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(directory: Path) -> AsyncIterator[Store]:
    async with secured(directory) as made:
        for identity in (A, B):
            await change(made, identity, "*", grant=["append", "read", "truncate"])
        await change(made, C, "*", grant=["admin"])
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def logs(store: Store) -> AsyncIterator[dict[str, Any]]:
    """The Log stubs of each client."""
    channels = {
        identity: channel_of(store, papers_of(identity.rpartition("/")[2]))
        for identity in (A, B, C)
    }
    yield {identity: log_pb2_grpc.LogStub(channel) for identity, channel in channels.items()}
    for channel in channels.values():
        await channel.close()


async def refused(call: Any) -> tuple[Reason, dict[str, str]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = typed(caught.value)
    return error.reason, dict(error.metadata)


async def opened(log: Any) -> dict[str, Any]:
    """A session, as the fields of an append name it."""
    answer = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=SHARD))
    assert len(answer.nonce) == 16
    return {"session_id": answer.session_id, "session_nonce": answer.nonce}


def append(record: bytes, **fields: Any) -> log_pb2.AppendRequest:
    return log_pb2.AppendRequest(shard_id=SHARD, block=block(record), **fields)


async def records(log: Any, lsn: int) -> list[bytes]:
    found = await log.Read(log_pb2.ReadRequest(shard_id=SHARD, lsn=lsn))
    return [bytes(one.block) for one in found.blocks if one.block]


async def test_g5_a_record_acked_in_a_session_is_not_lost_by_another_identity_in_it(
    logs: dict[str, Any],
) -> None:
    """B's append once took A's sequence: A's record was acked, and was in no log."""
    mine, theirs = logs[A], logs[B]
    session = await opened(mine)
    first = await mine.Append(append(b"A1", **session, sequence=1))
    for nonce in (session["session_nonce"], bytes(16)):
        stolen = append(b"B2", session_id=session["session_id"], session_nonce=nonce, sequence=2)
        assert (await refused(theirs.Append(stolen)))[0] is Reason.SESSION_EXPIRED
        message = log_pb2.AppendStreamRequest
        stream = message(
            open=message.Open(
                shard_id=SHARD, session_id=session["session_id"], session_nonce=nonce
            ),
            blocks=[message.Block(sequence=2, block=block(b"B2"))],
        )
        call = theirs.AppendStream()
        await call.write(stream)
        assert (await refused(call.read()))[0] is Reason.SESSION_EXPIRED
    second = await mine.Append(append(b"A2", **session, sequence=2))
    assert (second.lsn, second.duplicate) == (first.lsn + 1, False)
    assert await records(mine, first.lsn) == [block(b"A1"), block(b"A2")]


async def test_a_session_id_without_its_nonce_is_nothing_to_its_own_identity_either(
    logs: dict[str, Any],
) -> None:
    session = await opened(logs[A])
    guessed = append(b"x", session_id=session["session_id"], session_nonce=bytes(16), sequence=1)
    assert (await refused(logs[A].Append(guessed)))[0] is Reason.SESSION_EXPIRED
    bare = append(b"x", session_id=session["session_id"], sequence=1)
    reason, details = await refused(logs[A].Append(bare))
    assert (reason, details["field"]) == (Reason.INVALID_ARGUMENT, "session_nonce")


async def test_g5_a_sequence_with_another_block_is_refused_and_says_not_applied(
    logs: dict[str, Any],
) -> None:
    session = await opened(logs[A])
    first = await logs[A].Append(append(b"one", **session, sequence=1))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await logs[A].Append(append(b"another", **session, sequence=1))
    error = typed(caught.value)
    assert (error.reason, error.outcome) == (Reason.SEQUENCE_REUSED, Outcome.NOT_APPLIED)
    assert error.number("lsn") == first.lsn
    again = await logs[A].Append(append(b"one", **session, sequence=1))
    assert (again.lsn, again.duplicate) == (first.lsn, True)


def opening(name: str, epoch: int = 1) -> log_pb2.OpenSessionRequest:
    return log_pb2.OpenSessionRequest(
        shard_id=SHARD, name=name, epoch=epoch, content=bytes(32), stamp_us=7
    )


async def listed(log: Any) -> dict[tuple[str, str], log_pb2.NamedSession]:
    found = await log.ListSessions(log_pb2.ListSessionsRequest(shard_id=SHARD))
    return {(one.owner, one.name): one for one in found.sessions}


async def test_g5_a_name_is_of_its_identity_and_a_neighbour_neither_ends_nor_forgets_it(
    directory: Path, logs: dict[str, Any]
) -> None:
    """The neighbour opens the same name, poisons its own with the last epoch, and asks for both."""
    mine, theirs, operator = logs[A], logs[B], logs[C]
    opened = await mine.OpenSession(opening("job"))
    block_1 = append(
        b"A1", session_id=opened.session_id, session_nonce=opened.nonce, sequence=(1 << 32) + 1
    )
    lsn = (await mine.Append(block_1)).lsn
    poisoned = await theirs.OpenSession(opening("job", 2**31 - 1))
    assert poisoned.session_id != opened.session_id
    stolen = append(
        b"B2", session_id=opened.session_id, session_nonce=poisoned.nonce, sequence=(1 << 32) + 2
    )
    assert (await refused(theirs.Append(stolen)))[0] is Reason.SESSION_EXPIRED
    shown = await listed(theirs)
    assert shown[A, "job"].appended == 1
    assert shown[B, "job"].epoch == 2**31 - 1
    forget = log_pb2.ForgetSessionRequest(
        shard_id=SHARD,
        session_id=opened.session_id,
        last_used=shown[A, "job"].last_used,
    )
    reason, details = await refused(theirs.ForgetSession(forget))
    assert (reason, details["owner"]) == (Reason.PERMISSION_DENIED, A)
    forget.override = True
    for log in (theirs, mine):
        reason, details = await refused(log.ForgetSession(forget))
        assert (reason, details["role"]) == (Reason.PERMISSION_DENIED, "admin")
    again = await mine.OpenSession(opening("job"))
    assert (again.session_id, again.appended) == (opened.session_id, 1)
    # It was used since the neighbour looked, so not even administration has it forgotten by that.
    assert (await refused(operator.ForgetSession(forget)))[0] is Reason.VERB_REFUSED
    forget.last_used = (await listed(operator))[A, "job"].last_used
    await operator.ForgetSession(forget)
    assert (await refused(mine.OpenSession(opening("job"))))[0] is Reason.SESSION_EXPIRED
    assert (await refused(mine.Append(block_1)))[0] is Reason.SESSION_EXPIRED
    assert await records(mine, lsn) == [block(b"A1")]
    audited = lines(directory / "data" / "audit", Trail.ADMINISTRATION)
    assert (C, "allowed") in [
        (line["who"], line["decision"]) for line in audited if line["what"] == "ForgetSession"
    ]


async def test_greedy_neighbours_leave_room_for_names_of_others(
    logs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an operator makes room again, while what is forgotten is still refused."""
    monkeypatch.setattr(named_sessions, "NAMED_SESSIONS_MAX", 24)
    for log, who in ((logs[B], B), (logs[A], A)):
        number = 0
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while True:
                number += 1
                await log.OpenSession(opening(f"greedy/{number}"))
        error = typed(caught.value)
        assert (error.reason, error.outcome) == (Reason.TOO_LARGE, Outcome.NOT_APPLIED)
        assert error.metadata["name"] == "named sessions of one identity"
        live = [one for one in (await listed(log)).values() if not one.forgotten]
        assert 0 < sum(one.owner == who for one in live) <= error.number("limit")
        assert len(live) < 24
    for one in [one for one in (await listed(logs[C])).values() if one.owner == B]:
        await logs[C].ForgetSession(
            log_pb2.ForgetSessionRequest(
                shard_id=SHARD,
                session_id=one.session_id,
                last_used=one.last_used,
                override=True,
            )
        )
    assert (await logs[A].OpenSession(opening("room"))).named
    assert (await refused(logs[B].OpenSession(opening("greedy/1"))))[0] is Reason.SESSION_EXPIRED


async def test_g9_another_identity_neither_uses_nor_takes_nor_releases_the_writers_epoch(
    directory: Path, logs: dict[str, Any]
) -> None:
    mine, theirs, operator = logs[A], logs[B], logs[C]
    acquire, release = log_pb2.AcquireWriterRequest, log_pb2.ReleaseWriterRequest
    epoch = (await mine.AcquireWriter(acquire(shard_id=SHARD, holder="db-1", takeover=True))).epoch
    try:
        lsn = (await mine.Append(append(b"A", writer_epoch=epoch))).lsn
        assert (await refused(theirs.Append(append(b"B", writer_epoch=epoch))))[0] is Reason.FENCED
        truncate = log_pb2.TruncateRequest(shard_id=SHARD, lsn=lsn, writer_epoch=epoch)
        assert (await refused(theirs.Truncate(truncate)))[0] is Reason.FENCED
        for call in (
            theirs.ReleaseWriter(release(shard_id=SHARD, epoch=epoch)),
            theirs.AcquireWriter(acquire(shard_id=SHARD, holder="b", expected_epoch=epoch)),
            theirs.AcquireWriter(acquire(shard_id=SHARD, holder="b", takeover=True)),
        ):
            reason, details = await refused(call)
            assert (reason, details["owner"]) == (Reason.PERMISSION_DENIED, A)
        # Asking for the override takes the role, whatever else one may do.
        for log in (theirs, mine):
            forced = release(shard_id=SHARD, epoch=epoch, override=True)
            reason, details = await refused(log.ReleaseWriter(forced))
            assert (reason, details["role"]) == (Reason.PERMISSION_DENIED, "admin")
        assert (await mine.Append(append(b"A", writer_epoch=epoch))).lsn == lsn + 1
        status = await mine.GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=SHARD))
        assert (status.writer_holder, status.writer_owner) == ("db-1", A)
    finally:
        forced = release(shard_id=SHARD, epoch=epoch, override=True)
        await operator.ReleaseWriter(forced)
    audited = lines(directory / "data" / "audit", Trail.ADMINISTRATION)
    overrides = [
        (line["who"], line["decision"]) for line in audited if line["what"] == "ReleaseWriter"
    ]
    assert (C, "allowed") in overrides
    # The log must be writable again without an epoch for nobody: a new one is acquired.
    again = acquire(shard_id=SHARD, holder="db-2", expected_epoch=epoch)
    assert (await theirs.AcquireWriter(again)).epoch == epoch + 1
    await theirs.ReleaseWriter(release(shard_id=SHARD, epoch=epoch + 1))


async def test_another_identity_neither_moves_nor_releases_a_hold(logs: dict[str, Any]) -> None:
    mine, theirs, operator = logs[A], logs[B], logs[C]
    tail = (await mine.GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=SHARD))).position
    lsn = tail.applied_lsn + 1
    await mine.SetHold(log_pb2.SetHoldRequest(shard_id=SHARD, name="backup", lsn=lsn))
    for call in (
        theirs.SetHold(log_pb2.SetHoldRequest(shard_id=SHARD, name="backup", lsn=lsn + 5)),
        theirs.ReleaseHold(log_pb2.ReleaseHoldRequest(shard_id=SHARD, name="backup")),
    ):
        reason, details = await refused(call)
        assert (reason, details["owner"]) == (Reason.PERMISSION_DENIED, A)
    status = await mine.GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=SHARD))
    assert [(hold.name, hold.lsn, hold.owner) for hold in status.holds] == [("backup", lsn, A)]
    # Administration may, if it says so.
    plain = log_pb2.ReleaseHoldRequest(shard_id=SHARD, name="backup")
    assert (await refused(operator.ReleaseHold(plain)))[0] is Reason.PERMISSION_DENIED
    await operator.ReleaseHold(
        log_pb2.ReleaseHoldRequest(shard_id=SHARD, name="backup", override=True)
    )
    status = await mine.GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=SHARD))
    assert list(status.holds) == []


async def test_the_client_library_appends_beside_a_neighbour_who_knows_its_session(
    store: Store, logs: dict[str, Any]
) -> None:
    """The session is the library's own, and nothing that the library prints shows its nonce."""
    papers = papers_of("owner")
    tls = Tls(ca=CLIENTS.pem, certificate=papers.certificate, key=papers.key)
    status = await logs[A].GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=SHARD))
    async with LogClient(store.client_address, tls=tls) as client:
        shard = client.shard(SHARD)
        await shard.acquire_writer("library", expected_epoch=status.writer_epoch)
        first = await shard.append(b"one")
        session = shard._appender._session
        assert session is not None
        assert session.nonce.hex() not in repr(session)
        assert repr(session.nonce) not in repr(session)
        stolen = append(
            b"theirs",
            session_id=session.session_id,
            session_nonce=session.nonce,
            sequence=2,
            writer_epoch=shard.writer_epoch,
        )
        assert (await refused(logs[B].Append(stolen)))[0] is Reason.SESSION_EXPIRED
        assert await shard.append(b"two") == first + 1
        await shard.release_writer()
