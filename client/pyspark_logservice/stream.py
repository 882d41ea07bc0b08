"""LogStreamReader: ``spark.readStream.format("logservice")``, micro-batches between two offsets.

Theory of operation. Spark keeps offsets (`offsets`) in the query's checkpoint. It asks how far the
next micro-batch goes, writes that offset down, and then has the LSNs between the last one and this
one read; after a failure it has the same ones read again. So everything that a micro-batch holds
follows from its two offsets alone:

- S1  The LSNs of a micro-batch are, for each shard of both offsets, those from the first to before
      the second. Reading them again gives the same rows or an error, never fewer or others: a task
      names the lineage of the offsets with every read, and truncated records are an error
      (failOnDataLoss=false: a warning with their number).
- S2  Of two offsets in a row the second one is nowhere below the first, and a shard is in the
      second with the lineage that it had in the first. A shard whose log has another lineage now
      ends the query with LINEAGE_CHANGED.
- S3  A log that * or a pattern comes to mean joins with its oldest LSN, at the boundary between two
      micro-batches: nothing of it is in the first one that names it, and then S1 holds for it.
- S4  A shard leaves only when the options do not mean it any more, for example because it was
      deleted, and only with failOnDataLoss=false: what was not read of it is not known.

The limit that Spark passes is kept: ReadAllAvailable ignores what the options say. Spark has no
limit by records and by bytes in one, so where the options have both, Spark is told of the records,
and the bytes hold whenever it passes a limit at all.

Spark asks without a pause while there is nothing new. Every question costs the leaders a round of
messages, so an answer that brought nothing is followed by a short wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from logservice_wire.errors import (
    ShardDeleted,
    ShardNotFound,
    ShardRestoring,
)
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_logservice.holds import Holds
from pyspark_logservice.limits import Backlog, within_bytes, within_records
from pyspark_logservice.logs import Logs, Standing
from pyspark_logservice.loss import (
    LOG,
    DataLossError,
    another_history,
    check_loss,
    warn_loss,
)
from pyspark_logservice.offsets import StreamOffset
from pyspark_logservice.one_line import in_one_line
from pyspark_logservice.options import ReadOptions, check_named
from pyspark_logservice.plan import LsnRange, cut, narrow, resolve
from pyspark_logservice.rows import rows
from pyspark_logservice.sizes import reach

if TYPE_CHECKING:
    import pyarrow as pa

DISCOVERY_S: Final = 5.0
"""How often new logs are looked for: it is a question to HAKeeper about all of them."""

IDLE_S: Final = 0.1
"""From an answer that brought nothing to the next question: less than a micro-batch costs Spark."""


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in a process of its own beside the driver, but for `read`, which runs in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        """No I/O: this runs in several processes."""
        self._options = options
        self._connected: Logs | None = None
        self._holds = Holds(options)
        self._named: tuple[int, ...] | None = None
        self._meant: tuple[int, ...] = ()
        self._awaited: set[str] = set()
        self._look_at_s = 0.0
        self._ask_at_s = 0.0
        self._newest: Mapping[int, Standing] | None = None
        self._target: Mapping[int, int] | None = None
        """Of a query with the trigger availableNow: where it ends."""

    # --- what Spark asks -------------------------------------------------------------------------

    @in_one_line()
    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        options, logs = self._options, self._logs()
        standings = self._standings(fresh=True)
        check_named(options, standings)
        lsns, lineages = {}, {}
        for shard, found in standings.items():
            newest = found.next_lsn - 1
            start, _ = resolve(options, shard, found.first_lsn, newest)
            start, _ = narrow(options, logs, shard, start, found.next_lsn)
            lsns[shard], lineages[shard] = start, found.lineage
        self._holds.keep(logs, lsns)
        return StreamOffset(lsns, lineages).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What Spark passes on, but for triggers that mean everything."""
        if self._options.trigger_records_max:
            return ReadMaxRows(self._options.trigger_records_max)
        if self._options.trigger_bytes:
            return ReadMaxBytes(self._options.trigger_bytes)
        return ReadAllAvailable()

    @in_one_line()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` itself when there is nothing new."""
        time.sleep(max(0.0, self._ask_at_s - time.monotonic()))
        begun = StreamOffset.of_json(start)
        standings = self._newest = self._standings(fresh=False)
        backlogs, lineages = {}, {}
        for shard in begun.lsns:
            if self._is_meant(shard, begun.lsns[shard]):
                backlogs[shard] = self._backlog(begun, shard, standings)
                lineages[shard] = begun.lineage_of(shard)
        # What lies below these is in micro-batches that are done. What is gone above them is a loss
        # that was told above, or that the next question tells.
        self._holds.keep(self._logs(), {shard: begun.lsns[shard] for shard in backlogs})
        lsns = {shard: one.start for shard, one in backlogs.items()}
        lsns.update(self._ends(backlogs, limit))
        for shard, found in standings.items():
            joins = self._target is None or shard in self._target
            if shard not in begun.lsns and joins:
                lsns[shard], lineages[shard] = found.first_lsn, found.lineage
        end = StreamOffset(lsns, lineages).to_json()
        if end == begun.to_json():
            self._ask_at_s = time.monotonic() + IDLE_S
        return end

    @in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is read by this query, and nothing that comes later."""
        standings = self._standings(fresh=True)
        self._target = {shard: found.next_lsn for shard, found in standings.items()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the logs end, for whoever watches the query's lag. Spark asks after `latestOffset`,
        which was just told.
        """
        if self._newest is None:
            return None
        return StreamOffset(
            {shard: found.next_lsn for shard, found in self._newest.items()},
            {shard: found.lineage for shard, found in self._newest.items()},
        ).to_json()

    @in_one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The LSNs between two offsets in ranges, one per task."""
        begun, ended = StreamOffset.of_json(start), StreamOffset.of_json(end)
        ranges = []
        for shard, behind in ended.lsns.items():
            first = begun.lsns.get(shard, behind)
            if first == behind or not self._is_meant(shard, first):
                continue
            if behind < first:
                raise DataLossError(
                    f"shard {shard}: a micro-batch from LSN {first} to before {behind}"
                )
            ranges.append(LsnRange(shard, first, behind, lineage=ended.lineage_of(shard).id))
        return [InputPartition(piece) for piece in cut(self._options, self._logs(), ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, as Arrow batches."""
        return rows(self._options, partition.value)

    def stop(self) -> None:
        """The query ended."""
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    # --- which logs ------------------------------------------------------------------------------

    def _logs(self) -> Logs:
        if self._connected is None:
            self._connected = Logs(self._options)
        return self._connected

    def _shards(self, *, fresh: bool) -> tuple[int, ...]:
        """What the options mean. Names are looked up once: the query stays with the logs that had
        them.
        """
        logs = self._logs()
        if self._named is None:
            self._named = logs.named()
        if fresh or time.monotonic() >= self._look_at_s:
            found = logs.by_pattern()
            self._meant = tuple(shard for shards in found.values() for shard in shards)
            self._tell_awaited({pattern for pattern, shards in found.items() if not shards})
            self._look_at_s = time.monotonic() + DISCOVERY_S
        return tuple(sorted({*self._named, *self._meant}))

    def _tell_awaited(self, patterns: set[str]) -> None:
        """Say once of each pattern that it means no log: the query waits for one, or it is a
        mistake.
        """
        for pattern in sorted(patterns - self._awaited):
            LOG.warning("no log has a name like %r; the query waits for one", pattern)
        self._awaited |= patterns

    def _standings(self, *, fresh: bool) -> dict[int, Standing]:
        """Where they stand; without those of a pattern that a restore has not opened yet."""
        try:
            standings = self._logs().standings(self._shards(fresh=fresh))
        except (ShardDeleted, ShardNotFound):
            # One of a pattern may have been deleted since it was looked for.
            standings = self._logs().standings(self._shards(fresh=True))
        for shard, found in standings.items():
            if not found.readable and shard in (self._named or ()):
                raise ShardRestoring(f"shard {shard} is being restored")
        return {shard: found for shard, found in standings.items() if found.readable}

    def _is_meant(self, shard: int, lsn: int) -> bool:
        """Whether the options still mean a shard of an offset (S4), which is at `lsn`."""
        if shard in self._shards(fresh=False):
            return True
        gone = (
            f"shard {shard}: the checkpoint is at LSN {lsn}, but the options do not mean this log "
            "any more, or it was deleted"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{gone}. Set failOnDataLoss to false to go on without it")
        warn_loss(f"{gone}. It is left out")
        return False

    # --- how far ---------------------------------------------------------------------------------

    def _backlog(
        self, begun: StreamOffset, shard: int, standings: Mapping[int, Standing]
    ) -> Backlog:
        """What is there behind an offset, by S2."""
        start = begun.lsns[shard]
        found = standings.get(shard)
        if found is None:
            return Backlog(start, start)
        known = begun.lineage_of(shard)
        if found.lineage.id != known.id:
            if found.lineage.number < known.number:
                # A store that has not applied the continuation yet; it has nothing new for sure.
                return Backlog(start, start)
            raise another_history(
                shard,
                known.id.hex(),
                found.lineage.id.hex(),
                found.lineage.number,
                found.lineage.fork_lsn,
            )
        if start > found.next_lsn:
            raise DataLossError(
                f"shard {shard}: the checkpoint is at LSN {start}, but the newest record is "
                f"{found.next_lsn - 1}: this is not the log that the checkpoint was made for"
            )
        check_loss(
            self._options, shard, start, found.first_lsn, found.next_lsn, "behind the checkpoint, "
        )
        target = found.next_lsn
        if self._target is not None:
            target = min(target, self._target.get(shard, start))
        # What is gone takes no part of a limit; a task leaves it out.
        return Backlog(min(max(start, found.first_lsn), max(start, target)), max(start, target))

    def _ends(self, backlogs: Mapping[int, Backlog], limit: ReadLimit) -> dict[int, int]:
        """How far a micro-batch goes, of the shards that have something new."""
        new = {shard: one for shard, one in backlogs.items() if one.end > one.start}
        everything = {shard: one.end for shard, one in new.items()}
        if isinstance(limit, ReadAllAvailable) or not new:
            return everything
        if isinstance(limit, ReadMinRows):
            there = sum(one.end - one.start for one in new.values())
            enough = there >= limit.min_rows or self._target is not None
            return everything if enough else {}
        if isinstance(limit, ReadMaxRows):
            everything = within_records(new, limit.max_rows)
        if isinstance(limit, ReadMaxBytes) or self._options.trigger_bytes:
            size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0
            size = min(filter(None, (size, self._options.trigger_bytes)))
            taken = {
                shard: Backlog(new[shard].start, end)
                for shard, end in everything.items()
                if end > new[shard].start
            }
            everything = {**everything, **self._within_bytes(taken, size)}
        return everything

    def _within_bytes(self, backlogs: Mapping[int, Backlog], size: int) -> dict[int, int]:
        logs = self._logs()
        shards = sorted(backlogs)
        found = logs.each(
            lambda shard: reach(
                logs.sample(shard),
                backlogs[shard].start,
                backlogs[shard].end,
                size,
            ),
            shards,
        )
        return within_bytes(dict(zip(shards, found, strict=True)), size)
