"""Forker: a log goes on as another history, as `logservice recover` makes it (see `lineage`).

What that tool writes into a log that it rebuilds, the entry BeginLineage, is put here into the log
of a leader that serves; no client can have that done. Nothing else is lost by it, so all that the
log's history promises of records goes on to hold. What a fork takes is taken: sessions, the
writer's epoch, truncations that a hold keeps back. Named sessions stay, without a memory
(INV-RSM-LOST), for which these worlds are.
"""

from __future__ import annotations

import asyncio
from typing import Final

from logservice_wire.errors import LogServiceError, NotReady

from logservice.entry import EntryKind, Proposal
from logservice.envelope import ProposalId, encode_command
from logservice.lineage import LINEAGE_BYTES
from logservice.nodehost.node_host import NodeHost
from logservice.owner import Author
from logservice.raft.errors import ProposalDropped
from logservice.rsm import commands
from logservice.sim.clients.client import READ_TIMEOUT_S, Client
from logservice.sim.clients.job_record import Forked

_NEEDS: Final = 2
_FORKS_MAX: Final = 2
_KNOWN_S: Final = 5.0


class Forker(Client):
    """One per shard, in some worlds with jobs."""

    async def run(self) -> None:
        """Until told to stop, or there were enough."""
        for _ in range(_FORKS_MAX):
            for _ in range(self.chance.randint(6, 16)):
                if not self.stopping:
                    await asyncio.sleep(0.5)
            if not self.stopping:
                await self._fork()

    async def _fork(self) -> None:
        lineage = self.chance.randbytes(LINEAGE_BYTES)
        fork = Forked(self.now)

        async def work(host: NodeHost) -> int:
            replica = host.replicas.running.get(self.shard)
            if replica is None or not replica.ready_to_lead or host.cluster_version.value < _NEEDS:
                raise NotReady("not here, or not yet")
            author, known = Author(self.identity, host.identity.store_id), replica.lineage
            begins = commands.BeginLineage(author, known.number + 1, lineage, known.id)
            payload = encode_command(ProposalId(0, 0), commands.encode(begins))
            try:
                replica.raft.propose([Proposal(EntryKind.COMMAND, 0, payload)])
            except ProposalDropped:
                raise NotReady("not now") from None
            replica.activate()
            return begins.number

        self.history.jobs.forks.append(fork)
        for store in self.world.stores:
            try:
                number = await self.ask(work, READ_TIMEOUT_S, store)
            except LogServiceError:
                continue
            await self._wait(fork, number)
            return

    async def _wait(self, fork: Forked, number: int) -> None:
        """Until it is known; what is not known after a while may come about later, or never."""

        async def look(host: NodeHost) -> int:
            await host.read_index(self.shard, READ_TIMEOUT_S)
            return host.replicas.running[self.shard].lineage.number

        deadline_s = self.now + _KNOWN_S
        while self.now < deadline_s:
            try:
                if await self.ask(look, READ_TIMEOUT_S) >= number:
                    fork.known_s = self.now
                    self.world.counts["fault fork"] += 1
                    return
            except (LogServiceError, KeyError):
                await asyncio.sleep(0.1)
