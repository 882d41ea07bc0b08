"""Lists every command of `logctl` and `logservice`: its help text, as a terminal of 80 columns
shows it.

docs/commands.md is made from the programs. So a person can read it without a program, and a change
of any help text is seen in a review.

    python -m tools.list_commands            prints the document
    python -m tools.list_commands --write    writes docs/commands.md
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from logservice.cli.logctl import logctl
from logservice.cli.main import logservice
from tools.made_document import print_or_write

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
PROGRAMS = {"logctl": logctl, "logservice": logservice}
COLUMNS = 80

HEADER = """# Commands

Every command of `logctl`, which talks to a cluster, and of `logservice`, which runs stores and
looks at their files. Made from the programs by `make commands`; a test fails when this page is old.
"""


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """`command` and all below it, each with what is typed for it, in the order of the help."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, f"{path} {name}")


def help_of(command: click.Command, path: str) -> str:
    """Its help text."""
    context = click.Context(command, info_name=path, terminal_width=COLUMNS)
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def document() -> str:
    """What docs/commands.md has to say."""
    parts = [HEADER]
    for program, group in PROGRAMS.items():
        for path, command in commands(group, program):
            marks = "##" if path == program else "###"
            parts.append(f"{marks} {path}\n\n```text\n{help_of(command, path)}\n```\n")
    return "\n".join(parts)


def main() -> None:
    """Print or write the document."""
    print_or_write(__doc__, DOCUMENT, document)


if __name__ == "__main__":
    main()
