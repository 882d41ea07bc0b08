"""completion: the option ``--completion SHELL`` of both programs, which prints a script to source.

The script asks the program itself what may come next, which is quick because commands load lazily.
Names of logs and stores come from the cluster (`ctl.completed_names`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click
from click.shell_completion import get_completion_class

CommandT = TypeVar("CommandT", bound=Callable[..., object])


def completion_option(program: str) -> Callable[[CommandT], CommandT]:
    """The decorator that adds the option to the group of `program`."""

    def show(context: click.Context, option: click.Parameter, shell: str | None) -> None:
        if shell is None or context.resilient_parsing:
            return
        kind = get_completion_class(shell)
        assert kind is not None  # the choices are the classes there are
        variable = f"_{program.upper()}_COMPLETE"
        click.echo(kind(context.command, {}, program, variable).source())
        context.exit()

    return click.option(
        "--completion",
        type=click.Choice(["bash", "zsh", "fish"]),
        is_eager=True,
        expose_value=False,
        callback=show,
        help=f"Print a completion script and exit; in bash: source <({program} --completion bash).",
    )
