"""Contents: compares what a snapshot or an append holds with its header and with what is committed.

The core checks what can be seen from a message and its own log (`raft.sanity`, `raft.following`):
entries without holes, with LSNs that follow each other, with counts that their kind can have. This
file checks what only the shell can tell. It does not look for envelopes that do not decode: every
replica judges them alike when they are applied, and they become gaps (`rsm.log_rsm`).

INV-HEAR-3: nothing of a snapshot is durable, and nothing of the log goes, before its state decodes
and stands at the index and LSN that the snapshot says.
"""

from __future__ import annotations

from logservice.ids import NUMBER_MAX, Index
from logservice.raft.core import Raft
from logservice.raft.messages import AppendEntries
from logservice.snapshot import Snapshot, SnapshotCorrupt
from logservice.state_machine import StateMachine

_FIRST = Index(1)
"""The index at which a shard begins; its first state has applied nothing yet."""


def snapshot_problem(snapshot: Snapshot, machine: StateMachine, raft: Raft) -> str:
    """Why a snapshot is not taken; empty when it may be taken, or brings nothing new anyway."""
    if snapshot.index <= raft.commit:
        return ""
    if max(snapshot.index, snapshot.term, snapshot.next_lsn) >= NUMBER_MAX:
        return "a number that no replica reaches"
    return state_problem(snapshot, machine) or _membership_problem(snapshot, raft)


def state_problem(snapshot: Snapshot, machine: StateMachine) -> str:
    """Why the state machine cannot start from `snapshot`; empty when it can."""
    try:
        stands = machine.check_snapshot(snapshot.state)
    except SnapshotCorrupt as error:
        return str(error)
    fresh = stands.applied == 0 and snapshot.index == _FIRST
    if stands.applied not in (None, snapshot.index) and not fresh:
        return f"the state has applied {stands.applied}, the snapshot says {snapshot.index}"
    if stands.next_lsn not in (None, snapshot.next_lsn):
        return f"the state's next LSN is {stands.next_lsn}, the snapshot says {snapshot.next_lsn}"
    return ""


def _membership_problem(snapshot: Snapshot, raft: Raft) -> str:
    ours, theirs = raft.membership, snapshot.membership
    if theirs.change_epoch > snapshot.index:
        return f"its membership is of entry {theirs.change_epoch}, behind it"
    if theirs.change_epoch < ours.change_epoch:
        return f"its membership {theirs.change_epoch} is older than {ours.change_epoch} here"
    if not set(ours.removed) <= set(theirs.removed):
        return "it brings back a replica that was removed"
    return ""


def contradicts(message: AppendEntries, raft: Raft) -> bool:
    """Whether `message` has another entry where one is committed here. No leader of those that
    committed the entry sends that. The message is dropped and the sender stays believed: the others
    may follow it for long, and without it this replica would have no leader. The check is cheap for
    what is sent normally, which lies above the commit index.

    A message of an older term contradicts nothing. Its sender was paused or cut off, and has yet to
    learn that others were committed in place of what it had under way. The core tells it the term.
    """
    committed = raft.commit
    if message.term < raft.term or message.prev_index >= committed:
        return False
    if raft.term_of(message.prev_index) not in (None, message.prev_term):
        return True
    return any(
        entry.index <= committed and raft.term_of(entry.index) not in (None, entry.term)
        for entry in message.entries
    )
