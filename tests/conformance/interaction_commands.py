"""Whole cores that interact: the adapter for etcd's interaction files.

There are two modes, as in those files. In the synchronous mode each Ready is written, applied and
acknowledged at once. In the asynchronous mode (`async-storage-writes`) an append thread and an
apply thread take their work as messages, and their answers are delivered like any other message.

Where our core says more than etcd's, the adapter shows the common part: LSNs are not printed, and
`MustSync` is etcd's formula (ours is also true for a snapshot). Where our core refuses a membership
change with an error, etcd appends an empty entry in its place, and so does the adapter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from logservice.config_change import ConfigChange, Transition
from logservice.entry import Entry, EntryKind, Proposal
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.membership import Membership
from logservice.raft.config import RaftConfig, RaftLimits
from logservice.raft.core import Raft
from logservice.raft.errors import DropReason, MessageRejected, ProposalDropped, RejectReason
from logservice.raft.log.memory_storage import EMPTY, MemoryStorage
from logservice.raft.membership.change import ChangeReason
from logservice.raft.messages import InstallSnapshot
from logservice.raft.ready import Ready
from logservice.snapshot import Snapshot
from tests.conformance import words
from tests.conformance.changes import parse_steps
from tests.conformance.datadriven import Directive
from tests.conformance.words import AnyMessage, LocalMessage
from tests.raft.cluster import NOTHING

ELECTION_TICKS = 3
HEARTBEAT_TICKS = 1
UNLIMITED = 2**62
APPEND = "AppendThread"
APPLY = "ApplyThread"
DROPPED = "raft proposal dropped"
NOT_FOUND = "raft: cannot step as peer not found"

_REFUSED_CHANGES = (DropReason.CHANGE_PENDING, DropReason.JOINT, DropReason.NOT_JOINT)


class HistoryStorage(MemoryStorage):
    """A storage whose snapshot for others is the newest applied state, and not the one that its log
    is compacted behind.
    """

    def __init__(self, start: Snapshot) -> None:
        super().__init__(start)
        self.history = [start]

    def snapshot(self) -> Snapshot:
        return self.history[-1]


@dataclass
class Member:
    """One core with its storage and the work of its threads."""

    id: int
    raft: Raft
    storage: HistoryStorage
    asynchronous: bool
    append_work: list[LocalMessage] = field(default_factory=list)
    apply_work: list[LocalMessage] = field(default_factory=list)
    outcomes: list[tuple[Index, ChangeReason]] = field(default_factory=list)


class InteractionRunner:
    """The members, the messages between them, and the printed lines."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.messages: list[AnyMessage] = []
        self._lines: list[str] = []
        self._indent = ""
        self._quiet = False
        self._commands: dict[str, Callable[[Directive], None]] = {
            "_breakpoint": lambda _: None,
            "add-nodes": self._add_nodes,
            "campaign": lambda d: self._at(d).raft.campaign(),
            "compact": self._compact,
            "deliver-msgs": self._deliver_msgs,
            "forget-leader": lambda d: self._at(d).raft.forget_leader(),
            "log-level": self._log_level,
            "process-append-thread": self._each("processing append thread", self._append_thread),
            "process-apply-thread": self._each("processing apply thread", self._apply_thread),
            "process-ready": self._each("handling Ready", self._process_ready),
            "propose": self._propose,
            "propose-conf-change": self._propose_change,
            "raft-log": lambda d: self._raft_log(self._at(d)),
            "raft-state": self._raft_state,
            "report-unreachable": self._report_unreachable,
            "send-snapshot": self._send_snapshot,
            "set-randomized-election-timeout": self._set_timeout,
            "stabilize": self._stabilize,
            "status": self._status,
            "tick-election": lambda d: self._tick(d, ELECTION_TICKS),
            "tick-heartbeat": lambda d: self._tick(d, HEARTBEAT_TICKS),
            "transfer-leadership": self._transfer,
        }

    def run(self, directive: Directive) -> str:
        """What the command prints; "ok" when that is nothing."""
        self._lines = []
        command = self._commands.get(directive.command)
        if command is None:
            return "unknown command"
        command(directive)
        return "\n".join(self._lines) or "ok"

    # --- printing and choosing --------------------------------------------------------------------

    def _print(self, text: str) -> None:
        if not self._quiet:
            self._lines += [self._indent + line for line in text.split("\n")]

    def _error(self, text: str) -> None:
        self._lines.append(text)  # errors are shown even when all else is quiet

    def _at(self, directive: Directive) -> Member:
        return self.members[directive.numbers()[0] - 1]

    def _each(self, title: str, act: Callable[[Member], None]) -> Callable[[Directive], None]:
        """Do `act` for each member named, under a heading if there are several."""

        def command(directive: Directive) -> None:
            chosen = [self.members[number - 1] for number in directive.numbers()]
            for member in chosen or self.members:
                if len(chosen or self.members) > 1:
                    self._under(f"> {member.id} {title}", functools.partial(act, member))
                else:
                    act(member)

        return command

    def _under(self, heading: str, act: Callable[[], object]) -> None:
        self._print(heading)
        self._indent += "  "
        act()
        self._indent = self._indent[:-2]

    # --- set-up -----------------------------------------------------------------------------------

    def _log_level(self, directive: Directive) -> None:
        self._quiet = directive.positional()[0].lower() == "none"

    def _add_nodes(self, directive: Directive) -> None:
        voters = tuple(ReplicaId(int(value)) for value in directive.values("voters"))
        learners = tuple(ReplicaId(int(value)) for value in directive.values("learners"))
        index = int(directive.value("index", "0"))
        start = EMPTY
        if index or voters or learners:
            if index <= 1:
                self._error("index must be specified as > 1 due to bootstrap")
                return
            content = directive.value("content").encode()
            members = Membership(voters=voters, learners=learners)
            start = Snapshot(Index(index), Term(1), Lsn(1), members, content)
        limits = RaftLimits(
            message_bytes=UNLIMITED,
            inflight_messages=int(directive.value("inflight", str(UNLIMITED))),
            inflight_bytes=0,
            uncommitted_bytes=UNLIMITED,
            committed_bytes_per_ready=int(
                directive.value("max-committed-size-per-ready", str(UNLIMITED))
            ),
        )
        for _ in range(directive.numbers()[0]):
            config = RaftConfig(
                ReplicaId(len(self.members) + 1),
                ELECTION_TICKS,
                HEARTBEAT_TICKS,
                pre_vote=directive.flag("prevote"),
                check_quorum=directive.flag("checkquorum"),
                limits=limits,
                step_down_on_removal=directive.flag("step-down-on-removal"),
                hand_over_on_removal=False,
                watch_disk=False,
                disable_change_validation=directive.flag("disable-conf-change-validation"),
                lease_read=directive.value("read-only") == "lease-based",
                change_needs_own_commit=directive.flag("change-needs-own-commit"),
                quiesce_ticks=int(directive.value("quiesce", "0")),
            )
            self._add_member(config, start, asynchronous=directive.flag("async-storage-writes"))

    def _add_member(self, config: RaftConfig, start: Snapshot, *, asynchronous: bool) -> None:
        storage = HistoryStorage(start)
        raft = Raft(
            config,
            storage,
            HardState(),
            start.membership,
            start.index,
            lambda count: 0,
        )
        raft._state.log.hand_out_unstable = not asynchronous
        # These replicas are new: none can have promised a lease before its start.
        raft._state.ticks = config.election_ticks
        self.members.append(Member(config.replica_id, raft, storage, asynchronous))

    # --- Readys and threads -----------------------------------------------------------------------

    def _process_ready(self, member: Member) -> None:
        raft = member.raft
        ready = raft.take_ready() or NOTHING
        network = [m for m in ready.messages_after_append if m.to != member.id]
        messages: list[AnyMessage] = [*ready.messages]
        if member.asynchronous:
            messages += self._thread_work(member, ready)
        else:
            messages += network
        hard = ready.hard_state
        self._print(
            words.ready(
                soft=ready.soft_state,
                hard=hard,
                must_sync=ready.must_sync and (bool(ready.entries) or self._vote_new(member, hard)),
                entries=ready.entries,
                snap=ready.snapshot,
                committed=ready.committed_entries,
                read_states=ready.read_states,
                messages=messages,
            )
        )
        if member.asynchronous:
            for m in messages:
                self._route(member, m)
            return
        self._write(member, ready.hard_state, ready.entries, ready.snapshot)
        self._apply(member, ready.committed_entries)
        self.messages += messages
        raft.persisted(ready)
        if ready.committed_entries:
            raft.applied(ready.committed_entries[-1].index)

    def _vote_new(self, member: Member, hard: HardState | None) -> bool:
        """Whether the term or the vote is new, which is a part of etcd's MustSync.

        The hard state is compared with the newest one that was handed out, durable or not.
        """
        if hard is None:
            return False
        before = member.storage.hard_state
        for work in member.append_work:
            if work.term:
                before = HardState(Term(work.term), ReplicaId(work.vote), Index(work.commit))
        return (hard.term, hard.vote) != (before.term, before.vote)

    def _thread_work(self, member: Member, ready: Ready) -> list[LocalMessage]:
        work: list[LocalMessage] = []
        writes = member.raft._writes
        me = str(member.id)
        if writes and writes[-1].ready is ready:
            write = writes.pop()
            responses: list[AnyMessage] = [*ready.messages_after_append]
            if write.last_index or ready.snapshot is not None:
                responses.append(
                    LocalMessage(
                        "MsgStorageAppendResp",
                        APPEND,
                        me,
                        term=write.term,
                        index=write.last_index,
                        log_term=write.last_term,
                        snapshot=ready.snapshot,
                        token=write,
                    )
                )
            hard = ready.hard_state or HardState()
            work.append(
                LocalMessage(
                    "MsgStorageAppend",
                    me,
                    APPEND,
                    term=hard.term,
                    commit=hard.commit,
                    vote=hard.vote,
                    entries=ready.entries,
                    snapshot=ready.snapshot,
                    responses=tuple(responses),
                )
            )
        if ready.committed_entries:
            done = LocalMessage("MsgStorageApplyResp", APPLY, me, entries=ready.committed_entries)
            work.append(
                LocalMessage(
                    "MsgStorageApply",
                    me,
                    APPLY,
                    entries=ready.committed_entries,
                    responses=(done,),
                )
            )
        return work

    def _route(self, member: Member, m: AnyMessage) -> None:
        if isinstance(m, LocalMessage):
            (member.append_work if m.to == APPEND else member.apply_work).append(m)
        else:
            self.messages.append(m)

    def _append_thread(self, member: Member) -> None:
        if not member.append_work:
            self._print("no append work to perform")
            return
        m = member.append_work.pop(0)
        self._print("Processing:")
        self._print(words.message(replace(m, responses=())))
        hard = HardState(Term(m.term), ReplicaId(m.vote), Index(m.commit)) if m.term else None
        self._write(member, hard, m.entries, m.snapshot)
        self._respond(m)

    def _apply_thread(self, member: Member) -> None:
        if not member.apply_work:
            self._print("no apply work to perform")
            return
        m = member.apply_work.pop(0)
        self._print("Processing:")
        self._print(words.message(replace(m, responses=())))
        self._apply(member, m.entries)
        self._respond(m)

    def _respond(self, m: LocalMessage) -> None:
        self._print("Responses:")
        for response in m.responses:
            self._print(words.message(response))
        self.messages += m.responses

    def _write(
        self,
        member: Member,
        hard: HardState | None,
        entries: tuple[Entry, ...],
        snapshot: Snapshot | None,
    ) -> None:
        member.storage.save(hard, entries, snapshot)
        if snapshot is not None:
            member.storage.history.append(snapshot)

    def _apply(self, member: Member, entries: tuple[Entry, ...]) -> None:
        """The state machine appends every command to its state."""
        for entry in entries:
            last = member.storage.history[-1]
            membership, state = last.membership, last.state
            if entry.kind is EntryKind.CONFIG:
                outcome = member.raft.apply_config_change(entry)
                membership = outcome.membership
                member.outcomes.append((entry.index, outcome.reason))
            else:
                state += entry.payload
            member.storage.history.append(
                Snapshot(entry.index, entry.term, entry.next_lsn, membership, state)
            )

    # --- the network ------------------------------------------------------------------------------

    def _deliver_msgs(self, directive: Directive) -> None:
        kind = directive.value("type")
        targets = [(number, False) for number in directive.numbers()]
        targets += [(int(value), True) for value in directive.values("drop")]
        if not sum(self._deliver(number, kind, drop=drop) for number, drop in targets):
            self._print("no messages")

    def _matching(self, number: int, kind: str, *, drop: bool) -> list[AnyMessage]:
        return [
            m
            for m in self.messages
            if str(m.to) == str(number)
            and not (drop and (isinstance(m, LocalMessage) or m.sender == m.to))
            and (not kind or words.type_of(m) == kind)
        ]

    def _deliver(self, number: int, kind: str, *, drop: bool) -> int:
        chosen = self._matching(number, kind, drop=drop)
        picked = {id(m) for m in chosen}
        self.messages = [m for m in self.messages if id(m) not in picked]
        for m in chosen:
            self._print(("dropped: " if drop else "") + words.message(m))
            if not drop:
                self._step(self.members[number - 1], m)
        return len(chosen)

    def _step(self, member: Member, m: AnyMessage) -> None:
        if isinstance(m, LocalMessage):
            if m.name == "MsgStorageAppendResp":
                member.raft._stable(m.token)  # type: ignore[arg-type]
            else:
                member.raft.applied(m.entries[-1].index)
            return
        if m.sender == m.to:
            member.raft._dispatch(m)
            return
        try:
            member.raft.step(m)
        except MessageRejected as rejected:
            unknown = rejected.reason is RejectReason.UNKNOWN_PEER
            self._print(NOT_FOUND if unknown else str(rejected))

    def _send_snapshot(self, directive: Directive) -> None:
        source, target = directive.numbers()
        member = self.members[source - 1]
        m = InstallSnapshot(
            to=ReplicaId(target),
            sender=ReplicaId(source),
            term=member.raft.term,
            snapshot=member.storage.snapshot(),
        )
        self.messages.append(m)
        self._print(words.message(m))

    def _stabilize(self, directive: Directive) -> None:
        level = directive.value("log-level")
        before = self._quiet
        if level:
            self._quiet = level.lower() == "none"
        chosen = [self.members[number - 1] for number in directive.numbers()] or self.members
        while self._stabilize_once(chosen):
            pass
        self._quiet = before

    def _stabilize_once(self, chosen: list[Member]) -> bool:
        moved = False
        for member in chosen:
            if member.raft.has_ready():
                self._under(
                    f"> {member.id} handling Ready", functools.partial(self._process_ready, member)
                )
                moved = True
        for member in chosen:
            if self._matching(member.id, "", drop=False):
                self._under(
                    f"> {member.id} receiving messages",
                    functools.partial(self._deliver, member.id, "", drop=False),
                )
                moved = True
        for work, title, act in (
            ("append_work", "append", self._append_thread),
            ("apply_work", "apply", self._apply_thread),
        ):
            for member in chosen:
                if getattr(member, work):
                    self._print(f"> {member.id} processing {title} thread")
                    while getattr(member, work):
                        self._indent += "  "
                        act(member)
                        self._indent = self._indent[:-2]
                    moved = True
        return moved

    # --- inputs -----------------------------------------------------------------------------------

    def _propose(self, directive: Directive) -> None:
        data = "".join(directive.positional()[1:2])
        self._try_propose(
            self._at(directive), Proposal(EntryKind.COMMAND, 0, data.strip('"').encode())
        )

    def _try_propose(self, member: Member, proposal: Proposal) -> None:
        try:
            member.raft.propose([proposal])
        except ProposalDropped:
            self._error(DROPPED)

    def _propose_change(self, directive: Directive) -> None:
        transition = Transition[directive.value("transition", "auto").upper()]
        steps = parse_steps(directive.input)
        v1 = directive.flag("v1")
        if v1 and (len(steps) > 1 or transition is not Transition.AUTO):
            self._error("v1 conf change can only have one operation and no transition")
            return
        epoch = directive.value("epoch")
        change = ConfigChange(
            steps,
            expected_epoch=Index(int(epoch)) if epoch else None,
            transition=transition,
            context=words.V1_MARK if v1 else b"",
        )
        member = self._at(directive)
        try:
            member.raft.propose_change(change)
        except ProposalDropped as dropped:
            if dropped.reason in _REFUSED_CHANGES:
                self._try_propose(member, Proposal(EntryKind.NOOP, 0, b""))
            elif dropped.reason is DropReason.TERM_NOT_COMMITTED:  # a rule that etcd lacks
                self._error(f"{DROPPED}: {dropped.reason.value}")
            else:
                self._error(DROPPED)

    def _tick(self, directive: Directive, ticks: int) -> None:
        for _ in range(ticks):
            self._at(directive).raft.tick()

    def _set_timeout(self, directive: Directive) -> None:
        self._at(directive).raft._state.randomized_timeout = int(directive.value("timeout"))

    def _transfer(self, directive: Directive) -> None:
        source, target = int(directive.value("from")), int(directive.value("to"))
        self.members[source - 1].raft.transfer_leader(ReplicaId(target))

    def _report_unreachable(self, directive: Directive) -> None:
        source, target = directive.numbers()
        self.members[source - 1].raft.report_unreachable(ReplicaId(target))

    # --- looking ----------------------------------------------------------------------------------

    def _compact(self, directive: Directive) -> None:
        member = self._at(directive)
        index = Index(directive.numbers()[1])
        storage = member.storage
        storage.install(
            Snapshot(
                index, storage.term(index), storage.next_lsn(index), member.raft.membership, b""
            )
        )
        self._raft_log(member)

    def _raft_log(self, member: Member) -> None:
        storage = member.storage
        first, last = storage.first_index(), storage.last_index()
        if last < first:
            self._print(f"log is empty: first index={first}, last index={last}")
            return
        for entry in storage.entries(first, Index(last + 1), UNLIMITED):
            self._print(words.entry(entry))

    def _raft_state(self, _: Directive) -> None:
        for member in self.members:
            status = member.raft.status()
            members = status.membership
            voter = member.id in members.voters or member.id in members.outgoing
            self._print(
                f"{member.id}: {words.ROLES[status.role]} ({'Voter' if voter else 'Non-Voter'}) "
                f"Term:{status.term} Lead:{status.leader}"
            )

    def _status(self, directive: Directive) -> None:
        for replica, item in self._at(directive).raft.status().progress.items():
            self._print(f"{replica}: {words.progress(item)}")
