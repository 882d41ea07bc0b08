"""The one table of operating errors: reason <-> gRPC status <-> exception class.

Every failure a caller can see is one row here. Two columns decide what a caller may do:

- *retryable*: the same request may succeed later or elsewhere without a change by the caller.
- *outcome*: what is known of the attempt. NOT_APPLIED: it took no effect and never will. UNKNOWN:
  it may have taken effect or may still; only a retry with the same session and sequence is safe.

On the wire: gRPC status + ``google.rpc.ErrorInfo{domain: "logservice", reason, metadata}``. The
module knows status codes by name only, so it needs no grpc.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import ClassVar

ERROR_DOMAIN = "logservice"


class Outcome(enum.Enum):
    """What is known about the effect of a failed request."""

    NOT_APPLIED = "not_applied"
    UNKNOWN = "unknown"


class Reason(enum.Enum):
    """Why a request failed; `value` is the ErrorInfo reason on the wire."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_LEADER = "NOT_LEADER"
    SHARD_NOT_FOUND = "SHARD_NOT_FOUND"
    SHARD_EXISTS = "SHARD_EXISTS"
    SHARD_CLOSED = "SHARD_CLOSED"
    SHARD_DELETED = "SHARD_DELETED"
    SHARD_RESTORING = "SHARD_RESTORING"
    DELETE_REFUSED = "DELETE_REFUSED"
    NOT_ENOUGH_STORES = "NOT_ENOUGH_STORES"
    FENCED = "FENCED"
    TRUNCATED = "TRUNCATED"
    BEYOND_TAIL = "BEYOND_TAIL"
    STALE_TRUNCATE = "STALE_TRUNCATE"
    HOLD_REFUSED = "HOLD_REFUSED"
    HOLD_LOST = "HOLD_LOST"
    WRONG_EXPECTED_LSN = "WRONG_EXPECTED_LSN"
    SEQUENCE_GAP = "SEQUENCE_GAP"
    SEQUENCE_REUSED = "SEQUENCE_REUSED"
    SESSION_EXPIRED = "SESSION_EXPIRED"
    STALE_EPOCH = "STALE_EPOCH"
    BUSY = "BUSY"
    DISK_FULL = "DISK_FULL"
    TOO_LARGE = "TOO_LARGE"
    CORRUPT_BLOCK = "CORRUPT_BLOCK"
    UNKNOWN_OUTCOME = "UNKNOWN_OUTCOME"
    DEADLINE = "DEADLINE"
    NOT_READY = "NOT_READY"
    HALTED = "HALTED"
    WRONG_CLUSTER = "WRONG_CLUSTER"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    VERB_REFUSED = "VERB_REFUSED"
    EVENTS_COMPACTED = "EVENTS_COMPACTED"
    LINEAGE_CHANGED = "LINEAGE_CHANGED"
    CLIENT_CLOSED = "CLIENT_CLOSED"
    HANDSHAKE_FAILED = "HANDSHAKE_FAILED"
    DISCONTINUITY = "DISCONTINUITY"
    CODEC_MISSING = "CODEC_MISSING"


class LogServiceError(Exception):
    """Base of all operating errors.

    `metadata` holds the machine-readable details as strings (``first_lsn``, ``epoch`` ...), the
    same that ErrorInfo carries. Subclasses exist for every reason, so callers can catch what they
    mean.
    """

    reason: ClassVar[Reason]
    status: ClassVar[str]
    retryable: ClassVar[bool]
    outcome: ClassVar[Outcome]
    words: ClassVar[str] = ""
    """The message of one that is made without any: what is wrong, and the next step."""

    def __init__(self, message: str = "", **metadata: object) -> None:
        self.message = message or self.words or self.reason.value.lower().replace("_", " ")
        self.metadata: Mapping[str, str] = {name: str(value) for name, value in metadata.items()}
        super().__init__(self.message)

    def __str__(self) -> str:
        """``REASON: message: why (key=value ...)``; most have no `why`."""
        known = [(name, value) for name, value in sorted(self.metadata.items()) if value]
        details = " ".join(f"{name}={value}" for name, value in known if name != "why")
        why = self.metadata.get("why")
        text = f"{self.message}: {why}" if why else self.message
        return f"{self.reason.value}: {text}" + (f" ({details})" if details else "")

    def number(self, name: str, default: int = 0) -> int:
        """A metadata value as an integer."""
        return int(self.metadata.get(name, default))


class InvalidArgument(LogServiceError):
    """A field of the request is wrong; metadata: field, and why where that says more."""

    reason = Reason.INVALID_ARGUMENT
    status = "INVALID_ARGUMENT"
    retryable = False
    outcome = Outcome.NOT_APPLIED
    words = "a field of the request is wrong: correct the one that is named, nothing was done"


