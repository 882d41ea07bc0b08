"""`logctl upgrade`: which cluster version the cluster has, what keeps it there, and raising it.

The cluster version stays while the programs of the stores are replaced, and until it is raised
every program can be taken back (`logservice.versions`). Raising it is the one step without a way
back, so it is a verb of its own, and says what it did.
"""

from __future__ import annotations

import asyncio

import click
from logservice_client import LogClient
from logservice_wire.v1 import hakeeper_pb2

from logservice import versions
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.time_left import now_s
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option, say, show_fields, show_rows
from logservice.safe_text import safe_text

_OLDER = "a store with an older program answered for it, and all need the newer one first"
_ASK_S = 0.5
"""Between two looks: stores say what they use with every heartbeat, once a second."""


@click.group()
def upgrade() -> None:
    """Show the cluster version, or raise it."""


@upgrade.command()
@output_option
@pass_session
def status(session: Session, form: str) -> int:
    """Show the cluster version, and what each store knows.

    Exit code 1 while stores keep the cluster from a version that it could be raised to, or when
    whoever answers for HAKeeper has an older program, which knows nothing of them.
    """
    state = session.run(lambda client: client.hakeeper.cluster_state(timeout=session.timeout_s))
    fields: dict[str, object] = {
        "cluster_version": _present(state),
        "next_version": state.next_version or None,
        "holding_back": list(state.holding_back),
    }
    rows = [
        {
            "store": one.store_id,
            "alive": not one.expired,
            "knows_up_to": max(versions.FIRST, one.highest_version),
            "uses": max(versions.FIRST, one.used_version),
            "holds_back": one.store_id in state.holding_back,
        }
        for one in state.stores
    ]
    if form == "json":
        show_fields(form, {**fields, "stores": rows})
    else:
        show_fields(form, fields)
        show_rows(form, rows, "stores")
    return exit_codes.NEGATIVE if state.holding_back or _older(state) else exit_codes.OK


@upgrade.command("raise")
@click.option(
    "--wait",
    is_flag=True,
    help="Until no older program would start on any live store; for --timeout more.",
)
@output_option
@pass_session
def raise_version(session: Session, wait: bool, form: str) -> int:
    """Raise the cluster version by one.

    There is no way back to an older program. Refused while a store's program does not know the next
    version, or a store with replicas is away. When the cluster has the highest version that its
    stores know, nothing happens.
    """

    async def run(client: LogClient) -> hakeeper_pb2.ClusterState:
        state = await client.hakeeper.cluster_state(timeout=session.timeout_s)
        if state.next_version:
            await client.hakeeper.raise_cluster_version(
                state.next_version, timeout=session.timeout_s
            )
            state = await client.hakeeper.cluster_state(timeout=session.timeout_s)
        ends_s = now_s() + session.patience_s
        while wait and _behind(state) and now_s() < ends_s:
            await asyncio.sleep(_ASK_S)
            state = await client.hakeeper.cluster_state(timeout=session.patience_s)
        return state

    state = session.run(run)
    if _older(state):
        say(f"HAKeeper knows no version above {_present(state)}: {_OLDER}", err=True)
        return exit_codes.NEGATIVE
    behind = _behind(state)
    show_fields(form, {"cluster_version": _present(state), "not_yet": behind})
    if wait and behind:
        names = ", ".join(map(safe_text, behind))
        say(f"an older program would still start on {names}", err=True)
        return exit_codes.NEGATIVE
    return exit_codes.OK


def _present(state: hakeeper_pb2.ClusterState) -> int:
    """A store of release 0.1.0 says nothing of versions."""
    return max(versions.FIRST, state.cluster_version)


def _older(state: hakeeper_pb2.ClusterState) -> bool:
    """Whether a store with an older program answered: it knows less than this program does."""
    return not state.next_version and _present(state) < versions.NEWEST


def _behind(state: hakeeper_pb2.ClusterState) -> list[str]:
    """Live stores whose data directories do not say the cluster's version yet."""
    return [
        one.store_id
        for one in state.stores
        if not one.expired and max(versions.FIRST, one.used_version) < _present(state)
    ]
