"""Divergence: what the digests of one thing on several replicas say about them. Pure.

Theory of operation. What replicas of a shard have applied at an index is the same everywhere, byte
for byte: the entry, and the state after it (state machine safety). So a difference is proof of a
fault that no checksum showed: a bug, a write that went astray and took its checksum along, a
replica that applied something else. `digests` says what a digest covers.

Who is wrong is decided by a majority of the voters that hold records (witnesses hold none; while a
joint change is under way, by both majorities):

    all digests are equal                                   EQUAL
    a majority has one digest                               WRONG: who has another one, learners too
    none has, but those that did not answer may bring one   UNDECIDED
    none ever can                                           CONTESTED

INV-DIVERGENCE-1: nobody is wrong without a majority of voters against it.

References: docs/guarantees.md, G6, G7. Systems whose replicas differed silently, by their issues:
NATS 5576, 7791, 8319, etcd 13766.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

from logservice_wire.value import value

from logservice.ids import ReplicaId
from logservice.membership import Membership


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
