"""The writers with a fault in a task or in a commit, for real Spark.

The source is made inside of a function, so that it is pickled with its fault; the writers are found
by their module, as the product's are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from logservice_client.sync import SyncNamedSession
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource
from pyspark_logservice import DefaultSource
from pyspark_logservice.writing.writer import LogStreamWriter, LogWriter

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "logservice_faulty"
PAUSE_S: Final = 300.0


@dataclass(frozen=True)
class Fault:
    """What happens to a task's first attempt when it has appended that many blocks, or to a commit.

    how: "raise", "exit" (the process dies), "pause" until `marker`.go exists, "commit" (the commit
    pauses), "" for nothing. Whoever pauses makes the file `marker` first; only the first does.
    """

    how: str = ""
    appends: int = 0
    marker: str = ""


class _Faulty:
    fault: Fault

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        with _patched(self.fault):
            return super().write(iterator)  # type: ignore[misc]


class FaultyWriter(_Faulty, LogWriter):
    pass


class FaultyStreamWriter(_Faulty, LogStreamWriter):
    def commit(self, messages: Any, batchId: int) -> None:
        if self.fault.how == "commit":
            _pause(self.fault.marker)
        super().commit(messages, batchId)


def faulty(fault: Fault) -> type[DataSource]:
    """A source of the name NAME."""

    class Source(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "logservice_faulty"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return _with(FaultyWriter, super().writer(schema, overwrite), fault)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return _with(FaultyStreamWriter, super().streamWriter(schema, overwrite), fault)

    return Source


def _with(kind: type[_Faulty], writer: Any, fault: Fault) -> Any:
    made = kind.__new__(kind)
    made.__dict__.update(writer.__dict__)
    made.fault = fault
    return made


@contextmanager
def _patched(fault: Fault) -> Iterator[None]:
    """Processes are used for several tasks, so the fault ends with its task."""
    append: Callable[..., None] = SyncNamedSession.append
    context = TaskContext.get()
    assert context is not None
    first = context.attemptNumber() == 0 and fault.how not in ("", "commit")
    left = [fault.appends]

    def failing(session: SyncNamedSession, block: bytes, **fields: Any) -> None:
        if first and not left[0]:
            _happen(fault)
        left[0] -= 1
        append(session, block, **fields)

    SyncNamedSession.append = failing  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        SyncNamedSession.append = append  # type: ignore[method-assign]


def _happen(fault: Fault) -> None:
    if fault.how == "pause":
        _pause(fault.marker)
    elif fault.how == "exit":
        os._exit(1)
    else:
        raise RuntimeError("the fault of a test")


def _pause(marker: str) -> None:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    until_s = time.monotonic() + PAUSE_S
    while not Path(f"{marker}.go").exists():
        if time.monotonic() > until_s:
            raise RuntimeError("nobody let it go on")
        time.sleep(0.05)
