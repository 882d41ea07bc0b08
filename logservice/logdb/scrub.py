"""Scrub: verifying sealed segments that nobody reads, a slice at a time.

`read_slice` belongs on a worker thread: it opens the segment for itself, reads at most the slice
(one group, if that is larger) and verifies every checksum in it. It says *where* something does not
verify. *Which replica* loses what by it the index says (`affected`), on the thread that owns it. So
damage is attributed even where the directory that names the owner is gone. Pages that the disk
cannot read are read around (`survey`): such a page costs the replicas with bytes in it, not all
that are in the slice.

- INV-SCRUB-1: only sealed segments are scrubbed: their bytes do not change any more.
- INV-SCRUB-2: what follows the last group of a segment (zeros, or bytes of an earlier life) counts
  as damage only if the index has something alive there.
- INV-SCRUB-3: what is verified comes from the disk, not from the page cache.

The page cache would show a good copy of what has rotted, until memory is short or the machine
restarts, and after a failed fdatasync bytes that never came to the disk ("Can applications recover
from fsync failures?", ATC 2020). So the pages of a slice are handed back before it is read. The
kernel keeps those that are dirty or mapped. Afterwards the pages are handed back, too, unless the
segment is part of the cached tail (`cached_tail`): a pass must not push out of memory what is read
again.

Damage that costs no entry still makes the segment worth less: a second spot in it might not be
attributable after a rebuild of the derived index. Such a segment is *condemned*: emptied by
copying and unlinked, once its replicas are whole and no older segment is left (`garbage`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from logservice_wire.errors import Halted

from logservice.bounds import LOGDB_UNREADABLE_PAGES_MAX
from logservice.ids import Index, ReplicaId, ShardId
from logservice.logdb.format.commit_group import (
    DIRECTORY_HEADER_BYTES,
    DIRECTORY_ROW_BYTES,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    decode_directory,
    decode_group_header,
    group_bytes,
)
from logservice.logdb.format.record import (
    RECORD_MAGIC,
    RecordCorrupt,
    decode_header,
    payload_view,
    record_bytes,
)
from logservice.logdb.format.segment import segment_name
from logservice.logdb.index.index import EntryIndex
from logservice.logdb.index.replica_state import ReplicaState
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.io.survey import read_around
from logservice.logdb.io.vfs import PAGE_BYTES, Vfs

_RECORD_START: Final = RECORD_MAGIC.to_bytes(2, "little")


@dataclass(frozen=True, slots=True)
class ScrubTarget:
    """A sealed segment. size: of the file. seed: its checksums' start value. cached: it belongs to
    the newest bytes, which stay in the page cache.
    """

    segment: int
    path: str
    size: int
    seed: int
    cached: bool = False


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Bytes ``start .. end`` that do not verify. tail: no group is known to follow."""

    start: int
    end: int
    detail: str
    tail: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """replicas: those of which more is damaged than was known. damages: how many places are
    damaged; bytes of an earlier life that cost nothing do not count (INV-SCRUB-2).
    """

    replicas: list[tuple[ShardId, ReplicaId]]
    damages: int


@dataclass(slots=True)
class Slice:
    """What one slice found. next_offset: where the next one starts; the file's size at its end."""

    next_offset: int
    bytes_read: int = 0
    damages: list[DamagedRange] = field(default_factory=list)


def read_slice(vfs: Vfs, target: ScrubTarget, offset: int, budget: int) -> Slice:
    """Verify the groups from `offset` on, about `budget` bytes. Pages that cannot be read are
    damaged; the whole slice is if there are too many of them. A segment that was collected
    meanwhile is at its end.
    """
    try:
        handle = vfs.open_read(target.path)
        try:
            return _slice(vfs, handle, target, offset, budget)
        finally:
            vfs.close(handle)
    except FileNotFoundError:
        return Slice(target.size)
    except OSError as error:
        end = min(offset + budget, target.size)
        return Slice(end, 0, [DamagedRange(offset, end, f"unreadable: {error}")])


