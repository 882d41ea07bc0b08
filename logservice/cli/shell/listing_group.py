"""listing_group: a group of commands that lists what it is about when no command is named.

``logctl stores`` is ``logctl stores list``, with the same options. The group's text is its help.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option


def listing_group(described: Callable[[], None]) -> click.Group:
    """The decorator that makes a group of a function without parameters, whose text is the help.
    Its command "list" has to take the form of the output and nothing else that is required.
    """

    @click.pass_context
    def listed(context: click.Context, form: str) -> int:
        if context.invoked_subcommand is not None:
            return exit_codes.OK
        group = context.command
        assert isinstance(group, click.Group)
        code: Any = context.invoke(group.commands["list"], form=form)
        return code if isinstance(code, int) else exit_codes.OK

    made: click.Group = click.group(
        described.__name__, invoke_without_command=True, help=described.__doc__
    )(output_option(listed))
    return made
