"""output: one way to print results, for people (tables) and for scripts (JSON).

`-o json` prints one JSON document per result on stdout: the rows and nothing else, with the field
names of the API. Bytes are base64 in a field ``*_base64`` when they are not UTF-8. Everything
besides the result goes to stderr.

INV-CLI-1: what a store, a file or a client said reaches a terminal through this file alone, with
everything that a terminal would obey spelled out (`safe_text`), and never as markup. JSON is exact,
because its encoder escapes, and so are records that go into a file or a pipe.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import click

from logservice.safe_text import safe_lines, safe_text

CommandT = TypeVar("CommandT", bound=Callable[..., object])
Row = Mapping[str, object]


def output_option(command: CommandT) -> CommandT:
    """The decorator that adds ``-o table|json``."""
    option = click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Form of result and error.",
    )
    return option(command)


def say(text: str = "", *, err: bool = False) -> None:
    """Print lines for a person, or a JSON document."""
    click.echo(safe_lines(text), err=err)


def say_in_colour(text: str, colour: str) -> None:
    """Print the beginning of a line, bold and in colour."""
    click.secho(safe_text(text), fg=colour, bold=True, nl=False)


def record_line(lsn: int, record: bytes, *, raw: bool, form: str, terminal: bool) -> bytes:
    """One record as a line without its end. `raw`: nothing but its bytes, also on a terminal."""
    if form == "json":
        return json.dumps({"lsn": lsn, **record_fields(record)}).encode()
    if raw:
        return record
    if terminal:
        record = safe_text(record.decode(errors="backslashreplace")).encode()
    return b"%d\t%s" % (lsn, record)


def show_rows(form: str, rows: Sequence[Row], title: str = "") -> None:
    """Print a table with the keys of the first row as columns, or a JSON array."""
    if form == "json":
        say(json.dumps(list(rows)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    title = safe_text(title)
    # It is a `Text` because a string would be read as markup, which can draw links and colours.
    table = Table(title=Text(title) if title else None, title_justify="left")
    columns = list(rows[0]) if rows else []
    for column in columns:
        numeric = all(isinstance(row[column], int | float) for row in rows)
        table.add_column(
            Text(safe_text(column.replace("_", " "))), justify="right" if numeric else "left"
        )
    for row in rows:
        table.add_row(*(Text(safe_text(_cell(row[column]))) for column in columns))
    # People read tables from a pipe through a pager, so they are not cut at 80 columns.
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    if rows:
        console.print(table)
    else:
        console.print(Text(f"{title}: none" if title else "none"))


def show_fields(form: str, fields: Row) -> None:
    """Print one result as ``name  value`` lines, or as a JSON object."""
    if form == "json":
        say(json.dumps(dict(fields)))
        return
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        say(f"{name.replace('_', ' '):<{width}}  {safe_text(_cell(value))}")


def record_fields(data: bytes) -> dict[str, str]:
    """A record's bytes as JSON fields."""
    try:
        return {"record": data.decode()}
    except UnicodeDecodeError:
        return {"record_base64": base64.b64encode(data).decode()}


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={item}" for name, item in value.items()) or "-"
    return str(value)
