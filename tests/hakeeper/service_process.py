"""A process of one of the database's own services, as the client library behaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.store_commands import ServiceOrder
from logservice.hakeeper.commands.verbs import WorkState

STOP_TICKS: Final = 100
"""TN_STOP_S of the client in ticks."""


@dataclass(eq=False)
class Process:
    """A process of a service, as the client library behaves: one heartbeat at a time, and it stops
    what it serves when the newest one that was answered was sent too long ago.
    """

    name: str
    boot: int
    kind: str = "tn"
    owner: str = "db"
    takes: bool = True
    obeys: bool = True
    """It begins what it is given."""
    keeps: bool = False
    """It goes on with what is taken from it, as long as it is heard."""
    sequence: int = 0
    drained: bool = False
    """It was told to drain, and serves nothing."""
    serving: dict[int, int] = field(default_factory=dict)
    handled: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    """Commands that it was given, by their ids: each is handled once."""
    answered_sent: int = -1000
    up: bool = True

    def say(self) -> proposals.ServiceHeartbeat:
        self.sequence += 1
        return proposals.ServiceHeartbeat(
            self.name,
            self.kind,
            "host:1",
            acked=tuple(self.handled),
            owner=self.owner,
            boot_id=self.boot,
            sequence=self.sequence,
            drained=self.drained,
            serving=tuple(sorted(self.serving.items())),
            takes_tn_shards=self.takes,
        )

    def hear(self, reply: replies.HeartbeatReply, sent: int, now: int) -> None:
        if now - sent >= STOP_TICKS:
            return
        self.answered_sent = sent
        told = {one.tn_shard: one.replica for one in reply.serve}
        if self.keeps:
            told = {**self.serving, **told}
        self.serving = told if self.obeys else {}
        told_to_drain = reply.work_state in (WorkState.DRAINING, WorkState.DRAINED)
        self.drained = told_to_drain and not self.serving
        for queued in reply.commands:
            if isinstance(queued.command, ServiceOrder) and queued.id not in self.handled:
                self.handled[queued.id] = queued.command.kind, queued.command.payload

    def pass_time(self, now: int) -> None:
        if now - self.answered_sent >= STOP_TICKS:
            self.serving = {}
