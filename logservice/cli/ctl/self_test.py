"""`logctl self-test`: disks, ways between stores and machines, measured from inside every store.

Each store measures one thing at a time, and here one thing at a time is asked for in the whole
cluster, so that no measurement disturbs another one. Whoever interrupts the command ends the one
that is under way: the store hears that its caller has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import click
from logservice_wire.errors import Busy, InvalidArgument, LogServiceError
from logservice_wire.rpcs import MEASURE
from logservice_wire.v1 import admin_pb2, hakeeper_pb2

from logservice.bounds import SELF_TEST_DISK_S, SELF_TEST_PART_S
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.direct_call import call_store
from logservice.cli.ctl.store_argument import store_argument
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import Row, output_option, say, show_rows
from logservice.safe_text import safe_text

_TIMEOUT_S: Final = SELF_TEST_DISK_S + 5 * SELF_TEST_PART_S
"""For one measurement, which a store ends before."""

_PAGES: Final = {
    "disk": "docs/operations/slow-disk.md",
    "network": "docs/operations/self-test.md#the-network",
    "machine": "docs/operations/self-test.md#the-machine",
}
"""Where what is slow or bad is explained."""


class _Part(NamedTuple):
    store: str
    address: str
    what: str
    target: str


@click.command(name="self-test")
@store_argument("store_ids", "[STORE]...", nargs=-1)
@click.option("--disk/--no-disk", default=True, help="Measure the data directories.")
@click.option("--network/--no-network", default=True, help="Measure the ways to other stores.")
@output_option
@pass_session
def self_test(
    session: Session, store_ids: tuple[str, ...], disk: bool, network: bool, form: str
) -> int:
    """Measure disks and network from inside every STORE, or all of them.

    It adds load: each data directory gets a file of 64 MiB for some seconds, each pair of stores
    exchanges 32 MiB. One thing is measured at a time, and each for seconds. A disk that is nearly
    full is left out. How far it is goes to stderr; whoever interrupts it ends it, and no file
    stays.

    Every figure is judged: ok, slow, bad. Exit code 1 when one is bad.
    """
    state = session.run(lambda client: client.hakeeper.cluster_state(timeout=session.timeout_s))
    parts = list(_parts(state, store_ids, disk=disk, network=network))
    say("this adds load to the cluster while it runs", err=True)
    rows: list[Row] = []
    for number, part in enumerate(parts, 1):
        text = f"{number}/{len(parts)} {part.store}: {part.what} {part.target}".rstrip()
        say(safe_text(text), err=True)
        rows += [_row(part, figure) for figure in _measured(session, part)]
    main = ("store", "what", "target", "figure", "value", "unit", "verdict")
    show_rows(form, rows, "self-test", main=main, if_any=("text",))
    for what, page in _PAGES.items():
        if any(row["what"] == what and row["verdict"] in ("slow", "bad") for row in rows):
            say(f"{what}: see {page}", err=True)
    bad = any(row["verdict"] == "bad" for row in rows)
    return exit_codes.NEGATIVE if bad else exit_codes.OK


def _parts(
    state: hakeeper_pb2.ClusterState, wanted: tuple[str, ...], *, disk: bool, network: bool
) -> Iterator[_Part]:
    known = {one.store_id: one for one in state.stores}
    for name in wanted:
        if name not in known:
            text = f"no store is called {name}; there are {', '.join(sorted(known))}"
            raise InvalidArgument(text, field="store_id")
    for store_id in sorted(wanted or known):
        store = known[store_id]
        address = store.client_address
        yield _Part(store_id, address, "machine", "")
        for directory in store.directories if disk else ():
            yield _Part(store_id, address, "disk", directory.path)
        for other in sorted(known) if network else ():
            if other != store_id:
                yield _Part(store_id, address, "network", other)


def _measured(session: Session, part: _Part) -> list[admin_pb2.Figure]:
    """What the store says; an error is a figure, too, so that the others are measured all the
    same.
    """
    request = admin_pb2.MeasureRequest(what=part.what, target=part.target)
    try:
        found = call_store(part.address, MEASURE, request, _TIMEOUT_S, session.tls)
    except Busy:
        raise
    except LogServiceError as error:
        text = f"{error.reason.value}: {error.message}"
        return [admin_pb2.Figure(name="answers", verdict="bad", text=text)]
    return list(found.figures)


def _row(part: _Part, figure: admin_pb2.Figure) -> Row:
    return {
        "store": part.store,
        "what": part.what,
        "target": part.target,
        "figure": figure.name,
        "value": round(figure.value, 1) if figure.unit else None,
        "unit": figure.unit,
        "verdict": figure.verdict,
        "slow_at": round(figure.slow, 1) or None,
        "bad_at": round(figure.bad, 1) or None,
        "text": figure.text,
    }
