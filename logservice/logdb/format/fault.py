"""Fault: why a replica's data cannot be trusted, and what restoring it would take.

A faulty replica neither votes nor acknowledges nor leads. It may be repaired in place, from the
committed entries of its peers, only if nothing but entries was lost: then its hard state still
says what it promised, and the entries it may have acknowledged are among `damaged_from ..
acked_through`. Every other fault ends with a replacement under a new replica id.

- INV-FAULT-1: `acked_through` is at least the last index that the replica ever acknowledged, and
  every entry below `damaged_from` is intact as far as anybody has looked.
"""

from __future__ import annotations

from logservice_wire.value import value

from logservice.ids import Index


@value
class Fault:
    """`reason` for people; empty in the record that says that a repair is complete.

    `damaged_from`: first entry that is lost. `acked_through`: last one the replica may have
    acknowledged. Both are 0 when it cannot be repaired in place.
    """

    reason: str
    damaged_from: Index = Index(0)
    acked_through: Index = Index(0)

    @property
    def repairable(self) -> bool:
        """Only entries are lost, and it is known which."""
        return self.damaged_from > 0

    def joined(self, other: Fault) -> Fault:
        """Both faults as one, with the reason that came first."""
        if not self.repairable or not other.repairable:
            return Fault(self.reason)
        return Fault(
            self.reason,
            min(self.damaged_from, other.damaged_from),
            max(self.acked_through, other.acked_through),
        )

    def reaching(self, last: int) -> Fault:
        """The same fault when the replica's log has entries through `last`, which it may have
        acknowledged.
        """
        if not self.repairable or last <= self.acked_through:
            return self
        return Fault(self.reason, self.damaged_from, Index(last))


REPAIRED = Fault("")
"""What the record says that ends a repair."""
