"""shard_argument: the SHARD of every `logctl` command, by id or by name.

Theory of operation. Digits are an id. Anything else is the name of a shard, and is asked for before
the command begins: so a command works on one id, whoever renames the shard meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from logservice.cli.ctl.client_session import Session
from logservice.cli.ctl.completed_names import shards


def shard_argument(
    argument: str, *, hakeeper: bool = False, required: bool = True
) -> Callable[[Any], Any]:
    """The argument SHARD, as the parameter `argument`. `hakeeper`: shard 0 is one, too. Without one
    that is not `required` it is None.
    """
    lowest = 0 if hakeeper else 1

    def resolved(
        context: click.Context, parameter: click.Parameter, text: str | None
    ) -> int | str | None:
        if text is None:
            return None
        if text.isdecimal():
            if int(text) < lowest:
                raise click.BadParameter(f"shards are numbered from {lowest}", context, parameter)
            return int(text)
        if context.resilient_parsing:
            return text  # completion asks nobody about the words before
        session = context.find_object(Session)
        assert session is not None  # the group of all commands makes it
        found = session.run(
            lambda client: client.hakeeper.resolve_shard(text, timeout=session.timeout_s)
        )
        return found.shard_id

    return click.argument(
        argument,
        metavar="SHARD" if required else "[SHARD]",
        required=required,
        callback=resolved,
        shell_complete=shards,
    )
