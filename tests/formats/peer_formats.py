"""Samples of what HAKeeper replicates, and of what stores send to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logservice_wire.block import encode_block
from logservice_wire.errors import InvalidArgument, LogServiceError, NotLeader

from logservice.config_change import ChangeKind
from logservice.hakeeper import state
from logservice.hakeeper.answers import queries
from logservice.hakeeper.answers.queries import QueryCorrupt
from logservice.hakeeper.answers.views import (
    AccessView,
    ClusterView,
    DirectoryView,
    OperatorView,
    ReplicaView,
    ShardView,
    StoreView,
)
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import (
    AccessGrant,
    DirectoryReport,
    Order,
    ProposalCorrupt,
    ReplicaReport,
    ShardSpec,
)
from logservice.hakeeper.commands.replies import DirectoryEntry, HeartbeatReply, ReplyCorrupt
from logservice.hakeeper.commands.store_commands import (
    ChangeMembership,
    CommandResult,
    QueuedCommand,
    RemoveReplica,
    ServiceOrder,
    StartReplica,
    Step,
    TransferLeader,
)
from logservice.hakeeper.state import (
    Behind,
    Operator,
    Repair,
    ServiceState,
    ShardState,
    State,
    StoreState,
)
from logservice.ids import (
    ClusterId,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    SessionId,
    ShardId,
    StoreId,
    Term,
)
from logservice.nodehost import quiesce
from logservice.nodehost.agent import access_book, address_book, bootstrap
from logservice.nodehost.hearing import vouching
from logservice.nodehost.integrity import digests, repair
from logservice.nodehost.peers.applied import APPLIED_ARRAY, APPLIED_FIXED
from logservice.nodehost.routing import forwarding
from logservice.nodehost.routing.forwarding import ForwardedAppend, ForwardedCommand
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.nodehost.transport.wire import chunks, codec, control, frame
from logservice.nodehost.transport.wire.codec import CodecError
from logservice.nodehost.transport.wire.frame import FrameError, FrameKind, FrameReader
from logservice.outcome import Applied
from logservice.raft import messages
from logservice.raft.messages import Message
from logservice.rsm.append_request import AppendRequest
from logservice.snapshot import SnapshotCorrupt
from logservice.trace import Carried
from tests.formats.form import Format, Sample
from tests.formats.log_formats import ENTRY, LATER, MEMBERS, SNAPSHOT
from tests.owners import CLAIM, STORE

SHARD = ShardId(3)
HERE = ReplicaId(1)
THERE = ReplicaId(9)

_GRANT = AccessGrant("spiffe://c1/client/db", "shard:3", ("APPEND", "READ"))
_DIRECTORY = DirectoryReport(Incarnation(11), 5, 6, "EIO", "/var/lib/logservice", True)
_REPLICA = ReplicaReport(
    SHARD, THERE, Incarnation(11), Index(77), MEMBERS.encode(), True, 4, THERE, Index(41),
    Index(42), Index(42), Index(42), Lsn(1_001), Lsn(1_003), Lsn(1_000), ((HERE, Index(40)),),
    (HERE,), "bit rot", True,
)  # fmt: skip
_START = StartReplica(SHARD, THERE, Incarnation(11), MEMBERS.encode(), True, False)
_CHANGE = ChangeMembership(
    SHARD,
    Index(77),
    (Step(ChangeKind.ADD_VOTER, THERE, "s9", Incarnation(11)), Step(ChangeKind.REMOVE, HERE)),
)
_RESULT = CommandResult(5, "NOT_READY", "not now")

_PROPOSALS: dict[str, proposals.Proposal] = {
    "tick": proposals.Tick(Term(4)),
    "initial": proposals.InitialCluster(
        "c1", MEMBERS.encode(), (ShardSpec("wal", 3), ShardSpec("other", 1)), 3, 100
    ),
    "store heartbeat": proposals.StoreHeartbeat(
        StoreId("s9"), "host-1", "[::1]:1", "[::1]:2",
        (_DIRECTORY, DirectoryReport(Incarnation(12))), 2**62, 8, 7, {"zone": "a"}, (_REPLICA,),
        (ShardId(4),), ((ShardId(5), HERE),), (_RESULT,), 3, (Incarnation(12),),
    ),
    "smallest heartbeat": proposals.StoreHeartbeat(
        StoreId("s9"), "", "", "", (DirectoryReport(Incarnation(12)),), 1, 1
    ),
    "service heartbeat": proposals.ServiceHeartbeat("tn-1", "TN", "[::1]:3", {"a": "b"}, (5,)),
    "create": proposals.CreateShard(SHARD, "wal", 3),
    "phase": proposals.SetPhase(Phase.RUNNING),
    "schedule": proposals.ScheduleCommands(
        Term(4),
        (
            Order("tn-1", ServiceOrder("create", b"\x01")),
            Order("s9", TransferLeader(SHARD, THERE)),
            Order("s9", _START),
            Order("s9", RemoveReplica(SHARD, HERE)),
            Order("s9", _CHANGE),
        ),
    ),
    "ids": proposals.AllocateIds("rows", 10, "request-1", "owner"),
    "ack": proposals.AckCommands("s9", (_RESULT,)),
    "access": proposals.ChangeAccess(_GRANT.identity, _GRANT.scope, ("APPEND",), ("READ",)),
    "admit": proposals.AdmitStore(StoreId("s9"), hakeeper=True),
    "joining": proposals.SetJoining(proposals.Joining.BY_VERB),
}  # fmt: skip

_REPLY = HeartbeatReply(
    Phase.RUNNING, 900, True, (QueuedCommand(5, 6, Term(4), _CHANGE),),
    (DirectoryEntry(StoreId("s9"), "[::1]:1", "[::1]:2", (Incarnation(9),)),),
    MEMBERS.encode(), 3, (_GRANT,),
)  # fmt: skip

_QUERIES: tuple[queries.Query, ...] = (
    queries.GetCluster(), queries.GetShard(SHARD), queries.GetPhase(), queries.GetAccess(),
)  # fmt: skip

_SHARD_VIEW = ShardView(
    SHARD, "wal", 3,
    (
        ReplicaView(
            THERE, StoreId("s9"), Incarnation(11), "voter", True, True, "live", Index(42),
            Lsn(1_001), Lsn(1_003),
        ),
    ),
    "s9", "[::1]:2", 4, Index(77), True, ("[::1]:2",), MEMBERS.encode(),
)  # fmt: skip
_CLUSTER_VIEW = ClusterView(
    "c1", "running", 900, 4,
    (
        StoreView(
            StoreId("s9"), "host-1", "[::1]:1", "[::1]:2", True, 9, 1,
            (DirectoryView("/data", Incarnation(11), 5, 6, 1, "EIO", True),), {"zone": "a"},
        ),
    ),
    (_SHARD_VIEW,),
    (OperatorView(6, SHARD, "replace", "swap", 8, THERE, StoreId("s9"), "no answer"),),
    ("no-spare-store",),
)  # fmt: skip


def _state() -> State:
    return State(
        phase=Phase.RUNNING, phase_tick=5, index=Index(42), term=Term(4), tick=900,
        cluster_id="c1", default_replicas=3, store_timeout_ticks=100,
        stores={
            StoreId("s9"): StoreState(
                StoreId("s9"), "host-1", "[::1]:1", "[::1]:2", (_DIRECTORY,), 2**62, 8, 1, 899, 2,
                1, True, [3], {"zone": "a"}, {SHARD: _REPLICA}, ((ShardId(5), HERE),),
                [QueuedCommand(5, 6, Term(4), _CHANGE)],
            )
        },
        services={"tn-1": ServiceState("tn-1", "TN", "[::1]:3", {"a": "b"}, 890)},
        shards={
            SHARD: ShardState(
                SHARD, "wal", 3, 2, MEMBERS.encode(), MEMBERS.encode(), THERE, 4, [HERE, THERE],
                {ReplicaId(12): 800}, [HERE], {StoreId("s2"): 950}, "two of one epoch",
                {THERE: Behind(Index(70), 880)},
            )
        },
        operators={
            6: Operator(
                6, Repair.REPLACE, SHARD, THERE, HERE, StoreId("s9"), Incarnation(11), 850, "swap",
                5, _CHANGE, StoreId("s9"), 860, 1, "no answer",
            )
        },
        next_replica_id=1_001, next_shard_id=6, next_operator_id=7, next_command_id=8,
        id_counters={"rows": 11}, id_requests={"request-1": 1}, id_request_order=["request-1"],
        flags={"no-spare-store": 700}, dirty=True,
        access={_GRANT.identity: {_GRANT.scope: ("APPEND", "READ")}}, access_version=3,
    )  # fmt: skip


# --- the connection between stores ----------------------------------------------------------------


def _fields(kind: type[Message], **more: Any) -> Message:
    return kind(to=HERE, sender=THERE, term=Term(4), **more)


_MESSAGES: tuple[Message, ...] = (
    messages.AppendEntries(
        to=HERE, sender=THERE, term=Term(4), prev_index=Index(40), prev_term=Term(3),
        entries=(ENTRY, LATER), commit=Index(39),
    ),
    _fields(messages.AppendResponse, index=Index(40), reject=True, hint_index=Index(38),
            hint_term=Term(2), room=123, closed=True),
    _fields(messages.RequestVote, last_index=Index(42), last_term=Term(4), pre=True, transfer=True),
    _fields(messages.VoteResponse, reject=True, pre=True),
    _fields(messages.Heartbeat, commit=Index(39), context=b"context"),
    _fields(messages.HeartbeatResponse, context=b"context", room=123, closed=True),
    _fields(messages.Quiesce, index=Index(42)),
    _fields(messages.InstallSnapshot, snapshot=SNAPSHOT),
    _fields(messages.TimeoutNow),
    _fields(messages.TransferLeader),
    _fields(messages.Propose, entries=(ENTRY,)),
    _fields(messages.ReadIndexRequest, context=b"context"),
    _fields(messages.ReadIndexResponse, context=b"context", index=Index(39)),
    _fields(messages.Unreachable),
    _fields(messages.SnapshotStatus, reject=True),
)  # fmt: skip


def _encode_message(message: Message) -> bytes:
    out: list[bytes | memoryview] = []
    size = codec.encode_message(SHARD, message, out)
    data = b"".join(out)
    assert len(data) == size
    return data


def _decode_message(data: bytes) -> Message:
    ((shard, message),) = codec.decode_batch(data)
    assert shard == SHARD
    return message


def _encode_chunk(piece: bytes) -> bytes:
    return b"".join(map(bytes, next(chunks.split([piece], len(piece)))))


def _decode_chunk(data: bytes) -> bytes:
    return bytes(chunks.piece_of(data)[2])


def _encode_frame(body: bytes) -> bytes:
    return b"".join(frame.encode_frame(FrameKind.MESSAGES, [body], len(body)))


def _decode_frame(data: bytes) -> bytes:
    reader = FrameReader(1024)
    reader.get_buffer()[: len(data)] = data
    ((kind, body),) = reader.received(len(data))
    assert kind is FrameKind.MESSAGES
    return bytes(body)


_HELLO = control.Hello(
    control.PROTOCOL, control.Lane.BULK,
    PeerIdentity(ClusterId("c1"), StoreId("stör-9"), (Incarnation(11), Incarnation(12)), 2**62),
    StoreId("s1"),
)  # fmt: skip
_CALL = Carried(f"00-{'ab' * 16}-{'cd' * 8}-01", "request-7")
_APPEND = (
    SHARD, 1.5,
    AppendRequest(
        session=SessionId(2), sequence=3, writer_epoch=4, expected_lsn=Lsn(1_001), record_count=3,
        block=encode_block([b"one", b"", b"three"], 1_700_000_000_000_000), claim=CLAIM,
    ),
    _CALL,
)  # fmt: skip


def _show_error(error: LogServiceError) -> Any:
    return type(error), error.message, error.metadata


_PEER: tuple[Sample, ...] = (
    Sample("hello", _HELLO, control.encode_hello, control.decode_hello),
    Sample("a snapshot's only chunk", b"a message", _encode_chunk, _decode_chunk),
    Sample(
        "refusal", NotLeader("elsewhere", leader="s1"), control.encode_refusal,
        control.decode_refusal, _show_error,
    ),
    Sample(
        "request", control.Request(5, 1_500, forwarding.APPEND.method, b"body"),
        lambda one: b"".join(
            control.encode_request(one.request_id, one.timeout_ms, one.method, one.body)
        ),
        control.decode_request,
    ),
    Sample(
        "answer", (5, b"body"), lambda pair: b"".join(control.encode_answer(*pair)),
        control.decode_response,
    ),
    Sample(
        "forwarded append", ForwardedAppend(*_APPEND), forwarding.encode_append,
        lambda data: forwarding.decode_append(data, STORE),
    ),
    Sample(
        "forwarded command", ForwardedCommand(SHARD, 1.5, b"command"),
        forwarding.encode_command, forwarding.decode_command,
    ),
    Sample(
        "applied", Applied(1_001, 3, 7, b"data", True), APPLIED_FIXED.encode,
        APPLIED_FIXED.decode,
    ),
    Sample(
        "answer of shard 0", Applied(1_001, 3, 7, b"data", True), APPLIED_ARRAY.encode,
        APPLIED_ARRAY.decode,
    ),
    Sample(
        "probe of the first start",
        bootstrap.Probe(StoreId("s9"), Incarnation(11), True, MEMBERS.encode()),
        bootstrap.PROBE.encode_answer, lambda data: bootstrap.PROBE.decode_answer(data, None),
    ),
    Sample(
        "entries wanted", repair.Fetch(SHARD, HERE, 41), repair.FETCH.encode,
        lambda data: repair.FETCH.decode(data, STORE),
    ),
    Sample(
        "entries fetched",
        repair.Fetched(SNAPSHOT.encode(), (3, 1_001), [(3, 41, 1_001, 3, 2, b"payload")]),
        repair.FETCH.encode_answer,
        lambda data: repair.FETCH.decode_answer(data, repair.Fetch(SHARD, HERE, 41)),
    ),
    Sample(
        "beat of sleepers", (2**64 - 1, 5), quiesce.BEAT.encode,
        lambda data: quiesce.BEAT.decode(data, STORE),
    ),
    *(
        Sample(type(message).__name__, message, _encode_message, _decode_message)
        for message in _MESSAGES
    ),
)  # fmt: skip


def _answer_of(query: queries.Query) -> Callable[[bytes], queries.Answer]:
    return lambda data: queries.decode_answer(query, data)


_ANSWERS: tuple[tuple[str, queries.Query, queries.Answer], ...] = (
    ("cluster", queries.GetCluster(), _CLUSTER_VIEW),
    ("shard", queries.GetShard(SHARD), _SHARD_VIEW),
    ("access", queries.GetAccess(), AccessView(3, (_GRANT,))),
    ("phase", queries.GetPhase(), "running"),
)

_ADDRESSES = address_book._Page(
    (DirectoryEntry(StoreId("s9"), "[::1]:1", "[::1]:2", (Incarnation(9),)),), MEMBERS.encode()
)

_ASK = digests.DigestWanted(shard=5, replica=1025, asker=1024, low=1025, high=2049)
_ANSWER = digests.DigestAnswer(first=3, applied=2100, digest=bytes(range(16)))
_FINDING = digests.Finding(
    shard=5, replica=1025, asker=1024, low=1025, high=2049, waited=False,
    digests=[(1024, bytes(range(16))), (1025, bytes(16)), (1026, bytes(range(16)))],
)  # fmt: skip

_ASKED = vouching.Asked(shard=5, replica=1025, asker=1024, term=7, who=1026)

FORMATS = (
    Format(
        "hakeeper-proposal", proposals._VERSION[0],
        "logservice.hakeeper.commands.proposals:_VERSION",
        "logservice/hakeeper/commands/proposals.py",
        tuple(
            Sample(name, proposal, proposals.encode, proposals.decode)
            for name, proposal in _PROPOSALS.items()
        ),
        ProposalCorrupt,
    ),
    Format(
        "hakeeper-reply", replies._VERSION[0], "logservice.hakeeper.commands.replies:_VERSION",
        "logservice/hakeeper/commands/replies.py",
        (Sample("everything", _REPLY, replies.encode, replies.decode),),
        ReplyCorrupt,
    ),
    Format(
        "hakeeper-query", queries._VERSION[0], "logservice.hakeeper.answers.queries:_VERSION",
        "logservice/hakeeper/answers/queries.py",
        (
            *(
                Sample(type(one).__name__, one, queries.encode_query, queries.decode_query)
                for one in _QUERIES
            ),
            *(
                Sample(f"answer: {name}", answer, queries.encode_answer, _answer_of(query))
                for name, query, answer in _ANSWERS
            ),
        ),
        QueryCorrupt,
    ),
    Format(
        "hakeeper-state", state._VERSION[0], "logservice.hakeeper.state:_VERSION",
        "logservice/hakeeper/state.py",
        (Sample("everything", _state(), state.save, state.load),),
        SnapshotCorrupt,
    ),
    Format(
        "comparison", digests._VERSION[0],
        "logservice.nodehost.integrity.digests:_VERSION",
        "logservice/nodehost/integrity/digests.py",
        (
            Sample("a question", _ASK, digests._wanted.encode, digests._wanted.decode),
            Sample(
                "an answer", _ANSWER, digests._answer.encode, digests._answer.decode,
            ),
            Sample("a finding", _FINDING, digests._finding.encode, digests._finding.decode),
        ),
        InvalidArgument,
    ),
    Format(
        "hearing", vouching._VERSION[0], "logservice.nodehost.hearing.vouching:_VERSION",
        "logservice/nodehost/hearing/vouching.py",
        (Sample("a question", _ASKED, vouching.ASKED.encode, vouching.ASKED.decode),),
        InvalidArgument,
    ),
    Format(
        "address-book", address_book._VERSION[0], "logservice.nodehost.agent.address_book:_VERSION",
        "logservice/nodehost/agent/address_book.py",
        (Sample("one store", _ADDRESSES, address_book._FORM.encode, address_book._FORM.decode),),
    ),
    Format(
        "access-book", access_book._VERSION[0], "logservice.nodehost.agent.access_book:_VERSION",
        "logservice/nodehost/agent/access_book.py",
        (
            Sample(
                "one grant", access_book._Page(3, (_GRANT,)), access_book._FORM.encode,
                access_book._FORM.decode,
            ),
        ),
    ),
    Format(
        "frame", frame.VERSION, "logservice.nodehost.transport.wire.frame:VERSION",
        "logservice/nodehost/transport/wire/frame.py",
        (Sample("messages", b"the body", _encode_frame, _decode_frame),),
        FrameError,
    ),
    Format(
        "peer-protocol", control.PROTOCOL, "logservice.nodehost.transport.wire.control:PROTOCOL",
        "logservice/nodehost/transport/wire/control.py", _PEER, CodecError,
    ),
)  # fmt: skip
