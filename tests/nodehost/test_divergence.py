"""Which replica is wrong when digests differ: the table against a judge that counts by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from msgspec import structs

from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.membership import Membership
from logservice.nodehost.integrity.digests import DIGEST_BYTES, RangeDigest
from logservice.nodehost.integrity.divergence import Judgement, Verdict, holders, judge


def ids(*numbers: int) -> tuple[ReplicaId, ...]:
    return tuple(ReplicaId(number) for number in numbers)


THREE = Membership(voters=ids(1, 2, 3))
ENTRY = Entry(Term(2), Index(7), Lsn(9), 2, EntryKind.BLOCK, b"payload")


def judged(membership: Membership, **digests: str) -> Judgement:
    given = {ReplicaId(int(name[1:])): digest.encode() for name, digest in digests.items()}
    return judge(membership, given)


def test_a_majority_is_right() -> None:
    assert judged(THREE, r1="a", r2="a", r3="b") == Judgement(Verdict.WRONG, ids(3), majority=True)
    assert judged(THREE, r1="b", r2="a", r3="a") == Judgement(Verdict.WRONG, ids(1), majority=True)
    five = Membership(voters=ids(1, 2, 3, 4, 5))
    assert judged(five, r1="a", r2="b", r3="a", r4="c", r5="a").wrong == ids(2, 4)


def test_equal_digests_are_settled_only_by_a_majority() -> None:
    assert judged(THREE, r1="a", r2="a") == Judgement(Verdict.EQUAL, majority=True)
    assert judged(THREE, r1="a") == Judgement(Verdict.EQUAL, majority=False)


def test_two_of_three_that_differ_wait_for_the_third() -> None:
    assert judged(THREE, r1="a", r2="b") == Judgement(Verdict.UNDECIDED)
    assert judged(THREE, r1="a", r2="b", r3="c") == Judgement(Verdict.CONTESTED)
    two = Membership(voters=ids(1, 2))
    assert judged(two, r1="a", r2="b") == Judgement(Verdict.CONTESTED)
    four = Membership(voters=ids(1, 2, 3, 4))
    assert judged(four, r1="a", r2="a", r3="b", r4="b") == Judgement(Verdict.CONTESTED)
    assert judged(four, r1="a", r2="a", r3="b") == Judgement(Verdict.UNDECIDED)


def test_learners_may_be_wrong_but_never_right() -> None:
    members = structs.replace(THREE, learners=ids(7, 8))
    assert judged(members, r1="a", r2="a", r7="b").wrong == ids(7)
    assert judged(members, r1="a", r7="b", r8="b") == Judgement(Verdict.UNDECIDED)
    alone = Membership(voters=ids(1), learners=ids(7, 8))
    assert judged(alone, r1="a", r7="b", r8="b").wrong == ids(7, 8)


def test_witnesses_hold_nothing_and_do_not_count() -> None:
    members = structs.replace(THREE, witnesses=ids(3))
    assert holders(members) == ids(1, 2)
    assert judged(members, r1="a", r2="b", r3="a") == Judgement(Verdict.CONTESTED)


def test_a_joint_change_needs_both_majorities() -> None:
    joint = Membership(voters=ids(2, 3, 4), outgoing=ids(1, 2, 3))
    assert judged(joint, r1="b", r2="a", r3="a", r4="a").wrong == ids(1)
    assert judged(joint, r1="b", r2="b", r3="a", r4="a") == Judgement(Verdict.CONTESTED)
    assert judged(joint, r1="b", r2="a", r4="a") == Judgement(Verdict.UNDECIDED)


def test_strangers_do_not_count() -> None:
    assert judged(THREE, r1="a", r2="a", r9="b") == Judgement(Verdict.EQUAL, majority=True)


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_nobody_is_wrong_without_a_majority_against_it(voters: int) -> None:
    """INV-DIVERGENCE-1, for every way in which up to five voters can answer."""
    members = Membership(voters=ids(*range(1, voters + 1)))
    for answers in itertools.product(("", "a", "b", "c"), repeat=voters):
        given = {ReplicaId(n): text.encode() for n, text in enumerate(answers, 1) if text}
        counts = [sum(text == one for text in answers) for one in "abc"]
        silent = answers.count("")
        found = judge(members, given)
        right = max(counts) * 2 > voters
        assert found.majority == right
        if len(set(given.values())) <= 1:
            assert found.verdict is Verdict.EQUAL
        elif right:
            winner = "abc"[counts.index(max(counts))].encode()
            wrong = tuple(sorted(one for one, text in given.items() if text != winner))
            assert (found.verdict, found.wrong) == (Verdict.WRONG, wrong)
        else:
            hope = (max(counts) + silent) * 2 > voters
            assert found.verdict is (Verdict.UNDECIDED if hope else Verdict.CONTESTED)
            assert not found.wrong


def digest(*entries: Entry) -> bytes:
    found = RangeDigest()
    for entry in entries:
        found.add(entry)
    return found.value()


def test_a_digest_covers_all_that_readers_see_of_an_entry() -> None:
    known = digest(ENTRY)
    assert len(known) == DIGEST_BYTES
    assert known == digest(replace(ENTRY))
    others = (
        replace(ENTRY, term=Term(3)),
        replace(ENTRY, index=Index(8)),
        replace(ENTRY, lsn=Lsn(10)),
        replace(ENTRY, record_count=3),
        replace(ENTRY, kind=EntryKind.COMMAND),
        replace(ENTRY, payload=b"payloae"),
        replace(ENTRY, payload=b"payload\0"),
    )
    assert len({known, *(digest(one) for one in others)}) == len(others) + 1


def test_bytes_do_not_wander_between_entries() -> None:
    one, two = replace(ENTRY, payload=b"ab"), replace(ENTRY, payload=b"c")
    other, another = replace(ENTRY, payload=b"a"), replace(ENTRY, payload=b"bc")
    assert digest(one, two) != digest(other, another)
