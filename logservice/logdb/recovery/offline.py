"""Offline: tools for a data directory that no store has open.

`check`, `dump`, `statistics` and `stored_log` only read: not even the lock file is made. They work
on damaged directories and on disks that cannot read everything (`survey`). Without a readable
identity file, the header of every segment says which directory it is. `rebuild_index` replaces the
derived index, and decides nothing where the disk does not answer.

They need no keys, but for entries that somebody wants to see (`stored_log`) or that `check` is to
open, too: KeysMissing is raised for the first one that cannot be opened.

While a store runs, all of them would see its un-synced tail, so they refuse. With `live` they do
not, and may report a group as torn that is being written.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from logservice_wire.errors import Halted, InvalidArgument, ShardNotFound, WrongCluster

from logservice.bounds import LOGDB_READ_SPAN_BYTES_MAX
from logservice.entry import Entry
from logservice.ids import ClusterId, Incarnation, Index, ReplicaId, StoreId
from logservice.logdb.checkpoint.checkpoint import (
    CheckpointUnusable,
    LogPosition,
    build_checkpoint,
    load_checkpoint,
    load_columns,
)
from logservice.logdb.format.commit_group import FLAG_MARK, FLAG_REWRITE
from logservice.logdb.format.durable_mark import DurableMark
from logservice.logdb.format.group_encoder import fields_of
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES, SegmentEnds
from logservice.logdb.format.segment import (
    decode_segment_header,
    incarnation_in,
    segment_name,
)
from logservice.logdb.format.segment_scan import Hole, scan_segment
from logservice.logdb.index.replica_state import ReplicaState
from logservice.logdb.io.data_directory import IDENTITY_NAME, LOCK_NAME, Identity, read_identity
from logservice.logdb.io.kv import KvEngine, KvError
from logservice.logdb.io.mark_file import MARK_NAME, read_mark
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.io.segment_keys import SegmentKeys
from logservice.logdb.io.survey import Survey
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.logdb.recovery.key_check import find_keys
from logservice.logdb.recovery.opening import INDEX_NAME, write_kept_again
from logservice.logdb.recovery.recovery import recover
from logservice.logdb.recovery.resolve import Damage
from logservice.logdb.recovery.segment_ends import NOBODY
from logservice.sealing_keys import Keys

UNKNOWN: Final = Identity(ClusterId(""), StoreId(""), Incarnation(0), 0, 0, 0)
"""Stands for the identity of a directory whose identity file cannot be read; its incarnation is the
one that the segments name.
"""


@dataclass(frozen=True, slots=True)
class ReplicaSummary:
    """One replica as found on disk. removed: only its tombstone is left. faulty: why, or empty."""

    shard: int
    replica: int
    term: int
    vote: int
    commit: int
    first_index: int
    last_index: int
    first_lsn: int
    next_lsn: int
    segments: int
    live_bytes: int
    bootstrapped: bool
    removed: bool
    faulty: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `check` found. ok: no replica is faulty, and all that is damaged is superseded.
    verdicts: what a store would do with each faulty replica, in plain words. index: what is damaged
    in the derived index; that costs no replica anything, because the index is made anew.
    """

    identity: Identity
    segments: int
    bytes: int
    groups: int
    torn_bytes: int
    entries: int
    damages: tuple[str, ...]
    harmless: tuple[str, ...]
    verdicts: tuple[str, ...]
    replicas: tuple[ReplicaSummary, ...]
    index: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything is as it was written."""
        faulty = any(replica.faulty for replica in self.replicas)
        return not self.damages and not self.index and not faulty


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One run of records of one replica, or a finding, in the order on disk.

    kind: ``entries``, a record kind in lower case, ``mark``, ``damaged``, ``hole``, or
    ``unreadable``. A mark in the file of marks comes last, with the place that it names.
    """

    segment: int
    offset: int
    group: int
    rewrite: bool
    kind: str
    shard: int = 0
    replica: int = 0
    write_sequence: int = 0
    first_index: int = 0
    last_index: int = 0
    first_lsn: int = 0
    next_lsn: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """One segment file: its size, what is used, and what is still needed. key: what its entries are
    encrypted with, by id if it is known.
    """

    segment: int
    name: str
    size: int
    used_bytes: int
    live_bytes: int
    groups: int
    replicas: int
    key: str
    pinned_by: tuple[tuple[int, int], ...]


