"""config_option: the option that names a process's configuration file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., object])


def config_option(help_text: str) -> Callable[[CommandT], CommandT]:
    """`-c`, `--config`: a file that has to be named; the command gets it as `config_path`."""
    return click.option(
        "-c",
        "--config",
        "config_path",
        required=True,
        type=click.Path(path_type=Path, dir_okay=False),
        help=help_text,
    )
