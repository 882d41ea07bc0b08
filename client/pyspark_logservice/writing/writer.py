"""LogWriter and LogStreamWriter: the rows of a task, appended exactly once.

Theory of operation. Spark may run a task several times: after a failure, beside another attempt
that is slow, and a whole micro-batch again after the driver has died between the end of its tasks
and its own note of that. Every attempt does the same piece of work (`identity`), and the logs know
it by a named session (`logservice_client.named_session`): its name says query and partition, its
epoch the micro-batch.

A task reads its input to the end and makes its blocks of it (`blocks`). Then it goes to the first
of the query's logs, its *home*. There it opens the query's own session, whose epoch is the
micro-batch, too: so work of an earlier one is late also where its partition is new, because a
checkpoint was set back and the micro-batch is cut otherwise now. Then it opens its session and says
there what it is going to append to all logs, by a digest. Only then, and only if no attempt has
said anything else, does it open the sessions of the logs that get something, and at last it appends
what is not there yet.

- W1  A block of a piece of work is in its log at most once, whatever is run again or twice.
- W2  Blocks of two attempts that differ are never both in the logs: the second one is refused at
      the home (DifferentRetryError), before it appends.
- W3  A task that is refused for its rows, for a codec that is not installed, for a log that is not
      there or that it may not write, has appended nothing.
- W4  A session that is gone is an error (LostWriteError) and not a new start.

What Spark calls commit and abort does nothing here. A task's records are in the logs, and can be
read, as soon as each of its blocks is acknowledged; there is no moment at which a micro-batch
appears as a whole. Commit comes later and changes nothing; abort takes nothing back, and what was
appended counts as a part of the attempt that comes next.

INV-SPARK-WRITE: whatever is run again, twice or late, a piece of work is in the logs once, and
never of two attempts that differ (W1 to W4).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from logservice_client import SyncLogClient
from logservice_client.sync import SyncNamedSession
from logservice_wire.codecs import codec_of, compress
from logservice_wire.errors import SequenceReused, SessionExpired
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_logservice.writing.blocks import Blocks
from pyspark_logservice.writing.columns import NAME, more_columns, routing_column
from pyspark_logservice.writing.identity import Work, work_of
from pyspark_logservice.writing.options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

ResultT = TypeVar("ResultT")

_HOW_ON: Final = "docs/spark.md, Writing, says how to go on"


_WHOLE: Final = bytes(32)
"""What all partitions say that they append together: nobody knows it before they all have begun."""


class DifferentRetryError(RuntimeError):
    """An attempt has other rows, or the same in another order, than the first one that came as far
    as to append. Nothing of this one was appended.
    """


class LostWriteError(RuntimeError):
    """The log does not know any more what this piece of work has appended, or a later one was
    begun. Nothing of this attempt was appended behind what made it fail.
    """


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task has in the logs: its records by shard."""

    partition: int
    records: dict[int, int] = field(default_factory=dict)


class _Writing:
    """What both writers do in a task."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """No I/O: this runs on the driver. Raises ColumnError."""
        self._options = options
        self._routing = routing_column(schema, options)
        self._more = more_columns(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of one task. Raises what the module describes, and errors of the service."""
        options = self._options
        work = work_of(options, TaskContext.get())
        compress(codec_of(options.codec), b"")  # CodecMissing, before anything is read
        with SyncLogClient(options.endpoints, tls=options.tls()) as client:
            ids = {log: _resolved(client, log, options.rpc_timeout_s) for log in options.logs}
            home = ids[options.logs[0]]
            said = {log if self._routing == NAME else shard: shard for log, shard in ids.items()}
            blocks = Blocks(self._routing, said, home, more=self._more, codec=options.codec)
            try:
                for batch in iterator:
                    blocks.add(batch)
                return append_all(client, options, work, home, blocks)
            finally:
                blocks.close()


class LogWriter(_Writing, DataSourceArrowWriter):
    """``df.write.format("logservice")``."""


class LogStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """``df.writeStream.format("logservice")``."""


def append_all(
    client: SyncLogClient, options: WriteOptions, work: Work, home: int, blocks: Blocks
) -> Written:
    """Append what is not in the logs yet. Raises DifferentRetryError and LostWriteError."""
    content, now_us = blocks.content(), time.time_ns() // 1000

    def opened(log: int, name: str, content: bytes) -> SyncNamedSession:
        return _told(
            work,
            log,
            lambda: client.shard(log).named_session(
                name,
                epoch=work.epoch,
                content=content,
                stamp_us=now_us,
                ttl_s=work.ttl_s,
                timeout=options.rpc_timeout_s,
            ),
        )

    opened(home, work.whole, _WHOLE)
    # The home first: an attempt that differs opens nothing else. All of them before any block.
    sessions = {
        log: opened(log, work.session, content) for log in dict.fromkeys((home, *blocks.logs()))
    }
    for log in blocks.logs():
        session = sessions[log]
        if session.appended > blocks.count(log):
            raise LostWriteError(
                f"{work}: log {log} says that it has {session.appended} blocks of it, of "
                f"{blocks.count(log)}: the store that answered lies, or is broken"
            )
        while session.appended < blocks.count(log):
            block = blocks.block(log, session.appended, session.stamp_us)
            _told(
                work,
                log,
                lambda session=session, block=block: _append(  # type: ignore[misc]
                    session, block, options.rpc_timeout_s
                ),
            )
    return Written(work.partition, {log: blocks.records(log) for log in blocks.logs()})


def _append(session: SyncNamedSession, block: bytes, timeout_s: float) -> None:
    """The next block; or another attempt has appended it, in other bytes.

    The log tells blocks apart by their bytes, and a codec may make others of the same rows
    (`blocks`). Who appends in this epoch has opened it with the same content, so what is there has
    the rows of this block. Only where the log does not count it is it an error.
    """
    known = session.appended
    try:
        session.append(block, timeout=timeout_s)
    except SequenceReused:
        session.open(timeout_s)
        if session.appended <= known:
            raise


def _told(work: Work, log: int, call: Callable[[], ResultT]) -> ResultT:
    """`call`, whose refusals name the piece of work."""
    try:
        return call()
    except SequenceReused as error:
        raise DifferentRetryError(
            f"{work}: another attempt has said that it appends other rows, or the same in another "
            f"order (log {log}). Nothing of this one was appended. {_HOW_ON}"
        ) from error
    except SessionExpired as error:
        raise LostWriteError(
            f"{work}: log {log} has begun a later one, or was continued by force, and cannot say "
            f"what was appended. {_HOW_ON}"
        ) from error


def check_logs(options: WriteOptions) -> None:
    """Look every log of a write up, on the driver: a write to a log that is not there, or to stores
    that do not answer, fails before Spark begins a task. Raises ShardNotFound, LogServiceError.
    """
    with SyncLogClient(options.endpoints, tls=options.tls()) as client:
        for log in options.logs:
            if log.isdecimal():
                client.hakeeper.shard_info(int(log), timeout=options.rpc_timeout_s)
            else:
                _resolved(client, log, options.rpc_timeout_s)


def _resolved(client: SyncLogClient, log: str, timeout_s: float) -> int:
    """The id of a log. Raises ShardNotFound."""
    if log.isdecimal():
        return int(log)
    return client.hakeeper.resolve_shard(log, timeout=timeout_s).shard_id
