"""What a NodeHost is asked about snapshots: each outcome of `request_snapshot`, `install_exported`
and `compact`, on real log storage. It names INV-ASK-1 to 3 and INV-KEEP-1.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from logservice_wire.errors import (
    BeyondTail,
    Busy,
    DeadlineExceeded,
    DiskFull,
    Halted,
    InvalidArgument,
    LineageChanged,
    LogServiceError,
    NotReady,
    ShardNotFound,
    ShardRestoring,
    Truncated,
    UnknownOutcome,
    WrongCluster,
)
from msgspec import structs

from logservice.ids import HAKEEPER_SHARD, ClusterId, Index, Lsn, ReplicaId, ShardId, Term
from logservice.invariants import InvariantViolation
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.nodehost.listeners import HostEvent, LogCompacted
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.replica import snapshot_requests
from logservice.nodehost.truncation import asked
from logservice.nodehost.truncation.export_file import ExportFile
from logservice.nodehost.truncation.worker import TruncationWorker
from logservice.rsm import commands
from tests.nodehost.cluster import SHARD, Cluster, request, said
from tests.owners import APP
from tests.waiting import eventually

WAIT_S = 30.0
RECORDS = 20
FIRST = 2
"""Where a log begins that was never compacted."""

Request = Callable[..., Awaitable[Index]]


async def save(host: NodeHost, path: str, timeout_s: float = WAIT_S) -> Index:
    return await host.request_snapshot(SHARD, timeout_s)


async def export(host: NodeHost, path: str, timeout_s: float = WAIT_S) -> Index:
    return await host.request_snapshot(SHARD, timeout_s, export_path=path)


async def install(host: NodeHost, path: str, timeout_s: float = WAIT_S) -> Index:
    return await host.install_exported(SHARD, path, timeout_s)


async def compact(host: NodeHost, path: str, timeout_s: float = WAIT_S) -> Index:
    return await host.compact(SHARD, Index(3), timeout_s)


ALL = pytest.mark.parametrize("ask", [save, export, install, compact])


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, stores=1)
    await cluster.up(voters=(1,))
    await cluster.leader()
    cluster.host(1).cluster_version.learn(2)
    await append(cluster.host(1), RECORDS)
    yield cluster
    if cluster.stores[1].host is not None:
        await cluster.down()


@pytest.fixture
def host(cluster: Cluster) -> NodeHost:
    return cluster.host(1)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "log.export")


@pytest_asyncio.fixture
async def exported(host: NodeHost, path: str) -> Index:
    """An export of all records so far, all of which are truncated then; more follow."""
    index = await export(host, path)
    await truncate(host, RECORDS)
    await append(host, 5)
    return index


async def append(host: NodeHost, count: int) -> None:
    for number in range(count):
        await host.append(SHARD, request(block=b"%d" % number), WAIT_S)


async def truncate(host: NodeHost, lsn: int) -> None:
    await host.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(lsn), 0)), WAIT_S)


def worker(cluster: Cluster) -> TruncationWorker:
    parts = cluster.stores[1].parts
    assert parts is not None
    return parts.workers[0]


def first_index(host: NodeHost) -> Index:
    return host.replicas.running[SHARD].log.first_index()


def contents(path: str) -> bytes | None:
    """What is in the file, None if there is none."""
    return Path(path).read_bytes() if Path(path).exists() else None


def rewrite(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)


async def readable(host: NodeHost) -> list[int]:
    """The LSNs of all records that can be read."""
    replica = host.replicas.running[SHARD]
    found: list[int] = []
    position = replica.first_lsn
    while True:
        part = await host.read_log(SHARD, position, 1 << 20)
        if not part.runs:
            return found
        assert all(said(bytes(run.block)).isdigit() for run in part.runs)
        found += range(position, part.next_lsn)
        position = part.next_lsn


# --- the normal outcome ---------------------------------------------------------------------------


async def test_an_ordinary_snapshot_is_where_a_restart_begins(cluster: Cluster) -> None:
    host = cluster.host(1)
    index = await host.request_snapshot(SHARD, WAIT_S)
    assert index == host.replicas.running[SHARD].applied
    assert worker(cluster).exports.newest_index(SHARD, ReplicaId(1)) == index
    assert await host.request_snapshot(SHARD, WAIT_S) == index, "asked again it is the same one"
    assert worker(cluster).exports.count(SHARD, ReplicaId(1)) == 1
    assert first_index(host) == FIRST, "the log is not compacted behind it"
    await cluster.stores[1].down()
    host = await cluster.stores[1].up()
    parts = cluster.stores[1].parts
    assert parts is not None
    newest = parts.directories[0].exports.newest(SHARD, ReplicaId(1))
    assert newest is not None
    assert newest.index == index
    await cluster.leader()
    assert await readable(host) == list(range(1, RECORDS + 1))


async def test_an_export_is_installed_and_the_log_compacted_behind_it(
    host: NodeHost, exported: Index, path: str
) -> None:
    assert first_index(host) == FIRST, "an export to a path changes nothing"
    assert await install(host, path) == exported
    assert first_index(host) == exported + 1
    assert await install(host, path) == exported, "asked again it is there"
    assert await readable(host) == list(range(RECORDS + 1, RECORDS + 6))
    with pytest.raises(Truncated):
        await host.query_entries(SHARD, exported, Index(exported + 1), 1, WAIT_S)


async def test_an_installed_export_is_durable(cluster: Cluster, exported: Index, path: str) -> None:
    await install(cluster.host(1), path)
    await cluster.stores[1].down()
    host = await cluster.stores[1].up()
    await cluster.leader()
    assert first_index(host) == exported + 1
    assert await readable(host) == list(range(RECORDS + 1, RECORDS + 6))


async def test_a_log_is_compacted_to_an_index(cluster: Cluster, host: NodeHost) -> None:
    told: list[HostEvent] = []
    host.listen(told.append)
    await truncate(host, RECORDS)
    await host.request_snapshot(SHARD, WAIT_S)
    log = host.replicas.running[SHARD].log
    for index in (5, 9):  # both lie between what is installed and the export
        assert await host.compact(SHARD, Index(index), WAIT_S) == index
        assert log.first_index() == index + 1
        installed = log.installed
        assert installed is not None
        assert installed.snapshot.next_lsn == log.next_lsn(Index(index))
    assert await host.compact(SHARD, Index(4), WAIT_S) == 9, "it is compacted behind it already"
    applied = host.replicas.running[SHARD].applied
    assert await host.compact(SHARD, applied, WAIT_S) == applied
    assert worker(cluster).exports.count(SHARD, ReplicaId(1)) == 0
    await append(host, 3)
    assert await readable(host) == [RECORDS + 1, RECORDS + 2, RECORDS + 3]
    await eventually(lambda: len([one for one in told if isinstance(one, LogCompacted)]) == 3)


async def test_a_compaction_goes_on_where_one_replay_ended(
    cluster: Cluster, host: NodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker(cluster).keeper, "_replay_entries_max", 4)
    await truncate(host, RECORDS)
    assert await host.compact(SHARD, Index(15), WAIT_S) == 15
    assert first_index(host) == 16


async def test_an_export_further_away_than_one_replay_is_installed(
    cluster: Cluster,
    host: NodeHost,
    exported: Index,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker(cluster).keeper, "_replay_entries_max", 4)
    assert await install(host, path) == exported


async def test_all_three_on_a_follower(tmp_path: Path, path: str) -> None:
    cluster = Cluster(tmp_path)
    await cluster.up()
    number = await cluster.leader()
    leader, follower = cluster.host(number), cluster.host(number % 3 + 1)
    follower.cluster_version.learn(2)
    await append(leader, RECORDS)
    await truncate(leader, RECORDS)
    await follower.read_index(SHARD, WAIT_S)
    assert await compact(follower, path) == 3
    index = await export(follower, path)
    assert await install(follower, path) == index == await save(follower, path)
    assert first_index(leader) == FIRST, "each replica compacts itself"
    await append(leader, 1)
    await follower.read_index(SHARD, WAIT_S)
    assert await readable(follower) == [RECORDS + 1]
    await cluster.down()


# --- timed out ------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def stuck(cluster: Cluster) -> AsyncIterator[threading.Event]:
    """The thread that works at exports waits until it is let go."""
    goes_on = threading.Event()
    parts = cluster.stores[1].parts
    assert parts is not None
    parts.directories[0].seams.export_executor.submit(lambda: goes_on.wait(60))
    yield goes_on
    goes_on.set()


@ALL
async def test_inv_ask_1_a_disk_that_does_not_answer_in_time(
    host: NodeHost,
    exported: Index,
    path: str,
    stuck: threading.Event,
    ask: Request,
) -> None:
    with pytest.raises(DeadlineExceeded):
        await ask(host, path, 0.05)
    stuck.set()
    assert await ask(host, path) >= 3, "it may be asked again"


@ALL
async def test_inv_ask_1_one_request_at_a_time(
    host: NodeHost,
    exported: Index,
    path: str,
    stuck: threading.Event,
    ask: Request,
) -> None:
    first = asyncio.ensure_future(save(host, path))
    await asyncio.sleep(0)
    with pytest.raises(Busy) as busy:
        await ask(host, path)
    assert busy.value.number("retry_after_ms") > 0
    stuck.set()
    await first
    assert await ask(host, path) >= 3


async def test_inv_keep_1_the_worker_waits_for_who_asked_before_it(
    cluster: Cluster, host: NodeHost, exported: Index, path: str, stuck: threading.Event
) -> None:
    asking = asyncio.ensure_future(compact(host, path))
    await asyncio.sleep(0)
    assert worker(cluster).keeper.turn.locked()
    visit = asyncio.ensure_future(worker(cluster).run_once())
    await asyncio.sleep(0.02)
    assert not visit.done()
    stuck.set()
    assert await asking == 3
    assert (await visit).counts == {"later": 1, "exported": 1}
    await worker(cluster).run_once()
    assert first_index(host) > RECORDS, "the worker went on behind what was asked for"


# --- closed ---------------------------------------------------------------------------------------


@ALL
async def test_a_host_that_is_closed(
    cluster: Cluster, host: NodeHost, path: str, ask: Request
) -> None:
    await cluster.down()
    with pytest.raises(ShardNotFound):
        await ask(host, path)


@ALL
async def test_a_replica_that_stops_meanwhile(
    cluster: Cluster,
    host: NodeHost,
    exported: Index,
    path: str,
    ask: Request,
) -> None:
    async with worker(cluster).keeper.turn:
        asking = asyncio.ensure_future(ask(host, path))
        await asyncio.sleep(0.02)
        await host.replicas.stop(SHARD)
    with pytest.raises(NotReady):
        await asking


async def test_a_replica_that_stops_in_a_replay(
    cluster: Cluster, host: NodeHost, exported: Index, path: str, stuck: threading.Event
) -> None:
    """The export's thread is stuck at the file, at the exports, or at the replay."""
    asking = asyncio.ensure_future(compact(host, path))
    await asyncio.sleep(0.02)
    await host.replicas.stop(SHARD)
    stuck.set()
    with pytest.raises(NotReady):
        await asking


