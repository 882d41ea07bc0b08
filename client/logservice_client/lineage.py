"""KnownLineage: which history of a log this handle has seen, and what it is told of another one.

Theory of operation. A log that had lost its majority for good can be continued by force
(docs/operations/lost-quorum.md). Then acknowledged records may be gone, and LSNs above the fork are
given out once more: what a program has derived from them is wrong. So the first answer says which
lineage a log has, every later request names it, and a log of another lineage refuses
(LineageChanged, not applied). From then on the handle does nothing but raise that error, until the
program says that it knows (`Shard.accept_lineage`), or takes a new client.

A store that has not applied everything yet may still name the lineage before. A lower number is
therefore no change. A client whose first answer is of such a store is told of the change by the
next one: too much, and true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import LineageChanged
from logservice_wire.v1 import log_pb2

from logservice_client.log_lines import Line

LINEAGE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Lineage:
    """A history of a log. Two are the same when their ids are.

    number: how often the log was continued by force; 0: never, and then the id is zeros. fork_lsn:
    the last LSN that it has in common with the lineage before.
    """

    number: int = 0
    id: bytes = bytes(LINEAGE_BYTES)
    fork_lsn: int = 0


class KnownLineage:
    """What one handle knows. `changed`: the error that it raises until the change is accepted."""

    __slots__ = ("_shard", "changed", "lineage")

    def __init__(self, shard: int) -> None:
        """Nothing was heard yet."""
        self._shard = shard
        self.lineage: Lineage | None = None
        self.changed: LineageChanged | None = None

    @property
    def named(self) -> bytes:
        """What a request names; b"" before the first answer."""
        return self.lineage.id if self.lineage is not None else b""

    def check(self) -> None:
        """Raises LineageChanged when the log is another one than the program knows of."""
        if self.changed is not None:
            raise LineageChanged(self.changed.message, **self.changed.metadata)

    def heard(self, position: log_pb2.LogPosition) -> None:
        """An answer that was not stale named the log's position."""
        told = position.lineage
        known = self.lineage
        if known is None:
            self.lineage = Lineage(told.number, told.id or bytes(LINEAGE_BYTES), told.fork_lsn)
        elif told.number >= known.number and told.number and told.id != known.id:
            self.refused(
                LineageChanged(
                    "an answer names another lineage",
                    expected=known.id.hex(),
                    actual=told.id.hex(),
                    number=told.number,
                    fork_lsn=told.fork_lsn,
                )
            )
        elif told.id == known.id and told.fork_lsn > known.fork_lsn:
            # A mirror was promoted: only now it is known what it has of its source.
            self.lineage = Lineage(known.number, known.id, told.fork_lsn)

    def refused(self, error: LineageChanged) -> None:
        """A store says that the log has another lineage."""
        if self.changed is None:
            Line.LINEAGE_CHANGED.say(self._shard, error)
        self.changed = error

    def accept(self) -> Lineage | None:
        """Go on with what the log is now; returns that, None when nothing was heard yet."""
        error = self.changed
        if error is not None:
            actual = bytes.fromhex(error.metadata.get("actual", ""))
            self.lineage = Lineage(error.number("number"), actual, error.number("fork_lsn"))
            self.changed = None
        return self.lineage