def check(
    vfs: Vfs,
    path: str,
    *,
    kv: KvEngine | None = None,
    read_entries: bool = True,
    live: bool = False,
    keys: Keys | None = None,
) -> CheckReport:
    """Verify every checksum and every chain, from the segments alone; reads every live entry too,
    and opens it if `keys` are given.

    With `kv` every row of the derived index is read as well, in a copy; not with `live`, because a
    running store changes the index meanwhile. Raises WrongCluster (no data directory, or nothing
    says which), InvalidArgument (a store runs there), OSError.
    """
    with _files(vfs, path, live=live, keys=keys, unopened=keys is None) as (identity, survey):
        index = _Index(lost=False) if kv is None or live else _read_index(kv, path, survey.files)
        recovered = recover(survey, None, mark=_mark(vfs, path, survey), index_lost=index.lost)
        states = [recovered.states[key] for key in sorted(recovered.states)]
        entries = 0
        found: list[str] = []
        for state in states:
            if not read_entries or state.removed or state.faulty:
                continue
            log = ReplicaLog(state, survey.files, lambda *_: None)
            try:
                entries += _read_through(log)
            except Halted as error:
                found.append(str(error))
        report, sizes = recovered.report, survey.files.sizes
        return CheckReport(
            identity,
            len(sizes),
            sum(sizes.values()),
            report.groups,
            report.torn_bytes,
            entries,
            (
                *_unidentified(identity),
                *(_words(d) for d in report.damages if not d.harmless),
                *found,
                *_unreadable(survey),
            ),
            tuple(_words(d) for d in report.damages if d.harmless),
            tuple(_verdict(state) for state in states if state.fault is not None),
            tuple(_summary(state) for state in states),
            index.damages,
        )


@dataclass(frozen=True, slots=True)
class _Index:
    """The derived index of a directory. lost: nothing can be concluded from it."""

    lost: bool
    damages: tuple[str, ...] = ()


def _read_index(kv: KvEngine, path: str, files: SegmentFiles) -> _Index:
    """Read every row of it; one that is absent is lost, but not damaged."""
    index = posixpath.join(path, INDEX_NAME)
    lost, damages = True, []
    try:
        with kv.open_copy(index) as opened:
            if opened is None:
                return _Index(lost)
            if not kv.trusted(index):
                damages.append("the index: a write to it failed; the next start makes it anew")
            states = load_checkpoint(opened, files)[1]
            lost = False
            damages += [
                f"the index, shard {key[0]} replica {key[1]}: the row of entries {chunk.first} to"
                f" {chunk.last} is damaged"
                for key in sorted(states)
                for chunk in states[key].index.chunks
                if load_columns(opened, key, chunk) is None
            ]
            opened.compact()  # reads also what newer rows replace
    except (CheckpointUnusable, KvError) as error:
        if files.sizes:
            damages.append(f"the index: {error}")
    return _Index(lost, tuple(damages))


def dump(vfs: Vfs, path: str, *, live: bool = False) -> Iterator[DumpedRecord]:
    """Every run of records in every segment, damaged places included. Errors as `check`."""
    with _files(vfs, path, live=live) as (_, survey):
        for segment in survey.files.ids():
            yield from _dump_segment(survey, segment)
        if (mark := _mark(vfs, path, survey)) is not None:
            last, detail = mark.last, f"in the file {MARK_NAME}"
            yield DumpedRecord(
                last.segment, last.offset, mark.sequence, False, "mark", detail=detail
            )


