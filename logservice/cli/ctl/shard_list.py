"""`logctl shards`: the one list of shards."""

from __future__ import annotations

import click
from logservice_wire.errors import LogServiceError
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.label_option import label_option
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.ctl.shard_filter import ShardFilter
from logservice.cli.ctl.truncation_view import show_truncation
from logservice.cli.ctl.without_hakeeper import (
    SHARDS_IF_ANY,
    SHARDS_MAIN,
    remembered,
    show_shards,
    state_of,
    taken,
)
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import Row, output_option, show_rows

_STATES = ("creating", "open", "closed", "deleting")


@click.command()
@shard_argument("shard_id", hakeeper=True, required=False)
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only these.")
@label_option("Only with that label; KEY= for any value.")
@click.option("--prefix", default="", help="Only names that begin so.")
@click.option("--truncation", is_flag=True, help="What holds the space of each replica.")
@click.option("--stuck", is_flag=True, help="With --truncation: only where space does not come.")
@output_option
@pass_session
def shards(
    session: Session,
    shard_id: int | None,
    states: tuple[str, ...],
    labels: dict[str, str],
    prefix: str,
    truncation: bool,
    stuck: bool,
    form: str,
) -> int:
    """List the shards, and where their replicas are.

    With SHARD only that one is listed; `logctl shard show` says more of it. Of several filters all
    must fit.

    --truncation shows instead, for each replica, how far it is truncated, which hold keeps more,
    how many bytes could go, and how the newest visit of its truncation worker ended.

    Exit code 4 when HAKeeper does not answer, or a store with --truncation: what is shown then is
    what the others know. A filter that they cannot answer is refused; nobody but HAKeeper knows
    labels.
    """
    if stuck and not truncation:
        raise click.UsageError("--stuck goes with --truncation")
    wanted = ShardFilter(shard_id, states, labels, prefix)
    if truncation:
        return show_truncation(session, form, wanted, stuck=stuck)
    state = state_of(session)
    if isinstance(state, LogServiceError):
        return show_shards(form, remembered(session, state, form), wanted)
    rows = [_row(found) for found in taken(state, wanted)]
    show_rows(form, rows, "shards", main=SHARDS_MAIN, if_any=SHARDS_IF_ANY)
    return exit_codes.OK


def _row(found: hakeeper_pb2.ShardInfo) -> Row:
    return {
        "shard": found.shard_id,
        "name": found.name,
        "state": found.state or None,
        "leader": found.leader_store or None,
        "term": found.term,
        "replicas": [
            item.store_id if item.role == "voter" else f"{item.store_id} ({item.role})"
            for item in found.replicas
        ],
        "wanted": found.wanted_replicas,
        "running": sum(item.reported for item in found.replicas),
        "first_lsn": max((item.first_lsn for item in found.replicas), default=0),
        "applied_lsn": max((item.applied_lsn for item in found.replicas), default=0),
        "epoch": found.membership_epoch,
        "joint": found.joint,
        "protected": found.policy.protected,
        "labels": dict(found.labels),
    }
