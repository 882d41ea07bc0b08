"""`logctl identities`: who has called the stores, and who was denied what.

Theory of operation. Each store remembers for itself, in memory (`server.edge.identity_book`). So
every store is asked, and what they say of one identity is added up. A store that does not answer is
named, because what it knows is missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import click
from logservice_wire.errors import LogServiceError
from logservice_wire.rpcs import LIST_IDENTITIES
from logservice_wire.v1 import admin_pb2, hakeeper_pb2

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.direct_call import call_store
from logservice.cli.ctl.outside_view import addresses_of
from logservice.cli.ctl.time_left import left_s, now_s
from logservice.cli.shell.duration import duration
from logservice.cli.shell.moment import moment_text
from logservice.cli.shell.output import Row, output_option, say, show_rows

_AT_ONCE = 16

_STATE_SHARE = 0.4
"""The share of the time for the question where the stores are."""

_MAIN = ("identity", "last_use", "calls", "streams", "busy", "denials")

NOBODY = "(no identity)"
"""How callers without a certificate that counts are called."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one store says. `error`: why it does not."""

    store: str
    rows: Sequence[admin_pb2.SeenIdentity] = ()
    since_us: int = 0
    forgotten: int = 0
    error: str = ""


Group = list[tuple[str, admin_pb2.SeenIdentity]]
"""What stores say of one identity, with the stores' names."""


@click.command()
@click.argument("identity", required=False)
@click.option("--denied", is_flag=True, help="Only those that were denied something.")
@click.option(
    "--unused-for", "unused_s", type=duration, help="Only those that did not call for so long."
)
@click.option("--each-store", is_flag=True, help="A row for each store, not added up.")
@output_option
@pass_session
def identities(
    session: Session,
    identity: str | None,
    denied: bool,
    unused_s: float | None,
    each_store: bool,
    form: str,
) -> None:
    """Show who has called the stores, and who was denied what.

    Each store remembers since its start, and the newest few thousand; the title says since when,
    and how many were forgotten. `busy` counts calls over a quota. It needs the role admin over the
    cluster.
    """
    answers = ask(session, identity)
    groups: dict[tuple[str, str], Group] = {}
    for one in answers:
        for row in one.rows:
            key = (row.identity, one.store if each_store else "")
            groups.setdefault(key, []).append((one.store, row))
    chosen = [
        group
        for _, group in sorted(groups.items())
        if (not denied or any(row.denials for _, row in group))
        and (unused_s is None or last_us(group) <= (time.time() - unused_s) * 1e6)
    ]
    rows = [merged(group) for group in chosen]
    main = [*(("store",) if each_store else ()), *_MAIN]
    show_rows(form, rows, title(answers), main=main, if_any=("denied_what", "denied_why"))
    tell_errors(answers)


def ask(session: Session, identity: str | None = None) -> list[Answer]:
    """What every store says, of that identity alone or of all. When HAKeeper is silent the stores
    of the endpoints are asked. Raises what else its answer raises, and InvalidArgument.
    """
    addresses = addresses_of(session.endpoints)
    try:
        state: hakeeper_pb2.ClusterState = session.run(
            lambda client: client.hakeeper.cluster_state(
                stale=True, timeout=session.timeout_s * _STATE_SHARE
            )
        )
    except LogServiceError as error:
        if not error.retryable:
            raise
        stores = {address: address for address in addresses}
    else:
        stores = {one.store_id: one.client_address for one in state.stores if one.client_address}
    each_s = session.timeout_s / math.ceil(len(stores) / _AT_ONCE)
    with ThreadPoolExecutor(_AT_ONCE, "identities") as pool:
        names = sorted(stores)
        return list(
            pool.map(lambda name: _ask(session, name, stores[name], identity, each_s), names)
        )


def _ask(
    session: Session, store: str, address: str, identity: str | None, limit_s: float
) -> Answer:
    request = admin_pb2.ListIdentitiesRequest(identity=identity)
    rows: list[admin_pb2.SeenIdentity] = []
    ends_s = now_s() + min(limit_s, session.timeout_s)
    try:
        while True:
            page = call_store(address, LIST_IDENTITIES, request, left_s(ends_s), session.tls)
            rows += page.identities
            if not page.after:
                return Answer(page.store_id, rows, page.since_us, page.forgotten)
            request.after = page.after
    except LogServiceError as error:
        return Answer(store, error=str(error))


def last_us(group: Group) -> int:
    """When one of them was last used; now, while a stream is under way."""
    if any(row.streams for _, row in group):
        return int(time.time() * 1e6)
    return max(row.last_us for _, row in group)


def last_uses(answers: Sequence[Answer]) -> dict[str, str]:
    """When each identity was last used, by all that the stores say."""
    groups: dict[str, Group] = {}
    for one in answers:
        for row in one.rows:
            groups.setdefault(row.identity, []).append((one.store, row))
    return {who: text for who, group in groups.items() if (text := _when(last_us(group)))}


def merged(group: Group) -> Row:
    """One row of what several stores, or one, say of an identity."""
    store, last = max(group, key=lambda item: item[1].last_us)
    _, denied = max(group, key=lambda item: item[1].denied_us)
    seen = [row for _, row in group]
    return {
        "identity": last.identity or NOBODY,
        "first_seen": moment_text(min(row.first_us for row in seen)),
        "last_use": _when(last_us(group)),
        "store": store,
        "address": last.peer,
        "certificate": last.serial or None,
        "certificate_ends": _when(last.not_after_us),
        "calls": sum(row.calls for row in seen),
        "streams": sum(row.streams for row in seen),
        "busy": sum(row.busy for row in seen),
        "denials": sum(row.denials for row in seen),
        "last_denied": _when(denied.denied_us),
        "denied_what": denied.denied_what or None,
        "denied_shard": denied.denied_shard if denied.HasField("denied_shard") else None,
        "denied_why": denied.denied_why or None,
    }


def _when(us: int) -> str | None:
    return moment_text(us) if us else None


def title(answers: Sequence[Answer]) -> str:
    """Since when all of the stores that answered look, and how many rows they have let go."""
    since = [one.since_us for one in answers if not one.error]
    if not since:
        return "no store answered"
    forgotten = sum(one.forgotten for one in answers)
    gone = f", {forgotten} forgotten to make room" if forgotten else ""
    since_text = f"all since {moment_text(max(since))}"
    return f"as {len(since)} of {len(answers)} stores saw it, {since_text}{gone}"


def tell_errors(answers: Sequence[Answer]) -> None:
    """Name the stores whose answer is missing."""
    for one in answers:
        if one.error:
            say(f"{one.store} did not say: {one.error}", err=True)
