"""Following: what a replica does with what a leader sends it.

Everything is checked before anything changes. `sanity` has checked that the entries follow each
other in index, term and LSN. Here they are compared with this log: none may contradict what is
committed. Acknowledgements leave after the append is durable.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice.entry import Entry
from logservice.ids import Index, ReplicaId, Term
from logservice.raft.errors import MessageRejected, RejectReason
from logservice.raft.log.storage import UnavailableError
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
)
from logservice.raft.state import State
from logservice.raft.tracker.room import before_blocks
from logservice.raft.tracker.tracker import Configuration
from logservice.snapshot import Snapshot


def _acknowledge(s: State, to: ReplicaId, index: int) -> None:
    s.messages_after_append.append(
        AppendResponse(
            to=to,
            sender=s.id,
            term=Term(s.term),
            index=Index(index),
            room=s.room,
            closed=s.closed,
        )
    )


def handle_append(s: State, m: AppendEntries) -> None:
    """Append, acknowledge and commit; or refuse with a hint where the logs may agree."""
    log = s.log
    if m.prev_index < log.committed:
        _acknowledge(s, m.sender, log.committed)
        return
    if not log.matches(m.prev_index, m.prev_term):
        hint, hint_term = log.conflict_by_term(min(m.prev_index, log.last_index), m.prev_term)
        s.messages_after_append.append(
            AppendResponse(
                to=m.sender,
                sender=s.id,
                term=Term(s.term),
                index=m.prev_index,
                reject=True,
                hint_index=Index(hint),
                hint_term=Term(hint_term),
                room=s.room,
                closed=s.closed,
            )
        )
        return
    entries: Sequence[Entry] = before_blocks(m.entries) if s.closed else m.entries
    last_new = m.prev_index + len(entries)
    if entries:
        try:
            _append_new(s, m.prev_index, entries)
        except UnavailableError:
            return  # own storage cannot be asked just now; the leader sends again
    log.commit_to(min(m.commit, last_new))
    _acknowledge(s, m.sender, last_new)


def _append_new(s: State, previous: Index, entries: Sequence[Entry]) -> None:
    log = s.log
    lsn = log.next_lsn(previous)
    if entries[0].lsn != lsn:
        raise MessageRejected(
            RejectReason.LSN_MISMATCH, f"{entries[0].lsn} after entry {previous}, not {lsn}"
        )
    position = log.first_new(entries)
    if position == len(entries):
        return
    new = entries[position:] if position else entries
    if position:
        # A leader that had sent two entries of one term and index would break the LSNs here.
        lsn = log.next_lsn(Index(new[0].index - 1))
        if new[0].lsn != lsn:
            raise MessageRejected(
                RejectReason.LSN_MISMATCH, f"{new[0].lsn} at {new[0].index}, not {lsn}"
            )
    log.append(new)  # above the commit index, because the previous entry is not below it


def handle_heartbeat(s: State, m: Heartbeat) -> None:
    """Learn the commit index, confirm the leader."""
    if m.commit > s.log.last_index:
        # The leader says that this replica acknowledged it: so it was durable here and is lost now.
        raise MessageRejected(
            RejectReason.COMMITTED_CONFLICT, f"commit {m.commit} of {s.log.last_index} entries"
        )
    s.log.commit_to(m.commit)
    s.messages.append(
        HeartbeatResponse(
            to=m.sender,
            sender=s.id,
            term=Term(s.term),
            context=m.context,
            room=s.room,
            closed=s.closed,
        )
    )


def handle_snapshot(s: State, m: InstallSnapshot) -> None:
    """Take the snapshot over, or answer with what is committed when it brings nothing new."""
    taken = restore(s, m.snapshot)
    _acknowledge(s, m.sender, s.log.last_index if taken else s.log.committed)


def restore(s: State, snapshot: Snapshot) -> bool:
    """Replace log and membership by the snapshot's; False when the log already has its position.

    A snapshot whose membership lacks this replica is taken, too: the entry that adds the replica
    lies above it. Until that entry is applied the replica is not `promotable`.
    """
    log = s.log
    if snapshot.index <= log.committed:
        return False
    if log.matches(snapshot.index, snapshot.term):
        log.commit_to(snapshot.index)
        return False
    log.restore(snapshot)
    s.membership = snapshot.membership
    s.tracker.restore(Configuration.of(snapshot.membership), log.last_index)
    own = s.tracker.progress.get(s.id)
    if own is not None:
        own.maybe_update(own.next - 1)
    return True
