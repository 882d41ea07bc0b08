"""LazyGroup: a click group that imports a subcommand only when it is used.

gRPC, rich tables and the store take tenths of a second to import. `--help` and shell completion
should not wait for what they do not run. So the group knows the help line of each command itself; a
test compares it with the first sentence of the command.

Commands stand in sections, because a person looks for a task and not for a letter.

What is no command is looked for among the names, and in the groups, in full: who types `logctl
drain` means `logctl stores drain`. Only for that everything is imported.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping

import click

from logservice.cli.shell.examples import attach

Section = Mapping[str, tuple[str, str]]
"""By command name: the ``module:attribute`` of the command, and its help line."""


class LazyGroup(click.Group):
    """A group with lazy commands, by the title of the section in which the help shows them."""

    def __init__(self, *args: object, sections: Mapping[str, Section], **kwargs: object) -> None:
        """`args` and `kwargs` are click's."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.sections = sections
        self._lazy = {name: row for rows in sections.values() for name, row in rows.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which they were given."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        attach(command, f"{self.name} {cmd_name}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for what is none, say what was probably meant."""
        name = args[0]
        if name in self._lazy or ctx.resilient_parsing or name.startswith("-"):
            return super().resolve_command(ctx, args)
        meant = self._in_groups(ctx, name) or difflib.get_close_matches(name, self._lazy)
        said = ", or ".join(f"`{ctx.info_name} {one}`" for one in meant)
        text = f"Did you mean {said}?" if said else f"See `{ctx.info_name} --help`."
        raise click.UsageError(f"No such command {name!r}. {text}", ctx)

    def _in_groups(self, ctx: click.Context, name: str) -> list[str]:
        groups = ((one, self.get_command(ctx, one)) for one in self._lazy)
        return [
            f"{one} {name}"
            for one, group in groups
            if isinstance(group, click.Group) and name in group.list_commands(ctx)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help lines without importing anything. All sections have the same columns."""
        widest = max(map(len, self._lazy))
        for title, rows in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), line) for name, (_, line) in rows.items()])
