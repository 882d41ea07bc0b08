"""A log's whole life on real processes: created, changed, closed, deleted, and never back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from logservice_client import LogClient, SyncLogClient
from logservice_wire.block import encode_block
from logservice_wire.errors import Busy, LogServiceError, ShardDeleted, ShardNotFound
from logservice_wire.rpcs import APPEND, GET_STORE_STATUS
from logservice_wire.v1 import admin_pb2, log_pb2

from logservice.cli.ctl.direct_call import call_store
from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from tests.cli.test_processes import Program
from tests.local_stores import started_cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 4},
    "truncation": {"interval_s": 0.5},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(
        tmp_path_factory.mktemp("cluster") / "c", stores=4, settings=SETTINGS
    ) as running:
        yield running


@pytest.fixture
def ctl(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(logctl, cluster, capfd)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[SyncLogClient]:
    with SyncLogClient(cluster.endpoints()) as one:
        yield one


def shown(ctl: Program, shard: int) -> dict[str, object]:
    found = ctl.json("shard", "show", shard)
    assert isinstance(found, dict)
    return found


def stores_of(client: SyncLogClient, shard: int) -> set[str]:
    """The stores that report a replica of the shard."""
    state = client.hakeeper.cluster_state()
    return {
        replica.store_id
        for one in state.shards
        if one.shard_id == shard
        for replica in one.replicas
        if replica.reported
    }


def test_a_log_is_found_and_changed_while_it_is_used(ctl: Program) -> None:
    made = ctl.json("shard", "create", "wal", "--protect", "--label", "team=a")
    assert isinstance(made, dict)
    shard = made["shard"]
    wait_until(lambda: shown(ctl, shard)["state"] == "open", 30)
    assert ctl.json("shard", "resolve", "wal") == {"shard": shard, "name": "wal", "state": "open"}
    assert ctl.json("shard", "set", shard, "--name", "wal-1", "--label", "tier=x") == {
        "shard": shard,
        "revision": 1,
    }
    found = shown(ctl, shard)
    assert (found["name"], found["labels"]) == ("wal-1", {"team": "a", "tier": "x"})
    assert (found["protected"], found["zone_rule"]) == (True, "best-effort")
    ctl.json("shard", "set", shard, "--unlabel", "team", "--leader-zone", "z1")
    assert shown(ctl, shard)["labels"] == {"tier": "x"}
    rows = ctl.json("shards", "--label", "tier=", "--prefix", "wal")
    assert isinstance(rows, list)
    assert [row["shard"] for row in rows] == [shard]
    assert ctl.json("shard", "show", "wal-1")["shard"] == shard  # type: ignore[call-overload,index]
    assert ctl("append", "wal-1", "by name").code == 0
    assert ctl("read", "wal-1").code == 0
    assert ctl("shard", "show", "nothing").code == exit_codes.REFUSED
    assert ctl("shard", "show", "0").code == 2
    gone = ctl("shard", "resolve", "wal")
    assert gone.code == exit_codes.REFUSED
    assert "no log is called 'wal'" in gone.err
    assert ctl("shard", "set", shard, "--replicas", 2).code == 2
    assert ctl("shard", "set", shard, "--weight", 0).code == 2
    low = ctl("shard", "set", shard, "--max-bytes-per-s", 1)
    assert "field=max_bytes_per_s" in low.err
    ctl.json("shard", "set", shard, "--max-bytes-per-s", 1 << 20, "--weight", 30)
    found = shown(ctl, shard)
    assert (found["max_bytes_per_s"], found["max_records_per_s"], found["weight"]) == (
        1 << 20,
        None,
        30,
    )
    assert (found["leader_zone"], found["labels"]) == ("z1", {"tier": "x"})


def test_a_closed_log_ends_for_writers_and_readers(ctl: Program) -> None:
    made = ctl.json("shard", "create")
    assert isinstance(made, dict)
    shard = made["shard"]
    ctl("append", shard, "one", "two")
    closed = ctl.json("shard", "close", shard)
    assert isinstance(closed, dict)
    assert (closed["end_lsn"], closed["was_closed"]) == (3, False)
    late = ctl("append", shard, "three")
    assert late.code == exit_codes.REFUSED
    assert "SHARD_CLOSED" in late.err
    assert "end=3" in late.err
    followed = ctl("follow", shard)
    assert (followed.code, followed.out.split()) == (0, ["1", "one", "2", "two"])
    wait_until(lambda: shown(ctl, shard)["state"] == "closed", 30)
    assert shown(ctl, shard)["end_lsn"] == 3


def test_what_is_guarded_is_not_deleted_and_not_closed(ctl: Program) -> None:
    made = ctl.json("shard", "create", "kept", "--protect")
    assert isinstance(made, dict)
    shard = made["shard"]
    other = ctl("shard", "delete", shard, "--name", "other")
    assert "name=kept" in other.err
    for force in ([], ["--force"]):
        guarded = ctl("shard", "delete", shard, "--name", "kept", *force)
        assert (guarded.code, "refused: protected" in guarded.err) == (exit_codes.REFUSED, True)
    assert ctl.json("append", shard, "zero") == {"first_lsn": 1, "records": 1}
    ctl.json("shard", "set", shard, "--no-protect")
    ctl("append", shard, "one")
    ctl.json("hold", "set", shard, "backup", 1)
    wait_until(lambda: shown(ctl, shard)["reported_holds"] == 1, 30)
    refused = ctl("shard", "delete", shard, "--name", "kept")
    assert (refused.code, "refused: holds" in refused.err) == (exit_codes.REFUSED, True)
    # A Close is for ever, so nothing was closed on the way to the refusal.
    assert ctl.json("append", shard, "two") == {"first_lsn": 3, "records": 1}
    assert ctl.json("shard", "delete", shard, "--name", "kept", "--force") == {
        "deleted": shard,
        "name": "kept",
    }


def test_a_deleted_log_leaves_every_store_also_one_that_was_away(
    cluster: LocalCluster, client: SyncLogClient
) -> None:
    """The store comes back after the log has left HAKeeper's state, and does not bring it back."""
    shard = client.hakeeper.create_shard(name="orders", request_id="orders-1")
    log = client.shard(shard)
    for _ in range(16):
        log.append(b"x" * (1 << 20))
    held = stores_of(client, shard)
    away = min(held)

    def used() -> list[int]:
        stores = client.hakeeper.cluster_state().stores
        return [one.disk_used_bytes for one in stores if one.store_id in held]

    wait_until(lambda: min(used()) > 16 << 20, 60)
    address = next(
        one.client_address for one in client.hakeeper.cluster_state().stores if one.store_id == away
    )
    cluster.kill(away)
    client.hakeeper.delete_shard(shard, "orders", timeout=60)
    client.hakeeper.wait_deleted(shard, timeout=60)
    for call in (log.status, lambda: log.append(b"late"), lambda: log.read(1)):
        with pytest.raises(ShardDeleted):
            call()
    with pytest.raises(ShardDeleted):
        client.hakeeper.create_shard(name="orders", request_id="orders-1")
    with pytest.raises(ShardNotFound):
        client.hakeeper.resolve_shard("orders")
    again = client.hakeeper.create_shard(name="orders", request_id="orders-2")
    assert again > shard
    cluster.start(away)

    def removed() -> bool:
        try:
            found = call_store(
                address, GET_STORE_STATUS, admin_pb2.GetStoreStatusRequest(), 10, None
            )
        except LogServiceError:
            return False
        return shard not in {one.shard_id for one in found.replicas}

    wait_until(removed, 60)
    wait_until(
        lambda: not any("unknown" in flag for flag in client.hakeeper.cluster_state().flags),
        60,
    )

    wait_until(lambda: max(used()) < 16 << 20, 60)
    assert client.shard(again).append(b"new") == 1


