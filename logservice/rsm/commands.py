"""Commands of a log shard's state machine: what a COMMAND entry holds after its proposal id.

This file alone decides their byte form, which is replicated and therefore only ever extended:
``tag u8, version u8, zero u16``, then the fields of the command, little-endian:

====================  ===  =========================================================
OPEN_SESSION            1  nothing
TRUNCATE                2  ``lsn u64, writer_epoch u64``
SET_HOLD                3  ``lsn u64``, name
RELEASE_HOLD            4  name
ACQUIRE_WRITER          5  ``expected_epoch u64, takeover u8``, holder (a name)
RELEASE_WRITER          6  ``epoch u64``
ALLOCATE_TIMESTAMPS     7  ``count u32``
CONNECT                 8  nothing
====================  ===  =========================================================

A name is the rest of the command: 1 to NAME_BYTES_MAX bytes of UTF-8 without anything that a
terminal would obey (`safe_text`). INV-RSM-CANON: a command has exactly one byte form; `decode`
accepts no other, so what was checked is what is applied.

`decode` never lets a malformed command through and never fails in another way than
`CommandMalformed`: a replica answers it with INVALID_ARGUMENT, at the same index everywhere.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import ClassVar, Final

from logservice_wire.errors import InvalidArgument, LogServiceError, TooLarge

from logservice.bounds import NAME_BYTES_MAX, TIMESTAMPS_PER_CALL_MAX
from logservice.ids import Lsn
from logservice.safe_text import unsafe

_HEAD: Final = struct.Struct("<BBH")
_VERSION: Final = 1


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


class CommandMalformed(ValueError):
    """The bytes are not a command. `error` is what the proposer is told."""

    def __init__(self, error: LogServiceError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Answers with the session id: the index of this very entry."""

    tag: ClassVar[Tag] = Tag.OPEN_SESSION
    layout: ClassVar[struct.Struct] = struct.Struct("<")


@dataclass(frozen=True, slots=True)
class Truncate:
    """Every record up to and including `lsn` may go."""

    lsn: Lsn
    writer_epoch: int
    tag: ClassVar[Tag] = Tag.TRUNCATE
    layout: ClassVar[struct.Struct] = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class SetHold:
    """Records from `lsn` on must stay until the hold is moved or released."""

    lsn: Lsn
    name: str
    tag: ClassVar[Tag] = Tag.SET_HOLD
    layout: ClassVar[struct.Struct] = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class ReleaseHold:
    """Also how a hold expires: whoever watches its age proposes this; no replica's clock
    decides.
    """

    name: str
    tag: ClassVar[Tag] = Tag.RELEASE_HOLD
    layout: ClassVar[struct.Struct] = struct.Struct("<")


@dataclass(frozen=True, slots=True)
class AcquireWriter:
    """Grant a new epoch to `holder` if the present one is `expected_epoch`, or if `takeover`."""

    expected_epoch: int
    takeover: bool
    holder: str
    tag: ClassVar[Tag] = Tag.ACQUIRE_WRITER
    layout: ClassVar[struct.Struct] = struct.Struct("<QB")


@dataclass(frozen=True, slots=True)
class ReleaseWriter:
    """Give `epoch` back; nobody may append until the next grant."""

    epoch: int
    tag: ClassVar[Tag] = Tag.RELEASE_WRITER
    layout: ClassVar[struct.Struct] = struct.Struct("<Q")


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


Command = (
    OpenSession
    | Truncate
    | SetHold
    | ReleaseHold
    | AcquireWriter
    | ReleaseWriter
    | AllocateTimestamps
    | Connect
)
"""Every command of a log shard."""


