"""Two operators recover a cluster from copies of one disk: two histories with one number.

Both are made by the tool, from the same bytes. One of them is started, is joined by two stores with
empty disks, and is archived, mirrored, read. Then the other one is put in the place of the first
store: while the two others run, and after they lost their disks. Whoever knew the first history is
told, by its id; nothing of the two is ever mixed, and neither has the other one's replicas removed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import LineageChanged, LogServiceError, UnknownOutcome
from pyspark_logservice.fetch import RangeFetcher
from pyspark_logservice.options import ReadOptions, parse_options
from pyspark_logservice.plan import LsnRange, plan

from logservice.cli.processes.local_cluster import LocalCluster
from tests.cluster_state import whole
from tests.local_stores import kill_stores
from tests.programs import WAIT_LIMIT_S, Archive, Mirror, program, told
from tests.waiting import wait_until

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 3},
}
KEPT, MORE = 30, 5
UP_S = WAIT_LIMIT_S

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


class Siblings:
    """The cluster, what was made of its last disk twice, and who knows the first one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster = LocalCluster.create(directory / "c", shards=0, settings=SETTINGS)
        self.site = LocalCluster.create(directory / "site", stores=1, shards=0, settings=SETTINGS)
        self.archive = Archive(directory / "archive", ["shop"])
        self.mirror: Mirror
        self.shop = 0
        self.made: dict[str, Any] = {}
        """By the operator's name, what the tool said of the log."""

    def data(self, store: str) -> Path:
        return self.cluster.directory / store / "data"

    def endpoints(self, *stores: str) -> list[str]:
        return [self.cluster.stores[one].client for one in stores or self.cluster.stores]

    def options(self, *stores: str) -> ReadOptions:
        wanted = {"shard": str(self.shop), "minPartitions": "2"}
        wanted["logservice.endpoints"] = ",".join(self.endpoints(*stores))
        return parse_options(wanted)

    def end(self) -> None:
        self.archive.process.end()
        if hasattr(self, "mirror"):
            self.mirror.process.end()
        kill_stores(self.cluster)
        kill_stores(self.site)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siblings]:
    made = Siblings(tmp_path_factory.mktemp("siblings"))
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def client(both: Siblings) -> Iterator[SyncLogClient]:
    """A database's, from the beginning to the end."""
    both.cluster.up(UP_S)
    with SyncLogClient(both.endpoints()) as client:
        yield client


def until(done: Callable[[], object]) -> None:
    def now() -> bool:
        try:
            return bool(done())
        except LogServiceError:
            return False

    wait_until(now, UP_S)


def has_replicas(client: SyncLogClient) -> bool:
    return not whole(client.hakeeper.cluster_state(timeout=10))


def rows(options: ReadOptions, pieces: list[LsnRange]) -> int:
    return sum(
        response.next_lsn - asked
        for piece in pieces
        for asked, response in RangeFetcher(options, piece).answers()
    )


def test_two_operators_make_two_histories_of_one_disk(
    both: Siblings, client: SyncLogClient
) -> None:
    both.shop = client.hakeeper.create_shard(name="shop")
    log = client.shard(both.shop)
    for number in range(KEPT):
        assert log.append(b"kept %d" % number, timeout=UP_S) == number + 1
    with SyncLogClient(both.endpoints("store-3")) as near:
        until(lambda: near.shard(both.shop).status(stale=True).position.applied_lsn >= KEPT)
    kill_stores(both.cluster)
    both.data("store-3").rename(both.directory / "evidence")
    for store in ("store-1", "store-2"):
        shutil.rmtree(both.data(store))
    for operator in ("ann", "bob"):
        copy = both.directory / f"copy of {operator}"
        shutil.copytree(both.directory / "evidence", copy)
        words = ("--from", copy, "--to", both.directory / operator)
        done = told(
            *("logservice", "recover", "write", "--all", *words),
            *("--i-know-records-may-be-lost", operator),
        )
        both.made[operator] = next(one for one in done if one["shard"] == both.shop)
    ann, bob = both.made["ann"], both.made["bob"]
    assert (ann["number"], ann["fork_lsn"]) == (bob["number"], bob["fork_lsn"]) == (1, KEPT)
    assert ann["lineage"] != bob["lineage"]


def test_the_tool_refuses_evidence_of_both(both: Siblings) -> None:
    """Which of them goes on is for a person to say: by what he names."""
    found = [both.directory / one for one in ("ann", "bob")]
    seen = program("logservice", "recover", "inspect", *found)
    assert seen.returncode == 1
    assert seen.stdout.count("are of two histories") == 2, "shard 0 has no lineage, and says so too"
    assert {both.made[one]["lineage"] in seen.stdout for one in ("ann", "bob")} == {True}
    sources = (word for one in found for word in ("--from", one))
    words = ("--to", both.directory / "mixed", "--i-know-records-may-be-lost", "eve")
    refused = program("logservice", "recover", "write", "--all", *sources, *words)
    assert refused.returncode != 0
    assert not (both.directory / "mixed").exists()


