"""Divergence: what the digests of one thing on several replicas say about them. Pure.

Theory of operation. What replicas of a shard have applied at an index is the same everywhere, byte
for byte: the entry, and the state after it (state machine safety). So a difference is proof of a
fault that no checksum showed: a bug, a write that went astray and took its checksum along, a
replica that applied something else. The digest of a range covers what a reader or a state machine
would see of every entry (index, term, LSN, records, kind, payload) and nothing of how it is stored:
segments, copies by garbage collection and caches do not show in it.

Who is wrong is decided by a majority of the voters that hold records (witnesses hold none; while a
joint change is under way, by both majorities):

    all digests are equal                                   EQUAL
    a majority has one digest                               WRONG: who has another one, learners too
    none has, but those that did not answer may bring one   UNDECIDED
    none ever can                                           CONTESTED

INV-DIVERGENCE-1: nobody is wrong without a majority of voters against it.

References: DESIGN section 3 (G6, G7). Systems whose replicas differed silently, by their issues:
NATS 5576, 7791, 8319, etcd 13766.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Collection, Mapping
from typing import Final

from logservice.entry import Entry
from logservice.ids import Index, ReplicaId
from logservice.membership import Membership
from logservice.value import value

DIGEST_BYTES: Final = 16
"""Two different ranges have the same digest once in 2^64 pairs; nobody forges them on purpose."""

STATE: Final = Index(0)
"""In the place of a range's first entry: the state after entry `high` is meant, not entries."""

STATE_FORM_BYTES: Final = 6
"""Magic and version of a state's byte form (`rsm.snapshot_codec`): only equal ones are compared."""

STATE_DIGEST_BYTES: Final = STATE_FORM_BYTES + DIGEST_BYTES

_ENTRY = struct.Struct("<QQQIIQ")


class RangeDigest:
    """Of entries in index order. `add` may run on any thread, one at a time."""

    def __init__(self) -> None:
        """Of no entries."""
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, entry: Entry) -> None:
        """The next one."""
        payload = entry.payload
        self._hash.update(
            _ENTRY.pack(
                entry.index, entry.term, entry.lsn, entry.record_count, entry.kind, len(payload)
            )
        )
        self._hash.update(payload)

    def value(self) -> bytes:
        """The digest so far."""
        return self._hash.digest()


def digest_of_state(state: bytes) -> bytes:
    """Of a log shard's state in its canonical bytes (INV-RSM-CANON), behind what names its form."""
    digest = hashlib.blake2b(state, digest_size=DIGEST_BYTES).digest()
    return state[:STATE_FORM_BYTES] + digest


class Verdict(enum.Enum):
    """See the table above."""

    EQUAL = "equal"
    WRONG = "wrong"
    UNDECIDED = "undecided"
    CONTESTED = "contested"


@value
class Judgement:
    """wrong: who differs from the majority, ascending; empty unless the verdict is WRONG.
    majority: a majority has one digest, so the matter is settled.
    """

    verdict: Verdict
    wrong: tuple[ReplicaId, ...] = ()
    majority: bool = False


def holders(membership: Membership) -> tuple[ReplicaId, ...]:
    """Members that hold records, ascending."""
    ids = (*membership.voters, *membership.outgoing, *membership.learners)
    return tuple(sorted(set(ids) - set(membership.witnesses)))


def judge(membership: Membership, digests: Mapping[ReplicaId, bytes]) -> Judgement:
    """What the digests of one range (or state) say; those of strangers do not count."""
    known = holders(membership)
    digests = {replica: digests[replica] for replica in known if replica in digests}
    if len(set(digests.values())) <= 1:
        return Judgement(Verdict.EQUAL, majority=_majority(membership, digests))
    missing = [replica for replica in known if replica not in digests]
    hope = False
    for digest in sorted(set(digests.values())):
        having = [replica for replica, found in digests.items() if found == digest]
        if _majority(membership, having):
            wrong = tuple(replica for replica, found in digests.items() if found != digest)
            return Judgement(Verdict.WRONG, wrong, majority=True)
        hope = hope or _majority(membership, [*having, *missing])
    return Judgement(Verdict.UNDECIDED if hope else Verdict.CONTESTED)


def _majority(membership: Membership, having: Collection[ReplicaId]) -> bool:
    halves = [membership.voters, *([membership.outgoing] if membership.joint else [])]
    for half in halves:
        full = [voter for voter in half if voter not in membership.witnesses]
        if 2 * sum(voter in having for voter in full) <= len(full):
            return False
    return True
