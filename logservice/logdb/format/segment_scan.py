"""Scanning a segment: which groups are in it, and exactly what is damaged.

A pure function over the bytes of one segment. Every group has three independent witnesses: its
header, its directory and the records' own headers. One damaged place therefore leaves the rest
readable:

- header damaged: the directory gives the group's size; its records are checked as usual;
- directory damaged: the records are walked by their own headers;
- a record damaged: the directory says whose it was, and where the next run starts.

What verifies in neither header nor directory is a *hole*, up to the next group header that does.
Whether a damaged group at the end was torn or rotted is not decided here: it depends on whether a
successor was ever written, which `recovery` knows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from logservice.logdb.format.columns import EntryColumns
from logservice.logdb.format.commit_group import (
    DIRECTORY_HEADER_BYTES,
    DIRECTORY_ROW_BYTES,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    Directory,
    DirectoryRow,
    GroupHeader,
    GroupPosition,
    RecordRun,
    decode_directory,
    decode_group_header,
    group_bytes,
)
from logservice.logdb.format.record import (
    SEGMENT_HEADER_BYTES,
    Buffer,
    RecordCorrupt,
    RecordHeader,
    RecordKind,
    decode_header,
    decode_meta,
    payload_view,
    record_bytes,
)


@dataclass(frozen=True, slots=True)
class DamagedRun:
    """A run that does not verify, as its directory describes it."""

    row: DirectoryRow
    segment: int
    offset: int
    detail: str


@dataclass(slots=True)
class ScannedGroup:
    """A group found in a segment. header None: damaged. runs: those that verify."""

    position: GroupPosition
    size: int
    sequence: int
    flags: int
    header: GroupHeader | None
    runs: list[RecordRun] = field(default_factory=list)
    damaged: list[DamagedRun] = field(default_factory=list)
    directory_intact: bool = True

    @property
    def intact(self) -> bool:
        """Every byte that matters verifies."""
        return self.header is not None and self.directory_intact and not self.damaged

    @property
    def end(self) -> int:
        """Offset after the group."""
        return self.position.offset + self.size


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes ``start .. end`` that belong to no group that can be read, with a group behind them."""

    segment: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many bytes."""
        return self.end - self.start


@dataclass(slots=True)
class SegmentScan:
    """What a segment holds from the scanned offset on. end: the offset after the last group.
    lost_end: at `end` lies a group whose header verifies, but nothing that says whose it was; it
    ends there. 0: there is no such group.
    """

    segment: int
    items: list[ScannedGroup | Hole] = field(default_factory=list)
    end: int = 0
    lost_end: int = 0

    def groups(self) -> Iterator[ScannedGroup]:
        """The groups, in order."""
        return (item for item in self.items if isinstance(item, ScannedGroup))


def scan_segment(view: memoryview, segment: int, start: int, seed: int) -> SegmentScan:
    """Read every group of a segment from offset `start`, a group boundary."""
    scan = SegmentScan(segment, end=start)
    offset = start
    while offset < len(view):
        group = _group(view, segment, offset, seed)
        if group is None:
            found = _next_group(view, segment, offset + 8, seed)
            if found is None:
                header = decode_group_header(view, segment, offset, seed)
                if header is not None:
                    scan.lost_end = offset + group_bytes(header.runs, header.body_bytes)
                break
            scan.items.append(Hole(segment, offset, found))
            offset = found
            continue
        scan.items.append(group)
        scan.end = offset = group.end
    return scan


def scan_entries(
    view: memoryview,
    segment: int,
    seed: int,
    key: tuple[int, int],
    first: int,
    last: int,
    end: int = 0,
) -> EntryColumns | None:
    """The columns of a replica's newest entries ``first .. last`` in a segment. None if some are
    missing, or if newer ones may lie in bytes that do not verify: then entries that those replaced
    would be taken for the log. `end` is where the last group of the segment begins, as its
    successor says; 0: no successor says it.
    """
    scan = scan_segment(view, segment, SEGMENT_HEADER_BYTES, seed)
    rows = [bad.row for group in scan.groups() for bad in group.damaged]
    lost = [row for row in rows if (row.shard, row.replica) == key]
    holes = any(isinstance(item, Hole) for item in scan.items)
    hidden = holes or scan.lost_end or scan.end <= end
    if hidden or any(row.index <= last and first <= row.last_index for row in lost):
        return None
    runs = [
        run.columns
        for group in scan.groups()
        for run in group.runs
        if (run.shard, run.replica) == key and run.columns is not None
    ]
    pieces: list[EntryColumns] = []
    limit = last
    for run in sorted(runs, key=lambda found: found.write_sequence, reverse=True):
        low, high = max(run.first, first), min(run.last, limit)
        if low <= high:
            pieces.append(run.keep(low, high))
            limit = low - 1
    if limit != first - 1:
        return None
    whole = pieces.pop()
    while pieces:
        if pieces[-1].first != whole.last + 1:
            return None
        whole.extend(pieces.pop())
    return whole


def _next_group(view: memoryview, segment: int, offset: int, seed: int) -> int | None:
    """Offset of the next group whose header verifies, at or after `offset`."""
    data = view.obj if isinstance(view.obj, bytes) and len(view.obj) == len(view) else bytes(view)
    while True:
        offset = data.find(GROUP_MAGIC, offset)
        if offset < 0:
            return None
        if offset % 8 == 0 and decode_group_header(view, segment, offset, seed) is not None:
            return offset
        offset += 1


def _group(view: memoryview, segment: int, offset: int, seed: int) -> ScannedGroup | None:
    header = decode_group_header(view, segment, offset, seed)
    directory = decode_directory(view, offset + GROUP_HEADER_BYTES, seed)
    if header is not None:
        if directory is not None and directory.sequence != header.sequence:
            directory = None
        group = ScannedGroup(
            header.position,
            group_bytes(header.runs, header.body_bytes),
            header.sequence,
            header.flags,
            header,
        )
    elif directory is not None:
        group = ScannedGroup(
            GroupPosition(segment, offset),
            group_bytes(len(directory.rows), directory.body_bytes),
            directory.sequence,
            directory.flags,
            None,
        )
    else:
        return None
    if group.end > len(view):
        return None
    if directory is not None:
        _read_by_directory(view, group, directory, seed)
    elif not _read_by_records(view, group, seed):
        return None
    return group


def _read_by_directory(
    view: memoryview, group: ScannedGroup, directory: Directory, seed: int
) -> None:
    segment = group.position.segment
    offset = (
        group.position.offset
        + GROUP_HEADER_BYTES
        + DIRECTORY_HEADER_BYTES
        + DIRECTORY_ROW_BYTES * len(directory.rows)
    )
    for row in directory.rows:
        end = offset + row.size
        try:
            if end > group.end:
                raise RecordCorrupt("run beyond its group")
            group.runs.append(_run(view, segment, row, offset, end, seed))
        except RecordCorrupt as error:
            group.damaged.append(DamagedRun(row, segment, offset, str(error)))
        offset = end


def _run(
    view: memoryview, segment: int, row: DirectoryRow, offset: int, end: int, seed: int
) -> RecordRun:
    builder = _RunBuilder(segment, row.shard, row.replica, row.write_sequence)
    for _ in range(row.record_count):
        header = decode_header(view, offset, seed)
        if (header.shard, header.replica) != (row.shard, row.replica):
            raise RecordCorrupt("record of another replica")
        builder.add(header, payload_view(view, offset, header, seed), offset)
        offset += record_bytes(header.length)
    if offset != end:
        raise RecordCorrupt("run length differs from the directory")
    return builder.run()


def _read_by_records(view: memoryview, group: ScannedGroup, seed: int) -> bool:
    """Split the group's records into runs without its directory; False if one is damaged too."""
    assert group.header is not None
    group.directory_intact = False
    end = group.end
    offset = end - group.header.body_bytes
    builder: _RunBuilder | None = None
    try:
        while offset < end:
            header = decode_header(view, offset, seed)
            if builder is None or not builder.continues(header):
                if builder is not None:
                    group.runs.append(builder.run())
                builder = _RunBuilder(
                    group.position.segment, header.shard, header.replica, header.write_sequence
                )
            builder.add(header, payload_view(view, offset, header, seed), offset)
            offset += record_bytes(header.length)
    except RecordCorrupt:
        return False
    if builder is not None:
        group.runs.append(builder.run())
    return offset == end


