"""Opening: recover with the derived index if it is there and fits, else from the segments alone;
then make durable what recovery decided.

The index is derived (INV-CKPT-2), so whatever is wrong with it, it is removed and made anew; the
recovery report gives the reason. It is removed only after the segments were read, so that nothing
is changed on a disk that is lost. Before that it serves as a witness (`recovery.Witness`): if it
knows more than the segments, they have lost something. An index to which a write failed (INV-KV-3),
in this life or in an earlier one, is such a witness, too.

A data directory opens if its folders can be listed, its files can be opened and written, and some
bytes of its segments can be read (`survey`). If no byte can be read, the disk is lost.

INV-OPEN-1: what recovery keeps because it has read it is durable when the directory is open. A
place may go bad after it was read and before it is written again. Then recovery begins anew and
finds it unreadable; so nobody relies on a group that only the page cache of an earlier moment had.
"""

from __future__ import annotations

import errno
from typing import Final

from logservice_wire.errors import Halted

from logservice.bounds import LOGDB_UNREADABLE_PAGES_MAX
from logservice.logdb.checkpoint.checkpoint import (
    CheckpointUnusable,
    LogPosition,
    load_checkpoint,
)
from logservice.logdb.checkpoint.column_cache import ColumnCache
from logservice.logdb.format.commit_group import GroupPosition
from logservice.logdb.format.durable_mark import DurableMark
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.kv import Kv, KvEngine, KvError
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.io.survey import Survey
from logservice.logdb.io.vfs import PAGE_BYTES
from logservice.logdb.recovery.recovery import Recovered, Witness, check_base, recover

INDEX_NAME: Final = "index"
"""The name of the derived index in its data directory."""


class WentBad(OSError):
    """A place that recovery has read can no longer be read."""


def open_and_recover(
    identity: DataDirectory,
    files: SegmentFiles,
    engine: KvEngine,
    path: str,
    cache_bytes: int,
    mark: DurableMark | None,
) -> tuple[Kv | None, ColumnCache | None, Recovered]:
    """Recover from the derived index and the segments; or from the segments alone, and then the
    caller makes a new index.

    What LevelDB says of a damaged file depends on the place: a table that is cut short is an IO
    error, not corruption. So the index is made anew whatever LevelDB says here. On a disk without a
    free byte LevelDB cannot open an old index; removing it and cutting the newest segment gives
    room for a new one.
    """
    survey = Survey(files, LOGDB_UNREADABLE_PAGES_MAX)
    why = ""
    witness: Witness | None = None
    try:
        kv = engine.open(path)
    except KvError as error:
        why = str(error)
    else:
        try:
            base = load_checkpoint(kv, files)
            witness = Witness.of(base)
            if not engine.trusted(path):
                raise CheckpointUnusable("a write to it failed")
            check_base(survey, base)
            columns = ColumnCache(kv, files, cache_bytes)
            for state in base[1].values():
                state.index.source = columns
            covered = base[0]
            recovered = recover(survey, base, mark=mark)
            _settle(identity, survey, recovered, covered)
            return kv, columns, recovered
        except (CheckpointUnusable, KvError, Halted, WentBad) as error:
            why = str(error)
            kv.close()
        except BaseException:
            kv.close()
            raise
    while True:
        recovered = recover(
            survey,
            None,
            why if files.sizes else "",
            witness,
            mark=mark,
            index_lost=witness is None,
        )
        if survey.silent:
            raise OSError(errno.EIO, "no segment can be read", files.directory)
        engine.destroy(path)
        try:
            _settle(identity, survey, recovered, LogPosition())
        except WentBad as error:
            # It ends: each time there is one unreadable page more, and their number is bounded.
            why = str(error)
        else:
            return None, None, recovered


def write_kept_again(
    survey: Survey, last: GroupPosition, segment: int, end: int, covered: LogPosition
) -> None:
    """Make durable what is kept of a segment, which `last` ends: see `SegmentFiles.write_again`.

    Up to `covered` the index knows what is there, and that it was durable; it was not read yet.
    Raises WentBad when a place behind that cannot be read any more.
    """
    first = last.segment != segment or last.offset <= SEGMENT_HEADER_BYTES
    start = 0 if first else last.offset
    before = survey.unreadable(segment)
    kept, refused = survey.read_telling(segment, start, end - start)
    known = covered.offset if covered.segment == segment else 0
    if segment < covered.segment:
        known = end
    gone = [
        page
        for page in refused
        if page + PAGE_BYTES > known and not any(low <= page < high for low, high in before)
    ]
    if gone:
        where = survey.files.path(segment)
        raise WentBad(errno.EIO, f"{where} at {min(gone)} went bad while it was recovered")
    # What was unreadable and is not any more is written, too: recovery may have kept it since.
    survey.files.write_again(segment, start, kept, survey.ranges(segment, refused))


def _settle(
    identity: DataDirectory, survey: Survey, recovered: Recovered, covered: LogPosition
) -> None:
    """Make durable what is kept, cut what is dropped, remove what is empty. Raises WentBad."""
    if recovered.report.unattributed_loss:
        # First: once the index covers the damage, no later start meets it.
        identity.note_unattributed_loss()
    files, last = survey.files, recovered.position.last
    for segment, end in recovered.seal.items():
        write_kept_again(survey, last, segment, end, covered)
        if segment in recovered.hiding:
            # A group may be there, and the replicas that it may have cost are not marked yet.
            continue
        if survey.touches(segment, end, end + 1):
            # To cut inside a page the kernel has to read it.
            end += -end % PAGE_BYTES
        files.cut(segment, end)
    for segment in recovered.hiding - recovered.seal.keys():
        files.sync(segment)
    files.condemned |= recovered.hiding
    for segment in recovered.empty:
        files.retire(segment)
    files.remove(recovered.empty)
    # A killed process may have synced a new segment but not yet its name.
    files.vfs.fsync_directory(files.directory)
