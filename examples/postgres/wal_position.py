"""Positions in PostgreSQL's write-ahead log, and the names of its files.

A position is a number of bytes since the beginning of the WAL of one database system. It is written
as two hexadecimal numbers, ``0/16B3748``. A timeline is a history of the WAL: it begins with 1, and
a server that was restored and promoted goes on with the next one. WAL is stored in files of one
size, *segments*, whose names are timeline and number.
"""

from __future__ import annotations

import re
from typing import Final

_POSITION: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_SEGMENT_NAME: Final = re.compile(r"([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{8})")
_HISTORY_NAME: Final = re.compile(r"([0-9A-F]{8})\.history")
_HALF: Final = 1 << 32

SEGMENT_LOG2_MIN: Final = 20
SEGMENT_LOG2_MAX: Final = 30
"""The sizes of a segment that `initdb --wal-segsize` knows: powers of two from 1 MiB to 1 GiB."""


def position_of(text: str) -> int:
    """The number that PostgreSQL writes as ``0/16B3748``. Raises ValueError."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise ValueError(f"no position of a WAL: {text!r}")
    high, low = found.groups()
    return int(high, 16) * _HALF + int(low, 16)


def position_text(position: int) -> str:
    """As PostgreSQL writes it."""
    return f"{position // _HALF:X}/{position % _HALF:X}"


def segment_start(position: int, segment_log2: int) -> int:
    """Where the segment begins that has this position."""
    return position >> segment_log2 << segment_log2


def segment_name(timeline: int, position: int, segment_log2: int) -> str:
    """The name of the file that has this position."""
    number = position >> segment_log2
    per_half = _HALF >> segment_log2
    return f"{timeline:08X}{number // per_half:08X}{number % per_half:08X}"


def segment_of_name(name: str, segment_log2: int) -> tuple[int, int] | None:
    """Timeline and start of the segment with this name; None for a name of anything else."""
    found = _SEGMENT_NAME.fullmatch(name)
    if found is None:
        return None
    timeline, high, low = (int(group, 16) for group in found.groups())
    per_half = _HALF >> segment_log2
    if timeline == 0 or low >= per_half:
        return None
    return timeline, (high * per_half + low) << segment_log2


def history_of_name(name: str) -> int | None:
    """The timeline whose history file has this name; None for a name of anything else."""
    found = _HISTORY_NAME.fullmatch(name)
    return int(found.group(1), 16) if found else None
