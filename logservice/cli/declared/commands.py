"""`logctl diff`, `apply`, `export`: a cluster and the file that declares it."""

from __future__ import annotations

import json
import sys
import tomllib
from typing import Any

import click
from logservice_client import LogClient
from logservice_wire.errors import InvalidArgument, VerbRefused
from logservice_wire.regular_file import read_regular

from logservice import bounds
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.declared.applying import Applying
from logservice.cli.declared.declaration import Declaration, parse
from logservice.cli.declared.export import exported
from logservice.cli.declared.plan import Change, Plan, plan
from logservice.cli.declared.present import read
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option, say, show_fields
from logservice.safe_text import safe_text

_SIGNS = {"add": "+", "change": "~", "remove": "-"}

_file = click.argument("file", metavar="FILE", type=click.Path(allow_dash=True, dir_okay=False))
_prune = click.option(
    "--prune",
    is_flag=True,
    help="Take away what the file does not name: roles, denials, quotas, rates. Never a log.",
)


@click.command()
@_file
@_prune
@output_option
@pass_session
def diff(session: Session, file: str, prune: bool, form: str) -> int:
    """Show what `logctl apply FILE` would change.

    FILE declares logs, rights, quotas and settings of the cluster; `-` is the standard input. What
    it does not name stays. Exit code 1 when something is different, 0 when nothing is.
    """
    wanted = _declaration(file)
    _, found = session.run(lambda client: _planned(client, session, wanted, prune=prune))
    if form == "json":
        say(json.dumps(_document(found)))
    else:
        _show(found, err=False)
    return exit_codes.NEGATIVE if found.changes or found.impossible else exit_codes.OK


@click.command()
@_file
@_prune
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@pass_session
def apply(session: Session, file: str, prune: bool, yes: bool, form: str) -> int:
    """Make the cluster what FILE declares.

    It prints what would change, asks, and carries it out step by step; the first refusal ends it.
    Applied again it goes on with what is left. It never deletes a log. `-` is the standard input,
    and goes with --yes. --timeout is for each request of a step.
    """
    if file == "-" and not yes:
        raise click.UsageError("there is nobody to ask while the file is the standard input: --yes")
    wanted = _declaration(file)
    version, found = session.run(lambda client: _planned(client, session, wanted, prune=prune))
    _show(found, err=True)
    if found.impossible:
        raise VerbRefused("nothing was changed", why="; ".join(found.impossible))
    if found.changes and not yes:
        click.confirm(f"Make {_counted(found.changes)}?", abort=True, err=True)
    outcomes: list[str] = []
    try:
        session.run(lambda client: _applied(client, session, found.changes, version, outcomes))
    finally:
        _tell_outcomes(form, found, outcomes)
    return exit_codes.OK


@click.command()
@click.option("--ids", is_flag=True, help="Name the ids of the logs, too, for another cluster.")
@output_option
@pass_session
def export(session: Session, ids: bool, form: str) -> None:
    """Print the file that declares the cluster as it is.

    `logctl diff` finds no difference from it. It takes the role admin over the cluster. With -o
    json the same is an object, for programs; `diff` and `apply` read the file.
    """
    found = session.run(lambda client: read(client, lambda: session.timeout_s, identities=True))
    file = exported(found, ids=ids)
    if form == "json":
        show_fields(form, tomllib.loads(file))
    else:
        say(file)


def _declaration(file: str) -> Declaration:
    """Raises InvalidArgument, TooLarge."""
    if file == "-":
        return parse(sys.stdin.buffer.read(bounds.DECLARED_BYTES_MAX + 1))
    try:
        return parse(read_regular(file, bounds.DECLARED_BYTES_MAX))
    except OSError as error:
        raise InvalidArgument(f"cannot read {file}: {error.strerror}", field="file") from error


async def _planned(
    client: LogClient, session: Session, wanted: Declaration, *, prune: bool
) -> tuple[int, Plan]:
    present = await read(client, lambda: session.timeout_s, identities=wanted.speaks_of_identities)
    return present.cluster_version, plan(wanted, present, prune=prune)


async def _applied(
    client: LogClient,
    session: Session,
    changes: list[Change],
    version: int,
    outcomes: list[str],
) -> None:
    applying = Applying(
        client, session.patience_s, outcomes, lambda line: say(safe_text(line), err=True)
    )
    await applying.run(changes, version)


def _tell_outcomes(form: str, found: Plan, outcomes: list[str]) -> None:
    """Say what was done and what was not, also after an error or an interruption."""
    done, count = len(outcomes), len(found.changes)
    if form == "json":
        say(json.dumps(_document(found, outcomes)))
    elif done < count:
        say(f"{done} of {_counted(found.changes)} made", err=True)
        say(f"not done, or not known: {found.changes[done].title}", err=True)
        for change in found.changes[done + 1 :]:
            say(f"not begun: {change.title}", err=True)
    else:
        say(f"{_counted(found.changes)} made" if count else "nothing to do")


def _counted(changes: list[Change]) -> str:
    return f"{len(changes)} change{'' if len(changes) == 1 else 's'}"


def _show(found: Plan, *, err: bool) -> None:
    for change in found.changes:
        say(f"{_SIGNS[change.verb]} {safe_text(change.title)}", err=err)
        for name, (old, new) in change.fields.items():
            text = _text(new) if change.verb == "add" else f"{_text(old)} -> {_text(new)}"
            say(f"    {name}: {text}", err=err)
    for text in found.impossible:
        say(f"! {safe_text(text)}", err=err)
    for text in found.notes:
        say(f"  note: {safe_text(text)}", err=True)
    if not found.changes and not found.impossible:
        say("no difference", err=err)


def _text(value: object) -> str:
    return safe_text(json.dumps(value, ensure_ascii=False))


def _document(found: Plan, outcomes: list[str] | None = None) -> dict[str, Any]:
    changes = [
        {
            "verb": change.verb,
            "kind": change.kind.value,
            "name": change.name,
            "scope": change.scope or None,
            "shard": change.shard or None,
            "fields": {
                name: {"old": old, "new": new} for name, (old, new) in change.fields.items()
            },
        }
        for change in found.changes
    ]
    if outcomes is not None:
        padded = [*outcomes, *["unfinished", *["not begun"] * len(changes)]]
        changes = [
            {**change, "outcome": outcome} for change, outcome in zip(changes, padded, strict=False)
        ]
    return {"changes": changes, "impossible": found.impossible, "notes": found.notes}
