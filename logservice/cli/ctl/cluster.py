"""`logctl stores`, `transfer`, `repairs`, `ids`: the cluster."""

from __future__ import annotations

from collections.abc import Mapping

import click
from logservice_wire.errors import LogServiceError
from logservice_wire.rpcs import TRANSFER_LEADER
from logservice_wire.v1 import admin_pb2

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.direct_call import call_leader
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.ctl.store_argument import store_argument
from logservice.cli.ctl.without_hakeeper import (
    STORES_IF_ANY,
    STORES_MAIN,
    remembered,
    show_repairs,
    show_stores,
    state_of,
)
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option, say, show_fields, show_rows
from logservice.safe_text import safe_text

_shard = shard_argument("shard_id", hakeeper=True)


def _free_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """What the configuration says beside the zone, which has a column of its own."""
    return {name: labels[name] for name in sorted(labels) if name not in ("region", "zone")}


@click.command("list")
@output_option
@pass_session
def stores(session: Session, form: str) -> int:
    """Show all stores as HAKeeper sees them.

    Exit code 4 when HAKeeper does not answer: what is shown then is what the stores know.
    """
    state = state_of(session)
    if isinstance(state, LogServiceError):
        return show_stores(form, remembered(session, state, form))
    rows = [
        {
            "store": found.store_id,
            "alive": not found.expired,
            "ticks_since_heartbeat": found.ticks_since_heartbeat,
            "host": found.host,
            "zone": found.zone or None,
            "labels": _free_labels(found.labels),
            "client": found.client_address,
            "peer": found.peer_address,
            "mode": "empty" if found.empty else found.mode,
            "mode_reason": found.mode_reason or None,
            "replicas": found.replicas,
            "disk_used_bytes": found.disk_used_bytes,
            "disk_free_bytes": found.disk_free_bytes,
            "directories": len(found.directories),
            "failed_directories": [one.path for one in found.directories if one.failed],
            "drained_directories": [
                f"{one.path} (empty)" if one.empty else one.path
                for one in found.directories
                if one.draining
            ],
            "full_directories": [one.path for one in found.directories if one.full],
        }
        for found in state.stores
    ]
    title = f"cluster {state.cluster_id}: {state.state}"
    show_rows(form, rows, title, main=STORES_MAIN, if_any=STORES_IF_ANY)
    return exit_codes.OK


@click.command()
@_shard
@store_argument(metavar="[STORE]", required=False, default="")
@output_option
@pass_session
def transfer(session: Session, shard_id: int, store_id: str, form: str) -> None:
    """Hand the leadership of a shard to another store.

    Without STORE it is handed to any other that has a replica.

    Leaders are balanced, so a small cluster may hand it back; `logctl shard pin` keeps it there.
    """
    info = session.run(
        lambda client: client.hakeeper.shard_info(shard_id, timeout=session.timeout_s)
    )
    address = info.leader_address or info.client_addresses[0]
    request = admin_pb2.TransferLeaderRequest(shard_id=shard_id, store_id=store_id)
    found = call_leader(address, TRANSFER_LEADER, request, session.timeout_s, session.tls)
    show_fields(form, {"shard": shard_id, "leader": found.leader_store})


@click.command()
@output_option
@pass_session
def repairs(session: Session, form: str) -> int:
    """Show what is repaired, and what needs a person.

    Exit code 1 when there is a flag: a person must look.

    Exit code 4 when HAKeeper does not answer: nothing is repaired then, and what is shown is old.
    """
    state = state_of(session)
    if isinstance(state, LogServiceError):
        return show_repairs(form, remembered(session, state, form))
    rows = [
        {
            "operator": found.operator_id,
            "shard": found.shard_id,
            "kind": found.kind,
            "step": found.step,
            "age_ticks": found.age_ticks,
        }
        for found in state.operators
    ]
    show_rows(form, rows, "repairs")
    for flag in state.flags:
        say(f"flag: {safe_text(flag)}", err=True)
    return exit_codes.NEGATIVE if state.flags else exit_codes.OK


@click.command()
@click.argument("count", type=click.IntRange(min=1), default=1)
@click.option("--key", default="", help="Which counter; each counts on its own.")
@output_option
@pass_session
def ids(session: Session, count: int, key: str, form: str) -> None:
    """Allocate ids that nobody else gets.

    They are COUNT ids, from `first` up to but without `next`.
    """
    found = session.run(
        lambda client: client.hakeeper.allocate_ids(count, key=key, timeout=session.timeout_s)
    )
    show_fields(form, {"first": found.start, "next": found.stop})
