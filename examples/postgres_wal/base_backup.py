"""Where a base backup begins: what its `backup_label` says.

A restore needs the whole segment that has this position: PostgreSQL reads the segment's first page,
too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.postgres.wal_position import position_of, segment_of_name

_START: Final = re.compile(r"^START WAL LOCATION: (\S+) \(file ([0-9A-F]{24})\)$", re.MULTILINE)
_TIMELINE: Final = re.compile(r"^START TIMELINE: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class BackupStart:
    """Timeline and position from which on WAL is needed, and the name of the file that has it."""

    timeline: int
    position: int
    file: str

    def segment_start(self, segment_log2: int) -> int:
        """Where that file begins. Raises ValueError when files of this size have other names."""
        found = segment_of_name(self.file, segment_log2)
        if found is None or not found[1] <= self.position < found[1] + (1 << segment_log2):
            raise ValueError(f"the backup's file {self.file} is of another size")
        return found[1]


def start_of_backup(directory: Path) -> BackupStart:
    """Raises OSError, and ValueError when the directory is that of no base backup."""
    text = (directory / "backup_label").read_text()
    start, timeline = _START.search(text), _TIMELINE.search(text)
    if start is None or timeline is None:
        raise ValueError(f"{directory}/backup_label does not say where the backup begins")
    return BackupStart(int(timeline.group(1)), position_of(start.group(1)), start.group(2))