# --- the wrong state ------------------------------------------------------------------------------


@ALL
async def test_replicas_that_cannot(
    host: NodeHost,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    ask: Request,
) -> None:
    replica = host.replicas.running[SHARD]
    with monkeypatch.context() as patched:
        patched.setattr(replica, "witness", True)
        with pytest.raises(ShardNotFound):
            await ask(host, path)
    with monkeypatch.context() as patched:
        patched.setattr(replica, "shard", HAKEEPER_SHARD)
        with pytest.raises(InvalidArgument):
            await ask(host, path)
    with monkeypatch.context() as patched:
        patched.setattr(host.snapshots, "_snapshots", {})
        with pytest.raises(NotReady):
            await ask(host, path)

    def refuse(rsm: object) -> None:
        raise ShardRestoring("not verified")

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_requests, "check_open", refuse)
        with pytest.raises(ShardRestoring):
            await ask(host, path)
    host.replicas.halt(replica, "for a test")
    with pytest.raises(Halted):
        await ask(host, path)


async def test_a_log_that_is_not_here(host: NodeHost, path: str) -> None:
    for asking in (
        host.request_snapshot(ShardId(9), WAIT_S),
        host.request_snapshot(ShardId(9), WAIT_S, export_path=path),
        host.install_exported(ShardId(9), path, WAIT_S),
        host.compact(ShardId(9), Index(1), WAIT_S),
    ):
        with pytest.raises(ShardNotFound):
            await asking
    assert contents(path) is None


