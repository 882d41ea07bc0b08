"""Absurd messages get a typed rejection; they violate no invariant and never change the log."""

from __future__ import annotations

import random
from typing import Any

import pytest

from logservice.bounds import ENTRY_PAYLOAD_BYTES_MAX
from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.membership import Membership
from logservice.raft.core import Raft
from logservice.raft.errors import MessageRejected, RejectReason
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    Propose,
    Quiesce,
    ReadIndexRequest,
    ReadIndexResponse,
    RequestVote,
    SnapshotStatus,
    TimeoutNow,
    TransferLeader,
    Unreachable,
    VoteResponse,
)
from logservice.raft.ready import Role
from logservice.snapshot import Snapshot
from tests.raft.cluster import Cluster, block, membership

ONE, TWO, THREE = ReplicaId(1), ReplicaId(2), ReplicaId(3)


def block_entry(index: int, *, term: int = 1, lsn: int = 4, records: int = 1) -> Entry:
    return Entry(Term(term), Index(index), Lsn(lsn), records, EntryKind.BLOCK, b"p")


def append(*entries: Entry, previous: int = 3, term: int = 1, **more: Any) -> AppendEntries:
    fields = {"to": TWO, "sender": ONE, "term": Term(term), "prev_term": Term(1), **more}
    return AppendEntries(prev_index=Index(previous), entries=entries, **fields)


@pytest.fixture
def cluster() -> Cluster:
    """Replica 1 leads term 1; entry 3 holds records 1 to 3 everywhere."""
    made = Cluster(3)
    made.elect(1).propose([block(b"a", 3)])
    made.settle()
    return made


def refusal(raft: Raft, message: Message) -> RejectReason:
    before = raft.last_index, raft.commit, raft.membership
    with pytest.raises(MessageRejected) as rejected:
        raft.step(message)
    assert (raft.last_index, raft.commit, raft.membership) == before
    return rejected.value.reason


def test_wrong_addresses_are_rejected(cluster: Cluster) -> None:
    for to, sender in ((THREE, ONE), (TWO, TWO), (TWO, ReplicaId(0)), (TWO, ReplicaId(-1))):
        message = Heartbeat(to=to, sender=sender, term=Term(1))
        assert refusal(cluster[2], message) is RejectReason.WRONG_ADDRESS


def test_local_reports_from_outside(cluster: Cluster) -> None:
    for message in (Unreachable(to=ONE, sender=TWO), SnapshotStatus(to=ONE, sender=TWO)):
        assert refusal(cluster[1], message) is RejectReason.LOCAL_ONLY


def test_answers_from_strangers_change_nothing(cluster: Cluster) -> None:
    stranger = ReplicaId(9)
    for message in (
        AppendResponse(to=ONE, sender=stranger, term=Term(1), index=Index(3)),
        HeartbeatResponse(to=ONE, sender=stranger, term=Term(1)),
        VoteResponse(to=ONE, sender=stranger, term=Term(7)),
    ):
        assert refusal(cluster[1], message) is RejectReason.UNKNOWN_PEER
    assert cluster[1].term == 1


@pytest.mark.parametrize("term", [-1, 2**62, 2**64])
def test_terms_out_of_range(cluster: Cluster, term: int) -> None:
    message = Heartbeat(to=TWO, sender=ONE, term=Term(term))
    assert refusal(cluster[2], message) is RejectReason.OUT_OF_RANGE


def test_numbers_out_of_range(cluster: Cluster) -> None:
    for raft, message in (
        (cluster[2], append(previous=-1)),
        (cluster[2], append(previous=2**62)),
        (cluster[2], append(commit=Index(-1))),
        (cluster[2], append(prev_term=Term(-1))),
        (cluster[2], Heartbeat(to=TWO, sender=ONE)),
        (cluster[2], Quiesce(to=TWO, sender=ONE, term=Term(1), index=Index(0))),
        (cluster[2], Quiesce(to=TWO, sender=ONE, term=Term(1), index=Index(2**62))),
        (cluster[2], Quiesce(to=TWO, sender=ONE, index=Index(2))),
        (cluster[1], AppendResponse(to=ONE, sender=TWO, term=Term(1), index=Index(99))),
        (cluster[1], AppendResponse(to=ONE, sender=TWO, term=Term(1), index=Index(-1))),
        (
            cluster[1],
            AppendResponse(
                to=ONE,
                sender=TWO,
                term=Term(1),
                index=Index(2),
                reject=True,
                hint_index=Index(3),
            ),
        ),
        (
            cluster[2],
            RequestVote(to=TWO, sender=ONE, term=Term(2), last_index=Index(1), last_term=Term(3)),
        ),
    ):
        assert refusal(raft, message) is RejectReason.OUT_OF_RANGE


