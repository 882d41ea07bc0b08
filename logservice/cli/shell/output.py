"""output: one way to print results, for people (tables) and for scripts (JSON).

`-o json` prints one JSON document per result on stdout: the rows and nothing else, with the field
names of the API. Bytes are base64 in a field ``*_base64`` when they are not UTF-8. Everything
besides the result goes to stderr. `-o wide` prints every column of a table, `-o table` those that
people look for (`table.py`).

INV-CLI-1: what a store, a file or a client said reaches a terminal through this file alone, and
through `table.py`, which makes its lines: with everything that a terminal would obey spelled out
(`safe_text`), and never as markup. JSON is exact, because its encoder escapes, and so are records
that go into a file or a pipe.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from logservice.cli.shell import table
from logservice.cli.shell.table import chosen, field_lines, table_lines
from logservice.safe_text import safe_lines, safe_text

CommandT = TypeVar("CommandT", bound=Callable[..., object])
Row = table.Row


def output_option(command: CommandT) -> CommandT:
    """The decorator that adds ``-o table|wide|json``."""
    option = click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(["table", "wide", "json"]),
        default="table",
        show_default=True,
        help="Form of result and error; wide: a table with every column.",
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


def show_rows(
    form: str,
    rows: Sequence[Row],
    title: str = "",
    *,
    main: Sequence[str] = (),
    if_any: Sequence[str] = (),
) -> None:
    """Print a table with the keys of the first row as columns, or a JSON array. `main`: the columns
    of a table that is not wide; `if_any`: those that it has if a row has something there.
    """
    if form == "json":
        say(json.dumps(list(rows)))
        return
    title = safe_text(title)
    if not rows:
        say(f"{title}: none" if title else "none")
        return
    if title:
        say(title)
    columns = chosen(rows, main, if_any) if main and form != "wide" else list(rows[0])
    # They are lines already, and say what they say in bold where that is seen.
    for line in table_lines(rows, columns):
        click.echo(line)


def show_fields(form: str, fields: Row) -> None:
    """Print one result as ``name  value`` lines, or as a JSON object."""
    if form == "json":
        say(json.dumps(dict(fields)))
        return
    for line in field_lines(fields):
        click.echo(line)


def record_fields(data: bytes) -> dict[str, str]:
    """A record's bytes as JSON fields."""
    try:
        return {"record": data.decode()}
    except UnicodeDecodeError:
        return {"record_base64": base64.b64encode(data).decode()}
