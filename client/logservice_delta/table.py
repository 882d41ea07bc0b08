"""LogTable: what a Delta table has of one log, and how more of it gets in exactly once.

Theory of operation. A commit of Delta may name application transactions: an id and a number that
belong together with the rows, in one atomic step. Here the id is that of a log and a job, and the
number is the last LSN that the table has of it. So the table itself says how far it is, in every
version of it, and there is no second place that could say something else. A process that is killed
leaves the rows and the number, or neither. Parquet files of a commit that did not happen lie in
the table's directory, where no reader looks, until the table is vacuumed.

Delta refuses a commit when another one with the same id came in after the version that it was
prepared on. So of two runs of one job, one goes on and the other one is told (TableConflict).

A log that was continued by force is another history (docs/operations/lost-quorum.md), and so each
commit also names the lineage that its rows are of. A table goes on with a newer lineage only when
everything that it has lies below the fork.

- INV-TABLE-1: the rows of a commit begin behind the last LSN of the version that the commit was
  prepared on, and the commit names their last LSN. So no LSN is twice in the table, and none is
  left out but gaps, which have no record.
- INV-TABLE-2: a table has rows of one history of a log.
- INV-TABLE-3: rows of the log in a table that does not say how far it is are somebody else's, or
  the number expired (delta.setTransactionRetentionDuration). Nothing is added to them.
- INV-TABLE-5: a table that is not there is made by its first commit, and not before: a run that
  fails before leaves no table.

Sources: the Delta protocol's transaction identifiers; Spark's txnAppId and txnVersion, which are
the same thing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from logservice_client.arrow import SCHEMA as LOG_SCHEMA
from logservice_client.lineage import Lineage
from logservice_client.table_position import another_history, check_job
from logservice_wire.errors import InvalidArgument

SCHEMA: Final = pa.schema([pa.field("shard", pa.int64(), nullable=False), *LOG_SCHEMA])
"""The columns that a table gets when it is made."""

_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")

Write = Callable[[DeltaTable, pa.Table, CommitProperties], None]
"""Puts rows with the columns of SCHEMA into a table, in one commit that takes those properties."""


class TableConflict(RuntimeError):
    """The table is not what this job has left: another run of it is at work, or somebody else put
    the log's records in. Nothing was added.
    """


class LibraryPanicked(DeltaError):
    """Delta's library has ended a call where it should have raised an error: its Rust code has
    panicked, e.g. over two columns of one name. Nothing was committed by that call.
    """


@dataclass(frozen=True, slots=True)
class LogName:
    """Which log of which cluster, and for which job: two jobs have a position each."""

    cluster_id: str
    shard: int
    job: str = "records"

    def __post_init__(self) -> None:
        """Raises InvalidArgument for a name that would make two of one."""
        check_job(self.job)

    @property
    def app_id(self) -> str:
        """The id under which a table keeps the last LSN."""
        return f"logservice/{self.cluster_id}/{self.shard}/{self.job}"

    def lineage_app_id(self, lineage: bytes) -> str:
        """The id under which a table keeps the last LSN that is of that lineage."""
        return f"{self.app_id}/lineage/{lineage.hex()}"


def append_rows(table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    """The ordinary way to put rows into a table: one after the other, as they are."""
    write_deltalake(table, rows, mode="append", commit_properties=properties)


class LogTable:
    """One for each log; get it from `open`. Its methods block; one thread at a time may use it."""

    def __init__(
        self,
        table: DeltaTable | None,
        make: Callable[[], DeltaTable],
        name: LogName,
        lineage: Lineage,
        write: Write,
    ) -> None:
        """See `open`. `make`: the table, when there is none."""
        self._table = table
        self._make = make
        self._name = name
        self._lineage = lineage
        self._write = write
        self._committed = self._position()
        self.last_lsn = self._committed
        """The last LSN that the table has; 0: nothing of the log yet. `begin_at` moves it."""

    @classmethod
    def open(
        cls,
        uri: str,
        name: LogName,
        lineage: Lineage,
        *,
        parent: bytes = b"",
        write: Write = append_rows,
        schema: pa.Schema = SCHEMA,
        storage_options: Mapping[str, str] | None = None,
    ) -> LogTable:
        """Open a table; one that is not there is made by the first commit, with `schema`.
        `lineage`: the log's now; `parent`: the one that it continues. `write` puts the rows in (a
        merge, for example); it has to pass the properties on.

        Raises LineageChanged when the table has records of another history, TableConflict when it
        has rows of the log and does not say how far it is, InvalidArgument for a path that Delta's
        library does not find again, DeltaError and OSError.
        """
        _check_path(uri)
        options = dict(storage_options or {})

        def make() -> DeltaTable:
            # Who makes it at the same time wins; the table is the same one then.
            return DeltaTable.create(uri, schema, mode="ignore", storage_options=options)

        table: DeltaTable | None = None
        with suppress(TableNotFoundError):
            table = DeltaTable(uri, storage_options=options)
        made = cls(table, make, name, lineage, write)
        made._check_history(parent)
        made._check_strangers()
        return made

    def begin_at(self, lsn: int) -> None:
        """The first commit of a table that has nothing of the log begins with this LSN."""
        if self._committed:
            raise InvalidArgument(
                f"the table has the log up to LSN {self._committed}", field="from"
            )
        self.last_lsn = lsn - 1

    def append(self, rows: pa.Table, last_lsn: int, *, patience_s: float = 0.0) -> None:
        """Put in the rows of the LSNs behind `self.last_lsn` up to `last_lsn`; those that are
        missing are gaps. A commit whose outcome is unknown is looked up in the table; one that did
        not happen is tried again for `patience_s`.

        Raises TableConflict, DeltaError, OSError.
        """
        if last_lsn <= self.last_lsn:
            raise InvalidArgument(
                f"the table has the log up to LSN {self.last_lsn}, which is not before {last_lsn}",
                field="last_lsn",
            )
        give_up_s, pause_s = time.monotonic() + patience_s, 0.1
        before = self._committed
        table = self._made()
        while True:
            try:
                _written(self._write, table, rows, self._properties(last_lsn))
            except LibraryPanicked:
                raise
            except (DeltaError, OSError):
                found = self._look_again()
                if found == last_lsn:
                    break
                if found != before:
                    raise self._overtaken(found) from None
                if time.monotonic() + pause_s > give_up_s:
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 5.0)
            else:
                break
        self.last_lsn = self._committed = last_lsn

    @property
    def version(self) -> int | None:
        """The version of the table that was written or read last; None: there is no table yet."""
        return None if self._table is None else self._table.version()

    def _made(self) -> DeltaTable:
        """INV-TABLE-5. One that another run has made meanwhile is looked at as in `open`."""
        if self._table is None:
            self._table = self._make()
            if (found := self._position()) != self._committed:
                raise self._overtaken(found)
            self._check_strangers()
        return self._table

    def _overtaken(self, found: int) -> TableConflict:
        return TableConflict(
            f"another run of {self._name.job!r} has brought log {self._name.shard} up to LSN"
            f" {found} meanwhile"
        )

    def _properties(self, last_lsn: int) -> CommitProperties:
        """INV-TABLE-1, INV-TABLE-2."""
        kept = Transaction(self._name.app_id, last_lsn)
        lineage = self._lineage
        history = Transaction(self._name.lineage_app_id(lineage.id), last_lsn)
        return CommitProperties(app_transactions=[kept, history])

    def _position(self) -> int:
        return self._transaction(self._name.app_id) or 0

    def _transaction(self, app_id: str) -> int | None:
        return None if self._table is None else self._table.transaction_version(app_id)

    def _look_again(self) -> int:
        if self._table is not None:
            self._table.update_incremental()
        return self._position()

    def _check_history(self, parent: bytes) -> None:
        """INV-TABLE-2."""
        lineage = self._lineage
        if not self.last_lsn or self._is_of(lineage.id):
            return
        if lineage.number and self._is_of(parent) and self.last_lsn <= lineage.fork_lsn:
            return
        raise another_history(self._name.shard, self.last_lsn, lineage)

    def _is_of(self, lineage: bytes) -> bool:
        """Whether the newest rows are of that lineage."""
        return self._transaction(self._name.lineage_app_id(lineage)) == self.last_lsn

    def _check_strangers(self) -> None:
        """INV-TABLE-3, as far as the table has a column that says of which log a row is."""
        if self._committed or self._table is None:
            return
        if "shard" not in {one.name for one in self._table.schema().fields}:
            return
        rows = self._table.to_pyarrow_dataset().scanner(
            columns=["shard"], filter=pa.compute.field("shard") == self._name.shard
        )
        if rows.head(1).num_rows:
            raise TableConflict(
                f"the table has rows of log {self._name.shard}, and does not say how far "
                f"{self._name.job!r} is: they are another job's, or another cluster's, or the "
                "position has expired"
            )


def _written(write: Write, table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    """A panic is no Exception, and would pass every handler."""
    try:
        write(table, rows, properties)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise LibraryPanicked(f"Delta's library has panicked: {error}") from error


def _check_path(uri: str) -> None:
    """The library takes an escape in a name for the character that it stands for: it makes such a
    table, and does not find it again.
    """
    path = unquote(urlsplit(uri).path) if "://" in uri else uri
    if found := _ESCAPE.search(path):
        raise InvalidArgument(
            f"{uri!r}: a table's path cannot have a percent sign before two hexadecimal digits"
            f" ({found[0]}); choose another name",
            field="table",
        )
