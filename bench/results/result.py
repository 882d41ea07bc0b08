"""result: a run as it is kept: every figure of every round, by row, in one JSON file.

The file is written anew after each row, in one step, so that a run that ends early has lost one row
at most. A run may be done in pieces: each says when it was, on which machine, and what it did.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from bench.probes.raw_disk import DiskProbe
from bench.rows.row import OURS, Figure

FORMAT: Final = 1


@dataclass(slots=True)
class Result:
    """All rounds of one row. In each are the figures of the sides that took turns, by name."""

    key: str
    began: str
    """Local time, ISO 8601; so are all of them."""
    ended: str = ""
    rounds: list[dict[str, Figure]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Peers that could not be had, with the reason."""
    error: str = ""
    """Why the row is not whole."""

    @property
    def whole(self) -> bool:
        """Whether it need not be measured again."""
        return bool(self.ended) and not self.error

    def sides(self) -> list[str]:
        """All that took part beside ours, in their order."""
        found: dict[str, None] = {}
        for one in self.rounds:
            found |= dict.fromkeys(one)
        return [name for name in found if name != OURS]

    def values(self, side: str, value: str) -> list[float]:
        """A value of a side in every round that has it."""
        return [
            one[side].values[value]
            for one in self.rounds
            if side in one and value in one[side].values
        ]

    def ratios(self, side: str, value: str) -> list[float]:
        """Ours to a side's, round by round."""
        return [
            one[OURS].values[value] / one[side].values[value]
            for one in self.rounds
            if side in one and one[side].values.get(value) and value in one[OURS].values
        ]


@dataclass(slots=True)
class Piece:
    """What was measured at a stretch."""

    began: str
    ended: str
    environment: dict[str, str]
    options: dict[str, str]
    disk_before: DiskProbe
    disk_after: DiskProbe | None = None
    rows: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    """A run, in one piece or more."""

    format: int = FORMAT
    pieces: list[Piece] = field(default_factory=list)
    rows: dict[str, Result] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write it in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(path.suffix + ".new")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))
        os.replace(beside, path)


def read(path: Path) -> Run:
    """A run that was written. Raises OSError, and ValueError for what is no run."""
    try:
        run = msgspec.json.decode(path.read_bytes(), type=Run)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is no run of the bench: {error}") from error
    if run.format != FORMAT:
        raise ValueError(f"{path} has format {run.format}, and this bench writes {FORMAT}")
    return run
