"""Bytes in and out: proposals, replies, queries, snapshots. No input makes the state machine raise,
and no two replicas come to differ."""

from __future__ import annotations

import random

import msgspec
import pytest
from logservice_wire.errors import InvalidArgument, Reason

from logservice import bounds
from logservice.entry import Entry, EntryKind
from logservice.envelope import BlockEnvelope, ProposalId, encode_blocks, encode_command
from logservice.hakeeper import state
from logservice.hakeeper.answers import queries
from logservice.hakeeper.answers.views import ClusterView, ShardView
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.store_commands import (
    CommandResult,
    QueuedCommand,
    RemoveReplica,
    ServiceOrder,
    StartReplica,
    TransferLeader,
)
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import (
    NO_SESSION,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.membership import Member
from logservice.outcome import Applied, Rejected
from logservice.snapshot import SnapshotCorrupt
from tests.hakeeper.model import Model
from tests.hakeeper.random_states import random_state
from tests.owners import CLAIM

BIG = 2**62
MEMBERSHIP = initial_membership([Member(ReplicaId(1), StoreId("s1"), Incarnation(1))]).encode()
REPORT = proposals.ReplicaReport(
    ShardId(0),
    ReplicaId(1),
    Incarnation(7),
    Index(1),
    MEMBERSHIP,
    True,
    3,
    ReplicaId(1),
    match=((ReplicaId(2), Index(5)),),
    recently_active=(ReplicaId(2),),
    halted="x",
)
PROPOSALS: list[proposals.Proposal] = [
    proposals.Tick(Term(1)),
    proposals.InitialCluster("c", MEMBERSHIP, (proposals.ShardSpec("a", 3),), 3, 100),
    proposals.StoreHeartbeat(
        StoreId("s1"),
        "h",
        "p",
        "c",
        (proposals.DirectoryReport(Incarnation(7), 1, 2, "why", "/d"),),
        5,
        1,
        0,
        {"b": "1", "a": "2"},
        (REPORT,),
        (ShardId(7),),
        ((ShardId(0), ReplicaId(9)),),
        (CommandResult(1, "BUSY", "x"),),
    ),
    proposals.ServiceHeartbeat("cn", "cn", "h:1", {"z": "1"}, (1, 2)),
    proposals.CreateShard(ShardId(0), "n", 3),
    proposals.SetPhase(Phase.RUNNING),
    proposals.ScheduleCommands(Term(1), (proposals.Order("cn", ServiceOrder("k", b"p")),)),
    proposals.AllocateIds("k", 5, "r"),
    proposals.AckCommands("s1", (CommandResult(1),)),
]

VERSION = proposals._VERSIONS[1]


class Machine:
    """A state machine and its log; `apply` takes raw command bytes."""

    def __init__(self) -> None:
        self.rsm = HAKeeperRsm()
        self.index = 0

    def entry(self, command: bytes, term: int = 1) -> Entry:
        self.index += 1
        payload = encode_command(ProposalId(9, self.index), command)
        return Entry(Term(term), Index(self.index), Lsn(1), 0, EntryKind.COMMAND, payload)

    def apply(self, command: bytes) -> Applied | Rejected:
        [(_, outcome)] = self.rsm.update(self.entry(command))
        return outcome


@pytest.mark.parametrize("proposal", PROPOSALS, ids=lambda one: type(one).__name__)
def test_every_proposal_round_trips(proposal: proposals.Proposal) -> None:
    data = proposals.encode(proposal)
    assert proposals.decode(data) == proposal
    assert proposals.encode(proposals.decode(data)) == data


def test_equal_proposals_give_equal_bytes() -> None:
    one = proposals.ServiceHeartbeat("s", "k", "a", {"a": "1", "b": "2"})
    two = proposals.ServiceHeartbeat("s", "k", "a", {"b": "2", "a": "1"})
    assert proposals.encode(one) == proposals.encode(two)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        VERSION,
        b"\x01" + proposals.encode(PROPOSALS[0])[1:],
        VERSION + b"\xc1",
        VERSION + b"\x91" * 100_000,
        proposals.encode(PROPOSALS[0]) + b"\x00",
        VERSION + msgspec.msgpack.encode(["nonsense", 1]),
        VERSION + msgspec.msgpack.encode(["tick", -1]),
        VERSION + msgspec.msgpack.encode(["tick", BIG + 1]),
        VERSION + msgspec.msgpack.encode(["tick", 1, 2]),
        VERSION + msgspec.msgpack.encode(["tick", "1"]),
        VERSION + msgspec.msgpack.encode(["ids", "k", 0]),
        VERSION + msgspec.msgpack.encode(["ids", "k", bounds.ALLOCATE_IDS_MAX + 1]),
        VERSION + msgspec.msgpack.encode(["ids", "k" * (bounds.NAME_BYTES_MAX + 1), 1]),
        VERSION + msgspec.msgpack.encode(["create", 0, "n", bounds.HAKEEPER_REPLICAS_MAX + 1]),
        VERSION + bytes(bounds.COMMAND_BYTES_MAX),
    ],
)
def test_malformed_proposals_are_rejected_and_change_nothing(data: bytes) -> None:
    machine = Machine()
    outcome = machine.apply(data)
    assert isinstance(outcome, Rejected)
    assert outcome.reason is Reason.INVALID_ARGUMENT
    machine.rsm.state.index = Index(0)
    assert machine.rsm.save_snapshot() == HAKeeperRsm().save_snapshot()


