"""How etcd's tests print what a core says: messages, Readys, entries, progress, configurations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from logservice.config_change import ChangeKind, ConfigChange, decode_change
from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
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
    TimeoutNow,
    TransferLeader,
    VoteResponse,
)
from logservice.raft.ready import ReadState, Role, SoftState
from logservice.raft.tracker.progress import ProgressState, ReplicaProgress
from logservice.raft.tracker.tracker import Configuration
from logservice.snapshot import Snapshot

V1_MARK = b"v1"
"""Context of a change that the file proposes in the older of etcd's two forms."""

ROLES = {
    Role.FOLLOWER: "StateFollower",
    Role.PRE_CANDIDATE: "StatePreCandidate",
    Role.CANDIDATE: "StateCandidate",
    Role.LEADER: "StateLeader",
}
_STATES = {
    ProgressState.PROBE: "StateProbe",
    ProgressState.REPLICATE: "StateReplicate",
    ProgressState.SNAPSHOT: "StateSnapshot",
}
_STEPS = {
    ChangeKind.ADD_VOTER: "v",
    ChangeKind.ADD_LEARNER: "l",
    ChangeKind.REMOVE: "r",
    ChangeKind.UPDATE: "u",
    ChangeKind.ADD_WITNESS: "w",
}


@dataclass(frozen=True)
class LocalMessage:
    """A message to or from the append or apply thread; `token` is what it acknowledges."""

    name: str
    sender: str
    to: str
    term: int = 0
    log_term: int = 0
    index: int = 0
    commit: int = 0
    vote: int = 0
    entries: tuple[Entry, ...] = ()
    snapshot: Snapshot | None = None
    responses: tuple[AnyMessage, ...] = ()
    token: object = None


AnyMessage = Message | LocalMessage


_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quoted(data: bytes) -> str:
    """Go's %q of a byte string: bytes that are no UTF-8 one by one, as ``\\xff``."""
    out = []
    for char in data.decode("utf-8", "surrogateescape"):
        number = ord(char)
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif char.isprintable():
            out.append(char)
        elif 0xDC80 <= number <= 0xDCFF:
            out.append(f"\\x{number - 0xDC00:02x}")
        elif number < 0x80:
            out.append(f"\\x{number:02x}")
        else:
            out.append(f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}")
    return '"' + "".join(out) + '"'


def steps(change: ConfigChange) -> str:
    return " ".join(f"{_STEPS[step.kind]}{step.replica_id}" for step in change.steps)


def entry(item: Entry) -> str:
    if item.kind is not EntryKind.CONFIG:
        return f"{item.term}/{item.index} EntryNormal {quoted(item.payload)}"
    change = decode_change(item.payload)
    name = "EntryConfChange" if change.context == V1_MARK else "EntryConfChangeV2"
    return f"{item.term}/{item.index} {name} {steps(change)}".rstrip()


def snapshot(item: Snapshot) -> str:
    members = item.membership

    def ids(replicas: Iterable[int]) -> str:
        return "[" + " ".join(map(str, replicas)) + "]"

    return (
        f"Index:{item.index} Term:{item.term} ConfState:Voters:{ids(members.voters)} "
        f"VotersOutgoing:{ids(members.outgoing)} Learners:{ids(members.learners)} "
        f"LearnersNext:{ids(members.learners_next)} AutoLeave:{str(members.auto_leave).lower()}"
    )


def hard_state(state: HardState) -> str:
    vote = f" Vote:{state.vote}" if state.vote else ""
    return f"Term:{state.term}{vote} Commit:{state.commit}"


@dataclass
class _Printed:
    """The fields etcd prints, as far as our message has them."""

    name: str
    log_term: int = 0
    index: int = 0
    reject: bool = False
    hint: int = 0
    commit: int = 0
    entries: tuple[Entry, ...] = ()
    snapshot: Snapshot | None = None


