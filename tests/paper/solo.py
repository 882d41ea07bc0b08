"""Solo: one replica under test; the test itself plays its peers, its disk and its clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from logservice.entry import Entry, EntryKind, Proposal
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.membership import Membership
from logservice.raft.config import RaftConfig
from logservice.raft.core import Raft
from logservice.raft.log.memory_storage import MemoryStorage
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    Message,
    RequestVote,
    VoteResponse,
)
from logservice.raft.ready import Ready, Role
from logservice.snapshot import Snapshot
from tests.raft.cluster import first_snapshot, membership

ELECTION_TICKS = 10
ME = ReplicaId(1)

M = TypeVar("M", bound=Message)


def entry(index: int, term: int, payload: bytes = b"") -> Entry:
    kind = EntryKind.COMMAND if payload else EntryKind.NOOP
    return Entry(Term(term), Index(index), Lsn(1), 0, kind, payload)


def entries(*terms: int, first: int = 2) -> tuple[Entry, ...]:
    """Entries with these terms. A shard's log starts at index 2, behind its first snapshot."""
    return tuple(entry(first + offset, term) for offset, term in enumerate(terms))


class Solo:
    """Replica 1 of `size`; `log` gives the terms of its entries from index 2 on."""

    def __init__(
        self,
        size: int = 3,
        *,
        log: Sequence[int] = (),
        term: int = 0,
        vote: int = 0,
        commit: int = 1,
        members: Membership | None = None,
        draw: int = 0,
        pre_vote: bool = False,
        check_quorum: bool = False,
    ) -> None:
        self.members = members or membership(range(1, size + 1))
        self.storage = MemoryStorage(first_snapshot(self.members))
        hard = HardState(Term(term), ReplicaId(vote), Index(commit))
        self.storage.save(hard, entries(*log))
        self.config = RaftConfig(
            ME, ELECTION_TICKS, 1, pre_vote=pre_vote, check_quorum=check_quorum
        )
        self.draw = draw
        self.ready: Ready | None = None
        self.raft = self._start()
        self.take()

    def _start(self) -> Raft:
        snapshot = self.storage.snapshot()
        return Raft(
            self.config,
            self.storage,
            self.storage.hard_state,
            snapshot.membership,
            snapshot.index,
            lambda bound: self.draw % bound,
        )

    def restart(self) -> None:
        """Restart the replica: everything that was not durable is gone."""
        self.raft = self._start()

    # --- the outside ------------------------------------------------------------------------------

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.raft.tick()

    def receive(self, *messages: Message) -> list[Message]:
        """Deliver the messages, make their effects durable, and return what was sent."""
        for message in messages:
            self.raft.step(message)
        return self.take()

    def take(self) -> list[Message]:
        """Carry out every Ready; return the messages to others."""
        sent: list[Message] = []
        while (ready := self.raft.take_ready()) is not None:
            self.ready = ready
            self.storage.save(ready.hard_state, ready.entries, ready.snapshot)
            sent += [*ready.messages, *ready.messages_after_append]
            self.raft.persisted(ready)
            for item in ready.committed_entries:
                if item.kind is EntryKind.CONFIG:
                    self.raft.apply_config_change(item)
                self.raft.applied(item.index)
        return [message for message in sent if message.to != ME]

    def propose(self, payload: bytes = b"x") -> list[Message]:
        self.raft.propose([Proposal(EntryKind.COMMAND, 0, payload)])
        return self.take()

    def lead(self) -> list[Message]:
        """Win an election with everybody's vote; returns the leader's first messages."""
        self.raft.campaign()
        self.take()
        term = self.raft.term
        sent = self.receive(*(grant(voter, term) for voter in self.members.voters if voter != ME))
        assert self.role() is Role.LEADER
        return sent

    # --- looking ----------------------------------------------------------------------------------

    def role(self) -> Role:
        return self.raft.role

    def terms(self) -> list[int]:
        """Terms of the durable entries."""
        first, last = self.storage.first_index(), self.storage.last_index()
        return [self.storage.term(Index(index)) for index in range(first, last + 1)]


def only(kind: type[M], messages: Iterable[Message]) -> list[M]:
    return [message for message in messages if isinstance(message, kind)]


# --- what peers say ------------------------------------------------------------------------------


def append(
    sender: int, term: int, previous: tuple[int, int], new: Iterable[Entry] = (), commit: int = 0
) -> AppendEntries:
    """`previous` is (index, term)."""
    return AppendEntries(
        to=ME,
        sender=ReplicaId(sender),
        term=Term(term),
        prev_index=Index(previous[0]),
        prev_term=Term(previous[1]),
        entries=tuple(new),
        commit=Index(commit),
    )


def ask(sender: int, term: int, last: tuple[int, int], **flags: bool) -> RequestVote:
    """`last` is (index, term)."""
    return RequestVote(
        to=ME,
        sender=ReplicaId(sender),
        term=Term(term),
        last_index=Index(last[0]),
        last_term=Term(last[1]),
        **flags,
    )


def grant(sender: int, term: int, *, reject: bool = False, pre: bool = False) -> VoteResponse:
    return VoteResponse(to=ME, sender=ReplicaId(sender), term=Term(term), reject=reject, pre=pre)


def accept(sender: int, term: int, index: int) -> AppendResponse:
    return AppendResponse(to=ME, sender=ReplicaId(sender), term=Term(term), index=Index(index))


def beat(sender: int, term: int, commit: int = 0) -> Heartbeat:
    return Heartbeat(to=ME, sender=ReplicaId(sender), term=Term(term), commit=Index(commit))


def snapshot(index: int, term: int, members: Membership) -> Snapshot:
    return Snapshot(Index(index), Term(term), Lsn(1), members, b"state")
