"""Forging entries in the segment files of a store, running or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from logservice.sim.faults.forgery import blocks_in, forged


def forge(directory: Path, incarnation: int, shard: int, replica: int, index: int) -> None:
    """Change an entry in every copy of it."""
    wanted = (shard, replica, index)
    assert forge_where(directory, incarnation, lambda key, _: key == wanted), "it is nowhere"


def forge_where(
    directory: Path,
    incarnation: int,
    condition: Callable[[tuple[int, int, int], memoryview], bool],
) -> list[tuple[int, int, int]]:
    """Change every entry whose (shard, replica, index), and the bytes that begin with its record,
    satisfy the condition; returns the changed entries.
    """
    found = []
    for path in sorted((directory / "segments").glob("*.segment")):
        segment = int(path.stem, 16)
        image = path.read_bytes()
        for key, offset in blocks_in(image, segment, incarnation).items():
            data = forged(image, segment, incarnation, offset)
            if not condition(key, memoryview(image)[offset : offset + len(data)]):
                continue
            with path.open("r+b") as file:
                file.seek(offset)
                file.write(data)
            found.append(key)
    return found