async def test_no_export_to_a_path_below_cluster_version_2(tmp_path: Path, path: str) -> None:
    """INV-VERSION-1. An ordinary one is what every program writes."""
    cluster = Cluster(tmp_path, stores=1)
    await cluster.up(voters=(1,))
    await cluster.leader()
    cluster.host(1).cluster_version.settled = True
    with pytest.raises(NotReady) as refused:
        await export(cluster.host(1), path)
    assert refused.value.metadata == {"cluster_version": "1", "needed": "2"}
    assert contents(path) is None
    assert await save(cluster.host(1), path) > 0
    await cluster.down()


@pytest.mark.parametrize("index", [0, -1])
async def test_what_is_no_index(host: NodeHost, index: int) -> None:
    with pytest.raises(InvalidArgument):
        await host.compact(SHARD, Index(index), WAIT_S)


async def test_inv_ask_2_a_wish_for_more_than_may_go(host: NodeHost) -> None:
    """INV-T1, INV-T3, to the entry."""
    applied = host.replicas.running[SHARD].applied
    with pytest.raises(BeyondTail) as beyond:
        await host.compact(SHARD, Index(applied + 1), WAIT_S)
    assert beyond.value.metadata == {
        "next_index": str(applied + 1),
        "next_lsn": str(RECORDS + 1),
    }
    await truncate(host, 7)
    log = host.replicas.running[SHARD].log
    covered = Index(log.index_of_lsn(Lsn(8)) - 1)
    with pytest.raises(InvalidArgument) as above:
        await host.compact(SHARD, Index(covered + 1), WAIT_S)
    assert above.value.number("covered") == covered
    assert above.value.number("truncated_lsn") == 7
    assert first_index(host) == FIRST, "nothing was changed"
    assert await host.compact(SHARD, covered, WAIT_S) == covered
    assert await readable(host) == list(range(8, RECORDS + 1))


