"""Commands of our own files (`own/*.txt`), for what etcd does not have: LSNs, blocks, witnesses,
the membership's epoch and the outcome of a change. README.md describes them.
"""

from __future__ import annotations

import re

from logservice.config_change import decode_change
from logservice.entry import Entry, EntryKind, Proposal
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.raft.errors import MessageRejected
from logservice.raft.messages import AppendEntries
from tests.conformance import words
from tests.conformance.datadriven import Directive, FormatError
from tests.conformance.interaction_commands import UNLIMITED, InteractionRunner

_ENTRY = re.compile(r"(\d+)/(\d+) lsn=(\d+) records=(\d+) ([A-Z]+)$")


class OwnRunner(InteractionRunner):
    """etcd's commands and ours."""

    def __init__(self) -> None:
        super().__init__()
        self._commands |= {
            "append": self._append,
            "change-outcomes": self._change_outcomes,
            "lsn-log": self._lsn_log,
            "membership": self._membership,
            "propose-block": self._propose_block,
            "quiesced": self._quiesced,
            "state": self._state,
            "wake": lambda d: self._at(d).raft.wake(),
        }

    def _propose_block(self, directive: Directive) -> None:
        """`propose-block ID RECORDS DATA`."""
        _, records, data = directive.positional()
        proposal = Proposal(EntryKind.BLOCK, int(records), data.encode())
        self._try_propose(self._at(directive), proposal)

    def _lsn_log(self, directive: Directive) -> None:
        """The durable log with LSNs: records 4 and 5 are in the entry with `lsn=4 records=2`."""
        storage = self._at(directive).storage
        first, last = storage.first_index(), storage.last_index()
        for entry in storage.entries(first, Index(last + 1), UNLIMITED):
            content = words.quoted(entry.payload)
            if entry.kind is EntryKind.CONFIG:
                content = words.steps(decode_change(entry.payload))
            self._print(
                f"{entry.term}/{entry.index} lsn={entry.lsn} records={entry.record_count} "
                f"{entry.kind.name} {content}"
            )
        self._print(f"next lsn={storage.next_lsn(last)}")

    def _append(self, directive: Directive) -> None:
        """Make a message that the leader `from` might send; its entries are in the input lines."""
        term, index = directive.value("prev").split("/")
        message = AppendEntries(
            to=ReplicaId(directive.numbers()[0]),
            sender=ReplicaId(int(directive.value("from"))),
            term=Term(int(directive.value("term"))),
            prev_index=Index(int(index)),
            prev_term=Term(int(term)),
            entries=tuple(_entry(line) for line in directive.input),
        )
        try:
            self._at(directive).raft.step(message)
        except MessageRejected as rejected:
            self._print(f"refused: {rejected}")

    def _membership(self, directive: Directive) -> None:
        members = self._at(directive).raft.membership
        for name in ("voters", "learners", "witnesses", "removed"):
            ids = " ".join(map(str, getattr(members, name)))
            self._print(f"{name}=({ids})")
        self._print(f"epoch={members.change_epoch}")

    def _change_outcomes(self, directive: Directive) -> None:
        for index, reason in self._at(directive).outcomes:
            self._print(f"{index} {reason.value}")

    def _quiesced(self, directive: Directive) -> None:
        for member in self.members:
            self._print(f"{member.id}: {'quiesced' if member.raft.quiesced else 'awake'}")

    def _state(self, directive: Directive) -> None:
        """The state machine's state: all applied payloads."""
        self._print(words.quoted(self._at(directive).storage.history[-1].state))


def _entry(line: str) -> Entry:
    match = _ENTRY.match(line.strip())
    if match is None:
        raise FormatError(f"no entry: {line!r}")
    term, index, lsn, records = (int(match.group(number)) for number in range(1, 5))
    kind = EntryKind[match.group(5)]
    return Entry(Term(term), Index(index), Lsn(lsn), records, kind, b"")
