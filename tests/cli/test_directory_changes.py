"""A data directory of a running store is added, drained and removed, under load, with a kill -9
between the steps. Every acked record stays, and nothing else is moved.
"""

from __future__ import annotations

import fcntl
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import LogServiceError, NotReady
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from tests.cli.acked_records import check_acked
from tests.cli.test_processes import Program
from tests.local_stores import started_cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 1 << 20, "ballast_bytes": 0, "reserve_bytes": 0},
    "raft": {"tick_ms": 20},
    # On a busy machine a restart takes longer than a few seconds, and then HAKeeper would replace
    # what was to be drained.
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 90},
}
STORE = "store-1"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with started_cluster(tmp_path / "c", stores=4, shards=4, settings=SETTINGS) as running:
        yield running


class Load:
    """A thread that appends to every log and remembers what was acked."""

    def __init__(self, endpoints: list[str]) -> None:
        self._client = SyncLogClient(endpoints)
        self.acked: dict[int, list[bytes]] = {}
        self.failed: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def begin(self, shards: list[int]) -> None:
        self.acked = {shard: [] for shard in shards}
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            for shard, acked in list(self.acked.items()):
                record = b"%d/%d " % (shard, len(acked)) + bytes(20_000)
                try:
                    self._client.shard(shard).append(record, timeout=60.0)
                except LogServiceError as error:
                    self.failed.append(f"{shard}/{len(acked)}: {error}")
                    return
                acked.append(record)
            time.sleep(0.02)

    def check(self) -> None:
        assert self.failed == []
        check_acked(self._client, self.acked)

    def close(self) -> None:
        self._client.close()


class Operator:
    """What a person does: edits the file, kills and starts the store, says verbs."""

    def __init__(self, cluster: LocalCluster, client: SyncLogClient, ctl: Program) -> None:
        self.ctl = ctl
        self.cluster = cluster
        self.client = client
        self.folder = cluster.process(STORE).directory

    def name_directories(self, *names: str) -> None:
        path = self.cluster.process(STORE).config_path
        lines = path.read_text().splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("data_directories"))
        lines[at] = f"data_directories = {json.dumps(list(names))}"
        path.write_text("\n".join(lines) + "\n")

    def kill_and_start(self) -> None:
        self.cluster.kill(STORE)
        self.cluster.start(STORE)
        wait_until(lambda: self.store().ticks_since_heartbeat < 5 and self.answers())

    def answers(self) -> bool:
        return self.run("store", STORE, "log-level")[0] == 0

    def run(self, *words: str) -> tuple[int, str]:
        result = self.ctl(*words)
        return result.code, result.out + result.err

    def say(self, verb: str, name: str, *options: str) -> str:
        path = str(self.folder / name)
        code, said = self.run("store", STORE, "directory", verb, path, *options)
        assert code == 0, said
        return said

    def removed(self, name: str) -> bool:
        """Remove it; False while something is left there by the store's own word."""
        code, said = self.run("store", STORE, "directory", "remove", str(self.folder / name))
        assert code == 0 or "replicas" in said, said
        return code == 0

    def refused(self, verb: str, name: str) -> str:
        code, said = self.run("store", STORE, "directory", verb, str(self.folder / name))
        assert code != 0, said
        return said

    def store(self) -> hakeeper_pb2.StoreInfo:
        while True:
            try:
                state = self.client.hakeeper.cluster_state(timeout=30)
            except NotReady:
                continue
            return next(one for one in state.stores if one.store_id == STORE)

    def directory(self, name: str) -> hakeeper_pb2.DirectoryInfo:
        path = str(self.folder / name)
        found = [one for one in self.store().directories if one.path == path]
        return found[0] if found else hakeeper_pb2.DirectoryInfo()

    def held(self, name: str) -> bool:
        """Whether a process has the directory's lock."""
        with (self.folder / name / "LOCK").open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def settled(client: SyncLogClient) -> Callable[[], bool]:
    def whole() -> bool:
        state = client.hakeeper.cluster_state(timeout=30)
        return not state.operators and all(
            len(one.replicas) == 3 and all(replica.reported for replica in one.replicas)
            for one in state.shards
        )

    return whole


@pytest.mark.long
def test_a_directory_comes_and_goes_under_load_and_kills(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    load = Load(cluster.endpoints())
    with SyncLogClient(cluster.endpoints()) as client:
        person = Operator(cluster, client, Program(logctl, cluster, capfd))
        wait_until(settled(client))
        load.begin([1, 2, 3, 4])
        try:
            # It is not in the file: a restart would lose it.
            assert "store.data_directories" in person.refused("add", "data-b")
            assert not (person.folder / "data-b").exists()

            person.name_directories("data", "data-b")
            person.say("add", "data-b")
            person.say("add", "data-b")  # once more is no harm
            wait_until(lambda: person.directory("data-b").incarnation)
            incarnation = person.directory("data-b").incarnation

            # A replica is placed there, and acknowledges under the new incarnation.
            made = [client.hakeeper.create_shard(name=f"new-{one}") for one in range(4)]
            wait_until(lambda: person.directory("data-b").replicas > 0)
            load.acked.update({int(shard): [] for shard in made})
            time.sleep(1.0)
            person.kill_and_start()
            assert person.directory("data-b").incarnation == incarnation
            wait_until(settled(client))

            assert person.directory("data-b").replicas > 0

            # The drain outlives a kill, and is over only when nothing is left.
            assert "replicas have data in" in person.refused("remove", "data-b")
            person.say("drain", "data-b", "--force")
            person.kill_and_start()
            assert person.directory("data-b").draining
            person.say("drain", "data-b", "--force", "--wait", "2m")
            assert person.directory("data-b").empty
            person.kill_and_start()
            assert person.directory("data-b").draining
            wait_until(settled(client))

            # It is removed, and still in the file at the next start: there it is, and gets nothing.
            wait_until(lambda: person.removed("data-b"))
            wait_until(lambda: not person.directory("data-b").incarnation)
            assert not person.held("data-b")
            person.kill_and_start()
            wait_until(lambda: person.directory("data-b").incarnation == incarnation)
            assert person.directory("data-b").draining
            assert person.held("data-b")
            wait_until(lambda: person.removed("data-b"))
            person.name_directories("data")
            person.kill_and_start()
            wait_until(lambda: len(person.store().directories) == 1)
            wait_until(settled(client))
        finally:
            load.end()
        load.check()
        load.close()
        assert all(len(acked) > 5 for acked in load.acked.values())


def test_the_first_directory_goes_with_the_replica_of_shard_0(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    load = Load(cluster.endpoints())
    with SyncLogClient(cluster.endpoints()) as client:
        person = Operator(cluster, client, Program(logctl, cluster, capfd))
        wait_until(settled(client))
        load.begin([1, 2, 3, 4])
        try:
            person.name_directories("data", "data-b")
            # In the file and not added: a start takes it.
            person.kill_and_start()
            wait_until(lambda: person.directory("data-b").incarnation)
            wait_until(settled(client))
            said = person.refused("drain", "data")
            assert "logctl admit store-4 --hakeeper" in said, said
            cluster.admit("store-4")
            person.say("drain", "data", "--wait", "2m")
            wait_until(lambda: person.removed("data"))
            assert not person.held("data")
            person.name_directories("data-b")
            assert "only data directory" in person.refused("remove", "data-b")
            assert "drain the store" in person.refused("drain", "data-b")
            person.kill_and_start()
            wait_until(settled(client))
        finally:
            load.end()
        load.check()
        load.close()
