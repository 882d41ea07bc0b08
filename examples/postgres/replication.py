"""A connection to PostgreSQL: for commands, for SQL, and for the stream of WAL or of changes.

One task uses it at a time, but for `report`, which any task may call. Whatever ends the connection
is ConnectionLost; a connection that raised anything but ServerError is of no use any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from examples.postgres import protocol, settings, tls
from examples.postgres.address import Address
from examples.postgres.login import Login
from examples.postgres.protocol import (
    BODY_BYTES_MAX,
    AuthenticationRefused,
    ConnectionLost,
    KeepAlive,
    Message,
    ProtocolError,
    ServerError,
    WalData,
)
from examples.postgres.tls import Mode, TlsRefused
from examples.postgres.wal_position import (
    SEGMENT_LOG2_MAX,
    SEGMENT_LOG2_MIN,
    position_of,
    position_text,
)

CONNECT_TIMEOUT_S: Final = 30.0
"""How long a server may take to accept us. A busy one takes seconds."""

_SIZE: Final = re.compile(r"(\d+)(B|kB|MB|GB)")
_UNITS: Final = {"B": 0, "kB": 10, "MB": 20, "GB": 30}


@dataclass(frozen=True, slots=True)
class System:
    """What a server says of itself: its system, its timeline, and how far its WAL is flushed."""

    identifier: int
    timeline: int
    position: int
    segment_log2: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a command or of SQL, and what the server remarked (its notices)."""

    rows: list[list[bytes | None]]
    notices: list[str]


@dataclass(frozen=True, slots=True)
class TimelineEnded:
    """The timeline that was streamed ends here; the server goes on with the next one."""


