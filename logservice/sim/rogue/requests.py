"""Forged requests and answers: what stores ask each other, by the wrong one or with other content.

A taken-over store sends requests, and it answers some that its honest process should answer.

Blocks here are never valid ones: a store that serves clients may append in their name.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import msgspec

from logservice import bounds, versions
from logservice.config_change import ChangeKind, ChangeStep, ConfigChange, encode_change
from logservice.hakeeper.answers import queries
from logservice.hakeeper.commands import proposals, replies, verbs
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import (
    DirectoryReport,
    Order,
    ReplicaReport,
    ShardSpec,
    StoreHeartbeat,
)
from logservice.hakeeper.commands.store_commands import (
    CommandResult,
    QueuedCommand,
    RemoveReplica,
    TransferLeader,
)
from logservice.ids import (
    HAKEEPER_SHARD,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    SessionId,
    ShardId,
    Term,
)
from logservice.membership import Member, Membership
from logservice.nodehost.agent import bootstrap, hakeeper_client
from logservice.nodehost.hearing.vouching import ANNOUNCE, VOUCH
from logservice.nodehost.integrity import repair
from logservice.nodehost.integrity.digests import (
    DIGEST,
    FINDING,
    DigestAnswer,
    DigestWanted,
    Finding,
    NoAnswer,
)
from logservice.nodehost.replica import quiesce
from logservice.nodehost.routing import forwarding
from logservice.nodehost.routing.forwarding import ForwardedAppend, ForwardedCommand
from logservice.owner import NONCE_BYTES, Author
from logservice.rsm import commands
from logservice.rsm.append_request import AppendRequest
from logservice.sim.interfaces import Store
from logservice.sim.rogue.adversary import Adversary
from logservice.sim.rogue.scene import Victim

_FAR = Index(2**40)
_DIGEST_BYTES = 16


def append(rogue: Adversary, victim: Victim) -> None:
    """Garbage for a block, and counts that lie."""
    chance = rogue.chance
    request = AppendRequest(
        session=SessionId(chance.choice((0, 0, victim.replica.applied))),
        sequence=chance.choice((0, 1, 2)),
        writer_epoch=chance.choice((0, 1, 2**40)),
        expected_lsn=Lsn(0),
        record_count=chance.choice((1, 3, 1000)),
        block=chance.randbytes(chance.choice((0, 7, 32, 200))),
        claim=_author(rogue).claim(chance.randbytes(NONCE_BYTES)),
    )
    body = forwarding.encode_append(ForwardedAppend(victim.shard, 1.0, request))
    rogue.ask(victim.store, forwarding.APPEND.method, body)


def command(rogue: Adversary, victim: Victim) -> None:
    """What only a leader takes, from a client that it knows."""
    chance = rogue.chance
    shard = victim.shard
    if shard == HAKEEPER_SHARD:
        data = proposals.encode(_administration(rogue, victim), rogue.world.cluster_version)
    else:
        applied, by, override = victim.replica.applied, _author(rogue), chance.random() < 0.5
        lsn, hold = Lsn(chance.randint(1, applied + 1)), f"hold-{chance.randint(1, 3)}"
        data = commands.encode(
            chance.choice(
                (
                    commands.AcquireWriter(by, override, 0, True, "rogue"),
                    commands.ReleaseWriter(by, override, chance.randint(0, 3)),
                    commands.Truncate(by, lsn, chance.randint(0, 3)),
                    commands.ReleaseHold(by, override, hold),
                    commands.SetHold(by, override, Lsn(applied + 1), hold),
                    commands.AllocateTimestamps(1000),
                )
            )
        )
    body = forwarding.encode_command(ForwardedCommand(shard, 1.0, data))
    rogue.ask(victim.store, forwarding.PROPOSE.method, body)


def _author(rogue: Adversary) -> Author:
    """An honest client's name; a store writes what it likes."""
    return Author("app", rogue.store_id)


