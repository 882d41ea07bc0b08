"""Commands of a log shard's state machine: what a COMMAND entry holds after its proposal id.

This file alone decides their byte form, which is replicated:
``tag u8, version u8, zero u16``, then the fields of the command, little-endian:

====================  ===  =========================================================
OPEN_SESSION            1  author, ``nonce 16 bytes``
TRUNCATE                2  author, ``lsn u64, writer_epoch u64``
SET_HOLD                3  author, ``override u8, lsn u64``, name
RELEASE_HOLD            4  author, ``override u8``, name
ACQUIRE_WRITER          5  author, ``override u8, expected_epoch u64, takeover u8``, holder
RELEASE_WRITER          6  author, ``override u8, epoch u64``
ALLOCATE_TIMESTAMPS     7  ``count u32``
CONNECT                 8  nothing
CLOSE                   9  author
SET_HOLD_FOR           10  author, ``override u8, lsn u64, ttl_s u32``, name
RENEW_HOLD             11  author, name
EXPIRE_HOLD            12  ``revision u64``, name
BEGIN_LINEAGE          13  author, ``number u64, lineage 16 bytes, parent 16 bytes``
BEGIN_RESTORE          14  author, ``number u64, lineage 16 bytes, parent 16 bytes, base LSN
                            u64, end LSN u64, writer epoch u64, next timestamp u64, digest
                            32 bytes``
END_RESTORE            15  author, ``lineage 16 bytes, digest 32 bytes, base LSN u64, end LSN
                            u64, next timestamp u64``
RETAIN                 16  ``policy u64, lsn u64``
TRUNCATE_MIRROR        17  author, ``lineage 16 bytes, lsn u64``
OPEN_NAMED_SESSION     18  author, ``epoch u32, time to live in seconds u32, stamp i64, content
                            32 bytes``, name
FORGET_SESSION         19  author, ``override u8, session u64, last used u64``
====================  ===  =========================================================

A command's class is its byte form: its fields in their order (`_Form`).

Release 0.1.0 knows the first eight. The others are proposed at cluster version 2 only: an older
replica would refuse them as malformed.

The author is who asked (`logservice.owner`): ``identity bytes u16, store bytes u16``, the two in
UTF-8. Override is 1 when administration acts on what belongs to another identity. A name or holder
is the rest of the command: 1 to NAME_BYTES_MAX bytes of UTF-8 without anything that a
terminal would obey (`safe_text`).

INV-RSM-CANON: a command has exactly one byte form; `decode` accepts no other, so what was checked
is what is applied.

`decode` never lets a malformed command through and never fails in another way than
`CommandMalformed`: a replica answers it with INVALID_ARGUMENT, at the same index everywhere.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, get_args

from logservice_wire.digest import DIGEST_BYTES
from logservice_wire.errors import InvalidArgument, LogServiceError, TooLarge
from logservice_wire.reader_hold import is_reader_hold

from logservice.bounds import (
    HOLD_TTL_S_MAX,
    HOLD_TTL_S_MIN,
    IDENTITY_BYTES_MAX,
    LINEAGE_EPOCH_BITS,
    NAME_BYTES_MAX,
    READER_HOLD_TTL_S_MAX,
    RESTORED_LINEAGES_MAX,
    RESTORED_LSN_MAX,
    SESSION_EPOCH_MAX,
    TIMESTAMPS_PER_CALL_MAX,
)
from logservice.ids import Index, Lsn, SessionId, StoreId
from logservice.lineage import LINEAGE_BYTES
from logservice.lineage import problem as lineage_problem
from logservice.owner import NO_NONCE, NONCE_BYTES, Author
from logservice.safe_text import unsafe

_HEAD: Final = struct.Struct("<BBH")
_AUTHOR: Final = struct.Struct("<HH")
_VERSION: Final = 2

SESSION_CONTENT_BYTES: Final = 32
"""What an epoch of a named session will hold, as its owner has digested it."""


class Tag(enum.IntEnum):
    """First byte of a command. The numbers are in the log."""

    OPEN_SESSION = 1
    TRUNCATE = 2
    SET_HOLD = 3
    RELEASE_HOLD = 4
    ACQUIRE_WRITER = 5
    RELEASE_WRITER = 6
    ALLOCATE_TIMESTAMPS = 7
    CONNECT = 8
    CLOSE = 9
    SET_HOLD_FOR = 10
    RENEW_HOLD = 11
    EXPIRE_HOLD = 12
    BEGIN_LINEAGE = 13
    BEGIN_RESTORE = 14
    END_RESTORE = 15
    RETAIN = 16
    TRUNCATE_MIRROR = 17
    OPEN_NAMED_SESSION = 18
    FORGET_SESSION = 19


class CommandMalformed(ValueError):
    """The bytes are not a command. `error` is what the proposer is told."""

    def __init__(self, error: LogServiceError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Answers with the session id: the index of this very entry.

    nonce: drawn by the store that was asked; whoever appends in the session has to show it.
    """

    author: Author
    nonce: bytes = field(repr=False)
    tag: ClassVar[Tag] = Tag.OPEN_SESSION
    layout: ClassVar[struct.Struct] = struct.Struct(f"<{NONCE_BYTES}s")


