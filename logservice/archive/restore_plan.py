"""restore_plan: what an archive can give back of a log, checked before anything is changed.

Theory of operation. The rows must be a chain of one log of one cluster (INV-ARCHIVE-1), and the
range that is wanted must be in objects: LSNs that were truncated before anybody archived them can
only lie before it. Each object is read: its SHA-256, and the digest of its records, must be what
its row says. The digest of the whole range is computed on the way; it is what the log will have to
have before it opens (`rsm.restoring`). So a restore that begins can only fail for what happens
later.

A manifest is hostile input. INV-RESTORE-5: no number in it becomes the log's because it is there. A
writer epoch must be one that a log of that lineage can have granted, and never falls from row to
row; lineages are counted up to RESTORED_LINEAGES_MAX; LSNs up to RESTORED_LSN_MAX. The restored log
takes its epochs from its own lineage number, above all of them.

Timestamps go on above the last that a row knows of, as far as after a fork. Rows of older programs
know none; then the log gives out none, unless the operator says above which one they may begin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from logservice_wire.digest import Digester, digest_text
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.archive.damage import ArchiveDamaged
from logservice.archive.folder import Files
from logservice.archive.manifest import Manifest, Row, marked, shard_ids
from logservice.archive.restore_point import end_at
from logservice.archive.restore_source import Run, check_object, object_runs
from logservice.archive.restoring import TIMESTAMP_MAX, Promise, timestamps_after
from logservice.lineage import LINEAGE_BYTES, NO_LINEAGE
from logservice.sealing_keys import Keys


@dataclass(frozen=True, slots=True)
class Plan:
    """What is restored. number: of the lineage that the log will have; parent: that of the source.
    timed: whether all of it has append times; those of its first and its last LSN, else 0.
    """

    shard_id: int
    name: str
    base_lsn: int
    end_lsn: int
    digest: bytes
    rows: tuple[Row, ...]
    records: int
    gap_lsns: int
    value_bytes: int
    number: int
    parent: bytes
    writer_epoch: int
    next_timestamp: int
    timed: bool
    first_time_us: int
    last_time_us: int

    @property
    def promise(self) -> Promise:
        """What the restored log will have to keep."""
        return Promise(
            self.base_lsn,
            self.end_lsn,
            self.digest,
            self.number,
            self.parent,
            self.writer_epoch,
            self.next_timestamp,
        )


def find(files: Files, log: str) -> tuple[int, str]:
    """Id and name of the log that the archive has under this name or id. Raises InvalidArgument,
    ArchiveDamaged.
    """
    marked(files)
    known = {
        one: row.name
        for one in shard_ids(files)
        if (row := Manifest(files, one).last_row()) is not None
    }
    if log.isdecimal() and int(log) in known:
        return int(log), known[int(log)]
    found = [one for one, name in known.items() if name == log]
    if len(found) != 1:
        which = f"; say which: {', '.join(map(str, found))}" if found else ""
        raise InvalidArgument(
            f"the archive has {len(found)} logs with that name{which}", field="log"
        )
    return found[0], log


def make_plan(
    files: Files,
    shard_id: int,
    keys: Keys | None,
    *,
    from_lsn: int | None = None,
    end_lsn: int | None = None,
    point_us: int | None = None,
    timestamps_above: int | None = None,
    progress: Callable[[Row], None] = lambda _: None,
) -> Plan:
    """Check everything that a restore of [from_lsn, end_lsn) needs; None: as far as it goes.
    `point_us`: up to that time (`restore_point`). With an `end_lsn`, too, that is where `end_of`
    has found it, and it is not looked for again; nothing younger is taken.

    Raises ArchiveDamaged, InvalidArgument (it is not in the archive, or keys are missing), OSError.
    """
    manifest = Manifest(files, shard_id)
    rows = list(manifest.rows())
    if not rows:
        raise InvalidArgument("the archive has nothing of that log", field="log")
    number, parent, epoch = _history(rows, marked(files))
    if point_us is not None and end_lsn is None:
        end_lsn = end_at(manifest, rows, point_us, keys)
    base_lsn, last_lsn = _range(rows, from_lsn, end_lsn)
    chosen = tuple(row for row in rows if row.end_lsn > base_lsn and row.first_lsn < last_lsn)
    whole = _Whole(base_lsn, last_lsn, point_us)
    for row in chosen:
        progress(row)
        whole.take(manifest, row, keys)
    return Plan(
        shard_id=shard_id,
        name=rows[-1].name,
        base_lsn=base_lsn,
        end_lsn=last_lsn,
        digest=whole.digester.digest(),
        rows=chosen,
        records=whole.digester.records,
        gap_lsns=whole.digester.gap_lsns,
        value_bytes=whole.digester.value_bytes,
        number=number + 1,
        parent=parent,
        writer_epoch=epoch,
        next_timestamp=_next_timestamp(rows, timestamps_above),
        timed=whole.timed,
        first_time_us=whole.first_time_us if whole.timed else 0,
        last_time_us=whole.time_us if whole.timed else 0,
    )


def end_of(files: Files, shard_id: int, keys: Keys | None, point_us: int | None) -> int | None:
    """Where a restore up to that time would end; without one, where the archive does. None: it has
    nothing of the log. Raises as `end_at` does.
    """
    manifest = Manifest(files, shard_id)
    rows = list(manifest.rows())
    if not rows or point_us is None:
        return rows[-1].end_lsn if rows else None
    _history(rows, marked(files))
    return end_at(manifest, rows, point_us, keys)


class _Whole:
    """The range, object by object."""

    def __init__(self, base_lsn: int, end_lsn: int, point_us: int | None) -> None:
        self.digester = Digester(base_lsn, end_lsn)
        self.timed = True
        self.first_time_us = self.time_us = 0
        self._point_us = point_us
        self._gaps = 0

    def take(self, manifest: Manifest, row: Row, keys: Keys | None) -> None:
        """Read and check one object. Raises ArchiveDamaged."""
        check_object(manifest, row)
        own = Digester(row.first_lsn, row.end_lsn)
        with object_runs(manifest, row, keys) as found:
            for run in found:
                try:
                    run.feed(own)
                    part = run.part(self.digester.from_lsn, self.digester.to_lsn)
                    if part is not None:
                        part.feed(self.digester)
                        self._note(part)
                except ValueError as error:
                    raise ArchiveDamaged(detail=f"{row.object}: {error}") from error
        digest = digest_text(own.digest())
        if digest != row.digest:
            raise ArchiveDamaged(detail=f"{row.object}: digest {digest}, archived as {row.digest}")

    def _note(self, run: Run) -> None:
        """Count what a log has a bound for, and look at the times."""
        self._gaps += run.gap != 0
        if self._gaps > bounds.RESTORED_GAPS_MAX:
            raise InvalidArgument(
                f"more than {bounds.RESTORED_GAPS_MAX} gaps: restore from a later LSN on",
                field="from",
            )
        self.timed = self.timed and run.append_time_us > 0
        late = self._point_us is not None and run.append_time_us > self._point_us
        if late or (self.timed and run.append_time_us < self.time_us):
            raise ArchiveDamaged(detail=f"append time at LSN {run.first_lsn}")
        self.time_us = run.append_time_us
        self.first_time_us = self.first_time_us or run.append_time_us


def _history(rows: list[Row], cluster_id: str) -> tuple[int, bytes, int]:
    """The source's lineage number and id, and the newest writer epoch that it is known to have
    granted. Raises ArchiveDamaged for what no log can have.
    """
    number = epoch = 0
    for row in rows:
        where = f"the row from LSN {row.first_lsn} on"
        if row.cluster_id != cluster_id:
            raise ArchiveDamaged(detail=f"{where} is of cluster {row.cluster_id}")
        if not 1 <= row.first_lsn < row.end_lsn <= bounds.RESTORED_LSN_MAX:
            raise ArchiveDamaged(detail=f"{where} has no range")
        if row.lineage_number < 0 or row.writer_epoch < epoch:
            raise ArchiveDamaged(detail=f"{where} has an older epoch than the one before")
        number, epoch = max(number, row.lineage_number), row.writer_epoch
    lineage = rows[-1].lineage
    try:
        parent = bytes.fromhex(lineage) if lineage else NO_LINEAGE
    except ValueError as error:
        raise ArchiveDamaged(detail=f"lineage {lineage}") from error
    if lineage and not number:
        # Rows of older programs do not say the number; an epoch has it in its upper bits.
        number = max(1, min(epoch >> bounds.LINEAGE_EPOCH_BITS, bounds.RESTORED_LINEAGES_MAX))
    if (
        len(parent) != LINEAGE_BYTES
        or bool(number) != (parent != NO_LINEAGE)
        or not 0 <= number < bounds.RESTORED_LINEAGES_MAX
    ):
        raise ArchiveDamaged(detail=f"lineage {lineage} with number {number}")
    if not 0 <= epoch >> bounds.LINEAGE_EPOCH_BITS <= number:
        raise ArchiveDamaged(
            detail=f"writer epoch {epoch}, which no log of lineage {number} grants"
        )
    return number, parent, epoch


def _range(rows: list[Row], from_lsn: int | None, end_lsn: int | None) -> tuple[int, int]:
    """[base, end), all of which is in objects. Raises InvalidArgument."""
    first = next((row.first_lsn for row in rows if not row.missing), None)
    if first is None:
        raise InvalidArgument("nothing of the log was archived: all is missing", field="log")
    base_lsn = first if from_lsn is None else from_lsn
    last_lsn = rows[-1].end_lsn if end_lsn is None else end_lsn
    if not first <= base_lsn < last_lsn <= rows[-1].end_lsn:
        raise InvalidArgument(
            f"the archive has LSNs {first} to {rows[-1].end_lsn - 1}, not "
            f"{base_lsn} to {last_lsn - 1}",
            field="to",
        )
    for row in rows:
        if row.missing and row.end_lsn > base_lsn and row.first_lsn < last_lsn:
            raise InvalidArgument(
                f"LSNs {row.first_lsn} to {row.end_lsn - 1} were truncated before they were "
                f"archived: restore from LSN {row.end_lsn} on, or up to {row.first_lsn - 1}",
                field="from",
            )
    return base_lsn, last_lsn


def _next_timestamp(rows: list[Row], above: int | None) -> int:
    if above is not None:
        if not 0 <= above < TIMESTAMP_MAX:
            raise InvalidArgument("no timestamp", field="timestamps_above")
        return above + 1
    return timestamps_after(rows[-1].next_timestamp)