def change(rogue: Adversary, victim: Victim) -> None:
    """A membership of its own choice."""
    chance, membership = rogue.chance, victim.replica.raft.membership
    mine = ChangeStep(ChangeKind.ADD_VOTER, ReplicaId(4242), rogue.store_id, rogue.own[0])
    away = ChangeStep(ChangeKind.REMOVE, chance.choice(membership.voters or (victim.to,)))
    steps = chance.choice(((mine,), (away,), (mine, away)))
    data = encode_change(ConfigChange(steps, membership.change_epoch))
    body = forwarding.encode_command(ForwardedCommand(victim.shard, 1.0, data))
    rogue.ask(victim.store, "shard.change", body)


def transfer(rogue: Adversary, victim: Victim) -> None:
    """Leadership to anybody."""
    voters = victim.replica.raft.membership.voters
    target = struct.pack("<Q", rogue.chance.choice(voters or (victim.to,)))
    body = forwarding.encode_command(ForwardedCommand(victim.shard, 1.0, target))
    rogue.ask(victim.store, "shard.transfer", body)


# --- HAKeeper -------------------------------------------------------------------------------------


def administration(rogue: Adversary, victim: Victim) -> None:
    """What a person decides."""
    data = proposals.encode(_administration(rogue, victim), rogue.world.cluster_version)
    rogue.ask(victim.store, hakeeper_client.PROPOSE.method, data)


def _administration(rogue: Adversary, victim: Victim) -> proposals.Proposal:
    chance, raft = rogue.chance, victim.replica.raft
    only_me = _only_me(rogue, victim)
    to = chance.choice(raft.membership.voters or (victim.to,))
    newer = _verbs(rogue, victim) if rogue.world.cluster_version > versions.FIRST else ()
    return chance.choice(
        (
            *newer,
            proposals.ChangeAccess("rogue", "cluster", ("admin",), ()),
            proposals.CreateShard(victim.shard, "mine", 1),
            proposals.CreateShard(ShardId(0), "", 3),
            proposals.SetPhase(Phase.BOOTSTRAP_FAILED),
            proposals.Tick(Term(raft.term)),
            proposals.ScheduleCommands(
                Term(raft.term), (Order(victim.store.store_id, TransferLeader(victim.shard, to)),)
            ),
            proposals.InitialCluster("sim", only_me.encode(), (ShardSpec("mine", 1),), 1, 1),
        )
    )


def _verbs(rogue: Adversary, victim: Victim) -> tuple[proposals.Proposal, ...]:
    """What a person decides from cluster version 2 on."""
    shard, store = victim.shard, victim.store.store_id
    return (
        proposals.DeleteShard(shard, f"log-{shard}", force=True),
        proposals.ChangeShard(shard, "mine", 1),
        proposals.RaiseVersion(versions.NEWEST + 1),
        proposals.SendOrder("rogue", "stop", b"", "r"),
        verbs.ForgetStore(store, lost=True, force=True),
        verbs.SetStoreMode(store, verbs.StoreMode.DRAINING, force=True),
        verbs.DrainDirectory(store, victim.store.incarnation, force=True),
        verbs.WishReplica(verbs.Errand.REMOVE, shard, store, "", force=True),
        verbs.SetLeader(shard, 100, rogue.store_id),
        verbs.ChangeSettings(bounds.HAKEEPER_STORE_TIMEOUT_TICKS_MAX, force=True),
        verbs.Rebalance(replicas=True, leaders=True),
    )


def heartbeat_of_another(rogue: Adversary, victim: Victim) -> None:
    """A living store is said to be another process, at the adversary's address."""
    chance = rogue.chance
    store = victim.store
    beat = StoreHeartbeat(
        store.store_id,
        "host-rogue",
        "memory:666",
        "rogue:client",
        (DirectoryReport(chance.choice((store.incarnation, rogue.own[0]))),),
        chance.getrandbits(62),
        _sequence(rogue),
    )
    acked = proposals.AckCommands(
        store.store_id, tuple(CommandResult(number) for number in range(1, 200))
    )
    methods = (hakeeper_client.HEARTBEAT.method, hakeeper_client.PROPOSE.method)
    data = proposals.encode(chance.choice((beat, beat, acked)))
    rogue.ask(_some_store(rogue, victim), chance.choice(methods), data)