@dataclass(frozen=True, slots=True)
class Truncate:
    """Every record up to and including `lsn` may go."""

    author: Author
    lsn: Lsn
    writer_epoch: int
    tag: ClassVar[Tag] = Tag.TRUNCATE
    layout: ClassVar[struct.Struct] = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class SetHold:
    """Records from `lsn` on must stay until the hold is moved or released.

    override: move it even if it belongs to another identity, which keeps it. This is the form of
    cluster version 1: the hold has no revision and no time to live afterwards.
    """

    author: Author
    override: bool
    lsn: Lsn
    name: str
    tag: ClassVar[Tag] = Tag.SET_HOLD
    layout: ClassVar[struct.Struct] = struct.Struct("<BQ")


@dataclass(frozen=True, slots=True)
class ReleaseHold:
    """Let the hold go. override: even if it belongs to another identity."""

    author: Author
    override: bool
    name: str
    tag: ClassVar[Tag] = Tag.RELEASE_HOLD
    layout: ClassVar[struct.Struct] = struct.Struct("<B")


@dataclass(frozen=True, slots=True)
class AcquireWriter:
    """Grant a new epoch to `holder` if the present one is `expected_epoch`, or if `takeover`.

    It belongs to the author from then on. override: even while another identity has it.
    """

    author: Author
    override: bool
    expected_epoch: int
    takeover: bool
    holder: str
    tag: ClassVar[Tag] = Tag.ACQUIRE_WRITER
    layout: ClassVar[struct.Struct] = struct.Struct("<BQB")


@dataclass(frozen=True, slots=True)
class ReleaseWriter:
    """Give `epoch` back; nobody may append until the next grant.

    override: even if it belongs to another identity.
    """

    author: Author
    override: bool
    epoch: int
    tag: ClassVar[Tag] = Tag.RELEASE_WRITER
    layout: ClassVar[struct.Struct] = struct.Struct("<BQ")


