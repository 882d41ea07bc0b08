"""`logctl operators`: what HAKeeper is doing, how far it is, and an end to it."""

from __future__ import annotations

import click

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.shell.listing_group import listing_group
from logservice.cli.shell.output import output_option, show_fields, show_rows


@listing_group
def operators() -> None:
    """Show what HAKeeper is doing, or end it.

    Without a verb all operators under way are shown.
    """


@operators.command("list")
@output_option
@pass_session
def list_operators(session: Session, form: str) -> None:
    """Show operators under way, and how much is left."""
    state = session.run(lambda client: client.hakeeper.cluster_state(timeout=session.timeout_s))
    rows = [
        {
            "operator": one.operator_id,
            "shard": one.shard_id,
            "kind": one.kind,
            "cause": one.cause,
            "from": one.from_store or None,
            "to": one.store_id or None,
            "replica": one.replica_id,
            "entries_to_go": one.entries_to_go if one.entries_to_go >= 0 else None,
            "step": one.step,
            "age_ticks": one.age_ticks,
            "wish": one.wish_id or None,
            "error": one.error,
        }
        for one in state.operators
    ]
    main = ("operator", "shard", "kind", "from", "to", "step", "entries_to_go", "age_ticks")
    show_rows(form, rows, "operators", main=main, if_any=("error",))


@operators.command()
@click.argument("operator_id", metavar="OPERATOR", type=click.IntRange(min=1))
@output_option
@pass_session
def cancel(session: Session, operator_id: int, form: str) -> None:
    """Give OPERATOR up, and the wish that it is for.

    What is not done yet is taken back. A repair begins again later, on another store.
    """
    session.run(
        lambda client: client.hakeeper.cancel_operator(operator_id, timeout=session.timeout_s)
    )
    show_fields(form, {"operator": operator_id, "cancelled": True})
