"""The shipper: PostgreSQL's WAL into the log, in order, and word of it back.

Theory of operation. The shipper is a standby that stores WAL and applies none. PostgreSQL streams
what it has flushed; the shipper appends it, several appends at a time, and reports a position as
flushed when the append that holds everything up to it is acked, and all before it. With
`synchronous_standby_names` a commit waits for that report. So a commit that PostgreSQL acknowledges
is durable on a majority of the log's stores.

Where to go on stands in the log, in its last chunk; the shipper keeps no state. A *session* begins
with nothing but that: it acquires the writer epoch (which fences what an earlier session has on its
way), reads the last chunk, and streams from there. Whatever goes wrong ends the session, and the
next one begins again. Each append names the LSN where it has to land, so none lands behind one that
failed: the log never has a hole (INV-PG-ORDER).

What cannot become right by another try ends the shipper with its reason: another shipper has the
log (`ownership`), or the server's WAL does not continue the log (`timelines`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from logservice_client import Shard

from examples.postgres.ownership import Ownership
from examples.postgres.replication import Connection, System
from examples.postgres.sessions import Sessions
from examples.postgres.wal_position import position_text
from examples.postgres_wal import wal_log
from examples.postgres_wal.chunk import HISTORY, WAL, Chunk
from examples.postgres_wal.stream import APPEND_TIMEOUT_S, Stream
from examples.postgres_wal.timelines import Next, where_to_go_on


class Shipper:
    """Ships one server into one log. `connect` makes a replication connection. `say` is told what
    happens.
    """

    def __init__(
        self,
        log: Shard,
        name: str,
        slot: str,
        connect: Callable[[], Awaitable[Connection]],
        say: Callable[[str], None],
    ) -> None:
        self._log = log
        self._ownership = Ownership(log, name)
        self._slot = slot
        self._connect = connect
        self._say = say
        self._sessions = Sessions(say)

    async def run(self) -> None:
        """Ship for ever. Raises LogTaken, ShippingRefused, and what no waiting makes better."""
        await self._sessions.run(self._session)

    async def _session(self) -> None:
        connection = await self._connect()
        try:
            system = await connection.identify()
            # Who has no business here is turned away before the epoch is acquired, so that it
            # disturbs nobody.
            await self._ownership.check(APPEND_TIMEOUT_S)
            await self._next(connection, system)
            await connection.ensure_slot(self._slot)
            await self._ownership.acquire(APPEND_TIMEOUT_S)
            while True:
                system = await connection.identify()
                following, chunk = await self._next(connection, system)
                if following.history:
                    await self._log.append(chunk.encode(), timeout=APPEND_TIMEOUT_S)
                await connection.start_stream(self._slot, following.timeline, following.start)
                where = f"timeline {following.timeline} from {position_text(following.start)}"
                self._sessions.goes_on(f"streaming {where}")
                status = await self._log.status(timeout=APPEND_TIMEOUT_S)
                next_lsn = status.position.applied_lsn + 1
                await Stream(self._log, connection, chunk, next_lsn).run()
                self._say(f"timeline {following.timeline} has ended")
        finally:
            connection.close()

    async def _next(self, connection: Connection, system: System) -> tuple[Next, Chunk]:
        """What to stream, and the chunk that the log ends with before it: that which it has, or the
        history that has to be appended.
        """
        end = await wal_log.last_chunk(self._log)
        text = None
        if system.timeline > 1 and (end is None or end.timeline < system.timeline):
            text = await connection.timeline_history(system.timeline)
        following = where_to_go_on(end, system, text)
        if following.history:
            if following.timeline != system.timeline:
                text = await connection.timeline_history(following.timeline)
            data, kind = text or b"", HISTORY
        else:
            data, kind = b"", WAL
        log2, identifier = system.segment_log2, system.identifier
        return following, Chunk(kind, log2, following.timeline, identifier, following.start, data)
