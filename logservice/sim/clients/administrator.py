"""Administrator: somebody who administers the cluster all the time, with every verb there is.

Theory of operation. Every verb is a proposal, made where HAKeeper leads, in worlds whose cluster
version has verbs. What to ask for is drawn without a look at whether it makes sense: HAKeeper has
to refuse what would cost a log its majority, and whatever it does for the others must keep every
promise that the checkers of this world know. Nothing is forced.

The number of replicas never goes below three: with fewer, the disk that the world's faults destroy
may be the only one that has an acknowledged record. Where no disk is destroyed some of the logs
that are made have a witness.

Besides the world's logs the administrator makes logs of its own (`made_log`), closes and deletes
them, with force and without. When the faults have ended it takes back what it wished (`finish`), so
that the world can be judged as any other; of the world's logs it then wants so many `learners`,
which have to hold what voters hold. A deleted log must be gone then: no store runs a replica of it,
or has its data, and HAKeeper does not know it (`gone`). The others must be as whole as the world's
logs (`lasting`).

Where HAKeeper leads a store may end right after it was asked, or when an operator there has taken
a step: whoever leads next has to go on from what is in the log (`_may_end`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from logservice_wire.errors import DeadlineExceeded, LogServiceError, NotReady

from logservice import versions
from logservice.hakeeper.commands.policy import LearnersIn, Policy, ZoneRule
from logservice.hakeeper.commands.proposals import (
    ChangeShard,
    CreateShard,
    DeleteShard,
    Proposal,
    RaiseVersion,
)
from logservice.hakeeper.commands.verbs import (
    CancelOperator,
    CancelWish,
    DrainDirectory,
    Errand,
    SetLeader,
    SetRepair,
    SetStoreMode,
    StoreMode,
    WishReplica,
)
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import State
from logservice.hakeeper.stores.zones import NO_ZONE
from logservice.ids import HAKEEPER_SHARD, Incarnation, Index, ShardId, StoreId
from logservice.outcome import Applied
from logservice.raft.ready import Role
from logservice.sim.clients.made_log import MadeLog, close
from logservice.sim.faults.zones import ZONES_FOR_A_RULE
from logservice.sim.interfaces import Crash, Store, World

_RHYTHM_S: Final = 0.5
_LOOK_S: Final = 0.1
_CLOSE_SHARE: Final = 0.1
"""How often a log is closed instead of a proposal made."""
_END_SHARE: Final = 0.05
"""How often a verb, or a step of an operator, ends the store where HAKeeper leads."""
_DRAIN_SHARE: Final = 0.1
"""How often a data directory is drained, or used again, beside what else is asked for."""
_LOGS_MAX: Final = 3
"""Logs at once: each has clients of its own."""
_TIMEOUT_S: Final = 1.0
_NUMBERS: Final = 20
"""Wishes and operators are cancelled by numbers up to this one."""


class Administrator:
    """One per world that is administered."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = random.Random(f"administrator/{world.config.seed}")
        self._witnesses = random.Random(f"witnesses/{world.config.seed}")
        self.made: dict[ShardId, MadeLog] = {}
        self.deleted: set[ShardId] = set()
        self.learners = self.chance.choice((0, 0, 1))
        self._drains = random.Random(f"directories/{world.config.seed}")
        self._drained: set[tuple[StoreId, Incarnation]] = set()
        self._number = 0
        self._steps: set[tuple[int, str]] = set()
        self._finishing = False

    async def run(self) -> None:
        """Until the faults end; then everything is taken back."""
        while not self._finishing:
            await asyncio.sleep(self.chance.expovariate(1.0) * _RHYTHM_S)
            if self._finishing:
                break
            if self.world.cluster_version < versions.NEWEST and not self.world.config.upgrade:
                # A store was silent when the cluster was born. Verbs need the newest version, so
                # an operator raises it first (seed 13000006).
                await self.attempt(RaiseVersion(versions.NEWEST))
            if self.made and self.chance.random() < _CLOSE_SHARE:
                await self._close()
            else:
                await self.attempt(self._draw())
                self._may_end()
            if self._drains.random() < _DRAIN_SHARE:
                await self._drain_directory()
        back = self._taken_back()
        while back:
            if await self.attempt(back[-1]) is None:
                await asyncio.sleep(0.3)
            else:
                back.pop()

    def finish(self) -> None:
        """The faults have ended: no new wishes."""
        self._finishing = True

    async def stalk(self) -> None:
        """Look for steps of operators until the faults end."""
        while not self._finishing:
            await asyncio.sleep(_LOOK_S)
            state = self.state()
            if state is None:
                continue
            steps = {(operator.id, operator.step) for operator in state.operators.values()}
            if steps - self._steps:
                self._may_end()
            self._steps = steps

    async def stop_clients(self) -> None:
        """The clients of all logs that were made end."""
        for log in self.made.values():
            await log.stopped()

    def lasting(self) -> list[MadeLog]:
        """The logs that were made and are not deleted, as HAKeeper knows it.

        A deletion whose answer was lost may have happened.
        """
        state = self.state()
        if state is None:
            return []
        known = {shard.shard for shard in state.shards.values() if not shard.deleting_tick}
        return [log for shard, log in sorted(self.made.items()) if shard in known]

    def state(self) -> State | None:
        """What HAKeeper knows where it leads."""
        leader = self._home()
        replica = leader.running(HAKEEPER_SHARD) if leader is not None else None
        machine = replica.state_machine if replica is not None else None
        return machine.state if isinstance(machine, HAKeeperRsm) else None

    def gone(self) -> list[str]:
        """What is left of deleted logs, once the world has settled."""
        left: list[str] = []
        for store in self.world.stores:
            parts = store.parts
            if parts is None:
                continue
            stored = {shard for shard, _ in parts.host.directories.replicas()}
            for shard in sorted(self.deleted):
                if store.running(shard) is not None:
                    left.append(f"{store.store_id} runs a replica of deleted shard {shard}")
                elif shard in stored:
                    left.append(f"{store.store_id} has data of deleted shard {shard}")
        return left

    async def attempt(self, proposal: Proposal) -> Applied | None:
        """Propose it where HAKeeper leads; None when that did not work."""
        name = type(proposal).__name__
        try:
            applied = await self._propose(proposal)
        except LogServiceError as error:
            self.world.counts[f"fault verb {name} {error.reason.value}"] += 1
            return None
        self.world.counts[f"fault verb {name} applied"] += 1
        if isinstance(proposal, CreateShard):
            shard = ShardId(applied.value)
            self.world.counts["logs with a witness"] += bool(proposal.witnesses)
            self.made[shard] = MadeLog(self.world, shard, proposal.name, proposal.witnesses)
        if isinstance(proposal, DeleteShard):
            self.deleted.add(proposal.shard)
            log = self.made.pop(proposal.shard, None)
            if log is not None:
                log.stop()
        return applied

    async def _propose(self, proposal: Proposal) -> Applied:
        leader = self._home()
        if leader is None or leader.parts is None:
            raise NotReady("HAKeeper has no leader")
        try:
            async with asyncio.timeout(_TIMEOUT_S + 0.5):
                return await leader.parts.client.administer(proposal, _TIMEOUT_S)
        except TimeoutError:
            # A store that ended while it was asked answers never (short seed 116).
            raise DeadlineExceeded("no answer") from None

    async def _close(self) -> None:
        """Close a log, from version 2 on; to close a closed one changes nothing."""
        if self.world.cluster_version < 2:
            return
        log = self.made[self.chance.choice(sorted(self.made))]
        self.world.counts[f"fault verb Close {await close(log)}"] += 1

    async def _drain_directory(self) -> None:
        """Of a store that has several."""
        several = [one for one in self.world.stores if one.parts and len(one.directories) > 1]
        if not several:
            return
        store = self._drains.choice(several)
        assert store.parts is not None
        incarnation = self._drains.choice(store.parts.host.identity.incarnations)
        undo = self._drains.random() < 0.4
        self._drained.add((store.store_id, incarnation))
        await self.attempt(DrainDirectory(store.store_id, incarnation, undo))

    def _may_end(self) -> None:
        """Sometimes the store where HAKeeper leads ends now."""
        leader = self._home()
        if leader is not None and not self._finishing and self.chance.random() < _END_SHARE:
            self.world.counts["fault HAKeeper's leader ends at a step"] += 1
            leader.crash(Crash(power=self.chance.random() < self.world.config.power_share))

    def _home(self) -> Store | None:
        """Where HAKeeper leads."""
        return next((one for one in self.world.stores if _leads_hakeeper(one)), None)

    def _taken_back(self) -> list[Proposal]:
        """What ends all standing wishes."""
        back: list[Proposal] = [SetRepair("", 0)]
        for store in self.world.stores:
            back += [SetStoreMode(store.store_id, StoreMode.OPEN), SetRepair(store.store_id, 0)]
        back += [DrainDirectory(*one, undo=True) for one in sorted(self._drained)]
        back += [SetLeader(shard, 0) for shard in self.world.shards]
        policy = self._policy(self.learners)
        back += [ChangeShard(shard, policy=policy) for shard in self.world.shards]
        return back

    # --- drawing ----------------------------------------------------------------------------------

    def _draw(self) -> Proposal:
        draws: tuple[Callable[[], Proposal], ...] = (
            self._mode,
            self._mode,
            self._errand,
            self._errand,
            self._leader,
            self._repair,
            self._cancel,
            self._change,
            self._create,
            self._delete,
        )
        return self.chance.choice(draws)()

    def _store(self) -> StoreId:
        return self.chance.choice(self.world.stores).store_id

    def _shard(self) -> ShardId:
        return self.chance.choice([HAKEEPER_SHARD, *self.world.shards, *self.made])

    def _mode(self) -> Proposal:
        modes = (StoreMode.DRAINING, StoreMode.READ_ONLY, StoreMode.OPEN)
        return SetStoreMode(self._store(), self.chance.choice(modes))

    def _errand(self) -> Proposal:
        errand = self.chance.choice((Errand.MOVE, Errand.MOVE, Errand.ADD, Errand.REMOVE))
        source = "" if errand is Errand.ADD else self._store()
        target = "" if errand is Errand.REMOVE else self._store()
        return WishReplica(errand, self._shard(), source, target)

    def _leader(self) -> Proposal:
        store = self._store() if self.chance.random() < 0.7 else ""
        return SetLeader(self._shard(), self.chance.choice((0, 10, 50)), store)

    def _repair(self) -> Proposal:
        store = self._store() if self.chance.random() < 0.7 else ""
        return SetRepair(store, self.chance.choice((0, 5, 20)))

    def _cancel(self) -> Proposal:
        number = self.chance.randint(1, _NUMBERS)
        return self.chance.choice((CancelWish, CancelOperator))(number)

    def _change(self) -> Proposal:
        most = 5 if len(self.world.stores) >= 5 else 3
        shard = self.chance.choice([*self.world.shards, *self.made])
        # Nobody takes back what a made log wants: it may be deleted by then.
        learners = 0 if shard in self.made else self.chance.choice((0, 0, 1, 2))
        return ChangeShard(
            shard, replicas=self.chance.choice((3, most)), policy=self._policy(learners)
        )

    def _policy(self, learners: int) -> Policy:
        config = self.world.config
        rules = [ZoneRule.NONE, ZoneRule.BEST_EFFORT]
        if config.zones >= ZONES_FOR_A_RULE and not (config.disk_loss or config.disk_death):
            # With fewer zones, or if the only store of one is lost, a voter would wait for a store
            # for ever (short seed 500284).
            rules.append(ZoneRule.HARD)
        wanted = (LearnersIn(NO_ZONE, learners),) if learners else ()
        return Policy(zone_rule=self.chance.choice(rules), learners=wanted)

    def _create(self) -> Proposal:
        if len(self.made) >= _LOGS_MAX:
            return self._delete()
        self._number += 1
        witnesses = self._witnesses.choice((0, 1)) if self._may_have_witnesses() else 0
        return CreateShard(ShardId(0), f"extra-{self._number}", 3, witnesses=witnesses)

    def _may_have_witnesses(self) -> bool:
        """Such a log stands no disk that loses what it had: guarantee G1 is waived for it."""
        config = self.world.config
        return not (config.victim or config.diverges or config.rogue)

    def _delete(self) -> Proposal:
        if not self.made:
            return self._create()
        shard = self.chance.choice(sorted(self.made))
        log = self.made[shard]
        if log.end is None or self.chance.random() < 0.3:
            return DeleteShard(shard, log.name, force=True)
        return DeleteShard(shard, log.name, closed_index=Index(log.end.value))


def _leads_hakeeper(store: Store) -> bool:
    replica = store.running(HAKEEPER_SHARD)
    return replica is not None and replica.raft.role is Role.LEADER
