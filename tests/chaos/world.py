"""World: the store processes and client processes of a chaos run, and what is done to them."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from logservice.cli.processes.local_cluster import LocalCluster
from tests.chaos.client import Counts, Settings
from tests.chaos.final_read import channel_to, incarnations, status, unrepaired
from tests.chaos.nemesis import Fault, Step

_CLIENT_STOP_S = 60.0
_LEADER_FAULTS = (Fault.KILL_LEADER, Fault.PAUSE_LEADER, Fault.KILL_LEADER_LAST)
_ALONE_S = 0.3
"""How long a leader lives without followers before it is killed as well."""
STOP_TIMEOUT_S = 60.0
"""How long a graceful stop may take on a busy machine. A process that needs longer is killed, and
that is reported as a problem."""
SERVES_TIMEOUT_S = 60.0
"""How long a store may take from its start until clients can connect, on a busy machine."""
REPAIR_TIMEOUT_S = 90.0
"""Time for the store timeout, catch-up and a membership change of every shard on a busy machine."""


class Client:
    """One client process and its newest counts."""

    def __init__(self, settings: Settings) -> None:
        """Prepare the process; `start` runs it."""
        self.settings = settings
        self.counts = Counts()
        self._log_path = Path(settings.directory) / f"client-{settings.name}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:

        with self._log_path.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.chaos.client",
                json.dumps(asdict(self.settings)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path)),
            )
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        async for line in self._process.stdout:
            self.counts = Counts(**json.loads(line))

    async def stop(self) -> str:
        """Let it finish what is under way; return what was wrong with it, or an empty string."""
        process = self._process
        if process is None or process.stdin is None:
            return ""
        if process.returncode is None:
            self._stopping = True
        process.stdin.close()
        try:
            async with asyncio.timeout(_CLIENT_STOP_S):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            return f"client {self.settings.name} did not stop"
        if self._reader is not None:
            await self._reader
        if code:
            lines = self._log_path.read_text(errors="replace").splitlines()[-15:]
            return f"client {self.settings.name} ended with {code}:\n" + "\n".join(lines)
        return ""

    def died(self) -> bool:
        """Whether it ended without being told to."""
        process = self._process
        return process is not None and not self._stopping and process.returncode is not None


class World:
    """The stores and clients. It knows which stores are down on purpose."""

    def __init__(self, cluster: LocalCluster, clients: list[Client], shards: list[int]) -> None:
        """Take the stores and clients; start none of them."""
        self.cluster = cluster
        self.clients = clients
        self.shards = shards
        self.names = list(cluster.stores)
        self.problems: list[str] = []
        self.done: Counter[str] = Counter()
        self.events: list[tuple[float, str]] = []
        self.kills = 0
        self.pauses = 0
        self._down: set[str] = set()
        self._log_path = cluster.directory.parent / "faults.log"

    @property
    def acked(self) -> int:
        """Records acked so far, of all clients."""
        return sum(client.counts.acked for client in self.clients)

    def acked_of(self, shard: int) -> int:
        """Records of one shard acked so far, of all clients."""
        return sum(client.counts.acked_by_shard.get(str(shard), 0) for client in self.clients)

    def addresses(self) -> dict[str, str]:
        """Client addresses by store."""
        return {name: place.client for name, place in self.cluster.stores.items()}

    async def leader(self, shard: int) -> str | None:
        """The store that leads the shard, according to the first store that says so."""
        for name, address in self.addresses().items():
            if name not in self._down:
                answer = await status(address, shard, stale=True)
                if answer is not None and answer.position.leader_store in self.names:
                    return str(answer.position.leader_store)
        return None

    def check_alive(self) -> None:
        """Report stores and clients that ended by themselves; start those stores again."""
        for name in self.names:
            process = self.cluster.process(name)
            if name not in self._down and process.pid() is None:
                self.problems.append(f"{name} ended by itself:\n{process.last_lines(30)}")
                self.cluster.start(name)
        for client in self.clients:
            problem = f"client {client.settings.name} ended by itself"
            if client.died() and problem not in self.problems:
                self.problems.append(problem)

    async def disturb(self, step: Step) -> None:
        """Carry out one step and bring everything back."""
        names = [self.names[victim] for victim in step.victims]
        if step.fault in _LEADER_FAULTS:
            leader = await self.leader(self.shards[step.victims[0] % len(self.shards)])
            if leader is not None:
                names.remove(leader)
                names.insert(0, leader)
        self.done[step.fault.value] += 1
        self.events.append((time.monotonic(), step.fault.value))
        self._log(f"fault: {step.fault.value}")
        match step.fault:
            case Fault.PAUSE | Fault.PAUSE_LEADER:
                await self._pause(names[0], step.down_s)
            case Fault.STOP:
                await self._stop(names[0], step.down_s)
            case Fault.REPLACE:
                await self._replace(names[0])
            case Fault.KILL_ALL:
                await self._kill(names, step.down_s)
            case Fault.KILL_LEADER_LAST:
                await self._kill_leader_last(names, step.down_s)
            case Fault.KILL_TWO:
                await self._kill(names[:2], step.down_s)
            case Fault.KILL_RESTARTED:
                await self._kill(names[:1], step.down_s)
                await asyncio.sleep(step.before_s)
                await self._kill(names[:1], 0.0)
            case _:
                await self._kill(names[:1], step.down_s)

    def _log(self, text: str) -> None:
        with self._log_path.open("a") as log:
            wall = datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")
            log.write(f"{time.monotonic():.3f} {wall} {text}\n")

    async def _kill(self, names: list[str], down_s: float) -> None:
        await self._down_with(names)
        await asyncio.sleep(down_s)
        await self._up_with(names)

    async def _kill_leader_last(self, names: list[str], down_s: float) -> None:
        leader, *others = names
        await self._down_with(others)
        await asyncio.sleep(_ALONE_S)
        await self._down_with([leader])
        await self._up_with(others)
        # The others elect a new leader and go on before the old one is back.
        goal = {shard: self.acked_of(shard) + 1 for shard in self.shards}
        deadline = time.monotonic() + REPAIR_TIMEOUT_S
        while any(self.acked_of(shard) < least for shard, least in goal.items()):
            if len(others) * 2 <= len(names) or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(down_s)
        await self._up_with([leader])

    async def _down_with(self, names: list[str]) -> None:
        self._down.update(names)
        self._log(f"kill {' '.join(names)}")
        killed = await asyncio.gather(
            *(asyncio.to_thread(self.cluster.kill, name) for name in names)
        )
        self.kills += sum(killed)
        for name, was_running in zip(names, killed, strict=True):
            if not was_running:
                lines = self.cluster.process(name).last_lines(30)
                self.problems.append(f"{name} had ended by itself:\n{lines}")

    async def _up_with(self, names: list[str]) -> None:
        for name in names:
            await asyncio.to_thread(self.cluster.start, name)
            self._down.discard(name)
        self._log(f"started {' '.join(names)}")

    async def _pause(self, name: str, down_s: float) -> None:
        process = self.cluster.process(name)
        if not process.signal(signal.SIGSTOP):
            return
        self.pauses += 1
        self._log(f"pause {name}")
        try:
            await asyncio.sleep(down_s)
        finally:
            process.signal(signal.SIGCONT)
        self._log(f"continue {name}")

    async def _stop(self, name: str, down_s: float) -> None:
        """Send SIGTERM: the store hands its leaderships over and closes its log.

        A program that is still being loaded dies of the signal. That would be a kill, so the store
        serves before it is told to stop; it may have been started a moment ago.
        """
        await self._until_it_serves(name)
        self._down.add(name)
        self._log(f"stop {name}")
        if not await asyncio.to_thread(self.cluster.stop, name, STOP_TIMEOUT_S):
            self.problems.append(f"{name} had ended by itself")
        told = self.cluster.process(name).last_lines(10)
        if "stopped" not in told:
            self.problems.append(f"{name} did not stop in good order:\n{told}")
        await asyncio.sleep(down_s)
        await asyncio.to_thread(self.cluster.start, name)
        self._down.discard(name)
        self._log(f"started {name}")

    async def _until_it_serves(self, name: str) -> None:
        try:
            async with (
                asyncio.timeout(SERVES_TIMEOUT_S),
                channel_to(self.addresses()[name], None) as channel,
            ):
                await channel.channel_ready()
        except TimeoutError:
            self.problems.append(f"{name} did not serve within {SERVES_TIMEOUT_S:g} s")

    async def _replace(self, name: str) -> None:
        """Lose a store's machine and start a new, empty store: HAKeeper has to restore all
        replicas.
        """
        self._down.add(name)
        self._log(f"lose {name}")
        lost = await incarnations(self.addresses().values(), name)
        await asyncio.to_thread(self.cluster.forget, name)
        spare = await asyncio.to_thread(self.cluster.add)
        self.names[self.names.index(name)] = spare
        await asyncio.to_thread(self.cluster.admit, spare)
        self._log(f"added {spare}, admitted for shard 0")
        deadline = time.monotonic() + REPAIR_TIMEOUT_S
        while missing := await unrepaired(self.addresses(), self.shards, lost):
            self.check_alive()
            if time.monotonic() > deadline:
                self.problems.append(f"not repaired after {REPAIR_TIMEOUT_S:g} s: {missing}")
                return
            await asyncio.sleep(0.5)
        self._log(f"repaired without {name}")

    async def stop_clients(self) -> None:
        """Stop all clients at once."""
        told = await asyncio.gather(*(client.stop() for client in self.clients))
        self.problems += [problem for problem in told if problem]
