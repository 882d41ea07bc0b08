"""completion: the option ``--completion SHELL`` of both programs, which prints a script to source.

The script asks the program itself what may come next, which is quick because commands load lazily.
Names of shards and stores come from the cluster (`ctl.completed_names`).

The program is asked while a person types, and what it wrote to stderr would stand in the middle of
the command line. gRPC writes there by itself when TLS fails. So a program that is asked has none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import click
from click.shell_completion import get_completion_class

CommandT = TypeVar("CommandT", bound=Callable[..., object])


def silence_if_asked(program: str) -> None:
    """Send the stderr of this process nowhere if a shell asks `program` what may come next."""
    if _variable(program) not in os.environ:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _variable(program: str) -> str:
    return f"_{program.upper()}_COMPLETE"


def completion_option(program: str) -> Callable[[CommandT], CommandT]:
    """The decorator that adds the option to the group of `program`."""

    def show(context: click.Context, option: click.Parameter, shell: str | None) -> None:
        if shell is None or context.resilient_parsing:
            return
        kind = get_completion_class(shell)
        assert kind is not None  # the choices are the classes there are
        click.echo(kind(context.command, {}, program, _variable(program)).source())
        context.exit()

    return click.option(
        "--completion",
        type=click.Choice(["bash", "zsh", "fish"]),
        is_eager=True,
        expose_value=False,
        callback=show,
        help=f"Print a completion script and exit; in bash: source <({program} --completion bash).",
    )
