"""ReplicaHost: what a replica needs from its NodeHost. A seam, so that neither knows the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from logservice.clock import Clock
from logservice.invariants import InvariantViolation
from logservice.nodehost.hearing.refusals import Refusals
from logservice.nodehost.hearing.strangers import Strangers
from logservice.nodehost.hearing.vouching import Vouching
from logservice.raft.messages import Message

if TYPE_CHECKING:
    from logservice.nodehost.replica.replica import Replica


class ReplicaHost(Protocol):
    """`node_host.NodeHost` satisfies it."""

    refusals: Refusals
    """Where messages that are not heard are counted."""
    strangers: Strangers
    """Who is told that somebody spoke who is no known member."""
    vouching: Vouching
    """Who asks the voters whether they stand behind one who says that it leads."""
    clock: Clock

    def woke(self, replica: Replica) -> None:
        """It was quiesced, and something concerns it."""
        ...

    def route(self, replica: Replica) -> None:
        """Another replica leads, or none: what waits in its intake goes there, or is sent back."""
        ...

    def send(self, replica: Replica, message: Message) -> None:
        """Hand a message to the transport, or back to the core as unreachable."""
        ...

    def leader_changed(self, replica: Replica) -> None:
        """Requests that wait may go elsewhere now."""
        ...

    def halt(self, replica: Replica, reason: str) -> None:
        """Its data cannot be trusted: it stops, and HAKeeper is told."""
        ...

    def broken(self, replica: Replica, error: InvariantViolation) -> None:
        """An invariant of it does not hold; it is halted next."""
        ...

    def membership_changed(self, replica: Replica) -> None:
        """Another membership is in force there."""
        ...
