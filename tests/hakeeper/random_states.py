"""Random states of HAKeeper. Most of them cannot be reached, but what may never happen may not
happen in them either.

`STATES` is how many of them each test of a rule looks at. A campaign looks at more:
`make random-states RANDOM_STATES=20000`.
"""

from __future__ import annotations

import os
import random
from typing import Final

import msgspec

from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.policy import LearnersIn, Policy, ZoneRule
from logservice.hakeeper.commands.proposals import DirectoryReport, ReplicaReport
from logservice.hakeeper.commands.verbs import StoreMode
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.state import (
    BRINGS_VOTER,
    Operator,
    Repair,
    ShardState,
    State,
    StoreState,
)
from logservice.ids import (
    HAKEEPER_SHARD,
    NO_REPLICA,
    Incarnation,
    Index,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.membership import Member, Membership

STATES: Final = int(os.environ.get("LOGSERVICE_RANDOM_STATES", "2000"))
TIMEOUT = 100
NOW = 10_000


OF_THE_FIRST = (Repair.REPLACE, Repair.ADD, Repair.REMOVE, Repair.START, Repair.KILL)
"""What operators were for at cluster version 1."""


def random_state(dice: random.Random, version: int = 1) -> State:
    """A state with live and expired stores, shards in every shape, reports that lie, and operators
    at any step. From cluster version 2 on policies want learners, and some learners stand.
    """
    state = State(
        phase=dice.choice([Phase.RUNNING] * 5 + [Phase.COMMANDS_RECEIVED, Phase.BOOTSTRAPPING]),
        phase_tick=NOW - dice.choice([5, 500, 5000]),
        tick=NOW,
        term=Term(dice.randrange(1, 5)),
        cluster_id="c",
        store_timeout_ticks=TIMEOUT,
        dirty=True,
        cluster_version=version,
    )
    hosts = dice.choice([0, 0, 1, 2, 3])
    for number in range(dice.randrange(1, 8)):
        store = _store(dice, number, hosts)
        state.stores[store.store] = store
    for number in range(dice.randrange(1, 5)):
        shard = _shard(dice, state, ShardId(number))
        state.shards[shard.shard] = shard
    for store in state.stores.values():
        _reports(dice, state, store)
    for _ in range(dice.randrange(3)):
        _operator(dice, state)
    if version > 1:
        _wish_learners(dice, state)
        _make_witnesses(dice, state)
        for operator in state.operators.values():
            operator.heard = dice.random() < 0.5
            operator.driven_tick = NOW - dice.randrange(9)
            operator.said = dice.choice([(), ("said",)])
    return state


def _make_witnesses(dice: random.Random, state: State) -> None:
    """Some logs have witnesses, as many as they should or not, and operators bring further ones."""
    for shard in state.shards.values():
        if shard.shard == HAKEEPER_SHARD or not shard.membership or dice.random() < 0.6:
            continue
        shard.witnesses = dice.choice([1, 1, 2])
        members = shard.members
        most = min(shard.witnesses, (len(members.voters) - 1) // 2)
        witnesses = dice.sample(members.voters, dice.randrange(most + 1))
        if members.joint or not witnesses:
            continue
        old, shard.membership = (
            shard.membership,
            msgspec.structs.replace(members, witnesses=tuple(sorted(witnesses))).encode(),
        )
        for store in state.stores.values():
            report = store.replicas.get(shard.shard)
            if report is not None and report.membership == old:
                store.replicas[shard.shard] = msgspec.structs.replace(
                    report, membership=shard.membership
                )
    for operator in state.operators.values():
        members = state.shards[operator.shard].members
        operator.witness = operator.kind in BRINGS_VOTER and operator.old in members.witnesses


def _wish_learners(dice: random.Random, state: State) -> None:
    for store in state.stores.values():
        store.labels = {"zone": dice.choice("ab")} if dice.random() < 0.8 else {}
        store.mode = dice.choice([StoreMode.OPEN] * 6 + [StoreMode.READ_ONLY, StoreMode.DRAINING])
    for shard in state.shards.values():
        if dice.random() < 0.7:
            shard.wanted = len(shard.members.voters)
        wanted = dice.sample(["", "a", "b", "c"], dice.choice([0, 1, 1, 2]))
        learners = tuple(LearnersIn(zone, dice.choice([1, 1, 2])) for zone in sorted(wanted))
        if shard.shard != HAKEEPER_SHARD:
            shard.policy = Policy(dice.choice(list(ZoneRule)), learners=learners)


def _store(dice: random.Random, number: int, hosts: int) -> StoreState:
    there = dice.choice([[1], [1], [1], [2], [1, 3], [3, 1], [2, 3]])
    heard = NOW - dice.choice([0, 5, 20, 50, 99, 100, 101, 500])
    first = dice.choice([0, heard])
    return StoreState(
        StoreId(f"s{number}"),
        f"h{number % hosts}" if hosts else "",
        f"s{number}:1",
        f"s{number}:2",
        tuple(
            DirectoryReport(Incarnation(one), free_bytes=dice.choice([0, 50, 100]))
            if dice.random() < 0.9 or len(there) == 1
            else DirectoryReport(Incarnation(one), failed="broken")
            for one in there
        ),
        number + 1,
        5,
        first_tick=first,
        last_tick=heard,
        live_since=dice.choice([first, first, heard]),
        directories_tick=dice.choice([0, heard]),
        expired=dice.random() < 0.2,
    )


def _member(dice: random.Random, replica: int, store: StoreId) -> Member:
    return Member(ReplicaId(replica), store, Incarnation(dice.choice([1, 1, 1, 2])))


def _shard(dice: random.Random, state: State, shard_id: ShardId) -> ShardState:
    shard = ShardState(shard_id, f"n{shard_id}", dice.choice([1, 3, 3, 3, 5]), 0)
    if dice.random() < 0.1:
        return shard
    names = [*sorted(state.stores), StoreId("never-seen")]
    dice.shuffle(names)
    first = state.next_replica_id
    members = []
    for name in names[: dice.randrange(1, 6)]:
        members.append(_member(dice, state.next_replica_id, name))
        state.next_replica_id += 1
    ids = [member.replica_id for member in members]
    most = 2 if state.cluster_version == 1 else 4
    voters = tuple(ids[: max(1, len(ids) - dice.randrange(most))])
    learners = tuple(one for one in ids if one not in voters)
    outgoing: tuple[ReplicaId, ...] = ()
    if dice.random() < 0.15:
        outgoing, voters = voters, tuple(sorted({*voters[1:], *learners})) or voters
        learners = ()
    membership = Membership(
        voters=voters,
        outgoing=outgoing,
        learners=learners,
        removed=(ReplicaId(first - 1),) if dice.random() < 0.3 else (),
        auto_leave=bool(outgoing),
        change_epoch=Index(dice.choice([1, 50])),
        members=tuple(members),
    )
    shard.initial = initial_membership(members[:1]).encode()
    shard.membership = membership.encode()
    shard.started = [one for one in ids if dice.random() < 0.7]
    shard.lost = [one for one in ids if dice.random() < 0.1]
    shard.abandoned = {one: 50 for one in learners if dice.random() < 0.3}
    return shard


def _reports(dice: random.Random, state: State, store: StoreState) -> None:
    for shard in state.sorted_shards():
        members = shard.members
        mine = [member for member in members.members if member.store_id == store.store]
        if mine and dice.random() < 0.75:
            replica = mine[0].replica_id
        elif dice.random() < 0.3:
            replica = ReplicaId(dice.randrange(900, 1100))
        else:
            continue
        if dice.random() < 0.1:
            store.stored = (*store.stored, (shard.shard, replica))
            continue
        leads = dice.random() < 0.5
        committed = 10_000
        store.replicas[shard.shard] = ReplicaReport(
            shard.shard,
            replica,
            dice.choice(store.directories).incarnation,
            Index(dice.choice([0, int(members.change_epoch), int(members.change_epoch), 99])),
            shard.membership,
            leads,
            dice.randrange(5),
            replica if leads else NO_REPLICA,
            committed_index=Index(committed),
            match=tuple(
                (one.replica_id, Index(dice.choice([committed, committed, committed - 50, 10])))
                for one in members.members
                if leads and dice.random() < 0.85
            ),
            recently_active=tuple(
                one.replica_id for one in members.members if dice.random() < 0.85
            ),
            halted="damaged" if dice.random() < 0.07 else "",
            repairing=dice.random() < 0.3,
        )


def _operator(dice: random.Random, state: State) -> None:
    shard = dice.choice(state.sorted_shards())
    members = shard.members
    if not members.members:
        return
    kind = dice.choice(OF_THE_FIRST if state.cluster_version == 1 else list(Repair))
    old = dice.choice(members.members)
    new = dice.choice([*members.members, _member(dice, state.next_replica_id, StoreId("s0"))])
    if kind in (Repair.START, Repair.KILL):
        new, leaving = old, NO_REPLICA
    else:
        brings = kind in (Repair.ADD, Repair.LEARN, Repair.LEAD)
        leaving = NO_REPLICA if brings else old.replica_id
    replica = leaving if kind is Repair.REMOVE else new.replica_id
    state.operators[state.next_operator_id] = Operator(
        state.next_operator_id,
        kind,
        shard.shard,
        replica,
        leaving,
        new.store_id,
        new.incarnation,
        NOW - dice.choice([0, 100, 5000]),
        failures=dice.choice([0, 0, 5]),
    )
    state.next_operator_id += 1
    state.next_replica_id += 1
