"""Sanity: what a message from a peer must satisfy before the core looks at it.

Each check is a pure function of the message and this replica's state. It raises MessageRejected for
what no correct replica sends, so the handlers do not look for it again. Some things can only be
told while a message is handled (INV-LOG-LSN against this log, an answer beyond its end); the
handlers check those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from logservice.entry import counts_error
from logservice.ids import NO_REPLICA, NUMBER_MAX, Index
from logservice.raft.errors import MessageRejected, RejectReason
from logservice.raft.log.storage import CompactedError, UnavailableError
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    Quiesce,
    RequestVote,
    SnapshotStatus,
    Unreachable,
    VoteResponse,
)
from logservice.raft.ready import Role
from logservice.raft.state import State


def _from_leader(s: State, m: Message) -> None:
    """One leader per term: another sender that claims to lead it is wrong or forged."""
    term = m.term
    if term == s.term:
        if term and (m.sender == s.lead or (s.lead == NO_REPLICA and s.role is not Role.LEADER)):
            return
        reason = RejectReason.SECOND_LEADER if term else RejectReason.OUT_OF_RANGE
        raise MessageRejected(reason, f"{m.sender} in term {term} of {s.lead}")
    if term == 0:
        raise MessageRejected(RejectReason.OUT_OF_RANGE, "a leader of term 0")


def _append(s: State, m: AppendEntries) -> None:
    if not (0 <= m.prev_index < NUMBER_MAX and m.prev_term >= 0 and m.commit >= 0):
        raise MessageRejected(RejectReason.OUT_OF_RANGE, f"append after {m.prev_index}")
    _check_entries(m)
    _from_leader(s, m)


def _check_entries(m: AppendEntries) -> None:
    """Raise MessageRejected unless the entries form a chain that a correct leader could send."""
    index, term = m.prev_index, m.prev_term
    if term > m.term:
        raise MessageRejected(RejectReason.BROKEN_ENTRIES, "term beyond the leader's")
    lsn = -1
    for entry in m.entries:
        index = Index(index + 1)
        if entry.index != index or not term <= entry.term <= m.term:
            raise MessageRejected(
                RejectReason.BROKEN_ENTRIES, f"({entry.term}, {entry.index}) at {index}"
            )
        if lsn >= 0 and entry.lsn != lsn:
            raise MessageRejected(RejectReason.LSN_MISMATCH, f"{entry.lsn} at {index}, not {lsn}")
        if wrong := counts_error(entry):
            raise MessageRejected(RejectReason.BROKEN_ENTRIES, wrong)
        term = entry.term
        lsn = entry.lsn + entry.record_count


def _quiesce(s: State, m: Quiesce) -> None:
    if not 0 < m.index < NUMBER_MAX:
        raise MessageRejected(RejectReason.OUT_OF_RANGE, f"quiesce at {m.index}")
    _from_leader(s, m)


def _install(s: State, m: InstallSnapshot) -> None:
    _check_snapshot(s, m)
    _from_leader(s, m)


def _check_snapshot(s: State, m: InstallSnapshot) -> None:
    """Raise MessageRejected for a snapshot that no correct leader sends to this log."""
    snapshot = m.snapshot
    if snapshot.index < 1 or not 1 <= snapshot.term <= m.term or snapshot.next_lsn < 1:
        raise MessageRejected(RejectReason.BAD_SNAPSHOT, f"({snapshot.term}, {snapshot.index})")
    if not snapshot.membership.voters:
        raise MessageRejected(RejectReason.BAD_SNAPSHOT, "no voters")
    if snapshot.index > s.log.committed:
        try:
            known = s.log.next_lsn(s.log.committed)
        except (CompactedError, UnavailableError):
            return
        if snapshot.next_lsn < known:
            raise MessageRejected(RejectReason.BAD_SNAPSHOT, f"LSN {snapshot.next_lsn} < {known}")


def _from_member(s: State, m: Message) -> None:
    if m.sender not in s.tracker.progress:
        raise MessageRejected(RejectReason.UNKNOWN_PEER, f"replica {m.sender}")


def _append_response(s: State, m: AppendResponse) -> None:
    if m.sender not in s.tracker.progress:
        raise MessageRejected(RejectReason.UNKNOWN_PEER, f"replica {m.sender}")
    if not (0 <= m.index < NUMBER_MAX and 0 <= m.hint_index <= m.index and m.hint_term >= 0):
        raise MessageRejected(RejectReason.OUT_OF_RANGE, f"answer for {m.index}")


def _request_vote(_: State, m: RequestVote) -> None:
    if not (0 <= m.last_index < NUMBER_MAX and 0 <= m.last_term <= m.term):
        raise MessageRejected(RejectReason.OUT_OF_RANGE, f"log ({m.last_term}, {m.last_index})")


def _local_only(_: State, m: Message) -> None:
    raise MessageRejected(RejectReason.LOCAL_ONLY, type(m).__name__)


CHECKS: Final[dict[type, Callable[[State, Any], None]]] = {
    AppendEntries: _append,
    Heartbeat: _from_leader,
    Quiesce: _quiesce,
    InstallSnapshot: _install,
    AppendResponse: _append_response,
    HeartbeatResponse: _from_member,
    VoteResponse: _from_member,
    RequestVote: _request_vote,
    Unreachable: _local_only,
    SnapshotStatus: _local_only,
}
"""By message type; types without an entry have nothing to check but their address and term."""
