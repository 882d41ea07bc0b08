"""Drives one `LogRsm` as a log would: it gives entries their index and LSN, and envelopes their
ids.
"""

from __future__ import annotations

from logservice.entry import Entry, EntryKind
from logservice.envelope import (
    BlockEnvelope,
    ProposalId,
    encode_blocks,
    encode_command,
)
from logservice.ids import Index, Lsn, SessionId, Term
from logservice.outcome import Applied, Outcome, Rejected
from logservice.owner import Claim
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.commands import Command, encode
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.queries import LogStatus
from tests.owners import CLAIM


def request(
    count: int = 1,
    *,
    session: int = 0,
    sequence: int = 0,
    epoch: int = 0,
    expected: int = 0,
    claim: Claim = CLAIM,
    block: bytes = b"",
) -> AppendRequest:
    """An append of `count` records."""
    return AppendRequest(
        SessionId(session), sequence, epoch, Lsn(expected), count, block or b"r" * count, claim
    )


class ShardDriver:
    """The log above one state machine. `entries` holds every applied entry, for replays."""

    def __init__(self, rsm: LogRsm | None = None) -> None:
        self.rsm = rsm or LogRsm()
        self.entries: list[Entry] = []
        self.index = self.rsm.state.applied_index
        self.next_lsn = self.rsm.state.next_lsn
        self._number = 0

    @property
    def status(self) -> LogStatus:
        return self.rsm.status()

    def entry(self, kind: EntryKind, count: int, payload: bytes) -> Entry:
        """The next entry of the log, not applied yet."""
        self.index = Index(self.index + 1)
        entry = Entry(Term(1), self.index, self.next_lsn, count, kind, payload)
        self.next_lsn = entry.next_lsn
        return entry

    def apply(self, entry: Entry) -> list[Outcome]:
        self.entries.append(entry)
        return [outcome for _, outcome in self.rsm.update(entry)]

    def noop(self, kind: EntryKind = EntryKind.NOOP) -> None:
        assert self.apply(self.entry(kind, 0, b"")) == []

    def block_entry(self, *requests: AppendRequest) -> Entry:
        """One entry with a block per request."""
        payload = encode_blocks([self._envelope(item) for item in requests])
        return self.entry(EntryKind.BLOCK, sum(item.record_count for item in requests), payload)

    def command_entry(self, command: Command | bytes) -> Entry:
        data = command if isinstance(command, bytes) else encode(command)
        return self.entry(EntryKind.COMMAND, 0, encode_command(self._proposal(), data))

    def append_all(self, *requests: AppendRequest) -> list[Outcome]:
        return self.apply(self.block_entry(*requests))

    def append(
        self,
        count: int = 1,
        *,
        session: int = 0,
        sequence: int = 0,
        epoch: int = 0,
        expected: int = 0,
        claim: Claim = CLAIM,
        block: bytes = b"",
    ) -> Outcome:
        (outcome,) = self.append_all(
            request(
                count,
                session=session,
                sequence=sequence,
                epoch=epoch,
                expected=expected,
                claim=claim,
                block=block,
            )
        )
        return outcome

    def command(self, command: Command | bytes) -> Outcome:
        (outcome,) = self.apply(self.command_entry(command))
        return outcome

    def value(self, command: Command | bytes) -> int:
        """Apply a command that must succeed; return the number that it answers with."""
        outcome = self.command(command)
        assert isinstance(outcome, Applied), outcome
        return outcome.value

    def _envelope(self, item: AppendRequest) -> BlockEnvelope:
        return BlockEnvelope(
            self._proposal(),
            item.session,
            item.sequence,
            item.writer_epoch,
            item.expected_lsn,
            item.record_count,
            item.block,
            item.claim,
        )

    def _proposal(self) -> ProposalId:
        self._number += 1
        return ProposalId(7, self._number)


def landed(lsn: int, count: int = 1, *, duplicate: bool = False) -> Applied:
    """The outcome of an append that is in the log at `lsn`."""
    return Applied(lsn=lsn, count=count, duplicate=duplicate)


def refused(outcome: Outcome) -> tuple[str, dict[str, str]]:
    """Reason and metadata of a rejection."""
    assert isinstance(outcome, Rejected), outcome
    return outcome.reason.value, dict(outcome.metadata)