@dataclass(frozen=True, slots=True)
class AllocateTimestamps:
    """Answers with the first of `count` timestamps nobody else gets."""

    count: int
    tag: ClassVar[Tag] = Tag.ALLOCATE_TIMESTAMPS
    layout: ClassVar[struct.Struct] = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Connect:
    """Probe: goes through the log and the state machine and changes nothing but the applied
    index.
    """

    tag: ClassVar[Tag] = Tag.CONNECT
    layout: ClassVar[struct.Struct] = struct.Struct("<")


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing is appended behind this entry, ever. Answers with the end of the log.

    A store proposes it only when the cluster is at version 2: a 0.1.0 replica would refuse it as
    malformed and go on taking appends.
    """

    author: Author
    tag: ClassVar[Tag] = Tag.CLOSE
    layout: ClassVar[struct.Struct] = struct.Struct("<")


@dataclass(frozen=True, slots=True)
class SetHoldFor:
    """Like `SetHold`; the hold's revision is the index of this entry.

    ttl_s: seconds after which it may expire if nobody sets or renews it again; 0: never.
    """

    author: Author
    override: bool
    lsn: Lsn
    ttl_s: int
    name: str
    tag: ClassVar[Tag] = Tag.SET_HOLD_FOR
    layout: ClassVar[struct.Struct] = struct.Struct("<BQI")


@dataclass(frozen=True, slots=True)
class RenewHold:
    """The hold stays where it is, and its revision is the index of this entry.

    It never makes a hold: what expired, or was released by administration, stays gone until
    somebody sets it.
    """

    author: Author
    name: str
    tag: ClassVar[Tag] = Tag.RENEW_HOLD
    layout: ClassVar[struct.Struct] = struct.Struct("<")


@dataclass(frozen=True, slots=True)
class ExpireHold:
    """The time to live of the hold at that revision is over. It has no author, because nobody asked
    for it: the leader's store has counted (`nodehost.replica.hold_times`).
    """

    revision: Index
    name: str
    tag: ClassVar[Tag] = Tag.EXPIRE_HOLD
    layout: ClassVar[struct.Struct] = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class BeginLineage:
    """The log is continued by force, as another history (`logservice.lineage`). Answers with the
    number, and the LSN behind the fork.

    `logservice recover` writes this entry into a log that it rebuilds. No store proposes it, and
    no leader takes it. A 0.1.0 replica would refuse it, so the tool writes it only for stores that
    have gone over to cluster version 2.
    """

    author: Author
    number: int
    lineage: bytes
    parent: bytes
    tag: ClassVar[Tag] = Tag.BEGIN_LINEAGE
    layout: ClassVar[struct.Struct] = struct.Struct(f"<Q{LINEAGE_BYTES}s{LINEAGE_BYTES}s")


@dataclass(frozen=True, slots=True)
class BeginRestore:
    """The log, in which nothing ever happened, takes the LSNs [base_lsn, end_lsn) of another one
    (`rsm.restoring`). Answers with the next LSN.

    number, lineage, parent: what the log is from here on, as in `BeginLineage`; the source had
    number - 1. writer_epoch: the newest one that the source is known to have granted; 0 for none.
    next_timestamp: that of the restored log. digest: of the range, which the end of the restore
    has to state. Of a mirror, whose end is open, end_lsn is 0 and the digest is zeros.
    """

    author: Author
    number: int
    lineage: bytes = field(repr=False)
    parent: bytes
    base_lsn: Lsn
    end_lsn: Lsn
    writer_epoch: int
    next_timestamp: int
    digest: bytes
    tag: ClassVar[Tag] = Tag.BEGIN_RESTORE
    layout: ClassVar[struct.Struct] = struct.Struct(
        f"<Q{LINEAGE_BYTES}s{LINEAGE_BYTES}sQQQQ{DIGEST_BYTES}s"
    )


@dataclass(frozen=True, slots=True)
class EndRestore:
    """The log opens, if [base_lsn, end_lsn) is the whole range and `digest` is the one that was
    promised. A store proposes it, and states the digest of what it has read from its own log; no
    caller does.

    A mirror has promised nothing, and opens if the range is what it has left. The digest that its
    leader's store has read is of [digest_lsn, end_lsn), and kept in the log by this entry; zeros
    when that is without LSNs. digest_lsn: 0 is base_lsn, and of another restore than a mirror's it
    is always 0. next_timestamp: of a mirror, from now on; 0: it gives out none any more.
    """

    author: Author
    lineage: bytes = field(repr=False)
    digest: bytes
    base_lsn: Lsn
    end_lsn: Lsn
    next_timestamp: int = 0
    digest_lsn: Lsn = Lsn(0)
    tag: ClassVar[Tag] = Tag.END_RESTORE
    layout: ClassVar[struct.Struct] = struct.Struct(f"<{LINEAGE_BYTES}s{DIGEST_BYTES}sQQQQ")


@dataclass(frozen=True, slots=True)
class TruncateMirror:
    """Every record of the mirror up to and including `lsn` may go, as it went in its source.
    Answers with the effective truncation LSN. lineage: the mirror's.
    """

    author: Author
    lineage: bytes = field(repr=False)
    lsn: Lsn
    tag: ClassVar[Tag] = Tag.TRUNCATE_MIRROR
    layout: ClassVar[struct.Struct] = struct.Struct(f"<{LINEAGE_BYTES}sQ")


@dataclass(frozen=True, slots=True)
class Retain:
    """Records up to `lsn` are beyond what the log's policy keeps. It has no author: the leader's
    store has judged by the policy (`nodehost.replica.retention`).

    policy: the version of HAKeeper's limits (`hakeeper.stores.limits`) that it judged by, so that
    the log itself says why its records went.
    """

    policy: int
    lsn: Lsn
    tag: ClassVar[Tag] = Tag.RETAIN
    layout: ClassVar[struct.Struct] = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class OpenNamedSession:
    """Opens the session of that name for an epoch (`rsm.named_sessions`). Answers with its id, how
    many blocks of the epoch are in the log, and the epoch's stamp.

    ttl_s: of a name that is new, 0 for none. stamp_us: of an epoch that begins with this entry.
    """

    author: Author
    epoch: int
    ttl_s: int
    stamp_us: int
    content: bytes
    name: str
    tag: ClassVar[Tag] = Tag.OPEN_NAMED_SESSION
    layout: ClassVar[struct.Struct] = struct.Struct(f"<IIq{SESSION_CONTENT_BYTES}s")


@dataclass(frozen=True, slots=True)
class ForgetSession:
    """A named session makes room (`rsm.named_sessions`), unless an entry behind `last_used` named
    it. override: even if it belongs to another identity.
    """

    author: Author
    override: bool
    session: SessionId
    last_used: Index
    tag: ClassVar[Tag] = Tag.FORGET_SESSION
    layout: ClassVar[struct.Struct] = struct.Struct("<BQQ")


Command = (
    OpenSession
    | Truncate
    | SetHold
    | ReleaseHold
    | AcquireWriter
    | ReleaseWriter
    | AllocateTimestamps
    | Connect
    | Close
    | SetHoldFor
    | RenewHold
    | ExpireHold
    | BeginLineage
    | BeginRestore
    | EndRestore
    | Retain
    | TruncateMirror
    | OpenNamedSession
    | ForgetSession
)
"""Every command of a log shard."""


@dataclass(frozen=True, slots=True)
class _Form:
    """The order of a command's bytes, which is the order of its fields: the author, the numbers of
    its `layout`, a text. `flags`: which of the numbers are 0 or 1.
    """

    kind: Any
    names: tuple[str, ...]
    authored: bool
    text: bool
    flags: tuple[int, ...]


def _form(kind: Any) -> _Form:
    # The annotations, as they are written in the classes above.
    types = [str(one.type) for one in fields(kind)]
    authored, text = types[:1] == ["Author"], types[-1:] == ["str"]
    numbers = types[authored : len(types) - text]
    return _Form(
        kind,
        tuple(one.name for one in fields(kind)),
        authored,
        text,
        tuple(number for number, one in enumerate(numbers) if one == "bool"),
    )


_FORMS: Final[Mapping[int, _Form]] = {kind.tag: _form(kind) for kind in get_args(Command)}


def encode(command: Command) -> bytes:
    """The byte form of `command`.

    Raises InvalidArgument or TooLarge for a field that no state could accept, so that bad input
    gets its error before it is proposed.
    """
    error = _refusal(command)
    if error is not None:
        raise error
    form = _FORMS[command.tag]
    head = _HEAD.pack(command.tag, _VERSION, 0)
    values = [getattr(command, name) for name in form.names]
    text = values.pop().encode() if form.text else b""
    try:
        author = _author(values.pop(0)) if form.authored else b""
        return head + author + command.layout.pack(*values) + text
    except struct.error as problem:
        raise InvalidArgument(str(problem), field="command") from problem


def decode(data: bytes) -> Command:
    """Inverse of `encode`; raises CommandMalformed for anything else."""
    try:
        tag, version, zero = _HEAD.unpack_from(data)
        if version != _VERSION or zero:
            raise _malformed(f"command version {version}")
        command = _decode_body(tag, data[_HEAD.size :])
    except (struct.error, UnicodeDecodeError) as problem:
        raise _malformed(str(problem)) from problem
    error = _refusal(command)
    if error is not None:
        raise CommandMalformed(error)
    return command


def author_of(command: Command) -> Author | None:
    """The author; None for a command that names none."""
    authorless = AllocateTimestamps | Connect | ExpireHold | Retain
    return None if isinstance(command, authorless) else command.author


def decides_writer(command: bytes) -> bool:
    """True for a command after which another epoch or holder may be in force, or the log may be
    restoring or not.
    """
    return command[:1] in _WRITER_TAGS


def closes_log(command: bytes) -> bool:
    """True for the command behind which nothing is appended."""
    return command[:1] == _CLOSE_TAG


def begins_lineage(command: bytes) -> bool:
    """True for the command that only a recovery writes."""
    return command[:1] == _LINEAGE_TAG


def opens_session(command: bytes) -> bool:
    """True for a command that serves nothing but later appends."""
    return command[:1] in _OPEN_SESSION_TAGS


def is_forwarded(command: bytes) -> bool:
    """True for a command that a store forwards to the leader's store for its own callers: it
    changes nothing that has an owner.
    """
    return command[:1] in _FORWARDED_TAGS


_FORWARDED_TAGS: Final = (bytes((Tag.OPEN_SESSION,)), bytes((Tag.CONNECT,)))
_CLOSE_TAG: Final = bytes((Tag.CLOSE,))
_LINEAGE_TAG: Final = bytes((Tag.BEGIN_LINEAGE,))
_OPEN_SESSION_TAGS: Final = (bytes((Tag.OPEN_SESSION,)), bytes((Tag.OPEN_NAMED_SESSION,)))
_WRITER_TAGS: Final = tuple(
    bytes((tag,))
    for tag in (Tag.ACQUIRE_WRITER, Tag.RELEASE_WRITER, Tag.BEGIN_RESTORE, Tag.END_RESTORE)
)


def _author(author: Author) -> bytes:
    identity, store = author.identity.encode(), author.store.encode()
    return _AUTHOR.pack(len(identity), len(store)) + identity + store


def _decode_author(body: bytes) -> tuple[Author, bytes]:
    identity_bytes, store_bytes = _AUTHOR.unpack_from(body)
    middle = _AUTHOR.size + identity_bytes
    end = middle + store_bytes
    if end > len(body):
        raise _malformed("author cut short")
    author = Author(body[_AUTHOR.size : middle].decode(), StoreId(body[middle:end].decode()))
    return author, body[end:]


def _decode_body(tag: int, body: bytes) -> Command:
    form = _FORMS.get(tag)
    values: list[object] = []
    # An author comes before all else that can be wrong, the number of the command included.
    if form is None or form.authored:
        author, body = _decode_author(body)
        values.append(author)
    if form is None:
        raise _malformed(f"unknown command {tag}")
    layout: struct.Struct = form.kind.layout
    numbers = list(layout.unpack_from(body) if form.text else layout.unpack(body))
    text = [body[layout.size :].decode()] if form.text else []
    for number in form.flags:
        numbers[number] = _flag(numbers[number])
    made: Command = form.kind(*values, *numbers, *text)
    return made


def _flag(number: int) -> bool:
    if number > 1:
        raise _malformed(f"flag {number}")
    return number == 1


def _refusal(command: Command) -> LogServiceError | None:
    """Why no state could ever accept `command`; None when it depends on the state."""
    author = author_of(command)
    if author is not None:
        error = _name_refusal("identity", author.identity, IDENTITY_BYTES_MAX) or _name_refusal(
            "store", author.store
        )
        if error is not None:
            return error
    form = _FORMS[command.tag]
    if form.text:
        error = _name_refusal(form.names[-1], getattr(command, form.names[-1]))
        if error is not None:
            return error
    match command:
        case SetHoldFor(ttl_s=ttl_s) if ttl_s and not HOLD_TTL_S_MIN <= ttl_s <= HOLD_TTL_S_MAX:
            return InvalidArgument(
                f"0, or {HOLD_TTL_S_MIN} to {HOLD_TTL_S_MAX} seconds", field="ttl_s"
            )
        case SetHoldFor(ttl_s=ttl_s, name=name) if is_reader_hold(name) and not (
            HOLD_TTL_S_MIN <= ttl_s <= READER_HOLD_TTL_S_MAX
        ):
            return InvalidArgument(
                f"of a reader's hold {HOLD_TTL_S_MIN} to {READER_HOLD_TTL_S_MAX} seconds",
                field="ttl_s",
            )
        case ExpireHold(revision=0):
            return InvalidArgument("a hold without a revision does not expire", field="revision")
        case Retain(policy=policy, lsn=lsn) if not (policy and lsn):
            return InvalidArgument("a policy's version and an LSN", field="retention")
        case OpenSession(nonce=nonce) if len(nonce) != NONCE_BYTES or nonce == NO_NONCE:
            return InvalidArgument("not a nonce", field="nonce")
        case OpenNamedSession(epoch=epoch) if epoch > SESSION_EPOCH_MAX:
            return InvalidArgument(f"epochs end at {SESSION_EPOCH_MAX}", field="epoch")
        case OpenNamedSession(content=content) if len(content) != SESSION_CONTENT_BYTES:
            return InvalidArgument(f"{SESSION_CONTENT_BYTES} bytes", field="content")
        case BeginLineage(number=number, lineage=lineage, parent=parent):
            if why := lineage_problem(number, lineage, parent):
                return InvalidArgument(why, field="lineage")
        case BeginRestore():
            if why := restore_problem(command):
                return InvalidArgument(why, field="restore")
        case EndRestore():
            if not _ends_restore(command):
                return InvalidArgument("no range, or no timestamp", field="restore")
        case TruncateMirror(lsn=0):
            return InvalidArgument("LSNs start at 1", field="truncated_lsn")
        case AllocateTimestamps(count) if count < 1:
            return InvalidArgument("at least one timestamp", field="count")
        case AllocateTimestamps(count) if count > TIMESTAMPS_PER_CALL_MAX:
            return TooLarge(
                "too many timestamps", name="count", value=count, limit=TIMESTAMPS_PER_CALL_MAX
            )
    return None


def _ends_restore(command: EndRestore) -> bool:
    base_lsn, end_lsn = command.base_lsn, command.end_lsn
    return (
        1 <= base_lsn <= (command.digest_lsn or base_lsn) <= end_lsn <= RESTORED_LSN_MAX
        and command.next_timestamp < 2**63
    )


def restore_problem(command: BeginRestore) -> str:
    """Why no log is restored like this; "" when one may be.

    An epoch is believed only as far as a log of that number can have granted it (INV-LINEAGE-2), so
    a false one, however high, neither becomes the log's nor uses up what can be granted.
    """
    if why := lineage_problem(command.number, command.lineage, command.parent):
        return why
    if command.number > RESTORED_LINEAGES_MAX:
        return "number of the lineage"
    if len(command.digest) != DIGEST_BYTES:
        return f"a digest has {DIGEST_BYTES} bytes"
    mirror = command.end_lsn == 0
    if not 1 <= command.base_lsn < (command.end_lsn or RESTORED_LSN_MAX) <= RESTORED_LSN_MAX:
        return f"no range: {command.base_lsn} to {command.end_lsn}"
    if mirror and (any(command.digest) or not command.writer_epoch):
        return "a mirror has no digest, and a writer epoch"
    if command.writer_epoch >> LINEAGE_EPOCH_BITS >= command.number:
        return f"no log of that number granted writer epoch {command.writer_epoch}"
    if not 1 <= command.next_timestamp < 2**63:
        return "timestamp"
    return ""


def _name_refusal(field: str, name: str, limit: int = NAME_BYTES_MAX) -> LogServiceError | None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return InvalidArgument("not encodable as UTF-8", field=field)
    if size == 0:
        return InvalidArgument("must not be empty", field=field)
    if unsafe(name):
        return InvalidArgument("holds control characters", field=field)
    if size > limit:
        return TooLarge("name too long", name=field, value=size, limit=limit)
    return None


def _malformed(detail: str) -> CommandMalformed:
    return CommandMalformed(InvalidArgument(detail, field="command"))