def statistics(
    vfs: Vfs, path: str, *, live: bool = False, keys: Keys | None = None
) -> tuple[SegmentSummary, ...]:
    """Per segment: used and live bytes, and who keeps it from being collected. Errors as
    `check`.
    """
    with _files(vfs, path, live=live, keys=keys) as (_, survey):
        recovered = recover(survey, None, mark=_mark(vfs, path, survey))
        live_bytes: dict[int, int] = {}
        pins: dict[int, set[tuple[int, int]]] = {}
        for state in recovered.states.values():
            for chunk in state.index.chunks:
                live_bytes[chunk.segment] = live_bytes.get(chunk.segment, 0) + chunk.live
                pins.setdefault(chunk.segment, set()).add(state.key)
            for origin in state.origins.values():
                pins.setdefault(origin.segment, set()).add(state.key)
        summaries = []
        files = survey.files
        for segment in files.ids():
            view = survey.read_from(segment, 0)
            scan = scan_segment(view, segment, SEGMENT_HEADER_BYTES, files.seed(segment))
            groups = list(scan.groups())
            replicas = {(run.shard, run.replica) for group in groups for run in group.runs}
            replicas.discard(NOBODY)
            summaries.append(
                SegmentSummary(
                    segment,
                    segment_name(segment),
                    files.sizes[segment],
                    scan.end,
                    live_bytes.get(segment, 0),
                    len(groups),
                    len(replicas),
                    files.keys.name(files.keys.tags[segment]),
                    tuple(sorted(pins.get(segment, set()))),
                )
            )
        return tuple(summaries)


@contextmanager
def stored_log(
    vfs: Vfs, path: str, shard: int, *, live: bool = False, keys: Keys | None = None
) -> Iterator[StoredLog]:
    """The log of the shard's newest replica here, damaged or halted as it may be. Errors as
    `check`; ShardNotFound when there is none.
    """
    with _files(vfs, path, live=live, keys=keys) as (_, survey):
        recovered = recover(survey, None, mark=_mark(vfs, path, survey))
        states = [s for s in recovered.states.values() if s.shard == shard and not s.removed]
        if not states:
            raise ShardNotFound(f"no replica of shard {shard} in {path}", shard=shard)
        state = max(states, key=lambda one: one.replica)
        damages = [d for d in recovered.report.damages if not d.harmless]
        mine = tuple(_words(d) for d in damages if d.key in (None, state.key))
        yield StoredLog(state, survey.files, mine)


@contextmanager
def stored_logs(
    vfs: Vfs, path: str, keys: Keys | None = None
) -> Iterator[tuple[Identity, tuple[StoredLog, ...]]]:
    """The identity of the directory, and the logs of all its replicas, in their order. Errors as
    `check`.
    """
    with _files(vfs, path, live=False, keys=keys) as (identity, survey):
        recovered = recover(survey, None, mark=_mark(vfs, path, survey))
        damages = [d for d in recovered.report.damages if not d.harmless]
        yield (
            identity,
            tuple(
                StoredLog(
                    state,
                    survey.files,
                    tuple(_words(d) for d in damages if d.key in (None, state.key)),
                )
                for _, state in sorted(recovered.states.items())
                if state.exists
            ),
        )


class StoredLog:
    """One replica's log on disk, whatever is wrong with it."""

    def __init__(self, state: ReplicaState, files: SegmentFiles, damages: tuple[str, ...]) -> None:
        """Use `stored_log`."""
        self._state = state
        self._files = files
        self.shard = state.shard
        self.replica = state.replica
        self.hard_state = state.hard_state
        self.last_index = Index(state.index.last_index)
        self.faulty = state.faulty
        born = state.bootstrap
        self.witness = born is not None and born.of_witness(ReplicaId(state.replica))
        self.commit = state.hard_state.commit
        installed = state.installed
        self.installed = installed
        self.snapshot = installed.snapshot if installed is not None else None
        self._damages = damages

    def entries(self) -> Iterator[Entry | str]:
        """Every entry in order. In the place of one that cannot be read is the reason; at the end
        follows what is damaged. Raises KeysMissing.
        """
        position, end = self._state.index.floor_index + 1, self._state.index.last_index + 1
        size = LOGDB_READ_SPAN_BYTES_MAX
        while position < end:
            # Whether it can be trusted is for the caller to judge: nothing runs on it here.
            self._state.fault = None
            log = ReplicaLog(self._state, self._files, lambda *_: None)
            try:
                found = log.entries(Index(position), Index(end), size)
            except Halted as error:
                if size:
                    size = 0  # one by one
                    continue
                yield f"entry {position}: {error.message}"
                position += 1
                continue
            yield from found
            position += len(found)
        for damage in self._damages:
            yield f"damaged: {damage}"


