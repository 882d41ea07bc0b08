"""ReadRounds: linearization points that wait for a quorum to confirm the leader's authority.

A round is one broadcast of heartbeats that carry the round's context. All requests that arrive
before the broadcast leaves share the round; a quorum of answers to a round confirms it and every
earlier one (thesis section 6.4). Contexts are counters of one leadership, so requests of different
replicas cannot collide, and an answer from another term is dropped by the term gate.

INV-READ: a request joins a round only before the heartbeats of that round are taken by the shell;
so the confirmation always comes after the request.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from logservice.ids import Index, ReplicaId

_CONTEXT = struct.Struct("<Q")


@dataclass(slots=True)
class ReadRequest:
    """`index` was the commit index when `sender` asked."""

    sender: ReplicaId
    context: bytes
    index: Index


@dataclass(slots=True)
class Round:
    """Requests confirmed together; `sent_at`: the lease clock when it began."""

    number: int
    sent_at: int
    requests: list[ReadRequest] = field(default_factory=list)
    acks: dict[ReplicaId, bool] = field(default_factory=dict)


class ReadRounds:
    """Mutable; owned by a leader, emptied at each change of term."""

    __slots__ = ("_last", "_open", "_rounds", "waiting")

    def __init__(self) -> None:
        """No rounds."""
        self._rounds: dict[int, Round] = {}
        self._open: Round | None = None
        self._last = 0
        self.waiting = 0

    def reset(self) -> None:
        """Forget every round; the callers ask again."""
        if self._rounds:
            self._rounds = {}
        self._open = None
        self.waiting = 0

    def join(self, request: ReadRequest) -> bool:
        """Add to the round that has not left yet; False when there is none."""
        if self._open is None:
            return False
        self._open.requests.append(request)
        self.waiting += 1
        return True

    def start(self, leader: ReplicaId, now: int) -> bytes:
        """Open a round, the leader's own answer included; returns its context."""
        self._last += 1
        self._open = Round(self._last, now, acks={leader: True})
        self._rounds[self._last] = self._open
        return _CONTEXT.pack(self._last)

    def close(self) -> None:
        """The heartbeats of the open round are leaving."""
        self._open = None

    def newest_context(self) -> bytes:
        """The context to repeat in regular heartbeats; empty when nothing waits."""
        return _CONTEXT.pack(self._last) if self._last in self._rounds else b""

    def acknowledge(self, replica: ReplicaId, context: bytes) -> Round | None:
        """`replica` answered `context`; returns the round, None when no such round waits.

        The open round does not wait yet: its heartbeats have not left, so nobody can have answered.
        """
        if len(context) != _CONTEXT.size:
            return None
        found = self._rounds.get(_CONTEXT.unpack(context)[0])
        if found is None or found is self._open:
            return None
        found.acks[replica] = True
        return found

    def confirm(self, confirmed: Round) -> list[ReadRequest]:
        """Take out the requests of `confirmed` and of every earlier round, in order of arrival."""
        served: list[ReadRequest] = []
        for number in [number for number in self._rounds if number <= confirmed.number]:
            served.extend(self._rounds.pop(number).requests)
        self.waiting -= len(served)
        return served
