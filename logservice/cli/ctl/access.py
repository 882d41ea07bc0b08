"""`logctl acl grant`, `revoke`, `list`: the access list; see `logservice.access`."""

from __future__ import annotations

import click
from logservice_client import LogClient
from logservice_wire.roles import Role

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.shell.output import output_option, show_fields, show_rows

_identity = click.argument("identity")
_scope = click.argument("scope")
_roles = click.argument(
    "roles", nargs=-1, required=True, type=click.Choice([str(role) for role in Role])
)


_HELP = """\
Who may do what. Changes are in force on every store within two heartbeats.

\b
IDENTITY  spiffe://<trust domain>/cluster/<cluster id>/client/<name>
SCOPE     *              every shard, and the cluster itself
          cluster        state, ids, new shards, this list
          shard/7        one shard
          name/wal       the shard of that name
          name/wal-*     every shard whose name begins so
ROLES     append, read, truncate, admin
"""


@click.group(help=_HELP)
def acl() -> None:
    """See `_HELP`."""


@acl.command()
@_identity
@_scope
@_roles
@output_option
@pass_session
def grant(session: Session, identity: str, scope: str, roles: tuple[str, ...], form: str) -> None:
    """Give IDENTITY the ROLES over SCOPE."""
    _changed(session, identity, scope, roles, (), form)


@acl.command()
@_identity
@_scope
@_roles
@output_option
@pass_session
def revoke(session: Session, identity: str, scope: str, roles: tuple[str, ...], form: str) -> None:
    """Take the ROLES over SCOPE from IDENTITY; what it has over other scopes stays."""
    _changed(session, identity, scope, (), roles, form)


@acl.command("list")
@output_option
@pass_session
def list_(session: Session, form: str) -> None:
    """Every grant, and the version that is in force on the store that answered."""
    found = session.run(lambda client: client.hakeeper.access_list(timeout=session.timeout_s))
    rows = [
        {"identity": one.identity, "scope": one.scope, "roles": list(one.roles)}
        for one in found.grants
    ]
    show_rows(form, rows, f"access list {found.version}, in force here: {found.version_here}")


def _changed(
    session: Session,
    identity: str,
    scope: str,
    granted: tuple[str, ...],
    revoked: tuple[str, ...],
    form: str,
) -> None:
    async def change(client: LogClient) -> int:
        return await client.hakeeper.change_access(
            identity, scope, grant=granted, revoke=revoked, timeout=session.timeout_s
        )

    show_fields(form, {"version": session.run(change)})
