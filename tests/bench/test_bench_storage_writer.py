"""The load bench: entries that it counts as durable are on the disk, and truncation makes room."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.storage import writer as module
from bench.storage.writer import ME, RECORD_BYTES, Load, RawFiles, Writer
from logservice.ids import Index, ShardId


async def test_every_shard_keeps_writing_and_all_of_it_is_there(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path / "store"), Load(shards=5, proposals=3))
    for _ in range(3):
        await writer.turn(0.05)
    written = writer.store.db.stats()
    assert written.entries_written == writer.entries
    assert written.groups < writer.entries, "shards share groups"
    for shard in range(5):
        log = writer.store.db.log(ShardId(shard), ME)
        entry = log.entries(log.last_index(), Index(log.last_index() + 1), 1 << 30)[0]
        assert (entry.record_count, len(entry.payload)) == (3, 3 * RECORD_BYTES)
    await writer.close()


async def test_the_log_is_truncated_and_segments_are_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETAINED_BYTES", 64 << 20)
    monkeypatch.setattr("bench.storage.logdb.SEGMENT_BYTES", 1 << 20)
    writer = Writer(str(tmp_path / "store"), Load(shards=2, proposals=1000))
    while not writer.store.db.stats().segments_recycled:
        await writer.turn(0.1)
    assert writer.store.db.stats().segment_bytes < 128 << 20
    await writer.close()


def test_the_raw_side_writes_the_same_payloads_into_all_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETAINED_BYTES", 4 << 20)
    monkeypatch.setattr(module, "SEGMENT_BYTES", 1 << 20)
    raw = RawFiles(tmp_path, Load(shards=5, proposals=100))
    raw.fill(3)
    assert raw.group(3)[0] == 3 * 100 * RECORD_BYTES
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert sizes == [1 << 20] * 4
    assert all(path.read_bytes()[:5] == b"xxxxx" for path in tmp_path.iterdir())
    assert raw.turn(0.01, 3) > 0
    raw.close()
    assert not list(tmp_path.iterdir())
