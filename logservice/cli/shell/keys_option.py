"""keys_option: --keys-file and --keys-command of the commands that read entries from a disk."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from logservice.sealing_keys import Keys, keys_source


def keys_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the command `keys`: the ring that was named, or None."""

    @click.option(
        "--keys-file",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Keys of encrypted entries, as for [storage].",
    )
    @click.option("--keys-command", metavar="COMMAND", help="A command that prints them.")
    @functools.wraps(command)
    def with_keys(
        *args: Any, keys_file: Path | None, keys_command: str | None, **options: Any
    ) -> Any:
        return command(*args, keys=_keys(keys_file, keys_command), **options)

    return with_keys


def _keys(file: Path | None, command: str | None) -> Keys | None:
    read = keys_source(str(file or ""), shlex.split(command or ""), "")
    return read() if read is not None else None
