"""LazyGroup: a click group that imports a subcommand only when it is used.

gRPC, rich tables and the store take tenths of a second to import. `--help` and shell completion
should not wait for what they do not run.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

from logservice.cli.shell.examples import attach


class LazyGroup(click.Group):
    """A group with lazy commands. `lazy` has, by command name, the ``module:attribute`` of the
    command and its help line.
    """

    def __init__(
        self, *args: object, lazy: Mapping[str, tuple[str, str]], **kwargs: object
    ) -> None:
        """`args` and `kwargs` are click's."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which they were given."""
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command when it is one of the lazy ones."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        attach(command, f"{self.name} {cmd_name}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help lines without importing anything."""
        rows = [(name, help_line) for name, (_, help_line) in self._lazy.items()]
        for name in super().list_commands(ctx):
            command = super().get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str()))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
