"""Lineage: which history of a log its LSNs are of.

Theory of operation. A log whose majority is gone for good can be continued by force, from what one
replica has (`logservice recover`). What that replica lacks is lost, and its LSNs are given out once
more. So an LSN alone does not say which record is meant: two histories have parted at the *fork
LSN*, the last one that both have. A lineage names one of them: 128 bits drawn at random by the tool
that forks a log, never by a store. Two lineages are the same when their ids are equal. The number
counts the forks, for people; the fork of another copy may have the same number.

A log that was never continued by force has number 0 and an id of zeros. It has no trace of any of
this, on disk or on the wire.

A fork is an entry of the log (`rsm.commands.BeginLineage`), so a restart, a replica that catches up
and an aligned snapshot see it where it happened. A log that is restored from an archive is another
lineage of its source, too, from its first entry on (`rsm.restoring`). Of a mirror nobody knows the
fork LSN until it is promoted: until then it is the one below its base. A caller names the lineage
that he believes in; a log of another one refuses him.

INV-LINEAGE-1: a log's lineage changes only by an entry that names the present one as its parent,
or that begins a restore in a log in which nothing ever happened.
INV-LINEAGE-2: every writer epoch that a lineage grants is above ``number << EPOCH_BITS``, and none
of an earlier lineage is, as long as that one granted fewer than 2 ** EPOCH_BITS epochs. So none is
granted twice, although the entries that granted the last ones may be lost (G9).
INV-LINEAGE-3: a session ends with its lineage. A sequence that was acked and lost is answered by
SESSION_EXPIRED, never as a repetition, and is never applied a second time.
INV-LINEAGE-4: a timestamp that an earlier lineage gave out is not given out again, as long as the
lost entries gave out fewer than TIMESTAMP_STEP.

INV-LINEAGE-2 and 4 speak of a lineage and those that it continues. Two that were made of the same
evidence, one after the other, know nothing of each other: they grant the same epochs and give out
the same timestamps. Only their ids tell them apart, and so whoever compares lineages compares ids
(tests/cli/test_sibling_recoveries.py plays it).

References: docs/operations/lost-quorum.md; PostgreSQL's timelines.
"""

from __future__ import annotations

from typing import Final

from logservice_wire.value import value

from logservice.bounds import LINEAGE_EPOCH_BITS, LINEAGES_MAX
from logservice.ids import Lsn

LINEAGE_BYTES: Final = 16
NO_LINEAGE: Final = bytes(LINEAGE_BYTES)
"""The id of the lineage of a log that was never continued by force."""


@value
class Lineage:
    """A history; the default is that of a log that was never continued by force.

    number: how many forks there were. parent: the id of the lineage that it continues. fork_lsn:
    the last LSN that it has from there.
    """

    number: int = 0
    id: bytes = NO_LINEAGE
    parent: bytes = NO_LINEAGE
    fork_lsn: Lsn = Lsn(0)

    @property
    def epoch_floor(self) -> int:
        """Every writer epoch of this lineage is above it (INV-LINEAGE-2)."""
        return self.number << LINEAGE_EPOCH_BITS


FIRST: Final = Lineage()
"""The lineage of a log that was never continued by force."""


def problem(number: int, lineage: bytes, parent: bytes) -> str:
    """Why no lineage behind another one is like this; "" when one may be."""
    if len(lineage) != LINEAGE_BYTES or len(parent) != LINEAGE_BYTES:
        return f"a lineage has {LINEAGE_BYTES} bytes"
    if not 0 < number <= LINEAGES_MAX:
        return "number of the lineage"
    if lineage in (NO_LINEAGE, parent):
        return "a lineage that is there already"
    if (number == 1) != (parent == NO_LINEAGE):
        return "parent of the lineage"
    return ""
