"""Where older segments end, as the newest one says.

That a segment had a later group is known from the group that followed. If that one was in the next
segment, and the next segment was collected while this one stays, nothing is left that knows: when
the last group then is damaged beyond its header and its directory, and the derived index is lost, a
rebuild takes the segment to end before it. So from cluster version 2 on, the first group of every
segment begins with a record that says where each older segment ends. The newest segment is never
collected (INV-GC-2), and an older one that is still there was there when it was begun. So what
knows the end of a segment stays as long as the segment, and costs no file and no sync of its own.

- INV-ENDS-1: the first group of a segment that is begun at cluster version 2 names the last group
  of every older segment that exists, as far as the writer knows it and the record has room.
- INV-ENDS-2: a record of ends names durable groups only, so it is true whatever becomes of the
  group that it is in. If it is damaged, nobody has lost anything.

What the writer does not know: the ends of segments that were sealed before the store's start, while
the directory is written for cluster version 1. They are learned from the groups behind them at a
start at which the newest segment has such a record, and are in every record from then on, unless
the segment behind was collected before.
"""

from __future__ import annotations

from collections.abc import Mapping

from logservice.bounds import LOGDB_SEGMENT_ENDS_BYTES_MAX, LOGDB_SEGMENT_ENDS_SHARE
from logservice.logdb.format.commit_group import (
    DIRECTORY,
    DIRECTORY_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    GroupPosition,
    RecordRun,
    decode_group_header,
    group_bytes,
)
from logservice.logdb.format.record import (
    RECORD_HEADER_BYTES,
    SEGMENT_END,
    SEGMENT_HEADER_BYTES,
    Meta,
    RecordCorrupt,
    RecordKind,
    SegmentEnds,
    decode_header,
    decode_meta,
    payload_view,
    record_bytes,
)
from logservice.logdb.index.replica_state import Key
from logservice.logdb.io.survey import Survey

NOBODY: Key = (0, 0)
"""Shard and replica of a run that belongs to no replica."""


def ends_run(ends: Mapping[int, GroupPosition], segment_bytes: int) -> RecordRun:
    """The run that says them at the beginning of a segment of that size (INV-ENDS-3). Of too many,
    those come first whose next segment is gone, because nothing else knows them; then the newest.
    """
    most = min(segment_bytes // LOGDB_SEGMENT_ENDS_SHARE, LOGDB_SEGMENT_ENDS_BYTES_MAX)
    most //= SEGMENT_END.size
    named = sorted(ends)
    if len(named) > most:
        newest = named[-1]
        named.sort(key=lambda one: (one != newest and one + 1 not in ends, one))
        named = sorted(named[-most:])
    told = SegmentEnds(tuple((one, ends[one].offset, ends[one].crc) for one in named))
    return RecordRun(*NOBODY, 0, [Meta(RecordKind.SEGMENT_ENDS, 0, told)])


def known_ends(survey: Survey) -> dict[int, GroupPosition]:
    """The last group of segments that exist, as far as the newest record of ends says it, and the
    groups behind those segments. Where there is no such record, nothing is looked for.
    """
    segments = survey.files.ids()
    told: SegmentEnds | None = None
    for segment in reversed(segments):
        found = _first_record(survey, segment)
        if found is not None:
            told = found if isinstance(found, SegmentEnds) else None
            break
    if told is None:
        return {}
    ends = {one: GroupPosition(one, at, crc) for one, at, crc in told.ends}
    for segment in segments:
        if segment not in ends and segment + 1 in survey.files.sizes:
            behind = _predecessor(survey, segment + 1)
            if behind is not None and behind.segment == segment:
                ends[segment] = behind
    return {segment: end for segment, end in ends.items() if segment in survey.files.sizes}


def _predecessor(survey: Survey, segment: int) -> GroupPosition | None:
    """What the first group of a segment names as the one before it."""
    start, seed = SEGMENT_HEADER_BYTES, survey.files.seed(segment)
    head = survey.read(segment, start, GROUP_HEADER_BYTES)
    header = decode_group_header(head, segment, start, seed, start)
    return header.previous if header is not None else None


def _first_record(survey: Survey, segment: int) -> object:
    """The value of the first record of a segment if that is a record of ends, True if it is
    another, None if it does not verify or there is none. Either the group's header or its directory
    may be damaged.
    """
    start, seed = SEGMENT_HEADER_BYTES, survey.files.seed(segment)
    head = survey.read(segment, start, GROUP_HEADER_BYTES + DIRECTORY_HEADER_BYTES)
    counts = []
    header = decode_group_header(head, segment, start, seed, start)
    if header is not None:
        counts.append(header.runs)
    if len(head) == GROUP_HEADER_BYTES + DIRECTORY_HEADER_BYTES:
        counts.append(DIRECTORY.unpack_from(head, GROUP_HEADER_BYTES)[1])
    for runs in counts:
        place = start + group_bytes(runs, 0)
        try:
            record = decode_header(survey.read(segment, place, RECORD_HEADER_BYTES), 0, seed)
            if record.kind is not RecordKind.SEGMENT_ENDS:
                return True
            data = survey.read(segment, place, record_bytes(record.length))
            return decode_meta(record, payload_view(data, 0, record, seed)).value
        except RecordCorrupt:
            continue
    return None