def test_entries_that_are_no_commands() -> None:
    machine = HAKeeperRsm()
    block = BlockEnvelope(ProposalId(1, 2), NO_SESSION, 0, 0, Lsn(0), 1, b"block", CLAIM)
    for kind in (EntryKind.NOOP, EntryKind.CONFIG):
        assert list(machine.update(Entry(Term(1), Index(1), Lsn(1), 0, kind, b"x"))) == []
    for payload in (b"", b"short"):
        for kind in (EntryKind.COMMAND, EntryKind.BLOCK):
            assert list(machine.update(Entry(Term(1), Index(2), Lsn(1), 0, kind, payload))) == []
    entry = Entry(Term(1), Index(3), Lsn(1), 1, EntryKind.BLOCK, encode_blocks([block]))
    [(proposal, outcome)] = machine.update(entry)
    assert proposal == ProposalId(1, 2)
    assert isinstance(outcome, Rejected)
    assert machine.state.index == 3


def test_unknown_questions_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        HAKeeperRsm().lookup("what?")


def _shaken(dice: random.Random, value: object) -> object:
    """A value of the same shape with something odd inside."""
    if isinstance(value, list):
        shaken = [_shaken(dice, item) if dice.random() < 0.4 else item for item in value]
        if shaken and dice.random() < 0.1:
            shaken.insert(dice.randrange(len(shaken)), dice.choice(shaken))
        return shaken
    if isinstance(value, dict):
        return {key: _shaken(dice, item) for key, item in value.items()}
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return dice.choice([0, 1, value + 1, BIG, BIG - 1, BIG + 1, 2**63, -1, 7])
    if isinstance(value, str):
        return dice.choice(["", "s1", "s2", value, "x" * 128, "x" * 129, "running"])
    if isinstance(value, bytes):
        return dice.choice([b"", MEMBERSHIP, value[:-1], bytes(10)])
    return value


def test_a_hundred_thousand_odd_bytes_later_two_replicas_are_still_equal() -> None:
    """Random and nearly right commands cause no exception and no divergence."""
    dice = random.Random(3)
    machine = Machine()
    machine.apply(proposals.encode(PROPOSALS[1]))
    twin = HAKeeperRsm()
    twin.recover_from_snapshot(machine.rsm.save_snapshot())
    plain = [msgspec.msgpack.decode(proposals.encode(one)[1:]) for one in PROPOSALS]
    applied = 0
    for number in range(12_000):
        if dice.random() < 0.1:
            command = dice.randbytes(dice.randrange(60))
        else:
            shaken = _shaken(dice, dice.choice(plain))
            try:
                command = VERSION + msgspec.msgpack.encode(shaken)
            except OverflowError:
                continue
        if dice.random() < 0.1:
            position = dice.randrange(len(command) + 1)
            command = command[:position] + dice.randbytes(1) + command[position + 1 :]
        entry = machine.entry(command, term=dice.choice([1, 1, 2]))
        outcomes = list(machine.rsm.update(entry))
        assert outcomes == list(twin.update(entry))
        applied += isinstance(outcomes[0][1], Applied)
        if number % 400 == 0:
            image = machine.rsm.save_snapshot()
            assert twin.save_snapshot() == image
            twin = HAKeeperRsm()
            twin.recover_from_snapshot(image)
            machine.rsm.lookup(queries.GetCluster())
    assert applied > 1000


