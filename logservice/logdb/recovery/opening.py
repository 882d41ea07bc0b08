"""Opening: recover with the derived index if it is there and fits, else from the segments alone;
then make durable what recovery decided.

The index is derived (INV-CKPT-2), so whatever is wrong with it, it is removed and made anew; the
recovery report gives the reason. It is removed only after the segments were read, so that nothing
is changed on a disk that is lost. Before that it serves as a witness (`recovery.Witness`): if it
knows more than the segments, they have lost something. An index to which a write failed (INV-KV-3),
in this life or in an earlier one, is such a witness, too.

A data directory opens if its folders can be listed, its files can be opened and written, and some
bytes of its segments can be read (`survey`). If no byte can be read, the disk is lost.
"""

from __future__ import annotations

import errno
from typing import Final

from logservice_wire.errors import Halted

from logservice.bounds import LOGDB_UNREADABLE_PAGES_MAX
from logservice.logdb.checkpoint.checkpoint import CheckpointUnusable, load_checkpoint
from logservice.logdb.checkpoint.column_cache import ColumnCache
from logservice.logdb.format.commit_group import GroupPosition
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.kv import Kv, KvEngine, KvError
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.io.survey import PAGE_BYTES, Survey
from logservice.logdb.recovery.recovery import Recovered, Witness, check_base, recover

INDEX_NAME: Final = "index"
"""The name of the derived index in its data directory."""


def open_and_recover(
    identity: DataDirectory, files: SegmentFiles, engine: KvEngine, path: str, cache_bytes: int
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
            recovered = recover(survey, base)
            _settle(identity, survey, recovered)
            return kv, columns, recovered
        except (CheckpointUnusable, KvError, Halted) as error:
            why = str(error)
            kv.close()
        except BaseException:
            kv.close()
            raise
    recovered = recover(
        survey, None, why if files.sizes else "", witness, index_lost=witness is None
    )
    if survey.silent:
        raise OSError(errno.EIO, "no segment can be read", files.directory)
    engine.destroy(path)
    _settle(identity, survey, recovered)
    return None, None, recovered


def write_kept_again(survey: Survey, last: GroupPosition, segment: int, end: int) -> None:
    """Make durable what is kept of a segment, which `last` ends: see `SegmentFiles.write_again`."""
    first = last.segment != segment or last.offset <= SEGMENT_HEADER_BYTES
    start = 0 if first else last.offset
    # A group that the index covers was not read yet.
    kept = survey.read(segment, start, end - start)
    survey.files.write_again(segment, start, kept, survey.unreadable(segment))


def _settle(identity: DataDirectory, survey: Survey, recovered: Recovered) -> None:
    """Make durable what is kept, cut what is dropped, remove what is empty."""
    if recovered.report.unattributed_loss:
        # First: once the index covers the damage, no later start meets it.
        identity.note_unattributed_loss()
    files, last = survey.files, recovered.position.last
    for segment, end in recovered.seal.items():
        write_kept_again(survey, last, segment, end)
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
