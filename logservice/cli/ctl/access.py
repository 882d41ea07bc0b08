"""`logctl acl`: grants, denials, and what follows from them; see `logservice.access`."""

from __future__ import annotations

from collections.abc import Iterable

import click
from logservice_client import LogClient
from logservice_client.access_calls import late_stores
from logservice_wire.roles import Role
from logservice_wire.v1 import hakeeper_pb2

from logservice.access import ALL, AccessList, Grant
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.identities import ask, last_uses, tell_errors, title
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.shell.output import Row, output_option, show_fields, show_rows
from logservice.identity import IdentityKind, parse_uri
from logservice.ids import HAKEEPER_SHARD, ShardId

_identity = click.argument("identity")
_scope = click.argument("scope")
_roles = click.argument(
    "roles", nargs=-1, required=True, type=click.Choice([str(role) for role in Role])
)


_denied = click.argument(
    "roles", nargs=-1, required=True, type=click.Choice([*(str(role) for role in Role), ALL])
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
SCOPE     *              every shard, and the cluster itself
          cluster        state, verbs, ids, new shards, this list
          shard/7        one shard
          name/wal       the shard of that name
          name/wal-*     every shard whose name begins so
ROLES     append, read, truncate, hold, admin

A denial wins over every grant, and may be about all identities that begin so:
spiffe://<trust domain>/cluster/<cluster id>/client/<prefix>*. It is of cluster version 2 on.
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


@acl.command()
@_identity
@_scope
@_denied
@_wait
@output_option
@pass_session
def deny(
    session: Session, identity: str, scope: str, roles: tuple[str, ...], wait: bool, form: str
) -> None:
    """Deny IDENTITY the ROLES over SCOPE, whatever is granted.

    IDENTITY may end in a star: all that begin so. ROLES may be `all`. Calls and streams under way
    end as with `revoke`. Identities that a store's configuration names as admins are not denied
    anything there.
    """
    _changed(session, identity, scope, form, wait=wait, denied=roles)


@acl.command()
@_identity
@_scope
@_denied
@_wait
@output_option
@pass_session
def undeny(
    session: Session, identity: str, scope: str, roles: tuple[str, ...], wait: bool, form: str
) -> None:
    """Deny IDENTITY the ROLES over SCOPE no more.

    The rule is the one of that identity and scope, as they were written; `all` ends all of it.
    """
    _changed(session, identity, scope, form, wait=wait, undenied=roles)


@acl.command()
@_identity
@shard_argument("shard", hakeeper=True)
@click.argument("role", type=click.Choice([str(role) for role in Role]))
@output_option
@pass_session
def check(session: Session, identity: str, shard: int, role: str, form: str) -> None:
    """Say whether IDENTITY has ROLE over SHARD, and why.

    SHARD 0 is the cluster. It is decided by the list as HAKeeper has it, and as stores decide.
    Some verbs on a shard are also for who has the role over the cluster.
    """
    named = parse_uri(identity)
    if named is None or named.kind is not IdentityKind.CLIENT:
        # "Not granted" would be true, and sound as if it were about somebody.
        raise click.UsageError(f"{identity} is no identity of a client; see logctl acl --help")

    async def work(client: LogClient) -> tuple[hakeeper_pb2.AccessList, str | None]:
        listed = await client.hakeeper.access_list(timeout=session.timeout_s)
        if shard == HAKEEPER_SHARD:
            return listed, None
        info = await client.hakeeper.shard_info(shard, fresh=True, timeout=session.timeout_s)
        return listed, info.name

    found, name = session.run(work)
    show_fields(form, judged(found, identity, shard, name, role))


def judged(
    found: hakeeper_pb2.AccessList, identity: str, shard: int, name: str | None, role: str
) -> dict[str, object]:
    """Whether the identity has the role there, and why."""
    listed = AccessList(found.version, _rules(found.grants), _rules(found.denials))
    place = ShardId(shard)
    denying = listed.denying(identity, role, place, name)
    granting = listed.granting(identity, role, place, name)
    if identity in found.admins:
        allowed, why, rules = True, "admin by the configuration of the store that was asked", []
    elif denying:
        allowed, why, rules = False, "denied", denying
    elif granting:
        allowed, why, rules = True, "granted", granting
    else:
        allowed, why, rules = False, "not granted", []
    return {
        "allowed": allowed,
        "why": why,
        "rules": [f"{one.identity} {one.scope} {','.join(one.roles)}" for one in rules],
        "version": found.version,
    }


def _rules(rules: Iterable[hakeeper_pb2.AccessGrant]) -> list[Grant]:
    return [Grant(one.identity, one.scope, tuple(one.roles)) for one in rules]


@acl.command("list")
@click.option("--used", is_flag=True, help="Ask every store when the identities last called.")
@output_option
@pass_session
def list_(session: Session, used: bool, form: str) -> None:
    """Print every grant and denial.

    It says which version of the list is in force, and where. `last_use` is of the identity,
    whichever of its grants it used; stores remember since their start (`logctl identities`).
    """
    found = session.run(lambda client: client.hakeeper.access_list(timeout=session.timeout_s))
    rows: list[Row] = [
        {"rule": rule, "identity": one.identity, "scope": one.scope, "roles": list(one.roles)}
        for rule, some in (("grant", found.grants), ("deny", found.denials))
        for one in some
    ]
    text = f"access list {found.version}, in force here: {found.version_here}"
    text += _in_force(found, found.version)
    if used:
        answers = ask(session)
        last = last_uses(answers)
        rows = [{**row, "last_use": last.get(str(row["identity"]))} for row in rows]
        text += f"; {title(answers)}"
        tell_errors(answers)
    show_rows(form, rows, text)


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
    denied: tuple[str, ...] = (),
    undenied: tuple[str, ...] = (),
) -> None:
    async def change(client: LogClient) -> dict[str, object]:
        keeper, timeout_s = client.hakeeper, session.timeout_s
        if denied or undenied:
            version = await keeper.change_denial(
                identity, scope, deny=denied, undeny=undenied, timeout=timeout_s
            )
        else:
            version = await keeper.change_access(
                identity, scope, grant=granted, revoke=revoked, timeout=timeout_s
            )
        if not wait:
            return {"version": version}
        found = await keeper.wait_access(version, timeout=session.timeout_s)
        return {"version": version, "stores": len(found.stores)}

    show_fields(form, session.run(change))
