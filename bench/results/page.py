"""page: the generated parts of a document: what stands between two markers is replaced.

There are two. The table, and above it the short one, whose rows are taken out of the table's text:
so the two cannot differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- bench: from here on written by `python -m bench --markdown` -->"
END: Final = "<!-- bench: to here -->"
SHORT_BEGIN: Final = "<!-- bench, in short: taken from the table below -->"
SHORT_END: Final = "<!-- bench, in short: to here -->"

SHORT: Final = (
    ("1 caller, 256 B", "etcd 3.6"),
    ("64 callers in one client, 256 B", "etcd 3.6"),
    ("1000 callers, 16 B, one shard", "Dragonboat v4, pebble"),
    ("64 connections, unary, 256 B", "etcd 3.6"),
    ("reads in blocks, one client", ""),
    ("leader killed, next acked append", ""),
)
"""The rows of the short table: a workload and the beginning of the peer's name."""

_SHORT_HEADER: Final = ("workload", "unit", "ours", "beside it", "its", "ours to it")
_NAME, _UNIT, _OURS, _PEER, _ITS, _RATIO = 0, 1, 2, 4, 5, 7
"""Columns of the table."""


def put(path: Path, text: str) -> None:
    """Put a text between the markers of a document; a document without any becomes the text.

    Raises ValueError when one marker is there without the other.
    """
    page = path.read_text("utf-8") if path.exists() else ""
    page = _between(page, path, SHORT_BEGIN, SHORT_END, short(text))
    path.write_text(_between(page, path, BEGIN, END, text + "\n") or text, "utf-8")


def short(text: str) -> str:
    """The rows of `SHORT` that the table in a text has, with medians alone."""
    out = ["| " + " | ".join(_SHORT_HEADER) + " |", "|" + "---|" * len(_SHORT_HEADER)]
    wanted = dict(SHORT)
    name, ours = "", ["", ""]
    for line in text.splitlines():
        if not line.startswith("| "):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[_NAME]:
            name, ours = cells[_NAME], [cells[_UNIT], _median(cells[_OURS])]
        if name in wanted and cells[_PEER].startswith(wanted[name]):
            beside = [cells[_PEER], _median(cells[_ITS]), _median(cells[_RATIO])]
            out.append("| " + " | ".join([name, *ours, *beside]) + " |")
            del wanted[name]
    return "\n".join(out) + "\n"


def _median(cell: str) -> str:
    """A cell without its range."""
    return cell.partition(" (")[0]


def _between(page: str, path: Path, begin: str, end: str, text: str) -> str:
    before, begins, rest = page.partition(begin)
    _, ends, after = rest.partition(end)
    if bool(begins) != bool(ends):
        raise ValueError(f"{path} has one marker of two")
    return f"{before}{begin}\n\n{text}{end}{after}" if begins else page
