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

So the loop sleeps through the ticks that it saves up, and everywhere but at the leader: only an
entry that is applied can end the quiet or make a leader (its term's first one), and `applied` is
told of each. An entry that comes when most of the ticks are saved takes them along: two entries one
after the other cost three disks less than two apart. And it waits a moment for the heartbeats of
its second (`together`). Ticks that a stalled process slept through longer than it meant to count as
one.

Shard 0 compacts itself: the truncation worker visits it like any other replica.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import LogServiceError

from logservice import bounds
from logservice.hakeeper.answers import queries
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.phase import Phase
from logservice.ids import HAKEEPER_SHARD, ClusterId, Term
from logservice.nodehost.agent.together import Together
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.node_host import NodeHost
from logservice.pause import Pause
from logservice.raft.ready import Role

logger = logging.getLogger(__name__)

_SAVED_SINCE = 2
"""From this cluster version on an entry may bring several ticks."""

_EARLY: Final = 0.01
"""By so much of a tick a timer may be early."""

_RIPE: Final = 0.7
"""Of the ticks that an entry may bring, so many go along with another entry."""


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

    def __init__(
        self,
        host: NodeHost,
        first: FirstConfiguration,
        together: Together,
        interval_s: float = 0.1,
    ) -> None:
        """`interval_s`: length of one of HAKeeper's ticks; `first.store_timeout_s` is counted in
        it. `together`: with what else an entry goes.
        """
        self._host = host
        self._first = first
        self._together = together
        self._interval_s = interval_s
        self._saved = 0
        self._pause = Pause()
        self._began_s = 0.0
        """When the newest tick was that is counted."""
        self._sleeps = 1
        """For how many ticks the loop sleeps."""
        self._led = False
        """Shard 0's leader was here at the newest tick."""
        self._ripe = False
        """The ticks that are saved go with the entry that was just applied."""

    async def run(self) -> None:
        """Tick for ever. Errors are operating errors of shard 0; the next tick tries again."""
        clock, passed = self._host.clock, 1
        self._began_s = clock.monotonic()
        while True:
            self._sleeps = 1
            try:
                self._led = await self.tick_once(passed)
                if not self._led:
                    self._sleeps = bounds.HAKEEPER_TICKS_PER_ENTRY_MAX
                elif self._saved or self._together.quiet():
                    self._sleeps = self._most - self._saved
            except LogServiceError as error:
                logger.debug("HAKeeper's tick was not applied: %s", error)
            await self._pause.sleep(self._until_s(self._sleeps))
            if self._passed() == 0:
                await asyncio.sleep(self._until_s(1))
            passed = self._pass()

    def applied(self) -> None:
        """An entry of shard 0 was applied here: the sleep may have been planned for too long."""
        if self._sleeps == 1 or not self._leads():
            return
        self._ripe = self._led and self._saved + self._passed() > self._most * _RIPE
        if self._ripe or not self._led or not self._together.quiet():
            self._pause.end()

    def _until_s(self, ticks: int) -> float:
        """Seconds until so many have passed, 0 if they have."""
        left_s = self._began_s + ticks * self._interval_s - self._host.clock.monotonic()
        return max(0.0, left_s)

    def _passed(self) -> int:
        """How many ticks have passed, but for those of a stall."""
        slept = (self._host.clock.monotonic() - self._began_s) / self._interval_s
        return 1 if slept >= self._sleeps + 1 else min(self._sleeps, int(slept + _EARLY))

    def _pass(self) -> int:
        """Count the ticks that have passed. Those before this store led are its predecessor's."""
        now_s, passed = self._host.clock.monotonic(), max(1, self._passed())
        through_s = self._began_s + passed * self._interval_s
        in_time = now_s < through_s + self._interval_s
        self._began_s = through_s if in_time else now_s
        return passed if self._led else 1

    def _leads(self) -> bool:
        info = self._host.replicas.info(HAKEEPER_SHARD)
        return info is not None and info.role is Role.LEADER

    @property
    def _most(self) -> int:
        """Ticks that an entry may bring."""
        saves = self._host.cluster_version.value >= _SAVED_SINCE
        return bounds.HAKEEPER_TICKS_PER_ENTRY_MAX if saves else 1

    async def tick_once(self, passed: int = 1) -> bool:
        """So many ticks have passed: propose what is due if shard 0's leader is here; False if it
        is not.

        Raises the proposal's LogServiceError; nothing is lost by that but the ticks it brings.
        """
        info = self._host.replicas.info(HAKEEPER_SHARD)
        if info is None or info.role is not Role.LEADER:
            self._saved = 0
            return False
        if self._host.stale_lookup(HAKEEPER_SHARD, queries.GetPhase()) == Phase.CREATED.value:
            await self._configure(info)
        version, most = self._host.cluster_version.value, self._most
        self._saved += passed
        ripe, self._ripe = self._ripe, False
        if self._saved < most and not ripe and self._together.quiet():
            return True
        await self._together.wait()
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
