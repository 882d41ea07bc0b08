"""table: rows as lines for a person, in the width that there is.

Theory of operation. The width is that of COLUMNS, else of the terminal, else there is none: then
(in a pipe, in a file) every line is as long as it has to be. Nothing is ever cut. Where a table is
wider than the screen, its columns of words get narrower, down to `_WORDS_MIN`, and cells go on in
the next line. Where that does not suffice, each row becomes a block of lines ``name  value``.

A command with many columns names those that people look for; the others are for ``-o wide``. What
is rarely there and always important, such as a failed directory, is shown if a row has it.

Every cell is made safe for a terminal here (INV-CLI-1).
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

from logservice.cli.shell.units import figure, heading
from logservice.safe_text import safe_text

Row = Mapping[str, object]

_GAP: Final = 2
_WORDS_MIN: Final = 14
"""How narrow a column of words may get: a host's name or a moment still takes two lines at most."""


def width() -> int:
    """How many columns there are; 0: no end."""
    return shutil.get_terminal_size((0, 0)).columns


def chosen(rows: Sequence[Row], main: Sequence[str], if_any: Sequence[str]) -> list[str]:
    """The columns of a table that is not wide."""
    return [
        *(name for name in main if name in rows[0]),
        *(name for name in if_any if any(row.get(name) for row in rows)),
    ]


def table_lines(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """The rows, of which there is one at least, as lines of a table or as blocks."""
    heads = [safe_text(heading(name)) for name in columns]
    cells = [[cell(name, row.get(name)) for name in columns] for row in rows]
    numeric = [_numeric([row.get(name) for row in rows]) for name in columns]
    widths = _widths(heads, cells, numeric)
    if widths is None:
        lines: list[str] = []
        for row in rows:
            lines += [*field_lines({name: row.get(name) for name in columns}), ""]
        return lines[:-1]
    return _drawn(heads, cells, numeric, widths)


def field_lines(fields: Row) -> list[str]:
    """The fields as lines ``name  value``; a long value goes on under its beginning."""
    names = [safe_text(heading(name)) for name in fields]
    begin = max(map(len, names), default=0) + _GAP
    room = width() - begin
    lines: list[str] = []
    for name, (field, value) in zip(names, fields.items(), strict=True):
        text = cell(field, value)
        parts = [text]
        if room >= _WORDS_MIN:
            parts = textwrap.wrap(text, room, break_on_hyphens=False) or [text]
        lines.append(f"{name:<{begin}}{parts[0]}")
        lines += [" " * begin + part for part in parts[1:]]
    return lines


def cell(field: str, value: object) -> str:
    """One value, for people."""
    return safe_text(_text(field, value))


def _text(field: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return figure(field, value)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_text(field, item)}" for name, item in value.items()) or "-"
    return "-" if value is None or value == "" else str(value)


def _numeric(column: Sequence[object]) -> bool:
    """Whether it has numbers, and beside them nothing."""
    found = [value for value in column if value is not None]
    return bool(found) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in found
    )


def _widths(
    heads: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> list[int] | None:
    """How wide each column is; None: there is no room for a table."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width()
    if not width():
        return widths
    while excess > 0:
        words = [(wide, at) for at, wide in enumerate(widths) if not numeric[at]]
        wide, at = max(words, default=(0, 0))
        if wide <= _WORDS_MIN:
            return None
        widths[at] -= 1
        excess -= 1
    return widths


def _drawn(
    heads: Sequence[str],
    cells: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    widths: Sequence[int],
) -> list[str]:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for head, right, wide in zip(heads, numeric, widths, strict=True):
        # It is a `Text` because a string would be read as markup, which can draw links and colours.
        table.add_column(
            Text(head), justify="right" if right else "left", overflow="fold", width=wide
        )
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console(width=sum(widths) + _GAP * len(widths), highlight=False)
    with console.capture() as drawn:
        console.print(table)
    return [line.rstrip() for line in drawn.get().splitlines()]
