"""The client's promises against real stores: leaders that move, the end in the middle of it all."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import pytest
from logservice_client import ClientClosed, Outcome, SyncLogClient
from logservice_wire.v1 import admin_pb2

from tests.client.served_on_a_thread import ServedThread, served_on_a_thread

WAIT_S = 60.0


@pytest.fixture
def stores() -> Iterator[ServedThread]:
    with served_on_a_thread() as running:
        yield running


async def move_leader(stores: ServedThread) -> None:
    """To a follower, by the leader's own store."""
    served = stores.served
    target = served.followers(1)[0].host.identity.store_id
    request = admin_pb2.TransferLeaderRequest(shard_id=1, store_id=target)
    await served.leader(1).admin.TransferLeader(request)


def test_pipelined_appends_outlive_leaders(stores: ServedThread) -> None:
    with SyncLogClient(stores.endpoints) as client:
        log = client.shard(1)
        futures: list[Future[int]] = []
        for number in range(3000):
            futures.append(log.append_async(b"%d" % number))
            if number in (500, 1500):
                stores.run(move_leader(stores))
        lsns = [future.result(WAIT_S) for future in futures]
        assert lsns == sorted(lsns)
        found = dict(log.records(1, until_tail=True))
        assert [found[lsn] for lsn in lsns] == [b"%d" % number for number in range(3000)]
        assert len(found) == 3000, "none twice"


def test_what_is_told_at_the_end_is_true(stores: ServedThread) -> None:
    """INV-CLIENT-END: acked appends are there, and what was not applied is not."""
    client = SyncLogClient(stores.endpoints)
    log = client.shard(1)
    log.append(b"first")
    following = log.follow(1)
    assert next(following).first_lsn == 1
    given: SimpleQueue[int] = SimpleQueue()

    def follow_to_the_end() -> None:
        for item in following:
            given.put(item.first_lsn)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(follow_to_the_end)
        futures = [log.append_async(b"%d" % number) for number in range(2000)]
        futures[100].result(WAIT_S)
        assert given.get(timeout=WAIT_S) == 2, "the end comes while it follows"
        client.close()
    with pytest.raises(ClientClosed):
        waiting.result(0)
    with SyncLogClient(stores.endpoints) as other:
        found = {record for _, record in other.shard(1).records(1, until_tail=True)}
    for number, future in enumerate(futures):
        error = future.exception(0)
        if error is None:
            assert b"%d" % number in found
        else:
            assert isinstance(error, ClientClosed)
            assert error.outcome is Outcome.UNKNOWN or b"%d" % number not in found