def _printed(m: Message) -> _Printed:
    match m:
        case AppendEntries():
            return _Printed("MsgApp", m.prev_term, m.prev_index, commit=m.commit, entries=m.entries)
        case AppendResponse():
            return _Printed("MsgAppResp", m.hint_term, m.index, m.reject, m.hint_index)
        case RequestVote():
            return _Printed("MsgPreVote" if m.pre else "MsgVote", m.last_term, m.last_index)
        case VoteResponse():
            return _Printed("MsgPreVoteResp" if m.pre else "MsgVoteResp", reject=m.reject)
        case Heartbeat():
            return _Printed("MsgHeartbeat", commit=m.commit)
        case HeartbeatResponse():
            return _Printed("MsgHeartbeatResp")
        case Quiesce():
            return _Printed("MsgQuiesce", index=m.index)
        case InstallSnapshot():
            return _Printed("MsgSnap", snapshot=m.snapshot)
        case TimeoutNow():
            return _Printed("MsgTimeoutNow")
        case TransferLeader():
            return _Printed("MsgTransferLeader")
        case Propose():
            return _Printed("MsgProp", entries=m.entries)
        case ReadIndexRequest():
            return _Printed("MsgReadIndex")
        case ReadIndexResponse():
            return _Printed("MsgReadIndexResp", index=m.index)
        case _:
            raise ValueError(f"{type(m).__name__} is never printed")


def type_of(m: AnyMessage) -> str:
    """etcd's name of the message's type."""
    return m.name if isinstance(m, LocalMessage) else _printed(m).name


def message(m: AnyMessage, indent: str = "") -> str:
    """One message, over several lines where etcd does so."""
    if isinstance(m, LocalMessage):
        p = _Printed(m.name, m.log_term, m.index, commit=m.commit)
        p.entries, p.snapshot = m.entries, m.snapshot
        vote, responses = m.vote, m.responses
    else:
        p, vote, responses = _printed(m), 0, ()
    text = f"{indent}{m.sender}->{m.to} {p.name} Term:{m.term} Log:{p.log_term}/{p.index}"
    if p.reject:
        text += f" Rejected (Hint: {p.hint})"
    if p.commit:
        text += f" Commit:{p.commit}"
    if vote:
        text += f" Vote:{vote}"
    if len(p.entries) == 1:
        text += f" Entries:[{entry(p.entries[0])}]"
    elif p.entries:
        inner = "".join(f"\n{indent}  {entry(item)}" for item in p.entries)
        text += f" Entries:[{inner}\n{indent}]"
    if p.snapshot is not None:
        text += f"\n{indent}  Snapshot: {snapshot(p.snapshot)}"
    if responses:
        inner = "".join("\n" + message(item, indent + "  ") for item in responses)
        text += f" Responses:[{inner}\n{indent}]"
    return text


def ready(
    *,
    soft: SoftState | None,
    hard: HardState | None,
    must_sync: bool,
    entries: Sequence[Entry],
    snap: Snapshot | None,
    committed: Sequence[Entry],
    read_states: Sequence[ReadState],
    messages: Sequence[AnyMessage],
) -> str:
    lines: list[str] = []
    if soft is not None:
        lines.append(f"Lead:{soft.leader} State:{ROLES[soft.role]}")
    if hard is not None:
        lines.append(f"HardState {hard_state(hard)}")
    if read_states:
        states = " ".join(f"{{{state.index} {list(state.context)}}}" for state in read_states)
        lines.append(f"ReadStates [{states}]")
    if entries:
        lines.append("Entries:")
        lines.extend(entry(item) for item in entries)
    if snap is not None:
        lines.append(f"Snapshot {snapshot(snap)}")
    if committed:
        lines.append("CommittedEntries:")
        lines.extend(entry(item) for item in committed)
    if messages:
        lines.append("Messages:")
        lines.extend(message(item) for item in messages)
    if not lines:
        return "<empty Ready>"
    return "\n".join([f"Ready MustSync={str(must_sync).lower()}:", *lines])


def progress(item: ReplicaProgress) -> str:
    text = f"{_STATES[item.state]} match={item.match} next={item.next}"
    if item.learner:
        text += " learner"
    if item.paused:
        text += " paused"
    if item.pending_snapshot:
        text += f" pendingSnap={item.pending_snapshot}"
    if not item.recent_active:
        text += " inactive"
    if item.inflight:
        text += f" inflight={item.inflight}" + ("[full]" if item.inflight_full else "")
    return text


def _ids(replicas: Iterable[int]) -> str:
    return "(" + " ".join(map(str, sorted(replicas))) + ")"


def configuration(config: Configuration) -> str:
    text = f"voters={_ids(config.voters)}"
    if config.outgoing:
        text += f"&&{_ids(config.outgoing)}"
    if config.learners:
        text += f" learners={_ids(config.learners)}"
    if config.learners_next:
        text += f" learners_next={_ids(config.learners_next)}"
    return text + (" autoleave" if config.auto_leave else "")
