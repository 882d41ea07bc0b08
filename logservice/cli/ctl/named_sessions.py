"""`logctl session`: the named sessions of a shard, and letting go of those that no job needs."""

from __future__ import annotations

import time
from collections.abc import Callable

import click
from logservice_client import LogClient
from logservice_wire.errors import VerbRefused
from logservice_wire.v1 import log_pb2

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.shell.duration import duration
from logservice.cli.shell.moment import moment_text
from logservice.cli.shell.output import Row, output_option, show_rows

_MAIN = ("name", "epoch", "appended", "used", "ttl_s")

_shard = shard_argument("shard")


@click.group()
def session() -> None:
    """Show a shard's named sessions, or let some go.

    A job keeps what it has appended under a name, so that it appends nothing twice.
    """


def _chosen(
    found: log_pb2.NamedSession, names: tuple[str, ...], owner: str | None, unused_s: float | None
) -> bool:
    """Whether a session is one of those that the options mean."""
    if names and not any(_matches(found.name, name) for name in names):
        return False
    if owner is not None and found.owner != owner:
        return False
    return unused_s is None or found.used_us / 1e6 <= time.time() - unused_s


def _matches(name: str, wanted: str) -> bool:
    return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted


def _filters(command: Callable[..., None]) -> Callable[..., None]:
    command = click.option("--owner", metavar="IDENTITY", help="Only those of this identity.")(
        command
    )
    return click.option(
        "--unused-for",
        "unused_s",
        type=duration,
        help="Only those that the shard was not asked about for so long, by its append times.",
    )(command)


def _row(found: log_pb2.NamedSession, state: str = "") -> Row:
    state = state or ("lost" if found.lost else "")
    return {
        "name": found.name,
        "owner": found.owner,
        "epoch": None if found.lost else found.epoch,
        "appended": found.appended,
        "used": moment_text(found.used_us) if found.used_us else None,
        "ttl_s": found.ttl_s or None,
        "session": found.session_id,
        "state": "forgotten" if found.forgotten else state,
    }


@session.command("list")
@_shard
@click.argument("names", nargs=-1)
@_filters
@output_option
@pass_session
def list_sessions(
    ctl: Session,
    shard: int,
    names: tuple[str, ...],
    owner: str | None,
    unused_s: float | None,
    form: str,
) -> None:
    """List a shard's named sessions, and whose they are.

    NAMES ending with `*` are the beginnings of names. `appended` counts the blocks of the epoch.
    `used` is the shard's append time then, so of the newest block in it.
    """

    async def work(client: LogClient) -> list[Row]:
        found = await client.shard(shard).named_sessions(timeout=ctl.timeout_s)
        return [_row(one) for one in found if _chosen(one, names, owner, unused_s)]

    show_rows(form, ctl.run(work), main=_MAIN, if_any=("state",))


@session.command("forget")
@_shard
@click.argument("names", nargs=-1, required=True)
@_filters
@click.option(
    "--override",
    is_flag=True,
    help="Also those of other identities; needs the role admin over the shard.",
)
@output_option
@pass_session
def forget_sessions(
    ctl: Session,
    shard: int,
    names: tuple[str, ...],
    owner: str | None,
    unused_s: float | None,
    override: bool,
    form: str,
) -> None:
    """Let NAMES go, to make room for others.

    NAMES ending with `*` are the beginnings of names. Records stay. Forget what no job does again:
    what a forgotten one appended is appended a second time when it is done again later. One that is
    used meanwhile stays. --timeout is for each of them.
    """

    async def work(client: LogClient) -> list[Row]:
        log = client.shard(shard)
        rows = []
        for one in await log.named_sessions(timeout=ctl.timeout_s):
            if one.forgotten or not _chosen(one, names, owner, unused_s):
                continue
            try:
                await log.forget_session(
                    one.session_id,
                    last_used=one.last_used,
                    override=override,
                    timeout=ctl.patience_s,
                )
            except VerbRefused:
                rows.append(_row(one, "in use"))
            else:
                rows.append(_row(one, "forgotten"))
        return rows

    show_rows(form, ctl.run(work), main=_MAIN, if_any=("state",))
