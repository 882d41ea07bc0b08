"""The story of an upgrade: a cluster of a release becomes one of this tree, and back, under load.

Theory of operation. Four stores of the older release serve four logs. Writers with the older and
with the newer client library append all the time, and what they are told goes into the ledger.
Then, one store after the other:

    forward   every store gets the newer program; the one where HAKeeper leads comes last
    back      every store gets the older program again
    forward   once more; the one where HAKeeper leads comes first
    raise     the cluster version; from here on there is no way back, and the older program says so
    after     both client libraries go on

In each of these phases one store is killed. At the end every log is read whole. A store counts as
replaced when the cluster is whole again, as docs/operations/rolling-upgrade.md says it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from logservice_client import LogClient
from logservice_wire.errors import LogServiceError
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.processes.local_cluster import LocalCluster
from tests.upgrade.ledger import Ledger
from tests.upgrade.releases import Program

STORES = 4
SHARDS = (1, 2, 3, 4)
WHOLE_TIMEOUT_S = 60.0
_HERE = Path(__file__).parent
_LOGCTL = "from logservice.cli.logctl import main; main()"


class Broken(Exception):
    """Something did not hold."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A row of the table."""

    name: str
    seconds: float
    acked: int
    longest_gap_s: float | None


@dataclass(slots=True)
class Writer:
    """A writer process, and the thread that takes what it says."""

    name: str
    process: subprocess.Popen[str]
    thread: threading.Thread