def test_a_second_leader_of_the_same_term(cluster: Cluster) -> None:
    beat = Heartbeat(to=TWO, sender=THREE, term=Term(1))
    assert refusal(cluster[2], beat) is RejectReason.SECOND_LEADER
    assert cluster[2].leader == 1
    beat = Heartbeat(to=ONE, sender=THREE, term=Term(1))
    assert refusal(cluster[1], beat) is RejectReason.SECOND_LEADER
    assert cluster[1].role is Role.LEADER


def test_entries_that_are_no_chain(cluster: Cluster) -> None:
    big = b"x" * (ENTRY_PAYLOAD_BYTES_MAX + 1)
    for message in (
        append(block_entry(5)),
        append(block_entry(4), block_entry(6, lsn=5)),
        append(block_entry(4, term=0)),
        append(block_entry(4, term=2)),
        append(block_entry(4, term=3), block_entry(5, term=2, lsn=5), term=3),
        append(prev_term=Term(2)),
        append(block_entry(4, records=-1)),
        append(block_entry(4, records=2**40)),
        append(Entry(Term(1), Index(4), Lsn(4), 1, EntryKind.NOOP, b"")),
        append(Entry(Term(1), Index(4), Lsn(4), 1, EntryKind.BLOCK, big)),
    ):
        assert refusal(cluster[2], message) is RejectReason.BROKEN_ENTRIES


def test_inv_log_lsn_is_checked_by_followers(cluster: Cluster) -> None:
    for message in (
        append(block_entry(4, lsn=5)),
        append(block_entry(4, lsn=3)),
        append(block_entry(4), block_entry(5, lsn=4)),
    ):
        assert refusal(cluster[2], message) is RejectReason.LSN_MISMATCH
    cluster[2].step(append(block_entry(4), block_entry(5, lsn=5)))
    assert cluster[2].next_lsn == 6


def test_two_entries_of_one_place_and_term_do_not_break_the_log_behind_them(
    cluster: Cluster,
) -> None:
    """No correct leader has such entries; log storage would end the store for such a log."""
    cluster[2].step(append(block_entry(4)))
    message = append(block_entry(4, records=2), block_entry(5, lsn=6))
    assert refusal(cluster[2], message) is RejectReason.LSN_MISMATCH
    assert cluster[2].last_index == 4
    cluster[2].step(append(block_entry(4), block_entry(5, lsn=5)))
    assert cluster[2].next_lsn == 6


def test_what_contradicts_committed_entries(cluster: Cluster) -> None:
    beat = Heartbeat(to=TWO, sender=ONE, term=Term(1), commit=Index(9))
    assert refusal(cluster[2], beat) is RejectReason.COMMITTED_CONFLICT
    # Entries below the commit index are skipped: the answer names the commit index.
    cluster[2].step(append(block_entry(3, term=2, lsn=1), previous=2, term=2))
    assert cluster[2].last_index == 3


def install(*, members: Membership | None = None, **more: int) -> InstallSnapshot:
    values = {"index": 9, "term": 1, "lsn": 10, **more}
    snapshot = Snapshot(
        Index(values["index"]),
        Term(values["term"]),
        Lsn(values["lsn"]),
        membership([1, 2, 3]) if members is None else members,
        b"",
    )
    return InstallSnapshot(to=TWO, sender=ONE, term=Term(1), snapshot=snapshot)


def test_snapshots_that_no_leader_sends(cluster: Cluster) -> None:
    for message in (
        install(index=0),
        install(index=-3),
        install(term=0),
        install(term=2),
        install(lsn=0),
        install(lsn=3),
        install(members=Membership()),
    ):
        assert refusal(cluster[2], message) is RejectReason.BAD_SNAPSHOT


