"""Opening: recovery with the derived index if it is there and fits, else from the segments alone.

The index is derived (INV-CKPT-2), so anything wrong with it is answered by removing it. The reason
is in the recovery report.
"""

from __future__ import annotations

from logservice_wire.errors import Halted

from logservice.logdb.checkpoint import CheckpointUnusable, load_checkpoint
from logservice.logdb.column_cache import ColumnCache
from logservice.logdb.kv import Kv, KvEngine, KvError
from logservice.logdb.recovery import Recovered, check_base, recover
from logservice.logdb.segment import SegmentFiles


def open_and_recover(
    files: SegmentFiles, engine: KvEngine, path: str, cache_bytes: int
) -> tuple[Kv | None, ColumnCache | None, Recovered]:
    """Recover from the derived index and the segments, or from the segments alone: then the index
    is gone, and to be made anew.

    What LevelDB says of a damaged file depends on the place: a table that is cut short is an IO
    error, not corruption. So whatever it says here, it is made anew. On a disk without a byte it
    cannot open what is there; but there is room for a new one, which removing the old one, and
    ending the newest segment, gives.
    """
    why = ""
    try:
        kv = engine.open(path)
    except KvError as error:
        why = str(error)
    else:
        try:
            base = load_checkpoint(kv, files)
            check_base(files, base)
            columns = ColumnCache(kv, files, cache_bytes)
            for state in base[1].values():
                state.index.source = columns
            return kv, columns, recover(files, base)
        except (CheckpointUnusable, KvError, Halted) as error:
            why = str(error)
            kv.close()
        except BaseException:
            kv.close()
            raise
    engine.destroy(path)
    return None, None, recover(files, None, why if files.sizes else "")
