"""A log that was continued by force: the program is told, and decides, and nothing is followed."""

from __future__ import annotations

import asyncio

import pytest
from logservice_client import LogClient, SyncLogClient
from logservice_client.lineage import KnownLineage, Lineage
from logservice_wire import digest as digests
from logservice_wire.block import encode_block
from logservice_wire.errors import LineageChanged, Outcome, UnknownOutcome
from logservice_wire.v1 import log_pb2

from tests.client.fake_server import FakeCluster, Fault
from tests.client.running_fake import running_fake
from tests.waiting import eventually

ONE, TWO = b"1" * 16, b"2" * 16


async def _fork(cluster: FakeCluster, keep: int, lineage: bytes = ONE) -> None:
    """A recovery needs that no store runs, so no stream outlives it."""
    for store in cluster.stores:
        await store.kill()
    cluster.logs[1].fork(lineage, keep)
    for store in cluster.stores:
        await store.start()


async def test_an_append_behind_a_fork_is_refused_for_good(
    cluster: FakeCluster, client: LogClient
) -> None:
    shard = client.shard(1)
    for number in range(5):
        await shard.append(b"%d" % number)
    assert shard.lineage == Lineage()
    await _fork(cluster, keep=3)
    for one in await asyncio.gather(
        *(shard.append(b"late") for _ in range(100)), return_exceptions=True
    ):
        assert isinstance(one, LineageChanged)
        assert (one.outcome, one.number("fork_lsn")) == (Outcome.NOT_APPLIED, 3)
    assert cluster.logs[1].next_lsn == 4
    calls = len(cluster.stores[0].calls)
    with pytest.raises(LineageChanged):
        await shard.append(b"and again")
    with pytest.raises(LineageChanged):
        await shard.append_block(b"", timeout=1)
    assert len(cluster.stores[0].calls) == calls, "nothing is asked any more"


async def test_what_may_have_been_appended_before_the_fork_is_unknown(
    cluster: FakeCluster, client: LogClient
) -> None:
    """Its answer was lost, and then the majority: it may be among what was recovered."""
    shard = client.shard(1)
    await shard.append(b"one")
    cluster.faults.append(Fault(lost="after"))
    cluster.stores[0].ready = True
    unknown = asyncio.ensure_future(shard.append(b"two"))
    await eventually(lambda: cluster.logs[1].next_lsn == 3)
    cluster.logs[1].fork(ONE, 2)
    with pytest.raises(UnknownOutcome) as told:
        await unknown
    assert told.value.metadata["actual"] == ONE.hex()
    with pytest.raises(LineageChanged):
        await shard.append(b"three")


@pytest.mark.parametrize(
    "first", ["read", "follow", "time", "digest", "truncate", "acquire", "hold", "renew", "status"]
)
async def test_every_call_is_told(cluster: FakeCluster, client: LogClient, first: str) -> None:
    shard = client.shard(1)
    for number in range(5):
        await shard.append(b"%d" % number)
    await _fork(cluster, keep=2)

    async def follow() -> None:
        async for _ in shard.follow(1, until_lsn=2):
            pass

    calls = {
        "read": lambda: shard.read(5),
        "time": lambda: shard.lsn_at_time(1),
        "digest": lambda: shard.digest(1, 2),
        "renew": lambda: shard.renew_hold("h"),
        "follow": follow,
        "truncate": lambda: shard.truncate(1),
        "acquire": lambda: shard.acquire_writer("me"),
        "hold": lambda: shard.set_hold("h", 1),
        "status": shard.status,
    }
    with pytest.raises(LineageChanged):
        await calls[first]()
    assert (cluster.logs[1].truncated, cluster.logs[1].epoch, cluster.logs[1].holds) == (0, 0, {})
    for call in calls.values():
        with pytest.raises(LineageChanged):
            await call()


@pytest.mark.parametrize("number", [0, 1])
async def test_a_digest_in_several_calls_is_of_one_history(
    cluster: FakeCluster, client: LogClient, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Also for a handle that has heard of none before: what is chained must not be of two."""
    log = cluster.logs[1]
    if number:
        log.fork(TWO, 0)
    cluster.digest_pieces = 1
    monkeypatch.setattr(digests, "PIECE_LSNS", 1)
    for _ in range(3):
        log.append(encode_block([b"a"], 1))
    told: list[int] = []

    def fork(lsn: int) -> None:
        if not told:
            log.fork(ONE, 1)
            log.append(encode_block([b"b"], 1))
            log.append(encode_block([b"c"], 1))
        told.append(lsn)

    with pytest.raises(LineageChanged):
        await client.shard(1).digest(1, 4, progress=fork)
    assert told == [2]


async def test_it_goes_on_when_the_program_says_so(cluster: FakeCluster, client: LogClient) -> None:
    shard = client.shard(1)
    await shard.acquire_writer("me")
    for number in range(5):
        await shard.append(b"%d" % number)
    await _fork(cluster, keep=3)
    with pytest.raises(LineageChanged):
        await shard.append(b"late")
    assert shard.accept_lineage() == Lineage(1, ONE, 3)
    assert shard.writer_epoch == 0
    await shard.acquire_writer("me", expected_epoch=1)
    assert await shard.append(b"new") == 4
    assert (await shard.read(1)).records() == [b"0", b"1", b"2", b"new"]
    await _fork(cluster, keep=3, lineage=TWO)
    with pytest.raises(LineageChanged):
        await shard.read(4)
    assert shard.accept_lineage() == Lineage(2, TWO, 3)


async def test_a_new_client_takes_the_log_as_it_is(cluster: FakeCluster) -> None:
    cluster.logs[1].fork(ONE, 0)
    async with LogClient(cluster.endpoints) as client:
        shard = client.shard(1)
        assert shard.lineage is None
        assert shard.accept_lineage() is None
        assert await shard.append(b"one") == 1
        assert shard.lineage == Lineage(1, ONE, 0)
        await shard.read(1)


def test_an_answer_of_a_store_that_is_behind_is_no_change() -> None:
    known = KnownLineage(1)
    known.heard(log_pb2.LogPosition(lineage=log_pb2.Lineage(number=2, id=TWO, fork_lsn=9)))
    known.heard(log_pb2.LogPosition())
    known.heard(log_pb2.LogPosition(lineage=log_pb2.Lineage(number=1, id=ONE, fork_lsn=3)))
    known.check()
    known.heard(log_pb2.LogPosition(lineage=log_pb2.Lineage(number=2, id=ONE, fork_lsn=3)))
    with pytest.raises(LineageChanged):
        known.check()


async def test_a_stale_answer_teaches_nothing(cluster: FakeCluster, client: LogClient) -> None:
    shard = client.shard(1)
    await shard.status(stale=True)
    assert shard.lineage is None
    await shard.status()
    assert shard.lineage == Lineage()


def test_the_synchronous_face_has_it_too() -> None:
    with running_fake(stores=1) as cluster, SyncLogClient(cluster.endpoints) as client:
        shard = client.shard(1)
        shard.append(b"one")
        assert shard.lineage == Lineage()
        cluster.logs[1].fork(ONE, 1)
        with pytest.raises(LineageChanged):
            shard.read(1)
        assert shard.accept_lineage() == Lineage(1, ONE, 1)