def affected(index: EntryIndex, segment: int, damage: DamagedRange) -> int | None:
    """The lowest live entry whose record is in the damaged bytes; None when there is none."""
    for chunk in index.chunks:
        if chunk.segment != segment:
            continue
        low, high = max(chunk.first, index.floor_index + 1), chunk.last + 1
        end = high
        while low < high:
            middle = (low + high) // 2
            if index.place(middle).offset < damage.start:
                low = middle + 1
            else:
                high = middle
        if low < end and index.place(low).offset < damage.end:
            return low
    return None


def _slice(vfs: Vfs, handle: int, target: ScrubTarget, offset: int, budget: int) -> Slice:
    want = budget
    dead: dict[int, OSError] = {}

    def unreadable(page: int, error: OSError) -> None:
        dead[page] = error
        if len(dead) > LOGDB_UNREADABLE_PAGES_MAX:
            raise error

    while True:
        end = min(offset + want, target.size)
        _hand_back(vfs, handle, offset, end)
        data = read_around(vfs, handle, offset, end, unreadable)
        if not target.cached:
            _hand_back(vfs, handle, offset, end)
        at_end = offset + len(data) >= target.size or len(data) < want
        found = Slice(offset, len(data))
        # Behind the last group a page costs something only if the index has an entry there.
        found.damages.extend(
            DamagedRange(page, page + PAGE_BYTES, f"unreadable: {error}", tail=True)
            for page, error in sorted(dead.items())
        )
        needed = _groups(memoryview(data), target, offset, found, at_end=at_end)
        if found.next_offset > offset:
            return found
        if at_end:
            # Nothing that verifies is left.
            rest = data[found.next_offset - offset :]
            if rest.strip(b"\0"):
                found.damages.append(DamagedRange(offset, target.size, "no group", tail=True))
            found.next_offset = target.size
            return found
        want = max(2 * want, needed)


