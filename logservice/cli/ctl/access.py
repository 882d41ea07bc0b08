"""`logctl acl grant`, `revoke`, `list`: the access list; see `logservice.access`."""

from __future__ import annotations

import click
from logservice_client import LogClient
from logservice_client.access_calls import late_stores
from logservice_wire.roles import Role
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.shell.output import output_option, show_fields, show_rows

_identity = click.argument("identity")
_scope = click.argument("scope")
_roles = click.argument(
    "roles", nargs=-1, required=True, type=click.Choice([str(role) for role in Role])
)


_wait = click.option(
    "--wait",
    is_flag=True,
    help="Return once no store lets anybody in by an older list. From cluster version 2 on.",
)

_HELP = """\
Say who may do what.

Changes are in force on every store within two heartbeats.

\b
IDENTITY  spiffe://<trust domain>/cluster/<cluster id>/client/<name>
SCOPE     *              every log, and the cluster itself
          cluster        state, verbs, ids, new logs, this list
          shard/7        one log
          name/wal       the log of that name
          name/wal-*     every log whose name begins so
ROLES     append, read, truncate, admin
"""


@click.group(help=_HELP)
def acl() -> None:
    """See `_HELP`."""


@acl.command()
@_identity
@_scope
@_roles
@_wait
@output_option
@pass_session
def grant(
    session: Session, identity: str, scope: str, roles: tuple[str, ...], wait: bool, form: str
) -> None:
    """Give IDENTITY the ROLES over SCOPE."""
    _changed(session, identity, scope, form, wait=wait, granted=roles)


@acl.command()
@_identity
@_scope
@_roles
@_wait
@output_option
@pass_session
def revoke(
    session: Session, identity: str, scope: str, roles: tuple[str, ...], wait: bool, form: str
) -> None:
    """Take the ROLES over SCOPE from IDENTITY.

    What it has over other scopes stays.
    """
    _changed(session, identity, scope, form, wait=wait, revoked=roles)


@acl.command("list")
@output_option
@pass_session
def list_(session: Session, form: str) -> None:
    """Print every grant, and which version of the list is in force."""
    found = session.run(lambda client: client.hakeeper.access_list(timeout=session.timeout_s))
    rows = [
        {"identity": one.identity, "scope": one.scope, "roles": list(one.roles)}
        for one in found.grants
    ]
    text = f"access list {found.version}, in force here: {found.version_here}"
    show_rows(form, rows, f"{text}{_in_force(found, found.version)}")


def _in_force(found: hakeeper_pb2.AccessList, version: int) -> str:
    """On how many stores that version is in force, if stores say so."""
    if not found.stores:
        return ""
    late = late_stores(found, version)
    count = len(found.stores)
    named = f"; not on {', '.join(late)}" if late else ""
    return f", in force on {count - len(late)} of {count} stores{named}"


def _changed(
    session: Session,
    identity: str,
    scope: str,
    form: str,
    *,
    wait: bool,
    granted: tuple[str, ...] = (),
    revoked: tuple[str, ...] = (),
) -> None:
    async def change(client: LogClient) -> dict[str, object]:
        keeper = client.hakeeper
        version = await keeper.change_access(
            identity, scope, grant=granted, revoke=revoked, timeout=session.timeout_s
        )
        if not wait:
            return {"version": version}
        found = await keeper.wait_access(version, timeout=session.timeout_s)
        return {"version": version, "stores": len(found.stores)}

    show_fields(form, session.run(change))
