"""Layer 0: byte forms round-trip, and whatever else arrives is a typed error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logservice_wire.errors import (
    LogServiceError,
    Outcome,
    Reason,
    Truncated,
    error_for,
    error_table,
)

from logservice.entry import Entry, EntryKind
from logservice.envelope import (
    BlockEnvelope,
    EnvelopeCorrupt,
    ProposalId,
    decode_blocks,
    decode_command,
    decode_views,
    encode_blocks,
    encode_command,
)
from logservice.ids import Incarnation, Index, Lsn, ReplicaId, SessionId, StoreId, Term
from logservice.invariants import InvariantViolation, invariant
from logservice.membership import Member, Membership, MembershipCorrupt, decoded, shared
from logservice.outcome import Rejected
from logservice.owner import NONCE_BYTES, OWNER_BYTES, Claim
from logservice.snapshot import Snapshot, SnapshotCorrupt

ids = st.lists(st.integers(1, 2**63), max_size=5, unique=True).map(lambda v: tuple(sorted(v)))
memberships = st.builds(
    Membership,
    voters=ids,
    outgoing=ids,
    learners=ids,
    learners_next=ids,
    witnesses=ids,
    removed=ids,
    auto_leave=st.booleans(),
    change_epoch=st.integers(0, 2**63),
    members=st.lists(
        st.builds(
            Member,
            st.integers(1, 2**63).map(ReplicaId),
            st.text(max_size=20).map(StoreId),
            st.integers(0, 2**63).map(Incarnation),
        ),
        max_size=4,
    ).map(tuple),
)
snapshots = st.builds(
    Snapshot,
    st.integers(0, 2**63).map(Index),
    st.integers(0, 2**63).map(Term),
    st.integers(1, 2**63).map(Lsn),
    memberships,
    st.binary(max_size=200),
)
blocks = st.lists(
    st.builds(
        BlockEnvelope,
        st.builds(ProposalId, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
        st.integers(0, 2**63).map(SessionId),
        st.integers(0, 2**63),
        st.integers(0, 2**63),
        st.integers(0, 2**63).map(Lsn),
        st.integers(0, 2**32 - 1),
        st.binary(max_size=70),
        st.builds(
            Claim,
            st.binary(min_size=OWNER_BYTES, max_size=OWNER_BYTES),
            st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES),
            st.integers(0, 2**64 - 1),
        ),
    ),
    min_size=1,
    max_size=5,
)


def test_equal_memberships_are_one_object_and_share_what_is_equal_in_them() -> None:
    """Ten thousand logs have one each; the store of a replica knows it from HAKeeper, too."""
    one = Member(ReplicaId(2**40), StoreId("a store"), Incarnation(2**60))
    other = Member(ReplicaId(2**41), StoreId("a store"), Incarnation(2**60))
    voters = (one.replica_id, other.replica_id)
    data = Membership(voters=voters, members=(one, other)).encode()
    found = shared(data)
    assert found == Membership.decode(data)
    assert shared(bytes(bytearray(data))) is found
    assert decoded(data) is found
    assert found.members[0].store_id is found.members[1].store_id
    assert found.members[0].incarnation is found.members[1].incarnation
    assert [member.replica_id for member in found.members] == list(found.voters)
    assert found.members[0].replica_id is found.voters[0]


def test_no_bytes_are_an_empty_membership_for_hakeeper_and_damage_on_a_disk() -> None:
    assert decoded(b"") == Membership()
    with pytest.raises(MembershipCorrupt):
        shared(b"")


@given(memberships)
def test_membership_round_trips(membership: Membership) -> None:
    assert Membership.decode(membership.encode()) == membership


@given(snapshots)
def test_snapshot_round_trips(snapshot: Snapshot) -> None:
    assert Snapshot.decode(snapshot.encode()) == snapshot


@given(blocks)
def test_block_envelopes_round_trip_and_are_aligned(items: list[BlockEnvelope]) -> None:
    payload = encode_blocks(items)
    assert len(payload) % 8 == 0
    decoded = list(decode_blocks(payload))
    assert [
        (d.proposal, d.session, d.sequence, d.writer_epoch, d.expected_lsn, d.record_count, d.claim)
        for d in decoded
    ] == [
        (i.proposal, i.session, i.sequence, i.writer_epoch, i.expected_lsn, i.record_count, i.claim)
        for i in items
    ]
    assert [bytes(d.block) for d in decoded] == [bytes(i.block) for i in items]
    assert decode_views(payload) == (0, [(d.record_count, d.block) for d in decoded])
    assert decode_views(encode_blocks(items, 7)) == (
        7,
        [(d.record_count, d.block) for d in decoded],
    )


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=50))
def test_command_envelope_round_trips(origin: int, number: int, command: bytes) -> None:
    proposal = ProposalId(origin, number)
    assert decode_command(encode_command(proposal, command)) == (proposal, command)


@settings(max_examples=3000)
@given(st.binary(max_size=300))
def test_decoders_refuse_garbage_with_their_own_error(data: bytes) -> None:
    for decode, refusal in (
        (Membership.decode, MembershipCorrupt),
        (Snapshot.decode, SnapshotCorrupt),
        (lambda d: list(decode_blocks(d)), EnvelopeCorrupt),
        (decode_views, EnvelopeCorrupt),
        (decode_command, EnvelopeCorrupt),
    ):
        try:
            decode(data)
        except refusal:
            continue
        # What is accepted must be a canonical encoding.
        if decode == Membership.decode:
            assert Membership.decode(data).encode() == data


@given(snapshots, st.data())
def test_a_flipped_bit_in_a_snapshot_is_found(snapshot: Snapshot, data: st.DataObject) -> None:
    encoded = bytearray(snapshot.encode())
    position = data.draw(st.integers(0, len(encoded) * 8 - 1))
    encoded[position // 8] ^= 1 << (position % 8)
    with pytest.raises(SnapshotCorrupt):
        Snapshot.decode(bytes(encoded))


@given(blocks, st.integers(1, 60))
def test_a_cut_envelope_is_refused(items: list[BlockEnvelope], cut: int) -> None:
    payload = encode_blocks(items)
    for decode in (lambda data: list(decode_blocks(data)), decode_views):
        with pytest.raises(EnvelopeCorrupt):
            decode(payload[: -min(cut, len(payload))])


def test_others_of_a_membership() -> None:
    one, two, three = ReplicaId(1), ReplicaId(2), ReplicaId(3)
    membership = Membership(voters=(one, two), learners=(three,))
    assert membership.others(one) == (two, three)
    assert membership.others(three) == (one, two)
    assert membership.others(ReplicaId(9)) == (one, two, three)


def test_membership_contains_and_member() -> None:
    one = Member(ReplicaId(1), StoreId("store-1"), Incarnation(7))
    membership = Membership(
        voters=(ReplicaId(1),),
        outgoing=(ReplicaId(2),),
        learners=(ReplicaId(3),),
        learners_next=(ReplicaId(4),),
        removed=(ReplicaId(5),),
        members=(one,),
    )
    assert [membership.contains(ReplicaId(i)) for i in range(1, 6)] == [True] * 4 + [False]
    assert membership.joint
    assert membership.member(ReplicaId(1)) == one
    assert membership.member(ReplicaId(9)) is None


def test_entry_next_lsn() -> None:
    assert Entry(Term(1), Index(5), Lsn(10), 3, EntryKind.BLOCK, b"").next_lsn == 13


def test_invariant_violation_passes_every_except_exception() -> None:
    with pytest.raises(InvariantViolation) as caught:
        try:
            invariant(1 + 1 == 3, "INV-TEST", value=3)
        except Exception as error:  # noqa: BLE001 - the widest net there is
            pytest.fail(f"swallowed as {error!r}")
    assert caught.value.invariant_id == "INV-TEST"
    assert "value=3" in str(caught.value)
    invariant(True, "INV-TEST")


def test_every_reason_has_one_error_with_both_columns() -> None:
    table = error_table()
    assert set(table) == set(Reason)
    for reason, error_class in table.items():
        error = error_for(reason, "text", detail=1)
        assert isinstance(error, error_class)
        assert isinstance(error, LogServiceError)
        assert error.outcome in Outcome
        assert error.metadata == {"detail": "1"}
        assert reason.value in str(error)


def test_rejected_becomes_the_error_of_its_reason() -> None:
    error = Rejected(Reason.TRUNCATED, {"first_lsn": "7"}).error()
    assert isinstance(error, Truncated)
    assert error.number("first_lsn") == 7
    assert error.number("absent", 3) == 3