def own_heartbeat(rogue: Adversary, victim: Victim) -> None:
    """Under its own name, about replicas that are not its own, and about memberships that never
    were.
    """
    chance = rogue.chance
    home = rogue.scene.home
    if home is None:
        joining(rogue, victim)
        return
    if home.transport is None:
        return
    identity = home.transport.identity
    incarnation = chance.choice(identity.incarnations)
    membership = chance.choice((_only_me(rogue, victim), victim.replica.raft.membership))
    replica = chance.choice((victim.to, *rogue.scene.ids(victim.shard), ReplicaId(4242)))
    report = ReplicaReport(
        victim.shard,
        replica,
        incarnation,
        membership.change_epoch,
        membership.encode(),
        leads=chance.random() < 0.7,
        term=rogue.number(victim.replica.raft.term) % 2**62,
        leader=chance.choice((replica, victim.to)),
        halted=chance.choice(("", "", "broken")),
    )
    beat = StoreHeartbeat(
        home.store_id,
        f"host-{home.number}",
        home.address,
        f"{home.store_id}:client",
        tuple(map(DirectoryReport, identity.incarnations)),
        identity.boot_id,
        _sequence(rogue),
        replicas=(report,),
        stored=((victim.shard, victim.to),),
    )
    data = proposals.encode(beat)
    rogue.ask(_some_store(rogue, victim), hakeeper_client.HEARTBEAT.method, data, identity)


def joining(rogue: Adversary, victim: Victim) -> None:
    """Join under the address or the data directory of somebody who is enrolled."""
    chance = rogue.chance
    store = victim.store
    mine, theirs = rogue.own[0], store.incarnation
    incarnation = Incarnation(chance.choice((mine, theirs)))
    identity = replace(rogue.identity, incarnations=(incarnation,))
    home = rogue.scene.home
    if home is not None and home.transport is not None:
        # What it says of its own directories would harm nobody but itself.
        mine_all = home.transport.identity.incarnations
        identity = replace(identity, incarnations=(*mine_all, theirs))
    address = chance.choice(("memory:666", store.address))
    if incarnation == mine:
        address = store.address
    beat = StoreHeartbeat(
        rogue.store_id,
        "host-rogue",
        address if home is None else home.address,
        "rogue:client",
        tuple(map(DirectoryReport, identity.incarnations)),
        rogue.boot_id,
        _sequence(rogue),
    )
    data = proposals.encode(beat)
    rogue.ask(_some_store(rogue, victim), hakeeper_client.HEARTBEAT.method, data, identity)


# --- the rest -------------------------------------------------------------------------------------


def finding(rogue: Adversary, victim: Victim) -> None:
    """You differ from everybody."""
    rogue.spawn(_finding(rogue, victim))


async def _finding(rogue: Adversary, victim: Victim) -> None:
    """With the victim's own digest, which it has to read for it."""
    chance, replica = rogue.chance, victim.replica
    asker = rogue.sender(victim)
    through = replica.applied
    low = Index(max(replica.reader.first_index(), through - chance.randint(0, 50)))
    high = Index(min(through + 1, low + chance.randint(1, 50)))
    if chance.random() < 0.2:
        low, high = Index(0), through
    if high <= low:
        return
    ask = DigestWanted(victim.shard, victim.to, asker, low, high)
    answer = await rogue.answer_of(victim.store, DIGEST.method, DIGEST.encode(ask))
    try:
        true = DIGEST.decode_answer(answer, ask).digest if answer else b""
    except NoAnswer:
        true = b""  # it has applied more meanwhile
    other = chance.randbytes(len(true) or _DIGEST_BYTES)
    members = [one.replica_id for one in replica.raft.membership.members]
    some = chance.sample(members, chance.randint(0, len(members)))
    digests = {int(one): other for one in some} | {int(victim.to): true or other}
    if chance.random() < 0.3:
        digests |= {int(one): chance.randbytes(len(other)) for one in some if one != victim.to}
    found = Finding(
        victim.shard, victim.to, asker, low, high, chance.random() < 0.7, sorted(digests.items())
    )
    await rogue.answer_of(victim.store, FINDING.method, FINDING.encode(found))


def vouching(rogue: Adversary, victim: Victim) -> None:
    """Who stands behind me; and: the leader, which is me, hands over to somebody."""
    chance, raft = rogue.chance, victim.replica.raft
    who = chance.choice((*raft.membership.voters, 4242))
    asked = [victim.shard, victim.to, rogue.sender(victim), rogue.number(raft.term), who]
    body = b"\x01" + msgspec.msgpack.encode(asked)
    method = chance.choice((VOUCH.method, ANNOUNCE.method))
    rogue.ask(victim.store, method, body)


