"""Data loss: what a reader does about records that are gone. An error that names them, or, where
the user said that losing them is fine (failOnDataLoss=false), a warning that counts them.
"""

from __future__ import annotations

import logging
from typing import Final

from logservice_wire.errors import LineageChanged

from pyspark_logservice.options import ReadOptions

LOG: Final = logging.getLogger("pyspark_logservice")
"""Spark's Python processes write warnings to stderr, which Spark keeps with the task's log."""


class DataLossError(RuntimeError):
    """Records of the asked range are gone or never were; the message says which and what to do."""


def check_loss(
    options: ReadOptions, shard: int, lsn: int, first_lsn: int, end: int, where: str = ""
) -> None:
    """LSNs from `lsn` on were asked for, up to before `end`; those below `first_lsn` are truncated.
    `where`: what stands at `lsn`.
    """
    behind = min(first_lsn, end)
    if lsn >= behind:
        return
    lost = (
        f"shard {shard}: {where}LSNs {lsn} to {behind - 1} were truncated; the oldest record is "
        f"{first_lsn}"
    )
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{lost}. Start there, keep records with a hold, or set failOnDataLoss to false "
            "to read what is left"
        )
    warn_loss(f"{lost}. {behind - lsn} LSNs are left out")


def another_history(shard: int, expected: str, actual: str, number: int, fork: int) -> Exception:
    """The log is not the one any more that a plan or a checkpoint was made for: LineageChanged."""
    return LineageChanged(
        f"shard {shard} is another history now than the one that was read. What was read up to "
        f"LSN {fork} is in the new one, too; what came behind that is not in the log any more. "
        "Take the rows behind that LSN out of what was written, and begin anew there; a streaming "
        "query with a new checkpoint",
        shard=shard,
        expected=expected,
        actual=actual,
        number=number,
        fork_lsn=fork,
    )


def warn_loss(lost: str) -> None:
    """Say what is left out."""
    LOG.warning("data loss: %s", lost)
