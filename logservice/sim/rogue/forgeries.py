"""Forgeries: one maker for each kind of message, with numbers true, nearly true, or absurd.

A forged snapshot is a real one with one thing changed.

Whether the adversary may send it is not asked here (`limits`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from logservice_wire.errors import LogServiceError
from msgspec import structs

from logservice.config_change import ChangeKind, ChangeStep, ConfigChange, encode_change
from logservice.entry import Entry, EntryKind
from logservice.envelope import BlockEnvelope, ProposalId, encode_blocks, encode_command
from logservice.ids import Index, Lsn, ReplicaId, SessionId, Term
from logservice.membership import Member, Membership
from logservice.owner import Author
from logservice.raft.log.storage import CompactedError, UnavailableError
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    Propose,
    Quiesce,
    ReadIndexRequest,
    ReadIndexResponse,
    RequestVote,
    SnapshotStatus,
    TimeoutNow,
    TransferLeader,
    Unreachable,
    VoteResponse,
)
from logservice.rsm import commands
from logservice.sim.rogue.adversary import Adversary
from logservice.sim.rogue.scene import Victim
from logservice.snapshot import Snapshot

Maker = Callable[[Adversary, Victim, ReplicaId, Term], Message]

_UNKNOWN = (CompactedError, UnavailableError, LookupError)

HUGE = (2**62 - 1, 2**62, 2**61, 2**63)


def term_for(rogue: Adversary, victim: Victim) -> Term:
    """One that may pass."""
    if rogue.chance.random() < 0.3:
        return Term(victim.replica.raft.term)
    return Term(rogue.number(victim.replica.raft.term))


def huge_term(rogue: Adversary, victim: Victim) -> Term:
    """One at the end of the numbers, or far away."""
    far = (*HUGE, victim.replica.raft.term + 1_000_000)
    return Term(rogue.chance.choice(far))


def vote(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """A request for a vote, often as if a transfer had been asked for."""
    chance, raft = rogue.chance, victim.replica.raft
    lies = chance.random() < 0.5
    return RequestVote(
        to=victim.to,
        sender=sender,
        term=term,
        last_index=Index(rogue.number(raft.last_index) if lies else raft.last_index),
        last_term=Term(min(term, rogue.number(raft.term)) if lies else min(term, raft.term)),
        pre=chance.random() < 0.3,
        transfer=chance.random() < 0.5,
    )


def vote_answer(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """A vote nobody asked for, or a refusal from another term."""
    chance = rogue.chance
    return VoteResponse(
        to=victim.to,
        sender=sender,
        term=term,
        reject=chance.random() < 0.6,
        pre=chance.random() < 0.4,
    )


def append_answer(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """An acknowledgement or a refusal, with hints."""
    chance, raft = rogue.chance, victim.replica.raft
    index = rogue.number(chance.choice((raft.commit, raft.last_index)))
    return AppendResponse(
        to=victim.to,
        sender=sender,
        term=term,
        index=Index(index),
        reject=chance.random() < 0.5,
        hint_index=Index(chance.randint(0, max(1, index))),
        hint_term=Term(rogue.number(raft.term)),
        room=chance.choice((0, 1, 2**40, 2**63 - 1)),
        closed=chance.random() < 0.3,
    )


def heartbeat_answer(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """With a context of nobody."""
    chance = rogue.chance
    return HeartbeatResponse(
        to=victim.to,
        sender=sender,
        term=term,
        context=chance.randbytes(chance.choice((0, 8, 16))),
        room=chance.choice((0, 1, 2**63 - 1)),
        closed=chance.random() < 0.3,
    )


def append(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """Entries after what the victim has, or in place of it, and a commit index."""
    chance, raft = rogue.chance, victim.replica.raft
    before = Index(max(0, raft.last_index - chance.choice((0, 0, 1, 3, raft.last_index))))
    commit = chance.choice((raft.commit, raft.last_index + 3, rogue.number(raft.commit)))
    entries = forged_entries(rogue, victim, before, term)
    return AppendEntries(
        to=victim.to,
        sender=sender,
        term=term,
        prev_index=before,
        prev_term=term_at(victim, before),
        entries=entries,
        commit=Index(commit),
    )


def heartbeat(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """A leader's, with a commit index of its choice."""
    raft = victim.replica.raft
    commit = rogue.chance.choice((0, raft.commit, raft.last_index, rogue.number(raft.commit)))
    return Heartbeat(to=victim.to, sender=sender, term=term, commit=Index(commit))