class NotLeader(LogServiceError):
    """This replica cannot serve the request; metadata: leader (store), address."""

    reason = Reason.NOT_LEADER
    status = "FAILED_PRECONDITION"
    retryable = True
    outcome = Outcome.NOT_APPLIED


class ShardNotFound(LogServiceError):
    """This store has no replica of the shard; or HAKeeper says that there is no such log, and to
    repeat the call is in vain; metadata: shard.
    """

    reason = Reason.SHARD_NOT_FOUND
    status = "NOT_FOUND"
    retryable = True
    outcome = Outcome.NOT_APPLIED


class ShardExists(LogServiceError):
    """A shard with that id or name exists already; metadata: shard."""

    reason = Reason.SHARD_EXISTS
    status = "ALREADY_EXISTS"
    retryable = False
    outcome = Outcome.NOT_APPLIED


class ShardClosed(LogServiceError):
    """The log was closed: nothing is appended to it any more; metadata: end (the LSN behind its
    last record).
    """

    reason = Reason.SHARD_CLOSED
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED

    @property
    def end_lsn(self) -> int:
        """The LSN behind the last record."""
        return self.number("end")


class ShardDeleted(LogServiceError):
    """The log was deleted, and its id never names another one; metadata: shard."""

    reason = Reason.SHARD_DELETED
    status = "NOT_FOUND"
    retryable = False
    outcome = Outcome.NOT_APPLIED


class ShardRestoring(LogServiceError):
    """The log is being restored, and serves nothing until that is complete and verified; or it is a
    mirror of another one, which is read and not changed; metadata: next (the LSN that comes next),
    end (behind the last one; 0 for a mirror), base (of a mirror: its first LSN).
    """

    reason = Reason.SHARD_RESTORING
    status = "FAILED_PRECONDITION"
    retryable = True
    outcome = Outcome.NOT_APPLIED


class DeleteRefused(LogServiceError):
    """The log is not deleted unless that is forced, and never while it is protected; metadata: why
    (open, tn-shard, holds, protected), and holds (their number).
    """

    reason = Reason.DELETE_REFUSED
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED


class NotEnoughStores(LogServiceError):
    """There are fewer fitting stores than wanted replicas; metadata: wanted, available."""

    reason = Reason.NOT_ENOUGH_STORES
    status = "FAILED_PRECONDITION"
    retryable = True
    outcome = Outcome.NOT_APPLIED


class Fenced(LogServiceError):
    """A newer writer epoch was granted; metadata: epoch, holder."""

    reason = Reason.FENCED
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED
    words = "another writer has the log: stop and recover, or take it back with takeover=True"

    @property
    def epoch(self) -> int:
        """The epoch that is in force."""
        return self.number("epoch")

    @property
    def holder(self) -> str:
        """Who has it."""
        return self.metadata.get("holder", "")


class Truncated(LogServiceError):
    """The LSN is at or below the truncation LSN; metadata: first_lsn."""

    reason = Reason.TRUNCATED
    status = "OUT_OF_RANGE"
    retryable = False
    outcome = Outcome.NOT_APPLIED
    words = "the records are gone: read on from first_lsn"

    @property
    def first_lsn(self) -> int:
        """The oldest readable LSN."""
        return self.number("first_lsn")


class BeyondTail(LogServiceError):
    """The LSN is beyond tail + 1; metadata: next_lsn."""

    reason = Reason.BEYOND_TAIL
    status = "OUT_OF_RANGE"
    retryable = False
    outcome = Outcome.NOT_APPLIED
    words = "the log ends before it: the LSN that comes next is next_lsn"

    @property
    def next_lsn(self) -> int:
        """The LSN that comes next."""
        return self.number("next_lsn")


class StaleTruncate(LogServiceError):
    """The LSN is not above the current truncation LSN; metadata: current."""

    reason = Reason.STALE_TRUNCATE
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED
    words = "the log is truncated so far already, or will be when its holds allow it: go on"

    @property
    def current(self) -> int:
        """The truncation LSN."""
        return self.number("current")


class HoldRefused(LogServiceError):
    """The hold asks for records at or below the truncation LSN; metadata: first_lsn."""

    reason = Reason.HOLD_REFUSED
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED
    words = "records that the hold asks for are truncated: hold from first_lsn on"

    @property
    def first_lsn(self) -> int:
        """The oldest readable LSN."""
        return self.number("first_lsn")


class HoldLost(LogServiceError):
    """The hold does not stand any more: it expired, or somebody released it; or it was moved above
    the LSN that its keeper wants. Records may have been truncated since; metadata: name, first_lsn.
    """

    reason = Reason.HOLD_LOST
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED
    words = "the hold does not stand any more: set it again from first_lsn on"

    @property
    def first_lsn(self) -> int:
        """The oldest readable LSN; 0 when it is not known."""
        return self.number("first_lsn")


