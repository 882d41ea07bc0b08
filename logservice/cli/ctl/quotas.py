"""`logctl quota`: what identities may use of each store, while the cluster runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click
from logservice_wire.v1 import hakeeper_pb2

from logservice import bounds
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.shell.output import Row, output_option, show_fields, show_rows
from logservice.hakeeper.commands.quotas import QUOTA_NAMES

CommandT = TypeVar("CommandT", bound=Callable[..., object])

_WORDS = {
    "requests-per-s": "requests_per_s",
    "bytes-per-s": "bytes_per_s",
    "calls": "rpcs_max",
    "streams": "streams_max",
    "connections": "connections_max",
    "address-connections": "address_connections_max",
}
"""The option's name -> the field's."""

_identity = click.argument("identity", required=False, default="")


def _option(word: str, lowest: int, highest: int, what: str) -> Callable[[CommandT], CommandT]:
    numbers = click.IntRange(lowest, highest)
    return click.option(f"--{word}", _WORDS[word], type=numbers, metavar="NUMBER", help=what)


@click.group()
def quota() -> None:
    """Limit what identities use of each store.

    What no quota says is as each store is configured. A change is in force on every store within
    two heartbeats, and from cluster version 2 on. It cuts nothing that is under way.
    """


@quota.command("set")
@_identity
@_option("requests-per-s", 0, bounds.QUOTA_REQUESTS_PER_S_MAX, "Requests per second; 0: no limit.")
@_option(
    "bytes-per-s", 0, bounds.QUOTA_BYTES_PER_S_MAX, "Bytes of both ways per second; 0: no limit."
)
@_option("calls", 1, bounds.QUOTA_COUNT_MAX, "Unary calls at a time.")
@_option("streams", 1, bounds.QUOTA_COUNT_MAX, "Streams at a time.")
@_option("connections", 1, bounds.QUOTA_COUNT_MAX, "Connections.")
@_option(
    "address-connections",
    bounds.QUOTA_ADDRESS_CONNECTIONS_MIN,
    bounds.QUOTA_COUNT_MAX,
    "Connections from one address, of whoever.",
)
@output_option
@pass_session
def set_(session: Session, /, identity: str, form: str, **values: int | None) -> None:
    """Set what IDENTITY may use, or every identity; the rest stays."""
    if all(value is None for value in values.values()):
        raise click.UsageError("say what to set")
    show_fields(form, {"version": _change(session, identity, values, ())})


@quota.command()
@_identity
@click.option(
    "--only", "words", multiple=True, type=click.Choice(list(_WORDS)), help="May be repeated."
)
@output_option
@pass_session
def clear(session: Session, identity: str, words: tuple[str, ...], form: str) -> None:
    """Set nothing any more for IDENTITY, or for every identity."""
    names = tuple(_WORDS[word] for word in words) or QUOTA_NAMES
    show_fields(form, {"version": _change(session, identity, {}, names)})


def _change(
    session: Session, identity: str, values: dict[str, int | None], names: tuple[str, ...]
) -> int:
    return session.run(
        lambda client: client.hakeeper.set_quota(
            identity, **values, clear=names, timeout=session.timeout_s
        )
    )


@quota.command()
@_identity
@output_option
@pass_session
def show(session: Session, identity: str, form: str) -> None:
    """Show what is set, or what holds for IDENTITY.

    The last row is how the store is configured that was asked.
    """
    found = session.run(lambda client: client.hakeeper.access_list(timeout=session.timeout_s))
    if identity:
        show_fields(form, in_force(found, identity))
        return
    rows = [{"whose": one.identity or "every identity", **_values(one)} for one in found.quotas]
    rows.append({"whose": "configured", **_values(found.quotas_configured)})
    text = f"quotas {found.quotas_version}, in force here: {found.quotas_version_here}"
    show_rows(form, rows, text)


def _values(one: hakeeper_pb2.IdentityQuota) -> Row:
    return {
        word.replace("-", "_"): getattr(one, name) if one.HasField(name) else None
        for word, name in _WORDS.items()
    }


def in_force(found: hakeeper_pb2.AccessList, identity: str) -> Row:
    """What holds for the identity, value by value, and who says so."""
    by = {one.identity: _values(one) for one in found.quotas}
    sources = (
        ("its own quota", by.get(identity, {})),
        ("the quota of every identity", by.get("", {})),
        ("the configuration", _values(found.quotas_configured)),
    )
    row: dict[str, object] = {}
    for word in _values(found.quotas_configured):
        named = [(said[word], whose) for whose, said in sources if said.get(word) is not None]
        row[word], row[f"{word}_by"] = named[0] if named else (None, None)
    return row
