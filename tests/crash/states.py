"""Which disks a crash can leave behind at one moment of a recording.

A *moment* is the point right after a call that changed what may be on the disk. At each:

| name | what |
|---|---|
| ``kill`` | the process died; the cache is what the next one sees |
| ``none`` | the power failed; no un-synced change got to the disk |
| ``names`` | only un-synced names got there: new files are empty |
| ``data`` | only un-synced contents got there: new files are not found |
| ``torn1..3`` | everything got there but the newest write: its first 64 bytes, half, all but 8 |
| ``tail`` | the newest write without its first sector: sectors are written in any order |
| ``drop-N`` | everything but the Nth newest un-synced change (write, size, or name) |
| ``only-N`` | nothing later than the Nth newest un-synced change |
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.crash.disk import Change, Disk, Tree

PENDING_MAX = 12
"""How many of the newest un-synced changes are dropped, one at a time."""
SECTOR_BYTES = 512


def states(disk: Disk, *, pairs: bool = False) -> Iterator[tuple[str, Tree]]:
    """Name and tree of every state of this moment; equal trees may come more than once.

    `pairs`: also the states that lack any two of the un-synced changes.
    """
    yield "kill", disk.cache()
    pending = disk.pending
    yield "none", disk.after_power_cut(())
    if not pending:
        return
    yield "names", disk.after_power_cut(change for change in pending if change.names)
    yield "data", disk.after_power_cut(change for change in pending if not change.names)
    yield from _torn(disk, pending)
    newest = pending[-PENDING_MAX:]
    for number in range(1, len(newest) + 1):
        kept = pending[: len(pending) - number]
        yield f"drop-{number}", disk.after_power_cut([*kept, *pending[len(kept) + 1 :]])
        yield f"only-{number}", disk.after_power_cut(kept)
        for other in range(1, number) if pairs else ():
            rest = [
                change
                for position, change in enumerate(reversed(pending), 1)
                if position not in (number, other)
            ]
            yield f"pair-{number}-{other}", disk.after_power_cut(reversed(rest))


def _torn(disk: Disk, pending: list[Change]) -> Iterator[tuple[str, Tree]]:
    last = pending[-1]
    if last.data is None:
        return
    size, before = len(last.data), pending[:-1]
    for number, cut in enumerate((min(64, size // 4), size // 2, size - 8), 1):
        if 0 < cut < size:
            yield f"torn{number}", disk.after_power_cut(before, (last, 0, cut))
    first = SECTOR_BYTES - last.offset % SECTOR_BYTES
    if size > first:
        yield "tail", disk.after_power_cut(before, (last, first, size))