def test_forwarded_garbage_changes_nothing(cluster: Cluster) -> None:
    def forwarded(kind: EntryKind, payload: bytes, records: int = 0) -> Propose:
        entry = Entry(Term(0), Index(0), Lsn(0), records, kind, payload)
        return Propose(to=ONE, sender=TWO, entries=(entry,))

    for message in (
        forwarded(EntryKind.CONFIG, b"not a change"),
        forwarded(EntryKind.NOOP, b""),
        forwarded(EntryKind.COMMAND, b"c", records=1),
        forwarded(EntryKind.BLOCK, b"b", records=-1),
    ):
        assert refusal(cluster[1], message) is RejectReason.BROKEN_ENTRIES


def drawn_entry(drawn: random.Random) -> Entry:
    return Entry(
        Term(drawn.randrange(4)),
        Index(drawn.randrange(8)),
        Lsn(drawn.randrange(8)),
        drawn.choice([0, 0, 1, 3, -1]),
        drawn.choice(list(EntryKind)),
        drawn.choice([b"", b"p", b"\x01\x00\x00\x00\x00\x00\x00\x00"]),
    )


def drawn_message(drawn: random.Random, to: int) -> Message:
    """A random message; half of its numbers are plausible."""

    def number() -> Any:
        return drawn.choice([0, 1, 1, 2, 3, 3, 4, 5, 9, -1, 2**61])

    sender = ReplicaId(drawn.choice([1, 2, 3, 4]))
    base: dict[str, Any] = {"to": ReplicaId(to), "sender": sender, "term": number()}
    flag = drawn.random() < 0.5
    entries = tuple(drawn_entry(drawn) for _ in range(drawn.randrange(3)))
    members = drawn.choice([Membership(), membership([1, 2, 3]), membership([3], [2])])
    snapshot = Snapshot(number(), number(), number(), members, b"")
    choices: list[Message] = [
        AppendEntries(
            **base, prev_index=number(), prev_term=number(), entries=entries, commit=number()
        ),
        AppendResponse(
            **base, index=number(), reject=flag, hint_index=number(), hint_term=number()
        ),
        RequestVote(**base, last_index=number(), last_term=number(), pre=flag, transfer=not flag),
        VoteResponse(**base, reject=flag, pre=drawn.random() < 0.5),
        Heartbeat(**base, commit=number(), context=drawn.choice([b"", b"12345678"])),
        HeartbeatResponse(**base, context=drawn.choice([b"", b"12345678"])),
        Quiesce(**base, index=number()),
        InstallSnapshot(**base, snapshot=snapshot),
        TimeoutNow(**base),
        TransferLeader(**base),
        Propose(**base, entries=entries),
        ReadIndexRequest(**base, context=b"c"),
        ReadIndexResponse(**base, context=b"c", index=number()),
        Unreachable(**base),
        SnapshotStatus(**base, reject=flag),
    ]
    return drawn.choice(choices)


@pytest.mark.parametrize("seed", range(60))
def test_no_message_stops_a_replica(seed: int) -> None:
    """Random messages at random replicas get rejections and answers, and nothing else.

    A forged but plausible message may do damage (a forged vote elects). But it must not trip an
    invariant, nor raise anything but the rejection.
    """
    drawn = random.Random(seed)
    cluster = Cluster(3, seed=seed)
    cluster.elect(1).propose([block(b"a", 3)])
    cluster.settle()
    for _ in range(150):
        number = drawn.choice([1, 2, 3])
        raft = cluster[number]
        try:
            raft.step(drawn_message(drawn, number))
        except MessageRejected:
            continue
        if drawn.random() < 0.1:
            raft.tick()
        replica = cluster.replicas[number]
        if (ready := raft.take_ready()) is not None:
            replica.storage.save(ready.hard_state, ready.entries, ready.snapshot)
            raft.persisted(ready)
            for entry in ready.committed_entries:
                if entry.kind is EntryKind.CONFIG:
                    raft.apply_config_change(entry)
                raft.applied(entry.index)
