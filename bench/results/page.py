"""page: the generated part of a document: what stands between two markers is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- bench: from here on written by `python -m bench --markdown` -->"
END: Final = "<!-- bench: to here -->"


def put(path: Path, text: str) -> None:
    """Put a text between the markers of a document; a document without any becomes the text.

    Raises ValueError when one marker is there without the other.
    """
    page = path.read_text("utf-8") if path.exists() else ""
    before, begins, rest = page.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if bool(begins) != bool(ends):
        raise ValueError(f"{path} has one marker of two")
    new = f"{before}{BEGIN}\n\n{text}\n{END}{after}" if begins else text
    path.write_text(new, "utf-8")