def _hand_back(vfs: Vfs, handle: int, start: int, end: int) -> None:
    """The pages with bytes of ``start .. end`` leave the page cache, whole: the kernel keeps one of
    which only a part is named.
    """
    start -= start % PAGE_BYTES
    with contextlib.suppress(OSError):
        vfs.not_needed(handle, -(-(end - start) // PAGE_BYTES) * PAGE_BYTES, start)


def _groups(view: memoryview, target: ScrubTarget, base: int, found: Slice, *, at_end: bool) -> int:
    """Verify the groups in the window; returns how many bytes the first one left out needs."""
    position = base
    while position - base < len(view):
        outcome = _group(view, target, base, position, found.damages)
        if outcome is None:
            following = _following(view, target, base, position + 8)
            if following is None:
                return 0
            end = following - base
            for low, high in _unverified(view, position - base, end, target.seed):
                detail = f"{high - low} unreadable bytes"
                found.damages.append(DamagedRange(base + low, base + high, detail))
            position = following
        elif position - base + outcome > len(view):
            if at_end:
                return 0
            return outcome
        else:
            position += outcome
        found.next_offset = position
    return 0


def _group(
    view: memoryview, target: ScrubTarget, base: int, offset: int, damages: list[DamagedRange]
) -> int | None:
    """Bytes of the group at `offset`, None when there is none. Verified if all of it is in view."""
    header = decode_group_header(view, target.segment, offset, target.seed, base)
    start = offset - base + GROUP_HEADER_BYTES
    directory = decode_directory(view, start, target.seed)
    if header is not None and directory is not None and directory.sequence != header.sequence:
        directory = None
    if header is not None:
        runs, body_bytes = header.runs, header.body_bytes
    elif directory is not None:
        runs, body_bytes = len(directory.rows), directory.body_bytes
    else:
        return None
    size = group_bytes(runs, body_bytes)
    if offset - base + size > len(view):
        return size
    if header is None:
        damages.append(DamagedRange(offset, offset + GROUP_HEADER_BYTES, "group header"))
    records = start + DIRECTORY_HEADER_BYTES + DIRECTORY_ROW_BYTES * runs
    if directory is None:
        damages.append(DamagedRange(base + start, base + records, "group directory"))
        end = records + body_bytes
        if detail := _records(view, records, end, target.seed):
            damages.extend(
                DamagedRange(base + low, base + high, detail)
                for low, high in _unverified(view, records, end, target.seed)
            )
        return size
    for run_bytes in (row.size for row in directory.rows):
        first, end = base + records, base + records + run_bytes
        detail = _records(view, records, records + run_bytes, target.seed) or _refused(
            damages, first, end
        )
        if detail:
            damages.append(DamagedRange(first, end, detail))
        records += run_bytes
    return size


def _refused(damages: list[DamagedRange], start: int, end: int) -> str:
    """Why some of the bytes could not be read although they verify: there were zeros."""
    pages = (one for one in damages if one.tail and one.start < end and start < one.end)
    return next((page.detail for page in pages), "")


def _records(view: memoryview, start: int, end: int, seed: int) -> str:
    """What is wrong with the records of a run; empty if nothing."""
    try:
        while start < end:
            header = decode_header(view, start, seed)
            payload_view(view, start, header, seed)
            start += record_bytes(header.length)
    except RecordCorrupt as error:
        return str(error)
    return "" if start == end else "run length differs from the directory"


def _unverified(view: memoryview, start: int, end: int, seed: int) -> Iterator[tuple[int, int]]:
    """The parts of ``start .. end`` in which no record verifies. Nothing says here which records
    ought to be there, but one that verifies is whole all the same.
    """
    data, gap, at = bytes(view[start:end]), 0, 0
    while (at := data.find(_RECORD_START, at)) >= 0:
        try:
            header = decode_header(data, at, seed)
            payload_view(data, at, header, seed)
        except RecordCorrupt:
            at += 1
            continue
        if gap < at:
            yield start + gap, start + at
        gap = at = at + record_bytes(header.length)
    if gap < len(data):
        yield start + gap, end


def _following(view: memoryview, target: ScrubTarget, base: int, offset: int) -> int | None:
    """Offset of the next group whose header verifies."""
    data = bytes(view)
    place = offset - base
    while (place := data.find(GROUP_MAGIC, place)) >= 0:
        at = base + place
        if at % 8 == 0 and decode_group_header(view, target.segment, at, target.seed, base):
            return at
        place += 1
    return None


def scrub_target(
    files: SegmentFiles, after: int, active: int, cached_bytes: int
) -> ScrubTarget | None:
    """The oldest segment between `after` and the one that is being written; None without one.

    cached_bytes: of the newest bytes so many stay in the page cache.
    """
    for segment in files.ids():
        if after < segment < active:
            newer = sum(size for other, size in files.sizes.items() if other > segment)
            path, size, seed = files.path(segment), files.sizes[segment], files.seed(segment)
            return ScrubTarget(segment, path, size, seed, cached=newer < cached_bytes)
    return None


def attribute(
    states: Iterable[ReplicaState],
    files: SegmentFiles,
    segment: int,
    damages: Sequence[DamagedRange],
    blame: Callable[[tuple[int, int], str, Index], None],
) -> Verdict:
    """Make the replicas faulty whose live entries are damaged.

    Nothing happens for a segment that was collected meanwhile: others may use its bytes now.
    """
    found: list[tuple[ShardId, ReplicaId]] = []
    if segment not in files.sizes:
        return Verdict(found, 0)
    real = {damage for damage in damages if not damage.tail}
    for state in states:
        before = state.fault
        for damage in () if state.removed else damages:
            try:
                entry = affected(state.index, segment, damage)
            except Halted:
                continue  # and faulty by now: not even its index can be read
            if entry is not None:
                real.add(damage)
                where = f"{segment_name(segment)} at {damage.start}"
                blame(state.key, f"{where}, entries from {entry} on: {damage.detail}", Index(entry))
        if state.fault != before:
            found.append((ShardId(state.shard), ReplicaId(state.replica)))
    if found or real:
        files.condemned.add(segment)
    return Verdict(found, len(real))
