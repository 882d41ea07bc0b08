"""completed_names: what completion offers for SHARD, STORE, SERVICE, TN_SHARD and a hold's NAME.

Theory of operation. The shell calls the program for what may stand next, and the program asks the
cluster, which the options before on the line or the environment name. The person is typing
meanwhile: so it waits for COMPLETION_TIMEOUT_S at most, also where one question leads to the next,
and what goes wrong gives no names and no words. Only the verbs need no cluster.

The shell puts what it gets on the command line as it is, and a shard may be called anything by
whoever may create one. So a name is offered only if the shell takes it as it stands and `logctl`
takes it for no option. Digits alone are offered where they are what is meant.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable

import click
from logservice_client import LogClient
from logservice_wire.errors import LogServiceError
from logservice_wire.v1 import hakeeper_pb2

from logservice.bounds import COMPLETION_NAMES_MAX, COMPLETION_TIMEOUT_S
from logservice.cli.ctl.client_session import Session

_LIVING = ("creating", "open", "closed")


def shards(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of living shards that begin so; the first COMPLETION_NAMES_MAX by id."""

    async def work(client: LogClient) -> list[str]:
        found = await client.hakeeper.list_shards(
            states=_LIVING,
            name_prefix=incomplete,
            limit=COMPLETION_NAMES_MAX,
            timeout=COMPLETION_TIMEOUT_S,
        )
        # Digits would be taken for an id.
        return [one.name for one in found if not one.name.isdecimal()]

    return _asked(context, work, incomplete)


def stores(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The stores of the cluster whose names begin so."""

    async def work(client: LogClient) -> list[str]:
        return [one.store_id for one in (await _state(client)).stores]

    return _asked(context, work, incomplete)


def services(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The registered services of the database whose names begin so."""

    async def work(client: LogClient) -> list[str]:
        return [one.service_id for one in (await _state(client)).services]

    return _asked(context, work, incomplete)


def tn_shards(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of TN shards that begin so."""

    async def work(client: LogClient) -> list[str]:
        return [str(one.tn_shard_id) for one in (await _state(client)).tn_shards]

    return _asked(context, work, incomplete)


def holds(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The holds of the shard that stands before on the line, by id or by name."""
    log = context.params.get("shard")

    async def work(client: LogClient) -> list[str]:
        if isinstance(log, str):
            found = await client.hakeeper.resolve_shard(log, timeout=COMPLETION_TIMEOUT_S)
            shard = found.shard_id
        else:
            shard = int(log or 0)
        status = await client.shard(shard).status(stale=True, timeout=COMPLETION_TIMEOUT_S)
        return [one.name for one in status.holds]

    return [] if log is None else _asked(context, work, incomplete)


async def _state(client: LogClient) -> hakeeper_pb2.ClusterState:
    return await client.hakeeper.cluster_state(stale=True, timeout=COMPLETION_TIMEOUT_S)


def _asked(
    context: click.Context, work: Callable[[LogClient], Awaitable[Iterable[str]]], incomplete: str
) -> list[str]:
    async def in_time(client: LogClient) -> Iterable[str]:
        async with asyncio.timeout(COMPLETION_TIMEOUT_S):
            return await work(client)

    try:
        found = Session.of(context.find_root().params).run(in_time)
    except (LogServiceError, OSError):
        return []
    fitting = sorted({name for name in found if name.startswith(incomplete) and _plain(name)})
    return fitting[:COMPLETION_NAMES_MAX]


def _plain(name: str) -> bool:
    """Whether the shell takes the name as it stands, and the program takes it for no option."""
    return shlex.quote(name) == name and not name.startswith("-")