def test_a_snapshot_restores_everything() -> None:
    for seed in range(300):
        original = random_state(random.Random(seed))
        image = state.save(original)
        restored = state.load(image)
        assert restored == original
        assert state.save(restored) == image
    model = Model(4)
    model.start(shards=3)
    model.kill("s1")
    model.run_until(lambda: bool(model.state.operators), 200)
    assert state.load(model.rsm.save_snapshot()) == model.state


def test_a_snapshot_does_not_depend_on_the_order_of_insertion() -> None:
    one, two = HAKeeperRsm(), HAKeeperRsm()
    for machine, keys in ((one, ("a", "b")), (two, ("b", "a"))):
        machine.state.id_counters = dict.fromkeys(keys, 1)
        machine.state.flags = dict.fromkeys(keys, 1)
    assert one.save_snapshot() == two.save_snapshot()


def test_a_damaged_snapshot_is_refused_and_the_state_is_kept() -> None:
    machine = Machine()
    machine.apply(proposals.encode(PROPOSALS[1]))
    image = machine.rsm.save_snapshot()
    for damaged in (b"\x01" + image[1:], image[:-1], image[:1], image + b"x", image[:1] + b"\xc1"):
        with pytest.raises(SnapshotCorrupt):
            machine.rsm.recover_from_snapshot(damaged)
        assert machine.rsm.save_snapshot() == image
    machine.rsm.recover_from_snapshot(b"")
    assert machine.rsm.save_snapshot() == HAKeeperRsm().save_snapshot()
    machine.rsm.close()


def test_replies_round_trip_with_every_kind_of_command() -> None:
    commands = (
        StartReplica(ShardId(1), ReplicaId(2), Incarnation(3), MEMBERSHIP, join=True, fresh=False),
        RemoveReplica(ShardId(1), ReplicaId(2)),
        TransferLeader(ShardId(1), ReplicaId(2)),
        ServiceOrder("k", b"p"),
    )
    reply = replies.HeartbeatReply(
        Phase.RUNNING,
        5,
        True,
        tuple(QueuedCommand(n, n, Term(1), command) for n, command in enumerate(commands)),
        (replies.DirectoryEntry(StoreId("s1"), "p", "c"),),
        MEMBERSHIP,
    )
    assert replies.decode(replies.encode(reply)) == reply
    for data in (b"", replies._VERSIONS[1], b"\x07abc", replies.encode(reply)[:-1]):
        with pytest.raises(replies.ReplyCorrupt):
            replies.decode(data)


def test_queries_and_answers_round_trip() -> None:
    model = Model(4)
    model.start(shards=2)
    model.kill("s1")
    model.run(150)
    asked: list[queries.Query] = [
        queries.GetCluster(),
        queries.GetShard(ShardId(1)),
        queries.GetShard(ShardId(99)),
        queries.GetPhase(),
    ]
    for query in asked:
        assert queries.decode_query(queries.encode_query(query)) == query
        answer = model.rsm.lookup(query)
        assert answer is None or isinstance(answer, ClusterView | ShardView | str)
        assert queries.decode_answer(query, queries.encode_answer(answer)) == answer
        for data in (b"", queries._VERSION, b"\x09x", queries._VERSION + b"\xc1"):
            with pytest.raises(queries.QueryCorrupt):
                queries.decode_answer(query, data)
            with pytest.raises(queries.QueryCorrupt):
                queries.decode_query(data)
