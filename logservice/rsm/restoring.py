"""Restoring: how the records of another log get into this one under their own LSNs.

Theory of operation. A restored log is an ordinary log of an ordinary shard, whose first entries are
those of a restore. So replication, snapshots, catch-up, comparison and digests know nothing of it,
it works with any number of replicas while the cluster runs, and a store that is killed loses
nothing. (Files made offline, as a recovery makes them, would need every store of the log stopped,
and a second way for records to get into a log.)

1. `BeginRestore` makes a new log, in which nothing ever happened, a restoring one. It promises the
   range [base, end) and its digest.
2. The blocks come as ordinary entries, in the order of their LSNs. The leader gives LSNs as always,
   and an entry's LSN follows from those before it; so a block is taken only if it *expects* the LSN
   that it would get. What the source has no record for is a *restored gap*: an envelope without
   a block, whose sequence number says the reason. The LSNs below the base are gaps of that kind,
   too, of up to RESTORED_GAP_LSNS_MAX LSNs; they are truncated at the end.
3. `EndRestore` opens the log. The leader's store proposes it, and states the digest of what it has
   read from its own log.

An envelope of a restore has no session, and the restore's lineage as its nonce. No other block is
taken meanwhile, and no command that changes what the log is to be: they are answered by
SHARD_RESTORING. Neither is anything read. A Close is taken: it is how a half restored log is given
up, because deletion asks for one.

A *mirror* is a restore with an open end: it follows a log that goes on being appended to, and
nobody knows yet where it will end. It promises no end and no digest. `EndRestore` names both when
it is promoted, and its lineage forks there. Its digest may begin at a later LSN than its base: who
promotes has compared what lies below before, while the source was still appended to, and what a
mirror has taken does not change any more. Until then it differs from another restore in this:

- What it has is read, from the moment at which its next LSN is its base. It is not verified: each
  block has its own checksum, and the digest comes with the promote.
- So LSNs below the base are truncated at that moment and not at the end, and from then on the base
  is the first LSN behind the truncation.
- `TruncateMirror` moves that truncation on, as the source's is moved; else the mirror would grow
  for ever. Readers may set holds, which keep it back as they do in every log.

INV-RESTORE-1: only a log in which nothing ever happened begins to be restored. INV-RESTORE-2: while
it is restored a block is applied only if it is of the restore and at the LSN that it expects; so
LSN n of the log is LSN n of the source, or the log never opens. INV-RESTORE-3: it opens only when
its next LSN is the end and the digest of [base, end), as read from the log itself, is the promised
one. INV-RESTORE-4: nothing of the source's writer holds in it: its lineage is new, and every epoch
that it grants or has is above every one that the source can have granted (INV-LINEAGE-2). What an
archive says of the epoch is refused when it cannot be true, and otherwise decides only whether
there was one.

INV-MIRROR-1: LSN n of a mirror is LSN n of its source, or a promote that names the source's digest
of a range with that LSN does not open it. It takes blocks as every restore does. A forced promote
names no digest, and says nothing of what the source has. INV-MIRROR-2: nothing
opens a mirror but an EndRestore whose range is all that the mirror has left when it is applied, and
whose digest, from the LSN on that it names, the leader's store has read from its own log. A block
or a truncation that came between makes it fail, and nothing is changed. INV-MIRROR-TRUNC: a mirror
truncates only what it has, as far as holds allow, by an entry of its own lineage. INV-MIRROR-EPOCH:
a mirror has a writer epoch from its beginning, so that a log whose source gets its first writer
later does not open without one.

References: docs/operations/restore-a-log.md; docs/operations/branch.md;
`archive.restoring` feeds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logservice_wire.errors import Reason
from logservice_wire.value import value

from logservice.bounds import RESTORED_GAP_LSNS_MAX, RESTORED_LSN_MAX
from logservice.ids import Lsn
from logservice.outcome import Rejected

RESTORED_GAPS: Final[Mapping[int, Reason]] = {
    1: Reason.FENCED,
    2: Reason.WRONG_EXPECTED_LSN,
    3: Reason.SEQUENCE_GAP,
    4: Reason.CORRUPT_BLOCK,
}
"""The sequence number of a restored gap -> why there is no record."""


@value
class Restoring:
    """The promise: the LSNs [base_lsn, end_lsn), and their digest. Of a mirror: no end, zeros for a
    digest, and the base moves with the truncation.
    """

    base_lsn: Lsn
    end_lsn: Lsn
    digest: bytes

    @property
    def mirror(self) -> bool:
        """Whether the end is open."""
        return not self.end_lsn

    def refusal(self, next_lsn: Lsn) -> Rejected:
        """The answer to whoever wants something of the log before it is open."""
        told = {"next": str(next_lsn), "end": str(self.end_lsn)}
        if self.mirror:
            told["base"] = str(self.base_lsn)
        return Rejected(Reason.SHARD_RESTORING, told)


def problem(restoring: Restoring, lsn: Lsn, count: int, size: int, sequence: int) -> str:
    """Why a block of the restore with `count` records and `size` bytes is none that could be at
    `lsn`; "" when it may be. `sequence`: of a gap, why there are no records; 0 for a block.
    """
    if count < 1 or lsn + count > (restoring.end_lsn or RESTORED_LSN_MAX):
        return "LSNs outside the range"
    if sequence:
        if sequence not in RESTORED_GAPS or size or count > RESTORED_GAP_LSNS_MAX:
            return "no gap"
        if lsn < restoring.base_lsn < lsn + count:
            return "a gap over the base"
    elif not size or lsn < restoring.base_lsn:
        return "no block"
    return ""
