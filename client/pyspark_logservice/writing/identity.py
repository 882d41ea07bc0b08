"""Which piece of work a task does: the same for every attempt, and for no other piece.

A stream is known by its id, which is in its checkpoint, and counts its micro-batches; a batch write
by the option ``logservice.writeId`` and its version. With the number of the partition that is the
name of a session, and the epoch in it.

Spark tells Python of the stream's id and micro-batch by local properties of the task, which its
guide does not mention. Without them nothing is written: a guess would append twice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from pyspark import TaskContext

from pyspark_logservice.checks import number
from pyspark_logservice.writing.options import DRAWN_TASK_S, DRAWN_TTL_S, VERSION_MAX, WriteOptions

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


class UnknownWorkError(RuntimeError):
    """It cannot be said which piece of work this task does, so it writes nothing."""


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work. whole: the session that all partitions share, which keeps work of an earlier
    epoch out also where a partition is new. job: what it is a part of, for people. ttl_s: of its
    sessions; 0: none.
    """

    whole: str
    session: str
    epoch: int
    partition: int
    job: str
    ttl_s: int = 0

    def __str__(self) -> str:
        return f"partition {self.partition} of {self.job}"


def work_of(options: WriteOptions, context: TaskContext | None) -> Work:
    """The work of the task that calls. Raises UnknownWorkError."""
    if context is None:
        raise UnknownWorkError("not in a task of Spark")
    partition = context.partitionId()
    if options.write_id:
        if options.drawn_s and time.time() - options.drawn_s > DRAWN_TASK_S:
            raise UnknownWorkError(
                f"partition {partition} begins {DRAWN_TASK_S // 3600} hours after its write did: "
                "a write that takes so long needs the option 'logservice.writeId'"
            )
        return Work(
            f"spark-write/{options.write_id}",
            f"spark-write/{options.write_id}/{partition}",
            options.version,
            partition,
            f"version {options.version} of write {options.write_id!r}",
            DRAWN_TTL_S if options.drawn_s else 0,
        )
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    epoch = number(batch or "")
    if not query or epoch is None or epoch > VERSION_MAX:
        raise UnknownWorkError(
            f"Spark does not say which micro-batch of which query partition {partition} is of "
            f"({_QUERY}: {query!r}, {_BATCH}: {batch!r})"
        )
    return Work(
        f"spark-stream/{query}",
        f"spark-stream/{query}/{partition}",
        epoch,
        partition,
        f"micro-batch {epoch} of query {query}",
    )
