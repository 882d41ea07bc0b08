"""Digests: what of a replica is compared at once, its digest from this disk, and those of others.

Theory of operation. What is compared is a range of applied entries, or, at the end of a shard, the
state that they made. The digest of a range covers what a reader or a state machine would see of
every entry (index, term, LSN, records, kind, payload) and nothing of how it is stored: segments,
copies by garbage collection and caches do not show in it. It is read past the entry cache: what is
compared is what a restart, a peer that catches up and a cold read would see. Nothing is read on the
event loop; memory is bounded by COMPARE_RANGE_BYTES or one entry; what was read is paid for
(`read_budget`).

The state of a log shard (sessions, fences, holds, gaps) can be compared at an index that all
replicas have applied and none has passed, so it is compared when the shard pauses. Shard 0 never
pauses.

Another member's digest is asked of its store over this store's own connection, by the leader's
store, which compares, and by whoever is told of a difference and asks again (INV-COMPARE-1): nobody
believes what a third one says about somebody's digest.

- INV-COMPARE-2: only applied entries are compared: those are equal whoever leads, so a change of
  leader, term or membership in the middle makes no finding wrong.

Bytes: version byte, then the MessagePack array of the message. Whatever a peer sends is checked
here before anybody looks at it.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Mapping
from typing import Final, TypeVar

from logservice_wire.errors import InvalidArgument, LogServiceError, NotReady, ShardNotFound
from msgspec import Struct

from logservice import bounds
from logservice.entry import Entry
from logservice.ids import Index, ReplicaId, ShardId
from logservice.invariants import invariant
from logservice.nodehost.disks.fetching import run_fetch
from logservice.nodehost.integrity.divergence import holders
from logservice.nodehost.peers.question import NOTHING, Asker, Form, Question, packed, question
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.replica.replica import Replica

DIGEST_BYTES: Final = 16
"""Two different ranges have the same digest once in 2^64 pairs; nobody forges them on purpose."""

STATE: Final = Index(0)
"""In the place of a range's first entry: the state after entry `high` is meant, not entries."""

STATE_FORM_BYTES: Final = 6
"""Magic and version of a state's byte form (`rsm.snapshot_codec`): only equal ones are compared."""

STATE_DIGEST_BYTES: Final = STATE_FORM_BYTES + DIGEST_BYTES

_ENTRY = struct.Struct("<QQQIIQ")
_VERSION: Final = b"\x01"


# --- from this disk -------------------------------------------------------------------------------


class RangeDigest:
    """Of entries in index order. `add` may run on any thread, one at a time."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, entry: Entry) -> None:
        payload = entry.payload
        self._hash.update(
            _ENTRY.pack(
                entry.index, entry.term, entry.lsn, entry.record_count, entry.kind, len(payload)
            )
        )
        self._hash.update(payload)

    def value(self) -> bytes:
        """The digest of the entries so far."""
        return self._hash.digest()


def digest_of_state(state: bytes) -> bytes:
    """Of a log shard's state in its canonical bytes (INV-RSM-CANON), behind what names its form."""
    digest = hashlib.blake2b(state, digest_size=DIGEST_BYTES).digest()
    return state[:STATE_FORM_BYTES] + digest


def range_end(replica: Replica, low: Index, through: Index) -> Index:
    """Where the range that begins at `low` ends, exclusive; at least one entry, none above
    `through`.

    Raises KeyError when `low` is not in the log, Halted when its index does not verify.
    """
    size = bounds.COMPARE_RANGE_ENTRIES
    aligned = (low - 1) // size * size + size + 1
    log = replica.log
    high = Index(min(aligned, through + 1))
    fetch = log.fetch(low, high, bounds.COMPARE_RANGE_BYTES, ahead=False)
    log.end_fetch(fetch)
    return Index(fetch.reads[-1].last + 1)


async def read_digest(replica: Replica, low: Index, high: Index) -> bytes | None:
    """Of applied entries; None when they are not all there (any more). With STATE as `low`: of the
    state, or None when `high` is not exactly what is applied.

    Raises ShardNotFound when the replica stops meanwhile, Halted when something does not verify:
    then the replica is faulty.
    """
    if low == STATE:
        if replica.log_rsm is None or replica.applied != high:
            return None
        return digest_of_state(replica.state_machine.save_snapshot())
    log, directory = replica.log, replica.directory
    digest = RangeDigest()
    position = low
    while position < high:
        if replica.stopped:
            raise ShardNotFound("the replica stopped", shard=replica.shard)
        if not log.first_index() <= position < high <= replica.applied + 1:
            return None
        fetch = log.fetch(position, high, bounds.COMPARE_RANGE_BYTES, ahead=False)
        await run_fetch(directory.read_executor, log, fetch, digest.add)
        if not replica.stopped:
            log.fetched(fetch)
        position = Index(fetch.reads[-1].last + 1)
        invariant(position <= replica.applied + 1, "INV-COMPARE-2", position=position)
        size = sum(sum(read.lengths) for read in fetch.reads)
        await directory.budget.spend(size + bounds.COMPARE_RANGE_COST_BYTES)
    return digest.value()