def rebuild_index(vfs: Vfs, path: str, kv: KvEngine) -> CheckReport:
    """Throw the derived index away and write it anew from the segments, whose bytes stay as they
    are.

    Raises like `check`, and KvError; OSError also where the disk cannot read a segment: it might
    be the newest group, and that must not be taken for torn.
    """
    read_identity(vfs, path)
    with _locked(vfs, path), _files(vfs, path, live=True) as (identity, survey):
        index = _read_index(kv, path, survey.files)
        recovered = recover(survey, None, mark=_mark(vfs, path, survey), index_lost=index.lost)
        if unread := _unreadable(survey):
            raise OSError(errno.EIO, f"nothing was changed: {unread[0]}")
        position = recovered.position
        for segment, end in recovered.seal.items():
            # The index may cover only what is durable; whether to cut a torn tail is for the store.
            position = replace(position, segment=segment, offset=end)
            write_kept_again(survey, recovered.position.last, segment, end, LogPosition())
        vfs.fsync_directory(survey.files.directory)
        batch = build_checkpoint(recovered.states.values(), position, identity.incarnation)
        place = posixpath.join(path, INDEX_NAME)
        kv.destroy(place)
        opened = kv.open(place)
        try:
            opened.write(batch.puts, batch.deletes)
        finally:
            opened.close()
    return check(vfs, path, kv=kv, read_entries=False)


@contextmanager
def _files(
    vfs: Vfs, path: str, *, live: bool, keys: Keys | None = None, unopened: bool = False
) -> Iterator[tuple[Identity, Survey]]:
    why = ""
    segments = posixpath.join(path, "segments")
    try:
        identity = read_identity(vfs, path)
    except WrongCluster as error:
        if not vfs.exists(segments):
            raise
        why = error.message
        identity = UNKNOWN
    if not live and vfs.exists(posixpath.join(path, LOCK_NAME)):
        with _locked(vfs, path):
            pass
    if not vfs.exists(segments):
        raise InvalidArgument(
            f"{path} has an {IDENTITY_NAME} file but no segments", field="data_directory"
        )
    segment_keys = SegmentKeys(keys, unopened=unopened)
    files = SegmentFiles(vfs, segments, identity.incarnation, segment_keys)
    try:
        survey = Survey(files)
        if why and not _believe_headers(survey):
            raise WrongCluster(why)
        find_keys(survey)
        yield replace(identity, incarnation=Incarnation(files.incarnation)), survey
    finally:
        files.close()


def _mark(vfs: Vfs, path: str, survey: Survey) -> DurableMark | None:
    return read_mark(vfs, path, survey.files.incarnation)


def _believe_headers(survey: Survey) -> bool:
    """Take the incarnation from the first segment header that verifies; False: none does."""
    for segment in survey.files.ids():
        found = incarnation_in(survey.read(segment, 0, SEGMENT_HEADER_BYTES), segment)
        if found is not None:
            survey.files.incarnation = found
            return True
    return False


@contextmanager
def _locked(vfs: Vfs, path: str) -> Iterator[None]:
    try:
        lock = vfs.lock(posixpath.join(path, LOCK_NAME))
    except BlockingIOError as error:
        text = f"a store is running on {path}: stop it, or only look, with --live"
        raise InvalidArgument(text, field="data_directory") from error
    try:
        yield
    finally:
        vfs.close(lock)


def _unidentified(identity: Identity) -> list[str]:
    if identity.format_version != UNKNOWN.format_version:
        return []
    return [f"the {IDENTITY_NAME} file is missing or damaged; a store does not start here"]


def _unreadable(survey: Survey) -> list[str]:
    return [
        f"{segment_name(segment)} at {start}: the disk cannot read {end - start} bytes"
        for segment in survey.files.ids()
        for start, end in survey.unreadable(segment)
    ]


