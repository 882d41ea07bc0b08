"""What an event says is said for people: no lists, no bytes, no names of classes."""

from __future__ import annotations

import logging

import pytest

from logservice.config_change import ChangeKind
from logservice.events import Event, emit
from logservice.hakeeper.commands.store_commands import (
    AnyCommand,
    ChangeMembership,
    RemoveReplica,
    ServiceOrder,
    StartReplica,
    Step,
    TransferLeader,
    described,
)
from logservice.ids import Incarnation, Index, ReplicaId, ShardId

logger = logging.getLogger("logservice.test")
SHARD, REPLICA = ShardId(7), ReplicaId(1024)
COMMANDS: list[tuple[AnyCommand, str]] = [
    (
        StartReplica(SHARD, REPLICA, Incarnation(5), b"\x81\xa7", join=True, fresh=True),
        "start replica 1024 of shard 7, which joins",
    ),
    (RemoveReplica(SHARD, REPLICA), "remove replica 1024 of shard 7"),
    (
        ChangeMembership(
            SHARD,
            Index(9),
            (Step(ChangeKind.ADD_VOTER, REPLICA, "s4"), Step(ChangeKind.REMOVE, ReplicaId(3))),
        ),
        "change the membership of shard 7: add voter 1024 on s4, remove 3",
    ),
    (TransferLeader(SHARD, REPLICA), "hand the leadership of shard 7 to replica 1024"),
    (ServiceOrder("tn", b"\x00"), "an order for a service, tn"),
]


@pytest.mark.parametrize(("command", "words"), COMMANDS)
def test_commands(command: AnyCommand, words: str) -> None:
    assert described(command) == words


def test_several_things_are_listed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        emit(logger, Event.MEMBERSHIP_CHANGED, shard=7, epoch=3, voters=(1, 2, 3), learners=())
    (record,) = caplog.records
    assert record.getMessage() == "shard 7: membership 3: voters 1, 2, 3, learners none"
    # Programs get them as they are.
    assert vars(record)["event_fields"]["voters"] == (1, 2, 3)
