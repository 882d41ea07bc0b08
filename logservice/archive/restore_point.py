"""restore_point: where a log stood at a time, as far as its archive can tell.

Theory of operation. A point in time is judged by the append times that the log gave to its entries,
and by no other clock. They grow from entry to entry, also over changes of the leader, and all
records of an entry have one, those of all its blocks; so an entry lies before the point as a whole,
or behind it. What is restored ends behind the last LSN whose append time is at or below the point.

INV-RESTORE-6: what a point gives is everything that the log had appended by then, or it is refused.
Only the archive is there to prove it. So the next LSN must be archived and younger. A point at the
append time of the last one is refused like one behind it: an object may end between two blocks of
one entry (`shipping`), and then the archive lacks the other one. So is one before the first
archived record, one that LSNs without append times lie at, and one beside LSNs that were truncated
before they were archived.

The rows say the times of their ends. They tell in which object to look first, and prove nothing:
what counts is in objects, whose bytes are checked before (INV-RESTORE-5). A row that has younger
records than it says is found when they are read (`restore_plan`).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from logservice_wire.errors import InvalidArgument

from logservice.archive.damage import ArchiveDamaged
from logservice.archive.manifest import Manifest, Row
from logservice.archive.restore_source import Run, check_object, object_runs
from logservice.sealing_keys import Keys

_BEGIN = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class PointTooEarly(InvalidArgument):
    """It lies before the first archived record; metadata: lsn and append_time_us of that one."""


class PointTooLate(InvalidArgument):
    """It is not before the last archived record; metadata: lsn and append_time_us of that one."""


def end_at(manifest: Manifest, rows: Sequence[Row], point_us: int, keys: Keys | None) -> int:
    """The LSN behind the last one that was appended at that time or before.

    Raises PointTooEarly, PointTooLate, InvalidArgument (the archive cannot tell), ArchiveDamaged.
    """
    last: Run | None = None
    for row in rows[_first(rows, point_us) :]:
        if row.missing:
            if last is not None:
                raise InvalidArgument(
                    f"LSNs {row.first_lsn} to {row.end_lsn - 1} were truncated before they were "
                    f"archived, and may be from before that time: say an LSN",
                    field="to",
                )
            continue
        for run in _read(manifest, row, keys):
            if run.append_time_us > point_us:
                if last is None:
                    raise PointTooEarly(
                        f"the archive begins at LSN {run.first_lsn}, appended at "
                        f"{moment(run.append_time_us)}",
                        field="to",
                        lsn=run.first_lsn,
                        append_time_us=run.append_time_us,
                    )
                _need_time(last)
                return run.first_lsn
            last = run
    if last is None:
        raise InvalidArgument("nothing of the log was archived: all is missing", field="log")
    _need_time(last)
    end_lsn = last.first_lsn + last.count
    raise PointTooLate(
        f"the archive ends at LSN {end_lsn - 1}, appended at {moment(last.append_time_us)}: "
        "it may lack records from that time or before; say an LSN, or nothing for all there is",
        field="to",
        lsn=end_lsn - 1,
        append_time_us=last.append_time_us,
    )


def moment(time_us: int) -> str:
    """ISO 8601, UTC, as the command line takes it."""
    return (_BEGIN + datetime.timedelta(microseconds=time_us)).isoformat(timespec="microseconds")


def _first(rows: Sequence[Row], point_us: int) -> int:
    """The row where it is worth while to begin: the last one that began by then."""
    found = [
        at
        for at, row in enumerate(rows)
        if row.append_time_us is not None and row.append_time_us[0] <= point_us
    ]
    return found[-1] if found else 0


def _read(manifest: Manifest, row: Row, keys: Keys | None) -> Iterator[Run]:
    """The runs of a row's object. Raises ArchiveDamaged, also when the row says another time."""
    check_object(manifest, row)
    said = row.append_time_us
    with object_runs(manifest, row, keys) as found:
        for run in found:
            if (
                said is not None
                and run.first_lsn == row.first_lsn
                and run.append_time_us != said[0]
            ):
                raise ArchiveDamaged(detail=f"{row.object}: append times that its row does not say")
            yield run


def _need_time(run: Run) -> None:
    if not run.append_time_us:
        raise InvalidArgument(
            f"LSN {run.first_lsn + run.count - 1} has no append time in the archive: say an LSN",
            field="to",
        )