def encode(command: Command) -> bytes:
    """The byte form of `command`.

    Raises InvalidArgument or TooLarge for a field that no state could accept, so that bad input
    gets its error before it is proposed.
    """
    error = _refusal(command)
    if error is not None:
        raise error
    head = _HEAD.pack(command.tag, _VERSION, 0)
    try:
        match command:
            case OpenSession() | Connect():
                return head
            case Truncate(lsn, writer_epoch):
                return head + command.layout.pack(lsn, writer_epoch)
            case SetHold(lsn, name):
                return head + command.layout.pack(lsn) + name.encode()
            case ReleaseHold(name):
                return head + name.encode()
            case AcquireWriter(expected_epoch, takeover, holder):
                return head + command.layout.pack(expected_epoch, takeover) + holder.encode()
            case ReleaseWriter(epoch):
                return head + command.layout.pack(epoch)
            case AllocateTimestamps(count):
                return head + command.layout.pack(count)
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


def decides_writer(command: bytes) -> bool:
    """True for a command after which another epoch or holder may be in force."""
    return command[:1] in _WRITER_TAGS


def opens_session(command: bytes) -> bool:
    """True for a command that serves nothing but later appends."""
    return command[:1] == _OPEN_SESSION_TAG


def is_forwarded(command: bytes) -> bool:
    """True for what a store passes on to the leader's for its own callers: it touches nothing that
    belongs to somebody (DESIGN section 21).
    """
    return command[:1] in _FORWARDED_TAGS


_FORWARDED_TAGS: Final = (bytes((Tag.OPEN_SESSION,)), bytes((Tag.CONNECT,)))
_OPEN_SESSION_TAG: Final = bytes((Tag.OPEN_SESSION,))
_WRITER_TAGS: Final = (bytes((Tag.ACQUIRE_WRITER,)), bytes((Tag.RELEASE_WRITER,)))


def _decode_body(tag: int, body: bytes) -> Command:
    match tag:
        case Tag.OPEN_SESSION:
            OpenSession.layout.unpack(body)
            return OpenSession()
        case Tag.TRUNCATE:
            lsn, writer_epoch = Truncate.layout.unpack(body)
            return Truncate(Lsn(lsn), writer_epoch)
        case Tag.SET_HOLD:
            (lsn,) = SetHold.layout.unpack_from(body)
            return SetHold(Lsn(lsn), body[SetHold.layout.size :].decode())
        case Tag.RELEASE_HOLD:
            return ReleaseHold(body.decode())
        case Tag.ACQUIRE_WRITER:
            expected_epoch, takeover = AcquireWriter.layout.unpack_from(body)
            if takeover > 1:
                raise _malformed(f"takeover {takeover}")
            holder = body[AcquireWriter.layout.size :].decode()
            return AcquireWriter(expected_epoch, bool(takeover), holder)
        case Tag.RELEASE_WRITER:
            (epoch,) = ReleaseWriter.layout.unpack(body)
            return ReleaseWriter(epoch)
        case Tag.ALLOCATE_TIMESTAMPS:
            (count,) = AllocateTimestamps.layout.unpack(body)
            return AllocateTimestamps(count)
        case Tag.CONNECT:
            Connect.layout.unpack(body)
            return Connect()
    raise _malformed(f"unknown command {tag}")


def _refusal(command: Command) -> LogServiceError | None:
    """Why no state could ever accept `command`; None when that depends on the state."""
    match command:
        case SetHold(name=name) | ReleaseHold(name=name):
            return _name_refusal("name", name)
        case AcquireWriter(holder=holder):
            return _name_refusal("holder", holder)
        case AllocateTimestamps(count) if count < 1:
            return InvalidArgument("at least one timestamp", field="count")
        case AllocateTimestamps(count) if count > TIMESTAMPS_PER_CALL_MAX:
            return TooLarge(
                "too many timestamps", name="count", value=count, limit=TIMESTAMPS_PER_CALL_MAX
            )
    return None


def _name_refusal(field: str, name: str) -> LogServiceError | None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return InvalidArgument("not encodable as UTF-8", field=field)
    if size == 0:
        return InvalidArgument("must not be empty", field=field)
    if unsafe(name):
        return InvalidArgument("holds control characters", field=field)
    if size > NAME_BYTES_MAX:
        return TooLarge("name too long", name=field, value=size, limit=NAME_BYTES_MAX)
    return None


def _malformed(detail: str) -> CommandMalformed:
    return CommandMalformed(InvalidArgument(detail, field="command"))
