"""What goes wrong on the way: nothing is lost, nothing is doubled, nobody is told a lie."""

from __future__ import annotations

import asyncio
from typing import Any

import logservice_client.appender as appender_module
import logservice_client.pacing as pacing_module
import logservice_client.routing as routing_module
import logservice_client.shards_stream as shards_stream_module
import pytest
from logservice_client import LogClient
from logservice_client.appender import Appender
from logservice_client.bounds import FULL_BLOCK_BYTES, HALTED_REPLICAS_MAX
from logservice_client.shards_stream import Lane
from logservice_wire.block import encode_block
from logservice_wire.errors import (
    Busy,
    ClientClosed,
    ClosedUnderWay,
    DeadlineExceeded,
    DiskFull,
    Fenced,
    Halted,
    LogServiceError,
    NotLeader,
    NotReady,
    Outcome,
    PermissionDenied,
    SequenceGap,
    SessionExpired,
    StaleTruncate,
    TooLarge,
    UnknownOutcome,
    WrongExpectedLsn,
)

from tests.client import fake_server
from tests.client.fake_server import FakeCluster, FakeStore, Fault
from tests.waiting import eventually


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for seconds must not look like a leader that does."""
    monkeypatch.setattr(appender_module, "STALL_TIMEOUT_S", 60.0)


async def contents(client: LogClient) -> list[bytes]:
    shard = client.shard(1)
    return [record for block in (await shard.read(1)).blocks for record in block.records()]


async def append_all(client: LogClient, records: list[bytes]) -> list[int | BaseException]:
    shard = client.shard(1)
    return await asyncio.gather(
        *(shard.append(record) for record in records), return_exceptions=True
    )


@pytest.mark.parametrize("lost", ["before", "after"])
async def test_a_lost_answer_is_not_a_second_append(
    client: LogClient, cluster: FakeCluster, lost: str
) -> None:
    """INV-APPENDER-1."""
    shard = client.shard(1)
    assert await shard.append(b"a") == 1
    cluster.faults.append(Fault(lost=lost))
    assert await shard.append(b"b") == 2
    assert await contents(client) == [b"a", b"b"]
    assert cluster.logs[1].sessions_opened == 1


@pytest.mark.parametrize(
    "error",
    [
        NotReady("no leader"),
        NotLeader(),
        UnknownOutcome("leadership lost"),
        Busy(retry_after_ms=5),
        SequenceGap(last=0),
    ],
)
async def test_passing_failures_are_retried_in_order(
    client: LogClient, cluster: FakeCluster, error: LogServiceError
) -> None:
    """INV-APPENDER-2."""
    shard = client.shard(1)
    await shard.append(b"first")
    cluster.faults += [Fault(), Fault(error), Fault(error)]
    blocks = [encode_block([b"%d" % number], 0) for number in range(8)]
    lsns = await asyncio.gather(*(shard.append_block(block) for block in blocks))
    assert lsns == list(range(2, 10))
    assert await contents(client) == [b"first", *(b"%d" % number for number in range(8))]
    assert cluster.logs[1].sessions_opened == 1


async def test_the_leader_dies_under_load(client: LogClient, cluster: FakeCluster) -> None:
    cluster.commit_delay_s = 0.002
    shard = client.shard(1)
    written: list[bytes] = []

    async def writer(name: int) -> None:
        for number in range(40):
            record = b"%d-%d" % (name, number)
            lsn = await shard.append(record)
            while len(written) < lsn:
                written.append(b"")
            written[lsn - 1] = record

    async def chaos() -> None:
        for leader in (1, 2, 0):
            await asyncio.sleep(0.02)
            dead = cluster.leader
            await cluster.stores[dead].kill()
            await asyncio.sleep(0.02)
            cluster.leader = leader
            await cluster.stores[dead].start()

    await asyncio.gather(chaos(), *(writer(name) for name in range(8)))
    assert await contents(client) == written
    assert len(written) == len(set(written)) == 320
    assert cluster.logs[1].sessions_opened <= 2


async def test_a_stopped_store_is_left_behind(cluster: FakeCluster) -> None:
    for store in cluster.stores[:2]:
        await store.kill()
    cluster.leader = 2
    async with LogClient(cluster.endpoints) as client:
        assert await client.shard(1).append(b"a") == 1
        assert len((await client.hakeeper.cluster_state()).stores) == 3


async def test_a_silent_store_is_left_behind(cluster: FakeCluster) -> None:
    cluster.stores[0].silent = True
    cluster.leader = 1
    async with LogClient(cluster.endpoints[:1]) as client:
        with pytest.raises(LogServiceError):
            await client.shard(1).status(timeout=0.3)
    async with LogClient(cluster.endpoints) as client:
        await client.shard(1).append(b"a")
        assert (await client.shard(1).status()).position.applied_lsn == 1


async def test_the_hint_of_not_leader_is_followed(cluster: FakeCluster) -> None:
    cluster.forward = False
    cluster.hakeeper_ready = False
    cluster.leader = 2
    async with LogClient(cluster.endpoints[:1]) as client:
        assert await client.shard(1).append(b"a") == 1
        assert await client.shard(1).truncate(1) == 1
    assert "AppendShards" in cluster.stores[2].calls


async def test_the_stream_moves_to_the_leader(client: LogClient, cluster: FakeCluster) -> None:
    shard = client.shard(1)
    await shard.append(b"a")
    cluster.leader = 1
    while "AppendShards" not in cluster.stores[1].calls:
        await shard.append(b"b")
    seen = cluster.streams_seen
    for _ in range(5):
        await shard.append(b"d")
    assert cluster.streams_seen == seen
    assert cluster.logs[1].sessions_opened == 1


async def test_a_leader_that_cannot_be_reached_costs_no_stream(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address that the stores know it by may lead nowhere for this client."""
    monkeypatch.setattr(pacing_module, "HINT_AGAIN_S", 0.0)
    monkeypatch.setattr(routing_module, "FAILED_ADDRESS_S", 0.0)
    cluster.hakeeper_ready = False
    async with LogClient(cluster.endpoints[:1]) as client:
        shard = client.shard(1)
        await shard.append(b"a")
        cluster.leader = 1
        reachable, cluster.stores[1].address = cluster.stores[1].address, "127.0.0.1:1"
        seen = cluster.streams_seen
        for _ in range(50):
            await shard.append(b"b")
        assert cluster.streams_seen == seen
        cluster.stores[1].address = reachable
        while "AppendShards" not in cluster.stores[1].calls:
            await shard.append(b"c")


