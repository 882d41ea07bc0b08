"""The shipper: each committed change of PostgreSQL into the log, once.

Theory of operation. PostgreSQL streams committed transactions through a logical replication slot,
in the order of their commits. The shipper appends their changes, and behind each transaction a mark
(`change`). A position is reported to the slot only when it is the end of a mark that is acked
(INV-PG-CHANGES-FLUSHED); so PostgreSQL keeps whatever the log does not have.

Where to go on stands in the log, in its last mark; the shipper keeps no state. A *session* begins
with nothing but that: it acquires the writer epoch (which fences what an earlier session has on its
way), reads the end of the log, and asks PostgreSQL for what was committed behind the mark. Whatever
goes wrong ends the session, and the next one begins again. A log without a mark begins with a copy
of all tables (`copy`).

What cannot become right by another try ends the shipper with its reason: another shipper has the
log (`ownership`), or the slot cannot continue the log. Then changes are missing, and only a new
copy makes the tables right; that is for somebody to decide (`Shipper.copy`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from logservice_client import Shard

from examples.postgres.ownership import Ownership
from examples.postgres.records import records
from examples.postgres.replication import Connection
from examples.postgres.sessions import Sessions
from examples.postgres.wal_position import position_text
from examples.postgres_changes import catalog
from examples.postgres_changes.appends import APPEND_TIMEOUT_S, Appends
from examples.postgres_changes.change import Mark
from examples.postgres_changes.copy import Copy
from examples.postgres_changes.keys import Columns
from examples.postgres_changes.log_end import End, end_of, keys_at
from examples.postgres_changes.stream import Stream
from examples.postgres_changes.transactions import ShippingRefused, Transactions


class Shipper:
    """Ships the changes of one publication into one log. `connect` makes a connection with
    `catalog.PARAMETERS` and the database. `say` is told what happens.
    """

    def __init__(
        self,
        log: Shard,
        name: str,
        slot: str,
        publication: str,
        connect: Callable[[], Awaitable[Connection]],
        say: Callable[[str], None],
    ) -> None:
        self._log = log
        self._ownership = Ownership(log, name)
        self._slot = slot
        self._publication = publication
        self._connect = connect
        self._say = say
        self._sessions = Sessions(say)

    async def run(self) -> None:
        """Ship for ever. Raises LogTaken, ShippingRefused, and what no waiting makes better."""
        await self._sessions.run(self._session)

    async def copy(self) -> Mark:
        """Make a new slot and a new copy of all tables, behind which shipping goes on. Raises what
        goes wrong; then it is to be done again.
        """
        connection = await self._connect()
        try:
            system = (await connection.identify()).identifier
            await self._ownership.acquire(APPEND_TIMEOUT_S)
            status = await self._log.status(timeout=APPEND_TIMEOUT_S)
            return await self._copied(connection, status.position.applied_lsn, system)
        finally:
            connection.close()

    async def _session(self) -> None:
        connection = await self._connect()
        try:
            system = (await connection.identify()).identifier
            # Who has no business here is turned away before the epoch is acquired, so that it
            # disturbs nobody.
            await self._ownership.check(APPEND_TIMEOUT_S)
            await self._end(connection, system)
            await self._ownership.acquire(APPEND_TIMEOUT_S)
            end = await self._end(connection, system)
            mark = end.mark
            if mark is None or end.in_a_copy:
                mark = await self._copied(connection, end.last_lsn, system)
                end = await end_of(self._log)
            keys = await keys_at(self._log, mark.keys)
            await connection.start_changes(self._slot, mark.end, self._publication)
            self._sessions.goes_on(f"streaming from {position_text(mark.end)}")
            there = None
            if end.begun is not None:
                there = records(self._log, end.begun_lsn, end.last_lsn)
            transactions = Transactions(system, keys, self._key_columns)
            await Stream(
                connection, Appends(self._log, end.last_lsn), transactions, mark, there
            ).run()
        finally:
            connection.close()

    async def _copied(self, connection: Connection, last_lsn: int, system: int) -> Mark:
        self._say("copying all tables")
        appends = Appends(self._log, last_lsn)
        mark = await Copy(connection, appends, self._slot, self._publication, system).run()
        self._say(f"copied {mark.changes - 2} rows as of {position_text(mark.end)}")
        return mark

    async def _end(self, connection: Connection, system: int) -> End:
        """What the log ends with, and the slot continues. Raises ShippingRefused.

        The slot is asked first. A shipper that we have not fenced yet may bring both on meanwhile,
        and the log is always as far as the slot.
        """
        slot = await catalog.slot(connection, self._slot)
        end = await end_of(self._log)
        if end.mark is None or end.in_a_copy:
            return end
        if end.mark.system != system:
            raise ShippingRefused(
                f"the log is of database system {end.mark.system}, and this is {system}"
            )
        if slot is None:
            raise ShippingRefused(
                f"there is no slot {self._slot!r} any more, and so changes behind"
                f" {position_text(end.mark.end)} may be missing: make a new copy"
            )
        if slot.plugin != "pgoutput":
            raise ShippingRefused(f"slot {self._slot!r} is of {slot.plugin!r}, not of 'pgoutput'")
        if slot.confirmed > end.mark.end:
            raise ShippingRefused(
                f"slot {self._slot!r} was read by somebody else, up to"
                f" {position_text(slot.confirmed)}, and the log ends at"
                f" {position_text(end.mark.end)}: make a new copy"
            )
        return end

    async def _key_columns(self, schema: str, table: str) -> Columns:
        """Those of a table, by another connection: while one streams it takes no SQL."""
        connection = await self._connect()
        try:
            return (await catalog.keys_of(connection, schema, table)).get((schema, table), ())
        finally:
            connection.close()
