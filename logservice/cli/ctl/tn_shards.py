"""`logctl tn`: TN shards, units of the database's work on a shard."""

from __future__ import annotations

import click

from logservice.cli.ctl import completed_names
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.shell.listing_group import listing_group
from logservice.cli.shell.output import output_option, show_fields, show_rows


@listing_group
def tn() -> None:
    """Show TN shards, create or delete one.

    A TN shard is a unit of the database's work on one shard. One service of the kind "tn" serves it
    at a time; when that falls silent or drains, HAKeeper gives it to another one. Without a verb
    all are shown.
    """


@tn.command("list")
@output_option
@pass_session
def list_tn_shards(session: Session, form: str) -> None:
    """Show the TN shards, and which service has each.

    It is "given" to a service that was told and has not begun, "served" once the service says so,
    "leaving" one that shall end it, and "nobody" has it while no service takes it.
    """
    state = session.run(lambda client: client.hakeeper.cluster_state(timeout=session.timeout_s))
    rows = [
        {
            "tn_shard": one.tn_shard_id,
            "shard": one.shard_id,
            "service": one.service_id,
            "replica": one.replica,
            "standing": one.standing,
            "for_s": one.standing_ticks / 10,
            "identity": one.identity,
        }
        for one in state.tn_shards
    ]
    main = ("tn_shard", "shard", "service", "standing", "for_s", "replica")
    show_rows(form, rows, "tn shards", main=main, if_any=("identity",))


@tn.command()
@shard_argument("shard_id")
@click.option("--identity", default="", help="Give it only to services of this identity.")
@output_option
@pass_session
def create(session: Session, shard_id: int, identity: str, form: str) -> None:
    """Create the TN shard of SHARD.

    A shard has at most one: created again, it is the same one.
    """
    made = session.run(
        lambda client: client.hakeeper.create_tn_shard(
            shard_id, identity=identity, timeout=session.timeout_s
        )
    )
    show_fields(form, {"tn_shard": made, "shard": shard_id})


@tn.command()
@click.argument("tn_shard", type=int, shell_complete=completed_names.tn_shards)
@output_option
@pass_session
def delete(session: Session, tn_shard: int, form: str) -> None:
    """Delete TN_SHARD; the shard stays.

    The service that has it ends it with its next heartbeat.
    """
    session.run(lambda client: client.hakeeper.delete_tn_shard(tn_shard, timeout=session.timeout_s))
    show_fields(form, {"tn_shard": tn_shard})
