"""HAKeeperTicks: what the leader of shard 0 does for the state machine: tell it that time goes on.

Theory of operation. Every store runs this loop; it acts only where shard 0's leader is. Its first
act is the first configuration (InitialCluster; a second one changes nothing), then one tick per
interval, each with the term in which it was proposed. A tick counts only if its entry has the same
term, so a leader that was deposed meanwhile cannot make time pass twice as fast.

At most one proposal is under way: when shard 0 is slow, time slows down with it, and nobody is
declared dead because HAKeeper was busy. All decisions are the state machine's
(`hakeeper.repair.check`).

A tick is an entry, which three disks write, and most of what an idle cluster does. So while nothing
waits for one (`check.quiet`), ticks are saved up, and one entry brings those of a second. As soon
as something waits, what was saved up goes with the next one. A saved tick is one that passed here,
so time is never fast.

Shard 0 compacts itself: the truncation worker visits it like any other replica.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from logservice_wire.errors import LogServiceError

from logservice import bounds
from logservice.hakeeper.answers import queries
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.phase import Phase
from logservice.ids import HAKEEPER_SHARD, ClusterId, Term
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.node_host import NodeHost
from logservice.raft.ready import Role

logger = logging.getLogger(__name__)

_SAVED_SINCE = 2
"""From this cluster version on an entry may bring several ticks."""


@dataclass(frozen=True, slots=True)
class FirstConfiguration:
    """What the cluster begins with; matters once. Names of the log shards: ``log-1`` and so on."""

    cluster_id: ClusterId
    log_shards: int
    replicas: int
    store_timeout_s: float
    joining: proposals.Joining = proposals.Joining.AUTOMATIC


class HAKeeperTicks:
    """One per store; `run` until cancelled, or `tick_once` by whoever keeps the time."""

    def __init__(self, host: NodeHost, first: FirstConfiguration, interval_s: float = 0.1) -> None:
        """`interval_s`: length of one of HAKeeper's ticks; `first.store_timeout_s` is counted in
        it.
        """
        self._host = host
        self._first = first
        self._interval_s = interval_s
        self._saved = 0

    async def run(self) -> None:
        """Tick for ever. Errors are operating errors of shard 0; the next tick tries again."""
        while True:
            started_s = self._host.clock.monotonic()
            try:
                await self.tick_once()
            except LogServiceError as error:
                logger.debug("HAKeeper's tick was not applied: %s", error)
            passed_s = self._host.clock.monotonic() - started_s
            await asyncio.sleep(max(0.0, self._interval_s - passed_s))

    async def tick_once(self) -> bool:
        """A tick has passed: propose what is due if shard 0's leader is here; False if it is not.

        Raises the proposal's LogServiceError; nothing is lost by that but the ticks it brings.
        """
        info = self._host.replicas.info(HAKEEPER_SHARD)
        if info is None or info.role is not Role.LEADER:
            self._saved = 0
            return False
        if self._host.stale_lookup(HAKEEPER_SHARD, queries.GetPhase()) == Phase.CREATED.value:
            await self._configure(info)
        version = self._host.cluster_version.value
        self._saved += 1
        most = bounds.HAKEEPER_TICKS_PER_ENTRY_MAX if version >= _SAVED_SINCE else 1
        if self._saved < most and self._host.stale_lookup(HAKEEPER_SHARD, queries.IsQuiet()):
            return True
        tick, self._saved = proposals.Tick(Term(info.term), min(self._saved, most)), 0
        await self._host.propose(
            HAKEEPER_SHARD, proposals.encode(tick, version), bounds.HAKEEPER_ATTEMPT_TIMEOUT_S
        )
        return True

    async def _configure(self, info: ReplicaInfo) -> None:
        bootstrap = self._host.directories.bootstrap_of(HAKEEPER_SHARD)
        first = self._first
        membership = info.membership
        if bootstrap is not None and not bootstrap.join:
            membership = bootstrap.membership
        proposal = proposals.InitialCluster(
            first.cluster_id,
            membership.encode(),
            tuple(
                proposals.ShardSpec(f"log-{number}", first.replicas)
                for number in range(1, first.log_shards + 1)
            ),
            first.replicas,
            max(1, round(first.store_timeout_s / self._interval_s)),
            first.joining,
        )
        await self._host.propose(
            HAKEEPER_SHARD, proposals.encode(proposal), bounds.HAKEEPER_ATTEMPT_TIMEOUT_S
        )
        logger.info("HAKeeper has the cluster's first configuration")