def describe_range(replica: Replica, low: Index, high: Index) -> dict[str, object]:
    """What is compared, for messages and events: in words as `what`, and in numbers. LSNs are 0 for
    shard 0, for a state, and when the range was compacted since.
    """
    if low == STATE:
        what = f"the state after entry {high}"
        return {"what": what, "low": high, "high": high, "first_lsn": 0, "last_lsn": 0}
    reader, first, last = replica.reader, 0, 0
    if replica.log_rsm is not None and low >= reader.first_index():
        first, last = reader.next_lsn(Index(low - 1)), reader.next_lsn(Index(high - 1)) - 1
    what = f"entries {low} to {high - 1} (LSN {first} to {last})"
    return {"what": what, "low": low, "high": high - 1, "first_lsn": first, "last_lsn": last}


# --- messages -------------------------------------------------------------------------------------


class DigestWanted(Struct, array_like=True, forbid_unknown_fields=True):
    """`asker` wants `replica`'s digest of the entries [low, high); low 0: of its state when exactly
    `high` is applied.
    """

    shard: int
    replica: int
    asker: int
    low: int
    high: int


class DigestAnswer(Struct, array_like=True, forbid_unknown_fields=True):
    """first, applied: the entries that can be compared there. digest: empty when the range is not
    among them, or `applied` is not the index of the state.
    """

    first: int
    applied: int
    digest: bytes


class Finding(Struct, array_like=True, forbid_unknown_fields=True):
    """All digests of a range that differs. waited: nobody else will answer any more."""

    shard: int
    replica: int
    asker: int
    low: int
    high: int
    waited: bool
    digests: list[tuple[int, bytes]]


class NoAnswer(Exception):
    """What a store answered is no digest of what it was asked for."""


def _written() -> bytes:
    return _VERSION


_wanted = packed(DigestWanted, _written)
_answer = packed(DigestAnswer, _written)
_finding = packed(Finding, _written)

R = TypeVar("R", DigestWanted, Finding)


def _within_bounds(message: R) -> R:
    low, high = message.low, message.high
    if not 0 < low < high <= low + bounds.COMPARE_RANGE_ENTRIES and not low == STATE < high:
        raise InvalidArgument(f"no range: {low} to {high}", field="range")
    return message


def _decode_wanted(body: bytes) -> DigestWanted:
    return _within_bounds(_wanted.decode(body))


def _decode_finding(body: bytes) -> Finding:
    found = _within_bounds(_finding.decode(body))
    replicas = {replica for replica, _ in found.digests}
    if len(found.digests) > 2 * bounds.HAKEEPER_REPLICAS_MAX or len(replicas) < len(found.digests):
        raise InvalidArgument("more digests than replicas", field="digests")
    return found


def _decode_answer(data: bytes, wanted: DigestWanted) -> DigestAnswer:
    """Raises NoAnswer: what the store says about another range settles nothing."""
    try:
        answer = _answer.decode(data)
    except InvalidArgument as error:
        raise NoAnswer(error.message) from error
    if not 0 < answer.first <= answer.applied + 1:
        raise NoAnswer(f"first {answer.first}, applied {answer.applied}")
    within = answer.first <= wanted.low and wanted.high <= answer.applied + 1
    size = DIGEST_BYTES
    if wanted.low == STATE:
        within, size = answer.applied == wanted.high, STATE_DIGEST_BYTES
    if answer.digest and (len(answer.digest) != size or not within):
        raise NoAnswer("a digest of something else")
    return answer


DIGEST: Final[Question[DigestWanted, DigestAnswer]] = Question(
    "compare.digest",
    Asker.MEMBER,
    _wanted.encode,
    lambda body, _: _decode_wanted(body),
    _answer.encode,
    _decode_answer,
    lambda body: ShardId(_decode_wanted(body).shard),
)
FINDING: Final = question(
    "compare.finding",
    Asker.MEMBER,
    Form(_finding.encode, _decode_finding),
    NOTHING,
    lambda body: ShardId(_decode_finding(body).shard),
)


# --- of other members -----------------------------------------------------------------------------


def other_holders(replica: Replica) -> list[ReplicaId]:
    """The other members that have the entries."""
    return [one for one in holders(replica.raft.membership) if one != replica.replica_id]


async def ask_digest(
    requests: PeerRequests, replica: Replica, other: ReplicaId, low: Index, high: Index
) -> DigestAnswer:
    """The answer of another member. Raises NoAnswer for one that is none, and the error of the
    store.
    """
    store = replica.store_of(other)
    if store is None:
        raise NotReady(f"nobody knows where replica {other} is")
    wanted = DigestWanted(replica.shard, other, replica.replica_id, low, high)
    return await requests.ask(store, DIGEST, wanted, bounds.COMPARE_REQUEST_TIMEOUT_S)


async def ask_others(
    requests: PeerRequests, replica: Replica, low: Index, high: Index
) -> Mapping[ReplicaId, bytes]:
    """The digests of all other members that have one."""

    async def one(other: ReplicaId) -> bytes:
        try:
            return (await ask_digest(requests, replica, other, low, high)).digest
        except (LogServiceError, NoAnswer):
            return b""

    others = other_holders(replica)
    found = await asyncio.gather(*(one(other) for other in others))
    return {other: digest for other, digest in zip(others, found, strict=True) if digest}