class WrongExpectedLsn(LogServiceError):
    """The append would not get the LSN that it expects; metadata: next."""

    reason = Reason.WRONG_EXPECTED_LSN
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED
    words = "the append would get another LSN: read what lies before `next`, then decide"

    @property
    def next_lsn(self) -> int:
        """The LSN that the next append gets."""
        return self.number("next")


class SequenceGap(LogServiceError):
    """An earlier sequence of the session is missing; metadata: last."""

    reason = Reason.SEQUENCE_GAP
    status = "FAILED_PRECONDITION"
    retryable = True
    outcome = Outcome.NOT_APPLIED


class SequenceReused(LogServiceError):
    """The session applied another block with this sequence, so this block never will be; metadata:
    lsn (of the other block).
    """

    reason = Reason.SEQUENCE_REUSED
    status = "ALREADY_EXISTS"
    retryable = False
    outcome = Outcome.NOT_APPLIED

    @property
    def lsn(self) -> int:
        """Of the other block."""
        return self.number("lsn")


class SessionExpired(LogServiceError):
    """The caller has no session with this id and nonce, or the sequence is older than the session's
    window. This attempt appends nothing; whether an earlier one did is not known any more.
    """

    reason = Reason.SESSION_EXPIRED
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.UNKNOWN


class StaleEpoch(LogServiceError):
    """The epoch is not the one that the request expects; metadata: epoch, holder."""

    reason = Reason.STALE_EPOCH
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED
    words = (
        "another epoch is in force: take over with takeover=True, or with expected_epoch= that one"
    )

    @property
    def epoch(self) -> int:
        """The epoch that is in force."""
        return self.number("epoch")

    @property
    def holder(self) -> str:
        """Who has it."""
        return self.metadata.get("holder", "")


class Busy(LogServiceError):
    """A bounded queue is full; metadata: retry_after_ms."""

    reason = Reason.BUSY
    status = "RESOURCE_EXHAUSTED"
    retryable = True
    outcome = Outcome.NOT_APPLIED

    @property
    def retry_after_ms(self) -> int:
        """How long to wait at least; 0 when nothing is said."""
        return self.number("retry_after_ms")


class DiskFull(LogServiceError):
    """A quorum of the shard's disks is above the high-water mark, until somebody truncates the log
    or frees space; metadata: room_bytes (of the largest block that they still take).
    """

    reason = Reason.DISK_FULL
    status = "RESOURCE_EXHAUSTED"
    retryable = True
    outcome = Outcome.NOT_APPLIED


class TooLarge(LogServiceError):
    """A named limit was exceeded; metadata: limit, value, name."""

    reason = Reason.TOO_LARGE
    status = "INVALID_ARGUMENT"
    retryable = False
    outcome = Outcome.NOT_APPLIED

    @property
    def limit(self) -> int:
        """The limit that was exceeded."""
        return self.number("limit")

    @property
    def value(self) -> int:
        """What was asked for."""
        return self.number("value")


class CorruptBlock(LogServiceError):
    """The block's checksum, counts, offsets or columns are wrong; metadata: detail, and of a block
    that a reader opened first_lsn, last_lsn.
    """

    reason = Reason.CORRUPT_BLOCK
    status = "INVALID_ARGUMENT"
    retryable = False
    outcome = Outcome.NOT_APPLIED


class UnknownOutcome(LogServiceError):
    """Leadership or the connection was lost while the request was under way."""

    reason = Reason.UNKNOWN_OUTCOME
    status = "UNAVAILABLE"
    retryable = True
    outcome = Outcome.UNKNOWN


class DeadlineExceeded(LogServiceError):
    """The deadline passed before there was an answer."""

    reason = Reason.DEADLINE
    status = "DEADLINE_EXCEEDED"
    retryable = True
    outcome = Outcome.UNKNOWN


class NotReady(LogServiceError):
    """The store is starting or shutting down, the shard has no leader, or the cluster's version is
    too low; metadata: cluster_version and needed (the version is too low), directory (whether the
    caller may cannot be told: grants, name, age), phase (the cluster does not run yet).
    """

    reason = Reason.NOT_READY
    status = "UNAVAILABLE"
    retryable = True
    outcome = Outcome.NOT_APPLIED


class Halted(LogServiceError):
    """The replica stopped serving because its data cannot be trusted."""

    reason = Reason.HALTED
    status = "DATA_LOSS"
    retryable = False
    outcome = Outcome.NOT_APPLIED