class _RunBuilder:
    """Collects the records of one run and checks that they follow each other."""

    def __init__(self, segment: int, shard: int, replica: int, write_sequence: int) -> None:
        self._run = RecordRun(shard, replica, write_sequence, [], segment=segment)
        self._next_sequence = write_sequence
        self._columns: EntryColumns | None = None
        self._next_index = 0

    def continues(self, header: RecordHeader) -> bool:
        """Whether a record belongs to this run rather than to a next one."""
        return (header.shard, header.replica, header.write_sequence) == (
            self._run.shard,
            self._run.replica,
            self._next_sequence,
        )

    def add(self, header: RecordHeader, payload: Buffer, offset: int) -> None:
        """Take in a verified record; raises RecordCorrupt if it does not follow."""
        if header.write_sequence != self._next_sequence:
            raise RecordCorrupt("write sequence out of order")
        self._next_sequence += 1
        if header.kind is not RecordKind.ENTRY:
            if self._columns is not None:
                raise RecordCorrupt("record after the entries")
            self._run.metas.append(decode_meta(header, payload))
            return
        columns = self._columns
        if columns is None:
            columns = self._columns = EntryColumns(
                self._run.segment,
                header.index,
                header.write_sequence,
                array("Q"),
                array("I"),
                array("I"),
                array("Q"),
                array("Q"),
                header.lsn,
                0,
            )
        elif header.index != self._next_index or header.lsn != columns.next_lsn:
            raise RecordCorrupt("entry out of order")
        if not columns.terms or columns.terms[-1] != header.term:
            columns.term_starts.append(header.index)
            columns.terms.append(header.term)
        columns.lsns.append(header.lsn)
        columns.offsets.append(offset)
        columns.lengths.append(header.length)
        columns.next_lsn = header.lsn + header.record_count
        columns.size += record_bytes(header.length)
        self._next_index = header.index + 1

    def run(self) -> RecordRun:
        """The finished run."""
        self._run.columns = self._columns
        return self._run
