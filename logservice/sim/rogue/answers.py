"""Forged answers: a taken-over store says what it likes to whoever asks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from logservice.hakeeper import proposals, replies
from logservice.hakeeper.phase import Phase
from logservice.hakeeper.store_commands import QueuedCommand, RemoveReplica
from logservice.ids import Index, ReplicaId, Term
from logservice.membership import Member, Membership
from logservice.nodehost.agent import hakeeper_client
from logservice.nodehost.hearing import vouching
from logservice.nodehost.integrity import comparison_wire

if TYPE_CHECKING:
    from logservice.sim.rogue.adversary import Rogue


def forged_answer(rogue: Rogue, method: str, body: bytes) -> bytes | None:
    """None: the honest process answers."""
    if method == hakeeper_client.HEARTBEAT and not rogue.scene.speaks_for_hakeeper:
        return _heartbeat_answer(rogue, body)
    if method == hakeeper_client.LOOKUP and not rogue.scene.speaks_for_hakeeper:
        return rogue.chance.randbytes(20)
    if method == vouching.VOUCH:
        return rogue.chance.choice((b"\x00", b"\x01", b""))
    if method == comparison_wire.DIGEST:
        return _digest(rogue, body)
    return None


def _heartbeat_answer(rogue: Rogue, body: bytes) -> bytes | None:
    """Orders for whoever sends a heartbeat: throw your replicas away; HAKeeper is me alone."""
    chance = rogue.chance
    try:
        beat = proposals.decode(body)
    except proposals.ProposalCorrupt:
        return None
    if not isinstance(beat, proposals.StoreHeartbeat):
        return None
    orders = tuple(
        QueuedCommand(chance.getrandbits(60), 0, Term(1), RemoveReplica(one.shard, one.to))
        for one in rogue.scene.victims_of(beat.store)
    )
    me = Member(ReplicaId(4242), rogue.store_id, rogue.own[0])
    alone = Membership(voters=(me.replica_id,), change_epoch=Index(2**40), members=(me,))
    reply = replies.HeartbeatReply(
        Phase.RUNNING, 2**40, commands=orders,
        directory=tuple(
            replies.DirectoryEntry(one.store_id, "memory:666", "rogue:client")
            for one in rogue.scene.honest
        ),
        hakeeper=alone.encode(),
    )  # fmt: skip
    return msgspec.msgpack.encode([0, 0, 0, replies.encode(reply), False])


def _digest(rogue: Rogue, body: bytes) -> bytes | None:
    """Something else lies on my disk."""
    ask = comparison_wire.decode_ask(body)
    if not ask.low:
        return None
    other = rogue.chance.randbytes(16)
    return comparison_wire.encode(comparison_wire.Answer(1, ask.high, other))
