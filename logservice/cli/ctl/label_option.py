"""label_option: the ``--label key=value`` of the commands that set labels, or look for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def label_option(text: str) -> Callable[[Any], Any]:
    """The repeatable option, as the parameter `labels`, which is a dict. `text`: its help."""
    return click.option(
        "--label", "labels", multiple=True, callback=_parsed, metavar="KEY=VALUE", help=text
    )


def _parsed(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in given:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"expected key=value, not {word!r}", context, option)
        found[key] = value
    return found
