"""Forged snapshots: a real one of the shard, or of another, in which one thing is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from logservice_wire.errors import LogServiceError

from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.membership import Member, Membership
from logservice.raft.messages import InstallSnapshot, Message
from logservice.sim.rogue.scene import Victim
from logservice.snapshot import Snapshot

if TYPE_CHECKING:
    from logservice.sim.rogue.adversary import Rogue


def install(rogue: Rogue, victim: Victim, sender: ReplicaId, term: Term) -> Message | None:
    """None when no snapshot can be made at the moment."""
    chance = rogue.chance
    sources = [one for one in rogue.scene.victims() if one.shard == victim.shard]
    if chance.random() < 0.1:
        sources = rogue.scene.victims()
    try:
        real = chance.choice(sources).replica.applied_snapshot()
    except (LogServiceError, LookupError):
        return None
    forged = _forged(rogue, victim, real)
    return InstallSnapshot(to=victim.to, sender=sender, term=term, snapshot=forged)


def _forged(rogue: Rogue, victim: Victim, real: Snapshot) -> Snapshot:
    chance, raft = rogue.chance, victim.replica.raft
    ahead = Index(max(real.index, raft.last_index) + chance.choice((1, 2, 1000, 2**40)))
    changes: list[Snapshot] = [
        replace(real, index=ahead),
        replace(real, index=ahead, next_lsn=Lsn(rogue.number(real.next_lsn))),
        replace(real, index=Index(rogue.number(real.index))),
        replace(real, next_lsn=Lsn(rogue.number(real.next_lsn))),
        replace(real, term=Term(rogue.number(real.term))),
        replace(real, index=ahead, state=real.state[: len(real.state) // 2]),
        replace(real, index=ahead, state=b""),
        replace(real, index=ahead, state=chance.randbytes(64)),
        replace(real, index=ahead, membership=_foreign(rogue, victim, real.membership)),
        replace(real, membership=_foreign(rogue, victim, real.membership)),
        replace(real, index=ahead, membership=Membership()),
    ]
    return chance.choice(changes)


def _foreign(rogue: Rogue, victim: Victim, real: Membership) -> Membership:
    """The shard is mine alone, or yours no more, at a later epoch or an earlier one."""
    chance = rogue.chance
    epoch = Index(chance.choice((0, real.change_epoch, real.change_epoch + 1, 2**40)))
    me = ReplicaId(chance.choice((*rogue.scene.ids(victim.shard), 4242)))
    member = Member(me, rogue.store_id, rogue.own[0])
    mine = Membership(voters=(me,), change_epoch=epoch, members=(member,))
    without = replace(
        real,
        voters=tuple(one for one in real.voters if one != victim.to),
        removed=(*real.removed, victim.to),
        change_epoch=epoch,
        members=tuple(one for one in real.members if one.replica_id != victim.to),
    )
    return chance.choice((mine, without, replace(real, change_epoch=epoch)))
