"""History files: one JSON array per line and operation, written by the processes that did them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from logservice.sim.history import Append, Operation, Outcome, Read, Run, Truncate


def encode(operation: Operation) -> str:
    """The line of one operation."""
    match operation:
        case Append():
            fields: list[object] = [
                "append",
                operation.client,
                operation.batch,
                operation.count,
                operation.invoked,
                operation.returned,
                operation.outcome.value,
                operation.lsn,
                operation.stream,
                operation.sequence,
                operation.session,
            ]
        case Truncate():
            fields = [
                "truncate",
                operation.client,
                operation.lsn,
                operation.invoked,
                operation.returned,
                operation.outcome.value,
                operation.truncated_lsn,
            ]
        case Read():
            fields = [
                "read",
                operation.client,
                operation.replica,
                operation.invoked,
                operation.returned,
                operation.lsn,
                [(r.lsn, r.count, r.batch, r.start, r.gap) for r in operation.runs],
                operation.next_lsn,
                operation.first_lsn,
                operation.applied_lsn,
                operation.linearizable,
                operation.final,
                operation.error,
            ]
    return json.dumps(fields, separators=(",", ":"))


def decode(line: str) -> Operation:
    """Inverse of `encode`; raises ValueError for anything else."""
    kind, *fields = json.loads(line)
    match kind:
        case "append":
            fields[5] = Outcome(fields[5])
            return Append(*fields)
        case "truncate":
            fields[4] = Outcome(fields[4])
            return Truncate(*fields)
        case "read":
            fields[5] = tuple(Run(*run) for run in fields[5])
            return Read(*fields)
    raise ValueError(f"unknown operation {kind!r}")


class HistoryWriter:
    """Appends operations to a new, empty file."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("w", encoding="utf-8")

    def add(self, operation: Operation) -> None:
        """Add one operation. Lines are buffered: the file is complete after `close`."""
        self._file.write(encode(operation) + "\n")

    def close(self) -> None:

        self._file.close()


def load(paths: Iterable[Path]) -> list[Operation]:
    """All operations of several files."""
    operations: list[Operation] = []
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            operations += [decode(line) for line in lines]
    return operations