def quiesce(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """Quiesce."""
    raft = victim.replica.raft
    index = rogue.chance.choice((raft.last_index, rogue.number(raft.last_index)))
    return Quiesce(to=victim.to, sender=sender, term=term, index=Index(index))


def timeout_now(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """Campaign at once."""
    return TimeoutNow(to=victim.to, sender=sender, term=term)


def transfer(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """Hand over to me."""
    return TransferLeader(to=victim.to, sender=sender, term=term)


def propose(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """Entries past the leader's admission."""
    entries = forged_entries(rogue, victim, Index(0), Term(0))
    return Propose(to=victim.to, sender=sender, term=term, entries=entries)


def read_request(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """Many linearization points, with contexts of any size."""
    context = rogue.chance.randbytes(rogue.chance.choice((0, 1, 16, 4096)))
    return ReadIndexRequest(to=victim.to, sender=sender, term=term, context=context)


def read_answer(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """An old linearization point, for a read that waits there."""
    context = rogue.chance.choice(rogue.contexts) if rogue.contexts else rogue.chance.randbytes(16)
    index = Index(rogue.chance.choice((0, 1, victim.replica.applied)))
    return ReadIndexResponse(to=victim.to, sender=sender, term=term, context=context, index=index)


def local_report(rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term) -> Message:
    """What only a replica's own shell says."""
    if rogue.chance.random() < 0.5:
        return Unreachable(to=victim.to, sender=sender, term=term)
    return SnapshotStatus(
        to=victim.to, sender=sender, term=term, reject=rogue.chance.random() < 0.5
    )


ANY: tuple[Maker, ...] = (
    vote,
    vote_answer,
    append_answer,
    heartbeat_answer,
    append,
    heartbeat,
    quiesce,
    timeout_now,
    transfer,
    propose,
    read_request,
    read_answer,
    local_report,
)
"""Every kind, snapshots aside."""


def term_at(victim: Victim, index: Index) -> Term:
    """The term of an entry of the victim; a guess where it has none."""
    try:
        return victim.replica.reader.term(index)
    except _UNKNOWN:
        return Term(max(0, victim.replica.raft.term - 1))


def forged_entries(
    rogue: Adversary, victim: Victim, before: Index, term: Term
) -> tuple[Entry, ...]:
    """Some that fit into the log at their place, some that do not."""
    chance, replica = rogue.chance, victim.replica
    try:
        lsn = int(replica.reader.next_lsn(before))
    except _UNKNOWN:
        lsn = 1
    well = chance.random() < 0.5
    if chance.random() < 0.2 and not well:
        lsn = rogue.number(lsn)
    entries = []
    for number in range(chance.choice((0, 1, 1, 3))):
        index = Index(before + 1 + number)
        if chance.random() < 0.1 and not well:
            index = Index(rogue.number(index))
        kind = chance.choice(tuple(EntryKind))
        count, payload = _content(rogue, kind, victim)
        if well:
            kind, count, payload = _well_formed(rogue)
        own_term = term if well or chance.random() < 0.8 else Term(rogue.number(term))
        entries.append(Entry(own_term, index, Lsn(lsn), count, kind, payload))
        lsn += count
    return tuple(entries)


def _well_formed(rogue: Adversary) -> tuple[EntryKind, int, bytes]:
    """What a replica takes, whatever it means to it when it is applied."""
    chance = rogue.chance
    proposal = ProposalId(rogue.boot_id, chance.getrandbits(32))
    if chance.random() < 0.3:
        return EntryKind.COMMAND, 0, encode_command(proposal, chance.randbytes(8))
    block = chance.randbytes(16)
    claim = Author("app", rogue.store_id).claim()
    envelope = BlockEnvelope(proposal, SessionId(0), 0, 0, Lsn(0), 2, block, claim)
    return EntryKind.BLOCK, 2, encode_blocks([envelope])


def _content(rogue: Adversary, kind: EntryKind, victim: Victim) -> tuple[int, bytes]:
    """Record count and payload, well-formed or not."""
    chance = rogue.chance
    count = chance.choice((0, 1, 3, 1000, 2**32 - 1))
    if chance.random() < 0.4:
        return count, chance.randbytes(chance.choice((0, 1, 7, 60, 300)))
    proposal = ProposalId(rogue.boot_id, chance.getrandbits(32))
    by = Author("app", rogue.store_id)
    if kind is EntryKind.BLOCK:
        block = chance.randbytes(chance.choice((0, 7, 64)))
        inside = chance.choice((count, 1, 0))
        envelope = BlockEnvelope(proposal, SessionId(0), 0, 0, Lsn(0), inside, block, by.claim())
        return count, encode_blocks([envelope])
    if kind is EntryKind.COMMAND:
        takeover = commands.AcquireWriter(by, True, 0, True, "rogue")
        return 0, encode_command(proposal, commands.encode(takeover))
    if kind is EntryKind.CONFIG:
        membership = victim.replica.raft.membership
        step = ChangeStep(ChangeKind.REMOVE, chance.choice(membership.voters or (victim.to,)))
        return 0, encode_change(ConfigChange((step,), membership.change_epoch))
    return 0, b""


# --- snapshots ------------------------------------------------------------------------------------


def install_snapshot(
    rogue: Adversary, victim: Victim, sender: ReplicaId, term: Term
) -> Message | None:
    """A real snapshot of the shard, or of another, with one change. None when no replica can make
    one at the moment.
    """
    chance = rogue.chance
    sources = [one for one in rogue.scene.victims() if one.shard == victim.shard]
    if chance.random() < 0.1:
        sources = rogue.scene.victims()
    try:
        real = chance.choice(sources).replica.applied_snapshot()
    except (LogServiceError, LookupError):
        return None
    forged = _changed(rogue, victim, real)
    return InstallSnapshot(to=victim.to, sender=sender, term=term, snapshot=forged)


def _changed(rogue: Adversary, victim: Victim, real: Snapshot) -> Snapshot:
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
        replace(real, index=ahead, membership=_foreign_membership(rogue, victim, real.membership)),
        replace(real, membership=_foreign_membership(rogue, victim, real.membership)),
        replace(real, index=ahead, membership=Membership()),
    ]
    return chance.choice(changes)


def _foreign_membership(rogue: Adversary, victim: Victim, real: Membership) -> Membership:
    """The shard is mine alone, or yours no more, at a later epoch or an earlier one."""
    chance = rogue.chance
    epoch = Index(chance.choice((0, real.change_epoch, real.change_epoch + 1, 2**40)))
    me = ReplicaId(chance.choice((*rogue.scene.ids(victim.shard), 4242)))
    member = Member(me, rogue.store_id, rogue.own[0])
    mine = Membership(voters=(me,), change_epoch=epoch, members=(member,))
    without = structs.replace(
        real,
        voters=tuple(one for one in real.voters if one != victim.to),
        removed=(*real.removed, victim.to),
        change_epoch=epoch,
        members=tuple(one for one in real.members if one.replica_id != victim.to),
    )
    return chance.choice((mine, without, structs.replace(real, change_epoch=epoch)))
