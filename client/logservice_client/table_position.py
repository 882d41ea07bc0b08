"""What all have in common that keep in a table how far it is with a log: `logservice_delta`, and
the replay job of Spark. The position of a job stands in the table, under an id that the job's name
is a part of.
"""

from __future__ import annotations

from typing import Final

from logservice_wire.errors import InvalidArgument, LineageChanged

from logservice_client.lineage import Lineage

JOB_CHARS_MAX: Final = 128
"""The length of a job's name. It is in every commit, for as long as the table lives."""


def check_job(name: str) -> None:
    """Raises InvalidArgument for a name that would make two jobs of one."""
    if not name or "/" in name or len(name) > JOB_CHARS_MAX:
        problem = f"1 to {JOB_CHARS_MAX} characters without a slash"
        raise InvalidArgument(f"a job's name has {problem}", field="job")


def another_history(shard: int, last_lsn: int, lineage: Lineage) -> LineageChanged:
    """The error of a table that has a log up to `last_lsn`, beyond the fork of what the log is."""
    return LineageChanged(
        f"the table has log {shard} up to LSN {last_lsn} of another history; the log is of lineage "
        f"{lineage.number} now, which has LSNs up to {lineage.fork_lsn} in common with the one "
        "before",
        actual=lineage.id.hex(),
        number=lineage.number,
        fork_lsn=lineage.fork_lsn,
    )
