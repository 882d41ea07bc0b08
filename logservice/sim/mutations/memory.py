"""Seeded bugs of what waits for the disk, in worlds in which little may."""

from __future__ import annotations

from typing import Any

from logservice.ids import Index
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.unwritten import Unwritten
from logservice.raft.messages import AppendEntries, AppendResponse
from logservice.sim.config import make_little_memory
from logservice.sim.mutations.registry import mutation_in, wrap


@mutation_in(make_little_memory)
def _what_was_written_stays_counted() -> None:
    wrap(Unwritten, "give_back", lambda _: lambda _self, _charges: None)


@mutation_in(make_little_memory)
def _what_a_leader_sends_is_not_counted() -> None:
    wrap(Unwritten, "take", lambda _: lambda _self, _sender, _size: True)


@mutation_in(make_little_memory)
def _what_is_not_taken_is_acknowledged() -> None:
    def mutate(original: Any) -> Any:
        def has_room(self: Replica, heard: Any) -> bool:
            if original(self, heard):
                return True
            if isinstance(heard, AppendEntries):
                answer = AppendResponse(
                    to=heard.sender,
                    sender=self.replica_id,
                    term=heard.term,
                    index=Index(heard.prev_index + len(heard.entries)),
                )
                self._host.send(self, answer)
            return False

        return has_room

    wrap(Replica, "_has_room_for", mutate)
