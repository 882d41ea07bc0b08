"""Records that name themselves: their batch, their number in it, their size.

A reader therefore needs no list of what was appended to know whether bytes are whole, and a
million records that were read become a few hundred runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice.sim.history import Run


def make_record(batch: str, number: int, size: int) -> bytes:
    """A record long enough for its own name at least; the rest of it is made from the name."""
    name = f"{batch}/{number}/{size}/".encode()
    if len(name) >= size:
        return name
    return (name * (size // len(name) + 1))[:size]


def make_records(batch: str, count: int, size: int) -> list[bytes]:
    """The records of one append."""
    return [make_record(batch, number, size) for number in range(count)]


def identify(record: bytes) -> tuple[str, int] | None:
    """Batch and number of a record; None for bytes that are not one whole record of ours."""
    parts = record.split(b"/", 3)
    if len(parts) != 4 or not parts[1].isdigit() or not parts[2].isdigit():
        return None
    try:
        batch, number, size = parts[0].decode(), int(parts[1]), int(parts[2])
    except UnicodeDecodeError:
        return None
    return (batch, number) if make_record(batch, number, size) == record else None


def runs_of(first_lsn: int, records: Sequence[bytes]) -> list[Run]:
    """The records that were read, as few runs as possible; foreign bytes are runs without a
    batch.
    """
    runs: list[Run] = []
    batch, start, count = "", 0, 0
    lsn = first_lsn
    for position, record in enumerate(records):
        found = identify(record)
        if found is not None and count and found == (batch, start + count):
            count += 1
            continue
        if count:
            runs.append(Run(lsn, count, batch, start))
        lsn = first_lsn + position
        if found is None:
            runs.append(Run(lsn, 1))
            count = 0
        else:
            batch, start = found
            count = 1
    if count:
        runs.append(Run(lsn, count, batch, start))
    return runs
