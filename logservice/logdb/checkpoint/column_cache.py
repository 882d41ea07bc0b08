"""ColumnCache: which columns of the entry indexes are in memory, and where they come back from.

Columns without a row in the derived index stay in memory, because nothing else gives them quickly.
All others are here, at most `bytes_max` of them for all replicas together; the one that was
loaded or written longest ago goes first. (Not the one that was used longest ago: a reader uses a
chunk thousands of times in a row, and then never again.)

- INV-CACHE-1: columns leave memory only when the row that brings them back is durable.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from logservice_wire.errors import Halted

from logservice.ids import Index, ReplicaId, ShardId
from logservice.logdb.checkpoint.checkpoint import load_columns
from logservice.logdb.format.columns import EntryColumns
from logservice.logdb.format.commit_group import GROUP_HEADER_BYTES, decode_group_header
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES
from logservice.logdb.format.segment import segment_name
from logservice.logdb.format.segment_scan import scan_entries
from logservice.logdb.index.index import Chunk
from logservice.logdb.index.replica_state import Key
from logservice.logdb.io.kv import Kv
from logservice.logdb.io.segment_files import SegmentFiles

_CHUNK_OVERHEAD_BYTES = 700
"""Objects and headers of five columns (CPython 3.11)."""


class ColumnCache:
    """The `ColumnSource` of all indexes of one log."""

    def __init__(self, kv: Kv, files: SegmentFiles, bytes_max: int) -> None:
        """An empty cache. `on_fault` is told (whose, why, first lost entry) when neither row nor
        segment has the columns.
        """
        self.bytes = 0
        self.on_fault: Callable[[Key, str, Index], None] = lambda *_: None
        self._kv = kv
        self._files = files
        self._bytes_max = bytes_max
        self._chunks: OrderedDict[Chunk, int] = OrderedDict()

    def load(self, key: Key, chunk: Chunk) -> EntryColumns:
        """See `ColumnSource`: from the row, or from the segment when the row is damaged.

        Raises Halted when both are: the replica is faulty.
        """
        run = self.read(key, chunk)
        if run is None:
            run = self._from_segment(key, chunk)
        chunk.loaded = run
        self._add(chunk, run)
        return run

    def read(self, key: Key, chunk: Chunk) -> EntryColumns | None:
        return load_columns(self._kv, key, chunk)

    def take(self, chunk: Chunk, run: EntryColumns | None) -> None:
        """See `ColumnSource`. A chunk that left the index is not saved any more."""
        if run is not None and chunk.loaded is None and chunk.saved:
            chunk.loaded = run
            self._add(chunk, run)

    def hold(self, chunks: Iterable[tuple[Key, Chunk]]) -> None:
        """Rows of these chunks are about to be written: until `saved` their columns stay."""
        for _, chunk in chunks:
            self.bytes -= self._chunks.pop(chunk, 0)

    def saved(self, chunks: Iterable[tuple[Key, Chunk]]) -> None:
        """Rows of these chunks are durable: their columns may leave memory."""
        for _, chunk in chunks:
            if chunk.loaded is not None:
                self._add(chunk, chunk.loaded)

    def _add(self, chunk: Chunk, run: EntryColumns) -> None:
        self.bytes -= self._chunks.pop(chunk, 0)
        self._chunks[chunk] = size = 16 * (len(run) + len(run.terms)) + _CHUNK_OVERHEAD_BYTES
        self.bytes += size
        while self.bytes > self._bytes_max and len(self._chunks) > 1:
            oldest, freed = self._chunks.popitem(last=False)
            self.bytes -= freed
            # One that changed since its row was written comes back with its next row.
            if oldest.saved and not oldest.dirty:
                oldest.loaded = None

    def _from_segment(self, key: Key, chunk: Chunk) -> EntryColumns:
        why = f"{segment_name(chunk.segment)}: no entries {chunk.first} to {chunk.last}"
        try:
            view, seed = self._files.read_all(chunk.segment), self._files.seed(chunk.segment)
            end = self._last_group(chunk.segment)
            found = scan_entries(view, chunk.segment, seed, key, chunk.first, chunk.last, end)
            if found is not None and found.next_lsn == chunk.next_lsn:
                return found
        except OSError as error:
            why = f"{segment_name(chunk.segment)}: {error}"
        self.on_fault(key, why, Index(chunk.first))
        shard, replica = ShardId(key[0]), ReplicaId(key[1])
        raise Halted(f"shard {shard} replica {replica}: {why}", shard=shard, replica=replica)

    def _last_group(self, segment: int) -> int:
        """Where the last group of a segment begins, as a later one says; 0: unknown."""
        files = self._files
        if (known := files.ends.get(segment)) is not None:
            return known.offset
        following = min((one for one in files.sizes if one > segment), default=0)
        if not following:
            return 0
        start = SEGMENT_HEADER_BYTES
        head = files.read(following, start, GROUP_HEADER_BYTES)
        header = decode_group_header(head, following, start, files.seed(following), start)
        if header is None or header.previous.segment != segment:
            return 0
        return header.previous.offset
