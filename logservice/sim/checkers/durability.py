"""Nothing is promised before the disk has it. The disk is asked, not the code that writes to it.

- What log storage calls finished is synced: bytes of the segment, and its name.
- What a new life has recovered is synced before anybody may rely on it: it was perhaps only in the
  page cache when the process before it was killed.
- A message that carries a term, a vote or an acknowledgement leaves only when log storage has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logservice.hard_state import HardState
from logservice.ids import Index
from logservice.logdb.format.update import Update
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.replica import Replica
from logservice.raft.messages import AppendResponse, Message, RequestVote, VoteResponse
from logservice.sim.checks import Checker

if TYPE_CHECKING:
    from logservice.sim.store import SimStore


class Durability(Checker):
    """See the module's text."""

    name = "durability"

    def finished(
        self, store: SimStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        """See `Checker`."""
        if group.written and group.has_bytes and not store.disk.durable(group.handle):
            self.wrong(f"{store.store_id}: a group counts as durable and was not synced")

    def started(self, store: SimStore, parts: StoreParts) -> None:
        """See `Checker`."""
        for directory in parts.host.directories:
            for path in store.disk.unsynced(f"{directory.logdb.directory}/segments"):
                self.wrong(f"{store.store_id}: recovered from {path}, which was not synced")

    def sent(self, store: SimStore, replica: Replica, message: Message) -> None:
        """See `Checker`."""
        if isinstance(message, RequestVote | VoteResponse) and message.pre:
            return
        assert store.parts is not None
        log = replica.directory.logdb.log(replica.shard, replica.replica_id)
        hard = log.hard_state
        if message.term > hard.term:
            self._early(replica, message, hard)
        elif isinstance(message, RequestVote):
            # A later term that is durable with it does as well: nobody votes in this one again.
            if hard.term == message.term and hard.vote != replica.replica_id:
                self._early(replica, message, hard)
        elif isinstance(message, VoteResponse):
            if not message.reject and hard.term == message.term and hard.vote != message.to:
                self._early(replica, message, hard)
        elif isinstance(message, AppendResponse) and not message.reject and message.index:
            self._acknowledged(replica, message, log)

    def _early(self, replica: Replica, message: Message, hard: HardState) -> None:
        self.wrong(
            f"shard {replica.shard} replica {replica.replica_id} sent {message} before its term "
            f"and vote are durable ({hard})"
        )

    def _acknowledged(self, replica: Replica, message: AppendResponse, log: ReplicaLog) -> None:
        who = f"shard {replica.shard} replica {replica.replica_id}"
        if message.index > log.last_index():
            self.wrong(f"{who} acknowledges {message.index}, durable is {log.last_index()}")
        elif message.index >= log.first_index():
            term = int(log.term(Index(message.index)))
            if term > message.term:
                self.wrong(f"{who} acknowledges {message.index} of term {term} in {message}")
