"""store_argument: the STORE of every `logctl` command; completion offers the stores there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from logservice.cli.ctl.completed_names import stores


def store_argument(
    argument: str = "store_id", metavar: str = "STORE", **options: Any
) -> Callable[[Any], Any]:
    """The argument, as the parameter `argument`. `options`: click's."""
    return click.argument(argument, metavar=metavar, shell_complete=stores, **options)
