"""completed_names: the names of logs and stores that completion offers for SHARD and STORE.

Theory of operation. The shell calls the program for what may stand next, and the program asks the
cluster, which the options before on the line or the environment name. The person is typing
meanwhile: so it waits for COMPLETION_TIMEOUT_S at most, and what goes wrong gives no names and no
words. Only the verbs need no cluster.

The shell puts what it gets on the command line as it is, and a log may be called anything by
whoever may create one. So a name is offered only if the shell takes it as it stands and `logctl`
takes it for no option.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Iterable

import click
from logservice_client import LogClient
from logservice_wire.errors import LogServiceError

from logservice.bounds import COMPLETION_NAMES_MAX, COMPLETION_TIMEOUT_S
from logservice.cli.ctl.client_session import Session

_LIVING = ("creating", "open", "closed")


def logs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of living logs that begin so; the first COMPLETION_NAMES_MAX by id."""

    async def work(client: LogClient) -> list[str]:
        found = await client.hakeeper.list_shards(
            states=_LIVING,
            name_prefix=incomplete,
            limit=COMPLETION_NAMES_MAX,
            timeout=COMPLETION_TIMEOUT_S,
        )
        return [one.name for one in found]

    return _asked(context, work, incomplete)


def stores(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The stores of the cluster whose names begin so."""

    async def work(client: LogClient) -> list[str]:
        found = await client.hakeeper.cluster_state(stale=True, timeout=COMPLETION_TIMEOUT_S)
        return [one.store_id for one in found.stores]

    return _asked(context, work, incomplete)


def _asked(
    context: click.Context, work: Callable[[LogClient], Awaitable[Iterable[str]]], incomplete: str
) -> list[str]:
    try:
        found = Session.of(context.find_root().params).run(work)
    except (LogServiceError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete) and _plain(name)]


def _plain(name: str) -> bool:
    """Whether the name means itself on a command line. Digits alone are an id there."""
    return shlex.quote(name) == name and not name.startswith("-") and not name.isdecimal()
