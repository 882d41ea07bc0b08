"""`logctl services`: the database's own services, and commands for them."""

from __future__ import annotations

import click
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl import completed_names
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.shell.listing_group import listing_group
from logservice.cli.shell.output import output_option, show_fields, show_rows

_service = click.argument("service", shell_complete=completed_names.services)


@listing_group
def services() -> None:
    """Show the database's services, or order one.

    Without a verb all that are registered are shown.
    """


@services.command("list")
@output_option
@pass_session
def list_services(session: Session, form: str) -> None:
    """Show the registered services, and when each expires."""
    state = session.run(lambda client: client.hakeeper.cluster_state(timeout=session.timeout_s))
    rows = [
        {
            "service": one.service_id,
            "kind": one.kind,
            "address": one.address,
            "work_state": one.work_state,
            "expires_in_s": one.expires_in_ticks / 10,
            "waiting_commands": list(one.waiting),
            "replays": len(one.replayed),
            "not_held": sum(not held.held_lsn for held in one.replayed),
            "labels": dict(one.labels),
            "owner": one.owner,
        }
        for one in state.services
    ]
    main = ("service", "kind", "work_state", "expires_in_s", "replays", "not_held")
    show_rows(form, rows, "services", main=main, if_any=("waiting_commands",))


@services.command()
@_service
@output_option
@pass_session
def drain(session: Session, service: str, form: str) -> None:
    """Tell SERVICE to finish what it has and to take nothing new.

    `logctl services list` shows it as drained once it says so itself. Started again it goes on
    draining.
    """
    _set(session, service, "draining", form)


@services.command()
@_service
@output_option
@pass_session
def undrain(session: Session, service: str, form: str) -> None:
    """Tell SERVICE to work again."""
    _set(session, service, "working", form)


def _set(session: Session, service: str, work_state: str, form: str) -> None:
    session.run(
        lambda client: client.hakeeper.set_service_state(
            service, work_state, timeout=session.timeout_s
        )
    )
    show_fields(form, {"service": service, "work_state": work_state})


@services.command()
@click.argument("service", default="", shell_complete=completed_names.services)
@output_option
@pass_session
def replayed(session: Session, service: str, form: str) -> None:
    """Show what SERVICE has replayed, and what that holds.

    Without SERVICE those of all services are shown.
    """
    state = session.run(lambda client: client.hakeeper.cluster_state(timeout=session.timeout_s))
    if service and service not in {one.service_id for one in state.services}:
        raise click.BadParameter(f"no service is called {service}", param_hint="SERVICE")
    rows = [
        {
            "service": one.service_id,
            "shard": held.shard_id,
            "replayed_lsn": held.lsn,
            "held_from_lsn": held.held_lsn,
            "first_lsn": held.first_lsn,
            "behind_s": held.behind_ticks / 10,
            "state": _standing(held),
            "hold": held.hold,
        }
        for one in state.services
        if service in ("", one.service_id)
        for held in one.replayed
    ]
    main = ("service", "shard", "replayed_lsn", "held_from_lsn", "behind_s", "state")
    show_rows(form, rows, "replayed", main=main)


def _standing(held: hakeeper_pb2.ReplayedHold) -> str:
    if held.gone:
        return "no such shard"
    if held.first_lsn > held.lsn + 1:
        return "records are gone"
    return "held" if 0 < held.held_lsn <= held.lsn + 1 else "not held yet"


@services.command()
@_service
@click.argument("kind")
@click.argument("payload", default="")
@click.option("--request-id", default="", help="The same one again sends no second command.")
@output_option
@pass_session
def order(
    session: Session, service: str, kind: str, payload: str, request_id: str, form: str
) -> None:
    """Send SERVICE a command of that KIND.

    Only the service understands PAYLOAD. The command waits until the service has handled it;
    `logctl services list` shows whether it still does.
    """
    command = session.run(
        lambda client: client.hakeeper.send_service_command(
            service, kind, payload.encode(), request_id=request_id, timeout=session.timeout_s
        )
    )
    show_fields(form, {"service": service, "command": command})
