"""Samples of the formats that HAKeeper replicates, and of those that stores send to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logservice_wire.block import encode_block
from logservice_wire.errors import InvalidArgument, LogServiceError, NotLeader

from logservice.config_change import ChangeKind
from logservice.hakeeper import state
from logservice.hakeeper.answers import queries
from logservice.hakeeper.answers.directory import DirectoryRow
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
from logservice.nodehost.agent import access_book, address_book, bootstrap, directory
from logservice.nodehost.hearing import vouching
from logservice.nodehost.integrity import digests, repair
from logservice.nodehost.peers.applied import APPLIED_ARRAY, APPLIED_FIXED
from logservice.nodehost.replica import quiesce
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

_ROW = DirectoryRow(SHARD, 66, "wal", "open", 3, b"membership")
_GRANT = AccessGrant("spiffe://c1/client/db", "shard:3", ("APPEND", "READ"))
_DENIAL = AccessGrant("spiffe://c1/client/*", "*", ("all",))
_DIRECTORY = DirectoryReport(Incarnation(11), 5, 6, "EIO", "/var/lib/logservice", True)
_REPLICA = ReplicaReport(
    shard=SHARD,
    replica=THERE,
    incarnation=Incarnation(11),
    epoch=Index(77),
    membership=MEMBERS.encode(),
    leads=True,
    term=4,
    leader=THERE,
    first_index=Index(41),
    last_index=Index(42),
    committed_index=Index(42),
    applied_index=Index(42),
    first_lsn=Lsn(1_001),
    applied_lsn=Lsn(1_003),
    truncated_lsn=Lsn(1_000),
    match=((HERE, Index(40)),),
    recently_active=(HERE,),
    halted="bit rot",
    repairing=True,
)
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
        cluster_id="c1",
        membership=MEMBERS.encode(),
        log_shards=(ShardSpec("wal", 3), ShardSpec("other", 1)),
        replicas=3,
        store_timeout_ticks=100,
    ),
    "store heartbeat": proposals.StoreHeartbeat(
        store=StoreId("s9"),
        host="host-1",
        peer_address="[::1]:1",
        client_address="[::1]:2",
        directories=(_DIRECTORY, DirectoryReport(Incarnation(12))),
        boot_id=2**62,
        sequence=8,
        base=7,
        labels={"zone": "a"},
        replicas=(_REPLICA,),
        gone=(ShardId(4),),
        stored=((ShardId(5), HERE),),
        results=(_RESULT,),
        access_version=3,
        unattributed_loss=(Incarnation(12),),
    ),
    "smallest heartbeat": proposals.StoreHeartbeat(
        store=StoreId("s9"),
        host="",
        peer_address="",
        client_address="",
        directories=(DirectoryReport(Incarnation(12)),),
        boot_id=1,
        sequence=1,
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
}

_REPLY = HeartbeatReply(
    phase=Phase.RUNNING,
    tick=900,
    need_full=True,
    commands=(QueuedCommand(5, 6, Term(4), _CHANGE),),
    directory=(DirectoryEntry(StoreId("s9"), "[::1]:1", "[::1]:2", (Incarnation(9),)),),
    hakeeper=MEMBERS.encode(),
    access_version=3,
    access=(_GRANT,),
)

_QUERIES: tuple[queries.Query, ...] = (
    queries.GetCluster(),
    queries.GetShard(SHARD),
    queries.GetPhase(),
    queries.GetAccess(),
)

_SHARD_VIEW = ShardView(
    shard_id=SHARD,
    name="wal",
    wanted_replicas=3,
    replicas=(
        ReplicaView(
            replica_id=THERE,
            store_id=StoreId("s9"),
            incarnation=Incarnation(11),
            role="voter",
            reported=True,
            leader=True,
            health="live",
            applied_index=Index(42),
            first_lsn=Lsn(1_001),
            applied_lsn=Lsn(1_003),
        ),
    ),
    leader_store="s9",
    leader_address="[::1]:2",
    term=4,
    membership_epoch=Index(77),
    joint=True,
    client_addresses=("[::1]:2",),
    membership=MEMBERS.encode(),
)
_CLUSTER_VIEW = ClusterView(
    cluster_id="c1",
    phase="running",
    tick=900,
    term=4,
    stores=(
        StoreView(
            store_id=StoreId("s9"),
            host="host-1",
            peer_address="[::1]:1",
            client_address="[::1]:2",
            expired=True,
            ticks_since_heartbeat=9,
            replicas=1,
            directories=(DirectoryView("/data", Incarnation(11), 5, 6, 1, "EIO", True),),
            labels={"zone": "a"},
        ),
    ),
    shards=(_SHARD_VIEW,),
    operators=(OperatorView(6, SHARD, "replace", "swap", 8, THERE, StoreId("s9"), "no answer"),),
    flags=("no-spare-store",),
)


def _store_state() -> StoreState:
    return StoreState(
        store=StoreId("s9"),
        host="host-1",
        peer_address="[::1]:1",
        client_address="[::1]:2",
        directories=(_DIRECTORY,),
        boot_id=2**62,
        sequence=8,
        first_tick=1,
        last_tick=899,
        live_since=2,
        directories_tick=1,
        expired=True,
        old_boots=[3],
        labels={"zone": "a"},
        replicas={SHARD: _REPLICA},
        stored=((ShardId(5), HERE),),
        queue=[QueuedCommand(5, 6, Term(4), _CHANGE)],
    )


def _shard_state() -> ShardState:
    return ShardState(
        shard=SHARD,
        name="wal",
        wanted=3,
        created_tick=2,
        initial=MEMBERS.encode(),
        membership=MEMBERS.encode(),
        leader=THERE,
        leader_term=4,
        started=[HERE, THERE],
        abandoned={ReplicaId(12): 800},
        lost=[HERE],
        avoid={StoreId("s2"): 950},
        disagreement="two of one epoch",
        behind={THERE: Behind(Index(70), 880)},
    )


def _operator() -> Operator:
    return Operator(
        id=6,
        kind=Repair.REPLACE,
        shard=SHARD,
        replica=THERE,
        old=HERE,
        store=StoreId("s9"),
        incarnation=Incarnation(11),
        created_tick=850,
        step="swap",
        command_id=5,
        command=_CHANGE,
        target=StoreId("s9"),
        issued_tick=860,
        failures=1,
        error="no answer",
    )


def _state() -> State:
    return State(
        phase=Phase.RUNNING,
        phase_tick=5,
        index=Index(42),
        term=Term(4),
        tick=900,
        cluster_id="c1",
        default_replicas=3,
        store_timeout_ticks=100,
        stores={StoreId("s9"): _store_state()},
        services={"tn-1": ServiceState("tn-1", "TN", "[::1]:3", {"a": "b"}, 890)},
        shards={SHARD: _shard_state()},
        operators={6: _operator()},
        next_replica_id=1_001,
        next_shard_id=6,
        next_operator_id=7,
        next_command_id=8,
        id_counters={"rows": 11},
        id_requests={"request-1": 1},
        id_request_order=["request-1"],
        flags={"no-spare-store": 700},
        dirty=True,
        access={_GRANT.identity: {_GRANT.scope: ("APPEND", "READ")}},
        access_version=3,
    )


# --- the connection between stores ----------------------------------------------------------------


def _fields(kind: type[Message], **more: Any) -> Message:
    return kind(to=HERE, sender=THERE, term=Term(4), **more)


_MESSAGES: tuple[Message, ...] = (
    messages.AppendEntries(
        to=HERE,
        sender=THERE,
        term=Term(4),
        prev_index=Index(40),
        prev_term=Term(3),
        entries=(ENTRY, LATER),
        commit=Index(39),
    ),
    _fields(
        messages.AppendResponse,
        index=Index(40),
        reject=True,
        hint_index=Index(38),
        hint_term=Term(2),
        room=123,
        closed=True,
    ),
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
)


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
    protocol=control.PROTOCOL,
    lane=control.Lane.BULK,
    identity=PeerIdentity(
        ClusterId("c1"), StoreId("stör-9"), (Incarnation(11), Incarnation(12)), 2**62
    ),
    expected=StoreId("s1"),
)
_CALL = Carried(f"00-{'ab' * 16}-{'cd' * 8}-01", "request-7")
_APPEND = (
    SHARD,
    1.5,
    AppendRequest(
        session=SessionId(2),
        sequence=3,
        writer_epoch=4,
        expected_lsn=Lsn(1_001),
        record_count=3,
        block=encode_block([b"one", b"", b"three"], 1_700_000_000_000_000),
        claim=CLAIM,
    ),
    _CALL,
)


def _show_error(error: LogServiceError) -> Any:
    return type(error), error.message, error.metadata


_PEER: tuple[Sample, ...] = (
    Sample("hello", _HELLO, control.encode_hello, control.decode_hello),
    Sample("a snapshot's only chunk", b"a message", _encode_chunk, _decode_chunk),
    Sample(
        name="refusal",
        value=NotLeader("elsewhere", leader="s1"),
        encode=control.encode_refusal,
        decode=control.decode_refusal,
        show=_show_error,
    ),
    Sample(
        name="request",
        value=control.Request(5, 1_500, forwarding.APPEND.method, b"body"),
        encode=lambda one: b"".join(
            control.encode_request(one.request_id, one.timeout_ms, one.method, one.body)
        ),
        decode=control.decode_request,
    ),
    Sample(
        name="answer",
        value=(5, b"body"),
        encode=lambda pair: b"".join(control.encode_answer(*pair)),
        decode=control.decode_response,
    ),
    Sample(
        name="forwarded append",
        value=ForwardedAppend(*_APPEND),
        encode=forwarding.encode_append,
        decode=lambda data: forwarding.decode_append(data, STORE),
    ),
    Sample(
        name="forwarded command",
        value=ForwardedCommand(SHARD, 1.5, b"command"),
        encode=forwarding.encode_command,
        decode=forwarding.decode_command,
    ),
    Sample(
        name="applied",
        value=Applied(1_001, 3, 7, b"data", True),
        encode=APPLIED_FIXED.encode,
        decode=APPLIED_FIXED.decode,
    ),
    Sample(
        name="answer of shard 0",
        value=Applied(1_001, 3, 7, b"data", True),
        encode=APPLIED_ARRAY.encode,
        decode=APPLIED_ARRAY.decode,
    ),
    Sample(
        name="probe of the first start",
        value=bootstrap.Probe(StoreId("s9"), Incarnation(11), True, MEMBERS.encode()),
        encode=bootstrap.PROBE.encode_answer,
        decode=lambda data: bootstrap.PROBE.decode_answer(data, None),
    ),
    Sample(
        name="entries wanted",
        value=repair.Fetch(SHARD, HERE, 41),
        encode=repair.FETCH.encode,
        decode=lambda data: repair.FETCH.decode(data, STORE),
    ),
    Sample(
        name="entries fetched",
        value=repair.Fetched(SNAPSHOT.encode(), (3, 1_001), [(3, 41, 1_001, 3, 2, b"payload")]),
        encode=repair.FETCH.encode_answer,
        decode=lambda data: repair.FETCH.decode_answer(data, repair.Fetch(SHARD, HERE, 41)),
    ),
    Sample(
        name="beat of sleepers",
        value=(2**64 - 1, 5),
        encode=quiesce.BEAT.encode,
        decode=lambda data: quiesce.BEAT.decode(data, STORE),
    ),
    *(
        Sample(type(message).__name__, message, _encode_message, _decode_message)
        for message in _MESSAGES
    ),
)


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
    shard=5,
    replica=1025,
    asker=1024,
    low=1025,
    high=2049,
    waited=False,
    digests=[(1024, bytes(range(16))), (1025, bytes(16)), (1026, bytes(range(16)))],
)

_ASKED = vouching.Asked(shard=5, replica=1025, asker=1024, term=7, who=1026)

FORMATS = (
    Format(
        name="hakeeper-proposal",
        version=proposals._VERSIONS[1][0],
        constant="",
        document="logservice/hakeeper/commands/proposals.py",
        samples=tuple(
            Sample(name, proposal, proposals.encode, proposals.decode)
            for name, proposal in _PROPOSALS.items()
        ),
        error=ProposalCorrupt,
    ),
    Format(
        name="hakeeper-reply",
        version=replies._VERSIONS[1][0],
        constant="",
        document="logservice/hakeeper/commands/replies.py",
        samples=(Sample("everything", _REPLY, replies.encode, replies.decode),),
        error=ReplyCorrupt,
    ),
    Format(
        name="hakeeper-query",
        version=queries._VERSION[0],
        constant="logservice.hakeeper.answers.queries:_VERSION",
        document="logservice/hakeeper/answers/queries.py",
        samples=(
            *(
                Sample(type(one).__name__, one, queries.encode_query, queries.decode_query)
                for one in _QUERIES
            ),
            *(
                Sample(
                    f"answer: {name}",
                    answer,
                    queries.encode_answer,
                    _answer_of(query),
                    grows=True,
                )
                for name, query, answer in _ANSWERS
            ),
        ),
        error=QueryCorrupt,
    ),
    Format(
        name="hakeeper-state",
        version=state._VERSIONS[1][0],
        constant="",
        document="logservice/hakeeper/state.py",
        samples=(Sample("everything", _state(), state.save, state.load),),
        error=SnapshotCorrupt,
    ),
    Format(
        name="comparison",
        version=digests._VERSION[0],
        constant="logservice.nodehost.integrity.digests:_VERSION",
        document="logservice/nodehost/integrity/digests.py",
        samples=(
            Sample("a question", _ASK, digests._wanted.encode, digests._wanted.decode),
            Sample(
                name="an answer",
                value=_ANSWER,
                encode=digests._answer.encode,
                decode=digests._answer.decode,
            ),
            Sample("a finding", _FINDING, digests._finding.encode, digests._finding.decode),
        ),
        error=InvalidArgument,
    ),
    Format(
        name="hearing",
        version=vouching._VERSION[0],
        constant="logservice.nodehost.hearing.vouching:_VERSION",
        document="logservice/nodehost/hearing/vouching.py",
        samples=(Sample("a question", _ASKED, vouching.ASKED.encode, vouching.ASKED.decode),),
        error=InvalidArgument,
    ),
    Format(
        name="address-book",
        version=address_book._VERSION[0],
        constant="logservice.nodehost.agent.address_book:_VERSION",
        document="logservice/nodehost/agent/address_book.py",
        samples=(
            Sample("one store", _ADDRESSES, address_book._FORM.encode, address_book._FORM.decode),
        ),
    ),
    Format(
        name="access-book",
        version=access_book._VERSION[0],
        constant="logservice.nodehost.agent.access_book:_VERSION",
        document="logservice/nodehost/agent/access_book.py",
        samples=(
            Sample(
                name="one grant",
                value=access_book._Page(3, (_GRANT,)),
                encode=access_book._FORM.encode,
                decode=access_book._FORM.decode,
            ),
            Sample(
                name="one grant, one denial",
                value=access_book._Page(3, (_GRANT,), (_DENIAL,)),
                encode=access_book._FORM.encode,
                decode=access_book._FORM.decode,
                since=2,
            ),
        ),
    ),
    Format(
        name="directory",
        version=directory._VERSION[0],
        constant="logservice.nodehost.agent.directory:_VERSION",
        document="logservice/nodehost/agent/directory.py",
        samples=(
            Sample(
                name="one log",
                value=directory._Page(70, 3, 1_700_000_000_000_000, (_ROW,)),
                encode=directory._FORM.encode,
                decode=directory._FORM.decode,
                since=2,
            ),
        ),
    ),
    Format(
        name="frame",
        version=frame.VERSION,
        constant="logservice.nodehost.transport.wire.frame:VERSION",
        document="logservice/nodehost/transport/wire/frame.py",
        samples=(Sample("messages", b"the body", _encode_frame, _decode_frame),),
        error=FrameError,
    ),
    Format(
        name="peer-protocol",
        version=control.PROTOCOL,
        constant="logservice.nodehost.transport.wire.control:PROTOCOL",
        document="logservice/nodehost/transport/wire/control.py",
        samples=_PEER,
        error=CodecError,
    ),
)
