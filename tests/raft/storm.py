"""Storm: a seeded random life of a cluster, one small action at a time.

Messages are lost, doubled and reordered; replicas crash between any two actions and restart from what
was durable; disks lag behind by several Readys; links break one way; logs are compacted; leadership
and membership change. The cluster's checker watches every action. What a run did is in `counts`, so
that a test can tell a storm from a breeze.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from logservice.ids import Index, ReplicaId
from logservice.raft.config import RaftLimits
from logservice.raft.config_change import ChangeKind, ChangeStep, ConfigChange, Transition
from logservice.raft.core import ProposalDropped
from logservice.raft.ready import Role
from tests.raft.cluster import Cluster, Replica, block

REPLICAS_MAX = 7


class Storm:
    """One life. Everything follows from the seed."""

    def __init__(self, seed: int, *, changes: bool, **settings: bool) -> None:
        self.random = random.Random(seed)
        limits = RaftLimits(
            message_bytes=self.random.choice([1, 50, 10**6]),
            inflight_messages=self.random.choice([1, 3, 256]),
            committed_bytes_per_ready=self.random.choice([1, 100, 10**6]),
        )
        self.cluster = Cluster(
            self.random.choice([1, 2, 3, 3, 5]), seed=seed, limits=limits, **settings
        )
        self.counts: Counter[str] = Counter()
        self.changes = changes
        self.proposed = 0
        self.next_id = len(self.cluster.replicas) + 1
        # The largest index anybody had applied when a read was asked for: what it must not miss.
        self.read_floor: dict[bytes, int] = {}
        self.reads_seen: dict[int, int] = {}
        self.loss = self.random.choice([0.0, 0.05, 0.3])
        actions: list[tuple[Callable[[Replica], None], float]] = [
            (self._take, 100),
            (self._persist, 80),
            (self._apply, 60),
            (self._deliver, 150),
            (self._tick, 20),
            (self._propose, 15),
            (self._read, 10),
            (self._transfer, 0.5),
            (self._compact, 3),
            (self._crash, 1),
            (self._restart, 10),
            (self._cut, 1),
            (self._heal, 4),
            (self._unreachable, 1),
            (self._forget, 0.5),
            (self._change, 10 if changes else 0),
        ]
        self._actions = [action for action, _ in actions]
        self._weights = [weight for _, weight in actions]

    def run(self, steps: int) -> None:
        """`steps` random actions, then calm: everybody must agree and go on."""
        cluster = self.cluster
        for _ in range(steps):
            (action,) = self.random.choices(self._actions, self._weights)
            replica = self.random.choice(list(cluster.replicas.values()))
            action(replica)
            self._check_reads(replica)
        self.counts["leaders"] = len(cluster.leaders)
        self.counts["committed"] = len(cluster.committed)
        cluster.check_logs()
        self._calm()

    def _calm(self) -> None:
        """Everything heals: a leader comes, commits, and all its members have everything."""
        cluster = self.cluster
        cluster.heal()
        for number, replica in list(cluster.replicas.items()):
            if not replica.up:
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
        for replica in cluster.up():
            self._check_reads(replica)

    def _agree(self, voters: tuple[ReplicaId, ...]) -> bool:
        ups = [self.cluster.replicas[voter] for voter in voters]
        return len({replica.raft.applied_index for replica in ups}) == 1

    # --- actions ----------------------------------------------------------------------------------

    def _take(self, replica: Replica) -> None:
        if replica.up:
            self.cluster.take(replica)

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

    def _deliver(self, _: Replica) -> None:
        for _ in range(self.random.randrange(8)):
            if self.cluster.messages:
                self._deliver_one()

    def _deliver_one(self) -> None:
        messages = self.cluster.messages
        # Mostly in order, sometimes any.
        position = 0 if self.random.random() < 0.7 else self.random.randrange(len(messages))
        fate = self.random.random()
        message = messages[position] if fate < 0.05 else messages.pop(position)
        if fate > 1 - self.loss:
            self.counts["lost"] += 1
            return
        self.counts["delivered"] += 1
        target = self.cluster.replicas.get(message.to)
        refused = len(target.rejected) if target else 0
        self.cluster.deliver(message)
        if target and len(target.rejected) > refused:
            self.counts[target.rejected[-1].reason.value] += 1

    def _tick(self, replica: Replica) -> None:
        """Clocks run at about the same speed, but not quite."""
        for other in self.cluster.up():
            if other is not replica or self.random.random() < 0.8:
                other.raft.tick()

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
        try:
            replica.raft.read_index(context)
        except ProposalDropped:
            pass

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
        if replica.up and replica.raft.applied_index <= replica.storage.last_index():
            if replica.raft.applied_index >= replica.storage.first_index():
                self.cluster.compact(replica.id)
                self.counts["compacted"] += 1

    def _crash(self, replica: Replica) -> None:
        if replica.up:
            self.cluster.crash(replica.id)
            self.counts["crashed"] += 1

    def _restart(self, replica: Replica) -> None:
        if not replica.up:
            self.cluster.restart(replica.id)

    def _cut(self, replica: Replica) -> None:
        other = self.random.choice(list(self.cluster.replicas))
        self.cluster.cut.add((replica.id, other))
        if self.random.random() < 0.2:
            self.cluster.isolate(replica.id)

    def _heal(self, _: Replica) -> None:
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

    def _change(self, replica: Replica) -> None:
        """A change drawn from what the proposer knows, sometimes on an old epoch."""
        if not replica.up or replica.raft.role is not Role.LEADER:
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