async def test_inv_ask_2_a_hold_bounds_it(host: NodeHost) -> None:
    hold = commands.SetHold(APP, override=False, lsn=Lsn(5), name="backup")
    await host.propose(SHARD, commands.encode(hold), WAIT_S)
    await truncate(host, RECORDS)
    log = host.replicas.running[SHARD].log
    covered = Index(log.index_of_lsn(Lsn(5)) - 1)
    with pytest.raises(InvalidArgument):
        await host.compact(SHARD, Index(covered + 1), WAIT_S)
    assert await host.compact(SHARD, covered, WAIT_S) == covered


async def test_inv_ask_2_what_is_kept_for_an_active_member(
    cluster: Cluster, host: NodeHost, exported: Index, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = host.replicas.info(SHARD)
    assert info is not None
    behind = replace(info, match=((ReplicaId(2), Index(5)),), recently_active=(ReplicaId(2),))
    monkeypatch.setattr(worker(cluster).keeper.replicas, "info", lambda _: behind)
    with pytest.raises(NotReady, match="member"):
        await host.compact(SHARD, Index(6), WAIT_S)
    with pytest.raises(NotReady, match="member"):
        await install(host, path)
    assert first_index(host) == FIRST
    assert await host.compact(SHARD, Index(5), WAIT_S) == 5


async def test_inv_ask_2_an_export_above_the_truncation_lsn(host: NodeHost, path: str) -> None:
    await export(host, path)
    await truncate(host, RECORDS - 1)
    with pytest.raises(InvalidArgument) as above:
        await install(host, path)
    assert above.value.number("truncated_lsn") == RECORDS - 1
    assert first_index(host) == FIRST
    assert await readable(host) == list(range(RECORDS, RECORDS + 1))


async def test_an_export_that_is_older_than_what_is_installed(
    host: NodeHost, exported: Index, path: str
) -> None:
    await truncate(host, RECORDS + 3)
    higher = Index(exported + 3)
    assert await host.compact(SHARD, higher, WAIT_S) == higher
    with pytest.raises(InvalidArgument) as old:
        await install(host, path)
    assert old.value.number("first_index") == higher + 1
    assert first_index(host) == higher + 1


def _rewritten(**changes: object) -> Callable[[ExportFile], bytes]:
    return lambda good: replace(good, **changes).encode()  # type: ignore[arg-type]


def _state(**changes: object) -> Callable[[ExportFile], bytes]:
    return lambda good: replace(good, snapshot=replace(good.snapshot, **changes)).encode()  # type: ignore[arg-type]


def _epoch(good: ExportFile) -> bytes:
    """Of its membership: a falsely high one would refuse every later change."""
    membership = structs.replace(good.snapshot.membership, change_epoch=Index(1 << 40))
    return _state(membership=membership)(good)


def _flipped(good: ExportFile) -> bytes:
    data = bytearray(good.encode())
    data[-1] ^= 1
    return bytes(data)


WRONG: dict[str, tuple[Callable[[ExportFile], bytes], type[LogServiceError]]] = {
    "damaged": (_flipped, InvalidArgument),
    "half": (lambda good: good.encode()[:100], InvalidArgument),
    "empty": (lambda _: b"", InvalidArgument),
    "not an export": (lambda good: good.snapshot.encode(), InvalidArgument),
    "another cluster": (_rewritten(cluster_id=ClusterId("other")), WrongCluster),
    "another shard": (_rewritten(shard=ShardId(2)), InvalidArgument),
    "another lineage": (_rewritten(lineage=b"x" * 16, lineage_number=1), LineageChanged),
    "another state": (_state(state=b"intact and wrong"), InvalidArgument),
    "another term": (_state(term=Term(77)), InvalidArgument),
    "another LSN": (_state(next_lsn=Lsn(3)), InvalidArgument),
    "another index": (_state(index=Index(5)), InvalidArgument),
    "a high epoch": (_epoch, InvalidArgument),
    "not applied yet": (_state(index=Index(10**6)), BeyondTail),
}


@pytest.mark.parametrize("name", WRONG)
async def test_inv_ask_3_a_wrong_file_changes_nothing(
    cluster: Cluster, host: NodeHost, exported: Index, path: str, name: str
) -> None:
    wrong, refusal = WRONG[name]
    good = contents(path)
    assert good is not None
    rewrite(path, wrong(ExportFile.decode(good)))
    with pytest.raises(refusal):
        await install(host, path)
    replica = host.replicas.running[SHARD]
    assert replica.log.first_index() == FIRST
    assert not replica.stopped
    rewrite(path, good)
    assert await install(host, path) == exported
    assert not cluster.stores[1].fatal


async def test_inv_ask_3_a_wrong_file_at_the_installed_index(
    host: NodeHost, exported: Index, path: str
) -> None:
    await install(host, path)
    good = contents(path)
    assert good is not None
    rewrite(path, _state(state=b"x")(ExportFile.decode(good)))
    with pytest.raises(InvalidArgument):
        await install(host, path)


async def test_a_path_that_has_no_file_or_no_directory(host: NodeHost, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        await install(host, str(tmp_path / "nothing"))
    with pytest.raises(InvalidArgument):
        await install(host, str(tmp_path))
    with pytest.raises(InvalidArgument):
        await export(host, str(tmp_path / "nowhere" / "file"))
    other = tmp_path / "notes.txt"
    other.write_text("somebody's")
    with pytest.raises(InvalidArgument):
        await export(host, str(other))
    assert other.read_text() == "somebody's"


async def test_an_export_that_the_disk_does_not_take(
    host: NodeHost, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("broken")

    with monkeypatch.context() as patched:
        patched.setattr(PosixVfs, "rename", broken)
        with pytest.raises(UnknownOutcome):
            await export(host, path)
        with pytest.raises(NotReady):
            await save(host, path)
    assert contents(path) is None
    assert await export(host, path) == await save(host, path)


async def test_an_ordinary_one_on_a_disk_above_its_mark(
    cluster: Cluster, host: NodeHost, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker(cluster).keeper.replicas, "has_room_for", lambda _: False)
    with pytest.raises(DiskFull):
        await save(host, path)


async def test_a_broken_invariant_halts_the_replica(
    host: NodeHost, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> Index:
        raise InvariantViolation("INV-T3", {})

    monkeypatch.setattr(asked.AskedSnapshots, "save", broken)
    with pytest.raises(Halted):
        await save(host, path)
    with pytest.raises(Halted):
        await save(host, path)


async def test_a_replay_that_differs_from_an_export_halts_the_replica(
    cluster: Cluster, host: NodeHost, exported: Index
) -> None:
    """INV-ALIGN-3, also where somebody asked for the compaction."""
    exports = worker(cluster).exports
    exports.read(SHARD, ReplicaId(1))
    snapshot = host.replicas.running[SHARD].applied_snapshot()
    exports.add(SHARD, ReplicaId(1), replace(snapshot, state=b"intact and wrong"))
    with pytest.raises(Halted):
        await host.compact(SHARD, Index(3), WAIT_S)