def _words(damage: Damage) -> str:
    if damage.key is None:
        return f"{damage}; nobody knows whose: every replica in the directory is suspect"
    return f"shard {damage.key[0]} replica {damage.key[1]}: {damage}"


def _verdict(state: ReplicaState) -> str:
    fault, index = state.fault, state.index
    assert fault is not None
    who = f"shard {state.shard} replica {state.replica}"
    if not fault.repairable:
        return f"{who}: more than entries may be lost; HAKeeper replaces it under a new id"
    before = fault.damaged_from - 1
    try:
        lsn = index.next_lsn(before)
    except (KeyError, Halted):
        lsn = index.tail_lsn
    return (
        f"{who}: intact up to entry {before}, LSN {lsn - 1}; damaged from there on, and"
        f" perhaps acknowledged through entry {fault.acked_through}; a store repairs it in place"
        " from its peers"
    )


def _read_through(log: ReplicaLog) -> int:
    """Read every live entry; returns their number. Raises Halted for the first that is damaged."""
    position, end = log.first_index(), log.last_index() + 1
    while position < end:
        found = log.entries(position, Index(end), LOGDB_READ_SPAN_BYTES_MAX)
        position = Index(position + len(found))
    return end - log.first_index()


def _summary(state: ReplicaState) -> ReplicaSummary:
    index, hard = state.index, state.hard_state
    return ReplicaSummary(
        state.shard,
        state.replica,
        hard.term,
        hard.vote,
        hard.commit,
        index.floor_index + 1,
        index.last_index,
        index.floor_next_lsn,
        index.tail_lsn,
        len({chunk.segment for chunk in index.chunks}),
        sum(chunk.live for chunk in index.chunks),
        state.bootstrap is not None,
        state.removed,
        state.faulty,
    )


def _ends(told: SegmentEnds) -> str:
    return ", ".join(f"{segment:x} at {offset}" for segment, offset, _ in told.ends)


def _dump_segment(survey: Survey, segment: int) -> Iterator[DumpedRecord]:
    files = survey.files
    view, seed = survey.read_from(segment, 0), files.seed(segment)
    for start, end in survey.unreadable(segment):
        detail = f"{end - start} bytes, shown as zeros below"
        yield DumpedRecord(segment, start, 0, False, "unreadable", detail=detail)
    if decode_segment_header(view[:SEGMENT_HEADER_BYTES], segment, files.incarnation) is None:
        yield DumpedRecord(segment, 0, 0, False, "damaged", detail="segment header")
    scan = scan_segment(view, segment, SEGMENT_HEADER_BYTES, seed)
    for item in scan.items:
        if isinstance(item, Hole):
            detail = f"{item.end - item.start} unreadable bytes"
            yield DumpedRecord(segment, item.start, 0, False, "hole", detail=detail)
            continue
        place = (segment, item.position.offset, item.sequence, bool(item.flags & FLAG_REWRITE))
        if item.flags & FLAG_MARK:
            yield DumpedRecord(*place, "mark")
        for run in item.runs:
            for meta in run.metas:
                yield DumpedRecord(
                    *place,
                    meta.kind.name.lower(),
                    run.shard,
                    run.replica,
                    meta.write_sequence,
                    first_index=fields_of(meta.value)[0],
                    detail=_ends(meta.value) if isinstance(meta.value, SegmentEnds) else "",
                )
            columns = run.columns
            if columns is not None:
                yield DumpedRecord(
                    *place,
                    "entries",
                    run.shard,
                    run.replica,
                    columns.write_sequence,
                    columns.first,
                    columns.last,
                    columns.lsns[0],
                    columns.next_lsn,
                )
        for bad in item.damaged:
            row = bad.row
            yield DumpedRecord(
                *place,
                "damaged",
                row.shard,
                row.replica,
                row.write_sequence,
                row.index,
                row.last_index,
                detail=bad.detail,
            )
    if any(view[scan.end :]):
        detail = "bytes that are no group, at the end: torn, or left over from a recycled file"
        yield DumpedRecord(segment, scan.end, 0, False, "hole", detail=detail)
