"""Entries of a log by index: each outcome of `NodeHost.query_entries`. It names INV-QUERY-1."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from logservice_wire.errors import (
    BeyondTail,
    DeadlineExceeded,
    Halted,
    InvalidArgument,
    NotReady,
    ShardNotFound,
    ShardRestoring,
    Truncated,
)

from logservice import bounds
from logservice.entry import Entry, EntryKind
from logservice.envelope import decode_blocks
from logservice.ids import Index, Lsn, ShardId
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.replica import entry_query
from logservice.nodehost.replica.entry_query import EntrySlice
from logservice.rsm import commands
from tests.nodehost.cluster import SHARD, Cluster, request, said
from tests.owners import APP
from tests.waiting import eventually

WAIT_S = 30.0


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, stores=1)
    await cluster.up(voters=(1,))
    await cluster.leader()
    for number in range(9):
        await cluster.host(1).append(SHARD, request(block=b"%d" % number), WAIT_S)
    yield cluster
    if cluster.stores[1].host is not None:
        await cluster.down()


@pytest.fixture
def host(cluster: Cluster) -> NodeHost:
    return cluster.host(1)


async def ask(host: NodeHost, low: int, high: int, max_bytes: int = 1 << 20) -> EntrySlice:
    return await host.query_entries(SHARD, Index(low), Index(high), max_bytes, WAIT_S)


def records(entries: tuple[Entry, ...]) -> list[bytes]:
    blocks = [one for entry in entries if entry.kind is EntryKind.BLOCK for one in [entry.payload]]
    return [said(bytes(one.block)) for payload in blocks for one in decode_blocks(payload)]


# --- the normal one -------------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [True, False])
async def test_every_entry_of_every_kind(
    host: NodeHost, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    """INV-QUERY-1, page by page, from memory and from the disk."""
    if not cached:
        monkeypatch.setattr(ReplicaLog, "cached_entries", lambda *_: None)
    await host.propose(SHARD, commands.encode(commands.Connect()), WAIT_S)
    replica = host.replicas.running[SHARD]
    first, applied = replica.reader.first_index(), replica.applied
    found: list[Entry] = []
    position = first
    while position <= applied:
        page = await ask(host, position, position + 3)
        assert (page.first_index, page.applied) == (first, applied)
        assert page.next_index == position + len(page.entries) > position
        found += page.entries
        position = page.next_index
    assert [one.index for one in found] == list(range(first, applied + 1))
    assert {one.kind for one in found} >= {EntryKind.BLOCK, EntryKind.COMMAND, EntryKind.NOOP}
    assert records(tuple(found)) == [b"%d" % number for number in range(9)]


async def test_no_more_than_asked_for_and_one_at_least(
    host: NodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = host.replicas.running[SHARD].applied
    assert len((await ask(host, applied - 3, applied + 1, max_bytes=1)).entries) == 1
    assert len((await ask(host, applied - 3, applied - 1)).entries) == 2
    whole = await ask(host, applied - 3, applied + 1000)
    assert (len(whole.entries), whole.next_index) == (4, applied + 1)
    empty = await ask(host, applied + 1, applied + 2)
    assert (empty.entries, empty.next_index) == ((), applied + 1)
    monkeypatch.setattr(entry_query, "QUERY_ENTRIES_MAX", 3)
    assert len((await ask(host, applied - 5, applied + 1)).entries) == 3
    assert bounds.QUERY_ENTRIES_MAX > 3


async def test_entries_that_are_not_applied_are_not_shown(
    host: NodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = host.replicas.running[SHARD]
    last = replica.log.last_index()
    monkeypatch.setattr(replica, "applied", Index(last - 1))
    found = await ask(host, last - 2, last + 1)
    assert [one.index for one in found.entries] == [last - 2, last - 1]
    with pytest.raises(BeyondTail):
        await ask(host, last + 1, last + 2)


# --- timed out, closed ----------------------------------------------------------------------------


@pytest_asyncio.fixture
async def stuck(host: NodeHost, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[threading.Event]:
    """Reads of the disk wait until they are let go."""
    monkeypatch.setattr(ReplicaLog, "cached_entries", lambda *_: None)
    goes_on = threading.Event()
    host.replicas.running[SHARD].directory.read_executor.submit(lambda: goes_on.wait(60))
    yield goes_on
    goes_on.set()


async def test_a_disk_that_does_not_answer_in_time(host: NodeHost, stuck: threading.Event) -> None:
    low = host.replicas.running[SHARD].applied
    with pytest.raises(DeadlineExceeded):
        await host.query_entries(SHARD, low, Index(low + 1), 1 << 20, 0.05)
    stuck.set()
    assert (await ask(host, low, low + 1)).entries, "it may be asked again"


async def test_a_replica_that_stops_while_it_is_read(
    host: NodeHost, stuck: threading.Event
) -> None:
    low = host.replicas.running[SHARD].applied
    asked = asyncio.ensure_future(ask(host, low, low + 1))
    await asyncio.sleep(0)
    await host.replicas.stop(SHARD)
    stuck.set()
    with pytest.raises(NotReady):
        await asked


async def test_a_host_that_is_closed(cluster: Cluster, host: NodeHost) -> None:
    await cluster.down()
    with pytest.raises(ShardNotFound):
        await ask(host, 2, 3)


# --- the wrong state ------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0, 5), (-1, 5), (5, 5), (6, 5)])
async def test_what_is_no_range(host: NodeHost, low: int, high: int) -> None:
    with pytest.raises(InvalidArgument):
        await ask(host, low, high)


async def test_a_log_that_is_not_here(host: NodeHost) -> None:
    with pytest.raises(ShardNotFound):
        await host.query_entries(ShardId(9), Index(1), Index(2), 1, WAIT_S)


async def test_a_replica_that_halted(host: NodeHost) -> None:
    replica = host.replicas.running[SHARD]
    host.replicas.halt(replica, "for a test")
    with pytest.raises(Halted):
        await ask(host, 2, 3)


async def test_a_witness_has_no_payloads(host: NodeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.replicas.running[SHARD], "witness", True)
    with pytest.raises(ShardNotFound):
        await ask(host, 2, 3)


async def test_a_log_that_is_not_verified_yet(
    host: NodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(rsm: object) -> None:
        raise ShardRestoring("not verified")

    monkeypatch.setattr(entry_query, "check_open", refuse)
    with pytest.raises(ShardRestoring):
        await ask(host, 2, 3)


async def test_what_was_compacted_and_what_is_not_there_yet(host: NodeHost) -> None:
    replica = host.replicas.running[SHARD]
    await host.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(9), 0)), WAIT_S)
    snapshot = replica.applied_snapshot()
    await host.append(SHARD, request(block=b"later"), WAIT_S)
    await replica.install_snapshot(snapshot, Lsn(9))
    await eventually(lambda: replica.reader.first_index() == snapshot.index + 1)
    with pytest.raises(Truncated) as compacted:
        await ask(host, snapshot.index, snapshot.index + 2)
    assert compacted.value.metadata == {
        "first_index": str(snapshot.index + 1),
        "first_lsn": "10",
    }
    found = await ask(host, snapshot.index + 1, snapshot.index + 9)
    assert records(found.entries) == [b"later"]
    with pytest.raises(BeyondTail) as beyond:
        await ask(host, replica.applied + 2, replica.applied + 3)
    assert beyond.value.metadata["next_index"] == str(replica.applied + 1)
    assert beyond.value.metadata["next_lsn"] == "11"
