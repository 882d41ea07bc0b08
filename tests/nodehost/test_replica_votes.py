"""A replica's messages about terms and votes leave only when the disk has both."""

from __future__ import annotations

from pathlib import Path

import pytest

from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.replica.replica import Replica
from logservice.raft.messages import Message, RequestVote, VoteResponse
from tests.nodehost.cluster import SHARD, Cluster, request


async def test_no_message_leaves_before_the_term_and_the_vote_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-REPLICA-1, through an election, an append and an election that takes the leader over."""
    said: list[Message] = []
    early: list[Message] = []
    send = NodeHost.send

    def watched(host: NodeHost, replica: Replica, message: Message) -> None:
        said.append(message)
        durable = replica.log.hard_state
        if (durable.term, durable.vote) != (replica.raft.term, replica.raft.vote):
            early.append(message)
        send(host, replica, message)

    monkeypatch.setattr(NodeHost, "send", watched)
    cluster = Cluster(tmp_path)
    await cluster.up()
    leader = await cluster.leader()
    await cluster.host(leader).append(SHARD, request(), 30.0)
    target = cluster.host(leader % 3 + 1).replicas.running[SHARD].replica_id
    await cluster.host(leader).router.transfer_leadership(SHARD, target, 30.0)
    await cluster.down()
    assert {RequestVote, VoteResponse} <= {type(message) for message in said}
    assert not early
