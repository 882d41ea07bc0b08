"""Sending: what a leader sends to the others, under each one's flow control.

It alone builds AppendEntries, Heartbeat, InstallSnapshot and TimeoutNow. A follower is sent nothing
while its progress is paused, so a slow or dead one costs its window and no more.
"""

from __future__ import annotations

from typing import Final

from logservice.entry import Entry, EntryKind
from logservice.ids import Index, ReplicaId, Term
from logservice.raft.log.log import payload_bytes
from logservice.raft.log.storage import CompactedError, UnavailableError
from logservice.raft.messages import AppendEntries, Heartbeat, InstallSnapshot, TimeoutNow
from logservice.raft.state import State
from logservice.raft.tracker.progress import Progress, ProgressState
from logservice.raft.tracker.room import before_blocks
from logservice.snapshot import Snapshot

_REPLICATE: Final = ProgressState.REPLICATE
_SNAPSHOT: Final = ProgressState.SNAPSHOT


def send_append(s: State, to: ReplicaId, progress: Progress, *, if_empty: bool = True) -> bool:
    """Send what comes next for `to`: entries, else (if `if_empty`) the commit index, or a snapshot.

    False when nothing was sent: the replica is paused, has everything, or storage cannot read now
    (the next heartbeat answer tries again).
    """
    state = progress.state
    if progress.flow_paused or state is _SNAPSHOT:
        return False
    log = s.log
    previous = progress.next - 1
    entries: tuple[Entry, ...] = ()
    size = 0
    try:
        # In a full window only an empty append may leave. A follower that lost the whole window
        # refuses it, and the refusal resets the window.
        if previous < log.last_index and (state is not _REPLICATE or not progress.inflights.full()):
            limit = s.config.limits.message_bytes
            entries = tuple(log.slice(previous + 1, log.last_index + 1, limit))
            if progress.closed:
                entries = before_blocks(entries)
            size = payload_bytes(entries)
        # Asked after the entries: to read them, storage has fetched the index of this one, too.
        previous_term = log.term(previous)
    except CompactedError:
        return _send_snapshot(s, to, progress)
    except UnavailableError:
        return False
    if not entries and not if_empty:
        return False
    if to in s.membership.witnesses:
        entries = _without_payloads(entries)
    commit = Index(log.committed)
    s.messages.append(
        AppendEntries(
            to=to,
            sender=s.id,
            term=Term(s.term),
            prev_index=Index(previous),
            prev_term=Term(previous_term),
            entries=entries,
            commit=commit,
        )
    )
    progress.sent_entries(len(entries), size)
    progress.sent_commit = commit
    return True


def _without_payloads(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """What a witness stores: the positions, and the membership changes it must follow."""
    return tuple(
        entry
        if entry.kind is EntryKind.CONFIG
        else Entry(entry.term, entry.index, entry.lsn, entry.record_count, entry.kind, b"")
        for entry in entries
    )


def _send_snapshot(s: State, to: ReplicaId, progress: Progress) -> bool:
    if not progress.recent_active:
        return False  # it could not receive it
    try:
        snapshot = s.log.tail.snapshot or s.log.storage.snapshot()
    except UnavailableError:
        return False
    if to in s.membership.witnesses:
        snapshot = Snapshot(
            snapshot.index, snapshot.term, snapshot.next_lsn, snapshot.membership, b""
        )
    progress.become_snapshot(snapshot.index)
    s.messages.append(InstallSnapshot(to=to, sender=s.id, term=Term(s.term), snapshot=snapshot))
    return True


def broadcast_append(s: State) -> None:
    """Send to everybody, the commit index if nothing else."""
    for replica, progress in s.tracker.others:
        send_append(s, replica, progress)


def send_heartbeat(s: State, to: ReplicaId, progress: Progress, context: bytes) -> None:
    """A heartbeat names no commit beyond what the receiver is known to have."""
    commit = min(progress.match, s.log.committed)
    s.messages.append(
        Heartbeat(to=to, sender=s.id, term=Term(s.term), commit=Index(commit), context=context)
    )
    progress.sent_commit = commit


def broadcast_heartbeat(s: State, context: bytes) -> None:
    """Heartbeats to everybody."""
    for replica, progress in s.tracker.others:
        send_heartbeat(s, replica, progress, context)


def send_timeout_now(s: State, to: ReplicaId) -> None:
    """Let `to` campaign at once."""
    s.messages.append(TimeoutNow(to=to, sender=s.id, term=Term(s.term)))
