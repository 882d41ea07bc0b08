"""Limits: what the adversary does not do. The package's text says why; nothing else is held back.

A message is judged when it arrives, because whether it is a lie depends on what is true then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from logservice.ids import HAKEEPER_SHARD, ReplicaId, ShardId
from logservice.membership import Membership
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    InstallSnapshot,
    Message,
    Quiesce,
    ReadIndexResponse,
    RequestVote,
    TimeoutNow,
    VoteResponse,
)
from logservice.raft.ready import Role
from logservice.sim.rogue.scene import Scene, Victim

_OF_LEADERS = (AppendEntries, Heartbeat, InstallSnapshot, Quiesce, TimeoutNow, ReadIndexResponse)


class Limits:
    """One per rogue."""

    def __init__(self, scene: Scene) -> None:
        """Nobody was asked for a vote yet."""
        self._scene = scene
        self._asked: dict[tuple[ShardId, int], set[ReplicaId]] = {}
        self.held_back: Counter[str] = Counter()

    def asks(self, shard: ShardId, message: RequestVote) -> None:
        """The rogue, or its honest process, asks for a vote: it may get it."""
        if not message.pre:
            self._asked.setdefault((shard, int(message.term)), set()).add(message.to)

    def holds_back(self, victim: Victim, message: Message) -> bool:
        """Whether it is one of the lies that no protocol can stand."""
        own = self._scene.ids(victim.shard)
        traitor = self._scene.world.config.rogue == "traitor"
        if message.sender not in own or (traitor and victim.shard != HAKEEPER_SHARD):
            return False
        why = ""
        if isinstance(message, AppendResponse):
            why = self._acknowledges(victim, message)
        elif isinstance(message, VoteResponse):
            raft = victim.replica.raft
            elects = raft.role is Role.CANDIDATE and raft.term == message.term
            why = "vote" if elects and not (message.reject or message.pre) else ""
        elif isinstance(message, _OF_LEADERS) and self._leads(victim, message, own):
            why = "leader"
        if why:
            self.held_back[why] += 1
        return bool(why)

    def _acknowledges(self, victim: Victim, message: AppendResponse) -> str:
        """Whether it acknowledges more than its disk surely has: what it knows is committed.

        An index beyond the leader's own log is not held back: the leader has to see that it is
        nonsense.
        """
        home = self._scene.home
        if message.reject or home is None or message.index > victim.replica.raft.last_index:
            return ""
        replica = home.running(victim.shard)
        surely = replica.applied if replica is not None else 0
        return "acknowledgement" if message.index > surely else ""

    def _leads(self, victim: Victim, message: Message, own: list[ReplicaId]) -> bool:
        term = int(message.term)
        shard = victim.shard
        if self._scene.world.oracle.shard(shard).leaders.get(term) in own:
            return True
        if victim.replica.raft.leader in own and term in (0, victim.replica.raft.term):
            return True
        voters = self._asked.get((shard, term), set()) | set(own)
        return any(_majority(one, voters) for one in self._scene.memberships(shard))


def _majority(membership: Membership, voters: Iterable[ReplicaId]) -> bool:
    have = set(voters)
    halves = [half for half in (membership.voters, membership.outgoing) if half]
    # A replica that has just begun to join knows nobody: nobody is elected by that.
    return bool(halves) and all(2 * len(have.intersection(half)) > len(half) for half in halves)
