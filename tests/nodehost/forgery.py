"""Forging entries in the segment files of a store, running or not."""

from __future__ import annotations

from pathlib import Path

from logservice.sim.forgery import blocks_in, forged


def forge(directory: Path, incarnation: int, shard: int, replica: int, index: int) -> bytes:
    """Change the entry in every copy of it; what was there, to be found again with `payload`."""
    hits = 0
    before = b""
    for path in sorted((directory / "segments").glob("*.segment")):
        segment = int(path.stem, 16)
        image = path.read_bytes()
        offset = blocks_in(image, segment, incarnation, shard, replica).get(index)
        if offset is None:
            continue
        data = forged(image, segment, incarnation, offset)
        before = image[offset : offset + len(data)]
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(data)
        hits += 1
    assert hits, "the entry is nowhere"
    return before