def beat(rogue: Adversary, victim: Victim) -> None:
    """Something else sleeps."""
    body = rogue.chance.randbytes(rogue.chance.choice((0, 16, 16, 17)))
    rogue.ask(victim.store, quiesce.BEAT.method, body)


def question(rogue: Adversary, victim: Victim) -> None:
    """What only reads, and what is no request at all."""
    chance = rogue.chance
    fetch = msgspec.msgpack.encode([victim.shard, chance.choice((victim.to, 4242)), 1])
    cluster = queries.encode_query(queries.GetCluster())
    access = queries.encode_query(queries.GetAccess())
    method, body = chance.choice(
        (
            (repair.FETCH.method, fetch),
            (hakeeper_client.LOOKUP.method, cluster),
            (hakeeper_client.LOOKUP.method, access),
            (bootstrap.PROBE.method, b""),
            ("shard.nothing", b""),
            (chance.choice(_METHODS), chance.randbytes(chance.choice((0, 1, 8, 40, 300)))),
        )
    )
    rogue.ask(victim.store, method, body)


_METHODS = (
    forwarding.APPEND.method,
    forwarding.PROPOSE.method,
    "shard.change",
    "shard.transfer",
    hakeeper_client.PROPOSE.method,
    hakeeper_client.LOOKUP.method,
    hakeeper_client.HEARTBEAT.method,
    bootstrap.PROBE.method,
    repair.FETCH.method,
    DIGEST.method,
    FINDING.method,
    quiesce.BEAT.method,
)


def nothing(rogue: Adversary, victim: Victim) -> None:
    """Only wait to be asked."""


def _only_me(rogue: Adversary, victim: Victim) -> Membership:
    me = ReplicaId(rogue.chance.choice((*rogue.scene.ids(victim.shard), 4242)))
    home = rogue.scene.home
    incarnation = home.incarnation if home is not None else rogue.own[0]
    member = Member(me, rogue.store_id, incarnation)
    return Membership(voters=(me,), change_epoch=_FAR, members=(member,))


def _some_store(rogue: Adversary, victim: Victim) -> Store:
    """One that runs HAKeeper, mostly: others do not pass a question on."""
    running = [one for one in rogue.victims() if one.shard == HAKEEPER_SHARD]
    keepers = [one.store for one in running if one.replica.ready_to_lead]
    if not keepers or rogue.chance.random() < 0.2:
        keepers = [one.store for one in running]
    return rogue.chance.choice(keepers or [victim.store])


def _sequence(rogue: Adversary) -> int:
    rogue.sequence += 1
    return rogue.sequence


# --- answers --------------------------------------------------------------------------------------


def forged_answer(rogue: Adversary, method: str, body: bytes) -> bytes | None:
    """None: the honest process answers."""
    if method == hakeeper_client.HEARTBEAT.method and not rogue.scene.speaks_for_hakeeper:
        return _heartbeat_answer(rogue, body)
    if method == hakeeper_client.LOOKUP.method and not rogue.scene.speaks_for_hakeeper:
        return rogue.chance.randbytes(20)
    if method == VOUCH.method:
        return rogue.chance.choice((b"\x00", b"\x01", b""))
    if method == DIGEST.method:
        return _digest(rogue, body)
    return None


def _heartbeat_answer(rogue: Adversary, body: bytes) -> bytes | None:
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
        Phase.RUNNING,
        2**40,
        commands=orders,
        directory=tuple(
            replies.DirectoryEntry(one.store_id, "memory:666", "rogue:client")
            for one in rogue.scene.honest
        ),
        hakeeper=alone.encode(),
    )
    return msgspec.msgpack.encode([0, 0, 0, replies.encode(reply), False])


def _digest(rogue: Adversary, body: bytes) -> bytes | None:
    """Something else lies on my disk."""
    ask = DIGEST.decode(body, rogue.store_id)
    if not ask.low:
        return None
    other = rogue.chance.randbytes(16)
    return DIGEST.encode_answer(DigestAnswer(1, ask.high, other))