def test_whoever_reads_or_writes_a_log_is_told_when_it_is_deleted(cluster: LocalCluster) -> None:
    async def story() -> None:
        async with LogClient(cluster.endpoints()) as client:
            shard = await client.hakeeper.create_shard(name="short")
            log = client.shard(shard)
            await log.append(b"one")

            async def read() -> int:
                read = 0
                async for item in log.follow(1, patience=60):
                    read += item.record_count
                return read

            reading = asyncio.ensure_future(read())
            await client.hakeeper.delete_shard(shard, "short", timeout=60)
            # The Close comes first: a reader reaches the end, unless the deletion is faster.
            with contextlib.suppress(ShardDeleted):
                assert await asyncio.wait_for(reading, 60) == 1
            await client.hakeeper.wait_deleted(shard, timeout=60)
            async with LogClient(cluster.endpoints()) as stranger:
                with pytest.raises(ShardDeleted):
                    await stranger.shard(shard).append(b"two")
                with pytest.raises(ShardDeleted):
                    await anext(stranger.shard(shard).follow(1, patience=30))

    asyncio.run(story())


def test_a_loud_log_waits_for_its_limit_and_a_quiet_one_beside_it_does_not(
    cluster: LocalCluster, client: SyncLogClient, ctl: Program
) -> None:
    rate, block = 100, 100
    loud, quiet = (client.hakeeper.create_shard() for _ in range(2))
    for shard in (loud, quiet):
        client.shard(shard).append(b"first")
    ctl.json("shard", "set", loud, "--max-records-per-s", rate)

    def leader() -> str:
        state = client.hakeeper.cluster_state()
        return next(one.leader_store for one in state.shards if one.shard_id == loud)

    wait_until(leader, 30)
    address = cluster.stores[leader()].client

    def append() -> LogServiceError | None:
        """One append without retries; the store passes it on to the leader if it must."""
        data = encode_block([b"x"] * block, time.time_ns() // 1000)
        request = log_pb2.AppendRequest(shard_id=loud, block=data)
        try:
            call_store(address, APPEND, request, 30)
        except LogServiceError as error:
            return error
        return None

    with ThreadPoolExecutor() as threads:
        errors: list[LogServiceError] = []

        def refused() -> bool:
            said = [threads.submit(append) for _ in range(4)]
            errors.extend(error for one in said if (error := one.result()) is not None)
            return bool(errors)

        wait_until(refused, 30)
        assert all(isinstance(one, Busy) and one.number("retry_after_ms") for one in errors)

        def told() -> bool:
            """What `top` shows may be ADMIN_CLUSTER_AGE_S old, of stores as busy as this host."""
            shown = {row["shard"]: row for row in ctl.json("top")["shards"]}  # type: ignore[call-overload,index]
            assert shown[quiet]["appends_delayed"] == 0
            return shown[loud]["max_records_per_s"] == rate and shown[loud]["appends_delayed"] > 0

        wait_until(told, 30)
        assert shown(ctl, loud)["enforced_max_records_per_s"] == rate

        began_s = time.monotonic()
        client.shard(loud).append([b"y"] * block)
        last = threads.submit(client.shard(loud).append, [b"y"] * block)
        for _ in range(5):
            client.shard(quiet).append(b"z")
        assert not last.done(), "the quiet log did not wait for the loud one"
        assert last.result(30) > 0, "the client came again by itself"
        assert time.monotonic() - began_s >= block / rate / 2
