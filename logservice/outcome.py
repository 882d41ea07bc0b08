"""Outcome: what a state machine answers to one proposal.

A state machine never raises on input: a bad command is a `Rejected`. The shell turns it into the
typed error of the same reason for the caller who proposed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from logservice_wire.errors import LogServiceError, Reason, error_for
from logservice_wire.value import value


@value
class Applied:
    """The proposal took effect, or had taken effect before (`duplicate`).

    lsn, count: for appends, the records' first LSN and number. value: for commands that answer with
    a number (session id, first timestamp, epoch, truncation LSN); for appends, the append time in
    microseconds since 1970, 0 for none. data: any other answer.
    """

    lsn: int = 0
    count: int = 0
    value: int = 0
    data: bytes = b""
    duplicate: bool = False


@value
class Rejected:
    """The proposal was refused, deterministically, on every replica."""

    reason: Reason
    metadata: Mapping[str, str] = field(default_factory=dict)

    def error(self) -> LogServiceError:
        """The exception for the caller."""
        return error_for(self.reason, **self.metadata)


Outcome = Applied | Rejected


def belongs_to(owner: str) -> Rejected:
    """Refused: it belongs to another identity, and the command does not say `override`."""
    return Rejected(Reason.PERMISSION_DENIED, {"role": "admin", "owner": owner})
