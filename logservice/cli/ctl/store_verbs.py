"""`logctl stores`: the stores, and what people wish of them by name.

`hakeeper.wishes` says when a wish is refused, and what `--force` changes.
"""

from __future__ import annotations

import click
from logservice_client import LogClient
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.cluster import stores as list_stores
from logservice.cli.ctl.progress import watch
from logservice.cli.ctl.store_argument import store_argument
from logservice.cli.shell import exit_codes
from logservice.cli.shell.duration import duration
from logservice.cli.shell.listing_group import listing_group
from logservice.cli.shell.output import output_option, show_fields, show_rows

_store = store_argument()
_reason = click.option("--reason", default="", help="Why; it is shown with the wish.")
_force = click.option("--force", is_flag=True, help="Do it although it is refused; it is audited.")
_wait = click.option(
    "--wait",
    "wait_s",
    type=duration,
    default=0.0,
    help="Wait so long at most, and show how far it is.",
)


@listing_group
def stores() -> None:
    """Show all stores; drain, protect or forget one.

    Without a verb all stores are shown.
    """


stores.add_command(list_stores, "list")


@stores.command()
@_store
@_reason
@_force
@_wait
@output_option
@pass_session
def drain(
    session: Session, store_id: str, reason: str, force: bool, wait_s: float, form: str
) -> None:
    """Let every leader and replica leave STORE.

    No new ones are brought there, until it is undrained. --wait ends when the store is empty; how
    far it is goes to stderr.
    """

    async def work(client: LogClient) -> None:
        await client.hakeeper.set_store_mode(
            store_id, "draining", reason=reason, force=force, timeout=session.timeout_s
        )
        if wait_s:
            await watch(client, lambda state: _drained(state, store_id), wait_s)

    session.run(work)
    show_fields(form, {"store": store_id, "mode": "empty" if wait_s else "draining"})


def _drained(state: hakeeper_pb2.ClusterState, store_id: str) -> tuple[bool, str]:
    for store in state.stores:
        if store.store_id == store_id:
            left = f"{store.members_left} replicas and {store.leaders_left} leaders are left"
            also = f", {store.leftovers} are being removed" if store.leftovers else ""
            flags = [flag for flag in state.flags if store_id in flag]
            return store.empty, "; ".join([f"{store_id}: {left}{also}", *flags])
    return True, f"{store_id} was forgotten"


def _mode(name: str, mode: str, text: str) -> None:
    """Add a verb that sets a mode and is done with that."""

    @stores.command(name, help=text)
    @_store
    @_reason
    @_force
    @output_option
    @pass_session
    def verb(session: Session, store_id: str, reason: str, force: bool, form: str) -> None:
        session.run(
            lambda client: client.hakeeper.set_store_mode(
                store_id, mode, reason=reason, force=force, timeout=session.timeout_s
            )
        )
        show_fields(form, {"store": store_id, "mode": mode})


_mode("undrain", "open", "Use STORE again; what has not left yet stays.")
_mode("read-only", "read-only", "Bring no new replicas to STORE; it keeps what it has.")
_mode("read-write", "open", "Bring new replicas to STORE again.")


@stores.command()
@_store
@click.option("--lost", is_flag=True, help="It has replicas, and will never come back.")
@_force
@output_option
@pass_session
def forget(session: Session, store_id: str, lost: bool, force: bool, form: str) -> None:
    """End the membership of STORE, which is empty, or lost for good.

    Its data directories never belong to the cluster again, whatever their store is called. The same
    name with an empty disk is a new store.
    """
    session.run(
        lambda client: client.hakeeper.forget_store(
            store_id, lost=lost, force=force, timeout=session.timeout_s
        )
    )
    show_fields(form, {"store": store_id, "forgotten": True})


@stores.command()
@store_argument("store_ids", "STORE...", nargs=-1, required=True)
@output_option
@pass_session
def impact(session: Session, store_ids: tuple[str, ...], form: str) -> int:
    """Show what it would cost if STOREs were away for good.

    They are away together. Nothing is changed. Exit code 1 when it would cost something.
    """
    found = session.run(
        lambda client: client.hakeeper.check_impact(store_ids, timeout=session.timeout_s)
    )
    if form != "json":
        show_fields(
            form,
            {
                "stores": list(store_ids),
                "shards": found.shards,
                "replicas": found.replicas,
                "leaders": found.leaders,
            },
        )
    rows = [
        {"kind": one.kind, "shard": one.shard_id if one.shard_id >= 0 else None, "what": one.text}
        for one in found.findings
    ]
    show_rows(form, rows, "impact")
    return exit_codes.NEGATIVE if rows else exit_codes.OK