@dataclass
class Story:
    """One run; `play` it once."""

    work: Path
    older: Program
    newer: Program
    seed: int
    tell: Callable[[Phase], None]
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        with self.older.environment():
            self.cluster = LocalCluster.create(
                self.work / "cluster", stores=STORES, shards=len(SHARDS)
            )
        self.programs = dict.fromkeys(self.cluster.stores, self.older)
        self.writers: list[Writer] = []
        self.identities: dict[str, bytes] = {}

    # --- the story --------------------------------------------------------------------------------

    def play(self) -> None:
        """Raises Broken when something does not hold."""
        try:
            with self.phase("born with the older program", loaded=False):
                for store in self.cluster.stores:
                    self.start(store, self.older)
                self.cluster.wait_ready()
                self.whole()
                self.identities = {store: self.identity(store) for store in self.cluster.stores}
                for program in (self.older, self.newer):
                    self.calls(program)
                    self.begin_writer(program)
                self.wait_for_acks()
            with self.phase("forward, HAKeeper's leader last"):
                self.replace_all(self.newer, leader_first=False)
            with self.phase("back"):
                self.replace_all(self.older, leader_first=False)
            with self.phase("forward, HAKeeper's leader first"):
                self.replace_all(self.newer, leader_first=True)
            with self.phase("raised"):
                self.raise_version()
            with self.phase("after"):
                for program in (self.older, self.newer):
                    self.calls(program)
                self.kill_one(None)
                self.wait_for_acks()
            with self.phase("read", loaded=False):
                self.end_writers()
                self.read_all()
        finally:
            self.end_writers()
            for store in self.cluster.stores:
                self.cluster.kill(store)

    def replace_all(self, program: Program, *, leader_first: bool) -> None:
        """Every store gets that program, one after the other."""
        left = [store for store in self.cluster.stores if self.programs[store] is not program]
        killed_at = len(left) // 2
        while left:
            leader = self.leader()
            wanted = [store for store in left if (store == leader) is leader_first]
            store = self.chance.choice(wanted or left)
            if len(left) == 1 and self.programs[store] is self.older and leader != store:
                self.refused_too_early()
            if len(left) == killed_at:
                self.kill_one(store)
            left.remove(store)
            self.cluster.stop(store)
            self.start(store, program)
            self.whole()
            self.wait_for_acks()
        for store in self.cluster.stores:
            self.expect(self.identity(store) == self.identities[store], f"{store} wrote IDENTITY")

    def kill_one(self, spared: str | None) -> None:
        """SIGKILL one store and start it again as it was."""
        store = self.chance.choice([one for one in self.cluster.stores if one != spared])
        self.cluster.kill(store)
        self.start(store, self.programs[store])
        self.whole()

    def refused_too_early(self) -> None:
        """One store has the older program: the version cannot be raised."""
        raised = self.logctl("upgrade", "raise")
        why = "VERB_REFUSED" in raised.stderr or "knows no version above 1" in raised.stderr
        self.expect(raised.returncode != 0 and why, str(raised))
        status = self.logctl("upgrade", "status")
        self.expect(status.returncode == 1, str(status))

    def raise_version(self) -> None:
        """The version is raised, every store says so, and the older program does not start."""
        early = self.logctl("--timeout", "2", "shard", "set", "1", "--name", "renamed")
        self.expect(early.returncode != 0, "version 1 has no names that change")
        end_s = time.monotonic() + WHOLE_TIMEOUT_S
        while (status := self.logctl("upgrade", "status")).returncode != 0:
            self.expect(time.monotonic() < end_s, str(status))
        raised = self.logctl("--timeout", "30", "upgrade", "raise", "--wait", "-o", "json")
        self.expect(raised.returncode == 0, str(raised))
        self.expect(json.loads(raised.stdout) == {"cluster_version": 2, "not_yet": []}, str(raised))
        renamed = self.logctl("shard", "set", "1", "--name", "renamed")
        self.expect(renamed.returncode == 0, str(renamed))
        store = self.chance.choice(list(self.cluster.stores))
        self.cluster.stop(store)
        self.does_not_start(store)
        self.start(store, self.newer)
        self.whole()

    def does_not_start(self, store: str) -> None:
        """The older program refuses the store's directory by name, and changes nothing there."""
        before = self.contents(store)
        config = str(self.cluster.process(store).config_path)
        refused = self.older.run("logservice", "store", "run", "-c", config)
        said = refused.stdout + refused.stderr
        self.expect(refused.returncode not in (0, None), f"{store} started: {said}")
        self.expect("format version 3, this program reads version 2" in said, said[-2000:])
        self.expect(self.contents(store) == before, f"{store}: something was changed")

    def read_all(self) -> None:
        """Every log holds what was acked."""
        if self.ledger.count() < 1000:
            raise Broken(f"only {self.ledger.count()} records were acked")
        for shard in SHARDS:
            for problem in self.ledger.problems(shard, asyncio.run(self.log_of(shard))):
                raise Broken(problem)

    # --- stores -----------------------------------------------------------------------------------

    def start(self, store: str, program: Program) -> None:
        """Start a store with that program."""
        with program.environment():
            self.cluster.start(store)
        self.programs[store] = program

    def state(self) -> hakeeper_pb2.ClusterState | None:
        """HAKeeper's view, None while it has none."""

        async def ask() -> hakeeper_pb2.ClusterState | None:
            async with LogClient(self.cluster.endpoints()) as client:
                try:
                    return await client.hakeeper.cluster_state(timeout=5.0)
                except LogServiceError:
                    return None

        return asyncio.run(ask())

    def leader(self) -> str:
        """The store where HAKeeper leads."""
        self.whole()
        state = self.state()
        shards = {shard.shard_id: shard for shard in state.shards} if state is not None else {}
        return shards[0].leader_store if 0 in shards else ""

    def whole(self) -> None:
        """Wait until every store and every replica is there and every log has a leader."""
        end_s = time.monotonic() + WHOLE_TIMEOUT_S
        why = ""
        while time.monotonic() < end_s:
            state = self.state()
            why = "HAKeeper does not answer" if state is None else _lacking(state)
            if not why:
                return
            time.sleep(0.1)
        raise Broken(f"not whole again: {why}")

    def identity(self, store: str) -> bytes:
        """The identity file of a store."""
        return (self.cluster.process(store).directory / "data" / "IDENTITY").read_bytes()

    def contents(self, store: str) -> dict[str, str]:
        """Every file of a store's data directory, by its digest."""
        root = self.cluster.process(store).directory / "data"
        return {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }

    # --- clients ----------------------------------------------------------------------------------

    def begin_writer(self, program: Program) -> None:
        """A writer with that program's client library, to every log."""
        name = f"writer-{program.name}"
        settings = {"name": name, "endpoints": self.cluster.endpoints(), "shards": SHARDS}
        process = subprocess.Popen(
            [sys.executable, str(_HERE / "writer.py"), json.dumps(settings)],
            env=program.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        thread = threading.Thread(target=self._listen, args=(name, process), daemon=True)
        thread.start()
        self.writers.append(Writer(name, process, thread))

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.ledger.note(name, json.loads(line))

    def wait_for_acks(self) -> None:
        """Wait until every log has acked something more."""
        before = {shard: len(self.ledger.ack_times.get(shard, ())) for shard in SHARDS}
        end_s = time.monotonic() + WHOLE_TIMEOUT_S
        while any(len(self.ledger.ack_times.get(one, ())) <= before[one] + 10 for one in SHARDS):
            self.expect(time.monotonic() < end_s, "a log acks nothing")
            self.expect(all(one.process.poll() is None for one in self.writers), "a writer ended")
            time.sleep(0.02)

    def end_writers(self) -> None:
        """Let the writers settle what is under way, and take their last words."""
        while self.writers:
            writer = self.writers.pop()
            assert writer.process.stdin is not None
            writer.process.stdin.close()
            code = writer.process.wait(timeout=60)
            writer.thread.join()
            self.expect(code == 0, f"{writer.name} ended with {code}")

    def calls(self, program: Program) -> None:
        """Every call of that program's client library."""
        name = f"calls-{program.name}-{self.chance.getrandbits(20)}"
        words = (str(_HERE / "calls.py"), ",".join(self.cluster.endpoints()), name)
        done = subprocess.run(
            [sys.executable, *words],
            env=program.variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.expect(done.returncode == 0, f"client library of {program.name}: {done.stderr}")

    def logctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`logctl` of the newer program."""
        endpoints = ",".join(self.cluster.endpoints())
        return subprocess.run(
            [sys.executable, "-c", _LOGCTL, "--endpoints", endpoints, *words],
            env=self.newer.variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    async def log_of(self, shard: int) -> list[tuple[int, str]]:
        """Everything that a log holds."""
        found: list[tuple[int, str]] = []
        async with LogClient(self.cluster.endpoints()) as client:
            lsn = 1
            while True:
                read = await client.shard(shard).read(lsn, timeout=30)
                for block in read.blocks:
                    records = (record.decode() for record in block.records())
                    found += enumerate(records, block.first_lsn)
                if read.next_lsn <= lsn:
                    return found
                lsn = read.next_lsn

    # --- the table --------------------------------------------------------------------------------

    @contextmanager
    def phase(self, name: str, *, loaded: bool = True) -> Iterator[None]:
        """Measure what is done meanwhile. `loaded`: the writers write all the time."""
        begun_s, acked = time.monotonic(), self.ledger.count()
        yield
        end_s = time.monotonic()
        gap_s = self.ledger.longest_gap_s(begun_s, end_s) if loaded else None
        self.tell(Phase(name, end_s - begun_s, self.ledger.count() - acked, gap_s))

    @staticmethod
    def expect(holds: bool, otherwise: str) -> None:
        """Raise Broken unless it holds."""
        if not holds:
            raise Broken(otherwise)


def _lacking(state: hakeeper_pb2.ClusterState) -> str:
    """Why the cluster is not whole; empty when it is."""
    for store in state.stores:
        if store.expired or store.ticks_since_heartbeat > 30:
            return f"{store.store_id} is silent"
    for shard in state.shards:
        voters = [one for one in shard.replicas if one.role == "voter"]
        if shard.joint or not all(one.reported for one in voters):
            return f"shard {shard.shard_id} lacks a replica"
        if not shard.leader_store:
            return f"shard {shard.shard_id} has no leader"
    return ""
