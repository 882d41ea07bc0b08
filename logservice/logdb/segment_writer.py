"""SegmentWriter: where the next commit group goes, and putting it there.

`begin` and `advance` belong to the loop thread, `write` to any: it touches the group alone (and the
ballast, when the disk is full), so nothing is shared while it runs.

- INV-WRITER-1: a group goes behind the last one of the current segment, or first into a new one.
  The old segment was fdatasynced with its last group before the first byte of the next (each group
  is).
- INV-WRITER-3: `OutOfSpace` means that nothing of the group was written. It is only raised before
  the first byte, and for what was reserved before (a segment is preallocated) there is always room.
- INV-WRITER-4: a group is begun ahead of the one before it only if that one is *solid*: for it
  nothing is created, removed or written into the derived index, so it becomes durable where it was
  placed, or the store stops. The chain that the next one is encoded with is the chain on the disk.
- INV-WRITER-2: a new segment's name is durable (directory fsync) before its first group counts as
  written.

- INV-WRITER-5: a group goes behind another one only if it is to be encrypted with the key of that
  segment, or with none as it is (INV-ENC-2). When the ring gets another active key, or the cluster
  version is raised, the next group begins a segment.
- INV-WRITER-6: no plain bytes lie behind encrypted ones in a file that was written before: a spare
  that may have some is never taken for an encrypted segment.

What is written only from cluster version 2 on (`versions`) follows what the data directory says of
itself durably: the record of ends at the start of a segment (`segment_ends`), the durable mark in a
file of its own (`mark_file`), and encrypted entries.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from logservice import versions
from logservice.bounds import LOGDB_GROUP_SAMPLES
from logservice.clock import Clock
from logservice.histogram import LATENCY_BUCKETS_US, Tally
from logservice.invariants import invariant
from logservice.logdb.checkpoint.checkpoint import CheckpointBatch, LogPosition
from logservice.logdb.format.commit_group import FLAG_MARK, FLAG_REWRITE, NO_GROUP, RecordRun
from logservice.logdb.format.durable_mark import DurableMark
from logservice.logdb.format.encryption import SegmentCipher
from logservice.logdb.format.group_encoder import EncodedGroup, encode_group
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES
from logservice.logdb.format.segment import PLAIN, encode_segment_header
from logservice.logdb.io.cached_tail import CachedTail
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.kv import Kv
from logservice.logdb.io.mark_file import MarkFile
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.options import LogDbOptions
from logservice.logdb.recovery.segment_ends import ends_run
from logservice.logdb.space.disk_space import DiskSpace, OutOfDescriptors, OutOfSpace
from logservice.logdb.space.stats import GROUP_BUCKETS_BYTES

_WITHOUT_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
"""The process, or the machine, may open no more files."""


@dataclass(slots=True)
class CommitGroup:
    """A group on its way to the disk. Only `write` touches it between begin and finish.

    new_segment_bytes: the size of the segment to create for it; 0: the current one is used.
    checkpoint: rows of the segment that was just sealed, written after the group. retired: segments
    whose files are removed after that. cut: a sealed segment and where its last group ends; the
    bytes behind that are given back. mark: to be written into the file of marks. may_wait: the
    group holds nothing but commit indexes. handle: the open file of the segment that it goes into.
    cipher: of that segment.
    """

    encoded: EncodedGroup
    runs: list[RecordRun]
    sequence: int
    next_write_sequence: int
    flags: int
    may_wait: bool
    new_segment_bytes: int = 0
    checkpoint: CheckpointBatch | None = None
    retired: tuple[int, ...] = ()
    cut: tuple[int, int] | None = None
    mark: DurableMark | None = None
    handle: int = -1
    cipher: SegmentCipher | None = None
    written: bool = False
    write_s: float = 0.0

    @property
    def has_bytes(self) -> bool:
        """Something goes into a segment."""
        return bool(self.runs) or bool(self.flags & FLAG_MARK)

    @property
    def solid(self) -> bool:
        """It will become durable where it is, unless the store stops (INV-WRITER-4)."""
        return self.has_bytes and not (
            self.may_wait or self.new_segment_bytes or self.checkpoint or self.retired or self.cut
        )

    @property
    def empty(self) -> bool:
        """Nothing to write at all."""
        return not (self.has_bytes or self.retired or self.checkpoint or self.cut or self.mark)


class Samples:
    """A figure of every group: of the newest groups as it is, of all groups by bucket."""

    def __init__(self, bounds: tuple[int, ...]) -> None:
        """No samples. `bounds` are the upper bounds of the buckets, ascending."""
        self._samples: deque[int] = deque(maxlen=LOGDB_GROUP_SAMPLES)
        self._all = Tally(bounds)
        self.histogram = self._all.histogram

    def add(self, figure: int) -> None:
        self._samples.append(figure)
        self._all.add(figure)

    def percentile(self, share: float) -> int:
        """The figure not exceeded by `share` of the samples; 0 without samples."""
        if not self._samples:
            return 0
        ordered = sorted(self._samples)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(slots=True)
class Counters:
    """What a writer has done since the directory was opened."""

    groups: int = 0
    durable_writes: int = 0
    entries_written: int = 0
    bytes_written: int = 0
    bytes_rewritten: int = 0
    index_bytes_written: int = 0
    segments_retired: int = 0
    segments_recycled: int = 0
    durable_write_us: Samples = field(default_factory=lambda: Samples(LATENCY_BUCKETS_US))
    group_bytes: Samples = field(default_factory=lambda: Samples(GROUP_BUCKETS_BYTES))


class SegmentWriter:
    """Appends groups to the newest segment of one log."""

    def __init__(
        self,
        files: SegmentFiles,
        space: DiskSpace,
        position: LogPosition,
        options: LogDbOptions,
        clock: Clock,
        identity: DataDirectory,
        marks: MarkFile,
    ) -> None:
        """`position` is recovery's: a segment that does not exist yet, offset 0. `identity` says
        which cluster version is written for; `marks` is its file of marks.
        """
        invariant(position.offset == 0, "INV-WRITER-1", position=position)
        self.position = position
        self.counters = Counters()
        self.unmarked = False
        """The newest group is no durable mark."""
        self._files = files
        self._space = space
        self._segment_bytes = options.segment_bytes
        self._tail = CachedTail(files.vfs, files.path, options.cached_bytes)
        """It belongs to whoever is in `write`."""
        self._clock = clock
        self._identity = identity
        self._marks = marks
        self._capacity = 0
        self._seed = 0
        self._cipher: SegmentCipher | None = None
        self._plain_spares = True
        """Some spares may have plain bytes. It belongs to whoever is in `write`."""
        self._handle = -1
        self._durable = position.sequence
        """Sequence of the newest durable group; belongs to whoever is in `write`."""

    def begin(
        self,
        runs: list[RecordRun],
        *,
        flags: int,
        may_wait: bool,
        next_write_sequence: int,
        checkpoint: Callable[[], CheckpointBatch],
    ) -> CommitGroup:
        """Encode a group for its place. `checkpoint` is called when the current segment is
        sealed.
        """
        at = self.position
        sequence = at.sequence + 1
        if at.offset and self._same_key():
            encoded = encode_group(
                runs,
                sequence=sequence,
                flags=flags,
                seed=self._seed,
                segment=at.segment,
                offset=at.offset,
                previous=at.last,
                cipher=self._cipher,
            )
            if at.offset + encoded.size <= self._capacity:
                return CommitGroup(
                    encoded,
                    runs,
                    sequence,
                    next_write_sequence,
                    flags,
                    may_wait,
                    handle=self._handle,
                    cipher=self._cipher,
                )
        segment = at.segment + 1 if at.offset else at.segment
        files = self._files
        cipher = files.keys.new_cipher(files.incarnation, segment) if self.encrypts else None
        encoded = encode_group(
            [*self._ends(), *runs] if runs or flags & FLAG_MARK else runs,
            sequence=sequence,
            flags=flags,
            seed=files.seed(segment),
            segment=segment,
            offset=SEGMENT_HEADER_BYTES,
            previous=at.last,
            cipher=cipher,
        )
        group = CommitGroup(
            encoded, runs, sequence, next_write_sequence, flags, may_wait, cipher=cipher
        )
        if group.has_bytes:
            files.keys.begun(segment, cipher)
            group.new_segment_bytes = max(self._segment_bytes, SEGMENT_HEADER_BYTES + encoded.size)
            # A group that may wait may never be written; the next roll covers this one as well.
            group.checkpoint = checkpoint() if at.offset and not may_wait else None
        return group

    def begin_ahead(
        self, runs: list[RecordRun], before: CommitGroup, *, next_write_sequence: int
    ) -> CommitGroup | None:
        """Encode a group for the place behind `before`, which is solid and not durable yet. None
        when it has no room in that segment, or does not belong there (INV-WRITER-5).
        """
        invariant(before.solid, "INV-WRITER-4", sequence=before.sequence)
        if not self._same_key():
            return None
        last, sequence = before.encoded.position, before.sequence + 1
        offset = last.offset + before.encoded.size
        encoded = encode_group(
            runs,
            sequence=sequence,
            flags=0,
            seed=self._seed,
            segment=last.segment,
            offset=offset,
            previous=last,
            cipher=self._cipher,
        )
        if offset + encoded.size > self._capacity:
            return None
        return CommitGroup(
            encoded,
            runs,
            sequence,
            next_write_sequence,
            0,
            False,
            handle=before.handle,
            cipher=before.cipher,
        )

    def write(self, group: CommitGroup, kv: Kv) -> None:
        """Create the segment if need be, write durably; then the derived index, then remove
        what is retired (INV-GC-1). Any exception but OutOfSpace is fatal to the store.
        """
        if group.checkpoint is not None and not self._space.index_writable():
            raise OutOfSpace("the derived index")
        if group.has_bytes:
            invariant(group.sequence == self._durable + 1, "INV-GROUP-2", sequence=group.sequence)
            self._write_bytes(group)
            self._durable = group.sequence
            at = group.encoded.position
            self._tail.wrote(at.segment, at.offset + group.encoded.size)
        if group.checkpoint is not None:
            kv.write(group.checkpoint.puts, group.checkpoint.deletes)
            self.counters.index_bytes_written += group.checkpoint.bytes
        if group.cut is not None:
            self._files.cut(*group.cut)
        if group.retired:
            self._remove(group.retired)
            self._space.restore_ballast()
        if group.mark is not None:
            started = self._clock.monotonic()
            self._write_mark(group.mark)
            group.write_s = self._clock.monotonic() - started
        group.written = True

    def _remove(self, segments: Sequence[int]) -> None:
        for segment in segments:
            # What is overwritten in part has to be read first: not a file with bad places.
            good = segment not in self._files.condemned
            good = good and (self._plain_spares or bool(self._files.keys.tags.get(segment)))
            spares, size = self._space.spares, self._files.sizes[segment]
            if good and spares.wants(size) and self._space.has_plenty():
                spares.keep(self._files.path(segment))
                self.counters.segments_recycled += 1
            else:
                self._files.remove([segment])
            self._tail.gone(segment)
            self.counters.segments_retired += 1

    def _write_bytes(self, group: CommitGroup) -> None:
        vfs = self._files.vfs
        at = group.encoded.position
        if group.new_segment_bytes:
            self._create(group, at.segment)
            label = PLAIN if group.cipher is None else group.cipher.label
            head = encode_segment_header(at.segment, self._files.incarnation, group.sequence, label)
            buffers, offset = [head, *group.encoded.buffers], 0
        else:
            buffers, offset = group.encoded.buffers, at.offset
        started = self._clock.monotonic()
        vfs.write_durably(group.handle, buffers, offset)
        group.write_s = self._clock.monotonic() - started
        if group.new_segment_bytes:
            vfs.fsync_directory(self._files.directory)

    def advance(self, group: CommitGroup) -> None:
        """The group is written: the next one goes behind what of it is in a segment."""
        counters = self.counters
        if group.mark is not None:
            self.unmarked = False
            counters.durable_writes += 1
            counters.durable_write_us.add(int(group.write_s * 1_000_000))
        if not group.has_bytes:
            return
        invariant(group.sequence == self.position.sequence + 1, "INV-GROUP-3", now=self.position)
        at, encoded = group.encoded.position, group.encoded
        if group.new_segment_bytes:
            self._files.added(at.segment, group.new_segment_bytes)
            self._capacity = group.new_segment_bytes
            self._seed = self._files.seed(at.segment)
            self._cipher = group.cipher
            self._close_handle()
            self._handle = group.handle
            if self.position.offset:
                self._files.ends[self.position.segment] = self.position.last
        self.position = LogPosition(
            at.segment, at.offset + encoded.size, at, group.sequence, group.next_write_sequence
        )
        self.unmarked = not group.flags & FLAG_MARK
        counters.groups += 1
        counters.durable_writes += 1
        counters.durable_write_us.add(int(group.write_s * 1_000_000))
        counters.group_bytes.add(encoded.size)
        if group.flags & FLAG_REWRITE:
            counters.bytes_rewritten += encoded.size
        else:
            counters.bytes_written += encoded.size
            counters.entries_written += encoded.entries

    def mark(self) -> DurableMark | None:
        """What a durable mark would say now, if it belongs into the file of marks."""
        if self._identity.cluster_version <= versions.FIRST or self.position.last == NO_GROUP:
            return None
        return DurableMark(self.position.last, self.position.sequence)

    def _ends(self) -> list[RecordRun]:
        """What the first group of a new segment begins with (INV-ENDS-1)."""
        if self._identity.cluster_version <= versions.FIRST:
            return []
        at, ends = self.position, self._files.ends
        known = {**ends, at.segment: at.last} if at.offset else ends
        return [ends_run(known, self._segment_bytes)]

    @property
    def encrypts(self) -> bool:
        """Whether the entries of a segment that is begun now are encrypted."""
        old = self._identity.cluster_version <= versions.FIRST
        return self._files.keys.ring is not None and not old

    def _same_key(self) -> bool:
        """Whether the current segment has the key that one would have that is begun now."""
        wanted = self._files.keys.active_tag if self.encrypts else 0
        return (self._cipher.label.tag if self._cipher is not None else 0) == wanted

    def cut(self) -> None:
        """Give back what the current segment has not used; no group follows."""
        if self.position.offset:
            self._files.cut(self.position.segment, self.position.offset)

    def close(self) -> None:
        """Release the current segment, and the file of marks."""
        self._close_handle()
        self._marks.close()

    def _create(self, group: CommitGroup, segment: int) -> None:
        """Make the group's segment, the best that the disk has room for: a spare, a preallocated
        whole one, a small one, one that just holds the group; at last the ballast is given up for
        that.
        """
        needed = SEGMENT_HEADER_BYTES + group.encoded.size
        small = max(needed, min(self._segment_bytes, self._space.small_segment_bytes()))
        if group.cipher is not None and self._plain_spares:
            self._space.spares.release()
            self._plain_spares = False
        space, path = self._space, self._files.path(segment)
        if group.new_segment_bytes == self._segment_bytes:
            spare = self._take_spare(path)
            if spare is not None:
                group.handle = spare
                return
        if not space.leaves_promised(group.new_segment_bytes):
            space.spares.release()
        sizes = [size for size in (small, needed) if space.leaves_index(size)]
        if space.leaves_promised(group.new_segment_bytes):
            sizes.insert(0, group.new_segment_bytes)
        for size in sizes:
            if self._allocate(group, path, size):
                return
        from_ballast = space.ballast.release() and space.leaves_index(needed)
        if from_ballast and self._allocate(group, path, needed):
            return
        raise OutOfSpace(f"a segment of {needed} bytes")

    def _write_mark(self, mark: DurableMark) -> None:
        try:
            self._marks.open()
        except OSError as error:
            if error.errno in _WITHOUT_DESCRIPTOR:
                raise OutOfDescriptors("the durable mark") from error
            if error.errno == errno.ENOSPC:
                raise OutOfSpace("the durable mark") from error
            raise
        self._marks.write(mark)

    def _take_spare(self, path: str) -> int | None:
        try:
            return self._space.spares.take(path)
        except OSError as error:
            if error.errno not in _WITHOUT_DESCRIPTOR:
                raise
            raise OutOfDescriptors("a segment") from error

    def _allocate(self, group: CommitGroup, path: str, size: int) -> bool:
        """A new file with `size` bytes reserved; False, and no file, when the disk is full."""
        vfs = self._files.vfs
        handle = -1
        try:
            handle = vfs.create(path)
            vfs.preallocate(handle, size)
        except OSError as error:
            if handle >= 0:
                vfs.close(handle)
                vfs.unlink(path)
            if error.errno in _WITHOUT_DESCRIPTOR:
                raise OutOfDescriptors("a segment") from error
            if error.errno != errno.ENOSPC:
                raise
            return False
        group.handle, group.new_segment_bytes = handle, size
        return True

    def seal(self) -> tuple[int, int] | None:
        """Let the next group begin a new segment, and return this one and where it ends. The unused
        rest of it may be given back then (`CommitGroup.cut`): on a full disk the garbage in the
        segment is worth more than that rest. None when there is nothing to seal, or it is sealed
        already. No group may be under way.
        """
        if not self.position.offset or self._handle < 0 or not self._capacity:
            return None
        self._capacity = 0
        return self.position.segment, self.position.offset

    def _close_handle(self) -> None:
        if self._handle >= 0:
            self._files.vfs.close(self._handle)
            self._handle = -1
