"""INV-HK-BELIEF: what one store says of a shard, and what it cannot bring about."""

from __future__ import annotations

import pytest

from logservice.hakeeper.commands import proposals
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.state import Repair
from logservice.hakeeper.stores.health import leader_report
from logservice.ids import Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.membership import Member, Membership
from tests.hakeeper.model import Model

SHARD = ShardId(1)


def forged(store: str, incarnation: Incarnation, replica: int, shard: ShardId = SHARD) -> bytes:
    """A membership of the far future whose only member is the lying store."""
    me = Member(ReplicaId(replica), StoreId(store), incarnation)
    alone = initial_membership([me])
    return Membership(alone.voters, change_epoch=Index(10**9), members=alone.members).encode()


def lie(model: Model, name: str, replica: int, shard: ShardId = SHARD) -> None:
    """Send a heartbeat in the store's own name, with a report that only malice explains."""
    known = model.state.stores[StoreId(name)]
    incarnation = known.directories[0].incarnation
    report = proposals.ReplicaReport(
        shard,
        ReplicaId(replica),
        incarnation,
        Index(10**9),
        forged(name, incarnation, replica),
        leads=True,
        term=2**60,
        leader=ReplicaId(replica),
        committed_index=Index(2**60),
        match=tuple((ReplicaId(one), Index(2**60)) for one in range(1, 9)),
    )
    beat = proposals.StoreHeartbeat(
        StoreId(name),
        "",
        known.peer_address,
        known.client_address,
        known.directories,
        known.boot_id,
        known.sequence + 1,
        known.sequence,
        replicas=(report,),
    )
    model.propose(beat)
    model.stores[name].sequence = known.sequence


def snapshot(model: Model, shard: ShardId) -> tuple[object, ...]:
    known = model.state.shards[shard]
    return known.membership, known.leader_term, tuple(known.started), known.disagreement


@pytest.mark.parametrize("shard", [ShardId(0), SHARD])
def test_a_store_without_a_replica_moves_nothing_of_a_shard(shard: ShardId) -> None:
    """Such a store once named itself the only member, and HAKeeper had the data of the others
    removed for ever.
    """
    model = Model(stores=4)
    model.start(shards=1)
    outsider = next(
        name
        for name in ("s1", "s2", "s3", "s4")
        if all(one.store_id != name for one in model.state.shards[shard].members.members)
    )
    before = snapshot(model, shard)
    for replica in (*model.state.shards[shard].members.voters, 999):
        lie(model, outsider, replica, shard)
    assert snapshot(model, shard) == before
    model.run(200)
    assert model.healthy()
    assert not [one for one in model.state.operators.values() if one.kind is Repair.KILL]


def test_one_members_word_moves_no_membership() -> None:
    model = Model(stores=3)
    model.start(shards=1)
    members = model.state.shards[SHARD].members
    liar = members.members[0]
    for _ in range(5):
        lie(model, liar.store_id, liar.replica_id)
        model.run(10)
    assert model.state.shards[SHARD].members.voters == members.voters
    assert model.state.shards[SHARD].members.change_epoch == members.change_epoch
    assert not model.state.operators


def test_a_claim_to_lead_in_a_high_term_does_not_hide_the_leader() -> None:
    model = Model(stores=3)
    model.start(shards=1)
    shard = model.state.shards[SHARD]
    found = leader_report(model.state, shard)
    assert found is not None
    liar = next(one for one in shard.members.members if one.replica_id != found[1].replica)
    lie(model, liar.store_id, liar.replica_id)
    after = leader_report(model.state, shard)
    assert after is not None
    assert after[1].replica == found[1].replica