async def a_new_stream(store: FakeStore) -> None:
    """Return when one more stream has come to the store."""
    opened = store.calls.count("AppendShards")
    await eventually(lambda: store.calls.count("AppendShards") > opened)


async def test_the_stream_moves_to_the_leader_under_load(
    client: LogClient, cluster: FakeCluster
) -> None:
    """There is always a block on its way, because full ones do not wait for earlier ones. The
    stream moved when by chance there was none, or never.
    """
    shard = client.shard(1)
    await shard.append(b"a")
    cluster.commit_delay_s = 0.02
    full = encode_block([bytes(FULL_BLOCK_BYTES)], 0)
    arrived = asyncio.Event()

    async def writer() -> None:
        while not arrived.is_set():
            await shard.append_block(full)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            before = cluster.blocks_received
            group.create_task(writer())
            await cluster.received(before + 1)
        for leader in (1, 2, 0):
            cluster.leader = leader
            await a_new_stream(cluster.stores[leader])
        arrived.set()
    assert cluster.logs[1].sessions_opened == 1


async def test_a_look_between_two_streams_keeps_the_session(
    client: LogClient, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of which every block was acked was given up, if the timer looked just then."""
    shard = client.shard(1)
    await shard.append(b"a")
    appender, router = shard._appender, client._router
    picked, go_on = router.pick, asyncio.Event()

    async def later(*words: Any, **more: Any) -> str:
        await go_on.wait()
        return await picked(*words, **more)

    monkeypatch.setattr(router, "pick", later)
    stream = appender._stream
    assert stream is not None
    stream.break_off("the test ends it")
    waiting = asyncio.create_task(shard.append(b"b"))
    await eventually(lambda: appender._stream is None and appender.queue.pending)
    appender._look()
    go_on.set()
    assert await waiting == 2
    assert cluster.logs[1].sessions_opened == 1


async def test_the_stream_comes_back_to_a_leader_that_failed_for_a_moment(
    client: LogClient, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found on a machine that stood still: a hint that had been followed once never was again, so
    that the client appended through a follower until the leader changed.
    """
    monkeypatch.setattr(pacing_module, "HINT_AGAIN_S", 0.05)
    monkeypatch.setattr(routing_module, "FAILED_ADDRESS_S", 0.2)
    shard = client.shard(1)
    await shard.append(b"a")
    for leader in (1, 2, 1):
        cluster.leader = leader
        streams = cluster.stores[leader].calls
        for broken in (False, True, True):
            opened = streams.count("AppendShards")
            if broken:
                cluster.faults.append(Fault(lost="before"))
            async with asyncio.timeout(60):
                while streams.count("AppendShards") == opened:
                    await shard.append(b"b")
            assert not cluster.faults, "the stream came back after it was broken"


async def test_without_hakeeper_the_endpoints_do(cluster: FakeCluster) -> None:
    cluster.hakeeper_ready = False
    async with LogClient(cluster.endpoints) as client:
        assert await client.shard(1).append(b"a") == 1


async def test_nobody_home_is_definitely_not_applied(cluster: FakeCluster) -> None:
    endpoints = cluster.endpoints
    await cluster.stop()
    async with LogClient(endpoints) as client:
        shard = client.shard(1)
        for call in (shard.append(b"a", timeout=0.2), shard.truncate(1, timeout=0.2)):
            with pytest.raises(LogServiceError) as caught:
                await call
            assert caught.value.outcome is Outcome.NOT_APPLIED


async def test_an_append_that_gave_up_before_it_was_sent_never_happens(
    cluster: FakeCluster,
) -> None:
    cluster.leader = -1
    async with LogClient(cluster.endpoints) as client:
        shard = client.shard(1)
        given_up = asyncio.create_task(shard.append(b"given up"))
        waiting = asyncio.create_task(shard.append(b"patient"))
        with pytest.raises(NotReady):
            await shard.append([b"in a", b"hurry"], timeout=0.1)
        given_up.cancel()
        await asyncio.wait([given_up])
        cluster.leader = 0
        assert await waiting == 1
        assert await contents(client) == [b"patient"]


@pytest.mark.usefixtures("patient")
async def test_a_sent_append_that_gave_up_is_of_unknown_outcome(
    client: LogClient, cluster: FakeCluster
) -> None:
    shard = client.shard(1)
    await shard.append(b"a")
    cluster.commit_delay_s = 3600.0
    giving_up = asyncio.create_task(shard.append(b"slow", timeout=1.0))
    await cluster.received(2)
    with pytest.raises(DeadlineExceeded) as caught:
        await giving_up
    assert caught.value.outcome is Outcome.UNKNOWN
    cluster.commit_delay_s = 0.0
    later = asyncio.create_task(shard.append(b"later"))
    await cluster.received(3)
    await cluster.stores[0].kill()
    await cluster.stores[0].start()
    assert await later == 3
    assert await contents(client) == [b"a", b"slow", b"later"]


async def test_an_expired_session_is_an_unknown_outcome_and_later_appends_go_on(
    client: LogClient, cluster: FakeCluster
) -> None:
    shard = client.shard(1)
    await shard.append(b"a")
    cluster.logs[1].sessions.clear()
    with pytest.raises(SessionExpired) as caught:
        await shard.append(b"b")
    assert caught.value.outcome is Outcome.UNKNOWN
    assert await shard.append(b"c") == 2
    assert await contents(client) == [b"a", b"c"]
    assert cluster.logs[1].sessions_opened == 2


@pytest.mark.usefixtures("patient")
async def test_a_refused_block_does_not_take_others_with_it(
    client: LogClient, cluster: FakeCluster
) -> None:
    shard = client.shard(1)
    cluster.commit_delay_s = 0.005
    results = await asyncio.gather(
        *(
            shard.append([b"%d" % number], expected_lsn=99 if number == 3 else None)
            for number in range(8)
        ),
        *(shard.append_block(encode_block([b"b%d" % number], 0)) for number in range(8)),
        return_exceptions=True,
    )
    (refused,) = [result for result in results if isinstance(result, BaseException)]
    assert isinstance(refused, WrongExpectedLsn)
    found = await contents(client)
    assert len(found) == len(set(found)) == 15
    for result, record in zip(
        results, [b"%d" % n for n in range(8)] + [b"b%d" % n for n in range(8)], strict=True
    ):
        if isinstance(result, int):
            assert found[result - 1] == record


async def test_fenced_fails_everything_of_that_epoch(
    client: LogClient, cluster: FakeCluster
) -> None:
    shard = client.shard(1)
    await shard.acquire_writer("ours")
    await shard.append(b"a")
    cluster.commit_delay_s = 0.01
    cluster.logs[1].acquire("theirs", 0, takeover=True)
    results = await append_all(client, [b"%d" % number for number in range(20)])
    assert all(isinstance(result, Fenced) for result in results)
    assert await contents(client) == [b"a"]
    assert await shard.acquire_writer("ours", takeover=True) == 3
    assert await shard.append(b"b") == 2


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("error", [DiskFull(), PermissionDenied(role="writer")])
async def test_lasting_refusals_reach_the_caller_at_once(
    client: LogClient, cluster: FakeCluster, error: LogServiceError
) -> None:
    shard = client.shard(1)
    await shard.append(b"a")
    cluster.faults.append(Fault(error))
    with pytest.raises(type(error)):
        await shard.append(b"b")
    assert await shard.append(b"c") == 2
    assert await contents(client) == [b"a", b"c"]


@pytest.mark.usefixtures("patient")
async def test_refused_after_a_lost_answer_is_unknown(
    client: LogClient, cluster: FakeCluster
) -> None:
    """The first copy may still be on its way, so "disk full" is not the whole truth."""
    shard = client.shard(1)
    await shard.append(b"a")
    cluster.faults += [Fault(lost="before"), Fault(DiskFull())]
    with pytest.raises(UnknownOutcome):
        await shard.append(b"b")
    assert await shard.append(b"c") == 2
    assert cluster.logs[1].sessions_opened == 2


async def test_truncate_whose_answer_was_lost_has_succeeded(
    client: LogClient, cluster: FakeCluster
) -> None:
    shard = client.shard(1)
    await shard.append([b"a"] * 5)
    cluster.faults.append(Fault(lost="after"))
    assert await shard.truncate(3) == 3
    with pytest.raises(StaleTruncate):
        await shard.truncate(2)


async def test_acquire_whose_answer_was_lost_is_not_repeated(
    client: LogClient, cluster: FakeCluster
) -> None:
    cluster.faults.append(Fault(lost="after"))
    with pytest.raises(UnknownOutcome):
        await client.shard(1).acquire_writer("ours")
    assert cluster.logs[1].epoch == 1


async def test_ids_whose_answer_was_lost_are_the_same_ids(
    client: LogClient, cluster: FakeCluster
) -> None:
    cluster.faults.append(Fault(lost="after"))
    assert await client.hakeeper.allocate_ids(3) == range(1, 4)
    assert await client.hakeeper.allocate_ids(1) == range(4, 5)


async def test_who_gives_up_disturbs_nobody_else_who_asks_the_same_client_for_ids(
    client: LogClient, cluster: FakeCluster
) -> None:
    """One caller's time-out has closed a client for all who shared it, and those who waited for
    the next range of ids came through one by one.
    """
    cluster.hakeeper_ready = False
    hasty = client.hakeeper.allocate_ids(1, timeout=0.1)
    patient = [asyncio.create_task(client.hakeeper.allocate_ids(3)) for _ in range(50)]
    with pytest.raises(LogServiceError):
        await hasty
    gone = asyncio.create_task(client.hakeeper.allocate_ids(1))
    await asyncio.sleep(0)
    gone.cancel()
    assert not any(task.done() for task in patient)
    cluster.hakeeper_ready = True
    ranges = await asyncio.gather(*patient)
    given = [one for found in ranges for one in found]
    assert len(set(given)) == len(given) == 150
    assert await client.shard(1).append(b"a") == 1


async def test_follow_survives_its_replica(client: LogClient, cluster: FakeCluster) -> None:
    shard = client.shard(1)
    await shard.append(b"0")
    found: list[bytes] = []

    async def follow() -> None:
        async for item in shard.follow(1, until_lsn=30):
            found.extend(item.records())  # type: ignore[union-attr]

    following = asyncio.create_task(follow())
    for number in range(1, 30):
        if number % 10 == 0:
            dead, cluster.leader = cluster.leader, (cluster.leader + 1) % 3
            await cluster.stores[dead].kill()
            await cluster.stores[dead].start()
        await shard.append(b"%d" % number)
    await following
    assert found == [b"%d" % number for number in range(30)]


async def test_a_damaged_block_is_noticed_by_the_reader(
    client: LogClient, cluster: FakeCluster
) -> None:
    await client.shard(1).append(b"abcdef")
    run = cluster.logs[1].runs[0]
    damaged = bytearray(run.block)
    damaged[-4] ^= 1
    run.block = bytes(damaged)
    with pytest.raises(LogServiceError, match="CORRUPT_BLOCK"):
        await client.shard(1).read(1)


@pytest.mark.usefixtures("patient")
async def test_closing_tells_what_is_known(cluster: FakeCluster) -> None:
    cluster.commit_delay_s = 5
    client = LogClient(cluster.endpoints)
    shard = client.shard(1)
    sent = asyncio.create_task(shard.append(b"sent"))
    await cluster.received(1)
    second = asyncio.create_task(shard.append(b"sent too"))
    await cluster.received(2)
    third = asyncio.create_task(shard.append(b"waits"))
    await asyncio.sleep(0)
    await client.close()
    outcomes = await asyncio.gather(sent, second, third, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ClosedUnderWay] * 2 + [ClientClosed]
    with pytest.raises(ClientClosed):
        await shard.append(b"late")


async def test_a_resend_is_never_larger_than_a_message_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everything in flight in one message would be refused as too large, though it is applied."""
    monkeypatch.setattr(fake_server, "OPTIONS", (("grpc.max_receive_message_length", 300_000),))
    monkeypatch.setattr(appender_module, "MESSAGE_BYTES_MAX", 200_000)
    monkeypatch.setattr(shards_stream_module, "MESSAGE_BYTES_MAX", 200_000)
    cluster = await FakeCluster.start()
    try:
        cluster.commit_delay_s = 0.005
        cluster.faults += [Fault(), Fault(lost="after")]
        blocks = [encode_block([b"%d" % number * 70_000], 0) for number in range(10)]
        async with LogClient(cluster.endpoints) as client:
            shard = client.shard(1)
            assert await shard.append(b"first") == 1
            lsns = await asyncio.gather(*(shard.append_block(block) for block in blocks))
        assert lsns == list(range(2, 12))
        assert [run.block for run in cluster.logs[1].runs][1:] == blocks
        assert cluster.logs[1].sessions_opened == 1
    finally:
        await cluster.stop()


@pytest.mark.usefixtures("patient")
async def test_a_message_that_grpc_refuses_says_nothing_of_what_was_sent_before(
    client: LogClient, cluster: FakeCluster
) -> None:
    """The refusal names no block: the first one in flight may well be applied."""
    shard = client.shard(1)
    assert await shard.append(b"a") == 1
    cluster.commit_delay_s = 0.02
    cluster.faults.append(Fault(TooLarge("larger than max")))
    blocks = [encode_block([b"%d" % number * 70_000], 0) for number in range(3)]
    lsns = await asyncio.gather(*(shard.append_block(block) for block in blocks))
    assert lsns == [2, 3, 4]
    assert cluster.logs[1].sessions_opened == 1


@pytest.fixture
def late(cluster: FakeCluster, patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines pass when the last fault in line has shown, before there is another attempt."""
    delayed = Appender._delayed

    def heard(self: Appender, error: LogServiceError) -> None:
        delayed(self, error)
        if not cluster.faults:
            for batch in self._unsettled:
                batch.deadline_s = 0.0

    monkeypatch.setattr(Appender, "_delayed", heard)


@pytest.mark.usefixtures("late")
async def test_the_deadline_of_a_block_that_may_have_been_applied(
    client: LogClient, cluster: FakeCluster
) -> None:
    shard = client.shard(1)
    await shard.append(b"a")
    cluster.faults += [Fault(lost="after"), Fault(NotReady(retry_after_ms=1000))]
    with pytest.raises(DeadlineExceeded) as caught:
        await shard.append(b"b")
    assert caught.value.outcome is Outcome.UNKNOWN
    assert await shard.append(b"c") == 3
    assert await contents(client) == [b"a", b"b", b"c"]


@pytest.mark.usefixtures("late")
async def test_the_deadline_of_a_block_that_was_always_refused(
    client: LogClient, cluster: FakeCluster
) -> None:
    shard = client.shard(1)
    await shard.append(b"a")
    cluster.faults += [Fault(Busy(retry_after_ms=wait_ms)) for wait_ms in (1, 1, 1, 1000)]
    with pytest.raises(Busy) as caught:
        await shard.append(b"b")
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert await shard.append(b"c") == 2
    assert await contents(client) == [b"a", b"c"]


async def test_a_frozen_leader_is_left(
    client: LogClient, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender_module, "STALL_TIMEOUT_S", 0.2)
    shard = client.shard(1)
    await shard.append(b"a")
    cluster.stores[0].frozen.set()
    cluster.leader = 1
    assert await shard.append(b"b") == 2
    assert "AppendShards" in cluster.stores[1].calls + cluster.stores[2].calls
    assert await contents(client) == [b"a", b"b"]


async def test_stalls_that_repeat_are_waited_for_longer_up_to_a_bound(
    client: LogClient, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STALL_TIMEOUT_MAX_S is made small here."""
    monkeypatch.setattr(appender_module, "STALL_TIMEOUT_S", 0.05)
    monkeypatch.setattr(appender_module, "STALL_TIMEOUT_MAX_S", 0.15)
    monkeypatch.setattr(appender_module, "WATCH_INTERVAL_S", 0.01)
    silent: list[float] = []
    break_off = Lane.break_off

    def watched(self: Lane, reason: str) -> None:
        silent.append(self.silent_s(asyncio.get_running_loop().time()))
        break_off(self, reason)

    monkeypatch.setattr(Lane, "break_off", watched)
    shard = client.shard(1)
    for store in cluster.stores:
        store.frozen.set()
    appending = asyncio.create_task(shard.append(b"a"))
    async with asyncio.timeout(60):
        while len(silent) < 5:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
    longest = shard._appender._stall_s
    for store in cluster.stores:
        store.frozen.clear()
    assert await appending == 1
    assert longest == 0.15
    assert all(one >= 0.05 for one in silent)


async def test_a_call_gives_up_after_so_many_halted_replicas(
    client: LogClient, cluster: FakeCluster
) -> None:
    """Reaches HALTED_REPLICAS_MAX. With one halted replica fewer, the call goes past them."""
    shard = client.shard(1)
    await shard.append(b"a")
    cluster.faults += [Fault(Halted())] * (HALTED_REPLICAS_MAX - 1)
    await shard.truncate(1)
    assert not cluster.faults
    cluster.faults += [Fault(Halted())] * (HALTED_REPLICAS_MAX + 1)
    with pytest.raises(Halted):
        await shard.truncate(1)
    assert len(cluster.faults) == 1