class WrongCluster(LogServiceError):
    """The peer belongs to another cluster, or the data directory to another store."""

    reason = Reason.WRONG_CLUSTER
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED


class Unauthenticated(LogServiceError):
    """The caller has no identity that is accepted here."""

    reason = Reason.UNAUTHENTICATED
    status = "UNAUTHENTICATED"
    retryable = False
    outcome = Outcome.NOT_APPLIED


class PermissionDenied(LogServiceError):
    """The identity does not have the role, or acts on what belongs to another one; metadata: role,
    owner; by: "rule" when a rule denies it, and not only no grant gives it.
    """

    reason = Reason.PERMISSION_DENIED
    status = "PERMISSION_DENIED"
    retryable = False
    outcome = Outcome.NOT_APPLIED


class VerbRefused(LogServiceError):
    """What an operator asked for would do harm, or does not fit what the cluster is; metadata: why,
    forcible (true: the same request with `force` is carried out).
    """

    reason = Reason.VERB_REFUSED
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED
    words = "the cluster as it is does not allow that; first change this"


class EventsCompacted(LogServiceError):
    """The events behind the asked revision are not kept any more; metadata: oldest. Look at the
    cluster's state, and watch from the revision that it names.
    """

    reason = Reason.EVENTS_COMPACTED
    status = "OUT_OF_RANGE"
    retryable = False
    outcome = Outcome.NOT_APPLIED


class LineageChanged(LogServiceError):
    """The log was continued by force after it had lost its majority, or restored from an archive,
    and is another history than the one that the request names; metadata: expected, actual (lineage
    ids in hexadecimal), number, fork_lsn (the last LSN that the new history has from the old one).
    What the old one had behind it is not in this log, also where it was acknowledged.
    """

    reason = Reason.LINEAGE_CHANGED
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED

    @property
    def lineage_number(self) -> int:
        """How often the log was continued by force."""
        return self.number("number")

    @property
    def fork_lsn(self) -> int:
        """The last LSN that the new history has from the old one."""
        return self.number("fork_lsn")


class ClientClosed(LogServiceError):
    """The client was closed, or belongs to another process (a fork). No store says it: the client
    does, of its own calls. A call that was under way then raises the subclass ClosedUnderWay, whose
    outcome is unknown; metadata: why.
    """

    reason = Reason.CLIENT_CLOSED
    status = "CANCELLED"
    retryable = False
    outcome = Outcome.NOT_APPLIED


class ClosedUnderWay(ClientClosed):
    """The client was closed while the call was under way, so it may have taken effect."""

    outcome = Outcome.UNKNOWN


class HandshakeFailed(LogServiceError):
    """TLS with the store is impossible as the client is set up. No store says it: the client does,
    before it was ever connected; metadata: address, why.
    """

    reason = Reason.HANDSHAKE_FAILED
    status = "UNAVAILABLE"
    retryable = False
    outcome = Outcome.NOT_APPLIED


class Discontinuity(LogServiceError):
    """An answer does not go on where it was asked to, so LSNs would be left out or come twice. No
    store says it: the client checks what it is given; metadata: asked, found.
    """

    reason = Reason.DISCONTINUITY
    status = "INTERNAL"
    retryable = False
    outcome = Outcome.NOT_APPLIED

    @property
    def asked(self) -> int:
        """The LSN that the answer should go on at."""
        return self.number("asked")

    @property
    def found(self) -> int:
        """The LSN that it goes on at."""
        return self.number("found")


class CodecMissing(LogServiceError):
    """This program cannot open what is intact: it lacks a package for the codec, or a newer program
    made it, and `unknown` says what is not known, such as "codec 7". A store says the second one of
    a block that it is to append; metadata: codec, package, unknown, first_lsn, last_lsn.
    """

    reason = Reason.CODEC_MISSING
    status = "FAILED_PRECONDITION"
    retryable = False
    outcome = Outcome.NOT_APPLIED


def too_new(unknown: str, of: str = "the block", **where: object) -> CodecMissing:
    """The error for something whole that a newer program made. `unknown`: what of it is not known
    here, such as "codec 7". `where`: first_lsn, last_lsn.
    """
    text = f"{of} has {unknown}: it is too new for this program; upgrade this program"
    return CodecMissing(text, unknown=unknown, **where)


_BY_REASON: dict[Reason, type[LogServiceError]] = {
    error_class.reason: error_class for error_class in LogServiceError.__subclasses__()
}


def error_for(reason: Reason, message: str = "", **metadata: object) -> LogServiceError:
    """The exception of `reason`, ready to raise."""
    return _BY_REASON[reason](message, **metadata)


def error_table() -> Mapping[Reason, type[LogServiceError]]:
    """The whole table; tests and documents are made from it."""
    return _BY_REASON