@pytest.mark.long
def test_one_of_them_goes_on_with_all_that_reads_it(both: Siblings, client: SyncLogClient) -> None:
    (both.directory / "ann").rename(both.data("store-3"))
    for store in ("store-3", "store-1", "store-2"):
        both.cluster.start(store)
    log = client.shard(both.shop)
    # A block that was on its way to a store that then went away has an unknown outcome.
    with pytest.raises((LineageChanged, UnknownOutcome)):
        log.append(b"of nobody", timeout=UP_S)
    known = log.accept_lineage()
    assert known is not None
    assert (known.number, known.id.hex()) == (1, both.made["ann"]["lineage"])
    for number in range(MORE):
        assert log.append(b"ann %d" % number, timeout=UP_S) == KEPT + 1 + number
    until(lambda: has_replicas(client))
    words = ("logctl", "--endpoints", ",".join(both.endpoints()), "shard", "show", "shop")
    assert told(*words)["lineage_id"] == both.made["ann"]["lineage"]
    both.archive.configure(both.endpoints())
    both.archive.begin()
    until(lambda: not both.archive.lacks({"shop": KEPT + MORE + 1}))
    both.site.up(UP_S)
    both.mirror = Mirror(both.directory, both.endpoints(), both.site.endpoints(), {"shop": "shop"})
    both.mirror.begin()
    until(lambda: not both.mirror.lacks({"shop": KEPT + MORE + 1}))


@pytest.mark.long
def test_the_other_one_beside_it_neither_harms_nor_is_harmed(both: Siblings) -> None:
    """In the place of the first store, under its name and addresses."""
    pieces = plan(both.options("store-1", "store-2"))
    both.archive.process.end()
    both.mirror.process.end()
    both.cluster.kill("store-3")
    both.data("store-3").rename(both.directory / "ann")
    (both.directory / "bob").rename(both.data("store-3"))
    both.cluster.start("store-3")
    assert one_of(both, "bob", "store-3", append=b"bob 0") == [b"bob 0"]
    only = both.options("store-3")
    moved = [LsnRange(one.shard, one.start, one.end, (), (), one.lineage) for one in pieces]
    with pytest.raises(LineageChanged):
        rows(only, moved)
    known = [b"ann %d" % number for number in range(MORE)]
    known.append(b"ann beside")
    assert one_of(both, "ann", "store-1", "store-2", append=b"ann beside") == known
    # Without a majority the second store asks whoever leads shard 0, and that is the other one.
    both.cluster.kill("store-1")
    until(lambda: turned_away(both, "store-2"))
    time.sleep(2)  # ten heartbeats, in which it could be told to remove what it has
    both.cluster.start("store-1")
    known.append(b"ann again")
    assert one_of(both, "ann", "store-1", "store-2", append=b"ann again") == known
    assert one_of(both, "bob", "store-3") == [b"bob 0"]


def one_of(both: Siblings, operator: str, *stores: str, append: bytes = b"") -> list[bytes]:
    """What the history of that operator has behind the fork, after an append. Whoever is sent to a
    store of the other history is told, and asks once more as somebody who knows nothing.
    """
    found: list[bytes] = []

    def done() -> bool:
        with SyncLogClient(both.endpoints(*stores)) as near:
            log = near.shard(both.shop)
            status = log.status(timeout=10)
            if status.position.lineage.id.hex() != both.made[operator]["lineage"]:
                return False
            last = log.read(status.position.applied_lsn, timeout=10).records()
            if append and last != [append]:
                log.append(append, expected_lsn=status.position.applied_lsn + 1, timeout=10)
            found[:] = log.read(KEPT + 1, max_bytes=1 << 20, timeout=10).records()
            return True

    until(done)
    return found


def turned_away(both: Siblings, store: str) -> bool:
    said = (both.cluster.directory / store / "store.log").read_text()
    return "turned_away" in said and "another recovery of shard 0" in said


@pytest.mark.long
def test_the_other_one_instead_of_it_is_refused_by_whoever_knew_the_first(
    both: Siblings, client: SyncLogClient
) -> None:
    log = client.shard(both.shop)
    kept = log.lineage
    pieces = plan(both.options("store-1", "store-2"))
    for store in ("store-1", "store-2"):
        both.cluster.kill(store)
        shutil.rmtree(both.data(store))
        both.cluster.start(store)
    with SyncLogClient(both.endpoints()) as other:
        until(lambda: has_replicas(other))
        strange = other.shard(both.shop)
        # As many as the first one has: no LSN and no length tells them apart.
        while (status := strange.status()).position.applied_lsn < KEPT + 2 * MORE:
            strange.append(b"bob %d" % status.position.applied_lsn, timeout=UP_S)
    for call in (
        lambda: log.append(b"late", timeout=UP_S),
        lambda: log.read(KEPT + 1, timeout=UP_S),
        lambda: log.truncate(1, timeout=UP_S),
    ):
        with pytest.raises(LineageChanged) as changed:
            call()
        assert (changed.value.number("number"), changed.value.number("fork_lsn")) == (1, KEPT)
        assert changed.value.metadata["actual"] == both.made["bob"]["lineage"]
    assert log.lineage == kept
    with pytest.raises(LineageChanged):
        rows(both.options(), pieces)
    both.archive.begin()
    until(lambda: "was continued by force behind LSN" in both.archive.process.output.read_text())
    target = both.site.endpoints()
    both.mirror = Mirror(both.directory, both.endpoints(), target, {"shop": "shop"})
    both.mirror.begin()
    until(lambda: both.mirror.process.ended)
    assert "continued by force" in both.mirror.process.output.read_text()
    with SyncLogClient(target) as there:
        copy = there.hakeeper.resolve_shard("shop").shard_id
        taken = there.shard(copy).read(KEPT + 1, max_bytes=1 << 20, timeout=UP_S).records()
    assert taken == [b"ann %d" % number for number in range(MORE)]
    words = ("archive", "verify", "-c", both.archive.config)
    verified = told("logservice", *words)
    assert [one["end_lsn"] for one in verified if one["name"] == "shop"] == [KEPT + MORE + 1]
