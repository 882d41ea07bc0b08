"""Storm: a seeded random life of a cluster, one small action at a time.

Messages are lost, doubled and reordered; replicas crash between any two actions and restart from
what was durable; disks lag behind by several Readys; links break one way; logs are compacted;
leadership and membership change. The cluster's checker watches every action. `counts` says how
often each action happened, so that a test can tell a storm from a breeze.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections import Counter
from collections.abc import Callable

from logservice.config_change import ChangeKind, ChangeStep, ConfigChange, Transition
from logservice.ids import Index, ReplicaId
from logservice.raft.config import RaftLimits
from logservice.raft.errors import ProposalDropped
from logservice.raft.ready import Role
from tests.raft.cluster import Cluster, Replica, block

REPLICAS_MAX = 7


class Storm:
    """One random life of a cluster; the seed decides all of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.changes = self.random.random() < 0.5
        check_quorum = self.random.random() < 0.5
        settings: dict[str, int] = {
            "pre_vote": self.random.random() < 0.5,
            "check_quorum": check_quorum,
            "lease_read": check_quorum and self.random.random() < 0.4,
        }
        settings["quiesce_ticks"] = self.random.choice([0, 0, 2, 6])
        # Replicas that left the configuration need pre-vote to end a deadlock: see `departing`.
        self.lives_on = settings["pre_vote"] or not self.changes
        limits = RaftLimits(
            message_bytes=self.random.choice([1, 50, 10**6]),
            inflight_messages=self.random.choice([1, 3, 256]),
            committed_bytes_per_ready=self.random.choice([1, 100, 10**6]),
        )
        count = self.random.choice([1, 2, 3, 3, 5])
        self.cluster = Cluster(
            count,
            seed=seed,
            limits=limits,
            settings=settings,
            election_ticks=self.random.choice([4, 10]),
        )
        some = self.random.choice([0.0, 0.3, 0.8])
        everyone = range(1, REPLICAS_MAX + 1)
        self.slow_disks = {one for one in everyone if self.random.random() < some}
        self.slow_to_apply = {one for one in everyone if self.random.random() < some}
        self.counts: Counter[str] = Counter()
        self.proposed = 0
        self.next_id = len(self.cluster.replicas) + 1
        # The largest index anybody had applied when a read was asked for: what it must not miss.
        self.read_floor: dict[bytes, int] = {}
        self.loss = self.random.choice([0.0, 0.05, 0.3])
        # Swarm testing: each life draws which actions are frequent in it, and which are missing.
        often = functools.partial(self.random.choice, [0.2, 1, 1, 3])
        self._small: list[tuple[Callable[[Replica], None], float]] = [
            (self._work, 40),
            (self._take, 4 * often()),
            (self._persist, 4 * often()),
            (self._apply, 4 * often()),
            (self._deliver, 40),
            (self._propose, 4 * often()),
            (self._read, 2 * often()),
        ]
        # Chances per tick; an undisturbed election takes 10 to 20 ticks.
        self._large: list[tuple[Callable[[Replica], None], float]] = [
            (self._crash, 0.01 * often()),
            (self._crash_leader, 0.01 * often()),
            (self._isolate_leader, 0.01 * often()),
            (self._cut, 0.02 * often()),
            (self._heal, 0.08 * often()),
            (self._restart, 0.2 * often()),
            (self._bounce, 0.03 * often()),
            (self._campaign, 0.02 * often()),
            (self._transfer, 0.02 * often()),
            (self._forget, 0.02 * often()),
            (self._unreachable, 0.02 * often()),
            (self._compact, 0.05 * often()),
            (self._change, 0.2 * often() if self.changes else 0),
        ]
        self._turns = self.random.choice([2, 6, 12])

    def run(self, ticks: int) -> None:
        """Live for `ticks`, then calm down: all replicas must agree and go on."""
        cluster = self.cluster
        small = [action for action, _ in self._small]
        weights = [weight for _, weight in self._small]
        for _ in range(ticks):
            self._tick()
            for action, chance in self._large:
                if self.random.random() < chance:
                    action(self._anybody())
            for action in self.random.choices(
                small, weights, k=self._turns * len(cluster.replicas)
            ):
                replica = self._anybody()
                action(replica)
                self._check_reads(replica)
        self.counts["leaders"] = len(cluster.leaders)
        self.counts["committed"] = len(cluster.committed)
        cluster.check_logs()
        if self.lives_on:
            self._calm()

    def _anybody(self) -> Replica:
        return self.random.choice(list(self.cluster.replicas.values()))

    def _calm(self) -> None:
        """Heal everything: a leader must come and commit, and all its members have every entry."""
        cluster = self.cluster
        cluster.heal()
        for number, member in list(cluster.replicas.items()):
            if not member.up:
                cluster.restart(number)
        for _ in range(100):
            leader = cluster.wait_for_leader().raft
            try:
                leader.propose([block(b"end")])
            except ProposalDropped:
                cluster.tick()
                continue
            cluster.tick(20)
            if leader.role is Role.LEADER and self._agree(leader.membership.voters):
                break
        else:
            raise AssertionError("no agreement after the storm")
        cluster.check_logs()
        for one in cluster.up():
            self._check_reads(one)

    def _agree(self, voters: tuple[ReplicaId, ...]) -> bool:
        ups = [self.cluster.replicas[voter] for voter in voters]
        return len({replica.raft.applied_index for replica in ups}) == 1

    # --- actions ----------------------------------------------------------------------------------

    def _take(self, replica: Replica) -> None:
        if replica.up:
            self.cluster.take(replica)

    def _work(self, replica: Replica) -> None:
        """Do a pass of one replica's shell; it is up to date unless its disk is slow."""
        self._take(replica)
        if replica.id not in self.slow_disks or self.random.random() < 0.1:
            self._persist(replica)
        if replica.id not in self.slow_to_apply or self.random.random() < 0.1:
            self._apply(replica)
        self._take(replica)

    def _persist(self, replica: Replica) -> None:
        for _ in range(self.random.randrange(4)):
            if replica.up and replica.waiting:
                self.cluster.persist(replica)
                self.counts["persisted"] += 1

    def _apply(self, replica: Replica) -> None:
        for _ in range(self.random.randrange(6)):
            if replica.up and replica.to_apply:
                self.cluster.apply(replica)
                self.counts["applied"] += 1

    def _deliver(self, _chosen: Replica) -> None:
        for _ in range(self.random.randrange(4 + len(self.cluster.messages) // 4)):
            if self.cluster.messages:
                self._deliver_one()

    def _deliver_one(self) -> None:
        messages = self.cluster.messages
        # Messages come mostly in order, and sometimes in any order.
        position = 0 if self.random.random() < 0.7 else self.random.randrange(len(messages))
        fate = self.random.random()
        message = messages[position] if fate < 0.05 else messages.pop(position)
        if fate > 1 - self.loss:
            self.counts["lost"] += 1
            return
        self.counts["delivered"] += 1
        self.cluster.deliver(message)

    def _tick(self) -> None:
        """Clocks run at about the same speed, but not quite."""
        for replica in self.cluster.up():
            if self.random.random() < 0.95:
                replica.raft.tick()

    def _propose(self, replica: Replica) -> None:
        if not replica.up:
            return
        self.proposed += 1
        records = self.random.choice([1, 1, 3])
        try:
            replica.raft.propose(
                [block(b"%d" % self.proposed, records)] * self.random.choice([1, 2])
            )
            self.counts["proposed"] += 1
        except ProposalDropped:
            pass

    def _read(self, replica: Replica) -> None:
        if not replica.up:
            return
        context = b"%d" % len(self.read_floor)
        self.read_floor[context] = max(self.cluster.committed, default=0)
        with contextlib.suppress(ProposalDropped):
            replica.raft.read_index(context)

    def _check_reads(self, replica: Replica) -> None:
        while replica.reads:
            state = replica.reads.pop()
            floor = self.read_floor[state.context]
            assert state.index >= floor, f"read at {state.index} misses {floor}"
            self.counts["reads"] += 1

    def _transfer(self, replica: Replica) -> None:
        if replica.up:
            replica.raft.transfer_leader(ReplicaId(self.random.choice(list(self.cluster.replicas))))

    def _compact(self, replica: Replica) -> None:
        storage = replica.storage
        durable = storage.first_index() <= replica.raft.applied_index <= storage.last_index()
        if replica.up and durable:
            self.cluster.compact(replica.id)
            self.counts["compacted"] += 1

    def _crash(self, replica: Replica) -> None:
        if replica.up:
            self.cluster.crash(replica.id)
            self.counts["crashed"] += 1

    def _leader(self) -> Replica | None:
        leaders = [one for one in self.cluster.up() if one.raft.role is Role.LEADER]
        return self.random.choice(leaders) if leaders else None

    def _crash_leader(self, _chosen: Replica) -> None:
        leader = self._leader()
        if leader is not None:
            self._crash(leader)

    def _isolate_leader(self, _chosen: Replica) -> None:
        leader = self._leader()
        if leader is not None:
            self.cluster.isolate(leader.id)
            self.counts["isolated"] += 1

    def _campaign(self, replica: Replica) -> None:
        if replica.up:
            replica.raft.campaign()

    def _restart(self, replica: Replica) -> None:
        if not replica.up:
            self.cluster.restart(replica.id)

    def _bounce(self, replica: Replica) -> None:
        """Crash and restart a replica before another notices."""
        if replica.up:
            self._crash(replica)
            self._restart(replica)

    def _cut(self, replica: Replica) -> None:
        other = self.random.choice(list(self.cluster.replicas))
        self.cluster.cut.add((replica.id, other))
        if self.random.random() < 0.2:
            self.cluster.isolate(replica.id)

    def _heal(self, _chosen: Replica) -> None:
        if self.random.random() < 0.5:
            self.cluster.heal()

    def _unreachable(self, replica: Replica) -> None:
        if replica.up:
            replica.raft.report_unreachable(
                ReplicaId(self.random.choice(list(self.cluster.replicas)))
            )

    def _forget(self, replica: Replica) -> None:
        if replica.up and self.random.random() < 0.3:
            replica.raft.forget_leader()

    def _change(self, _chosen: Replica) -> None:
        """A change drawn from what a leader knows, sometimes on an old epoch."""
        replica = self._leader()
        if replica is None:
            return
        members = replica.raft.membership
        epoch = members.change_epoch - (self.random.random() < 0.1)
        steps = tuple(self._step(replica) for _ in range(self.random.choice([1, 1, 2, 3])))
        transition = self.random.choice(list(Transition))
        if members.joint and not members.auto_leave:
            steps, transition = (), Transition.AUTO
        try:
            replica.raft.propose_change(ConfigChange(steps, Index(epoch), transition))
            self.counts["changes"] += 1
        except ProposalDropped:
            pass

    def _step(self, replica: Replica) -> ChangeStep:
        present = [*replica.raft.membership.voters, *replica.raft.membership.learners]
        kinds = [ChangeKind.ADD_VOTER, ChangeKind.ADD_LEARNER, ChangeKind.REMOVE]
        if len(present) <= 2:
            kinds.remove(ChangeKind.REMOVE)
        kind = self.random.choice(kinds)
        if kind is ChangeKind.REMOVE or len(present) >= 5 or self.next_id > REPLICAS_MAX:
            return ChangeStep(kind, self.random.choice(present))
        number = self.next_id
        self.next_id += 1
        self.cluster.start(number)
        return ChangeStep(kind, ReplicaId(number))