class Connection:
    """Get it from `connect`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._body_bytes_max = body_bytes_max

    @classmethod
    async def connect(
        cls,
        address: Address,
        parameters: dict[str, str],
        *,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> Connection:
        """Connect, and wait until the server takes commands.

        `parameters`: those of the startup message beside the user, e.g. ``replication`` or
        ``database``, and `settings`, which every session has. `body_bytes_max`: of a message of the
        server. Raises ConnectionLost, AuthenticationRefused, ServerError.
        """
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                made = cls(*await _opened(address), body_bytes_max)
                try:
                    own = {"user": address.user, **settings.SETTINGS, **parameters}
                    await made._start(address, own)
                    if parameters.get("replication") != settings.PHYSICAL:
                        await made.query(settings.set_newer())
                except BaseException:
                    made._writer.transport.abort()  # TLS would wait for the other side's farewell
                    raise
                return made
        except TlsRefused as error:
            raise AuthenticationRefused(str(error)) from error
        except (OSError, TimeoutError) as error:
            raise ConnectionLost(f"PostgreSQL at {address.host}:{address.port}: {error}") from error

    def close(self) -> None:
        """End it, without a word that could wait."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(protocol.TERMINATE)
        self._writer.close()

    # --- commands ---------------------------------------------------------------------------------

    async def query(self, text: str) -> Answer:
        """Send SQL or a command, and wait for the end of its answer. Raises ServerError; then the
        connection can be used further.
        """
        await self._send(protocol.query(text))
        return await self._answer()

    async def rows(self, text: str) -> AsyncGenerator[list[bytes | None]]:
        """The rows of SQL one by one, as the server sends them: as many as there are. Take all of
        them. Raises ServerError.
        """
        await self._send(protocol.query(text))
        error: ServerError | None = None
        while (found := await self._receive()).kind != b"Z":
            if found.kind == b"D":
                yield protocol.row(found.body)
            elif found.kind == b"E":
                error = protocol.server_error(found.body)
            elif found.kind not in b"TCSIN":
                raise ProtocolError(f"an answer has a message of type {found.kind!r}")
        if error is not None:
            raise error

    async def identify(self) -> System:
        """Who the server is, and where it stands. Raises ConnectionLost while it recovers: its
        timeline is not decided yet.
        """
        (recovers,) = (await self.query("SHOW in_hot_standby")).rows
        if recovers != [b"off"]:
            raise ConnectionLost("the server is still recovering")
        (found,) = (await self.query("IDENTIFY_SYSTEM")).rows
        (size,) = (await self.query("SHOW wal_segment_size")).rows
        try:
            identifier, timeline, position = (_ascii(value) for value in found[:3])
            return System(
                int(identifier), int(timeline), position_of(position), _log2(_ascii(size[0]))
            )
        except ValueError as error:
            raise ProtocolError(f"the server identifies itself as {found}, {size}") from error

    async def ensure_slot(self, slot: str) -> None:
        """Make the physical slot, if the server has none of that name: it keeps WAL until it was
        reported.
        """
        try:
            await self.query(
                f"CREATE_REPLICATION_SLOT {protocol.quoted(slot)} PHYSICAL RESERVE_WAL"
            )
        except ServerError as error:
            if error.code != protocol.DUPLICATE_OBJECT:
                raise

    async def timeline_history(self, timeline: int) -> bytes:
        """The history file of a timeline. Raises ServerError when the server has none."""
        rows = (await self.query(f"TIMELINE_HISTORY {timeline}")).rows
        if len(rows) != 1 or len(rows[0]) != 2 or rows[0][1] is None:
            raise ProtocolError("the server answers TIMELINE_HISTORY with something else")
        return rows[0][1]

    # --- the stream -------------------------------------------------------------------------------

    async def start_stream(self, slot: str, timeline: int, position: int) -> None:
        """Begin to stream WAL. Raises ServerError when the server does not have the WAL any more,
        or never had.
        """
        await self._start_copy(
            f"START_REPLICATION SLOT {protocol.quoted(slot)} PHYSICAL"
            f" {position_text(position)} TIMELINE {timeline}"
        )

    async def start_changes(self, slot: str, position: int, publication: str) -> None:
        """Begin to stream the changes of transactions that end behind `position`, as `pgoutput`
        writes them. Raises ServerError.
        """
        names = protocol.literal(protocol.quoted(publication))
        await self._start_copy(
            f"START_REPLICATION SLOT {protocol.quoted(slot)} LOGICAL {position_text(position)}"
            f" (proto_version '1', publication_names {names})"
        )

    async def _start_copy(self, command: str) -> None:
        await self._send(protocol.query(command))
        while True:
            found = await self._receive()
            if found.kind == b"W":
                return
            if found.kind == b"E":
                error = protocol.server_error(found.body)
                await self._until_ready()
                raise error
            if found.kind == b"T":  # the timeline ends just here: no stream, but its successor
                raise ProtocolError("the server has nothing to stream on that timeline")
            raise ProtocolError(f"the server answers START_REPLICATION with {found.kind!r}")

    async def next_of_stream(self) -> WalData | KeepAlive | TimelineEnded:
        """The next message. After TimelineEnded the connection takes commands again. Raises
        ConnectionLost, also when the server shuts down and says so.
        """
        found = await self._receive()
        if found.kind == b"d":
            return protocol.streamed(found.body)
        if found.kind == b"c":
            await self._send(protocol.COPY_DONE)
            await self._answer()
            return TimelineEnded()
        if found.kind == b"C":
            raise ConnectionLost("the server shuts down")
        if found.kind == b"E":
            raise protocol.server_error(found.body)
        raise ProtocolError(f"the stream has a message of type {found.kind!r}")

    async def report(self, flushed: int) -> None:
        """Tell the server that everything below `flushed` is durable."""
        await self._send(protocol.status_update(flushed, time.time()))

    # --- messages ---------------------------------------------------------------------------------

    async def _start(self, address: Address, parameters: dict[str, str]) -> None:
        await self._send(protocol.startup(parameters))
        connection = self._writer.get_extra_info("ssl_object")
        login = Login(address, connection and connection.getpeercert(binary_form=True))
        while True:
            found = await self._receive()
            if found.kind == b"R":
                await self._send(login.answer(found.body))
            elif found.kind == b"E":
                raise protocol.server_error(found.body)
            elif found.kind == b"Z":
                login.check()
                return
            elif found.kind not in b"SKN":
                raise ProtocolError(f"the server answers a startup with {found.kind!r}")

    async def _answer(self) -> Answer:
        answer = Answer([], [])
        error: ServerError | None = None
        while True:
            found = await self._receive()
            match found.kind:
                case b"D":
                    answer.rows.append(protocol.row(found.body))
                case b"E":
                    error = error or protocol.server_error(found.body)
                case b"N":
                    answer.notices.append(protocol.notice_fields(found.body).get("M", ""))
                case b"Z":
                    if error is not None:
                        raise error
                    return answer
                case b"T" | b"C" | b"S" | b"I":
                    pass
                case _:
                    raise ProtocolError(f"an answer has a message of type {found.kind!r}")

    async def _until_ready(self) -> None:
        while (await self._receive()).kind != b"Z":
            pass

    async def _receive(self) -> Message:
        try:
            header = await self._reader.readexactly(5)
            body = await self._reader.readexactly(
                protocol.body_length(header, self._body_bytes_max)
            )
        except (OSError, EOFError) as error:
            raise ConnectionLost(f"the connection to PostgreSQL has ended: {error}") from error
        return Message(header[:1], body)

    async def _send(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise ConnectionLost(f"the connection to PostgreSQL has ended: {error}") from error


async def _opened(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises TlsRefused, OSError."""
    if address.local:
        return await asyncio.open_unix_connection(f"{address.host}/.s.PGSQL.{address.port}")
    if address.mode is Mode.DISABLE:
        return await asyncio.open_connection(address.host, address.port)
    checking = tls.context(address.mode, address.ca)
    return await tls.connected(address.host, address.port, checking)


def _ascii(value: bytes | None) -> str:
    return (value or b"").decode("ascii", "replace")


def _log2(size: str) -> int:
    """The power of two of a segment's size, which the server writes as ``16MB``. ValueError."""
    found = _SIZE.fullmatch(size)
    if found is None:
        raise ValueError(f"no size of a segment: {size!r}")
    size_bytes = int(found.group(1)) << _UNITS[found.group(2)]
    log2 = size_bytes.bit_length() - 1
    if size_bytes != 1 << log2 or not SEGMENT_LOG2_MIN <= log2 <= SEGMENT_LOG2_MAX:
        raise ValueError(f"no size of a segment: {size!r}")
    return log2
