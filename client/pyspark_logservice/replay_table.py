"""ReplayTable: a Delta table that the replay job appends to, through Spark, each LSN once.

Theory of operation. Spark's writer for Delta takes an id and a number (txnAppId, txnVersion) that
come into the table in the same commit as the rows. Here the id is that of a log, its lineage and a
job, and the number is the last LSN that was read. So the table says how far it is, and a job that
is run again, or after it was killed, goes on behind that. Files of a commit that did not happen are
in no version of the table.

Delta refuses a commit when another one with the same id came in after the version that the job has
seen. So of two runs at once, one is told.

A log that was continued by force is another history (docs/operations/lost-quorum.md), and the table
goes on with it when all that it has lies below the fork.

- INV-REPLAYED-1: the rows of a commit are those of the LSNs behind the table's last one, up to the
  one that the commit names. Where a range would begin beyond, and leave LSNs out, it is refused.
- INV-REPLAYED-2: a table has rows of one history of a log.
- INV-REPLAYED-3: rows of the log in a table that does not say how far it is are somebody else's.
  Nothing is added to them.

`logservice_delta` keeps the same invariants without Spark. It has two ids in a commit, and Spark's
writer takes one; so the two do not go on with each other's tables (INV-REPLAYED-3 and its twin).

Spark has no call for the numbers of a table. They are read from Delta's own log in the JVM
(`DeltaLog`), the class that Delta's sink asks for the same thing.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Final

from logservice_client.lineage import Lineage
from logservice_client.table_position import another_history
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_logservice.options import MORE_COLUMNS

FORMAT: Final = "delta"

_RECENT_COMMITS: Final = 100
"""A run looks for its own commit among them, right after it."""


class TableError(RuntimeError):
    """Nothing was added to the table; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ReplayedLog:
    """A log as the cluster describes it, and the job: two jobs have a position each in one table.
    `parent`: the lineage that `lineage` continues.
    """

    cluster_id: str
    shard: int
    lineage: Lineage
    parent: bytes
    job: str

    def app_id(self, lineage: bytes) -> str:
        """The id under which a table keeps the last LSN that is of a lineage."""
        return f"logservice/{self.cluster_id}/{self.shard}/{self.job}/{lineage.hex()}"


class ReplayTable:
    """One table and one log. Needs a Spark with Delta, and not through Connect."""

    def __init__(self, spark: SparkSession, path: str, log: ReplayedLog) -> None:
        """Raises TableError when Spark has no Delta, or INV-REPLAYED-3; LineageChanged."""
        self._spark, self._path, self._log = spark, path, log
        self._jvm: Any = spark._jvm
        self._session: Any = spark._jsparkSession
        self.last_lsn = self._position()
        """The last LSN that the table has; 0: nothing of the log yet."""

    def first_lsn(self, start: int) -> int:
        """Where a job begins that is asked for the LSNs from `start` on. Raises TableError
        (INV-REPLAYED-1).
        """
        following = self.last_lsn + 1
        if not self.last_lsn:
            return start
        if start > following:
            raise TableError(
                f"the table has log {self._log.shard} up to LSN {self.last_lsn}; a range from "
                f"{start} on would leave out LSNs from {following} on"
            )
        return following

    def append(self, rows: DataFrame, last_lsn: int) -> None:
        """Commit the rows of the LSNs behind the table's last one up to `last_lsn`. Raises
        TableError when another run has done so meanwhile, or when the table has a column of wide
        blocks that the rows do not have; what Spark and Delta raise comes as it is. Nothing was
        added then.
        """
        self._check_columns(rows)
        run = f"replay of log {self._log.shard} to LSN {last_lsn}: {secrets.token_hex(8)}"
        writer = rows.write.format(FORMAT).mode("append").option("userMetadata", run)
        writer = writer.option("txnAppId", self._log.app_id(self._log.lineage.id))
        writer.option("txnVersion", str(last_lsn)).save(self._path)
        # What the table has under the id already, Delta leaves out without a word.
        table = self._jvm.io.delta.tables.DeltaTable.forPath(self._session, self._path)
        recent = DataFrame(table.history(_RECENT_COMMITS), self._spark)
        if not recent.where(F.col("userMetadata") == run).take(1):
            raise TableError(f"another run of {self._log.job!r} has brought the same meanwhile")
        self.last_lsn = last_lsn

    def _check_columns(self, rows: DataFrame) -> None:
        """Delta refuses a column that the table lacks. One that the rows lack it would make null,
        and the keys of the log would be lost without a word.
        """
        if not self._jvm.io.delta.tables.DeltaTable.isDeltaTable(self._session, self._path):
            return
        there = self._table().columns
        lost = [name for name in MORE_COLUMNS if name in there and name not in rows.columns]
        if lost:
            names = ",".join(lost)
            raise TableError(f"the table has columns that this job does not read: --with {names}")

    def _position(self) -> int:
        try:
            delta = self._jvm.org.apache.spark.sql.delta.DeltaLog
            is_table = self._jvm.io.delta.tables.DeltaTable.isDeltaTable
            if not is_table(self._session, self._path):
                return 0
        except TypeError as error:  # Py4J takes a class that is not there for a package
            raise TableError(
                "this Spark has no Delta: start it with --packages io.delta:delta-spark_..., with "
                "the extension and the catalog that Delta's documentation names"
            ) from error
        # What this JVM has seen of the table before may be old.
        delta.clearCache()
        known = delta.forTable(self._session, self._path).unsafeVolatileSnapshot()
        numbers = known.transactions()

        def number(lineage: bytes) -> int:
            name = self._log.app_id(lineage)
            return int(numbers.apply(name)) if numbers.contains(name) else 0

        lineage = self._log.lineage
        if found := number(lineage.id):
            return found
        before = number(self._log.parent) if lineage.number else 0
        if before > lineage.fork_lsn:
            raise another_history(self._log.shard, before, lineage)
        if not before:
            self._check_strangers()
        return before

    def _check_strangers(self) -> None:
        """INV-REPLAYED-3."""
        table = self._table()
        if "shard" in table.columns and table.where(F.col("shard") == self._log.shard).take(1):
            raise TableError(
                f"the table has rows of log {self._log.shard}, and does not say how far "
                f"{self._log.job!r} is: they are another job's, another history's or another "
                "cluster's, or the position has expired"
            )

    def _table(self) -> DataFrame:
        return self._spark.read.format(FORMAT).load(self._path)
